//! A whole cluster in one process on virtual time, from one seed.
//!
//! The real cores of nodes and master run over an in-memory engine and segment store. Everything between them
//! (messages, invalidations, syncs, timers) is an event whose turn the seed decides, so the same seed gives
//! the same run, to the byte of its trace.

mod check;
mod cluster;
mod coverage;
pub mod explore;
mod kernel;
mod process;
mod processes;
pub mod timed;
mod traffic;
mod trial;
mod workload;

pub use crate::check::Tree;
pub use cluster::{Cluster, ClusterConfig, Cut, Figures, Move, StoreFault};
pub use coverage::Coverage;
pub use kernel::Kernel;
pub use processes::{Deaths, ProcessesConfig, ProcessesRun, Trouble, run_processes};
pub use traffic::{Messages, SEGMENT_BYTES, Traffic};
pub use trial::{Trace, run_trial};
pub use workload::{Run, RunConfig, run};
