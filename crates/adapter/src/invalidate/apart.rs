//! Calls on threads of their own, which may wait in the kernel long after nobody waits for them any more.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use fuse::{Notified, NotifyError};
use obs::InvalidationKind;
use types::{Ino, Name};

use super::starved::STARVED_MAX;
use super::{Notify, Shared};
use crate::caller::Caller;
use crate::changes::Changer;

impl Shared {
    /// The patience begins with the call: a busy machine may take its time to run the thread. Whether it is done.
    pub(super) fn apart(
        self: &Arc<Self>,
        patience: Duration,
        kind: InvalidationKind,
        call: impl FnOnce(&dyn Notify) -> Result<Notified, NotifyError> + Send + 'static,
    ) -> bool {
        self.begin_apart(kind, call).is_none_or(|ended| ended.recv_timeout(patience).is_ok())
    }

    /// Waits until the kernel is done with what it does of a name, which is asked for again then. Not for long: who holds the directory may be waiting for the
    /// job that waits here; only for a thread that has been answered and had no processor since.
    pub(super) fn settle(self: &Arc<Self>, parent: Ino, name: &Name, job: Option<u64>) {
        let kind = match self.notify.has_expire_only() {
            true => InvalidationKind::EntryExpire,
            false => InvalidationKind::EntryDelete,
        };
        let of = name.clone();
        let ended = self.begin_apart(kind, move |notify| {
            let name = OsStr::from_bytes(of.as_bytes());
            match kind {
                InvalidationKind::EntryExpire => notify.expire_entry(parent.0, name),
                _ => notify.inval_entry(parent.0, name),
            }
        });
        let Some(ended) = ended else { return };
        let since = Instant::now();
        let mut had_run = None;
        while ended.recv_timeout(self.config.patience).is_err() && since.elapsed() < STARVED_MAX {
            let caller = match job.and_then(|job| (self.hooks.changed)(job)) {
                Some(Changer::Unanswered) => continue,
                Some(Changer::Thread(thread)) => Caller::of_request(thread),
                None => None,
            };
            let Some(caller) = caller else { return };
            let Some(has_run) = caller.time_run().filter(|_| caller.is_running()) else { return };
            if has_run > *had_run.get_or_insert(has_run) + TAKEN_IN_WITHIN {
                return;
            }
        }
    }

    /// Returns when the call begins, with what tells of its end. `None`: there is no thread for it.
    fn begin_apart(
        self: &Arc<Self>,
        kind: InvalidationKind,
        call: impl FnOnce(&dyn Notify) -> Result<Notified, NotifyError> + Send + 'static,
    ) -> Option<Receiver<()>> {
        let this = Arc::clone(self);
        let (begin, has_begun) = sync_channel(1);
        let (end, has_ended) = sync_channel(1);
        let started = fuse::spawn(format!("{}-drop", self.config.name), move || {
            _ = begin.send(());
            let begun = Instant::now();
            let result = call(&*this.notify);
            this.count(kind, begun, &result);
            _ = end.send(());
        });
        match started {
            Ok(_) => {
                _ = has_begun.recv_timeout(STARTS_WITHIN);
                Some(has_ended)
            }
            Err(error) => {
                log::warn!("no thread for what may wait in the kernel: {error}");
                None
            }
        }
    }
}

/// A thread that has been started runs by then.
const STARTS_WITHIN: Duration = Duration::from_secs(1);
/// Time of its own in which a thread takes an answer in.
const TAKEN_IN_WITHIN: Duration = Duration::from_micros(200);
