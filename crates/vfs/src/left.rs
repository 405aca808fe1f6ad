//! Directories that are left to another node.
//!
//! Each change that another node makes in a directory that this one reads waits for this one. Where nobody here uses the directory,
//! the right goes instead: the other node finds itself alone, and works on without a word.

use std::collections::BTreeSet;
use std::ops::Bound;

use meta::{Change, Cookie};
use types::{Ino, LockMode, Micros, ResourceId};

use crate::core::Core;

/// What another node changed last, and whether it goes through a directory in the order of its listing, as who changes all of a tree does:
/// entries lie there by a hash of their names, so two that follow each other were hardly chosen by name.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    last: Option<(Ino, Cookie)>,
    /// Changes in a row, each of the entry after that of the one before.
    length: u32,
}

impl Core {
    /// A directory that others change is busy: its names go out for one use only, until it has been quiet for
    /// a while. Returns those that nobody here uses any more, so that they may be left to who changes them.
    pub(crate) fn note_foreign_changes(
        &mut self,
        directories: BTreeSet<Ino>,
        changes: &[Change],
    ) -> Vec<Ino> {
        let busy_until = self.clock.now + self.config.quiet;
        for ino in &directories {
            if let Some(dir) = self.cache.dirs.get_mut(ino) {
                dir.busy_until = busy_until;
                dir.forgets_unused += 1;
            }
        }
        self.note_sweep(changes);
        let removes_in = |ino: Ino| {
            changes
                .iter()
                .any(|change| matches!(change, Change::DeleteEntry { parent, .. } if *parent == ino))
        };
        directories.into_iter().filter(|ino| self.is_to_be_left(*ino, removes_in(*ino))).collect()
    }

    /// An operation that changes several entries is no step of a sweep.
    fn note_sweep(&mut self, changes: &[Change]) {
        let mut changed = changes.iter().filter_map(|change| match change {
            Change::PutEntry { parent, cookie, .. } | Change::DeleteEntry { parent, cookie, .. } => {
                Some((*parent, *cookie))
            }
            _ => None,
        });
        let Some((dir, cookie)) = changed.next() else { return };
        let is_one = changed.next().is_none();
        let follows = |(of, last): (Ino, Cookie)| {
            let between = (Bound::Excluded(last), Bound::Excluded(cookie));
            let known = self.cache.dirs.get(&dir);
            of == dir && last < cookie && known.is_some_and(|d| d.entries.range(between).next().is_none())
        };
        let length = if is_one && self.cache.sweep.last.is_some_and(follows) {
            self.cache.sweep.length + 1
        } else {
            1
        };
        self.cache.sweep = Sweep { last: is_one.then_some((dir, cookie)), length };
    }

    /// Whether a directory that another node has just changed is to be left to it: after some changes; at once where one removes names that nobody
    /// here has asked for lately, and may remove all; as soon as one is seen to go through all of its entries.
    fn is_to_be_left(&self, ino: Ino, is_removal: bool) -> bool {
        let Some(dir) = self.cache.dirs.get(&ino) else { return false };
        let unused = self.clock.now.since(dir.used_at);
        let is_swept =
            self.cache.sweep.length >= SWEEP_MIN && self.cache.sweep.last.is_some_and(|(of, _)| of == ino);
        let entries_max = if is_swept { CHEAP_ENTRIES_MAX } else { LEFT_ENTRIES_MAX };
        if (is_removal || is_swept) && unused >= LEFT_FOR && self.is_worth_little(ino, entries_max) {
            return true;
        }
        if dir.forgets_unused < FORGETS_UNUSED_MAX {
            return false;
        }
        let has_pages = |ino: Ino| self.known.get(&ino).is_some_and(|known| known.pages_out);
        let is_cheap = dir.entries.len() <= CHEAP_ENTRIES_MAX
            && !dir.entries.values().any(|entry| has_pages(entry.dirent.ino));
        unused >= if is_cheap { CHEAP_UNUSED_FOR } else { UNUSED_FOR }
    }

    /// Gives directories up that nobody has used since they were to be left. Not while the kernel may still have a name that another forget takes
    /// away: of that nothing is here any more, so that the release would not see to it. The next change then leaves the directory.
    pub(crate) fn leave_directories(&mut self, list: &[Ino]) {
        if list.is_empty() || self.jobs.iter().any(|(_, job)| job.purpose.is_forget()) {
            return;
        }
        for ino in list {
            if let Some(dir) = self.cache.dirs.get(ino)
                && self.clock.now.since(dir.used_at) >= CHEAP_UNUSED_FOR
                && let Some(revocation) = self.tokens.start_release(ResourceId::dir(*ino), LockMode::Nl)
            {
                self.start_release(revocation);
            }
        }
    }

    /// Whether a directory costs little to bring again, with what the kernel may have of the content of its files; nor is any of them open.
    fn is_worth_little(&self, ino: Ino, entries_max: usize) -> bool {
        let Some(dir) = self.cache.dirs.get(&ino) else { return false };
        if dir.entries.len() > entries_max {
            return false;
        }
        let mut bytes = 0u64;
        dir.entries.values().all(|entry| {
            let Some(known) = self.known.get(&entry.dirent.ino) else { return true };
            let size =
                entry.dirent.covered().filter(|_| known.pages_out).map_or(0, |inode| inode.content.size);
            bytes = bytes.saturating_add(size);
            !known.is_open() && bytes <= LEFT_BYTES_MAX
        })
    }
}

/// Forgets in a row, without a use of the directory between, after which its token is given back.
const FORGETS_UNUSED_MAX: u32 = 8;
/// And without a use for this long: forgets of one burst say little about who uses the directory.
const UNUSED_FOR: Micros = Micros::from_millis(100);
/// A directory of so few entries, without pages of its files in the kernel, costs little to bring again.
const CHEAP_ENTRIES_MAX: usize = 1000;
const CHEAP_UNUSED_FOR: Micros = Micros::from_millis(10);
/// A directory in which others remove a name is left to them if it was not used for this long, has at most so many entries, and the kernel so many
/// bytes of their content: in a larger one the first few removals count for little.
const LEFT_FOR: Micros = Micros::from_millis(500);
const LEFT_ENTRIES_MAX: usize = 64;
const LEFT_BYTES_MAX: u64 = 1 << 20;
/// Changes in a row of entries that follow each other, after which all are taken to follow: then so is a directory of up to
/// [`CHEAP_ENTRIES_MAX`], whatever changes in it.
const SWEEP_MIN: u32 = 2;
