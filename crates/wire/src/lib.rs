//! Messages between nodes and master, and their frames. `docs/format/wire.md` describes both.
//!
//! A connection carries frames in order. Messages about one resource are applied in the order sent; that is
//! what makes grants, revokes, forgets and replies safe without numbers of their own.

mod frame;
mod from_master;
mod split;
mod to_master;

pub use frame::{FRAME_HEADER_LEN, FRAME_LEN_MAX, FrameError, FrameHeader, decode_payload, encode_frame};
pub use from_master::{FromMaster, Grant, GrantData, Listing};
pub use split::{PART_BYTES, change_parts};
pub use to_master::{
    Ahead, BYTE_MAX, ByteLock, FetchWhat, LockKind, LockOp, LockOwner, OpenReport, ReassertPart, ToMaster,
    Want,
};

/// Version of the protocol. A node and a master of different versions refuse each other by name.
pub const PROTOCOL_VERSION: u32 = 13;
