//! How a session with the kernel is to be set up.

use fuse::{Config, InitFlags};

/// Returns the settings of the transport that the rest of this crate counts on.
///
/// Without ATOMIC_O_TRUNC the kernel sends a SETATTR for O_TRUNC, after the OPEN: the core has one way to
/// truncate. `acl` is whether the kernel enforces POSIX ACLs.
pub fn session_config(acl: bool) -> Config {
    let mut flags = Config::FLAGS_DEFAULT.difference(InitFlags::ATOMIC_O_TRUNC);
    if !acl {
        flags = flags.difference(InitFlags::POSIX_ACL);
    }
    Config { flags, ..Config::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_that_the_translation_counts_on() {
        for acl in [false, true] {
            let flags = session_config(acl).flags;
            assert_eq!(flags.contains(InitFlags::POSIX_ACL), acl);
            for needed in [
                InitFlags::DONT_MASK,
                InitFlags::NO_OPENDIR_SUPPORT,
                InitFlags::EXPLICIT_INVAL_DATA,
                InitFlags::HANDLE_KILLPRIV_V2,
                InitFlags::DO_READDIRPLUS,
                InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS,
                InitFlags::EXPORT_SUPPORT,
            ] {
                assert!(flags.contains(needed), "{needed:?}");
            }
            for harmful in [InitFlags::ATOMIC_O_TRUNC, InitFlags::WRITEBACK_CACHE, InitFlags::AUTO_INVAL_DATA]
            {
                assert!(!flags.contains(harmful), "{harmful:?}");
            }
        }
    }
}
