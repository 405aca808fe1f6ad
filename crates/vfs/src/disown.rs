//! Segments given up, and barriers: the node's part in getting space back.
//!
//! Invariants:
//!
//! - A segment is disowned only after its last sync, and after a batch with every extent in it that will ever
//!   be logged was sent: whatever names it for the first time lies before the Disown on the connection.
//! - A barrier is answered only when every read that may use an older map has ended: those that had a pin when
//!   it came, and those served under old content while a forget from before it was taken back.

use std::collections::BTreeSet;

use types::{BatchSeq, SegmentId};
use wire::ToMaster;

use crate::core::{Core, Link};

/// Segments on their way out of this node's hands, and barriers without an answer.
#[derive(Debug, Default)]
pub(crate) struct Disowner {
    /// The writer is done with them; extents in them may not be logged yet.
    left: BTreeSet<SegmentId>,
    /// Told to the master, with the last batch before that: forgotten when a later batch is durable.
    told: Vec<(BatchSeq, SegmentId)>,
    barriers: Vec<Barrier>,
}

#[derive(Debug)]
struct Barrier {
    seq: u64,
    segments: Vec<SegmentId>,
    waits: Waits,
}

/// What a barrier waits for; the second follows the first.
#[derive(Debug)]
enum Waits {
    /// Invalidations for forgets: reads under old content may still begin.
    Forgets(BTreeSet<u64>),
    /// Reads.
    Pins(BTreeSet<u64>),
}

impl Core {
    /// Gives up the segments that nothing unlogged names any more.
    pub(crate) fn disown(&mut self) {
        let Some(writer) = self.writer.as_mut() else { return };
        self.disowner.left.extend(writer.take_left());
        if self.disowner.left.is_empty() || self.link != Link::Up {
            return;
        }
        let mut unlogged: BTreeSet<SegmentId> = BTreeSet::new();
        for live in self.live.values() {
            unlogged.extend(live.unlogged_segments());
        }
        for capture in self.flushes.values().flat_map(|flush| flush.captures()) {
            unlogged.extend(&capture.segments);
        }
        let segments: Vec<SegmentId> = self.disowner.left.difference(&unlogged).copied().collect();
        if segments.is_empty() {
            return;
        }
        self.disowner.left = self.disowner.left.intersection(&unlogged).copied().collect();
        self.send_batch(false);
        let last = self.log.last();
        self.disowner.told.extend(segments.iter().map(|segment| (last, *segment)));
        self.send(ToMaster::Disown { segments });
    }

    /// A batch is durable, and with it every Disown that was sent before it.
    pub(crate) fn forget_disowned(&mut self, durable: BatchSeq) {
        self.disowner.told.retain(|(last, _)| *last >= durable);
    }

    /// Tells a new master what the old one may not have recorded. After the batches.
    pub(crate) fn disown_again(&mut self) {
        let told: Vec<SegmentId> = self.disowner.told.iter().map(|(_, segment)| *segment).collect();
        for segments in told.chunks(DISOWN_PART) {
            self.send(ToMaster::Disown { segments: segments.to_vec() });
        }
    }

    /// The barriers of a master that is gone.
    pub(crate) fn drop_barriers(&mut self) {
        self.disowner.barriers.clear();
    }

    pub(crate) fn on_barrier(&mut self, seq: u64, segments: Vec<SegmentId>) {
        let jobs = self.jobs.iter().filter(|(_, job)| job.purpose.is_forget()).map(|(id, _)| id).collect();
        self.disowner.barriers.push(Barrier { seq, segments, waits: Waits::Forgets(jobs) });
    }

    /// Answers the barriers that nothing holds up any more.
    pub(crate) fn pass_barriers(&mut self) {
        // One may come before the welcome, which waits for a sync.
        if self.link != Link::Up {
            return;
        }
        for mut barrier in std::mem::take(&mut self.disowner.barriers) {
            if let Waits::Forgets(jobs) = &mut barrier.waits {
                jobs.retain(|job| self.jobs.is_there(*job));
                if jobs.is_empty() {
                    barrier.waits = Waits::Pins(self.pins.keys().copied().collect());
                }
            }
            if let Waits::Pins(pins) = &mut barrier.waits {
                pins.retain(|pin| self.pins.contains_key(pin));
                if pins.is_empty() {
                    barrier.segments.iter().for_each(|segment| self.store.forget(*segment));
                    self.send(ToMaster::Barriered { seq: barrier.seq });
                    continue;
                }
            }
            self.disowner.barriers.push(barrier);
        }
    }
}

/// Segments in one message.
const DISOWN_PART: usize = 10_000;
