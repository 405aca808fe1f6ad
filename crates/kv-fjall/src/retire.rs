//! What a close does so that the next opening finds no journal.
//!
//! What is in a journal is read and put into memory again at each opening. So a close has fjall
//! flush what is in memory, ends it, and removes the journals. Where that cannot be done soon they stay, and nothing is
//! lost: the next opening reads them.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use fjall::{AbstractTree, Database, Keyspace, PersistMode};
use kv::{Reserved, Result};

use crate::{
    failure::{During, guarded},
    journal, open,
};

/// Ends fjall and leaves no journal if its tables hold `newest`, the last batch, and with it all before. All batches must
/// be durable, and nobody may write any more.
///
/// # Errors
///
/// Where something cannot be written. Journals are left then.
pub(crate) fn end(
    database: Database,
    keyspace: Keyspace,
    engine_dir: &Path,
    newest: &Reserved,
    merges: bool,
) -> Result<()> {
    let is_flushed = match merges {
        true => flush(&database, &keyspace, engine_dir)?,
        false => flush_much(&database, &keyspace, engine_dir)?,
    };
    let is_flushed = is_flushed
        && open::stored(&database, &keyspace, engine_dir)?
            .is_some_and(|stored| (stored.seq, stored.generation) == (newest.seq, newest.generation));
    drop(keyspace);
    // Waits for fjall's threads.
    drop(database);
    match is_flushed {
        true => journal::remove_all(engine_dir),
        false => Ok(()),
    }
}

/// Has fjall write what is in memory into tables. Returns whether it did, in good time: then only tables are read.
///
/// `rotate_memtable_and_wait` of fjall's waits for ever where its thread has failed.
fn flush(database: &Database, keyspace: &Keyspace, engine_dir: &Path) -> Result<bool> {
    // Writes nothing; tells whether fjall is poisoned.
    let check = || database.persist(PersistMode::Buffer);
    guarded(During::Write, "flushing", engine_dir, || check().and_then(|()| keyspace.rotate_memtable()))?;
    let since = Instant::now();
    while keyspace.sealed_memtable_count() > 0 {
        if since.elapsed() > PATIENCE {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(1));
        guarded(During::Write, "waiting for the flush", engine_dir, check)?;
    }
    Ok(keyspace.tree.get_highest_memtable_seqno().is_none())
}

/// As [`flush`], without fjall's threads, and only what is worth a table that nobody will merge.
fn flush_much(database: &Database, keyspace: &Keyspace, engine_dir: &Path) -> Result<bool> {
    if keyspace.sealed_memtable_count() == 0 && keyspace.tree.active_memtable().size() < MUCH {
        return Ok(false);
    }
    guarded(During::Write, "flushing", engine_dir, || keyspace.rotate_memtable())?;
    flush_sealed(database, keyspace, engine_dir)?;
    Ok(keyspace.tree.get_highest_memtable_seqno().is_none())
}

/// Writes sealed memtables into tables, as fjall's threads do: what they hold is durable in the journal first.
pub(crate) fn flush_sealed(database: &Database, keyspace: &Keyspace, engine_dir: &Path) -> Result<()> {
    guarded(During::Write, "flushing", engine_dir, || {
        database.persist(PersistMode::SyncAll)?;
        let oldest = database.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
        keyspace.tree.flush(&keyspace.tree.get_flush_lock(), oldest)?;
        Ok(())
    })
}

/// Bytes of a memtable, from which on it is a table that a close writes though nothing is merged.
const MUCH: u64 = 1 << 20;
/// A memtable of 16 MiB takes a fifth of a second. A compaction may be before it, and whoever waits for the volume is not to wait for
/// that.
const PATIENCE: Duration = Duration::from_secs(1);
