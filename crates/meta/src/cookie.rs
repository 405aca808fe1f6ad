//! Directory cookies: where in its directory an entry stands.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use types::{CodecError, Decode, Decoder, Encode, Encoder};

/// Position of an entry in its directory: 55 bits of keyed hash of the name, 8 bits of discriminator.
///
/// 63 bits, so that it fits the kernel's signed offset; never below 256. Stable for the life of the entry
/// and the same on every node, which is what telldir, seekdir and NFS export need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

/// Offset handed out for `.`.
pub const COOKIE_DOT: u64 = 1;
/// Offset handed out for `..`.
pub const COOKIE_DOTDOT: u64 = 2;

/// The volume's key for name hashes: keeps an outsider from aiming names at one cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieKey(pub [u8; 16]);

impl Cookie {
    /// Before every entry.
    pub const START: Self = Self(0);

    /// The hash part: all names with the same one share a short range of cookies.
    pub const fn hash(self) -> u64 {
        self.0 >> 8
    }

    /// The cookies that names with this hash may have, smallest and largest.
    pub const fn range_of(hash: u64) -> (Self, Self) {
        (Self(hash << 8), Self(hash << 8 | 0xff))
    }
}

impl CookieKey {
    /// Hash of `name`: 1 to 2^55 - 1.
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(name);
        (hasher.finish() & ((1 << 55) - 1)).max(1)
    }
}

impl Encode for Cookie {
    fn encode(&self, out: &mut Encoder) {
        out.raw(&self.0.to_be_bytes());
    }
}

impl Decode for Cookie {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(input.raw(8)?);
        let value = u64::from_be_bytes(bytes);
        if value < 256 || value >> 63 != 0 {
            return Err(CodecError::OutOfRange { what: "cookie", value });
        }
        Ok(Self(value))
    }
}
