//! A node's view for plans: its cache, as far as its tokens reach.

use std::cell::Cell;

use meta::{Cookie, Dirent, FsError, Inode, Lookup, Missing, Placement, View, ViewError};
use types::{Ino, LockMode, Name, NodeId, ResourceId};

use crate::cache::{Found, Place};
use crate::core::Core;

/// The view of a node.
pub(crate) struct NodeView<'a> {
    core: &'a Core,
    rights: Rights,
    /// A directory whose next range of entries is needed before the plan can go on.
    pub not_loaded: Cell<Option<Ino>>,
}

/// Which rights count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Those that may be used.
    Usable,
    /// All that are held, also those that are being given back: for the last changes before that.
    Held,
}

impl<'a> NodeView<'a> {
    pub fn new(core: &'a Core, rights: Rights) -> Self {
        Self { core, rights, not_loaded: Cell::new(None) }
    }

    fn need(&self, resource: ResourceId, mode: LockMode) -> Result<(), ViewError> {
        let has = match self.rights {
            Rights::Usable => self.core.tokens.usable(resource),
            Rights::Held => self.core.tokens.held(resource),
        };
        if has.permits(mode) { Ok(()) } else { Err(ViewError::Missing(Missing { resource, mode })) }
    }

    fn covered(&self, parent: Ino, cookie: Cookie, ino: Ino) -> Option<&'a Inode> {
        let entry = self.core.cache.dirs.get(&parent)?.entries.get(&cookie)?;
        if entry.dirent.ino != ino {
            return None;
        }
        entry.dirent.covered()
    }
}

impl View for NodeView<'_> {
    fn lookup(&self, dir: Ino, name: &Name, mode: LockMode) -> Result<Lookup, ViewError> {
        let resource = ResourceId::dir(dir);
        self.need(resource, mode)?;
        let Some(cached) = self.core.cache.dirs.get(&dir) else {
            return Err(ViewError::Missing(Missing { resource, mode }));
        };
        match cached.find(self.name_hash(name), name) {
            Found::Entry(cookie, entry) => Ok(Lookup::Found { cookie, entry: entry.dirent.clone() }),
            Found::Absent(cookie) => Ok(Lookup::Absent { cookie }),
            Found::NoPlace => Err(FsError::NoSpace.into()),
            Found::NotLoaded => {
                self.not_loaded.set(Some(dir));
                Err(ViewError::Missing(Missing { resource, mode }))
            }
        }
    }

    fn inode(&self, ino: Ino, mode: LockMode) -> Result<(Inode, Placement), ViewError> {
        if let Some(dir) = self.core.cache.dirs.get(&ino) {
            self.need(ResourceId::dir(ino), mode)?;
            return Ok((dir.inode.clone(), Placement::Own {}));
        }
        if let Some(own) = self.core.cache.owns.get(&ino) {
            self.need(ResourceId::attr(ino), mode)?;
            let missing = |resource| ViewError::Missing(Missing { resource, mode: LockMode::Pr });
            let attr = own.attr.clone().ok_or(missing(ResourceId::attr(ino)))?;
            // The content's own fields are judged by `content_right`; without them no record can be made up.
            let content = own.content.clone().ok_or(missing(ResourceId::file(ino)))?;
            return Ok((Inode { attr, content }, Placement::Own {}));
        }
        if let Place::Covered(parent, cookie) = self.core.place(ino) {
            let resource = ResourceId::dir(parent);
            self.need(resource, mode)?;
            return match self.covered(parent, cookie, ino) {
                Some(inode) => Ok((inode.clone(), Placement::Covered { parent, cookie })),
                None => Err(ViewError::Missing(Missing { resource, mode })),
            };
        }
        // Not known to the kernel: a child that a plan found by name, or something that is not held at all.
        Err(ViewError::Missing(Missing { resource: ResourceId::attr(ino), mode }))
    }

    fn entry_of(&self, dir: Ino, ino: Ino) -> Result<Option<(Cookie, Dirent)>, ViewError> {
        let resource = ResourceId::dir(dir);
        self.need(resource, LockMode::Ex)?;
        let Some(cached) = self.core.cache.dirs.get(&dir) else {
            return Err(ViewError::Missing(Missing { resource, mode: LockMode::Ex }));
        };
        if let Place::Covered(parent, cookie) = self.core.place(ino) {
            if parent != dir {
                return Ok(None);
            }
            if let Some(entry) = cached.entries.get(&cookie).filter(|e| e.dirent.ino == ino) {
                return Ok(Some((cookie, entry.dirent.clone())));
            }
        }
        let found = cached.entries.iter().find(|(_, e)| e.dirent.ino == ino);
        match found {
            Some((cookie, entry)) => Ok(Some((*cookie, entry.dirent.clone()))),
            None if cached.is_complete() => Ok(None),
            None => Err(ViewError::Missing(Missing { resource, mode: LockMode::Ex })),
        }
    }

    fn content_right(&self, ino: Ino, mode: LockMode) -> Result<(), ViewError> {
        if self.core.cache.owns.contains_key(&ino) {
            return self.need(ResourceId::file(ino), mode);
        }
        match self.core.place(ino) {
            Place::Covered(parent, _) => self.need(ResourceId::dir(parent), mode),
            Place::Own | Place::Unknown => self.need(ResourceId::file(ino), mode),
        }
    }

    fn is_empty(&self, dir: Ino) -> Result<bool, ViewError> {
        let resource = ResourceId::dir(dir);
        self.need(resource, LockMode::Ex)?;
        match self.core.cache.dirs.get(&dir) {
            Some(cached) if !cached.entries.is_empty() => Ok(false),
            Some(cached) if cached.is_complete() => Ok(true),
            Some(_) | None => Err(ViewError::Missing(Missing { resource, mode: LockMode::Ex })),
        }
    }

    fn is_below(&self, _ino: Ino, _above: Ino) -> Result<bool, ViewError> {
        // Only the master sees the whole tree at once.
        Err(ViewError::Missing(Missing { resource: ResourceId::RENAME, mode: LockMode::Ex }))
    }

    fn right(&self, resource: ResourceId, mode: LockMode) -> Result<(), ViewError> {
        self.need(resource, mode)
    }

    fn open_holders(&self, ino: Ino) -> Vec<NodeId> {
        match self.core.known.get(&ino) {
            Some(known) if known.is_open() => vec![self.core.me],
            Some(_) | None => Vec::new(),
        }
    }

    fn spilled_xattrs(&self, ino: Ino) -> Result<Vec<(Name, Box<[u8]>)>, ViewError> {
        // Never cached: operations on spilled attributes run at the master.
        Err(ViewError::Missing(Missing { resource: ResourceId::attr(ino), mode: LockMode::Ex }))
    }

    fn name_hash(&self, name: &Name) -> u64 {
        self.core.cookie_key.hash(name.as_bytes())
    }
}
