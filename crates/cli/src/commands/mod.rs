//! One file per command.

pub mod bench;
pub mod doctor;
pub mod dump;
pub mod format;
pub mod fsck;
pub mod install;
pub mod manual;
pub mod mount;
pub mod quota;
pub mod scrub;
pub mod set;
pub mod stat;
pub mod status;
pub mod umount;
pub mod watch;
