//! Segments that nothing needs any more: found, waited for, deleted.
//!
//! Invariants:
//!
//! - A segment is deleted only when no committed extent names it, durably; when no member may still name it for
//!   the first time, because the member that reserved it has disowned it or ended; and when every member
//!   has acknowledged a barrier sent after both, so that nobody reads it by an older map.
//! - A segment that no extent names and no member owns stays so: its count of live bytes never rises again.
//! - The record of a segment goes only after its file.
//!
//! Segments go in rounds: a barrier and a sync of the engine serve all that were found until then.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Key, KeyKind, SegmentRecord};
use types::{Micros, NodeId, SegmentId};
use wire::FromMaster;

use crate::commit::own_write;
use crate::record::SegmentRange;
use crate::state::{AfterSync, Clock, Master, Output};

/// What the master knows of segments nobody needs.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// No committed extent names these. Some may still be in a member's hands.
    empty: BTreeSet<SegmentId>,
    /// The round under way.
    round: Option<Round>,
    /// When the next round begins, if one is due.
    round_due: Option<Micros>,
    /// Segments whose reserve was given back, or is about to be.
    trimmed: BTreeSet<SegmentId>,
    /// When the store is listed next.
    list_due: Option<Micros>,
    /// Whether something of segments may be logged since that no member sees to any more.
    has_redo_of_nobody: bool,
    /// Number of the last [`Output::PutBack`].
    pub put_back_round: u64,
}

/// Segments on their way out.
#[derive(Debug)]
struct Round {
    seq: u64,
    list: Vec<SegmentId>,
    /// Members that have not acknowledged the barrier, and since when they are asked.
    waiting: BTreeSet<NodeId>,
    since: Micros,
    /// Whether what emptied the segments is durable.
    is_durable: bool,
    is_ordered: bool,
}

impl Space {
    pub(crate) fn due(&self) -> Micros {
        let round = self.round_due.filter(|_| self.round.is_none()).unwrap_or(Micros::NEVER);
        round.min(self.list_due.unwrap_or(Micros::NEVER))
    }
}

impl Master {
    /// Takes in a segment's count as a commit leaves it.
    pub(crate) fn note_live_bytes(&mut self, segment: SegmentId, live_bytes: u64) {
        // Before long the store is looked at again: there may be something to clean.
        self.look_again();
        if live_bytes > 0 {
            self.space.empty.remove(&segment);
            // A copy of its bytes came. If it is emptied once more, that is to be durable by itself before it goes.
            if let Some(round) = self.space.round.as_mut().filter(|round| !round.is_ordered) {
                round.list.retain(|of| *of != segment);
            }
        } else if self.space.empty.insert(segment) {
            self.call_round(PAUSE_ROUND);
        }
    }

    /// A node gives segments up. What it did not reserve it cannot give up.
    pub(crate) fn on_disown(&mut self, node: NodeId, segments: &[SegmentId]) {
        let Some(member) = self.members.get_mut(&node) else { return };
        let mut given_up = Vec::new();
        for segment in segments {
            if SegmentRange::take(&mut member.record.segments, *segment) {
                given_up.push(*segment);
            }
        }
        let write = own_write(Key::Member(node), &member.record);
        if let Err(error) = self.commit(NodeId(0), &[], vec![write]) {
            return self.fail(format!("segments given up could not be recorded: {error:?}"));
        }
        // Of one whose sync failed nothing was deleted.
        if given_up.iter().any(|segment| self.has_redo(*segment)) {
            self.space.has_redo_of_nobody = true;
            self.look_for_segments();
        }
        for segment in given_up {
            match self.read::<SegmentRecord>(Key::Segment(segment)) {
                Ok(Some(record)) if record.live_bytes > 0 => {}
                Ok(_) => self.note_live_bytes(segment, 0),
                // It stays until a check.
                Err(_) => {}
            }
        }
        self.call_round(PAUSE_ROUND);
    }

    /// What was a member's is nobody's, perhaps.
    pub(crate) fn look_for_segments(&mut self) {
        let due = self.clock.now + PAUSE_ROUND;
        self.space.list_due = Some(self.space.list_due.map_or(due, |earlier| earlier.min(due)));
    }

    /// A membership has ended.
    pub(crate) fn look_for_segments_of_the_dead(&mut self) {
        self.space.has_redo_of_nobody = true;
        self.look_for_segments();
    }

    /// Has the store listed again although nothing changes meanwhile.
    pub(crate) fn look_again(&mut self) {
        let look = self.clock.now + PAUSE_LOOK;
        self.space.list_due = Some(self.space.list_due.map_or(look, |due| due.min(look)));
    }

    pub(crate) fn call_round(&mut self, pause: Micros) {
        let due = self.clock.now + pause;
        self.space.round_due.get_or_insert(due);
    }

    /// Starts what is due.
    pub(crate) fn go_on_with_space(&mut self) {
        if self.recovering || self.failed {
            return;
        }
        if self.space.list_due.is_some_and(|due| due <= self.clock.now) {
            self.space.list_due = Some(self.clock.now + PAUSE_LIST);
            if std::mem::take(&mut self.space.has_redo_of_nobody) {
                self.redo_of_nobody();
            }
            self.outputs.push_back(Output::ListSegments);
        }
        if self.space.round.is_none() && self.space.round_due.is_some_and(|due| due <= self.clock.now) {
            self.space.round_due = None;
            self.start_round();
        }
    }

    fn start_round(&mut self) {
        let owned = self.owned_segments();
        // One that the cleaner is filling may be empty for a moment: the files whose bytes it has are only being put there.
        let is_free = |segment: &&SegmentId| !owned.contains(segment) && !self.is_cleaners(**segment);
        let list: Vec<SegmentId> = self.space.empty.iter().filter(is_free).take(ROUND_MAX).copied().collect();
        if list.is_empty() {
            return;
        }
        let seq = self.number();
        let waiting: BTreeSet<NodeId> = self.members.keys().copied().collect();
        for node in &waiting {
            self.send(*node, FromMaster::Barrier { seq, segments: list.clone() });
        }
        let since = self.clock.now;
        self.space.round = Some(Round { seq, list, waiting, since, is_durable: false, is_ordered: false });
        self.after_sync.push(AfterSync::Round(seq));
        self.want_sync();
    }

    pub(crate) fn on_barriered(&mut self, node: NodeId, seq: u64) {
        if let Some(round) = self.space.round.as_mut().filter(|round| round.seq == seq) {
            round.waiting.remove(&node);
            self.finish_round();
        }
    }

    /// Members that a round waits for, and since when.
    pub(crate) fn barriers_owed(&self) -> impl Iterator<Item = (NodeId, Micros)> + '_ {
        self.space.round.iter().flat_map(|round| round.waiting.iter().map(|node| (*node, round.since)))
    }

    /// A member whose connection broke may not have heard of the barrier.
    pub(crate) fn barrier_again(&mut self, node: NodeId) {
        let Some(round) = self.space.round.as_ref().filter(|round| round.waiting.contains(&node)) else {
            return;
        };
        let (seq, segments) = (round.seq, round.list.clone());
        self.send(node, FromMaster::Barrier { seq, segments });
    }

    /// A member that is gone reads nothing under its tokens any more.
    pub(crate) fn pass_barrier_of(&mut self, node: NodeId) {
        if let Some(round) = &mut self.space.round {
            round.waiting.remove(&node);
            self.finish_round();
        }
    }

    pub(crate) fn on_round_durable(&mut self, seq: u64) {
        if let Some(round) = self.space.round.as_mut().filter(|round| round.seq == seq) {
            round.is_durable = true;
            self.finish_round();
        }
    }

    fn finish_round(&mut self) {
        let Some(round) = &mut self.space.round else { return };
        if round.is_ordered || !round.is_durable || !round.waiting.is_empty() {
            return;
        }
        round.is_ordered = true;
        self.outputs.push_back(Output::DeleteSegments { list: round.list.clone() });
    }

    /// Files that [`Output::DeleteSegments`] named are gone; those of its list that are not here could not be
    /// deleted and will be tried again.
    pub fn segments_deleted(&mut self, clock: Clock, deleted: &[SegmentId]) {
        self.wake_at(clock);
        let Some(round) = self.space.round.take() else { return };
        let own = deleted.iter().map(|segment| (Key::Segment(*segment), None)).collect();
        if let Err(error) = self.commit(NodeId(0), &[], own) {
            self.fail(format!("records of deleted segments could not be removed: {error:?}"));
        }
        for segment in deleted {
            self.space.empty.remove(segment);
            self.space.trimmed.remove(segment);
        }
        self.metrics.segments_deleted.add(deleted.len() as u64);
        let pause = if deleted.len() < round.list.len() { PAUSE_RETRY } else { PAUSE_ROUND };
        self.call_round(pause);
        self.settle();
    }

    /// What [`Output::ListSegments`] asked for: all segments in the store, with their lengths.
    ///
    /// Finds what a node left behind that died before it named it, and what came back with a power loss.
    pub fn segments_listed(&mut self, clock: Clock, listed: &[(SegmentId, u64)]) {
        self.wake_at(clock);
        let owned = self.owned_segments();
        let (records, damaged) = match self.segment_records() {
            Ok(read) => read,
            Err(error) => {
                // What cannot be read may be needed: nothing is concluded from it.
                log::error!("metadata engine: {error}");
                return self.look_again();
            }
        };
        self.consider_cleaning(listed, &records);
        let next = SegmentId(self.volume.next_segment);
        let files = listed.iter().map(|(segment, _)| *segment).filter(|segment| *segment < next);
        // A writer that died left them as they were.
        let is_left = |s: &SegmentId| records.contains_key(s) && !owned.contains(s) && !self.is_cleaners(*s);
        let mut trims: Vec<SegmentId> = files.clone().filter(is_left).collect();
        trims.retain(|segment| self.space.trimmed.insert(*segment));
        if !trims.is_empty() {
            self.outputs.push_back(Output::TrimSegments { list: trims });
        }
        for segment in files.chain(records.keys().copied()) {
            let live_bytes = records.get(&segment).map_or(0, |record| record.live_bytes);
            let is_known = !damaged.contains(&segment);
            if live_bytes == 0 && is_known && !owned.contains(&segment) && !self.is_cleaners(segment) {
                self.note_live_bytes(segment, 0);
            }
        }
        self.settle();
    }

    /// Segments that a member may still name for the first time.
    pub(crate) fn owned_segments(&self) -> OwnedSegments {
        let members = self.members.values().map(|member| &member.record);
        let records = members.chain(self.expected.values().map(|expected| &expected.record));
        OwnedSegments(records.flat_map(|record| &record.segments).copied().collect())
    }

    /// Every segment's record, and the segments whose record is damaged: they stay until a check.
    pub(crate) fn segment_records(&self) -> Result<SegmentRecords, kv::EngineError> {
        let (start, end) = Key::range_of_kind(KeyKind::Segment);
        let (mut records, mut damaged) = (BTreeMap::new(), BTreeSet::new());
        kv::scan_all(&*self.engine, kv::KeyRange::new(start, end), |(key, value)| {
            let Some(Key::Segment(segment)) = Key::from_slice(&key) else { return };
            match meta::value_decode(&key, &value) {
                Ok(record) => drop(records.insert(segment, record)),
                Err(damage) => {
                    log::error!("metadata: {damage}");
                    damaged.insert(segment);
                }
            }
        })?;
        Ok((records, damaged))
    }
}

/// Records of segments, and segments whose record cannot be read.
type SegmentRecords = (BTreeMap<SegmentId, SegmentRecord>, BTreeSet<SegmentId>);

/// Ranges of segments that members have reserved and not disowned.
pub(crate) struct OwnedSegments(Vec<SegmentRange>);

impl OwnedSegments {
    pub(crate) fn contains(&self, segment: &SegmentId) -> bool {
        self.0.iter().any(|range| range.contains(*segment))
    }

    pub(crate) fn into_ranges(self) -> Vec<SegmentRange> {
        self.0
    }
}

/// From the first segment found empty to the round that takes it: others join meanwhile.
pub(crate) const PAUSE_ROUND: Micros = Micros::from_millis(200);
/// From a change of live bytes to the next look at the store.
const PAUSE_LOOK: Micros = Micros::from_millis(3_000);
/// After a file could not be deleted.
const PAUSE_RETRY: Micros = Micros::from_millis(10_000);
/// Between two looks at the store.
const PAUSE_LIST: Micros = Micros::from_millis(300_000);
/// Segments deleted in one round.
const ROUND_MAX: usize = 4096;
