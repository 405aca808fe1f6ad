//! The master of a volume: token table, namespace operations, commit, membership.
//!
//! [`Master`] is a state machine over a metadata engine. It starts no thread, reads no clock and owns no
//! socket: connections, messages and the end of syncs come in by method calls with the time, what is to be
//! done goes out through [`Master::poll_output`]. The engine's reads and commits are called synchronously;
//! its syncs, which wait for the disk, are ordered from the driver.

mod acquire;
mod app_lock;
mod app_locks;
mod batch;
mod behind;
mod change;
mod cleaner;
mod commit;
mod error;
mod forgets;
mod member;
mod open;
mod orphan;
mod own_rights;
mod prefetch;
mod quota;
mod record;
mod recover;
mod redo;
mod release;
mod resume;
mod sharers;
mod ship;
mod space;
mod state;
mod turns;
mod under_way;
mod upgrade;
mod view;

pub use app_locks::LockWait;
pub use error::MasterError;
pub use quota::AccountStatus;
pub use redo::{put_back, redo};
pub use sharers::files_naming;
pub use state::{Clock, Config, Master, MemberStatus, Output, PeerId};
