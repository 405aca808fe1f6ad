//! A disk that is slow, hangs or fails when told to: one file `disk` in a FUSE mount, served by this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse::mount::{Mount, MountFlags, MountMethod, MountOptions, Unmount};
use fuse::{
    Attr, Config, DirBuffer, Entry, Errno, FileKind, Forget, Handler, InitFlags, OpenReplyFlags, Opened,
    Operation, Reply, Request, Session, Statfs,
};
use parking_lot::{Condvar, Mutex};

/// A mounted slow disk. Unmounted when dropped.
pub struct SlowDisk {
    server: Arc<Server>,
    mount: Mount,
    session: Option<JoinHandle<()>>,
    dir: PathBuf,
}

struct Server {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    bytes: Vec<u8>,
    reads: u64,
    /// How many reads and writes wait for the end of a hang.
    hanging: u64,
    trouble: Trouble,
}

/// What happens to reads and writes.
#[derive(Clone, Copy)]
enum Trouble {
    None,
    /// They wait until then.
    Until(Instant),
    /// They wait until there is no trouble any more.
    Hang,
    Fail,
}

impl SlowDisk {
    /// Mounts one of `len` bytes at the new directory `dir`.
    pub fn mount(dir: &Path, len: usize) -> Self {
        std::fs::create_dir(dir).expect("a directory of its own");
        let state = State { bytes: vec![7; len], reads: 0, hanging: 0, trouble: Trouble::None };
        let server = Arc::new(Server { state: Mutex::new(state), changed: Condvar::new() });
        let options = MountOptions {
            fsname: "slow-disk".into(),
            subtype: "slowdisk".to_owned(),
            allow_other: true,
            default_permissions: true,
            max_read: None,
            flags: MountFlags::NODEV,
            method: MountMethod::Direct,
        };
        let (mount, device) = fuse::mount::mount(dir, &options).expect("mounted");
        let flags =
            InitFlags::ASYNC_READ | InitFlags::BIG_WRITES | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
        let mut session = Session::start(device, &Config { flags, ..Config::default() }).expect("a session");
        let handler = Arc::clone(&server);
        let session = std::thread::spawn(move || drop(session.run(&*handler)));
        Self { server, mount, session: Some(session), dir: dir.to_owned() }
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// Everything that is read or written from now on waits for so long.
    pub fn stall(&self, time: Duration) {
        self.set(Trouble::Until(Instant::now() + time));
    }

    /// Everything waits until [`Self::heal`].
    pub fn hang(&self) {
        self.set(Trouble::Hang);
    }

    /// Everything fails until [`Self::heal`].
    pub fn fail(&self) {
        self.set(Trouble::Fail);
    }

    /// Takes the mount away, as `umount -l` does.
    pub fn vanish(&self) {
        self.mount.unmount(Unmount::Lazy).expect("it was mounted");
    }

    pub fn heal(&self) {
        self.set(Trouble::None);
    }

    /// How many reads there were.
    pub fn reads(&self) -> u64 {
        self.server.state.lock().reads
    }

    /// Whether something waits for the end of a hang.
    pub fn is_waited_for(&self) -> bool {
        self.server.state.lock().hanging > 0
    }

    fn set(&self, trouble: Trouble) {
        self.server.state.lock().trouble = trouble;
        self.server.changed.notify_all();
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.heal();
        // It may have vanished already.
        let _ = self.mount.unmount(Unmount::Lazy);
        if let Some(session) = self.session.take() {
            let _ = session.join();
        }
    }
}

impl Server {
    /// Waits as the trouble wants, and says whether it fails.
    fn suffer(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        loop {
            match state.trouble {
                Trouble::None => return Ok(()),
                Trouble::Fail => return Err(Errno::IO),
                Trouble::Until(end) if Instant::now() >= end => return Ok(()),
                Trouble::Until(end) => drop(self.changed.wait_until(&mut state, end)),
                Trouble::Hang => {
                    state.hanging += 1;
                    self.changed.wait(&mut state);
                    state.hanging -= 1;
                }
            }
        }
    }

    fn attr(&self, ino: u64) -> Attr {
        let (mode, size) = match ino {
            fuse::ROOT_ID => (0o40_755, 0),
            _ => (0o100_644, self.state.lock().bytes.len() as u64),
        };
        Attr { ino, mode, nlink: 1, size, blksize: 4096, ..Attr::default() }
    }

    fn read(&self, offset: u64, size: u32, reply: Reply) {
        self.state.lock().reads += 1;
        if let Err(errno) = self.suffer() {
            reply.error(errno);
            return;
        }
        let state = self.state.lock();
        let start = (offset as usize).min(state.bytes.len());
        let end = (start + size as usize).min(state.bytes.len());
        reply.data(&state.bytes[start..end]);
    }

    fn write(&self, offset: u64, data: &[u8], reply: Reply) {
        if let Err(errno) = self.suffer() {
            reply.error(errno);
            return;
        }
        let mut state = self.state.lock();
        match state.bytes.get_mut(offset as usize..offset as usize + data.len()) {
            Some(place) => {
                place.copy_from_slice(data);
                reply.written(data.len() as u32);
            }
            None => drop(reply.error(Errno::NOSPC)),
        }
    }
}

impl Handler for Server {
    fn handle(&self, request: Request<'_>, reply: Reply) {
        let ino = request.header.nodeid;
        let Ok(operation) = request.operation() else {
            reply.malformed();
            return;
        };
        match operation {
            Operation::Lookup { name } if name == "disk" => {
                let entry =
                    Entry { nodeid: 2, generation: 1, entry_ttl: TTL, attr_ttl: TTL, attr: self.attr(2) };
                reply.entry(&entry);
            }
            Operation::Lookup { .. } => drop(reply.error(Errno::NOENT)),
            Operation::Getattr { .. } | Operation::Setattr(_) => drop(reply.attr(&self.attr(ino), TTL)),
            Operation::Open { .. } | Operation::Opendir { .. } => {
                // Each read is to come here, a loop device's too.
                reply.opened(Opened { flags: OpenReplyFlags::DIRECT_IO, ..Opened::default() });
            }
            Operation::Read { offset, size, .. } => self.read(offset, size, reply),
            Operation::Write { offset, data, .. } => self.write(offset, data, reply),
            Operation::Readdir { offset, size, .. } => {
                let mut buffer = DirBuffer::new(size);
                if offset == 0 {
                    assert!(buffer.push(2, 1, FileKind::Regular, "disk".as_ref()));
                }
                reply.dir(&buffer);
            }
            Operation::Statfs => {
                let statfs =
                    Statfs { blocks: 1000, block_size: 4096, name_len_max: 255, ..Statfs::default() };
                reply.statfs(&statfs);
            }
            Operation::Release { .. }
            | Operation::Releasedir { .. }
            | Operation::Flush { .. }
            | Operation::Fsync { .. }
            | Operation::Access { .. } => drop(reply.ok()),
            _ => drop(reply.error(Errno::NOSYS)),
        };
    }

    fn interrupt(&self, _: u64) {}

    fn forget(&self, _: &[Forget]) {}

    fn destroy(&self) {}
}

const TTL: Duration = Duration::from_secs(3600);
