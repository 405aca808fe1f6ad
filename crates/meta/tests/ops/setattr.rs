use meta::ops::AttrSet;
use meta::{Change, FsError, Inode, Op, Xattrs};
use types::{Ino, ResourceId, Timespec};

use crate::support::*;

const ROOT: Ino = Ino::ROOT;
const NONE: AttrSet = AttrSet {
    mode: None,
    uid: None,
    gid: None,
    atime: None,
    mtime: None,
    kill_privileges: None,
    tree: None,
    only_owner: None,
    groups: None,
};
const TIME: Timespec = Timespec { secs: 5, nanos: 6 };

fn set(ino: u64, set: AttrSet) -> Op {
    Op::SetAttr { ino: Ino(ino), set }
}

fn with_times(mut inode: Inode) -> Inode {
    (inode.content.mtime, inode.content.ctime) = (TIME, NOW);
    inode
}

#[test]
fn a_covered_inode_is_written_whole() {
    let volume = Volume::new().with(file(1, "a", 10));
    let mut after = with_times(stamped(volume.inode(Ino(10))));
    after.attr.mode = 0o4711;
    let op = set(10, AttrSet { mode: Some(0o104711), mtime: Some(TIME), ..NONE });
    assert_eq!(volume.changes(&op), [volume.put_covered(ROOT, "a", Ino(10), after)]);
    assert_eq!(volume.ex_rights(&op), [ResourceId::dir(ROOT)]);
}

#[test]
fn a_directory_is_written_under_its_key() {
    let volume = Volume::new();
    let after = with_times(volume.inode(ROOT));
    let op = set(1, AttrSet { mtime: Some(TIME), ..NONE });
    assert_eq!(volume.changes(&op), [Change::PutDirectory { ino: ROOT, inode: Box::new(after) }]);
    assert_eq!(volume.ex_rights(&op), [ResourceId::dir(ROOT)]);
}

#[test]
fn each_half_of_an_uncovered_inode_needs_its_own_right() {
    let volume = Volume::new().with(file(1, "a", 10)).with(split(10));
    let (attr, file) = (ResourceId::attr(Ino(10)), ResourceId::file(Ino(10)));
    let times = AttrSet { mtime: Some(TIME), ..NONE };
    let content = with_times(volume.inode(Ino(10))).content;
    let put = Change::PutContent { ino: Ino(10), content };
    assert_eq!(volume.changes(&set(10, times.clone())), std::slice::from_ref(&put));
    assert_eq!(volume.ex_rights(&set(10, times.clone())), [file]);
    let mut named = stamped(volume.inode(Ino(10))).attr;
    named.mode = 0o600;
    let op = set(10, AttrSet { mode: Some(0o600), ..NONE });
    let put_attr = Change::PutAttr { ino: Ino(10), attr: named };
    assert_eq!(volume.changes(&op), std::slice::from_ref(&put_attr));
    assert_eq!(volume.ex_rights(&op), [attr]);
    let both = set(10, AttrSet { mode: Some(0o600), ..times });
    assert_eq!(volume.changes(&both), [put_attr, put]);
    assert_eq!(volume.ex_rights(&both), [attr, file]);
}

#[test]
fn privileges_go_with_chown_and_writes_but_not_from_directories() {
    let kill = |groups: &[u32]| AttrSet { kill_privileges: Some(groups.to_vec()), ..NONE };
    let group = Volume::new().with(file(1, "a", 10)).inode(Ino(10)).attr.gid;
    let (chown, member, stranger) = (AttrSet { uid: Some(9), ..NONE }, kill(&[5, group]), kill(&[5]));
    let chown_by_stranger = AttrSet { uid: Some(9), ..stranger.clone() };
    let table = [
        (0o6777, &chown, 0o0777),
        (0o6767, &chown, 0o2767),
        (0o6777, &member, 0o0777),
        (0o6767, &member, 0o2767),
        (0o6767, &stranger, 0o0767),
        (0o2767, &stranger, 0o0767),
        (0o2767, &chown_by_stranger, 0o0767),
    ];
    for (before, change, after) in table {
        let mut volume = Volume::new().with(file(1, "a", 10)).with(mkdir(1, "d", 11));
        for ino in [10, 11] {
            volume.change(&set(ino, AttrSet { mode: Some(before), ..NONE }));
            volume.change(&set(ino, change.clone()));
        }
        assert_eq!(volume.inode(Ino(10)).attr.mode, after, "{change:?}");
        assert_eq!(volume.inode(Ino(11)).attr.mode, before, "{change:?}");
    }
}

#[test]
fn a_write_drops_capabilities_and_changes_nothing_without_any() {
    let mut volume = Volume::new().with(file(1, "a", 10));
    let kill = set(10, AttrSet { kill_privileges: Some(vec![0]), ..NONE });
    assert_eq!(volume.changes(&kill), []);
    assert_eq!(volume.ex_rights(&kill), []);
    volume.change(&set_xattr(10, "security.capability", b"x"));
    volume.change(&kill);
    assert_eq!(volume.inode(Ino(10)).attr.xattrs, Xattrs::NONE);
}

#[test]
fn chmod_follows_into_the_access_list() {
    let mut volume =
        Volume::new().with(file(1, "a", 10)).with(set_xattr(10, "system.posix_acl_access", &acl([7; 5])));
    volume.change(&set(10, AttrSet { mode: Some(0o640), ..NONE }));
    let list = vec![(name("system.posix_acl_access"), acl([6, 7, 7, 4, 0]))];
    assert_eq!(volume.inode(Ino(10)).attr.xattrs, Xattrs::embedded(list));
}

#[test]
fn refusals() {
    let volume = Volume::new().with(create(1, "l", new_inode(10, meta::FileKind::Symlink, 0)));
    let chmod = AttrSet { mode: Some(0o600), ..NONE };
    assert_eq!(volume.plan(&set(10, chmod.clone())), Err(FsError::NotSupported));
    assert_eq!(volume.plan(&set(77, chmod)), Err(FsError::NotFound));
    assert_eq!(volume.changes(&set(10, NONE)), []);
}
