//! The guard of a mount: a small process that empties the kernel's caches when the node cannot.
//!
//! What the kernel has cached outlives a node that is stopped, hangs or is dead, and others may change what it shows.
//! So beside each node runs a process with a duplicate of the FUSE device, locked in memory, and two things shared with it:
//! until when the node is sure of its membership, and which inodes the kernel may know ([`Table`]).
//!
//! - When that time is nearly over, the guard *fires*: it raises the epoch, so that every name runs out, then takes
//!   back attributes and pages of each inode. It is done before the lease ends. A node that goes on afterwards
//!   sees that, and serves nothing until the master has confirmed its membership: then its tokens
//!   are what they were, or everything is lost.
//! - When the node's process is dead, the guard does the same at once, and aborts the connection: the mount
//!   answers errors.
//!
//! | what is stuck in the kernel | how the guard gets past it |
//! |---|---|
//! | a name's directory | names are taken back by the epoch, which waits for nothing |
//! | attributes | wait for nothing |
//! | pages: a read without an answer owns them, or they were changed through a mapping | several threads; when the lease ends, or after [`process::PATIENCE`], the connection is aborted |
//!
//! An aborted connection still takes notifications (`crates/fuse/tests/after_abort.rs`), and none of them waits then.
//!
//! The process is the node's own program, started with other arguments ([`Command`]), so that nothing of the
//! node's memory, threads, descriptors and locks is in it. Its standard input is a socket: by it come the descriptors, and its end says
//! that the node has ended.

mod channel;
mod keeper;
mod process;
mod shared;
mod sweep;
mod table;

pub use keeper::{Command, End, Holder, Keeper, Mount, Watch};
pub use process::run;
pub use table::Table;
