//! Locks of applications: asked of the master, remembered here for a new one.

use std::collections::{BTreeMap, BTreeSet};

use meta::FsError;
use obs::OperationKind;
use types::Ino;
use wire::{BYTE_MAX, ByteLock, LockKind, LockOp, LockOwner, ToMaster};

use crate::core::{Core, Link};
use crate::outputs::Clock;
use crate::request::{HandleId, Reply, Request};
use crate::wait::{LockAnswer, Parked, Progress, Step, Try, WaitKey};

/// What closing files does to locks.
#[derive(Debug, Default)]
pub(crate) struct Closes {
    /// Through which open file an owner last asked for a lock of a kind.
    pub lock_handles: BTreeMap<(Ino, LockKind, LockOwner), HandleId>,
    /// Questions of this connection about closes that are not answered.
    pub asked: BTreeSet<u64>,
    /// Those of them that wait for closes which still give up locks.
    pub put_off: Vec<u64>,
}

/// What a master was asked about locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockCall {
    op: LockOp,
    /// Whether who asked has given up waiting since, and the master was told.
    is_cancelled: bool,
}

impl Core {
    pub(crate) fn try_set_lock(
        &mut self,
        lock: ByteLock,
        handle: HandleId,
        wait: bool,
        progress: &mut Progress,
    ) -> Try<Reply> {
        // Before it is asked for as well: the RELEASE of an open file that was where this one is in the kernel's memory may come meanwhile, and an answer is
        // not waited for by who was killed.
        self.closes.lock_handles.insert((lock.ino, lock.kind, lock.owner), handle);
        let answer = self.lock_call(LockOp::Set { lock, wait }, progress)?;
        if let Some(error) = answer.error {
            return Err(error.into());
        }
        // Who locks a file before looking at it is shown what those did who had the lock before.
        self.unlearn(lock.ino);
        Ok(Reply::Done)
    }

    pub(crate) fn try_unlock(&mut self, lock: ByteLock, progress: &mut Progress) -> Try<Reply> {
        if !self.has_locks(lock.ino, lock.kind, lock.owner) && progress.lock.is_none() {
            return Ok(Reply::Done);
        }
        let answer = self.lock_call(LockOp::Unset { lock }, progress)?;
        match answer.error {
            Some(error) => Err(error.into()),
            None => Ok(Reply::Done),
        }
    }

    pub(crate) fn try_test_lock(&mut self, lock: ByteLock, progress: &mut Progress) -> Try<Reply> {
        let answer = self.lock_call(LockOp::Test { lock }, progress)?;
        match answer.error {
            Some(error) => Err(error.into()),
            None => Ok(Reply::Lock(answer.conflict)),
        }
    }

    /// Whether an owner here has locks on a file.
    pub(crate) fn has_locks(&self, ino: Ino, kind: LockKind, owner: LockOwner) -> bool {
        self.locks.get(&ino).is_some_and(|list| list.iter().any(|l| l.kind == kind && l.owner == owner))
    }

    /// All locks of an owner on a file go, as a close demands.
    pub(crate) fn drop_locks(
        &mut self,
        ino: Ino,
        kind: LockKind,
        owner: LockOwner,
        progress: &mut Progress,
    ) -> Try<()> {
        if !self.has_locks(ino, kind, owner) && progress.lock.is_none() {
            return Ok(());
        }
        // They are forgotten when the answer comes: what the owner gets after that is not to go with them.
        self.lock_call(LockOp::Drop { ino, kind, owner }, progress)?;
        Ok(())
    }

    /// An owner of fcntl locks on a file whose last was taken through `handle`.
    ///
    /// A process gives its locks up with each close, which names it (FLUSH). An open file is the owner of its
    /// open-file-description locks, and nothing names it but the RELEASE of the handle they were taken through.
    pub(crate) fn owner_locking_through(&self, ino: Ino, handle: HandleId) -> Option<LockOwner> {
        let (first, last) = (LockOwner(0), LockOwner(u64::MAX));
        let owners =
            self.closes.lock_handles.range((ino, LockKind::Posix, first)..=(ino, LockKind::Posix, last));
        owners.into_iter().find(|(_, through)| **through == handle).map(|((.., owner), _)| *owner)
    }

    /// Every close is told that [`crate::Output::TellCloses`] asked about.
    pub fn closes_told(&mut self, clock: Clock, seq: u64) {
        self.clock = clock;
        self.closes.put_off.push(seq);
        self.tell_closes();
    }

    /// Says that closes are told, once those that are under way have given up all locks.
    pub(crate) fn tell_closes(&mut self) {
        let is_closing = |parked: &Parked| matches!(parked.request, Request::Release { .. });
        if self.closes.put_off.is_empty() || self.parked.values().any(is_closing) {
            return;
        }
        for seq in std::mem::take(&mut self.closes.put_off) {
            // By another connection it would answer another question.
            if self.closes.asked.remove(&seq) {
                self.send(ToMaster::ClosesTold { seq });
            }
        }
    }

    fn lock_call(&mut self, op: LockOp, progress: &mut Progress) -> Try<LockAnswer> {
        match progress.lock.take() {
            Some((_, Some(answer))) => Ok(answer),
            Some((request, None)) => {
                progress.lock = Some((request, None));
                Err(Step::Wait(WaitKey::Lock(request)))
            }
            None => {
                let request = self.number();
                progress.lock = Some((request, None));
                if let LockOp::Set { lock, .. } = op
                    && lock.kind == LockKind::Flock
                    && !self.has_lock(&lock)
                {
                    // Given up before another kind is taken, however it ends: another master is not to hear of it.
                    self.forget_locks(lock.ino, lock.kind, lock.owner, 0, BYTE_MAX + 1);
                }
                self.lock_calls.insert(request, LockCall { op, is_cancelled: false });
                self.metrics.operations_shipped.add(OperationKind::Lock, 1);
                self.send(ToMaster::Lock { request, op });
                Err(Step::Wait(WaitKey::Lock(request)))
            }
        }
    }

    /// Whether a question waits until a lock is free, and is not just on its way.
    pub(crate) fn is_waiting_for_lock(&self, request: u64) -> bool {
        let call = self.lock_calls.get(&request);
        call.is_some_and(|call| matches!(call.op, LockOp::Set { wait: true, .. }))
    }

    /// Who asked waits no more. The kernel says so once: what the master is told may be lost with it.
    pub(crate) fn cancel_lock(&mut self, request: u64) {
        let Some(call) = self.lock_calls.get_mut(&request) else { return };
        call.is_cancelled = true;
        if self.link == Link::Up {
            return self.send(ToMaster::CancelLock { request });
        }
        self.give_up_cancelled();
    }

    /// Nobody is there to cancel these, and the next master does not hear of them: it knows of no lock but those that it is
    /// told of.
    pub(crate) fn give_up_cancelled(&mut self) {
        let is_it = |call: &&LockCall| call.is_cancelled && matches!(call.op, LockOp::Set { .. });
        let cancelled = self.lock_calls.iter().filter(|(_, call)| is_it(call));
        for request in cancelled.map(|(request, _)| *request).collect::<Vec<_>>() {
            self.on_locked(request, Some(FsError::Interrupted), None);
        }
    }

    /// Of a new master, or by a new connection.
    pub(crate) fn ask_for_locks_again(&mut self) {
        self.give_up_cancelled();
        for (request, LockCall { op, .. }) in self.lock_calls.clone() {
            self.send(ToMaster::Lock { request, op });
        }
    }

    /// The master's answer. What it says is true from here on, whenever who asked goes on: a new master is told of it.
    pub(crate) fn on_locked(&mut self, request: u64, error: Option<FsError>, conflict: Option<ByteLock>) {
        match self.lock_calls.remove(&request).map(|call| call.op).filter(|_| error.is_none()) {
            Some(LockOp::Set { lock, .. }) => self.remember_lock(lock),
            Some(LockOp::Unset { lock }) => {
                self.forget_locks(lock.ino, lock.kind, lock.owner, lock.start, lock.end);
            }
            Some(LockOp::Drop { ino, kind, owner }) => self.forget_locks(ino, kind, owner, 0, BYTE_MAX + 1),
            Some(LockOp::Test { .. }) | None => {}
        }
        self.edit_waiting(WaitKey::Lock(request), |progress| {
            progress.lock = Some((request, Some(LockAnswer { error, conflict })));
        });
        self.wake(WaitKey::Lock(request));
    }

    fn remember_lock(&mut self, mut lock: ByteLock) {
        self.forget_locks(lock.ino, lock.kind, lock.owner, lock.start, lock.end);
        let list = self.locks.entry(lock.ino).or_default();
        list.retain(|beside| match lock.joined(*beside) {
            Some(joined) => {
                lock = joined;
                false
            }
            None => true,
        });
        list.push(lock);
    }

    /// Whether an owner has been granted just this; by which call does not matter.
    fn has_lock(&self, lock: &ByteLock) -> bool {
        let is_it = |have: &ByteLock| ByteLock { pid: lock.pid, ..*have } == *lock;
        self.locks.get(&lock.ino).is_some_and(|list| list.iter().any(is_it))
    }

    /// Cuts a range out of the remembered locks of an owner.
    fn forget_locks(&mut self, ino: Ino, kind: LockKind, owner: LockOwner, start: u64, end: u64) {
        let Some(list) = self.locks.get_mut(&ino) else { return };
        let mut rest = Vec::with_capacity(list.len());
        for lock in list.drain(..) {
            if lock.kind != kind || lock.owner != owner || lock.end <= start || lock.start >= end {
                rest.push(lock);
                continue;
            }
            if lock.start < start {
                rest.push(ByteLock { end: start, ..lock });
            }
            if lock.end > end {
                rest.push(ByteLock { start: end, ..lock });
            }
        }
        if rest.is_empty() {
            self.locks.remove(&ino);
        } else {
            *list = rest;
        }
    }
}
