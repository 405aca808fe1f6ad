//! Orphans that nobody has open any more go bit by bit.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use chunk::{Extent, ExtentMap, Run};
use common::{A, Rig, make};
use meta::{Body, Change, Content, FileKind, Key, Op};
use types::{BatchSeq, Ino, LockMode, Micros, NodeId, OpSeq, ResourceId, SegmentId, Timespec};
use wire::ToMaster;

const F: Ino = Ino(50);
const PAGES: u64 = 40_000;
/// What the master deletes at once.
const PART: u64 = 16 << 10;

/// Goal: the master goes on with other work while a file of many pages is deleted, and a death in between leaves a file that is whole as far as it goes.
/// Method: an orphan of 40,000 pages is closed; the master is called again and again, and another takes over in between.
#[test]
fn a_large_orphan_is_deleted_in_parts() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    let Op::Create { parent, new, .. } = make(F, b"-", FileKind::File, b"") else { unreachable!() };
    let (now, op) = (Timespec::default(), Op::CreateOrphan { parent, new });
    rig.tell(A, ToMaster::Ship { seq: OpSeq(1), acked: OpSeq(0), now, op, spent: Vec::new() });
    let segment = rig.reserve(A, 1);
    let page = |page: u64| {
        let crcs = [1u32];
        let run = Run::new(segment, 64, 4096, &crcs).unwrap();
        let mut map = ExtentMap::new();
        let _ = map.insert(Extent::new(page * Body::PAGE_SPAN, run).unwrap());
        Change::PutExtentPage { ino: F, parent: Ino(0), page, map }
    };
    let mut seq = 0;
    let mut batch = |rig: &mut Rig, changes: Vec<Change>| {
        seq += 1;
        let (seq, changes) = (BatchSeq(seq), changes.into());
        rig.tell(A, ToMaster::Batch { seq, kept: Vec::new(), changes, sync: false, spent: Vec::new() });
    };
    for first in (0..PAGES).step_by(5_000) {
        batch(&mut rig, (first..first + 5_000).map(page).collect());
    }
    let time = Timespec::default();
    let body = Body::Paged { mapped_bytes: PAGES * 4096 };
    let content = Content { size: PAGES * Body::PAGE_SPAN, mtime: time, atime: time, ctime: time, body };
    let live = Change::AddLive { segment, bytes: (PAGES * 4096) as i64 };
    batch(&mut rig, vec![Change::PutContent { ino: F, content }, live]);
    assert_eq!(left(&rig), (PAGES, Some(PAGES * 4096)));

    let list = [ResourceId::attr(F), ResourceId::file(F)].map(|resource| (resource, LockMode::Nl));
    rig.tell(A, ToMaster::Release { list: list.into(), open: Vec::new() });
    rig.tell(A, ToMaster::Closed { ino: F });
    assert_eq!(left(&rig), (PAGES - PART, Some((PAGES - PART) * 4096)));
    assert_eq!(live_bytes(&rig, segment), (PAGES - PART) * 4096);
    assert!(rig.master.poll_timeout() <= rig.now, "it goes on at once");
    let key = Key::Orphan(F);
    let record: meta::OrphanRecord = meta::value_decode(&key.to_vec(), &rig.value(key).unwrap()).unwrap();
    assert_eq!(record.holders, [], "nobody is to open what is left");

    rig.remaster();
    rig.join(A, NodeId(1));
    let part = wire::ReassertPart::Locks { list: Vec::new() };
    rig.tell(A, ToMaster::Reassert { part, done: true });
    assert_eq!(left(&rig), (PAGES - 2 * PART, Some((PAGES - 2 * PART) * 4096)));
    rig.now = rig.now + Micros(1);
    rig.master.handle_timeout(rig.clock());
    rig.outputs();
    assert_eq!(left(&rig), (0, None));
    assert_eq!((rig.value(Key::Orphan(F)), rig.value(Key::Inode(F))), (None, None));
    assert_eq!(live_bytes(&rig, segment), 0);
    assert!(rig.master.poll_timeout() > rig.now);
}

/// Pages of the file, and what its record says that they map.
fn left(rig: &Rig) -> (u64, Option<u64>) {
    let (start, end) = Key::extent_pages(F);
    let mut pages = 0;
    kv::scan_all(&*rig.engine, kv::KeyRange::new(start, end), |_| pages += 1).unwrap();
    let key = Key::Content(F);
    let content = rig.value(key).map(|value| meta::value_decode::<Content>(&key.to_vec(), &value).unwrap());
    (pages, content.map(|content| content.body.stored_bytes()))
}

fn live_bytes(rig: &Rig, segment: SegmentId) -> u64 {
    rig.record(segment).map_or(0, |record| record.live_bytes)
}
