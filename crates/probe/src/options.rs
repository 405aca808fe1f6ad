//! What a watch is asked to do.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::stack::{Stack, StackError};
use crate::stats::WINDOW_MAX;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A direct read.
    Read,
    /// A direct, durable write (`O_DSYNC`) into a file of the watch's own.
    Write,
    /// `flock(LOCK_EX)` and the unlock.
    Flock,
    /// `statx` that asks the file system, not its cache (`AT_STATX_FORCE_SYNC`).
    Stat,
    /// Creation of a file and its removal.
    Create,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flock, Self::Stat, Self::Create];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flock => "flock",
            Self::Stat => "stat",
            Self::Create => "create",
        }
    }

    /// The operation of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A target as named by the user. That it exists is the worker's to find out: asking a hung file system hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// A file, a directory or a block device; absolute.
    pub path: PathBuf,
    /// What it is called in outputs.
    pub label: String,
}

impl TargetSpec {
    /// Reads `TARGET` or `TARGET=LABEL`. A label has no slash, so a path with `=` in it can be given as it is as
    /// long as a slash follows, and else with a label.
    ///
    /// # Errors
    ///
    /// [`OptionError::Target`] for an empty path, an empty label, or one with characters that no output can bear.
    pub fn parse(text: &OsStr) -> Result<Self, OptionError> {
        let bytes = text.as_bytes();
        let bad = |why| OptionError::Target { target: text.to_string_lossy().into_owned(), why };
        let split = bytes.iter().rposition(|byte| *byte == b'=').filter(|at| !bytes[*at..].contains(&b'/'));
        let (path, label) = match split {
            Some(at) => {
                let label =
                    std::str::from_utf8(&bytes[at + 1..]).map_err(|_| bad("its label is not UTF-8"))?;
                (&bytes[..at], label.to_owned())
            }
            None => (bytes, printable(&text.to_string_lossy())),
        };
        if path.is_empty() {
            return Err(bad("it has no path"));
        }
        if label.is_empty() || label.chars().count() > LABEL_CHARS_MAX && split.is_some() {
            return Err(bad("its label must have 1 to 64 characters"));
        }
        if label.chars().any(char::is_control) {
            return Err(bad("its label has control characters"));
        }
        let path =
            std::path::absolute(OsStr::from_bytes(path)).map_err(|_| bad("it has no absolute path"))?;
        Ok(Self { path, label })
    }
}

/// What a watch does, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// At least one, labels different.
    pub targets: Vec<TargetSpec>,
    /// What is done to each.
    pub op: Op,
    /// From one I/O of a target to its next.
    pub interval: Duration,
    /// Bytes of a read or write.
    pub size: u32,
    /// Samples in the window.
    pub window: usize,
    /// How the targets stand on one another.
    pub stack: Option<Stack>,
}

/// What is wrong with the options. Each says which.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum OptionError {
    #[error("target \"{target}\": {why}")]
    Target { target: String, why: &'static str },
    #[error("at least one target is needed: a file, a directory or a block device")]
    NoTarget,
    #[error("two targets are called \"{0}\"; give them labels: TARGET=LABEL")]
    SameLabel(String),
    #[error("--interval must be 1ms to 1h")]
    Interval,
    #[error("--size must be 512 to 1048576 bytes and a multiple of 512")]
    Size,
    #[error("--window must be 1 to {WINDOW_MAX} samples")]
    Window,
    #[error(transparent)]
    Stack(#[from] StackError),
}

impl Options {
    /// Checks them. `stack` is as on the command line.
    ///
    /// # Errors
    ///
    /// All of [`OptionError`].
    pub fn new(
        targets: Vec<TargetSpec>,
        op: Op,
        interval: Duration,
        size: u32,
        window: usize,
        stack: Option<&str>,
    ) -> Result<Self, OptionError> {
        if targets.is_empty() {
            return Err(OptionError::NoTarget);
        }
        let labels: Vec<String> = targets.iter().map(|target| target.label.clone()).collect();
        if let Some((_, label)) = labels.iter().enumerate().find(|(i, label)| labels[..*i].contains(label)) {
            return Err(OptionError::SameLabel(label.clone()));
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&interval) {
            return Err(OptionError::Interval);
        }
        if !(512..=1 << 20).contains(&size) || !size.is_multiple_of(512) {
            return Err(OptionError::Size);
        }
        if !(1..=WINDOW_MAX).contains(&window) {
            return Err(OptionError::Window);
        }
        let stack = stack.map(|text| Stack::parse(text, &labels)).transpose()?;
        Ok(Self { targets, op, interval, size, window, stack })
    }
}

/// A path as a label: what a terminal would act on is replaced.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

const LABEL_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<TargetSpec, OptionError> {
        TargetSpec::parse(OsStr::new(text))
    }

    #[test]
    fn a_label_follows_the_last_equals_sign_and_has_no_slash() {
        for (text, path, label) in [
            ("/dev/sda", "/dev/sda", "/dev/sda"),
            ("/dev/sda=leg 1", "/dev/sda", "leg 1"),
            ("/a=b/c", "/a=b/c", "/a=b/c"),
            ("/a=b=c", "/a=b", "c"),
            ("/a\u{1b}[2J", "/a\u{1b}[2J", "/a?[2J"),
        ] {
            let found = spec(text).unwrap();
            assert_eq!((found.path.to_str().unwrap(), found.label.as_str()), (path, label), "{text}");
        }
        assert!(spec("relative").unwrap().path.is_absolute());
        for text in ["", "=x", "/a=", "/a=\u{7}", &format!("/a={}", "x".repeat(65))] {
            assert!(spec(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let second = Duration::from_secs(1);
        let two = || vec![spec("/a").unwrap(), spec("/b").unwrap()];
        let check =
            |interval, size, window, stack| Options::new(two(), Op::Read, interval, size, window, stack);
        assert!(check(second, 512, 100, Some("/a:/b")).is_ok());
        assert_eq!(check(Duration::ZERO, 512, 100, None), Err(OptionError::Interval));
        assert_eq!(check(second, 511, 100, None), Err(OptionError::Size));
        assert_eq!(check(second, 2 << 20, 100, None), Err(OptionError::Size));
        assert_eq!(check(second, 512, 0, None), Err(OptionError::Window));
        assert_eq!(check(second, 512, 9, Some("/a")), Err(OptionError::Stack(StackError::TooFew)));
        let same = vec![spec("/a").unwrap(), spec("/a").unwrap()];
        let same = Options::new(same, Op::Read, second, 512, 100, None);
        assert_eq!(same, Err(OptionError::SameLabel("/a".to_owned())));
        assert_eq!(Options::new(vec![], Op::Read, second, 512, 9, None), Err(OptionError::NoTarget));
    }
}
