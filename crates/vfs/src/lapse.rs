//! Leases that are not renewed, and memberships that end.
//!
//! Invariants:
//!
//! - Nothing is served under a lease that may have ended, and the kernel's caches are emptied before: in time for
//!   that to be done within the lease (ARCHITECTURE.md, invariant 1).
//! - What is dirty is kept until it is known that the membership has ended.
//! - Of a membership that has ended nothing is left, in the kernel either, before the node joins anew.

use std::collections::BTreeSet;

use meta::FsError;
use types::{Epoch, Ino, Micros, NodeId, OpSeq};
use wire::OpenReport;

use crate::cache::{KernelHas, Place};
use crate::core::{Core, Link};
use crate::jobs::Purpose;
use crate::known::Known;
use crate::lockop::Closes;
use crate::log::WriteLog;
use crate::outputs::{Clock, Invalidation, Output};
use crate::quota::Quota;
use crate::request::{Reply, Request};
use crate::wait::{Parked, Progress, Step, Try, WaitKey};

impl Core {
    /// Whether tokens may be used: the lease is in time, and the guard has not emptied the kernel's caches since it was
    /// last renewed.
    pub(crate) fn is_lease_good(&self) -> bool {
        self.is_lease_in_time() && !self.known.guard().has_fired()
    }

    /// Whether the lease, less a margin for the clocks and one for emptying the kernel's caches, has not ended.
    pub(crate) fn is_lease_in_time(&self) -> bool {
        let in_time = self.clock.now + self.margin() + self.margin() < self.lease.until;
        #[cfg(feature = "planted")]
        let in_time = in_time || types::planted::strikes(types::planted::Planted::LeaseUnchecked);
        in_time
    }

    /// Whether pages may be filled and written: their locks are held meanwhile, and emptying the kernel's caches
    /// waits for them. Once those are empty nothing fills them again.
    pub(crate) fn may_serve_pages(&self) -> bool {
        self.me != NodeId(0)
            && !matches!(self.link, Link::Ending | Link::Lost)
            && self.clock.now + self.margin() < self.lease.until
            && !self.known.guard().has_fired()
            && (!self.lease.lapsed || self.is_emptying())
    }

    fn margin(&self) -> Micros {
        Micros(self.lease.length.0 / 10)
    }

    /// What a request needs before anything else: a membership, a lease, and that what it is about was not lost.
    pub(crate) fn need_member(&self, request: &Request) -> Try<()> {
        if self.link == Link::Lost {
            return Err(FsError::Io.into());
        }
        if request.content_of().is_some_and(|ino| self.broken.contains_key(&ino)) {
            return Err(FsError::Io.into());
        }
        // Nothing is written back while a truncation is under way.
        let has_pages = matches!(
            request,
            Request::Read { .. }
                | Request::Write { .. }
                | Request::WritePages { .. }
                | Request::SetAttr { size: Some(_), .. }
        );
        if has_pages && self.jobs.is_ending() {
            // The kernel's caches cannot be emptied while it waits.
            return Err(FsError::Io.into());
        }
        let may = match has_pages {
            true => self.may_serve_pages(),
            false => self.me != NodeId(0) && self.is_lease_good() && !self.is_emptying(),
        };
        if may { Ok(()) } else { Err(Step::Wait(WaitKey::Member)) }
    }

    /// Whether what the kernel is given is right for as long as it may keep it, and nobody is taking it all back.
    pub(crate) fn may_give_to_keep(&self) -> bool {
        self.is_lease_good() && !self.is_emptying()
    }

    fn is_emptying(&self) -> bool {
        self.jobs.is_emptying()
    }

    /// When [`Self::lapse`] has something to do.
    pub(crate) fn lapse_due(&self) -> Micros {
        let is_member = self.me != NodeId(0) && matches!(self.link, Link::Up | Link::Down);
        if !is_member || self.lease.lapsed {
            return Micros::NEVER;
        }
        Micros(self.lease.until.0.saturating_sub(2 * self.margin().0))
    }

    /// Empties the kernel's caches if the lease could not be renewed in time. What is held stays held, and is used
    /// again when it is renewed.
    pub(crate) fn lapse(&mut self) {
        if self.lapse_due() > self.clock.now {
            return;
        }
        log::warn!("the lease cannot be renewed; requests wait for the master");
        self.metrics.leases_lapsed.add(1);
        self.lease.lapsed = true;
        self.empty_kernel(Purpose::Lapse);
    }

    /// Inodes that the kernel may have pages of.
    pub(crate) fn with_pages(&self) -> Vec<Ino> {
        let has_pages = |ino: &&Ino| self.known.get(ino).is_some_and(|known| known.pages_out);
        let mut inos: Vec<Ino> = self.known.keys().filter(has_pages).copied().collect();
        inos.sort_unstable();
        inos
    }

    /// Has the kernel write back what was stored through mappings, of a mount out of the tree, too. Returns what to ask
    /// [`is_written_back`](Self::is_written_back) about.
    pub fn write_back(&mut self, clock: Clock) -> u64 {
        self.clock = clock;
        let is_mapped = |ino: &Ino| self.known.get(ino).is_some_and(|known| known.uses().mappers > 0);
        let inos = self.with_pages().into_iter().filter(is_mapped);
        let list = inos.map(|ino| Invalidation::Pages { ino }).collect();
        let job = self.invalidate(Purpose::WriteBack, list, Vec::new());
        self.settle();
        job
    }

    /// Whether what had been stored when [`write_back`](Self::write_back) was called has come as writes.
    pub fn is_written_back(&self, job: u64) -> bool {
        !self.jobs.is_there(job)
    }

    /// The kernel's caches are empty.
    pub(crate) fn on_lapsed(&mut self) {
        if self.lease.lapsed && !self.is_emptying() {
            self.known.guard_mut().rest();
        }
        self.wake(WaitKey::Member);
    }

    /// Takes everything back that the kernel may have. In a lapse what it has stays noted: changes of others that are told before it is through find
    /// it still there.
    fn empty_kernel(&mut self, purpose: Purpose) {
        let stays_noted = matches!(purpose, Purpose::Lapse);
        let mut dirs: Vec<Ino> = self.cache.dirs.keys().copied().collect();
        dirs.sort_unstable();
        let mut list = Vec::new();
        for parent in dirs {
            let Some(dir) = self.cache.dirs.get_mut(&parent) else { continue };
            for entry in dir.entries.values_mut().filter(|entry| entry.name_out) {
                entry.name_out = stays_noted;
                list.push(Invalidation::Name { parent, name: entry.dirent.name.clone() });
            }
            let mut negatives: Vec<_> = dir.negatives.iter().cloned().collect();
            negatives.sort_unstable();
            list.extend(negatives.into_iter().map(|name| Invalidation::Name { parent, name }));
            if !stays_noted {
                dir.negatives.clear();
                dir.kernel_has = KernelHas::Nothing;
            }
        }
        let mut inos: Vec<Ino> = self.known.keys().copied().collect();
        inos.sort_unstable();
        // Requests may have changed names already that their kernel learns of by the answer, which may be a refusal now.
        let under_way: BTreeSet<_> = self.parked.values().flat_map(|parked| parked.request.names()).collect();
        list.extend(under_way.into_iter().map(|(parent, name)| Invalidation::Name { parent, name }));
        // Attributes and listings of all: what was not noted to be out costs little. But who reads the first page of a file
        // may have it locked, and wait for the master.
        let may_wait = matches!(purpose, Purpose::Lapse);
        list.extend(inos.iter().map(|ino| {
            let has_pages = self.known.get(ino).is_some_and(|known| known.pages_out);
            match may_wait && !has_pages && !self.cache.dirs.contains_key(ino) {
                true => Invalidation::Attr { ino: *ino },
                false => Invalidation::Pages { ino: *ino },
            }
        }));
        for known in self.known.values_mut().filter(|known| !known.pages_out && !stays_noted) {
            known.note_attr_gone();
        }
        inos.retain(|ino| self.known.get(ino).is_some_and(|known| known.pages_out));
        if !stays_noted {
            // Answers on their way may have some name last for long again, and nothing is known of them afterwards.
            list.push(Invalidation::Names {});
        }
        self.invalidate_changed(purpose, list, inos, true);
    }

    /// A request that was done is answered with an error all the same: its kernel has nothing to close or to forget.
    fn undo_unanswered(&mut self, done: Option<Reply>) {
        let entry = match done {
            Some(Reply::Created(entry, opened)) => {
                if let Some(handle) = self.handles.remove(&opened.handle) {
                    self.close_handle(handle);
                }
                entry
            }
            Some(Reply::Entry(entry)) => entry,
            _ => return,
        };
        self.forget(entry.attr.ino, 1);
    }

    /// The membership has ended: drops what only it made right, counts what is lost, and has the kernel's caches
    /// emptied. Then the node joins anew.
    pub(crate) fn end_membership(&mut self, reason: &str) {
        if self.me == NodeId(0) || matches!(self.link, Link::Ending | Link::Lost) {
            return;
        }
        log::warn!("held up when the membership of node {} ended: {}", self.me, self.held_up());
        self.give_up(reason);
        self.link = Link::Ending;
        if self.departure.begun && !self.departure.ended {
            self.departure.ended = true;
            self.outputs.push_back(Output::Lost(reason.to_owned()));
            self.outputs.push_back(Output::Left);
        }
        self.empty_kernel(Purpose::Anew);
        self.reset();
        for (id, mut parked) in std::mem::take(&mut self.parked) {
            if may_begin_again(&parked) {
                let Progress { since, number, is_exempt, .. } = parked.progress;
                parked.progress = Progress { is_exempt, ..Progress::new(since, number, id) };
                parked.key = WaitKey::Member;
                self.waiting.entry(WaitKey::Member).or_default().insert(id);
                self.parked.insert(id, parked);
            } else {
                self.undo_unanswered(parked.progress.done.take());
                self.outputs.push_back(Output::Reply(id, Reply::Error(FsError::Io)));
            }
        }
    }

    /// The volume cannot be used any more: answers whoever waits, and everybody from here on.
    pub(crate) fn lose(&mut self, reason: String) {
        if self.link == Link::Lost {
            return;
        }
        self.give_up(&reason);
        self.link = Link::Lost;
        self.empty_kernel(Purpose::Alone);
        self.reset();
        for (id, _) in std::mem::take(&mut self.parked) {
            self.outputs.push_back(Output::Reply(id, Reply::Error(FsError::Io)));
        }
        self.outputs.push_back(Output::Lost(reason));
        if self.departure.begun && !self.departure.ended {
            self.departure.ended = true;
            self.outputs.push_back(Output::Left);
        }
    }

    /// Counts and notes what is lost. Handles by which it was made, and those of files with locks, answer EIO until
    /// they are closed.
    fn give_up(&mut self, reason: &str) {
        let mut lost = self.log.content();
        self.untold.append(&mut self.log.directories());
        let files = self.live.len() as u64;
        let bytes: u64 = self.live.values().map(|live| live.dirty_bytes() as u64).sum();
        let locks = self.locks.values().map(|list| list.len() as u64).sum::<u64>();
        lost.extend(self.live.keys());
        let contents = lost.clone();
        lost.extend(self.locks.keys());
        let changes = self.log.clear();
        log::error!(
            "membership of node {} has ended: {reason}; lost: {changes} changes that may not have reached the master, \
             unflushed content of {files} files, {locks} locks",
            self.me
        );
        self.metrics.memberships_lost.add(1);
        self.metrics.mutations_lost.add(changes);
        self.metrics.files_lost.add(files);
        self.metrics.content_lost_bytes.add(bytes);
        self.untold
            .extend(contents.into_iter().filter(|ino| !self.known.get(ino).is_some_and(Known::is_written)));
        for handle in self.handles.values_mut().filter(|handle| lost.contains(&handle.ino)) {
            if !std::mem::replace(&mut handle.broken, true) {
                *self.broken.entry(handle.ino).or_default() += 1;
            }
        }
    }

    /// Forgets what belonged to the membership. What the kernel refers to stays known, and what is open stays open.
    fn reset(&mut self) {
        self.me = NodeId(0);
        self.epoch = Epoch(0);
        self.lease.ping_sent = None;
        self.lease.until = Micros(0);
        self.lease.lapsed = false;
        self.tokens.clear();
        self.cache.clear();
        self.log = WriteLog::new();
        self.writer = None;
        self.live.clear();
        self.quota = Quota::default();
        self.pages.clear();
        self.old_content.clear();
        self.known.shields.clear();
        self.locks.clear();
        self.closes = Closes::default();
        self.releases.clear();
        self.released.clear();
        self.released_open.clear();
        self.released_at.clear();
        self.release_number = 0;
        self.flushes.clear();
        self.gathering = None;
        self.unjudged.clear();
        self.flush_later.clear();
        self.flush_failed.clear();
        self.short_of_segments.clear();
        self.closed = crate::closed::Closed::default();
        self.dirty_files.clear();
        self.glimpsed.clear();
        self.sought.clear();
        self.inode_numbers.clear();
        self.reserve_asked = false;
        self.frozen.clear();
        self.removing.clear();
        self.opens_in_doubt.clear();
        self.opens_out_of_sight.clear();
        self.linger.clear();
        self.names_again.clear();
        self.cache.sole_orphans.clear();
        self.wants.clear();
        self.want_of.clear();
        self.fetches.clear();
        self.fetch_of.clear();
        self.lock_calls.clear();
        self.shipped.clear();
        self.last_op = OpSeq(0);
        // What the master took in and did not make durable is still to be.
        self.unsynced_at_master = true;
        self.held_forgets.clear();
        self.disowner = crate::disown::Disowner::default();
        for job in self.jobs.all_mut() {
            job.forget_master();
            if matches!(job.purpose, Purpose::Renamed(_) | Purpose::Release(_)) {
                // Who waited for it was answered; the number is another operation's by and by, and the right may be given
                // back again, which takes an invalidation of its own.
                job.purpose = Purpose::Alone;
            }
        }
        self.waiting.clear();
        self.overtaken.clear();
        self.woken.clear();
        self.commit_due = Micros::NEVER;
        for known in self.known.values_mut() {
            known.set_place(Place::Unknown);
            known.open_told = false;
        }
    }

    /// Files that answer EIO until the handles are closed that were open when a membership ended.
    pub fn broken_files(&self) -> usize {
        self.broken.len()
    }

    /// Whether tokens may be used at a time, for inspection.
    pub fn may_use_tokens(&self, now: Micros) -> bool {
        let is_in_time = now + self.margin() + self.margin() < self.lease.until;
        is_in_time && self.me != NodeId(0) && !self.known.guard().has_fired()
    }

    /// Whether the driver may connect and say hello: nothing is left of an old membership.
    pub fn may_join(&self) -> bool {
        matches!(self.link, Link::Down | Link::Up)
    }

    /// Whether the kernel may still show what it was told under a lease that has ended since, as after a pause of the
    /// whole machine. Not so when its caches are emptied.
    pub fn may_show_stale(&self, now: Micros) -> bool {
        let is_over = now + self.margin() >= self.lease.until;
        is_over && (self.lapse_due() <= now || self.is_emptying())
    }

    /// Nothing is left of the old membership.
    pub(crate) fn begin_anew(&mut self) {
        if self.link == Link::Ending {
            self.link = Link::Down;
            self.known.guard_mut().rest();
            if !self.departure.ended {
                self.outputs.push_back(Output::Rejoin);
            }
        }
    }

    /// A node that joins anew tells what is open on it, so that nobody removes it.
    pub(crate) fn report_all_open(&mut self) {
        let mut open = Vec::new();
        for (ino, known) in self.known.iter_mut().filter(|(_, known)| known.is_open()) {
            known.open_told = true;
            open.push(OpenReport { ino: *ino });
        }
        open.sort_unstable_by_key(|report| report.ino);
        self.tell_open(&mut open, 0);
    }
}

/// Whether a request that waits when the membership ends can begin again under the next one.
fn may_begin_again(parked: &Parked) -> bool {
    let progress = &parked.progress;
    match &parked.request {
        // The kernel's caches cannot be emptied while they wait.
        Request::Read { .. }
        | Request::Write { .. }
        | Request::WritePages { .. }
        | Request::SetAttr { size: Some(_), .. } => false,
        // Closing succeeds, whatever else is lost.
        Request::Release { .. } => true,
        _ => {
            progress.ship.is_none()
                && progress.done.is_none()
                && progress.sync.is_none()
                && progress.lock.is_none()
                && !progress.flushed
                // What it was to name may be lost.
                && progress.any_flushed.is_none()
                && progress.content_asks == 0
        }
    }
}
