//! Renames that find one file under both names.
//!
//! A kernel looks both names up before it asks for a rename, and asks for none where it finds the same file: to rename a link of a file to another one of it
//! is to do nothing (`vfs_rename` in linux:fs/namei.c). So it does where another node has renamed the file just so between the two, and the program believes
//! that it was the one who did. Whoever is answered ESTALE at the second name looks once more, at both ([`late`](crate::late)).

use parking_lot::Mutex;
use types::{Ino, Micros};

use crate::late::NameHash;
use crate::linux;
use crate::refused::{InCall, in_call};
use crate::told::Told;

/// What threads have found last.
#[derive(Debug)]
pub(crate) struct Found {
    slots: Mutex<Box<[Slot]>>,
    /// Who was refused a name: once, for it looks no third time.
    refused: Told<Refusal>,
}

/// A name that a thread was refused, and how far it has come in its second walk, in which it asks for both names, one right after the other; for one a second
/// time where its kernel had something else under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    name: NameHash,
    /// When it was last answered.
    at: Micros,
    asked: Asked,
}

/// For what a thread has asked in its second walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    One(Times),
    Both(Times),
}

/// A name, whether it was asked for again, and whether anything was under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    name: NameHash,
    is_again: bool,
    is_there: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// 0: nobody.
    thread: u32,
    ino: u64,
    name: Option<NameHash>,
    at: Micros,
}

impl Default for Found {
    fn default() -> Self {
        Self { slots: Mutex::new(vec![Slot::default(); SLOTS].into()), refused: Told::default() }
    }
}

impl Found {
    /// A thread finds a file under a name that it has asked for at a time. Returns whether it has just found that under another one, or may have by what is
    /// known otherwise. Not so in its second walk: then it asks for both names, and is told so once.
    pub fn note(
        &self,
        thread: u32,
        ino: Ino,
        name: NameHash,
        (asked, now): (Micros, Micros),
        may_have: impl FnOnce() -> bool,
    ) -> bool {
        if thread == 0 {
            return false;
        }
        let finds_again = self.finds_again(thread, ino, name, now);
        match self.walk_on(thread, name, true, (asked, now)) {
            Some(refused) => finds_again && refused != name,
            None => finds_again || may_have(),
        }
    }

    /// A thread is answered that what it looks up by this name is stale.
    pub fn refuse(&self, thread: u32, name: NameHash, now: Micros) {
        self.refused.note(thread, Refusal { name, at: now, asked: Asked::Nothing });
    }

    /// A thread finds nothing under a name. It asks for that once more where its kernel had something there.
    pub fn note_nothing(&self, thread: u32, name: NameHash, (asked, now): (Micros, Micros)) {
        self.walk_on(thread, name, false, (asked, now));
    }

    /// Notes a name that a thread has asked for as part of its second walk, or that this is over. Returns which name it was refused before that.
    fn walk_on(
        &self,
        thread: u32,
        name: NameHash,
        is_there: bool,
        (asked, now): (Micros, Micros),
    ) -> Option<NameHash> {
        let refusal = self.refused.of(thread)?;
        let then = refusal.asked.then(name, is_there);
        let Some(then) = then.filter(|_| asked.since(refusal.at) <= WALKS_WITHIN) else {
            self.end_walk(thread);
            return None;
        };
        self.refused.note(thread, Refusal { at: now, asked: then, ..refusal });
        Some(refusal.name)
    }

    /// A thread asks for what is no part of a walk: that was its second one, if it was one.
    pub fn end_walk(&self, thread: u32) {
        self.refused.take(thread, |_| true);
    }

    /// A thread has renamed: what it found for that is over.
    pub fn renamed(&self, thread: u32) {
        self.end_walk(thread);
        let slot = &mut self.slots.lock()[thread as usize % SLOTS];
        if slot.thread == thread {
            *slot = Slot::default();
        }
    }

    fn finds_again(&self, thread: u32, ino: Ino, name: NameHash, now: Micros) -> bool {
        let slot = &mut self.slots.lock()[thread as usize % SLOTS];
        let found = Slot { thread, ino: ino.0, name: Some(name), at: now };
        let before = std::mem::replace(slot, found);
        (before.thread, before.ino) == (thread, ino.0)
            && before.name != Some(name)
            && now.since(before.at) <= JUST_NOW
    }
}

impl Asked {
    /// With one more, if it can be part of the same walk: which ends where nothing is under the first.
    fn then(self, name: NameHash, is_there: bool) -> Option<Self> {
        let once = Times { name, is_again: false, is_there };
        let again = |before: Times| (!before.is_again).then_some(Times { is_again: true, ..once });
        match self {
            Self::Nothing => Some(Self::One(once)),
            Self::One(before) if before.name == name => again(before).map(Self::One),
            Self::One(before) => before.is_there.then_some(Self::Both(once)),
            Self::Both(before) if before.name == name => again(before).map(Self::Both),
            Self::Both(_) => None,
        }
    }
}

/// Whether a thread looks the name up for a rename.
pub(crate) fn is_renaming(thread: u32) -> bool {
    in_call(thread, linux::RENAMING_CALLS) == InCall::It
}

/// A rename may wait in between, for others and for locks of the kernel.
const JUST_NOW: Micros = Micros(10_000_000);
/// Longest that a thread takes from the answer that it was refused to the names that it looks up once more, from one answer to the next question: it waits
/// for the same. Whatever does not lead along a path is no part of that walk.
const WALKS_WITHIN: Micros = JUST_NOW;
/// Threads that rename at once.
const SLOTS: usize = 256;

#[cfg(test)]
mod tests {
    use vfs::Request;

    use super::*;

    fn name(name: &[u8]) -> NameHash {
        NameHash::of(&Request::Lookup { parent: Ino(1), name: name.into() }).expect("a name")
    }

    #[test]
    fn a_thread_that_finds_a_file_under_two_names_is_known() {
        let found = Found::default();
        let (old, new) = (name(b"old"), name(b"new"));
        let at = Micros::from_millis;
        let note = |thread, ino, name, ms| found.note(thread, Ino(ino), name, (at(ms), at(ms)), || false);
        assert!(!note(7, 50, old, 1));
        assert!(!note(7, 50, old, 2), "the same name");
        assert!(!note(8, 50, new, 3), "another thread");
        assert!(note(7, 50, new, 4));
        assert!(!note(7, 51, old, 5), "another file");
        assert!(!note(7, 51, new, 10_006), "long after");
        assert!(!note(0, 51, new, 1) && !note(0, 51, old, 2), "nobody in sight");
        // What was moved by another.
        assert!(found.note(7, Ino(52), new, (at(1), at(1)), || true));
        found.refuse(7, new, at(1));
        assert!(!found.note(7, Ino(52), new, (at(2), at(2)), || true), "it looks no third time");
        assert!(!found.note(7, Ino(53), old, (at(2), at(2)), || true), "it has asked for both");
        assert!(found.note(7, Ino(52), new, (at(3), at(3)), || true), "that is another rename");
    }

    #[test]
    fn a_second_walk_goes_by_what_it_finds_alone() {
        let found = Found::default();
        let (old, new) = (name(b"old"), name(b"new"));
        let at = Micros::from_millis;
        let note = |ino, name, ms| found.note(7, Ino(ino), name, (at(ms), at(ms)), || true);
        // Both were moved by another, and are two.
        assert!(note(50, old, 1));
        found.refuse(7, old, at(1));
        assert!(!note(50, old, 2));
        found.refuse(7, old, at(2));
        assert!(!note(51, new, 3), "it has asked for both");
        found.renamed(7);
        assert!(note(51, new, 4), "that is another rename");
        // They are one.
        found.refuse(7, new, at(4));
        found.renamed(8);
        assert!(!note(50, old, 5) && !note(50, new, 6), "it was refused that");
        assert!(note(51, old, 7), "that is another rename");
        found.refuse(7, new, at(7));
        assert!(note(51, old, 10_008), "long after");
        // What its kernel had under the name was something else: it asks again.
        found.refuse(7, new, at(100));
        assert!(!note(50, old, 101) && !note(50, old, 102), "it was refused that");
        assert!(!note(51, new, 103) && !note(52, new, 104), "it was refused that");
        assert!(note(52, new, 105), "that is another rename");
        found.refuse(7, new, at(106));
        assert!(!note(50, old, 107) && !note(51, new, 108), "it was refused that");
        assert!(note(50, old, 109), "that is another rename");
        // It waits for each answer.
        found.refuse(7, new, at(100));
        assert!(!found.note(7, Ino(50), old, (at(9_000), at(18_000)), || true), "it was refused that");
        assert!(!found.note(7, Ino(51), new, (at(27_000), at(36_000)), || true), "it was refused that");
        // Nothing is under the old name any more.
        found.refuse(7, new, at(200));
        found.note_nothing(7, old, (at(201), at(201)));
        assert!(note(52, new, 202));
        // But then there is, or under the new one.
        found.refuse(7, new, at(300));
        found.note_nothing(7, old, (at(301), at(301)));
        assert!(!note(50, old, 302));
        found.note_nothing(7, new, (at(303), at(303)));
        assert!(!note(51, new, 304), "it was refused that");
        assert!(note(51, new, 305), "that is another rename");
    }
}
