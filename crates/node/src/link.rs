//! The way to the master: a call in this process, or a connection.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use volume::VolumeError;
use wire::{FromMaster, ToMaster};

use crate::error::NodeError;
use crate::frames::{FrameReader, FrameWriter, QUEUED_BYTES_MAX, ReadError, SendError, WhenFull};
use crate::service::{LOCAL, Service};
use crate::shell::{LinkTask, Shell, Work};
use crate::threads::spawn;

/// The way to the master.
pub(crate) enum Link {
    /// It is in this process.
    Local(Arc<Service>),
    /// It is in another.
    Socket(Socket),
}

/// A connection to the master.
pub(crate) struct Socket {
    stream: UnixStream,
    writer: Arc<FrameWriter>,
}

impl Link {
    /// Sends to the master. Returns whether it is in this process, so that its outputs are to be handed on.
    pub fn send(&self, message: ToMaster) -> bool {
        log::trace!("to the master: {message:?}");
        match self {
            Self::Local(service) => {
                service.tell(LOCAL, message);
                true
            }
            Self::Socket(socket) => {
                match socket.writer.send(&message) {
                    Ok(()) => {}
                    // The reader notices the end and looks for another master.
                    Err(SendError::Closed | SendError::Full) => {
                        log::debug!("not sent, the connection is closed: {message:?}");
                    }
                }
                false
            }
        }
    }

    /// Whether both are one link.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(a), Self::Local(b)) => Arc::ptr_eq(a, b),
            (Self::Socket(a), Self::Socket(b)) => Arc::ptr_eq(&a.writer, &b.writer),
            (Self::Local(_), Self::Socket(_)) | (Self::Socket(_), Self::Local(_)) => false,
        }
    }

    /// Ends a connection; the master in this process is not touched.
    pub fn close(&self) {
        match self {
            Self::Local(_) => {}
            Self::Socket(socket) => socket.writer.close(),
        }
    }

    /// Ends a connection once everything is written, or after `patience`.
    pub fn close_written(&self, patience: Duration) {
        match self {
            Self::Local(_) => {}
            Self::Socket(socket) => {
                if !socket.writer.drain(patience) {
                    log::warn!("the master did not read our last messages");
                }
                socket.writer.close();
            }
        }
    }
}

/// Finds the master or becomes it. The link is not in use before [`start`].
///
/// # Errors
///
/// What makes this process unable to use the volume at all. Waits, at most `patience`, where another
/// process has the master's lock and does not listen yet.
pub(crate) fn establish(shell: &Arc<Shell>, patience: Duration) -> Result<Arc<Link>, NodeError> {
    let since = std::time::Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(link) = try_establish(shell)? {
            return Ok(Arc::new(link));
        }
        let goes_on = shell.pause(pause);
        if !goes_on {
            return Err(NodeError::CalledOff);
        }
        if since.elapsed() >= patience {
            let pid = shell.volume.master_pid().ok().flatten();
            return Err(NodeError::MasterSilent { pid });
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// `None` where another process has the master's lock and does not listen.
fn try_establish(shell: &Arc<Shell>) -> Result<Option<Link>, NodeError> {
    if let Some(service) = shell.service().filter(|service| !service.is_stopping()) {
        return Ok(Some(Link::Local(service)));
    }
    if let Some(lock) = shell.volume.try_elect()? {
        let service = Service::start(shell, lock)?;
        shell.set_service(Some(Arc::clone(&service)));
        return Ok(Some(Link::Local(service)));
    }
    match shell.volume.connect(MASTER_SOCKET) {
        Ok(stream) => {
            // All that the log holds may wait for a master that stands still: whoever hands it on is not to.
            let log = usize::try_from(shell.options.log_memory_bytes).unwrap_or(usize::MAX);
            let when_full = WhenFull::Wait { beyond: log.saturating_mul(2).max(QUEUED_BYTES_MAX) };
            let writer = FrameWriter::new(&stream, when_full, Arc::clone(&shell.metrics))
                .map_err(|source| NodeError::io("use a socket", source))?;
            Ok(Some(Link::Socket(Socket { stream, writer: Arc::new(writer) })))
        }
        Err(error) if error.is_nobody_listening() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Puts a link to use: says hello and starts its threads.
///
/// The end of a connection is noticed by its reader alone, and only of the link in use: so the reader starts
/// last. A master that dies may accept one more connection before it does.
pub(crate) fn start(shell: &Arc<Shell>, link: &Arc<Link>) -> Result<(), NodeError> {
    match &**link {
        Link::Local(service) => {
            service.connect_local();
            shell.begin(link);
            if service.is_stopping() {
                shell.link_lost(link);
            }
            Ok(())
        }
        Link::Socket(socket) => {
            if let Some(guard) = shell.guard.get() {
                let stream =
                    socket.stream.try_clone().map_err(|source| NodeError::io("use a socket", source))?;
                guard.hold(stream.into());
            }
            shell.begin(link);
            start_threads(shell, link, socket).inspect_err(|_| shell.link_lost(link))
        }
    }
}

fn start_threads(shell: &Arc<Shell>, link: &Arc<Link>, socket: &Socket) -> Result<(), NodeError> {
    let stream = socket.stream.try_clone().map_err(|source| NodeError::io("use a socket", source))?;
    let reader = FrameReader::new(stream, Arc::clone(&shell.metrics));
    let writer = Arc::clone(&socket.writer);
    spawn("link-writer", move || writer.run())?;
    let (shell, link) = (Arc::clone(shell), Arc::clone(link));
    spawn("link-reader", move || read(&shell, &link, reader))?;
    Ok(())
}

/// The thread that reads what the master says. Ends with the connection.
fn read(shell: &Shell, link: &Link, mut reader: FrameReader) {
    loop {
        match reader.read::<FromMaster>() {
            Ok(message) => {
                shell.deliver(link, message);
                shell.pump(Work::OfCore);
            }
            Err(ReadError::End) => break,
            Err(error) => {
                if matches!(error, ReadError::Frame(_) | ReadError::Defect) {
                    shell.metrics.messages_refused.add(1);
                }
                log::error!("connection to the master: {error}");
                break;
            }
        }
    }
    shell.link_lost(link);
}

/// The thread that keeps a link to a master. Ends with the node, or when the volume cannot be used any more.
pub(crate) fn keep(shell: &Arc<Shell>) {
    let mut last_try: Option<Instant> = None;
    loop {
        match shell.next_link_task() {
            LinkTask::End => return,
            LinkTask::StopService(_) => {
                if let Some(service) = shell.set_service(None) {
                    shell.link_lost(&Link::Local(Arc::clone(&service)));
                    service.stop(shell);
                }
                shell.pause(PAUSE_FAILED);
            }
            LinkTask::Establish => {
                // A master that accepts and hangs up is short of something, and is not to be asked again at once.
                if last_try.is_some_and(|at| at.elapsed() < PAUSE_MAX) && !shell.pause(PAUSE_MAX) {
                    continue;
                }
                last_try = Some(Instant::now());
                replace(shell);
            }
        }
    }
}

/// Replaces a lost link, however long that takes: another node, or room on the disk, may come at any time. A disk
/// that only fails is given up on, or its users would wait for ever.
fn replace(shell: &Arc<Shell>) {
    let mut failing_since = None;
    // An attempt that failed may have asked for another, which this one is.
    while !shell.is_stopping() && shell.link().is_none() {
        if !shell.with_core(|core, _| core.may_join()) {
            // The kernel has something left of a membership that has ended: [`vfs::Output::Rejoin`] follows.
            return;
        }
        let failure = match establish(shell, PATIENCE_REPORT).and_then(|link| start(shell, &link)) {
            Ok(()) => {
                shell.note_no_master(None);
                return;
            }
            Err(failure) => failure,
        };
        let has_failed = match is_of_disk(&failure) {
            true => failing_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE_DISK,
            false => {
                failing_since = None;
                false
            }
        };
        if has_failed || !may_pass(&failure) {
            shell.call_core(|core, clock| core.lost(clock, describe(&failure)));
            return;
        }
        let text = describe(&failure);
        if shell.note_no_master(Some(text.clone())) && !shell.is_stopping() {
            log::warn!("no master yet: {text}");
        }
        if let Some(service) = shell.set_service(None) {
            service.stop(shell);
        }
        shell.pause(PAUSE_FAILED);
    }
}

/// Whether trying again may help.
fn may_pass(error: &NodeError) -> bool {
    use kv::EngineError::{Behind, Corrupt, Fenced, Full, Invalid, Io, Poisoned, Sequence, Unavailable};
    let engine = match error {
        NodeError::Engine(engine) | NodeError::Master(master::MasterError::Engine(engine)) => engine,
        NodeError::MasterSilent { .. }
        | NodeError::CalledOff
        | NodeError::Io { .. }
        | NodeError::Master(master::MasterError::Segments(_)) => return true,
        NodeError::Volume(error) => {
            use VolumeError::{Io, NoSpace, ReadOnly};
            return matches!(error, Io { .. } | NoSpace { .. } | ReadOnly { .. });
        }
        NodeError::Master(
            master::MasterError::Apply(_) | master::MasterError::Damaged { .. } | master::MasterError::Empty,
        )
        | NodeError::MountpointMissing { .. }
        | NodeError::MountpointNotADirectory { .. }
        | NodeError::MountpointBusy { .. }
        | NodeError::Mountpoint { .. }
        | NodeError::Mount(_)
        | NodeError::Session(_)
        | NodeError::Rings(_)
        | NodeError::Segments(_)
        | NodeError::MetadataMissing { .. }
        // What is mounted there later this node would not see: it has the directory open.
        | NodeError::SegmentsMissing { .. }
        | NodeError::Refused { .. }
        | NodeError::Lost { .. }
        | NodeError::LostBefore { .. }
        | NodeError::NotFlushed { .. }
        | NodeError::DiskFull { .. } => return false,
    };
    match engine {
        Unavailable { .. } | Full { .. } | Poisoned { .. } | Io { .. } | Fenced { .. } => true,
        Corrupt { .. } | Behind { .. } | Sequence { .. } | Invalid { .. } => false,
    }
}

/// Whether the volume's disk itself answers with errors. For room on a full one is waited.
fn is_of_disk(error: &NodeError) -> bool {
    use kv::EngineError::{Io, Poisoned};
    matches!(
        error,
        NodeError::Engine(Io { .. } | Poisoned { .. })
            | NodeError::Master(master::MasterError::Engine(Io { .. } | Poisoned { .. }))
    ) || matches!(error, NodeError::Volume(VolumeError::ReadOnly { .. }))
        || matches!(error, NodeError::Volume(error @ VolumeError::Io { .. }) if !error.is_full())
}

/// An error with its causes, in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Name of the master's socket in the volume.
pub(crate) const MASTER_SOCKET: &str = "master";

const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// After an attempt that failed for a reason that takes time to pass.
const PAUSE_FAILED: Duration = Duration::from_secs(1);
/// A disk that has answered every attempt for this long with errors does not come back.
const PATIENCE_DISK: Duration = Duration::from_secs(20);
/// After this long without a master the log says so.
const PATIENCE_REPORT: Duration = Duration::from_secs(10);
