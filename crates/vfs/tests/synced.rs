//! Answers that waited for the disk.
//!
//! A core alone; the test plays the master.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{CLOCK, create, reserved, root_acquired, welcome};
use obs::Metrics;
use types::Ino;
use vfs::{AllocateMode, Config, Core, Keep, OpenMode, Output, Reply, Request, RequestId};
use wire::{FromMaster, ToMaster};

/// A member that holds the root in EX.
fn member(config: Config) -> Core {
    let mut core = Core::new(config, [7; 16], Arc::new(MemStore::new()), Arc::new(Metrics::new()));
    core.hello(CLOCK, 1, 1, String::new(), String::new());
    core.handle_message(CLOCK, welcome(1_000_000_000));
    core.handle_message(CLOCK, reserved());
    let look = Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() };
    assert!(core.submit(CLOCK, RequestId(1), look).is_none());
    run(&mut core);
    core
}

/// Does what the core orders; returns the answers that came.
fn run(core: &mut Core) -> Vec<Reply> {
    let mut replies = Vec::new();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, .. }) => {
                core.handle_message(CLOCK, root_acquired(request))
            }
            Output::Send(ToMaster::Batch { seq, sync: true, .. }) => {
                core.handle_message(CLOCK, FromMaster::Durable { seq });
            }
            Output::Reply(RequestId(2), reply) => replies.push(reply),
            _ => {}
        }
    }
    replies
}

/// Goal: what was taken back while an answer waited for the disk is not handed out by it. Method: a file made with and without that wait.
#[test]
fn what_waited_for_the_disk_is_not_kept_by_the_kernel() {
    for (dirsync, keeps) in [(false, true), (true, false)] {
        let mut core = member(Config { dirsync, ..Config::default() });
        let at_once = core.submit(CLOCK, RequestId(2), create("f"));
        assert_eq!(at_once.is_none(), dirsync, "{at_once:?}");
        let made = at_once.or_else(|| run(&mut core).pop());
        let Some(Reply::Created(entry, _)) = made else { panic!("answered {made:?}") };
        assert_eq!(entry.keep_name != Keep::No, keeps);
        assert_eq!(entry.keep_attr != Keep::No, keeps);
    }
}

/// Goal: room made through a descriptor with O_SYNC is durable when it returns, as what is written through it. Method: fallocate of a file opened with and
/// without.
#[test]
fn room_made_through_a_synced_descriptor_waits_for_the_disk() {
    for sync in [false, true] {
        let mut core = member(Config::default());
        let Some(Reply::Created(entry, _)) = core.submit(CLOCK, RequestId(2), create("f")) else {
            panic!("the root is held in EX");
        };
        let (ino, mode) = (entry.attr.ino, AllocateMode::Extend);
        let open = OpenMode { write: true, sync, ..OpenMode::default() };
        let Some(Reply::Opened(opened)) = core.submit(CLOCK, RequestId(2), Request::Open { ino, open })
        else {
            panic!("it is known");
        };
        run(&mut core);
        let handle = opened.handle;
        let allocate = Request::Allocate { ino, offset: 0, len: 9000, mode, handle, kill_privileges: None };
        let at_once = core.submit(CLOCK, RequestId(2), allocate);
        assert_eq!(at_once.is_none(), sync, "{at_once:?}");
        let done = at_once.or_else(|| run(&mut core).pop());
        assert!(matches!(done, Some(Reply::Done)), "answered {done:?}");
    }
}
