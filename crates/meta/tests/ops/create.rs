use meta::ops::NewInode;
use meta::{Body, Change, FileKind, FsError, Inode, Op, OpReply, Xattrs};
use types::{Ino, ResourceId};

use crate::support::*;

const ROOT: Ino = Ino::ROOT;

#[test]
fn a_file_is_born_in_its_entry() {
    let volume = Volume::new();
    let op = file(1, "a", 10);
    let inode = Inode { attr: attr(FileKind::File, 0o644, 1, 1), content: content(Body::Empty {}) };
    let expected = vec![
        volume.put_covered(ROOT, "a", Ino(10), inode),
        volume.put_placement(ROOT, "a", Ino(10)),
        volume.touched(ROOT, 2),
        usage(0, 1),
    ];
    assert_eq!(volume.changes(&op), expected);
    assert_eq!(volume.plan(&op).unwrap().reply, OpReply::Inode { ino: Ino(10) });
    assert_eq!(volume.ex_rights(&op), [ResourceId::dir(ROOT)]);
}

#[test]
fn a_directory_has_its_own_key_and_counts_in_its_parent() {
    let volume = Volume::new();
    let inode = Inode { attr: attr(FileKind::Directory, 0o755, 2, 1), content: content(Body::Empty {}) };
    let expected = vec![
        volume.put_own(ROOT, "d", Ino(10), FileKind::Directory),
        Change::PutDirectory { ino: Ino(10), inode: Box::new(inode) },
        volume.touched(ROOT, 3),
        usage(0, 1),
    ];
    assert_eq!(volume.changes(&mkdir(1, "d", 10)), expected);
}

#[test]
fn a_split_file_is_born_with_its_own_keys_and_nothing_else_is() {
    let volume = Volume::new();
    let make =
        |kind| Op::Create { parent: ROOT, name: name("a"), new: new_inode(10, kind, 0o600), split: true };
    let expected = vec![
        volume.put_own(ROOT, "a", Ino(10), FileKind::File),
        Change::PutAttr { ino: Ino(10), attr: attr(FileKind::File, 0o600, 1, 1) },
        Change::PutContent { ino: Ino(10), content: content(Body::Empty {}) },
        volume.touched(ROOT, 2),
    ];
    assert_eq!(volume.changes(&make(FileKind::File)), expected);
    let fifo = volume.changes(&make(FileKind::Fifo));
    assert!(matches!(fifo[1], Change::PutPlacement { .. }));
}

#[test]
fn a_symlink_stores_its_target_and_ignores_the_umask() {
    let volume = Volume::new();
    let changes = volume.changes(&create(1, "l", new_inode(10, FileKind::Symlink, 0)));
    let body = Body::Target { path: b"to".as_slice().into() };
    let inode = Inode { attr: attr(FileKind::Symlink, 0o777, 1, 1), content: content(body) };
    assert_eq!(changes[0], volume.put_covered(ROOT, "l", Ino(10), inode));
    assert_eq!(changes[3], usage(2, 1));
}

#[test]
fn a_setgid_directory_hands_down_its_group_and_to_directories_the_bit() {
    let setgid = NewInode { gid: 99, umask: 0, ..new_inode(10, FileKind::Directory, 0o2777) };
    let mut volume = Volume::new().with(create(1, "d", setgid));
    volume.change(&file(10, "f", 11));
    volume.change(&mkdir(10, "s", 12));
    let modes = [11, 12].map(|ino| volume.inode(Ino(ino)).attr).map(|attr| (attr.mode, attr.gid));
    assert_eq!(modes, [(0o644, 99), (0o2755, 99)]);
}

#[test]
fn a_default_list_replaces_the_umask_and_is_inherited() {
    let mut volume = Volume::new().with(mkdir(1, "d", 10)).with(set_xattr(
        10,
        "system.posix_acl_default",
        &acl([7, 7, 7, 7, 5]),
    ));
    volume.change(&file(10, "f", 11));
    volume.change(&mkdir(10, "s", 12));
    let xattrs = |entries: &[(&str, [u16; 5])]| {
        Xattrs::embedded(entries.iter().map(|(text, perms)| (name(text), acl(*perms))).collect())
    };
    let file = volume.inode(Ino(11)).attr;
    assert_eq!(file.mode, 0o664);
    assert_eq!(file.xattrs, xattrs(&[("system.posix_acl_access", [6, 7, 7, 6, 4])]));
    let dir = volume.inode(Ino(12)).attr;
    assert_eq!(dir.mode, 0o775);
    let both = [("system.posix_acl_access", [7, 7, 7, 7, 5]), ("system.posix_acl_default", [7, 7, 7, 7, 5])];
    assert_eq!(dir.xattrs, xattrs(&both));
}

#[test]
fn refusals() {
    let volume = Volume::new().with(file(1, "a", 10));
    let long = NewInode { target: vec![b'x'; 4096].into(), ..new_inode(11, FileKind::Symlink, 0) };
    let empty = NewInode { target: Box::default(), ..new_inode(11, FileKind::Symlink, 0) };
    let table = [
        (file(1, "a", 11), FsError::Exists),
        (file(10, "b", 11), FsError::NotDirectory),
        (file(77, "b", 11), FsError::NotFound),
        (create(1, "b", long), FsError::NameTooLong),
        (create(1, "b", empty), FsError::Invalid),
    ];
    for (op, error) in table {
        assert_eq!(volume.plan(&op), Err(error), "{op:?}");
    }
}
