//! How a session with the kernel is to be set up.

use fuse::{Config, InitFlags, RingUse};

/// Returns the settings of the transport that the rest of this crate counts on.
///
/// Without ATOMIC_O_TRUNC the kernel sends a SETATTR for O_TRUNC, after the OPEN: the core has one way to
/// truncate. `acl` is whether the kernel enforces POSIX ACLs. `lowers` is whether there is a [`CatchUp`](crate::CatchUp):
/// without, the kernel asks for the end of a file before every read that follows a change. That leaves a read alone that
/// is under way while another node cuts the file, and costs the pages of a file with each stat that follows a write.
/// `rings` is whether requests are to come through io_uring.
pub fn session_config(acl: bool, lowers: bool, rings: RingUse) -> Config {
    let mut flags = Config::FLAGS_DEFAULT.difference(InitFlags::ATOMIC_O_TRUNC);
    if !acl {
        flags = flags.difference(InitFlags::POSIX_ACL);
    }
    if !lowers {
        flags = flags.difference(InitFlags::EXPLICIT_INVAL_DATA).union(InitFlags::AUTO_INVAL_DATA);
    }
    Config { flags, rings, ..Config::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_that_the_translation_counts_on() {
        for (acl, lowers) in [(false, true), (true, true), (true, false)] {
            let flags = session_config(acl, lowers, RingUse::Off).flags;
            assert_eq!(flags.contains(InitFlags::POSIX_ACL), acl);
            assert_eq!(flags.contains(InitFlags::EXPLICIT_INVAL_DATA), lowers);
            assert_eq!(flags.contains(InitFlags::AUTO_INVAL_DATA), !lowers);
            for needed in [
                InitFlags::DONT_MASK,
                InitFlags::NO_OPENDIR_SUPPORT,
                InitFlags::HANDLE_KILLPRIV_V2,
                InitFlags::DO_READDIRPLUS,
                InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS,
                InitFlags::EXPORT_SUPPORT,
            ] {
                assert!(flags.contains(needed), "{needed:?}");
            }
            for harmful in [InitFlags::ATOMIC_O_TRUNC, InitFlags::WRITEBACK_CACHE] {
                assert!(!flags.contains(harmful), "{harmful:?}");
            }
        }
    }
}
