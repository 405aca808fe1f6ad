//! Requests through io_uring: a queue for each processor, served by a thread bound to it.
//!
//! ```text
//! caller on CPU n ──► queue n ──► thread ring-n, on CPU n ──► Handler::handle ──► Reply ──┐ inline: with the next wait
//!                        ▲                                                                │ other threads: inbox, wake-up
//!                        └──────────────── COMMIT_AND_FETCH: answer, and wait for more ◄──┘
//! FORGET, INTERRUPT ──► /dev/fuse ──► the thread of Session::run
//! ```
//!
//! - `/dev/fuse` has one queue, and who reads it is on one processor: another caller's request costs an interrupt there and one back. Here
//!   each is served where it is made, in one system call.
//! - **A request that waits keeps its entry**, and one that finds no entry free waits behind them for one of its own queue, even
//!   if its answer is what they wait for. So there are never to be none: a thread registers more as soon as half of its entries are
//!   taken. Should a burst have taken them all, more are registered, and the kernel is made to look at what it has queued
//!   (`server.rs`).
//! - Entries are memory of the longest message each, of which nothing is touched that is not used. The kernel takes the one that was
//!   given back last, so as many have memory as were in use at once.
//! - An answer is sent before the next request is handled: none waits for another's handler.
//! - The kernel does not say which ring has the request that an INTERRUPT names, and may say it before the ring's thread has seen
//!   that request: every ring is told, and remembers.
//!
//! Source: `linux:fs/fuse/dev_uring.c`, `linux:Documentation/filesystems/fuse/fuse-io-uring.rst`.

mod cpus;
mod ring;
mod server;
mod slot;

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::thread::CpuSet;

use crate::channel::Channel;

pub(crate) use cpus::{allowed, home, unbind};
pub(crate) use ring::RingReply;

use ring::{Barrier, Message, Ring};
use server::Server;

/// Why requests cannot come through io_uring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel does not know it.
    #[error("this kernel cannot send FUSE requests through io_uring: Linux 6.14 or later is needed")]
    Unknown,
    /// It is switched off.
    #[error("the kernel does not send FUSE requests through io_uring: as root, `echo Y > {PARAMETER}`")]
    Disabled,
    /// A ring cannot be made.
    #[error("a ring of io_uring cannot be made; see the sysctl kernel.io_uring_disabled")]
    Setup(#[source] io::Error),
    /// Something before FUSE does not let commands through.
    #[error("rings of io_uring cannot reach /dev/fuse, as by a rule of a security module")]
    Refused(#[source] Errno),
    /// A thread cannot be made.
    #[error("a thread for a ring of io_uring cannot be made")]
    Thread(#[source] io::Error),
    /// It is not known how many rings there are to be.
    #[error("reading how many processors this machine may have")]
    Processors(#[source] io::Error),
    /// The kernel did not offer it in the handshake.
    #[error("the kernel does not offer to send FUSE requests through io_uring")]
    NotOffered,
}

/// Looks whether the kernel would offer io_uring to a mount.
///
/// # Errors
///
/// [`RingError`] that says why not.
pub fn ring_check() -> Result<(), RingError> {
    match fs::read_to_string(PARAMETER) {
        Ok(value) if value.trim() == "Y" => Ok(()),
        Ok(_) => Err(RingError::Disabled),
        Err(_) => Err(RingError::Unknown),
    }
}

/// Whether requests had better come through io_uring, where it is offered: if there are several processors, and this process may run
/// on all of them, as its callers may. With one the one reader of `/dev/fuse` is where its callers are.
pub fn rings_suit() -> bool {
    let allowed = allowed();
    let is_allowed = |cpu| cpu < CpuSet::MAX_CPU && allowed.is_set(cpu);
    cpus::online().is_some_and(|online| online.len() > 1 && online.into_iter().all(is_allowed))
}

/// Looks whether the kernel lets rings of this process reach a connection whose INIT is not answered: later nobody
/// would be served if it did not.
pub(crate) fn probe(channel: &Channel) -> Result<(), RingError> {
    match server::probe(channel).map_err(RingError::Setup)? {
        // FUSE itself says so before INIT is answered (`fuse_uring_cmd` of linux:fs/fuse/dev_uring.c).
        Errno::AGAIN => Ok(()),
        errno => Err(RingError::Refused(errno)),
    }
}

/// All rings of a session, before they are served.
#[derive(Debug)]
pub(crate) struct Rings {
    pub servers: Vec<Server>,
    pub shared: Arc<SharedRings>,
}

/// What all threads know of the rings.
#[derive(Debug)]
pub(crate) struct SharedRings {
    pub rings: Vec<Arc<Ring>>,
    /// Rings that the kernel has entries of.
    registered: AtomicUsize,
    /// Rings that could not.
    failed: AtomicUsize,
    /// A regular file that the kernel was using a moment ago, 0 before there was any.
    file: AtomicU64,
}

impl Rings {
    /// Makes a ring for each processor; nothing is asked of the kernel's FUSE yet.
    pub fn new(channel: &Arc<Channel>, payload_len: usize) -> Result<Self, RingError> {
        let setup = |errno: Errno| RingError::Setup(errno.into());
        let count = cpus::possible_count().map_err(RingError::Processors)?;
        let rings = (0..count).map(|_| Ring::new(Arc::clone(channel), payload_len).map_err(setup));
        let rings = rings.collect::<Result<Vec<_>, _>>()?;
        let (registered, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let shared = Arc::new(SharedRings { rings, registered, failed, file: AtomicU64::new(0) });
        let server = |queue| Server::new(Arc::clone(&shared), queue).map_err(RingError::Setup);
        let servers = (0..shared.rings.len()).map(server).collect::<Result<_, _>>()?;
        Ok(Self { servers, shared })
    }
}

impl SharedRings {
    /// Whether requests come through the rings.
    pub fn is_active(&self) -> bool {
        self.failed.load(Ordering::Acquire) == 0
            && self.registered.load(Ordering::Acquire) == self.rings.len()
    }

    /// Whether requests will come through the rings, or do: until all are registered the kernel has them wait.
    pub fn is_coming(&self) -> bool {
        self.failed.load(Ordering::Acquire) == 0
    }

    pub fn on_registered(&self) {
        self.registered.fetch_add(1, Ordering::AcqRel);
    }

    pub fn on_failed(&self) {
        self.failed.fetch_add(1, Ordering::AcqRel);
    }

    /// A regular file that the kernel has, probably.
    pub fn file(&self) -> Option<u64> {
        Some(self.file.load(Ordering::Relaxed)).filter(|ino| *ino != 0)
    }

    pub fn set_file(&self, ino: u64) {
        if self.file.load(Ordering::Relaxed) != ino {
            self.file.store(ino, Ordering::Relaxed);
        }
    }

    /// Tells every ring of a signal.
    pub fn interrupt(&self, unique: u64) {
        for ring in &self.rings {
            ring.tell(Message::Interrupt(unique));
        }
    }

    /// Has every ring pass a mark; false if there are none any more.
    pub fn mark(&self, unique: u64) -> bool {
        let barrier = Barrier::new(unique, self.rings.len());
        // All end together, with the connection.
        self.rings.iter().all(|ring| ring.tell(Message::Mark(Arc::clone(&barrier))))
    }

    pub fn stop(&self) {
        for ring in &self.rings {
            ring.tell(Message::Stop);
        }
    }
}

/// Whether the kernel offers io_uring.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
