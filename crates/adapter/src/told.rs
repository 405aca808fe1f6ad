//! What threads were told last: the kernel acts on it with the next request that it makes on their behalf.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Threads, or what else a request is known by, and what each was told; the last ones.
#[derive(Debug)]
pub(crate) struct Told<T, K = u32> {
    last: Mutex<VecDeque<(K, T)>>,
    /// How many they are.
    len: AtomicUsize,
}

impl<T, K> Default for Told<T, K> {
    fn default() -> Self {
        Self { last: Mutex::default(), len: AtomicUsize::new(0) }
    }
}

impl<T: Copy + PartialEq, K: PartialEq> Told<T, K> {
    /// `thread` is told of `what`, and of nothing before that any more.
    pub fn note(&self, thread: K, what: T) {
        let mut last = self.last.lock();
        last.retain(|of| of.0 != thread);
        last.push_back((thread, what));
        if last.len() > LEN_MAX {
            last.pop_front();
        }
        self.len.store(last.len(), Ordering::Relaxed);
    }

    /// What `thread` was told last.
    pub fn of(&self, thread: K) -> Option<T> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.last.lock().iter().find(|of| of.0 == thread).map(|of| of.1)
    }

    /// Who was told last of what `is_it`, and what that is.
    pub fn find(&self, is_it: impl Fn(T) -> bool) -> Option<(K, T)>
    where
        K: Copy,
    {
        self.last.lock().iter().find(|of| is_it(of.1)).copied()
    }

    /// `thread`, if it was told of `what` last, was told of `other`.
    pub fn replace(&self, thread: K, what: T, other: T) {
        let mut last = self.last.lock();
        if let Some(of) = last.iter_mut().rev().find(|of| of.0 == thread && of.1 == what) {
            of.1 = other;
        }
    }

    /// What `thread` was told last, if `is_it`. Once.
    pub fn take(&self, thread: K, is_it: impl FnOnce(T) -> bool) -> Option<T> {
        // Nobody else makes a request for a thread, so that its own note is seen.
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut last = self.last.lock();
        let at = last.iter().position(|of| of.0 == thread).filter(|at| is_it(last[*at].1))?;
        let what = last.remove(at).map(|(_, what)| what);
        self.len.store(last.len(), Ordering::Relaxed);
        what
    }
}

/// More threads than this are not told at once.
const LEN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_remembered_once_and_for_one_file() {
        let told = Told::default();
        told.note(1, 5);
        told.note(2, 5);
        assert_eq!(told.take(1, |of| of == 6), None);
        assert_eq!((told.of(1), told.of(3)), (Some(5), None));
        assert_eq!(told.take(1, |of| of == 5), Some(5));
        assert_eq!(told.take(1, |of| of == 5), None);
        told.note(2, 7);
        assert_eq!(told.take(2, |of| of == 5), None);
        for thread in 3..3 + LEN_MAX as u32 {
            told.note(thread, 1);
        }
        assert_eq!(told.take(2, |of| of == 7), None);
        assert_eq!(told.take(3, |of| of == 1), Some(1));
    }
}
