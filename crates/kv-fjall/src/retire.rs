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
) -> Result<()> {
    let is_flushed = flush(&database, &keyspace, engine_dir)?
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

/// A memtable of 16 MiB takes a fifth of a second. A compaction may be before it, and whoever waits for the volume is not to wait for
/// that.
const PATIENCE: Duration = Duration::from_secs(1);
