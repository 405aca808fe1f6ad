//! Where the bytes of a file are: its extents, page by page, as far as they are loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use chunk::{ChunkError, Extent, ExtentMap, LiveDeltas, RUN_LEN_MAX, SegmentWriter};
use meta::Body;
use types::{Ino, SegmentId};

use super::dirty::DirtyBytes;
use super::extent_parts;

/// Extents of a file by page, as far as loaded.
#[derive(Debug, Default)]
pub(super) struct FileMap {
    pub(super) pages: BTreeMap<u64, ExtentMap>,
    /// A page before this of which nothing is here may have extents that are not loaded. From here on it has none: what is cut off is loaded
    /// first, so that the end only ever comes down, however far the file grows after that.
    pub(super) unknown_to: u64,
    /// Behind the last page that has extents.
    pub(super) end_page: u64,
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
        let pages = self.pages.range(range.start / Body::PAGE_SPAN..=range.end / Body::PAGE_SPAN);
        let inside = pages.flat_map(|(_, map)| map.extents_in(range.clone()));
        inside.map(|extent| extent.end().min(range.end) - extent.file_offset().max(range.start)).sum()
    }

    /// Notes that a page will be part of the next capture.
    pub(super) fn touch(&mut self, page: u64) {
        self.touched_bytes += EXTENT_BYTES;
        if self.touched.insert(page) {
            let extents = self.pages.get(&page).map_or(0, ExtentMap::len);
            self.touched_bytes += (extents + 1) * EXTENT_BYTES;
        }
    }

    /// All extents of a file, from its record.
    pub(super) fn whole(map: &ExtentMap) -> Self {
        let mut result = Self::default();
        for extent in map.iter() {
            result.insert(extent.clone(), &mut LiveDeltas::new());
        }
        result.changed.clear();
        result.unlogged.clear();
        result.touched.clear();
        result.touched_bytes = 0;
        result
    }

    pub(super) fn insert(&mut self, extent: Extent, deltas: &mut LiveDeltas) {
        let page = extent.file_offset() / Body::PAGE_SPAN;
        self.end_page = self.end_page.max(page + 1);
        self.changed.insert(page);
        self.touch(page);
        self.unlogged.insert(extent.segment());
        deltas.on_added(&extent);
        let added = u64::from(extent.len());
        let freed = self.pages.entry(page).or_default().insert(extent);
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
        let has = |page| self.pages.get(page).map_or(0, ExtentMap::len);
        added.iter().all(|(page, count)| has(page) + count <= Body::PAGE_EXTENTS_MAX)
    }

    pub(super) fn punch(&mut self, range: Range<u64>, deltas: &mut LiveDeltas) {
        if range.is_empty() {
            return;
        }
        let last = (range.end - 1) / Body::PAGE_SPAN;
        let mut changed = Vec::new();
        for (page, extents) in self.pages.range_mut(range.start / Body::PAGE_SPAN..=last) {
            let freed = extents.punch(range.clone());
            if !freed.is_empty() {
                changed.push(*page);
                self.mapped_bytes = self.mapped_bytes.saturating_sub(freed.bytes());
                deltas.on_freed(&freed);
            }
        }
        for page in changed {
            self.changed.insert(page);
            self.touch(page);
        }
    }

    pub(super) fn truncate(&mut self, size: u64, deltas: &mut LiveDeltas) {
        self.punch(size..u64::MAX, deltas);
        self.end_page = self.end_page.min(size.div_ceil(Body::PAGE_SPAN));
        self.unknown_to = self.unknown_to.min(self.end_page);
        self.pages.split_off(&self.end_page);
    }

    /// The whole map, if it is loaded and small enough for the record.
    pub(super) fn embeddable(&self) -> Option<ExtentMap> {
        let count: usize = self.pages.values().map(ExtentMap::len).sum();
        let is_known = self.pages.values().map(ExtentMap::mapped_bytes).sum::<u64>() == self.mapped_bytes;
        if !is_known || count > Body::EXTENTS_EMBEDDED_MAX || self.mapped_bytes > EMBEDDED_BYTES_MAX {
            return None;
        }
        let mut whole = ExtentMap::new();
        for extent in self.pages.values().flat_map(ExtentMap::iter) {
            let _ = whole.insert(extent.clone());
        }
        Some(whole)
    }
}

/// Appends to the writer's segment and maps what was stored. Runs never cross a page of extents.
pub(super) fn append(
    writer: &mut SegmentWriter,
    map: &mut FileMap,
    deltas: &mut LiveDeltas,
    ino: Ino,
    offset: u64,
    data: &[u8],
) -> Result<(), ChunkError> {
    let mut done = 0usize;
    while done < data.len() {
        let at = offset + done as u64;
        let room = (Body::PAGE_SPAN - at % Body::PAGE_SPAN) as usize;
        let len = room.min(data.len() - done);
        compact(writer, map, deltas, ino, at / Body::PAGE_SPAN)?;
        for extent in writer.append(ino, at, &[&data[done..done + len]])? {
            map.insert(extent, deltas);
        }
        done += len;
    }
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
    let Some(extents) = map.pages.get(&page).filter(|extents| extents.len() >= Body::PAGE_EXTENTS_MAX) else {
        return Ok(());
    };
    let bounds = extents.iter().next().zip(extents.iter().last());
    let Some((mut at, end)) = bounds.map(|(first, last)| (first.file_offset(), last.end())) else {
        return Ok(());
    };
    while at < end {
        let part = at..end.min(at + u64::from(RUN_LEN_MAX));
        let mut bytes = vec![0; (part.end - part.start) as usize];
        let parts = map.pages.get(&page).map(|extents| extent_parts(extents, &part)).unwrap_or_default();
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
