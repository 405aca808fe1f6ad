//! What a node keeps in memory has limits, and directories know where they hang.

use meta::{FileKind, FsError};
use sim::{Cluster, ClusterConfig, Tree};
use types::Ino;
use vfs::{HandleId, MakeSpec, OpenMode, Reply, Request, Taken, WriteData};

fn cluster(seed: u64, core: vfs::Config) -> Cluster {
    Cluster::new(ClusterConfig {
        seed,
        nodes: 2,
        core,
        listing_entries: 0,
        verbose: false,
        ..ClusterConfig::default()
    })
}

fn spec(kind: FileKind) -> MakeSpec {
    MakeSpec { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() }
}

fn mkdir(cluster: &mut Cluster, parent: Ino, name: &[u8]) -> Ino {
    let request = Request::Make { parent, name: name.into(), spec: spec(FileKind::Directory) };
    match cluster.call(0, request) {
        Reply::Entry(entry) => entry.attr.ino,
        other => panic!("mkdir answered {other:?}"),
    }
}

fn create(cluster: &mut Cluster, parent: Ino, name: &[u8]) -> (Ino, HandleId) {
    let open = OpenMode { write: true, ..OpenMode::default() };
    let request =
        Request::Create { parent, name: name.into(), spec: spec(FileKind::File), open, taken: Taken::Refuse };
    match cluster.call(0, request) {
        Reply::Created(entry, opened) => (entry.attr.ino, opened.handle),
        other => panic!("create answered {other:?}"),
    }
}

/// Many open files, each with less than is stored at once, some small enough for their records.
#[test]
fn content_in_memory_only_is_bounded_over_all_files() {
    const LIMIT: usize = 256 << 10;
    for seed in 0..5 {
        let core = vfs::Config { dirty_bytes_max: LIMIT, ..vfs::Config::default() };
        let mut cluster = cluster(seed, core);
        let dir = mkdir(&mut cluster, Ino::ROOT, b"d");
        let mut files = Vec::new();
        for number in 0..100u8 {
            let (ino, handle) = create(&mut cluster, dir, format!("f{number}").as_bytes());
            let len = if number % 2 == 0 { 4000 } else { 50_000 };
            for round in 0..3u64 {
                let data = WriteData(vec![number; len].into());
                let offset = if len == 4000 { 0 } else { round * len as u64 };
                let write =
                    Request::Write { ino, offset, data, append: false, direct: false, kill_privileges: None };
                assert!(matches!(cluster.call(0, write), Reply::Written { .. }));
                let held = cluster.core(0).snapshot().unstored_bytes;
                assert!(held <= LIMIT as u64, "seed {seed}: {held} bytes in memory");
            }
            files.push((ino, handle, if len == 4000 { len } else { 3 * len }, number));
        }
        for (ino, handle, ..) in &files {
            cluster.call(0, Request::Release { ino: *ino, handle: *handle, flock: None });
        }
        cluster.quiesce();
        let tree = Tree::read(cluster.engine());
        assert_eq!(tree.faults(), Vec::<String>::new());
        for (ino, _, len, byte) in files {
            assert_eq!(tree.data(ino, cluster.store()), Ok(vec![byte; len]), "seed {seed}");
        }
    }
}

/// File handles of directories are connected to the tree by looking up "..".
#[test]
fn a_directory_says_what_it_is_in() {
    for seed in 0..10 {
        let mut cluster = cluster(seed, vfs::Config::default());
        let upper = mkdir(&mut cluster, Ino::ROOT, b"upper");
        let lower = mkdir(&mut cluster, upper, b"lower");
        let (file, _) = create(&mut cluster, lower, b"f");
        // A handle that no master knows yet is stale elsewhere.
        assert!(matches!(cluster.call(0, Request::Fsync { ino: lower }), Reply::Done));
        for node in [1, 0] {
            for (ino, parent) in [(lower, upper), (upper, Ino::ROOT), (Ino::ROOT, Ino::ROOT)] {
                match cluster.call(node, Request::Parent { ino }) {
                    Reply::Entry(entry) => {
                        assert_eq!((entry.attr.ino, entry.attr.kind), (parent, FileKind::Directory));
                    }
                    other => panic!("seed {seed}: the parent of {ino} is {other:?}"),
                }
            }
        }
        let moved = Request::Rename {
            parent: upper,
            name: b"lower"[..].into(),
            new_parent: Ino::ROOT,
            new_name: b"moved"[..].into(),
            mode: meta::ops::RenameMode::Replace,
            bound: None,
            whiteout: None,
        };
        assert!(matches!(cluster.call(0, moved), Reply::Done));
        match cluster.call(1, Request::Parent { ino: lower }) {
            Reply::Entry(entry) => assert_eq!(entry.attr.ino, Ino::ROOT, "seed {seed}"),
            other => panic!("seed {seed}: {other:?}"),
        }
        match cluster.call(1, Request::Parent { ino: file }) {
            Reply::Error(FsError::NotDirectory | FsError::Stale) => {}
            other => panic!("seed {seed}: the parent of a file is {other:?}"),
        }
    }
}
