//! Renames that find one file under both names.
//!
//! A kernel looks both names up before it asks for a rename, and asks for none where it finds the same file: to rename a link of a file to another one of it
//! is to do nothing (`vfs_rename` in linux:fs/namei.c). So it does where another node has renamed the file just so between the two, and the program believes
//! that it was the one who did. Whoever is answered ESTALE at the second name looks once more, at both ([`late`](crate::late)).

use parking_lot::Mutex;
use types::{Ino, Micros};
use vfs::Attr;

use crate::late::NameHash;
use crate::linux;
use crate::refused::{InCall, in_call};
use crate::told::Told;

/// What threads have found last.
#[derive(Debug)]
pub(crate) struct Found {
    slots: Mutex<Box<[Slot]>>,
    /// Who was refused a name: once, for it looks no third time.
    refused: Told<NameHash>,
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
    /// A thread finds an inode under a name. Returns whether it has just found that under another one, or may have by what is known otherwise.
    pub fn note(
        &self,
        thread: u32,
        ino: Ino,
        name: NameHash,
        now: Micros,
        may_have: impl FnOnce() -> bool,
    ) -> bool {
        thread != 0
            && (self.finds_again(thread, ino, name, now) || may_have())
            && self.refused.take(thread, |refused| refused == name).is_none()
    }

    /// A thread is answered that what it looks up by this name is stale.
    pub fn refuse(&self, thread: u32, name: NameHash) {
        self.refused.note(thread, name);
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

/// Whether it is to be seen under one name alone: not a file with several. Of a directory that it has elsewhere the kernel finds that out by itself.
pub(crate) fn has_one_name(attr: &Attr) -> bool {
    attr.kind != meta::FileKind::Directory && attr.nlink == 1
}

/// Whether a thread looks the name up for a rename.
pub(crate) fn is_renaming(thread: u32) -> bool {
    in_call(thread, linux::RENAMING_CALLS) == InCall::It
}

/// A rename may wait in between, for others and for locks of the kernel.
const JUST_NOW: Micros = Micros(10_000_000);
/// Threads that rename at once.
const SLOTS: usize = 256;

#[cfg(test)]
mod tests {
    use vfs::Request;

    use super::*;

    #[test]
    fn a_thread_that_finds_a_file_under_two_names_is_known() {
        let found = Found::default();
        let name = |name: &[u8]| {
            NameHash::of(&Request::Lookup { parent: Ino(1), name: name.into() }).expect("a name")
        };
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
        found.refuse(7, new);
        assert!(!found.note(7, Ino(52), new, at(2), || true), "it looks no third time");
        assert!(found.note(7, Ino(52), new, at(3), || true), "that is another rename");
    }
}
