//! What the store's view does where hashes meet and where records are damaged.

use meta::{Child, Cookie, Damage, Dirent, FileKind, FsError, Key, Lookup, ReadFailure, View, ViewError};
use types::{Ino, LockMode};

use crate::support::*;

const ROOT: Ino = Ino::ROOT;

/// Entries of other names at the first `count` places of `text`'s hash, but not at `gap`.
fn crowded(text: &str, count: u64, gap: Option<u64>) -> Volume {
    let mut volume = Volume::new();
    let first = volume.cookie(ROOT, text);
    for index in (0..count).filter(|index| Some(*index) != gap) {
        let child = Child::Own { kind: FileKind::File };
        let entry = Dirent { name: name(&format!("other {index}")), ino: Ino(1_000 + index), child };
        let cookie = Cookie(first.0 + index);
        volume.store.apply(&[meta::Change::PutEntry { parent: ROOT, cookie, entry }]);
    }
    volume
}

#[test]
fn names_of_one_hash_share_255_places() {
    let first = Volume::new().cookie(ROOT, "a");
    for (volume, place) in [(crowded("a", 3, None), 3), (crowded("a", 255, Some(9)), 9)] {
        assert_eq!(volume.cookie(ROOT, "a"), Cookie(first.0 + place));
        let volume = volume.with(file(1, "a", 10));
        let view = volume.store.view(&|_| Vec::new());
        let Ok(Lookup::Found { cookie, entry }) = view.lookup(ROOT, &name("a"), LockMode::Pr) else {
            panic!("the name is there");
        };
        assert_eq!((cookie, entry.ino), (Cookie(first.0 + place), Ino(10)));
    }
    assert_eq!(crowded("a", 255, None).plan(&file(1, "a", 10)), Err(FsError::NoSpace));
}

#[test]
fn a_damaged_record_is_an_io_error_and_is_named() {
    let mut volume = Volume::new().with(file(1, "a", 10));
    let key = Key::Entry(ROOT, volume.cookie(ROOT, "a"));
    let value = volume.store.0.get_mut(&key.to_vec()).expect("the entry is stored");
    value[5] ^= 1;
    let view = volume.store.view(&|_| Vec::new());
    assert_eq!(view.inode(Ino(10), LockMode::Pr), Err(ViewError::Refused(FsError::Io)));
    let failures = view.take_failures();
    let [ReadFailure::Damaged(Damage::Value { key: damaged, .. })] = &failures[..] else {
        panic!("one damaged value, not {failures:?}");
    };
    assert_eq!(damaged.0, key.to_vec());
    assert!(view.take_failures().is_empty());
}

#[test]
fn a_missing_or_contradicting_record_is_damage() {
    let mut volume = Volume::new().with(file(1, "a", 10)).with(file(1, "b", 11)).with(split(11));
    let placement =
        meta::Change::PutPlacement { ino: Ino(12), parent: ROOT, cookie: volume.cookie(ROOT, "a") };
    volume.store.apply(&[placement]);
    volume.store.0.remove(&Key::Content(Ino(11)).to_vec());
    let view = volume.store.view(&|_| Vec::new());
    for ino in [11, 12] {
        assert_eq!(view.inode(Ino(ino), LockMode::Pr), Err(ViewError::Refused(FsError::Io)));
    }
    let failures = view.take_failures();
    assert!(matches!(failures[0], ReadFailure::Damaged(Damage::Missing { .. })));
    assert!(matches!(failures[1], ReadFailure::Damaged(Damage::Contradiction { .. })));
}
