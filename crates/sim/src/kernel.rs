//! What a node's kernel has cached, as far as the node told it that it may keep it.
//!
//! The check that matters: whatever is in here may be shown to a process at any moment without asking the
//! node, so after each operation it must be true (ARCHITECTURE.md, invariant 2).

use std::collections::BTreeMap;

use types::Ino;
use vfs::{Attr, Entry, Invalidation, Keep};

/// A kernel's caches.
#[derive(Debug, Default)]
pub struct Kernel {
    /// Names, positive and negative.
    pub names: BTreeMap<(Ino, Vec<u8>), Option<Ino>>,
    /// Attributes.
    pub attrs: BTreeMap<Ino, Attr>,
    /// Pages: the whole content as read.
    pub pages: BTreeMap<Ino, Vec<u8>>,
    /// References per inode, to be forgotten.
    pub lookups: BTreeMap<Ino, u64>,
}

impl Kernel {
    /// Takes in an entry that answers a lookup or a creation.
    pub fn entry(&mut self, parent: Ino, name: &[u8], entry: &Entry) {
        *self.lookups.entry(entry.attr.ino).or_default() += 1;
        let key = (parent, name.to_vec());
        match entry.keep_name {
            Keep::Yes => drop(self.names.insert(key, Some(entry.attr.ino))),
            Keep::No => drop(self.names.remove(&key)),
        }
        self.attr(&entry.attr, entry.keep_attr);
    }

    /// Takes in attributes.
    pub fn attr(&mut self, attr: &Attr, keep: Keep) {
        match keep {
            Keep::Yes => drop(self.attrs.insert(attr.ino, *attr)),
            Keep::No => drop(self.attrs.remove(&attr.ino)),
        }
    }

    /// Takes in that a name does not exist.
    pub fn no_entry(&mut self, parent: Ino, name: &[u8], keep: Keep) {
        let key = (parent, name.to_vec());
        match keep {
            Keep::Yes => drop(self.names.insert(key, None)),
            Keep::No => drop(self.names.remove(&key)),
        }
    }

    /// What the kernel itself drops when one of its processes changes a directory.
    pub fn changed(&mut self, parent: Ino, name: &[u8]) {
        if let Some(Some(ino)) = self.names.remove(&(parent, name.to_vec())) {
            self.attrs.remove(&ino);
        }
        self.attrs.remove(&parent);
    }

    /// Carries out an invalidation.
    pub fn invalidate(&mut self, invalidation: &Invalidation) {
        match invalidation {
            Invalidation::Name { parent, name } => {
                self.names.remove(&(*parent, name.as_bytes().to_vec()));
                self.attrs.remove(parent);
            }
            Invalidation::Directory { ino } | Invalidation::Attr { ino } => drop(self.attrs.remove(ino)),
            Invalidation::Pages { ino } => {
                self.attrs.remove(ino);
                self.pages.remove(ino);
            }
        }
    }
}
