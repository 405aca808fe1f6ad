//! Locks of applications, as the master hears of them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig};
use master::{Output, PeerId};
use meta::FsError;
use types::{Ino, NodeId};
use wire::{BYTE_MAX, ByteLock, FromMaster, LockKind, LockOp, LockOwner, ReassertPart, ToMaster};

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

/// Goal: who asks for the flock that it has goes on having it. Method: A asks for its shared one again while B waits for an exclusive one, and once more in a
/// recovery, where it calls that off.
#[test]
fn a_flock_asked_for_again_lets_nobody_through() {
    let mut rig = Rig::new();
    let a = rig.join(A, NodeId(0));
    let b = rig.join(B, NodeId(0));
    assert_eq!(answer(&set(&mut rig, A, 1, flock(1, false)), A), Some(None));
    let wait = |lock| LockOp::Set { lock, wait: true };
    rig.tell(B, ToMaster::Lock { request: 1, op: wait(flock(2, true)) });
    let again = rig.tell(A, ToMaster::Lock { request: 2, op: wait(flock(1, false)) });
    assert_eq!((answer(&again, A), answer(&again, B)), (Some(None), None), "{again:?}");

    rig.remaster();
    rig.join_from(A, 101, a);
    let done = |list| ToMaster::Reassert { part: ReassertPart::Locks { list }, done: true };
    rig.tell(A, done(vec![flock(1, false)]));
    rig.tell(A, ToMaster::Lock { request: 3, op: wait(flock(1, false)) });
    let cancelled = rig.tell(A, ToMaster::CancelLock { request: 3 });
    assert_eq!(answer(&cancelled, A), Some(Some(FsError::Interrupted)), "{cancelled:?}");
    rig.join_from(B, 102, b);
    rig.tell(B, done(Vec::new()));
    let refused = set(&mut rig, B, 4, flock(2, true));
    assert_eq!(answer(&refused, B), None, "A is asked first: {refused:?}");
    let told = rig.tell(A, ToMaster::ClosesTold { seq: asked_of_closes(&refused) });
    assert_eq!(answer(&told, B), Some(Some(FsError::WouldBlock)), "A has its lock: {told:?}");
}

fn asked_of_closes(outputs: &[Output]) -> u64 {
    let asked = outputs.iter().find_map(|output| match output {
        Output::Send { message: FromMaster::TellCloses { seq, .. }, .. } => Some(*seq),
        _ => None,
    });
    asked.unwrap()
}

/// Goal: who asks again and again without waiting gets the lock of a node whose lease has ended, as who waits would. Method: the holder says nothing
/// any more; the other one pings, and asks before the lease has ended and after.
#[test]
fn the_lock_of_a_lapsed_node_is_free_for_who_does_not_wait() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    assert_eq!(answer(&set(&mut rig, A, 1, flock(1, true)), A), Some(None));
    rig.master.disconnected(rig.clock(), A, false);
    rig.outputs();
    let (mut refused, mut granted) = (0, false);
    for second in 0..60 {
        rig.wait();
        rig.tell(B, ToMaster::Ping { store_wait_us: 0 });
        match answer(&set(&mut rig, B, second, flock(2, true)), B) {
            Some(Some(FsError::WouldBlock)) => refused += 1,
            Some(None) => {
                granted = true;
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(granted && refused >= 5, "refused for {refused} s: it holds the lock as long as its lease");
}

/// Goal: who gives up waiting is not held until a change of master is over. Method: the new master waits for B; A has asked anew to
/// convert its flock, and cancels, by which it has none: B gets one.
#[test]
fn who_gives_up_waiting_in_a_recovery_is_answered_at_once() {
    let mut rig = Rig::new();
    let a = rig.join(A, NodeId(0));
    let b = rig.join(B, NodeId(0));
    rig.remaster();
    rig.join_from(A, 101, a);
    let done = |list| ToMaster::Reassert { part: ReassertPart::Locks { list }, done: true };
    rig.tell(A, done(vec![flock(1, false)]));
    let op = LockOp::Set { lock: flock(1, true), wait: true };
    let asked = rig.tell(A, ToMaster::Lock { request: 5, op });
    assert_eq!(answer(&asked, A), None, "B has not told what it holds: {asked:?}");
    let cancelled = rig.tell(A, ToMaster::CancelLock { request: 5 });
    assert_eq!(answer(&cancelled, A), Some(Some(FsError::Interrupted)), "{cancelled:?}");
    rig.join_from(B, 102, b);
    rig.tell(B, done(Vec::new()));
    assert_eq!(answer(&set(&mut rig, B, 6, flock(2, true)), B), Some(None), "nobody has one");
}
