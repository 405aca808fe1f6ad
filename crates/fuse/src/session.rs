//! One mounted file system: handshake, then the reader loop.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, BatchForgetIn, Forget, ForgetIn, InHeader, InitFlags, InterruptIn, Opcode};
use crate::channel::Channel;
use crate::counters::Counters;
use crate::init::{Config, InitAnswer, Negotiated, RingUse, answer_init};
use crate::notifier::Notifier;
use crate::operation::DecodeError;
use crate::placement::{self, PlaceEvent, Placement};
use crate::reply::{Reply, Transport};
use crate::request::{Dialect, Request};
use crate::uring::{self, RingError, Rings};

/// The file system behind a session.
///
/// Called on the thread that reads, which reads nothing else meanwhile: answer what can be answered
/// at once, and hand the [`Reply`] of everything else to another thread. Through io_uring there is such a thread for each processor: the
/// handler is called on several at once, and requests come in the order in which they were made only as far as their callers
/// waited for an answer in between. A RELEASE, for which nobody waits, may come after what its process asked for next.
pub trait Handler: Send + Sync {
    /// Takes one request. `request` borrows the read buffer and ends with the call; `reply` may
    /// outlive it. A request whose [`Request::operation`] fails is answered by
    /// [`Reply::malformed`].
    fn handle(&self, request: Request<'_>, reply: Reply);

    /// Learns that the caller of request `unique` got a signal.
    ///
    /// A request that waits should be answered EINTR; the caller stays unkillable until then.
    /// Called only for requests given to [`handle`](Self::handle) and not answered when the
    /// message was read, but the answer may be under way on another thread: an unknown number
    /// must be ignored. Called on the thread that gave the request to [`handle`](Self::handle).
    fn interrupt(&self, unique: u64);

    /// Takes back references; there is no answer.
    fn forget(&self, forgets: &[Forget]);

    /// Every request that was queued before [`Notifier::mark`](crate::Notifier::mark) was given to
    /// [`handle`](Self::handle).
    fn marked(&self, _unique: u64) {}

    /// Learns what became of the place of the thread that reads.
    fn placed(&self, _event: PlaceEvent) {}

    /// The thread that reads the device is about to read its next message. Called where [`is_reader`](crate::is_reader) says so.
    fn handled(&self) {}

    /// Learns that the session is over. Called once, at the end of [`Session::run`].
    fn destroy(&self);
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct Session {
    channel: Arc<Channel>,
    negotiated: Negotiated,
    /// Words, so that the structures of every request are aligned.
    buffer: Vec<u64>,
    /// If the two sides agreed on them.
    rings: Option<Rings>,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The last mount of it is gone.
    Unmounted,
    /// The connection was aborted; the mount is still there and answers ENOTCONN.
    Aborted,
}

/// Why a session could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The device failed.
    #[error("reading /dev/fuse")]
    Read(#[source] Errno),
    /// The answer to INIT was not accepted.
    #[error("answering INIT")]
    Init(#[source] Errno),
    /// The first message was not a well-formed INIT.
    #[error("the kernel's first message is not INIT (opcode {opcode})")]
    Handshake {
        /// Opcode of that message; 0 if it had no header.
        opcode: u32,
    },
    /// The kernel is older than [`abi::MINOR_MIN`].
    #[error(
        "the kernel speaks FUSE {major}.{minor}, at least 7.{} is needed: use Linux 5.4 or later",
        abi::MINOR_MIN
    )]
    KernelTooOld {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// Requests cannot come through io_uring, as was required.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Unmounted or aborted before INIT.
    #[error("the mount went away during the handshake")]
    Gone,
}

impl Session {
    /// Shakes hands on `device`, which was mounted just before.
    ///
    /// Blocks until the kernel's INIT arrives; it is sent by the mount itself.
    ///
    /// # Errors
    ///
    /// Any [`SessionError`]; the mount is then unusable, unmount it.
    pub fn start(device: OwnedFd, config: &Config) -> Result<Self, SessionError> {
        let channel = Arc::new(Channel::new(device));
        let rings = prepare_rings(&channel, config)?;
        let config = &match &rings {
            Some(_) => Config { flags: config.flags | InitFlags::OVER_IO_URING, ..*config },
            None => *config,
        };
        let mut buffer = vec![0u64; config.buffer_len().div_ceil(size_of::<u64>())];
        let negotiated = loop {
            let len = match receive(&channel, buffer.as_mut_bytes())? {
                Received::Message(len) => len,
                Received::End(_) => return Err(SessionError::Gone),
            };
            let message = &buffer.as_bytes()[..len];
            if let Some(negotiated) = shake_hands(&channel, config, message)? {
                break negotiated;
            }
        };
        log::info!(
            "FUSE 7.{} with {:?}, max_write {}",
            negotiated.minor,
            negotiated.flags,
            negotiated.max_write
        );
        let has_rings = negotiated.has(InitFlags::OVER_IO_URING);
        if config.rings == RingUse::Required && !has_rings {
            return Err(SessionError::Ring(RingError::NotOffered));
        }
        let rings = rings.filter(|_| has_rings);
        if let Some(rings) = &rings {
            channel.set_rings(&rings.shared);
        }
        Ok(Self { channel, negotiated, buffer, rings })
    }

    /// Serves requests on this thread until the mount goes.
    ///
    /// # Errors
    ///
    /// [`SessionError::Read`] if the device fails for another reason than its end.
    pub fn run<H: Handler + ?Sized>(&mut self, handler: &H) -> Result<SessionEnd, SessionError> {
        let end = match self.rings.take() {
            Some(rings) => self.run_rings(rings, handler),
            None => {
                let _placement = Placement::begin();
                self.read(handler)
            }
        };
        guard(&self.channel, "destroy", || handler.destroy());
        end
    }

    /// Serves the rings on threads of their own, and here what comes through the device beside them.
    fn run_rings<H: Handler + ?Sized>(
        &mut self,
        rings: Rings,
        handler: &H,
    ) -> Result<SessionEnd, SessionError> {
        let Rings { servers, shared } = rings;
        let (dialect, allowed) = (self.negotiated.dialect(), uring::allowed());
        std::thread::scope(|scope| {
            for (number, server) in servers.into_iter().enumerate() {
                let work = move || server.run(handler, dialect, &allowed);
                let thread = std::thread::Builder::new().name(format!("ring-{number}"));
                if let Err(error) = thread.spawn_scoped(scope, work) {
                    shared.stop();
                    // The kernel would wait for all rings for ever.
                    self.channel.abort();
                    return Err(SessionError::Ring(RingError::Thread(error)));
                }
            }
            let end = self.read(handler);
            shared.stop();
            end
        })
    }

    fn read<H: Handler + ?Sized>(&mut self, handler: &H) -> Result<SessionEnd, SessionError> {
        let dialect = self.negotiated.dialect();
        loop {
            placement::before_read();
            match receive(&self.channel, self.buffer.as_mut_bytes())? {
                Received::Message(len) => {
                    dispatch(&self.channel, handler, &self.buffer.as_bytes()[..len], dialect);
                    if placement::is_reader() {
                        guard(&self.channel, "handled", || handler.handled());
                    }
                }
                Received::End(end) => return Ok(end),
            }
        }
    }

    /// Returns what INIT settled.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Returns a sender of notifications.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.channel), self.negotiated.minor)
    }

    /// Returns a reader of the counters that outlives the session's thread.
    pub fn monitor(&self) -> Monitor {
        Monitor { channel: Arc::clone(&self.channel) }
    }

    /// Returns the device, for ioctls on it and for duplicating it.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.channel.device()
    }
}

/// Looks at a running session from outside.
#[derive(Clone, Debug)]
pub struct Monitor {
    channel: Arc<Channel>,
}

impl Monitor {
    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.channel.counters
    }

    /// Returns how requests come, or will come once the session runs.
    pub fn transport(&self) -> Transport {
        if self.channel.has_rings() { Transport::Ring } else { Transport::Device }
    }

    /// Returns how many requests wait for their answer.
    pub fn in_flight_count(&self) -> usize {
        self.channel.in_flight.count()
    }

    /// Returns the device, for ioctls on it and for duplicating it.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.channel.device()
    }
}

/// Makes what requests are to come through, if they are.
fn prepare_rings(channel: &Arc<Channel>, config: &Config) -> Result<Option<Rings>, SessionError> {
    if config.rings == RingUse::Off {
        return Ok(None);
    }
    let probed = uring::ring_check().and_then(|()| uring::probe(channel));
    match probed.and_then(|()| Rings::new(channel, config.payload_len())) {
        Ok(rings) => Ok(Some(rings)),
        Err(error) if config.rings == RingUse::Required => Err(error.into()),
        Err(error) => {
            log::debug!("requests come through /dev/fuse: {error}");
            Ok(None)
        }
    }
}

/// What a read of the device gave.
enum Received {
    Message(usize),
    End(SessionEnd),
}

fn receive(channel: &Channel, buffer: &mut [u8]) -> Result<Received, SessionError> {
    loop {
        return match channel.receive(buffer) {
            Ok(len) => Ok(Received::Message(len)),
            // ENOENT: the request was aborted while it was being copied.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(Errno::NODEV) => Ok(Received::End(SessionEnd::Unmounted)),
            Err(Errno::CONNABORTED) => Ok(Received::End(SessionEnd::Aborted)),
            Err(errno) => Err(SessionError::Read(errno)),
        };
    }
}

/// Answers one INIT; `None` if the kernel must ask again.
fn shake_hands(
    channel: &Channel,
    config: &Config,
    message: &[u8],
) -> Result<Option<Negotiated>, SessionError> {
    let Ok((header, body)) = InHeader::read_from_prefix(message) else {
        return Err(SessionError::Handshake { opcode: 0 });
    };
    if header.opcode != Opcode::Init.number() {
        return Err(SessionError::Handshake { opcode: header.opcode });
    }
    channel.counters.on_received(Some(Opcode::Init), message.len());
    match answer_init(config, body) {
        Some(InitAnswer::Accept(negotiated, out)) => {
            channel.send(header.unique, 0, &[out.as_bytes()]).map_err(SessionError::Init)?;
            Ok(Some(negotiated))
        }
        Some(InitAnswer::Downgrade(out)) => {
            channel.send(header.unique, 0, &[out.as_bytes()]).map_err(SessionError::Init)?;
            Ok(None)
        }
        Some(InitAnswer::Refuse { major, minor }) => {
            _ = channel.send(header.unique, -Errno::PROTO.raw_os_error(), &[]);
            Err(SessionError::KernelTooOld { major, minor })
        }
        None => Err(SessionError::Handshake { opcode: header.opcode }),
    }
}

/// Routes one message.
fn dispatch<H: Handler + ?Sized>(channel: &Arc<Channel>, handler: &H, message: &[u8], dialect: Dialect) {
    let request = match Request::from_message(message, dialect) {
        Ok(request) => request,
        Err(error) => return refuse(channel, message, error),
    };
    let opcode = request.opcode();
    channel.counters.on_received(opcode, message.len());
    match opcode {
        Some(Opcode::Forget) => deliver_forget(channel, handler, &request),
        Some(Opcode::BatchForget) => deliver_batch_forget(channel, handler, &request),
        Some(Opcode::Interrupt) => deliver_interrupt(channel, handler, &request),
        // The answer to `Notifier::mark`. No reply.
        Some(Opcode::NotifyReply) => guard(channel, "mark", || handler.marked(request.header.unique)),
        _ => {
            if let Some(event) = placement::asked(request.header.pid, message.len(), opcode) {
                handler.placed(event);
            }
            channel.in_flight.insert(request.header.unique);
            let reply = Reply::new(Arc::clone(channel), request.header.unique, opcode);
            guard(channel, opcode.map_or("unknown", Opcode::name), || handler.handle(request, reply));
        }
    }
}

/// Answers a message whose frame is broken, if it names a request.
fn refuse(channel: &Arc<Channel>, message: &[u8], error: DecodeError) {
    log::error!("malformed request of {} bytes: {error}", message.len());
    match InHeader::read_from_prefix(message) {
        Ok((header, _)) => {
            let reply = Reply::new(Arc::clone(channel), header.unique, Opcode::from_number(header.opcode));
            reply.malformed();
        }
        Err(_) => channel.counters.on_malformed(),
    }
}

fn deliver_forget<H: Handler + ?Sized>(channel: &Channel, handler: &H, request: &Request<'_>) {
    let Ok(ForgetIn { nlookup }) = ForgetIn::read_from_bytes(request.arg) else {
        return channel.counters.on_malformed();
    };
    let forget = Forget { nodeid: request.header.nodeid, nlookup };
    guard(channel, "forget", || handler.forget(&[forget]));
}

fn deliver_batch_forget<H: Handler + ?Sized>(channel: &Channel, handler: &H, request: &Request<'_>) {
    let Ok(batch) = BatchForgetIn::read_from_bytes(request.arg) else {
        return channel.counters.on_malformed();
    };
    match <[Forget]>::ref_from_prefix_with_elems(request.payload, batch.count as usize) {
        Ok((forgets, _)) => guard(channel, "batch_forget", || handler.forget(forgets)),
        Err(_) => channel.counters.on_malformed(),
    }
}

fn deliver_interrupt<H: Handler + ?Sized>(channel: &Channel, handler: &H, request: &Request<'_>) {
    let Ok(InterruptIn { unique }) = InterruptIn::read_from_bytes(request.arg) else {
        return channel.counters.on_malformed();
    };
    if let Some(rings) = channel.rings() {
        return rings.interrupt(unique);
    }
    if !channel.in_flight.contains(unique) {
        return channel.counters.on_interrupt_stale();
    }
    guard(channel, "interrupt", || handler.interrupt(unique));
}

/// Runs a call into the handler; a panic ends that call only.
///
/// Unwinding drops the request's [`Reply`], which answers EIO. Handlers share state by locks that
/// do not poison, so going on is as safe as after any other failed request.
pub(crate) fn guard(channel: &Channel, what: &str, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        channel.counters.on_panic();
        log::error!("handler panicked in {what}");
    }
}
