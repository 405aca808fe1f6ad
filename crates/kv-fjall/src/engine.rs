//! The engine: commits, syncs and reads of an opened volume.
//!
//! Lock order: `ahead`, then `syncer`, then `writer`. None is taken by a read, and by a sync only `syncer`. `failed` is a leaf.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use fjall::{AbstractTree, Database, Keyspace, PersistMode, Readable, Snapshot, UserValue};
use kv::{
    Batch, Claim, Direction, Engine, EngineError, FileWitness, Generation, KeyRange, Mark, Pace, Page,
    RESERVED_KEY, Reserved, Result, ScanLimit, Seq, TakeEntry, Witness,
};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    Options,
    ahead::Ahead,
    failure::{During, explain_background, guarded},
    journal::JournalSync,
    lock::VolumeLock,
    manifest,
    open::{self, Opened, Unmerged},
    retire, unmerged,
};

/// A volume in a directory, on fjall.
pub struct FjallEngine {
    // fjall ends, waiting for its threads, before `_lock` gives the volume free.
    keyspace: Keyspace,
    database: Database,
    engine_dir: PathBuf,
    dir: PathBuf,
    options: Options,
    unmerged: Option<Unmerged>,
    generation: Generation,
    /// Held while a batch is written.
    writer: Mutex<Sealing>,
    last_seq: AtomicU64,
    /// Held while a sync runs: those that wait find their batch durable when they get it.
    syncer: Mutex<Syncer>,
    /// Bytes of batches since the last sync, about.
    unsynced_bytes: AtomicU64,
    zeros: AheadState,
    /// A second view of the witness, so that a commit need not wait for a sync.
    fence: FileWitness,
    /// The first failure of a write. Never cleared.
    failed: Mutex<Option<Failed>>,
    _lock: VolumeLock,
}

struct Syncer {
    journal: JournalSync,
    witness: FileWitness,
    durable: Seq,
}

/// Zeros ahead in the journal.
struct AheadState {
    /// Locked while some are written.
    ahead: Mutex<Ahead>,
    /// Bytes of batches that it was not told of yet: who syncs them does not wait for it.
    written: AtomicU64,
    /// Whether they are of use: the last sync was one of little.
    is_of_use: AtomicBool,
}

impl AheadState {
    fn note_synced(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::AcqRel);
        self.is_of_use.store(bytes <= SMALL_SYNC, Ordering::Release);
    }

    /// Whether more are to be written.
    fn is_wanted(&self, ahead: &mut Ahead) -> bool {
        ahead.note_written(self.written.swap(0, Ordering::AcqRel));
        self.is_of_use.load(Ordering::Acquire) && ahead.is_low()
    }
}

/// When the memtable that batches go to is sealed, for fjall's thread to flush.
///
/// fjall has one sealed by that thread, and asks it with every batch that finds the memtable full. Its queue holds a thousand messages: after as many
/// batches during one compaction the thread waits for room in it, which nobody but itself makes. So it is sealed here, before it is full.
struct Sealing {
    /// From how many bytes on, and the least that this becomes.
    from: u64,
    least: u64,
    /// The memtable that the last batch went to, and what was in it then.
    written: Option<(u64, u64)>,
}

/// Why no more writes are taken.
enum Failed {
    Fenced { stored: Generation },
    Poisoned { since: String },
}

impl Sealing {
    fn new(memtable_bytes: u64) -> Self {
        let least = (memtable_bytes / 8).min(MEMTABLE_MIN / 4 * 3);
        Self { from: memtable_bytes / 4 * 3, least, written: None }
    }

    /// Whether a memtable is to be sealed.
    fn is_due(&mut self, memtable: u64, bytes: u64) -> bool {
        if let Some((written, had)) = self.written.take()
            && written != memtable
        {
            // fjall was first: it keeps to the size that it was made with, on a smaller disk perhaps, and that was more.
            self.from = self.from.min(had / 4 * 3).max(self.least);
        }
        bytes >= self.from
    }
}

impl FjallEngine {
    /// Opens the volume in `dir`, or creates it, and claims it.
    ///
    /// Reads the journals twice, ours and fjall's reading; see [`Options::memtable_bytes`].
    ///
    /// # Errors
    ///
    /// `Unavailable` where another process has it open; `Fenced`; `Behind` and `Corrupt` where it is damaged;
    /// `Full`, `Io`. A volume that was refused can be looked at again: nothing synced is removed.
    pub fn open(dir: &Path, options: Options, claim: Claim) -> Result<Self> {
        let opened = open_explained(dir, options, claim)?;
        let witness_path = open::witness_path(dir);
        let Some(fence) = FileWitness::open(&witness_path)? else {
            return Err(EngineError::corrupt("the witness vanished", witness_path));
        };
        let engine_dir = open::engine_dir(dir);
        let syncer = Syncer {
            journal: JournalSync::new(engine_dir.clone()),
            witness: opened.witness,
            durable: opened.last,
        };
        Ok(Self {
            keyspace: opened.keyspace,
            database: opened.database,
            engine_dir,
            dir: dir.to_owned(),
            options,
            unmerged: opened.unmerged,
            generation: claim.generation,
            writer: Mutex::new(Sealing::new(options.memtable_bytes)),
            last_seq: AtomicU64::new(opened.last.0),
            syncer: Mutex::new(syncer),
            unsynced_bytes: AtomicU64::new(0),
            zeros: AheadState {
                ahead: Mutex::new(opened.ahead),
                written: AtomicU64::new(0),
                is_of_use: AtomicBool::new(false),
            },
            fence,
            failed: Mutex::new(None),
            _lock: opened.lock,
        })
    }

    /// Refuses after a failure, and once a later generation stands in the witness.
    fn check_writable(&self) -> Result<()> {
        self.refuse_if_failed()?;
        let stored = self.fence.stored_generation()?;
        if stored > self.generation {
            self.failed.lock().get_or_insert(Failed::Fenced { stored });
        }
        self.refuse_if_failed()
    }

    fn refuse_if_failed(&self) -> Result<()> {
        match &*self.failed.lock() {
            None => Ok(()),
            Some(Failed::Fenced { stored }) => {
                Err(EngineError::Fenced { stored: *stored, claimed: self.generation })
            }
            Some(Failed::Poisoned { since }) => Err(EngineError::Poisoned { since: since.clone() }),
        }
    }

    /// Poisons the handle and returns the error to answer.
    fn poison(&self, error: EngineError) -> EngineError {
        let error = explain(error, &self.dir, self.options);
        self.failed.lock().get_or_insert_with(|| Failed::Poisoned { since: error.to_string() });
        error
    }

    /// Waits until fjall's background work has caught up enough to take a batch.
    ///
    /// fjall's own waits, at 4 sealed memtables and at 30 runs, have no end when its threads died; so ours
    /// begin earlier. One batch seals at most one memtable more, and only one writes at a time.
    fn wait_for_room(&self) -> Result<()> {
        if let Some(why) = &self.unmerged {
            return self.make_room(why);
        }
        let mut waits = 0_u32;
        while self.keyspace.sealed_memtable_count() >= 3 || self.keyspace.tree.l0_run_count() >= 20 {
            if waits.is_multiple_of(100) {
                self.check_background()?;
            }
            if waits == WAITS_MAX {
                let what = format!("flushes and compactions made no room for {WAITS_MAX} ms");
                return Err(EngineError::Unavailable { what, source: None });
            }
            waits += 1;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Without fjall's threads: flushes what is sealed.
    fn make_room(&self, why: &Unmerged) -> Result<()> {
        if self.keyspace.sealed_memtable_count() > 0 {
            retire::flush_sealed(&self.database, &self.keyspace, &self.engine_dir)?;
        }
        match why {
            Unmerged::Damaged(table) if self.keyspace.tree.l0_run_count() >= unmerged::RUNS_MAX => {
                let what = "table is damaged, and no more can be written beside it: copy what can be read";
                Err(EngineError::corrupt(what, table))
            }
            _ => Ok(()),
        }
    }

    /// Fails if fjall has poisoned itself. A sync of its own that failed may have been the only one to be told of the failure. Writes nothing.
    fn check_background(&self) -> Result<()> {
        guarded(During::Write, "waiting for flushes", &self.engine_dir, || {
            self.database.persist(PersistMode::Buffer)
        })
    }

    /// Seals the memtable if it is nearly full.
    fn seal(&self, sealing: &mut Sealing) -> Result<()> {
        let memtable = self.keyspace.tree.active_memtable();
        if sealing.is_due(memtable.id(), memtable.size()) {
            guarded(During::Write, "sealing a memtable", &self.engine_dir, || {
                self.keyspace.rotate_memtable()
            })?;
        }
        Ok(())
    }

    fn write(&self, batch: Batch, sealing: &mut Sealing) -> Result<()> {
        self.seal(sealing)?;
        self.wait_for_room()?;
        let seq = batch.seq;
        let mut contents_crc = 0;
        for (key, value) in &batch.puts {
            contents_crc = Reserved::contents_crc(contents_crc, key, Some(value));
        }
        for key in &batch.deletes {
            contents_crc = Reserved::contents_crc(contents_crc, key, None);
        }
        let reserved = Reserved { seq, generation: self.generation, contents_crc };
        let memtable = self.keyspace.tree.active_memtable();
        let puts = batch.puts.iter().map(|(key, value)| key.len() + value.len());
        let bytes: usize = puts.chain(batch.deletes.iter().map(Vec::len)).map(|len| len + ITEM_BYTES).sum();
        self.unsynced_bytes.fetch_add((bytes + BATCH_BYTES) as u64, Ordering::AcqRel);
        guarded(During::Write, "writing a batch", &self.engine_dir, || {
            let count = batch.puts.len() + batch.deletes.len() + 1;
            let mut writes = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), count)
                .durability(Some(PersistMode::Buffer));
            for (key, value) in batch.puts {
                writes.insert(&self.keyspace, key, value);
            }
            for key in batch.deletes {
                writes.remove(&self.keyspace, key);
            }
            writes.insert(&self.keyspace, RESERVED_KEY, reserved.encode());
            writes.commit()
        })?;
        sealing.written = Some((memtable.id(), memtable.size()));
        self.last_seq.store(seq.0, Ordering::Release);
        Ok(())
    }

    fn read_at(&self, snapshot: &Snapshot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if key.is_empty() || key == RESERVED_KEY {
            return Ok(None);
        }
        let value = guarded(During::Read, "reading a record", &self.engine_dir, || {
            snapshot.get(&self.keyspace, key)
        })?;
        Ok(value.map(|value: UserValue| value.to_vec()))
    }
}

impl Engine for FjallEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read_at(&self.database.snapshot(), key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let snapshot = self.database.snapshot();
        keys.iter().map(|key| self.read_at(&snapshot, key)).collect()
    }

    fn scan(&self, range: &KeyRange, limit: ScanLimit, direction: Direction) -> Result<Page> {
        if range.is_empty() {
            return Ok(Page::default());
        }
        let mut iter = self.database.snapshot().range(&self.keyspace, &range.start[..]..&range.end[..]);
        let entries = std::iter::from_fn(|| {
            loop {
                let entry = guarded(During::Read, "scanning", &self.engine_dir, || {
                    let guard = match direction {
                        Direction::Forward => iter.next(),
                        Direction::Backward => iter.next_back(),
                    };
                    guard.map(fjall::Guard::into_inner).transpose()
                });
                match entry {
                    Ok(Some((key, _))) if *key == *RESERVED_KEY => {}
                    Ok(entry) => return entry.map(|(key, value)| Ok((key.to_vec(), value.to_vec()))),
                    Err(error) => return Some(Err(error)),
                }
            }
        });
        Page::collect(entries, limit)
    }

    fn snapshot(&self, take: &mut TakeEntry<'_>) -> Result<()> {
        let mut records = self.database.snapshot().iter(&self.keyspace);
        loop {
            let entry = guarded(During::Read, "reading a snapshot", &self.engine_dir, || {
                records.next().map(fjall::Guard::into_inner).transpose()
            })?;
            match entry {
                Some((key, _)) if *key == *RESERVED_KEY => {}
                Some((key, value)) if take(&key, &value) => {}
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn last_seq(&self) -> Seq {
        Seq(self.last_seq.load(Ordering::Acquire))
    }

    fn commit(&self, batch: Batch) -> Result<()> {
        let mut sealing = self.writer.lock();
        self.check_writable()?;
        batch.check(self.last_seq())?;
        self.write(batch, &mut sealing).map_err(|error| self.poison(error))
    }

    fn sync(&self) -> Result<Seq> {
        let asked = self.last_seq();
        let mut syncer = self.syncer.lock();
        self.check_writable()?;
        if syncer.durable >= asked {
            return Ok(syncer.durable);
        }
        let seq = self.last_seq();
        let bytes = self.unsynced_bytes.swap(0, Ordering::AcqRel);
        self.zeros.note_synced(bytes);
        let syncer = &mut *syncer;
        let mark = Mark { seq, generation: self.generation };
        syncer
            .journal
            .sync()
            .and_then(|()| self.check_background())
            .and_then(|()| syncer.witness.note(mark))
            .map_err(|error| self.poison(error))?;
        syncer.durable = seq;
        Ok(seq)
    }

    fn is_unprepared(&self) -> bool {
        // Whoever has it locked prepares.
        self.zeros.ahead.try_lock().is_some_and(|mut ahead| self.zeros.is_wanted(&mut ahead))
    }

    fn prepare(&self) -> Result<()> {
        let mut ahead = self.zeros.ahead.lock();
        if !self.zeros.is_wanted(&mut ahead) {
            return Ok(());
        }
        while !ahead.is_full() {
            self.refuse_if_failed()?;
            let filled = {
                let writer = self.writer.lock();
                let filled = ahead.fill();
                // Whoever waits to commit goes before the next piece.
                MutexGuard::unlock_fair(writer);
                filled
            };
            match filled {
                Ok(None) => return Ok(()),
                Ok(Some(filled)) => {
                    let _syncer = filled.must_sync().then(|| self.syncer.lock());
                    filled.settle().map_err(|source| {
                        self.poison(EngineError::write("syncing the journal", &self.engine_dir, source))
                    })?;
                }
                // What cannot be written now costs time alone.
                Err(error) => {
                    log::debug!("no room ahead in the journal: {error}");
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        let mut syncer = self.syncer.lock();
        if syncer.witness.is_settled() {
            return Ok(());
        }
        self.refuse_if_failed()?;
        syncer.witness.settle().map_err(|error| self.poison(error))
    }

    fn disk_bytes(&self) -> Result<u64> {
        allocated_bytes(&self.dir).map_err(|source| EngineError::Io {
            what: "measuring the volume",
            path: self.dir.clone(),
            source,
        })
    }

    fn verify(&self, pace: &mut Pace<'_>) -> Result<Vec<EngineError>> {
        manifest::verify(&self.engine_dir, pace)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()?;
        self.settle()?;
        let newest = Reserved { seq: self.last_seq(), generation: self.generation, contents_crc: 0 };
        let Self { keyspace, database, engine_dir, unmerged, _lock, .. } = *self;
        // Everything is durable: what fails now costs the next opening time alone.
        if let Err(error) = retire::end(database, keyspace, &engine_dir, &newest, unmerged.is_none()) {
            log::warn!("journals are left to read: {error}");
        }
        Ok(())
    }
}

/// Opens; once more, without fjall's threads, where these meet a damaged table at once.
fn open_explained(dir: &Path, options: Options, claim: Claim) -> Result<Opened> {
    let is_noted = unmerged::known_damage(dir).is_some();
    match open::open(dir, options, claim).map_err(|error| explain(error, dir, options)) {
        Err(_) if !is_noted && unmerged::known_damage(dir).is_some() => open::open(dir, options, claim),
        result => result,
    }
}

/// Puts the cause in the place of what fjall says when its own thread failed before a call of ours. If that is a damaged table, the next opening
/// goes on without such threads.
fn explain(error: EngineError, dir: &Path, options: Options) -> EngineError {
    let EngineError::Poisoned { .. } = error else { return error };
    let cause = explain_background(&open::engine_dir(dir), options.memtable_bytes);
    match unmerged::note(dir, &cause) {
        true => EngineError::Unavailable {
            what: "a compaction met a damaged table: to be opened again, without any".to_owned(),
            source: Some(cause.into()),
        },
        false => cause,
    }
}

/// Adds up the allocated blocks below `dir`. Files that vanish meanwhile count nothing.
fn allocated_bytes(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => sum += allocated_bytes(&entry.path())?,
            Ok(metadata) => sum += metadata.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

/// Memtables of volumes on small file systems have as much.
const MEMTABLE_MIN: u64 = 1 << 20;

/// Bytes of a journal for a batch beside its records, the reserved one included, and for a record beside key and value.
const BATCH_BYTES: usize = 80;
const ITEM_BYTES: usize = 21;

/// A sync of more takes its time anyway.
const SMALL_SYNC: u64 = 128 << 10;

/// Longest wait for background work, in waits of a millisecond.
const WAITS_MAX: u32 = 60_000;
