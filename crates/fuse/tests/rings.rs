//! Goal: requests that come through io_uring are served as those of `/dev/fuse` are. Method: the kernel is made to offer it for
//! the time of each test, one at a time.
//!
//! All other tests of this crate can be run the same way: with `enable_uring` set, and `HOLDFAST_FUSE_RINGS` in the environment.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{BLOCKED, MemFs, Mounted, SOON, call, mount_with, wait_until};
use fuse::mount::{self, MountMethod, MountOptions, Unmount};
use fuse::{
    Config, Opcode, OpenReplyFlags, Operation, RingError, RingUse, Session, SessionEnd, SessionError,
    Transport,
};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// As long as it lives the kernel offers io_uring, or does not, and no other test changes that.
struct Offer {
    before: String,
    _file: File,
    _turn: MutexGuard<'static, ()>,
}

impl Offer {
    /// `None`, with a line that says so, where that cannot be.
    fn set(value: &str) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock();
        let Ok(file) = OpenOptions::new().read(true).write(true).open(PARAMETER) else {
            println!(
                "SKIPPED: the kernel cannot send requests through io_uring, or only root may have it do so"
            );
            return None;
        };
        // Other processes that test the same.
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let before = fs::read_to_string(PARAMETER).unwrap();
        fs::write(PARAMETER, value).unwrap();
        Some(Self { before, _file: file, _turn: turn })
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        fs::write(PARAMETER, &self.before).unwrap();
    }
}

fn mount_by_rings(fs: MemFs) -> Option<(Mounted, Offer)> {
    let offer = Offer::set("Y")?;
    let mounted = mount_with(fs, &Config { rings: RingUse::Required, ..Config::default() })?;
    wait_until("the rings to be registered", || mounted.monitor.transport() == Transport::Ring);
    Some((mounted, offer))
}

/// Has this thread run on one processor.
fn run_on(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    _ = sched_setaffinity(None, &one);
}

#[test]
fn requests_come_through_rings_and_are_answered() {
    let Some((mounted, _offer)) = mount_by_rings(MemFs::default()) else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), "content").unwrap();
    assert_eq!(fs::read_to_string(mounted.path("d/f")).unwrap(), "content");
    assert_eq!(fs::read_dir(mounted.path("d")).unwrap().count(), 1);
    assert!(fs::metadata(mounted.path("d/none")).is_err());
    fs::remove_file(mounted.path("d/f")).unwrap();
    let counters = mounted.monitor.counters().snapshot();
    let by_device = counters.requests(Opcode::Init)
        + counters.requests(Opcode::Forget)
        + counters.requests(Opcode::BatchForget);
    assert!(
        counters.by_ring > 10 && counters.by_ring + by_device == counters.requests_total(),
        "{counters:?}"
    );
    assert_eq!(mounted.finish(), SessionEnd::Unmounted);
}

#[test]
fn long_reads_and_writes_are_whole() {
    let Some((mounted, _offer)) = mount_by_rings(MemFs::default()) else { return };
    mounted.fs.quiet.store(true, Ordering::Relaxed);
    mounted.fs.open_flags.store(OpenReplyFlags::DIRECT_IO.bits(), Ordering::Relaxed);
    let bytes: Vec<u8> = (0..3 << 20).map(|n: u32| (n / 7) as u8).collect();
    fs::write(mounted.path("f"), &bytes).unwrap();
    let file = File::open(mounted.path("f")).unwrap();
    let mut read = vec![0; bytes.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == bytes);
    let mut few = [0; 3];
    file.read_exact_at(&mut few, 1 << 20).unwrap();
    assert_eq!(few, bytes[1 << 20..][..3]);
}

#[test]
fn signals_end_waiting_requests() {
    for signal in [Signal::INT, Signal::KILL] {
        let Some((mounted, _offer)) = mount_by_rings(MemFs::default()) else { return };
        let file = File::create(mounted.path("f")).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let before = mounted.count(Opcode::Setlkw);
        let mut child = Command::new("env")
            .args(["--default-signal=INT", "flock"])
            .arg(mounted.path("f"))
            .arg("true")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the child to ask for the lock", || mounted.count(Opcode::Setlkw) > before);
        let start = Instant::now();
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(start.elapsed() < SOON, "took {:?}", start.elapsed());
        assert_eq!(mounted.fs.interrupts.load(Ordering::Relaxed), 1);
    }
}

/// The kernel does not send an INTERRUPT for such a signal.
#[test]
fn a_signal_that_comes_while_the_request_is_queued_ends_it() {
    let Some((mounted, _offer)) = mount_by_rings(MemFs::default()) else { return };
    let file = File::create(mounted.path("f")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    mounted.fs.park(|_, operation| {
        if matches!(operation, Operation::Lookup { name } if *name == "slow") {
            std::thread::sleep(Duration::from_millis(500));
        }
        false
    });
    let opens = mounted.count(Opcode::Open);
    let mut child = Command::new("taskset")
        .args([
            "-c",
            "0",
            "env",
            "--default-signal=INT",
            "sh",
            "-c",
            "exec 9<\"$0\"; read line; exec flock 9",
        ])
        .arg(mounted.path("f"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the child to open the file", || mounted.count(Opcode::Open) > opens);
    let (path, lookups) = (mounted.path("slow"), mounted.count(Opcode::Lookup));
    let slow = call(move || {
        run_on(0);
        fs::metadata(path).is_err()
    });
    wait_until("the ring to be busy", || mounted.count(Opcode::Lookup) > lookups);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(slow.join());
    let ended = Instant::now() + SOON;
    while child.try_wait().unwrap().is_none() && Instant::now() < ended {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.try_wait().unwrap().is_some_and(|status| !status.success()));
}

#[test]
fn answers_of_other_threads_reach_the_caller() {
    let Some((mounted, _offer)) = mount_by_rings(MemFs::default()) else { return };
    fs::write(mounted.path("f"), "x").unwrap();
    let file = OpenOptions::new().write(true).open(mounted.path("f")).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Write { .. } | Operation::Lookup { .. }));
    // The request lies where its answer is to go.
    let write = call(move || file.write_all_at(&[1; 100_000], 0));
    let path = mounted.path("other");
    let look = call(move || fs::metadata(path).is_err());
    mounted.wait_parked(2);
    assert!(!write.returns_within(BLOCKED));
    mounted.fs.release_all();
    write.join().unwrap();
    assert!(look.join());
    assert_eq!(fs::read(mounted.path("f")).unwrap(), [1; 100_000]);
}

#[test]
fn more_requests_wait_than_a_ring_begins_with() {
    let Some((mounted, _offer)) = mount_by_rings(MemFs::default()) else { return };
    mounted.fs.quiet.store(true, Ordering::Relaxed);
    fs::write(mounted.path("f"), "x").unwrap();
    mounted.fs.park(|_, operation| {
        matches!(operation, Operation::Lookup { name } if name.to_string_lossy().starts_with("wait"))
    });
    let mut waiting = Vec::new();
    for round in 0..3 {
        for number in 0..200 {
            let path = mounted.path(&format!("wait-{round}-{number}"));
            waiting.push(call(move || {
                run_on(0);
                fs::metadata(path).is_err()
            }));
        }
        mounted.wait_parked(200 * (round + 1));
        // Nobody stands behind those who wait.
        for cpu in 0..2 {
            run_on(cpu);
            fs::metadata(mounted.path("none")).unwrap_err();
            assert_eq!(fs::read_to_string(mounted.path("f")).unwrap(), "x");
        }
    }
    mounted.fs.release_all();
    for call in waiting {
        assert!(call.join());
    }
}

#[test]
fn a_mark_comes_behind_the_releases_of_all_processors() {
    let Some((mounted, _offer)) = mount_by_rings(MemFs::default()) else { return };
    fs::write(mounted.path("f"), "x").unwrap();
    let ino = mounted.fs.ino(fuse::ROOT_ID, "f");
    wait_until("the first release", || mounted.count(Opcode::Release) == 1);
    for round in 1..=50 {
        let files: Vec<File> = (0..4).map(|_| File::open(mounted.path("f")).unwrap()).collect();
        for (index, file) in files.into_iter().enumerate() {
            run_on(index % 2);
            drop(file);
        }
        mounted.notifier.mark(round, ino).unwrap();
        wait_until("the mark", || mounted.fs.marked.lock().len() == round as usize);
        assert_eq!(*mounted.fs.marked.lock().last().unwrap(), (round, 1 + 4 * round as usize));
    }
}

#[test]
fn what_the_kernel_forgets_comes_by_the_device() {
    let Some((mounted, _offer)) = mount_by_rings(MemFs::default()) else { return };
    for number in 0..50 {
        fs::write(mounted.path(&format!("f{number}")), "x").unwrap();
        fs::remove_file(mounted.path(&format!("f{number}"))).unwrap();
    }
    wait_until("all to be forgotten", || mounted.fs.forgotten.load(Ordering::Relaxed) >= 50);
}

#[test]
fn an_abort_ends_all_threads_and_those_who_wait() {
    let Some((mounted, _offer)) = mount_by_rings(MemFs::default()) else { return };
    mounted.fs.park(|_, operation| matches!(operation, Operation::Lookup { .. }));
    let path = mounted.path("f");
    let waits = call(move || fs::metadata(path).unwrap_err().raw_os_error());
    mounted.wait_parked(1);
    mounted.mount.abort().unwrap();
    assert!(waits.returns_within(SOON));
    assert_eq!(waits.join(), Some(rustix::io::Errno::CONNABORTED.raw_os_error()));
    // Answered too late.
    mounted.fs.release_all();
    assert_eq!(mounted.finish(), SessionEnd::Aborted);
}

#[test]
fn where_it_is_not_offered_requests_come_by_the_device_or_not_at_all() {
    let Some(_offer) = Offer::set("N") else { return };
    let Some(mounted) =
        mount_with(MemFs::default(), &Config { rings: RingUse::IfOffered, ..Config::default() })
    else {
        return;
    };
    fs::write(mounted.path("f"), "x").unwrap();
    assert_eq!(mounted.monitor.transport(), Transport::Device);
    assert_eq!(mounted.monitor.counters().snapshot().by_ring, 0);

    let directory = std::env::temp_dir().join(format!("fuse-test-{}-required", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let options = MountOptions { method: MountMethod::Direct, ..MountOptions::default() };
    let (mount, device) = mount::mount(&directory, &options).unwrap();
    let error =
        Session::start(device, &Config { rings: RingUse::Required, ..Config::default() }).unwrap_err();
    assert!(matches!(error, SessionError::Ring(RingError::Disabled)), "{error:?}");
    mount.unmount(Unmount::Lazy).unwrap();
    fs::remove_dir(&directory).unwrap();
}
