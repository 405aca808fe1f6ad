//! What a node tells its kernel of the links of a file while one of its names goes.
//!
//! The kernel counts down by itself when it has the answer (`links_are_counted_down_twice_…` of crate `fuse`). A core alone;
//! the test plays its master and its kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;

use common::{CLOCK, attr, content, create, member, root_acquired, root_grant};
use meta::ops::RenameMode;
use meta::{Change, Child, Cookie, CookieKey, Dirent, FileKind, InodeAttr, OpReply};
use types::{Ino, LockMode, Name, OpSeq, ResourceId};
use vfs::{Core, Invalidation, Output, Reply, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, ToMaster, Want};

const FILE: Ino = Ino(50);

struct Rig {
    core: Core,
    next: u64,
    replies: BTreeMap<u64, Reply>,
    invalidations: Vec<(u64, Vec<Invalidation>)>,
    shipped: Option<OpSeq>,
    is_shared: bool,
}

impl Rig {
    /// Over a root that others read too, with the names `f` and `g` of one file, or that is empty and held.
    fn new(is_shared: bool) -> Self {
        let (replies, invalidations) = Default::default();
        Self { core: member(), next: 1, replies, invalidations, shipped: None, is_shared }
    }

    /// Returns the number of the request.
    fn ask(&mut self, request: Request) -> u64 {
        let id = self.next;
        self.next += 1;
        if let Some(reply) = self.core.submit(CLOCK, RequestId(id), request) {
            self.replies.insert(id, reply);
        }
        self.run();
        id
    }

    fn hear(&mut self, message: FromMaster) {
        self.core.handle_message(CLOCK, message);
        self.run();
    }

    fn run(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Send(ToMaster::Acquire { request, want, .. }) => {
                    let answer = if self.is_shared { shared(request, want) } else { root_acquired(request) };
                    self.core.handle_message(CLOCK, answer);
                }
                Output::Send(ToMaster::Ship { seq, .. }) => self.shipped = Some(seq),
                Output::Reply(id, reply) => drop(self.replies.insert(id.0, reply)),
                Output::Invalidate { job, list } => self.invalidations.push((job, list)),
                _ => {}
            }
        }
    }

    fn links(&mut self, request: u64) -> Option<u32> {
        match self.replies.get(&request)? {
            Reply::Attr(attr, _) => Some(attr.nlink),
            reply => panic!("{reply:?}"),
        }
    }

    /// The kernel is asked whether it is done with the removal of `name`, and says so.
    fn settle(&mut self, name: &str) {
        let (job, list) = self.invalidations.pop().expect("the kernel is asked");
        let name = Name::new(name.as_bytes()).unwrap();
        assert_eq!(list, [Invalidation::Settled { parent: Ino::ROOT, name }]);
        self.core.invalidated(CLOCK, job);
        self.run();
    }
}

fn unlink(name: &str) -> Request {
    Request::Unlink { parent: Ino::ROOT, name: name.as_bytes().into(), bound: None }
}

fn two_links(nlink: u32) -> InodeAttr {
    InodeAttr { nlink, ..attr(FileKind::File) }
}

fn cookie(name: &str) -> Cookie {
    Cookie::range_of(CookieKey([9; 16]).hash(name.as_bytes())).0
}

fn shared(request: u64, want: Want) -> FromMaster {
    let grants = match want {
        Want::Directory { .. } => {
            let mut grant = root_grant();
            grant.mode = LockMode::Pr;
            if let GrantData::Directory { listing, .. } = &mut grant.data {
                listing.entries.extend(["f", "g"].map(|name| {
                    let child = Child::Own { kind: FileKind::File };
                    (cookie(name), Dirent { name: Name::new(name.as_bytes()).unwrap(), ino: FILE, child })
                }));
                listing.entries.sort_unstable_by_key(|(cookie, _)| *cookie);
            }
            vec![grant]
        }
        _ => vec![
            Grant {
                resource: ResourceId::attr(FILE),
                mode: LockMode::Pr,
                data: GrantData::Attr { attr: two_links(2) },
            },
            Grant {
                resource: ResourceId::file(FILE),
                mode: LockMode::Pr,
                data: GrantData::Content { content: content(0) },
            },
        ],
    };
    FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None }
}

/// Goal: no answer makes the kernel count a link down twice. Method: a name in a shared directory is removed; attributes are
/// asked for after it has taken effect, before its answer and right after it.
#[test]
fn links_are_told_as_before_until_the_removal_is_answered_and_taken() {
    let mut rig = Rig::new(true);
    for name in ["f", "g"] {
        let id = rig.ask(Request::Lookup { parent: Ino::ROOT, name: name.as_bytes().into() });
        assert!(matches!(rig.replies[&id], Reply::Entry(_)), "{:?}", rig.replies[&id]);
    }
    let removal = rig.ask(unlink("g"));
    let seq = rig.shipped.expect("it is shipped");
    let name = Name::new(b"g").unwrap();
    let changes = vec![
        Change::DeleteEntry { parent: Ino::ROOT, cookie: cookie("g"), name },
        Change::PutAttr { ino: FILE, attr: two_links(1) },
    ];
    rig.hear(FromMaster::Changed { seq, changes });
    let during = rig.ask(Request::GetAttr { ino: FILE });
    assert_eq!(rig.links(during), Some(2));

    let result = Ok(OpReply::Removed { ino: FILE, deleted: false });
    rig.hear(FromMaster::Shipped { seq, result, changes: Vec::new(), grants: Vec::new(), seen: 0 });
    assert!(matches!(rig.replies[&removal], Reply::Done));
    let after = rig.ask(Request::GetAttr { ino: FILE });
    assert_eq!(rig.links(after), None, "the kernel may not have the answer to the removal yet");
    rig.settle("g");
    assert_eq!(rig.links(after), Some(1));
    let later = rig.ask(Request::GetAttr { ino: FILE });
    assert_eq!(rig.links(later), Some(1), "at once");
}

/// Goal: as above where the directory is held, and nobody waits who need not. Method: files with two names lose one; then
/// attributes are asked for, or the other name is looked up or linked, for which the kernel has locks that a removal has until
/// it is done.
#[test]
fn who_has_the_locks_of_a_removal_does_not_wait_for_it() {
    let mut rig = Rig::new(false);
    let id = rig.ask(Request::Lookup { parent: Ino::ROOT, name: b"none"[..].into() });
    assert!(matches!(rig.replies[&id], Reply::NoEntry(_)));
    let id = rig.ask(create("f"));
    let Reply::Created(entry, _) = &rig.replies[&id] else { panic!("{:?}", rig.replies[&id]) };
    let ino = entry.attr.ino;
    let link = || Request::Link { ino, parent: Ino::ROOT, name: b"g"[..].into() };
    let lose_one = |rig: &mut Rig| {
        let (linked, removed) = (rig.ask(link()), rig.ask(unlink("g")));
        assert!(matches!(rig.replies[&linked], Reply::Entry(_)), "{:?}", rig.replies[&linked]);
        assert!(matches!(rig.replies[&removed], Reply::Done));
    };
    lose_one(&mut rig);
    let asked = rig.ask(Request::GetAttr { ino });
    assert_eq!(rig.links(asked), None);
    rig.settle("g");
    assert_eq!(rig.links(asked), Some(1));

    lose_one(&mut rig);
    let found = rig.ask(Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() });
    assert!(matches!(&rig.replies[&found], Reply::Entry(entry) if entry.attr.nlink == 1));
    // The second of these links what has just lost a name.
    lose_one(&mut rig);
    lose_one(&mut rig);
    // Who has removed it asks for the next thing; who removed another one does not show that.
    let removal = rig.core.take_removal().expect("one is answered");
    assert_eq!((removal.0, rig.core.take_removal()), (ino, None));
    rig.core.removal_taken_in(removal);
    let asked = rig.ask(Request::GetAttr { ino });
    assert_eq!(rig.links(asked), Some(1));
    assert!(rig.invalidations.is_empty(), "{:?}", rig.invalidations);
}

/// Goal: a rename that takes no link from anybody changes no count. Method: two names of a file are exchanged, or one is
/// renamed over the other; the count is asked for meanwhile.
#[test]
fn renames_that_remove_nothing_leave_the_count_alone() {
    for mode in [RenameMode::Exchange, RenameMode::Replace] {
        let mut rig = Rig::new(true);
        for name in ["f", "g"] {
            rig.ask(Request::Lookup { parent: Ino::ROOT, name: name.as_bytes().into() });
        }
        let (parent, new_parent) = (Ino::ROOT, Ino::ROOT);
        let (name, new_name) = (b"f"[..].into(), b"g"[..].into());
        rig.ask(Request::Rename { parent, name, new_parent, new_name, mode, bound: None, whiteout: None });
        let seq = rig.shipped.expect("it is shipped");
        let changes = vec![Change::PutAttr { ino: FILE, attr: two_links(2) }];
        rig.hear(FromMaster::Changed { seq, changes });
        let during = rig.ask(Request::GetAttr { ino: FILE });
        assert_eq!(rig.links(during), Some(2), "{mode:?}");
    }
}
