//! Goal: a file may have very many locks, and they are told apart. Method: one mount locks every second of 20,000 units, and the
//! other meets each of them, and nothing between.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;

use crate::calls::{self, Of};
use crate::history::{Answer, Mode};
use crate::lab::{Lab, wait_until};

/// Locked ranges.
const RANGES: u64 = 10_000;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("opened")
}

fn set(file: &File, mode: Mode, start: u64, len: u64) -> Answer {
    calls::set(file.as_fd(), Of::Description, mode, (start, len), false)
}

fn test(file: &File, start: u64, len: u64) -> Answer {
    calls::test(file.as_fd(), Of::Description, Mode::Shared, (start, len))
}

#[test]
fn ten_thousand_ranges_of_one_file_are_told_apart() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let (here, there) = (open(&a.path("f")), open(&b.path("f")));
    for n in 0..RANGES {
        assert_eq!(set(&here, Mode::Exclusive, 2 * n, 1), Answer::Done, "range {n}");
    }
    for n in (0..RANGES).step_by(7) {
        assert_eq!(set(&there, Mode::Shared, 2 * n, 1), Answer::Again, "range {n}");
        assert_eq!(set(&there, Mode::Shared, 2 * n + 1, 1), Answer::Done, "behind range {n}");
        let found = Answer::Found { mode: Mode::Exclusive, start: 2 * n, len: 1 };
        assert_eq!(test(&there, 2 * n, 0), found, "the first from range {n} on");
    }
    // One call gives up the middle half, whatever is between; one takes it.
    assert_eq!(set(&here, Mode::None, RANGES / 2, RANGES), Answer::Done);
    assert_eq!(set(&there, Mode::Exclusive, RANGES / 2, RANGES), Answer::Done);
    let found = Answer::Found { mode: Mode::Exclusive, start: RANGES / 2 - 2, len: 1 };
    assert_eq!(test(&there, RANGES / 2 - 2, 0), found);
    let found = Answer::Found { mode: Mode::Exclusive, start: RANGES / 2 * 3, len: 1 };
    assert_eq!(test(&there, RANGES / 2, 0), found);
    // The last close gives up the others.
    drop(here);
    assert_eq!(set(&there, Mode::Exclusive, 0, 0), Answer::Done);
    // Death of the node, too.
    b.signal(rustix::process::Signal::KILL);
    let here = open(&a.path("f"));
    wait_until("the locks of a dead node", || set(&here, Mode::Exclusive, 0, 0) == Answer::Done);
}
