//! Content that is newer than the log: what applications wrote and no change records yet.
//!
//! Invariants:
//!
//! - A [`Live`] exists only while this node holds the content of its file in EX.
//! - No captured content names bytes of a segment before they are synced; that is the flusher's part
//!   (ARCHITECTURE.md, invariant 4).

mod dirty;
mod map;

use std::collections::BTreeSet;
use std::ops::Range;

use chunk::{ChunkError, Extent, ExtentMap, LiveDeltas, Piece, SegmentWriter};
use meta::{Body, Content};
use types::{Ino, SegmentId, Timespec};

use map::{FileMap, append, compact};

use crate::loaded::Loaded;

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
    /// Whether the record holds bytes that an fsync may have counted on.
    is_in_record: bool,
    /// Pages of extents under the file's keys, those that were not loaded apart.
    logged_pages: BTreeSet<u64>,
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

impl Live {
    /// Content as logged, about to be changed. It stays inline up to `inline_bytes_max` bytes.
    pub fn new(content: &Content, inline_bytes_max: usize) -> Self {
        let data = match &content.body {
            Body::Empty {} | Body::Target { .. } => Data::Inline(Vec::new()),
            Body::Inline { data } => Data::Inline(data.to_vec()),
            Body::Extents { map } => Data::Mapped(FileMap::whole(map)),
            Body::Paged { mapped_bytes } => {
                let mut map = FileMap { mapped_bytes: *mapped_bytes, ..FileMap::default() };
                map.loaded.known.insert(content.size.div_ceil(Body::PAGE_SPAN)..u64::MAX);
                Data::Mapped(map)
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
            is_in_record: matches!(content.body, Body::Inline { .. }),
            logged_pages: BTreeSet::new(),
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

    /// Whether bytes for `range` can go to a segment with nothing stored before them.
    pub fn appends_at_once(&self, range: &Range<u64>) -> bool {
        let is_full = |page| match &self.data {
            Data::Inline(_) => false,
            Data::Mapped(map) => map.is_page_full(page),
        };
        self.dirty_bytes() == 0 && !pages_of(range).any(is_full)
    }

    /// Bytes that a capture would take in the log now, about.
    pub fn capture_bytes(&self) -> usize {
        match &self.data {
            Data::Inline(data) => data.len(),
            Data::Mapped(map) => map.touched_bytes,
        }
    }

    /// Takes in pages of extents as they are logged: all that there are in `range`.
    pub fn load_pages(&mut self, range: Range<u64>, list: impl IntoIterator<Item = (u64, ExtentMap)>) {
        if let Data::Mapped(map) = &mut self.data {
            map.loaded.take_in(range, list);
            self.logged_pages.append(&mut map.loaded.logged);
        }
    }

    /// Begins with what is known of the pages that are logged, unless the record has all extents.
    pub fn load(&mut self, mut loaded: Loaded) {
        if let Data::Mapped(map) = &mut self.data
            && map.loaded.count().0 == 0
        {
            map.loaded.known.ranges().for_each(|range| loaded.known.insert(range));
            self.logged_pages = std::mem::take(&mut loaded.logged);
            map.loaded = loaded;
        }
    }

    /// The first stretch of the pages of extents in `range` that are not loaded.
    pub fn missing_pages(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let Data::Mapped(map) = &self.data else { return None };
        map.loaded.known.first_gap(&pages_of(range))
    }

    /// Stores the bytes that are in the record as logged, before a write up to `end` takes the file out of it: of what is in memory only all
    /// may have to be [given up](Self::drop_unstored), and these an fsync has promised.
    pub fn leave_record(&mut self, writer: &mut SegmentWriter, ino: Ino, end: u64) -> Result<(), ChunkError> {
        let Data::Inline(bytes) = &self.data else { return Ok(()) };
        if !self.is_in_record || bytes.is_empty() || end <= self.inline_bytes_max as u64 {
            return Ok(());
        }
        let mut map = self.unmapped();
        append(writer, &mut map, &mut self.deltas, ino, 0, bytes)?;
        self.data = Data::Mapped(map);
        self.version += 1;
        Ok(())
    }

    /// Writes `data` at `offset`. The pages of the range must be loaded, and what is logged must have [left the record](Self::leave_record).
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

    /// Stores `data` at `offset` in a segment at once, without keeping it in memory: all of it, or nothing.
    pub fn write_through(
        &mut self,
        writer: &mut SegmentWriter,
        ino: Ino,
        offset: u64,
        data: &[u8],
        now: Timespec,
    ) -> Result<(), ChunkError> {
        let end = offset + data.len() as u64;
        // Also if it is refused: pages of many extents may have been stored anew, and what was captured before does not have that.
        self.version += 1;
        if self.is_inline() {
            let mut map = self.unmapped();
            append(writer, &mut map, &mut self.deltas, ino, offset, data)?;
            self.unfold_into(map);
        } else if let Data::Mapped(map) = &mut self.data {
            append(writer, map, &mut self.deltas, ino, offset, data)?;
        }
        if let Data::Mapped(map) = &mut self.data {
            map.dirty.punch(offset..end);
        }
        self.size = self.size.max(end);
        self.touch(now);
        Ok(())
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
            Data::Inline(bytes) => {
                bytes.truncate(size as usize);
                self.is_in_record &= size > 0;
            }
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
        let is_missing = self.missing_pages(range).is_some();
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
                for (_, extents) in map.loaded.pages(pages_of(&range)) {
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
                let stored = map.loaded.seek_data(offset);
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
            match map.loaded.end_of_data_at(offset).into_iter().chain(map.dirty.end_of_data_at(offset)).max()
            {
                Some(end) if end > offset => offset = end,
                _ => return offset.min(self.size),
            }
        }
    }

    /// Appends what is only in memory to segments. On error what was not stored stays in memory.
    pub fn stage(&mut self, writer: &mut SegmentWriter, ino: Ino) -> Result<(), ChunkError> {
        let Data::Mapped(map) = &mut self.data else { return Ok(()) };
        while let Some((offset, bytes)) = map.dirty.pop_first() {
            let mut left = &bytes[..];
            while !left.is_empty() {
                let at = offset + (bytes.len() - left.len()) as u64;
                // A page at a time, so that where there is room for some that is not stored again and again.
                let len = left.len().min((Body::PAGE_SPAN - at % Body::PAGE_SPAN) as usize);
                if let Err(error) = append(writer, map, &mut self.deltas, ino, at, &left[..len]) {
                    map.dirty.write(at, left);
                    return Err(error);
                }
                left = &left[len..];
            }
        }
        Ok(())
    }

    /// What is only in memory, if it can be stored with one run and nothing before it.
    pub fn loose(&self) -> Option<(u64, &[u8])> {
        let Data::Mapped(map) = &self.data else { return None };
        let (offset, bytes) = map.dirty.only()?;
        let page = offset / Body::PAGE_SPAN;
        let is_in_one = (offset + bytes.len() as u64 - 1) / Body::PAGE_SPAN == page;
        (is_in_one && !map.is_page_full(page)).then_some((offset, bytes))
    }

    /// Takes in that what is [loose](Self::loose) was stored.
    pub fn take_stored(&mut self, extent: Extent) {
        if let Data::Mapped(map) = &mut self.data {
            map.dirty.punch(extent.range());
            map.insert(extent, &mut self.deltas);
        }
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
                    if self.logged_pages.is_empty() {
                        map.changed = map.loaded.pages(0..u64::MAX).map(|(page, _)| page).collect();
                    }
                    for page in std::mem::take(&mut map.changed) {
                        let extents = map.loaded.page(page).cloned().unwrap_or_default();
                        match extents.is_empty() {
                            true => self.logged_pages.remove(&page),
                            false => self.logged_pages.insert(page),
                        };
                        pages.push((page, extents));
                    }
                    Body::Paged { mapped_bytes: map.mapped_bytes }
                }
            },
        };
        if !paged {
            let logged = std::mem::take(&mut self.logged_pages);
            pages = logged.into_iter().map(|page| (page, ExtentMap::new())).collect();
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
        self.is_in_record = matches!(body, Body::Inline { .. });
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
    pub fn into_pages(self) -> Loaded {
        match self.data {
            Data::Mapped(mut map) if !self.logged_pages.is_empty() => {
                map.loaded.logged = self.logged_pages;
                map.loaded
            }
            Data::Mapped(_) | Data::Inline(_) => Loaded::default(),
        }
    }

    /// To where a cut to `size` may go at once if it is to take away no more than so many logged pages of extents.
    pub fn cut_to(&self, size: u64, pages_max: usize) -> u64 {
        let first = size.div_ceil(Body::PAGE_SPAN);
        match self.logged_pages.range(first..).rev().nth(pages_max) {
            Some(page) => page.saturating_add(1).saturating_mul(Body::PAGE_SPAN),
            None => size,
        }
    }

    /// From where to its end a hole may be made at once, likewise.
    pub fn punch_from(&self, hole: &Range<u64>, pages_max: usize) -> u64 {
        let pages = hole.start / Body::PAGE_SPAN..hole.end.div_ceil(Body::PAGE_SPAN);
        match self.logged_pages.range(pages).rev().nth(pages_max) {
            Some(page) => page.saturating_add(1).saturating_mul(Body::PAGE_SPAN),
            None => hole.start,
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
        self.unfold_into(self.unmapped());
    }

    /// The same, with extents that there are: bytes that these do not have stay in memory.
    fn unfold_into(&mut self, mut map: FileMap) {
        let Data::Inline(bytes) = &mut self.data else { return };
        let bytes = std::mem::take(bytes);
        if !bytes.is_empty() {
            map.dirty.write(0, &bytes);
        }
        self.data = Data::Mapped(map);
    }

    /// No extents. What was logged of a file that was cut to nothing is to go, too.
    fn unmapped(&self) -> FileMap {
        FileMap { loaded: Loaded::whole(), changed: self.logged_pages.clone(), ..FileMap::default() }
    }

    /// Back to inline bytes, of which there are none.
    fn fold(&mut self) {
        self.data = Data::Inline(Vec::new());
        self.is_in_record = false;
    }
}

/// Numbers of the pages that describe bytes of `range`.
pub fn pages_of(range: &Range<u64>) -> Range<u64> {
    let start = range.start / Body::PAGE_SPAN;
    start..if range.is_empty() { start } else { range.end.div_ceil(Body::PAGE_SPAN) }
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
mod tests;
