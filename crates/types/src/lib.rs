//! Identifiers, units, modes and the byte codec that every layer shares.
//!
//! Nothing here reads a clock, draws a random number, starts a thread or does I/O.

mod account;
pub mod codec;
mod ids;
mod mode;
mod name;
#[cfg(feature = "planted")]
pub mod planted;
mod time;

pub use account::{Account, Charge, Credit};
pub use codec::{CodecError, Decode, Decoder, Encode, Encoder};
pub use ids::{BatchSeq, Epoch, Ino, NodeId, OpSeq, ResourceId, ResourceKind, SegmentId};
pub use mode::LockMode;
pub use name::{NAME_LEN_MAX, Name, NameError};
pub use time::{Micros, Timespec};
