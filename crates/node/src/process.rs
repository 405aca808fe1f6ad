//! Whether other processes live.
//!
//! A number names a process within one namespace of such numbers (pid_namespaces(7)): a container has its own, and does not see those of
//! other containers. So what is recorded of a process has the namespace in which it was seen, and says nothing in another.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

/// A process that can be asked whether it still lives, whatever its number is given to later.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its number, 0 if it is in a namespace out of sight.
    pub pid: u32,
    /// The namespace of numbers and the start time, as [`stamp`] puts them; 0 if they could not be read.
    pub start: u64,
    pidfd: Option<OwnedFd>,
}

impl Process {
    /// The process at the other end of a socket, which lives now, and its user.
    pub fn behind(socket: &impl AsFd) -> io::Result<(Self, u32)> {
        let credentials = getsockopt(socket, PeerCredentials)?;
        let Some(pid) = Pid::from_raw(credentials.pid()) else {
            return Ok((Self { pid: 0, start: 0, pidfd: None }, credentials.uid()));
        };
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
        Ok((Self { pid: number, start: stamp(number), pidfd }, credentials.uid()))
    }

    /// Whether its end can be waited for.
    pub fn is_watched(&self) -> bool {
        self.pidfd.is_some()
    }

    /// Whether it dies within `patience`. The kernel closes a dying process's sockets a little before.
    ///
    /// False for a process of which nothing can be known.
    pub fn dies_within(&self, patience: Duration) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let timeout =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
        poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0)
    }
}

/// Whether the process `pid` with this stamp is gone for certain.
pub(crate) fn is_gone(pid: u32, stamp: u64) -> bool {
    let is_another = |start: Option<u64>| start.map(|start| start & START_MASK) != Some(stamp & START_MASK);
    can_be_told(stamp) && start_time(pid).is_ok_and(is_another)
}

/// Whether the process `pid` may have this directory open: not for certain where its descriptors cannot be read.
pub(crate) fn may_have_open(pid: u32, dir: &Path) -> bool {
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let Ok(wanted) = fs::metadata(dir).map(id) else { return true };
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return true };
    // One that is closed meanwhile is not the one that a node keeps.
    descriptors.flatten().any(|link| fs::metadata(link.path()).map(id).is_ok_and(|found| found == wanted))
}

/// Whether a process with this stamp could be seen from here.
pub(crate) fn can_be_told(stamp: u64) -> bool {
    // Of earlier versions there is no namespace; without a start time a number says nothing.
    let namespace = stamp >> START_BITS;
    stamp != 0 && (namespace == 0 || namespace == own_namespace())
}

/// What tells the process `pid` of this namespace from others of its number: the namespace in the upper 24 bits, and its start time below. 0 for
/// none.
pub(crate) fn stamp(pid: u32) -> u64 {
    let start = start_time(pid).ok().flatten();
    start.map_or(0, |start| own_namespace() << START_BITS | start & START_MASK)
}

/// The namespace of process numbers that this process is in, in 24 bits.
fn own_namespace() -> u64 {
    static OWN: OnceLock<u64> = OnceLock::new();
    *OWN.get_or_init(|| fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino() & 0xff_ffff))
}

/// Clock ticks fill them in 300 years.
const START_BITS: u32 = meta::MemberRecord::START_BITS;
const START_MASK: u64 = (1 << START_BITS) - 1;

/// Start time of the living process `pid` in clock ticks since the machine started; `None` for none and for
/// one that has ended and only waits to be collected.
///
/// # Errors
///
/// It cannot be told: descriptors or memory are short, or the process is not shown to this user (`hidepid`, proc(5)).
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let error = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => return Ok(parse_start_time(&stat)),
        Err(error) => error,
    };
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match number.map(test_kill_process) {
        Some(Err(Errno::SRCH)) | None => Ok(None),
        Some(_) => Err(error),
    }
}

/// Fields as in proc_pid_stat(5); the second is a name in parentheses that may hold anything.
fn parse_start_time(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_gone_for_certain_is_gone() {
        let own = std::process::id();
        assert!(!is_gone(own, stamp(own)));
        assert!(is_gone(own, stamp(own) ^ 1), "another had the number");
        // Numbers end below.
        assert!(is_gone(i32::MAX as u32, stamp(own)));
        assert!(!is_gone(i32::MAX as u32, 0), "of which nothing is known");
    }

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_fields() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(parse_start_time(stat), Some(4711));
        assert_eq!(parse_start_time(&stat.replace(" S ", " Z ")), None);
        assert_eq!(parse_start_time("12 (a"), None);
    }

    #[test]
    fn this_process_lives_and_another_of_its_number_does_not() {
        let pid = std::process::id();
        let stamp = stamp(pid);
        assert!(can_be_told(stamp) && !is_gone(pid, stamp));
        assert!(is_gone(pid, stamp + 1));
        assert!(is_gone(u32::MAX, stamp) && is_gone(u32::MAX, 1));
        assert!(!is_gone(u32::MAX, 0), "nothing is known of it");
        assert!(!is_gone(u32::MAX, stamp ^ 1 << START_BITS), "it may live in another namespace");
        let (here, there) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let (process, user) = Process::behind(&here).expect("it has credentials");
        assert_eq!((process.pid, process.start, user), (pid, stamp, rustix::process::getuid().as_raw()));
        assert!(!process.dies_within(Duration::ZERO));
        drop(there);
    }
}
