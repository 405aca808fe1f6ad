//! What fsyncs logged of segments, put to its place when a volume is opened.
//!
//! An fsync of a few bytes waits for no sync of their segment: the batch that names them holds them, too, and the node deletes
//! that once the segment is synced. After a loss of power the segment may lack them; and where a node has died nobody deletes them.

use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};

use chunk::{ChunkError, SegmentStore};
use kv::{Batch, Engine, KeyRange};
use meta::{Key, KeyKind, RedoRecord, SegmentRange, SegmentRecord};
use types::{NodeId, SegmentId};

use crate::error::MasterError;
use crate::state::{Clock, Master, Output};

/// Puts into the segments what they may lack, and deletes what was kept for it. All is durable when it returns; to be called before
/// anybody reads segments.
///
/// What cannot be stored now, or belongs to a segment that is missing though files need it, is kept, with a line in the log, for the next opening. Nodes that go on to write to these segments are not
/// disturbed: the same bytes are in the same place.
///
/// # Errors
///
/// Those of the engine.
pub fn redo(engine: &dyn Engine, store: &dyn SegmentStore) -> Result<(), MasterError> {
    let stored = put_all_back(engine, &Segments { store, reopens: false }, &[], &|| true)?;
    if !stored.is_empty() {
        let mut batch = Batch::new(engine.last_seq().next());
        batch.deletes.extend(stored.iter().map(|key| key.to_vec()));
        engine.commit(batch)?;
        engine.sync()?;
    }
    Ok(())
}

/// Puts into the segments what they may lack, but of those that are `spared`, and returns the keys of what is durable there now. May
/// run beside a master, and on segments that are written to: see [`redo`]. Once `goes_on` says no it returns none.
///
/// # Errors
///
/// Those of the engine.
pub fn put_back(
    engine: &dyn Engine,
    store: &dyn SegmentStore,
    spared: &[SegmentRange],
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<Key>, MasterError> {
    put_all_back(engine, &Segments { store, reopens: true }, spared, goes_on)
}

/// Where what was logged goes.
struct Segments<'a> {
    store: &'a dyn SegmentStore,
    /// Whether what this process failed to sync is opened anew. Only where no writer is left that was told so, and might take the next
    /// sync for its own.
    reopens: bool,
}

fn put_all_back(
    engine: &dyn Engine,
    segments: &Segments<'_>,
    spared: &[SegmentRange],
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<Key>, MasterError> {
    let (start, end) = Key::range_of_kind(KeyKind::Redo);
    let mut found: Vec<(Key, SegmentId)> = Vec::new();
    let mut failed: BTreeSet<SegmentId> = BTreeSet::new();
    let mut missing: BTreeSet<SegmentId> = BTreeSet::new();
    let mut written = 0;
    kv::scan_all(engine, KeyRange::new(start, end), |(bytes, value)| {
        let Some(key @ Key::Redo(segment, offset)) = Key::from_slice(&bytes) else { return };
        if spared.iter().any(|range| range.contains(segment)) || !goes_on() {
            return;
        }
        match meta::value_decode::<RedoRecord>(&bytes, &value) {
            Ok(record) => match segments.put(segment, offset, &record.bytes) {
                Ok(put) => {
                    written += u64::from(put.is_new);
                    if put.is_reopened && found.last().is_some_and(|(_, before)| *before == segment) {
                        log::error!("segment {segment} failed while bytes were put back into it");
                        failed.insert(segment);
                    }
                }
                // Removed since, as nothing names it; or lost, and then what is kept here is all that is left of it.
                Err(ChunkError::Missing { .. }) => {
                    missing.insert(segment);
                }
                Err(error) => {
                    log::error!("segment {segment} may lack bytes at {offset}: {error}");
                    failed.insert(segment);
                }
            },
            // Kept for a check to tell, with the others of its segment.
            Err(damage) => {
                log::error!("metadata: segment {segment} may lack bytes at {offset}: {damage}");
                failed.insert(segment);
            }
        }
        found.push((key, segment));
    })?;
    for segment in missing {
        if is_needed(engine, segment)? {
            log::error!("segment {segment} is missing, and files need it: what fsyncs logged of it is kept");
            failed.insert(segment);
        }
    }
    let named: BTreeSet<SegmentId> = found.iter().map(|(_, segment)| *segment).collect();
    for segment in named {
        if !goes_on() {
            return Ok(Vec::new());
        }
        match segments.store.sync(segment) {
            // Removed since: nothing names it.
            Ok(()) | Err(ChunkError::Missing { .. }) => {}
            Err(error) => {
                log::error!("segment {segment} cannot be made durable: {error}");
                failed.insert(segment);
            }
        }
    }
    if written > 0 {
        log::info!("{written} writes that were only in the metadata are in their segments again");
    }
    if !goes_on() {
        return Ok(Vec::new());
    }
    found.retain(|(_, segment)| !failed.contains(segment));
    Ok(found.into_iter().map(|(key, _)| key).collect())
}

impl Master {
    /// Memberships have ended, or a member has given up a segment that it could not sync: nobody else deletes what their fsyncs logged.
    pub(crate) fn redo_of_nobody(&mut self) {
        self.space.put_back_round += 1;
        self.outputs.push_back(Output::PutBack { round: self.space.put_back_round });
    }

    /// Segments that are in the hands of members, for [`put_back`].
    pub fn segments_in_use(&self) -> Vec<SegmentRange> {
        self.owned_segments().into_ranges()
    }

    /// Whether a segment lacks bytes, perhaps, that fsyncs logged.
    pub(crate) fn has_redo(&self, segment: SegmentId) -> bool {
        let (start, end) = (Key::Redo(segment, 0).to_vec(), Key::Redo(segment, u64::MAX).to_vec());
        let limit = kv::ScanLimit { entries: 1, bytes: 1 };
        let found = self.engine.scan(&KeyRange::new(start, end), limit, kv::Direction::Forward);
        // One that cannot be told is seen to: at worst there is nothing to do.
        found.map_or(true, |page| !page.entries.is_empty())
    }

    /// What [`Output::PutBack`] asked for is durable in its segments.
    ///
    /// Members may have come back to these segments since, and logged bytes of them anew: what is theirs they delete themselves. Where other
    /// memberships have ended meanwhile, such a member's perhaps, the round that was ordered for those has all to do again.
    pub fn were_put_back(&mut self, clock: Clock, round: u64, mut keys: Vec<Key>) {
        let owned = self.owned_segments();
        keys.retain(|key| matches!(key, Key::Redo(segment, _) if !owned.contains(segment)));
        if round != self.space.put_back_round || keys.is_empty() {
            return;
        }
        self.wake_at(clock);
        let own = keys.into_iter().map(|key| (key, None)).collect();
        if let Err(error) = self.commit(NodeId(0), &[], own) {
            self.fail(format!("what was kept of segments could not be removed: {error:?}"));
        }
        self.settle();
    }
}

/// Whether files have bytes in a segment. One whose record cannot be read may be needed.
fn is_needed(engine: &dyn Engine, segment: SegmentId) -> Result<bool, MasterError> {
    let key = Key::Segment(segment).to_vec();
    let Some(value) = engine.get(&key)? else { return Ok(false) };
    Ok(meta::value_decode::<SegmentRecord>(&key, &value).map_or(true, |record| record.live_bytes > 0))
}

impl Segments<'_> {
    fn put(&self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<Put, ChunkError> {
        let mut there = vec![0; bytes.len()];
        let is_there = match self.store.read_at(segment, offset, &mut [IoSliceMut::new(&mut there)]) {
            Err(error @ ChunkError::Missing { .. }) => return Err(error),
            // Another run, or the end: a loss of power may leave anything where nothing was synced.
            read => read.is_ok() && there == bytes,
        };
        // Even so they may be in memory alone: the kernel takes them for stored after a sync of them that failed, and only what is written
        // anew takes part in the next.
        let is_reopened = match self.store.write_at(segment, offset, &[IoSlice::new(bytes)]) {
            Err(ChunkError::Poisoned { .. }) if self.reopens => {
                self.store.forget(segment);
                self.store.write_at(segment, offset, &[IoSlice::new(bytes)])?;
                true
            }
            written => written.map(|()| false)?,
        };
        Ok(Put { is_new: !is_there, is_reopened })
    }
}

/// How bytes came back into a segment.
struct Put {
    /// They were not there.
    is_new: bool,
    /// What had been written before, and was not synced, may be lost.
    is_reopened: bool,
}
