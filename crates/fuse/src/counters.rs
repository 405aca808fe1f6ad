//! What went through a session, as plain atomics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{OPCODE_NUMBER_END, Opcode};

/// Counts since the session started. Written on every request with relaxed atomics.
#[derive(Debug)]
pub struct Counters {
    by_opcode: [AtomicU64; OPCODE_NUMBER_END],
    by_notification: [AtomicU64; NotificationKind::ALL.len()],
    unknown: AtomicU64,
    by_ring: AtomicU64,
    replies: AtomicU64,
    replies_error: AtomicU64,
    replies_lost: AtomicU64,
    replies_refused: AtomicU64,
    dropped: AtomicU64,
    malformed: AtomicU64,
    panics: AtomicU64,
    interrupts_stale: AtomicU64,
    notifications_absent: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// One reading of [`Counters`]. The fields are read one after another, not at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSnapshot {
    by_opcode: [u64; OPCODE_NUMBER_END],
    by_notification: [u64; NotificationKind::ALL.len()],
    /// Requests with an opcode this crate does not know.
    pub unknown: u64,
    /// Requests of any kind that came through io_uring.
    pub by_ring: u64,
    /// Answers sent, errors included.
    pub replies: u64,
    /// Answers that were an errno.
    pub replies_error: u64,
    /// Answers nobody waited for any more: the request was aborted or the mount gone.
    pub replies_lost: u64,
    /// Answers the kernel refused; its caller got EIO, or waits. A defect of the handler.
    pub replies_refused: u64,
    /// Requests whose [`Reply`](crate::Reply) was dropped unanswered. A defect of the handler.
    pub dropped: u64,
    /// Messages that could not be decoded.
    pub malformed: u64,
    /// Panics caught in the handler.
    pub panics: u64,
    /// INTERRUPTs for requests that were answered already.
    pub interrupts_stale: u64,
    /// Notifications about something the kernel had not cached.
    pub notifications_absent: u64,
    /// Bytes read from the device.
    pub bytes_in: u64,
    /// Bytes written to the device.
    pub bytes_out: u64,
}

/// Kinds of notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
#[expect(missing_docs, reason = "each variant is the method of `Notifier` of that name")]
pub enum NotificationKind {
    InvalInode,
    InvalEntry,
    ExpireEntry,
    Delete,
    Store,
    RaiseSize,
    Mark,
    IncEpoch,
    Prune,
    Resend,
}

impl NotificationKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::InvalInode,
        Self::InvalEntry,
        Self::ExpireEntry,
        Self::Delete,
        Self::Store,
        Self::RaiseSize,
        Self::Mark,
        Self::IncEpoch,
        Self::Prune,
        Self::Resend,
    ];

    /// Returns the lower-case name used in logs and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalInode => "inval_inode",
            Self::InvalEntry => "inval_entry",
            Self::ExpireEntry => "expire_entry",
            Self::Delete => "delete",
            Self::Store => "store",
            Self::RaiseSize => "raise_size",
            Self::Mark => "mark",
            Self::IncEpoch => "inc_epoch",
            Self::Prune => "prune",
            Self::Resend => "resend",
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            by_opcode: [const { AtomicU64::new(0) }; OPCODE_NUMBER_END],
            by_notification: [const { AtomicU64::new(0) }; NotificationKind::ALL.len()],
            unknown: AtomicU64::new(0),
            by_ring: AtomicU64::new(0),
            replies: AtomicU64::new(0),
            replies_error: AtomicU64::new(0),
            replies_lost: AtomicU64::new(0),
            replies_refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            interrupts_stale: AtomicU64::new(0),
            notifications_absent: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
        }
    }
}

impl Counters {
    /// Reads all counters.
    pub fn snapshot(&self) -> CounterSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CounterSnapshot {
            by_opcode: self.by_opcode.each_ref().map(read),
            by_notification: self.by_notification.each_ref().map(read),
            unknown: read(&self.unknown),
            by_ring: read(&self.by_ring),
            replies: read(&self.replies),
            replies_error: read(&self.replies_error),
            replies_lost: read(&self.replies_lost),
            replies_refused: read(&self.replies_refused),
            dropped: read(&self.dropped),
            malformed: read(&self.malformed),
            panics: read(&self.panics),
            interrupts_stale: read(&self.interrupts_stale),
            notifications_absent: read(&self.notifications_absent),
            bytes_in: read(&self.bytes_in),
            bytes_out: read(&self.bytes_out),
        }
    }

    pub(crate) fn on_received(&self, opcode: Option<Opcode>, len: usize) {
        add(&self.bytes_in, len as u64);
        let counter = opcode.and_then(|opcode| self.by_opcode.get(opcode.number() as usize));
        add(counter.unwrap_or(&self.unknown), 1);
    }

    pub(crate) fn on_received_by_ring(&self, opcode: Option<Opcode>, len: usize) {
        add(&self.by_ring, 1);
        self.on_received(opcode, len);
    }

    pub(crate) fn on_sent(&self, len: usize) {
        add(&self.bytes_out, len as u64);
    }

    pub(crate) fn on_replied(&self) {
        add(&self.replies, 1);
    }

    pub(crate) fn on_replied_error(&self) {
        add(&self.replies, 1);
        add(&self.replies_error, 1);
    }

    pub(crate) fn on_reply_lost(&self) {
        add(&self.replies_lost, 1);
    }

    pub(crate) fn on_reply_refused(&self) {
        add(&self.replies_refused, 1);
    }

    pub(crate) fn on_dropped(&self) {
        add(&self.dropped, 1);
    }

    pub(crate) fn on_malformed(&self) {
        add(&self.malformed, 1);
    }

    pub(crate) fn on_panic(&self) {
        add(&self.panics, 1);
    }

    pub(crate) fn on_interrupt_stale(&self) {
        add(&self.interrupts_stale, 1);
    }

    pub(crate) fn on_notified(&self, kind: NotificationKind) {
        add(&self.by_notification[kind as usize], 1);
    }

    pub(crate) fn on_notified_absent(&self) {
        add(&self.notifications_absent, 1);
    }
}

impl CounterSnapshot {
    /// Returns how many requests of this kind were read.
    pub fn requests(&self, opcode: Opcode) -> u64 {
        self.by_opcode.get(opcode.number() as usize).copied().unwrap_or(0)
    }

    /// Returns how many requests were read, of any kind.
    pub fn requests_total(&self) -> u64 {
        self.by_opcode.iter().sum::<u64>() + self.unknown
    }

    /// Returns how many notifications of this kind were tried.
    pub fn notifications(&self, kind: NotificationKind) -> u64 {
        self.by_notification[kind as usize]
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
