//! The guard's process.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use fuse::Notifier;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::channel::{self, FIRED, Heard, Outfit, READY};
use crate::shared::{Header, NEVER, Shared};
use crate::sweep::Sweeper;

/// Guards a mount: the whole of a process that a [`Keeper`](crate::Keeper) has started. Returns when there is nothing more
/// to guard; the process should end then.
///
/// Everything that is open but standard input, output and error is closed first, then `ready_to_log` is called.
///
/// # Errors
///
/// If the process was started in another way, or the system refuses what it needs.
pub fn run(ready_to_log: impl FnOnce()) -> io::Result<()> {
    stand_apart();
    ready_to_log();
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let Outfit { minor, device, memory, node, abort } = channel::receive(&socket)?;
    let sweeper = Sweeper::new(Notifier::of_device(device, minor), abort)?;
    if let Err(error) = mlockall(MlockAllFlags::CURRENT) {
        log::debug!("the guard may be swapped out: {error}");
    }
    // Not before: locking would fill all of it.
    sweeper.set_memory(Shared::map(memory)?);
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let mut guard = Guard { sweeper, socket, node, timer, held: None, state: State::Armed };
    guard.tell(READY);
    guard.watch()
}

/// Leaves everything behind that this process has of the node or shares with others.
fn stand_apart() {
    // Fails for the leader of a process group, which then has nothing to leave.
    _ = rustix::process::setsid();
    _ = rustix::process::chdir("/");
    ignore_signals();
    close_others();
    // Only root may. The node is worth more to the machine than the guard only as long as it lives.
    _ = fs::write("/proc/self/oom_score_adj", "-1000");
}

struct Guard {
    sweeper: Sweeper,
    socket: OwnedFd,
    /// Readable when the node's process is dead, or dying.
    node: OwnedFd,
    timer: OwnedFd,
    /// The node's connection to the master, which takes its end for the node's: rights are not given to others before
    /// the caches are empty.
    held: Option<OwnedFd>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The node is expected to extend its lease.
    Armed,
    /// It has not; the kernel's caches are being emptied.
    Sweeping {
        /// When what is stuck is freed by force; none once the node goes on, for it frees it, and none when it has emptied
        /// the caches itself.
        abort_at: Option<u64>,
    },
    /// They are empty, and the node has taken no note of it.
    Fired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    There,
    Gone,
}

impl Guard {
    /// Until there is nothing to guard.
    fn watch(&mut self) -> io::Result<()> {
        loop {
            let due = self.due(now());
            if self.wait(due)? == Node::Gone {
                return self.on_node_gone();
            }
            self.on_time(now());
        }
    }

    fn header(&self) -> &Header {
        // Set before the first call.
        self.sweeper.memory().map(Shared::header).expect("mapped at the start")
    }

    /// When to look again.
    fn due(&self, now: u64) -> u64 {
        let header = self.header();
        let length = header.length.load(Ordering::Relaxed);
        let look_again = now + (length / 10).clamp(LOOK_MIN, LOOK_MAX);
        match self.state {
            State::Armed => match header.until.load(Ordering::SeqCst) {
                NEVER => now + LOOK_MIN,
                // Not later than half a lease before the end: by then there may be more inodes.
                until => match until.saturating_sub(length / 2) {
                    half if now < half => half,
                    _ => fires_at(header, until),
                },
            },
            State::Sweeping { abort_at } => abort_at.unwrap_or(look_again).min(look_again),
            State::Fired => look_again,
        }
    }

    /// Sleeps until `due`, or something happens.
    fn wait(&mut self, due: u64) -> io::Result<Node> {
        // Zero would disarm it.
        let due = due.max(1);
        let it_value =
            Timespec { tv_sec: (due / 1_000_000) as i64, tv_nsec: (due % 1_000_000 * 1_000) as i64 };
        let time = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &time)?;
        let done = self.sweeper.done();
        let mut fds = [
            PollFd::new(&self.socket, PollFlags::IN | PollFlags::RDHUP),
            PollFd::new(&self.node, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::from_borrowed_fd(done, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Node::There),
            Err(error) => return Err(error.into()),
        }
        let (has_said, is_dead) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if has_said {
            match channel::hear(&self.socket) {
                Heard::Hold(connection) => self.held = Some(connection),
                Heard::Nothing => {}
                Heard::End => return Ok(Node::Gone),
            }
        }
        Ok(if is_dead { Node::Gone } else { Node::There })
    }

    fn on_time(&mut self, now: u64) {
        let header = self.header();
        let fired = header.fired.load(Ordering::Relaxed);
        let is_noted = header.acknowledged.load(Ordering::SeqCst) == fired;
        match self.state {
            State::Armed => {
                let until = header.until.load(Ordering::SeqCst);
                if until != NEVER && fires_at(header, until) <= now {
                    self.fire(now, until);
                }
            }
            State::Sweeping { abort_at } => {
                if self.sweeper.is_done() {
                    self.state = if is_noted { State::Armed } else { State::Fired };
                } else if is_noted || header.until.load(Ordering::SeqCst) == NEVER {
                    self.state = State::Sweeping { abort_at: None };
                } else if abort_at.is_some_and(|at| at <= now) {
                    log::error!("the kernel does not give pages back: aborting its connection");
                    self.sweeper.abort();
                    self.state = State::Sweeping { abort_at: None };
                }
            }
            State::Fired => {
                if is_noted {
                    self.state = State::Armed;
                }
            }
        }
    }

    fn fire(&mut self, now: u64, until: u64) {
        // Before anything is taken back: what the node hands out without having seen this is not new to it.
        self.header().fired.fetch_add(1, Ordering::SeqCst);
        self.sweeper.begin();
        self.tell(FIRED);
        self.sweeper.attributes();
        // In time, as long as the lease; late, because the whole machine stood still, what the node needs to go on.
        let abort_at = if now < until { until } else { now + PATIENCE.as_micros() as u64 };
        let unlisted = self.header().unlisted.load(Ordering::Relaxed);
        self.state = State::Sweeping { abort_at: Some(if unlisted == 0 { abort_at } else { now }) };
        log::warn!("the node did not renew its lease: what the kernel has cached of its mount is taken back");
    }

    /// The node has ended, or is dead.
    fn on_node_gone(&mut self) -> io::Result<()> {
        if self.header().ended.load(Ordering::SeqCst) != 0 {
            return Ok(());
        }
        // First, so that nothing waits for answers, ours included. Where that may not be done the end of this process does
        // it, and what could wait is left alone.
        self.sweeper.abort();
        if self.settle()? {
            self.sweeper.begin();
            self.settle()?;
        }
        self.held = None;
        log::warn!("the node's process is gone: its mount answers errors");
        Ok(())
    }

    /// Waits until the threads are done; false if they are not, which nothing should make them.
    fn settle(&self) -> io::Result<bool> {
        let give_up = now() + PATIENCE.as_micros() as u64;
        while !self.sweeper.is_done() {
            if now() >= give_up {
                return Ok(false);
            }
            let left = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let done = self.sweeper.done();
            match poll(&mut [PollFd::from_borrowed_fd(done, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Says something to the node. It may be stopped, and its buffer full of what it has not read.
    fn tell(&self, byte: u8) {
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        _ = rustix::net::send(&self.socket, &[byte], flags);
    }
}

/// When the caches must begin to be emptied, to be empty when the lease ends at `until`.
fn fires_at(header: &Header, until: u64) -> u64 {
    let length = header.length.load(Ordering::Relaxed);
    let inodes = header.used.load(Ordering::Relaxed);
    let work = inodes.saturating_mul(INODE_NS) / 1_000;
    // More than half would leave a running node too little time to renew.
    until.saturating_sub((length / 10).saturating_add(work).min(length / 2))
}

/// Microseconds of the clock that runs while the machine sleeps.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// The signals that end a node: it decides when it ends, not who sends them to everybody.
fn ignore_signals() {
    #[expect(unsafe_code, reason = "rustix has no signal dispositions")]
    fn ignore(number: i32) {
        unsafe extern "C" {
            fn signal(signal: i32, handler: usize) -> usize;
        }
        // SAFETY: no handler of ours is installed: the signal is ignored.
        unsafe { signal(number, SIG_IGN) };
    }
    [SIGHUP, SIGINT, SIGTERM].into_iter().for_each(ignore);
}

/// Closes what the node may have inherited and passed on; what it opened itself is closed by exec.
#[expect(unsafe_code, reason = "descriptors that belong to nobody here")]
fn close_others() {
    let Ok(list) = fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = list
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    // Without the descriptor of the list, which is closed already.
    for fd in open.into_iter().filter(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).is_ok()) {
        // SAFETY: called first in this process, when nothing in it has opened anything to keep.
        unsafe { rustix::io::close(fd) };
    }
}

/// How long the kernel may take when the time cannot be told from the lease.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// What an inode costs: twice what was measured, without pages.
const INODE_NS: u64 = 3_000;
const LOOK_MIN: u64 = 10_000;
const LOOK_MAX: u64 = 1_000_000;

// Numbers of Linux on all architectures.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIG_IGN: usize = 1;
