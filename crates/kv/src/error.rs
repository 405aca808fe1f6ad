//! What can go wrong in an engine, sorted by what the caller must do.

use std::{error, io, path::PathBuf};

use thiserror::Error;

use crate::{Generation, Seq};

/// Result of an engine's operation.
pub type Result<T> = std::result::Result<T, EngineError>;

/// The cause below an [`EngineError`], as the engine named it.
pub type Cause = Box<dyn error::Error + Send + Sync>;

/// Error of an engine.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A later generation claimed the volume. Final: this master must stop.
    #[error("generation {claimed} is fenced: the volume was claimed under generation {stored}")]
    Fenced {
        /// Generation recorded in the volume.
        stored: Generation,
        /// Generation of the caller.
        claimed: Generation,
    },
    /// The engine cannot answer now. The outcome of a write is unknown: reopen, with back-off, and read
    /// `last_seq`.
    #[error("engine unavailable: {what}")]
    Unavailable {
        /// What was seen.
        what: String,
        /// The engine's own error.
        #[source]
        source: Option<Cause>,
    },
    /// Stored bytes are damaged. A human must look: restore, or load a dump.
    #[error("volume damaged at {}: {what}", path.display())]
    Corrupt {
        /// What is wrong.
        what: String,
        /// The file, or the directory where the engine does not name one.
        path: PathBuf,
        /// The engine's own error.
        #[source]
        source: Option<Cause>,
    },
    /// No space is left. The handle is poisoned: make space and reopen.
    #[error("no space left: {what}")]
    Full {
        /// What was being written.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// An earlier write failed; this handle takes no more. Reopen.
    #[error("engine refuses writes since an earlier failure: {since}")]
    Poisoned {
        /// The first failure.
        since: String,
    },
    /// The engine holds less than was once synced: synced batches are lost. A damaged volume, never served.
    #[error("volume damaged at {}: holds batches up to {engine_seq}, but {witness_seq} was synced", path.display())]
    Behind {
        /// Last batch in the engine.
        engine_seq: Seq,
        /// Last batch that was synced.
        witness_seq: Seq,
        /// The volume.
        path: PathBuf,
    },
    /// The system refused an operation.
    #[error("{what} failed at {}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A batch out of order. Nothing was done.
    #[error("batch {found} out of order: the next is {expected}")]
    Sequence {
        /// Number the next batch must have.
        expected: Seq,
        /// Number the batch had.
        found: Seq,
    },
    /// A batch breaks a limit or a rule. Nothing was done.
    #[error("batch refused: {what}")]
    Invalid {
        /// The rule.
        what: String,
    },
}

impl EngineError {
    /// Sorts a system error of a write: no space becomes [`Full`](Self::Full).
    pub fn write(what: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full { what: what.to_owned(), source }
            }
            _ => Self::Io { what, path: path.into(), source },
        }
    }

    /// Makes a [`Corrupt`](Self::Corrupt) without a cause.
    pub fn corrupt(what: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self::Corrupt { what: what.into(), path: path.into(), source: None }
    }
}
