//! Locks of one file: granted, by owner and place, and waiting, in the order they came.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::NodeId;
use wire::{ByteLock, LockKind};

use super::Holder;
use super::coverage::Coverage;

#[derive(Debug, Default)]
pub(super) struct File {
    pub granted: Granted,
    pub waiting: VecDeque<Waiting>,
}

/// A lock request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub node: NodeId,
    pub request: u64,
    pub lock: ByteLock,
}

/// Granted locks. Those of one owner do not overlap, and are not alike where they touch.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// By where they begin.
    owners: BTreeMap<(LockKind, Holder), BTreeMap<u64, ByteLock>>,
    count: usize,
}

impl File {
    /// Granted and waiting.
    pub fn len(&self) -> usize {
        self.granted.count + self.waiting.len()
    }

    /// Whether an owner has fcntl locks here, or waits for one.
    pub fn is_of(&self, holder: Holder) -> bool {
        self.granted.owners.contains_key(&(LockKind::Posix, holder))
            || self.waiting.iter().any(|w| w.lock.kind == LockKind::Posix && (w.node, w.lock.owner) == holder)
    }

    /// Who keeps a lock from being granted: holders, and with fcntl the first `ahead` of those who wait.
    pub fn in_way(&self, node: NodeId, lock: &ByteLock, ahead: usize) -> Vec<Holder> {
        let waiting = self.waiting.iter().take(ahead).filter(|w| keeps_back(w, node, lock));
        self.granted.in_way(node, lock).chain(waiting.map(|w| (w.node, w.lock.owner))).collect()
    }

    /// Before the first of those who wait that keeps a lock from being granted.
    pub fn front_for(&self, node: NodeId, lock: &ByteLock) -> usize {
        self.waiting.iter().position(|w| keeps_back(w, node, lock)).unwrap_or(self.waiting.len())
    }

    /// Whether granting `lock` now would pass by one that waits for it.
    pub fn is_overtaking(&self, node: NodeId, lock: &ByteLock) -> bool {
        self.waiting.iter().any(|w| keeps_back(w, node, lock))
    }

    /// Grants what can be granted, in order. Returns who asked.
    pub fn serve(&mut self) -> Vec<(NodeId, u64)> {
        let mut served = self.serve_once();
        let mut before = 0;
        // What is granted may be less than its owner had there, and let others through who came before.
        while served.len() > before {
            before = served.len();
            served.extend(self.serve_once());
        }
        served
    }

    fn serve_once(&mut self) -> Vec<(NodeId, u64)> {
        let mut served = Vec::new();
        // What fcntl requests cover that go on waiting: exclusive ones keep everybody behind them back, shared ones those that
        // want to be exclusive.
        let (mut exclusive, mut shared) = (Coverage::default(), Coverage::default());
        let granted = &mut self.granted;
        self.waiting.retain(|waiting| {
            let Waiting { node, request, lock } = *waiting;
            let (owner, is_posix) = ((node, lock.owner), lock.kind == LockKind::Posix);
            let is_kept_back = is_posix
                && (exclusive.is_others(owner, lock.start, lock.end)
                    || lock.exclusive && shared.is_others(owner, lock.start, lock.end));
            if !is_kept_back && granted.conflict(node, &lock).is_none() {
                granted.take(node, lock);
                served.push((node, request));
                return false;
            }
            if is_posix {
                let passed = if lock.exclusive { &mut exclusive } else { &mut shared };
                passed.add(owner, lock.start, lock.end);
            }
            true
        });
        served
    }
}

impl Granted {
    /// The lock in the way that begins first.
    pub fn conflict(&self, node: NodeId, lock: &ByteLock) -> Option<ByteLock> {
        let others = self.others(node, lock);
        others.flat_map(|(_, locks)| overlapping(locks, lock)).min_by_key(|have| have.start).copied()
    }

    /// Who has locks.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.owners.keys().map(|(_, (node, _))| *node).collect()
    }

    /// Whose locks are in the way.
    pub fn in_way(&self, node: NodeId, lock: &ByteLock) -> impl Iterator<Item = Holder> {
        let others = self.others(node, lock);
        others.filter(|(_, locks)| overlapping(locks, lock).next().is_some()).map(|(holder, _)| holder)
    }

    /// Nodes and processes whose locks are in the way.
    pub fn locks_in_way(&self, node: NodeId, lock: &ByteLock) -> Vec<(NodeId, u32)> {
        let others = self.others(node, lock);
        let first = |(holder, locks): (Holder, &BTreeMap<u64, ByteLock>)| {
            overlapping(locks, lock).next().map(|have| (holder.0, have.pid))
        };
        others.filter_map(first).collect()
    }

    /// What others have of the same kind.
    fn others(
        &self,
        node: NodeId,
        lock: &ByteLock,
    ) -> impl Iterator<Item = (Holder, &BTreeMap<u64, ByteLock>)> {
        let (kind, own) = (lock.kind, (node, lock.owner));
        let of_kind = self.owners.range((kind, FIRST)..).take_while(move |((k, _), _)| *k == kind);
        of_kind.map(|((_, holder), locks)| (*holder, locks)).filter(move |(holder, _)| *holder != own)
    }

    /// Takes a lock in the place of what its owner has there, and as one with what is alike beside it.
    pub fn take(&mut self, node: NodeId, lock: ByteLock) {
        self.cut(node, &lock);
        let locks = self.owners.entry((lock.kind, (node, lock.owner))).or_default();
        let before = locks.range(..lock.start).next_back().map(|(_, before)| *before);
        let behind = locks.get(&lock.end).copied();
        let mut taken = lock;
        for beside in before.into_iter().chain(behind) {
            if let Some(joined) = taken.joined(beside) {
                locks.remove(&beside.start);
                self.count -= 1;
                taken = joined;
            }
        }
        locks.insert(taken.start, taken);
        self.count += 1;
    }

    /// Whether [`cut`](Self::cut) would leave two of one.
    pub fn is_split_by(&self, node: NodeId, lock: &ByteLock) -> bool {
        let locks = self.owners.get(&(lock.kind, (node, lock.owner)));
        let before = locks.and_then(|locks| locks.range(..lock.start).next_back());
        before.is_some_and(|(_, have)| have.end > lock.end)
    }

    /// Whether an owner has all of `lock` as one that is just as exclusive.
    pub fn has(&self, node: NodeId, lock: &ByteLock) -> bool {
        let locks = self.owners.get(&(lock.kind, (node, lock.owner)));
        let before = locks.and_then(|locks| locks.range(..=lock.start).next_back());
        before.is_some_and(|(_, have)| have.end >= lock.end && have.exclusive == lock.exclusive)
    }

    /// Cuts the range of `lock` out of what its owner has.
    pub fn cut(&mut self, node: NodeId, lock: &ByteLock) {
        let key = (lock.kind, (node, lock.owner));
        let Some(locks) = self.owners.get_mut(&key) else { return };
        let below = locks.range(..lock.end).rev();
        let touched: Vec<ByteLock> =
            below.map(|(_, have)| *have).take_while(|have| have.end > lock.start).collect();
        let before = locks.len();
        for have in touched {
            locks.remove(&have.start);
            if have.start < lock.start {
                locks.insert(have.start, ByteLock { end: lock.start, ..have });
            }
            if have.end > lock.end {
                locks.insert(lock.end, ByteLock { start: lock.end, ..have });
            }
        }
        self.count = self.count + locks.len() - before;
        if locks.is_empty() {
            self.owners.remove(&key);
        }
    }

    /// Everything of an owner goes.
    pub fn drop_owner(&mut self, kind: LockKind, holder: Holder) {
        let gone = self.owners.remove(&(kind, holder));
        self.count -= gone.map_or(0, |locks| locks.len());
    }

    /// Everything of a node goes.
    pub fn drop_node(&mut self, node: NodeId) {
        self.owners.retain(|(_, (of, _)), _| *of != node);
        self.count = self.owners.values().map(BTreeMap::len).sum();
    }

    /// Of a node's locks those parts stay that are `known`.
    pub fn keep_known<'a>(&mut self, node: NodeId, known: impl Iterator<Item = &'a ByteLock>) {
        let is_its = |(_, (of, _)): &(LockKind, Holder)| *of == node;
        let keys: Vec<_> = self.owners.keys().filter(|key| is_its(key)).copied().collect();
        let mut had: BTreeMap<_, _> =
            keys.into_iter().filter_map(|key| self.owners.remove(&key).map(|locks| (key, locks))).collect();
        self.count = self.owners.values().map(BTreeMap::len).sum();
        for known in known {
            let Some(locks) = had.get_mut(&(known.kind, (node, known.owner))) else { continue };
            let kept: Vec<ByteLock> = within(locks, known).copied().collect();
            for lock in kept {
                let (start, end) = (lock.start.max(known.start), lock.end.min(known.end));
                // What a node was granted and has not heard of, it gave up.
                let exclusive = lock.exclusive && known.exclusive;
                self.take(node, ByteLock { start, end, exclusive, ..lock });
            }
        }
    }
}

/// Locks of one owner that exclude another's.
fn overlapping<'a>(
    locks: &'a BTreeMap<u64, ByteLock>,
    lock: &'a ByteLock,
) -> impl Iterator<Item = &'a ByteLock> {
    within(locks, lock).filter(|have| have.exclusive || lock.exclusive)
}

/// Locks of one owner that touch a range, last first.
fn within<'a>(locks: &'a BTreeMap<u64, ByteLock>, range: &'a ByteLock) -> impl Iterator<Item = &'a ByteLock> {
    locks.range(..range.end).rev().map(|(_, have)| have).take_while(|have| have.end > range.start)
}

/// Whether one who waits is not to be passed by.
fn keeps_back(waiting: &Waiting, node: NodeId, lock: &ByteLock) -> bool {
    let is_same_owner = waiting.node == node && waiting.lock.owner == lock.owner;
    waiting.lock.kind == LockKind::Posix
        && lock.kind == LockKind::Posix
        && !is_same_owner
        && (waiting.lock.exclusive || lock.exclusive)
        && waiting.lock.start < lock.end
        && lock.start < waiting.lock.end
}

const FIRST: Holder = (NodeId(0), wire::LockOwner(0));
