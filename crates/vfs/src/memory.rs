//! What tokens and caches may take of memory.
//!
//! Two limits, both kept by giving up the least used one by one: the tokens that the master can remember for this node,
//! and the bytes that this node spends on cached directories.

use types::{Ino, LockMode, Micros, ResourceKind};

use crate::core::{Core, Link};
use crate::jobs::Purpose;
use crate::judged::ON_ITS_WAY;
use crate::outputs::Invalidation;
use crate::revoke::Cause;

impl Core {
    /// The master says how many tokens this node may hold.
    pub(crate) fn set_share(&mut self, tokens: u64) {
        if self.config.token_limit == 0 {
            self.tokens.set_share(usize::try_from(tokens).unwrap_or(usize::MAX));
        }
    }

    /// Gives up one token for want of memory. Returns whether there was one to give up.
    pub(crate) fn drop_one(&mut self) -> bool {
        if self.link != Link::Up || self.releases.len() >= RELEASES_MAX {
            return false;
        }
        let Some(drop) = self.tokens.poll_drop().or_else(|| self.drop_idle()) else { return false };
        self.metrics.tokens_dropped.add(drop.resource.kind.into(), 1);
        if drop.resource.kind == ResourceKind::Dir {
            self.take_back_later(drop.resource.ino);
        }
        self.start_release_for(drop, Cause::Room);
        true
    }

    /// What answers on their way may bring back of a directory that is given up for want of room is taken back once more when they have arrived: to
    /// have names run out at once, or all names, would cost more of them than there is room for.
    fn take_back_later(&mut self, dir: Ino) {
        let Some(cached) = self.cache.dirs.get(&dir) else { return };
        let outliving = cached.entries.values().filter(|entry| self.outlives(entry));
        let mut list: Vec<Invalidation> = outliving
            .map(|entry| Invalidation::Name { parent: dir, name: entry.dirent.name.clone() })
            .collect();
        if self.seat_on_its_way(dir).is_some() {
            list.push(Invalidation::Attr { ino: dir });
        }
        if !list.is_empty() {
            self.names_again.push_back((self.clock.now + ON_ITS_WAY, list));
        }
    }

    /// What has fallen due of that.
    pub(crate) fn take_names_back_again(&mut self) {
        while let Some((due, list)) = self.names_again.pop_front() {
            if due > self.clock.now {
                return self.names_again.push_front((due, list));
            }
            self.invalidate(Purpose::Alone, list, Vec::new());
        }
    }

    fn drop_idle(&mut self) -> Option<lock::Revocation> {
        let now = self.clock.now;
        if now < self.cache.trim_due || self.cache.bytes <= self.config.cache_bytes_max {
            return None;
        }
        // What is kept aside serves nobody now.
        while self.cache.bytes > self.config.cache_bytes_max && self.drop_oldest_aside() {}
        let on_their_way = self
            .releases
            .iter()
            .filter(|(r, release)| r.kind == ResourceKind::Dir && release.is_to(LockMode::Nl));
        let leaving: usize =
            on_their_way.filter_map(|(r, _)| self.cache.dirs.get(&r.ino)).map(|dir| dir.bytes).sum();
        if self.cache.bytes - leaving <= self.config.cache_bytes_max {
            return None;
        }
        let drop = self.tokens.poll_drop_idle(Micros(now.0.saturating_sub(IN_USE_FOR.0)));
        if drop.is_none() {
            // Everything is in use: looked at again, but not at each request.
            self.cache.trim_due = now + TRIM_PAUSE;
        }
        drop
    }
}

/// Releases on their way from which on no more are begun for want of memory: each takes some itself, for all names that it takes back. One that ends has the
/// next begun.
const RELEASES_MAX: usize = 256;
/// A directory used within this time is kept, whatever it takes: it would be asked for again at once.
const IN_USE_FOR: Micros = Micros::from_millis(1_000);
/// Until the next search after one that found nothing.
const TRIM_PAUSE: Micros = Micros::from_millis(100);
