//! A master whose commit failed says nothing more: what it would show was not committed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig};
use kv::{Failure, Operation};
use master::Output;
use types::{BatchSeq, Ino, LockMode, NodeId, ResourceId};
use wire::{ToMaster, Want};

#[test]
fn what_a_failed_batch_held_is_not_granted_without_it() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let own = (ResourceId::dir(Ino(100)), LockMode::Ex);
    let batch = |seq: u64| ToMaster::Batch {
        seq: BatchSeq(seq),
        kept: vec![own],
        changes: common::directory(Ino::ROOT, Ino(100)).into(),
        sync: false,
        spent: Vec::new(),
    };
    rig.hold_root(A);
    rig.tell(A, batch(1));
    rig.disk.fail_next(Operation::Commit, Failure::Full);
    let outputs = rig.tell(A, batch(2));
    assert!(outputs.iter().any(|output| matches!(output, Output::Failed { .. })));
    // They were on their way when it failed.
    let list = vec![(own.0, LockMode::Nl)];
    assert!(rig.tell(A, ToMaster::Release { list, open: Vec::new() }).is_empty());
    let want = Want::Directory { ino: Ino(100) };
    assert!(rig.tell(B, ToMaster::Acquire { request: 1, want, ahead: Default::default() }).is_empty());
    assert!(rig.wait().is_empty());
}
