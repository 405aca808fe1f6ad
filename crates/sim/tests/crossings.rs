//! Cases in which two things cross on their way, set up by hand.

use lock::node::Hold;
use meta::ops::{AttrSet, RenameMode};
use meta::{FileKind, FsError};
use sim::{Cluster, ClusterConfig, Cut, Tree};
use types::{Ino, Micros};
use vfs::{HandleId, MakeSpec, OpenMode, Reply, Request, Taken, WriteData};

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

fn create(cluster: &mut Cluster, node: usize, parent: Ino, name: &[u8]) -> (Ino, HandleId) {
    let open = OpenMode { write: true, ..OpenMode::default() };
    let request =
        Request::Create { parent, name: name.into(), spec: spec(FileKind::File), open, taken: Taken::Refuse };
    match cluster.call(node, request) {
        Reply::Created(entry, opened) => (entry.attr.ino, opened.handle),
        other => panic!("create answered {other:?}"),
    }
}

fn mkdir(cluster: &mut Cluster, node: usize, name: &[u8]) -> Ino {
    let request = Request::Make { parent: Ino::ROOT, name: name.into(), spec: spec(FileKind::Directory) };
    match cluster.call(node, request) {
        Reply::Entry(entry) => entry.attr.ino,
        other => panic!("mkdir answered {other:?}"),
    }
}

fn lookup(cluster: &mut Cluster, node: usize, parent: Ino, name: &[u8]) -> Reply {
    cluster.call(node, Request::Lookup { parent, name: name.into() })
}

fn check_whole(cluster: &mut Cluster) -> Tree {
    cluster.quiesce();
    let tree = Tree::read(cluster.engine());
    assert_eq!(tree.faults(), Vec::<String>::new());
    tree
}

/// Content with extents waits for a sync of segments; a truncation to nothing needs none, and must not be
/// undone when the sync has ended.
#[test]
fn content_that_needs_no_sync_does_not_overtake_content_that_does() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 1);
        let (ino, _) = create(&mut cluster, 0, Ino::ROOT, b"f");
        let data = WriteData(vec![1; 300_000].into());
        cluster.call(
            0,
            Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None },
        );
        let first = cluster.submit(0, Request::Fsync { ino });
        cluster.submit(0, Request::SetAttr { ino, set: AttrSet::default(), size: Some(0) });
        let second = cluster.submit(0, Request::Fsync { ino });
        assert!(matches!(cluster.wait(0, second), Reply::Done));
        assert!(matches!(cluster.wait(0, first), Reply::Done));
        let tree = check_whole(&mut cluster);
        assert_eq!(tree.data(ino, cluster.store()), Ok(Vec::new()), "seed {seed}");
    }
}

/// The removal of a name runs at the master; a change of mode here must not undo what it does to the link count.
#[test]
fn inode_with_tokens_of_its_own_is_not_changed_while_an_operation_on_it_is_at_the_master() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 2);
        let dir = mkdir(&mut cluster, 0, b"d");
        let (ino, handle) = create(&mut cluster, 0, dir, b"a");
        cluster.call(0, Request::Release { ino, handle, flock: None });
        let link = cluster.call(0, Request::Link { ino, parent: dir, name: b"b"[..].into() });
        assert!(matches!(link, Reply::Entry(_)));
        assert!(matches!(lookup(&mut cluster, 1, Ino::ROOT, b"d"), Reply::Entry(_)));
        assert!(matches!(lookup(&mut cluster, 1, dir, b"none"), Reply::NoEntry(_)));
        let unlink = cluster.submit(0, Request::Unlink { parent: dir, name: b"b"[..].into(), bound: None });
        let set = AttrSet { mode: Some(0o600), ..AttrSet::default() };
        let chmod = cluster.submit(0, Request::SetAttr { ino, set, size: None });
        assert!(matches!(cluster.wait(0, unlink), Reply::Done));
        assert!(matches!(cluster.wait(0, chmod), Reply::Attr(..)));
        let tree = check_whole(&mut cluster);
        let (attr, _) = tree.inode(ino).expect("it has a name left");
        assert_eq!((attr.nlink, attr.mode), (1, 0o600), "seed {seed}");
    }
}

/// A node that holds an inode in EX may remove it, so it must learn that another node has it open.
#[test]
fn open_on_another_node_keeps_an_inode_whose_last_name_its_holder_removes() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 2);
        let dir = mkdir(&mut cluster, 0, b"d");
        let (ino, handle) = create(&mut cluster, 0, dir, b"a");
        let data = WriteData(b"kept"[..].into());
        cluster.call(
            0,
            Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None },
        );
        cluster.call(0, Request::Release { ino, handle, flock: None });
        lookup(&mut cluster, 1, Ino::ROOT, b"d");
        assert!(matches!(lookup(&mut cluster, 1, dir, b"a"), Reply::Entry(_)));
        // Node 0 changes the directory until it has it in EX again, and links the file there.
        for index in 0..40 {
            create(&mut cluster, 0, dir, format!("n{index}").as_bytes());
        }
        let link = cluster.call(0, Request::Link { ino, parent: dir, name: b"b"[..].into() });
        assert!(matches!(link, Reply::Entry(_)));
        let opened = cluster.call(1, Request::Open { ino, open: OpenMode::default() });
        assert!(matches!(opened, Reply::Opened(_)), "seed {seed}: {opened:?}");
        for name in [b"a", b"b"] {
            let done = cluster.call(0, Request::Unlink { parent: dir, name: name[..].into(), bound: None });
            assert!(matches!(done, Reply::Done));
        }
        match cluster.call(1, Request::Read { ino, offset: 0, len: 100, noatime: false, direct: false }) {
            Reply::Data(data) => assert_eq!(data, b"kept"),
            other => panic!("seed {seed}: read answered {other:?}"),
        }
    }
}

/// A name may go by an operation at the master while its node has the file open: the file stays for that node, is
/// not taken for one that nobody has open, and goes with the last close.
#[test]
fn file_stays_for_the_node_that_removes_its_name_at_the_master() {
    for (seed, is_renamed_over) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
        let mut cluster = cluster(seed, 2);
        let dir = mkdir(&mut cluster, 0, b"d");
        let (ino, handle) = create(&mut cluster, 0, dir, b"a");
        let data = WriteData(b"kept"[..].into());
        cluster.call(
            0,
            Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None },
        );
        cluster.call(0, Request::Release { ino, handle, flock: None });
        let (other, handle) = create(&mut cluster, 0, dir, b"b");
        cluster.call(0, Request::Release { ino: other, handle, flock: None });
        // Both share the directory from here on.
        lookup(&mut cluster, 1, Ino::ROOT, b"d");
        lookup(&mut cluster, 1, dir, b"a");
        let Reply::Opened(opened) = cluster.call(0, Request::Open { ino, open: OpenMode::default() }) else {
            panic!("seed {seed}: not opened");
        };
        let name = b"a"[..].into();
        let removal = if is_renamed_over {
            let mode = RenameMode::Replace;
            Request::Rename {
                parent: dir,
                name: b"b"[..].into(),
                new_parent: dir,
                new_name: name,
                mode,
                bound: None,
                whiteout: None,
            }
        } else {
            Request::Unlink { parent: dir, name, bound: None }
        };
        assert!(matches!(cluster.call(0, removal), Reply::Done));
        cluster.quiesce();
        match cluster.call(0, Request::GetAttr { ino }) {
            Reply::Attr(attr, _) => assert_eq!((attr.nlink, attr.size), (0, 4)),
            other => panic!("seed {seed}: getattr answered {other:?}"),
        }
        match cluster.call(0, Request::Read { ino, offset: 0, len: 100, noatime: false, direct: false }) {
            Reply::Data(data) => assert_eq!(data, b"kept"),
            other => panic!("seed {seed}: read answered {other:?}"),
        }
        cluster.call(0, Request::Release { ino, handle: opened.handle, flock: None });
        let tree = check_whole(&mut cluster);
        assert!(tree.data(ino, cluster.store()).is_err(), "seed {seed}: still there after the last close");
    }
}

/// What is told for one use is not shown to those who ask later.
#[test]
fn size_that_was_glimpsed_is_not_shown_again() {
    let mut cluster = cluster(1, 2);
    let dir = mkdir(&mut cluster, 0, b"d");
    lookup(&mut cluster, 1, Ino::ROOT, b"d");
    assert!(matches!(lookup(&mut cluster, 1, dir, b"none"), Reply::NoEntry(_)));
    let (ino, _) = create(&mut cluster, 0, dir, b"a");
    for len in 1..20 {
        let data = WriteData(vec![1; 1].into());
        let write = Request::Write {
            ino,
            offset: len - 1,
            data,
            append: false,
            direct: false,
            kill_privileges: None,
        };
        assert!(matches!(cluster.call(0, write), Reply::Written { .. }));
        let size = if len % 2 == 0 {
            match cluster.call(1, Request::GetAttr { ino }) {
                Reply::Attr(attr, _) => attr.size,
                other => panic!("getattr answered {other:?}"),
            }
        } else {
            match lookup(&mut cluster, 1, dir, b"a") {
                Reply::Entry(entry) => entry.attr.size,
                other => panic!("lookup answered {other:?}"),
            }
        };
        assert_eq!(size, len);
    }
}

/// Both wait for the same directory; that the first is refused must not keep the second waiting.
#[test]
fn next_in_line_has_its_turn_when_the_one_before_is_refused() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 3);
        create(&mut cluster, 0, Ino::ROOT, b"b");
        create(&mut cluster, 0, Ino::ROOT, b"a");
        let waiting = [1, 2].map(|node| {
            let (spec, open) = (spec(FileKind::File), OpenMode::default());
            let name = b"a"[..].into();
            (
                node,
                cluster.submit(
                    node,
                    Request::Create { parent: Ino::ROOT, name, spec, open, taken: Taken::Refuse },
                ),
            )
        });
        for (node, id) in waiting {
            match cluster.wait(node, id) {
                Reply::Error(FsError::Exists) => {}
                other => panic!("seed {seed}: create answered {other:?}"),
            }
        }
    }
}

/// Whoever makes a file durable makes durable what others did to it, and need not have changed anything.
#[test]
fn fsync_covers_what_another_node_made() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 2);
        let dir = mkdir(&mut cluster, 0, b"d");
        let (ino, _) = create(&mut cluster, 0, dir, b"a");
        assert!(matches!(lookup(&mut cluster, 1, Ino::ROOT, b"d"), Reply::Entry(_)));
        assert!(matches!(lookup(&mut cluster, 1, dir, b"a"), Reply::Entry(_)));
        assert!(matches!(cluster.call(1, Request::Fsync { ino }), Reply::Done));
        cluster.lose_power();
        let names = Tree::read(cluster.engine()).names(dir);
        assert!(names.contains_key(&b"a"[..]), "seed {seed}: {names:?}");
    }
}

/// A sync that was asked for while an operation was at the master does not cover it.
#[test]
fn fsync_covers_an_operation_that_was_under_way_during_another_fsync() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 2);
        let dir = mkdir(&mut cluster, 0, b"d");
        lookup(&mut cluster, 1, Ino::ROOT, b"d");
        assert!(matches!(lookup(&mut cluster, 1, dir, b"none"), Reply::NoEntry(_)));
        let made = Request::Make { parent: dir, name: b"s"[..].into(), spec: spec(FileKind::Directory) };
        let make = cluster.submit(0, made);
        let other = cluster.submit(0, Request::Fsync { ino: Ino::ROOT });
        assert!(matches!(cluster.wait(0, make), Reply::Entry(_)));
        assert!(matches!(cluster.wait(0, other), Reply::Done));
        assert!(matches!(cluster.call(0, Request::Fsync { ino: dir }), Reply::Done));
        cluster.lose_power();
        let names = Tree::read(cluster.engine()).names(dir);
        assert!(names.contains_key(&b"s"[..]), "seed {seed}: {names:?}");
    }
}

/// Pages filled while a token is given back go, too, if the file had none when that began.
#[test]
fn pages_of_a_file_that_had_none_when_its_release_began_are_taken_back() {
    let mut crossed = 0;
    for seed in 0..20 {
        let core = vfs::Config { token_limit: 64, ..vfs::Config::default() };
        let mut cluster = Cluster::new(ClusterConfig {
            seed,
            nodes: 2,
            core,
            listing_entries: 0,
            verbose: false,
            ..ClusterConfig::default()
        });
        assert!(matches!(lookup(&mut cluster, 1, Ino::ROOT, b"f"), Reply::NoEntry(_)));
        let (ino, _) = create(&mut cluster, 0, Ino::ROOT, b"f");
        let write = |byte: u8| {
            let data = WriteData(vec![byte; 100].into());
            Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None }
        };
        // So that there is something to take back.
        assert!(matches!(cluster.call(0, Request::GetAttr { ino }), Reply::Attr(..)));
        let release = format!("Attr {{ ino: {ino:?} }}");
        for index in 0..200 {
            mkdir(&mut cluster, 0, format!("d{index}").as_bytes());
            // Over its share the node gives up the file's token.
            if cluster.waiting().contains(&release) {
                crossed += 1;
                break;
            }
        }
        assert!(matches!(cluster.call(0, write(1)), Reply::Written { .. }));
        // What is written is in the kernel's pages.
        cluster.kernel(0).pages.insert(ino, vec![1; 100]);
        let open = Request::Open { ino, open: OpenMode { write: true, ..OpenMode::default() } };
        assert!(matches!(cluster.call(1, open), Reply::Opened(_)));
        assert!(matches!(cluster.call(1, write(2)), Reply::Written { .. }));
        assert_eq!(cluster.kernel(0).pages.get(&ino), None, "seed {seed}: old pages");
    }
    assert!(crossed > 0);
}

/// A page of extents that was on its way when the right to it was given back is older than what others wrote since.
#[test]
fn page_of_extents_does_not_outlive_a_release_that_crossed_it() {
    for seed in 0..10 {
        let core = vfs::Config {
            hold: Hold { minimum: Micros(30), idle: Micros(10), rest: Micros(20) },
            ..Default::default()
        };
        let mut cluster = Cluster::new(ClusterConfig {
            seed,
            nodes: 4,
            core,
            listing_entries: 0,
            verbose: false,
            ..ClusterConfig::default()
        });
        let (ino, _) = create(&mut cluster, 0, Ino::ROOT, b"f");
        for node in 1..4 {
            assert!(matches!(lookup(&mut cluster, node, Ino::ROOT, b"f"), Reply::Entry(_)));
        }
        let append = |byte: u8| {
            let data = WriteData(vec![byte; 16].into());
            Request::Write { ino, offset: 0, data, append: true, direct: false, kill_privileges: None }
        };
        let big = WriteData(vec![1; 4096].into());
        cluster.call(
            0,
            Request::Write { ino, offset: 0, data: big, append: false, direct: false, kill_privileges: None },
        );
        for _ in 0..100 {
            let writes: Vec<_> = (0..4).map(|n| (n, cluster.submit(n, append(2 + n as u8)))).collect();
            for (node, write) in writes {
                assert!(matches!(cluster.wait(node, write), Reply::Written { .. }));
            }
        }
        for node in 0..4 {
            cluster.call(node, Request::Fsync { ino });
        }
        let tree = check_whole(&mut cluster);
        let data = tree.data(ino, cluster.store()).expect("the file is whole");
        let count = |byte: u8| data.iter().filter(|b| **b == byte).count();
        assert_eq!([2, 3, 4, 5].map(count), [1600; 4], "seed {seed}");
    }
}

/// Pages of extents that were read under a directory's token are as old as that: when the file is split out of it, what
/// others write under the file's own token is not in them.
#[test]
fn pages_of_extents_do_not_outlive_the_directory_that_covered_their_file() {
    for seed in 0..10 {
        let mut cluster = cluster(seed, 2);
        let dir = mkdir(&mut cluster, 0, b"d");
        let (ino, handle) = create(&mut cluster, 0, dir, b"f");
        let write = |byte: u8, offset: u64| {
            let data = WriteData(vec![byte; 5000].into());
            Request::Write { ino, offset, data, append: false, direct: false, kill_privileges: None }
        };
        // More extents than a record holds.
        for n in 0..40 {
            assert!(matches!(cluster.call(0, write(1, n * 10_000)), Reply::Written { .. }));
            assert!(matches!(cluster.call(0, Request::Fsync { ino }), Reply::Done));
        }
        cluster.call(0, Request::Release { ino, handle, flock: None });
        cluster.quiesce();
        lookup(&mut cluster, 1, Ino::ROOT, b"d");
        assert!(matches!(lookup(&mut cluster, 1, dir, b"f"), Reply::Entry(_)));
        let seek = Request::Seek { ino, offset: 0, for_hole: true };
        assert!(matches!(cluster.call(1, seek), Reply::Offset(5000)));
        for (node, offset) in [(0, 395_000), (1, 405_000)] {
            let open = Request::Open { ino, open: OpenMode { write: true, ..OpenMode::default() } };
            assert!(matches!(cluster.call(node, open), Reply::Opened(_)));
            assert!(matches!(cluster.call(node, write(2 + node as u8, offset)), Reply::Written { .. }));
            assert!(matches!(cluster.call(node, Request::Fsync { ino }), Reply::Done));
        }
        let tree = check_whole(&mut cluster);
        let data = tree.data(ino, cluster.store()).expect("the file is whole");
        let count = |byte: u8| data.iter().filter(|b| **b == byte).count();
        assert_eq!([1, 2, 3].map(count), [200_000, 5000, 5000], "seed {seed}");
    }
}

/// What was written to a file before it lost its name belongs to whoever has it open, also when the writer has closed it.
#[test]
fn content_of_an_orphan_outlives_its_writer_on_the_nodes_that_have_it_open() {
    let open = OpenMode { write: true, ..OpenMode::default() };
    for (seed, (remover, len)) in
        [(0, 10), (1, 10), (0, 200_000), (1, 200_000)].into_iter().cycle().take(20).enumerate()
    {
        let mut cluster = cluster(seed as u64, 2);
        let (ino, writer) = create(&mut cluster, 0, Ino::ROOT, b"f");
        assert!(matches!(lookup(&mut cluster, 1, Ino::ROOT, b"f"), Reply::Entry(_)));
        let Reply::Opened(reader) = cluster.call(1, Request::Open { ino, open }) else { panic!("opened") };
        let data = WriteData(vec![7; len].into());
        cluster.call(
            0,
            Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None },
        );
        let unlink = Request::Unlink { parent: Ino::ROOT, name: b"f"[..].into(), bound: None };
        assert!(matches!(cluster.call(remover, unlink), Reply::Done));
        cluster.call(0, Request::Release { ino, handle: writer, flock: None });
        if seed % 2 == 0 {
            cluster.quiesce();
        }
        let Reply::Attr(attr, _) = cluster.call(1, Request::GetAttr { ino }) else { panic!("it is open") };
        assert_eq!(attr.size, len as u64, "seed {seed}");
        cluster.call(1, Request::Release { ino, handle: reader.handle, flock: None });
        let tree = check_whole(&mut cluster);
        assert!(tree.data(ino, cluster.store()).is_err(), "seed {seed}: nobody has it open any more");
    }
}

/// A name that another node gives waits for the content as one that the writer gives: whoever replaces a file by a new one finds old bytes or new
/// ones when the writer's node is gone.
#[test]
fn a_name_that_another_node_gives_waits_for_the_content() {
    for seed in 0..20 {
        for is_link in [false, true] {
            let mut cluster = cluster(seed, 2);
            let dir = mkdir(&mut cluster, 1, b"d");
            create(&mut cluster, 1, dir, b"x");
            assert!(matches!(lookup(&mut cluster, 0, Ino::ROOT, b"d"), Reply::Entry(_)));
            let (ino, handle) = create(&mut cluster, 0, dir, b"new");
            let data = WriteData(vec![7; 100_000].into());
            let write =
                Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None };
            assert!(matches!(cluster.call(0, write), Reply::Written { .. }));
            if seed % 2 == 0 {
                cluster.call(0, Request::Release { ino, handle, flock: None });
            }
            assert!(matches!(lookup(&mut cluster, 1, dir, b"new"), Reply::Entry(_)));
            let named = if is_link {
                Request::Link { ino, parent: dir, name: b"cur"[..].into() }
            } else {
                Request::Rename {
                    parent: dir,
                    name: b"new"[..].into(),
                    new_parent: dir,
                    new_name: b"cur"[..].into(),
                    mode: RenameMode::Replace,
                    bound: None,
                    whiteout: None,
                }
            };
            assert!(!matches!(cluster.call(1, named), Reply::Error(_)));
            cluster.kill_node(0);
            match lookup(&mut cluster, 1, dir, b"cur") {
                Reply::Entry(entry) => assert_eq!(entry.attr.size, 100_000, "seed {seed}"),
                other => panic!("seed {seed}: lookup answered {other:?}"),
            }
        }
    }
}

/// What waits at the master takes effect when it is done, and not when it was asked for: nobody saw it before, who looked meanwhile.
#[test]
fn an_operation_that_waited_sets_no_times_of_before() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 2);
        let dir = mkdir(&mut cluster, 1, b"d");
        assert!(matches!(lookup(&mut cluster, 0, Ino::ROOT, b"d"), Reply::Entry(_)));
        create(&mut cluster, 1, dir, b"x");
        cluster.cut(0, Cut::ToMaster, Micros::from_millis(300));
        let made = Request::Make { parent: dir, name: b"s"[..].into(), spec: spec(FileKind::Directory) };
        let make = cluster.submit(0, made);
        let since = match cluster.call(1, Request::GetAttr { ino: dir }) {
            Reply::Attr(attr, _) => attr.mtime,
            other => panic!("getattr answered {other:?}"),
        };
        match cluster.wait(0, make) {
            Reply::Entry(entry) => {
                let nanos = |time: types::Timespec| time.secs * 1_000_000_000 + i64::from(time.nanos);
                let after = nanos(entry.attr.ctime) - nanos(since);
                assert!(after >= 299_000_000, "seed {seed}: {after} ns after");
            }
            other => panic!("mkdir answered {other:?}"),
        }
    }
}

/// Each renames a file that the other has written over one that it has written itself: both have to log content for the other, and neither may wait
/// for that with its own rename under way.
#[test]
fn renames_that_cross_do_not_wait_for_each_other() {
    for seed in 0..20 {
        let mut cluster = cluster(seed, 2);
        let dir = mkdir(&mut cluster, 1, b"d");
        assert!(matches!(lookup(&mut cluster, 0, Ino::ROOT, b"d"), Reply::Entry(_)));
        assert!(matches!(lookup(&mut cluster, 0, dir, b"none"), Reply::NoEntry(_)));
        for (node, name) in [(0, b"y"), (1, b"x")] {
            let (ino, _) = create(&mut cluster, node, dir, name);
            let data = WriteData(vec![7; 100_000].into());
            let write =
                Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None };
            assert!(matches!(cluster.call(node, write), Reply::Written { .. }));
        }
        let mode = if seed % 2 == 0 { RenameMode::Replace } else { RenameMode::Exchange };
        let renames = [(0, b"x", b"y"), (1, b"y", b"x")].map(|(node, name, new_name)| {
            let (name, new_name) = (name[..].into(), new_name[..].into());
            let request = Request::Rename {
                parent: dir,
                name,
                new_parent: dir,
                new_name,
                mode,
                bound: None,
                whiteout: None,
            };
            (node, cluster.submit(node, request))
        });
        for (node, id) in renames {
            let reply = cluster.wait(node, id);
            assert!(matches!(reply, Reply::Done | Reply::Error(FsError::NotFound)), "seed {seed}: {reply:?}");
        }
        assert_eq!(cluster.take_ended(), Vec::<usize>::new(), "seed {seed}");
        check_whole(&mut cluster);
    }
}
