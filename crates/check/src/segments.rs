//! The segments that are stored.

use std::collections::BTreeMap;

use chunk::{ChunkError, SegmentStore};
use types::SegmentId;

use crate::data::Named;

/// Segments and their lengths.
#[derive(Debug, Default)]
pub(crate) struct Segments(BTreeMap<SegmentId, u64>);

impl Segments {
    pub fn read(store: &dyn SegmentStore) -> Result<Self, ChunkError> {
        Ok(Self(store.list()?.into_iter().collect()))
    }

    pub fn len_of(&self, segment: SegmentId) -> Option<u64> {
        self.0.get(&segment).copied()
    }

    /// Whether the bytes of an extent are there.
    pub fn has(&self, named: &Named) -> bool {
        let run = named.extent.run();
        let end = run.offset() + u64::from(run.len());
        self.len_of(named.extent.segment()).is_some_and(|len| len >= end)
    }

    pub fn iter(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.0.keys().copied()
    }
}
