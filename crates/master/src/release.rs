//! Rights given back, and files closed.

use meta::{Op, StoredInode};
use types::{Ino, LockMode, NodeId, ResourceId, ResourceKind};
use wire::OpenReport;

use crate::change::{Planned, Then};
use crate::state::{Master, Task};

impl Master {
    pub(crate) fn on_release(
        &mut self,
        node: NodeId,
        list: Vec<(ResourceId, LockMode)>,
        open: Vec<OpenReport>,
    ) {
        if let Some(member) = self.members.get_mut(&node) {
            member.releases_seen += 1;
        }
        // Before what is open is split out: the node does not know of that.
        for (resource, to) in &list {
            self.note_turn_over(node, *resource, *to);
        }
        let given_up: Vec<Ino> = list
            .iter()
            .filter(|(resource, to)| resource.kind == ResourceKind::Dir && *to == LockMode::Nl)
            .map(|(resource, _)| resource.ino)
            .collect();
        for report in open {
            self.on_open_report(node, report.ino, &given_up);
        }
        for (resource, to) in list {
            self.table.release(self.clock.now, node, resource, to);
            if resource.kind == ResourceKind::Dir {
                // Before the next turn begins.
                for ino in self.to_merge_after_turn(resource.ino) {
                    self.merge_if_free(ino);
                }
            }
            if matches!(resource.kind, ResourceKind::Attr | ResourceKind::File) {
                self.merge_if_free(resource.ino);
            }
        }
    }

    /// What a node has been granted, for inspection.
    pub fn mode(&self, node: NodeId, resource: ResourceId) -> LockMode {
        self.table.mode(node, resource)
    }

    /// Releases seen of a node on its connection.
    pub(crate) fn releases_seen(&self, node: NodeId) -> u64 {
        self.members.get(&node).map_or(0, |member| member.releases_seen)
    }

    /// A node keeps an inode open whose directory it gives up: the inode gets tokens of its own, so that
    /// nobody removes it by the directory's token alone. It is told of that itself where the directory is not one of those `given_up`: it may be reading it.
    pub(crate) fn on_open_report(&mut self, node: NodeId, ino: Ino, given_up: &[Ino]) {
        self.table.open(node, ino);
        if self.recovering {
            // At its end all that is open is looked at.
            return;
        }
        let Ok(Some(StoredInode::Covered { parent, .. })) = self.read(meta::Key::Inode(ino)) else { return };
        let knowing = if given_up.contains(&parent) { node } else { NodeId(0) };
        self.split_opened(node, knowing, ino);
    }

    /// An inode that `node` has open gets tokens of its own. All who read its directory are told, but for who is `knowing`.
    pub(crate) fn split_opened(&mut self, node: NodeId, knowing: NodeId, ino: Ino) {
        if !matches!(self.read(meta::Key::Inode(ino)), Ok(Some(StoredInode::Covered { .. }))) {
            return;
        }
        let op = Op::Split { ino };
        match self.plan(&op, node, self.clock.wall, Task::Own { op: op.clone() }) {
            Planned::Changes(changes, _) => {
                self.make_change(knowing, &changes, Vec::new(), Then::Nothing);
            }
            Planned::Refused(error) => log::error!("open inode {ino} could not be split out: {error}"),
            Planned::Waiting => {}
        }
    }

    pub(crate) fn on_closed(&mut self, node: NodeId, ino: Ino) {
        if self.table.close(node, ino) {
            self.reclaim(ino);
            self.merge_if_free(ino);
        } else {
            self.trim_orphan(ino);
        }
    }

    /// An uncovered inode with one link falls back into its directory when nobody has a token on it or has it
    /// open, unless its directory is held in EX: the holder would not know.
    pub(crate) fn merge_if_free(&mut self, ino: Ino) {
        if self.recovering {
            // Who may have it open is not known before the end.
            self.merges_put_off.insert(ino);
            return;
        }
        let Some(parent) = self.falls_back_to(ino) else { return };
        match self.table.exclusive_holder(ResourceId::dir(parent)) {
            Some(_) => self.merge_after_turn(parent, ino),
            None => self.tasks.push_back(Task::Own { op: Op::Merge { ino } }),
        }
    }

    /// The directory that an uncovered inode falls back into, if nothing of it is held, open, or may be open.
    pub(crate) fn falls_back_to(&self, ino: Ino) -> Option<Ino> {
        let is_held = |kind| self.table.holders(ResourceId { ino, kind }).next().is_some();
        if is_held(ResourceKind::Attr)
            || is_held(ResourceKind::File)
            || self.table.open_nodes(ino).next().is_some()
            || self.may_be_open_unsaid(ino)
        {
            return None;
        }
        match self.read(meta::Key::Inode(ino)) {
            Ok(Some(StoredInode::Own { attr })) if attr.nlink == 1 && attr.parent.0 != 0 => Some(attr.parent),
            _ => None,
        }
    }
}
