//! What an fsync waits for.
//!
//! A core alone; the test plays the master and the disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{CLOCK, create, looking, root_acquired};
use meta::{Body, Change};
use types::{Ino, Micros, SegmentId};
use vfs::{Clock, Config, Core, Output, Reply, Request, RequestId, WriteData};
use wire::{FromMaster, ToMaster};

const LEN: usize = 200_000;
const FSYNC: RequestId = RequestId(77);

/// A core with a file, and what it ordered.
struct Rig {
    core: Core,
    store: Arc<MemStore>,
    ino: Ino,
    clock: Clock,
    segment_syncs: usize,
    batches: Vec<ToMaster>,
    answers: usize,
    fetches: usize,
}

impl Rig {
    fn new() -> Self {
        let store = Arc::new(MemStore::new());
        let core = looking(&store);
        let (batches, clock) = (Vec::new(), CLOCK);
        let mut rig =
            Self { core, store, ino: Ino(0), clock, segment_syncs: 0, batches, answers: 0, fetches: 0 };
        rig.run();
        match rig.core.submit(CLOCK, RequestId(2), create("f")) {
            Some(Reply::Created(entry, _)) => rig.ino = entry.attr.ino,
            other => panic!("answered {other:?}"),
        }
        rig.run();
        rig
    }

    fn write(&mut self, offset: u64, len: usize) {
        let (ino, data) = (self.ino, WriteData(vec![7; len].into()));
        let write = Request::Write { ino, offset, data, append: false, direct: false, kill_privileges: None };
        let answer = self.core.submit(self.clock, RequestId(3), write);
        assert!(matches!(answer, Some(Reply::Written { .. })), "{answer:?}");
    }

    /// Returns the syncs of segments and the batches that it took.
    fn fsync(&mut self) -> (usize, Vec<ToMaster>) {
        (self.segment_syncs, self.answers) = (0, 0);
        self.batches.clear();
        assert!(self.core.submit(self.clock, FSYNC, Request::Fsync { ino: self.ino }).is_none());
        self.run();
        assert_eq!(self.answers, 1);
        (self.segment_syncs, std::mem::take(&mut self.batches))
    }

    fn run(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Send(ToMaster::Acquire { request, .. }) => {
                    self.core.handle_message(self.clock, root_acquired(request));
                }
                Output::Send(batch @ ToMaster::Batch { .. }) => {
                    if let ToMaster::Batch { seq, sync: true, .. } = &batch {
                        self.core.handle_message(self.clock, FromMaster::Durable { seq: *seq });
                    }
                    self.batches.push(batch);
                }
                Output::Gather { job } => common::gather(&mut self.core, self.clock, job),
                Output::Sync { job, plan } => {
                    self.segment_syncs += plan.segments.len();
                    common::end_sync(&mut self.core, self.clock, job, plan.run(&*self.store));
                }
                Output::Reply(FSYNC, Reply::Done) => self.answers += 1,
                Output::Send(ToMaster::Fetch { .. }) => self.fetches += 1,
                Output::Invalidate { job, .. } => self.core.invalidated(self.clock, job),
                _ => {}
            }
        }
    }

    fn after(&mut self, time: Micros) {
        self.clock.now = self.clock.now + time;
        self.core.handle_timeout(self.clock);
        self.run();
    }
}

fn changes(batches: &[ToMaster]) -> Vec<&Change> {
    let of = |batch| match batch {
        &ToMaster::Batch { ref changes, .. } => changes.iter(),
        other => panic!("{other:?}"),
    };
    batches.iter().flat_map(of).collect()
}

/// Goal: whoever waits for a few bytes waits for one sync, the metadata's. Method: counts; what is logged holds the bytes, before
/// what names them.
#[test]
fn an_fsync_of_a_few_bytes_is_one_batch_and_no_sync_of_a_segment() {
    let mut rig = Rig::new();
    rig.write(0, LEN);
    let (syncs, _) = rig.fsync();
    assert_eq!(syncs, 1, "of much");
    for round in 0..20 {
        rig.write(round % 3 * 4096, 4096);
        let (syncs, batches) = rig.fsync();
        assert_eq!((syncs, batches.len()), (0, 1));
        let changes = changes(&batches);
        let is_put = |change: &&Change| matches!(change, Change::PutRedo { bytes, .. } if bytes.len() > 4096);
        let names = |change: &&Change| match change {
            Change::PutEntry { entry, .. } => {
                matches!(entry.covered().unwrap().content.body, Body::Extents { .. })
            }
            _ => false,
        };
        let (put, named) = (changes.iter().position(|c| is_put(c)), changes.iter().position(|c| names(c)));
        assert!(put.is_some() && put < named, "{changes:?}");
    }
    assert_eq!(rig.fsync().0, 0, "nothing new");
}

/// Goal: a file of many pieces that is written and synced by turns asks the master for nothing: what was logged of it is known.
/// Method: single writes apart from each other, until its record cannot hold its extents; then counts, and the bytes are read back.
#[test]
fn a_write_after_an_fsync_asks_for_no_page_of_extents() {
    let mut rig = Rig::new();
    rig.write(0, LEN);
    rig.fsync();
    let mut paged = 0;
    for round in 1..200 {
        rig.write(round * 3 * 4096, 4096);
        let (_, batches) = rig.fsync();
        let is_page = |change: &&Change| matches!(change, Change::PutExtentPage { .. });
        paged += usize::from(changes(&batches).iter().any(is_page));
    }
    assert!(paged > 150, "all but the first: {paged}");
    assert_eq!(rig.fetches, 0);
    let read = Request::Read { ino: rig.ino, offset: 4096 * 597, len: 8192, noatime: true, direct: false };
    let answer = rig.core.submit(rig.clock, RequestId(5), read);
    assert!(matches!(answer, Some(Reply::ReadJob(_))), "{answer:?}");
    rig.run();
    assert_eq!(rig.fetches, 0, "a read finds them too");
}

/// What was logged of a segment is deleted after the sync of the segment, which comes by itself.
#[test]
fn what_was_logged_of_a_segment_goes_once_that_is_synced() {
    let mut rig = Rig::new();
    rig.write(0, LEN);
    rig.fsync();
    rig.write(0, 4096);
    rig.fsync();
    rig.write(4096, 4096);
    let (syncs, batches) = rig.fsync();
    let put = changes(&batches).iter().filter(|change| matches!(change, Change::PutRedo { .. })).count();
    assert_eq!((syncs, put), (0, 1), "each once");
    (rig.segment_syncs, rig.batches) = (0, Vec::new());
    for _ in 0..3 {
        rig.after(Config::default().commit_interval);
    }
    assert_eq!(rig.segment_syncs, 1);
    let batches = std::mem::take(&mut rig.batches);
    let deleted = |change: &&&Change| matches!(change, Change::DeleteRedo { segment: SegmentId(1), .. });
    assert_eq!(changes(&batches).iter().filter(deleted).count(), 2);
}

#[test]
fn an_fsync_of_much_is_a_sync_of_its_segment() {
    let mut rig = Rig::new();
    rig.write(0, LEN);
    rig.fsync();
    for at in 0..40 {
        rig.write(at * 5000, 4096);
    }
    let (syncs, batches) = rig.fsync();
    let is_redo = |change: &&Change| matches!(change, Change::PutRedo { .. });
    assert_eq!((syncs, changes(&batches).into_iter().filter(is_redo).count()), (1, 0));
}
