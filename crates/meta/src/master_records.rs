//! The master's own records. `docs/format/metadata.md` lists them.

use types::{BatchSeq, CodecError, Decode, Decoder, Encode, Encoder, Epoch, Micros, SegmentId, codec_struct};

use crate::change::Change;
use crate::error::FsError;
use crate::ops::OpReply;

/// Value of the volume key: counters that only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Epoch of the last master.
    pub epoch: Epoch,
    /// Incarnation that the next node gets.
    pub next_node: u32,
    /// First inode number that no node has.
    pub next_inode: u64,
    /// First segment that no node has.
    pub next_segment: u64,
    /// The longest lease that a member may have; 0 in volumes of versions 1 to 3.
    pub lease: Micros,
}

impl VolumeRecord {
    /// Largest epoch. Numbers of results have the epoch in their upper half.
    pub const EPOCH_MAX: u64 = u32::MAX as u64 / 2;
    /// Largest incarnation.
    pub const NODE_MAX: u32 = u32::MAX / 2;
    /// Longest lease: a day.
    pub const LEASE_MAX: Micros = Micros(86_400_000_000);
    /// Largest number of an inode or segment: whoever counts on from it overflows nothing.
    pub const NUMBER_MAX: u64 = 1 << 62;
}

impl Encode for VolumeRecord {
    fn encode(&self, out: &mut Encoder) {
        let Self { epoch, next_node, next_inode, next_segment, lease } = self;
        epoch.encode(out);
        next_node.encode(out);
        next_inode.encode(out);
        next_segment.encode(out);
        lease.0.encode(out);
    }
}

impl Decode for VolumeRecord {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let record = Self {
            epoch: Epoch::decode(input)?,
            next_node: u32::decode(input)?,
            next_inode: u64::decode(input)?,
            next_segment: u64::decode(input)?,
            lease: Micros(if input.remaining() == 0 { 0 } else { u64::decode(input)? }),
        };
        for (what, value, max) in [
            ("epoch", record.epoch.0, Self::EPOCH_MAX),
            ("next node", u64::from(record.next_node), u64::from(Self::NODE_MAX)),
            ("next inode", record.next_inode, Self::NUMBER_MAX),
            ("next segment", record.next_segment, Self::NUMBER_MAX),
            ("lease", record.lease.0, Self::LEASE_MAX.0),
        ] {
            if value > max {
                return Err(CodecError::OutOfRange { what, value });
            }
        }
        Ok(record)
    }
}

/// Value of a member's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Its process.
    pub pid: u32,
    /// The namespace of process numbers in which that was seen, above [`START_BITS`](Self::START_BITS), and the process' start in clock ticks
    /// below; 0 if they could not be seen.
    pub pid_start: u64,
    /// Host and mount point.
    pub label: String,
    /// Device of its mount.
    pub device: String,
    /// Last batch applied.
    pub batch: BatchSeq,
    /// Segments that it has reserved and not disowned, ascending.
    pub segments: Vec<SegmentRange>,
}

impl MemberRecord {
    /// Bits of a process' start.
    pub const START_BITS: u32 = 40;
}

codec_struct!(MemberRecord { pid, pid_start, label, device, batch, segments });

/// Segments one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRange {
    /// First of them.
    pub first: u64,
    /// How many; not 0.
    pub count: u64,
}

impl Encode for SegmentRange {
    fn encode(&self, out: &mut Encoder) {
        self.first.encode(out);
        self.count.encode(out);
    }
}

impl Decode for SegmentRange {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let range = Self { first: u64::decode(input)?, count: u64::decode(input)? };
        match range.first.checked_add(range.count) {
            Some(end) if range.count > 0 && end <= VolumeRecord::NUMBER_MAX => Ok(range),
            Some(_) | None => Err(CodecError::Invalid { what: "range of segments" }),
        }
    }
}

impl SegmentRange {
    /// Whether `segment` is one of them.
    pub fn contains(self, segment: SegmentId) -> bool {
        segment.0.checked_sub(self.first).is_some_and(|index| index < self.count)
    }

    /// Adds `count` segments from `first` on, which lie behind all in `ranges`.
    pub fn add(ranges: &mut Vec<Self>, first: u64, count: u64) {
        match ranges.last_mut() {
            _ if count == 0 => {}
            Some(last) if last.first + last.count == first => last.count += count,
            Some(_) | None => ranges.push(Self { first, count }),
        }
    }

    /// Takes `segment` out of `ranges`; returns whether it was there.
    pub fn take(ranges: &mut Vec<Self>, segment: SegmentId) -> bool {
        let Some(at) = ranges.iter().position(|range| range.contains(segment)) else { return false };
        let Self { first, count } = ranges[at];
        let before = Self { first, count: segment.0 - first };
        let behind = Self { first: segment.0 + 1, count: first + count - segment.0 - 1 };
        ranges.splice(at..=at, [before, behind].into_iter().filter(|range| range.count > 0));
        true
    }
}

/// Value of an operation-result key: kept until its sender says that it has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRecord {
    /// The outcome.
    pub result: Result<OpReply, FsError>,
    /// What changed: readers may not have been told when the master died.
    pub changes: Vec<Change>,
}

codec_struct!(ResultRecord { result, changes });
