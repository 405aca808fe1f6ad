//! Directories that several nodes change all the time: they take turns ([RFC 0014](../../../docs/rfcs/0014-turns.md)).
//!
//! A directory that the master asks back as a whole is kept aside as it was, without a right. With the next grant comes what has
//! changed since.

use meta::{Change, Cookie, Inode};
use rustc_hash::FxHashSet;
use types::{Ino, LockMode, Micros, ResourceId, ResourceKind};

use crate::cache::{CachedEntry, DirCache, Place};
use crate::core::Core;
use crate::known::Known;
use crate::request::{Entry, Keep};
use crate::wait::{Progress, WaitKey};

impl Core {
    /// Keeps a directory aside that is given back. The kernel has nothing of it any more, but for pages that were read again and again
    /// while they were taken back.
    pub(crate) fn set_aside(&mut self, ino: Ino) {
        // Of a file that is moved out of the directory meanwhile nothing is said with the next grant.
        self.drop_pages_within(ino);
        let Some(dir) = self.cache.dirs.get_mut(&ino) else { return };
        let mut told = FxHashSet::default();
        let known = &mut self.known;
        let mut note = |cookie: Cookie, entry: &mut CachedEntry| {
            entry.name_out = false;
            if let Some(inode) = entry.dirent.covered().and_then(|_| known.get_mut(&entry.dirent.ino)) {
                inode.note_attr_gone();
                if inode.pages_out {
                    told.insert(cookie);
                }
            }
        };
        match dir.told.take() {
            None => dir.entries.iter_mut().for_each(|(cookie, entry)| note(*cookie, entry)),
            Some(places) => {
                for cookie in *places {
                    if let Some(entry) = dir.entries.get_mut(&cookie) {
                        note(cookie, entry);
                    }
                }
            }
        }
        if let Some(inode) = known.get_mut(&ino) {
            inode.note_attr_gone();
        }
        debug_assert!(dir.entries.iter().all(|(cookie, entry)| {
            let inode = entry.dirent.covered().and_then(|_| known.get(&entry.dirent.ino));
            let has_any = inode.is_some_and(|inode| inode.attr_out() || inode.pages_out);
            !entry.name_out && (!has_any || told.contains(cookie))
        }));
        self.cache.set_aside(ino, self.clock.now, told);
        self.sought.retain(|_, covering| *covering != ino);
        self.wake(WaitKey::Loaded(ino));
    }

    /// Takes a directory back, with what has changed since it was kept aside.
    pub(crate) fn take_turn(&mut self, ino: Ino, inode: Inode, changes: &[Change]) {
        if self.cache.dirs.contains_key(&ino) {
            return;
        }
        match self.cache.take_back(ino) {
            Some(_) => {
                self.metrics.caught_up.add(1);
                self.catch_up(changes);
            }
            // It has been let go of: what there is of it is asked for when it is needed.
            None => drop(self.cache.dirs.insert(ino, Box::new(DirCache::new(inode, self.clock.now)))),
        }
        let busy_until = self.clock.now + self.config.quiet;
        if let Some(dir) = self.cache.dirs.get_mut(&ino) {
            dir.used_at = self.clock.now;
            dir.busy_until = busy_until;
            dir.forgets_unused = 0;
        }
        self.tokens.note_turn(ResourceId::dir(ino));
        self.set_place(ino, Place::Own);
    }

    /// Applies what others have changed in a directory while it was kept aside. The kernel has nothing of that.
    fn catch_up(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                // It may have had a right of its own meanwhile, by which its extents changed.
                Change::PutEntry { entry, .. } => self.drop_pages(entry.ino),
                Change::PutExtentPage { ino, page, .. } => self.pages.drop_page(*ino, *page),
                Change::DeleteExtentPages { ino, .. } => self.drop_pages(*ino),
                Change::DeleteInode { ino, .. } if !self.known.get(ino).is_some_and(Known::is_open) => {
                    self.drop_deleted(*ino);
                }
                _ => {}
            }
            self.cache.apply(change);
            if let Change::PutEntry { entry, .. } = change
                && entry.covered().is_some()
            {
                self.drop_own_tokens(entry.ino);
            }
        }
        self.note_moves();
    }

    /// Whether the master had better hear now of what is done in a turn: what it has heard of and committed by then is not waited for
    /// when the turn is over.
    pub(crate) fn is_turn_to_be_logged(&self) -> bool {
        self.cache.has_contests && self.log.unflushed().0 >= LOGGED_AT_ONCE && self.tokens.is_turn_awaited()
    }

    /// Whether turns are being taken in a directory: the kernel is told little of what is in it to keep, so that little of that is to
    /// be taken back when the turn is over. (The directory itself it is asked for with each name.)
    pub(crate) fn has_turn(&self, dir: Ino) -> bool {
        self.cache.dirs.get(&dir).is_some_and(|dir| dir.told.is_some() && dir.busy_until > self.clock.now)
    }

    /// What is made to be opened is judged by its attributes at once: to take them back costs less than to be asked for them.
    pub(crate) fn keep_made(&mut self, dir: Ino, entry: Entry, progress: &Progress) -> Entry {
        let ino = entry.attr.ino;
        let is_own = progress.ship.is_none() && self.tokens.usable(ResourceId::dir(dir)) == LockMode::Ex;
        let is_kept =
            is_own && self.has_turn(dir) && matches!(self.place(ino), Place::Covered(at, _) if at == dir);
        if !is_kept {
            return entry;
        }
        self.known.note(ino).note_attr_out();
        Entry { keep_attr: Keep::Yes, ..entry }
    }

    /// The kernel may have something of an inode from here on.
    pub(crate) fn note_out(&mut self, ino: Ino) {
        if self.cache.has_contests
            && let Place::Covered(parent, cookie) = self.place(ino)
            && let Some(dir) = self.cache.dirs.get_mut(&parent)
        {
            dir.note_told(cookie);
        }
    }

    /// What is heard otherwise of directories that are kept aside was committed before the master saw that they were given back: what
    /// is sent with the next grant is without it, or has it as it was last.
    pub(crate) fn change_aside(&mut self, changes: &[Change]) {
        if self.cache.aside.is_empty() {
            return;
        }
        for change in changes {
            if let Some(ResourceId { ino, kind: ResourceKind::Dir }) = change.resource()
                && let Some(since) = self.cache.take_back(ino)
            {
                self.catch_up(std::slice::from_ref(change));
                self.cache.put_aside(ino, since);
            }
        }
    }

    pub(crate) fn drop_aside(&mut self, ino: Ino) {
        if let Some(dir) = self.cache.drop_aside(ino) {
            self.forget_children(ino, &dir);
        }
    }

    /// For want of room. Returns whether there was any.
    pub(crate) fn drop_oldest_aside(&mut self) -> bool {
        let oldest = self.cache.aside.iter().min_by_key(|(ino, (_, since))| (*since, **ino));
        let oldest = oldest.map(|(ino, _)| *ino);
        oldest.map(|ino| self.drop_aside(ino)).is_some()
    }

    /// Nothing is kept aside any longer.
    pub(crate) fn drop_all_aside(&mut self) {
        for ino in self.cache.aside.keys().copied().collect::<Vec<_>>() {
            self.drop_aside(ino);
        }
    }

    /// What has been kept aside for too long is not.
    pub(crate) fn drop_old_aside(&mut self) {
        let is_old = |since: Micros| self.clock.now.since(since) >= KEPT_FOR;
        let old = self.cache.aside.iter().filter(|(_, (_, since))| is_old(*since));
        for ino in old.map(|(ino, _)| *ino).collect::<Vec<_>>() {
            self.drop_aside(ino);
        }
    }

    /// When that is next so.
    pub(crate) fn aside_due(&self) -> Micros {
        self.cache.aside.values().map(|(_, since)| *since + KEPT_FOR).min().unwrap_or(Micros::NEVER)
    }
}

/// Changes sent at once in a turn that others wait for.
const LOGGED_AT_ONCE: u64 = 64;
/// The master counts it as gone after half of that.
const KEPT_FOR: Micros = Micros::from_millis(1_000);
