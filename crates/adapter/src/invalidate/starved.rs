//! Threads that are late because they have no processor, not because the kernel keeps them waiting.
//!
//! An epoch for one of those would cost the kernel all names that it has, a tree of them the next walk twice its time, and help nobody.

use std::time::{Duration, Instant};

use super::{Call, CallKind, State};

impl Call {
    /// From when on it tries the patience of those for whom it leaves no thread. What ends by itself does not.
    pub(super) fn in_earnest_since(&self) -> Instant {
        match self.kind {
            CallKind::Settled => self.since + STARVED_MAX,
            CallKind::Prompt | CallKind::Name | CallKind::Pages => self.tried_since,
        }
    }
}

impl State {
    /// Has patience begin anew with overdue calls whose threads are running.
    pub(super) fn bear_with_starved(&mut self, patience: Duration, now: Instant) {
        let is_due = |call: &&mut Call| {
            call.kind.may_block() && call.tried_since + patience <= now && call.since + STARVED_MAX > now
        };
        for call in self.calls.iter_mut().filter(is_due) {
            if call.caller.is_running() {
                call.tried_since = now;
            }
        }
    }
}

/// So long a thread may go without a processor in a call.
pub(super) const STARVED_MAX: Duration = Duration::from_millis(200);
