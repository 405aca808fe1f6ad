//! Names that nobody else takes.

use std::fs;
use std::time::SystemTime;

/// Text that no other process has, on whichever node and in whichever container: numbers of processes and threads are the same on
/// many. A part of a file's name.
pub(crate) fn nonce() -> String {
    // random(4): another one at each read.
    let drawn = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let drawn: String = drawn.chars().filter(char::is_ascii_hexdigit).take(DIGITS).collect();
    if drawn.len() == DIGITS {
        return drawn;
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", now.as_nanos())
}

/// 60 random bits, and the version.
const DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let (first, second) = (nonce(), nonce());
        assert!(first != second && first.len() >= 8, "{first} {second}");
        assert!(first.chars().all(|c| c.is_ascii_hexdigit()), "{first}");
    }
}
