//! The node's side of the shared table.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{Ino, Micros};

use crate::shared::{NEVER, SLOTS_MAX, Shared};

/// Writes what the guard reads. There is one writer; each call costs a few stores and no system call.
#[derive(Debug)]
pub struct Table {
    shared: Arc<Shared>,
    free: Vec<u32>,
    used: u64,
}

impl Table {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, free: Vec::new(), used: 0 }
    }

    fn count(&mut self, used: u64) {
        self.used = used;
        self.shared.header().used.store(used, Ordering::Relaxed);
    }

    /// A slot that holds nothing.
    fn slot(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.shared.header().slots.load(Ordering::Relaxed);
        (slot < SLOTS_MAX as u64).then_some(slot as u32)
    }
}

impl vfs::Guard for Table {
    fn enter(&mut self, ino: Ino) -> u32 {
        let Some(slot) = self.slot() else {
            self.shared.header().unlisted.fetch_add(1, Ordering::Relaxed);
            return UNLISTED;
        };
        self.shared.slots()[slot as usize].store(ino.0, Ordering::Release);
        let header = self.shared.header();
        if u64::from(slot) >= header.slots.load(Ordering::Relaxed) {
            header.slots.store(u64::from(slot) + 1, Ordering::Release);
        }
        self.count(self.used + 1);
        slot
    }

    fn leave(&mut self, slot: u32) {
        if slot == UNLISTED {
            self.shared.header().unlisted.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.shared.slots()[slot as usize].store(0, Ordering::Release);
        self.free.push(slot);
        self.count(self.used - 1);
    }

    fn has_fired(&self) -> bool {
        let header = self.shared.header();
        header.fired.load(Ordering::Acquire) != header.acknowledged.load(Ordering::Relaxed)
    }

    fn extend(&mut self, until: Micros, length: Micros) {
        let header = self.shared.header();
        // Read first: the guard may fire for the old time until it sees the new one, and the node must see that.
        let fired = header.fired.load(Ordering::Acquire);
        header.length.store(length.0, Ordering::Relaxed);
        header.until.store(until.0, Ordering::SeqCst);
        header.acknowledged.store(fired, Ordering::SeqCst);
    }

    fn rest(&mut self) {
        self.shared.header().until.store(NEVER, Ordering::SeqCst);
    }
}

/// Instead of a slot.
const UNLISTED: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use vfs::Guard as _;

    use super::*;

    fn listed(shared: &Shared) -> Vec<u64> {
        let slots = shared.header().slots.load(Ordering::Acquire) as usize;
        shared.slots()[..slots]
            .iter()
            .map(|slot| slot.load(Ordering::Acquire))
            .filter(|ino| *ino != 0)
            .collect()
    }

    #[test]
    fn every_inode_entered_is_listed_until_it_leaves() {
        let shared = Arc::new(Shared::new().unwrap());
        let mut table = Table::new(Arc::clone(&shared));
        let mut slots: Vec<(u64, u32)> = (1..=100_000).map(|ino| (ino, table.enter(Ino(ino)))).collect();
        // The guard maps the file once, before it has grown in memory.
        let guard = Shared::map(shared.file().try_clone().unwrap()).unwrap();
        assert_eq!(listed(&guard).len(), 100_000);
        for (_, slot) in slots.drain(..50_000) {
            table.leave(slot);
        }
        assert_eq!(listed(&guard), slots.iter().map(|(ino, _)| *ino).collect::<Vec<_>>());
        assert_eq!(guard.header().used.load(Ordering::Relaxed), 50_000);
        for ino in 200_001..=250_000 {
            table.enter(Ino(ino));
        }
        assert_eq!(guard.header().slots.load(Ordering::Relaxed), 100_000, "slots are used again");
        assert_eq!(listed(&guard).len(), 100_000);
    }

    #[test]
    fn a_guard_that_fired_is_noticed_until_the_lease_is_extended() {
        let shared = Arc::new(Shared::new().unwrap());
        let mut table = Table::new(Arc::clone(&shared));
        assert!(!table.has_fired());
        shared.header().fired.store(1, Ordering::Release);
        assert!(table.has_fired());
        table.extend(Micros(7), Micros(3));
        assert!(!table.has_fired());
        assert_eq!(shared.header().until.load(Ordering::Relaxed), 7);
    }
}
