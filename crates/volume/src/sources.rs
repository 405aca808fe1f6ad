//! From a mount point to its volume and its node's control socket, through `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::sockets::control_socket_name;

/// File system type of our mounts in `/proc/mounts`.
pub const FSTYPE: &str = "fuse.holdfast";

/// One mount, of any type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Major device number of the mounted file system.
    pub major: u32,
    /// Minor device number of the mounted file system.
    pub minor: u32,
    /// What of it is mounted: its root, or the directory that a bind mount shows.
    pub root: PathBuf,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Type and subtype.
    pub fstype: String,
    /// For our mounts the volume's absolute path.
    pub source: PathBuf,
}

impl MountEntry {
    /// Whether it is a Holdfast mount.
    pub fn is_holdfast(&self) -> bool {
        self.fstype == FSTYPE
    }

    /// Name of its node's control socket in the volume.
    pub fn control_socket(&self) -> String {
        control_socket_name(self.major, self.minor)
    }
}

/// All mounts of this process's mount namespace, in the kernel's order.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mount on top at `mountpoint`, `None` if nothing is mounted exactly there.
///
/// Does not touch the mounted file system itself when the path's last part is no symbolic link, so it
/// works for a mount that hangs or whose process is dead.
pub fn find(mountpoint: &Path) -> io::Result<Option<MountEntry>> {
    let all = mounts()?;
    if let Some(found) = top_at(&all, &resolve_parent(mountpoint)?) {
        return Ok(Some(found));
    }
    Ok(top_at(&all, &std::fs::canonicalize(mountpoint)?))
}

/// The mount that an absolute path without symbolic links is on. Touches no file system.
pub fn containing(path: &Path) -> io::Result<Option<MountEntry>> {
    let all = mounts()?;
    Ok(path.ancestors().find_map(|at| top_at(&all, at)))
}

/// All Holdfast mounts of the volume at the absolute path `volume`.
pub fn mounts_of(volume: &Path) -> io::Result<Vec<MountEntry>> {
    Ok(mounts()?.into_iter().filter(|mount| mount.is_holdfast() && mount.source == volume).collect())
}

/// The last line of a mount point is the mount on top.
fn top_at(mounts: &[MountEntry], mountpoint: &Path) -> Option<MountEntry> {
    mounts.iter().rev().find(|mount| mount.mountpoint == mountpoint).cloned()
}

/// Resolves all of the path but its last part.
fn resolve_parent(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(std::fs::canonicalize(parent)?.join(name))
        }
        _ => std::fs::canonicalize(path),
    }
}

fn parse(mountinfo: &[u8]) -> Vec<MountEntry> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /mountpoint options [optional ...] - type source super-options`, see proc(5).
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(words.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = unescape(words.next()?);
    let mountpoint = unescape(words.next()?);
    words.find(|word| *word == b"-")?;
    let fstype = std::str::from_utf8(words.next()?).ok()?.to_owned();
    let source = unescape(words.next()?);
    Some(MountEntry {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        root: root.into(),
        mountpoint: mountpoint.into(),
        fstype,
        source: source.into(),
    })
}

/// Decodes `\040` and the like: the kernel writes blanks, newlines and backslashes so.
fn unescape(word: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        match octal(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// The byte of an escape at the start of `rest`.
fn octal(rest: &[u8]) -> Option<u8> {
    let digits = rest.strip_prefix(b"\\")?.get(..3)?;
    let text = std::ffi::OsStr::from_bytes(digits).to_str()?;
    if !digits.iter().all(|digit| (b'0'..=b'7').contains(digit)) {
        return None;
    }
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        40 22 0:51 / /mnt/a rw,nosuid,nodev - fuse.holdfast /srv/my\\040vol rw,user_id=0\n\
        41 22 0:52 / /mnt/with\\134slash\\011tab rw master:2 propagate_from:3 - fuse.holdfast /srv/v rw\n\
        42 40 0:53 / /mnt/a rw - tmpfs tmpfs rw\n\
        damaged line\n\
        43 22 0:x / /q rw - tmpfs tmpfs rw\n";

    #[test]
    fn mountinfo_is_read_with_escapes_and_optional_fields() {
        let mounts = parse(MOUNTINFO);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].source, Path::new("/srv/my vol"));
        assert!(mounts[1].is_holdfast() && !mounts[0].is_holdfast());
        assert_eq!(mounts[1].control_socket(), "node-0:51");
        assert_eq!(mounts[2].mountpoint, Path::new("/mnt/with\\slash\ttab"));
    }

    #[test]
    fn of_stacked_mounts_the_upper_one_is_found() {
        let mounts = parse(MOUNTINFO);
        assert_eq!(top_at(&mounts, Path::new("/mnt/a")).expect("mounted").fstype, "tmpfs");
        assert_eq!(top_at(&mounts, Path::new("/mnt")), None);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        for (word, expected) in [("a\\040b", "a b"), ("a\\09", "a\\09"), ("\\", "\\"), ("\\777", "\\777")] {
            assert_eq!(unescape(word.as_bytes()), expected, "{word}");
        }
    }

    #[test]
    fn the_root_directory_is_always_mounted() {
        assert!(find(Path::new("/")).expect("mountinfo is readable").is_some());
    }
}
