//! What applications store through shared mappings.
//!
//! The kernel keeps it until it writes it back, of itself after half a minute or so, and it would be lost with the node until then. So while a
//! file may be mapped to be stored to, the kernel is had write back all such pages once in each commit interval. It keeps them; a store into one
//! that was written back is a fault in the kernel and asks nobody.

use types::Micros;

use crate::core::{Core, Link};
use crate::outputs::{Clock, Output};

/// When the kernel is to write back next.
#[derive(Debug)]
pub(crate) struct Stores {
    /// Open handles through which a file may be mapped to be stored to.
    mappers: u32,
    due: Micros,
    /// Since when it does.
    asked: Option<Micros>,
}

impl Default for Stores {
    fn default() -> Self {
        Self { mappers: 0, due: Micros::NEVER, asked: None }
    }
}

impl Stores {
    pub(crate) fn due(&self) -> Micros {
        self.due
    }

    fn open(&mut self, now: Micros, interval: Micros) {
        self.mappers += 1;
        if self.mappers == 1 && self.asked.is_none() {
            self.due = now + interval;
        }
    }

    fn close(&mut self) {
        self.mappers = self.mappers.saturating_sub(1);
        if self.mappers == 0 {
            self.due = Micros::NEVER;
        }
    }

    fn ask(&mut self, now: Micros) {
        (self.due, self.asked) = (Micros::NEVER, Some(now));
    }

    fn end(&mut self, now: Micros, interval: Micros) {
        let Some(asked) = self.asked.take() else { return };
        if self.mappers > 0 {
            // So that no more than a fifth of the time goes into it.
            let pause = now.since(asked).0.saturating_mul(4);
            self.due = now + interval.max(Micros(pause));
        }
    }
}

impl Core {
    /// A handle is opened through which a file may be mapped to be stored to.
    pub(crate) fn note_mapper(&mut self) {
        self.stores.open(self.clock.now, self.config.commit_interval);
    }

    /// It is closed, and not mapped any more: the kernel has written back what was stored through it.
    pub(crate) fn note_mapper_gone(&mut self) {
        self.stores.close();
    }

    pub(crate) fn collect_stores(&mut self) {
        if self.stores.due > self.clock.now {
            return;
        }
        // Without a master what comes may have to wait, and whoever stores to the same page with it.
        if self.link != Link::Up || self.lease.lapsed {
            self.stores.due = self.clock.now + self.config.commit_interval;
            return;
        }
        self.stores.ask(self.clock.now);
        self.outputs.push_back(Output::CollectStores);
    }

    /// What had been stored through mappings has come as writes, as [`Output::CollectStores`] asked.
    pub fn stores_collected(&mut self, clock: Clock) {
        self.clock = clock;
        self.stores.end(clock.now, self.config.commit_interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Micros = Micros(1_000);

    #[test]
    fn the_kernel_is_asked_once_in_each_interval_while_a_file_may_be_mapped() {
        let mut stores = Stores::default();
        assert_eq!(stores.due(), Micros::NEVER);
        stores.open(Micros(500), INTERVAL);
        stores.open(Micros(900), INTERVAL);
        assert_eq!(stores.due(), Micros(1_500));
        stores.ask(Micros(1_600));
        assert_eq!(stores.due(), Micros::NEVER, "once at a time");
        stores.open(Micros(1_601), INTERVAL);
        stores.end(Micros(1_610), INTERVAL);
        assert_eq!(stores.due(), Micros(2_610));
        for _ in 0..3 {
            stores.close();
        }
        assert_eq!(stores.due(), Micros::NEVER, "there is nothing to store to");
    }

    #[test]
    fn what_takes_long_is_asked_for_seldom() {
        let mut stores = Stores::default();
        stores.open(Micros(0), INTERVAL);
        stores.ask(Micros(1_000));
        stores.end(Micros(3_000), INTERVAL);
        assert_eq!(stores.due(), Micros(11_000));
    }

    #[test]
    fn who_opens_while_the_kernel_writes_back_waits_for_the_next_turn() {
        let mut stores = Stores::default();
        stores.open(Micros(0), INTERVAL);
        stores.ask(Micros(1_000));
        stores.close();
        stores.open(Micros(1_100), INTERVAL);
        assert_eq!(stores.due(), Micros::NEVER);
        stores.end(Micros(1_200), INTERVAL);
        assert_eq!(stores.due(), Micros(2_200));
    }
}
