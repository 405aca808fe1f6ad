//! How a world begins.

use meta::FileKind;
use types::{Ino, Micros, Timespec};
use vfs::{Entry, MakeSpec, OpenMode, Reply, Request, Taken, WriteData};

use meta::ops::{NewInode, OpContext};
use meta::{FsError, Op};
use testkit::model;
use types::{Name, NodeId};

use super::worlds::{Dir, Warmth, World};
use crate::cluster::{Cluster, ClusterConfig};

/// Numbers of what is there at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    d: u64,
    e: u64,
    s: u64,
    a: u64,
    b: u64,
    c: u64,
}

impl Places {
    pub fn dir(&self, dir: Dir) -> u64 {
        match dir {
            Dir::Root => 1,
            Dir::D => self.d,
            Dir::E => self.e,
            Dir::S => self.s,
        }
    }

    /// The reference model as it is at first.
    pub fn model(&self) -> model::Tree {
        let now = Timespec::default();
        let mut tree = model::Tree::new(now, 0, 0);
        let all = [
            (1, "d", self.d, FileKind::Directory),
            (1, "e", self.e, FileKind::Directory),
            (self.d, "a", self.a, FileKind::File),
            (self.d, "b", self.b, FileKind::File),
            (self.e, "c", self.c, FileKind::File),
            (self.e, "s", self.s, FileKind::Directory),
        ];
        for (parent, name, ino, kind) in all {
            let made = tree.perform(&create(parent, name.as_bytes(), ino, kind), &context(NodeId(0)));
            assert!(made.is_ok(), "the model takes its first names: {made:?}");
        }
        for (ino, text) in [(self.a, b"aaaa"), (self.c, b"cccc")] {
            assert_eq!(tree.write(Ino(ino), 0, text, now), Ok(()));
        }
        tree
    }
}

/// The model's creation of a name.
pub(crate) fn create(parent: u64, name: &[u8], ino: u64, kind: FileKind) -> Op {
    let mode = spec(kind).mode;
    let target = Box::default();
    let new = NewInode { ino: Ino(ino), kind, mode, umask: 0, uid: 0, gid: 0, rdev: 0, target };
    let name = Name::new(name).expect("names of worlds are names");
    Op::Create { parent: Ino(parent), name, new, split: false }
}

pub(crate) fn context(node: NodeId) -> OpContext {
    OpContext { now: Timespec::default(), node }
}

pub(crate) fn spec(kind: FileKind) -> MakeSpec {
    let mode = if kind == FileKind::Directory { 0o755 } else { 0o644 };
    MakeSpec { kind, mode, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() }
}

/// A cluster as a world has it at first.
pub(crate) fn begin(world: &World, verbose: bool) -> (Cluster, Places) {
    let mut core = vfs::Config::default();
    // Revokes are carried out when they come: that a node may keep what it uses for a while adds no order of events.
    core.hold = lock::node::Hold { minimum: Micros(0), idle: Micros(0), rest: Micros(0) };
    let nodes = world.nodes + 1;
    let may_break = world.faults.iter().any(|fault| fault.may_end_memberships());
    let config = ClusterConfig {
        seed: 1,
        nodes,
        core,
        listing_entries: 0,
        verbose,
        may_break,
        ..ClusterConfig::default()
    };
    let mut cluster = Cluster::new(config);
    // One more node makes what is there, and goes.
    let maker = match world.warmth {
        Warmth::Held(node) => node,
        Warmth::Cold | Warmth::Shared => world.nodes,
    };
    let places = furnish(&mut cluster, maker);
    cluster.kill_node(world.nodes);
    match world.warmth {
        Warmth::Cold => {}
        Warmth::Held(node) => visit(&mut cluster, node, &places),
        Warmth::Shared => (0..world.nodes).for_each(|node| visit(&mut cluster, node, &places)),
    }
    while !cluster.is_quiet() {
        cluster.step();
    }
    (cluster, places)
}

fn furnish(cluster: &mut Cluster, node: usize) -> Places {
    let d = mkdir(cluster, node, 1, b"d");
    let e = mkdir(cluster, node, 1, b"e");
    let a = file(cluster, node, d, b"a", b"aaaa");
    let b = file(cluster, node, d, b"b", b"");
    let c = file(cluster, node, e, b"c", b"cccc");
    let s = mkdir(cluster, node, e, b"s");
    for ino in [a, b, c, s, 1] {
        let reply = cluster.call(node, Request::Fsync { ino: Ino(ino) });
        assert!(matches!(reply, Reply::Done), "fsync answered {reply:?}");
    }
    Places { d, e, s, a, b, c }
}

fn mkdir(cluster: &mut Cluster, node: usize, parent: u64, name: &[u8]) -> u64 {
    let spec = spec(FileKind::Directory);
    match cluster.call(node, Request::Make { parent: Ino(parent), name: name.into(), spec }) {
        Reply::Entry(entry) => entry.attr.ino.0,
        other => panic!("mkdir answered {other:?}"),
    }
}

fn file(cluster: &mut Cluster, node: usize, parent: u64, name: &[u8], data: &[u8]) -> u64 {
    let open = OpenMode { write: true, map: true, ..OpenMode::default() };
    let (parent, spec) = (Ino(parent), spec(FileKind::File));
    let request = Request::Create { parent, name: name.into(), spec, open, taken: Taken::Refuse };
    let Reply::Created(entry, opened) = cluster.call(node, request) else { panic!("a file is made") };
    let ino = entry.attr.ino;
    if !data.is_empty() {
        let data = WriteData(data.into());
        let write =
            Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None };
        let reply = cluster.call(node, write);
        assert!(matches!(reply, Reply::Written { .. }), "write answered {reply:?}");
    }
    let reply = cluster.call(node, Request::Release { ino, handle: opened.handle, flock: None });
    assert!(matches!(reply, Reply::Done), "release answered {reply:?}");
    ino.0
}

/// A node's kernel looks at everything: names that are there and one that is not, attributes, content.
fn visit(cluster: &mut Cluster, node: usize, places: &Places) {
    let names: [(u64, &[u8]); 8] = [
        (1, b"d"),
        (1, b"e"),
        (places.d, b"a"),
        (places.d, b"b"),
        (places.d, b"x"),
        (places.e, b"c"),
        (places.e, b"s"),
        (places.s, b"x"),
    ];
    for (dir, name) in names {
        match cluster.call(node, Request::Lookup { parent: Ino(dir), name: name.into() }) {
            Reply::Entry(entry) => cluster.kernel(node).entry(Ino(dir), name, &entry),
            Reply::NoEntry(keep) => cluster.kernel(node).no_entry(Ino(dir), name, keep),
            Reply::Error(FsError::NotFound) => {}
            other => panic!("lookup answered {other:?}"),
        }
    }
    for ino in [places.a, places.c].map(Ino) {
        let Reply::Opened(opened) = cluster.call(node, Request::Open { ino, open: OpenMode::default() })
        else {
            panic!("a file opens")
        };
        if let Reply::Data(data) =
            cluster.call(node, Request::Read { ino, offset: 0, len: 1 << 16, noatime: true, direct: false })
        {
            cluster.kernel(node).pages.insert(ino, data);
        }
        let _ = cluster.call(node, Request::Release { ino, handle: opened.handle, flock: None });
    }
}

/// Takes all entries of a small directory.
#[derive(Debug, Default)]
pub(crate) struct Listing(pub Vec<(Vec<u8>, u64)>);

impl vfs::DirSink for Listing {
    fn push(&mut self, name: &[u8], ino: Ino, _: FileKind, _: u64, _: Option<&Entry>) -> bool {
        self.0.push((name.to_vec(), ino.0));
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}
