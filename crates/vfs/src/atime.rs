//! Access times: kept in memory beside the records, and written when something else is.
//!
//! Invariants:
//!
//! - A newer access time here costs no token: it is noted under whatever right the read had.
//! - It is logged only under EX on the content: with the next change of the inode, when EX is given back, at an
//!   fsync, or after [`crate::Config::atime_interval`]. Under PR it stays with this node, as long as the kernel
//!   knows the inode.
//! - It is laid over the record that it was noted for and no other: so a time that somebody sets, here or
//!   elsewhere, takes its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use meta::{Change, Child, Content, Dirent};
use types::{Ino, LockMode, Micros, ResourceId, ResourceKind, Timespec};

use crate::cache::Place;
use crate::core::Core;
use crate::jobs::Purpose;
use crate::outputs::Invalidation;

/// When reading changes access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Never,
    /// When it is not later than the last change, or older than a day.
    #[default]
    Relative,
    /// At each read that reaches this process.
    Strict,
}

/// Access times newer than the records.
#[derive(Debug)]
pub(crate) struct Atimes {
    pub noted: BTreeMap<Ino, Access>,
    /// When they are to be logged.
    pub due: Micros,
    /// From which inode on.
    pub next: Ino,
}

impl Default for Atimes {
    fn default() -> Self {
        Self { noted: BTreeMap::new(), due: Micros::NEVER, next: Ino(0) }
    }
}

/// An access time newer than the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub atime: Timespec,
    /// Access time and last change of the record that it is laid over.
    base: (Timespec, Timespec),
    /// The access time that was seen until then, perhaps one that was set and not logged.
    seen: Timespec,
}

impl Access {
    /// Whether it is to be shown in place of what is logged.
    pub fn is_over(&self, logged: &Content) -> bool {
        self.base == (logged.atime, logged.ctime)
    }
}

/// What a read looks at to decide.
#[derive(Clone, Copy, Debug)]
struct Times {
    atime: Timespec,
    mtime: Timespec,
    ctime: Timespec,
}

impl Atime {
    /// Whether a read at `now` is to be noted. Source: `relatime_need_update` in linux:fs/inode.c.
    fn wants(self, times: Times, now: Timespec) -> bool {
        match self {
            Self::Never => false,
            Self::Strict => times.atime != now,
            Self::Relative => {
                let is_read_since = times.atime > times.mtime && times.atime > times.ctime;
                !is_read_since || now.secs.saturating_sub(times.atime.secs) >= DAY_SECS
            }
        }
    }
}

impl Core {
    /// Notes that a file or a link was read.
    pub(crate) fn note_read(&mut self, ino: Ino) {
        self.note_access(ino, self.config.atime);
    }

    /// Notes that a directory was listed.
    pub(crate) fn note_listed(&mut self, ino: Ino) {
        if self.config.diratime {
            self.note_access(ino, self.config.atime);
        }
    }

    /// Notes that a file was copied from. That changes nothing of what the kernel has of it, which is taken back.
    pub(crate) fn note_copied(&mut self, ino: Ino) {
        if self.note_access(ino, self.config.atime) {
            self.invalidate(Purpose::Alone, vec![Invalidation::Attr { ino }], Vec::new());
        }
    }

    /// Returns whether there is a new time.
    fn note_access(&mut self, ino: Ino, policy: Atime) -> bool {
        if policy == Atime::Never || self.config.read_only {
            return false;
        }
        let now = self.clock.wall;
        let Some((times, base)) = self.times_of(ino) else { return false };
        if !policy.wants(times, now) {
            return false;
        }
        self.cache.atimes.noted.insert(ino, Access { atime: now, base, seen: times.atime });
        if self.cache.atimes.due == Micros::NEVER && self.may_log_atime(ino) {
            self.cache.atimes.due = self.clock.now + self.config.atime_interval;
        }
        true
    }

    /// Times as they are seen here, and those of the record; `None` where no record is.
    fn times_of(&self, ino: Ino) -> Option<(Times, (Timespec, Timespec))> {
        let content = self.logged_content(ino)?;
        let base = (content.atime, content.ctime);
        let mut times = Times { atime: content.atime, mtime: content.mtime, ctime: content.ctime };
        if let Some(live) = self.live.get(&ino) {
            times = Times { atime: live.atime, mtime: live.mtime, ctime: live.ctime };
        }
        if let Some(access) = self.cache.atimes.noted.get(&ino).filter(|access| access.base == base) {
            times.atime = access.atime;
        }
        times.ctime = times.ctime.max(self.names_ctime(ino).unwrap_or_default());
        Some((times, base))
    }

    /// Last change of the names' half.
    fn names_ctime(&self, ino: Ino) -> Option<Timespec> {
        match self.place(ino) {
            Place::Covered(parent, cookie) => {
                let entry = self.cache.dirs.get(&parent)?.entries.get(&cookie)?;
                entry.dirent.covered().map(|inode| inode.attr.ctime)
            }
            Place::Own => match self.cache.dirs.get(&ino) {
                Some(dir) => Some(dir.inode.attr.ctime),
                None => self.cache.owns.get(&ino)?.attr.as_ref().map(|attr| attr.ctime),
            },
            Place::Unknown => None,
        }
    }

    /// The access time that goes into what is about to be logged of an inode.
    pub(crate) fn carry_atime(&mut self, change: &mut Change) {
        if self.cache.atimes.noted.is_empty() {
            return;
        }
        let (ino, content): (Ino, &mut Content) = match change {
            Change::PutEntry { entry: Dirent { ino, child: Child::Covered { inode }, .. }, .. } => {
                (*ino, &mut Arc::make_mut(inode).content)
            }
            Change::PutContent { ino, content } => (*ino, content),
            Change::PutDirectory { ino, inode } => (*ino, &mut inode.content),
            Change::PutEntry { .. }
            | Change::DeleteEntry { .. }
            | Change::PutPlacement { .. }
            | Change::PutAttr { .. }
            | Change::DeleteInode { .. }
            | Change::DeleteContent { .. }
            | Change::PutExtentPage { .. }
            | Change::DeleteExtentPages { .. }
            | Change::PutXattrs { .. }
            | Change::PutOrphan { .. }
            | Change::DeleteOrphan { .. }
            | Change::AddUsage { .. }
            | Change::AddLive { .. }
            | Change::PutRedo { .. }
            | Change::DeleteRedo { .. }
            | Change::Owner { .. } => return,
        };
        if let Some(access) = self.cache.atimes.noted.remove(&ino)
            && (access.base.0 == content.atime || access.seen == content.atime)
        {
            content.atime = access.atime;
            // What was changed since the capture stays over the record, and is shown in its place.
            if let Some(live) = self.live.get_mut(&ino) {
                live.atime = access.atime;
            }
        }
    }

    /// Logs access times of these inodes, as far as EX allows; the rest stays in memory.
    pub(crate) fn log_atimes(&mut self, inos: &[Ino]) {
        for ino in inos {
            if self.cache.atimes.noted.contains_key(ino)
                && self.may_log_atime(*ino)
                && let Some(change) = self.unchanged(*ino)
            {
                self.apply_local(vec![change]);
                if self.log.is_full() {
                    self.send_batch(false);
                }
            }
        }
    }

    /// Inodes with newer access times under a resource that is being given back, in order.
    pub(crate) fn atimes_under(&self, resource: ResourceId) -> Vec<Ino> {
        if self.cache.atimes.noted.is_empty() {
            return Vec::new();
        }
        let noted = &self.cache.atimes.noted;
        let own = Some(resource.ino).filter(|ino| noted.contains_key(ino));
        let Some(dir) = self.cache.dirs.get(&resource.ino).filter(|_| resource.kind == ResourceKind::Dir)
        else {
            return own.into_iter().collect();
        };
        let mut inos: Vec<Ino> = match dir.entries.len() < noted.len() {
            true => dir.entries.values().map(|entry| entry.dirent.ino).collect(),
            false => noted.keys().copied().collect(),
        };
        let is_covered =
            |ino: &Ino| matches!(self.place(*ino), Place::Covered(parent, _) if parent == resource.ino);
        inos.retain(|ino| noted.contains_key(ino) && is_covered(ino));
        inos.extend(own);
        inos.sort_unstable();
        inos.dedup();
        inos
    }

    /// The time has come to log what reads left behind, a part at a time.
    pub(crate) fn log_due_atimes(&mut self) {
        if self.cache.atimes.due > self.clock.now {
            return;
        }
        if self.log.bytes() > self.config.log_bytes_max / 2 {
            self.cache.atimes.due = self.clock.now + self.config.commit_interval;
            return;
        }
        let is_done = self.log_atimes_part();
        self.cache.atimes.due = if is_done { Micros::NEVER } else { self.clock.now + PAUSE };
    }

    /// Logs everything before leaving. Returns whether it is done: else once more when the log has room.
    pub(crate) fn log_last_atimes(&mut self) -> bool {
        while self.log.bytes() <= self.config.log_bytes_max / 2 {
            if self.log_atimes_part() {
                return true;
            }
        }
        false
    }

    /// Returns whether that was the last part.
    fn log_atimes_part(&mut self) -> bool {
        let part: Vec<Ino> =
            self.cache.atimes.noted.range(self.cache.atimes.next..).take(PART).map(|(ino, _)| *ino).collect();
        self.log_atimes(&part);
        match part.last() {
            Some(last) if part.len() == PART => {
                self.cache.atimes.next = Ino(last.0.saturating_add(1));
                false
            }
            Some(_) | None => {
                self.cache.atimes.next = Ino(0);
                true
            }
        }
    }

    /// Whether the record of `ino` may be changed here, being given back included.
    fn may_log_atime(&self, ino: Ino) -> bool {
        let (resource, names) = match self.place(ino) {
            Place::Covered(parent, _) => (ResourceId::dir(parent), parent),
            Place::Own if self.cache.dirs.contains_key(&ino) => (ResourceId::dir(ino), ino),
            Place::Own => (ResourceId::file(ino), ino),
            Place::Unknown => return false,
        };
        // What the master changes right now is not written over.
        self.tokens.held(resource) == LockMode::Ex
            && !self.frozen.contains_key(&names)
            && !self.removing.contains_key(&ino)
    }

    /// The content of an inode as logged.
    fn logged_content(&self, ino: Ino) -> Option<&Content> {
        match self.place(ino) {
            Place::Covered(parent, cookie) => {
                let entry = self.cache.dirs.get(&parent)?.entries.get(&cookie)?;
                Some(&entry.dirent.covered().filter(|_| entry.dirent.ino == ino)?.content)
            }
            Place::Own => match self.cache.dirs.get(&ino) {
                Some(dir) => Some(&dir.inode.content),
                None => self.cache.owns.get(&ino)?.content.as_ref(),
            },
            Place::Unknown => None,
        }
    }

    /// The record of an inode as it is, to be logged with another access time.
    fn unchanged(&self, ino: Ino) -> Option<Change> {
        match self.place(ino) {
            Place::Covered(parent, cookie) => {
                let entry = self.cache.dirs.get(&parent)?.entries.get(&cookie)?;
                let dirent = entry.dirent.clone();
                (dirent.ino == ino).then_some(Change::PutEntry { parent, cookie, entry: dirent })
            }
            Place::Own => match self.cache.dirs.get(&ino) {
                Some(dir) => Some(Change::PutDirectory { ino, inode: Box::new(dir.inode.clone()) }),
                None => {
                    let content = self.cache.owns.get(&ino)?.content.clone()?;
                    Some(Change::PutContent { ino, content })
                }
            },
            Place::Unknown => None,
        }
    }
}

const DAY_SECS: i64 = 24 * 60 * 60;
/// Access times logged in one go: requests wait meanwhile.
const PART: usize = 4096;
/// Between two parts.
const PAUSE: Micros = Micros::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timespec {
        Timespec { secs, nanos: 5 }
    }

    #[test]
    fn relatime_follows_changes_and_the_day() {
        let now = at(1_000_000);
        let times = |atime, mtime, ctime| Times { atime: at(atime), mtime: at(mtime), ctime: at(ctime) };
        for (times, expected) in [
            (times(900, 900, 900), true),
            (times(999_000, 998_999, 998_999), false),
            (times(999_000, 999_000, 1), true),
            (times(999_000, 1, 999_000), true),
            (times(1_000_000 - DAY_SECS, 1, 1), true),
            (times(1_000_001 - DAY_SECS, 1, 1), false),
            // A time in the future is older than a day on no day.
            (times(2_000_000, 1, 1), false),
            (times(2_000_000, 3_000_000, 1), true),
        ] {
            assert_eq!(Atime::Relative.wants(times, now), expected, "{times:?}");
            assert!(Atime::Strict.wants(times, now));
            assert!(!Atime::Never.wants(times, now));
        }
    }
}
