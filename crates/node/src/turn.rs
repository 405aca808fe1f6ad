//! One thread at a time hands on what a core puts out, and no thread waits for it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The turn to hand on outputs. Who comes while another has it leaves the work to that one.
///
/// So outputs keep their order although many threads make them, and a thread that only has to announce
/// outputs never waits for one that is handing on.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicUsize);

impl Turn {
    /// Calls `step`, which hands on everything there is, at least once after this call began: on this
    /// thread, again for each announcement that came meanwhile, or on the thread that has the turn.
    pub fn take(&self, mut step: impl FnMut()) {
        if self.0.fetch_add(1, Ordering::AcqRel) != 0 {
            return;
        }
        let mut announced = 1;
        loop {
            step();
            match self.0.compare_exchange(announced, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => announced = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::Turn;

    #[test]
    fn everything_announced_is_handed_on_in_order() {
        let (turn, queue, out) =
            (Turn::default(), Mutex::new((0u32, VecDeque::new())), Mutex::new(Vec::new()));
        let shared = Arc::new((turn, queue, out));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        let (turn, queue, out) = &*shared;
                        {
                            let mut queue = queue.lock();
                            queue.0 += 1;
                            let number = queue.0;
                            queue.1.push_back(number);
                        }
                        turn.take(|| {
                            while let Some(number) = { queue.lock().1.pop_front() } {
                                out.lock().push(number);
                            }
                        });
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(shared.2.lock().iter().copied().eq(1..=40_000));
    }

    #[test]
    fn a_step_that_announces_runs_again_without_recursion() {
        let turn = Turn::default();
        let mut steps = 0;
        turn.take(|| {
            steps += 1;
            if steps < 100 {
                turn.take(|| unreachable!("the turn is taken"));
            }
        });
        assert_eq!(steps, 100);
    }
}
