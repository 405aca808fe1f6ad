//! Goal: a mount with `ro` refuses what a read-only mount of ext4 refuses, with the same errno, and shows what others change.
//! Method: the same calls on both, results side by side.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    self, Access, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    UTIME_NOW, XattrFlags,
};
use rustix::io::Errno;

use crate::lab::{Lab, wait_until};

type Call = fn(BorrowedFd<'_>) -> Result<(), Errno>;

const RWX: Mode = Mode::RWXU;

fn open(at: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<(), Errno> {
    fs::openat(at, path, flags, RWX).map(drop)
}

fn absolute(at: BorrowedFd<'_>, path: &str) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}/{path}", at.as_raw_fd())
}

const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
};

/// `f` is a file, `d` a directory with a file `f`, `e` an empty one, `l` a link to `f`, `p` a FIFO.
const CALLS: &[(&str, Call)] = &[
    ("mkdir", |at| fs::mkdirat(at, "new", RWX)),
    ("mkdir of what is there", |at| fs::mkdirat(at, "d", RWX)),
    ("mkdir below nothing", |at| fs::mkdirat(at, "none/new", RWX)),
    ("rmdir", |at| fs::unlinkat(at, "e", AtFlags::REMOVEDIR)),
    ("rmdir of what is not empty", |at| fs::unlinkat(at, "d", AtFlags::REMOVEDIR)),
    ("rmdir of nothing", |at| fs::unlinkat(at, "none", AtFlags::REMOVEDIR)),
    ("unlink", |at| fs::unlinkat(at, "f", AtFlags::empty())),
    ("unlink of nothing", |at| fs::unlinkat(at, "none", AtFlags::empty())),
    ("unlink of a directory", |at| fs::unlinkat(at, "d", AtFlags::empty())),
    ("rename", |at| fs::renameat(at, "f", at, "new")),
    ("rename of nothing", |at| fs::renameat(at, "none", at, "new")),
    ("rename to itself", |at| fs::renameat(at, "f", at, "f")),
    ("rename that may not replace", |at| fs::renameat_with(at, "f", at, "l", RenameFlags::NOREPLACE)),
    ("exchange", |at| fs::renameat_with(at, "f", at, "d/f", RenameFlags::EXCHANGE)),
    ("link", |at| fs::linkat(at, "f", at, "new", AtFlags::empty())),
    ("link to what is there", |at| fs::linkat(at, "f", at, "l", AtFlags::empty())),
    ("link of nothing", |at| fs::linkat(at, "none", at, "new", AtFlags::empty())),
    ("symlink", |at| fs::symlinkat("x", at, "new")),
    ("symlink over what is there", |at| fs::symlinkat("x", at, "f")),
    ("mknod", |at| fs::mknodat(at, "new", FileType::Fifo, RWX, 0)),
    ("mknod over what is there", |at| fs::mknodat(at, "f", FileType::Fifo, RWX, 0)),
    ("chmod", |at| fs::chmodat(at, "f", RWX, AtFlags::empty())),
    ("chmod of nothing", |at| fs::chmodat(at, "none", RWX, AtFlags::empty())),
    ("chown", |at| fs::chownat(at, "f", None, None, AtFlags::empty())),
    ("chown of a link", |at| fs::chownat(at, "l", None, None, AtFlags::SYMLINK_NOFOLLOW)),
    ("utimens", |at| fs::utimensat(at, "f", &NOW, AtFlags::empty())),
    ("fchmod of a descriptor", |at| fs::fchmod(fs::openat(at, "f", OFlags::RDONLY, RWX)?, RWX)),
    ("futimens of a descriptor", |at| fs::futimens(fs::openat(at, "f", OFlags::RDONLY, RWX)?, &NOW)),
    ("ftruncate of one for reading", |at| fs::ftruncate(fs::openat(at, "f", OFlags::RDONLY, RWX)?, 0)),
    ("open to read", |at| open(at, "f", OFlags::RDONLY)),
    ("open to write", |at| open(at, "f", OFlags::WRONLY)),
    ("open to truncate", |at| open(at, "f", OFlags::RDONLY | OFlags::TRUNC)),
    ("open a directory to write", |at| open(at, "d", OFlags::WRONLY)),
    ("open a FIFO to write", |at| open(at, "p", OFlags::RDWR | OFlags::NONBLOCK)),
    ("open of nothing to write", |at| open(at, "none", OFlags::WRONLY)),
    ("create", |at| open(at, "new", OFlags::CREATE | OFlags::RDONLY)),
    ("create what is there, to read", |at| open(at, "f", OFlags::CREATE | OFlags::RDONLY)),
    ("create what is there, to write", |at| open(at, "f", OFlags::CREATE | OFlags::RDWR)),
    ("create exclusively what is there", |at| open(at, "f", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)),
    ("create exclusively", |at| open(at, "new", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)),
    ("create below nothing", |at| open(at, "none/new", OFlags::CREATE | OFlags::RDWR)),
    ("open without a name", |at| open(at, "d", OFlags::TMPFILE | OFlags::RDWR)),
    ("setxattr", |at| fs::setxattr(absolute(at, "f"), "user.x", b"1", XattrFlags::empty())),
    ("setxattr of nothing", |at| fs::setxattr(absolute(at, "none"), "user.x", b"1", XattrFlags::empty())),
    ("removexattr", |at| fs::removexattr(absolute(at, "f"), "user.x")),
    ("getxattr", |at| fs::getxattr(absolute(at, "f"), "user.x", &mut [0; 8][..]).map(drop)),
    ("access to write", |at| fs::accessat(at, "f", Access::WRITE_OK, AtFlags::empty())),
    ("access of a directory to write", |at| fs::accessat(at, "d", Access::WRITE_OK, AtFlags::empty())),
    ("access of a FIFO to write", |at| fs::accessat(at, "p", Access::WRITE_OK, AtFlags::empty())),
    ("access to read", |at| fs::accessat(at, "f", Access::READ_OK, AtFlags::empty())),
    ("fsync", |at| fs::fsync(fs::openat(at, "f", OFlags::RDONLY, RWX)?)),
    ("syncfs", |at| fs::syncfs(at)),
    ("flock", |at| fs::flock(fs::openat(at, "f", OFlags::RDONLY, RWX)?, FlockOperation::LockExclusive)),
];

fn fill(dir: &Path) {
    use std::os::unix::fs::symlink;
    for name in ["d", "e"] {
        std::fs::create_dir(dir.join(name)).expect("made");
    }
    for name in ["f", "d/f"] {
        std::fs::write(dir.join(name), "text").expect("made");
        fs::setxattr(dir.join(name), "user.x", b"1", XattrFlags::empty()).expect("set");
    }
    symlink("f", dir.join("l")).expect("made");
    fs::mknodat(fs::CWD, dir.join("p"), FileType::Fifo, RWX, 0).expect("made");
}

fn root(path: &Path) -> OwnedFd {
    fs::openat(fs::CWD, path, OFlags::DIRECTORY | OFlags::RDONLY, RWX).expect("mounted")
}

#[test]
fn a_read_only_mount_refuses_what_ext4_refuses() {
    let Some(lab) = Lab::new() else { return };
    let writer = lab.mount("w");
    fill(&writer.root);
    let reader = lab.mount_with("r", "ro");
    // An image, so that the control is ext4 wherever the test runs.
    lab.sh("truncate -s 16M image; mkfs.ext4 -q image; mkdir control; mount -o loop image control")
        .expect_success();
    fill(&lab.path("control"));
    lab.sh("mount -o remount,ro control").expect_success();
    let compared = std::panic::catch_unwind(|| {
        let (ours, control) = (root(&reader.root), root(&lab.path("control")));
        for (what, call) in CALLS {
            assert_eq!(call(ours.as_fd()), call(control.as_fd()), "{what}");
        }
        let refused = CALLS.iter().filter(|(_, call)| call(ours.as_fd()) == Err(Errno::ROFS));
        assert!(refused.count() >= 20);
    });
    // A process that another test is starting has our descriptors until it runs: it may be busy for a moment.
    lab.sh("for i in $(seq 50); do umount control 2>/dev/null && exit; sleep 0.1; done; umount control")
        .expect_success();
    if let Err(panic) = compared {
        std::panic::resume_unwind(panic);
    }

    // It has refused for itself: others go on, and it sees what they do.
    std::fs::write(writer.path("f"), "other text").expect("written");
    std::fs::rename(writer.path("e"), writer.path("d/e")).expect("moved");
    assert_eq!(std::fs::read(reader.path("f")).expect("read"), b"other text");
    wait_until("a look at the new place", || std::fs::metadata(reader.path("d/e")).is_ok());
    writer.unmount(&lab);
    // Alone and read-only it is the master all the same.
    assert_eq!(std::fs::read(reader.path("f")).expect("read"), b"other text");
    reader.unmount(&lab);
    lab.holdfast(&["fsck", "vol"]).expect_success();
}
