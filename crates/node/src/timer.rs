//! When the cores next need the time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use types::Micros;

use crate::clock;

/// Wakes the timer thread when something falls due, or earlier if something fell due earlier since.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    /// Until when the thread means to sleep. Read after each change of a core, without a lock.
    armed: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_woken: bool,
    is_stopped: bool,
}

impl Timer {
    /// Tells that a core wants to be called at `due`. One relaxed load unless that is earlier than all else.
    pub fn note(&self, due: Micros) {
        if due.0 < self.armed.load(Ordering::SeqCst) {
            self.state.lock().is_woken = true;
            self.changed.notify_one();
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_one();
    }

    /// The thread. `tick` calls whatever is due and returns when it next wants to be called; `next` only
    /// tells the latter.
    pub fn run(&self, mut tick: impl FnMut() -> Micros, mut next: impl FnMut() -> Micros) {
        loop {
            // Nobody needs to wake a thread that will look by itself.
            self.armed.store(0, Ordering::SeqCst);
            // What is due now was done now: never spin on a core that says otherwise.
            let due = tick().max(clock::now() + PAUSE);
            self.armed.store(due.0, Ordering::SeqCst);
            // Whoever changed a core before this saw the old value and did not wake us.
            let due = due.min(next()).max(clock::now() + PAUSE);
            if self.sleep_until(due) == Awake::Stopped {
                return;
            }
        }
    }

    fn sleep_until(&self, due: Micros) -> Awake {
        let mut state = self.state.lock();
        while !state.is_woken && !state.is_stopped {
            let left = due.since(clock::now());
            if left == Micros(0) {
                break;
            }
            // The clock of a wait stands still while the machine is suspended, ours does not: hence the limit.
            let wait = Duration::from_micros(left.0).clamp(NAP_MIN, NAP_MAX);
            self.changed.wait_for(&mut state, wait);
        }
        state.is_woken = false;
        if state.is_stopped { Awake::Stopped } else { Awake::Due }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Awake {
    Due,
    Stopped,
}

const PAUSE: Micros = Micros(100);
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn an_earlier_deadline_shortens_the_sleep() {
        let timer = Arc::new(Timer::default());
        let due = Arc::new(AtomicU64::new(u64::MAX));
        let (sender, ticks) = channel();
        let thread = {
            let (timer, due) = (Arc::clone(&timer), Arc::clone(&due));
            std::thread::spawn(move || {
                let read = || Micros(due.load(Ordering::SeqCst));
                let tick = || {
                    if read() <= clock::now() {
                        due.store(u64::MAX, Ordering::SeqCst);
                        sender.send(()).unwrap();
                    }
                    read()
                };
                timer.run(tick, read);
            })
        };
        for _ in 0..100 {
            let soon = clock::now() + Micros(200);
            due.store(soon.0, Ordering::SeqCst);
            timer.note(soon);
            ticks.recv_timeout(Duration::from_millis(900)).expect("woken before the longest nap");
        }
        timer.stop();
        thread.join().unwrap();
    }
}
