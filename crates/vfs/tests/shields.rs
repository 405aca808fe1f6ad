//! What changes behind the kernel's page cache is not written back over from pages that show it as it was.
//!
//! A core alone; the test plays the kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{CLOCK, create, reserved, root_acquired, welcome};
use meta::FsError;
use obs::Metrics;
use types::Ino;
use vfs::{
    AllocateMode, Config, Core, HandleId, OpenMode, Output, Reply, Request, RequestId, Shield, Via,
    WriteData, WriteNow,
};
use wire::{FromMaster, ToMaster};

const PAGE: usize = 4096;

struct Rig {
    core: Core,
    store: Arc<MemStore>,
    file: Ino,
    handle: HandleId,
}

impl Rig {
    /// A member that holds the root in EX, with a file of two pages of `.` that is open to be mapped and was read.
    fn new() -> Self {
        let store = Arc::new(MemStore::new());
        let core = Core::new(Config::default(), [7; 16], store.clone(), Arc::new(Metrics::new()));
        let mut rig = Self { core, store, file: Ino(0), handle: HandleId(0) };
        rig.core.hello(CLOCK, 1, 1, String::new(), String::new());
        rig.core.handle_message(CLOCK, welcome(1_000_000_000));
        rig.core.handle_message(CLOCK, reserved());
        let look = Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() };
        assert!(rig.core.submit(CLOCK, RequestId(1), look).is_none());
        rig.run();
        let Reply::Created(entry, opened) = rig.ask(create("f")) else { panic!("created") };
        rig.file = entry.attr.ino;
        rig.ask(Request::Release { ino: rig.file, handle: opened.handle, flock: None });
        rig.handle = rig.open(rig.file);
        rig.write(Via::Cache { append: false }, 0, &[b'.'; 2 * PAGE]);
        rig.read();
        rig
    }

    fn ask(&mut self, request: Request) -> Reply {
        let reply = self.core.submit(CLOCK, RequestId(2), request);
        self.run();
        reply.expect("answered at once")
    }

    /// Asks for what has to become durable.
    fn ask_slowly(&mut self, request: Request) {
        assert!(self.core.submit(CLOCK, RequestId(2), request).is_none());
        self.run();
    }

    fn open(&mut self, ino: Ino) -> HandleId {
        let open = OpenMode { write: true, map: true, ..OpenMode::default() };
        match self.ask(Request::Open { ino, open }) {
            Reply::Opened(opened) => opened.handle,
            reply => panic!("answered {reply:?}"),
        }
    }

    fn write(&mut self, via: Via, offset: u64, data: &[u8]) -> Option<Shield> {
        let reply = self
            .core
            .write_now(CLOCK, &WriteNow { ino: self.file, offset, data, via, is_exempt: true }, None)
            .expect("written at once");
        assert!(matches!(reply, Reply::Written { len, .. } if len as usize == data.len()), "{reply:?}");
        reply.shield()
    }

    fn read(&mut self) -> Vec<u8> {
        let read =
            Request::Read { ino: self.file, offset: 0, len: 2 * PAGE as u32, noatime: true, direct: false };
        match self.ask(read) {
            Reply::Data(data) => data,
            other => panic!("answered {other:?}"),
        }
    }

    fn run(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Gather { job } => common::gather(&mut self.core, CLOCK, job),
                Output::Sync { job, plan } => {
                    let outcome = plan.run(&*self.store);
                    common::end_sync(&mut self.core, CLOCK, job, outcome);
                }
                Output::Send(ToMaster::Acquire { request, .. }) => {
                    self.core.handle_message(CLOCK, root_acquired(request));
                }
                Output::Send(ToMaster::Batch { seq, .. }) => {
                    self.core.handle_message(CLOCK, FromMaster::Durable { seq });
                }
                _ => {}
            }
        }
    }
}

/// Goal: a page that was read before a direct write, and stored to elsewhere, is written back without what was written.
/// Method: by hand, before and after the pages are taken back.
#[test]
fn what_is_written_past_the_pages_stays_when_they_are_written_back() {
    let mut rig = Rig::new();
    let shield =
        rig.write(Via::Direct { append: false }, 1000, &[b'w'; 1000]).expect("a page of it was read");
    // The kernel's page, as read, with a store to its start and a later one to what was written.
    let mut page = [b'.'; PAGE];
    page[..10].fill(b's');
    rig.write(Via::WriteBack, 0, &page);
    page[10..1000].fill(b't');
    let data = WriteData(page[..].into());
    rig.ask(Request::WritePages { ino: rig.file, offset: 0, data });
    page[1000..2000].fill(b'w');
    assert_eq!(rig.read()[..PAGE], page);

    rig.core.lower_shield(CLOCK, shield);
    page[1500..].fill(b'u');
    rig.write(Via::WriteBack, 0, &page);
    assert_eq!(rig.read()[..PAGE], page);
}

/// Goal: nothing is taken back where the kernel can have nothing. Method: direct writes to what was not read since the last.
#[test]
fn nothing_is_shielded_that_was_not_read() {
    let mut rig = Rig::new();
    let direct = Via::Direct { append: false };
    let first = rig.write(direct, 0, b"w").expect("it was read");
    let other = rig.write(direct, 2000, b"w").expect("the page is still there");
    rig.core.lower_shield(CLOCK, first);
    rig.core.lower_shield(CLOCK, other);
    assert_eq!(rig.write(direct, 100, b"w"), None);
    assert!(rig.write(direct, PAGE as u64 + 7, b"w").is_some(), "nobody took the other page back");
    rig.read();
    assert!(rig.write(direct, 100, b"w").is_some(), "it was read again");
    assert_eq!(rig.write(Via::Cache { append: false }, 100, b"w"), None);
}

/// Goal: a database that reads and writes by O_DIRECT alone has nothing taken back; beside somebody who reads through the page cache it has.
/// Method: the same write after either kind of read.
#[test]
fn what_was_read_past_the_pages_only_is_not_shielded() {
    let mut rig = Rig::new();
    let Reply::Created(entry, _) = rig.ask(create("g")) else { panic!("created") };
    rig.file = entry.attr.ino;
    let around = Via::Direct { append: false };
    rig.write(around, 0, &[b'.'; 2 * PAGE]);
    for (direct, is_shielded) in [(true, false), (false, true)] {
        let read = Request::Read { ino: rig.file, offset: 0, len: PAGE as u32, noatime: true, direct };
        rig.ask(read);
        assert_eq!(rig.write(around, 0, b"w").is_some(), is_shielded, "direct {direct}");
    }
}

/// Goal: pages that one program fills are taken back by another's direct write that is served after that, though it may have come before: nobody waits for it. Method: a write
/// through the pages and one past them, of a file that was made to be written past them, and of one that was not.
#[test]
fn what_was_filled_is_taken_back_by_a_later_direct_write() {
    let mut rig = Rig::new();
    rig.read();
    for (map, is_shielded) in [(false, true), (true, false)] {
        let mut request = create(if map { "g" } else { "h" });
        if let Request::Create { open, .. } = &mut request {
            *open = OpenMode { write: true, map, ..OpenMode::default() };
        }
        let Reply::Created(entry, opened) = rig.ask(request) else { panic!("created") };
        rig.file = entry.attr.ino;
        assert_eq!(opened.direct, is_shielded);
        rig.write(Via::Cache { append: false }, 0, &[b'c'; PAGE]);
        let shield = rig.write(Via::Direct { append: false }, 100, b"d");
        assert_eq!(shield.is_some(), is_shielded);
        rig.ask(Request::Release { ino: rig.file, handle: opened.handle, flock: None });
        if let Some(shield) = shield {
            rig.core.lower_shield(CLOCK, shield);
        }
        rig.write(Via::Cache { append: false }, 0, &[b'c'; PAGE]);
        assert_eq!(rig.write(Via::Direct { append: false }, 100, b"d"), None, "nobody writes so any more");
    }
}

/// Goal: pages read after a change, while those read before are taken back, are remembered: the next change may be behind them.
/// Method: two writes to one page, with a read in between.
#[test]
fn a_page_read_between_two_writes_is_taken_back_by_the_second() {
    let mut rig = Rig::new();
    let direct = Via::Direct { append: false };
    let first = rig.write(direct, 0, b"w").expect("it was read");
    rig.read();
    rig.core.lower_shield(CLOCK, first);
    assert!(rig.write(direct, 10, b"w").is_some());
}

/// Goal: holes are shielded like writes. Method: a hole in a page that is written back meanwhile.
#[test]
fn a_hole_stays_when_pages_are_written_back() {
    let mut rig = Rig::new();
    let (ino, mode) = (rig.file, AllocateMode::PunchHole);
    let reply = rig.ask(Request::Allocate {
        ino,
        offset: 100,
        len: PAGE as u64,
        mode,
        handle: rig.handle,
        kill_privileges: None,
    });
    let shield = reply.shield().expect("it may be mapped");
    rig.write(Via::WriteBack, 0, &[b's'; PAGE]);
    let content = rig.read();
    assert!(content[..100] == [b's'; 100] && content[100..PAGE + 100].iter().all(|byte| *byte == 0));
    rig.core.lower_shield(CLOCK, shield);
    rig.ask(Request::Release { ino, handle: rig.handle, flock: None });
    let reply = rig.ask(Request::Allocate {
        ino,
        offset: 0,
        len: 10,
        mode,
        handle: rig.handle,
        kill_privileges: None,
    });
    assert_eq!(reply.shield(), None, "nobody can have stored to it");
}

/// Goal: when a copy is answered the kernel drops the pages that it touches; nobody else can have stored to them. Method: copies to parts of pages,
/// by the only one who may map the file and with another.
#[test]
fn parts_of_pages_are_shared_where_nobody_else_maps_them() {
    let mut rig = Rig::new();
    rig.ask_slowly(Request::Fsync { ino: rig.file });
    let Reply::Created(entry, opened) = rig.ask(create("g")) else { panic!("created") };
    let (from, ino) = (rig.file, entry.attr.ino);
    rig.ask(Request::Release { ino, handle: opened.handle, flock: None });
    let [own, other] = [(); 2].map(|()| rig.open(ino));
    let copy = |rig: &mut Rig, offset: u64, len: u64| {
        let copy =
            Request::Copy { from, from_offset: 0, ino, offset, len, handle: own, kill_privileges: None };
        match rig.ask(copy) {
            Reply::Copied { len, .. } => Some(len),
            Reply::Error(FsError::NotSupported) => None,
            reply => panic!("answered {reply:?}"),
        }
    };
    let (page, part) = (PAGE as u64, 100);
    assert_eq!(copy(&mut rig, 0, page + part), Some(page + part), "to the end of the file");
    assert_eq!(copy(&mut rig, page, page), Some(page));
    assert_eq!(copy(&mut rig, 0, page + part), Some(page), "the rest of the second page is somebody's");
    assert_eq!(copy(&mut rig, part, page), None);
    assert_eq!(copy(&mut rig, page, part), None);
    rig.ask(Request::Release { ino, handle: other, flock: None });
    assert_eq!(copy(&mut rig, part, page), Some(page));
}
