//! Names of directory entries.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::codec::{CodecError, Decode, Decoder, Encode, Encoder};

/// Longest name in bytes (`NAME_MAX`).
pub const NAME_LEN_MAX: usize = 255;

/// A directory entry's name: 1 to 255 bytes, any but NUL and `/`, and neither `.` nor `..`.
#[derive(Clone)]
pub struct Name(Stored);

/// The bytes of a name. Most are short, and a request copies its names several times: these take no memory of their own.
#[derive(Clone)]
enum Stored {
    Short { len: u8, bytes: [u8; SHORT_LEN_MAX] },
    Long(Box<[u8]>),
}

/// As many as fit beside the length where a long name has its pointer.
const SHORT_LEN_MAX: usize = 22;

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
        if bytes.len() > SHORT_LEN_MAX {
            return Ok(Self(Stored::Long(bytes.into())));
        }
        let mut short = [0; SHORT_LEN_MAX];
        short[..bytes.len()].copy_from_slice(bytes);
        Ok(Self(Stored::Short { len: bytes.len() as u8, bytes: short }))
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
        match &self.0 {
            Stored::Short { len, bytes } => &bytes[..usize::from(*len)],
            Stored::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl Encode for Name {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self.as_bytes());
    }
}

impl Decode for Name {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        Self::new(input.bytes()?).map_err(|_| CodecError::Invalid { what: "name" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_are_kept_and_compared_by_their_bytes() {
        assert_eq!(size_of::<Name>(), 24);
        let name = |len: usize| Name::new(&vec![b'a'; len]).unwrap();
        for len in 1..=NAME_LEN_MAX {
            assert_eq!(name(len).as_bytes(), vec![b'a'; len]);
            assert_eq!(name(len), name(len).clone());
        }
        let mut names = [name(SHORT_LEN_MAX + 1), name(SHORT_LEN_MAX), Name::new(b"b").unwrap(), name(1)];
        names.sort();
        let sorted = [name(1), name(SHORT_LEN_MAX), name(SHORT_LEN_MAX + 1), Name::new(b"b").unwrap()];
        assert_eq!(names, sorted);
        assert_eq!(Name::new(&[b'a'; NAME_LEN_MAX + 1]), Err(NameError::TooLong));
    }
}
