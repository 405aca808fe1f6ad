//! Giving rights back: take back what the kernel has, flush what the right covers, tell the master.
//!
//! Stages of a release, in order (docs/locking.md, "Giving back"):
//!
//! 1. *Dropping*: the kernel's caches are invalidated. Reads and writes of pages are still served under the
//!    old right, for they hold page locks that the invalidation waits for; what was served meanwhile is
//!    invalidated again, until a round stays quiet.
//! 2. *Flushing*: content that the right covers becomes durable and is logged. Nothing is served.
//! 3. The batch and then the release are sent, in this order, on one connection.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

use meta::FileKind;
use rustc_hash::FxHashSet;
use types::{Ino, LockMode, Micros, ResourceId, ResourceKind};
use wire::{OpenReport, ToMaster};

use crate::cache::{CachedEntry, DirCache, KernelHas, Place};
use crate::core::Core;
use crate::jobs::{InvalidateJob, Purpose};
use crate::lost::Unstored;
use crate::outputs::{Clock, Invalidation, Output};
use crate::view::Rights;
use crate::wait::WaitKey;
use lock::Revocation;

/// What a right is given back for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The master asks for it.
    Asked,
    /// Nobody here wants it.
    Other,
    /// There are too many. What answers on their way may bring back is seen to later
    /// ([`drop_one`](Core::drop_one)).
    Room,
}

/// A release on its way.
#[derive(Debug)]
pub(crate) struct Release {
    from: LockMode,
    to: LockMode,
    stage: Stage,
    since: Micros,
    /// A directory that others have their turn in: it is kept aside.
    is_for_turn: bool,
}

impl Release {
    pub(crate) fn is_to(&self, mode: LockMode) -> bool {
        self.to == mode
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Dropping,
    Flushing(u64),
}

impl Core {
    /// Stages of the releases that are on their way, for inspection.
    pub fn releasing(&self) -> Vec<&'static str> {
        let stage = |release: &Release| match release.stage {
            Stage::Dropping => "dropping",
            Stage::Flushing(_) => "flushing",
        };
        self.releases.values().map(stage).collect()
    }

    /// What others may be waiting for, for the log: what is being given back, what the kernel is to let go of, and requests.
    pub(crate) fn held_up(&self) -> String {
        let age = |since: Micros| self.clock.now.since(since).0 / 1000;
        let releases = self.releases.iter().map(|(resource, release)| {
            format!("{resource} {:?} for {} ms", release.stage, age(release.since))
        });
        let jobs = self.jobs.iter().map(|(number, job)| {
            format!("job {number} {:?}, round {}, again {:?}", job.purpose, job.rounds, job.again)
        });
        let requests = self.parked.values().map(|parked| {
            let name = parked.request.kind().name();
            format!("{name} for {:?} since {} ms", parked.key, age(parked.progress.since))
        });
        let all: Vec<String> = releases.chain(jobs).chain(requests).take(HELD_UP_MAX).collect();
        all.join("; ")
    }

    /// Tokens held and what may be used of them, for inspection.
    pub fn usable(&self) -> Vec<(ResourceId, LockMode)> {
        self.tokens.list().into_iter().map(|(r, _)| (r, self.tokens.usable(r))).collect()
    }

    /// What may be used of one token, for inspection.
    pub fn usable_mode(&self, resource: ResourceId) -> LockMode {
        self.tokens.usable(resource)
    }

    /// What is held of one token, for inspection.
    pub fn held_mode(&self, resource: ResourceId) -> LockMode {
        self.tokens.held(resource)
    }

    /// What is held of the resources that a batch changes, for the log.
    pub(crate) fn rights_of_batch(&self, seq: types::BatchSeq) -> String {
        let list = self.log.changed_by(seq).into_iter().map(|resource| {
            let stage = self.releases.get(&resource).map(|release| release.stage);
            let frozen = self.frozen.contains_key(&resource.ino);
            format!("{resource} {:?}, release {stage:?}, frozen {frozen}", self.tokens.held(resource))
        });
        list.collect::<Vec<_>>().join("; ")
    }

    /// Whether the kernel's caches under `resource` are being taken back right now.
    pub(crate) fn is_dropping(&self, resource: ResourceId) -> bool {
        self.releases.get(&resource).is_some_and(|r| r.stage == Stage::Dropping)
    }

    /// Carries out a revoke whose time has come, or a release of our own.
    pub(crate) fn start_release(&mut self, revocation: Revocation) {
        self.start_release_for(revocation, Cause::Other);
    }

    /// The same, with what it is for.
    pub(crate) fn start_release_for(&mut self, revocation: Revocation, cause: Cause) {
        let Revocation { resource, from, mut to } = revocation;
        let ino = resource.ino;
        if cause == Cause::Asked
            && resource.kind == ResourceKind::Dir
            && (from, to) == (LockMode::Ex, LockMode::Pr)
        {
            // Before the directory's own: whoever gets that finds them free.
            self.share_children(ino);
        }
        let has_writers = self.known.get(&ino).is_some_and(|k| k.is_written());
        if resource.kind == ResourceKind::File && has_writers {
            // A mapping could store to a page without asking: EX or no page at all.
            // Nor may attributes be told to be kept that go with it.
            to = LockMode::Nl;
            self.tokens.release_further(resource, to);
        }
        let is_for_turn = cause == Cause::Asked && resource.kind == ResourceKind::Dir && to == LockMode::Nl;
        let release = Release { from, to, stage: Stage::Dropping, since: self.clock.now, is_for_turn };
        self.releases.insert(resource, release);
        if resource.kind == ResourceKind::Dir {
            // Writes that wait for a shipped operation hold page locks that the invalidation waits for.
            self.wake(WaitKey::Thawed(ino));
        }
        let (mut list, pages) = match to {
            LockMode::Nl => self.kernel_has(resource, cause),
            LockMode::Pr | LockMode::Ex => (Vec::new(), Vec::new()),
        };
        #[cfg(feature = "planted")]
        if !list.is_empty() && types::planted::strikes(types::planted::Planted::ReleasedBeforeTheKernel) {
            self.invalidate(Purpose::Alone, list, pages);
            return self.flush_release(resource);
        }
        // What was changed under it others see as soon as it is shared, and may change again when it is not held any more.
        let mut waits = match resource.kind {
            ResourceKind::Dir => self.cache.going.ask_in(ino, self.clock.now).into_iter().collect(),
            ResourceKind::File | ResourceKind::Attr | ResourceKind::Rename => Vec::new(),
        };
        if list.is_empty() && waits.is_empty() {
            self.flush_release(resource);
        } else if list.is_empty() {
            let job = self.invalidate(Purpose::Release(resource), waits, pages);
            self.cache.going.note_job(job);
        } else {
            waits.retain(|wait| !list.iter().any(|other| other.is_of(wait)));
            waits.append(&mut list);
            list = waits;
            if let Some(dir) = self.cache.dirs.get_mut(&ino).filter(|_| resource.kind == ResourceKind::Dir) {
                // Set again by a listing that is served meanwhile.
                dir.kernel_has = KernelHas::Nothing;
            }
            let lull = match resource.kind {
                ResourceKind::Dir => self.add_lull(ino, &mut list),
                ResourceKind::File | ResourceKind::Attr | ResourceKind::Rename => None,
            };
            let job = self.invalidate(Purpose::Release(resource), list, pages);
            self.cache.going.note_job(job);
            lull.into_iter().for_each(|lull| self.await_lull(lull));
        }
    }

    /// What the kernel may have under a resource, in the order to take it back.
    fn kernel_has(&self, resource: ResourceId, cause: Cause) -> (Vec<Invalidation>, Vec<Ino>) {
        let ino = resource.ino;
        let (mut list, mut pages) = (Vec::new(), Vec::new());
        let mut child = |list: &mut Vec<Invalidation>, ino: Ino| match self.known.get(&ino) {
            Some(known) if known.pages_out => {
                list.push(Invalidation::Pages { ino });
                pages.push(ino);
            }
            Some(known) if known.attr_out() => list.push(Invalidation::Attr { ino }),
            Some(_) | None => {}
        };
        match resource.kind {
            ResourceKind::Dir => {
                let Some(dir) = self.cache.dirs.get(&ino) else { return (list, pages) };
                let is_on_its_way = |entry: &CachedEntry| {
                    let known = self.known.get(&entry.dirent.ino).filter(|known| known.attr_out());
                    known.is_some_and(|known| known.may_be_named(self.clock.now))
                };
                for entry in dir.told_entries().filter(|e| e.name_out || is_on_its_way(e)) {
                    list.push(Invalidation::Name { parent: ino, name: entry.dirent.name.clone() });
                }
                let is_at_once = cause != Cause::Room;
                if is_at_once && dir.told_entries().any(|entry| self.outlives(entry)) {
                    list.push(Invalidation::Names {});
                }
                for name in &dir.negatives {
                    list.push(Invalidation::Name { parent: ino, name: name.clone() });
                }
                if dir.kernel_has != KernelHas::Nothing || self.known.get(&ino).is_some_and(|k| k.attr_out())
                {
                    list.extend(self.seat_on_its_way(ino).filter(|_| is_at_once));
                    list.push(match dir.kernel_has {
                        KernelHas::Listing => Invalidation::Directory { ino },
                        KernelHas::Attributes | KernelHas::Nothing => Invalidation::Attr { ino },
                    });
                }
                for entry in dir.told_entries().filter(|e| e.dirent.covered().is_some()) {
                    child(&mut list, entry.dirent.ino);
                }
            }
            ResourceKind::File => {
                // What it has pages of it has.
                if !self.known.get(&ino).is_some_and(|k| k.pages_out) {
                    list.extend(self.names_on_their_way(ino));
                }
                child(&mut list, ino);
            }
            ResourceKind::Attr => {
                if self.known.get(&ino).is_some_and(|k| k.attr_out()) {
                    list.extend(self.names_on_their_way(ino));
                    list.push(Invalidation::Attr { ino });
                }
            }
            ResourceKind::Rename => {}
        }
        (list, pages)
    }

    /// Orders an invalidation. Returns the number of the job.
    pub(crate) fn invalidate(&mut self, purpose: Purpose, list: Vec<Invalidation>, pages: Vec<Ino>) -> u64 {
        self.invalidate_changed(purpose, list, pages, false)
    }

    /// The same; `is_unknown` where the membership may have ended before.
    pub(crate) fn invalidate_changed(
        &mut self,
        purpose: Purpose,
        list: Vec<Invalidation>,
        pages: Vec<Ino>,
        is_unknown: bool,
    ) -> u64 {
        self.note_dropping(&pages);
        let list = self.wait_for_answers(list, is_unknown);
        self.begin_taking(&pages);
        let job = self.number();
        self.jobs.insert(job, InvalidateJob { purpose, pages, rounds: 0, since: job, again: None });
        self.outputs.push_back(Output::Invalidate { job, list });
        job
    }

    /// An invalidation that [`Output::Invalidate`] asked for is done.
    pub fn invalidated(&mut self, clock: Clock, job: u64) {
        self.clock = clock;
        let Some(mut done) = self.jobs.remove(job) else { return };
        self.cache.going.note_done(job);
        self.end_taking(&done.pages);
        let since = done.since;
        let again = self.filled_meanwhile(&mut done);
        if !again.is_empty() && done.rounds < ROUNDS_MAX {
            // A read that is under way fills its page later.
            let is_read = |ino: &Ino| {
                self.pinned.contains_key(ino)
                    || self.known.get(ino).is_some_and(|known| known.uses().read_at > since)
            };
            let pause = if again.iter().any(is_read) { pause_after(done.rounds) } else { Micros(0) };
            done.again = Some((clock.now + pause, again));
            done.rounds += 1;
            self.begin_taking(&done.pages);
            self.jobs.insert(job, done);
            self.take_back_again();
            return;
        }
        let forgotten = match done.purpose {
            Purpose::Release(resource) if self.is_dropped(resource) || resource.kind != ResourceKind::Dir => {
                let mut forgotten = self.being_forgotten(&done.pages);
                // A write that came after the revoke, and of which the rest is to go with it.
                forgotten.extend(self.tokens.awaits_rest(clock.now, resource));
                forgotten
            }
            _ => Vec::new(),
        };
        if !forgotten.is_empty() {
            // Whoever reads goes on by this right until that job is over. Without it he would wait for another, with his pages locked, which
            // comes when the change is acknowledged, which waits for his pages.
            done.again = Some((clock.now + FORGOTTEN_PAUSE, again.into_iter().chain(forgotten).collect()));
            self.begin_taking(&done.pages);
            self.jobs.insert(job, done);
            return;
        }
        if !again.is_empty() {
            log::warn!("pages of {again:?} were read again in each of {ROUNDS_MAX} rounds of invalidation");
        }
        // What another job takes back as well is that one's. Old content is read on for as long as a later change takes it back, and no longer:
        // what an earlier job still waits for, others may have changed since.
        let is_later =
            |other: &InvalidateJob, ino: &Ino| other.purpose.is_forget() && other.pages.contains(ino);
        let given_up: FxHashSet<Ino> = again.iter().copied().collect();
        for ino in done.pages.iter().filter(|ino| self.old_content.contains_key(ino)).collect::<Vec<_>>() {
            if !given_up.contains(ino) && !self.jobs.later(job).any(|other| is_later(other, ino)) {
                self.end_old_content(*ino);
            }
        }
        for ino in done.pages.iter().filter(|ino| !given_up.contains(ino)) {
            if !self.is_taking_pages(*ino) {
                self.note_dropped(*ino);
            }
        }
        for ino in &done.pages {
            self.wake(WaitKey::PagesGone(*ino));
        }
        let is_alone = matches!(done.purpose, Purpose::Alone);
        match done.purpose {
            Purpose::Release(resource) => self.flush_release(resource),
            Purpose::Forget { seq, open, left } => {
                self.acknowledge(seq, open);
                self.leave_directories(&left);
            }
            Purpose::OldForget => self.acknowledge_held(),
            Purpose::Renamed(seq) => self.wake(WaitKey::Ship(seq)),
            Purpose::Unlinked(ino) => self.links_are_settled(ino),
            // Some were read all the time: the guard sees to them.
            Purpose::Lapse if done.rounds == ROUNDS_MAX => self.wake(WaitKey::Member),
            Purpose::Lapse => self.on_lapsed(),
            Purpose::Anew => self.begin_anew(),
            Purpose::WriteBack => self.wake(WaitKey::WrittenBack(job)),
            Purpose::Alone => {}
        }
        if !again.is_empty() && !is_alone {
            // Given up: who waits has waited long enough. From here on nobody reads by the old right, so these go now.
            for ino in &again {
                if !self.jobs.later(job).any(|other| is_later(other, ino)) {
                    self.end_old_content(*ino);
                }
            }
            let list = again.iter().map(|ino| Invalidation::Pages { ino: *ino }).collect();
            self.invalidate(Purpose::Alone, list, again);
        }
        self.settle();
    }

    /// What an invalidation has to take back once more: pages filled while the call ran may have come after it looked. Files that had none when it began
    /// are its own from then on.
    fn filled_meanwhile(&mut self, done: &mut InvalidateJob) -> Vec<Ino> {
        let since = done.since;
        let mut again: Vec<Ino> =
            done.pages.iter().copied().filter(|ino| self.was_served(*ino, since)).collect();
        // Those of files that had none when it began, too.
        let mut new = match done.purpose {
            Purpose::Release(resource) if self.is_dropped(resource) => {
                self.kernel_has(resource, Cause::Other).1
            }
            Purpose::Lapse | Purpose::Anew => self.with_pages(),
            _ => Vec::new(),
        };
        if !new.is_empty() {
            // All pages there are, perhaps, on both sides.
            let had: FxHashSet<Ino> = done.pages.iter().copied().collect();
            new.retain(|ino| !had.contains(ino));
        }
        again.extend(&new);
        done.pages.extend(new);
        if let Some(dir) = self.listed_meanwhile(&done.purpose) {
            again.push(dir);
            if !done.pages.contains(&dir) {
                done.pages.push(dir);
            }
        }
        again
    }

    /// Those of these files whose pages are taken back for a change of another node's as well.
    fn being_forgotten(&self, pages: &[Ino]) -> Vec<Ino> {
        let others: FxHashSet<Ino> = pages.iter().copied().filter(|ino| self.is_taking_pages(*ino)).collect();
        if others.is_empty() {
            return Vec::new();
        }
        let forgets = self.jobs.iter().map(|(_, job)| job);
        let of = forgets.filter(|job| job.purpose.is_forget()).flat_map(|job| job.pages.iter().copied());
        of.filter(|ino| others.contains(ino)).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Pages begin to be taken back.
    fn note_dropping(&mut self, inos: &[Ino]) {
        for ino in inos {
            let Some(known) = self.known.get_mut(ino) else { continue };
            known.note_dropping();
            if known.is_written() {
                self.overtaken.note_taking(*ino);
            }
        }
    }

    /// All pages of a file are gone.
    fn note_dropped(&mut self, ino: Ino) {
        let Some(known) = self.known.get_mut(&ino) else { return };
        known.note_dropped();
        if known.is_written() {
            self.overtaken.note_taken(ino);
        }
    }

    /// Nobody reads old content any more; nor what was fetched of its extents, which is under no right.
    fn end_old_content(&mut self, ino: Ino) {
        self.old_content.remove(&ino);
        self.drop_pages(ino);
    }

    /// Whether pages of `ino` are being taken back by a job that waits for whoever has them locked.
    ///
    /// A write has, from before it comes until it is answered. One that waits for a token would keep the job from ending for as
    /// long as others wait for that: so nobody may begin to write meanwhile.
    pub(crate) fn is_taking_pages(&self, ino: Ino) -> bool {
        self.pages_going.contains_key(&ino)
    }

    fn begin_taking(&mut self, pages: &[Ino]) {
        for ino in pages {
            *self.pages_going.entry(*ino).or_default() += 1;
        }
    }

    fn end_taking(&mut self, pages: &[Ino]) {
        for ino in pages {
            if let Entry::Occupied(mut jobs) = self.pages_going.entry(*ino) {
                *jobs.get_mut() -= 1;
                if *jobs.get() == 0 {
                    jobs.remove();
                }
            }
        }
    }

    /// The directory that is being given back, if its listing was served since the kernel's was last taken back.
    fn listed_meanwhile(&mut self, purpose: &Purpose) -> Option<Ino> {
        let Purpose::Release(resource @ ResourceId { ino, kind: ResourceKind::Dir }) = purpose else {
            return None;
        };
        if !self.is_dropped(*resource) {
            return None;
        }
        let dir = self.cache.dirs.get_mut(ino)?;
        (std::mem::take(&mut dir.kernel_has) != KernelHas::Nothing).then_some(*ino)
    }

    /// Begins the rounds that are due.
    pub(crate) fn take_back_again(&mut self) {
        let now = self.clock.now;
        while let Some(job) = self.jobs.take_due(now) {
            let begins = self.number();
            let Some(waiting) = self.jobs.get_mut(job) else { continue };
            let Some((_, mut again)) = waiting.again.take() else { continue };
            // Those too that were served while it paused.
            let since = std::mem::replace(&mut waiting.since, begins);
            let paused: FxHashSet<Ino> = again.iter().copied().collect();
            let pages = waiting.pages.iter().copied().filter(|ino| !paused.contains(ino)).collect::<Vec<_>>();
            again.extend(pages.into_iter().filter(|ino| self.was_served(*ino, since)));
            self.note_dropping(&again);
            let list = again.iter().map(|ino| Invalidation::Pages { ino: *ino }).collect();
            self.outputs.push_back(Output::Invalidate { job, list });
        }
    }

    /// When the next round begins.
    pub(crate) fn next_round(&self) -> Micros {
        self.jobs.next_round()
    }

    /// Whether nothing of what `resource` covers may stay with the kernel.
    fn is_dropped(&self, resource: ResourceId) -> bool {
        self.releases.get(&resource).is_some_and(|r| r.stage == Stage::Dropping && r.to == LockMode::Nl)
    }

    /// Whether the kernel may have been given pages of `ino` since a number.
    fn was_served(&self, ino: Ino, since: u64) -> bool {
        self.pinned.contains_key(&ino) || self.known.get(&ino).is_some_and(|k| k.uses().served_at > since)
    }

    /// Second stage: what the right covers is flushed.
    fn flush_release(&mut self, resource: ResourceId) {
        let Some(release) = self.releases.get(&resource) else { return };
        let (from, to) = (release.from, release.to);
        let mut inos = Vec::new();
        if self.tokens.held(resource) == LockMode::Ex || from == LockMode::Ex {
            match resource.kind {
                ResourceKind::Dir => {
                    self.split_open_children(resource.ino, to);
                    inos.extend(self.live_under(resource.ino));
                }
                ResourceKind::File => inos.push(resource.ino),
                ResourceKind::Attr | ResourceKind::Rename => {}
            }
            let atimes = self.atimes_under(resource);
            self.log_atimes(&atimes);
        }
        match self.flush_or(&inos, Unstored::GiveUp) {
            Some(job) => {
                if let Some(release) = self.releases.get_mut(&resource) {
                    release.stage = Stage::Flushing(job);
                }
            }
            None => self.finish_release(resource),
        }
    }

    /// Files that a directory covers with content newer than their records, in order.
    pub(crate) fn live_under(&self, dir: Ino) -> Vec<Ino> {
        let entries = self.cache.dirs.get(&dir).map(|dir| &dir.entries);
        let mut inos: Vec<Ino> = match entries.filter(|entries| entries.len() < self.live.len()) {
            Some(entries) => entries.values().map(|entry| entry.dirent.ino).collect(),
            None => self.live.keys().copied().collect(),
        };
        let is_covered = |ino: &Ino| matches!(self.place(*ino), Place::Covered(parent, _) if parent == dir);
        inos.retain(|ino| self.live.contains_key(ino) && is_covered(ino));
        inos.sort_unstable();
        inos.dedup();
        inos
    }

    /// Children that are open here keep tokens of their own when their directory is given back.
    ///
    /// Down to PR that concerns those open for writing: for the others PR is enough.
    fn split_open_children(&mut self, dir: Ino, to: LockMode) {
        let Some(cached) = self.cache.dirs.get(&dir) else { return };
        let is_open = |ino: &Ino| {
            self.known.get(ino).is_some_and(|k| k.is_written() || to == LockMode::Nl && k.uses().readers > 0)
        };
        let mut open: Vec<Ino> = Vec::new();
        if cached.entries.len() < self.handles.len() {
            open.extend(
                cached.entries.values().filter(|e| e.dirent.covered().is_some()).map(|e| e.dirent.ino),
            );
        } else {
            open.extend(self.handles.values().map(|h| h.ino));
            open.sort_unstable();
            open.dedup();
        }
        open.retain(|ino| is_open(ino) && matches!(self.place(*ino), Place::Covered(p, _) if p == dir));
        #[cfg(feature = "planted")]
        open.retain(|_| !types::planted::strikes(types::planted::Planted::SplitForgotten));
        for ino in open {
            self.split_here(ino, Rights::Held);
        }
    }

    /// A flush has ended that releases may have waited for.
    pub(crate) fn go_on_releasing(&mut self, job: u64) {
        let mut ready: Vec<ResourceId> = self
            .releases
            .iter()
            .filter(|(_, release)| release.stage == Stage::Flushing(job))
            .map(|(resource, _)| *resource)
            .collect();
        ready.sort_unstable();
        for resource in ready {
            // Writes served while the flush ran under a right that stays (EX to PR stops them): once more.
            self.flush_release(resource);
        }
    }

    /// Last stage: the master is told.
    fn finish_release(&mut self, resource: ResourceId) {
        let Some(release) = self.releases.remove(&resource) else { return };
        let ino = resource.ino;
        let mut open = Vec::new();
        match resource.kind {
            ResourceKind::Dir => open = self.report_open(ino, release.to),
            ResourceKind::Attr => open.extend(self.report_own_open(ino)),
            ResourceKind::File | ResourceKind::Rename => {}
        }
        if resource.kind == ResourceKind::File
            && let Some(own) = self.cache.owns.get_mut(&ino)
        {
            // Another may own it from here on.
            own.charge = None;
            self.forget_charge(ino);
        }
        if release.from == LockMode::Ex {
            self.drop_unlogged(resource);
        }
        if release.to == LockMode::Nl {
            // Else the master splits some out before it hears of this.
            let is_known = self.released_open.len() + open.len() <= OPEN_REPORTS_MAX;
            match release.is_for_turn && is_known {
                true => self.set_aside(ino),
                false => self.forget_cached(resource),
            }
        }
        self.tokens.released(resource, release.to);
        match release.to {
            LockMode::Nl => self.metrics.tokens_released.add(resource.kind.into(), 1),
            LockMode::Pr | LockMode::Ex => self.metrics.tokens_converted.add(resource.kind.into(), 1),
        }
        self.metrics.revoke_latency.record(self.clock.now.since(release.since).0);
        self.give_back(resource, release.to);
        self.released_open.extend(open);
        self.wake(WaitKey::Released(resource));
    }

    /// Notes what the next release message gives back.
    pub(crate) fn give_back(&mut self, resource: ResourceId, to: LockMode) {
        self.released_at.insert(resource, self.release_number + 1);
        self.released.push((resource, to));
    }

    /// Tells the master what was given back since the last call, after what was changed under it.
    pub(crate) fn send_released(&mut self) {
        if self.released.is_empty() {
            return;
        }
        let list = std::mem::take(&mut self.released);
        let mut open = std::mem::take(&mut self.released_open);
        self.send_batch(false);
        // What is open is known before the directory that covered it is given away.
        let parts = ToMaster::release_parts(list);
        if open.len() > OPEN_REPORTS_MAX || parts.len() > 1 {
            // Opens that come before their directory are split out before the master notes what is kept of that.
            self.drop_all_aside();
        }
        self.tell_open(&mut open, OPEN_REPORTS_MAX);
        for list in parts {
            self.release_number += 1;
            for (resource, _) in &list {
                self.released_at.insert(*resource, self.release_number);
            }
            self.send(ToMaster::Release { list, open: std::mem::take(&mut open) });
        }
    }

    /// Tells what is open until no more than `left` are to be told.
    pub(crate) fn tell_open(&mut self, open: &mut Vec<OpenReport>, left: usize) {
        while open.len() > left {
            let rest = open.split_off(open.len().min(OPEN_REPORTS_MAX));
            self.release_number += 1;
            let open = std::mem::replace(open, rest);
            self.send(ToMaster::Release { list: Vec::new(), open });
        }
    }

    /// Children of `dir` that are open here and whose opens the master must know from now on.
    fn report_open(&mut self, dir: Ino, to: LockMode) -> Vec<OpenReport> {
        let handles = self.handles.values().map(|handle| handle.ino);
        // One whose record was moved to where nothing is known here may have been told to nobody.
        let is_untold = |ino: &Ino| {
            self.known.get(ino).is_some_and(|known| !known.open_told)
                && !matches!(self.place(*ino), Place::Covered(..))
        };
        let mut inos: Vec<Ino> = handles.clone().filter(is_untold).collect();
        if to == LockMode::Nl {
            let entries = self.cache.dirs.get(&dir).map(|dir| &dir.entries);
            match entries.filter(|entries| entries.len() < self.handles.len()) {
                Some(entries) => inos.extend(entries.values().map(|entry| entry.dirent.ino)),
                None => inos.extend(handles),
            }
        }
        inos.sort_unstable();
        inos.dedup();
        let mut open = Vec::new();
        for ino in inos {
            let is_covered =
                matches!(self.place(ino), Place::Covered(p, _) if p == dir) && to == LockMode::Nl;
            let is_uncovered = matches!(self.place(ino), Place::Own | Place::Unknown);
            let Some(known) = self.known.get_mut(&ino).filter(|known| known.is_open()) else { continue };
            if is_covered || is_uncovered && !known.open_told {
                known.open_told = true;
                if is_covered {
                    known.set_place(Place::Unknown);
                }
                open.push(OpenReport { ino });
            }
        }
        open
    }

    /// Under EX nobody else could remove the inode: an open of it was told to nobody.
    fn report_own_open(&mut self, ino: Ino) -> Option<OpenReport> {
        let known = self.known.get_mut(&ino)?;
        if !known.is_open() || known.open_told {
            return None;
        }
        known.open_told = true;
        Some(OpenReport { ino })
    }

    /// Drops what a released token covered.
    fn forget_cached(&mut self, resource: ResourceId) {
        let ino = resource.ino;
        match resource.kind {
            ResourceKind::Dir => {
                let Some(dir) = self.cache.drop_dir(ino) else { return };
                self.sought.retain(|_, covering| *covering != ino);
                self.wake(WaitKey::Loaded(ino));
                self.forget_children(ino, &dir);
                if let Some(known) = self.known.get_mut(&ino) {
                    known.note_attr_gone();
                }
            }
            ResourceKind::Attr => self.forget_half(ino, |own| {
                own.charge = own.attr.take().map(|attr| attr.charge()).or(own.charge)
            }),
            ResourceKind::File => {
                self.drop_pages(ino);
                self.live.remove(&ino);
                self.forget_half(ino, |own| own.content = None);
            }
            ResourceKind::Rename => {}
        }
    }

    /// What a directory covered is not known any more.
    pub(crate) fn forget_children(&mut self, ino: Ino, dir: &DirCache) {
        for entry in dir.entries.values() {
            let child = entry.dirent.ino;
            self.drop_pages(child);
            if entry.dirent.kind() != FileKind::Directory
                && let Some(known) = self.known.get_mut(&child)
                && matches!(known.place(), Place::Covered(parent, _) if parent == ino)
            {
                known.set_place(Place::Unknown);
                known.note_attr_gone();
            }
        }
    }

    fn forget_half(&mut self, ino: Ino, forget: impl FnOnce(&mut crate::cache::OwnCache)) {
        if let Some(own) = self.cache.owns.get_mut(&ino) {
            forget(own);
            if own.attr.is_none() && own.content.is_none() {
                self.cache.owns.remove(&ino);
                // It may fall back into its directory before it is asked for again.
                if self.place(ino) == Place::Own {
                    self.set_place(ino, Place::Unknown);
                }
            }
        }
        if let Some(known) = self.known.get_mut(&ino) {
            known.note_attr_gone();
        }
    }
}

/// Rounds of invalidation after which a file read without pause is given up on, with a warning: after about a second.
const ROUNDS_MAX: u32 = 64;

/// How long after a round the next one begins. A reader whose page is taken between its arrival and the copy asks for
/// it again at once, and would lose it again: it is given the time to be done.
fn pause_after(round: u32) -> Micros {
    if round == 0 { Micros(0) } else { Micros(1000 << (round - 1).min(4)) }
}

/// Between two looks of a release whether a change that it goes along with is taken in.
const FORGOTTEN_PAUSE: Micros = Micros(200);

/// Open inodes in one message.
const OPEN_REPORTS_MAX: usize = 10_000;

/// Most that one line of the log tells.
const HELD_UP_MAX: usize = 40;
