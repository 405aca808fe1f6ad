//! Members: joining, leaving, dying, and the numbers given to them.

use std::collections::BTreeSet;

use kv::EngineError;
use meta::{Key, KeyKind};
use types::{BatchSeq, Ino, LockMode, Micros, NodeId, OpSeq, ResourceId, ResourceKind};
use wire::{FromMaster, PROTOCOL_VERSION};

use crate::change::Then;
use crate::commit::own_write;
use crate::own_rights::Removals;
use crate::record::{MemberRecord, SegmentRange};
use crate::state::{AfterSync, Master, Output, PeerId};

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its connection, if it has one.
    pub peer: Option<PeerId>,
    /// What is stored of it.
    pub record: MemberRecord,
    /// When its lease was last renewed, not before what asked for that was sent: it may use its tokens for a lease from
    /// then on, not longer.
    pub renewed_at: Micros,
    /// When it last said that it waits for its store.
    pub store_waited_at: Option<Micros>,
    /// Whether it may stay.
    pub standing: Standing,
    /// What it says that it holds, while it comes back after its connection broke.
    pub resuming: Option<crate::resume::Resuming>,
    /// What is to be sent behind its welcome; `None` once that was sent.
    pub before_welcome: Option<Vec<FromMaster>>,
    /// Last batch reported durable.
    pub durable: BatchSeq,
    /// Shipped operations whose results it has.
    pub acked: OpSeq,
    /// Shipped operations that are under way.
    pub running: BTreeSet<OpSeq>,
    /// Shipped operations that were answered on its connection: one of them that comes once more crossed its answer.
    pub answered: BTreeSet<OpSeq>,
    /// Shipped operations whose results are stored.
    pub results: BTreeSet<OpSeq>,
    /// Releases seen of it on its connection.
    pub releases_seen: u64,
    /// Its last removals, if they are a run.
    pub removals: Removals,
    /// Revokes to be sent to it.
    pub revokes: Vec<(ResourceId, LockMode)>,
}

/// Whether a member may stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its lease is renewed when it asks.
    Good,
    /// Its lease is renewed no more.
    Leaving {
        /// Why.
        reason: String,
        /// It was told, and is not listened to any more.
        is_told: bool,
    },
}

/// A hello.
#[derive(Clone, Debug)]
pub(crate) struct Newcomer {
    pub version: u32,
    pub volume: Vec<u64>,
    pub rejoin: NodeId,
    pub pid: u32,
    pub pid_start: u64,
    pub label: String,
    pub device: String,
}

impl Newcomer {
    /// Whether it can be the mount that `record` tells of, as it says. A master in another namespace of process numbers has seen it under
    /// another number, or none.
    pub fn says_it_is(&self, record: &MemberRecord) -> bool {
        let namespace = |stamp: u64| stamp >> MemberRecord::START_BITS;
        let (is, was) = (self.pid_start, record.pid_start);
        let can_be_told = is != 0 && was != 0 && namespace(is) == namespace(was);
        self.is_of(record) || !can_be_told && self.device == record.device && self.label == record.label
    }

    /// Whether it is the mount that `record` tells of.
    pub fn is_of(&self, record: &MemberRecord) -> bool {
        self.pid == record.pid && self.pid_start == record.pid_start && self.device == record.device
    }

    /// What is recorded of it as a new member.
    pub fn into_record(self) -> MemberRecord {
        let Self { pid, pid_start, label, device, .. } = self;
        MemberRecord { pid, pid_start, label, device, batch: BatchSeq(0), segments: Vec::new() }
    }
}

impl Master {
    pub(crate) fn on_hello(&mut self, peer: PeerId, newcomer: Newcomer) {
        if newcomer.version != PROTOCOL_VERSION {
            let reason = format!("the master speaks protocol {PROTOCOL_VERSION}, not {}", newcomer.version);
            return self.close(peer, reason);
        }
        let own: Vec<u64> = self
            .config
            .volume
            .chunks_exact(8)
            .map(|p| u64::from_be_bytes([p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]]))
            .collect();
        if newcomer.volume != own {
            return self.close(peer, "this is the master of another volume".to_owned());
        }
        if newcomer.rejoin == NodeId(0) {
            self.admit(peer, newcomer);
        } else {
            self.readmit(peer, newcomer);
        }
    }

    fn admit(&mut self, peer: PeerId, newcomer: Newcomer) {
        let node = NodeId(self.volume.next_node);
        self.volume.next_node += 1;
        self.bury_predecessors(&newcomer, node);
        let record = newcomer.into_record();
        let own = vec![own_write(Key::Volume, &self.volume), own_write(Key::Member(node), &record)];
        if let Err(error) = self.commit(NodeId(0), &[], own) {
            return self.fail(format!("a member could not be recorded: {error:?}"));
        }
        log::info!("node {node} joins: {}", record.label);
        self.enter(peer, node, record);
        // Incarnations are durable before first use.
        self.after_sync.push(AfterSync::Welcome(node));
        self.want_sync();
    }

    /// A mount that is member `node` has nothing left of the members that it was before. Nobody need wait for them.
    pub(crate) fn bury_predecessors(&mut self, newcomer: &Newcomer, node: NodeId) {
        let is_old = |of: NodeId, record: &MemberRecord| {
            of < node && newcomer.pid_start != 0 && newcomer.is_of(record)
        };
        let members = self.members.iter().map(|(of, member)| (*of, &member.record));
        let expected = self.expected.iter().map(|(of, expected)| (*of, &expected.record));
        let found = members.chain(expected).filter(|(of, record)| is_old(*of, record));
        let old: BTreeSet<NodeId> = found.map(|(of, _)| of).collect();
        for of in old {
            self.end_membership(of, "its mount began anew".to_owned());
        }
    }

    /// Enters a member and its connection.
    pub(crate) fn enter(&mut self, peer: PeerId, node: NodeId, record: MemberRecord) {
        let member = Member {
            peer: Some(peer),
            durable: BatchSeq(0),
            record,
            renewed_at: self.clock.now,
            store_waited_at: None,
            standing: Standing::Good,
            resuming: None,
            before_welcome: Some(Vec::new()),
            acked: OpSeq(0),
            running: BTreeSet::new(),
            answered: BTreeSet::new(),
            results: BTreeSet::new(),
            releases_seen: 0,
            removals: Removals::default(),
            revokes: Vec::new(),
        };
        self.members.insert(node, member);
        self.peers.insert(peer, Some(node));
        self.metrics.members.set(self.members.len() as i64);
    }

    /// Tokens that each member may hold: they share the budget, however many they are at the moment.
    pub(crate) fn token_share(&self) -> u64 {
        self.config.token_memory / lock::TOKEN_BYTES as u64 / (self.members.len() as u64).max(1)
    }

    pub(crate) fn welcome(&self, node: NodeId, batch_applied: BatchSeq, reassert: bool) -> FromMaster {
        let (limits, limited) = self.limited();
        FromMaster::Welcome {
            node,
            epoch: self.volume.epoch,
            lease_us: self.config.lease.0,
            token_share: self.token_share(),
            cookie_key: self.config.cookie_key.into(),
            batch_applied,
            reassert,
            limits,
            limited,
        }
    }

    /// A member leaves in order: everything of its is flushed.
    pub(crate) fn leave(&mut self, node: NodeId) {
        log::info!("node {node} leaves");
        self.remove_member(node);
        self.want_sync();
    }

    /// A member's rights end, whether it knows or not.
    pub(crate) fn end_membership(&mut self, node: NodeId, reason: String) {
        log::warn!("membership of node {node} ends: {reason}");
        self.metrics.leases_ended.add(1);
        let peer = self.members.get(&node).and_then(|member| member.peer);
        self.send(node, FromMaster::Ended { reason: reason.clone() });
        // Nobody else asks for what it had committed to be made durable: an fsync by others finds nothing of theirs to do.
        self.want_sync();
        self.remove_member(node);
        if let Some(peer) = peer {
            // What it sent before it knew is refused with its connection.
            self.outputs.push_back(Output::Close { peer, reason });
        }
    }

    fn remove_member(&mut self, node: NodeId) {
        let peer = self.members.remove(&node).and_then(|m| m.peer);
        if let Some(peer) = peer {
            self.peers.remove(&peer);
        }
        self.metrics.members.set(self.members.len() as i64);
        self.expected.remove(&node);
        self.look_for_segments_of_the_dead();
        // Of what was empty already nothing more is noted.
        self.call_round(crate::space::PAUSE_ROUND);
        self.pass_barrier_of(node);
        self.drop_credit(node);
        self.take_no_turns(node);
        let mut own = vec![(Key::Member(node), None)];
        // A new master must tell again what readers have not acknowledged, or may not have been told.
        let unacknowledged = self.keep_results(node);
        let results = if self.recovering { Vec::new() } else { self.result_keys(node) };
        own.extend(results.into_iter().filter(|key| !unacknowledged.contains(key)).map(|key| (key, None)));
        if let Err(error) = self.commit(NodeId(0), &[], own) {
            self.fail(format!("a member could not be removed: {error:?}"));
        }
        let forgets: Vec<u64> =
            self.under_way.forgets().filter(|(_, n, _)| *n == node).map(|(s, _, _)| s).collect();
        for seq in forgets {
            self.forgotten(seq);
        }
        // What may fall back into its directory with its token; a directory has nothing to fall back into.
        let may_fall = |r: &ResourceId| matches!(r.kind, ResourceKind::Attr | ResourceKind::File);
        let held: BTreeSet<Ino> = self.table.held_by(node).filter(may_fall).map(|r| r.ino).collect();
        let open = self.table.remove_node(self.clock.now, node);
        self.waiting.retain(|_, task| task.node() != Some(node));
        self.behind.remove(node);
        for ino in open {
            self.trim_orphan(ino);
            self.merge_if_free(ino);
        }
        let left = self.to_merge_after_turn(Ino(0));
        for ino in held.into_iter().chain(left) {
            self.merge_if_free(ino);
        }
        // Orphans that only its own batches recorded.
        self.trim_orphans();
        // Now that it is known what falls free.
        self.serve_all_asks();
        self.retry_glimpses_of(node);
        self.drop_app_locks(node);
        self.check_recovery();
    }

    /// Results of a node that is gone stay until its changes are complete.
    fn keep_results(&mut self, node: NodeId) -> Vec<Key> {
        let mut kept = Vec::new();
        for pending in self.under_way.pending.values_mut() {
            if let Then::Answer { node: sender, seq, .. } = &pending.then
                && *sender == node
            {
                kept.push(Key::OpResult(node, *seq));
                pending.records.push(Key::OpResult(node, *seq));
            }
            let is_its = |key: &Key| matches!(key, Key::OpResult(sender, _) if *sender == node);
            let (gone, rest) = std::mem::take(&mut pending.sources).into_iter().partition(is_its);
            pending.sources = rest;
            kept.extend(&gone);
            pending.records.extend::<Vec<Key>>(gone);
        }
        kept
    }

    fn result_keys(&self, node: NodeId) -> Vec<Key> {
        let start = Key::OpResult(node, OpSeq(0)).to_vec();
        let end = Key::OpResult(node, OpSeq(u64::MAX)).to_vec();
        let limit = kv::ScanLimit { entries: usize::MAX, bytes: 16 << 20 };
        let page = self.engine.scan(&kv::KeyRange::new(start, end), limit, kv::Direction::Forward);
        page.map(|p| p.entries.iter().filter_map(|(k, _)| Key::from_slice(k)).collect()).unwrap_or_default()
    }

    /// Gives numbers to a node, for ever.
    pub(crate) fn on_reserve(&mut self, node: NodeId, inodes: u32, segments: u32) {
        let inodes = inodes.min(RESERVE_MAX);
        let segments = segments.min(RESERVE_MAX);
        let message = FromMaster::Reserved {
            first_inode: Ino(self.volume.next_inode),
            inodes,
            first_segment: self.volume.next_segment,
            segments,
        };
        let last_given = self.numbers_given.last_key_value().map(|(_, member)| *member);
        if inodes > 0 && last_given != Some(node) {
            self.numbers_given.insert(Ino(self.volume.next_inode), node);
        }
        self.volume.next_inode += u64::from(inodes);
        self.volume.next_segment += u64::from(segments);
        let mut own = vec![own_write(Key::Volume, &self.volume)];
        if let Some(member) = self.members.get_mut(&node) {
            let first = self.volume.next_segment - u64::from(segments);
            SegmentRange::add(&mut member.record.segments, first, u64::from(segments));
            own.push(own_write(Key::Member(node), &member.record));
        }
        if let Err(error) = self.commit(NodeId(0), &[], own) {
            return self.fail(format!("numbers could not be reserved: {error:?}"));
        }
        self.send_when_durable(node, message);
    }

    /// Bytes and inodes of the volume, as committed.
    pub fn totals(&self) -> (u64, u64) {
        match self.read::<meta::Totals>(Key::Totals) {
            Ok(Some(totals)) => (totals.bytes, totals.inodes),
            Ok(None) | Err(_) => (0, 0),
        }
    }

    /// Every stored member. One whose record is damaged is nobody whom anyone could know again: it is left out, and ends.
    ///
    /// # Errors
    ///
    /// Those of the engine: a master that took members for gone would give away what they hold.
    pub(crate) fn stored_members(&self) -> Result<Vec<(NodeId, MemberRecord)>, EngineError> {
        let (start, end) = Key::range_of_kind(KeyKind::Member);
        let mut members = Vec::new();
        kv::scan_all(&*self.engine, kv::KeyRange::new(start, end), |(key, value)| {
            match (Key::from_slice(&key), meta::value_decode(&key, &value)) {
                (Some(Key::Member(node)), Ok(record)) => members.push((node, record)),
                (_, Err(damage)) => log::error!("metadata: {damage}"),
                (_, Ok(_)) => {}
            }
        })?;
        Ok(members)
    }
}

const RESERVE_MAX: u32 = 1 << 20;
