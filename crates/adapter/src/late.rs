//! Threads that came too late for what they had found.
//!
//! A kernel that is answered ESTALE walks the path once more, on the same thread, and no third time
//! (`do_filp_open` and `retry_estale` in linux:fs/namei.c and linux:include/linux/namei.h). What it finds then is [held](vfs::Request::Find).

use std::time::{Duration, Instant};

use fuse::Errno;
use types::Ino;
use vfs::{Request, Taken};

use crate::reply::Answer;
use crate::told::Told;

/// A thread that was answered ESTALE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    since: Instant,
    /// What it met where it wanted to make a file.
    met: Option<Ino>,
}

impl Told<Late> {
    /// Notes what a thread is answered.
    pub fn note_answer(&self, thread: u32, answer: &Answer, met: Option<Ino>) {
        // Pages are written and read for nobody.
        if matches!(answer, Answer::Error(Errno::STALE)) && thread != 0 {
            self.note(thread, Late { since: Instant::now(), met });
        }
    }

    /// A thread makes a request, which becomes another in its second walk. That consists of LOOKUPs, GETATTRs for permissions, and what it
    /// was all for.
    pub fn second_walk(&self, thread: u32, request: Request) -> Request {
        let Some(late) = self.of(thread) else { return request };
        let goes_on =
            matches!(request, Request::Lookup { .. } | Request::GetAttr { .. } | Request::Stat { .. });
        if !goes_on {
            self.take(thread, |_| true);
        }
        match request {
            request if late.since.elapsed() >= WALKS_WITHIN => request,
            Request::Lookup { parent, name } => Request::Find { parent, name, met: late.met },
            Request::Create { parent, name, spec, open, taken: Taken::Meet } => {
                Request::Create { parent, name, spec, open, taken: Taken::Outwait }
            }
            request => request,
        }
    }
}

/// As long as what was met is held.
const WALKS_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup() -> Request {
        Request::Lookup { parent: Ino(1), name: b"f"[..].into() }
    }

    #[test]
    fn only_a_thread_that_was_answered_estale_walks_again_and_only_until_it_is_through() {
        let late = Told::<Late>::default();
        late.note_answer(1, &Answer::Error(Errno::NOENT), None);
        assert!(matches!(late.second_walk(1, lookup()), Request::Lookup { .. }));

        late.note_answer(1, &Answer::Error(Errno::STALE), Some(Ino(7)));
        assert!(matches!(late.second_walk(2, lookup()), Request::Lookup { .. }));
        for _ in 0..2 {
            let request = late.second_walk(1, lookup());
            assert!(matches!(request, Request::Find { met: Some(Ino(7)), .. }), "{request:?}");
            assert!(matches!(late.second_walk(1, Request::GetAttr { ino: Ino(1) }), Request::GetAttr { .. }));
        }
        let open = Request::Open { ino: Ino(7), open: vfs::OpenMode::default() };
        assert!(matches!(late.second_walk(1, open), Request::Open { .. }));
        assert!(matches!(late.second_walk(1, lookup()), Request::Lookup { .. }), "that was what it was for");
    }

    #[test]
    fn what_nobody_asked_for_is_not_noted() {
        let late = Told::<Late>::default();
        late.note_answer(0, &Answer::Error(Errno::STALE), None);
        assert!(matches!(late.second_walk(0, lookup()), Request::Lookup { .. }));
    }
}
