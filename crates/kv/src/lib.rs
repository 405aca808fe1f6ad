//! Ordered key-value storage of one volume's metadata.
//!
//! The crate holds the [`Engine`] trait, the [`FileWitness`] beside a directory engine, the deterministic
//! [`MemEngine`] for tests and the simulation, and (feature `contract`) the suite each engine must pass.
//! It starts no thread, owns no runtime and reads no clock. The trait is synchronous: an engine that is
//! asynchronous inside owns its runtime and blocks here.
//!
//! # Invariants
//!
//! 1. Batches are applied whole and in order: batch `n + 1` is never there without batch `n`.
//! 2. What [`Engine::sync`] returned survives power loss; a volume that opens with less is damaged and says
//!    so ([`EngineError::Behind`]).
//! 3. A generation is recorded durably before an engine opened under it takes its first batch; an engine of
//!    an older generation is refused ([`EngineError::Fenced`]).
//! 4. A durable write that failed is not retried on the same handle ([`EngineError::Poisoned`]).

mod batch;
#[cfg(feature = "contract")]
pub mod contract;
mod engine;
mod error;
mod mem;
mod reserved;
mod witness;

pub use batch::{BATCH_BYTES_MAX, Batch, KEY_LEN_MAX, VALUE_LEN_MAX};
pub use engine::{
    Claim, Direction, Engine, Entry, Generation, KeyRange, Pace, Page, ScanLimit, Seq, TakeEntry, scan_all,
};
pub use error::{Cause, EngineError, Result};
pub use mem::{Failure, MemDisk, MemEngine, Operation};
pub use reserved::{RESERVED_KEY, Reserved};
pub use witness::{FileWitness, Mark, Witness};
