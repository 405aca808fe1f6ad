//! A new master takes over: it waits until every recorded member has told what it holds or is known to be
//! gone, tells readers again what the old master may not have told them, and only then serves.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Change, Key, KeyKind};
use types::{Ino, LockMode, Micros, NodeId, ResourceId};
use wire::ReassertPart;

use crate::change::{Pending, Then, removed_inodes};
use crate::member::{Newcomer, Standing};
use crate::record::{MemberRecord, ResultRecord};
use crate::ship::told_under;
use crate::state::{Master, PeerId};

/// A member of the old master that has not re-asserted everything yet.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub record: MemberRecord,
}

impl Master {
    /// Starts a recovery if the old master had members.
    pub(crate) fn expect_members(&mut self, members: Vec<(NodeId, MemberRecord)>) {
        for (node, record) in members {
            self.expected.insert(node, Expected { record });
        }
        self.recovering = !self.expected.is_empty();
        self.recovery_ends = self.clock.now + self.volume.lease;
        if !self.recovering {
            self.shorten_lease();
            self.trim_orphans();
        }
    }

    /// Members without a connection, those of the old master that have not rejoined among them: node, process, start
    /// of the process.
    pub fn absent_members(&self) -> Vec<(NodeId, u32, u64)> {
        let away = self.members.iter().filter(|(_, member)| member.peer.is_none());
        let away = away.map(|(node, member)| (*node, &member.record));
        let expected = self.expected.iter().filter(|(node, _)| !self.members.contains_key(node));
        let expected = expected.map(|(node, expected)| (*node, &expected.record));
        away.chain(expected).map(|(node, record)| (node, record.pid, record.pid_start)).collect()
    }

    /// The driver found the process of an absent member gone. One that has come back meanwhile is judged by its
    /// connection.
    pub fn member_is_dead(&mut self, clock: crate::state::Clock, node: NodeId) {
        self.wake_at(clock);
        let is_absent = match self.members.get(&node) {
            Some(member) => member.peer.is_none(),
            None => self.expected.contains_key(&node),
        };
        if is_absent {
            self.end_membership(node, "its process ended".to_owned());
        }
        self.settle();
    }

    /// A member of the old master comes back.
    pub(crate) fn readmit(&mut self, peer: PeerId, newcomer: Newcomer) {
        let node = newcomer.rejoin;
        let Some(expected) = self.expected.get(&node) else { return self.resume(peer, newcomer) };
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "a planted fault changes it"))]
        let mut record = match self.members.get(&node) {
            // It comes a second time before it has told everything.
            Some(member) => member.record.clone(),
            None => expected.record.clone(),
        };
        #[cfg(feature = "planted")]
        if types::planted::strikes(types::planted::Planted::BatchAppliedTwice) {
            record.batch.0 = record.batch.0.saturating_sub(1);
        }
        let is_leaving = self.members.get(&node).is_some_and(|m| m.standing != Standing::Good);
        if is_leaving || !newcomer.says_it_is(&record) {
            return self.turn_away(peer, format!("the membership of node {node} has ended"));
        }
        self.bury_predecessors(&newcomer, node);
        self.leave_old_peer(node, peer);
        self.forget_told(node);
        log::info!("node {node} rejoins: {}", record.label);
        let applied = record.batch;
        self.enter(peer, node, record);
        let results = self.stored_results(node);
        if let Some(member) = self.members.get_mut(&node) {
            member.results = results;
        }
        let welcome = self.welcome(node, applied, true);
        self.send(node, welcome);
    }

    /// What a member told by a connection that broke before it had told everything counts no more: it may have given some of it
    /// back since. It tells everything again, and asks again for what has no answer.
    fn forget_told(&mut self, node: NodeId) {
        // Nobody waits for anything yet.
        let _open = self.table.remove_node(self.clock.now, node);
        let _granted = self.app_locks.drop_node(node);
        self.drop_told_credit(node);
        self.deferred.retain(|(sender, _)| *sender != node);
    }

    fn stored_results(&self, node: NodeId) -> BTreeSet<types::OpSeq> {
        let start = Key::OpResult(node, types::OpSeq(0)).to_vec();
        let end = Key::OpResult(node, types::OpSeq(u64::MAX)).to_vec();
        let limit = kv::ScanLimit { entries: usize::MAX, bytes: 16 << 20 };
        let page = self.engine.scan(&kv::KeyRange::new(start, end), limit, kv::Direction::Forward);
        let keys = page.map(|p| p.entries).unwrap_or_default();
        keys.iter()
            .filter_map(|(key, _)| match Key::from_slice(key) {
                Some(Key::OpResult(_, seq)) => Some(seq),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn on_reassert(&mut self, node: NodeId, part: ReassertPart, done: bool) {
        if self.members.get(&node).is_some_and(|member| member.resuming.is_some()) {
            return self.on_resuming(node, part, done);
        }
        if !self.recovering || !self.expected.contains_key(&node) {
            return self.expel(node, "it re-asserted outside of a recovery".to_owned());
        }
        match part {
            ReassertPart::Tokens { list } => {
                for (resource, mode) in list {
                    if !self.table.is_met(node, resource, lock::Need::Token(mode)) {
                        let reason = format!("it asserts {mode:?} on {resource}, which another node holds");
                        return self.expel(node, reason);
                    }
                    self.table.grant(node, resource, mode);
                }
            }
            ReassertPart::Open { list } => {
                for ino in list {
                    self.table.open(node, ino);
                }
            }
            ReassertPart::Locks { list } => self.app_locks.reassert(node, list),
            ReassertPart::Credit { list, shipped } => self.hold_told(node, list, shipped),
        }
        if done {
            self.expected.remove(&node);
            self.check_recovery();
        }
    }

    /// Ends the recovery when nobody is expected any more, or the leases of the absent have ended.
    pub(crate) fn check_recovery(&mut self) {
        if !self.recovering {
            return;
        }
        if !self.expected.is_empty() && self.clock.now >= self.recovery_ends.max(self.grace_until) {
            let late: Vec<NodeId> = self.expected.keys().copied().collect();
            let reason = || "it did not rejoin within its lease".to_owned();
            for node in late {
                if self.members.contains_key(&node) {
                    // It has a lease of this master's, and ends with that.
                    self.renew_no_more(node, reason());
                } else if self.expected.contains_key(&node) {
                    self.end_membership(node, reason());
                }
            }
            self.recovery_ends = Micros::NEVER;
        }
        if !self.expected.is_empty() || !self.recovering {
            return;
        }
        self.recovering = false;
        self.recovery_ends = Micros::NEVER;
        self.shorten_lease();
        log::info!("epoch {}: recovered, {} members", self.volume.epoch, self.members.len());
        self.tell_again();
        self.recall_beyond(None);
        self.trim_orphans();
        self.split_open();
        for ino in std::mem::take(&mut self.merges_put_off) {
            self.merge_if_free(ino);
        }
        for (node, message) in std::mem::take(&mut self.deferred) {
            if self.members.contains_key(&node) {
                self.dispatch(node, message);
            }
        }
    }

    /// Nobody has a lease of an older master's any more. Recorded with the next numbers that are given out, or with the next epoch: until then the
    /// next master waits longer than it has to.
    fn shorten_lease(&mut self) {
        self.volume.lease = self.config.lease;
    }

    /// Open inodes whose reports the old master may not have acted on get tokens of their own.
    fn split_open(&mut self) {
        for (node, ino) in self.table.opens() {
            // It may be reading the directory, other than one that gives it up: it is told like the others.
            self.split_opened(node, NodeId(0), ino);
        }
    }

    /// Readers that the old master may not have told of its last changes are told how things stand.
    fn tell_again(&mut self) {
        let (start, end) = Key::range_of_kind(KeyKind::OpResult);
        let mut results = Vec::new();
        let read = kv::scan_all(&*self.engine, kv::KeyRange::new(start, end), |entry| results.push(entry));
        if let Err(error) = read {
            return self.fail(format!("what readers were not told of could not be read: {error}"));
        }
        let mut groups: Vec<Vec<Change>> = Vec::new();
        let (mut records, mut sources) = (Vec::new(), Vec::new());
        let mut removed: BTreeSet<Ino> = BTreeSet::new();
        for (key, value) in results {
            match Key::from_slice(&key) {
                Some(key @ Key::OpResult(node, _)) if self.members.contains_key(&node) => sources.push(key),
                // Nobody is there to say that it has the answer.
                Some(key @ Key::OpResult(..)) => records.push(key),
                _ => {}
            }
            match meta::value_decode::<ResultRecord>(&key, &value) {
                Ok(record) => {
                    removed.extend(removed_inodes(&record.changes));
                    groups.push(self.current_state(&record.changes));
                }
                Err(damage) => log::error!("metadata: {damage}"),
            }
        }
        let mut told: BTreeMap<NodeId, Vec<Vec<Change>>> = BTreeMap::new();
        let mut resources: BTreeSet<ResourceId> = BTreeSet::new();
        for (group, change) in
            groups.iter().enumerate().flat_map(|(n, list)| list.iter().map(move |c| (n, c)))
        {
            let Some(resource) = told_under(change) else { continue };
            resources.insert(resource);
            if let Change::Owner { .. } = change {
                for node in self.members.keys() {
                    let lists = told.entry(*node).or_default();
                    lists.resize_with(groups.len(), Vec::new);
                    lists[group].push(change.clone());
                }
                continue;
            }
            if let Change::DeleteInode { ino, .. } = change {
                removed.insert(*ino);
            }
            // A holder of EX got it after everything was told, and is ahead of the records.
            for (node, _) in self.table.holders(resource).filter(|(_, mode)| *mode != LockMode::Ex) {
                let lists = told.entry(node).or_default();
                lists.resize_with(groups.len(), Vec::new);
                lists[group].push(change.clone());
            }
        }
        let id = self.number();
        let after = self.under_way.before(resources.iter());
        let left = self.tell_readers(id, told, &resources, &removed);
        if left.is_empty() {
            self.told_everyone.extend(records);
            return;
        }
        let (since, removed, then) = (self.clock.now, removed.into_iter().collect(), Then::Nothing);
        let (changes, followers) = (groups, Vec::new());
        let pending =
            Pending { since, left, after, followers, resources, changes, removed, then, records, sources };
        self.under_way.insert(id, pending);
    }
}
