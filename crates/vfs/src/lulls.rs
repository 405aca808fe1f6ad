//! Lulls of directories: moments in which no listing was under way.
//!
//! The kernel lists a directory under its lock, from before it asks to after it has taken the answer in. Once attributes have
//! been taken back and somebody has had that lock for himself, every listing that comes has asked since: nothing overtakes
//! what it tells of inodes of which nothing else was told meanwhile ([`judged`](crate::judged)). So a directory that goes to
//! another node with many inodes has a lull waited for, by nobody but the driver; the listing that follows, when it comes
//! back, tells of each inode rather than leave it to be looked up.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use types::{Ino, Micros};

use crate::core::Core;
use crate::judged::QUIET;
use crate::outputs::{Clock, Invalidation};

/// Names a lull. Numbers begin anew long after all that was named before has become quiet.
pub(crate) type LullNumber = u16;
/// None.
pub(crate) const NO_LULL: LullNumber = 0;
/// One that has come: what is told now was asked for after it.
pub(crate) const CALM: LullNumber = LullNumber::MAX;

/// Lulls that came.
#[derive(Debug, Default)]
pub(crate) struct Lulls {
    last: LullNumber,
    /// The last of each directory.
    of: FxHashMap<Ino, Lull>,
    /// When each came, in order.
    came: VecDeque<(Micros, Ino)>,
}

/// A lull that came.
#[derive(Clone, Copy, Debug)]
struct Lull {
    number: LullNumber,
    at: Micros,
}

impl Lulls {
    fn next(&mut self) -> LullNumber {
        self.last = if self.last + 1 == CALM { NO_LULL + 1 } else { self.last + 1 };
        self.last
    }

    fn note(&mut self, dir: Ino, number: LullNumber, now: Micros) {
        // What was told before those is quiet without them.
        while self.came.front().is_some_and(|(at, _)| now.since(*at) > QUIET) || self.came.len() >= KEPT_MAX {
            let Some((at, dir)) = self.came.pop_front() else { break };
            if self.of.get(&dir).is_some_and(|lull| lull.at == at) {
                self.of.remove(&dir);
            }
        }
        self.of.insert(dir, Lull { number, at: now });
        self.came.push_back((now, dir));
    }

    fn is_lately(&self, dir: Ino, now: Micros) -> bool {
        self.of.get(&dir).is_some_and(|lull| now.since(lull.at) < APART)
    }
}

impl Core {
    /// Adds a lull to what is taken back of a directory and what it covers, if one is worth it; returns its number, and the inodes that
    /// it is for.
    pub(crate) fn add_lull(
        &mut self,
        dir: Ino,
        list: &mut Vec<Invalidation>,
    ) -> Option<(LullNumber, Vec<Ino>)> {
        if list.len() < INODES_MIN || self.lulls.is_lately(dir, self.clock.now) {
            return None;
        }
        let recalled = list.iter().filter_map(|invalidation| match invalidation {
            Invalidation::Attr { ino } if *ino != dir => Some(*ino),
            _ => None,
        });
        let inodes: Vec<Ino> = recalled.collect();
        if inodes.len() < INODES_MIN {
            return None;
        }
        let number = self.lulls.next();
        list.push(Invalidation::Lull { dir, number });
        Some((number, inodes))
    }

    /// These inodes, whose attributes are being taken back, wait for that lull.
    pub(crate) fn await_lull(&mut self, (number, inodes): (LullNumber, Vec<Ino>)) {
        for ino in inodes {
            if let Some(known) = self.known.get_mut(&ino) {
                known.judged.await_lull(number);
            }
        }
    }

    /// A lull that [`Invalidation::Lull`] asked for has come.
    pub fn lull_came(&mut self, clock: Clock, dir: Ino, number: u16) {
        self.clock = clock;
        self.lulls.note(dir, number, clock.now);
    }

    /// The last lull of a directory that is listed.
    pub(crate) fn lull_of(&self, dir: Ino) -> Option<LullNumber> {
        Some(self.lulls.of.get(&dir)?.number)
    }
}

/// Fewer inodes are looked up as fast.
const INODES_MIN: usize = 16;
/// Between two lulls of a directory: nodes that take turns in it do without.
const APART: Micros = Micros(100_000);
/// Lulls kept.
const KEPT_MAX: usize = 4096;
