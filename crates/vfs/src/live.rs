//! Content that is newer than the log: what applications wrote and no change records yet.
//!
//! Invariants:
//!
//! - A [`Live`] exists only while this node holds the content of its file in EX.
//! - No captured content names bytes of a segment before they are synced; that is the flusher's part
//!   (ARCHITECTURE.md, invariant 4).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use chunk::{ChunkError, Extent, ExtentMap, LiveDeltas, Piece, RUN_LEN_MAX, SegmentWriter};
use meta::{Body, Content};
use types::{Ino, SegmentId, Timespec};

/// Newer content of one file.
#[derive(Debug)]
pub struct Live {
    /// Logical size.
    pub size: u64,
    /// Last change of the bytes.
    pub mtime: Timespec,
    /// Last change of this half.
    pub ctime: Timespec,
    /// Last read.
    pub atime: Timespec,
    /// Raised by every change.
    pub version: u64,
    captured: u64,
    /// The times that others are shown with `nomtime`: those that were recorded, set or told to others last.
    told: Told,
    /// Bytes that could not be made durable: fsync and close report it, nothing more is logged.
    pub failed: bool,
    inline_bytes_max: usize,
    data: Data,
    deltas: LiveDeltas,
    logged_bytes: u64,
    /// Pages of extents that may be under the file's keys.
    logged_pages: u64,
}

/// Times as of a version of the content.
#[derive(Clone, Copy, Debug)]
struct Told {
    version: u64,
    mtime: Timespec,
    ctime: Timespec,
}

/// The bytes.
#[derive(Debug)]
enum Data {
    /// All of them, at most `inline_bytes_max`.
    Inline(Vec<u8>),
    /// Extents, with newer bytes over them.
    Mapped(FileMap),
}

/// Extents of a file by page, as far as loaded.
#[derive(Debug, Default)]
struct FileMap {
    pages: BTreeMap<u64, ExtentMap>,
    /// A page before this of which nothing is here may have extents that are not loaded. From here on it has none: what is cut off is loaded
    /// first, so that the end only ever comes down, however far the file grows after that.
    unknown_to: u64,
    /// Behind the last page that has extents.
    end_page: u64,
    changed: BTreeSet<u64>,
    /// Segments that extents were appended to since the last capture.
    unlogged: BTreeSet<SegmentId>,
    mapped_bytes: u64,
    dirty: DirtyBytes,
    /// Pages that the next capture will hold, and the bytes that they will take in the log, about.
    touched: BTreeSet<u64>,
    touched_bytes: usize,
}

/// Written bytes that no segment has yet, as ranges that neither touch nor overlap.
#[derive(Debug, Default)]
pub struct DirtyBytes {
    ranges: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

/// What is to be logged for a file, taken at one moment.
#[derive(Debug)]
pub struct Capture {
    /// The file.
    pub ino: Ino,
    /// The live content's version.
    pub version: u64,
    /// The content.
    pub content: Content,
    /// Pages of extents to write; an empty one is removed.
    pub pages: Vec<(u64, ExtentMap)>,
    /// Live bytes of segments.
    pub deltas: LiveDeltas,
    /// Segments that it names for the first time.
    pub segments: BTreeSet<SegmentId>,
    /// Stored bytes more or fewer.
    pub bytes_delta: i64,
}

/// A page of extents that must be loaded first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedPage(pub u64);

impl Live {
    /// Content as logged, about to be changed. It stays inline up to `inline_bytes_max` bytes.
    pub fn new(content: &Content, inline_bytes_max: usize) -> Self {
        let end_page = content.size.div_ceil(Body::PAGE_SPAN);
        let (data, logged_pages) = match &content.body {
            Body::Empty {} | Body::Target { .. } => (Data::Inline(Vec::new()), 0),
            Body::Inline { data } => (Data::Inline(data.to_vec()), 0),
            Body::Extents { map } => (Data::Mapped(FileMap::whole(map)), 0),
            Body::Paged { mapped_bytes } => {
                let mapped_bytes = *mapped_bytes;
                let map = FileMap { unknown_to: end_page, end_page, mapped_bytes, ..FileMap::default() };
                (Data::Mapped(map), end_page)
            }
        };
        Self {
            size: content.size,
            mtime: content.mtime,
            ctime: content.ctime,
            atime: content.atime,
            version: 1,
            captured: 0,
            told: Told { version: 0, mtime: content.mtime, ctime: content.ctime },
            failed: false,
            inline_bytes_max,
            data,
            deltas: LiveDeltas::new(),
            logged_bytes: content.body.stored_bytes(),
            logged_pages,
        }
    }

    /// Bytes stored or to be stored.
    pub fn stored_bytes(&self) -> u64 {
        match &self.data {
            Data::Inline(data) => data.len() as u64,
            Data::Mapped(map) => {
                let over =
                    |(start, bytes): (&u64, &Vec<u8>)| map.mapped_in(&(*start..start + bytes.len() as u64));
                map.mapped_bytes + map.dirty.bytes as u64 - map.dirty.ranges.iter().map(over).sum::<u64>()
            }
        }
    }

    /// Bytes that a write of `range`, whose pages are loaded, adds to what is stored.
    pub fn growth(&self, range: &Range<u64>) -> u64 {
        let len = range.end - range.start;
        match &self.data {
            Data::Inline(data) if range.end <= self.inline_bytes_max as u64 => {
                range.end.saturating_sub(data.len() as u64)
            }
            Data::Inline(data) => len - (data.len() as u64).min(range.end).saturating_sub(range.start),
            Data::Mapped(map) => {
                let dirty: u64 =
                    map.dirty.parts_in(range).map(|part| part.end - part.start - map.mapped_in(&part)).sum();
                len - map.mapped_in(range) - dirty
            }
        }
    }

    /// Bytes held in memory only, those that are to go into the record included.
    pub fn memory_bytes(&self) -> usize {
        match &self.data {
            Data::Inline(data) => data.len(),
            Data::Mapped(map) => map.dirty.bytes,
        }
    }

    /// Bytes held in memory only that are to go to segments.
    pub fn dirty_bytes(&self) -> usize {
        match &self.data {
            Data::Inline(_) => 0,
            Data::Mapped(map) => map.dirty.bytes,
        }
    }

    /// Bytes that a capture would take in the log now, about.
    pub fn capture_bytes(&self) -> usize {
        match &self.data {
            Data::Inline(data) => data.len(),
            Data::Mapped(map) => map.touched_bytes,
        }
    }

    /// Takes in a loaded page of extents.
    pub fn load_page(&mut self, page: u64, extents: ExtentMap) {
        if let Data::Mapped(map) = &mut self.data {
            map.pages.entry(page).or_insert(extents);
        }
    }

    /// The first page of extents in `range` that is not loaded.
    pub fn missing_page(&self, range: &Range<u64>) -> Option<NeedPage> {
        let Data::Mapped(map) = &self.data else { return None };
        if range.is_empty() {
            return None;
        }
        let last = ((range.end - 1) / Body::PAGE_SPAN).min(map.unknown_to.checked_sub(1)?);
        (range.start / Body::PAGE_SPAN..=last).find(|page| !map.pages.contains_key(page)).map(NeedPage)
    }

    /// Writes `data` at `offset`. The pages of the range must be loaded.
    pub fn write(&mut self, offset: u64, data: &[u8], now: Timespec) {
        let end = offset + data.len() as u64;
        self.touch(now);
        self.size = self.size.max(end);
        if let Data::Inline(bytes) = &mut self.data {
            if end <= self.inline_bytes_max as u64 {
                let (start, end) = (offset as usize, end as usize);
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(data);
                return;
            }
            self.unfold();
        }
        if let Data::Mapped(map) = &mut self.data {
            map.touch(offset / Body::PAGE_SPAN);
            map.touch(end.saturating_sub(1) / Body::PAGE_SPAN);
            map.dirty.write(offset, data);
        }
    }

    /// Stores `data` at `offset` in a segment at once, without keeping it in memory.
    pub fn write_through(
        &mut self,
        writer: &mut SegmentWriter,
        ino: Ino,
        offset: u64,
        data: &[u8],
        now: Timespec,
    ) -> Result<(), ChunkError> {
        self.unfold();
        // Also if it is stored in part only: what was captured before does not have that.
        self.touch(now);
        let Data::Mapped(map) = &mut self.data else { return Ok(()) };
        let stored = append(writer, map, &mut self.deltas, ino, offset, data);
        match stored {
            Ok(()) => {
                map.dirty.punch(offset..offset + data.len() as u64);
                self.size = self.size.max(offset + data.len() as u64);
            }
            // The file has not grown: it must not have it when it does.
            Err(_) => map.punch(self.size..u64::MAX, &mut self.deltas),
        }
        stored
    }

    /// Sets the size. All pages from the new end on must be loaded.
    pub fn truncate(&mut self, size: u64, now: Timespec) {
        self.touch(now);
        let shrinks = size < self.size;
        self.size = size;
        if !shrinks {
            return;
        }
        match &mut self.data {
            Data::Inline(bytes) => bytes.truncate(size as usize),
            Data::Mapped(map) => {
                map.dirty.punch(size..u64::MAX);
                map.truncate(size, &mut self.deltas);
                if size == 0 {
                    self.fold();
                }
            }
        }
    }

    /// Maps `range` to `extents`, which lie inside it in order and cross no page; what they leave of it becomes a hole. The
    /// pages of the range must be loaded.
    ///
    /// False, and nothing is changed, if bytes would have to be stored before the change can be captured.
    pub fn place(&mut self, range: &Range<u64>, extents: &[Extent], now: Timespec) -> bool {
        if self.is_inline() && extents.is_empty() {
            self.punch(range.clone(), now);
            self.size = self.size.max(range.end);
            return true;
        }
        if let Data::Inline(bytes) = &mut self.data {
            if range.start > 0 && !bytes.is_empty() || range.end < bytes.len() as u64 {
                return false;
            }
            bytes.clear();
            self.unfold();
        }
        let is_missing = self.missing_page(range).is_some();
        let Data::Mapped(map) = &mut self.data else { return false };
        if is_missing || map.dirty.bytes > 0 || !map.has_room_for(range, extents) {
            return false;
        }
        map.punch(range.clone(), &mut self.deltas);
        for extent in extents {
            map.insert(extent.clone(), &mut self.deltas);
        }
        self.touch(now);
        self.size = self.size.max(range.end);
        true
    }

    /// Sees to it that the pages at the ends of `range` can be cut: a hole may need one extent more.
    pub fn make_room(
        &mut self,
        writer: &mut SegmentWriter,
        ino: Ino,
        range: &Range<u64>,
    ) -> Result<(), ChunkError> {
        let Data::Mapped(map) = &mut self.data else { return Ok(()) };
        // What is stored anew was not captured.
        self.version += 1;
        for at in [range.start, range.end] {
            compact(writer, map, &mut self.deltas, ino, at / Body::PAGE_SPAN)?;
        }
        Ok(())
    }

    /// Makes a range a hole. Its pages must be loaded.
    pub fn punch(&mut self, range: Range<u64>, now: Timespec) {
        self.touch(now);
        match &mut self.data {
            Data::Inline(bytes) => {
                let end = (range.end as usize).min(bytes.len());
                let start = (range.start as usize).min(end);
                bytes[start..end].fill(0);
            }
            Data::Mapped(map) => {
                map.dirty.punch(range.clone());
                map.punch(range, &mut self.deltas);
            }
        }
    }

    /// Parts of `range` (which lies inside the file): extents to read and bytes to lay over.
    pub fn read(&self, range: Range<u64>) -> (Vec<(usize, Extent)>, Vec<(usize, Box<[u8]>)>) {
        match &self.data {
            Data::Inline(bytes) => (Vec::new(), inline_overlay(bytes, &range)),
            Data::Mapped(map) => {
                let mut parts = Vec::new();
                for (_, extents) in map.pages.range(..=range.end / Body::PAGE_SPAN) {
                    parts.extend(extent_parts(extents, &range));
                }
                (parts, map.dirty.overlay(&range))
            }
        }
    }

    /// First byte at or after `offset` that is stored; `None` if there is none before the end.
    pub fn seek_data(&self, offset: u64) -> Option<u64> {
        let found = match &self.data {
            Data::Inline(bytes) => (offset < bytes.len() as u64).then_some(offset),
            Data::Mapped(map) => {
                let stored = map.pages.values().filter_map(|p| p.seek_data(offset)).min();
                let dirty = map.dirty.seek_data(offset);
                stored.into_iter().chain(dirty).min()
            }
        };
        found.filter(|at| *at < self.size)
    }

    /// First byte at or after `offset` in a hole; the end of the file counts as one.
    pub fn seek_hole(&self, mut offset: u64) -> u64 {
        let Data::Mapped(map) = &self.data else {
            let Data::Inline(bytes) = &self.data else { return self.size };
            return offset.max(bytes.len() as u64).min(self.size);
        };
        loop {
            let page = offset / Body::PAGE_SPAN;
            let stored = map.pages.get(&page).and_then(|p| p.extent_at(offset)).map(Extent::end);
            match stored.into_iter().chain(map.dirty.end_of_data_at(offset)).max() {
                Some(end) if end > offset => offset = end,
                _ => return offset.min(self.size),
            }
        }
    }

    /// Appends what is only in memory to segments. On error what was not stored stays in memory.
    pub fn stage(&mut self, writer: &mut SegmentWriter, ino: Ino) -> Result<(), ChunkError> {
        let Data::Mapped(map) = &mut self.data else { return Ok(()) };
        while let Some((offset, bytes)) = map.dirty.pop_first() {
            if let Err(error) = append(writer, map, &mut self.deltas, ino, offset, &bytes) {
                map.dirty.write(offset, &bytes);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives up what is only in memory. Returns how many bytes.
    pub fn drop_unstored(&mut self) -> u64 {
        let Data::Mapped(map) = &mut self.data else { return 0 };
        std::mem::take(&mut map.dirty).bytes as u64
    }

    /// Takes what is to be logged. Everything must be staged.
    pub fn capture(&mut self, ino: Ino) -> Capture {
        let mut pages = Vec::new();
        let mut paged = false;
        let body = match &mut self.data {
            Data::Inline(bytes) if bytes.is_empty() => Body::Empty {},
            Data::Inline(bytes) => Body::Inline { data: bytes.as_slice().into() },
            Data::Mapped(map) => match map.embeddable() {
                Some(whole) if whole.is_empty() => Body::Empty {},
                Some(whole) => Body::Extents { map: whole },
                None => {
                    paged = true;
                    if self.logged_pages == 0 {
                        map.changed = map.pages.keys().copied().collect();
                    }
                    for page in std::mem::take(&mut map.changed) {
                        pages.push((page, map.pages.get(&page).cloned().unwrap_or_default()));
                    }
                    self.logged_pages = self.logged_pages.max(map.end_page);
                    Body::Paged { mapped_bytes: map.mapped_bytes }
                }
            },
        };
        if !paged {
            pages =
                (0..std::mem::take(&mut self.logged_pages)).map(|page| (page, ExtentMap::new())).collect();
        }
        let mut segments = BTreeSet::new();
        if let Data::Mapped(map) = &mut self.data {
            map.changed.clear();
            map.touched.clear();
            map.touched_bytes = 0;
            segments = std::mem::take(&mut map.unlogged);
        }
        self.captured = self.version;
        let stored = body.stored_bytes();
        let bytes_delta = stored as i64 - self.logged_bytes as i64;
        self.logged_bytes = stored;
        Capture {
            ino,
            version: self.version,
            content: Content {
                size: self.size,
                mtime: self.mtime,
                atime: self.atime,
                ctime: self.ctime,
                body,
            },
            pages,
            deltas: std::mem::take(&mut self.deltas),
            segments,
            bytes_delta,
        }
    }

    /// Its pages of extents, once what was captured of it is logged; none of a file whose record holds them.
    pub fn into_pages(self) -> BTreeMap<u64, ExtentMap> {
        match self.data {
            Data::Mapped(map) if self.logged_pages > 0 => map.pages,
            Data::Mapped(_) | Data::Inline(_) => BTreeMap::new(),
        }
    }

    /// Whether all of it was taken by a capture that is on its way to the log.
    pub fn is_captured(&self) -> bool {
        self.captured == self.version
    }

    /// Segments that a later capture may name for the first time.
    pub fn unlogged_segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        let segments = match &self.data {
            Data::Mapped(map) => Some(&map.unlogged),
            Data::Inline(_) => None,
        };
        segments.into_iter().flatten().copied()
    }

    /// Whether the bytes are small enough for the record.
    pub fn is_inline(&self) -> bool {
        matches!(self.data, Data::Inline(_))
    }

    /// Sets times.
    pub fn set_times(&mut self, atime: Option<Timespec>, mtime: Option<Timespec>, now: Timespec) {
        self.version += 1;
        self.atime = atime.unwrap_or(self.atime);
        self.mtime = mtime.unwrap_or(self.mtime);
        self.ctime = now;
        // What somebody sets counts everywhere.
        self.told = Told { version: self.version, mtime: mtime.unwrap_or(self.told.mtime), ctime: now };
    }

    /// Last change of the bytes and of this half, told to others.
    pub fn tell_times(&mut self) -> (Timespec, Timespec) {
        self.told = Told { version: self.version, mtime: self.mtime, ctime: self.ctime };
        self.times_told()
    }

    /// The same as others are shown them with `nomtime`.
    pub fn times_told(&self) -> (Timespec, Timespec) {
        (self.told.mtime, self.told.ctime)
    }

    /// What was captured of this version with these times is recorded.
    pub fn note_recorded(&mut self, version: u64, mtime: Timespec, ctime: Timespec) {
        if version > self.told.version {
            self.told = Told { version, mtime, ctime };
        }
    }

    /// Both times, as every change of content sets them.
    pub fn touch(&mut self, now: Timespec) {
        self.version += 1;
        self.mtime = now;
        self.ctime = now;
    }

    /// From inline bytes to extents.
    fn unfold(&mut self) {
        let Data::Inline(bytes) = &mut self.data else { return };
        // What was logged of a file that was cut to nothing is to go, too.
        let mut map = FileMap { changed: (0..self.logged_pages).collect(), ..FileMap::default() };
        let bytes = std::mem::take(bytes);
        if !bytes.is_empty() {
            map.dirty.write(0, &bytes);
        }
        self.data = Data::Mapped(map);
    }

    /// Back to inline bytes, of which there are none.
    fn fold(&mut self) {
        self.data = Data::Inline(Vec::new());
    }
}

/// Appends to the writer's segment and maps what was stored. Runs never cross a page of extents.
fn append(
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
fn compact(
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

impl FileMap {
    /// Bytes of `range`, whose pages are loaded, that extents map.
    fn mapped_in(&self, range: &Range<u64>) -> u64 {
        let pages = self.pages.range(range.start / Body::PAGE_SPAN..=range.end / Body::PAGE_SPAN);
        let inside = pages.flat_map(|(_, map)| map.extents_in(range.clone()));
        inside.map(|extent| extent.end().min(range.end) - extent.file_offset().max(range.start)).sum()
    }

    /// Notes that a page will be part of the next capture.
    fn touch(&mut self, page: u64) {
        self.touched_bytes += EXTENT_BYTES;
        if self.touched.insert(page) {
            let extents = self.pages.get(&page).map_or(0, ExtentMap::len);
            self.touched_bytes += (extents + 1) * EXTENT_BYTES;
        }
    }

    /// All extents of a file, from its record.
    fn whole(map: &ExtentMap) -> Self {
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

    fn insert(&mut self, extent: Extent, deltas: &mut LiveDeltas) {
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
    fn has_room_for(&self, range: &Range<u64>, extents: &[Extent]) -> bool {
        let ends = [range.start, range.end.saturating_sub(1)].map(|at| (at / Body::PAGE_SPAN, 2));
        let mut added: BTreeMap<u64, usize> = ends.into_iter().collect();
        for extent in extents {
            *added.entry(extent.file_offset() / Body::PAGE_SPAN).or_insert(2) += 1;
        }
        let has = |page| self.pages.get(page).map_or(0, ExtentMap::len);
        added.iter().all(|(page, count)| has(page) + count <= Body::PAGE_EXTENTS_MAX)
    }

    fn punch(&mut self, range: Range<u64>, deltas: &mut LiveDeltas) {
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

    fn truncate(&mut self, size: u64, deltas: &mut LiveDeltas) {
        self.punch(size..u64::MAX, deltas);
        self.end_page = self.end_page.min(size.div_ceil(Body::PAGE_SPAN));
        self.unknown_to = self.unknown_to.min(self.end_page);
        self.pages.split_off(&self.end_page);
    }

    /// The whole map, if it is loaded and small enough for the record.
    fn embeddable(&self) -> Option<ExtentMap> {
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

/// An extent in a change, with its sums, about.
const EXTENT_BYTES: usize = 64;
/// Files whose extents map more stay in pages: their checksums alone would fill the record.
const EMBEDDED_BYTES_MAX: u64 = 32 << 20;

impl DirtyBytes {
    /// The parts of `range` that are here.
    fn parts_in(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let range = range.clone();
        let ranges = self.ranges.range(first..range.end.max(first));
        let parts = ranges
            .map(move |(start, bytes)| range.start.max(*start)..range.end.min(start + bytes.len() as u64));
        parts.filter(|part| part.start < part.end)
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        // The common case: the file grows at its end.
        if let Some((start, last)) = self.ranges.range_mut(..=offset).next_back()
            && start + last.len() as u64 >= offset
        {
            let start = *start;
            let at = (offset - start) as usize;
            let overlap = (last.len() - at).min(data.len());
            last[at..at + overlap].copy_from_slice(&data[..overlap]);
            last.extend_from_slice(&data[overlap..]);
            self.bytes += data.len() - overlap;
            let merged_end = start + last.len() as u64;
            if overlap < data.len() {
                self.join_behind(start, merged_end, end);
            }
            return;
        }
        self.punch(offset..end);
        self.ranges.insert(offset, data.to_vec());
        self.bytes += data.len();
        self.join_behind(offset, end, end);
    }

    /// Removes what `start..end` now hides, keeps what sticks out and touches, as one range.
    fn join_behind(&mut self, start: u64, end: u64, _written_to: u64) {
        while let Some((&next, _)) = self.ranges.range(start + 1..=end).next() {
            let Some(bytes) = self.ranges.remove(&next) else { return };
            let hidden = ((end - next) as usize).min(bytes.len());
            self.bytes -= hidden;
            if let Some(range) = self.ranges.get_mut(&start) {
                range.extend_from_slice(&bytes[hidden..]);
            }
            if hidden < bytes.len() {
                return;
            }
        }
    }

    fn punch(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.ranges.range(..range.start).next_back().map(|(start, _)| *start);
        let inside: Vec<u64> =
            before.into_iter().chain(self.ranges.range(range.clone()).map(|(s, _)| *s)).collect();
        for start in inside {
            let Some(mut bytes) = self.ranges.remove(&start) else { continue };
            self.bytes -= bytes.len();
            let end = start + bytes.len() as u64;
            if end > range.end {
                let tail = bytes.split_off((range.end.max(start) - start) as usize);
                self.bytes += tail.len();
                self.ranges.insert(range.end.max(start), tail);
            }
            if start < range.start {
                bytes.truncate((range.start - start) as usize);
                self.bytes += bytes.len();
                self.ranges.insert(start, bytes);
            }
        }
    }

    fn overlay(&self, range: &Range<u64>) -> Vec<(usize, Box<[u8]>)> {
        let first = self.ranges.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let mut parts = Vec::new();
        for (start, bytes) in self.ranges.range(first..range.end) {
            let from = range.start.max(*start);
            let to = range.end.min(start + bytes.len() as u64);
            if from < to {
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                parts.push(((from - range.start) as usize, part.into()));
            }
        }
        parts
    }

    fn seek_data(&self, offset: u64) -> Option<u64> {
        if self.end_of_data_at(offset).is_some() {
            return Some(offset);
        }
        self.ranges.range(offset..).next().map(|(start, _)| *start)
    }

    fn end_of_data_at(&self, offset: u64) -> Option<u64> {
        let (start, bytes) = self.ranges.range(..=offset).next_back()?;
        let end = start + bytes.len() as u64;
        (end > offset).then_some(end)
    }

    fn pop_first(&mut self) -> Option<(u64, Vec<u8>)> {
        let (offset, bytes) = self.ranges.pop_first()?;
        self.bytes -= bytes.len();
        Some((offset, bytes))
    }
}

/// Bytes of an inline file to lay over an answer for `range`.
pub fn inline_overlay(bytes: &[u8], range: &Range<u64>) -> Vec<(usize, Box<[u8]>)> {
    let end = (range.end as usize).min(bytes.len());
    let start = range.start as usize;
    if start >= end {
        return Vec::new();
    }
    vec![(0, bytes[start..end].into())]
}

/// Extents to read for `range`, each cut to it, with its place in the answer.
pub fn extent_parts(map: &ExtentMap, range: &Range<u64>) -> Vec<(usize, Extent)> {
    map.pieces(range.clone())
        .filter_map(|piece| match piece {
            Piece::Data { range: part, extent } => {
                extent.slice(part.clone()).map(|e| ((part.start - range.start) as usize, e))
            }
            Piece::Hole { .. } => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random writes and punches against a plain byte array.
    #[test]
    fn dirty_bytes_match_a_plain_array() {
        let mut state = 12345u64;
        let mut next = move |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..300 {
            let mut dirty = DirtyBytes::default();
            let mut model = vec![None; 300];
            for step in 0..40u8 {
                let start = next(250);
                let len = 1 + next(50);
                if next(4) == 0 {
                    dirty.punch(start..start + len);
                    model[start as usize..(start + len) as usize].fill(None);
                } else {
                    dirty.write(start, &vec![step; len as usize]);
                    model[start as usize..(start + len) as usize].fill(Some(step));
                }
                let mut seen = vec![None; 300];
                for (at, bytes) in dirty.overlay(&(0..300)) {
                    for (i, b) in bytes.iter().enumerate() {
                        assert_eq!(seen[at + i].replace(*b), None);
                    }
                }
                assert_eq!(seen, model);
                assert_eq!(dirty.bytes, model.iter().flatten().count());
            }
        }
    }

    fn writer() -> (std::sync::Arc<chunk::MemStore>, SegmentWriter) {
        let store = std::sync::Arc::new(chunk::MemStore::new());
        let config = chunk::WriterConfig::new([1; 16], types::NodeId(1));
        let mut writer = SegmentWriter::new(config, store.clone());
        writer.add_segments((1..100).map(SegmentId));
        (store, writer)
    }

    fn bytes_of(live: &Live, store: &dyn chunk::SegmentStore, ino: Ino) -> Vec<u8> {
        let mut bytes = vec![0; live.size as usize];
        let (parts, overlay) = live.read(0..live.size);
        for (at, extent) in parts {
            let out = &mut bytes[at..at + extent.len() as usize];
            chunk::read_extent(store, ino, &extent, extent.range(), out).unwrap();
        }
        for (at, part) in overlay {
            bytes[at..at + part.len()].copy_from_slice(&part);
        }
        bytes
    }

    /// Goal: what was cut off does not come back, though the master has it until the cut is logged. Method: a file of several pages is cut and grows
    /// past a hole; nothing in that is to be loaded, before its content is captured or after.
    #[test]
    fn pages_that_were_cut_off_are_not_asked_for() {
        let (_, mut writer) = writer();
        let span = Body::PAGE_SPAN;
        let time = Timespec::default();
        let body = Body::Paged { mapped_bytes: 0 };
        let content = Content { size: 7 * span, mtime: time, atime: time, ctime: time, body };
        let mut live = Live::new(&content, 0);
        assert_eq!(live.missing_page(&(3 * span..3 * span + 1)), Some(NeedPage(3)));
        for page in 2..7 {
            live.load_page(page, ExtentMap::new());
        }
        live.truncate(2 * span, time);
        live.write(6 * span, b"beyond", time);
        live.stage(&mut writer, Ino(9)).unwrap();
        assert_eq!(live.missing_page(&(2 * span..7 * span)), None);
        live.capture(Ino(9));
        assert_eq!(live.missing_page(&(2 * span..7 * span)), None);
        assert_eq!(live.missing_page(&(span..2 * span)), Some(NeedPage(1)), "it was never loaded");
    }

    /// A paged file of ten pages, none of them loaded.
    fn ten_pages() -> Live {
        let time = Timespec::default();
        let body = Body::Paged { mapped_bytes: 0 };
        Live::new(&Content { size: 10 * Body::PAGE_SPAN, mtime: time, atime: time, ctime: time, body }, 0)
    }

    /// Writes so many runs with gaps between.
    fn scatter(live: &mut Live, writer: &mut SegmentWriter, runs: u64) {
        for n in 0..runs {
            live.write(n * 8192, b"here", Timespec::default());
        }
        live.stage(writer, Ino(9)).unwrap();
    }

    /// Goal: of a file that was cut to nothing no page stays where it was logged, whatever it gets before that is logged.
    #[test]
    fn a_file_that_was_cut_to_nothing_gives_up_all_pages() {
        let (_, mut writer) = writer();
        let mut live = ten_pages();
        (0..10).for_each(|page| live.load_page(page, ExtentMap::new()));
        live.truncate(0, Timespec::default());
        scatter(&mut live, &mut writer, 100);
        let capture = live.capture(Ino(9));
        assert!(matches!(capture.content.body, Body::Paged { .. }));
        let pages: Vec<(u64, bool)> =
            capture.pages.iter().map(|(page, map)| (*page, map.is_empty())).collect();
        assert_eq!(pages, (0..10).map(|page| (page, page != 0)).collect::<Vec<_>>());
    }

    /// A hole is logged with the page that it is in, so it counts as what is to be logged.
    #[test]
    fn holes_count_as_what_is_to_be_logged() {
        let (_, mut writer) = writer();
        let mut live = ten_pages();
        live.load_page(0, ExtentMap::new());
        scatter(&mut live, &mut writer, 100);
        live.capture(Ino(9));
        assert_eq!(live.capture_bytes(), 0);
        live.punch(8192..8193, Timespec::default());
        assert!(live.capture_bytes() > 99 * EXTENT_BYTES);
    }

    /// Goal: what was stored of a write that failed does not show when the file grows. Method: the second page of the write finds no segment.
    #[test]
    fn a_write_that_failed_in_the_middle_leaves_nothing_behind_the_end() {
        let store = std::sync::Arc::new(chunk::MemStore::new());
        let config = chunk::WriterConfig {
            segment_len: 1 << 20,
            ..chunk::WriterConfig::new([1; 16], types::NodeId(1))
        };
        let mut writer = SegmentWriter::new(config, store.clone());
        writer.add_segments([SegmentId(1)]);
        let time = Timespec::default();
        let body = Body::Empty {};
        let mut live = Live::new(&Content { size: 0, mtime: time, atime: time, ctime: time, body }, 0);
        let data = vec![7; 3 << 20];
        let version = live.version;
        assert!(live.write_through(&mut writer, Ino(9), Body::PAGE_SPAN - (512 << 10), &data, time).is_err());
        assert!(live.version > version, "what was captured before is not all there is");
        assert_eq!((live.size, live.stored_bytes()), (0, 0));
        live.truncate(2 * Body::PAGE_SPAN, time);
        assert!(bytes_of(&live, &*store, Ino(9)).iter().all(|byte| *byte == 0));
    }

    /// Bytes here and there, stored one by one, and holes punched between: a page of extents stays small enough for
    /// a message, and every live byte is accounted for.
    #[test]
    fn a_page_never_has_more_extents_than_a_message_takes() {
        let empty = Content {
            size: 0,
            mtime: Timespec::default(),
            atime: Timespec::default(),
            ctime: Timespec::default(),
            body: Body::Empty {},
        };
        let (store, mut writer) = writer();
        let (ino, now, mut live) = (Ino(5), Timespec::default(), Live::new(&empty, 4096));
        let mut model = vec![0; 600_000];
        let mut largest = 0;
        let mut changes = |live: &mut Live| {
            let capture = live.capture(ino);
            for (_, map) in &capture.pages {
                largest = largest.max(map.len());
            }
            capture.deltas.iter().map(|(_, bytes)| bytes).sum::<i64>()
        };
        let mut live_bytes = 0;
        for step in 0..20_000usize {
            let at = step * 7919 % 300_000 * 2;
            model[at] = step as u8 | 1;
            live.write(at as u64, &model[at..=at], now);
            if step % 4_000 == 3_999 {
                live.stage(&mut writer, ino).unwrap();
                live_bytes += changes(&mut live);
            }
        }
        let end = live.size as usize;
        live.truncate(model.len() as u64, now);
        assert!(bytes_of(&live, &*store, ino) == model);
        for step in 0..9_000usize {
            let hole = (step * 31 % end) as u64..(step * 31 % end + 1) as u64;
            live.make_room(&mut writer, ino, &hole).unwrap();
            model[hole.start as usize] = 0;
            live.punch(hole, now);
        }
        live_bytes += changes(&mut live);
        assert!(bytes_of(&live, &*store, ino) == model);
        assert!(largest > 4_000 && largest <= Body::PAGE_EXTENTS_MAX + 64, "{largest} extents");
        let Data::Mapped(map) = &live.data else { panic!("too large to be inline") };
        assert_eq!(live_bytes as u64, map.mapped_bytes);
    }
}
