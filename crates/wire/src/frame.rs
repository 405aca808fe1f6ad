//! Frames: a fixed header, then one message.

use types::{CodecError, Decode, Encode, Encoder};

/// Magic, payload length, CRC32C of the payload: each four bytes, little endian.
pub const FRAME_HEADER_LEN: usize = 12;
/// Largest payload in bytes. Senders split what would be larger: `split.rs`, and whoever fills a message.
pub const FRAME_LEN_MAX: usize = 1 << 20;
const MAGIC: u32 = 0x4c44_4648; // "HFDL"

/// Why bytes are no frame. The connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer speaks something else.
    #[error("not a frame: magic {found:#010x}")]
    BadMagic {
        /// What stood in its place.
        found: u32,
    },
    /// Longer than any frame.
    #[error("frame of {len} bytes is larger than the limit of {FRAME_LEN_MAX}")]
    TooLong {
        /// Length announced.
        len: usize,
    },
    /// Bytes changed on the way.
    #[error("frame checksum {found:#010x} does not match {expected:#010x}")]
    BadChecksum {
        /// Computed here.
        found: u32,
        /// In the header.
        expected: u32,
    },
    /// The payload is no message.
    #[error("frame holds no valid message")]
    BadMessage(#[source] CodecError),
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of payload that follow.
    pub len: usize,
    checksum: u32,
}

impl FrameHeader {
    /// Checks and reads a header.
    pub fn decode(bytes: &[u8; FRAME_HEADER_LEN]) -> Result<Self, FrameError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(0) != MAGIC {
            return Err(FrameError::BadMagic { found: word(0) });
        }
        let len = word(4) as usize;
        if len > FRAME_LEN_MAX {
            return Err(FrameError::TooLong { len });
        }
        Ok(Self { len, checksum: word(8) })
    }
}

/// One message as a frame.
pub fn encode_frame(message: &impl Encode) -> Vec<u8> {
    let mut out = Encoder::with_capacity(256);
    out.raw(&[0; FRAME_HEADER_LEN]);
    message.encode(&mut out);
    let mut frame = out.into_vec();
    let payload = &frame[FRAME_HEADER_LEN..];
    let (len, checksum) = (payload.len() as u32, crc32c::crc32c(payload));
    frame[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    frame[4..8].copy_from_slice(&len.to_le_bytes());
    frame[8..12].copy_from_slice(&checksum.to_le_bytes());
    frame
}

/// The message in a frame's payload.
pub fn decode_payload<M: Decode>(header: FrameHeader, payload: &[u8]) -> Result<M, FrameError> {
    let found = crc32c::crc32c(payload);
    if found != header.checksum {
        return Err(FrameError::BadChecksum { found, expected: header.checksum });
    }
    M::from_bytes(payload).map_err(FrameError::BadMessage)
}
