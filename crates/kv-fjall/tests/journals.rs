//! What an opening reads.
//!
//! Goal: masters that die one after another do not each replay what all before them wrote. Method: journals of each
//! length are left behind by a kill, and looked at after the opening.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use kv::{Batch, Claim, Engine};
use kv_fjall::{FjallEngine, Options};
use rustix::fs::SeekFrom;

mod common;

const OPTIONS: Options =
    Options { cache_bytes: 4 << 20, memtable_bytes: 64 << 20, worker_threads: 1, journal_bytes: 64 << 10 };

/// Opens for a master that commits without a sync and dies.
fn die_after(dir: &Path, generation: u64, batches: u64, value_len: usize) {
    let engine = FjallEngine::open(dir, OPTIONS, Claim::new(generation)).unwrap();
    let first = engine.last_seq().0 + 1;
    (first..first + batches).for_each(|seq| engine.commit(common::batch(seq, value_len)).unwrap());
    // A copy taken now is what a kill leaves.
    let copy = dir.with_extension("copy");
    copy_tree(dir, &copy);
    drop(engine);
    fs::remove_dir_all(dir).unwrap();
    fs::rename(copy, dir).unwrap();
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

fn journals(dir: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(dir.join("engine")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = found.filter(|path| path.extension().is_some_and(|end| end == "jnl")).collect();
    found.sort();
    found
}

#[test]
fn what_a_dead_master_wrote_is_read_once() {
    let scratch = common::Scratch::new("journals");
    let dir = scratch.path().join("volume");
    die_after(&dir, 1, 200, 1000);
    let before = journals(&dir);
    assert_eq!(before.len(), 1);

    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(2)).unwrap();
    assert_eq!(engine.last_seq().0, 200);
    let deadline = Instant::now() + Duration::from_secs(30);
    while before[0].exists() {
        assert!(Instant::now() < deadline, "{:?} is still there", journals(&dir));
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(engine);
    let [after] = &journals(&dir)[..] else { panic!("{:?}", journals(&dir)) };
    let bytes = fs::read(after).unwrap();
    assert!(bytes.iter().skip(1000).all(|byte| *byte == 0), "the claim alone, and room");

    // All of it is in tables now, and what follows in the new journal.
    die_after(&dir, 3, 20, 1000);
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(4)).unwrap();
    assert_eq!(engine.last_seq().0, 220);
    (1..=220).for_each(|seq| {
        assert_eq!(engine.get(&common::key(seq)).unwrap(), Some(vec![seq as u8; 1000]), "{seq}");
    });
}

#[test]
fn short_journals_go_on() {
    let scratch = common::Scratch::new("short");
    let dir = scratch.path().join("volume");
    for generation in 1..=10 {
        die_after(&dir, generation, 2, 100);
    }
    assert_eq!(journals(&dir).len(), 1);
    assert_eq!(FjallEngine::open(&dir, OPTIONS, Claim::new(11)).unwrap().last_seq().0, 20);
}

/// Killed between the beginning of a journal and the opening that was to use it.
#[test]
fn an_empty_journal_behind_a_long_one_is_no_damage() {
    let scratch = common::Scratch::new("empty");
    let dir = scratch.path().join("volume");
    die_after(&dir, 1, 200, 1000);
    fs::write(dir.join("engine/1.jnl"), "").unwrap();
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(2)).unwrap();
    assert_eq!(engine.last_seq().0, 200);
    assert!(!dir.join("engine/2.jnl").exists());
}

/// Goal: whoever opens a volume syncs it as fast as who made it, and loses nothing by it. Method: a journal is gone on with, with
/// room ahead, and read by the next.
#[test]
fn a_journal_that_goes_on_has_room_ahead() {
    let scratch = common::Scratch::new("room");
    let dir = scratch.path().join("volume");
    for generation in 1..=4 {
        let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(generation * 10 - 1)).unwrap();
        let first = engine.last_seq().0 + 1;
        for seq in first..first + 5 {
            engine.commit(common::batch(seq, 100)).unwrap();
            engine.sync().unwrap();
            engine.prepare().unwrap();
        }
        engine.settle().unwrap();
        let [journal] = &journals(&dir)[..] else { panic!("{:?}", journals(&dir)) };
        let metadata = fs::metadata(journal).unwrap();
        assert_eq!(metadata.len(), 64 << 20, "at opening {generation}");
        assert!(metadata.blocks() * 512 >= 1 << 20, "zeros are written");
        drop(engine);
        die_after(&dir, generation * 10, 1, 100);
    }
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(50)).unwrap();
    assert_eq!(engine.last_seq().0, 24);
    (1..=24).for_each(|seq| assert!(engine.get(&common::key(seq)).unwrap().is_some(), "{seq}"));
}

/// Goal: a volume that a copy has made sparse loses nothing to zeros ahead. Method: a value of zeros becomes a hole of the journal,
/// with batches behind it.
#[test]
fn a_journal_with_holes_amid_its_batches_stays_whole() {
    let scratch = common::Scratch::new("holes");
    let dir = scratch.path().join("volume");
    let options = Options { journal_bytes: 1 << 20, ..OPTIONS };
    let open = |generation| FjallEngine::open(&dir, options, Claim::new(generation)).unwrap();
    let put = |engine: &FjallEngine, value: &[u8]| {
        let seq = engine.last_seq().next();
        let puts = vec![(common::key(seq.0), value.to_vec())];
        engine.commit(Batch { puts, ..Batch::new(seq) }).unwrap();
        engine.sync().unwrap();
        engine.prepare().unwrap();
    };
    let engine = open(1);
    put(&engine, &[1; 100]);
    put(&engine, &[0; 256 << 10]);
    put(&engine, &[3; 100]);
    engine.settle().unwrap();
    drop(engine);
    let [journal] = &journals(&dir)[..] else { panic!("{:?}", journals(&dir)) };
    make_sparse(journal);

    let engine = open(2);
    let journal = fs::File::open(journal).unwrap();
    assert!(rustix::fs::seek(&journal, SeekFrom::Hole(0)).unwrap() < 256 << 10, "a hole in the second batch");
    (4..=6).for_each(|byte| put(&engine, &[byte; 100]));
    engine.settle().unwrap();
    drop(engine);
    let engine = open(3);
    assert_eq!(engine.last_seq().0, 6);
    (3..=6).for_each(|seq| {
        assert_eq!(engine.get(&common::key(seq)).unwrap(), Some(vec![seq as u8; 100]), "{seq}");
    });
}

/// Copies a file over itself as `cp --sparse=always` does.
fn make_sparse(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::remove_file(path).unwrap();
    let file = fs::File::create(path).unwrap();
    for (at, block) in bytes.chunks(4096).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0))
    {
        file.write_all_at(block, at as u64 * 4096).unwrap();
    }
    file.set_len(bytes.len() as u64).unwrap();
}
