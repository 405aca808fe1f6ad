//! Writes around the page cache (O_DIRECT) that were refused.
//!
//! The kernel takes back what one that goes beyond the end of the file may have left: it cuts the file to the end that it has
//! (`fuse_do_truncate` in linux:fs/fuse/file.c), on the writer's thread, and looks in no way different from a program that does. The end
//! that it has may be far before the true one, and what another node has written would go. Nothing is left of what was
//! refused, so that there is nothing to cut. So it does with whatever is written past the page cache and not waited for
//! (`fuse_direct_IO`), appends among it.

use std::time::Duration;

use fuse::{Operation, Setattr};
use types::Ino;

use crate::linux;

/// A write that was refused: the file, and where it would have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub ino: Ino,
    pub end: u64,
}

impl Refused {
    /// Whether the kernel makes this request for the write, if it believes that the file ends where that has it cut.
    pub fn is_cut_by(self, ino: Ino, setattr: &Setattr) -> bool {
        let Setattr { mode, uid, gid, atime, mtime, .. } = setattr;
        let sets_more =
            mode.is_some() || uid.is_some() || gid.is_some() || atime.is_some() || mtime.is_some();
        self.ino == ino && !sets_more && setattr.size.is_some_and(|size| size < self.end)
    }
}

/// What a thread that waits for its answer has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InCall {
    /// What cuts a file because a program wants that.
    Truncating,
    /// Something else.
    Other,
    /// It may not be looked at, or has no processor to go to sleep on.
    Unknown,
}

/// Looks at a thread.
pub(crate) fn in_call(thread: u32) -> InCall {
    for _ in 0..LOOKS {
        let call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
        match call.split_ascii_whitespace().next() {
            // On its way to sleep, until it has this very answer.
            Some("running") => std::thread::sleep(PAUSE),
            Some(number) => {
                let number: Option<u32> = number.parse().ok();
                return match number.is_some_and(|number| linux::TRUNCATING_CALLS.contains(&number)) {
                    true => InCall::Truncating,
                    false => InCall::Other,
                };
            }
            None => return InCall::Unknown,
        }
    }
    InCall::Unknown
}

/// How often, and how far apart, a thread is looked at that has no processor to go to sleep on.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(200);

/// Whether a thread may have other requests on their way when one of these is refused.
pub(crate) fn is_one_of_many(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Write { .. })
}
