//! The volume's segments, as this node sees them.

use std::io::{IoSlice, IoSliceMut};

use chunk::{ChunkError, DirStore, SegmentStore, Space};
use types::SegmentId;
use volume::{ReserveWatch, Volume};

use crate::error::NodeError;

/// Segments in the volume's directory. What the master released of the reserve is not counted as free: it is
/// for the metadata of removals, not for more data.
pub(crate) struct VolumeStore {
    segments: DirStore,
    reserve: ReserveWatch,
}

impl VolumeStore {
    pub fn open(volume: &Volume) -> Result<Self, NodeError> {
        let segments = DirStore::open_with_reserve(volume.segments_dir(), volume.header().segment_bytes)?;
        Ok(Self { segments, reserve: volume.watch_reserve() })
    }
}

impl SegmentStore for VolumeStore {
    fn create(&self, segment: SegmentId) -> Result<(), ChunkError> {
        self.segments.create(segment)
    }

    fn write_at(&self, segment: SegmentId, offset: u64, data: &[IoSlice<'_>]) -> Result<(), ChunkError> {
        self.segments.write_at(segment, offset, data)
    }

    fn read_at(
        &self,
        segment: SegmentId,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<(), ChunkError> {
        self.segments.read_at(segment, offset, parts)
    }

    fn sync(&self, segment: SegmentId) -> Result<(), ChunkError> {
        self.segments.sync(segment)
    }

    fn seal(&self, segment: SegmentId, len: u64) -> Result<(), ChunkError> {
        self.segments.seal(segment, len)
    }

    fn delete(&self, segment: SegmentId) -> Result<(), ChunkError> {
        self.segments.delete(segment)
    }

    fn forget(&self, segment: SegmentId) {
        self.segments.forget(segment);
    }

    fn segment_len(&self, segment: SegmentId) -> Result<u64, ChunkError> {
        self.segments.segment_len(segment)
    }

    fn list(&self) -> Result<Vec<(SegmentId, u64)>, ChunkError> {
        self.segments.list()
    }

    fn space(&self) -> Result<Space, ChunkError> {
        let space = self.segments.space()?;
        Ok(Space { free_bytes: space.free_bytes.saturating_sub(self.reserve.released_bytes()), ..space })
    }
}
