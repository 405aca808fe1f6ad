//! Every metric, one line each. Names are Prometheus names without the `holdfast_` prefix, in base units.
//!
//! Adding one is adding a line here and the call that records it. A `Stable` name keeps name, unit,
//! labels and meaning from release to release; an `Experimental` one may go.

use crate::family::Family;
use crate::histogram::Histogram;
use crate::labels::{
    CacheKind, FuseKind, HeldMode, InvalidationKind, MessageKind, OperationKind, Tables, TokenKind,
};
use crate::metric::{Counter, Gauge, Measure};

/// What one metric means.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// Prometheus name without prefix.
    pub name: &'static str,
    /// Heading under which the text form lists it.
    pub group: &'static str,
    /// Counter, gauge or histogram.
    pub shape: Shape,
    /// Unit of the value.
    pub unit: Unit,
    /// Whether others may build on it.
    pub stability: Stability,
    /// One sentence for people.
    pub help: &'static str,
}

/// How a metric behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Goes up and down, and its highest value is shown as `NAME_peak`.
    GaugeWithPeak,
    /// Durations.
    Histogram,
}

/// Unit of a metric's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things counted.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds; a histogram records microseconds and shows seconds.
    Seconds,
}

/// Whether a metric's name and meaning are promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Promised.
    Stable,
    /// May change in any release.
    Experimental,
}

macro_rules! metrics {
    ($($group:literal { $(
        $field:ident: $type:ty, $name:literal, $shape:ident, $unit:ident, $stability:ident, $help:literal;
    )* })*) => {
        /// Everything a node counts. Fields are recorded into directly.
        #[derive(Debug)]
        pub struct Metrics {
            $($(#[doc = $help] pub $field: $type,)*)*
        }

        /// Every definition, in the order of [`Metrics`]' fields and of each rendering.
        pub const DEFINITIONS: &[Definition] = &[$($(Definition {
            name: $name,
            group: $group,
            shape: Shape::$shape,
            unit: Unit::$unit,
            stability: Stability::$stability,
            help: $help,
        },)*)*];

        impl Metrics {
            fn create(tables: &Tables) -> Self {
                Self { $($($field: Measure::create(tables),)*)* }
            }

            /// Calls `visit` with every metric, in the order of [`DEFINITIONS`].
            pub(crate) fn for_each(&self, mut visit: impl FnMut(&dyn Readable)) {
                $($(visit(&self.$field);)*)*
            }
        }
    };
}

metrics! {
    "fuse" {
        fuse_requests: Family<Counter, FuseKind>, "fuse_requests_total", Counter, Count, Stable,
            "Requests received from the kernel.";
        fuse_ring_requests: Counter, "fuse_ring_requests_total", Counter, Count, Experimental,
            "Those of them that came through io_uring; the others came through /dev/fuse.";
        fuse_duration: Family<Histogram, FuseKind>, "fuse_request_duration_seconds", Histogram, Seconds, Stable,
            "Time from receiving a request to answering it.";
        fuse_forgets: Counter, "fuse_forgotten_inodes_total", Counter, Count, Experimental,
            "Inodes that the kernel forgot; one FORGET request may carry many.";
        reader_moves: Counter, "fuse_reader_moves_total", Counter, Count, Experimental,
            "Moves of the thread that reads requests to the CPU of a caller.";
        reader_rescues: Counter, "fuse_reader_rescues_total", Counter, Count, Experimental,
            "Times that the thread that reads requests had stepped back for a caller while another waited for it.";
    }
    "operations" {
        operations_local: Family<Counter, OperationKind>, "operations_local_total", Counter, Count, Stable,
            "Operations this node did by itself, under its tokens.";
        operations_shipped: Family<Counter, OperationKind>, "operations_shipped_total", Counter, Count, Stable,
            "Operations this node sent to the master to be done there.";
        operation_duration: Family<Histogram, OperationKind>, "operation_duration_seconds", Histogram, Seconds, Experimental,
            "Time of an operation in the node, from its arrival to its answer, waiting for tokens included.";
        sizes_late: Counter, "sizes_late_total", Counter, Count, Stable,
            "Looks at files that other nodes write that were answered with what was learnt up to a second before, because of lazysize.";
        times_late: Counter, "times_late_total", Counter, Count, Stable,
            "Times that another node asked for of a file that is written here and was told as last recorded, because of nomtime.";
        errors_unknown: Counter, "errors_unknown_total", Counter, Count, Stable,
            "Failures without an error number of their own, answered with EIO.";
        content_lost_bytes: Counter, "content_lost_bytes_total", Counter, Bytes, Stable,
            "Bytes written here that could not be stored when another node wanted the file, when the disk failed, or when the membership ended.";
    }
    "tokens" {
        tokens_held: Family<Gauge, (TokenKind, HeldMode)>, "tokens_held", Gauge, Count, Stable,
            "Tokens this node holds.";
        tokens_requested: Family<Counter, TokenKind>, "tokens_requested_total", Counter, Count, Stable,
            "Tokens this node asked for.";
        tokens_granted: Family<Counter, TokenKind>, "tokens_granted_total", Counter, Count, Stable,
            "Tokens granted to this node, those of new inodes included.";
        tokens_converted: Family<Counter, TokenKind>, "tokens_converted_total", Counter, Count, Stable,
            "Tokens of this node that changed their mode, up or down.";
        tokens_revoked: Family<Counter, TokenKind>, "tokens_revoked_total", Counter, Count, Stable,
            "Tokens the master asked this node to give back or convert.";
        tokens_released: Family<Counter, TokenKind>, "tokens_released_total", Counter, Count, Stable,
            "Tokens this node gave back, for whatever reason.";
        tokens_dropped: Family<Counter, TokenKind>, "tokens_dropped_total", Counter, Count, Stable,
            "Tokens this node gave back to stay within its share of token memory.";
        token_memory: Gauge, "token_memory_bytes", GaugeWithPeak, Bytes, Stable,
            "Memory counted for the tokens this node holds.";
        token_memory_limit: Gauge, "token_memory_limit_bytes", Gauge, Bytes, Stable,
            "This node's share of the token memory.";
        token_wait: Histogram, "token_wait_duration_seconds", Histogram, Seconds, Stable,
            "Time from asking for a token to holding it.";
        revoke_latency: Histogram, "revoke_duration_seconds", Histogram, Seconds, Stable,
            "Time from a revoke's arrival to the answer that gives the token back.";
        forgets_sent: Counter, "forgets_sent_total", Counter, Count, Stable,
            "Forgets the master on this node sent to holders.";
        forgets_received: Counter, "forgets_received_total", Counter, Count, Stable,
            "Forgets this node received.";
        forgets_acknowledged: Counter, "forgets_acknowledged_total", Counter, Count, Stable,
            "Forgets this node acknowledged.";
        turns: Counter, "turns_total", Counter, Count, Experimental,
            "Turns the master on this node gave out in directories that several nodes change.";
        caught_up: Counter, "turns_caught_up_total", Counter, Count, Experimental,
            "Turns this node got with no more than what had changed since its last.";
    }
    "kernel cache" {
        invalidations: Family<Counter, InvalidationKind>, "invalidations_total", Counter, Count, Stable,
            "Invalidations sent to the kernel.";
        invalidation_duration: Histogram, "invalidation_duration_seconds", Histogram, Seconds, Experimental,
            "Time of one invalidation.";
        watchdog_aborts: Counter, "watchdog_aborts_total", Counter, Count, Stable,
            "Times the watchdog cut the connection to the kernel.";
        guard_firings: Counter, "guard_firings_total", Counter, Count, Stable,
            "Times the guard emptied the kernel's caches because the lease was nearly over.";
    }
    "messages" {
        messages_sent: Family<Counter, MessageKind>, "messages_sent_total", Counter, Count, Stable,
            "Frames sent, replies and invalidations included.";
        messages_received: Family<Counter, MessageKind>, "messages_received_total", Counter, Count, Stable,
            "Frames received, replies and invalidations included.";
        bytes_sent: Family<Counter, MessageKind>, "messages_sent_bytes_total", Counter, Bytes, Stable,
            "Bytes of the frames sent.";
        bytes_received: Family<Counter, MessageKind>, "messages_received_bytes_total", Counter, Bytes, Stable,
            "Bytes of the frames received.";
        messages_refused: Counter, "messages_refused_total", Counter, Count, Stable,
            "Frames that could not be decoded; their connection was closed.";
    }
    "write-behind" {
        mutations: Counter, "mutations_total", Counter, Count, Stable,
            "Mutations put into the write-behind log.";
        mutations_pending: Gauge, "mutations_pending", GaugeWithPeak, Count, Stable,
            "Mutations in the log that the master has not yet applied.";
        log_bytes: Gauge, "log_bytes", GaugeWithPeak, Bytes, Stable,
            "Memory held by the write-behind log.";
        log_waits: Counter, "log_waits_total", Counter, Count, Stable,
            "Operations that waited because the log was full.";
        credit_waits: Counter, "credit_waits_total", Counter, Count, Stable,
            "Times that this node asked the master for credit, because of limits of a user, group or tree.";
        batches: Counter, "batches_total", Counter, Count, Stable,
            "Batches sent to the master.";
        batches_durable: Counter, "batches_durable_total", Counter, Count, Stable,
            "Batches reported durable.";
        batches_resent: Counter, "batches_resent_total", Counter, Count, Stable,
            "Batches sent again to a new master.";
        leases_lapsed: Counter, "leases_lapsed_total", Counter, Count, Stable,
            "Times that the lease could not be renewed before it ended, so that requests waited.";
        memberships_lost: Counter, "memberships_lost_total", Counter, Count, Stable,
            "Memberships that ended otherwise than by leaving.";
        mutations_lost: Counter, "mutations_lost_total", Counter, Count, Stable,
            "Changes that may not have reached the master when a membership ended.";
        files_lost: Counter, "files_lost_total", Counter, Count, Stable,
            "Files whose unflushed content was lost when a membership ended.";
        durable_wait: Histogram, "durable_wait_duration_seconds", Histogram, Seconds, Stable,
            "Time an fsync waited until its batches and data were durable.";
    }
    "caches" {
        cache_current: Family<Gauge, CacheKind>, "cache_entries", Gauge, Count, Stable,
            "Inodes and dentries in the node's cache.";
        cache_peak: Family<Gauge, CacheKind>, "cache_entries_peak", Gauge, Count, Stable,
            "The most it ever held.";
        cache_maximum: Family<Gauge, CacheKind>, "cache_entries_limit", Gauge, Count, Stable,
            "The most it may hold; 0 where memory, not number, is the limit.";
        cache_lookups: Family<Counter, CacheKind>, "cache_lookups_total", Counter, Count, Stable,
            "Lookups in the cache.";
        cache_hits: Family<Counter, CacheKind>, "cache_hits_total", Counter, Count, Stable,
            "Lookups that found what they looked for.";
        inode_cache_hit_percent: Gauge, "inode_cache_hit_percent", Gauge, Count, Stable,
            "Share of the lookups in the inode cache that were hits, since the start.";
        dentry_cache_hit_percent: Gauge, "dentry_cache_hit_percent", Gauge, Count, Stable,
            "Share of the lookups in the dentry cache that were hits, since the start.";
        cache_memory: Gauge, "cache_memory_bytes", GaugeWithPeak, Bytes, Stable,
            "Memory of the entries of cached directories, about.";
        cache_memory_limit: Gauge, "cache_memory_limit_bytes", Gauge, Bytes, Stable,
            "Beyond this, directories that nobody has used for a second are given up.";
        cache_allocated: Family<Counter, CacheKind>, "cache_allocated_total", Counter, Count, Stable,
            "Entries put into the cache.";
        cache_freed: Family<Counter, CacheKind>, "cache_freed_total", Counter, Count, Stable,
            "Entries taken out of the cache.";
        cache_age: Family<Gauge, CacheKind>, "cache_oldest_age_seconds", Gauge, Seconds, Stable,
            "Time since the last use of the token that is used least and would take its entries along next.";
    }
    "store" {
        segment_bytes_written: Counter, "segment_written_bytes_total", Counter, Bytes, Stable,
            "Bytes written to segments.";
        segment_bytes_read: Counter, "segment_read_bytes_total", Counter, Bytes, Stable,
            "Bytes read from segments.";
        segment_appends: Counter, "segment_appends_total", Counter, Count, Stable,
            "Appends to segments.";
        segment_reads: Counter, "segment_reads_total", Counter, Count, Stable,
            "Reads from segments.";
        segment_write: Histogram, "segment_write_duration_seconds", Histogram, Seconds, Stable,
            "Time of one append to a segment.";
        segment_read: Histogram, "segment_read_duration_seconds", Histogram, Seconds, Stable,
            "Time of one read from a segment.";
        segment_syncs: Counter, "segment_syncs_total", Counter, Count, Stable,
            "Syncs of segments.";
        segment_bytes_cleaned: Counter, "segment_cleaned_bytes_total", Counter, Bytes, Stable,
            "Live bytes that the cleaner moved.";
        segments_deleted: Counter, "segments_deleted_total", Counter, Count, Stable,
            "Segments deleted.";
        segment_sync: Histogram, "segment_sync_duration_seconds", Histogram, Seconds, Stable,
            "Time of one segment sync.";
        engine_commits: Counter, "engine_commits_total", Counter, Count, Stable,
            "Commits to the metadata engine.";
        engine_sync: Histogram, "engine_sync_duration_seconds", Histogram, Seconds, Stable,
            "Time of one sync of the metadata engine.";
        engine_syncs_by_reader: Counter, "engine_syncs_by_reader_total", Counter, Count, Experimental,
            "Of those, how many the thread that reads requests made itself, for a caller who was alone.";
        metadata_damaged: Counter, "metadata_damaged_total", Counter, Count, Stable,
            "Damaged records that the master on this node found.";
        checksum_failures: Counter, "checksum_failures_total", Counter, Count, Stable,
            "Extents whose checksum did not match on read.";
    }
    "master" {
        master_epoch: Gauge, "master_epoch", Gauge, Count, Stable,
            "Epoch this node works under.";
        is_master: Gauge, "master_here", Gauge, Count, Stable,
            "1 while this node is the master of the volume.";
        members: Gauge, "master_members", GaugeWithPeak, Count, Stable,
            "Nodes that are members, as the master on this node sees them.";
        resources: Gauge, "master_resources", GaugeWithPeak, Count, Stable,
            "Resources in the token table of the master on this node.";
        master_operations: Family<Counter, OperationKind>, "master_operations_total", Counter, Count, Stable,
            "Shipped operations that the master on this node executed.";
        master_batches: Counter, "master_batches_applied_total", Counter, Count, Stable,
            "Batches that the master on this node applied.";
        master_batches_refused: Counter, "master_batches_refused_total", Counter, Count, Stable,
            "Batches that the master on this node refused.";
        master_credit_refused: Counter, "master_credit_refused_total", Counter, Count, Stable,
            "Requests for credit that the master on this node refused: limits were reached.";
        leases_ended: Counter, "master_leases_ended_total", Counter, Count, Stable,
            "Memberships that the master on this node ended.";
        remasters: Counter, "remasters_total", Counter, Count, Stable,
            "Times this node saw the volume get a new master.";
        remaster_duration: Histogram, "remaster_duration_seconds", Histogram, Seconds, Stable,
            "Time from losing the master to service by the next.";
    }
}

/// What a snapshot needs of a metric, whatever its type.
pub(crate) trait Readable {
    /// Label names, outermost first.
    fn label_names(&self) -> Vec<&'static str>;
    /// Every cell.
    fn read(&self) -> Vec<crate::snapshot::Cell>;
}

impl<M: Measure> Readable for M {
    fn label_names(&self) -> Vec<&'static str> {
        Measure::label_names(self)
    }

    fn read(&self) -> Vec<crate::snapshot::Cell> {
        Measure::read(self)
    }
}

impl Metrics {
    /// Makes all metrics, with every message counted as kind `other`.
    pub fn new() -> Self {
        Self::create(&Tables::default())
    }

    /// Makes all metrics; [`MessageKind`]`(i)` is named `message_kinds[i]`.
    pub fn with_message_kinds(message_kinds: &'static [&'static str]) -> Self {
        Self::create(&Tables { message_kinds })
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Definition {
    /// The definition of `name`, if there is one.
    pub fn find(name: &str) -> Option<&'static Self> {
        DEFINITIONS.iter().find(|definition| definition.name == name)
    }
}
