//! A check of everything that a volume's metadata must hold (docs/format/metadata.md, "What must hold"), on an engine, or on a
//! snapshot of one that others write to meanwhile; and all of it as text, written and read back.
//!
//! Nothing is guessed: what can be counted is counted anew, what nobody needs is removed, and both only if every
//! record that could say otherwise was read.

mod data;
mod dump;
mod engine_store;
mod facts;
mod repair;
mod report;
mod rules;
mod scrub;
mod segments;
mod source;

pub use dump::{DumpError, dump, hex, load, unhex};
pub use facts::{Facts, Options};
pub use repair::{Repaired, repair};
pub use report::{Counts, Fault, FaultKind, Report, Severity};
pub use scrub::{Neighbours, Scrubbed, scrub};
pub use source::Source;

/// Reads everything and compares it with itself, and with the segments if they are given.
///
/// Takes about 200 bytes of memory for each inode, and 100 for each extent if data are read.
///
/// # Errors
///
/// Those of the engine and of the segment store as a whole. Damaged records are faults of the report.
pub fn check(engine: &dyn kv::Engine, options: &Options<'_>) -> Result<Report, CheckError> {
    let facts = Facts::read(engine, options)?;
    Ok(rules::judge(&engine, facts, options))
}

/// Reads a snapshot of a volume that is in use and compares it with itself, and with the segments if they are given. Members, files
/// without a name and segments that no extent names yet are as they should be then.
///
/// Takes memory as [`check`], and 100 bytes for each extent.
///
/// # Errors
///
/// As [`check`].
pub fn check_live(source: &dyn Source, options: &Options<'_>) -> Result<Report, CheckError> {
    let facts = Facts::read_live(source, options)?;
    let mut report = rules::judge(source, facts, options);
    report.faults.retain(|fault| fault.kind.severity() == Severity::Fault);
    report.more_notes = 0;
    Ok(report)
}

/// The check could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The engine failed.
    #[error("the metadata cannot be read")]
    Engine(#[from] kv::EngineError),
    /// The store of segments failed.
    #[error("the segments cannot be listed")]
    Segments(#[from] chunk::ChunkError),
    /// A repair could not be planned.
    #[error("the repair of ino {ino} failed: {what}")]
    Repair {
        /// The inode.
        ino: types::Ino,
        /// Why.
        what: String,
    },
}
