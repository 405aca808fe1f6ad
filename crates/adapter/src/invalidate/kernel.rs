//! The kernel's side of an invalidation, and a stand-in's for tests.

use std::ffi::OsStr;

use fuse::{Notified, Notifier, NotifyError, Session};

/// Sends notifications. Each method is the one of [`fuse::Notifier`] of that name, blocking included.
#[expect(missing_docs, reason = "documented there")]
pub trait Notify: Send + Sync {
    fn expire_entry(&self, parent: u64, name: &OsStr) -> Result<Notified, NotifyError>;
    fn inval_entry(&self, parent: u64, name: &OsStr) -> Result<Notified, NotifyError>;
    fn inval_inode(&self, ino: u64, offset: i64, len: i64) -> Result<Notified, NotifyError>;
    fn raise_size(&self, ino: u64, size: u64) -> Result<Notified, NotifyError>;
    fn inc_epoch(&self) -> Result<Notified, NotifyError>;
    fn mark(&self, unique: u64, ino: u64) -> Result<Notified, NotifyError>;
    /// Whether `expire_entry` works; else `inval_entry` is used.
    fn has_expire_only(&self) -> bool;
    /// Whether `inc_epoch` works; else names are waited for.
    fn has_inc_epoch(&self) -> bool;
}

/// The kernel behind a session.
#[derive(Clone, Debug)]
pub struct KernelCache {
    notifier: Notifier,
    has_expire_only: bool,
    has_inc_epoch: bool,
}

impl KernelCache {
    /// Speaks to the kernel that `session` shook hands with.
    pub fn new(session: &Session) -> Self {
        let negotiated = session.negotiated();
        Self {
            notifier: session.notifier(),
            has_expire_only: negotiated.has_expire_only(),
            has_inc_epoch: negotiated.has_inc_epoch(),
        }
    }
}

impl Notify for KernelCache {
    fn expire_entry(&self, parent: u64, name: &OsStr) -> Result<Notified, NotifyError> {
        self.notifier.expire_entry(parent, name)
    }

    fn inval_entry(&self, parent: u64, name: &OsStr) -> Result<Notified, NotifyError> {
        self.notifier.inval_entry(parent, name)
    }

    fn inval_inode(&self, ino: u64, offset: i64, len: i64) -> Result<Notified, NotifyError> {
        self.notifier.inval_inode(ino, offset, len)
    }

    fn raise_size(&self, ino: u64, size: u64) -> Result<Notified, NotifyError> {
        self.notifier.raise_size(ino, size)
    }

    fn inc_epoch(&self) -> Result<Notified, NotifyError> {
        self.notifier.inc_epoch()
    }

    fn mark(&self, unique: u64, ino: u64) -> Result<Notified, NotifyError> {
        self.notifier.mark(unique, ino)
    }

    fn has_expire_only(&self) -> bool {
        self.has_expire_only
    }

    fn has_inc_epoch(&self) -> bool {
        self.has_inc_epoch
    }
}
