//! The inode that an operation changes, and where its record is written back.

use std::sync::Arc;

use types::{Ino, LockMode, Name};

use crate::change::Change;
use crate::cookie::Cookie;
use crate::error::FsError;
use crate::record::{Child, Dirent, FileKind, Inode, Placement};
use crate::view::{View, ViewError};

/// An inode read with the right to change its names' half.
pub(super) struct Subject {
    pub(super) ino: Ino,
    pub(super) inode: Inode,
    pub(super) place: Place,
}

/// Where the record is.
pub(super) enum Place {
    /// Embedded in this entry.
    Entry { parent: Ino, cookie: Cookie, name: Name },
    /// A directory, under its own key.
    Directory,
    /// Two halves under keys of their own.
    Own,
}

/// Which halves of a record changed.
#[derive(Clone, Copy)]
pub(super) enum Halves {
    Attr,
    Content,
    Both,
}

impl Subject {
    /// Reads `ino` with EX on what covers its names' half.
    pub(super) fn load(view: &impl View, ino: Ino) -> Result<Self, ViewError> {
        let (inode, placement) = view.inode(ino, LockMode::Ex)?;
        Self::locate(view, ino, inode, placement)
    }

    /// Finds the entry of a record that was read with the right to change it.
    pub(super) fn locate(
        view: &impl View,
        ino: Ino,
        inode: Inode,
        placement: Placement,
    ) -> Result<Self, ViewError> {
        let place = match placement {
            Placement::Covered { parent, .. } => {
                let (cookie, entry) = view.entry_of(parent, ino)?.ok_or(FsError::Io)?;
                Place::Entry { parent, cookie, name: entry.name }
            }
            Placement::Own {} if inode.attr.kind == FileKind::Directory => Place::Directory,
            Placement::Own {} => Place::Own,
        };
        Ok(Self { ino, inode, place })
    }

    /// Takes the inode of an entry that was looked up in `parent` with EX.
    pub(super) fn of_entry(
        view: &impl View,
        parent: Ino,
        cookie: Cookie,
        entry: Dirent,
    ) -> Result<Self, ViewError> {
        match entry.child {
            Child::Covered { inode } => {
                let place = Place::Entry { parent, cookie, name: entry.name };
                Ok(Self { ino: entry.ino, inode: Arc::unwrap_or_clone(inode), place })
            }
            Child::Own { .. } => Self::load(view, entry.ino),
        }
    }

    /// Whether it is a directory.
    pub(super) fn is_directory(&self) -> bool {
        self.inode.attr.kind == FileKind::Directory
    }

    /// The directory that covers it, 0 if none does: what changes name as `parent`.
    pub(super) fn cover(&self) -> Ino {
        match &self.place {
            Place::Entry { parent, .. } => *parent,
            Place::Directory | Place::Own => Ino(0),
        }
    }

    /// What a change of its extended attributes names as `parent`.
    pub(super) fn xattr_cover(&self) -> Ino {
        match &self.place {
            Place::Entry { parent, .. } => *parent,
            Place::Directory => self.ino,
            Place::Own => Ino(0),
        }
    }

    /// What a directory entry holds of it where it stands now.
    pub(super) fn child(&self) -> Child {
        match &self.place {
            Place::Entry { .. } => Child::Covered { inode: Arc::new(self.inode.clone()) },
            Place::Directory | Place::Own => Child::Own { kind: self.inode.attr.kind },
        }
    }

    /// The changes that write the record back to its place.
    pub(super) fn into_changes(self, halves: Halves) -> Vec<Change> {
        let ino = self.ino;
        match self.place {
            Place::Entry { parent, cookie, name } => {
                let child = Child::Covered { inode: Arc::new(self.inode) };
                vec![Change::PutEntry { parent, cookie, entry: Dirent { name, ino, child } }]
            }
            Place::Directory => vec![Change::PutDirectory { ino, inode: Box::new(self.inode) }],
            Place::Own => {
                let attr = Change::PutAttr { ino, attr: self.inode.attr };
                let content = Change::PutContent { ino, content: self.inode.content };
                match halves {
                    Halves::Attr => vec![attr],
                    Halves::Content => vec![content],
                    Halves::Both => vec![attr, content],
                }
            }
        }
    }

    /// The changes that write the names' half where it stands, and of a covered inode first move the whole
    /// record out of its entry.
    pub(super) fn into_split_changes(self) -> Vec<Change> {
        match &self.place {
            Place::Entry { parent, cookie, name } => {
                let (parent, cookie, name) = (*parent, *cookie, name.clone());
                self.into_split_changes_at(parent, cookie, name)
            }
            Place::Directory | Place::Own => self.into_changes(Halves::Attr),
        }
    }

    /// The changes that move the whole record of a covered inode out of its entry, which becomes this one.
    pub(super) fn into_split_changes_at(self, parent: Ino, cookie: Cookie, name: Name) -> Vec<Change> {
        let ino = self.ino;
        let child = Child::Own { kind: self.inode.attr.kind };
        let uncount = self.inode.uncount();
        vec![
            Change::PutEntry { parent, cookie, entry: Dirent { name, ino, child } },
            Change::PutAttr { ino, attr: self.inode.attr },
            Change::PutContent { ino, content: self.inode.content },
            uncount,
        ]
    }
}
