//! Inodes that another node has moved a moment ago, which this kernel had by the names before: a rename of it that is under way may know them by both
//! names, and would do nothing then.

use meta::{Cookie, Dirent};
use rustc_hash::FxHashMap;
use types::{Ino, Micros};

use crate::core::Core;

/// When they were.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(FxHashMap<Ino, Micros>);

impl Core {
    /// An entry comes from another node: notes whether it says of something the kernel has that it is under another name now.
    pub(crate) fn note_elsewhere(&mut self, parent: Ino, cookie: Cookie, entry: &Dirent) {
        if self.known.get(&entry.ino).is_none_or(|known| known.lookups == 0) {
            return;
        }
        let old = self.cache.dirs.get(&parent).and_then(|dir| dir.entries.get(&cookie));
        if old.is_some_and(|old| old.dirent.ino == entry.ino) {
            return;
        }
        let (now, list) = (self.clock.now, &mut self.elsewhere.0);
        if list.len() >= KEPT_MAX {
            list.retain(|_, at| now.since(*at) <= A_MOMENT);
        }
        if list.len() < KEPT_MAX {
            list.insert(entry.ino, now);
        }
    }

    /// Whether the kernel may have an inode by a name from which another node has moved it.
    pub fn may_have_old_name(&self, ino: Ino) -> bool {
        self.elsewhere.0.get(&ino).is_some_and(|at| self.clock.now.since(*at) <= A_MOMENT)
    }
}

/// A rename may wait between two names, for others and for locks of the kernel.
const A_MOMENT: Micros = Micros(10_000_000);
/// More moved within a moment are not seen to.
const KEPT_MAX: usize = 10_000;
