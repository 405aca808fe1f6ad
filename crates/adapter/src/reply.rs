//! What the core answers, in the form that the kernel waits for.

use std::time::Duration;

use fuse::{Delivery, DirBuffer, Errno};
use meta::FsError;
use types::{Ino, NAME_LEN_MAX};
use vfs::{DirSink, Reply, StatFs};
use wire::{BYTE_MAX, ByteLock};

use crate::convert::{BLOCK_LEN, attr_of, entry_of, opened_of, timestamp_of, ttl_of};
use crate::dir::DirPacker;
use crate::errno::{errno_of, xattr_errno_of};
use crate::refused::MayCut;

/// What about the answer the request alone knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing: the reply says all.
    Plain,
    /// LOOKUP: that there is no such name is an answer too.
    Lookup,
    /// STATX: attributes with the time of birth.
    Statx,
    /// GETXATTR, LISTXATTR: the room for the answer; 0 asks for its size.
    Sized {
        /// In bytes.
        size: u32,
    },
    /// GETXATTR that asks for the length of the file's capability.
    CapabilityLen {
        /// The file.
        ino: Ino,
    },
    /// REMOVEXATTR of the file's capability.
    RemoveCapability {
        /// The file.
        ino: Ino,
    },
    /// SETXATTR: some errors have another number.
    SetXattr,
    /// CREATE.
    ///
    /// The kernel sends it when it knows of no such name, and takes the answer for a file just made: it does
    /// not check the caller's permissions on it, nor truncate it. If another node was first, that would open
    /// anybody's file to the caller. ESTALE instead makes the kernel walk the path again with a fresh LOOKUP
    /// (`do_filp_open` in linux:fs/namei.c), then check, then OPEN; what it met is [held](crate::late) so long.
    Create {
        /// With O_EXCL: that the name is taken is the answer.
        exclusive: bool,
    },
    /// SETATTR of a size.
    ///
    /// The kernel takes the size from the answer, whatever else goes on, and drops the pages behind it
    /// (`fuse_do_setattr` in linux:fs/fuse/dir.c). Until then it writes no page of the file back, so nothing that waits
    /// for a page may come before the answer.
    Truncate,
    /// READDIR, READDIRPLUS: an answer without entries tells of the end.
    List {
        /// The directory.
        dir: Ino,
        /// Whether it is not the beginning.
        goes_on: bool,
    },
    /// READ: less than this many bytes tell the kernel of the end of the file.
    Read {
        /// The file.
        ino: Ino,
        /// In bytes.
        len: u32,
    },
    /// FLUSH: once it is answered nobody may keep the file system from being unmounted.
    Flush {
        /// The file.
        ino: Ino,
    },
    /// COPY_FILE_RANGE.
    ///
    /// The kernel holds the lock of the destination, and drops the pages of what was copied when it is answered.
    Copy {
        /// The destination.
        ino: Ino,
        /// Where in it.
        offset: u64,
    },
    /// WRITE.
    Write(WriteShape),
}

/// What becomes of the kernel's cache after a WRITE depends on how it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteShape {
    /// The file.
    pub ino: Ino,
    /// Where the kernel believes that the bytes went.
    pub offset: u64,
    /// Whether the bytes bypass the kernel's page cache.
    pub direct: bool,
    /// Whether they must be durable before the answer.
    pub sync: bool,
    /// Where they have the kernel's end at least, see [`WriteCall::end`](crate::request::WriteCall::end).
    pub end: Option<u64>,
    /// Where they end, if the kernel may cut the file when they are refused ([`refused`](crate::refused)).
    pub refusal_cuts: Option<MayCut>,
}

/// An answer, ready to be sent.
#[derive(Debug)]
pub enum Answer {
    /// Refused.
    Error(Errno),
    /// Done, nothing to say.
    Done,
    /// An entry, positive or negative.
    Entry(fuse::Entry),
    /// Attributes, and how long they may be believed.
    Attr(fuse::Attr, Duration),
    /// Attributes with the time of birth, and how long they may be believed.
    Statx(Box<fuse::Statx>, Duration),
    /// A file made and opened.
    Created(fuse::Entry, fuse::Opened),
    /// A file opened.
    Opened(fuse::Opened),
    /// Bytes.
    Data(Vec<u8>),
    /// How many bytes there would be.
    Size(u32),
    /// How many bytes were taken.
    Written(u32),
    /// How many bytes were copied.
    Copied(u64),
    /// Directory entries.
    Dir(DirBuffer),
    /// Figures of the volume.
    Statfs(fuse::Statfs),
    /// An offset found.
    Offset(u64),
    /// The lock in the way, or one of kind `Unlock`.
    Lock(fuse::FileLock),
}

impl Answer {
    /// Puts `reply` into the form that `shape` asks for.
    ///
    /// # Errors
    ///
    /// [`Misfit`] if the request cannot have this reply, or if it has to be worked on before it is one
    /// ([`Reply::ReadJob`]).
    pub fn of(shape: Shape, reply: Reply) -> Result<Self, Misfit> {
        Ok(match (shape, reply) {
            (_, Reply::Met(_)) => Self::Error(errno_of(FsError::Stale)),
            (Shape::SetXattr, Reply::Error(error)) => Self::Error(xattr_errno_of(error)),
            (Shape::Create { exclusive: false }, Reply::Error(FsError::Exists)) => {
                Self::Error(errno_of(FsError::Stale))
            }
            (_, Reply::Error(error)) => Self::Error(errno_of(error)),
            (Shape::Lookup, Reply::NoEntry(keep)) => Self::Entry(fuse::Entry::negative(ttl_of(keep))),
            // Made or looked up, and gone again before it could be told.
            (_, Reply::NoEntry(_)) => Self::Error(errno_of(FsError::NotFound)),
            (Shape::Statx, Reply::Attr(attr, keep)) => {
                let btime = Some(timestamp_of(attr.btime));
                let statx = fuse::Statx { attr: attr_of(&attr), btime, attributes: 0, attributes_mask: 0 };
                Self::Statx(Box::new(statx), ttl_of(keep))
            }
            (Shape::Sized { size }, Reply::Data(data)) => sized(size, data),
            (Shape::CapabilityLen { .. }, Reply::Data(data)) => sized(0, data),
            (_, Reply::Done | Reply::Emptied(_)) => Self::Done,
            (_, Reply::Entry(entry)) => Self::Entry(entry_of(&entry)),
            (_, Reply::Attr(attr, keep)) => Self::Attr(attr_of(&attr), ttl_of(keep)),
            (_, Reply::Created(entry, opened)) => Self::Created(entry_of(&entry), opened_of(opened)),
            (_, Reply::Opened(opened)) => Self::Opened(opened_of(opened)),
            (_, Reply::Data(data)) => Self::Data(data),
            (_, Reply::Written { len, moved_to: _, reread: _, shield: _ }) => Self::Written(len),
            (_, Reply::Copied { len, shield: _ }) => Self::Copied(len),
            (_, Reply::Dir(sink)) => Self::Dir(buffer_of(sink)?),
            (_, Reply::StatFs(figures)) => Self::Statfs(statfs_of(&figures)),
            (_, Reply::Offset(offset)) => Self::Offset(offset),
            (_, Reply::Lock(lock)) => Self::Lock(lock_of(lock)),
            (_, Reply::ReadJob(_)) => return Err(Misfit),
        })
    }

    /// Sends it.
    pub fn send(self, reply: fuse::Reply) -> Delivery {
        match self {
            Self::Error(errno) => reply.error(errno),
            Self::Done => reply.ok(),
            Self::Entry(entry) => reply.entry(&entry),
            Self::Attr(attr, ttl) => reply.attr(&attr, ttl),
            Self::Statx(statx, ttl) => reply.statx(&statx, ttl),
            Self::Created(entry, opened) => reply.created(&entry, opened),
            Self::Opened(opened) => reply.opened(opened),
            Self::Data(data) => reply.data(&data),
            Self::Size(size) => reply.xattr_size(size),
            Self::Written(len) => reply.written(len),
            Self::Copied(len) => reply.copied(len),
            Self::Dir(buffer) => reply.dir(&buffer),
            Self::Statfs(statfs) => reply.statfs(&statfs),
            Self::Offset(offset) => reply.lseek(offset),
            Self::Lock(lock) => reply.lock(&lock),
        }
    }
}

/// The reply is none that the request can have: a defect, answered with EIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;

/// getxattr(2): size 0 asks for the size, ERANGE if there is too little room.
fn sized(size: u32, data: Vec<u8>) -> Answer {
    match u32::try_from(data.len()) {
        Ok(len) if size == 0 => Answer::Size(len),
        Ok(len) if len <= size => Answer::Data(data),
        Ok(_) | Err(_) => Answer::Error(errno_of(FsError::Range)),
    }
}

fn buffer_of(sink: Box<dyn DirSink>) -> Result<DirBuffer, Misfit> {
    let packer = sink.into_any().downcast::<DirPacker>().map_err(|_| Misfit)?;
    Ok(packer.into_buffer())
}

/// Inodes are made as room allows, so as many are free as blocks: zero would read as "none left".
fn statfs_of(figures: &StatFs) -> fuse::Statfs {
    let blocks = |bytes: u64| bytes / u64::from(BLOCK_LEN);
    let files_free = blocks(figures.available_bytes);
    fuse::Statfs {
        blocks: blocks(figures.total_bytes),
        blocks_free: blocks(figures.free_bytes),
        blocks_available: blocks(figures.available_bytes),
        files: figures.inodes_used.saturating_add(files_free),
        files_free,
        block_size: BLOCK_LEN,
        name_len_max: NAME_LEN_MAX as u32,
        fragment_size: BLOCK_LEN,
    }
}

/// From half-open to inclusive.
fn lock_of(lock: Option<ByteLock>) -> fuse::FileLock {
    match lock {
        None => fuse::FileLock { start: 0, end: 0, kind: fuse::LockKind::Unlock, pid: 0 },
        Some(ByteLock { start, end, exclusive, pid, .. }) => {
            let kind = if exclusive { fuse::LockKind::Write } else { fuse::LockKind::Read };
            fuse::FileLock { start, end: end.saturating_sub(1).min(BYTE_MAX), kind, pid }
        }
    }
}

#[cfg(test)]
mod tests;
