//! A store in memory, and a view that writes down which rights a plan used.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use meta::ops::XattrList;
use meta::{Applied, Change, CookieKey, Dirent, FileKind, FsError, Inode, Lookup, Placement, StoreError};
use meta::{Cookie, KeyValue, StoreRead, StoreView, View, ViewError};
use types::{Ino, LockMode, Name, NodeId, ResourceId, Timespec};

/// An ordered map that changes are applied to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapStore(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl MapStore {
    /// An empty volume, its root owned by 0:0.
    pub fn formatted(now: Timespec) -> Self {
        let mut store = Self::default();
        store.apply(&meta::initial_changes(now, 0, 0));
        store
    }

    /// Applies changes made by node 1.
    ///
    /// # Panics
    ///
    /// If they cannot be applied, or a sum falls below zero.
    pub fn apply(&mut self, changes: &[Change]) {
        let Applied { writes, damage } =
            meta::apply(changes, self, NodeId(1)).expect("a map never fails and is never damaged");
        assert_eq!(damage, [], "{changes:?}");
        for (key, value) in writes {
            match value {
                Some(value) => self.0.insert(key, value),
                None => self.0.remove(&key),
            };
        }
    }

    /// The master's view of it.
    pub fn view<'a>(&'a self, open_holders: &'a dyn Fn(Ino) -> Vec<NodeId>) -> StoreView<'a, Self> {
        StoreView::new(self, COOKIE_KEY, open_holders)
    }
}

impl StoreRead for MapStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<KeyValue>, StoreError> {
        let range = self.0.range(start.to_vec()..end.to_vec()).take(limit);
        Ok(range.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

/// The name hash key of every test volume.
pub const COOKIE_KEY: CookieKey = CookieKey([7; 16]);

/// Passes everything on and keeps a list of the rights that were asked for.
pub struct AuditView<'a, V> {
    inner: &'a V,
    held: RefCell<BTreeSet<(ResourceId, LockMode)>>,
}

impl<'a, V: View> AuditView<'a, V> {
    /// Watches `inner`.
    pub fn new(inner: &'a V) -> Self {
        Self { inner, held: RefCell::default() }
    }

    /// Rights asked for so far.
    pub fn rights(&self) -> Vec<(ResourceId, LockMode)> {
        self.held.borrow().iter().copied().collect()
    }

    /// The first change that belongs to a resource the plan did not ask EX for.
    ///
    /// Resources of inodes that the plan makes, or moves out of a directory it holds, are free to use.
    pub fn first_unheld<'c>(&self, changes: &'c [Change]) -> Option<&'c Change> {
        changes.iter().find(|change| change.resource().is_some_and(|resource| !self.may_change(resource)))
    }

    fn may_change(&self, resource: ResourceId) -> bool {
        let is_held = |resource| self.held.borrow().contains(&(resource, LockMode::Ex));
        match self.inner.inode(resource.ino, LockMode::Nl) {
            _ if is_held(resource) => true,
            Err(ViewError::Refused(FsError::NotFound)) => true,
            Ok((_, Placement::Covered { parent, .. })) => is_held(ResourceId::dir(parent)),
            Ok((_, Placement::Own {})) | Err(_) => false,
        }
    }

    fn note(&self, resource: ResourceId, mode: LockMode) {
        self.held.borrow_mut().insert((resource, mode));
    }
}

/// What covers the names' half of an inode.
fn covering(ino: Ino, found: &(Inode, Placement)) -> ResourceId {
    match found {
        (_, Placement::Covered { parent, .. }) => ResourceId::dir(*parent),
        (inode, Placement::Own {}) if inode.attr.kind == FileKind::Directory => ResourceId::dir(ino),
        (_, Placement::Own {}) => ResourceId::attr(ino),
    }
}

impl<V: View> View for AuditView<'_, V> {
    fn lookup(&self, dir: Ino, name: &Name, mode: LockMode) -> Result<Lookup, ViewError> {
        self.note(ResourceId::dir(dir), mode);
        self.inner.lookup(dir, name, mode)
    }

    fn inode(&self, ino: Ino, mode: LockMode) -> Result<(Inode, Placement), ViewError> {
        let found = self.inner.inode(ino, mode)?;
        self.note(covering(ino, &found), mode);
        Ok(found)
    }

    fn entry_of(&self, dir: Ino, ino: Ino) -> Result<Option<(Cookie, Dirent)>, ViewError> {
        self.note(ResourceId::dir(dir), LockMode::Ex);
        self.inner.entry_of(dir, ino)
    }

    fn content_right(&self, ino: Ino, mode: LockMode) -> Result<(), ViewError> {
        let resource = match self.inner.inode(ino, LockMode::Nl)? {
            (inode, Placement::Own {}) if inode.attr.kind != FileKind::Directory => ResourceId::file(ino),
            found => covering(ino, &found),
        };
        self.note(resource, mode);
        self.inner.content_right(ino, mode)
    }

    fn is_empty(&self, dir: Ino) -> Result<bool, ViewError> {
        self.note(ResourceId::dir(dir), LockMode::Ex);
        self.inner.is_empty(dir)
    }

    fn is_below(&self, ino: Ino, above: Ino) -> Result<bool, ViewError> {
        self.inner.is_below(ino, above)
    }

    fn right(&self, resource: ResourceId, mode: LockMode) -> Result<(), ViewError> {
        self.note(resource, mode);
        self.inner.right(resource, mode)
    }

    fn open_holders(&self, ino: Ino) -> Vec<NodeId> {
        self.inner.open_holders(ino)
    }

    fn spilled_xattrs(&self, ino: Ino) -> Result<XattrList, ViewError> {
        self.inner.spilled_xattrs(ino)
    }

    fn name_hash(&self, name: &Name) -> u64 {
        self.inner.name_hash(name)
    }
}
