//! Goal: service is back soon after the master is killed, however many files the volume has.
//! Method: two nodes make files, each its half; the master is killed again and again, and a process at the other mount at once makes a
//! file and syncs it, looks at old files of both halves and lists a directory. The killed node is mounted again, so that the next
//! to die is the one that took over. `HOLDFAST_KILLS_FILES` is how many files. Alone in its program: nothing else is killed meanwhile.
//!
//! Needs root and a FUSE device; says so without.

#[path = "mounts/lab.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod lab;
#[path = "kills/stall.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod stall;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use lab::{Lab, Mount};
use stall::{Stall, now_us};

/// Service is back after a kill within this.
const GAP_US: u64 = 2_000_000;
const IN_A_DIRECTORY: u64 = 1000;
const ROUNDS: u64 = 4;

#[test]
fn service_returns_soon_however_many_files_there_are() {
    let Some(mut lab) = Lab::new() else { return };
    lab.patience = Duration::from_secs(1200);
    let files = std::env::var("HOLDFAST_KILLS_FILES").ok().and_then(|text| text.parse().ok());
    let files: u64 = files.unwrap_or(20_000);
    let local = lab.path("local");
    fs::create_dir_all(&local).expect("made");
    let mut mounts = [lab.mount("a"), lab.mount("b")];
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (mount, half) in mounts.iter().zip(["of-a", "of-b"]) {
            scope.spawn(move || make(&mount.path(half), files / 2));
        }
    });
    println!("{files} files after {:.1} s", began.elapsed().as_secs_f64());
    let stall = Stall::start(&local);
    let mut waits = Vec::new();
    for round in 0..ROUNDS {
        let master = master_of(&lab, &mounts);
        let survivor = &mounts[1 - master];
        let at = now_us();
        mounts[master].signal(Signal::KILL);
        serve(&survivor.root, files / 2, round);
        waits.push((at, now_us()));
        assert!(mounts[master].wait_for_end(Duration::from_secs(10)));
        let name = ["a", "b"][master];
        // Unmounted first: nothing answers behind it any more.
        let again = |mounts: [Mount; 2]| {
            let [a, b] = mounts;
            let (dead, other) = if master == 0 { (a, b) } else { (b, a) };
            drop(dead);
            let new = lab.mount(name);
            if master == 0 { [new, other] } else { [other, new] }
        };
        mounts = again(mounts);
    }
    let stalls = stall.stop();
    for (at, done) in waits {
        let (waited, late) = (done - at, stalls.between(at, done));
        println!("served after {} ms; the machine was late by {} ms", waited / 1000, late / 1000);
        assert!(waited <= GAP_US + late, "served after {waited} us; the machine was late by {late} us");
    }
    let [a, b] = mounts;
    a.unmount(&lab);
    b.unmount(&lab);
    lab.holdfast(&["fsck", "vol"]).expect_success();
}

fn make(root: &Path, files: u64) {
    fs::create_dir(root).expect("made");
    for number in 0..files {
        if number % IN_A_DIRECTORY == 0 {
            fs::create_dir(directory(root, number)).expect("made");
        }
        fs::write(file(root, number), number.to_string()).expect("made");
    }
}

fn directory(root: &Path, number: u64) -> std::path::PathBuf {
    root.join((number / IN_A_DIRECTORY).to_string())
}

fn file(root: &Path, number: u64) -> std::path::PathBuf {
    directory(root, number).join(format!("file-{number}"))
}

/// What a process does that must not wait for long.
fn serve(root: &Path, of_each: u64, round: u64) {
    let mut new = fs::File::create(root.join(format!("made-after-{round}"))).expect("made");
    new.write_all(b"content").expect("written");
    new.sync_all().expect("synced");
    for half in ["of-a", "of-b"] {
        // Somewhere else each time. The last ones of a node that died may be lost with it.
        let number = of_each / 2 * (round + 1) / ROUNDS;
        let path = file(&root.join(half), number);
        assert_eq!(fs::read_to_string(path).expect("there"), number.to_string());
        let listed = fs::read_dir(directory(&root.join(half), number)).expect("there").count();
        assert!(listed as u64 == IN_A_DIRECTORY || of_each < IN_A_DIRECTORY, "{listed}");
    }
}

/// Which of two mounts' nodes is the master.
fn master_of(lab: &Lab, mounts: &[Mount; 2]) -> usize {
    let pid = lab.status()["master_pid"].as_i64().expect("there is one");
    mounts.iter().position(|mount| i64::from(mount.pid.as_raw_pid()) == pid).expect("it is mounted here")
}
