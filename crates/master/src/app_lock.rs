//! Lock requests of applications.

use meta::FsError;
use types::NodeId;
use wire::{FromMaster, LockOp};

use crate::app_locks::Outcome;
use crate::state::Master;

impl Master {
    pub(crate) fn on_lock(&mut self, node: NodeId, request: u64, op: LockOp) {
        let answer = |error| FromMaster::Locked { request, error, conflict: None };
        match op {
            LockOp::Set { lock, wait } => {
                let (outcome, granted) = self.app_locks.set(node, request, lock, wait);
                match outcome {
                    Outcome::Granted => self.send(node, answer(None)),
                    Outcome::Refused(error) => self.send(node, answer(Some(error))),
                    Outcome::Waiting => {}
                }
                self.answer_locks(granted);
            }
            LockOp::Unset { lock } => {
                let granted = self.app_locks.unset(node, &lock);
                self.send(node, answer(None));
                self.answer_locks(granted);
            }
            LockOp::Test { lock } => {
                let conflict = self.app_locks.test(node, &lock);
                self.send(node, FromMaster::Locked { request, error: None, conflict });
            }
            LockOp::Drop { ino, kind, owner } => {
                let granted = self.app_locks.drop_owner(node, ino, kind, owner);
                self.send(node, answer(None));
                self.answer_locks(granted);
            }
        }
    }

    pub(crate) fn on_cancel_lock(&mut self, node: NodeId, request: u64) {
        let (was_waiting, granted) = self.app_locks.cancel(node, request);
        if was_waiting {
            let error = Some(FsError::Interrupted);
            self.send(node, FromMaster::Locked { request, error, conflict: None });
        }
        self.answer_locks(granted);
    }

    pub(crate) fn drop_app_locks(&mut self, node: NodeId) {
        let granted = self.app_locks.drop_node(node);
        self.answer_locks(granted);
    }

    fn answer_locks(&mut self, granted: Vec<(NodeId, u64)>) {
        for (node, request) in granted {
            self.send(node, FromMaster::Locked { request, error: None, conflict: None });
        }
    }
}
