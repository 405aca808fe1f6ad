use meta::{Change, FileKind, FsError, OpReply};
use types::{Ino, ResourceId};

use crate::support::*;

const ROOT: Ino = Ino::ROOT;

#[test]
fn a_second_link_moves_the_record_out_of_its_entry() {
    let volume = Volume::new().with(mkdir(1, "d", 10)).with(file(1, "a", 11));
    let op = link(11, 10, "b");
    let before = volume.inode(Ino(11));
    let mut after = stamped(before.clone()).attr;
    (after.nlink, after.parent) = (2, Ino(0));
    let expected = vec![
        volume.put_own(ROOT, "a", Ino(11), FileKind::File),
        Change::PutAttr { ino: Ino(11), attr: after },
        Change::PutContent { ino: Ino(11), content: before.content },
        usage(0, -1),
        volume.put_own(Ino(10), "b", Ino(11), FileKind::File),
        volume.touched(Ino(10), 2),
    ];
    assert_eq!(volume.changes(&op), expected);
    assert_eq!(volume.plan(&op).unwrap().reply, OpReply::Inode { ino: Ino(11) });
    assert_eq!(volume.ex_rights(&op), [ResourceId::dir(ROOT), ResourceId::dir(Ino(10))]);
}

#[test]
fn a_third_link_changes_the_count_alone() {
    let volume = Volume::new().with(file(1, "a", 11)).with(link(11, 1, "b"));
    let mut after = stamped(volume.inode(Ino(11))).attr;
    after.nlink = 3;
    let expected = vec![
        Change::PutAttr { ino: Ino(11), attr: after },
        volume.put_own(ROOT, "c", Ino(11), FileKind::File),
        volume.touched(ROOT, 2),
    ];
    assert_eq!(volume.changes(&link(11, 1, "c")), expected);
    assert_eq!(volume.ex_rights(&link(11, 1, "c")), [ResourceId::dir(ROOT), ResourceId::attr(Ino(11))]);
}

#[test]
fn refusals() {
    let mut volume = Volume::new().with(mkdir(1, "d", 10)).with(file(1, "a", 11)).with(split(11));
    let mut full = volume.inode(Ino(11)).attr;
    (full.nlink, full.parent) = (65_000, Ino(0));
    volume.store.apply(&[Change::PutAttr { ino: Ino(11), attr: full }]);
    let table = [
        (link(10, 1, "b"), FsError::NotPermitted),
        (link(10, 1, "a"), FsError::Exists),
        (link(11, 1, "b"), FsError::TooManyLinks),
        (link(77, 1, "b"), FsError::NotFound),
        (link(11, 11, "b"), FsError::NotDirectory),
    ];
    for (op, error) in table {
        assert_eq!(volume.plan(&op), Err(error), "{op:?}");
    }
}
