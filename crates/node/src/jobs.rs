//! A queue of work for threads that do one thing.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Work in the order it came.
///
/// Not bounded here: each kind of job is bounded by who makes it (requests the kernel has in flight, syncs
/// and invalidations a core has under way), and a queue that made its producer wait would stop answers.
#[derive(Debug)]
pub(crate) struct Jobs<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    is_closed: bool,
}

impl<T> Default for Jobs<T> {
    fn default() -> Self {
        let state = State { queue: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<T> Jobs<T> {
    /// Adds a job; it is dropped after [`close`](Self::close).
    pub fn push(&self, job: T) {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.queue.push_back(job);
            self.changed.notify_one();
        }
    }

    /// Waits for the next job; `None` once the queue is closed and empty.
    pub fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits for jobs and takes all there are; empty once the queue is closed.
    pub fn all(&self) -> Vec<T> {
        let mut state = self.state.lock();
        while state.queue.is_empty() && !state.is_closed {
            self.changed.wait(&mut state);
        }
        state.queue.drain(..).collect()
    }

    /// Lets the threads end once what is queued is done.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}
