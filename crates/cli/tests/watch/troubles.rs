//! Stalls, hangs and failures are seen, in the right layer, at the cost that is promised.

use std::time::{Duration, Instant};

use crate::place::Scratch;
use crate::slow_disk::SlowDisk;
use crate::{Running, code_and_error, json, text, watch};

#[test]
fn a_stall_of_one_layer_of_two_is_seen_and_the_layer_named() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let (lower, upper) =
        (SlowDisk::mount(&scratch.join("l"), 1 << 20), SlowDisk::mount(&scratch.join("u"), 1 << 20));
    let lower_target = format!("{}=lower", text(&lower.path()));
    let upper_target = format!("{}=upper", text(&upper.path()));
    for (ill, label, other) in [(&upper, "upper", "lower"), (&lower, "lower", "upper")] {
        let arguments = [
            &lower_target,
            &upper_target,
            "--stack",
            "lower:upper",
            "--interval",
            "200ms",
            "--json",
            "--window",
            "50",
        ];
        let running = Running::start(&arguments);
        std::thread::sleep(Duration::from_millis(1000));
        ill.stall(Duration::from_millis(1500));
        std::thread::sleep(Duration::from_millis(2500));
        let output = running.interrupt();
        let document = json(&output);
        assert!(output.status.success(), "{document:#}");
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
        // The other was asked all the time.
        assert!(target(other)["ios_total"].as_u64() >= Some(14), "{document:#}");
        let verdict = document["verdict"].as_str().expect("a verdict");
        assert!(verdict.starts_with(&format!("{label} adds most at peak")), "{verdict}");
    }
}

#[test]
fn what_does_not_return_is_told_while_it_hangs_and_holds_nobody_up() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    let target = format!("{}=disk", text(&disk.path()));
    let running = Running::start(&[
        &target,
        "/dev/shm=other",
        "--stack",
        "disk:other",
        "--interval",
        "200ms",
        "--json",
    ]);
    std::thread::sleep(Duration::from_millis(800));
    disk.hang();
    std::thread::sleep(Duration::from_millis(1500));
    let interrupted = Instant::now();
    // The hang goes on: the command ends all the same, and says what it knows.
    let output = running.interrupt();
    assert!(interrupted.elapsed() < Duration::from_secs(5));
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
    let output = watch(&[text(&disk.path()), "--interval", "200ms", "--duration", "1500ms"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("opening it has not returned for"), "{shown}");
}

#[test]
fn a_disk_that_fails_is_an_alarm_and_heals() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    let path = disk.path();
    let running = Running::start(&[text(&path), "--interval", "100ms"]);
    std::thread::sleep(Duration::from_millis(600));
    disk.fail();
    std::thread::sleep(Duration::from_millis(500));
    disk.heal();
    std::thread::sleep(Duration::from_millis(500));
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
        let target = format!("{}=disk", text(&disk.path()));
        let running = Running::start(&[&target, "--op", op, "--interval", "100ms", "--json"]);
        std::thread::sleep(Duration::from_millis(800));
        disk.vanish();
        std::thread::sleep(Duration::from_millis(800));
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
    std::thread::sleep(Duration::from_millis(500));
    disk.stall(Duration::from_millis(300));
    std::thread::sleep(Duration::from_millis(500));
    disk.hang();
    std::thread::sleep(Duration::from_millis(1300));
    let live = running.interrupt();
    disk.heal();
    let replayed = watch(&["--replay", text(&record), "--json"]);
    assert_eq!(live.status.code(), Some(1));
    assert_eq!(replayed.status.code(), Some(1));
    assert_eq!(json(&live), json(&replayed));
    assert_eq!(json(&live)["targets"][0]["state"], "pending");
    // A recording that was cut within a line is refused, with the line.
    let whole = std::fs::read(&record).expect("readable");
    let line_end = whole[..whole.len() / 2].iter().rposition(|byte| *byte == b'\n').expect("several lines");
    let cut = scratch.join("cut");
    std::fs::write(&cut, &whole[..line_end + 5]).expect("writable");
    let output = watch(&["--replay", text(&cut), "--json"]);
    let (code, error) = code_and_error(&output);
    assert!(code == 3 && error.contains("cut: line "), "{code} {error}");
}
