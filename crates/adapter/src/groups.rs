//! Groups and rights of whoever asks for something. The kernel tells of one group.

use meta::ops::Groups;

/// Supplementary groups of a thread that waits for its answer, as numbered where this process is. None if it is not in sight.
pub(crate) fn of_thread(thread: u32) -> Groups {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// Whether a thread that waits for its answer may do to any file what its owner may, or make itself the owner. Not if it is not
/// in sight.
pub(crate) fn acts_as_owner(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    rights.is_some_and(|mask| mask & (CAP_CHOWN | CAP_FOWNER) != 0)
}

/// linux:include/uapi/linux/capability.h
const CAP_CHOWN: u64 = 1;
/// As above.
const CAP_FOWNER: u64 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::of_thread;

    #[test]
    fn groups_are_those_of_the_thread() {
        let own = rustix::process::getgroups().unwrap_or_default();
        let own: Vec<u32> = own.into_iter().map(rustix::process::Gid::as_raw).collect();
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert_eq!(of_thread(thread), own);
        assert!(of_thread(0).is_empty());
    }
}
