//! The node's core, its link to the master, and the loop that carries outputs between them.
//!
//! # Locks
//!
//! | lock | guards | may be taken while holding |
//! |---|---|---|
//! | `core` | [`vfs::Core`] and the link its messages go to | nothing |
//! | `Service::master` | [`master::Master`] | nothing |
//! | `status`, `service`, and the locks of queues, timer and connections | small states | nothing of ours |
//!
//! Neither core nor master is ever locked while the other is. What they put out is taken under their lock
//! and handed on without it, by whoever has the [`Turn`] of that core; so sends and replies keep their
//! order, and nobody waits for the turn. A call into one may make work for the other: [`Shell::pump`] goes
//! back and forth between them in a loop, on the calling thread, until both are quiet. So a request of the
//! kernel that needs a grant of the master in this process is answered without a change of threads.
//!
//! The kernel is never called back with a lock held: invalidations run on threads of their own, but for attributes, which the
//! kernel marks as run out without a lock.
//!
//! A panic in a core ends the process: see [`fail_stop`].

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use adapter::{CatchUp, Driver, Invalidator, PendingTable, Task};
use chunk::{SegmentStore, SyncPlan};
use fuse::mount::Mount;
use obs::Metrics;
use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{Micros, Timespec};
use vfs::{Clock, Core, Output};
use volume::Volume;
use wire::FromMaster;

use crate::clock;
use crate::engine_sync;
use crate::fail_stop;
use crate::jobs::Jobs;
use crate::leaving::Calls;
use crate::link::Link;
use crate::options::MountOptions;
use crate::service::Service;
use crate::timer::Timer;
use crate::turn::Turn;

/// All that the threads of a node share.
pub(crate) struct Shell {
    pub volume: Volume,
    pub options: MountOptions,
    pub store: Arc<dyn SegmentStore>,
    pub metrics: Arc<Metrics>,
    pub started: Instant,
    /// Set once mounted.
    pub identity: OnceLock<Identity>,
    /// Set when the node comes up.
    pub mount: OnceLock<Arc<Mount>>,
    /// The way to the guard of the mount.
    pub guard: OnceLock<guard::Holder>,
    /// The session with the kernel, looked at from outside. Set once it has shaken hands.
    pub monitor: OnceLock<fuse::Monitor>,
    /// Set once the kernel has shaken hands.
    pub invalidator: OnceLock<Invalidator>,
    /// Set with it.
    pub corrector: OnceLock<Invalidator>,
    pub catch_up: OnceLock<Arc<CatchUp>>,
    pub(crate) pending: PendingTable,
    pub tasks: Jobs<Task>,
    core: Mutex<Guarded>,
    turn: Turn,
    /// The master in this process, while there is one.
    service: Mutex<Option<Arc<Service>>>,
    pub timer: Timer,
    pub syncs: Jobs<(u64, ToSync)>,
    /// Calls to hand on outputs that take long.
    pub bulk: Jobs<()>,
    /// Has the kernel write back what was stored through mappings.
    pub stores: Jobs<()>,
    status: Mutex<Status>,
    status_changed: Condvar,
}

/// What the thread `sync` is to do for a flush.
#[derive(Debug)]
pub(crate) enum ToSync {
    /// Have its files captured.
    Gather,
    /// Make segments durable.
    Run(SyncPlan),
}

/// Who this node says it is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub pid: u32,
    pub pid_start: u64,
    pub host: String,
    pub mountpoint: String,
    /// `major:minor` of the mount.
    pub device: String,
}

/// The core and where its messages go. Both change together, so that no message goes to a master it was
/// not meant for.
struct Guarded {
    core: Core,
    link: Option<Arc<Link>>,
    /// Outputs from before the link was lost, without the messages among them.
    stash: VecDeque<Output>,
}

/// Where the node stands.
#[derive(Debug, Default)]
struct Status {
    membership: Membership,
    /// When the link was lost that has not been replaced yet.
    down_since: Option<Micros>,
    needs_link: bool,
    /// Why the link that was lost has not been replaced yet, as far as an attempt has said.
    no_master: Option<String>,
    /// Why the master in this process must stop.
    service_failed: Option<String>,
    is_stopping: bool,
    /// Whether the node has come up: from here on it is ended by unmounting.
    is_up: bool,
    /// Whether the kernel is done with the mount.
    is_unmounted: bool,
    /// How the node ended, once it did.
    end: Option<Result<(), String>>,
}

/// Where the node stands with the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Membership {
    /// Not taken in yet.
    #[default]
    Joining,
    /// A member, perhaps between two masters.
    Member,
    /// Left, with everything flushed.
    Left,
    /// Lost, with everything that was not flushed.
    Lost(String),
}

/// What the thread that keeps the link is to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkTask {
    /// Find a master, or become it.
    Establish,
    /// Stop being master for this reason; then find another.
    StopService(String),
    /// End.
    End,
}

impl Shell {
    pub fn new(
        volume: Volume,
        store: Arc<dyn SegmentStore>,
        options: MountOptions,
        metrics: Arc<Metrics>,
    ) -> Self {
        let uuid = volume.header().id.0;
        let config = vfs::Config {
            segment_len: volume.header().segment_bytes,
            inline_bytes_max: volume.header().inline_bytes as usize,
            ..options.core_config()
        };
        let core = Core::new(config, uuid, Arc::clone(&store), Arc::clone(&metrics));
        Self {
            volume,
            options,
            store,
            metrics,
            started: Instant::now(),
            identity: OnceLock::new(),
            mount: OnceLock::new(),
            guard: OnceLock::new(),
            monitor: OnceLock::new(),
            invalidator: OnceLock::new(),
            corrector: OnceLock::new(),
            catch_up: OnceLock::new(),
            pending: PendingTable::default(),
            tasks: Jobs::default(),
            core: Mutex::new(Guarded { core, link: None, stash: VecDeque::new() }),
            turn: Turn::default(),
            service: Mutex::default(),
            timer: Timer::default(),
            syncs: Jobs::default(),
            bulk: Jobs::default(),
            stores: Jobs::default(),
            status: Mutex::default(),
            status_changed: Condvar::new(),
        }
    }

    /// Calls the core; outputs wait for [`pump`](Self::pump).
    pub fn with_core<T>(&self, call: impl FnOnce(&mut Core, Clock) -> T) -> T {
        self.with_guarded(|guarded| call(&mut guarded.core, clock::for_core()))
    }

    /// Calls the core and carries on what comes of it.
    pub fn call_core<T>(&self, call: impl FnOnce(&mut Core, Clock) -> T) -> T {
        let result = self.with_core(call);
        self.pump(Work::OfCore);
        result
    }

    /// The same for one of several calls in a row: whoever waits for the core meanwhile has it after each.
    pub fn call_core_by_turns<T>(&self, call: impl FnOnce(&mut Core, Clock) -> T) -> T {
        let mut guarded = self.core.lock();
        let result = fail_stop::guarded("the node's core", || call(&mut guarded.core, clock::for_core()));
        MutexGuard::unlock_fair(guarded);
        self.pump(Work::OfCore);
        result
    }

    fn with_guarded<T>(&self, call: impl FnOnce(&mut Guarded) -> T) -> T {
        let mut guarded = self.core.lock();
        fail_stop::guarded("the node's core", || call(&mut guarded))
    }

    /// Hands outputs on, back and forth between core and master, until none is left or other threads
    /// have the turn.
    pub fn pump(&self, work: Work) {
        let (mut of_core, mut of_master) = (work == Work::OfCore, work == Work::OfMaster);
        while of_core || of_master {
            if std::mem::take(&mut of_core) {
                of_master |= self.hand_on_from_core();
            }
            if std::mem::take(&mut of_master)
                && let Some(service) = self.service()
            {
                of_core |= service.hand_on(self);
            }
        }
    }

    /// Returns whether the master in this process was told something.
    fn hand_on_from_core(&self) -> bool {
        let mut told_master = false;
        self.turn.take(|| {
            loop {
                let (outputs, link, due) = self.with_guarded(Guarded::take_outputs);
                self.timer.note(due);
                if outputs.is_empty() {
                    break;
                }
                for output in outputs {
                    told_master |= self.hand_on(output, link.as_deref());
                }
            }
        });
        told_master
    }

    /// Returns whether the master in this process was told something.
    fn hand_on(&self, output: Output, link: Option<&Link>) -> bool {
        match output {
            Output::Send(message) => match link {
                Some(link) => return link.send(message),
                None => log::debug!("without a master, not sent: {message:?}"),
            },
            Output::Reply(id, reply) => adapter::answer(self, id, reply),
            Output::Invalidate { job, list } => match self.invalidator.get() {
                Some(invalidator) => invalidator.submit(job, list),
                // The kernel knows nothing yet.
                None => self.with_core(|core, clock| core.invalidated(clock, job)),
            },
            Output::TellCloses { seq, ino } => {
                // Without a kernel there is nobody who could have closed anything.
                if !self.invalidator.get().is_some_and(|invalidator| invalidator.mark(seq, ino)) {
                    self.with_core(|core, clock| core.closes_told(clock, seq));
                }
            }
            Output::CollectStores => self.stores.push(()),
            Output::Gather { job } => self.syncs.push((job, ToSync::Gather)),
            Output::Sync { job, plan } => self.syncs.push((job, ToSync::Run(plan))),
            Output::Left => self.change_status(|status| {
                if status.membership == Membership::Member || status.membership == Membership::Joining {
                    status.membership = Membership::Left;
                }
            }),
            Output::Rejoin => {
                if let Some(link) = link {
                    self.link_lost(link);
                }
                // The link may have been lost before, and nobody was to look for another.
                self.change_status(|status| status.needs_link = true);
            }
            Output::Lost(reason) => self.change_status(|status| status.membership = Membership::Lost(reason)),
        }
        false
    }

    /// Takes in a message that came by `link`; one of a link given up is dropped. Outputs wait for
    /// [`pump`](Self::pump).
    pub fn deliver(&self, link: &Link, message: FromMaster) {
        log::trace!("from the master: {message:?}");
        let is_welcome = matches!(message, FromMaster::Welcome { .. });
        let is_taken = self.with_guarded(|guarded| {
            let is_current = guarded.link.as_deref().is_some_and(|current| current.is_same(link));
            if is_current {
                guarded.core.handle_message(clock::for_core(), message);
            }
            is_current
        });
        if is_welcome && is_taken {
            self.on_welcome();
        }
    }

    fn on_welcome(&self) {
        self.change_status(|status| {
            if status.membership == Membership::Joining {
                status.membership = Membership::Member;
            }
            if let Some(since) = status.down_since.take() {
                self.metrics.remasters.add(1);
                self.metrics.remaster_duration.record(clock::now().since(since).0);
            }
        });
    }

    /// Makes `link` the way to the master and says hello by it.
    pub fn begin(&self, link: &Arc<Link>) {
        let Some(identity) = self.identity.get().cloned() else {
            log::error!("a link before there was a mount");
            return;
        };
        let hello = self.with_guarded(|guarded| {
            guarded.link = Some(Arc::clone(link));
            let label = format!("{}:{}", identity.host, identity.mountpoint);
            guarded.core.hello(clock::for_core(), identity.pid, identity.pid_start, label, identity.device)
        });
        // The core says nothing more before it is welcome, so this is the first.
        if link.send(hello) {
            self.pump(Work::OfMaster);
        }
    }

    /// The link is gone. Does nothing if it was given up before.
    pub fn link_lost(&self, link: &Link) {
        let is_current = self.with_guarded(|guarded| {
            let is_current = guarded.link.as_deref().is_some_and(|current| current.is_same(link));
            if is_current {
                guarded.drop_link();
            }
            is_current
        });
        if !is_current {
            return;
        }
        link.close();
        self.change_status(|status| {
            status.needs_link = true;
            if status.membership == Membership::Member {
                status.down_since.get_or_insert(clock::now());
            }
        });
        self.pump(Work::OfCore);
    }

    /// Notes why there is no master yet; returns whether that is news.
    pub fn note_no_master(&self, reason: Option<String>) -> bool {
        let mut is_news = false;
        self.change_status(|status| {
            is_news = status.no_master != reason;
            status.no_master = reason;
        });
        is_news
    }

    /// Why there is no master yet.
    pub fn no_master(&self) -> Option<String> {
        self.status.lock().no_master.clone()
    }

    /// The link in use.
    pub fn link(&self) -> Option<Arc<Link>> {
        self.with_guarded(|guarded| guarded.link.clone())
    }

    /// The master in this process.
    pub fn service(&self) -> Option<Arc<Service>> {
        self.service.lock().clone()
    }

    /// Sets or takes away the master in this process; returns the one before.
    pub fn set_service(&self, service: Option<Arc<Service>>) -> Option<Arc<Service>> {
        self.metrics.is_master.set(i64::from(service.is_some()));
        std::mem::replace(&mut self.service.lock(), service)
    }

    /// The master in this process cannot go on.
    pub fn service_failed(&self, reason: String) {
        log::error!("this node stops being master: {reason}");
        self.change_status(|status| status.service_failed = Some(reason));
    }

    /// Calls what is due and returns what is due next: the work of the timer thread.
    pub fn tick(&self) -> Micros {
        self.with_core(|core, clock| {
            if core.poll_timeout() <= clock.now {
                core.handle_timeout(clock);
            }
        });
        // Before the master in this process looks who is overdue: what this node owes it may just have fallen due too.
        self.pump(Work::OfCore);
        let service = self.service();
        if let Some(service) = &service {
            service.tick();
            self.pump(Work::OfMaster);
        }
        self.pump(Work::OfCore);
        self.next_due()
    }

    /// Whether a call to the store, or of a master in this process to its engine, is under way.
    pub fn calls(&self, of_core: &vfs::Snapshot) -> Calls {
        let has_store_call = of_core.store_wait > Micros(0);
        let has_engine_call = self.service().is_some_and(|service| service.is_busy());
        if has_store_call || has_engine_call { Calls::UnderWay } else { Calls::None }
    }

    /// When a core next needs the time.
    pub fn next_due(&self) -> Micros {
        let of_master = self.service().map_or(Micros::NEVER, |service| service.next_due());
        self.with_guarded(|guarded| guarded.core.poll_timeout()).min(of_master)
    }

    /// Waits for work on the link.
    pub fn next_link_task(&self) -> LinkTask {
        let mut status = self.status.lock();
        loop {
            if status.is_stopping {
                return LinkTask::End;
            }
            if let Some(reason) = status.service_failed.take() {
                return LinkTask::StopService(reason);
            }
            let is_member = matches!(status.membership, Membership::Joining | Membership::Member);
            if std::mem::take(&mut status.needs_link) && is_member {
                return LinkTask::Establish;
            }
            self.status_changed.wait(&mut status);
        }
    }

    /// Waits until the membership is no longer `from`, for `patience`, or until the node is ending. Returns the membership.
    pub fn wait_membership(&self, from: &[Membership], patience: Duration) -> Membership {
        let deadline = Instant::now() + patience;
        let mut status = self.status.lock();
        while from.contains(&status.membership) && !status.is_stopping {
            if self.status_changed.wait_until(&mut status, deadline).timed_out() {
                break;
            }
        }
        status.membership.clone()
    }

    /// Where the node stands with the volume.
    pub fn membership(&self) -> Membership {
        self.status.lock().membership.clone()
    }

    /// Sleeps, but not beyond the node's end. Returns whether the node goes on.
    pub fn pause(&self, time: Duration) -> bool {
        let mut status = self.status.lock();
        if !status.is_stopping {
            self.status_changed.wait_for(&mut status, time);
        }
        !status.is_stopping
    }

    /// Whether the node is ending.
    pub fn is_stopping(&self) -> bool {
        self.status.lock().is_stopping
    }

    /// Ends the thread that keeps the link.
    pub fn stop(&self) {
        self.change_status(|status| status.is_stopping = true);
    }

    /// Notes that the node has come up. Returns whether it has: not so if it was called off.
    pub fn come_up(&self) -> bool {
        let mut status = self.status.lock();
        status.is_up = !status.is_stopping;
        status.is_up
    }

    /// Ends a node that has not come up yet. Returns whether it has not.
    pub fn call_off(&self) -> bool {
        let mut status = self.status.lock();
        status.is_stopping |= !status.is_up;
        self.status_changed.notify_all();
        !status.is_up
    }

    /// Says how the node ended, to whoever waits for that.
    pub fn set_end(&self, end: Result<(), String>) {
        self.change_status(|status| status.end = Some(end));
    }

    /// Waits at most `patience` for the node's end.
    pub fn wait_end(&self, patience: Duration) -> Option<Result<(), String>> {
        let deadline = Instant::now() + patience;
        let mut status = self.status.lock();
        while status.end.is_none() {
            if self.status_changed.wait_until(&mut status, deadline).timed_out() {
                break;
            }
        }
        status.end.clone()
    }

    /// Waits at most `patience` until the kernel is done with the mount; returns whether it is.
    pub fn wait_unmounted(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut status = self.status.lock();
        while !status.is_unmounted && !self.status_changed.wait_until(&mut status, deadline).timed_out() {}
        status.is_unmounted
    }

    fn change_status(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock());
        self.status_changed.notify_all();
    }
}

impl Driver for Shell {
    /// Long batches are handed on by a thread of their own: the kernel's next request does not wait until they are encoded, or
    /// committed by the master in this process.
    fn with_core<R>(&self, call: impl FnOnce(&mut Core, Clock) -> R) -> R {
        let (result, made) = self.with_guarded(|guarded| {
            let result = call(&mut guarded.core, clock::for_core());
            (result, guarded.made())
        });
        match made {
            Made::Nothing { due } => self.timer.note(due),
            Made::Outputs => self.pump(Work::OfCore),
            Made::Bulk => self.bulk.push(()),
        }
        result
    }

    fn handled(&self) {
        if engine_sync::take_put_off()
            && let Some(service) = self.service()
        {
            service.sync_put_off(self);
        }
    }

    fn spawn(&self, task: Task) {
        self.tasks.push(task);
    }

    fn pending(&self) -> &PendingTable {
        &self.pending
    }

    fn invalidator(&self) -> &Invalidator {
        self.invalidator.get().expect("the session starts after the invalidator was made")
    }

    fn corrector(&self) -> &Invalidator {
        self.corrector.get().expect("the session starts after the corrector was made")
    }

    fn catch_up(&self) -> Option<&Arc<CatchUp>> {
        self.catch_up.get()
    }

    fn store(&self) -> &dyn SegmentStore {
        &*self.store
    }

    fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    fn wall(&self) -> Timespec {
        clock::wall()
    }

    fn unmounted(&self) {
        self.change_status(|status| status.is_unmounted = true);
    }
}

/// What a call into the core left to be handed on.
enum Made {
    /// Nothing: as most requests do, whose answer is the call's result.
    Nothing {
        /// When the core next needs the time.
        due: Micros,
    },
    Outputs,
    /// Outputs that take long.
    Bulk,
}

impl Guarded {
    fn made(&self) -> Made {
        if !self.core.has_outputs() && self.stash.is_empty() {
            return Made::Nothing { due: self.core.poll_timeout() };
        }
        if self.core.has_bulk() { Made::Bulk } else { Made::Outputs }
    }

    /// All outputs there are, where messages among them go, and when the core next needs the time.
    fn take_outputs(&mut self) -> (Vec<Output>, Option<Arc<Link>>, Micros) {
        let mut outputs: Vec<Output> = self.stash.drain(..).collect();
        while let Some(output) = self.core.poll_output() {
            outputs.push(output);
        }
        (outputs, self.link.clone(), self.core.poll_timeout())
    }

    /// Messages for the lost master are dropped: the core sends again what matters.
    fn drop_link(&mut self) {
        while let Some(output) = self.core.poll_output() {
            if !matches!(output, Output::Send(_)) {
                self.stash.push_back(output);
            }
        }
        self.link = None;
        self.core.link_down(clock::for_core());
    }
}

/// Whose outputs are to be handed on first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The node's core's.
    OfCore,
    /// The master's in this process.
    OfMaster,
}
