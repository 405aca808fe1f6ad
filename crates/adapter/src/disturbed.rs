//! Callers that a signal disturbed while they wait.
//!
//! The kernel tells of the first signal of a caller, by one INTERRUPT, and from then on of none: it waits for the answer
//! (`request_wait_answer` of linux:fs/fuse/dev.c). Who was disturbed by a harmless one and is killed after that has to be looked for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use vfs::{Interrupt, RequestId};

use crate::server::Driver;

/// Requests that wait on after their caller was disturbed, and the thread that looks after them, while there are any.
#[derive(Debug, Default)]
pub(crate) struct Disturbed(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    /// Requests, and how often each was not found waiting: it may be in other hands for a moment.
    requests: Vec<(RequestId, u32)>,
    is_watched: bool,
}

impl Disturbed {
    /// Looks after a request from now on.
    pub fn note<D: Driver + 'static>(self: &Arc<Self>, driver: &Arc<D>, id: RequestId) {
        let mut list = self.0.lock();
        list.requests.push((id, 0));
        if list.is_watched {
            return;
        }
        let (this, weak) = (Arc::clone(self), Arc::downgrade(driver));
        match fuse::spawn("disturbed".to_owned(), move || this.watch(&weak)) {
            Ok(_) => list.is_watched = true,
            Err(error) => log::warn!("no thread to look after disturbed callers: {error}"),
        }
    }

    fn watch<D: Driver>(&self, driver: &Weak<D>) {
        loop {
            std::thread::sleep(PAUSE);
            let requests = std::mem::take(&mut self.0.lock().requests);
            let Some(driver) = driver.upgrade() else { return };
            let left = requests.into_iter().filter_map(|(id, missed)| match give_up_if_dead(&*driver, id) {
                true => Some((id, 0)),
                false => (missed < MISSED_MAX).then_some((id, missed + 1)),
            });
            let left: Vec<_> = left.collect();
            let mut list = self.0.lock();
            list.requests.extend(left);
            if list.requests.is_empty() {
                list.is_watched = false;
                return;
            }
        }
    }
}

/// Has the core give up a request whose caller is being killed. Returns whether it still waits.
fn give_up_if_dead<D: Driver>(driver: &D, id: RequestId) -> bool {
    let pending = driver.pending();
    if pending.contains(id) && pending.cause_of(id) == Interrupt::Death {
        driver.with_core(|core, clock| {
            if pending.may_interrupt(id) {
                core.interrupt(clock, id, Interrupt::Death);
            }
        });
    }
    pending.contains(id)
}

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Looks in vain before a request counts as answered.
const MISSED_MAX: u32 = 20;
