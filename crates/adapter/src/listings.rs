//! Listings that are under way, so that none goes on in what another has left in the kernel's cache from before a change.
//!
//! The kernel keeps one listing of a directory, filled by whichever stream comes to its end first, and asks whether it is of now where a stream begins
//! (`fuse_readdir_cached` in linux:fs/fuse/readdir.c). A stream that has begun after a change would go on in one that began before, and
//! show names that are gone; and what the other was told before may come to be kept as if it were of now. So where one begins beside another that goes on after a change, that one
//! first loses what it has left in the kernel, which adds nothing to a listing whose pages are gone; who would go on in it asks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::{Ino, Timespec};

/// Listings of which some has been told, and whose end is not known to have been taken in; the last ones.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    streams: Mutex<VecDeque<Stream>>,
    /// How many have been told their end.
    ended: AtomicUsize,
}

/// Directories have no handles: a listing is known by who reads it.
#[derive(Debug)]
struct Stream {
    thread: u32,
    dir: Ino,
    /// When its directory had changed last as it began.
    of: Option<Timespec>,
    /// Whether somebody else has begun to list the directory since.
    is_joined: bool,
    /// When the end was told.
    ended: Option<Instant>,
}

impl Stream {
    fn is(&self, thread: u32, dir: Ino) -> bool {
        self.thread == thread && self.dir == dir
    }

    fn is_over(&self, now: Instant) -> bool {
        self.ended.is_some_and(|at| now.saturating_duration_since(at) >= TAKEN_IN_WITHIN)
    }

    fn is_of(&self, time: Option<Timespec>) -> bool {
        self.of.is_some() && self.of == time
    }
}

impl Listings {
    /// `thread` is told the beginning of a directory that has changed last at `of`. Whether it would go on in one of before whose end is on its way.
    pub fn begin(&self, thread: u32, dir: Ino, of: Option<Timespec>) -> bool {
        let mut streams = self.streams.lock();
        let now = Instant::now();
        streams.retain(|stream| !stream.is(thread, dir) && !stream.is_over(now));
        if streams.len() >= LEN_MAX {
            streams.pop_front();
        }
        let mut is_beside_old = false;
        for stream in streams.iter_mut().filter(|stream| stream.dir == dir) {
            stream.is_joined = true;
            is_beside_old |= stream.ended.is_some() && !stream.is_of(of);
        }
        streams.push_back(Stream { thread, dir, of, is_joined: false, ended: None });
        self.count_ended(&streams);
        is_beside_old
    }

    /// `thread` is told more. Whether others could be shown by that what the directory has no more.
    pub fn is_of_before(&self, thread: u32, dir: Ino, now: Option<Timespec>) -> bool {
        let streams = self.streams.lock();
        match streams.iter().find(|stream| stream.is(thread, dir)) {
            Some(stream) => stream.is_joined && !stream.is_of(now),
            None => streams.iter().any(|stream| stream.dir == dir),
        }
    }

    /// `thread` is told that there is no more.
    pub fn end(&self, thread: u32, dir: Ino) {
        let mut streams = self.streams.lock();
        if let Some(stream) = streams.iter_mut().find(|stream| stream.is(thread, dir)) {
            stream.ended = Some(Instant::now());
        }
        self.count_ended(&streams);
    }

    /// `thread` has taken in what it was told.
    pub fn take_in(&self, thread: u32) {
        // Nobody else makes a request for a thread, so that its own end is seen.
        if self.ended.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.forget(thread, Instant::now());
    }

    /// Also those of threads that ask for nothing any more, so that soon nobody else looks for his own.
    fn forget(&self, thread: u32, now: Instant) {
        let mut streams = self.streams.lock();
        let is_own = |stream: &Stream| stream.ended.is_some() && stream.thread == thread;
        streams.retain(|stream| !is_own(stream) && !stream.is_over(now));
        self.count_ended(&streams);
    }

    fn count_ended(&self, streams: &VecDeque<Stream>) {
        let ended = streams.iter().filter(|stream| stream.ended.is_some()).count();
        self.ended.store(ended, Ordering::Relaxed);
    }
}

/// Threads that have ended ask for nothing more.
const TAKEN_IN_WITHIN: Duration = Duration::from_secs(1);
/// More are not read at once. Those that were left before their end stay until then.
const LEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(5);

    fn at(secs: i64) -> Option<Timespec> {
        Some(Timespec { secs, ..Timespec::default() })
    }

    #[test]
    fn a_listing_from_before_a_change_is_one_where_another_has_begun_since() {
        let listings = Listings::default();
        listings.begin(1, DIR, at(10));
        assert!(!listings.is_of_before(1, DIR, at(11)), "nobody else lists");
        listings.begin(2, Ino(6), at(10));
        assert!(!listings.is_of_before(1, DIR, at(11)), "but another directory");
        assert!(!listings.begin(2, DIR, at(11)));
        assert!(listings.is_of_before(1, DIR, at(11)));
        assert!(!listings.is_of_before(1, DIR, at(10)), "nothing has changed");
        assert!(!listings.is_of_before(2, DIR, at(12)), "nobody has begun since");
        listings.end(2, DIR);
        listings.take_in(2);
        assert!(listings.is_of_before(1, DIR, at(11)), "it may be kept");
    }

    #[test]
    fn an_end_from_before_a_change_is_on_its_way_until_its_thread_asks() {
        let listings = Listings::default();
        listings.begin(1, DIR, at(10));
        let since = Instant::now();
        listings.end(1, DIR);
        assert!(!listings.begin(2, DIR, at(10)), "nothing has changed");
        assert!(listings.begin(2, DIR, at(11)) || since.elapsed() >= TAKEN_IN_WITHIN);
        listings.take_in(1);
        assert!(!listings.begin(2, DIR, at(11)));
    }

    #[test]
    fn an_end_of_a_thread_that_asks_for_nothing_costs_others_nothing_for_long() {
        let listings = Listings::default();
        listings.begin(1, DIR, at(10));
        listings.end(1, DIR);
        listings.begin(2, DIR, at(10));
        listings.forget(3, Instant::now() + TAKEN_IN_WITHIN);
        assert_eq!((listings.ended.load(Ordering::Relaxed), listings.streams.lock().len()), (0, 1));
    }

    #[test]
    fn a_listing_whose_beginning_is_not_known_counts_as_one_of_before() {
        let listings = Listings::default();
        listings.begin(1, DIR, at(10));
        assert!(listings.is_of_before(2, DIR, at(10)));
        (10..10 + LEN_MAX as u32).for_each(|thread| _ = listings.begin(thread, Ino(6), at(10)));
        assert!(!listings.is_of_before(2, DIR, at(10)), "it is forgotten");
    }
}
