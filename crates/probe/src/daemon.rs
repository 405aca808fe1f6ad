//! Processes that answer for FUSE file systems.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};

/// The process that answers for a FUSE file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Daemon {
    pub pid: u32,
    pub name: String,
}

impl Daemon {
    /// Of the file system that `path` is on; none of those that are the kernel's own.
    pub fn of(path: &Path) -> Option<Self> {
        let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
        // Connections have numbers of devices that are none.
        if found.stx_dev_major == 0 { Self::of_connection(found.stx_dev_minor) } else { None }
    }

    /// The process that has the connection open. `fuse_connection` is told by the kernel since 6.11.
    pub fn of_connection(connection: u32) -> Option<Self> {
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let holds = |pid: &u32| {
            let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let of_fuse =
                open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("/dev/fuse")));
            of_fuse.into_iter().any(|entry| {
                let name = entry.file_name();
                let told = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", name.to_string_lossy()));
                connection_in(&told.unwrap_or_default()) == Some(connection)
            })
        };
        // Others may keep the connection alive; the one that serves has the most threads.
        let threads = |pid: &u32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let pid = pids.filter(holds).max_by_key(threads)?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        Some(Self { pid, name })
    }

    /// Inodes of its sockets.
    pub fn sockets(&self) -> BTreeSet<u64> {
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid)).into_iter().flatten().flatten();
        let inode = |entry: fs::DirEntry| {
            let to = fs::read_link(entry.path()).ok()?;
            to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        open.filter_map(inode).collect()
    }

    /// Seconds of CPU it has had in its own code.
    pub fn user_seconds(&self) -> Option<f64> {
        user_seconds(&self.pid.to_string())
    }
}

/// Seconds of CPU that a process, and those of its children that it has waited for, had in their own code: whole ticks.
pub(crate) fn user_seconds(pid: &str) -> Option<f64> {
    let ticks = user_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// proc(5): `PID (NAME) STATE` and eleven more before `UTIME STIME CUTIME CSTIME`; the name may hold anything.
fn user_ticks(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    Some(number(11)? + number(13)?)
}

fn connection_in(fdinfo: &str) -> Option<u32> {
    fdinfo.lines().find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_told_by_the_kernel() {
        assert_eq!(connection_in("pos:\t0\nflags:\t02\nfuse_connection:\t39\n"), Some(39));
        assert_eq!((connection_in("pos:\t0\n"), connection_in("fuse_connection:x")), (None, None));
    }

    #[test]
    fn own_code_is_told_from_the_kernels() {
        let text = "7 (a) b) R 1 7 7 0 -1 4194304 87 0 0 0 31 5 2 1 20 0 1 0 99 1 2\n";
        assert_eq!((user_ticks(text), user_ticks("7 (a) R 1"), user_ticks("")), (Some(33), None, None));
        assert!(user_seconds("self").is_some() && user_seconds("nobody").is_none());
        assert_eq!(Daemon::of(Path::new("/proc")), None);
    }
}
