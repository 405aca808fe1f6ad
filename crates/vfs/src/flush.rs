//! Flushes: content into segments, segments made durable, then the changes that name it into the log.
//!
//! The order is the whole point (ARCHITECTURE.md, invariant 4): stage, sync, log. What is logged is what was
//! captured before the sync began, so that nothing written meanwhile is named before it is durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chunk::{ChunkError, SyncOutcome};
use meta::{Body, Change, Content, Dirent, FsError};
use types::{Ino, LockMode, Micros, ResourceId};

use crate::cache::Place;
use crate::core::{Core, Link};
use crate::late::as_shown;
use crate::live::{Capture, Live};
use crate::lost::{Unstored, refusal_of};
use crate::outputs::{Clock, Output};
use crate::request::Reply;
use crate::wait::{Progress, Step, Try, WaitKey};

/// A flush whose segments are being made durable.
#[derive(Debug)]
pub(crate) struct Flush {
    /// Greater than that of any before it, which the number of its job need not be.
    number: u64,
    /// Files that are still to be captured, the last one first: until there are none it is no job for a sync.
    to_capture: Vec<Ino>,
    /// The flush of those of them that segments were missing for.
    later: Option<u64>,
    /// Those that are not logged yet.
    captures: VecDeque<Capture>,
    started: Micros,
    /// Bytes that were not durable when it began.
    bytes: u64,
}

impl Flush {
    /// Nothing yet.
    fn new(started: Micros) -> Self {
        Self { number: 0, to_capture: Vec::new(), later: None, captures: VecDeque::new(), started, bytes: 0 }
    }

    pub(crate) fn captures(&self) -> impl Iterator<Item = &Capture> {
        self.captures.iter()
    }

    pub(crate) fn drop_capture(&mut self, ino: Ino) {
        self.captures.retain(|capture| capture.ino != ino);
    }
}

/// How much is done of what is done for a few files at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dealt {
    /// All of it, or nothing was to be.
    InFull,
    /// Not all yet.
    InPart,
}

impl Core {
    /// Starts to flush the content of `inos`. `None`: there was nothing that needs waiting for.
    ///
    /// What finds no room stays in memory and is tried again.
    pub(crate) fn flush(&mut self, inos: &[Ino]) -> Option<u64> {
        self.flush_or(inos, Unstored::Keep)
    }

    pub(crate) fn flush_or(&mut self, inos: &[Ino], unstored: Unstored) -> Option<u64> {
        if inos.len() > FEW {
            self.store_closed();
        }
        let (captures, short) = self.capture_all(inos, unstored);
        self.flush_captures(inos, captures, short)
    }

    /// Starts to flush a file for somebody who waits. A few bytes are logged themselves beside the extents that name them: so they are
    /// durable with these, and the segment is synced when nobody waits.
    fn flush_for_fsync(&mut self, ino: Ino) -> Option<u64> {
        let inos = [ino];
        self.look_for_room();
        let is_under_way = self.flush_under_way(&inos).is_some();
        let (captures, short) = self.capture_all(&inos, Unstored::Keep);
        let may_log = !is_under_way && short.is_empty() && captures.iter().any(names_segments);
        let redos = match self.writer.as_mut() {
            Some(writer) if may_log && writer.redone_bytes() < REDO_BYTES_IN_ALL => {
                writer.take_redo(ino, REDO_BYTES_MAX)
            }
            Some(_) | None => None,
        };
        let Some(redos) = redos else { return self.flush_captures(&inos, captures, short) };
        let put = |redo: chunk::Redo| Change::PutRedo {
            segment: redo.segment,
            offset: redo.offset,
            bytes: redo.bytes.into(),
        };
        // Before what names them.
        self.apply_local(redos.into_iter().map(put).collect());
        self.log_captures(captures);
        None
    }

    /// What was logged of segments is durable in them now.
    fn drop_redone(&mut self) {
        let places = self.writer.as_mut().map(|writer| writer.take_redone_synced()).unwrap_or_default();
        let drop = |(segment, offset)| Change::DeleteRedo { segment, offset };
        self.apply_local(places.into_iter().map(drop).collect());
    }

    fn flush_captures(&mut self, inos: &[Ino], captures: Vec<Capture>, short: BTreeSet<Ino>) -> Option<u64> {
        // Content that names no segment goes behind older content of its file that does, or it would be undone.
        let is_behind = !captures.is_empty() && self.flush_under_way(inos).is_some();
        let job = if is_behind || captures.iter().any(names_segments) {
            let job = self.number();
            self.sync_captures(job, captures);
            Some(job)
        } else {
            self.log_captures(captures);
            // Content captured by an earlier flush of these files is still on its way.
            self.flush_under_way(inos)
        };
        if short.is_empty() {
            return job;
        }
        let job = self.number();
        self.flush_later.insert(job, short);
        Some(job)
    }

    /// Segments have come: goes on with what had to wait for them.
    pub(crate) fn flush_postponed(&mut self) {
        for (job, inos) in std::mem::take(&mut self.flush_later) {
            let inos: Vec<Ino> = inos.into_iter().collect();
            let (captures, short) = self.capture_all(&inos, Unstored::Keep);
            if short.is_empty() {
                // Syncs run in the order given out, so this one ends after any that captured the same files.
                self.sync_captures(job, captures);
            } else {
                self.flush_later.insert(job, short);
                let job = self.number();
                self.sync_captures(job, captures);
            }
        }
    }

    /// Captures of files, and the files that segments are missing for: those are asked for.
    fn capture_all(&mut self, inos: &[Ino], unstored: Unstored) -> (Vec<Capture>, BTreeSet<Ino>) {
        self.end_gathering(inos);
        self.captures_of(inos, unstored)
    }

    fn captures_of(&mut self, inos: &[Ino], unstored: Unstored) -> (Vec<Capture>, BTreeSet<Ino>) {
        let captures = inos.iter().filter_map(|ino| self.capture(*ino, unstored)).collect();
        (captures, std::mem::take(&mut self.short_of_segments))
    }

    fn sync_captures(&mut self, job: u64, captures: Vec<Capture>) {
        let Some(writer) = self.writer.as_ref() else { return };
        let (plan, bytes) = (writer.sync_plan(), writer.unsynced_bytes());
        let number = self.number();
        let flush = Flush { number, captures: captures.into(), bytes, ..Flush::new(self.clock.now) };
        self.flushes.insert(job, flush);
        self.outputs.push_back(Output::Sync { job, plan });
    }

    pub(crate) fn flush_under_way(&self, inos: &[Ino]) -> Option<u64> {
        let has = |flush: &Flush| flush.captures.iter().any(|c| inos.contains(&c.ino));
        let found = self.flushes.iter().filter(|(_, flush)| has(flush));
        found.max_by_key(|(_, flush)| flush.number).map(|(job, _)| *job)
    }

    /// How long the oldest sync has been under way.
    pub(crate) fn store_wait(&self) -> Micros {
        let oldest = self.flushes.values().map(|flush| flush.started).min();
        oldest.map_or(Micros(0), |started| self.clock.now.since(started))
    }

    /// Has the writer's last segments sealed although nothing of them is to be logged.
    pub(crate) fn seal_segments(&mut self) {
        let Some(plan) = self.writer.as_ref().map(|w| w.sync_plan()).filter(|plan| !plan.is_empty()) else {
            return;
        };
        let job = self.number();
        self.flushes.insert(job, Flush { number: job, ..Flush::new(self.clock.now) });
        self.outputs.push_back(Output::Sync { job, plan });
    }

    /// Has the next segment made before it is needed.
    pub(crate) fn make_segment_ahead(&mut self) {
        if let Some(plan) = self.writer.as_mut().and_then(|writer| writer.plan_ahead()) {
            let job = self.number();
            self.flushes.insert(job, Flush { number: job, ..Flush::new(self.clock.now) });
            self.outputs.push_back(Output::Sync { job, plan });
        }
    }

    /// Flushes everything. Returns the job to wait for.
    pub(crate) fn flush_all(&mut self) -> u64 {
        let mut inos: Vec<Ino> = self.live.keys().copied().collect();
        inos.sort_unstable();
        match self.flush(&inos).or_else(|| self.sync_rest()) {
            Some(job) => job,
            None => {
                let job = self.number();
                self.wake(WaitKey::Flush(job));
                job
            }
        }
    }

    /// Starts to flush everything for nobody in particular: files are captured a few at a time, and then synced. Returns the job.
    pub(crate) fn flush_by_parts(&mut self) -> u64 {
        self.store_closed();
        let mut to_capture: Vec<Ino> = self.live.keys().copied().collect();
        to_capture.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(job) = self.gathering
            && let Some(flush) = self.flushes.get_mut(&job)
        {
            // What came since its list was made is not to wait for the next one. Those that it has, and that have not changed, are passed over.
            flush.to_capture = to_capture;
            return flush.later.unwrap_or(job);
        }
        let job = self.number();
        self.flushes.insert(job, Flush { number: job, to_capture, ..Flush::new(self.clock.now) });
        self.gathering = Some(job);
        self.outputs.push_back(Output::Gather { job });
        job
    }

    /// Goes on capturing for a flush that [`Output::Gather`] asked for, [so many files](crate::Config::files_at_once) at a time; a sync is
    /// asked for after the last.
    #[must_use = "the rest is to be captured"]
    pub fn gather(&mut self, clock: Clock, job: u64) -> Dealt {
        self.clock = clock;
        if self.gathering != Some(job) {
            // Somebody could not wait for it, or the membership has ended.
            return Dealt::InFull;
        }
        let dealt = self.gather_some(job, self.config.files_at_once.max(1));
        self.settle();
        dealt
    }

    fn gather_some(&mut self, job: u64, files: usize) -> Dealt {
        let Some(flush) = self.flushes.get_mut(&job) else { return Dealt::InFull };
        let rest = flush.to_capture.len().saturating_sub(files);
        let part: Vec<Ino> = flush.to_capture.drain(rest..).rev().collect();
        let (captures, short) = self.captures_of(&part, Unstored::Keep);
        let is_postponed = |later: &u64| self.flush_later.contains_key(later);
        let before = self.flushes.get(&job).and_then(|flush| flush.later).filter(is_postponed);
        let later = if short.is_empty() { before } else { before.or_else(|| Some(self.number())) };
        if let Some(flush) = self.flushes.get_mut(&job) {
            flush.captures.extend(captures);
            flush.later = later;
        }
        if let Some(later) = later.filter(|_| !short.is_empty()) {
            self.flush_later.entry(later).or_default().extend(short);
            if self.commit_flush == Some(job) {
                self.commit_flush = Some(later);
            }
        }
        if rest > 0 {
            return Dealt::InPart;
        }
        self.gathering = None;
        self.sync_gathered(job);
        Dealt::InFull
    }

    /// All is captured: what is to be logged of it is behind all flushes that began before.
    fn sync_gathered(&mut self, job: u64) {
        let plan = self.writer.as_ref().map(|writer| (writer.sync_plan(), writer.unsynced_bytes()));
        let number = self.number();
        if let (Some(flush), Some((plan, bytes))) = (self.flushes.get_mut(&job), plan) {
            (flush.number, flush.bytes, flush.started) = (number, bytes, self.clock.now);
            self.outputs.push_back(Output::Sync { job, plan });
        } else {
            // Of a membership that has ended.
            self.flushes.remove(&job);
            self.wake(WaitKey::Flush(job));
        }
    }

    /// Captures at once what is left to be captured, if one of these files has been: what is captured of it from here on must be
    /// synced, and logged, after that.
    fn end_gathering(&mut self, inos: &[Ino]) {
        let Some(job) = self.gathering else { return };
        let has = |flush: &Flush| flush.captures.iter().any(|capture| inos.contains(&capture.ino));
        // Of many files it is quicker not to look.
        if inos.len() > FEW || self.flushes.get(&job).is_some_and(has) {
            let _all = self.gather_some(job, usize::MAX);
        }
    }

    /// Has segments synced that nothing is to be logged of: who wrote to them is gone, and what waits for room would wait
    /// for ever. `None` if all is durable.
    fn sync_rest(&mut self) -> Option<u64> {
        self.writer.as_ref().filter(|writer| writer.unsynced_bytes() > 0)?;
        // Not one that makes a segment, or seals one.
        let syncs = |(_, flush): &(&u64, &Flush)| flush.bytes > 0;
        if let Some((job, _)) = self.flushes.iter().rev().find(syncs) {
            // Afterwards the rest is seen to.
            return Some(*job);
        }
        let job = self.number();
        self.sync_captures(job, Vec::new());
        Some(job)
    }

    /// Stages a file's newer content and takes what is to be logged of it.
    fn capture(&mut self, ino: Ino, unstored: Unstored) -> Option<Capture> {
        if self.removing.contains_key(&ino) && self.live.contains_key(&ino) {
            // The master may delete it before it sees what is logged now, and refuse that.
            self.short_of_segments.insert(ino);
            return None;
        }
        let dirty = self.live.get(&ino).map_or(0, Live::dirty_bytes);
        let is_put_off = unstored == Unstored::Keep && dirty > 0 && self.is_put_off(dirty);
        let (Some(live), Some(writer)) = (self.live.get_mut(&ino), self.writer.as_mut()) else { return None };
        if live.failed || live.is_captured() {
            return None;
        }
        if is_put_off {
            self.flush_failed.insert(ino, FsError::NoSpace);
            return None;
        }
        match live.stage(writer, ino) {
            Ok(()) => {
                self.dirty_files.remove(&ino);
                self.flush_failed.remove(&ino);
                Some(live.capture(ino))
            }
            Err(chunk::ChunkError::NeedSegments { .. }) => {
                self.ask_numbers();
                self.short_of_segments.insert(ino);
                None
            }
            Err(error) => {
                let refusal = refusal_of(&error);
                match unstored {
                    Unstored::Keep => {
                        if refusal == FsError::NoSpace {
                            self.note_full();
                        }
                        if self.flush_failed.insert(ino, refusal).is_none() {
                            log::warn!("content of ino {ino} cannot be stored yet: {error}");
                        }
                        None
                    }
                    Unstored::GiveUp => {
                        let bytes = live.drop_unstored();
                        let capture = live.capture(ino);
                        self.dirty_files.remove(&ino);
                        self.lose_content(ino, bytes, refusal, &error);
                        Some(capture)
                    }
                }
            }
        }
    }

    /// A sync that [`Output::Sync`] asked for has ended: what it made durable is logged, a part of it at once. The rest is up to
    /// [`log_synced`](Self::log_synced), before the outcome of a later sync is told.
    #[must_use = "the rest is to be logged"]
    pub fn synced(&mut self, clock: Clock, job: u64, outcome: SyncOutcome) -> Dealt {
        self.clock = clock;
        let Some(flush) = self.flushes.get(&job) else {
            // Of a membership that has ended: its writer is gone.
            return Dealt::InFull;
        };
        let (bytes, started) = (flush.bytes, flush.started);
        let is_gone =
            |(_, result): &(_, Result<(), ChunkError>)| matches!(result, Err(ChunkError::Missing { .. }));
        if !self.is_lease_good() && outcome.results.iter().any(is_gone) {
            // With a membership that has ended its segments go. What is lost then is told when that is heard of.
            self.unjudged.push((job, outcome));
            return Dealt::InFull;
        }
        let failures = self.writer.as_mut().map(|w| w.on_synced(outcome)).unwrap_or_default();
        self.drop_redone();
        for failure in failures {
            log::error!("segment {} could not be made durable: {}", failure.segment, failure.error);
            self.metrics.errors_unknown.add(1);
            let mut lost: BTreeMap<Ino, u64> = BTreeMap::new();
            for write in &failure.lost {
                *lost.entry(write.ino).or_default() += u64::from(write.extent.len());
            }
            for (ino, bytes) in lost {
                if let Some(live) = self.live.get_mut(&ino) {
                    live.failed = true;
                    self.lose_content(ino, bytes, FsError::Io, &failure.error);
                    self.end_lost_unless_told(ino);
                }
            }
        }
        self.note_sync_rate(bytes, self.clock.now.since(started).0);
        self.log_synced(clock, job)
    }

    /// The lease is good again: what syncs found meanwhile counts.
    pub(crate) fn judge_syncs(&mut self) {
        let clock = self.clock;
        for (job, outcome) in std::mem::take(&mut self.unjudged) {
            let mut dealt = self.synced(clock, job, outcome);
            while dealt == Dealt::InPart {
                dealt = self.log_synced(clock, job);
            }
        }
    }

    /// Goes on logging what a sync has made durable, [so many files](crate::Config::files_at_once) at a time.
    #[must_use = "the rest is to be logged"]
    pub fn log_synced(&mut self, clock: Clock, job: u64) -> Dealt {
        self.clock = clock;
        let Some(flush) = self.flushes.get_mut(&job) else { return Dealt::InFull };
        let len = flush.captures.len().min(self.config.files_at_once.max(1));
        let part: Vec<Capture> = flush.captures.drain(..len).collect();
        let is_last = flush.captures.is_empty();
        self.log_captures(part);
        if is_last {
            self.flushes.remove(&job);
            if let Some(last) = self.commit_flush.filter(|last| job <= *last) {
                // The names of that commit are on their way: content is not to be an interval behind.
                self.commit_flush = Some(last).filter(|last| job < *last);
                self.send_batch(false);
            }
            self.wake(WaitKey::Flush(job));
            self.go_on_releasing(job);
            self.disown();
        }
        self.settle();
        if is_last { Dealt::InFull } else { Dealt::InPart }
    }

    /// Logs captured content. Files whose right was lost meanwhile are passed over.
    pub(crate) fn log_captures(&mut self, captures: impl IntoIterator<Item = Capture>) {
        for capture in captures {
            let ino = capture.ino;
            let failed = self.live.get(&ino).is_some_and(|live| live.failed);
            if failed || !self.holds_content(ino) {
                continue;
            }
            let (version, mtime, ctime) = (capture.version, capture.content.mtime, capture.content.ctime);
            self.log_content(capture);
            if self.log.is_full() {
                self.send_batch(false);
            }
            if self.live.get(&ino).is_some_and(|live| live.version == version) {
                let pages = self.live.remove(&ino).map(Live::into_pages).unwrap_or_default();
                self.pages.keep(ino, pages).into_iter().for_each(|of| self.refuse_pages(of));
                self.forget_unused(ino);
            } else if let Some(live) = self.live.get_mut(&ino) {
                live.note_recorded(version, mtime, ctime);
            }
            if self.log.is_full() {
                self.send_batch(false);
            }
        }
    }

    /// Logs a file's newer content at once; it must be inline.
    pub(crate) fn log_live(&mut self, ino: Ino) {
        if self.flush_under_way(&[ino]).is_none()
            && !self.removing.contains_key(&ino)
            && let Some(capture) = self.capture(ino, Unstored::Keep)
        {
            self.log_captures([capture]);
        }
    }

    /// Whether content of `ino` may still be changed, for the last time perhaps.
    fn holds_content(&self, ino: Ino) -> bool {
        self.content_resource(ino).is_some_and(|r| self.tokens.held(r) == LockMode::Ex)
    }

    fn log_content(&mut self, capture: Capture) {
        let Capture { ino, content, pages, deltas, bytes_delta, .. } = capture;
        let mut charge = None;
        let (change, parent) = match self.place(ino) {
            Place::Covered(parent, cookie) => {
                let entry = self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie));
                let Some(entry) = entry.filter(|e| e.dirent.ino == ino) else { return };
                let Some(inode) = entry.dirent.covered() else { return };
                let mut inode = inode.clone();
                charge = Some(inode.attr.charge());
                inode.content = content;
                let child = meta::Child::Covered { inode: Arc::new(inode) };
                let entry = Dirent { name: entry.dirent.name.clone(), ino, child };
                (Change::PutEntry { parent, cookie, entry }, parent)
            }
            Place::Own => (Change::PutContent { ino, content }, Ino(0)),
            Place::Unknown => return,
        };
        let mut changes = vec![change];
        changes.extend(pages.into_iter().map(|(page, map)| Change::PutExtentPage { ino, parent, page, map }));
        changes.extend(deltas.iter().map(|(segment, bytes)| Change::AddLive { segment, bytes }));
        // Of an inode with keys of its own the master counts.
        if let Some(charge) = charge.filter(|_| bytes_delta != 0) {
            changes.push(Change::AddUsage { charge, bytes: bytes_delta, inodes: 0 });
        }
        self.apply_local(changes);
        self.settle_pending(ino);
    }

    pub(crate) fn try_fsync(&mut self, ino: Ino, progress: &mut Progress) -> Try<Reply> {
        let (told, is_untold) = (self.tell_lost(ino), self.untold.remove(&ino));
        told?;
        if is_untold {
            return Err(FsError::Io.into());
        }
        if !progress.flushed {
            progress.flushed = true;
            self.log_atimes(&[ino]);
            let job = self.flush_for_fsync(ino);
            self.refuse_uncaptured(&[ino])?;
            if let Some(job) = job {
                return Err(Step::Wait(WaitKey::Flush(job)));
            }
        }
        self.refuse_unstored(ino)?;
        progress.done = Some(Reply::Done);
        Err(self.wait_durable(progress))
    }

    /// Refuses to call content durable that found no room, or is lost.
    pub(crate) fn refuse_unstored(&mut self, ino: Ino) -> Try<()> {
        match self.unstored(ino) {
            Some(refusal) => Err(refusal.into()),
            None => self.tell_lost(ino),
        }
    }

    /// Refuses to wait for a flush that has just begun, and took in nothing of one of these files: the one that is under way has older content, and
    /// by its end another may have taken in, and not logged, what this one did not.
    pub(crate) fn refuse_uncaptured(&self, inos: &[Ino]) -> Try<()> {
        let is_later = |ino: &Ino| self.flush_later.values().any(|later| later.contains(ino));
        let refused = inos.iter().filter(|ino| !is_later(ino)).find_map(|ino| self.unstored(*ino));
        refused.map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    /// Content of `ino` could not be stored, and stays in memory.
    pub(crate) fn note_unstored(&mut self, ino: Ino, error: &ChunkError) {
        match error {
            ChunkError::NeedSegments { .. } => return self.ask_numbers(),
            ChunkError::Full { .. } => self.note_full(),
            _ => self.metrics.errors_unknown.add(1),
        }
        self.flush_failed.insert(ino, refusal_of(error));
    }

    /// Why newer content of `ino` could not be stored when that was last tried. Everyone who waits for it hears of it, until it can be.
    pub(crate) fn unstored(&self, ino: Ino) -> Option<FsError> {
        // What was cut off since is nobody's.
        let is_unstored = || self.live.get(&ino).is_some_and(|live| live.dirty_bytes() > 0);
        self.flush_failed.get(&ino).copied().filter(|_| is_unstored())
    }

    /// Whether newer content of any file found no room when that was last tried.
    pub(crate) fn lacks_room(&self) -> bool {
        self.flush_failed.keys().any(|ino| self.unstored(*ino) == Some(FsError::NoSpace))
    }

    /// Ends a write to `ino`: with `sync` its content must be durable first.
    pub(crate) fn finish_data(&mut self, ino: Ino, reply: Reply, progress: &mut Progress) -> Try<Reply> {
        if !self.config.sync && !progress.must_sync {
            return Ok(reply);
        }
        let job = self.flush_all();
        self.refuse_uncaptured(&[ino])?;
        progress.done = Some(reply);
        progress.sync = None;
        Err(Step::Wait(WaitKey::Flush(job)))
    }

    /// Waits until the log is shorter. Once for all who wait: if each asked, and again whenever a part of the log is durable,
    /// they would never get through with it.
    pub(crate) fn wait_for_log_room(&mut self) -> Step {
        self.metrics.log_waits.add(1);
        if !self.log.is_open_empty() || self.log.sync_asked() < self.log.last() {
            self.send_batch(true);
        }
        Step::Wait(WaitKey::LogSpace)
    }

    /// Has everything logged so far made durable; the request goes on with its `done` reply afterwards.
    pub(crate) fn wait_durable(&mut self, progress: &mut Progress) -> Step {
        let is_clean =
            self.log.is_open_empty() && self.log.durable() == self.log.last() && !self.unsynced_at_master;
        if is_clean {
            progress.sync = Some(self.log.durable());
            self.wake(WaitKey::Durable);
            return Step::Wait(WaitKey::Durable);
        }
        #[cfg(feature = "planted")]
        if types::planted::strikes(types::planted::Planted::SyncSkipped) {
            progress.sync = Some(self.log.durable());
            self.wake(WaitKey::Durable);
            return Step::Wait(WaitKey::Durable);
        }
        let is_asked =
            self.log.is_open_empty() && self.log.sync_asked() == self.log.last() && !self.unsynced_at_master;
        if !is_asked {
            self.unsynced_at_master = false;
            self.send_batch(true);
        }
        progress.sync = Some(self.log.last());
        Step::Wait(WaitKey::Durable)
    }

    /// What has fallen due.
    pub(crate) fn on_time(&mut self) {
        self.take_back_again();
        self.end_holds();
        self.release_lingering();
        self.take_names_back_again();
        self.drop_old_aside();
        self.renew_lease();
        self.lapse();
        self.log_due_atimes();
        self.collect_stores();
        self.settle_all_pending();
        self.departure.again = self.departure.again.filter(|due| *due > self.clock.now);
        if self.commit_due > self.clock.now {
            return;
        }
        self.commit_due = Micros::NEVER;
        if matches!(self.link, Link::Ending | Link::Lost) {
            return;
        }
        if !self.live.is_empty() || self.writer.as_ref().is_some_and(|writer| writer.redone_bytes() > 0) {
            self.commit_flush = Some(self.flush_by_parts());
        }
        self.send_batch(false);
        self.disown();
    }

    /// The record of a covered or own file as logged, with newer content laid over, for a glimpse.
    pub(crate) fn glimpse_content(&mut self, ino: Ino) -> Option<Content> {
        let resource = ResourceId::file(ino);
        if self.tokens.held(resource) != LockMode::Ex {
            return None;
        }
        let mut content = self.cache.owns.get(&ino)?.content.clone()?;
        let access = self.cache.atimes.noted.get(&ino).filter(|access| access.is_over(&content)).copied();
        if let Some(live) = self.live.get_mut(&ino) {
            content.size = live.size;
            content.atime = live.atime;
            (content.mtime, content.ctime) =
                if self.config.lazy.mtime { live.times_told() } else { live.tell_times() };
            let is_late = (content.mtime, content.ctime) != (live.mtime, live.ctime);
            self.metrics.times_late.add(u64::from(is_late));
        }
        content.atime = access.map_or(content.atime, |access| access.atime);
        // Only what stat shows travels.
        let stored = self.live.get(&ino).map_or(content.body.stored_bytes(), |l| l.stored_bytes());
        content.body = as_shown(stored);
        Some(content)
    }
}

/// Files that are looked for one by one.
const FEW: usize = 4;
/// Bytes that are logged themselves at an fsync, at most: more are as fast by a sync of their segment.
const REDO_BYTES_MAX: u64 = 64 << 10;
/// As many in all before a sync of their segments.
const REDO_BYTES_IN_ALL: u64 = 8 << 20;

/// Whether a capture names bytes that a sync must come before.
fn names_segments(capture: &Capture) -> bool {
    let is_mapped = match &capture.content.body {
        Body::Extents { .. } | Body::Paged { .. } => true,
        Body::Empty {} | Body::Inline { .. } | Body::Target { .. } => false,
    };
    is_mapped || !capture.pages.is_empty()
}
