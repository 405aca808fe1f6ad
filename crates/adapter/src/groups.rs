//! Groups and rights of whoever asks for something. The kernel tells of one group.

use meta::ops::Groups;

/// Supplementary groups of a thread that waits for its answer, as numbered where this process is. None if it is not in sight.
pub(crate) fn of_thread(thread: u32) -> Groups {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// What only an owner may do to a file, by the right that others need for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnersOnly {
    /// To make somebody else its owner, or group.
    pub gives: bool,
    /// To set its mode, times or access lists.
    pub sets: bool,
}

/// Whether a thread that waits for its answer may do to a file of these owners what its owner may. Not if it is not in sight.
pub(crate) fn acts_as_owner(
    thread: u32,
    what: OwnersOnly,
    owners: impl FnOnce() -> Option<(u32, u32)>,
) -> bool {
    let gives = if what.gives { CAP_CHOWN } else { 0 };
    let sets = if what.sets { CAP_FOWNER } else { 0 };
    has_all(gives | sets, thread, owners)
}

/// Whether a sticky directory does not keep such a thread from a file of these owners.
pub(crate) fn passes_sticky(thread: u32, owners: impl FnOnce() -> Option<(u32, u32)>) -> bool {
    has_all(CAP_FOWNER, thread, owners)
}

/// Whether such a thread may set the setgid bit of a file of a group that it is not in.
pub(crate) fn keeps_setgid(thread: u32, owners: impl FnOnce() -> Option<(u32, u32)>) -> bool {
    has_all(CAP_FSETID, thread, owners)
}

/// Whether a thread has all of these capabilities towards a file of these owners. In a user namespace of its own anybody has every one; they
/// count for the users and groups that are mapped there (`privileged_wrt_inode_uidgid` in linux:kernel/capability.c).
fn has_all(capabilities: u64, thread: u32, owners: impl FnOnce() -> Option<(u32, u32)>) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if !rights.is_some_and(|mask| mask & capabilities == capabilities) {
        return false;
    }
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user")).ok();
    let thread = thread.to_string();
    let theirs = namespace(&thread);
    if theirs.is_some() && theirs == namespace("self") {
        return true;
    }
    owners()
        .is_some_and(|(uid, gid)| is_mapped(&thread, "uid_map", uid) && is_mapped(&thread, "gid_map", gid))
}

/// Whether a user or group has a number in the namespace of a thread; `FIRST-THERE FIRST-HERE COUNT` in each line, as seen from here.
fn is_mapped(thread: &str, map: &str, id: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{thread}/{map}")).unwrap_or_default();
    text.lines().any(|line| {
        let numbers: Vec<u64> = line.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        let [_, first, count] = numbers[..] else { return false };
        (first..first.saturating_add(count)).contains(&u64::from(id))
    })
}

/// linux:include/uapi/linux/capability.h
const CAP_CHOWN: u64 = 1;
/// As above.
const CAP_FOWNER: u64 = 1 << 3;
/// As above.
const CAP_FSETID: u64 = 1 << 4;

#[cfg(test)]
mod tests {
    use super::{OwnersOnly, acts_as_owner, is_mapped, of_thread};

    #[test]
    fn rights_in_the_own_namespace_are_for_every_file() {
        let is_root = rustix::process::geteuid().is_root();
        for what in [OwnersOnly { gives: true, sets: false }, OwnersOnly { gives: true, sets: true }] {
            assert_eq!(acts_as_owner(std::process::id(), what, || None), is_root);
            assert!(!acts_as_owner(0, what, || Some((0, 0))));
        }
        assert!(is_mapped("self", "uid_map", 0) && !is_mapped("0", "uid_map", 0));
    }

    #[test]
    fn groups_are_those_of_the_thread() {
        let own = rustix::process::getgroups().unwrap_or_default();
        let own: Vec<u32> = own.into_iter().map(rustix::process::Gid::as_raw).collect();
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert_eq!(of_thread(thread), own);
        assert!(of_thread(0).is_empty());
    }
}
