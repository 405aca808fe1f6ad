//! Inodes that the kernel knows, and what it may have of them.

use meta::FsError;
use rustc_hash::FxHashMap;
use types::Ino;

use crate::cache::Place;

/// An inode that the kernel has looked up, or that is open.
#[derive(Debug)]
pub struct Known {
    /// How often the kernel looked it up and has not forgotten it.
    pub lookups: u64,
    /// Where its record was last seen.
    pub place: Place,
    /// Whether the kernel may keep its attributes.
    pub attr_out: bool,
    /// Whether the kernel may have pages of it.
    pub pages_out: bool,
    /// Handles open for reading only.
    pub readers: u32,
    /// Handles open for writing.
    pub writers: u32,
    /// Whether the master knows that it is open here (OP).
    pub open_told: bool,
    /// Content written here was lost: what writers are told until the last of them closes.
    pub lost: Option<FsError>,
    /// Reads and writes served since its pages began to be taken back.
    pub served_while_dropping: bool,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            lookups: 0,
            place: Place::Unknown,
            attr_out: false,
            pages_out: false,
            readers: 0,
            writers: 0,
            open_told: false,
            lost: None,
            served_while_dropping: false,
        }
    }
}

impl Known {
    /// Whether some handle is open.
    pub fn is_open(&self) -> bool {
        self.readers + self.writers > 0
    }
}

/// All of them.
pub type KnownTable = FxHashMap<Ino, Known>;
