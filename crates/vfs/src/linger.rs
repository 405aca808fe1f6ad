//! Files that were closed a moment ago, whose tokens are kept for whoever opens them again.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use types::{Ino, Micros};

/// Closed files, and when each is over: so long after its last close.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    order: BTreeSet<(Micros, Ino)>,
    due: FxHashMap<Ino, Micros>,
}

impl Linger {
    /// `ino` was closed, and is over at `due`, whatever was said of it before.
    pub(crate) fn put(&mut self, ino: Ino, due: Micros) {
        if let Some(before) = self.due.insert(ino, due) {
            self.order.remove(&(before, ino));
        }
        self.order.insert((due, ino));
    }

    /// When the next one is over.
    pub(crate) fn due(&self) -> Micros {
        self.order.first().map_or(Micros::NEVER, |(due, _)| *due)
    }

    /// Takes one that is over.
    pub(crate) fn take_due(&mut self, now: Micros) -> Option<Ino> {
        if self.due() > now {
            return None;
        }
        let (_, ino) = self.order.pop_first()?;
        self.due.remove(&ino);
        Some(ino)
    }

    /// Nothing lingers any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lingers_from_its_last_close_on() {
        let mut linger = Linger::default();
        linger.put(Ino(2), Micros(50));
        linger.put(Ino(3), Micros(60));
        linger.put(Ino(2), Micros(90));
        assert_eq!(linger.due(), Micros(60));
        assert_eq!([linger.take_due(Micros(80)), linger.take_due(Micros(80))], [Some(Ino(3)), None]);
        assert_eq!([linger.take_due(Micros(90)), linger.take_due(Micros(90))], [Some(Ino(2)), None]);
        assert_eq!(linger.due(), Micros::NEVER);
    }
}
