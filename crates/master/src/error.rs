//! Why a master cannot serve.

use chunk::ChunkError;
use kv::EngineError;
use meta::ApplyError;
use types::CodecError;

/// Why a master cannot serve. After any of them nothing further is committed.
#[derive(Debug, thiserror::Error)]
pub enum MasterError {
    /// The engine failed, is fenced or is full.
    #[error("metadata engine failed")]
    Engine(#[source] EngineError),
    /// The segments could not be listed.
    #[error("the volume's segments cannot be listed")]
    Segments(#[source] ChunkError),
    /// Records that a change adds to could not be read.
    #[error("metadata could not be changed")]
    Apply(#[source] ApplyError),
    /// A record of the master's own is damaged.
    #[error("{what} of the volume is damaged")]
    Damaged {
        /// Which record.
        what: &'static str,
        /// How.
        #[source]
        source: Option<CodecError>,
    },
    /// The volume's own record is not there, which comes last.
    #[error(
        "the volume's own record is missing: where a `holdfast load` did not come to its end, empty the directory of the metadata and load them again; otherwise see `holdfast fsck`"
    )]
    Empty,
}

impl From<EngineError> for MasterError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<ApplyError> for MasterError {
    fn from(error: ApplyError) -> Self {
        Self::Apply(error)
    }
}
