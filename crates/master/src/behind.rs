//! What waits behind changes that readers have yet to acknowledge.
//!
//! A request for a resource waits until all its readers have taken in what changed. Where changes go on without a pause there is always
//! one that somebody has not, so now and then changes wait for those who have waited for long. Only for a moment: who sends a change may owe
//! one of these acknowledgements, and be unable to give it before the answer, and others may wait for what it cannot do meanwhile. All these pauses
//! end at one time, whatever they are for, so that no chain of them is longer than one.

use std::collections::{BTreeMap, VecDeque};

use meta::Change;
use types::{Micros, NodeId, ResourceId};

use crate::Master;
use crate::ship::told_under;
use crate::state::Task;

/// Tasks that wait for acknowledgements, and changes that wait for those.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// By resource, with when it came; the oldest first.
    waiting: BTreeMap<ResourceId, VecDeque<(Micros, Task)>>,
    put_off: Vec<PutOff>,
}

#[derive(Debug)]
struct PutOff {
    /// Of what somebody waits for.
    resource: ResourceId,
    until: Micros,
    task: Task,
}

impl Behind {
    /// Changes that wait for a pause to end.
    pub fn put_off(&self) -> impl Iterator<Item = &Task> {
        self.put_off.iter().map(|put_off| &put_off.task)
    }

    /// A node has left: nothing is done for it any more.
    pub fn remove(&mut self, node: NodeId) {
        self.waiting.retain(|_, tasks| {
            tasks.retain(|(_, task)| task.node() != Some(node));
            !tasks.is_empty()
        });
        self.put_off.retain(|put_off| put_off.task.node() != Some(node));
    }
}

impl Master {
    /// Puts a task behind the changes of a resource that readers have yet to acknowledge.
    pub(crate) fn wait_behind(&mut self, resource: ResourceId, task: Task) {
        self.behind.waiting.entry(resource).or_default().push_back((self.clock.now, task));
    }

    /// Puts the task off that would make these changes, if a pause is for who waits for what they change; returns it if not. What a node owes is
    /// not kept back: that may be what it needs the answer for.
    pub(crate) fn put_off(&mut self, changes: &[Change], task: Task) -> Option<Task> {
        let pause = |resource| self.pause_of(resource).map(|until| (resource, until));
        let Some((resource, until)) = changes.iter().filter_map(told_under).find_map(pause) else {
            return Some(task);
        };
        let is_owed = |node| changes.iter().filter_map(told_under).any(|of| self.table.is_owed(node, of));
        if self.in_turn.is_some() || task.node().is_some_and(is_owed) {
            return Some(task);
        }
        self.behind.put_off.push(PutOff { resource, until, task });
        None
    }

    /// Until when changes of a resource wait, for those who wait for it or were just let in; and behind others that wait so.
    fn pause_of(&self, resource: ResourceId) -> Option<Micros> {
        let others = self.behind.put_off.iter().filter(|put_off| put_off.resource == resource);
        if let Some(until) = others.map(|put_off| put_off.until).max() {
            return Some(until);
        }
        let (since, _) = self.behind.waiting.get(&resource)?.front()?;
        let ends = pause_at(self.clock.now, PAUSE.min(Micros(self.config.lease.0 / LEASE_PARTS)))?;
        (self.clock.now.since(*since) >= PATIENCE).then_some(ends)
    }

    /// All readers have taken in what changed of a resource: who waited is served, which may take him a round trip more.
    pub(crate) fn let_in(&mut self, resource: ResourceId) {
        let waiting = self.behind.waiting.remove(&resource).unwrap_or_default();
        self.tasks.extend(waiting.into_iter().map(|(_, task)| task));
        let soon = self.clock.now + SERVED_WITHIN;
        for put_off in self.behind.put_off.iter_mut().filter(|put_off| put_off.resource == resource) {
            put_off.until = put_off.until.min(soon);
        }
    }

    /// When [`end_pause`](Self::end_pause) is next needed.
    pub(crate) fn pause_due(&self) -> Micros {
        self.behind.put_off.iter().map(|put_off| put_off.until).min().unwrap_or(Micros::NEVER)
    }

    /// Goes on with what was put off until now.
    pub(crate) fn end_pause(&mut self) {
        let now = self.clock.now;
        if self.pause_due() <= now {
            let due = self.behind.put_off.extract_if(.., |put_off| put_off.until <= now);
            self.tasks.extend(due.map(|put_off| put_off.task));
        }
    }
}

/// When the pause of this length ends that there is at this time, if there is one.
fn pause_at(now: Micros, pause: Micros) -> Option<Micros> {
    let ends = Micros(now.0 - now.0 % PAUSES_EVERY.0 + pause.0);
    (now < ends).then_some(ends)
}

/// As long as a change is acknowledged within as a rule.
const PATIENCE: Micros = Micros::from_millis(20);
const PAUSE: Micros = Micros::from_millis(100);
/// A pause is short beside a lease, which is lost by who does not acknowledge.
const LEASE_PARTS: u64 = 10;
/// Often enough for who waits, and seldom enough for what is put off in vain.
const PAUSES_EVERY: Micros = Micros::from_millis(500);
/// What another node has to be asked for, as the newest size of a file, is here by then.
const SERVED_WITHIN: Micros = Micros::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_together_and_end() {
        let at = |millis| pause_at(Micros::from_millis(millis), PAUSE);
        assert_eq!(at(1000), Some(Micros::from_millis(1100)));
        assert_eq!(at(1099), Some(Micros::from_millis(1100)));
        assert_eq!(at(1100), None);
        assert_eq!(at(1499), None);
        assert!(at(1500).is_some());
    }
}
