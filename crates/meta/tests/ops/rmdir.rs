use meta::{Change, FileKind, FsError, Op, OpReply};
use types::{Ino, NodeId, ResourceId};

use crate::support::*;

fn rmdir(text: &str) -> Op {
    Op::Rmdir { parent: Ino::ROOT, name: name(text), meant: Ino(0), bound: None }
}

#[test]
fn an_empty_directory_goes_and_its_parent_counts_one_less() {
    let volume = Volume::new().with(mkdir(1, "d", 10));
    let expected = vec![
        volume.delete_entry(Ino::ROOT, "d"),
        Change::DeleteInode { ino: Ino(10), parent: Ino(0), kind: FileKind::Directory },
        usage(0, -1),
        volume.touched(Ino::ROOT, 2),
    ];
    assert_eq!(volume.changes(&rmdir("d")), expected);
    assert_eq!(volume.plan(&rmdir("d")).unwrap().reply, OpReply::Removed { ino: Ino(10), deleted: true });
    assert_eq!(volume.ex_rights(&rmdir("d")), [ResourceId::dir(Ino::ROOT), ResourceId::dir(Ino(10))]);
}

#[test]
fn an_open_directory_stays_as_an_orphan_that_takes_no_names() {
    let mut volume = Volume::new().with(mkdir(1, "d", 10));
    volume.holders = vec![NodeId(3)];
    let mut inode = stamped(volume.inode(Ino(10)));
    inode.attr.nlink = 0;
    let expected = vec![
        volume.delete_entry(Ino::ROOT, "d"),
        Change::PutDirectory { ino: Ino(10), inode: Box::new(inode) },
        Change::PutOrphan { ino: Ino(10), holders: vec![NodeId(3)] },
        volume.touched(Ino::ROOT, 2),
    ];
    assert_eq!(volume.changes(&rmdir("d")), expected);
    volume.change(&rmdir("d"));
    assert_eq!(volume.plan(&file(10, "a", 11)), Err(FsError::NotFound));
}

#[test]
fn refusals() {
    let volume = Volume::new().with(mkdir(1, "d", 10)).with(file(10, "a", 11)).with(file(1, "f", 12));
    for (text, error) in [("d", FsError::NotEmpty), ("f", FsError::NotDirectory), ("x", FsError::NotFound)] {
        assert_eq!(volume.plan(&rmdir(text)), Err(error));
    }
}

/// The kernel of who asks has directory 11 under this name, which another node has moved since.
#[test]
fn another_directory_than_the_one_that_is_meant_stays() {
    let mut volume = Volume::new().with(mkdir(1, "d", 10)).with(mkdir(1, "aside", 11));
    let meant = |text, ino| Op::Rmdir { parent: Ino::ROOT, name: name(text), meant: Ino(ino), bound: None };
    assert_eq!(volume.plan(&meant("d", 11)), Err(FsError::Stale));
    assert_eq!(volume.plan(&meant("x", 11)), Err(FsError::NotFound), "nothing is removed");
    assert_eq!(volume.changes(&meant("d", 10)), volume.changes(&rmdir("d")));
    assert_eq!(volume.changes(&meant("d", 99)), volume.changes(&rmdir("d")), "that is gone");
    volume.holders = vec![NodeId(3)];
    volume.change(&rmdir("aside"));
    volume.holders.clear();
    assert_eq!(volume.changes(&meant("d", 11)), volume.changes(&rmdir("d")), "gone but for who has it open");
}
