//! The mount table. Reading it never touches a mount, so it is safe when one hangs.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One FUSE mount in the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Minor of st_dev, which is also the connection's number.
    pub device_minor: u32,
    /// Where.
    pub mountpoint: PathBuf,
    /// `fuse`, `fuseblk` or `fuse.<subtype>`.
    pub kind: String,
    /// Source as the mounter named it.
    pub source: OsString,
}

/// Returns the topmost mount at `mountpoint` if it is a FUSE one.
pub(super) fn find_fuse(mountpoint: &Path) -> io::Result<Option<MountEntry>> {
    Ok(find_in(&fs::read("/proc/self/mountinfo")?, mountpoint))
}

/// The last line for a place is the topmost mount there.
fn find_in(table: &[u8], mountpoint: &Path) -> Option<MountEntry> {
    let lines = table.split(|byte| *byte == b'\n');
    let topmost = lines.filter_map(parse_line).rfind(|entry| entry.mountpoint == mountpoint)?;
    let is_fuse = topmost.kind == "fuse" || topmost.kind == "fuseblk" || topmost.kind.starts_with("fuse.");
    is_fuse.then_some(topmost)
}

/// Fields as in proc_pid_mountinfo(5): id parent major:minor root place options [tags] - type source.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = str::from_utf8(fields.nth(2)?).ok()?;
    let mountpoint = fields.nth(1)?;
    let mut after_tags = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = after_tags.next()?;
    let source = after_tags.next()?;
    Some(MountEntry {
        device_minor: device.split_once(':')?.1.parse().ok()?,
        mountpoint: unescape(mountpoint).into(),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: unescape(source),
    })
}

/// Undoes `\ooo`, which the kernel writes for blank, tab, newline and backslash.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let code = (*first == b'\\').then(|| tail.get(..3).and_then(parse_octal)).flatten();
        match code {
            Some(code) => {
                bytes.push(code);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

fn parse_octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::ffi::OsStr::from_bytes(digits).to_str()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 21 0:52 / /mnt/a\\040b rw,nosuid - fuse.some vol\\054x rw,user_id=0
41 21 0:53 / /mnt/c rw master:2 shared:7 - fuse.some v rw
42 41 0:54 / /mnt/c rw - tmpfs tmpfs rw
";

    #[test]
    fn escaped_mount_point_is_found() {
        let entry = find_in(TABLE, Path::new("/mnt/a b")).unwrap();
        assert_eq!(entry.device_minor, 52);
        assert_eq!(entry.kind, "fuse.some");
        assert_eq!(entry.source, "vol,x");
    }

    #[test]
    fn covered_mount_is_not_found() {
        assert_eq!(find_in(TABLE, Path::new("/mnt/c")), None);
        assert_eq!(find_in(TABLE, Path::new("/")), None);
        assert_eq!(find_in(b"garbage\n\n1 2 3\n", Path::new("/")), None);
    }
}
