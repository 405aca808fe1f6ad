use meta::{Change, FileKind, FsError, Op, Placement};
use types::{Ino, ResourceId};

use crate::support::*;

const ROOT: Ino = Ino::ROOT;

fn merge(ino: u64) -> Op {
    Op::Merge { ino: Ino(ino) }
}

#[test]
fn split_moves_the_record_out_and_merge_moves_it_back() {
    let mut volume = Volume::new().with(file(1, "a", 10));
    let original = volume.store.clone();
    let inode = volume.inode(Ino(10));
    let expected = vec![
        volume.put_own(ROOT, "a", Ino(10), FileKind::File),
        Change::PutAttr { ino: Ino(10), attr: inode.attr.clone() },
        Change::PutContent { ino: Ino(10), content: inode.content.clone() },
        usage(0, -1),
    ];
    assert_eq!(volume.changes(&split(10)), expected);
    volume.change(&split(10));
    assert_eq!(volume.placement(Ino(10)), Placement::Own {});
    assert!(volume.changes(&split(10)).is_empty());
    let expected = vec![
        volume.put_covered(ROOT, "a", Ino(10), inode),
        volume.put_placement(ROOT, "a", Ino(10)),
        Change::DeleteContent { ino: Ino(10) },
        usage(0, 1),
    ];
    assert_eq!(volume.changes(&merge(10)), expected);
    let rights = [ResourceId::dir(ROOT), ResourceId::attr(Ino(10)), ResourceId::file(Ino(10))];
    assert_eq!(volume.ex_rights(&merge(10)), rights);
    volume.change(&merge(10));
    assert_eq!(volume.store, original);
}

#[test]
fn what_cannot_be_covered_stays() {
    let mut volume = Volume::new().with(mkdir(1, "d", 10)).with(file(1, "a", 11)).with(link(11, 1, "b"));
    for op in [merge(11), merge(10), split(10), split(11)] {
        assert!(volume.changes(&op).is_empty(), "{op:?}");
    }
    volume.change(&unlink(1, "a"));
    assert!(volume.changes(&merge(11)).is_empty(), "the directory of the last name is not known");
    volume.change(&Op::Rename {
        parent: ROOT,
        name: name("b"),
        new_parent: Ino(10),
        new_name: name("b"),
        mode: meta::ops::RenameMode::Replace,
        target_open_here: false,
        meant: Ino(0),
        bound: None,
        whiteout: None,
    });
    assert_eq!(volume.changes(&merge(11)).len(), 4, "a rename makes it known");
    assert_eq!(volume.plan(&merge(77)), Err(FsError::NotFound));
}
