//! Takes the power away from under the engine.
//!
//! Goal: what `sync` answered survives a loss of power at any moment, what is left is a prefix of what was committed,
//! and the volume opens and goes on. Method: an engine works on a disk that keeps a log (`testkit::crash_disk`),
//! with memtables so small that it flushes, compacts and changes journals all the time, and is opened anew in between; then
//! for many points of that log the disk is made as a loss of power would leave it, and the engine opened on it.
//!
//! `HOLDFAST_SEED` begins the seeds, `HOLDFAST_CRASHES` says how many crashes in the long form.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use fastrand::Rng;
use kv::{Batch, Claim, Direction, Engine, EngineError, KeyRange, ScanLimit, Seq};
use kv_fjall::{FjallEngine, Options};
use testkit::crash_disk::{CrashDisk, Image, Log, Promise};

mod common;

const OPTIONS: Options = Options {
    cache_bytes: 4 << 20,
    memtable_bytes: 64 << 10,
    worker_threads: 1,
    merges: true,
    journal_bytes: 16 << 10,
};

/// A run of the engine, and what it was told when.
struct Run {
    log: Log,
    /// Position and batch: each was asked for at that position, and not before.
    asked: Vec<(usize, u64)>,
    /// Position and batch: each was durable at that position.
    synced: Vec<(usize, u64)>,
    batches: u64,
    /// Closes, and how many of them left no journal.
    closes: (u32, u32),
}

impl Run {
    /// Works on a disk that begins as `start`.
    fn new(scratch: &common::Scratch, start: Image, seed: u64, batches: u64) -> Self {
        let at = scratch.path().join("disk");
        fs::create_dir_all(&at).unwrap();
        // Large enough for zeros ahead.
        let disk = CrashDisk::mount(&at, start, 1 << 30).unwrap();
        let mut random = Rng::with_seed(seed);
        let (mut asked, mut synced) = (Vec::new(), Vec::new());
        let mut closes = (0, 0);
        let mut engine = open(&at.join("meta"));
        let end = engine.last_seq().0 + batches;
        while engine.last_seq().0 < end {
            let seq = engine.last_seq().next();
            asked.push((disk.position(), seq.0));
            engine.commit(batch(seq, &mut random)).unwrap();
            if random.u8(0..6) == 0 {
                synced.push((0, engine.sync().unwrap().0));
                // As whoever syncs does, and every now and then not in time.
                if random.u8(0..4) != 0 {
                    engine.prepare().unwrap();
                }
                if random.u8(0..8) == 0 {
                    engine.settle().unwrap();
                }
            }
            if random.u16(0..50) == 0 {
                let last = engine.last_seq().0;
                if random.bool() {
                    Box::new(engine).close().unwrap();
                    synced.push((0, last));
                    closes.0 += 1;
                    closes.1 += u32::from(journals(&at.join("meta")).is_empty());
                } else {
                    drop(engine);
                }
                engine = open(&at.join("meta"));
                assert_eq!(engine.last_seq().0, last);
            }
            let position = disk.position();
            synced.iter_mut().rev().take_while(|(at, _)| *at == 0).for_each(|(at, _)| *at = position);
        }
        drop(engine);
        Self { log: disk.finish(), asked, synced, batches: end, closes }
    }

    /// The batches that must and that may be there at `position`.
    fn bounds(&self, position: usize) -> (u64, u64) {
        let last_before = |list: &[(usize, u64)]| match list.partition_point(|(at, _)| *at <= position) {
            0 => None,
            count => Some(list[count - 1].1),
        };
        let first = self.asked.first().map_or(0, |(_, seq)| seq - 1);
        (last_before(&self.synced).unwrap_or(0), last_before(&self.asked).unwrap_or(first))
    }
}

/// A key of its own, one that all share, one that comes and goes.
fn batch(seq: Seq, random: &mut Rng) -> Batch {
    let mut batch = common::batch(seq.0, random.usize(0..6_000));
    match seq.0.is_multiple_of(2) {
        true => batch.deletes.push(b"odd".to_vec()),
        false => batch.puts.push((b"odd".to_vec(), b"is there".to_vec())),
    }
    batch
}

/// Opens it as its next master.
fn try_open(dir: &Path) -> kv::Result<FjallEngine> {
    let mut generation = 1;
    loop {
        match FjallEngine::open(dir, OPTIONS, Claim::new(generation)) {
            Err(EngineError::Fenced { stored, .. }) if stored.0 >= generation => generation = stored.0 + 1,
            result => return result,
        }
    }
}

fn open(dir: &Path) -> FjallEngine {
    try_open(dir).unwrap_or_else(|error| panic!("{}: {error:?}", dir.display()))
}

/// Where images are made: in memory if that is possible.
fn image_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    parent.join(format!("holdfast-kv-power-{}-{count}", std::process::id()))
}

/// What a crash leaves, in a directory that goes with it.
struct Crashed(PathBuf);

impl Crashed {
    fn new(image: &Image) -> Self {
        let dir = image_dir();
        fs::create_dir(&dir).unwrap();
        image.store("", &dir).unwrap();
        Self(dir)
    }
}

impl Drop for Crashed {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Crashes `run` at `position` and opens what is left.
fn check(run: &Run, image: &Image, position: usize, goes_on: bool) -> Result<u64, String> {
    let crashed = Crashed::new(image);
    let dir = crashed.0.join("meta");
    let (least, most) = run.bounds(position);
    let journals = journals(&dir);
    let engine = try_open(&dir)
        .map_err(|error| format!("{error:?}; {least} was synced; there were journals {journals:?}"))?;
    let last = engine.last_seq().0;
    if !(least..=most).contains(&last) {
        return Err(format!("{last} is left, {least} was synced, {most} was committed"));
    }
    check_prefix(&engine)?;
    if goes_on {
        let mut random = Rng::with_seed(last);
        for _ in 0..40 {
            engine.commit(batch(engine.last_seq().next(), &mut random)).map_err(|e| e.to_string())?;
        }
        Box::new(engine).close().map_err(|e| e.to_string())?;
        let engine = try_open(&dir).map_err(|error| format!("the second time: {error:?}"))?;
        if engine.last_seq().0 != last + 40 {
            return Err(format!("{} is left of {} the second time", engine.last_seq(), last + 40));
        }
        check_prefix(&engine)?;
    }
    Ok(last)
}

/// Numbers and lengths of the journals.
fn journals(dir: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(dir.join("engine")).into_iter().flatten().map(|entry| entry.unwrap());
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let journals = entries.filter(|entry| name(entry).ends_with(".jnl"));
    let mut found: Vec<_> = journals.map(|entry| (name(&entry), entry.metadata().unwrap().len())).collect();
    found.sort();
    found
}

fn check_prefix(engine: &FjallEngine) -> Result<(), String> {
    let last = engine.last_seq().0;
    let read = |key: &[u8]| engine.get(key).map_err(|error| error.to_string());
    if last > 0 && read(b"last")? != Some(last.to_be_bytes().to_vec()) {
        return Err(format!("the last of {last} is another"));
    }
    if read(b"odd")?.is_some() == last.is_multiple_of(2) {
        return Err(format!("of {last} the odd key is wrong"));
    }
    let limit = ScanLimit { entries: usize::MAX, bytes: usize::MAX };
    let page = engine
        .scan(&KeyRange::new(common::key(0), common::key(u64::MAX)), limit, Direction::Forward)
        .map_err(|error| error.to_string())?;
    let expected = (1..=last).map(common::key);
    let is_prefix = page.entries.iter().map(|(key, _)| key.clone()).eq(expected);
    let is_whole =
        page.entries.iter().zip(1..).all(|((_, value), seq)| value.iter().all(|byte| *byte == seq as u8));
    match is_prefix && is_whole {
        true => Ok(()),
        false => Err(format!("{} records of {last} are left", page.entries.len())),
    }
}

fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !can {
        println!("SKIPPED: mounting needs root and /dev/fuse");
    }
    can
}

/// Crashes at points of the whole log, sync boundaries first among them, until the time or the count is up.
fn crash_everywhere(seed: u64, batches: u64, count: usize, patience: Duration) {
    if !can_mount() {
        return;
    }
    let scratch = common::Scratch::new("power");
    let since = Instant::now();
    let mut random = Rng::with_seed(seed);
    let (mut start, mut crashes, mut left) = (Image::empty(), 0, 0);
    let (mut generation, mut closes, mut zeros_ahead) = (0, (0, 0), 0);
    while crashes < count && since.elapsed() < patience {
        let run = Run::new(&scratch, start, random.u64(..), batches);
        closes = (closes.0 + run.closes.0, closes.1 + run.closes.1);
        zeros_ahead += run.log.describe(0, run.log.len()).lines().filter(|line| is_of_zeros(line)).count();
        let mut positions = run.log.sync_boundaries();
        let between = positions.len() / 2;
        positions.extend((0..between).map(|_| random.usize(0..=run.log.len())));
        random.shuffle(&mut positions);
        positions.truncate((count - crashes).min(CRASHES_OF_A_RUN));
        positions.sort_unstable();
        println!(
            "run {generation}: {} events, {} batches, {} crashes",
            run.log.len(),
            run.batches,
            positions.len()
        );
        let mut replays =
            [Promise::OrderedNames, Promise::Nothing].map(|promise| (promise, run.log.replay(promise)));
        let mut next = Image::empty();
        for (index, position) in positions.iter().enumerate() {
            let (promise, replay) = &mut replays[index % 2];
            replay.advance(*position);
            let drawn = random.u64(..);
            let image = replay.crash(&mut Rng::with_seed(drawn));
            match check(&run, &image, *position, index % 8 == 0) {
                Ok(last) => left = left.max(last),
                Err(what) => panic!(
                    "seed {seed}, run {generation}, {promise:?}, position {position}, drawn {drawn}: {what}\n{}",
                    run.log.describe(position.saturating_sub(20), position + 2)
                ),
            }
            crashes += 1;
            if since.elapsed() > patience {
                break;
            }
            next = image;
        }
        generation += 1;
        // The next run goes on from a crash, so that the opening after one is crashed, too. Small volumes are faster.
        start = if generation % 4 == 0 { Image::empty() } else { next };
    }
    println!(
        "{crashes} crashes in {generation} runs, {left} batches, {:.1} s",
        since.elapsed().as_secs_f64()
    );
    println!(
        "{} of {} closes left no journal, {zeros_ahead} times zeros were written ahead",
        closes.1, closes.0
    );
    assert!(closes.1 * 2 >= closes.0, "{} of {} closes left no journal", closes.1, closes.0);
    assert!(zeros_ahead > 0, "no journal had zeros written ahead");
    assert!(crashes >= 50, "{crashes} crashes: too slow to mean anything");
}

/// Whether a line of the log is a write to a journal longer than any batch.
fn is_of_zeros(line: &str) -> bool {
    let len = line.rsplit_once('+').and_then(|(_, len)| len.parse::<u64>().ok());
    line.contains("write ") && line.contains(".jnl ") && len.is_some_and(|len| len > 64 << 10)
}

const CRASHES_OF_A_RUN: usize = 200;

fn seed() -> u64 {
    env::var("HOLDFAST_SEED").map_or(1, |seed| seed.parse().unwrap())
}

/// The tests above can fail: an engine that forgets to sync one of its parts is found out.
#[test]
fn a_forgotten_sync_is_found() {
    if !can_mount() {
        return;
    }
    let scratch = common::Scratch::new("forgotten");
    let mut run = Run::new(&scratch, Image::empty(), seed(), 300);
    let whole = run.log.clone();
    for part in [".jnl", "/tables/", "/current", "/keyspaces/"] {
        run.log = whole.with_syncs_ignored(|path| {
            path.ends_with(part) || path.contains("/tables/") && part == "/tables/"
        });
        let mut random = Rng::with_seed(seed());
        let mut replay = run.log.replay(Promise::Nothing);
        let found = (1..=200).find_map(|crash| {
            replay.advance(run.log.len() * crash / 200);
            check(&run, &replay.crash(&mut random), replay.position(), false).err()
        });
        println!("without syncs of {part}: {}", found.as_deref().unwrap_or("nothing is found"));
        assert!(found.is_some(), "nobody needs the syncs of {part}");
    }
}

/// Goal: batches that a sync which failed left in the page cache, and nowhere else, are durable once a later opening has synced anything. Method: an
/// engine ends without a close; the next opening has written its journal's batches anew before it syncs that journal.
#[test]
fn an_opening_stores_what_it_found_in_the_journal() {
    if !can_mount() {
        return;
    }
    let scratch = common::Scratch::new("again");
    let options = Options { journal_bytes: 1 << 20, ..OPTIONS };
    let at = scratch.path().join("disk");
    fs::create_dir_all(&at).unwrap();
    let disk = CrashDisk::mount(&at, Image::empty(), 128 << 20).unwrap();
    let engine = FjallEngine::open(&at.join("meta"), options, Claim::new(1)).unwrap();
    let mut random = Rng::with_seed(1);
    for seq in 1..=5 {
        engine.commit(batch(Seq(seq), &mut random)).unwrap();
    }
    drop(engine);
    let before = disk.position();
    drop(FjallEngine::open(&at.join("meta"), options, Claim::new(2)).unwrap());
    let log = disk.finish();
    let text = log.describe(before, log.len());
    let of_journal: Vec<&str> = text.lines().filter(|line| line.contains(".jnl")).collect();
    let first_sync = of_journal.iter().position(|line| line.contains("sync ")).unwrap();
    let is_start = |line: &&str| line.contains("write ") && line.contains(".jnl 0+");
    assert!(of_journal[..first_sync].iter().any(is_start), "{of_journal:#?}");
}

#[test]
fn without_power_at_any_moment_what_was_synced_is_there_and_a_prefix() {
    crash_everywhere(seed(), 300, 400, Duration::from_secs(40));
}

#[test]
#[ignore = "takes as long as it is told to"]
fn without_power_many_times() {
    let count = env::var("HOLDFAST_CRASHES").map_or(20_000, |count| count.parse().unwrap());
    crash_everywhere(seed(), 2_000, count, Duration::MAX);
}
