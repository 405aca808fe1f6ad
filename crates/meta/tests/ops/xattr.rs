use meta::ops::{XattrMode, list_xattrs, read_xattr};
use meta::{Change, FileKind, FsError, Op, Xattrs};
use types::Ino;

use crate::support::*;

const ROOT: Ino = Ino::ROOT;

fn remove(ino: u64, text: &str) -> Op {
    Op::RemoveXattr { ino: Ino(ino), name: name(text), only_owner: None }
}

fn list(entries: &[(&str, &[u8])]) -> Vec<(types::Name, Box<[u8]>)> {
    entries.iter().map(|(text, value)| (name(text), (*value).into())).collect()
}

#[test]
fn small_attributes_stay_in_the_record_in_name_order() {
    let volume = Volume::new().with(file(1, "a", 10)).with(set_xattr(10, "user.b", b"2"));
    let mut after = stamped(volume.inode(Ino(10)));
    after.attr.xattrs = Xattrs::embedded(list(&[("user.a", b"1"), ("user.b", b"2")]));
    let expected = [volume.put_covered(ROOT, "a", Ino(10), after.clone())];
    assert_eq!(volume.changes(&set_xattr(10, "user.a", b"1")), expected);
    assert_eq!(read_xattr(&after, &[], b"user.b"), Ok(b"2".as_slice()));
    assert_eq!(read_xattr(&after, &[], b"user.c"), Err(FsError::NoAttribute));
    assert_eq!(list_xattrs(&after, &[]).len(), 2);
}

#[test]
fn large_ones_spill_and_come_back() {
    let mut volume = Volume::new().with(file(1, "a", 10));
    let big = [1; 1024];
    let mut after = stamped(volume.inode(Ino(10)));
    after.attr.xattrs = Xattrs::Spilled {};
    let spilled = list(&[("user.a", &big)]);
    let expected = [
        volume.put_covered(ROOT, "a", Ino(10), after.clone()),
        Change::PutXattrs { ino: Ino(10), parent: ROOT, list: spilled.clone() },
    ];
    let set = set_xattr(10, "user.a", &big);
    assert_eq!(volume.changes(&set), expected);
    assert_eq!(read_xattr(&after, &spilled, b"user.a"), Ok(big.as_slice()));
    volume.change(&set);
    after.attr.xattrs = Xattrs::NONE;
    let expected = [
        volume.put_covered(ROOT, "a", Ino(10), after),
        Change::PutXattrs { ino: Ino(10), parent: ROOT, list: Vec::new() },
    ];
    assert_eq!(volume.changes(&remove(10, "user.a")), expected);
}

#[test]
fn spilled_attributes_belong_to_what_covers_the_names_half() {
    let volume = Volume::new().with(file(1, "a", 10)).with(split(10)).with(mkdir(1, "d", 11));
    for (ino, expected) in [(10, 0), (11, 11)] {
        let changes = volume.changes(&set_xattr(ino, "user.a", &[0; 2000]));
        assert!(matches!(changes[1], Change::PutXattrs { parent: Ino(parent), .. } if parent == expected));
    }
}

#[test]
fn an_access_list_sets_the_mode_and_is_kept_only_if_it_says_more() {
    let mut volume = Volume::new().with(file(1, "a", 10));
    let access = "system.posix_acl_access";
    volume.change(&set_xattr(10, access, &acl([7, 6, 5, 3, 1])));
    let attr = volume.inode(Ino(10)).attr;
    assert_eq!(attr.mode, 0o731);
    assert_eq!(attr.xattrs, Xattrs::embedded(list(&[(access, &acl([7, 6, 5, 3, 1]))])));
    let mut plain = vec![2, 0, 0, 0];
    for (tag, perm) in [(1, 6), (4, 4), (32, 0)] {
        plain.extend([tag, 0, perm, 0, 255, 255, 255, 255]);
    }
    volume.change(&set_xattr(10, access, &plain));
    let attr = volume.inode(Ino(10)).attr;
    assert_eq!((attr.mode, attr.xattrs), (0o640, Xattrs::NONE));
}

#[test]
fn an_access_list_takes_setgid_away_if_its_setter_is_outside_the_group() {
    let access = "system.posix_acl_access";
    let lists = [acl([7, 6, 5, 3, 1]).to_vec(), vec![2, 0, 0, 0]];
    for (mode, bits) in [(XattrMode::Any, 0o6000), (XattrMode::AnyWithoutSetgid, 0o4000)] {
        for value in &lists {
            let mut volume = Volume::new().with(create(1, "a", new_inode(10, FileKind::File, 0o6711)));
            let value = value.clone().into();
            volume.change(&Op::SetXattr { ino: Ino(10), name: name(access), value, mode, only_owner: None });
            assert_eq!(volume.inode(Ino(10)).attr.mode & 0o7000, bits, "{mode:?}");
        }
        // Other attributes have nothing to do with it.
        let mut volume = Volume::new().with(create(1, "a", new_inode(10, FileKind::File, 0o6711)));
        volume.change(&Op::SetXattr {
            ino: Ino(10),
            name: name("user.a"),
            value: Box::default(),
            mode,
            only_owner: None,
        });
        assert_eq!(volume.inode(Ino(10)).attr.mode, 0o6711);
    }
}

#[test]
fn refusals() {
    let mut volume = Volume::new()
        .with(file(1, "a", 10))
        .with(create(1, "p", new_inode(11, FileKind::Fifo, 0o600)))
        .with(create(1, "l", new_inode(12, FileKind::Symlink, 0)));
    let mode = |mode| Op::SetXattr {
        ino: Ino(10),
        name: name("user.a"),
        value: Box::default(),
        mode,
        only_owner: None,
    };
    let table = [
        (mode(XattrMode::Replace), FsError::NoAttribute),
        (remove(10, "user.a"), FsError::NoAttribute),
        (set_xattr(10, "user.", b""), FsError::Invalid),
        (set_xattr(10, "other.a", b""), FsError::NotSupported),
        (set_xattr(10, "system.other", b""), FsError::NotSupported),
        (set_xattr(11, "user.a", b""), FsError::NotPermitted),
        (set_xattr(12, "user.a", b""), FsError::NotPermitted),
        (set_xattr(12, "system.posix_acl_access", &acl([7; 5])), FsError::NotSupported),
        (set_xattr(10, "system.posix_acl_default", &acl([7; 5])), FsError::AccessDenied),
        (set_xattr(10, "system.posix_acl_access", b"bad"), FsError::Invalid),
        (set_xattr(10, "user.a", &[0; 65_537]), FsError::TooLarge),
        (set_xattr(77, "user.a", b""), FsError::NotFound),
    ];
    for (op, error) in table {
        assert_eq!(volume.plan(&op), Err(error), "{op:?}");
    }
    for text in ["user.a", "user.b", "user.c"] {
        volume.change(&set_xattr(10, text, &[0; 65_536]));
    }
    assert_eq!(volume.plan(&mode(XattrMode::Create)), Err(FsError::Exists));
    assert_eq!(volume.plan(&set_xattr(10, "user.d", &[0; 65_536])), Err(FsError::NoSpace));
}

#[test]
fn removing_a_list_that_is_not_there_changes_nothing() {
    let volume = Volume::new().with(file(1, "a", 10)).with(mkdir(1, "d", 11));
    for (ino, name) in
        [(10, "system.posix_acl_access"), (10, "system.posix_acl_default"), (11, "system.posix_acl_default")]
    {
        assert_eq!(volume.changes(&remove(ino, name)), []);
    }
}
