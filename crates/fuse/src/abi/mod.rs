//! The kernel's side of the protocol: opcodes, flags and structures, as numbers on the wire.
//!
//! Source: `linux:include/uapi/linux/fuse.h`, protocol 7.45. Structures carry compile-time size
//! checks; nothing here interprets anything.

mod flags;
mod opcode;
mod structs;

pub use flags::{InitFlags, OpenReplyFlags, ReleaseFlags, WriteFlags};
pub(crate) use opcode::OPCODE_NUMBER_END;
pub use opcode::Opcode;
pub use structs::{Forget, InHeader};

pub(crate) use structs::*;

/// Major protocol version; there has only been this one since 2006.
pub const MAJOR: u32 = 7;
/// Newest minor version this crate speaks.
pub const MINOR_MAX: u32 = 45;
/// Oldest minor version this crate speaks (Linux 5.2, `FUSE_WRITE_KILL_PRIV`).
pub const MINOR_MIN: u32 = 31;
/// Node id of the root directory.
pub const ROOT_ID: u64 = 1;

/// First minor with `FUSE_EXPIRE_ONLY`.
pub(crate) const MINOR_EXPIRE_ONLY: u32 = 38;
/// First minor with `FUSE_NOTIFY_RESEND`.
pub(crate) const MINOR_RESEND: u32 = 40;
/// First minor with `FUSE_NOTIFY_INC_EPOCH`.
pub(crate) const MINOR_INC_EPOCH: u32 = 44;
/// First minor with `FUSE_NOTIFY_PRUNE`.
pub(crate) const MINOR_PRUNE: u32 = 45;

/// Bits of `fuse_setattr_in.valid`.
pub(crate) mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// `fuse_getattr_in.getattr_flags`: `fh` is valid.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// `fuse_lk_in.lk_flags`: flock(2) rather than fcntl(2).
pub(crate) const LK_FLOCK: u32 = 1 << 0;
/// `fuse_read_in.read_flags`: `lock_owner` is valid.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// `fuse_fsync_in.fsync_flags`: data only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `fuse_open_in.open_flags` and `fuse_create_in.open_flags`.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `fuse_setxattr_in.setxattr_flags`.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `fuse_notify_inval_entry_out.flags`.
pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;

/// `enum fuse_notify_code`.
pub(crate) mod notify_code {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const RETRIEVE: i32 = 5;
    pub const DELETE: i32 = 6;
    pub const RESEND: i32 = 7;
    pub const INC_EPOCH: i32 = 8;
    pub const PRUNE: i32 = 9;
}

/// `enum fuse_uring_cmd`.
pub(crate) mod ring_command {
    pub const REGISTER: u32 = 1;
    pub const COMMIT_AND_FETCH: u32 = 2;
}
