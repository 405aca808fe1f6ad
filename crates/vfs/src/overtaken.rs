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
//!   to the answer, so only the first WRITE after that can have been filled before. What was read since, and not taken back again, is there and up to
//!   date, unless the kernel has dropped it by itself, or is just being taken back: then the write may have locked what it has filled instead. So the answer waits
//!   for no more than such a call takes where nobody has the page locked.

use std::ops::Range;

use rustc_hash::FxHashMap;
use types::{Ino, Micros};

use crate::core::Core;
use crate::request::{PageSpan, Reply, Request, RequestId, Reread};
use crate::shield::{PAGE_LEN, pages_of, without};
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
    /// What was read of that since it came, or before.
    reread: Reread,
}

/// What the kernel has read of a file since pages of it were taken back.
#[derive(Debug, Default)]
struct Taken {
    /// Pages, and the number of the read.
    reads: Vec<(Range<u64>, u64)>,
    /// When the last of them were.
    read_at: Micros,
    /// The calls that take back a part just now.
    drops: Vec<Drop>,
}

/// A call that takes back a part of a file.
#[derive(Debug)]
struct Drop {
    pages: Range<u64>,
    number: u64,
    /// Whether some of that was read since it began.
    is_read: bool,
    /// How often it was made before.
    rounds: u32,
}

impl Taken {
    fn note(&mut self, pages: Range<u64>, number: u64, now: Micros) {
        self.read_at = now;
        for drop in &mut self.drops {
            drop.is_read |= common(&pages, &drop.pages).is_some();
        }
        self.reads.retain(|(old, _)| old.start < pages.start || old.end > pages.end);
        if self.reads.len() >= READS_MAX {
            self.reads.remove(0);
        }
        self.reads.push((pages, number));
    }

    /// What was read of `pages` before `number` is gone.
    fn void(&mut self, pages: &Range<u64>, number: u64) {
        let old = std::mem::take(&mut self.reads).into_iter();
        self.reads = old
            .flat_map(|(read, at)| {
                let left = if at < number { without(read, pages) } else { vec![read] };
                left.into_iter().map(move |part| (part, at))
            })
            .collect();
    }

    /// What a write of `pages` that comes now may have been overtaken by.
    fn of(&self, pages: &Range<u64>, now: Micros) -> Reread {
        let is_late = now >= self.read_at + ON_ITS_WAY_MAX;
        let parts = self.reads.iter().filter(|_| !is_late).filter_map(|(read, _)| common(read, pages));
        Reread { surely: None, perhaps: parts.reduce(PageSpan::hull) }
    }
}

impl Overtaken {
    fn begin(&mut self, ino: Ino, waiting: Waiting) {
        self.waiting.entry(ino).or_default().push(waiting);
    }

    fn end(&mut self, ino: Ino, id: RequestId) -> Option<Reread> {
        let list = self.waiting.get_mut(&ino)?;
        let at = list.iter().position(|waiting| waiting.id == id)?;
        let reread = list.swap_remove(at).reread;
        if list.is_empty() {
            self.waiting.remove(&ino);
        }
        Some(reread)
    }

    /// A READ of `range` that fills pages is answered.
    fn note_read(&mut self, ino: Ino, range: Range<u64>, number: u64, now: Micros) {
        let read = pages_of(range);
        for waiting in self.waiting.get_mut(&ino).into_iter().flatten() {
            if let Some(read) = common(&read, &waiting.pages) {
                let surely = &mut waiting.reread.surely;
                *surely = Some(surely.map_or(read, |before| before.hull(read)));
            }
        }
        if let Some(taken) = self.taken.get_mut(&ino) {
            taken.note(read, number, now);
        }
    }

    /// All pages of a file that is open for writing are about to be taken back, once more perhaps.
    pub fn note_taking(&mut self, ino: Ino) {
        self.taken.entry(ino).or_default();
    }

    /// All pages of a file that is open for writing are gone.
    pub fn note_taken(&mut self, ino: Ino) {
        self.taken.entry(ino).or_default().reads.clear();
        for waiting in self.waiting.get_mut(&ino).into_iter().flatten() {
            waiting.reread = Reread::NONE;
        }
    }

    /// What was read of this range is gone.
    fn void(&mut self, ino: Ino, range: Range<u64>) {
        if let Some(taken) = self.taken.get_mut(&ino) {
            taken.void(&pages_of(range), u64::MAX);
        }
    }

    /// No write is on its way whose pages were filled before now. `is_going`: all pages are being taken back.
    fn arrive(&mut self, ino: Ino, is_going: bool) {
        if let Some(taken) = self.taken.get_mut(&ino) {
            taken.reads.clear();
            // What these take back may be filled for the next one by now.
            if taken.drops.is_empty() && !is_going {
                self.taken.remove(&ino);
            }
        }
    }

    /// Nobody writes a file any more.
    pub fn close(&mut self, ino: Ino) {
        self.arrive(ino, false);
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
            let is_noted = self.overtaken.taken.contains_key(&ino);
            let number = if is_noted { self.number() } else { 0 };
            let range = offset..offset.saturating_add(u64::from(len));
            self.overtaken.note_read(ino, range, number, self.clock.now);
        }
        Ok(reply)
    }

    /// Whether a write of a file has to wait for the right to it.
    pub fn lacks_right_to_write(&self, ino: Ino) -> bool {
        !self.may_write_content(ino)
    }

    /// A request comes. What was read of the pages that it writes since the kernel may have filled them.
    pub(crate) fn overtaken_on_its_way(&mut self, request: &Request) -> Reread {
        let Request::Write { ino, offset, data, direct, .. } = request else { return Reread::NONE };
        let reread = self.overtaken_by(*ino, *offset, data.0.len(), *direct);
        if !*direct {
            self.write_arrives(*ino);
        }
        reread
    }

    /// What a write that comes may have been overtaken by: that is told by [`Reply::Written`].
    pub(crate) fn overtaken_by(&mut self, ino: Ino, offset: u64, len: usize, direct: bool) -> Reread {
        if self.overtaken.taken.is_empty() {
            return Reread::NONE;
        }
        let range = offset..offset.saturating_add(len as u64);
        if direct {
            // The kernel drops what it has of that before.
            self.overtaken.void(ino, range);
            return Reread::NONE;
        }
        let taken = self.overtaken.taken.get(&ino);
        taken.map_or(Reread::NONE, |taken| taken.of(&pages_of(range), self.clock.now))
    }

    /// A request is here, or answered, that the kernel makes under the lock of a file: pages that it fills for a write are filled after that.
    pub(crate) fn write_arrives(&mut self, ino: Ino) {
        if !self.overtaken.taken.is_empty() {
            let is_going = self.is_taking_pages(ino);
            self.overtaken.arrive(ino, is_going);
        }
    }

    /// The kernel is made to take an end of a file, and drops the pages behind it; all of them, and under the lock of the file, if `is_locked`.
    pub fn end_is_taken(&mut self, ino: Ino, end: u64, is_locked: bool) {
        match is_locked {
            true => self.write_arrives(ino),
            false => self.overtaken.void(ino, end.saturating_add(PAGE_LEN - 1)..u64::MAX),
        }
    }

    /// The kernel drops all pages of a file that is opened.
    pub(crate) fn pages_go_with_open(&mut self, ino: Ino) {
        if self.known.get(&ino).is_some_and(|known| known.is_written()) {
            self.overtaken.note_taken(ino);
        }
    }

    /// Pages of a part of a file are about to be taken back. Returns what to tell [`Core::end_dropping`].
    pub fn begin_dropping(&mut self, ino: Ino, span: PageSpan) -> u64 {
        let number = self.number();
        let drop = Drop { pages: pages_of(span.start..span.end), number, is_read: false, rounds: 0 };
        self.overtaken.taken.entry(ino).or_default().drops.push(drop);
        number
    }

    /// The pages of `span` have been taken back: those that had been read before `number`. Where some were read since, nobody knows whether they are
    /// there: then they are to be taken back once more, and this is what to tell after that.
    pub fn end_dropping(&mut self, ino: Ino, span: PageSpan, number: u64) -> Option<u64> {
        let is_written = self.known.get(&ino).is_some_and(|known| known.is_written());
        let next = self.number();
        let taken = self.overtaken.taken.get_mut(&ino)?;
        let at = taken.drops.iter().position(|drop| drop.number == number);
        let ended = at.map(|at| taken.drops.swap_remove(at));
        taken.void(&pages_of(span.start..span.end), number);
        let again = ended.filter(|drop| drop.is_read && drop.rounds < DROP_ROUNDS_MAX && is_written);
        let again = again.map(|drop| Drop { number: next, rounds: drop.rounds + 1, is_read: false, ..drop });
        let is_again = again.is_some();
        taken.drops.extend(again);
        if !is_written {
            self.overtaken.close(ino);
        }
        is_again.then_some(next)
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
        }
        match request {
            Request::Write { ino, direct: false, .. } => self.write_arrives(*ino),
            // From the answers to these the kernel drops pages, all of them or some.
            Request::SetAttr { ino, .. } | Request::Allocate { ino, .. } | Request::Copy { ino, .. } => {
                self.write_arrives(*ino);
            }
            _ => {}
        }
    }

    /// The request is tried again, or given up.
    pub(crate) fn end_overtaking(&mut self, id: RequestId, parked: &mut Parked) {
        if let Some((ino, _)) = cached_write(&parked.request) {
            parked.progress.reread = self.overtaken.end(ino, id).unwrap_or_default();
        }
    }
}

/// Reads of one file that are remembered: the last ones.
const READS_MAX: usize = 256;
/// How often a part that is read all the time is taken back again.
const DROP_ROUNDS_MAX: u32 = 4;
/// No write is longer on its way from the kernel's pages to here, but where it is held up by another.
const ON_ITS_WAY_MAX: Micros = Micros(10_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(7);
    const PAGE: u64 = 4096;

    fn waiting(id: u64, range: Range<u64>) -> Waiting {
        Waiting { id: RequestId(id), pages: pages_of(range), reread: Reread::NONE }
    }

    fn surely(start: u64, end: u64) -> Reread {
        Reread { surely: Some(PageSpan { start: start * PAGE, end: end * PAGE }), perhaps: None }
    }

    fn perhaps(start: u64, end: u64) -> Reread {
        Reread { surely: None, perhaps: surely(start, end).surely }
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
        assert_eq!(overtaken.end(FILE, RequestId(2)), Some(Reread::NONE));
        assert_eq!(overtaken.end(FILE, RequestId(1)), Some(surely(2, 3)));

        overtaken.begin(FILE, waiting(3, 0..4 * PAGE));
        note_read(&mut overtaken, FILE, 3 * PAGE..8 * PAGE);
        note_read(&mut overtaken, FILE, PAGE..2 * PAGE);
        assert_eq!(overtaken.end(FILE, RequestId(3)), Some(surely(1, 4)));

        overtaken.begin(FILE, waiting(4, 0..4 * PAGE));
        note_read(&mut overtaken, FILE, 0..2 * PAGE);
        overtaken.note_taken(FILE);
        note_read(&mut overtaken, FILE, PAGE..2 * PAGE);
        assert_eq!(overtaken.end(FILE, RequestId(4)), Some(surely(1, 2)), "all were gone once");
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
        let of = |taken: &Taken, range| taken.of(&pages_of(range), now);
        assert_eq!(of(&taken, 100..9 * PAGE), perhaps(0, 7));
        assert_eq!(of(&taken, 2 * PAGE..6 * PAGE), Reread::NONE);
        taken.void(&(0..2 * PAGE), 3);
        assert_eq!(of(&taken, 100..9 * PAGE), perhaps(1, 7), "it was read at 3");
        taken.void(&(6 * PAGE..7 * PAGE), u64::MAX);
        assert_eq!(of(&taken, 100..9 * PAGE), perhaps(1, 2));
        assert_eq!(taken.of(&pages_of(PAGE..PAGE + 1), now + ON_ITS_WAY_MAX), Reread::NONE);

        for page in 0..2 * READS_MAX as u64 {
            taken.note(page * PAGE..(page + 1) * PAGE, 4, now);
        }
        assert_eq!(taken.reads.len(), READS_MAX);
        assert_eq!(of(&taken, 0..PAGE), Reread::NONE, "of so many the first");
    }
}
