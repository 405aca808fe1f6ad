//! Commits, and making them durable.

use std::collections::BTreeMap;

use kv::{Batch, EngineError, Seq};
use meta::{Change, Key, SegmentRecord};
use types::{BatchSeq, Encode, NodeId};
use wire::FromMaster;

use crate::error::MasterError;
use crate::state::{AfterSync, Master, Output};
use crate::view::EngineStore;

/// A record of the master's own to write beside changes.
pub(crate) type OwnWrite = (Key, Option<Vec<u8>>);

impl Master {
    /// Commits changes of `node` and records of the master's own, whole. When it returns they have reached
    /// the operating system; they are durable after the next sync.
    pub(crate) fn commit(
        &mut self,
        node: NodeId,
        changes: &[Change],
        own: Vec<OwnWrite>,
    ) -> Result<(), MasterError> {
        let applied = meta::apply(changes, &EngineStore(&*self.engine), node)?;
        for damage in applied.damage {
            log::warn!("metadata: {damage}");
        }
        let mut batch = Batch::new(self.engine.last_seq().next());
        let own = own.into_iter().map(|(key, value)| (key.to_vec(), value));
        let writes: BTreeMap<_, _> = applied.writes.into_iter().chain(own).collect();
        let mut counts = Vec::new();
        for (key, value) in writes {
            if let Some(Key::Segment(segment)) = Key::from_slice(&key)
                && let Some(Ok(record)) = value.as_ref().map(|v| meta::value_decode::<SegmentRecord>(&key, v))
            {
                counts.push((segment, record.live_bytes));
            }
            match value {
                Some(value) => batch.puts.push((key, value)),
                None => batch.deletes.push(key),
            }
        }
        self.engine.commit(batch)?;
        self.metrics.engine_commits.add(1);
        self.dirty_since.get_or_insert(self.clock.now);
        self.note_changes(changes);
        self.keep_for_turns(changes);
        for (segment, live_bytes) in counts {
            self.note_live_bytes(segment, live_bytes);
        }
        Ok(())
    }

    /// Has everything committed so far made durable soon.
    pub(crate) fn want_sync(&mut self) {
        self.sync_wanted = true;
    }

    pub(crate) fn start_sync(&mut self) {
        self.sync_wanted = false;
        self.dirty_since = None;
        let job = self.number();
        self.syncing = Some(job);
        self.sync_covers = self.members.iter().map(|(node, m)| (*node, m.record.batch)).collect();
        self.after_this_sync = std::mem::take(&mut self.after_sync);
        self.outputs.push_back(Output::Sync { job });
    }

    pub(crate) fn on_synced(&mut self, job: u64, result: Result<Seq, EngineError>) {
        if self.syncing != Some(job) {
            return;
        }
        self.syncing = None;
        if let Err(error) = result {
            self.fail(format!("sync of the metadata engine failed: {error}"));
            return;
        }
        for (node, seq) in std::mem::take(&mut self.sync_covers) {
            let Some(member) = self.members.get_mut(&node) else { continue };
            if member.durable < seq {
                member.durable = seq;
                self.send(node, FromMaster::Durable { seq });
            }
        }
        for after in std::mem::take(&mut self.after_this_sync) {
            match after {
                AfterSync::Send(node, message) => self.send(node, message),
                // With the limits of accounts as they are by now.
                AfterSync::Welcome(node) => {
                    let welcome = self.welcome(node, types::BatchSeq(0), false);
                    self.send(node, welcome);
                }
                AfterSync::Round(seq) => self.on_round_durable(seq),
                AfterSync::Order(output) => self.outputs.push_back(output),
            }
        }
    }

    /// Sends `message` once everything committed so far is durable.
    pub(crate) fn send_when_durable(&mut self, node: NodeId, message: FromMaster) {
        self.after_sync.push(AfterSync::Send(node, message));
        self.want_sync();
    }

    /// The write of a member's record.
    pub(crate) fn member_write(&self, node: NodeId, batch: BatchSeq) -> Option<OwnWrite> {
        let member = self.members.get(&node)?;
        let mut record = member.record.clone();
        record.batch = batch;
        Some(own_write(Key::Member(node), &record))
    }
}

/// The write of a record.
pub(crate) fn own_write(key: Key, record: &impl Encode) -> OwnWrite {
    let bytes = key.to_vec();
    let value = meta::value_encode(&bytes, record);
    (key, Some(value))
}
