//! Inodes that another node has moved a moment ago, which this kernel had by the names before: a rename of it that is under way may know them by both
//! names, and would do nothing then.

use meta::{Cookie, Dirent};
use rustc_hash::FxHashMap;
use types::{Ino, Micros};

use crate::core::Core;

/// When they were, and the job that takes the old names back.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(FxHashMap<Ino, (Micros, u64)>);

impl Core {
    /// Whether an entry of another node's says of something the kernel has that it is under another name now.
    pub(crate) fn is_moved(&self, parent: Ino, cookie: Cookie, entry: &Dirent) -> bool {
        let is_known = self.known.get(&entry.ino).is_some_and(|known| known.lookups > 0);
        let old = self.cache.dirs.get(&parent).and_then(|dir| dir.entries.get(&cookie));
        is_known && old.is_none_or(|old| old.dirent.ino != entry.ino)
    }

    /// Notes what has been moved, with the job that takes the old names back.
    pub(crate) fn note_elsewhere(&mut self, moved: &[Ino], job: u64) {
        let (now, list) = (self.clock.now, &mut self.elsewhere.0);
        for ino in moved {
            if list.len() >= KEPT_MAX {
                list.retain(|_, (at, _)| now.since(*at) <= A_MOMENT);
            }
            if list.len() < KEPT_MAX {
                list.insert(*ino, (now, job));
            }
        }
    }

    /// Whether a rename that is under way may have found an inode by a name from which another node has moved it. A rename has the locks of its directories while it
    /// looks up both names, and the one that is taken back waits for them; unless all names ran out at once (`have_run_out`, within the time given), which waits for nobody.
    pub fn may_have_old_name(&self, ino: Ino, have_run_out: impl FnOnce(Micros) -> bool) -> bool {
        let Some((at, job)) = self.elsewhere.0.get(&ino) else { return false };
        let age = self.clock.now.since(*at);
        age <= A_MOMENT && (self.jobs.has(*job) || have_run_out(age))
    }
}

/// A rename may wait between two names, for others and for locks of the kernel.
const A_MOMENT: Micros = Micros(10_000_000);
/// More moved within a moment are not seen to.
const KEPT_MAX: usize = 10_000;
