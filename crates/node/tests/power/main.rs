//! Takes the power away from under a volume.
//!
//! Goal: whatever the moment, the volume opens, `check` finds nothing, what was answered as durable is there with its
//! bytes, and what is left is what docs/semantics.md promises ("Durability", "Order"). Method: a node, a process of
//! its own, works on a volume on a disk that keeps a log (`testkit::crash_disk`), while a process at its mount does all kinds
//! of things and notes them; then for many points of the log the disk is made as a loss of power would leave it, checked, mounted,
//! walked and compared. The next run goes on from one of these disks, so that recoveries are interrupted, too.
//!
//! Run with `HOLDFAST_TEST_NODE` set, this program is a node. `HOLDFAST_SEED` begins the seeds, `HOLDFAST_CRASHES` says how
//! many crashes, `HOLDFAST_CRASH_ALL` takes every position of each log.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod history;
mod workload;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{AS_GUARD, Scratch, be_guard_now, guard_by_test};
use fastrand::Rng;
use history::{Found, History};
use node::{DataCheck, MountOptions, MountRequest, Offline, Purpose};
use rustix::process::{Pid, Signal, kill_process};
use testkit::crash_disk::{CrashDisk, Image, Log, Promise};
use volume::{FormatOptions, Volume, VolumeError};
use workload::Worker;

fn main() {
    if std::env::args().any(|arg| arg == AS_GUARD) {
        be_guard_now();
    }
    volume::accept_fuse();
    if std::env::var_os("HOLDFAST_TEST_NODE").is_some() {
        return be_node();
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let count = number("HOLDFAST_CRASHES");
    let patience = if count.is_some() { Duration::MAX } else { Duration::from_secs(70) };
    crash_everywhere(number("HOLDFAST_SEED").unwrap_or(1), count.unwrap_or(300) as usize, patience);
}

/// Mounts and tells by a line that it is ready.
fn be_node() {
    let mut args = std::env::args().skip(1).map(PathBuf::from);
    let (volume, mountpoint) = (args.next().unwrap(), args.next().unwrap());
    let options = MountOptions { commit: Duration::from_millis(40), ..MountOptions::default() };
    let request = MountRequest { volume, mountpoint, options, guard: guard_by_test() };
    if let Err(error) = node::mount(request, Box::new(|| println!("ready"))) {
        eprintln!("node: {error}");
        std::process::exit(1);
    }
}

/// A node in a process of its own, killed and cleared away on drop.
struct Node {
    child: Child,
    root: PathBuf,
}

impl Node {
    fn start(volume: &Path, root: &Path) -> Self {
        fs::create_dir_all(root).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("HOLDFAST_TEST_NODE", "1").arg(volume).arg(root).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, root: root.to_owned() }
    }

    /// Has it flush and end.
    fn terminate(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fuse::mount::unmount(&self.root, fuse::mount::Unmount::Lazy);
    }
}

/// A run of a node, and all that was done at its mount.
struct Run {
    log: Log,
    history: History,
    /// From here on there is a volume.
    formatted: usize,
}

impl Run {
    /// Works on a disk that begins as `start`, with `found` in its volume; formats it if there is none.
    fn new(dir: &Path, start: Image, found: Option<Found>, seed: u64, steps: usize) -> Self {
        let at = dir.join("disk");
        fs::create_dir_all(&at).unwrap();
        let disk = CrashDisk::mount(&at, start, DISK_BYTES).unwrap();
        let volume = at.join("vol");
        if found.is_none() {
            let reserve_bytes = Some(4 << 20);
            volume::format(&volume, &FormatOptions { reserve_bytes, ..FormatOptions::default() }).unwrap();
        }
        let formatted = disk.position();
        let node = Node::start(&volume, &dir.join("at-work"));
        let found = found.unwrap_or_else(|| Found::walk(&node.root).unwrap());
        let mut worker = Worker::new(History::new(found), &disk, &node.root, seed);
        for _ in 0..steps {
            worker.step();
        }
        let mut history = worker.finish();
        node.terminate();
        history.flushed(disk.position());
        Self { log: disk.finish(), history, formatted }
    }

    /// Positions to crash at: both sides of each sync, as many between, or all there are.
    fn positions(&self, random: &mut Rng, count: usize) -> Vec<usize> {
        if std::env::var_os("HOLDFAST_CRASH_ALL").is_some() {
            return (0..=self.log.len()).collect();
        }
        let mut positions = self.log.sync_boundaries();
        positions.extend((0..positions.len() / 2).map(|_| random.usize(0..=self.log.len())));
        random.shuffle(&mut positions);
        positions.truncate(count);
        positions.sort_unstable();
        positions
    }
}

/// Crashes at points of the logs of one run after the other, until the time or the count is up.
fn crash_everywhere(seed: u64, count: usize, patience: Duration) {
    let dir = scratch_dir();
    let Some(scratch) = Scratch::empty(&dir.join("image")) else { return };
    let mut random = Rng::with_seed(seed);
    let since = Instant::now();
    let (mut crashes, mut runs, mut start, mut found) = (0, 0, Image::empty(), None);
    while crashes < count && since.elapsed() < patience {
        let run = Run::new(&dir, start, found, random.u64(..), STEPS);
        let positions = run.positions(&mut random, (count - crashes).min(CRASHES_OF_A_RUN));
        println!(
            "run {runs}: {} events, {} states, {} crashes",
            run.log.len(),
            run.history.len(),
            positions.len()
        );
        let mut replays =
            [Promise::OrderedNames, Promise::Nothing].map(|promise| (promise, run.log.replay(promise)));
        (start, found) = (Image::empty(), None);
        for (index, position) in positions.into_iter().enumerate() {
            let (promise, replay) = &mut replays[index % 2];
            replay.advance(position);
            let drawn = random.u64(..);
            let image = replay.crash(&mut Rng::with_seed(drawn));
            match check(&scratch, &run, &image, position) {
                Ok(None) => {}
                Ok(Some(walked)) => (start, found) = (image, Some(walked)),
                Err(what) => panic!(
                    "seed {seed}, run {runs}, {promise:?}, position {position}, drawn {drawn}: {what}\n{}",
                    run.log.describe(position.saturating_sub(30), position + 2)
                ),
            }
            crashes += 1;
            if since.elapsed() > patience {
                break;
            }
        }
        if runs == 0 {
            find_forgotten_syncs(&scratch, &run, &mut random);
        }
        runs += 1;
    }
    drop(scratch);
    fs::remove_dir_all(&dir).unwrap();
    println!("{crashes} crashes in {runs} runs, {:.1} s", since.elapsed().as_secs_f64());
    assert!(crashes >= 30, "{crashes} crashes: too slow to mean anything");
}

/// The test can fail: a volume that forgets to sync one of its parts is found out.
fn find_forgotten_syncs(scratch: &Scratch, run: &Run, random: &mut Rng) {
    for (part, promise) in [
        (".seg", Promise::OrderedNames),
        (".jnl", Promise::OrderedNames),
        ("/vol/segments/", Promise::Nothing),
        ("/vol/meta/engine/keyspaces/", Promise::Nothing),
    ] {
        let log = run.log.with_syncs_ignored(|path| path.ends_with(part));
        let mut replay = log.replay(promise);
        let crashes = (1..=100).find(|_| {
            let (step, from) = (log.len() / 100, replay.position().max(run.formatted));
            replay.advance(from + step.max(1));
            check(scratch, run, &replay.crash(random), replay.position()).is_err()
        });
        println!("without syncs of {part}: found after {crashes:?} crashes");
        assert!(crashes.is_some(), "nobody needs the syncs of {part}");
    }
}

/// Opens what a crash left, checks it, mounts it and compares. `None` where the volume was not made yet.
fn check(scratch: &Scratch, run: &Run, image: &Image, position: usize) -> Result<Option<Found>, String> {
    let volume = scratch.volume();
    _ = fs::remove_dir_all(&volume);
    fs::create_dir_all(&volume).unwrap();
    let stored = image.store("vol", &volume);
    if position < run.formatted {
        return match Volume::open(&volume) {
            _ if stored.is_err() => Ok(None),
            Err(VolumeError::HalfFormatted { .. } | VolumeError::NotAVolume { .. }) | Ok(_) => Ok(None),
            Err(error) => Err(format!("half made: {error}")),
        };
    }
    stored.map_err(|error| format!("the volume is gone: {error}"))?;
    check_offline(&volume).map_err(|error| format!("before the mount: {error}"))?;
    let mounted = scratch
        .mount_with("at", MountOptions::default())
        .map_err(|error| format!("mount: {}", chain(&error)))?;
    let found = Found::walk(&mounted.root).map_err(|error| format!("walk: {error}"))?;
    mounted.unmount().map_err(|error| format!("unmount: {}", chain(&error)))?;
    run.history.judge(&found, position)?;
    check_offline(&volume).map_err(|error| format!("after the mount: {error}"))?;
    Ok(Some(found))
}

/// As `holdfast fsck --data`.
fn check_offline(volume: &Path) -> Result<(), String> {
    let offline = Offline::open(volume, Purpose::Look).map_err(|error| chain(&error))?;
    let report = offline.check(DataCheck::Sums).map_err(|error| chain(&error))?;
    match report.is_clean() {
        true => Ok(()),
        false => Err(report.faults.iter().map(|fault| format!("{fault}\n")).collect()),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// In memory if that is possible.
fn scratch_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("holdfast-power-{}", std::process::id()))
}

/// Small, so that memtables and segments are.
const DISK_BYTES: u64 = 128 << 20;
const CRASHES_OF_A_RUN: usize = 100;
const STEPS: usize = 500;
