//! Engine in memory that separates committed from durable, for tests and the simulation.
//!
//! A [`MemDisk`] is what a crash leaves; a [`MemEngine`] is one opening of it. Nothing here is random: what a
//! crash keeps follows from its seed.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::PathBuf,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    Batch, Claim, Direction, Engine, EngineError, Generation, KeyRange, Pace, Page, Result, ScanLimit, Seq,
    TakeEntry,
};

/// A volume in memory. Clones are the same volume.
#[derive(Clone, Debug, Default)]
pub struct MemDisk {
    state: Arc<Mutex<State>>,
}

/// One opening of a [`MemDisk`], under a generation.
#[derive(Debug)]
pub struct MemEngine {
    state: Arc<Mutex<State>>,
    generation: Generation,
    /// Openings of before a crash are dead, as their process is.
    crash_count: u64,
    poisoned: Mutex<Option<String>>,
}

/// Which call of an engine an injected failure hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Engine::commit`]; the batch is not applied.
    Commit,
    /// [`Engine::sync`]; nothing becomes durable.
    Sync,
}

/// How an injected failure looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No space left.
    Full,
    /// Error of the device.
    Io,
}

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    seq: Seq,
    generation: Generation,
    /// Batches committed after the last sync, oldest first.
    undo: VecDeque<Undo>,
    crash_count: u64,
    failures: VecDeque<(Operation, Failure)>,
    /// Whether a fenced opening is let through this time.
    #[cfg(feature = "planted")]
    gap: Option<fn() -> bool>,
}

/// What a batch replaced.
#[derive(Debug)]
struct Undo {
    before: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl MemDisk {
    /// Makes an empty volume.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the volume; fences every earlier opening.
    ///
    /// # Errors
    ///
    /// `Fenced` unless the claim's generation is greater than all before.
    pub fn open(&self, claim: Claim) -> Result<MemEngine> {
        let mut state = self.state.lock();
        if claim.generation <= state.generation {
            return Err(EngineError::Fenced { stored: state.generation, claimed: claim.generation });
        }
        state.generation = claim.generation;
        Ok(MemEngine {
            state: Arc::clone(&self.state),
            generation: claim.generation,
            crash_count: state.crash_count,
            poisoned: Mutex::new(None),
        })
    }

    /// Loses power: all openings are dead, and of the batches after the last sync a prefix stays whose
    /// length follows from `seed`. Returns the last batch that is left.
    pub fn crash(&self, seed: u64) -> Seq {
        let mut state = self.state.lock();
        let kept = mix(seed) % (state.undo.len() as u64 + 1);
        while state.undo.len() as u64 > kept {
            state.take_back();
        }
        state.end_openings();
        state.seq
    }

    /// Kills the process: all openings are dead, every committed batch stays.
    pub fn kill(&self) -> Seq {
        let mut state = self.state.lock();
        state.end_openings();
        state.seq
    }

    /// Lets the next `operation` fail; several wait in line, each kind in its order.
    pub fn fail_next(&self, operation: Operation, failure: Failure) {
        self.state.lock().failures.push_back((operation, failure));
    }

    /// Has fenced openings let through whenever `gap` says so.
    #[cfg(feature = "planted")]
    pub fn leave_gap(&self, gap: fn() -> bool) {
        self.state.lock().gap = Some(gap);
    }

    /// Lets nothing fail any more that was to.
    pub fn fail_no_more(&self) {
        self.state.lock().failures.clear();
    }

    /// Returns the last batch that a crash cannot take back.
    pub fn durable_seq(&self) -> Seq {
        let state = self.state.lock();
        Seq(state.seq.0 - state.undo.len() as u64)
    }
}

impl State {
    fn apply(&mut self, batch: Batch) {
        let mut before = Vec::with_capacity(batch.puts.len() + batch.deletes.len());
        for (key, value) in batch.puts {
            let old = self.records.insert(key.clone(), value);
            before.push((key, old));
        }
        for key in batch.deletes {
            let old = self.records.remove(&key);
            before.push((key, old));
        }
        self.undo.push_back(Undo { before });
        self.seq = batch.seq;
    }

    fn take_back(&mut self) {
        let Some(undo) = self.undo.pop_back() else { return };
        for (key, old) in undo.before {
            match old {
                Some(value) => self.records.insert(key, value),
                None => self.records.remove(&key),
            };
        }
        self.seq = Seq(self.seq.0 - 1);
    }

    /// What is left after a restart is on the medium: it cannot be lost by the next crash.
    fn end_openings(&mut self) {
        self.undo.clear();
        self.failures.clear();
        self.crash_count += 1;
    }

    fn take_failure(&mut self, operation: Operation) -> Option<Failure> {
        let index = self.failures.iter().position(|(at, _)| *at == operation)?;
        self.failures.remove(index).map(|(_, failure)| failure)
    }
}

impl MemEngine {
    fn check_alive(&self, state: &State) -> Result<()> {
        if state.crash_count == self.crash_count {
            return Ok(());
        }
        Err(EngineError::Unavailable { what: "the volume crashed under this engine".into(), source: None })
    }

    /// Checks that this opening may still write.
    fn check_writable(&self, state: &State) -> Result<()> {
        self.check_alive(state)?;
        #[cfg(feature = "planted")]
        if state.generation != self.generation && state.gap.is_some_and(|gap| gap()) {
            return Ok(());
        }
        if state.generation != self.generation {
            return Err(EngineError::Fenced { stored: state.generation, claimed: self.generation });
        }
        match &*self.poisoned.lock() {
            Some(since) => Err(EngineError::Poisoned { since: since.clone() }),
            None => Ok(()),
        }
    }

    /// Fails, and poisons, where a failure was injected.
    fn fail_if_injected(&self, state: &mut State, operation: Operation) -> Result<()> {
        let Some(failure) = state.take_failure(operation) else { return Ok(()) };
        let what = match operation {
            Operation::Commit => "writing a batch",
            Operation::Sync => "syncing",
        };
        let kind = match failure {
            Failure::Full => io::ErrorKind::StorageFull,
            Failure::Io => io::ErrorKind::Other,
        };
        let error = EngineError::write(what, PathBuf::from("memory"), io::Error::from(kind));
        *self.poisoned.lock() = Some(error.to_string());
        Err(error)
    }
}

impl Engine for MemEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let state = self.state.lock();
        self.check_alive(&state)?;
        Ok(state.records.get(key).cloned())
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let state = self.state.lock();
        self.check_alive(&state)?;
        Ok(keys.iter().map(|key| state.records.get(*key).cloned()).collect())
    }

    fn scan(&self, range: &KeyRange, limit: ScanLimit, direction: Direction) -> Result<Page> {
        let state = self.state.lock();
        self.check_alive(&state)?;
        if range.is_empty() {
            return Ok(Page::default());
        }
        let entries = state.records.range::<Vec<u8>, _>(&range.start..&range.end);
        let entries = entries.map(|(key, value)| Ok((key.clone(), value.clone())));
        match direction {
            Direction::Forward => Page::collect(entries, limit),
            Direction::Backward => Page::collect(entries.rev(), limit),
        }
    }

    fn snapshot(&self, take: &mut TakeEntry<'_>) -> Result<()> {
        let state = self.state.lock();
        self.check_alive(&state)?;
        let records = state.records.clone();
        drop(state);
        records.iter().all(|(key, value)| take(key, value));
        Ok(())
    }

    fn last_seq(&self) -> Seq {
        self.state.lock().seq
    }

    fn commit(&self, batch: Batch) -> Result<()> {
        let mut state = self.state.lock();
        self.check_writable(&state)?;
        batch.check(state.seq)?;
        self.fail_if_injected(&mut state, Operation::Commit)?;
        state.apply(batch);
        Ok(())
    }

    fn sync(&self) -> Result<Seq> {
        let mut state = self.state.lock();
        self.check_writable(&state)?;
        self.fail_if_injected(&mut state, Operation::Sync)?;
        state.undo.clear();
        Ok(state.seq)
    }

    fn disk_bytes(&self) -> Result<u64> {
        let state = self.state.lock();
        self.check_alive(&state)?;
        Ok(state.records.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum())
    }

    /// Memory has no checksums.
    fn verify(&self, _: &mut Pace<'_>) -> Result<Vec<EngineError>> {
        Ok(Vec::new())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync().map(|_| ())
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): near seeds give unrelated numbers.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(seq: u64) -> Batch {
        let put = (b"last".to_vec(), seq.to_be_bytes().to_vec());
        Batch { puts: vec![put, (seq.to_be_bytes().to_vec(), vec![1])], ..Batch::new(Seq(seq)) }
    }

    fn crashed(seed: u64) -> (Seq, MemEngine) {
        let disk = MemDisk::new();
        let engine = disk.open(Claim::new(1)).unwrap();
        for seq in 1..=10 {
            engine.commit(batch(seq)).unwrap();
            if seq == 4 {
                assert_eq!(engine.sync().unwrap(), Seq(4));
            }
        }
        let left = disk.crash(seed);
        assert!(matches!(engine.commit(batch(11)), Err(EngineError::Unavailable { .. })));
        (left, disk.open(Claim::new(2)).unwrap())
    }

    #[test]
    fn a_crash_keeps_a_prefix_at_or_after_the_last_sync() {
        let mut seen = [false; 11];
        for seed in 0..200 {
            let (left, engine) = crashed(seed);
            assert!((4..=10).contains(&left.0));
            assert_eq!(engine.last_seq(), left);
            assert_eq!(engine.get(b"last").unwrap(), Some(left.0.to_be_bytes().to_vec()));
            for seq in 1..=10_u64 {
                assert_eq!(engine.get(&seq.to_be_bytes()).unwrap().is_some(), seq <= left.0);
            }
            seen[left.0 as usize] = true;
        }
        assert!(seen[4..].iter().all(|seen| *seen), "every prefix occurs");
    }

    #[test]
    fn the_same_seed_keeps_the_same_prefix() {
        assert_eq!(crashed(42).0, crashed(42).0);
    }

    #[test]
    fn an_older_opening_is_fenced_by_a_newer_one() {
        let disk = MemDisk::new();
        let old = disk.open(Claim::new(1)).unwrap();
        let new = disk.open(Claim::new(2)).unwrap();
        assert!(matches!(old.commit(batch(1)), Err(EngineError::Fenced { .. })));
        assert!(matches!(old.sync(), Err(EngineError::Fenced { .. })));
        new.commit(batch(1)).unwrap();
    }
}
