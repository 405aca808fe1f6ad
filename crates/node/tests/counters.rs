//! Every metric that is defined is recorded: a mixed load on two mounts moves all of them, but for those that
//! stand for what must not happen here.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Mounted, Scratch, wait_until};
use obs::{DEFINITIONS, Shape};
use rustix::fs::{FallocateFlags, FlockOperation, XattrFlags};
use serde_json::Value;
use volume::FormatOptions;

/// Metrics that stay at zero in this load, and why.
const STILL: &[(&str, &str)] = &[
    ("credit_waits_total", "needs limits: `quotas` of holdfast's mounts"),
    ("master_credit_refused_total", "the same"),
    ("engine_syncs_by_reader_total", "nobody is alone for long: `--test fsyncs`"),
    ("errors_unknown_total", "nothing fails"),
    ("fuse_reader_moves_total", "callers are where the scheduler has them"),
    ("fuse_reader_rescues_total", "the reader gets a CPU in time, mostly"),
    (
        "fuse_ring_requests_total",
        "needs io_uring, which the machine may not offer: `rings` of holdfast's mounts",
    ),
    ("sizes_late_total", "needs `-o lazysize`: `late` of holdfast's mounts"),
    ("times_late_total", "needs `-o nomtime`: the same"),
    ("content_lost_bytes_total", "the disk has room"),
    ("tokens_dropped_total", "token memory suffices"),
    ("watchdog_aborts_total", "no invalidation hangs"),
    ("guard_firings_total", "leases are renewed"),
    ("messages_refused_total", "nobody sends garbage"),
    ("log_waits_total", "the log has room"),
    ("batches_resent_total", "the master stays"),
    ("remasters_total", "the master stays"),
    ("remaster_duration_seconds", "the master stays"),
    ("master_batches_refused_total", "no membership ends in between"),
    ("master_leases_ended_total", "nobody is silent"),
    ("leases_lapsed_total", "the master answers"),
    ("memberships_lost_total", "the master answers"),
    ("mutations_lost_total", "no membership ends in between"),
    ("files_lost_total", "no membership ends in between"),
    ("content_lost_bytes_total", "all content finds room, and no membership ends"),
    ("cache_entries_limit", "caches are limited by token memory"),
    ("segment_cleaned_bytes_total", "too little is overwritten to be cleaned"),
    ("checksum_failures_total", "nothing is damaged"),
    ("metadata_damaged_total", "nothing is damaged"),
];

fn load(own: &Mounted, other: &Mounted, name: &str) {
    let root = own.path(name);
    fs::create_dir(&root).unwrap();
    let mut files = Vec::new();
    for number in 0..50 {
        let path = root.join(format!("f{number}"));
        fs::write(&path, vec![number as u8; 10_000]).unwrap();
        files.push(File::open(&path).unwrap());
    }
    symlink("f0", root.join("link")).unwrap();
    fs::read_link(root.join("link")).unwrap();
    fs::hard_link(root.join("f0"), root.join("hard")).unwrap();
    fs::rename(root.join("f1"), root.join("renamed")).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(root.join("f2")).unwrap();
    file.write_all_at(&vec![7; 2 << 20], 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(1 << 20).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 3 << 20).unwrap();
    rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
    rustix::fs::fsetxattr(&file, "user.a", b"value", XattrFlags::empty()).unwrap();
    let mut value = [0; 16];
    rustix::fs::fgetxattr(&file, "user.a", &mut value[..]).unwrap();
    rustix::fs::flistxattr(&file, &mut value[..]).unwrap();
    rustix::fs::fremovexattr(&file, "user.a").unwrap();
    rustix::fs::statvfs(&root).unwrap();
    drop(file);
    // The other node looks at all of it, changes some, and this one looks again.
    let seen = other.path(name);
    for entry in fs::read_dir(&seen).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
        assert!(!bytes.is_empty());
    }
    for number in 10..20 {
        fs::remove_file(seen.join(format!("f{number}"))).unwrap();
        fs::write(seen.join(format!("new{number}")), "new").unwrap();
        assert_eq!(fs::read(root.join(format!("new{number}"))).unwrap(), b"new");
        assert!(fs::metadata(root.join(format!("f{number}"))).is_err());
    }
    drop(files);
    let mut file = OpenOptions::new().append(true).open(root.join("f3")).unwrap();
    file.write_all(b"more").unwrap();
    assert_eq!(fs::metadata(seen.join("f3")).unwrap().len(), 10_004);
    fs::remove_file(root.join("f4")).unwrap();
}

/// Both nodes make names in one directory at once, until they take turns there.
fn take_turns(a: &Mounted, b: &Mounted) {
    fs::create_dir(a.path("both")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (mounted, name) in [(a, "a"), (b, "b")] {
            let is_over = &is_over;
            scope.spawn(move || {
                // A busy machine makes changes too slowly for turns, for a while: as many as it takes.
                let names = (0_u64..).take_while(|_| !is_over.load(Ordering::Relaxed));
                names.for_each(|n| drop(File::create(mounted.path(&format!("both/{name}{n}"))).unwrap()));
            });
        }
        wait_until("turns to be taken", || {
            a.stat("turns_caught_up_total") > 0 && b.stat("turns_caught_up_total") > 0
        });
        is_over.store(true, Ordering::Relaxed);
    });
}

/// What was recorded of a metric on both nodes.
fn recorded(stats: &[Value], name: &str, shape: Shape) -> f64 {
    let of = |stat: &Value| {
        let value = &stat[name];
        assert!(!value.is_null(), "{name} is not in the statistics");
        let number = match shape {
            Shape::Histogram => &value["count"],
            Shape::Counter | Shape::Gauge | Shape::GaugeWithPeak => value,
        };
        let peak = stat[format!("{name}_peak")].as_f64().unwrap_or(0.0);
        number.as_f64().unwrap().abs().max(peak)
    };
    stats.iter().map(of).sum()
}

#[test]
fn a_mixed_load_moves_every_metric() {
    // Small segments are soon full, and then deleted when nothing of them is left.
    let format = FormatOptions { segment_bytes: Some(1 << 20), ..FormatOptions::default() };
    let Some(scratch) = Scratch::formatted(&format) else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    load(&a, &b, "of-a");
    load(&b, &a, "of-b");
    take_turns(&a, &b);
    for (mounted, name) in [(&a, "of-a"), (&b, "of-b")] {
        fs::remove_dir_all(mounted.path(name)).unwrap();
        File::open(&mounted.root).unwrap().sync_all().unwrap();
    }
    // Ages are whole seconds of a token that nobody uses, and space comes back a moment after removals.
    fs::create_dir(a.path("idle")).unwrap();
    fs::write(a.path("idle/f"), "x").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    wait_until("a segment to be deleted", || {
        fs::write(a.path("x"), vec![1; 100_000]).unwrap();
        File::open(a.path("x")).unwrap().sync_all().unwrap();
        a.stat("segments_deleted_total") > 0
    });
    let stats = [a.ask("stat"), b.ask("stat")];
    let mut still = Vec::new();
    for definition in DEFINITIONS {
        let moved = recorded(&stats, definition.name, definition.shape) > 0.0;
        let excepted = STILL.iter().any(|(name, _)| *name == definition.name);
        assert!(!(moved && definition.name == "errors_unknown_total"), "something failed");
        if !moved && !excepted {
            still.push(definition.name);
        }
    }
    assert!(still.is_empty(), "never recorded: {still:?}");
    for (name, _) in STILL {
        assert!(DEFINITIONS.iter().any(|definition| definition.name == *name), "{name} is defined");
    }
}

/// The sums that others build on stand at the top level, and what they are sums of below `by_label`.
#[test]
fn sums_are_those_of_their_labels_and_of_the_frames_on_the_socket() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    load(&b, &a, "d");
    let stat = b.ask("stat");
    for name in [
        "fuse_requests_total",
        "messages_sent_total",
        "messages_received_total",
        "operations_local_total",
        "operations_shipped_total",
        "tokens_held",
    ] {
        let sum = stat[name].as_u64().unwrap();
        assert!(sum > 0, "{name}");
        let mut parts = Vec::new();
        leaves(&stat["by_label"][name], &mut parts);
        assert_eq!(parts.iter().sum::<u64>(), sum, "{name}");
    }
    let durations = &stat["by_label"]["operation_duration_seconds"];
    for kind in ["create", "write", "read", "mkdir", "fsync", "lookup", "rename", "lock", "truncate"] {
        assert!(durations[kind]["count"].as_u64().unwrap() > 0, "{kind}");
        assert!(durations[kind]["max"].as_f64().unwrap() > 0.0, "{kind}");
    }
    // Nobody asked anything back from b while it made its own directory: a token given back is no revoke.
    let mine = scratch.mount("c");
    fs::create_dir(mine.path("alone")).unwrap();
    let revoked = mine.stat("tokens_revoked_total");
    for number in 0..20 {
        fs::write(mine.path(&format!("alone/f{number}")), "x").unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(mine.stat("tokens_revoked_total"), revoked);
}

fn leaves(value: &Value, found: &mut Vec<u64>) {
    match value {
        Value::Object(map) => map.values().for_each(|below| leaves(below, found)),
        number => found.push(number.as_u64().unwrap()),
    }
}

/// `df -i` counts the volume's inodes on every node, whatever its kernel knows.
#[test]
fn statfs_counts_the_inodes_of_the_volume() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    let used = |mounted: &Mounted| {
        let found = rustix::fs::statvfs(&mounted.root).unwrap();
        found.f_files - found.f_ffree
    };
    let before = used(&b);
    fs::create_dir(a.path("d")).unwrap();
    for number in 0..99 {
        File::create(a.path(&format!("d/f{number}"))).unwrap();
    }
    for mounted in [&a, &b] {
        wait_until("100 inodes more", || used(mounted) == before + 100);
    }
    fs::remove_dir_all(a.path("d")).unwrap();
    for mounted in [&a, &b] {
        wait_until("100 inodes fewer", || used(mounted) == before);
    }
}
