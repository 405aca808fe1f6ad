//! Ends of files as the kernel has them.
//!
//! The kernel does not always take the size that an answer tells. It drops it if a write is under way, or was answered
//! since it asked, or an invalidation came; and having taken it, it zeroes the last page behind it some time
//! later, even if that page was filled meanwhile from a file that has grown further (fuse:
//! `kernel_cache.rs`). While a file is open here, either would show. So an answer that tells of a later end than the
//! kernel surely has is held back until it has been brought there in a way that cannot fail.
//!
//! What this node's own cached writes move needs no such thing as long as nobody else may write: whoever saw one of them
//! return finds the kernel's end behind it, and while one is under way the kernel takes no size from an answer.
//!
//! What they write past the kernel's pages moves its end only when the kernel takes in the answer, and takes a size from other answers meanwhile. So that counts for
//! whoever asks after it is surely done: the thread that wrote, and whoever holds the lock of the file.
//!
//! Nor does it always take an earlier end. From a read that meets one it does so only if nothing changed on its side since
//! it asked, another such read among that, and fills the rest of the page with zeros either way. So what meets or tells an
//! end before the one that the kernel may have is held back, too, until the kernel was seen to have no later one.

use meta::FileKind;
use types::{Ino, LockMode, Micros};

use crate::core::Core;
use crate::judged::{ON_ITS_WAY, Permissions};
use crate::known::{Known, Naming};
use crate::lately::Lately;
use crate::outputs::Clock;
use crate::request::{Attr, Reply};
use crate::wait::Try;

/// An end to bring the kernel to before an answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterEnd {
    /// The file.
    pub ino: Ino,
    /// Its generation, as the kernel was told.
    pub generation: u32,
    /// What the kernel has at least. Pages from here on may show zeros where there are bytes now.
    pub from: u64,
    /// What the answer tells.
    pub to: u64,
    /// When the answer was made.
    pub since: Micros,
    /// What to do if an earlier end is told meanwhile, for one who goes by the kernel's: to bring it to what there is.
    pub otherwise: Option<Outdated>,
    /// How often the end had been told to be an earlier one by then.
    lowered: u32,
}

/// An inode of which the kernel may have something else than there is, which would show once an answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The inode.
    pub ino: Ino,
    /// Its generation, as the kernel was told.
    pub generation: u32,
    /// The attributes of the answer, `None` of a read: pages that it is to fill are locked until it is given.
    pub told: Option<Attr>,
    /// It may have a later end of the file.
    pub end: bool,
    /// It may judge by other permissions.
    pub permissions: bool,
    /// Who waits for the answer.
    pub asker: Asker,
}

/// Who waits for an answer about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Somebody who does not hold the lock of the file.
    Other,
    /// Somebody who does not either, and whom the kernel may judge by what it has then, without another question.
    Judged,
    /// Somebody who holds it until he has the answer.
    Holder,
    /// A thread that asks by an open file, and holds it if it is in lseek(2), not if it reads past the end.
    Thread(u32),
}

/// What the kernel was seen to have of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The end of a file.
    pub end: u64,
    /// What it judges by.
    pub permissions: Permissions,
}

/// What is known of the kernel's end of a file.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// The end that it was told last, or moved to itself since.
    last: u64,
    /// When it was last told of an end, or moved one itself: the answer may still be on its way.
    moved: Lately,
    /// The generation that the kernel was told with the file.
    generation: u32,
    /// `None` while that is all there is, of a file that was told of with one end and not opened.
    bounds: Option<Box<Bounds>>,
}

/// Between what the kernel's end of a file is.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    /// It has this much at least.
    sure: u64,
    /// It has no more, but for what is being raised.
    most: u64,
    /// The end that it was seen to have last, if it was told of no later one since and has moved none itself.
    seen: Option<u64>,
    /// The end of the file that a read met last.
    met: u64,
    /// How many answers wait for it to be raised.
    raising: u32,
    /// How far, at most, while there are any.
    raised_to: u64,
    /// The furthest that cached writes of this node went, answered ones among them.
    written: u64,
    /// Where writes past its pages have it, of which the kernel need not have taken in the answers yet.
    moving: Option<Moving>,
    /// A part of such a write was refused: where the kernel goes then it says nowhere. Until nobody has the file open for writing.
    is_doubtful: bool,
    /// Since when a truncation here is done, of which the answer was not made.
    cut: Option<Micros>,
    /// From when on `sure` and `written` were all there was, unless somebody else wrote.
    settled: Micros,
    /// How often the kernel was told of an earlier end, than it has or is to be brought to.
    lowered: u32,
}

/// An end that the kernel moves when it takes in the answers to direct writes: under the lock of the file, which it holds from before it
/// asks for the first part of a write until after the last (`fuse_direct_write_iter` in linux:fs/fuse/file.c).
#[derive(Clone, Copy, Debug)]
struct Moving {
    end: u64,
    /// Who wrote; 0: nobody in sight.
    thread: u32,
}

impl Bounds {
    /// What the kernel has at least when it takes in an answer to `asker`: who holds the lock of the file took it after the write, and who
    /// wrote has returned from that.
    fn sure_for(&self, asker: Asker) -> u64 {
        let is_done = |moving: &Moving| match asker {
            Asker::Holder => true,
            Asker::Thread(thread) => thread != 0 && thread == moving.thread,
            Asker::Other | Asker::Judged => false,
        };
        self.moving.filter(is_done).map_or(self.sure, |moving| self.sure.max(moving.end))
    }

    /// The furthest that this node's own writes have the kernel go.
    fn own(&self) -> u64 {
        self.written.max(self.moving.map_or(0, |moving| moving.end))
    }
}

impl End {
    fn bounds(&self) -> Bounds {
        let told = || Bounds { sure: self.last, most: self.last, ..Bounds::default() };
        self.bounds.as_deref().copied().unwrap_or_else(told)
    }

    fn bounds_mut(&mut self) -> &mut Bounds {
        let now = self.bounds();
        self.bounds.get_or_insert_with(|| Box::new(now))
    }

    /// The kernel is told of an end, and may take it.
    fn tell(&mut self, end: u64, now: Micros) {
        self.lower(end);
        self.reach(end, now);
        self.last = end;
    }

    /// The kernel is told of an end with an inode that it does not know, and takes it.
    fn begin(&mut self, end: u64) {
        match &mut self.bounds {
            None if end >= self.last => self.last = end,
            _ => self.bounds_mut().sure = end,
        }
    }

    /// The kernel may take this end if it is an earlier one.
    fn lower(&mut self, end: u64) {
        if self.bounds.is_none() && end >= self.last {
            return;
        }
        let bounds = self.bounds_mut();
        let raised_to = if bounds.raising > 0 { bounds.raised_to } else { 0 };
        bounds.lowered += u32::from(end < bounds.sure.max(bounds.own()).max(raised_to));
        bounds.sure = bounds.sure.min(end);
        bounds.written = bounds.written.min(end);
        bounds.moving = bounds.moving.map(|moving| Moving { end: moving.end.min(end), ..moving });
    }

    /// The kernel has this end, or takes it soon.
    fn reach(&mut self, end: u64, now: Micros) {
        if self.bounds.is_some() || end > self.last {
            let bounds = self.bounds_mut();
            bounds.most = bounds.most.max(end);
            bounds.seen = bounds.seen.filter(|seen| *seen >= end);
        }
        self.last = self.last.max(end);
        self.moved = Lately::at(now);
    }

    /// Whether an answer that tells of it may still be on its way.
    pub(crate) fn was_told_lately(&self, now: Micros) -> bool {
        self.moved.is_within(ON_ITS_WAY, now)
    }

    /// The generation that the kernel was told with the inode; the root's is never told.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The answer to a truncation is made.
    pub(crate) fn note_cut_told(&mut self) {
        if let Some(bounds) = &mut self.bounds {
            bounds.cut = None;
        }
    }

    /// The file is opened or closed: no write is under way where nobody has it open for writing.
    pub(crate) fn settle(&mut self, is_closed: bool, has_no_writers: bool, now: Micros) {
        let bounds = self.bounds_mut();
        if has_no_writers {
            bounds.sure = bounds.sure.max(bounds.own());
            (bounds.moving, bounds.is_doubtful) = (None, false);
        }
        if is_closed {
            bounds.settled = now;
        }
    }
}

impl Core {
    /// What is to be done before `reply` is given to the kernel for `asker`, then told by [`end_reached`](Self::end_reached).
    pub fn later_end(&mut self, reply: &Reply, asker: Asker) -> Option<LaterEnd> {
        let end = match reply {
            Reply::Attr(attr, _) => self.later_end_of(attr, asker),
            Reply::Entry(entry) | Reply::Created(entry, _) => self.later_end_of(&entry.attr, asker),
            _ => None,
        }?;
        if let Some(known) = self.known.get_mut(&end.ino) {
            let bounds = known.end.bounds_mut();
            let others = if bounds.raising > 0 { bounds.raised_to } else { 0 };
            bounds.raised_to = others.max(end.to);
            bounds.raising += 1;
        }
        Some(end)
    }

    fn later_end_of(&self, attr: &Attr, asker: Asker) -> Option<LaterEnd> {
        let ino = attr.ino;
        let Known { end, .. } = self.known.get(&ino).filter(|known| known.is_open())?;
        let bounds = end.bounds();
        if attr.kind != FileKind::File || attr.size <= bounds.sure_for(asker) {
            return None;
        }
        if attr.size <= bounds.written && self.alone_since(ino).is_some_and(|since| since <= bounds.settled) {
            return None;
        }
        let (Bounds { sure: from, lowered, .. }, generation) = (bounds, end.generation);
        let told = Some(*attr);
        let otherwise = Outdated { ino, generation, told, end: true, permissions: false, asker };
        let otherwise = Some(otherwise).filter(|_| matches!(asker, Asker::Thread(_)));
        Some(LaterEnd { ino, generation, from, to: attr.size, since: self.clock.now, otherwise, lowered })
    }

    /// Since when nobody else may have changed the content.
    fn alone_since(&self, ino: Ino) -> Option<Micros> {
        let resource = self.content_resource(ino)?;
        self.tokens.granted_at(resource).filter(|_| self.tokens.usable(resource) == LockMode::Ex)
    }

    /// Whether the kernel was told of no earlier end since: to bring it to this one would undo what has been answered.
    pub fn is_end_due(&self, end: LaterEnd) -> bool {
        self.known.get(&end.ino).is_some_and(|known| known.end.bounds().lowered == end.lowered)
    }

    /// The kernel has this end now, or a later one; or it is not [due](Self::is_end_due) any more.
    pub fn end_reached(&mut self, end: LaterEnd) {
        let is_due = self.is_end_due(end);
        let Some(known) = self.known.get_mut(&end.ino) else { return };
        if is_due {
            known.end.reach(end.to, self.clock.now);
        }
        let bounds = known.end.bounds_mut();
        bounds.raising = bounds.raising.saturating_sub(1);
        match is_due {
            true => {
                bounds.sure = bounds.sure.max(end.to);
                bounds.settled = bounds.settled.max(end.since);
            }
            // It may have had it for a moment.
            false => bounds.most = bounds.most.max(end.to),
        }
    }

    /// For a read of `ino` that was answered with less than it asked for: what is to be done before the kernel is given
    /// the answer, until it [is current](Self::is_current).
    pub fn earlier_end_met(&mut self, ino: Ino) -> Option<Outdated> {
        let Known { end, .. } = self.known.get(&ino)?;
        let Bounds { most, met, raising, .. } = end.bounds();
        if most <= met && raising == 0 {
            return None;
        }
        let of = Outdated {
            ino,
            generation: end.generation,
            told: None,
            end: true,
            permissions: false,
            asker: Asker::Other,
        };
        self.note_served(ino);
        Some(of)
    }

    /// Whether the kernel may have a later end of a file than an answer is about to tell.
    pub(crate) fn tells_earlier_end(&self, attr: &Attr) -> bool {
        let ino = attr.ino;
        let is_file = attr.kind == FileKind::File;
        let Some(known) = self.known.get(&ino).filter(|known| known.is_open() && is_file) else {
            return false;
        };
        // What is told from elsewhere may be older than pages that are read meanwhile, which the kernel would zero behind it. Nobody
        // sees them before its end is raised, and they are taken back before that; but own writes raise it themselves.
        if known.is_written() && !self.shows_content(ino) {
            return false;
        }
        // The most counts what is being raised for other answers.
        known.end.bounds().most > attr.size
    }

    /// Whether reads are answered from what is here. While the file is open for writing here, none is under PR
    /// ([`need_content`](Self::need_content)): one that waits would keep the kernel from dropping its page.
    fn shows_content(&self, ino: Ino) -> bool {
        let mode = self.mode_to_read(ino);
        let is_held = |resource| {
            self.tokens.usable(resource).permits(mode)
                || self.is_dropping(resource) && self.tokens.held(resource).permits(mode)
        };
        self.content_resource(ino).is_some_and(is_held)
            || mode == LockMode::Pr && self.old_content.contains_key(&ino)
    }

    /// Whether the kernel may have this end of a file.
    pub fn may_end_at(&self, ino: Ino, end: u64) -> bool {
        self.known.get(&ino).is_some_and(|known| {
            let Bounds { sure, most, .. } = known.end.bounds();
            (sure..=most).contains(&end)
        })
    }

    /// Where a file ends that the kernel was told of, or wrote itself, last.
    pub fn last_end(&self, ino: Ino) -> Option<u64> {
        self.known.get(&ino).map(|known| known.end.last)
    }

    /// Whether the kernel would move an end if it were told of these attributes.
    pub(crate) fn moves_end(&self, attr: &Attr) -> bool {
        self.later_end_of(attr, Asker::Other).is_some()
            || self.tells_earlier_end(attr)
            || self.is_end_elsewhere(attr)
    }

    /// Whether these attributes tell of an earlier end than the kernel may have, which is another node's to say, while the kernel may fill pages here.
    fn is_end_elsewhere(&self, attr: &Attr) -> bool {
        let known = self.known.get(&attr.ino).filter(|_| attr.kind == FileKind::File);
        let may_have_later = |known: &Known| {
            let Bounds { most, seen, .. } = known.end.bounds();
            most.min(seen.unwrap_or(most)) > attr.size
        };
        known.is_some_and(may_have_later) && self.may_fill_pages(attr.ino) && !self.shows_content(attr.ino)
    }

    /// Waits until the end that these attributes tell of may be told: an earlier one is given to a kernel that may fill pages with all that is done for it, and
    /// that takes to hold the content.
    pub(crate) fn need_end(&mut self, attr: &Attr) -> Try<()> {
        match self.is_end_elsewhere(attr) {
            true => self.need_content(attr.ino, LockMode::Pr).map(drop),
            false => Ok(()),
        }
    }

    /// What names the end that the kernel has of a file, whatever it is; `None` if it is not open here.
    pub fn end_of(&self, ino: Ino) -> Option<Outdated> {
        let known = self.known.get(&ino).filter(|known| known.is_open())?;
        let generation = known.end.generation;
        Some(Outdated { ino, generation, told: None, end: true, permissions: false, asker: Asker::Other })
    }

    /// Whether the kernel has what there is now, if that can be told.
    pub fn is_current(&mut self, of: Outdated, seen: Seen) -> Option<bool> {
        let is_behind = of.permissions && self.permissions_now(of.ino)? != seen.permissions;
        Some(!is_behind && !(of.end && self.is_beyond(of, seen.end)?))
    }

    /// Whether the kernel has an end that it may not go on with: a later one than there is. Who goes by the kernel's end, and not by what he is told, must find
    /// what he is told or what there is by then; not one of before he asked, though the file may have grown beyond that again.
    fn is_beyond(&mut self, of: Outdated, end: u64) -> Option<bool> {
        let now = self.end_now(of)?;
        let goes_by_it = matches!(of.asker, Asker::Thread(_));
        let is_of_before = goes_by_it && end != now && of.told.is_some_and(|told| end != told.size);
        Some(end > now || is_of_before)
    }

    /// The kernel was seen to have this.
    pub fn seen(&mut self, clock: Clock, of: Outdated, seen: Seen) {
        self.clock = clock;
        if of.permissions {
            self.permissions_seen(of.ino, seen.permissions);
        }
        if of.end {
            self.end_seen(of.ino, seen.end);
        }
    }

    /// The end of a file as reads are answered now, or as it was told last if its content is not here.
    pub fn end_now(&mut self, of: Outdated) -> Option<u64> {
        let ino = of.ino;
        let live = self.live.get(&ino).map(|live| live.size);
        let content = self.content_under(ino, LockMode::Pr).or_else(|| self.old_content.get(&ino).cloned());
        match content {
            Some(content) => Some(live.unwrap_or(content.size)),
            None => self.told_last(of).map(|attr| attr.size),
        }
    }

    /// The kernel was seen to have this end.
    fn end_seen(&mut self, ino: Ino, end: u64) {
        let now = self.clock.now;
        if let Some(known) = self.known.get_mut(&ino)
            && known.end.bounds().raising == 0
        {
            let is_settled = !known.end.moved.is_within(TOLD_WITHIN, now);
            let bounds = known.end.bounds_mut();
            bounds.seen = Some(end);
            if is_settled {
                // What was answered of a long write moves it when all is.
                bounds.most = end.max(bounds.own());
            }
        }
    }

    /// Attributes for a kernel that is made to ask: it has READs to wait for until it is answered,
    /// so nothing may be waited for here. Those that were told if none are here, with what was told last. With `end`, if given: the one that the kernel has.
    pub fn attr_now(&mut self, of: Outdated, end: Option<u64>) -> Option<Attr> {
        let attr = self.attr_here(of.ino).map(|(attr, _)| attr).or_else(|| self.told_last(of))?;
        let Some(size) = end else {
            self.note_told(&attr);
            return Some(attr);
        };
        // It has moved on since.
        let is_old = self.last_end(of.ino).is_none_or(|last| last > size);
        let attr = Attr { size, ..attr };
        self.note_permissions(&attr);
        Some(attr).filter(|_| !is_old)
    }

    /// Whether the kernel may be about to fill pages of a file for a write that nobody here has heard of. Appends fill none.
    pub fn may_fill_pages(&self, ino: Ino) -> bool {
        self.known.get(&ino).is_some_and(|known| known.uses().writers > known.uses().appenders)
    }

    /// An answer may be given after one that was made later, and told of more.
    fn told_last(&self, of: Outdated) -> Option<Attr> {
        let Known { end, judged, .. } = self.known.get(&of.ino)?;
        of.told.map(|attr| judged.told_last(Attr { size: end.last, ..attr }))
    }

    /// A write that goes through the kernel's pages moves its end there before it returns.
    pub fn end_written(&mut self, ino: Ino, end: u64) {
        let now = self.clock.now;
        if let Some(known) = self.known.get_mut(&ino) {
            let bounds = known.end.bounds_mut();
            bounds.written = bounds.written.max(end);
            known.end.reach(end, now);
        }
    }

    /// The kernel is told of attributes, and may take from them what it has of the inode.
    pub(crate) fn note_told(&mut self, attr: &Attr) {
        self.note_permissions(attr);
        let now = self.clock.now;
        if let Some(known) = self.known.get_mut(&attr.ino) {
            known.end.tell(attr.size, now);
        }
        if attr.ino == Ino::ROOT {
            self.root_told = Some(*attr);
        }
    }

    /// The attributes of the root that the kernel was told last, which it may be told again at any time if it keeps them for no longer than for
    /// that.
    pub fn root_told(&self) -> Option<Attr> {
        self.root_told
    }

    /// A read from `offset` on was answered that met the end of the file: the kernel may take an earlier end from it.
    pub(crate) fn note_read_end(&mut self, ino: Ino, offset: u64, end: u64) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.end.bounds_mut().met = end;
            known.end.lower(end.max(offset));
        }
    }

    /// The kernel takes this end from the answer to its own truncation, and from no earlier answer then; until it has taken
    /// it in, it has the later one.
    pub(crate) fn note_truncated(&mut self, ino: Ino, end: u64) {
        let now = self.clock.now;
        if let Some(known) = self.known.get_mut(&ino) {
            // What it has until then is not the last that it was told of.
            known.end.bounds_mut();
            known.end.lower(end);
            known.end.last = end;
            known.end.moved = Lately::at(now);
        }
    }

    /// A truncation here is done. Whoever reads meets its end from here on, and the kernel is answered later.
    pub(crate) fn note_cut(&mut self, ino: Ino) {
        let now = self.clock.now;
        if let Some(known) = self.known.get_mut(&ino) {
            known.end.bounds_mut().cut = Some(now);
        }
    }

    /// Whether the kernel is about to be answered a truncation. It takes the end then, and waits for nothing first; but something else may still be
    /// waited for, or the request have failed since, so that this is good for a while only.
    pub fn is_cut_untold(&self, clock: Clock, ino: Ino) -> bool {
        let cut = self.known.get(&ino).and_then(|known| known.end.bounds.as_ref()?.cut);
        cut.is_some_and(|since| clock.now < since + CUT_TOLD_WITHIN)
    }

    /// The kernel moves its end there once it is answered, not through its pages.
    pub fn end_moved(&mut self, ino: Ino, end: u64) {
        let now = self.clock.now;
        if let Some(known) = self.known.get_mut(&ino) {
            known.end.reach(end, now);
        }
    }

    /// The same for a direct write of `thread`. One that makes the file longer has its lock until the kernel has moved the end, so those that other threads
    /// made before are done; the other parts of this one need not be.
    ///
    /// One that does not may be answered long after it gave the lock back, if nobody waits for it (`fuse_direct_IO` in linux:fs/fuse/file.c), and moves nothing.
    pub fn end_moved_by(&mut self, ino: Ino, end: u64, thread: u32) {
        let now = self.clock.now;
        if let Some(known) = self.known.get_mut(&ino) {
            let bounds = known.end.bounds_mut();
            if end > bounds.most && !bounds.is_doubtful {
                let is_others = |moving: &Moving| thread != 0 && ![0, thread].contains(&moving.thread);
                if let Some(moving) = bounds.moving.take_if(|moving| is_others(moving)) {
                    bounds.sure = bounds.sure.max(moving.end);
                }
                bounds.moving = Some(Moving { end, thread });
            }
            known.end.reach(end, now);
        }
    }

    /// A direct write is refused, or a part of one: how far the kernel gets with that is not known.
    pub fn direct_write_refused(&mut self, ino: Ino) {
        if let Some(known) = self.known.get_mut(&ino) {
            let bounds = known.end.bounds_mut();
            (bounds.moving, bounds.is_doubtful) = (None, true);
        }
    }

    /// The kernel is told of an inode, perhaps for the first time: then it has what it is told.
    pub(crate) fn note_entry_told(&mut self, attr: &Attr) {
        let known = self.known.note(attr.ino);
        if known.naming == Naming::None {
            known.naming = Naming::First;
        }
        if known.lookups == 0 && !known.is_open() {
            known.end.begin(attr.size);
        }
        // The kernel has no other of the root's, whatever leads there.
        known.end.generation = if attr.ino == Ino::ROOT { 0 } else { attr.generation };
        self.note_entry_permissions(attr);
        self.note_told(attr);
    }
}

/// A truncation that is done is mostly answered by then: in microseconds.
const CUT_TOLD_WITHIN: Micros = Micros(500_000);
/// An answer that was made this long ago has reached the kernel: in microseconds.
const TOLD_WITHIN: Micros = Micros(1_000_000);
