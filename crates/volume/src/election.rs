//! Who is the master: the process that holds an exclusive `flock` on `master.lock`.
//!
//! The kernel drops the lock when the last descriptor of the open file goes, so a dead master never holds
//! it. A process forked while the lock is held would share it; the descriptor is close-on-exec, and whoever
//! forks without exec must close it. The file is never removed or replaced, else two could hold "the" lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;

use crate::error::VolumeError;
use crate::volume_dir::{LOCK_FILE, Volume};

/// Proof that this process is the volume's only master. Dropping it gives the place up.
#[derive(Debug)]
pub struct MasterLock {
    file: File,
}

impl Drop for MasterLock {
    /// Unlocks, rather than closes: a child between fork and exec has a copy of the descriptor, and with it the lock.
    fn drop(&mut self) {
        // Where this fails, closing does it as soon as there is no copy.
        _ = self.file.unlock();
    }
}

impl Volume {
    /// Tries to become master; `None` while somebody else is.
    pub fn try_elect(&self) -> Result<Option<MasterLock>, VolumeError> {
        let path = self.path().join(LOCK_FILE);
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = opened.map_err(|e| VolumeError::io("open the master lock", &path, e).of_opening())?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(VolumeError::io("lock", &path, error)),
        }
        let lock = MasterLock { file };
        let mut file = &lock.file;
        // For people and for `master_pid`; a full disk must not stop an election.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let text = format!("pid {}\nsince {since}\n", std::process::id());
        if let Err(error) = file.set_len(0).and_then(|()| file.write_all(text.as_bytes())) {
            let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            if !is_full {
                return Err(VolumeError::io("write", &path, error));
            }
        }
        Ok(Some(lock))
    }

    /// The pid of the process that holds the master lock, as the kernel knows it; `None` without master.
    pub fn master_pid(&self) -> Result<Option<u32>, VolumeError> {
        let path = self.path().join(LOCK_FILE);
        let ino = fs::metadata(&path).map_err(|e| VolumeError::io("examine", &path, e))?.ino();
        let written = fs::read_to_string(&path).ok().as_deref().and_then(pid_of_lock_file);
        let locks = match fs::read_to_string("/proc/locks") {
            Ok(locks) => locks,
            // Without the kernel's list, what the holder wrote is the best there is.
            Err(_) => return Ok(written.filter(|pid| fs::metadata(format!("/proc/{pid}")).is_ok())),
        };
        // Inode numbers repeat between file systems and the device in the list is not always that of
        // stat(2), so the pid written into the file decides between several.
        let holders: Vec<u32> = locks.lines().filter_map(|line| flock_holder(line, ino)).collect();
        Ok(written.filter(|pid| holders.contains(pid)))
    }
}

/// `pid 123` in the first line.
fn pid_of_lock_file(text: &str) -> Option<u32> {
    text.lines().next()?.strip_prefix("pid ")?.parse().ok()
}

/// The pid of an exclusive flock on inode `ino` in a line of `/proc/locks`:
/// `1: FLOCK  ADVISORY  WRITE 708 08:01:13528 0 EOF`.
fn flock_holder(line: &str, ino: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let (kind, _, mode) = (words.next()?, words.next()?, words.next()?);
    let (pid, file) = (words.next()?, words.next()?);
    let is_ours = kind == "FLOCK" && mode == "WRITE" && file.rsplit(':').next()?.parse() == Ok(ino);
    if is_ours { pid.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_lines_are_read() {
        for (line, pid) in [
            ("1: FLOCK  ADVISORY  WRITE 708 08:01:13528 0 EOF", Some(708)),
            ("1: FLOCK  ADVISORY  READ 708 08:01:13528 0 EOF", None),
            ("1: POSIX  ADVISORY  WRITE 708 08:01:13528 0 EOF", None),
            ("1: FLOCK  ADVISORY  WRITE 708 08:01:13529 0 EOF", None),
            ("1: -> FLOCK  ADVISORY  WRITE 708 08:01:13528 0 EOF", None),
            ("", None),
        ] {
            assert_eq!(flock_holder(line, 13528), pid, "{line}");
        }
    }

    #[test]
    fn a_lock_file_without_pid_names_nobody() {
        assert_eq!(pid_of_lock_file("pid 12\nsince 3\n"), Some(12));
        assert_eq!(pid_of_lock_file("pid \n"), None);
        assert_eq!(pid_of_lock_file(""), None);
    }
}
