//! The extents of one file.
//!
//! Invariant: extents do not overlap, so that each byte of a file has one place or none. The map does not
//! know the file's size: what lies behind the last extent is a hole.

use std::ops::Range;
use std::sync::Arc;

use types::{CodecError, Decode, Decoder, Encode, Encoder};

use crate::{Extent, FILE_SIZE_MAX, Freed};

/// Which bytes of a file are stored where. Every change tells which live bytes it freed.
///
/// A list, because it is read from the disk, copied and written far more often than it is changed in the middle; a large file
/// has one for each stretch of it. Copies share it until one of them changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentMap {
    /// In the order of the file.
    extents: Arc<Vec<Extent>>,
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
        self.replace(extent.range(), Some(extent))
    }

    /// Makes `range` a hole.
    pub fn punch(&mut self, range: Range<u64>) -> Freed {
        match range.is_empty() {
            true => Freed::default(),
            false => self.replace(range, None),
        }
    }

    /// Has `new` in place of everything in `range`, which is not empty.
    fn replace(&mut self, range: Range<u64>, new: Option<Extent>) -> Freed {
        let mut freed = Freed::default();
        let touched = self.indexes_in(&range);
        let old = &self.extents[touched.clone()];
        if old.is_empty() && new.is_none() {
            return freed;
        }
        for extent in old {
            let cut = extent.end().min(range.end) - extent.file_offset().max(range.start);
            freed.add(extent.segment(), cut);
        }
        let before = old.first().and_then(|first| first.slice(0..range.start));
        let behind = old.last().and_then(|last| last.slice(range.end..u64::MAX));
        self.mapped_bytes += new.as_ref().map_or(0, |extent| u64::from(extent.len()));
        self.mapped_bytes -= freed.bytes();
        let extents = Arc::make_mut(&mut self.extents);
        extents.splice(touched, [before, new, behind].into_iter().flatten());
        freed
    }

    /// Forgets everything at and behind `size`.
    pub fn truncate(&mut self, size: u64) -> Freed {
        self.punch(size..u64::MAX)
    }

    /// Splits the extent that `offset` is inside of, so that none crosses it. Frees nothing.
    pub fn split_at(&mut self, offset: u64) {
        let Some(index) = self.extents.partition_point(|extent| extent.file_offset() < offset).checked_sub(1)
        else {
            return;
        };
        let extent = &self.extents[index];
        if let (Some(left), Some(right)) = (extent.slice(0..offset), extent.slice(offset..u64::MAX)) {
            Arc::make_mut(&mut self.extents).splice(index..=index, [left, right]);
        }
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
        self.extents[self.indexes_in(&range)].iter()
    }

    /// The extent that holds the byte at `offset`.
    pub fn extent_at(&self, offset: u64) -> Option<&Extent> {
        let index = self.extents.partition_point(|extent| extent.end() <= offset);
        self.extents.get(index).filter(|extent| extent.file_offset() <= offset)
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
        self.extents.last().map_or(0, Extent::end)
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
        self.extents.iter()
    }

    /// Where the extents with bytes in `range` are.
    fn indexes_in(&self, range: &Range<u64>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let start = self.extents.partition_point(|extent| extent.end() <= range.start);
        let rest = &self.extents[start..];
        // Mostly one or none.
        let count = match rest.iter().take(FEW).position(|extent| extent.file_offset() >= range.end) {
            Some(count) => count,
            None => rest.partition_point(|extent| extent.file_offset() < range.end),
        };
        start..start + count
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
        let count = input.count()?;
        let mut extents = Vec::with_capacity(count.min(ALLOCATED_MAX));
        let (mut base, mut mapped_bytes) = (0, 0);
        for _ in 0..count {
            let extent = Extent::decode_after(base, input)?;
            base = extent.end();
            mapped_bytes += u64::from(extent.len());
            extents.push(extent);
        }
        debug_assert!(base <= FILE_SIZE_MAX);
        Ok(Self { extents: Arc::new(extents), mapped_bytes })
    }
}

/// A look at as many comes before a search.
const FEW: usize = 4;
/// However many extents a count promises, memory for more is taken only once they have come.
const ALLOCATED_MAX: usize = 8192;

#[cfg(test)]
mod tests;
