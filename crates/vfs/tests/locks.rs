//! Locks of applications, of which a node tells a new master.
//!
//! A core alone; the test plays its masters.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, member, welcome};
use types::{Epoch, Ino, Micros};
use vfs::{Clock, Core, HandleId, Output, Request, RequestId};
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

    core.link_down(later);
    core.hello(later, 1, 1, String::new(), String::new());
    sent(&mut core);
    let FromMaster::Welcome { node, lease_us, token_share, cookie_key, batch_applied, .. } =
        welcome(10_000_000_000)
    else {
        unreachable!()
    };
    let epoch = Epoch(2);
    let again =
        FromMaster::Welcome { node, epoch, lease_us, token_share, cookie_key, batch_applied, reassert: true };
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
