//! How late the machine itself is.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
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
    late: Arc<Mutex<Stalls>>,
    threads: [JoinHandle<()>; 2],
}

/// When the machine was late, and by how much, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Stalls {
    pub sleeps: Vec<(u64, u64)>,
    pub syncs: Vec<(u64, u64)>,
}

impl Stall {
    /// Writes to a file in `dir`, which is on the disk that the volume is on.
    pub fn start(dir: &Path) -> Self {
        let (ended, late) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Stalls::default())));
        let (over, noted) = (Arc::clone(&ended), Arc::clone(&late));
        let sleep = || std::thread::sleep(Duration::from_millis(5));
        let sleeper = move || watch(&over, 5_000, sleep, |stall| noted.lock().sleeps.push(stall));
        let (over, noted) = (Arc::clone(&ended), Arc::clone(&late));
        let file = File::create(dir.join("synced")).expect("room beside the volume");
        let sync = move || {
            std::thread::sleep(Duration::from_millis(50));
            (&file).write_all(&[1; 4096]).expect("room beside the volume");
            file.sync_data().expect("a disk that works");
        };
        let syncer = move || watch(&over, 50_000, sync, |stall| noted.lock().syncs.push(stall));
        Self { ended, late, threads: [std::thread::spawn(sleeper), std::thread::spawn(syncer)] }
    }

    /// What is known of by now: a sync that takes long is when it is done.
    pub fn so_far(&self) -> Stalls {
        self.late.lock().clone()
    }

    pub fn stop(self) -> Stalls {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("it only sleeps and syncs"));
        std::mem::take(&mut *self.late.lock())
    }
}

/// Does `what` again and again, and notes when it took longer than it should.
fn watch(over: &AtomicBool, due_us: u64, what: impl Fn(), note: impl Fn((u64, u64))) {
    while !over.load(Ordering::Relaxed) {
        let before = now_us();
        what();
        let lateness = now_us().saturating_sub(before + due_us);
        if lateness > 20_000 {
            note((before, lateness));
        }
    }
}

impl Stalls {
    /// How much of the time between two moments the machine was late.
    pub fn between(&self, from: u64, to: u64) -> u64 {
        overlap(&self.sleeps, from, to) + self.syncs_between(from, to)
    }

    /// How much of it its disk was.
    pub fn syncs_between(&self, from: u64, to: u64) -> u64 {
        overlap(&self.syncs, from, to)
    }
}

fn overlap(stalls: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let of = |(since, us): &(u64, u64)| (since + us).min(to).saturating_sub((*since).max(from));
    stalls.iter().map(of).sum()
}
