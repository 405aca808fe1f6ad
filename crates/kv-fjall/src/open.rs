//! Opening: what must be there, what the journals hold, then fjall, then the claim.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use fjall::config::PartitioningPolicy;
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use kv::{Claim, EngineError, FileWitness, Mark, RESERVED_KEY, Reserved, Result, Seq, Witness};

use crate::{
    Options,
    ahead::Ahead,
    descriptor,
    failure::{During, guarded},
    journal::{self, Contents},
    lock::VolumeLock,
    manifest, unmerged,
};

/// An opened and claimed volume.
pub(crate) struct Opened {
    // Dropped in this order: fjall ends before the lock is given free.
    pub keyspace: Keyspace,
    pub database: Database,
    pub witness: FileWitness,
    pub last: Seq,
    pub ahead: Ahead,
    /// Why nothing is merged, if that is so.
    pub unmerged: Option<Unmerged>,
    pub lock: VolumeLock,
}

/// Why nothing is merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unmerged {
    /// It was not wanted.
    AsAsked,
    /// This table is damaged.
    Damaged(PathBuf),
}

pub(crate) fn open(dir: &Path, options: Options, claim: Claim) -> Result<Opened> {
    let io_error = |what, path: &Path, source| EngineError::write(what, path, source);
    create(dir).map_err(|source| io_error("creating the volume", dir, source))?;
    let lock = VolumeLock::acquire(&dir.join("lock"))?;
    check_marker(&dir.join(DAMAGED))?;
    let engine_dir = engine_dir(dir);
    let mut witness = open_witness(dir, &engine_dir)?;
    refuse_unless_newer(witness.mark(), claim)?;

    let is_new = witness.mark() == Mark::default();
    let contents = if is_new {
        // A creation that did not come to its end: nothing was ever answered.
        remove_if_there(&engine_dir).map_err(|source| io_error("removing", &engine_dir, source))?;
        Contents::default()
    } else {
        check_layout(&engine_dir)?;
        // Of an opening that did not come to its end.
        journal::put_back(&engine_dir)?;
        let contents = journal::check(&engine_dir, witness.mark())?;
        // The claim's sync, or that before the next journal, makes it durable.
        journal::store_again(&engine_dir, contents.newest_len)?;
        contents
    };
    let damaged = if is_new { None } else { unmerged::table(dir, &engine_dir)? };
    if let Some(table) = &damaged {
        log::error!(
            "{}: damaged; what is in it cannot be read, and as long as it is there nothing is merged and little can be written: copy what can be read",
            table.display()
        );
    }
    let unmerged = match damaged {
        Some(table) => Some(Unmerged::Damaged(table)),
        None => (!options.merges).then_some(Unmerged::AsAsked),
    };
    let options = Options { merges: unmerged.is_none(), ..options };
    if contents.newest_len >= options.journal_bytes {
        journal::begin_next(&engine_dir)?;
    }
    let aside = if is_new { None } else { journal::set_aside(&engine_dir, &contents)? };
    let found = journal::newest(&engine_dir);
    let newest = aside.as_deref().or(found.as_ref().map(|(_, path)| &**path)).unwrap_or(&engine_dir);
    let expected = (!is_new).then_some(Expected { contents, witness: witness.mark(), newest });
    let opened = open_checked(dir, &engine_dir, options, expected);
    if opened.is_err() && aside.is_some() {
        journal::put_back(&engine_dir)?;
    }
    let (database, keyspace, stored) = opened?;
    if aside.is_some() {
        journal::drop_aside(&engine_dir)?;
    }
    refuse_unless_newer(Mark { seq: stored.seq, generation: stored.generation }, claim)?;

    let claimed = Reserved { generation: claim.generation, contents_crc: 0, ..stored };
    guarded(During::Write, "writing the claim", &engine_dir, || {
        let mut batch = database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&keyspace, RESERVED_KEY, claimed.encode());
        batch.commit()
    })?;
    witness.record(Mark { seq: stored.seq, generation: claim.generation })?;
    let ahead = Ahead::new(engine_dir, found.filter(|(_, path)| !has_room_made(path)).map(|(id, _)| id));
    Ok(Opened { keyspace, database, witness, last: stored.seq, ahead, unmerged, lock })
}

/// What an engine should hold that is not new.
struct Expected<'a> {
    contents: Contents,
    witness: Mark,
    /// The journal that should have reached the witness, or the directory where there was none.
    newest: &'a Path,
}

/// Opens fjall and compares what it has with what is expected. Returns the newest reserved record, too.
fn open_checked(
    dir: &Path,
    engine_dir: &Path,
    options: Options,
    expected: Option<Expected<'_>>,
) -> Result<(Database, Keyspace, Reserved)> {
    let (database, keyspace) =
        open_fjall(engine_dir, options).map_err(|error| name_file(engine_dir, error))?;
    number_on(&database, &keyspace);
    sync_names(dir, engine_dir)?;
    let stored = match expected {
        None => Reserved::default(),
        Some(Expected { contents, witness, newest }) => {
            check_opened(&database, &keyspace, contents, witness, (engine_dir, newest))
                .map_err(|error| name_file(engine_dir, error))
                .inspect_err(|error| leave_marker(&dir.join(DAMAGED), error))?
        }
    };
    Ok((database, keyspace, stored))
}

/// Has fjall write its next batches to where the last one in `journal` ends, which is the claim. Returns whether it will.
fn has_room_made(journal: &Path) -> bool {
    descriptor::stop_appending(journal)
        .inspect_err(|error| log::debug!("{}: {error}; syncs take longer", journal.display()))
        .is_ok()
}

/// Returns where fjall's files of the volume `dir` are.
pub(crate) fn engine_dir(dir: &Path) -> PathBuf {
    dir.join("engine")
}

/// Returns where the witness of the volume `dir` is.
pub(crate) fn witness_path(dir: &Path) -> PathBuf {
    dir.join("witness")
}

/// Creates the volume's directory, durably, where there is none.
fn create(dir: &Path) -> io::Result<()> {
    if dir.try_exists()? {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Makes the names of fjall's directories durable, which fjall leaves to chance: it syncs what is in them.
///
/// Before anything in them counts, that is, before a claim is recorded in the witness.
fn sync_names(dir: &Path, engine_dir: &Path) -> Result<()> {
    for path in [&engine_dir.join("keyspaces"), engine_dir, dir] {
        File::open(path)
            .and_then(|opened| opened.sync_all())
            .map_err(|source| EngineError::write("syncing a directory", path, source))?;
    }
    Ok(())
}

fn check_marker(path: &Path) -> Result<()> {
    match fs::read_to_string(path) {
        Ok(text) => Err(EngineError::corrupt(format!("found damaged before: {text}"), path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(EngineError::Io { what: "reading", path: path.into(), source }),
    }
}

/// Remembers damage that fjall's opening may have covered up. Best effort: the error is returned in any case.
fn leave_marker(path: &Path, error: &EngineError) {
    if !matches!(error, EngineError::Corrupt { .. }) {
        return;
    }
    let written = fs::write(path, error.to_string()).and_then(|()| File::open(path)?.sync_all());
    if let Err(failure) = written {
        log::error!("could not leave {}: {failure}", path.display());
    }
}

/// Opens the witness, or creates it where the volume is new.
fn open_witness(dir: &Path, engine_dir: &Path) -> Result<FileWitness> {
    let path = witness_path(dir);
    if let Some(witness) = FileWitness::open(&path)? {
        return Ok(witness);
    }
    match engine_dir.try_exists() {
        Ok(false) => FileWitness::create(&path),
        Ok(true) => Err(EngineError::corrupt("the witness is missing beside an engine", path)),
        Err(source) => Err(EngineError::Io { what: "looking for the engine", path, source }),
    }
}

fn refuse_unless_newer(stored: Mark, claim: Claim) -> Result<()> {
    if claim.generation > stored.generation {
        return Ok(());
    }
    Err(EngineError::Fenced { stored: stored.generation, claimed: claim.generation })
}

fn remove_if_there(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Checks the files without which fjall would start anew or delete what it cannot place.
fn check_layout(engine_dir: &Path) -> Result<()> {
    for name in ["version", "lock", "keyspaces/0/current", "keyspaces/1/current"] {
        let path = engine_dir.join(name);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(EngineError::corrupt("is no file", path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(EngineError::corrupt("file is missing", path));
            }
            Err(source) => return Err(EngineError::Io { what: "looking for a file", path, source }),
        }
    }
    manifest::check(engine_dir)
}

fn open_fjall(engine_dir: &Path, options: Options) -> Result<(Database, Keyspace)> {
    guarded(During::Open, "opening fjall", engine_dir, || {
        let database = Database::builder(engine_dir)
            .cache_size(options.cache_bytes)
            .worker_threads_unchecked(if options.merges { options.worker_threads.max(1) } else { 0 })
            .open()?;
        let keyspace = database.keyspace("kv", || new_keyspace(options))?;
        Ok((database, keyspace))
    })
}

/// Settings of a new engine; one that is there keeps its own.
///
/// Tables below the newest have their index and filter in parts, of which each read loads what it needs. In one piece they are more than a MiB of
/// a large table, which whoever looks for a first key there would wait for; fjall's default is parts from the fourth level on.
fn new_keyspace(options: Options) -> KeyspaceCreateOptions {
    let in_parts = PartitioningPolicy::new([false, true]);
    KeyspaceCreateOptions::default()
        .max_memtable_size(options.memtable_bytes)
        .index_block_partitioning_policy(in_parts.clone())
        .filter_block_partitioning_policy(in_parts)
}

/// Has fjall number its batches above those in tables. It does so itself for what it reads from journals, and not where it found
/// none (`fjall:src/db.rs`, `recover`): what it wrote then would lie below older values.
fn number_on(database: &Database, keyspace: &Keyspace) {
    let next = keyspace.tree.get_highest_seqno().map_or(0, |highest| highest + 1);
    database.supervisor.seqno.fetch_max(next);
    database.supervisor.snapshot_tracker.set(database.supervisor.seqno.get());
}

/// Says which file is damaged where fjall could not read one: it does not tell.
fn name_file(engine_dir: &Path, error: EngineError) -> EngineError {
    let EngineError::Corrupt { what, path, source } = error else { return error };
    let cause = source.as_ref().and_then(|source| source.downcast_ref());
    if matches!(cause, Some(fjall::Error::JournalRecovery(_))) {
        return EngineError::Corrupt {
            what,
            path: journal::newest(engine_dir).map_or(path, |(_, newest)| newest),
            source,
        };
    }
    if matches!(cause, Some(fjall::Error::InvalidVersion(_))) {
        return EngineError::Corrupt { what, path: engine_dir.join("version"), source };
    }
    let found = manifest::verify(engine_dir, &mut |_| true).ok().and_then(|damage| damage.into_iter().next());
    found.unwrap_or(EngineError::Corrupt { what, path, source })
}

/// Compares what fjall opened with the journals and the witness; returns the newest reserved record. `newest` is the
/// journal that should have reached the witness, or the directory where there was none.
fn check_opened(
    database: &Database,
    keyspace: &Keyspace,
    contents: Contents,
    witness: Mark,
    (engine_dir, newest): (&Path, &Path),
) -> Result<Reserved> {
    if let Some(first) = contents.first {
        let flushed = flushed(keyspace, engine_dir)?.unwrap_or_default();
        if first.seq > flushed.seq.next() {
            let what = format!("batches {} to {} are in no journal", flushed.seq.next(), first.seq.0 - 1);
            return Err(EngineError::corrupt(what, engine_dir));
        }
    }
    let stored = stored(database, keyspace, engine_dir)?;
    let seq = stored.unwrap_or_default().seq;
    if seq < witness.seq {
        // The tables are whole, or fjall would not have opened: what is missing was in the journals.
        return Err(EngineError::Behind { engine_seq: seq, witness_seq: witness.seq, path: newest.into() });
    }
    let Some(stored) = stored else {
        return Err(EngineError::corrupt("the reserved record is missing", engine_dir));
    };
    if contents.last.is_some_and(|last| last.seq != stored.seq) {
        return Err(EngineError::corrupt("fjall did not replay all of its journals", engine_dir));
    }
    Ok(stored)
}

/// The newest reserved record.
pub(crate) fn stored(
    database: &Database,
    keyspace: &Keyspace,
    engine_dir: &Path,
) -> Result<Option<Reserved>> {
    read_reserved(engine_dir, || database.snapshot().get(keyspace, RESERVED_KEY))
}

/// What the tables hold, without the journals: the newest version of the reserved record that was flushed. At an opening only: later
/// fjall forgets which tables it had then.
fn flushed(keyspace: &Keyspace, engine_dir: &Path) -> Result<Option<Reserved>> {
    match keyspace.tree.get_highest_persisted_seqno() {
        None => Ok(None),
        Some(seqno) => read_reserved(engine_dir, || Ok(keyspace.tree.get(RESERVED_KEY, seqno + 1)?)),
    }
}

fn read_reserved(
    engine_dir: &Path,
    read: impl FnOnce() -> fjall::Result<Option<fjall::UserValue>>,
) -> Result<Option<Reserved>> {
    match guarded(During::Read, "reading the reserved record", engine_dir, read)? {
        None => Ok(None),
        Some(bytes) => match Reserved::decode(&bytes) {
            Some(reserved) => Ok(Some(reserved)),
            None => Err(EngineError::corrupt("the reserved record cannot be decoded", engine_dir)),
        },
    }
}

/// File that remembers damage.
const DAMAGED: &str = "damaged";
