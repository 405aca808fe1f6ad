//! Records requests of a real kernel, for those who change them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use common::mount_default;
use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags, flock,
};

/// Longest message that is stored: a write is its header and some bytes.
const LEN_MAX: usize = 600;

#[test]
#[ignore = "writes crates/fuzz/corpus/fuse.hex"]
fn record_requests() {
    let Some(mounted) = mount_default() else { return };
    use_everything(mounted.root());
    let messages = mounted.fs.messages.lock().clone();
    assert!(messages.len() > 30, "{:?}", messages.keys());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/fuse.hex");
    let mut file = fs::File::create(path).unwrap();
    for message in messages.values().filter(|message| message.len() <= LEN_MAX) {
        let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "{hex}").unwrap();
    }
}

/// One call of each kind that the kernel passes on. What the server refuses was asked all the same.
fn use_everything(root: &Path) {
    let path = |name: &str| root.join(name);
    fs::create_dir(path("d")).unwrap();
    fs::write(path("d/a"), b"hello").unwrap();
    fs::write(path("d/a-name-that-is-longer-than-the-other-one-and-needs-more-bits-of-length"), [7; 300])
        .unwrap();
    let options = || OpenOptions::new().read(true).write(true).clone();
    let file = options().open(path("d/a")).unwrap();
    file.write_at(b"there", 3).unwrap();
    file.read_at(&mut [0; 4], 0).unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    file.set_len(2).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    options().append(true).custom_flags(0o10000).open(path("d/a")).unwrap().write_all(b"more").unwrap();
    _ = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 100);
    _ = rustix::fs::seek(&file, SeekFrom::Hole(0));
    _ = flock(&file, FlockOperation::LockExclusive);
    _ = flock(&file, FlockOperation::Unlock);
    _ = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared);
    _ = rustix::fs::copy_file_range(&file, Some(&mut 0), &file, Some(&mut 100), 1);
    _ = rustix::fs::setxattr(path("d/a"), "user.x", b"value", XattrFlags::CREATE);
    _ = rustix::fs::setxattr(path("d/a"), "user.x", &[7; 300], XattrFlags::empty());
    _ = rustix::fs::getxattr(path("d/a"), "user.x", &mut [0; 400][..]);
    _ = rustix::fs::listxattr(path("d/a"), &mut [0; 400][..]);
    _ = rustix::fs::removexattr(path("d/a"), "user.x");
    _ = rustix::fs::statx(rustix::fs::CWD, path("d/a"), AtFlags::empty(), rustix::fs::StatxFlags::BTIME);
    _ = rustix::fs::chown(path("d/a"), Some(rustix::process::Uid::from_raw(7)), None);
    _ = rustix::fs::open(path("d"), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
    _ = rustix::fs::mknodat(rustix::fs::CWD, path("d/fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0);
    std::os::unix::fs::symlink("a", path("d/link")).unwrap();
    fs::read_link(path("d/link")).unwrap();
    fs::hard_link(path("d/a"), path("b")).unwrap();
    fs::rename(path("b"), path("c")).unwrap();
    let (old, new) = (path("c"), path("e"));
    _ = rustix::fs::renameat_with(rustix::fs::CWD, old, rustix::fs::CWD, new, RenameFlags::NOREPLACE);
    _ = fs::metadata(path("absent"));
    fs::read_dir(path("d")).unwrap().for_each(drop);
    fs::File::open(path("d")).unwrap().sync_all().unwrap();
    rustix::fs::statvfs(root).unwrap();
    drop(file);
    _ = fs::remove_file(path("d/a"));
    fs::create_dir(path("empty")).unwrap();
    _ = fs::remove_dir(path("empty"));
}
