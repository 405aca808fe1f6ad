//! The volume's segments, as this node sees them.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Instant;

use chunk::{ChunkError, DirStore, SegmentStore, Space};
use obs::{Histogram, Metrics};
use types::SegmentId;
use volume::{ReserveWatch, Volume};

use crate::error::NodeError;

/// Segments in the volume's directory. What the master released of the reserve is not counted as free: it is
/// for the metadata of removals, not for more data.
///
/// All I/O on segments passes here, so here it is counted and timed.
pub(crate) struct VolumeStore {
    segments: DirStore,
    reserve: ReserveWatch,
    metrics: Arc<Metrics>,
}

impl VolumeStore {
    pub fn open(volume: &Volume, metrics: Arc<Metrics>) -> Result<Self, NodeError> {
        let segments = DirStore::open_with_reserve(volume.segments_dir(), volume.header().segment_bytes)?;
        Ok(Self { segments, reserve: volume.watch_reserve(), metrics })
    }
}

impl SegmentStore for VolumeStore {
    fn create(&self, segment: SegmentId) -> Result<(), ChunkError> {
        self.segments.create(segment)
    }

    fn write_at(&self, segment: SegmentId, offset: u64, data: &[IoSlice<'_>]) -> Result<(), ChunkError> {
        timed(&self.metrics.segment_write, || self.segments.write_at(segment, offset, data))?;
        self.metrics.segment_appends.add(1);
        self.metrics.segment_bytes_written.add(data.iter().map(|part| part.len() as u64).sum());
        Ok(())
    }

    fn read_at(
        &self,
        segment: SegmentId,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<(), ChunkError> {
        timed(&self.metrics.segment_read, || self.segments.read_at(segment, offset, parts))?;
        self.metrics.segment_reads.add(1);
        self.metrics.segment_bytes_read.add(parts.iter().map(|part| part.len() as u64).sum());
        Ok(())
    }

    fn sync(&self, segment: SegmentId) -> Result<(), ChunkError> {
        self.metrics.segment_syncs.add(1);
        timed(&self.metrics.segment_sync, || self.segments.sync(segment))
    }

    fn seal(&self, segment: SegmentId, len: u64) -> Result<(), ChunkError> {
        self.segments.seal(segment, len)
    }

    fn trim(&self, segment: SegmentId) -> Result<u64, ChunkError> {
        self.segments.trim(segment)
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

/// Runs `io` and records how long it took, failed or not.
fn timed<T>(histogram: &Histogram, io: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let result = io();
    histogram.record(since.elapsed().as_micros() as u64);
    result
}
