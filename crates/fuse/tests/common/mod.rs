//! Mounts the in-memory file system for one test, under a watchdog.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

pub mod mem_fs;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse::mount::{self, Mount, MountFlags, MountMethod, MountOptions, Unmount};
use fuse::{Config, Monitor, Negotiated, Notifier, Opcode, RingUse, Session, SessionEnd};

pub use mem_fs::MemFs;

/// Longest a test may take before its connection is aborted.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Long enough that a call which returns at once has returned, on a busy machine too.
pub const SOON: Duration = Duration::from_secs(20);

/// Long enough to call a call blocked.
pub const BLOCKED: Duration = Duration::from_millis(300);

/// A mounted file system, unmounted lazily on drop.
pub struct Mounted {
    pub fs: Arc<MemFs>,
    pub notifier: Notifier,
    pub monitor: Monitor,
    pub negotiated: Negotiated,
    pub mount: Arc<Mount>,
    directory: PathBuf,
    server: Option<JoinHandle<SessionEnd>>,
    watchdog: Option<(Sender<()>, JoinHandle<bool>)>,
}

/// Mounts with default settings; `None`, with a line that says so, without a FUSE device.
pub fn mount_default() -> Option<Mounted> {
    mount_with(MemFs::default(), &Config::default())
}

/// Mounts with default settings; the kernel judges access.
pub fn mount_judged() -> Option<Mounted> {
    let options = MountOptions { default_permissions: true, ..options() };
    mount_options(MemFs::default(), &Config::default(), &options)
}

pub fn mount_with(fs: MemFs, config: &Config) -> Option<Mounted> {
    mount_options(fs, config, &options())
}

fn options() -> MountOptions {
    MountOptions {
        fsname: "volume,with comma".into(),
        subtype: "memfs".to_owned(),
        allow_other: true,
        flags: MountFlags::NODEV | MountFlags::NOATIME,
        method: MountMethod::Direct,
        ..MountOptions::default()
    }
}

pub fn mount_options(fs: MemFs, config: &Config, options: &MountOptions) -> Option<Mounted> {
    static LOGGER: Once = Once::new();
    LOGGER.call_once(|| {
        _ = log::set_logger(&Stderr).map(|()| log::set_max_level(log::LevelFilter::Debug));
    });
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: there is no /dev/fuse on this machine");
        return None;
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("fuse-test-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (mount, device) = mount::mount(&directory, options).unwrap();
    let mount = Arc::new(mount);
    let mut session = Session::start(device, &by_rings_if_asked(config)).unwrap();
    let fs = Arc::new(fs);
    let (notifier, monitor, negotiated) = (session.notifier(), session.monitor(), *session.negotiated());
    let handler = Arc::clone(&fs);
    let server = std::thread::spawn(move || session.run(&*handler).unwrap());
    let watchdog = Some(start_watchdog(Arc::clone(&mount)));
    Some(Mounted { fs, notifier, monitor, negotiated, mount, directory, server: Some(server), watchdog })
}

/// With `HOLDFAST_FUSE_RINGS` set every test has its requests through io_uring, which the kernel must offer then.
fn by_rings_if_asked(config: &Config) -> Config {
    match std::env::var_os("HOLDFAST_FUSE_RINGS") {
        Some(_) if config.rings == RingUse::Off => Config { rings: RingUse::Required, ..*config },
        Some(_) | None => *config,
    }
}

/// Aborts the connection if it is not called off in time.
fn start_watchdog(mount: Arc<Mount>) -> (Sender<()>, JoinHandle<bool>) {
    let (call_off, called_off) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let expired = called_off.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout);
        if expired {
            eprintln!("watchdog: aborting the connection of {}", mount.mountpoint().display());
            mount.abort().unwrap();
        }
        expired
    });
    (call_off, thread)
}

impl Mounted {
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn root(&self) -> &Path {
        &self.directory
    }

    /// Returns how many requests of this kind have come.
    pub fn count(&self, opcode: Opcode) -> u64 {
        self.monitor.counters().snapshot().requests(opcode)
    }

    /// Returns how many requests of each kind came while `action` ran, FORGET and the like left out.
    pub fn requests_during<T>(&self, action: impl FnOnce() -> T) -> (T, Vec<(Opcode, u64)>) {
        let before = self.monitor.counters().snapshot();
        let result = action();
        let after = self.monitor.counters().snapshot();
        let background = [Opcode::Forget, Opcode::BatchForget, Opcode::Release, Opcode::Releasedir];
        let counts = Opcode::ALL
            .into_iter()
            .filter(|opcode| !background.contains(opcode))
            .map(|opcode| (opcode, after.requests(opcode) - before.requests(opcode)))
            .filter(|(_, count)| *count > 0)
            .collect();
        (result, counts)
    }

    /// Waits until `count` requests are parked.
    pub fn wait_parked(&self, count: usize) {
        wait_until("requests to be parked", || self.fs.parked_count() >= count);
    }

    /// Ends the session and returns how it ended.
    pub fn finish(mut self) -> SessionEnd {
        self.stop()
    }

    fn stop(&mut self) -> SessionEnd {
        let Some(server) = self.server.take() else { return SessionEnd::Unmounted };
        self.fs.release_all();
        self.mount.unmount(Unmount::Lazy).unwrap();
        let deadline = Instant::now() + SOON;
        while !server.is_finished() && Instant::now() < deadline {
            self.fs.release_all();
            std::thread::sleep(Duration::from_millis(2));
        }
        if !server.is_finished() {
            eprintln!("session did not end by unmounting; aborting");
            // By its own handle: the number may be that of another mount by now.
            self.mount.abort().unwrap();
        }
        let end = server.join().unwrap();
        let (call_off, watchdog) = self.watchdog.take().unwrap();
        _ = call_off.send(());
        let expired = watchdog.join().unwrap();
        _ = std::fs::remove_dir(&self.directory);
        assert!(!expired || std::thread::panicking(), "the watchdog had to abort the connection");
        end
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A call running on its own thread, to see whether it blocks.
pub struct Call<T> {
    thread: JoinHandle<T>,
}

pub fn call<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> Call<T> {
    Call { thread: std::thread::spawn(action) }
}

impl<T> Call<T> {
    /// Returns whether the call returns within `limit`.
    pub fn returns_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.thread.is_finished()
    }

    pub fn join(self) -> T {
        assert!(self.returns_within(Duration::from_secs(60)), "the call never returned");
        self.thread.join().unwrap()
    }
}

struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("{}: {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}
