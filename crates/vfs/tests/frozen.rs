//! Directories that a shipped operation changes, while it is under way.
//!
//! A core alone; the test plays the master.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, member, root_grant};
use meta::{FileKind, FsError};
use types::{Ino, LockMode, OpSeq, ResourceId};
use vfs::{Core, MakeSpec, Output, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, ToMaster};

/// Goal: what the master is about to change is not changed here before it says what it made of it. Method: two operations are shipped
/// while the root is held in PR; with the answer to the first comes EX, and a third has to wait for the answer to the second.
#[test]
fn ex_that_comes_while_an_operation_is_under_way_is_not_used_before_its_answer() {
    let mut core = member();
    core.submit(CLOCK, RequestId(9), Request::Lookup { parent: Ino::ROOT, name: b"a"[..].into() });
    assert_eq!(go_on(&mut core).replied, [RequestId(9)], "the root is here, in PR");
    let mut shipped = Vec::new();
    for (number, name) in [(1, "a"), (2, "b")] {
        core.submit(CLOCK, RequestId(number), make(name));
        shipped.extend(go_on(&mut core).shipped);
    }
    assert_eq!(shipped.len(), 2, "the root is shared");

    let (resource, mode) = (ResourceId::dir(Ino::ROOT), LockMode::Ex);
    answer(&mut core, shipped[0], vec![Grant { resource, mode, data: GrantData::Held {} }]);
    let _ = go_on(&mut core);
    assert!(core.submit(CLOCK, RequestId(3), make("c")).is_none(), "it waits");
    assert!(go_on(&mut core).shipped.is_empty(), "it may be done here");

    answer(&mut core, shipped[1], Vec::new());
    let then = go_on(&mut core);
    assert!(then.shipped.is_empty() && then.replied.contains(&RequestId(3)), "it was done here");
}

fn make(name: &str) -> Request {
    let spec = MakeSpec {
        kind: FileKind::Directory,
        mode: 0o755,
        umask: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Box::default(),
    };
    Request::Make { parent: Ino::ROOT, name: name.as_bytes().into(), spec }
}

/// What a core did.
#[derive(Default)]
struct Done {
    shipped: Vec<OpSeq>,
    replied: Vec<RequestId>,
}

/// Lets a core go on; the root is its, in PR, and empty.
fn go_on(core: &mut Core) -> Done {
    let mut done = Done::default();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, .. }) => {
                let mut grant = root_grant();
                grant.mode = LockMode::Pr;
                let grants = vec![grant];
                let answer = FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None };
                core.handle_message(CLOCK, answer);
            }
            Output::Send(ToMaster::Ship { seq, .. }) => done.shipped.push(seq),
            Output::Invalidate { job, .. } => core.invalidated(CLOCK, job),
            Output::Reply(request, _) => done.replied.push(request),
            _ => {}
        }
    }
    done
}

/// Refuses an operation.
fn answer(core: &mut Core, seq: OpSeq, grants: Vec<Grant>) {
    let result = Err(FsError::Exists);
    core.handle_message(CLOCK, FromMaster::Shipped { seq, result, changes: Vec::new(), grants, seen: 0 });
}
