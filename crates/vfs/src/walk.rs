//! Walks: which directories will be asked for next, so that one answer brings them together, and the next answer is on its way while
//! the walk goes through those of the last.

use std::ops::Bound;

use meta::Cookie;
use types::{Ino, ResourceKind};
use wire::{Ahead, Want};

use crate::core::{Core, Link};

/// How a walk goes: directories brought along, and whether it came there.
#[derive(Debug, Default)]
pub struct Walk {
    /// Directories asked for in a row whose parent is here.
    steps: u32,
    /// How many to bring along next.
    window: u32,
    /// Those that the last answers brought along.
    brought: u32,
    /// Those of them that were used since.
    used: u32,
    /// Directories here that were brought along and not used.
    unused: u32,
    /// Nothing more lies ahead, as far as is known here.
    at_end: bool,
}

impl Walk {
    /// A directory is to be asked for; returns how many more to bring along.
    fn step(&mut self, knows_parent: bool) -> u32 {
        self.steps = if knows_parent { self.steps.saturating_add(1) } else { 0 };
        self.window = if self.steps < STEPS_MIN {
            0
        } else if self.used >= self.brought / 4 {
            (self.window * 4).clamp(4, WINDOW_MAX)
        } else {
            // The walk went elsewhere: what was brought is not worth its message.
            self.window / 4
        };
        (self.brought, self.used) = (0, 0);
        self.at_end = false;
        self.window
    }

    /// A directory that was brought along is used, or gone.
    pub fn pass(&mut self, is_used: bool) {
        self.unused = self.unused.saturating_sub(1);
        self.used += u32::from(is_used);
    }

    /// Whether it is time to ask for more.
    fn runs_short(&self) -> bool {
        self.window >= ASKED_EARLY_MIN && self.unused <= self.window / 2 && !self.at_end
    }
}

impl Core {
    /// What a walk that has come to `dir` will need next.
    pub(crate) fn look_ahead(&mut self, dir: Ino) -> Ahead {
        let knows_parent = self.cache.parents.contains_key(&dir);
        // What comes in advance takes its room from what is used.
        let room = u32::try_from(self.tokens.share() / 8).unwrap_or(u32::MAX);
        let window = self.cache.walk.step(knows_parent).min(room);
        let dirs = if window == 0 { Vec::new() } else { self.directories_ahead(dir, 2 * window as usize) };
        log::debug!("walk: to D({dir}), window {window}, {} directories ahead", dirs.len());
        Ahead { window, dirs }
    }

    /// Notes what an answer brought along.
    pub(crate) fn note_brought(&mut self, want: Want, granted: &[types::ResourceId]) {
        let Want::Directory { ino: asked } = want else { return };
        for resource in granted.iter().filter(|r| r.kind == ResourceKind::Dir && r.ino != asked) {
            if let Some(dir) = self.cache.dirs.get_mut(&resource.ino) {
                dir.ahead = true;
                self.cache.walk.brought += 1;
                self.cache.walk.unused += 1;
            }
        }
    }

    /// A walk has come to a directory that was brought along: before the last of those is used up, more are asked for.
    pub(crate) fn go_ahead(&mut self, dir: Ino) {
        if !self.cache.walk.runs_short() || self.link != Link::Up || self.is_asking_ahead() {
            return;
        }
        match self.directories_ahead(dir, 1).first() {
            Some(next) => {
                let want = Want::Directory { ino: *next };
                self.want(want);
                self.cache.walk_asked = Some(want);
            }
            None => self.cache.walk.at_end = true,
        }
    }

    fn is_asking_ahead(&self) -> bool {
        self.cache.walk_asked.is_some_and(|want| self.wants.contains_key(&want))
    }

    /// Directories without a token here, in the order in which a walk comes to them that has come to `dir`: beside it and
    /// under what is beside it, then the same one level up, and so on; last those that it should have passed,
    /// for tools that sort come to all children of a directory in an order of their own.
    fn directories_ahead(&self, dir: Ino, limit: usize) -> Vec<Ino> {
        let mut search = Search { core: self, found: Vec::new(), limit, looked: 0 };
        let mut above = Vec::new();
        let mut at = dir;
        while let Some((parent, cookie)) = self.cache.parents.get(&at).copied() {
            let Some(cached) = self.cache.dirs.get(&parent).filter(|_| above.len() < DEPTH_MAX) else {
                break;
            };
            search.look(cached.subdirectories.range((Bound::Excluded(cookie), Bound::Unbounded)), 0);
            above.push((cached, cookie));
            at = parent;
        }
        for (cached, cookie) in above {
            search.look(cached.subdirectories.range(..cookie), 0);
        }
        search.found
    }
}

/// A search for directories without a token, through those with one.
struct Search<'a> {
    core: &'a Core,
    found: Vec<Ino>,
    limit: usize,
    looked: usize,
}

impl<'a> Search<'a> {
    fn look(&mut self, children: impl Iterator<Item = (&'a Cookie, &'a Ino)>, depth: usize) {
        for (_, child) in children {
            self.looked += 1;
            if self.found.len() >= self.limit || self.looked > LOOKED_MAX || depth > DEPTH_MAX {
                return;
            }
            match self.core.cache.dirs.get(child) {
                Some(cached) => self.look(cached.subdirectories.iter(), depth + 1),
                None => self.found.push(*child),
            }
        }
    }
}

/// Steps in a row that make a walk.
const STEPS_MIN: u32 = 2;
/// Directories that one answer brings along at most.
const WINDOW_MAX: u32 = 512;
/// So many at a time are asked for before they are needed: a walk in earnest.
const ASKED_EARLY_MIN: u32 = 64;
/// Directories looked at for one request.
const LOOKED_MAX: usize = 8192;
/// Levels of the tree looked at, upwards and downwards.
const DEPTH_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::{WINDOW_MAX, Walk};

    #[test]
    fn the_window_grows_while_the_walk_uses_what_was_brought() {
        let mut walk = Walk::default();
        assert_eq!(walk.step(false), 0);
        assert_eq!(walk.step(true), 0);
        let mut windows = Vec::new();
        for _ in 0..6 {
            let window = walk.step(true);
            windows.push(window);
            (walk.brought, walk.used) = (window, window);
        }
        assert_eq!(windows, [4, 16, 64, 256, WINDOW_MAX, WINDOW_MAX]);
        walk.used = 0;
        assert_eq!(walk.step(true), WINDOW_MAX / 4);
        (walk.brought, walk.used) = (128, 1);
        assert_eq!(walk.step(true), 32);
        assert_eq!(walk.step(false), 0, "it jumped elsewhere");
    }
}
