//! What processes were told of names that all of them use: nobody is told what was over before he asked.
//!
//! For each name its changes and what was seen of it, with the moments of their beginnings and ends. Whoever sees a name must
//! see what some change made of it that nothing undid since: no other change may have begun after that one had ended
//! and have ended before he began. While a change is under way either may be seen (docs/semantics.md, "A change
//! that is under way").

use std::collections::BTreeMap;

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Absent,
    /// Some inode's.
    Present,
    Inode(u64),
}

impl Seen {
    /// Whether who was told `self` may have met what was made so.
    fn is_of(self, made: Self) -> bool {
        match (made, self) {
            (Self::Absent, Self::Absent) => true,
            (Self::Absent, _) | (_, Self::Absent) => false,
            (Self::Inode(made), Self::Inode(seen)) => made == seen,
            (Self::Present, _) | (_, Self::Present) => true,
        }
    }
}

/// Something that was done with a name.
#[derive(Clone, Debug)]
struct Event {
    #[expect(dead_code, reason = "told with a fault")]
    process: usize,
    began: u64,
    /// `None` while it goes on, and for what may have changed nothing.
    ended: Option<u64>,
    saw: Option<Seen>,
    made: Option<Seen>,
}

/// A name: its directory's inode, and itself.
pub type Name = (u64, Vec<u8>);

/// An event that goes on.
#[derive(Debug)]
pub struct Begun {
    name: Name,
    at: usize,
}

/// All names.
#[derive(Debug, Default)]
pub struct SharedNames {
    now: u64,
    events: BTreeMap<Name, Vec<Event>>,
}

impl SharedNames {
    /// Something begins that may make `made` of a name.
    pub fn begin(&mut self, process: usize, name: Name, made: Option<Seen>) -> Begun {
        self.now += 1;
        let events = self.events.entry(name.clone()).or_default();
        events.push(Event { process, began: self.now, ended: None, saw: None, made });
        Begun { name, at: events.len() - 1 }
    }

    /// It has ended: what it met, and what it made, if it did.
    pub fn end(&mut self, begun: &Begun, saw: Option<Seen>, made: Option<Seen>) {
        self.now += 1;
        let now = self.now;
        self.edit(begun, |event| (event.ended, event.saw, event.made) = (Some(now), saw, made));
    }

    /// It has ended, and may have changed nothing: a rename of a name to another one of the same inode.
    pub fn end_perhaps(&mut self, begun: &Begun, saw: Option<Seen>) {
        self.edit(begun, |event| event.saw = saw);
    }

    fn edit(&mut self, begun: &Begun, edit: impl FnOnce(&mut Event)) {
        if let Some(event) = self.events.get_mut(&begun.name).and_then(|events| events.get_mut(begun.at)) {
            edit(event);
        }
    }

    /// How many sights were judged, and those that nothing explains.
    pub fn judge(&self) -> (usize, Vec<String>) {
        let (mut sights, mut faults) = (0, Vec::new());
        for ((dir, name), events) in &self.events {
            for (at, event) in events.iter().enumerate() {
                let Some(saw) = event.saw else { continue };
                sights += 1;
                if !is_explained(events, at, saw) {
                    let name = String::from_utf8_lossy(name);
                    faults.push(format!("{dir}/{name}: nothing explains {event:?} among {events:?}"));
                }
            }
        }
        (sights, faults)
    }
}

/// Whether what the event at `at` saw is what something made that was not undone before it began.
fn is_explained(events: &[Event], at: usize, saw: Seen) -> bool {
    let event = &events[at];
    let changes = || events.iter().enumerate().filter(|(of, e)| *of != at && e.made.is_some());
    let is_undone = |ended: u64| {
        changes().any(|(_, e)| e.began > ended && e.ended.is_some_and(|ended| ended < event.began))
    };
    let may_be = |(_, e): (usize, &Event)| {
        e.made.is_some_and(|made| saw.is_of(made))
            && event.ended.is_none_or(|ended| e.began < ended)
            && !e.ended.is_some_and(is_undone)
    };
    // Before the first change there was no such name.
    saw == Seen::Absent && !is_undone(0) || changes().any(may_be)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        (1, b"x".to_vec())
    }

    #[test]
    fn what_was_over_before_is_a_fault_and_what_is_under_way_is_none() {
        let mut names = SharedNames::default();
        let look = |names: &mut SharedNames, saw| {
            let begun = names.begin(0, name(), None);
            names.end(&begun, Some(saw), None);
        };
        look(&mut names, Seen::Absent);
        let made = names.begin(1, name(), Some(Seen::Present));
        look(&mut names, Seen::Inode(7));
        look(&mut names, Seen::Absent);
        names.end(&made, Some(Seen::Absent), Some(Seen::Inode(7)));
        look(&mut names, Seen::Inode(7));
        let removed = names.begin(2, name(), Some(Seen::Absent));
        names.end(&removed, Some(Seen::Present), Some(Seen::Absent));
        look(&mut names, Seen::Absent);
        assert_eq!(names.judge(), (7, Vec::new()));

        look(&mut names, Seen::Inode(7));
        assert_eq!(names.judge().1.len(), 1, "it was removed before");
        let perhaps = names.begin(2, name(), Some(Seen::Present));
        names.end_perhaps(&perhaps, None);
        look(&mut names, Seen::Inode(7));
        look(&mut names, Seen::Absent);
        assert_eq!(names.judge().1.len(), 1);
    }
}
