//! Answers, and how kernels take them in. Some changes of names they take in late: who asked had no processor to go on with.
//!
//! Until then the kernel has the locks of the directories, and whoever finds a name in its cache finds what was there before.

use types::{Ino, LockMode, Micros, ResourceId};
use vfs::{Clock, HandleId, Invalidation, Outdated, Over, OverStep, Permissions, Reply, RequestId, Seen};

use super::{Cluster, Node};
use crate::kernel::{Asked, Pending};

/// An answer, and when it is taken in.
#[derive(Debug)]
pub(super) struct Late {
    pub id: RequestId,
    pub reply: Reply,
    pub due: Micros,
    /// Directories changed by rights of the node's own, under the membership of this number.
    pub own: (Vec<Ino>, u64),
}

/// Longest that an answer waits: no longer than who waits for its thread has patience.
const LATE_MAX: u64 = 2_000;

impl Cluster {
    /// Kernels take in what has become due.
    pub(super) fn take_in_late(&mut self) {
        for index in 0..self.nodes.len() {
            let clock = self.node_clock(index);
            let node = &mut self.nodes[index];
            while let Some(late) = node.next_late(self.now) {
                node.kernel.pending.remove(&late.id);
                self.figures.late_answers += 1;
                if node.take_answer(clock, late.id, late.reply).is_ok() {
                    self.answered.push_back((index, late.id));
                }
            }
        }
    }

    /// What a node has changed by its own right no other one may see before its kernel is done with the answer: here it still shows what was before.
    pub(super) fn check_late(&self) {
        for (index, node) in self.nodes.iter().enumerate().filter(|(index, _)| self.may_use(*index)) {
            let own = node.late.iter().filter(|late| late.own.1 == node.memberships_lost);
            for (late, dir) in own.flat_map(|late| late.own.0.iter().map(move |dir| (late, *dir))) {
                let may_see = |other: &usize| {
                    *other != index
                        && self.may_use(*other)
                        && self.nodes[*other].core.usable_mode(ResourceId::dir(dir)) != LockMode::Nl
                };
                let sees = self.nodes_up().into_iter().find(may_see);
                assert_eq!(
                    sees, None,
                    "seed {}: a node may see what node {index} has changed in directory {dir} and not taken in: {late:?}",
                    self.config.seed
                );
            }
        }
    }

    /// Who was answered asks for something else: the kernel is done with what that has changed.
    pub fn taken_in(&mut self, index: usize, id: RequestId) {
        self.nodes[index].core.taken_in(id);
        self.end_over(index);
    }

    /// What is known to be over is not waited for.
    pub(super) fn end_over(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        for over in node.core.take_over() {
            for job in node.jobs.iter_mut().filter(|job| job.number == over.job) {
                let steps = job.list.len();
                job.list.retain(|step| !is_over(step, &over));
                self.figures.waits_ended += u64::from(job.list.len() < steps);
            }
        }
    }
}

impl Node {
    /// Tells of lulls for which nobody holds the lock of the directory any more.
    pub(super) fn tell_lulls(&mut self, clock: Clock) {
        for (dir, number) in std::mem::take(&mut self.lulls) {
            match self.kernel.is_busy(dir) {
                true => self.lulls.push((dir, number)),
                false => self.core.lull_came(clock, dir, number),
            }
        }
    }

    /// The kernel takes in an answer. If nobody waits for that any more, returns what was opened.
    pub(super) fn take_answer(
        &mut self,
        clock: Clock,
        id: RequestId,
        reply: Reply,
    ) -> Result<(), Option<HandleId>> {
        self.catch_up(clock, &reply);
        self.tell_lulls(clock);
        let opened = self.note_opened(&reply);
        if self.abandoned.remove(&id) {
            self.take_in(id, &reply);
            return Err(opened);
        }
        self.replies.insert(id, reply);
        Ok(())
    }

    /// The kernel takes in an answer that nobody waits for any more.
    pub(super) fn take_in(&mut self, id: RequestId, reply: &Reply) {
        if let Some(asked) = self.asked.remove(&id) {
            self.kernel.answered(asked, reply);
        }
    }

    /// The kernel takes each answer as it comes, and judges by it.
    pub(super) fn catch_up(&mut self, clock: Clock, reply: &Reply) {
        if let Some(of @ Outdated { told: Some(attr), permissions: true, .. }) = self.core.outdated(reply) {
            let seen = Seen { end: attr.size, permissions: Permissions::of(&attr) };
            self.core.seen(clock, Outdated { end: false, ..of }, seen);
        }
        // Stores are bytes here, not pages: none of them shows what was beside it.
        if let Some(shield) = reply.shield() {
            self.core.lower_shield(clock, shield);
        }
    }

    pub(super) fn note_opened(&mut self, reply: &Reply) -> Option<HandleId> {
        let (handle, ino) = match reply {
            // Whose it is a Release does not need.
            Reply::Opened(opened) => (opened.handle, Ino::ROOT),
            Reply::Created(entry, opened) => (opened.handle, entry.attr.ino),
            _ => return None,
        };
        self.handles.insert(handle, ino);
        Some(handle)
    }

    /// Returns an answer that is not taken in late.
    pub(super) fn be_late(
        &mut self,
        rng: &mut fastrand::Rng,
        now: Micros,
        (id, reply): (RequestId, Reply),
        locks: Pending,
    ) -> Option<Reply> {
        let dirs = match self.asked.get(&id) {
            Some(Asked::Removal(dir, _) | Asked::DirectoryRemoval(dir, _)) => vec![*dir],
            Some(Asked::Move(old, new)) => vec![old.0, new.0],
            _ => return Some(reply),
        };
        if !matches!(reply, Reply::Done) || rng.u8(..3) > 0 {
            return Some(reply);
        }
        let is_own = |dir: &Ino| self.core.usable_mode(ResourceId::dir(*dir)) == LockMode::Ex;
        let own = (dirs.into_iter().filter(is_own).collect(), self.memberships_lost);
        self.kernel.pending.insert(id, locks);
        self.late.push(Late { id, reply, due: Micros(now.0 + rng.u64(1..LATE_MAX)), own });
        None
    }

    fn next_late(&mut self, now: Micros) -> Option<Late> {
        let at = self.late.iter().position(|late| late.due <= now).filter(|_| self.paused_until <= now)?;
        Some(self.late.remove(at))
    }

    /// When the next one is taken in.
    pub(super) fn late_due(&self) -> Micros {
        self.late.iter().map(|late| late.due).min().unwrap_or(Micros::NEVER)
    }
}

fn is_over(step: &Invalidation, over: &Over) -> bool {
    let is_it = |parent: &Ino, name: &types::Name| (*parent, name) == (over.parent, &over.name);
    match (over.step, step) {
        (OverStep::Wait, Invalidation::Settled { parent, name })
        | (OverStep::TakeBack, Invalidation::Name { parent, name } | Invalidation::Unhash { parent, name }) => {
            is_it(parent, name)
        }
        _ => false,
    }
}
