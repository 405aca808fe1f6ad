//! Changes made at the master: committed, told to the readers, complete when all have acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Change, FsError, Key, Op, OpContext, OpReply, ViewError};
use types::{Ino, Micros, NodeId, OpSeq, ResourceId, ResourceKind, Timespec};
use wire::FromMaster;

use crate::commit::{OwnWrite, own_write};
use crate::record::ResultRecord;
use crate::state::{Master, Task};
use crate::view::{EngineStore, MasterView};

/// A change that readers have yet to acknowledge.
#[derive(Debug)]
pub(crate) struct Pending {
    /// When the forgets were sent.
    pub since: Micros,
    /// Forgets of it without an answer.
    pub left: BTreeSet<u64>,
    /// Earlier changes that it waits for, and later ones that wait for it.
    pub after: BTreeSet<u64>,
    pub followers: Vec<u64>,
    /// Resources it changed.
    pub resources: BTreeSet<ResourceId>,
    /// What changed, in groups that stay together, to be told again to a reader whose connection broke.
    pub changes: Vec<Vec<Change>>,
    /// Inodes that lost their last covered name, and who has them open.
    pub removed: Vec<Ino>,
    /// Who is waiting for it.
    pub then: Then,
    /// Records that have it told again by a new master, to be removed when it is complete.
    pub records: Vec<Key>,
    /// Records of members that it comes from: they become some of those when their member is gone.
    pub sources: Vec<Key>,
}

impl Pending {
    /// Whether everybody has acknowledged it and what came before it.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.after.is_empty()
    }
}

/// What follows a completed change.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// Answer the sender of a shipped operation.
    Answer {
        node: NodeId,
        seq: OpSeq,
        op: Op,
        result: Result<OpReply, FsError>,
        changes: Vec<Change>,
        told: bool,
    },
    /// Grant what a split was made for.
    Task(Task),
    /// Nothing.
    Nothing,
}

/// Outcome of planning at the master.
pub(crate) enum Planned {
    Changes(Vec<Change>, OpReply),
    Refused(FsError),
    Waiting,
}

impl Master {
    /// Plans an operation of `node` on the engine's state. If another node holds in EX what it is about, that
    /// is asked back and `task` waits.
    pub(crate) fn plan(&mut self, op: &Op, node: NodeId, now: Timespec, task: Task) -> Planned {
        self.plan_on(op, node, now, task).0
    }

    /// Plans an operation, and says what the plan rests on.
    pub(crate) fn plan_on(
        &mut self,
        op: &Op,
        node: NodeId,
        now: Timespec,
        task: Task,
    ) -> (Planned, BTreeSet<ResourceId>) {
        let records = EngineStore(&*self.engine);
        let table = &self.table;
        let holders = |ino: Ino| -> Vec<NodeId> { table.open_nodes(ino).collect() };
        let covering = |ino: Ino| self.covered_holders(ino, node);
        let all = |ino: Ino| -> Vec<NodeId> {
            let mut nodes = holders(ino);
            nodes.extend(covering(ino));
            nodes.extend(self.unheard(ino));
            nodes.sort_unstable();
            nodes.dedup();
            nodes
        };
        let view = MasterView::new(self, &records, node, &all);
        let planned = op.plan(&view, &OpContext { now, node });
        view.log_failures();
        let basis = view.into_basis();
        let planned = match planned {
            Ok(plan) => Planned::Changes(plan.changes, plan.reply),
            Err(ViewError::Refused(error)) => Planned::Refused(error),
            Err(ViewError::Missing(missing)) => {
                self.end_turns_for(op, missing.resource);
                self.wait_for(node, missing.resource, lock::Need::Change, task);
                Planned::Waiting
            }
        };
        (planned, basis)
    }

    /// Readers of the directory that covers `ino`, who may have it open without having said so, and those who were when it came there and have yet to
    /// take that in. The sender of an operation has said so with it, unless it is one of these: it may have meant another inode.
    fn covered_holders(&self, ino: Ino, sender: NodeId) -> Vec<NodeId> {
        let Ok(Some(meta::StoredInode::Covered { parent, .. })) = self.read(meta::Key::Inode(ino)) else {
            return Vec::new();
        };
        let resource = ResourceId::dir(parent);
        let behind = self.under_way.readers_behind(resource);
        let readers = self.table.holders(resource).map(|(reader, _)| reader);
        readers.filter(|reader| *reader != sender).chain(behind).collect()
    }

    /// Commits a planned change and tells its readers. `then` follows when they have acknowledged.
    ///
    /// Returns whether it is complete already.
    pub(crate) fn make_change(
        &mut self,
        node: NodeId,
        changes: &[Change],
        own: Vec<OwnWrite>,
        then: Then,
    ) -> bool {
        self.make_change_on(node, BTreeSet::new(), changes, own, then)
    }

    /// As [`Self::make_change`], of a change, or of none, that rests on `basis`: whoever is told of it learns of earlier
    /// changes there, so it is not complete before those are.
    pub(crate) fn make_change_on(
        &mut self,
        node: NodeId,
        basis: BTreeSet<ResourceId>,
        changes: &[Change],
        own: Vec<OwnWrite>,
        then: Then,
    ) -> bool {
        let told = self.readers_of(changes, node);
        let resources: BTreeSet<ResourceId> = changes.iter().filter_map(Change::resource).collect();
        let mut removed = removed_inodes(changes);
        if let Then::Answer { op, .. } = &then
            && let Some((_, new)) = op.made()
        {
            // Nobody can have open what is only being made.
            removed.retain(|ino| *ino != new.ino);
        }
        let id = self.number();
        let mut own = own;
        let is_nothing = changes.is_empty() && own.is_empty();
        if !is_nothing {
            own.extend(std::mem::take(&mut self.told_everyone).into_iter().map(|key| (key, None)));
        }
        // What a sender is not there to send again: a new master must know that readers may not have been told.
        let mut records = Vec::new();
        if !told.is_empty() && !matches!(then, Then::Answer { .. }) {
            let key = Key::OpResult(NodeId(0), OpSeq(self.volume.epoch.0 << 32 | id));
            let result = ResultRecord { result: Ok(OpReply::Done), changes: changes.to_vec() };
            own.push(own_write(key, &result));
            records.push(key);
        }
        if !is_nothing && let Err(error) = self.commit(node, changes, own) {
            self.fail(format!("a change of node {node} could not be committed: {error:?}"));
            return false;
        }
        // Once it is sure, in the order of commits, before any forget of a later change can reach the sender.
        if let Then::Answer { seq, changes, told: true, .. } = &then {
            self.send(node, FromMaster::Changed { seq: *seq, changes: changes.clone() });
        }
        // Changes of the same resources that readers have not acknowledged yet: this one is not complete
        // before they are.
        let (mut left, mut after) = (BTreeSet::new(), self.under_way.before(resources.union(&basis)));
        for (reader, changes) in told {
            let seq = self.number();
            self.under_way.tell(seq, reader, id, &resources);
            left.insert(seq);
            self.metrics.forgets_sent.add(1);
            self.send(reader, FromMaster::Forget { seq, changes, removed: removed.clone() });
        }
        let changes = if left.is_empty() { Vec::new() } else { vec![changes.to_vec()] };
        if is_answered_early(&left, &after) {
            left.clear();
            after.clear();
        }
        let since = self.clock.now;
        let (followers, sources) = (Vec::new(), Vec::new());
        let pending =
            Pending { since, left, after, followers, resources, changes, removed, then, records, sources };
        if pending.is_complete() {
            self.complete(pending);
            return true;
        }
        self.under_way.insert(id, pending);
        false
    }

    /// Whether anybody else reads what is changed: whether [`readers_of`](Self::readers_of) has any.
    pub(crate) fn has_readers(&self, changes: &[Change], but: NodeId) -> bool {
        let is_read = |resource: ResourceId| {
            let attr = ResourceId::attr(resource.ino);
            self.table.is_shared(resource, but)
                || resource.kind == ResourceKind::File && self.table.is_shared(attr, but)
        };
        let is_told = |change: &Change| match change {
            Change::Owner { .. } => self.members.keys().any(|node| *node != but),
            change => change.resource().is_some_and(is_read),
        };
        changes.iter().any(is_told)
    }

    /// Readers, other than `but`, of what is changed, and which changes concern each.
    fn readers_of(&self, changes: &[Change], but: NodeId) -> BTreeMap<NodeId, Vec<Change>> {
        let mut told: BTreeMap<NodeId, Vec<Change>> = BTreeMap::new();
        for change in changes {
            if let Change::Owner { .. } = change {
                for reader in self.members.keys().filter(|node| **node != but) {
                    told.entry(*reader).or_default().push(change.clone());
                }
            }
            let Some(resource) = change.resource() else { continue };
            let mut readers: BTreeSet<NodeId> =
                self.table.holders(resource).map(|(n, _)| n).filter(|n| *n != but).collect();
            // Both halves of an uncovered inode are shown by stat.
            if resource.kind == ResourceKind::File {
                let attr = ResourceId::attr(resource.ino);
                readers.extend(self.table.holders(attr).map(|(n, _)| n).filter(|n| *n != but));
            }
            for reader in readers {
                told.entry(reader).or_default().push(change.clone());
            }
        }
        told
    }

    /// Tells readers what changed, in groups that stay together, in as many messages as that takes. Returns the
    /// forgets of change `id` to be acknowledged.
    pub(crate) fn tell_readers(
        &mut self,
        id: u64,
        told: BTreeMap<NodeId, Vec<Vec<Change>>>,
        resources: &BTreeSet<ResourceId>,
        removed: &BTreeSet<Ino>,
    ) -> BTreeSet<u64> {
        let mut left = BTreeSet::new();
        let removed: Vec<Ino> = removed.iter().copied().collect();
        for (reader, groups) in told {
            for (changes, removed) in forget_parts(groups, &removed) {
                let seq = self.number();
                self.under_way.tell(seq, reader, id, resources);
                left.insert(seq);
                self.metrics.forgets_sent.add(1);
                self.send(reader, FromMaster::Forget { seq, changes, removed });
            }
        }
        left
    }

    /// One more forget that whoever waits for forget `seq` waits for, of the same reader.
    pub(crate) fn owe_forget_like(&mut self, seq: u64) -> u64 {
        let new = self.number();
        self.under_way.tell_more(seq, new);
        new
    }

    /// A reader has taken a change in.
    pub(crate) fn on_forgotten(&mut self, node: NodeId, seq: u64, open: &[Ino]) {
        for ino in open {
            self.table.open(node, *ino);
        }
        if self.under_way.reader(seq) == Some(node) {
            self.forgotten(seq);
        }
    }

    /// Crosses a forget off, wherever it is awaited.
    pub(crate) fn forgotten(&mut self, seq: u64) {
        let done = self.under_way.acknowledge(seq);
        for pending in done.complete {
            self.complete(pending);
        }
        for resource in done.free {
            self.let_in(resource);
        }
    }

    fn complete(&mut self, pending: Pending) {
        self.told_everyone.extend(pending.records);
        for ino in &pending.removed {
            self.trim_orphan(*ino);
        }
        let is_for_task = matches!(&pending.then, Then::Task(_));
        match pending.then {
            Then::Answer { node, seq, op, result, changes, told } => {
                self.answer_ship(node, seq, &op, result, changes, told);
            }
            Then::Task(task) => self.tasks.push_back(task),
            Then::Nothing => {}
        }
        for resource in pending.resources {
            self.table.settle(self.clock.now, resource);
        }
        // What was split out because it might be open, and is not, or not any more.
        for ino in pending.removed.into_iter().filter(|_| !is_for_task) {
            self.merge_if_free(ino);
        }
    }

    /// Runs an operation of the master's own.
    pub(crate) fn try_own(&mut self, op: Op) {
        if let Op::Merge { ino } = op
            && self.falls_back_to(ino).is_none()
        {
            // Somebody has come since: it is looked at again when he goes.
            return;
        }
        let now = self.clock.wall;
        match self.plan(&op, NodeId(0), now, Task::Own { op: op.clone() }) {
            Planned::Changes(changes, _) if changes.is_empty() => {}
            Planned::Changes(changes, _) => {
                if let Op::Merge { ino } = op
                    && self.put_off(&changes, Task::Own { op: Op::Merge { ino } }).is_none()
                {
                    return;
                }
                if let Op::Reclaim { ino } = op {
                    match self.reclaim_part(ino, &changes) {
                        Ok(false) => {}
                        Ok(true) => return,
                        Err(error) => {
                            self.fail(format!("orphan {ino} could not be deleted in part: {error:?}"));
                            return;
                        }
                    }
                }
                self.make_change(NodeId(0), &changes, Vec::new(), Then::Nothing);
            }
            Planned::Refused(error) => log::debug!("{op:?} of the master's own: {error}"),
            Planned::Waiting => return,
        }
        if let Op::Reclaim { ino } = op {
            self.end_reclaiming(ino);
        }
    }

    /// Splits a covered file out so that `node` may write it while others share its directory.
    pub(crate) fn split_for(&mut self, node: NodeId, request: u64, ino: Ino) {
        let op = Op::Split { ino };
        let task = Task::Write { node, request, ino };
        let now = self.clock.wall;
        match self.plan(&op, node, now, task.clone()) {
            Planned::Changes(changes, _) => {
                let Some(task) = self.put_off(&changes, task) else { return };
                // The node that asked reads the directory too: it is told like the others.
                self.make_change(NodeId(0), &changes, Vec::new(), Then::Task(task));
            }
            Planned::Refused(error) => {
                let message = FromMaster::Acquired {
                    request,
                    error: Some(error),
                    grants: Vec::new(),
                    seen: 0,
                    glimpse: None,
                };
                self.send(node, message);
            }
            Planned::Waiting => {}
        }
    }
}

/// A fault that tests plant: what waits for acknowledgements is answered at once.
fn is_answered_early(left: &BTreeSet<u64>, after: &BTreeSet<u64>) -> bool {
    #[cfg(feature = "planted")]
    return !(left.is_empty() && after.is_empty())
        && types::planted::strikes(types::planted::Planted::AnsweredEarly);
    #[cfg(not(feature = "planted"))]
    {
        _ = (left, after);
        false
    }
}

/// Changes in groups that stay together, and inodes that are removed, in parts that fit a message each.
pub(crate) fn forget_parts(groups: Vec<Vec<Change>>, removed: &[Ino]) -> Vec<(Vec<Change>, Vec<Ino>)> {
    let mut parts: Vec<(Vec<Change>, Vec<Ino>)> =
        join_groups(groups).into_iter().map(|part| (part, Vec::new())).collect();
    match &mut parts[..] {
        [(_, list)] if removed.len() <= REMOVED_MAX => *list = removed.to_vec(),
        // Which inodes are open is answered before the changes that remove them take effect.
        _ => drop(parts.splice(0..0, removed.chunks(REMOVED_MAX).map(|l| (Vec::new(), l.to_vec())))),
    }
    parts
}

/// Groups one after the other, in lists that fit a message each.
fn join_groups(groups: Vec<Vec<Change>>) -> Vec<Vec<Change>> {
    let mut parts: Vec<Vec<Change>> = Vec::new();
    let mut bytes = wire::PART_BYTES;
    for group in groups.into_iter().filter(|group| !group.is_empty()) {
        let len: usize = group.iter().map(Change::encoded_len_max).sum();
        bytes += len;
        match parts.last_mut() {
            Some(part) if bytes <= wire::PART_BYTES => part.extend(group),
            _ => {
                // One operation's changes fit; those of the cleaner need not stay together.
                parts.extend(wire::change_parts(group, 0));
                bytes = len.min(wire::PART_BYTES);
            }
        }
    }
    parts
}

/// Inodes named as removed in one message.
const REMOVED_MAX: usize = 10_000;

/// Inodes that lose a covered name: who reads the directory may have them open.
pub(crate) fn removed_inodes(changes: &[Change]) -> Vec<Ino> {
    changes
        .iter()
        .filter_map(|change| match change {
            Change::PutOrphan { ino, .. } => Some(*ino),
            Change::PutAttr { ino, .. } => Some(*ino),
            _ => None,
        })
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}
