//! What is under way when a membership ends is not taken for something of the next one.
//!
//! A core alone; the test plays the master and the kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, create, member, reserved, root_acquired, welcome};
use types::{Ino, LockMode, Micros, ResourceId};
use vfs::{Clock, Core, Output, Reply, Request, RequestId};
use wire::{FromMaster, ToMaster, Want};

const LATER: Clock = Clock { now: Micros(CLOCK.now.0 + 1_000_000), ..CLOCK };

/// Goal: a right is given back when the kernel has let go of what is under it *now*. Method: an invalidation for a release of
/// the last membership ends while the same right is being given back by the next.
#[test]
fn an_invalidation_of_the_last_membership_ends_no_release_of_the_next() {
    let mut core = member();
    let old = asked_to_give_back(&mut core, "f");
    core.handle_message(LATER, FromMaster::Ended { reason: "the test says so".to_owned() });
    let (_, jobs) = run(&mut core);
    assert_eq!(jobs.len(), 1, "the kernel's caches are emptied");
    core.invalidated(LATER, jobs[0]);
    run(&mut core);
    core.hello(LATER, 1, 1, String::new(), String::new());
    core.handle_message(LATER, welcome(1_000_000_000));
    core.handle_message(LATER, reserved());

    let new = asked_to_give_back(&mut core, "g");
    core.invalidated(LATER, old);
    let (said, _) = run(&mut core);
    assert!(!said.iter().any(is_release), "the kernel still has it: {said:?}");
    core.invalidated(LATER, new);
    let (said, _) = run(&mut core);
    assert!(said.iter().any(is_release), "{said:?}");
}

/// Goal: what the master grants to a membership that has just ended is nothing to the next. Method: the directory that was asked for is granted when
/// the node has given up, before its kernel has.
#[test]
fn what_is_granted_to_a_membership_that_has_ended_is_not_taken() {
    let mut core = member();
    let look = Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() };
    assert!(core.submit(LATER, RequestId(1), look).is_none());
    let mut asked = None;
    while let Some(output) = core.poll_output() {
        if let Output::Send(ToMaster::Acquire { request, .. }) = output {
            asked = Some(request);
        }
    }
    let reason = "the test says so".to_owned();
    core.handle_message(LATER, FromMaster::BatchRefused { seq: types::BatchSeq(1), reason });
    core.handle_message(LATER, root_acquired(asked.unwrap()));
    assert_eq!(core.held_mode(ResourceId::dir(Ino::ROOT)), LockMode::Nl);
}

/// Goal: names that went with a membership are not called durable by the next. Method: a name is made and not flushed, the membership ends, and
/// the directory is synced: once that fails.
#[test]
fn an_fsync_of_a_directory_tells_of_names_that_a_membership_took_along() {
    let mut core = member();
    let look = Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() };
    assert!(core.submit(LATER, RequestId(1), look).is_none(), "the root is asked for");
    run(&mut core);
    assert!(matches!(core.submit(LATER, RequestId(2), create("f")), Some(Reply::Created(..))));
    core.handle_message(LATER, FromMaster::Ended { reason: "the test says so".to_owned() });
    let (_, jobs) = run(&mut core);
    jobs.into_iter().for_each(|job| core.invalidated(LATER, job));
    run(&mut core);
    core.hello(LATER, 1, 1, String::new(), String::new());
    core.handle_message(LATER, welcome(1_000_000_000));
    core.handle_message(LATER, reserved());
    run(&mut core);
    let first = core.submit(LATER, RequestId(3), Request::Fsync { ino: Ino::ROOT });
    assert!(matches!(first, Some(Reply::Error(meta::FsError::Io))), "{first:?}");
    let second = core.submit(LATER, RequestId(4), Request::Fsync { ino: Ino::ROOT });
    assert!(!matches!(second, Some(Reply::Error(_))), "{second:?}");
}

/// Makes a file in the root, and has the root asked for. Returns the number of the invalidation.
fn asked_to_give_back(core: &mut Core, name: &str) -> u64 {
    let number = u64::from(name.as_bytes()[0]);
    let look = Request::Lookup { parent: Ino::ROOT, name: name.as_bytes().into() };
    assert!(core.submit(LATER, RequestId(number), look).is_none(), "the root is asked for");
    run(core);
    let made = core.submit(LATER, RequestId(number + 100), create(name));
    assert!(matches!(made, Some(Reply::Created(..))), "{made:?}");
    let list = vec![(ResourceId::dir(Ino::ROOT), LockMode::Nl)];
    core.handle_message(LATER, FromMaster::Revoke { list, speculative: false });
    core.handle_timeout(Clock { now: Micros(LATER.now.0 + 100_000), ..LATER });
    let (said, jobs) = run(core);
    assert!(!said.iter().any(is_release), "{said:?}");
    assert_eq!(jobs.len(), 1, "what the kernel has of the root");
    jobs[0]
}

fn is_release(message: &ToMaster) -> bool {
    matches!(message, ToMaster::Release { .. })
}

/// Grants the root. Returns what was said else, and the invalidations that the kernel has not begun.
fn run(core: &mut Core) -> (Vec<ToMaster>, Vec<u64>) {
    let (mut said, mut jobs) = (Vec::new(), Vec::new());
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { .. }, .. }) => {
                core.handle_message(LATER, root_acquired(request));
            }
            Output::Send(message) => said.push(message),
            Output::Invalidate { job, .. } => jobs.push(job),
            Output::Gather { job } => common::gather(core, LATER, job),
            Output::CollectStores => core.stores_collected(LATER),
            Output::Sync { .. } | Output::Reply(..) | Output::TellCloses { .. } => {}
            Output::Left | Output::Rejoin | Output::Lost(_) => {}
        }
    }
    (said, jobs)
}
