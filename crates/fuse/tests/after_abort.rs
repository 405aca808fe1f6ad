//! Goal: know how a process that holds a duplicate of the device empties the kernel's caches after the server
//! has died. Method: warm the caches, abort the connection, notify, and look at what the kernel still shows.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use common::{BLOCKED, Mounted, SOON, call, mount_default};
use fuse::{Errno, Notifier, Opcode, Operation, ROOT_ID};
use rustix::mm::{MapFlags, ProtFlags, mmap};

const PAGE: usize = 4096;

/// Mounts with a file of two pages.
fn with_file() -> Option<(Mounted, u64)> {
    let mounted = mount_default()?;
    fs::write(mounted.path("f"), [b'o'; 2 * PAGE]).unwrap();
    let ino = mounted.fs.ino(ROOT_ID, "f");
    Some((mounted, ino))
}

fn duplicate(mounted: &Mounted) -> Notifier {
    Notifier::of_device(mounted.monitor.device().try_clone_to_owned().unwrap(), mounted.negotiated.minor)
}

/// Maps the file shared, and returns the address. Left mapped: the process is a test.
#[expect(unsafe_code, reason = "there is no safe way to map a file")]
fn map(file: &File, protection: ProtFlags) -> usize {
    // SAFETY: a new mapping where the kernel likes; nobody makes a reference into it.
    unsafe { mmap(std::ptr::null_mut(), 2 * PAGE, protection, MapFlags::SHARED, file, 0) }.unwrap() as usize
}

/// Reads a byte of this process's memory; what would be SIGBUS is an error.
fn peek(address: usize) -> std::io::Result<u8> {
    let mut byte = [0];
    File::open("/proc/self/mem")?.read_exact_at(&mut byte, address as u64)?;
    Ok(byte[0])
}

fn poke(address: usize) {
    File::options().write(true).open("/proc/self/mem").unwrap().write_all_at(b"d", address as u64).unwrap();
}

#[test]
fn an_aborted_connection_shows_what_is_cached_until_it_is_taken_back() {
    let Some((mounted, ino)) = with_file() else { return };
    let notifier = duplicate(&mounted);
    let open = File::open(mounted.path("f")).unwrap();
    let mut page = [0; PAGE];
    open.read_exact_at(&mut page, 0).unwrap();
    let mapped = map(&open, ProtFlags::READ);
    assert_eq!(peek(mapped).unwrap(), b'o');
    assert!(fs::metadata(mounted.path("missing")).is_err());
    fs::metadata(mounted.path("f")).unwrap();

    mounted.mount.abort().unwrap();
    assert!(fs::metadata(mounted.path("f")).is_ok(), "attributes outlive the connection");
    open.read_exact_at(&mut page, 0).unwrap();
    assert_eq!(peek(mapped).unwrap(), b'o');

    if mounted.negotiated.has_inc_epoch() {
        notifier.inc_epoch().unwrap();
        let missing = fs::metadata(mounted.path("missing")).unwrap_err();
        assert_eq!(Errno::from_io_error(&missing), Some(Errno::NOTCONN), "absent names too");
    }
    notifier.inval_inode(ino, 0, 0).unwrap();
    assert!(fs::metadata(mounted.path("f")).is_err());
    assert!(open.metadata().is_err());
    assert!(open.read_exact_at(&mut page, 0).is_err());
    assert!(peek(mapped).is_err());
}

#[test]
fn a_page_changed_through_a_mapping_goes_after_an_abort() {
    let Some((mounted, ino)) = with_file() else { return };
    let notifier = duplicate(&mounted);
    let file = File::options().read(true).write(true).open(mounted.path("f")).unwrap();
    let mapped = map(&file, ProtFlags::READ | ProtFlags::WRITE);
    poke(mapped);
    poke(mapped + PAGE);
    mounted.mount.abort().unwrap();
    let result = notifier.inval_inode(ino, 0, 0);
    println!("taking back changed pages after the abort: {result:?}");
    assert!(peek(mapped).is_err() && peek(mapped + PAGE).is_err());
    assert!(file.read_exact_at(&mut [0; PAGE], 0).is_err());
}

#[test]
fn an_abort_frees_an_invalidation_that_waits_for_a_read() {
    let Some((mounted, ino)) = with_file() else { return };
    let notifier = duplicate(&mounted);
    let open = File::open(mounted.path("f")).unwrap();
    // The second page, so that the wait begins at the first that is in flight.
    open.read_exact_at(&mut [0; PAGE], 0).unwrap();
    notifier.inval_inode(ino, 0, 0).unwrap();
    mounted.fs.park(|_, operation| matches!(operation, Operation::Read { .. }));
    let reader = call(move || open.read_exact_at(&mut [0; PAGE], 0).is_err());
    mounted.wait_parked(1);
    let stuck = notifier.clone();
    let inval = call(move || stuck.inval_inode(ino, 0, 0).is_ok());
    assert!(!inval.returns_within(BLOCKED), "it waits for the page in flight");
    assert!(notifier.inval_inode(ino, -1, 0).is_ok(), "attributes never wait");
    mounted.mount.abort().unwrap();
    assert!(inval.returns_within(SOON) && reader.returns_within(SOON));
    assert!(reader.join(), "the reader gets an error");
    assert!(mounted.count(Opcode::Read) > 0);
    mounted.fs.release_all();
}

#[test]
fn an_abort_frees_an_invalidation_that_writes_changed_pages_back() {
    let Some((mounted, ino)) = with_file() else { return };
    let notifier = duplicate(&mounted);
    let file = File::options().read(true).write(true).open(mounted.path("f")).unwrap();
    let mapped = map(&file, ProtFlags::READ | ProtFlags::WRITE);
    poke(mapped);
    mounted.fs.park(|_, operation| matches!(operation, Operation::Write { .. }));
    let stuck = notifier.clone();
    let inval = call(move || stuck.inval_inode(ino, 0, 0));
    mounted.wait_parked(1);
    assert!(!inval.returns_within(BLOCKED), "it waits for its own write");
    mounted.mount.abort().unwrap();
    assert!(inval.returns_within(SOON));
    println!("after the abort: {:?}", inval.join());
    _ = notifier.inval_inode(ino, 0, 0);
    assert!(peek(mapped).is_err());
    mounted.fs.release_all();
}
