//! A file that a shipped operation made and that is not open here yet.
//!
//! A core alone; the test plays two masters, one after the other.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, change_master, create, member, root_grant};
use meta::OpReply;
use types::{Ino, LockMode};
use vfs::{Core, Output, RequestId};
use wire::{FromMaster, ReassertPart, ToMaster, Want};

/// Goal: what has been made for a process is open, whatever others do to its name before the process is told, and whoever
/// is master then. Method: the operation is answered, its process waits for the attributes, and the master dies.
#[test]
fn what_is_made_and_not_yet_open_is_reported_to_the_next_master() {
    let mut core = member();
    let made = make(&mut core);

    change_master(&mut core);
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
    assert!(core.submit(CLOCK, RequestId(1), create("f")).is_none());
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
