//! The master's view: everything that the store holds, with every right.

use std::cell::RefCell;

use types::{Ino, LockMode, Name, NodeId, ResourceId};

use crate::cookie::{Cookie, CookieKey};
use crate::error::FsError;
use crate::keys::Key;
use crate::ops::XattrList;
use crate::record::{Dirent, Inode, Placement, StoredInode};
use crate::store::{Damage, KeyText, KeyValue, ReadFailure, StoreRead, read, read_named, value_decode};
use crate::view::{Lookup, View, ViewError};

/// A [`View`] of a store that never misses a right.
///
/// A failed read answers [`FsError::Io`]; the cause waits in [`StoreView::take_failures`].
pub struct StoreView<'a, S> {
    store: &'a S,
    cookie_key: CookieKey,
    open_holders: &'a dyn Fn(Ino) -> Vec<NodeId>,
    failures: RefCell<Vec<ReadFailure>>,
}

impl<'a, S: StoreRead> StoreView<'a, S> {
    /// A view of `store`. `open_holders` answers [`View::open_holders`].
    pub fn new(store: &'a S, cookie_key: CookieKey, open_holders: &'a dyn Fn(Ino) -> Vec<NodeId>) -> Self {
        Self { store, cookie_key, open_holders, failures: RefCell::default() }
    }

    /// Why reads failed since the last call, in order: a store that fails, or damaged records.
    pub fn take_failures(&self) -> Vec<ReadFailure> {
        self.failures.take()
    }

    /// Entries of `dir` with a cookie above `after`, in order, at most `limit`.
    pub fn entries(&self, dir: Ino, after: Cookie, limit: usize) -> Result<Vec<(Cookie, Dirent)>, ViewError> {
        let (start, end) = Key::entries_after(dir, after);
        self.told(self.scan_entries(&start, &end, limit))
    }

    /// Remembers a failure and turns it into the operation's answer.
    fn told<T>(&self, result: Result<T, ReadFailure>) -> Result<T, ViewError> {
        result.map_err(|failure| {
            self.failures.borrow_mut().push(failure);
            FsError::Io.into()
        })
    }

    fn scan_entries(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
    ) -> Result<Vec<(Cookie, Dirent)>, ReadFailure> {
        let found = self.store.scan(start, end, limit)?;
        let decode = |(key, value): KeyValue| {
            let entry = value_decode(&key, &value)?;
            match Key::from_slice(&key) {
                Some(Key::Entry(_, cookie)) => Ok((cookie, entry)),
                _ => Err(Damage::Contradiction { key: KeyText(key) }.into()),
            }
        };
        found.into_iter().map(decode).collect()
    }

    fn read_inode(&self, ino: Ino) -> Result<Option<(Inode, Placement)>, ReadFailure> {
        let Some(stored) = read(self.store, Key::Inode(ino))? else { return Ok(None) };
        Ok(Some(match stored {
            StoredInode::Directory { inode } => (*inode, Placement::Own {}),
            StoredInode::Own { attr } => {
                let content = read_named(self.store, Key::Content(ino))?;
                (Inode { attr, content }, Placement::Own {})
            }
            StoredInode::Covered { parent, cookie } => {
                let entry = self.read_covering_entry(parent, cookie, ino)?;
                let key = Key::Entry(parent, cookie);
                let inode = entry.covered().ok_or(Damage::Contradiction { key: key.into() })?.clone();
                (inode, Placement::Covered { parent, cookie })
            }
        }))
    }

    fn read_covering_entry(&self, parent: Ino, cookie: Cookie, ino: Ino) -> Result<Dirent, ReadFailure> {
        let key = Key::Entry(parent, cookie);
        let entry: Dirent = read_named(self.store, key)?;
        if entry.ino != ino {
            return Err(Damage::Contradiction { key: key.into() }.into());
        }
        Ok(entry)
    }

    fn find_entry(&self, dir: Ino, ino: Ino) -> Result<Option<(Cookie, Dirent)>, ReadFailure> {
        match read(self.store, Key::Inode(ino))? {
            None => return Ok(None),
            Some(StoredInode::Covered { parent, .. }) if parent != dir => return Ok(None),
            Some(StoredInode::Covered { parent, cookie }) => {
                return Ok(Some((cookie, self.read_covering_entry(parent, cookie, ino)?)));
            }
            Some(StoredInode::Directory { .. } | StoredInode::Own { .. }) => {}
        }
        let mut after = Cookie::START;
        loop {
            let (start, end) = Key::entries_after(dir, after);
            let entries = self.scan_entries(&start, &end, SCAN_CHUNK)?;
            let Some((last, _)) = entries.last() else { return Ok(None) };
            after = *last;
            if let Some(found) = entries.into_iter().find(|(_, entry)| entry.ino == ino) {
                return Ok(Some(found));
            }
        }
    }

    fn walk_up(&self, ino: Ino, above: Ino) -> Result<Option<bool>, ReadFailure> {
        let mut at = ino;
        for _ in 0..DEPTH_MAX {
            if at == above {
                return Ok(Some(true));
            }
            if at == Ino::ROOT {
                return Ok(Some(false));
            }
            let Some((inode, _)) = self.read_inode(at)? else { return Ok(None) };
            at = inode.attr.parent;
        }
        Err(Damage::Contradiction { key: Key::Inode(ino).into() }.into())
    }
}

impl<S: StoreRead> View for StoreView<'_, S> {
    fn lookup(&self, dir: Ino, name: &Name, _mode: LockMode) -> Result<Lookup, ViewError> {
        let (first, last) = Cookie::range_of(self.name_hash(name));
        // The last cookie of a range is never given out, which makes it the scan's end.
        let (start, end) = (Key::Entry(dir, first).to_vec(), Key::Entry(dir, last).to_vec());
        let entries = self.told(self.scan_entries(&start, &end, usize::from(u8::MAX)))?;
        let mut free = first;
        for (cookie, entry) in entries {
            if entry.name == *name {
                return Ok(Lookup::Found { cookie, entry });
            }
            if cookie == free {
                free = Cookie(cookie.0 + 1);
            }
        }
        if free == last {
            return Err(FsError::NoSpace.into());
        }
        Ok(Lookup::Absent { cookie: free })
    }

    fn inode(&self, ino: Ino, _mode: LockMode) -> Result<(Inode, Placement), ViewError> {
        self.told(self.read_inode(ino))?.ok_or(FsError::NotFound.into())
    }

    fn entry_of(&self, dir: Ino, ino: Ino) -> Result<Option<(Cookie, Dirent)>, ViewError> {
        self.told(self.find_entry(dir, ino))
    }

    fn content_right(&self, _ino: Ino, _mode: LockMode) -> Result<(), ViewError> {
        Ok(())
    }

    fn is_empty(&self, dir: Ino) -> Result<bool, ViewError> {
        let (start, end) = Key::entries_after(dir, Cookie::START);
        let found = self.told(self.store.scan(&start, &end, 1).map_err(ReadFailure::from))?;
        Ok(found.is_empty())
    }

    fn is_below(&self, ino: Ino, above: Ino) -> Result<bool, ViewError> {
        self.told(self.walk_up(ino, above))?.ok_or(FsError::NotFound.into())
    }

    fn right(&self, _resource: ResourceId, _mode: LockMode) -> Result<(), ViewError> {
        Ok(())
    }

    fn open_holders(&self, ino: Ino) -> Vec<NodeId> {
        (self.open_holders)(ino)
    }

    fn spilled_xattrs(&self, ino: Ino) -> Result<XattrList, ViewError> {
        self.told(read_named(self.store, Key::Xattrs(ino)))
    }

    fn name_hash(&self, name: &Name) -> u64 {
        self.cookie_key.hash(name.as_bytes())
    }
}

/// Entries read at once when a directory is searched for an inode.
const SCAN_CHUNK: usize = 256;
/// A path that is deeper runs in a circle: `PATH_MAX` bounds what can be named, moves can go beyond it.
const DEPTH_MAX: usize = 1 << 20;
