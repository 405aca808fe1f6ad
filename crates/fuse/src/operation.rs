//! What a request asks for, with typed arguments.

mod decode;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;

use crate::abi::{ReleaseFlags, WriteFlags};
use crate::attr::Timestamp;

/// A decoded request. Names and data are borrowed from the read buffer.
///
/// The inode is in the request's header: the parent directory for everything that takes a name,
/// the file itself otherwise. FORGET and INTERRUPT never appear here; they reach
/// [`Handler`](crate::Handler) by their own methods.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields are the arguments of the system call of the same name")]
pub enum Operation<'a> {
    /// Finds `name`; answer an entry, or a negative entry, or ENOENT.
    Lookup {
        name: &'a OsStr,
    },
    /// stat(2); `fh` when asked through an open file.
    Getattr {
        fh: Option<u64>,
    },
    /// chmod, chown, truncate, utimens in one.
    Setattr(Setattr),
    /// Target of a symbolic link; answer its bytes without terminator.
    Readlink,
    Symlink {
        name: &'a OsStr,
        target: &'a OsStr,
    },
    Mknod {
        name: &'a OsStr,
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a OsStr,
    },
    Rmdir {
        name: &'a OsStr,
    },
    /// `flags` are those of renameat2(2).
    Rename {
        name: &'a OsStr,
        new_parent: u64,
        new_name: &'a OsStr,
        flags: u32,
    },
    /// Makes `ino` also known as `new_name`.
    Link {
        ino: u64,
        new_name: &'a OsStr,
    },
    /// `flags` are those of open(2), without O_CREAT and O_EXCL.
    Open {
        flags: u32,
        kill_suidgid: bool,
    },
    /// `size` is the room in the reply; fewer bytes mean end of file.
    Read {
        fh: u64,
        offset: u64,
        size: u32,
        open_flags: u32,
        lock_owner: Option<u64>,
    },
    /// With O_APPEND in `open_flags` the `offset` is only the kernel's guess.
    Write {
        fh: u64,
        offset: u64,
        data: &'a [u8],
        write_flags: WriteFlags,
        open_flags: u32,
        lock_owner: Option<u64>,
    },
    Statfs,
    /// Last close of an open file. The answer is not waited for.
    Release {
        fh: u64,
        open_flags: u32,
        release_flags: ReleaseFlags,
        lock_owner: u64,
    },
    Fsync {
        fh: u64,
        datasync: bool,
    },
    /// `flags` are XATTR_CREATE and XATTR_REPLACE.
    Setxattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: u32,
        acl_kill_sgid: bool,
    },
    /// With `size` 0 answer the size of the value alone.
    Getxattr {
        name: &'a OsStr,
        size: u32,
    },
    /// With `size` 0 answer the size of the list alone.
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a OsStr,
    },
    /// close(2) of one descriptor; POSIX locks of `lock_owner` go.
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    Opendir {
        flags: u32,
    },
    /// Answer a [`DirBuffer`](crate::DirBuffer) of at most `size` bytes, after cookie `offset`.
    Readdir {
        fh: u64,
        offset: u64,
        size: u32,
        open_flags: u32,
    },
    /// As `Readdir`, each entry with its inode and attributes.
    Readdirplus {
        fh: u64,
        offset: u64,
        size: u32,
        open_flags: u32,
    },
    Releasedir {
        fh: u64,
        open_flags: u32,
        release_flags: ReleaseFlags,
        lock_owner: u64,
    },
    Fsyncdir {
        fh: u64,
        datasync: bool,
    },
    /// Finds a lock that is in the way of `lock`.
    Getlk {
        fh: u64,
        owner: u64,
        lock: FileLock,
        flock: bool,
    },
    /// Sets or clears a lock; with `sleep` waits for it, until INTERRUPT.
    Setlk {
        fh: u64,
        owner: u64,
        lock: FileLock,
        sleep: bool,
        flock: bool,
    },
    Access {
        mask: u32,
    },
    /// mknod(2) of a regular file and open(2) in one.
    Create {
        name: &'a OsStr,
        mode: u32,
        flags: u32,
        umask: u32,
        kill_suidgid: bool,
    },
    /// O_TMPFILE: a file without a name.
    Tmpfile {
        mode: u32,
        flags: u32,
        umask: u32,
    },
    Bmap {
        block: u64,
        blocksize: u32,
    },
    Ioctl {
        fh: u64,
        command: u32,
        flags: u32,
        arg: u64,
        input: &'a [u8],
        out_size: u32,
    },
    Poll {
        fh: u64,
        kh: u64,
        flags: u32,
        events: u32,
    },
    /// `mode` is that of fallocate(2).
    Fallocate {
        fh: u64,
        offset: u64,
        len: u64,
        mode: u32,
    },
    /// `whence` is SEEK_DATA (3) or SEEK_HOLE (4).
    Lseek {
        fh: u64,
        offset: u64,
        whence: u32,
    },
    /// Both opcodes; [`Reply::copied`](crate::Reply::copied) knows which answer fits.
    CopyFileRange {
        fh_in: u64,
        offset_in: u64,
        ino_out: u64,
        fh_out: u64,
        offset_out: u64,
        len: u64,
        flags: u64,
    },
    /// `mask` and `flags` are those of statx(2).
    Statx {
        fh: Option<u64>,
        flags: u32,
        mask: u32,
    },
    Syncfs,
    /// The file system goes. Most mounts end without it.
    Destroy,
    /// Not known to this crate: answer ENOSYS.
    Unknown {
        opcode: u32,
    },
}

/// Attributes to change; `None` leaves one alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setattr {
    /// Permission bits and type, of which the type never changes.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New length: ftruncate(2), or O_TRUNC without ATOMIC_O_TRUNC.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: Option<TimeOrNow>,
    /// Time of last change of content.
    pub mtime: Option<TimeOrNow>,
    /// Time of last change of attributes; sent in write-back mode only.
    pub ctime: Option<Timestamp>,
    /// Open file through which the change is made.
    pub fh: Option<u64>,
    /// Lock owner of a truncation, for mandatory locks.
    pub lock_owner: Option<u64>,
    /// suid and sgid must be cleared (HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

/// A time to set, as utimensat(2) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrNow {
    /// The server's clock decides.
    Now,
    /// This one.
    At(Timestamp),
}

/// Byte range of a file lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive, as in the kernel; `i64::MAX` means to the end.
    pub end: u64,
    /// What is wanted, or held.
    pub kind: LockKind,
    /// Process that holds it.
    pub pid: u32,
}

/// Kinds of file lock, with the numbers of fcntl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LockKind {
    /// Shared: F_RDLCK, LOCK_SH.
    Read = 0,
    /// Exclusive: F_WRLCK, LOCK_EX.
    Write = 1,
    /// None: F_UNLCK, LOCK_UN.
    Unlock = 2,
}

/// Why a message is not a request. Such a message is answered EIO and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Too short for a header: nobody can be answered.
    #[error("message too short for a header")]
    Header,
    /// The header contradicts the message.
    #[error("header says {declared} bytes, message has {len}")]
    Length {
        /// Length in the header.
        declared: u32,
        /// Length of the message.
        len: usize,
    },
    /// The argument structure or the data is cut short.
    #[error("arguments are cut short")]
    Truncated,
    /// A name is missing, empty or not terminated.
    #[error("name is missing, empty or not terminated")]
    Name,
    /// A lock kind out of range.
    #[error("unknown lock kind {kind}")]
    LockKind {
        /// As sent.
        kind: u32,
    },
}
