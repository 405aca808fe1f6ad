//! The kernel's table of mounts, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Statx, StatxFlags};

/// A line of it. proc(5): `ID PARENT MAJOR:MINOR ROOT AT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    id: u64,
    /// Device number: major and minor.
    number: (u32, u32),
    at: PathBuf,
    /// Of this mount.
    pub options: &'a str,
    pub kind: &'a str,
    pub source: &'a str,
    /// Of the file system, wherever it is mounted.
    pub common: &'a str,
}

/// The whole table. The name of a mount point may be any bytes, and those of one say nothing about the others.
pub(crate) fn table() -> String {
    let bytes = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The mount that `path` is on: by its number in the table if the kernel tells that, and else the last of those furthest down above
/// `path`, if possible of the device `number`. A subvolume of Btrfs has a number that its mount has not.
pub(crate) fn find<'a>(
    table: &'a str,
    id: Option<u64>,
    path: &Path,
    number: (u32, u32),
) -> Option<Mount<'a>> {
    let mut mounts = table.lines().filter_map(Mount::parse);
    match id {
        Some(id) => mounts.find(|mount| mount.id == id),
        None => mounts
            .filter(|mount| path.starts_with(&mount.at))
            .max_by_key(|mount| (mount.number == number, mount.at.components().count())),
    }
}

/// The mount's number in the table. None before Linux 5.8, which does not tell it: 0 stands there then.
pub(crate) fn mount_id(found: &Statx) -> Option<u64> {
    let is_told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    is_told.then_some(found.stx_mnt_id)
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut words = mount.split(' ');
        let (id, number) = (words.next()?.parse().ok()?, words.nth(1)?);
        let (major, minor) = number.split_once(':')?;
        let (at, options) = (plain(words.nth(1)?), words.next()?);
        let mut words = file_system.split(' ');
        let (kind, source, common) = (words.next()?, words.next()?, words.next().unwrap_or_default());
        let number = (major.parse().ok()?, minor.parse().ok()?);
        Some(Self { id, number, at, options, kind, source, common })
    }
}

/// Spaces, tabs, ends of lines and backslashes stand there as `\` and three octal digits.
fn plain(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        31 25 0:30 /sub /data rw,noatime - btrfs /dev/mapper/vg-lv rw,space_cache\n\
        32 25 0:39 / /data/a\\040b rw - fuse.x x rw,user_id=0\n\
        33 25 8:1 /home /data/a rw - ext4 /dev/sda1 rw\n\
        34 25 0:40 / /data/a rw - tmpfs none rw\n\
        35 x\n\
        36 25 0:41 / /n rw - nfs4 server:/export\n";

    fn found(id: Option<u64>, path: &str, number: (u32, u32)) -> Option<(u64, &'static str)> {
        find(TABLE, id, Path::new(path), number).map(|mount| (mount.id, mount.kind))
    }

    #[test]
    fn a_mount_is_found_by_its_number() {
        let mount = find(TABLE, Some(31), Path::new("/"), (0, 0)).unwrap();
        assert_eq!((mount.options, mount.common), ("rw,noatime", "rw,space_cache"));
        assert_eq!((mount.kind, mount.source), ("btrfs", "/dev/mapper/vg-lv"));
        assert_eq!(found(Some(36), "/", (0, 0)), Some((36, "nfs4")));
        for id in [3, 35, 99] {
            assert_eq!(found(Some(id), "/", (8, 1)), None, "{id}");
        }
    }

    /// Goal: kernels before 5.8 have mounts too. Method: the table without a number.
    #[test]
    fn without_a_number_a_mount_is_found_by_device_and_path() {
        assert_eq!(found(None, "/data/a/x", (0, 40)), Some((34, "tmpfs")));
        assert_eq!(found(None, "/data/a/x", (8, 1)), Some((33, "ext4")), "below the one on top of it");
        assert_eq!(found(None, "/data/a b/x", (0, 39)), Some((32, "fuse.x")));
        assert_eq!(found(None, "/data/subvolume/x", (0, 77)), Some((31, "btrfs")), "by its path alone");
        assert_eq!(found(None, "/home", (8, 1)), Some((25, "ext4")));
        assert_eq!(find("", None, Path::new("/"), (8, 1)), None);
    }

    #[test]
    fn backslashes_hide_what_would_end_a_word() {
        assert_eq!(plain("/a\\040b\\134"), Path::new("/a b\\"));
        for text in ["/a\\", "/a\\04", "/a\\9zz", "/\\777x"] {
            assert_eq!(plain(text), Path::new(text));
        }
    }
}
