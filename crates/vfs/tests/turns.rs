//! A directory in which nodes take turns: given back, kept aside, and taken again with what has changed.
//!
//! A core alone; the test plays its master and its kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{CLOCK, attr, content, create, member, root_acquired};
use meta::{Body, Change, Child, Content, Cookie, CookieKey, Dirent, FileKind, Inode};
use types::{Ino, LockMode, Micros, Name, ResourceId};
use vfs::{Clock, Core, Invalidation, Keep, Output, Reply, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, ToMaster};

const ROOT: ResourceId = ResourceId::dir(Ino::ROOT);

struct Rig {
    core: Core,
    clock: Clock,
    next: u64,
    said: Vec<ToMaster>,
    invalidations: Vec<Invalidation>,
}

impl Rig {
    /// Holds the root, which is empty, and has made the file `mine` there.
    fn new() -> Self {
        let mut rig =
            Self { core: member(), clock: CLOCK, next: 0, said: Vec::new(), invalidations: Vec::new() };
        assert!(rig.ask(lookup("mine")).is_none());
        let request = rig.acquire().expect("the root is asked for");
        rig.hear(root_acquired(request));
        rig.make("mine");
        rig
    }

    fn ask(&mut self, request: Request) -> Option<Reply> {
        self.next += 1;
        let id = RequestId(self.next);
        let reply = self.core.submit(self.clock, id, request);
        reply.or_else(|| self.run().into_iter().find(|(of, _)| *of == id).map(|(_, reply)| reply))
    }

    /// Makes a file here, and closes it.
    #[track_caller]
    fn make(&mut self, name: &str) {
        let Some(Reply::Created(entry, opened)) = self.ask(create(name)) else { panic!("{name}") };
        let (ino, handle) = (entry.attr.ino, opened.handle);
        self.ask(Request::Release { ino, handle, flock: None });
    }

    fn hear(&mut self, message: FromMaster) -> Vec<Reply> {
        self.core.handle_message(self.clock, message);
        self.run().into_iter().map(|(_, reply)| reply).collect()
    }

    fn wait(&mut self, time: Micros) {
        self.clock.now = self.clock.now + time;
        self.core.handle_timeout(self.clock);
        self.run();
    }

    fn run(&mut self) -> Vec<(RequestId, Reply)> {
        let mut replies = Vec::new();
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Send(message) => self.said.push(message),
                Output::Reply(id, reply) => replies.push((id, reply)),
                Output::Invalidate { job, list } => {
                    self.invalidations.extend(list);
                    self.core.invalidated(self.clock, job);
                }
                _ => {}
            }
        }
        replies
    }

    /// The number of what was asked for since the last look.
    fn acquire(&mut self) -> Option<u64> {
        let said = std::mem::take(&mut self.said);
        said.into_iter().find_map(|message| match message {
            ToMaster::Acquire { request, .. } => Some(request),
            _ => None,
        })
    }

    /// The master asks for all of the root, and is given it.
    fn give_up(&mut self) {
        self.hear(FromMaster::Revoke { list: vec![(ROOT, LockMode::Nl)], speculative: false });
        self.wait(Micros::from_millis(20));
        let is_release = |message: &ToMaster| match message {
            ToMaster::Release { list, .. } => list.contains(&(ROOT, LockMode::Nl)),
            _ => false,
        };
        assert!(self.said.iter().any(is_release), "{:?}", self.said);
    }

    /// Somebody looks at the root; it is granted with what has changed.
    fn take(&mut self, changes: Vec<Change>) -> Vec<Reply> {
        assert!(self.ask(lookup("mine")).is_none(), "nothing is served from what is kept aside");
        let request = self.acquire().expect("it is asked for");
        let inode = Box::new(Inode { attr: attr(FileKind::Directory), content: content(0) });
        let data = GrantData::Since { inode, changes };
        let grants = vec![Grant { resource: ROOT, mode: LockMode::Ex, data }];
        // The release was seen.
        self.hear(FromMaster::Acquired { request, error: None, grants, seen: 100, glimpse: None })
    }

    fn asks_for_more(&self) -> bool {
        self.said.iter().any(|message| matches!(message, ToMaster::More { .. }))
    }
}

fn lookup(name: &str) -> Request {
    Request::Lookup { parent: Ino::ROOT, name: name.as_bytes().into() }
}

/// Somebody else's file in the root.
fn theirs(name: &str, ino: u64) -> Change {
    let (cookie, _) = Cookie::range_of(CookieKey([9; 16]).hash(name.as_bytes()));
    let inode = Arc::new(Inode { attr: attr(FileKind::File), content: content(0) });
    let entry =
        Dirent { name: Name::new(name.as_bytes()).unwrap(), ino: Ino(ino), child: Child::Covered { inode } };
    Change::PutEntry { parent: Ino::ROOT, cookie, entry }
}

/// Goal: a turn costs no listing, and is given back without a word to the kernel. Method: a directory is given up and taken again with
/// a file of another node's; old, new and absent names are looked up; then it is given up once more.
#[test]
fn a_directory_is_taken_again_with_what_has_changed() {
    let mut rig = Rig::new();
    rig.give_up();
    rig.take(vec![theirs("theirs", 7_000)]);
    for name in ["mine", "theirs"] {
        let Some(Reply::Entry(entry)) = rig.ask(lookup(name)) else { panic!("{name}") };
        assert_eq!((entry.keep_name, entry.keep_attr), (Keep::No, Keep::No), "{name}");
    }
    assert!(matches!(rig.ask(lookup("none")), Some(Reply::NoEntry(Keep::No))));
    assert!(!rig.asks_for_more(), "{:?}", rig.said);
    rig.invalidations.clear();
    rig.give_up();
    assert_eq!(rig.invalidations, []);
    rig.take(Vec::new());
    assert!(matches!(rig.ask(lookup("theirs")), Some(Reply::Entry(_))));
}

/// Goal: what is made in a turn is opened without another question, and what is told of it is gone with the turn. Method: a file that was
/// closed, so that the kernel surely has it, and one that was not; then both are looked up in a turn.
#[test]
fn what_is_made_in_a_turn_is_taken_back_with_it() {
    let mut rig = Rig::new();
    rig.give_up();
    rig.take(Vec::new());
    let mut made = |name, is_closed| {
        let Some(Reply::Created(entry, opened)) = rig.ask(create(name)) else { panic!("{name}") };
        assert_eq!((entry.keep_name, entry.keep_attr), (Keep::No, Keep::Yes), "{name}");
        if is_closed {
            rig.ask(Request::Release { ino: entry.attr.ino, handle: opened.handle, flock: None });
        }
        entry.attr.ino
    };
    let (closed, open) = (made("closed", true), made("open", false));
    rig.invalidations.clear();
    rig.give_up();
    // The answer that brings it to the kernel may still be on its way: the name waits for it.
    let name = Name::new(b"open").unwrap();
    let named: Vec<_> = rig.invalidations.iter().filter(|i| matches!(i, Invalidation::Name { .. })).collect();
    assert_eq!(named, [&Invalidation::Name { parent: Ino::ROOT, name }]);
    for ino in [closed, open] {
        assert!(rig.invalidations.contains(&Invalidation::Attr { ino }), "{ino}: {:?}", rig.invalidations);
    }
    rig.take(Vec::new());
    assert!(matches!(rig.ask(lookup("closed")), Some(Reply::Entry(_))));
}

/// Goal: what was committed before the master saw the release is not missed. Method: another node's change is told of after that.
#[test]
fn what_is_told_of_a_directory_aside_is_taken_in() {
    let mut rig = Rig::new();
    rig.give_up();
    rig.hear(FromMaster::Forget { seq: 1, changes: vec![theirs("theirs", 7_000)], removed: Vec::new() });
    rig.take(Vec::new());
    assert!(matches!(rig.ask(lookup("theirs")), Some(Reply::Entry(_))));
}

/// Goal: who has let go of what he kept misses nothing. Method: the grant comes after that.
#[test]
fn what_was_kept_for_too_long_is_asked_for_again() {
    let mut rig = Rig::new();
    rig.give_up();
    rig.wait(Micros::from_millis(1_500));
    assert!(rig.take(vec![theirs("theirs", 7_000)]).is_empty(), "it is not known any more");
    assert!(rig.asks_for_more(), "{:?}", rig.said);
}

/// Goal: extents of a file that another node may have changed, and moved out of the directory, are asked for again. Method: a file of pages of
/// extents is sought in, in two turns.
#[test]
fn extents_are_not_kept_aside() {
    let mut rig = Rig::new();
    rig.give_up();
    let Change::PutEntry { parent, cookie, mut entry } = theirs("theirs", 7_000) else { panic!("an entry") };
    let body = Body::Paged { mapped_bytes: 4096 };
    let content = Content { size: 2 * Body::PAGE_SPAN, body, ..content(0) };
    let inode = Arc::new(Inode { attr: attr(FileKind::File), content });
    entry.child = Child::Covered { inode };
    rig.take(vec![Change::PutEntry { parent, cookie, entry }]);
    for turn in 0..2 {
        rig.said.clear();
        assert!(rig.ask(lookup("theirs")).is_some());
        let seek = || Request::Seek { ino: Ino(7_000), offset: 0, for_hole: false };
        assert!(rig.ask(seek()).is_none(), "turn {turn}: asked for");
        let asked = rig.said.iter().find_map(|message| match message {
            ToMaster::Fetch { request, .. } => Some(*request),
            _ => None,
        });
        let request = asked.unwrap_or_else(|| panic!("turn {turn}: {:?}", rig.said));
        rig.hear(FromMaster::Fetched {
            request,
            inodes: 0,
            pages_to: 2,
            pages: Vec::new(),
            xattrs: Vec::new(),
            error: None,
        });
        assert!(rig.ask(seek()).is_some(), "turn {turn}: known");
        rig.give_up();
        rig.take(Vec::new());
    }
}
