//! Times: of files (wall clock) and of the protocol (monotonic).

use std::ops::{Add, Sub};

use crate::codec::{CodecError, Decode, Decoder, Encode, Encoder};

/// A file's time: seconds since 1970 and nanoseconds below a second. Packed, because each cached inode has five.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(Rust, packed(4))]
pub struct Timespec {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Encode for Timespec {
    fn encode(&self, out: &mut Encoder) {
        out.varint_signed(self.secs);
        out.varint(u64::from(self.nanos));
    }
}

impl Decode for Timespec {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let secs = input.varint_signed()?;
        let nanos = input.varint()?;
        if nanos > 999_999_999 {
            return Err(CodecError::OutOfRange { what: "nanoseconds", value: nanos });
        }
        Ok(Self { secs, nanos: nanos as u32 })
    }
}

/// Microseconds on a clock that counts suspension (CLOCK_BOOTTIME) or on the simulation's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// A point that no clock reaches.
    pub const NEVER: Self = Self(u64::MAX);

    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// Time since `earlier`, zero if that is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Micros {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Micros {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

/// Microseconds.
impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}
