//! The shell around the pure cores: threads, sockets, election, the master's service, the control socket.
//!
//! ```text
//! kernel ─► fuse ─► adapter ─► Shell: core ◄─► Link ─► master in this process (Service)
//!                                                  └─► Unix socket ─► Service of another process
//! ```
//!
//! [`mount`] is a whole node, from election to the last flush. Nothing here decides anything about files or
//! tokens; the cores do, and could be driven by another shell. `docs/rfcs/0001-threads-in-the-node-shell.md`
//! says why there are plain threads.

mod clock;
mod control;
mod engine_sync;
mod error;
mod fail_stop;
mod frames;
mod jobs;
mod leaving;
mod link;
mod node;
mod offline;
mod options;
mod pacer;
mod process;
mod quota;
mod scrub;
mod service;
mod shell;
mod signals;
mod snapshot;
mod store;
mod threads;
mod timer;
mod turn;
mod utab;

pub use error::NodeError;
pub use fuse::RingUse;
pub use guard::{Command as GuardCommand, run as guard};
pub use node::mount;
pub use offline::{DataCheck, Offline, OfflineError, Purpose, damaged_table};
pub use options::{MountOptions, MountRequest};
pub use scrub::{faults_json, report_json};
pub use snapshot::{Ask, check_mounted};
pub use vfs::Atime;
