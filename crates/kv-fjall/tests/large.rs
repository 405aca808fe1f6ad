//! Tables that are large enough to have their index and filter in parts.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fastrand::Rng;
use kv::{Batch, Claim, Direction, Engine, KeyRange, ScanLimit};
use kv_fjall::{FjallEngine, Options};

/// Records in all, about; a part of an index or a filter covers some thousand.
const RECORDS: u64 = 60_000;

/// Goal: what is looked up, and scanned in either direction, is what was written, in tables of many parts below memtables and small tables. Method: random
/// records, many written again and some removed, beside a model; then once more after the engine was opened anew.
#[test]
fn large_tables_give_what_was_written() {
    let scratch = common::Scratch::in_memory("large");
    let dir = scratch.path().join("volume");
    let options = Options { cache_bytes: 1 << 20, memtable_bytes: 256 << 10, ..Options::default() };
    let mut rng = Rng::with_seed(11);
    let mut model = BTreeMap::new();
    for generation in 1..=3 {
        let engine = FjallEngine::open(&dir, options, Claim::new(generation)).unwrap();
        check(&engine, &model, &mut rng);
        for _ in 0..RECORDS / 500 {
            let mut batch = Batch::new(engine.last_seq().next());
            let mut keys: Vec<Vec<u8>> = (0..500).map(|_| key(rng.u64(0..RECORDS))).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                if rng.u8(0..8) == 0 {
                    model.remove(&key);
                    batch.deletes.push(key);
                } else {
                    let value = vec![rng.u8(..); rng.usize(0..200)];
                    model.insert(key.clone(), value.clone());
                    batch.puts.push((key, value));
                }
            }
            engine.commit(batch).unwrap();
        }
        check(&engine, &model, &mut rng);
        Box::new(engine).close().unwrap();
    }
    assert!(model.len() as u64 > RECORDS / 2);
}

/// Goal: a damaged part of an index or a filter is an error, or changes nothing: no record is missing without one. Method: bytes flipped one by one in the last tenth of
/// the largest table, where its parts are.
#[test]
fn a_damaged_part_is_an_error_or_changes_nothing() {
    let scratch = common::Scratch::in_memory("parts");
    let dir = scratch.path().join("volume");
    let options = Options { cache_bytes: 1 << 20, memtable_bytes: 256 << 10, ..Options::default() };
    let mut rng = Rng::with_seed(12);
    let engine = FjallEngine::open(&dir, options, Claim::new(1)).unwrap();
    for round in 0..RECORDS / 500 {
        let mut batch = Batch::new(engine.last_seq().next());
        batch.puts = (0..500).map(|n| (key(round * 500 + n), vec![n as u8; 60])).collect();
        engine.commit(batch).unwrap();
    }
    Box::new(engine).close().unwrap();
    let tables =
        fs::read_dir(dir.join("engine/keyspaces/1/tables")).unwrap().map(|entry| entry.unwrap().path());
    let table = tables.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let whole = fs::read(&table).unwrap();
    assert!(whole.len() > 2 << 20, "{} bytes", whole.len());

    let mut errors = 0;
    for generation in 2..26 {
        let at = rng.usize(whole.len() * 9 / 10..whole.len());
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << rng.u8(0..8);
        fs::write(&table, &damaged).unwrap();
        errors += u32::from(errs(&dir, options, generation, &mut rng));
        fs::write(&table, &whole).unwrap();
        let _ = fs::remove_file(dir.join("damaged"));
    }
    assert!(errors > 12, "{errors} of 24 were noticed");
}

/// Whether anything was an error. Whatever was not is right.
fn errs(dir: &Path, options: Options, generation: u64, rng: &mut Rng) -> bool {
    let Ok(engine) = FjallEngine::open(dir, options, Claim::new(generation)) else { return true };
    let mut errs = false;
    for _ in 0..1_000 {
        let number = rng.u64(0..RECORDS);
        match engine.get(&key(number)) {
            Ok(found) => assert_eq!(found, Some(vec![(number % 500) as u8; 60]), "record {number}"),
            Err(_) => errs = true,
        }
    }
    let mut count = 0;
    match engine.snapshot(&mut |_, _| (count += 1, true).1) {
        Ok(()) => assert_eq!(count, RECORDS),
        Err(_) => errs = true,
    }
    errs
}

/// As those of directory entries: a number and a hash.
fn key(number: u64) -> Vec<u8> {
    let (parent, entry) = (number / 100, number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    [&b"e"[..], &parent.to_be_bytes(), &entry.to_be_bytes()].concat()
}

fn check(engine: &FjallEngine, model: &BTreeMap<Vec<u8>, Vec<u8>>, rng: &mut Rng) {
    for _ in 0..2_000 {
        let key = key(rng.u64(0..RECORDS * 2));
        assert_eq!(engine.get(&key).unwrap().as_ref(), model.get(&key));
    }
    for _ in 0..300 {
        // Of some directories, at an end of them or between two entries.
        let (one, other) = (rng.u64(0..RECORDS), rng.u64(0..RECORDS));
        let (start, mut end) = (key(one.min(other)), key(one.max(other)));
        end.truncate(*rng.choice(&[9, 17]).unwrap());
        let range = KeyRange::new(start.clone(), end.clone());
        let entries = *rng.choice(&[1, 150, 20_000]).unwrap();
        let limit = ScanLimit { entries, bytes: usize::MAX };
        let expected = || model.range(start.clone()..end.clone().max(start.clone()));
        let forward = engine.scan(&range, limit, Direction::Forward).unwrap();
        assert!(forward.entries.iter().map(|(key, value)| (key, value)).eq(expected().take(entries)));
        let backward = engine.scan(&range, limit, Direction::Backward).unwrap();
        assert!(backward.entries.iter().map(|(key, value)| (key, value)).eq(expected().rev().take(entries)));
    }
    let mut all = model.iter();
    engine
        .snapshot(&mut |key, value| {
            assert!(all.next().is_some_and(|(k, v)| k == key && v == value));
            true
        })
        .unwrap();
    assert!(all.next().is_none());
}
