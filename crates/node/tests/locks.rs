//! Locks of applications between nodes, appends, and processes that give up waiting.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Scratch, wait_until};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, kill_process};

/// flock(2) excludes across nodes, and a process that waits for one dies at once when it is killed.
#[test]
fn a_process_waiting_for_a_lock_of_the_other_node_can_be_killed() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    let held = OpenOptions::new().create(true).write(true).truncate(false).open(a.path("f")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let other = OpenOptions::new().write(true).open(b.path("f")).unwrap();
    assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(rustix::io::Errno::WOULDBLOCK));
    for signal in [Signal::INT, Signal::KILL] {
        // A shell that runs the tests in the background has them ignore SIGINT.
        let mut waiter = Command::new("env")
            .args(["--default-signal=INT", "flock"])
            .arg(b.path("f"))
            .arg("true")
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the waiter to wait", || {
            b.ask("waiting")["waiting"].as_array().is_some_and(|list| !list.is_empty())
        });
        kill_process(rustix::process::Pid::from_child(&waiter), signal).unwrap();
        let started = Instant::now();
        assert!(!waiter.wait().unwrap().success());
        assert!(started.elapsed() < Duration::from_secs(5), "died after {:?}", started.elapsed());
    }
    // Once given up here, the other node has it.
    flock(&held, FlockOperation::Unlock).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
}

/// Each O_APPEND write lands at the end that all nodes see: nothing is overwritten.
#[test]
fn appends_of_two_nodes_are_all_kept() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    fs::write(a.path("log"), "").unwrap();
    let roots = [(a.path("log"), 'a'), (b.path("log"), 'b')];
    std::thread::scope(|scope| {
        for (path, tag) in &roots {
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(path).unwrap();
                for number in 0..100 {
                    log.write_all(format!("{tag}{number:04}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    for (path, _) in &roots {
        let mut lines: Vec<String> = fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 200);
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), 200);
    }
}

/// A reader beside each appender: a page that is being read is locked until the node has answered, and an append
/// that went elsewhere than the kernel believed takes the page back. One thread must not do both.
#[test]
fn appends_are_read_meanwhile_on_both_nodes() {
    const APPENDS: usize = 300;
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    fs::write(a.path("log"), "").unwrap();
    let paths = [a.path("log"), b.path("log")];
    let started = Instant::now();
    std::thread::scope(|scope| {
        for path in &paths {
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(path).unwrap();
                (0..APPENDS).for_each(|_| log.write_all(b"a line of 16 b.\n").unwrap());
            });
            scope.spawn(move || {
                while fs::read(path).unwrap().len() < 2 * APPENDS * 16 {
                    assert!(started.elapsed() < Duration::from_secs(40), "appends do not end");
                }
            });
        }
    });
    let text = fs::read_to_string(&paths[0]).unwrap();
    assert!(text.lines().count() == 2 * APPENDS && text.lines().all(|line| line == "a line of 16 b."));
}

/// A file removed on one node stays readable where it is open on the other, until the last close.
#[test]
fn a_file_removed_elsewhere_stays_until_its_last_close() {
    use std::io::{Read, Seek, SeekFrom};
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    fs::write(a.path("f"), "still here").unwrap();
    let mut open = OpenOptions::new().read(true).open(b.path("f")).unwrap();
    fs::remove_file(a.path("f")).unwrap();
    assert!(!b.path("f").exists());
    let mut text = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
}
