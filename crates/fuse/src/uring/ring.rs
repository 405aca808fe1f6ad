//! What other threads see of a ring: where they leave answers and questions for its thread.
//!
//! A ring has one submitter, the thread that serves it. An answer given on another thread goes through the ring's inbox, and
//! wakes it; one given on the ring's own thread goes the same way, and is found before the thread waits again.

use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::abi::OutHeader;
use crate::channel::Channel;
use crate::uring::slot::Slot;

thread_local! {
    /// The ring that this thread serves.
    static SERVED: Cell<*const Ring> = const { Cell::new(std::ptr::null()) };
}

/// One ring, as seen by all threads.
#[derive(Debug)]
pub(crate) struct Ring {
    pub channel: Arc<Channel>,
    /// Bytes of the longest message behind its arguments.
    pub payload_len: usize,
    inbox: Mutex<Inbox>,
    /// The thread has been woken, or will look anyway.
    is_told: AtomicBool,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Inbox {
    messages: Vec<Message>,
    is_closed: bool,
}

/// What the thread of a ring is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// An answer.
    Commit(Commit),
    /// The caller of a request got a signal. Told to every ring: nobody knows which has it.
    Interrupt(u64),
    /// See [`Barrier`].
    Mark(Arc<Barrier>),
    /// There is nothing more to serve.
    Stop,
}

/// A slot with its answer, to be given back to the kernel.
#[derive(Debug)]
pub(crate) struct Commit {
    pub entry: u32,
    pub slot: Slot,
    /// Payload that could not be written while the handler had the request, which lies where the answer goes.
    pub staged: Option<Box<[u8]>>,
}

/// Counts the rings that have handed everything to the handler that was queued before a mark.
#[derive(Debug)]
pub(crate) struct Barrier {
    pub unique: u64,
    left: AtomicUsize,
}

impl Barrier {
    pub fn new(unique: u64, rings: usize) -> Arc<Self> {
        Arc::new(Self { unique, left: AtomicUsize::new(rings) })
    }

    /// One ring is there; returns whether it is the last.
    pub fn pass(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Ring {
    pub fn new(channel: Arc<Channel>, payload_len: usize) -> Result<Arc<Self>, Errno> {
        let (wake, is_told) = (eventfd(0, EventfdFlags::CLOEXEC)?, AtomicBool::new(false));
        Ok(Arc::new(Self { channel, payload_len, inbox: Mutex::default(), is_told, wake }))
    }

    /// From here on this thread serves the ring.
    pub fn serve_here(&self) {
        SERVED.set(std::ptr::from_ref(self));
    }

    fn is_here(&self) -> bool {
        std::ptr::eq(SERVED.get(), self)
    }

    /// Tells the ring's thread; false if it is not there any more.
    pub fn tell(&self, message: Message) -> bool {
        {
            let mut inbox = self.inbox.lock();
            if inbox.is_closed {
                return false;
            }
            inbox.messages.push(message);
        }
        if !self.is_here() && !self.is_told.swap(true, Ordering::AcqRel) {
            // Cannot fail: it counts to 2^64.
            _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
        true
    }

    /// What [`wait_fd`](Self::wait_fd) said has been heard; to be followed by [`take`](Self::take).
    pub fn on_woken(&self) {
        self.is_told.store(false, Ordering::Release);
    }

    /// Moves what was told into `into`, which is empty.
    pub fn take(&self, into: &mut Vec<Message>) {
        std::mem::swap(&mut self.inbox.lock().messages, into);
    }

    /// Takes nothing more.
    pub fn close(&self) {
        let mut inbox = self.inbox.lock();
        inbox.is_closed = true;
        let left = std::mem::take(&mut inbox.messages);
        drop(inbox);
        drop(left);
    }

    /// To be read by the ring: 8 bytes as soon as anything was told.
    pub fn wait_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

/// The way back of one request that came through a ring.
#[derive(Debug)]
pub(crate) struct RingReply {
    pub ring: Arc<Ring>,
    entry: u32,
    /// Until answered.
    slot: Option<Slot>,
    payload: Payload,
}

/// Where the payload of an answer may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Into the slot.
    Free,
    /// Elsewhere: the handler reads that of the request.
    InUse,
}

impl RingReply {
    pub fn new(ring: Arc<Ring>, entry: u32, slot: Slot, payload: Payload) -> Self {
        Self { ring, entry, slot: Some(slot), payload }
    }

    /// Answers. Fails with EMSGSIZE, and may be tried again, if that is longer than any answer may be.
    pub fn send(&mut self, unique: u64, error: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        self.send_parts(unique, error, parts.iter().copied())
    }

    /// As [`send`](Self::send), a success.
    pub fn send_vectored(&mut self, unique: u64, pieces: &[IoSlice<'_>]) -> Result<(), Errno> {
        self.send_parts(unique, 0, pieces.iter().map(|piece| &**piece))
    }

    fn send_parts<'a>(
        &mut self,
        unique: u64,
        error: i32,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), Errno> {
        let Some(slot) = &mut self.slot else { return Err(Errno::NOENT) };
        let len = parts.clone().map(<[u8]>::len).sum();
        if len > slot.payload_len() {
            return Err(Errno::MSGSIZE);
        }
        let staged = match self.payload {
            Payload::Free => {
                let mut offset = 0;
                for part in parts {
                    slot.put(offset, part);
                    offset += part.len();
                }
                None
            }
            Payload::InUse if len == 0 => None,
            Payload::InUse => Some(parts.flatten().copied().collect()),
        };
        slot.answer(unique, error, len);
        let Some(slot) = self.slot.take() else { return Err(Errno::NOENT) };
        match self.ring.tell(Message::Commit(Commit { entry: self.entry, slot, staged })) {
            true => {
                self.ring.channel.counters.on_sent(size_of::<OutHeader>() + len);
                Ok(())
            }
            false => Err(Errno::NODEV),
        }
    }
}
