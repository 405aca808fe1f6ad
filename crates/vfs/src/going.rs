//! Names that operations of this node have changed and of which its kernel has yet to hear.
//!
//! Until the kernel has taken in the answer, everybody on this node finds under such a name what was there before. Other nodes must not see the change
//! so long: a right under which it was made goes, or comes to be shared, when the kernel is done with it; and so is a change that another
//! node makes of such a name acknowledged. The kernel holds the lock of the directory from before its request until it is done with the answer. So it is done when it asks for
//! something for which it has that lock again, or for anything on behalf of the same thread; else it is asked for the name, which
//! waits for the lock ([`Invalidation::Settled`]), though not for long: who holds it may be waiting for just that right.

use std::collections::VecDeque;

use meta::Op;
use types::{Ino, Micros, Name};

use crate::core::Core;
use crate::judged::QUIET;
use crate::outputs::Invalidation;
use crate::request::{Request, RequestId};
use crate::wait::{Parked, WaitKey};

/// Names that change, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Going {
    list: VecDeque<Change>,
    /// Names that another node has taken away.
    lost: Vec<Lost>,
    /// What need not be waited for any more.
    over: Vec<Over>,
}

/// A name that another node has taken away, and that is being taken back from the kernel.
#[derive(Debug)]
struct Lost {
    parent: Ino,
    name: Name,
    /// The invalidation.
    job: u64,
}

/// A step of an invalidation for which there is no need any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// The invalidation.
    pub job: u64,
    /// What it does.
    pub step: OverStep,
    /// The directory of the name.
    pub parent: Ino,
    /// The name.
    pub name: Name,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverStep {
    /// It waits until the kernel is done with a change ([`Invalidation::Settled`]).
    Wait,
    /// It takes the name back.
    TakeBack,
}

/// A name that changes.
#[derive(Debug)]
struct Change {
    parent: Ino,
    name: Name,
    /// What changes it.
    by: RequestId,
    /// When that took effect.
    at: Micros,
    /// The invalidation that waits for it; 0 as long as that has no number.
    asked_by: Option<u64>,
}

impl Going {
    /// An operation has taken effect that `by` made.
    pub(crate) fn note(&mut self, op: &Op, by: RequestId, at: Micros) {
        for (parent, name) in names_changed(op).into_iter().flatten() {
            if self.list.len() >= LEN_MAX {
                self.list.pop_front();
            }
            self.list.push_back(Change { parent, name: name.clone(), by, at, asked_by: None });
        }
    }

    /// Whether `by` is known to have changed names.
    pub(crate) fn has(&self, by: RequestId) -> bool {
        self.list.iter().any(|change| change.by == by)
    }

    fn end(&mut self, is_over: impl Fn(&Change) -> bool) {
        let mut at = 0;
        while let Some(change) = self.list.get(at) {
            match is_over(change) {
                true => {
                    let Some(Change { parent, name, asked_by, .. }) = self.list.remove(at) else { return };
                    let over = |job| Over { job, step: OverStep::Wait, parent, name };
                    self.over.extend(asked_by.map(over));
                }
                false => at += 1,
            }
        }
    }

    /// The kernel asks for something for which it has the locks of directories: it is done with all else that it had them for.
    pub(crate) fn note_request(&mut self, request: &Request, id: RequestId) {
        if !self.lost.is_empty()
            && let Some((parent, name)) = request.made()
        {
            // It has looked there within the lock and found nothing.
            let is_it = |lost: &mut Lost| lost.parent == parent && lost.name.as_bytes() == name;
            let over = |Lost { job, name, .. }| Over { job, step: OverStep::TakeBack, parent, name };
            self.over.extend(self.lost.extract_if(.., is_it).map(over));
        }
        if !self.list.is_empty() {
            for dir in request.locked().into_iter().flatten() {
                self.end(|change| change.parent == dir && change.by != id);
            }
        }
    }

    /// A name that another node has taken away is being taken back by `job`.
    pub(crate) fn note_lost(&mut self, (parent, name): (Ino, Name), job: u64) {
        self.lost.push(Lost { parent, name, job });
    }

    /// There is something under a name.
    pub(crate) fn note_found(&mut self, parent: Ino, name: &Name) {
        self.lost.retain(|lost| lost.parent != parent || lost.name != *name);
    }

    /// An invalidation is done: the kernel was asked, or given time.
    pub(crate) fn note_done(&mut self, job: u64) {
        self.lost.retain(|lost| lost.job != job);
        self.list.retain(|change| change.asked_by != Some(job));
    }

    /// What is to be waited for in a directory before others see what it holds: one lock covers all of it.
    pub(crate) fn ask_in(&mut self, dir: Ino, now: Micros) -> Option<Invalidation> {
        #[cfg(feature = "planted")]
        self.list.retain(|_| !types::planted::strikes(types::planted::Planted::SeenBeforeTakenIn));
        self.end_old(now);
        let mut changes = self.list.iter_mut().filter(|change| change.parent == dir);
        let first = changes.next().map(Change::ask);
        changes.for_each(|change| change.asked_by = Some(0));
        first
    }

    /// What is to be waited for before another node's change of a name has happened.
    pub(crate) fn ask(&mut self, parent: Ino, name: &Name, now: Micros) -> Option<Invalidation> {
        #[cfg(feature = "planted")]
        self.list.retain(|_| !types::planted::strikes(types::planted::Planted::SeenBeforeTakenIn));
        self.end_old(now);
        let is_it = |change: &&mut Change| change.parent == parent && change.name == *name;
        self.list.iter_mut().find(is_it).map(Change::ask)
    }

    /// What an answer changes the kernel has taken in within a while, whoever has ended since.
    fn end_old(&mut self, now: Micros) {
        while self.list.front().is_some_and(|change| now.since(change.at) >= QUIET) {
            self.list.pop_front();
        }
    }

    /// The invalidation that was asked for last has this number.
    pub(crate) fn note_job(&mut self, job: u64) {
        for change in self.list.iter_mut().filter(|change| change.asked_by == Some(0)) {
            change.asked_by = Some(job);
        }
    }
}

impl Change {
    fn ask(&mut self) -> Invalidation {
        self.asked_by = Some(0);
        Invalidation::Settled { parent: self.parent, name: self.name.clone() }
    }
}

impl Core {
    /// Whoever asked for this has its answer: the kernel is done with that.
    pub fn taken_in(&mut self, id: RequestId) {
        self.cache.going.end(|change| change.by == id);
    }

    /// The request whose change an invalidation waits for, if it is not known that the kernel is done with that. Not one that came later, nor one that waits
    /// for more than its outcome: these may be waiting for the invalidation.
    pub fn changer_for(&self, job: u64) -> Option<RequestId> {
        let by = self.cache.going.list.iter().find(|change| change.asked_by == Some(job))?.by;
        match self.parked.get(&by) {
            None | Some(Parked { key: WaitKey::Ship(_), .. }) => Some(by),
            Some(_) => None,
        }
    }

    /// Steps that invalidations need not take, or wait for, any more. Once.
    pub fn take_over(&mut self) -> Vec<Over> {
        std::mem::take(&mut self.cache.going.over)
    }
}

/// The names under which the kernel has something else when it is done with `op`.
fn names_changed(op: &Op) -> [Option<(Ino, &Name)>; 2] {
    match op {
        Op::Create { parent, name, .. }
        | Op::Link { parent, name, .. }
        | Op::Unlink { parent, name, .. }
        | Op::Rmdir { parent, name, .. } => [Some((*parent, name)), None],
        Op::Rename { parent, name, new_parent, new_name, .. } => {
            [Some((*parent, name)), Some((*new_parent, new_name))]
        }
        _ => [None, None],
    }
}

/// More are not remembered: a thread has two at most, until it asks for something else.
const LEN_MAX: usize = 64;
