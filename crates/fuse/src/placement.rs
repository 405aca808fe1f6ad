//! Where the reader runs: on the CPU of whom it serves.
//!
//! A request that is answered at once costs two wake-ups, the reader's and the caller's. On one CPU each is a switch. From one
//! CPU to another each is an interrupt, and the other has to leave its idle state first: that of a virtual machine has to be
//! entered anew, which takes several times as long as all the rest of a request. The scheduler prefers idle CPUs, so left
//! alone the two settle on two. So for the length of a burst of small requests the reader
//!
//! - steps back: it runs under the policy SCHED_IDLE. A CPU that runs nothing else counts as idle, so the caller is woken
//!   where it called, and goes first. When it waits for its next answer the reader runs again, and finds that request
//!   without having slept;
//! - moves to the caller's CPU, and stays there, when it slept all the same: the scheduler had taken one of the two elsewhere.
//!
//! Under SCHED_IDLE a thread gets next to nothing of a CPU that others use. So this process's own threads with much to do
//! [stand aside](stand_aside). A request that comes late ends the burst. And a
//! thread of its own, the watch, waits for a timer that the reader puts off while it is asked: where that runs out, it has the reader
//! step forth. Where somebody waited for it meanwhile, and again and again, the reader does without for a while.
//!
//! Another thread, the scout, finds out where a caller is. The kernel answers that question under the lock of the caller's
//! memory, which the caller may hold while it waits for the reader: so the reader must not ask, nor the watch.
//!
//! Both sleep through a burst. Whatever wakes on any CPU may have the scheduler move the caller: there it finds a CPU that has just left
//! its idle state, and on the reader's one that does not count as idle.

mod aside;

use std::cell::RefCell;
use std::ffi::c_int;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::abi::Opcode;
use crate::uring;
use parking_lot::Mutex;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

pub use aside::{Aside, stand_aside};

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// What became of the reader's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceEvent {
    /// It moved to the CPU of a caller.
    Moved,
    /// Somebody waited for it while it had stepped back for another.
    Rescued,
}

/// As long as it lives, the thread that made it is a reader that looks where it runs.
#[derive(Debug)]
pub(crate) struct Placement {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

impl Placement {
    /// Begins. Does nothing where the reader might not take up its policy again.
    pub fn begin() -> Option<Self> {
        let reader = rustix::thread::gettid();
        // Whoever gave it another policy had his reasons.
        if policy_of(reader).ok()? != SCHED_OTHER {
            return None;
        }
        let timer = Timer::new().inspect_err(|error| log::warn!("making a timer: {error}")).ok()?;
        let shared = Arc::new(Shared::new(timer));
        let (tell, told) = mpsc::channel();
        let mut this = Self { shared: Arc::clone(&shared), helpers: Vec::new() };
        for (name, work) in
            [("place-watch", Shared::watch as fn(&Shared, Pid)), ("place-scout", Shared::scout)]
        {
            let (theirs, tell) = (Arc::clone(&shared), tell.clone());
            let work = move || {
                let is_allowed = may_return();
                if tell.send(is_allowed.then(rustix::thread::gettid)).is_ok() && is_allowed {
                    work(&theirs, reader);
                }
            };
            let helper = std::thread::Builder::new().name(name.to_owned()).spawn(work);
            this.helpers.push(helper.inspect_err(|error| log::warn!("starting a thread: {error}")).ok()?);
            let Ok(Some(thread)) = told.recv() else {
                log::debug!("the reader stays where the scheduler has it: no right to leave SCHED_IDLE");
                return None;
            };
            _ = shared.helpers[this.helpers.len() - 1].set(thread);
        }
        let scout = this.helpers[1].thread().clone();
        PLACE.set(Some(Place::new(shared, scout)));
        Some(this)
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        PLACE.with_borrow_mut(|place| {
            if let Some(place) = place.take() {
                place.step_forth();
            }
        });
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.timer.set(SOON);
        // Where others use its CPU, it might not get there for long.
        if let (Some(scout), Ok(allowed)) = (self.shared.helpers[1].get(), sched_getaffinity(None)) {
            _ = set_policy(Some(*scout), SCHED_OTHER);
            _ = sched_setaffinity(Some(*scout), &allowed);
        }
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            _ = helper.join();
        }
    }
}

/// Whether this thread is a reader that looks where it runs. [`Handler::handled`](crate::Handler::handled) is called on it after each message.
pub fn is_reader() -> bool {
    PLACE.with_borrow(|place| place.is_some())
}

/// Whether this thread is a reader, and one caller has asked for all that it has read lately: others will hardly mind if it is kept for a moment.
pub fn is_alone() -> bool {
    PLACE.with_borrow(|place| place.as_ref().is_some_and(Place::is_alone))
}

/// To be called by a reader that is about to wait for something else than requests: where others use its CPU it would get none
/// afterwards. Its next answer has it step back again.
pub fn rise() {
    PLACE.with_borrow_mut(|place| {
        if let Some(place) = place {
            place.rise();
        }
    });
}

/// When the caller has had the answer that this thread has just sent. Of a short one that is before the call that sent it was over: the caller goes
/// first from there on, for as long as he has something to do.
pub fn answered_at() -> Instant {
    PLACE.with_borrow(|place| place.as_ref().map_or_else(Instant::now, |place| place.sent_at))
}

/// The reader is about to ask for the next message.
pub(crate) fn before_read() {
    PLACE.with_borrow_mut(|place| {
        if let Some(place) = place {
            place.reading_since = Instant::now();
        }
    });
}

/// The reader has a request of `len` bytes by the thread `pid`, 0 if there is none.
pub(crate) fn asked(pid: u32, len: usize, opcode: Option<Opcode>) -> Option<PlaceEvent> {
    PLACE.with_borrow_mut(|place| place.as_mut()?.asked(pid, len, opcode))
}

/// Has `write` write an answer of `len` bytes.
pub(crate) fn answering<T>(len: usize, write: impl FnOnce() -> T) -> T {
    PLACE.with_borrow_mut(|place| match place {
        Some(place) => place.answering(len, write),
        None => write(),
    })
}

/// What the reader knows of itself.
#[derive(Debug)]
struct Place {
    shared: Arc<Shared>,
    scout: std::thread::Thread,
    /// Moves that it knows of.
    moves: u64,
    /// Small requests in a row, each close to the answer before.
    streak: u32,
    /// Of these, how many were not there when it looked, since it last looked where the caller is.
    slept: i32,
    reading_since: Instant,
    /// When it began to answer, last.
    answered_at: Instant,
    /// When the caller had that.
    sent_at: Instant,
    /// How long after its last answer the next request is still of the same burst.
    close: Duration,
    /// When it last put off the watch.
    timed_at: Instant,
    /// It has its own policy until its next answer, though it has stepped back.
    is_risen: bool,
    /// Whose request it had last, and how many of his in a row.
    caller: (u32, u32),
    /// Since when he has been the only one.
    alone_since: Instant,
    /// How often the watch had it step forth, when it last looked.
    helped: u64,
    /// Since when, how often the watch helped while somebody waited.
    rescues: (Instant, u32),
    plain_until: Instant,
    /// For how long it did without, when it last did.
    plain_for: Duration,
}

impl Place {
    fn new(shared: Arc<Shared>, scout: std::thread::Thread) -> Self {
        let now = Instant::now();
        Self {
            shared,
            scout,
            moves: 0,
            streak: 0,
            slept: 0,
            reading_since: now,
            answered_at: now,
            sent_at: now,
            close: CLOSE,
            timed_at: now,
            is_risen: false,
            caller: (0, 0),
            alone_since: now,
            helped: 0,
            rescues: (now, 0),
            plain_until: now,
            plain_for: PLAIN_MIN / 2,
        }
    }

    fn asked(&mut self, pid: u32, len: usize, opcode: Option<Opcode>) -> Option<PlaceEvent> {
        let now = Instant::now();
        self.note_caller(pid, now);
        let close = self.close;
        self.close = self.close_to(opcode);
        let has_slept = now - self.reading_since > SLEPT;
        let helped = self.shared.helped.load(Ordering::Relaxed);
        let is_rescued = std::mem::replace(&mut self.helped, helped) != helped && !has_slept;
        if is_rescued {
            self.rescued(now);
        }
        if len > SMALL || now - self.answered_at > close {
            self.end_burst();
            return is_rescued.then_some(PlaceEvent::Rescued);
        }
        self.streak = self.streak.saturating_add(1);
        let is_long = self.streak.is_multiple_of(STREAK_LONG) && self.caller.1 >= STREAK_MIN;
        if is_long && self.is_active(now) && !self.shared.is_bound() {
            // From here on those that stand aside do. Where several ask it stays free to go where there is room.
            _ = self.shared.bind(rustix::thread::gettid(), sched_getcpu());
        }
        if self.shared.is_back.load(Ordering::SeqCst) {
            self.put_off(now);
        }
        if has_slept && self.is_active(now) {
            self.slept += 1;
            if self.slept >= SLEPT_MIN {
                self.slept = -SLEPT_PAUSE;
                // Of a RELEASE the kernel does not say whose it is: of who asked before.
                self.follow(self.caller.0);
            }
        } else if !has_slept {
            self.slept = self.slept.min(0);
        }
        let moves = self.shared.moves.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.moves, moves) != moves {
            self.slept = 0;
            return Some(PlaceEvent::Moved);
        }
        is_rescued.then_some(PlaceEvent::Rescued)
    }

    /// Of what nobody waits for the kernel does not say who asked.
    fn note_caller(&mut self, pid: u32, now: Instant) {
        match &mut self.caller {
            (last, row) if *last == pid => *row = row.saturating_add(1),
            _ if pid == 0 => {}
            caller => (*caller, self.alone_since) = ((pid, 1), now),
        }
    }

    fn is_alone(&self) -> bool {
        // Callers in another namespace of process numbers are all 0.
        self.caller.0 != 0 && self.caller.1 >= STREAK_MIN && self.alone_since.elapsed() > ALONE
    }

    /// How long after the answer to a request of this kind began the next may come, for both to be of one burst. Others than who is at work
    /// on a listing must not wait until he has done.
    fn close_to(&self, opcode: Option<Opcode>) -> Duration {
        match opcode {
            Some(Opcode::Readdir | Opcode::Readdirplus) if self.caller.1 >= STREAK_MIN => CLOSE_LISTED,
            _ => CLOSE,
        }
    }

    fn is_active(&self, now: Instant) -> bool {
        self.streak >= STREAK_MIN && now >= self.plain_until
    }

    fn answering<T>(&mut self, len: usize, write: impl FnOnce() -> T) -> T {
        self.answered_at = Instant::now();
        if len > SMALL {
            self.end_burst();
            let result = write();
            self.sent_at = Instant::now();
            return result;
        }
        self.sent_at = self.answered_at;
        if self.is_active(self.answered_at) {
            self.step_back();
        }
        write()
    }

    /// What ended a long one was an exception; the next is taken to go on with it.
    fn end_burst(&mut self) {
        let was_long = self.streak >= STREAK_LONG;
        self.streak = if was_long { STREAK_MIN - 1 } else { 0 };
        self.slept = if was_long { SLEPT_MIN - 1 } else { 0 };
        self.step_forth();
    }

    /// For the watch this looks as if it had stepped back before it has: so there is no moment when it has and the watch
    /// would not help.
    fn step_back(&mut self) {
        let is_risen = std::mem::take(&mut self.is_risen);
        // Looked at first: it mostly is.
        let is_back = &self.shared.is_back;
        if !is_back.load(Ordering::SeqCst) && !is_back.swap(true, Ordering::SeqCst) {
            self.shared.timer.set(LOOK);
            self.timed_at = self.answered_at;
        } else {
            self.put_off(self.answered_at);
            if !is_risen {
                return;
            }
        }
        _ = set_policy(None, SCHED_IDLE);
        // The watch may have helped before there was need.
        if !self.shared.is_back.load(Ordering::SeqCst) {
            self.shared.release(None);
        }
    }

    /// Has the watch wait for longer.
    fn put_off(&mut self, now: Instant) {
        if now - self.timed_at > PUT_OFF {
            self.shared.timer.set(LOOK);
            self.timed_at = now;
        }
    }

    /// Takes up its own policy until the next answer.
    fn rise(&mut self) {
        if !self.is_risen && self.shared.is_back.load(Ordering::SeqCst) {
            self.is_risen = true;
            _ = set_policy(None, SCHED_OTHER);
            // Its caller waits here, and what it waits for may have it wake elsewhere.
            if !self.shared.is_bound() {
                _ = self.shared.bind(rustix::thread::gettid(), sched_getcpu());
            }
        }
    }

    /// With its own policy first: whoever is preempted under the other one, and does not look as if he were, is helped late.
    fn step_forth(&self) {
        if !self.shared.is_back.load(Ordering::SeqCst) {
            return;
        }
        self.shared.wanted.store(0, Ordering::SeqCst);
        _ = set_policy(None, SCHED_OTHER);
        if self.shared.is_back.swap(false, Ordering::SeqCst) {
            self.shared.release(None);
        }
    }

    /// Somebody waited for a reader that did not run; or that was at something long, or that was not needed until now.
    fn rescued(&mut self, now: Instant) {
        if now - self.rescues.0 > WINDOW {
            self.rescues = (now, 0);
        }
        self.rescues.1 += 1;
        if self.rescues.1 >= RESCUES_MAX {
            let is_again = now - self.plain_until < WINDOW;
            self.plain_for = if is_again { (self.plain_for * 2).min(WINDOW) } else { PLAIN_MIN };
            self.plain_until = now + self.plain_for;
            self.rescues = (self.plain_until, 0);
        }
    }

    /// Has the scout move it to where `pid` called from. The scout runs here, and goes first: it is done before the caller is answered.
    fn follow(&mut self, pid: u32) {
        self.step_back();
        if let Some(scout) = self.shared.helpers[1].get() {
            let mut here = CpuSet::new();
            here.set(sched_getcpu());
            _ = sched_setaffinity(Some(*scout), &here);
            _ = set_policy(Some(*scout), SCHED_OTHER);
        }
        self.shared.wanted.store(pid, Ordering::SeqCst);
        self.scout.unpark();
    }
}

/// What the reader and its watch share.
#[derive(Debug)]
struct Shared {
    /// The watch and the scout.
    helpers: [OnceLock<Pid>; 2],
    /// The caller whose CPU the scout is to find, 0 if there is none.
    wanted: AtomicU32,
    /// Times that the reader was moved.
    moves: AtomicU64,
    /// Where the reader may run, while it is bound to less.
    allowed: Mutex<Option<CpuSet>>,
    /// The reader has stepped back. Whoever takes this away gives the reader its policy, afterwards.
    is_back: AtomicBool,
    /// Times that the watch had the reader step forth.
    helped: AtomicU64,
    /// What the watch waits for.
    timer: Timer,
    is_over: AtomicBool,
}

impl Shared {
    fn new(timer: Timer) -> Self {
        Self {
            helpers: [OnceLock::new(), OnceLock::new()],
            wanted: AtomicU32::new(0),
            moves: AtomicU64::new(0),
            allowed: Mutex::new(None),
            is_back: AtomicBool::new(false),
            helped: AtomicU64::new(0),
            timer,
            is_over: AtomicBool::new(false),
        }
    }

    /// Binds the reader to a CPU.
    fn bind(&self, reader: Pid, cpu: usize) -> rustix::io::Result<()> {
        let mut kept = self.allowed.lock();
        // Whoever takes that away looks here afterwards.
        if !self.is_back.load(Ordering::SeqCst) {
            return Err(rustix::io::Errno::AGAIN);
        }
        let allowed = match &*kept {
            Some(allowed) => allowed.clone(),
            None => sched_getaffinity(Some(reader))?,
        };
        if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
            return Err(rustix::io::Errno::INVAL);
        }
        let mut there = CpuSet::new();
        there.set(cpu);
        sched_setaffinity(Some(reader), &there)?;
        aside::leave(cpu);
        *kept = Some(allowed);
        Ok(())
    }

    fn is_bound(&self) -> bool {
        self.allowed.lock().is_some()
    }

    /// Gives the reader, the calling thread without one, its CPUs and its policy back.
    ///
    /// One that waits for a CPU gets the one of who helps: it would stay where it waits, for as long as whoever runs there is let, though
    /// others sleep.
    fn release(&self, reader: Option<Pid>) {
        // First: it may be the reader that has the lock.
        _ = set_policy(reader, SCHED_OTHER);
        let mut kept = self.allowed.lock();
        let bound = kept.take();
        let is_bound = bound.is_some();
        let allowed = bound.or_else(|| sched_getaffinity(Some(reader?)).ok());
        let Some(allowed) = allowed else { return };
        let here = sched_getcpu();
        if reader.is_some() && allowed.is_set(here) {
            let mut one = CpuSet::new();
            one.set(here);
            _ = sched_setaffinity(reader, &one);
        }
        _ = sched_setaffinity(reader, &allowed);
        if is_bound {
            aside::come_back();
        }
    }

    /// What the watch does until it is over.
    fn watch(&self, reader: Pid) {
        while self.timer.wait() && !self.is_over.load(Ordering::SeqCst) {
            let is_back = self.is_back.swap(false, Ordering::SeqCst);
            // One that is about to step back, or forth, may be preempted on its way.
            if is_back || policy_of(reader).is_ok_and(|policy| policy == SCHED_IDLE) {
                self.helped.fetch_add(u64::from(is_back), Ordering::Relaxed);
                self.release(Some(reader));
                self.timer.set(LOOK);
            }
        }
    }

    /// What the scout does until it is over. It waits under SCHED_IDLE, so that the CPU where it last ran counts as idle still; the reader gives
    /// it its policy back for what it is to do, which is under locks that others wait for.
    fn scout(&self, reader: Pid) {
        while !self.is_over.load(Ordering::SeqCst) {
            match self.wanted.swap(0, Ordering::SeqCst) {
                0 => {
                    _ = set_policy(None, SCHED_IDLE);
                    std::thread::park();
                }
                caller => {
                    // It runs where the reader was when it asked.
                    let is_elsewhere = |cpu: &usize| *cpu != sched_getcpu();
                    if let Some(cpu) = cpu_of(caller).filter(is_elsewhere)
                        && self.bind(reader, cpu).is_ok()
                    {
                        self.moves.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

/// A timer that one thread sets and another waits for.
#[derive(Debug)]
struct Timer(OwnedFd);

impl Timer {
    fn new() -> rustix::io::Result<Self> {
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).map(Self)
    }

    /// It runs out after `time`, whatever it was set to before.
    fn set(&self, time: Duration) {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Timespec { tv_nsec: i64::from(time.subsec_nanos()), ..never };
        let set = timerfd_settime(
            &self.0,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: never, it_value: once },
        );
        debug_assert_eq!(set.err(), None, "times below a second are valid");
    }

    /// Waits until it has run out; false if that cannot be.
    fn wait(&self) -> bool {
        let mut times = [0; 8];
        loop {
            match rustix::io::read(&self.0, &mut times) {
                Err(rustix::io::Errno::INTR) => {}
                read => return read.is_ok(),
            }
        }
    }
}

/// Starts a thread, which inherits neither the policy of a reader that has stepped back, nor the place of a thread that serves a ring or stands aside.
///
/// # Errors
///
/// Those of [`std::thread::Builder::spawn`].
pub fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    PLACE.with_borrow_mut(|place| {
        if let Some(place) = place {
            place.end_burst();
        }
    });
    let home = uring::home().or_else(aside::home);
    std::thread::Builder::new().name(name).spawn(move || {
        if let Some(home) = home {
            uring::unbind(&home);
        }
        work()
    })
}

/// The CPU that the thread `pid` was last on, as far as the kernel says.
fn cpu_of(pid: u32) -> Option<usize> {
    let mut buffer = [0; STAT_LEN];
    let len = std::fs::File::open(format!("/proc/{pid}/task/{pid}/stat")).ok()?.read(&mut buffer).ok()?;
    // The name may have blanks and parentheses of its own.
    let (_, fields) = std::str::from_utf8(&buffer[..len]).ok()?.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(STAT_PROCESSOR)?.parse().ok()
}

/// Whether a thread of this process that is under SCHED_IDLE may leave it: not without CAP_SYS_NICE or RLIMIT_NICE. Tried on the calling
/// thread, which must be one that may stay there.
fn may_return() -> bool {
    set_policy(None, SCHED_IDLE).is_ok() && set_policy(None, SCHED_OTHER).is_ok()
}

/// Sets the policy of a thread of this process, of the calling one without `thread`. Its niceness stays.
#[expect(unsafe_code, reason = "rustix does not have the call")]
fn set_policy(thread: Option<Pid>, policy: c_int) -> io::Result<()> {
    unsafe extern "C" {
        fn sched_setscheduler(pid: c_int, policy: c_int, priority: *const c_int) -> c_int;
    }
    let priority = 0;
    // SAFETY: `struct sched_param` of Linux is one int, which is read during the call alone.
    match unsafe { sched_setscheduler(Pid::as_raw(thread), policy, &raw const priority) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The policy of a thread.
#[expect(unsafe_code, reason = "rustix does not have the call")]
fn policy_of(thread: Pid) -> io::Result<c_int> {
    unsafe extern "C" {
        fn sched_getscheduler(pid: c_int) -> c_int;
    }
    // SAFETY: numbers alone.
    match unsafe { sched_getscheduler(Pid::as_raw(Some(thread))) } {
        -1 => Err(io::Error::last_os_error()),
        policy => Ok(policy),
    }
}

/// See sched(7).
const SCHED_OTHER: c_int = 0;
const SCHED_IDLE: c_int = 5;

/// Field 39 of proc_pid_stat(5), counted from the third, which follows the name.
const STAT_PROCESSOR: usize = 36;

/// 52 numbers of 20 digits at most, and a name; in practice a third of that.
const STAT_LEN: usize = 1200;

/// Larger messages are copied for longer than a wake-up takes, and what is read ahead wakes nobody who waits for each.
const SMALL: usize = 64 << 10;

/// A few round trips between CPUs.
const CLOSE: Duration = Duration::from_micros(300);

/// Whoever is told of hundreds of names looks at each before he asks for more.
const CLOSE_LISTED: Duration = Duration::from_millis(2);

/// Of a burst, so many are answered before anything is done for the rest.
const STREAK_MIN: u32 = 8;
/// For how long nobody else may have asked, for who asks to count as alone.
const ALONE: Duration = Duration::from_millis(20);

/// A burst of so many was worth it, whatever ended it.
const STREAK_LONG: u32 = 64;

/// A read that took longer has slept: without that it is a system call of one or two microseconds.
const SLEPT: Duration = Duration::from_micros(6);

/// Requests that were waited for, before it looks where their caller is: one may be a caller who waited for something else.
const SLEPT_MIN: i32 = 2;

/// The same again, where moving would not help.
const SLEPT_PAUSE: i32 = 8;

/// When the watch looks after a reader that has not put it off. What waits for a reader that gets no CPU waits for so long, until the watch
/// gets one. Longer than the longest pause in a burst.
const LOOK: Duration = Duration::from_millis(3);

/// How often a reader that is asked puts the watch off: setting a timer takes half a microsecond.
const PUT_OFF: Duration = Duration::from_micros(500);

/// At once.
const SOON: Duration = Duration::from_nanos(1);

/// How often in a [`WINDOW`] the watch may help before the reader does without, for as long in the end: those who wait lose a twentieth at
/// most where the CPU is contended for long, and what only looks like that costs nothing.
const RESCUES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);
/// For how long it does without at first, twice as long each time that follows on the one before: who comes after what was contended is soon served
/// as usual.
const PLAIN_MIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
