//! The cluster: cores, queues between them, and the choice of what happens next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chunk::{MemStore, SegmentStore, SyncPlan};
use kv::{Claim, Engine, MemDisk};
use master::{Master, PeerId};
use obs::Metrics;
use types::{Micros, Timespec};
use vfs::{Clock, Core, Invalidation, Output, Reply, Request, RequestId};
use wire::{FromMaster, ToMaster};

use crate::kernel::Kernel;

/// Settings of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Decides everything.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// Settings of each node's core.
    pub core: vfs::Config,
    /// Prints messages and invalidations as they happen.
    pub verbose: bool,
}

/// One node.
struct Node {
    core: Core,
    metrics: Arc<Metrics>,
    kernel: Kernel,
    to_master: VecDeque<ToMaster>,
    from_master: VecDeque<FromMaster>,
    jobs: VecDeque<(u64, Vec<Invalidation>)>,
    syncs: VecDeque<(u64, SyncPlan)>,
    replies: BTreeMap<RequestId, Reply>,
    is_up: bool,
    pid: u32,
}

/// The cluster.
pub struct Cluster {
    rng: fastrand::Rng,
    now: Micros,
    config: ClusterConfig,
    disk: MemDisk,
    store: MemStore,
    master: Option<Master>,
    master_syncs: VecDeque<u64>,
    engine: Arc<dyn Engine>,
    nodes: Vec<Node>,
    next_request: u64,
    trace: u64,
    figures: Figures,
    /// Whether messages and invalidations are printed.
    verbose: bool,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Messages delivered, both ways.
    pub messages: u64,
    /// Invalidations carried out.
    pub invalidations: u64,
    /// Syncs of engine and segments.
    pub syncs: u64,
    /// Changes of master.
    pub remasters: u64,
    /// Virtual time.
    pub micros: u64,
}

const VOLUME: [u8; 16] = [7; 16];
const COOKIE_KEY: [u8; 16] = [9; 16];
const LEASE: Micros = Micros(10_000_000);

impl Cluster {
    /// A cluster with all nodes joined.
    pub fn new(config: ClusterConfig) -> Self {
        let disk = MemDisk::new();
        let engine: Arc<dyn Engine> = Arc::new(disk.open(Claim::new(1)).expect("a new disk opens"));
        let now = Micros(1_000_000);
        Master::format(&*engine, wall(now), 0, 0).expect("an empty engine takes its first contents");
        let mut cluster = Self {
            rng: fastrand::Rng::with_seed(config.seed),
            now,
            disk,
            store: MemStore::new(),
            master: None,
            master_syncs: VecDeque::new(),
            engine,
            nodes: Vec::new(),
            next_request: 1,
            trace: 0xcbf2_9ce4_8422_2325,
            figures: Figures::default(),
            verbose: config.verbose,
            config,
        };
        cluster.open_master();
        for index in 0..cluster.config.nodes {
            cluster.add_node(index as u32 + 100);
        }
        cluster
    }

    fn open_master(&mut self) {
        let config = master::Config {
            volume: VOLUME,
            cookie_key: COOKIE_KEY,
            lease: LEASE,
            token_memory: 256 << 20,
            commit_interval: Micros(1_000_000),
            store: Arc::new(self.store.clone()),
        };
        let clock = self.master_clock();
        let master = Master::open(clock, self.engine.clone(), config, Arc::new(Metrics::new()));
        self.master = Some(master.expect("the volume opens"));
        self.master_syncs.clear();
    }

    fn add_node(&mut self, pid: u32) {
        let metrics = Arc::new(Metrics::new());
        let store: Arc<dyn SegmentStore> = Arc::new(self.store.clone());
        let core = Core::new(self.config.core.clone(), VOLUME, store, metrics.clone());
        self.nodes.push(Node {
            core,
            metrics,
            kernel: Kernel::default(),
            to_master: VecDeque::new(),
            from_master: VecDeque::new(),
            jobs: VecDeque::new(),
            syncs: VecDeque::new(),
            replies: BTreeMap::new(),
            is_up: true,
            pid,
        });
        let index = self.nodes.len() - 1;
        self.connect(index);
    }

    /// Connects a node to the master there is now.
    fn connect(&mut self, index: usize) {
        let clock = self.clock();
        let node = &mut self.nodes[index];
        let hello = node.core.hello(clock, node.pid, 1, format!("node {index}"), format!("0:{index}"));
        node.to_master.push_back(hello);
        let peer = self.peer(index);
        let clock = self.master_clock();
        if let Some(master) = self.master.as_mut() {
            master.connected(clock, peer);
        }
    }

    /// Connections are numbered so that a node's old one is never taken for its new one.
    fn peer(&self, index: usize) -> PeerId {
        PeerId(self.figures.remasters * 1000 + index as u64)
    }

    /// The master's process is killed: what it committed stays, what it had not sent is lost. Another takes over.
    pub fn kill_master(&mut self) {
        self.figures.remasters += 1;
        self.master = None;
        let seq = self.disk.kill();
        self.note(seq.0);
        let claim = Claim::new(self.figures.remasters + 1);
        self.engine = Arc::new(self.disk.open(claim).expect("the disk opens again"));
        let clock = self.clock();
        for node in self.nodes.iter_mut().filter(|n| n.is_up) {
            node.to_master.clear();
            node.from_master.clear();
            node.core.link_down(clock);
        }
        self.pump();
        self.open_master();
        for index in 0..self.nodes.len() {
            if self.nodes[index].is_up {
                self.connect(index);
            }
        }
        let clock = self.master_clock();
        let gone: Vec<_> = self.master.as_ref().map(Master::expected_members).unwrap_or_default();
        for (node, pid, _) in gone {
            if !self.nodes.iter().any(|n| n.is_up && n.pid == pid) {
                if let Some(master) = self.master.as_mut() {
                    master.member_is_dead(clock, node);
                }
            }
        }
    }

    /// Hands a request to a node.
    pub fn submit(&mut self, index: usize, request: Request) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let clock = self.clock();
        if self.verbose {
            let mut text = format!("{request:?}");
            text.truncate(160);
            println!("{} n{index} request {}: {text}", clock.now, id.0);
        }
        let node = &mut self.nodes[index];
        if let Some(reply) = node.core.submit(clock, id, request) {
            node.replies.insert(id, reply);
        }
        self.pump();
        id
    }

    /// Lets things happen until a request is answered.
    pub fn wait(&mut self, index: usize, id: RequestId) -> Reply {
        for _ in 0..200_000 {
            if let Some(reply) = self.nodes[index].replies.remove(&id) {
                return reply;
            }
            self.step();
        }
        let waiting: Vec<_> = self.nodes.iter().map(|n| n.core.waiting()).collect();
        panic!("seed {}: request {id:?} of node {index} is never answered; waiting: {waiting:?}", self.config.seed);
    }

    /// A request and its answer.
    pub fn call(&mut self, index: usize, request: Request) -> Reply {
        let id = self.submit(index, request);
        self.wait(index, id)
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

    /// A digest of everything that happened, for the test that the same seed gives the same run.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// What happened so far.
    pub fn figures(&self) -> Figures {
        Figures { micros: self.now.0, ..self.figures }
    }

    /// The time.
    pub fn clock(&self) -> Clock {
        Clock { now: self.now, wall: wall(self.now) }
    }

    fn master_clock(&self) -> master::Clock {
        master::Clock { now: self.now, wall: wall(self.now) }
    }

    /// One event, chosen by the seed among all that can happen; if there is none, time goes on to the next
    /// timer.
    pub fn step(&mut self) {
        let mut events: Vec<(usize, u8)> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, n)| n.is_up) {
            let queues = [!node.to_master.is_empty(), !node.from_master.is_empty(), !node.jobs.is_empty(), !node.syncs.is_empty()];
            for (kind, _) in queues.iter().enumerate().filter(|(_, has)| **has) {
                events.push((index, kind as u8));
            }
        }
        if !self.master_syncs.is_empty() {
            events.push((usize::MAX, 4));
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
        self.pump();
    }

    fn happen(&mut self, index: usize, kind: u8) {
        let clock = self.clock();
        let master_clock = self.master_clock();
        match kind {
            0 => {
                self.figures.messages += 1;
                let peer = self.peer(index);
                let message = self.nodes[index].to_master.pop_front();
                if let (Some(master), Some(message)) = (self.master.as_mut(), message) {
                    self.trace = mix(self.trace, &types::Encode::to_bytes(&message));
                    if self.verbose {
                        println!("{} n{index} -> master: {message:?}", clock.now);
                    }
                    master.handle(master_clock, peer, message);
                }
            }
            1 => {
                self.figures.messages += 1;
                let node = &mut self.nodes[index];
                if let Some(message) = node.from_master.pop_front() {
                    self.trace = mix(self.trace, &types::Encode::to_bytes(&message));
                    if self.verbose {
                        println!("{} master -> n{index}: {message:?}", clock.now);
                    }
                    node.core.handle_message(clock, message);
                }
            }
            2 => {
                let node = &mut self.nodes[index];
                if let Some((job, list)) = node.jobs.pop_front() {
                    self.figures.invalidations += list.len() as u64;
                    if self.verbose {
                        println!("{} n{index} kernel: {list:?}", clock.now);
                    }
                    for invalidation in &list {
                        node.kernel.invalidate(invalidation);
                    }
                    node.core.invalidated(clock, job);
                }
            }
            3 => {
                self.figures.syncs += 1;
                let node = &mut self.nodes[index];
                if let Some((job, plan)) = node.syncs.pop_front() {
                    let outcome = plan.run(&self.store);
                    node.core.synced(clock, job, outcome);
                }
            }
            _ => {
                self.figures.syncs += 1;
                if let (Some(master), Some(job)) = (self.master.as_mut(), self.master_syncs.pop_front()) {
                    let result = self.engine.sync();
                    master.synced(master_clock, job, result);
                }
            }
        }
    }

    /// Nothing else can happen: time goes on to the next timer.
    fn advance(&mut self) {
        let nodes = self.nodes.iter().filter(|n| n.is_up).map(|n| n.core.poll_timeout());
        let master = self.master.as_ref().map_or(Micros::NEVER, Master::poll_timeout);
        let next = nodes.min().unwrap_or(Micros::NEVER).min(master);
        if next != Micros::NEVER {
            self.now = self.now.max(next);
        }
    }

    fn timers(&mut self) {
        let clock = self.clock();
        for node in self.nodes.iter_mut().filter(|n| n.is_up) {
            if node.core.poll_timeout() <= clock.now {
                node.core.handle_timeout(clock);
            }
        }
        let clock = self.master_clock();
        if let Some(master) = self.master.as_mut()
            && master.poll_timeout() <= clock.now
        {
            master.handle_timeout(clock);
        }
    }

    /// Moves orders of the cores into the queues.
    fn pump(&mut self) {
        for node in &mut self.nodes {
            while let Some(output) = node.core.poll_output() {
                match output {
                    Output::Send(message) => node.to_master.push_back(message),
                    Output::Reply(id, reply) => drop(node.replies.insert(id, reply)),
                    Output::Invalidate { job, list } => node.jobs.push_back((job, list)),
                    Output::Sync { job, plan } => node.syncs.push_back((job, plan)),
                    Output::Left => node.is_up = false,
                    Output::Lost(reason) => panic!("a membership was lost: {reason}"),
                }
            }
        }
        let base = self.figures.remasters * 1000;
        while let Some(output) = self.master.as_mut().and_then(Master::poll_output) {
            match output {
                master::Output::Send { peer, message } => {
                    if let Some(node) = peer.0.checked_sub(base).and_then(|i| self.nodes.get_mut(i as usize)) {
                        node.from_master.push_back(message);
                    }
                }
                master::Output::Close { peer, reason } => panic!("{peer:?} was closed: {reason}"),
                master::Output::Sync { job } => self.master_syncs.push_back(job),
                master::Output::Failed { reason } => panic!("the master failed: {reason}"),
            }
        }
    }

    fn note(&mut self, value: u64) {
        self.trace = mix(self.trace, &value.to_le_bytes());
    }
}

fn mix(trace: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(trace, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn wall(now: Micros) -> Timespec {
    Timespec { secs: 1_700_000_000 + (now.0 / 1_000_000) as i64, nanos: (now.0 % 1_000_000) as u32 * 1000 }
}
