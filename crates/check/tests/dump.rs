//! A dump has all of a volume's metadata, and loading it makes the same.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use check::{DumpError, dump, load};
use common::*;
use kv::{Claim, Engine, KeyRange, MemDisk, MemEngine};
use meta::{Key, value_encode};
use types::Ino;

fn all(engine: &MemEngine) -> Vec<kv::Entry> {
    let mut entries = Vec::new();
    kv::scan_all(engine, KeyRange::new(vec![1], vec![0xff; 32]), |entry| entries.push(entry)).unwrap();
    entries
}

fn dumped(volume: &Volume) -> Vec<u8> {
    let mut text = Vec::new();
    dump(&volume.engine, UUID, &mut text).unwrap();
    text
}

fn empty() -> MemEngine {
    MemDisk::new().open(Claim::new(1)).unwrap()
}

#[test]
fn what_is_loaded_is_what_was_dumped() {
    let volume = Volume::with_orphan();
    let text = dumped(&volume);
    let engine = empty();
    let count = load(&engine, UUID, &mut &text[..]).unwrap();
    assert_eq!(count, all(&engine).len() as u64);
    assert_eq!(all(&engine), all(&volume.engine));
    let mut again = Vec::new();
    dump(&engine, UUID, &mut again).unwrap();
    assert_eq!(again, text);
}

#[test]
fn a_dump_that_was_cut_or_changed_is_refused() {
    let text = dumped(&Volume::new());
    for cut in [0, 1, 16, 40, 100, text.len() / 2, text.len() - 2, text.len() - 1] {
        let loaded = load(&empty(), UUID, &mut &text[..cut]);
        assert!(matches!(loaded, Err(DumpError::Text { .. })), "{cut} bytes: {loaded:?}");
    }
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let mut changed = text.clone();
        let at = rng.usize(..changed.len());
        changed[at] ^= 1 << rng.u8(..7);
        assert!(load(&empty(), UUID, &mut &changed[..]).is_err(), "byte {at}");
    }
    assert!(matches!(load(&empty(), [1; 16], &mut &text[..]), Err(DumpError::Text { line: 2, .. })));
}

/// Goal: no master takes for a volume what was loaded in part. Method: so much is loaded that it takes several batches, and the end is
/// missing.
#[test]
fn the_volumes_own_record_is_loaded_last() {
    let volume = Volume::new();
    for number in 0..20 {
        let list = vec![(name(b"user.large"), vec![1u8; 300_000].into_boxed_slice())];
        // Behind the volume's record.
        let key = Key::WideExtentPage(Ino(number), 0).to_vec();
        volume.commit(vec![(key.clone(), Some(value_encode(&key, &list)))]);
    }
    let text = dumped(&volume);
    let engine = empty();
    let loaded = load(&engine, UUID, &mut &text[..text.len() - 1]);
    assert!(matches!(loaded, Err(DumpError::Text { .. })), "{loaded:?}");
    assert!(engine.last_seq() > kv::Seq(0));
    assert_eq!(engine.get(&Key::Volume.to_vec()).unwrap(), None);
}

#[test]
fn nothing_is_loaded_over_a_volume_and_nothing_damaged_is_dumped() {
    let volume = Volume::new();
    let text = dumped(&volume);
    assert!(matches!(load(&volume.engine, UUID, &mut &text[..]), Err(DumpError::NotEmpty)));
    let key = volume.entry_of(INLINE).to_vec();
    let mut value = volume.engine.get(&key).unwrap().unwrap();
    value[5] ^= 1;
    volume.commit(vec![(key, Some(value))]);
    let result = dump(&volume.engine, UUID, &mut Vec::new());
    assert!(matches!(result, Err(DumpError::Damaged { .. })));
}
