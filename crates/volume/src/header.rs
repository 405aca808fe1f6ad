//! The header file `holdfast.volume`, 128 bytes, little-endian; documented in `docs/format/volume.md`.
//!
//! What every version keeps, so that an old program can name a new volume: the magic, version and length
//! at their places, and a CRC32C of all before it in the last four bytes of that length.

use std::fmt;

use crate::error::VolumeError;
use std::path::Path;

/// Highest format version that this program reads, and the one it writes. Earlier ones are read too: the metadata of version 1 lack what
/// version 2 counts for quotas, which the first master adds; those of version 2 have no bytes of segments in them; those of version 3 have
/// extents in wider pages, which the first master divides.
pub const FORMAT_VERSION: u32 = 4;

/// Random identity of a volume, shown as a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub [u8; 16]);

/// What is fixed about a volume when it is made.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    /// Identity.
    pub id: VolumeId,
    /// Key of the hash behind directory cookies. Secret: who knows it can make names collide.
    pub cookie_key: [u8; 16],
    /// When it was made, in seconds since 1970.
    pub created_secs: u64,
    /// Size of a segment of file data.
    pub segment_bytes: u64,
    /// Files up to this size are kept in the metadata.
    pub inline_bytes: u32,
    /// Size of the reserve when it is full.
    pub reserve_bytes: u64,
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0u8; HEADER_LEN];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(HEADER_LEN as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id.0);
        bytes[32..48].copy_from_slice(&self.cookie_key);
        bytes[48..56].copy_from_slice(&self.created_secs.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.reserve_bytes.to_le_bytes());
        bytes[72..76].copy_from_slice(&self.inline_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the bytes of a header file; `path` is the volume, for the error.
    ///
    /// # Errors
    ///
    /// [`VolumeError::DamagedHeader`] or [`VolumeError::NewerVersion`].
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Self, VolumeError> {
        let damaged = |reason| VolumeError::DamagedHeader { path: path.to_owned(), reason };
        let magic: [u8; 8] = field(bytes, 0).ok_or_else(|| damaged("too short"))?;
        if &magic != MAGIC {
            return Err(damaged("it does not begin with HOLDFAST"));
        }
        let version = u32::from_le_bytes(field(bytes, 8).ok_or_else(|| damaged("too short"))?);
        let len = u32::from_le_bytes(field(bytes, 12).ok_or_else(|| damaged("too short"))?) as usize;
        if bytes.len() != len || len < 20 {
            return Err(damaged("wrong length"));
        }
        let (body, crc) = bytes.split_at(len - 4);
        if crc != crc32c::crc32c(body).to_le_bytes() {
            return Err(damaged("checksum mismatch"));
        }
        if version > FORMAT_VERSION {
            return Err(VolumeError::NewerVersion {
                path: path.to_owned(),
                found: version,
                known: FORMAT_VERSION,
            });
        }
        if version == 0 {
            return Err(damaged("format version 0"));
        }
        let header = Self::decode_body(body).ok_or_else(|| damaged("wrong length"))?;
        if header.inline_bytes > INLINE_BYTES_MAX {
            return Err(damaged("an inline size over 64 KiB"));
        }
        if !is_segment_len(header.segment_bytes) {
            return Err(damaged("a segment size that is not a multiple of 4 KiB between 1 MiB and 1 GiB"));
        }
        Ok(header)
    }

    fn decode_body(body: &[u8]) -> Option<Self> {
        Some(Self {
            id: VolumeId(field(body, 16)?),
            cookie_key: field(body, 32)?,
            created_secs: u64::from_le_bytes(field(body, 48)?),
            segment_bytes: u64::from_le_bytes(field(body, 56)?),
            reserve_bytes: u64::from_le_bytes(field(body, 64)?),
            inline_bytes: u32::from_le_bytes(field(body, 72)?),
        })
    }
}

/// Leaves the cookie key out.
impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("id", &self.id)
            .field("created_secs", &self.created_secs)
            .field("segment_bytes", &self.segment_bytes)
            .field("inline_bytes", &self.inline_bytes)
            .field("reserve_bytes", &self.reserve_bytes)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Whether a volume may have segments of this size.
pub(crate) fn is_segment_len(bytes: u64) -> bool {
    (1 << 20..=1 << 30).contains(&bytes) && bytes.is_multiple_of(4096)
}

/// The most that a volume may choose to keep of a file in the metadata.
pub(crate) const INLINE_BYTES_MAX: u32 = 64 << 10;
const MAGIC: &[u8; 8] = b"HOLDFAST";
const HEADER_LEN: usize = 128;
const CRC_AT: usize = HEADER_LEN - 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            id: VolumeId(*b"0123456789abcdef"),
            cookie_key: *b"fedcba9876543210",
            created_secs: 1_700_000_000,
            segment_bytes: 64 << 20,
            inline_bytes: 4096,
            reserve_bytes: 4 << 20,
        }
    }

    fn decode(bytes: &[u8]) -> Result<Header, VolumeError> {
        Header::decode(bytes, Path::new("/v"))
    }

    #[test]
    fn a_header_reads_back() {
        assert_eq!(decode(&sample().encode()).expect("valid"), sample());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&bad), Err(VolumeError::DamagedHeader { .. })), "bit {bit}");
        }
    }

    #[test]
    fn every_truncation_is_noticed() {
        let bytes = sample().encode();
        for len in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..len]), Err(VolumeError::DamagedHeader { .. })), "{len} bytes");
        }
    }

    #[test]
    fn an_inline_size_that_no_format_writes_is_damage() {
        for (inline_bytes, is_good) in [(0, true), (INLINE_BYTES_MAX, true), (INLINE_BYTES_MAX + 1, false)] {
            let header = Header { inline_bytes, ..sample() };
            assert_eq!(decode(&header.encode()).is_ok(), is_good, "{inline_bytes}");
        }
    }

    #[test]
    fn a_segment_size_that_no_format_writes_is_damage() {
        for (segment_bytes, is_good) in
            [(1 << 20, true), (1 << 30, true), (0, false), ((1 << 20) + 1, false), (u64::MAX, false)]
        {
            let header = Header { segment_bytes, ..sample() };
            assert_eq!(decode(&header.encode()).is_ok(), is_good, "{segment_bytes}");
        }
    }

    #[test]
    fn a_longer_header_of_a_later_version_is_newer_not_damaged() {
        let mut bytes = sample().encode().to_vec();
        bytes.resize(200, 7);
        bytes[8..12].copy_from_slice(&9u32.to_le_bytes());
        bytes[12..16].copy_from_slice(&200u32.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..196]);
        bytes[196..].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(
            decode(&bytes),
            Err(VolumeError::NewerVersion { found: 9, known: FORMAT_VERSION, .. })
        ));
    }

    #[test]
    fn a_header_of_an_earlier_version_reads_as_it_did() {
        for version in 1..FORMAT_VERSION {
            let mut bytes = sample().encode();
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[..CRC_AT]);
            bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(decode(&bytes).expect("valid"), sample());
        }
    }

    #[test]
    fn ids_are_shown_as_uuids_and_the_key_never() {
        assert_eq!(sample().id.to_string(), "30313233-3435-3637-3839-616263646566");
        assert!(!format!("{:?}", sample()).contains("cookie"));
    }
}
