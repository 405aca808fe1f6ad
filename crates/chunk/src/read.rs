//! Reads through extents: whole checksum blocks, in one call, checked before they are given out.

use std::io::IoSliceMut;
use std::ops::Range;

use types::Ino;

use crate::{CHECKSUM_BLOCK, ChunkError, Damage, Extent, SegmentStore};

/// Fills `out` with the bytes `range` of a file, which must lie inside `extent`.
///
/// One read of the store: the wanted bytes go straight to `out`, what else of the first and the last block
/// is needed for their checksums goes to a side buffer of less than two blocks.
///
/// # Errors
///
/// [`ChunkError::DamagedContent`] if a checksum does not hold or the segment ends early; `ino` is for that
/// message alone. [`ChunkError::Missing`] if the segment is gone: the reader may hold an old map. `out` then
/// holds anything and must not be shown.
///
/// # Panics
///
/// If `range` is not inside the extent or `out` has not its length.
pub fn read_extent(
    store: &dyn SegmentStore,
    ino: Ino,
    extent: &Extent,
    range: Range<u64>,
    out: &mut [u8],
) -> Result<(), ChunkError> {
    assert_eq!(out.len() as u64, range.end - range.start, "buffer does not fit the range");
    if out.is_empty() {
        return Ok(());
    }
    let run = extent.run();
    let wanted = extent.run_range(range.clone());
    let first = wanted.start / CHECKSUM_BLOCK;
    let start = first * CHECKSUM_BLOCK;
    let end = wanted.end.next_multiple_of(CHECKSUM_BLOCK).min(run.len());

    let mut side = vec![0; ((wanted.start - start) + (end - wanted.end)) as usize];
    let (before, after) = side.split_at_mut((wanted.start - start) as usize);
    let offset = run.offset() + u64::from(start);
    {
        let mut parts = [&mut *before, &mut *out, &mut *after].map(IoSliceMut::new);
        let read = store.read_at(run.segment(), offset, &mut parts);
        read.map_err(|error| name_content(error, ino, range.start))?;
    }

    let found = crate::extent::block_checksums(&[before, out, after]);
    let expected = &run.crcs()[first as usize..][..found.len()];
    let Some(bad) = found.iter().zip(expected).position(|(found, expected)| found != expected) else {
        return Ok(());
    };
    let bad_start = bad as u64 * u64::from(CHECKSUM_BLOCK);
    let wanted_before = bad_start.saturating_sub(u64::from(wanted.start - start));
    Err(ChunkError::DamagedContent {
        ino,
        file_offset: range.start + wanted_before,
        segment: run.segment(),
        offset: offset + bad_start,
        what: Damage::Checksum,
    })
}

/// Reads all stored blocks of `extent` and checks them, for a scrub.
pub fn verify_extent(store: &dyn SegmentStore, ino: Ino, extent: &Extent) -> Result<(), ChunkError> {
    let mut out = vec![0; extent.len() as usize];
    read_extent(store, ino, extent, extent.range(), &mut out)
}

/// Which bytes of the file cannot be read through `extent`, by blocks. Reads each of them.
pub fn bad_ranges(store: &dyn SegmentStore, ino: Ino, extent: &Extent) -> Vec<Range<u64>> {
    let mut bad = Vec::new();
    let mut start = extent.file_offset();
    while start < extent.end() {
        let within = start - extent.file_offset() + u64::from(extent.skip());
        let block_end = start + u64::from(CHECKSUM_BLOCK) - within % u64::from(CHECKSUM_BLOCK);
        let end = block_end.min(extent.end());
        let mut out = vec![0; (end - start) as usize];
        if read_extent(store, ino, extent, start..end, &mut out).is_err() {
            bad.push(start..end);
        }
        start = end;
    }
    bad
}

/// Says which file a damaged segment concerns.
fn name_content(error: ChunkError, ino: Ino, file_offset: u64) -> ChunkError {
    match error {
        ChunkError::Damaged { segment, offset, what } => {
            ChunkError::DamagedContent { ino, file_offset, segment, offset, what }
        }
        other => other,
    }
}
