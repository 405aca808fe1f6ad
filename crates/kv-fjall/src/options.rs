//! What can be chosen at opening.

/// Options of a [`FjallEngine`](crate::FjallEngine).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the block cache.
    pub cache_bytes: u64,
    /// Size at which the memtable is flushed, fixed when the volume is created. Bounds what is rebuilt in
    /// memory after a crash.
    pub memtable_bytes: u64,
    /// Background threads of fjall, at least 1.
    ///
    /// With 2 and more one of them is kept for flushes, and spins while compactions wait for the others. Measured
    /// on 2 cores with a load of 2 million records: 1 thread takes 600,000 records/s (p99 of a batch of 1,000:
    /// 4 ms) and opens in 0.9 to 1.2 s when killed at its height, with 110 to 150 MB of journals; 2 threads take
    /// 260,000 to 520,000 records/s (p99 17 to 29 ms) and open in 0.2 to 0.6 s with one journal of at most 64 MiB.
    pub worker_threads: usize,
    /// Whether tables are merged in the background. For who only reads there is no need, and a damaged table may stand in the way: without, fjall has no threads, and who writes flushes.
    pub merges: bool,
    /// Length from which a journal that an opening finds is the last that is read: a new one follows it, and it goes once
    /// fjall has flushed it. So a volume whose masters die one after another replays what each of them wrote, and not
    /// again all since fjall last changed journals, which it does at 64 MB only.
    ///
    /// Measured with 60 MB of small batches (580,000 records, three quarters of them flushed): 0.7 s to open on an idle
    /// core, whatever is flushed; a third of it goes into fjall's look at its catalogue for each record.
    pub journal_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            memtable_bytes: 16 << 20,
            worker_threads: 1,
            merges: true,
            journal_bytes: 1 << 20,
        }
    }
}
