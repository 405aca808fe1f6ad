//! What a node's kernel has cached, as far as the node told it that it may keep it.
//!
//! The check that matters: whatever is in here may be shown to a process at any moment without asking the
//! node, so after each operation it must be true (ARCHITECTURE.md, invariant 2).

use std::collections::{BTreeMap, BTreeSet};

use meta::FileKind;
use types::Ino;
use vfs::{Attr, Entry, Invalidation, Keep, Reply, Request, RequestId};

/// A kernel's caches.
#[derive(Debug, Default)]
pub struct Kernel {
    /// Names, positive and negative.
    pub names: BTreeMap<(Ino, Vec<u8>), Option<Ino>>,
    /// Attributes.
    pub attrs: BTreeMap<Ino, Attr>,
    /// Pages: the whole content as read.
    pub pages: BTreeMap<Ino, Vec<u8>>,
    /// How often content was changed by writes and truncations.
    pub changes: BTreeMap<Ino, u64>,
    /// References per inode, to be forgotten.
    pub lookups: BTreeMap<Ino, u64>,
    /// Stores through mappings that the node has not been told of, by inode and offset.
    pub stores: BTreeMap<Ino, BTreeMap<u64, u8>>,
    /// Directories by the names under which it has them, whether or not it may go on to use these without asking.
    pub seats: BTreeMap<(Ino, Vec<u8>), Ino>,
    /// Directories that one of its processes removed or replaced, as it believes: it finds no name in them any more.
    pub dead: BTreeSet<Ino>,
    /// Requests that the node has not answered, or whose answers are yet to be taken in, and what the kernel holds locked for them.
    pub pending: BTreeMap<RequestId, Pending>,
}

/// What a request means to the kernel itself when it is answered, whoever still waits for the answer.
#[derive(Clone, Debug, Default)]
pub enum Asked {
    /// Nothing but what the process makes of it.
    #[default]
    Other,
    /// A name is looked up or made.
    Name(Ino, Vec<u8>),
    /// A name is removed.
    Removal(Ino, Vec<u8>),
    /// The name of a directory is removed.
    DirectoryRemoval(Ino, Vec<u8>),
    /// A name is moved.
    Move((Ino, Vec<u8>), (Ino, Vec<u8>)),
    /// Content is changed.
    Content(Ino),
}

impl Asked {
    /// What a request means.
    pub fn of(request: &Request) -> Self {
        let named = |name: &[u8]| name.to_vec();
        match request {
            Request::Lookup { parent, name }
            | Request::Find { parent, name, .. }
            | Request::Make { parent, name, .. }
            | Request::Create { parent, name, .. }
            | Request::Link { parent, name, .. } => Self::Name(*parent, named(name)),
            Request::Unlink { parent, name, .. } => Self::Removal(*parent, named(name)),
            Request::Rmdir { parent, name, .. } => Self::DirectoryRemoval(*parent, named(name)),
            Request::Rename { parent, name, new_parent, new_name, .. } => {
                Self::Move((*parent, named(name)), (*new_parent, named(new_name)))
            }
            Request::Write { ino, .. } | Request::Copy { ino, .. } | Request::SetAttr { ino, .. } => {
                Self::Content(*ino)
            }
            _ => Self::Other,
        }
    }
}

/// What the kernel holds locked during a request.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// Directories that are searched.
    reads: Vec<Ino>,
    /// Directories that change.
    changes: Vec<Ino>,
    /// The file whose pages are filled or written.
    pages: Option<Ino>,
    /// The file of which stores are written back.
    written_back: Option<Ino>,
    /// The file of which all stores are to be written back before.
    settled: Option<Ino>,
}

/// The same removal or rename, for a second try.
pub fn second_try(request: &Request) -> Option<Request> {
    match request {
        Request::Rmdir { parent, name, bound } => {
            Some(Request::Rmdir { parent: *parent, name: name.clone(), bound: *bound })
        }
        Request::Rename { parent, name, new_parent, new_name, mode, bound, whiteout } => {
            Some(Request::Rename {
                bound: *bound,
                parent: *parent,
                name: name.clone(),
                new_parent: *new_parent,
                new_name: new_name.clone(),
                mode: *mode,
                whiteout: whiteout.clone(),
            })
        }
        _ => None,
    }
}

impl Pending {
    /// What a request locks.
    pub fn of(request: &Request) -> Self {
        let mut locks = Self::default();
        match request {
            Request::Lookup { parent, .. } | Request::Find { parent, .. } => locks.reads.push(*parent),
            Request::ReadDir { ino, .. } => locks.reads.push(*ino),
            Request::Make { parent, .. }
            | Request::Create { parent, .. }
            | Request::Link { parent, .. }
            | Request::Unlink { parent, .. }
            | Request::Rmdir { parent, .. } => locks.changes.push(*parent),
            Request::Rename { parent, new_parent, .. } => locks.changes.extend([*parent, *new_parent]),
            Request::Read { ino, .. } | Request::Write { ino, .. } => locks.pages = Some(*ino),
            Request::WritePages { ino, .. } => (locks.pages, locks.written_back) = (Some(*ino), Some(*ino)),
            Request::Fsync { ino } => locks.settled = Some(*ino),
            Request::GetAttr { .. }
            | Request::Stat { .. }
            | Request::Itself { .. }
            | Request::Parent { .. }
            | Request::SetAttr { .. }
            | Request::ReadLink { .. }
            | Request::TmpFile { .. }
            | Request::Open { .. }
            | Request::Flush { .. }
            | Request::Release { .. }
            | Request::StatFs
            | Request::GetXattr { .. }
            | Request::ListXattr { .. }
            | Request::SetXattr { .. }
            | Request::RemoveXattr { .. }
            | Request::Allocate { .. }
            | Request::Copy { .. }
            | Request::Seek { .. }
            | Request::SetLock { .. }
            | Request::Unlock { .. }
            | Request::TestLock { .. } => {}
        }
        locks
    }
}

impl Kernel {
    /// Takes in an entry that answers a lookup or a creation.
    pub fn entry(&mut self, parent: Ino, name: &[u8], entry: &Entry) {
        let ino = entry.attr.ino;
        *self.lookups.entry(ino).or_default() += 1;
        let key = (parent, name.to_vec());
        self.seats.remove(&key);
        if entry.attr.kind == FileKind::Directory {
            assert!(
                !self.dead.contains(&ino),
                "the kernel takes directory {ino:?} for removed, which is there"
            );
            self.seats.retain(|_, seated| *seated != ino);
            self.seats.insert(key.clone(), ino);
        }
        match entry.keep_name {
            Keep::Yes => drop(self.names.insert(key, Some(entry.attr.ino))),
            Keep::No => drop(self.names.remove(&key)),
        }
        self.attr(&entry.attr, entry.keep_attr);
    }

    /// Takes in an answer whose process was killed meanwhile: a kernel does what it means to itself all the same.
    pub fn answered(&mut self, asked: Asked, reply: &Reply) {
        match (asked, reply) {
            (Asked::Name(parent, name), Reply::Entry(entry) | Reply::Created(entry, _)) => {
                self.attrs.remove(&parent);
                self.entry(parent, &name, entry);
            }
            (Asked::Name(parent, name), Reply::NoEntry(keep)) => self.no_entry(parent, &name, *keep),
            (Asked::Removal(parent, name), Reply::Done) => self.changed(parent, &name),
            (Asked::DirectoryRemoval(parent, name), Reply::Done) => self.removed_directory(parent, &name),
            (Asked::Move((parent, name), (new_parent, new_name)), Reply::Done) => {
                self.renamed((parent, &name), (new_parent, &new_name));
            }
            (Asked::Content(ino), _) => {
                self.note_change(ino);
                self.attrs.remove(&ino);
                self.pages.remove(&ino);
            }
            _ => {}
        }
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
        self.seats.remove(&key);
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

    /// What the kernel itself drops when one of its processes removes a directory: the names in it too.
    pub fn removed_directory(&mut self, parent: Ino, name: &[u8]) {
        let removed = self.names.get(&(parent, name.to_vec())).copied().flatten();
        self.dead.extend(self.seats.remove(&(parent, name.to_vec())));
        self.changed(parent, name);
        self.names.retain(|(dir, _), _| Some(*dir) != removed);
    }

    /// What the kernel itself does when one of its processes renamed: the new name lives as long as the old one would have.
    pub fn renamed(&mut self, (parent, name): (Ino, &[u8]), (new_parent, new_name): (Ino, &[u8])) {
        let kept = self.names.get(&(parent, name.to_vec())).copied();
        let (old, new) = ((parent, name.to_vec()), (new_parent, new_name.to_vec()));
        let moved = self.seats.remove(&old);
        let replaced = self.seats.remove(&new).filter(|_| old != new);
        self.dead.extend(replaced);
        self.names.retain(|(dir, _), _| Some(*dir) != replaced);
        self.seats.extend(moved.map(|moved| (new, moved)));
        self.changed(parent, name);
        self.changed(new_parent, new_name);
        if let Some(kept) = kept {
            self.names.insert((new_parent, new_name.to_vec()), kept);
        }
    }

    /// What it asks once more when that was refused as stale, having forgotten what it had under the name that is removed or replaced.
    pub fn asks_again(&mut self, request: &Request) {
        if let Request::Rmdir { parent, name, .. }
        | Request::Rename { new_parent: parent, new_name: name, .. } = request
        {
            let key = (*parent, name.to_vec());
            self.names.remove(&key);
            self.seats.remove(&key);
        }
    }

    /// Whether a request that locks this may start: changes of a directory exclude everything else in it.
    pub fn admits(&self, new: &Pending) -> bool {
        self.pending.values().all(|old| {
            let changing = |dir: &Ino| old.changes.contains(dir);
            let busy = |dir: &Ino| changing(dir) || old.reads.contains(dir);
            !new.reads.iter().any(changing)
                && !new.changes.iter().any(busy)
                && (old.pages.is_none() || new.pages != old.pages)
                && (new.settled.is_none() || new.settled != old.written_back)
        })
    }

    /// Whether a request in progress keeps an invalidation from being carried out.
    pub fn blocks(&self, invalidation: &Invalidation) -> bool {
        match invalidation {
            Invalidation::Name { parent, .. }
            | Invalidation::Unhash { parent, .. }
            | Invalidation::Settled { parent, .. } => self.is_busy(*parent),
            Invalidation::Pages { ino } => self.pending.values().any(|pending| pending.pages == Some(*ino)),
            // A drop that is kept waiting goes on by itself.
            Invalidation::Renamed { .. }
            | Invalidation::Names {}
            | Invalidation::Drop { .. }
            | Invalidation::Lull { .. }
            | Invalidation::Taken { .. }
            | Invalidation::Directory { .. }
            | Invalidation::Attr { .. } => false,
        }
    }

    /// Whether a request holds the lock of a directory.
    pub fn is_busy(&self, dir: Ino) -> bool {
        self.pending.values().any(|pending| pending.reads.contains(&dir) || pending.changes.contains(&dir))
    }

    /// Content is changed: what a read found before is not what its pages hold.
    pub fn note_change(&mut self, ino: Ino) {
        *self.changes.entry(ino).or_default() += 1;
    }

    /// How often content was changed so far.
    pub fn changes_of(&self, ino: Ino) -> u64 {
        self.changes.get(&ino).copied().unwrap_or(0)
    }

    /// Keeps what a read brought that began when content had been changed `changes` times. Pages are locked from
    /// there to here, so a change that the node answered in between comes after them.
    pub fn fill(&mut self, ino: Ino, changes: u64, data: Vec<u8>) {
        if self.changes_of(ino) == changes {
            self.pages.insert(ino, data);
        }
    }

    /// Stores a byte through a mapping of a file whose pages are here.
    pub fn store(&mut self, ino: Ino, offset: u64, byte: u8) {
        if let Some(page) = self.pages.get_mut(&ino).and_then(|pages| pages.get_mut(offset as usize)) {
            *page = byte;
            self.stores.entry(ino).or_default().insert(offset, byte);
        }
    }

    /// What is to be written back of a file.
    pub fn take_stores(&mut self, ino: Ino) -> impl Iterator<Item = (u64, Vec<u8>)> + use<> {
        self.stores.remove(&ino).unwrap_or_default().into_iter().map(|(offset, byte)| (offset, vec![byte]))
    }

    /// Carries out an invalidation.
    pub fn invalidate(&mut self, invalidation: &Invalidation) {
        match invalidation {
            Invalidation::Name { parent, name } | Invalidation::Unhash { parent, name } => {
                self.names.remove(&(*parent, name.as_bytes().to_vec()));
                self.attrs.remove(parent);
            }
            Invalidation::Renamed { .. } | Invalidation::Names {} => self.names.clear(),
            // It takes nothing away that others count on.
            Invalidation::Drop { .. }
            | Invalidation::Settled { .. }
            | Invalidation::Lull { .. }
            | Invalidation::Taken { .. } => {}
            Invalidation::Directory { ino } | Invalidation::Attr { ino } => drop(self.attrs.remove(ino)),
            Invalidation::Pages { ino } => {
                self.attrs.remove(ino);
                self.pages.remove(ino);
            }
        }
    }
}
