//! Revokes on their way out, and nodes that do not answer.

use types::{LockMode, Micros, NodeId, ResourceId};
use wire::FromMaster;

use crate::state::Master;

impl Master {
    /// Revokes to one node go out together.
    pub(crate) fn queue_revoke(&mut self, node: NodeId, resource: ResourceId, to: LockMode) {
        if let Some(member) = self.members.get_mut(&node) {
            member.revokes.push((resource, to));
        }
    }

    pub(crate) fn send_revokes(&mut self) {
        let due: Vec<NodeId> =
            self.members.iter().filter(|(_, m)| !m.revokes.is_empty()).map(|(node, _)| *node).collect();
        for node in due {
            let list =
                self.members.get_mut(&node).map(|m| std::mem::take(&mut m.revokes)).unwrap_or_default();
            self.send(node, FromMaster::Revoke { list, speculative: false });
        }
    }

    /// A node that does not answer a revoke, a forget or a glimpse within a lease stops nobody any longer.
    ///
    /// Its lease is not renewed from then on, and the membership ends with it: until then its kernel may show
    /// what its tokens stand for.
    pub(crate) fn end_overdue(&mut self) {
        self.late_until = Micros::NEVER;
        for (node, reason) in self.late() {
            let Some(member) = self.members.get(&node) else { continue };
            let until = member.renewed_at + self.config.lease;
            if until <= self.clock.now {
                self.end_membership(node, reason);
            } else {
                self.late_until = self.late_until.min(until);
            }
        }
    }

    /// Answers a ping, which renews the lease, unless the node owes an answer for too long.
    pub(crate) fn renew(&mut self, node: NodeId) {
        if self.late().iter().any(|(late, _)| *late == node) {
            return;
        }
        if let Some(member) = self.members.get_mut(&node) {
            member.renewed_at = self.clock.now;
        }
        self.send(node, FromMaster::Pong { token_share: self.token_share() });
    }

    /// Nodes that have owed an answer for more than a lease, and what.
    fn late(&self) -> Vec<(NodeId, String)> {
        let before = Micros(self.clock.now.0.saturating_sub(self.config.lease.0));
        let mut late: Vec<(NodeId, String)> = self
            .table
            .overdue(before)
            .into_iter()
            .map(|(node, resource)| (node, format!("it did not give {resource} back within its lease")))
            .collect();
        for (seq, (node, id)) in &self.forgets {
            if self.pending.get(id).is_some_and(|p| p.since < before) {
                late.push((*node, format!("it did not acknowledge forget {seq} within its lease")));
            }
        }
        for glimpse in self.glimpses.values().filter(|glimpse| glimpse.since < before) {
            let reason = format!("it did not tell the size of ino {} within its lease", glimpse.ino);
            late.push((glimpse.holder, reason));
        }
        late
    }
}
