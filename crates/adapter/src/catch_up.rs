//! What the kernel has of an inode is brought up to date: it is made to ask for it.
//!
//! The kernel cannot be told of other permissions, nor of an earlier end. It takes permissions from an answer where nothing moved since it
//! asked, and judges by older ones otherwise. It takes an earlier end from an answer to GETATTR, and from a short answer to READ only
//! where nothing moved since it asked; it fills the rest of the page with zeros in any case, and reads up to the end it
//! has. So before a READ is answered that met an end before the kernel's, the node looks at what the kernel has, through
//! its own mount, and if need be has it ask that way ([`fuse::mount::KernelFile`]).
//!
//! Before an answer is given by which access is judged, it is looked in the same way whether the kernel has the permissions.
//!
//! Having taken an end, the kernel drops the pages behind it, for which it waits until READs have filled them: those are
//! answered by then, and whose read it was may write. What is written would be dropped as well, even before it is sent. So the kernel
//! asks by a SETATTR, which holds the lock that writes wait for. Where that lock is held for longer, perhaps by who waits for
//! the very answer, it asks by a GETATTR, and an answer that holds no pages waits until the pages are gone.
//!
//! No lock is held while the kernel is asked. It is answered at once ([`CatchUp::turn`]): what it waits for are READs
//! of pages behind the new end, and those wait for nothing but to see the new end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use fuse::Errno;
use fuse::mount::{Cached, KernelFile, Mount};
use meta::FileKind;
use parking_lot::{Condvar, Mutex};
use types::Ino;
use vfs::{Asker, Outdated, Permissions, Seen};

use crate::caller::Caller;
use crate::linux;
use crate::refused::{InCall, in_call};

/// What brings a kernel up to date, of one mount.
#[derive(Debug)]
pub struct CatchUp {
    mount: Arc<Mount>,
    /// Questions that the kernel is asked or has not dealt with.
    running: Mutex<Vec<Asking>>,
    /// How many they are: hardly ever any, and each request is asked whether it is of one.
    runs: AtomicUsize,
    ended: Condvar,
    /// Files that somebody here cuts: the kernel drops pages behind the end that he was answered, and nothing shows yet that it
    /// is done.
    cut: Mutex<BTreeMap<Ino, Cut>>,
    /// How many they are.
    cuts: AtomicUsize,
    /// Whether it was said that this cannot be done.
    is_told: AtomicBool,
}

/// A truncation of a thread here.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// `None` if it is not in sight.
    by: Option<Caller>,
    since: Instant,
    /// Whether the answer was given.
    is_told: bool,
}

/// A thread that has the kernel ask.
#[derive(Clone, Copy, Debug)]
struct Asking {
    /// What for.
    of: Outdated,
    /// As the kernel names it in a request.
    thread: u32,
    how: How,
    /// The end that the kernel had just before.
    end: Option<u64>,
    stage: Stage,
    since: Instant,
}

/// What the kernel is made to ask by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// SETATTR, under the lock of the file.
    Locked,
    /// GETATTR.
    Free,
    /// Nothing: what it has is looked at.
    Look,
}

/// Through what the kernel is made to ask.
enum Source {
    /// What was opened before.
    File(Arc<KernelFile>),
    /// A handle yet to be opened: a kernel that has dropped the inode looks it up first, and waits for the answer.
    Handle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The question has not come.
    Queued,
    /// It is answered, and the kernel drops pages.
    Answered,
    /// It will be refused.
    Refused,
}

/// What is to be done about a question of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It was not made to ask.
    Other,
    /// It is to be answered at once.
    Now(Question),
    /// It comes too late.
    Never,
}

/// What the kernel was made to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// What for.
    pub of: Outdated,
    /// Whether it asks under the lock of the file.
    pub is_locked: bool,
    /// The end that the kernel had just before.
    pub end: Option<u64>,
}

impl CatchUp {
    /// Looks through `mount`.
    pub fn new(mount: Arc<Mount>) -> Arc<Self> {
        Arc::new(Self {
            mount,
            running: Mutex::default(),
            runs: AtomicUsize::new(0),
            ended: Condvar::new(),
            cut: Mutex::default(),
            cuts: AtomicUsize::new(0),
            is_told: AtomicBool::new(false),
        })
    }

    /// The end that the kernel has of a file; `None` if that cannot be seen.
    pub fn size(&self, ino: Ino, generation: u32) -> Option<u64> {
        let thread = thread_number();
        let of = Outdated { ino, generation, told: None, end: true, permissions: false, asker: Asker::Other };
        self.enter(of, thread, How::Look);
        let size = self.mount.kernel_file(ino.0, generation).and_then(|file| file.size());
        self.leave(thread);
        size.ok()
    }

    /// Returns once `is_current` says so of what the kernel has, and what that is. [`Brought::Not`] if it cannot say, or the kernel could
    /// not be brought there: it takes no end while a write of its own is under way that moves the end, and that may be waiting
    /// for another node. Nor is it given one while it `may_fill` pages for a write, but under the lock of the file. Where a truncation here `is_cut`, and
    /// not answered, it is about to take the end.
    ///
    /// Opening a directory that has no name in the kernel any more looks one up, under the lock of its parent. That may be held by who waits
    /// for the very answer: so this is done on a thread of its own, and not waited for for long. Who is judged next, without a question in
    /// between, holds no such lock (linux:fs/fuse/dir.c, `fuse_permission`, asks of a directory that has a name).
    pub fn bring(
        self: &Arc<Self>,
        of: Outdated,
        is_current: impl Fn(Seen) -> Option<bool> + Send + 'static,
        may_fill: impl Fn() -> bool + Send + 'static,
        is_cut: impl Fn() -> bool + Send + 'static,
    ) -> Brought {
        if !is_directory(of) {
            return self
                .looking(of, || self.look_and_ask(of, self.open(of)?, is_current, may_fill, is_cut))
                .map_or(Brought::Not, Brought::To);
        }
        let this = Arc::clone(self);
        let (begin, begins) = sync_channel(1);
        let (open, opens) = sync_channel(1);
        let begun = apart("look", move || {
            _ = begin.send(Caller::this());
            this.looking(of, || {
                let file = this.open(of);
                _ = open.send(());
                this.look_and_ask(of, file?, is_current, may_fill, is_cut)
            })
        });
        let Some(brought) = begun else { return Brought::Not };
        let patience = if of.asker == Asker::Judged { PATIENCE } else { DIRECTORY_TAKES };
        let is_open =
            begins.recv_timeout(STARTS_WITHIN).is_ok_and(|looks| is_through(looks, &opens, patience));
        // From there on it needs no lock.
        match is_open.then(|| brought.recv_timeout(PATIENCE)) {
            Some(Ok(Some(seen))) => Brought::To(seen),
            Some(Ok(None)) => Brought::Not,
            Some(Err(_)) | None => {
                log::debug!("directory {} is in use in the kernel: the answer waits no longer", of.ino);
                Brought::Late
            }
        }
    }

    /// Returns once `is_current` says so of what the kernel has, or when an answer on its way would have come. On a thread of its own,
    /// for who looks may have to wait for the attributes of the mount point.
    pub fn await_taken(
        self: &Arc<Self>,
        of: Outdated,
        is_current: impl Fn(Seen) -> Option<bool> + Send + 'static,
    ) {
        let this = Arc::clone(self);
        let deadline = Instant::now() + ANSWER_TAKES;
        let looked = apart("taken", move || {
            this.looking(of, || {
                let file = this.open(of)?;
                while !is_current(seen(file.cached().ok()?))? && Instant::now() < deadline {
                    thread::sleep(PAUSE_MIN);
                }
                Some(())
            })
        });
        if let Some(looked) = looked {
            _ = looked.recv_timeout(ANSWER_TAKES);
        }
    }

    fn looking<T>(&self, of: Outdated, look: impl FnOnce() -> Option<T>) -> Option<T> {
        let thread = thread_number();
        self.enter(of, thread, How::Look);
        let found = look();
        self.leave(thread);
        found
    }

    fn open(&self, of: Outdated) -> Option<KernelFile> {
        match self.mount.kernel_file(of.ino.0, of.generation) {
            Ok(file) => Some(file),
            // Nobody has it any more who could be shown anything.
            Err(Errno::STALE) => None,
            Err(errno) => {
                self.tell(of.ino, errno);
                None
            }
        }
    }

    fn look_and_ask(
        self: &Arc<Self>,
        of: Outdated,
        file: KernelFile,
        is_current: impl Fn(Seen) -> Option<bool>,
        may_fill: impl Fn() -> bool,
        is_cut: impl Fn() -> bool,
    ) -> Option<Seen> {
        let file = Arc::new(file);
        let deadline = Instant::now() + PATIENCE;
        let (mut asked, mut pause) = (0, PAUSE_MIN);
        loop {
            let has = seen(file.cached().ok()?);
            if is_current(has)? {
                if of.end && of.told.is_some() {
                    self.wait_while(deadline, |asking| asking.is_of(of.ino) && asking.how == How::Free);
                }
                // What was answered earlier, and is taken in only now, may be older.
                let is_awaited = |asking: &Asking| of.permissions && asking.is_on_its_way_to(of.ino);
                if !self.is_any(is_awaited) || !self.wait_while(deadline, is_awaited) {
                    return Some(has);
                }
                continue;
            }
            let is_due = |how: &How| *how != How::Free || !of.end || !is_cut() && !self.is_yet_to_cut(of.ino);
            if let Some(how) = self.next_question(of).filter(is_due) {
                if how == How::Free && of.end && may_fill() && !holds_lock(of.asker) {
                    log::debug!(
                        "ino {} is being written: the kernel is to take its end when that is over",
                        of.ino
                    );
                    return None;
                }
                if asked == ASKED_MAX {
                    log::debug!("the kernel does not take what there is of ino {}: it has {has:?}", of.ino);
                    return None;
                }
                asked += 1;
                self.ask(of, how, Source::File(Arc::clone(&file)), Some(has.end));
            }
            if Instant::now() > deadline {
                log::warn!("the kernel does not ask for ino {}", of.ino);
                return None;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// A truncation of a thread, as the kernel names it in a request, is about to be answered.
    pub fn cuts(&self, ino: Ino, thread: u32) {
        let mut cut = self.cut.lock();
        cut.insert(ino, Cut { by: Caller::of_request(thread), since: Instant::now(), is_told: false });
        self.cuts.store(cut.len(), Ordering::Relaxed);
    }

    /// It was answered.
    pub fn cut_told(&self, ino: Ino) {
        if let Some(cut) = self.cut.lock().get_mut(&ino) {
            cut.is_told = true;
        }
    }

    /// A request came that the kernel makes under the lock of the file: no truncation is under way that was answered before.
    pub fn is_locked(&self, ino: Ino) {
        if self.cuts.load(Ordering::Relaxed) > 0 {
            let mut cut = self.cut.lock();
            cut.remove(&ino);
            self.cuts.store(cut.len(), Ordering::Relaxed);
        }
    }

    /// Whether a thread that cuts the file is being answered, or has not had a processor since. It holds the lock of the file, and takes the
    /// end as soon as it runs: for that it waits for nothing.
    fn is_yet_to_cut(&self, ino: Ino) -> bool {
        let cut = self.cut.lock().get(&ino).copied();
        cut.is_some_and(|Cut { by, since, is_told }| {
            since.elapsed() < STARVED_MAX && (!is_told || by.is_some_and(Caller::is_running))
        })
    }

    /// Waits until nothing that was asked of the kernel for `ino`, and no truncation here, can touch pages that it is given from
    /// here on. `open` is the file if it is open here: otherwise nobody reads pages of it.
    pub fn wait(self: &Arc<Self>, ino: Ino, open: Option<Outdated>) {
        if self.cut.lock().contains_key(&ino) {
            match open {
                Some(end) => self.ask(end, How::Locked, Source::Handle, None),
                None => self.is_locked(ino),
            }
        }
        if self.wait_while(Instant::now() + QUEUED_MAX, |asking| asking.is_of(ino)) {
            return;
        }
        // What holds the lock of the file may be waiting for who waits here.
        for asking in self.running.lock().iter_mut().filter(|asking| asking.is_of(ino)) {
            if asking.stage == Stage::Queued {
                asking.stage = Stage::Refused;
            }
        }
        if !self.wait_while(Instant::now() + PATIENCE, |asking| asking.is_of(ino)) {
            log::warn!("the kernel still drops pages behind an older end of ino {ino}");
        }
    }

    /// Whether anything is done with `ino` through the mount.
    pub fn uses(&self, ino: Ino) -> bool {
        self.runs() && self.running.lock().iter().any(|asking| asking.of.ino == ino)
    }

    /// Waits until nothing is, for it keeps the mount from being unmounted; not for long.
    pub fn wait_unused(&self, ino: Ino) {
        self.wait_while(Instant::now() + UNUSED_WITHIN, |asking| asking.of.ino == ino);
    }

    /// Whether a thread looks at what the kernel has, or has it ask. Where the kernel looks a file up for it, it has the file no more.
    pub fn is_looking(&self, thread: u32) -> bool {
        self.runs() && self.running.lock().iter().any(|asking| asking.thread == thread)
    }

    /// Whether there is any thread that has the kernel ask. One that does so was counted before it did.
    fn runs(&self) -> bool {
        self.runs.load(Ordering::SeqCst) > 0
    }

    /// What is to be done about a question of a thread; it counts as answered from here on.
    ///
    /// On its way to the file it may ask for the root of the mount, as anybody does.
    pub fn turn(&self, thread: u32, ino: Ino) -> Turn {
        if !self.runs() {
            return Turn::Other;
        }
        let mut running = self.running.lock();
        let is_it =
            |asking: &&mut Asking| asking.thread == thread && asking.of.ino == ino && asking.how != How::Look;
        match running.iter_mut().find(is_it) {
            None => Turn::Other,
            Some(asking) if asking.stage == Stage::Refused => Turn::Never,
            Some(asking) => {
                asking.stage = Stage::Answered;
                if asking.how == How::Locked {
                    self.is_locked(asking.of.ino);
                }
                let (of, end) = (asking.of, asking.end);
                Turn::Now(Question { of, is_locked: asking.how == How::Locked, end })
            }
        }
    }

    /// How the kernel is to be asked next for an inode; `None` if it is being asked.
    fn next_question(&self, of: Outdated) -> Option<How> {
        let running = self.running.lock();
        let mut of_it = running.iter().filter(|asking| asking.is_of(of.ino)).peekable();
        if of_it.peek().is_none() {
            // Who has to wait for an answer about a directory often holds its lock.
            return Some(if is_directory(of) { How::Free } else { How::Locked });
        }
        of_it.all(|asking| asking.is_stuck()).then_some(How::Free)
    }

    fn is_any(&self, is_it: impl Fn(&Asking) -> bool) -> bool {
        self.running.lock().iter().any(is_it)
    }

    /// False if it takes too long.
    fn wait_while(&self, deadline: Instant, goes_on: impl Fn(&Asking) -> bool) -> bool {
        let mut running = self.running.lock();
        while running.iter().any(&goes_on) {
            if self.ended.wait_until(&mut running, deadline).timed_out() {
                return !running.iter().any(&goes_on);
            }
        }
        true
    }

    /// Has the kernel ask, on a thread of its own: it drops pages before the call returns, and waits for READs of them.
    fn ask(self: &Arc<Self>, of: Outdated, how: How, source: Source, end: Option<u64>) {
        let this = Arc::clone(self);
        // Entered here, so that it is seen as soon as this returns.
        let (begin, begins) = sync_channel(1);
        let asked = fuse::spawn("catch-up".to_owned(), move || {
            let thread = thread_number();
            this.enter_asking(of, thread, how, end);
            _ = begin.send(());
            let file = match source {
                Source::File(file) => Ok(file),
                Source::Handle => this.mount.kernel_file(of.ino.0, of.generation).map(Arc::new),
            };
            let asked = file.and_then(|file| match how {
                How::Free | How::Look => file.refresh(),
                How::Locked => match file.refresh_locked() {
                    // Nor does anybody write there.
                    Err(Errno::ROFS) => file.refresh(),
                    asked => asked,
                },
            });
            if let Err(errno) = asked {
                log::debug!("ino {} could not be asked for: {errno}", of.ino);
            }
            this.leave(thread);
        });
        match asked {
            Ok(_) => _ = begins.recv(),
            Err(error) => log::warn!("no thread to have the kernel ask for ino {}: {error}", of.ino),
        }
    }

    fn enter(&self, of: Outdated, thread: u32, how: How) {
        self.enter_asking(of, thread, how, None);
    }

    fn enter_asking(&self, of: Outdated, thread: u32, how: How, end: Option<u64>) {
        let asking = Asking { of, thread, how, end, stage: Stage::Queued, since: Instant::now() };
        let mut running = self.running.lock();
        running.push(asking);
        self.runs.store(running.len(), Ordering::SeqCst);
    }

    fn leave(&self, thread: u32) {
        let mut running = self.running.lock();
        running.retain(|asking| asking.thread != thread);
        self.runs.store(running.len(), Ordering::SeqCst);
        drop(running);
        self.ended.notify_all();
    }

    fn tell(&self, ino: Ino, errno: Errno) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "what the kernel has of ino {ino}, and perhaps of others, cannot be looked at: {errno}"
            );
        }
    }
}

impl Asking {
    /// Whether it may yet have pages of `ino` dropped.
    fn is_of(&self, ino: Ino) -> bool {
        self.of.ino == ino && self.stage != Stage::Refused && self.how != How::Look
    }

    /// Whether the kernel has an answer for `ino` that it takes however late.
    fn is_on_its_way_to(&self, ino: Ino) -> bool {
        self.of.ino == ino && self.stage == Stage::Answered && self.how == How::Locked
    }

    /// Whether it will not have the end lowered before something else happens: somebody holds the lock of the file for longer,
    /// or the kernel took the end, waits for a READ of the page in which it lies, which may be the one that waits for this, and its end was moved on since.
    fn is_stuck(&self) -> bool {
        let is_held_up = match self.how {
            How::Locked => self.stage != Stage::Refused,
            How::Free => self.stage == Stage::Answered,
            How::Look => false,
        };
        is_held_up && self.since.elapsed() > QUEUED_MAX
    }
}

/// What came of bringing the kernel up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// It has this.
    To(Seen),
    /// It could not be brought there, or nobody can say.
    Not,
    /// Nobody knows yet: it may never say before the answer is given.
    Late,
}

/// Whether who waits for an answer holds the lock of the file meanwhile.
pub(crate) fn holds_lock(asker: Asker) -> bool {
    match asker {
        Asker::Other | Asker::Judged => false,
        Asker::Holder => true,
        // Who is not in sight may be told where to write by this.
        Asker::Thread(thread) => in_call(thread, linux::SEEKING_CALLS) != InCall::Other,
    }
}

fn is_directory(of: Outdated) -> bool {
    of.told.is_some_and(|told| told.kind == FileKind::Directory)
}

/// Does it on a thread of its own, as it may have to wait in the kernel; what comes of it is received from what this returns.
fn apart<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Option<Receiver<T>> {
    let (done, is_done) = sync_channel(1);
    match fuse::spawn(name.to_owned(), move || _ = done.send(work())) {
        Ok(_) => Some(is_done),
        Err(error) => {
            log::warn!("no thread to look at what the kernel has: {error}");
            None
        }
    }
}

/// Whether a thread is through, which `passes` says; it is waited for for so long, and longer while it lacks a processor only.
fn is_through(thread: Caller, passes: &Receiver<()>, patience: Duration) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match passes.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) if thread.is_running() && Instant::now() < deadline => {}
            passed => return passed.is_ok(),
        }
    }
}

fn seen(cached: Cached) -> Seen {
    let Cached { size, mode, uid, gid } = cached;
    Seen { end: size, permissions: Permissions { mode, uid, gid } }
}

/// This thread, as the kernel names it in a request.
fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// How long a close waits for that.
const UNUSED_WITHIN: Duration = Duration::from_millis(100);
/// How long the kernel may take. All it waits for are answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the lock of a file may be awaited.
const QUEUED_MAX: Duration = Duration::from_millis(5);
/// A thread that has been started runs by then.
const STARTS_WITHIN: Duration = Duration::from_secs(1);
/// How long an answer waits until a directory is open. In use is what somebody looks a name up in or lists, and mostly not for long; or until
/// just this answer is given.
const DIRECTORY_TAKES: Duration = Duration::from_millis(20);
/// How long an answer takes from here to where the kernel takes it in.
const ANSWER_TAKES: Duration = Duration::from_millis(20);
/// So long a thread may go without a processor.
const STARVED_MAX: Duration = Duration::from_millis(500);
/// How often the kernel is made to ask.
const ASKED_MAX: u32 = 10;
/// Between two looks.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(2);
