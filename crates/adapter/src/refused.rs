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

/// A write that was refused: the file, and where it would have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub ino: Ino,
    pub end: u64,
}

/// Whose write it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    Thread(u32),
    /// A thread that is not in sight, as one of another PID namespace: the open file and the process's table of descriptors, which the
    /// kernel names with both requests.
    Unseen {
        fh: u64,
        owner: u64,
    },
}

/// Whose request this may be that the kernel makes for a write.
pub(crate) fn writer_of(thread: u32, operation: &Operation<'_>) -> Option<Writer> {
    match operation {
        // A thread may have other writes on their way when one of these is refused.
        Operation::Write { .. } => None,
        _ if thread != 0 => Some(Writer::Thread(thread)),
        Operation::Setattr(Setattr { fh: Some(fh), lock_owner: Some(owner), .. }) => {
            Some(Writer::Unseen { fh: *fh, owner: *owner })
        }
        _ => None,
    }
}

/// A write that the kernel may cut the file for when it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayCut {
    /// Where it would end.
    pub end: u64,
    /// The open file.
    pub fh: u64,
    /// Table of descriptors of the process; the kernel says it of what goes past the page cache.
    pub owner: Option<u64>,
}

impl MayCut {
    /// Whose write it is.
    pub(crate) fn writer(self, thread: u32) -> Option<Writer> {
        match (thread, self.owner) {
            (0, Some(owner)) => Some(Writer::Unseen { fh: self.fh, owner }),
            (0, None) => None,
            (thread, _) => Some(Writer::Thread(thread)),
        }
    }
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
    /// One of those that are looked for.
    It,
    /// Something else.
    Other,
    /// It may not be looked at, or has no processor to go to sleep on.
    Unknown,
}

/// Looks whether a thread is in one of these calls.
pub(crate) fn in_call(thread: u32, calls: &[u32]) -> InCall {
    for _ in 0..LOOKS {
        let call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
        match call.split_ascii_whitespace().next() {
            // On its way to sleep, until it has this very answer.
            Some("running") => std::thread::sleep(PAUSE),
            Some(number) => {
                let number: Option<u32> = number.parse().ok();
                return match number.is_some_and(|number| calls.contains(&number)) {
                    true => InCall::It,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the request that the kernel makes for a refused write is known by its thread, or where that is not in sight by the open file and the
    /// table of descriptors, and no other request is taken for it.
    #[test]
    fn whose_request_it_is_is_known_of_threads_in_sight_and_out_of_it() {
        let cut = MayCut { end: 10, fh: 4, owner: Some(9) };
        let setattr = |fh, lock_owner| {
            Operation::Setattr(Setattr { size: Some(5), fh, lock_owner, ..Setattr::default() })
        };
        assert_eq!(cut.writer(7), writer_of(7, &setattr(Some(4), Some(9))));
        assert_eq!(cut.writer(0), writer_of(0, &setattr(Some(4), Some(9))));
        for other in
            [setattr(Some(5), Some(9)), setattr(Some(4), Some(8)), setattr(None, None), Operation::Statfs]
        {
            assert_ne!(cut.writer(0), writer_of(0, &other), "{other:?}");
        }
        assert_eq!(MayCut { owner: None, ..cut }.writer(0), None);
    }
}
