//! How late the machine itself is.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds of the clock that all processes share.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// What the machine adds to every gap: how late a thread wakes that does nothing but sleep, and how long the disk takes
/// to make a few bytes durable beside the volume. A process that is killed in a sync ends when the disk is done. The bytes
/// make the file longer, so that the file system below commits its journal, and waits for whatever others gave it to write.
pub struct Stall {
    ended: Arc<AtomicBool>,
    sleeper: JoinHandle<Vec<(u64, u64)>>,
    syncer: JoinHandle<Vec<(u64, u64)>>,
}

/// When the machine was late, and by how much, in microseconds.
#[derive(Debug, Default)]
pub struct Stalls {
    pub sleeps: Vec<(u64, u64)>,
    pub syncs: Vec<(u64, u64)>,
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
                (&file).write_all(&[1; 4096]).expect("room beside the volume");
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
    pub fn between(&self, from: u64, to: u64) -> u64 {
        let overlap = |(since, us): &(u64, u64)| (since + us).min(to).saturating_sub((*since).max(from));
        let sum = |all: &[(u64, u64)]| all.iter().map(overlap).sum::<u64>();
        sum(&self.sleeps) + sum(&self.syncs)
    }
}
