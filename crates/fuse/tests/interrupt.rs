//! Goal: a process that waits for a lock dies when it is told to. Method: a child blocks in
//! SETLKW; a signal must end it while the lock is still held by somebody else.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use common::{Mounted, SOON, mount_default, wait_until};
use fuse::Opcode;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

/// Holds the lock on "f" here and starts a child that waits for it.
fn child_blocked_on_lock(mounted: &Mounted) -> (File, Child) {
    let file = File::create(mounted.path("f")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let before = mounted.count(Opcode::Setlkw);
    // A shell that runs the tests in the background has them ignore SIGINT.
    let child = Command::new("env")
        .args(["--default-signal=INT", "flock"])
        .arg(mounted.path("f"))
        .arg("true")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the child to ask for the lock", || mounted.count(Opcode::Setlkw) > before);
    (file, child)
}

fn dies_promptly_of(signal: Signal) {
    let Some(mounted) = mount_default() else { return };
    let (_file, mut child) = child_blocked_on_lock(&mounted);
    let start = Instant::now();
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    assert!(start.elapsed() < SOON, "took {:?}", start.elapsed());
    assert!(!status.success());
    println!("{signal:?} ended the waiting child after {:?}", start.elapsed());
    assert_eq!(mounted.fs.interrupts.load(Ordering::Relaxed), 1);
    assert_eq!(mounted.count(Opcode::Interrupt), 1);
}

#[test]
fn process_waiting_for_a_lock_dies_of_sigint() {
    dies_promptly_of(Signal::INT);
}

#[test]
fn process_waiting_for_a_lock_dies_of_sigkill() {
    dies_promptly_of(Signal::KILL);
}

#[test]
fn lock_is_granted_when_its_holder_closes() {
    let Some(mounted) = mount_default() else { return };
    let (file, mut child) = child_blocked_on_lock(&mounted);
    drop(file);
    assert!(child.wait().unwrap().success());
    assert_eq!(mounted.fs.interrupts.load(Ordering::Relaxed), 0);
}
