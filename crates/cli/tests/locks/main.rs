//! Goal: locks of applications on several mounts are those of one lock manager, whatever happens to who holds them.
//! Method: processes at two mounts take, convert, test and give up fcntl locks (their own and those of open files) and flocks,
//! with and without waiting, some interrupted again and again, and count under them. Meanwhile processes are killed, then the
//! master (a third mount), then the node of one of the mounts. Each writes down what it did and was told; the histories
//! together must be explained by locks that exclude each other.
//!
//! `HOLDFAST_SEED` repeats a run's draws, `HOLDFAST_LOCKS_SECONDS` sets its length. Needs root and a FUSE device; says so without.

mod calls;
mod history;
mod judge;
#[path = "../mounts/lab.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod lab;
mod ranges;
mod worker;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;

use history::{UNIT, UNITS, now_us};
use judge::Life;
use lab::{Lab, Mount};
use worker::{FILES, Spec, WORKER};

/// Processes at each mount.
const PROCESSES: usize = 5;
/// Longest that anybody may wait for a lock.
const WAIT_MAX: u64 = 10_000_000;

#[test]
fn locks_of_all_nodes_are_those_of_one_manager() {
    let Some(mut lab) = Lab::new() else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("HOLDFAST_LOCKS_SECONDS").unwrap_or(20);
    let seed = number("HOLDFAST_SEED").unwrap_or_else(now_us);
    println!("HOLDFAST_SEED={seed}");
    lab.patience = Duration::from_secs(seconds + 120);
    let mut field = Field::new(lab, seed);
    field.torture(Duration::from_secs(seconds) / 2);
    field.kill_node("m");
    field.torture(Duration::from_secs(seconds) / 4);
    field.kill_node("a");
    field.torture(Duration::from_secs(seconds) / 4);
    field.end();
}

struct Field {
    lab: Lab,
    rng: Rng,
    mounts: Vec<(&'static str, Mount)>,
    running: Vec<(String, &'static str, Child)>,
    lives: Vec<Life>,
    next: u64,
    seed: u64,
}

impl Field {
    fn new(lab: Lab, seed: u64) -> Self {
        // The first is the master.
        let mounts: Vec<_> =
            ["m", "a", "b"].into_iter().map(|name| (name, lab.mount_with(name, "rw,lease=3"))).collect();
        for file in 0..FILES {
            let file = File::create(mounts[1].1.path(&format!("f{file}"))).expect("a fresh volume");
            file.write_all_at(&[0; UNIT as usize * UNITS as usize], 0).expect("room");
            file.sync_all().expect("durable");
        }
        fs::create_dir(lab.path("histories")).expect("a directory of its own");
        let rng = Rng::with_seed(seed);
        let mut field = Self { lab, rng, mounts, running: Vec::new(), lives: Vec::new(), next: 1, seed };
        for _ in 0..PROCESSES {
            field.start("a");
            field.start("b");
        }
        field
    }

    fn history(&self, name: &str) -> PathBuf {
        self.lab.path("histories").join(name)
    }

    fn start(&mut self, mount: &'static str) {
        let name = format!("{mount}-{}", self.next);
        self.next += 1;
        let root = self.lab.path(mount);
        let stop = self.lab.path("stop");
        let spec = Spec { root, history: self.history(&name), stop, seed: self.rng.u64(..) };
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "worker::be_worker", "--nocapture"]).env(WORKER, spec.to_text());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("this program");
        self.running.push((name, mount, child));
    }

    /// Kills a process now and then, and puts another in its place.
    fn torture(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(self.rng.u64(50..500)));
            let (name, mount, mut child) = self.running.remove(self.rng.usize(0..self.running.len()));
            if let Ok(Some(status)) = child.try_wait() {
                panic!("seed {}: {name} ended by itself: {status}: {:?}", self.seed, self.last_of(&name));
            }
            let killed = now_us();
            child.kill().expect("it runs");
            child.wait().expect("our child");
            self.bury(name, Some((killed, now_us())));
            self.start(mount);
        }
    }

    fn last_of(&self, name: &str) -> Option<history::Event> {
        history::read(&self.history(name)).pop()
    }

    fn bury(&mut self, name: String, died: Option<(u64, u64)>) {
        let events = history::read(&self.history(&name));
        self.lives.push(Life { name, events, died, node_died: None });
    }

    /// Kills a node; its processes end by the errors that they get.
    fn kill_node(&mut self, name: &'static str) {
        let at = self.mounts.iter().position(|(mount, _)| *mount == name).expect("it is mounted");
        let (_, mount) = self.mounts.remove(at);
        let killed = now_us();
        mount.signal(Signal::KILL);
        let (gone, stay) = std::mem::take(&mut self.running).into_iter().partition(|(_, at, _)| *at == name);
        self.running = stay;
        for (process, _, mut child) in gone {
            child.wait().expect("our child");
            // Where nobody else is in line its locks may be found until its node's death has been noticed.
            self.bury(process, Some((killed, now_us().max(killed + NOTICED))));
        }
        let there = self.lives.iter_mut().filter(|life| life.name.split('-').next() == Some(name));
        there.for_each(|life| life.node_died = Some(killed));
    }

    fn end(mut self) {
        fs::write(self.lab.path("stop"), "").expect("room outside of the volume");
        let deadline = Instant::now() + Duration::from_secs(30);
        for (name, _, mut child) in std::mem::take(&mut self.running) {
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    _ = child.kill();
                    panic!("seed {}: {name} hangs in {:?}", self.seed, self.last_of(&name));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            self.bury(name, None);
        }
        let counters: Vec<[u64; UNITS as usize]> = (0..FILES).map(|file| self.counters(file)).collect();
        let tally = judge::judge(&self.lives, &counters).unwrap_or_else(|what| {
            let kept = std::env::temp_dir().join(format!("holdfast-locks-{}", self.seed));
            _ = Command::new("cp").arg("-r").arg(self.lab.path("histories")).arg(&kept).status();
            panic!("seed {}: {what}; histories in {}", self.seed, kept.display())
        });
        let at = |part: usize| tally.waits[(tally.waits.len() - 1) * part / 100];
        println!("{} processes; answers: {:?}; {} counts", self.lives.len(), tally.answers, tally.counts);
        println!("waits: p50 {} us, p99 {} us, max {} us", at(50), at(99), at(100));
        assert!(at(100) < WAIT_MAX, "somebody waited {} us", at(100));
        for answer in ["done", "EAGAIN", "EINTR", "EDEADLK", "free", "found", "killed"] {
            assert!(tally.answers.contains_key(answer), "no answer was {answer}: {:?}", tally.answers);
        }
        for (_, mount) in std::mem::take(&mut self.mounts) {
            mount.unmount(&self.lab);
        }
        self.lab.holdfast(&["fsck", "vol"]).expect_success();
    }

    fn counters(&self, file: u8) -> [u64; UNITS as usize] {
        let (_, mount) = self.mounts.last().expect("one lives");
        let bytes = fs::read(mount.path(&format!("f{file}"))).expect("it is there");
        std::array::from_fn(|unit| {
            let at = unit * UNIT as usize;
            u64::from_le_bytes(bytes[at..at + UNIT as usize].try_into().expect("8 bytes"))
        })
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        for (_, _, child) in &mut self.running {
            _ = child.kill();
        }
        self.mounts.clear();
        for (_, _, child) in &mut self.running {
            _ = child.wait();
        }
    }
}

/// How long the death of a node may go unnoticed, in microseconds.
const NOTICED: u64 = 3_000_000;
