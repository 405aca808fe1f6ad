//! Whom inodes are charged to, and the trees that they stay in.

use meta::ops::{AttrSet, RenameMode};
use meta::{FsError, Key, Op, UsageRecord, value_decode};
use types::{Account, Ino};

use crate::support::*;

fn set(ino: u64, set: AttrSet) -> Op {
    Op::SetAttr { ino: Ino(ino), set }
}

fn chown(ino: u64, uid: u32) -> Op {
    set(ino, AttrSet { uid: Some(uid), ..AttrSet::default() })
}

fn tree(ino: u64, tree: u32) -> Op {
    set(ino, AttrSet { tree: Some(tree), ..AttrSet::default() })
}

fn inodes_of(volume: &Volume, account: Account) -> u64 {
    let key = Key::Usage(account).to_vec();
    let record = volume.store.0.get(&key).map(|value| value_decode::<UsageRecord>(&key, value));
    record.map_or(0, |record| record.expect("undamaged").inodes)
}

#[test]
fn a_new_owner_is_charged_wherever_the_record_is() {
    let mut volume = Volume::new().with(file(1, "a", 10)).with(mkdir(1, "d", 11)).with(file(1, "b", 12));
    volume.change(&split(12));
    assert_eq!(inodes_of(&volume, Account::User(7)), 3);
    for (moved, ino) in [10, 11, 12].into_iter().enumerate() {
        volume.change(&chown(ino, 70));
        assert_eq!(inodes_of(&volume, Account::User(70)), moved as u64 + 1);
        assert_eq!(inodes_of(&volume, Account::User(7)), 2 - moved as u64);
    }
    assert_eq!(inodes_of(&volume, Account::Group(8)), 3, "the group is the same");
    for op in [unlink(1, "b"), unlink(1, "a")] {
        volume.change(&op);
    }
    assert_eq!(inodes_of(&volume, Account::User(70)), 1);
    assert_eq!(inodes_of(&volume, Account::User(0)), 1, "the root directory");
}

#[test]
fn what_is_made_in_a_tree_is_charged_to_it_and_stays_there() {
    let mut volume = Volume::new().with(mkdir(1, "t", 10)).with(tree(10, 5)).with(file(1, "out", 11));
    volume.change(&file(10, "in", 12));
    volume.change(&mkdir(10, "sub", 13));
    volume.change(&file(13, "deep", 14));
    assert_eq!(inodes_of(&volume, Account::Tree(5)), 4);
    let rename = |parent, from: &str, new_parent, to: &str, mode| Op::Rename {
        parent: Ino(parent),
        name: name(from),
        new_parent: Ino(new_parent),
        new_name: name(to),
        mode,
        target_open_here: false,
        meant: Ino(0),
        bound: None,
        whiteout: None,
    };
    let refused = [
        rename(10, "in", 1, "in", RenameMode::Replace),
        rename(1, "out", 10, "out", RenameMode::NoReplace),
        rename(1, "out", 10, "in", RenameMode::Exchange),
        rename(10, "sub", 1, "sub", RenameMode::Replace),
        link(12, 1, "in"),
        link(11, 10, "out"),
    ];
    for op in refused {
        assert_eq!(volume.plan(&op), Err(FsError::CrossTree), "{op:?}");
    }
    volume.change(&rename(10, "in", 13, "in", RenameMode::Replace));
    volume.change(&link(12, 10, "again"));
    volume.change(&rename(1, "t", 1, "t2", RenameMode::Replace));
    volume.change(&mkdir(1, "elsewhere", 15));
    volume.change(&rename(1, "t2", 15, "t", RenameMode::Replace));
    volume.change(&tree(12, 0));
    assert_eq!(inodes_of(&volume, Account::Tree(5)), 3, "taken out by number");
}
