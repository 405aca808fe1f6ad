//! A master whose commit failed says nothing more: what it would show was not committed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig};
use kv::{Failure, Operation};
use master::Output;
use meta::FileKind;
use types::{BatchSeq, Ino, LockMode, NodeId, OpSeq, ResourceId, Timespec};
use wire::{FromMaster, ToMaster, Want};

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

/// Goal: nobody takes a change in that was not committed. Method: one of two who read a directory changes it; the commit fails.
#[test]
fn the_sender_is_not_told_of_a_change_whose_commit_failed() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    for peer in [A, B] {
        let want = Want::Directory { ino: Ino::ROOT };
        rig.tell(peer, ToMaster::Acquire { request: 1, want, ahead: Default::default() });
    }
    let ship = |seq, name| {
        let op = common::make(Ino(100 + seq), name, FileKind::File, b"");
        ToMaster::Ship { seq: OpSeq(seq), acked: OpSeq(0), now: Timespec::default(), op, spent: Vec::new() }
    };
    let is_told = |outputs: &[Output]| {
        let is_changed =
            |output: &Output| matches!(output, Output::Send { message: FromMaster::Changed { .. }, .. });
        outputs.iter().any(is_changed)
    };
    assert!(is_told(&rig.tell(A, ship(1, b"one"))));
    rig.disk.fail_next(Operation::Commit, Failure::Full);
    let outputs = rig.tell(A, ship(2, b"two"));
    assert!(!is_told(&outputs) && outputs.iter().any(|output| matches!(output, Output::Failed { .. })));
}
