//! What can be wrong with a volume, each with the path and, where there is one, the way out.

use std::io;
use std::path::{Path, PathBuf};

/// Why a volume could not be made, opened or used.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// There is nothing at the path.
    #[error("{}: no such directory; `holdfast format` makes a volume", .path.display())]
    Missing {
        /// The path given.
        path: PathBuf,
    },
    /// The path leads to something else than a directory.
    #[error("{}: not a directory", .path.display())]
    NotADirectory {
        /// The path given.
        path: PathBuf,
    },
    /// A directory without a header.
    #[error("{}: no Holdfast volume here; `holdfast format` makes one in an empty directory", .path.display())]
    NotAVolume {
        /// The path given.
        path: PathBuf,
    },
    /// `format` was interrupted in this directory.
    #[error("{}: half-formatted volume: format was interrupted; remove the directory and format again", .path.display())]
    HalfFormatted {
        /// The path given.
        path: PathBuf,
    },
    /// The header's bytes are not what was written.
    #[error("{}: volume header is damaged: {reason}; restore holdfast.volume from a backup", .path.display())]
    DamagedHeader {
        /// The volume.
        path: PathBuf,
        /// What does not fit.
        reason: &'static str,
    },
    /// A part of the layout is not there.
    #[error("{}: volume is damaged: {part} is missing", .path.display())]
    MissingPart {
        /// The volume.
        path: PathBuf,
        /// Name within the volume.
        part: &'static str,
    },
    /// Written by a later release.
    #[error("{}: volume has format version {found}, this program knows up to {known}; use a newer holdfast", .path.display())]
    NewerVersion {
        /// The volume.
        path: PathBuf,
        /// Version in the header.
        found: u32,
        /// Highest version this program reads.
        known: u32,
    },
    /// The caller may not read or change the volume.
    #[error("{}: permission denied; only the volume's owner and root may use it", .path.display())]
    Permission {
        /// File or directory that refused.
        path: PathBuf,
    },
    /// The disk takes no changes.
    #[error("{}: the volume lies on a read-only file system, and to open it is to write to it; `mount -t overlay` over it makes a view that can be opened (docs/operating/volumes.md)", .path.display())]
    ReadOnly {
        /// File or directory that refused.
        path: PathBuf,
    },
    /// The directory lies on a file system that other machines write to.
    #[error("{}: on {filesystem}, where file locks and syncs cannot be relied on; a volume directory must be on a local file system", .path.display())]
    NetworkFilesystem {
        /// The path given.
        path: PathBuf,
        /// Name of the file system.
        filesystem: &'static str,
    },
    /// `format` was asked to use a directory that has something in it.
    #[error("{}: directory is not empty; format makes a volume in an empty or new directory only", .path.display())]
    NotEmpty {
        /// The path given.
        path: PathBuf,
    },
    /// `format` found a volume where it should make one.
    #[error("{}: already a Holdfast volume", .path.display())]
    AlreadyAVolume {
        /// The path given.
        path: PathBuf,
    },
    /// An option is outside what it may be.
    #[error("{option} must be {expected}")]
    BadOption {
        /// Which.
        option: &'static str,
        /// Its range, in words.
        expected: &'static str,
    },
    /// Not enough room for the reserve.
    #[error("{}: too little space: {needed} bytes needed, {available} available", .path.display())]
    NoSpace {
        /// The path given.
        path: PathBuf,
        /// Least number of bytes.
        needed: u64,
        /// Bytes there are.
        available: u64,
    },
    /// A socket name with a slash, or none at all.
    #[error("\"{name}\" is no socket name")]
    BadSocketName {
        /// The name given.
        name: String,
    },
    /// Any other failure of a system call.
    #[error("{}: cannot {action}", .path.display())]
    Io {
        /// What was being done: a verb and its object.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl VolumeError {
    /// Wraps `source`, telling a lack of permission apart.
    pub(crate) fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.to_owned(), source.into());
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission { path },
            _ => Self::Io { action, path, source },
        }
    }

    /// The same, of a volume that is being opened: a disk that takes no changes is told apart, too.
    pub(crate) fn of_opening(self) -> Self {
        match self {
            Self::Io { path, source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path }
            }
            other => other,
        }
    }

    /// Whether there was no room, in bytes or inodes, on the disk or for this user.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            Self::NoSpace { .. } => true,
            _ => false,
        }
    }

    /// Whether a connection failed because nobody listens: no socket, or one left by a dead process.
    pub fn is_nobody_listening(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
            }
            _ => false,
        }
    }
}
