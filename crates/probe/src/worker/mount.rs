//! Whether a target's file system is still mounted where it was.
//!
//! After `umount -l` an open file goes on working, and a path leads to what was under the mount: both would be measured
//! as if nothing had happened.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::mounts::mount_id;

/// The mount that a path led to. Costs no I/O: the kernel tells when its table of mounts has changed.
pub(super) struct MountPlace {
    /// By its number in the table; none where the kernel does not tell.
    place: Option<(File, u64)>,
    is_gone: bool,
}

impl MountPlace {
    /// The mount that `path` leads to now.
    pub fn of(path: &Path) -> Self {
        let place = || {
            let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
            let id = mount_id(&found)?;
            let mut table = File::open("/proc/self/mountinfo").ok()?;
            // A mount that is not in our table, as in some containers, cannot be missed from it.
            is_listed(&mut table, id)?.then_some((table, id))
        };
        Self { place: place(), is_gone: false }
    }

    /// Whether it is mounted no more. It does not come back: what is mounted there later is another.
    pub fn is_gone(&mut self) -> bool {
        let Some((table, id)) = &mut self.place else { return false };
        if !self.is_gone && has_changed(table) {
            self.is_gone = is_listed(table, *id) == Some(false);
        }
        self.is_gone
    }
}

/// proc(5): the table has an exceptional condition after a change, until it is read.
fn has_changed(table: &File) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(table, PollFlags::PRI)];
    poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0)
}

/// Each line begins with the mount's number. None when the table cannot be read.
fn is_listed(table: &mut File, id: u64) -> Option<bool> {
    let mut bytes = Vec::new();
    table.rewind().ok()?;
    table.read_to_end(&mut bytes).ok()?;
    let start = format!("{id} ");
    Some(bytes.split(|byte| *byte == b'\n').any(|line| line.starts_with(start.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_is_there_is_not_gone() {
        let mut place = MountPlace::of(Path::new("/proc"));
        assert!(place.place.is_some());
        assert!(!place.is_gone());
        let (table, _) = place.place.as_mut().unwrap();
        assert_eq!((is_listed(table, u64::MAX), has_changed(table)), (Some(false), false));
    }
}
