//! Becoming the master of a volume, and the first contents of one.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chunk::SegmentStore;
use kv::{Batch, Engine};
use lock::MasterTable;
use meta::{CookieKey, Key, SegmentRecord};
use obs::Metrics;
use types::{Epoch, Micros, NodeId, SegmentId, Timespec};

use crate::app_locks::AppLocks;
use crate::commit::{OwnWrite, own_write};
use crate::error::MasterError;
use crate::record::VolumeRecord;
use crate::state::{Clock, Config, Master};
use crate::view::EngineStore;

impl Master {
    /// Writes the first contents of an empty engine: the root directory.
    pub fn format(engine: &dyn Engine, now: Timespec, uid: u32, gid: u32) -> Result<(), MasterError> {
        let changes = meta::initial_changes(now, uid, gid);
        let applied = meta::apply(&changes, &EngineStore(engine), NodeId(0))?;
        let record = VolumeRecord {
            epoch: Epoch(0),
            next_node: 1,
            next_inode: FIRST_INODE,
            next_segment: 1,
            lease: Micros(0),
        };
        let mut batch = Batch::new(engine.last_seq().next());
        let volume = own_write(Key::Volume, &record);
        let own = std::iter::once((volume.0.to_vec(), volume.1));
        for (key, value) in applied.writes.into_iter().chain(own) {
            match value {
                Some(value) => batch.puts.push((key, value)),
                None => batch.deletes.push(key),
            }
        }
        engine.commit(batch)?;
        engine.sync()?;
        Ok(())
    }

    /// Takes a volume over: raises the epoch, durably, and waits for the members of the old master.
    pub fn open(
        clock: Clock,
        engine: Arc<dyn Engine>,
        config: Config,
        metrics: Arc<Metrics>,
    ) -> Result<Self, MasterError> {
        let key = Key::Volume.to_vec();
        let value = engine.get(&key)?.ok_or(MasterError::Empty)?;
        crate::upgrade::count_usage(&*engine)?;
        crate::upgrade::narrow_pages(&*engine)?;
        crate::redo::redo(&*engine, &*config.store)?;
        let mut volume: VolumeRecord = meta::value_decode(&key, &value).map_err(|damage| {
            log::error!("metadata: {damage}");
            MasterError::Damaged { what: "the record", source: None }
        })?;
        let mut own = spare_newer_segments(&*config.store, &mut volume)?;
        volume.epoch = Epoch(volume.epoch.0 + 1);
        // Until all members of the old master have come or ended.
        volume.lease = volume.lease.max(config.lease).min(VolumeRecord::LEASE_MAX);
        let mut master = Self {
            cookie_key: CookieKey(config.cookie_key),
            engine,
            config,
            metrics,
            clock,
            volume,
            failed: false,
            table: MasterTable::new(),
            members: BTreeMap::new(),
            peers: BTreeMap::new(),
            batch_parts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            behind: crate::behind::Behind::default(),
            merges_put_off: BTreeSet::new(),
            reclaims: BTreeSet::new(),
            under_way: crate::under_way::UnderWay::default(),
            glimpses: BTreeMap::new(),
            numbers_given: BTreeMap::new(),
            inquiries: BTreeMap::new(),
            split_places: BTreeMap::new(),
            told_everyone: Vec::new(),
            app_locks: AppLocks::default(),
            doubts: BTreeMap::new(),
            space: crate::space::Space::default(),
            cleaner: crate::cleaner::Cleaner::default(),
            shared: crate::cleaner::Shared::default(),
            settled: crate::cleaner::Settled::default(),
            next_number: 0,
            quota: crate::quota::Quota::default(),
            turns: crate::turns::Turns::default(),
            listing_entries: crate::acquire::LISTING_ENTRIES,
            tasks: VecDeque::new(),
            in_turn: None,
            expected: BTreeMap::new(),
            recovering: false,
            recovery_ends: Micros::NEVER,
            deferred: VecDeque::new(),
            grace_until: Micros(0),
            overdue: Cell::new((Micros(0), Micros::NEVER)),
            entered_at: clock.now,
            syncing: None,
            sync_covers: BTreeMap::new(),
            sync_wanted: false,
            dirty_since: None,
            after_sync: Vec::new(),
            after_this_sync: Vec::new(),
            outputs: VecDeque::new(),
        };
        master.load_limits()?;
        own.push(own_write(Key::Volume, &master.volume));
        master.commit(NodeId(0), &[], own)?;
        master.engine.sync().and_then(|_| master.engine.settle())?;
        let members = master.stored_members()?;
        master.expect_members(members);
        master.look_for_segments();
        master.metrics.master_epoch.set(master.volume.epoch.0 as i64);
        master.settle();
        Ok(master)
    }
}

/// Metadata of an earlier day, loaded or copied back, know nothing of segments that were numbered since. Their numbers must not be given out again; and
/// what is in them may be wanted once more, with newer metadata: they stay until they are counted.
fn spare_newer_segments(
    store: &dyn SegmentStore,
    volume: &mut VolumeRecord,
) -> Result<Vec<OwnWrite>, MasterError> {
    let listed = store.list().map_err(MasterError::Segments)?.into_iter().map(|(segment, _)| segment);
    let newer: Vec<SegmentId> = listed.filter(|segment| segment.0 >= volume.next_segment).collect();
    // Nobody has written so many: it only has such a name.
    let (newer, strays): (Vec<_>, Vec<_>) =
        newer.into_iter().partition(|segment| segment.0 < VolumeRecord::NUMBER_MAX / 2);
    for stray in strays {
        log::error!("segment {stray} is none of this volume's; it is left alone");
    }
    let Some(last) = newer.last() else { return Ok(Vec::new()) };
    log::warn!(
        "{} segments, up to {last}, are newer than the metadata: they are kept, and their numbers not used again. `holdfast fsck --repair` \
         deletes those that nothing names: load newer metadata first if what is in them is wanted",
        newer.len()
    );
    volume.next_segment = last.0.saturating_add(1);
    let uncounted = SegmentRecord { writer: NodeId(0), live_bytes: SegmentRecord::UNCOUNTED };
    Ok(newer.into_iter().map(|segment| own_write(Key::Segment(segment), &uncounted)).collect())
}

/// Numbers below are kept for the root and whatever else may once have a fixed one.
const FIRST_INODE: u64 = 16;
