//! Locks of applications, of which a node tells a new master.
//!
//! A core alone; the test plays its masters.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, member, welcome};
use types::{Epoch, Ino, Micros};
use vfs::{Clock, Core, HandleId, Interrupt, Output, Reply, Request, RequestId};
use wire::{ByteLock, FromMaster, LockKind, LockOp, LockOwner, ReassertPart, ToMaster};

const LOCK: ByteLock = ByteLock {
    ino: Ino(50),
    kind: LockKind::Flock,
    owner: LockOwner(7),
    pid: 1,
    exclusive: true,
    start: 0,
    end: 100,
};

fn sent(core: &mut Core) -> Vec<ToMaster> {
    let mut sent = Vec::new();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(message) => sent.push(message),
            Output::Reply(..) => panic!("answered while the lease is over"),
            _ => {}
        }
    }
    sent
}

/// What the master grants just when the lease is over, so that nobody is answered, and what it took back.
fn told_to_a_new_master(request: Request) -> Vec<ByteLock> {
    let mut core = member();
    assert!(core.submit(CLOCK, RequestId(1), request).is_none());
    let asked = sent(&mut core).into_iter().find_map(|message| match message {
        ToMaster::Lock { request, op: LockOp::Set { .. } | LockOp::Unset { .. } } => Some(request),
        _ => None,
    });
    let later = Clock { now: CLOCK.now + Micros(2_000_000_000), ..CLOCK };
    core.handle_timeout(later);
    sent(&mut core);
    core.handle_message(later, FromMaster::Locked { request: asked.unwrap(), error: None, conflict: None });
    sent(&mut core);
    // Whoever is disturbed now has it, and is not told that he has not.
    core.interrupt(later, RequestId(1), Interrupt::Signal);
    sent(&mut core);

    core.link_down(later);
    core.hello(later, 1, 1, String::new(), String::new());
    sent(&mut core);
    let mut again = welcome(10_000_000_000);
    let FromMaster::Welcome { epoch, reassert, .. } = &mut again else { unreachable!() };
    (*epoch, *reassert) = (Epoch(2), true);
    core.handle_message(later, again);
    let mut told = Vec::new();
    while let Some(output) = core.poll_output() {
        if let Output::Send(ToMaster::Reassert { part: ReassertPart::Locks { list }, .. }) = output {
            told.extend(list);
        }
    }
    told
}

#[test]
fn a_lock_that_was_granted_is_told_to_a_new_master_though_nobody_was_answered() {
    let request = Request::SetLock { lock: LOCK, handle: HandleId(1), wait: true };
    assert_eq!(told_to_a_new_master(request), [LOCK]);
}

/// Messages and answers that came of the last call.
fn outcome(core: &mut Core) -> (Vec<ToMaster>, Vec<(RequestId, Reply)>) {
    let (mut messages, mut replies) = (Vec::new(), Vec::new());
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(message) => messages.push(message),
            Output::Reply(id, reply) => replies.push((id, reply)),
            _ => {}
        }
    }
    (messages, replies)
}

fn lock_asked(messages: &[ToMaster]) -> Option<(u64, LockOp)> {
    messages.iter().find_map(|message| match message {
        ToMaster::Lock { request, op } => Some((*request, *op)),
        _ => None,
    })
}

#[test]
fn who_has_given_up_waiting_does_not_wait_for_the_next_master() {
    let mut core = member();
    let request = Request::SetLock { lock: LOCK, handle: HandleId(1), wait: true };
    assert!(core.submit(CLOCK, RequestId(1), request).is_none());
    assert!(lock_asked(&outcome(&mut core).0).is_some());
    core.interrupt(CLOCK, RequestId(1), Interrupt::Death);
    let (told, _) = outcome(&mut core);
    assert!(matches!(told[..], [ToMaster::CancelLock { .. }]), "{told:?}");
    // The master has died with it.
    common::change_master(&mut core);
    let (messages, replies) = outcome(&mut core);
    assert_eq!(lock_asked(&messages), None);
    assert!(matches!(replies[..], [(RequestId(1), Reply::Error(meta::FsError::Interrupted))]), "{replies:?}");
}

/// flock(2) gives up before it takes, and somebody else may have got it since.
#[test]
fn a_flock_that_waits_to_be_converted_is_not_told_to_a_new_master() {
    let mut core = member();
    for (id, exclusive) in [(1, false), (2, true)] {
        let lock = ByteLock { exclusive, ..LOCK };
        let request = Request::SetLock { lock, handle: HandleId(1), wait: true };
        assert!(core.submit(CLOCK, RequestId(id), request).is_none());
        let (asked, _) = lock_asked(&outcome(&mut core).0).unwrap();
        if !exclusive {
            let granted = FromMaster::Locked { request: asked, error: None, conflict: None };
            core.handle_message(CLOCK, granted);
            outcome(&mut core);
        }
    }
    common::change_master(&mut core);
    let (messages, _) = outcome(&mut core);
    let told = messages.iter().find_map(|message| match message {
        ToMaster::Reassert { part: ReassertPart::Locks { list }, .. } => Some(list.len()),
        _ => None,
    });
    assert_eq!(told, Some(0), "{messages:?}");
    assert!(matches!(lock_asked(&messages), Some((_, LockOp::Set { wait: true, .. }))), "it waits on");
}

/// Goal: who asks for the flock that it has keeps it, whatever becomes of the master. Method: a shared one is asked for twice; the master dies before
/// the second answer.
#[test]
fn a_flock_that_is_asked_for_again_is_told_to_a_new_master() {
    let mut core = member();
    let lock = ByteLock { exclusive: false, ..LOCK };
    let set = |core: &mut Core, id, pid| {
        let request = Request::SetLock { lock: ByteLock { pid, ..lock }, handle: HandleId(1), wait: true };
        assert!(core.submit(CLOCK, RequestId(id), request).is_none());
        lock_asked(&outcome(core).0).unwrap().0
    };
    let request = set(&mut core, 1, 1);
    core.handle_message(CLOCK, FromMaster::Locked { request, error: None, conflict: None });
    set(&mut core, 2, 2);
    common::change_master(&mut core);
    let (messages, _) = outcome(&mut core);
    let told = messages.iter().find_map(|message| match message {
        ToMaster::Reassert { part: ReassertPart::Locks { list }, .. } => Some(list.clone()),
        _ => None,
    });
    assert_eq!(told, Some(vec![lock]), "{messages:?}");
}

#[test]
fn the_last_close_gives_up_each_kind_of_lock() {
    let mut core = member();
    let posix = |owner| ByteLock { kind: LockKind::Posix, owner: LockOwner(owner), ..LOCK };
    let handle = HandleId(9);
    for (id, lock) in [LOCK, posix(8), posix(9)].into_iter().enumerate() {
        let request = Request::SetLock { lock, handle, wait: false };
        assert!(core.submit(CLOCK, RequestId(id as u64), request).is_none());
        let (asked, _) = lock_asked(&outcome(&mut core).0).unwrap();
        core.handle_message(CLOCK, FromMaster::Locked { request: asked, error: None, conflict: None });
        outcome(&mut core);
    }
    let release = Request::Release { ino: LOCK.ino, handle, flock: Some(LOCK.owner) };
    assert!(core.submit(CLOCK, RequestId(10), release).is_none());
    let mut dropped = Vec::new();
    loop {
        let (messages, replies) = outcome(&mut core);
        let Some((request, LockOp::Drop { kind, owner, .. })) = lock_asked(&messages) else {
            assert!(matches!(replies[..], [(RequestId(10), Reply::Done)]), "{replies:?} after {dropped:?}");
            break;
        };
        dropped.push((kind, owner.0));
        core.handle_message(CLOCK, FromMaster::Locked { request, error: None, conflict: None });
    }
    assert_eq!(dropped, [(LockKind::Flock, 7), (LockKind::Posix, 8), (LockKind::Posix, 9)]);
}

fn grant(core: &mut Core, id: u64, request: Request) {
    assert!(core.submit(CLOCK, RequestId(id), request).is_none());
    let (asked, _) = lock_asked(&outcome(core).0).unwrap();
    core.handle_message(CLOCK, FromMaster::Locked { request: asked, error: None, conflict: None });
    outcome(core);
}

/// Goal: a close is not told before it has given up every lock. Method: of two kinds, the second of which goes when the first has; the master asks
/// while the first is on its way.
#[test]
fn a_close_is_told_once_all_its_locks_are_given_up() {
    let mut core = member();
    let handle = HandleId(9);
    let posix = ByteLock { kind: LockKind::Posix, owner: LockOwner(8), ..LOCK };
    for (id, lock) in [(1, LOCK), (2, posix)] {
        grant(&mut core, id, Request::SetLock { lock, handle, wait: false });
    }
    let release = Request::Release { ino: LOCK.ino, handle, flock: Some(LOCK.owner) };
    assert!(core.submit(CLOCK, RequestId(3), release).is_none());
    core.handle_message(CLOCK, FromMaster::TellCloses { seq: 77, ino: LOCK.ino });
    core.closes_told(CLOCK, 77);
    let is_told = |message: &ToMaster| matches!(message, ToMaster::ClosesTold { seq: 77 });
    for left in [2, 1] {
        let (messages, replies) = outcome(&mut core);
        assert!(!messages.iter().any(is_told) && replies.is_empty(), "{left} left: {messages:?}");
        let (asked, _) = lock_asked(&messages).unwrap();
        core.handle_message(CLOCK, FromMaster::Locked { request: asked, error: None, conflict: None });
    }
    let (messages, replies) = outcome(&mut core);
    assert!(messages.iter().any(is_told) && replies.len() == 1, "{messages:?} {replies:?}");
}
