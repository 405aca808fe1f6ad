//! Sizes and times that may be late: what `lazysize` and `nomtime` change for files that another node writes.
//!
//! Invariants:
//!
//! - What was learnt earlier answers [`crate::Request::Stat`] and lookups and nothing else, and never here where the file is open
//!   for writing. What the kernel goes by itself, reads, seeks and appends are answered as ever.
//! - It is of a moment not longer ago than [`crate::Config::late_max`].
//! - It goes when the content is granted here, when the file is opened or locked here, and when this node has changed it: nobody
//!   is shown less than this node was told under a right, wrote or set.
//! - The names' half is never late: it is that under PR.
//! - The kernel has it for one use, so that nothing is to be taken back when the options are switched off.

use meta::{Body, Content, Inode};
use types::{Ino, LockMode, Micros, ResourceId};

use crate::config::Lazy;
use crate::core::Core;
use crate::request::Attr;

/// What another node's content was like.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// As far as stat shows it.
    content: Content,
    /// It was so then, or later.
    since: Micros,
}

impl Core {
    /// Which sizes and times may be late.
    pub fn lazy(&self) -> Lazy {
        self.config.lazy
    }

    /// Sets which sizes and times may be late: from the next request on.
    pub fn set_lazy(&mut self, lazy: Lazy) {
        self.config.lazy = lazy;
        if !lazy.size {
            self.cache.learnt.clear();
        }
    }

    /// Takes in what the master said of a file that another node writes, to a `request` of `since`.
    pub(crate) fn learn(&mut self, ino: Ino, request: u64, since: Micros, content: &Content) {
        let is_late = self.known.get(&ino).is_some_and(|known| known.uses().exact_from > request);
        if !self.config.lazy.size || is_late || self.tokens.held(ResourceId::file(ino)) != LockMode::Nl {
            return;
        }
        let content = Content { body: as_shown(content.body.stored_bytes()), ..content.clone() };
        self.cache.learnt.insert(ino, Learnt { content, since });
    }

    /// Whatever was learnt of a file until now, what is asked for included, is not to be shown again.
    pub(crate) fn unlearn(&mut self, ino: Ino) {
        let number = self.number();
        if let Some(known) = self.known.get_mut(&ino) {
            known.uses_mut().exact_from = number;
        }
        self.cache.learnt.remove(&ino);
    }

    /// Attributes with size and times that were learnt a moment ago, where these may be late.
    pub(crate) fn late_attr(&mut self, ino: Ino) -> Option<Attr> {
        let learnt = self.cache.learnt.get(&ino)?;
        let is_young = self.clock.now.since(learnt.since) < self.config.late_max;
        let has_writers = self.known.get(&ino).is_some_and(|known| known.is_written());
        if !is_young || has_writers {
            return None;
        }
        let attr = self.cache.owns.get(&ino)?.attr.clone()?;
        let inode = Inode { attr, content: learnt.content.clone() };
        if !self.tokens.try_use(self.clock.now, ResourceId::attr(ino), LockMode::Pr) {
            return None;
        }
        self.metrics.sizes_late.add(1);
        Some(self.visible(ino, &inode))
    }
}

/// The content of a file of which so much is stored, as far as stat shows it.
pub(crate) fn as_shown(stored_bytes: u64) -> Body {
    if stored_bytes == 0 { Body::Empty {} } else { Body::Paged { mapped_bytes: stored_bytes } }
}
