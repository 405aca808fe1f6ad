//! Emptying the kernel's caches.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use fuse::Notifier;
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use crate::shared::Shared;

/// Threads that take back what the table lists.
pub struct Sweeper {
    inner: Arc<Inner>,
    abort: Option<File>,
}

struct Inner {
    /// Mapped after the threads have been started and all memory was locked.
    memory: OnceLock<Shared>,
    notifier: Notifier,
    /// Whether pages are taken back too. Not where a call that waits for them could not be freed.
    pages: Pages,
    next: AtomicU64,
    state: Mutex<State>,
    work: Condvar,
    /// Readable when the threads are done.
    done: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    Taken,
    Left,
}

#[derive(Debug, Default)]
struct State {
    /// Sweeps begun.
    number: u64,
    /// Threads that are not done with the last one.
    busy: usize,
}

impl Sweeper {
    /// Starts the threads.
    pub fn new(notifier: Notifier, abort: Option<File>) -> io::Result<Self> {
        let inner = Arc::new(Inner {
            memory: OnceLock::new(),
            notifier,
            pages: if abort.is_some() { Pages::Taken } else { Pages::Left },
            next: AtomicU64::new(0),
            state: Mutex::default(),
            work: Condvar::new(),
            done: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        for index in 0..THREADS {
            let inner = Arc::clone(&inner);
            let thread = thread::Builder::new().name(format!("sweep-{index}")).stack_size(STACK_LEN);
            thread.spawn(move || inner.work())?;
        }
        Ok(Self { inner, abort })
    }

    /// Sets what is shared with the node.
    pub fn set_memory(&self, memory: Shared) {
        _ = self.inner.memory.set(memory);
    }

    /// What is shared with the node, once it is set.
    pub fn memory(&self) -> Option<&Shared> {
        self.inner.memory.get()
    }

    /// Readable when the threads are done.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.inner.done.as_fd()
    }

    /// Whether the threads are done. Makes [`done`](Self::done) unreadable until they are again.
    pub fn is_done(&self) -> bool {
        _ = rustix::io::read(&self.inner.done, &mut [0; 8]);
        self.inner.state.lock().busy == 0
    }

    /// Makes every name run out, and has the threads begin with the inodes. They must be done with what they did before.
    pub fn begin(&self) {
        // Refused by kernels before 7.44: those answer cached names on.
        _ = self.inner.notifier.inc_epoch();
        let mut state = self.inner.state.lock();
        self.inner.next.store(0, Ordering::SeqCst);
        state.number += 1;
        state.busy = THREADS;
        drop(state);
        self.inner.work.notify_all();
    }

    /// Takes all attributes back, on this thread. Waits for nothing.
    pub fn attributes(&self) {
        for index in 0..self.inner.len() {
            if let Some(ino) = self.inner.ino(index) {
                _ = self.inner.notifier.inval_inode(ino, -1, 0);
            }
        }
    }

    /// Aborts the connection, if that may be done: then nothing waits any more.
    pub fn abort(&mut self) -> bool {
        self.abort.as_mut().is_some_and(|file| file.write_all(b"1").is_ok())
    }
}

impl Inner {
    /// A thread. Ends with the process.
    fn work(&self) {
        let mut seen = 0;
        let mut state = self.state.lock();
        loop {
            while state.number == seen {
                self.work.wait(&mut state);
            }
            seen = state.number;
            parking_lot::MutexGuard::unlocked(&mut state, || self.sweep());
            state.busy -= 1;
            if state.busy == 0 {
                _ = rustix::io::write(&self.done, &1u64.to_ne_bytes());
            }
        }
    }

    /// Takes back what no other thread has taken on.
    fn sweep(&self) {
        let len = self.len();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= len {
                return;
            }
            let Some(ino) = self.ino(index) else { continue };
            // What the kernel does not know is done; so is everything once the mount is gone.
            _ = match self.pages {
                Pages::Taken => self.notifier.inval_inode(ino, 0, 0),
                Pages::Left => self.notifier.inval_inode(ino, -1, 0),
            };
        }
    }

    fn len(&self) -> u64 {
        self.memory.get().map_or(0, |memory| memory.header().slots.load(Ordering::Acquire))
    }

    fn ino(&self, index: u64) -> Option<u64> {
        let slot = self.memory.get()?.slots().get(usize::try_from(index).ok()?)?;
        Some(slot.load(Ordering::Acquire)).filter(|ino| *ino != 0)
    }
}

/// One that waits for pages leaves others; few wait at a time, for a reader reads ahead in one file.
const THREADS: usize = 4;
const STACK_LEN: usize = 64 << 10;
