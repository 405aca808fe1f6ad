//! `holdfast bench` as people run it: on the file systems there are, on two mounts of a volume, on what cannot be measured, and stopped
//! in the middle.

mod cold;
mod juicefs;
#[path = "../place/juicefs.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod other;
#[path = "../place/pair.rs"]
mod pair;
#[path = "../place/mod.rs"]
mod place;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pair::Volume;
use place::{Mounted, Scratch, names, sh};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

#[test]
fn every_benchmark_runs_on_every_file_system() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let local = text(&scratch.join("local")).to_owned();
    std::fs::create_dir(&local).expect("made");
    for kind in ["ext4", "xfs", "btrfs", "tmpfs"] {
        let Some(mounted) = Mounted::make(&scratch, kind) else { continue };
        let before = names(&mounted.at);
        let at = text(&mounted.at);
        let made = measured(&["create", at, "--files", "2100", "--local", &local, "--runs", "2"]);
        let want: Vec<String> = ["mknod", "create", "mkdir", "symlink", "link"]
            .iter()
            .flat_map(|name| {
                let removed = if *name == "mkdir" { "rmdir".to_owned() } else { format!("{name} unlink") };
                [(*name).to_owned(), format!("{name} stat"), format!("{name} readdir"), removed]
            })
            .collect();
        assert_eq!(figures(&made), want, "{kind}");
        assert_eq!(made["file_system"]["type"], kind);
        for figure in made["figures"].as_array().expect("a list") {
            let name = figure["name"].as_str().expect("a string");
            // To every thousand links one more file is made, which they are links to.
            let wanted = if name == "link readdir" { 2103 } else { 2100 };
            assert_eq!(figure["count"], wanted, "{kind}: {figure:#}");
            assert_eq!(figure["values"].as_array().map(Vec::len), Some(2), "{kind}: {figure:#}");
            assert!(
                figure["median"].as_f64() > Some(0.0) && figure["ratio"].as_f64() > Some(0.0),
                "{kind}: {figure:#}"
            );
            let sum: u64 =
                figure["per_second"].as_array().expect("a list").iter().filter_map(Json::as_u64).sum();
            assert_eq!(sum, wanted, "{kind}: {figure:#}");
        }
        let walked = measured(&["walk", at, "--files", "1000", "--per-directory", "64", "--runs", "1"]);
        assert_eq!(figures(&walked), ["make", "cold", "warm", "chmod of all"], "{kind}");
        assert_eq!(counts(&walked), [1016, 1016, 1016, 1000], "{kind}: files, and 16 directories");
        let unpacked = measured(&["tar", at, "--files", "410", "--runs", "1", "--local", &local]);
        assert_eq!(figures(&unpacked), ["unpack", "du", "du again", "cold du", "remove"], "{kind}");
        assert_eq!(counts(&unpacked), [434; 5], "{kind}: files, 21 directories of 20 in 3 others");
        let timed = measured(&["latency", at, "--count", "51", "--runs", "2", "--local", &local]);
        let calls = ["read", "write+fsync", "create+unlink", "rename", "stat", "flock", "fcntl"];
        assert_eq!(figures(&timed), calls, "{kind}");
        for figure in timed["figures"].as_array().expect("a list") {
            let delays = &figure["delays"];
            let order: Vec<f64> =
                ["p50", "p99", "p99_9", "max"].iter().filter_map(|name| delays[name].as_f64()).collect();
            assert!(order.len() == 4 && order.is_sorted() && order[0] > 0.0, "{kind}: {figure:#}");
            let histogram = delays["histogram"].as_array().expect("a list").iter();
            assert_eq!(
                histogram.filter_map(|bin| bin[1].as_u64()).sum::<u64>(),
                104,
                "{kind}: an even number each run"
            );
            assert!(figure["local_delays"]["p50"].as_f64() > Some(0.0), "{kind}: {figure:#}");
        }
        let rungs = measured(&["ladder", at, "--size", "3M", "--runs", "1", "--local", &local]);
        assert_eq!(figures(&rungs).last(), Some(&"read, file system"), "{kind}");
        assert!(counts(&rungs).iter().all(|count| *count == 3), "{kind}: {rungs:#}");
        let seen = measured(&["coherence", at, "--rounds", "3"]);
        assert_eq!(counts(&seen), [3; 15], "{kind}");
        assert_eq!(names(&mounted.at), before, "{kind}");
    }
    assert!(names(Path::new(&local)).is_empty());
}

/// Goal: what several nodes do is counted, as are their requests. Method: two mounts of a volume, by known numbers.
#[test]
fn two_mounts_of_a_volume_are_measured_together() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let volume = Volume::mount(&scratch, &scratch.join("volume"));
    let [a, b] = volume.mounts.each_ref().map(|mount| text(mount));
    let made = measured(&[
        "create",
        a,
        b,
        "--files",
        "301",
        "--processes",
        "2",
        "--runs",
        "1",
        "--kinds",
        "mknod,create",
    ]);
    assert_eq!(counts(&made), [301; 8]);
    let requests = &made["figures"][0]["counters_each"]["request mknod"];
    assert!((requests.as_f64().expect("a number") - 1.0).abs() < 0.01, "{:#}", made["figures"][0]);
    assert_eq!(made["file_system"]["type"], "fuse.holdfast");
    let own = measured(&[
        "create",
        a,
        b,
        "--files",
        "300",
        "--processes",
        "3",
        "--own",
        "--runs",
        "1",
        "--kinds",
        "mkdir",
    ]);
    assert_eq!(counts(&own), [300; 4]);
    let walked = measured(&["walk", a, b, "--files", "500", "--per-directory", "100", "--runs", "1"]);
    assert_eq!(counts(&walked), [505, 505, 505, 505, 505, 505, 500, 505, 1010, 505]);
    assert_eq!(figures(&walked).last(), Some(&"from a new node"));
    let base = text(&scratch.join("")).to_owned();
    sh(&format!("cd {base} && mkdir t && touch t/1 t/2 t/3 && tar -cf src.tar t")).expect("packed");
    let unpacked = measured(&["tar", a, b, "--archive", text(&scratch.join("src.tar")), "--runs", "1"]);
    assert_eq!(
        figures(&unpacked),
        ["unpack", "du", "du again", "cold du", "du from the other", "du from a new node", "remove"]
    );
    assert_eq!(counts(&unpacked), [4; 7]);
    let seen = measured(&["coherence", a, b, "--rounds", "30"]);
    assert_eq!(counts(&seen), [30; 15]);
    assert!(
        seen["figures"].as_array().expect("a list").iter().all(|figure| figure["median"] == 0.0),
        "{seen:#}"
    );
    let turns =
        measured(&["pingpong", a, b, "--count", "40", "--runs", "1", "--calls", "create+unlink,flock"]);
    assert_eq!(figures(&turns), ["create+unlink", "flock"]);
    let messages = |figure: &Json| {
        let counters = figure["counters_each"].as_object().expect("a map").clone();
        counters
            .iter()
            .filter(|(name, _)| name.starts_with("message "))
            .filter_map(|(_, each)| each.as_f64())
            .sum::<f64>()
    };
    for figure in turns["figures"].as_array().expect("a list") {
        assert!(messages(figure) >= 0.5, "two nodes talk: {figure:#}");
        assert!(figure["local_delays"]["p50"].as_f64() > Some(0.0), "alone: {figure:#}");
    }
    assert_eq!(names(Path::new(a)), [""; 0]);
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let small = Mounted::make(&scratch, "tmpfs").expect("tmpfs is there");
    std::fs::write(scratch.join("file"), "").expect("written");
    let at = |name: &str| text(&scratch.join(name)).to_owned();
    let (small, base) = (text(&small.at).to_owned(), text(&scratch.join("")).to_owned());
    for (arguments, part) in [
        (&["create", &at("gone")][..], "gone: cannot be used: No such file or directory"),
        (&["walk", &at("file")], "file: no directory can be made there: Not a directory"),
        (&["create", &small, "--files", "10000000"], "inodes are needed"),
        (&["create", &base, &small, "--files", "10"], "tmpfs: does not show what is made in"),
        (&["create", &base, "--files", "10", "--local", &at("gone")], "gone: cannot be used"),
        (&["create", &base, "--files", "0"], "0 is not in 1..=100000000"),
        (&["create", &base, "--kinds", "pipe"], "expected one of mknod, create"),
        (&["pingpong", &base, "--local", &base], "compared with the first mount point alone"),
        (&["latency", &base, "--calls", "jump"], "expected one of read, write+fsync"),
        (&["coherence", &base, &small], "tmpfs: does not show what is made in"),
        (&["tar", &base, "--archive", &at("file")], "file: tar unpacks nothing of it: tar: "),
        (&["tar", &base, "--archive", &at("gone")], "gone: cannot be read: No such file"),
        (&["compare", &at("gone"), &at("gone")], "gone: No such file"),
        (&["compare", &at("file"), &at("file")], "file: EOF"),
        (&["ladder", &base, "--device", &at("file")], "file: is no block device"),
        (&["ladder", &base, "--destroy-data", &at("gone")], "gone: cannot be used: No such file"),
        (&["ladder", &base, "--layer", "nothing"], "expected NAME=PATH"),
        (&["ladder", &base, "--size", "5K"], "expected a size of 1M at least"),
        (&["ladder", &small, "--size", "1T"], "MiB are needed"),
        (&["walk"], "required arguments were not provided"),
        (&["create", "/proc", "--files", "10"], "/proc: "),
    ] {
        let output = bench(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && error.contains(part), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
    sh(&format!("mount -o remount,ro {small}")).expect("remounted");
    let output = bench(&["create", &small, "--files", "10"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("Read-only file system"), "{output:?}");
    assert_eq!(names(Path::new(&small)), [""; 0]);
}

/// Goal: a device is written over only where nobody can miss what it holds. Method: one that is mounted, one that another stands on, one
/// that carries a file system, and at last an empty one, of which all changes but nothing else.
#[test]
fn a_device_is_destroyed_only_where_nothing_is_on_it() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let Some(mut mounted) = Mounted::make(&scratch, "ext4") else { return };
    let (base, device) = (text(&scratch.join("")).to_owned(), mounted.device.clone().expect("a loop device"));
    let refused = |part: &str| {
        let output = bench(&["ladder", &base, "--destroy-data", &device, "--size", "1M"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && error.contains(part), "{part}: {output:?}");
    };
    let content = || std::fs::read(scratch.join("ext4.img")).expect("read");
    refused("mounted or held by somebody");
    sh(&format!("umount {}", mounted.at.display())).expect("unmounted");
    let before = content();
    refused("carries ext4");
    let upper = sh(&format!("losetup --find --show {device}")).expect("a loop device");
    refused("stands on it");
    sh(&format!("losetup --detach {upper}")).expect("detached");
    assert!(content() == before, "nothing is written");
    sh(&format!("wipefs -qa {device}")).expect("wiped");
    let report = measured(&["ladder", &base, "--destroy-data", &device, "--size", "4M", "--runs", "2"]);
    let names = figures(&report);
    assert_eq!(names[..2], ["write, raw direct", "write, raw buffered"], "{report:#}");
    assert_eq!(names[3..5], ["read, raw direct", "read, raw buffered"], "{report:#}");
    assert_eq!(report["figures"][0]["of_raw"], 1.0);
    assert!(report["figures"][2]["of_below"].as_f64() > Some(0.0), "{report:#}");
    let after = content();
    assert!(after[..4 << 20] != before[..4 << 20] && after[4 << 20..] == before[4 << 20..]);
    sh(&format!("losetup --detach {device}")).expect("detached");
    mounted.device = None;
}

/// Goal: a report can be compared with another, and what is worse is told. Method: one with itself, and with another whose rates are halved.
#[test]
fn reports_can_be_compared() {
    let scratch = Scratch::new();
    let at = |name: &str| text(&scratch.join(name)).to_owned();
    let base = at("");
    let report = measured(&["create", &base, "--files", "500", "--kinds", "mknod"]);
    std::fs::write(at("first"), report.to_string()).expect("written");
    let output = bench(&["compare", &at("first"), &at("first")]);
    assert!(output.status.success(), "{output:?}");
    let mut slower = report;
    for figure in slower["figures"].as_array_mut().expect("a list") {
        figure["median"] = (figure["median"].as_f64().expect("a number") / 100.0).into();
    }
    std::fs::write(at("second"), slower.to_string()).expect("written");
    let output = bench(&["compare", &at("first"), &at("second"), "--json"]);
    let document: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (output.status.code(), &document["changes"][0]["verdict"]),
        (Some(1), &"worse".into()),
        "{document:#}"
    );
}

/// Goal: all benchmarks make one report in three forms, which can be compared. Method: a hundredth of all, on two mounts of a volume.
#[test]
fn all_benchmarks_make_one_report() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let volume = Volume::mount(&scratch, &scratch.join("volume"));
    let [a, b] = volume.mounts.each_ref().map(|mount| text(mount));
    let (local, out) = (text(&scratch.join("")).to_owned(), text(&scratch.join("report")).to_owned());
    let arguments = ["all", a, b, "--local", &local, "--scale", "0.001", "--runs", "1", "--out", &out];
    let document = measured(&arguments);
    let benches: Vec<&str> = document["reports"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|report| report["bench"].as_str())
        .collect();
    assert_eq!(benches, ["create", "tar", "walk", "latency", "ladder", "pingpong", "coherence"]);
    let read = |kind: &str| std::fs::read_to_string(format!("{out}.{kind}")).expect("written");
    assert_eq!(serde_json::from_str::<Json>(&read("json")).expect("JSON"), document);
    let (markdown, html) = (read("md"), read("html"));
    for bench in benches {
        assert!(
            markdown.contains(&format!("## {bench}\n")) && html.contains(&format!("<h2>{bench}</h2>")),
            "{bench}"
        );
    }
    for tag in ["html", "body", "svg", "text", "table", "tr", "td", "th", "p"] {
        let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        let closed = html.matches(&format!("</{tag}>")).count();
        assert!(opened == closed && closed > 0, "{tag}: {opened} opened, {closed} closed");
    }
    let output = bench(&["compare", &format!("{out}.json"), &format!("{out}.json")]);
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("walk: cold"),
        "{output:?}"
    );
    let again = bench(&arguments);
    assert_eq!(again.status.code(), Some(3), "what is there is not written over: {again:?}");
    assert_eq!(names(Path::new(a)), [""; 0]);
}

/// Goal: hours of measuring are not in vain if something fails at last. Method: a command to mount anew that fails, which only the second
/// benchmark asks for.
#[test]
fn what_was_measured_before_a_failure_is_written() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let small = Mounted::make(&scratch, "tmpfs").expect("tmpfs is there");
    let (at, out) = (text(&small.at), text(&scratch.join("report")).to_owned());
    let arguments = ["all", at, "--scale", "0.001", "--runs", "1", "--out", &out];
    let output = bench(&[&arguments[..], &["--remount", "false"]].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && error.contains("mounts it anew failed"), "{output:?}");
    let read = |kind: &str| std::fs::read_to_string(format!("{out}.{kind}")).expect("written");
    let document: Json = serde_json::from_str(&read("json")).expect("JSON");
    let reports = document["reports"].as_array().expect("a list");
    assert!(reports.len() == 1 && reports[0]["bench"] == "create", "{document:#}");
    for text in [&document["error"].to_string(), &read("md"), &read("html")] {
        assert!(text.contains("mounts it anew failed"), "{text}");
    }
    assert_eq!(names(&small.at), [""; 0]);
}

/// Goal: room for all is asked for before anything is measured. Method: where names fit and the ladder's file does not.
#[test]
fn all_benchmarks_are_refused_at_once_where_one_would_not_fit() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let small = Mounted::make(&scratch, "tmpfs").expect("tmpfs is there");
    let out = text(&scratch.join("report")).to_owned();
    let output = bench(&["all", text(&small.at), "--scale", "0.02", "--runs", "1", "--out", &out]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && error.contains("MiB are needed"), "{output:?}");
    assert!(output.stdout.is_empty(), "nothing was measured: {output:?}");
    assert!(!scratch.join("report.json").exists());
}

/// Goal: an end in the middle leaves nothing. Method: Ctrl-C while names are made, by several processes.
#[test]
fn an_interrupted_benchmark_cleans_up() {
    let scratch = Scratch::new();
    let at = text(&scratch.join("")).to_owned();
    let mut child = start(&["create", &at, "--files", "1000000", "--processes", "2"]);
    let has_begun = || {
        let own = scratch.join(scratch.names().first()?);
        let all = std::fs::read_dir(own).ok()?.next()?.ok()?;
        std::fs::read_dir(all.path()).ok()?.nth(1000)
    };
    wait_for("names are made", || has_begun().is_some());
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let status = child.wait().expect("it ends");
    assert_eq!((status.code(), scratch.names().len()), (Some(130), 0));
}

/// Goal: who signals twice at once asks once, as timeout(1) does: the child, and then its group. Method: two signals that do not become
/// one, while there are names to remove.
#[test]
fn signals_that_come_together_are_one_request() {
    let scratch = Scratch::new();
    let mut child = start(&["create", text(&scratch.join("")), "--files", "1000000"]);
    wait_for("names are made", || {
        let own = scratch.names().first().map(|name| scratch.join(name).join("all"));
        own.and_then(|all| std::fs::read_dir(all).ok()).is_some_and(|all| all.count() > 20_000)
    });
    for signal in [Signal::INT, Signal::TERM] {
        kill_process(Pid::from_child(&child), signal).expect("it runs");
    }
    let status = child.wait().expect("it ends");
    assert_eq!((status.code(), scratch.names().len()), (Some(130), 0));
}

/// Goal: who asks again gets out where something hangs. Method: a command to mount anew that does not end.
#[test]
fn a_second_request_ends_it_at_once() {
    let scratch = Scratch::new();
    let (pid, at) = (scratch.join("pid"), scratch.join("at"));
    std::fs::create_dir(&at).expect("made");
    let command = format!("echo $$ > {0}.new && mv {0}.new {0} && exec sleep 60", pid.display());
    let mut child = start(&["tar", text(&at), "--files", "20", "--runs", "1", "--remount", &command]);
    wait_for("it hangs", || pid.exists());
    let workers = format!("pgrep -P {} -f bench-worker || true", child.id());
    let workers = sh(&workers).expect("pgrep(1) is there");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    std::thread::sleep(Duration::from_millis(1200));
    assert!(child.try_wait().expect("ours").is_none(), "it waits for the command");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    sh(&format!("kill $(cat {})", pid.display())).expect("it sleeps");
    assert_eq!(workers.lines().count(), 2);
    for worker in workers.lines() {
        wait_for("no worker runs on", || !Path::new("/proc").join(worker).join("exe").exists());
    }
}

/// Goal: what unpacks an archive ends with the benchmark, and by a signal. Method: an archive that never comes to its end.
#[test]
fn tar_ends_with_its_benchmark() {
    let scratch = Scratch::new();
    let (archive, at) = (scratch.join("archive"), scratch.join("at"));
    std::fs::create_dir(&at).expect("made");
    sh(&format!("mkfifo {}", archive.display())).expect("made");
    // One who may write, or opening it to read would wait.
    let _writer = std::fs::File::options().read(true).write(true).open(&archive).expect("opened");
    let mut child = start(&["tar", text(&at), "--archive", text(&archive), "--runs", "1"]);
    let unpacking = || sh(&format!("pgrep -f '^tar -xvf {}' || true", archive.display())).expect("pgrep(1)");
    wait_for("it unpacks", || !unpacking().is_empty());
    let status = std::fs::read_to_string(format!("/proc/{}/status", unpacking().trim())).expect("it runs");
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("Linux tells");
    assert_eq!(u64::from_str_radix(blocked.trim(), 16), Ok(0), "{status}");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    wait_for("tar has ended", || unpacking().is_empty());
    assert!(names(&at).is_empty(), "{:?}", names(&at));
}

/// Goal: hours of measuring are not in vain if nobody reads on. Method: a pipe that nobody reads, and a device that is full.
#[test]
fn what_was_measured_is_written_though_it_cannot_be_shown() {
    let scratch = Scratch::new();
    let dir = scratch.join("dir");
    std::fs::create_dir(&dir).expect("made");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("opened");
    let (reader, gone) = std::io::pipe().expect("a pipe");
    drop(reader);
    for (name, stdout, code, part) in
        [("gone", Stdio::from(gone), 0, ""), ("full", full.into(), 3, "standard output: No space left")]
    {
        let out = text(&scratch.join(name)).to_owned();
        let mut command = Command::new(BINARY);
        command.args(["bench", "all", text(&dir), "--scale", "0.001", "--runs", "1", "--out", &out]);
        let output = command.stdout(stdout).output().expect("the binary runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && error.contains(part), "{name}: {output:?}");
        let document = std::fs::read(format!("{out}.json")).expect("written");
        let document: Json = serde_json::from_slice(&document).expect("JSON");
        assert_eq!(document["reports"].as_array().map(Vec::len), Some(5), "{name}: {document:#}");
        for kind in ["md", "html"] {
            assert!(std::fs::metadata(format!("{out}.{kind}")).expect("made").len() > 0, "{name}: {kind}");
        }
    }
}

/// Goal: a mount that goes away is an error, not a figure. Method: it is taken off in the middle.
#[test]
fn a_mount_that_vanishes_is_an_error() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let mounted = Mounted::make(&scratch, "tmpfs").expect("tmpfs is there");
    let child = start(&["create", text(&mounted.at), "--files", "3000", "--runs", "1000"]);
    std::thread::sleep(Duration::from_millis(300));
    sh(&format!("umount -l {}", mounted.at.display())).expect("it is mounted");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{output:?}");
    assert_eq!(names(&mounted.at), [""; 0]);
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(BINARY);
    command.arg("bench").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn bench(arguments: &[&str]) -> Output {
    start(arguments).wait_with_output().expect("it ends")
}

fn measured(arguments: &[&str]) -> Json {
    let output = bench(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

fn figures(document: &Json) -> Vec<&str> {
    let figures = document["figures"].as_array().expect("a list");
    figures.iter().filter_map(|figure| figure["name"].as_str()).collect()
}

fn counts(document: &Json) -> Vec<u64> {
    let figures = document["figures"].as_array().expect("a list");
    figures.iter().filter_map(|figure| figure["count"].as_u64()).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

const PATIENCE: Duration = Duration::from_secs(30);
