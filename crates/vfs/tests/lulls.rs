//! What a listing tells of inodes whose permissions another node has changed.
//!
//! A core alone; the test plays its master and its kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, attr, content, member, root_grant};
use meta::ops::AttrSet;
use meta::{Child, Cookie, Dirent, FileKind, Inode};
use types::{Ino, LockMode, Micros, Name, ResourceId};
use vfs::{Clock, Core, DirSink, Entry, Invalidation, Output, Reply, Request, RequestId};
use wire::{FromMaster, GrantData, ToMaster, Want};

const FILES: u64 = 20;

/// What a listing told of files: their modes, where it did.
#[derive(Debug, Default)]
struct Modes(Vec<Option<u32>>);

impl DirSink for Modes {
    fn push(&mut self, _: &[u8], _: Ino, kind: FileKind, _: u64, entry: Option<&Entry>) -> bool {
        if kind == FileKind::File {
            self.0.push(entry.map(|entry| entry.attr.mode));
        }
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

struct Rig {
    core: Core,
    clock: Clock,
    /// The lull that was asked for last.
    lull: Option<u16>,
}

impl Rig {
    fn new() -> Self {
        Self { core: member(), clock: CLOCK, lull: None }
    }

    fn passes(&mut self, time: Micros) {
        self.clock.now = self.clock.now + time;
    }

    /// The modes told of a root full of files with this one.
    fn list(&mut self, mode: u32) -> Vec<Option<u32>> {
        let request = Request::ReadDir {
            ino: Ino::ROOT,
            after: 0,
            plus: true,
            noatime: false,
            sink: Box::<Modes>::default(),
        };
        let mut reply = self.core.submit(self.clock, RequestId(1), request);
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Send(ToMaster::Acquire { request, want: Want::Directory { .. }, .. }) => {
                    self.core.handle_message(self.clock, root_with_files(request, mode));
                }
                Output::Reply(_, told) => reply = Some(told),
                _ => {}
            }
        }
        match reply {
            Some(Reply::Dir(sink)) => sink.into_any().downcast::<Modes>().unwrap().0,
            other => panic!("{other:?}"),
        }
    }

    /// The root goes to another node, and all that the kernel has of it is taken back.
    fn give_back(&mut self) {
        let list = vec![(ResourceId::dir(Ino::ROOT), LockMode::Nl)];
        self.core.handle_message(self.clock, FromMaster::Revoke { list, speculative: false });
        while let Some(output) = self.core.poll_output() {
            let Output::Invalidate { job, list } = output else { continue };
            let is_attr = |i: &Invalidation| matches!(i, Invalidation::Attr { ino } if ino.0 >= 1000);
            let attrs = list.iter().filter(|i| is_attr(i)).count() as u64;
            self.lull = match list.last() {
                Some(Invalidation::Lull { dir: Ino::ROOT, number, .. }) => {
                    assert_eq!(attrs, FILES, "{list:?}");
                    Some(*number)
                }
                _ => None,
            };
            self.core.invalidated(self.clock, job);
        }
    }

    fn lull_comes(&mut self) {
        self.core.lull_came(self.clock, Ino::ROOT, self.lull.unwrap());
    }

    fn look(&mut self, ino: u64) -> Reply {
        self.core.submit(self.clock, RequestId(2), Request::GetAttr { ino: Ino(ino) }).unwrap()
    }
}

fn root_with_files(request: u64, mode: u32) -> FromMaster {
    let mut grant = root_grant();
    grant.mode = LockMode::Pr;
    if let GrantData::Directory { listing, .. } = &mut grant.data {
        listing.entries = (0..FILES)
            .map(|n| {
                let name = Name::new(format!("f{n}").as_bytes()).unwrap();
                let attr = meta::InodeAttr { mode, ..attr(FileKind::File) };
                let inode = Inode { attr, content: content(0) };
                let child = Child::Covered { inode: inode.into() };
                (Cookie(n + 10), Dirent { name, ino: Ino(1000 + n), child })
            })
            .collect();
    }
    FromMaster::Acquired { request, error: None, grants: vec![grant], seen: u64::MAX, glimpse: None }
}

/// Goal: a walk right after a change of all permissions elsewhere asks for no inode by itself, and is judged right. Method: with
/// the lull that was asked for when the directory went, listings tell; without, or where it may not count, they leave it to a lookup.
#[test]
fn a_listing_after_a_lull_tells_of_permissions_at_once() {
    let mut rig = Rig::new();
    let all = |mode| vec![Some(mode); FILES as usize];
    let none = vec![None; FILES as usize];
    assert_eq!(rig.list(0o600), all(0o600), "the first that the kernel hears");
    rig.passes(Micros(200_000));
    rig.give_back();
    assert_eq!(rig.list(0o644), none, "no lull has come");
    rig.lull_comes();
    assert_eq!(rig.list(0o644), all(0o644));
    let told = rig.look(1003);
    assert_eq!(rig.core.outdated(&told), None, "it has been told");

    // One of another time says nothing.
    rig.passes(Micros(200_000));
    rig.lull_comes();
    rig.give_back();
    assert_eq!(rig.lull, None, "so soon after the last");
    assert_eq!(rig.list(0o600), none);

    rig.passes(Micros(200_000));
    assert_eq!(rig.list(0o600), none);
    let told = rig.look(1003);
    assert!(rig.core.outdated(&told).is_some(), "it is looked up");
    rig.give_back();
    rig.passes(Micros(3_000_000));
    assert_eq!(rig.list(0o644), all(0o644), "nothing has stirred for long");

    // What is told of in between may be overtaken.
    rig.passes(Micros(200_000));
    rig.give_back();
    let mut expected = all(0o600);
    assert_eq!(rig.list(0o600), none);
    let told = rig.look(1003);
    assert!(rig.core.outdated(&told).is_some());
    rig.lull_comes();
    expected[3] = None;
    assert_eq!(rig.list(0o600), expected);
}

/// Goal: as before where the kernel drops what a listing tells, or takes older permissions later than that. Method: a file was set here
/// a moment before its directory went, whose answer the kernel takes however late; another is being cut here.
#[test]
fn a_listing_leaves_out_what_is_set_or_cut_here() {
    let mut rig = Rig::new();
    rig.list(0o600);
    rig.passes(Micros(200_000));
    let told = rig.look(1003);
    rig.core.attributes_set(&told);
    rig.give_back();
    rig.lull_comes();
    let cut = Request::SetAttr { ino: Ino(1005), set: AttrSet::default(), size: Some(0) };
    assert!(rig.core.submit(rig.clock, RequestId(3), cut).is_none());
    let mut expected = vec![Some(0o644); FILES as usize];
    (expected[3], expected[5]) = (None, None);
    assert_eq!(rig.list(0o644), expected);
}
