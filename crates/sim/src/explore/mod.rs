//! Every order of events of small worlds, up to a bound.
//!
//! A world is a handful of operations by processes on two or three nodes. An explorer runs the real cores in every
//! order of requests, messages, invalidations, syncs, timers and faults that its bounds allow, depth first, each
//! time from the start. What no order may bring about is checked after each step: incompatible tokens, names in a
//! kernel that no token stands behind, a request that nobody answers. At the end of each run its history must be
//! linearizable against the reference model, the records whole, and every kernel's cache true.
//!
//! Orders that differ only in events which do not touch each other are one. Every node and the master is a function
//! of what it has taken in, so a digest of that, kept for each, names the state: a state that was seen is not
//! entered again, and which state an event leads to is known before it is run.

mod explorer;
mod history;
mod process;
mod run;
mod schedule;
mod setup;
mod verdict;
mod worlds;

pub use explorer::{Bounds, Explored, Explorer, Violation};
pub use run::{Reached, Run};
pub use schedule::{Event, Schedule};
pub use worlds::{Fault, Step, Warmth, World, worlds, worlds_with_troubles};
