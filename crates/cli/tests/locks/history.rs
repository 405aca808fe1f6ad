//! What a process did to locks, as lines of a file outside of the volume: one before each call, one after.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// Locks cover units of so many bytes, each with a counter.
pub const UNIT: u64 = 8;
/// Units of a file.
pub const UNITS: u8 = 8;
/// With the place behind them, which a range without an end covers too.
pub const PLACES: u8 = UNITS + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    None,
    Shared,
    Exclusive,
}

/// Locks of one family do not see those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// fcntl(2): of the process (slot 0) or of an open file description.
    Records,
    /// flock(2), of an open file description.
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Set {
        family: Family,
        file: u8,
        slot: u8,
        mode: Mode,
        start: u8,
        len: u8,
        wait: bool,
    },
    /// What is in the way of a record lock.
    Test {
        file: u8,
        slot: u8,
        mode: Mode,
        start: u8,
        len: u8,
    },
    /// A description is closed, with it the process' own locks of the file, and another opened.
    Reopen {
        file: u8,
        slot: u8,
    },
    /// The counter of a unit was this under an exclusive lock, and is one more after.
    Count {
        file: u8,
        unit: u8,
        value: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Again,
    Interrupted,
    Deadlock,
    Free,
    Found {
        mode: Mode,
        start: u64,
        len: u64,
    },
    /// What does not belong here, unless the node is gone.
    Error(i32),
}

impl Answer {
    pub fn of_errno(errno: i32) -> Self {
        match errno {
            4 => Self::Interrupted,
            11 => Self::Again,
            35 => Self::Deadlock,
            other => Self::Error(other),
        }
    }
}

/// A call with its answer, `None` where the process ended first. Microseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub call: Call,
    pub began: u64,
    pub ended: Option<(u64, Answer)>,
}

/// Writes one process' history.
pub struct Writer(File);

impl Writer {
    pub fn new(path: &Path) -> Self {
        Self(OpenOptions::new().create_new(true).append(true).open(path).expect("a fresh name"))
    }

    /// Makes a call and writes it down.
    pub fn record(&mut self, call: Call, make: impl FnOnce() -> Answer) -> Answer {
        self.line(&format!("{} {}\n", now_us(), call.to_text()));
        let answer = make();
        self.line(&format!("{} {}\n", now_us(), answer.to_text()));
        answer
    }

    fn line(&mut self, line: &str) {
        // One write each: a kill leaves whole lines.
        self.0.write_all(line.as_bytes()).expect("room outside of the volume");
    }
}

/// Reads a history back.
pub fn read(path: &Path) -> Vec<Event> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut events: Vec<Event> = Vec::new();
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let words: Vec<&str> = line.split(' ').collect();
        let at = words[0].parse().expect("a time");
        match Call::from_words(&words[1..]) {
            Some(call) => events.push(Event { call, began: at, ended: None }),
            None => {
                let answer = Answer::from_words(&words[1..]).unwrap_or_else(|| panic!("{line}"));
                events.last_mut().expect("a call before its answer").ended = Some((at, answer));
            }
        }
    }
    events
}

impl Call {
    fn to_text(self) -> String {
        match self {
            Self::Set { family, file, slot, mode, start, len, wait } => {
                let (family, mode) = (family as u8, mode as u8);
                format!("set {family} {file} {slot} {mode} {start} {len} {}", u8::from(wait))
            }
            Self::Test { file, slot, mode, start, len } => {
                format!("test {file} {slot} {} {start} {len}", mode as u8)
            }
            Self::Reopen { file, slot } => format!("reopen {file} {slot}"),
            Self::Count { file, unit, value } => format!("count {file} {unit} {value}"),
        }
    }

    fn from_words(words: &[&str]) -> Option<Self> {
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let small = |at: usize| number(at) as u8;
        Some(match words[0] {
            "set" => Self::Set {
                family: if small(1) == 0 { Family::Records } else { Family::Whole },
                file: small(2),
                slot: small(3),
                mode: mode(small(4)),
                start: small(5),
                len: small(6),
                wait: small(7) == 1,
            },
            "test" => Self::Test {
                file: small(1),
                slot: small(2),
                mode: mode(small(3)),
                start: small(4),
                len: small(5),
            },
            "reopen" => Self::Reopen { file: small(1), slot: small(2) },
            "count" => Self::Count { file: small(1), unit: small(2), value: number(3) },
            _ => return None,
        })
    }
}

impl Answer {
    fn to_text(self) -> String {
        match self {
            Self::Done => "done".to_owned(),
            Self::Again => "again".to_owned(),
            Self::Interrupted => "interrupted".to_owned(),
            Self::Deadlock => "deadlock".to_owned(),
            Self::Free => "free".to_owned(),
            Self::Found { mode, start, len } => format!("found {} {start} {len}", mode as u8),
            Self::Error(errno) => format!("error {errno}"),
        }
    }

    fn from_words(words: &[&str]) -> Option<Self> {
        let small = |at: usize| words[at].parse::<u8>().expect("a number");
        Some(match words[0] {
            "done" => Self::Done,
            "again" => Self::Again,
            "interrupted" => Self::Interrupted,
            "deadlock" => Self::Deadlock,
            "free" => Self::Free,
            "found" => {
                let (start, len) = (small(2).into(), small(3).into());
                Self::Found { mode: mode(small(1)), start, len }
            }
            "error" => Self::Error(words[1].parse().expect("an errno")),
            _ => return None,
        })
    }
}

fn mode(number: u8) -> Mode {
    [Mode::None, Mode::Shared, Mode::Exclusive][usize::from(number)]
}

/// The places of a range; a length of 0 has no end.
pub fn places(start: u8, len: u8) -> std::ops::Range<u8> {
    start..if len == 0 { PLACES } else { (start + len).min(PLACES) }
}

/// Microseconds of the clock that all processes share.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
