//! File content: reads, writes, truncation, holes.

use std::collections::BTreeSet;
use std::ops::Range;

use chunk::ChunkError;
use meta::{Body, Content, FsError};
use obs::OperationKind;
use types::{Ino, LockMode, ResourceId};
use wire::{FetchWhat, ToMaster, Want};

use crate::cache::Place;
use crate::core::Core;
use crate::live::{Live, extent_parts, inline_overlay, pages_of};
use crate::request::{AllocateMode, ReadJob, Reply, RequestId, Reread, Via, WriteNow};
use crate::shield::PAGE_LEN;
use crate::wait::{Progress, Step, Try, WaitKey};

/// Largest file: what the kernel's signed offset can name.
pub(crate) const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// Writes of at least this many bytes go to a segment at once.
const WRITE_THROUGH_LEN: usize = 128 << 10;
/// A file with this many bytes in memory only is stored at once.
const STAGE_LEN: usize = 1 << 20;

impl Core {
    /// What covers the content of `ino`, as last seen.
    pub(crate) fn content_resource(&self, ino: Ino) -> Option<ResourceId> {
        match self.place(ino) {
            Place::Covered(parent, _) => Some(ResourceId::dir(parent)),
            Place::Own => Some(ResourceId::file(ino)),
            Place::Unknown => None,
        }
    }

    /// Whether content may be changed here now.
    pub(crate) fn may_write_content(&self, ino: Ino) -> bool {
        self.content_resource(ino).is_some_and(|r| {
            self.tokens.usable(r) == LockMode::Ex
                || self.is_dropping(r) && self.tokens.held(r) == LockMode::Ex && self.known_has_pages(ino)
        })
    }

    fn known_has_pages(&self, ino: Ino) -> bool {
        self.known.get(&ino).is_some_and(|k| k.pages_out)
    }

    /// The logged content of `ino` if it may be used in `mode`.
    pub(crate) fn content_under(&mut self, ino: Ino, mode: LockMode) -> Option<Content> {
        let resource = self.content_resource(ino)?;
        let may = self.tokens.try_use(self.clock.now, resource, mode)
            || self.is_dropping(resource) && self.tokens.held(resource).permits(mode);
        if !may {
            return None;
        }
        match self.place(ino) {
            Place::Covered(parent, cookie) => {
                let entry = self.cache.dirs.get(&parent)?.entries.get(&cookie)?;
                let inode = entry.dirent.covered().filter(|_| entry.dirent.ino == ino)?;
                Some(inode.content.clone())
            }
            Place::Own => self.cache.owns.get(&ino)?.content.clone(),
            Place::Unknown => None,
        }
    }

    /// What is needed to read content. While it is open for writing here it is held in EX or not at all: a write that waits
    /// holds page locks, and would wait for itself if pages under PR had to go first.
    pub(crate) fn mode_to_read(&self, ino: Ino) -> LockMode {
        match self.known.get(&ino).is_some_and(|known| known.is_written()) {
            true => LockMode::Ex,
            false => LockMode::Pr,
        }
    }

    /// Waits until content may be used in `mode`, and returns it as logged.
    pub(crate) fn need_content(&mut self, ino: Ino, mode: LockMode) -> Try<Content> {
        let mode = if mode == LockMode::Pr { self.mode_to_read(ino) } else { mode };
        if mode == LockMode::Ex
            && let Place::Covered(parent, _) = self.place(ino)
            && self.frozen.contains_key(&parent)
            && self.tokens.usable(ResourceId::dir(parent)) == LockMode::Ex
        {
            return Err(Step::Wait(WaitKey::Thawed(parent)));
        }
        // Pages filled earlier are being taken back: the old content is what they show.
        if mode == LockMode::Pr
            && self.old_content.contains_key(&ino)
            && self.content_under(ino, mode).is_none()
            && let Some(content) = self.old_content.get(&ino)
        {
            return Ok(content.clone());
        }
        self.need_content_held(ino, mode)
    }

    /// Waits until content is held in `mode`, and returns it as logged.
    pub(crate) fn need_content_held(&mut self, ino: Ino, mode: LockMode) -> Try<Content> {
        if let Some(content) = self.content_under(ino, mode) {
            return Ok(content);
        }
        let want = match mode {
            LockMode::Ex => Want::Write { ino },
            LockMode::Pr | LockMode::Nl => Want::Read { ino },
        };
        Err(Step::Wait(self.want(want)))
    }

    pub(crate) fn try_read(&mut self, ino: Ino, offset: u64, wanted: u32, noatime: bool) -> Try<Reply> {
        let content = self.need_content(ino, LockMode::Pr)?;
        if !noatime {
            self.note_read(ino);
        }
        let size = self.live.get(&ino).map_or(content.size, |live| live.size);
        let asked = offset..offset.saturating_add(u64::from(wanted));
        let end = asked.end.min(size);
        if end < asked.end {
            self.note_read_end(ino, offset, size);
        }
        if offset >= end {
            // The kernel may keep a page of zeros behind the end, which another node can move.
            self.note_read_served(ino, asked);
            return Ok(Reply::Data(Vec::new()));
        }
        let range = offset..end;
        let len = (end - offset) as usize;
        let (parts, overlay) = match (self.live.get(&ino), &content.body) {
            (Some(live), _) => {
                if let Some(pages) = live.missing_pages(&range) {
                    return Err(Step::Wait(self.fetch_pages(ino, pages, size)));
                }
                live.read(range)
            }
            (None, Body::Empty {} | Body::Target { .. }) => (Vec::new(), Vec::new()),
            (None, Body::Inline { data }) => (Vec::new(), inline_overlay(data, &range)),
            (None, Body::Extents { map }) => (extent_parts(map, &range), Vec::new()),
            (None, Body::Paged { .. }) => {
                let pages = pages_of(&range);
                if let Some(pages) = self.pages.first_gap(ino, &pages) {
                    return Err(Step::Wait(self.fetch_pages(ino, pages, size)));
                }
                let maps = self.pages.in_range(ino, pages);
                (maps.flat_map(|map| extent_parts(map, &range)).collect(), Vec::new())
            }
        };
        self.metrics.operations_local.add(OperationKind::Read, 1);
        self.note_read_served(ino, asked);
        if parts.is_empty() {
            let mut data = vec![0; len];
            for (at, bytes) in overlay {
                data[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            return Ok(Reply::Data(data));
        }
        let pin = self.number();
        self.pins.insert(pin, ino);
        *self.pinned.entry(ino).or_default() += 1;
        Ok(Reply::ReadJob(ReadJob { ino, len, parts, overlay, pin }))
    }

    /// The read job that got `pin` is done: its bytes are with the kernel.
    pub fn read_done(&mut self, clock: crate::outputs::Clock, pin: u64) {
        self.clock = clock;
        let Some(ino) = self.pins.remove(&pin) else { return };
        if let Some(count) = self.pinned.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.pinned.remove(&ino);
            }
        }
        // The kernel may have forgotten it before this thread came to say so.
        if self.known.get(&ino).is_some() {
            self.note_served(ino);
        }
        self.settle();
    }

    fn note_read_served(&mut self, ino: Ino, range: Range<u64>) {
        self.note_served(ino);
        let time = self.number();
        let known = self.known.note(ino);
        let uses = known.uses_mut();
        uses.reads.note(range, time);
        uses.read_at = time;
    }

    /// The kernel is given pages of `ino`.
    pub(crate) fn note_served(&mut self, ino: Ino) {
        let time = self.number();
        let known = self.known.note(ino);
        known.pages_out = true;
        known.uses_mut().served_at = time;
        self.note_out(ino);
    }

    /// Writes at once if that needs no waiting. `None`: submit the write as a request of its own.
    ///
    /// This spares the copy of the bytes that a waiting request needs.
    ///
    /// `accepted` is called, once at most, when a long write can no longer be refused and its bytes are still to be stored: whoever asked may
    /// be told that all is written, and goes on meanwhile. What cannot be stored after that stays in memory, as what short writes bring does,
    /// for the next flush to store or to say why not.
    pub fn write_now(
        &mut self,
        clock: crate::outputs::Clock,
        write: &WriteNow<'_>,
        accepted: Option<&mut dyn FnMut()>,
    ) -> Option<Reply> {
        let WriteNow { ino, offset, data, via, is_exempt } = *write;
        self.clock = clock;
        let is_plain = !self.config.sync && !self.has_capability(ino);
        if !is_plain || !self.may_serve_pages() || self.broken.contains_key(&ino) {
            return None;
        }
        let is_cached = matches!(via, Via::Cache { .. });
        if via != Via::WriteBack && self.overtaken_by(ino, offset, data.len(), !is_cached).is_some() {
            return None;
        }
        let is_exempt = is_exempt || via == Via::WriteBack;
        let mut progress = Progress { is_exempt, ..Progress::new(clock.now, 0, RequestId(0)) };
        let written = match via {
            Via::Cache { append } => {
                self.try_write_accepting(ino, offset, data, append, &mut progress, accepted)
            }
            Via::Direct { append } => {
                let range = offset..offset.saturating_add(data.len() as u64);
                // Who reads those must not find what was there once it is answered.
                let accepted = accepted.filter(|_| !append && !self.may_have_pages(ino, &range));
                let written = self.try_write_accepting(ino, offset, data, append, &mut progress, accepted);
                written.inspect(|reply| self.shield_written(ino, offset, reply, &mut progress))
            }
            Via::WriteBack => self.try_write_pages(ino, offset, data, &mut progress),
        };
        let reply = match written {
            Ok(reply) | Err(Step::Done(reply)) => {
                if is_cached {
                    self.write_arrives(ino);
                    self.note_filled(ino, offset, data.len());
                }
                Some(self.hand_over_shield(reply, &mut progress))
            }
            Err(Step::Wait(_)) => None,
        };
        self.settle();
        reply
    }

    pub(crate) fn try_write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        append: bool,
        progress: &mut Progress,
    ) -> Try<Reply> {
        self.try_write_accepting(ino, offset, data, append, progress, None)
    }

    /// As [`try_write`](Self::try_write), with `accepted` as for [`write_now`](Self::write_now).
    fn try_write_accepting(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        append: bool,
        progress: &mut Progress,
        accepted: Option<&mut dyn FnMut()>,
    ) -> Try<Reply> {
        if self.config.read_only {
            return Err(FsError::ReadOnly.into());
        }
        self.refuse_lost(ino)?;
        // With little room left nothing is promised: what is written finds its place now, or is refused now.
        let is_tight = self.is_space_tight();
        let content = self.need_content(ino, LockMode::Ex)?;
        self.need_space(data.len() as u64)?;
        let size = self.live.get(&ino).map_or(content.size, |live| live.size);
        let at = if append { size } else { offset };
        let end = at.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        let Some(end) = end else { return Err(FsError::TooLarge.into()) };
        let range = at..end;
        self.need_write_room()?;
        self.need_memory(data.len())?;
        self.need_log_room(ino)?;
        // Last: what was made changeable and not changed would be flushed by whoever waits for room, again and again.
        self.need_live(ino, &content, &range)?;
        self.promise_write(ino, &range, progress)?;

        let stored = self.store_write(ino, (at, data), is_tight, accepted);
        let dirty = self.live.get(&ino).map_or(0, Live::dirty_bytes);
        if stored.is_err() {
            self.settle_pending(ino);
        }
        if dirty > 0 {
            self.dirty_files.insert(ino);
        }
        stored?;
        self.note_part(ino, &range);
        self.make_segment_ahead();
        self.metrics.operations_local.add(OperationKind::Write, 1);
        self.note_served(ino);
        let moved_to = (append && at != offset).then_some(at);
        Ok(Reply::Written { len: data.len() as u32, moved_to, reread: Reread::NONE, shield: None })
    }

    /// A kernel that has not the page in which a write begins sends what the write has for that page by itself, and the rest at once when it has its
    /// answer (`fuse_fill_write_pages` in linux:fs/fuse/file.c). Nobody else's write is to come between the two.
    fn note_part(&mut self, ino: Ino, range: &Range<u64>) {
        let Some(resource) = self.content_resource(ino) else { return };
        match !range.start.is_multiple_of(PAGE_LEN) && range.end.is_multiple_of(PAGE_LEN) {
            true => self.tokens.note_begun(self.clock.now, resource, ino),
            false => self.tokens.note_rest(self.clock.now, resource, ino),
        }
    }

    /// Writes to a file that is changeable: to a segment at once, or to memory.
    fn store_write(
        &mut self,
        ino: Ino,
        (at, data): (u64, &[u8]),
        is_tight: bool,
        accepted: Option<&mut dyn FnMut()>,
    ) -> Try<()> {
        let (now, range) = (self.clock.wall, at..at + data.len() as u64);
        let is_failing = self.flush_failed.keys().any(|ino| self.unstored(*ino).is_some());
        let (Some(live), Some(writer)) = (self.live.get_mut(&ino), self.writer.as_mut()) else {
            return Err(FsError::Io.into());
        };
        if let Err(error) = live.leave_record(writer, ino, range.end) {
            return self.take_store_result(Err(error));
        }
        let stays_inline = live.is_inline() && range.end <= self.config.inline_bytes_max as u64;
        if data.len() < WRITE_THROUGH_LEN && (!is_tight || stays_inline) {
            // Before: what could not be stored after the write would be written once more, appended perhaps.
            let is_much = live.dirty_bytes() > 0 && live.dirty_bytes() + data.len() >= STAGE_LEN;
            let staged = if is_much { live.stage(writer, ino) } else { Ok(()) };
            if staged.is_ok() {
                if live.dirty_bytes() == 0 {
                    // That was of other bytes.
                    self.flush_failed.remove(&ino);
                }
                live.write(at, data, now);
            }
            return self.take_store_result(staged);
        }
        // Only the store can refuse it then, and of one that does no more is taken than this.
        let may_accept = !is_tight
            && data.len() >= WRITE_THROUGH_LEN
            && live.appends_at_once(&range)
            && writer.has_segments_for(data.len() as u64)
            && !is_failing;
        let accepted = accepted.filter(|_| may_accept);
        let is_accepted = accepted.map(|accepted| accepted()).is_some();
        match live.write_through(writer, ino, at, data, now) {
            Err(error) if is_accepted => {
                log::error!("segment store: {error}: {} bytes of ino {ino} stay in memory", data.len());
                live.write(at, data, now);
                self.note_unstored(ino, &error);
                Ok(())
            }
            stored => self.take_store_result(stored),
        }
    }

    /// Waits until what a write adds may be promised.
    fn promise_write(&mut self, ino: Ino, range: &Range<u64>, progress: &mut Progress) -> Try<()> {
        if !self.quota.binds() {
            return Ok(());
        }
        let growth = self.live.get(&ino).map_or(0, |live| live.growth(range));
        self.promise_bytes(ino, growth, progress)
    }

    /// Maps an error of the segment store: waits for segments, or refuses.
    pub(crate) fn take_store_result(&mut self, result: Result<(), ChunkError>) -> Try<()> {
        if self.writer.as_ref().is_some_and(|w| w.segments_ready() < SEGMENTS_LOW) {
            self.ask_numbers();
        }
        match result {
            Ok(()) => Ok(()),
            Err(ChunkError::NeedSegments { .. }) => {
                self.ask_numbers();
                Err(Step::Wait(WaitKey::Numbers))
            }
            Err(ChunkError::Full { .. }) => Err(FsError::NoSpace.into()),
            Err(error) => {
                log::error!("segment store: {error}");
                self.metrics.errors_unknown.add(1);
                Err(FsError::Io.into())
            }
        }
    }

    /// Writes wait while too much is stored and not durable: unflushed content is bounded.
    pub(crate) fn need_write_room(&mut self) -> Try<()> {
        let Some(writer) = &self.writer else { return Err(Step::Wait(WaitKey::Member)) };
        let unsynced = writer.unsynced_bytes();
        let limit = self.unsynced_limit();
        if unsynced > limit {
            return Err(Step::Wait(WaitKey::Flush(self.flush_all())));
        }
        if unsynced > (limit / 4).min(FLUSH_LEN) && self.flushes.is_empty() {
            self.flush_by_parts();
        }
        if self.log.bytes() > self.config.log_bytes_max {
            return Err(self.wait_for_log_room());
        }
        Ok(())
    }

    /// Bytes that may be stored and not synced: what becomes durable in some seconds.
    fn unsynced_limit(&self) -> u64 {
        let most = self.config.unsynced_bytes_max;
        match self.space.sync_rate {
            0 => most,
            rate => rate.saturating_mul(UNSYNCED_SECS).clamp(UNSYNCED_MIN.min(most), most),
        }
    }

    /// Learns from a flush how fast content becomes durable here.
    pub(crate) fn note_sync_rate(&mut self, bytes: u64, us: u64) {
        if bytes >= RATE_BYTES_MIN {
            let rate = bytes.saturating_mul(1_000_000) / us.max(1);
            let before = self.space.sync_rate;
            self.space.sync_rate = if before == 0 { rate } else { before / 4 * 3 + rate / 4 }.max(1);
        }
    }

    /// Bytes of content in memory only.
    pub(crate) fn content_in_memory(&self) -> usize {
        self.live.values().map(Live::memory_bytes).sum()
    }

    /// Room in memory for `len` more bytes of content: over the limit everything is stored first.
    fn need_memory(&mut self, len: usize) -> Try<()> {
        // One write must fit, or it would wait for ever.
        let most = self.config.dirty_bytes_max.max(WRITE_THROUGH_LEN);
        self.space.memory_at_most = self.space.memory_at_most.saturating_add(len);
        if len >= WRITE_THROUGH_LEN || self.space.memory_at_most <= most {
            return Ok(());
        }
        self.space.memory_at_most = self.content_in_memory() + len;
        if self.space.memory_at_most <= most {
            return Ok(());
        }
        let mut inos: Vec<Ino> = self.live.keys().copied().collect();
        inos.sort_unstable();
        let job = self.flush(&inos);
        self.space.memory_at_most = self.content_in_memory() + len;
        match job {
            // Files on their way into the log stay in memory until they are there.
            Some(job) if self.space.memory_at_most > most => Err(Step::Wait(WaitKey::Flush(job))),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes wait while what is to be logged of their file is more than a batch should have.
    fn need_log_room(&mut self, ino: Ino) -> Try<()> {
        let is_much = |live: &Live| live.capture_bytes() > CAPTURE_BYTES_MAX && !live.failed;
        if !self.live.get(&ino).is_some_and(is_much) {
            return Ok(());
        }
        match self.flush(&[ino]) {
            Some(job) => Err(Step::Wait(WaitKey::Flush(job))),
            None => Ok(()),
        }
    }

    /// Makes the newer content of a file changeable, with the extents of `range` loaded.
    fn need_live(&mut self, ino: Ino, content: &Content, range: &Range<u64>) -> Try<()> {
        if !self.live.contains_key(&ino) {
            // Once it is changeable any flush may log it, and throw away what was loaded of much.
            if let Body::Paged { .. } = content.body {
                let pages = pages_of(&(range.start.min(content.size)..range.end.min(content.size)));
                if let Some(pages) = self.pages.first_gap(ino, &pages) {
                    return Err(Step::Wait(self.fetch_pages(ino, pages, content.size)));
                }
            }
            // Whoever waited for room since the caller looked may have flushed what was newer, into the record.
            let logged = self.content_under(ino, LockMode::Ex);
            let mut live = Live::new(logged.as_ref().unwrap_or(content), self.config.inline_bytes_max);
            live.load(self.pages.take(ino));
            self.live.insert(ino, live);
        }
        match self.live.get(&ino).and_then(|live| live.missing_pages(range).map(|pages| (pages, live.size))) {
            Some((pages, size)) => Err(Step::Wait(self.fetch_pages(ino, pages, size))),
            None => Ok(()),
        }
    }

    /// Sets the size of a file: of a very large one in steps, each of which is seen and stored by itself.
    pub(crate) fn truncate(&mut self, ino: Ino, size: u64) -> Try<()> {
        if size > FILE_SIZE_MAX {
            return Err(FsError::TooLarge.into());
        }
        loop {
            let content = self.need_content(ino, LockMode::Ex)?;
            let old = self.live.get(&ino).map_or(content.size, |live| live.size);
            let cut = size.min(old)..old.max(size);
            self.need_log_room(ino)?;
            self.need_live(ino, &content, &cut)?;
            let now = self.clock.wall;
            let Some(live) = self.live.get_mut(&ino) else { return Err(FsError::Io.into()) };
            let step = live.cut_to(size, CUT_PAGES_MAX);
            if step <= size || step >= old {
                live.truncate(size, now);
                break;
            }
            live.truncate(step, now);
            if let Some(job) = self.flush(&[ino]) {
                return Err(Step::Wait(WaitKey::Flush(job)));
            }
        }
        self.note_cut(ino);
        self.metrics.operations_local.add(OperationKind::Truncate, 1);
        Ok(())
    }

    pub(crate) fn try_allocate(
        &mut self,
        (ino, offset, len): (Ino, u64, u64),
        mode: AllocateMode,
        progress: &mut Progress,
    ) -> Try<Reply> {
        if self.config.read_only {
            return Err(FsError::ReadOnly.into());
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX);
        let Some(end) = end else { return Err(FsError::TooLarge.into()) };
        let content = self.need_content(ino, LockMode::Ex)?;
        let size = self.live.get(&ino).map_or(content.size, |live| live.size);
        let (punches, new_size) = match mode {
            AllocateMode::Extend => (false, size.max(end)),
            AllocateMode::KeepSize => (false, size),
            AllocateMode::PunchHole | AllocateMode::ZeroRangeKeepSize => (true, size),
            AllocateMode::ZeroRange => (true, size.max(end)),
        };
        let hole = offset..end.min(size).max(offset);
        self.need_log_room(ino)?;
        self.need_live(ino, &content, &hole)?;
        if mode == AllocateMode::Extend || mode == AllocateMode::KeepSize {
            let space = self.space();
            let lacking = self.live.get(&ino).map_or(len, |live| live.growth(&(offset..end)));
            if space.known && space.free_bytes.saturating_sub(self.space_reserve()) < lacking {
                return Err(FsError::NoSpace.into());
            }
        }
        let now = self.clock.wall;
        let punches = punches && !hole.is_empty();
        if punches && let (Some(live), Some(writer)) = (self.live.get_mut(&ino), self.writer.as_mut()) {
            let room = live.make_room(writer, ino, &hole);
            self.take_store_result(room)?;
        }
        // A very large one is made in steps, each of which is seen and stored by itself.
        let from = self.live.get(&ino).map_or(hole.start, |live| live.punch_from(&hole, CUT_PAGES_MAX));
        if punches && from > hole.start {
            if let Some(live) = self.live.get_mut(&ino) {
                live.punch(from..hole.end, now);
            }
            if let Some(job) = self.flush(&[ino]) {
                return Err(Step::Wait(WaitKey::Flush(job)));
            }
            // Where there is no room for what is newer, all of the hole may make some.
            if self.unstored(ino) != Some(FsError::NoSpace) {
                self.refuse_unstored(ino)?;
            }
        }
        let Some(live) = self.live.get_mut(&ino) else { return Err(FsError::Io.into()) };
        if punches {
            live.punch(hole.clone(), now);
        }
        if new_size > live.size {
            live.truncate(new_size, now);
        }
        // As on other file systems, whether anything changed or not.
        live.touch(now);
        let size = live.size;
        self.end_moved(ino, size);
        if punches {
            self.shield_mapped(ino, hole, progress);
        }
        self.metrics.operations_local.add(OperationKind::Fallocate, 1);
        Ok(Reply::Done)
    }

    pub(crate) fn try_seek(&mut self, ino: Ino, offset: u64, for_hole: bool) -> Try<Reply> {
        let content = self.need_content(ino, LockMode::Pr)?;
        let size = self.live.get(&ino).map_or(content.size, |live| live.size);
        if offset >= size {
            return Err(FsError::NoData.into());
        }
        let in_live = |live: &Live| {
            let found = if for_hole { Some(live.seek_hole(offset)) } else { live.seek_data(offset) };
            (found, live.missing_pages(&(offset..size)))
        };
        let (found, missing) = match (self.live.get(&ino), &content.body) {
            (Some(live), _) => in_live(live),
            (None, Body::Paged { .. }) => {
                let loaded = self.pages.of(ino);
                let found = match for_hole {
                    true => Some(loaded.map_or(offset, |loaded| loaded.seek_hole(offset)).min(size)),
                    false => loaded.and_then(|loaded| loaded.seek_data(offset)).filter(|at| *at < size),
                };
                (found, self.pages.first_gap(ino, &pages_of(&(offset..size))))
            }
            (None, _) => in_live(&Live::new(&content, self.config.inline_bytes_max)),
        };
        // What is found before the first page that is not here stands, whatever is in that.
        if let Some(pages) = missing
            && found.is_none_or(|found| found >= pages.start * Body::PAGE_SPAN)
        {
            return Err(Step::Wait(self.fetch_pages(ino, pages, size)));
        }
        found.map(Reply::Offset).ok_or(FsError::NoData.into())
    }

    /// Asks the master for pages of extents, once, and for some behind them up to the file's end: whoever reads on needs them, and a
    /// reader here and there in a large file asks less often. In a file in small pieces these are fewer.
    pub(crate) fn fetch_pages(&mut self, ino: Ino, pages: Range<u64>, size: u64) -> WaitKey {
        let ahead = (pages.start + self.pages.asked_of(ino)).min(size.div_ceil(Body::PAGE_SPAN));
        self.fetch(FetchWhat::ExtentPages { ino, from: pages.start, to: pages.end.max(ahead) })
    }

    /// Asks the master for a record, once.
    pub(crate) fn fetch(&mut self, what: FetchWhat) -> WaitKey {
        if !self.fetches.contains_key(&what) {
            let request = self.number();
            self.fetches.insert(what, request);
            self.fetch_of.insert(request, what);
            // What the master reads must hold what this node has logged.
            self.send_batch(false);
            self.send(ToMaster::Fetch { request, what });
        }
        WaitKey::Fetch(what)
    }

    /// Pages of extents are as old as the right to them. Those on their way were read before it was given back: they
    /// are asked for again by whoever still needs them.
    pub(crate) fn drop_pages(&mut self, ino: Ino) {
        self.pages.take(ino);
        self.refuse_pages(ino);
    }

    /// Those of all files that a directory covers.
    pub(crate) fn drop_pages_within(&mut self, dir: Ino) {
        let on_way = self.fetches.keys().filter_map(|what| match what {
            FetchWhat::ExtentPages { ino, .. } => Some(*ino),
            FetchWhat::Xattrs { .. } | FetchWhat::Totals {} => None,
        });
        let is_within = |ino: &Ino| matches!(self.place(*ino), Place::Covered(parent, _) if parent == dir);
        let files: BTreeSet<Ino> = self.pages.files().chain(on_way).filter(is_within).collect();
        files.into_iter().for_each(|ino| self.drop_pages(ino));
    }

    /// Pages on their way may be older than what is known, or was until now.
    pub(crate) fn refuse_pages(&mut self, ino: Ino) {
        let is_its = |what: &FetchWhat| matches!(what, FetchWhat::ExtentPages { ino: of, .. } if *of == ino);
        let on_way: Vec<u64> =
            self.fetch_of.iter().filter(|(_, what)| is_its(what)).map(|(request, _)| *request).collect();
        for request in on_way {
            if let Some(what) = self.fetch_of.remove(&request) {
                self.fetches.remove(&what);
                self.wake(WaitKey::Fetch(what));
            }
        }
    }

    /// Pages of extents have come: all that there are in `range`.
    pub(crate) fn take_pages(&mut self, ino: Ino, range: Range<u64>, list: Vec<(u64, chunk::ExtentMap)>) {
        let extents = list.iter().map(|(_, map)| map.len()).sum();
        self.pages.note_came(ino, range.end.saturating_sub(range.start), extents);
        match self.live.get_mut(&ino) {
            Some(live) => live.load_pages(range, list),
            None => self.pages.take_in(ino, range, list),
        }
    }
}

pub(crate) const SEGMENTS_LOW: usize = 4;
/// Pages of extents that a cut takes away at once: the log has each of them, and a batch holds all that was changed together.
const CUT_PAGES_MAX: usize = 128 << 10;
/// Content that is written in a burst is durable after about as many seconds.
const UNSYNCED_SECS: u64 = 10;
/// However slow the store is, as much may be on its way.
const UNSYNCED_MIN: u64 = 16 << 20;
/// As much is made durable while more is written, so that little is left for who waits in the end.
const FLUSH_LEN: u64 = 32 << 20;
/// A flush of less says nothing about the store's speed.
const RATE_BYTES_MIN: u64 = 1 << 20;
/// Bytes to be logged of one file at which writes to it wait for a flush.
const CAPTURE_BYTES_MAX: usize = 8 << 20;
