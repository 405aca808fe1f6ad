//! Pages of extents of files that nobody changes here: those that the master was asked for, and those that a file kept when its
//! changes were logged, so that the next write need not ask for what this node has just told.
//!
//! They are as old as the right to the content. What was asked for stays until that is given back, for a request may need many
//! at once; what was kept is given up, the oldest file first, when it gets much.

use std::collections::BTreeMap;
use std::ops::Range;

use chunk::ExtentMap;
use rustc_hash::FxHashMap;
use types::Ino;

use crate::loaded::Loaded;

#[derive(Debug, Default)]
pub(crate) struct Pages {
    files: FxHashMap<Ino, FilePages>,
    /// Files that kept theirs, by age.
    kept: BTreeMap<u64, Ino>,
    kept_extents: usize,
    next_age: u64,
    /// How many pages to ask for together, of files in small pieces.
    asked: FxHashMap<Ino, u64>,
}

#[derive(Debug, Default)]
struct FilePages {
    loaded: Loaded,
    kept: Option<Kept>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    age: u64,
    extents: usize,
}

impl Pages {
    /// The first stretch of `range` of which nothing is here.
    pub fn first_gap(&self, ino: Ino, range: &Range<u64>) -> Option<Range<u64>> {
        match self.files.get(&ino) {
            Some(file) => file.loaded.known.first_gap(range),
            None => (!range.is_empty()).then(|| range.clone()),
        }
    }

    /// All that is here of a file.
    pub fn of(&self, ino: Ino) -> Option<&Loaded> {
        self.files.get(&ino).map(|file| &file.loaded)
    }

    /// The extents that are here of pages of a file, in order.
    pub fn in_range(&self, ino: Ino, range: Range<u64>) -> impl Iterator<Item = &ExtentMap> {
        self.files
            .get(&ino)
            .into_iter()
            .flat_map(move |file| file.loaded.pages(range.clone()))
            .map(|(_, map)| map)
    }

    /// Pages that were asked for. Those that were kept meanwhile are newer: the master read the others before it was told.
    pub fn take_in(&mut self, ino: Ino, range: Range<u64>, list: Vec<(u64, ExtentMap)>) {
        self.files.entry(ino).or_default().loaded.take_in(range, list);
    }

    /// How many pages of a file to ask for together.
    pub fn asked_of(&self, ino: Ino) -> u64 {
        self.asked.get(&ino).copied().unwrap_or(ASKED_MAX)
    }

    /// Pages came with so many extents: what is asked for next is to be of some hundred.
    pub fn note_came(&mut self, ino: Ino, pages: u64, extents: usize) {
        let in_each = (extents as u64).div_ceil(pages.max(1)).max(1);
        let asked = (ASKED_EXTENTS / in_each).clamp(1, ASKED_MAX);
        match asked == ASKED_MAX {
            true => self.asked.remove(&ino),
            false => self.asked.insert(ino, asked),
        };
    }

    /// A file is nobody's here.
    pub fn forget(&mut self, ino: Ino) {
        self.asked.remove(&ino);
    }

    /// Those of a file whose changes are logged. Returns the files of which nothing is known any more: what they were asked for
    /// before may be older than what was logged of them.
    #[must_use]
    pub fn keep(&mut self, ino: Ino, loaded: Loaded) -> Vec<Ino> {
        self.take(ino);
        let (pages, extents) = loaded.count();
        let extents = extents + pages * PAGE_COSTS;
        if pages == 0 || extents > KEPT_EXTENTS_MAX {
            return vec![ino];
        }
        let mut given_up = Vec::new();
        while self.kept_extents + extents > KEPT_EXTENTS_MAX
            && let Some(oldest) = self.kept.first_key_value().map(|(_, oldest)| *oldest)
        {
            self.take(oldest);
            given_up.push(oldest);
        }
        let age = self.next_age;
        self.next_age += 1;
        self.kept.insert(age, ino);
        self.kept_extents += extents;
        self.files.insert(ino, FilePages { loaded, kept: Some(Kept { age, extents }) });
        given_up
    }

    /// Files of which something is here.
    pub fn files(&self) -> impl Iterator<Item = Ino> + '_ {
        self.files.keys().copied()
    }

    /// Another node changed a page.
    pub fn drop_page(&mut self, ino: Ino, page: u64) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.loaded.drop_page(page);
        }
    }

    /// What is here of a file is needed elsewhere, or no more.
    pub fn take(&mut self, ino: Ino) -> Loaded {
        let Some(file) = self.files.remove(&ino) else { return Loaded::default() };
        if let Some(Kept { age, extents }) = file.kept {
            self.kept.remove(&age);
            self.kept_extents -= extents;
        }
        file.loaded
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Pages that are asked for together, and the extents in them of a file in small pieces. All of them are decoded for a write to one.
const ASKED_MAX: u64 = 16;
const ASKED_EXTENTS: u64 = 256;
/// Extents that files keep, some 64 bytes each.
const KEPT_EXTENTS_MAX: usize = 1 << 20;
/// What a page takes beside its extents, in extents.
const PAGE_COSTS: usize = 2;

#[cfg(test)]
mod tests {
    use chunk::{Extent, Run};
    use types::SegmentId;

    use super::*;

    /// A map of so many extents.
    fn map(extents: u64) -> ExtentMap {
        let mut map = ExtentMap::new();
        for n in 0..extents {
            let run = Run::new(SegmentId(1), n * 8192, 4096, &[7]).expect("a run");
            let _ = map.insert(Extent::new(n * 8192, run).expect("an extent"));
        }
        map
    }

    fn pages(count: u64, extents: u64) -> Loaded {
        let mut loaded = Loaded::default();
        loaded.take_in(0..count, (0..count).map(|page| (page, map(extents))));
        loaded
    }

    fn has(cache: &Pages, ino: u64, page: u64) -> bool {
        cache.first_gap(Ino(ino), &(page..page + 1)).is_none()
    }

    #[test]
    fn what_was_kept_makes_room_and_what_was_asked_for_stays() {
        let mut cache = Pages::default();
        cache.take_in(Ino(1), 7..8, vec![(7, map(8000))]);
        for ino in 2..50 {
            let given_up = cache.keep(Ino(ino), pages(4, 32_000));
            assert!(given_up.iter().all(|ino| !has(&cache, ino.0, 3)));
            assert!(cache.kept_extents <= KEPT_EXTENTS_MAX);
            assert!(has(&cache, ino, 3));
        }
        assert!(has(&cache, 1, 7) && !has(&cache, 2, 0));
        let left: Vec<Ino> = (2..50).filter(|ino| has(&cache, *ino, 0)).map(Ino).collect();
        assert_eq!(left, (42..50).map(Ino).collect::<Vec<_>>(), "the youngest");
        left.into_iter().for_each(|ino| drop(cache.take(ino)));
        assert_eq!((cache.kept_extents, cache.kept.len(), cache.files.len()), (0, 0, 1));
    }

    #[test]
    fn what_was_asked_for_before_comes_too_late() {
        let mut cache = Pages::default();
        assert!(cache.keep(Ino(2), pages(1, 5)).is_empty());
        cache.take_in(Ino(2), 0..2, vec![(0, map(3)), (1, map(3))]);
        assert_eq!(cache.in_range(Ino(2), 0..9).map(ExtentMap::len).collect::<Vec<_>>(), [5, 3]);
    }

    #[test]
    fn a_file_that_keeps_again_counts_once() {
        let mut cache = Pages::default();
        for _ in 0..100 {
            assert!(cache.keep(Ino(2), pages(1, 32_000)).is_empty());
        }
        assert_eq!((cache.kept_extents, cache.kept.len()), (32_000 + PAGE_COSTS, 1));
        assert_eq!(cache.keep(Ino(2), pages(40, 32_000)), [Ino(2)]);
        assert_eq!((cache.kept_extents, cache.files.len()), (0, 0), "more than all may have");
    }

    /// Goal: of a file in small pieces few pages are asked for together, of others sixteen. Method: what came last decides.
    #[test]
    fn a_file_in_small_pieces_has_few_pages_asked_for_at_once() {
        let (ino, mut pages) = (Ino(7), Pages::default());
        assert_eq!(pages.asked_of(ino), 16);
        for (came, extents, asked) in [(16, 4096, 1), (1, 60, 4), (4, 4, 16), (16, 0, 16), (1, 1000, 1)] {
            pages.note_came(ino, came, extents);
            assert_eq!(pages.asked_of(ino), asked, "{extents} extents in {came} pages");
        }
        assert_eq!(pages.asked_of(Ino(8)), 16);
        pages.forget(ino);
        assert_eq!(pages.asked_of(ino), 16);
    }
}
