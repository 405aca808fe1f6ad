//! The store beneath: what is needed of it, and how a value lies in it.
//!
//! A value is one byte of version, the record, and a CRC32C (4 bytes, little endian) over key, version and
//! record. The key is in the sum so that a value under the wrong key is found out too.

use std::error::Error;

use thiserror::Error;
use types::{CodecError, Decode, Encode, Encoder};

use crate::keys::Key;

/// A stored key and its value.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// Reads of an ordered store. One value of this type shows one state: reads never straddle a commit.
pub trait StoreRead {
    /// The value under `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Keys from `start` up to and without `end` with their values, in order, at most `limit`.
    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<KeyValue>, StoreError>;
}

/// A failure of the store itself.
#[derive(Debug, Error)]
#[error("metadata store failed")]
pub struct StoreError {
    #[source]
    cause: Box<dyn Error + Send + Sync>,
    is_damage: bool,
}

impl StoreError {
    /// Wraps the store's own error.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: cause.into(), is_damage: false }
    }

    /// As [`new`](Self::new), where what was asked for is damaged: to ask again is of no use, and the rest of the store can be read.
    pub fn damaged(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: cause.into(), is_damage: true }
    }

    /// The store's own error, as text.
    pub(crate) fn cause(&self) -> String {
        self.cause.to_string()
    }

    /// Whether a part of the store is damaged.
    pub fn is_damage(&self) -> bool {
        self.is_damage
    }
}

/// A record that is not what was written, or that contradicts another one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// The value cannot be read.
    #[error("record {key} is damaged: {cause}")]
    Value {
        /// Where.
        key: KeyText,
        /// What is wrong.
        cause: CodecError,
    },
    /// The store cannot read the part of it where the record is, or others from there on are.
    #[error("record {key} cannot be read: {cause}")]
    Unreadable {
        /// Where.
        key: KeyText,
        /// What the store says.
        cause: String,
    },
    /// A record that another one names is not there.
    #[error("record {key} is missing")]
    Missing {
        /// Where it should be.
        key: KeyText,
    },
    /// Two records say different things.
    #[error("record {key} contradicts the one that names it")]
    Contradiction {
        /// Where the named one is.
        key: KeyText,
    },
    /// A sum would have fallen below zero; it stays at zero, or counts as unknown where it is a segment's.
    #[error("sum {key} fell below zero")]
    Underflow {
        /// Where.
        key: KeyText,
    },
}

/// A stored key for messages: its typed form, or its bytes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyText(pub Vec<u8>);

impl std::fmt::Display for KeyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Key::from_slice(&self.0) {
            Some(key) => write!(f, "{key:?}"),
            None => self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl From<Key> for KeyText {
    fn from(key: Key) -> Self {
        Self(key.to_vec())
    }
}

/// Why a record could not be had.
#[derive(Debug, Error)]
pub enum ReadFailure {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The record is damaged.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// First byte of every value of this version.
pub const VALUE_VERSION: u8 = 1;

/// The stored form of `record` under `key`.
pub fn value_encode(key: &[u8], record: &impl Encode) -> Vec<u8> {
    let mut out = Encoder::new();
    out.u8(VALUE_VERSION);
    record.encode(&mut out);
    let mut bytes = out.into_vec();
    let sum = checksum(key, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The stored form under `key` of a record that is in its byte form already.
pub fn value_encode_raw(key: &[u8], record: &[u8]) -> Vec<u8> {
    let mut bytes = [&[VALUE_VERSION], record].concat();
    let sum = checksum(key, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads what [`value_encode`] made.
pub fn value_decode<T: Decode>(key: &[u8], value: &[u8]) -> Result<T, Damage> {
    let record = value_decode_raw(key, value)?;
    T::from_bytes(record).map_err(|cause| Damage::Value { key: KeyText(key.to_vec()), cause })
}

/// The byte form of the record in a value, its sum and version checked.
pub fn value_decode_raw<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], Damage> {
    let damaged = |cause| Damage::Value { key: KeyText(key.to_vec()), cause };
    let (body, sum) = value.split_last_chunk::<4>().ok_or_else(|| damaged(CodecError::Truncated))?;
    let (version, record) = body.split_first().ok_or_else(|| damaged(CodecError::Truncated))?;
    if checksum(key, body) != u32::from_le_bytes(*sum) {
        return Err(damaged(CodecError::Invalid { what: "checksum" }));
    }
    if *version != VALUE_VERSION {
        return Err(damaged(CodecError::UnknownTag { what: "record version", tag: *version }));
    }
    Ok(record)
}

/// Reads the record under `key`.
pub(crate) fn read<T: Decode>(store: &impl StoreRead, key: Key) -> Result<Option<T>, ReadFailure> {
    let key = key.to_vec();
    match store.get(&key)? {
        Some(value) => Ok(Some(value_decode(&key, &value)?)),
        None => Ok(None),
    }
}

/// Reads a record that another one names.
pub(crate) fn read_named<T: Decode>(store: &impl StoreRead, key: Key) -> Result<T, ReadFailure> {
    read(store, key)?.ok_or_else(|| Damage::Missing { key: key.into() }.into())
}

fn checksum(key: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_bound_to_its_key_and_version() {
        let value = value_encode(b"t", &7u64);
        assert_eq!(value_decode::<u64>(b"t", &value), Ok(7));
        assert!(value_decode::<u64>(b"v", &value).is_err());
        for index in 0..value.len() {
            let mut bad = value.clone();
            bad[index] ^= 0x10;
            assert!(value_decode::<u64>(b"t", &bad).is_err());
            assert!(value_decode::<u64>(b"t", &value[..index]).is_err());
        }
    }
}
