//! Lock requests of applications.
//!
//! A request that is not to wait is refused only for locks that are really held. The last close of a file tells
//! its node that locks have gone after the close has returned, and the node's message may be overtaken by a
//! request of another node whose program knows of the close; or of the same node, whose kernel has a queue for each processor
//! (io_uring). So nodes that seem to be in the way are first asked to tell what has been closed.

use std::collections::{BTreeMap, BTreeSet};

use meta::FsError;
use types::{Micros, NodeId};
use wire::{ByteLock, FromMaster, LockOp, ToMaster};

use crate::app_locks::Outcome;
use crate::state::Master;

/// A lock request that waits until the nodes in its way have told what was closed there.
#[derive(Debug)]
pub(crate) struct Doubt {
    node: NodeId,
    request: u64,
    op: LockOp,
    lock: ByteLock,
    since: Micros,
    /// Who has yet to tell.
    awaited: BTreeSet<NodeId>,
}

impl Master {
    pub(crate) fn on_lock(&mut self, node: NodeId, request: u64, op: LockOp) {
        let answer = |error| FromMaster::Locked { request, error, conflict: None };
        match op {
            LockOp::Set { wait: false, lock } | LockOp::Test { lock } => {
                if matches!(op, LockOp::Set { .. }) {
                    self.end_lapsed_holders(node, &lock);
                }
                let awaited = self.doubtful_holders(node, &lock);
                if awaited.is_empty() {
                    return self.decide(node, request, op);
                }
                let seq = self.number();
                for holder in &awaited {
                    self.send(*holder, FromMaster::TellCloses { seq, ino: lock.ino });
                }
                let since = self.clock.now;
                self.doubts.insert(seq, Doubt { node, request, op, lock, since, awaited });
            }
            LockOp::Set { wait: true, .. } => self.decide(node, request, op),
            LockOp::Unset { lock } if self.app_locks.is_beyond_limit(node, &lock) => {
                self.send(node, answer(Some(FsError::LimitReached)));
            }
            LockOp::Unset { lock } => {
                let granted = self.app_locks.unset(node, &lock);
                self.send(node, answer(None));
                self.answer_locks(granted);
            }
            LockOp::Drop { ino, kind, owner } => {
                let granted = self.app_locks.drop_owner(node, ino, kind, owner);
                self.send(node, answer(None));
                self.answer_locks(granted);
            }
        }
    }

    /// Who does not wait is no debt of anybody's: those in its way whose leases have ended go at once, as they would for one who waits.
    fn end_lapsed_holders(&mut self, node: NodeId, lock: &ByteLock) {
        for holder in self.app_locks.holders_in_way(node, lock) {
            if holder != node {
                self.end_if_lapsed(holder);
            }
        }
    }

    /// Who must be asked before `lock` is refused to `node`, itself perhaps. Nobody can be asked who is not connected.
    fn doubtful_holders(&self, node: NodeId, lock: &ByteLock) -> BTreeSet<NodeId> {
        let holders = self.app_locks.holders_in_way(node, lock);
        let is_certain = |holder: &NodeId| self.members.get(holder).is_none_or(|m| m.peer.is_none());
        if holders.iter().any(is_certain) { BTreeSet::new() } else { holders }
    }

    /// Takes or tests a lock by what the table has now.
    fn decide(&mut self, node: NodeId, request: u64, op: LockOp) {
        let answer = |error| FromMaster::Locked { request, error, conflict: None };
        match op {
            LockOp::Set { lock, wait } => {
                let (outcome, granted) = self.app_locks.set(node, request, lock, wait);
                match outcome {
                    Outcome::Granted => self.send(node, answer(None)),
                    Outcome::Refused(error) => self.send(node, answer(Some(error))),
                    Outcome::Waiting => {}
                }
                self.answer_locks(granted);
            }
            LockOp::Test { lock } => {
                let conflict = self.app_locks.test(node, &lock);
                self.send(node, FromMaster::Locked { request, error: None, conflict });
            }
            LockOp::Unset { .. } | LockOp::Drop { .. } => {}
        }
    }

    /// `holder` has told what was closed.
    pub(crate) fn on_closes_told(&mut self, holder: NodeId, seq: u64) {
        let Some(doubt) = self.doubts.get_mut(&seq) else { return };
        doubt.awaited.remove(&holder);
        if doubt.awaited.is_empty() {
            self.end_doubt(seq);
        }
    }

    fn end_doubt(&mut self, seq: u64) {
        if let Some(Doubt { node, request, op, .. }) = self.doubts.remove(&seq) {
            self.decide(node, request, op);
        }
    }

    /// Nodes that do not answer keep nobody waiting for a lock that was not to be waited for.
    pub(crate) fn end_doubts(&mut self) {
        let now = self.clock.now;
        let overdue = |doubt: &Doubt| doubt.since + DOUBT <= now;
        let list: Vec<u64> = self.doubts.iter().filter(|(_, d)| overdue(d)).map(|(seq, _)| *seq).collect();
        list.into_iter().for_each(|seq| self.end_doubt(seq));
    }

    /// When [`end_doubts`](Self::end_doubts) is next needed.
    pub(crate) fn doubts_due(&self) -> Micros {
        self.doubts.values().map(|doubt| doubt.since + DOUBT).min().unwrap_or(Micros::NEVER)
    }

    /// What a node asked in a recovery is not looked at before its end: nothing can have been granted of what is called off. Returns whether it was that.
    pub(crate) fn cancel_deferred_lock(&mut self, node: NodeId, request: u64) -> bool {
        let is_it = |(sender, message): &(NodeId, ToMaster)| {
            let is_set = |op: &LockOp| matches!(op, LockOp::Set { .. });
            *sender == node
                && matches!(message, ToMaster::Lock { request: of, op } if *of == request && is_set(op))
        };
        let Some(at) = self.deferred.iter().position(is_it) else { return false };
        if let Some((_, ToMaster::Lock { op: LockOp::Set { lock, .. }, .. })) = self.deferred.remove(at) {
            // It may have told what it converts from.
            let granted = self.app_locks.call_off(node, &lock);
            self.answer_locks(granted);
        }
        let error = Some(FsError::Interrupted);
        self.send(node, FromMaster::Locked { request, error, conflict: None });
        true
    }

    pub(crate) fn on_cancel_lock(&mut self, node: NodeId, request: u64) {
        let (was_waiting, mut granted) = self.app_locks.cancel(node, request);
        let is_it = |doubt: &Doubt| doubt.node == node && doubt.request == request;
        let doubt = self.doubts.iter().find(|(_, doubt)| is_it(doubt)).map(|(seq, _)| *seq);
        let doubt = doubt.and_then(|seq| self.doubts.remove(&seq));
        if let Some(Doubt { op: LockOp::Set { lock, .. }, .. }) = &doubt {
            granted.extend(self.app_locks.call_off(node, lock));
        }
        if was_waiting || doubt.is_some() {
            let error = Some(FsError::Interrupted);
            self.send(node, FromMaster::Locked { request, error, conflict: None });
        }
        self.answer_locks(granted);
    }

    /// What a node asked for it asks again, or it is gone.
    pub(crate) fn drop_doubts_of(&mut self, node: NodeId) {
        self.doubts.retain(|_, doubt| doubt.node != node);
    }

    /// A node comes back by a new connection: what it was asked, or told, on the old one may be lost.
    pub(crate) fn ask_closes_again(&mut self, node: NodeId) {
        let asked = self.doubts.iter().filter(|(_, doubt)| doubt.awaited.contains(&node));
        let asked: Vec<_> = asked.map(|(seq, doubt)| (*seq, doubt.lock.ino)).collect();
        for (seq, ino) in asked {
            self.send(node, FromMaster::TellCloses { seq, ino });
        }
    }

    pub(crate) fn drop_app_locks(&mut self, node: NodeId) {
        let granted = self.app_locks.drop_node(node);
        self.answer_locks(granted);
        self.drop_doubts_of(node);
        let asked: Vec<u64> = self.doubts.keys().copied().collect();
        asked.into_iter().for_each(|seq| self.on_closes_told(node, seq));
    }

    pub(crate) fn answer_locks(&mut self, granted: Vec<(NodeId, u64)>) {
        for (node, request) in granted {
            self.send(node, FromMaster::Locked { request, error: None, conflict: None });
        }
    }
}

/// The doubts of a master, by number of the question.
pub(crate) type Doubts = BTreeMap<u64, Doubt>;

/// How long a request waits for what others have closed. A node that is alive takes well under a millisecond.
const DOUBT: Micros = Micros::from_millis(1_000);
