//! Access times across changes of rights: noted where the read was, written under EX, and never in the way of a
//! time that somebody set.

use meta::FileKind;
use meta::ops::AttrSet;
use sim::{Cluster, ClusterConfig, Tree};
use types::{Ino, Timespec};
use vfs::{MakeSpec, OpenMode, Reply, Request, Taken, WriteData};

fn cluster(seed: u64, nodes: usize) -> Cluster {
    let core = vfs::Config::default();
    Cluster::new(ClusterConfig {
        seed,
        nodes,
        core,
        listing_entries: 0,
        verbose: false,
        ..ClusterConfig::default()
    })
}

fn spec(kind: FileKind) -> MakeSpec {
    MakeSpec { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() }
}

fn mkdir(cluster: &mut Cluster, node: usize, name: &[u8]) -> Ino {
    let request = Request::Make { parent: Ino::ROOT, name: name.into(), spec: spec(FileKind::Directory) };
    match cluster.call(node, request) {
        Reply::Entry(entry) => entry.attr.ino,
        other => panic!("mkdir answered {other:?}"),
    }
}

fn make_file(cluster: &mut Cluster, node: usize, parent: Ino, name: &[u8]) -> Ino {
    let open = OpenMode { write: true, ..OpenMode::default() };
    let request =
        Request::Create { parent, name: name.into(), spec: spec(FileKind::File), open, taken: Taken::Refuse };
    let Reply::Created(entry, opened) = cluster.call(node, request) else { panic!("create is refused") };
    let ino = entry.attr.ino;
    let data = WriteData(b"bytes"[..].into());
    cluster.call(
        node,
        Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None },
    );
    cluster.call(node, Request::Release { ino, handle: opened.handle, flock: None });
    ino
}

fn look(cluster: &mut Cluster, node: usize, parent: Ino, name: &[u8]) {
    let reply = cluster.call(node, Request::Lookup { parent, name: name.into() });
    assert!(matches!(reply, Reply::Entry(_)), "lookup answered {reply:?}");
}

/// Reads, and returns when at the latest that was.
fn read(cluster: &mut Cluster, node: usize, ino: Ino) -> Timespec {
    match cluster.call(node, Request::Read { ino, offset: 0, len: 100, noatime: false, direct: false }) {
        Reply::Data(data) => assert_eq!(data, b"bytes"),
        other => panic!("read answered {other:?}"),
    }
    cluster.clock().wall
}

fn atime(cluster: &mut Cluster, node: usize, ino: Ino) -> Timespec {
    match cluster.call(node, Request::GetAttr { ino }) {
        Reply::Attr(attr, _) => attr.atime,
        other => panic!("getattr answered {other:?}"),
    }
}

fn stored(cluster: &mut Cluster, ino: Ino) -> Timespec {
    let tree = Tree::read(cluster.engine());
    assert_eq!(tree.faults(), Vec::<String>::new());
    tree.inode(ino).expect("it is there").1.atime
}

#[test]
fn noted_under_ex_it_is_written_in_time_and_when_another_node_comes() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 2);
        let dir = mkdir(&mut cluster, 0, b"d");
        let ino = make_file(&mut cluster, 0, dir, b"f");
        let made = atime(&mut cluster, 0, ino);
        cluster.quiesce();
        let messages = cluster.figures().messages;
        let last = read(&mut cluster, 0, ino);
        let noted = atime(&mut cluster, 0, ino);
        assert!(made < noted && noted <= last, "seed {seed}");
        assert_eq!(cluster.figures().messages, messages, "seed {seed}");
        assert_eq!(stored(&mut cluster, ino), made, "seed {seed}");
        if seed % 2 == 0 {
            look(&mut cluster, 1, Ino::ROOT, b"d");
            look(&mut cluster, 1, dir, b"f");
            assert_eq!(atime(&mut cluster, 1, ino), noted, "seed {seed}");
        }
        for _ in 0..5 {
            cluster.quiesce();
        }
        assert_eq!(stored(&mut cluster, ino), noted, "seed {seed}");
    }
}

#[test]
fn noted_under_pr_it_stays_here_until_somebody_sets_another() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 3);
        let dir = mkdir(&mut cluster, 0, b"d");
        let ino = make_file(&mut cluster, 0, dir, b"f");
        for node in [1, 2] {
            look(&mut cluster, node, Ino::ROOT, b"d");
            look(&mut cluster, node, dir, b"f");
        }
        let before = atime(&mut cluster, 2, ino);
        read(&mut cluster, 1, ino);
        let noted = atime(&mut cluster, 1, ino);
        assert!(noted > before, "seed {seed}");
        assert_eq!(atime(&mut cluster, 2, ino), before, "seed {seed}");
        let set = Timespec { secs: 77, nanos: seed as u32 };
        let setter = (seed % 3) as usize;
        let request =
            Request::SetAttr { ino, set: AttrSet { atime: Some(set), ..AttrSet::default() }, size: None };
        assert!(matches!(cluster.call(setter, request), Reply::Attr(..)));
        for node in 0..3 {
            assert_eq!(atime(&mut cluster, node, ino), set, "seed {seed}, node {node}");
        }
        // It is older than the change of times now, so the next read counts again, on its node.
        read(&mut cluster, 1, ino);
        assert!(atime(&mut cluster, 1, ino) > set, "seed {seed}");
        for _ in 0..6 {
            cluster.quiesce();
        }
        let kept = stored(&mut cluster, ino);
        assert!(kept == set || kept == atime(&mut cluster, 1, ino), "seed {seed}");
    }
}

#[test]
fn lazytime_writes_it_with_the_next_change_only() {
    for seed in 0..10 {
        let core = vfs::Config { atime_interval: types::Micros::NEVER, ..vfs::Config::default() };
        let mut cluster = Cluster::new(ClusterConfig {
            seed,
            nodes: 1,
            core,
            listing_entries: 0,
            verbose: false,
            ..ClusterConfig::default()
        });
        let dir = mkdir(&mut cluster, 0, b"d");
        let ino = make_file(&mut cluster, 0, dir, b"f");
        let made = atime(&mut cluster, 0, ino);
        read(&mut cluster, 0, ino);
        for _ in 0..8 {
            cluster.quiesce();
        }
        assert_eq!(stored(&mut cluster, ino), made, "seed {seed}");
        let noted = atime(&mut cluster, 0, ino);
        let set = AttrSet { mode: Some(0o600), ..AttrSet::default() };
        cluster.call(0, Request::SetAttr { ino, set, size: None });
        cluster.quiesce();
        assert_eq!(stored(&mut cluster, ino), noted, "seed {seed}");
    }
}
