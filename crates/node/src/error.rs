//! Why a node did not come up, or how it ended.

use std::io;
use std::path::PathBuf;

use fuse::mount::MountError;
use fuse::{RingError, SessionError};
use kv::EngineError;
use master::MasterError;
use volume::VolumeError;

/// Why a node did not come up, or how it ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The volume cannot be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The mount point is not there.
    #[error("mount point {}: does not exist", path.display())]
    MountpointMissing {
        /// As given.
        path: PathBuf,
    },
    /// The mount point is something else.
    #[error("mount point {}: not a directory", path.display())]
    MountpointNotADirectory {
        /// As given.
        path: PathBuf,
    },
    /// A mount of ours is there already.
    #[error("mount point {}: busy; a Holdfast volume is mounted there", path.display())]
    MountpointBusy {
        /// As given.
        path: PathBuf,
    },
    /// The mount point cannot be examined: it may be a mount whose process is dead.
    #[error("mount point {}: cannot be examined; if a dead mount is there, `umount -l` it", path.display())]
    Mountpoint {
        /// As given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The kernel would not mount.
    #[error("cannot mount")]
    Mount(#[from] MountError),
    /// The kernel and we do not understand each other.
    #[error("cannot mount")]
    Session(#[from] SessionError),
    /// The kernel's requests cannot come as was asked.
    #[error("mount option \"uring=on\"")]
    Rings(#[from] RingError),
    /// The metadata of the volume cannot be opened.
    #[error("cannot open the volume's metadata")]
    Engine(#[from] EngineError),
    /// They were emptied, or what they are on is not mounted: whoever took the volume for a new one would delete its segments.
    #[error(
        "metadata are missing in {}, but segments are there in {}: mount what they are on, or load a dump of them with `holdfast load`",
        meta.display(),
        segments.display()
    )]
    MetadataMissing {
        /// Where they should be.
        meta: PathBuf,
        /// Where file data are.
        segments: PathBuf,
    },
    /// They were emptied, or what they are on is not mounted: new content would go where it is not seen afterwards.
    #[error(
        "no segment is in {}, but files have content in segments: mount what they are on; if they are lost, `holdfast fsck --data` tells whose content that was, and `--repair` counts anew",
        segments.display()
    )]
    SegmentsMissing {
        /// Where file data should be.
        segments: PathBuf,
    },
    /// The metadata make no sense.
    #[error("cannot serve the volume")]
    Master(#[from] MasterError),
    /// The segments cannot be opened.
    #[error("cannot open the volume's segments")]
    Segments(#[from] chunk::ChunkError),
    /// Another process holds the master's lock and does not serve.
    #[error("the volume's master (process {}) does not answer", pid.map_or("unknown".to_owned(), |pid| pid.to_string()))]
    MasterSilent {
        /// Its process, if known.
        pid: Option<u32>,
    },
    /// A signal came before the node was up.
    #[error("called off by a signal")]
    CalledOff,
    /// The master does not take this node in.
    #[error("the volume's master refuses this node: {reason}")]
    Refused {
        /// In the master's words.
        reason: String,
    },
    /// The membership ended while the volume was mounted.
    #[error("the membership in the volume was lost: {reason}")]
    Lost {
        /// Why.
        reason: String,
    },
    /// Not everything reached the volume.
    #[error("not everything reached the volume: {reason}")]
    NotFlushed {
        /// What stood in the way.
        reason: String,
    },
    /// Something written was lost while the volume was mounted. What came after it is flushed.
    #[error(
        "lost while it was mounted: {changes} changes, the content of {files} files, {bytes} bytes of content \
         ({memberships} memberships ended); the log says when and why"
    )]
    LostBefore {
        /// Changes of names and attributes that may not have reached the master.
        changes: u64,
        /// Files whose newest content went with a membership.
        files: u64,
        /// Bytes of content, of these files and of others.
        bytes: u64,
        /// Memberships that ended, with losses or without.
        memberships: u64,
    },
    /// The disk below the volume stayed full.
    #[error(
        "disk full: content of {files} files ({bytes} bytes) found no room and is lost; the log names them"
    )]
    DiskFull {
        /// Files that content was left of.
        files: u64,
        /// Bytes that were in memory only.
        bytes: u64,
    },
    /// The system refused something else.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

impl NodeError {
    /// Whether it was mounted, and not everything that was written reached the volume.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. } | Self::NotFlushed { .. } | Self::LostBefore { .. } | Self::DiskFull { .. }
        )
    }

    /// Wraps `source`.
    pub(crate) fn io(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { action, source: source.into() }
    }
}
