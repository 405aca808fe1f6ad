//! What waits behind changes that readers have yet to acknowledge.
//!
//! A request for a resource waits until all its readers have taken in what changed. Where changes go on without a pause there is always
//! one that somebody has not, so now and then changes wait for those who have waited for long. Only for a moment: who sends a change may owe
//! one of these acknowledgements, and be unable to give it before the answer, and others may wait for what it cannot do meanwhile. All these pauses
//! end at one time, whatever they are for, so that no chain of them is longer than one.

use std::collections::{BTreeMap, VecDeque};

use types::{Micros, ResourceId};

use crate::Master;
use crate::state::Task;

/// Tasks that wait for acknowledgements, and changes that wait for those.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// By resource, with when it came; the oldest first.
    waiting: BTreeMap<ResourceId, VecDeque<(Micros, Task)>>,
    put_off: Vec<(ResourceId, Task)>,
    put_off_until: Micros,
}

impl Master {
    /// Puts a task behind the changes of a resource that readers have yet to acknowledge.
    pub(crate) fn wait_behind(&mut self, resource: ResourceId, task: Task) {
        self.behind.waiting.entry(resource).or_default().push_back((self.clock.now, task));
    }

    /// Until when changes of a resource wait for those who wait for it.
    pub(crate) fn pause_of(&self, resource: ResourceId) -> Option<Micros> {
        let (since, _) = self.behind.waiting.get(&resource)?.front()?;
        let ends = pause_at(self.clock.now)?;
        (self.clock.now.since(*since) >= PATIENCE).then_some(ends)
    }

    /// Puts a change of a resource off until a [pause](Self::pause_of) ends, or those are served for whom it is.
    pub(crate) fn put_off(&mut self, resource: ResourceId, until: Micros, task: Task) {
        self.behind.put_off.push((resource, task));
        self.behind.put_off_until = until;
    }

    /// All readers have taken in what changed of a resource.
    pub(crate) fn let_in(&mut self, resource: ResourceId) {
        let waiting = self.behind.waiting.remove(&resource).unwrap_or_default();
        self.tasks.extend(waiting.into_iter().map(|(_, task)| task));
        let put_off = self.behind.put_off.extract_if(.., |(of, _)| *of == resource);
        self.tasks.extend(put_off.map(|(_, task)| task));
    }

    /// When [`end_pause`](Self::end_pause) is next needed.
    pub(crate) fn pause_due(&self) -> Micros {
        if self.behind.put_off.is_empty() { Micros::NEVER } else { self.behind.put_off_until }
    }

    /// Goes on with what was put off, if that is over.
    pub(crate) fn end_pause(&mut self) {
        if self.pause_due() <= self.clock.now {
            self.tasks.extend(self.behind.put_off.drain(..).map(|(_, task)| task));
        }
    }
}

/// When the pause ends that there is at this time, if there is one.
fn pause_at(now: Micros) -> Option<Micros> {
    let ends = Micros(now.0 - now.0 % PAUSES_EVERY.0 + PAUSE.0);
    (now < ends).then_some(ends)
}

/// As long as a change is acknowledged within as a rule.
const PATIENCE: Micros = Micros::from_millis(20);
/// Short beside a lease, which is lost by who does not acknowledge.
const PAUSE: Micros = Micros::from_millis(100);
/// Often enough for who waits, and seldom enough for what is put off in vain.
const PAUSES_EVERY: Micros = Micros::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_together_and_end() {
        assert_eq!(pause_at(Micros::from_millis(1000)), Some(Micros::from_millis(1100)));
        assert_eq!(pause_at(Micros::from_millis(1099)), Some(Micros::from_millis(1100)));
        assert_eq!(pause_at(Micros::from_millis(1100)), None);
        assert_eq!(pause_at(Micros::from_millis(1499)), None);
        assert!(pause_at(Micros::from_millis(1500)).is_some());
    }
}
