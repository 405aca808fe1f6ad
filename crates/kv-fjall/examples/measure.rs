//! Measures the engine on a directory: load, open after a kill, and the latency of small commits.
//!
//! `measure <dir> load <records> <memtable MiB> <workers>` loads and then waits to be killed;
//! `measure <dir> open` times the open; `measure <dir> small` commits 3 records at a time, without and with sync;
//! `measure <dir> stall` measures commits beside a thread that syncs without pause.
#![allow(clippy::unwrap_used, reason = "a tool for developers")]

use std::{
    env,
    path::Path,
    time::{Duration, Instant},
};

use kv::{Batch, Claim, Engine, Seq};
use kv_fjall::{FjallEngine, Options};

fn main() {
    let args: Vec<String> = env::args().collect();
    let dir = Path::new(&args[1]);
    let number = |index: usize, default: u64| args.get(index).map_or(default, |text| text.parse().unwrap());
    match args[2].as_str() {
        "load" => load(dir, number(3, 2_000_000), number(4, 16), number(5, 1)),
        "open" => drop(open(dir, Options::default())),
        "small" => small(dir),
        "stall" => stall(dir),
        other => panic!("unknown: {other}"),
    }
}

fn open(dir: &Path, options: Options) -> FjallEngine {
    // A greater generation each time.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let started = Instant::now();
    let engine = FjallEngine::open(dir, options, Claim::new(since.as_millis() as u64)).unwrap();
    println!(
        "open: {:?}, last seq {}, {} MiB",
        started.elapsed(),
        engine.last_seq(),
        engine.disk_bytes().unwrap() >> 20
    );
    engine
}

/// 30-byte keys in the order of a hash within directories of 1,000 entries, 130-byte values.
fn record(index: u64) -> (Vec<u8>, Vec<u8>) {
    let mut key = vec![b'd'];
    key.extend((index / 1000).to_be_bytes());
    key.extend(index.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key.resize(30, b'x');
    let mut value = index.to_be_bytes().repeat(17);
    value.truncate(130);
    (key, value)
}

fn load(dir: &Path, records: u64, memtable_mib: u64, workers: u64) {
    let memtable_bytes = memtable_mib << 20;
    let engine =
        open(dir, Options { memtable_bytes, worker_threads: workers as usize, ..Options::default() });
    let mut latencies = Vec::new();
    let started = Instant::now();
    for first in (0..records).step_by(1000) {
        let puts = (first..first + 1000).map(record).collect();
        let before = Instant::now();
        engine.commit(Batch { puts, ..Batch::new(engine.last_seq().next()) }).unwrap();
        latencies.push(before.elapsed());
        if (first / 1000).is_multiple_of(16) {
            engine.sync().unwrap();
        }
    }
    engine.sync().unwrap();
    let rate = records as f64 / started.elapsed().as_secs_f64();
    println!("load, memtable {memtable_mib} MiB, {workers} workers: {rate:.0} records/s");
    report("commit of 1000", latencies);
    println!("loaded");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn small(dir: &Path) {
    let engine = open(dir, Options::default());
    let mut next = 10_000_000;
    for (with_sync, count) in [(false, 20_000), (true, 3_000)] {
        let mut latencies = Vec::new();
        for _ in 0..count {
            let puts = (next..next + 3).map(record).collect();
            next += 3;
            let before = Instant::now();
            engine.commit(Batch { puts, ..Batch::new(engine.last_seq().next()) }).unwrap();
            if with_sync {
                engine.sync().unwrap();
            }
            latencies.push(before.elapsed());
        }
        report(if with_sync { "3 records, synced" } else { "3 records" }, latencies);
    }
}

fn stall(dir: &Path) {
    let engine = open(dir, Options::default());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let _: Seq = engine.sync().unwrap();
            }
        });
        let mut latencies = Vec::new();
        for index in 0..10_000_u64 {
            let puts = (index * 3..index * 3 + 3).map(record).collect();
            let before = Instant::now();
            engine.commit(Batch { puts, ..Batch::new(engine.last_seq().next()) }).unwrap();
            latencies.push(before.elapsed());
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        report("3 records beside syncs", latencies);
    });
}

fn report(what: &str, mut latencies: Vec<Duration>) {
    latencies.sort();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    println!("{what}: p50 {:?}, p99 {:?}, max {:?}, {} times", at(0.5), at(0.99), at(1.0), latencies.len());
}
