//! Threads that came too late for what they had found.
//!
//! A kernel that is answered ESTALE walks the path once more, on the same thread, and no third time
//! (`do_filp_open` and `retry_estale` in linux:fs/namei.c and linux:include/linux/namei.h). What it finds then is [held](vfs::Request::Find).

use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use fuse::Errno;
use rustc_hash::FxHasher;
use types::Ino;
use vfs::{Request, Taken};

use crate::reply::Answer;
use crate::told::Told;

/// A thread that was answered ESTALE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    /// When it was.
    told: Instant,
    /// The same, and later by as long as its requests took since.
    since: Instant,
    met: Option<Met>,
}

/// What it met where it wanted to make a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Met {
    /// The name, and the directory.
    at: NameHash,
    ino: Ino,
    /// When it was first shown.
    shown: Option<Instant>,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameHash(u64);

impl NameHash {
    /// That of a request that makes a file or looks one up.
    pub fn of(request: &Request) -> Option<Self> {
        match request {
            Request::Create { parent, name, .. } | Request::Lookup { parent, name } => {
                let mut hasher = FxHasher::default();
                (parent.0, name).hash(&mut hasher);
                Some(Self(hasher.finish()))
            }
            _ => None,
        }
    }
}

impl Told<Late> {
    /// Notes what a thread is answered to what it asked when; with what it met under the name that it wanted to make.
    pub fn note_answer(&self, thread: u32, asked: Instant, answer: &Answer, met: Option<(NameHash, Ino)>) {
        // Pages are written and read for nobody.
        if thread == 0 {
            return;
        }
        if matches!(answer, Answer::Error(Errno::STALE)) {
            let met = met.map(|(at, ino)| Met { at, ino, shown: None });
            let now = Instant::now();
            self.note(thread, Late { told: now, since: now, met });
        } else if let Some(late) = self.of(thread) {
            self.note(thread, Late { since: late.since + asked.elapsed(), ..late });
        }
    }

    /// A thread makes a request, which becomes another in its second walk. That consists of LOOKUPs, what else leads along a path, and what it
    /// was all for.
    pub fn second_walk(&self, thread: u32, request: Request) -> Request {
        let Some(late) = self.of(thread) else { return request };
        if !leads_on(&request) {
            self.take(thread, |_| true);
        }
        let name = NameHash::of(&request);
        match request {
            request if late.since.elapsed() >= WALKS_WITHIN || late.told.elapsed() >= WALKS_AT_MOST => {
                request
            }
            Request::Lookup { parent, name: of } => {
                let met = late.met.filter(|met| Some(met.at) == name);
                let met =
                    met.filter(|met| met.shown.is_none_or(|shown| shown.elapsed() < SHOWN_AGAIN_WITHIN));
                if let Some(met) = met {
                    let shown = met.shown.or_else(|| Some(Instant::now()));
                    self.note(thread, Late { met: Some(Met { shown, ..met }), ..late });
                }
                Request::Find { parent, name: of, met: met.map(|met| met.ino) }
            }
            Request::Create { parent, name, spec, open, taken: Taken::Meet } => {
                Request::Create { parent, name, spec, open, taken: Taken::Outwait }
            }
            request => request,
        }
    }
}

/// Whether the kernel may ask for it on its way along a path, to judge access or to follow a link.
pub(crate) fn leads_on(request: &Request) -> bool {
    match request {
        Request::Lookup { .. }
        | Request::GetAttr { .. }
        | Request::Stat { .. }
        | Request::ReadLink { .. } => true,
        Request::GetXattr { name, .. } => name.starts_with(ACCESS_LISTS),
        _ => false,
    }
}

/// The thread's own time, not counting how long it waits for answers.
const WALKS_WITHIN: Duration = Duration::from_secs(1);
/// All of it: then it is another walk, though all that it has asked since may be part of one.
const WALKS_AT_MOST: Duration = Duration::from_secs(10);
/// The kernel looks a name up once more where it had another inode under it.
const SHOWN_AGAIN_WITHIN: Duration = Duration::from_millis(5);
const ACCESS_LISTS: &[u8] = b"system.posix_acl_";

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup() -> Request {
        Request::Lookup { parent: Ino(1), name: b"f"[..].into() }
    }

    #[test]
    fn only_a_thread_that_was_answered_estale_walks_again_and_only_until_it_is_through() {
        let late = Told::<Late>::default();
        let now = Instant::now();
        late.note_answer(1, now, &Answer::Error(Errno::NOENT), None);
        assert!(matches!(late.second_walk(1, lookup()), Request::Lookup { .. }));

        let met = NameHash::of(&lookup()).map(|at| (at, Ino(7)));
        late.note_answer(1, now, &Answer::Error(Errno::STALE), met);
        assert!(matches!(late.second_walk(2, lookup()), Request::Lookup { .. }));
        for along in [
            Request::GetAttr { ino: Ino(1) },
            Request::GetXattr { ino: Ino(1), name: b"system.posix_acl_access"[..].into() },
            Request::ReadLink { ino: Ino(1) },
        ] {
            late.second_walk(1, along);
            let request = late.second_walk(1, Request::Lookup { parent: Ino(1), name: b"dir"[..].into() });
            assert!(matches!(request, Request::Find { met: None, .. }), "{request:?}");
        }
        let request = late.second_walk(1, lookup());
        assert!(matches!(request, Request::Find { met: Some(Ino(7)), .. }), "{request:?}");
        std::thread::sleep(SHOWN_AGAIN_WITHIN);
        let request = late.second_walk(1, lookup());
        assert!(matches!(request, Request::Find { met: None, .. }), "not for later: {request:?}");
        let open = Request::Open { ino: Ino(7), open: vfs::OpenMode::default() };
        assert!(matches!(late.second_walk(1, open), Request::Open { .. }));
        assert!(matches!(late.second_walk(1, lookup()), Request::Lookup { .. }), "that was what it was for");
    }

    #[test]
    fn how_long_a_walk_waits_for_answers_does_not_count() {
        let late = Told::<Late>::default();
        let now = Instant::now();
        let since = now.checked_sub(WALKS_WITHIN).expect("the clock goes back a second");
        let long_ago = now.checked_sub(WALKS_AT_MOST).expect("the clock goes back ten seconds");
        late.note(1, Late { told: since, since, met: None });
        late.note(2, Late { told: since, since, met: None });
        late.note(3, Late { told: long_ago, since: now, met: None });
        late.note_answer(1, since, &Answer::Done, None);
        late.note_answer(2, now, &Answer::Done, None);
        assert!(matches!(late.second_walk(1, lookup()), Request::Find { .. }));
        assert!(matches!(late.second_walk(2, lookup()), Request::Lookup { .. }));
        assert!(matches!(late.second_walk(3, lookup()), Request::Lookup { .. }));
    }

    #[test]
    fn what_nobody_asked_for_is_not_noted() {
        let late = Told::<Late>::default();
        late.note_answer(0, Instant::now(), &Answer::Error(Errno::STALE), None);
        assert!(matches!(late.second_walk(0, lookup()), Request::Lookup { .. }));
    }
}
