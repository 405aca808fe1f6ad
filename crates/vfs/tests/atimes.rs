//! Access times of what is being written.
//!
//! A core alone; the test plays the master and the disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{CLOCK, create, looking, root_acquired};
use types::{Ino, Timespec};
use vfs::{Clock, Core, Output, Reply, Request, RequestId, WriteData};
use wire::ToMaster;

const LEN: usize = 200_000;

fn at(secs: i64) -> Clock {
    Clock { wall: Timespec { secs, nanos: 0 }, ..CLOCK }
}

fn write(core: &mut Core, clock: Clock, ino: Ino, offset: u64) {
    let data = WriteData(vec![7; LEN].into());
    let write = Request::Write { ino, offset, data, append: false, direct: false, kill_privileges: None };
    let answer = core.submit(clock, RequestId(3), write);
    assert!(matches!(answer, Some(Reply::Written { .. })), "{answer:?}");
}

/// Reads as far as it takes to be noted.
fn read(core: &mut Core, clock: Clock, ino: Ino) {
    let answer = core.submit(
        clock,
        RequestId(4),
        Request::Read { ino, offset: 0, len: 100, noatime: false, direct: false },
    );
    assert!(matches!(answer, Some(Reply::Data(_) | Reply::ReadJob(_))), "{answer:?}");
}

fn atime(core: &mut Core, clock: Clock, ino: Ino) -> i64 {
    match core.submit(clock, RequestId(5), Request::GetAttr { ino }) {
        Some(Reply::Attr(attr, _)) => attr.atime.secs,
        other => panic!("{other:?}"),
    }
}

/// Goal: an access time never goes back, and relatime's next read finds it. Method: a read between two writes of which the
/// first is on its way to the log.
#[test]
fn a_read_between_the_capture_and_the_log_is_not_forgotten() {
    let store = Arc::new(MemStore::new());
    let mut core = looking(&store);
    let mut syncs = Vec::new();
    let mut run = |core: &mut Core| {
        while let Some(output) = core.poll_output() {
            match output {
                Output::Send(ToMaster::Acquire { request, .. }) => {
                    core.handle_message(CLOCK, root_acquired(request));
                }
                Output::Gather { job } => common::gather(core, at(45), job),
                Output::Sync { job, plan } => syncs.push((job, plan)),
                Output::Invalidate { job, .. } => core.invalidated(CLOCK, job),
                _ => {}
            }
        }
        std::mem::take(&mut syncs)
    };
    run(&mut core);
    let ino = match core.submit(at(10), RequestId(2), create("f")) {
        Some(Reply::Created(entry, _)) => entry.attr.ino,
        other => panic!("answered {other:?}"),
    };
    write(&mut core, at(20), ino, 0);
    assert!(core.submit(at(20), RequestId(6), Request::Fsync { ino }).is_none());
    let syncs = run(&mut core);
    assert_eq!(syncs.len(), 1);
    write(&mut core, at(30), ino, LEN as u64);
    read(&mut core, at(40), ino);
    assert_eq!(atime(&mut core, at(40), ino), 40);
    for (job, plan) in syncs {
        common::end_sync(&mut core, at(50), job, plan.run(&*store));
    }
    run(&mut core);
    assert_eq!(atime(&mut core, at(50), ino), 40);
    read(&mut core, at(60), ino);
    assert_eq!(atime(&mut core, at(60), ino), 40);
}
