//! The node's side of the file system: POSIX under tokens, caches, the write-behind log.
//!
//! [`Core`] is a state machine. It starts no thread, reads no clock and speaks to no kernel: requests,
//! messages and finished jobs come in by method calls with the time, answers and orders go out through
//! [`Core::poll_output`]. The only I/O below it is the segment store, called synchronously.
//!
//! A request that cannot be answered is parked with what it waits for and tried again, from the start, when
//! that happens. So no operation holds anything while it waits (docs/locking.md, "No circular waits").

mod atime;
mod attr;
mod cache;
mod closed;
mod config;
mod content;
mod copy;
mod core;
mod disown;
mod elsewhere;
mod ends;
mod flush;
mod forget;
mod going;
mod gone;
mod grants;
mod guard;
mod handles;
mod holds;
mod jobs;
mod join;
mod judged;
mod known;
mod lapse;
mod late;
mod lately;
mod left;
mod linger;
mod live;
mod loaded;
mod lockop;
mod log;
mod lost;
mod lulls;
mod memory;
mod message;
mod namespace;
mod naming;
mod onlookers;
mod outputs;
mod overtaken;
mod pages;
mod quota;
mod readdir;
mod request;
mod revoke;
mod seats;
mod shield;
mod space;
mod stores;
mod turns;
mod unlinked;
mod view;
mod wait;
mod walk;
mod xattr;

pub use crate::atime::Atime;
pub use crate::config::{Config, Lazy};
pub use crate::core::{Core, Snapshot};
pub use crate::ends::{Asker, LaterEnd, Outdated, Seen};
pub use crate::flush::Dealt;
pub use crate::going::{Over, OverStep};
pub use crate::guard::{Guard, Unguarded};
pub use crate::judged::{ON_ITS_WAY, Permissions};
pub use crate::outputs::{Clock, Invalidation, Output};
pub use crate::request::{
    AllocateMode, Attr, DirSink, Entry, HandleId, Interrupt, Keep, MakeSpec, OpenMode, Opened, PageSpan,
    ReadJob, Reply, Request, RequestId, Reread, Shield, StatFs, Taken, Via, WriteData, WriteNow,
};
pub use crate::wait::Wait;
