//! Which file systems may carry a volume.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::VolumeError;

/// Magic numbers that `statfs` reports, from `linux:include/uapi/linux/magic.h` and the file systems' own sources.
const REFUSED: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517B, "SMB"),
    (0xFE53_4D42, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (FUSE, "a FUSE file system"),
    (0x0102_1997, "9P"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "CephFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x7375_7245, "Coda"),
    (0x0000_564C, "NCP"),
    (0x4750_4653, "GPFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0x786F_4256, "a VirtualBox shared folder"),
    (0xBACB_ACBC, "a VMware shared folder"),
];

/// Returns the name of the file system with this magic number if it may not carry a volume.
fn refused_name(magic: u32) -> Option<&'static str> {
    REFUSED.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

const FUSE: u32 = 0x6573_5546;

/// Whether a FUSE file system will do in this process.
static ACCEPTS_FUSE: AtomicBool = AtomicBool::new(false);

/// Lets volumes of this process lie on a FUSE file system. For tests with disks that fail and lose power, which are served
/// by FUSE: who takes a volume's disk for local must know that it is.
#[doc(hidden)]
pub fn accept_fuse() {
    ACCEPTS_FUSE.store(true, Ordering::Relaxed);
}

/// Refuses a directory on a network, cluster or FUSE file system.
pub(crate) fn check_local(path: &Path, dir: impl AsFd) -> Result<(), VolumeError> {
    let stat = rustix::fs::fstatfs(dir).map_err(|e| VolumeError::io("examine the file system", path, e))?;
    let is_accepted = |magic: u32| magic == FUSE && ACCEPTS_FUSE.load(Ordering::Relaxed);
    // The field's width and sign differ between architectures; magic numbers have 32 bits.
    match refused_name(stat.f_type as u32).filter(|_| !is_accepted(stat.f_type as u32)) {
        Some(filesystem) => Err(VolumeError::NetworkFilesystem { path: path.to_owned(), filesystem }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::refused_name;

    #[test]
    fn network_and_cluster_file_systems_are_refused_by_name() {
        for (magic, name) in [
            (0x6969, Some("NFS")),
            (0xFF53_4D42, Some("CIFS")),
            (0x6573_5546, Some("a FUSE file system")),
            (0x00C3_6400, Some("CephFS")),
            (0x0116_1970, Some("GFS2")),
            (0xEF53, None),      // ext4
            (0x5846_5342, None), // XFS
            (0x9123_683E, None), // Btrfs
            (0x0102_1994, None), // tmpfs
            (0x794C_7630, None), // overlayfs
        ] {
            assert_eq!(refused_name(magic), name, "{magic:#x}");
        }
    }
}
