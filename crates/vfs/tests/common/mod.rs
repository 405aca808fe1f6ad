//! What a master says to a core that is alone with a test.
#![allow(dead_code, reason = "each test file uses its own part")]

use meta::{Body, Content, FileKind, Inode, InodeAttr, Xattrs};
use types::{BatchSeq, Epoch, Ino, LockMode, NodeId, ResourceId, Timespec};
use wire::{FromMaster, Grant, GrantData, Listing};

/// To a node that joins.
pub fn welcome(lease_us: u64) -> FromMaster {
    FromMaster::Welcome {
        node: NodeId(1),
        epoch: Epoch(1),
        lease_us,
        token_share: 1_000_000,
        cookie_key: [9; 16].into(),
        batch_applied: BatchSeq(0),
        reassert: false,
    }
}

/// Numbers for inodes and segments, more than a test needs.
pub fn reserved() -> FromMaster {
    let (first_inode, first_segment) = (Ino(100), 1);
    FromMaster::Reserved { first_inode, inodes: 60_000, first_segment, segments: 64 }
}

/// The names' half of an inode of root's.
pub fn attr(kind: FileKind) -> InodeAttr {
    let time = Timespec::default();
    let (mode, nlink) = if kind == FileKind::Directory { (0o755, 2) } else { (0o644, 1) };
    InodeAttr {
        kind,
        mode,
        uid: 0,
        gid: 0,
        nlink,
        rdev: 0,
        generation: 1,
        parent: Ino::ROOT,
        btime: time,
        ctime: time,
        xattrs: Xattrs::NONE,
    }
}

/// Content of which nothing is stored.
pub fn content(size: u64) -> Content {
    let time = Timespec::default();
    Content { size, mtime: time, atime: time, ctime: time, body: Body::Empty {} }
}

/// EX on the root directory, which is empty.
pub fn root_grant() -> Grant {
    let inode = Box::new(Inode { attr: attr(FileKind::Directory), content: content(0) });
    let listing = Listing { after: 0, entries: Vec::new(), complete: true };
    let data = GrantData::Directory { inode, listing };
    Grant { resource: ResourceId::dir(Ino::ROOT), mode: LockMode::Ex, data }
}

/// The answer to an acquire of the root directory.
pub fn root_acquired(request: u64) -> FromMaster {
    let grants = vec![root_grant()];
    FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None }
}
