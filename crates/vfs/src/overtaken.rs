//! Writes through the kernel's pages that wait, and READs of the same pages that are answered before them.
//!
//! The kernel fills a page before it sends the WRITE, and unlocks it if it is up to date. If the page goes while the WRITE waits, a READ may bring it
//! again as it was: it has to be taken back before the WRITE is answered, or its own node sees for a moment what was before. But a
//! page that the write fills in part and that was not up to date stays locked until the answer, and taking it back waits for
//! that lock. A READ that came after the WRITE tells the one from the other: the kernel sends none for a page that is locked.
//!
//! Only the last pages of a WRITE are ever locked, so whatever lies between two pages that were read is not.

use std::ops::Range;

use rustc_hash::FxHashMap;
use types::Ino;

use crate::core::Core;
use crate::request::{PageSpan, Reply, Request, RequestId};
use crate::shield::pages_of;
use crate::wait::{Parked, Progress, Try};

/// The writes that wait, by file. Mostly none.
#[derive(Debug, Default)]
pub(crate) struct Overtaken(FxHashMap<Ino, Vec<Waiting>>);

#[derive(Debug)]
struct Waiting {
    id: RequestId,
    /// What it writes as the kernel believes, in whole pages.
    pages: Range<u64>,
    /// What was read of that since it came.
    reread: Option<PageSpan>,
}

impl Overtaken {
    fn begin(&mut self, ino: Ino, waiting: Waiting) {
        self.0.entry(ino).or_default().push(waiting);
    }

    fn end(&mut self, ino: Ino, id: RequestId) -> Option<PageSpan> {
        let list = self.0.get_mut(&ino)?;
        let at = list.iter().position(|waiting| waiting.id == id)?;
        let reread = list.swap_remove(at).reread;
        if list.is_empty() {
            self.0.remove(&ino);
        }
        reread
    }

    /// A READ of `range` that fills pages is answered.
    pub fn note_read(&mut self, ino: Ino, range: Range<u64>) {
        let read = pages_of(range);
        for waiting in self.0.get_mut(&ino).into_iter().flatten() {
            let (start, end) = (read.start.max(waiting.pages.start), read.end.min(waiting.pages.end));
            if start < end {
                let read = PageSpan { start, end };
                waiting.reread = Some(waiting.reread.map_or(read, |before| before.hull(read)));
            }
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
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
            self.overtaken.note_read(ino, offset..offset.saturating_add(u64::from(len)));
        }
        Ok(reply)
    }

    /// The request is put aside.
    pub(crate) fn begin_overtaking(&mut self, id: RequestId, parked: &Parked) {
        if let Some((ino, pages)) = cached_write(&parked.request) {
            self.overtaken.begin(ino, Waiting { id, pages, reread: parked.progress.reread });
        }
    }

    /// The request is tried again, or given up.
    pub(crate) fn end_overtaking(&mut self, id: RequestId, parked: &mut Parked) {
        if let Some((ino, _)) = cached_write(&parked.request) {
            parked.progress.reread = self.overtaken.end(ino, id);
        }
    }
}

/// Tells who answers a write what was read of it while it waited.
pub(crate) fn hand_over_reread(reply: &mut Reply, progress: &Progress) {
    if let Reply::Written { reread, .. } = reply {
        *reread = progress.reread;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(7);
    const PAGE: u64 = 4096;

    fn waiting(id: u64, range: Range<u64>) -> Waiting {
        Waiting { id: RequestId(id), pages: pages_of(range), reread: None }
    }

    /// Goal: what is told was read since the write came, and is its own. Method: reads before, beside, across and again.
    #[test]
    fn what_was_read_since_a_write_came_is_told_page_by_page() {
        let mut overtaken = Overtaken::default();
        overtaken.note_read(FILE, 0..PAGE);
        overtaken.begin(FILE, waiting(1, 100..3 * PAGE + 1));
        overtaken.begin(FILE, waiting(2, PAGE..2 * PAGE));
        overtaken.note_read(Ino(8), 0..PAGE);
        overtaken.note_read(FILE, 4 * PAGE..9 * PAGE);
        overtaken.note_read(FILE, 2 * PAGE..2 * PAGE + 1);
        assert_eq!(overtaken.end(FILE, RequestId(2)), None);
        assert_eq!(overtaken.end(FILE, RequestId(1)), Some(PageSpan { start: 2 * PAGE, end: 3 * PAGE }));

        overtaken.begin(FILE, waiting(3, 0..4 * PAGE));
        overtaken.note_read(FILE, 3 * PAGE..8 * PAGE);
        overtaken.note_read(FILE, PAGE..2 * PAGE);
        assert_eq!(overtaken.end(FILE, RequestId(3)), Some(PageSpan { start: PAGE, end: 4 * PAGE }));
        assert!(overtaken.0.is_empty());
    }
}
