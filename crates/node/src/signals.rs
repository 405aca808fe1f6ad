//! SIGTERM, SIGINT and SIGHUP as something to read: they mean "unmount, flush, end".
//!
//! The only place of this crate with `unsafe`: four calls of the C library that have no safe form in what
//! we depend on.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Signals that end the node, taken away from their default action for this thread and all it starts.
#[derive(Debug)]
pub(crate) struct Signals {
    signals: OwnedFd,
    stop: OwnedFd,
}

/// What the wait for signals ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// This signal came.
    Signal(u32),
    /// [`Signals::stop`] was called.
    Stopped,
}

impl Signals {
    /// Blocks the signals in the calling thread. Call it before any other thread is started.
    ///
    /// SIGXFSZ too, which nobody waits for: a write beyond a limit that could not be raised fails, rather than to end the node.
    pub fn block() -> io::Result<Self> {
        let signals = blocked_signals(&[SIGHUP, SIGINT, SIGTERM])?;
        drop(blocked_signals(&[SIGXFSZ])?);
        Ok(Self { signals, stop: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// Waits for a signal.
    pub fn wait(&self) -> io::Result<Signalled> {
        loop {
            if let Some(signalled) = self.look(None)? {
                return Ok(signalled);
            }
        }
    }

    /// What [`wait`](Self::wait) would return at once.
    pub fn pending(&self) -> io::Result<Option<Signalled>> {
        self.look(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    fn look(&self, patience: Option<&Timespec>) -> io::Result<Option<Signalled>> {
        let mut fds = [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        match poll(&mut fds, patience) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if !fds[0].revents().is_empty() {
            return Ok(Some(Signalled::Stopped));
        }
        if !fds[1].revents().is_empty() {
            return read_signal(&self.signals).map(Signalled::Signal).map(Some);
        }
        Ok(None)
    }

    /// Ends all waits, now and later.
    pub fn stop(&self) {
        // Fails only when the counter is full, and then it wakes as well.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

/// Reads one `struct signalfd_siginfo`, whose first field is the number.
fn read_signal(fd: impl AsFd) -> io::Result<u32> {
    let mut info = [0u8; SIGNAL_LEN];
    rustix::io::read(fd, &mut info)?;
    Ok(u32::from_ne_bytes([info[0], info[1], info[2], info[3]]))
}

/// The C library's `sigset_t`: 1,024 bits, in glibc and in musl.
#[repr(C)]
struct SignalSet([u64; 16]);

#[expect(unsafe_code, reason = "rustix has no signal masks and no signalfd")]
fn blocked_signals(signals: &[i32]) -> io::Result<OwnedFd> {
    unsafe extern "C" {
        fn sigemptyset(set: *mut SignalSet) -> i32;
        fn sigaddset(set: *mut SignalSet, signal: i32) -> i32;
        fn pthread_sigmask(how: i32, set: *const SignalSet, old: *mut SignalSet) -> i32;
        fn signalfd(fd: i32, set: *const SignalSet, flags: i32) -> i32;
    }
    let mut set = SignalSet([0; 16]);
    // SAFETY: `set` is as large and aligned as the C library's `sigset_t` and outlives the calls.
    unsafe { sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: as above; the set is initialised.
        unsafe { sigaddset(&raw mut set, *signal) };
    }
    // SAFETY: `set` is initialised; a null `old` asks for nothing back.
    let error = unsafe { pthread_sigmask(SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: `set` is initialised; -1 asks for a new descriptor.
    let fd = unsafe { signalfd(-1, &raw const set, SFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

// Numbers of Linux on all architectures but alpha, mips, parisc and sparc.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIGXFSZ: i32 = 25;
const SIG_BLOCK: i32 = 0;
const SFD_CLOEXEC: i32 = 0o2_000_000;
/// Length of `struct signalfd_siginfo`.
const SIGNAL_LEN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_the_wait() {
        let signals = Signals::block().unwrap();
        signals.stop();
        assert_eq!(signals.wait().unwrap(), Signalled::Stopped);
        assert_eq!(signals.wait().unwrap(), Signalled::Stopped);
    }
}
