//! Sizes and times that may be late: `lazysize` on the node that looks, `nomtime` on the one that writes.
//!
//! A core alone; the test plays its master.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{attr, content, reserved, root_grant, welcome};
use meta::ops::AttrSet;
use meta::{Change, Child, Content, Cookie, CookieKey, Dirent, FileKind, Inode, OpReply};
use obs::Metrics;
use types::{Ino, LockMode, Micros, OpSeq, ResourceId, Timespec};
use vfs::{
    Attr, Clock, Config, Core, HandleId, Keep, Lazy, OpenMode, Output, Reply, Request, RequestId, WriteData,
};
use wire::{ByteLock, FromMaster, Grant, GrantData, LockKind, LockOwner, ToMaster, Want};

const FILE: Ino = Ino(50);
const APPEND: OpenMode = OpenMode { write: true, map: false, append: true, sync: false };
const LATE_SIZES: Lazy = Lazy { size: true, mtime: false };
const LATE_TIMES: Lazy = Lazy { size: false, mtime: true };

struct Rig {
    core: Core,
    store: Arc<MemStore>,
    metrics: Arc<Metrics>,
    clock: Clock,
    next: u64,
    /// Asked of the master and not answered.
    asked: Vec<(u64, Want)>,
    shipped: Vec<OpSeq>,
    locking: Vec<u64>,
    glimpsed: Vec<(Ino, Content)>,
    replies: Vec<(u64, Reply)>,
}

impl Rig {
    fn new(lazy: Lazy) -> Self {
        let (store, metrics) = (Arc::new(MemStore::new()), Arc::new(Metrics::new()));
        let config = Config { lazy, ..Config::default() };
        let core = Core::new(config, [7; 16], Arc::clone(&store) as _, Arc::clone(&metrics));
        let clock = Clock { now: Micros(1_000_000), wall: at(100) };
        let (asked, shipped, glimpsed, replies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let locking = Vec::new();
        let mut rig =
            Self { core, store, metrics, clock, next: 1, asked, shipped, locking, glimpsed, replies };
        rig.core.hello(rig.clock, 1, 1, String::new(), String::new());
        rig.hear(welcome(1_000_000_000));
        rig.hear(reserved());
        rig
    }

    /// One whose kernel knows the file, which another node writes and which was this long when the kernel asked.
    fn beside_a_writer(lazy: Lazy, size: u64) -> Self {
        let mut rig = Self::new(lazy);
        let looked_up = rig.ask(Request::Itself { ino: FILE });
        assert_eq!(rig.answer(vec![grant_attr(0o644)], Some(size)), Want::Attr { ino: FILE });
        assert!(matches!(rig.reply_to(looked_up), Some(Reply::Entry(_))));
        rig
    }

    fn passes(&mut self, micros: u64) {
        self.clock.now = self.clock.now + Micros(micros);
    }

    fn hear(&mut self, message: FromMaster) {
        self.core.handle_message(self.clock, message);
        self.run();
    }

    /// Returns the number of the request.
    fn ask(&mut self, request: Request) -> u64 {
        let id = self.next;
        self.next += 1;
        if let Some(reply) = self.core.submit(self.clock, RequestId(id), request) {
            self.replies.push((id, reply));
        }
        self.run();
        id
    }

    fn run(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Send(ToMaster::Acquire { request, want, .. }) => self.asked.push((request, want)),
                Output::Send(ToMaster::Ship { seq, .. }) => self.shipped.push(seq),
                Output::Send(ToMaster::Lock { request, .. }) => self.locking.push(request),
                Output::Send(ToMaster::Glimpsed { contents, .. }) => self.glimpsed.extend(contents),
                Output::Reply(id, reply) => self.replies.push((id.0, reply)),
                Output::Invalidate { job, .. } => self.core.invalidated(self.clock, job),
                Output::Gather { job } => common::gather(&mut self.core, self.clock, job),
                Output::Sync { job, plan } => {
                    common::end_sync(&mut self.core, self.clock, job, plan.run(&*self.store))
                }
                _ => {}
            }
        }
    }

    /// The master answers what was asked first.
    fn answer(&mut self, grants: Vec<Grant>, glimpse: Option<u64>) -> Want {
        let (request, want) = self.asked.remove(0);
        let glimpse =
            glimpse.map(|size| Box::new(Inode { attr: attr(FileKind::File), content: content(size) }));
        let seen = u64::MAX;
        self.hear(FromMaster::Acquired { request, error: None, grants, seen, glimpse });
        want
    }

    fn reply_to(&mut self, id: u64) -> Option<Reply> {
        let at = self.replies.iter().position(|(of, _)| *of == id)?;
        Some(self.replies.remove(at).1)
    }

    fn stat(&mut self) -> Option<(u64, Keep)> {
        self.attr().map(|(attr, keep)| (attr.size, keep))
    }

    fn attr(&mut self) -> Option<(Attr, Keep)> {
        let id = self.ask(Request::Stat { ino: FILE });
        match self.reply_to(id)? {
            Reply::Attr(attr, keep) => Some((attr, keep)),
            other => panic!("{other:?}"),
        }
    }

    /// A stat that has to ask, and is told of this size.
    #[track_caller]
    fn asks_and_sees(&mut self, size: u64) {
        let id = self.ask(Request::Stat { ino: FILE });
        assert!(self.reply_to(id).is_none(), "it was answered without a question");
        assert_eq!(self.answer(vec![grant_attr(0o644)], Some(size)), Want::Attr { ino: FILE });
        match self.reply_to(id) {
            Some(Reply::Attr(attr, Keep::No)) => assert_eq!(attr.size, size),
            other => panic!("{other:?}"),
        }
    }

    /// Opens the file, whose content another node holds, or is granted here at this size.
    fn open(&mut self, open: OpenMode, granted: Option<u64>) -> HandleId {
        let id = self.ask(Request::Open { ino: FILE, open });
        while !self.asked.is_empty() {
            let content = granted.map(|size| grant_content(size, LockMode::Ex));
            self.answer([grant_attr(0o644)].into_iter().chain(content).collect(), None);
        }
        match self.reply_to(id) {
            Some(Reply::Opened(opened)) => opened.handle,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, offset: u64, len: usize, append: bool) -> u64 {
        let data = WriteData(vec![7; len].into());
        let direct = append;
        self.ask(Request::Write { ino: FILE, offset, data, append, direct, kill_privileges: None })
    }

    /// Another node wants the content, a while later, and gets it.
    fn gives_content_back(&mut self) {
        self.passes(20_000);
        let list = vec![(ResourceId::file(FILE), LockMode::Nl)];
        self.hear(FromMaster::Revoke { list, speculative: false });
        assert_eq!(self.core.held_mode(ResourceId::file(FILE)), LockMode::Nl);
    }

    /// What another node is told of the file.
    fn glimpse(&mut self) -> Content {
        self.hear(FromMaster::Glimpse { seq: 1, list: vec![FILE] });
        let (ino, content) = self.glimpsed.pop().unwrap();
        assert_eq!(ino, FILE);
        content
    }

    fn sets_mtime(&mut self, mtime: Timespec) -> u64 {
        let set = AttrSet { mtime: Some(mtime), ..AttrSet::default() };
        self.ask(Request::SetAttr { ino: FILE, set, size: None })
    }
}

fn at(secs: i64) -> Timespec {
    Timespec { secs, nanos: 0 }
}

fn grant_attr(mode: u32) -> Grant {
    let mut attr = attr(FileKind::File);
    attr.mode = mode;
    Grant { resource: ResourceId::attr(FILE), mode: LockMode::Pr, data: GrantData::Attr { attr } }
}

fn grant_content(size: u64, mode: LockMode) -> Grant {
    let data = GrantData::Content { content: content(size) };
    Grant { resource: ResourceId::file(FILE), mode, data }
}

#[test]
fn by_default_each_look_asks_the_writer() {
    let mut rig = Rig::beside_a_writer(Lazy::default(), 10);
    for size in 11..20 {
        rig.asks_and_sees(size);
    }
    assert_eq!(rig.metrics.sizes_late.get(), 0);
}

#[test]
fn with_lazysize_looks_cost_one_question_in_a_second() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    for _ in 0..999 {
        assert_eq!(rig.stat(), Some((10, Keep::No)), "for one use");
        rig.passes(1_000);
    }
    assert!(rig.asked.is_empty());
    assert_eq!(rig.metrics.sizes_late.get(), 999);
    rig.passes(1_000);
    rig.asks_and_sees(30);
    assert_eq!(rig.stat(), Some((30, Keep::No)));
}

/// The second begins when the question left, for the answer may be of that moment.
#[test]
fn the_time_that_an_answer_takes_counts() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    rig.passes(1_000_000);
    let id = rig.ask(Request::Stat { ino: FILE });
    rig.passes(700_000);
    rig.answer(Vec::new(), Some(20));
    assert!(matches!(rig.reply_to(id), Some(Reply::Attr(..))));
    rig.passes(200_000);
    assert_eq!(rig.stat(), Some((20, Keep::No)));
    rig.passes(100_000);
    rig.asks_and_sees(30);
}

#[test]
fn a_lookup_may_tell_a_late_size_too() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    let mut root = root_grant();
    root.mode = LockMode::Pr;
    let name: types::Name = types::Name::new(b"f").unwrap();
    let cookie = Cookie::range_of(CookieKey([9; 16]).hash(b"f")).0;
    if let GrantData::Directory { listing, .. } = &mut root.data {
        let child = Child::Own { kind: FileKind::File };
        listing.entries.push((cookie, Dirent { name, ino: FILE, child }));
    }
    let id = rig.ask(Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() });
    assert_eq!(rig.answer(vec![root], None), Want::Directory { ino: Ino::ROOT });
    match rig.reply_to(id) {
        Some(Reply::Entry(entry)) => assert_eq!((entry.attr.size, entry.keep_attr), (10, Keep::No)),
        other => panic!("{other:?}"),
    }
    assert!(rig.asked.is_empty());
}

/// A read behind the end that the kernel has, or a seek to it, asks with a handle.
#[test]
fn what_the_kernel_asks_for_itself_is_never_late() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    assert_eq!(rig.stat(), Some((10, Keep::No)));
    let id = rig.ask(Request::GetAttr { ino: FILE });
    assert!(rig.reply_to(id).is_none());
    rig.answer(Vec::new(), Some(50));
    assert!(matches!(rig.reply_to(id), Some(Reply::Attr(Attr { size: 50, .. }, Keep::No))));
    assert_eq!(rig.stat(), Some((50, Keep::No)), "no less than the reader saw");
}

#[test]
fn a_read_past_a_late_size_reads_what_is_there() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    assert_eq!(rig.stat(), Some((10, Keep::No)));
    let id = rig.ask(Request::Read { ino: FILE, offset: 10, len: 100, noatime: true, direct: false });
    assert_eq!(rig.answer(vec![grant_content(60, LockMode::Pr)], None), Want::Read { ino: FILE });
    match rig.reply_to(id) {
        Some(Reply::Data(data)) => assert_eq!(data.len(), 50),
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.stat(), Some((60, Keep::Yes)));
    rig.gives_content_back();
    rig.asks_and_sees(70);
}

#[test]
fn an_append_goes_to_the_true_end_and_its_node_sees_it() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    assert_eq!(rig.stat(), Some((10, Keep::No)));
    let handle = rig.open(APPEND, None);
    let id = rig.write(10, 5, true);
    assert_eq!(rig.answer(vec![grant_content(40, LockMode::Ex)], None), Want::Write { ino: FILE });
    match rig.reply_to(id) {
        Some(Reply::Written { len: 5, moved_to: Some(40), .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.stat().unwrap().0, 45);
    // Another node goes on writing. As long as it is open for writing here nothing is late.
    rig.gives_content_back();
    for size in [45, 46, 47] {
        rig.asks_and_sees(size);
    }
    // What it was told then serves when it is closed.
    rig.ask(Request::Release { ino: FILE, handle, flock: None });
    assert_eq!(rig.stat(), Some((47, Keep::No)));
}

/// What was learnt before this node wrote is less than it wrote.
#[test]
fn nothing_that_was_learnt_before_an_own_write_is_shown_after_it() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    assert_eq!(rig.stat(), Some((10, Keep::No)));
    let handle = rig.open(OpenMode { append: false, ..APPEND }, Some(10));
    rig.write(10, 90, false);
    rig.ask(Request::Release { ino: FILE, handle, flock: None });
    rig.gives_content_back();
    rig.asks_and_sees(100);
}

#[test]
fn who_opens_a_file_is_shown_what_it_is_by_then() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    assert_eq!(rig.stat(), Some((10, Keep::No)));
    rig.open(OpenMode::default(), None);
    rig.asks_and_sees(20);
    assert_eq!(rig.stat(), Some((20, Keep::No)));
}

/// Programs that lock a file, look how long it is, and write there.
#[test]
fn who_locks_a_file_is_shown_what_it_is_by_then() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    let handle = rig.open(OpenMode::default(), None);
    rig.asks_and_sees(20);
    let lock = ByteLock {
        ino: FILE,
        kind: LockKind::Posix,
        owner: LockOwner(7),
        pid: 1,
        exclusive: false,
        start: 0,
        end: 100,
    };
    let id = rig.ask(Request::SetLock { lock, handle, wait: true });
    assert_eq!(rig.stat(), Some((20, Keep::No)), "it waits");
    let request = rig.locking.remove(0);
    rig.hear(FromMaster::Locked { request, error: None, conflict: None });
    assert!(matches!(rig.reply_to(id), Some(Reply::Done)));
    rig.asks_and_sees(30);
    assert_eq!(rig.stat(), Some((30, Keep::No)));
}

#[test]
fn owner_and_mode_are_never_late() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    assert_eq!(rig.attr().unwrap().0.mode, 0o644);
    rig.passes(20_000);
    let list = vec![(ResourceId::attr(FILE), LockMode::Nl)];
    rig.hear(FromMaster::Revoke { list, speculative: false });
    let id = rig.ask(Request::Stat { ino: FILE });
    assert!(rig.reply_to(id).is_none());
    rig.answer(vec![grant_attr(0o600)], Some(10));
    assert_eq!(rig.attr().unwrap().0.mode, 0o600);
}

/// The master takes the content back from the writer to set it: what was asked for before that is not shown afterwards.
#[test]
fn a_time_that_is_set_here_shows_at_once() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    let id = rig.sets_mtime(at(5));
    assert!(rig.reply_to(id).is_none());
    // Somebody looks meanwhile.
    rig.passes(1_000_000);
    let looked = rig.ask(Request::Stat { ino: FILE });
    rig.answer(Vec::new(), Some(10));
    assert!(matches!(rig.reply_to(looked), Some(Reply::Attr(..))));
    let seq = rig.shipped.remove(0);
    let content = Content { mtime: at(5), ..content(10) };
    let changes = vec![Change::PutContent { ino: FILE, content: content.clone() }];
    let result = Ok(OpReply::Inode { ino: FILE });
    rig.hear(FromMaster::Shipped { seq, result, changes, grants: Vec::new(), seen: u64::MAX });
    let data = GrantData::Content { content };
    let grant = Grant { resource: ResourceId::file(FILE), mode: LockMode::Pr, data };
    rig.answer(vec![grant], None);
    assert!(matches!(rig.reply_to(id), Some(Reply::Attr(Attr { mtime, .. }, _)) if mtime == at(5)));
    rig.gives_content_back();
    rig.asks_and_sees(10);
}

#[test]
fn switched_off_the_next_look_asks() {
    let mut rig = Rig::beside_a_writer(LATE_SIZES, 10);
    assert_eq!(rig.stat(), Some((10, Keep::No)));
    rig.core.set_lazy(Lazy::default());
    rig.asks_and_sees(20);
    rig.asks_and_sees(21);
    // Switched on while a question is under way, it has the answer to go by.
    let id = rig.ask(Request::Stat { ino: FILE });
    rig.core.set_lazy(LATE_SIZES);
    rig.answer(Vec::new(), Some(22));
    assert!(matches!(rig.reply_to(id), Some(Reply::Attr(..))));
    assert_eq!(rig.stat(), Some((22, Keep::No)));
    // And switched off while one is, it forgets.
    rig.passes(1_000_000);
    let id = rig.ask(Request::Stat { ino: FILE });
    rig.core.set_lazy(Lazy::default());
    rig.answer(Vec::new(), Some(23));
    assert!(matches!(rig.reply_to(id), Some(Reply::Attr(..))));
    rig.asks_and_sees(24);
    assert_eq!(rig.core.snapshot().lazy, Lazy::default());
}

/// A writer, at wall clock 100, of a file of which nothing was written before.
fn writer(lazy: Lazy) -> (Rig, HandleId) {
    let mut rig = Rig::new(lazy);
    let handle = rig.open(OpenMode { append: false, ..APPEND }, Some(0));
    rig.write(0, 10, false);
    (rig, handle)
}

fn times(content: &Content) -> (Timespec, Timespec) {
    (content.mtime, content.ctime)
}

#[test]
fn by_default_others_see_the_time_of_each_write() {
    let (mut rig, _) = writer(Lazy::default());
    let told = rig.glimpse();
    assert_eq!((told.size, times(&told)), (10, (at(100), at(100))));
    assert_eq!(rig.metrics.times_late.get(), 0);
}

#[test]
fn with_nomtime_others_see_the_times_of_what_is_recorded() {
    let (mut rig, _) = writer(LATE_TIMES);
    let told = rig.glimpse();
    assert_eq!((told.size, times(&told)), (10, (at(0), at(0))), "the size is exact");
    assert_eq!(rig.attr().unwrap().0.mtime, at(100), "its own node sees what it wrote");
    assert_eq!(rig.metrics.times_late.get(), 1);
    // Recorded within the commit interval.
    rig.passes(1_000_000);
    rig.core.handle_timeout(rig.clock);
    rig.run();
    assert_eq!(times(&rig.glimpse()), (at(100), at(100)));
    rig.clock.wall = at(101);
    rig.write(10, 10, false);
    let told = rig.glimpse();
    assert_eq!((told.size, times(&told)), (20, (at(100), at(100))));
    // And by an fsync.
    rig.ask(Request::Fsync { ino: FILE });
    assert_eq!(times(&rig.glimpse()), (at(101), at(101)));
    assert_eq!(rig.metrics.times_late.get(), 2);
}

#[test]
fn a_time_that_is_set_counts_with_nomtime() {
    let (mut rig, _) = writer(LATE_TIMES);
    let id = rig.sets_mtime(at(7));
    assert!(matches!(rig.reply_to(id), Some(Reply::Attr(Attr { mtime, .. }, _)) if mtime == at(7)));
    assert_eq!(times(&rig.glimpse()), (at(7), at(100)));
    rig.clock.wall = at(105);
    rig.write(0, 1, false);
    assert_eq!(times(&rig.glimpse()), (at(7), at(100)));
    assert_eq!(rig.attr().unwrap().0.mtime, at(105));
}

/// Times do not go back for those who have seen them.
#[test]
fn nomtime_that_is_switched_on_takes_nothing_back() {
    let (mut rig, _) = writer(Lazy::default());
    assert_eq!(times(&rig.glimpse()), (at(100), at(100)));
    rig.core.set_lazy(LATE_TIMES);
    rig.clock.wall = at(103);
    rig.write(0, 1, false);
    assert_eq!(times(&rig.glimpse()), (at(100), at(100)));
    rig.core.set_lazy(Lazy::default());
    assert_eq!(times(&rig.glimpse()), (at(103), at(103)), "off, the next look is told");
}

/// Who takes the content has what was written, times and all.
#[test]
fn with_nomtime_what_is_given_back_has_its_times() {
    let (mut rig, _) = writer(LATE_TIMES);
    rig.passes(20_000);
    let list = vec![(ResourceId::file(FILE), LockMode::Nl)];
    let mut recorded = None;
    rig.core.handle_message(rig.clock, FromMaster::Revoke { list, speculative: false });
    while let Some(output) = rig.core.poll_output() {
        match output {
            Output::Invalidate { job, .. } => rig.core.invalidated(rig.clock, job),
            Output::Gather { job } => common::gather(&mut rig.core, rig.clock, job),
            Output::Sync { job, plan } => {
                common::end_sync(&mut rig.core, rig.clock, job, plan.run(&*rig.store))
            }
            Output::Send(ToMaster::Batch { changes, .. }) => {
                recorded = changes.iter().find_map(|change| match change {
                    Change::PutContent { ino: FILE, content } => Some(times(content)),
                    _ => recorded,
                });
            }
            _ => {}
        }
    }
    assert_eq!(recorded, Some((at(100), at(100))));
}
