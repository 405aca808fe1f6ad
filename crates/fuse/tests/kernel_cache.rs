//! Goal: pin down what the kernel caches for listings, appends and direct I/O, because the layers
//! above rely on it. Each test prints what it measured.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{BLOCKED, Mounted, SOON, call, mount_default, mount_judged};
use fuse::mount::KernelFile;
use fuse::{Opcode, OpenReplyFlags, Operation, ROOT_ID};
use rustix::fs::Dir;

const ENTRIES: usize = 200;

/// How OPENDIR is answered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Opendir {
    Enosys,
    CacheDir,
    CacheDirKeepCache,
    Plain,
}

fn with_directory(opendir: Opendir) -> Option<(Mounted, u64)> {
    let mounted = mount_default()?;
    mounted.fs.no_opendir.store(opendir == Opendir::Enosys, Ordering::Relaxed);
    let flags = match opendir {
        Opendir::Enosys | Opendir::Plain => OpenReplyFlags::EMPTY,
        Opendir::CacheDir => OpenReplyFlags::CACHE_DIR,
        Opendir::CacheDirKeepCache => OpenReplyFlags::CACHE_DIR | OpenReplyFlags::KEEP_CACHE,
    };
    mounted.fs.opendir_flags.store(flags.bits(), Ordering::Relaxed);
    fs::create_dir(mounted.path("d")).unwrap();
    let directory = mounted.fs.ino(ROOT_ID, "d");
    for index in 0..ENTRIES {
        mounted.fs.create_remote(directory, &format!("f{index:04}"));
    }
    Some((mounted, directory))
}

/// `ls -l`: names and a stat of each.
fn list(mounted: &Mounted) -> usize {
    fs::read_dir(mounted.path("d"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().metadata().is_ok())
        .count()
}

#[test]
fn second_listing_costs_nothing_if_the_kernel_may_keep_it() {
    for opendir in [Opendir::Enosys, Opendir::CacheDirKeepCache, Opendir::CacheDir, Opendir::Plain] {
        let Some((mounted, _)) = with_directory(opendir) else { return };
        let mut all = Vec::new();
        for round in 1..=3 {
            let (count, requests) = mounted.requests_during(|| list(&mounted));
            println!("OPENDIR {opendir:?}, listing {round} of {ENTRIES} entries: {requests:?}");
            assert_eq!(count, ENTRIES);
            all.push(requests);
        }
        let is_kept = matches!(opendir, Opendir::Enosys | Opendir::CacheDirKeepCache);
        let readdirs = all[2].iter().filter(|(opcode, _)| *opcode == Opcode::Readdirplus).count();
        assert_eq!(readdirs == 0, is_kept, "{opendir:?}");
        if opendir == Opendir::Enosys {
            assert_eq!(all[2], []);
        }
    }
}

/// What is done after a remote create, before listing again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Nothing,
    InvalAttributes,
    InvalAttributesOfNewMtime,
    InvalAll,
    ExpireKnownName,
    ExpireUnknownName,
    ExpireCachedNegative,
    IncEpoch,
    IncEpochWithNewMtime,
}

/// Returns whether a new listing, and a rewound old stream, show a file made remotely.
fn sees_remote_create(opendir: Opendir, step: Step) -> Option<(bool, bool)> {
    let (mounted, directory) = with_directory(opendir)?;
    for _ in 0..3 {
        list(&mounted);
    }
    if step == Step::ExpireCachedNegative {
        _ = fs::metadata(mounted.path("d/new"));
    }
    let mut stream = Dir::new(File::open(mounted.path("d")).unwrap()).unwrap();
    let before = stream.by_ref().count();
    mounted.fs.create_remote(directory, "new");
    if matches!(step, Step::InvalAttributesOfNewMtime | Step::IncEpochWithNewMtime) {
        mounted.fs.touch_remote(directory);
    }
    let notifier = &mounted.notifier;
    match step {
        Step::Nothing => {}
        Step::InvalAttributes | Step::InvalAttributesOfNewMtime => {
            _ = notifier.inval_inode(directory, -1, 0).unwrap()
        }
        Step::InvalAll => _ = notifier.inval_inode(directory, 0, 0).unwrap(),
        Step::ExpireKnownName => _ = notifier.expire_entry(directory, OsStr::new("f0000")).unwrap(),
        Step::ExpireUnknownName | Step::ExpireCachedNegative => {
            _ = notifier.expire_entry(directory, OsStr::new("new")).unwrap();
        }
        Step::IncEpoch | Step::IncEpochWithNewMtime => _ = notifier.inc_epoch().unwrap(),
    }
    // The old stream first: a new open would refresh the shared cache for it.
    stream.rewind();
    let old_stream = stream.by_ref().count() > before;
    let (count, requests) = mounted.requests_during(|| list(&mounted));
    println!(
        "OPENDIR {opendir:?}, {step:?}: new listing {count} entries, {requests:?}; open stream new: {old_stream}"
    );
    Some((count > ENTRIES, old_stream))
}

#[test]
fn what_invalidates_a_cached_listing() {
    for opendir in [Opendir::Enosys, Opendir::CacheDirKeepCache] {
        for step in [
            Step::Nothing,
            Step::InvalAttributes,
            Step::InvalAttributesOfNewMtime,
            Step::InvalAll,
            Step::ExpireKnownName,
            Step::ExpireUnknownName,
            Step::ExpireCachedNegative,
            Step::IncEpoch,
            Step::IncEpochWithNewMtime,
        ] {
            let Some((new_listing, old_stream)) = sees_remote_create(opendir, step) else { return };
            if step == Step::Nothing {
                assert!(!new_listing && !old_stream);
            }
            if matches!(step, Step::InvalAll | Step::ExpireKnownName | Step::ExpireCachedNegative) {
                assert!(new_listing && old_stream, "{step:?}");
            }
            if step == Step::InvalAttributesOfNewMtime {
                assert!(new_listing && !old_stream);
            }
        }
    }
}

#[test]
fn append_is_visible_to_the_server_in_both_modes() {
    for flags in [OpenReplyFlags::EMPTY, OpenReplyFlags::DIRECT_IO] {
        let Some(mounted) = mount_default() else { return };
        mounted.fs.open_flags.store(flags.bits(), Ordering::Relaxed);
        fs::write(mounted.path("f"), b"0123456789").unwrap();
        let mut file = OpenOptions::new().append(true).open(mounted.path("f")).unwrap();
        mounted.fs.take_seen();
        file.write_all(b"x").unwrap();
        let seen = mounted.fs.take_seen();
        let write = seen.iter().find(|seen| seen.opcode == Opcode::Write).unwrap();
        println!("append with {flags:?}: {}", write.detail);
        let open_flags = write.detail.split("open_flags=0o").nth(1).unwrap();
        assert!(u32::from_str_radix(open_flags, 8).unwrap() & common::mem_fs::O_APPEND != 0);
    }
}

#[test]
fn direct_append_reaches_the_true_end_and_is_seen_by_cached_readers() {
    for remote_growth in [false, true] {
        let Some(mounted) = mount_default() else { return };
        mounted.fs.append_at_end.store(true, Ordering::Relaxed);
        fs::write(mounted.path("f"), b"0123456789").unwrap();
        let ino = mounted.fs.ino(ROOT_ID, "f");
        let reader = File::open(mounted.path("f")).unwrap();
        reader.read_exact_at(&mut [0; 10], 0).unwrap();
        mounted.fs.open_flags.store(OpenReplyFlags::DIRECT_IO.bits(), Ordering::Relaxed);
        let mut appender = OpenOptions::new().append(true).open(mounted.path("f")).unwrap();
        if remote_growth {
            mounted.fs.set_remote(ino, b"0123456789ABCDEF");
        }
        mounted.fs.take_seen();
        appender.write_all(b"appended").unwrap();
        let write = mounted.fs.take_seen().into_iter().find(|seen| seen.opcode == Opcode::Write).unwrap();
        let mut content = vec![0; 100];
        let (len, requests) = mounted.requests_during(|| reader.read_at(&mut content, 0).unwrap());
        let size = reader.metadata().unwrap().len();
        println!(
            "remote growth {remote_growth}: {}; server has {:?}; cached reader sees {:?} with {requests:?}, size {size}",
            write.detail,
            String::from_utf8_lossy(&mounted.fs.content(ino)),
            String::from_utf8_lossy(&content[..len]),
        );
        if !remote_growth {
            assert_eq!(&content[..len], b"0123456789appended");
        }
        mounted.notifier.inval_inode(ino, 0, 0).unwrap();
        let len = reader.read_at(&mut content, 0).unwrap();
        assert_eq!(content[..len], mounted.fs.content(ino)[..], "after inval_inode");
    }
}

#[test]
fn direct_overwrite_is_seen_by_cached_readers() {
    let Some(mounted) = mount_default() else { return };
    fs::write(mounted.path("f"), vec![1; 8192]).unwrap();
    let reader = File::open(mounted.path("f")).unwrap();
    reader.read_exact_at(&mut [0; 8192], 0).unwrap();
    mounted.fs.open_flags.store(OpenReplyFlags::DIRECT_IO.bits(), Ordering::Relaxed);
    let writer = OpenOptions::new().write(true).open(mounted.path("f")).unwrap();
    writer.write_all_at(&[2; 100], 50).unwrap();
    let mut byte = [0];
    let (_, requests) = mounted.requests_during(|| reader.read_exact_at(&mut byte, 60).unwrap());
    println!("cached reader after a direct overwrite: {byte:?}, {requests:?}");
    assert_eq!(byte, [2]);
}

#[test]
fn page_read_while_a_write_to_it_waits_stays_stale_until_invalidated_again() {
    let Some(mounted) = mount_default() else { return };
    fs::write(mounted.path("f"), vec![1; 4096]).unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    let writer = OpenOptions::new().read(true).write(true).open(mounted.path("f")).unwrap();
    let reader = File::open(mounted.path("f")).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Write { .. }));
    let write = call(move || writer.write_all_at(&[2; 4096], 0).unwrap());
    mounted.wait_parked(1);
    mounted.notifier.inval_inode(ino, 0, 0).unwrap();
    let mut byte = [0];
    reader.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [1], "the server has not done the write yet");
    mounted.fs.release_all();
    assert!(write.returns_within(SOON));
    write.join();
    reader.read_exact_at(&mut byte, 0).unwrap();
    println!("after the write was answered the reader sees {byte:?}");
    mounted.notifier.inval_inode(ino, 0, 4096).unwrap();
    reader.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [2]);
}

/// Of the pages of a write that waits the kernel keeps the last one locked, if the write fills it in part and it was not here. So
/// the others can be taken back before the answer, and nobody's READ brings that one before.
#[test]
fn a_write_keeps_the_lock_of_its_last_page_alone() {
    let Some(mounted) = mount_default() else { return };
    fs::write(mounted.path("f"), vec![1; 3 * 4096]).unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    let writer = OpenOptions::new().write(true).open(mounted.path("f")).unwrap();
    let reader = File::open(mounted.path("f")).unwrap();
    mounted.notifier.inval_inode(ino, 0, 0).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Write { .. }));
    let write = call(move || writer.write_all_at(&[2; 2 * 4096 + 100], 0).unwrap());
    mounted.wait_parked(1);

    let notifier = mounted.notifier.clone();
    let unlocked = call(move || notifier.inval_inode(ino, 0, 2 * 4096).unwrap());
    assert!(unlocked.returns_within(SOON), "pages that are filled whole are locked");
    unlocked.join();
    let notifier = mounted.notifier.clone();
    let locked = call(move || notifier.inval_inode(ino, 2 * 4096, 4096).unwrap());
    assert!(!locked.returns_within(BLOCKED), "the last page is not locked");
    let read = call(move || {
        let mut byte = [0];
        reader.read_exact_at(&mut byte, 2 * 4096).unwrap();
        byte
    });
    assert!(!read.returns_within(BLOCKED), "a page was read that is locked");

    mounted.fs.release_all();
    assert!(write.returns_within(SOON) && locked.returns_within(SOON) && read.returns_within(SOON));
    write.join();
    locked.join();
    assert_eq!(read.join(), [2]);
}

/// Of writes to a file through its pages the kernel makes one at a time: it fills no page for the next one before the answer. So a write
/// that comes after another was filled after that one was answered.
#[test]
fn writes_through_pages_of_a_file_come_one_at_a_time() {
    let Some(mounted) = mount_default() else { return };
    fs::write(mounted.path("f"), vec![1; 2 * 4096]).unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(mounted.path("f")).unwrap();
    let (first, second, reader) = (open(), open(), open());
    mounted.fs.park(|_, operation| matches!(operation, Operation::Write { .. }));
    let first = call(move || first.write_all_at(&[2; 100], 0).unwrap());
    mounted.wait_parked(1);
    let second = call(move || second.write_all_at(&[3; 100], 4096).unwrap());
    assert!(!second.returns_within(BLOCKED));
    let mut byte = [0];
    reader.read_exact_at(&mut byte, 4096).unwrap();
    assert_eq!((byte, mounted.fs.parked_count()), ([1], 1), "its page is filled, or it came");
    mounted.fs.release_all();
    assert!(first.returns_within(SOON) && second.returns_within(SOON));
    first.join();
    second.join();
}

/// A file of ten bytes that another node appends to while its size and its page are being asked for here. Returns what
/// is read after all of it.
fn read_grown_while_asked(raise: bool) -> Option<Vec<u8>> {
    let mounted = mount_default()?;
    mounted.fs.ttl_seconds.store(0, Ordering::Relaxed);
    fs::write(mounted.path("f"), b"0123456789").unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    let reader = Arc::new(File::open(mounted.path("f")).unwrap());
    mounted.notifier.inval_inode(ino, 0, 0).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Read { .. }));
    let in_page = Arc::clone(&reader);
    let read = call(move || in_page.read_exact_at(&mut [0; 5], 0).unwrap());
    mounted.wait_parked(1);
    // Its answer tells of six bytes more, and then four more come.
    mounted.fs.set_remote(ino, b"0123456789ABCDEF");
    let raised = Arc::new(mounted);
    let answered = || (raised.count(Opcode::Getattr), raised.monitor.counters().snapshot().replies);
    let before = answered();
    let stat = {
        let (mounted, reader) = (Arc::clone(&raised), Arc::clone(&reader));
        call(move || {
            if raise {
                // Waits for the page, as the kernel does for its own sake otherwise.
                mounted.notifier.raise_size(ino, 16).unwrap();
            }
            reader.metadata().unwrap().len()
        })
    };
    if !raise {
        let is_more = |now: (u64, u64)| now.0 > before.0 && now.1 > before.1;
        common::wait_until("the size to be told", || is_more(answered()));
    }
    std::thread::sleep(BLOCKED);
    raised.fs.set_remote(ino, b"0123456789ABCDEFGHIJ");
    raised.fs.release_all();
    read.join();
    let told = stat.join();
    let size = reader.metadata().unwrap().len();
    let mut content = vec![0; 100];
    let len = reader.read_at(&mut content, 0).unwrap();
    content.truncate(len);
    println!("raised {raise}: stat {told}, then {size}, {:?}", String::from_utf8_lossy(&content));
    drop(reader);
    Some(content)
}

#[test]
fn a_size_told_late_zeroes_what_was_read_meanwhile_unless_it_was_raised_first() {
    let Some(content) = read_grown_while_asked(false) else { return };
    assert_eq!(content, b"0123456789ABCDEF\0\0\0\0");
    assert_eq!(read_grown_while_asked(true).unwrap(), b"0123456789ABCDEFGHIJ");
}

/// A read beyond the end that the kernel knows, of a file that another node appended to, while a write of this
/// node is answered. Returns what it gets.
fn read_grown_while_writing(raise: bool) -> Option<Vec<u8>> {
    let mounted = mount_default()?;
    mounted.fs.ttl_seconds.store(0, Ordering::Relaxed);
    mounted.fs.append_at_end.store(true, Ordering::Relaxed);
    fs::write(mounted.path("f"), b"0123456789").unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    let reader = File::open(mounted.path("f")).unwrap();
    mounted.fs.open_flags.store(OpenReplyFlags::DIRECT_IO.bits(), Ordering::Relaxed);
    let mut appender = OpenOptions::new().append(true).open(mounted.path("f")).unwrap();
    mounted.fs.set_remote(ino, b"0123456789ABCDEF");
    mounted.notifier.inval_inode(ino, 0, 0).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Getattr { .. }));
    let read = call(move || {
        let mut content = vec![0; 100];
        let len = reader.read_at(&mut content, 0).unwrap();
        content.truncate(len);
        content
    });
    mounted.wait_parked(1);
    appender.write_all(b"G").unwrap();
    if raise {
        mounted.notifier.raise_size(ino, 17).unwrap();
    }
    mounted.fs.release_all();
    let content = read.join();
    println!("raised {raise}: {:?}", String::from_utf8_lossy(&content));
    Some(content)
}

#[test]
fn a_size_told_during_a_write_is_dropped_unless_it_was_raised_first() {
    let Some(content) = read_grown_while_writing(false) else { return };
    // One byte more than before, which is what the kernel knows of.
    assert_eq!(content, b"0123456789A");
    assert_eq!(read_grown_while_writing(true).unwrap(), b"0123456789ABCDEFG");
}

#[test]
fn a_raised_size_changes_no_page_and_never_shrinks() {
    let Some(mounted) = mount_default() else { return };
    fs::write(mounted.path("f"), vec![7; 10_000]).unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    let reader = File::open(mounted.path("f")).unwrap();
    let mut content = vec![0; 20_000];
    for size in [9_999, 10_000, 10_001, 12_288, 12_289, 16_000] {
        assert_eq!(reader.read_at(&mut content, 0).unwrap(), mounted.fs.content(ino).len());
        let grown = vec![7; mounted.fs.content(ino).len().max(size)];
        mounted.fs.set_remote(ino, &grown);
        mounted.notifier.inval_inode(ino, 0, 0).unwrap();
        assert_eq!(mounted.notifier.raise_size(ino, size as u64).unwrap(), fuse::Notified::Done);
        let (len, requests) =
            mounted.requests_during(|| reader.read_at(&mut content[..grown.len()], 0).unwrap());
        assert!(content[..len] == grown[..], "{size}");
        assert!(requests.iter().all(|(opcode, _)| *opcode == Opcode::Read), "{requests:?}");
        assert_eq!(reader.metadata().unwrap().len(), grown.len() as u64);
    }
    assert_eq!(mounted.notifier.raise_size(99, 5).unwrap(), fuse::Notified::Absent);
}

#[test]
fn a_renamed_name_keeps_the_lifetime_of_the_old_one() {
    let Some(mounted) = mount_default() else { return };
    fs::write(mounted.path("a"), b"").unwrap();
    fs::metadata(mounted.path("a")).unwrap();
    fs::rename(mounted.path("a"), mounted.path("b")).unwrap();
    let (_, requests) = mounted.requests_during(|| fs::metadata(mounted.path("b")).unwrap());
    assert!(requests.iter().all(|(opcode, _)| *opcode != Opcode::Lookup), "{requests:?}");
    // Another node's change stays unseen, though this file system never told of the name.
    mounted.fs.remove_remote(ROOT_ID, "b");
    assert!(fs::metadata(mounted.path("b")).is_ok());
}

#[test]
fn an_epoch_during_a_rename_ends_the_lifetime_of_the_new_name() {
    let Some(mounted) = mount_default() else { return };
    if !mounted.negotiated.has_inc_epoch() {
        println!("SKIPPED: the kernel has no epoch");
        return;
    }
    fs::write(mounted.path("a"), b"").unwrap();
    fs::metadata(mounted.path("a")).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Rename { .. }));
    let (from, to) = (mounted.path("a"), mounted.path("b"));
    let client = call(move || fs::rename(from, to));
    mounted.wait_parked(1);
    mounted.notifier.inc_epoch().unwrap();
    mounted.fs.release_all();
    client.join().unwrap();
    let (_, requests) = mounted.requests_during(|| fs::metadata(mounted.path("b")).unwrap());
    let lookups = requests.iter().filter(|(opcode, _)| *opcode == Opcode::Lookup);
    assert_eq!(lookups.map(|(_, count)| count).sum::<u64>(), 1, "{requests:?}");
}

/// A file of three pages that another node cuts to ten bytes while its third page and then its first are being read here.
/// Returns what the two reads get, and what a third one after them.
fn read_while_cut(refresh: bool) -> Option<[Vec<u8>; 3]> {
    let mounted = Arc::new(mount_default()?);
    fs::write(mounted.path("f"), vec![7; 3 * 4096]).unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    let reader = Arc::new(File::open(mounted.path("f")).unwrap());
    mounted.notifier.inval_inode(ino, 0, 0).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Read { .. }));
    let read = |offset, len| {
        let reader = Arc::clone(&reader);
        call(move || {
            let mut content = vec![0xff; len];
            let len = reader.read_at(&mut content, offset).unwrap();
            content.truncate(len);
            content
        })
    };
    let last = read(2 * 4096, 4096);
    mounted.wait_parked(1);
    let first = read(0, 4096);
    mounted.wait_parked(2);
    mounted.fs.set_remote(ino, b"0123456789");
    let file = Arc::new(mounted.mount.kernel_file(ino, 1).unwrap());
    assert_eq!(file.size().unwrap(), 3 * 4096);
    let refreshed = refresh.then(|| {
        let file_again = Arc::clone(&file);
        let refreshed = call(move || file_again.refresh().unwrap());
        common::wait_until("the size to be taken", || file.size().unwrap() == 10);
        // It waits for the page behind the end.
        assert!(!refreshed.returns_within(BLOCKED));
        refreshed
    });
    mounted.fs.release_all();
    let (last, first) = (last.join(), first.join());
    if let Some(refreshed) = refreshed {
        refreshed.join();
    }
    let third = read(0, 100).join();
    println!(
        "refreshed {refresh}: first page {} bytes, last page {}, then {}",
        first.len(),
        last.len(),
        third.len()
    );
    drop(file);
    Some([first, last, third])
}

#[test]
fn an_end_cut_elsewhere_shows_zeros_to_reads_under_way_unless_the_kernel_is_made_to_ask_for_it() {
    let Some([first, _, third]) = read_while_cut(false) else { return };
    assert!(first.len() > 10 && first.starts_with(b"0123456789\0"), "{first:?}");
    assert!(third.len() > 10, "{}", third.len());
    let right = b"0123456789".to_vec();
    assert_eq!(read_while_cut(true).unwrap(), [right.clone(), Vec::new(), right]);
}

/// Whether a write gets past a kernel that has taken an earlier end and not dropped the pages behind it, which are being read.
/// It has so long for that.
fn writes_before_pages_go(refresh: fn(&KernelFile), limit: Duration) -> Option<bool> {
    let mounted = Arc::new(mount_default()?);
    fs::write(mounted.path("f"), vec![7; 3 * 4096]).unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    let open = Arc::new(File::options().read(true).write(true).open(mounted.path("f")).unwrap());
    mounted.notifier.inval_inode(ino, 0, 0).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Read { .. }));
    let reader = Arc::clone(&open);
    let last = call(move || reader.read_at(&mut [0; 4096], 2 * 4096).unwrap());
    mounted.wait_parked(1);
    mounted.fs.set_remote(ino, b"0123456789");
    let file = Arc::new(mounted.mount.kernel_file(ino, 1).unwrap());
    let file_again = Arc::clone(&file);
    let refreshed = call(move || refresh(&file_again));
    common::wait_until("the size to be taken", || file.size().unwrap() == 10);
    let written = call(move || open.write_at(&[9; 100], 5).unwrap());
    let is_early = written.returns_within(limit);
    assert!(!refreshed.returns_within(BLOCKED));
    mounted.fs.release_all();
    last.join();
    refreshed.join();
    assert_eq!(written.join(), 100);
    let expected = [&b"01234"[..], &[9; 100]].concat();
    assert_eq!((mounted.fs.content(ino), fs::read(mounted.path("f")).unwrap()), (expected.clone(), expected));
    drop(file);
    Some(is_early)
}

#[test]
fn no_write_comes_between_an_end_taken_under_the_lock_of_the_file_and_the_pages_behind_it() {
    let by_getattr = |file: &KernelFile| file.refresh().unwrap();
    let Some(is_early) = writes_before_pages_go(by_getattr, SOON) else { return };
    assert!(is_early);
    assert_eq!(writes_before_pages_go(|file| file.refresh_locked().unwrap(), BLOCKED), Some(false));
}

/// An ordinary user opens a file whose mode another node changed from 0600 to 0644, while something else of it is taken
/// back.
fn open_once_allowed(ask_again: bool) -> Option<std::io::Result<()>> {
    let mounted = mount_judged()?;
    fs::write(mounted.path("f"), b"x").unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    mounted.fs.chmod_remote(ino, 0o600);
    let open = |path: &std::path::Path| {
        let path = path.to_owned();
        call(move || {
            let user = rustix::process::Uid::from_raw(1000);
            // Of this thread alone.
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            File::open(path)
        })
    };
    mounted.notifier.inval_inode(ino, -1, 0).unwrap();
    assert!(open(&mounted.path("f")).join().is_err());

    mounted.fs.chmod_remote(ino, 0o644);
    mounted.notifier.inval_inode(ino, -1, 0).unwrap();
    let is_of_it = move |nodeid| nodeid == ino;
    mounted.fs.park(move |header, operation| {
        is_of_it(header.nodeid) && matches!(operation, Operation::Getattr { .. })
    });
    let opened = open(&mounted.path("f"));
    mounted.wait_parked(1);
    mounted.notifier.inval_inode(ino, -1, 0).unwrap();
    let file = mounted.mount.kernel_file(ino, 1).unwrap();
    assert_eq!(file.cached().unwrap().mode, 0o600);
    if ask_again {
        file.refresh_locked().unwrap();
        assert_eq!(file.cached().unwrap().mode, 0o644);
    }
    mounted.fs.release_all();
    // Closed: the session does not end before.
    Some(opened.join().map(drop))
}

#[test]
fn permissions_told_are_not_judged_by_if_anything_was_taken_back_since_unless_the_kernel_asks_once_more() {
    let Some(opened) = open_once_allowed(false) else { return };
    assert_eq!(opened.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    assert!(open_once_allowed(true).unwrap().is_ok());
}

/// What a listing tells of an inode is dropped if its attributes were taken back since it was asked for; and a notification of a
/// name waits for it, also of one that nobody has. So what is asked for after that notification is taken.
#[test]
fn a_listing_asked_for_after_a_notification_of_any_name_tells_of_permissions_that_were_taken_back_before() {
    let Some(mounted) = mount_judged() else { return };
    mounted.fs.opendir_flags.store(OpenReplyFlags::EMPTY.bits(), Ordering::Relaxed);
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), b"x").unwrap();
    let directory = mounted.fs.ino(ROOT_ID, "d");
    let ino = mounted.fs.ino(directory, "f");
    let file = mounted.mount.kernel_file(ino, 1).unwrap();
    mounted.fs.chmod_remote(ino, 0o600);
    file.refresh_locked().unwrap();
    mounted.fs.chmod_remote(ino, 0o644);

    mounted.fs.park(move |header, operation| {
        header.nodeid == directory && matches!(operation, Operation::Readdirplus { .. })
    });
    let path = mounted.path("d");
    let list = move || fs::read_dir(path).unwrap().count();
    let listing = call(list.clone());
    mounted.wait_parked(1);
    mounted.notifier.inval_inode(ino, -1, 0).unwrap();
    let notifier = mounted.notifier.clone();
    let lull = call(move || notifier.expire_entry(directory, OsStr::new("nobody has it")).unwrap());
    assert!(!lull.returns_within(BLOCKED), "the listing has the lock");
    mounted.fs.release_all();
    lull.join();
    assert_eq!(listing.join(), 1);
    assert_eq!(file.cached().unwrap().mode, 0o600, "asked for before they were taken back");
    assert_eq!(list(), 1);
    assert_eq!(file.cached().unwrap().mode, 0o644);
}

#[test]
fn a_file_that_the_kernel_does_not_have_is_not_found() {
    let Some(mounted) = mount_default() else { return };
    fs::write(mounted.path("f"), b"x").unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    let generation = 1;
    let (file, requests) = mounted.requests_during(|| mounted.mount.kernel_file(ino, generation).unwrap());
    // Of the mount point alone.
    let root = [Opcode::Getattr, Opcode::Opendir];
    assert!(requests.iter().all(|(opcode, _)| root.contains(opcode)), "{requests:?}");
    assert_eq!(file.size().unwrap(), 1);
    assert_eq!(mounted.mount.kernel_file(ino, generation + 1).unwrap_err(), fuse::Errno::STALE);
    assert_eq!(mounted.mount.kernel_file(99, generation).unwrap_err(), fuse::Errno::STALE);
    drop(file);
}

/// To open a directory that has no name in the kernel, it looks that up in the parent, under its lock.
#[test]
fn a_nameless_directory_is_opened_by_its_handle_when_nobody_works_on_its_parent() {
    let Some(mounted) = mount_default() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "d");
    mounted.notifier.inval_entry(ROOT_ID, OsStr::new("d")).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Mkdir { .. }));
    let other = mounted.path("other");
    let making = call(move || fs::create_dir(other));
    mounted.wait_parked(1);
    let mount = Arc::clone(&mounted.mount);
    let opening = call(move || mount.kernel_file(ino, 1));
    assert!(!opening.returns_within(BLOCKED), "the mkdir has the lock");
    mounted.fs.release_all();
    making.join().unwrap();
    assert!(opening.join().unwrap().cached().is_ok());
}

/// A directory that the kernel knows is found elsewhere, where another node has moved it, while a rename of this node
/// between two other directories waits for its answer.
fn stat_moved_during_a_rename(drop_old: bool) -> Option<std::io::Result<fs::Metadata>> {
    let mounted = mount_default()?;
    for name in ["from", "from/d", "to", "x", "y"] {
        fs::create_dir(mounted.path(name)).unwrap();
    }
    fs::write(mounted.path("from/d/f"), b"").unwrap();
    fs::write(mounted.path("x/g"), b"").unwrap();
    let (from, to) = (mounted.fs.ino(ROOT_ID, "from"), mounted.fs.ino(ROOT_ID, "to"));
    mounted.fs.move_remote(from, "d", to);
    mounted.notifier.expire_entry(from, OsStr::new("d")).unwrap();
    if drop_old {
        mounted.notifier.inval_entry(from, OsStr::new("d")).unwrap();
    }
    mounted.fs.park(|_, operation| matches!(operation, Operation::Rename { .. }));
    let (old, new) = (mounted.path("x/g"), mounted.path("y/g"));
    let rename = call(move || fs::rename(old, new));
    mounted.wait_parked(1);
    let (found, requests) = mounted.requests_during(|| fs::metadata(mounted.path("to/d")));
    println!("dropped {drop_old}: {:?}, {requests:?}", found.as_ref().map(|_| ()));
    mounted.fs.release_all();
    rename.join().unwrap();
    assert!(fs::metadata(mounted.path("to/d")).is_ok(), "afterwards");
    Some(found)
}

#[test]
fn a_directory_moved_elsewhere_is_stale_during_a_rename_unless_its_old_name_was_dropped() {
    let Some(found) = stat_moved_during_a_rename(false) else { return };
    assert_eq!(found.unwrap_err().raw_os_error(), Some(fuse::Errno::STALE.raw_os_error()));
    assert!(stat_moved_during_a_rename(true).unwrap().is_ok());
}

/// One of two names of a file is removed, and before that is answered the kernel is told that there are `told` links. Returns
/// whether it links the other name again.
fn link_after_unlink(told: u32) -> Option<std::io::Result<()>> {
    let mounted = mount_default()?;
    fs::write(mounted.path("a"), b"").unwrap();
    fs::hard_link(mounted.path("a"), mounted.path("b")).unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "a");
    mounted.fs.park(|_, operation| matches!(operation, Operation::Unlink { .. }));
    let name = mounted.path("b");
    let unlink = call(move || fs::remove_file(name));
    mounted.wait_parked(1);
    mounted.fs.relink_remote(ino, told);
    mounted.notifier.inval_inode(ino, -1, 0).unwrap();
    fs::metadata(mounted.path("a")).unwrap();
    mounted.fs.release_all();
    unlink.join().unwrap();
    let linked = fs::hard_link(mounted.path("a"), mounted.path("c"));
    // Told anew, it does.
    fs::metadata(mounted.path("a")).unwrap();
    fs::hard_link(mounted.path("a"), mounted.path("d")).unwrap();
    Some(linked)
}

#[test]
fn links_are_counted_down_twice_if_they_are_told_before_the_removal_is_answered() {
    let Some(linked) = link_after_unlink(1) else { return };
    assert_eq!(linked.unwrap_err().raw_os_error(), Some(fuse::Errno::NOENT.raw_os_error()));
    assert!(link_after_unlink(2).unwrap().is_ok());
}

/// A name whose lifetime has ended is looked up again, and taken back before the answer is taken; then another node gives it to another file.
/// Returns whether the name still leads to the old one.
fn leads_to_old_after(take_back: fn(&fuse::Notifier, &OsStr)) -> Option<bool> {
    let mounted = mount_default()?;
    let (name, path) = (OsStr::new("log"), mounted.path("log"));
    fs::write(&path, b"").unwrap();
    let old = fs::metadata(&path).unwrap().ino();
    mounted.notifier.expire_entry(ROOT_ID, name).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Lookup { .. }));
    let asked = path.clone();
    let look = call(move || fs::metadata(asked).unwrap().ino());
    mounted.wait_parked(1);
    // The kernel holds no lock of the directory meanwhile, so this does not wait for it.
    take_back(&mounted.notifier, name);
    mounted.fs.release_all();
    assert_eq!(look.join(), old);
    mounted.fs.remove_remote(ROOT_ID, "log");
    let new = mounted.fs.create_remote(ROOT_ID, "log");
    let seen = fs::metadata(&path).unwrap().ino();
    assert!(seen == old || seen == new);
    Some(seen == old)
}

#[test]
fn a_name_that_is_looked_up_again_outlives_its_expiry_unless_it_is_dropped_or_all_are() {
    let expire: fn(&fuse::Notifier, &OsStr) =
        |notifier, name| _ = notifier.expire_entry(ROOT_ID, name).unwrap();
    let Some(leads_to_old) = leads_to_old_after(expire) else { return };
    assert!(leads_to_old);
    assert_eq!(
        leads_to_old_after(|notifier, name| _ = notifier.inval_entry(ROOT_ID, name).unwrap()),
        Some(false)
    );
    assert_eq!(leads_to_old_after(|notifier, _| _ = notifier.inc_epoch().unwrap()), Some(false));
}

/// A directory that a rename replaces, or a rmdir removes, as the kernel believes, is dead to it while somebody uses it: where another node has
/// moved it meanwhile, it is found, and nothing in it.
#[test]
fn a_directory_that_is_taken_for_removed_is_never_entered_again() {
    for is_renamed in [true, false] {
        let Some(mounted) = mount_default() else { return };
        for name in ["a", "e", "aside"] {
            fs::create_dir(mounted.path(name)).unwrap();
        }
        mounted.fs.create_remote(mounted.fs.ino(ROOT_ID, "e"), "g");
        // Or the kernel forgets it.
        let open = File::open(mounted.path("e")).unwrap();
        mounted
            .fs
            .park(|_, operation| matches!(operation, Operation::Rename { .. } | Operation::Rmdir { .. }));
        let (a, e) = (mounted.path("a"), mounted.path("e"));
        let client = call(move || if is_renamed { fs::rename(a, e) } else { fs::remove_dir(e) });
        mounted.wait_parked(1);
        mounted.fs.move_remote(ROOT_ID, "e", mounted.fs.ino(ROOT_ID, "aside"));
        mounted.fs.make_dir_remote(ROOT_ID, "e");
        mounted.fs.release_all();
        client.join().unwrap();
        assert!(fs::metadata(mounted.path("aside/e")).unwrap().is_dir());
        let (found, requests) = mounted.requests_during(|| fs::metadata(mounted.path("aside/e/g")));
        assert_eq!(found.unwrap_err().kind(), std::io::ErrorKind::NotFound, "renamed: {is_renamed}");
        let is_asked = requests.iter().any(|(opcode, _)| *opcode == Opcode::Lookup);
        assert!(!is_asked, "nobody is asked: {requests:?}");
        assert_eq!(fs::read_dir(mounted.path("aside/e")).unwrap().count(), 0);
        drop(open);
    }
}
