//! What empties the kernel's caches when the node cannot.

use types::{Ino, Micros};

/// The guard of a mount, as its node's core sees it.
///
/// What the kernel has cached outlives a node that is stopped or dead. So the core notes each inode that the kernel may
/// know *before* it is handed out, and until when it is sure of its membership.
pub trait Guard: Send {
    /// The kernel may have something of `ino` from here on. Returns what [`leave`](Self::leave) wants back.
    fn enter(&mut self, ino: Ino) -> u32;
    /// It has nothing of the inode that entered as `slot` any more.
    fn leave(&mut self, slot: u32);
    /// Whether the kernel's caches were emptied since [`extend`](Self::extend) was last called. The membership may
    /// have ended meanwhile: nothing is to be served before the master says that it has not.
    fn has_fired(&self) -> bool;
    /// The membership lasts until `until`, with a lease of `length`: before that the caches need not be emptied.
    fn extend(&mut self, until: Micros, length: Micros);
    /// The node has emptied the kernel's caches itself, and hands nothing out before it calls [`extend`](Self::extend)
    /// again: they need not be emptied, and what waits for the node meanwhile must not be taken for stuck.
    fn rest(&mut self);
}

/// For a core whose kernel ends with it.
#[derive(Clone, Copy, Debug)]
pub struct Unguarded;

impl Guard for Unguarded {
    fn enter(&mut self, _: Ino) -> u32 {
        0
    }

    fn leave(&mut self, _: u32) {}

    fn has_fired(&self) -> bool {
        false
    }

    fn extend(&mut self, _: Micros, _: Micros) {}

    fn rest(&mut self) {}
}
