//! Pages of extents of files that nobody changes here: those that the master was asked for, and those that a file kept when its
//! changes were logged, so that the next write need not ask for what this node has just told.
//!
//! They are as old as the right to the content. What was asked for stays until that is given back, for a request may need many
//! at once; what was kept is given up, the oldest file first, when it gets much.

use std::collections::BTreeMap;

use chunk::ExtentMap;
use rustc_hash::FxHashMap;
use types::Ino;

#[derive(Debug, Default)]
pub(crate) struct Pages {
    files: FxHashMap<Ino, FilePages>,
    /// Files that kept theirs, by age.
    kept: BTreeMap<u64, Ino>,
    kept_extents: usize,
    next_age: u64,
}

#[derive(Debug, Default)]
struct FilePages {
    pages: BTreeMap<u64, ExtentMap>,
    kept: Option<Kept>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    age: u64,
    extents: usize,
}

impl Pages {
    pub fn get(&self, ino: Ino, page: u64) -> Option<&ExtentMap> {
        self.files.get(&ino)?.pages.get(&page)
    }

    /// All that are here of a file, in order.
    pub fn of(&self, ino: Ino) -> impl Iterator<Item = (u64, &ExtentMap)> {
        self.files.get(&ino).into_iter().flat_map(|file| file.pages.iter().map(|(page, map)| (*page, map)))
    }

    /// A page that was asked for. One that was kept meanwhile is newer: the master read the other before it was told.
    pub fn insert(&mut self, ino: Ino, page: u64, map: ExtentMap) {
        self.files.entry(ino).or_default().pages.entry(page).or_insert(map);
    }

    /// Those of a file whose changes are logged.
    pub fn keep(&mut self, ino: Ino, pages: BTreeMap<u64, ExtentMap>) {
        self.take(ino);
        let extents = pages.values().map(|map| map.len() + 1).sum();
        if pages.is_empty() || extents > KEPT_EXTENTS_MAX {
            return;
        }
        while self.kept_extents + extents > KEPT_EXTENTS_MAX
            && let Some((_, oldest)) = self.kept.first_key_value()
        {
            self.take(*oldest);
        }
        let age = self.next_age;
        self.next_age += 1;
        self.kept.insert(age, ino);
        self.kept_extents += extents;
        self.files.insert(ino, FilePages { pages, kept: Some(Kept { age, extents }) });
    }

    /// Another node changed a page.
    pub fn drop_page(&mut self, ino: Ino, page: u64) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.pages.remove(&page);
        }
    }

    /// What is here of a file is needed elsewhere, or no more.
    pub fn take(&mut self, ino: Ino) -> BTreeMap<u64, ExtentMap> {
        let Some(file) = self.files.remove(&ino) else { return BTreeMap::new() };
        if let Some(Kept { age, extents }) = file.kept {
            self.kept.remove(&age);
            self.kept_extents -= extents;
        }
        file.pages
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Extents that files keep, some 64 bytes each, and a few more where a page has hardly any.
const KEPT_EXTENTS_MAX: usize = 256 << 10;

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

    fn pages(count: u64, extents: u64) -> BTreeMap<u64, ExtentMap> {
        (0..count).map(|page| (page, map(extents))).collect()
    }

    #[test]
    fn what_was_kept_makes_room_and_what_was_asked_for_stays() {
        let mut cache = Pages::default();
        cache.insert(Ino(1), 7, map(8000));
        for ino in 2..50 {
            cache.keep(Ino(ino), pages(4, 8000));
            assert!(cache.kept_extents <= KEPT_EXTENTS_MAX);
            assert!(cache.get(Ino(ino), 3).is_some());
        }
        assert!(cache.get(Ino(1), 7).is_some() && cache.get(Ino(2), 0).is_none());
        let left: Vec<Ino> = (2..50).map(Ino).filter(|ino| cache.get(*ino, 0).is_some()).collect();
        assert_eq!(left, (42..50).map(Ino).collect::<Vec<_>>(), "the youngest");
        left.into_iter().for_each(|ino| drop(cache.take(ino)));
        assert_eq!((cache.kept_extents, cache.kept.len(), cache.files.len()), (0, 0, 1));
    }

    #[test]
    fn what_was_asked_for_before_comes_too_late() {
        let mut cache = Pages::default();
        cache.keep(Ino(2), pages(1, 5));
        cache.insert(Ino(2), 0, map(3));
        cache.insert(Ino(2), 1, map(3));
        assert_eq!(
            cache.of(Ino(2)).map(|(page, map)| (page, map.len())).collect::<Vec<_>>(),
            [(0, 5), (1, 3)]
        );
    }

    #[test]
    fn a_file_that_keeps_again_counts_once() {
        let mut cache = Pages::default();
        for _ in 0..100 {
            cache.keep(Ino(2), pages(1, 8000));
        }
        assert_eq!((cache.kept_extents, cache.kept.len()), (8001, 1));
        cache.keep(Ino(2), pages(40, 8000));
        assert_eq!((cache.kept_extents, cache.files.len()), (0, 0), "more than all may have");
    }
}
