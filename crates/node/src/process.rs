//! Whether other processes live.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process that can be asked whether it still lives, whatever its number is given to later.
#[derive(Debug)]
pub(crate) struct Process {
    pub pid: u32,
    /// Start time in clock ticks; 0 if it could not be read.
    pub start: u64,
    pidfd: Option<OwnedFd>,
}

impl Process {
    /// The process `pid`, which lives now.
    pub fn of(pid: Pid) -> Self {
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
        Self { pid: number, start: start_time(number).unwrap_or(0), pidfd }
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

/// Whether the process `pid` that started at `start` is gone.
pub(crate) fn is_gone(pid: u32, start: u64) -> bool {
    // Without its start time a number says nothing.
    start != 0 && start_time(pid) != Some(start)
}

/// Start time of the living process `pid` in clock ticks since the machine started; `None` for none and for
/// one that has ended and only waits to be collected.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
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
    fn a_name_with_blanks_and_parentheses_does_not_shift_fields() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(parse_start_time(stat), Some(4711));
        assert_eq!(parse_start_time(&stat.replace(" S ", " Z ")), None);
        assert_eq!(parse_start_time("12 (a"), None);
    }

    #[test]
    fn this_process_lives_and_another_of_its_number_does_not() {
        let pid = std::process::id();
        let start = start_time(pid).expect("we live");
        assert!(!is_gone(pid, start));
        assert!(is_gone(pid, start + 1));
        assert!(is_gone(u32::MAX, 1));
        assert!(!is_gone(u32::MAX, 0), "nothing is known of it");
        assert!(!Process::of(rustix::process::getpid()).dies_within(Duration::ZERO));
    }
}
