//! Locks of applications: flock, fcntl and open-file-description locks of all nodes, fair and with deadlock
//! detection. A pure table; `app_lock.rs` connects it to messages.
//!
//! Invariants: no two granted locks of one kind on one file overlap unless both are shared or of one owner;
//! fcntl waiters of a file are served in the order they came, except that one who could not be served does not
//! hold up those it does not conflict with, and that one whom those before it wait for goes before them. Nobody waits for a lock that merely waits where that could close a
//! circle: with fcntl such waiting counts when circles are looked for, and flock, where nobody looks, has none.

mod coverage;
mod file;
#[cfg(test)]
mod model;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use meta::FsError;
use types::{Ino, NodeId};
use wire::{ByteLock, LockKind, LockOwner};

use file::{File, Waiting};

/// Whose lock: owners are the nodes' own numbers.
pub(crate) type Holder = (NodeId, LockOwner);

/// A lock that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// What is wanted; its process as its node numbers it.
    pub lock: ByteLock,
    /// By which node.
    pub node: NodeId,
    /// Who has what is in the way: nodes, and processes as they number them. Empty where only others who wait are.
    pub holders: Vec<(NodeId, u32)>,
}

/// All locks of a volume.
#[derive(Debug, Default)]
pub(crate) struct AppLocks {
    files: BTreeMap<Ino, File>,
    /// Files with waiters, and the nodes that have locks of them.
    contended: BTreeMap<Ino, BTreeSet<NodeId>>,
    /// Nodes that have locks of files with waiters, of so many.
    in_way: BTreeMap<NodeId, usize>,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Granted.
    Granted,
    /// In line.
    Waiting,
    /// Refused.
    Refused(FsError),
}

/// Granted or waiting locks of one file, at most.
const LOCKS_MAX: usize = 100_000;

impl AppLocks {
    /// Takes a lock, replacing what its owner has in the range. Returns also the requests that are granted by
    /// what it gave up.
    pub fn set(
        &mut self,
        node: NodeId,
        request: u64,
        lock: ByteLock,
        wait: bool,
    ) -> (Outcome, Vec<(NodeId, u64)>) {
        if is_empty(&lock) {
            return (Outcome::Refused(FsError::Invalid), Vec::new());
        }
        let outcome = self.try_set(node, request, lock, wait);
        let served = self.files.get_mut(&lock.ino).map(File::serve).unwrap_or_default();
        self.tidy(lock.ino);
        (outcome, served)
    }

    fn try_set(&mut self, node: NodeId, request: u64, lock: ByteLock, wait: bool) -> Outcome {
        let file = self.files.entry(lock.ino).or_default();
        // flock converts by giving up first, however it ends: two that convert to exclusive do not wait for each other. Who asks for what
        // he has converts nothing, and passes by whoever waits for it.
        if lock.kind == LockKind::Flock {
            if file.granted.has(node, &lock) {
                return Outcome::Granted;
            }
            file.granted.cut(node, &lock);
        }
        if file.len() >= LOCKS_MAX {
            return Outcome::Refused(FsError::LimitReached);
        }
        let is_free = file.granted.conflict(node, &lock).is_none();
        // Who does not wait takes no turn: fcntl(2) refuses F_SETLK for locks that are held, not for those awaited.
        let must_queue = wait && file.is_overtaking(node, &lock);
        if is_free && (!must_queue || self.would_deadlock(node, &lock, usize::MAX)) {
            if let Some(file) = self.files.get_mut(&lock.ino) {
                file.granted.take(node, lock);
            }
            return Outcome::Granted;
        }
        if !wait {
            return Outcome::Refused(FsError::WouldBlock);
        }
        let waiting = Waiting { node, request, lock };
        if lock.kind == LockKind::Flock || !self.would_deadlock(node, &lock, usize::MAX) {
            self.wait_at(usize::MAX, waiting);
            return Outcome::Waiting;
        }
        // There is no circle yet where it would be one of turns: who has something that others wait for goes before them.
        let front = self.files.get(&lock.ino).map_or(0, |file| file.front_for(node, &lock));
        self.wait_at(front, waiting);
        if !self.would_deadlock(node, &lock, front) {
            return Outcome::Waiting;
        }
        if let Some(file) = self.files.get_mut(&lock.ino) {
            file.waiting.remove(front);
        }
        Outcome::Refused(FsError::Deadlock)
    }

    fn wait_at(&mut self, place: usize, waiting: Waiting) {
        if let Some(file) = self.files.get_mut(&waiting.lock.ino) {
            file.waiting.insert(place.min(file.waiting.len()), waiting);
        }
        self.contended.entry(waiting.lock.ino).or_default();
    }

    /// Whether giving up a range would make more locks of a file than it may have.
    pub fn is_beyond_limit(&self, node: NodeId, lock: &ByteLock) -> bool {
        let file = self.files.get(&lock.ino).filter(|file| file.len() >= LOCKS_MAX && !is_empty(lock));
        file.is_some_and(|file| file.granted.is_split_by(node, lock))
    }

    /// Gives up a range. Returns the requests that are granted by it.
    pub fn unset(&mut self, node: NodeId, lock: &ByteLock) -> Vec<(NodeId, u64)> {
        let Some(file) = self.files.get_mut(&lock.ino).filter(|_| !is_empty(lock)) else {
            return Vec::new();
        };
        file.granted.cut(node, lock);
        let granted = file.serve();
        self.tidy(lock.ino);
        granted
    }

    /// A request for `lock` is called off before it was looked at. Its node has given up what a flock is converted from, and will not name
    /// that again. Returns the requests that are granted by it.
    pub fn call_off(&mut self, node: NodeId, lock: &ByteLock) -> Vec<(NodeId, u64)> {
        let has = self.files.get(&lock.ino).is_some_and(|file| file.granted.has(node, lock));
        if lock.kind != LockKind::Flock || has {
            return Vec::new();
        }
        self.unset(node, lock)
    }

    /// Gives up everything of an owner on a file.
    pub fn drop_owner(
        &mut self,
        node: NodeId,
        ino: Ino,
        kind: LockKind,
        owner: LockOwner,
    ) -> Vec<(NodeId, u64)> {
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        file.granted.drop_owner(kind, (node, owner));
        let granted = file.serve();
        self.tidy(ino);
        granted
    }

    /// Takes a request out of line. Returns whether it was there, and what its going lets through.
    pub fn cancel(&mut self, node: NodeId, request: u64) -> (bool, Vec<(NodeId, u64)>) {
        let is_it = |w: &Waiting| w.node == node && w.request == request;
        let mut contended = self.contended.keys().filter_map(|ino| Some((*ino, self.files.get(ino)?)));
        let found = contended.find(|(_, file)| file.waiting.iter().any(is_it)).map(|(ino, _)| ino);
        let Some(ino) = found else { return (false, Vec::new()) };
        let Some(file) = self.files.get_mut(&ino) else { return (false, Vec::new()) };
        file.waiting.retain(|w| !is_it(w));
        let granted = file.serve();
        self.tidy(ino);
        (true, granted)
    }

    /// A node is gone: everything of it goes.
    pub fn drop_node(&mut self, node: NodeId) -> Vec<(NodeId, u64)> {
        let mut granted = Vec::new();
        let inos: Vec<Ino> = self.files.keys().copied().collect();
        for ino in inos {
            let Some(file) = self.files.get_mut(&ino) else { continue };
            file.granted.drop_node(node);
            file.waiting.retain(|w| w.node != node);
            granted.extend(file.serve());
            self.tidy(ino);
        }
        granted
    }

    /// The first lock that would be in the way.
    pub fn test(&self, node: NodeId, lock: &ByteLock) -> Option<ByteLock> {
        self.files.get(&lock.ino)?.granted.conflict(node, lock)
    }

    /// Who waits for locks, and for whose, so many at most.
    pub fn queues(&self, most: usize) -> Vec<LockWait> {
        let files = self.contended.keys().filter_map(|ino| self.files.get(ino));
        let waiting = files.flat_map(|file| file.waiting.iter().map(move |waiting| (file, waiting)));
        let wait = |(file, waiting): (&File, &Waiting)| LockWait {
            lock: waiting.lock,
            node: waiting.node,
            holders: file.granted.locks_in_way(waiting.node, &waiting.lock),
        };
        waiting.take(most).map(wait).collect()
    }

    /// Nodes with locks that would be in the way.
    pub fn holders_in_way(&self, node: NodeId, lock: &ByteLock) -> BTreeSet<NodeId> {
        let Some(file) = self.files.get(&lock.ino) else { return BTreeSet::new() };
        file.granted.in_way(node, lock).map(|(node, _)| node).collect()
    }

    /// Locks that a node held under the old master.
    pub fn reassert(&mut self, node: NodeId, locks: Vec<ByteLock>) {
        for lock in locks.into_iter().filter(|lock| !is_empty(lock)) {
            self.files.entry(lock.ino).or_default().granted.take(node, lock);
        }
    }

    /// Nodes that have locks of files for which others wait. Asked with every message: which of them are in whose way is not looked for.
    pub fn in_way(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.in_way.keys().copied()
    }

    /// Whether somebody waits for a lock of a node. If nobody does, it is not [`in_way`](Self::in_way) from here on, until something changes.
    pub fn is_in_way(&mut self, node: NodeId) -> bool {
        let contended = self.contended.iter().filter(|(_, nodes)| nodes.contains(&node));
        for file in contended.filter_map(|(ino, _)| self.files.get(ino)) {
            let is_its = |w: &Waiting| file.granted.in_way(w.node, &w.lock).any(|(of, _)| of == node);
            if file.waiting.iter().any(is_its) {
                return true;
            }
        }
        self.in_way.remove(&node);
        self.contended.values_mut().for_each(|nodes| _ = nodes.remove(&node));
        false
    }

    /// A node comes back by a new connection: of its locks those stay that it knows of, and what it waits for it
    /// asks again. Returns the requests that are granted by what goes.
    pub fn keep_known(&mut self, node: NodeId, known: &[ByteLock]) -> Vec<(NodeId, u64)> {
        let mut granted = Vec::new();
        let mut of_file: BTreeMap<Ino, Vec<&ByteLock>> = BTreeMap::new();
        for known in known.iter().filter(|known| !is_empty(known)) {
            of_file.entry(known.ino).or_default().push(known);
        }
        let inos: Vec<Ino> = self.files.keys().copied().collect();
        for ino in inos {
            let Some(file) = self.files.get_mut(&ino) else { continue };
            file.waiting.retain(|waiting| waiting.node != node);
            file.granted.keep_known(node, of_file.remove(&ino).into_iter().flatten());
            granted.extend(file.serve());
            self.tidy(ino);
        }
        granted
    }

    /// Notes what has become of a file.
    fn tidy(&mut self, ino: Ino) {
        for node in self.contended.remove(&ino).unwrap_or_default() {
            if let Entry::Occupied(mut files) = self.in_way.entry(node) {
                *files.get_mut() -= 1;
                if *files.get() == 0 {
                    files.remove();
                }
            }
        }
        let Some(file) = self.files.get(&ino) else { return };
        if file.len() == 0 {
            self.files.remove(&ino);
        } else if !file.waiting.is_empty() {
            let nodes = file.granted.nodes();
            for node in &nodes {
                *self.in_way.entry(*node).or_default() += 1;
            }
            self.contended.insert(ino, nodes);
        }
    }

    /// Whether waiting for `lock` behind the first `ahead` of those who wait closes a circle: its holders wait, in turn, for this owner.
    fn would_deadlock(&self, node: NodeId, lock: &ByteLock, ahead: usize) -> bool {
        let start: Holder = (node, lock.owner);
        let contended = || self.contended.keys().filter_map(|ino| self.files.get(ino));
        // Most who wait have nothing that anybody waits for.
        if !contended().any(|file| file.is_of(start)) {
            return false;
        }
        let mut waits: BTreeMap<Holder, Vec<(&File, usize)>> = BTreeMap::new();
        for file in contended() {
            for (ahead, waiting) in file.waiting.iter().enumerate() {
                if waiting.lock.kind == LockKind::Posix {
                    waits.entry((waiting.node, waiting.lock.owner)).or_default().push((file, ahead));
                }
            }
        }
        let mut seen: BTreeSet<Holder> = BTreeSet::new();
        let mut next: Vec<Holder> = match self.files.get(&lock.ino) {
            Some(file) => file.in_way(node, lock, ahead),
            None => Vec::new(),
        };
        while let Some(holder) = next.pop() {
            if holder == start {
                return true;
            }
            if !seen.insert(holder) {
                continue;
            }
            for (file, ahead) in waits.get(&holder).into_iter().flatten() {
                if let Some(waiting) = file.waiting.get(*ahead) {
                    next.extend(file.in_way(waiting.node, &waiting.lock, *ahead));
                }
            }
        }
        false
    }
}

/// Whether a range has no byte, which no node says.
fn is_empty(lock: &ByteLock) -> bool {
    lock.start >= lock.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);
    const D: NodeId = NodeId(4);

    fn lock(owner: u64, exclusive: bool, start: u64, end: u64) -> ByteLock {
        let kind = LockKind::Posix;
        ByteLock { ino: Ino(9), kind, owner: LockOwner(owner), pid: 1, exclusive, start, end }
    }

    /// As on other file systems: a reader that wants to write is not refused because somebody else queues to write.
    #[test]
    fn whoever_holds_what_others_wait_for_waits_before_them() {
        let mut locks = AppLocks::default();
        for (node, request) in [(A, 1), (B, 2)] {
            assert_eq!(locks.set(node, request, lock(1, false, 0, 10), true).0, Outcome::Granted);
        }
        assert_eq!(locks.set(C, 3, lock(1, true, 0, 10), true).0, Outcome::Waiting);
        assert_eq!(locks.set(A, 4, lock(1, true, 0, 10), true).0, Outcome::Waiting, "B waits for nobody");
        assert_eq!(locks.set(B, 5, lock(1, true, 0, 10), true).0, Outcome::Refused(FsError::Deadlock));
        assert_eq!(locks.unset(B, &lock(1, false, 0, 10)), [(A, 4)]);
        assert_eq!(locks.unset(A, &lock(1, false, 0, 10)), [(C, 3)]);
    }

    #[test]
    fn ranges_of_one_owner_replace_and_split() {
        let mut locks = AppLocks::default();
        assert_eq!(locks.set(A, 1, lock(1, true, 0, 100), false).0, Outcome::Granted);
        assert_eq!(locks.set(A, 2, lock(1, false, 40, 60), false).0, Outcome::Granted);
        assert_eq!(locks.set(B, 3, lock(1, false, 45, 50), false).0, Outcome::Granted);
        assert_eq!(locks.set(B, 4, lock(1, false, 0, 10), false).0, Outcome::Refused(FsError::WouldBlock));
        assert_eq!(locks.test(B, &lock(7, false, 90, 95)), Some(lock(1, true, 60, 100)));
    }

    #[test]
    fn alike_ranges_of_one_owner_that_touch_are_one() {
        let mut locks = AppLocks::default();
        for (request, start) in [0, 20, 10].into_iter().enumerate() {
            let taken = lock(1, true, start, start + 10);
            assert_eq!(locks.set(A, request as u64, taken, false).0, Outcome::Granted);
        }
        assert_eq!(locks.test(B, &lock(7, false, 25, 26)), Some(lock(1, true, 0, 30)));
        assert_eq!(locks.set(A, 4, lock(1, false, 30, 40), false).0, Outcome::Granted);
        assert_eq!(locks.test(B, &lock(7, true, 35, 36)), Some(lock(1, false, 30, 40)));
        assert_eq!(locks.set(A, 5, lock(2, true, 40, 50), false).0, Outcome::Granted);
        assert_eq!(locks.test(B, &lock(7, true, 45, 46)), Some(lock(2, true, 40, 50)));
        locks.unset(A, &lock(1, true, 10, 20));
        assert_eq!(locks.test(B, &lock(7, false, 25, 26)), Some(lock(1, true, 20, 30)));
    }

    #[test]
    fn waiters_are_served_in_order_and_not_overtaken() {
        let mut locks = AppLocks::default();
        assert_eq!(locks.set(A, 1, lock(1, false, 0, 10), true).0, Outcome::Granted);
        assert_eq!(locks.set(B, 2, lock(2, true, 0, 10), true).0, Outcome::Waiting);
        assert_eq!(locks.set(C, 3, lock(3, false, 0, 10), true).0, Outcome::Waiting, "behind the writer");
        assert_eq!(locks.unset(A, &lock(1, false, 0, 10)), [(B, 2)]);
        assert_eq!(locks.unset(B, &lock(2, true, 0, 10)), [(C, 3)]);
    }

    #[test]
    fn who_does_not_wait_is_refused_for_locks_that_are_held_alone() {
        let mut locks = AppLocks::default();
        assert_eq!(locks.set(A, 1, lock(1, false, 0, 10), true).0, Outcome::Granted);
        assert_eq!(locks.set(B, 2, lock(2, true, 0, 10), true).0, Outcome::Waiting);
        assert_eq!(locks.set(C, 3, lock(3, true, 0, 10), false).0, Outcome::Refused(FsError::WouldBlock));
        assert_eq!(locks.set(C, 4, lock(3, false, 0, 10), false).0, Outcome::Granted);
        assert_eq!(locks.unset(A, &lock(1, false, 0, 10)), []);
        assert_eq!(locks.unset(C, &lock(3, false, 0, 10)), [(B, 2)]);
    }

    #[test]
    fn circle_of_waiters_over_two_nodes_is_a_deadlock() {
        let mut locks = AppLocks::default();
        assert_eq!(locks.set(A, 1, lock(1, true, 0, 1), true).0, Outcome::Granted);
        assert_eq!(locks.set(B, 2, lock(2, true, 1, 2), true).0, Outcome::Granted);
        assert_eq!(locks.set(A, 3, lock(1, true, 1, 2), true).0, Outcome::Waiting);
        assert_eq!(locks.set(B, 4, lock(2, true, 0, 1), true).0, Outcome::Refused(FsError::Deadlock));
    }

    #[test]
    fn dead_node_lets_the_next_one_through() {
        let mut locks = AppLocks::default();
        locks.set(A, 1, lock(1, true, 0, 10), true);
        assert_eq!(locks.set(B, 2, lock(2, true, 0, 10), true).0, Outcome::Waiting);
        assert_eq!(locks.drop_node(A), [(B, 2)]);
        assert_eq!(locks.cancel(B, 2), (false, vec![]));
    }

    #[test]
    fn what_a_weaker_lock_gives_up_lets_waiters_through() {
        let mut locks = AppLocks::default();
        locks.set(A, 1, lock(1, true, 0, 10), true);
        assert_eq!(locks.set(B, 2, lock(2, false, 0, 10), true).0, Outcome::Waiting);
        assert_eq!(locks.set(A, 3, lock(1, false, 0, 10), true), (Outcome::Granted, vec![(B, 2)]));
    }

    /// Goal: who waits is let through by what a request gives up that is granted after it was looked at. Method: A's, behind B's in line, makes what it has
    /// shared as soon as C lets go.
    #[test]
    fn what_is_given_up_by_who_waited_lets_those_before_through() {
        let mut locks = AppLocks::default();
        locks.set(A, 1, lock(1, true, 0, 10), true);
        locks.set(C, 2, lock(3, true, 10, 20), true);
        assert_eq!(locks.set(B, 3, lock(2, false, 0, 5), true).0, Outcome::Waiting);
        assert_eq!(locks.set(A, 4, lock(1, false, 0, 20), true).0, Outcome::Waiting);
        assert_eq!(locks.unset(C, &lock(3, true, 10, 20)), [(A, 4), (B, 3)]);
    }

    #[test]
    fn who_has_locks_that_others_may_wait_for_is_known() {
        let in_way = |locks: &AppLocks| locks.in_way().collect::<Vec<_>>();
        let mut locks = AppLocks::default();
        locks.set(A, 1, lock(1, false, 0, 10), true);
        locks.set(B, 2, lock(2, false, 0, 10), true);
        assert_eq!(in_way(&locks), []);
        assert_eq!(locks.set(C, 3, lock(3, true, 0, 10), true).0, Outcome::Waiting);
        assert_eq!(in_way(&locks), [A, B]);
        locks.set(D, 5, lock(4, true, 90, 99), true);
        assert_eq!(in_way(&locks), [A, B, D]);
        assert!(locks.is_in_way(A) && !locks.is_in_way(D));
        assert_eq!(in_way(&locks), [A, B]);
        locks.unset(D, &lock(4, true, 90, 99));
        locks.unset(A, &lock(1, false, 0, 10));
        assert_eq!(in_way(&locks), [B]);
        assert_eq!(locks.drop_node(B), [(C, 3)]);
        assert_eq!(in_way(&locks), []);
        assert_eq!(locks.set(A, 4, lock(1, false, 0, 10), true).0, Outcome::Waiting);
        assert_eq!(in_way(&locks), [C]);
        assert_eq!(locks.cancel(A, 4), (true, vec![]));
        assert_eq!(in_way(&locks), []);
    }

    #[test]
    fn conversion_of_a_flock_lets_through_who_waited_for_it() {
        let flock = |owner, exclusive| ByteLock { kind: LockKind::Flock, ..lock(owner, exclusive, 0, 10) };
        let mut locks = AppLocks::default();
        locks.set(A, 1, flock(1, true), true);
        assert_eq!(locks.set(B, 2, flock(2, false), true).0, Outcome::Waiting);
        assert_eq!(locks.set(A, 3, flock(1, false), true), (Outcome::Granted, vec![(B, 2)]));
    }

    #[test]
    fn holder_passes_by_those_who_wait_for_it() {
        let mut locks = AppLocks::default();
        locks.set(A, 1, lock(1, true, 0, 10), true);
        assert_eq!(locks.set(B, 2, lock(2, true, 0, 20), true).0, Outcome::Waiting);
        assert_eq!(locks.set(A, 3, lock(1, true, 10, 20), true).0, Outcome::Granted, "or both wait for ever");
    }
}
