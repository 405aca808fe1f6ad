//! One stretch of a file and where its bytes are stored.
//!
//! Invariants, checked when a value is made and when it is decoded:
//!
//! 1. A run has 1 to [`RUN_LEN_MAX`] bytes and one checksum for each [`CHECKSUM_BLOCK`] of them, counted
//!    from its start; the last block may be short.
//! 2. An extent lies inside its run: `skip + len <= run.len`.
//! 3. An extent touches the first and the last block of its run: a run is trimmed, by whole blocks, when
//!    its extent shrinks. So whole blocks can always be read again and checked, and no checksum is kept in vain.
//! 4. No extent ends beyond [`FILE_SIZE_MAX`], no run beyond that offset of its segment.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use thiserror::Error;
use types::{CodecError, Decode, Decoder, Encode, Encoder, SegmentId};

/// A contiguous stretch of bytes as stored in a segment, with its checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    segment: SegmentId,
    offset: u64,
    len: u32,
    crcs: Sums,
}

/// Checksums of a run. The one of a short run takes no memory of its own: a file that is written in small pieces has
/// thousands of them.
#[derive(Clone)]
enum Sums {
    One(u32),
    Many(Arc<[u32]>),
}

/// A range of a file mapped to a part of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    file_offset: u64,
    len: u32,
    skip: u32,
    run: Run,
}

impl Run {
    /// Describes `len` bytes at `offset` of `segment` whose block checksums are `crcs`.
    pub fn new(segment: SegmentId, offset: u64, len: u32, crcs: &[u32]) -> Result<Self, ExtentError> {
        if len == 0 || len > RUN_LEN_MAX {
            return Err(ExtentError::RunLen { len });
        }
        if crcs.len() != block_count(len) {
            return Err(ExtentError::ChecksumCount { len, count: crcs.len() });
        }
        if !ends_within(offset, len) {
            return Err(ExtentError::SegmentOffset { offset, len });
        }
        Ok(Self { segment, offset, len, crcs: crcs.into() })
    }

    /// Describes the bytes of `data`, one after the other, as stored at `offset` of `segment`.
    pub fn of_data(segment: SegmentId, offset: u64, data: &[&[u8]]) -> Result<Self, ExtentError> {
        let len: usize = data.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).map_err(|_| ExtentError::RunLen { len: u32::MAX })?;
        if len > RUN_LEN_MAX {
            return Err(ExtentError::RunLen { len });
        }
        Self::new(segment, offset, len, &block_checksums(data))
    }

    /// The segment that holds the bytes.
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Bytes from the start of the segment to the first byte of the run.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes; 1 to [`RUN_LEN_MAX`].
    #[expect(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// CRC32C of each block.
    pub fn crcs(&self) -> &[u32] {
        &self.crcs
    }

    /// The blocks that hold the run's bytes `range`, as a run; and the bytes cut off its front.
    fn trimmed(&self, range: Range<u32>) -> (Self, u32) {
        let first = range.start / CHECKSUM_BLOCK;
        let last = (range.end - 1) / CHECKSUM_BLOCK;
        let start = first * CHECKSUM_BLOCK;
        let end = ((last + 1) * CHECKSUM_BLOCK).min(self.len);
        if start == 0 && end == self.len {
            return (self.clone(), 0);
        }
        let run = Self {
            segment: self.segment,
            offset: self.offset + u64::from(start),
            len: end - start,
            crcs: self.crcs[first as usize..=last as usize].into(),
        };
        (run, start)
    }
}

impl Sums {
    /// As many as there are times four bytes.
    fn from_le_bytes(bytes: &[u8]) -> Self {
        let (sums, _) = bytes.as_chunks();
        match sums {
            [one] => Self::One(u32::from_le_bytes(*one)),
            _ => Self::Many(sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect()),
        }
    }
}

impl From<&[u32]> for Sums {
    fn from(sums: &[u32]) -> Self {
        match sums {
            [one] => Self::One(*one),
            _ => Self::Many(sums.into()),
        }
    }
}

impl Deref for Sums {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl PartialEq for Sums {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Sums {}

impl fmt::Debug for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Extent {
    /// Maps the whole of `run` to the file from `file_offset` on.
    pub fn new(file_offset: u64, run: Run) -> Result<Self, ExtentError> {
        if !ends_within(file_offset, run.len) {
            return Err(ExtentError::FileOffset { file_offset, len: run.len });
        }
        Ok(Self { file_offset, len: run.len, skip: 0, run })
    }

    /// First byte of the file that the extent maps.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    /// How many bytes of the file it maps: what it adds to the live bytes of its segment. Never 0.
    #[expect(clippy::len_without_is_empty, reason = "an extent is never empty")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// First byte of the file behind the extent.
    pub fn end(&self) -> u64 {
        self.file_offset + u64::from(self.len)
    }

    /// The mapped range of the file.
    pub fn range(&self) -> Range<u64> {
        self.file_offset..self.end()
    }

    /// The stored blocks that hold the extent's bytes.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Bytes of the run in front of the extent's first; less than [`CHECKSUM_BLOCK`].
    pub fn skip(&self) -> u32 {
        self.skip
    }

    /// The segment that holds the bytes.
    pub fn segment(&self) -> SegmentId {
        self.run.segment
    }

    /// Offset in the segment of the extent's first byte.
    pub fn segment_offset(&self) -> u64 {
        self.run.offset + u64::from(self.skip)
    }

    /// The part inside the file range `range`; `None` if they do not meet.
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        let start = range.start.max(self.file_offset);
        let end = range.end.min(self.end());
        if start >= end {
            return None;
        }
        let within = self.run_range(start..end);
        let (run, cut) = self.run.trimmed(within.clone());
        Some(Self { file_offset: start, len: within.end - within.start, skip: within.start - cut, run })
    }

    /// The same stored bytes, mapped from `file_offset` on, of this file or another.
    ///
    /// # Errors
    ///
    /// [`ExtentError::FileOffset`] if they would end beyond the largest file.
    pub fn moved_to(&self, file_offset: u64) -> Result<Self, ExtentError> {
        if !ends_within(file_offset, self.len) {
            return Err(ExtentError::FileOffset { file_offset, len: self.len });
        }
        Ok(Self { file_offset, ..self.clone() })
    }

    /// Where in the run the file range `range` lies, which must be inside the extent.
    pub(crate) fn run_range(&self, range: Range<u64>) -> Range<u32> {
        assert!(self.file_offset <= range.start && range.start <= range.end && range.end <= self.end());
        let start = (range.start - self.file_offset) as u32 + self.skip;
        start..start + (range.end - range.start) as u32
    }

    /// Appends the byte form, the file offset as distance from `base`.
    pub(crate) fn encode_after(&self, base: u64, out: &mut Encoder) {
        out.varint(self.file_offset - base);
        out.varint(u64::from(self.len));
        out.varint(u64::from(self.skip));
        out.varint(u64::from(self.run.len - self.skip - self.len));
        self.run.segment.encode(out);
        out.varint(self.run.offset);
        for crc in &*self.run.crcs {
            out.u32_le(*crc);
        }
    }

    /// Reads what [`encode_after`](Self::encode_after) wrote.
    pub(crate) fn decode_after(base: u64, input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        const INVALID: CodecError = CodecError::Invalid { what: "extent" };
        let file_offset = base.checked_add(input.varint()?).ok_or(INVALID)?;
        let len = input.varint_u32("extent length")?;
        let skip = input.varint_u32("extent skip")?;
        let tail = input.varint_u32("extent tail")?;
        let segment = SegmentId::decode(input)?;
        let offset = input.varint()?;
        if len == 0 || skip >= CHECKSUM_BLOCK || tail >= CHECKSUM_BLOCK {
            return Err(INVALID);
        }
        let end = skip.checked_add(len).ok_or(INVALID)?;
        let run_len = end.checked_add(tail).ok_or(INVALID)?;
        let is_trimmed =
            run_len <= RUN_LEN_MAX && (end - 1) / CHECKSUM_BLOCK == (run_len - 1) / CHECKSUM_BLOCK;
        if !is_trimmed || !ends_within(file_offset, len) || !ends_within(offset, run_len) {
            return Err(INVALID);
        }
        let bytes = input.raw(block_count(run_len) * 4)?;
        let run = Run { segment, offset, len: run_len, crcs: Sums::from_le_bytes(bytes) };
        Ok(Self { file_offset, len, skip, run })
    }
}

/// Varints: file offset, length, skip, bytes of the run behind the extent, segment, offset in it; then
/// one `u32` for each block of the run.
impl Encode for Extent {
    fn encode(&self, out: &mut Encoder) {
        self.encode_after(0, out);
    }
}

impl Decode for Extent {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        Self::decode_after(0, input)
    }
}

/// CRC32C of each block of the bytes of `data` taken one after the other.
pub(crate) fn block_checksums(data: &[&[u8]]) -> Vec<u32> {
    let mut crcs = Vec::new();
    let (mut crc, mut filled) = (0, 0);
    for mut part in data.iter().copied() {
        while !part.is_empty() {
            let (head, tail) = part.split_at(part.len().min(CHECKSUM_BLOCK as usize - filled));
            crc = crc32c::crc32c_append(crc, head);
            filled += head.len();
            part = tail;
            if filled == CHECKSUM_BLOCK as usize {
                crcs.push(crc);
                (crc, filled) = (0, 0);
            }
        }
    }
    if filled > 0 {
        crcs.push(crc);
    }
    crcs
}

/// How many checksums a run of `len` bytes has.
pub(crate) const fn block_count(len: u32) -> usize {
    len.div_ceil(CHECKSUM_BLOCK) as usize
}

/// Whether `len` bytes from `offset` on end at most at [`FILE_SIZE_MAX`].
fn ends_within(offset: u64, len: u32) -> bool {
    offset.checked_add(u64::from(len)).is_some_and(|end| end <= FILE_SIZE_MAX)
}

/// Why a run or an extent cannot be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ExtentError {
    /// A run is empty or too long.
    #[error("run of {len} bytes is not within 1 and {RUN_LEN_MAX}")]
    RunLen {
        /// Bytes asked for.
        len: u32,
    },
    /// The number of checksums does not fit the length.
    #[error("run of {len} bytes with {count} checksums")]
    ChecksumCount {
        /// Bytes of the run.
        len: u32,
        /// Checksums given.
        count: usize,
    },
    /// A run ends beyond any segment.
    #[error("run of {len} bytes at segment offset {offset} ends beyond the limit")]
    SegmentOffset {
        /// Where the run begins.
        offset: u64,
        /// Bytes of the run.
        len: u32,
    },
    /// An extent ends beyond the largest file.
    #[error("extent of {len} bytes at file offset {file_offset} ends beyond the largest file")]
    FileOffset {
        /// Where the extent begins.
        file_offset: u64,
        /// Bytes of the extent.
        len: u32,
    },
}

/// Bytes under one checksum.
pub const CHECKSUM_BLOCK: u32 = 16 * 1024;

/// Longest run, in bytes. A reader checks whole blocks, so this does not bound what a small read costs.
pub const RUN_LEN_MAX: u32 = 1024 * 1024;

/// Largest file in bytes, and largest offset in a segment: what `off_t` can say.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;
