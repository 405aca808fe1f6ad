//! Mounts whose requests come through io_uring.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::json;

use crate::lab::{Lab, Partner, wait_until};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// As long as it lives the kernel offers io_uring, or does not. No other test depends on it.
struct Offer {
    before: String,
    _file: File,
}

impl Offer {
    /// `None`, with a line that says so, where that cannot be.
    fn set(value: &str) -> Option<Self> {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(PARAMETER) else {
            println!(
                "SKIPPED: the kernel cannot send requests through io_uring, or only root may have it do so"
            );
            return None;
        };
        flock(&file, FlockOperation::LockExclusive).expect("waited for");
        let before = fs::read_to_string(PARAMETER).expect("read");
        fs::write(PARAMETER, value).expect("root may");
        Some(Self { before, _file: file })
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        fs::write(PARAMETER, &self.before).expect("root may");
    }
}

#[test]
fn two_mounts_by_rings_are_coherent_and_unmount() {
    let Some(lab) = Lab::new() else { return };
    let Some(_offer) = Offer::set("Y") else { return };
    let (a, b) = (lab.mount_with("a", "uring=on"), lab.mount_with("b", "uring=on"));
    let bytes: Vec<u8> = (0..5 << 20).map(|n: u32| (n / 3) as u8).collect();
    for number in 0..200 {
        fs::write(a.path(&format!("f{number}")), format!("{number}")).expect("written");
    }
    fs::write(a.path("long"), &bytes).expect("written");
    assert!(fs::read(b.path("long")).expect("read") == bytes);
    assert_eq!(fs::read_dir(b.path("")).expect("listed").count(), 201);
    assert_eq!(fs::read_to_string(b.path("f7")).expect("read"), "7");
    let both = [
        File::options().write(true).open(a.path("f7")).expect("opened"),
        File::open(b.path("f7")).expect("opened"),
    ];
    for round in 0..50u8 {
        both[0].write_all_at(&[b'a' + round % 26], 0).expect("written");
        let mut byte = [0];
        both[1].read_exact_at(&mut byte, 0).expect("read");
        assert_eq!(byte[0], b'a' + round % 26);
        fs::rename(b.path(&format!("f{}", round + 10)), b.path(&format!("g{round}"))).expect("renamed");
        assert!(!a.path(&format!("f{}", round + 10)).exists() && a.path(&format!("g{round}")).exists());
    }
    drop(both);
    let status = lab.status();
    assert!(
        status["nodes"].as_array().expect("a list").iter().all(|node| node["transport"] == "io_uring"),
        "{status:#}"
    );
    let counters = a.counters(&lab);
    assert!(counters["fuse_ring_requests_total"].as_u64().is_some_and(|count| count > 600), "{counters:#}");
    a.unmount(&lab);
    assert_eq!(fs::read(b.path("long")).expect("read").len(), bytes.len());
    b.unmount(&lab);
}

/// The RELEASE that gives a lock up goes into the queue of the processor where the file was closed.
///
/// The user has a process of its own: one that the tests start while the file is open has it open, too, until it is another
/// program.
#[test]
fn a_lock_is_free_on_its_own_mount_when_its_file_was_closed() {
    let Some(lab) = Lab::new() else { return };
    let Some(_offer) = Offer::set("Y") else { return };
    let a = lab.mount_with("a", "uring=on");
    fs::write(a.path("f"), "").expect("written");
    let refused = Partner::start(&a.root).must("refused_locks", &[json!("f"), json!(500)]);
    assert_eq!(refused, json!([]), "rounds whose lock was not free");
    a.unmount(&lab);
}

#[test]
fn a_killed_node_leaves_nobody_waiting() {
    let Some(lab) = Lab::new() else { return };
    let Some(_offer) = Offer::set("Y") else { return };
    let (a, b) = (lab.mount_with("a", "uring=on"), lab.mount_with("b", "uring=on"));
    fs::create_dir(b.path("of-b")).expect("made");
    fs::write(b.path("of-b/f"), "before").expect("written");
    File::open(b.path("of-b/f")).expect("opened").sync_all().expect("synced");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..4)
            .map(|user| {
                let (b, is_over) = (&b, &is_over);
                scope.spawn(move || {
                    let mut count = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let is_made = File::create(b.path(&format!("of-b/{user}-{count}"))).is_ok();
                        count += 1;
                        if !is_made {
                            break;
                        }
                    }
                    count
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let killed = Instant::now();
        b.signal(Signal::KILL);
        wait_until("users to be told", || users.iter().all(|user| user.is_finished()));
        assert!(killed.elapsed() < Duration::from_secs(5), "took {:?}", killed.elapsed());
        is_over.store(true, Ordering::Relaxed);
    });
    // What b shows was emptied, and a has all it held.
    assert!(fs::read(b.path("of-b/f")).is_err());
    fs::write(a.path("of-b/f"), "after").expect("a has what b held");
    assert_eq!(fs::read_to_string(a.path("of-b/f")).expect("read"), "after");
    drop(b);
    a.unmount(&lab);
}

#[test]
fn what_the_kernel_does_not_offer_is_refused_with_the_way_to_it() {
    let Some(lab) = Lab::new() else { return };
    let Some(_offer) = Offer::set("N") else { return };
    fs::create_dir(lab.path("a")).expect("made");
    let refused = lab.holdfast(&["mount", "vol", "a", "-o", "uring=on"]);
    assert!(refused.code != 0 && refused.err.contains(&format!("echo Y > {PARAMETER}")), "{}", refused.err);
    for options in ["uring=auto", "uring=off"] {
        let a = lab.mount_with("a", options);
        assert_eq!(lab.status()["nodes"][0]["transport"], "dev_fuse");
        a.unmount(&lab);
    }
}
