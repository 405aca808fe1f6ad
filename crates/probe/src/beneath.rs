//! What a target stands on, as far as the kernel tells: devices of a mapper or RAID, partitions, loop devices and their
//! files, the device of a file system.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};

use crate::mounts;

/// A target's own name among [`Place::beneath`] of others, and what lies beneath it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// `block 8:16`, or `file 8:1 4711` by device and inode.
    pub own: Option<String>,
    /// All that it stands on, however far below.
    pub beneath: Vec<String>,
}

impl Place {
    /// Looks where `path` stands. What the kernel does not tell is left out: nothing here is an error.
    pub fn of(path: &Path) -> Self {
        let mut place = Self::default();
        if let Some(found) = look(path) {
            place.own = Some(name_of(&found));
            place.dig(path, &found, DEPTH_MAX);
        }
        place
    }

    fn dig(&mut self, path: &Path, found: &Statx, depth: u32) {
        if is_block(found) {
            return self.dig_device(found.stx_rdev_major, found.stx_rdev_minor, depth);
        }
        match found.stx_dev_major {
            // Not a device's own: Btrfs, and what has no device, like NFS. The table of mounts may name one.
            0 => {
                let Some(source) = mount_source(path, found) else { return };
                let Some(device) = look(&source).filter(is_block) else { return };
                self.add_device(device.stx_rdev_major, device.stx_rdev_minor, depth);
            }
            major => self.add_device(major, found.stx_dev_minor, depth),
        }
    }

    fn add_device(&mut self, major: u32, minor: u32, depth: u32) {
        self.add(format!("block {major}:{minor}"));
        self.dig_device(major, minor, depth);
    }

    fn dig_device(&mut self, major: u32, minor: u32, depth: u32) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let dir = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let slaves = fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten();
        let mut below: Vec<PathBuf> = slaves.map(|slave| slave.path()).collect();
        if dir.join("partition").exists()
            && let Ok(own) = fs::canonicalize(&dir)
        {
            below.extend(own.parent().map(Path::to_owned));
        }
        for device in below {
            if let Some((major, minor)) = number_of(&device) {
                self.add_device(major, minor, depth);
            }
        }
        if let Ok(file) = fs::read_to_string(dir.join("loop/backing_file")) {
            let file = PathBuf::from(file.trim_end_matches('\n'));
            if let Some(found) = look(&file) {
                self.add(name_of(&found));
                self.dig(&file, &found, depth);
            }
        }
    }

    fn add(&mut self, name: String) {
        if !self.beneath.contains(&name) {
            self.beneath.push(name);
        }
    }
}

fn look(path: &Path) -> Option<Statx> {
    let flags = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    rustix::fs::statx(CWD, path, AtFlags::empty(), flags).ok()
}

fn is_block(found: &Statx) -> bool {
    FileType::from_raw_mode(u32::from(found.stx_mode)) == FileType::BlockDevice
}

fn name_of(found: &Statx) -> String {
    if is_block(found) {
        return format!("block {}:{}", found.stx_rdev_major, found.stx_rdev_minor);
    }
    format!("file {}:{} {}", found.stx_dev_major, found.stx_dev_minor, found.stx_ino)
}

/// `8:16` from the file `dev` of a device in sysfs.
fn number_of(device: &Path) -> Option<(u32, u32)> {
    let text = fs::read_to_string(device.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn mount_source(path: &Path, found: &Statx) -> Option<PathBuf> {
    let table = mounts::table();
    let path = fs::canonicalize(path).ok()?;
    let number = (found.stx_dev_major, found.stx_dev_minor);
    source_in(&table, mounts::mount_id(found), &path, number)
}

/// The device that a file system's mount names, if it names one.
fn source_in(table: &str, id: Option<u64>, path: &Path, number: (u32, u32)) -> Option<PathBuf> {
    let source = mounts::find(table, id, path, number)?.source;
    source.starts_with("/dev/").then(|| PathBuf::from(source))
}

/// Stacks are not higher.
const DEPTH_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_mount_is_found() {
        let table = "25 30 0:23 / /sys rw shared:7 - sysfs sysfs rw\n\
                     31 1 0:30 /sub /data rw,noatime - btrfs /dev/mapper/vg-lv rw,space_cache\n\
                     131 1 0:31 / /n rw - nfs4 server:/export rw\n32\n";
        let of = |id, path| source_in(table, id, Path::new(path), (0, 30));
        assert_eq!(of(Some(31), "/"), Some(PathBuf::from("/dev/mapper/vg-lv")));
        for id in [25, 131, 32, 3, 99] {
            assert_eq!(of(Some(id), "/data"), None, "{id}");
        }
        assert_eq!(of(None, "/data/x"), Some(PathBuf::from("/dev/mapper/vg-lv")), "before Linux 5.8");
        assert_eq!(of(None, "/n/x"), None);
    }

    #[test]
    fn a_file_has_a_name_and_the_same_each_time() {
        let path = std::env::current_exe().unwrap();
        let place = Place::of(&path);
        assert!(place.own.as_ref().is_some_and(|own| own.starts_with("file ")), "{place:?}");
        assert_eq!(place, Place::of(&path));
        assert_eq!(Place::of(Path::new("/nonexistent")), Place::default());
    }
}
