//! Ends of files as the kernel has them.
//!
//! The kernel does not always take the size that an answer tells. It drops it if a write is under way, or was answered
//! since it asked, or an invalidation came; and having taken it, it zeroes the last page behind it some time
//! later, even if that page was filled meanwhile from a file that has grown further (fuse:
//! `kernel_cache.rs`). While a file is open here, either would show. So an answer that tells of a later end than the
//! kernel surely has is held back until it has been brought there in a way that cannot fail.
//!
//! What this node's own cached writes move needs no such thing as long as nobody else may write: whoever saw one of them
//! return finds the kernel's end behind it, and while one is under way the kernel takes no size from an answer.

use meta::FileKind;
use types::{Ino, LockMode, Micros};

use crate::core::Core;
use crate::known::Known;
use crate::request::{Attr, Reply};

/// An end to bring the kernel to before an answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterEnd {
    /// The file.
    pub ino: Ino,
    /// What the kernel has at least. Pages from here on may show zeros where there are bytes now.
    pub from: u64,
    /// What the answer tells.
    pub to: u64,
    /// When the answer was made.
    pub since: Micros,
    /// How often the end had been told to be an earlier one by then.
    lowered: u32,
}

/// What is known of the kernel's end of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct End {
    /// It has this much at least.
    sure: u64,
    /// The furthest that cached writes of this node went, answered ones among them.
    written: u64,
    /// From when on `sure` and `written` were all there was, unless somebody else wrote.
    settled: Micros,
    /// How often the kernel was told of an earlier end.
    lowered: u32,
}

impl End {
    /// The kernel is told of an end, and may take it.
    fn tell(&mut self, end: u64) {
        self.lowered += u32::from(end < self.sure.max(self.written));
        self.sure = self.sure.min(end);
        self.written = self.written.min(end);
    }

    /// The file is opened or closed: no write is under way where nobody has it open for writing.
    pub(crate) fn settle(&mut self, is_closed: bool, has_no_writers: bool, now: Micros) {
        if has_no_writers {
            self.sure = self.sure.max(self.written);
        }
        if is_closed {
            self.settled = now;
        }
    }
}

impl Core {
    /// What is to be done before `reply` is given to the kernel, then told by [`end_reached`](Self::end_reached).
    pub fn later_end(&self, reply: &Reply) -> Option<LaterEnd> {
        match reply {
            Reply::Attr(attr, _) => self.later_end_of(attr),
            Reply::Entry(entry) | Reply::Created(entry, _) => self.later_end_of(&entry.attr),
            _ => None,
        }
    }

    pub(crate) fn later_end_of(&self, attr: &Attr) -> Option<LaterEnd> {
        let ino = attr.ino;
        let Known { end, .. } = self.known.get(&ino).filter(|known| known.is_open())?;
        if attr.kind != FileKind::File || attr.size <= end.sure {
            return None;
        }
        if attr.size <= end.written && self.alone_since(ino).is_some_and(|since| since <= end.settled) {
            return None;
        }
        Some(LaterEnd { ino, from: end.sure, to: attr.size, since: self.clock.now, lowered: end.lowered })
    }

    /// Since when nobody else may have changed the content.
    fn alone_since(&self, ino: Ino) -> Option<Micros> {
        let resource = self.content_resource(ino)?;
        self.tokens.granted_at(resource).filter(|_| self.tokens.usable(resource) == LockMode::Ex)
    }

    /// The kernel has this end now, or a later one.
    pub fn end_reached(&mut self, end: LaterEnd) {
        if let Some(known) = self.known.get_mut(&end.ino).filter(|known| known.end.lowered == end.lowered) {
            known.end.sure = known.end.sure.max(end.to);
            known.end.settled = known.end.settled.max(end.since);
        }
    }

    /// A write that goes through the kernel's pages moves its end there before it returns.
    pub fn end_written(&mut self, ino: Ino, end: u64) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.end.written = known.end.written.max(end);
        }
    }

    /// The kernel is told of attributes, and may take its end from them.
    pub(crate) fn note_end(&mut self, attr: &Attr) {
        if let Some(known) = self.known.get_mut(&attr.ino) {
            known.end.tell(attr.size);
        }
    }

    /// A read was answered that met the end of the file: the kernel may take an earlier end from it.
    pub(crate) fn note_read_end(&mut self, ino: Ino, end: u64) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.end.tell(end);
        }
    }

    /// The kernel is told of an inode, perhaps for the first time: then it has the end that it is told.
    pub(crate) fn note_entry_end(&mut self, attr: &Attr) {
        let known = self.known.note(attr.ino);
        if known.lookups == 0 && !known.is_open() {
            known.end.sure = attr.size;
        }
        self.note_end(attr);
    }
}
