//! Messages to the kernel that answer nothing: invalidations.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{
    DeleteOut, EXPIRE_ONLY, InvalEntryOut, InvalInodeOut, MINOR_EXPIRE_ONLY, MINOR_INC_EPOCH, MINOR_PRUNE,
    MINOR_RESEND, PruneOut, RetrieveOut, StoreOut, notify_code,
};
use crate::channel::Channel;
use crate::counters::NotificationKind;

/// Tells the kernel what it must no longer believe. Cheap to clone, usable from any thread.
///
/// Each call is one write on the calling thread and returns when the kernel has done it. **Some
/// calls wait for pending requests**; each method says for which. Call those only from a thread
/// on which no answer depends, with no lock held: a handler that waits for such a call deadlocks
/// with it, SIGKILL does not help, and only aborting the connection does.
#[derive(Clone, Debug)]
pub struct Notifier {
    channel: Arc<Channel>,
    minor: u32,
}

/// What a notification found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notified {
    /// Done.
    Done,
    /// The kernel knows no such inode or name (ENOENT), or the mount is gone: nothing to do.
    Absent,
}

/// Why a notification had no effect.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// The kernel is too old; it would misunderstand the message, so nothing was sent.
    #[error("{} needs FUSE protocol 7.{needed}, the kernel speaks 7.{minor}", kind.name())]
    Unsupported {
        /// What was asked for.
        kind: NotificationKind,
        /// First minor version that has it.
        needed: u32,
        /// Version in use.
        minor: u32,
    },
    /// The mount is gone, and with it everything cached.
    #[error("{} found the connection closed", kind.name())]
    Disconnected {
        /// What was asked for.
        kind: NotificationKind,
    },
    /// The kernel refused.
    #[error("{} refused", kind.name())]
    Refused {
        /// What was asked for.
        kind: NotificationKind,
        /// Why.
        #[source]
        errno: Errno,
    },
}

impl Notifier {
    pub(crate) fn new(channel: Arc<Channel>, minor: u32) -> Self {
        Self { channel, minor }
    }

    /// Sends through a duplicate of a session's device, also from another process. `minor` is what the session
    /// negotiated.
    ///
    /// The connection lives as long as any duplicate: who keeps one must see to it that it is aborted.
    /// Notifications go on working after that, while the file system is mounted.
    pub fn of_device(device: OwnedFd, minor: u32) -> Self {
        Self::new(Arc::new(Channel::new(device)), minor)
    }

    /// Drops the attributes of `ino`, its ACLs, and cached pages (or listing) in a range.
    ///
    /// - `offset` < 0: attributes only. Never blocks. A cached listing goes only if the next GETATTR
    ///   shows another mtime, and streams that are open keep it even then.
    /// - `offset` 0, `len` 0: everything, for open streams too. A `len` <= 0 means to the end.
    ///
    /// With pages it waits for unanswered READs in the range, and for unanswered cached WRITEs that
    /// fill part of a page that was not cached; not for other WRITEs. A page read again while a
    /// WRITE to it is unanswered then stays cached with the old content: invalidate the range of
    /// such a WRITE once more after answering it.
    pub fn inval_inode(&self, ino: u64, offset: i64, len: i64) -> Result<Notified, NotifyError> {
        let out = InvalInodeOut { ino, off: offset, len };
        self.send(NotificationKind::InvalInode, notify_code::INVAL_INODE, &[out.as_bytes()])
    }

    /// Drops a name, positive or negative, and unmounts what is mounted below it.
    ///
    /// **Waits for every pending operation that holds the lock of directory `parent`.** If the
    /// name was not cached the answer is [`Notified::Absent`] and the cached listing stays.
    pub fn inval_entry(&self, parent: u64, name: &OsStr) -> Result<Notified, NotifyError> {
        self.send_entry(NotificationKind::InvalEntry, parent, name, 0)
    }

    /// Lets a name run out: its next use costs one LOOKUP; mounts below and open files stay.
    ///
    /// Also drops the attributes of `parent`.
    ///
    /// **Waits for every pending operation that holds the lock of directory `parent`.**
    pub fn expire_entry(&self, parent: u64, name: &OsStr) -> Result<Notified, NotifyError> {
        self.check_minor(NotificationKind::ExpireEntry, MINOR_EXPIRE_ONLY)?;
        self.send_entry(NotificationKind::ExpireEntry, parent, name, EXPIRE_ONLY)
    }

    /// Deletes a name that led to `child`, as rmdir or unlink would.
    ///
    /// If it leads elsewhere it is dropped as by [`inval_entry`](Self::inval_entry), and the
    /// answer is [`Notified::Absent`].
    ///
    /// **Waits for every pending operation that holds the lock of directory `parent`.** Refused
    /// with EBUSY for a mount point and ENOTEMPTY for a directory with cached entries.
    pub fn delete(&self, parent: u64, child: u64, name: &OsStr) -> Result<Notified, NotifyError> {
        let name = name.as_bytes();
        let out = DeleteOut { parent, child, namelen: name_len(NotificationKind::Delete, name)?, padding: 0 };
        self.send(NotificationKind::Delete, notify_code::DELETE, &[out.as_bytes(), name, b"\0"])
    }

    /// Puts data into the page cache of `ino`. May raise its size, never lowers it.
    ///
    /// Waits for the same requests as [`inval_inode`](Self::inval_inode) with pages.
    pub fn store(&self, ino: u64, offset: u64, data: &[u8]) -> Result<Notified, NotifyError> {
        let kind = NotificationKind::Store;
        let size =
            u32::try_from(data.len()).map_err(|_| NotifyError::Refused { kind, errno: Errno::MSGSIZE })?;
        let out = StoreOut { nodeid: ino, offset, size, padding: 0 };
        self.send(kind, notify_code::STORE, &[out.as_bytes(), data])
    }

    /// Raises the size that the kernel has of the file `ino` to `size`, if it has less. Pages stay as they are.
    ///
    /// To be called before an answer tells of more bytes than the kernel knows. Such an answer alone is not
    /// enough: the kernel drops it if the attributes changed on its side since it asked (a WRITE was answered, an
    /// invalidation came), and reads up to the old end. And if it takes it, it zeroes the page behind the new end afterwards
    /// (`fuse_change_attributes` in linux:fs/fuse/inode.c), even if that page was read meanwhile and has newer bytes there. After this
    /// call it has nothing to change, and drops those answers to earlier requests that would have.
    ///
    /// It is a store whose bytes cannot be read: the kernel raises the size before it fails to copy them
    /// (`fuse_notify_store` in linux:fs/fuse/dev.c).
    ///
    /// Waits for an unanswered READ of the last page, and for an unanswered WRITE that fills part of it.
    pub fn raise_size(&self, ino: u64, size: u64) -> Result<Notified, NotifyError> {
        let Some(last) = size.checked_sub(1) else { return Ok(Notified::Done) };
        let kind = NotificationKind::RaiseSize;
        let out = StoreOut { nodeid: ino, offset: last, size: 1, padding: 0 };
        self.channel.counters.on_notified(kind);
        match self.channel.send_unreadable(notify_code::STORE, out.as_bytes(), 1) {
            Err(Errno::FAULT) => Ok(Notified::Done),
            result => self.outcome(kind, result),
        }
    }

    /// Has the kernel queue a message behind every request that it has queued by now. The session reads it in
    /// its turn and calls [`Handler::marked`](crate::Handler::marked) with `unique`. Never blocks.
    ///
    /// So everything is known of system calls that have returned, RELEASE included, whose caller does
    /// not wait for it. Only where reads or writes of a closed file are still unanswered does its RELEASE come
    /// later. `ino` is any regular file that the kernel knows: the message is the answer to a retrieve notification
    /// for none of its pages (`fuse_retrieve` in linux:fs/fuse/dev.c).
    ///
    /// Through io_uring there is a queue for each processor, and each is drained of what it had: a file
    /// that the kernel does not know is not noticed.
    pub fn mark(&self, unique: u64, ino: u64) -> Result<Notified, NotifyError> {
        if let Some(rings) = self.channel.rings() {
            let kind = NotificationKind::Mark;
            self.channel.counters.on_notified(kind);
            rings.set_file(ino);
            return rings.mark(unique).then_some(Notified::Done).ok_or(NotifyError::Disconnected { kind });
        }
        let offset = 1 << 40;
        let out = RetrieveOut { notify_unique: unique, nodeid: ino, offset, size: 0, padding: 0 };
        self.send(NotificationKind::Mark, notify_code::RETRIEVE, &[out.as_bytes()])
    }

    /// Makes every name of the mount run out at once. Never blocks.
    ///
    /// Replies in flight are covered. What is mounted below this mount is unmounted when its path
    /// is next walked.
    pub fn inc_epoch(&self) -> Result<Notified, NotifyError> {
        self.check_minor(NotificationKind::IncEpoch, MINOR_INC_EPOCH)?;
        self.send(NotificationKind::IncEpoch, notify_code::INC_EPOCH, &[])
    }

    /// Drops inodes that nothing uses, with their names. Never blocks.
    pub fn prune(&self, inos: &[u64]) -> Result<Notified, NotifyError> {
        self.check_minor(NotificationKind::Prune, MINOR_PRUNE)?;
        for batch in inos.chunks(PRUNE_BATCH) {
            let out = PruneOut { count: batch.len() as u32, padding: 0, spare: 0 };
            self.send(NotificationKind::Prune, notify_code::PRUNE, &[out.as_bytes(), batch.as_bytes()])?;
        }
        Ok(Notified::Done)
    }

    /// Asks the kernel to queue again every request that was read and not answered.
    ///
    /// Those that came through io_uring are not among them: their entries go with the process.
    ///
    /// For a process that took over the device from one that died. Answers to the old numbers
    /// are then lost.
    pub fn resend(&self) -> Result<Notified, NotifyError> {
        self.check_minor(NotificationKind::Resend, MINOR_RESEND)?;
        self.send(NotificationKind::Resend, notify_code::RESEND, &[])
    }

    fn send_entry(
        &self,
        kind: NotificationKind,
        parent: u64,
        name: &OsStr,
        flags: u32,
    ) -> Result<Notified, NotifyError> {
        let name = name.as_bytes();
        let out = InvalEntryOut { parent, namelen: name_len(kind, name)?, flags };
        self.send(kind, notify_code::INVAL_ENTRY, &[out.as_bytes(), name, b"\0"])
    }

    fn check_minor(&self, kind: NotificationKind, needed: u32) -> Result<(), NotifyError> {
        if self.minor >= needed {
            return Ok(());
        }
        Err(NotifyError::Unsupported { kind, needed, minor: self.minor })
    }

    fn send(&self, kind: NotificationKind, code: i32, parts: &[&[u8]]) -> Result<Notified, NotifyError> {
        self.channel.counters.on_notified(kind);
        self.outcome(kind, self.channel.send(0, code, parts))
    }

    fn outcome(&self, kind: NotificationKind, result: Result<(), Errno>) -> Result<Notified, NotifyError> {
        match result {
            Ok(()) => Ok(Notified::Done),
            Err(Errno::NOENT) => {
                self.channel.counters.on_notified_absent();
                Ok(Notified::Absent)
            }
            // EPERM: the device was never mounted or its mount is half gone.
            Err(Errno::NODEV | Errno::CONNABORTED | Errno::PERM) => Err(NotifyError::Disconnected { kind }),
            Err(errno) => Err(NotifyError::Refused { kind, errno }),
        }
    }
}

fn name_len(kind: NotificationKind, name: &[u8]) -> Result<u32, NotifyError> {
    match u32::try_from(name.len()) {
        Ok(len) if len > 0 && len <= NAME_LEN_MAX => Ok(len),
        _ => Err(NotifyError::Refused { kind, errno: Errno::NAMETOOLONG }),
    }
}

/// FUSE_NAME_MAX of old kernels, NAME_MAX of most file systems times four.
const NAME_LEN_MAX: u32 = 1024;

/// Inodes per message: the kernel takes them in groups of this size.
const PRUNE_BATCH: usize = 512;
