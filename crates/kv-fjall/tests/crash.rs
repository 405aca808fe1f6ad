//! Kills the process again and again.
//!
//! Goal: what `commit` answered survives the death of the process, what `sync` answered all the more, and what
//! is left is a prefix. Method: the test starts itself as a child that commits, syncs and tells each answer;
//! kills it at a random moment, while it opens included; opens the volume and reads everything.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use kv::{Claim, Direction, Engine, KeyRange, ScanLimit};
use kv_fjall::{FjallEngine, Options};

mod common;

/// Small memtables, so that flushes and compactions are killed too.
const OPTIONS: Options = Options {
    cache_bytes: 8 << 20,
    memtable_bytes: 1 << 20,
    worker_threads: 1,
    merges: true,
    journal_bytes: 64 << 10,
};

#[test]
fn killed_at_random_a_volume_holds_every_answered_batch_and_a_prefix() {
    let scratch = common::Scratch::in_memory("crash");
    let mut random = fastrand::Rng::with_seed(7);
    let started = Instant::now();
    let mut generation = 0;
    let mut rounds = 0;
    let mut seq_seen = 0;
    // Every other child lives longer where it takes long to come to a commit; the rest are killed at their opening too.
    let mut patience = 1;
    let is_enough = |rounds, seq_seen| rounds >= 5 && seq_seen > 100;
    while (rounds < 25 && started.elapsed() < Duration::from_secs(10))
        || (!is_enough(rounds, seq_seen) && started.elapsed() < Duration::from_secs(120))
    {
        generation += 1;
        let is_patient = rounds % 2 == 1;
        let after = Duration::from_millis(random.u64(5..250)) * if is_patient { patience } else { 1 };
        let answered = run_and_kill(scratch.path(), generation, after);
        if is_patient && answered == 0 {
            patience = (patience * 2).min(64);
        }
        seq_seen = answered.max(seq_seen);
        generation += 1;
        let engine = FjallEngine::open(scratch.path(), OPTIONS, Claim::new(generation)).unwrap();
        assert!(engine.last_seq().0 >= seq_seen, "{} is left of {seq_seen}", engine.last_seq());
        check_is_prefix(&engine);
        rounds += 1;
    }
    assert!(is_enough(rounds, seq_seen), "{rounds} rounds, {seq_seen} batches: too slow to mean anything");
}

/// Returns the last batch whose commit was answered.
fn run_and_kill(dir: &Path, generation: u64, after: Duration) -> u64 {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env("HOLDFAST_KV_CHILD", dir)
        .env("HOLDFAST_KV_GENERATION", generation.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if let Some(seq) = line.strip_prefix("committed ").and_then(|seq| seq.parse::<u64>().ok()) {
                let _ = sender.send(seq);
            }
        }
    });
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    receiver.iter().last().unwrap_or(0)
}

fn check_is_prefix(engine: &FjallEngine) {
    let last = engine.last_seq().0;
    if last == 0 {
        return;
    }
    assert_eq!(engine.get(b"last").unwrap(), Some(last.to_be_bytes().to_vec()));
    let limit = ScanLimit { entries: usize::MAX, bytes: usize::MAX };
    let page = engine.scan(&KeyRange::new(common::key(0), b"l"), limit, Direction::Forward).unwrap();
    let keys: Vec<_> = page.entries.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, (1..=last).map(common::key).collect::<Vec<_>>());
}

#[test]
#[ignore = "started by the test above"]
fn child() {
    let Ok(dir) = env::var("HOLDFAST_KV_CHILD") else { return };
    let generation = env::var("HOLDFAST_KV_GENERATION").unwrap().parse().unwrap();
    let engine = FjallEngine::open(Path::new(&dir), OPTIONS, Claim::new(generation)).unwrap();
    let mut stdout = std::io::stdout();
    loop {
        let seq = engine.last_seq().next().0;
        engine.commit(common::batch(seq, 900)).unwrap();
        if seq.is_multiple_of(8) {
            engine.sync().unwrap();
        }
        // One write, so that a kill cannot leave half a number.
        stdout.write_all(format!("committed {seq}\n").as_bytes()).unwrap();
        stdout.flush().unwrap();
    }
}
