//! The master's own records. `docs/format/metadata.md` lists them.

use meta::{Change, FsError, OpReply};
use types::{BatchSeq, Epoch, codec_struct};

/// Value of the volume key: counters that only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeRecord {
    /// Epoch of the last master.
    pub epoch: Epoch,
    /// Incarnation that the next node gets.
    pub next_node: u32,
    /// First inode number that no node has.
    pub next_inode: u64,
    /// First segment that no node has.
    pub next_segment: u64,
}

codec_struct!(VolumeRecord { epoch, next_node, next_inode, next_segment });

/// Value of a member's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberRecord {
    /// Its process.
    pub pid: u32,
    /// That process' start, in clock ticks.
    pub pid_start: u64,
    /// Host and mount point.
    pub label: String,
    /// Device of its mount.
    pub device: String,
    /// Last batch applied.
    pub batch: BatchSeq,
}

codec_struct!(MemberRecord { pid, pid_start, label, device, batch });

/// Value of an operation-result key: kept until its sender says that it has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultRecord {
    /// The outcome.
    pub result: Result<OpReply, FsError>,
    /// What changed: readers may not have been told when the master died.
    pub changes: Vec<Change>,
}

codec_struct!(ResultRecord { result, changes });
