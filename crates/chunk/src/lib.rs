//! File data: which bytes of a file lie where (extents), and the segments that hold them.
//!
//! The extents are pure. Segments are reached through [`SegmentStore`]; every call blocks and none of
//! them is retried here. Nothing in this crate knows tokens, transactions or the kernel.
//!
//! Invariants kept here: stored bytes are never overwritten in place; a failed sync or write ends the use of
//! its segment; bytes from a segment are given out only when their checksums hold.

mod clean;
mod dir_store;
mod error;
mod extent;
mod format;
mod live;
mod map;
mod mem_store;
mod read;
mod scan;
mod store;
mod writer;

pub use clean::{Copied, copy_extents, files_of};
pub use dir_store::DirStore;
pub use error::{ChunkError, Damage};
pub use extent::{CHECKSUM_BLOCK, Extent, ExtentError, FILE_SIZE_MAX, RUN_LEN_MAX, Run};
pub use format::{
    RUN_ALIGN, RUN_HEADER_LEN, RunHeader, SEGMENT_HEADER_LEN, SEGMENT_LEN, SegmentHeader, VolumeUuid,
};
pub use live::{Freed, LiveDeltas};
pub use map::{ExtentMap, Piece};
pub use mem_store::{Fault, Losses, MemStore};
pub use read::{bad_ranges, read_extent, verify_extent};
pub use scan::{ScanItem, SegmentScan, StoredRun, scan_segment, verify_run};
pub use store::{Action, SegmentStore, Space};
pub use writer::{
    Loose, Lost, PlannedSync, Redo, SEGMENT_LEN_MIN, SegmentWriter, SyncFailure, SyncOutcome, SyncPlan,
    WriterConfig,
};
