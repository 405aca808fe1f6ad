//! One file per command.

pub mod format;
pub mod install;
pub mod mount;
pub mod stat;
pub mod status;
pub mod umount;
