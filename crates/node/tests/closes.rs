//! Closes are known on every node when they have returned.
//!
//! Apart from other tests: a process forked by one of them would have this one's files open for a moment.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::fs::OpenOptions;

use common::Scratch;
use rustix::fs::{FlockOperation, flock};

/// A close gives up the flocks of the open file before it returns, also for programs on other nodes.
#[test]
fn a_lock_is_free_everywhere_when_its_file_was_closed() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    fs::write(a.path("f"), "").unwrap();
    let open = |path| OpenOptions::new().read(true).write(true).open(path).unwrap();
    for round in 0..500 {
        let (first, second) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let (held, other) = (open(first.path("f")), open(second.path("f")));
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(held);
        let taken = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(taken, Ok(()), "round {round}");
    }
}
