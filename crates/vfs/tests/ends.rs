//! What a node tells its kernel of a file that grows on several nodes.
//!
//! A core alone; the test plays its master and its kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{attr, content, reserved, welcome};
use meta::ops::AttrSet;
use meta::{FileKind, Inode};
use obs::Metrics;
use types::{Ino, LockMode, Micros, ResourceId, Timespec};
use vfs::{
    Asker, Clock, Config, Core, Keep, OpenMode, Outdated, Output, Permissions, Reply, Request, RequestId,
    Seen, WriteData,
};
use wire::{FromMaster, Grant, GrantData, ToMaster, Want};

const FILE: Ino = Ino(50);

struct Rig {
    core: Core,
    now: Micros,
    next: u64,
    /// Asked of the master and not answered.
    asked: Vec<(u64, Want)>,
    replies: Vec<(u64, Reply)>,
    invalidations: Vec<u64>,
}

impl Rig {
    fn new() -> Self {
        let store = Arc::new(MemStore::new());
        let core = Core::new(Config::default(), [7; 16], store, Arc::new(Metrics::new()));
        let (asked, replies, invalidations) = (Vec::new(), Vec::new(), Vec::new());
        let mut rig = Self { core, now: Micros(1_000_000), next: 1, asked, replies, invalidations };
        rig.core.hello(rig.clock(), 1, 1, String::new(), String::new());
        rig.hear(welcome(1_000_000_000));
        rig.hear(reserved());
        rig
    }

    fn clock(&self) -> Clock {
        Clock { now: self.now, wall: Timespec::default() }
    }

    fn hear(&mut self, message: FromMaster) {
        self.core.handle_message(self.clock(), message);
        self.run();
    }

    /// Returns the number of the request.
    fn ask(&mut self, request: Request) -> u64 {
        let id = self.next;
        self.next += 1;
        if let Some(reply) = self.core.submit(self.clock(), RequestId(id), request) {
            self.replies.push((id, reply));
        }
        self.run();
        id
    }

    fn run(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Send(ToMaster::Acquire { request, want, .. }) => self.asked.push((request, want)),
                Output::Reply(id, reply) => self.replies.push((id.0, reply)),
                Output::Invalidate { job, .. } => self.invalidations.push(job),
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

    /// Opens the file with this size for writing, held in EX.
    fn open_to_write(&mut self, size: u64) {
        self.open(OpenMode { write: true, ..OpenMode::default() }, size);
    }

    fn open(&mut self, open: OpenMode, size: u64) {
        let opened = self.ask(Request::Open { ino: FILE, open });
        while !self.asked.is_empty() {
            self.answer(vec![grant_attr(), grant_content(size)], None);
        }
        let reply = self.reply_to(opened);
        assert!(matches!(reply, Some(Reply::Opened(_))), "{reply:?}");
    }

    /// Another node wants the content, a while later, and gets it.
    fn give_content_back(&mut self) {
        self.now = self.now + Micros(1_000_000);
        let list = vec![(ResourceId::file(FILE), LockMode::Nl)];
        self.hear(FromMaster::Revoke { list, speculative: false });
        for job in std::mem::take(&mut self.invalidations) {
            self.core.invalidated(self.clock(), job);
            self.run();
        }
    }

    fn see_end(&mut self, end: u64) {
        let of = Outdated { permissions: false, ..self.core.end_of(FILE).unwrap() };
        let seen = Seen { end, permissions: Permissions::default() };
        self.core.seen(self.clock(), of, seen);
    }

    fn stat(&mut self) -> Reply {
        let id = self.ask(Request::GetAttr { ino: FILE });
        self.reply_to(id).unwrap()
    }
}

fn grant_attr() -> Grant {
    let data = GrantData::Attr { attr: attr(FileKind::File) };
    Grant { resource: ResourceId::attr(FILE), mode: LockMode::Pr, data }
}

fn grant_content(size: u64) -> Grant {
    let data = GrantData::Content { content: content(size) };
    Grant { resource: ResourceId::file(FILE), mode: LockMode::Ex, data }
}

fn size_and_keep(reply: Option<Reply>) -> Option<(u64, Keep)> {
    match reply? {
        Reply::Attr(attr, keep) => Some((attr.size, keep)),
        other => panic!("{other:?}"),
    }
}

/// Between the moment in which the size was told and the arrival of who asks later, another node may have written and
/// returned.
#[test]
fn a_size_told_for_one_use_answers_nobody_who_came_after_it_was_asked_for() {
    let mut rig = Rig::new();
    let first = rig.ask(Request::GetAttr { ino: FILE });
    let second = rig.ask(Request::GetAttr { ino: FILE });
    assert_eq!(rig.asked.len(), 1, "asked once");
    rig.answer(vec![grant_attr()], Some(10));
    let told = rig.reply_to(first);
    assert_eq!(size_and_keep(told), Some((10, Keep::No)));
    assert!(rig.reply_to(second).is_none());
    rig.answer(Vec::new(), Some(20));
    let told = rig.reply_to(second);
    assert_eq!(size_and_keep(told), Some((20, Keep::No)));
    assert!(rig.asked.is_empty());
}

/// Where the file is open for writing, a release that was to leave a right to read leaves none: attributes told to be kept
/// would never be taken back.
#[test]
fn nothing_is_told_to_be_kept_while_everything_is_taken_back() {
    let mut rig = Rig::new();
    rig.open_to_write(10);
    let data = WriteData(vec![7; 20].into());
    rig.ask(Request::Write {
        ino: FILE,
        offset: 0,
        data,
        append: false,
        direct: false,
        kill_privileges: None,
    });
    rig.now = rig.now + Micros(1_000_000);
    let list = vec![(ResourceId::file(FILE), LockMode::Pr)];
    rig.hear(FromMaster::Revoke { list, speculative: false });
    assert_eq!(rig.invalidations.len(), 1, "its pages are being taken back");
    let asked = rig.ask(Request::GetAttr { ino: FILE });
    assert!(!matches!(rig.reply_to(asked), Some(Reply::Attr(_, Keep::Yes))));
}

#[test]
fn an_answer_with_a_later_end_waits_until_the_kernel_has_it() {
    let mut rig = Rig::new();
    rig.open_to_write(10);
    // The kernel never looked it up here, and may have any size.
    let told = rig.stat();
    let end = rig.core.later_end(&told, Asker::Other).unwrap();
    assert_eq!((end.ino, end.from, end.to), (FILE, 0, 10));
    rig.core.end_reached(end);
    assert_eq!(rig.core.later_end(&told, Asker::Other), None);

    // Written through pages, by nobody but this node since.
    let write = |rig: &mut Rig, len: u64| {
        let data = WriteData(vec![7; len as usize].into());
        rig.ask(Request::Write {
            ino: FILE,
            offset: 0,
            data,
            append: false,
            direct: false,
            kill_privileges: None,
        });
    };
    write(&mut rig, 20);
    rig.core.end_written(FILE, 20);
    let told = rig.stat();
    assert_eq!(rig.core.later_end(&told, Asker::Other), None);

    // Past the pages.
    write(&mut rig, 30);
    let told = rig.stat();
    let end = rig.core.later_end(&told, Asker::Other).unwrap();
    assert_eq!((end.from, end.to), (10, 30));

    // Others may have written before this answer was made, and a write through pages may still be on its way.
    rig.give_content_back();
    let asked = rig.ask(Request::GetAttr { ino: FILE });
    rig.core.end_written(FILE, 40);
    rig.answer(Vec::new(), Some(40));
    let told = rig.reply_to(asked).unwrap();
    let end = rig.core.later_end(&told, Asker::Other).unwrap();
    assert_eq!((end.from, end.to), (10, 40));
    rig.core.end_reached(end);
    assert_eq!(rig.core.later_end(&told, Asker::Other), None);
}

/// Goal: an answer is held back as long as the kernel may still be about to move its end itself, and no longer. Method: direct writes by two threads,
/// and who asks after each: another thread, the one that wrote, and whoever has the lock of the file.
#[test]
fn who_asks_after_a_direct_write_is_done_needs_no_end() {
    let mut rig = Rig::new();
    rig.open_to_write(10);
    let told = rig.stat();
    let end = rig.core.later_end(&told, Asker::Other).unwrap();
    rig.core.end_reached(end);
    let write = |rig: &mut Rig, len: u64, thread: u32| {
        let data = WriteData(vec![7; len as usize].into());
        rig.ask(Request::Write {
            ino: FILE,
            offset: 0,
            data,
            append: false,
            direct: true,
            kill_privileges: None,
        });
        rig.core.end_moved_by(FILE, len, thread);
        rig.stat()
    };
    let from =
        |rig: &mut Rig, told: &Reply, asker| rig.core.later_end(told, asker).map(|end| (end.from, end.to));
    let told = write(&mut rig, 20, 5);
    assert_eq!(from(&mut rig, &told, Asker::Other), Some((10, 20)));
    assert_eq!(from(&mut rig, &told, Asker::Thread(6)), Some((10, 20)));
    assert_eq!(from(&mut rig, &told, Asker::Thread(5)), None);
    assert_eq!(from(&mut rig, &told, Asker::Holder), None);

    // Another part of the same write, perhaps.
    let told = write(&mut rig, 30, 5);
    assert_eq!(from(&mut rig, &told, Asker::Thread(6)), Some((10, 30)));
    // The kernel makes one write at a time.
    let told = write(&mut rig, 40, 6);
    assert_eq!(from(&mut rig, &told, Asker::Thread(5)), Some((30, 40)));
    // Nobody in sight is not the one who wrote.
    let told = write(&mut rig, 50, 0);
    assert_eq!(from(&mut rig, &told, Asker::Thread(0)), Some((30, 50)));
    assert_eq!(from(&mut rig, &told, Asker::Thread(6)), Some((30, 50)));
    assert_eq!(from(&mut rig, &told, Asker::Holder), None);

    // What does not make the file longer moves nothing, and says nothing of others: nobody may have waited for it.
    let told = write(&mut rig, 50, 9);
    assert_eq!(from(&mut rig, &told, Asker::Other), Some((30, 50)));
    assert_eq!(from(&mut rig, &told, Asker::Thread(9)), Some((30, 50)));
    // It is made to take an earlier end.
    rig.ask(Request::SetAttr { ino: FILE, set: AttrSet::default(), size: Some(5) });
    let told = rig.stat();
    rig.core.attributes_set(&told);
    let told = write(&mut rig, 60, 0);
    assert_eq!(from(&mut rig, &told, Asker::Other), Some((5, 60)));
    // How far the kernel gets with a write that is refused in part it does not say.
    rig.core.direct_write_refused(FILE);
    assert_eq!(from(&mut rig, &told, Asker::Holder), Some((5, 60)));
    let told = write(&mut rig, 70, 6);
    assert_eq!(from(&mut rig, &told, Asker::Thread(6)), Some((5, 70)));
}

#[test]
fn a_closed_file_needs_no_end() {
    let mut rig = Rig::new();
    let asked = rig.ask(Request::GetAttr { ino: FILE });
    rig.answer(vec![grant_attr()], Some(10));
    let told = rig.reply_to(asked).unwrap();
    assert_eq!(rig.core.later_end(&told, Asker::Other), None);
}

/// A read that meets an end before the one that the kernel may have waits until the kernel was seen to have no later one.
#[test]
fn a_read_that_meets_an_earlier_end_than_the_kernels_waits() {
    let mut rig = Rig::new();
    rig.open_to_write(10);
    rig.stat();
    let read = |rig: &mut Rig, offset: u64| {
        let asked = rig.ask(Request::Read { ino: FILE, offset, len: 4096, noatime: true, direct: false });
        if !rig.asked.is_empty() {
            rig.answer(vec![grant_content(5)], None);
        }
        assert!(matches!(rig.reply_to(asked), Some(Reply::Data(_) | Reply::ReadJob(_))));
        rig.core.earlier_end_met(FILE)
    };
    assert_eq!(read(&mut rig, 0), None);

    // Cut to five bytes elsewhere.
    rig.give_content_back();
    for offset in [0, 4096] {
        let end = read(&mut rig, offset).unwrap();
        assert_eq!((end.ino, end.told, rig.core.end_now(end)), (FILE, None, Some(5)));
    }
    let told = rig.stat();
    assert!(rig.core.outdated(&told).is_some());
    // That answer may still be on its way.
    rig.see_end(5);
    assert!(read(&mut rig, 0).is_some());
    rig.now = rig.now + Micros(1_010_000);
    rig.see_end(5);
    assert_eq!(read(&mut rig, 0), None);

    // What it was told a moment ago may be on its way.
    let told = rig.stat();
    let mut end = rig.core.later_end(&told, Asker::Other).unwrap();
    end.to = 30;
    rig.core.end_reached(end);
    rig.see_end(5);
    assert!(read(&mut rig, 0).is_some());
    rig.now = rig.now + Micros(1_010_000);
    rig.see_end(5);
    assert_eq!(read(&mut rig, 0), None);
}

/// Where another node holds the content, the kernel is made to take the end that the answer tells.
#[test]
fn an_earlier_end_that_was_asked_for_is_the_one_to_bring_the_kernel_to() {
    let mut rig = Rig::new();
    rig.open(OpenMode::default(), 10);
    rig.give_content_back();
    // The kernel has moved its end with a direct write's answer.
    rig.core.end_moved(FILE, 100);
    rig.now = rig.now + Micros(1_000);
    let asked = rig.ask(Request::GetAttr { ino: FILE });
    while !rig.asked.is_empty() {
        rig.answer(vec![grant_attr()], Some(20));
    }
    let told = rig.reply_to(asked).unwrap();
    let end = rig.core.outdated(&told).unwrap();
    assert_eq!(rig.core.end_now(end), Some(20));
    assert_eq!(rig.core.attr_now(end, None).map(|attr| attr.size), Some(20));
    // Of a read nothing is told: its answer stands under a right to the content.
    let met = Outdated { told: None, ..end };
    assert_eq!((rig.core.end_now(met), rig.core.attr_now(met, None)), (None, None));
}

/// Goal: who goes by the kernel's end, as `lseek` does, does not find the one of before a truncation that was over when he asked, though the file has grown further since.
#[test]
fn an_end_of_before_an_earlier_one_is_not_current_when_there_is_a_later_one() {
    let mut rig = Rig::new();
    rig.open(OpenMode::default(), 10);
    rig.give_content_back();
    rig.core.end_moved(FILE, 100);
    let tell = |rig: &mut Rig, size| {
        rig.now = rig.now + Micros(1_000);
        let asked = rig.ask(Request::GetAttr { ino: FILE });
        while !rig.asked.is_empty() {
            rig.answer(vec![grant_attr()], Some(size));
        }
        rig.reply_to(asked).unwrap()
    };
    let told = tell(&mut rig, 20);
    let of = rig.core.outdated(&told).unwrap();
    tell(&mut rig, 500);
    let mut is_current = |asker, end| {
        let seen = Seen { end, permissions: Permissions::default() };
        rig.core.is_current(Outdated { asker, permissions: false, ..of }, seen).unwrap()
    };
    let ends = [10, 20, 100, 500, 501];
    assert_eq!(ends.map(|end| is_current(Asker::Thread(7), end)), [false, true, false, true, false]);
    let by_what_is_told = ends.map(|end| is_current(Asker::Other, end));
    assert_eq!(by_what_is_told, [true, true, true, true, false]);
}

/// Goal: who may write through pages is told of an earlier end that another node made with its content at hand, so that the kernel can be brought to
/// that end under the file's lock; and once only, as long as the kernel has no later end again. Method: a file open for writing and one open for appending, whose end the
/// master tells while another node has the content.
#[test]
fn who_may_fill_pages_is_told_of_an_earlier_end_with_the_content() {
    for append in [false, true] {
        let mut rig = Rig::new();
        rig.open(OpenMode { write: true, append, ..OpenMode::default() }, 100);
        rig.core.end_moved(FILE, 100);
        rig.give_content_back();
        let wants = |rig: &mut Rig, size| {
            rig.now = rig.now + Micros(1_000);
            let asked = rig.ask(Request::GetAttr { ino: FILE });
            let mut wants = Vec::new();
            while !rig.asked.is_empty() {
                let is_content = matches!(rig.asked[0].1, Want::Write { .. });
                let grants =
                    if is_content { vec![grant_attr(), grant_content(size)] } else { vec![grant_attr()] };
                wants.push(rig.answer(grants, Some(size).filter(|_| !is_content)));
            }
            let told = rig.reply_to(asked).unwrap();
            let is_earlier = rig.core.outdated(&told).is_some_and(|of| of.end);
            assert_eq!(size_and_keep(Some(told)).map(|(size, _)| size), Some(size));
            (wants.contains(&Want::Write { ino: FILE }), is_earlier)
        };
        assert_eq!(wants(&mut rig, 20), (!append, !append));
        if append {
            continue;
        }
        rig.see_end(20);
        rig.give_content_back();
        assert_eq!(wants(&mut rig, 20), (false, false), "the kernel has it");
        rig.core.end_moved(FILE, 200);
        assert_eq!(wants(&mut rig, 20), (true, true), "it has another again");
    }
}

/// Goal: who meets the end that a truncation here has made knows that the kernel is to take it until that is answered, so that a READ is not given up for want
/// of the file's lock; but not for long, for the request may have failed since.
#[test]
fn a_truncation_is_known_from_when_it_is_done_until_it_is_answered() {
    let mut rig = Rig::new();
    rig.open_to_write(100);
    assert!(!rig.core.is_cut_untold(rig.clock(), FILE));
    for is_answered in [true, false] {
        let size = if is_answered { 20 } else { 10 };
        let asked = rig.ask(Request::SetAttr { ino: FILE, set: AttrSet::default(), size: Some(size) });
        assert!(rig.core.is_cut_untold(rig.clock(), FILE));
        if is_answered {
            let told = rig.reply_to(asked).unwrap();
            rig.core.attributes_set(&told);
            assert!(!rig.core.is_cut_untold(rig.clock(), FILE));
        }
    }
    rig.now = rig.now + Micros(600_000);
    assert!(!rig.core.is_cut_untold(rig.clock(), FILE));
}
