//! Copies that share what is stored.
//!
//! A core alone; the test plays the master and makes durable what is to be.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{CLOCK, create, looking, root_acquired};
use meta::Change;
use types::{Ino, SegmentId};
use vfs::{Core, HandleId, Output, Reply, Request, RequestId, WriteData};
use wire::{FromMaster, ToMaster};

const LEN: usize = 200_000;

/// Goal: whatever the master is told after a copy, it knows of the copy by then: it could let others remove the source, and
/// have its bytes deleted. Method: a file is written, made durable and copied, and a forget is acknowledged.
#[test]
fn what_is_told_after_a_copy_is_told_behind_it() {
    let store = Arc::new(MemStore::new());
    let mut core = looking(&store);
    run(&mut core, &store);
    let (source, _) = made(&mut core, "f");
    let data = WriteData(vec![7; LEN].into());
    let write =
        Request::Write { ino: source, offset: 0, data, append: false, direct: false, kill_privileges: None };
    assert!(matches!(core.submit(CLOCK, RequestId(2), write), Some(Reply::Written { .. })));
    assert!(core.submit(CLOCK, RequestId(3), Request::Fsync { ino: source }).is_none());
    run(&mut core, &store);
    let (target, handle) = made(&mut core, "g");
    run(&mut core, &store);

    let copy = Request::Copy {
        from: source,
        from_offset: 0,
        ino: target,
        offset: 5,
        len: LEN as u64,
        handle,
        kill_privileges: None,
    };
    let answer = core.submit(CLOCK, RequestId(4), copy);
    assert!(matches!(answer, Some(Reply::Copied { len, .. }) if len == LEN as u64), "{answer:?}");
    assert!(run(&mut core, &store).is_empty(), "nothing has to be said for a copy");
    core.handle_message(CLOCK, FromMaster::Forget { seq: 1, changes: Vec::new(), removed: vec![source] });
    let said = run(&mut core, &store);
    let [ToMaster::Batch { changes, .. }, ToMaster::Forgotten { .. }] = &said[..] else {
        panic!("said {said:?}")
    };
    let counted: Vec<&Change> = changes
        .iter()
        .filter(|change| matches!(change, Change::AddLive { bytes, .. } if *bytes == LEN as i64))
        .collect();
    assert!(matches!(counted[..], [Change::AddLive { segment: SegmentId(1), .. }]), "{changes:?}");
}

/// Makes a file in the root, which is held in EX, open for writing.
fn made(core: &mut Core, name: &str) -> (Ino, HandleId) {
    match core.submit(CLOCK, RequestId(1), create(name)) {
        Some(Reply::Created(entry, opened)) => (entry.attr.ino, opened.handle),
        other => panic!("answered {other:?}"),
    }
}

/// Does what the core orders. Returns what was said.
fn run(core: &mut Core, store: &MemStore) -> Vec<ToMaster> {
    let mut said = Vec::new();
    while let Some(output) = core.poll_output() {
        said.extend(take(core, store, output));
    }
    said
}

fn take(core: &mut Core, store: &MemStore, output: Output) -> Option<ToMaster> {
    match output {
        Output::Send(ToMaster::Acquire { request, .. }) => {
            core.handle_message(CLOCK, root_acquired(request));
        }
        Output::Send(ToMaster::Batch { seq, sync: true, .. }) => {
            core.handle_message(CLOCK, FromMaster::Durable { seq });
        }
        Output::Send(message) => return Some(message),
        Output::Gather { job } => common::gather(core, CLOCK, job),
        Output::Sync { job, plan } => common::end_sync(core, CLOCK, job, plan.run(store)),
        Output::Invalidate { job, .. } => core.invalidated(CLOCK, job),
        _ => {}
    }
    None
}
