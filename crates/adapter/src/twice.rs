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

/// A name that a thread was refused, and how far it has come in its second walk, in which it asks for both names, one right after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    name: NameHash,
    at: Micros,
    /// What it was given last that is no directory.
    last: Option<NameHash>,
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
    /// A thread finds a file under a name. Returns whether it has just found that under another one, or may have by what is known otherwise. Not so in
    /// its second walk: then it asks for both names, and is told so once.
    pub fn note(
        &self,
        thread: u32,
        ino: Ino,
        name: NameHash,
        now: Micros,
        may_have: impl FnOnce() -> bool,
    ) -> bool {
        if thread == 0 {
            return false;
        }
        let finds_again = self.finds_again(thread, ino, name, now);
        let refusal = self.refused.of(thread).filter(|refusal| now.since(refusal.at) <= WALKS_WITHIN);
        let Some(refusal) = refusal else { return finds_again || may_have() };
        match refusal.last {
            None => self.refused.note(thread, Refusal { last: Some(name), ..refusal }),
            // That was the second of both.
            Some(_) => self.end_walk(thread),
        }
        finds_again && refusal.name != name
    }

    /// A thread is answered that what it looks up by this name is stale.
    pub fn refuse(&self, thread: u32, name: NameHash, now: Micros) {
        self.refused.note(thread, Refusal { name, at: now, last: None });
    }

    /// A thread goes on to rename, or finds nothing under a name: that was its second walk, if it was one.
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

/// Whether a thread looks the name up for a rename.
pub(crate) fn is_renaming(thread: u32) -> bool {
    in_call(thread, linux::RENAMING_CALLS) == InCall::It
}

/// A rename may wait in between, for others and for locks of the kernel.
const JUST_NOW: Micros = Micros(10_000_000);
/// Longest that a thread takes from the answer that it was refused to the names that it looks up once more.
const WALKS_WITHIN: Micros = Micros(100_000);
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
        let note = |thread, ino, name, ms| found.note(thread, Ino(ino), name, at(ms), || false);
        assert!(!note(7, 50, old, 1));
        assert!(!note(7, 50, old, 2), "the same name");
        assert!(!note(8, 50, new, 3), "another thread");
        assert!(note(7, 50, new, 4));
        assert!(!note(7, 51, old, 5), "another file");
        assert!(!note(7, 51, new, 10_006), "long after");
        assert!(!note(0, 51, new, 1) && !note(0, 51, old, 2), "nobody in sight");
        // What was moved by another.
        assert!(found.note(7, Ino(52), new, at(1), || true));
        found.refuse(7, new, at(1));
        assert!(!found.note(7, Ino(52), new, at(2), || true), "it looks no third time");
        assert!(!found.note(7, Ino(53), old, at(2), || true), "it has asked for both");
        assert!(found.note(7, Ino(52), new, at(3), || true), "that is another rename");
    }

    #[test]
    fn a_second_walk_goes_by_what_it_finds_alone() {
        let found = Found::default();
        let (old, new) = (name(b"old"), name(b"new"));
        let at = Micros::from_millis;
        let note = |ino, name, ms| found.note(7, Ino(ino), name, at(ms), || true);
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
        assert!(note(51, old, 200), "long after");
        // Nothing is under the old name any more.
        found.refuse(7, new, at(200));
        found.end_walk(7);
        assert!(note(52, new, 201));
    }
}
