//! Takes back from the kernel what it was told, on threads that may block for as long as the kernel likes; attributes alone, for
//! which it takes no lock, at once.
//!
//! A name is taken back under the lock of its directory, which an operation of this kernel may hold for as
//! long as other nodes make it wait, and those may be waiting for just this name: nothing but patience with an
//! end gets out of that circle. So:
//!
//! 1. The steps of a job are taken in order; jobs are independent of each other.
//! 2. When a name has not been taken back within [`Config::patience`], the epoch is raised: every name that
//!    the kernel has runs out, and answers in flight with them. All names of all jobs submitted before are
//!    then done. The rest of the stuck job is taken over by another thread, so that it is reported without
//!    waiting for the stuck call; the stuck thread finds nothing left to do. A thread that runs, or waits for a processor only, is not
//!    stuck: an epoch costs the kernel all names, and the next walk of a tree twice its time.
//! 3. Calls that may block (names, pages) leave at least one thread free. A job that cannot make its call
//!    for that reason is held up until a call returns, or until all of them are found to be stuck and the epoch
//!    is raised for it. Other jobs pass it.
//! 4. No lock is held during a call.
//!
//! A call that is stuck beyond all measure is a deadlock that survives SIGKILL: the watchdog then has the
//! connection aborted, which frees everybody.

mod apart;
mod drops;
mod ended;
mod kernel;
mod lulls;
mod starved;
mod stuck;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use fuse::{Notified, NotifyError};
use obs::{InvalidationKind, Metrics};
use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{Ino, Micros, Name};
use vfs::{Asker, Invalidation, LaterEnd, Outdated, Over, PageSpan, Shield};

pub use drops::{Drops, First};
pub use kernel::{KernelCache, Notify};

use crate::caller::Caller;
use crate::catch_up::holds_lock;
use crate::changes::Changer;
use drops::{PAGES_PATIENCE, PERHAPS_PATIENCE};

/// Threads that invalidate. See the module for what it guarantees.
pub struct Invalidator {
    shared: Arc<Shared>,
}

/// Limits of an [`Invalidator`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What the names of the threads begin with.
    pub name: &'static str,
    /// How long a name may take before the epoch is raised for it.
    pub patience: Duration,
    /// How long any call may take before the connection is aborted.
    pub watchdog: Duration,
    /// Most threads, at least 2; one of them never makes a call that may block.
    pub workers_max: usize,
}

/// What the kernel is to be told, or made to ask, before it is given an answer.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// It must not have a directory under this name any more, and what it has below; or it drops it later, when
    /// that takes longer than [`Config::patience`], since the parent is in use.
    pub drop: Option<(Ino, Name)>,
    /// It must know of a later end of a file, without pages that do not: what shows zeros behind the old end must not come
    /// into sight.
    pub raise: Option<LaterEnd>,
    /// It must not have pages of what was changed behind its page cache.
    pub shield: Option<Shield>,
    /// It must not have what is kept of a listing of this directory.
    pub listing: Option<Ino>,
    /// It must have of an inode what there is.
    pub catch_up: Option<Outdated>,
}

impl Before {
    /// Whether it may be answered as it is.
    pub fn is_nothing(&self) -> bool {
        let Self { drop, raise, shield, listing, catch_up } = self;
        drop.is_none() && raise.is_none() && shield.is_none() && listing.is_none() && catch_up.is_none()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "inval",
            patience: Duration::from_millis(5),
            watchdog: Duration::from_secs(60),
            workers_max: 8,
        }
    }
}

/// What an [`Invalidator`] tells its owner, from its threads and without a lock.
///
/// The owner holds the invalidator: let these hold it weakly in turn.
pub struct Hooks {
    /// A job is done: [`vfs::Core::invalidated`].
    pub done: Box<dyn Fn(u64) + Send + Sync>,
    /// The kernel knows of an end of a file, or need not any more: [`vfs::Core::end_reached`].
    pub raised: Box<dyn Fn(LaterEnd) + Send + Sync>,
    /// Whether the kernel was told of no earlier end since: [`vfs::Core::is_end_due`].
    pub is_due: Box<dyn Fn(LaterEnd) -> bool + Send + Sync>,
    /// Whether the kernel is known to have an end, or a later one.
    pub reaches: Box<dyn Fn(LaterEnd) -> bool + Send + Sync>,
    /// Sees to it that the kernel has what there is. May block as long as reads do. Returns whether it may take from the answer what it has not.
    pub catch_up: Box<dyn Fn(Outdated) -> bool + Send + Sync>,
    /// Gives the kernel a moment to take an answer on its way, with what it judges an inode by: its number and generation.
    pub taken: Box<dyn Fn(Ino, u32) + Send + Sync>,
    /// Where the change is that a job waits for; `None` if it is over, or not in sight.
    pub changed: Box<dyn Fn(u64) -> Option<Changer> + Send + Sync>,
    /// A lull of a directory has come: [`vfs::Core::lull_came`].
    pub lull: Box<dyn Fn(Ino, u16) + Send + Sync>,
    /// The pages of a file were taken back, or its end is to be raised: returns when nothing that lowers its end touches newer
    /// pages, or the newer end, any more.
    pub lowered: Box<dyn Fn(Ino) + Send + Sync>,
    /// The pages behind a shield were taken back: [`vfs::Core::lower_shield`].
    pub unshielded: Box<dyn Fn(Shield) + Send + Sync>,
    /// Pages of a part of a file are taken back.
    pub drops: Drops,
    /// The kernel, or what invalidates, is stuck: abort the connection ([`fuse::mount::Mount::abort`]).
    pub abort: Box<dyn Fn() + Send + Sync>,
}

impl Invalidator {
    /// Starts the first thread and the one that watches.
    ///
    /// # Errors
    ///
    /// If threads cannot be started. Later ones that cannot be are done without.
    pub fn new(
        config: Config,
        notify: Arc<dyn Notify>,
        metrics: Arc<Metrics>,
        hooks: Hooks,
    ) -> io::Result<Self> {
        let config = Config { workers_max: config.workers_max.max(2), ..config };
        let state = State { epoch_works: notify.has_inc_epoch(), ..State::default() };
        let shared = Arc::new(Shared {
            config,
            notify,
            metrics,
            hooks,
            state: Mutex::new(state),
            work: Condvar::new(),
            watch: Condvar::new(),
            ended: Condvar::new(),
            lulls: lulls::Lulls::default(),
            raised: Mutex::default(),
        });
        // Made first: its drop ends what was started if the second thread cannot be.
        let this = Self { shared };
        let mut state = this.shared.state.lock();
        this.shared.start_thread(&mut state, "watch", Shared::watch)?;
        this.shared.start_thread(&mut state, "0", Shared::work)?;
        state.workers = 1;
        drop(state);
        Ok(this)
    }

    /// Carries out an order of the core and reports `job` when it is done, perhaps before this returns. Never blocks.
    pub fn submit(&self, job: u64, list: Vec<Invalidation>) {
        log::trace!("invalidation {job}: {list:?}");
        if list.len() <= AT_ONCE_MAX && list.iter().all(is_instant) && !self.shared.state.lock().is_shut_down
        {
            // Another thread takes longer to wake.
            list.into_iter().for_each(|invalidation| self.shared.perform(&Step::Order(invalidation), None));
            return self.shared.report(Done::Job(job));
        }
        let steps = list.into_iter().map(Step::Order).collect();
        self.shared.submit(steps, Done::Job(job));
    }

    /// Takes attributes back, those that are under way included. Waits for nothing: the inode must be one that the kernel is
    /// asking about.
    pub fn outdate(&self, ino: Ino) {
        self.shared.perform(&Step::Order(Invalidation::Attr { ino }), None);
    }

    /// Nobody is on his way to a name any more: a job that waits for that alone goes on.
    pub fn settle(&self, parent: Ino, name: &Name) {
        self.shared.end_name(parent, name);
    }

    /// A step need not be taken, or waited for, any more: a job that waits for that alone goes on.
    pub fn end(&self, over: Over) {
        self.shared.end_over(over);
    }

    /// Whether all names ran out at once so long ago at most.
    pub fn has_raised_within(&self, within: Micros) -> bool {
        self.shared.raised.lock().is_some_and(|at| at.elapsed() <= Duration::from_micros(within.0))
    }

    /// Sees to what comes before an answer, then calls `then`. Never blocks.
    pub fn prepare(&self, before: Before, then: Box<dyn FnOnce() + Send>) {
        let Before { drop, raise, shield, listing, catch_up } = before;
        let drop = drop.map(|(parent, name)| Step::Order(Invalidation::Drop { parent, name }));
        // First: having taken an earlier end, the kernel zeroes the rest of its page.
        let raise = raise.into_iter().flat_map(|end| [Step::Lowered(end.ino), Step::End(end)]);
        let shield = shield.into_iter().flat_map(|shield| {
            let Shield { ino, offset, len, .. } = shield;
            [Step::Range { ino, offset, len }, Step::Unshielded(shield)]
        });
        let listing = listing.map(|ino| Step::Order(Invalidation::Directory { ino }));
        let catch_up = catch_up.map(Step::CatchUp);
        let steps = drop.into_iter().chain(raise).chain(shield).chain(listing).chain(catch_up).collect();
        self.shared.submit(steps, Done::Call(Some(then)));
    }

    /// Takes back the pages of `len` bytes, at least one, from `offset` on, then calls `then`. Never blocks.
    pub fn range(&self, ino: Ino, offset: u64, len: u32, then: Option<Box<dyn FnOnce() + Send>>) {
        let pages = Step::Range { ino, offset, len: u64::from(len) };
        self.shared.submit([pages].into(), Done::Call(then));
    }

    /// Takes pages back that are filled for a write which waits, on a thread of its own: what somebody has stored into them meanwhile is written back before, and waits as well.
    pub fn early(&self, ino: Ino, span: PageSpan) {
        let shared = Arc::clone(&self.shared);
        let started = fuse::spawn(format!("{}-drop", self.shared.config.name), move || {
            let begun = Instant::now();
            let result = shared.inval_pages(ino, span);
            shared.count(InvalidationKind::InodePages, begun, &result);
        });
        if let Err(error) = started {
            log::warn!("no thread for what may wait in the kernel: {error}");
        }
    }

    /// Takes the pages of `first` back, then calls `answer`; or when that takes longer than it should, and they go later. Takes those of
    /// `later` back after that. Never blocks.
    pub fn pages(&self, ino: Ino, first: First<'_>, answer: Box<dyn FnOnce() + Send>, later: &[PageSpan]) {
        let surely = first.surely.iter().map(|span| (*span, PAGES_PATIENCE));
        let perhaps = first.perhaps.into_iter().map(|span| (span, PERHAPS_PATIENCE));
        let steps =
            surely.chain(perhaps).map(|(span, patience)| Step::Soon { ino, span, patience }).collect();
        let range = |span: &PageSpan| Step::Range {
            ino,
            offset: span.start,
            len: span.end.saturating_sub(span.start),
        };
        self.shared.submit(steps, Done::Answer(answer, later.iter().map(range).collect()));
    }

    /// Has the kernel tell, by [`fuse::Handler::marked`], when it has told all it had to tell by now. False: it will
    /// not. Never blocks.
    pub fn mark(&self, number: u64, ino: Ino) -> bool {
        match self.shared.notify.mark(number, ino.0) {
            Ok(Notified::Done) => true,
            Ok(Notified::Absent) => false,
            Err(error) => {
                log::debug!("{error}");
                false
            }
        }
    }

    /// Ends all threads; those that are in a call when it returns. What is not begun is dropped and not reported:
    /// first let the core leave.
    pub fn shutdown(&self) {
        self.shared.shutdown();
    }

    /// Waits until all threads have ended, after [`shutdown`](Self::shutdown). False if that took too long.
    pub fn wait_ended(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state.lock();
        while state.threads > 0 {
            if self.shared.ended.wait_until(&mut state, deadline).timed_out() {
                return state.threads == 0;
            }
        }
        true
    }
}

impl Drop for Invalidator {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for Invalidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invalidator").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

struct Shared {
    config: Config,
    notify: Arc<dyn Notify>,
    metrics: Arc<Metrics>,
    hooks: Hooks,
    state: Mutex<State>,
    /// Wakes one idle worker; who signals has taken it off [`State::idle`].
    work: Condvar,
    /// Wakes the watcher.
    watch: Condvar,
    /// A thread has ended.
    ended: Condvar,
    lulls: lulls::Lulls,
    /// When the epoch was raised last.
    raised: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct State {
    /// Jobs that a worker may go on with.
    ready: VecDeque<Job>,
    /// Jobs whose next call may block while too many calls do.
    held_up: VecDeque<Job>,
    /// Calls in progress, one per worker at most.
    calls: Vec<Call>,
    /// Steps that are over, of jobs that have not come yet, or are done; the last ones.
    early: VecDeque<Over>,
    /// Jobs submitted so far.
    submitted: u64,
    /// Names of jobs numbered below this are done, by an epoch.
    covered: u64,
    epoch_works: bool,
    next_call: u64,
    workers: usize,
    idle: usize,
    threads: usize,
    /// When the watcher wakes by itself.
    watch_at: Option<Instant>,
    is_aborted: bool,
    is_shut_down: bool,
}

/// A list to work off.
struct Job {
    /// Its place among all jobs, from 0.
    number: u64,
    steps: Arc<[Step]>,
    next: usize,
    /// Steps among these that there is no need for any more.
    settled: Vec<usize>,
    done: Done,
}

/// What is taken back or corrected.
enum Step {
    /// What the core ordered.
    Order(Invalidation),
    /// Pages of a part of a file.
    Range { ino: Ino, offset: u64, len: u64 },
    /// Pages that are waited for no longer than this.
    Soon { ino: Ino, span: PageSpan, patience: Duration },
    /// Pages behind the end that the kernel has of a file; it is told of a later one.
    End(LaterEnd),
    /// Nothing: the kernel is made to ask for what it has otherwise.
    CatchUp(Outdated),
    /// Nothing: what it was made to ask is waited for.
    Lowered(Ino),
    /// Nothing: the pages behind a shield have been taken back.
    Unshielded(Shield),
}

/// Whom to tell that a job is done.
enum Done {
    /// The core.
    Job(u64),
    /// Who asked.
    Call(Option<Box<dyn FnOnce() + Send>>),
    /// Who asked; then these steps are taken.
    Answer(Box<dyn FnOnce() + Send>, Arc<[Step]>),
}

/// A call in progress.
struct Call {
    id: u64,
    since: Instant,
    /// From when on it tries the patience of others.
    tried_since: Instant,
    caller: Caller,
    kind: CallKind,
    /// The job at this step. `None` once it was taken over.
    job: Option<Job>,
    /// What is to be taken back again when this returns.
    left_behind: Vec<Step>,
}

/// In what way a call may keep its thread waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    /// Not at all.
    Prompt,
    /// For operations on a directory; an epoch does the same without.
    Name,
    /// For reads and writes.
    Pages,
    /// For operations on a directory, and not for long.
    Settled,
}

impl Step {
    fn kind(&self) -> CallKind {
        match self {
            Self::Order(Invalidation::Name { .. } | Invalidation::Unhash { .. }) => CallKind::Name,
            Self::Order(Invalidation::Settled { .. }) => CallKind::Settled,
            // The pages of a listing are locked while entries are copied, never during a request.
            Self::Order(
                Invalidation::Renamed { .. }
                | Invalidation::Names {}
                | Invalidation::Lull { .. }
                | Invalidation::Directory { .. }
                | Invalidation::Attr { .. },
            )
            | Self::Unshielded(_) => CallKind::Prompt,
            // It ends by itself, and the write that it is for may be what all other calls wait for.
            Self::Soon { .. } => CallKind::Prompt,
            // It ends by itself, and those that wait for reads may wait for it: a read that met an earlier end is answered after it.
            Self::CatchUp(_) => CallKind::Prompt,
            Self::Order(
                Invalidation::Pages { .. } | Invalidation::Drop { .. } | Invalidation::Taken { .. },
            )
            | Self::Range { .. }
            | Self::End(_)
            | Self::Lowered(_) => CallKind::Pages,
        }
    }
}

/// Whether taking it back takes no lock at all in the kernel: attributes are only marked as run out. (That of a listing takes
/// those of its pages, and whoever copies entries from them may fault on memory that is read from here.)
fn is_instant(invalidation: &Invalidation) -> bool {
    matches!(invalidation, Invalidation::Attr { .. })
}

/// Who wakes so late was stopped, or the whole machine was.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// As many are taken back on the thread that asks.
const AT_ONCE_MAX: usize = 4;

impl CallKind {
    fn may_block(self) -> bool {
        match self {
            Self::Prompt => false,
            Self::Name | Self::Pages | Self::Settled => true,
        }
    }
}

impl Job {
    /// The next step that is not done, given how many jobs the last epoch covers.
    fn skip_covered(&mut self, covered: u64) -> Option<CallKind> {
        while let Some(step) = self.steps.get(self.next) {
            let kind = step.kind();
            let is_done =
                kind == CallKind::Name && self.number < covered || self.settled.contains(&self.next);
            if !is_done {
                return Some(kind);
            }
            self.next += 1;
        }
        None
    }

    /// Whether only an epoch, or a call that may block, gets it on.
    fn is_at_name(&self, covered: u64) -> bool {
        let kind = self.steps.get(self.next).map(Step::kind);
        kind == Some(CallKind::Name) && self.number >= covered
    }
}

impl State {
    fn put(&mut self, steps: Arc<[Step]>, done: Done) {
        let number = self.submitted;
        self.submitted += 1;
        self.ready.push_back(Job { number, steps, next: 0, settled: Vec::new(), done });
    }

    fn blocking_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.kind.may_block())
    }

    fn waited_for(&self) -> impl Iterator<Item = &Call> {
        self.blocking_calls().filter(|call| call.is_waited_for())
    }

    /// The job to go on with: those held up come first, they are older.
    fn next_job(&mut self, workers_max: usize) -> Option<Job> {
        if !self.held_up.is_empty() && !self.is_full(workers_max) {
            return self.held_up.pop_front();
        }
        self.ready.pop_front()
    }

    fn has_name_held_up(&self) -> bool {
        self.held_up.iter().any(|job| job.is_at_name(self.covered))
    }

    /// When somebody's patience with a name ends; `None` if nobody waits for one or nothing can be done.
    fn patience_ends(&self, config: &Config) -> Option<Instant> {
        if !self.epoch_works {
            return None;
        }
        let names = self.calls.iter().filter(|call| call.kind == CallKind::Name && call.is_waited_for());
        let stuck_name = names.map(|call| call.tried_since).min();
        // A job held up gives up when even the youngest of the calls in its way is stuck.
        let is_held_up = self.is_full(config.workers_max) && self.has_name_held_up();
        let all_stuck = if is_held_up { self.waited_for().map(Call::in_earnest_since).max() } else { None };
        let since = match (stuck_name, all_stuck) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        since.map(|since| since + config.patience)
    }

    /// Does not count, for the calls under way, that this process did not run when the watcher was to wake: it was stopped, and could
    /// give the kernel none of the answers that they may wait for.
    fn forgive(&mut self, late: Duration) {
        if late >= STOOD_STILL {
            for call in &mut self.calls {
                call.since += late;
                call.tried_since += late;
            }
        }
    }

    /// When the watchdog bites.
    fn watchdog_ends(&self, watchdog: Duration) -> Option<Instant> {
        if self.is_aborted {
            return None;
        }
        let waited_for = self.calls.iter().filter(|call| call.is_waited_for());
        waited_for.filter_map(|call| call.since.checked_add(watchdog)).min()
    }
}

/// Workers.
impl Shared {
    fn submit(self: &Arc<Self>, steps: Arc<[Step]>, done: Done) {
        let mut state = self.state.lock();
        if state.is_shut_down {
            // What `done` holds may answer a request: not under the lock.
            drop(state);
            return drop(done);
        }
        state.put(steps, done);
        state.end_early();
        self.call_worker(&mut state);
    }

    /// Sees to it that somebody looks at the ready jobs.
    ///
    /// If no thread is idle and none can be started, one of those at work will: not all of them can be stuck.
    fn call_worker(self: &Arc<Self>, state: &mut State) {
        if state.idle > 0 {
            state.idle -= 1;
            self.work.notify_one();
            return;
        }
        if state.workers >= state.workers_max(&self.config) || state.is_shut_down {
            return;
        }
        let which = state.workers.to_string();
        match self.start_thread(state, &which, Self::work) {
            Ok(()) => state.workers += 1,
            Err(error) => log::warn!("no further thread for invalidations: {error}"),
        }
    }

    fn start_thread(self: &Arc<Self>, state: &mut State, which: &str, run: fn(&Arc<Self>)) -> io::Result<()> {
        let shared = Arc::clone(self);
        fuse::spawn(format!("{}-{which}", self.config.name), move || {
            if catch_unwind(AssertUnwindSafe(|| run(&shared))).is_err() {
                // What it had in hand is never reported, and somebody waits for that.
                log::error!("a thread that invalidates panicked: aborting the connection");
                (shared.hooks.abort)();
            }
            shared.state.lock().threads -= 1;
            shared.ended.notify_all();
        })?;
        state.threads += 1;
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while !state.is_shut_down {
            match state.next_job(self.config.workers_max) {
                Some(job) => self.advance(&mut state, job),
                // It took the place of one that was stuck.
                None if state.workers > state.workers_max(&self.config) => {
                    state.workers -= 1;
                    return;
                }
                None => {
                    state.idle += 1;
                    // Who wakes this thread has taken it off the idle ones.
                    self.work.wait(&mut state);
                }
            }
        }
    }

    /// Goes on with `job` as far as possible.
    fn advance(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, mut job: Job) {
        loop {
            let Some(kind) = job.skip_covered(state.covered) else {
                return MutexGuard::unlocked(state, || self.report(job.done));
            };
            if kind.may_block() && state.is_full(self.config.workers_max) {
                state.held_up.push_back(job);
                return self.call_watcher(state);
            }
            match self.make_call(state, job, kind) {
                Some(same) => job = same,
                None => return,
            }
        }
    }

    /// Takes one step. Returns the job, or `None` if another thread has it now, or nobody.
    fn make_call(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        job: Job,
        kind: CallKind,
    ) -> Option<Job> {
        let (steps, next, number) = (Arc::clone(&job.steps), job.next, job.core_number());
        let id = state.next_call;
        state.next_call += 1;
        let since = Instant::now();
        state.calls.push(Call {
            id,
            since,
            tried_since: since,
            caller: Caller::this(),
            kind,
            job: Some(job),
            left_behind: Vec::new(),
        });
        self.call_watcher(state);

        MutexGuard::unlocked(state, || self.perform(&steps[next], number));

        let index = state.calls.iter().position(|call| call.id == id)?;
        let Call { mut job, left_behind, .. } = state.calls.swap_remove(index);
        if !left_behind.is_empty() && !state.is_shut_down {
            state.put(left_behind.into(), Done::Call(None));
            self.call_worker(state);
        }
        if kind.may_block() && !state.held_up.is_empty() {
            self.call_worker(state);
        }
        if state.is_shut_down {
            MutexGuard::unlocked(state, || drop(job));
            return None;
        }
        if let Some(job) = &mut job {
            job.next += 1;
        }
        job
    }

    /// Makes the call of a step, of what the core knows as this job. What the kernel does not have, or refuses to drop, is done.
    fn perform(self: &Arc<Self>, step: &Step, job: Option<u64>) {
        let notify = &*self.notify;
        let begun = Instant::now();
        let (kind, result) = match step {
            Step::Order(Invalidation::Name { parent, name }) => {
                let name = OsStr::from_bytes(name.as_bytes());
                if notify.has_expire_only() {
                    (InvalidationKind::EntryExpire, notify.expire_entry(parent.0, name))
                } else {
                    (InvalidationKind::EntryDelete, notify.inval_entry(parent.0, name))
                }
            }
            Step::Order(Invalidation::Unhash { parent, name }) => {
                let name = OsStr::from_bytes(name.as_bytes());
                (InvalidationKind::EntryDelete, notify.inval_entry(parent.0, name))
            }
            Step::Order(Invalidation::Renamed { .. } | Invalidation::Names {}) if notify.has_inc_epoch() => {
                (InvalidationKind::Epoch, self.inc_epoch())
            }
            // Before Linux 6.16: it is judged by the old owner until something else has it looked at.
            Step::Order(Invalidation::Names {}) => return,
            Step::Order(Invalidation::Renamed { parent, name }) => {
                // Right after the rename at best, which waits for this.
                let later = Invalidation::Name { parent: *parent, name: name.clone() };
                return self.submit([Step::Order(later)].into(), Done::Call(None));
            }
            Step::Order(Invalidation::Directory { ino }) => {
                (InvalidationKind::InodePages, notify.inval_inode(ino.0, 0, 0))
            }
            Step::Order(Invalidation::Pages { ino }) => {
                let result = notify.inval_inode(ino.0, 0, 0);
                (self.hooks.lowered)(*ino);
                (InvalidationKind::InodePages, result)
            }
            Step::Order(Invalidation::Attr { ino }) => {
                (InvalidationKind::Inode, notify.inval_inode(ino.0, -1, 0))
            }
            Step::Range { ino, offset, len } => {
                let span = PageSpan { start: *offset, end: offset.saturating_add(*len) };
                (InvalidationKind::InodePages, self.inval_pages(*ino, span))
            }
            Step::Soon { ino, span, patience } => return self.drop_soon(*ino, *span, *patience),
            Step::End(end) => return self.raise_end(*end),
            Step::Order(Invalidation::Drop { parent, name }) => {
                let (parent, name) = (*parent, name.clone());
                self.apart(self.config.patience, InvalidationKind::EntryDelete, move |notify| {
                    notify.inval_entry(parent.0, OsStr::from_bytes(name.as_bytes()))
                });
                return;
            }
            // Who has the name by now may rely on it: it is not dropped.
            Step::Order(Invalidation::Settled { parent, name }) => {
                return self.settle(*parent, name, job);
            }
            Step::Order(Invalidation::Lull { dir, name, number }) => {
                let lull = lulls::Lull { dir: *dir, name: name.clone(), number: *number };
                return lulls::wait(self, lull);
            }
            Step::Order(Invalidation::Taken { ino, generation }) => {
                return (self.hooks.taken)(*ino, *generation);
            }
            Step::Lowered(ino) => return (self.hooks.lowered)(*ino),
            Step::Unshielded(shield) => return (self.hooks.unshielded)(*shield),
            Step::CatchUp(of) => return self.catch_up(*of),
        };
        self.count(kind, begun, &result);
    }

    /// Brings the kernel to a later end, unless it has that, or was told of an earlier one since.
    fn raise_end(&self, end: LaterEnd) {
        let LaterEnd { ino, from, to, generation, otherwise, .. } = end;
        let (is_due, mut is_raised) = (|| (self.hooks.is_due)(end), false);
        // An answer to a request that came before any of this would be dropped, and may tell of an earlier end.
        if is_due() && !(self.hooks.reaches)(end) {
            let begun = Instant::now();
            let pages = self.inval_pages(ino, PageSpan { start: from, end: to });
            self.count(InvalidationKind::InodePages, begun, &pages);
            is_raised = is_due();
            if is_raised {
                let begun = Instant::now();
                let result = self.notify.raise_size(ino.0, to);
                self.count(InvalidationKind::End, begun, &result);
            }
        }
        if !is_due() {
            // A truncation was answered meanwhile, and may have been taken in before.
            let asker = Asker::Other;
            let undone = Outdated { ino, generation, told: None, end: true, permissions: false, asker };
            let of = otherwise.or(Some(undone).filter(|_| is_raised));
            of.into_iter().for_each(|of| self.catch_up(of));
        }
        (self.hooks.raised)(end);
    }

    fn catch_up(&self, of: Outdated) {
        let begun = Instant::now();
        let may_take = (self.hooks.catch_up)(of);
        let kind = if of.end { InvalidationKind::EarlierEnd } else { InvalidationKind::Permissions };
        self.count(kind, begun, &Ok(Notified::Done));
        if !may_take {
            self.keep_end(of.ino, of.asker);
        }
    }

    /// Sees to it that the kernel takes no attributes from answers to what it has asked by now; but from that to who has the lock of the file.
    fn keep_end(&self, ino: Ino, asker: Asker) {
        if !holds_lock(asker) {
            let begun = Instant::now();
            self.count(InvalidationKind::Inode, begun, &self.notify.inval_inode(ino.0, -1, 0));
        }
    }

    fn count(&self, kind: InvalidationKind, begun: Instant, result: &Result<Notified, NotifyError>) {
        self.metrics.invalidations.add(kind, 1);
        self.metrics.invalidation_duration.record(begun.elapsed().as_micros() as u64);
        match result {
            Ok(Notified::Done | Notified::Absent) => {}
            // With the connection went all that the kernel had.
            Err(error @ NotifyError::Disconnected { .. }) => log::debug!("{error}"),
            Err(NotifyError::Refused { kind, errno }) => log::error!("{} refused: {errno}", kind.name()),
            Err(error @ NotifyError::Unsupported { .. }) => log::error!("{error}"),
        }
    }

    fn report(self: &Arc<Self>, done: Done) {
        let told = catch_unwind(AssertUnwindSafe(|| match done {
            Done::Job(job) => (self.hooks.done)(job),
            Done::Call(Some(call)) => call(),
            Done::Call(None) => {}
            Done::Answer(answer, later) => {
                answer();
                self.submit(later, Done::Call(None));
            }
        }));
        if told.is_err() {
            log::error!("the report of an invalidation panicked");
        }
    }

    fn shutdown(&self) {
        let mut state = self.state.lock();
        state.is_shut_down = true;
        state.idle = 0;
        let dropped = (std::mem::take(&mut state.ready), std::mem::take(&mut state.held_up));
        drop(state);
        drop(dropped);
        self.lulls.clear();
        self.work.notify_all();
        self.watch.notify_all();
    }
}

/// The watcher: one thread that sleeps until somebody's patience ends.
impl Shared {
    fn watch(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while !state.is_shut_down {
            state.watch_at = self.next_deadline(&state);
            match state.watch_at {
                None => self.watch.wait(&mut state),
                Some(at) => {
                    let is_due = self.watch.wait_until(&mut state, at).timed_out();
                    if is_due {
                        state.forgive(at.elapsed());
                    }
                }
            }
            if !state.is_shut_down {
                self.check_calls(&mut state);
            }
        }
    }

    fn next_deadline(&self, state: &State) -> Option<Instant> {
        let patience = state.patience_ends(&self.config);
        let watchdog = state.watchdog_ends(self.config.watchdog);
        match (patience, watchdog) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Wakes the watcher if it would oversleep.
    ///
    /// It does not mind waking for nothing, so a quick call costs no wake-up at its end, and while calls
    /// follow each other the watcher wakes once per patience.
    fn call_watcher(&self, state: &mut State) {
        let due = self.next_deadline(state);
        let is_in_time = match (state.watch_at, due) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(at), Some(due)) => at <= due,
        };
        if !is_in_time {
            state.watch_at = due;
            self.watch.notify_one();
        }
    }

    fn check_calls(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        let now = Instant::now();
        if state.watchdog_ends(self.config.watchdog).is_some_and(|at| at <= now) {
            self.abort(state);
        }
        if self.is_epoch_due(state, now) {
            state.bear_with_starved(self.config.patience, now);
            if self.is_epoch_due(state, now) {
                self.raise_epoch(state);
            }
        }
        self.take_over(state, now);
    }

    fn abort(&self, state: &mut MutexGuard<'_, State>) {
        state.is_aborted = true;
        self.metrics.watchdog_aborts.add(1);
        let limit = self.config.watchdog;
        log::error!("the kernel has not taken an invalidation for {limit:?}: aborting its connection");
        MutexGuard::unlocked(state, || (self.hooks.abort)());
    }

    /// Whether a name is overdue that no epoch covers yet.
    fn is_epoch_due(&self, state: &State, now: Instant) -> bool {
        if !state.epoch_works {
            return false;
        }
        let is_overdue = |call: &Call| call.tried_since + self.config.patience <= now;
        let is_name_stuck = state.calls.iter().any(|call| {
            let is_at_name = |job: &Job| job.is_waited_for() && job.is_at_name(state.covered);
            is_overdue(call) && call.job.as_ref().is_some_and(is_at_name)
        });
        let is_full = state.is_full(self.config.workers_max);
        let is_stuck = |call: &Call| call.in_earnest_since() + self.config.patience <= now;
        is_name_stuck || is_full && state.has_name_held_up() && state.waited_for().all(is_stuck)
    }

    fn inc_epoch(&self) -> Result<Notified, NotifyError> {
        let result = self.notify.inc_epoch();
        *self.raised.lock() = Some(Instant::now());
        result
    }

    fn raise_epoch(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        // Not what comes meanwhile: its names may have been given out after the epoch.
        let upto = state.submitted;
        let begun = Instant::now();
        let result = MutexGuard::unlocked(state, || {
            let result = self.inc_epoch();
            self.count(InvalidationKind::Epoch, begun, &result);
            result
        });
        match result {
            Ok(_) | Err(NotifyError::Disconnected { .. }) => state.covered = state.covered.max(upto),
            // From here on stuck names wait, and the watchdog has the last word.
            Err(NotifyError::Refused { .. } | NotifyError::Unsupported { .. }) => state.epoch_works = false,
        }
    }

    /// Gets on with jobs whose names an epoch covers: those of stuck calls, and those held up.
    fn take_over(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, now: Instant) {
        let covered = state.covered;
        let patience = self.config.patience;
        let given_up = state.given_up(|call| call.tried_since + patience <= now);
        // Before any of them goes on.
        given_up.iter().for_each(|index| state.note_left_behind(*index));
        let freed: Vec<Job> =
            given_up.into_iter().filter_map(|index| state.calls[index].job.take()).collect();
        let (held_up, passed): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut state.held_up)
            .into_iter()
            .partition(|job: &Job| job.number >= covered || job.steps[job.next].kind() != CallKind::Name);
        state.held_up = held_up;
        for job in freed.into_iter().chain(passed) {
            state.ready.push_back(job);
            self.call_worker(state);
        }
    }
}

#[cfg(test)]
mod tests;
