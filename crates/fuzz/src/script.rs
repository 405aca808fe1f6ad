//! A conversation as bytes: frames one after the other, and marks where the process of the test goes on.
//!
//! Frames are found by their magic, so a mutation of one leaves those behind it readable.

use types::{Decode, Encode};
use wire::{FRAME_HEADER_LEN, FrameError, FrameHeader};

/// One thing that happens.
#[derive(Debug)]
pub enum Event<M> {
    /// A message comes.
    Message(M),
    /// A frame is none: the connection ends.
    Broken,
    /// A frame holds no message. It is passed over: decoders have targets of their own.
    NoMessage,
    /// The process makes its next request.
    Go,
}

/// Where the process goes on.
pub const GO: &[u8; 4] = b"GO..";
const MAGIC: &[u8; 4] = b"HFDL";

/// Adds a message.
pub fn push(script: &mut Vec<u8>, message: &impl Encode) {
    script.extend(crate::targets::wire::frame(&message.to_bytes()));
}

/// Everything in order, at most `count`.
pub fn read<M: Decode>(script: &[u8], count: usize) -> Vec<Event<M>> {
    let pieces = pieces(script).into_iter().take(count);
    pieces.map(|piece| if piece.starts_with(GO) { Event::Go } else { message(piece) }).collect()
}

fn message<M: Decode>(frame: &[u8]) -> Event<M> {
    let Some((header, payload)) = frame.split_first_chunk::<FRAME_HEADER_LEN>() else {
        return Event::Broken;
    };
    let read = FrameHeader::decode(header).and_then(|header| wire::decode_payload(header, payload));
    match read {
        Ok(message) => Event::Message(message),
        Err(FrameError::BadMessage(_)) => Event::NoMessage,
        Err(_) => Event::Broken,
    }
}

/// Makes length and sum of every frame right.
pub fn repair(script: &mut Vec<u8>) {
    let pieces = pieces(script);
    let repaired = pieces.into_iter().map(|piece| {
        if piece.starts_with(GO) {
            GO.to_vec()
        } else {
            crate::targets::wire::frame(piece.get(FRAME_HEADER_LEN..).unwrap_or_default())
        }
    });
    *script = repaired.collect::<Vec<_>>().concat();
}

/// The message in a piece, if it is a frame.
pub fn payload(piece: &[u8]) -> Option<&[u8]> {
    piece.get(FRAME_HEADER_LEN..).filter(|_| piece.starts_with(MAGIC))
}

/// Cut before every magic and mark.
pub fn pieces(script: &[u8]) -> Vec<&[u8]> {
    let is_start = |at: &usize| script[*at..].starts_with(MAGIC) || script[*at..].starts_with(GO);
    let mut starts: Vec<usize> = (0..script.len()).filter(is_start).collect();
    starts.push(script.len());
    starts.windows(2).map(|ends| &script[ends[0]..ends[1]]).collect()
}

/// How many of each kind, in magnitudes: what makes one run unlike another.
pub fn digest(kinds: impl Iterator<Item = &'static str>) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for kind in kinds {
        *counts.entry(kind).or_insert(0u32) += 1;
    }
    let each = counts
        .iter()
        .map(|(kind, count)| format!("{kind}{}", "+".repeat((u32::BITS - count.leading_zeros()) as usize)));
    each.collect::<Vec<_>>().join(" ")
}
