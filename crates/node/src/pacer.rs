//! Keeps long reading from taking the disk from others.

use std::time::{Duration, Instant};

/// Counts bytes and waits where they come faster than they may.
pub(crate) struct Pacer {
    bytes_per_second: Option<u64>,
    since: Instant,
    bytes: u64,
}

impl Pacer {
    /// Waits for nothing without a rate.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second: bytes_per_second.map(|rate| rate.max(1)), since: Instant::now(), bytes: 0 }
    }

    /// Waits, by calls of `pause`, until so many more bytes are due. Ends early when `pause` says no.
    pub fn wait_after(&mut self, bytes: u64, mut pause: impl FnMut(Duration) -> bool) {
        let Some(rate) = self.bytes_per_second else { return };
        self.bytes += bytes;
        let due = Duration::from_secs_f64(self.bytes as f64 / rate as f64);
        while let Some(left) = due.checked_sub(self.since.elapsed()).filter(|left| *left > SHORT) {
            if !pause(left.min(STEP)) {
                return;
            }
        }
        // What was not used for long is not made up for at once.
        if self.since.elapsed() > due + STEP {
            (self.since, self.bytes) = (Instant::now(), 0);
        }
    }
}

/// Not worth a wait.
const SHORT: Duration = Duration::from_millis(2);
const STEP: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_as_long_as_the_rate_wants_and_not_without_one() {
        let mut waited = Duration::ZERO;
        let mut pause = |time: Duration| {
            waited += time;
            std::thread::sleep(time);
            true
        };
        let mut pacer = Pacer::new(Some(1_000_000));
        for _ in 0..10 {
            pacer.wait_after(20_000, &mut pause);
        }
        assert!(pacer.since.elapsed() >= Duration::from_millis(195), "{waited:?}");
        Pacer::new(None).wait_after(1 << 60, |_| panic!("no wait"));
        // Called off.
        Pacer::new(Some(1)).wait_after(1 << 30, |_| false);
    }
}
