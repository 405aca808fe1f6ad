//! The writing end of a node: appends file data to the node's open segment.
//!
//! Invariants:
//!
//! 1. A place in a segment is written once. A segment whose write or sync failed takes no more; what earlier
//!    syncs covered stays good.
//! 2. Every appended extent is in the list of unsynced writes until a sync covered it or was found to have
//!    failed; then it is reported as [`Lost`], once, unless a [`Redo`] of it was taken, or it was [taken back](SegmentWriter::take_back).
//! 3. A sync covers the writes up to its plan's watermark only, whatever is appended meanwhile.
//! 4. Every unsynced write is fresh or redone, never both; what was redone is told once, after the sync that covered it.
//!
//! A full disk must not cost a segment number and a file for each try: a segment that could not take its very
//! first run is removed and its number used again. That is safe because the store answered; after any other
//! error a late write may still arrive, so the number is not used again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use types::{Ino, NodeId, SegmentId};

use crate::extent::block_checksums;
use crate::format::{crc_of_crcs, next_run};
use crate::{
    ChunkError, Extent, ExtentError, FILE_SIZE_MAX, RUN_ALIGN, RUN_HEADER_LEN, RUN_LEN_MAX, Run, RunHeader,
    SEGMENT_HEADER_LEN, SEGMENT_LEN, SegmentHeader, SegmentStore, VolumeUuid,
};

/// Appends file data to segments. One for each incarnation of a node; kept under a lock of the caller.
///
/// To make data durable without that lock: take a [`sync_plan`](Self::sync_plan), [`SyncPlan::run`] it,
/// hand the outcome to [`on_synced`](Self::on_synced).
pub struct SegmentWriter {
    config: WriterConfig,
    store: Arc<dyn SegmentStore>,
    ready: VecDeque<SegmentId>,
    open: Option<OpenSegment>,
    ahead: SegmentAhead,
    unsynced: BTreeMap<SegmentId, Unsynced>,
    unsynced_bytes: u64,
    sequence: u64,
    /// Done with, and not told yet.
    left: Vec<SegmentId>,
    /// Unsynced writes that are kept nowhere else, by file and sequence.
    fresh: BTreeMap<Ino, BTreeMap<u64, Extent>>,
    /// The last write, if it was small: most likely the one to be kept elsewhere next.
    last: Option<Redo>,
    /// Unsynced writes of which a [`Redo`] was taken: sequence, and places of what was.
    redone: BTreeMap<u64, Vec<(SegmentId, u64)>>,
    /// Segments in use whose header is durable, in place or by a redo.
    headed: BTreeSet<SegmentId>,
    /// Bytes of the redos that were taken since a sync covered all before.
    redone_bytes: u64,
    /// Places of redos that nobody needs any more, and not told yet.
    redone_synced: Vec<(SegmentId, u64)>,
}

/// Whose segments are written, and how long they are.
#[derive(Clone, Copy, Debug)]
pub struct WriterConfig {
    /// The volume.
    pub volume: VolumeUuid,
    /// The incarnation of the node that writes.
    pub node: NodeId,
    /// A segment is full when the next run would end beyond this. At least [`SEGMENT_LEN_MIN`].
    pub segment_len: u64,
}

/// The segment that is appended to.
#[derive(Clone, Copy)]
struct OpenSegment {
    segment: SegmentId,
    /// Where the next run goes. 0: the segment header is still to be written.
    len: u64,
}

/// What a run is made of.
#[derive(Clone, Copy)]
struct NewRun<'a> {
    ino: Ino,
    file_offset: u64,
    len: u32,
    data: &'a [&'a [u8]],
}

/// The segment that follows the open one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentAhead {
    /// It is made when it is needed.
    None,
    /// A plan that makes it was given out.
    Planned,
    /// It is there, and empty.
    Made(SegmentId),
    /// None is wanted any more.
    Closed,
}

/// What a sync of a segment would make durable.
#[derive(Default)]
struct Unsynced {
    /// In ascending order of sequence.
    writes: VecDeque<(u64, Lost)>,
    /// Set when nothing more is appended: the length to seal it at.
    end: Option<u64>,
}

/// Bytes of a file that are to be one run, at least one.
#[derive(Clone, Copy, Debug)]
pub struct Loose<'a> {
    /// The file.
    pub ino: Ino,
    /// Where they are in it.
    pub file_offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// An appended extent whose bytes did not become durable.
///
/// If the file's map still has the extent, its bytes must be written again or the file reports an error;
/// if not, it was replaced and nothing is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The file it was written for.
    pub ino: Ino,
    /// The extent as [`SegmentWriter::append`] gave it out.
    pub extent: Extent,
}

/// A run as it lies in a segment, with its header: whoever keeps it durably elsewhere can put it there again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redo {
    /// The segment.
    pub segment: SegmentId,
    /// Where it lies.
    pub offset: u64,
    /// All of it, with the segment's header before the first.
    pub bytes: Vec<u8>,
}

/// Segments to be synced outside the caller's locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct SyncPlan {
    /// Writes up to this one are covered, see [`SegmentWriter::watermark`].
    pub watermark: u64,
    /// What to sync; may be empty.
    pub segments: Vec<PlannedSync>,
    /// A segment to be made.
    pub create: Option<SegmentId>,
}

/// One segment of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedSync {
    /// The segment.
    pub segment: SegmentId,
    /// Its length if it is to be sealed after the sync.
    pub seal: Option<u64>,
}

/// What came of a plan.
#[derive(Debug)]
#[must_use = "hand it to SegmentWriter::on_synced"]
pub struct SyncOutcome {
    /// The plan's watermark.
    pub watermark: u64,
    /// The result for each segment of the plan.
    pub results: Vec<(PlannedSync, Result<(), ChunkError>)>,
    /// The segment that was made, or why not.
    pub created: Option<(SegmentId, Result<(), ChunkError>)>,
}

/// A segment whose sync failed.
#[derive(Debug)]
pub struct SyncFailure {
    /// The segment; it takes no more.
    pub segment: SegmentId,
    /// Why.
    pub error: ChunkError,
    /// All writes to it that no earlier sync covered and no [`Redo`] was taken of, also those behind the plan's watermark.
    /// Empty if an earlier outcome reported them.
    pub lost: Vec<Lost>,
}

impl SegmentWriter {
    /// A writer without segments: [`add_segments`](Self::add_segments) gives it some.
    ///
    /// # Panics
    ///
    /// If the configured segment length is less than [`SEGMENT_LEN_MIN`].
    pub fn new(config: WriterConfig, store: Arc<dyn SegmentStore>) -> Self {
        assert!(config.segment_len >= SEGMENT_LEN_MIN, "segments are too short");
        Self {
            config,
            store,
            ready: VecDeque::new(),
            open: None,
            ahead: SegmentAhead::None,
            unsynced: BTreeMap::new(),
            unsynced_bytes: 0,
            sequence: 0,
            left: Vec::new(),
            fresh: BTreeMap::new(),
            last: None,
            redone: BTreeMap::new(),
            headed: BTreeSet::new(),
            redone_bytes: 0,
            redone_synced: Vec::new(),
        }
    }

    /// Where it writes.
    pub fn store(&self) -> &dyn SegmentStore {
        &*self.store
    }

    /// Takes in numbers of segments that this node alone may create, durably given out.
    pub fn add_segments(&mut self, segments: impl IntoIterator<Item = SegmentId>) {
        self.ready.extend(segments);
    }

    /// Whether an append of so many bytes finds its segments.
    pub fn has_segments_for(&self, len: u64) -> bool {
        self.segments_needed(len) <= self.segments_at_hand()
    }

    fn segments_at_hand(&self) -> usize {
        self.ready.len() + usize::from(matches!(self.ahead, SegmentAhead::Made(_)))
    }

    /// How many segments can still be begun.
    pub fn segments_ready(&self) -> usize {
        self.ready.len()
    }

    /// Appends `data`, one part after the other, for the range of `ino` that begins at `file_offset`.
    ///
    /// The extents map that range without gap, in order; they may be read at once and must not be
    /// committed before a sync covered them. Blocks while the store takes the bytes.
    ///
    /// # Errors
    ///
    /// [`ChunkError::NeedSegments`] before anything was written. Otherwise the segment is given
    /// up and a later call begins a fresh one; after [`ChunkError::Full`] that is worth a try when something
    /// was removed, or with less data. After an error nothing of this call needs a sync.
    pub fn append(&mut self, ino: Ino, file_offset: u64, data: &[&[u8]]) -> Result<Vec<Extent>, ChunkError> {
        let total: u64 = data.iter().map(|part| part.len() as u64).sum();
        if file_offset.checked_add(total).is_none_or(|end| end > FILE_SIZE_MAX) {
            let len = u32::try_from(total).unwrap_or(u32::MAX);
            return Err(ChunkError::Extent { ino, source: ExtentError::FileOffset { file_offset, len } });
        }
        let needed = self.segments_needed(total);
        let has = self.segments_at_hand();
        if needed > has {
            return Err(ChunkError::NeedSegments { count: needed - has });
        }

        let mut extents = Vec::new();
        let (mut parts, mut done) = (data, 0);
        let mut in_part = 0;
        while done < total {
            let len = (total - done).min(self.run_len_max());
            let data = take(&mut parts, &mut in_part, len);
            let (file_offset, len) = (file_offset + done, len as u32);
            let run = NewRun { ino, file_offset, len, data: &data };
            match self.open_segment_for(len).and_then(|open| self.write_runs_anywhere(open, &[run])) {
                Ok(appended) => extents.extend(appended),
                Err(error) => {
                    self.take_back(&extents);
                    return Err(error);
                }
            }
            done += u64::from(len);
        }
        Ok(extents)
    }

    /// Appends bytes of several files, the first ones of `list`, as one write of the store: as many as the open segment takes, and one at
    /// least. Returns an extent for each of them, as [`append`](Self::append) does; none if the first file's are more than
    /// [a run](Self::run_len_max).
    ///
    /// # Errors
    ///
    /// Those of [`append`](Self::append).
    pub fn append_together(&mut self, list: &[Loose<'_>]) -> Result<Vec<Extent>, ChunkError> {
        let is_a_run = |first: &&Loose<'_>| first.bytes.len() as u64 <= self.run_len_max();
        let Some(first) = list.first().filter(is_a_run) else { return Ok(Vec::new()) };
        if self.segments_needed(first.bytes.len() as u64) > self.segments_at_hand() {
            return Err(ChunkError::NeedSegments { count: 1 });
        }
        let open = self.open_segment_for(first.bytes.len() as u32)?;
        let mut at = open.len;
        let fits = |loose: &&Loose<'_>| {
            let fits = self.fits(at, loose.bytes.len() as u64);
            at = next_run(data_offset(at) + loose.bytes.len() as u64);
            fits
        };
        let runs = list.iter().take(RUNS_TOGETHER).take_while(fits).map(Loose::run);
        let runs: Vec<NewRun<'_>> = runs.collect();
        self.write_runs_anywhere(open, &runs)
    }

    /// Number of the last append; a sync plan made now covers it and all before.
    pub fn watermark(&self) -> u64 {
        self.sequence
    }

    /// All appends up to this one are durable or were reported as lost.
    pub fn synced_watermark(&self) -> u64 {
        let firsts = self.unsynced.values().filter_map(|unsynced| unsynced.writes.front());
        firsts.map(|(sequence, _)| sequence - 1).min().unwrap_or(self.sequence)
    }

    /// Bytes of file data appended and not yet synced.
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes
    }

    /// Segments that are appended to, or wait for their last sync. Others of this node it has done with, but
    /// extents in them may still be on their way to the metadata.
    pub fn segments_in_use(&self) -> Vec<SegmentId> {
        let open = self.open.map(|open| open.segment).filter(|open| !self.unsynced.contains_key(open));
        self.unsynced.keys().copied().chain(open).collect()
    }

    /// Segments left since the last call: nothing is written to them any more and no sync of theirs is to come.
    /// Extents in them may still be on their way to the metadata.
    pub fn take_left(&mut self) -> Vec<SegmentId> {
        std::mem::take(&mut self.left)
    }

    /// What to sync so that all appends until now are durable.
    pub fn sync_plan(&self) -> SyncPlan {
        let planned = |(segment, unsynced): (&SegmentId, &Unsynced)| PlannedSync {
            segment: *segment,
            seal: unsynced.end,
        };
        let segments = self.unsynced.iter().map(planned).collect();
        SyncPlan { watermark: self.sequence, segments, create: None }
    }

    /// What makes the next segment while this one fills, once each: to make one takes the store a while, and whoever appends then
    /// would wait for it.
    pub fn plan_ahead(&mut self) -> Option<SyncPlan> {
        let is_time = self.open.is_some_and(|open| open.len >= self.config.segment_len / 2);
        if !is_time || self.ahead != SegmentAhead::None || self.ready.len() < READY_KEPT {
            return None;
        }
        let create = self.ready.pop_front();
        self.ahead = SegmentAhead::Planned;
        Some(SyncPlan { create, ..SyncPlan::default() })
    }

    fn on_created(&mut self, segment: SegmentId, result: Result<(), ChunkError>) {
        let was_closed = self.ahead == SegmentAhead::Closed;
        match result {
            Ok(()) if was_closed => self.remove_unused(segment),
            Ok(()) => self.ahead = SegmentAhead::Made(segment),
            Err(error) => {
                log::debug!("segment {segment} is not made ahead: {error}");
                if matches!(error, ChunkError::Full { .. }) {
                    self.ready.push_front(segment);
                }
                if !was_closed {
                    self.ahead = SegmentAhead::None;
                }
            }
        }
    }

    /// Nothing was ever stored in it. What is left of it is for the cleaner.
    fn remove_unused(&mut self, segment: SegmentId) {
        let _ = self.store.delete(segment);
        self.left.push(segment);
    }

    /// What to keep elsewhere so that all appends for `ino` until now are durable without a sync: `None` if that is more than
    /// `bytes_max`, or cannot be read back as it was. Each write is given out once; the caller keeps it until
    /// [`take_redone_synced`](Self::take_redone_synced) tells it.
    pub fn take_redo(&mut self, ino: Ino, bytes_max: u64) -> Option<Vec<Redo>> {
        let Some(fresh) = self.fresh.get(&ino) else { return Some(Vec::new()) };
        let extents: Vec<(u64, Extent)> = fresh.iter().map(|(sequence, e)| (*sequence, e.clone())).collect();
        let places =
            extents.iter().map(|(sequence, extent)| (*sequence, extent.segment(), run_place(extent)));
        let places: Vec<_> = places.collect();
        if places.iter().map(|(.., place)| place.end - place.start).sum::<u64>() > bytes_max {
            return None;
        }
        let mut redos = Vec::with_capacity(places.len());
        for ((_, segment, place), (_, extent)) in places.iter().zip(&extents) {
            let is_it = |last: &mut Redo| {
                last.segment == *segment
                    && last.offset == place.start
                    && last.bytes.len() as u64 == place.end - place.start
            };
            if let Some(last) = self.last.take_if(is_it) {
                redos.push(last);
                continue;
            }
            let mut bytes = vec![0; (place.end - place.start) as usize];
            let parts = &mut [IoSliceMut::new(&mut bytes)];
            self.store.read_at(*segment, place.start, parts).ok()?;
            let data = (extent.segment_offset() - place.start) as usize;
            // The system may have failed to write them, and let go of them: then the sync tells of that.
            if block_checksums(&[&bytes[data..data + extent.len() as usize]]) != extent.run().crcs() {
                return None;
            }
            redos.push(Redo { segment: *segment, offset: place.start, bytes });
        }
        // A segment of which the header is lost is damaged, whatever else is there.
        let mut headers = Vec::new();
        for (sequence, segment, place) in &places {
            let mut kept = vec![(*segment, place.start)];
            if self.headed.insert(*segment) && place.start > 0 {
                let (volume, writer) = (self.config.volume, self.config.node);
                let bytes = SegmentHeader { volume, segment: *segment, writer }.to_bytes().to_vec();
                headers.push(Redo { segment: *segment, offset: 0, bytes });
                kept.push((*segment, 0));
            }
            self.redone.insert(*sequence, kept);
            self.redone_bytes += place.end - place.start;
        }
        self.fresh.remove(&ino);
        redos.extend(headers);
        Some(redos)
    }

    /// Bytes that are kept elsewhere until a sync.
    pub fn redone_bytes(&self) -> u64 {
        self.redone_bytes
    }

    /// Places of redos that a sync has covered since the last call.
    pub fn take_redone_synced(&mut self) -> Vec<(SegmentId, u64)> {
        std::mem::take(&mut self.redone_synced)
    }

    /// Takes in the outcome of a plan. Outcomes may come in any order.
    ///
    /// The caller deals with every [`Lost`] write before it lets go of its lock: the writes of others are
    /// among them, and no later plan names them.
    #[must_use = "data of these segments is lost"]
    pub fn on_synced(&mut self, outcome: SyncOutcome) -> Vec<SyncFailure> {
        let mut failures = Vec::new();
        if let Some((segment, result)) = outcome.created {
            self.on_created(segment, result);
        }
        for (planned, result) in outcome.results {
            match result {
                Ok(()) => self.on_segment_synced(planned, outcome.watermark),
                // An earlier outcome ended it, and it was deleted before this sync began: nothing was to be synced.
                Err(ChunkError::Missing { .. }) if !self.is_in_use(planned.segment) => {}
                Err(error) => failures.push(self.on_segment_failed(planned.segment, error)),
            }
        }
        failures
    }

    /// Ends the open segment: the next plan seals it. For a clean leave.
    pub fn close(&mut self) {
        self.close_open();
        if let SegmentAhead::Made(segment) = std::mem::replace(&mut self.ahead, SegmentAhead::Closed) {
            self.remove_unused(segment);
        }
    }

    fn close_open(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.len == 0 {
            return self.remove_unused(open.segment);
        }
        self.unsynced.entry(open.segment).or_default().end = Some(open.len);
    }

    fn is_in_use(&self, segment: SegmentId) -> bool {
        self.unsynced.contains_key(&segment) || self.open.is_some_and(|open| open.segment == segment)
    }

    /// Writes runs into the open segment, or a fresh one where that takes none any more: somebody else has synced it and failed.
    fn write_runs_anywhere(
        &mut self,
        open: OpenSegment,
        runs: &[NewRun<'_>],
    ) -> Result<Vec<Extent>, ChunkError> {
        match self.write_runs(open, runs) {
            Err(ChunkError::Poisoned { .. }) => {
                let open = self.open_segment_for(runs.first().map_or(0, |run| run.len))?;
                self.write_runs(open, runs)
            }
            written => written,
        }
    }

    /// Writes runs with their headers, and the segment's header before the first, in one call.
    fn write_runs(&mut self, open: OpenSegment, runs: &[NewRun<'_>]) -> Result<Vec<Extent>, ChunkError> {
        let OpenSegment { segment, len: start } = open;
        let (volume, node) = (self.config.volume, self.config.node);
        let segment_header = SegmentHeader { volume, segment, writer: node }.to_bytes();
        let segment_header = if start == 0 { &segment_header[..] } else { &[] };

        let mut at = start + segment_header.len() as u64;
        let (mut headers, mut extents) = (Vec::with_capacity(runs.len()), Vec::with_capacity(runs.len()));
        for (sequence, run) in (self.sequence + 1..).zip(runs) {
            let NewRun { ino, file_offset, len, data } = *run;
            let crcs = block_checksums(data);
            let header = RunHeader { ino, file_offset, len, crcs_crc: crc_of_crcs(&crcs), sequence };
            headers.push(header.to_bytes(&volume, segment, at));
            let offset = at + RUN_HEADER_LEN as u64;
            let extent = Run::new(segment, offset, len, &crcs).and_then(|run| Extent::new(file_offset, run));
            extents.push(extent.map_err(|source| ChunkError::Extent { ino, source })?);
            at = next_run(offset + u64::from(len));
        }

        let mut parts = vec![IoSlice::new(segment_header)];
        for ((run, header), extent) in runs.iter().zip(&headers).zip(&extents) {
            let end = extent.segment_offset() + u64::from(extent.len());
            let padding = &[0; RUN_ALIGN as usize][..(next_run(end) - end) as usize];
            parts.push(IoSlice::new(header));
            parts.extend(run.data.iter().map(|part| IoSlice::new(part)));
            parts.push(IoSlice::new(padding));
        }
        if let Err(error) = self.store.write_at(segment, start, &parts) {
            let may_reuse = start == 0 && matches!(error, ChunkError::Full { .. });
            self.close_open();
            if may_reuse {
                self.left.retain(|left| *left != segment);
                self.ready.push_front(segment);
            }
            return Err(error);
        }

        self.last = (at - start <= LAST_KEPT && runs.len() == 1).then(|| {
            let mut bytes = Vec::with_capacity((at - start) as usize);
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            Redo { segment, offset: start, bytes }
        });
        self.open = Some(OpenSegment { segment, len: at });
        for (run, extent) in runs.iter().zip(&extents) {
            self.note_appended(run.ino, extent);
        }
        Ok(extents)
    }

    fn note_appended(&mut self, ino: Ino, extent: &Extent) {
        self.sequence += 1;
        self.unsynced_bytes += u64::from(extent.len());
        self.fresh.entry(ino).or_default().insert(self.sequence, extent.clone());
        let write = Lost { ino, extent: extent.clone() };
        self.unsynced.entry(extent.segment()).or_default().writes.push_back((self.sequence, write));
    }

    /// The open segment if a run of `len` bytes fits, else a fresh one.
    fn open_segment_for(&mut self, len: u32) -> Result<OpenSegment, ChunkError> {
        if let Some(open) = self.open {
            if self.fits(open.len, u64::from(len)) {
                return Ok(open);
            }
            self.close_open();
        }
        if let SegmentAhead::Made(segment) = self.ahead {
            self.ahead = SegmentAhead::None;
            let open = OpenSegment { segment, len: 0 };
            self.open = Some(open);
            return Ok(open);
        }
        let segment = loop {
            let segment = self.ready.pop_front().ok_or(ChunkError::NeedSegments { count: 1 })?;
            match self.store.create(segment) {
                Ok(()) => break segment,
                // Of later metadata than those that gave the number: the next one may be free.
                Err(error @ ChunkError::Exists { .. }) => log::error!("{error}, and is left alone"),
                Err(error) => {
                    if matches!(error, ChunkError::Full { .. }) {
                        self.ready.push_front(segment);
                    }
                    return Err(error);
                }
            }
        };
        let open = OpenSegment { segment, len: 0 };
        self.open = Some(open);
        Ok(open)
    }

    /// How many segments an append of `total` bytes begins.
    fn segments_needed(&self, total: u64) -> usize {
        let (mut at, mut needed) = (self.open.map(|open| open.len), 0);
        let mut left = total;
        while left > 0 {
            let len = left.min(self.run_len_max());
            let start = match at {
                Some(at) if self.fits(at, len) => at,
                Some(_) | None => {
                    needed += 1;
                    0
                }
            };
            at = Some(next_run(data_offset(start) + len));
            left -= len;
        }
        needed
    }

    /// Whether a run of `len` bytes can go to a segment of `at` bytes.
    fn fits(&self, at: u64, len: u64) -> bool {
        data_offset(at) + len <= self.config.segment_len
    }

    /// Bytes of a run, at most.
    pub fn run_len_max(&self) -> u64 {
        u64::from(RUN_LEN_MAX).min(self.config.segment_len - data_offset(0))
    }

    /// Takes back `extents`, the last that were appended: what failed later on gives out nothing, and needs no sync.
    pub fn take_back(&mut self, extents: &[Extent]) {
        for extent in extents.iter().rev() {
            let Some(unsynced) = self.unsynced.get_mut(&extent.segment()) else { continue };
            if let Some((sequence, write)) = unsynced.writes.pop_back() {
                debug_assert_eq!(write.extent, *extent, "the last that was appended");
                forget_fresh(&mut self.fresh, write.ino, sequence);
            }
            self.unsynced_bytes -= u64::from(extent.len());
        }
    }

    fn on_segment_synced(&mut self, planned: PlannedSync, watermark: u64) {
        let Some(unsynced) = self.unsynced.get_mut(&planned.segment) else { return };
        let synced = unsynced.writes.partition_point(|(sequence, _)| *sequence <= watermark);
        for (sequence, write) in unsynced.writes.drain(..synced) {
            self.unsynced_bytes -= u64::from(write.extent.len());
            match self.redone.remove(&sequence) {
                Some(places) => self.redone_synced.extend(places),
                None => forget_fresh(&mut self.fresh, write.ino, sequence),
            }
        }
        if self.redone.is_empty() {
            self.redone_bytes = 0;
        }
        self.headed.insert(planned.segment);
        let is_done = unsynced.end.is_none() || planned.seal.is_some();
        if is_done && unsynced.writes.is_empty() {
            let is_left = unsynced.end.is_some();
            self.unsynced.remove(&planned.segment);
            if is_left {
                self.headed.remove(&planned.segment);
                self.left.push(planned.segment);
            }
        }
    }

    fn on_segment_failed(&mut self, segment: SegmentId, error: ChunkError) -> SyncFailure {
        let was_open = self.open.is_some_and(|open| open.segment == segment);
        if was_open {
            self.open = None;
        }
        let unsynced = self.unsynced.remove(&segment);
        if was_open || unsynced.is_some() {
            self.headed.remove(&segment);
            self.left.push(segment);
        }
        let writes = unsynced.unwrap_or_default().writes;
        let mut lost = Vec::with_capacity(writes.len());
        for (sequence, write) in writes {
            // What is kept of it elsewhere stays there: it may be all there is.
            self.unsynced_bytes -= u64::from(write.extent.len());
            if self.redone.remove(&sequence).is_none() {
                forget_fresh(&mut self.fresh, write.ino, sequence);
                lost.push(write);
            }
        }
        if self.redone.is_empty() {
            self.redone_bytes = 0;
        }
        SyncFailure { segment, error, lost }
    }
}

impl Loose<'_> {
    fn run(&self) -> NewRun<'_> {
        let Self { ino, file_offset, ref bytes } = *self;
        NewRun { ino, file_offset, len: bytes.len() as u32, data: std::slice::from_ref(bytes) }
    }
}

impl SyncPlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.create.is_none()
    }

    /// Syncs each segment, seals those that are full, and makes what is to be made. Blocks; needs no lock.
    pub fn run(&self, store: &dyn SegmentStore) -> SyncOutcome {
        let results = self.segments.iter().map(|planned| (*planned, planned.run(store))).collect();
        let created = self.create.map(|segment| (segment, store.create(segment)));
        SyncOutcome { watermark: self.watermark, results, created }
    }
}

impl PlannedSync {
    fn run(&self, store: &dyn SegmentStore) -> Result<(), ChunkError> {
        store.sync(self.segment)?;
        if let Some(Err(error)) = self.seal.map(|len| store.seal(self.segment, len)) {
            // Costs the reserved room until the segment is cleaned, and no data.
            log::warn!("segment {}: not sealed: {error}", self.segment);
        }
        Ok(())
    }
}

impl WriterConfig {
    /// The usual segment length.
    pub fn new(volume: VolumeUuid, node: NodeId) -> Self {
        Self { volume, node, segment_len: SEGMENT_LEN }
    }
}

/// Where the run of an extent lies, as it was appended, with the segment's header before the first.
fn run_place(extent: &Extent) -> std::ops::Range<u64> {
    let start = extent.segment_offset() - RUN_HEADER_LEN as u64;
    let start = if start == SEGMENT_HEADER_LEN as u64 { 0 } else { start };
    start..next_run(extent.segment_offset() + u64::from(extent.len()))
}

fn forget_fresh(fresh: &mut BTreeMap<Ino, BTreeMap<u64, Extent>>, ino: Ino, sequence: u64) {
    if let Some(writes) = fresh.get_mut(&ino) {
        writes.remove(&sequence);
        if writes.is_empty() {
            fresh.remove(&ino);
        }
    }
}

/// Takes the next `len` bytes off `parts`, of whose first `in_part` bytes are taken already.
fn take<'a>(parts: &mut &[&'a [u8]], in_part: &mut usize, len: u64) -> Vec<&'a [u8]> {
    let (mut taken, mut left) = (Vec::new(), len as usize);
    while left > 0 {
        let rest = &parts[0][*in_part..];
        let count = rest.len().min(left);
        if count > 0 {
            taken.push(&rest[..count]);
        }
        left -= count;
        *in_part += count;
        if count == rest.len() {
            *parts = &parts[1..];
            *in_part = 0;
        }
    }
    taken
}

/// Where the bytes of a run go that is appended to a segment of `at` bytes.
const fn data_offset(at: u64) -> u64 {
    let headers = if at == 0 { SEGMENT_HEADER_LEN + RUN_HEADER_LEN } else { RUN_HEADER_LEN };
    at + headers as u64
}

/// Numbers of segments that are not used ahead.
const READY_KEPT: usize = 2;
/// Runs of one write, at most: a call of the system takes 1,024 parts.
const RUNS_TOGETHER: usize = 256;
/// Bytes of the last write that are remembered, at most.
const LAST_KEPT: u64 = 16 << 10;

/// Shortest segment a writer can be set to, in bytes.
pub const SEGMENT_LEN_MIN: u64 = 4096;

#[cfg(test)]
mod tests;
