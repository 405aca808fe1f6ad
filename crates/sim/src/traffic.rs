//! What a run sent and stored, a little of each kind: real inputs for those who change them.

use std::collections::BTreeMap;
use std::io::IoSliceMut;

use chunk::{MemStore, SegmentStore};
use kv::{Engine, KeyRange};
use types::Encode;
use wire::{FromMaster, ToMaster};

/// One message of each kind and magnitude, and what the stores held at the end.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Payloads of messages to the master.
    pub to_master: Messages,
    /// Payloads of messages to nodes.
    pub from_master: Messages,
    /// Keys and values of the engine.
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
    /// Segments, cut off at [`SEGMENT_BYTES`].
    pub segments: Vec<(types::SegmentId, Vec<u8>)>,
}

/// By kind and number of bits of the length.
pub type Messages = BTreeMap<(usize, u32), Vec<u8>>;

impl Traffic {
    pub(crate) fn note_to_master(&mut self, message: &ToMaster) {
        note(&mut self.to_master, message.kind(), message);
    }

    pub(crate) fn note_from_master(&mut self, message: &FromMaster) {
        note(&mut self.from_master, message.kind(), message);
    }

    /// Reads the stores.
    pub(crate) fn read_stores(&mut self, engine: &dyn Engine, store: &MemStore) {
        self.records.clear();
        let every = KeyRange::new(vec![0], vec![0xff; 32]);
        kv::scan_all(engine, every, |record| self.records.push(record)).expect("the engine can be read");
        self.segments.clear();
        for (segment, len) in store.list().expect("the store can be listed") {
            let mut bytes = vec![0; (len as usize).min(SEGMENT_BYTES)];
            let read = store.read_at(segment, 0, &mut [IoSliceMut::new(&mut bytes)]);
            if read.is_ok() {
                self.segments.push((segment, bytes));
            }
        }
    }

    /// Adds what another run had.
    pub fn add(&mut self, other: Self) {
        for (mine, theirs) in
            [(&mut self.to_master, other.to_master), (&mut self.from_master, other.from_master)]
        {
            for (kind, message) in theirs {
                mine.entry(kind).or_insert(message);
            }
        }
        self.records.extend(other.records);
        self.segments.extend(other.segments);
    }
}

fn note(messages: &mut Messages, kind: usize, message: &impl Encode) {
    let bytes = message.to_bytes();
    messages.entry((kind, usize::BITS - bytes.len().leading_zeros())).or_insert(bytes);
}

/// Of a segment, at most.
pub const SEGMENT_BYTES: usize = 64 << 10;
