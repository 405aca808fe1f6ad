//! Calls for a name that wait for the lock of its directory after everybody has given up waiting for them: an epoch did the same without, and the
//! rest of their jobs went on.
//!
//! An epoch does not reach what somebody within that lock has been told and not taken in: a listing gives its names the epoch at which the kernel
//! takes them in, and attributes go to an inode that is made then. When the call returns, that has happened: what the epoch stood for in that
//! directory is taken back once more, which nobody waits for. It keeps no thread from others, and the watchdog does not mind how long it takes: whoever
//! has the lock may wait for memory that comes from elsewhere.

use types::Ino;
use vfs::Invalidation;

use super::{Call, CallKind, Config, Done, Job, State, Step};

impl Call {
    /// Whether somebody waits for it. For pages somebody always may: they are locked.
    pub(super) fn is_waited_for(&self) -> bool {
        self.kind != CallKind::Name || self.job.as_ref().is_some_and(Job::is_waited_for)
    }
}

impl Job {
    /// Whether somebody is told when it is done.
    pub(super) fn is_waited_for(&self) -> bool {
        !matches!(self.done, Done::Call(None))
    }

    /// What is left to do of it that an epoch stands for in one directory, with the attributes that go along with a name.
    fn left_in(&self, parent: Ino) -> Vec<Invalidation> {
        let left = || self.steps.iter().enumerate().skip(self.next);
        let is_there = |step: &Step| name_of(step).is_some_and(|of| of == parent);
        if !left().any(|(_, step)| is_there(step)) {
            return Vec::new();
        }
        let goes_along = |step: &Step| matches!(step, Step::Order(Invalidation::Attr { .. }));
        left()
            .filter(|(at, step)| !self.settled.contains(at) && (is_there(step) || goes_along(step)))
            .filter_map(|(_, step)| match step {
                Step::Order(invalidation) => Some(invalidation.clone()),
                _ => None,
            })
            .collect()
    }
}

impl State {
    /// Whether one more call that may block would leave no thread free. Those that nobody waits for have threads of their own.
    pub(super) fn is_full(&self, workers_max: usize) -> bool {
        let (mut waited_for, mut others) = (0, 0);
        for call in self.blocking_calls() {
            match call.is_waited_for() {
                true => waited_for += 1,
                false => others += 1,
            }
        }
        waited_for + 1 + usize::saturating_sub(others, STUCK_MAX) >= workers_max
    }

    /// How many threads there may be now.
    pub(super) fn workers_max(&self, config: &Config) -> usize {
        let stuck = self.blocking_calls().filter(|call| !call.is_waited_for()).count();
        config.workers_max + stuck.min(STUCK_MAX)
    }

    /// Notes, for a call that is given up now, what is to be taken back again when it returns. Of jobs that an epoch covers.
    pub(super) fn note_left_behind(&mut self, index: usize) {
        let step = self.calls[index].job.as_ref().and_then(|job| job.steps.get(job.next));
        let (Some(parent), Some(Step::Order(own))) = (step.and_then(name_of), step) else { return };
        let jobs = self.calls.iter().filter_map(|call| call.job.as_ref());
        let jobs = jobs.chain(&self.ready).chain(&self.held_up).filter(|job| job.number < self.covered);
        let left = jobs.flat_map(|job| job.left_in(parent)).filter(|left| left != own);
        let left: Vec<Step> = left.map(Step::Order).collect();
        // The first that returns will do for all of them.
        let is_of_same = |call: &Call| call.left_behind.iter().find_map(name_of) == Some(parent);
        let first = self.calls.iter().position(is_of_same).unwrap_or(index);
        let left_behind = &mut self.calls[first].left_behind;
        left_behind.extend(left);
        if left_behind.len() > LEFT_BEHIND_MAX {
            left_behind.retain(|step| name_of(step).is_none());
            left_behind.push(Step::Order(Invalidation::Names {}));
        }
    }

    /// The calls that are given up: stuck, and done by an epoch.
    pub(super) fn given_up(&self, is_overdue: impl Fn(&Call) -> bool) -> Vec<usize> {
        let is_covered = |call: &Call| call.job.as_ref().is_some_and(|job| job.number < self.covered);
        let calls = self.calls.iter().enumerate();
        let stuck =
            calls.filter(|(_, call)| call.kind == CallKind::Name && is_covered(call) && is_overdue(call));
        stuck.map(|(index, _)| index).collect()
    }
}

/// The directory of a name that is taken back.
fn name_of(step: &Step) -> Option<Ino> {
    match step {
        Step::Order(Invalidation::Name { parent, .. } | Invalidation::Unhash { parent, .. }) => Some(*parent),
        _ => None,
    }
}

/// Of more names an epoch is raised once more.
const LEFT_BEHIND_MAX: usize = 4096;
/// So many calls that nobody waits for have threads beside the others.
const STUCK_MAX: usize = 64;
