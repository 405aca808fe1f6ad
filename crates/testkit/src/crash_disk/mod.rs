//! A disk that loses power.
//!
//! [`CrashDisk`] is a file system in memory, mounted through our own FUSE transport. It keeps a log of all that happens
//! to it, syncs included; what programs do on it is as real as on any other. From the log comes what a loss of power
//! at any point could leave: what was synced by then, and of all else what chance decides, within what a file system
//! promises ([`Promise`]).
//!
//! | What | After a loss of power |
//! | --- | --- |
//! | bytes and length of a file up to its last fsync or fdatasync | are there |
//! | writes and truncations after it | are there, or not, or torn between two sectors of 512 bytes, or each sector as it was after any of them: written back in any order |
//! | length | any that the file had since |
//! | names up to the last fsync of their directory | are there |
//! | names after it | see [`Promise`] |
//! | modes, owners, times | are not modelled: modes are those of the creation |
//!
//! Nothing else is assumed: no barrier between files, no order between data and names.

mod event;
mod replay;
mod server;
mod sparse;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use fuse::mount::{Mount, MountError, MountFlags, MountMethod, MountOptions, Unmount};
use fuse::{Config, InitFlags, Session, SessionEnd, SessionError};

pub use event::{DataChange, Event, Kind, NameChange, Reach};
pub use replay::{Image, Promise, Replay};
use server::Server;
pub use sparse::{SECTOR, Sparse};

/// A mounted disk. Unmounted when dropped, lazily.
pub struct CrashDisk {
    server: Arc<Server>,
    mount: Mount,
    session: Option<JoinHandle<Result<SessionEnd, SessionError>>>,
    start: Image,
}

impl CrashDisk {
    /// Mounts a disk that holds what `start` holds at the directory `at`. It says to have `total_bytes`, four fifths
    /// of them free at all times.
    ///
    /// # Errors
    ///
    /// Those of mounting: it needs root and a FUSE device.
    pub fn mount(at: &Path, start: Image, total_bytes: u64) -> io::Result<Self> {
        let server = Arc::new(Server::new(&start, total_bytes));
        let options = MountOptions {
            fsname: "crash-disk".into(),
            subtype: "crashdisk".to_owned(),
            allow_other: true,
            default_permissions: true,
            max_read: None,
            flags: MountFlags::NODEV,
            method: MountMethod::Direct,
        };
        let failed = |error: MountError| io::Error::other(error);
        let (mount, device): (Mount, OwnedFd) = fuse::mount::mount(at, &options).map_err(failed)?;
        let mut session = Session::start(device, &config()).map_err(io::Error::other)?;
        let handler = Arc::clone(&server);
        let session = std::thread::Builder::new()
            .name("crash-disk".to_owned())
            .spawn(move || session.run(&*handler))?;
        Ok(Self { server, mount, session: Some(session), start })
    }

    /// How many events there were. What a program was told before this call is in the log before this position.
    pub fn position(&self) -> usize {
        self.server.position()
    }

    /// Unmounts it and gives the log. Nobody may use it any more.
    pub fn finish(mut self) -> Log {
        self.end();
        Log { start: self.start.clone(), events: self.server.take_events() }
    }

    fn end(&mut self) {
        let Some(session) = self.session.take() else { return };
        if let Err(error) = self.mount.unmount(Unmount::Lazy) {
            log::error!("the crash disk stays mounted: {error}");
            return;
        }
        match session.join() {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => log::error!("the crash disk failed: {error}"),
            Err(_) => log::error!("the crash disk panicked"),
        }
    }
}

impl Drop for CrashDisk {
    fn drop(&mut self) {
        self.end();
    }
}

/// Everything that happened on a disk.
#[derive(Clone, Debug)]
pub struct Log {
    start: Image,
    events: Vec<Event>,
}

impl Log {
    /// How many events there are; positions go up to this number.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// What happened.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Tells what happened between two positions, one line each, with the names that files had last.
    pub fn describe(&self, from: usize, to: usize) -> String {
        let mut seen = self.replay(Promise::Nothing);
        let mut text = String::new();
        seen.advance(self.events.len().min(to));
        let paths = seen.seen().paths(self.events[..to.min(self.len())].iter());
        for (position, event) in self.events.iter().enumerate().take(to).skip(from) {
            text.push_str(&format!("{position}: {}\n", event.describe(&paths)));
        }
        text
    }

    /// Positions just before and just after each sync.
    pub fn sync_boundaries(&self) -> Vec<usize> {
        let is_sync = |event: &Event| matches!(event, Event::Sync(..) | Event::SyncDir(_));
        let syncs = self.events.iter().enumerate().filter(|(_, event)| is_sync(event));
        let mut positions: Vec<usize> = syncs.flat_map(|(index, _)| [index, index + 1]).collect();
        positions.dedup();
        positions
    }

    /// The log of a disk that does nothing at a sync of those paths for which `is_ignored`: what a program does that
    /// forgets one. Positions stay, and paths of directories end with a slash.
    pub fn with_syncs_ignored(&self, is_ignored: impl Fn(&str) -> bool) -> Self {
        let mut seen = self.replay(Promise::Nothing);
        seen.advance(self.len());
        let paths = seen.seen().paths(self.events.iter());
        let path = |ino: &u64| paths.get(ino).cloned().unwrap_or_default();
        let event = |event: &Event| match event {
            Event::Sync(ino, _) if is_ignored(&path(ino)) => Event::Nothing,
            Event::SyncDir(dir) if is_ignored(&(path(dir) + "/")) => Event::Nothing,
            other => other.clone(),
        };
        Self { start: self.start.clone(), events: self.events.iter().map(event).collect() }
    }

    /// Starts at the beginning.
    pub fn replay(&self, promise: Promise) -> Replay<'_> {
        Replay::new(&self.start, &self.events, promise)
    }
}

/// The kernel keeps what it reads, writes through, and asks about names once.
fn config() -> Config {
    let flags = InitFlags::ASYNC_READ
        | InitFlags::BIG_WRITES
        | InitFlags::MAX_PAGES
        | InitFlags::INIT_EXT
        | InitFlags::DO_READDIRPLUS
        | InitFlags::EXPLICIT_INVAL_DATA;
    Config { flags, ..Config::default() }
}

const ROOT: u64 = fuse::ROOT_ID;

#[cfg(test)]
mod tests;
