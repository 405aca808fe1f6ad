//! A master alone: messages in, orders out.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "not every test uses all of it")]

use std::sync::Arc;

use chunk::MemStore;
use kv::{Claim, Engine, MemDisk};
use master::{Clock, Config, Master, Output, PeerId};
use meta::{
    Body, Change, Child, Content, Cookie, Dirent, FileKind, Inode, InodeAttr, Key, SegmentRecord, Xattrs,
};
use obs::Metrics;
use types::{BatchSeq, Epoch, Ino, LockMode, Micros, Name, NodeId, OpSeq, ResourceId, SegmentId, Timespec};
use wire::{FromMaster, PROTOCOL_VERSION, ToMaster};

const VOLUME: [u8; 16] = [7; 16];
pub const A: PeerId = PeerId(1);
pub const B: PeerId = PeerId(2);

/// A master whose syncs succeed at once.
pub struct Rig {
    pub disk: MemDisk,
    pub engine: Arc<dyn Engine>,
    pub master: Master,
    pub now: Micros,
    pub claims: u64,
}

impl Rig {
    pub fn new() -> Self {
        let disk = MemDisk::new();
        let engine: Arc<dyn Engine> = Arc::new(disk.open(Claim::new(1)).unwrap());
        Master::format(&*engine, Timespec::default(), 0, 0).unwrap();
        let now = Micros(1_000_000);
        let master = open(&engine, now);
        Self { disk, engine, master, now, claims: 1 }
    }

    /// The master dies and another one takes over.
    pub fn remaster(&mut self) {
        self.claims += 1;
        self.disk.kill();
        self.engine = Arc::new(self.disk.open(Claim::new(self.claims)).unwrap());
        self.master = open(&self.engine, self.now);
    }

    pub fn clock(&self) -> Clock {
        Clock { now: self.now, wall: Timespec::default() }
    }

    /// Joins, or rejoins as `rejoin`; returns who the node is.
    pub fn join(&mut self, peer: PeerId, rejoin: NodeId) -> NodeId {
        self.join_from(peer, 100 + peer.0 as u32, rejoin)
    }

    /// The same of the mount with this process.
    pub fn join_from(&mut self, peer: PeerId, pid: u32, rejoin: NodeId) -> NodeId {
        self.master.connected(self.clock(), peer);
        let hello = ToMaster::Hello {
            version: PROTOCOL_VERSION,
            volume: vec![0x0707_0707_0707_0707; 2],
            rejoin,
            epoch: Epoch(0),
            pid,
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
    pub fn tell(&mut self, peer: PeerId, message: ToMaster) -> Vec<Output> {
        self.master.handle(self.clock(), peer, message);
        self.outputs()
    }

    pub fn outputs(&mut self) -> Vec<Output> {
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
    pub fn wait(&mut self) -> Vec<Output> {
        self.now = self.now + Micros(1_000_000);
        self.master.handle_timeout(self.clock());
        self.outputs()
    }

    /// Gives `peer` the root in EX, by way of a change.
    pub fn hold_root(&mut self, peer: PeerId) {
        let op = make(Ino(99), b"first", FileKind::File, b"");
        let now = Timespec::default();
        let outputs =
            self.tell(peer, ToMaster::Ship { seq: OpSeq(1), acked: OpSeq(0), now, op, spent: Vec::new() });
        let is_granted = |output: &Output| match output {
            Output::Send { message: FromMaster::Shipped { grants, .. }, .. } => {
                grants.iter().any(|g| g.resource == ResourceId::dir(Ino::ROOT) && g.mode == LockMode::Ex)
            }
            _ => false,
        };
        assert!(outputs.iter().any(is_granted), "{outputs:?}");
    }

    pub fn reserve(&mut self, peer: PeerId, segments: u32) -> SegmentId {
        let outputs = self.tell(peer, ToMaster::Reserve { inodes: 0, segments });
        let first = outputs.iter().find_map(|output| match output {
            Output::Send { message: FromMaster::Reserved { first_segment, .. }, .. } => Some(*first_segment),
            _ => None,
        });
        SegmentId(first.expect("segments"))
    }

    pub fn add_live(&mut self, peer: PeerId, seq: u64, segment: SegmentId, bytes: i64) {
        let changes = vec![Change::AddLive { segment, bytes }];
        self.tell(
            peer,
            ToMaster::Batch {
                seq: BatchSeq(seq),
                kept: Vec::new(),
                changes: changes.into(),
                sync: false,
                spent: Vec::new(),
            },
        );
    }

    pub fn record(&self, segment: SegmentId) -> Option<SegmentRecord> {
        let key = Key::Segment(segment).to_vec();
        self.engine.get(&key).unwrap().map(|value| meta::value_decode(&key, &value).unwrap())
    }

    pub fn value(&self, key: Key) -> Option<Vec<u8>> {
        self.engine.get(&key.to_vec()).unwrap()
    }

    /// Flips a bit of a value, as a disk may.
    pub fn damage(&self, key: Key) {
        let mut value = self.value(key).unwrap();
        value[1] ^= 1;
        let mut batch = kv::Batch::new(self.engine.last_seq().next());
        batch.puts.push((key.to_vec(), value));
        self.engine.commit(batch).unwrap();
    }

    pub fn listed(&mut self, segments: &[SegmentId]) -> Vec<Output> {
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

pub fn attr(kind: FileKind, parent: Ino, xattrs: Xattrs) -> InodeAttr {
    let nlink = if kind == FileKind::Directory { 2 } else { 1 };
    let time = Timespec::default();
    let (mode, uid, gid, rdev, generation) = (0o755, 0, 0, 0, 1);
    InodeAttr {
        kind,
        mode,
        uid,
        gid,
        tree: 0,
        nlink,
        rdev,
        generation,
        parent,
        btime: time,
        ctime: time,
        xattrs,
    }
}

pub fn inode(kind: FileKind, parent: Ino, xattrs: Xattrs, body: Body) -> Box<Inode> {
    let time = Timespec::default();
    let content = Content { size: body.stored_bytes(), mtime: time, atime: time, ctime: time, body };
    Box::new(Inode { attr: attr(kind, parent, xattrs), content })
}

pub fn xattrs(bytes: usize) -> Xattrs {
    Xattrs::embedded(vec![(Name::new(b"user.x").unwrap(), vec![1; bytes].into())])
}

pub fn entry(parent: Ino, cookie: u64, ino: Ino, child: Child) -> Change {
    let name = Name::new(format!("{cookie:0>200}").as_bytes()).unwrap();
    Change::PutEntry { parent, cookie: Cookie(cookie), entry: Dirent { name, ino, child } }
}

pub fn file(parent: Ino, cookie: u64, ino: Ino, bytes: usize) -> [Change; 2] {
    let body = Body::Inline { data: vec![7; bytes].into() };
    let child = Child::Covered { inode: Arc::from(inode(FileKind::File, parent, xattrs(1000), body)) };
    [entry(parent, cookie, ino, child), Change::PutPlacement { ino, parent, cookie: Cookie(cookie) }]
}

pub fn directory_at(parent: Ino, cookie: u64, ino: Ino) -> [Change; 2] {
    let child = Child::Own { kind: FileKind::Directory };
    let inode = inode(FileKind::Directory, parent, xattrs(1000), Body::Empty {});
    [entry(parent, cookie, ino, child), Change::PutDirectory { ino, inode }]
}

pub fn make(ino: Ino, name: &[u8], kind: FileKind, target: &[u8]) -> meta::Op {
    let new = meta::ops::NewInode {
        ino,
        kind,
        mode: 0o777,
        umask: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: target.into(),
    };
    meta::Op::Create { parent: Ino::ROOT, name: Name::new(name).unwrap(), new, split: false }
}

pub fn directory(parent: Ino, ino: Ino) -> Vec<Change> {
    directory_at(parent, 256, ino).to_vec()
}
