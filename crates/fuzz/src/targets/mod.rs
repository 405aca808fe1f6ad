//! The targets.

pub mod dump;
pub mod extents;
pub mod fuse;
pub mod header;
pub mod hostile_master;
pub mod keys;
pub mod member;
pub mod records;
pub mod segments;
pub mod volume;
pub mod wire;

use std::fmt::Debug;

use types::{Decode, Encode};

/// A value that was decoded must say the same again.
///
/// # Panics
///
/// If it does not.
pub fn round_trip<T: Decode + Encode + PartialEq + Debug>(value: &T) {
    let again = T::from_bytes(&value.to_bytes());
    assert_eq!(again.as_ref(), Ok(value), "what was decoded says something else when it is encoded");
}
