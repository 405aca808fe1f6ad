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

    /// A node that does not answer a revoke or a forget within a lease stops nobody any longer.
    pub(crate) fn end_overdue(&mut self) {
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
        for (node, reason) in late {
            if self.members.contains_key(&node) {
                self.end_membership(node, reason);
            }
        }
    }
}
