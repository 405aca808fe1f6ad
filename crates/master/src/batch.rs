//! Batches: pieces of the write-behind logs of the nodes that hold what they change.

use std::collections::BTreeSet;
use std::sync::Arc;

use kv::EngineError;
use meta::Change;
use types::{BatchSeq, Credit, LockMode, NodeId, ResourceId};
use wire::FromMaster;

use crate::error::MasterError;
use crate::state::Master;

/// What has come of a batch whose end has not.
#[derive(Debug)]
pub(crate) struct Parts {
    seq: BatchSeq,
    kept: Vec<(ResourceId, LockMode)>,
    changes: Vec<Change>,
    bytes: usize,
}

impl Master {
    pub(crate) fn on_batch_part(
        &mut self,
        node: NodeId,
        seq: BatchSeq,
        kept: Vec<(ResourceId, LockMode)>,
        changes: Vec<Change>,
    ) {
        let Some(peer) = self.members.get(&node).and_then(|m| m.peer) else { return };
        let mut parts = self.take_parts(node, seq);
        parts.bytes += changes.iter().map(Change::encoded_len_max).sum::<usize>();
        parts.kept.extend(kept);
        parts.changes.extend(changes);
        if parts.bytes > BATCH_BYTES_MAX || parts.kept.len() > KEPT_MAX {
            let reason = format!("its parts are {} bytes and {} rights", parts.bytes, parts.kept.len());
            return self.refuse_batch(node, seq, reason);
        }
        self.batch_parts.insert(peer, parts);
    }

    /// What has come of batch `seq` of a node.
    fn take_parts(&mut self, node: NodeId, seq: BatchSeq) -> Parts {
        let peer = self.members.get(&node).and_then(|m| m.peer);
        let parts = peer.and_then(|peer| self.batch_parts.remove(&peer));
        let none = Parts { seq, kept: Vec::new(), changes: Vec::new(), bytes: 0 };
        parts.filter(|parts| parts.seq == seq).unwrap_or(none)
    }

    pub(crate) fn on_batch(
        &mut self,
        node: NodeId,
        seq: BatchSeq,
        last_kept: Vec<(ResourceId, LockMode)>,
        last_changes: Arc<Vec<Change>>,
        sync: bool,
        spent: &[Credit],
    ) {
        let Parts { mut kept, mut changes, .. } = self.take_parts(node, seq);
        kept.extend(last_kept);
        let changes = match changes.is_empty() {
            true => last_changes,
            false => {
                changes.extend(Arc::unwrap_or_clone(last_changes));
                Arc::new(changes)
            }
        };
        let kept = &kept[..];
        let Some(applied) = self.members.get(&node).map(|m| m.record.batch) else { return };
        if seq > applied {
            if seq.0 - 1 != applied.0 {
                let reason = format!("batch {seq} does not follow {applied}");
                return self.refuse_batch(node, seq, reason);
            }
            // What is sent again to a new master was made under rights that may have been given back since.
            let is_replayed = self.expected.contains_key(&node);
            if !is_replayed && let Err(reason) = self.check_ownership(node, kept, &changes) {
                return self.refuse_batch(node, seq, reason);
            }
            let own = self.member_write(node, seq).into_iter().collect();
            match self.commit(node, &changes, own) {
                Ok(()) => {}
                // Nothing was done: it is more than the engine takes at once.
                Err(MasterError::Engine(error @ EngineError::Invalid { .. })) => {
                    return self.refuse_batch(node, seq, format!("batch {seq}: {error}"));
                }
                Err(error) => {
                    return self
                        .fail(format!("batch {seq} of node {node} could not be committed: {error:?}"));
                }
            }
            self.spend(node, spent);
            self.recall_surplus(node, spent);
            self.metrics.master_batches.add(1);
            if let Some(member) = self.members.get_mut(&node) {
                member.record.batch = seq;
            }
            self.grant_kept(node, kept, &changes);
            self.note_orphans(node, &changes);
        } else {
            let durable = self.members.get(&node).map_or(BatchSeq(0), |m| m.durable);
            if durable >= seq {
                self.send(node, FromMaster::Durable { seq: durable });
            }
        }
        if sync {
            self.want_sync();
        }
    }

    /// Every key belongs to one resource, which the sender holds in EX or makes.
    fn check_ownership(
        &self,
        node: NodeId,
        kept: &[(ResourceId, LockMode)],
        changes: &[Change],
    ) -> Result<(), String> {
        let born: BTreeSet<ResourceId> = kept.iter().map(|(resource, _)| *resource).collect();
        if let Some(resource) = born.iter().find(|r| self.table.is_shared(**r, node)) {
            return Err(format!("{resource} is declared as new but held by others"));
        }
        for change in changes {
            let Some(resource) = change.resource() else { continue };
            let mode = self.table.mode(node, resource);
            if mode != LockMode::Ex && !born.contains(&resource) {
                let change = format!("{change:?}");
                let kind = change.split_whitespace().next().unwrap_or_default();
                return Err(format!(
                    "it changes keys of {resource} ({kind}), which it does not hold in EX but {mode:?}"
                ));
            }
        }
        Ok(())
    }

    /// Enters the tokens of what a batch makes, unless the same batch removed it again.
    fn grant_kept(&mut self, node: NodeId, kept: &[(ResourceId, LockMode)], changes: &[Change]) {
        let gone: BTreeSet<types::Ino> = changes
            .iter()
            .filter_map(|change| match change {
                Change::DeleteInode { ino, .. } => Some(*ino),
                _ => None,
            })
            .collect();
        for (resource, mode) in kept {
            let is_free = self.table.is_met(node, *resource, lock::Need::Token(*mode));
            if !gone.contains(&resource.ino) && is_free && !self.expected.contains_key(&node) {
                self.table.grant(node, *resource, *mode);
            }
        }
    }

    /// A node that made an orphan has it open, and says so when it closes it.
    pub(crate) fn note_orphans(&mut self, node: NodeId, changes: &[Change]) {
        for change in changes {
            if let Change::PutOrphan { ino, holders } = change
                && holders.contains(&node)
            {
                #[cfg(feature = "planted")]
                if types::planted::strikes(types::planted::Planted::OrphanLost) {
                    continue;
                }
                self.table.open(node, *ino);
            }
        }
    }

    fn refuse_batch(&mut self, node: NodeId, seq: BatchSeq, reason: String) {
        self.metrics.master_batches_refused.add(1);
        self.send(node, FromMaster::BatchRefused { seq, reason: reason.clone() });
        self.expel(node, reason);
    }
}

/// Bytes of a batch, at most: what it comes to fits one commit of the engine.
const BATCH_BYTES_MAX: usize = 32 << 20;
const KEPT_MAX: usize = 1 << 20;
