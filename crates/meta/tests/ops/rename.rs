use meta::ops::{AttrSet, RenameMode};
use meta::{Change, FileKind, FsError, Op, OpReply};
use types::{Ino, ResourceId};

use crate::support::*;

const ROOT: Ino = Ino::ROOT;

fn rename(dir: u64, text: &str, new_dir: u64, new_text: &str, mode: RenameMode) -> Op {
    Op::Rename {
        parent: Ino(dir),
        name: name(text),
        new_parent: Ino(new_dir),
        new_name: name(new_text),
        mode,
        target_open_here: false,
        meant: Ino(0),
        bound: None,
        whiteout: None,
    }
}

fn replace(dir: u64, text: &str, new_dir: u64, new_text: &str) -> Op {
    rename(dir, text, new_dir, new_text, RenameMode::Replace)
}

/// `/d/` is 10, `/e/` is 11, `/a` is 12, `/d/s/` is 13.
fn volume() -> Volume {
    Volume::new()
        .with(mkdir(1, "d", 10))
        .with(mkdir(1, "e", 11))
        .with(file(1, "a", 12))
        .with(mkdir(10, "s", 13))
}

#[test]
fn a_covered_file_moves_with_its_record() {
    let volume = volume();
    let op = replace(1, "a", 10, "b");
    let mut moved = stamped(volume.inode(Ino(12)));
    moved.attr.parent = Ino(10);
    let expected = vec![
        volume.delete_entry(ROOT, "a"),
        volume.put_covered(Ino(10), "b", Ino(12), moved),
        volume.put_placement(Ino(10), "b", Ino(12)),
        volume.touched(ROOT, 4),
        volume.touched(Ino(10), 3),
    ];
    assert_eq!(volume.changes(&op), expected);
    let reply = OpReply::Renamed { ino: Ino(12), replaced: Ino(0) };
    assert_eq!(volume.plan(&op).unwrap().reply, reply);
    assert_eq!(volume.ex_rights(&op), [ResourceId::dir(ROOT), ResourceId::dir(Ino(10))]);
}

#[test]
fn within_a_directory_its_record_is_written_once() {
    let volume = volume();
    let expected = vec![
        volume.delete_entry(ROOT, "a"),
        volume.put_covered(ROOT, "b", Ino(12), stamped(volume.inode(Ino(12)))),
        volume.put_placement(ROOT, "b", Ino(12)),
        volume.touched(ROOT, 4),
    ];
    assert_eq!(volume.changes(&replace(1, "a", 1, "b")), expected);
}

#[test]
fn an_uncovered_file_is_told_its_directory() {
    let volume = volume().with(split(12));
    let mut moved = stamped(volume.inode(Ino(12))).attr;
    moved.parent = Ino(10);
    let changes = volume.changes(&replace(1, "a", 10, "b"));
    assert_eq!(changes[1], volume.put_own(Ino(10), "b", Ino(12), FileKind::File));
    assert_eq!(changes[2], Change::PutAttr { ino: Ino(12), attr: moved });
}

#[test]
fn a_directory_across_parents_takes_its_link_along_and_needs_the_right_to_move() {
    let volume = volume();
    let op = replace(10, "s", 11, "s");
    let mut moved = stamped(volume.inode(Ino(13)));
    moved.attr.parent = Ino(11);
    let expected = vec![
        volume.delete_entry(Ino(10), "s"),
        volume.put_own(Ino(11), "s", Ino(13), FileKind::Directory),
        Change::PutDirectory { ino: Ino(13), inode: Box::new(moved) },
        volume.touched(Ino(10), 2),
        volume.touched(Ino(11), 3),
    ];
    assert_eq!(volume.changes(&op), expected);
    let dirs = [10, 11, 13].map(|ino| ResourceId::dir(Ino(ino)));
    assert_eq!(volume.ex_rights(&op), [&[ResourceId::RENAME], &dirs[..]].concat());
    assert!(!volume.ex_rights(&replace(10, "s", 10, "t")).contains(&ResourceId::RENAME));
}

#[test]
fn a_replaced_file_is_deleted_and_its_place_taken() {
    let volume = volume().with(file(10, "b", 20));
    let op = replace(1, "a", 10, "b");
    let mut moved = stamped(volume.inode(Ino(12)));
    moved.attr.parent = Ino(10);
    let expected = vec![
        volume.delete_entry(ROOT, "a"),
        Change::DeleteInode { ino: Ino(20), parent: Ino(10), kind: FileKind::File },
        usage(0, -1),
        volume.put_covered(Ino(10), "b", Ino(12), moved),
        volume.put_placement(Ino(10), "b", Ino(12)),
        volume.touched(ROOT, 4),
        volume.touched(Ino(10), 3),
    ];
    assert_eq!(volume.changes(&op), expected);
    let reply = OpReply::Renamed { ino: Ino(12), replaced: Ino(20) };
    assert_eq!(volume.plan(&op).unwrap().reply, reply);
}

#[test]
fn a_replaced_directory_leaves_its_parents_count() {
    let volume = volume();
    let changes = volume.changes(&replace(10, "s", 1, "e"));
    let gone = Change::DeleteInode { ino: Ino(11), parent: Ino(0), kind: FileKind::Directory };
    assert_eq!(changes[1], gone);
    assert_eq!(changes[5..], [volume.touched(Ino(10), 2), volume.touched(ROOT, 4)]);
}

#[test]
fn an_exchange_swaps_records_and_counts() {
    let volume = volume();
    let op = rename(1, "a", 10, "s", RenameMode::Exchange);
    let (mut source, mut target) = (stamped(volume.inode(Ino(12))), stamped(volume.inode(Ino(13))));
    (source.attr.parent, target.attr.parent) = (Ino(10), ROOT);
    let expected = vec![
        volume.put_covered(Ino(10), "s", Ino(12), source),
        volume.put_placement(Ino(10), "s", Ino(12)),
        volume.put_own(ROOT, "a", Ino(13), FileKind::Directory),
        Change::PutDirectory { ino: Ino(13), inode: Box::new(target) },
        volume.touched(ROOT, 5),
        volume.touched(Ino(10), 2),
    ];
    assert_eq!(volume.changes(&op), expected);
}

#[test]
fn two_names_of_one_inode_stay_as_they_are() {
    let volume = volume().with(link(12, 10, "b"));
    for mode in [RenameMode::Replace, RenameMode::Exchange] {
        let plan = volume.plan(&rename(1, "a", 10, "b", mode)).unwrap();
        assert_eq!(plan.changes, []);
        assert_eq!(plan.reply, OpReply::Renamed { ino: Ino(12), replaced: Ino(0) });
    }
    assert!(volume.changes(&replace(1, "a", 1, "a")).is_empty());
}

#[test]
fn refusals() {
    use RenameMode::{Exchange, NoReplace};
    let volume = volume();
    let table = [
        (replace(1, "x", 1, "y"), FsError::NotFound),
        (replace(1, "a", 12, "y"), FsError::NotDirectory),
        (replace(1, "a", 77, "y"), FsError::NotFound),
        (rename(1, "a", 1, "d", NoReplace), FsError::Exists),
        (rename(1, "a", 1, "x", Exchange), FsError::NotFound),
        (replace(1, "a", 1, "e"), FsError::IsDirectory),
        (replace(1, "e", 1, "a"), FsError::NotDirectory),
        (replace(1, "e", 1, "d"), FsError::NotEmpty),
        (replace(10, "s", 1, "d"), FsError::NotEmpty),
        (replace(1, "d", 10, "x"), FsError::Invalid),
        (replace(1, "d", 13, "x"), FsError::Invalid),
        (rename(1, "d", 10, "s", Exchange), FsError::Invalid),
        (rename(10, "s", 1, "d", Exchange), FsError::Invalid),
    ];
    for (op, error) in table {
        assert_eq!(volume.plan(&op), Err(error), "{op:?}");
    }
}

/// Goal: a rename that leaves a whiteout makes it under the old name, in one with the move. Method: over a free name, in place of another file, in another directory, and of a
/// directory; what it makes is in the list of changes beside what the same rename without it does, but for the name that goes.
#[test]
fn a_whiteout_takes_the_old_name() {
    let volume = volume();
    let new = || Some(Box::new(new_inode(99, FileKind::CharDevice, 0)));
    let with = |op: Op| match op {
        Op::Rename { parent, name, new_parent, new_name, mode, target_open_here, meant, bound, .. } => {
            Op::Rename {
                parent,
                name,
                new_parent,
                new_name,
                mode,
                target_open_here,
                meant,
                bound,
                whiteout: new(),
            }
        }
        other => other,
    };
    for (op, old) in [
        (replace(1, "a", 1, "free"), "a"),
        (replace(1, "a", 10, "free"), "a"),
        (replace(1, "e", 10, "free"), "e"),
        (replace(1, "e", 10, "s"), "e"),
    ] {
        let (plain, made) = (volume.changes(&op), volume.changes(&with(op.clone())));
        let goes =
            |change: &&Change| matches!(change, Change::DeleteEntry { name: of, .. } if *of == name(old));
        let same: Vec<&Change> = plain.iter().filter(|change| !goes(change)).collect();
        let rest: Vec<&Change> = made.iter().filter(|change| !same.contains(change)).collect();
        let [
            Change::PutEntry { parent, cookie, entry },
            Change::PutPlacement { ino, parent: of, cookie: at },
            Change::AddUsage { inodes: 1, bytes: 0, .. },
        ] = rest[..]
        else {
            panic!("{op:?}: {rest:?}")
        };
        assert_eq!((parent, cookie, entry.ino), (of, at, *ino), "{op:?}");
        assert_eq!((&entry.name, *ino, entry.kind()), (&name(old), Ino(99), FileKind::CharDevice));
        assert_eq!(made.len(), same.len() + 3, "nothing is missing");
    }
    let exchange = rename(1, "a", 10, "s", RenameMode::Exchange);
    assert_eq!(volume.plan(&with(exchange)), Err(FsError::Invalid));
}

/// The kernel of who asks takes directory `meant` for replaced: that, or nothing, is.
#[test]
fn another_directory_than_the_one_that_is_meant_is_not_replaced() {
    let volume = volume();
    let meant = |op: Op, ino| match op {
        Op::Rename { parent, name, new_parent, new_name, mode, target_open_here, .. } => Op::Rename {
            parent,
            name,
            new_parent,
            new_name,
            mode,
            target_open_here,
            meant: Ino(ino),
            bound: None,
            whiteout: None,
        },
        other => other,
    };
    let over_e = replace(10, "s", 1, "e");
    assert_eq!(volume.changes(&meant(over_e.clone(), 11)), volume.changes(&over_e));
    assert_eq!(volume.plan(&meant(over_e.clone(), 10)), Err(FsError::Stale), "another directory is there");
    assert_eq!(volume.plan(&meant(replace(10, "s", 1, "x"), 10)), Err(FsError::Stale), "nothing is there");
    assert_eq!(volume.plan(&meant(replace(10, "y", 1, "e"), 10)), Err(FsError::NotFound), "nothing is moved");
    assert_eq!(volume.changes(&meant(over_e.clone(), 99)), volume.changes(&over_e), "that is gone");
}

/// Goal: names in a sticky directory are taken from what somebody owns by him, or by the owner of the directory, alone, whatever the kernel of whoever asks had
/// there. Method: each operation with each of its inodes somebody else's, by a stranger and by both owners, and without the bit.
#[test]
fn a_sticky_directory_keeps_what_strangers_own() {
    const STRANGER: u32 = 71;
    const OWNER: u32 = 72;
    let own = |ino, uid, mode| {
        let set = AttrSet { uid: Some(uid), mode: Some(mode), ..AttrSet::default() };
        Op::SetAttr { ino: Ino(ino), set }
    };
    // `/d/f`, `/d/g` and `/d/s/` in the directory, `/a` and `/e/` outside.
    let volume = |bit: u32| {
        let volume =
            volume().with(file(10, "f", 14)).with(file(10, "g", 15)).with(own(10, OWNER, 0o777 | bit));
        [1, 11, 12].into_iter().fold(volume, |volume, ino| volume.with(own(ino, STRANGER, 0o777)))
    };
    let by = |op: &Op, uid| {
        let mut op = op.clone();
        let (Op::Unlink { bound, .. } | Op::Rmdir { bound, .. } | Op::Rename { bound, .. }) = &mut op else {
            panic!("no removal")
        };
        *bound = uid;
        op
    };
    let exchange = |from, to| rename(1, from, 10, to, RenameMode::Exchange);
    let rmdir = Op::Rmdir { parent: Ino(10), name: name("s"), meant: Ino(0), bound: None };
    let (over, out) = (replace(1, "a", 10, "f"), rename(10, "f", 1, "b", RenameMode::NoReplace));
    let mine = [13, 14, 15];
    for op in [unlink(10, "f"), rmdir, over, out, exchange("a", "f"), exchange("e", "s")] {
        let plan = |bit: u32, uid| volume(bit).plan(&by(&op, uid)).map(drop);
        assert_eq!(plan(0o1000, Some(STRANGER)), Err(FsError::NotPermitted), "{op:?}");
        for (bit, uid) in [(0, Some(STRANGER)), (0o1000, Some(OWNER)), (0o1000, None)] {
            assert_eq!(plan(bit, uid), Ok(()), "{op:?} {uid:?}");
        }
        let owned = mine.iter().fold(volume(0o1000), |volume, ino| volume.with(own(*ino, STRANGER, 0o777)));
        assert_eq!(owned.plan(&by(&op, Some(STRANGER))).map(drop), Ok(()), "{op:?}");
    }
    let both = by(&replace(10, "f", 10, "g"), Some(STRANGER));
    for theirs in [14, 15] {
        let volume = volume(0o1000).with(own(29 - theirs, STRANGER, 0o777));
        assert_eq!(volume.plan(&both).map(drop), Err(FsError::NotPermitted), "{theirs}");
    }
}
