//! Steps for which there is no need any more: what they wait for is known to have happened.

use std::sync::Arc;

use types::{Ino, Name};
use vfs::{Invalidation, Over, OverStep};

use super::{Call, Done, Job, Shared, State, Step};

impl Job {
    /// What the core knows it by.
    pub(super) fn core_number(&self) -> Option<u64> {
        match self.done {
            Done::Job(number) => Some(number),
            Done::Call(_) | Done::Answer(..) => None,
        }
    }

    /// Whether the core knows it by this number.
    fn is(&self, number: u64) -> bool {
        self.core_number() == Some(number)
    }

    /// These steps need not be taken any more. Whether the next one is among them.
    fn end_steps(&mut self, is_it: impl Fn(&Step) -> bool) -> bool {
        let left = self.steps.iter().enumerate().skip(self.next);
        self.settled.extend(left.filter(|(_, step)| is_it(step)).map(|(at, _)| at));
        self.settled.contains(&self.next)
    }

    fn end_over(&mut self, over: &Over) -> bool {
        self.end_steps(|step| match (over.step, step) {
            (OverStep::Wait, Step::Order(Invalidation::Settled { parent, name }))
            | (
                OverStep::TakeBack,
                Step::Order(Invalidation::Name { parent, name } | Invalidation::Unhash { parent, name }),
            ) => (*parent, name) == (over.parent, &over.name),
            _ => false,
        })
    }
}

impl State {
    /// The job that was just put may have steps that are over already.
    pub(super) fn end_early(&mut self) {
        let Some(job) = self.ready.back_mut().filter(|_| !self.early.is_empty()) else { return };
        self.early.retain(|over| {
            let is_of_job = job.is(over.job);
            if is_of_job {
                job.end_over(over);
            }
            !is_of_job
        });
    }
}

impl Shared {
    /// A name need not be taken back any more, whatever for.
    pub(super) fn end_name(self: &Arc<Self>, parent: Ino, name: &Name) {
        self.free(&mut self.state.lock(), |job| {
            job.end_steps(|step| match step {
                Step::Order(Invalidation::Name { parent: of, name: other }) => (*of, other) == (parent, name),
                _ => false,
            })
        });
    }

    pub(super) fn end_over(self: &Arc<Self>, over: Over) {
        let (mut state, mut is_found) = (self.state.lock(), false);
        self.free(&mut state, |job| {
            let is_it = job.is(over.job);
            is_found |= is_it;
            is_it && job.end_over(&over)
        });
        // The core tells of a job when its lock is free.
        if !is_found {
            if state.early.len() >= EARLY_MAX {
                state.early.pop_front();
            }
            state.early.push_back(over);
        }
    }

    /// Calls `end` for all jobs; where that says so the next step of a job is over, and it goes on. The call that it may be in is left to itself.
    fn free(self: &Arc<Self>, state: &mut State, mut end: impl FnMut(&mut Job) -> bool) {
        for job in &mut state.ready {
            end(job);
        }
        let mut is_freed = |call: &mut Call| call.job.as_mut().is_some_and(&mut end);
        let calls = state.calls.iter_mut();
        let mut freed: Vec<Job> =
            calls.filter_map(|call| if is_freed(call) { call.job.take() } else { None }).collect();
        let held_up = std::mem::take(&mut state.held_up);
        for mut job in held_up {
            match end(&mut job) {
                true => freed.push(job),
                false => state.held_up.push_back(job),
            }
        }
        for job in freed {
            state.ready.push_back(job);
            self.call_worker(state);
        }
    }
}

const EARLY_MAX: usize = 64;
