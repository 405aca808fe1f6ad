//! Settings of a node's core.

use lock::node::Hold;
use types::Micros;

use crate::atime::Atime;

/// Settings of a node's core; the defaults are those of docs/locking.md, "Defaults".
#[derive(Clone, Debug)]
pub struct Config {
    /// Changes reach the master no later than this after they were made.
    pub commit_interval: Micros,
    /// Bytes of the write-behind log at which changes wait.
    pub log_bytes_max: usize,
    /// Bytes of file content in memory only, all files together, at which writes store first.
    pub dirty_bytes_max: usize,
    /// Bytes written to segments and not synced at which writes wait; fewer where the store is slow.
    pub unsynced_bytes_max: u64,
    /// Minimum hold time of tokens.
    pub hold: Hold,
    /// How long names of a directory that others change go out for one use only.
    pub quiet: Micros,
    /// Tokens of a closed file stay this long.
    pub linger: Micros,
    /// Bytes of the store that only removals may use; at most a twentieth of it.
    pub reserve_bytes: u64,
    /// Files up to this many bytes live in their record; at most [`meta::Body::INLINE_BYTES_MAX`].
    pub inline_bytes_max: usize,
    /// Bytes to copy for which content that is newer than the log is flushed; fewer are copied one by one.
    pub copy_sync_min: u64,
    /// Files that a flush of many captures, or logs, at once: whoever wants anything else waits for as long.
    pub files_at_once: usize,
    /// Bytes of closed files that are stored together; with 0 each is stored as it is closed.
    pub store_bytes: usize,
    /// Length of the segments that are written.
    pub segment_len: u64,
    /// Nothing may change.
    pub read_only: bool,
    /// Every change is durable before it is answered.
    pub sync: bool,
    /// Every change of a directory is durable before it is answered.
    pub dirsync: bool,
    /// Bytes of cached directories, about, beyond which those not used for a while are given up.
    pub cache_bytes_max: usize,
    /// When reading changes access times.
    pub atime: Atime,
    /// Whether listing a directory changes its own.
    pub diratime: bool,
    /// Access times that nothing else takes along are logged this long after a read; never with lazytime.
    pub atime_interval: Micros,
    /// Tokens the node may hold, whatever the master allows; 0 for no limit of its own.
    pub token_limit: usize,
    /// Which sizes and times may be late.
    pub lazy: Lazy,
    /// A size that may be late is that of a moment not longer ago.
    pub late_max: Micros,
    /// Whether the kernel keeps nothing of an answer to SETATTR that was overtaken by an invalidation, as Linux does since 6.16. Before, such an answer is for
    /// one use only.
    pub setattr_in_order: bool,
}

/// Which sizes and times may be late; none unless asked for (docs/semantics.md, "Late sizes and times").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lazy {
    /// `lazysize`: a look at a file that another node writes may be answered with what an earlier one learnt.
    pub size: bool,
    /// `nomtime`: a file that this node writes shows others the times of what was recorded last.
    pub mtime: bool,
}

impl Config {
    /// Tokens the node may hold before a master has told it its share.
    pub(crate) fn first_share(&self) -> usize {
        if self.token_limit == 0 { usize::MAX } else { self.token_limit }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            commit_interval: Micros::from_millis(1_000),
            log_bytes_max: 64 << 20,
            dirty_bytes_max: 64 << 20,
            unsynced_bytes_max: 512 << 20,
            hold: Hold { minimum: Micros::from_millis(10), idle: Micros(300), rest: Micros::from_millis(5) },
            quiet: Micros::from_millis(1_000),
            linger: Micros::from_millis(50),
            reserve_bytes: 32 << 20,
            inline_bytes_max: 4096,
            copy_sync_min: 1 << 20,
            files_at_once: 16,
            store_bytes: 512 << 10,
            segment_len: chunk::SEGMENT_LEN,
            read_only: false,
            sync: false,
            dirsync: false,
            cache_bytes_max: 1 << 30,
            atime: Atime::Relative,
            diratime: true,
            atime_interval: Micros::from_millis(30_000),
            token_limit: 0,
            lazy: Lazy::default(),
            late_max: Micros::from_millis(1_000),
            setattr_in_order: true,
        }
    }
}
