//! Files with tokens of their own, that one node after the other looks at.
//!
//! Who made such a file holds it in EX for as long as nobody asks, and others would ask for each by itself, at every look. So what is not in use goes
//! down to PR with its directory, in one message, or when its attributes are asked for. And who goes through a directory's files asks for the next ones
//! along with one.

use std::ops::Bound;

use meta::{Child, Cookie, Dirent, FileKind};
use types::{Ino, LockMode, Micros, ResourceId, ResourceKind};
use wire::Ahead;

use crate::core::Core;
use crate::revoke::Cause;

/// A walk through the files of a directory that it does not cover.
#[derive(Debug, Default)]
pub(crate) struct FileWalk {
    /// The directory, and where in it the walk has come to.
    at: Option<(Ino, Cookie)>,
    /// How many files to bring along with the next.
    window: usize,
    /// A file that is being looked up, and where.
    pub(crate) looked_up: Option<(Ino, (Ino, Cookie))>,
}

/// The names of a file by which the kernel may have it: the last two that it was told of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(pub(crate) [Option<(Ino, Cookie)>; 2]);

impl Seen {
    pub(crate) fn note(&mut self, place: (Ino, Cookie)) {
        if self.0[0] != Some(place) {
            self.0 = [Some(place), self.0[0]];
        }
    }

    /// The only one.
    pub(crate) fn only(self) -> Option<(Ino, Cookie)> {
        self.0[0].filter(|_| self.0[1].is_none())
    }
}

impl Core {
    /// Another node will read `dir`: it will look at what is in there, too.
    pub(crate) fn share_children(&mut self, dir: Ino) {
        let Some(cached) = self.cache.dirs.get(&dir) else { return };
        // A large directory is not gone through for a few files.
        if cached.entries.len() > self.cache.owns.len().saturating_mul(ENTRIES_FOR_ONE).min(ENTRIES_MAX) {
            return;
        }
        let children = cached.entries.values().map(|entry| &entry.dirent);
        let is_held =
            |ino: &Ino| rights_to(*ino).iter().any(|right| self.tokens.held(*right) == LockMode::Ex);
        let files = children.filter(|child| is_uncovered_file(child)).map(|child| child.ino).filter(is_held);
        let files: Vec<Ino> = files.filter(|ino| self.is_idle(*ino, CHILD_IDLE)).take(SHARED_MAX).collect();
        let newer: Vec<Ino> = files.iter().copied().filter(|ino| self.live.contains_key(ino)).collect();
        if !newer.is_empty() {
            // One sync for all, which each finds under way.
            self.flush(&newer);
        }
        for ino in files {
            self.share_idle(ino, CHILD_IDLE);
        }
    }

    /// Goes down to PR with a file that nobody here writes, and that has not been used for `idle`. Returns whether it did.
    pub(crate) fn share_idle(&mut self, ino: Ino, idle: Micros) -> bool {
        if !self.is_idle(ino, idle) {
            return false;
        }
        let mut is_shared = false;
        for resource in rights_to(ino) {
            if let Some(revocation) = self.tokens.start_release(resource, LockMode::Pr) {
                self.start_release_for(revocation, Cause::Other);
                is_shared = true;
            }
        }
        is_shared
    }

    /// Whether a right that is asked back for what may come is in use here.
    pub(crate) fn is_in_use(&self, resource: ResourceId) -> bool {
        match resource.kind {
            ResourceKind::Dir => {
                let cached = self.cache.dirs.get(&resource.ino);
                cached.is_some_and(|dir| self.clock.now.since(dir.used_at) < CHILD_IDLE)
            }
            ResourceKind::Attr | ResourceKind::File => {
                self.known.get(&resource.ino).is_some_and(|known| known.is_open())
                    || !self.is_idle(resource.ino, CHILD_IDLE)
            }
            ResourceKind::Rename => false,
        }
    }

    /// What will be asked for next by who asks for the attributes of `ino`: the files behind it, if he has come through those before it.
    pub(crate) fn look_ahead_of_file(&mut self, ino: Ino) -> Ahead {
        let walk = &self.cache.file_walk;
        let looked_up = walk.looked_up.filter(|(of, _)| *of == ino).map(|(_, place)| place);
        let seen = self.cache.seen_at.get(&ino).copied().unwrap_or_default().0;
        let is_there = |(dir, cookie): &(Ino, Cookie)| {
            let entry = self.cache.dirs.get(dir).and_then(|cached| cached.entries.get(cookie));
            entry.is_some_and(|entry| entry.dirent.ino == ino)
        };
        let mut places = [looked_up, seen[0], seen[1]].into_iter().flatten().filter(is_there);
        let Some((dir, cookie)) = places.next() else { return Ahead::default() };
        let Some(cached) = self.cache.dirs.get(&dir) else { return Ahead::default() };
        let is_untold = |child: &Dirent| {
            is_uncovered_file(child) && self.tokens.held(ResourceId::attr(child.ino)) == LockMode::Nl
        };
        let is_next = |at: Cookie| {
            let mut between =
                cached.entries.range((Bound::Excluded(at), Bound::Excluded(cookie))).take(PASSED_MAX);
            !between.any(|(_, entry)| is_untold(&entry.dirent))
        };
        let window = match walk.at {
            Some((of, at)) if of == dir && at < cookie && is_next(at) => {
                (walk.window * 4).clamp(WINDOW_MIN, WINDOW_MAX)
            }
            Some((of, _)) if of == dir => 0,
            // As it went in the directory before.
            Some(_) | None => walk.window,
        };
        let room = self.tokens.share() / 8;
        let behind = cached.entries.range((Bound::Excluded(cookie), Bound::Unbounded)).take(PASSED_MAX);
        let next = behind.map(|(_, entry)| &entry.dirent).filter(|child| is_untold(child));
        let next: Vec<Ino> = next.map(|child| child.ino).take(window.min(room)).collect();
        let walk = &mut self.cache.file_walk;
        (walk.at, walk.window) = (Some((dir, cookie)), window);
        Ahead { window: u32::try_from(next.len()).unwrap_or(0), next }
    }

    fn is_idle(&self, ino: Ino, idle: Micros) -> bool {
        let is_written = self.known.get(&ino).is_some_and(|known| known.is_written());
        // What is in memory only may find no room, and would be given up for somebody who only looks.
        let is_stored = self.live.get(&ino).is_none_or(|live| !live.failed && live.dirty_bytes() == 0);
        let before = Micros(self.clock.now.0.saturating_sub(idle.0));
        let mut held = rights_to(ino).into_iter().filter(|right| self.tokens.held(*right) != LockMode::Nl);
        !is_written
            && is_stored
            && !self.frozen.contains_key(&ino)
            && held.all(|right| self.tokens.is_unused_since(right, before))
    }
}

/// The content first: who is granted the attributes is told of the content as well.
fn rights_to(ino: Ino) -> [ResourceId; 2] {
    [ResourceId::file(ino), ResourceId::attr(ino)]
}

fn is_uncovered_file(child: &Dirent) -> bool {
    matches!(child.child, Child::Own { kind } if kind != FileKind::Directory)
}

/// Files that one answer brings along, at least and at most, once a walk goes through them.
const WINDOW_MIN: usize = 4;
const WINDOW_MAX: usize = 256;
/// Entries looked at for one request.
const PASSED_MAX: usize = 2048;
/// What was used so lately is used still.
const CHILD_IDLE: Micros = Micros::from_millis(20);
/// A file that is asked for by itself is given down for good only where it will hardly be written at once.
pub(crate) const GLIMPSED_IDLE: Micros = Micros::from_millis(300);
/// Entries that are looked at for each file with tokens of its own.
const ENTRIES_FOR_ONE: usize = 64;
/// And at most, with the core locked.
const ENTRIES_MAX: usize = 32_768;
/// Files that go down with their directory, at most: as many as whoever gets that is granted with it.
const SHARED_MAX: usize = 2048;
