//! The core's state, its entry points, and the loop that tries parked requests again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chunk::{SegmentStore, SegmentWriter, SyncOutcome, VolumeUuid};
use lock::NodeTable;
use meta::{CookieKey, FsError};
use obs::Metrics;
use rustc_hash::FxHashMap;
use types::{Epoch, Ino, Micros, NodeId, OpSeq, ResourceId};
use wire::{ByteLock, FetchWhat, ToMaster, Want};

use crate::attr::Glimpsed;
use crate::cache::{Cache, Place};
use crate::config::{Config, Lazy};
use crate::elsewhere::Elsewhere;
use crate::flush::Flush;
use crate::guard::{Guard, Unguarded};
use crate::handles::Handle;
use crate::jobs::{InvalidateJob, Jobs};
use crate::known::{Known, KnownTable};
use crate::linger::Linger;
use crate::live::Live;
use crate::lockop::LockCall;
use crate::log::WriteLog;
use crate::namespace::Shipped;
use crate::outputs::{Clock, Invalidation, Output};
use crate::pages::Pages;
use crate::readdir::no_more;
use crate::request::{HandleId, Interrupt, Keep, Reply, Request, RequestId};
use crate::revoke::Release;
use crate::stores::Stores;
use crate::wait::{Parked, Progress, Ship, Step, Wait, WaitKey};

/// A node's core. One lock of the driver's stands around it.
pub struct Core {
    pub(crate) config: Config,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) store: Arc<dyn SegmentStore>,
    pub(crate) volume: VolumeUuid,
    pub(crate) clock: Clock,

    // Membership.
    pub(crate) me: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) link: Link,
    pub(crate) lease: Lease,
    pub(crate) cookie_key: CookieKey,

    // Rights and what they cover.
    pub(crate) tokens: NodeTable,
    pub(crate) cache: Cache,
    pub(crate) known: KnownTable,
    pub(crate) live: FxHashMap<Ino, Live>,
    pub(crate) log: WriteLog,
    pub(crate) writer: Option<SegmentWriter>,
    pub(crate) handles: FxHashMap<HandleId, Handle>,
    pub(crate) next_handle: u64,
    /// Locks of applications on this node, as the master granted them.
    pub(crate) locks: BTreeMap<Ino, Vec<ByteLock>>,
    pub(crate) closes: crate::lockop::Closes,
    /// Content under which reads are still served while pages that it filled are taken back.
    pub(crate) old_content: FxHashMap<Ino, meta::Content>,

    /// Pages of extents of files that nobody changes here.
    pub(crate) pages: Pages,
    /// Closed files whose bytes are to be stored together.
    pub(crate) closed: crate::closed::Closed,
    /// Files with bytes in memory only.
    pub(crate) dirty_files: BTreeSet<Ino>,
    /// Files whose content found no room at a flush.
    pub(crate) flush_failed: BTreeMap<Ino, FsError>,
    /// Files that segments are missing for, or that a shipped operation may delete, within one call.
    pub(crate) short_of_segments: BTreeSet<Ino>,
    /// Flushes that wait for segments or for shipped operations.
    pub(crate) flush_later: BTreeMap<u64, BTreeSet<Ino>>,
    /// Attributes of inodes whose content others hold.
    pub(crate) glimpsed: Glimpsed,
    /// Inodes that are no more.
    pub(crate) gone: crate::gone::Gone,
    pub(crate) lulls: crate::lulls::Lulls,
    /// When the kernel last asked for a name, or for attributes of a file, that it was given to keep.
    pub(crate) asked_again_at: Option<Micros>,
    /// Inodes whose opens the master noted, before it is known whether they come about.
    pub(crate) opens_in_doubt: BTreeSet<Ino>,
    /// Open files that have gone where nothing is known here, and of which the master has yet to be told.
    pub(crate) opens_out_of_sight: Vec<Ino>,
    /// Inodes whose pages are being taken back, and by how many jobs.
    pub(crate) pages_going: FxHashMap<Ino, u32>,
    /// Directories that cover inodes whose entries are not loaded yet.
    pub(crate) sought: FxHashMap<Ino, Ino>,

    // Numbers that belong to this node.
    pub(crate) inode_numbers: VecDeque<std::ops::Range<u64>>,
    pub(crate) reserve_asked: bool,
    pub(crate) space: crate::space::SpaceCache,
    pub(crate) quota: crate::quota::Quota,

    // Work in progress.
    pub(crate) parked: BTreeMap<RequestId, Parked>,
    pub(crate) waiting: FxHashMap<WaitKey, BTreeSet<RequestId>>,
    pub(crate) overtaken: crate::overtaken::Overtaken,
    pub(crate) woken: VecDeque<WaitKey>,
    pub(crate) wants: FxHashMap<Want, u64>,
    /// Acquires without an answer, and since when.
    pub(crate) want_of: BTreeMap<u64, (Want, Micros)>,
    pub(crate) fetches: FxHashMap<FetchWhat, u64>,
    pub(crate) fetch_of: BTreeMap<u64, FetchWhat>,
    pub(crate) shipped: BTreeMap<OpSeq, Shipped>,
    pub(crate) last_op: OpSeq,
    /// Whether the master may have changes that are not durable and that this node made or was shown: an fsync
    /// stands for those of others too.
    pub(crate) unsynced_at_master: bool,
    pub(crate) frozen: FxHashMap<Ino, u32>,
    /// Inodes that shipped operations may delete, by how many.
    pub(crate) removing: FxHashMap<Ino, u32>,
    pub(crate) releases: FxHashMap<ResourceId, Release>,
    /// Releases told on this connection.
    pub(crate) release_number: u64,
    /// Resources given back by releases that the master has not been seen to know of.
    pub(crate) released_at: FxHashMap<ResourceId, u64>,
    /// Given back and not told yet.
    pub(crate) released: Vec<(ResourceId, types::LockMode)>,
    pub(crate) released_open: Vec<wire::OpenReport>,
    pub(crate) jobs: Jobs,
    /// Forgets that are acknowledged when those of the last master are carried out.
    pub(crate) held_forgets: Vec<(u64, Vec<Ino>)>,
    pub(crate) disowner: crate::disown::Disowner,
    pub(crate) flushes: BTreeMap<u64, Flush>,
    /// Lock requests without an answer.
    pub(crate) lock_calls: BTreeMap<u64, LockCall>,
    /// Files that answer EIO, by how many handles from before the membership ended.
    pub(crate) broken: FxHashMap<Ino, u32>,
    /// What the kernel was told of the root last.
    pub(crate) root_told: Option<crate::request::Attr>,
    /// Directories of which a membership that has ended took names or other changes along, and files of which content was lost while
    /// nobody here had them open for writing. Their next fsync says so.
    pub(crate) untold: BTreeSet<Ino>,
    /// Such files, of whose loss nobody was told who gives them a name. The next rename or link says so.
    pub(crate) lost_unnamed: BTreeSet<Ino>,
    /// The last flush that a commit began: what it and those before it captured is sent when they have ended.
    pub(crate) commit_flush: Option<u64>,
    /// The flush that files are being captured for, a few at a time.
    pub(crate) gathering: Option<u64>,
    /// Syncs that found segments gone after the lease had ended.
    pub(crate) unjudged: Vec<(u64, SyncOutcome)>,
    /// Names to be taken back once more, when answers on their way have arrived.
    pub(crate) names_again: VecDeque<(Micros, Vec<Invalidation>)>,
    pub(crate) linger: Linger,
    pub(crate) holds: crate::holds::Holds,
    pub(crate) pins: BTreeMap<u64, Ino>,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) pinned: FxHashMap<Ino, u32>,
    pub(crate) next_number: u64,
    pub(crate) commit_due: Micros,
    pub(crate) stores: Stores,
    pub(crate) departure: Departure,

    pub(crate) outputs: VecDeque<Output>,
}

/// Whether there is a master to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Not a member yet, or between two masters.
    Down,
    /// A member.
    Up,
    /// The membership has ended. When the kernel has nothing left of it the node joins anew.
    Ending,
    /// The volume cannot be used any more.
    Lost,
}

/// How far the node has come with leaving in order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Departure {
    /// It was asked to.
    pub begun: bool,
    /// Nothing is said to the master any more.
    pub ended: bool,
    /// How often content was flushed for it, since room was last waited for.
    pub tries: u32,
    /// When content that found no room is tried again.
    pub again: Option<Micros>,
    /// What finds no room now is lost.
    pub gives_up: bool,
    pub writer_closed: bool,
}

/// Changes of a batch that takes longer than it takes to wake another thread.
const BULK_CHANGES: usize = 256;

/// Room that is kept for moves of inodes between two requests.
const MOVES_KEPT: usize = 64;

/// Searches of a request after which a name that stands for nothing is an error.
pub(crate) const STALE_FINDS_MAX: u32 = 3;

/// How long tokens may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub length: Micros,
    pub until: Micros,
    pub ping_sent: Option<Micros>,
    /// It could not be renewed in time, and the kernel's caches are emptied or being emptied.
    pub lapsed: bool,
}

/// A node's figures at one moment, for `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The incarnation.
    pub node: NodeId,
    /// The epoch.
    pub epoch: Epoch,
    /// Changes that no master has.
    pub unflushed_mutations: u64,
    /// Bytes of changes and content that are in memory, or in segments that are not synced.
    pub unflushed_bytes: u64,
    /// Batches not known to be durable.
    pub unflushed_batches: u64,
    /// Files with content that no change records yet.
    pub unflushed_files: u64,
    /// Bytes of content that are in memory only.
    pub unstored_bytes: u64,
    /// Tokens held.
    pub tokens: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Whether content found no room when it was last tried.
    pub lacks_room: bool,
    /// How long the oldest call to the store has been under way.
    pub store_wait: Micros,
    /// Which sizes and times may be late.
    pub lazy: Lazy,
}

impl Core {
    /// A core that is not a member of anything yet.
    pub fn new(
        config: Config,
        volume: VolumeUuid,
        store: Arc<dyn SegmentStore>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            tokens: NodeTable::new(config.first_share(), config.hold),
            config,
            metrics,
            store,
            volume,
            clock: Clock { now: Micros(0), wall: types::Timespec::default() },
            me: NodeId(0),
            epoch: Epoch(0),
            link: Link::Down,
            lease: Lease { length: Micros(0), until: Micros(0), ping_sent: None, lapsed: false },
            cookie_key: CookieKey([0; 16]),
            cache: Cache::default(),
            known: KnownTable::new(Box::new(Unguarded)),
            live: FxHashMap::default(),
            log: WriteLog::new(),
            writer: None,
            handles: FxHashMap::default(),
            next_handle: 1,
            locks: BTreeMap::new(),
            old_content: FxHashMap::default(),
            pages: Pages::default(),
            closed: crate::closed::Closed::default(),
            dirty_files: BTreeSet::new(),
            flush_failed: BTreeMap::new(),
            short_of_segments: BTreeSet::new(),
            flush_later: BTreeMap::new(),
            glimpsed: Glimpsed::default(),
            gone: crate::gone::Gone::default(),
            lulls: crate::lulls::Lulls::default(),
            asked_again_at: None,
            opens_in_doubt: BTreeSet::new(),
            opens_out_of_sight: Vec::new(),
            pages_going: FxHashMap::default(),
            sought: FxHashMap::default(),
            inode_numbers: VecDeque::new(),
            reserve_asked: false,
            space: crate::space::SpaceCache::default(),
            quota: crate::quota::Quota::default(),
            parked: BTreeMap::new(),
            waiting: FxHashMap::default(),
            overtaken: crate::overtaken::Overtaken::default(),
            woken: VecDeque::new(),
            wants: FxHashMap::default(),
            want_of: BTreeMap::new(),
            fetches: FxHashMap::default(),
            fetch_of: BTreeMap::new(),
            shipped: BTreeMap::new(),
            last_op: OpSeq(0),
            unsynced_at_master: false,
            frozen: FxHashMap::default(),
            removing: FxHashMap::default(),
            releases: FxHashMap::default(),
            release_number: 0,
            released_at: FxHashMap::default(),
            released: Vec::new(),
            released_open: Vec::new(),
            jobs: Jobs::default(),
            held_forgets: Vec::new(),
            disowner: crate::disown::Disowner::default(),
            flushes: BTreeMap::new(),
            lock_calls: BTreeMap::new(),
            closes: crate::lockop::Closes::default(),
            broken: FxHashMap::default(),
            root_told: None,
            untold: BTreeSet::new(),
            lost_unnamed: BTreeSet::new(),
            commit_flush: None,
            gathering: None,
            unjudged: Vec::new(),
            names_again: VecDeque::new(),
            linger: Linger::default(),
            holds: crate::holds::Holds::default(),
            pins: BTreeMap::new(),
            elsewhere: Elsewhere::default(),
            pinned: FxHashMap::default(),
            next_number: 1,
            commit_due: Micros::NEVER,
            stores: Stores::default(),
            departure: Departure::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Has `guard` know what the kernel may have. Call it before the first [`Core::hello`].
    pub fn set_guard(&mut self, guard: Box<dyn Guard>) {
        self.known = KnownTable::new(guard);
    }

    /// Takes in a request. Returns the answer if there is one at once; else it comes as [`Output::Reply`].
    pub fn submit(&mut self, clock: Clock, id: RequestId, request: Request) -> Option<Reply> {
        self.submit_by(clock, id, request, false)
    }

    /// As [`Core::submit`], for somebody whom no limits of accounts bind if `is_exempt`.
    pub fn submit_by(
        &mut self,
        clock: Clock,
        id: RequestId,
        mut request: Request,
        is_exempt: bool,
    ) -> Option<Reply> {
        self.clock = clock;
        if let Some(dir) = request.within()
            && let Some(known) = self.known.get_mut(&dir)
        {
            known.seat.note_used();
        }
        self.cache.going.note_request(&request, id);
        if let Some((parent, name)) = request.made() {
            self.keep_made_name(parent, name);
        }
        let mut progress = Progress::new(clock.now, self.number(), id);
        // The kernel writes back what it has let somebody store.
        progress.is_exempt = is_exempt || matches!(request, Request::WritePages { .. });
        progress.reread = self.overtaken_on_its_way(&request);
        progress.meant = self.meant_by(&request);
        self.take_removal();
        let reply = match self.attempt(&mut request, &mut progress) {
            Step::Done(reply) => Some(reply),
            Step::Wait(key) => {
                self.park(id, Parked { request, progress, key });
                None
            }
        };
        // Not one that was woken by it.
        let removal = self.take_removal();
        self.settle();
        self.cache.unlinked.note_newest(removal);
        reply
    }

    /// The application gave up waiting. Requests that have nothing under way are answered at once.
    ///
    /// Whom a signal merely disturbs still gets what it asked for: only locks are waited for by programs that
    /// expect EINTR. A database whose fsync is interrupted by its own timer gives itself up.
    pub fn interrupt(&mut self, clock: Clock, id: RequestId, cause: Interrupt) {
        self.clock = clock;
        let Some(parked) = self.parked.get(&id) else { return };
        match parked.key {
            // Others are answered soon, and no program expects a signal to end them.
            WaitKey::Lock(request) => {
                if cause == Interrupt::Death || self.is_waiting_for_lock(request) {
                    self.cancel_lock(request);
                }
            }
            WaitKey::Ship(_) => {}
            WaitKey::Want(_)
            | WaitKey::Fetch(_)
            | WaitKey::Released(_)
            | WaitKey::Thawed(_)
            | WaitKey::Loaded(_)
            | WaitKey::LogSpace
            | WaitKey::Flush(_)
            | WaitKey::WrittenBack(_)
            | WaitKey::PagesGone(_)
            | WaitKey::Unlinked(_)
            | WaitKey::Durable
            | WaitKey::Numbers
            | WaitKey::Credit(_)
            | WaitKey::Member => {
                let is_done = parked.progress.done.is_some();
                // A file that was made is open, as far as the master knows: somebody must close it.
                let is_made = matches!(parked.request, Request::Create { .. } | Request::TmpFile { .. })
                    && parked.progress.ship.is_some();
                let must_finish =
                    is_made || matches!(parked.request, Request::Release { .. } | Request::Flush { .. });
                // The kernel says so once: the wait for a lock may begin after this one. Not if it is over: whoever is told that he was disturbed
                // would have the lock all the same.
                let is_for_lock = matches!(parked.request, Request::SetLock { wait: true, .. })
                    && parked.progress.lock.is_none();
                if (cause == Interrupt::Death || is_for_lock) && !is_done && !must_finish {
                    if let Some(parked) = self.unpark(id) {
                        self.end_search(&parked.request);
                        self.end_making(&parked.progress);
                    }
                    self.outputs.push_back(Output::Reply(id, Reply::Error(FsError::Interrupted)));
                }
            }
        }
        self.settle();
    }

    /// Time passed: see [`Core::poll_timeout`].
    pub fn handle_timeout(&mut self, clock: Clock) {
        self.clock = clock;
        self.on_time();
        self.settle();
    }

    /// When [`Core::handle_timeout`] is next needed.
    pub fn poll_timeout(&self) -> Micros {
        let revocation = self.tokens.next_revocation().unwrap_or(Micros::NEVER);
        let linger = self.linger.due();
        let ping = match self.link {
            Link::Up => self.ping_due(),
            Link::Down | Link::Ending | Link::Lost => Micros::NEVER,
        };
        let atimes = self.cache.atimes.due;
        let round = self.next_round().min(self.names_again.front().map_or(Micros::NEVER, |(due, _)| *due));
        let aside = self.aside_due();
        let leave = self.departure.again.unwrap_or(Micros::NEVER);
        let own = revocation.min(linger).min(self.holds.due()).min(atimes).min(round).min(aside).min(leave);
        own.min(ping).min(self.lapse_due()).min(self.commit_due).min(self.stores.due())
    }

    /// The next order for the driver.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether there are orders.
    pub fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Whether a long batch is among the orders: what is to be done with it takes milliseconds.
    pub fn has_bulk(&self) -> bool {
        self.outputs.iter().any(|output| match output {
            Output::Send(ToMaster::Batch { changes, .. }) => changes.len() >= BULK_CHANGES,
            Output::Send(ToMaster::BatchPart { .. }) => true,
            _ => false,
        })
    }

    /// Figures for `status`.
    pub fn snapshot(&self) -> Snapshot {
        let (mutations, batches) = self.log.unflushed();
        let dirty: usize =
            self.dirty_files.iter().filter_map(|ino| self.live.get(ino)).map(Live::dirty_bytes).sum();
        let unsynced = self.writer.as_ref().map_or(0, |writer| writer.unsynced_bytes());
        Snapshot {
            node: self.me,
            epoch: self.epoch,
            unflushed_mutations: mutations,
            unflushed_bytes: (self.log.bytes() + dirty) as u64 + unsynced,
            unflushed_batches: batches,
            unflushed_files: self.live.len() as u64,
            unstored_bytes: self.content_in_memory() as u64,
            tokens: self.tokens.len() as u64,
            waiting: self.parked.len() as u64,
            lacks_room: self.lacks_room(),
            store_wait: self.store_wait(),
            lazy: self.config.lazy,
        }
    }

    /// Sets the gauges that are cheaper to count when asked for than to keep.
    pub fn export_gauges(&self) {
        use obs::{CacheKind, HeldMode, TokenKind};
        let metrics = &self.metrics;
        let mut held = std::collections::BTreeMap::new();
        for (resource, mode) in self.tokens.list() {
            if let Some(mode) = HeldMode::of(mode) {
                *held.entry((TokenKind::from(resource.kind), mode)).or_insert(0i64) += 1;
            }
        }
        let open = self.known.values().filter(|known| known.open_told).count() as i64;
        held.insert((TokenKind::Attr, HeldMode::Op), open);
        for kind in TokenKind::ALL {
            for mode in HeldMode::ALL {
                metrics.tokens_held.set((*kind, *mode), held.get(&(*kind, *mode)).copied().unwrap_or(0));
            }
        }
        let now = self.clock.now;
        let is_dir = |resource: ResourceId| resource.kind == types::ResourceKind::Dir;
        for (kind, oldest) in [
            (CacheKind::Inode, self.tokens.oldest_use(|_| true)),
            (CacheKind::Dentry, self.tokens.oldest_use(is_dir)),
        ] {
            let age = oldest.map_or(0, |used_at| now.since(used_at).0 / 1_000_000);
            metrics.cache_age.set(kind, age as i64);
            let (hits, lookups) = (metrics.cache_hits.at(kind).get(), metrics.cache_lookups.at(kind).get());
            let percent = match kind {
                CacheKind::Inode => &metrics.inode_cache_hit_percent,
                CacheKind::Dentry => &metrics.dentry_cache_hit_percent,
            };
            percent.set((hits * 100).checked_div(lookups).unwrap_or(0) as i64);
            // Entries go with their tokens, and tokens have the limit.
            metrics.cache_maximum.set(kind, 0);
        }
        metrics.cache_memory_limit.set(i64::try_from(self.config.cache_bytes_max).unwrap_or(i64::MAX));
        metrics.token_memory_limit.set((self.tokens.share() * lock::TOKEN_BYTES) as i64);
    }

    /// Sets the gauges whose highest values count.
    fn note_sizes(&mut self) {
        use obs::CacheKind;
        let metrics = &self.metrics;
        metrics.token_memory.set((self.tokens.len() * lock::TOKEN_BYTES) as i64);
        metrics.cache_memory.set(self.cache.bytes as i64);
        metrics.log_bytes.set(self.log.bytes() as i64);
        metrics.mutations_pending.set(self.log.unflushed().0 as i64);
        let (added, removed) = self.cache.take_turnover();
        metrics.cache_allocated.add(CacheKind::Dentry, added);
        metrics.cache_freed.add(CacheKind::Dentry, removed);
        let dentries = self.cache.dentries();
        let inodes = self.known.len() as u64;
        for (kind, count) in [(CacheKind::Inode, inodes), (CacheKind::Dentry, dentries)] {
            let count = count as i64;
            metrics.cache_current.set(kind, count);
            metrics.cache_peak.set(kind, metrics.cache_peak.at(kind).get().max(count));
        }
        // Whatever takes an inode in or out, the difference to the last look is what counts.
        let before = std::mem::replace(&mut self.cache.inodes_counted, inodes);
        metrics.cache_allocated.add(CacheKind::Inode, inodes.saturating_sub(before));
        metrics.cache_freed.add(CacheKind::Inode, before.saturating_sub(inodes));
    }

    /// Requests that wait.
    pub fn waits(&self) -> Vec<Wait> {
        let wait = |(id, parked): (&RequestId, &Parked)| Wait {
            request: *id,
            operation: parked.request.kind(),
            subject: parked.request.subject(),
            waits_for: format!("{:?}", parked.key),
            is_lock: matches!(parked.key, WaitKey::Lock(_)),
            since: parked.progress.since,
        };
        self.parked.iter().map(wait).collect()
    }

    /// What is being taken back from the kernel, and why, so many at most.
    pub fn invalidations(&self, most: usize) -> Vec<String> {
        let told = |(number, job): (u64, &InvalidateJob)| {
            let InvalidateJob { purpose, pages, rounds, again, .. } = job;
            format!("{number}: {purpose:?}, pages of {pages:?}, after {rounds} rounds, next {again:?}")
        };
        self.jobs.iter().take(most).map(told).collect()
    }

    /// Requests that wait: number, what for, since when.
    pub fn waiting(&self) -> Vec<(RequestId, String, Micros)> {
        self.parked.iter().map(|(id, p)| (*id, format!("{:?}", p.key), p.progress.since)).collect()
    }

    /// Puts a request aside.
    fn park(&mut self, id: RequestId, parked: Parked) {
        self.waiting.entry(parked.key).or_default().insert(id);
        self.begin_overtaking(id, &parked);
        self.parked.insert(id, parked);
    }

    fn unpark(&mut self, id: RequestId) -> Option<Parked> {
        let mut parked = self.parked.remove(&id)?;
        if let Some(ids) = self.waiting.get_mut(&parked.key) {
            ids.remove(&id);
            if ids.is_empty() {
                self.waiting.remove(&parked.key);
            }
        }
        self.end_overtaking(id, &mut parked);
        Some(parked)
    }

    /// Requests waiting for `key` are to be tried again.
    pub(crate) fn wake(&mut self, key: WaitKey) {
        self.woken.push_back(key);
    }

    /// Calls `edit` on the progress of every request waiting for `key`.
    pub(crate) fn edit_waiting(&mut self, key: WaitKey, mut edit: impl FnMut(&mut Progress)) {
        for id in self.waiting.get(&key).into_iter().flatten() {
            if let Some(parked) = self.parked.get_mut(id) {
                edit(&mut parked.progress);
            }
        }
    }

    /// Tries woken requests again and starts what has fallen due, until nothing moves.
    pub(crate) fn settle(&mut self) {
        loop {
            self.note_moves();
            if let Some(key) = self.woken.pop_front() {
                let ids = self.waiting.get(&key).cloned().unwrap_or_default();
                for id in ids {
                    let Some(mut parked) = self.unpark(id) else { continue };
                    match self.attempt(&mut parked.request, &mut parked.progress) {
                        Step::Done(reply) => self.outputs.push_back(Output::Reply(id, reply)),
                        Step::Wait(key) => {
                            parked.key = key;
                            self.park(id, parked);
                        }
                    }
                }
                if let WaitKey::Want(want) = key {
                    // Attributes told for one use are for those who waited for them.
                    self.glimpsed.forget(want.ino());
                    if self.known.get(&want.ino()).is_none() {
                        self.cache.learnt.remove(&want.ino());
                    }
                    if let Want::Open { ino } = want {
                        self.opens_in_doubt.insert(ino);
                    }
                }
                continue;
            }
            if let Some(revocation) = self.tokens.poll_revocation(self.clock.now) {
                self.metrics.tokens_revoked.add(revocation.resource.kind.into(), 1);
                self.start_release_for(revocation, crate::revoke::Cause::Asked);
                continue;
            }
            if self.log.is_full() || self.is_turn_to_be_logged() {
                self.send_batch(false);
                continue;
            }
            if !self.drop_one() {
                break;
            }
        }
        self.drop_unused_opens();
        self.tell_out_of_sight();
        self.cover_debts();
        self.learn_charges();
        self.answer_recalls();
        self.send_released();
        self.pass_barriers();
        let is_redone = self.writer.as_ref().is_some_and(|writer| writer.redone_bytes() > 0);
        if !self.log.is_open_empty() || !self.live.is_empty() || is_redone {
            self.commit_due = self.commit_due.min(self.clock.now + self.config.commit_interval);
        }
        if self.departure.begun {
            self.go_on_leaving();
        }
        self.note_sizes();
    }

    /// Inodes of the kernel's follow their records.
    pub(crate) fn note_moves(&mut self) {
        // An open that was on its way when the name went must not find the inode where another is now.
        let mut left = std::mem::take(&mut self.cache.left);
        let moved = if left.is_empty() { &[][..] } else { &self.cache.moved[..] };
        let places: FxHashMap<Ino, Place> = moved.iter().copied().collect();
        for (ino, place) in &left {
            if let Some(known) = self.known.get_mut(ino).filter(|known| known.place() == *place) {
                known.set_place(Place::Unknown);
                // By that name the kernel may have it, or just be told of it.
                if let (Place::Covered(dir, cookie), Some(Place::Own)) = (*place, places.get(ino)) {
                    self.cache.seen_at.entry(*ino).or_default().note((dir, cookie));
                }
            }
            // What is known of its content was known by the right to the directory that it has left.
            if places.get(ino) != Some(place) {
                self.drop_pages(*ino);
            }
        }
        self.keep_departed();
        let mut moved = std::mem::take(&mut self.cache.moved);
        for (ino, place) in moved.drain(..) {
            self.gone.forget(ino);
            self.set_place(ino, place);
        }
        self.cache.moved = moved;
        // Whoever removes them now asks nobody here.
        for (ino, _) in left.drain(..) {
            let is_lost =
                |known: &Known| known.is_open() && !known.open_told && known.place() == Place::Unknown;
            if self.known.get(&ino).is_some_and(is_lost) {
                self.opens_out_of_sight.push(ino);
            }
        }
        self.cache.left = left;
        self.cache.left.shrink_to(MOVES_KEPT);
        self.cache.moved.shrink_to(MOVES_KEPT);
    }

    /// Tries a request from its start.
    fn attempt(&mut self, request: &mut Request, progress: &mut Progress) -> Step {
        let step = self.attempt_once(request, progress);
        if let Step::Done(_) = step {
            self.end_making(progress);
        }
        step
    }

    /// A request is over: what was noted of an inode that it made goes, unless the kernel was told of it.
    fn end_making(&mut self, progress: &Progress) {
        if let Some(ino) = progress.ino {
            self.forget_unused(ino);
        }
    }

    fn attempt_once(&mut self, request: &mut Request, progress: &mut Progress) -> Step {
        if std::mem::take(&mut progress.asks_content) {
            progress.error = None;
        }
        if let Some(error) = progress.error.take() {
            // Another node removed what the name stood for; the forget that says so came before this answer.
            let is_done = matches!(progress.ship, Some(Ship::Answered(Ok(_))));
            if error == FsError::Stale && !is_done && progress.has_no_place(request) {
                return self.refuse_gone(request);
            }
            let finds_again = error == FsError::Stale
                && request.finds_by_name()
                && (progress.stale_finds <= STALE_FINDS_MAX || self.must_find(request, progress));
            if !finds_again {
                // What was made was made, though it is gone before anybody was told.
                progress.is_gone = error == FsError::Stale && progress.has_made(request);
                if !progress.is_gone {
                    return self.refuse(request, progress, error);
                }
            }
            progress.stale_finds += 1;
            // The master that was to say so has died before it did. The next one will; until then names are read anew.
            if progress.stale_finds == STALE_FINDS_MAX + 1
                && !progress.is_gone
                && let Some(dir) = self.give_back_names(request)
            {
                return Step::Wait(WaitKey::Released(dir));
            }
        }
        self.glimpsed.trying = progress.number;
        let step = match self.try_request(request, progress) {
            Ok(reply) | Err(Step::Done(reply)) => {
                let mut reply = self.hand_over_shield(reply, progress);
                self.hand_over_reread(&mut reply, request, progress);
                Step::Done(reply)
            }
            Err(Step::Wait(key)) => Step::Wait(key),
        };
        if self.quota.binds()
            && let Some(ino) = request.content_changed()
        {
            self.settle_pending(ino);
        }
        // It was told for this try: by the next one it may be older than what the request itself did.
        progress.glimpse = None;
        self.count_attempt(request, &step, progress);
        step
    }

    /// Answers what is asked of a directory that is gone: it was empty before. ESTALE, and with it another walk of the path, would be told to the callers
    /// of mkdir, mknod, symlink and link, for which the kernel walks no second time (`filename_create` in linux:fs/namei.c).
    fn refuse_gone(&mut self, request: &mut Request) -> Step {
        Step::Done(match request {
            Request::Lookup { .. } | Request::Find { .. } => Reply::NoEntry(Keep::No),
            Request::ReadDir { sink, .. } => no_more(sink),
            _ => Reply::Error(FsError::NotFound),
        })
    }

    /// Answers with an error. The kernel walks the path of what is stale once more, and what it found there before must
    /// not be found again.
    fn refuse(&mut self, request: &Request, progress: &mut Progress, error: FsError) -> Step {
        if error == FsError::Stale
            && progress.stale_finds == 0
            && let Some(ino) = request.inode_on_path()
            && let Some(given_back) = self.give_back_place(ino)
        {
            progress.stale_finds += 1;
            progress.error = Some(error);
            return Step::Wait(WaitKey::Released(given_back));
        }
        self.end_search(request);
        if error != FsError::Stale {
            return error.into();
        }
        match self.last_look(request) {
            Some(reply) => Step::Done(reply),
            None => {
                self.keep_judged(request);
                error.into()
            }
        }
    }

    /// Gives back what the record of an inode was last seen under.
    fn give_back_place(&mut self, ino: Ino) -> Option<ResourceId> {
        let under = match self.place(ino) {
            Place::Covered(parent, _) => [Some(ResourceId::dir(parent)), None, None],
            Place::Own => [ResourceId::dir(ino), ResourceId::attr(ino), ResourceId::file(ino)].map(Some),
            Place::Unknown => [None; 3],
        };
        let mut given_back = None;
        for resource in under.into_iter().flatten() {
            let released = self.give_back_now(resource);
            given_back = given_back.or(released);
        }
        given_back
    }

    /// Gives back what is held of the directories that a request names something in; returns one of them.
    fn give_back_names(&mut self, request: &Request) -> Option<ResourceId> {
        let mut given_back = None;
        for (parent, _) in request.names() {
            let released = self.give_back_now(ResourceId::dir(parent));
            given_back = given_back.or(released);
        }
        given_back
    }

    /// Begins to give something back; `None` if nothing is held of it.
    pub(crate) fn give_back_now(&mut self, resource: ResourceId) -> Option<ResourceId> {
        if let Some(revocation) = self.tokens.start_release(resource, types::LockMode::Nl) {
            self.start_release(revocation);
        }
        self.tokens.is_releasing(resource).then_some(resource)
    }

    /// Counts searches in caches, each once: what had to be waited for was not there. And how long an fsync took.
    fn count_attempt(&mut self, request: &Request, step: &Step, progress: &mut Progress) {
        let cache = match request {
            Request::Lookup { .. } | Request::Find { .. } => obs::CacheKind::Dentry,
            Request::GetAttr { .. } | Request::Stat { .. } => obs::CacheKind::Inode,
            Request::Fsync { .. } => {
                if let Step::Done(Reply::Done) = step {
                    self.metrics.durable_wait.record(self.clock.now.since(progress.since).0);
                }
                return;
            }
            _ => return,
        };
        if std::mem::replace(&mut progress.is_counted, true) {
            return;
        }
        self.metrics.cache_lookups.add(cache, 1);
        if let Step::Done(_) = step {
            self.metrics.cache_hits.add(cache, 1);
        }
    }

    /// Where the record of `ino` was last seen.
    pub(crate) fn place(&self, ino: Ino) -> Place {
        if self.cache.dirs.contains_key(&ino) || self.cache.owns.contains_key(&ino) {
            return Place::Own;
        }
        self.known.get(&ino).map_or(Place::Unknown, |known| known.place())
    }

    /// A number for a job or a request to the master.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Sends to the master. Without one nothing is lost: everything that matters is sent again on rejoining. After its
    /// Bye a node is nobody to the master, who would take a late acknowledgement for the first message of a stranger.
    pub(crate) fn send(&mut self, message: ToMaster) {
        // Whatever this is, it may let others change what was copied.
        if self.log.has_copy() {
            self.send_batch(false);
        }
        if self.link == Link::Up && !self.departure.ended {
            message.split(|part| self.outputs.push_back(Output::Send(part)));
        }
    }

    /// Seals what is in the log and sends it.
    pub(crate) fn send_batch(&mut self, sync: bool) {
        // Half full of what is not durable: have it made durable before anybody has to wait for room.
        let sync = sync
            || self.log.bytes() > self.config.log_bytes_max / 2
                && self.log.durable() == self.log.sync_asked();
        if let Some(batch) = self.log.seal(sync) {
            self.metrics.batches.add(1);
            self.send(batch);
        }
    }
}
