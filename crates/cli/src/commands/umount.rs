//! `holdfast umount` and the unmount helpers: unmounts, and waits until the node has flushed and ended.

use std::io::{ErrorKind, IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{PidfdFlags, pidfd_open};
use volume::{Volume, sources};

use crate::args::UmountArgs;
use crate::backend;
use crate::failure::Failure;

/// Unmounts and waits.
pub fn run(args: &UmountArgs) -> Result<(), Failure> {
    let timeout = Duration::from_secs(args.timeout);
    unmount(&Request { mountpoint: args.mountpoint.clone(), mode: Mode::Wait, timeout })
}

/// What to unmount and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The mount point.
    pub mountpoint: PathBuf,
    /// How.
    pub mode: Mode,
    /// Longest wait for the flush.
    pub timeout: Duration,
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not while in use; returns after the flush.
    Wait,
    /// Ends what is in progress, cuts off who uses it, and returns after the flush.
    Force,
    /// Takes the mount out of the tree at once and returns; the flush follows the last use.
    Lazy,
}

/// How long umount(8) waits through its helper.
pub const HELPER_TIMEOUT: Duration = Duration::from_secs(300);

/// Unmounts and, unless lazily, waits until the node has ended.
///
/// # Errors
///
/// Exit code 32 when it could not be unmounted, 1 when it was but not everything reached the volume, 2
/// when that could not be found out.
pub fn unmount(request: &Request) -> Result<(), Failure> {
    let given = request.mountpoint.display();
    let entry = sources::find(&request.mountpoint)
        .map_err(|error| Failure::mount(format!("{given}: {error}")))?
        .ok_or_else(|| Failure::mount(format!("{given}: not mounted")))?;
    if !entry.is_holdfast() {
        return Err(Failure::mount(format!("{given}: not a Holdfast mount but {}", entry.fstype)));
    }
    if request.mode == Mode::Lazy {
        return detach_kernel(&entry.mountpoint, Mode::Lazy);
    }
    let deadline = Instant::now() + request.timeout;
    let watch = Watch::start(&entry);
    let mut progress = Progress::new(format!("{given}: still flushing"));
    wait_for_kernel(&entry.mountpoint, request.mode, &mut progress)?;
    if request.mode == Mode::Wait
        && let Some(elsewhere) = elsewhere(&entry)
    {
        // A copy of the mount (`mount --bind`): its node goes on.
        eprintln!("holdfast: {given}: unmounted; its node goes on for {}", elsewhere.display());
        return Ok(());
    }
    match watch {
        Some(watch) => watch.finish(deadline, &mut progress),
        None if entry.source.try_exists().is_ok_and(|is_there| !is_there) => Err(Failure::unable(format!(
            "{given}: unmounted, but its volume is no longer at {}: whether its node could flush all cannot be seen",
            entry.source.display()
        ))),
        // Nobody answered before either: a node that died, whose loss was counted when it did.
        None => Err(Failure::unable(format!(
            "{given}: unmounted, but its node did not answer; it may have lost changes"
        ))),
    }
}

/// Where else the same file system is mounted, as far as can be seen from here.
fn elsewhere(entry: &sources::MountEntry) -> Option<PathBuf> {
    // The number of one that is gone may be another's by now.
    let is_same = |other: &sources::MountEntry| {
        (other.major, other.minor) == (entry.major, entry.minor)
            && other.is_holdfast()
            && other.source == entry.source
    };
    sources::mounts().ok()?.into_iter().find(is_same).map(|other| other.mountpoint)
}

/// What is mounted below a mount point, which keeps that in use.
fn mounted_within(mountpoint: &Path) -> Option<PathBuf> {
    let is_within = |other: &sources::MountEntry| {
        other.mountpoint.starts_with(mountpoint) && other.mountpoint != mountpoint
    };
    sources::mounts().ok()?.into_iter().find(is_within).map(|inner| inner.mountpoint)
}

/// Takes `mountpoint` out of the tree without waiting for anybody.
pub fn detach(mountpoint: &Path) -> Result<(), Failure> {
    detach_kernel(mountpoint, Mode::Lazy)
}

/// A node that was told to say when it has flushed.
struct Watch {
    stream: UnixStream,
    volume: Volume,
    socket: String,
    /// Its process; `None` where the kernel would not say.
    process: Option<OwnedFd>,
    /// What it has said so far.
    answer: Vec<u8>,
}

impl Watch {
    /// Asks the node, before it is unmounted, to report its end. `None` if it cannot be asked.
    fn start(entry: &sources::MountEntry) -> Option<Self> {
        let volume = Volume::open(&entry.source).ok()?;
        let socket = entry.control_socket();
        let mut stream = backend::open(&volume, &socket, "umount").ok()?;
        let peer = rustix::net::sockopt::socket_peercred(&stream).ok();
        let process = peer.and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()).ok());
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        // White space says that the node has taken the line in; without it we go on after a second.
        let mut first = [0u8; 1];
        let answer = match stream.read(&mut first) {
            Ok(0) => return None,
            Ok(len) => first[..len].to_vec(),
            Err(_) => Vec::new(),
        };
        Some(Self { stream, volume, socket, process, answer })
    }

    fn finish(mut self, deadline: Instant, progress: &mut Progress) -> Result<(), Failure> {
        let mut chunk = [0u8; 4096];
        let patience = deadline.saturating_duration_since(Instant::now());
        let (mut look, mut problem) = (Instant::now() + PAUSE_LOOK.min(patience / 2), None);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if Instant::now() >= look && !left.is_zero() {
                look += PAUSE_LOOK;
                problem = self.problem(left);
                progress.note(problem.clone());
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(len) => self.answer.extend_from_slice(&chunk[..len]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    progress.tick()
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            if Instant::now() >= deadline {
                let problem = problem.map_or(String::new(), |problem| format!(": {problem}"));
                let text = format!("unmounted, but the node has not finished its flush in time{problem}");
                return Err(Failure::unable(text));
            }
        }
        if let Some(process) = &self.process {
            wait_for_end(process, deadline);
        }
        verdict(&self.answer)
    }
}

impl Watch {
    /// What keeps the node from ending, in its words, if it says so within that time.
    fn problem(&self, patience: Duration) -> Option<String> {
        let status = backend::ask_within(&self.volume, &self.socket, "status", patience).ok()?;
        status["problem"].as_str().map(str::to_owned)
    }
}

/// What the node's last words mean.
fn verdict(answer: &[u8]) -> Result<(), Failure> {
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(answer) else {
        return Err(Failure::problem("unmounted, but the node ended without confirming its flush"));
    };
    if document["clean"] == true {
        return Ok(());
    }
    let cause = document["error"].as_str().unwrap_or("no cause given");
    Err(Failure::problem(format!("unmounted, but not everything reached the volume: {cause}")))
}

/// Between two questions what keeps a node from ending.
const PAUSE_LOOK: Duration = Duration::from_secs(2);

/// Waits for the end of a process.
fn wait_for_end(process: &OwnedFd, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    // A signal or an error only means that we return a moment early.
    let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout));
}

/// Unmounts on a thread of its own, since the kernel may let the node flush first.
fn wait_for_kernel(mountpoint: &Path, mode: Mode, progress: &mut Progress) -> Result<(), Failure> {
    let (sender, receiver) = channel();
    let path = mountpoint.to_owned();
    std::thread::spawn(move || sender.send(detach_kernel(&path, mode)));
    wait_with_progress(&receiver, progress)
}

fn wait_with_progress(
    receiver: &Receiver<Result<(), Failure>>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    loop {
        match receiver.recv_timeout(Duration::from_secs(1)) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => progress.tick(),
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::mount("unmounting failed")),
        }
    }
}

fn detach_kernel(mountpoint: &Path, mode: Mode) -> Result<(), Failure> {
    let flags = match mode {
        Mode::Wait => UnmountFlags::NOFOLLOW,
        Mode::Force => UnmountFlags::NOFOLLOW | UnmountFlags::FORCE,
        Mode::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    let deadline = Instant::now() + OWN_USE_MAX;
    let mut unmounted = rustix::mount::unmount(mountpoint, flags);
    while unmounted == Err(Errno::BUSY) && mode == Mode::Wait && Instant::now() < deadline {
        std::thread::sleep(OWN_USE_PAUSE);
        unmounted = rustix::mount::unmount(mountpoint, flags);
    }
    if unmounted == Err(Errno::BUSY) && mode == Mode::Force {
        // The kernel has cut it off before it looked who uses it: what is left in the tree answers errors alone.
        unmounted = rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
        let at = mountpoint.display();
        eprintln!("holdfast: {at}: cut off while in use: programs that have files open there get errors");
    }
    match unmounted {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => fusermount(mountpoint, mode),
        Err(Errno::BUSY) => Err(Failure::mount(match mounted_within(mountpoint) {
            Some(inner) => format!("{}: busy; {} is mounted in it", mountpoint.display(), inner.display()),
            None => {
                format!("{}: busy; a process has a file open or its directory there", mountpoint.display())
            }
        })),
        Err(error) => Err(Failure::mount(format!("{}: {error}", mountpoint.display()))),
    }
}

/// The node looks at files through its own mount at times, for a moment (docs/locking.md, "The end of a file").
const OWN_USE_MAX: Duration = Duration::from_millis(500);
const OWN_USE_PAUSE: Duration = Duration::from_millis(5);

/// Unmounts a user's own mount.
fn fusermount(mountpoint: &Path, mode: Mode) -> Result<(), Failure> {
    let flags = if mode == Mode::Lazy { "-uz" } else { "-u" };
    let output = Command::new("fusermount3").arg(flags).arg("--").arg(mountpoint).output();
    let output = output.map_err(|error| Failure::mount(format!("cannot run fusermount3: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("fusermount3: ");
    let at = mountpoint.display();
    // It looks among the mounts of its caller alone, and says that there is none.
    Err(Failure::mount(
        match said.contains("not found in") || said.contains("could not determine username") {
            true => format!("{at}: only root, or who mounted it, may unmount it (fusermount3: {said})"),
            false => said.to_owned(),
        },
    ))
}

/// A line that says the wait goes on: once a second on a terminal, in place; nowhere else.
struct Progress {
    what: String,
    since: Instant,
    is_shown: bool,
    has_problem: bool,
}

impl Progress {
    fn new(what: String) -> Self {
        Self { what, since: Instant::now(), is_shown: false, has_problem: false }
    }

    fn tick(&mut self) {
        if std::io::stderr().is_terminal() {
            eprint!("\r{}, {} s", self.what, self.since.elapsed().as_secs());
            self.is_shown = true;
        }
    }
}

impl Progress {
    /// Says once, wherever standard error goes, that there is a problem.
    fn note(&mut self, problem: Option<String>) {
        let Some(problem) = problem.filter(|_| !self.has_problem) else { return };
        let start = if self.is_shown { "\n" } else { "" };
        eprintln!("{start}holdfast: {}: {problem}", self.what);
        (self.has_problem, self.is_shown) = (true, false);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            eprintln!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_tells_whether_the_flush_was_clean() {
        for (answer, code) in [
            (r#" {"clean": true}"#, None),
            (r#"{"clean": false, "error": "disk full"}"#, Some(1)),
            ("", Some(1)),
            ("garbage", Some(1)),
            ("{}", Some(1)),
        ] {
            assert_eq!(verdict(answer.as_bytes()).err().map(|failure| failure.code), code, "{answer}");
        }
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        for mountpoint in ["/proc", "/nowhere", "/proc/self"] {
            let mountpoint = PathBuf::from(mountpoint);
            let request = Request { mountpoint, mode: Mode::Wait, timeout: Duration::ZERO };
            assert_eq!(unmount(&request).expect_err("refused").code, 32);
        }
    }
}
