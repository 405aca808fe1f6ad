//! A master, nodes that are what they should be, and peers that are not. Everything happens at once and in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chunk::{MemStore, SegmentStore};
use kv::{Claim, Engine, MemDisk};
use master::{Master, PeerId};
use obs::Metrics;
use types::{Micros, Timespec};
use vfs::{Clock, Core, Reply, Request, RequestId};
use wire::{FromMaster, ToMaster};

/// The volume's identity and key in every target.
pub const VOLUME: [u8; 16] = [7; 16];
/// See [`VOLUME`].
pub const COOKIE_KEY: [u8; 16] = [9; 16];
/// Length of a member's lease.
pub const LEASE: Micros = Micros(10_000_000);

/// A node, or a peer without one.
pub struct Node {
    /// `None` for a peer that says what it is told to.
    pub core: Option<Core>,
    peer: PeerId,
    replies: BTreeMap<RequestId, Reply>,
    /// What it said, and what it was told.
    pub said: Vec<ToMaster>,
    /// See `said`.
    pub heard: Vec<FromMaster>,
    /// Why the connection or the membership ended.
    pub ended: Option<String>,
}

/// All of it.
pub struct World {
    store: MemStore,
    /// The engine, which others may look into.
    pub engine: Arc<dyn Engine>,
    /// The master.
    pub master: Master,
    /// Nodes and peers.
    pub nodes: Vec<Node>,
    now: Micros,
    next_request: u64,
    /// Why the master stopped.
    pub failed: Option<String>,
}

impl World {
    /// A new volume with a master.
    pub fn new() -> Self {
        let engine: Arc<dyn Engine> = Arc::new(MemDisk::new().open(Claim::new(1)).expect("a new disk"));
        Master::format(&*engine, wall(Micros(0)), 0, 0).expect("an empty engine takes its first contents");
        Self::open(engine, MemStore::new()).expect("a new volume opens")
    }

    /// A master of what is there.
    ///
    /// # Errors
    ///
    /// Why it does not open.
    pub fn open(engine: Arc<dyn Engine>, store: MemStore) -> Result<Self, String> {
        let now = Micros(1_000_000);
        let config = master::Config {
            volume: VOLUME,
            cookie_key: COOKIE_KEY,
            lease: LEASE,
            token_memory: 1 << 20,
            commit_interval: Micros(1_000_000),
            store: Arc::new(store.clone()),
        };
        let clock = master::Clock { now, wall: wall(now) };
        let master = Master::open(clock, Arc::clone(&engine), config, Arc::new(Metrics::new()));
        let master = master.map_err(|error| error.to_string())?;
        Ok(Self { store, engine, master, nodes: Vec::new(), now, next_request: 1, failed: None })
    }

    /// A node joins.
    pub fn add_node(&mut self) -> usize {
        let core = new_core(&self.store);
        let index = self.add_peer();
        let number = index as u32;
        let mut core = core;
        let hello =
            core.hello(self.clock(), 100 + number, 1, format!("node {number}"), format!("0:{number}"));
        self.nodes[index].core = Some(core);
        self.say(index, hello);
        index
    }

    /// A connection is made by whoever.
    pub fn add_peer(&mut self) -> usize {
        let peer = PeerId(self.nodes.len() as u64 + 1);
        let (said, heard) = (Vec::new(), Vec::new());
        self.nodes.push(Node { core: None, peer, replies: BTreeMap::new(), said, heard, ended: None });
        self.master.connected(self.master_clock(), peer);
        self.nodes.len() - 1
    }

    /// A peer says something; nothing if its connection has ended.
    pub fn say(&mut self, index: usize, message: ToMaster) {
        if self.nodes[index].ended.is_none() {
            self.tell_master(index, message);
            self.pump();
        }
    }

    /// A peer's connection ends, its process being dead.
    pub fn drop_peer(&mut self, index: usize) {
        self.master.disconnected(self.master_clock(), self.nodes[index].peer, true);
        self.pump();
    }

    fn tell_master(&mut self, index: usize, message: ToMaster) {
        let (clock, peer) = (self.master_clock(), self.nodes[index].peer);
        if self.nodes[index].core.is_some() {
            self.nodes[index].said.push(message.clone());
        }
        self.master.handle(clock, peer, message);
    }

    /// A request of a process on a node, answered.
    ///
    /// # Panics
    ///
    /// If it is not answered within three leases.
    pub fn call(&mut self, index: usize, request: Request) -> Reply {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let (clock, kind) = (self.clock(), request.kind());
        let core = self.nodes[index].core.as_mut().expect("a node");
        if let Some(reply) = core.submit(clock, id, request) {
            self.pump();
            return reply;
        }
        let until = self.now + Micros(3 * LEASE.0);
        loop {
            self.pump();
            if let Some(reply) = self.nodes[index].replies.remove(&id) {
                return reply;
            }
            let core = self.nodes[index].core.as_ref().expect("a node");
            assert!(self.now < until, "{kind:?} is never answered; waiting {:?}", core.waiting());
            self.advance(until);
        }
    }

    /// Lets time pass.
    pub fn rest(&mut self, time: Micros) {
        let until = self.now + time;
        while self.now < until {
            self.advance(until);
        }
    }

    /// Time goes on to the next timer, at most to `until`.
    fn advance(&mut self, until: Micros) {
        let timers = self.nodes.iter().filter_map(|node| node.core.as_ref()).map(Core::poll_timeout);
        let next = timers.min().unwrap_or(Micros::NEVER).min(self.master.poll_timeout());
        self.now = next.max(self.now + Micros(1000)).min(until);
        let clock = self.clock();
        for core in self.nodes.iter_mut().filter_map(|node| node.core.as_mut()) {
            if core.poll_timeout() <= clock.now {
                core.handle_timeout(clock);
            }
        }
        if self.master.poll_timeout() <= clock.now {
            self.master.handle_timeout(self.master_clock());
        }
        self.pump();
    }

    /// Carries out all orders, until nothing is left to do.
    fn pump(&mut self) {
        for _ in 0..100_000 {
            let mut is_quiet = true;
            for index in 0..self.nodes.len() {
                is_quiet &= !self.pump_node(index);
            }
            while let Some(output) = self.master.poll_output() {
                is_quiet = false;
                self.carry_out(output);
            }
            if is_quiet {
                return;
            }
        }
        panic!("master and nodes exchange messages without end");
    }

    fn pump_node(&mut self, index: usize) -> bool {
        let clock = self.clock();
        let mut messages = VecDeque::new();
        let node = &mut self.nodes[index];
        let Some(core) = node.core.as_mut() else { return false };
        let mut any = false;
        while let Some(output) = core.poll_output() {
            any = true;
            match output {
                vfs::Output::Send(message) => messages.push_back(message),
                vfs::Output::Reply(id, reply) => drop(node.replies.insert(id, reply)),
                vfs::Output::Invalidate { job, .. } => core.invalidated(clock, job),
                vfs::Output::Gather { job } => while core.gather(clock, job) == vfs::Dealt::InPart {},
                vfs::Output::Sync { job, plan } => {
                    let outcome = plan.run(&self.store);
                    let mut dealt = core.synced(clock, job, outcome);
                    while dealt == vfs::Dealt::InPart {
                        dealt = core.log_synced(clock, job);
                    }
                }
                vfs::Output::TellCloses { seq, .. } => core.closes_told(clock, seq),
                vfs::Output::CollectStores => core.stores_collected(clock),
                vfs::Output::Left => node.ended = Some("left".to_owned()),
                vfs::Output::Rejoin => node.ended = Some("its membership ended".to_owned()),
                vfs::Output::Lost(reason) => node.ended = Some(reason),
            }
        }
        for message in messages {
            self.tell_master(index, message);
        }
        any
    }

    fn carry_out(&mut self, output: master::Output) {
        let clock = self.master_clock();
        match output {
            master::Output::Send { peer, message } => {
                let now = self.clock();
                let Some(node) = self.nodes.iter_mut().find(|node| node.peer == peer) else { return };
                node.heard.push(message.clone());
                if let Some(core) = node.core.as_mut() {
                    core.handle_message(now, message);
                }
            }
            master::Output::Close { peer, reason } => {
                if let Some(node) = self.nodes.iter_mut().find(|node| node.peer == peer) {
                    node.ended.get_or_insert(reason);
                }
                self.master.disconnected(clock, peer, false);
            }
            master::Output::Sync { job } => {
                let result = self.engine.sync();
                self.master.synced(clock, job, result);
            }
            master::Output::DeleteSegments { list } => {
                let deleted: Vec<_> = list.into_iter().filter(|s| self.store.delete(*s).is_ok()).collect();
                self.master.segments_deleted(clock, &deleted);
            }
            master::Output::FindFiles { list, everywhere } => {
                let files = match everywhere {
                    true => {
                        let segments = list.into_iter().collect();
                        master::files_naming(&*self.engine, &segments, &mut |_| true).unwrap_or_default()
                    }
                    false => {
                        list.iter().filter_map(|s| chunk::files_of(&self.store, *s).ok()).flatten().collect()
                    }
                };
                self.master.files_found(clock, &files);
            }
            master::Output::CopyExtents { segments, list } => {
                let config = chunk::WriterConfig::new(VOLUME, types::NodeId(0));
                let store: Arc<dyn SegmentStore> = Arc::new(self.store.clone());
                let copies =
                    chunk::copy_extents(&store, config, segments, list, &|| true).unwrap_or_default();
                self.master.extents_copied(clock, copies);
            }
            master::Output::ListSegments => {
                let listed = self.store.list().expect("a store in memory");
                self.master.segments_listed(clock, &listed);
            }
            master::Output::TrimSegments { .. } => {}
            master::Output::PutBack { round } => {
                let spared = self.master.segments_in_use();
                let keys =
                    master::put_back(&*self.engine, &self.store, &spared, &|| true).unwrap_or_default();
                self.master.were_put_back(clock, round, keys);
            }
            master::Output::Failed { reason } => self.failed = Some(reason),
        }
    }

    fn clock(&self) -> Clock {
        Clock { now: self.now, wall: wall(self.now) }
    }

    fn master_clock(&self) -> master::Clock {
        master::Clock { now: self.now, wall: wall(self.now) }
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// A core over `store`.
pub fn new_core(store: &MemStore) -> Core {
    let config = vfs::Config { segment_len: 1 << 20, ..vfs::Config::default() };
    Core::new(config, VOLUME, Arc::new(store.clone()), Arc::new(Metrics::new()))
}

/// Wall-clock time.
pub fn wall(now: Micros) -> Timespec {
    Timespec { secs: 1_700_000_000 + (now.0 / 1_000_000) as i64, nanos: (now.0 % 1_000_000) as u32 * 1000 }
}
