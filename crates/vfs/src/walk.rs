//! Walks: which directories will be asked for next, so that one answer brings them together, and the next answer is on its way while
//! the walk goes through those of the last.

use std::ops::Bound;

use meta::Cookie;
use rustc_hash::FxHashMap;
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
    /// The directory it has come to.
    at: Option<Ino>,
    /// So many levels above where it was the walk has gone on: what lies higher is not brought along. Who looks at files of one directory's
    /// subdirectories does not want its neighbours'.
    height: usize,
}

impl Walk {
    /// A directory is to be asked for; returns how many more to bring along.
    fn step(&mut self, knows_parent: bool) -> u32 {
        self.steps = if knows_parent { self.steps.saturating_add(1) } else { 0 };
        if self.steps == 0 {
            self.height = 0;
        }
        self.window = if self.steps < STEPS_MIN {
            0
        } else if self.brought == 0 && self.window > 0 {
            // Nothing fitted, or there was nothing: to ask for more would have more looked at.
            self.window
        } else if self.used >= self.brought / 4 {
            (self.window * 4).clamp(4, WINDOW_MAX)
        } else {
            // The walk went elsewhere: what was brought is not worth its message.
            self.height = 0;
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

    /// The walk has come to `dir`: learns how high it had to climb on the way.
    fn come_to(&mut self, dir: Ino, parents: &FxHashMap<Ino, (Ino, Cookie)>) {
        let Some(from) = self.at.replace(dir) else { return };
        let above =
            |ino: Ino| std::iter::successors(Some(ino), |ino| Some(parents.get(ino)?.0)).take(DEPTH_MAX);
        // From its parent, or where it was already: no climb.
        let climbed = above(from).position(|ino| above(dir).any(|of_dir| of_dir == ino)).unwrap_or(0);
        if climbed > self.height + 1 {
            self.height = climbed - 1;
            self.at_end = false;
        }
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
        self.cache.walk.come_to(dir, &self.cache.parents);
        let next = if window == 0 { Vec::new() } else { self.directories_ahead(dir, 2 * window as usize) };
        log::debug!("walk: to D({dir}), window {window}, {} directories ahead", next.len());
        Ahead { window, next }
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
        self.cache.walk.come_to(dir, &self.cache.parents);
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
    /// under what is beside it, then the same one level up, and so on, as high as it has climbed; last those that it should
    /// have passed, for tools that sort come to all children of a directory in an order of their own.
    fn directories_ahead(&self, dir: Ino, limit: usize) -> Vec<Ino> {
        let mut search = Search { core: self, found: Vec::new(), limit, looked: 0 };
        let mut above = Vec::new();
        let mut at = dir;
        while let Some((parent, cookie)) = self.cache.parents.get(&at).copied() {
            let Some(cached) = self.cache.dirs.get(&parent).filter(|_| above.len() <= self.cache.walk.height)
            else {
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
    use meta::Cookie;
    use types::Ino;

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
        (walk.brought, walk.used) = (0, 0);
        assert_eq!(walk.step(true), WINDOW_MAX, "nothing came");
        (walk.brought, walk.used) = (WINDOW_MAX, 0);
        assert_eq!(walk.step(true), WINDOW_MAX / 4);
        (walk.brought, walk.used) = (128, 1);
        assert_eq!(walk.step(true), 32);
        assert_eq!(walk.step(false), 0, "it jumped elsewhere");
    }

    #[test]
    fn it_looks_as_high_as_it_has_climbed() {
        // 1 has 2 and 3; 2 has 20 and 21, 3 has 30; 20 has 200.
        let tree = [(2, 1), (3, 1), (20, 2), (21, 2), (30, 3), (200, 20)];
        let parents =
            tree.map(|(child, parent)| (Ino(child), (Ino(parent), Cookie(child)))).into_iter().collect();
        let mut walk = Walk::default();
        let heights = [1, 2, 20, 21, 20, 200, 21, 3, 30].map(|dir| {
            walk.come_to(Ino(dir), &parents);
            walk.height
        });
        assert_eq!(heights, [0, 0, 0, 0, 0, 0, 1, 1, 1]);
        walk.come_to(Ino(200), &parents);
        assert_eq!(walk.height, 1, "from 30 up to 3, and beside it");
        walk.come_to(Ino(3), &parents);
        assert_eq!(walk.height, 2);
        walk.step(false);
        assert_eq!(walk.height, 0, "it jumped elsewhere");
    }
}
