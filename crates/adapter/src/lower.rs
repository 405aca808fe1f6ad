//! Ends of files that the kernel has too late are lowered: it is made to ask for them.
//!
//! The kernel cannot be told of an earlier end. It takes one from an answer to GETATTR, and from a short answer to READ only
//! where nothing moved since it asked; it fills the rest of the page with zeros in any case, and reads up to the end it
//! has. So before a READ is answered that met an end before the kernel's, the node looks at what the kernel has, through
//! its own mount, and if need be sends itself a GETATTR that way ([`fuse::mount::KernelFile`]).
//!
//! No lock is held while the kernel is asked. The GETATTR is answered at once ([`Lowering::asks`]): what it waits for in the
//! kernel are READs of pages behind the new end, and those wait for nothing but to see the new end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fuse::Errno;
use fuse::mount::{KernelFile, Mount};
use parking_lot::{Condvar, Mutex};
use types::Ino;
use vfs::EarlierEnd;

/// What lowers ends, of one mount.
#[derive(Debug)]
pub struct Lowering {
    mount: Arc<Mount>,
    /// Questions that the kernel is asked or has not dealt with.
    running: Mutex<Vec<Asking>>,
    ended: Condvar,
    /// Whether it was said that this cannot be done.
    is_told: AtomicBool,
}

/// A thread that has the kernel ask.
#[derive(Clone, Copy, Debug)]
struct Asking {
    ino: Ino,
    /// As the kernel names it in a request.
    thread: u32,
}

impl Lowering {
    /// Looks through `mount`.
    pub fn new(mount: Arc<Mount>) -> Arc<Self> {
        let (running, ended, is_told) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        Arc::new(Self { mount, running, ended, is_told })
    }

    /// Returns once the kernel has an end of the file that is not later than the one that `now` tells, and what it has. `None`
    /// if `now` tells none, or it could not be brought there: the kernel takes none while a write of its own is under way that
    /// moves the end, and that may be waiting for another node.
    pub fn lower(self: &Arc<Self>, end: EarlierEnd, now: impl Fn() -> Option<u64>) -> Option<u64> {
        let file = match self.mount.kernel_file(end.ino.0, end.generation) {
            Ok(file) => Arc::new(file),
            // Nobody has it any more who could be shown anything.
            Err(Errno::STALE) => return None,
            Err(errno) => {
                self.tell(end.ino, errno);
                return None;
            }
        };
        let deadline = Instant::now() + PATIENCE;
        let (mut asked, mut pause) = (0, PAUSE_MIN);
        loop {
            let has = file.size().ok()?;
            if has <= now()? {
                return Some(has);
            }
            if !self.is_asking(end.ino) {
                if asked == ASKED_MAX {
                    log::debug!("the kernel has a later end of ino {} than there is: {has}", end.ino);
                    return None;
                }
                asked += 1;
                self.ask(end.ino, Arc::clone(&file));
            }
            if Instant::now() > deadline {
                log::warn!("the kernel does not ask for the end of ino {}", end.ino);
                return None;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits until nothing that was asked of the kernel for `ino` can touch pages that it is given from here on.
    pub fn wait(&self, ino: Ino) {
        let deadline = Instant::now() + PATIENCE;
        let mut running = self.running.lock();
        while running.iter().any(|asking| asking.ino == ino) {
            if self.ended.wait_until(&mut running, deadline).timed_out() {
                return log::warn!("the kernel still drops pages behind an older end of ino {ino}");
            }
        }
    }

    /// Whether a thread is one whose questions are to be answered at once.
    pub fn asks(&self, thread: u32) -> bool {
        self.running.lock().iter().any(|asking| asking.thread == thread)
    }

    fn is_asking(&self, ino: Ino) -> bool {
        self.running.lock().iter().any(|asking| asking.ino == ino)
    }

    /// Has the kernel ask, on a thread of its own: it drops pages before the call returns, and waits for READs of them.
    fn ask(self: &Arc<Self>, ino: Ino, file: Arc<KernelFile>) {
        let this = Arc::clone(self);
        // Entered here, so that it is seen as soon as this returns.
        let (begin, begins) = std::sync::mpsc::sync_channel(1);
        let asked = thread::Builder::new().name("lower".to_owned()).spawn(move || {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            this.running.lock().push(Asking { ino, thread });
            _ = begin.send(());
            if let Err(errno) = file.refresh() {
                log::debug!("the end of ino {ino} is not here: {errno}");
            }
            drop(file);
            this.running.lock().retain(|asking| asking.thread != thread);
            this.ended.notify_all();
        });
        match asked {
            Ok(_) => _ = begins.recv(),
            Err(error) => log::warn!("no thread to lower the end of ino {ino}: {error}"),
        }
    }

    fn tell(&self, ino: Ino, errno: Errno) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "what the kernel has of ino {ino}, and perhaps of others, cannot be looked at: {errno}"
            );
        }
    }
}

/// How long the kernel may take. All it waits for are answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the kernel is made to ask.
const ASKED_MAX: u32 = 10;
/// Between two looks.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(2);
