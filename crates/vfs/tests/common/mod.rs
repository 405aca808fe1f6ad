//! What a master says to a core that is alone with a test.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;

use chunk::{MemStore, SyncOutcome};
use meta::{Body, Content, FileKind, Inode, InodeAttr, Xattrs};
use obs::Metrics;
use types::{BatchSeq, Epoch, Ino, LockMode, Micros, NodeId, ResourceId, Timespec};
use vfs::{Clock, Config, Core, Dealt, MakeSpec, OpenMode, Request, RequestId, Taken};
use wire::{FromMaster, Grant, GrantData, Listing};

pub const CLOCK: Clock = Clock { now: Micros(1_000_000), wall: Timespec { secs: 0, nanos: 0 } };

/// All of a flush is captured.
pub fn gather(core: &mut Core, clock: Clock, job: u64) {
    while core.gather(clock, job) == Dealt::InPart {}
}

/// A sync has ended: all that it made durable is logged.
pub fn end_sync(core: &mut Core, clock: Clock, job: u64, outcome: SyncOutcome) {
    let mut dealt = core.synced(clock, job, outcome);
    while dealt == Dealt::InPart {
        dealt = core.log_synced(clock, job);
    }
}

/// A core that has joined.
pub fn member() -> Core {
    member_over(&Arc::new(MemStore::new()))
}

/// A core that has joined, over this store.
pub fn member_over(store: &Arc<MemStore>) -> Core {
    joined(store, &Arc::new(Metrics::new()))
}

/// A core that has joined and counts here.
pub fn member_counted(metrics: &Arc<Metrics>) -> Core {
    joined(&Arc::new(MemStore::new()), metrics)
}

fn joined(store: &Arc<MemStore>, metrics: &Arc<Metrics>) -> Core {
    let mut core = Core::new(Config::default(), [7; 16], store.clone(), Arc::clone(metrics));
    core.hello(CLOCK, 1, 1, String::new(), String::new());
    core.handle_message(CLOCK, welcome(1_000_000_000));
    core.handle_message(CLOCK, reserved());
    core
}

/// A core that has joined and waits, with request 1, for the root directory.
pub fn looking(store: &Arc<MemStore>) -> Core {
    let mut core = member_over(store);
    let look = Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() };
    assert!(core.submit(CLOCK, RequestId(1), look).is_none());
    core
}

/// To a node that joins.
pub fn welcome(lease_us: u64) -> FromMaster {
    FromMaster::Welcome {
        node: NodeId(1),
        epoch: Epoch(1),
        lease_us,
        token_share: 1_000_000,
        cookie_key: [9; 16].into(),
        batch_applied: BatchSeq(0),
        reassert: false,
        limits: 0,
        limited: Vec::new(),
    }
}

/// The master dies, and another welcomes the node.
pub fn change_master(core: &mut Core) {
    core.link_down(CLOCK);
    core.hello(CLOCK, 1, 1, String::new(), String::new());
    core.handle_message(CLOCK, welcome_back());
}

/// From another master, to a node that comes back.
pub fn welcome_back() -> FromMaster {
    let mut welcome = welcome(1_000_000_000);
    if let FromMaster::Welcome { epoch, reassert, .. } = &mut welcome {
        (*epoch, *reassert) = (Epoch(2), true);
    }
    welcome
}

/// Numbers for inodes and segments, more than a test needs.
pub fn reserved() -> FromMaster {
    let (first_inode, first_segment) = (Ino(100), 1);
    FromMaster::Reserved { first_inode, inodes: 60_000, first_segment, segments: 64 }
}

/// A regular file.
pub fn file() -> MakeSpec {
    MakeSpec { kind: FileKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() }
}

/// Makes a file in the root and opens it for writing, as open(2) with O_CREAT and O_EXCL does.
pub fn create(name: &str) -> Request {
    let open = OpenMode { write: true, ..OpenMode::default() };
    Request::Create {
        parent: Ino::ROOT,
        name: name.as_bytes().into(),
        spec: file(),
        open,
        taken: Taken::Refuse,
    }
}

/// The names' half of an inode of root's.
pub fn attr(kind: FileKind) -> InodeAttr {
    let time = Timespec::default();
    let (mode, nlink) = if kind == FileKind::Directory { (0o755, 2) } else { (0o644, 1) };
    InodeAttr {
        kind,
        mode,
        uid: 0,
        gid: 0,
        tree: 0,
        nlink,
        rdev: 0,
        generation: 1,
        parent: Ino::ROOT,
        btime: time,
        ctime: time,
        xattrs: Xattrs::NONE,
    }
}

/// Content of which nothing is stored.
pub fn content(size: u64) -> Content {
    let time = Timespec::default();
    Content { size, mtime: time, atime: time, ctime: time, body: Body::Empty {} }
}

/// EX on the root directory, which is empty.
pub fn root_grant() -> Grant {
    let inode = Box::new(Inode { attr: attr(FileKind::Directory), content: content(0) });
    let listing = Listing { after: 0, entries: Vec::new(), complete: true };
    let data = GrantData::Directory { inode, listing };
    Grant { resource: ResourceId::dir(Ino::ROOT), mode: LockMode::Ex, data }
}

/// The answer to an acquire of the root directory.
pub fn root_acquired(request: u64) -> FromMaster {
    let grants = vec![root_grant()];
    FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None }
}
