//! Turns what fjall says, or how it dies, into [`EngineError`].

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

use kv::{EngineError, Result};

use crate::manifest;

/// What kind of call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum During {
    Open,
    Read,
    Write,
}

/// Runs a call into fjall, catching its panics.
pub(crate) fn guarded<T>(
    during: During,
    what: &'static str,
    path: &Path,
    call: impl FnOnce() -> fjall::Result<T>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| sort(during, what, path, error)),
        Err(panic) => Err(sort_panic(during, what, path, &*panic)),
    }
}

fn sort_panic(during: During, what: &str, path: &Path, panic: &(dyn Any + Send)) -> EngineError {
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let what = format!("{what} panicked: {said}");
    match during {
        During::Open | During::Read => EngineError::corrupt(what, path),
        During::Write => EngineError::Unavailable { what, source: None },
    }
}

fn sort(during: During, what: &'static str, path: &Path, error: fjall::Error) -> EngineError {
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
            sort_io(during, what, path, source)
        }
        fjall::Error::Locked => {
            EngineError::Unavailable { what: format!("{} is in use", path.display()), source: None }
        }
        fjall::Error::Poisoned => EngineError::Poisoned { since: BACKGROUND.to_owned() },
        error if during == During::Write => {
            EngineError::Unavailable { what: what.to_owned(), source: Some(error.into()) }
        }
        error => EngineError::Corrupt {
            what: format!("{what} failed"),
            path: path.into(),
            source: Some(error.into()),
        },
    }
}

fn sort_io(during: During, what: &'static str, path: &Path, source: io::Error) -> EngineError {
    use io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
    let damage = matches!(source.kind(), InvalidData | InvalidInput | NotFound | UnexpectedEof);
    if damage && during != During::Write {
        let what = format!("{what} failed");
        return EngineError::Corrupt { what, path: path.into(), source: Some(source.into()) };
    }
    EngineError::write(what, path, source)
}

/// fjall keeps the cause to itself when a thread of its own fails; it is in the log only.
const BACKGROUND: &str = "a background flush or compaction failed";

/// Finds the cause that fjall does not tell when it is poisoned by a thread of its own.
///
/// A disk that cannot take one more memtable, or has no inodes for its files, is the likely one, then a table that a compaction could not read: of those it reads for [`LOOK`] at most.
pub(crate) fn explain_background(engine_dir: &Path, memtable_bytes: u64) -> EngineError {
    if let Ok(stat) = rustix::fs::statvfs(engine_dir) {
        let (bytes, files) = (stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_favail);
        let lacks_files = stat.f_files > 0 && files < FILES_OF_A_FLUSH;
        if bytes < 2 * memtable_bytes || lacks_files {
            let source = io::ErrorKind::StorageFull.into();
            let what = format!("{BACKGROUND} with {bytes} bytes and {files} inodes left");
            return EngineError::Full { what, source };
        }
    }
    let begun = Instant::now();
    let damage = match manifest::verify(engine_dir, &mut |_| begun.elapsed() < LOOK) {
        Ok(found) => found.into_iter().next(),
        Err(error) => Some(error),
    };
    damage.unwrap_or_else(|| EngineError::Unavailable { what: BACKGROUND.to_owned(), source: None })
}

/// A flush, and a compaction beside it, make as many files.
const FILES_OF_A_FLUSH: u64 = 8;
/// Longest search for a damaged table once nothing is written any more.
const LOOK: Duration = Duration::from_secs(5);
