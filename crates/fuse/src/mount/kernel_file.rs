//! What the kernel has of a file, looked at through the mount itself.

use std::ffi::{c_int, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use super::Mount;

/// A file that the kernel knows, by the number that the file system gave it.
#[derive(Debug)]
pub struct KernelFile {
    file: OwnedFd,
}

/// What the kernel has of an inode, whether or not it would ask before it relies on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// Size in bytes.
    pub size: u64,
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Mount {
    /// Finds the file `ino` among the inodes that the kernel has of this mount.
    ///
    /// Opens the mount point for that, and closes it: the kernel may ask for the attributes of the root, and an unmount
    /// at this very moment fails with EBUSY. Never to be called on the thread that takes requests.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_DAC_READ_SEARCH; ESTALE if the kernel does not have the file, if it is of another generation, or
    /// if this mount is not, or no more, at its mount point; what opening a directory can fail with.
    pub fn kernel_file(&self, ino: u64, generation: u32) -> Result<KernelFile, Errno> {
        let root = self.open_root()?;
        Ok(KernelFile { file: open_by_handle(root.as_fd(), &FileHandle::new(ino, generation))? })
    }

    /// Has the kernel write back what was stored through mappings of files, and waits for the answers. It keeps the pages. With nothing to
    /// write it takes some 0.1 ms.
    ///
    /// Opens the root of the mount for as long, as [`kernel_file`](Self::kernel_file) does for a moment.
    ///
    /// # Errors
    ///
    /// ESTALE if this mount is not, or no more, at its mount point; what opening a directory and syncfs(2) can fail with.
    pub fn write_back(&self) -> Result<(), Errno> {
        Ok(rustix::fs::syncfs(self.open_root()?)?)
    }

    fn open_root(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.mountpoint(), flags, Mode::empty())?;
        let found = stat(root.as_fd(), Ask::Never)?;
        if (found.stx_dev_major, found.stx_dev_minor) != (0, self.device_minor()) {
            return Err(Errno::STALE);
        }
        Ok(root)
    }
}

/// Whether this process may find files as [`Mount::kernel_file`] does.
pub fn may_look() -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(root) = rustix::fs::open("/", flags, Mode::empty()) else { return false };
    // There is no such file. The right to ask is looked at first.
    !matches!(open_by_handle(root.as_fd(), &FileHandle::new(0, 0)), Err(Errno::PERM))
}

impl KernelFile {
    /// What the kernel has. Asks nobody.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn cached(&self) -> Result<Cached, Errno> {
        let stat = stat(self.file.as_fd(), Ask::Never)?;
        Ok(Cached {
            size: stat.stx_size,
            mode: u32::from(stat.stx_mode) & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
        })
    }

    /// The size that the kernel has, in bytes, as [`cached`](Self::cached).
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn size(&self) -> Result<u64, Errno> {
        Ok(self.cached()?.size)
    }

    /// Has the kernel ask for the attributes, with one GETATTR. It takes them from the answer unless they
    /// changed on its side since it asked; with an earlier end of a file, it then drops the pages behind it: this waits for those that READs
    /// are to fill, while [`size`](Self::size) tells already what was taken.
    ///
    /// # Errors
    ///
    /// What GETATTR was answered with.
    pub fn refresh(&self) -> Result<(), Errno> {
        stat(self.file.as_fd(), Ask::Always).map(|_| ())
    }

    /// As [`refresh`](Self::refresh), with one SETATTR for the access time: the kernel takes the attributes from its answer
    /// whatever else goes on, and holds the file's lock until the pages behind that are dropped. So no write of
    /// this kernel comes between the two, and this waits for what holds that lock: writes, other SETATTRs, LINKs and `lseek` from
    /// the end.
    ///
    /// # Errors
    ///
    /// What SETATTR was answered with; EROFS where nothing can be set.
    pub fn refresh_locked(&self) -> Result<(), Errno> {
        let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        let times = Timestamps { last_access: time(UTIME_NOW), last_modification: time(UTIME_OMIT) };
        rustix::fs::utimensat(&self.file, "", &times, AtFlags::EMPTY_PATH)
    }
}

/// Whether the kernel asks the file system.
#[derive(Clone, Copy)]
enum Ask {
    Never,
    Always,
}

fn stat(file: BorrowedFd<'_>, ask: Ask) -> Result<Statx, Errno> {
    let sync = match ask {
        Ask::Never => AtFlags::STATX_DONT_SYNC,
        Ask::Always => AtFlags::STATX_FORCE_SYNC,
    };
    rustix::fs::statx(file, "", AtFlags::EMPTY_PATH | sync, StatxFlags::BASIC_STATS)
}

/// `struct file_handle`, with the three words that FUSE fills (`fuse_encode_fh` in linux:fs/fuse/inode.c).
#[repr(C)]
struct FileHandle {
    bytes: c_uint,
    kind: c_int,
    parts: [u32; 3],
}

impl FileHandle {
    fn new(ino: u64, generation: u32) -> Self {
        let parts = [(ino >> 32) as u32, ino as u32, generation];
        Self { bytes: size_of_val(&parts) as c_uint, kind: INO_AND_GENERATION, parts }
    }
}

/// FILEID_INO64_GEN.
const INO_AND_GENERATION: c_int = 0x81;

#[expect(unsafe_code, reason = "rustix does not have the call")]
fn open_by_handle(mount: BorrowedFd<'_>, handle: &FileHandle) -> Result<OwnedFd, Errno> {
    unsafe extern "C" {
        fn open_by_handle_at(mount: c_int, handle: *const FileHandle, flags: c_int) -> c_int;
    }
    let flags = (OFlags::PATH | OFlags::CLOEXEC).bits() as c_int;
    // SAFETY: the kernel reads as many bytes of the handle as it says it has, which it does.
    match unsafe { open_by_handle_at(mount.as_raw_fd(), handle, flags) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        // SAFETY: a new descriptor that nobody else has.
        file => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
    }
}
