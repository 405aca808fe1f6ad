//! Goal: each notification does what its documentation says, in requests counted. Method: warm the
//! kernel's caches under an endless TTL, notify, use the name or inode again, count.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use common::{Mounted, mount_default, wait_until};
use fuse::{NotificationKind, Notified, NotifyError, Opcode, ROOT_ID};

/// Mounts with "d/f" made and cached.
fn warm() -> Option<(Mounted, u64, u64)> {
    let mounted = mount_default()?;
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), b"0123456789").unwrap();
    let directory = mounted.fs.ino(ROOT_ID, "d");
    let file = mounted.fs.ino(directory, "f");
    fs::metadata(mounted.path("d/f")).unwrap();
    _ = fs::metadata(mounted.path("d/missing"));
    let (_, requests) = mounted.requests_during(|| fs::metadata(mounted.path("d/f")).unwrap());
    assert_eq!(requests, [], "a cached stat costs nothing");
    Some((mounted, directory, file))
}

fn stat_costs(mounted: &Mounted, name: &str) -> Vec<(Opcode, u64)> {
    mounted.requests_during(|| _ = fs::metadata(mounted.path(name))).1
}

#[test]
fn expire_entry_costs_exactly_one_lookup() {
    let Some((mounted, directory, _)) = warm() else { return };
    assert_eq!(mounted.notifier.expire_entry(directory, OsStr::new("f")).unwrap(), Notified::Done);
    mounted.fs.take_seen();
    // The notification also drops the parent's attributes, which `default_permissions` needs.
    assert_eq!(stat_costs(&mounted, "d/f"), [(Opcode::Lookup, 1), (Opcode::Getattr, 1)]);
    let seen = mounted.fs.take_seen();
    assert!(seen.iter().all(|seen| seen.nodeid == directory), "{seen:?}");
    assert_eq!(stat_costs(&mounted, "d/f"), []);
}

#[test]
fn expire_entry_covers_negative_names() {
    let Some((mounted, directory, _)) = warm() else { return };
    assert_eq!(stat_costs(&mounted, "d/missing"), []);
    mounted.fs.create_remote(directory, "missing");
    assert_eq!(stat_costs(&mounted, "d/missing"), []);
    mounted.notifier.expire_entry(directory, OsStr::new("missing")).unwrap();
    fs::metadata(mounted.path("d/missing")).unwrap();
}

#[test]
fn unknown_names_and_inodes_are_absent_not_errors() {
    let Some((mounted, directory, _)) = warm() else { return };
    assert_eq!(mounted.notifier.expire_entry(directory, OsStr::new("never")).unwrap(), Notified::Absent);
    assert_eq!(mounted.notifier.inval_inode(999, -1, 0).unwrap(), Notified::Absent);
    assert_eq!(mounted.notifier.inval_entry(999, OsStr::new("x")).unwrap(), Notified::Absent);
    let snapshot = mounted.monitor.counters().snapshot();
    assert_eq!(snapshot.notifications_absent, 3);
    assert_eq!(snapshot.notifications(NotificationKind::ExpireEntry), 1);
    let too_long = "x".repeat(2000);
    let refused = mounted.notifier.inval_entry(directory, OsStr::new(&too_long));
    assert!(matches!(refused, Err(NotifyError::Refused { .. })), "{refused:?}");
}

#[test]
fn inval_entry_drops_the_name() {
    let Some((mounted, directory, _)) = warm() else { return };
    mounted.fs.remove_remote(directory, "f");
    assert!(fs::metadata(mounted.path("d/f")).is_ok(), "still cached");
    assert_eq!(mounted.notifier.inval_entry(directory, OsStr::new("f")).unwrap(), Notified::Done);
    assert!(fs::metadata(mounted.path("d/f")).is_err());
}

#[test]
fn delete_for_another_inode_drops_the_cached_name_but_reports_absent() {
    let Some((mounted, directory, _)) = warm() else { return };
    let other = mounted.notifier.delete(directory, 12_345, OsStr::new("f")).unwrap();
    assert_eq!(other, Notified::Absent);
    assert_eq!(stat_costs(&mounted, "d/f"), [(Opcode::Lookup, 1), (Opcode::Getattr, 1)]);
}

#[test]
fn delete_drops_the_name() {
    let Some((mounted, directory, file)) = warm() else { return };
    mounted.fs.remove_remote(directory, "f");
    assert_eq!(mounted.notifier.delete(directory, file, OsStr::new("f")).unwrap(), Notified::Done);
    assert!(fs::metadata(mounted.path("d/f")).is_err());
}

#[test]
fn inval_inode_of_attributes_costs_one_getattr_and_keeps_pages() {
    let Some((mounted, _, file)) = warm() else { return };
    let open = File::open(mounted.path("d/f")).unwrap();
    open.read_exact_at(&mut [0; 10], 0).unwrap();
    assert_eq!(mounted.notifier.inval_inode(file, -1, 0).unwrap(), Notified::Done);
    assert_eq!(stat_costs(&mounted, "d/f"), [(Opcode::Getattr, 1)]);
    let (_, requests) = mounted.requests_during(|| open.read_exact_at(&mut [0; 10], 0).unwrap());
    assert_eq!(requests, [], "pages survive");
}

#[test]
fn inval_inode_of_everything_shows_remote_size_and_data_to_open_files() {
    let Some((mounted, _, file)) = warm() else { return };
    let open = File::open(mounted.path("d/f")).unwrap();
    open.read_exact_at(&mut [0; 10], 0).unwrap();
    mounted.fs.set_remote(file, b"remote content, longer");
    mounted.notifier.inval_inode(file, 0, 0).unwrap();
    assert_eq!(open.metadata().unwrap().size(), 22);
    let mut content = [0; 22];
    open.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"remote content, longer");
}

#[test]
fn inc_epoch_costs_one_lookup_per_name() {
    let Some((mounted, ..)) = warm() else { return };
    if !mounted.negotiated.has_inc_epoch() {
        println!("SKIPPED: the kernel has no epoch");
        return;
    }
    assert_eq!(mounted.notifier.inc_epoch().unwrap(), Notified::Done);
    assert_eq!(stat_costs(&mounted, "d/f"), [(Opcode::Lookup, 2)], "one for d, one for f");
    assert_eq!(stat_costs(&mounted, "d/f"), []);
    assert_eq!(stat_costs(&mounted, "d/missing"), [(Opcode::Lookup, 1)]);
}

#[test]
fn prune_makes_the_kernel_forget_unused_inodes() {
    let Some((mounted, _, file)) = warm() else { return };
    if !mounted.negotiated.has_prune() {
        println!("SKIPPED: the kernel cannot prune");
        return;
    }
    let forgotten = || mounted.fs.forgotten.load(std::sync::atomic::Ordering::Relaxed);
    let before = forgotten();
    mounted.notifier.prune(&[file]).unwrap();
    common::wait_until("FORGET", || forgotten() > before);
    assert_eq!(stat_costs(&mounted, "d/f"), [(Opcode::Lookup, 1)]);
}

#[test]
fn store_fills_the_page_cache() {
    let Some((mounted, _, file)) = warm() else { return };
    let open = File::open(mounted.path("d/f")).unwrap();
    mounted.notifier.inval_inode(file, 0, 0).unwrap();
    mounted.notifier.store(file, 0, b"STORED-DATA-LONGER").unwrap();
    let mut content = [0; 10];
    let (_, requests) = mounted.requests_during(|| open.read_exact_at(&mut content, 0).unwrap());
    assert_eq!(&content, b"STORED-DAT");
    println!("read after store cost {requests:?}");
    assert!(requests.iter().all(|(opcode, _)| *opcode != Opcode::Read));
}

#[test]
fn resend_repeats_pending_requests_under_new_numbers() {
    let Some((mounted, directory, _)) = warm() else { return };
    if mounted.monitor.transport() == fuse::Transport::Ring {
        return;
    }
    mounted.fs.park(|_, operation| matches!(operation, fuse::Operation::Lookup { name } if *name == "slow"));
    let path = mounted.path("d/slow");
    let client = common::call(move || fs::metadata(path).map(drop));
    mounted.wait_parked(1);
    mounted.fs.create_remote(directory, "slow");
    mounted.notifier.resend().unwrap();
    mounted.wait_parked(2);
    let before = mounted.monitor.counters().snapshot();
    mounted.fs.release_all();
    client.join().unwrap();
    let after = mounted.monitor.counters().snapshot();
    println!("lost answers: {}", after.replies_lost - before.replies_lost);
    assert_eq!(after.replies_lost - before.replies_lost, 1, "the answer to the old number");
}

#[test]
fn notifications_after_unmount_find_nothing() {
    let Some((mounted, directory, _)) = warm() else { return };
    let notifier = mounted.notifier.clone();
    mounted.finish();
    for gone in [notifier.inval_entry(directory, OsStr::new("f")), notifier.inval_inode(directory, 0, 0)] {
        assert!(matches!(gone, Ok(Notified::Absent) | Err(NotifyError::Disconnected { .. })), "{gone:?}");
    }
}

/// A RELEASE is sent behind the back of the close; a mark comes after it all the same.
#[test]
fn mark_comes_after_the_release_of_every_file_closed_before() {
    let Some((mounted, _, file)) = warm() else { return };
    for round in 1..=100 {
        mounted.fs.take_seen();
        drop(File::open(mounted.path("d/f")).unwrap());
        assert_eq!(mounted.notifier.mark(round, file).unwrap(), Notified::Done);
        wait_until("the mark", || mounted.fs.marked.lock().last().is_some_and(|(last, _)| *last == round));
        assert_eq!(mounted.fs.marked.lock().last(), Some(&(round, 1)));
    }
}
