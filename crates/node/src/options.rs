//! What to mount, where and how.

use std::path::PathBuf;
use std::time::Duration;

use fuse::RingUse;
use fuse::mount::MountFlags;
use types::Micros;
use vfs::{Atime, Lazy};

/// What to mount, where and how.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// Absolute path of the volume.
    pub volume: PathBuf,
    /// Absolute path of the mount point.
    pub mountpoint: PathBuf,
    /// How.
    pub options: MountOptions,
    /// What starts the guard: a program that calls [`guard::run`].
    pub guard: guard::Command,
}

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// No changes.
    pub read_only: bool,
    /// When reading changes access times.
    pub atime: Atime,
    /// Those of directories too.
    pub diratime: bool,
    /// Times reach the volume late.
    pub lazytime: bool,
    /// Sizes and times of files that other nodes write may be late.
    pub lazysize: bool,
    /// Others are shown late when this node wrote.
    pub nomtime: bool,
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
    /// The master's budget for tokens, if this node becomes master.
    pub token_memory_bytes: u64,
    /// Limit of the write-behind log.
    pub log_memory_bytes: u64,
    /// Limit of cached directories; none for a quarter of the machine's memory.
    pub cache_memory_bytes: Option<u64>,
    /// Lease of a membership, if this node becomes master.
    pub lease: Duration,
    /// Whether the kernel's requests come through io_uring.
    pub uring: RingUse,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            atime: Atime::Relative,
            diratime: true,
            lazytime: false,
            lazysize: false,
            nomtime: false,
            commit: Duration::from_secs(1),
            sync: false,
            dirsync: false,
            allow_other: false,
            default_permissions: true,
            dev: false,
            suid: false,
            exec: true,
            token_memory_bytes: 256 << 20,
            log_memory_bytes: 64 << 20,
            cache_memory_bytes: None,
            lease: Duration::from_secs(10),
            uring: RingUse::IfOffered,
        }
    }
}

impl MountOptions {
    /// Those that mount(2) knows.
    pub(crate) fn mount_flags(&self) -> MountFlags {
        let table = [
            (self.read_only, MountFlags::RDONLY),
            (self.atime == Atime::Never, MountFlags::NOATIME),
            (self.atime == Atime::Strict, MountFlags::STRICTATIME),
            (!self.diratime, MountFlags::NODIRATIME),
            (self.lazytime, MountFlags::LAZYTIME),
            (self.sync, MountFlags::SYNCHRONOUS),
            (self.dirsync, MountFlags::DIRSYNC),
            (!self.dev, MountFlags::NODEV),
            (!self.suid, MountFlags::NOSUID),
            (!self.exec, MountFlags::NOEXEC),
        ];
        table.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect()
    }

    /// Whether requests are to come through io_uring.
    pub(crate) fn rings(&self) -> RingUse {
        match self.uring {
            RingUse::IfOffered if !fuse::rings_suit() => RingUse::Off,
            asked => asked,
        }
    }

    fn cache_bytes_max(&self) -> usize {
        let bytes = self.cache_memory_bytes.unwrap_or_else(|| {
            let info = rustix::system::sysinfo();
            u64::try_from(info.totalram).unwrap_or(u64::MAX).saturating_mul(u64::from(info.mem_unit)) / 4
        });
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Settings of the node's core.
    pub(crate) fn core_config(&self) -> vfs::Config {
        let defaults = vfs::Config::default();
        vfs::Config {
            commit_interval: micros(self.commit),
            log_bytes_max: usize::try_from(self.log_memory_bytes).unwrap_or(usize::MAX),
            cache_bytes_max: self.cache_bytes_max(),
            read_only: self.read_only,
            sync: self.sync,
            dirsync: self.dirsync,
            atime: self.atime,
            diratime: self.diratime,
            lazy: Lazy { size: self.lazysize, mtime: self.nomtime },
            atime_interval: if self.lazytime { Micros::NEVER } else { defaults.atime_interval },
            setattr_in_order: is_kernel_since(
                rustix::system::uname().release().to_str().unwrap_or(""),
                (6, 16),
            ),
            ..defaults
        }
    }
}

/// Whether a release as uname(2) tells it, `6.18.44-amd64`, is a version or a later one.
fn is_kernel_since(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= version)
}

/// `time` in microseconds.
pub(crate) fn micros(time: Duration) -> Micros {
    Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_kernels_are_told_apart() {
        for since in ["6.16.0", "6.18.44-amd64", "7.0-rc1", "6.16"] {
            assert!(is_kernel_since(since, (6, 16)), "{since}");
        }
        for before in ["6.1.0-28-amd64", "5.15.167", "6.15.11", "", "6", "unknown"] {
            assert!(!is_kernel_since(before, (6, 16)), "{before}");
        }
    }
}
