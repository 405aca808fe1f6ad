//! Ranges of files that the kernel's pages may show, or write back, as they were.
//!
//! A direct write, a copy and a hole change a file behind the kernel's page cache. The kernel drops its pages of such a range before it asks for
//! it, or after it has the answer; meanwhile somebody can read a page of it again, and store to another part of that page through a
//! mapping. Then the kernel writes the whole page back, with the range as it was.
//!
//! Invariants:
//!
//! - From the step that changes such a range until its pages are taken back, a [`Shield`] is up, and write-back leaves the range alone. What is stored
//!   to the range itself meanwhile is stored while the call that changes it is under way, so it may count as done before.
//! - It is lowered before the call is answered: what is stored after the answer counts.
//! - Every shield is lowered: by whoever got it with a reply, by the core where the reply got lost, or with the lease.

use std::ops::Range;

use rustc_hash::FxHashMap;
use types::Ino;

use crate::core::Core;
use crate::known::Known;
use crate::outputs::Clock;
use crate::request::{Reply, Reread, Shield};
use crate::wait::{Progress, Try};

/// The shields that are up. Mostly none.
#[derive(Debug, Default)]
pub(crate) struct Shields(FxHashMap<Ino, Vec<Shield>>);

impl Shields {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn lower(&mut self, shield: Shield) {
        if let Some(up) = self.0.get_mut(&shield.ino) {
            up.retain(|other| other.number != shield.number);
            if up.is_empty() {
                self.0.remove(&shield.ino);
            }
        }
    }

    /// The parts of `range` that no shield is before, in order.
    fn bare(&self, ino: Ino, range: Range<u64>) -> Vec<Range<u64>> {
        let mut bare = vec![range];
        for shield in self.0.get(&ino).into_iter().flatten() {
            bare = bare.into_iter().flat_map(|part| without(part, &shield.range())).collect();
        }
        bare
    }
}

/// What reads were answered from lately, page by page: the kernel may have pages of it. Coarser where it gets long.
#[derive(Debug, Default)]
pub(crate) struct Reads(Vec<(Range<u64>, u64)>);

impl Reads {
    /// None.
    pub const NONE: Self = Self(Vec::new());

    /// A read of `range` is answered at `time`, which is later than all before.
    pub fn note(&mut self, range: Range<u64>, time: u64) {
        let mut new = pages_of(range);
        self.0.retain(|(old, _)| {
            let touches = old.start <= new.end && new.start <= old.end;
            if touches {
                new = old.start.min(new.start)..old.end.max(new.end);
            }
            !touches
        });
        if self.0.len() >= READS_MAX {
            let start = self.0.iter().map(|(old, _)| old.start).fold(new.start, u64::min);
            let end = self.0.iter().map(|(old, _)| old.end).fold(new.end, u64::max);
            (self.0, new) = (Vec::new(), start..end);
        }
        self.0.push((new, time));
    }

    /// Whether there may be pages of `range`.
    fn has(&self, range: Range<u64>) -> bool {
        let range = pages_of(range);
        self.0.iter().any(|(read, _)| read.start < range.end && range.start < read.end)
    }

    /// What was read of `range` before `time` is taken back.
    fn take_back(&mut self, range: Range<u64>, time: u64) {
        let range = pages_of(range);
        let old = std::mem::take(&mut self.0).into_iter();
        self.0 = old
            .flat_map(|(read, at)| {
                let left = if at < time { without(read, &range) } else { vec![read] };
                left.into_iter().map(move |part| (part, at))
            })
            .collect();
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Core {
    /// Shields what a direct write changed, if the kernel may have read pages of it since it dropped them. After a write by O_DIRECT that a program
    /// does not wait for it drops none (`fuse_aio_complete` in linux:fs/fuse/file.c).
    pub(crate) fn shield_written(&mut self, ino: Ino, offset: u64, reply: &Reply, progress: &mut Progress) {
        let Reply::Written { len, moved_to, .. } = reply else { return };
        let start = moved_to.unwrap_or(offset);
        let range = start..start + u64::from(*len);
        if self.may_have_pages(ino, &range) {
            self.raise_shield(ino, range, progress);
        }
    }

    /// A write through the kernel's pages is done, which has them filled: a direct write that nobody waits for may have come before it, and be served
    /// after it.
    pub(crate) fn note_filled(&mut self, ino: Ino, offset: u64, len: usize) {
        if self.known.get(&ino).is_none_or(|known| known.uses().fillers == 0) {
            return;
        }
        let time = self.number();
        let uses = self.known.note(ino).uses_mut();
        uses.fills_pages = true;
        uses.reads.note(offset..offset.saturating_add(len as u64), time);
    }

    /// Whether the kernel may have read pages of a range since it dropped them for a direct write.
    pub(crate) fn may_have_pages(&self, ino: Ino, range: &Range<u64>) -> bool {
        let may_have = |known: &Known| {
            let uses = known.uses();
            (uses.fills_pages || uses.appenders > 0 || uses.mappers > 0) && uses.reads.has(range.clone())
        };
        self.known.get(&ino).is_some_and(may_have)
    }

    /// Shields what was changed without the kernel dropping pages of it before, if somebody may have mapped it.
    pub(crate) fn shield_mapped(&mut self, ino: Ino, range: Range<u64>, progress: &mut Progress) {
        if !range.is_empty()
            && self.known.get(&ino).is_some_and(|known| known.uses().mappers > 0 && known.pages_out)
        {
            self.raise_shield(ino, range, progress);
        }
    }

    fn raise_shield(&mut self, ino: Ino, range: Range<u64>, progress: &mut Progress) {
        let shield = Shield { number: self.number(), ino, offset: range.start, len: range.end - range.start };
        self.known.shields.0.entry(ino).or_default().push(shield);
        progress.shield = Some(shield);
    }

    /// The pages of the range are taken back. Call it before the call that the shield came with is answered.
    pub fn lower_shield(&mut self, clock: Clock, shield: Shield) {
        self.clock = clock;
        self.known.shields.lower(shield);
        if let Some(known) = self.known.get_mut(&shield.ino) {
            known.uses_mut().reads.take_back(shield.range(), shield.number);
        }
    }

    /// Gives the shield of a request to who is to lower it.
    pub(crate) fn hand_over_shield(&mut self, mut reply: Reply, progress: &mut Progress) -> Reply {
        let Some(raised) = progress.shield.take() else { return reply };
        match &mut reply {
            Reply::Written { shield, .. } | Reply::Copied { shield, .. } => *shield = Some(raised),
            Reply::Done => reply = Reply::Emptied(raised),
            _ => self.known.shields.lower(raised),
        }
        reply
    }

    /// Writes pages of a mapping back, without what is shielded.
    pub(crate) fn try_write_pages(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        progress: &mut Progress,
    ) -> Try<Reply> {
        let range = offset..offset.saturating_add(data.len() as u64);
        let mut bare = self.known.shields.bare(ino, range.clone());
        if bare == [range] {
            return self.try_write(ino, offset, data, false, progress);
        }
        log::debug!("pages of ino {ino} are written back in parts: {bare:?}");
        bare.retain(|part| !part.is_empty());
        for part in bare {
            let bytes = &data[(part.start - offset) as usize..(part.end - offset) as usize];
            self.try_write(ino, part.start, bytes, false, progress)?;
        }
        Ok(Reply::Written { len: data.len() as u32, moved_to: None, reread: Reread::NONE, shield: None })
    }
}

/// `range` without `hole`: what is before, and what is behind.
pub(crate) fn without(range: Range<u64>, hole: &Range<u64>) -> Vec<Range<u64>> {
    let before = range.start..range.end.min(hole.start);
    let behind = range.start.max(hole.end)..range.end;
    [before, behind].into_iter().filter(|part| part.start < part.end).collect()
}

/// The pages that a range touches.
pub(crate) fn pages_of(range: Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(PAGE_LEN).unwrap_or(u64::MAX);
    range.start / PAGE_LEN * PAGE_LEN..end
}

/// Pages of the kernel.
pub(crate) const PAGE_LEN: u64 = 4096;
/// Ranges that are told apart, of one file.
const READS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(7);

    #[test]
    fn what_is_not_shielded_is_left() {
        let mut shields = Shields::default();
        for (number, offset, len) in [(1, 10, 10), (2, 40, 5), (3, 15, 10)] {
            shields.0.entry(FILE).or_default().push(Shield { number, ino: FILE, offset, len });
        }
        assert_eq!(shields.bare(FILE, 0..100), [0..10, 25..40, 45..100]);
        assert_eq!(shields.bare(FILE, 12..24), []);
        assert_eq!(shields.bare(Ino(8), 12..24), [12..24]);
        shields.lower(Shield { number: 3, ino: FILE, offset: 15, len: 10 });
        assert_eq!(shields.bare(FILE, 12..24), [20..24]);
    }

    #[test]
    fn pages_that_were_read_later_are_not_taken_back() {
        let mut reads = Reads::default();
        reads.note(0..4096, 1);
        reads.note(3 * 4096..5 * 4096, 2);
        assert!(reads.has(100..101) && !reads.has(4096..3 * 4096) && reads.has(4 * 4096 + 1..9 * 4096));
        reads.take_back(4 * 4096..4 * 4096 + 1, 2);
        assert!(reads.has(4 * 4096..5 * 4096), "it was read at 2");
        reads.take_back(4 * 4096..4 * 4096 + 1, 3);
        assert!(!reads.has(4 * 4096..5 * 4096) && reads.has(3 * 4096..4 * 4096));
    }

    #[test]
    fn many_reads_are_remembered_coarsely() {
        let mut reads = Reads::default();
        for page in 0..1_000 {
            reads.note(2 * page * 4096..2 * page * 4096 + 1, page);
        }
        assert!(reads.0.len() <= READS_MAX);
        assert!((0..1_000).all(|page| reads.has(2 * page * 4096..2 * page * 4096 + 1)));
        assert!(!reads.has(2_000 * 4096..3_000 * 4096));
    }
}
