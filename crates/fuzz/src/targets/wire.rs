//! Frames, both ways.

use testkit::fuzz::{Target, outcome};
use types::{Decode, Encode};
use wire::{FRAME_HEADER_LEN, FRAME_LEN_MAX, FrameError, FrameHeader, FromMaster, ToMaster};

use crate::targets::round_trip;
use crate::traffic::traffic;

/// What nodes send.
pub struct ToMasterFrames;

/// What a master sends.
pub struct FromMasterFrames;

impl Target for ToMasterFrames {
    fn name(&self) -> &'static str {
        "to-master"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        traffic().to_master.values().map(|payload| frame(payload)).collect()
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        repair(bytes);
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        match read::<ToMaster>(bytes) {
            Err(error) => outcome(&error),
            Ok(message) => {
                let kind = ToMaster::KINDS[message.kind()];
                let mut parts = 0;
                message.split(|part| {
                    parts += 1;
                    assert_fits(&part);
                });
                format!("{kind} in {parts} of {} bits", bits(bytes))
            }
        }
    }
}

impl Target for FromMasterFrames {
    fn name(&self) -> &'static str {
        "from-master"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        traffic().from_master.values().map(|payload| frame(payload)).collect()
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        repair(bytes);
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        match read::<FromMaster>(bytes) {
            Err(error) => outcome(&error),
            Ok(message) => {
                let kind = FromMaster::KINDS[message.kind()];
                let mut parts = 0;
                message.split(|part| {
                    parts += 1;
                    assert_fits(&part);
                });
                format!("{kind} in {parts} of {} bits", bits(bytes))
            }
        }
    }
}

/// A larger message of a kind has other things in it.
fn bits(bytes: &[u8]) -> u32 {
    usize::BITS - bytes.len().leading_zeros()
}

/// Reads one frame as a connection does.
fn read<M: Decode + Encode + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Result<M, String> {
    let (header, payload) = bytes.split_first_chunk::<FRAME_HEADER_LEN>().ok_or("no header")?;
    let header = FrameHeader::decode(header).map_err(|error| error.to_string())?;
    let payload = payload.get(..header.len).ok_or("no payload")?;
    let message = wire::decode_payload::<M>(header, payload).map_err(|error| match error {
        FrameError::BadMessage(cause) => cause.to_string(),
        other => other.to_string(),
    })?;
    round_trip(&message);
    Ok(message)
}

/// What came in one frame goes out in frames.
fn assert_fits(message: &impl Encode) {
    let len = message.to_bytes().len();
    assert!(len <= FRAME_LEN_MAX, "a part of {len} bytes is larger than a frame");
}

/// `payload` as a frame.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&[0; FRAME_HEADER_LEN], payload].concat();
    repair(&mut bytes);
    bytes
}

fn repair(bytes: &mut Vec<u8>) {
    if bytes.len() < FRAME_HEADER_LEN {
        bytes.resize(FRAME_HEADER_LEN, 0);
    }
    let (header, payload) = bytes.split_at_mut(FRAME_HEADER_LEN);
    header[0..4].copy_from_slice(b"HFDL");
    header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[8..12].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
}
