//! Values that both sides have, in the form of the other.

use std::time::Duration;

use meta::FileKind;
use types::{Ino, Timespec};
use vfs::{HandleId, Keep, OpenMode};

use crate::linux;

/// How long the kernel may believe what it was told.
///
/// Ten years stand for "until told otherwise". The kernel turns it into jiffies in 64 bits, clamped to what
/// they hold (`fuse_time_to_jiffies` in linux:fs/fuse/dir.c), so nothing wraps; a true maximum would be at the
/// mercy of that clamp.
pub const fn ttl_of(keep: Keep) -> Duration {
    match keep {
        Keep::Yes => Duration::from_secs(10 * 365 * 24 * 60 * 60),
        Keep::No => Duration::ZERO,
    }
}

/// Attributes as the kernel wants them.
pub fn attr_of(attr: &vfs::Attr) -> fuse::Attr {
    fuse::Attr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.stored_bytes.div_ceil(512),
        atime: timestamp_of(attr.atime),
        mtime: timestamp_of(attr.mtime),
        ctime: timestamp_of(attr.ctime),
        mode: type_bits(attr.kind) | attr.mode & linux::PERMISSIONS,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // Stored as the kernel encoded it at mknod (`new_encode_dev`), and so given back.
        rdev: attr.rdev,
        blksize: BLOCK_LEN,
    }
}

/// An entry as the kernel wants it.
pub fn entry_of(entry: &vfs::Entry) -> fuse::Entry {
    let attr = &entry.attr;
    fuse::Entry {
        nodeid: attr.ino.0,
        // The kernel made the root by itself, with generation 0 (`fuse_get_root_inode`).
        generation: if attr.ino == Ino::ROOT { 0 } else { u64::from(attr.generation) },
        entry_ttl: ttl_of(entry.keep_name),
        attr_ttl: ttl_of(entry.keep_attr),
        attr: attr_of(attr),
    }
}

/// An open file as the kernel wants it.
///
/// KEEP_CACHE goes with DIRECT_IO too: without it this open would drop the pages that others cached.
pub fn opened_of(opened: vfs::Opened) -> fuse::Opened {
    let mut flags = match opened.keep_pages {
        Keep::Yes => fuse::OpenReplyFlags::KEEP_CACHE,
        Keep::No => fuse::OpenReplyFlags::from_bits(0),
    };
    if opened.direct {
        flags = flags | fuse::OpenReplyFlags::DIRECT_IO;
    }
    fuse::Opened { fh: FileHandle::from(opened).to_raw(), flags, backing_id: 0 }
}

/// What the kernel keeps for us with an open file: its number, and whether its pages are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHandle {
    /// Number of the handle in the core.
    pub id: HandleId,
    /// Whether it was opened with DIRECT_IO.
    pub direct: bool,
}

impl From<vfs::Opened> for FileHandle {
    fn from(opened: vfs::Opened) -> Self {
        Self { id: opened.handle, direct: opened.direct }
    }
}

impl FileHandle {
    /// The `fh` that says this.
    pub const fn to_raw(self) -> u64 {
        self.id.0 << 1 | self.direct as u64
    }

    /// What `fh` says.
    pub const fn from_raw(fh: u64) -> Self {
        Self { id: HandleId(fh >> 1), direct: fh & 1 != 0 }
    }
}

/// How a file is to be opened, from the flags of open(2).
pub const fn open_mode_of(flags: u32) -> OpenMode {
    OpenMode {
        write: flags & linux::O_ACCMODE != linux::O_RDONLY,
        map: flags & linux::O_ACCMODE == linux::O_RDWR,
        append: flags & linux::O_APPEND != 0,
        sync: flags & linux::O_DSYNC != 0,
    }
}

/// The type bits of st_mode.
pub const fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => linux::S_IFREG,
        FileKind::Directory => linux::S_IFDIR,
        FileKind::Symlink => linux::S_IFLNK,
        FileKind::Fifo => linux::S_IFIFO,
        FileKind::Socket => linux::S_IFSOCK,
        FileKind::CharDevice => linux::S_IFCHR,
        FileKind::BlockDevice => linux::S_IFBLK,
    }
}

/// The kind that mknod(2) asks for; no type bits mean a regular file. `None` for what it may not make.
pub const fn kind_of_mode(mode: u32) -> Option<FileKind> {
    match mode & linux::S_IFMT {
        0 | linux::S_IFREG => Some(FileKind::File),
        linux::S_IFIFO => Some(FileKind::Fifo),
        linux::S_IFSOCK => Some(FileKind::Socket),
        linux::S_IFCHR => Some(FileKind::CharDevice),
        linux::S_IFBLK => Some(FileKind::BlockDevice),
        _ => None,
    }
}

/// The kind as a directory entry shows it.
pub const fn dirent_kind_of(kind: FileKind) -> fuse::FileKind {
    match kind {
        FileKind::File => fuse::FileKind::Regular,
        FileKind::Directory => fuse::FileKind::Directory,
        FileKind::Symlink => fuse::FileKind::Symlink,
        FileKind::Fifo => fuse::FileKind::Fifo,
        FileKind::Socket => fuse::FileKind::Socket,
        FileKind::CharDevice => fuse::FileKind::CharDevice,
        FileKind::BlockDevice => fuse::FileKind::BlockDevice,
    }
}

/// A time in the kernel's form.
pub const fn timestamp_of(time: Timespec) -> fuse::Timestamp {
    fuse::Timestamp { seconds: time.secs, nanoseconds: time.nanos }
}

/// A time in ours; `None` if the nanoseconds are not below a second.
pub const fn timespec_of(time: fuse::Timestamp) -> Option<Timespec> {
    if time.nanoseconds > 999_999_999 {
        return None;
    }
    Some(Timespec { secs: time.seconds, nanos: time.nanoseconds })
}

/// Unit of block counts in statfs, and the preferred I/O size.
pub const BLOCK_LEN: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    pub fn attr(ino: u64) -> vfs::Attr {
        vfs::Attr {
            ino: Ino(ino),
            generation: 7,
            kind: FileKind::File,
            mode: 0o4755,
            nlink: 2,
            uid: 10,
            gid: 20,
            rdev: 0,
            size: 5000,
            tree: 0,
            stored_bytes: 513,
            atime: Timespec { secs: -1, nanos: 5 },
            mtime: Timespec { secs: 2, nanos: 6 },
            ctime: Timespec { secs: 3, nanos: 7 },
            btime: Timespec { secs: 4, nanos: 8 },
        }
    }

    #[test]
    fn attributes_are_carried_over_and_blocks_are_rounded_up() {
        let out = attr_of(&attr(9));
        assert_eq!((out.ino, out.size, out.blocks, out.blksize), (9, 5000, 2, 4096));
        assert_eq!((out.mode, out.nlink, out.uid, out.gid), (0o104_755, 2, 10, 20));
        assert_eq!(out.atime, fuse::Timestamp { seconds: -1, nanoseconds: 5 });
        assert_eq!(out.mtime, fuse::Timestamp { seconds: 2, nanoseconds: 6 });
        assert_eq!(out.ctime, fuse::Timestamp { seconds: 3, nanoseconds: 7 });
        for (stored_bytes, blocks) in [(0, 0), (1, 1), (512, 1), (513, 2), (1 << 40, 1 << 31)] {
            assert_eq!(attr_of(&vfs::Attr { stored_bytes, ..attr(9) }).blocks, blocks);
        }
    }

    #[test]
    fn device_numbers_pass_through_in_the_kernels_encoding() {
        let device = vfs::Attr { kind: FileKind::BlockDevice, rdev: 0x0010_0801, ..attr(9) };
        assert_eq!(attr_of(&device).rdev, 0x0010_0801);
    }

    #[test]
    fn keep_decides_each_timeout_alone() {
        let ten_years = Duration::from_secs(315_360_000);
        for (keep_name, keep_attr, name_ttl, attr_ttl) in [
            (Keep::Yes, Keep::Yes, ten_years, ten_years),
            (Keep::Yes, Keep::No, ten_years, Duration::ZERO),
            (Keep::No, Keep::Yes, Duration::ZERO, ten_years),
            (Keep::No, Keep::No, Duration::ZERO, Duration::ZERO),
        ] {
            let out = entry_of(&vfs::Entry { attr: attr(9), keep_name, keep_attr });
            assert_eq!((out.entry_ttl, out.attr_ttl), (name_ttl, attr_ttl));
            assert_eq!((out.nodeid, out.generation), (9, 7));
        }
    }

    #[test]
    fn the_root_has_generation_zero() {
        let entry = vfs::Entry { attr: attr(1), keep_name: Keep::No, keep_attr: Keep::No };
        assert_eq!(entry_of(&entry).generation, 0);
    }

    #[test]
    fn handles_carry_their_caching_in_the_lowest_bit() {
        for (direct, keep_pages, fh) in
            [(false, Keep::Yes, 84), (true, Keep::Yes, 85), (false, Keep::No, 84), (true, Keep::No, 85)]
        {
            let out = opened_of(vfs::Opened { handle: HandleId(42), direct, keep_pages });
            assert_eq!(out.fh, fh);
            assert_eq!(FileHandle::from_raw(fh), FileHandle { id: HandleId(42), direct });
            assert_eq!(out.flags.contains(fuse::OpenReplyFlags::DIRECT_IO), direct);
            assert_eq!(out.flags.contains(fuse::OpenReplyFlags::KEEP_CACHE), keep_pages == Keep::Yes);
        }
    }

    #[test]
    fn open_flags_decide_the_mode() {
        let mode = |write, append, sync| OpenMode { write, append, sync, ..OpenMode::default() };
        for (flags, expected) in [
            (0o0, mode(false, false, false)),
            (0o1, mode(true, false, false)),
            (0o2, OpenMode { map: true, ..mode(true, false, false) }),
            // 3 is neither; Linux opens it for ioctl alone, but checks both permissions.
            (0o3, mode(true, false, false)),
            (0o2001, mode(true, true, false)),
            (0o10_001, mode(true, false, true)),
            (0o4_010_002, OpenMode { map: true, ..mode(true, false, true) }),
            (0o4_012_002, OpenMode { map: true, ..mode(true, true, true) }),
        ] {
            assert_eq!(open_mode_of(flags), expected, "{flags:o}");
        }
    }

    #[test]
    fn kinds_and_type_bits_agree() {
        use FileKind::*;
        for (kind, bits) in [
            (File, 0o100_000),
            (Directory, 0o040_000),
            (Symlink, 0o120_000),
            (Fifo, 0o010_000),
            (Socket, 0o140_000),
            (CharDevice, 0o020_000),
            (BlockDevice, 0o060_000),
        ] {
            assert_eq!(type_bits(kind), bits);
            // DT_* is S_IF* shifted.
            assert_eq!(dirent_kind_of(kind) as u32, bits >> 12);
            let can_be_made = !matches!(kind, Directory | Symlink);
            assert_eq!(kind_of_mode(bits | 0o644), can_be_made.then_some(kind));
        }
        assert_eq!(kind_of_mode(0o644), Some(File));
        assert_eq!(kind_of_mode(0o170_644), None);
    }
}
