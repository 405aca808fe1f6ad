//! Why a master cannot serve.

use kv::EngineError;
use meta::ApplyError;
use types::CodecError;

/// Why a master cannot serve. After any of them nothing further is committed.
#[derive(Debug, thiserror::Error)]
pub enum MasterError {
    /// The engine failed, is fenced or is full.
    #[error("metadata engine failed")]
    Engine(#[source] EngineError),
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
        "the metadata were not loaded to their end: empty their directory, and load them again with `holdfast load`"
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
