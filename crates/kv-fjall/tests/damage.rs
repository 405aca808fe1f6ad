//! Damages a volume by hand and opens it: synced batches are never missing without a word, nothing panics.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use kv::{Direction, Engine, EngineError, FileWitness, Generation, KeyRange, Mark, ScanLimit, Seq, Witness};
use kv_fjall::{FjallEngine, Options};

mod common;
use common::{Scratch, batch, open};

const SYNCED: u64 = 200;
const COMMITTED: u64 = 240;

/// Batches up to `SYNCED` are synced, those up to `COMMITTED` are not.
struct Template {
    scratch: Scratch,
    /// Length of the journal when `SYNCED` was synced.
    synced_len: u64,
    full_len: u64,
}

impl Template {
    fn new() -> Self {
        let scratch = Scratch::new("template");
        let engine = open(scratch.path(), 1).unwrap();
        (1..=SYNCED).for_each(|seq| engine.commit(batch(seq, 1000)).unwrap());
        engine.sync().unwrap();
        let synced_len = used_len(&journal(scratch.path()));
        (SYNCED + 1..=COMMITTED).for_each(|seq| engine.commit(batch(seq, 1000)).unwrap());
        drop(engine);
        let full_len = used_len(&journal(scratch.path()));
        Self { scratch, synced_len, full_len }
    }

    fn copy(&self) -> Scratch {
        let scratch = Scratch::new("copy");
        copy_tree(self.scratch.path(), scratch.path());
        scratch
    }
}

fn journal(dir: &Path) -> PathBuf {
    dir.join("engine/0.jnl")
}

fn used_len(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// Leaves out the zeros behind a journal.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else if entry.path().extension().is_some_and(|extension| extension == "jnl") {
            let mut bytes = fs::read(entry.path()).unwrap();
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
            fs::write(target, bytes).unwrap();
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

fn flip(path: &Path, offset: u64) {
    let mut byte = [0];
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

fn truncate(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Opens twice: a first opening must not cover damage up.
#[track_caller]
fn refused(dir: &Path, what: &str) -> EngineError {
    let mut last = None;
    for generation in [2, 3] {
        match open(dir, generation) {
            Ok(engine) => panic!("{what}: served up to {} in opening {generation}", engine.last_seq()),
            Err(error @ (EngineError::Corrupt { .. } | EngineError::Behind { .. })) => last = Some(error),
            Err(error) => panic!("{what}: {error:?}"),
        }
    }
    last.unwrap()
}

#[track_caller]
fn check_prefix(engine: &FjallEngine, at_least: u64) {
    let last = engine.last_seq().0;
    assert!((at_least..=COMMITTED).contains(&last), "{last} is left, {at_least} was synced");
    assert_eq!(engine.get(b"last").unwrap(), Some(last.to_be_bytes().to_vec()));
    for seq in 1..=COMMITTED {
        let expected = (seq <= last).then(|| vec![seq as u8; 1000]);
        assert_eq!(engine.get(&common::key(seq)).unwrap(), expected, "batch {seq}");
    }
}

#[test]
fn a_page_zeroed_amid_synced_batches_is_refused() {
    let template = Template::new();
    for page in (0..template.synced_len / 4096).step_by(7) {
        let copy = template.copy();
        overwrite(&journal(copy.path()), page * 4096, &[0; 4096]);
        refused(copy.path(), &format!("page {page}"));
    }
}

#[test]
fn a_byte_flipped_in_a_synced_value_is_refused_by_the_name_of_its_file() {
    let template = Template::new();
    let copy = template.copy();
    let offset = template.synced_len / 2;
    let bytes = fs::read(journal(copy.path())).unwrap();
    let run = bytes[offset as usize..].windows(64).position(|window| window == [window[0]; 64]).unwrap();
    flip(&journal(copy.path()), offset + run as u64 + 32);
    match refused(copy.path(), "flip") {
        EngineError::Corrupt { path, .. } => assert_eq!(path, journal(copy.path())),
        error => panic!("{error:?}"),
    }
}

#[test]
fn a_byte_flipped_anywhere_in_synced_batches_is_refused() {
    let template = Template::new();
    // Through the length of two batches, so every field of the format; each flip is taken back.
    let copy = template.copy();
    let path = journal(copy.path());
    let start = template.synced_len / 2;
    for offset in start..start + 2300 {
        let before = fs::read(&path).unwrap();
        let is_bulk = before[offset as usize - 8..offset as usize + 8] == [before[offset as usize]; 16];
        if is_bulk && offset % 97 != 0 {
            continue;
        }
        flip(&path, offset);
        refused(copy.path(), &format!("offset {offset}"));
        flip(&path, offset);
        assert_eq!(fs::read(&path).unwrap(), before, "offset {offset}: the opening changed the journal");
        let _ = fs::remove_file(copy.path().join("damaged"));
    }
}

#[test]
fn an_unsynced_tail_that_is_cut_or_zeroed_leaves_a_prefix() {
    let template = Template::new();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..20 {
        let copy = template.copy();
        let path = journal(copy.path());
        let offset = random.u64(template.synced_len..template.full_len);
        match round % 3 {
            0 => truncate(&path, offset),
            1 => overwrite(&path, offset, &[0; 600][..600.min((template.full_len - offset) as usize)]),
            _ => flip(&path, offset),
        }
        let opened = open(copy.path(), 2);
        let engine = opened.unwrap_or_else(|error| panic!("{round} at {offset}: {error:?}"));
        check_prefix(&engine, SYNCED);
        let next = engine.last_seq().next();
        engine.commit(batch(next.0, 1000)).unwrap();
        engine.sync().unwrap();
        drop(engine);
        assert_eq!(open(copy.path(), 3).unwrap().last_seq(), next);
    }
}

#[test]
fn a_journal_cut_below_the_witness_is_behind() {
    let template = Template::new();
    for part in [10, 3, 2] {
        let copy = template.copy();
        truncate(&journal(copy.path()), template.synced_len / part);
        match refused(copy.path(), "cut") {
            EngineError::Behind { witness_seq, engine_seq, .. } => {
                assert_eq!(witness_seq, Seq(SYNCED));
                assert!(engine_seq < witness_seq);
            }
            error => panic!("{error:?}"),
        }
    }
}

#[test]
fn removed_files_are_refused_and_nothing_else_is_removed() {
    let template = Template::new();
    for name in ["witness", "engine/version", "engine/keyspaces/0/current", "engine/keyspaces/1/current"] {
        let copy = template.copy();
        fs::remove_file(copy.path().join(name)).unwrap();
        let message = refused(copy.path(), name).to_string();
        assert!(message.contains(name), "{message}");
        assert_eq!(used_len(&journal(copy.path())), template.full_len);
    }
    for name in ["engine/0.jnl", "engine"] {
        let copy = template.copy();
        let path = copy.path().join(name);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        refused(copy.path(), name);
    }
}

/// Goal: no journal is one thing after a close and another when it held what was synced; and what somebody took away he can put back.
#[test]
fn a_journal_that_somebody_removed_is_missed_until_it_is_back() {
    for closes_first in [false, true] {
        let scratch = Scratch::new("removed");
        let mut generation = 1;
        if closes_first {
            let engine = open(scratch.path(), generation).unwrap();
            (1..=5).for_each(|seq| engine.commit(batch(seq, 1000)).unwrap());
            Box::new(engine).close().unwrap();
            generation += 1;
        }
        let engine = open(scratch.path(), generation).unwrap();
        let first = engine.last_seq().0 + 1;
        (first..first + 5).for_each(|seq| engine.commit(batch(seq, 1000)).unwrap());
        engine.sync().unwrap();
        drop(engine);
        let journal = scratch.path().join(if closes_first { "engine/1.jnl" } else { "engine/0.jnl" });
        let aside = scratch.path().join("aside");
        fs::rename(&journal, &aside).unwrap();
        for _ in 0..2 {
            match open(scratch.path(), generation + 1).map(drop) {
                Err(EngineError::Behind { engine_seq, witness_seq, .. }) => {
                    assert_eq!((engine_seq, witness_seq), (Seq(first - 1), Seq(first + 4)));
                }
                other => panic!("{other:?}"),
            }
        }
        fs::rename(&aside, &journal).unwrap();
        check_prefix(&open(scratch.path(), generation + 1).unwrap(), first + 4);
    }
}

#[test]
fn a_torn_witness_falls_back_and_a_lost_one_is_refused() {
    let template = Template::new();
    for slot in [0, 4096] {
        let copy = template.copy();
        overwrite(&copy.path().join("witness"), slot + 16, &[0xAA; 30]);
        check_prefix(&open(copy.path(), 2).unwrap(), SYNCED);
    }
    let copy = template.copy();
    overwrite(&copy.path().join("witness"), 0, &[0xAA; 8192]);
    refused(copy.path(), "both slots");
}

#[test]
fn a_second_opening_waits_outside_and_a_zombie_is_fenced_for_good() {
    let scratch = Scratch::new("zombie");
    let engine = open(scratch.path(), 1).unwrap();
    engine.commit(batch(1, 10)).unwrap();
    assert!(matches!(open(scratch.path(), 2), Err(EngineError::Unavailable { .. })));
    // What a successor does whom the lock did not stop, on another host for one.
    let mut witness = FileWitness::open(&scratch.path().join("witness")).unwrap().unwrap();
    witness.record(Mark { generation: Generation(2), ..witness.mark() }).unwrap();
    for _ in 0..2 {
        assert!(matches!(engine.commit(batch(2, 10)), Err(EngineError::Fenced { .. })));
        assert!(matches!(engine.sync(), Err(EngineError::Fenced { .. })));
    }
    drop(engine);
    assert!(matches!(open(scratch.path(), 2), Err(EngineError::Fenced { .. })));
    assert_eq!(open(scratch.path(), 3).unwrap().last_seq(), Seq(1));
}

#[test]
fn a_hole_between_tables_and_journals_is_refused() {
    let scratch = Scratch::new("hole");
    let engine = open(scratch.path(), 1).unwrap();
    let journals = || {
        let entries = fs::read_dir(scratch.path().join("engine")).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "jnl")).collect();
        found.sort();
        found
    };
    // Past the size at which fjall starts a second journal, with the first still needed.
    let mut seq = 0;
    while journals().len() < 2 {
        seq += 1;
        assert!(seq < 4000, "no second journal");
        engine.commit(batch(seq, 100_000)).unwrap();
        // It is the engine's thread that starts one, when a busy machine lets it.
        if seq > 1000 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    (seq + 1..seq + 20).for_each(|seq| engine.commit(batch(seq, 1000)).unwrap());
    engine.sync().unwrap();
    drop(engine);
    let found = journals();
    if found.len() < 2 {
        return; // Flushed and deleted before the engine was dropped.
    }
    let copy = Scratch::new("hole-amid");
    copy_tree(scratch.path(), copy.path());
    overwrite(&copy.path().join("engine").join(found[0].file_name().unwrap()), 60_000_000, &[0; 4096]);
    refused(copy.path(), "page zeroed in a sealed journal");
    fs::remove_file(&found[0]).unwrap();
    refused(scratch.path(), "sealed journal removed");
}

/// A volume with several tables, all synced.
fn volume_with_tables() -> Scratch {
    let scratch = Scratch::new("tables");
    let options = Options { memtable_bytes: 64 << 10, ..Options::default() };
    let engine = FjallEngine::open(scratch.path(), options, kv::Claim::new(1)).unwrap();
    (1..=SYNCED).for_each(|seq| engine.commit(batch(seq, 1000)).unwrap());
    Box::new(engine).close().unwrap();
    scratch
}

/// Returns whether the volume was served, and with all its records; the other way out is to be refused.
#[track_caller]
fn is_served_whole(dir: &Path, what: &str) -> bool {
    match read_all(dir) {
        Ok(entries) => {
            assert_eq!(entries.len() as u64, SYNCED + 1, "{what}");
            let own = entries.iter().filter(|(key, _)| key != b"last");
            assert!(own.zip(1..).all(|(entry, seq)| *entry == batch(seq, 1000).puts[0]), "{what}");
            true
        }
        Err(EngineError::Corrupt { .. } | EngineError::Behind { .. }) => false,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

#[test]
fn a_byte_flipped_in_any_file_gives_an_error_or_the_right_records() {
    let base = volume_with_tables();
    let mut random = fastrand::Rng::with_seed(11);
    let mut refused = 0;
    for round in 0..60 {
        let copy = Scratch::new("flip");
        copy_tree(base.path(), copy.path());
        let mut files = Vec::new();
        list_files(&copy.path().join("engine/keyspaces"), &mut files);
        let path = &files[random.usize(..files.len())];
        let len = fs::metadata(path).unwrap().len();
        if len == 0 {
            continue;
        }
        flip(path, random.u64(..len));
        let is_served = is_served_whole(copy.path(), &format!("round {round}: {}", path.display()));
        refused += u32::from(!is_served);
    }
    assert!(refused > 0);
}

/// Goal: a table that a compaction cannot read ends neither the reading of all others nor, for a while, the writing. Method: one table is damaged in
/// its middle, where an opening reads nothing; batches until fjall's thread has read it; then openings, kills and closes by turns, until
/// no more is taken; and the table put right again.
#[test]
fn a_damaged_table_that_a_compaction_meets_is_left_alone() {
    let base = volume_with_tables();
    let mut tables = Vec::new();
    list_files(&base.path().join("engine/keyspaces/1/tables"), &mut tables);
    let damaged = tables.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let middle = fs::metadata(damaged).unwrap().len() / 2;
    flip(damaged, middle);
    let readable = readable(base.path(), 2);
    assert!(!readable.is_empty() && (readable.len() as u64) < SYNCED, "{} can be read", readable.len());
    assert_eq!(kv_fjall::known_damage(base.path()), None, "nobody who only looks meets it");

    let options = Options { memtable_bytes: 64 << 10, ..Options::default() };
    let open = |generation| FjallEngine::open(base.path(), options, kv::Claim::new(generation));
    let engine = open(3).unwrap();
    let mut written = SYNCED;
    let write = |engine: &FjallEngine, seq: &mut u64| {
        engine.commit(batch(*seq + 1, 1000))?;
        *seq += 1;
        Ok(())
    };
    let failed = (0..5_000).try_for_each(|_| write(&engine, &mut written));
    let Err(EngineError::Unavailable { source: Some(cause), .. }) = failed else { panic!("{failed:?}") };
    assert!(cause.to_string().contains(damaged.to_str().unwrap()), "{cause}");
    drop(engine);
    let noted = kv_fjall::known_damage(base.path()).unwrap();
    assert_eq!(base.path().join(noted), *damaged);

    // Whatever was not synced may be lost, and its numbers come again.
    for generation in 4..24 {
        let engine = open(generation).unwrap();
        written = engine.last_seq().0;
        (0..5).for_each(|_| write(&engine, &mut written).unwrap());
        engine.sync().unwrap();
        match generation % 2 {
            0 => drop(engine),
            _ => Box::new(engine).close().unwrap(),
        }
    }
    let engine = open(24).unwrap();
    assert_eq!(engine.last_seq().0, written);
    let from = written;
    let refused = (0..100_000).try_for_each(|_| write(&engine, &mut written)).unwrap_err();
    assert!(matches!(&refused, EngineError::Corrupt { path, .. } if path == damaged), "{refused:?}");
    assert!(written - from > 100, "{} were taken", written - from);
    drop(engine);
    let left = self::readable(base.path(), 25);
    assert!(left.is_superset(&readable) && left.contains(&from), "what could be read can be read");

    flip(damaged, middle);
    let engine = open(26).unwrap();
    assert_eq!(kv_fjall::known_damage(base.path()), None);
    written = engine.last_seq().0;
    (0..5_000).for_each(|_| write(&engine, &mut written).unwrap());
    let has = |seq: u64| engine.get(&common::key(seq)).unwrap().is_some();
    assert!((1..=written).all(has), "everything is there again");
}

/// The batches whose record can be read by who opens without merging.
fn readable(dir: &Path, generation: u64) -> std::collections::BTreeSet<u64> {
    let options = Options { merges: false, ..Options::default() };
    let engine = FjallEngine::open(dir, options, kv::Claim::new(generation)).unwrap();
    let last = engine.last_seq().0;
    let found = (1..=last).filter(|seq| engine.get(&common::key(*seq)).is_ok_and(|value| value.is_some()));
    let found = found.collect();
    Box::new(engine).close().unwrap();
    found
}

/// Goal: who only looks changes no table, however often. Method: as often as fjall would merge what its openings leave.
#[test]
fn who_looks_leaves_the_tables_as_they_are() {
    let base = volume_with_tables();
    let tables = |base: &Scratch| {
        let mut found = Vec::new();
        list_files(&base.path().join("engine/keyspaces/1/tables"), &mut found);
        found
    };
    let before = tables(&base);
    for generation in 2..22 {
        assert_eq!(readable(base.path(), generation).len() as u64, SYNCED);
        assert_eq!(tables(&base), before);
    }
}

#[test]
fn any_file_removed_gives_an_error_or_the_right_records() {
    let base = volume_with_tables();
    let mut files = Vec::new();
    list_files(base.path(), &mut files);
    let mut refused = 0;
    for file in &files {
        let copy = Scratch::new("removed");
        copy_tree(base.path(), copy.path());
        let name = file.strip_prefix(base.path()).unwrap();
        fs::remove_file(copy.path().join(name)).unwrap();
        let is_served = is_served_whole(copy.path(), &name.display().to_string());
        refused += u32::from(!is_served);
    }
    assert!(refused > 5, "{refused} of {}", files.len());
}

fn read_all(dir: &Path) -> kv::Result<Vec<kv::Entry>> {
    let engine = open(dir, 2)?;
    let limit = ScanLimit { entries: usize::MAX, bytes: usize::MAX };
    let page = engine.scan(&KeyRange::new([], [0xFF]), limit, Direction::Forward)?;
    engine.get(&common::key(SYNCED / 2))?;
    Ok(page.entries)
}

fn list_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { list_files(&path, found) } else { found.push(path) }
    }
}

/// A volume with tables in both keyspaces, and its files below `engine/keyspaces`. The tables are too few for a compaction, which would take one away
/// under whoever looks for the damage in it.
fn with_tables() -> (Scratch, Vec<PathBuf>) {
    let scratch = Scratch::new("tables");
    let options = Options { memtable_bytes: 64 << 10, ..Options::default() };
    let engine = FjallEngine::open(scratch.path(), options, kv::Claim::new(1)).unwrap();
    (1..=25).for_each(|seq| engine.commit(batch(seq, 5_000)).unwrap());
    engine.sync().unwrap();
    assert!(engine.verify(&mut |_| true).unwrap().is_empty());
    drop(engine);
    // An opening removes what is left of earlier manifests, and may write another.
    let mut found = Vec::new();
    for generation in 2.. {
        drop(open(scratch.path(), generation).unwrap());
        let before = std::mem::replace(&mut found, keyspace_files(scratch.path()));
        if before == found {
            break;
        }
    }
    let tables = found.iter().filter(|path| path.parent().unwrap().ends_with("tables")).count();
    assert!(tables >= 2 && found.len() >= tables + 4, "{found:?}");
    (scratch, found)
}

fn keyspace_files(volume: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    list_files(&volume.join("engine/keyspaces"), &mut found);
    found.iter().map(|path| path.strip_prefix(volume).unwrap().to_owned()).collect()
}

/// What lsm-tree asserts of its files ended the process: a database that is dropped while it panics panics again.
#[test]
fn a_directory_in_place_of_any_file_is_refused_by_its_name() {
    let (scratch, files) = with_tables();
    for file in files {
        let copy = Scratch::new("directory");
        copy_tree(scratch.path(), copy.path());
        fs::remove_file(copy.path().join(&file)).unwrap();
        fs::create_dir(copy.path().join(&file)).unwrap();
        let message = refused_or_unreadable(copy.path());
        assert!(message.contains(file.to_str().unwrap()), "{message}");
    }
}

fn refused_or_unreadable(dir: &Path) -> String {
    match open(dir, 1_000) {
        Err(error @ (EngineError::Corrupt { .. } | EngineError::Io { .. })) => error.to_string(),
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it is served"),
    }
}

/// Every byte of manifests and of what points to them; of tables, which are read only in part, by `verify`.
#[test]
fn a_byte_flipped_in_a_manifest_or_table_is_found_by_the_name_of_its_file() {
    let (scratch, files) = with_tables();
    for file in files {
        let len = fs::metadata(scratch.path().join(&file)).unwrap().len();
        let is_table = file.parent().unwrap().ends_with("tables");
        let step = if is_table { len as usize / 10 } else { 5 };
        for offset in (0..len).step_by(step.max(1)) {
            let copy = Scratch::new("flip");
            copy_tree(scratch.path(), copy.path());
            flip(&copy.path().join(&file), offset);
            let found = match open(copy.path(), 1_000) {
                Ok(engine) if is_table => engine.verify(&mut |_| true).unwrap().remove(0),
                Ok(_) => panic!("{} at {offset}: served", file.display()),
                Err(error) => error,
            };
            let is_named = |name: &Path| found.to_string().contains(name.to_str().unwrap());
            // A pointer to nowhere is told by what it points to.
            let pointer = file.ends_with("current") && found.to_string().contains("current");
            assert!(is_named(&file) || pointer, "{} at {offset}: {found}", file.display());
        }
    }
}
