//! How long processes at other nodes waited after a node died or stopped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::field::{Event, Field, Past};
use crate::journal::{Op, now_us};

/// Service for survivors is back after a kill within this.
const GAP_US: u64 = 2_000_000;
/// What began so long after an event may wait for it; later ones for the next.
const WINDOW_US: u64 = 1_000_000;

/// What the machine adds to every gap: how late a thread wakes that does nothing but sleep, and how long the disk takes
/// to make a few bytes durable beside the volume. A process that is killed in a sync ends when the disk is done.
pub struct Stall {
    ended: Arc<AtomicBool>,
    sleeper: JoinHandle<Vec<(u64, u64)>>,
    syncer: JoinHandle<Vec<(u64, u64)>>,
}

/// When the machine was late, and by how much, in microseconds.
#[derive(Debug, Default)]
pub struct Stalls {
    sleeps: Vec<(u64, u64)>,
    syncs: Vec<(u64, u64)>,
}

impl Stall {
    /// Writes to a file in `dir`, which is on the disk that the volume is on.
    pub fn start(dir: &Path) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ended);
        let sleep = || std::thread::sleep(Duration::from_millis(5));
        let sleeper = std::thread::spawn(move || watch(&over, 5_000, sleep));
        let over = Arc::clone(&ended);
        let file = File::create(dir.join("synced")).expect("room beside the volume");
        let syncer = std::thread::spawn(move || {
            watch(&over, 50_000, || {
                std::thread::sleep(Duration::from_millis(50));
                file.write_all_at(&now_us().to_le_bytes(), 0).expect("room beside the volume");
                file.sync_data().expect("a disk that works");
            })
        });
        Self { ended, sleeper, syncer }
    }

    pub fn stop(self) -> Stalls {
        self.ended.store(true, Ordering::Relaxed);
        let sleeps = self.sleeper.join().expect("it only sleeps");
        Stalls { sleeps, syncs: self.syncer.join().expect("it only sleeps and syncs") }
    }
}

/// Does `what` again and again, and notes when it took longer than it should.
fn watch(over: &AtomicBool, due_us: u64, what: impl Fn()) -> Vec<(u64, u64)> {
    let mut late = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let before = now_us();
        what();
        let lateness = now_us().saturating_sub(before + due_us);
        if lateness > 20_000 {
            late.push((before, lateness));
        }
    }
    late
}

impl Stalls {
    /// How much of the time between two moments the machine was late.
    fn between(&self, from: u64, to: u64) -> u64 {
        let overlap = |(since, us): &(u64, u64)| (since + us).min(to).saturating_sub((*since).max(from));
        let sum = |all: &[(u64, u64)]| all.iter().map(overlap).sum::<u64>();
        sum(&self.sleeps) + sum(&self.syncs)
    }
}

/// Longest wait of each process elsewhere that ended after the event.
fn gaps(event: &Event, all: &[Past], is_lock: bool) -> Vec<u64> {
    let of_survivor = |past: &&Past| {
        !event.nodes.contains(&past.spec.node) && past.died.is_none_or(|died| died > event.at + WINDOW_US)
    };
    let gap = |past: &Past| {
        let touched = past.journal.done.iter().filter(|done| {
            let ended = done.ended.unwrap_or(0);
            ended > event.at
                && done.began < event.at + WINDOW_US
                && matches!(done.op, Op::Locked(_)) == is_lock
        });
        touched.filter_map(|done| done.ended.map(|ended| ended - done.began.max(event.at))).max()
    };
    all.iter().filter(of_survivor).filter_map(gap).collect()
}

/// Prints distributions, and holds kills to what is promised.
pub fn report(name: &str, field: &Field, looks: u64) {
    let operations: usize = field.past.iter().map(|past| past.journal.done.len()).sum();
    println!(
        "{name}: {} events, {} lives of processes, {operations} operations, {looks} looks at others'",
        field.events.len(),
        field.past.len()
    );
    let mut kinds: Vec<&str> = field.events.iter().map(|event| event.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    println!(
        "{:<12} {:>6} {:>9} {:>9} {:>9} {:>9}   of locks",
        "event", "times", "gap p50", "p99", "max", "max lost"
    );
    for kind in kinds {
        let events: Vec<&Event> = field.events.iter().filter(|event| event.what == kind).collect();
        let mut waits: Vec<u64> = events.iter().flat_map(|event| gaps(event, &field.past, false)).collect();
        let mut locks: Vec<u64> = events.iter().flat_map(|event| gaps(event, &field.past, true)).collect();
        waits.sort_unstable();
        locks.sort_unstable();
        let lost = field.lost.iter().filter(|(what, _)| *what == kind).map(|(_, us)| *us).max().unwrap_or(0);
        println!(
            "{kind:<12} {:>6} {:>6} ms {:>6} ms {:>6} ms {:>6} ms   p50 {} ms, max {} ms",
            events.len(),
            at(&waits, 50),
            at(&waits, 99),
            at(&waits, 100),
            lost / 1000,
            at(&locks, 50),
            at(&locks, 100)
        );
    }
    let worst = |all: &[(u64, u64)]| all.iter().map(|(_, late)| *late).max().unwrap_or(0) / 1000;
    let mut mounts = field.mounts.clone();
    mounts.sort_unstable();
    println!(
        "mounts: {}, p50 {} ms, max {} ms; {} aborted by guards",
        mounts.len(),
        at(&mounts, 50),
        at(&mounts, 100),
        field.aborted
    );
    println!(
        "the machine itself was late by {} ms at most, its disk by {} ms",
        worst(&field.stalls.sleeps),
        worst(&field.stalls.syncs)
    );
    for event in field.events.iter().filter(|event| event.what.starts_with("kill")) {
        let worst = gaps(event, &field.past, false).into_iter().max().unwrap_or(0);
        let late = field.stalls.between(event.at, event.at + worst);
        if worst > GAP_US + late {
            let (worst, late, kept) = (worst / 1000, late / 1000, field.keep_evidence());
            panic!(
                "seed {}: {event:?}: a survivor's process waited {worst} ms (the machine was late by {late} ms); {kept}",
                field.seed
            );
        }
    }
}

/// A percentile in milliseconds.
fn at(sorted: &[u64], percent: usize) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).map_or(0, |us| us / 1000)
}
