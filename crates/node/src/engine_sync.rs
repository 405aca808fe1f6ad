//! Syncs of the engine: one serves all that was asked for when it begins.
//!
//! A thread of its own makes them. To wake it, and to be woken by it with the answer, takes a client of small fsyncs as long as a third of the sync
//! itself, and leaves him on another processor than the reader of his requests. So where the reader serves him alone
//! ([`fuse::is_alone`]) and syncs are short here, it makes his sync itself, once it has done all else that the request asked for
//! ([`fuse::Handler::handled`]), and with no lock but `round` held. Whoever else asks the mount for anything waits for it meanwhile: no longer than a sync, and after one that was long the thread
//! makes them again.
//!
//! Lock order: `round`, then those of the engine and of the master. [`Shell::pump`] is called with none of them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kv::Engine;
use parking_lot::{Condvar, Mutex};

use crate::fail_stop;
use crate::link::describe;
use crate::service::Service;
use crate::shell::{Shell, Work};

/// What is to be synced, and who is at it.
#[derive(Debug)]
pub(crate) struct EngineSync {
    asked: Mutex<Asked>,
    changed: Condvar,
    /// Held by whoever syncs or settles.
    round: Mutex<Round>,
    is_syncing: AtomicBool,
}

/// What the thread waits for.
#[derive(Debug, Default)]
struct Asked {
    jobs: Vec<u64>,
    is_low: bool,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Round {
    /// Since when syncs have not been settled, and when the last of them ended.
    unsettled: Option<(Instant, Instant)>,
    /// How long a sync takes, on average.
    takes: Duration,
}

thread_local! {
    /// Whether this thread, a reader, has put off waking the thread that syncs.
    static IS_PUT_OFF: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling reader has a sync to see to.
pub(crate) fn take_put_off() -> bool {
    IS_PUT_OFF.take()
}

impl EngineSync {
    pub fn new() -> Self {
        Self {
            asked: Mutex::default(),
            changed: Condvar::new(),
            round: Mutex::default(),
            is_syncing: AtomicBool::new(false),
        }
    }

    /// Asks for a sync; `job` is dropped after [`close`](Self::close).
    pub fn push(&self, job: u64) {
        let mut asked = self.asked.lock();
        if asked.is_closed {
            return;
        }
        asked.jobs.push(job);
        // Of two the first has waited for long enough.
        if !fuse::is_alone() || IS_PUT_OFF.replace(true) {
            self.changed.notify_one();
        }
    }

    /// A peer was heard. What a reader has put off does not wait for it any longer: it may be busy with what peers ask for.
    pub fn wake_if_asked(&self) {
        if !self.asked.lock().jobs.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Whether the engine is being synced.
    pub fn is_under_way(&self) -> bool {
        self.is_syncing.load(Ordering::Relaxed)
    }

    /// Lets the thread end once what was asked for is done.
    pub fn close(&self) {
        self.asked.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// What the thread does.
    pub fn run(&self, service: &Service, shell: &Shell, engine: &dyn Engine) {
        while let Some(jobs) = self.wait() {
            if !jobs.is_empty() {
                self.sync(&mut self.round.lock(), service, engine, &jobs);
                shell.pump(Work::OfMaster);
            }
            let mut round = self.round.lock();
            if round.patience().is_some_and(|patience| patience.is_zero()) {
                round.unsettled = None;
                if let Err(error) = engine.settle() {
                    shell.service_failed(format!("settling the metadata failed: {}", describe(&error)));
                }
            }
            drop(round);
            // A failure is told to the next who commits.
            _ = engine.prepare();
        }
    }

    /// Waits for what is asked for; nothing of it when it is time to settle or prepare, `None` once closed.
    fn wait(&self) -> Option<Vec<u64>> {
        let patience = self.round.lock().patience();
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut asked = self.asked.lock();
        while asked.jobs.is_empty() && !asked.is_low && !asked.is_closed {
            match deadline {
                None => self.changed.wait(&mut asked),
                Some(deadline) => {
                    if self.changed.wait_until(&mut asked, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        asked.is_low = false;
        let jobs = std::mem::take(&mut asked.jobs);
        (!jobs.is_empty() || !asked.is_closed).then_some(jobs)
    }

    /// What the reader does that has put a sync off: it syncs, if that is short here, or wakes the thread.
    pub fn see_to(&self, service: &Service, shell: &Shell, engine: &dyn Engine) {
        let is_done = fail_stop::guarded("a sync of the metadata", || self.sync_here(service, engine));
        if !is_done {
            self.changed.notify_one();
            return;
        }
        shell.pump(Work::OfMaster);
        // Others' syncs were put off as well, which came of this one.
        let is_asked = take_put_off();
        let is_low = engine.is_unprepared();
        if is_low {
            self.asked.lock().is_low = true;
        }
        if is_asked || is_low {
            self.changed.notify_one();
        }
    }

    /// False if it is for the thread.
    fn sync_here(&self, service: &Service, engine: &dyn Engine) -> bool {
        // The thread must be awaiting the time to settle, or about to.
        let round = self.round.try_lock();
        let Some(mut round) = round.filter(|round| round.unsettled.is_some() && round.takes <= HERE_MAX)
        else {
            return false;
        };
        let jobs = std::mem::take(&mut self.asked.lock().jobs);
        if jobs.is_empty() {
            return true;
        }
        fuse::rise();
        self.sync(&mut round, service, engine, &jobs);
        true
    }

    fn sync(&self, round: &mut Round, service: &Service, engine: &dyn Engine, jobs: &[u64]) {
        let since = Instant::now();
        self.is_syncing.store(true, Ordering::Relaxed);
        let result = engine.sync();
        self.is_syncing.store(false, Ordering::Relaxed);
        let took = since.elapsed();
        round.note(since, took);
        service.synced(jobs, result, took);
    }
}

impl Round {
    fn note(&mut self, since: Instant, took: Duration) {
        let first = self.unsettled.map_or(since, |(first, _)| first);
        self.unsettled = Some((first, since + took));
        self.takes = (self.takes * 7 + took) / 8;
    }

    /// How long it is until what was synced is to be settled: when nobody waits, or when that has not come for long.
    fn patience(&self) -> Option<Duration> {
        let (first, last) = self.unsettled?;
        let due = (last + SETTLED_AFTER).min(first + SETTLED_WITHIN);
        Some(due.saturating_duration_since(Instant::now()))
    }
}

/// How long after a sync without another the witness of it becomes durable, and how long after one when others follow: of what
/// was synced since then the loss would not be noticed after a loss of power.
const SETTLED_AFTER: Duration = Duration::from_millis(20);
const SETTLED_WITHIN: Duration = Duration::from_millis(500);
/// How long a sync may take, on average, for a reader to make it. After one of 50 ms twenty short ones are left to the thread.
const HERE_MAX: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was synced is settled soon after the last sync, and in time where they follow each other. Method: syncs of the past.
    #[test]
    fn settling_waits_for_a_pause_but_not_for_long() {
        let now = Instant::now();
        let ago =
            |millis| now.checked_sub(Duration::from_millis(millis)).expect("the machine has run for longer");
        let mut round = Round::default();
        assert_eq!(round.patience(), None);
        round.note(ago(5), Duration::from_micros(100));
        assert!(round.patience().is_some_and(|left| left <= SETTLED_AFTER && !left.is_zero()));
        let mut slow = Round::default();
        slow.note(ago(50), Duration::from_millis(50));
        assert!(slow.patience().is_some_and(|left| !left.is_zero()), "the sync itself was no pause");
        let mut late = Round::default();
        late.note(ago(30), Duration::from_micros(100));
        assert_eq!(late.patience(), Some(Duration::ZERO));
        let mut busy = Round::default();
        (0..=60).rev().for_each(|n| busy.note(ago(n * 10), Duration::from_micros(100)));
        assert_eq!(busy.patience(), Some(Duration::ZERO), "the first is overdue");
    }

    /// Goal: a disk that takes long is left to the thread, also after a single sync that did. Method: syncs of some lengths.
    #[test]
    fn readers_keep_away_from_a_slow_disk() {
        let mut round = Round::default();
        let mut note = |micros| {
            round.note(Instant::now(), Duration::from_micros(micros));
            round.takes <= HERE_MAX
        };
        assert!((0..50).all(|_| note(200)));
        assert!(!note(50_000));
        assert!((0..15).all(|_| !note(200)));
        assert!((0..50).map(|_| note(200)).last() == Some(true));
        assert!((0..50).map(|_| note(3_000)).last() == Some(false));
    }
}
