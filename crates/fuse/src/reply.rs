//! The answer to one request.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::abi::{
    BmapOut, CopyFileRangeOut, CreateOut, FileLockWire, GetxattrOut, IoctlOut, LseekOut, Opcode, PollOut,
    WriteOut,
};
use crate::attr::{Attr, Entry, Opened, Statfs, Statx};
use crate::channel::Channel;
use crate::dir_buffer::DirBuffer;
use crate::operation::FileLock;
use crate::uring::RingReply;

/// Handle to answer one request, from any thread, exactly once.
///
/// Every method consumes it and costs one call of write(2) or writev(2); or, through io_uring, a share of the call that waits for the next request if
/// called on the thread that handled this one, and a wake-up of that thread otherwise. Dropped unanswered it sends EIO and logs,
/// because a request without an answer hangs its caller for good.
#[derive(Debug)]
#[must_use = "a request must be answered"]
pub struct Reply {
    way: Way,
    unique: u64,
    opcode: Option<Opcode>,
    state: State,
}

/// What became of an answer.
///
/// References given by an entry or by a READDIRPLUS buffer count only if it was delivered. Through io_uring that is not known: what is
/// lost there is lost with the whole connection, or because its request was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The kernel has it.
    Delivered,
    /// Nobody waits for it any more, or the kernel refused it.
    Lost,
}

/// How a request came, and its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `/dev/fuse`.
    Device,
    /// A ring of io_uring.
    Ring,
}

#[derive(Debug)]
enum Way {
    Device(Arc<Channel>),
    Ring(RingReply),
}

/// Whether the answer was sent; looked at on drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Answered,
}

impl Reply {
    pub(crate) fn new(channel: Arc<Channel>, unique: u64, opcode: Option<Opcode>) -> Self {
        Self { way: Way::Device(channel), unique, opcode, state: State::Waiting }
    }

    pub(crate) fn by_ring(ring: RingReply, unique: u64, opcode: Option<Opcode>) -> Self {
        Self { way: Way::Ring(ring), unique, opcode, state: State::Waiting }
    }

    fn channel(&self) -> &Channel {
        match &self.way {
            Way::Device(channel) => channel,
            Way::Ring(reply) => &reply.ring.channel,
        }
    }

    /// Returns how the request came.
    pub fn transport(&self) -> Transport {
        match &self.way {
            Way::Device(_) => Transport::Device,
            Way::Ring(_) => Transport::Ring,
        }
    }

    /// Returns the request's number, as INTERRUPT names it.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Returns the request's opcode, or `None` for one this crate does not know.
    pub fn opcode(&self) -> Option<Opcode> {
        self.opcode
    }

    /// Fails the request.
    ///
    /// ENOSYS is remembered by the kernel for many operations and never asked again.
    pub fn error(mut self, errno: Errno) -> Delivery {
        self.send_error(errno)
    }

    /// Fails a request that could not be decoded: EIO, counted.
    pub fn malformed(mut self) -> Delivery {
        self.channel().counters.on_malformed();
        self.send_error(Errno::IO)
    }

    /// Succeeds without content.
    pub fn ok(self) -> Delivery {
        self.send(&[])
    }

    /// Answers LOOKUP, MKNOD, MKDIR, SYMLINK and LINK.
    pub fn entry(self, entry: &Entry) -> Delivery {
        self.send_struct(&entry.to_wire())
    }

    /// Answers GETATTR and SETATTR; the attributes may be believed for `ttl`.
    pub fn attr(self, attr: &Attr, ttl: Duration) -> Delivery {
        self.send_struct(&attr.to_attr_out(ttl))
    }

    /// Answers CREATE and TMPFILE.
    pub fn created(self, entry: &Entry, opened: Opened) -> Delivery {
        self.send_struct(&CreateOut { entry: entry.to_wire(), open: opened.to_wire() })
    }

    /// Answers OPEN and OPENDIR.
    pub fn opened(self, opened: Opened) -> Delivery {
        self.send_struct(&opened.to_wire())
    }

    /// Answers READ, READLINK, and GETXATTR and LISTXATTR with a `size`.
    ///
    /// More than the request has room for is refused by the kernel.
    pub fn data(self, data: &[u8]) -> Delivery {
        self.send(&[data])
    }

    /// As [`data`](Self::data), from several pieces.
    pub fn data_vectored(mut self, pieces: &[IoSlice<'_>]) -> Delivery {
        self.begin();
        let sent = match &mut self.way {
            Way::Device(channel) => channel.send_vectored(self.unique, pieces),
            Way::Ring(reply) => reply.send_vectored(self.unique, pieces),
        };
        self.finish(sent)
    }

    /// Answers WRITE and COPY_FILE_RANGE-like requests with the bytes taken.
    pub fn written(self, len: u32) -> Delivery {
        self.send_struct(&WriteOut { size: len, padding: 0 })
    }

    /// Answers STATFS.
    pub fn statfs(self, statfs: &Statfs) -> Delivery {
        self.send_struct(&statfs.to_wire())
    }

    /// Answers GETXATTR and LISTXATTR whose `size` was 0.
    pub fn xattr_size(self, size: u32) -> Delivery {
        self.send_struct(&GetxattrOut { size, padding: 0 })
    }

    /// Answers GETLK: the lock in the way, or one of kind `Unlock` if there is none.
    pub fn lock(self, lock: &FileLock) -> Delivery {
        let FileLock { start, end, kind, pid } = *lock;
        self.send_struct(&FileLockWire { start, end, kind: kind as u32, pid })
    }

    /// Answers LSEEK.
    pub fn lseek(self, offset: u64) -> Delivery {
        self.send_struct(&LseekOut { offset })
    }

    /// Answers STATX; the attributes may be believed for `ttl`.
    pub fn statx(self, statx: &Statx, ttl: Duration) -> Delivery {
        self.send_struct(&statx.to_wire(ttl))
    }

    /// Answers READDIR and READDIRPLUS. An empty buffer means end of directory.
    pub fn dir(self, buffer: &DirBuffer) -> Delivery {
        self.send(&[buffer.as_bytes()])
    }

    /// Answers IOCTL with the call's result and output.
    pub fn ioctl(self, result: i32, output: &[u8]) -> Delivery {
        let arg = IoctlOut { result, ..IoctlOut::default() };
        self.send(&[arg.as_bytes(), output])
    }

    /// Answers BMAP.
    pub fn bmap(self, block: u64) -> Delivery {
        self.send_struct(&BmapOut { block })
    }

    /// Answers POLL with the events that are ready.
    pub fn poll(self, revents: u32) -> Delivery {
        self.send_struct(&PollOut { revents, padding: 0 })
    }

    /// Answers either form of COPY_FILE_RANGE with the bytes copied.
    ///
    /// The older form holds 32 bits; a longer copy must have been cut by the handler, and is
    /// reported as `u32::MAX` rounded down to a page otherwise.
    pub fn copied(self, len: u64) -> Delivery {
        if self.opcode == Some(Opcode::CopyFileRange64) {
            return self.send_struct(&CopyFileRangeOut { bytes_copied: len });
        }
        self.written(u32::try_from(len).unwrap_or(COPIED_MAX_32))
    }

    fn send_struct<T: IntoBytes + Immutable>(self, body: &T) -> Delivery {
        self.send(&[body.as_bytes()])
    }

    fn send(mut self, parts: &[&[u8]]) -> Delivery {
        self.begin();
        let sent = self.send_message(0, parts);
        self.finish(sent)
    }

    fn send_message(&mut self, error: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        match &mut self.way {
            Way::Device(channel) => channel.send(self.unique, error, parts),
            Way::Ring(reply) => reply.send(self.unique, error, parts),
        }
    }

    fn send_error(&mut self, errno: Errno) -> Delivery {
        self.begin();
        match self.send_message(-errno.raw_os_error(), &[]) {
            Ok(()) => {
                self.channel().counters.on_replied_error();
                Delivery::Delivered
            }
            Err(failure) => self.on_unsent(failure),
        }
    }

    /// Takes the request off the table before its answer leaves: after that its number may be
    /// interrupted no more, and the kernel may use it again.
    fn begin(&mut self) {
        self.state = State::Answered;
        self.channel().in_flight.remove(self.unique);
    }

    fn finish(&mut self, sent: Result<(), Errno>) -> Delivery {
        match sent {
            Ok(()) => {
                self.channel().counters.on_replied();
                Delivery::Delivered
            }
            Err(failure) => self.on_unsent(failure),
        }
    }

    fn on_unsent(&mut self, failure: Errno) -> Delivery {
        let name = self.opcode.map_or("unknown", Opcode::name);
        match failure {
            // The request was aborted, or the whole mount is gone.
            Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::PERM => {
                self.channel().counters.on_reply_lost();
                log::debug!("answer to {name} request {} came too late: {failure}", self.unique);
            }
            failure => {
                self.channel().counters.on_reply_refused();
                log::error!("kernel refused the answer to {name} request {}: {failure}", self.unique);
                // Refused before the request was found, it still waits; after that this is ENOENT.
                _ = self.send_message(-Errno::IO.raw_os_error(), &[]);
            }
        }
        Delivery::Lost
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.state == State::Answered {
            return;
        }
        let name = self.opcode.map_or("unknown", Opcode::name);
        self.channel().counters.on_dropped();
        log::error!("{name} request {} was dropped unanswered; answering EIO", self.unique);
        self.send_error(Errno::IO);
    }
}

/// Largest whole number of pages in 32 bits.
const COPIED_MAX_32: u32 = 0xffff_f000;
