//! A file that a shipped operation made and that is not open here yet.
//!
//! A core alone; the test plays two masters, one after the other.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{reserved, root_grant, welcome};
use meta::{FileKind, OpReply};
use obs::Metrics;
use types::{Epoch, Ino, LockMode, Micros, Timespec};
use vfs::{Clock, Config, Core, MakeSpec, OpenMode, Output, Request, RequestId};
use wire::{FromMaster, ReassertPart, ToMaster, Want};

const CLOCK: Clock = Clock { now: Micros(1_000_000), wall: Timespec { secs: 0, nanos: 0 } };

/// Goal: what has been made for a process is open, whatever others do to its name before the process is told, and whoever
/// is master then. Method: the operation is answered, its process waits for the attributes, and the master dies.
#[test]
fn what_is_made_and_not_yet_open_is_reported_to_the_next_master() {
    let store = Arc::new(MemStore::new());
    let mut core = Core::new(Config::default(), [7; 16], store, Arc::new(Metrics::new()));
    core.hello(CLOCK, 1, 1, String::new(), String::new());
    core.handle_message(CLOCK, welcome(1_000_000_000));
    core.handle_message(CLOCK, reserved());
    let made = make(&mut core);

    core.link_down(CLOCK);
    core.hello(CLOCK, 1, 1, String::new(), String::new());
    let FromMaster::Welcome { node, lease_us, token_share, cookie_key, batch_applied, .. } =
        welcome(1_000_000_000)
    else {
        panic!("a welcome")
    };
    let epoch = Epoch(2);
    core.handle_message(
        CLOCK,
        FromMaster::Welcome { node, epoch, lease_us, token_share, cookie_key, batch_applied, reassert: true },
    );
    let mut reported = None;
    while let Some(output) = core.poll_output() {
        if let Output::Send(ToMaster::Reassert { part: ReassertPart::Open { list }, .. }) = output {
            reported = Some(list);
        }
    }
    assert_eq!(reported.unwrap(), [made]);
}

/// Has a file made in the root, which others read too, and leaves its process waiting for the attributes.
fn make(core: &mut Core) -> Ino {
    let spec = MakeSpec {
        kind: FileKind::File,
        mode: 0o644,
        umask: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Box::default(),
    };
    let open = OpenMode { write: true, ..OpenMode::default() };
    let name = b"f"[..].into();
    let create = Request::Create { parent: Ino::ROOT, name, spec, open, exclusive: true };
    assert!(core.submit(CLOCK, RequestId(1), create).is_none());
    let mut made = None;
    while let Some(output) = core.poll_output() {
        let answer = match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { .. }, .. }) => {
                let mut grant = root_grant();
                grant.mode = LockMode::Pr;
                FromMaster::Acquired { request, error: None, grants: vec![grant], seen: 0, glimpse: None }
            }
            Output::Send(ToMaster::Ship { seq, op: meta::Op::Create { new, .. }, .. }) => {
                made = Some(new.ino);
                let result = Ok(OpReply::Inode { ino: new.ino });
                FromMaster::Shipped { seq, result, changes: Vec::new(), grants: Vec::new(), seen: 0 }
            }
            Output::Reply(_, reply) => panic!("answered {reply:?}"),
            _ => continue,
        };
        core.handle_message(CLOCK, answer);
    }
    made.expect("the operation is shipped")
}
