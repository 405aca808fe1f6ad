//! Goal: pin down what the kernel's passthrough gives, and that it cannot be taken back, which is why no node uses it. Reading then
//! costs no requests, but who has a file open reads its backing file for as long as it is open, whatever the server says.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::ffi::{OsStr, c_int, c_ulong};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use common::{MemFs, Mounted, mount_with, wait_until};
use fuse::{Config, InitFlags, Opcode, OpenReplyFlags, ROOT_ID};

/// Mounts with passthrough; `None`, with a line that says so, where it cannot be had.
fn mount_with_passthrough() -> Option<Mounted> {
    let flags = Config::FLAGS_DEFAULT.union(InitFlags::PASSTHROUGH);
    let mounted = mount_with(MemFs::default(), &Config { flags, max_stack_depth: 1, ..Config::default() })?;
    if mounted.negotiated.flags.contains(InitFlags::PASSTHROUGH) {
        return Some(mounted);
    }
    println!("SKIPPED: the kernel has no passthrough");
    None
}

/// A file without a name that holds `content`.
fn backing_file(content: &[u8]) -> File {
    let path = std::env::temp_dir().join(format!("fuse-backing-{}-{:p}", std::process::id(), content));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(content).unwrap();
    file
}

/// Has what is opened from now on read and written in `file`.
fn pass_through_to(mounted: &Mounted, file: &File) {
    let id = register(mounted, file).unwrap();
    mounted.fs.backing_id.store(id, Ordering::Relaxed);
    mounted.fs.open_flags.store(OpenReplyFlags::PASSTHROUGH.bits(), Ordering::Relaxed);
}

#[expect(unsafe_code, reason = "rustix does not have the call")]
fn register(mounted: &Mounted, file: &File) -> io::Result<c_int> {
    /// `struct fuse_backing_map`.
    #[repr(C)]
    struct BackingMap {
        fd: i32,
        flags: u32,
        padding: u64,
    }
    unsafe extern "C" {
        fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    }
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the call reads one structure, which outlives it.
    let id = unsafe { ioctl(mounted.monitor.device().as_raw_fd(), BACKING_OPEN, &raw const map) };
    if id > 0 { Ok(id) } else { Err(io::Error::last_os_error()) }
}

/// `FUSE_DEV_IOC_BACKING_OPEN`, that is `_IOW(229, 1, struct fuse_backing_map)`.
const BACKING_OPEN: c_ulong = 1 << 30 | 16 << 16 | 229 << 8 | 1;

#[test]
fn what_is_open_past_the_server_cannot_be_taken_back() {
    let Some(mounted) = mount_with_passthrough() else { return };
    let (before, after) = ([b'a'; 8192], [b'b'; 8192]);
    let file = backing_file(&before);
    let ino = mounted.fs.create_remote(ROOT_ID, "f");
    mounted.fs.set_remote(ino, &before);
    pass_through_to(&mounted, &file);

    let open = File::open(mounted.path("f")).unwrap();
    let mut page = [0; 4096];
    let (_, requests) = mounted.requests_during(|| open.read_exact_at(&mut page, 0).unwrap());
    println!("a read past the server: {requests:?}");
    assert_eq!(page, before[..4096]);
    assert!(!requests.iter().any(|(opcode, _)| *opcode == Opcode::Read));

    // Another node writes. Everything is taken back that can be.
    mounted.fs.set_remote(ino, &after);
    let notifier = &mounted.notifier;
    notifier.inval_inode(ino, 0, 0).unwrap();
    notifier.inval_entry(ROOT_ID, OsStr::new("f")).unwrap();
    notifier.inc_epoch().unwrap();
    open.read_exact_at(&mut page, 0).unwrap();
    assert_eq!(page, before[..4096], "the file as it was, from who has it open");

    // As long as it is, nobody opens it any other way.
    for flags in [OpenReplyFlags::KEEP_CACHE, OpenReplyFlags::DIRECT_IO] {
        mounted.fs.open_flags.store(flags.bits(), Ordering::Relaxed);
        let refused = File::open(mounted.path("f")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(fuse::Errno::IO.raw_os_error()), "{flags:?}");
    }
    drop(open);
    mounted.fs.open_flags.store(OpenReplyFlags::KEEP_CACHE.bits(), Ordering::Relaxed);
    let is_open = || File::open(mounted.path("f")).is_ok_and(|file| file.read_exact_at(&mut page, 0).is_ok());
    wait_until("the file to be closed", is_open);
    assert_eq!(page, after[..4096]);
}

/// What reading costs from a server that has all in memory, beside the same bytes in a backing file's page cache.
#[test]
#[ignore = "a measurement, not a check"]
fn reading_through_the_server_and_past_it() {
    const LEN: usize = 256 << 20;
    let Some(mounted) = mount_with_passthrough() else { return };
    let content = vec![7; LEN];
    let file = backing_file(&content);
    let ino = mounted.fs.create_remote(ROOT_ID, "f");
    mounted.fs.set_remote(ino, &content);
    mounted.fs.quiet.store(true, Ordering::Relaxed);
    let mut buffer = vec![0; 1 << 20];
    let mut read = |what: &str, mut file: File| {
        let start = Instant::now();
        while file.read(&mut buffer).unwrap() > 0 {}
        println!("{what}: {:.0} MB/s", LEN as f64 / 1e6 / start.elapsed().as_secs_f64());
    };
    for _ in 0..5 {
        mounted.fs.open_flags.store(OpenReplyFlags::EMPTY.bits(), Ordering::Relaxed);
        read("through the server", File::open(mounted.path("f")).unwrap());
        mounted.fs.open_flags.store(OpenReplyFlags::KEEP_CACHE.bits(), Ordering::Relaxed);
        read("from the kernel's pages", File::open(mounted.path("f")).unwrap());
        pass_through_to(&mounted, &file);
        read("past the server", File::open(mounted.path("f")).unwrap());
        let mut file = file.try_clone().unwrap();
        file.rewind().unwrap();
        read("the backing file itself", file);
    }
}
