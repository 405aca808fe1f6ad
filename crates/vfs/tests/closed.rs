//! Content of closed files is stored together.
//!
//! A core alone; the test plays its master and its disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::{Action, Fault, MemStore, SegmentStore};
use common::{attr, content, create, reserved, root_acquired, welcome};
use meta::{FileKind, FsError};
use obs::Metrics;
use types::{Ino, LockMode, Micros, ResourceId, Timespec};
use vfs::{Clock, Config, Core, HandleId, OpenMode, Output, Reply, Request, RequestId, WriteData};
use wire::{FromMaster, Grant, GrantData, ToMaster, Want};

const KIB: usize = 1 << 10;
/// The first of some with tokens of their own.
const FILE: Ino = Ino(50);
const START: Clock = Clock { now: Micros(1_000_000), wall: Timespec { secs: 0, nanos: 0 } };
/// After a commit interval.
const LATER: Clock = Clock { now: Micros(3_000_000), wall: Timespec { secs: 2, nanos: 0 } };

struct Rig {
    core: Core,
    store: MemStore,
    metrics: Arc<Metrics>,
    replies: Vec<Reply>,
    next: u64,
}

impl Rig {
    /// Closed files are stored when they have this much.
    fn new(store_bytes: usize) -> Self {
        Self::with(Config { store_bytes, ..Config::default() })
    }

    fn with(config: Config) -> Self {
        let (store, metrics) = (MemStore::new(), Arc::new(Metrics::new()));
        let core = Core::new(config, [7; 16], Arc::new(store.clone()), Arc::clone(&metrics));
        let mut rig = Self { core, store, metrics, replies: Vec::new(), next: 1 };
        rig.core.hello(START, 1, 1, String::new(), String::new());
        rig.core.handle_message(START, welcome(1_000_000_000));
        rig.core.handle_message(START, reserved());
        rig.ask(Request::Lookup { parent: Ino::ROOT, name: b"none"[..].into() });
        rig
    }

    fn run(&mut self, clock: Clock) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Reply(_, reply) => self.replies.push(reply),
                Output::Send(ToMaster::Acquire { request, want, .. }) => {
                    let answer = match want {
                        Want::Directory { .. } => root_acquired(request),
                        Want::Attr { ino }
                        | Want::Read { ino }
                        | Want::Write { ino }
                        | Want::Open { ino } => file_acquired(request, ino),
                    };
                    self.core.handle_message(clock, answer);
                }
                Output::Send(ToMaster::Batch { seq, .. }) => {
                    self.core.handle_message(clock, FromMaster::Durable { seq });
                }
                Output::Gather { job } => common::gather(&mut self.core, clock, job),
                Output::Sync { job, plan } => {
                    common::end_sync(&mut self.core, clock, job, plan.run(&self.store));
                }
                Output::Invalidate { job, .. } => self.core.invalidated(clock, job),
                _ => {}
            }
        }
    }

    fn ask(&mut self, request: Request) -> Reply {
        self.next += 1;
        let reply = self.core.submit(START, RequestId(self.next), request);
        self.run(START);
        reply.or_else(|| self.replies.pop()).expect("an answer")
    }

    fn make(&mut self, name: &str, len: usize) -> (Ino, HandleId) {
        let made = self.ask(create(name));
        let Reply::Created(entry, opened) = made else { panic!("{made:?}") };
        self.write(entry.attr.ino, 0, len);
        (entry.attr.ino, opened.handle)
    }

    /// Bytes that tell their file and place.
    fn write(&mut self, ino: Ino, offset: usize, len: usize) {
        let data = WriteData(bytes_of(ino, offset, len).into());
        let offset = offset as u64;
        let write = Request::Write { ino, offset, data, append: false, direct: false, kill_privileges: None };
        let written = self.ask(write);
        assert!(matches!(written, Reply::Written { .. }), "{written:?}");
    }

    fn open(&mut self, ino: Ino) -> HandleId {
        let open = OpenMode { write: true, ..OpenMode::default() };
        match self.ask(Request::Open { ino, open }) {
            Reply::Opened(opened) => opened.handle,
            reply => panic!("{reply:?}"),
        }
    }

    /// So many milliseconds after the start.
    fn pass(&mut self, ms: u64) {
        let clock = Clock { now: START.now + Micros::from_millis(ms), ..START };
        self.core.handle_timeout(clock);
        self.run(clock);
    }

    fn close(&mut self, (ino, handle): (Ino, HandleId)) {
        self.ask(Request::Release { ino, handle, flock: None });
    }

    /// A whole file, closed.
    fn put(&mut self, name: &str, len: usize) -> Ino {
        let file = self.make(name, len);
        self.close(file);
        file.0
    }

    fn fsync(&mut self, ino: Ino) -> Result<(), FsError> {
        match self.ask(Request::Fsync { ino }) {
            Reply::Done => Ok(()),
            Reply::Error(error) => Err(error),
            reply => panic!("{reply:?}"),
        }
    }

    /// Bytes in segments.
    fn stored(&self) -> usize {
        self.store.list().unwrap().iter().map(|(_, len)| *len as usize).sum()
    }

    /// Checks all bytes of a file; returns how many of them come from segments.
    fn check(&mut self, ino: Ino, len: usize) -> usize {
        let read = Request::Read { ino, offset: 0, len: len as u32, noatime: true, direct: false };
        let job = match self.ask(read) {
            Reply::ReadJob(job) => job,
            Reply::Data(bytes) => {
                assert!(bytes[..] == bytes_of(ino, 0, len), "ino {ino} has other bytes");
                return 0;
            }
            _ => panic!("no bytes of ino {ino}"),
        };
        let (mut bytes, mut stored) = (vec![0; job.len], 0);
        for (at, extent) in &job.parts {
            let part = &mut bytes[*at..*at + extent.len() as usize];
            chunk::read_extent(&self.store, ino, extent, extent.range(), part).unwrap();
            stored += part.len();
        }
        for (at, part) in &job.overlay {
            bytes[*at..*at + part.len()].copy_from_slice(part);
        }
        self.core.read_done(START, job.pin);
        assert!(bytes == bytes_of(ino, 0, len), "ino {ino} has other bytes");
        stored
    }
}

/// A file, empty, which nobody else has: attributes to read and content to change.
fn file_acquired(request: u64, ino: Ino) -> FromMaster {
    let attr = GrantData::Attr { attr: attr(FileKind::File) };
    let attr = Grant { resource: ResourceId::attr(ino), mode: LockMode::Pr, data: attr };
    let content = GrantData::Content { content: content(0) };
    let content = Grant { resource: ResourceId::file(ino), mode: LockMode::Ex, data: content };
    FromMaster::Acquired { request, error: None, grants: vec![attr, content], seen: u64::MAX, glimpse: None }
}

fn bytes_of(ino: Ino, offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|at| (at as u64 * 31 + ino.0 * 7) as u8).collect()
}

/// Goal: small files that are closed one after the other go to segments together, and nothing of them is lost on the way. Method: the last of
/// five fills what is waited for; before and after, all are read.
#[test]
fn closed_files_are_stored_together() {
    let mut rig = Rig::new(100 * KIB);
    let files: Vec<Ino> = (0..4).map(|n| rig.put(&format!("f{n}"), 20 * KIB)).collect();
    assert_eq!(rig.stored(), 0, "they wait");
    assert!(files.iter().all(|ino| rig.check(*ino, 20 * KIB) == 0));
    let last = rig.put("last", 20 * KIB);
    assert!((100 * KIB..102 * KIB).contains(&rig.stored()), "{} bytes", rig.stored());
    for ino in files.iter().chain([&last]) {
        assert_eq!(rig.check(*ino, 20 * KIB), 20 * KIB);
        assert_eq!(rig.fsync(*ino), Ok(()));
        rig.check(*ino, 20 * KIB);
    }
    assert!(rig.stored() < 102 * KIB, "each is stored once");
}

/// Goal: what waits is what the file has when it is stored, and waits for a commit interval at most. Method: of files that wait one is
/// removed, one written to at its end, one behind a hole; then time passes.
#[test]
fn what_changes_while_it_waits_is_stored_as_it_is_then() {
    let mut rig = Rig::new(1 << 20);
    let files: Vec<Ino> = (0..4).map(|n| rig.put(&format!("f{n}"), 20 * KIB)).collect();
    rig.ask(Request::Unlink { parent: Ino::ROOT, name: b"f0"[..].into(), bound: None });
    rig.write(files[1], 20 * KIB, 10 * KIB);
    rig.write(files[2], 50 * KIB, 10 * KIB);
    rig.core.handle_timeout(LATER);
    rig.run(LATER);
    assert_eq!(rig.check(files[1], 30 * KIB), 30 * KIB);
    assert_eq!(rig.check(files[3], 20 * KIB), 20 * KIB);
    assert!((80 * KIB..82 * KIB).contains(&rig.stored()), "{} bytes", rig.stored());
}

/// Goal: a store that refuses costs nothing that was closed. Method: the write of several fails, for want of room and otherwise; an fsync of each
/// afterwards tells, or stores it.
#[test]
fn what_cannot_be_stored_stays_in_memory() {
    for fault in [Fault::Full, Fault::Io] {
        for before in [0, 1] {
            let mut rig = Rig::new(60 * KIB);
            (0..before * 3).for_each(|n| _ = rig.put(&format!("before{n}"), 20 * KIB));
            rig.store.fail(Action::Write, 0, fault);
            let files: Vec<Ino> = (0..3).map(|n| rig.put(&format!("f{n}"), 20 * KIB)).collect();
            assert!(files.iter().all(|ino| rig.check(*ino, 20 * KIB) == 0), "{fault:?}");
            for ino in &files {
                assert_eq!(rig.fsync(*ino), Ok(()), "{fault:?}: there is room again");
                assert_eq!(rig.check(*ino, 20 * KIB), 20 * KIB);
            }
        }
    }
}

/// Goal: what is closed crosses from one segment to the next. Method: segments that take one file each.
#[test]
fn closed_files_fill_several_segments() {
    let config = Config { store_bytes: 100 * KIB, segment_len: 32 * KIB as u64, ..Config::default() };
    let mut rig = Rig::with(config);
    let files: Vec<Ino> = (0..5).map(|n| rig.put(&format!("f{n}"), 20 * KIB)).collect();
    assert_eq!(rig.store.list().unwrap().len(), 5);
    assert!(files.iter().all(|ino| rig.check(*ino, 20 * KIB) == 20 * KIB));
    // More than a segment takes of one.
    let large = rig.put("large", 40 * KIB);
    assert_eq!(rig.check(large, 40 * KIB), 40 * KIB);
    assert_eq!(rig.store.list().unwrap().len(), 7);
}

/// Goal: what goes before it is stored costs nothing, and a file that is open again waits for its next close. Method: small files made, closed and removed, and a log
/// that is opened, written and closed again and again, beside others.
#[test]
fn only_what_is_still_closed_is_stored() {
    let mut rig = Rig::new(100 * KIB);
    for n in 0..20 {
        rig.put("gone", 20 * KIB);
        rig.ask(Request::Unlink { parent: Ino::ROOT, name: b"gone"[..].into(), bound: None });
        assert_eq!(rig.stored(), 0, "round {n}");
    }
    let log = rig.put("log", 10 * KIB);
    let again = rig.open(log);
    (0..5).for_each(|n| _ = rig.put(&format!("f{n}"), 20 * KIB));
    assert_eq!(rig.check(log, 10 * KIB), 0, "it is open");
    rig.close((log, again));
    (0..5).for_each(|n| _ = rig.put(&format!("g{n}"), 20 * KIB));
    assert_eq!(rig.check(log, 10 * KIB), 10 * KIB);
}

/// Goal: what was closed is not given up where nobody else wants it, also of files whose tokens go back soon after, and the store is not asked for each of them each time. Method: it
/// has no room from before the close until long after.
#[test]
fn what_was_closed_without_room_is_kept() {
    let mut rig = Rig::new(100 * KIB);
    let files: Vec<Ino> = (0..30).map(|n| Ino(FILE.0 + n)).collect();
    let handles: Vec<HandleId> = files.iter().map(|ino| rig.open(*ino)).collect();
    files.iter().for_each(|ino| rig.write(*ino, 0, 20 * KIB));
    rig.store.set_capacity(0);
    files.iter().zip(handles).for_each(|file| rig.close((*file.0, file.1)));
    for (round, ms) in [60, 120, 1_500, 3_000, 5_000].into_iter().enumerate() {
        rig.pass(ms);
        assert_eq!(rig.metrics.content_lost_bytes.get(), 0, "after {ms} ms");
        assert!(rig.store.losses().failures <= round as u64 + 2, "{} failures", rig.store.losses().failures);
    }
    assert!(files.iter().all(|ino| rig.check(*ino, 20 * KIB) == 0));
    rig.store.set_capacity(u64::MAX);
    rig.pass(9_000);
    assert_eq!(rig.stored() / KIB, 30 * 20 + 1);
    assert_eq!(rig.metrics.content_lost_bytes.get(), 0);
}

/// Goal: the same for what was in the record until a write that found no room. Method: that write is refused; then as above.
#[test]
fn what_was_stored_before_a_refused_write_is_kept() {
    let mut rig = Rig::new(100 * KIB);
    let handle = rig.open(FILE);
    rig.write(FILE, 0, 1000);
    assert_eq!(rig.fsync(FILE), Ok(()));
    rig.store.set_capacity(0);
    let data = WriteData(vec![1; 200 * KIB].into());
    let write =
        Request::Write { ino: FILE, offset: 1000, data, append: false, direct: false, kill_privileges: None };
    assert!(matches!(rig.ask(write), Reply::Error(FsError::NoSpace)));
    rig.check(FILE, 1000);
    rig.close((FILE, handle));
    for ms in [60, 120, 1_500, 3_000] {
        rig.pass(ms);
        assert_eq!(rig.metrics.content_lost_bytes.get(), 0, "after {ms} ms");
    }
}
