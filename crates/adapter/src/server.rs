//! The node as the transport sees it: takes requests, asks the core, sends answers.
//!
//! Lock order: the core's, then the [`PendingTable`]'s, and [`CatchUp`]'s. Nothing here holds any while it reads a segment or
//! notifies the kernel, nor while it answers, but for a long write, whose answer waits for nothing in the kernel either.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use chunk::SegmentStore;
use fuse::{Errno, Forget, Handler, Operation, PlaceEvent, Transport};
use meta::FsError;
use obs::{FuseKind, Metrics, OperationKind};
use types::{Ino, Timespec};
use vfs::{Clock, Core, Keep, ReadJob, Reply, Request, RequestId, Reread, Via, WriteData, WriteNow};

use crate::call::{Call, PendingTable, Stage};
use crate::catch_up::{CatchUp, Question, Turn, holds_lock};
use crate::disturbed::Disturbed;
use crate::groups;
use crate::invalidate::{Before, Invalidator};
use crate::late::NameHash;
use crate::linux;
use crate::read;
use crate::refused::{InCall, Refused, in_call, writer_of};
use crate::reply::{Answer, Misfit, Shape, WriteShape};
use crate::request::{Translated, WriteCall, translate};
use crate::twice;
use crate::written::{self, Placed};

mod noted;

use noted::{doubt, may_need_more, note_answer, note_written};

/// What the adapter needs of the node that drives the core.
pub trait Driver: Send + Sync {
    /// Locks the core, calls `call`, unlocks, and then sees to the core's outputs.
    ///
    /// Called on the transport's threads and on those that run [`Task`]s, never from within [`answer`]: it need
    /// not be re-entrant.
    fn with_core<R>(&self, call: impl FnOnce(&mut Core, Clock) -> R) -> R;

    /// See [`Handler::handled`].
    fn handled(&self) {}

    /// Has `task` run soon on one of several threads for blocking reads, by [`Task::run`].
    fn spawn(&self, task: Task);

    /// Requests that wait. Made empty, and kept.
    fn pending(&self) -> &PendingTable;

    /// Takes things back from the kernel.
    fn invalidator(&self) -> &Invalidator;

    /// Corrects what the kernel has of files before or after it is answered.
    ///
    /// That waits for reads and writes which may wait for other nodes, and those for what the other invalidator
    /// takes back: so this one has threads of its own.
    fn corrector(&self) -> &Invalidator;

    /// Lowers ends of files that the kernel has, where that can be done.
    fn catch_up(&self) -> Option<&Arc<CatchUp>>;

    /// Where segments are read from.
    fn store(&self) -> &dyn SegmentStore;

    /// What is counted.
    fn metrics(&self) -> &Arc<Metrics>;

    /// The clock that stamps files.
    fn wall(&self) -> Timespec;

    /// The mount is gone. Called once, on the thread of the session.
    fn unmounted(&self);
}

/// The file system behind a FUSE session.
#[derive(Debug)]
pub struct Server<D> {
    driver: Arc<D>,
    disturbed: Arc<Disturbed>,
}

impl<D: Driver> Server<D> {
    /// What the kernel would cut off because it was refused a write stays, as [`refused`](crate::refused) explains.
    fn spare(&self, call: &Call, ino: Ino, operation: &mut Operation<'_>) {
        let driver = &*self.driver;
        if let Some(writer) = writer_of(call.pid(), operation)
            && let Some(refused) = driver.pending().refused.take(writer, |_| true)
            && let Operation::Setattr(setattr) = operation
            && refused.is_cut_by(ino, setattr)
            && let Some(end) = setattr.size
        {
            let spares = match in_call(call.pid(), linux::TRUNCATING_CALLS) {
                InCall::It => false,
                InCall::Other => driver.with_core(|core, _| core.may_end_at(ino, end)),
                InCall::Unknown => driver.with_core(|core, _| core.last_end(ino) == Some(end)),
            };
            if spares {
                (setattr.size, setattr.kill_suidgid) = (None, false);
            }
        }
    }

    /// Serves the kernel through `driver`.
    pub fn new(driver: Arc<D>) -> Self {
        Self { driver, disturbed: Arc::default() }
    }
}

impl<D: Driver + 'static> Handler for Server<D> {
    fn handle(&self, request: fuse::Request<'_>, reply: fuse::Reply) {
        let driver = &*self.driver;
        let mut call = Call::new(reply, request.header.pid, request.header.uid);
        driver.metrics().fuse_requests.add(call.kind(), 1);
        if call.reply.transport() == Transport::Ring {
            driver.metrics().fuse_ring_requests.add(1);
        }
        noted::take_in(driver, &call);
        let mut operation = match request.operation() {
            Ok(operation) => operation,
            Err(error) => {
                log::error!("malformed {} request: {error}", call.kind().name());
                return call.finish_malformed(driver.metrics());
            }
        };
        call.is_by_handle = matches!(operation, Operation::Getattr { fh: Some(_) });
        if let (Operation::Getattr { .. } | Operation::Setattr(_), Some(catch_up)) =
            (&operation, driver.catch_up())
        {
            match catch_up.turn(call.pid(), Ino(request.header.nodeid)) {
                Turn::Other => {}
                Turn::Now(question) => return answer_now(driver, call, question),
                Turn::Never => return call.finish(driver.metrics(), Answer::Error(Errno::AGAIN)),
            }
        }
        let Some(mut call) = answer_on_the_way(driver, call, Ino(request.header.nodeid), &operation) else {
            return;
        };
        self.spare(&call, Ino(request.header.nodeid), &mut operation);
        let mut translated = translate(request.header, operation, || driver.wall());
        if let (Some(ino), Some(catch_up)) = (translated.locks(), driver.catch_up()) {
            catch_up.is_locked(ino);
        }
        if let Some((ino, groups)) = translated.killed()
            && driver.with_core(|core, _| core.counts_groups(ino))
        {
            groups.extend(groups::of_thread(call.pid()));
        }
        if let Some((ino, what, only_owner)) = translated.owned()
            && let Some(uid) = *only_owner
            // Whoever is the owner as it looks from here may no longer be when it is done, which is judged then.
            && !driver.with_core(|core, _| core.is_owner(ino, uid))
            && groups::acts_as_owner(call.pid(), what, || driver.with_core(|core, _| core.owners(ino)))
        {
            *only_owner = None;
        }
        if let Translated::Ask(request, _) = &mut translated
            && let Some(uid) = request.bound().and_then(|bound| *bound)
            && let Some(ino) = driver.with_core(|core, _| core.binds(request, uid))
            && groups::passes_sticky(call.pid(), || driver.with_core(|core, _| core.owners(ino)))
            && let Some(bound) = request.bound()
        {
            *bound = None;
        }
        if let Some((ino, groups)) = translated.sets_gid() {
            let owners = || driver.with_core(|core, _| core.owners(ino));
            match groups::keeps_setgid(call.pid(), owners) {
                true => *groups = None,
                false => groups.get_or_insert_default().extend(groups::of_thread(call.pid())),
            }
        }
        match translated {
            Translated::Answer(answer) => call.finish(driver.metrics(), answer),
            Translated::Ask(request, shape) => {
                call.shape = shape;
                call.making = NameHash::of(&request);
                let request = driver.pending().walk_on(call.pid(), request);
                ask(driver, call, request, Thread::Reader);
            }
            Translated::Write(write) => self.write(call, write),
        }
    }

    fn interrupt(&self, unique: u64) {
        let driver = &*self.driver;
        driver.metrics().fuse_requests.add(FuseKind::Interrupt, 1);
        let id = RequestId(unique);
        let cause = driver.pending().cause_of(id);
        driver.with_core(|core, clock| {
            // Looked at under the core's lock: the stage of a request that waits changes under it.
            if driver.pending().may_interrupt(id) {
                core.interrupt(clock, id, cause);
            }
        });
        self.disturbed.note(&self.driver, id);
    }

    fn forget(&self, forgets: &[Forget]) {
        let driver = &*self.driver;
        driver.metrics().fuse_requests.add(FuseKind::Forget, 1);
        driver.metrics().fuse_forgets.add(forgets.len() as u64);
        driver.with_core(|core, _| {
            for forget in forgets {
                let ino = Ino(forget.nodeid);
                if core.forget(ino, forget.nlookup)
                    && let Some(catch_up) = driver.catch_up()
                {
                    // What the kernel does not have has no truncation under way.
                    catch_up.is_locked(ino);
                }
            }
        });
    }

    fn marked(&self, unique: u64) {
        self.driver.with_core(|core, clock| core.closes_told(clock, unique));
    }

    fn placed(&self, event: PlaceEvent) {
        let metrics = self.driver.metrics();
        match event {
            PlaceEvent::Moved => metrics.reader_moves.add(1),
            PlaceEvent::Rescued => metrics.reader_rescues.add(1),
        }
    }

    fn handled(&self) {
        self.driver.handled();
    }

    fn destroy(&self) {
        self.driver.pending().clear();
        self.driver.unmounted();
    }
}

impl<D: Driver> Server<D> {
    /// Most writes find their token and room: their bytes go from the read buffer where they belong.
    fn write(&self, mut call: Call, write: WriteCall<'_>) {
        let driver = &*self.driver;
        let WriteCall {
            ino,
            offset,
            data,
            append,
            kill_privileges,
            of_pages,
            direct,
            past_pages,
            sync,
            end,
            refusal_cuts,
        } = write;
        call.shape = Shape::Write(WriteShape { ino, offset, direct, sync, end, refusal_cuts });
        call.note_operation(OperationKind::Write);
        let via = match (of_pages, past_pages) {
            (true, _) => Via::WriteBack,
            (false, true) => Via::Direct { append },
            (false, false) => Via::Cache { append },
        };
        if kill_privileges.is_none() {
            let now = WriteNow { ino, offset, data, via, is_exempt: call.is_exempt };
            call = match write_now(driver, call, &now) {
                Written::Answered => return,
                Written::Done(call, reply) => return conclude(driver, call, reply, Thread::Reader),
                Written::Waits(call) => call,
            };
        }
        let data = WriteData(data.into());
        let request = match of_pages {
            true => Request::WritePages { ino, offset, data },
            false => Request::Write { ino, offset, data, append, direct: past_pages, kill_privileges },
        };
        ask(driver, call, request, Thread::Reader);
    }
}

/// How far a write came without waiting.
enum Written {
    /// All of it is done.
    Answered,
    /// It is to be answered.
    Done(Call, Reply),
    /// It is to be asked for.
    Waits(Call),
}

/// Writes if that needs no waiting. A long write is answered before its bytes are stored, so that the program
/// goes on meanwhile; nothing else is asked of the core before they are.
fn write_now<D: Driver>(driver: &D, call: Call, write: &WriteNow<'_>) -> Written {
    let Shape::Write(shape) = call.shape else { return Written::Waits(call) };
    let is_in_full = shape.end.is_some() || shape.direct && !shape.sync;
    // Of a ring's thread the kernel takes answers when it has done.
    let may_accept = is_in_full && call.reply.transport() == Transport::Device;
    let pid = call.pid();
    let (mut waiting, mut answered) = (Some(call), None);
    let reply = driver.with_core(|core, clock| {
        let mut accept =
            || answered = waiting.take().map(|call| call.answer(Answer::Written(write.data.len() as u32)));
        let accepted: Option<&mut dyn FnMut()> = may_accept.then_some(&mut accept);
        let reply = core.write_now(clock, write, accepted)?;
        match &mut waiting {
            Some(call) => note_answer(core, clock, driver, call, &reply),
            None => note_written(core, shape, pid, &reply),
        }
        Some(reply)
    });
    if let Some(answered) = answered {
        answered.done(driver.metrics());
    }
    match (waiting, reply) {
        (None, _) => Written::Answered,
        (Some(call), Some(reply)) => Written::Done(call, reply),
        (Some(call), None) => Written::Waits(call),
    }
}

/// Answers the request `id`, as [`vfs::Output::Reply`] says. Never blocks.
pub fn answer<D: Driver>(driver: &D, id: RequestId, mut reply: Reply) {
    match driver.pending().remove(id) {
        Some(mut call) => {
            if may_need_more(&call, &reply) {
                driver.with_core(|core, clock| {
                    note_answer(core, clock, driver, &mut call, &reply);
                    doubt(core, &mut reply);
                });
            }
            conclude(driver, call, reply, Thread::Other);
        }
        // The mount went while the request waited.
        None => log::debug!("answer to request {} that nobody waits for: {reply:?}", id.0),
    }
}

/// Work for a thread that may block on segments.
#[derive(Debug)]
pub struct Task {
    call: Call,
    what: Work,
}

#[derive(Debug)]
enum Work {
    /// Gather bytes, answer, give the pin back.
    Read(ReadJob),
    /// Ask the core on.
    Ask(Request),
    /// Answer a lookup, unless it is of a rename that has found the same under its other name.
    Find(Reply),
    /// Answer a close once nothing looks at the file.
    Flush(Ino, Answer),
}

impl Task {
    /// Does it. Dropping a task instead answers its request with EIO.
    pub fn run<D: Driver>(self, driver: &D) {
        match self.what {
            Work::Read(job) => run_read(driver, self.call, &job),
            Work::Ask(request) => ask(driver, self.call, request, Thread::Other),
            Work::Find(reply) => find(driver, self.call, reply),
            Work::Flush(ino, answer) => {
                if let Some(catch_up) = driver.catch_up() {
                    catch_up.wait_unused(ino);
                }
                self.call.finish(driver.metrics(), answer);
            }
        }
    }
}

/// On whose time something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    /// One of the transport's: everything that comes from the kernel that way waits meanwhile.
    Reader,
    /// One that must not wait for an answer to the kernel: such an answer may be the next thing it sends.
    Other,
}

/// Asks the core, and answers if it does.
fn ask<D: Driver>(driver: &D, mut call: Call, request: Request, thread: Thread) {
    let id = call.id();
    log::trace!("request {}: {request:?}", id.0);
    call.note_operation(request.kind());
    let is_exempt = call.is_exempt;
    let filled = written::filled(&request);
    let mut early = None;
    let mut over = Vec::new();
    let replied = driver.with_core(|core, clock| {
        call.changes = core.changes_untold(&request);
        let replied = core.submit_by(clock, id, request, is_exempt);
        over = core.take_over();
        match replied {
            Some(reply) => {
                if let Some(removal) = core.take_removal().filter(|_| call.pid() != 0) {
                    driver.pending().removals.note(call.pid(), removal);
                }
                note_answer(core, clock, driver, &mut call, &reply);
                Some((call, reply))
            }
            None => {
                if call.kind() == FuseKind::Readdirplus {
                    // What it tells is made up a moment before anybody sees it.
                    driver.pending().looks.note_many(call.pid(), clock.now);
                }
                driver.pending().insert(call);
                early = filled.filter(|(ino, _)| core.lacks_right_to_write(*ino));
                None
            }
        }
    });
    noted::end_waiting(driver, over);
    if let Some((ino, span)) = early {
        driver.corrector().early(ino, span);
    }
    if let Some((call, reply)) = replied {
        conclude(driver, call, reply, thread);
    }
}

/// Answers a lookup by a thread that may have found the same under another name.
fn find<D: Driver>(driver: &D, mut call: Call, reply: Reply) {
    match reply {
        Reply::Entry(entry) if twice::is_renaming(call.pid()) => {
            driver.with_core(|core, clock| {
                if let Some(name) = call.making {
                    driver.pending().found.refuse(call.pid(), name, clock.now);
                }
                core.forget(entry.attr.ino, 1);
            });
            call.set_before(Before::default());
            finish(driver, call, Reply::Error(FsError::Stale));
        }
        reply => finish(driver, call, reply),
    }
}

/// Makes an answer of the core's reply, or takes the next step towards one.
fn conclude<D: Driver>(driver: &D, mut call: Call, reply: Reply, thread: Thread) {
    if call.may_be_twice {
        return driver.spawn(Task { call, what: Work::Find(reply) });
    }
    let stage = std::mem::replace(&mut call.stage, Stage::Asked);
    match (call.shape, stage, reply) {
        (_, _, Reply::ReadJob(job)) => match thread {
            Thread::Reader if read::is_small(&job) => run_read(driver, call, &job),
            Thread::Reader | Thread::Other => driver.spawn(Task { call, what: Work::Read(job) }),
        },
        (Shape::Write(shape), Stage::Asked, Reply::Written { len, moved_to, reread, shield }) => {
            let placed = Placed { len, moved_to, reread, shield, waited: call.waited };
            if !shape.sync {
                return written::finish(driver, call, shape, placed);
            }
            call.stage = Stage::Syncing(Box::new(placed));
            let request = Request::Fsync { ino: shape.ino };
            match thread {
                Thread::Reader => ask(driver, call, request, thread),
                Thread::Other => driver.spawn(Task { call, what: Work::Ask(request) }),
            }
        }
        (Shape::Write(shape), Stage::Syncing(placed), reply) => match reply {
            Reply::Done => {
                // The kernel moves its end with the answer, and may have been seen meanwhile to have another.
                let written =
                    Reply::Written { len: placed.len, moved_to: None, reread: Reread::NONE, shield: None };
                driver.with_core(|core, _| note_written(core, shape, call.pid(), &written));
                written::finish(driver, call, shape, *placed);
            }
            // The bytes are there all the same.
            reply => {
                let answer = answer_of(driver, &call, reply);
                call.note_shield(placed.shield);
                send(driver, call, answer);
                written::invalidate(driver, shape, *placed);
            }
        },
        (_, _, reply) => finish(driver, call, reply),
    }
}

/// Answers what a look asks for on its way to a file through the mount: whom that waits for may be waiting for the answer that the look is for. Returns
/// the call if it is another.
fn answer_on_the_way<D: Driver>(driver: &D, call: Call, ino: Ino, operation: &Operation<'_>) -> Option<Call> {
    let is_on_the_way = match operation {
        Operation::Getattr { .. } | Operation::Getxattr { .. } => ino == Ino::ROOT,
        Operation::Lookup { name } => name.as_bytes() == b".",
        _ => false,
    };
    if !is_on_the_way || !driver.catch_up().is_some_and(|looks| looks.is_looking(call.pid())) {
        return Some(call);
    }
    match operation {
        Operation::Getattr { .. } => match driver.with_core(|core, _| core.root_told()) {
            Some(attr) => finish(driver, call, Reply::Attr(attr, Keep::No)),
            None => return Some(call),
        },
        // The list of a root that is not root's. Not that there is none: the kernel would believe that of everybody.
        Operation::Getxattr { .. } => call.finish(driver.metrics(), Answer::Error(Errno::ACCESS)),
        _ => call.finish(driver.metrics(), Answer::Error(Errno::STALE)),
    }
    None
}

/// Answers with what the core said.
fn finish<D: Driver>(driver: &D, mut call: Call, reply: Reply) {
    call.note_shield(reply.shield());
    let cut = match (call.shape, &reply) {
        (Shape::Truncate, Reply::Attr(attr, _)) => Some(attr.ino),
        _ => None,
    };
    let answer = answer_of(driver, &call, reply);
    let (thread, id) = (call.pid(), call.id());
    if let (Shape::List { dir, .. }, Answer::Dir(buffer)) = (call.shape, &answer)
        && buffer.as_bytes().is_empty()
    {
        driver.pending().listings.end(thread, dir);
    }
    let changes_names = noted::note_changed(driver, &call, &answer);
    send(driver, call, answer);
    if changes_names {
        driver.pending().changes.note_out(thread, id);
    }
    if let (Some(ino), Some(catch_up)) = (cut, driver.catch_up()) {
        catch_up.cut_told(ino);
    }
}

/// Answers, after what comes before.
pub(crate) fn send<D: Driver>(driver: &D, mut call: Call, mut answer: Answer) {
    for ino in call.changes.into_iter().flatten() {
        // The kernel has it in its hands, for what it asks.
        driver.corrector().outdate(ino);
        driver.pending().looks.are_taken_back(ino, call.changed_at);
    }
    let Some(before) = call.take_before() else {
        if let Shape::Flush { ino } = call.shape
            && driver.catch_up().is_some_and(|catch_up| catch_up.uses(ino))
        {
            return driver.spawn(Task { call, what: Work::Flush(ino, answer) });
        }
        return call.finish(driver.metrics(), answer);
    };
    if let Answer::Entry(entry) = &mut answer {
        // The name may be taken back while this waits, and who looks a name up again has no lock by which that is noticed: the kernel would take it with the
        // answer, for good.
        entry.entry_ttl = Duration::ZERO;
    }
    let metrics = Arc::clone(driver.metrics());
    driver.corrector().prepare(before, Box::new(move || call.finish(&metrics, answer)));
}

/// Answers a question that the kernel was made to ask. READs wait for what comes of it: it waits for nothing. If it asks to
/// set anything, that was but a means.
fn answer_now<D: Driver>(driver: &D, call: Call, question: Question) {
    let Question { of, is_locked, end } = question;
    let may_fill = !is_locked && driver.with_core(|core, _| core.may_fill_pages(of.ino));
    let is_safe = !may_fill || holds_lock(of.asker);
    let attr = driver.with_core(|core, _| {
        // The kernel cuts pages behind an earlier end, and what a write has filled there would go before it is sent.
        let must_keep = !is_safe;
        if must_keep && (of.end || end.is_none()) {
            return None;
        }
        let attr = core.attr_now(of, end.filter(|_| must_keep))?;
        core.end_is_taken(of.ino, attr.size, is_locked);
        Some(attr)
    });
    let answer = match attr {
        Some(attr) => {
            Answer::of(Shape::Plain, Reply::Attr(attr, Keep::No)).unwrap_or(Answer::Error(Errno::IO))
        }
        None => Answer::Error(Errno::AGAIN),
    };
    log::trace!("made to ask for ino {}: {answer:?}", of.ino);
    call.finish(driver.metrics(), answer);
}

fn answer_of<D: Driver>(driver: &D, call: &Call, reply: Reply) -> Answer {
    let pending = driver.pending();
    let met = if let Reply::Met(ino) = &reply { call.making.map(|at| (at, *ino)) } else { None };
    match (call.shape, &reply) {
        (Shape::CapabilityLen { ino }, Reply::Data(_)) => pending.capabilities.note(call.pid(), ino),
        (Shape::RemoveCapability { ino }, Reply::Error(FsError::NoAttribute))
            if pending.capabilities.take(call.pid(), |of| of == ino).is_some() =>
        {
            return Answer::Done;
        }
        // Who removes it once more finds none.
        (Shape::RemoveCapability { ino }, Reply::Done) => {
            pending.capabilities.take(call.pid(), |of| of == ino);
        }
        (Shape::Write(WriteShape { ino, refusal_cuts: Some(cut), .. }), Reply::Error(_)) => {
            let last_end = driver.with_core(|core, _| {
                core.direct_write_refused(ino);
                core.last_end(ino)
            });
            // Of a thread in sight a note goes with its next request. The kernel cuts what would have made the file longer.
            let is_longer = call.pid() != 0 || last_end.is_none_or(|end| cut.end > end);
            if let Some(writer) = cut.writer(call.pid()).filter(|_| is_longer) {
                pending.refused.note(writer, Refused { ino, end: cut.end });
            }
        }
        _ => {}
    }
    let answer = Answer::of(call.shape, reply).unwrap_or_else(|Misfit| {
        log::error!("the core's reply to a {} request is none that it can have", call.kind().name());
        driver.metrics().errors_unknown.add(1);
        Answer::Error(Errno::IO)
    });
    pending.late.note_answer(call.pid(), call.arrived(), &answer, met);
    answer
}

fn run_read<D: Driver>(driver: &D, call: Call, job: &ReadJob) {
    let metrics = driver.metrics();
    // Given back whatever comes.
    let _pin = Pinned { driver, pin: job.pin };
    read::with_bytes(driver.store(), metrics, job, |bytes| match bytes {
        Some(bytes) if call.has_before() => send(driver, call, Answer::Data(bytes.to_vec())),
        Some(bytes) => call.finish_data(metrics, bytes),
        None => call.finish(metrics, Answer::Error(Errno::IO)),
    });
}

/// What a read keeps from being taken back.
struct Pinned<'a, D: Driver> {
    driver: &'a D,
    pin: u64,
}

impl<D: Driver> Drop for Pinned<'_, D> {
    fn drop(&mut self) {
        self.driver.with_core(|core, clock| core.read_done(clock, self.pin));
    }
}
