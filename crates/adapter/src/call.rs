//! A request of the kernel from its arrival to its answer, and the table of those that wait.

use std::time::Instant;

use fuse::Errno;
use obs::{FuseKind, Metrics, OperationKind};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use types::{Ino, Micros};
use vfs::{Interrupt, Request, RequestId, Shield};

use crate::changes::{Changer, Changes};
use crate::invalidate::Before;
use crate::kind::kind_of;
use crate::late::{self, Late, NameHash};
use crate::listings::Listings;
use crate::looks::Looks;
use crate::refused::{Refused, Writer};
use crate::reply::{Answer, Shape};
use crate::told::Told;
use crate::twice::Found;
use crate::written::Placed;

/// A request that is to be answered.
#[derive(Debug)]
pub(crate) struct Call {
    pub reply: fuse::Reply,
    pub shape: Shape,
    pub stage: Stage,
    pub waited: Waited,
    /// What comes before the answer, if anything. Apart, as mostly nothing does, and a call changes hands often.
    before: Option<Box<Before>>,
    /// The name that it makes a file under, or looks up.
    pub making: Option<NameHash>,
    /// Whether it looks up what the thread may have found under another name, where it is no longer.
    pub may_be_twice: bool,
    /// The thread that asked, 0 if it is not in sight.
    pid: u32,
    /// Inodes whose attributes it changes by an answer that tells nothing of them; once it has, those of which others may still take in older ones.
    pub changes: [Option<Ino>; 4],
    /// When that was found out.
    pub changed_at: Micros,
    /// Whether no limits of accounts bind who asks: root, as with quotas everywhere.
    pub is_exempt: bool,
    /// Whether it asks for attributes by an open file, as lseek does.
    pub is_by_handle: bool,
    kind: FuseKind,
    operation: Option<OperationKind>,
    arrived: Instant,
}

/// How far a request came that takes more than one question to the core.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Asked what the kernel asked.
    Asked,
    /// Written; now being made durable.
    Syncing(Box<Placed>),
}

/// Whether other requests may have been answered between a request's arrival and its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    No,
    Yes,
}

impl Call {
    /// Begins with the arrival of `reply`'s request.
    pub fn new(reply: fuse::Reply, pid: u32, uid: u32) -> Self {
        let kind = kind_of(reply.opcode());
        let arrived = Instant::now();
        Self {
            reply,
            shape: Shape::Plain,
            stage: Stage::Asked,
            waited: Waited::No,
            before: None,
            making: None,
            may_be_twice: false,
            changes: [None; 4],
            changed_at: Micros(0),
            pid,
            is_by_handle: false,
            is_exempt: uid == 0,
            kind,
            operation: None,
            arrived,
        }
    }

    pub fn id(&self) -> RequestId {
        RequestId(self.reply.unique())
    }

    pub fn kind(&self) -> FuseKind {
        self.kind
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// To add to what comes before the answer.
    pub fn before_mut(&mut self) -> &mut Before {
        self.before.get_or_insert_default()
    }

    /// Has pages behind this go before the answer.
    pub fn note_shield(&mut self, shield: Option<Shield>) {
        if shield.is_some() || self.before.is_some() {
            self.before_mut().shield = shield;
        }
    }

    /// Has this come before the answer, and nothing else.
    pub fn set_before(&mut self, before: Before) {
        self.before = (!before.is_nothing()).then(|| Box::new(before));
    }

    /// The answer waits for this, if it may not be given as it is.
    pub fn take_before(&mut self) -> Option<Before> {
        self.before.take().map(|before| *before).filter(|before| !before.is_nothing())
    }

    /// Whether something comes before the answer.
    pub fn has_before(&self) -> bool {
        self.before.as_ref().is_some_and(|before| !before.is_nothing())
    }

    /// Notes what the core is asked to do; what it is asked next to complete that changes nothing.
    pub fn note_operation(&mut self, operation: OperationKind) {
        self.operation.get_or_insert(operation);
    }

    /// Answers and records how long it took.
    ///
    /// An answer is lost only with the whole connection, so references and handles it gave need no undoing.
    pub fn finish(self, metrics: &Metrics, answer: Answer) {
        self.finish_with(metrics, |reply| _ = answer.send(reply));
    }

    /// As [`finish`](Self::finish), with bytes that the caller keeps.
    pub fn finish_data(self, metrics: &Metrics, data: &[u8]) {
        self.finish_with(metrics, |reply| _ = reply.data(data));
    }

    /// Answers a request that could not be decoded.
    pub fn finish_malformed(self, metrics: &Metrics) {
        self.finish_with(metrics, |reply| _ = reply.malformed());
    }

    /// Answers while something is still to be done for it.
    pub fn answer(self, answer: Answer) -> Answered {
        self.answer_with(|reply| _ = answer.send(reply))
    }

    fn finish_with(self, metrics: &Metrics, send: impl FnOnce(fuse::Reply)) {
        self.answer_with(send).record(metrics, fuse::answered_at());
    }

    fn answer_with(self, send: impl FnOnce(fuse::Reply)) -> Answered {
        let Self { kind, operation, arrived, .. } = self;
        send(self.reply);
        Answered { kind, operation, arrived }
    }
}

/// A request that was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    kind: FuseKind,
    operation: Option<OperationKind>,
    arrived: Instant,
}

impl Answered {
    /// Records how long it took with what was still to be done.
    pub fn done(self, metrics: &Metrics) {
        self.record(metrics, Instant::now());
    }

    fn record(self, metrics: &Metrics, end: Instant) {
        let Self { kind, operation, arrived } = self;
        let us = end.saturating_duration_since(arrived).as_micros() as u64;
        metrics.fuse_duration.record(kind, us);
        if let Some(operation) = operation {
            metrics.operation_duration.record(operation, us);
        }
    }
}

/// Requests that the core has and will answer later.
///
/// Its lock comes after the core's: requests are entered while the core is locked, so that an answer that
/// another thread takes from the core finds them.
#[derive(Debug, Default)]
pub struct PendingTable {
    calls: Mutex<FxHashMap<RequestId, Call>>,
    /// Who is about to take a capability away.
    pub(crate) capabilities: Told<Ino>,
    /// Whose write was refused, so that the kernel may cut the file.
    pub(crate) refused: Told<Refused, Writer>,
    /// Who was answered ESTALE.
    pub(crate) late: Told<Late>,
    /// Who was told of which attributes.
    pub(crate) looks: Looks,
    /// Who was given a name of which inode, with its attributes or without.
    pub(crate) names: Looks,
    /// What was named last to whom, in directories that others change.
    pub(crate) named: Told<Ino>,
    /// Who took a name from which inode that has others, and when.
    pub(crate) removals: Told<(Ino, Micros)>,
    /// Whose change of names was answered last.
    pub(crate) changes: Changes,
    /// Who lists which directories.
    pub(crate) listings: Listings,
    /// Who found what last.
    pub(crate) found: Found,
}

impl PendingTable {
    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.calls.lock().len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A thread makes a request, which may become another in its second walk, or be no part of one.
    pub(crate) fn walk_on(&self, thread: u32, request: Request) -> Request {
        if !late::leads_on(&request) {
            self.found.end_walk(thread);
        }
        self.late.second_walk(thread, request)
    }

    /// Where a change of names is that has taken effect.
    pub fn changer(&self, id: RequestId) -> Option<Changer> {
        self.changes.changer(id)
    }

    pub(crate) fn insert(&self, mut call: Call) {
        call.waited = Waited::Yes;
        let id = call.id();
        let before = self.calls.lock().insert(id, call);
        debug_assert!(before.is_none(), "request numbers are unique while a request waits");
    }

    pub(crate) fn remove(&self, id: RequestId) -> Option<Call> {
        self.calls.lock().remove(&id)
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.calls.lock().contains_key(&id)
    }

    /// Whether an interrupt is to reach the core. Bytes once written are not unwritten by a signal: a program
    /// that saw EINTR would append them again.
    pub(crate) fn may_interrupt(&self, id: RequestId) -> bool {
        self.calls.lock().get(&id).is_some_and(|call| call.stage == Stage::Asked)
    }

    /// Why the application of a request that waits gives it up.
    pub(crate) fn cause_of(&self, id: RequestId) -> Interrupt {
        let pid = self.calls.lock().get(&id).map_or(0, |call| call.pid);
        if is_signalled(pid) { Interrupt::Signal } else { Interrupt::Death }
    }

    /// Answers what is left when the mount is gone. Nobody hears it, but nothing is dropped unanswered.
    pub(crate) fn clear(&self) {
        let calls = std::mem::take(&mut *self.calls.lock());
        for call in calls.into_values() {
            _ = call.reply.error(Errno::NOTCONN);
        }
    }
}

/// Whether a thread has signals to handle and is not being killed: a deadly signal is SIGKILL for every thread of the
/// process by the time the kernel tells of it (`complete_signal` in linux:kernel/signal.c). False if it is not in sight.
fn is_signalled(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.is_some_and(|mask| mask & SIGKILL_BIT == 0)
}

const SIGKILL_BIT: u64 = 1 << 8;
