//! A master that takes over, and inodes that are in nobody's records yet.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig};
use master::{Output, PeerId};
use meta::{Change, Child, FsError};
use types::{BatchSeq, Ino, LockMode, NodeId, ResourceId};
use wire::{FromMaster, ReassertPart, ToMaster, Want};

/// Goal: what a member has given back while it re-asserted is nobody's. Method: it tells the new master that it holds the root, its
/// connection breaks, and by the next one it tells nothing; another node asks for the root.
#[test]
fn what_was_told_by_a_connection_that_broke_in_a_recovery_counts_no_more() {
    let mut rig = Rig::new();
    let a = rig.join(A, NodeId(0));
    let b = rig.join(B, NodeId(0));
    rig.hold_root(A);
    rig.remaster();
    let (again, other) = (PeerId(3), PeerId(4));
    let done = ToMaster::Reassert { part: ReassertPart::Locks { list: Vec::new() }, done: true };
    rig.join_from(A, 101, a);
    let list = vec![(ResourceId::dir(Ino::ROOT), LockMode::Ex)];
    rig.tell(A, ToMaster::Reassert { part: ReassertPart::Tokens { list }, done: false });
    rig.join_from(again, 101, a);
    rig.join_from(other, 102, b);
    let want = Want::Directory { ino: Ino::ROOT };
    rig.tell(other, ToMaster::Acquire { request: 1, want, ahead: Default::default() });
    rig.tell(other, done.clone());
    let outputs = rig.tell(again, done);
    assert!(outputs.iter().any(|output| is_acquired(output, other, None)), "{outputs:?}");
}

/// Goal: an inode that another node made is there for who has its handle, though it was not flushed. Method: B asks for a number
/// that A has; A flushes before it answers the inquiry, and another time it knows of nothing.
#[test]
fn an_inode_without_a_record_is_asked_for_before_it_is_denied() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    rig.hold_root(A);
    let first = rig.tell(A, ToMaster::Reserve { inodes: 16, segments: 0 });
    let ino = first.iter().find_map(|output| match output {
        Output::Send { message: FromMaster::Reserved { first_inode, .. }, .. } => Some(*first_inode),
        _ => None,
    });
    let ino = ino.unwrap();
    for is_made in [false, true] {
        let want = Want::Attr { ino };
        let outputs = rig.tell(B, ToMaster::Acquire { request: 7, want, ahead: Default::default() });
        let asked = outputs.iter().find_map(|output| match output {
            Output::Send { peer: A, message: FromMaster::Glimpse { seq, list } } if *list == [ino] => {
                Some(*seq)
            }
            _ => None,
        });
        let seq = asked.unwrap_or_else(|| panic!("{outputs:?}"));
        assert_eq!(outputs.len(), 1, "not denied yet: {outputs:?}");
        if is_made {
            let changes = common::directory(Ino::ROOT, ino);
            let kept = vec![(ResourceId::dir(ino), LockMode::Nl)];
            rig.tell(
                A,
                ToMaster::Batch {
                    seq: BatchSeq(1),
                    kept,
                    changes: changes.into(),
                    sync: false,
                    spent: Vec::new(),
                },
            );
        }
        let outputs = rig.tell(A, ToMaster::Glimpsed { seq, contents: Vec::new() });
        let error = (!is_made).then_some(FsError::Stale);
        assert!(outputs.iter().any(|output| is_acquired(output, B, error)), "{outputs:?}");
    }
    // Who was given a number by this master is asked, and nobody else: not A himself, and not for what nobody was given.
    for (peer, ino) in [(A, Ino(ino.0 + 1)), (B, Ino(u64::MAX))] {
        let want = Want::Attr { ino };
        let outputs = rig.tell(peer, ToMaster::Acquire { request: 8, want, ahead: Default::default() });
        assert!(is_acquired(&outputs[0], peer, Some(FsError::Stale)) && outputs.len() == 1, "{outputs:?}");
    }
    // Of what another master gave everybody may know.
    rig.remaster();
    rig.join(A, NodeId(1));
    rig.join(B, NodeId(2));
    for peer in [A, B] {
        rig.tell(peer, ToMaster::Reassert { part: ReassertPart::Locks { list: Vec::new() }, done: true });
    }
    let want = Want::Attr { ino: Ino(ino.0 + 1) };
    let outputs = rig.tell(A, ToMaster::Acquire { request: 9, want, ahead: Default::default() });
    let is_asked =
        |output: &Output| matches!(output, Output::Send { peer: B, message: FromMaster::Glimpse { .. } });
    assert!(outputs.len() == 1 && is_asked(&outputs[0]), "{outputs:?}");
}

/// Goal: who reads a directory knows which files it does not cover. Method: A has a file open that the root covers, and both nodes
/// read the root, when a master takes over and gives the file keys of its own.
#[test]
fn who_has_a_covered_file_open_is_told_too_when_it_is_split_out_after_a_recovery() {
    let mut rig = Rig::new();
    let a = rig.join(A, NodeId(0));
    let b = rig.join(B, NodeId(0));
    rig.hold_root(A);
    // What it made to get it.
    let ino = Ino(99);
    rig.remaster();
    rig.join(A, a);
    rig.join(B, b);
    let root = || ReassertPart::Tokens { list: vec![(ResourceId::dir(Ino::ROOT), LockMode::Pr)] };
    rig.tell(A, ToMaster::Reassert { part: root(), done: false });
    rig.tell(A, ToMaster::Reassert { part: ReassertPart::Open { list: vec![ino] }, done: true });
    let outputs = rig.tell(B, ToMaster::Reassert { part: root(), done: true });
    for reader in [A, B] {
        let is_told = |output: &Output| match output {
            Output::Send { peer, message: FromMaster::Forget { changes, .. } } if *peer == reader => {
                let own = |change: &Change| matches!(change, Change::PutEntry { entry, .. } if matches!(entry.child, Child::Own { .. }));
                changes.iter().any(own)
            }
            _ => false,
        };
        assert!(outputs.iter().any(is_told), "{reader:?}: {outputs:?}");
    }
}

fn is_acquired(output: &Output, by: PeerId, with: Option<FsError>) -> bool {
    match output {
        Output::Send { peer, message: FromMaster::Acquired { error, .. } } => *peer == by && *error == with,
        _ => false,
    }
}
