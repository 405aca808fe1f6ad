//! Locks of applications, as the master hears of them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig};
use master::{Output, PeerId};
use meta::FsError;
use types::{Ino, NodeId};
use wire::{BYTE_MAX, ByteLock, FromMaster, LockKind, LockOp, LockOwner, ToMaster};

fn flock(owner: u64, exclusive: bool) -> ByteLock {
    ByteLock {
        ino: Ino(20),
        kind: LockKind::Flock,
        owner: LockOwner(owner),
        pid: 1,
        exclusive,
        start: 0,
        end: BYTE_MAX + 1,
    }
}

fn set(rig: &mut Rig, peer: PeerId, request: u64, lock: ByteLock) -> Vec<Output> {
    rig.tell(peer, ToMaster::Lock { request, op: LockOp::Set { lock, wait: false } })
}

fn answer(outputs: &[Output], to: PeerId) -> Option<Option<FsError>> {
    outputs.iter().find_map(|output| match output {
        Output::Send { peer, message: FromMaster::Locked { error, .. } } if *peer == to => Some(*error),
        _ => None,
    })
}

/// Goal: who gives up a shared flock to take an exclusive one, and is interrupted before that is decided, has neither. Method: while the
/// master asks the node of another shared lock what was closed there, the request is cancelled; once that other is gone, an exclusive lock
/// is free.
#[test]
fn an_interrupted_conversion_leaves_no_lock() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    assert_eq!(answer(&set(&mut rig, A, 1, flock(1, false)), A), Some(None));
    assert_eq!(answer(&set(&mut rig, B, 1, flock(2, false)), B), Some(None));
    let asked = set(&mut rig, A, 2, flock(1, true));
    assert_eq!(answer(&asked, A), None, "B is asked first: {asked:?}");
    let cancelled = rig.tell(A, ToMaster::CancelLock { request: 2 });
    assert_eq!(answer(&cancelled, A), Some(Some(FsError::Interrupted)));
    let converted = set(&mut rig, B, 2, flock(2, true));
    assert_eq!(answer(&converted, B), Some(None), "nobody else has one: {converted:?}");
}
