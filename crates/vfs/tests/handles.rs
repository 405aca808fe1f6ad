//! File handles: inodes that are looked up by number alone.
//!
//! A core alone; the test plays its master.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{CLOCK, attr, content, member, root_grant};
use meta::{Child, Cookie, Dirent, FileKind, FsError, Inode};
use obs::{CacheKind, Metrics};
use types::Ino;
use vfs::{Core, Interrupt, Keep, Output, Reply, Request, RequestId};
use wire::{FromMaster, GrantData, ToMaster};

const FILE: Ino = Ino(50);

fn outcome(core: &mut Core) -> (Vec<u64>, Vec<(RequestId, Reply)>) {
    let (mut asked, mut replies) = (Vec::new(), Vec::new());
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, .. }) => asked.push(request),
            Output::Reply(id, reply) => replies.push((id, reply)),
            _ => {}
        }
    }
    (asked, replies)
}

/// Asks a core that has never heard of it; returns it and the number of what it asked its master.
fn look_up() -> (Core, u64) {
    let mut core = member();
    outcome(&mut core);
    assert!(core.submit(CLOCK, RequestId(1), Request::Itself { ino: FILE }).is_none());
    let (asked, _) = outcome(&mut core);
    let [request] = asked[..] else { panic!("{asked:?}") };
    (core, request)
}

#[test]
fn an_inode_is_found_in_the_directory_that_covers_it() {
    let (mut core, request) = look_up();
    let inode = Box::new(Inode { attr: attr(FileKind::File), content: content(7) });
    let mut grant = root_grant();
    if let GrantData::Directory { listing, .. } = &mut grant.data {
        let dirent = Dirent {
            name: types::Name::new(b"f").unwrap(),
            ino: FILE,
            child: Child::Covered { inode: inode.into() },
        };
        listing.entries.push((Cookie(3), dirent));
    }
    let grants = vec![grant];
    core.handle_message(CLOCK, FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None });
    let (asked, replies) = outcome(&mut core);
    assert!(asked.is_empty(), "it asks again and again: {asked:?}");
    let [(RequestId(1), Reply::Entry(entry))] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!((entry.attr.ino, entry.attr.size), (FILE, 7));
    // What is taken back before the kernel has made an inode of the answer would be kept.
    assert_eq!(entry.keep_attr, Keep::No);
}

#[test]
fn one_that_is_gone_is_stale() {
    let (mut core, request) = look_up();
    let error = Some(FsError::Stale);
    let grants = Vec::new();
    core.handle_message(CLOCK, FromMaster::Acquired { request, error, grants, seen: 0, glimpse: None });
    let (asked, replies) = outcome(&mut core);
    assert!(asked.is_empty(), "{asked:?}");
    assert!(matches!(replies[..], [(RequestId(1), Reply::Error(FsError::Stale))]), "{replies:?}");
}

/// Goal: whoever asks for many that are gone fills no table. Method: refused, and killed while it waits.
#[test]
fn nothing_is_kept_of_one_that_is_not_found() {
    let metrics = Arc::new(Metrics::new());
    let mut core = common::member_counted(&metrics);
    let known = |core: &mut Core| {
        // Sizes are noted with each call.
        core.handle_timeout(CLOCK);
        metrics.cache_current.at(CacheKind::Inode).get()
    };
    let before = known(&mut core);
    for ino in 50..60 {
        core.submit(CLOCK, RequestId(ino), Request::Itself { ino: Ino(ino) });
        let (asked, _) = outcome(&mut core);
        if ino % 2 == 0 {
            core.interrupt(CLOCK, RequestId(ino), Interrupt::Death);
        }
        let (error, grants) = (Some(FsError::Stale), Vec::new());
        core.handle_message(
            CLOCK,
            FromMaster::Acquired { request: asked[0], error, grants, seen: 0, glimpse: None },
        );
        assert_eq!(outcome(&mut core).1.len(), 1);
    }
    assert_eq!(known(&mut core), before);
}
