//! Inodes that are gone for good and that somebody still looks at: a FIFO or a device, of whose opens the kernel tells nobody, a file that
//! is only named by a descriptor (O_PATH), a directory that somebody stands in.
//!
//! What is asked of their attributes is answered with the last that were seen here, until the kernel forgets the inode.

use meta::{FileKind, FsError};
use rustc_hash::FxHashMap;
use types::Ino;

use crate::core::Core;
use crate::request::{Attr, Keep, Reply, Request};
use crate::xattr::ACL_PREFIX;

/// Their last attributes. Of an inode that has another name now they are not asked for.
#[derive(Debug, Default)]
pub(crate) struct Gone(FxHashMap<Ino, Attr>);

impl Gone {
    /// The kernel has forgotten it, or it has a name again.
    pub fn forget(&mut self, ino: Ino) {
        if !self.0.is_empty() {
            self.0.remove(&ino);
        }
    }
}

impl Core {
    /// Keeps the attributes of inodes whose record went away here, where the kernel has them: with what is newer than the record, as long as that is here.
    pub(crate) fn keep_departed(&mut self) {
        for (ino, inode) in std::mem::take(&mut self.cache.departed) {
            if self.known.get(&ino).is_some_and(|known| known.lookups > 0) {
                let attr = Attr { nlink: 0, ctime: self.clock.wall, ..self.visible(ino, &inode) };
                self.gone.0.insert(ino, attr);
            }
        }
    }

    /// Keeps the attributes of a file without a name that is given up here, where the kernel has it.
    pub(crate) fn keep_given_up(&mut self, ino: Ino) {
        let is_known = self.known.get(&ino).is_some_and(|known| known.lookups > 0);
        if let Some((attr, _)) = self.attr_here(ino).filter(|_| is_known) {
            self.gone.0.insert(ino, Attr { nlink: 0, ..attr });
        }
    }

    /// A directory of which nothing was here is no more: the next look at it is answered with what the kernel judges it by. Whoever goes on in it, and
    /// has the kernel walk there once more, is to learn that nothing is in it.
    pub(crate) fn keep_judged(&mut self, request: &Request) {
        let (Request::GetAttr { ino } | Request::Stat { ino }) = request else { return };
        let Some(known) = self.known.get(ino).filter(|known| known.lookups > 0) else { return };
        if known.seat.place().is_none() {
            return;
        }
        let now = self.clock.wall;
        let attr = Attr {
            ino: *ino,
            generation: known.end.generation(),
            kind: FileKind::Directory,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            tree: 0,
            stored_bytes: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        self.gone.0.insert(*ino, known.judged.told_last(attr));
    }

    /// The answer to a look at an inode that is no more. Whoever does not own it is judged by an access list, for which the kernel asks each time that it has
    /// asked for attributes: it has none now.
    pub(crate) fn last_look(&self, request: &Request) -> Option<Reply> {
        match request {
            Request::GetAttr { ino } | Request::Stat { ino } => {
                self.gone.0.get(ino).map(|attr| Reply::Attr(*attr, Keep::No))
            }
            Request::GetXattr { ino, name } if name.starts_with(ACL_PREFIX) => {
                self.gone.0.contains_key(ino).then_some(Reply::Error(FsError::NoAttribute))
            }
            _ => None,
        }
    }
}
