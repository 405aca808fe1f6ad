//! The record that every batch writes beside its own.
//!
//! It tells, inside the engine and atomically with the data, up to which batch the data goes and who wrote it.
//! 32 bytes, little-endian:
//!
//! | offset | len | field |
//! | --- | --- | --- |
//! | 0 | 8 | seq |
//! | 8 | 8 | generation |
//! | 16 | 4 | CRC32C of the batch's other records, see [`Reserved::contents_crc`] |
//! | 20 | 4 | format version, 1 |
//! | 24 | 4 | zero |
//! | 28 | 4 | CRC32C of bytes 0..28 |

use crate::{Generation, Seq};

/// Key of the reserved record: one zero byte. No batch may name it, no read returns it.
pub const RESERVED_KEY: &[u8] = &[0];

/// The reserved record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// The batch's number.
    pub seq: Seq,
    /// The writer's generation.
    pub generation: Generation,
    /// CRC32C of the batch's other records in the order they are written; 0 where there are none.
    pub contents_crc: u32,
}

impl Reserved {
    /// Encoded length.
    pub const LEN: usize = 32;
    const VERSION: u32 = 1;

    /// Encodes the record.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..8].copy_from_slice(&self.seq.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.generation.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.contents_crc.to_le_bytes());
        bytes[20..24].copy_from_slice(&Self::VERSION.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a record; `None` where length, version or checksum are wrong.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let (head, crc) = bytes.split_at(28);
        let version = u32::from_le_bytes(head[20..24].try_into().ok()?);
        if crc != crc32c::crc32c(head).to_le_bytes() || version != Self::VERSION {
            return None;
        }
        Some(Self {
            seq: Seq(u64::from_le_bytes(head[0..8].try_into().ok()?)),
            generation: Generation(u64::from_le_bytes(head[8..16].try_into().ok()?)),
            contents_crc: u32::from_le_bytes(head[16..20].try_into().ok()?),
        })
    }

    /// Goes on with the checksum of a batch by one record; `value` is `None` for a removal.
    ///
    /// Covers the lengths, so that bytes cannot move between key and value.
    pub fn contents_crc(crc: u32, key: &[u8], value: Option<&[u8]>) -> u32 {
        let value_len = value.map_or(u32::MAX, |value| value.len() as u32);
        let mut lens = [0; 8];
        lens[..4].copy_from_slice(&(key.len() as u32).to_le_bytes());
        lens[4..].copy_from_slice(&value_len.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &lens);
        let crc = crc32c::crc32c_append(crc, key);
        crc32c::crc32c_append(crc, value.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_what_it_encoded_and_nothing_else() {
        let record = Reserved { seq: Seq(7), generation: Generation(3), contents_crc: 99 };
        let bytes = record.encode();
        assert_eq!(Reserved::decode(&bytes), Some(record));
        for index in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[index] ^= 1;
            assert_eq!(Reserved::decode(&flipped), None, "byte {index}");
        }
        assert_eq!(Reserved::decode(&bytes[..31]), None);
    }
}
