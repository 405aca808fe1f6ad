//! What can go wrong with segments.

use std::fmt;
use std::io;

use thiserror::Error;
use types::{Ino, SegmentId};

use crate::{ExtentError, store::Action};

/// Why a call on segments failed.
#[derive(Debug, Error)]
pub enum ChunkError {
    /// The disk or the store's quota is full. What was stored before stands.
    #[error("no space for {action} of segment {segment}")]
    Full {
        /// What was tried.
        action: Action,
        /// The segment it was tried on.
        segment: SegmentId,
    },
    /// There is no such segment: the cleaner removed it, or the store lost it.
    #[error("segment {segment} does not exist")]
    Missing {
        /// The segment asked for.
        segment: SegmentId,
    },
    /// A segment of this number is there already, although numbers are never reused.
    #[error("segment {segment} exists already")]
    Exists {
        /// The segment that was to be created.
        segment: SegmentId,
    },
    /// Bytes of a segment are not what was written.
    #[error("segment {segment} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The segment.
        segment: SegmentId,
        /// Offset in it.
        offset: u64,
        /// What is wrong there.
        what: Damage,
    },
    /// Bytes of a file are not what was written.
    #[error("ino {ino} is damaged at byte {file_offset}: {what} in segment {segment} at byte {offset}")]
    DamagedContent {
        /// The file.
        ino: Ino,
        /// First byte of the file known to be concerned.
        file_offset: u64,
        /// The segment that holds it.
        segment: SegmentId,
        /// Offset in the segment.
        offset: u64,
        /// What is wrong there.
        what: Damage,
    },
    /// An earlier write or sync of the segment failed: it takes no more.
    #[error("segment {segment} takes no {action} after an earlier failure")]
    Poisoned {
        /// What was tried.
        action: Action,
        /// The segment.
        segment: SegmentId,
    },
    /// A write to bytes that are stored already, or to a sealed segment. Only stores that keep count notice.
    #[error("write at byte {offset} of segment {segment} would change stored bytes")]
    Overwrite {
        /// The segment.
        segment: SegmentId,
        /// Where the write began.
        offset: u64,
    },
    /// The writer needs more segment numbers; nothing was written. Give it some and try again.
    #[error("segment writer needs {count} more segments")]
    NeedSegments {
        /// How many at least.
        count: usize,
    },
    /// A write that cannot be described by extents.
    #[error("write of ino {ino} cannot be stored")]
    Extent {
        /// The file.
        ino: Ino,
        /// What is wrong with it.
        #[source]
        source: ExtentError,
    },
    /// The directory of the store cannot be used.
    #[error("{action} of the segment directory failed")]
    Directory {
        /// What was tried.
        action: Action,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system refused or failed.
    #[error("{action} of segment {segment} failed")]
    Io {
        /// What was tried.
        action: Action,
        /// The segment.
        segment: SegmentId,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// In what way stored bytes are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The segment ends before the bytes asked for.
    EndsEarly,
    /// A checksum does not hold.
    Checksum,
    /// The header of the segment is not one, or another segment's.
    SegmentHeader,
    /// The format version is not known to this program.
    Version {
        /// The version read.
        version: u32,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndsEarly => f.write_str("file ends early"),
            Self::Checksum => f.write_str("checksum does not hold"),
            Self::SegmentHeader => f.write_str("segment header is not valid"),
            Self::Version { version } => write!(f, "format version {version} is not known"),
        }
    }
}
