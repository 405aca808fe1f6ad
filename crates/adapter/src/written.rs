//! How a write is answered, and what the kernel then has wrong is taken from it.
//!
//! Three cases leave pages behind that show older bytes, or zeros behind the older end: the bytes went elsewhere than
//! the kernel believes (O_APPEND); a page was read while the write waited, or before it came; and a page was read between the
//! moment when the kernel dropped those that it was about to write directly and the write's arrival here. Direct
//! writes lock no page, so the pages go before the answer, and the program reads what it wrote. A cached write may
//! hold the lock of the last page, which it fills in part: there the answer must come first. What it surely does not lock
//! goes before the answer too ([`unlocked`]).
//!
//! Never on the thread that called: a page may be locked by a read that the kernel has asked and nobody has taken
//! from its queue yet, and the transport's thread, this one perhaps, is the one that takes.

use std::sync::Arc;

use types::Ino;
use vfs::{PageSpan, Request, Reread, Shield};

use crate::call::{Call, Waited};
use crate::invalidate::First;
use crate::reply::{Answer, WriteShape};
use crate::request::PAGE_LEN;
use crate::server::{Driver, send};

/// Where written bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub len: u32,
    pub moved_to: Option<u64>,
    /// Pages that the kernel has read since the write came, or since it may have filled them.
    pub reread: Reread,
    pub shield: Option<Shield>,
    pub waited: Waited,
}

/// The pages that the kernel has filled whole for a cached write before it asked: they can be seen, and stored into through mappings, before the node may write.
pub(crate) fn filled(request: &Request) -> Option<(Ino, PageSpan)> {
    let Request::Write { ino, offset, data, direct: false, append: false, .. } = request else { return None };
    let end = offset.saturating_add(data.0.len() as u64);
    let span = PageSpan { start: ceil(*offset), end: end / PAGE_LEN * PAGE_LEN };
    (span.start < span.end).then_some((*ino, span))
}

/// Answers a write, and takes from the kernel what it then has wrong.
pub(crate) fn finish<D: Driver>(driver: &D, mut call: Call, shape: WriteShape, placed: Placed) {
    let Placed { len, moved_to, shield, waited, .. } = placed;
    let answer = Answer::Written(len);
    if shield.is_some() {
        call.note_shield(shield);
        return send(driver, call, answer);
    }
    match moved_to {
        Some(at) if shape.direct && len > 0 => {
            let metrics = Arc::clone(driver.metrics());
            let then = Box::new(move || call.finish(&metrics, answer));
            driver.corrector().range(shape.ino, at, len, Some(then));
        }
        None if shape.direct => call.finish(driver.metrics(), answer),
        None if waited == Waited::No && !placed.reread.is_some() => call.finish(driver.metrics(), answer),
        Some(_) | None if len == 0 => call.finish(driver.metrics(), answer),
        Some(_) | None => finish_cached(driver, call, shape, placed),
    }
}

fn finish_cached<D: Driver>(driver: &D, call: Call, shape: WriteShape, placed: Placed) {
    let answer = Answer::Written(placed.len);
    let first = unlocked(shape.offset, placed);
    let perhaps = placed.reread.perhaps;
    if first.is_empty() && perhaps.is_none() {
        call.finish(driver.metrics(), answer);
        return invalidate(driver, shape, placed);
    }
    log::trace!("before the answer to a write to ino {}: {first:?}", shape.ino);
    let metrics = Arc::clone(driver.metrics());
    let is_told_all = placed.moved_to.is_none() && placed.waited == Waited::No;
    let later: Vec<PageSpan> = wrong(shape, placed).filter(|_| !is_told_all).collect();
    driver.corrector().pages(
        shape.ino,
        First { surely: &first, perhaps },
        Box::new(move || call.finish(&metrics, answer)),
        &later,
    );
}

/// Takes back the pages of what was written, and of what the kernel believes was.
pub(crate) fn invalidate<D: Driver>(driver: &D, shape: WriteShape, placed: Placed) {
    for span in wrong(shape, placed) {
        driver.corrector().range(shape.ino, span.start, (span.end - span.start) as u32, None);
    }
}

fn wrong(shape: WriteShape, placed: Placed) -> impl Iterator<Item = PageSpan> {
    let at = [Some(shape.offset), placed.moved_to].into_iter().flatten();
    at.filter(move |_| placed.len > 0).map(move |start| covering(start, placed.len))
}

/// Of the pages that a cached write to `offset` leaves wrong, those that it does not keep locked: what was read since it came; and if
/// the bytes went elsewhere, what it fills whole, and what it has nothing to do with, as the kernel believes.
fn unlocked(offset: u64, placed: Placed) -> Vec<PageSpan> {
    let end = offset.saturating_add(u64::from(placed.len));
    let believed = covering(offset, placed.len);
    let mut within = placed.reread.surely;
    let mut list = Vec::new();
    if let Some(at) = placed.moved_to {
        let filled = PageSpan { start: ceil(offset), end: end / PAGE_LEN * PAGE_LEN };
        if filled.start < filled.end {
            within = Some(within.map_or(filled, |reread| reread.hull(filled)));
        }
        let there = covering(at, placed.len);
        list.push(PageSpan { start: there.start, end: there.end.min(believed.start) });
        list.push(PageSpan { start: there.start.max(believed.end), end: there.end });
    }
    list.extend(within);
    list.retain(|span| span.start < span.end);
    list
}

/// The pages that a range touches.
fn covering(offset: u64, len: u32) -> PageSpan {
    PageSpan { start: offset / PAGE_LEN * PAGE_LEN, end: ceil(offset.saturating_add(u64::from(len))) }
}

fn ceil(offset: u64) -> u64 {
    offset.div_ceil(PAGE_LEN).saturating_mul(PAGE_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(offset: u64, len: u32, moved_to: Option<u64>, reread: Option<(u64, u64)>) -> Vec<(u64, u64)> {
        let surely = reread.map(|(start, end)| PageSpan { start: start * PAGE_LEN, end: end * PAGE_LEN });
        let reread = Reread { surely, perhaps: None };
        let placed = Placed { len, moved_to, reread, shield: None, waited: Waited::Yes };
        let list = unlocked(offset, placed);
        list.iter().map(|span| (span.start / PAGE_LEN, span.end / PAGE_LEN)).collect()
    }

    /// Goal: nothing is waited for that the write may have locked, which is the last page, filled in part. Method: writes within a page,
    /// across some, and to another place before, behind and beside.
    #[test]
    fn what_a_write_may_have_locked_waits_for_its_answer() {
        let page = PAGE_LEN;
        assert_eq!(spans(100, 50, None, None), []);
        assert_eq!(spans(100, 3 * page as u32, None, None), []);
        assert_eq!(spans(100, 50, None, Some((0, 1))), [(0, 1)], "nobody reads a page that is locked");
        assert_eq!(spans(100, 3 * page as u32, None, Some((1, 2))), [(1, 2)]);

        assert_eq!(spans(100, 50, Some(10 * page), None), [(10, 11)]);
        assert_eq!(spans(100, 50, Some(150), None), [], "the same page");
        assert_eq!(spans(100, 3 * page as u32, Some(page + 100), None), [(4, 5), (1, 3)]);
        assert_eq!(spans(5 * page, page as u32, Some(page), None), [(1, 2), (5, 6)]);
        assert_eq!(spans(5 * page + 1, 9, Some(page), Some((5, 6))), [(1, 2), (5, 6)]);
    }
}
