//! Pages of extents of one file, as far as they are here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use chunk::{Extent, ExtentMap, Freed};
use meta::Body;

/// Numbers of pages, as ranges: those of a hole are many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageSet {
    /// Ends by start. They neither touch nor overlap, and none is empty.
    ranges: BTreeMap<u64, u64>,
}

impl PageSet {
    pub fn insert(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) =
            self.ranges.range(..=range.end).next_back().filter(|(_, end)| **end >= range.start)
        {
            self.ranges.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.ranges.insert(range.start, range.end);
    }

    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) =
            self.ranges.range(..range.end).next_back().filter(|(_, end)| **end > range.start)
        {
            self.ranges.remove(&start);
            self.insert(start..range.start.max(start));
            if end > range.end {
                self.ranges.insert(range.end, end);
            }
            if start < range.start {
                return;
            }
        }
    }

    pub fn contains(&self, page: u64) -> bool {
        self.ranges.range(..=page).next_back().is_some_and(|(_, end)| *end > page)
    }

    /// The first stretch of `range` of which none is in it.
    pub fn first_gap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let before = self.ranges.range(..=range.start).next_back().map_or(0, |(_, end)| *end);
        let start = before.max(range.start);
        let next = self.ranges.range(start..).next().map_or(u64::MAX, |(next, _)| *next);
        let gap = start..next.min(range.end);
        (!gap.is_empty()).then_some(gap)
    }

    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }
}

/// Pages of a file that are known, and the extents of those that have any.
///
/// It goes as a whole from who changes a file to who keeps it and back, so that an fsync costs what it changes, however large the file is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loaded {
    pub known: PageSet,
    /// All of them are known.
    pages: BTreeMap<u64, ExtentMap>,
    /// Extents of all of them.
    extents: usize,
    /// Those that are under the file's keys.
    pub logged: BTreeSet<u64>,
}

impl Loaded {
    /// Of a file that has extents in no other pages.
    pub fn whole() -> Self {
        let mut whole = Self::default();
        whole.known.insert(0..u64::MAX);
        whole
    }

    /// Takes in what there is in `range`. What is known of it already is newer: it was told since, or changed here.
    pub fn take_in(&mut self, range: Range<u64>, list: impl IntoIterator<Item = (u64, ExtentMap)>) {
        for (page, extents) in list {
            if range.contains(&page) && !self.known.contains(page) && !extents.is_empty() {
                self.extents += extents.len();
                self.logged.insert(page);
                self.pages.insert(page, extents);
            }
        }
        self.known.insert(range);
    }

    /// Forgets a page.
    pub fn drop_page(&mut self, page: u64) {
        self.extents -= self.pages.remove(&page).map_or(0, |extents| extents.len());
        self.logged.remove(&page);
        self.known.remove(&(page..page.saturating_add(1)));
    }

    /// The extents of a page, if it has any.
    pub fn page(&self, page: u64) -> Option<&ExtentMap> {
        self.pages.get(&page)
    }

    /// Pages with extents, in order.
    pub fn pages(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &ExtentMap)> {
        self.pages.range(range).map(|(page, extents)| (*page, extents))
    }

    /// How many pages have had extents, and how many extents there are.
    pub fn count(&self) -> (usize, usize) {
        (self.pages.len(), self.extents)
    }

    /// Maps an extent, whose page is known.
    pub fn insert(&mut self, page: u64, extent: Extent) -> Freed {
        debug_assert!(self.known.contains(page), "page {page} is not known");
        let extents = self.pages.entry(page).or_default();
        let before = extents.len();
        let freed = extents.insert(extent);
        self.extents = self.extents + extents.len() - before;
        freed
    }

    /// Makes bytes of a page a hole.
    pub fn punch(&mut self, page: u64, range: Range<u64>) -> Freed {
        let Some(extents) = self.pages.get_mut(&page) else { return Freed::default() };
        let before = extents.len();
        let freed = extents.punch(range);
        self.extents = self.extents + extents.len() - before;
        freed
    }

    /// The file ends before this page now. Pages from there on have no extents any more.
    pub fn end_at(&mut self, page: u64) {
        let gone = self.pages.split_off(&page);
        self.extents -= gone.values().map(ExtentMap::len).sum::<usize>();
        self.known.insert(page..u64::MAX);
    }

    /// First stored byte at or after `offset`, as far as it is known.
    pub fn seek_data(&self, offset: u64) -> Option<u64> {
        self.pages.range(offset / Body::PAGE_SPAN..).find_map(|(_, extents)| extents.seek_data(offset))
    }

    /// First byte at or after `offset` that is in a hole, as far as that is known.
    pub fn seek_hole(&self, mut offset: u64) -> u64 {
        while let Some(end) = self.end_of_data_at(offset) {
            offset = end;
        }
        offset
    }

    /// Where the stored bytes at `offset` end; `None` in a hole.
    pub fn end_of_data_at(&self, offset: u64) -> Option<u64> {
        self.page(offset / Body::PAGE_SPAN)?.extent_at(offset).map(Extent::end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Goal: ranges of pages are a set of pages. Method: random changes, against a set of numbers; after each all gaps are compared.
    #[test]
    fn a_page_set_matches_a_set_of_numbers() {
        let mut state = 7_u64;
        let mut next = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
            for _ in 0..40 {
                let start = next(60);
                let range = start..start + next(12);
                match next(3) {
                    0 => {
                        set.remove(&range);
                        model.retain(|page| !range.contains(page));
                    }
                    _ => {
                        set.insert(range.clone());
                        model.extend(range);
                    }
                }
                assert!((0..80).all(|page| set.contains(page) == model.contains(&page)), "{set:?}");
                let ends: Vec<_> = set.ranges().collect();
                assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start), "{set:?}");
                let (from, to) = (next(70), next(80));
                let start = (from..to).find(|page| !model.contains(page));
                let gap =
                    start.map(|start| start..(start..to).find(|page| model.contains(page)).unwrap_or(to));
                assert_eq!(set.first_gap(&(from..to)), gap, "{set:?} in {from}..{to}");
            }
        }
    }

    #[test]
    fn the_last_pages_are_in_reach() {
        let mut set = PageSet::default();
        set.insert(5..u64::MAX);
        assert_eq!(set.first_gap(&(0..u64::MAX)), Some(0..5));
        set.insert(0..5);
        assert_eq!(set.first_gap(&(0..u64::MAX)), None);
        set.remove(&(7..9));
        assert_eq!(set.first_gap(&(0..u64::MAX)), Some(7..9));
        assert!(set.contains(u64::MAX - 1) && !set.contains(8));
    }

    #[test]
    fn what_is_known_is_newer_than_what_comes() {
        let map = |page: u64| {
            let run = chunk::Run::new(types::SegmentId(1), 64, 5, &[7]).unwrap();
            let mut map = ExtentMap::new();
            assert!(map.insert(chunk::Extent::new(page << 20, run).unwrap()).is_empty());
            map
        };
        let mut loaded = Loaded::default();
        // Known, and empty by now.
        loaded.known.insert(3..4);
        loaded.take_in(2..6, [(2, map(2)), (3, map(3)), (9, map(9))]);
        assert_eq!(loaded.pages(0..10).map(|(page, _)| page).collect::<Vec<_>>(), [2]);
        assert_eq!((loaded.count(), loaded.logged.len()), ((1, 1), 1));
        assert_eq!(loaded.known.first_gap(&(0..10)), Some(0..2));
        assert_eq!(loaded.known.first_gap(&(2..10)), Some(6..10));
        loaded.drop_page(2);
        assert_eq!(loaded.known.first_gap(&(2..6)), Some(2..3));
        assert_eq!((loaded.count(), loaded.logged.len()), ((0, 0), 0));
    }
}
