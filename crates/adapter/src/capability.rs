//! Capabilities of a file that is written.
//!
//! Before a write the kernel asks for the length of `security.capability`, and if there is one removes it, on the writer's
//! thread (`cap_inode_need_killpriv` and `cap_inode_killpriv` in linux:security/commoncap.c). If another node was faster,
//! the write would fail with the removal's ENODATA. So a removal by a thread that has just been told of the capability
//! finds nothing wrong with its absence.

use std::collections::VecDeque;

use parking_lot::Mutex;
use types::Ino;

/// The attribute.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Threads that were told of a capability, and of which file; the last ones.
#[derive(Debug, Default)]
pub(crate) struct Told {
    last: Mutex<VecDeque<(u32, Ino)>>,
}

impl Told {
    /// `thread` is told that `ino` has a capability.
    pub fn note(&self, thread: u32, ino: Ino) {
        let mut last = self.last.lock();
        last.retain(|of| of.0 != thread);
        last.push_back((thread, ino));
        if last.len() > LEN_MAX {
            last.pop_front();
        }
    }

    /// Whether it was the last thing that `thread` was told of a capability. Once.
    pub fn take(&self, thread: u32, ino: Ino) -> bool {
        let mut last = self.last.lock();
        let at = last.iter().position(|of| *of == (thread, ino));
        at.is_some_and(|at| last.remove(at).is_some())
    }
}

/// More threads than this do not write files with capabilities at once.
const LEN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_remembered_once_and_for_one_file() {
        let told = Told::default();
        told.note(1, Ino(5));
        told.note(2, Ino(5));
        assert!(!told.take(1, Ino(6)));
        assert!(told.take(1, Ino(5)));
        assert!(!told.take(1, Ino(5)));
        told.note(2, Ino(7));
        assert!(!told.take(2, Ino(5)));
        for thread in 3..3 + LEN_MAX as u32 {
            told.note(thread, Ino(1));
        }
        assert!(!told.take(2, Ino(7)));
        assert!(told.take(3, Ino(1)));
    }
}
