//! Translation between the kernel (crate `fuse`) and the node's core (crate `vfs`), and the only errno map.
//!
//! ```text
//! kernel ──► fuse::Session ──► Server: translate ──► Core::submit ──► at once: answer
//!                                                        │
//!                                                        └─► later: Output::Reply ──► answer()
//! kernel ◄── Notifier ◄── Invalidator (threads of its own) ◄── Output::Invalidate
//! ```
//!
//! What drives the core implements [`Driver`] and holds a [`PendingTable`] and an [`Invalidator`]. It decides
//! nothing of the protocol, and nothing here decides anything about tokens.
//!
//! Threads: [`Server`] runs on the transport's; [`answer`] on whichever drives the core's outputs, and never
//! blocks there; [`Task`]s on the driver's pool; notifications that may block on the [`Invalidator`]'s alone.

mod call;
mod caller;
mod capability;
mod catch_up;
mod changes;
mod convert;
mod dir;
mod disturbed;
mod errno;
mod groups;
mod invalidate;
mod kind;
mod late;
mod linux;
mod listings;
mod looks;
mod read;
mod refused;
mod reply;
mod request;
mod server;
mod session;
mod told;
mod twice;
mod written;

pub use call::PendingTable;
pub use catch_up::{Brought, CatchUp};
pub use changes::Changer;
pub use errno::{errno_of, xattr_errno_of};
pub use invalidate::{Before, Config, Drops, Hooks, Invalidator, KernelCache, Notify};
pub use server::{Driver, Server, Task, answer};
pub use session::session_config;
