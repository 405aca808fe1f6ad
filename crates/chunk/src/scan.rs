//! Finds the runs of a segment without metadata: for the cleaner, checks and salvage.
//!
//! A scan follows the run headers. Where there is none it looks at each following place where one may be,
//! and tells what it passed over as a gap: the torn tail after a crash, the remains of a write that failed,
//! or damage.

use std::io::IoSliceMut;

use types::SegmentId;

use crate::extent::block_checksums;
use crate::format::{RUN_MAGIC, crc_of_crcs, next_run};
use crate::{
    ChunkError, Damage, RUN_ALIGN, RUN_HEADER_LEN, Run, RunHeader, SEGMENT_HEADER_LEN, SegmentHeader,
    SegmentStore,
};

/// What a scan comes upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanItem {
    /// A run whose header is intact; its bytes are not checked, see [`verify_run`].
    Run(StoredRun),
    /// Bytes that belong to no run.
    Gap {
        /// Offset of the first.
        offset: u64,
        /// How many.
        len: u64,
    },
}

/// A run as a scan finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the run's first byte, behind its header.
    pub offset: u64,
    /// The header.
    pub header: RunHeader,
}

/// Goes through a segment; ends after the first error.
pub struct SegmentScan<'a> {
    store: &'a dyn SegmentStore,
    header: SegmentHeader,
    at: u64,
    end: u64,
    /// Found behind a gap, to be told next.
    found: Option<StoredRun>,
}

/// Starts a scan of `segment` as it is now.
///
/// # Errors
///
/// [`ChunkError::Damaged`] if the segment header cannot be trusted: without it run headers cannot be checked.
/// A segment to which nothing was ever written durably is like that too.
pub fn scan_segment(store: &dyn SegmentStore, segment: SegmentId) -> Result<SegmentScan<'_>, ChunkError> {
    let mut bytes = [0; SEGMENT_HEADER_LEN];
    store.read_at(segment, 0, &mut [IoSliceMut::new(&mut bytes)])?;
    let header = SegmentHeader::from_bytes(&bytes, segment).map_err(|what| ChunkError::Damaged {
        segment,
        offset: 0,
        what,
    })?;
    let end = store.segment_len(segment)?;
    Ok(SegmentScan { store, header, at: SEGMENT_HEADER_LEN as u64, end, found: None })
}

/// Reads a run and checks it against its header; the answer has its block checksums, so that extents can be
/// made of it again.
pub fn verify_run(store: &dyn SegmentStore, stored: &StoredRun) -> Result<Run, ChunkError> {
    let &StoredRun { segment, offset, header } = stored;
    let mut bytes = vec![0; header.len as usize];
    store.read_at(segment, offset, &mut [IoSliceMut::new(&mut bytes)])?;
    let crcs = block_checksums(&[&bytes]);
    if crc_of_crcs(&crcs) != header.crcs_crc {
        return Err(ChunkError::Damaged { segment, offset, what: Damage::Checksum });
    }
    Run::new(segment, offset, header.len, &crcs)
        .map_err(|source| ChunkError::Extent { ino: header.ino, source })
}

impl SegmentScan<'_> {
    /// The header of the segment.
    pub fn header(&self) -> SegmentHeader {
        self.header
    }

    fn step(&mut self) -> Result<Option<ScanItem>, ChunkError> {
        let run = match self.found.take() {
            Some(run) => Some(run),
            None => self.run_at(self.at)?,
        };
        if let Some(run) = run {
            self.at = next_run(run.offset + u64::from(run.header.len));
            return Ok(Some(ScanItem::Run(run)));
        }
        if self.at >= self.end {
            return Ok(None);
        }
        let offset = self.at;
        self.found = self.next_run_from(offset + RUN_ALIGN)?;
        let gap_end = self.found.as_ref().map_or(self.end, |run| run.offset - RUN_HEADER_LEN as u64);
        self.at = gap_end;
        Ok(Some(ScanItem::Gap { offset, len: gap_end - offset }))
    }

    /// The run whose header is at `offset`, if one is and all of the run lies in the segment.
    fn run_at(&self, offset: u64) -> Result<Option<StoredRun>, ChunkError> {
        if self.end.saturating_sub(offset) < RUN_HEADER_LEN as u64 {
            return Ok(None);
        }
        let mut bytes = [0; RUN_HEADER_LEN];
        self.store.read_at(self.header.segment, offset, &mut [IoSliceMut::new(&mut bytes)])?;
        Ok(self.run_of(&bytes, offset))
    }

    fn run_of(&self, bytes: &[u8; RUN_HEADER_LEN], at: u64) -> Option<StoredRun> {
        let segment = self.header.segment;
        let header = RunHeader::from_bytes(bytes, &self.header.volume, segment, at)?;
        let offset = at + RUN_HEADER_LEN as u64;
        let is_inside = self.end - offset >= u64::from(header.len);
        is_inside.then_some(StoredRun { segment, offset, header })
    }

    /// The first run whose header is at or behind `offset`. Reads in large strides that overlap by a header.
    fn next_run_from(&self, mut offset: u64) -> Result<Option<StoredRun>, ChunkError> {
        let mut window = vec![0; STRIDE + RUN_HEADER_LEN];
        while self.end.saturating_sub(offset) >= RUN_HEADER_LEN as u64 {
            let len = window.len().min((self.end - offset) as usize);
            let window = &mut window[..len];
            self.store.read_at(self.header.segment, offset, &mut [IoSliceMut::new(window)])?;
            for start in (0..=len - RUN_HEADER_LEN).step_by(RUN_ALIGN as usize) {
                if !window[start..].starts_with(RUN_MAGIC) {
                    continue;
                }
                let mut bytes = [0; RUN_HEADER_LEN];
                bytes.copy_from_slice(&window[start..start + RUN_HEADER_LEN]);
                if let Some(run) = self.run_of(&bytes, offset + start as u64) {
                    return Ok(Some(run));
                }
            }
            offset += STRIDE as u64;
        }
        Ok(None)
    }
}

impl Iterator for SegmentScan<'_> {
    type Item = Result<ScanItem, ChunkError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.step().transpose();
        if matches!(item, Some(Err(_))) {
            self.at = self.end;
            self.found = None;
        }
        item
    }
}

/// Bytes looked at in one go behind a place that is no run header.
const STRIDE: usize = 256 * 1024;
