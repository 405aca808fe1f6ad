//! The thread of one ring.
//!
//! All entries are either lent to the kernel, with or without a request in the queue behind them, or here: with a handler, with a
//! [`Reply`], or in the inbox on the way back. The kernel touches an entry's memory only while it is lent, and this thread is in
//! `io_uring_enter`, and perhaps when the ring is closed.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::thread::CpuSet;
use zerocopy::IntoBytes;

use crate::abi::{InHeader, Opcode, RetrieveOut, RingCommand, notify_code, ring_command};
use crate::channel::Channel;
use crate::reply::Reply;
use crate::request::{Dialect, Request};
use crate::session::{Handler, guard};
use crate::uring::SharedRings;
use crate::uring::cpus;
use crate::uring::ring::{Barrier, Commit, Message, Payload, Ring, RingReply};
use crate::uring::slot::{IoVec, Slot};

/// Serves one queue of the kernel.
pub(crate) struct Server {
    uring: Uring,
    /// Where the ring puts what it reads from the inbox's descriptor.
    woken: Box<u64>,
    entries: Vec<Entry>,
    ring: Arc<Ring>,
    shared: Arc<SharedRings>,
    qid: u16,
    /// Entries that the kernel has, and has no request for.
    free: usize,
    /// Entries that the kernel has not given up.
    alive: usize,
    /// The kernel may have requests queued that found no entry free.
    is_short: bool,
    /// The kernel has been made to look at them.
    is_nudged: bool,
    /// How often.
    nudges: u64,
    /// When to try again what memory was lacking for.
    retry_at: Option<Instant>,
    /// Whether this thread runs where the callers of this queue do.
    is_bound: bool,
    is_begun: bool,
    is_stopped: bool,
    /// The kernel may write to `woken`.
    is_listening: bool,
    /// Entries given back since the ring was last entered.
    committed: Vec<u32>,
    /// What the kernel has completed and nobody has looked at.
    done: VecDeque<(u64, i32)>,
    messages: Vec<Message>,
    marks: Vec<Arc<Barrier>>,
    /// Interrupts of requests that are not here, and may yet come.
    early: VecDeque<u64>,
    /// Requests handed to the handler that may be waiting, and whose callers have not been looked at.
    waiting: Vec<Waiting>,
    /// Names of the request at hand.
    names: Vec<u8>,
}

/// A request that the handler has kept, perhaps.
#[derive(Debug)]
struct Waiting {
    entry: u32,
    unique: u64,
    /// The thread that waits.
    pid: u32,
    /// When its caller is to be looked at, once it is clear that it waits.
    due: Option<Instant>,
}

type Uring = IoUring<squeue::Entry128, cqueue::Entry>;

/// What an entry of the kernel is at.
#[derive(Debug)]
struct Entry {
    place: Place,
    /// The request in it, 0 if there is none.
    unique: u64,
}

/// Where the memory of an entry is.
#[derive(Debug)]
enum Place {
    /// Here: the kernel was not given it yet, or has given it up.
    Idle(Slot),
    /// Lent to the kernel.
    Lent(Slot),
    /// With the request in it, or its answer.
    Away,
}

impl Server {
    /// Makes the ring for queue `qid`, with slots for its first entries. Nothing begins before [`run`](Self::run), which may be called
    /// on another thread.
    pub fn new(shared: Arc<SharedRings>, qid: usize) -> io::Result<Self> {
        let mut builder = Uring::builder();
        builder.setup_r_disabled().setup_single_issuer().setup_defer_taskrun().setup_cqsize(COMPLETIONS);
        let uring = builder.build(SUBMISSIONS)?;
        let mut this = Self {
            uring,
            woken: Box::new(0),
            entries: Vec::new(),
            ring: Arc::clone(&shared.rings[qid]),
            shared,
            qid: qid as u16,
            free: 0,
            alive: 0,
            is_short: false,
            is_nudged: false,
            nudges: 0,
            retry_at: None,
            is_bound: false,
            is_begun: false,
            is_stopped: false,
            is_listening: false,
            committed: Vec::new(),
            done: VecDeque::new(),
            messages: Vec::new(),
            marks: Vec::new(),
            early: VecDeque::new(),
            waiting: Vec::new(),
            names: Vec::new(),
        };
        this.add_entries(ENTRIES_FIRST)?;
        Ok(this)
    }

    /// Serves until told to stop.
    pub fn run<H: Handler + ?Sized>(mut self, handler: &H, dialect: Dialect, allowed: &CpuSet) {
        self.ring.serve_here();
        self.is_bound = cpus::bind(allowed, usize::from(self.qid));
        self.is_begun = true;
        if let Err(error) = self.serve(handler, dialect) {
            log::error!("ring {} ends: {error}", self.qid);
        }
    }

    fn serve<H: Handler + ?Sized>(&mut self, handler: &H, dialect: Dialect) -> io::Result<()> {
        self.begin()?;
        // What is refused is completed at once.
        let refused = self.done.iter().filter(|(_, result)| *result < 0);
        if refused.clone().count() < self.alive {
            self.shared.on_registered();
        } else {
            self.shared.on_failed();
            let errno = refused.last().map_or(Errno::IO, |(_, result)| Errno::from_raw_os_error(-result));
            if !is_gone(errno) {
                // The kernel has agreed to rings and waits for all of them: nobody would be answered.
                log::error!("the kernel has refused all first entries of ring {}", self.qid);
                return Err(errno.into());
            }
        }
        while !self.is_stopped {
            self.turn(handler, dialect)?;
        }
        // Has the kernel give back what it has for this thread to take.
        self.enter(Wait::Look)?;
        for (of, _) in std::mem::take(&mut self.done) {
            match self.entries.get_mut(of as usize) {
                Some(entry) => entry.place = Place::Away,
                None => self.is_listening &= of != WOKEN,
            }
        }
        Ok(())
    }

    /// Waits for requests, and handles them.
    fn turn<H: Handler + ?Sized>(&mut self, handler: &H, dialect: Dialect) -> io::Result<()> {
        self.take_messages(handler);
        if self.is_stopped {
            return Ok(());
        }
        self.look_at_callers(handler);
        // What came of that.
        self.take_messages(handler);
        self.see_to_entries()?;
        let is_draining = !self.marks.is_empty() && !self.is_short;
        let came = self.enter(if is_draining { Wait::Look } else { Wait::Until })?;
        while let Some((of, result)) = self.done.pop_front() {
            self.on_completion(handler, dialect, of, result)?;
            // What is answered is not to wait for what comes behind it.
            if !self.done.is_empty() {
                self.take_messages(handler);
                if !self.uring.submission().is_empty() {
                    self.enter(Wait::No)?;
                }
            }
        }
        if is_draining && came == 0 {
            for mark in self.marks.drain(..) {
                if mark.pass() {
                    guard(&self.ring.channel, "mark", || handler.marked(mark.unique));
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        self.uring.submitter().register_enable_rings()?;
        // One look-up less for each entering; done without where there is no place for it.
        _ = self.uring.submitter().register_ring_fd();
        self.listen()?;
        self.register(ENTRIES_FIRST)
    }

    /// Makes room for `count` more entries.
    fn add_entries(&mut self, count: usize) -> Result<(), Errno> {
        let slots = Slot::map(count, self.ring.payload_len)?;
        self.entries.extend(slots.into_iter().map(|slot| Entry { place: Place::Idle(slot), unique: 0 }));
        Ok(())
    }

    /// Lends `count` of the entries that are here to the kernel.
    fn register(&mut self, count: usize) -> io::Result<()> {
        let mut lent: Vec<(usize, [IoVec; 2])> = Vec::with_capacity(count);
        for (number, entry) in self.entries.iter_mut().enumerate() {
            if lent.len() == count {
                break;
            }
            match std::mem::replace(&mut entry.place, Place::Away) {
                Place::Idle(slot) => {
                    lent.push((number, slot.parts()));
                    entry.place = Place::Lent(slot);
                }
                other => entry.place = other,
            }
        }
        self.free += lent.len();
        self.alive += lent.len();
        for (number, parts) in &lent {
            let address = parts.as_ptr() as u64;
            let mut command = self.command(ring_command::REGISTER, 0, Some(address)).build();
            set_len(&mut command, parts.len() as u32);
            self.push(command.user_data(*number as u64))?;
        }
        // Before `lent` goes, where the kernel reads `parts`.
        while !self.uring.submission().is_empty() {
            self.enter(Wait::No)?;
        }
        Ok(())
    }

    fn command(&self, command: u32, commit_id: u64, address: Option<u64>) -> opcode::UringCmd80 {
        let mut bytes = [0; 80];
        let request = RingCommand { qid: self.qid, commit_id, ..RingCommand::default() };
        bytes[..size_of::<RingCommand>()].copy_from_slice(request.as_bytes());
        let device = types::Fd(self.ring.channel.device().as_raw_fd());
        opcode::UringCmd80::new(device, command).cmd(bytes).addr(address)
    }

    /// Hears of the inbox from here on.
    fn listen(&mut self) -> io::Result<()> {
        let into = std::ptr::from_mut(&mut *self.woken).cast();
        let read = opcode::Read::new(types::Fd(self.ring.wait_fd()), into, size_of::<u64>() as u32).build();
        self.is_listening = true;
        self.push(squeue::Entry128::from(read.user_data(WOKEN)))
    }

    #[expect(unsafe_code, reason = "a submission names memory by its address")]
    fn push(&mut self, entry: squeue::Entry128) -> io::Result<()> {
        // SAFETY: what it names is memory of entries or of `woken`, which `drop` leaves as they are while they are lent, or
        // `register`'s own, which outlives its use; and a descriptor of the ring's or the channel's, which outlive the ring.
        while unsafe { self.uring.submission().push(&entry) }.is_err() {
            self.enter(Wait::No)?;
        }
        Ok(())
    }

    /// Submits, and waits as far as asked. Returns how much has been completed.
    fn enter(&mut self, wait: Wait) -> io::Result<usize> {
        let entered = match wait {
            Wait::No => self.uring.submit(),
            Wait::Until if self.done.is_empty() => self.wait(),
            Wait::Look | Wait::Until => self.look(),
        };
        match entered {
            Ok(_) => {}
            // Nothing is lost: what was not submitted stays, and what was completed is there.
            Err(error)
                if matches!(Errno::from_io_error(&error), Some(Errno::INTR | Errno::BUSY | Errno::TIME)) => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::AGAIN) => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
        let before = self.done.len();
        let completed = self.uring.completion().map(|entry| (entry.user_data(), entry.result()));
        self.done.extend(completed);
        self.judge_shortage(before);
        Ok(self.done.len() - before)
    }

    /// Submits, and waits for a completion, or until a caller is to be looked at.
    fn wait(&mut self) -> io::Result<usize> {
        let due = self.waiting.iter().filter_map(|waiting| waiting.due).chain(self.retry_at).min();
        let Some(due) = due else {
            return self.uring.submit_and_wait(1);
        };
        let time = types::Timespec::from(due.saturating_duration_since(Instant::now()));
        self.uring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
    }

    /// Interrupts requests whose callers have a signal that the kernel did not tell of.
    ///
    /// It sends no INTERRUPT for a signal that comes between a request's entering the queue and this thread's taking it
    /// (`request_wait_answer` of linux:fs/fuse/dev.c, and `fuse_uring_prepare_send`, which does not look whether there was one). Later ones
    /// it tells of: so one look at each request that waits is enough.
    fn look_at_callers<H: Handler + ?Sized>(&mut self, handler: &H) {
        let entries = &self.entries;
        self.waiting.retain(|waiting| entries[waiting.entry as usize].unique == waiting.unique);
        if self.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        for waiting in &mut self.waiting {
            waiting.due.get_or_insert(now + LOOK_AFTER);
        }
        let is_due = |waiting: &mut Waiting| waiting.due.is_some_and(|due| due <= now);
        for waiting in self.waiting.extract_if(.., is_due) {
            if is_signalled(waiting.pid) {
                guard(&self.ring.channel, "interrupt", || handler.interrupt(waiting.unique));
            }
        }
    }

    /// Has the kernel complete what it has at hand, without waiting.
    #[expect(unsafe_code, reason = "the crate waits for at least one, or does not look")]
    fn look(&mut self) -> io::Result<usize> {
        let count = self.uring.submission().len() as u32;
        // SAFETY: no argument but numbers.
        unsafe { self.uring.submitter().enter::<u64>(count, 0, ENTER_GETEVENTS, None) }
    }

    fn on_completion<H: Handler + ?Sized>(
        &mut self,
        handler: &H,
        dialect: Dialect,
        of: u64,
        result: i32,
    ) -> io::Result<()> {
        if of == WOKEN {
            self.ring.on_woken();
            return self.listen();
        }
        let Some(entry) = self.entries.get_mut(of as usize) else {
            log::error!("ring {} completed entry {of}, which it does not have", self.qid);
            return Ok(());
        };
        match std::mem::replace(&mut entry.place, Place::Away) {
            Place::Lent(slot) if result >= 0 => {
                self.free -= 1;
                self.is_short |= self.free == 0;
                self.dispatch(handler, dialect, of as u32, slot);
                Ok(())
            }
            Place::Lent(slot) => {
                entry.place = Place::Idle(slot);
                self.free -= 1;
                self.alive -= 1;
                self.on_failed_entry(result)
            }
            other => {
                entry.place = other;
                log::error!("ring {} completed entry {of}, which it was not lent", self.qid);
                Ok(())
            }
        }
    }

    /// The kernel has given an entry up. Fails if it should not have.
    fn on_failed_entry(&mut self, result: i32) -> io::Result<()> {
        match Errno::from_raw_os_error(-result) {
            errno if is_gone(errno) => {}
            // The request was aborted while it was answered.
            Errno::NOENT => self.ring.channel.counters.on_reply_lost(),
            Errno::NOMEM => {
                let again = Instant::now() + RETRY_AFTER;
                if self.retry_at.replace(again).is_none() {
                    log::warn!("the kernel has no memory for more entries of ring {}", self.qid);
                }
            }
            errno if self.shared.is_active() => return Err(errno.into()),
            errno => log::error!("the kernel refused an entry of ring {}: {errno}", self.qid),
        }
        Ok(())
    }

    /// Hands the request in `slot` to the handler.
    fn dispatch<H: Handler + ?Sized>(&mut self, handler: &H, dialect: Dialect, entry: u32, slot: Slot) {
        let channel = Arc::clone(&self.ring.channel);
        let whole = slot.header();
        let (header, payload_len) = (whole.request(), whole.entry.payload_sz as usize);
        let (opcode, unique) = (Opcode::from_number(header.opcode), header.unique);
        self.entries[entry as usize].unique = unique;
        if opcode == Some(Opcode::NotifyReply) {
            return self.on_nudged(handler, entry, slot, unique);
        }
        if let Some(Opcode::Open | Opcode::Flush) = opcode {
            self.shared.set_file(header.nodeid);
        }
        let mut names = std::mem::take(&mut self.names);
        names.clear();
        #[expect(unsafe_code, reason = "memory shared with the kernel")]
        // SAFETY: until the handler returns, the answer is staged where the payload is not copied, and this thread lends the slot
        // to nobody.
        let payload = unsafe { slot.payload(payload_len) };
        let (payload, use_of) = match payload.len() {
            ..=NAMES_MAX => {
                names.extend_from_slice(payload);
                (&*names, Payload::Free)
            }
            _ => (payload, Payload::InUse),
        };
        channel.counters.on_received_by_ring(opcode, header.len as usize);
        channel.in_flight.insert(unique);
        let reply =
            Reply::by_ring(RingReply::new(Arc::clone(&self.ring), entry, slot, use_of), unique, opcode);
        match Request::from_parts(&header, whole.op_in.as_bytes(), payload, dialect) {
            Ok(request) => {
                guard(&channel, opcode.map_or("unknown", Opcode::name), || handler.handle(request, reply));
            }
            Err(error) => {
                log::error!("malformed request of {} bytes: {error}", header.len);
                reply.malformed();
            }
        }
        self.names = names;
        self.waiting.push(Waiting { entry, unique, pid: header.pid, due: None });
        self.tell_early(handler, &channel, &header);
    }

    /// Its interrupt was faster than the request.
    fn tell_early<H: Handler + ?Sized>(&mut self, handler: &H, channel: &Channel, header: &InHeader) {
        if let Some(index) = self.early.iter().position(|early| *early == header.unique) {
            self.early.remove(index);
            guard(channel, "interrupt", || handler.interrupt(header.unique));
        }
    }

    /// Takes in what others have left, until there is nothing.
    fn take_messages<H: Handler + ?Sized>(&mut self, handler: &H) {
        loop {
            let mut messages = std::mem::take(&mut self.messages);
            self.ring.take(&mut messages);
            if messages.is_empty() {
                self.messages = messages;
                return;
            }
            for message in messages.drain(..) {
                match message {
                    Message::Commit(commit) => self.give_back(commit),
                    Message::Interrupt(unique) => self.interrupt(handler, unique),
                    Message::Mark(barrier) => self.marks.push(barrier),
                    Message::Stop => self.is_stopped = true,
                }
            }
            self.messages = messages;
        }
    }

    fn interrupt<H: Handler + ?Sized>(&mut self, handler: &H, unique: u64) {
        if self.entries.iter().any(|entry| entry.unique == unique) {
            let channel = Arc::clone(&self.ring.channel);
            return guard(&channel, "interrupt", || handler.interrupt(unique));
        }
        if self.early.len() == EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back(unique);
    }

    /// Gives an entry back to the kernel, with the answer in it.
    fn give_back(&mut self, commit: Commit) {
        let Commit { entry: number, mut slot, staged } = commit;
        if let Some(staged) = staged {
            slot.put(0, &staged);
        }
        let entry = &mut self.entries[number as usize];
        let unique = std::mem::take(&mut entry.unique);
        entry.place = Place::Lent(slot);
        self.free += 1;
        let command = self.command(ring_command::COMMIT_AND_FETCH, unique, None).build();
        match self.push(command.user_data(u64::from(number))) {
            Ok(()) => self.committed.push(number),
            Err(error) => log::error!("ring {} cannot answer: {error}", self.qid),
        }
    }

    /// Keeps entries free for requests to come.
    fn see_to_entries(&mut self) -> io::Result<()> {
        self.retry_at = self.retry_at.filter(|at| *at > Instant::now());
        if (self.free < self.alive / 2 || self.free == 0)
            && self.alive < ENTRIES_MAX
            && self.retry_at.is_none()
            && self.shared.is_active()
        {
            self.grow()?;
        }
        if self.is_short && !self.is_nudged && self.is_bound && self.free > 0 {
            self.nudge();
        }
        Ok(())
    }

    /// Registers as many entries again as there are.
    fn grow(&mut self) -> io::Result<()> {
        let count = self.alive.min(ENTRIES_MAX - self.alive);
        let idle = self.entries.iter().filter(|entry| matches!(entry.place, Place::Idle(_))).count();
        if let Err(errno) = self.add_entries(count.saturating_sub(idle)) {
            log::warn!("ring {} stays at {} entries: {errno}", self.qid, self.alive);
            self.retry_at = Some(Instant::now() + RETRY_AFTER);
            return Ok(());
        }
        self.register(count)?;
        // Those before may all have had requests that are yet to be seen here, and others behind them, an earlier nudge among
        // these. What was given back found the queue empty before that, if it did.
        self.is_short |= self.is_bound;
        self.is_nudged = false;
        self.committed.clear();
        log::debug!("ring {} has {} entries", self.qid, self.alive);
        Ok(())
    }

    /// Has the kernel give this ring a request of no use to anybody: with its answer the kernel looks for requests in the queue. It does
    /// not when entries are registered, and gives those to later requests.
    fn nudge(&mut self) {
        // It takes no other inode than a regular file's.
        let Some(nodeid) = self.shared.file() else { return };
        // The kernel finds requests by their numbers.
        self.nudges += 1;
        let notify_unique = NUDGE | u64::from(self.qid) << NUDGE_BITS | self.nudges << 1;
        let out = RetrieveOut { notify_unique, nodeid, offset: 1 << 40, size: 0, padding: 0 };
        match self.ring.channel.send(0, notify_code::RETRIEVE, &[out.as_bytes()]) {
            Ok(()) => self.is_nudged = true,
            Err(errno) => log::debug!("ring {} cannot have its queue looked at yet: {errno}", self.qid),
        }
    }

    fn on_nudged<H: Handler + ?Sized>(&mut self, handler: &H, entry: u32, mut slot: Slot, unique: u64) {
        if unique & NUDGE == 0 {
            // A mark of when requests came through the device.
            guard(&self.ring.channel, "mark", || handler.marked(unique));
        }
        self.is_nudged = false;
        slot.answer(unique, 0, 0);
        self.give_back(Commit { entry, slot, staged: None });
    }

    /// An entry that was given back, and did not come with a request at once, found the queue empty.
    fn judge_shortage(&mut self, before: usize) {
        if !self.uring.submission().is_empty() {
            return;
        }
        if self.is_short {
            let came = self.done.range(before..);
            let is_back = |number: &u32| came.clone().any(|(of, _)| *of == u64::from(*number));
            self.is_short = self.committed.iter().all(is_back);
        }
        self.committed.clear();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("qid", &self.qid).finish_non_exhaustive()
    }
}

impl Drop for Server {
    /// What the kernel has not given back it may still read and write after the ring is closed, which it takes apart later: that
    /// memory stays for as long as the process.
    fn drop(&mut self) {
        self.ring.close();
        for entry in self.entries.drain(..) {
            if let Place::Lent(slot) = entry.place {
                std::mem::forget(slot);
            }
        }
        if self.is_listening {
            std::mem::forget(std::mem::take(&mut self.woken));
        }
        if self.is_begun && !self.is_stopped {
            // Failed, or panicked: the queue's callers are to be told.
            self.ring.channel.abort();
        }
    }
}

/// Whether the kernel says that the mount has gone, or is going.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV)
}

/// Tries to register an entry by a ring of its own, and returns what the kernel says. The entry has no memory: it would be refused.
#[expect(unsafe_code, reason = "a submission names memory by its address")]
pub(crate) fn probe(channel: &Channel) -> io::Result<Errno> {
    let mut uring = Uring::builder().build(1)?;
    let mut bytes = [0; 80];
    bytes[..size_of::<RingCommand>()].copy_from_slice(RingCommand::default().as_bytes());
    let device = types::Fd(channel.device().as_raw_fd());
    let command = opcode::UringCmd80::new(device, ring_command::REGISTER).cmd(bytes).build();
    // SAFETY: it names no memory, and the channel's descriptor outlives the ring. A new ring has place for it.
    _ = unsafe { uring.submission().push(&command) };
    let time = types::Timespec::from(PROBE_MAX);
    uring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))?;
    match uring.completion().next().map(|entry| entry.result()) {
        Some(result @ ..0) => Ok(Errno::from_raw_os_error(-result)),
        // It is to be refused, and at once.
        Some(_) | None => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Whether a thread has taken notice of a signal in its wait for an answer: it sleeps on undisturbed then (`request_wait_answer` of
/// linux:fs/fuse/dev.c), with one pending that it does not block. One that can be disturbed has been told of none: what is pending for its process
/// another thread takes. False if it is not in sight.
fn is_signalled(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let mask = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0)
    };
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).map_or("", str::trim);
    state.starts_with('D') && (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") != 0
}

/// What to wait for in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing.
    No,
    /// Nothing, but the kernel is to complete what it has.
    Look,
    /// Something to do.
    Until,
}

/// Sets the field `len` of a submission, for which the crate has no name in commands.
#[expect(unsafe_code, reason = "the crate hides the fields of a submission")]
fn set_len(entry: &mut squeue::Entry128, len: u32) {
    const OFFSET: usize = 24;
    const { assert!(size_of::<squeue::Entry128>() == 128 && align_of::<squeue::Entry128>() >= 4) };
    // SAFETY: `struct io_uring_sqe` of the kernel, which this is, has `__u32 len` there.
    unsafe { std::ptr::from_mut(entry).cast::<u8>().add(OFFSET).cast::<u32>().write(len) };
}

/// Submissions of a ring: one for each answer that is under way at once; more enter the ring in several steps.
const SUBMISSIONS: u32 = 64;

/// Completions of a ring; the kernel keeps more by itself.
const COMPLETIONS: u32 = 1024;

/// Entries of a ring to begin with: more than there are callers on one processor at once, as a rule.
const ENTRIES_FIRST: usize = 128;

/// Entries of a ring at most: requests of one processor that wait.
const ENTRIES_MAX: usize = 16_384;

/// Longer payloads stay where they are while the handler reads them. Names, and few others, are shorter.
const NAMES_MAX: usize = 4096;

/// Interrupts kept for requests that are still to come: those are under way.
const EARLY_MAX: usize = 64;

/// How long a request waits before its caller is looked at: most that wait are answered within that.
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// Marks completions of the inbox's descriptor.
const WOKEN: u64 = u64::MAX;

/// Numbers of requests of no use have this, the queue, and count on in [`NUDGE_BITS`] below. The kernel counts its own from 0 on, keeps
/// bit 0 for itself, and finds what is answered by its number: none may be there twice.
const NUDGE: u64 = 1 << 63;

/// See [`NUDGE`].
const NUDGE_BITS: u32 = 44;

/// How long after memory was lacking for more entries they are asked for again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How long the kernel may take to refuse something.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// How long the kernel is left alone when it has no memory for what is submitted.
const PAUSE: Duration = Duration::from_millis(1);

/// IORING_ENTER_GETEVENTS of `linux:include/uapi/linux/io_uring.h`.
const ENTER_GETEVENTS: u32 = 1;
