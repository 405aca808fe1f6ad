//! The byte codec of messages and stored records.
//!
//! Integers are LEB128 varints (signed ones zigzag), byte strings carry a varint length. Encoding never
//! fails; decoding checks every length against what is left, so damaged or hostile input costs an error
//! and never memory: no allocation exceeds the input's own size.

use std::fmt;
use std::sync::Arc;

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// The input ended early.
    Truncated,
    /// Bytes were left over.
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// A tag that this version does not know.
    UnknownTag {
        /// Which enum.
        what: &'static str,
        /// The tag read.
        tag: u8,
    },
    /// A number outside its type's range.
    OutOfRange {
        /// Which field.
        what: &'static str,
        /// The number read.
        value: u64,
    },
    /// A value that breaks its type's rule.
    Invalid {
        /// Which type.
        what: &'static str,
    },
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("input ends early"),
            Self::TrailingBytes { count } => write!(f, "{count} bytes left over"),
            Self::UnknownTag { what, tag } => write!(f, "unknown {what} {tag}"),
            Self::OutOfRange { what, value } => write!(f, "{what} {value} is out of range"),
            Self::Invalid { what } => write!(f, "invalid {what}"),
        }
    }
}

impl std::error::Error for CodecError {}

/// A value with a byte form.
pub trait Encode {
    /// Appends the byte form to `out`.
    fn encode(&self, out: &mut Encoder);

    /// The byte form alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Encoder::new();
        self.encode(&mut out);
        out.into_vec()
    }
}

/// A value that can be read back.
pub trait Decode: Sized {
    /// Reads one value and leaves the rest.
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError>;

    /// Reads one value that must fill `bytes`.
    fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut input = Decoder::new(bytes);
        let value = Self::decode(&mut input)?;
        input.finish()?;
        Ok(value)
    }
}

/// Writes byte forms.
#[derive(Debug, Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// An empty output.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty output with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Four bytes, little endian.
    pub fn u32_le(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// An unsigned varint, 1 to 10 bytes.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A zigzag varint.
    pub fn varint_signed(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    /// A byte string with its length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Bytes without a length: the reader must know it.
    pub fn raw(&mut self, value: &[u8]) {
        self.0.extend_from_slice(value);
    }
}

/// Reads byte forms.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Reads from `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Checks that all was read.
    pub const fn finish(&self) -> Result<(), CodecError> {
        match self.0.len() {
            0 => Ok(()),
            count => Err(CodecError::TrailingBytes { count }),
        }
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, CodecError> {
        Ok(self.raw(1)?[0])
    }

    /// Four bytes, little endian.
    pub fn u32_le(&mut self) -> Result<u32, CodecError> {
        let b = self.raw(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// An unsigned varint of at most 64 bits.
    pub fn varint(&mut self) -> Result<u64, CodecError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(CodecError::Invalid { what: "varint" });
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CodecError::Invalid { what: "varint" })
    }

    /// A zigzag varint.
    pub fn varint_signed(&mut self) -> Result<i64, CodecError> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A varint that must fit 32 bits.
    pub fn varint_u32(&mut self, what: &'static str) -> Result<u32, CodecError> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| CodecError::OutOfRange { what, value })
    }

    /// A byte string with its length.
    pub fn bytes(&mut self) -> Result<&'a [u8], CodecError> {
        let len = self.varint()?;
        let len = usize::try_from(len).map_err(|_| CodecError::Truncated)?;
        self.raw(len)
    }

    /// `len` bytes.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], CodecError> {
        if len > self.0.len() {
            return Err(CodecError::Truncated);
        }
        let (head, tail) = self.0.split_at(len);
        self.0 = tail;
        Ok(head)
    }

    /// A count of items of at least one byte each; refuses more than the input can hold.
    pub fn count(&mut self) -> Result<usize, CodecError> {
        let count = self.varint()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.0.len() => Ok(count),
            _ => Err(CodecError::Truncated),
        }
    }
}

impl Encode for u64 {
    fn encode(&self, out: &mut Encoder) {
        out.varint(*self);
    }
}

impl Decode for u64 {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        input.varint()
    }
}

impl Encode for u32 {
    fn encode(&self, out: &mut Encoder) {
        out.varint(u64::from(*self));
    }
}

impl Decode for u32 {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        input.varint_u32("32-bit number")
    }
}

impl Encode for i64 {
    fn encode(&self, out: &mut Encoder) {
        out.varint_signed(*self);
    }
}

impl Decode for i64 {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        input.varint_signed()
    }
}

impl Encode for bool {
    fn encode(&self, out: &mut Encoder) {
        out.u8(u8::from(*self));
    }
}

impl Decode for bool {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        match input.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(CodecError::UnknownTag { what: "boolean", tag }),
        }
    }
}

/// A string of bytes (not a list of items).
impl Encode for Box<[u8]> {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self);
    }
}

impl Decode for Box<[u8]> {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        Ok(input.bytes()?.into())
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self.as_bytes());
    }
}

impl Decode for String {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let bytes = input.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(CodecError::Invalid { what: "UTF-8 text" }),
        }
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Encoder) {
        match self {
            None => out.u8(0),
            Some(value) => {
                out.u8(1);
                value.encode(out);
            }
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        match input.u8()? {
            0 => Ok(None),
            1 => T::decode(input).map(Some),
            tag => Err(CodecError::UnknownTag { what: "option", tag }),
        }
    }
}

/// `Ok` is tag 0, `Err` tag 1.
impl<T: Encode, E: Encode> Encode for Result<T, E> {
    fn encode(&self, out: &mut Encoder) {
        match self {
            Ok(value) => {
                out.u8(0);
                value.encode(out);
            }
            Err(error) => {
                out.u8(1);
                error.encode(out);
            }
        }
    }
}

impl<T: Decode, E: Decode> Decode for Result<T, E> {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        match input.u8()? {
            0 => T::decode(input).map(Ok),
            1 => E::decode(input).map(Err),
            tag => Err(CodecError::UnknownTag { what: "result", tag }),
        }
    }
}

impl<T: Encode> Encode for Box<T> {
    fn encode(&self, out: &mut Encoder) {
        self.as_ref().encode(out);
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        T::decode(input).map(Box::new)
    }
}

impl<T: Encode> Encode for Arc<T> {
    fn encode(&self, out: &mut Encoder) {
        self.as_ref().encode(out);
    }
}

impl<T: Decode> Decode for Arc<T> {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        T::decode(input).map(Arc::new)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Encoder) {
        out.varint(self.len() as u64);
        for item in self {
            item.encode(out);
        }
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let count = input.count()?;
        let mut items = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            items.push(T::decode(input)?);
        }
        Ok(items)
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
        self.1.encode(out);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        Ok((A::decode(input)?, B::decode(input)?))
    }
}

/// Gives a struct the byte form "its fields in order".
///
/// ```
/// struct Point { x: u64, y: i64 }
/// types::codec_struct!(Point { x, y });
/// ```
#[macro_export]
macro_rules! codec_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::Encode for $name {
            fn encode(&self, out: &mut $crate::Encoder) {
                $( $crate::Encode::encode(&self.$field, out); )*
                let _ = out;
            }
        }
        impl $crate::Decode for $name {
            fn decode(input: &mut $crate::Decoder<'_>) -> Result<Self, $crate::CodecError> {
                $( let $field = $crate::Decode::decode(input)?; )*
                let _ = input;
                Ok(Self { $($field),* })
            }
        }
    };
}

/// Gives an enum of unit, tuple-less struct variants the byte form "tag byte, then the fields in order".
///
/// ```
/// enum Shape { Dot, Line { len: u64 } }
/// types::codec_enum!(Shape, "shape", { 1 => Dot {}, 2 => Line { len } });
/// ```
#[macro_export]
macro_rules! codec_enum {
    ($name:ident, $what:literal, { $($tag:literal => $variant:ident { $($field:ident),* $(,)? }),* $(,)? }) => {
        impl $crate::Encode for $name {
            fn encode(&self, out: &mut $crate::Encoder) {
                match self {
                    $( Self::$variant { $($field),* } => {
                        out.u8($tag);
                        $( $crate::Encode::encode($field, out); )*
                    } )*
                }
            }
        }
        impl $crate::Decode for $name {
            fn decode(input: &mut $crate::Decoder<'_>) -> Result<Self, $crate::CodecError> {
                match input.u8()? {
                    $( $tag => {
                        $( let $field = $crate::Decode::decode(input)?; )*
                        Ok(Self::$variant { $($field),* })
                    } )*
                    tag => Err($crate::CodecError::UnknownTag { what: $what, tag }),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_round_trip() {
        for value in [0u64, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(u64::from_bytes(&value.to_bytes()), Ok(value));
        }
        for value in [0i64, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(i64::from_bytes(&value.to_bytes()), Ok(value));
        }
    }

    #[test]
    fn hostile_lengths_cost_an_error_not_memory() {
        let mut out = Encoder::new();
        out.varint(u64::MAX);
        let bytes = out.into_vec();
        assert_eq!(Vec::<u64>::from_bytes(&bytes), Err(CodecError::Truncated));
        assert_eq!(Box::<[u8]>::from_bytes(&bytes), Err(CodecError::Truncated));
        assert_eq!(u64::from_bytes(&[0xff; 10]), Err(CodecError::Invalid { what: "varint" }));
    }
}
