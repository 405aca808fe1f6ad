//! What is taken back of a directory whose name the kernel was told a moment ago.
//!
//! A core alone; the test plays its master and its kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, attr, content, member};
use meta::{Child, Cookie, CookieKey, Dirent, FileKind, Inode};
use types::{Ino, LockMode, Name, ResourceId};
use vfs::{Core, Invalidation, Output, Reply, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, Listing, ToMaster, Want};

const DIR: Ino = Ino(7_000);

fn grant(ino: Ino) -> Grant {
    let name = Name::new(b"d").unwrap();
    let (cookie, _) = Cookie::range_of(CookieKey([9; 16]).hash(b"d"));
    let entry = Dirent { name, ino: DIR, child: Child::Own { kind: FileKind::Directory } };
    let entries = if ino == DIR { Vec::new() } else { vec![(cookie, entry)] };
    let inode = Box::new(Inode { attr: attr(FileKind::Directory), content: content(0) });
    let listing = Listing { after: 0, entries, complete: true };
    let data = GrantData::Directory { inode, listing };
    Grant { resource: ResourceId::dir(ino), mode: LockMode::Pr, data }
}

fn look(core: &mut Core, id: u64, parent: Ino, name: &[u8]) -> Reply {
    let mut reply = core.submit(CLOCK, RequestId(id), Request::Lookup { parent, name: name.into() });
    run(core, |told| reply = Some(told));
    reply.unwrap()
}

/// Grants what is asked for. Returns what is taken back.
fn run(core: &mut Core, mut hear: impl FnMut(Reply)) -> Vec<Invalidation> {
    let mut taken_back = Vec::new();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { ino }, .. }) => {
                let grants = vec![grant(ino)];
                let answer = FromMaster::Acquired { request, error: None, grants, seen: 9, glimpse: None };
                core.handle_message(CLOCK, answer);
            }
            Output::Invalidate { job, list } => {
                taken_back.extend(list);
                core.invalidated(CLOCK, job);
            }
            Output::Reply(_, reply) => hear(reply),
            _ => {}
        }
    }
    taken_back
}

/// Goal: two nodes that work in one directory do not have each other look it up for every change. Method: it is given back right after
/// the kernel was told its name, which goes with it as the answer may be on its way; and after something was asked for within it,
/// which the kernel can only do when it has the directory.
#[test]
fn the_name_of_a_directory_that_is_used_stays() {
    let seat = Invalidation::Name { parent: Ino::ROOT, name: Name::new(b"d").unwrap() };
    let itself = Invalidation::Attr { ino: DIR };
    for is_used in [false, true] {
        let mut core = member();
        assert!(matches!(look(&mut core, 1, Ino::ROOT, b"d"), Reply::Entry(_)));
        if is_used {
            assert!(matches!(look(&mut core, 2, DIR, b"absent"), Reply::NoEntry(_)));
        }
        let list = vec![(ResourceId::dir(DIR), LockMode::Nl)];
        core.handle_message(CLOCK, FromMaster::Revoke { list, speculative: false });
        let later = vfs::Clock { now: CLOCK.now + types::Micros(20_000), ..CLOCK };
        core.handle_timeout(later);
        let taken_back = run(&mut core, |_| ());
        assert!(taken_back.contains(&itself), "{taken_back:?}");
        assert_eq!(taken_back.contains(&seat), !is_used, "{taken_back:?}");
    }
}
