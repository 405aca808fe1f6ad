//! Leases that end and connections that break, set up by hand.

use meta::{FileKind, FsError};
use sim::{Cluster, ClusterConfig, Cut};
use types::{Ino, Micros};
use vfs::{HandleId, MakeSpec, OpenMode, Reply, Request, Taken, WriteData};

const LONG: Micros = Micros(25_000_000);

fn cluster(seed: u64) -> Cluster {
    Cluster::new(ClusterConfig { seed, nodes: 2, may_break: true, ..ClusterConfig::default() })
}

fn create(cluster: &mut Cluster, node: usize, name: &[u8]) -> (Ino, HandleId) {
    let open = OpenMode { write: true, ..OpenMode::default() };
    let kind = FileKind::File;
    let spec = MakeSpec { kind, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() };
    let request = Request::Create { parent: Ino::ROOT, name: name.into(), spec, open, taken: Taken::Refuse };
    match cluster.call(node, request) {
        Reply::Created(entry, opened) => (entry.attr.ino, opened.handle),
        other => panic!("create answered {other:?}"),
    }
}

fn write(ino: Ino, byte: u8) -> Request {
    let data = WriteData(vec![byte; 10].into());
    Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None }
}

fn lookup(cluster: &mut Cluster, node: usize, name: &[u8]) -> Reply {
    cluster.call(node, Request::Lookup { parent: Ino::ROOT, name: name.into() })
}

fn read(cluster: &mut Cluster, node: usize, ino: Ino) -> Vec<u8> {
    match cluster.call(node, Request::Read { ino, offset: 0, len: 100, noatime: false, direct: false }) {
        Reply::Data(data) => data,
        other => panic!("read answered {other:?}"),
    }
}

/// A file with tokens of its own, open on node 0, which has so much to store of it that a segment is needed.
fn with_content_to_store(cluster: &mut Cluster) -> Ino {
    assert!(matches!(lookup(cluster, 1, b"f"), Reply::NoEntry(_)));
    let (ino, _) = create(cluster, 0, b"f");
    assert!(matches!(cluster.call(0, Request::Fsync { ino }), Reply::Done));
    let data = WriteData(vec![7; 100_000].into());
    let write = Request::Write { ino, offset: 0, data, append: false, direct: false, kill_privileges: None };
    assert!(matches!(cluster.call(0, write), Reply::Written { .. }));
    ino
}

fn wait_until(cluster: &mut Cluster, until: Micros) {
    while cluster.clock().now < until {
        cluster.step();
    }
}

/// Who stands still for longer than a lease holds others up for as long, loses what was not flushed, and says so
/// until it is closed. Then it goes on as a new member.
#[test]
fn membership_ends_with_the_lease_and_the_node_begins_anew() {
    for seed in 0..20 {
        let mut cluster = cluster(seed);
        assert!(matches!(lookup(&mut cluster, 1, b"f"), Reply::NoEntry(_)));
        let (ino, handle) = create(&mut cluster, 0, b"f");
        assert!(matches!(cluster.call(0, Request::Fsync { ino }), Reply::Done));
        assert!(matches!(cluster.call(0, write(ino, 1)), Reply::Written { .. }));
        let begun = cluster.clock().now;
        cluster.pause(0, LONG);
        assert!(matches!(lookup(&mut cluster, 1, b"f"), Reply::Entry(_)));
        let open = Request::Open { ino, open: OpenMode { write: true, ..OpenMode::default() } };
        assert!(matches!(cluster.call(1, open), Reply::Opened(_)));
        let waited = cluster.clock().now.since(begun);
        assert!((5_000_000..15_000_000).contains(&waited.0), "seed {seed}: {waited}");
        assert!(read(&mut cluster, 1, ino).is_empty(), "seed {seed}: what was not flushed is lost");
        assert!(matches!(cluster.call(1, write(ino, 2)), Reply::Written { .. }));

        wait_until(&mut cluster, begun + LONG + Micros(2_000_000));
        assert_eq!(cluster.figures().memberships_lost, 1, "seed {seed}");
        let refused = cluster.call(0, Request::Fsync { ino });
        assert!(matches!(refused, Reply::Error(FsError::Io)), "seed {seed}: {refused:?}");
        let refused = cluster.call(0, write(ino, 3));
        assert!(matches!(refused, Reply::Error(FsError::Io)), "seed {seed}: {refused:?}");
        assert!(matches!(cluster.call(0, Request::Release { ino, handle, flock: None }), Reply::Done));
        assert_eq!(read(&mut cluster, 0, ino), [2; 10], "seed {seed}");
        let (other, _) = create(&mut cluster, 0, b"g");
        assert!(matches!(cluster.call(0, write(other, 4)), Reply::Written { .. }));
        assert!(matches!(lookup(&mut cluster, 1, b"g"), Reply::Entry(_)));
        assert_eq!(read(&mut cluster, 1, other), [4; 10], "seed {seed}");
    }
}

/// Who cannot renew its lease serves nothing, keeps what is dirty, and goes on if nobody wanted it.
#[test]
fn lease_that_nobody_wanted_is_taken_up_again() {
    for seed in 0..20 {
        let mut cluster = cluster(seed);
        let (ino, _) = create(&mut cluster, 0, b"f");
        let begun = cluster.clock().now;
        let cut = [Cut::Both, Cut::ToMaster, Cut::FromMaster][seed as usize % 3];
        cluster.cut(0, cut, LONG);
        assert!(matches!(cluster.call(0, write(ino, 1)), Reply::Written { .. }));
        wait_until(&mut cluster, begun + Micros(11_000_000));
        // The lease has ended: the request waits.
        let late = cluster.submit(0, write(ino, 2));
        wait_until(&mut cluster, begun + Micros(20_000_000));
        assert!(cluster.take_reply(0, late).is_none(), "seed {seed}");
        assert!(matches!(cluster.wait(0, late), Reply::Written { .. }));
        let figures = cluster.figures();
        assert!(figures.lapses > 0, "seed {seed}: {figures:?}");
        assert_eq!(figures.memberships_lost, 0, "seed {seed}: {figures:?}");
        assert!(matches!(lookup(&mut cluster, 1, b"f"), Reply::Entry(_)));
        assert_eq!(read(&mut cluster, 1, ino), [2; 10], "seed {seed}");
    }
}

/// A connection that breaks costs nothing but the time to make another.
#[test]
fn member_whose_connection_broke_resumes() {
    for seed in 0..20 {
        let mut cluster = cluster(seed);
        assert!(matches!(lookup(&mut cluster, 1, b"f"), Reply::NoEntry(_)));
        for round in 0..10u8 {
            let name = [b'f', b'0' + round];
            let (ino, handle) = create(&mut cluster, 0, &name);
            let written = cluster.submit(0, write(ino, round));
            cluster.break_connection(usize::from(round % 2));
            assert!(matches!(cluster.wait(0, written), Reply::Written { .. }));
            assert!(matches!(lookup(&mut cluster, 1, &name), Reply::Entry(_)), "seed {seed}");
            cluster.break_connection(0);
            assert_eq!(read(&mut cluster, 1, ino), [round; 10], "seed {seed}");
            assert!(matches!(cluster.call(0, Request::Release { ino, handle, flock: None }), Reply::Done));
        }
        assert_eq!(cluster.figures().memberships_lost, 0, "seed {seed}");
    }
}

/// Goal: content that a store will not take for longer than a lease is waited for by who wants it, and not lost.
#[test]
fn a_store_that_stands_still_for_three_leases_costs_time_alone() {
    for seed in 0..20 {
        let mut cluster = cluster(seed);
        let ino = with_content_to_store(&mut cluster);
        let begun = cluster.clock().now;
        cluster.stop_store(0, Micros(30_000_000));
        let first = Request::Read { ino, offset: 0, len: 100, noatime: false, direct: false };
        match cluster.call(1, first) {
            Reply::ReadJob(job) => assert_eq!(job.parts.len(), 1, "seed {seed}: from where it was stored"),
            other => panic!("seed {seed}: read answered {other:?}"),
        }
        assert!(cluster.clock().now.since(begun) >= Micros(30_000_000), "seed {seed}: it was not stored");
        let figures = cluster.figures();
        assert_eq!(figures.memberships_lost, 0, "seed {seed}: {figures:?}");
    }
}

/// Goal: a store that never answers holds nobody else up for ever.
#[test]
fn a_store_that_stands_still_is_not_waited_for_without_end() {
    for seed in 0..5 {
        let mut cluster = cluster(seed);
        let ino = with_content_to_store(&mut cluster);
        let begun = cluster.clock().now;
        cluster.stop_store(0, Micros(300_000_000));
        let _ = cluster.call(1, Request::Read { ino, offset: 0, len: 100, noatime: false, direct: false });
        let waited = cluster.clock().now.since(begun);
        assert!((60_000_000..75_000_000).contains(&waited.0), "seed {seed}: {waited}");
    }
}
