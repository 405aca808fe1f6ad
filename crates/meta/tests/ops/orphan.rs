use meta::{Body, Change, FileKind, FsError, Op, OpReply};
use types::{Ino, NodeId};

use crate::support::*;

fn tmpfile(ino: u64) -> Op {
    Op::CreateOrphan { parent: Ino::ROOT, new: new_inode(ino, FileKind::File, 0o666) }
}

#[test]
fn a_file_without_a_name_is_an_orphan_from_birth() {
    let expected = vec![
        Change::PutAttr { ino: Ino(10), attr: attr(FileKind::File, 0o644, 0, 1) },
        Change::PutContent { ino: Ino(10), content: content(Body::Empty {}) },
        Change::PutOrphan { ino: Ino(10), holders: vec![NODE] },
    ];
    assert_eq!(Volume::new().changes(&tmpfile(10)), expected);
    let dir = Op::CreateOrphan { parent: Ino::ROOT, new: new_inode(10, FileKind::Directory, 0o777) };
    assert_eq!(Volume::new().plan(&dir), Err(FsError::Invalid));
}

#[test]
fn it_may_get_its_first_name_and_an_unlinked_one_may_not() {
    let mut volume = Volume::new().with(tmpfile(10)).with(file(1, "a", 11));
    let mut named = stamped(volume.inode(Ino(10))).attr;
    named.nlink = 1;
    let expected = vec![
        Change::DeleteOrphan { ino: Ino(10) },
        Change::PutAttr { ino: Ino(10), attr: named },
        volume.put_own(Ino::ROOT, "b", Ino(10), FileKind::File),
        volume.touched(Ino::ROOT, 2),
    ];
    assert_eq!(volume.changes(&link(10, 1, "b")), expected);
    volume.holders = vec![NodeId(2)];
    volume.change(&unlink(1, "a"));
    assert_eq!(volume.plan(&link(11, 1, "b")), Err(FsError::NotFound));
}

#[test]
fn reclaim_deletes_what_nobody_has_open() {
    let mut volume = Volume::new().with(tmpfile(10)).with(file(1, "a", 11));
    let reclaim = |ino| Op::Reclaim { ino: Ino(ino) };
    let expected = vec![
        Change::DeleteInode { ino: Ino(10), parent: Ino(0), kind: FileKind::File },
        Change::DeleteOrphan { ino: Ino(10) },
    ];
    assert_eq!(volume.changes(&reclaim(10)), expected);
    for (ino, what) in [(11, "has a name"), (77, "never was")] {
        let plan = volume.plan(&reclaim(ino)).unwrap();
        assert!(plan.changes.is_empty(), "{what}");
        assert_eq!(plan.reply, OpReply::Removed { ino: Ino(ino), deleted: false });
    }
    volume.holders = vec![NodeId(2)];
    assert!(volume.changes(&reclaim(10)).is_empty());
}

/// Only damage leaves it so, and what it would delete can be seen.
#[test]
fn reclaim_spares_what_has_a_name_or_entries() {
    let mut volume = Volume::new().with(file(1, "a", 11)).with(mkdir(1, "d", 12)).with(file(12, "b", 13));
    let mut covered = volume.inode(Ino(11));
    covered.attr.nlink = 0;
    let mut directory = volume.inode(Ino(12));
    directory.attr.nlink = 0;
    let damaged = [
        volume.put_covered(Ino::ROOT, "a", Ino(11), covered),
        Change::PutDirectory { ino: Ino(12), inode: Box::new(directory) },
        volume.delete_entry(Ino::ROOT, "d"),
    ];
    volume.store.apply(&damaged);
    for ino in [11, 12] {
        assert_eq!(volume.changes(&Op::Reclaim { ino: Ino(ino) }), []);
    }
}
