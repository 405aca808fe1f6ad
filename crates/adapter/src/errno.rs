//! The only errno map of Holdfast.

use fuse::Errno;
use meta::FsError;

/// Returns the error number that a program sees for `error`.
pub const fn errno_of(error: FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::NOENT,
        FsError::Exists => Errno::EXIST,
        FsError::NotDirectory => Errno::NOTDIR,
        FsError::IsDirectory => Errno::ISDIR,
        FsError::NotEmpty => Errno::NOTEMPTY,
        FsError::NameTooLong => Errno::NAMETOOLONG,
        FsError::Invalid => Errno::INVAL,
        FsError::TooManyLinks => Errno::MLINK,
        FsError::NoSpace => Errno::NOSPC,
        FsError::QuotaExceeded => Errno::DQUOT,
        // rename(2) and link(2) of files that projects with quotas are charged for, on ext4 and XFS.
        FsError::CrossTree => Errno::XDEV,
        // ENOATTR is another name of it on Linux (attr(5)).
        FsError::NoAttribute => Errno::NODATA,
        FsError::Range => Errno::RANGE,
        // For writes, truncation and fallocate, as write(2) has it; see `xattr_errno_of` for the other use.
        FsError::TooLarge => Errno::FBIG,
        FsError::NotPermitted => Errno::PERM,
        FsError::AccessDenied => Errno::ACCESS,
        FsError::ReadOnly => Errno::ROFS,
        FsError::Stale => Errno::STALE,
        // flock(2) documents EWOULDBLOCK, fcntl(2) "EACCES or EAGAIN"; on Linux all of them use this number.
        FsError::WouldBlock => Errno::AGAIN,
        FsError::Deadlock => Errno::DEADLK,
        // Not ERESTARTSYS, which a server may not send: for locks the kernel makes that of EINTR by itself
        // (`fuse_setlk` in linux:fs/fuse/file.c), so system calls restart as on any file system.
        FsError::Interrupted => Errno::INTR,
        // Not ENOSYS: the kernel would remember that for the whole mount and never ask again.
        FsError::NotSupported => Errno::OPNOTSUPP,
        // lseek(2): "whence is SEEK_DATA or SEEK_HOLE, and offset is beyond the end of the file".
        FsError::NoData => Errno::NXIO,
        // fcntl(2): "too many segment locks open, lock table is full". Locks are the bounded thing that
        // programs meet; ENOSPC would send people to look for room on the disk.
        FsError::LimitReached => Errno::NOLCK,
        FsError::Io => Errno::IO,
    }
}

/// As [`errno_of`], for setxattr(2): a value too large is E2BIG there, and EFBIG unheard of.
pub const fn xattr_errno_of(error: FsError) -> Errno {
    match error {
        FsError::TooLarge => Errno::TOOBIG,
        FsError::NotFound
        | FsError::Exists
        | FsError::NotDirectory
        | FsError::IsDirectory
        | FsError::NotEmpty
        | FsError::NameTooLong
        | FsError::Invalid
        | FsError::TooManyLinks
        | FsError::NoSpace
        | FsError::QuotaExceeded
        | FsError::CrossTree
        | FsError::NoAttribute
        | FsError::Range
        | FsError::NotPermitted
        | FsError::AccessDenied
        | FsError::ReadOnly
        | FsError::Stale
        | FsError::WouldBlock
        | FsError::Deadlock
        | FsError::Interrupted
        | FsError::NotSupported
        | FsError::NoData
        | FsError::LimitReached
        | FsError::Io => errno_of(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of linux:include/uapi/asm-generic/errno.h, so that a slip in a constant's name shows.
    const TABLE: [(FsError, i32); 25] = [
        (FsError::NotFound, 2),
        (FsError::Exists, 17),
        (FsError::NotDirectory, 20),
        (FsError::IsDirectory, 21),
        (FsError::NotEmpty, 39),
        (FsError::NameTooLong, 36),
        (FsError::Invalid, 22),
        (FsError::TooManyLinks, 31),
        (FsError::NoSpace, 28),
        (FsError::QuotaExceeded, 122),
        (FsError::CrossTree, 18),
        (FsError::NoAttribute, 61),
        (FsError::Range, 34),
        (FsError::TooLarge, 27),
        (FsError::NotPermitted, 1),
        (FsError::AccessDenied, 13),
        (FsError::ReadOnly, 30),
        (FsError::Stale, 116),
        (FsError::WouldBlock, 11),
        (FsError::Deadlock, 35),
        (FsError::Interrupted, 4),
        (FsError::NotSupported, 95),
        (FsError::NoData, 6),
        (FsError::LimitReached, 37),
        (FsError::Io, 5),
    ];

    #[test]
    fn every_error_has_the_number_of_its_manual_page() {
        for (error, number) in TABLE {
            assert_eq!(errno_of(error).raw_os_error(), number, "{error}");
        }
    }

    #[test]
    fn only_too_large_differs_for_attributes() {
        for (error, number) in TABLE {
            let expected = if error == FsError::TooLarge { 7 } else { number };
            assert_eq!(xattr_errno_of(error).raw_os_error(), expected, "{error}");
        }
    }
}
