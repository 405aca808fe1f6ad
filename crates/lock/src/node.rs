//! Node side: the tokens a node holds, when it must give them back, and which to drop for want of memory.
//!
//! Invariants:
//!
//! - A token is used only while it is held and no revoke has started to take that right away.
//! - A revoke starts as soon as the token lies idle, at the latest after the minimum hold time, so that two nodes that
//!   want one resource each get work done (source: the minimum hold time of GFS2's glocks).
//! - Over its share of the master's memory a node gives up tokens one by one, least used first, never all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use types::{Ino, LockMode, Micros, ResourceId, ResourceKind};

/// The token table of a node.
#[derive(Clone, Debug)]
pub struct NodeTable {
    tokens: FxHashMap<ResourceId, Token>,
    /// Tokens in the order of their next chance to be dropped.
    clock: VecDeque<ResourceId>,
    /// Revokes that wait for the minimum hold time.
    delayed: Delayed,
    share: usize,
    /// Tokens on their way out: what is dropped does not count against the share any more.
    leaving: usize,
    hold: Hold,
    /// Tokens held for a turn: whoever waits for them has given them up for it, and an exchange is worth more than a pause.
    turns: FxHashSet<ResourceId>,
    /// Tokens under which a write has begun whose rest may follow: of which file, and until when it is waited for.
    begun: FxHashMap<ResourceId, (Ino, Micros)>,
}

/// How long a token is kept against a revoke.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Time after a grant during which a token in use is not given back.
    pub minimum: Micros,
    /// A token unused for this long is given back at once.
    pub idle: Micros,
    /// Time for which a token is kept for the rest of what was begun under it.
    pub rest: Micros,
}

#[derive(Clone, Copy, Debug)]
struct Token {
    mode: LockMode,
    granted_at: Micros,
    used_at: Micros,
    uses: u8,
    revoke: Revoke,
}

/// Where a token stands between asked back and given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Revoke {
    No,
    /// [`Delayed`] has until when.
    Delayed {
        to: LockMode,
    },
    /// Being carried out; `then` is the mode of a stronger revoke that came meanwhile.
    Started {
        to: LockMode,
        then: Option<LockMode>,
    },
}

/// A revoke whose time has come: take back what the kernel has, flush, then [`NodeTable::released`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// What is wanted back.
    pub resource: ResourceId,
    /// Mode held.
    pub from: LockMode,
    /// The most to keep.
    pub to: LockMode,
}

impl NodeTable {
    /// An empty table that may grow to `share` tokens.
    pub fn new(share: usize, hold: Hold) -> Self {
        Self {
            tokens: FxHashMap::default(),
            clock: VecDeque::new(),
            delayed: Delayed::default(),
            share: share.max(SHARE_MIN),
            leaving: 0,
            hold,
            turns: FxHashSet::default(),
            begun: FxHashMap::default(),
        }
    }

    /// A write of `ino` has begun under this token, and its rest may follow: until then it is given to nobody, minimum hold time or not.
    pub fn note_begun(&mut self, now: Micros, resource: ResourceId, ino: Ino) {
        if self.begun.len() >= BEGUN_MAX {
            self.begun.retain(|_, (_, until)| *until > now);
        }
        self.begun.insert(resource, (ino, now + self.hold.rest));
    }

    /// The file of a write under this token whose rest is waited for.
    pub fn awaits_rest(&self, now: Micros, resource: ResourceId) -> Option<Ino> {
        self.begun.get(&resource).filter(|(_, until)| *until > now).map(|(ino, _)| *ino)
    }

    /// Another write of `ino` came, which was that rest if one was awaited.
    pub fn note_rest(&mut self, now: Micros, resource: ResourceId, ino: Ino) {
        if self.begun.is_empty() || self.begun.get(&resource).is_none_or(|(begun, _)| *begun != ino) {
            return;
        }
        self.begun.remove(&resource);
        if let Some(due) = self.delayed.remove(resource) {
            let until = self.held_until(resource).map_or(due, |until| until.max(now));
            self.delayed.insert(due.min(until), resource);
        }
    }

    /// The token is held for a turn, until it is given back.
    pub fn note_turn(&mut self, resource: ResourceId) {
        self.turns.insert(resource);
    }

    /// Whether somebody waits for a turn that this node has.
    pub fn is_turn_awaited(&self) -> bool {
        self.turns.iter().any(|resource| self.delayed.due.contains_key(resource))
    }

    /// How long a token is kept against a revoke.
    fn hold_of(&self, resource: ResourceId) -> Hold {
        match self.turns.contains(&resource) {
            true => Hold { idle: self.hold.minimum.min(Micros(TURN_IDLE * self.hold.idle.0)), ..self.hold },
            false => self.hold,
        }
    }

    /// Until when a revoke waits: until the token lies idle, but not beyond its minimum hold time unless a write has only begun.
    fn held_until(&self, resource: ResourceId) -> Option<Micros> {
        let (token, hold) = (self.tokens.get(&resource)?, self.hold_of(resource));
        let held = (token.used_at + hold.idle).min(token.granted_at + hold.minimum);
        Some(self.begun.get(&resource).map_or(held, |(_, until)| held.max(*until)))
    }

    /// Sets how many tokens the table may hold.
    pub fn set_share(&mut self, share: usize) {
        self.share = share.max(SHARE_MIN);
    }

    /// Mode that may be used: what is held, less what a started revoke takes.
    pub fn usable(&self, resource: ResourceId) -> LockMode {
        match self.tokens.get(&resource) {
            None => LockMode::Nl,
            Some(token) => match token.revoke {
                Revoke::No | Revoke::Delayed { .. } => token.mode,
                Revoke::Started { to, .. } => token.mode.min(to),
            },
        }
    }

    /// Whether it is held and was neither granted nor used since `before`.
    pub fn is_unused_since(&self, resource: ResourceId, before: Micros) -> bool {
        self.tokens.get(&resource).is_some_and(|token| token.used_at < before)
    }

    /// When it was granted last.
    pub fn granted_at(&self, resource: ResourceId) -> Option<Micros> {
        self.tokens.get(&resource).map(|token| token.granted_at)
    }

    /// Mode held, started revokes or not.
    pub fn held(&self, resource: ResourceId) -> LockMode {
        self.tokens.get(&resource).map_or(LockMode::Nl, |t| t.mode)
    }

    /// Whether `mode` may be used, and notes the use.
    pub fn try_use(&mut self, now: Micros, resource: ResourceId, mode: LockMode) -> bool {
        let Some(token) = self.tokens.get_mut(&resource) else { return false };
        let usable = match token.revoke {
            Revoke::No | Revoke::Delayed { .. } => token.mode,
            Revoke::Started { to, .. } => token.mode.min(to),
        };
        if !usable.permits(mode) {
            return false;
        }
        token.used_at = now;
        token.uses = (token.uses + 1).min(USES_MAX);
        true
    }

    /// Notes a grant. Returns whether the token is new.
    pub fn grant(&mut self, now: Micros, resource: ResourceId, mode: LockMode) -> bool {
        if let Some(token) = self.tokens.get_mut(&resource) {
            token.mode = token.mode.max(mode);
            token.granted_at = now;
            token.used_at = now;
            return false;
        }
        let token = Token { mode, granted_at: now, used_at: now, uses: 0, revoke: Revoke::No };
        self.tokens.insert(resource, token);
        self.clock.push_back(resource);
        if self.clock.len() > 2 * self.tokens.len() + SHARE_MIN {
            self.sweep_clock();
        }
        true
    }

    /// Resources given back leave their place in the order behind, and get a new one when they come again.
    fn sweep_clock(&mut self) {
        let mut seen = FxHashSet::default();
        self.clock.retain(|resource| self.tokens.contains_key(resource) && seen.insert(*resource));
    }

    /// Takes in a revoke. [`Self::poll_revocation`] returns it when it is time to act.
    ///
    /// Returns the mode to answer at once if no more than that is held.
    pub fn revoke(&mut self, now: Micros, resource: ResourceId, to: LockMode) -> Option<LockMode> {
        let held_until = self.held_until(resource);
        let Some(token) = self.tokens.get_mut(&resource) else { return Some(LockMode::Nl) };
        if to.permits(token.mode) {
            return Some(token.mode);
        }
        let (wanted, due) = match token.revoke {
            Revoke::Started { to: under_way, then } => {
                if !to.permits(under_way) {
                    let then = then.map_or(to, |earlier| earlier.min(to));
                    token.revoke = Revoke::Started { to: under_way, then: Some(then) };
                }
                return None;
            }
            Revoke::Delayed { to: earlier } => (to.min(earlier), self.delayed.remove(resource)),
            Revoke::No => (to, None),
        };
        let due = due.unwrap_or_else(|| held_until.unwrap_or(now).max(now));
        token.revoke = Revoke::Delayed { to: wanted };
        self.delayed.insert(due, resource);
        None
    }

    /// The next revoke to act on now: the right it takes is no longer usable from here on.
    pub fn poll_revocation(&mut self, now: Micros) -> Option<Revocation> {
        let (due, resource) = self.delayed.first()?;
        if due > now {
            return None;
        }
        self.delayed.remove(resource);
        let held_until = self.held_until(resource)?;
        let token = self.tokens.get_mut(&resource)?;
        let Revoke::Delayed { to } = token.revoke else { return None };
        if due != AT_ONCE && held_until > now {
            // It was used meanwhile.
            self.delayed.insert(held_until, resource);
            return self.poll_revocation(now);
        }
        token.revoke = Revoke::Started { to, then: None };
        self.leaving += usize::from(to == LockMode::Nl);
        Some(Revocation { resource, from: token.mode, to })
    }

    /// Starts to give a token up without being asked.
    pub fn start_release(&mut self, resource: ResourceId, to: LockMode) -> Option<Revocation> {
        let token = self.tokens.get_mut(&resource)?;
        if to.permits(token.mode) || token.revoke != Revoke::No {
            return None;
        }
        token.revoke = Revoke::Started { to, then: None };
        self.leaving += usize::from(to == LockMode::Nl);
        Some(Revocation { resource, from: token.mode, to })
    }

    /// A release that has started gives up more than it began with: from here on no more than `to` is usable.
    pub fn release_further(&mut self, resource: ResourceId, to: LockMode) {
        let Some(token) = self.tokens.get_mut(&resource) else { return };
        let was_leaving = token.is_leaving();
        if let Revoke::Started { to: under_way, then } = &mut token.revoke {
            *under_way = to.min(*under_way);
            *then = then.filter(|more| !more.permits(*under_way));
        }
        self.leaving += usize::from(token.is_leaving()) - usize::from(was_leaving);
    }

    /// Whether a revoke or release of the resource has started.
    pub fn is_releasing(&self, resource: ResourceId) -> bool {
        self.tokens.get(&resource).is_some_and(|t| matches!(t.revoke, Revoke::Started { .. }))
    }

    /// Whether the resource is asked back, started or not.
    pub fn is_revoked(&self, resource: ResourceId) -> bool {
        self.tokens.get(&resource).is_some_and(|t| t.revoke != Revoke::No)
    }

    /// The most to keep of a token when all revokes so far are carried out, if it is asked back.
    pub fn asked_back(&self, resource: ResourceId) -> Option<LockMode> {
        match self.tokens.get(&resource)?.revoke {
            Revoke::No => None,
            Revoke::Delayed { to } => Some(to),
            Revoke::Started { to, then } => Some(then.map_or(to, |then| then.min(to))),
        }
    }

    /// The token was given back down to `to`, which is what the master is told.
    pub fn released(&mut self, resource: ResourceId, to: LockMode) {
        let Some(token) = self.tokens.get_mut(&resource) else { return };
        token.mode = token.mode.min(to);
        self.leaving -= usize::from(token.is_leaving());
        if let Revoke::Started { then: Some(more), .. } = token.revoke
            && !more.permits(token.mode)
        {
            token.revoke = Revoke::Delayed { to: more };
            self.delayed.insert(AT_ONCE, resource);
            return;
        }
        if let Revoke::Delayed { to: more } = token.revoke {
            if !more.permits(token.mode) {
                return;
            }
            self.delayed.remove(resource);
        }
        token.revoke = Revoke::No;
        if token.mode == LockMode::Nl {
            self.tokens.remove(&resource);
            self.turns.remove(&resource);
            self.begun.remove(&resource);
        }
    }

    /// Drops a token without a word: its resource is gone.
    pub fn forget(&mut self, resource: ResourceId) {
        let Some(token) = self.tokens.remove(&resource) else { return };
        self.leaving -= usize::from(token.is_leaving());
        self.delayed.remove(resource);
        self.turns.remove(&resource);
        self.begun.remove(&resource);
    }

    /// When [`Self::poll_revocation`] has something next.
    pub fn next_revocation(&self) -> Option<Micros> {
        self.delayed.first().map(|(due, _)| due)
    }

    /// A token to give up for want of memory, if the table is over its share.
    pub fn poll_drop(&mut self) -> Option<Revocation> {
        if self.tokens.len() - self.leaving <= self.share {
            return None;
        }
        self.drop_least_used(|_, _| true)
    }

    /// A directory's token to give up because what it covers takes too much memory: none that was used since
    /// `before`, for whoever uses it would ask for it again at once.
    pub fn poll_drop_idle(&mut self, before: Micros) -> Option<Revocation> {
        self.drop_least_used(|resource, used_at| resource.kind == ResourceKind::Dir && used_at < before)
    }

    /// Tokens used often survive several rounds, so one long walk does not throw them out.
    fn drop_least_used(&mut self, may_drop: impl Fn(ResourceId, Micros) -> bool) -> Option<Revocation> {
        let mut rounds = self.clock.len() * usize::from(USES_MAX + 1);
        while rounds > 0 {
            rounds -= 1;
            let resource = self.clock.pop_front()?;
            let Some(token) = self.tokens.get_mut(&resource) else { continue };
            self.clock.push_back(resource);
            if token.uses > 0 {
                token.uses -= 1;
            } else if token.revoke == Revoke::No && may_drop(resource, token.used_at) {
                token.revoke = Revoke::Started { to: LockMode::Nl, then: None };
                self.leaving += 1;
                return Some(Revocation { resource, from: token.mode, to: LockMode::Nl });
            }
        }
        None
    }

    /// Tokens that may be held.
    pub fn share(&self) -> usize {
        self.share
    }

    /// When the least used of the tokens that `counts` says count was used last.
    pub fn oldest_use(&self, counts: impl Fn(ResourceId) -> bool) -> Option<Micros> {
        let tokens = self.tokens.iter().filter(|(resource, _)| counts(**resource));
        tokens.map(|(_, token)| token.used_at.max(token.granted_at)).min()
    }

    /// How many tokens are held.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens held, in order of resource, as a new master is told.
    pub fn list(&self) -> Vec<(ResourceId, LockMode)> {
        let mut list: Vec<_> = self.tokens.iter().map(|(r, t)| (*r, t.mode)).collect();
        list.sort_unstable();
        list
    }

    /// Revokes of an old master are void: the new one sends its own. Started ones go on to their release. Returns what is not released after all:
    /// somebody may wait for that.
    pub fn forget_delayed(&mut self) -> Vec<ResourceId> {
        let void: Vec<ResourceId> = std::mem::take(&mut self.delayed).due.into_keys().collect();
        for resource in &void {
            if let Some(token) = self.tokens.get_mut(resource) {
                token.revoke = Revoke::No;
            }
        }
        void
    }

    /// Drops everything: the membership has ended.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.clock.clear();
        self.delayed = Delayed::default();
        self.turns.clear();
        self.leaving = 0;
    }
}

/// Revokes that wait, by when they are due. Apart from the tokens, most of which are never asked back.
#[derive(Clone, Debug, Default)]
struct Delayed {
    order: BTreeSet<(Micros, ResourceId)>,
    due: BTreeMap<ResourceId, Micros>,
}

impl Delayed {
    fn insert(&mut self, due: Micros, resource: ResourceId) {
        self.remove(resource);
        self.due.insert(resource, due);
        self.order.insert((due, resource));
    }

    fn remove(&mut self, resource: ResourceId) -> Option<Micros> {
        let due = self.due.remove(&resource)?;
        self.order.remove(&(due, resource));
        Some(due)
    }

    fn first(&self) -> Option<(Micros, ResourceId)> {
        self.order.first().copied()
    }
}

impl Token {
    fn is_leaving(&self) -> bool {
        matches!(self.revoke, Revoke::Started { to: LockMode::Nl, .. })
    }
}

/// So many times as long as another token may one lie idle that is held for a turn.
const TURN_IDLE: u64 = 5;
const USES_MAX: u8 = 3;
/// So many writes that have only begun are remembered before those are forgotten whose rest did not follow.
const BEGUN_MAX: usize = 64;
/// When a revoke is due that does not wait for anything any more.
const AT_ONCE: Micros = Micros(0);
/// A node may always hold this many tokens, or it could not work at all.
const SHARE_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use types::LockMode::{Ex, Nl, Pr};

    use super::*;

    const D: ResourceId = ResourceId::dir(Ino(7));
    const HOLD: Hold = Hold { minimum: Micros(10_000), idle: Micros(1_000), rest: Micros(5_000) };

    fn table() -> NodeTable {
        NodeTable::new(1000, HOLD)
    }

    #[test]
    fn revoke_waits_for_minimum_hold_time_while_the_token_is_in_use() {
        let mut table = table();
        table.grant(Micros(100), D, Ex);
        assert!(table.try_use(Micros(5_000), D, Ex));
        assert_eq!(table.revoke(Micros(5_100), D, Pr), None);
        assert_eq!(table.poll_revocation(Micros(5_100)), None);
        for now in (5_900..10_100).step_by(600) {
            assert!(table.try_use(Micros(now), D, Ex), "usable until the revoke starts");
            assert_eq!(table.poll_revocation(Micros(now + 599)), None);
        }
        assert_eq!(table.next_revocation(), Some(Micros(10_100)));
        let expected = Revocation { resource: D, from: Ex, to: Pr };
        assert_eq!(table.poll_revocation(Micros(10_100)), Some(expected));
        assert!(!table.try_use(Micros(10_101), D, Ex));
        assert!(table.try_use(Micros(10_101), D, Pr));
        table.released(D, Pr);
        assert_eq!(table.usable(D), Pr);
    }

    #[test]
    fn a_write_that_has_only_begun_keeps_its_token_for_the_rest() {
        let mut table = table();
        table.grant(Micros(0), D, Ex);
        // Long held, so a revoke would start at once; the rest of another file's write is not what is awaited.
        table.note_begun(Micros(20_000), D, Ino(8));
        table.note_rest(Micros(20_100), D, Ino(9));
        assert_eq!(table.revoke(Micros(20_200), D, Nl), None);
        assert_eq!(
            (table.poll_revocation(Micros(24_999)), table.next_revocation()),
            (None, Some(Micros(25_000)))
        );
        table.note_rest(Micros(24_999), D, Ino(8));
        assert_eq!(table.poll_revocation(Micros(24_999)), Some(Revocation { resource: D, from: Ex, to: Nl }));
        table.released(D, Nl);

        // No rest comes.
        table.grant(Micros(30_000), D, Ex);
        table.note_begun(Micros(50_000), D, Ino(8));
        assert_eq!([50_000, 55_000].map(|now| table.awaits_rest(Micros(now), D)), [Some(Ino(8)), None]);
        assert_eq!(table.revoke(Micros(50_001), D, Nl), None);
        assert_eq!(table.poll_revocation(Micros(54_999)), None);
        assert_eq!(table.poll_revocation(Micros(55_000)), Some(Revocation { resource: D, from: Ex, to: Nl }));
        table.released(D, Nl);
        assert!(table.begun.is_empty());
    }

    #[test]
    fn idle_token_is_given_back_at_once() {
        let mut table = table();
        table.grant(Micros(0), D, Ex);
        assert_eq!(table.revoke(Micros(1_000), D, Nl), None);
        assert_eq!(table.poll_revocation(Micros(1_000)), Some(Revocation { resource: D, from: Ex, to: Nl }));
        table.released(D, Nl);
        assert!(table.is_empty());
    }

    #[test]
    fn revoke_waits_no_longer_than_the_token_is_in_use() {
        let mut table = table();
        table.grant(Micros(0), D, Ex);
        assert!(table.try_use(Micros(2_000), D, Ex));
        assert_eq!(table.revoke(Micros(2_100), D, Nl), None);
        assert_eq!(table.next_revocation(), Some(Micros(3_000)));
        assert!(table.try_use(Micros(2_500), D, Ex));
        assert_eq!(table.poll_revocation(Micros(3_000)), None);
        assert_eq!(table.next_revocation(), Some(Micros(3_500)));
        assert_eq!(table.poll_revocation(Micros(3_500)), Some(Revocation { resource: D, from: Ex, to: Nl }));
    }

    #[test]
    fn revoke_of_what_is_not_held_is_answered_at_once() {
        let mut table = table();
        assert_eq!(table.revoke(Micros(0), D, Nl), Some(Nl));
        table.grant(Micros(0), D, Pr);
        assert_eq!(table.revoke(Micros(0), D, Pr), Some(Pr));
    }

    #[test]
    fn stronger_revoke_during_a_release_stays_due() {
        let mut table = table();
        table.grant(Micros(0), D, Ex);
        table.revoke(Micros(2_000), D, Pr);
        table.poll_revocation(Micros(2_000));
        assert_eq!(table.revoke(Micros(2_500), D, Nl), None);
        assert_eq!(table.usable(D), Pr, "what a started revoke takes stays taken");
        table.released(D, Pr);
        assert_eq!(table.poll_revocation(Micros(2_500)), Some(Revocation { resource: D, from: Pr, to: Nl }));
    }

    #[test]
    fn a_release_that_goes_further_takes_what_was_to_stay() {
        let mut table = table();
        table.grant(Micros(0), D, Ex);
        table.revoke(Micros(2_000), D, Pr);
        table.poll_revocation(Micros(2_000));
        assert_eq!(table.usable(D), Pr);
        table.release_further(D, Nl);
        assert_eq!(table.usable(D), Nl);
        assert!(!table.try_use(Micros(2_001), D, Pr));
        assert_eq!(table.revoke(Micros(2_500), D, Nl), None);
        table.released(D, Nl);
        assert_eq!((table.poll_revocation(Micros(9_000)), table.leaving, table.len()), (None, 0, 0));
    }

    #[test]
    fn over_its_share_the_table_drops_one_by_one_least_used_first() {
        let mut table = NodeTable::new(64, HOLD);
        for ino in 1..=70 {
            table.grant(Micros(0), ResourceId::dir(Ino(ino)), Pr);
        }
        assert!(table.try_use(Micros(1), ResourceId::dir(Ino(1)), Pr));
        let mut dropped = Vec::new();
        while let Some(revocation) = table.poll_drop() {
            dropped.push(revocation.resource);
        }
        // What is on its way out does not count, though it takes its time.
        let inos: Vec<u64> = dropped.iter().map(|resource| resource.ino.0).collect();
        assert_eq!(inos, [2, 3, 4, 5, 6, 7]);
        assert_eq!(table.usable(ResourceId::dir(Ino(1))), Pr);
        dropped.into_iter().for_each(|resource| table.released(resource, Nl));
        assert_eq!(table.poll_drop(), None);
        table.grant(Micros(2), ResourceId::dir(Ino(99)), Pr);
        assert!(table.poll_drop().is_some());
    }

    #[test]
    fn tokens_that_come_and_go_leave_nothing_behind() {
        let mut table = table();
        for round in 0..10_000 {
            table.grant(Micros(round), D, Ex);
            table.start_release(D, Nl);
            table.released(D, Nl);
        }
        assert!(table.clock.len() <= SHARE_MIN + 1);
        assert_eq!(table.leaving, 0);
    }

    #[test]
    fn for_want_of_cache_memory_only_idle_directories_go() {
        let mut table = table();
        table.grant(Micros(0), ResourceId::file(Ino(1)), Pr);
        table.grant(Micros(0), ResourceId::dir(Ino(2)), Pr);
        table.grant(Micros(5), ResourceId::dir(Ino(3)), Pr);
        let expected = Revocation { resource: ResourceId::dir(Ino(2)), from: Pr, to: Nl };
        assert_eq!(table.poll_drop_idle(Micros(5)), Some(expected));
        assert_eq!(table.poll_drop_idle(Micros(5)), None);
    }
}
