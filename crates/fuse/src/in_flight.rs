//! Which requests the handler holds, so that an INTERRUPT for an answered one is dropped.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Set of `unique` numbers between dispatch and answer.
///
/// A table of words indexed by the low bits takes nearly all of them for one uncontended atomic
/// each; a number whose word is taken by a long-waiting older request goes to a list.
#[derive(Debug)]
pub(crate) struct InFlight {
    slots: Box<[AtomicU64; SLOTS]>,
    overflow: Mutex<Vec<u64>>,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { slots: Box::new([const { AtomicU64::new(0) }; SLOTS]), overflow: Mutex::new(Vec::new()) }
    }
}

impl InFlight {
    /// Adds `unique`, which the kernel never makes 0.
    pub fn insert(&self, unique: u64) {
        let slot = self.slot(unique);
        if slot.compare_exchange(0, unique, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.overflow.lock().push(unique);
        }
    }

    /// Removes `unique`; called just before its answer is written.
    pub fn remove(&self, unique: u64) {
        let slot = self.slot(unique);
        if slot.compare_exchange(unique, 0, Ordering::AcqRel, Ordering::Acquire).is_err() {
            let mut overflow = self.overflow.lock();
            if let Some(index) = overflow.iter().position(|other| *other == unique) {
                overflow.swap_remove(index);
            }
        }
    }

    /// Returns whether `unique` waits for its answer.
    pub fn contains(&self, unique: u64) -> bool {
        self.slot(unique).load(Ordering::Acquire) == unique || self.overflow.lock().contains(&unique)
    }

    /// Returns how many requests wait for their answer. Looks at every word: for reports only.
    pub fn count(&self) -> usize {
        let in_slots = self.slots.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0).count();
        in_slots + self.overflow.lock().len()
    }

    fn slot(&self, unique: u64) -> &AtomicU64 {
        // Numbers go up by 2: bit 0 marks interrupts (`FUSE_REQ_ID_STEP` in linux:fs/fuse/fuse_i.h).
        &self.slots[(unique >> 1) as usize % SLOTS]
    }
}

/// More than `max_background` plus a process per CPU many times over; 8 KiB.
const SLOTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_share_a_slot_are_told_apart() {
        let in_flight = InFlight::default();
        let (old, new) = (2, 2 + 2 * SLOTS as u64);
        in_flight.insert(old);
        in_flight.insert(new);
        assert!(in_flight.contains(old) && in_flight.contains(new));
        assert_eq!(in_flight.count(), 2);
        in_flight.remove(old);
        assert!(!in_flight.contains(old) && in_flight.contains(new));
        in_flight.remove(new);
        in_flight.remove(new);
        assert_eq!(in_flight.count(), 0);
    }
}
