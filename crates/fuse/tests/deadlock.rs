//! Goal: document which notifications wait for which pending requests, because a daemon that gets
//! it wrong hangs itself and its clients beyond the reach of SIGKILL. Method: park a request,
//! notify from another thread, see whether the call returns; release, see it return.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{BLOCKED, Mounted, SOON, call, mount_default};
use fuse::{Notified, OpenReplyFlags, Operation, ROOT_ID};

/// Makes directory "d" with a cached name "known", and parks MKNODs of "parked".
fn with_create_pending_in_directory(test: impl FnOnce(&Mounted, u64)) {
    let Some(mounted) = mount_default() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/known"), b"x").unwrap();
    let directory = mounted.fs.ino(ROOT_ID, "d");
    mounted.fs.park(|_, operation| matches!(operation, Operation::Create { .. }));
    let path = mounted.path("d/parked");
    let client = call(move || File::create(path).map(drop));
    mounted.wait_parked(1);
    test(&mounted, directory);
    mounted.fs.release_all();
    _ = client.join();
}

#[test]
fn expire_entry_waits_for_a_pending_create_in_its_directory() {
    with_create_pending_in_directory(|mounted, directory| {
        let notifier = mounted.notifier.clone();
        let expire = call(move || notifier.expire_entry(directory, OsStr::new("known")).unwrap());
        assert!(!expire.returns_within(BLOCKED), "expire_entry did not block");

        let notifier = mounted.notifier.clone();
        let others = call(move || {
            notifier.inval_inode(directory, -1, 0).unwrap();
            notifier.inval_inode(directory, 0, 0).unwrap();
            notifier.inc_epoch().unwrap();
            notifier.prune(&[directory]).unwrap();
        });
        assert!(others.returns_within(SOON), "inval_inode, inc_epoch or prune blocked");
        others.join();
        assert!(!expire.returns_within(BLOCKED), "expire_entry returned too early");
        mounted.fs.release_all();
        assert_eq!(expire.join(), Notified::Done);
    });
}

#[test]
fn inval_entry_and_delete_wait_for_a_pending_create_in_their_directory() {
    with_create_pending_in_directory(|mounted, directory| {
        let known = mounted.fs.ino(directory, "known");
        let notifier = mounted.notifier.clone();
        let delete = call(move || notifier.delete(directory, known, OsStr::new("known")).unwrap());
        let notifier = mounted.notifier.clone();
        let inval = call(move || notifier.inval_entry(directory, OsStr::new("other")).unwrap());
        assert!(!delete.returns_within(BLOCKED) && !inval.returns_within(BLOCKED));
        mounted.fs.release_all();
        assert_eq!(delete.join(), Notified::Done);
        inval.join();
    });
}

#[test]
fn abort_frees_a_notification_that_can_never_return() {
    with_create_pending_in_directory(|mounted, directory| {
        let notifier = mounted.notifier.clone();
        let expire = call(move || notifier.expire_entry(directory, OsStr::new("known")));
        assert!(!expire.returns_within(BLOCKED));
        let mount = Arc::clone(&mounted.mount);
        let abort = call(move || mount.abort().unwrap());
        assert!(abort.returns_within(SOON), "abort blocked");
        assert!(expire.returns_within(SOON), "abort did not free the notification");
        println!("freed with {:?}", expire.join());
    });
}

#[test]
fn pending_lookup_blocks_expire_but_not_lookups_of_other_names() {
    let Some(mounted) = mount_default() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/known"), b"x").unwrap();
    let directory = mounted.fs.ino(ROOT_ID, "d");
    mounted.fs.park(|_, operation| matches!(operation, Operation::Lookup { name } if *name == "parked"));
    let path = mounted.path("d/parked");
    let client = call(move || fs::metadata(path).map(drop));
    mounted.wait_parked(1);
    let path = mounted.path("d/another");
    assert!(call(move || fs::metadata(path).map(drop)).returns_within(SOON), "PARALLEL_DIROPS has no effect");
    let notifier = mounted.notifier.clone();
    let expire = call(move || notifier.expire_entry(directory, OsStr::new("known")).unwrap());
    assert!(!expire.returns_within(BLOCKED));
    mounted.fs.release_all();
    expire.join();
    _ = client.join();
}

/// What kind of request is parked on file "f" while a range of it is invalidated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pending {
    /// WRITE of a whole page, or of part of a page, that is in the cache.
    WriteToCachedPage,
    PartialWriteToCachedPage,
    /// The same of a page that is not.
    WriteToUncachedPage,
    PartialWriteToUncachedPage,
    DirectWrite,
    Read,
    Truncate,
    Getattr,
}

/// Parks one request at byte 0 of a 1 MiB file with its pages cached, then invalidates
/// `(offset, len)`, and returns whether that blocked within `limit`.
fn inval_blocks(pending: Pending, (offset, len): (i64, i64), limit: Duration) -> Option<bool> {
    let mounted = mount_default()?;
    let path = mounted.path("f");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    let cached = File::open(&path).unwrap();
    if pending == Pending::DirectWrite {
        mounted.fs.open_flags.store(OpenReplyFlags::DIRECT_IO.bits(), Ordering::Relaxed);
    }
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    match pending {
        Pending::Read
        | Pending::Getattr
        | Pending::WriteToUncachedPage
        | Pending::PartialWriteToUncachedPage => {
            mounted.notifier.inval_inode(ino, 0, 0).unwrap();
        }
        Pending::WriteToCachedPage
        | Pending::PartialWriteToCachedPage
        | Pending::DirectWrite
        | Pending::Truncate => cached.read_exact_at(&mut vec![0; 1 << 20], 0).unwrap(),
    }
    mounted.fs.park(move |_, operation| match pending {
        Pending::Read => matches!(operation, Operation::Read { offset: 0, .. }),
        Pending::Truncate => matches!(operation, Operation::Setattr(_)),
        Pending::Getattr => matches!(operation, Operation::Getattr { .. }),
        _ => matches!(operation, Operation::Write { .. }),
    });
    let client = call(move || match pending {
        Pending::Read => file.read_exact_at(&mut [0; 4096], 0),
        Pending::Truncate => file.set_len(100),
        Pending::Getattr => file.metadata().map(drop),
        Pending::PartialWriteToCachedPage | Pending::PartialWriteToUncachedPage => {
            file.write_all_at(&[2; 100], 7)
        }
        _ => file.write_all_at(&[2; 4096], 0),
    });
    mounted.wait_parked(1);
    let notifier = mounted.notifier.clone();
    let inval = call(move || notifier.inval_inode(ino, offset, len).unwrap());
    let blocked = !inval.returns_within(limit);
    mounted.fs.release_all();
    inval.join();
    client.join().unwrap();
    Some(blocked)
}

#[test]
fn inval_inode_waits_only_for_reads_and_partial_writes_to_uncached_pages_in_its_range() {
    let everything = (0, 0);
    let attributes = (-1, 0);
    let same_page = (0, 4096);
    let far_range = (512 << 10, 4096);
    for (pending, (offset, len), expected) in [
        (Pending::WriteToCachedPage, everything, false),
        (Pending::PartialWriteToCachedPage, everything, false),
        (Pending::WriteToUncachedPage, everything, false),
        (Pending::PartialWriteToUncachedPage, everything, true),
        (Pending::PartialWriteToUncachedPage, same_page, true),
        (Pending::PartialWriteToUncachedPage, far_range, false),
        (Pending::PartialWriteToUncachedPage, attributes, false),
        (Pending::Read, everything, true),
        (Pending::Read, far_range, false),
        (Pending::Read, attributes, false),
        (Pending::DirectWrite, everything, false),
        (Pending::DirectWrite, attributes, false),
        (Pending::DirectWrite, same_page, false),
        (Pending::Truncate, everything, false),
        (Pending::Truncate, same_page, false),
        (Pending::Truncate, attributes, false),
        (Pending::Getattr, everything, false),
    ] {
        // What returns at once may do so late on a busy machine.
        let limit = if expected { BLOCKED } else { SOON };
        let Some(blocked) = inval_blocks(pending, (offset, len), limit) else { return };
        println!("{pending:?} pending at 0: inval_inode({offset}, {len}) blocks: {blocked}");
        assert_eq!(blocked, expected, "{pending:?} {offset} {len}");
    }
}
