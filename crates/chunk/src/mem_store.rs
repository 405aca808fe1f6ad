//! Segments in memory, for simulations and tests: tells written from durable, crashes and fails on request.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use types::SegmentId;

use crate::store::{Action, SegmentStore, Space};
use crate::{ChunkError, Damage};

/// Keeps segments in memory. Clones share them.
///
/// Stricter than a disk: it refuses to change durable bytes and to write others to a sealed segment.
#[derive(Clone, Default)]
pub struct MemStore(Arc<Mutex<Memory>>);

/// How a call is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No space. A write may be done in part.
    Full,
    /// A device error. A write may be done in part; what a sync was to cover is lost or torn.
    Io,
}

#[derive(Default)]
struct Memory {
    segments: BTreeMap<SegmentId, Segment>,
    /// Removed since the directory was last synced, which creation does: back after a crash, perhaps.
    removed: BTreeMap<SegmentId, Segment>,
    /// Calls of this kind still to be let through, and how the next fails then.
    faults: BTreeMap<Action, (u64, Fault)>,
    capacity_bytes: Option<u64>,
    losses: Losses,
}

/// What faults and crashes have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Calls that failed.
    pub failures: u64,
    /// Writes that were not synced and of which nothing is left.
    pub writes_lost: u64,
    /// Writes that were not synced and of which some sectors are left.
    pub writes_torn: u64,
}

#[derive(Clone, Default)]
struct Segment {
    written: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Range<usize>>,
    /// What was unsynced when the power went or a sync failed: written anew, it may change.
    torn: Vec<Range<usize>>,
    is_sealed: bool,
    is_poisoned: bool,
}

impl MemStore {
    /// An empty store without limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the store hold at most `bytes`.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity_bytes = Some(bytes);
    }

    /// Lets `after` more calls of kind `action` through and fails the next one.
    pub fn fail(&self, action: Action, after: u64, fault: Fault) {
        self.0.lock().faults.insert(action, (after, fault));
    }

    /// What faults and crashes have done so far.
    pub fn losses(&self) -> Losses {
        self.0.lock().losses
    }

    /// Loses power: what was not durable is lost, kept or torn at sectors, as `seed` has it.
    pub fn crash(&self, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let mut memory = self.0.lock();
        memory.faults.clear();
        for (segment, content) in std::mem::take(&mut memory.removed) {
            if rng.bool() {
                memory.segments.insert(segment, content);
            }
        }
        let Memory { segments, losses, .. } = &mut *memory;
        for segment in segments.values_mut() {
            segment.lose_unsynced(&mut rng, losses);
            segment.written = segment.durable.clone();
            segment.is_poisoned = false;
        }
    }

    /// All processes that use it end, and others come: these know of no failed sync, and read what it was to cover.
    pub fn forget_failures(&self) {
        self.0.lock().segments.values_mut().for_each(|segment| segment.is_poisoned = false);
    }

    /// Flips a bit of a stored byte, as a bad disk does.
    pub fn corrupt(&self, segment: SegmentId, offset: u64) {
        if let Some(segment) = self.0.lock().segments.get_mut(&segment) {
            for bytes in [&mut segment.written, &mut segment.durable] {
                if let Some(byte) = bytes.get_mut(offset as usize) {
                    *byte ^= 1;
                }
            }
        }
    }
}

impl Memory {
    fn segment(&mut self, segment: SegmentId) -> Result<&mut Segment, ChunkError> {
        self.segments.get_mut(&segment).ok_or(ChunkError::Missing { segment })
    }

    /// The fault that is due for this call, if any.
    fn fault(&mut self, action: Action) -> Option<Fault> {
        let (after, fault) = self.faults.get_mut(&action)?;
        if *after > 0 {
            *after -= 1;
            return None;
        }
        let fault = *fault;
        self.faults.remove(&action);
        self.losses.failures += 1;
        Some(fault)
    }

    fn check_fault(&mut self, action: Action, segment: SegmentId) -> Result<(), ChunkError> {
        self.fault(action).map_or(Ok(()), |fault| Err(fault.into_error(action, segment)))
    }

    fn used_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.written.len() as u64).sum()
    }
}

impl Segment {
    /// Whether these bytes would change durable ones, other than what a loss of power left of a write.
    fn changes_durable(&self, offset: usize, bytes: &[u8]) -> bool {
        let durable = self.durable.iter().skip(offset).zip(bytes);
        let is_torn = |at: usize| self.torn.iter().any(|range| range.contains(&at));
        durable.enumerate().any(|(at, (old, new))| old != new && !is_torn(offset + at))
    }

    /// Whether these bytes are there already, durably.
    fn has_durable(&self, offset: usize, bytes: &[u8]) -> bool {
        self.durable.get(offset..offset + bytes.len()) == Some(bytes)
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.written.len() < end {
            self.written.resize(end, 0);
        }
        self.written[offset..end].copy_from_slice(bytes);
        self.unsynced.push(offset..end);
    }

    /// Makes all that was written durable.
    fn sync(&mut self) {
        for range in std::mem::take(&mut self.unsynced) {
            self.make_durable(range);
        }
    }

    fn make_durable(&mut self, range: Range<usize>) {
        if self.durable.len() < range.end {
            self.durable.resize(range.end, 0);
        }
        self.durable[range.clone()].copy_from_slice(&self.written[range]);
    }

    /// Of each unsynced write all, nothing or some sectors become durable.
    fn lose_unsynced(&mut self, rng: &mut Rng, losses: &mut Losses) {
        self.torn.extend_from_slice(&self.unsynced);
        for range in std::mem::take(&mut self.unsynced) {
            let kept_of_16 = *rng.choice(&[0, 8, 15, 16]).unwrap_or(&0);
            let mut start = range.start;
            let (mut kept, mut lost) = (0, 0);
            while start < range.end {
                let end = (start + 1).next_multiple_of(SECTOR).min(range.end);
                if rng.u32(0..16) < kept_of_16 {
                    self.make_durable(start..end);
                    kept += 1;
                } else {
                    lost += 1;
                }
                start = end;
            }
            losses.writes_lost += u64::from(kept == 0);
            losses.writes_torn += u64::from(kept > 0 && lost > 0);
        }
    }
}

impl SegmentStore for MemStore {
    fn create(&self, segment: SegmentId) -> Result<(), ChunkError> {
        let mut memory = self.0.lock();
        memory.check_fault(Action::Create, segment)?;
        if memory.segments.contains_key(&segment) {
            return Err(ChunkError::Exists { segment });
        }
        memory.removed.clear();
        memory.segments.insert(segment, Segment::default());
        Ok(())
    }

    fn write_at(&self, segment: SegmentId, offset: u64, data: &[IoSlice<'_>]) -> Result<(), ChunkError> {
        let mut bytes: Vec<u8> = data.iter().flat_map(|part| part.iter().copied()).collect();
        let mut memory = self.0.lock();
        let (used, capacity) = (memory.used_bytes(), memory.capacity_bytes);
        let mut fault = memory.fault(Action::Write);
        let content = memory.segment(segment)?;
        let end = offset as usize + bytes.len();
        let has_durable = content.has_durable(offset as usize, &bytes);
        if content.is_sealed && !has_durable || content.changes_durable(offset as usize, &bytes) {
            return Err(ChunkError::Overwrite { segment, offset });
        }
        if content.is_poisoned {
            return Err(ChunkError::Poisoned { action: Action::Write, segment });
        }
        let grows = end.saturating_sub(content.written.len()) as u64;
        let is_full = capacity.is_some_and(|capacity| used + grows > capacity);
        if is_full {
            fault = Some(Fault::Full);
        }
        if fault.is_some() {
            bytes.truncate(bytes.len() / 2);
        }
        if !has_durable {
            content.write(offset as usize, &bytes);
        }
        memory.losses.failures += u64::from(is_full);
        fault.map_or(Ok(()), |fault| Err(fault.into_error(Action::Write, segment)))
    }

    fn read_at(
        &self,
        segment: SegmentId,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<(), ChunkError> {
        let mut memory = self.0.lock();
        memory.check_fault(Action::Read, segment)?;
        let content = memory.segment(segment)?;
        let mut at = offset as usize;
        for part in parts {
            let Some(bytes) = content.written.get(at..at + part.len()) else {
                return Err(ChunkError::Damaged { segment, offset, what: Damage::EndsEarly });
            };
            part.copy_from_slice(bytes);
            at += part.len();
        }
        Ok(())
    }

    fn sync(&self, segment: SegmentId) -> Result<(), ChunkError> {
        let mut memory = self.0.lock();
        let fault = memory.fault(Action::Sync);
        let Memory { segments, losses, .. } = &mut *memory;
        let content = segments.get_mut(&segment).ok_or(ChunkError::Missing { segment })?;
        if content.is_poisoned {
            return Err(ChunkError::Poisoned { action: Action::Sync, segment });
        }
        if let Some(fault) = fault {
            // The kernel marks pages clean whose write-back failed: they read well and are never written.
            content.is_poisoned = true;
            content.lose_unsynced(&mut Rng::with_seed(segment.0), losses);
            return Err(fault.into_error(Action::Sync, segment));
        }
        content.sync();
        Ok(())
    }

    fn seal(&self, segment: SegmentId, len: u64) -> Result<(), ChunkError> {
        let mut memory = self.0.lock();
        memory.check_fault(Action::Seal, segment)?;
        let content = memory.segment(segment)?;
        if (content.durable.len() as u64) < len {
            return Err(ChunkError::Damaged { segment, offset: len, what: Damage::EndsEarly });
        }
        content.written.truncate(len as usize);
        content.durable.truncate(len as usize);
        content.unsynced.clear();
        content.is_sealed = true;
        Ok(())
    }

    fn delete(&self, segment: SegmentId) -> Result<(), ChunkError> {
        let mut memory = self.0.lock();
        memory.check_fault(Action::Delete, segment)?;
        let content = memory.segments.remove(&segment).ok_or(ChunkError::Missing { segment })?;
        memory.removed.insert(segment, content);
        Ok(())
    }

    fn forget(&self, segment: SegmentId) {
        if let Some(content) = self.0.lock().segments.get_mut(&segment) {
            content.is_poisoned = false;
        }
    }

    fn segment_len(&self, segment: SegmentId) -> Result<u64, ChunkError> {
        Ok(self.0.lock().segment(segment)?.written.len() as u64)
    }

    fn list(&self) -> Result<Vec<(SegmentId, u64)>, ChunkError> {
        let memory = self.0.lock();
        Ok(memory
            .segments
            .iter()
            .map(|(segment, content)| (*segment, content.written.len() as u64))
            .collect())
    }

    fn space(&self) -> Result<Space, ChunkError> {
        let memory = self.0.lock();
        let total_bytes = memory.capacity_bytes.unwrap_or(1 << 50);
        Ok(Space { free_bytes: total_bytes.saturating_sub(memory.used_bytes()), total_bytes })
    }
}

impl Fault {
    fn into_error(self, action: Action, segment: SegmentId) -> ChunkError {
        match self {
            Self::Full => ChunkError::Full { action, segment },
            Self::Io => ChunkError::Io { action, segment, source: io::Error::from_raw_os_error(EIO) },
        }
    }
}

/// What a disk writes whole.
const SECTOR: usize = 512;

const EIO: i32 = 5;
