//! Locks of applications: asked of the master, remembered here for a new one.

use meta::FsError;
use obs::OperationKind;
use types::Ino;
use wire::{BYTE_MAX, ByteLock, LockKind, LockOp, LockOwner, ToMaster};

use crate::core::Core;
use crate::request::Reply;
use crate::wait::{LockAnswer, Progress, Step, Try, WaitKey};

impl Core {
    pub(crate) fn try_set_lock(&mut self, lock: ByteLock, wait: bool, progress: &mut Progress) -> Try<Reply> {
        let answer = self.lock_call(LockOp::Set { lock, wait }, progress)?;
        if let Some(error) = answer.error {
            return Err(error.into());
        }
        self.remember_lock(lock);
        Ok(Reply::Done)
    }

    pub(crate) fn try_unlock(&mut self, lock: ByteLock, progress: &mut Progress) -> Try<Reply> {
        let has_any = self
            .locks
            .get(&lock.ino)
            .is_some_and(|list| list.iter().any(|l| l.kind == lock.kind && l.owner == lock.owner));
        if !has_any && progress.lock.is_none() {
            return Ok(Reply::Done);
        }
        let answer = self.lock_call(LockOp::Unset { lock }, progress)?;
        if let Some(error) = answer.error {
            return Err(error.into());
        }
        self.forget_locks(lock.ino, lock.kind, lock.owner, lock.start, lock.end);
        Ok(Reply::Done)
    }

    pub(crate) fn try_test_lock(&mut self, lock: ByteLock, progress: &mut Progress) -> Try<Reply> {
        let answer = self.lock_call(LockOp::Test { lock }, progress)?;
        match answer.error {
            Some(error) => Err(error.into()),
            None => Ok(Reply::Lock(answer.conflict)),
        }
    }

    /// All locks of an owner on a file go, as a close demands.
    pub(crate) fn drop_locks(
        &mut self,
        ino: Ino,
        kind: LockKind,
        owner: LockOwner,
        progress: &mut Progress,
    ) -> Try<()> {
        let has_any =
            self.locks.get(&ino).is_some_and(|list| list.iter().any(|l| l.kind == kind && l.owner == owner));
        if !has_any && progress.lock.is_none() {
            return Ok(());
        }
        self.lock_call(LockOp::Drop { ino, kind, owner }, progress)?;
        self.forget_locks(ino, kind, owner, 0, BYTE_MAX + 1);
        Ok(())
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
                self.lock_calls.insert(request, op);
                self.metrics.operations_shipped.add(OperationKind::Lock, 1);
                self.send(ToMaster::Lock { request, op });
                Err(Step::Wait(WaitKey::Lock(request)))
            }
        }
    }

    /// The master's answer.
    pub(crate) fn on_locked(&mut self, request: u64, error: Option<FsError>, conflict: Option<ByteLock>) {
        self.lock_calls.remove(&request);
        self.edit_waiting(WaitKey::Lock(request), |progress| {
            progress.lock = Some((request, Some(LockAnswer { error, conflict })));
        });
        self.wake(WaitKey::Lock(request));
    }

    fn remember_lock(&mut self, lock: ByteLock) {
        self.forget_locks(lock.ino, lock.kind, lock.owner, lock.start, lock.end);
        self.locks.entry(lock.ino).or_default().push(lock);
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
