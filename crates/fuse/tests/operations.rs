//! Ordinary use through a real mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::atomic::Ordering;

use common::{MemFs, mount_default, mount_options};
use fuse::mount::{MountFlags, MountMethod, MountOptions};
use fuse::{Config, InitFlags, Opcode, SessionEnd};

#[test]
fn handshake_agrees_on_the_wanted_flags() {
    let Some(mounted) = mount_default() else { return };
    let negotiated = mounted.negotiated;
    println!("negotiated {negotiated:?}");
    assert!(negotiated.minor >= fuse::abi::MINOR_MIN);
    assert!(negotiated.has(InitFlags::PARALLEL_DIROPS | InitFlags::POSIX_ACL | InitFlags::DO_READDIRPLUS));
    assert!(!negotiated.has(InitFlags::WRITEBACK_CACHE) && !negotiated.has(InitFlags::READDIRPLUS_AUTO));
    assert_eq!(negotiated.has(InitFlags::HAS_EXPIRE_ONLY), negotiated.has_expire_only());
}

#[test]
fn mount_table_names_source_type_and_options() {
    let Some(mounted) = mount_default() else { return };
    let entry = fuse::mount::find(mounted.root()).unwrap().unwrap();
    assert_eq!(entry.kind, "fuse.memfs");
    assert_eq!(entry.source, "volume,with comma");
    assert_eq!(entry.device_minor, mounted.mount.device_minor());
    let table = fs::read_to_string("/proc/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(mounted.root().to_str().unwrap())).unwrap();
    for option in ["nodev", "noatime", "allow_other", "default_permissions"] {
        assert!(line.contains(option), "{line}");
    }
    assert_eq!(mounted.finish(), SessionEnd::Unmounted);
}

#[test]
fn files_are_made_written_read_renamed_and_removed() {
    let Some(mounted) = mount_default() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/a"), b"hello").unwrap();
    assert_eq!(fs::read(mounted.path("d/a")).unwrap(), b"hello");
    fs::rename(mounted.path("d/a"), mounted.path("b")).unwrap();
    assert_eq!(fs::metadata(mounted.path("d/a")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let metadata = fs::metadata(mounted.path("b")).unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o170_000), (5, 0o100_000));
    assert_eq!(metadata.mtime_nsec(), 123_456_789);
    fs::set_permissions(mounted.path("b"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(mounted.path("b")).unwrap().mode() & 0o777, 0o600);
    fs::write(mounted.path("b"), b"hi").unwrap();
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"hi");
    fs::hard_link(mounted.path("b"), mounted.path("c")).unwrap();
    assert_eq!(fs::metadata(mounted.path("c")).unwrap().nlink(), 2);
    std::os::unix::fs::symlink("b", mounted.path("link")).unwrap();
    assert_eq!(fs::read_link(mounted.path("link")).unwrap().to_str(), Some("b"));
    assert_eq!(fs::read(mounted.path("link")).unwrap(), b"hi");
    fs::remove_file(mounted.path("b")).unwrap();
    fs::remove_dir(mounted.path("d")).unwrap();
    let copied = fs::copy(mounted.path("c"), mounted.path("copy")).unwrap();
    assert_eq!((copied, fs::read(mounted.path("copy")).unwrap()), (2, b"hi".to_vec()));
    let snapshot = mounted.monitor.counters().snapshot();
    assert_eq!(
        (snapshot.malformed, snapshot.unknown, snapshot.dropped, snapshot.replies_refused),
        (0, 0, 0, 0)
    );
    assert!(snapshot.bytes_in > 0 && snapshot.bytes_out > 0 && snapshot.replies > 20);
}

#[test]
fn large_directory_is_listed_with_attributes_without_lookups() {
    let Some(mounted) = mount_default() else { return };
    for index in 0..3000 {
        mounted.fs.create_remote(fuse::ROOT_ID, &format!("a-file-with-number-{index:05}"));
    }
    let (count, requests) = mounted.requests_during(|| {
        fs::read_dir(mounted.root())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().metadata().is_ok())
            .count()
    });
    println!("listing 3000 entries: {requests:?}");
    assert_eq!(count, 3000);
    assert!(requests.iter().all(|(opcode, _)| *opcode != Opcode::Lookup));
}

#[test]
fn unaligned_data_up_to_a_mebibyte_comes_back() {
    let Some(mounted) = mount_default() else { return };
    let pattern: Vec<u8> =
        (0..3 << 20u32).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (index, (offset, len)) in [
        (0, 1),
        (1, 4095),
        (4095, 2),
        (17, 131_073),
        (3, (1 << 20) - 5),
        (0, 1 << 20),
        (1, 1 << 20),
        (5, 2_500_001),
    ]
    .into_iter()
    .enumerate()
    {
        let path = mounted.path(&format!("f{index}"));
        let mut file =
            OpenOptions::new().create(true).read(true).write(true).truncate(true).open(&path).unwrap();
        file.write_all_at(&pattern[..len], offset).unwrap();
        let mut read = vec![0; len];
        file.read_exact_at(&mut read, offset).unwrap();
        assert!(read == pattern[..len], "cached, {len} at {offset}");
        let ino = mounted.fs.ino(fuse::ROOT_ID, &format!("f{index}"));
        mounted.notifier.inval_inode(ino, 0, 0).unwrap();
        file.seek(SeekFrom::Start(offset)).unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == pattern[..len], "uncached, {len} at {offset}");
    }
    let writes = mounted.fs.take_seen();
    let largest =
        writes.iter().filter(|seen| seen.opcode == Opcode::Write && seen.detail.contains("len=1048576"));
    assert!(largest.count() >= 2);
}

#[test]
fn extended_attributes_are_stored_listed_and_removed() {
    let Some(mounted) = mount_default() else { return };
    let path = mounted.path("f");
    fs::write(&path, b"").unwrap();
    let value = vec![7u8; 65_536];
    rustix::fs::setxattr(&path, "user.big", &value, rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.small", b"v", rustix::fs::XattrFlags::CREATE).unwrap();
    let mut buffer = vec![0u8; 70_000];
    assert_eq!(rustix::fs::getxattr(&path, "user.big", &mut buffer[..]).unwrap(), 65_536);
    assert_eq!(rustix::fs::getxattr_query(&path, "user.big").unwrap(), 65_536);
    assert_eq!(rustix::fs::getxattr(&path, "user.big", &mut buffer[..9]), Err(rustix::io::Errno::RANGE));
    let len = rustix::fs::listxattr(&path, &mut buffer[..]).unwrap();
    assert_eq!(&buffer[..len], b"user.big\0user.small\0");
    rustix::fs::removexattr(&path, "user.big").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.big", &mut buffer[..]), Err(rustix::io::Errno::NODATA));
}

#[test]
fn statfs_is_passed_through_and_session_ends_once() {
    let Some(mounted) = mount_default() else { return };
    let statfs = rustix::fs::statvfs(mounted.root()).unwrap();
    assert_eq!((statfs.f_blocks, statfs.f_bsize, statfs.f_namemax), (77, 4096, 255));
    let memory = std::sync::Arc::clone(&mounted.fs);
    assert_eq!(mounted.finish(), SessionEnd::Unmounted);
    assert_eq!(memory.destroyed.load(Ordering::Relaxed), 1);
}

#[test]
fn aborted_connection_ends_the_session_and_fails_its_users() {
    let Some(mounted) = mount_default() else { return };
    mounted.fs.park(|_, operation| matches!(operation, fuse::Operation::Lookup { .. }));
    let path = mounted.path("f");
    let client = common::call(move || fs::metadata(path).unwrap_err());
    mounted.wait_parked(1);
    mounted.mount.abort().unwrap();
    let error = client.join();
    println!(
        "pending request failed with {error}; later ones with {}",
        fs::metadata(mounted.root()).unwrap_err()
    );
    assert_eq!(mounted.finish(), SessionEnd::Aborted);
}

#[test]
fn panicking_and_forgetful_handlers_answer_eio() {
    let Some(mounted) = mount_default() else { return };
    let file = fs::File::create(mounted.path("f")).unwrap();
    for command in [common::mem_fs::PANIC_COMMAND, common::mem_fs::DROP_COMMAND] {
        assert_eq!(misbehave(&file, command), Err(rustix::io::Errno::IO));
    }
    let snapshot = mounted.monitor.counters().snapshot();
    assert_eq!((snapshot.panics, snapshot.dropped), (1, 2));
    assert_eq!(mounted.monitor.in_flight_count(), 0);
    fs::write(mounted.path("g"), b"still served").unwrap();
}

#[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
fn misbehave(file: &fs::File, command: u32) -> Result<(), rustix::io::Errno> {
    struct NoArgument(u32);
    // SAFETY: the command takes no argument and returns nothing.
    unsafe impl rustix::ioctl::Ioctl for NoArgument {
        type Output = ();
        const IS_MUTATING: bool = false;
        fn opcode(&self) -> rustix::ioctl::Opcode {
            self.0 as rustix::ioctl::Opcode
        }
        fn as_ptr(&mut self) -> *mut std::ffi::c_void {
            std::ptr::null_mut()
        }
        unsafe fn output_from_ptr(
            _: rustix::ioctl::IoctlOutput,
            _: *mut std::ffi::c_void,
        ) -> rustix::io::Result<Self::Output> {
            Ok(())
        }
    }
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(file, NoArgument(command)) }
}

#[test]
fn fusermount_mounts_and_unmounts() {
    if std::process::Command::new("fusermount3").arg("--version").output().is_err() {
        println!("SKIPPED: fusermount3 is not installed");
        return;
    }
    let options = MountOptions {
        fsname: "a,b".into(),
        subtype: "memfs".to_owned(),
        flags: MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME,
        method: MountMethod::Fusermount,
        ..MountOptions::default()
    };
    let Some(mounted) = mount_options(MemFs::default(), &Config::default(), &options) else { return };
    let entry = fuse::mount::find(mounted.root()).unwrap().unwrap();
    assert_eq!((entry.kind.as_str(), entry.source.to_str()), ("fuse.memfs", Some("a,b")));
    fs::write(mounted.path("f"), b"x").unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"x");
    assert_eq!(mounted.finish(), SessionEnd::Unmounted);
}
