//! Directory entries on their way from the core to the kernel's buffer.

use std::any::Any;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuse::DirBuffer;
use meta::FileKind;
use types::Ino;
use vfs::DirSink;

use crate::convert::{dirent_kind_of, entry_of, type_bits};

/// Packs entries for READDIR or READDIRPLUS.
#[derive(Debug)]
pub struct DirPacker {
    buffer: DirBuffer,
    form: Form,
}

/// Which of the two forms an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Names, numbers and types.
    Plain,
    /// Attributes too.
    Plus,
}

impl DirPacker {
    /// For READDIR with room for `size` bytes.
    pub fn plain(size: u32) -> Self {
        Self { buffer: DirBuffer::new(size), form: Form::Plain }
    }

    /// For READDIRPLUS with room for `size` bytes.
    pub fn plus(size: u32) -> Self {
        Self { buffer: DirBuffer::new(size), form: Form::Plus }
    }

    /// The packed entries.
    pub fn into_buffer(self) -> DirBuffer {
        self.buffer
    }

    /// Node id 0 gives the name alone, without a reference (`fuse_direntplus_link` in
    /// linux:fs/fuse/readdir.c); number and type still come from the attributes.
    fn push_plus(
        &mut self,
        name: &OsStr,
        ino: Ino,
        kind: FileKind,
        offset: u64,
        entry: Option<&vfs::Entry>,
    ) -> bool {
        // The kernel takes no reference by these two, whatever they say.
        let is_dots = matches!(name.as_bytes(), b"." | b"..");
        let packed = match entry {
            Some(entry) if !is_dots => entry_of(entry),
            Some(_) | None => {
                let attr = fuse::Attr { ino: ino.0, mode: type_bits(kind), ..fuse::Attr::default() };
                fuse::Entry { attr, ..fuse::Entry::default() }
            }
        };
        self.buffer.push_plus(&packed, offset, name)
    }
}

impl DirSink for DirPacker {
    fn push(
        &mut self,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
        offset: u64,
        entry: Option<&vfs::Entry>,
    ) -> bool {
        let name = OsStr::from_bytes(name);
        match self.form {
            Form::Plain => self.buffer.push(ino.0, offset, dirent_kind_of(kind), name),
            Form::Plus => self.push_plus(name, ino, kind, offset, entry),
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Timespec;
    use vfs::Keep;

    fn entry(ino: u64) -> vfs::Entry {
        let time = Timespec::default();
        let attr = vfs::Attr {
            ino: Ino(ino),
            generation: 1,
            kind: FileKind::File,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            tree: 0,
            stored_bytes: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        };
        vfs::Entry { attr, keep_name: Keep::Yes, keep_attr: Keep::Yes }
    }

    fn word(bytes: &[u8], at: usize) -> u64 {
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    /// Offsets of `struct fuse_direntplus`: `entry_out.nodeid` 0, `dirent` 128: `ino`, `off`, lengths, type.
    const DIRENT: usize = 128;

    #[test]
    fn plain_entries_have_number_cookie_and_type() {
        let mut packer = DirPacker::plain(64);
        assert!(packer.push(b"abc", Ino(7), FileKind::Symlink, 99, None));
        assert!(packer.push(b"d", Ino(8), FileKind::Directory, 100, Some(&entry(8))));
        assert!(!packer.push(b"e", Ino(9), FileKind::File, 101, None), "full");
        let buffer = packer.into_buffer();
        let bytes = buffer.as_bytes();
        assert_eq!(bytes.len(), 64);
        assert_eq!((word(bytes, 0), word(bytes, 8), bytes[20]), (7, 99, 10));
        assert_eq!((word(bytes, 32), word(bytes, 40), bytes[52]), (8, 100, 4));
    }

    #[test]
    fn an_entry_with_attributes_gives_a_reference() {
        let mut packer = DirPacker::plus(4096);
        assert!(packer.push(b"f", Ino(7), FileKind::File, 99, Some(&entry(7))));
        let buffer = packer.into_buffer();
        assert_eq!(word(buffer.as_bytes(), 0), 7);
        assert_eq!(word(buffer.as_bytes(), DIRENT), 7);
    }

    #[test]
    fn an_entry_without_attributes_gives_none_but_keeps_number_and_type() {
        let mut packer = DirPacker::plus(4096);
        assert!(packer.push(b"d", Ino(7), FileKind::Directory, 99, None));
        let buffer = packer.into_buffer();
        let bytes = buffer.as_bytes();
        assert_eq!(word(bytes, 0), 0);
        assert_eq!((word(bytes, DIRENT), word(bytes, DIRENT + 8), bytes[DIRENT + 20]), (7, 99, 4));
    }

    #[test]
    fn dots_never_give_a_reference() {
        for name in [&b"."[..], b".."] {
            let mut packer = DirPacker::plus(4096);
            assert!(packer.push(name, Ino(7), FileKind::Directory, 1, Some(&entry(7))));
            assert_eq!(word(packer.into_buffer().as_bytes(), 0), 0);
        }
    }
}
