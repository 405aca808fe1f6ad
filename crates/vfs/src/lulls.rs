//! Lulls of directories: moments in which no listing was under way.
//!
//! The kernel lists a directory under its lock, from before it asks to after it has taken the answer in. Once attributes have
//! been taken back and somebody has had that lock for himself, every listing that comes has asked since: nothing overtakes
//! what it tells of inodes of which nothing else was told meanwhile ([`judged`](crate::judged)). So a directory that goes to
//! another node with many inodes has a lull waited for, by nobody but the driver; the listing that follows, when it comes
//! back, tells of each inode rather than leave it to be looked up.
//!
//! Who waits for the lock has listings that come later wait as well, if one is under way that waits for another node. So a
//! directory is waited for once at a time, and after a pause.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use types::{Ino, Micros, Name};

use crate::cache::Place;
use crate::core::Core;
use crate::judged::QUIET;
use crate::outputs::{Clock, Invalidation};

/// Names a lull. Numbers begin anew long after all that was named before has become quiet.
pub(crate) type LullNumber = u16;
/// None.
pub(crate) const NO_LULL: LullNumber = 0;
/// One that has come: what is told now was asked for after it.
pub(crate) const CALM: LullNumber = LullNumber::MAX;
/// No lull, and what was told last was told by a listing.
pub(crate) const LISTED: LullNumber = CALM - 1;

/// Lulls that came.
#[derive(Debug, Default)]
pub(crate) struct Lulls {
    last: LullNumber,
    /// The last of each directory.
    of: FxHashMap<Ino, Lull>,
    /// When each was asked for or came, in order.
    noted: VecDeque<(Micros, Ino)>,
}

/// A lull that was asked for or came.
#[derive(Clone, Copy, Debug)]
struct Lull {
    /// [`NO_LULL`] until one has come.
    number: LullNumber,
    at: Micros,
}

impl Lulls {
    fn next(&mut self) -> LullNumber {
        self.last = if self.last + 1 == LISTED { NO_LULL + 1 } else { self.last + 1 };
        self.last
    }

    fn note(&mut self, dir: Ino, number: LullNumber, now: Micros) {
        // What was told before those is quiet without them.
        while self.noted.front().is_some_and(|(at, _)| now.since(*at) > QUIET) || self.noted.len() >= KEPT_MAX
        {
            let Some((at, dir)) = self.noted.pop_front() else { break };
            if self.of.get(&dir).is_some_and(|lull| lull.at == at) {
                self.of.remove(&dir);
            }
        }
        self.of.insert(dir, Lull { number, at: now });
        self.noted.push_back((now, dir));
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
        let now = self.clock.now;
        if list.len() < INODES_MIN || self.lulls.is_lately(dir, now) {
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
        // Of a name that the kernel does not have it may say so without taking the lock.
        let name = self.told_name(dir, &inodes)?;
        let number = self.lulls.next();
        self.lulls.note(dir, NO_LULL, now);
        list.push(Invalidation::Lull { dir, name, number });
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

    /// A name that the kernel has, most likely, of one of these inodes that a directory covers.
    pub(crate) fn told_name(&self, dir: Ino, inodes: &[Ino]) -> Option<Name> {
        let entries = &self.cache.dirs.get(&dir)?.entries;
        inodes.iter().rev().find_map(|ino| {
            let Place::Covered(parent, cookie) = self.place(*ino) else { return None };
            let entry = entries.get(&cookie).filter(|entry| parent == dir && entry.dirent.ino == *ino)?;
            Some(entry.dirent.name.clone())
        })
    }

    /// A lull that [`Invalidation::Lull`] asked for has come.
    pub fn lull_came(&mut self, clock: Clock, dir: Ino, number: u16) {
        self.clock = clock;
        self.lulls.note(dir, number, clock.now);
    }

    /// The last lull of a directory that is listed.
    pub(crate) fn lull_of(&self, dir: Ino) -> Option<LullNumber> {
        Some(self.lulls.of.get(&dir)?.number).filter(|number| *number != NO_LULL)
    }
}

/// Fewer inodes are looked up as fast.
const INODES_MIN: usize = 16;
/// Between two lulls of a directory: nodes that take turns in it do without.
const APART: Micros = Micros(100_000);
/// Lulls kept.
const KEPT_MAX: usize = 4096;
