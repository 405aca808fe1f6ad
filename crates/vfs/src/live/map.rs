//! Where the bytes of a file are: its extents, page by page, as far as they are loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use chunk::{ChunkError, Extent, ExtentMap, LiveDeltas, RUN_LEN_MAX, SegmentWriter};
use meta::Body;
use types::{Ino, SegmentId};

use super::dirty::DirtyBytes;
use super::{extent_parts, pages_of};
use crate::loaded::Loaded;

/// Extents of a file by page, as far as loaded.
#[derive(Debug, Default)]
pub(super) struct FileMap {
    /// What lies behind the end is known: what is cut off is loaded first, and has no extents from then on, however far the file grows after
    /// that.
    pub(super) loaded: Loaded,
    pub(super) changed: BTreeSet<u64>,
    /// Segments that extents were appended to since the last capture.
    pub(super) unlogged: BTreeSet<SegmentId>,
    pub(super) mapped_bytes: u64,
    pub(super) dirty: DirtyBytes,
    /// Pages that the next capture will hold, and the bytes that they will take in the log, about.
    pub(super) touched: BTreeSet<u64>,
    pub(super) touched_bytes: usize,
}

impl FileMap {
    /// Bytes of `range`, whose pages are loaded, that extents map.
    pub(super) fn mapped_in(&self, range: &Range<u64>) -> u64 {
        let pages = self.loaded.pages(pages_of(range));
        let inside = pages.flat_map(|(_, map)| map.extents_in(range.clone()));
        inside.map(|extent| extent.end().min(range.end) - extent.file_offset().max(range.start)).sum()
    }

    /// Whether a page takes no more extents before it is [compacted](compact).
    pub(super) fn is_page_full(&self, page: u64) -> bool {
        self.loaded.page(page).is_some_and(|extents| extents.len() >= Body::PAGE_EXTENTS_MAX)
    }

    /// Notes that a page will be part of the next capture.
    pub(super) fn touch(&mut self, page: u64) {
        self.touched_bytes += EXTENT_BYTES;
        if self.touched.insert(page) {
            let extents = self.loaded.page(page).map_or(0, ExtentMap::len);
            self.touched_bytes += (extents + 1) * EXTENT_BYTES;
        }
    }

    /// All extents of a file, from its record.
    pub(super) fn whole(map: &ExtentMap) -> Self {
        let mut result = Self { loaded: Loaded::whole(), ..Self::default() };
        for extent in map.iter() {
            // Of formats 1 to 3 some go on in the next page, where they would not be found.
            let mut start = extent.file_offset();
            while start < extent.end() {
                let end = (start / Body::PAGE_SPAN + 1) * Body::PAGE_SPAN;
                if let Some(part) = extent.slice(start..end) {
                    result.insert(part, &mut LiveDeltas::new());
                }
                start = end;
            }
        }
        result.changed.clear();
        result.unlogged.clear();
        result.touched.clear();
        result.touched_bytes = 0;
        result
    }

    pub(super) fn insert(&mut self, extent: Extent, deltas: &mut LiveDeltas) {
        let page = extent.file_offset() / Body::PAGE_SPAN;
        self.changed.insert(page);
        self.touch(page);
        self.unlogged.insert(extent.segment());
        deltas.on_added(&extent);
        let added = u64::from(extent.len());
        let freed = self.loaded.insert(page, extent);
        deltas.on_freed(&freed);
        // The record that it began from may have told less than there is.
        self.mapped_bytes = (self.mapped_bytes + added).saturating_sub(freed.bytes());
    }

    /// Whether no page gets more extents than a message takes. A hole may need one more at each end.
    pub(super) fn has_room_for(&self, range: &Range<u64>, extents: &[Extent]) -> bool {
        let ends = [range.start, range.end.saturating_sub(1)].map(|at| (at / Body::PAGE_SPAN, 2));
        let mut added: BTreeMap<u64, usize> = ends.into_iter().collect();
        for extent in extents {
            *added.entry(extent.file_offset() / Body::PAGE_SPAN).or_insert(2) += 1;
        }
        let has = |page: &u64| self.loaded.page(*page).map_or(0, ExtentMap::len);
        added.iter().all(|(page, count)| has(page) + count <= Body::PAGE_EXTENTS_MAX)
    }

    pub(super) fn punch(&mut self, range: Range<u64>, deltas: &mut LiveDeltas) {
        if range.is_empty() {
            return;
        }
        let pages: Vec<u64> = self.loaded.pages(pages_of(&range)).map(|(page, _)| page).collect();
        for page in pages {
            let freed = self.loaded.punch(page, range.clone());
            if !freed.is_empty() {
                self.mapped_bytes = self.mapped_bytes.saturating_sub(freed.bytes());
                deltas.on_freed(&freed);
                self.changed.insert(page);
                self.touch(page);
            }
        }
    }

    pub(super) fn truncate(&mut self, size: u64, deltas: &mut LiveDeltas) {
        self.punch(size..u64::MAX, deltas);
        self.loaded.end_at(size.div_ceil(Body::PAGE_SPAN));
    }

    /// The whole map, if it is loaded and small enough for the record.
    pub(super) fn embeddable(&self) -> Option<ExtentMap> {
        if self.mapped_bytes > EMBEDDED_BYTES_MAX {
            return None;
        }
        let extents = || self.loaded.pages(0..u64::MAX).flat_map(|(_, map)| map.iter());
        if self.loaded.known.first_gap(&(0..u64::MAX)).is_some()
            || self.loaded.count().1 > Body::EXTENTS_EMBEDDED_MAX
        {
            return None;
        }
        let mut whole = ExtentMap::new();
        for extent in extents() {
            let _ = whole.insert(extent.clone());
        }
        Some(whole)
    }
}

/// Appends to the writer's segment and maps what was stored: all of it, or nothing. Runs never cross a page of extents.
pub(super) fn append(
    writer: &mut SegmentWriter,
    map: &mut FileMap,
    deltas: &mut LiveDeltas,
    ino: Ino,
    offset: u64,
    data: &[u8],
) -> Result<(), ChunkError> {
    let end = offset + data.len() as u64;
    // First, so that what may have to be taken back is the last that was appended.
    for page in pages_of(&(offset..end)) {
        compact(writer, map, deltas, ino, page)?;
    }
    let (mut at, mut stored) = (offset, Vec::new());
    while at < end {
        let part_end = end.min((at / Body::PAGE_SPAN + 1) * Body::PAGE_SPAN);
        let part = &data[(at - offset) as usize..(part_end - offset) as usize];
        match writer.append(ino, at, &[part]) {
            Ok(extents) => stored.extend(extents),
            Err(error) => {
                writer.take_back(&stored);
                return Err(error);
            }
        }
        at = part_end;
    }
    stored.into_iter().for_each(|extent| map.insert(extent, deltas));
    Ok(())
}

/// Stores a page of too many extents anew, in few: a page must fit a message. Holes in it become zeros.
///
/// Each run of the new extents is whole before the next: after an error the page is as good as before.
pub(super) fn compact(
    writer: &mut SegmentWriter,
    map: &mut FileMap,
    deltas: &mut LiveDeltas,
    ino: Ino,
    page: u64,
) -> Result<(), ChunkError> {
    let Some(extents) = map.loaded.page(page).filter(|_| map.is_page_full(page)) else { return Ok(()) };
    let bounds = extents.iter().next().zip(extents.iter().last());
    let Some((mut at, end)) = bounds.map(|(first, last)| (first.file_offset(), last.end())) else {
        return Ok(());
    };
    while at < end {
        let part = at..end.min(at + u64::from(RUN_LEN_MAX));
        let mut bytes = vec![0; (part.end - part.start) as usize];
        let parts = map.loaded.page(page).map(|extents| extent_parts(extents, &part)).unwrap_or_default();
        for (offset, extent) in parts {
            let out = &mut bytes[offset..offset + extent.len() as usize];
            chunk::read_extent(writer.store(), ino, &extent, extent.range(), out)?;
        }
        for extent in writer.append(ino, at, &[&bytes])? {
            map.insert(extent, deltas);
        }
        at = part.end;
    }
    Ok(())
}

/// An extent in a change, with its sums, about.
pub(super) const EXTENT_BYTES: usize = 64;
/// Files whose extents map more stay in pages: their checksums alone would fill the record.
const EMBEDDED_BYTES_MAX: u64 = 32 << 20;
