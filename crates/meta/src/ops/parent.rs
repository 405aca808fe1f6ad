//! The directory whose entries an operation changes.

use types::{Ino, LockMode, Name, Timespec};

use super::subject::Subject;
use crate::change::Change;
use crate::cookie::Cookie;
use crate::error::FsError;
use crate::record::{FileKind, Inode};
use crate::view::{Lookup, View, ViewError};

/// A directory's record while an operation changes its entries.
pub(super) struct Parent {
    pub(super) ino: Ino,
    pub(super) inode: Inode,
}

impl Parent {
    /// Reads a directory that is still in the tree.
    ///
    /// [`FsError::NotFound`] for one that was removed while somebody had it open: it takes no new names.
    pub(super) fn load(view: &impl View, ino: Ino, mode: LockMode) -> Result<Self, ViewError> {
        let (inode, _) = view.inode(ino, mode)?;
        if inode.attr.kind != FileKind::Directory {
            return Err(FsError::NotDirectory.into());
        }
        if inode.attr.nlink == 0 {
            return Err(FsError::NotFound.into());
        }
        Ok(Self { ino, inode })
    }

    /// Refuses to take a name from `child` if only who owns that, or this directory, may, and whoever is `bound` owns neither. The kernel of whoever asked
    /// has looked, but at what was there before.
    pub(super) fn check_sticky(&self, child: &Subject, bound: Option<u32>) -> Result<(), FsError> {
        let dir = &self.inode.attr;
        let is_others = |by: u32| by != dir.uid && by != child.inode.attr.uid;
        match dir.mode & MODE_STICKY != 0 && bound.is_some_and(is_others) {
            true => Err(FsError::NotPermitted),
            false => Ok(()),
        }
    }

    /// Stamps a change of the entries.
    pub(super) fn touch(&mut self, now: Timespec) {
        self.inode.content.mtime = now;
        self.inode.content.ctime = now;
        self.inode.attr.ctime = now;
    }

    /// Counts one subdirectory more.
    pub(super) fn add_subdirectory(&mut self) -> Result<(), FsError> {
        let nlink = &mut self.inode.attr.nlink;
        if *nlink >= SUBDIRECTORY_LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        *nlink += 1;
        Ok(())
    }

    /// Counts one subdirectory less. A count that is too low already stays: 0 would mean "removed".
    pub(super) fn remove_subdirectory(&mut self) {
        let nlink = &mut self.inode.attr.nlink;
        *nlink = nlink.saturating_sub(1).max(2);
    }

    /// The change that writes the record.
    pub(super) fn into_change(self) -> Change {
        Change::PutDirectory { ino: self.ino, inode: Box::new(self.inode) }
    }
}

/// A free place for `name`, or [`FsError::Exists`].
pub(super) fn free_cookie(view: &impl View, dir: Ino, name: &Name) -> Result<Cookie, ViewError> {
    match view.lookup(dir, name, LockMode::Ex)? {
        Lookup::Found { .. } => Err(FsError::Exists.into()),
        Lookup::Absent { cookie } => Ok(cookie),
    }
}

/// No limit that anyone reaches; keeps the sum in its type.
const SUBDIRECTORY_LINKS_MAX: u32 = u32::MAX - 1;
/// linux:include/uapi/linux/stat.h
const MODE_STICKY: u32 = 0o1000;
