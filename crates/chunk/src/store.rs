//! The boundary to whatever keeps segments.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};

use types::SegmentId;

use crate::ChunkError;

/// Keeps segments: numbered files that only grow, each written by one node.
///
/// All calls block and may be made from any thread. After a failed [`sync`](Self::sync) the store refuses
/// further writes and syncs of that segment with [`ChunkError::Poisoned`]: what was not durable before may
/// be lost although it can still be read.
pub trait SegmentStore: Send + Sync {
    /// Makes an empty segment whose name survives power loss.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Exists`], [`ChunkError::Full`] or [`ChunkError::Io`]; after the last two the same
    /// number may be tried again.
    fn create(&self, segment: SegmentId) -> Result<(), ChunkError>;

    /// Writes `data`, one part after the other, at `offset`. Not durable before [`sync`](Self::sync).
    ///
    /// On error any part of it may have been written.
    fn write_at(&self, segment: SegmentId, offset: u64, data: &[IoSlice<'_>]) -> Result<(), ChunkError>;

    /// Fills `parts`, one after the other, with the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Damaged`] if the segment ends before, [`ChunkError::Missing`] if there is none.
    /// `parts` then hold anything.
    fn read_at(
        &self,
        segment: SegmentId,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<(), ChunkError>;

    /// Makes durable what was written before the call began.
    fn sync(&self, segment: SegmentId) -> Result<(), ChunkError>;

    /// Ends a synced segment at `len` bytes and gives back what was reserved for it. No write follows.
    fn seal(&self, segment: SegmentId, len: u64) -> Result<(), ChunkError>;

    /// Gives back what is reserved behind the bytes of a segment that nobody writes any more. Returns how many bytes.
    fn trim(&self, _segment: SegmentId) -> Result<u64, ChunkError> {
        Ok(0)
    }

    /// Removes a segment. It may come back after a power loss: who deletes looks at [`list`](Self::list).
    fn delete(&self, segment: SegmentId) -> Result<(), ChunkError>;

    /// Lets go of what is kept open of a segment that will not be used any more, so that its room comes back
    /// when it is removed; or whose sync failed, and of which all that was unsynced is written anew.
    fn forget(&self, _segment: SegmentId) {}

    /// Bytes of a segment as written, whether durable or not.
    fn segment_len(&self, segment: SegmentId) -> Result<u64, ChunkError>;

    /// All segments with their lengths, ascending.
    fn list(&self) -> Result<Vec<(SegmentId, u64)>, ChunkError>;

    /// Room in the store.
    fn space(&self) -> Result<Space, ChunkError>;
}

/// Room in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// What is done with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Making it, or opening the store.
    Create,
    /// Writing to it.
    Write,
    /// Reading from it.
    Read,
    /// Making it durable.
    Sync,
    /// Ending it.
    Seal,
    /// Removing it.
    Delete,
    /// Asking for names, lengths or room.
    List,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "creation",
            Self::Write => "write",
            Self::Read => "read",
            Self::Sync => "sync",
            Self::Seal => "sealing",
            Self::Delete => "removal",
            Self::List => "listing",
        })
    }
}
