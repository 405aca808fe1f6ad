//! Round trips per second; run with `cargo test --release --test speed -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use common::mount_default;
use fuse::OpenReplyFlags;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, mknodat, openat, unlinkat};

#[test]
#[ignore = "a measurement, not a check"]
fn round_trips() {
    let Some(mounted) = mount_default() else { return };
    mounted.fs.quiet.store(true, Ordering::Relaxed);
    mounted.fs.open_flags.store(OpenReplyFlags::DIRECT_IO.bits(), Ordering::Relaxed);
    fs::write(mounted.path("f"), vec![1; 4 << 20]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(mounted.path("f")).unwrap();
    let mut page = vec![0; 4096];
    report("direct 4 KiB read", 50_000, || file.read_exact_at(&mut page, 0).unwrap());
    let mut large = vec![0; 1 << 20];
    report("direct 1 MiB read", 500, || file.read_exact_at(&mut large, 0).unwrap());
    report("direct 1 MiB write", 500, || file.write_all_at(&large, 0).unwrap());
    report("create, close, unlink", 10_000, || {
        drop(fs::File::create(mounted.path("g")).unwrap());
        fs::remove_file(mounted.path("g")).unwrap();
    });
}

/// What names cost where nothing is done for them: a map in memory, beside the file system of the directory for temporary files. No node
/// on this transport does better.
#[test]
#[ignore = "a measurement, not a check"]
fn names_for_which_nothing_is_done() {
    const COUNT: u64 = 20_000;
    let Some(mounted) = mount_default() else { return };
    mounted.fs.quiet.store(true, Ordering::Relaxed);
    let local = std::env::temp_dir().join(format!("fuse-speed-{}", std::process::id()));
    for (what, root) in [("in memory, through FUSE", mounted.path("names")), ("beside it", local)] {
        for round in 0..3 {
            fs::create_dir(&root).unwrap();
            let dir = File::open(&root).unwrap();
            let each = |action: &dyn Fn(&str)| {
                let start = Instant::now();
                (0..COUNT).for_each(|n| action(&format!("n{n}")));
                start.elapsed().as_nanos() as u64 / COUNT
            };
            let make = each(&|name| mknodat(&dir, name, FileType::RegularFile, Mode::RUSR, 0).unwrap());
            let unlink = each(&|name| unlinkat(&dir, name, AtFlags::empty()).unwrap());
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            let create = each(&|name| drop(openat(&dir, name, flags, Mode::RUSR).unwrap()));
            println!(
                "{what}, round {round}: mknod {make} ns, unlink {unlink} ns, create and close {create} ns"
            );
            fs::remove_dir_all(&root).unwrap();
        }
    }
}

fn report(what: &str, count: usize, mut action: impl FnMut()) {
    let mut nanos: Vec<u128> = (0..count)
        .map(|_| {
            let start = Instant::now();
            action();
            start.elapsed().as_nanos()
        })
        .collect();
    nanos.sort_unstable();
    println!(
        "{what}: p50 {} ns, p99 {} ns, max {} ns",
        nanos[count / 2],
        nanos[count * 99 / 100],
        nanos[count - 1]
    );
}
