//! Records of the volume as a whole, and what an empty volume holds.

use std::collections::{BTreeMap, BTreeSet};

use chunk::ExtentMap;
use types::{Account, Charge, Ino, NodeId, SegmentId, Timespec, codec_struct};

use crate::change::Change;
use crate::record::{Body, Content, FileKind, Inode, InodeAttr, Xattrs};

/// Sums over the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes stored, as [`Body::stored_bytes`] counts them.
    pub bytes: u64,
    /// Inodes, the root and orphans included.
    pub inodes: u64,
}

codec_struct!(Totals { bytes, inodes });

/// What an account uses. There is a record for who uses anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageRecord {
    /// Bytes stored, as [`Body::stored_bytes`] counts them.
    pub bytes: u64,
    /// Inodes, with names or not.
    pub inodes: u64,
}

codec_struct!(UsageRecord { bytes, inodes });

/// What every account uses, counted from inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageCount(pub BTreeMap<Account, UsageRecord>);

impl UsageCount {
    /// Counts an inode.
    pub fn add(&mut self, charge: Charge, stored_bytes: u64) {
        for account in charge.accounts() {
            let usage = self.0.entry(account).or_default();
            usage.bytes = usage.bytes.saturating_add(stored_bytes);
            usage.inodes += 1;
        }
    }

    /// Accounts for which `recorded` says something else, with what it says and what was counted.
    pub fn differences(&self, recorded: &Self) -> Vec<(Account, UsageRecord, UsageRecord)> {
        let accounts: BTreeSet<Account> = self.0.keys().chain(recorded.0.keys()).copied().collect();
        let of = |count: &Self, account| count.0.get(&account).copied().unwrap_or_default();
        let pairs = accounts.into_iter().map(|account| (account, of(recorded, account), of(self, account)));
        pairs.filter(|(_, recorded, counted)| recorded != counted).collect()
    }
}

/// A segment of file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// The node that wrote it.
    pub writer: NodeId,
    /// Bytes that committed extents name. At 0 nothing needs the segment.
    pub live_bytes: u64,
}

codec_struct!(SegmentRecord { writer, live_bytes });

impl SegmentRecord {
    /// Live bytes of a segment of which nobody knows how many there are: more than it holds, so that it is kept until a check counts them.
    pub const UNCOUNTED: u64 = i64::MAX as u64;
}

/// Bytes of a segment that may not be durable there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedoRecord {
    /// A run with its header, and the segment's header before the first.
    pub bytes: Box<[u8]>,
}

codec_struct!(RedoRecord { bytes });

/// An inode without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanRecord {
    /// Nodes that have it open.
    pub holders: Vec<NodeId>,
}

codec_struct!(OrphanRecord { holders });

/// What an empty volume holds: the root directory, owned by `uid` and `gid`, and the totals that count it.
pub fn initial_changes(now: Timespec, uid: u32, gid: u32) -> Vec<Change> {
    let attr = InodeAttr {
        kind: FileKind::Directory,
        mode: 0o755,
        uid,
        gid,
        tree: 0,
        nlink: 2,
        rdev: 0,
        generation: crate::ops::FIRST_GENERATION,
        parent: Ino::ROOT,
        btime: now,
        ctime: now,
        xattrs: Xattrs::NONE,
    };
    let content = Content { size: 0, mtime: now, atime: now, ctime: now, body: Body::Empty {} };
    let inode = Box::new(Inode { attr, content });
    let count = inode.count();
    vec![Change::PutDirectory { ino: Ino::ROOT, inode }, count]
}

/// Bytes that the extents of `map` name, by segment.
pub(crate) fn live_bytes_of(map: &ExtentMap) -> BTreeMap<SegmentId, u64> {
    let mut live = BTreeMap::new();
    for extent in map.iter() {
        *live.entry(extent.segment()).or_default() += u64::from(extent.len());
    }
    live
}
