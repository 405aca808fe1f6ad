//! Volumes and mounts for one test, under a watchdog. Needs root and a FUSE device; says so without.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse::mount::Unmount;
use node::{GuardCommand, MountOptions, MountRequest, NodeError};
use volume::{FormatOptions, Volume};

/// Longest a mount may live before its connection is aborted. It only ends hangs: a busy disk may take minutes for what a test does.
const WATCHDOG: Duration = Duration::from_secs(600);

/// How long a mount may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts this very program as a guard, by the test below.
pub fn guard_by_test() -> GuardCommand {
    GuardCommand {
        program: "/proc/self/exe".into(),
        args: ["--exact", "common::be_guard", "--nocapture", AS_GUARD].map(Into::into).into(),
    }
}

/// No test: the guard of a mount of another test.
#[test]
fn be_guard() {
    if std::env::args().any(|arg| arg == AS_GUARD) {
        be_guard_now();
    }
}

/// Guards and ends the process.
pub fn be_guard_now() -> ! {
    let guarded = node::guard(|| {});
    std::process::exit(i32::from(guarded.is_err()));
}

/// A second filter that fits no test.
pub const AS_GUARD: &str = "as-guard";

/// A fresh volume, removed on drop. `None`, with a line that says so, where nothing can be mounted.
pub struct Scratch {
    pub dir: PathBuf,
}

impl Scratch {
    pub fn new() -> Option<Self> {
        Self::formatted(&FormatOptions::default())
    }

    pub fn formatted(format: &FormatOptions) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("holdfast-node-{}-{number}", std::process::id()));
        let scratch = Self::empty(&dir)?;
        volume::format(&scratch.volume(), format).unwrap();
        Some(scratch)
    }

    /// One without a volume yet, at `dir`.
    pub fn empty(dir: &Path) -> Option<Self> {
        static LOGGER: Once = Once::new();
        LOGGER.call_once(|| {
            let level = std::env::var("HOLDFAST_LOG").ok().and_then(|text| text.parse().ok());
            _ = log::set_logger(&Stderr)
                .map(|()| log::set_max_level(level.unwrap_or(log::LevelFilter::Warn)));
        });
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            println!("SKIPPED: mounting needs root and /dev/fuse");
            return None;
        }
        _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir).unwrap();
        Some(Self { dir: dir.to_owned() })
    }

    pub fn volume(&self) -> PathBuf {
        self.dir.join("vol")
    }

    pub fn open(&self) -> Volume {
        Volume::open(&self.volume()).unwrap()
    }

    /// Mounts at `name` with default options.
    pub fn mount(&self, name: &str) -> Mounted {
        self.mount_with(name, MountOptions::default()).expect("mounted")
    }

    pub fn mount_with(&self, name: &str, options: MountOptions) -> Result<Mounted, NodeError> {
        let mountpoint = self.dir.join(name);
        std::fs::create_dir_all(&mountpoint).unwrap();
        let request = MountRequest {
            volume: self.volume(),
            mountpoint: mountpoint.clone(),
            options,
            guard: guard_by_test(),
        };
        let (sender, ready) = channel();
        let thread =
            std::thread::spawn(move || node::mount(request, Box::new(move || sender.send(()).unwrap())));
        match ready.recv_timeout(WATCHDOG) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(thread.join().expect("no panic").expect_err("was never ready"));
            }
            Err(RecvTimeoutError::Timeout) => panic!("not ready after {WATCHDOG:?}"),
        }
        let (call_off, called_off) = channel::<()>();
        let watched = mountpoint.clone();
        std::thread::spawn(move || {
            if called_off.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout) {
                eprintln!("watchdog: aborting the connection of {}", watched.display());
                _ = fuse::mount::abort_at(&watched);
            }
        });
        Ok(Mounted { root: mountpoint, volume: self.volume(), thread: Some(thread), _call_off: call_off })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("{} is left behind: {error}", self.dir.display());
        }
    }
}

/// A mount served by threads of this process, unmounted on drop.
pub struct Mounted {
    pub root: PathBuf,
    volume: PathBuf,
    thread: Option<JoinHandle<Result<(), NodeError>>>,
    _call_off: Sender<()>,
}

impl Mounted {
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Unmounts, waits for the flush, and says how it ended.
    pub fn unmount(mut self) -> Result<(), NodeError> {
        unmount(&self.root);
        self.thread.take().unwrap().join().expect("no panic")
    }

    /// Asks the node's control socket.
    pub fn ask(&self, line: &str) -> serde_json::Value {
        answer(self.begin_to_ask(line))
    }

    /// As [`ask`](Self::ask); [`answer`] waits.
    pub fn begin_to_ask(&self, line: &str) -> UnixStream {
        let mount = volume::sources::find(&self.root).unwrap().unwrap();
        let mut stream = Volume::open(&self.volume).unwrap().connect(&mount.control_socket()).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        writeln!(stream, "{line}").unwrap();
        stream
    }

    pub fn stat(&self, name: &str) -> u64 {
        self.ask("stat")[name].as_u64().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        _ = fuse::mount::unmount(&self.root, Unmount::Lazy);
        let deadline = Instant::now() + Duration::from_secs(5);
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub fn answer(mut stream: UnixStream) -> serde_json::Value {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

/// Unmounts what nobody uses. It is busy for a moment where another test starts a child, which has copies of all descriptors until it
/// executes.
pub fn unmount(root: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = fuse::mount::unmount(root, Unmount::Normal) {
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{:<5} {}: {}", record.level(), record.target(), record.args());
    }

    fn flush(&self) {}
}
