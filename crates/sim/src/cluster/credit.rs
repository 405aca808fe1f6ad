//! Limits of the account that all processes are, and what is counted for it.

use types::Account;

use crate::cluster::Cluster;

impl Cluster {
    pub(super) fn set_limits(&mut self) {
        let clock = self.master_clock();
        if let (Some(limits), Some(master)) = (self.config.limits, self.master.as_mut()) {
            master.set_limits(clock, Account::User(0), limits).expect("recorded");
        }
    }

    /// No account can use more than it may.
    pub(super) fn check_credit(&self) {
        if self.config.limits.is_some()
            && let Some(master) = &self.master
        {
            let faults = master.overdrawn();
            assert!(faults.is_empty(), "seed {}: {}", self.config.seed, faults.join("; "));
        }
    }

    /// What the master counts for a node, and what the node has, if they are not the same while nothing moves.
    pub fn credit_fault(&self, index: usize) -> Option<String> {
        let (master, node) = (self.master.as_ref()?, &self.nodes[index]);
        let counted = master.credit_of(node.core.snapshot().node);
        let has = node.core.credit();
        (counted != has).then(|| format!("node {index} has {has:?}, the master counts {counted:?}"))
    }
}
