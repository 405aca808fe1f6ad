//! What the threads that sync segments do, one for each node.

use chunk::SyncPlan;
use vfs::{Clock, Dealt};

use super::Cluster;

/// What is next for a flush.
pub(super) enum ToSync {
    /// Files are captured.
    Gather,
    /// Segments are made durable.
    Run(SyncPlan),
    /// What that made durable is logged.
    Log,
}

impl Cluster {
    /// One step of a node's thread. The next may come after anything else.
    pub(super) fn sync_one(&mut self, index: usize, clock: Clock) {
        self.figures.syncs += 1;
        let node = &mut self.nodes[index];
        let Some((job, what)) = node.syncs.pop_front() else { return };
        let (dealt, then) = match what {
            ToSync::Gather => (node.core.gather(clock, job), ToSync::Gather),
            ToSync::Run(plan) => (node.core.synced(clock, job, plan.run(&self.store)), ToSync::Log),
            ToSync::Log => (node.core.log_synced(clock, job), ToSync::Log),
        };
        if dealt == Dealt::InPart {
            node.syncs.push_front((job, then));
        }
    }
}
