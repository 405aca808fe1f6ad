//! Listings that are under way, so that none goes on in what another has left in the kernel's cache from before a change.
//!
//! The kernel keeps one listing of a directory, filled by whichever stream comes to its end first, and asks whether it is of now where a stream begins
//! (`fuse_readdir_cached` in linux:fs/fuse/readdir.c). A stream that has begun after a change would go on in one that began before, and
//! show names that are gone. So who goes on with a listing from before a change, beside somebody else's, first loses what it has left there: the kernel adds nothing to a listing whose
//! pages are gone, and who would go on in it asks.

use std::collections::VecDeque;

use parking_lot::Mutex;
use types::{Ino, Timespec};

/// Listings of which some has been told, and not the end; the last ones.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<VecDeque<Stream>>);

/// Names have no handles: a listing is known by who reads it.
#[derive(Debug)]
struct Stream {
    thread: u32,
    dir: Ino,
    /// When its directory had changed last as it began.
    of: Option<Timespec>,
}

impl Stream {
    fn is(&self, thread: u32, dir: Ino) -> bool {
        self.thread == thread && self.dir == dir
    }
}

impl Listings {
    /// `thread` is told the beginning of a directory that has changed last at `of`.
    pub fn begin(&self, thread: u32, dir: Ino, of: Option<Timespec>) {
        let mut list = self.0.lock();
        list.retain(|stream| !stream.is(thread, dir));
        if list.len() >= LEN_MAX {
            list.pop_front();
        }
        list.push_back(Stream { thread, dir, of });
    }

    /// `thread` is told more. Whether others would be shown what the directory has no more.
    pub fn is_of_before(&self, thread: u32, dir: Ino, now: Option<Timespec>) -> bool {
        let list = self.0.lock();
        let begun = list.iter().find(|stream| stream.is(thread, dir));
        let is_of_now = begun.is_some_and(|stream| stream.of.is_some() && stream.of == now);
        !is_of_now && list.iter().any(|stream| stream.dir == dir && stream.thread != thread)
    }

    /// `thread` is told that there is no more.
    pub fn end(&self, thread: u32, dir: Ino) {
        self.0.lock().retain(|stream| !stream.is(thread, dir));
    }
}

/// More are not read at once. Those that were left before their end stay until then.
const LEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Option<Timespec> {
        Some(Timespec { secs, ..Timespec::default() })
    }

    #[test]
    fn a_listing_from_before_a_change_is_one_for_others_who_list() {
        let listings = Listings::default();
        let dir = Ino(5);
        listings.begin(1, dir, at(10));
        assert!(!listings.is_of_before(1, dir, at(11)), "nobody else lists");
        listings.begin(2, Ino(6), at(10));
        assert!(!listings.is_of_before(1, dir, at(11)), "but another directory");
        listings.begin(2, dir, at(11));
        assert!(listings.is_of_before(1, dir, at(11)));
        assert!(!listings.is_of_before(1, dir, at(10)), "nothing has changed");
        assert!(!listings.is_of_before(2, dir, at(11)));
        listings.end(2, dir);
        assert!(!listings.is_of_before(1, dir, at(11)));
    }

    #[test]
    fn a_listing_whose_beginning_is_not_known_counts_as_one_of_before() {
        let listings = Listings::default();
        listings.begin(1, Ino(5), at(10));
        assert!(listings.is_of_before(2, Ino(5), at(10)));
        (10..10 + LEN_MAX as u32).for_each(|thread| listings.begin(thread, Ino(6), at(10)));
        assert!(!listings.is_of_before(2, Ino(5), at(10)), "it is forgotten");
    }
}
