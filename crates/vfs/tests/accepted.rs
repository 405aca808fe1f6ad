//! Long writes are accepted before their bytes are stored.
//!
//! A core alone; the test plays the master and the disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::{Action, Fault, MemStore};
use common::{CLOCK, create, looking, root_acquired};
use meta::FsError;
use types::{Ino, Micros};
use vfs::{Clock, Core, Output, Reply, Request, RequestId, Via, WriteNow};
use wire::{FromMaster, LockOwner, ToMaster};

const LONG: usize = 1 << 20;
const FSYNC: RequestId = RequestId(77);

/// A core with a file.
struct Rig {
    core: Core,
    store: Arc<MemStore>,
    clock: Clock,
    ino: Ino,
    synced: Vec<Reply>,
}

impl Rig {
    fn new() -> Self {
        let store = Arc::new(MemStore::new());
        let core = looking(&store);
        let mut rig = Self { core, store, clock: CLOCK, ino: Ino(0), synced: Vec::new() };
        rig.run();
        let made = rig.core.submit(CLOCK, RequestId(2), create("f"));
        let Some(Reply::Created(entry, _)) = made else { panic!("answered {made:?}") };
        rig.ino = entry.attr.ino;
        rig.run();
        rig
    }

    /// Writes `byte` so often at the start; returns whether that was accepted, when nothing was stored, and the answer.
    fn write(&mut self, byte: u8, len: usize, via: Via) -> (bool, Reply) {
        let data = vec![byte; len];
        let write = WriteNow { ino: self.ino, offset: 0, data: &data, via, is_exempt: true };
        let (store, failures) = (self.store.clone(), self.store.losses().failures);
        let mut times = 0;
        let mut accept = || {
            times += 1;
            assert_eq!(store.losses().failures, failures, "the store was not asked yet");
        };
        let reply = self.core.write_now(self.clock, &write, Some(&mut accept)).expect("done at once");
        self.run();
        assert!(times <= 1);
        (times == 1, reply)
    }

    fn cached(&mut self, byte: u8, len: usize) -> (bool, Reply) {
        self.write(byte, len, Via::Cache { append: false })
    }

    fn fsync(&mut self) -> Result<(), FsError> {
        let reply = self.core.submit(self.clock, FSYNC, Request::Fsync { ino: self.ino });
        self.run();
        match reply.or_else(|| self.synced.pop()) {
            Some(Reply::Done) => Ok(()),
            Some(Reply::Error(error)) => Err(error),
            reply => panic!("answered {reply:?}"),
        }
    }

    /// As close(2) asks.
    fn flush(&mut self) -> Result<(), FsError> {
        match self.core.submit(
            self.clock,
            RequestId(4),
            Request::Flush { ino: self.ino, owner: LockOwner(7) },
        ) {
            Some(Reply::Done) => Ok(()),
            Some(Reply::Error(error)) => Err(error),
            reply => panic!("answered {reply:?}"),
        }
    }

    /// Every byte of the first `len`, which are the same.
    fn read(&mut self, len: usize) -> u8 {
        let read = Request::Read { ino: self.ino, offset: 0, len: len as u32, noatime: true, direct: false };
        let job = match self.core.submit(self.clock, RequestId(3), read) {
            Some(Reply::ReadJob(job)) => job,
            other => panic!("answered {other:?}"),
        };
        let mut bytes = vec![0; job.len];
        for (at, extent) in &job.parts {
            let part = &mut bytes[*at..*at + extent.len() as usize];
            chunk::read_extent(&*self.store, self.ino, extent, extent.range(), part).unwrap();
        }
        for (at, part) in &job.overlay {
            bytes[*at..*at + part.len()].copy_from_slice(part);
        }
        self.core.read_done(self.clock, job.pin);
        assert!(bytes.len() == len && bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    fn run(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Send(ToMaster::Acquire { request, .. }) => {
                    self.core.handle_message(self.clock, root_acquired(request));
                }
                Output::Send(ToMaster::Batch { seq, sync: true, .. }) => {
                    self.core.handle_message(self.clock, FromMaster::Durable { seq });
                }
                Output::Gather { job } => common::gather(&mut self.core, self.clock, job),
                Output::Sync { job, plan } => {
                    common::end_sync(&mut self.core, self.clock, job, plan.run(&*self.store))
                }
                Output::Invalidate { job, .. } => self.core.invalidated(self.clock, job),
                Output::Reply(FSYNC, reply) => self.synced.push(reply),
                _ => {}
            }
        }
    }
}

fn is_written(reply: &Reply, len: usize) -> bool {
    matches!(reply, Reply::Written { len: written, .. } if *written as usize == len)
}

/// Goal: a program that writes much is not kept waiting for the store, and what cannot be accepted before is not. Method: writes of each kind.
#[test]
fn long_writes_through_the_page_cache_are_accepted_before_they_are_stored() {
    let mut rig = Rig::new();
    let (accepted, reply) = rig.cached(1, LONG);
    assert!(accepted && is_written(&reply, LONG));
    assert_eq!(rig.read(LONG), 1);
    assert!(!rig.cached(2, 4096).0, "a short one is not stored yet");
    assert!(!rig.write(3, LONG, Via::Direct { append: false }).0, "its program asked for no cache");
    assert_eq!(rig.read(LONG), 3);
    assert_eq!(rig.fsync(), Ok(()));
}

/// Goal: what was accepted and could not be stored is not lost, and who closes or syncs is told. Method: a store that fails twice, in each
/// way.
#[test]
fn what_cannot_be_stored_after_it_was_accepted_stays() {
    for (fault, error) in [(Fault::Io, FsError::Io), (Fault::Full, FsError::NoSpace)] {
        let mut rig = Rig::new();
        rig.cached(1, LONG);
        rig.store.fail(Action::Write, 0, fault);
        let (accepted, reply) = rig.cached(2, LONG);
        assert!(accepted && is_written(&reply, LONG), "{reply:?}");
        assert_eq!(rig.read(LONG), 2);
        assert_eq!(rig.flush(), Err(error));
        rig.store.fail(Action::Write, 0, fault);
        assert_eq!(rig.fsync(), Err(error), "it fails again");
        rig.clock.now = rig.clock.now + Micros(60_000_000);
        rig.core.handle_timeout(rig.clock);
        rig.run();
        assert_eq!((rig.fsync(), rig.flush()), (Ok(()), Ok(())));
        assert_eq!(rig.read(LONG), 2);
    }
}

/// Goal: a store that fails does not fill the memory with what was accepted. Method: one that goes on failing, and is mended.
#[test]
fn nothing_is_accepted_while_the_store_fails() {
    let mut rig = Rig::new();
    rig.cached(1, LONG);
    rig.store.fail(Action::Write, 0, Fault::Io);
    assert!(rig.cached(2, LONG).0);
    rig.store.fail(Action::Write, 0, Fault::Io);
    let (accepted, reply) = rig.cached(3, LONG);
    assert!(!accepted && matches!(reply, Reply::Error(FsError::Io)), "{reply:?}");
    rig.store.fail(Action::Write, 0, Fault::Io);
    assert_eq!(rig.fsync(), Err(FsError::Io));
    assert!(!rig.cached(4, LONG).0, "it may fail again");
    assert_eq!(rig.fsync(), Ok(()));
    assert!(rig.cached(5, LONG).0, "all is stored by now");
    assert_eq!(rig.read(LONG), 5);
}
