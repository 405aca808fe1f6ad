use chunk::{Extent, ExtentMap, Run};
use meta::{Body, Change, FileKind, FsError, Op, OpReply};
use types::{Ino, NodeId, ResourceId, SegmentId};

use crate::support::*;

const ROOT: Ino = Ino::ROOT;

#[test]
fn the_last_name_takes_the_inode_along() {
    let volume = Volume::new().with(file(1, "a", 10));
    let expected = vec![
        volume.delete_entry(ROOT, "a"),
        Change::DeleteInode { ino: Ino(10), parent: ROOT, kind: FileKind::File },
        usage(0, -1),
        volume.touched(ROOT, 2),
    ];
    assert_eq!(volume.changes(&unlink(1, "a")), expected);
    let reply = OpReply::Removed { ino: Ino(10), deleted: true };
    assert_eq!(volume.plan(&unlink(1, "a")).unwrap().reply, reply);
    assert_eq!(volume.ex_rights(&unlink(1, "a")), [ResourceId::dir(ROOT)]);
}

#[test]
fn an_uncovered_inode_needs_its_own_rights() {
    let volume = Volume::new().with(file(1, "a", 10)).with(split(10));
    let expected = [ResourceId::dir(ROOT), ResourceId::attr(Ino(10)), ResourceId::file(Ino(10))];
    assert_eq!(volume.ex_rights(&unlink(1, "a")), expected);
}

#[test]
fn an_open_inode_becomes_an_orphan_with_its_holders() {
    let mut volume = Volume::new().with(file(1, "a", 10));
    volume.holders = vec![NodeId(9), NODE, NodeId(2)];
    let op = Op::Unlink { parent: ROOT, name: name("a"), open_here: true, bound: None };
    let inode = volume.inode(Ino(10));
    let mut orphan = stamped(inode.clone()).attr;
    (orphan.nlink, orphan.parent) = (0, Ino(0));
    let expected = vec![
        volume.delete_entry(ROOT, "a"),
        Change::PutAttr { ino: Ino(10), attr: orphan },
        Change::PutContent { ino: Ino(10), content: inode.content },
        usage(0, -1),
        Change::PutOrphan { ino: Ino(10), holders: vec![NodeId(2), NODE, NodeId(9)] },
        volume.touched(ROOT, 2),
    ];
    assert_eq!(volume.changes(&op), expected);
    assert_eq!(volume.plan(&op).unwrap().reply, OpReply::Removed { ino: Ino(10), deleted: false });
}

#[test]
fn an_orphan_of_an_uncovered_inode_leaves_its_content_and_its_writer_alone() {
    let volume = Volume::new().with(file(1, "a", 10)).with(split(10));
    let op = Op::Unlink { parent: ROOT, name: name("a"), open_here: true, bound: None };
    assert_eq!(volume.ex_rights(&op), [ResourceId::dir(ROOT), ResourceId::attr(Ino(10))]);
}

#[test]
fn one_of_several_names_only_counts() {
    let volume = Volume::new().with(file(1, "a", 10)).with(link(10, 1, "b"));
    let mut after = stamped(volume.inode(Ino(10))).attr;
    after.nlink = 1;
    let expected = vec![
        volume.delete_entry(ROOT, "a"),
        Change::PutAttr { ino: Ino(10), attr: after },
        volume.touched(ROOT, 2),
    ];
    assert_eq!(volume.changes(&unlink(1, "a")), expected);
}

#[test]
fn extents_give_their_space_back_once_for_each_segment() {
    let mut volume = Volume::new().with(file(1, "a", 10)).with(split(10));
    let mut content = volume.inode(Ino(10)).content;
    let mut map = ExtentMap::new();
    for (offset, segment) in [(0, 5), (8192, 6), (16384, 5)] {
        let run = Run::of_data(SegmentId(segment), offset, &[&[1; 4096]]).unwrap();
        assert!(map.insert(Extent::new(offset, run).unwrap()).is_empty());
    }
    content.body = Body::Extents { map };
    let live = |segment, bytes| Change::AddLive { segment: SegmentId(segment), bytes };
    let put = Change::PutContent { ino: Ino(10), content };
    volume.store.apply(&[put, live(5, 8192), live(6, 4096)]);
    let expected = vec![
        volume.delete_entry(ROOT, "a"),
        Change::DeleteInode { ino: Ino(10), parent: Ino(0), kind: FileKind::File },
        live(5, -8192),
        live(6, -4096),
        volume.touched(ROOT, 2),
    ];
    assert_eq!(volume.changes(&unlink(1, "a")), expected);
}

#[test]
fn pages_of_extents_go_with_the_inode() {
    let mut volume = Volume::new().with(file(1, "a", 10)).with(split(10));
    let mut content = volume.inode(Ino(10)).content;
    content.body = Body::Paged { mapped_bytes: 0 };
    volume.store.apply(&[Change::PutContent { ino: Ino(10), content }]);
    let pages = Change::DeleteExtentPages { ino: Ino(10), parent: Ino(0), from_page: 0 };
    assert_eq!(volume.changes(&unlink(1, "a"))[2], pages);
}

#[test]
fn refusals() {
    let volume = Volume::new().with(mkdir(1, "d", 10)).with(file(1, "a", 11));
    let table = [
        (unlink(1, "d"), FsError::IsDirectory),
        (unlink(1, "x"), FsError::NotFound),
        (unlink(11, "x"), FsError::NotDirectory),
        (unlink(77, "x"), FsError::NotFound),
    ];
    for (op, error) in table {
        assert_eq!(volume.plan(&op), Err(error), "{op:?}");
    }
}
