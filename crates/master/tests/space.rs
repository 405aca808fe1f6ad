//! When a segment may go: messages in, orders out.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use chunk::MemStore;
use kv::{Claim, Engine, MemDisk};
use master::{Clock, Config, Master, Output, PeerId};
use meta::{Change, Key, SegmentRecord};
use obs::Metrics;
use types::{BatchSeq, Epoch, Micros, NodeId, SegmentId, Timespec};
use wire::{FromMaster, PROTOCOL_VERSION, ToMaster};

const VOLUME: [u8; 16] = [7; 16];
const A: PeerId = PeerId(1);
const B: PeerId = PeerId(2);

/// A master whose syncs succeed at once.
struct Rig {
    disk: MemDisk,
    engine: Arc<dyn Engine>,
    master: Master,
    now: Micros,
    claims: u64,
}

impl Rig {
    fn new() -> Self {
        let disk = MemDisk::new();
        let engine: Arc<dyn Engine> = Arc::new(disk.open(Claim::new(1)).unwrap());
        Master::format(&*engine, Timespec::default(), 0, 0).unwrap();
        let now = Micros(1_000_000);
        let master = open(&engine, now);
        Self { disk, engine, master, now, claims: 1 }
    }

    /// The master dies and another one takes over.
    fn remaster(&mut self) {
        self.claims += 1;
        self.disk.kill();
        self.engine = Arc::new(self.disk.open(Claim::new(self.claims)).unwrap());
        self.master = open(&self.engine, self.now);
    }

    fn clock(&self) -> Clock {
        Clock { now: self.now, wall: Timespec::default() }
    }

    /// Joins, or rejoins as `rejoin`; returns who the node is.
    fn join(&mut self, peer: PeerId, rejoin: NodeId) -> NodeId {
        self.master.connected(self.clock(), peer);
        let hello = ToMaster::Hello {
            version: PROTOCOL_VERSION,
            volume: vec![0x0707_0707_0707_0707; 2],
            rejoin,
            epoch: Epoch(0),
            pid: 100 + peer.0 as u32,
            pid_start: 1,
            label: String::new(),
            device: String::new(),
        };
        let welcome = self.tell(peer, hello);
        let node = welcome.iter().find_map(|output| match output {
            Output::Send { message: FromMaster::Welcome { node, .. }, .. } => Some(*node),
            _ => None,
        });
        node.expect("a welcome")
    }

    /// Hands a message over and returns what comes of it, syncs done.
    fn tell(&mut self, peer: PeerId, message: ToMaster) -> Vec<Output> {
        self.master.handle(self.clock(), peer, message);
        self.outputs()
    }

    fn outputs(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(output) = self.master.poll_output() {
            match output {
                Output::Sync { job } => self.master.synced(self.clock(), job, self.engine.sync()),
                output => outputs.push(output),
            }
        }
        outputs
    }

    /// Lets a second pass and returns what falls due.
    fn wait(&mut self) -> Vec<Output> {
        self.now = self.now + Micros(1_000_000);
        self.master.handle_timeout(self.clock());
        self.outputs()
    }

    fn reserve(&mut self, peer: PeerId, segments: u32) -> SegmentId {
        let outputs = self.tell(peer, ToMaster::Reserve { inodes: 0, segments });
        let first = outputs.iter().find_map(|output| match output {
            Output::Send { message: FromMaster::Reserved { first_segment, .. }, .. } => Some(*first_segment),
            _ => None,
        });
        SegmentId(first.expect("segments"))
    }

    fn add_live(&mut self, peer: PeerId, seq: u64, segment: SegmentId, bytes: i64) {
        let changes = vec![Change::AddLive { segment, bytes }];
        self.tell(peer, ToMaster::Batch { seq: BatchSeq(seq), kept: Vec::new(), changes, sync: false });
    }

    fn record(&self, segment: SegmentId) -> Option<SegmentRecord> {
        let key = Key::Segment(segment).to_vec();
        self.engine.get(&key).unwrap().map(|value| meta::value_decode(&key, &value).unwrap())
    }

    fn listed(&mut self, segments: &[SegmentId]) -> Vec<Output> {
        let listed: Vec<_> = segments.iter().map(|segment| (*segment, 1000)).collect();
        self.master.segments_listed(self.clock(), &listed);
        self.outputs()
    }
}

fn open(engine: &Arc<dyn Engine>, now: Micros) -> Master {
    let config = Config {
        volume: VOLUME,
        cookie_key: [9; 16],
        lease: Micros(10_000_000),
        token_memory: 1 << 20,
        commit_interval: Micros(1_000_000),
        store: Arc::new(MemStore::new()),
    };
    let clock = Clock { now, wall: Timespec::default() };
    Master::open(clock, Arc::clone(engine), config, Arc::new(Metrics::new())).unwrap()
}

/// Barriers among `outputs`: to whom, number, segments.
fn barriers(outputs: &[Output]) -> Vec<(PeerId, u64, Vec<SegmentId>)> {
    let barrier = |output: &Output| match output {
        Output::Send { peer, message: FromMaster::Barrier { seq, segments } } => {
            Some((*peer, *seq, segments.clone()))
        }
        _ => None,
    };
    outputs.iter().filter_map(barrier).collect()
}

fn deleted(outputs: &[Output]) -> Vec<SegmentId> {
    let delete = |output: &Output| match output {
        Output::DeleteSegments { list } => Some(list.clone()),
        _ => None,
    };
    outputs.iter().filter_map(delete).flatten().collect()
}

#[test]
fn a_disowned_empty_segment_goes_after_every_member_passed_the_barrier() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let segment = rig.reserve(A, 4);
    rig.add_live(A, 1, segment, 500);
    rig.add_live(A, 2, segment, -500);
    assert_eq!(barriers(&rig.wait()), [], "the writer may still name it");

    rig.tell(A, ToMaster::Disown { segments: vec![segment] });
    let sent = barriers(&rig.wait());
    let [(A, seq, list), (B, same, _)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((seq, &list[..]), (same, &[segment][..]));
    let seq = *seq;
    assert_eq!(deleted(&rig.tell(B, ToMaster::Barriered { seq })), []);
    assert_eq!(deleted(&rig.tell(A, ToMaster::Barriered { seq })), [segment]);
    assert_eq!(rig.record(segment).map(|record| record.live_bytes), Some(0), "until the file is gone");
    rig.master.segments_deleted(rig.clock(), &[segment]);
    assert_eq!(rig.record(segment), None);
    assert_eq!(barriers(&rig.wait()), []);
}

#[test]
fn a_segment_with_live_bytes_stays_and_goes_once_they_are_gone() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    let segment = rig.reserve(A, 2);
    rig.add_live(A, 1, segment, 500);
    rig.tell(A, ToMaster::Disown { segments: vec![segment] });
    assert_eq!(barriers(&rig.wait()), []);
    rig.add_live(A, 2, segment, -500);
    let seq = barriers(&rig.wait())[0].1;
    assert_eq!(deleted(&rig.tell(A, ToMaster::Barriered { seq })), [segment]);
    // It could not be deleted: it is tried again, later.
    rig.master.segments_deleted(rig.clock(), &[]);
    assert_eq!(barriers(&rig.wait()), []);
    rig.now = rig.now + Micros(10_000_000);
    assert_eq!(barriers(&rig.wait())[0].2, [segment]);
}

#[test]
fn what_a_dead_member_never_named_is_found_in_the_store() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let (of_a, of_b) = (rig.reserve(A, 4), rig.reserve(B, 4));
    let unheard = SegmentId(of_b.0 + 1000);
    assert_eq!(rig.listed(&[of_a, of_b, unheard]).len(), 0);
    assert_eq!(barriers(&rig.wait()), []);
    rig.master.disconnected(rig.clock(), A, true);
    assert!(rig.wait().iter().any(|output| matches!(output, Output::ListSegments)));
    rig.listed(&[of_a, of_b, unheard]);
    let sent = barriers(&rig.wait());
    assert_eq!((sent[0].0, &sent[0].2[..], sent.len()), (B, &[of_a][..], 1));
    // A member that ends holds nothing up.
    rig.master.disconnected(rig.clock(), B, true);
    assert_eq!(deleted(&rig.outputs()), [of_a]);
}

#[test]
fn a_new_master_knows_which_segments_are_in_whose_hands() {
    let mut rig = Rig::new();
    let node = rig.join(A, NodeId(0));
    let first = rig.reserve(A, 4);
    rig.tell(A, ToMaster::Disown { segments: vec![SegmentId(first.0 + 1)] });
    rig.remaster();
    assert_eq!(rig.join(A, node), node);
    let part = wire::ReassertPart::Tokens { list: Vec::new() };
    rig.tell(A, ToMaster::Reassert { part, done: true });
    assert!(rig.wait().iter().any(|output| matches!(output, Output::ListSegments)));
    let all: Vec<_> = (first.0..first.0 + 4).map(SegmentId).collect();
    rig.listed(&all);
    assert_eq!(barriers(&rig.wait())[0].2, [SegmentId(first.0 + 1)]);
    // Nobody can give up what is not theirs.
    rig.tell(A, ToMaster::Disown { segments: vec![SegmentId(first.0 + 1), SegmentId(999)] });
}
