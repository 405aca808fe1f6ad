//! Threads that are late because they have no processor, not because the kernel keeps them waiting.
//!
//! An epoch for one of those would cost the kernel all names that it has, a tree of them the next walk twice its time, and help nobody.

use std::time::{Duration, Instant};

use rustix::thread::{Pid, gettid};

use super::{Call, State};

/// Whose call it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller(Pid);

impl Caller {
    pub fn this() -> Self {
        Self(gettid())
    }

    /// Whether it runs, or would if a processor were free: it waits for nothing.
    fn is_running(self) -> bool {
        let path = format!("/proc/self/task/{}/stat", self.0.as_raw_nonzero());
        let Ok(stat) = std::fs::read(path) else { return false };
        // The name stands in parentheses, and may have some of its own.
        let after = stat.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 1);
        stat[after..].iter().find(|byte| **byte != b' ') == Some(&b'R')
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
const STARVED_MAX: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_that_computes_runs_and_one_that_waits_does_not() {
        assert!(Caller::this().is_running());
        let (tell, told) = channel();
        let (end, is_over) = channel::<()>();
        let waits = std::thread::spawn(move || {
            tell.send(Caller::this()).expect("somebody listens");
            _ = is_over.recv();
        });
        let caller = told.recv().expect("it says so");
        let deadline = Instant::now() + Duration::from_secs(20);
        while caller.is_running() {
            assert!(Instant::now() < deadline, "it never sleeps");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(end);
        waits.join().expect("it ends");
        assert!(!caller.is_running(), "it is gone");
    }
}
