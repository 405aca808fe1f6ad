//! Changes as writes of the engine.
//!
//! Pure but for reads of what a change adds to: sums, and extent pages that go away. The writes of one list are
//! to be committed as one.

use std::collections::{BTreeMap, BTreeSet};

use chunk::ExtentMap;
use thiserror::Error;
use types::{Charge, Decode, Encode, Ino, NodeId, SegmentId};

use crate::change::Change;
use crate::keys::Key;
use crate::record::{Content, StoredInode};
use crate::store::{Damage, KeyText, ReadFailure, StoreRead, value_decode, value_encode};
use crate::volume::{OrphanRecord, RedoRecord, SegmentRecord, Totals, UsageRecord, live_bytes_of};

/// A key and its new value; `None` removes it.
pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// What a list of changes comes to.
#[derive(Debug, PartialEq, Eq)]
pub struct Applied {
    /// In key order, each key once.
    pub writes: Vec<Write>,
    /// Sums that fell below zero, what could not be read of what they add to, and deleted extent pages that could not
    /// be read, whose space is lost until a check. Worth a warning, no reason to refuse: whoever made a change cannot take it back.
    pub damage: Vec<Damage>,
}

/// Why a list of changes could not become writes. Nothing was decided.
#[derive(Debug, Error)]
#[error("changes could not be applied")]
pub struct ApplyError(#[from] ReadFailure);

/// Translates `changes`, in order, into writes over `store`.
///
/// `writer` is the node that made them: a segment that is named first here is taken to be its own.
pub fn apply(changes: &[Change], store: &impl StoreRead, writer: NodeId) -> Result<Applied, ApplyError> {
    let mut applier =
        Applier { store, writer, writes: BTreeMap::new(), live: BTreeMap::new(), damage: Vec::new() };
    for change in changes {
        applier.apply(change)?;
    }
    let own: BTreeSet<Ino> = changes.iter().filter_map(Change::own_inode).collect();
    for ino in own {
        applier.count_own(ino)?;
    }
    applier.sum_live()?;
    Ok(Applied { writes: applier.writes.into_iter().collect(), damage: applier.damage })
}

struct Applier<'a, S> {
    store: &'a S,
    writer: NodeId,
    /// Not committed yet; reads look here first.
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Live bytes more or fewer of segments. All of one list together: pages that it puts and deletes give back bytes that it counts only at its
    /// end.
    live: BTreeMap<SegmentId, i64>,
    damage: Vec<Damage>,
}

impl<S: StoreRead> Applier<'_, S> {
    fn apply(&mut self, change: &Change) -> Result<(), ReadFailure> {
        if let Some((ino, stored)) = change.stored_inode() {
            self.put(Key::Inode(ino), &stored);
            return Ok(());
        }
        match change {
            // Above, by `stored_inode`.
            Change::PutPlacement { .. } | Change::PutDirectory { .. } | Change::PutAttr { .. } => {}
            Change::PutEntry { parent, cookie, entry } => self.put(Key::Entry(*parent, *cookie), entry),
            Change::DeleteEntry { parent, cookie, .. } => self.delete(Key::Entry(*parent, *cookie)),
            Change::PutContent { ino, content } => self.put(Key::Content(*ino), content),
            Change::DeleteContent { ino } => self.delete(Key::Content(*ino)),
            Change::DeleteInode { ino, .. } => {
                self.delete(Key::Inode(*ino));
                self.delete(Key::Content(*ino));
                self.delete(Key::Xattrs(*ino));
            }
            Change::PutExtentPage { ino, page, map, .. } => match map.is_empty() {
                true => self.delete(Key::ExtentPage(*ino, *page)),
                false => self.put(Key::ExtentPage(*ino, *page), map),
            },
            Change::DeleteExtentPages { ino, from_page, .. } => self.delete_pages(*ino, *from_page)?,
            Change::PutXattrs { ino, list, .. } => match list.is_empty() {
                true => self.delete(Key::Xattrs(*ino)),
                false => self.put(Key::Xattrs(*ino), list),
            },
            Change::PutOrphan { ino, holders } => {
                self.put(Key::Orphan(*ino), &OrphanRecord { holders: holders.clone() });
            }
            Change::DeleteOrphan { ino } => self.delete(Key::Orphan(*ino)),
            Change::AddUsage { charge, bytes, inodes } => self.add_usage(*charge, *bytes, *inodes)?,
            Change::AddLive { segment, bytes } => self.add_live(*segment, *bytes),
            Change::PutRedo { segment, offset, bytes } => {
                self.put(Key::Redo(*segment, *offset), &RedoRecord { bytes: bytes.clone() });
            }
            Change::DeleteRedo { segment, offset } => self.delete(Key::Redo(*segment, *offset)),
            Change::Owner { .. } => {}
        }
        Ok(())
    }

    fn put(&mut self, key: Key, record: &impl Encode) {
        let key = key.to_vec();
        let value = value_encode(&key, record);
        self.writes.insert(key, Some(value));
    }

    fn delete(&mut self, key: Key) {
        self.writes.insert(key.to_vec(), None);
    }

    fn read<T: Decode>(&self, key: Key) -> Result<Option<T>, ReadFailure> {
        let bytes = key.to_vec();
        let value = match self.writes.get(&bytes) {
            Some(written) => written.clone(),
            None => self.store.get(&bytes)?,
        };
        Ok(value.map(|value| value_decode(&bytes, &value)).transpose()?)
    }

    /// A sum that cannot be read stays as it is, damaged: changes that add to it must go on, and to begin anew would
    /// make a segment look empty.
    fn read_sum<T: Decode>(&mut self, key: Key, new: T) -> Result<Option<T>, ReadFailure> {
        let sum = self.read(key);
        Ok(self.unless_damaged(&key.to_vec(), sum)?.map(|sum| sum.unwrap_or(new)))
    }

    /// What was read under a key, or from it on; `None`, noted, where that is damaged.
    fn unless_damaged<T>(
        &mut self,
        key: &[u8],
        read: Result<T, ReadFailure>,
    ) -> Result<Option<T>, ReadFailure> {
        let damage = match read {
            Ok(read) => return Ok(Some(read)),
            Err(ReadFailure::Damaged(damage)) => damage,
            Err(ReadFailure::Store(failure)) if failure.is_damage() => {
                Damage::Unreadable { key: KeyText(key.to_vec()), cause: failure.cause() }
            }
            Err(failure @ ReadFailure::Store(_)) => return Err(failure),
        };
        self.damage.push(damage);
        Ok(None)
    }

    /// Adds to the volume's totals and to the accounts. An account that uses nothing has no record.
    fn add_usage(&mut self, charge: Charge, bytes: i64, inodes: i64) -> Result<(), ReadFailure> {
        if let Some(old) = self.read_sum(Key::Totals, Totals::default())? {
            let bytes = self.add(Key::Totals, old.bytes, bytes).unwrap_or(0);
            let inodes = self.add(Key::Totals, old.inodes, inodes).unwrap_or(0);
            self.put(Key::Totals, &Totals { bytes, inodes });
        }
        for account in charge.accounts() {
            let key = Key::Usage(account);
            let Some(old) = self.read_sum(key, UsageRecord::default())? else { continue };
            let bytes = self.add(key, old.bytes, bytes).unwrap_or(0);
            let inodes = self.add(key, old.inodes, inodes).unwrap_or(0);
            match (bytes, inodes) {
                (0, 0) => self.delete(key),
                _ => self.put(key, &UsageRecord { bytes, inodes }),
            }
        }
        Ok(())
    }

    /// Counts an inode with keys of its own as it is now instead of as it was.
    fn count_own(&mut self, ino: Ino) -> Result<(), ReadFailure> {
        let was = self.own_usage(ino, |applier, key| applier.store.get(key).map_err(ReadFailure::from))?;
        let is = self.own_usage(ino, |applier, key| match applier.writes.get(key) {
            Some(written) => Ok(written.clone()),
            None => Ok(applier.store.get(key)?),
        })?;
        if was == is {
            return Ok(());
        }
        if let (Some((was, bytes)), Some((is, more))) = (was, is)
            && was == is
        {
            return self.add_usage(is, more - bytes, 0);
        }
        if let Some((charge, bytes)) = was {
            self.add_usage(charge, -bytes, -1)?;
        }
        if let Some((charge, bytes)) = is {
            self.add_usage(charge, bytes, 1)?;
        }
        Ok(())
    }

    /// Whom an inode with keys of its own is charged to, and for how many bytes; `None` if it has none, or cannot be read.
    fn own_usage(
        &mut self,
        ino: Ino,
        get: impl Fn(&Self, &[u8]) -> Result<Option<Vec<u8>>, ReadFailure>,
    ) -> Result<Option<(Charge, i64)>, ReadFailure> {
        let (inode_key, content_key) = (Key::Inode(ino).to_vec(), Key::Content(ino).to_vec());
        let value = get(self, &inode_key);
        let Some(value) = self.unless_damaged(&inode_key, value)?.flatten() else { return Ok(None) };
        let attr = match value_decode(&inode_key, &value) {
            Ok(StoredInode::Own { attr }) => attr,
            Ok(StoredInode::Covered { .. } | StoredInode::Directory { .. }) => return Ok(None),
            Err(damage) => {
                self.damage.push(damage);
                return Ok(None);
            }
        };
        let value = get(self, &content_key);
        let value = self.unless_damaged(&content_key, value)?.flatten();
        let bytes = match value.map(|value| value_decode::<Content>(&content_key, &value)) {
            Some(Ok(content)) => content.body.stored_bytes() as i64,
            None => 0,
            Some(Err(damage)) => {
                self.damage.push(damage);
                0
            }
        };
        Ok(Some((attr.charge(), bytes)))
    }

    fn add_live(&mut self, segment: SegmentId, bytes: i64) {
        let sum = self.live.entry(segment).or_default();
        *sum = sum.saturating_add(bytes);
    }

    fn sum_live(&mut self) -> Result<(), ReadFailure> {
        for (segment, bytes) in std::mem::take(&mut self.live) {
            let key = Key::Segment(segment);
            let record = match self.read(key) {
                // What cannot be read now may be read later, without what is added here: then it must not look emptier than it is.
                Err(ReadFailure::Store(failure)) if failure.is_damage() => {
                    let failed: Result<(), _> = Err(ReadFailure::Store(failure));
                    self.unless_damaged(&key.to_vec(), failed)?;
                    self.put(
                        key,
                        &SegmentRecord { writer: self.writer, live_bytes: SegmentRecord::UNCOUNTED },
                    );
                    continue;
                }
                read => self.unless_damaged(&key.to_vec(), read)?,
            };
            let Some(record) = record else { continue };
            let was_there = record.is_some();
            let record = record.unwrap_or(SegmentRecord { writer: self.writer, live_bytes: 0 });
            match self.add(key, record.live_bytes, bytes) {
                // What was counted wrong is not taken for empty, and deleted.
                None if was_there => {
                    self.put(key, &SegmentRecord { live_bytes: SegmentRecord::UNCOUNTED, ..record });
                }
                None => {}
                Some(live_bytes) => self.put(key, &SegmentRecord { live_bytes, ..record }),
            }
        }
        Ok(())
    }

    /// Adds; `None`, and a word about it, if that is less than nothing.
    fn add(&mut self, key: Key, old: u64, delta: i64) -> Option<u64> {
        match old.checked_add_signed(delta) {
            Some(sum) => Some(sum),
            None if delta > 0 => Some(u64::MAX),
            None => {
                self.damage.push(Damage::Underflow { key: key.into() });
                None
            }
        }
    }

    fn delete_pages(&mut self, ino: Ino, from_page: u64) -> Result<(), ReadFailure> {
        for (key, value) in self.pages(ino, from_page)? {
            match value_decode::<ExtentMap>(&key, &value) {
                Ok(map) => self.give_back(&map),
                Err(damage) => self.damage.push(damage),
            }
            self.writes.insert(key, None);
        }
        Ok(())
    }

    fn give_back(&mut self, map: &ExtentMap) {
        for (segment, bytes) in live_bytes_of(map) {
            self.add_live(segment, -(bytes as i64));
        }
    }

    /// The pages that are there after the changes so far.
    fn pages(&mut self, ino: Ino, from_page: u64) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ReadFailure> {
        let mut start = Key::ExtentPage(ino, from_page).to_vec();
        let (_, end) = Key::extent_pages(ino);
        let written = self.writes.range(start.clone()..end.clone());
        let written: Vec<_> = written.map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut pages = BTreeMap::new();
        loop {
            let found = self.store.scan(&start, &end, SCAN_CHUNK).map_err(ReadFailure::from);
            // What is not seen stays, and takes room until a check.
            let found = self.unless_damaged(&start, found)?.unwrap_or_default();
            let Some((last, _)) = found.last() else { break };
            start = [last.as_slice(), &[0]].concat();
            pages.extend(found);
        }
        for (key, value) in written {
            match value {
                Some(value) => pages.insert(key, value),
                None => pages.remove(&key),
            };
        }
        Ok(pages)
    }
}
/// Extent pages read at once.
const SCAN_CHUNK: usize = 64;
