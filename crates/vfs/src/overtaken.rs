//! Writes through the kernel's pages, and READs of the same pages that are answered before them.
//!
//! The kernel fills a page before it sends the WRITE, and unlocks it if it is up to date. If the page goes before the WRITE is answered, a READ may
//! bring it again as it was: it has to be taken back before the answer, or its own node sees for a moment what was before. But a
//! page that the write fills in part and that was not up to date stays locked until the answer, and taking it back waits for
//! that lock. Two kinds of READs tell the one from the other:
//!
//! - One that came after the WRITE ([`Waiting`]): the kernel sends none for a page that is locked. Only the last pages of a WRITE are ever locked, so
//!   whatever lies between two pages that were read is not.
//! - One that came before it, after pages of the file were taken back ([`Taken`]). The kernel makes one such write of a file at a time, from the filling
//!   to the answer, so only the first WRITE after that can have been filled before. What was read since, and not taken back again, is here and up to
//!   date, unless the kernel has dropped it for want of memory; who waits for it does so for a moment only.

use std::ops::Range;

use rustc_hash::FxHashMap;
use types::{Ino, Micros};

use crate::core::Core;
use crate::request::{PageSpan, Reply, Request, RequestId};
use crate::shield::{pages_of, without};
use crate::wait::{Parked, Progress, Try};

/// The writes that wait and those that may be on their way, by file. Mostly none.
#[derive(Debug, Default)]
pub(crate) struct Overtaken {
    waiting: FxHashMap<Ino, Vec<Waiting>>,
    /// Files open for writing of which pages were taken back since a write came last.
    taken: FxHashMap<Ino, Taken>,
}

#[derive(Debug)]
struct Waiting {
    id: RequestId,
    /// What it writes as the kernel believes, in whole pages.
    pages: Range<u64>,
    /// What was read of that since it came.
    reread: Option<PageSpan>,
}

/// What the kernel has read of a file since pages of it were taken back.
#[derive(Debug, Default)]
struct Taken {
    /// Pages, and the number of the read.
    reads: Vec<(Range<u64>, u64)>,
    /// When the last of them were.
    read_at: Micros,
    /// The pages that are being taken back just now, and the number of each call.
    dropping: Vec<(Range<u64>, u64)>,
}

impl Taken {
    fn note(&mut self, pages: Range<u64>, number: u64, now: Micros) {
        self.read_at = now;
        self.reads.retain(|(old, _)| old.start < pages.start || old.end > pages.end);
        if self.reads.len() >= READS_MAX {
            self.reads.remove(0);
        }
        self.reads.push((pages, number));
    }

    /// What was read of `pages` is gone.
    fn void(&mut self, pages: &Range<u64>) {
        let old = std::mem::take(&mut self.reads).into_iter();
        self.reads =
            old.flat_map(|(read, at)| without(read, pages).into_iter().map(move |part| (part, at))).collect();
    }

    /// What a write of `pages` that comes now may have been overtaken by. Not what is being taken back: it is not there for longer, and the write may have locked
    /// what is there instead.
    fn of(&self, pages: &Range<u64>, now: Micros) -> Option<PageSpan> {
        let is_known = now < self.read_at + ON_ITS_WAY_MAX;
        let is_going =
            |read: &Range<u64>| self.dropping.iter().any(|(going, _)| common(going, read).is_some());
        let reads = self.reads.iter().filter(|(read, _)| is_known && !is_going(read));
        let common = reads.filter_map(|(read, _)| common(read, pages));
        common.reduce(PageSpan::hull)
    }
}

impl Overtaken {
    fn begin(&mut self, ino: Ino, waiting: Waiting) {
        self.waiting.entry(ino).or_default().push(waiting);
    }

    fn end(&mut self, ino: Ino, id: RequestId) -> Option<PageSpan> {
        let list = self.waiting.get_mut(&ino)?;
        let at = list.iter().position(|waiting| waiting.id == id)?;
        let reread = list.swap_remove(at).reread;
        if list.is_empty() {
            self.waiting.remove(&ino);
        }
        reread
    }

    /// A READ of `range` that fills pages is answered.
    fn note_read(&mut self, ino: Ino, range: Range<u64>, number: u64, now: Micros) {
        let read = pages_of(range);
        for waiting in self.waiting.get_mut(&ino).into_iter().flatten() {
            if let Some(read) = common(&read, &waiting.pages) {
                waiting.reread = Some(waiting.reread.map_or(read, |before| before.hull(read)));
            }
        }
        if let Some(taken) = self.taken.get_mut(&ino) {
            taken.note(read, number, now);
        }
    }

    /// Pages of a file that is open for writing are being taken back.
    pub fn note_taking(&mut self, ino: Ino) {
        self.taken.entry(ino).or_default();
    }

    /// All pages of a file that is open for writing are gone.
    pub fn note_taken(&mut self, ino: Ino) {
        self.taken.entry(ino).or_default().reads.clear();
    }

    /// The kernel has no pages of this range, or will have none before it fills some for a write.
    pub fn void(&mut self, ino: Ino, range: Range<u64>) {
        if let Some(taken) = self.taken.get_mut(&ino) {
            taken.void(&pages_of(range));
        }
    }

    /// No write whose pages were filled before any were taken back is on its way any more.
    fn arrive(&mut self, ino: Ino) {
        if let Some(taken) = self.taken.get_mut(&ino) {
            taken.reads.clear();
            if taken.dropping.is_empty() {
                self.taken.remove(&ino);
            }
        }
    }

    /// Nobody writes a file any more.
    pub fn close(&mut self, ino: Ino) {
        self.taken.remove(&ino);
    }

    pub fn clear(&mut self) {
        self.waiting.clear();
        self.taken.clear();
    }
}

fn common(read: &Range<u64>, written: &Range<u64>) -> Option<PageSpan> {
    let (start, end) = (read.start.max(written.start), read.end.min(written.end));
    (start < end).then_some(PageSpan { start, end })
}

/// The file and the pages of a write whose pages the kernel may have locked.
fn cached_write(request: &Request) -> Option<(Ino, Range<u64>)> {
    match request {
        Request::Write { ino, offset, data, direct: false, .. } => {
            Some((*ino, pages_of(*offset..offset.saturating_add(data.0.len() as u64))))
        }
        _ => None,
    }
}

impl Core {
    /// Reads, and notes what of that writes which wait are to be told of.
    pub(crate) fn try_overtake(
        &mut self,
        ino: Ino,
        offset: u64,
        len: u32,
        noatime: bool,
        direct: bool,
    ) -> Try<Reply> {
        let reply = self.try_read(ino, offset, len, noatime)?;
        if !direct {
            self.known.note(ino).uses_mut().fills_pages = true;
            let number = self.number();
            let range = offset..offset.saturating_add(u64::from(len));
            self.overtaken.note_read(ino, range, number, self.clock.now);
        }
        Ok(reply)
    }

    /// A request comes. What was read of the pages that it writes since the kernel may have filled them.
    pub(crate) fn overtaken_on_its_way(&mut self, request: &Request) -> Option<PageSpan> {
        match request {
            Request::Write { ino, offset, data, direct, .. } => {
                let reread = self.overtaken_by(*ino, *offset, data.0.len(), *direct);
                // It is told, and the next one was filled after this one's answer.
                reread.inspect(|_| self.overtaken.arrive(*ino))
            }
            _ => None,
        }
    }

    /// Whether a write that comes may have been overtaken: that is told by [`Reply::Written`].
    pub(crate) fn is_overtaken(&mut self, ino: Ino, offset: u64, len: usize, direct: bool) -> bool {
        self.overtaken_by(ino, offset, len, direct).is_some()
    }

    fn overtaken_by(&mut self, ino: Ino, offset: u64, len: usize, direct: bool) -> Option<PageSpan> {
        if self.overtaken.taken.is_empty() {
            return None;
        }
        let range = offset..offset.saturating_add(len as u64);
        if direct {
            // The kernel drops what it has of that before.
            self.overtaken.void(ino, range);
            return None;
        }
        let reread = self.overtaken.taken.get(&ino)?.of(&pages_of(range), self.clock.now);
        // All of a file that is being taken back goes before anything is written.
        let reread = reread.filter(|_| !self.is_taking_pages(ino));
        if reread.is_none() {
            self.overtaken.arrive(ino);
        }
        reread
    }

    /// Pages of a part of a file are about to be taken back. Returns what to tell [`Core::end_dropping`], if that is to be told.
    pub fn begin_dropping(&mut self, ino: Ino, span: PageSpan) -> Option<u64> {
        self.known.get(&ino).filter(|known| known.is_written())?;
        let number = self.number();
        let taken = self.overtaken.taken.entry(ino).or_default();
        taken.dropping.push((pages_of(span.start..span.end), number));
        Some(number)
    }

    /// The pages of `span` have been taken back: those that had been read before `number`. Returns whether some were read since, so that nobody
    /// knows whether they are there: then they are to be taken back once more.
    pub fn end_dropping(&mut self, ino: Ino, span: PageSpan, number: u64) -> bool {
        let Some(taken) = self.overtaken.taken.get_mut(&ino) else { return false };
        let pages = pages_of(span.start..span.end);
        let is_again = taken.reads.iter().any(|(read, at)| *at > number && common(read, &pages).is_some());
        taken.void(&pages);
        taken.dropping.retain(|(_, of)| *of != number);
        is_again
    }

    /// The pages of `span` have been taken back for a write that is yet to be answered: the kernel fills none for another one before.
    pub fn dropped_for_write(&mut self, ino: Ino, span: PageSpan) {
        self.overtaken.void(ino, span.start..span.end);
    }

    /// The request is put aside.
    pub(crate) fn begin_overtaking(&mut self, id: RequestId, parked: &Parked) {
        if let Some((ino, pages)) = cached_write(&parked.request) {
            self.overtaken.begin(ino, Waiting { id, pages, reread: parked.progress.reread });
        }
    }

    /// Tells who answers a write what was read of it while it waited, or before it came.
    pub(crate) fn hand_over_reread(&mut self, reply: &mut Reply, request: &Request, progress: &Progress) {
        if let Reply::Written { reread, .. } = reply {
            *reread = progress.reread;
            // The next one is filled after this one's answer; and what is taken back for that is not voided.
            if let Some((ino, _)) = cached_write(request) {
                self.overtaken.arrive(ino);
            }
        }
    }

    /// The request is tried again, or given up.
    pub(crate) fn end_overtaking(&mut self, id: RequestId, parked: &mut Parked) {
        if let Some((ino, _)) = cached_write(&parked.request) {
            parked.progress.reread = self.overtaken.end(ino, id);
        }
    }
}

/// Reads of one file that are remembered: the last ones.
const READS_MAX: usize = 256;
/// No write is longer on its way from the kernel's pages to here, but where it is held up by another.
const ON_ITS_WAY_MAX: Micros = Micros(10_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(7);
    const PAGE: u64 = 4096;

    fn waiting(id: u64, range: Range<u64>) -> Waiting {
        Waiting { id: RequestId(id), pages: pages_of(range), reread: None }
    }

    fn note_read(overtaken: &mut Overtaken, ino: Ino, range: Range<u64>) {
        overtaken.note_read(ino, range, 0, Micros(0));
    }

    /// Goal: what is told was read since the write came, and is its own. Method: reads before, beside, across and again.
    #[test]
    fn what_was_read_since_a_write_came_is_told_page_by_page() {
        let mut overtaken = Overtaken::default();
        note_read(&mut overtaken, FILE, 0..PAGE);
        overtaken.begin(FILE, waiting(1, 100..3 * PAGE + 1));
        overtaken.begin(FILE, waiting(2, PAGE..2 * PAGE));
        note_read(&mut overtaken, Ino(8), 0..PAGE);
        note_read(&mut overtaken, FILE, 4 * PAGE..9 * PAGE);
        note_read(&mut overtaken, FILE, 2 * PAGE..2 * PAGE + 1);
        assert_eq!(overtaken.end(FILE, RequestId(2)), None);
        assert_eq!(overtaken.end(FILE, RequestId(1)), Some(PageSpan { start: 2 * PAGE, end: 3 * PAGE }));

        overtaken.begin(FILE, waiting(3, 0..4 * PAGE));
        note_read(&mut overtaken, FILE, 3 * PAGE..8 * PAGE);
        note_read(&mut overtaken, FILE, PAGE..2 * PAGE);
        assert_eq!(overtaken.end(FILE, RequestId(3)), Some(PageSpan { start: PAGE, end: 4 * PAGE }));
        assert!(overtaken.waiting.is_empty());
    }

    /// Goal: of what was read before a write came those pages are told that are there since others were taken back, and for a while only.
    /// Method: as above, with pages that go before and after they are read.
    #[test]
    fn what_was_read_after_pages_were_taken_back_is_told_until_it_goes() {
        let mut taken = Taken::default();
        let now = Micros(5);
        taken.note(0..2 * PAGE, 1, now);
        taken.note(6 * PAGE..7 * PAGE, 2, now);
        taken.note(PAGE..2 * PAGE, 3, now);
        let span = |start, end| Some(PageSpan { start: start * PAGE, end: end * PAGE });
        assert_eq!(taken.of(&pages_of(100..9 * PAGE), now), span(0, 7));
        assert_eq!(taken.of(&pages_of(2 * PAGE..6 * PAGE), now), None);
        taken.void(&(6 * PAGE..7 * PAGE));
        assert_eq!(taken.of(&pages_of(100..9 * PAGE), now), span(0, 2));
        taken.void(&(0..PAGE));
        assert_eq!(taken.of(&pages_of(100..9 * PAGE), now), span(1, 2));
        assert_eq!(taken.of(&pages_of(PAGE..PAGE + 1), now + ON_ITS_WAY_MAX), None);

        for page in 0..2 * READS_MAX as u64 {
            taken.note(page * PAGE..(page + 1) * PAGE, 4, now);
        }
        assert_eq!(taken.reads.len(), READS_MAX);
        assert_eq!(taken.of(&pages_of(0..PAGE), now), None, "of so many the first");
    }
}
