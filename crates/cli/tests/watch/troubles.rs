//! Stalls, hangs and failures are seen, in the right layer, at the cost that is promised.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::place::Scratch;
use crate::slow_disk::SlowDisk;
use crate::{Running, code_and_error, json, text, wait_for, watch};

#[test]
fn a_stall_of_one_layer_of_two_is_seen_and_the_layer_named() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let (lower, upper) =
        (SlowDisk::mount(&scratch.join("l"), 1 << 20), SlowDisk::mount(&scratch.join("u"), 1 << 20));
    for (ill, label, other) in [(1, "upper", "lower"), (0, "lower", "upper")] {
        let (document, asked_meanwhile) = undisturbed(|| stall_one_of_two(&scratch, [&lower, &upper], ill));
        let target = |name: &str| {
            let targets = document["targets"].as_array().expect("targets");
            targets.iter().find(|target| target["label"] == name).expect("it is there").clone()
        };
        let emax = |name: &str| target(name)["emax_seconds"].as_f64().expect("a number");
        assert!((1.2..2.2).contains(&emax(label)), "{document:#}");
        assert!(emax(other) < 0.5, "{document:#}");
        assert!(target(label)["late_total"].as_u64() >= Some(1), "{document:#}");
        assert!(target(label)["missed_total"].as_u64() >= Some(6), "{document:#}");
        assert!(
            target(label)["p99_seconds"].as_f64() > Some(0.9),
            "a stall is not one sample of many: {document:#}"
        );
        assert!(asked_meanwhile >= 5, "the other was asked all the time, not {asked_meanwhile} times");
        let verdict = document["verdict"].as_str().expect("a verdict");
        assert!(verdict.starts_with(&format!("{label} adds most at peak")), "{verdict}");
    }
}

/// Watches two disks of which one stalls for 1.5 s. Returns what was told, and how often the other was read meanwhile.
fn stall_one_of_two(scratch: &Scratch, disks: [&SlowDisk; 2], ill: usize) -> (Json, u64) {
    let (record, [lower, upper]) = (Record::new(scratch), disks.map(SlowDisk::path));
    let targets = [format!("{}=lower", text(&lower)), format!("{}=upper", text(&upper))];
    let options = [
        "--stack",
        "lower:upper",
        "--interval",
        "200ms",
        "--json",
        "--window",
        "50",
        "--record",
        record.path(),
    ];
    let running = Running::start(&[&targets.each_ref().map(String::as_str)[..], &options].concat());
    (0..2).for_each(|target| record.wait_for_samples(target, 3));
    let (ill_disk, other) = (disks[ill], disks[1 - ill]);
    let hang = Hang::of(ill_disk);
    let before = other.reads();
    std::thread::sleep(Duration::from_millis(1500));
    let asked_meanwhile = other.reads() - before;
    drop(hang);
    (0..2).for_each(|target| record.wait_for_samples(target, record.samples(target) + 3));
    let output = running.interrupt();
    let document = json(&output);
    assert!(output.status.success(), "{document:#}");
    (document, asked_meanwhile)
}

#[test]
fn what_does_not_return_is_told_while_it_hangs_and_holds_nobody_up() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let [other, disk] = ["o", "d"].map(|name| SlowDisk::mount(&scratch.join(name), 1 << 20));
    let targets = [format!("{}=disk", text(&disk.path())), format!("{}=other", text(&other.path()))];
    let record = Record::new(&scratch);
    let options = ["--stack", "disk:other", "--interval", "200ms", "--json", "--record", record.path()];
    let running = Running::start(&[&targets.each_ref().map(String::as_str)[..], &options].concat());
    (0..2).for_each(|target| record.wait_for_samples(target, 2));
    let _hang = Hang::of(&disk);
    let (hung, before) = (Instant::now(), other.reads());
    // Due in 1.4 s.
    wait_for("the other is asked all the time", || other.reads() >= before + 7);
    assert!(hung.elapsed() < Duration::from_secs(6), "seven samples took {:?}", hung.elapsed());
    std::thread::sleep(Duration::from_millis(1500).saturating_sub(hung.elapsed()));
    let interrupted = Instant::now();
    // The hang goes on: the command ends all the same, and says what it knows.
    let output = running.interrupt();
    assert!(interrupted.elapsed() < Duration::from_secs(20));
    let document = json(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(document["targets"][0]["state"], "pending", "{document:#}");
    assert!(document["targets"][0]["pending_seconds"].as_f64() > Some(0.9), "{document:#}");
    assert_eq!(document["targets"][1]["state"], "ok", "{document:#}");
    assert!(document["targets"][1]["ios_total"].as_u64() >= Some(7), "{document:#}");
    assert_eq!(document["verdict"], "look at disk first: disk pending; nothing below is ill");
}

#[test]
fn a_target_whose_opening_hangs_is_told_too() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    disk.hang();
    // It is told after a second, and a busy machine may take long to start two processes.
    let output = watch(&[text(&disk.path()), "--interval", "200ms", "--duration", "6s"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("opening it has not returned for"), "{shown}");
}

#[test]
fn a_disk_that_fails_is_an_alarm_and_heals() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    let (path, record) = (disk.path(), Record::new(&scratch));
    let running = Running::start(&[text(&path), "--interval", "100ms", "--record", record.path()]);
    record.wait_for_samples(0, 3);
    disk.fail();
    wait_for("it is told that reads fail", || record.failures(0) >= 3);
    disk.heal();
    record.wait_for_samples(0, record.samples(0) + 3);
    let output = running.interrupt();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}");
    let alarms = shown.lines().filter(|line| line.contains("ALARM")).count();
    assert!(alarms == 1 && shown.contains("the last I/O failed: Input/output error"), "{shown}");
}

#[test]
fn a_mount_that_vanishes_is_an_alarm_though_its_open_file_still_works() {
    let Some(scratch) = Scratch::to_mount() else { return };
    for op in ["read", "stat"] {
        let disk = SlowDisk::mount(&scratch.join(op), 1 << 20);
        let (target, record) = (format!("{}=disk", text(&disk.path())), Record::new(&scratch));
        let options = ["--op", op, "--interval", "100ms", "--json", "--record", record.path()];
        let running = Running::start(&[&[target.as_str()][..], &options].concat());
        record.wait_for_samples(0, 3);
        disk.vanish();
        wait_for("it is told", || record.failures(0) >= 1);
        let output = running.interrupt();
        let document = json(&output);
        let target = &document["targets"][0];
        assert_eq!(output.status.code(), Some(1), "{document:#}");
        assert_eq!(target["state"], "failing", "{document:#}");
        assert!(
            target["last_error"].as_str().is_some_and(|text| text.contains("not mounted there")),
            "{document:#}"
        );
        assert!(target["ios_total"].as_u64() >= Some(3), "{document:#}");
    }
}

#[test]
fn there_is_one_read_an_interval_and_it_costs_next_to_nothing() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    let path = disk.path();
    let output = watch(&[text(&path), "--interval", "250ms", "--duration", "10s", "--json"]);
    let document = json(&output);
    let ios = document["targets"][0]["ios_total"].as_u64().expect("a number");
    assert!((30..=40).contains(&ios), "{document:#}");
    // One more when it was opened, and perhaps one that was under way at the end.
    assert!((ios + 1..=ios + 2).contains(&disk.reads()), "{} reads, {ios} samples", disk.reads());
    // At a twelfth of the usual interval, the start of two processes included.
    let ratio = document["cost"]["cpu_ratio"].as_f64().expect("a number");
    println!("{:.3} % of a core at 4 samples a second", ratio * 100.0);
    assert!(ratio > 0.0 && ratio < 0.01, "{document:#}");
}

#[test]
fn a_replay_shows_what_the_run_showed() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    let (target, record) = (format!("{}=disk", text(&disk.path())), scratch.join("record"));
    let arguments =
        [&target, "/dev/shm=other", "--stack", "disk:other", "--interval", "50ms", "--json", "--record"];
    let running = Running::start(&[&arguments[..], &[text(&record)]].concat());
    let reads = |count| wait_for("it is read", || disk.reads() >= count);
    reads(5);
    disk.stall(Duration::from_millis(300));
    reads(disk.reads() + 5);
    let hang = Hang::of(&disk);
    std::thread::sleep(Duration::from_millis(1300));
    let live = running.interrupt();
    drop(hang);
    let replayed = watch(&["--replay", text(&record), "--json"]);
    assert_eq!(live.status.code(), Some(1));
    assert_eq!(replayed.status.code(), Some(1));
    assert_eq!(json(&live), json(&replayed));
    assert_eq!(json(&live)["targets"][0]["state"], "pending");
    // A recording that was cut within a line is shown as far as it goes, and says so.
    let whole = std::fs::read(&record).expect("readable");
    // In the last read of the disk: behind that come those of the other alone, as many as there was time for.
    let is_read = |line: &[u8]| {
        let event: Option<Json> = serde_json::from_slice(line).ok();
        event.is_some_and(|event| event["event"] == "end" && event["target"] == 0)
    };
    let line_ends = (0..whole.len()).filter(|at| whole[*at] == b'\n');
    let starts_read = |at: &usize| whole[at + 1..].split(|byte| *byte == b'\n').next().is_some_and(is_read);
    let line_end = line_ends.filter(starts_read).last().expect("reads of the disk");
    let cut = scratch.join("cut");
    std::fs::write(&cut, &whole[..line_end + 5]).expect("writable");
    let document = json(&watch(&["--replay", text(&cut), "--json"]));
    let ios = |document: &Json| document["targets"][0]["ios_total"].as_u64().expect("a number");
    assert!((1..ios(&json(&live))).contains(&ios(&document)), "{document:#}");
    assert!(document["notices"].to_string().contains("is cut off"), "{document:#}");
    // A line in the middle that says nothing is refused, with its number.
    std::fs::write(&cut, [&whole[..line_end + 5], b"\n", &whole[line_end + 1..]].concat()).expect("writable");
    let output = watch(&["--replay", text(&cut), "--json"]);
    let (code, error) = code_and_error(&output);
    assert!(code == 3 && error.contains("cut: line "), "{code} {error}");
}

/// A disk that hangs, with a read in it, until this is dropped: who reads it can end only then.
pub struct Hang<'a>(&'a SlowDisk);

impl<'a> Hang<'a> {
    /// Has a disk that is read again and again hang from its next read on; returns when that hangs.
    pub fn of(disk: &'a SlowDisk) -> Self {
        let hang = Self(disk);
        disk.hang();
        wait_for("a read hangs", || disk.is_waited_for());
        hang
    }
}

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        self.0.heal();
    }
}

/// What a run under way has recorded. It writes that twice a second.
pub struct Record(PathBuf);

impl Record {
    pub fn new(scratch: &Scratch) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(scratch.join(&format!("record-{}", NEXT.fetch_add(1, Ordering::Relaxed))))
    }

    pub fn path(&self) -> &str {
        text(&self.0)
    }

    /// How many I/Os of a target have returned with success.
    pub fn samples(&self, target: usize) -> usize {
        self.count(target, |end| end.get("error").is_none())
    }

    /// How many have failed.
    fn failures(&self, target: usize) -> usize {
        self.count(target, |end| end.get("error").is_some())
    }

    pub fn wait_for_samples(&self, target: usize, count: usize) {
        wait_for("it is sampled", || self.samples(target) >= count);
    }

    fn count(&self, target: usize, is_it: impl Fn(&Json) -> bool) -> usize {
        let lines = std::fs::read_to_string(&self.0).unwrap_or_default();
        // The last may not be whole yet.
        let events = lines.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
        events.filter(|event| event["event"] == "end" && event["target"] == target && is_it(event)).count()
    }
}

/// Runs it again while the machine itself was late meanwhile, a few times at most: the last counts however it was.
pub fn undisturbed<T>(mut run: impl FnMut() -> T) -> T {
    for _ in 1..RUNS_MAX {
        let (result, late) = while_sleeping(&mut run);
        if late < LATE_MAX {
            return result;
        }
        println!("again: a thread that only sleeps was late by {late:?}");
    }
    run()
}

/// Runs it beside a thread that does nothing but sleep; returns how late that was at most.
fn while_sleeping<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let (over, is_over) = channel::<()>();
    let sleeper = std::thread::spawn(move || {
        let mut late = Duration::ZERO;
        loop {
            let since = Instant::now();
            if is_over.recv_timeout(NAP) != Err(RecvTimeoutError::Timeout) {
                return late;
            }
            late = late.max(since.elapsed().saturating_sub(NAP));
        }
    });
    let result = run();
    drop(over);
    (result, sleeper.join().expect("it only sleeps"))
}

const NAP: Duration = Duration::from_millis(5);
const LATE_MAX: Duration = Duration::from_millis(100);
const RUNS_MAX: usize = 5;
