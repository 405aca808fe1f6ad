//! A member whose connection broke comes back by a new one, within its membership.
//!
//! What was on its way on the old connection is lost, both ways. So the member tells what it holds, as it would
//! tell a new master, and sends again what has no answer. Until it has told, nothing is said to it but what keeps
//! its lease; then the table follows what it told, and it is told again what it owes an answer for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{Ino, LockMode, NodeId, ResourceId, ResourceKind};
use wire::{ByteLock, FromMaster, ReassertPart};

use crate::change::{Then, forget_parts};
use crate::member::{Newcomer, Standing};
use crate::state::{Master, Output, PeerId};

/// What a member has told so far.
#[derive(Debug, Default)]
pub(crate) struct Resuming {
    tokens: BTreeMap<ResourceId, LockMode>,
    open: BTreeSet<Ino>,
    locks: Vec<ByteLock>,
    has_told_credit: bool,
}

impl Master {
    /// A connection in the name of a member.
    pub(crate) fn resume(&mut self, peer: PeerId, newcomer: Newcomer) {
        let node = newcomer.rejoin;
        let now = self.clock.now;
        let is_it =
            |m: &&mut crate::member::Member| newcomer.says_it_is(&m.record) && m.standing == Standing::Good;
        let Some(member) = self.members.get_mut(&node).filter(is_it) else {
            return self.turn_away(peer, format!("the membership of node {node} has ended"));
        };
        log::info!("node {node} is back: {}", member.record.label);
        member.renewed_at = now;
        member.releases_seen = 0;
        member.revokes.clear();
        member.resuming = Some(Resuming::default());
        member.answered.clear();
        let batch = member.record.batch;
        self.leave_old_peer(node, peer);
        if let Some(member) = self.members.get_mut(&node) {
            member.peer = Some(peer);
        }
        self.peers.insert(peer, Some(node));
        // It asks again for what it still wants.
        self.deferred.retain(|(sender, _)| *sender != node);
        let welcome = self.welcome(node, batch, true);
        self.send(node, welcome);
    }

    /// What still comes by the old connection of a member counts no more.
    pub(crate) fn leave_old_peer(&mut self, node: NodeId, new: PeerId) {
        let old = self.members.get_mut(&node).and_then(|member| member.peer.take());
        if let Some(old) = old.filter(|old| *old != new) {
            self.peers.remove(&old);
            self.batch_parts.remove(&old);
            self.outputs
                .push_back(Output::Close { peer: old, reason: "its node came by another".to_owned() });
        }
    }

    /// A node is not a member any more, and learns it.
    pub(crate) fn turn_away(&mut self, peer: PeerId, reason: String) {
        self.peers.remove(&peer);
        self.outputs.push_back(Output::Send { peer, message: FromMaster::Ended { reason: reason.clone() } });
        self.outputs.push_back(Output::Close { peer, reason });
    }

    /// Takes in what a member that comes back holds.
    pub(crate) fn on_resuming(&mut self, node: NodeId, part: ReassertPart, done: bool) {
        let Some(told) = self.members.get_mut(&node).and_then(|m| m.resuming.as_mut()) else { return };
        match part {
            ReassertPart::Tokens { list } => told.tokens.extend(list),
            ReassertPart::Open { list } => told.open.extend(list),
            ReassertPart::Locks { list } => told.locks.extend(list),
            // At once: batches that use some of it come before all is told.
            ReassertPart::Credit { list, shipped } => {
                if !std::mem::replace(&mut told.has_told_credit, true) {
                    self.drop_told_credit(node);
                }
                self.hold_told(node, list, shipped);
            }
        }
        if done && let Some(told) = self.members.get_mut(&node).and_then(|m| m.resuming.take()) {
            self.keep_told(node, told);
            self.say_again(node);
        }
    }

    /// The table follows what a member told: what it does not know of was given back, or never reached it.
    fn keep_told(&mut self, node: NodeId, told: Resuming) {
        let now = self.clock.now;
        for ino in &told.open {
            self.on_open_report(node, *ino, &[]);
        }
        for resource in self.table.held_by(node).collect::<Vec<_>>() {
            let keeps = told.tokens.get(&resource).copied().unwrap_or(LockMode::Nl);
            if !keeps.permits(self.table.mode(node, resource)) {
                self.table.release(now, node, resource, keeps);
                if matches!(resource.kind, ResourceKind::Attr | ResourceKind::File) {
                    self.merge_if_free(resource.ino);
                }
            }
        }
        let closed = self.table.opens().into_iter().filter(|(n, ino)| *n == node && !told.open.contains(ino));
        for (node, ino) in closed.collect::<Vec<_>>() {
            self.on_closed(node, ino);
        }
        self.drop_doubts_of(node);
        let granted = self.app_locks.keep_known(node, &told.locks);
        self.answer_locks(granted);
    }

    /// Tells a member again what it has yet to answer: it may have been lost.
    fn say_again(&mut self, node: NodeId) {
        self.say_limited_again(node);
        // What it asked for before is asked anew, behind those who wait.
        self.serve_all_asks();
        let mut owed: BTreeMap<u64, VecDeque<u64>> = BTreeMap::new();
        for (seq, _, id) in self.under_way.forgets().filter(|(_, reader, _)| *reader == node) {
            owed.entry(id).or_default().push_back(seq);
        }
        for (id, seqs) in owed {
            self.forget_again(node, id, seqs);
        }
        let own = self.under_way.pending.values().filter_map(|pending| match &pending.then {
            Then::Answer { node: n, seq, op, changes, told: true, .. } if *n == node => {
                Some((*seq, op.clone(), changes))
            }
            Then::Answer { .. } | Then::Task(_) | Then::Nothing => None,
        });
        let own: Vec<_> = own.map(|(seq, op, changes)| (seq, op, self.current_state(changes))).collect();
        for (seq, op, changes) in own {
            // It says what it has closed since.
            self.note_orphans(node, &changes);
            self.note_split_out(node, &op, &changes);
            self.send(node, FromMaster::Changed { seq, changes });
        }
        self.ask_closes_again(node);
        self.table.revoke_again(node);
        self.barrier_again(node);
        self.recall_again(node);
        self.retry_glimpses_of(node);
    }

    /// Tells a member again of change `id`, of which it owes the acknowledgements `seqs`: of how things stand now.
    fn forget_again(&mut self, node: NodeId, id: u64, mut seqs: VecDeque<u64>) {
        let (Some(pending), Some(first)) = (self.under_way.pending.get(&id), seqs.front().copied()) else {
            return;
        };
        let mut groups: Vec<_> = pending.changes.iter().map(|list| self.current_state(list)).collect();
        for changes in &mut groups {
            changes.retain(|change| {
                let is_shown = change.resource().is_some_and(|resource| self.is_shown(node, resource));
                // Of what is gone nothing is held any more, as far as is known here.
                is_shown || matches!(change, meta::Change::Owner { .. } | meta::Change::DeleteInode { .. })
            });
        }
        for (changes, removed) in forget_parts(groups, &pending.removed.clone()) {
            let seq = seqs.pop_front().unwrap_or_else(|| self.owe_forget_like(first));
            self.send(node, FromMaster::Forget { seq, changes, removed });
        }
        for seq in seqs {
            // What it took in by the old connection may still be on its way into its kernel.
            self.send(node, FromMaster::Forget { seq, changes: Vec::new(), removed: Vec::new() });
        }
    }

    /// Whether a member may show what is recorded of a resource. What it holds in EX it got later, and is ahead of.
    fn is_shown(&self, node: NodeId, resource: ResourceId) -> bool {
        match self.table.mode(node, resource) {
            LockMode::Pr => true,
            LockMode::Ex => false,
            // Both halves of an uncovered inode are shown by stat.
            LockMode::Nl => {
                resource.kind == ResourceKind::File
                    && self.table.mode(node, ResourceId::attr(resource.ino)) != LockMode::Nl
            }
        }
    }
}
