//! How a command ends when it does not end well.

use std::error::Error;
use std::fmt;

/// A message for the terminal and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// What went wrong and what to do, one line.
    pub message: String,
    /// Exit code of the process.
    pub code: u8,
}

impl Failure {
    /// Exit code 1: found a problem.
    pub fn problem(error: impl fmt::Display) -> Self {
        Self { message: error.to_string(), code: 1 }
    }

    /// Wrong usage, in the codes of mount(8).
    pub fn usage(error: impl fmt::Display) -> Self {
        Self { message: error.to_string(), code: 1 }
    }

    /// Exit code 2: could not do or find out what was asked.
    pub fn unable(error: impl fmt::Display) -> Self {
        Self { message: error.to_string(), code: 2 }
    }

    /// Exit codes of fsck(8).
    pub fn fsck(error: impl fmt::Display, code: u8) -> Self {
        Self { message: error.to_string(), code }
    }

    /// Exit code 3: could not be watched, as plugins of Nagios have it.
    pub fn unwatched(error: impl fmt::Display) -> Self {
        Self { message: error.to_string(), code: 3 }
    }

    /// Exit code 32: mount or unmount failed, as mount(8) has it.
    pub fn mount(error: impl fmt::Display) -> Self {
        Self { message: error.to_string(), code: 32 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The error and all its causes in one line: `/srv/v: cannot sync: Input/output error (os error 5)`.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn causes_are_named_in_order() {
        let error = volume::Volume::open(std::path::Path::new("/dev/null/x")).expect_err("no directory");
        let text = super::with_causes(&error);
        assert!(text.starts_with("/dev/null/x: ") && text.contains("os error 20"), "{text}");
    }
}
