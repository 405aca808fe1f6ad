//! The extents of one file.
//!
//! Invariant: extents do not overlap, so that each byte of a file has one place or none. The map does not
//! know the file's size: what lies behind the last extent is a hole.

use std::collections::BTreeMap;
use std::ops::Range;

use types::{CodecError, Decode, Decoder, Encode, Encoder};

use crate::{Extent, FILE_SIZE_MAX, Freed};

/// Which bytes of a file are stored where. Every change tells which live bytes it freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentMap {
    /// By file offset.
    extents: BTreeMap<u64, Extent>,
    mapped_bytes: u64,
}

/// A part of a file range: all of it stored in one extent, or a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes of `extent`, to be read with [`read_extent`](crate::read_extent).
    Data {
        /// The part of the file, inside the extent's range.
        range: Range<u64>,
        /// What holds it.
        extent: &'a Extent,
    },
    /// Bytes that read as zeros.
    Hole {
        /// The part of the file.
        range: Range<u64>,
    },
}

impl ExtentMap {
    /// A file that is one hole.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps the range of `extent` to it, in place of what was mapped there.
    ///
    /// Adds `extent.len()` live bytes to its segment, see [`LiveDeltas::on_added`](crate::LiveDeltas::on_added);
    /// the answer holds only what became hidden.
    pub fn insert(&mut self, extent: Extent) -> Freed {
        let freed = self.punch(extent.range());
        self.put(extent);
        freed
    }

    /// Makes `range` a hole.
    pub fn punch(&mut self, range: Range<u64>) -> Freed {
        let mut freed = Freed::default();
        if range.is_empty() {
            return freed;
        }
        while let Some(start) = self.first_in(&range) {
            let Some(old) = self.extents.remove(&start) else { break };
            self.mapped_bytes -= u64::from(old.len());
            let cut = old.end().min(range.end) - old.file_offset().max(range.start);
            freed.add(old.segment(), cut);
            for kept in [old.slice(0..range.start), old.slice(range.end..u64::MAX)].into_iter().flatten() {
                self.put(kept);
            }
        }
        freed
    }

    /// Forgets everything at and behind `size`.
    pub fn truncate(&mut self, size: u64) -> Freed {
        self.punch(size..u64::MAX)
    }

    /// Splits the extent that `offset` is inside of, so that none crosses it. Frees nothing.
    pub fn split_at(&mut self, offset: u64) {
        let Some(extent) = self.extents.range(..offset).next_back().map(|entry| entry.1) else { return };
        let (Some(left), Some(right)) = (extent.slice(0..offset), extent.slice(offset..u64::MAX)) else {
            return;
        };
        self.extents.insert(left.file_offset(), left);
        self.extents.insert(right.file_offset(), right);
    }

    /// Cuts `range` into stored parts and holes, in order, without gap or overlap.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece<'_>> {
        let mut at = range.start;
        let mut extents = self.extents_in(range.clone()).peekable();
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let start = at;
            match extents.next_if(|extent| extent.file_offset() <= start) {
                Some(extent) => {
                    at = extent.end().min(range.end);
                    Some(Piece::Data { range: start..at, extent })
                }
                None => {
                    at = extents.peek().map_or(range.end, |extent| extent.file_offset());
                    Some(Piece::Hole { range: start..at })
                }
            }
        })
    }

    /// The extents that have bytes in `range`, whole, in order; cut them with [`Extent::slice`].
    pub fn extents_in(&self, range: Range<u64>) -> impl Iterator<Item = &Extent> {
        let start = self.first_in(&range).unwrap_or(range.start);
        self.extents.range(start..range.end.max(start)).map(|entry| entry.1)
    }

    /// The extent that holds the byte at `offset`.
    pub fn extent_at(&self, offset: u64) -> Option<&Extent> {
        let extent = self.extents.range(..=offset).next_back()?.1;
        (extent.end() > offset).then_some(extent)
    }

    /// First stored byte at or behind `offset`, as `SEEK_DATA` wants it.
    pub fn seek_data(&self, offset: u64) -> Option<u64> {
        self.extents_in(offset..u64::MAX).next().map(|extent| extent.file_offset().max(offset))
    }

    /// First byte at or behind `offset` in a hole of a file of `size` bytes, as `SEEK_HOLE` wants it: the
    /// end of the file counts as one. `None` if `offset` is not inside the file.
    pub fn seek_hole(&self, offset: u64, size: u64) -> Option<u64> {
        if offset >= size {
            return None;
        }
        let hole = self.pieces(offset..size).find_map(|piece| match piece {
            Piece::Data { .. } => None,
            Piece::Hole { range } => Some(range.start),
        });
        Some(hole.unwrap_or(size))
    }

    /// Bytes of the file that are stored.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes
    }

    /// First byte behind the last extent; 0 without extents.
    pub fn end(&self) -> u64 {
        self.extents.last_key_value().map_or(0, |entry| entry.1.end())
    }

    /// How many extents.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Whether the file is one hole.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// All extents in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Extent> {
        self.extents.values()
    }

    /// Key of the first extent with bytes in `range`.
    fn first_in(&self, range: &Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let before = self.extents.range(..=range.start).next_back();
        if let Some((start, extent)) = before
            && extent.end() > range.start
        {
            return Some(*start);
        }
        self.extents.range(range.clone()).next().map(|entry| *entry.0)
    }

    fn put(&mut self, extent: Extent) {
        self.mapped_bytes += u64::from(extent.len());
        let hidden = self.extents.insert(extent.file_offset(), extent);
        assert!(hidden.is_none(), "two extents at one offset");
    }
}

impl Piece<'_> {
    /// The part of the file.
    pub fn range(&self) -> Range<u64> {
        match self {
            Self::Data { range, .. } | Self::Hole { range } => range.clone(),
        }
    }
}

/// A count, then each extent with its file offset as distance from the end of the one before.
impl Encode for ExtentMap {
    fn encode(&self, out: &mut Encoder) {
        out.varint(self.extents.len() as u64);
        let mut base = 0;
        for extent in self.iter() {
            extent.encode_after(base, out);
            base = extent.end();
        }
    }
}

impl Decode for ExtentMap {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let mut map = Self::default();
        let mut base = 0;
        for _ in 0..input.count()? {
            let extent = Extent::decode_after(base, input)?;
            base = extent.end();
            map.put(extent);
        }
        debug_assert!(base <= FILE_SIZE_MAX);
        Ok(map)
    }
}

#[cfg(test)]
mod tests;
