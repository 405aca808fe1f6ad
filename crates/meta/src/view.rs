//! What a plan can see.

use types::{Ino, LockMode, Name, NodeId, ResourceId};

use crate::cookie::Cookie;
use crate::error::FsError;
use crate::ops::XattrList;
use crate::record::{Dirent, Inode, Placement};

/// A right that a decision needs and this view does not have.
///
/// On a node: ship the operation, or ask for the token and plan again. The master's view never misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What to hold.
    pub resource: ResourceId,
    /// How.
    pub mode: LockMode,
}

/// Why a view gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewError {
    /// The view lacks a right.
    Missing(Missing),
    /// The operation must be refused, or the stored record is damaged ([`FsError::Io`], logged by the view).
    Refused(FsError),
}

impl From<FsError> for ViewError {
    fn from(error: FsError) -> Self {
        Self::Refused(error)
    }
}

/// Outcome of looking a name up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The entry and its place.
    Found {
        /// Its place.
        cookie: Cookie,
        /// The entry.
        entry: Dirent,
    },
    /// No such name; an entry of that name would go here.
    Absent {
        /// A free place.
        cookie: Cookie,
    },
}

/// What a plan reads. `mode` is the right that the decision needs on what is read: PR to decide by it, EX to
/// change it. A view that lacks it answers [`ViewError::Missing`] and nothing else.
pub trait View {
    /// Looks `name` up in `dir` (which the caller knows to be a directory).
    ///
    /// Refuses with [`FsError::NoSpace`] when the name is absent and its 255 places are taken.
    fn lookup(&self, dir: Ino, name: &Name, mode: LockMode) -> Result<Lookup, ViewError>;

    /// The record of any inode and where it is. [`FsError::NotFound`] if there is none.
    ///
    /// Of a covered inode `mode` is needed on the directory that covers it; of a directory on itself; of any
    /// other on its attributes (and its content, whose fields may be a moment old without that right: a plan
    /// that decides by content or changes it must also call [`View::content_right`]).
    fn inode(&self, ino: Ino, mode: LockMode) -> Result<(Inode, Placement), ViewError>;

    /// The entry of `ino` in `dir` and its place, `None` if there is none. Needs EX on `dir`.
    ///
    /// Cheap for a covered child. For others it may cost a scan of the directory.
    fn entry_of(&self, dir: Ino, ino: Ino) -> Result<Option<(Cookie, Dirent)>, ViewError>;

    /// Checks the right on the content of `ino`.
    fn content_right(&self, ino: Ino, mode: LockMode) -> Result<(), ViewError>;

    /// Whether `dir` has no entries. Needs EX: the answer is used to remove it.
    fn is_empty(&self, dir: Ino) -> Result<bool, ViewError>;

    /// Whether `ino` is `above` or lies below it, for renames of directories across parents.
    fn is_below(&self, ino: Ino, above: Ino) -> Result<bool, ViewError>;

    /// Checks the right on a resource without reading.
    fn right(&self, resource: ResourceId, mode: LockMode) -> Result<(), ViewError>;

    /// Nodes that have, or may have, the inode open now.
    fn open_holders(&self, ino: Ino) -> Vec<NodeId>;

    /// Whether a node other than the asking one may have a covered inode open that is moved to `dir`, and has no right there: it would be asked
    /// by nobody who removes the inode from there.
    fn loses_sight(&self, ino: Ino, dir: Ino) -> bool {
        let _ = (ino, dir);
        false
    }

    /// Spilled extended attributes of `ino`, covered by `placement`'s resource.
    fn spilled_xattrs(&self, ino: Ino) -> Result<XattrList, ViewError>;

    /// Hash of `name` under the volume's key.
    fn name_hash(&self, name: &Name) -> u64;
}
