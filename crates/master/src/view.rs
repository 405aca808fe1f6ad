//! The master's view for plans: the engine's records, and who else holds what.

use std::cell::RefCell;
use std::collections::BTreeSet;

use kv::{Engine, EngineError, KeyRange, ScanLimit};
use lock::{MasterTable, Need};
use meta::{
    Cookie, Dirent, Inode, Key, KeyValue, Lookup, Missing, Placement, StoreError, StoreRead, StoreView, View,
    ViewError,
};
use types::{Decode, Ino, LockMode, Name, NodeId, ResourceId};

use crate::state::Master;

/// The engine as a store of records.
pub(crate) struct EngineStore<'a>(pub &'a dyn Engine);

impl StoreRead for EngineStore<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(key).map_err(failure)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<KeyValue>, StoreError> {
        let range = KeyRange::new(start, end);
        let limit = ScanLimit { entries: limit, bytes: SCAN_BYTES };
        let page = self.0.scan(&range, limit, kv::Direction::Forward).map_err(failure)?;
        Ok(page.entries)
    }
}

/// Damage in the engine's files is damage of what is in there; anything else may pass.
fn failure(error: EngineError) -> StoreError {
    match error {
        EngineError::Corrupt { .. } => StoreError::damaged(error),
        error => StoreError::new(error),
    }
}

const SCAN_BYTES: usize = 1 << 20;

/// A view for an operation of `node`: a right is missing where another node holds EX.
pub(crate) struct MasterView<'a> {
    store: StoreView<'a, EngineStore<'a>>,
    records: &'a EngineStore<'a>,
    table: &'a MasterTable,
    split_places: &'a std::collections::BTreeMap<Ino, (Ino, Cookie)>,
    node: NodeId,
    /// What was looked at.
    basis: RefCell<BTreeSet<ResourceId>>,
}

impl<'a> MasterView<'a> {
    pub fn new(
        master: &'a Master,
        records: &'a EngineStore<'a>,
        node: NodeId,
        holders: &'a dyn Fn(Ino) -> Vec<NodeId>,
    ) -> Self {
        Self {
            store: StoreView::new(records, master.cookie_key, holders),
            records,
            table: &master.table,
            split_places: &master.split_places,
            node,
            basis: RefCell::default(),
        }
    }

    /// Everything that was looked at.
    pub fn into_basis(self) -> BTreeSet<ResourceId> {
        self.basis.into_inner()
    }

    /// Logs why reads failed, if any did.
    pub fn log_failures(&self) {
        for failure in self.store.take_failures() {
            log::error!("metadata: {failure}");
        }
    }

    fn need(&self, resource: ResourceId, mode: LockMode) -> Result<(), ViewError> {
        if self.table.is_met(self.node, resource, Need::Change) {
            self.basis.borrow_mut().insert(resource);
            Ok(())
        } else {
            Err(ViewError::Missing(Missing { resource, mode }))
        }
    }

    fn placed(&self, ino: Ino, inode: &Inode, placement: Placement) -> ResourceId {
        match placement {
            Placement::Covered { parent, .. } => ResourceId::dir(parent),
            Placement::Own {} if inode.attr.kind == meta::FileKind::Directory => ResourceId::dir(ino),
            Placement::Own {} => ResourceId::attr(ino),
        }
    }
}

impl View for MasterView<'_> {
    fn lookup(&self, dir: Ino, name: &Name, mode: LockMode) -> Result<Lookup, ViewError> {
        self.need(ResourceId::dir(dir), mode)?;
        self.store.lookup(dir, name, mode)
    }

    fn inode(&self, ino: Ino, mode: LockMode) -> Result<(Inode, Placement), ViewError> {
        let (inode, placement) = self.store.inode(ino, mode)?;
        self.need(self.placed(ino, &inode, placement), mode)?;
        Ok((inode, placement))
    }

    fn entry_of(&self, dir: Ino, ino: Ino) -> Result<Option<(Cookie, Dirent)>, ViewError> {
        self.need(ResourceId::dir(dir), LockMode::Ex)?;
        if let Some((parent, cookie)) = self.split_places.get(&ino)
            && *parent == dir
        {
            let key = Key::Entry(dir, *cookie).to_vec();
            if let Ok(Some(value)) = self.records.get(&key)
                && let Ok(entry) = meta::value_decode::<Dirent>(&key, &value)
                && entry.ino == ino
            {
                return Ok(Some((*cookie, entry)));
            }
        }
        self.store.entry_of(dir, ino)
    }

    fn content_right(&self, ino: Ino, mode: LockMode) -> Result<(), ViewError> {
        let (inode, placement) = self.store.inode(ino, mode)?;
        let resource = match self.placed(ino, &inode, placement) {
            own if own.kind == types::ResourceKind::Attr => ResourceId::file(ino),
            covering => covering,
        };
        self.need(resource, mode)
    }

    fn is_empty(&self, dir: Ino) -> Result<bool, ViewError> {
        self.need(ResourceId::dir(dir), LockMode::Ex)?;
        self.store.is_empty(dir)
    }

    fn is_below(&self, ino: Ino, above: Ino) -> Result<bool, ViewError> {
        self.store.is_below(ino, above)
    }

    fn right(&self, resource: ResourceId, mode: LockMode) -> Result<(), ViewError> {
        self.need(resource, mode)
    }

    fn open_holders(&self, ino: Ino) -> Vec<NodeId> {
        self.store.open_holders(ino)
    }

    fn loses_sight(&self, ino: Ino, dir: Ino) -> bool {
        let reads = |node: NodeId, dir: Ino| self.table.mode(node, ResourceId::dir(dir)) != LockMode::Nl;
        let leaves = match self.store.inode(ino, LockMode::Nl) {
            Ok((_, Placement::Covered { parent, .. })) => Some(parent),
            Ok((_, Placement::Own {})) | Err(_) => None,
        };
        // The sender of the operation too.
        leaves.is_some_and(|parent| reads(self.node, parent)) && !reads(self.node, dir)
            || self.store.open_holders(ino).iter().any(|node| *node != self.node && !reads(*node, dir))
    }

    fn spilled_xattrs(&self, ino: Ino) -> Result<Vec<(Name, Box<[u8]>)>, ViewError> {
        self.store.spilled_xattrs(ino)
    }

    fn name_hash(&self, name: &Name) -> u64 {
        self.store.name_hash(name)
    }
}

impl Master {
    /// Reads and decodes one record; damage is logged and counts as absence of an answer.
    pub(crate) fn read<T: Decode>(&self, key: Key) -> Result<Option<T>, meta::FsError> {
        let key = key.to_vec();
        let value = self.engine.get(&key).map_err(|error| {
            log::error!("metadata engine: {error}");
            meta::FsError::Io
        })?;
        let Some(value) = value else { return Ok(None) };
        meta::value_decode(&key, &value).map(Some).map_err(|damage| {
            log::error!("metadata: {damage}");
            self.metrics.metadata_damaged.add(1);
            meta::FsError::Io
        })
    }
}
