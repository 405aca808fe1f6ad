//! Bytes of a segment; the same text for people is in `docs/format/segments.md`.
//!
//! Integers are little endian. A segment is a header, then runs, each behind its own header:
//!
//! | Bytes of the segment header | Content |
//! |---|---|
//! | 0..8   | magic `HFSEGMNT` |
//! | 8..12  | format version, 1 |
//! | 12..16 | node that writes the segment |
//! | 16..32 | UUID of the volume |
//! | 32..40 | segment number |
//! | 40..60 | zeros |
//! | 60..64 | CRC32C of bytes 0..60 |
//!
//! | Bytes of a run header | Content |
//! |---|---|
//! | 0..4   | magic `HFRN` |
//! | 4..8   | CRC32C, see below |
//! | 8..16  | inode number |
//! | 16..24 | file offset of the run's first byte |
//! | 24..28 | bytes of the run, 1 to 1 MiB |
//! | 28..32 | CRC32C of the run's block checksums, each a `u32`, in order |
//! | 32..40 | sequence: place among the writes of this node, ascending in a segment |
//! | 40..48 | zeros |
//!
//! The CRC of a run header goes over the volume's UUID, the segment number, the header's own offset in the
//! segment (both `u64`) and the header's bytes 8..48. So a header counts at its own place only: a segment
//! stored as a file inside the volume does not look like runs to a scan, nor does a reused disk block.
//!
//! The run's bytes follow its header at once. Zeros fill up to the next multiple of 8, where the next run
//! header is; the last run need not be filled up. The checksums of a run are in its extents; what the run
//! header has is enough to check the run as a whole.

use types::{Ino, NodeId, SegmentId};

use crate::{Damage, FILE_SIZE_MAX, RUN_LEN_MAX};

/// UUID of a volume, as its bytes.
pub type VolumeUuid = [u8; 16];

/// First bytes of a segment: whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The volume it belongs to.
    pub volume: VolumeUuid,
    /// Its number.
    pub segment: SegmentId,
    /// The node that writes it.
    pub writer: NodeId,
}

/// What stands before each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHeader {
    /// The file the run was written for.
    pub ino: Ino,
    /// Where in the file it was written.
    pub file_offset: u64,
    /// Bytes of the run.
    pub len: u32,
    /// CRC32C of the run's block checksums.
    pub crcs_crc: u32,
    /// Place among the writes of the node.
    pub sequence: u64,
}

impl SegmentHeader {
    /// The byte form.
    pub fn to_bytes(&self) -> [u8; SEGMENT_HEADER_LEN] {
        let mut bytes = [0; SEGMENT_HEADER_LEN];
        bytes[0..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.writer.0.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.volume);
        bytes[32..40].copy_from_slice(&self.segment.0.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[0..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the byte form of the header of `segment`.
    pub fn from_bytes(bytes: &[u8; SEGMENT_HEADER_LEN], segment: SegmentId) -> Result<Self, Damage> {
        if &bytes[0..8] != SEGMENT_MAGIC {
            return Err(Damage::SegmentHeader);
        }
        // A later version may have its checksum elsewhere, so the version is asked first.
        let version = u32_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(Damage::Version { version });
        }
        if u32_at(bytes, 60) != crc32c::crc32c(&bytes[0..60]) {
            return Err(Damage::Checksum);
        }
        let mut volume = [0; 16];
        volume.copy_from_slice(&bytes[16..32]);
        let header =
            Self { volume, segment: SegmentId(u64_at(bytes, 32)), writer: NodeId(u32_at(bytes, 12)) };
        if header.segment != segment { Err(Damage::SegmentHeader) } else { Ok(header) }
    }
}

impl RunHeader {
    /// The byte form at `offset` of a segment.
    pub fn to_bytes(&self, volume: &VolumeUuid, segment: SegmentId, offset: u64) -> [u8; RUN_HEADER_LEN] {
        let mut bytes = [0; RUN_HEADER_LEN];
        bytes[0..4].copy_from_slice(RUN_MAGIC);
        bytes[8..16].copy_from_slice(&self.ino.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.file_offset.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.crcs_crc.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        let crc = run_header_crc(&bytes, volume, segment, offset);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the byte form at `offset` of a segment; `None` if there is no run header there.
    pub fn from_bytes(
        bytes: &[u8; RUN_HEADER_LEN],
        volume: &VolumeUuid,
        segment: SegmentId,
        offset: u64,
    ) -> Option<Self> {
        let is_header =
            &bytes[0..4] == RUN_MAGIC && u32_at(bytes, 4) == run_header_crc(bytes, volume, segment, offset);
        if !is_header {
            return None;
        }
        let header = Self {
            ino: Ino(u64_at(bytes, 8)),
            file_offset: u64_at(bytes, 16),
            len: u32_at(bytes, 24),
            crcs_crc: u32_at(bytes, 28),
            sequence: u64_at(bytes, 32),
        };
        let ends_within =
            header.file_offset.checked_add(u64::from(header.len)).is_some_and(|end| end <= FILE_SIZE_MAX);
        ((1..=RUN_LEN_MAX).contains(&header.len) && ends_within).then_some(header)
    }
}

/// CRC32C of block checksums, as a run header has it.
pub(crate) fn crc_of_crcs(crcs: &[u32]) -> u32 {
    crcs.iter().fold(0, |crc, block| crc32c::crc32c_append(crc, &block.to_le_bytes()))
}

/// Offset of the run header behind a run whose bytes end at `end`.
pub(crate) const fn next_run(end: u64) -> u64 {
    end.next_multiple_of(RUN_ALIGN)
}

fn run_header_crc(bytes: &[u8; RUN_HEADER_LEN], volume: &VolumeUuid, segment: SegmentId, offset: u64) -> u32 {
    let crc = crc32c::crc32c(volume);
    let crc = crc32c::crc32c_append(crc, &segment.0.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &offset.to_le_bytes());
    crc32c::crc32c_append(crc, &bytes[8..])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

/// Bytes of a segment header.
pub const SEGMENT_HEADER_LEN: usize = 64;
/// Bytes of a run header.
pub const RUN_HEADER_LEN: usize = 48;
/// Run headers begin at multiples of this.
pub const RUN_ALIGN: u64 = 8;
/// Bytes of a full segment, unless the writer is told otherwise.
pub const SEGMENT_LEN: u64 = 64 * 1024 * 1024;

pub(crate) const RUN_MAGIC: &[u8; 4] = b"HFRN";
const SEGMENT_MAGIC: &[u8; 8] = b"HFSEGMNT";
const FORMAT_VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunHeader =
        RunHeader { ino: Ino(42), file_offset: 1 << 40, len: 77, crcs_crc: 0x0102_0304, sequence: 9 };

    #[test]
    fn the_byte_form_does_not_change() {
        let header = SegmentHeader { volume: [7; 16], segment: SegmentId(0x1122), writer: NodeId(5) };
        let bytes = header.to_bytes();
        assert_eq!(&bytes[..16], b"HFSEGMNT\x01\0\0\0\x05\0\0\0");
        assert_eq!(&bytes[16..42], &[&[7; 16][..], &[0x22, 0x11, 0, 0, 0, 0, 0, 0, 0, 0]].concat()[..]);
        assert_eq!(SegmentHeader::from_bytes(&bytes, SegmentId(0x1122)), Ok(header));
        let run = RUN.to_bytes(&[7; 16], SegmentId(3), 64);
        let tail = b"\x2a\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\x4d\0\0\0\x04\x03\x02\x01\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!((&run[..4], &run[8..]), (&b"HFRN"[..], &tail[..]));
    }

    #[test]
    fn a_run_header_counts_only_where_it_was_written() {
        let bytes = RUN.to_bytes(&[7; 16], SegmentId(3), 64);
        assert_eq!(RunHeader::from_bytes(&bytes, &[7; 16], SegmentId(3), 64), Some(RUN));
        assert_eq!(RunHeader::from_bytes(&bytes, &[8; 16], SegmentId(3), 64), None);
        assert_eq!(RunHeader::from_bytes(&bytes, &[7; 16], SegmentId(4), 64), None);
        assert_eq!(RunHeader::from_bytes(&bytes, &[7; 16], SegmentId(3), 72), None);
    }

    #[test]
    fn any_bytes_decode_without_panic_and_any_flip_is_noticed() {
        let segment = SegmentHeader { volume: [1; 16], segment: SegmentId(3), writer: NodeId(5) }.to_bytes();
        let run = RUN.to_bytes(&[1; 16], SegmentId(3), 64);
        for bit in 0..SEGMENT_HEADER_LEN * 8 {
            let mut bad = segment;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::from_bytes(&bad, SegmentId(3)).is_err(), "bit {bit}");
        }
        for bit in 0..RUN_HEADER_LEN * 8 {
            let mut bad = run;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RunHeader::from_bytes(&bad, &[1; 16], SegmentId(3), 64), None, "bit {bit}");
        }
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let _ = SegmentHeader::from_bytes(&std::array::from_fn(|_| rng.u8(..)), SegmentId(3));
            // Valid by checksum, any content.
            let wild = RunHeader {
                ino: Ino(rng.u64(..)),
                file_offset: rng.u64(..),
                len: rng.u32(..),
                crcs_crc: rng.u32(..),
                sequence: rng.u64(..),
            };
            let bytes = wild.to_bytes(&[1; 16], SegmentId(3), 8);
            if let Some(read) = RunHeader::from_bytes(&bytes, &[1; 16], SegmentId(3), 8) {
                assert!(read == wild && read.len <= RUN_LEN_MAX);
            }
        }
    }
}
