//! Where the record of an inode is: found by what the master grants, wherever it was seen last.
//!
//! A core alone; the test plays its master and its kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{CLOCK, attr, content, member};
use meta::{Change, Child, Cookie, CookieKey, Dirent, FileKind, Inode};
use types::{Ino, LockMode, Micros, Name, ResourceId};
use vfs::{Clock, Core, Output, Reply, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, Listing, ToMaster};

const FILE: Ino = Ino(7_000);

/// What the core says to its master, and answers, since the last look.
fn outputs(core: &mut Core) -> (Vec<ToMaster>, Vec<Reply>) {
    let (mut said, mut replies) = (Vec::new(), Vec::new());
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(message) => said.push(message),
            Output::Reply(_, reply) => replies.push(reply),
            Output::Invalidate { job, .. } => core.invalidated(CLOCK, job),
            _ => {}
        }
    }
    (said, replies)
}

fn acquired(said: &[ToMaster]) -> Option<u64> {
    said.iter().find_map(|message| match message {
        ToMaster::Acquire { request, .. } => Some(*request),
        _ => None,
    })
}

fn entry(child: Child) -> Dirent {
    Dirent { name: Name::new(b"file").unwrap(), ino: FILE, child }
}

/// The root with a range of its entries.
fn root(entries: Vec<(Cookie, Dirent)>, complete: bool) -> Vec<Grant> {
    let inode = Box::new(Inode { attr: attr(FileKind::Directory), content: content(0) });
    let data = GrantData::Directory { inode, listing: Listing { after: 0, entries, complete } };
    vec![Grant { resource: ResourceId::dir(Ino::ROOT), mode: LockMode::Pr, data }]
}

/// Goal: a file of a large directory is found by its number though it had keys of its own when it was seen last. Method: it is split out
/// while the node has the directory, and falls back when it no longer has; the first range, which comes with the next grant, is without
/// it, and so would be the same range again.
#[test]
fn an_entry_behind_the_first_range_is_looked_for_there() {
    let mut core = member();
    let itself = |core: &mut Core, clock, id| {
        assert!(core.submit(clock, RequestId(id), Request::Itself { ino: FILE }).is_none());
        acquired(&outputs(core).0).expect("it is asked for")
    };
    let hear = |core: &mut Core, clock, message| {
        core.handle_message(clock, message);
        outputs(core)
    };
    let granted =
        |request, grants, seen| FromMaster::Acquired { request, error: None, grants, seen, glimpse: None };
    let (cookie, _) = Cookie::range_of(CookieKey([9; 16]).hash(b"file"));
    let covered = || {
        let inode = Inode { attr: attr(FileKind::File), content: content(0) };
        (cookie, entry(Child::Covered { inode: Arc::new(inode) }))
    };

    let request = itself(&mut core, CLOCK, 1);
    let (_, replies) = hear(&mut core, CLOCK, granted(request, root(vec![covered()], true), 0));
    assert!(matches!(replies[..], [Reply::Entry(_)]));
    let own = entry(Child::Own { kind: FileKind::File });
    let changes = vec![Change::PutEntry { parent: Ino::ROOT, cookie, entry: own }];
    hear(&mut core, CLOCK, FromMaster::Forget { seq: 1, changes, removed: vec![FILE] });
    let list = vec![(ResourceId::dir(Ino::ROOT), LockMode::Nl)];
    hear(&mut core, CLOCK, FromMaster::Revoke { list, speculative: false });
    let later = Clock { now: CLOCK.now + Micros::from_millis(20), ..CLOCK };
    core.handle_timeout(later);
    outputs(&mut core);

    let request = itself(&mut core, later, 2);
    let (said, replies) = hear(&mut core, later, granted(request, root(Vec::new(), false), 100));
    assert!(replies.is_empty());
    assert!(matches!(said[..], [ToMaster::More { dir: Ino::ROOT, after: 0 }]), "{said:?}");
    let listing = Listing { after: 0, entries: vec![covered()], complete: true };
    let (_, replies) = hear(&mut core, later, FromMaster::Entries { dir: Ino::ROOT, listing, error: None });
    assert!(matches!(replies[..], [Reply::Entry(_)]));
}
