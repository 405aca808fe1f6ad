//! Times that a program sets while content is on its way to the master.
//!
//! A core alone; the test plays its master, its kernel and its disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::{MemStore, SyncPlan};
use common::{CLOCK, create, looking, root_acquired};
use meta::ops::AttrSet;
use meta::{Change, Op};
use types::{Ino, LockMode, Micros, ResourceId, Timespec};
use vfs::{Clock, Core, Output, Reply, Request, RequestId, WriteData};
use wire::{FromMaster, ToMaster};

const LATER: Clock = Clock { now: Micros(CLOCK.now.0 + 1_000_000), ..CLOCK };
const SET: Timespec = Timespec { secs: 77, nanos: 0 };

/// Goal: a time that is set while another node waits for the content is behind the time of that content, whoever records it. Method: a file with
/// tokens of its own is given back, and its segment takes long to be synced; the time is set meanwhile, where only the master can.
#[test]
fn a_time_set_while_content_is_given_back_comes_behind_it() {
    let store = Arc::new(MemStore::new());
    let mut core = looking(&store);
    let mut syncs = Vec::new();
    run(&mut core, &mut syncs);
    let Some(Reply::Created(entry, _)) = core.submit(CLOCK, RequestId(2), create("f")) else {
        panic!("made")
    };
    let ino = entry.attr.ino;
    let data = WriteData(vec![1; 100_000].into());
    let write = Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None };
    assert!(matches!(core.submit(CLOCK, RequestId(3), write), Some(Reply::Written { .. })));
    // The directory is shared from now on, and the file, which is open, has tokens of its own.
    for (resource, to) in [(ResourceId::dir(Ino::ROOT), LockMode::Pr), (ResourceId::attr(ino), LockMode::Pr)]
    {
        revoke(&mut core, resource, to);
        run(&mut core, &mut syncs);
        for (job, plan) in std::mem::take(&mut syncs) {
            assert_eq!(core.synced(LATER, job, plan.run(&*store)), vfs::Dealt::InFull);
        }
        run(&mut core, &mut syncs);
        assert_eq!(core.held_mode(resource), to);
    }
    let more = WriteData(vec![2; 100_000].into());
    let write =
        Request::Write { ino, offset: 0, data: more, append: false, direct: false, kill_privileges: None };
    assert!(matches!(core.submit(LATER, RequestId(4), write), Some(Reply::Written { .. })));

    revoke(&mut core, ResourceId::file(ino), LockMode::Nl);
    assert_eq!(run(&mut core, &mut syncs), [], "the segment is not synced");
    assert_eq!(syncs.len(), 1);
    let set = AttrSet { mtime: Some(SET), ..AttrSet::default() };
    assert!(core.submit(LATER, RequestId(5), Request::SetAttr { ino, set, size: None }).is_none());
    assert_eq!(run(&mut core, &mut syncs), [], "nor is anything said before that");
    let (job, plan) = syncs.remove(0);
    assert_eq!(core.synced(LATER, job, plan.run(&*store)), vfs::Dealt::InFull);
    let said = run(&mut core, &mut syncs);
    let at = |is_it: fn(&ToMaster) -> bool| said.iter().position(is_it);
    let content = at(|message| {
        matches!(message, ToMaster::Batch { changes, .. }
            if changes.iter().any(|change| matches!(change, Change::PutContent { .. })))
    });
    let release = at(|message| matches!(message, ToMaster::Release { .. }));
    let time = at(|message| matches!(message, ToMaster::Ship { op: Op::SetAttr { .. }, .. }));
    assert!(content.is_some() && content < release && release < time, "{said:?}");
}

fn revoke(core: &mut Core, resource: ResourceId, to: LockMode) {
    core.handle_message(LATER, FromMaster::Revoke { list: vec![(resource, to)], speculative: false });
    core.handle_timeout(Clock { now: Micros(LATER.now.0 + 100_000), ..LATER });
}

/// Carries out what the core orders but for syncs, which are collected. Returns what it says of files.
fn run(core: &mut Core, syncs: &mut Vec<(u64, SyncPlan)>) -> Vec<ToMaster> {
    let mut said = Vec::new();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Invalidate { job, .. } => core.invalidated(LATER, job),
            Output::Gather { job } => common::gather(core, LATER, job),
            Output::Sync { job, plan } => syncs.push((job, plan)),
            Output::Send(ToMaster::Acquire { request, .. })
                if core.held_mode(ResourceId::dir(Ino::ROOT)) == LockMode::Nl =>
            {
                core.handle_message(CLOCK, root_acquired(request));
            }
            Output::Send(ToMaster::Batch { seq, kept, changes, sync, spent }) => {
                core.handle_message(LATER, FromMaster::Durable { seq });
                said.push(ToMaster::Batch { seq, kept, changes, sync, spent });
            }
            Output::Send(message @ (ToMaster::Ship { .. } | ToMaster::Release { .. })) => said.push(message),
            _ => {}
        }
    }
    said
}
