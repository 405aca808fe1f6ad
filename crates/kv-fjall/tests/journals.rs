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

use kv::{Batch, Claim, Engine, EngineError, FileWitness, Generation, Mark, Witness};
use kv_fjall::{FjallEngine, Options};
use rustix::fs::SeekFrom;

mod common;

const OPTIONS: Options = Options {
    cache_bytes: 4 << 20,
    memtable_bytes: 64 << 20,
    worker_threads: 1,
    merges: true,
    journal_bytes: 64 << 10,
};

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

/// Bytes of the only journal that are stored.
fn stored_bytes(dir: &Path) -> u64 {
    let [journal] = &journals(dir)[..] else { panic!("{:?}", journals(dir)) };
    fs::metadata(journal).unwrap().blocks() * 512
}

fn close(engine: FjallEngine) {
    Box::new(engine).close().unwrap();
}

/// Commits `count` batches and syncs each.
fn sync_each(engine: &FjallEngine, count: u64) {
    let first = engine.last_seq().0 + 1;
    for seq in first..first + count {
        engine.commit(common::batch(seq, 100)).unwrap();
        engine.sync().unwrap();
        engine.prepare().unwrap();
    }
}

/// Goal: who opens a volume syncs it as fast as who made it, after a close and after a death, when the journal that is there goes on. Method:
/// a volume is closed and left dead by turns.
#[test]
fn after_a_close_and_after_a_death_the_journal_has_room_ahead() {
    let scratch = common::Scratch::in_memory("room");
    let dir = scratch.path().join("volume");
    for round in 0..3 {
        let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(round * 4 + 1)).unwrap();
        sync_each(&engine, 5);
        assert!(stored_bytes(&dir) >= 1 << 20, "zeros are written");
        close(engine);
        assert!(journals(&dir).is_empty(), "{:?}", journals(&dir));

        die_after(&dir, round * 4 + 2, 3, 100);
        let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(round * 4 + 3)).unwrap();
        assert!(stored_bytes(&dir) < 1 << 20, "the journal that was there");
        sync_each(&engine, 5);
        assert!(stored_bytes(&dir) >= 1 << 20, "zeros are written");
        close(engine);
    }
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(20)).unwrap();
    assert_eq!(engine.last_seq().0, 39);
    (1..=39).for_each(|seq| assert!(engine.get(&common::key(seq)).unwrap().is_some(), "{seq}"));
}

/// Goal: batches follow one another in a journal that one master after another finds with zeros behind its end. Method: each syncs a few, leaves
/// room ahead and dies.
#[test]
fn masters_that_die_one_after_another_leave_batches_without_a_gap() {
    let scratch = common::Scratch::new("gap");
    let dir = scratch.path().join("volume");
    for generation in 1..=6 {
        let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(generation)).unwrap();
        assert_eq!(engine.last_seq().0, (generation - 1) * 4);
        sync_each(&engine, 4);
        let copy = dir.with_extension("copy");
        copy_tree(&dir, &copy);
        drop(engine);
        fs::remove_dir_all(&dir).unwrap();
        fs::rename(copy, &dir).unwrap();
    }
    let [journal] = &journals(&dir)[..] else { panic!("{:?}", journals(&dir)) };
    let bytes = fs::read(journal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    assert!(end < 24 * 400, "they end at {end}");
    assert!(bytes.len() >= end + (1 << 20), "{} bytes", bytes.len());
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(7)).unwrap();
    (1..=24).for_each(|seq| assert!(engine.get(&common::key(seq)).unwrap().is_some(), "{seq}"));
}

/// Goal: what is written after an opening without a journal stands above what is in tables. Method: one key is written, removed and
/// read by turns, in few batches after many, through closes, deaths and flushes.
#[test]
fn after_a_close_new_values_hide_those_in_tables() {
    let scratch = common::Scratch::new("above");
    let dir = scratch.path().join("volume");
    let options = Options { memtable_bytes: 64 << 10, ..OPTIONS };
    let mut generation = 0;
    let mut expected = None;
    for count in [300, 1, 2, 40, 1, 1, 3, 200, 1] {
        generation += 1;
        let engine = FjallEngine::open(&dir, options, Claim::new(generation)).unwrap();
        assert_eq!(engine.get(b"one").unwrap(), expected, "generation {generation}");
        for _ in 0..count {
            let seq = engine.last_seq().next();
            let mut batch = common::batch(seq.0, 500);
            expected = (!seq.0.is_multiple_of(3)).then(|| seq.0.to_be_bytes().to_vec());
            match &expected {
                Some(value) => batch.puts.push((b"one".to_vec(), value.clone())),
                None => batch.deletes.push(b"one".to_vec()),
            }
            engine.commit(batch).unwrap();
            assert_eq!(engine.get(b"one").unwrap(), expected, "batch {seq}");
        }
        let last = engine.last_seq().0;
        assert_eq!(engine.get(b"last").unwrap(), Some(last.to_be_bytes().to_vec()));
        match generation % 4 {
            0 => drop(engine),
            _ => close(engine),
        }
    }
}

#[test]
fn without_a_close_and_after_a_failure_the_journals_stay() {
    let scratch = common::Scratch::new("stay");
    let dir = scratch.path().join("volume");
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(1)).unwrap();
    sync_each(&engine, 3);
    drop(engine);
    assert_eq!(journals(&dir).len(), 1);

    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(2)).unwrap();
    engine.commit(common::batch(4, 100)).unwrap();
    // A later master, whom the lock did not stop.
    let mut witness = FileWitness::open(&dir.join("witness")).unwrap().unwrap();
    witness.record(Mark { generation: Generation(3), ..witness.mark() }).unwrap();
    assert!(matches!(Box::new(engine).close(), Err(EngineError::Fenced { .. })));
    assert_eq!(journals(&dir).len(), 1);
    assert_eq!(FjallEngine::open(&dir, OPTIONS, Claim::new(4)).unwrap().last_seq().0, 4);
}

/// Goal: a loss of power amid the removals of a close leaves a volume that opens. Method: two journals, both flushed, of which the
/// older or both are gone.
#[test]
fn a_close_that_was_cut_short_is_no_damage() {
    let scratch = common::Scratch::in_memory("short-close");
    let dir = scratch.path().join("volume");
    die_after(&dir, 1, 200, 1000);
    // Journals beside the tables that hold what is in them.
    let before = dir.with_extension("before");
    copy_tree(&dir, &before);
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(2)).unwrap();
    sync_each(&engine, 3);
    let copied = fs::read(dir.join("engine/1.jnl")).unwrap();
    close(engine);
    assert!(journals(&dir).is_empty(), "{:?}", journals(&dir));
    for older in [true, false] {
        let left = dir.with_extension("left");
        copy_tree(&dir, &left);
        if older {
            fs::copy(before.join("engine/0.jnl"), left.join("engine/0.jnl")).unwrap();
        }
        fs::write(left.join("engine/1.jnl"), &copied).unwrap();
        let engine = FjallEngine::open(&left, OPTIONS, Claim::new(3)).unwrap();
        assert_eq!(engine.last_seq().0, 203);
        sync_each(&engine, 3);
        close(engine);
        assert_eq!(FjallEngine::open(&left, OPTIONS, Claim::new(4)).unwrap().last_seq().0, 206);
        fs::remove_dir_all(left).unwrap();
    }
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
    drop(engine);
    let [journal] = &journals(&dir)[..] else { panic!("{:?}", journals(&dir)) };
    make_sparse(journal);
    let journal = fs::File::open(journal).unwrap();
    assert!(rustix::fs::seek(&journal, SeekFrom::Hole(0)).unwrap() < 256 << 10, "a hole in the second batch");

    let engine = open(2);
    (4..=6).for_each(|byte| put(&engine, &[byte; 100]));
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

/// Goal: an opening that finds the start of a journal damaged refuses, and changes nothing: once the disk reads right again all is there. Method: what a kill leaves is damaged in its
/// first bytes or in all of its first sector, opened, and mended; the same where a process has died while the journal was set aside.
#[test]
fn a_journal_that_is_damaged_at_its_start_stays_whole() {
    let scratch = common::Scratch::new("journals-start");
    let dir = scratch.path().join("volume");
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(1)).unwrap();
    sync_each(&engine, 50);
    let copy = dir.with_extension("copy");
    copy_tree(&dir, &copy);
    drop(engine);
    for damaged in [0..1, 13..14, 0..512] {
        let work = dir.with_extension("work");
        copy_tree(&copy, &work);
        let [journal] = &journals(&work)[..] else { panic!("{:?}", journals(&work)) };
        let sound = fs::read(journal).unwrap();
        let mut bytes = sound.clone();
        bytes[damaged.clone()]
            .iter_mut()
            .for_each(|byte| *byte = if damaged.len() == 1 { *byte ^ 4 } else { 0 });
        fs::write(journal, &bytes).unwrap();
        for generation in 2..4 {
            let refused = FjallEngine::open(&work, OPTIONS, Claim::new(generation)).map(drop);
            assert!(matches!(refused, Err(EngineError::Behind { .. })), "{damaged:?}: {refused:?}");
            assert!(fs::read(journal).unwrap() == bytes, "{damaged:?}: it is as it was");
        }
        fs::write(journal, &sound).unwrap();
        fs::rename(journal, journal.with_extension("aside")).unwrap();
        let engine = FjallEngine::open(&work, OPTIONS, Claim::new(5)).unwrap();
        assert_eq!(engine.last_seq().0, 50, "{damaged:?}");
        drop(engine);
        fs::remove_dir_all(&work).unwrap();
    }
}

/// What a loss of power leaves of a first batch that was never synced is not waited for: the tables hold all.
#[test]
fn a_first_batch_that_is_torn_is_no_damage() {
    let scratch = common::Scratch::new("journals-torn");
    let dir = scratch.path().join("volume");
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(1)).unwrap();
    sync_each(&engine, 50);
    close(engine);
    assert!(journals(&dir).is_empty());
    fs::write(dir.join("engine/9.jnl"), [7; 300]).unwrap();
    for generation in 2..5 {
        let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(generation)).unwrap();
        let last = engine.last_seq().0;
        assert_eq!(last, 50 + 10 * (generation - 2));
        (last + 1..=last + 10).for_each(|seq| engine.commit(common::batch(seq, 100)).unwrap());
        engine.sync().unwrap();
        drop(engine);
        let left = fs::read_dir(dir.join("engine")).unwrap().map(|entry| entry.unwrap().path());
        assert!(left.into_iter().all(|path| path.extension().is_none_or(|end| end != "aside")));
    }
}

/// Goal: what was set aside once and comes back with a loss of power is not put in the place of what was synced since. Method: a journal that nobody can read lies beside
/// one of the same name that is used.
#[test]
fn a_journal_that_comes_back_takes_no_place() {
    let scratch = common::Scratch::new("journals-back");
    let dir = scratch.path().join("volume");
    let engine = FjallEngine::open(&dir, OPTIONS, Claim::new(1)).unwrap();
    sync_each(&engine, 50);
    let copy = dir.with_extension("copy");
    copy_tree(&dir, &copy);
    drop(engine);
    let [journal] = &journals(&copy)[..] else { panic!("{:?}", journals(&copy)) };
    fs::write(journal.with_extension("aside"), [7; 300]).unwrap();
    let engine = FjallEngine::open(&copy, OPTIONS, Claim::new(2)).unwrap();
    assert_eq!(engine.last_seq().0, 50);
    assert!(!journal.with_extension("aside").exists());
}
