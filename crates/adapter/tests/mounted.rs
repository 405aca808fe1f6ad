//! What only a kernel can show. Goal: the facts about it that the translation rests on are facts, and requests
//! get from the kernel to the core, wait, and are answered or interrupted. Method: small mounts of a scripted
//! file system, and of a core that is a member of nothing, so that every request waits.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adapter::{Config, Driver, Drops, Hooks, Invalidator, KernelCache, PendingTable, Server, Task};
use chunk::{MemStore, SegmentStore};
use fuse::mount::{Mount, MountFlags, MountMethod, MountOptions, Unmount};
use fuse::{Errno, Forget, Handler, OpenReplyFlags, Opened, Operation, Reply, Request, Session};
use meta::{Body, Content, FileKind, Inode, InodeAttr, Xattrs};
use obs::{FuseKind, Metrics};
use parking_lot::Mutex;
use types::{BatchSeq, Epoch, Ino, LockMode, Micros, NodeId, ResourceId, Timespec};
use vfs::{Clock, Core, Output};
use wire::{FromMaster, Grant, GrantData, Listing, ToMaster};

/// A mount that goes with this value, whatever became of its server.
struct Mounted {
    mount: Mount,
    directory: PathBuf,
    server: Option<JoinHandle<()>>,
}

/// Mounts what `handler` makes of the session; `None`, with a line that says so, where that cannot be done.
fn mount<H: Handler + 'static>(handler: impl FnOnce(&Session) -> H) -> Option<Mounted> {
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: there is no /dev/fuse on this machine");
        return None;
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("adapter-test-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let options = MountOptions {
        fsname: "adapter".into(),
        subtype: "test".to_owned(),
        flags: MountFlags::NODEV | MountFlags::NOATIME,
        method: MountMethod::Auto,
        ..MountOptions::default()
    };
    let (mount, device) = match fuse::mount::mount(&directory, &options) {
        Ok(mounted) => mounted,
        Err(error) => {
            println!("SKIPPED: {error}");
            return None;
        }
    };
    let mut session =
        Session::start(device, &adapter::session_config(true, true, fuse::RingUse::Off)).unwrap();
    let handler = handler(&session);
    let server = std::thread::spawn(move || _ = session.run(&handler).unwrap());
    Some(Mounted { mount, directory, server: Some(server) })
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // In this order: once it is unmounted, its number may be another test's mount.
        _ = self.mount.abort();
        _ = self.mount.unmount(Unmount::Lazy);
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
        _ = std::fs::remove_dir(&self.directory);
    }
}

const LONG: Duration = Duration::from_secs(20);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One directory with one file "f", which another node makes just before this one can.
#[derive(Default)]
struct Script {
    seen: Mutex<Vec<String>>,
    exists: AtomicBool,
}

impl Script {
    fn attr(ino: u64) -> fuse::Attr {
        let mode = if ino == fuse::ROOT_ID { 0o040_777 } else { 0o100_666 };
        fuse::Attr { ino, mode, nlink: 1, size: 10 * (ino - 1), blksize: 4096, ..fuse::Attr::default() }
    }

    fn note(&self, what: &str) {
        self.seen.lock().push(what.to_owned());
    }

    fn seen_since(&self, first: &str) -> Vec<String> {
        let seen = self.seen.lock();
        let start = seen.iter().position(|what| what == first).expect("it was asked");
        seen[start..].to_vec()
    }
}

#[derive(Clone)]
struct Scripted(Arc<Script>);

impl Handler for Scripted {
    fn handle(&self, request: Request<'_>, reply: Reply) {
        let script = &*self.0;
        let ino = request.header.nodeid;
        match request.operation().unwrap() {
            Operation::Lookup { name } if name == "f" && script.exists.load(Ordering::Relaxed) => {
                script.note("lookup");
                reply.entry(&fuse::Entry { nodeid: 2, attr: Script::attr(2), ..fuse::Entry::default() });
            }
            Operation::Lookup { .. } => _ = reply.error(Errno::NOENT),
            Operation::Getattr { .. } => _ = reply.attr(&Script::attr(ino), Duration::ZERO),
            Operation::Create { .. } => {
                script.note("create");
                script.exists.store(true, Ordering::Relaxed);
                reply.error(Errno::STALE);
            }
            Operation::Open { flags, .. } => {
                script.note("open");
                let is_append = flags & O_APPEND != 0;
                let direct = if is_append { OpenReplyFlags::DIRECT_IO } else { OpenReplyFlags::EMPTY };
                let flags = OpenReplyFlags::KEEP_CACHE | direct;
                reply.opened(Opened { fh: 4, flags, backing_id: 0 });
            }
            Operation::Setattr(setattr) => {
                script.note(&format!("setattr size {:?}", setattr.size));
                let attr = fuse::Attr { size: setattr.size.unwrap_or(10), ..Script::attr(ino) };
                reply.attr(&attr, Duration::ZERO);
            }
            Operation::Write { data, open_flags, .. } => {
                let is_sync = open_flags & O_DSYNC != 0;
                script.note(if is_sync { "write sync" } else { "write" });
                reply.written(data.len() as u32);
            }
            Operation::Fsync { .. } => {
                script.note("fsync");
                reply.ok();
            }
            Operation::Flush { .. } | Operation::Release { .. } => _ = reply.ok(),
            _ => _ = reply.error(Errno::NOSYS),
        }
    }

    fn interrupt(&self, _: u64) {}

    fn forget(&self, _: &[Forget]) {}

    fn destroy(&self) {}
}

const O_APPEND: u32 = 0o2000;
const O_DSYNC: u32 = 0o10000;
const O_SYNC: i32 = 0o4_010_000;

/// If this fails, a CREATE that lost a race fails open(2) with ESTALE, or opens a file without a check.
#[test]
fn kernel_walks_again_checks_and_truncates_after_a_stale_create() {
    let script = Arc::new(Script::default());
    let Some(mounted) = mount(|_| Scripted(script.clone())) else { return };
    drop(File::create(mounted.directory.join("f")).unwrap());
    assert_eq!(script.seen_since("create"), ["create", "lookup", "open", "setattr size Some(0)"]);
}

/// If the first half fails, appends under O_SYNC are made durable twice; if the second does, never.
#[test]
fn kernel_sends_an_fsync_after_cached_synchronous_writes_only() {
    for (is_append, expected) in [(true, &["write sync"][..]), (false, &["write sync", "fsync"][..])] {
        let script = Arc::new(Script::default());
        script.exists.store(true, Ordering::Relaxed);
        let Some(mounted) = mount(|_| Scripted(script.clone())) else { return };
        let mut options = OpenOptions::new();
        options.write(true).append(is_append).custom_flags(O_SYNC);
        options.open(mounted.directory.join("f")).unwrap().write_all(b"bytes").unwrap();
        assert_eq!(script.seen_since("write sync"), expected);
    }
}

/// Bytes of content that a node keeps in memory.
const MEMORY: usize = 128 << 10;

/// A node whose master says what the test has it say; to who asks for anything, that the root is its own.
struct Node {
    core: Mutex<Core>,
    pending: PendingTable,
    invalidator: OnceLock<Invalidator>,
    store: Arc<MemStore>,
    metrics: Arc<Metrics>,
    is_unmounted: AtomicBool,
}

impl Node {
    fn new() -> Self {
        let (store, metrics) = (Arc::new(MemStore::new()), Arc::new(Metrics::new()));
        let config = vfs::Config { dirty_bytes_max: MEMORY, ..vfs::Config::default() };
        let core = Core::new(config, [7; 16], store.clone(), metrics.clone());
        Self {
            core: Mutex::new(core),
            pending: PendingTable::default(),
            invalidator: OnceLock::new(),
            store,
            metrics,
            is_unmounted: AtomicBool::new(false),
        }
    }

    /// Has it join, with numbers for inodes and none for segments.
    fn join(&self) {
        self.with_core(|core, clock| core.hello(clock, 1, 1, String::new(), String::new()));
        self.hear(FromMaster::Welcome {
            node: NodeId(1),
            epoch: Epoch(1),
            lease_us: 1_000_000_000,
            token_share: 1_000,
            cookie_key: [9; 16].into(),
            batch_applied: BatchSeq(0),
            reassert: false,
            limits: 0,
            limited: Vec::new(),
        });
        self.reserve(0);
    }

    fn reserve(&self, segments: u32) {
        let (first_inode, inodes, first_segment) = (Ino(100), 1_000, 1);
        self.hear(FromMaster::Reserved { first_inode, inodes, first_segment, segments });
    }

    fn hear(&self, message: FromMaster) {
        self.with_core(|core, clock| core.handle_message(clock, message));
    }

    fn carry_out(&self, output: Output) {
        match output {
            Output::Reply(id, reply) => adapter::answer(self, id, reply),
            Output::Send(ToMaster::Acquire { request, .. }) => self.hear(root_acquired(request)),
            Output::Send(ToMaster::Batch { seq, .. }) => self.hear(FromMaster::Durable { seq }),
            Output::Gather { job } => {
                self.with_core(|core, clock| while core.gather(clock, job) == vfs::Dealt::InPart {});
            }
            Output::Sync { job, plan } => {
                let outcome = plan.run(&*self.store);
                self.with_core(|core, clock| {
                    let mut dealt = core.synced(clock, job, outcome);
                    while dealt == vfs::Dealt::InPart {
                        dealt = core.log_synced(clock, job);
                    }
                });
            }
            _ => {}
        }
    }

    fn start(self: &Arc<Self>, session: &Session) {
        let [begin, end, for_write] = [(); 3].map(|()| Arc::downgrade(self));
        let hooks = Hooks {
            done: Box::new(|_| ()),
            raised: Box::new(|_| ()),
            is_due: Box::new(|_| true),
            reaches: Box::new(|_| false),
            catch_up: Box::new(|_| true),
            taken: Box::new(|_, _| ()),
            changed: Box::new(|_| None),
            lull: Box::new(|_, _| ()),
            lowered: Box::new(|_| ()),
            unshielded: Box::new(|_| ()),
            drops: Drops {
                begin: Box::new(move |ino, span| {
                    begin.upgrade().map_or(0, |node| node.with_core(|core, _| core.begin_dropping(ino, span)))
                }),
                end: Box::new(move |ino, span, number| {
                    end.upgrade()?.with_core(|core, _| core.end_dropping(ino, span, number))
                }),
                for_write: Box::new(move |ino, span| {
                    if let Some(node) = for_write.upgrade() {
                        node.with_core(|core, _| core.dropped_for_write(ino, span));
                    }
                }),
            },
            abort: Box::new(|| ()),
        };
        let notify = Arc::new(KernelCache::new(session));
        let started = Invalidator::new(Config::default(), notify, self.metrics.clone(), hooks).unwrap();
        assert!(self.invalidator.set(started).is_ok());
    }
}

impl Driver for Node {
    fn with_core<R>(&self, call: impl FnOnce(&mut Core, Clock) -> R) -> R {
        let clock = Clock { now: Micros(1), wall: self.wall() };
        let mut core = self.core.lock();
        let result = call(&mut core, clock);
        let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output()).collect();
        drop(core);
        outputs.into_iter().for_each(|output| self.carry_out(output));
        result
    }

    fn spawn(&self, task: Task) {
        task.run(self);
    }

    fn pending(&self) -> &PendingTable {
        &self.pending
    }

    fn invalidator(&self) -> &Invalidator {
        self.invalidator.get().unwrap()
    }

    /// Without other nodes nothing waits for them.
    fn corrector(&self) -> &Invalidator {
        self.invalidator()
    }

    fn catch_up(&self) -> Option<&Arc<adapter::CatchUp>> {
        None
    }

    fn store(&self) -> &dyn SegmentStore {
        &*self.store
    }

    fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    fn wall(&self) -> Timespec {
        Timespec { secs: 1, nanos: 0 }
    }

    fn unmounted(&self) {
        self.is_unmounted.store(true, Ordering::Relaxed);
    }
}

/// The root, empty, to do with it as one likes.
fn root_acquired(request: u64) -> FromMaster {
    let time = Timespec::default();
    let attr = InodeAttr {
        kind: FileKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        tree: 0,
        nlink: 2,
        rdev: 0,
        generation: 1,
        parent: Ino::ROOT,
        btime: time,
        ctime: time,
        xattrs: Xattrs::NONE,
    };
    let content = Content { size: 0, mtime: time, atime: time, ctime: time, body: Body::Empty {} };
    let listing = Listing { after: 0, entries: Vec::new(), complete: true };
    let data = GrantData::Directory { inode: Box::new(Inode { attr, content }), listing };
    let grants = vec![Grant { resource: ResourceId::dir(Ino::ROOT), mode: LockMode::Ex, data }];
    FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None }
}

fn mount_node() -> Option<(Arc<Node>, Mounted)> {
    let node = Arc::new(Node::new());
    let served = node.clone();
    let mounted = mount(move |session| {
        served.start(session);
        Server::new(served)
    })?;
    Some((node, mounted))
}

#[test]
fn a_process_whose_request_waits_can_be_killed() {
    let Some((node, mounted)) = mount_node() else { return };
    let mut child = Command::new("stat").arg(&mounted.directory).stdout(Stdio::null()).spawn().unwrap();
    wait_until("a request that waits", || node.pending.len() == 1);
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    wait_until("the answer", || node.pending.is_empty());
    assert_eq!(node.metrics.fuse_requests.at(FuseKind::Interrupt).get(), 1);
}

/// A signal that does not kill disturbs no request but one that waits for a lock: its program expects no EINTR.
#[test]
fn a_process_that_is_stopped_and_goes_on_still_gets_its_answer() {
    let Some((node, mounted)) = mount_node() else { return };
    let mut stat = Command::new("stat");
    stat.arg(&mounted.directory).env("LC_ALL", "C").stdout(Stdio::null()).stderr(Stdio::piped());
    let child = stat.spawn().unwrap();
    wait_until("a request that waits", || node.pending.len() == 1);
    for signal in ["-STOP", "-CONT"] {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        wait_until("the interrupt", || node.metrics.fuse_requests.at(FuseKind::Interrupt).get() == 1);
    }
    assert_eq!(node.pending.len(), 1, "it was answered");
    node.with_core(|core, clock| core.lost(clock, "it is a test".to_owned()));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Input/output error"), "{said}");
}

/// Goal: who was disturbed by a signal that kills nobody can still be killed, although the kernel tells of the first signal alone. Method: a
/// process that waits is stopped and goes on, waits on, and is killed.
#[test]
fn a_process_that_was_disturbed_before_can_be_killed() {
    let Some((node, mounted)) = mount_node() else { return };
    let mut child = Command::new("stat").arg(&mounted.directory).stdout(Stdio::null()).spawn().unwrap();
    wait_until("a request that waits", || node.pending.len() == 1);
    for signal in ["-STOP", "-CONT"] {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        wait_until("the interrupt", || node.metrics.fuse_requests.at(FuseKind::Interrupt).get() == 1);
    }
    // It is looked at in vain for a while.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(node.pending.len(), 1, "it was answered");
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    wait_until("the answer", || node.pending.is_empty());
    assert_eq!(node.metrics.fuse_requests.at(FuseKind::Interrupt).get(), 1);
}

/// Which of the two the kernel sends depends on what the program's library asks for.
fn stats_answered(node: &Node) -> u64 {
    let duration = &node.metrics.fuse_duration;
    duration.at(FuseKind::Getattr).count() + duration.at(FuseKind::Statx).count()
}

#[test]
fn requests_that_wait_are_answered_when_the_core_has_answers() {
    let Some((node, mounted)) = mount_node() else { return };
    let path = mounted.directory.clone();
    let asker = std::thread::spawn(move || std::fs::metadata(path));
    wait_until("a request that waits", || node.pending.len() == 1);
    assert_eq!(stats_answered(&node), 0);
    node.with_core(|core, clock| core.lost(clock, "it is a test".to_owned()));
    let error = asker.join().unwrap().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    assert!(node.pending.is_empty());
    wait_until("the record of it", || stats_answered(&node) == 1);
    // And at once from now on.
    assert_eq!(std::fs::metadata(&mounted.directory).unwrap_err().raw_os_error(), Some(5));
}

/// Goal: an answer took as long as its caller waited for it, not as long as he then had other things to do, which he does first where both are on one CPU.
/// Method: a caller who computes for a while after each answer; each is given at once.
#[test]
fn what_a_caller_does_next_is_no_part_of_an_answer() {
    let Some((node, mounted)) = mount_node() else { return };
    node.with_core(|core, clock| core.lost(clock, "it is a test".to_owned()));
    for _ in 0..1000 {
        std::fs::metadata(&mounted.directory).unwrap_err();
        let until = Instant::now() + COMPUTES;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
    wait_until("the record of the last", || stats_answered(&node) == 1000);
    let kinds = [FuseKind::Getattr, FuseKind::Statx].map(|kind| node.metrics.fuse_duration.at(kind));
    let p50 = kinds.iter().max_by_key(|of| of.count()).map(|of| Duration::from_micros(of.p50())).unwrap();
    assert!(p50 < COMPUTES / 2, "{p50:?}");
}

/// Less than what ends a burst of requests.
const COMPUTES: Duration = Duration::from_micros(200);

#[test]
fn nothing_waits_any_more_when_the_mount_is_gone() {
    let Some((node, mounted)) = mount_node() else { return };
    let path = mounted.directory.clone();
    let asker = std::thread::spawn(move || std::fs::metadata(path));
    wait_until("a request that waits", || node.pending.len() == 1);
    drop(mounted);
    assert!(asker.join().unwrap().is_err());
    assert!(node.pending.is_empty());
    assert!(node.is_unmounted.load(Ordering::Relaxed));
}

/// Goal: who has written a page reads what he wrote, though a READ brought the page as it was while the write waited. Method: a write that
/// waits for memory, which others need a segment for; its pages go meanwhile, and one is read; the writer reads as soon as his write has
/// returned. The last page, which the write has locked, is in the way of whatever waits for it.
#[test]
fn a_page_that_was_read_while_its_write_waited_shows_what_was_written() {
    const PAGE: u64 = 4096;
    const FIRST: u64 = 64;
    for page in FIRST..FIRST + 8 {
        let Some((node, mounted)) = mount_node() else { return };
        node.join();
        let path = mounted.directory.join("f");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; MEMORY - 4096], 0).unwrap();
        let ino = Ino(file.metadata().unwrap().ino());
        let file = Arc::new(file);
        let writing = file.clone();
        let writer = std::thread::spawn(move || {
            // In memory: the kernel ends a WRITE where it would have to wait for what is written.
            writing.write_all_at(&vec![7; 20 * PAGE as usize + 100], FIRST * PAGE).unwrap();
            let mut byte = [0];
            writing.read_exact_at(&mut byte, page * PAGE).unwrap();
            byte
        });
        wait_until("a write that waits", || node.pending.len() == 1);
        let (gone, is_gone) = std::sync::mpsc::channel();
        let then = Box::new(move || _ = gone.send(()));
        node.corrector().range(ino, FIRST * PAGE, 20 * PAGE as u32, Some(then));
        is_gone.recv_timeout(LONG).expect("these pages are not locked");
        let mut byte = [9];
        file.read_exact_at(&mut byte, page * PAGE).unwrap();
        assert_eq!(byte, [0], "it is written already");
        node.reserve(8);
        assert_eq!(writer.join().unwrap(), [7], "page {page}");
    }
}

/// A server to whom WRITEs come late: when they are let go.
struct LateWrites {
    server: Arc<Server<Node>>,
    late: Arc<Late>,
}

#[derive(Default)]
struct Late {
    is_held_up: AtomicBool,
    writes: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Handler for LateWrites {
    fn handle(&self, request: Request<'_>, reply: Reply) {
        if !self.late.is_held_up.load(Ordering::Relaxed)
            || !matches!(request.operation(), Ok(Operation::Write { .. }))
        {
            return self.server.handle(request, reply);
        }
        let (server, header) = (self.server.clone(), *request.header);
        let (arg, payload) = (request.arg.to_vec(), request.payload.to_vec());
        self.late.writes.lock().push(Box::new(move || {
            server.handle(Request { header: &header, arg: &arg, payload: &payload }, reply);
        }));
    }

    fn interrupt(&self, unique: u64) {
        self.server.interrupt(unique);
    }

    fn forget(&self, forgets: &[Forget]) {
        self.server.forget(forgets);
    }

    fn destroy(&self) {
        self.server.destroy();
    }
}

/// Goal: the same for a READ that comes before the WRITE whose pages the kernel has filled; and the next write finds nothing to take back.
/// Method: a WRITE that is held up on its way, while its page is taken back and read again.
#[test]
fn a_page_that_was_read_while_its_write_was_on_its_way_shows_what_was_written() {
    let node = Arc::new(Node::new());
    let late = Arc::new(Late::default());
    let mounted = mount(|session| {
        node.start(session);
        LateWrites { server: Arc::new(Server::new(node.clone())), late: late.clone() }
    });
    let Some(mounted) = mounted else { return };
    node.join();
    let path = mounted.directory.join("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all_at(&[1; 2 * 4096], 0).unwrap();
    let ino = Ino(file.metadata().unwrap().ino());
    let file = Arc::new(file);
    let read = |offset| {
        let mut byte = [9];
        file.read_exact_at(&mut byte, offset).unwrap();
        byte
    };
    assert_eq!(read(0), [1]);

    late.is_held_up.store(true, Ordering::Relaxed);
    let writing = file.clone();
    let writer = std::thread::spawn(move || {
        writing.write_all_at(&[7; 100], 50).unwrap();
        let mut byte = [0];
        writing.read_exact_at(&mut byte, 60).unwrap();
        byte
    });
    wait_until("a write on its way", || late.writes.lock().len() == 1);
    let (gone, is_gone) = std::sync::mpsc::channel();
    node.corrector().range(ino, 0, 4096, Some(Box::new(move || _ = gone.send(()))));
    is_gone.recv_timeout(LONG).expect("the page is not locked");
    assert_eq!(read(60), [1], "it is written already");
    late.is_held_up.store(false, Ordering::Relaxed);
    let write = late.writes.lock().pop().unwrap();
    write();
    assert_eq!(writer.join().unwrap(), [7]);

    let taken_back = || node.metrics.invalidations.at(obs::InvalidationKind::InodePages).get();
    let before = taken_back();
    file.write_all_at(&[8; 100], 50).unwrap();
    assert_eq!(read(60), [8]);
    assert_eq!(taken_back(), before, "this write was not overtaken");
}
