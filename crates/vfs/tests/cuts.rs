//! Files of very many pages of extents, which are cut.
//!
//! A core alone; the test plays its master.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::{Extent, ExtentMap, Run};
use common::{CLOCK, attr, content, member};
use meta::ops::AttrSet;
use meta::{Body, Change, Child, Content, Cookie, CookieKey, Dirent, FileKind, Inode};
use types::{Ino, LockMode, Name, ResourceId, SegmentId};
use vfs::{Core, Output, Reply, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, Listing, ToMaster};

const FILE: Ino = Ino(7_000);
/// Of which a batch would not hold the changes.
const PAGES: u64 = 300_000;

fn page_of_extents(page: u64) -> (u64, ExtentMap) {
    let mut map = ExtentMap::new();
    let run = Run::new(SegmentId(1), page * 8192, 4096, &[7]).unwrap();
    drop(map.insert(Extent::new(page * Body::PAGE_SPAN, run).unwrap()));
    (page, map)
}

fn root_with_file() -> Grant {
    let (cookie, _) = Cookie::range_of(CookieKey([9; 16]).hash(b"file"));
    let body = Body::Paged { mapped_bytes: PAGES * 4096 };
    let large = Content { size: PAGES * Body::PAGE_SPAN, body, ..content(0) };
    let child = Child::Covered { inode: Arc::new(Inode { attr: attr(FileKind::File), content: large }) };
    let entry = Dirent { name: Name::new(b"file").unwrap(), ino: FILE, child };
    let inode = Box::new(Inode { attr: attr(FileKind::Directory), content: content(0) });
    let listing = Listing { after: 0, entries: vec![(cookie, entry)], complete: true };
    let data = GrantData::Directory { inode, listing };
    Grant { resource: ResourceId::dir(Ino::ROOT), mode: LockMode::Ex, data }
}

/// Answers what the core asks until it asks no more. Returns its batches, as the size of the file and how many pages each takes away, and
/// its last answer.
fn run(core: &mut Core) -> (Vec<(u64, usize)>, Option<Reply>) {
    let (mut batches, mut parts, mut last) = (Vec::new(), Vec::new(), None);
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, .. }) => {
                let grants = vec![root_with_file()];
                let message = FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None };
                core.handle_message(CLOCK, message);
            }
            Output::Send(ToMaster::Fetch { request, .. }) => core.handle_message(
                CLOCK,
                FromMaster::Fetched {
                    request,
                    xattrs: Vec::new(),
                    pages: (0..PAGES).map(page_of_extents).collect(),
                    pages_to: u64::MAX,
                    inodes: 0,
                    error: None,
                },
            ),
            Output::Send(ToMaster::Batch { changes, seq, .. }) => {
                parts.extend(changes.iter().cloned());
                let gone = parts.iter().filter(|change| match change {
                    Change::PutExtentPage { map, .. } => map.is_empty(),
                    _ => false,
                });
                let size = parts.iter().filter_map(|change| match change {
                    Change::PutEntry { entry, .. } => entry.covered().map(|inode| inode.content.size),
                    _ => None,
                });
                batches.extend(size.last().map(|size| (size, gone.count())));
                parts.clear();
                core.handle_message(CLOCK, FromMaster::Durable { seq });
            }
            Output::Send(ToMaster::BatchPart { changes, .. }) => parts.extend(changes),
            Output::Reply(_, reply) => last = Some(reply),
            Output::Invalidate { job, .. } => core.invalidated(CLOCK, job),
            Output::Gather { job } => common::gather(core, CLOCK, job),
            Output::Sync { job, plan } => {
                let outcome = plan.run(&chunk::MemStore::new());
                common::end_sync(core, CLOCK, job, outcome);
            }
            _ => {}
        }
    }
    (batches, last)
}

/// Goal: a file of hundreds of gigabytes can be cut to nothing. Method: what is logged of the cut is counted, batch by batch.
#[test]
fn a_cut_of_many_pages_is_logged_in_steps() {
    let mut core = member();
    assert!(core.submit(CLOCK, RequestId(1), Request::Itself { ino: FILE }).is_none());
    run(&mut core);
    let cut = Request::SetAttr { ino: FILE, set: AttrSet::default(), size: Some(0) };
    let done = core.submit(CLOCK, RequestId(2), cut);
    let (mut batches, reply) = run(&mut core);
    let reply = done.or(reply);
    assert!(matches!(reply, Some(Reply::Attr(attr, _)) if attr.size == 0), "{reply:?}");
    core.submit(CLOCK, RequestId(3), Request::Fsync { ino: FILE });
    batches.extend(run(&mut core).0);
    assert_eq!(batches.iter().map(|(_, gone)| gone).sum::<usize>(), PAGES as usize);
    assert!(batches.len() > 2 && batches.iter().all(|(_, gone)| *gone <= 128 << 10), "{batches:?}");
    assert!(batches.is_sorted_by(|(one, _), (next, _)| one > next), "{batches:?}");
}
