//! A node that has said its farewell says nothing more: its master would not know who it is.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::welcome;
use obs::Metrics;
use types::{Ino, Micros, Timespec};
use vfs::{Clock, Config, Core, Output};
use wire::{FromMaster, ToMaster};

const CLOCK: Clock = Clock { now: Micros(1_000_000), wall: Timespec { secs: 0, nanos: 0 } };

/// Carries out what the core orders. Returns what it said, and whether it has left.
fn run(core: &mut Core) -> (Vec<ToMaster>, bool) {
    let (mut said, mut has_left) = (Vec::new(), false);
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(message) => said.push(message),
            Output::Invalidate { job, .. } => core.invalidated(CLOCK, job),
            Output::Left => has_left = true,
            Output::Lost(reason) => panic!("lost: {reason}"),
            Output::Gather { job } => common::gather(core, CLOCK, job),
            Output::CollectStores => core.stores_collected(CLOCK),
            Output::Reply(..) | Output::Sync { .. } | Output::TellCloses { .. } | Output::Rejoin => {}
        }
    }
    (said, has_left)
}

/// What the master asked before it had read the farewell: a membership lost at the very end of an unmount, when all
/// was flushed, was reported as a failed one.
#[test]
fn nothing_is_said_after_the_farewell() {
    let store = Arc::new(MemStore::new());
    let mut core = Core::new(Config::default(), [7; 16], store, Arc::new(Metrics::new()));
    core.hello(CLOCK, 1, 1, String::new(), String::new());
    core.handle_message(CLOCK, welcome(10_000_000));
    core.handle_message(
        CLOCK,
        FromMaster::Reserved { first_inode: Ino(100), inodes: 100, first_segment: 1, segments: 8 },
    );
    // While it is a member it answers.
    run(&mut core);
    core.handle_message(CLOCK, FromMaster::Barrier { seq: 1, segments: Vec::new() });
    let (said, _) = run(&mut core);
    assert!(said.iter().any(|message| matches!(message, ToMaster::Barriered { seq: 1 })), "{said:?}");

    core.leave(CLOCK);
    let (said, has_left) = run(&mut core);
    assert!(matches!(said.last(), Some(ToMaster::Bye {})), "{said:?}");
    assert!(has_left);
    core.handle_message(CLOCK, FromMaster::Barrier { seq: 2, segments: Vec::new() });
    core.handle_timeout(Clock { now: Micros(9_000_000), ..CLOCK });
    assert!(run(&mut core).0.is_empty());
}

/// What a master says of numbers is bounded: a node that believed it would fill its memory with them.
#[test]
fn a_master_that_reserves_without_measure_is_left() {
    for (first_inode, inodes, first_segment, segments) in
        [(100, 0, 1, u32::MAX), (u64::MAX, 2, 1, 1), (100, 1, u64::MAX, 2)]
    {
        let store = Arc::new(MemStore::new());
        let mut core = Core::new(Config::default(), [7; 16], store, Arc::new(Metrics::new()));
        core.hello(CLOCK, 1, 1, String::new(), String::new());
        core.handle_message(CLOCK, welcome(10_000_000));
        run(&mut core);
        let first_inode = Ino(first_inode);
        core.handle_message(CLOCK, FromMaster::Reserved { first_inode, inodes, first_segment, segments });
        let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output()).collect();
        assert!(outputs.iter().any(|output| matches!(output, Output::Lost(_))), "{outputs:?}");
    }
}
