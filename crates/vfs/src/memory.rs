//! What tokens and caches may take of memory.
//!
//! Two limits, both kept by giving up the least used one by one: the tokens that the master can remember for this node,
//! and the bytes that this node spends on cached directories.

use types::{LockMode, Micros, ResourceKind};

use crate::core::{Core, Link};

impl Core {
    /// The master says how many tokens this node may hold.
    pub(crate) fn set_share(&mut self, tokens: u64) {
        if self.config.token_limit == 0 {
            self.tokens.set_share(usize::try_from(tokens).unwrap_or(usize::MAX));
        }
    }

    /// Gives up one token for want of memory. Returns whether there was one to give up.
    pub(crate) fn drop_one(&mut self) -> bool {
        if self.link != Link::Up {
            return false;
        }
        let Some(drop) = self.tokens.poll_drop().or_else(|| self.drop_idle()) else { return false };
        self.metrics.tokens_dropped.add(drop.resource.kind.into(), 1);
        self.start_release(drop);
        true
    }

    fn drop_idle(&mut self) -> Option<lock::Revocation> {
        let now = self.clock.now;
        if now < self.cache.trim_due || self.cache.bytes <= self.config.cache_bytes_max {
            return None;
        }
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

/// A directory used within this time is kept, whatever it takes: it would be asked for again at once.
const IN_USE_FOR: Micros = Micros::from_millis(1_000);
/// Until the next search after one that found nothing.
const TRIM_PAUSE: Micros = Micros::from_millis(100);
