//! Expected failures of operations.

use types::codec_enum;

/// Why an operation was refused. The adapter maps each to one errno; nothing else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FsError {
    /// No such entry, or the inode is gone.
    #[error("no such entry")]
    NotFound,
    /// The name is taken.
    #[error("entry exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// Anything but a directory was needed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// More than 255 bytes.
    #[error("name too long")]
    NameTooLong,
    /// An argument that no state could satisfy.
    #[error("invalid argument")]
    Invalid,
    /// The inode has as many links as it can.
    #[error("too many links")]
    TooManyLinks,
    /// No room, or 255 names of one directory share a hash.
    #[error("no space left on volume")]
    NoSpace,
    /// The quota is used up.
    #[error("quota exceeded")]
    QuotaExceeded,
    /// From one directory tree that is charged by itself into another, or out of it.
    #[error("another directory tree")]
    CrossTree,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The caller's buffer is too small.
    #[error("result does not fit the buffer")]
    Range,
    /// Larger than the volume's limits allow.
    #[error("too large")]
    TooLarge,
    /// The caller may not do this.
    #[error("operation not permitted")]
    NotPermitted,
    /// The mode bits forbid it.
    #[error("permission denied")]
    AccessDenied,
    /// The mount or the volume is read-only.
    #[error("read-only")]
    ReadOnly,
    /// The handle's inode is gone.
    #[error("stale handle")]
    Stale,
    /// A lock would have to wait and the caller does not want to.
    #[error("would block")]
    WouldBlock,
    /// Waiting for this lock would never end.
    #[error("deadlock")]
    Deadlock,
    /// The caller gave up waiting.
    #[error("interrupted")]
    Interrupted,
    /// Not offered on this kind of inode or at all.
    #[error("not supported")]
    NotSupported,
    /// No such offset (seek for data or holes).
    #[error("no data at or after the offset")]
    NoData,
    /// Too many locks or other bounded things.
    #[error("limit reached")]
    LimitReached,
    /// Damage, a failed store or a lost membership; the log has the cause.
    #[error("input/output error")]
    Io,
}

codec_enum!(FsError, "operation error", {
    1 => NotFound {}, 2 => Exists {}, 3 => NotDirectory {}, 4 => IsDirectory {}, 5 => NotEmpty {},
    6 => NameTooLong {}, 7 => Invalid {}, 8 => TooManyLinks {}, 9 => NoSpace {}, 10 => QuotaExceeded {},
    11 => NoAttribute {}, 12 => Range {}, 13 => TooLarge {}, 14 => NotPermitted {}, 15 => AccessDenied {},
    16 => ReadOnly {}, 17 => Stale {}, 18 => WouldBlock {}, 19 => Deadlock {}, 20 => Interrupted {},
    21 => NotSupported {}, 22 => NoData {}, 23 => LimitReached {}, 24 => Io {},
    25 => CrossTree {},
});
