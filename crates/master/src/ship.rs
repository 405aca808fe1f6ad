//! Shipped operations: run once, whatever is sent twice.

use meta::{Change, FileKind, FsError, Key, Op, OpReply, StoredInode};
use obs::OperationKind;
use types::{Ino, LockMode, NodeId, OpSeq, ResourceId, ResourceKind, Timespec};
use wire::{FromMaster, Grant, GrantData};

use crate::change::{Planned, Then};
use crate::commit::{OwnWrite, own_write};
use crate::record::ResultRecord;
use crate::state::{Master, Task};
use crate::turns::changed_alone;

impl Master {
    pub(crate) fn on_ship(&mut self, node: NodeId, seq: OpSeq, acked: OpSeq, now: Timespec, op: Op) {
        let Some(member) = self.members.get_mut(&node) else { return };
        if acked > member.acked {
            member.acked = acked;
            member.answered = member.answered.split_off(&OpSeq(acked.0.saturating_add(1)));
        }
        if member.running.contains(&seq) || seq <= member.acked || member.answered.contains(&seq) {
            return;
        }
        match self.read::<ResultRecord>(Key::OpResult(node, seq)) {
            Ok(Some(record)) => {
                // Readers are being told again: it is complete when they have acknowledged.
                let changing = record.changes.iter().filter_map(told_under).find(|r| self.is_changing(*r));
                if let Some(resource) = changing {
                    return self.wait_behind(resource, Task::Result { node, seq, op, now });
                }
                self.note_orphans(node, &record.changes);
                let changes = self.current_state(&record.changes);
                self.note_split_out(node, &op, &changes);
                self.answer_ship(node, seq, &op, record.result, changes, false);
            }
            Ok(None) => {
                if let Some(member) = self.members.get_mut(&node) {
                    member.running.insert(seq);
                }
                self.metrics.master_operations.add(kind_of(&op), 1);
                self.try_ship(node, seq, op, now);
            }
            Err(error) => self.answer_ship(node, seq, &op, Err(error), Vec::new(), false),
        }
    }

    pub(crate) fn try_ship(&mut self, node: NodeId, seq: OpSeq, op: Op, now: Timespec) {
        if !self.members.contains_key(&node) {
            return;
        }
        let task = Task::Ship { node, seq, op: op.clone(), now };
        if let Some(resource) = self.turn_needed(node, &op) {
            return self.wait_for(node, resource, lock::Need::Token(LockMode::Ex), task);
        }
        // It takes effect now, however long ago it was asked for.
        let (planned, basis) = self.plan_on(&op, node, now.max(self.clock.wall), task);
        match planned {
            Planned::Waiting => {}
            Planned::Refused(error) => {
                // A refusal tells of what others did, which is to be seen everywhere by then.
                #[cfg(feature = "planted")]
                if types::planted::strikes(types::planted::Planted::RefusedEarly) {
                    return self.answer_ship(node, seq, &op, Err(error), Vec::new(), false);
                }
                let then =
                    Then::Answer { node, seq, op, result: Err(error), changes: Vec::new(), told: false };
                self.make_change_on(node, basis, &[], Vec::new(), then);
            }
            Planned::Changes(changes, reply) => {
                let Some(Task::Ship { op, .. }) = self.put_off(&changes, Task::Ship { node, seq, op, now })
                else {
                    return;
                };
                // Whoever made it has it open from now on, whatever others do to its name before the answer.
                if let Op::Create { split: true, new, .. } | Op::CreateOrphan { new, .. } = &op {
                    self.table.open(node, new.ino);
                }
                self.note_split_out(node, &op, &changes);
                let record = ResultRecord { result: Ok(reply), changes: changes.clone() };
                let contested = changed_alone(&op);
                let mut own = self.forget_results(node);
                own.push(own_write(Key::OpResult(node, seq), &record));
                let mut then =
                    Then::Answer { node, seq, op, result: Ok(reply), changes: changes.clone(), told: true };
                // If nobody else reads what changes, the answer carries the changes itself.
                let is_alone = !self.has_readers(&changes, node)
                    && !changes
                        .iter()
                        .filter_map(Change::resource)
                        .chain(basis.iter().copied())
                        .any(|r| self.is_changing(r));
                if is_alone {
                    if let Then::Answer { told, .. } = &mut then {
                        *told = false;
                    }
                } else {
                    self.note_contest(node, contested);
                }
                // Before anything that is complete has orphans looked for that nobody has open.
                self.note_orphans(node, &changes);
                self.make_change_on(node, basis, &changes, own, then);
                // It is in the usage now.
                self.end_spending(node, seq);
            }
        }
    }

    /// What an operation splits out its sender may have open, by the right to the directory that covered it, and says if it has not.
    pub(crate) fn note_split_out(&mut self, node: NodeId, op: &Op, changes: &[Change]) {
        for change in changes.iter().filter(|_| op.may_split_out()) {
            if let Change::PutContent { ino, .. } = change {
                self.table.open(node, *ino);
            }
        }
    }

    /// Writes that remove results which their sender has.
    fn forget_results(&mut self, node: NodeId) -> Vec<OwnWrite> {
        let Some(member) = self.members.get_mut(&node) else { return Vec::new() };
        let acked = member.acked;
        let done: Vec<OpSeq> = member.results.extract_if(..=acked, |_| true).collect();
        done.into_iter().map(|seq| (Key::OpResult(node, seq), None)).collect()
    }

    /// Answers an operation, with whatever rights the sender may have now.
    pub(crate) fn answer_ship(
        &mut self,
        node: NodeId,
        seq: OpSeq,
        op: &Op,
        result: Result<OpReply, FsError>,
        changes: Vec<Change>,
        told: bool,
    ) {
        self.note_answered(node, op);
        if let Some(member) = self.members.get_mut(&node) {
            member.running.remove(&seq);
            if member.resuming.is_none() {
                member.answered.insert(seq);
            }
            if result.is_ok() {
                member.results.insert(seq);
            }
        } else {
            return;
        }
        if let (Err(_), Op::Create { split: true, new, .. } | Op::CreateOrphan { new, .. }) = (&result, op) {
            // Its sender may have said that it has it open, before it knew.
            self.table.close(node, new.ino);
        }
        let mut grants = Vec::new();
        if result.is_ok() {
            self.grant_directories(node, op, &mut grants);
            self.grant_covering(node, &changes, &mut grants);
            self.grant_made(node, op, &changes, &mut grants);
            self.grant_removals(node, op, &changes, &mut grants);
        }
        let changes = if told { Vec::new() } else { changes };
        let seen = self.releases_seen(node);
        self.send(node, FromMaster::Shipped { seq, result, changes, grants, seen });
        // What is asked back from here on counts what the answer brings.
        match result {
            Ok(_) => self.end_spending(node, seq),
            Err(_) => self.return_spent(node, seq),
        }
    }

    /// The only user of a directory gets it in EX with its first change; others keep or get PR.
    fn grant_directories(&mut self, node: NodeId, op: &Op, grants: &mut Vec<Grant>) {
        for dir in op.directories() {
            let resource = ResourceId::dir(dir);
            let has_turn = self.has_turn(node, resource);
            if self.is_changing(resource) || self.table.is_wanted(resource) && !has_turn {
                continue;
            }
            let held = self.table.mode(node, resource);
            let is_alone = !self.table.is_shared(resource, node) && !self.is_wanted_with_others(dir);
            let mode = match (is_alone, held) {
                (_, LockMode::Ex) => continue,
                (true, LockMode::Nl | LockMode::Pr) => LockMode::Ex,
                (false, LockMode::Pr) => continue,
                (false, LockMode::Nl) => LockMode::Pr,
            };
            // A reader would have to be asked first by whoever has the next turn.
            if !self.table.is_met(node, resource, lock::Need::Token(mode))
                || mode == LockMode::Pr && self.is_contested(dir)
            {
                continue;
            }
            if self.table.is_wanted(resource) {
                // Those who wait for their turn are to have this one ended.
                self.tasks.push_back(Task::Settle { resource });
            }
            if held == LockMode::Nl {
                match self.grant_directory(node, dir, mode, SHIPPED_LISTING_BYTES) {
                    Ok((grant, _)) => grants.push(grant),
                    Err(error) => log::debug!("ino {dir} is not granted: {error}"),
                }
            } else {
                self.note_granted(node, dir, mode);
                self.table.grant(node, resource, mode);
                grants.push(Grant { resource, mode, data: GrantData::Held {} });
            }
        }
    }

    /// Whether an operation over several directories, this among them, waits for any of them. It needs all at once, and asks for one after the
    /// other: whoever has given this one up for it is not to have it in EX again before. A link needs the directory that its inode is in as well,
    /// a rename or removal of a directory that one itself.
    fn is_wanted_with_others(&self, dir: Ino) -> bool {
        let is_it = |task: &Task| {
            matches!(task, Task::Ship { op, .. }
                if op.directories().any(|of| of == dir)
                    && (op.directories().any(|of| of != dir)
                        || matches!(op, Op::Link { .. } | Op::Rename { .. } | Op::Rmdir { .. })))
        };
        self.waiting.values().chain(self.behind.put_off()).any(is_it)
    }

    /// The only reader of a directory gets it in EX with its first change of anything that the directory covers: the next runs there.
    fn grant_covering(&mut self, node: NodeId, changes: &[Change], grants: &mut Vec<Grant>) {
        for resource in changes.iter().filter_map(Change::resource) {
            if self.may_hold_alone(node, resource) {
                self.table.grant(node, resource, LockMode::Ex);
                grants.push(Grant { resource, mode: LockMode::Ex, data: GrantData::Held {} });
            }
        }
    }

    /// Whether a node that reads a directory is its only user, and may have it in EX.
    pub(crate) fn may_hold_alone(&self, node: NodeId, resource: ResourceId) -> bool {
        resource.kind == ResourceKind::Dir
            && self.table.mode(node, resource) == LockMode::Pr
            && !self.is_changing(resource)
            && !self.table.is_wanted(resource)
            && !self.table.is_shared(resource, node)
            && !self.is_wanted_with_others(resource.ino)
            && self.table.may_grant(node, resource, LockMode::Ex)
    }

    /// Tokens on what the operation made or split out: nobody else can know it yet.
    fn grant_made(&mut self, node: NodeId, op: &Op, changes: &[Change], grants: &mut Vec<Grant>) {
        let is_split_create = matches!(op, Op::Create { split: true, .. } | Op::CreateOrphan { .. });
        for change in changes {
            match change {
                Change::PutDirectory { ino, .. } if is_new_directory(op, *ino) => {
                    if self.table.may_grant(node, ResourceId::dir(*ino), LockMode::Ex)
                        && let Ok((grant, _)) =
                            self.grant_directory(node, *ino, LockMode::Ex, SHIPPED_LISTING_BYTES)
                    {
                        grants.push(grant);
                    }
                }
                #[cfg(feature = "planted")]
                Change::PutAttr { ino, attr }
                    if types::planted::strikes(types::planted::Planted::GrantedAsItWas) =>
                {
                    self.grant_attr(node, *ino, attr.clone(), grants);
                }
                // As it is by now: others may have changed it since.
                Change::PutAttr { ino, .. } => {
                    if let Ok(Some(StoredInode::Own { attr })) = self.read(Key::Inode(*ino)) {
                        self.grant_attr(node, *ino, attr, grants);
                    }
                }
                Change::PutContent { ino, .. } => {
                    let mode = if is_split_create { LockMode::Ex } else { LockMode::Pr };
                    if is_split_create {
                        self.table.open(node, *ino);
                    }
                    if let Err(error) = self.grant_content(node, *ino, mode, grants) {
                        log::debug!("content of ino {ino} is not granted: {error}");
                    }
                }
                _ => {}
            }
        }
    }

    /// The state now of everything that `changes` once changed.
    pub(crate) fn current_state(&self, changes: &[Change]) -> Vec<Change> {
        let mut now = Vec::new();
        for change in changes {
            match change {
                Change::PutEntry { parent, cookie, entry: meta::Dirent { name, .. } }
                | Change::DeleteEntry { parent, cookie, name } => {
                    match self.read(Key::Entry(*parent, *cookie)) {
                        Ok(Some(entry)) => {
                            now.push(Change::PutEntry { parent: *parent, cookie: *cookie, entry })
                        }
                        Ok(None) | Err(_) => now.push(Change::DeleteEntry {
                            parent: *parent,
                            cookie: *cookie,
                            name: name.clone(),
                        }),
                    }
                }
                Change::PutDirectory { ino, .. } | Change::PutAttr { ino, .. } => {
                    match self.read(Key::Inode(*ino)) {
                        Ok(Some(StoredInode::Directory { inode })) => {
                            now.push(Change::PutDirectory { ino: *ino, inode });
                        }
                        Ok(Some(StoredInode::Own { attr })) => now.push(Change::PutAttr { ino: *ino, attr }),
                        Ok(Some(StoredInode::Covered { .. }) | None) | Err(_) => {}
                    }
                }
                Change::PutContent { ino, .. } => {
                    if let Ok(Some(content)) = self.read(Key::Content(*ino)) {
                        now.push(Change::PutContent { ino: *ino, content });
                    }
                }
                // Under the right that covers it by now: who has got that in EX since is ahead.
                Change::PutExtentPage { ino, page, .. } => {
                    let parent = match self.read(Key::Inode(*ino)) {
                        Ok(Some(StoredInode::Covered { parent, .. })) => parent,
                        Ok(Some(StoredInode::Own { .. })) => Ino(0),
                        Ok(Some(StoredInode::Directory { .. }) | None) | Err(_) => continue,
                    };
                    let map = self.read(Key::ExtentPage(*ino, *page)).ok().flatten().unwrap_or_default();
                    now.push(Change::PutExtentPage { ino: *ino, parent, page: *page, map });
                }
                Change::DeleteInode { .. } | Change::Owner { .. } => now.push(change.clone()),
                Change::PutOrphan { ino, .. } => {
                    if matches!(self.read::<meta::OrphanRecord>(Key::Orphan(*ino)), Ok(Some(_))) {
                        now.push(change.clone());
                    }
                }
                _ => {}
            }
        }
        now
    }
}

/// The resource whose readers a change is told to. An owner is told to all; what stands for that is the inode's.
pub(crate) fn told_under(change: &Change) -> Option<ResourceId> {
    match change {
        Change::Owner { ino } => Some(ResourceId::attr(*ino)),
        change => change.resource(),
    }
}

fn is_new_directory(op: &Op, ino: Ino) -> bool {
    match op {
        Op::Create { new, .. } => new.ino == ino && new.kind == FileKind::Directory,
        _ => false,
    }
}

/// The label under which an operation is counted.
fn kind_of(op: &Op) -> OperationKind {
    match op {
        Op::Create { new, .. } => match new.kind {
            FileKind::File => OperationKind::Create,
            FileKind::Directory => OperationKind::Mkdir,
            FileKind::Symlink => OperationKind::Symlink,
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                OperationKind::Mknod
            }
        },
        Op::CreateOrphan { .. } => OperationKind::Create,
        Op::Link { .. } => OperationKind::Link,
        Op::Unlink { .. } => OperationKind::Unlink,
        Op::Rmdir { .. } => OperationKind::Rmdir,
        Op::Rename { .. } => OperationKind::Rename,
        Op::SetAttr { .. } | Op::TellOwner { .. } => OperationKind::Setattr,
        Op::SetXattr { .. } => OperationKind::Setxattr,
        Op::RemoveXattr { .. } => OperationKind::Removexattr,
        Op::Reclaim { .. } => OperationKind::Orphan,
        Op::Split { .. } | Op::Merge { .. } => OperationKind::Other,
    }
}

/// Entries of a directory granted beside an answer: there may be two, and what changed.
const SHIPPED_LISTING_BYTES: usize = 128 << 10;
