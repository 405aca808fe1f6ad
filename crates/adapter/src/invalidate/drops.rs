//! Pages of a part of a file are taken back, and the core is told of it: a write of which the kernel has filled some may be on its way
//! ([`vfs::Core::begin_dropping`]).

use std::sync::Arc;
use std::time::Duration;

use fuse::{Notified, NotifyError};
use obs::InvalidationKind;
use parking_lot::Mutex;
use types::Ino;
use vfs::PageSpan;

use super::{Notify, Shared};

/// Pages of a write that go before its answer.
#[derive(Clone, Copy, Debug)]
pub struct First<'a> {
    /// It does not keep these locked.
    pub surely: &'a [PageSpan],
    /// It may.
    pub perhaps: Option<PageSpan>,
}

/// Whom to tell that pages of a part of a file are taken back.
pub struct Drops {
    /// They are about to be: [`vfs::Core::begin_dropping`].
    pub begin: Box<dyn Fn(Ino, PageSpan) -> u64 + Send + Sync>,
    /// They have been: [`vfs::Core::end_dropping`].
    pub end: Box<dyn Fn(Ino, PageSpan, u64) -> Option<u64> + Send + Sync>,
    /// They have been, for a write that is yet to be answered: [`vfs::Core::dropped_for_write`].
    pub for_write: Box<dyn Fn(Ino, PageSpan) + Send + Sync>,
}

/// Where a call is that takes pages back before an answer.
enum Soon {
    Begun,
    /// The answer did not wait for it any longer; what the core is told at its end.
    Late(u64),
    Done,
}

/// How long pages may keep the answer to a write waiting: what they wait for may wait in turn for the lock that it holds, for some
/// milliseconds ([`catch_up`](crate::catch_up)). On a busy machine a thread alone may wait as long as that to be let run.
pub(super) const PAGES_PATIENCE: Duration = Duration::from_secs(1);

/// The same for pages that the write may have locked itself. Taking back what nobody has locked takes some microseconds.
pub(super) const PERHAPS_PATIENCE: Duration = Duration::from_millis(2);

impl Shared {
    /// Takes pages back before a write is answered, or after it where somebody has them locked for longer.
    pub(super) fn drop_soon(self: &Arc<Self>, ino: Ino, span: PageSpan, patience: Duration) {
        let (this, stage) = (Arc::clone(self), Arc::new(Mutex::new(Soon::Begun)));
        let of_call = Arc::clone(&stage);
        let is_done = self.apart(patience, InvalidationKind::InodePages, move |notify| {
            let result = inval_span(notify, ino, span);
            let was = std::mem::replace(&mut *of_call.lock(), Soon::Done);
            match was {
                // The kernel fills no pages of the file before the write is answered.
                Soon::Begun | Soon::Done => (this.hooks.drops.for_write)(ino, span),
                Soon::Late(number) => {
                    if let Some(number) = (this.hooks.drops.end)(ino, span, number) {
                        return this.inval_until_gone(ino, span, number);
                    }
                }
            }
            result
        });
        let mut stage = stage.lock();
        if !is_done && matches!(*stage, Soon::Begun) {
            log::debug!("{span:?} of ino {ino} is locked; the write is answered after {patience:?}");
            *stage = Soon::Late((self.hooks.drops.begin)(ino, span));
        }
    }

    /// Takes back pages of which the kernel may have filled some for a write that is on its way.
    pub(super) fn inval_pages(&self, ino: Ino, span: PageSpan) -> Result<Notified, NotifyError> {
        let number = (self.hooks.drops.begin)(ino, span);
        self.inval_until_gone(ino, span, number)
    }

    fn inval_until_gone(&self, ino: Ino, span: PageSpan, number: u64) -> Result<Notified, NotifyError> {
        let result = inval_span(&*self.notify, ino, span);
        let mut again = (self.hooks.drops.end)(ino, span, number);
        while let Some(number) = again {
            let result = inval_span(&*self.notify, ino, span);
            if result.is_err() {
                log::debug!("{span:?} of ino {ino} is not taken back again");
            }
            again = (self.hooks.drops.end)(ino, span, number);
        }
        result
    }
}

fn inval_span(notify: &dyn Notify, ino: Ino, span: PageSpan) -> Result<Notified, NotifyError> {
    // Offsets of files are below 2^63.
    notify.inval_inode(ino.0, span.start as i64, span.end.saturating_sub(span.start) as i64)
}
