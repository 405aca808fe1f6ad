//! Token management: the master's table and the node's, as pure state machines.
//!
//! Neither side does I/O, reads a clock or draws random numbers: time comes in as an argument, effects go
//! out as values. `docs/locking.md` has the rules, `docs/semantics.md` what they give a user.

pub mod master;
pub mod node;

pub use master::{MasterTable, Need, WaiterId};
pub use node::{NodeTable, Revocation};

/// Memory that a token is counted with, in bytes: what the master needs for one, about.
pub const TOKEN_BYTES: usize = 200;
