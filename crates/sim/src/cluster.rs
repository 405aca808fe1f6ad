//! The cluster: cores, queues between them, and the choice of what happens next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chunk::{MemStore, SegmentStore};
use kv::{Claim, Engine, MemDisk};
use master::{Master, PeerId};
use meta::{FsError, Limits};
use obs::Metrics;
use types::{Epoch, Ino, Micros, Timespec};
use vfs::{Clock, Core, HandleId, Invalidation, Output, Reply, Request, RequestId, WriteData};
use wire::{FromMaster, ToMaster};

use crate::coverage::Coverage;
use crate::kernel::{Asked, Kernel, Pending, second_try};
use crate::traffic::Traffic;
use syncs::ToSync;

mod answers;
mod at_once;
mod credit;
mod deposed;
mod faults;
mod figures;
mod masters;
mod moves;
mod syncs;

pub use faults::{Cut, StoreFault};
pub use figures::Figures;
pub use moves::{Lane, Move};

/// Settings of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Decides everything.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// Settings of each node's core.
    pub core: vfs::Config,
    /// Entries of a directory in one message; 0 for the master's own limit.
    pub listing_entries: usize,
    /// Prints messages and invalidations as they happen.
    pub verbose: bool,
    /// How much faster or slower clocks of nodes run than the master's, in millionths, at most.
    pub drift: u32,
    /// Whether memberships may end and connections break.
    pub may_break: bool,
    /// Whether the stores may fail.
    pub may_fail: bool,
    /// Memory for tokens, all nodes together, in bytes.
    pub token_memory: u64,
    /// Limits of whoever all processes are.
    pub limits: Option<Limits>,
    /// Whether kernels take in some answers late.
    pub may_be_late: bool,
}

impl Default for ClusterConfig {
    /// One node, and nothing goes wrong.
    fn default() -> Self {
        Self {
            seed: 0,
            nodes: 1,
            core: vfs::Config::default(),
            listing_entries: 0,
            verbose: false,
            drift: 0,
            may_break: false,
            may_fail: false,
            token_memory: 256 << 20,
            limits: None,
            may_be_late: false,
        }
    }
}

/// One node.
struct Node {
    core: Core,
    metrics: Arc<Metrics>,
    kernel: Kernel,
    to_master: VecDeque<ToMaster>,
    from_master: VecDeque<FromMaster>,
    jobs: Vec<Job>,
    /// Directories of which a lull is waited for.
    lulls: Vec<(Ino, u16)>,
    /// In the order given out.
    syncs: VecDeque<(u64, ToSync)>,
    replies: BTreeMap<RequestId, Reply>,
    is_up: bool,
    pid: u32,
    peer: PeerId,
    /// How much faster its clock runs than the master's, in millionths.
    drift: i64,
    /// Until then its machine stands still.
    paused_until: Micros,
    /// Until then nothing reaches the master, or the node.
    cut_until: [Micros; 2],
    /// No sync of its segments ends before.
    store_stands_until: Micros,
    /// How slow messages to the master, and to the node, are.
    slow: [faults::Slow; 2],
    /// It is to connect when it can.
    must_connect: bool,
    /// The master has closed its connection.
    is_closed: bool,
    memberships_lost: u64,
    /// Files that are open, as the kernel knows.
    handles: BTreeMap<HandleId, Ino>,
    /// What requests mean to the kernel whose answers nobody took yet.
    asked: BTreeMap<RequestId, Asked>,
    /// Requests of processes that were killed meanwhile.
    abandoned: BTreeSet<RequestId>,
    /// Answers that are still to be taken in.
    late: Vec<answers::Late>,
}

/// An invalidation on its way through the kernel.
struct Job {
    number: u64,
    list: Vec<Invalidation>,
    since: Micros,
    /// Write-backs of stores through mappings, which the kernel makes before it drops the pages.
    writing: BTreeSet<RequestId>,
}

/// The cluster.
pub struct Cluster {
    rng: fastrand::Rng,
    now: Micros,
    config: ClusterConfig,
    disk: MemDisk,
    store: MemStore,
    master: Option<Master>,
    /// What masters before this one granted beyond limits.
    granted_beyond: Vec<types::Credit>,
    master_syncs: VecDeque<u64>,
    engine: Arc<dyn Engine>,
    nodes: Vec<Node>,
    /// Connections that their nodes have left, with what still arrives by them.
    old_links: VecDeque<faults::OldLink>,
    /// A master that goes on after another has taken over.
    deposed: Option<deposed::Deposed>,
    /// How slow syncs are, and until when none ends.
    slow_store: faults::Slow,
    store_busy_until: Micros,
    /// The master has failed: its process ends.
    master_failed: bool,
    /// Nodes that noticed that their membership had ended.
    ended: Vec<usize>,
    /// Answers in the order they came.
    answered: VecDeque<(usize, RequestId)>,
    next_peer: u64,
    next_request: u64,
    trace: u64,
    figures: Figures,
    coverage: Coverage,
    traffic: Traffic,
    /// Whether messages and invalidations are printed.
    verbose: bool,
}

/// How much clocks may differ (docs/locking.md, "Leases and epochs"), in millionths.
const DRIFT_MAX: u32 = 100_000;
/// What one request may add to what a node keeps in memory.
const REQUEST_BYTES: usize = 1 << 20;
const VOLUME: [u8; 16] = [7; 16];
const COOKIE_KEY: [u8; 16] = [9; 16];
const LEASE: Micros = Micros(10_000_000);
/// How long a name may take to be taken back before the driver raises the epoch.
const PATIENCE: Micros = Micros(5_000);

impl Cluster {
    /// A cluster with all nodes joined.
    pub fn new(config: ClusterConfig) -> Self {
        let disk = MemDisk::new();
        #[cfg(feature = "planted")]
        disk.leave_gap(|| types::planted::strikes(types::planted::Planted::FenceLeftOpen));
        let engine: Arc<dyn Engine> = Arc::new(disk.open(Claim::new(1)).expect("a new disk opens"));
        let now = Micros(1_000_000);
        Master::format(&*engine, wall(now), 0, 0).expect("an empty engine takes its first contents");
        let mut cluster = Self {
            rng: fastrand::Rng::with_seed(config.seed),
            now,
            disk,
            store: MemStore::new(),
            master: None,
            granted_beyond: Vec::new(),
            master_syncs: VecDeque::new(),
            engine,
            nodes: Vec::new(),
            old_links: VecDeque::new(),
            deposed: None,
            slow_store: Default::default(),
            store_busy_until: Micros(0),
            master_failed: false,
            ended: Vec::new(),
            answered: VecDeque::new(),
            next_peer: 1,
            next_request: 1,
            coverage: Coverage::default(),
            traffic: Traffic::default(),
            trace: 0xcbf2_9ce4_8422_2325,
            figures: Figures::default(),
            verbose: config.verbose,
            config,
        };
        cluster.open_master();
        cluster.set_limits();
        for _ in 0..cluster.config.nodes {
            cluster.add_node();
        }
        cluster
    }

    /// Adds a node and returns its index.
    pub fn add_node(&mut self) -> usize {
        let pid = self.nodes.len() as u32 + 100;
        let metrics = Arc::new(Metrics::new());
        let store: Arc<dyn SegmentStore> = Arc::new(self.store.clone());
        let core = Core::new(self.config.core.clone(), VOLUME, store, metrics.clone());
        self.nodes.push(Node {
            core,
            metrics,
            kernel: Kernel::default(),
            to_master: VecDeque::new(),
            from_master: VecDeque::new(),
            jobs: Vec::new(),
            lulls: Vec::new(),
            syncs: VecDeque::new(),
            replies: BTreeMap::new(),
            is_up: true,
            pid,
            peer: PeerId(0),
            drift: 0,
            paused_until: Micros(0),
            cut_until: [Micros(0); 2],
            store_stands_until: Micros(0),
            slow: Default::default(),
            must_connect: false,
            is_closed: false,
            memberships_lost: 0,
            handles: BTreeMap::new(),
            asked: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            late: Vec::new(),
        });
        let index = self.nodes.len() - 1;
        if self.config.drift > 0 {
            let most = self.config.drift as i64;
            self.nodes[index].drift = self.rng.i64(-most..=most);
        }
        self.connect(index);
        index
    }

    /// Connects a node to the master there is now.
    fn connect(&mut self, index: usize) {
        let clock = self.node_clock(index);
        let node = &mut self.nodes[index];
        node.is_closed = false;
        node.must_connect = node.paused_until > self.now || !node.core.may_join();
        if node.must_connect {
            return;
        }
        let hello = node.core.hello(clock, node.pid, 1, format!("node {index}"), format!("0:{index}"));
        node.to_master.push_back(hello);
        let peer = PeerId(self.next_peer);
        self.next_peer += 1;
        node.peer = peer;
        let clock = self.master_clock();
        if let Some(master) = self.master.as_mut() {
            master.connected(clock, peer);
        }
    }

    /// Whether a node is up.
    pub fn is_up(&self, index: usize) -> bool {
        self.nodes[index].is_up
    }

    /// Nodes that are up.
    pub fn nodes_up(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].is_up).collect()
    }

    /// Whether a kernel would let a process make this request now: directories are locked while they change.
    pub fn may_submit(&self, index: usize, request: &Request) -> bool {
        self.nodes[index].kernel.admits(&Pending::of(request))
    }

    /// Hands a request to a node.
    pub fn submit(&mut self, index: usize, request: Request) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let clock = self.node_clock(index);
        if self.verbose {
            let mut text = format!("{request:?}");
            text.truncate(160);
            println!("{} n{index} request {}: {text}", clock.now, id.0);
        }
        let node = &mut self.nodes[index];
        let pending = Pending::of(&request);
        node.asked.insert(id, Asked::of(&request));
        if let Request::Release { handle, .. } = &request {
            node.handles.remove(handle);
        }
        let reply = at_once::write(&mut node.core, clock, &request);
        match reply.or_else(|| node.core.submit(clock, id, request)) {
            Some(reply) => {
                let reply = match self.config.may_be_late {
                    true => node.be_late(&mut self.rng, self.now, (id, reply), pending),
                    false => Some(reply),
                };
                if let Some(reply) = reply {
                    node.catch_up(clock, &reply);
                    node.note_opened(&reply);
                    node.replies.insert(id, reply);
                }
            }
            None => {
                node.kernel.pending.insert(id, pending);
                self.coverage.note_waits(&node.core);
            }
        }
        self.pump();
        self.end_over(index);
        id
    }

    /// The answer to a request, once it is there.
    pub fn take_reply(&mut self, index: usize, id: RequestId) -> Option<Reply> {
        let node = &mut self.nodes[index];
        let reply = node.replies.remove(&id)?;
        node.asked.remove(&id);
        Some(reply)
    }

    /// The oldest answer that nobody took. Kernels take answers in before their processes go on.
    pub fn oldest_reply(&mut self) -> Option<(usize, RequestId)> {
        while let Some((index, id)) = self.answered.front().copied() {
            if self.nodes[index].replies.contains_key(&id) {
                return Some((index, id));
            }
            self.answered.pop_front();
        }
        None
    }

    /// A signal reaches a process that waits.
    pub fn interrupt(&mut self, index: usize, id: RequestId) {
        let clock = self.node_clock(index);
        self.nodes[index].core.interrupt(clock, id, vfs::Interrupt::Signal);
        self.pump();
    }

    /// Lets things happen until a request is answered.
    pub fn wait(&mut self, index: usize, id: RequestId) -> Reply {
        for _ in 0..200_000 {
            if let Some(reply) = self.take_reply(index, id) {
                return reply;
            }
            self.step();
        }
        let waiting = self.waiting();
        panic!(
            "seed {}: request {id:?} of node {index} is never answered; waiting: {waiting}",
            self.config.seed
        );
    }

    /// Who waits for what, on all nodes.
    pub fn waiting(&self) -> String {
        let each = self.nodes.iter().enumerate().filter(|(_, n)| n.is_up);
        let text = each.map(|(index, n)| {
            let jobs: Vec<_> = n.jobs.iter().map(|j| (j.number, &j.list)).collect();
            let pending = &n.kernel.pending;
            let (now, due) = (n.time_at(self.now), n.core.poll_timeout());
            let waiting = n.core.waiting();
            format!("n{index} at {now}, due {due}: parked {waiting:?} jobs {jobs:?} kernel {pending:?}")
        });
        text.collect::<Vec<_>>().join("\n")
    }

    /// Lets time pass until nothing is left to do and every commit interval is over.
    pub fn quiesce(&mut self) {
        let has_faults = self.figures.pauses + self.figures.cuts + self.figures.breaks > 0;
        self.end_troubles();
        let until = Micros(self.now.0 + if has_faults { 40_000_000 } else { 8_000_000 });
        while self.now < until {
            self.step();
        }
    }

    /// A request and its answer.
    pub fn call(&mut self, index: usize, request: Request) -> Reply {
        let second = second_try(&request);
        let id = self.submit(index, request);
        match (self.wait(index, id), second) {
            (Reply::Error(FsError::Stale), Some(second)) => {
                self.kernel(index).asks_again(&second);
                let id = self.submit(index, second);
                self.wait(index, id)
            }
            (reply, _) => reply,
        }
    }

    /// The kernel of a node.
    pub fn kernel(&mut self, index: usize) -> &mut Kernel {
        &mut self.nodes[index].kernel
    }

    /// The core of a node.
    pub fn core(&mut self, index: usize) -> &mut Core {
        &mut self.nodes[index].core
    }

    /// Counters of a node.
    pub fn metrics(&self, index: usize) -> &Metrics {
        &self.nodes[index].metrics
    }

    /// Where segments are.
    pub fn store(&self) -> &MemStore {
        &self.store
    }

    /// A random number below `n`.
    pub fn random(&mut self, n: u64) -> u64 {
        self.rng.u64(0..n)
    }

    /// The engine of the master there is now.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Which transitions were seen.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Some of what was sent and all that is stored.
    pub fn traffic(&mut self) -> Traffic {
        self.traffic.read_stores(&*self.engine, &self.store);
        self.traffic.clone()
    }

    /// A digest of everything that happened, for the test that the same seed gives the same run.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Whether stores may fail.
    pub fn may_fail(&self) -> bool {
        self.config.may_fail
    }

    /// Whether there are limits.
    pub fn has_limits(&self) -> bool {
        self.config.limits.is_some()
    }

    /// Something of a node that has grown beyond its limit.
    pub fn size_fault(&self, index: usize) -> Option<String> {
        let node = &self.nodes[index];
        let limits = &self.config.core;
        let log = node.metrics.log_bytes.get();
        let content = node.core.snapshot().unstored_bytes;
        // What one request may add before the next one waits.
        if log > (limits.log_bytes_max + REQUEST_BYTES) as i64 {
            return Some(format!("the log has {log} bytes of {}", limits.log_bytes_max));
        }
        if content > (limits.dirty_bytes_max + REQUEST_BYTES) as u64 {
            return Some(format!("{content} bytes of content in memory, of {}", limits.dirty_bytes_max));
        }
        None
    }

    /// Tokens that the master has granted, all nodes together.
    pub fn tokens_granted(&self) -> u64 {
        self.master.iter().flat_map(|master| master.members()).map(|member| member.tokens).sum()
    }

    /// What happened so far.
    pub fn figures(&self) -> Figures {
        let lapses = self.nodes.iter().map(|n| n.metrics.leases_lapsed.get()).sum();
        let resent = self.nodes.iter().map(|n| n.metrics.batches_resent.get()).sum();
        let chunk::Losses { failures, writes_lost, writes_torn } = self.store.losses();
        Figures {
            micros: self.now.0,
            lapses,
            resent,
            store_failures: failures,
            writes_lost,
            writes_torn,
            ..self.figures
        }
    }

    /// Whether processes of a node go on: its machine does, and what its kernel shows is under a lease.
    ///
    /// With clocks that run too differently for that to be sure, not before it knows what its master knows.
    pub fn goes(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        let is_under_lease = match self.config.drift > DRIFT_MAX {
            true => self.is_member(index),
            false => true,
        };
        node.paused_until <= self.now
            && is_under_lease
            && !node.core.may_show_stale(self.node_clock(index).now)
    }

    /// Whether files of a node answer EIO until handles are closed.
    pub fn has_broken_files(&self, index: usize) -> bool {
        self.nodes[index].is_up && self.nodes[index].core.broken_files() > 0
    }

    /// Whether the master has the membership of a node.
    pub fn is_member(&self, index: usize) -> bool {
        let me = self.nodes[index].core.snapshot().node;
        self.master.as_ref().is_some_and(|master| master.members().iter().any(|member| member.node == me))
    }

    /// What a node's clock shows.
    pub fn node_clock(&self, index: usize) -> Clock {
        Clock { now: self.nodes[index].time_at(self.now), wall: wall(self.now) }
    }

    /// What the master has committed and readers may not have been told: the master's epoch and the numbers of the
    /// changes. `None` while nobody can say.
    pub fn changes_under_way(&self) -> Option<(Epoch, Vec<u64>)> {
        let master = self.master.as_ref().filter(|master| !master.is_recovering())?;
        Some((master.epoch(), master.changes_under_way()))
    }

    /// The time.
    pub fn clock(&self) -> Clock {
        Clock { now: self.now, wall: wall(self.now) }
    }

    fn master_clock(&self) -> master::Clock {
        master::Clock { now: self.now, wall: wall(self.now) }
    }

    /// Whether nothing can happen but that time passes.
    pub fn is_quiet(&self) -> bool {
        let is_quiet = |node: &Node| {
            node.to_master.is_empty()
                && node.from_master.is_empty()
                && node.jobs.is_empty()
                && node.syncs.is_empty()
                && node.late.is_empty()
        };
        self.master_syncs.is_empty() && self.nodes.iter().filter(|n| n.is_up).all(is_quiet)
    }

    /// One event, chosen by the seed among all that can happen; if there is none, time goes on to the next
    /// timer.
    pub fn step(&mut self) {
        if std::mem::take(&mut self.master_failed) {
            self.kill_master();
        }
        let may_sync = self.store_busy_until <= self.now;
        let mut events: Vec<(usize, u8)> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, n)| n.is_up) {
            for (kind, _) in self.open_queues(node).iter().enumerate().filter(|(_, has)| **has) {
                events.push((index, kind as u8));
            }
        }
        if may_sync && !self.master_syncs.is_empty() {
            events.push((usize::MAX, 4));
        }
        if self.old_links.iter().any(|link| link.due <= self.now) {
            events.push((usize::MAX, 5));
        }
        if self.deposed.is_some() {
            events.push((usize::MAX, 6));
        }
        self.now = Micros(self.now.0 + 1 + self.rng.u64(0..20));
        if events.is_empty() {
            self.advance();
        } else {
            let (index, kind) = events[self.rng.usize(0..events.len())];
            self.note((index as u64).wrapping_mul(8) + u64::from(kind));
            self.happen(index, kind);
        }
        self.timers();
        self.take_in_late();
        self.pump();
        self.check_credit();
        self.check_late();
    }

    /// Whether something can happen to the messages to the master and from it, in the kernel, and in the store of a node.
    fn open_queues(&self, node: &Node) -> [bool; 4] {
        let goes = node.paused_until <= self.now;
        let [may_send, may_hear] = node.cut_until.map(|until| until <= self.now);
        let may_sync = self.store_busy_until.max(node.store_stands_until) <= self.now;
        [
            may_send && !node.to_master.is_empty(),
            goes && may_hear && !node.from_master.is_empty(),
            goes && node.jobs.iter().any(|job| self.is_ready(node, job)),
            goes && may_sync && !node.syncs.is_empty(),
        ]
    }

    /// Whether a kernel can carry a job out now: names under their directories' locks, pages under theirs. Out of
    /// patience with a name, the driver has all names run out instead.
    fn is_ready(&self, node: &Node, job: &Job) -> bool {
        let is_blocked = |i: &Invalidation| node.kernel.blocks(i);
        let has_patience = self.now < job.since + PATIENCE;
        let names = job.list.iter().filter(|i| {
            matches!(
                i,
                Invalidation::Name { .. } | Invalidation::Unhash { .. } | Invalidation::Settled { .. }
            )
        });
        let pages = job.list.iter().filter(|i| matches!(i, Invalidation::Pages { .. }));
        job.writing.is_empty()
            && !(has_patience && names.into_iter().any(is_blocked))
            && !pages.into_iter().any(is_blocked)
    }

    /// One of the jobs that a kernel can carry out: they are independent of each other.
    fn run_any_job(&mut self, index: usize) {
        let node = &self.nodes[index];
        let ready: Vec<usize> =
            (0..node.jobs.len()).filter(|at| self.is_ready(node, &node.jobs[*at])).collect();
        let at = ready[self.rng.usize(0..ready.len())];
        self.run_job(index, at);
    }

    fn run_job(&mut self, index: usize, at: usize) {
        let clock = self.node_clock(index);
        let node = &mut self.nodes[index];
        let job = &node.jobs[at];
        if self.verbose {
            println!("{} n{index} kernel: {:?}", clock.now, job.list);
        }
        let is_stuck = |i: &Invalidation| {
            matches!(i, Invalidation::Name { .. } | Invalidation::Unhash { .. }) && node.kernel.blocks(i)
        };
        if job.list.iter().any(is_stuck) {
            self.figures.epochs_raised += 1;
            node.kernel.names.clear();
        }
        let mut writes = Vec::new();
        for invalidation in &job.list {
            if let Invalidation::Pages { ino } = invalidation {
                writes.extend(node.kernel.take_stores(*ino).map(|(offset, data)| (*ino, offset, data)));
            }
        }
        for (ino, offset, data) in writes {
            self.figures.late_writes += 1;
            let data = WriteData(data.into());
            let id = self.submit(index, Request::WritePages { ino, offset, data });
            self.nodes[index].jobs[at].writing.insert(id);
        }
        if self.nodes[index].jobs[at].writing.is_empty() {
            self.end_job(index, at);
        } else {
            self.finish_writes(index);
        }
    }

    fn end_job(&mut self, index: usize, at: usize) {
        let clock = self.node_clock(index);
        let node = &mut self.nodes[index];
        let job = node.jobs.remove(at);
        self.figures.invalidations += job.list.len() as u64;
        for invalidation in &job.list {
            node.kernel.invalidate(invalidation);
            if let Invalidation::Lull { dir, number, .. } = invalidation {
                node.lulls.push((*dir, *number));
            }
        }
        node.core.invalidated(clock, job.number);
        node.tell_lulls(clock);
    }

    /// Write-backs that are answered let their jobs end.
    fn finish_writes(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        for job in &mut node.jobs {
            let done: Vec<RequestId> =
                job.writing.iter().copied().filter(|id| node.replies.contains_key(id)).collect();
            for id in done {
                job.writing.remove(&id);
                node.asked.remove(&id);
                match node.replies.remove(&id) {
                    Some(Reply::Written { .. }) => {}
                    // The membership has ended: what was stored is lost, as what was written.
                    Some(Reply::Error(meta::FsError::Io)) if node.memberships_lost > 0 => {}
                    // Whose file it is knows that a store has failed.
                    Some(Reply::Error(meta::FsError::Io | meta::FsError::NoSpace))
                        if self.config.may_fail => {}
                    other => panic!("seed {}: a write-back was answered {other:?}", self.config.seed),
                }
            }
        }
    }

    fn happen(&mut self, index: usize, kind: u8) {
        let clock = if kind < 4 { self.node_clock(index) } else { self.clock() };
        let master_clock = self.master_clock();
        match kind {
            0 => {
                self.figures.messages += 1;
                let peer = self.nodes[index].peer;
                let message = self.nodes[index].to_master.pop_front();
                if let (Some(master), Some(message)) = (self.master.as_mut(), message) {
                    self.coverage.note_to_master(&message, master);
                    self.traffic.note_to_master(&message);
                    self.trace = mix(self.trace, &types::Encode::to_bytes(&message));
                    if self.verbose {
                        println!("{} n{index} -> master: {message:?}", clock.now);
                    }
                    master.handle(master_clock, peer, message);
                }
                self.delay(index, 0);
            }
            1 => {
                self.figures.messages += 1;
                let node = &mut self.nodes[index];
                if let Some(message) = node.from_master.pop_front() {
                    self.trace = mix(self.trace, &types::Encode::to_bytes(&message));
                    if self.verbose {
                        println!("{} master -> n{index}: {message:?}", clock.now);
                    }
                    self.coverage.note_from_master(&message, &node.core);
                    self.traffic.note_from_master(&message);
                    node.core.handle_message(clock, message);
                    self.coverage.note_waits(&node.core);
                }
                self.delay(index, 1);
            }
            2 => self.run_any_job(index),
            3 => {
                self.sync_one(index, clock);
                self.delay_store();
            }
            5 => self.old_link_goes_on(),
            6 => self.deposed_goes_on(),
            _ => {
                self.figures.syncs += 1;
                if let (Some(master), Some(job)) = (self.master.as_mut(), self.master_syncs.pop_front()) {
                    let result = self.engine.sync();
                    master.synced(master_clock, job, result);
                }
                self.delay_store();
            }
        }
    }

    /// Nothing else can happen: time goes on to the next timer.
    fn advance(&mut self) {
        if let Some(next) = self.next_time() {
            self.now = self.now.max(next);
        }
    }

    /// When time goes on to if nothing else happens, if anything waits for it.
    pub fn next_time(&self) -> Option<Micros> {
        let alive = || self.nodes.iter().filter(|n| n.is_up);
        let timers = alive().filter(|n| n.paused_until <= self.now);
        let nodes = timers.map(|n| n.moment_of(n.core.poll_timeout()));
        let faults =
            alive().flat_map(|n| [n.paused_until, n.cut_until[0], n.cut_until[1], n.store_stands_until]);
        let faults = faults.chain([self.store_busy_until]).chain(self.old_links.iter().map(|link| link.due));
        let faults = faults.filter(|until| *until > self.now).min().unwrap_or(Micros::NEVER);
        let master = self.master.as_ref().map_or(Micros::NEVER, Master::poll_timeout);
        let jobs = self.nodes.iter().flat_map(|n| &n.jobs).filter(|j| j.writing.is_empty());
        let patience =
            jobs.map(|j| j.since + PATIENCE).filter(|due| *due > self.now).min().unwrap_or(Micros::NEVER);
        let late = self.nodes.iter().map(Node::late_due).filter(|due| *due > self.now);
        let late = late.min().unwrap_or(Micros::NEVER);
        let next = nodes.min().unwrap_or(Micros::NEVER).min(master).min(patience).min(faults).min(late);
        (next != Micros::NEVER).then_some(next)
    }

    fn timers(&mut self) {
        for index in self.nodes_up() {
            let clock = self.node_clock(index);
            let node = &mut self.nodes[index];
            if node.paused_until > self.now {
                continue;
            }
            if node.core.poll_timeout() <= clock.now {
                node.core.handle_timeout(clock);
            }
            if node.must_connect {
                self.connect(index);
            }
        }
        let clock = self.master_clock();
        if let Some(master) = self.master.as_mut()
            && master.poll_timeout() <= clock.now
        {
            master.handle_timeout(clock);
        }
        self.bury_absent_members();
    }

    /// Moves orders of the cores into the queues.
    fn pump(&mut self) {
        let (now, seed, mut lost, mut anew) = (self.now, self.config.seed, None, Vec::new());
        let mut unused = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate().filter(|(_, n)| n.is_up) {
            while let Some(output) = node.core.poll_output() {
                match output {
                    Output::Send(message) => node.to_master.push_back(message),
                    Output::Reply(id, reply) => {
                        let locks = node.kernel.pending.remove(&id).unwrap_or_default();
                        let reply = match self.config.may_be_late {
                            true => node.be_late(&mut self.rng, now, (id, reply), locks),
                            false => Some(reply),
                        };
                        let clock = Clock { now: node.time_at(now), wall: wall(now) };
                        match reply.map(|reply| node.take_answer(clock, id, reply)) {
                            Some(Ok(())) => self.answered.push_back((index, id)),
                            Some(Err(opened)) => unused.extend(opened.map(|handle| (index, handle))),
                            None => {}
                        }
                    }
                    Output::Invalidate { job, list } => {
                        node.jobs.push(Job { number: job, list, since: now, writing: BTreeSet::new() });
                    }
                    Output::Gather { job } => node.syncs.push_back((job, ToSync::Gather)),
                    Output::Sync { job, plan } => node.syncs.push_back((job, ToSync::Run(plan))),
                    // What processes here store through mappings is written back at once.
                    Output::CollectStores => {
                        let clock = Clock { now: node.time_at(now), wall: wall(now) };
                        node.core.stores_collected(clock);
                    }
                    // Closes of processes here reach the core before they return.
                    Output::TellCloses { seq, .. } => {
                        let clock = Clock { now: node.time_at(now), wall: wall(now) };
                        node.core.closes_told(clock, seq);
                    }
                    Output::Left => {
                        node.is_up = false;
                        let (peer, messages) = (node.peer, std::mem::take(&mut node.to_master));
                        self.old_links.push_back(faults::OldLink { index, peer, messages, due: now });
                    }
                    Output::Rejoin => anew.push(index),
                    // Of a node that leaves: what it could not store.
                    Output::Lost(_) if self.config.may_fail => {}
                    Output::Lost(reason) => lost = Some((index, reason)),
                }
            }
        }
        if let Some((index, reason)) = lost {
            let waiting = self.waiting();
            panic!("seed {seed}: node {index} lost its membership: {reason}; waiting:\n{waiting}");
        }
        self.note_ended();
        for index in anew {
            self.break_connection(index);
        }
        for (index, handle) in unused {
            self.close(index, handle);
        }
        for index in 0..self.nodes.len() {
            if self.nodes[index].jobs.iter().any(|job| !job.writing.is_empty()) {
                self.finish_writes(index);
            }
        }
        self.pump_master();
    }

    fn with_master(&mut self, call: impl FnOnce(&mut Master, master::Clock)) {
        let clock = self.master_clock();
        if let Some(master) = self.master.as_mut() {
            call(master, clock);
        }
    }

    fn pump_master(&mut self) {
        let seed = self.config.seed;
        while let Some(output) = self.master.as_mut().and_then(Master::poll_output) {
            match output {
                master::Output::Send { peer, message } => {
                    if let Some(node) = self.nodes.iter_mut().find(|n| n.is_up && n.peer == peer) {
                        node.from_master.push_back(message);
                    }
                }
                master::Output::Close { peer, reason } => self.note_closed(peer, &reason),
                master::Output::Sync { job } => self.master_syncs.push_back(job),
                master::Output::DeleteSegments { list } => {
                    let is_gone = |s: &types::SegmentId| {
                        matches!(self.store.delete(*s), Ok(()) | Err(chunk::ChunkError::Missing { .. }))
                    };
                    let deleted: Vec<_> = list.into_iter().filter(is_gone).collect();
                    self.figures.segments_deleted += deleted.len() as u64;
                    self.with_master(|master, clock| master.segments_deleted(clock, &deleted));
                }
                master::Output::FindFiles { list, everywhere } => {
                    let files = match everywhere {
                        true => {
                            let segments = list.into_iter().collect();
                            master::files_naming(&*self.engine, &segments, &mut |_| true).unwrap_or_default()
                        }
                        false => list
                            .iter()
                            .filter_map(|s| chunk::files_of(&self.store, *s).ok())
                            .flatten()
                            .collect(),
                    };
                    self.with_master(|master, clock| master.files_found(clock, &files));
                }
                master::Output::CopyExtents { segments, list } => {
                    let config = chunk::WriterConfig {
                        segment_len: self.config.core.segment_len,
                        ..chunk::WriterConfig::new(VOLUME, types::NodeId(0))
                    };
                    let store: Arc<dyn SegmentStore> = Arc::new(self.store.clone());
                    let copies =
                        chunk::copy_extents(&store, config, segments, list, &|| true).unwrap_or_default();
                    self.figures.extents_copied += copies.len() as u64;
                    self.with_master(|master, clock| master.extents_copied(clock, copies));
                }
                master::Output::TrimSegments { .. } => {}
                master::Output::PutBack { round } => self.put_back(round),
                master::Output::ListSegments => {
                    let listed = self.store.list().expect("all of them");
                    self.with_master(|master, clock| master.segments_listed(clock, &listed));
                }
                master::Output::Failed { reason } => {
                    assert!(self.config.may_fail, "seed {seed}: the master failed: {reason}");
                    self.figures.engine_failures += 1;
                    self.master_failed = true;
                }
            }
        }
    }

    fn note(&mut self, value: u64) {
        self.trace = mix(self.trace, &value.to_le_bytes());
    }
}

impl Node {
    /// What its clock shows at a moment.
    fn time_at(&self, now: Micros) -> Micros {
        Micros((now.0 as i64 + now.0 as i64 * self.drift / 1_000_000) as u64)
    }

    /// When its clock shows at least `time`.
    fn moment_of(&self, time: Micros) -> Micros {
        if time == Micros::NEVER {
            return time;
        }
        let mut moment = Micros((time.0 as i128 * 1_000_000 / (1_000_000 + i128::from(self.drift))) as u64);
        while self.time_at(moment) < time {
            moment = Micros(moment.0 + 1);
        }
        moment
    }
}

fn mix(trace: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(trace, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn wall(now: Micros) -> Timespec {
    Timespec { secs: 1_700_000_000 + (now.0 / 1_000_000) as i64, nanos: (now.0 % 1_000_000) as u32 * 1000 }
}
