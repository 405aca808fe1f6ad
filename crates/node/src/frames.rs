//! Frames on a Unix socket: counted, written without waiting where possible, read with limits.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use obs::{MessageKind, Metrics};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};
use types::Decode;
use wire::{FRAME_HEADER_LEN, FRAME_LEN_MAX, FrameError, FrameHeader, FromMaster, ToMaster};

/// Names of all message kinds: what nodes say, then what the master says.
pub(crate) const MESSAGE_KINDS: &[&str] = &{
    let (to, from) = (ToMaster::KINDS, FromMaster::KINDS);
    let mut all = [""; ToMaster::KINDS.len() + FromMaster::KINDS.len()];
    let mut index = 0;
    while index < all.len() {
        all[index] = if index < to.len() { to[index] } else { from[index - to.len()] };
        index += 1;
    }
    all
};

/// A message that travels in frames.
pub(crate) trait Message: Decode + types::Encode {
    /// Its place in [`MESSAGE_KINDS`].
    fn label(&self) -> MessageKind;
}

impl Message for ToMaster {
    fn label(&self) -> MessageKind {
        MessageKind(self.kind())
    }
}

impl Message for FromMaster {
    fn label(&self) -> MessageKind {
        MessageKind(ToMaster::KINDS.len() + self.kind())
    }
}

/// What happens when the other side reads too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// The sender waits while more than so many bytes do: back-pressure on a node.
    Wait { beyond: usize },
    /// The connection is given up: a master waits for nobody.
    Fail,
}

/// The sending half of a connection. A thread of its own runs [`FrameWriter::run`].
///
/// A frame is written at once, on the sender's thread, when nothing waits before it and the socket takes
/// it; what the socket does not take is queued for the thread.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    stream: UnixStream,
    when_full: WhenFull,
    metrics: Arc<Metrics>,
    state: Mutex<WriterState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WriterState {
    /// Frames, the first one perhaps in part.
    queue: VecDeque<Vec<u8>>,
    queued_bytes: usize,
    end: End,
}

/// How far the writer is with ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// Not.
    #[default]
    Open,
    /// After what is queued.
    Draining,
    /// Nothing is written any more.
    Closed,
}

/// The connection takes no more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// It is closed or broken; its reader notices by itself.
    Closed,
    /// The other side has not read for too long.
    Full,
}

impl FrameWriter {
    pub fn new(stream: &UnixStream, when_full: WhenFull, metrics: Arc<Metrics>) -> io::Result<Self> {
        let stream = stream.try_clone()?;
        for set in [sockopt::set_socket_send_buffer_size, sockopt::set_socket_recv_buffer_size] {
            // The system's limit (net.core.wmem_max) may be lower; smaller buffers only cost switches.
            let _ = set(&stream, SOCKET_BUFFER_LEN);
        }
        Ok(Self { stream, when_full, metrics, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Sends a message after all earlier ones.
    pub fn send<M: Message>(&self, message: &M) -> Result<(), SendError> {
        let frame = wire::encode_frame(message);
        if frame.len() > FRAME_HEADER_LEN + FRAME_LEN_MAX {
            // The receiver would refuse it. The sender's core is at fault: it must split what is too large.
            log::error!("message {:?} of {} bytes is larger than a frame", message.label(), frame.len());
        }
        let len = frame.len() as u64;
        self.write(frame)?;
        self.metrics.messages_sent.add(message.label(), 1);
        self.metrics.bytes_sent.add(message.label(), len);
        Ok(())
    }

    fn write(&self, mut frame: Vec<u8>) -> Result<(), SendError> {
        let mut state = self.state.lock();
        let most = match self.when_full {
            WhenFull::Wait { beyond } => beyond,
            WhenFull::Fail => QUEUED_BYTES_MAX,
        };
        while state.queued_bytes > most && state.end == End::Open {
            match self.when_full {
                WhenFull::Wait { .. } => self.changed.wait(&mut state),
                WhenFull::Fail => return Err(SendError::Full),
            }
        }
        if state.end != End::Open {
            return Err(SendError::Closed);
        }
        if state.queue.is_empty() {
            match self.write_now(&frame) {
                Ok(written) if written == frame.len() => return Ok(()),
                Ok(written) => drop(frame.drain(..written)),
                Err(error) => {
                    state.end = End::Closed;
                    self.changed.notify_all();
                    // Whoever reads hears of it by that: part of a frame may have gone out.
                    log::debug!("a frame cannot be sent: {error}");
                    let _ = self.stream.shutdown(Shutdown::Both);
                    return Err(SendError::Closed);
                }
            }
        }
        state.queued_bytes += frame.len();
        state.queue.push_back(frame);
        self.changed.notify_all();
        Ok(())
    }

    /// Writes what the socket takes at once.
    fn write_now(&self, frame: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < frame.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.stream, &frame[written..], flags) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(written)
    }

    /// The thread that writes what the socket did not take at once. Ends when the connection is closed.
    pub fn run(&self) {
        let mut state = self.state.lock();
        loop {
            while state.queue.is_empty() && state.end == End::Open {
                self.changed.wait(&mut state);
            }
            // It stays in the queue while it is written, so that no other frame goes before its end.
            let Some(frame) = state.queue.front_mut().map(std::mem::take) else { break };
            if state.end == End::Closed {
                break;
            }
            let result = parking_lot::MutexGuard::unlocked(&mut state, || (&self.stream).write_all(&frame));
            state.queue.pop_front();
            state.queued_bytes -= frame.len();
            if result.is_err() {
                break;
            }
            self.changed.notify_all();
        }
        state.end = End::Closed;
        state.queue.clear();
        self.changed.notify_all();
        drop(state);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Ends the connection once everything queued is written.
    pub fn close_after_queue(&self) {
        let mut state = self.state.lock();
        if state.end == End::Open {
            state.end = End::Draining;
        }
        self.changed.notify_all();
    }

    /// Ends the connection now: reads and writes in progress return.
    pub fn close(&self) {
        self.state.lock().end = End::Closed;
        self.changed.notify_all();
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Waits until everything queued is written, or the connection is closed; false if neither came in time.
    pub fn drain(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        while !state.queue.is_empty() && state.end != End::Closed {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
        true
    }
}

/// Why no frame could be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The connection has ended, between frames or within one.
    #[error("the connection ended")]
    End,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// Nothing came in time.
    #[error("nothing was said in time")]
    Silent,
    /// What came is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// What came was more than its decoder could take. That ends the connection, not the node that others share.
    #[error("a message could not be decoded, by a defect")]
    Defect,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct FrameReader {
    stream: BufReader<UnixStream>,
    metrics: Arc<Metrics>,
    payload: Vec<u8>,
}

impl FrameReader {
    pub fn new(stream: UnixStream, metrics: Arc<Metrics>) -> Self {
        Self { stream: BufReader::with_capacity(READ_BUFFER_LEN, stream), metrics, payload: Vec::new() }
    }

    /// Reads the next message, waiting for it as long as it takes.
    pub fn read<M: Message>(&mut self) -> Result<M, ReadError> {
        self.read_frame(None)
    }

    /// Reads the next message, which must be there whole within `patience`.
    pub fn read_within<M: Message>(&mut self, patience: Duration) -> Result<M, ReadError> {
        let message = self.read_frame(Some(Instant::now() + patience))?;
        self.stream.get_ref().set_read_timeout(None).map_err(ReadError::Io)?;
        Ok(message)
    }

    fn read_frame<M: Message>(&mut self, deadline: Option<Instant>) -> Result<M, ReadError> {
        let mut header = [0; FRAME_HEADER_LEN];
        self.fill(&mut header, deadline)?;
        let header = FrameHeader::decode(&header)?;
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(header.len, 0);
        self.fill(&mut payload, deadline)?;
        let decoded = catch_unwind(AssertUnwindSafe(|| wire::decode_payload(header, &payload)));
        let message: M = decoded.map_err(|_| ReadError::Defect)??;
        self.metrics.messages_received.add(message.label(), 1);
        self.metrics.bytes_received.add(message.label(), (FRAME_HEADER_LEN + header.len) as u64);
        if payload.capacity() <= KEPT_BUFFER_LEN {
            self.payload = payload;
        }
        Ok(message)
    }

    fn fill(&mut self, mut out: &mut [u8], deadline: Option<Instant>) -> Result<(), ReadError> {
        while !out.is_empty() {
            if let Some(deadline) = deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ReadError::Silent);
                }
                self.stream.get_ref().set_read_timeout(Some(left)).map_err(ReadError::Io)?;
            }
            match self.stream.read(out) {
                Ok(0) => return Err(ReadError::End),
                Ok(count) => out = &mut out[count..],
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(ReadError::Silent),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => return Err(ReadError::End),
                    _ => return Err(ReadError::Io(error)),
                },
            }
        }
        Ok(())
    }
}

/// Asked of the system for each direction of a connection.
const SOCKET_BUFFER_LEN: usize = 4 << 20;
/// Beyond what the socket holds; a few of the largest frames.
pub(crate) const QUEUED_BYTES_MAX: usize = 64 << 20;
const READ_BUFFER_LEN: usize = 64 << 10;
/// A larger buffer is given back after use.
const KEPT_BUFFER_LEN: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(when_full: WhenFull) -> (Arc<FrameWriter>, FrameReader, std::thread::JoinHandle<()>) {
        let (a, b) = UnixStream::pair().unwrap();
        let metrics = Arc::new(Metrics::with_message_kinds(MESSAGE_KINDS));
        let writer = Arc::new(FrameWriter::new(&a, when_full, Arc::clone(&metrics)).unwrap());
        let thread = std::thread::spawn({
            let writer = Arc::clone(&writer);
            move || writer.run()
        });
        (writer, FrameReader::new(b, metrics), thread)
    }

    fn message(request: u64) -> ToMaster {
        ToMaster::CancelLock { request }
    }

    #[test]
    fn every_kind_has_its_name() {
        assert_eq!(MESSAGE_KINDS[ToMaster::Bye {}.label().0], "bye");
        assert_eq!(MESSAGE_KINDS[FromMaster::Pong { token_share: 1 }.label().0], "pong");
    }

    #[test]
    fn frames_arrive_in_order_when_the_socket_is_full() {
        let (writer, mut reader, thread) = pair(WhenFull::Wait { beyond: QUEUED_BYTES_MAX });
        let count = 200_000;
        let sender = std::thread::spawn({
            let writer = Arc::clone(&writer);
            move || (0..count).for_each(|n| writer.send(&message(n)).unwrap())
        });
        for n in 0..count {
            assert_eq!(reader.read::<ToMaster>().unwrap(), message(n));
        }
        sender.join().unwrap();
        writer.close();
        thread.join().unwrap();
        assert!(matches!(reader.read::<ToMaster>(), Err(ReadError::End)));
    }

    #[test]
    fn a_writer_that_may_not_wait_gives_up() {
        let (writer, _reader, thread) = pair(WhenFull::Fail);
        let big = FromMaster::Refused { reason: "x".repeat((1 << 20) - 64) };
        let full = (0..1_000).find_map(|_| writer.send(&big).err());
        assert_eq!(full, Some(SendError::Full));
        writer.close();
        thread.join().unwrap();
        assert_eq!(writer.send(&big), Err(SendError::Closed));
    }

    #[test]
    fn what_was_queued_is_written_before_the_end() {
        let (writer, mut reader, thread) = pair(WhenFull::Fail);
        let big = FromMaster::Refused { reason: "x".repeat((1 << 20) - 64) };
        for _ in 0..20 {
            writer.send(&big).unwrap();
        }
        writer.close_after_queue();
        assert_eq!(writer.send(&big), Err(SendError::Closed));
        for _ in 0..20 {
            reader.read::<FromMaster>().unwrap();
        }
        assert!(matches!(reader.read::<FromMaster>(), Err(ReadError::End)));
        thread.join().unwrap();
    }

    #[test]
    fn silence_garbage_and_torn_frames_are_errors() {
        let metrics = Arc::new(Metrics::with_message_kinds(MESSAGE_KINDS));
        let read = |bytes: &[u8], end: bool| {
            let (mut a, b) = UnixStream::pair().unwrap();
            a.write_all(bytes).unwrap();
            if end {
                a.shutdown(Shutdown::Both).unwrap();
            }
            let mut reader = FrameReader::new(b, Arc::clone(&metrics));
            let error = reader.read_within::<ToMaster>(Duration::from_millis(20));
            drop(a);
            error.unwrap_err()
        };
        let frame = wire::encode_frame(&message(1));
        assert!(matches!(read(b"", false), ReadError::Silent));
        assert!(matches!(read(&frame[..5], false), ReadError::Silent));
        assert!(matches!(read(&frame[..5], true), ReadError::End));
        assert!(matches!(read(b"GET / HTTP/1.1\r\n\r\n", false), ReadError::Frame(_)));
        let mut flipped = frame;
        let last = flipped.len() - 1;
        flipped[last] ^= 1;
        assert!(matches!(read(&flipped, false), ReadError::Frame(FrameError::BadChecksum { .. })));
    }
}
