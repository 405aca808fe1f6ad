//! The same rules in the plainest way, looked at for every request, and random requests to both.

use std::collections::BTreeSet;

use meta::FsError;
use types::{Ino, NodeId};
use wire::{ByteLock, LockKind, LockOwner};

use super::{AppLocks, Holder, Outcome};

/// All locks and all requests that wait, in the order they came.
#[derive(Default)]
struct Model {
    granted: Vec<(NodeId, ByteLock)>,
    waiting: Vec<(NodeId, u64, ByteLock)>,
}

fn conflicts(a: (NodeId, &ByteLock), b: (NodeId, &ByteLock)) -> bool {
    let is_same_owner = a.0 == b.0 && a.1.owner == b.1.owner;
    a.1.ino == b.1.ino
        && a.1.kind == b.1.kind
        && !is_same_owner
        && (a.1.exclusive || b.1.exclusive)
        && a.1.start < b.1.end
        && b.1.start < a.1.end
}

impl Model {
    fn is_free(&self, node: NodeId, lock: &ByteLock) -> bool {
        !self.granted.iter().any(|(n, l)| conflicts((node, lock), (*n, l)))
    }

    fn is_kept_back(&self, node: NodeId, lock: &ByteLock, ahead: usize) -> bool {
        lock.kind == LockKind::Posix
            && self.waiting[..ahead].iter().any(|(n, _, l)| conflicts((node, lock), (*n, l)))
    }

    fn in_way(&self, node: NodeId, lock: &ByteLock, ahead: usize) -> Vec<Holder> {
        let held = self.granted.iter().filter(|(n, l)| conflicts((node, lock), (*n, l)));
        let posix = lock.kind == LockKind::Posix;
        let waits =
            self.waiting[..ahead].iter().filter(|(n, _, l)| posix && conflicts((node, lock), (*n, l)));
        held.map(|(n, l)| (*n, l.owner)).chain(waits.map(|(n, _, l)| (*n, l.owner))).collect()
    }

    fn is_circle(&self, node: NodeId, lock: &ByteLock, ahead: usize) -> bool {
        let mut next = self.in_way(node, lock, ahead);
        let mut seen = BTreeSet::new();
        while let Some(holder) = next.pop() {
            if holder == (node, lock.owner) {
                return true;
            }
            for (ahead, (n, _, l)) in self.waiting.iter().enumerate() {
                if l.kind == LockKind::Posix && (*n, l.owner) == holder && !seen.contains(&holder) {
                    next.extend(self.in_way(*n, l, ahead));
                }
            }
            seen.insert(holder);
        }
        false
    }

    fn cut(&mut self, node: NodeId, cut: &ByteLock) {
        let mut rest = Vec::new();
        for (n, l) in self.granted.drain(..) {
            let is_own = n == node && l.ino == cut.ino && l.kind == cut.kind && l.owner == cut.owner;
            if !is_own || l.end <= cut.start || l.start >= cut.end {
                rest.push((n, l));
                continue;
            }
            if l.start < cut.start {
                rest.push((n, ByteLock { end: cut.start, ..l }));
            }
            if l.end > cut.end {
                rest.push((n, ByteLock { start: cut.end, ..l }));
            }
        }
        self.granted = rest;
    }

    fn grant(&mut self, node: NodeId, mut lock: ByteLock) {
        self.cut(node, &lock);
        let is_beside = |(n, l): &(NodeId, ByteLock), lock: &ByteLock| {
            let alike = |l: &ByteLock| (l.ino, l.kind, l.owner, l.exclusive);
            *n == node && alike(l) == alike(lock) && (l.end == lock.start || lock.end == l.start)
        };
        while let Some(at) = self.granted.iter().position(|have| is_beside(have, &lock)) {
            let (_, beside) = self.granted.swap_remove(at);
            (lock.start, lock.end) = (lock.start.min(beside.start), lock.end.max(beside.end));
        }
        self.granted.push((node, lock));
    }

    fn set(&mut self, node: NodeId, request: u64, lock: ByteLock, wait: bool) -> Outcome {
        if lock.kind == LockKind::Flock {
            if self.granted.iter().any(|have| *have == (node, lock)) {
                return Outcome::Granted;
            }
            self.cut(node, &lock);
        }
        let is_turn = !wait || !self.is_kept_back(node, &lock, self.waiting.len());
        if self.is_free(node, &lock) && (is_turn || self.is_circle(node, &lock, self.waiting.len())) {
            self.grant(node, lock);
            return Outcome::Granted;
        }
        if !wait {
            return Outcome::Refused(FsError::WouldBlock);
        }
        let end = self.waiting.len();
        if lock.kind == LockKind::Flock || !self.is_circle(node, &lock, end) {
            self.waiting.push((node, request, lock));
            return Outcome::Waiting;
        }
        let keeps_back = |(n, _, l): &(NodeId, u64, ByteLock)| conflicts((node, &lock), (*n, l));
        let front = self.waiting.iter().position(keeps_back).unwrap_or(end);
        self.waiting.insert(front, (node, request, lock));
        if !self.is_circle(node, &lock, front) {
            return Outcome::Waiting;
        }
        self.waiting.remove(front);
        Outcome::Refused(FsError::Deadlock)
    }

    /// Of one file, or of all, until nobody else can be served.
    fn serve(&mut self, ino: Option<Ino>) -> BTreeSet<(NodeId, u64)> {
        let mut served = BTreeSet::new();
        loop {
            let more = self.serve_once(ino);
            if more.is_empty() {
                return served;
            }
            served.extend(more);
        }
    }

    fn serve_once(&mut self, ino: Option<Ino>) -> BTreeSet<(NodeId, u64)> {
        let mut served = BTreeSet::new();
        let mut at = 0;
        while at < self.waiting.len() {
            let (node, request, lock) = self.waiting[at];
            let is_it = ino.is_none_or(|ino| ino == lock.ino);
            if is_it && self.is_free(node, &lock) && !self.is_kept_back(node, &lock, at) {
                self.waiting.remove(at);
                self.grant(node, lock);
                served.insert((node, request));
            } else {
                at += 1;
            }
        }
        served
    }
}

fn draw(random: &mut fastrand::Rng) -> (NodeId, ByteLock) {
    let kind = if random.u8(0..5) == 0 { LockKind::Flock } else { LockKind::Posix };
    let (start, len) = (random.u64(0..12), random.u64(1..6));
    let (start, end) = if kind == LockKind::Flock { (0, 100) } else { (start, start + len) };
    let (ino, owner, exclusive) = (Ino(random.u64(1..3)), LockOwner(random.u64(1..4)), random.bool());
    (NodeId(random.u32(1..4)), ByteLock { ino, kind, owner, pid: 1, exclusive, start, end })
}

fn compare(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut locks, mut model) = (AppLocks::default(), Model::default());
    for step in 0..400 {
        let (node, lock) = draw(&mut random);
        let what = format!("seed {seed}, step {step}: {node:?} {lock:?}");
        let served = match random.u8(0..20) {
            0..11 => {
                let wait = random.bool();
                let (outcome, served) = locks.set(node, step, lock, wait);
                assert_eq!(outcome, model.set(node, step, lock, wait), "{what}, wait {wait}");
                served
            }
            11..17 => {
                model.cut(node, &lock);
                locks.unset(node, &lock)
            }
            17 => {
                model.cut(node, &ByteLock { start: 0, end: u64::MAX, ..lock });
                locks.drop_owner(node, lock.ino, lock.kind, lock.owner)
            }
            18 => match model.waiting.len() {
                0 => Vec::new(),
                count => {
                    let (node, request, lock) = model.waiting.remove(random.usize(0..count));
                    let (was_there, served) = locks.cancel(node, request);
                    assert!(was_there, "{what}");
                    assert_eq!(served.into_iter().collect::<BTreeSet<_>>(), model.serve(Some(lock.ino)));
                    continue;
                }
            },
            _ if random.bool() => {
                model.granted.retain(|(n, _)| *n != node);
                model.waiting.retain(|(n, _, _)| *n != node);
                let served: BTreeSet<_> = locks.drop_node(node).into_iter().collect();
                assert_eq!(served, model.serve(None), "{what}");
                continue;
            }
            _ => {
                // It knows of half of its locks, and of others that it never had.
                let own = model.granted.iter().filter(|(n, _)| *n == node).map(|(_, l)| *l);
                let mut known: Vec<ByteLock> = own.filter(|_| random.bool()).collect();
                let stays = known.clone();
                known.push(ByteLock { owner: LockOwner(9), ..lock });
                model.granted.retain(|(n, l)| *n != node || stays.contains(l));
                model.waiting.retain(|(n, _, _)| *n != node);
                let served: BTreeSet<_> = locks.keep_known(node, &known).into_iter().collect();
                assert_eq!(served, model.serve(None), "{what}");
                continue;
            }
        };
        assert_eq!(served.into_iter().collect::<BTreeSet<_>>(), model.serve(Some(lock.ino)), "{what}");
        let (node, lock) = draw(&mut random);
        let in_way = model.granted.iter().filter(|(n, l)| conflicts((node, &lock), (*n, l)));
        assert_eq!(locks.test(node, &lock).map(|l| l.start), in_way.map(|(_, l)| l.start).min(), "{what}");
    }
}

#[test]
fn requests_have_the_outcome_of_the_plain_rules() {
    (0..300).for_each(compare);
}
