//! Names of directory entries.

use std::fmt;

use crate::codec::{CodecError, Decode, Decoder, Encode, Encoder};

/// Longest name in bytes (`NAME_MAX`).
pub const NAME_LEN_MAX: usize = 255;

/// A directory entry's name: 1 to 255 bytes, any but NUL and `/`, and neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

/// Why bytes are no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Empty, `.`, `..`, or holding NUL or `/`.
    Invalid,
    /// More than [`NAME_LEN_MAX`] bytes.
    TooLong,
}

impl Name {
    /// Checks `bytes` and keeps a copy.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        Self::check(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// Checks `bytes` without keeping them.
    pub fn check(bytes: &[u8]) -> Result<(), NameError> {
        if bytes.len() > NAME_LEN_MAX {
            return Err(NameError::TooLong);
        }
        let is_dots = matches!(bytes, b"" | b"." | b"..");
        if is_dots || bytes.iter().any(|b| matches!(b, 0 | b'/')) {
            return Err(NameError::Invalid);
        }
        Ok(())
    }

    /// The bytes as stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl Encode for Name {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(&self.0);
    }
}

impl Decode for Name {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        Self::new(input.bytes()?).map_err(|_| CodecError::Invalid { what: "name" })
    }
}
