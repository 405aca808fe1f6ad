//! What replies carry: attributes, entries, statistics.

use std::time::Duration;

use crate::abi::{
    AttrOut, AttrWire, EntryOut, OpenOut, OpenReplyFlags, StatfsOut, StatxOut, StatxTimeWire, StatxWire,
};

/// A point in time as inodes store it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Since 1970-01-01 00:00 UTC; negative before.
    pub seconds: i64,
    /// 0 to 999,999,999, counted forward from `seconds`.
    pub nanoseconds: u32,
}

/// Attributes of one inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number shown to programs (st_ino).
    pub ino: u64,
    /// Logical size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Type and permissions, as in st_mode.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, in the kernel's 32-bit encoding.
    pub rdev: u32,
    /// Preferred I/O size.
    pub blksize: u32,
}

/// Answer to LOOKUP and to everything that makes a name.
///
/// A positive entry that was delivered gives the kernel one reference to `nodeid`, which a later
/// FORGET returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Inode for later requests; 0 says that the name does not exist.
    pub nodeid: u64,
    /// Together with `nodeid` never used twice.
    pub generation: u64,
    /// How long the name may be believed.
    pub entry_ttl: Duration,
    /// How long the attributes may be believed.
    pub attr_ttl: Duration,
    /// Attributes.
    pub attr: Attr,
}

/// Answer to OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Comes back in every request on this open file.
    pub fh: u64,
    /// How it behaves.
    pub flags: OpenReplyFlags,
    /// Backing file registered with the kernel, for PASSTHROUGH; otherwise 0.
    pub backing_id: i32,
}

/// Answer to STATFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Size in units of `fragment_size`.
    pub blocks: u64,
    /// Free, in units of `fragment_size`.
    pub blocks_free: u64,
    /// Free for unprivileged users.
    pub blocks_available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Preferred I/O size.
    pub block_size: u32,
    /// Longest name in bytes.
    pub name_len_max: u32,
    /// Unit of the block counts.
    pub fragment_size: u32,
}

/// Answer to STATX: attributes and what stat(2) cannot say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statx {
    /// Attributes.
    pub attr: Attr,
    /// Time of creation.
    pub btime: Option<Timestamp>,
    /// STATX_ATTR_* that are set.
    pub attributes: u64,
    /// STATX_ATTR_* that are supported.
    pub attributes_mask: u64,
}

impl Entry {
    /// Says that the name does not exist, and may be believed for `ttl`.
    pub fn negative(ttl: Duration) -> Self {
        Self { entry_ttl: ttl, ..Self::default() }
    }

    pub(crate) fn to_wire(self) -> EntryOut {
        let (entry_valid, entry_valid_nsec) = ttl_to_wire(self.entry_ttl);
        let (attr_valid, attr_valid_nsec) = ttl_to_wire(self.attr_ttl);
        EntryOut {
            nodeid: self.nodeid,
            generation: self.generation,
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: self.attr.to_wire(),
        }
    }
}

impl Attr {
    pub(crate) fn to_wire(self) -> AttrWire {
        AttrWire {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds,
            mtime: self.mtime.seconds,
            ctime: self.ctime.seconds,
            atimensec: self.atime.nanoseconds,
            mtimensec: self.mtime.nanoseconds,
            ctimensec: self.ctime.nanoseconds,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: 0,
        }
    }

    pub(crate) fn to_attr_out(self, ttl: Duration) -> AttrOut {
        let (attr_valid, attr_valid_nsec) = ttl_to_wire(ttl);
        AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: self.to_wire() }
    }
}

impl Opened {
    pub(crate) fn to_wire(self) -> OpenOut {
        OpenOut { fh: self.fh, open_flags: self.flags.bits(), backing_id: self.backing_id }
    }
}

impl Statfs {
    pub(crate) fn to_wire(self) -> StatfsOut {
        StatfsOut {
            blocks: self.blocks,
            bfree: self.blocks_free,
            bavail: self.blocks_available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_size,
            namelen: self.name_len_max,
            frsize: self.fragment_size,
            padding: 0,
            spare: [0; 6],
        }
    }
}

impl Statx {
    pub(crate) fn to_wire(self, ttl: Duration) -> StatxOut {
        let (attr_valid, attr_valid_nsec) = ttl_to_wire(ttl);
        let Attr { ino, size, blocks, atime, mtime, ctime, mode, nlink, uid, gid, rdev, blksize } = self.attr;
        let stat = StatxWire {
            mask: if self.btime.is_some() { STATX_BASIC_STATS | STATX_BTIME } else { STATX_BASIC_STATS },
            blksize,
            attributes: self.attributes,
            nlink,
            uid,
            gid,
            mode: (mode & 0xffff) as u16,
            ino,
            size,
            blocks,
            attributes_mask: self.attributes_mask,
            atime: time_to_wire(atime),
            btime: time_to_wire(self.btime.unwrap_or_default()),
            ctime: time_to_wire(ctime),
            mtime: time_to_wire(mtime),
            // The kernel's 32-bit encoding: 12 bits of major between two parts of the minor.
            rdev_major: (rdev >> 8) & 0xfff,
            rdev_minor: (rdev & 0xff) | ((rdev >> 12) & 0x000f_ff00),
            ..StatxWire::default()
        };
        StatxOut { attr_valid, attr_valid_nsec, flags: 0, spare: [0; 2], stat }
    }
}

fn time_to_wire(time: Timestamp) -> StatxTimeWire {
    StatxTimeWire { seconds: time.seconds, nanoseconds: time.nanoseconds, reserved: 0 }
}

/// Splits a timeout into what the kernel takes.
///
/// Saturates far below the kernel's own limit, so `Duration::MAX` means "until told otherwise".
fn ttl_to_wire(ttl: Duration) -> (u64, u32) {
    (ttl.as_secs().min(TTL_SECONDS_MAX), ttl.subsec_nanos())
}

/// 136 years.
const TTL_SECONDS_MAX: u64 = u32::MAX as u64;

const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;
