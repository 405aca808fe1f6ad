//! Three nodes with `lazysize` append to one file, read it and look at it, in any order: what a look may show, and what is
//! exact nevertheless.

use meta::FileKind;
use meta::ops::AttrSet;
use sim::{Cluster, ClusterConfig};
use types::{Ino, Micros, Timespec};
use vfs::{HandleId, Lazy, MakeSpec, OpenMode, Reply, Request, Taken, WriteData};

const NODES: usize = 3;
const LATE_MAX: Micros = Micros(1_000_000);

struct World {
    cluster: Cluster,
    ino: Ino,
    /// Of each node, and whether it may be written through it.
    handles: [Option<(HandleId, bool)>; NODES],
    size: u64,
    /// The size from a time on.
    history: Vec<(Micros, u64)>,
    /// What each node wrote, read, or was told exactly.
    least: [u64; NODES],
}

impl World {
    fn new(seed: u64) -> Self {
        let core = vfs::Config { lazy: Lazy { size: true, mtime: false }, ..vfs::Config::default() };
        let mut cluster =
            Cluster::new(ClusterConfig { seed, nodes: NODES, core, ..ClusterConfig::default() });
        let spec = MakeSpec {
            kind: FileKind::File,
            mode: 0o644,
            umask: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: Box::default(),
        };
        let open = OpenMode { write: true, append: true, ..OpenMode::default() };
        let create =
            Request::Create { parent: Ino::ROOT, name: b"f"[..].into(), spec, open, taken: Taken::Refuse };
        let Reply::Created(entry, opened) = cluster.call(0, create) else { panic!("not made") };
        let mut world = Self {
            cluster,
            ino: entry.attr.ino,
            handles: [Some((opened.handle, true)), None, None],
            size: 0,
            history: vec![(Micros(0), 0)],
            least: [0; NODES],
        };
        for node in 0..NODES {
            world.look_up(node);
        }
        world
    }

    fn append(&mut self, node: usize) {
        if !matches!(self.handles[node], Some((_, true))) {
            return;
        }
        let len = 1 + self.cluster.random(100);
        let data = WriteData(vec![1; len as usize].into());
        // The kernel's idea of the end may be any.
        let write = Request::Write {
            ino: self.ino,
            offset: 0,
            data,
            append: true,
            direct: true,
            kill_privileges: None,
        };
        assert!(matches!(self.cluster.call(node, write), Reply::Written { .. }));
        self.size += len;
        self.history.push((self.cluster.clock().now, self.size));
        self.least[node] = self.size;
    }

    /// What was told to who asked at `asked`.
    fn check(&mut self, node: usize, asked: Micros, size: u64) {
        let was = self.history.iter().rev().find(|(since, _)| since.0 + LATE_MAX.0 <= asked.0);
        let least = was.map_or(0, |(_, size)| *size).max(self.least[node]);
        assert!(
            (least..=self.size).contains(&size),
            "node {node} at {asked}: {size}, not {least}..={}",
            self.size
        );
        // Nothing goes back for who has seen it.
        self.least[node] = size;
        if matches!(self.handles[node], Some((_, true))) {
            assert_eq!(size, self.size, "node {node} has it open for writing");
        }
    }

    fn stat(&mut self, node: usize) {
        let asked = self.cluster.clock().now;
        match self.cluster.call(node, Request::Stat { ino: self.ino }) {
            Reply::Attr(attr, _) => self.check(node, asked, attr.size),
            other => panic!("stat answered {other:?}"),
        }
    }

    fn look_up(&mut self, node: usize) {
        let asked = self.cluster.clock().now;
        match self.cluster.call(node, Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() }) {
            Reply::Entry(entry) => self.check(node, asked, entry.attr.size),
            other => panic!("lookup answered {other:?}"),
        }
    }

    /// As the kernel does before a read behind the end that it has.
    fn ask_exactly(&mut self, node: usize) {
        match self.cluster.call(node, Request::GetAttr { ino: self.ino }) {
            Reply::Attr(attr, _) => assert_eq!(attr.size, self.size),
            other => panic!("getattr answered {other:?}"),
        }
        self.least[node] = self.size;
    }

    fn read_to_the_end(&mut self, node: usize) {
        let offset = self.size.saturating_sub(10);
        let expected = self.size - offset;
        match self
            .cluster
            .call(node, Request::Read { ino: self.ino, offset, len: 100, noatime: true, direct: false })
        {
            Reply::Data(data) => assert_eq!(data.len() as u64, expected),
            Reply::ReadJob(job) => {
                assert_eq!(job.len as u64, expected);
                let clock = self.cluster.node_clock(node);
                self.cluster.core(node).read_done(clock, job.pin);
            }
            other => panic!("read answered {other:?}"),
        }
        self.least[node] = self.size;
    }

    fn open_or_close(&mut self, node: usize) {
        if let Some((handle, _)) = self.handles[node].take() {
            self.cluster.call(node, Request::Release { ino: self.ino, handle, flock: None });
            return;
        }
        let write = self.cluster.random(2) == 0;
        let open = OpenMode { write, append: write, ..OpenMode::default() };
        let Reply::Opened(opened) = self.cluster.call(node, Request::Open { ino: self.ino, open }) else {
            panic!("not opened");
        };
        self.handles[node] = Some((opened.handle, write));
        // The first look shows what it was when it was opened.
        self.least[node] = self.size;
    }

    fn set_time(&mut self, node: usize) {
        let mtime = Timespec { secs: 1 + self.cluster.random(1_000) as i64, nanos: 0 };
        let set = AttrSet { mtime: Some(mtime), ..AttrSet::default() };
        let answer = self.cluster.call(node, Request::SetAttr { ino: self.ino, set, size: None });
        assert!(matches!(answer, Reply::Attr(attr, _) if attr.mtime == mtime));
        match self.cluster.call(node, Request::Stat { ino: self.ino }) {
            Reply::Attr(attr, _) => assert_eq!((attr.mtime, attr.size), (mtime, self.size)),
            other => panic!("stat answered {other:?}"),
        }
        self.least[node] = self.size;
    }

    fn rest(&mut self) {
        let until = self.cluster.clock().now + Micros(self.cluster.random(700_000));
        while self.cluster.clock().now < until {
            self.cluster.step();
        }
    }

    fn next(&mut self) {
        let node = self.cluster.random(NODES as u64) as usize;
        match self.cluster.random(40) {
            0..10 => self.append(node),
            10..24 => self.stat(node),
            24..28 => self.look_up(node),
            28..30 => self.ask_exactly(node),
            30..32 => self.read_to_the_end(node),
            32..35 => self.open_or_close(node),
            35 => self.set_time(node),
            _ => self.rest(),
        }
    }
}

#[test]
fn late_sizes_are_late_by_a_second_and_never_less_than_a_node_wrote_or_read() {
    let seeds: u64 = std::env::var("HOLDFAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let mut late = 0;
    for seed in 0..seeds {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.next();
        }
        late += (0..NODES).map(|node| world.cluster.metrics(node).sizes_late.get()).sum::<u64>();
    }
    assert!(late > seeds, "{late} looks were late");
}
