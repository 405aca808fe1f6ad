//! Pages that are read again while they are taken back: the reader gets on, and nothing old stays.
//!
//! A core alone; the test plays its master and a kernel whose reader never rests.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{reserved, root_acquired, welcome};
use meta::ops::{AttrSet, XattrMode};
use meta::{Change, FileKind};
use obs::Metrics;
use types::{Ino, LockMode, Micros, ResourceId, ResourceKind, Timespec};
use vfs::{
    Clock, Config, Core, HandleId, Invalidation, MakeSpec, OpenMode, Output, Reply, Request, RequestId,
    WriteData,
};
use wire::{FromMaster, ToMaster};

struct Rig {
    core: Core,
    store: MemStore,
    now: Micros,
    next: u64,
    /// Rounds in which pages were taken back, and when each began.
    rounds: Vec<Micros>,
    /// Read again after each round, so many times.
    rereads: usize,
    released: bool,
    file: Ino,
    /// What was stored through a mapping: written when pages are taken back.
    stored: Option<Vec<u8>>,
    /// What is asked while its pages are taken back, which waits for the answer: a truncation, during which the kernel writes none back, or a
    /// write, which has one locked.
    during: Option<Request>,
    replies: Vec<Reply>,
    /// Modes of the file, as logged.
    modes: Vec<u32>,
}

impl Rig {
    /// A member that holds the root in EX, with a file in it that the kernel has pages of.
    fn new(rereads: usize) -> Self {
        let (mut rig, handle) = Self::with_open(rereads);
        rig.ask(Request::Release { ino: rig.file, handle, flock: None });
        rig.read();
        rig
    }

    /// As [`new`](Self::new), and open to be mapped.
    fn with_open(rereads: usize) -> (Self, HandleId) {
        let store = MemStore::new();
        let core = Core::new(Config::default(), [7; 16], Arc::new(store.clone()), Arc::new(Metrics::new()));
        let (now, rounds) = (Micros(1_000_000), Vec::new());
        let mut rig = Self {
            core,
            store,
            now,
            next: 1,
            rounds,
            rereads,
            released: false,
            file: Ino(0),
            stored: None,
            during: None,
            replies: Vec::new(),
            modes: Vec::new(),
        };
        rig.core.hello(rig.clock(), 1, 1, String::new(), String::new());
        rig.hear(welcome(1_000_000_000));
        rig.hear(reserved());
        rig.ask(Request::Lookup { parent: Ino::ROOT, name: b"none"[..].into() });
        let (mode, target) = (0o644, Box::default());
        let spec = MakeSpec { kind: FileKind::File, mode, umask: 0, uid: 0, gid: 0, rdev: 0, target };
        let (name, open) = (b"f"[..].into(), OpenMode { write: true, map: true, ..OpenMode::default() });
        let create = Request::Create { parent: Ino::ROOT, name, spec, open, taken: vfs::Taken::Refuse };
        let Some(Reply::Created(entry, opened)) = rig.ask(create) else { panic!("created") };
        rig.file = entry.attr.ino;
        let (ino, data) = (rig.file, WriteData(vec![7; 100].into()));
        rig.ask(Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None });
        (rig, opened.handle)
    }

    fn clock(&self) -> Clock {
        Clock { now: self.now, wall: Timespec::default() }
    }

    fn hear(&mut self, message: FromMaster) {
        self.core.handle_message(self.clock(), message);
        self.run();
    }

    fn ask(&mut self, request: Request) -> Option<Reply> {
        let id = RequestId(self.next);
        self.next += 1;
        let reply = self.core.submit(self.clock(), id, request);
        self.run();
        reply
    }

    fn read(&mut self) -> Option<Reply> {
        let id = RequestId(self.next);
        self.next += 1;
        self.core.submit(
            self.clock(),
            id,
            Request::Read { ino: self.file, offset: 0, len: 4096, noatime: true, direct: false },
        )
    }

    fn run(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Invalidate { job, list } => {
                    if list.contains(&Invalidation::Pages { ino: self.file }) {
                        self.rounds.push(self.now);
                        if self.rereads > 0 {
                            self.rereads -= 1;
                            assert!(matches!(self.read(), Some(Reply::Data(_))), "served by the old right");
                        }
                    }
                    if let Some(request) = self.during.take() {
                        let told = self.ask(request).or_else(|| self.replies.pop());
                        assert!(matches!(told, Some(Reply::Attr(..) | Reply::Written { .. })), "{told:?}");
                    }
                    if let Some(stored) = self.stored.take() {
                        let (ino, data) = (self.file, WriteData(stored.into()));
                        let pages = Request::WritePages { ino, offset: 0, data };
                        let id = RequestId(self.next);
                        self.next += 1;
                        assert!(matches!(
                            self.core.submit(self.clock(), id, pages),
                            Some(Reply::Written { .. })
                        ));
                    }
                    self.core.invalidated(self.clock(), job);
                }
                Output::Gather { job } => {
                    let clock = self.clock();
                    common::gather(&mut self.core, clock, job);
                }
                Output::Sync { job, plan } => {
                    let outcome = plan.run(&self.store);
                    let clock = self.clock();
                    common::end_sync(&mut self.core, clock, job, outcome);
                }
                Output::Send(ToMaster::Acquire { request, .. }) => {
                    self.core.handle_message(self.clock(), root_acquired(request));
                }
                Output::Send(ToMaster::Batch { seq, changes, .. }) => {
                    self.modes.extend(changes.iter().filter_map(|change| match change {
                        Change::PutEntry { entry, .. } => entry.covered().map(|inode| inode.attr.mode),
                        Change::PutAttr { attr, .. } => Some(attr.mode),
                        _ => None,
                    }));
                    self.core.handle_message(self.clock(), FromMaster::Durable { seq });
                }
                // Nothing to take away.
                Output::Send(ToMaster::Ship { seq, .. }) => {
                    let result = Ok(meta::OpReply::Done);
                    let shipped = FromMaster::Shipped {
                        seq,
                        result,
                        changes: Vec::new(),
                        grants: Vec::new(),
                        seen: u64::MAX,
                    };
                    self.core.handle_message(self.clock(), shipped);
                }
                Output::Send(ToMaster::Release { .. }) => self.released = true,
                Output::TellCloses { seq, .. } => self.core.closes_told(self.clock(), seq),
                Output::CollectStores => self.core.stores_collected(self.clock()),
                Output::Reply(_, reply) => self.replies.push(reply),
                Output::Send(_) => {}
                Output::Left | Output::Rejoin | Output::Lost(_) => panic!("the node left"),
            }
        }
    }

    /// The root is asked back; until it is given, time goes on from timer to timer.
    fn revoke(&mut self) {
        self.now = self.now + Micros(1_000_000);
        let resource = ResourceId { ino: Ino::ROOT, kind: ResourceKind::Dir };
        self.hear(FromMaster::Revoke { list: vec![(resource, LockMode::Nl)], speculative: false });
        for _ in 0..1000 {
            if self.released {
                return;
            }
            self.now = self.core.poll_timeout().max(self.now);
            self.core.handle_timeout(self.clock());
            self.run();
        }
        panic!("never given back");
    }
}

/// A reader whose page is taken before it has its bytes asks again at once: without a pause it would never be done.
#[test]
fn a_reader_has_time_between_rounds() {
    let mut rig = Rig::new(6);
    rig.revoke();
    let pauses: Vec<u64> = rig.rounds.windows(2).map(|two| two[1].since(two[0]).0).collect();
    assert_eq!(pauses, [0, 1000, 2000, 4000, 8000, 16_000]);
}

/// Who reads without pause does not hold up the node for ever; what it read last goes when it can read no more.
#[test]
fn what_was_read_in_the_last_round_goes_after_the_release() {
    let mut rig = Rig::new(65);
    rig.revoke();
    assert_eq!(rig.rounds.len(), 66, "64 rounds more, and one that nobody waits for");
    let took = rig.rounds[64].since(rig.rounds[0]).0;
    assert!(took < 1_100_000, "{took} us");
}

/// Else what was stored before would be written after it, with the time of that.
#[test]
fn a_time_is_set_when_what_was_stored_before_is_written() {
    let (mut rig, handle) = Rig::with_open(0);
    rig.stored = Some(vec![8; 100]);
    let ino = rig.file;
    let mtime = Timespec { secs: 5, nanos: 6 };
    let set = AttrSet { mtime: Some(mtime), ..AttrSet::default() };
    let set_time = |set: &AttrSet| Request::SetAttr { ino, set: set.clone(), size: None };
    assert!(rig.ask(set_time(&set)).is_none(), "it waits");
    assert_eq!((rig.rounds.len(), rig.stored.take()), (1, None));
    let Some(Reply::Attr(attr, _)) = rig.replies.pop() else { panic!("answered") };
    assert_eq!(attr.mtime, mtime);
    // A truncation has the kernel write nothing back, and nobody else can have stored anything.
    assert!(rig.ask(Request::SetAttr { ino, set: set.clone(), size: Some(7) }).is_some());
    rig.ask(Request::Release { ino, handle, flock: None });
    assert!(rig.ask(set_time(&set)).is_some());
    assert_eq!(rig.rounds.len(), 1);
}

/// What a file with many extended attributes loses, the master has to look up: at a file that the directory does not cover any more.
#[test]
fn a_file_with_many_attributes_is_written_while_its_directory_is_given_back() {
    let (mut rig, _) = Rig::with_open(0);
    let ino = rig.file;
    let (name, value) = (b"user.many"[..].into(), vec![1; 2000].into());
    let set = Request::SetXattr { ino, name, value, mode: XattrMode::Any, only_owner: None };
    assert!(matches!(rig.ask(set), Some(Reply::Done)));
    rig.read();
    let data = WriteData(vec![8; 100].into());
    let kill_privileges = Some(vec![0]);
    rig.during = Some(Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges });
    rig.revoke();
    assert!(rig.during.is_none());
}

/// Whoever may not keep setuid writes or cuts a file: neither waits for the right that is being given back, for that may wait for its pages.
#[test]
fn a_file_is_written_and_cut_by_anybody_while_its_directory_is_given_back() {
    for mode in [0o644, 0o4755, 0o2664, 0o2775] {
        for is_cut in [false, true] {
            let (mut rig, _) = Rig::with_open(0);
            let ino = rig.file;
            let set = AttrSet { mode: Some(mode), ..AttrSet::default() };
            assert!(rig.ask(Request::SetAttr { ino, set, size: None }).is_some());
            rig.read();
            let kill_privileges = Some(vec![0]);
            rig.during = Some(match is_cut {
                true => {
                    let set = AttrSet { kill_privileges, ..AttrSet::default() };
                    Request::SetAttr { ino, set, size: Some(7) }
                }
                false => {
                    let data = WriteData(vec![8; 100].into());
                    Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges }
                }
            });
            rig.revoke();
            assert!(rig.during.is_none());
            let has_lost = mode & 0o4000 != 0 || mode & 0o2010 == 0o2010;
            let logged = rig.modes.last().copied();
            assert_eq!(logged, Some(if has_lost { mode & 0o777 } else { mode }), "{mode:o} {is_cut}");
        }
    }
}

/// Goal: a write that a kernel sends in two, as it has not the page in which it begins, is one to other nodes. Method: the right is asked back between the two, or
/// before the first, which is served by the old right as it has a page locked; the rest comes, or never does.
#[test]
fn nobody_comes_between_the_parts_of_a_write() {
    let part = |ino, range: std::ops::Range<u64>| {
        let data = WriteData(vec![8; (range.end - range.start) as usize].into());
        Request::Write { ino, offset: range.start, data, append: false, direct: false, kill_privileges: None }
    };
    for (is_asked_before, has_rest) in [(false, true), (false, false), (true, true), (true, false)] {
        let (mut rig, _) = Rig::with_open(0);
        let ino = rig.file;
        rig.read();
        match is_asked_before {
            true => rig.during = Some(part(ino, 4000..4096)),
            false => _ = rig.ask(part(ino, 4000..4096)),
        }
        rig.now = rig.now + Micros(100);
        let (resource, asked) = (ResourceId { ino: Ino::ROOT, kind: ResourceKind::Dir }, rig.now);
        let list = vec![(resource, LockMode::Nl)];
        rig.hear(FromMaster::Revoke { list, speculative: false });
        let pass = |rig: &mut Rig, until: Micros| {
            while !rig.released && rig.core.poll_timeout() <= until {
                rig.now = rig.core.poll_timeout().max(rig.now);
                rig.core.handle_timeout(rig.clock());
                rig.run();
            }
        };
        pass(&mut rig, asked + Micros(3000));
        assert!(rig.during.is_none() && !rig.released, "{is_asked_before} {has_rest}");
        if has_rest {
            let rest = rig.ask(part(ino, 4096..4200));
            assert!(matches!(rest, Some(Reply::Written { .. })), "{rest:?}: {is_asked_before}");
        }
        pass(&mut rig, asked + Micros(if has_rest { 4500 } else { 20_000 }));
        assert!(rig.released, "{is_asked_before} {has_rest}");
    }
}
