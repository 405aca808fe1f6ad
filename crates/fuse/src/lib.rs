//! FUSE transport for Linux: everything between a file system and `/dev/fuse`, and nothing else.
//!
//! ```text
//! mount ──► Session (INIT) ──► run: one reader thread, ──► Handler::handle(Request, Reply)
//!                │                 or a ring per CPU            │ inline, or later on any thread
//!                └──► Notifier: invalidations, any thread       └──► Reply: one writev, or back through the ring
//! ```
//!
//! - [`mount`](mount::mount) gives a device and a [`Mount`](mount::Mount); [`Session::start`] shakes
//!   hands; [`Session::run`] reads until the mount goes.
//! - With [`Config::rings`], and a kernel that offers it, requests come through io_uring, in a queue for each CPU with a thread of
//!   its own (`uring/mod.rs`). FORGET and INTERRUPT come through `/dev/fuse` all the same, and notifications go there.
//! - Without, one reader on purpose: a second reader on the same connection halves the speed of a single
//!   client, because the kernel wakes either of them on either CPU. Requests that must wait are
//!   answered later, from another thread, through their [`Reply`]. The reader sees to it that it runs
//!   where its callers do (`placement.rs`).
//! - INTERRUPT reaches the handler. It is never answered ENOSYS, which would make the kernel stop
//!   sending it and processes waiting for a lock unkillable.
//! - **Notifications can block.** [`Notifier`] methods say which kernel lock they take. Never call
//!   one from a handler, nor with a lock held that a handler needs: an entry invalidation waits
//!   for every pending operation in its directory, and no signal ends that wait; only
//!   [`Mount::abort`](mount::Mount::abort) does.
//!
//! Bytes from the kernel are decoded without panics; a malformed request is answered EIO and
//! counted. A panic in a handler answers EIO, is counted, and ends nothing else.

pub mod abi;
mod attr;
mod channel;
mod counters;
mod dir_buffer;
mod in_flight;
mod init;
pub mod mount;
mod notifier;
mod operation;
mod placement;
mod reply;
mod request;
mod session;
mod unreadable;
mod uring;

pub use abi::{Forget, InHeader, InitFlags, Opcode, OpenReplyFlags, ROOT_ID, ReleaseFlags, WriteFlags};
pub use attr::{Attr, Entry, Opened, Statfs, Statx, Timestamp};
pub use counters::{CounterSnapshot, Counters, NotificationKind};
pub use dir_buffer::{DirBuffer, FileKind};
pub use init::{Config, Negotiated, RingUse};
pub use notifier::{Notified, Notifier, NotifyError};
pub use operation::{DecodeError, FileLock, LockKind, Operation, Setattr, TimeOrNow};
pub use placement::{Aside, PlaceEvent, answered_at, is_alone, is_reader, rise, spawn, stand_aside};
pub use reply::{Delivery, Reply, Transport};
pub use request::{Dialect, Request};
pub use session::{Handler, Monitor, Session, SessionEnd, SessionError};
pub use uring::{RingError, ring_check, rings_suit};

pub use rustix::io::Errno;
