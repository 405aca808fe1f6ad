//! Stands where the crate `node` will: the same names, and a mount that always fails.

use std::path::PathBuf;
use std::time::Duration;

/// What to mount, where and how.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// Absolute path of the volume.
    pub volume: PathBuf,
    /// Absolute path of the mount point.
    pub mountpoint: PathBuf,
    /// How.
    pub options: MountOptions,
}

/// See `options::MountOptions`, field by field.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// No changes.
    pub read_only: bool,
    /// Access times are kept (relatime).
    pub atime: bool,
    /// Those of directories too.
    pub diratime: bool,
    /// Times reach the volume late.
    pub lazytime: bool,
    /// Longest time a change stays in memory only.
    pub commit: Duration,
    /// Every change is durable at once.
    pub sync: bool,
    /// Every directory change is.
    pub dirsync: bool,
    /// FUSE `allow_other`.
    pub allow_other: bool,
    /// FUSE `default_permissions`.
    pub default_permissions: bool,
    /// Device files work.
    pub dev: bool,
    /// Set-user-id works.
    pub suid: bool,
    /// Programs run.
    pub exec: bool,
    /// The master's budget for tokens.
    pub token_memory_bytes: u64,
    /// Limit of the write-behind log.
    pub log_memory_bytes: u64,
    /// Lease of a membership.
    pub lease: Duration,
}

/// Why a node did not come up, or how it ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// This build has no node.
    #[error("cannot mount {} at {}: this build has no node", .0.volume.display(), .0.mountpoint.display())]
    Missing(Box<MountRequest>),
}

/// Mounts, calls `ready`, and returns when unmounted and flushed.
pub fn mount(request: MountRequest, ready: Box<dyn FnOnce()>) -> Result<(), NodeError> {
    drop(ready);
    Err(NodeError::Missing(Box::new(request)))
}
