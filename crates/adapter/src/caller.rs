//! Whether a thread waits, or only lacks a processor.

use std::time::Duration;

use rustix::thread::{Pid, gettid};

/// A thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller(Pid);

impl Caller {
    /// The one that asks.
    pub fn this() -> Self {
        Self(gettid())
    }

    /// Whose request it is, as the kernel names it; `None` if the thread is not in sight.
    pub fn of_request(thread: u32) -> Option<Self> {
        i32::try_from(thread).ok().and_then(Pid::from_raw).map(Self)
    }

    /// Whether it runs, or would if a processor were free: it waits for nothing.
    pub fn is_running(self) -> bool {
        let path = format!("/proc/{}/stat", self.0.as_raw_nonzero());
        let Ok(stat) = std::fs::read(path) else { return false };
        // The name stands in parentheses, and may have some of its own.
        let after = stat.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 1);
        stat[after..].iter().find(|byte| **byte != b' ') == Some(&b'R')
    }

    /// How long it has run, in all. A moment that it is in counts when it is over, or at the next tick of the clock.
    pub fn time_run(self) -> Option<Duration> {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.0.as_raw_nonzero())).ok()?;
        text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn time_run_grows_while_a_thread_runs() {
        let before = Caller::this().time_run().expect("a kernel that counts it");
        let begun = Instant::now();
        while Caller::this().time_run().expect("counted") < before + Duration::from_millis(5) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not grow");
        }
    }

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
