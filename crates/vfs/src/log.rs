//! The write-behind log: changes of this node in order, sealed into batches, kept until durable.
//!
//! Invariants:
//!
//! - Batches are numbered without holes and sent in order; each holds every change up to a point and nothing
//!   after it, so the master always has a prefix (ARCHITECTURE.md, invariant 3).
//! - Within the open batch only the last change of a key counts; the batch is applied whole.
//! - A batch is kept until the master reports it durable, so that it can be sent again to another master.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use meta::ops::DELETED_PAGES_MAX;
use meta::{Change, ChangeKey};
use rustc_hash::FxHashMap;
use types::{Account, BatchSeq, Charge, Credit, Ino, LockMode, ResourceId, SegmentId};
use wire::ToMaster;

/// The log of a node.
#[derive(Debug)]
pub struct WriteLog {
    changes: Vec<Option<Change>>,
    at: FxHashMap<ChangeKey, usize>,
    /// Changes in the open batch that no later one replaces.
    count: usize,
    bytes: usize,
    live: BTreeMap<SegmentId, i64>,
    usage: BTreeMap<Charge, (i64, i64)>,
    /// Credit that the open batch uses, bytes and inodes.
    spent: BTreeMap<Account, (i64, i64)>,
    kept: Vec<(ResourceId, LockMode)>,
    has_copy: bool,
    /// Pages of extents that go with the changes, at most.
    pages_deleted: u64,
    sealed: VecDeque<Sealed>,
    sealed_bytes: usize,
    last: BatchSeq,
    durable: BatchSeq,
    sync_asked: BatchSeq,
}

/// A sealed batch.
#[derive(Debug)]
struct Sealed {
    seq: BatchSeq,
    bytes: usize,
    message: ToMaster,
}

/// Bytes at which a batch is sealed: with its last operation and the rights that it declares it fits a message.
pub const BATCH_BYTES: usize = wire::PART_BYTES - (128 << 10);

impl Default for WriteLog {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteLog {
    /// An empty log.
    pub fn new() -> Self {
        Self {
            changes: Vec::new(),
            at: FxHashMap::default(),
            count: 0,
            bytes: 0,
            live: BTreeMap::new(),
            usage: BTreeMap::new(),
            spent: BTreeMap::new(),
            kept: Vec::new(),
            has_copy: false,
            pages_deleted: 0,
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            last: BatchSeq(0),
            durable: BatchSeq(0),
            sync_asked: BatchSeq(0),
        }
    }

    /// Appends a change.
    pub fn append(&mut self, change: Change) {
        let Some(key) = change.key() else {
            match change {
                Change::AddLive { segment, bytes } => {
                    let live = self.live.entry(segment).or_default();
                    *live = live.saturating_add(bytes);
                }
                Change::AddUsage { charge, bytes, inodes } => {
                    let (all_bytes, all_inodes) = self.usage.entry(charge).or_default();
                    *all_bytes = all_bytes.saturating_add(bytes);
                    *all_inodes = all_inodes.saturating_add(inodes);
                }
                _ => {}
            }
            return;
        };
        self.bytes += change.encoded_len_max();
        match self.at.entry(key) {
            Entry::Vacant(vacant) => _ = vacant.insert(self.changes.len()),
            Entry::Occupied(mut at) => {
                let old = &mut self.changes[*at.get()];
                if let Some(old) = old {
                    self.bytes -= old.encoded_len_max();
                    if is_newer_record(old, &change) {
                        *old = change;
                        return;
                    }
                    self.count -= 1;
                }
                *old = None;
                at.insert(self.changes.len());
            }
        }
        self.count += 1;
        self.changes.push(Some(change));
    }

    /// Notes credit that the open batch uses.
    pub fn note_spent(&mut self, account: Account, bytes: i64, inodes: i64) {
        let (all_bytes, all_inodes) = self.spent.entry(account).or_default();
        *all_bytes = all_bytes.saturating_add(bytes);
        *all_inodes = all_inodes.saturating_add(inodes);
    }

    /// Forgets the credit of all other accounts.
    pub fn keep_spent(&mut self, accounts: &[Account]) {
        self.spent.retain(|account, _| accounts.contains(account));
    }

    /// Credit that the open batch uses.
    pub fn spent(&self, account: Account) -> (i64, i64) {
        self.spent.get(&account).copied().unwrap_or_default()
    }

    /// Credit that sealed batches after `applied` use.
    pub fn spent_after(&self, applied: BatchSeq) -> Vec<Credit> {
        let later = self.sealed.iter().filter(|sealed| sealed.seq > applied);
        let spent = later.filter_map(|sealed| match &sealed.message {
            ToMaster::Batch { spent, .. } => Some(spent.iter().copied()),
            _ => None,
        });
        spent.flatten().collect()
    }

    /// Declares a token on something that the open batch makes.
    pub fn declare(&mut self, resource: ResourceId, mode: LockMode) {
        self.kept.push((resource, mode));
    }

    /// Notes that the open batch names bytes of a file that others may change when they are let.
    pub fn note_copy(&mut self) {
        self.has_copy = true;
    }

    /// Whether the open batch is to be sent before anything else is.
    pub fn has_copy(&self) -> bool {
        self.has_copy
    }

    /// Whether the open batch has the record of an inode with keys of its own, perhaps the first.
    pub fn has_record_of(&self, ino: Ino) -> bool {
        self.at.contains_key(&ChangeKey::Inode(ino))
    }

    /// Whether the open batch has enough to be sent, or the master enough to do with it.
    pub fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.pages_deleted >= DELETED_PAGES_MAX
    }

    /// Notes how many pages of extents a change deletes, at most.
    pub fn note_pages_deleted(&mut self, pages: u64) {
        self.pages_deleted = self.pages_deleted.saturating_add(pages);
    }

    /// Whether nothing waits to be sealed.
    pub fn is_open_empty(&self) -> bool {
        self.changes.is_empty() && self.live.is_empty() && self.usage.values().all(|sums| *sums == (0, 0))
    }

    /// Seals the open batch. Returns the message to send, `None` if there was nothing to seal.
    pub fn seal(&mut self, sync: bool) -> Option<ToMaster> {
        if self.is_open_empty() && self.kept.is_empty() && !sync {
            return None;
        }
        let mut changes = Vec::with_capacity(self.count + self.live.len() + self.usage.len());
        // The list keeps its memory: the next batch is about as long.
        changes.extend(self.changes.drain(..).flatten());
        for (segment, bytes) in std::mem::take(&mut self.live) {
            if bytes != 0 {
                changes.push(Change::AddLive { segment, bytes });
            }
        }
        for (charge, (bytes, inodes)) in std::mem::take(&mut self.usage) {
            if (bytes, inodes) != (0, 0) {
                changes.push(Change::AddUsage { charge, bytes, inodes });
            }
        }
        self.at.clear();
        self.count = 0;
        self.has_copy = false;
        self.pages_deleted = 0;
        self.last = BatchSeq(self.last.0 + 1);
        if sync {
            self.sync_asked = self.last;
        }
        let kept = std::mem::take(&mut self.kept);
        let spent = std::mem::take(&mut self.spent).into_iter();
        let spent = spent.map(|(account, (bytes, inodes))| Credit { account, bytes, inodes }).collect();
        let message = ToMaster::Batch { seq: self.last, kept, changes: Arc::new(changes), sync, spent };
        let bytes = std::mem::take(&mut self.bytes) + 64;
        self.sealed_bytes += bytes;
        self.sealed.push_back(Sealed { seq: self.last, bytes, message: message.clone() });
        Some(message)
    }

    /// Takes in that batches up to `seq` are durable.
    pub fn on_durable(&mut self, seq: BatchSeq) {
        // None that was not made can be.
        self.durable = self.durable.max(seq.min(self.last));
        while let Some(front) = self.sealed.front()
            && front.seq <= self.durable
        {
            self.sealed_bytes -= front.bytes;
            self.sealed.pop_front();
        }
    }

    /// Batches to send to a new master that has applied those up to `applied`.
    pub fn resend_after(&mut self, applied: BatchSeq) -> Vec<ToMaster> {
        self.sealed.iter().filter(|s| s.seq > applied).map(|s| s.message.clone()).collect()
    }

    /// Resources that a batch changes and does not make, once each. None if it is not kept any more.
    pub fn changed_by(&self, seq: BatchSeq) -> BTreeSet<ResourceId> {
        let sealed = self.sealed.iter().find(|sealed| sealed.seq == seq).map(|sealed| &sealed.message);
        let Some(ToMaster::Batch { kept, changes, .. }) = sealed else { return BTreeSet::new() };
        let is_made = |resource: &ResourceId| kept.iter().any(|(made, _)| made == resource);
        changes.iter().filter_map(Change::resource).filter(|resource| !is_made(resource)).collect()
    }

    /// Last sealed batch.
    pub fn last(&self) -> BatchSeq {
        self.last
    }

    /// Last batch known to be durable.
    pub fn durable(&self) -> BatchSeq {
        self.durable
    }

    /// Last batch whose durability was asked for.
    pub fn sync_asked(&self) -> BatchSeq {
        self.sync_asked
    }

    /// Bytes kept, sealed or not.
    pub fn bytes(&self) -> usize {
        self.bytes + self.sealed_bytes
    }

    /// Changes that no master has, and batches that are not durable.
    pub fn unflushed(&self) -> (u64, u64) {
        (self.count as u64, self.sealed.len() as u64)
    }

    /// Changes that are not known to be durable.
    fn undurable(&self) -> impl Iterator<Item = &Change> {
        let sealed = self.sealed.iter().flat_map(|sealed| match &sealed.message {
            ToMaster::Batch { changes, .. } => changes.as_slice(),
            _ => &[],
        });
        self.changes.iter().flatten().chain(sealed)
    }

    /// Directories in which names are not known to be durable.
    pub fn directories(&self) -> BTreeSet<Ino> {
        let dirs = self.undurable().filter_map(|change| match change {
            Change::PutEntry { parent, .. } | Change::DeleteEntry { parent, .. } => Some(*parent),
            Change::PutDirectory { ino, .. } => Some(*ino),
            _ => None,
        });
        dirs.collect()
    }

    /// Inodes of which what an fsync stores is not known to be durable.
    pub fn content(&self) -> BTreeSet<Ino> {
        let inos = self.undurable().filter_map(|change| match change {
            Change::PutContent { ino, .. }
            | Change::PutExtentPage { ino, .. }
            | Change::PutAttr { ino, .. }
            | Change::PutXattrs { ino, .. } => Some(*ino),
            Change::PutEntry { entry, .. } => entry.covered().map(|_| entry.ino),
            _ => None,
        });
        inos.collect()
    }

    /// Drops everything: the membership has ended. Returns how many changes are not known to have been taken in.
    pub fn clear(&mut self) -> u64 {
        let sealed = self.sealed.iter().map(|sealed| match &sealed.message {
            ToMaster::Batch { changes, .. } => changes.len() as u64,
            _ => 0,
        });
        let lost = sealed.sum::<u64>() + self.changes.iter().flatten().count() as u64;
        *self = Self::new();
        lost
    }
}

/// Whether a change is the same record once more, with other values: it may stand where the earlier one stood, for nothing
/// between them can depend on it. A directory gets a new record with each name made in it.
fn is_newer_record(old: &Change, new: &Change) -> bool {
    matches!((old, new), (Change::PutDirectory { .. }, Change::PutDirectory { .. }))
}
