//! Content that finds no room: the revoke goes on, what was stored is kept, who wrote the rest is told.
//!
//! A core alone; the test plays its master and its disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::{Action, Fault, MemStore, SegmentStore, SyncPlan};
use common::{reserved, root_acquired, welcome};
use meta::ops::AttrSet;
use meta::{Body, Change, Content, FileKind, FsError};
use obs::Metrics;
use types::{BatchSeq, Ino, LockMode, Micros, ResourceId, Timespec};
use vfs::{
    Clock, Config, Core, Dealt, HandleId, MakeSpec, Output, Reply, Request, RequestId, Via, WriteData,
    WriteNow,
};
use wire::{FromMaster, LockOwner, ToMaster};

const VOLUME: [u8; 16] = [7; 16];
const KIB: usize = 1 << 10;

struct Rig {
    core: Core,
    store: MemStore,
    metrics: Arc<Metrics>,
    now: Micros,
    /// What the node said, batches and releases.
    said: Vec<ToMaster>,
    replies: Vec<(RequestId, Reply)>,
    next: u64,
    /// Syncs that are kept from running, while there is a list.
    held: Option<Vec<(u64, SyncPlan)>>,
    /// Flushes whose files are not captured yet, while there is a list.
    gathers: Option<Vec<u64>>,
    /// Whether the master says nothing of what is durable.
    is_silent: bool,
    has_left: bool,
}

impl Rig {
    /// A member that holds the root directory, which is empty, in EX.
    fn new() -> Self {
        Self::with_capacity(u64::MAX)
    }

    fn with_capacity(bytes: u64) -> Self {
        Self::with(bytes, Config::default())
    }

    fn with(bytes: u64, config: Config) -> Self {
        let (store, metrics) = (MemStore::new(), Arc::new(Metrics::new()));
        store.set_capacity(bytes);
        let core = Core::new(config, VOLUME, Arc::new(store.clone()), Arc::clone(&metrics));
        let (said, replies) = (Vec::new(), Vec::new());
        let now = Micros(1_000_000);
        let mut rig = Self {
            core,
            store,
            metrics,
            now,
            said,
            replies,
            next: 1,
            held: None,
            gathers: None,
            is_silent: false,
            has_left: false,
        };
        rig.core.hello(rig.clock(), 1, 1, String::new(), String::new());
        rig.hear(welcome(1_000_000_000));
        rig.hear(reserved());
        let Reply::NoEntry(_) = rig.ask(Request::Lookup { parent: Ino::ROOT, name: b"none"[..].into() })
        else {
            panic!("the root is empty")
        };
        rig
    }

    fn clock(&self) -> Clock {
        Clock { now: self.now, wall: Timespec::default() }
    }

    fn hear(&mut self, message: FromMaster) {
        self.core.handle_message(self.clock(), message);
        self.run();
    }

    /// Carries out what the core orders, as a driver, a kernel, a disk and a master that grants everything.
    fn run(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Reply(id, reply) => self.replies.push((id, reply)),
                Output::Invalidate { job, .. } => self.core.invalidated(self.clock(), job),
                Output::Gather { job } if self.gathers.is_some() => {
                    self.gathers.get_or_insert_default().push(job)
                }
                Output::Gather { job } => {
                    let clock = self.clock();
                    common::gather(&mut self.core, clock, job);
                }
                Output::Sync { job, plan } if self.held.is_some() => {
                    self.held.get_or_insert_default().push((job, plan));
                }
                Output::Sync { job, plan } => {
                    let outcome = plan.run(&self.store);
                    let clock = self.clock();
                    common::end_sync(&mut self.core, clock, job, outcome);
                }
                Output::TellCloses { seq, .. } => self.core.closes_told(self.clock(), seq),
                Output::CollectStores => self.core.stores_collected(self.clock()),
                Output::Send(ToMaster::Acquire { request, .. }) => {
                    self.core.handle_message(self.clock(), root_acquired(request));
                }
                Output::Send(message) => {
                    if let ToMaster::Batch { seq, .. } = &message
                        && !self.is_silent
                    {
                        self.core.handle_message(self.clock(), FromMaster::Durable { seq: *seq });
                    }
                    self.said.push(message);
                }
                Output::Left => self.has_left = true,
                Output::Rejoin | Output::Lost(_) => panic!("the membership is lost"),
            }
        }
    }

    fn ask(&mut self, request: Request) -> Reply {
        let id = self.submit(request);
        self.reply(id).expect("an answer")
    }

    fn submit(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        let reply = self.core.submit(self.clock(), id, request);
        self.replies.extend(reply.map(|reply| (id, reply)));
        self.run();
        id
    }

    fn reply(&mut self, id: RequestId) -> Option<Reply> {
        let at = self.replies.iter().position(|(of, _)| *of == id)?;
        Some(self.replies.remove(at).1)
    }

    /// Runs the first of the syncs that were held.
    fn sync_one(&mut self) {
        let (job, plan) = self.held.as_mut().expect("syncs are held").remove(0);
        let outcome = plan.run(&self.store);
        let clock = self.clock();
        common::end_sync(&mut self.core, clock, job, outcome);
        self.run();
    }

    /// As the master was told last.
    fn logged_size(&self, ino: Ino) -> u64 {
        let changes = self.said.iter().filter_map(|message| match message {
            ToMaster::Batch { changes, .. } => Some(changes.iter()),
            _ => None,
        });
        let sizes = changes.flatten().filter_map(|change| match change {
            Change::PutEntry { entry, .. } if entry.ino == ino => {
                entry.covered().map(|inode| inode.content.size)
            }
            _ => None,
        });
        sizes.last().unwrap_or(0)
    }

    fn size(&mut self, ino: Ino) -> u64 {
        let Reply::Attr(attr, _) = self.ask(Request::GetAttr { ino }) else { panic!("no attributes") };
        attr.size
    }

    fn create(&mut self, name: &str) -> (Ino, HandleId) {
        let reply = self.ask(common::create(name));
        let Reply::Created(entry, opened) = reply else { panic!("{reply:?}") };
        (entry.attr.ino, opened.handle)
    }

    fn write(&mut self, ino: Ino, offset: u64, len: usize) -> Result<(), FsError> {
        let data = WriteData(vec![7; len].into());
        match self.ask(Request::Write {
            ino,
            offset,
            data,
            append: false,
            direct: false,
            kill_privileges: None,
        }) {
            Reply::Written { .. } => Ok(()),
            Reply::Error(error) => Err(error),
            reply => panic!("{reply:?}"),
        }
    }

    fn fsync(&mut self, ino: Ino) -> Result<(), FsError> {
        done(self.ask(Request::Fsync { ino }))
    }

    fn close(&mut self, ino: Ino) -> Result<(), FsError> {
        done(self.ask(Request::Flush { ino, owner: LockOwner(1) }))
    }

    /// Asks a right back and returns whether that was answered at once.
    fn revoke(&mut self, resource: ResourceId, to: LockMode) -> bool {
        self.now = self.now + Micros(1_000_000);
        self.hear(FromMaster::Revoke { list: vec![(resource, to)], speculative: false });
        let is_given = |(given, mode): &(ResourceId, LockMode)| *given == resource && to.permits(*mode);
        let mut said = self.said.iter();
        said.any(|m| matches!(m, ToMaster::Release { list, .. } if list.iter().any(is_given)))
    }

    /// Asks everything back that covers the content of `inos`, which are open for writing.
    fn revoke_content(&mut self, inos: &[Ino], to: LockMode) -> bool {
        let root = self.revoke(ResourceId::dir(Ino::ROOT), to);
        inos.iter().fold(root, |all, ino| self.revoke(ResourceId::file(*ino), to) && all)
    }

    /// The content of `ino` as last told to the master.
    fn logged(&self, ino: Ino) -> Option<Content> {
        let changes = self.said.iter().flat_map(|message| match message {
            ToMaster::Batch { changes, .. } => &changes[..],
            _ => &[],
        });
        let content = changes.filter_map(|change| match change {
            Change::PutEntry { entry, .. } if entry.ino == ino => {
                entry.covered().map(|inode| inode.content.clone())
            }
            Change::PutContent { ino: of, content } if *of == ino => Some(content.clone()),
            _ => None,
        });
        content.last()
    }

    /// The first bytes of `ino` as last told to the master.
    fn logged_data(&self, ino: Ino, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        match self.logged(ino).unwrap().body {
            Body::Inline { data } => bytes.copy_from_slice(&data[..len]),
            Body::Extents { map } => {
                for extent in map.extents_in(0..len as u64) {
                    let range = extent.file_offset()..extent.end().min(len as u64);
                    let part = &mut bytes[range.start as usize..range.end as usize];
                    chunk::read_extent(&self.store, ino, extent, range, part).unwrap();
                }
            }
            Body::Empty {} | Body::Target { .. } | Body::Paged { .. } => {}
        }
        bytes
    }
}

fn done(reply: Reply) -> Result<(), FsError> {
    match reply {
        Reply::Done => Ok(()),
        Reply::Error(error) => Err(error),
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn a_revoke_on_a_full_disk_loses_what_finds_no_room_and_nothing_else() {
    for fault in [Fault::Full, Fault::Io] {
        for to in [LockMode::Pr, LockMode::Nl] {
            let mut rig = Rig::new();
            let (whole, _) = rig.create("whole");
            let (torn, handle) = rig.create("torn");
            rig.write(whole, 0, 60 * KIB).unwrap();
            rig.write(torn, 0, 60 * KIB).unwrap();
            rig.write(torn, 200 * KIB as u64, 60 * KIB).unwrap();
            // Files are stored in the order of their numbers: of the second one the second piece finds no room.
            rig.store.fail(Action::Write, 2, fault);
            assert!(rig.revoke_content(&[whole, torn], to), "the revokes are answered");
            assert_eq!(rig.logged(whole).unwrap().body.stored_bytes(), 60 * KIB as u64);
            let content = rig.logged(torn).unwrap();
            assert_eq!((content.body.stored_bytes(), content.size), (60 * KIB as u64, 260 * KIB as u64));
            assert_eq!(rig.metrics.content_lost_bytes.get(), 60 * KIB as u64);

            let expected = if fault == Fault::Full { FsError::NoSpace } else { FsError::Io };
            assert_eq!(rig.write(torn, 0, 10), Err(expected));
            assert_eq!(rig.fsync(torn), Err(expected));
            assert_eq!(rig.close(torn), Err(expected));
            assert_eq!(rig.close(torn), Err(expected), "and every other descriptor of it");
            assert_eq!(rig.close(whole), Ok(()));
            done(rig.ask(Request::Release { ino: torn, handle, flock: None })).unwrap();
            assert_eq!(rig.close(torn), Ok(()), "until the last of them is closed");
        }
    }
}

#[test]
fn what_finds_no_room_is_kept_as_long_as_nobody_else_wants_it() {
    let mut rig = Rig::new();
    let (ino, _) = rig.create("kept");
    rig.write(ino, 0, 60 * KIB).unwrap();
    rig.store.fail(Action::Write, 0, Fault::Full);
    assert_eq!(rig.fsync(ino), Err(FsError::NoSpace));
    assert_eq!(rig.metrics.content_lost_bytes.get(), 0);
    assert_eq!(rig.fsync(ino), Ok(()), "there is room again");
    assert_eq!(rig.logged(ino).unwrap().body.stored_bytes(), 60 * KIB as u64);
}

/// Goal: what an fsync stored of a small file outlives whatever the store refuses later, also when another node asks for the file. Method: a file in its
/// record; then a write that is refused, one that is accepted and finds no room after that, or a short one that goes to memory; then its content is asked back.
#[test]
fn what_was_logged_of_a_small_file_stays_though_nothing_more_can_be_stored() {
    for (len, capacity, is_taken) in [(200, 0, false), (200, 50, true), (60, 50, true)] {
        let mut rig = Rig::new();
        let (ino, _) = rig.create("small");
        rig.write(ino, 0, 1000).unwrap();
        assert_eq!(rig.fsync(ino), Ok(()));
        rig.store.set_capacity(capacity * KIB as u64);
        let data = vec![9; len * KIB];
        let write =
            WriteNow { ino, offset: 1000, data: &data, via: Via::Cache { append: false }, is_exempt: true };
        let mut accepted = || {};
        let reply = rig.core.write_now(rig.clock(), &write, Some(&mut accepted));
        rig.run();
        assert_eq!(matches!(reply, Some(Reply::Written { .. })), is_taken, "{reply:?}");
        if !is_taken {
            assert_eq!((rig.fsync(ino), rig.close(ino)), (Ok(()), Ok(())), "all that it has is durable");
        }
        assert!(rig.revoke_content(&[ino], LockMode::Nl), "the revoke is answered");
        assert_eq!(rig.metrics.content_lost_bytes.get(), if is_taken { (len * KIB) as u64 } else { 0 });
        assert!(
            rig.logged_data(ino, 1000).iter().all(|byte| *byte == 7),
            "{len} KiB, {capacity} KiB of room"
        );
    }
}

/// Goal: a refusal is told of the bytes that were refused, not of those that come after them. Method: content finds no room; it is cut off, and other bytes
/// are written, which nobody has tried to store yet.
#[test]
fn a_refusal_ends_with_the_bytes_that_were_refused() {
    let mut rig = Rig::new();
    let (ino, _) = rig.create("f");
    rig.write(ino, 0, 60 * KIB).unwrap();
    rig.store.fail(Action::Write, 0, Fault::Full);
    assert_eq!(rig.fsync(ino), Err(FsError::NoSpace));
    assert_eq!(rig.close(ino), Err(FsError::NoSpace));
    let cut = Request::SetAttr { ino, set: AttrSet::default(), size: Some(0) };
    assert!(matches!(rig.ask(cut), Reply::Attr(..)));
    rig.write(ino, 0, 50 * KIB).unwrap();
    assert_eq!(rig.close(ino), Ok(()));
    assert_eq!(rig.fsync(ino), Ok(()));
}

/// Goal: an fsync, or a rename, does not stand for content that its flush could not take in, whatever another flush does meanwhile. Method: older content of the file is being
/// synced; there is room again, and another flush, before that ends.
#[test]
fn older_content_on_its_way_does_not_stand_for_what_finds_no_room() {
    for is_rename in [false, true] {
        let mut rig = Rig::new();
        rig.held = Some(Vec::new());
        let (ino, _) = rig.create("f");
        rig.write(ino, 0, 20 * KIB).unwrap();
        rig.now = rig.now + Micros(2_000_000);
        rig.core.handle_timeout(rig.clock());
        rig.run();
        assert_eq!(rig.held.as_ref().unwrap().len(), 1, "older content is on its way");
        rig.write(ino, 0, 30 * KIB).unwrap();
        rig.store.set_capacity(0);
        let (parent, new_parent) = (Ino::ROOT, Ino::ROOT);
        let (name, new_name) = (b"f"[..].into(), b"g"[..].into());
        let asked = match is_rename {
            true => Request::Rename {
                parent,
                name,
                new_parent,
                new_name,
                mode: meta::ops::RenameMode::Replace,
                bound: None,
                whiteout: None,
            },
            false => Request::Fsync { ino },
        };
        let asked = rig.submit(asked);
        rig.store.set_capacity(u64::MAX);
        rig.now = rig.now + Micros(2_000_000);
        rig.core.handle_timeout(rig.clock());
        rig.run();
        rig.sync_one();
        match rig.reply(asked) {
            Some(Reply::Error(FsError::NoSpace)) => {}
            reply => assert_eq!(rig.logged_size(ino), 30 * KIB as u64, "{reply:?}"),
        }
    }
}

/// Each try costs calls to the store with the core locked, and once each file made them in each round.
#[test]
fn a_full_store_is_tried_once_a_round_and_has_all_when_there_is_room() {
    let mut rig = Rig::new();
    let inos: Vec<Ino> = (0..50).map(|n| rig.create(&format!("f{n}")).0).collect();
    for ino in &inos {
        rig.write(*ino, 0, 60 * KIB).unwrap();
    }
    rig.store.set_capacity(0);
    for round in 1..=3 {
        rig.now = rig.now + Micros(2_000_000);
        rig.core.handle_timeout(rig.clock());
        rig.run();
        assert_eq!(rig.store.losses().failures, round, "one try in round {round}");
    }
    assert_eq!(rig.fsync(inos[7]), Err(FsError::NoSpace), "who waits hears of it");
    assert_eq!(rig.store.losses().failures, 3, "without another try");
    rig.store.set_capacity(u64::MAX);
    assert_eq!(rig.fsync(inos[7]), Ok(()), "at once when room is shown");
    for _ in 0..2 {
        // Stored, then logged.
        rig.now = rig.now + Micros(2_000_000);
        rig.core.handle_timeout(rig.clock());
        rig.run();
    }
    for ino in inos {
        assert_eq!(rig.logged(ino).unwrap().body.stored_bytes(), 60 * KIB as u64);
    }
}

/// A node that leaves a full disk waits for room: it once threw away what found none at the first try.
#[test]
fn leaving_waits_for_room() {
    let mut rig = Rig::new();
    let (ino, _) = rig.create("kept");
    rig.write(ino, 0, 60 * KIB).unwrap();
    rig.store.set_capacity(0);
    rig.core.leave(rig.clock());
    for _ in 0..100 {
        rig.run();
        assert!(!rig.has_left && rig.core.snapshot().lacks_room);
        let due = rig.core.poll_timeout();
        assert!(due > rig.now, "it does not try again without a pause");
        rig.now = due;
        rig.core.handle_timeout(rig.clock());
    }
    rig.store.set_capacity(u64::MAX);
    rig.now = rig.now + Micros(1_000_000);
    rig.core.handle_timeout(rig.clock());
    rig.run();
    assert!(rig.has_left, "there is room again");
    assert_eq!(rig.metrics.content_lost_bytes.get(), 0);
    assert_eq!(rig.logged(ino).unwrap().body.stored_bytes(), 60 * KIB as u64);
}

#[test]
fn who_leaves_without_waiting_for_room_counts_what_is_lost() {
    let mut rig = Rig::new();
    let (whole, _) = rig.create("whole");
    let (lost, _) = rig.create("lost");
    rig.write(whole, 0, 60 * KIB).unwrap();
    assert_eq!(rig.fsync(whole), Ok(()));
    rig.write(lost, 0, 60 * KIB).unwrap();
    rig.store.set_capacity(0);
    rig.core.leave(rig.clock());
    rig.run();
    assert!(!rig.has_left);
    rig.core.leave_rest(rig.clock());
    rig.run();
    assert!(rig.has_left, "in order: with a farewell");
    assert!(rig.said.iter().any(|message| matches!(message, ToMaster::Bye {})));
    assert_eq!(rig.metrics.content_lost_bytes.get(), 60 * KIB as u64);
    assert_eq!(rig.logged(whole).unwrap().body.stored_bytes(), 60 * KIB as u64);
}

#[test]
fn a_failure_that_was_made_good_is_not_reported_later() {
    let mut rig = Rig::new();
    let (ino, _) = rig.create("late");
    rig.write(ino, 0, 60 * KIB).unwrap();
    rig.store.fail(Action::Write, 0, Fault::Full);
    for _ in 0..3 {
        // The commit interval has it stored, once in vain, then with room, and logged with the next batch.
        rig.now = rig.now + Micros(2_000_000);
        rig.core.handle_timeout(rig.clock());
        rig.run();
    }
    assert_eq!(rig.logged(ino).unwrap().body.stored_bytes(), 60 * KIB as u64);
    assert_eq!(rig.fsync(ino), Ok(()));
}

#[test]
fn a_failed_sync_is_told_until_the_file_is_closed_and_does_not_come_back() {
    let mut rig = Rig::new();
    let (ino, handle) = rig.create("unsynced");
    rig.write(ino, 0, 100 * KIB).unwrap();
    rig.store.fail(Action::Sync, 0, Fault::Io);
    assert_eq!(rig.fsync(ino), Err(FsError::Io));
    assert_eq!(rig.metrics.content_lost_bytes.get(), 100 * KIB as u64);
    assert_eq!(rig.write(ino, 0, 10), Err(FsError::Io));
    done(rig.ask(Request::Release { ino, handle, flock: None })).unwrap();
    let Reply::Attr(attr, _) = rig.ask(Request::GetAttr { ino }) else { panic!("no attributes") };
    assert_eq!(attr.size, 0, "the file is as it was last stored");
    assert!(rig.revoke(ResourceId::dir(Ino::ROOT), LockMode::Nl));
    assert_eq!(rig.logged(ino).unwrap().size, 0);
}

/// What was answered is in the metadata, whatever becomes of its segment.
#[test]
fn what_an_fsync_logged_is_not_lost_with_its_segment() {
    let mut rig = Rig::new();
    let (ino, _) = rig.create("logged");
    rig.write(ino, 0, 30 * KIB).unwrap();
    assert_eq!(rig.fsync(ino), Ok(()));
    rig.store.fail(Action::Sync, 0, Fault::Io);
    for _ in 0..2 {
        rig.now = rig.now + Micros(2_000_000);
        rig.core.handle_timeout(rig.clock());
        rig.run();
    }
    assert_eq!(rig.store.losses().failures, 1);
    assert_eq!(rig.metrics.content_lost_bytes.get(), 0);
    assert_eq!(rig.write(ino, 30 * KIB as u64, 10), Ok(()), "in another segment");
    assert_eq!(rig.fsync(ino), Ok(()));
    assert_eq!(rig.logged(ino).unwrap().size, 30 * KIB as u64 + 10);
}

/// As databases do: one process writes and closes a file, another opens it to make it durable.
#[test]
fn what_is_lost_after_the_last_close_is_told_to_the_next_fsync() {
    let mut rig = Rig::new();
    rig.held = Some(Vec::new());
    let (ino, handle) = rig.create("closed");
    rig.write(ino, 0, 200 * KIB).unwrap();
    done(rig.ask(Request::Release { ino, handle, flock: None })).unwrap();
    assert_eq!(rig.size(ino), 200 * KIB as u64);
    rig.now = rig.now + Micros(2_000_000);
    rig.core.handle_timeout(rig.clock());
    rig.run();
    rig.store.fail(Action::Sync, 0, Fault::Io);
    rig.sync_one();
    assert_eq!(rig.metrics.content_lost_bytes.get(), 200 * KIB as u64);
    assert_eq!(rig.size(ino), 0, "the file is as it was last stored");
    rig.held = None;
    rig.write(ino, 0, 10).unwrap();
    assert_eq!(rig.fsync(ino), Err(FsError::Io));
    assert_eq!(rig.fsync(ino), Ok(()), "once");
    assert_eq!(rig.logged(ino).unwrap().size, 10);
}

/// Who writes a new file, closes it and renames it over the old one has lost neither if it cannot be stored.
#[test]
fn what_is_lost_after_the_last_close_is_given_no_name_unsaid() {
    let mut rig = Rig::new();
    rig.held = Some(Vec::new());
    let (ino, handle) = rig.create("new");
    rig.write(ino, 0, 200 * KIB).unwrap();
    done(rig.ask(Request::Release { ino, handle, flock: None })).unwrap();
    rig.now = rig.now + Micros(2_000_000);
    rig.core.handle_timeout(rig.clock());
    rig.run();
    rig.store.fail(Action::Sync, 0, Fault::Io);
    rig.sync_one();
    rig.held = None;
    let rename = || Request::Rename {
        parent: Ino::ROOT,
        name: b"new"[..].into(),
        new_parent: Ino::ROOT,
        new_name: b"cur"[..].into(),
        mode: meta::ops::RenameMode::Replace,
        bound: None,
        whiteout: None,
    };
    assert_eq!(done(rig.ask(rename())), Err(FsError::Io));
    assert_eq!(done(rig.ask(rename())), Ok(()), "once");
    assert_eq!(rig.fsync(ino), Err(FsError::Io), "whoever makes it durable is told too");
    assert_eq!(rig.fsync(ino), Ok(()));
}

/// What finds no room is told to the fsync at once that finds an earlier flush of the file under way, and what a revoke then gives up of it to the next.
#[test]
fn an_fsync_beside_an_earlier_flush_is_told_and_the_next_of_what_a_revoke_gave_up() {
    let mut rig = Rig::new();
    rig.held = Some(Vec::new());
    let (ino, handle) = rig.create("f");
    rig.write(ino, 0, 200 * KIB).unwrap();
    rig.now = rig.now + Micros(2_000_000);
    rig.core.handle_timeout(rig.clock());
    rig.run();
    rig.write(ino, 200 * KIB as u64, 8 * KIB).unwrap();
    rig.store.set_capacity(0);
    done(rig.ask(Request::Release { ino, handle, flock: None })).unwrap();
    assert_eq!([(); 2].map(|()| rig.fsync(ino)), [Err(FsError::NoSpace); 2]);
    rig.revoke_content(&[ino], LockMode::Nl);
    while rig.held.as_ref().is_some_and(|held| !held.is_empty()) {
        rig.sync_one();
    }
    rig.held = None;
    assert_eq!(rig.metrics.content_lost_bytes.get(), 8 * KIB as u64);
    assert_eq!(rig.fsync(ino), Err(FsError::Io));
    assert_eq!(rig.fsync(ino), Ok(()));
}

/// The same if the content is being given back when its sync fails: it is gone before whoever waits is tried again.
#[test]
fn an_fsync_that_waits_is_told_though_the_content_is_given_back() {
    let mut rig = Rig::new();
    rig.held = Some(Vec::new());
    let (ino, handle) = rig.create("f");
    rig.write(ino, 0, 200 * KIB).unwrap();
    done(rig.ask(Request::Release { ino, handle, flock: None })).unwrap();
    rig.now = rig.now + Micros(2_000_000);
    rig.core.handle_timeout(rig.clock());
    rig.run();
    let fsync = rig.submit(Request::Fsync { ino });
    rig.revoke_content(&[ino], LockMode::Nl);
    rig.store.fail(Action::Sync, 0, Fault::Io);
    while rig.held.as_ref().is_some_and(|held| !held.is_empty()) {
        rig.sync_one();
    }
    assert_eq!(rig.metrics.content_lost_bytes.get(), 200 * KIB as u64);
    let reply = rig.reply(fsync);
    assert!(matches!(reply, Some(Reply::Error(FsError::Io))), "{reply:?}");
}

/// Names and the content that was there with them are sent within one interval and the sync of the content.
#[test]
fn content_is_sent_when_it_is_stored_and_not_an_interval_later() {
    let mut rig = Rig::new();
    rig.held = Some(Vec::new());
    let (ino, _) = rig.create("f");
    rig.write(ino, 0, 200 * KIB).unwrap();
    rig.now = rig.now + Micros(2_000_000);
    rig.core.handle_timeout(rig.clock());
    rig.run();
    let before = rig.metrics.batches.get();
    rig.sync_one();
    assert_eq!(rig.logged(ino).unwrap().size, 200 * KIB as u64);
    assert_eq!(rig.metrics.batches.get(), before + 1);
}

#[test]
fn an_fsync_that_waits_is_told_though_the_writer_closes() {
    let mut rig = Rig::new();
    rig.held = Some(Vec::new());
    let (ino, handle) = rig.create("f");
    rig.write(ino, 0, 200 * KIB).unwrap();
    let fsyncs = [(); 2].map(|()| rig.submit(Request::Fsync { ino }));
    done(rig.ask(Request::Release { ino, handle, flock: None })).unwrap();
    rig.store.fail(Action::Sync, 0, Fault::Io);
    while rig.held.as_ref().is_some_and(|held| !held.is_empty()) {
        rig.sync_one();
    }
    for fsync in fsyncs {
        let reply = rig.reply(fsync);
        assert!(matches!(reply, Some(Reply::Error(FsError::Io))), "{reply:?}");
    }
    assert_eq!(rig.size(ino), 0);
}

#[test]
fn what_a_flush_took_of_a_file_that_was_lost_meanwhile_is_not_logged() {
    let mut rig = Rig::new();
    rig.held = Some(Vec::new());
    let (ino, handle) = rig.create("f");
    rig.write(ino, 0, 200 * KIB).unwrap();
    rig.submit(Request::Fsync { ino });
    // Another flush takes what is newer, and the same segment with it.
    rig.write(ino, 0, 150 * KIB).unwrap();
    rig.submit(Request::Fsync { ino });
    rig.store.fail(Action::Sync, 0, Fault::Io);
    rig.sync_one();
    done(rig.ask(Request::Release { ino, handle, flock: None })).unwrap();
    while rig.held.as_ref().is_some_and(|held| !held.is_empty()) {
        rig.sync_one();
    }
    rig.held = None;
    assert!(rig.revoke(ResourceId::dir(Ino::ROOT), LockMode::Nl));
    assert_eq!(rig.logged(ino).unwrap().body.stored_bytes(), 0);
}

#[test]
fn who_writes_does_not_wait_for_what_a_removed_file_had_stored() {
    let mut rig = Rig::new();
    let (slow, _) = rig.create("slow");
    let (gone, handle) = rig.create("gone");
    rig.held = Some(Vec::new());
    rig.write(slow, 0, 2048 * KIB).unwrap();
    rig.submit(Request::Fsync { ino: slow });
    for n in 0..24 {
        rig.write(gone, n << 20, 1024 * KIB).unwrap();
    }
    done(rig.ask(Request::Unlink { parent: Ino::ROOT, name: b"gone"[..].into(), bound: None })).unwrap();
    done(rig.ask(Request::Release { ino: gone, handle, flock: None })).unwrap();
    // The disk is found to be so slow that what is stored already is too much.
    rig.now = rig.now + Micros(100_000_000);
    rig.sync_one();
    rig.held = None;
    let (ino, _) = rig.create("other");
    rig.write(ino, 0, 10).unwrap();
}

#[test]
fn room_in_the_log_is_asked_for_once() {
    let mut rig = Rig::with(u64::MAX, Config { log_bytes_max: 4 * KIB, ..Config::default() });
    rig.is_silent = true;
    let batches = |rig: &Rig| -> Vec<BatchSeq> {
        let seq = |message: &ToMaster| match message {
            ToMaster::Batch { seq, .. } => Some(*seq),
            _ => None,
        };
        rig.said.iter().filter_map(seq).collect()
    };
    let make = |rig: &mut Rig| {
        let (kind, name) = (FileKind::Directory, format!("d{}", rig.next).into_bytes());
        let spec = MakeSpec { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() };
        rig.submit(Request::Make { parent: Ino::ROOT, name: name.into(), spec })
    };
    let mut waiting = Vec::new();
    while waiting.len() < 4 {
        // Now and then a batch, by the time alone.
        rig.now = rig.now + Micros(300_000);
        rig.core.handle_timeout(rig.clock());
        let request = make(&mut rig);
        if rig.reply(request).is_none() {
            waiting.push(request);
        }
    }
    let said = batches(&rig);
    assert!(said.len() > 2, "{said:?}");
    rig.hear(FromMaster::Durable { seq: said[0] });
    assert_eq!(batches(&rig), said, "what is not durable yet is on its way");
    rig.is_silent = false;
    rig.hear(FromMaster::Durable { seq: *said.last().unwrap() });
    for request in waiting {
        assert!(matches!(rig.reply(request), Some(Reply::Entry(_))));
    }
}

#[test]
fn with_little_room_left_nothing_is_promised_of_it() {
    let room = 200 << 20;
    let mut rig = Rig::with_capacity(room);
    let (ino, _) = rig.create("small");
    rig.write(ino, 0, 8 * KIB).unwrap();
    let stored = |rig: &Rig| rig.store.list().unwrap().iter().map(|(_, len)| *len).sum::<u64>();
    assert_eq!(stored(&rig), 0, "there is room: it may wait");
    // Others take the room.
    let mut rig = Rig::with_capacity(16 << 20);
    let (ino, _) = rig.create("small");
    let mut offset = 0;
    let error = loop {
        match rig.write(ino, offset, 8 * KIB) {
            Ok(()) => offset += 8 * KIB as u64,
            Err(error) => break error,
        }
        assert!(stored(&rig) + (2 << 20) >= offset, "{offset} bytes are promised");
    };
    assert_eq!(error, FsError::NoSpace);
    assert!(offset > 8 << 20, "{offset}");
    assert!(rig.revoke_content(&[ino], LockMode::Pr));
    assert_eq!(rig.metrics.content_lost_bytes.get(), 0);
    assert_eq!(rig.logged(ino).unwrap().body.stored_bytes(), offset);
}

#[test]
fn who_tries_again_and_again_on_a_full_disk_uses_nothing_up() {
    let mut rig = Rig::with_capacity(1);
    let mut said = Vec::new();
    for _ in 0..50 {
        rig.now = rig.now + Micros(150_000);
        assert!(matches!(rig.ask(common::create("no")), Reply::Error(FsError::NoSpace)));
        said.extend(rig.said.drain(..).filter(|m| matches!(m, ToMaster::Batch { .. })));
    }
    assert!(said.is_empty(), "{} batches, each of which takes room", said.len());
}

/// Nothing of a small file, which is kept in the record, is lost when a write to it has the file itself flushed for room in
/// memory.
#[test]
fn a_write_that_flushes_its_own_file_keeps_what_was_there() {
    let mut rig = Rig::with(u64::MAX, Config { dirty_bytes_max: 0, ..Config::default() });
    let (ino, _) = rig.create("f");
    rig.write(ino, 599, 1500).unwrap();
    rig.write(ino, 8000, 130_000).unwrap();
    assert_eq!(rig.fsync(ino), Ok(()));
    let data = rig.logged_data(ino, 138_000);
    let expected = [vec![0; 599], vec![7; 1500], vec![0; 8000 - 2099], vec![7; 130_000]].concat();
    assert!(data == expected, "differs from {:?} on", data.iter().zip(&expected).position(|(a, b)| a != b));
}

/// Goal: every fsync hears of content that finds no room, not the first alone, until it is stored. Method: the disk is full for two fsyncs of one
/// write, and has room for the third.
#[test]
fn every_fsync_hears_of_a_full_disk() {
    let mut rig = Rig::new();
    let (ino, _) = rig.create("f");
    rig.write(ino, 0, 100 * KIB).unwrap();
    rig.store.set_capacity(50 * KIB as u64);
    assert_eq!(rig.fsync(ino), Err(FsError::NoSpace));
    assert_eq!(rig.fsync(ino), Err(FsError::NoSpace));
    rig.store.set_capacity(u64::MAX);
    assert_eq!(rig.fsync(ino), Ok(()));
    assert_eq!(rig.logged(ino).unwrap().body.stored_bytes(), 100 * KIB as u64);
}

/// Goal: whoever wants something else after a sync of many files waits for a few of them, and whoever waits for the sync for all. Method: five files, two of
/// which are logged at once; one is removed and one written to meanwhile.
#[test]
fn what_a_sync_made_durable_is_logged_a_few_files_at_a_time() {
    let mut rig = Rig::with(u64::MAX, Config { files_at_once: 2, ..Config::default() });
    rig.held = Some(Vec::new());
    let files: Vec<(Ino, String)> =
        (0..5).map(|n| format!("f{n}")).map(|name| (rig.create(&name).0, name)).collect();
    files.iter().for_each(|(ino, _)| rig.write(*ino, 0, 200 * KIB).unwrap());
    rig.now = rig.now + Micros(2_000_000);
    rig.core.handle_timeout(rig.clock());
    rig.run();
    let (job, plan) = rig.held.as_mut().unwrap().remove(0);
    let waits = rig.submit(Request::Fsync { ino: files[0].0 });
    let mut steps = vec![rig.core.synced(rig.clock(), job, plan.run(&rig.store))];
    rig.run();
    rig.write(files[4].0, 200 * KIB as u64, 10 * KIB).unwrap();
    let removes =
        rig.submit(Request::Unlink { parent: Ino::ROOT, name: files[3].1.as_bytes().into(), bound: None });
    while steps.last() == Some(&Dealt::InPart) {
        assert!(rig.reply(waits).is_none(), "not all is logged");
        steps.push(rig.core.log_synced(rig.clock(), job));
        rig.run();
    }
    assert_eq!(steps, [Dealt::InPart, Dealt::InPart, Dealt::InFull]);
    assert_eq!(rig.core.log_synced(rig.clock(), job), Dealt::InFull, "there is nothing left");
    done(rig.reply(waits).unwrap()).unwrap();
    done(rig.reply(removes).unwrap()).unwrap();
    rig.held = None;
    rig.run();
    rig.fsync(files[4].0).unwrap();
    assert_eq!(rig.size(files[4].0), 210 * KIB as u64);
    let sizes: Vec<_> = files.iter().map(|(ino, _)| rig.logged_size(*ino) / KIB as u64).collect();
    assert_eq!(sizes[..3], [200; 3]);
    assert_eq!(sizes[4], 210);
}

/// Goal: files are captured a few at a time, and of each the newest content is logged last, whoever comes between. Method: five files, of which two are captured at once; then one of these
/// is written to and synced, for which the rest is captured at once, or another one is, for which it is not.
#[test]
fn a_flush_captures_a_few_files_at_a_time() {
    for (synced, is_waited_for) in [(0, true), (4, false)] {
        let mut rig = Rig::with(u64::MAX, Config { files_at_once: 2, ..Config::default() });
        (rig.held, rig.gathers) = (Some(Vec::new()), Some(Vec::new()));
        let files: Vec<Ino> = (0..5).map(|n| rig.create(&format!("f{n}")).0).collect();
        files.iter().for_each(|ino| rig.write(*ino, 0, 200 * KIB).unwrap());
        rig.now = rig.now + Micros(2_000_000);
        rig.core.handle_timeout(rig.clock());
        rig.run();
        let jobs = rig.gathers.take().unwrap();
        assert_eq!((jobs.len(), rig.held.as_ref().unwrap().len()), (1, 0), "nothing is captured yet");
        assert_eq!(rig.core.gather(rig.clock(), jobs[0]), Dealt::InPart);

        rig.write(files[synced], 200 * KIB as u64, 100 * KIB).unwrap();
        let waits = rig.submit(Request::Fsync { ino: files[synced] });
        let syncs = |rig: &Rig| rig.held.as_ref().unwrap().iter().map(|(job, _)| *job).collect::<Vec<_>>();
        let asked = syncs(&rig);
        assert_eq!(asked.contains(&jobs[0]), is_waited_for);
        assert_eq!(
            asked.first() == Some(&jobs[0]),
            is_waited_for,
            "what was captured before is synced before"
        );
        let mut rest = Vec::new();
        while rest.last() != Some(&Dealt::InFull) {
            rest.push(rig.core.gather(rig.clock(), jobs[0]));
        }
        assert_eq!(rest.len(), if is_waited_for { 1 } else { 2 });
        rig.run();
        assert_eq!(syncs(&rig).len(), 2);
        while !syncs(&rig).is_empty() {
            rig.sync_one();
        }
        done(rig.reply(waits).unwrap()).unwrap();
        rig.held = None;
        let sizes: Vec<u64> = files.iter().map(|ino| rig.logged_size(*ino) / KIB as u64).collect();
        let mut expected = [200; 5];
        expected[synced] = 300;
        assert_eq!(sizes, expected);
    }
}

/// Goal: that segments are gone says nothing while it may be that the membership is: with that they go, and what is lost then is told when it is heard
/// of. Method: a sync that finds none after the lease has ended, which is then renewed after all.
#[test]
fn segments_that_are_gone_count_when_the_lease_is_good() {
    let mut rig = Rig::new();
    rig.held = Some(Vec::new());
    let (ino, _) = rig.create("f");
    rig.write(ino, 0, 200 * KIB).unwrap();
    let waits = rig.submit(Request::Fsync { ino });
    rig.now = rig.now + Micros(1_000_000_000);
    rig.core.handle_timeout(rig.clock());
    rig.run();
    for (segment, _) in rig.store.list().unwrap() {
        rig.store.delete(segment).unwrap();
    }
    rig.sync_one();
    assert!(rig.reply(waits).is_none());
    rig.hear(FromMaster::Pong { token_share: 1_000_000 });
    assert_eq!(done(rig.reply(waits).unwrap()), Err(FsError::Io));
}
