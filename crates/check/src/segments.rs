//! The segments that are stored.

use std::collections::BTreeMap;

use chunk::{ChunkError, SegmentStore};
use types::SegmentId;

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

    pub fn iter(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.0.keys().copied()
    }
}
