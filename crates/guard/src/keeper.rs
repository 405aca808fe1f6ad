//! The node's side: starts the guard, starts another if it dies, ends it.

use std::ffi::OsString;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::thread::gettid;

use crate::channel::{self, FIRED, READY};
use crate::shared::Shared;
use crate::table::Table;

/// How to start a guard: a program that calls [`run`](crate::run).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its file.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// What is to be guarded.
#[derive(Debug)]
pub struct Mount {
    /// A duplicate of the session's device.
    pub device: OwnedFd,
    /// Minor version that the session negotiated.
    pub minor: u32,
    /// Number of the connection.
    pub device_minor: u32,
}

/// Called when the guard has fired, on the keeper's thread.
pub type Watch = Box<dyn Fn() + Send + Sync>;

/// How a node's mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is unmounted: the kernel has nothing more of it.
    Unmounted,
    /// It is still there: the guard empties the caches and aborts the connection.
    Left,
}

/// Keeps one guard running. Dropped, it ends the guard as for [`End::Left`].
#[derive(Debug)]
pub struct Keeper {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    command: Command,
    mount: Mount,
    abort: Option<std::fs::File>,
    shared: Arc<Shared>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By which the running guard learns of the end.
    socket: Option<UnixStream>,
    /// The node's connection to its master.
    held: Option<OwnedFd>,
    is_ending: bool,
}

/// Hands the guard what must stay open until the caches are empty.
#[derive(Clone, Debug)]
pub struct Holder(Arc<Inner>);

impl Holder {
    /// Has the guard keep `connection` open until the caches are empty, in place of the one before: whoever is at its other
    /// end learns of the death of the node's process only then.
    pub fn hold(&self, connection: OwnedFd) {
        let mut state = self.0.state.lock();
        if let Some(socket) = &state.socket {
            tell_held(socket, &connection);
        }
        state.held = Some(connection);
    }
}

fn tell_held(socket: &UnixStream, connection: &OwnedFd) {
    if let Err(error) = channel::send_hold(socket, connection.as_fd()) {
        // Then the master may be faster than the guard.
        log::debug!("the guard was not given the connection: {error}");
    }
}

/// Becomes readable when the calling thread is gone.
///
/// A process that is killed has not ended before the last of its threads has, and one that invalidates a name may wait in the
/// kernel for answers that nobody gives any more: until the guard aborts the connection. This thread never waits so.
fn end_of_this_thread() -> io::Result<OwnedFd> {
    Ok(pidfd_open(gettid(), PIDFD_THREAD)?)
}

/// A guard that is ready.
struct Running {
    child: Child,
    socket: UnixStream,
}

impl Keeper {
    /// Starts a guard, waits until it is ready, and returns what to tell it by.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(command: Command, mount: Mount, watch: Watch) -> io::Result<(Self, Table)> {
        let abort = fuse::mount::open_abort(mount.device_minor)
            .inspect_err(|error| log::warn!("pages of a dead node's open files will stay readable: {error}"))
            .ok();
        let shared = Arc::new(Shared::new()?);
        let table = Table::new(Arc::clone(&shared));
        let (state, ended) = (Mutex::default(), Condvar::new());
        let inner = Arc::new(Inner { command, mount, abort, shared, state, ended });
        let mut keeper = Self { inner: Arc::clone(&inner), thread: None };
        let (started, start) = sync_channel(1);
        let thread = std::thread::Builder::new().name("guard".to_owned());
        keeper.thread = Some(thread.spawn(move || match inner.launch() {
            Ok(running) => {
                _ = started.send(Ok(()));
                inner.keep(running, &*watch);
            }
            Err(error) => _ = started.send(Err(error)),
        })?);
        start.recv().unwrap_or_else(|_| Err(io::Error::other("its thread has ended")))?;
        Ok((keeper, table))
    }

    /// Returns what hands the guard connections.
    pub fn holder(&self) -> Holder {
        Holder(Arc::clone(&self.inner))
    }

    /// Ends the guard, and waits until it is gone.
    pub fn end(mut self, end: End) {
        self.stop(end);
    }

    fn stop(&mut self, end: End) {
        if end == End::Unmounted {
            self.inner.shared.header().ended.store(1, Ordering::SeqCst);
        }
        let mut state = self.inner.state.lock();
        state.is_ending = true;
        let (socket, _held) = (state.socket.take(), state.held.take());
        drop(state);
        self.inner.ended.notify_all();
        if let Some(socket) = socket {
            _ = socket.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop(End::Left);
    }
}

impl Inner {
    /// Starts a process and waits until it guards. It guards as long as the calling thread lives.
    fn launch(&self) -> io::Result<Running> {
        let (socket, other) = UnixStream::pair()?;
        let mut command = std::process::Command::new(&self.command.program);
        command.arg0("holdfast").args(&self.command.args).current_dir("/");
        // Nothing that whoever started the node may wait for the end of.
        command.stdin(OwnedFd::from(other)).stdout(Stdio::null()).stderr(Stdio::null());
        let kept = socket.try_clone()?;
        let mut child = command.spawn()?;
        // The other end of the socket is the child's alone now.
        drop(command);
        match self.equip(&socket) {
            Ok(()) => {
                let mut state = self.state.lock();
                if let Some(connection) = &state.held {
                    tell_held(&socket, connection);
                }
                state.socket = Some(kept);
                drop(state);
                Ok(Running { child, socket })
            }
            Err(error) => {
                _ = child.kill();
                _ = child.wait();
                Err(error)
            }
        }
    }

    fn equip(&self, socket: &UnixStream) -> io::Result<()> {
        let node = end_of_this_thread()
            .or_else(|_| Ok::<_, io::Error>(pidfd_open(getpid(), PidfdFlags::empty())?))?;
        let descriptors = [self.mount.device.as_fd(), self.shared.file().as_fd(), node.as_fd()];
        channel::send(socket, self.mount.minor, descriptors, self.abort.as_ref().map(AsFd::as_fd))?;
        socket.set_read_timeout(Some(PATIENCE_START))?;
        let mut byte = [0];
        (&*socket).read_exact(&mut byte)?;
        if byte[0] != READY {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it answers as no guard does"));
        }
        socket.set_read_timeout(None)
    }

    /// The thread.
    fn keep(&self, mut running: Running, watch: &dyn Fn()) {
        loop {
            while let Some(byte) = running.next_byte() {
                if byte == FIRED {
                    log::warn!("the guard took back what the kernel had cached: the lease was nearly over");
                    watch();
                }
            }
            if self.state.lock().is_ending {
                return self.end_of(running.child);
            }
            let status = running.child.wait();
            if self.state.lock().is_ending {
                return;
            }
            log::error!("the guard of the mount has ended ({status:?}); starting another");
            let Some(next) = self.launch_again() else { return };
            running = next;
        }
    }

    /// Waits for a guard that was told of the end. One that is stopped, or cannot end the mount, would keep the node from leaving.
    fn end_of(&self, mut child: Child) {
        let is_unmounted = self.shared.header().ended.load(Ordering::SeqCst) != 0;
        let deadline = Instant::now() + if is_unmounted { PATIENCE_UNMOUNTED } else { PATIENCE_LEFT };
        while Instant::now() < deadline {
            match child.try_wait() {
                Ok(None) => std::thread::sleep(PAUSE_END),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        log::warn!("the guard of the mount does not end; it is killed");
        _ = child.kill();
        _ = child.wait();
    }

    /// Tries until it works; `None` if the end comes first.
    fn launch_again(&self) -> Option<Running> {
        loop {
            match self.launch() {
                Ok(running) => {
                    let mut state = self.state.lock();
                    if state.is_ending {
                        // It came too late to be told.
                        state.socket = None;
                        drop(state);
                        _ = running.socket.shutdown(Shutdown::Both);
                        self.end_of(running.child);
                        return None;
                    }
                    return Some(running);
                }
                Err(error) => log::error!("the mount has no guard: {error}"),
            }
            let mut state = self.state.lock();
            if !state.is_ending {
                self.ended.wait_for(&mut state, PAUSE);
            }
            if state.is_ending {
                return None;
            }
        }
    }
}

impl Running {
    /// What the guard says; `None` at its end.
    fn next_byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        loop {
            match self.socket.read(&mut byte) {
                Ok(0) => return None,
                Ok(_) => return Some(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

/// Of Linux 6.9: `linux:include/uapi/linux/pidfd.h`.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());
const PATIENCE_START: Duration = Duration::from_secs(10);
/// It has nothing left to do.
const PATIENCE_UNMOUNTED: Duration = Duration::from_secs(2);
/// It empties the kernel's caches of the mount first.
const PATIENCE_LEFT: Duration = Duration::from_secs(30);
/// Most end at once.
const PAUSE_END: Duration = Duration::from_millis(1);
/// Between two tries to start a guard.
const PAUSE: Duration = Duration::from_secs(1);
