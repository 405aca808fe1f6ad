//! Records of the volume as a whole, and what an empty volume holds.

use std::collections::BTreeMap;

use chunk::ExtentMap;
use types::{Ino, NodeId, SegmentId, Timespec, codec_struct};

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

/// A segment of file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// The node that wrote it.
    pub writer: NodeId,
    /// Bytes that committed extents name. At 0 nothing needs the segment.
    pub live_bytes: u64,
}

codec_struct!(SegmentRecord { writer, live_bytes });

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
    vec![Change::PutDirectory { ino: Ino::ROOT, inode }, Change::AddTotals { bytes: 0, inodes: 1 }]
}

/// Bytes that the extents of `map` name, by segment.
pub(crate) fn live_bytes_of(map: &ExtentMap) -> BTreeMap<SegmentId, u64> {
    let mut live = BTreeMap::new();
    for extent in map.iter() {
        *live.entry(extent.segment()).or_default() += u64::from(extent.len());
    }
    live
}
