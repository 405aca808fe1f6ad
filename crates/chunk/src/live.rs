//! Live bytes per segment, kept as differences.
//!
//! The live bytes of a segment are the sum of [`Extent::len`] over all committed extents that name it.
//! Splitting an extent changes no sum; inserting adds the new extent's length and frees what it hides.

use std::collections::BTreeMap;

use types::{CodecError, Decode, Decoder, Encode, Encoder, SegmentId};

use crate::Extent;

/// Bytes that lost their extent, per segment. Ascending, each segment once, no zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "the live bytes of these segments fall"]
pub struct Freed(Vec<(SegmentId, u64)>);

/// Changes of the live bytes of segments, summed up. No zeros are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveDeltas(BTreeMap<SegmentId, i64>);

impl Freed {
    /// Adds `bytes` that left `segment`.
    pub(crate) fn add(&mut self, segment: SegmentId, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.0.binary_search_by_key(&segment, |entry| entry.0) {
            Ok(at) => self.0[at].1 += bytes,
            Err(at) => self.0.insert(at, (segment, bytes)),
        }
    }

    /// Whether nothing was freed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Segments and the bytes that left them.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentId, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Bytes that left all segments.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|entry| entry.1).sum()
    }
}

impl LiveDeltas {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in that `extent` came to be.
    pub fn on_added(&mut self, extent: &Extent) {
        self.add(extent.segment(), i64::from(extent.len()));
    }

    /// Takes in what an insertion, a punch or a truncation freed.
    pub fn on_freed(&mut self, freed: &Freed) {
        for (segment, bytes) in freed.iter() {
            self.add(segment, -(bytes as i64));
        }
    }

    /// Adds the changes of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (segment, change) in other.iter() {
            self.add(segment, change);
        }
    }

    /// Adds `change` to the live bytes of `segment`.
    pub fn add(&mut self, segment: SegmentId, change: i64) {
        let sum = self.0.entry(segment).or_default();
        *sum = sum.saturating_add(change);
        if *sum == 0 {
            self.0.remove(&segment);
        }
    }

    /// Whether no segment changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Segments, ascending, and the change of their live bytes.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentId, i64)> + '_ {
        self.0.iter().map(|(segment, change)| (*segment, *change))
    }
}

/// A count, then segment (varint) and change (signed varint) in ascending order.
impl Encode for LiveDeltas {
    fn encode(&self, out: &mut Encoder) {
        out.varint(self.0.len() as u64);
        for (segment, change) in self.iter() {
            segment.encode(out);
            out.varint_signed(change);
        }
    }
}

impl Decode for LiveDeltas {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let mut deltas = Self::default();
        let mut last = None;
        for _ in 0..input.count()? {
            let segment = SegmentId::decode(input)?;
            let change = input.varint_signed()?;
            if change == 0 || last.is_some_and(|last| segment <= last) {
                return Err(CodecError::Invalid { what: "live deltas" });
            }
            deltas.0.insert(segment, change);
            last = Some(segment);
        }
        Ok(deltas)
    }
}
