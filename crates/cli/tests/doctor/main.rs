//! `holdfast doctor` where something is the matter, and where nothing is. Each fault is planted on this machine, and each verdict has to be
//! right every time: [`times`] times in a row, as often as on the same ground without the fault.

#[path = "../place/juicefs.rs"]
mod juicefs;
#[path = "../place/pair.rs"]
mod pair;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../place/mod.rs"]
mod place;

mod plant;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use juicefs::Juicefs;
use pair::Volume;
use parking_lot::{Mutex, MutexGuard};
use place::{Mounted, Scratch, names, sh};
use plant::{Fight, Group, Throttle};
use serde_json::Value as Json;

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

/// Goal: a disk that is held back is the storage's fault. Method: limits of a control group on a loop device.
#[test]
#[ignore = "measures: run by test.sh with nothing beside"]
fn throttled_storage() {
    let Some((_alone, scratch)) = ground() else { return };
    let Some(mounted) = Mounted::make(&scratch, "ext4") else { return };
    always("healthy", &[text(&mounted.at)]);
    let Some(_throttle) = Throttle::of(mounted.device.as_deref().expect("a loop device"), 2_000_000) else {
        return;
    };
    let document = always("storage", &[text(&mounted.at)]);
    assert!(reasons(&document).contains("raw read"), "{document:#}");
}

/// Goal: a cache that forgets what was just looked at. Method: a control group with room for half of the inodes.
#[test]
#[ignore = "measures: run by test.sh with nothing beside"]
fn a_cache_too_small_for_the_tree() {
    let Some((_alone, scratch)) = ground() else { return };
    let Some(mounted) = Mounted::make(&scratch, "ext4") else { return };
    for dir in 0..40 {
        let dir = mounted.at.join(format!("d{dir}"));
        std::fs::create_dir(&dir).expect("made");
        (0..1000).for_each(|file| drop(std::fs::File::create(dir.join(format!("f{file}"))).expect("made")));
    }
    always("healthy", &[text(&mounted.at)]);
    let Some(group) = Group::new("memory", &[("memory.limit_in_bytes", "20971520")]) else { return };
    for _ in 0..times() {
        // What is in memory is on the account of who brought it there.
        sh("sync && echo 3 > /proc/sys/vm/drop_caches").expect("emptied");
        let output = group.run(&[BINARY, "doctor", text(&mounted.at), "--json"]);
        let document = judged(&output, "cache");
        assert!(reasons(&document).contains("memory was full"), "{document:#}");
    }
}

/// Goal: a file system that is nearly full and in pieces. Method: ext4, filled with small files of which every second one goes.
#[test]
#[ignore = "measures: run by test.sh with nothing beside"]
fn a_fragmented_file_system_that_is_nearly_full() {
    let Some((_alone, scratch)) = ground() else { return };
    let Some(mounted) = Mounted::make(&scratch, "ext4") else { return };
    always("healthy", &[text(&mounted.at)]);
    plant::fragment(&mounted.at);
    let document = always("file system", &[text(&mounted.at)]);
    let found = reasons(&document);
    assert!(found.contains("room") && found.contains("files in pieces"), "{document:#}");
}

/// Goal: two nodes that change one directory fight for its locks, and a daemon without CPU is told from that. Method: two mounts of a volume;
/// two threads that make and remove names; a limit of a control group on one daemon; that daemon stopped.
#[test]
#[ignore = "measures: run by test.sh with nothing beside"]
fn two_mounts_that_fight_and_a_starved_daemon() {
    let Some((_alone, scratch)) = ground() else { return };
    // On a file system of its own: how full the machine's is does not matter.
    let Some(mounted) = Mounted::make(&scratch, "ext4") else { return };
    let volume = Volume::mount(&scratch, &mounted.at.join("volume"));
    let dirs = volume.mounts.each_ref().map(|mount| mount.join("dir"));
    std::fs::create_dir(&dirs[0]).expect("made");
    let [a, b] = dirs.each_ref().map(|dir| text(dir));
    let document = always("healthy", &[a, "--peer", b]);
    let pid = document["ground"]["daemon"]["pid"].as_u64().expect("a daemon");
    let fight = Fight::between(&dirs);
    let found = reasons(&always("locks", &[a]));
    // By what it tried, or, where that differs too much from time to time, by what the nodes count.
    assert!(
        ["names in this directory", "given up in a second"].iter().any(|what| found.contains(what)),
        "{found}"
    );
    let document = judged(&doctor(&[a, "--passive"]), "locks");
    assert!(reasons(&document).contains("given up in a second"), "{document:#}");
    assert!(fight.rounds() > 100, "they fight");
    drop(fight);
    let limits = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "12000")];
    if let Some(group) = Group::new("cpu", &limits) {
        group.add(pid);
        always("cpu or daemon", &[a]);
    }
    sh(&format!("kill -STOP {pid}")).expect("stopped");
    let output = doctor(&[a, "--passive"]);
    sh(&format!("kill -CONT {pid}")).expect("it goes on");
    assert!(reasons(&judged(&output, "cpu or daemon")).contains("stopped"));
}

/// Goal: a link that lets little through. Method: JuiceFS, whose names and data are with a Redis behind a link of ten megabits.
#[test]
#[ignore = "measures: run by test.sh with nothing beside"]
fn a_slow_link_below_a_network_file_system() {
    let Some((_alone, scratch)) = ground() else { return };
    let Some(mounted) = Juicefs::mount(&scratch) else { return };
    let document = always("healthy", &[text(&mounted.at)]);
    assert_eq!(document["ground"]["links"][0], mounted.link.as_str(), "{document:#}");
    mounted.limit("10mbit");
    let document = always("network", &[text(&mounted.at)]);
    mounted.unlimit();
    assert!(reasons(&document).contains("round trip"), "{document:#}");
}

/// Goal: a daemon that is stopped, below a file system whose attributes the kernel does not know by heart, so that even to look at the
/// path takes for ever. Method: JuiceFS.
#[test]
#[ignore = "measures, and is a known fault: docs/testing.md"]
fn a_stopped_daemon_of_a_network_file_system() {
    let Some((_alone, scratch)) = ground() else { return };
    let Some(mounted) = Juicefs::mount(&scratch) else { return };
    let document = judged(&doctor(&[text(&mounted.at)]), "healthy");
    let pid = document["ground"]["daemon"]["pid"].as_u64().expect("a daemon");
    sh(&format!("sleep 2; kill -STOP {pid}")).expect("stopped");
    let output = doctor(&[text(&mounted.at)]);
    sh(&format!("kill -CONT {pid}")).expect("it goes on");
    assert!(reasons(&judged(&output, "cpu or daemon")).contains("stopped"));
}

#[test]
#[ignore = "measures: run by test.sh with nothing beside"]
fn every_file_system_is_examined_and_left_as_it_was() {
    let Some((_alone, scratch)) = ground() else { return };
    for kind in ["ext4", "xfs", "btrfs", "tmpfs"] {
        let Some(mounted) = Mounted::make(&scratch, kind) else { continue };
        let before = names(&mounted.at);
        let at = text(&mounted.at);
        let document = judged(&doctor_undisturbed("healthy", &[at, "--cold"]), "healthy");
        assert_eq!(document["file_system"]["type"], kind);
        let figures: Vec<&str> = document["figures"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|figure| figure["name"].as_str())
            .collect();
        for name in ["write", "read", "names here", "stat cold", "stat warm", "write+fsync", "flock"] {
            assert!(figures.contains(&name), "{kind}, {name}: {document:#}");
        }
        assert_eq!(figures.contains(&"raw read"), kind != "tmpfs", "{kind}");
        judged(&doctor_undisturbed("healthy", &[at, "--passive"]), "healthy");
        assert_eq!(names(&mounted.at), before, "{kind}");
    }
}

/// Goal: what became worse since a better day is seen though it is not slow by itself. Method: a saved examination whose figures are made
/// better by hand; a disk that is held back to what is still no shame.
#[test]
#[ignore = "measures: run by test.sh with nothing beside"]
fn a_better_day_is_remembered() {
    let Some((_alone, scratch)) = ground() else { return };
    let Some(mounted) = Mounted::make(&scratch, "ext4") else { return };
    let (at, saved) = (text(&mounted.at), text(&scratch.join("saved")).to_owned());
    save_a_usual_day(at, &saved);
    let again = doctor(&[at, "--save", &saved]);
    assert_eq!(again.status.code(), Some(3), "what is there is not written over: {again:?}");
    let Some(_throttle) = Throttle::of(mounted.device.as_deref().expect("a loop device"), 40_000_000) else {
        return;
    };
    judged(&doctor_undisturbed("healthy", &[at]), "healthy");
    let document = judged(&doctor_undisturbed("storage", &[at, "--against", &saved]), "storage");
    assert!(reasons(&document).contains("times as slow as before"), "{document:#}");
}

/// Goal: a file system whose daemon is stopped is not asked for what it will not answer. Method: a node is stopped while the doctor looks
/// on, with its guard, which would end the mount.
#[test]
fn a_stopped_daemon_is_asked_for_nothing() {
    let Some((_alone, scratch)) = ground() else { return };
    let volume = Volume::mount(&scratch, &scratch.join("volume"));
    let at = text(&volume.mounts[0]);
    let document: Json = serde_json::from_slice(&doctor(&[at, "--passive"]).stdout).expect("JSON");
    let pid = document["ground"]["daemon"]["pid"].as_u64().expect("a daemon");
    let guard = sh(&format!("pgrep -P {pid}")).expect("a guard");
    let both = format!("{pid} {}", guard.trim());
    let mut command = Command::new("timeout");
    command.args(["60", BINARY, "doctor", at, "--json"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let doctor = command.spawn().expect("the binary runs");
    // It looks on for 1.2 s.
    std::thread::sleep(std::time::Duration::from_millis(600));
    sh(&format!("kill -STOP {both}")).expect("stopped");
    let output = doctor.wait_with_output();
    sh(&format!("kill -CONT {both}")).expect("they go on");
    assert!(reasons(&judged(&output.expect("it runs"), "cpu or daemon")).contains("stopped"));
}

#[test]
fn what_cannot_be_saved_is_shown() {
    let Some((_alone, scratch)) = ground() else { return };
    let full = Mounted::make(&scratch, "tmpfs").expect("tmpfs is there");
    let (fill, saved) = (full.at.join("fill"), full.at.join("saved"));
    _ = sh(&format!("cat /dev/zero > {}", fill.display()));
    let output = doctor(&[text(&scratch.join("")), "--passive", "--save", text(&saved)]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let document: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["bench"], "doctor");
}

#[test]
fn what_cannot_be_examined_is_refused_by_name() {
    let Some((_alone, scratch)) = ground() else { return };
    let small = Mounted::make(&scratch, "tmpfs").expect("tmpfs is there");
    std::fs::write(scratch.join("file"), "").expect("written");
    std::fs::write(scratch.join("other"), "{}").expect("written");
    std::fs::create_dir(scratch.join("dir")).expect("made");
    let at = |name: &str| text(&scratch.join(name)).to_owned();
    let dir = at("dir");
    for (arguments, part) in [
        (&[&*at("gone")][..], "gone: cannot be examined: No such file or directory"),
        (&[&at("file")], "file: cannot be examined: not a directory"),
        (&[&dir, "--peer", text(&small.at)], "tmpfs: does not show what is made in"),
        (&[&dir, "--peer", &at("gone")], "gone: cannot be used: No such file"),
        (&[&dir, "--against", &at("gone")], "gone: No such file"),
        (&[&dir, "--against", &at("file")], "file: EOF"),
        // Not examined: it says this, and not that the path is gone.
        (&[&at("gone"), "--against", &at("other")], "--against: no examination"),
        (&[&dir, "--save", &at("file")], "file: File exists"),
        (&[&dir, "--passive", "--cold"], "cannot be used with"),
        (&[], "required arguments were not provided"),
    ] {
        let output = doctor(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && error.contains(part), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
    sh(&format!("mount -o remount,ro {}", text(&small.at))).expect("remounted");
    let output = doctor(&[text(&small.at)]);
    let document: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(document["notes"].to_string().contains("Read-only file system"), "{document:#}");
    // Other tests may keep the machine busy, which it says as well.
    let reasons = document["reasons"].as_array().expect("a list");
    assert!(reasons.iter().all(is_of_machine), "{document:#}");
    assert_eq!(names(Path::new(&dir)), [""; 0]);
}

/// How often each verdict has to be right.
fn times() -> u32 {
    std::env::var("HOLDFAST_TIMES").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Has it examine so often; the last document.
fn always(verdict: &str, arguments: &[&str]) -> Json {
    let examined = || judged(&doctor_undisturbed(verdict, arguments), verdict);
    (0..times()).map(|_| examined()).last().expect("once at least")
}

/// Saves an examination from which the next one does not differ. Where the machine was not the same in both, they are made anew, a few times
/// at most.
fn save_a_usual_day(at: &str, saved: &str) {
    for tries_left in (0..TRIES_MAX).rev() {
        let outputs = [doctor(&[at, "--save", saved]), doctor(&[at, "--against", saved])];
        let disturbed = outputs.iter().map(document).find(|document| is_disturbed(document, "healthy"));
        let Some(disturbed) = disturbed.filter(|_| tries_left > 0) else {
            outputs.iter().for_each(|output| _ = judged(output, "healthy"));
            return;
        };
        println!("saved anew: {}", disturbance(&disturbed));
        std::fs::remove_file(saved).expect("it was saved");
        wait_for_calm();
    }
}

/// Examines again, a few times at most, while all that it finds amiss is that the machine is not what it was a moment ago.
fn doctor_undisturbed(verdict: &str, arguments: &[&str]) -> Output {
    for _ in 1..TRIES_MAX {
        let output = doctor(arguments);
        let document = document(&output);
        if document["verdict"] == verdict || !is_disturbed(&document, verdict) {
            return output;
        }
        println!("again: {}", disturbance(&document));
        wait_for_calm();
    }
    doctor(arguments)
}

const TRIES_MAX: usize = 5;

/// Whether others keep the machine busy; or, where nothing was planted and it saw nobody do so, whether something took longer than a moment
/// ago or differed from round to round, with nobody below who can be blamed. What hangs does not count.
fn is_disturbed(document: &Json, expected: &str) -> bool {
    let reasons = document["reasons"].as_array().map_or(&[][..], Vec::as_slice);
    match reasons {
        [] => expected == "healthy" && document["verdict"] == "inconclusive" && document["stuck"].is_null(),
        reasons => reasons.iter().all(is_of_machine),
    }
}

fn disturbance(document: &Json) -> String {
    ["reasons", "unexplained", "unsure"].map(|what| format!("{what} {}", document[what])).join(", ")
}

/// CPU, memory or a disk that others take, from the daemon too.
fn is_of_machine(reason: &Json) -> bool {
    let (what, seen) = (reason["what"].to_string(), reason["seen"].to_string());
    what.contains("waiting for")
        || what.contains("the daemon, ") && seen.contains("held back by a limit for 0 %")
}

/// Waits until others leave the processors alone; not for ever, and not where the kernel does not tell.
fn wait_for_calm() {
    let end = Instant::now() + Duration::from_secs(300);
    let waited_us = || {
        let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
        let some = text.lines().find(|line| line.starts_with("some "))?;
        some.rsplit_once("total=")?.1.parse::<u64>().ok()
    };
    while let Some(before) = waited_us() {
        std::thread::sleep(Duration::from_secs(2));
        let share = waited_us().unwrap_or(before).saturating_sub(before) as f64 / 2e6;
        if share < 0.3 {
            return;
        }
        if Instant::now() > end {
            println!("others keep the processors busy");
            return;
        }
    }
}

/// What it wrote; null where that is no JSON.
fn document(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.arg("doctor").args(arguments).arg("--json").stdin(Stdio::null());
    command.output().expect("the binary runs")
}

fn judged(output: &Output, verdict: &str) -> Json {
    let document: Json =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"));
    assert_eq!(document["verdict"], verdict, "{document:#}\n{:#}", document["reasons"]);
    assert_eq!(document["exit_code"].as_i64(), output.status.code().map(i64::from), "{document:#}");
    assert_eq!(output.status.success(), verdict == "healthy", "{document:#}");
    document
}

fn reasons(document: &Json) -> String {
    document["reasons"].to_string()
}

/// A place of its own, and nobody beside: what others do at the same time would be measured, what they have left to be stored, too.
fn ground() -> Option<(MutexGuard<'static, ()>, Scratch)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock();
    let scratch = Scratch::to_mount()?;
    sh("sync").expect("stored");
    wait_for_calm();
    Some((alone, scratch))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
