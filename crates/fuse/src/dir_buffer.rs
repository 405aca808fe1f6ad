//! Answer to READDIR and READDIRPLUS, built entry by entry.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zerocopy::IntoBytes;

use crate::abi::{Dirent, EntryOut};
use crate::attr::Entry;

/// Directory entries packed for the kernel, up to a fixed number of bytes.
///
/// One buffer holds either plain entries ([`push`](Self::push)) or entries with attributes
/// ([`push_plus`](Self::push_plus)), never both. Cookies are opaque, non-zero and stable; the
/// kernel hands the last one back as the next `offset`.
#[derive(Debug)]
pub struct DirBuffer {
    bytes: Vec<u8>,
    capacity: usize,
}

/// File types as directory entries show them: `DT_*` of readdir(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FileKind {
    /// Not told; programs must ask.
    Unknown = 0,
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Unix domain socket.
    Socket = 12,
}

impl DirBuffer {
    /// Makes an empty buffer for the `size` bytes of a request.
    ///
    /// Memory grows with the entries, not with `size`.
    pub fn new(size: u32) -> Self {
        let capacity = size as usize;
        Self { bytes: Vec::with_capacity(capacity.min(FIRST_ALLOCATION_BYTES)), capacity }
    }

    /// Appends one plain entry; `false`, and nothing appended, if it does not fit.
    #[must_use]
    pub fn push(&mut self, ino: u64, cookie: u64, kind: FileKind, name: &OsStr) -> bool {
        if !self.has_room(size_of::<Dirent>(), name) {
            return false;
        }
        self.append_dirent(ino, cookie, kind as u32, name);
        true
    }

    /// Appends one entry with attributes; `false`, and nothing appended, if it does not fit.
    ///
    /// Gives the kernel a reference as a LOOKUP would, except for the names "." and "..", and
    /// except with `nodeid` 0, which gives the name alone (its number is then `attr.ino`).
    #[must_use]
    pub fn push_plus(&mut self, entry: &Entry, cookie: u64, name: &OsStr) -> bool {
        if !self.has_room(size_of::<EntryOut>() + size_of::<Dirent>(), name) {
            return false;
        }
        self.bytes.extend_from_slice(entry.to_wire().as_bytes());
        // DT_* is the type field of st_mode shifted down: `S_DT` in linux:include/linux/fs_types.h.
        self.append_dirent(entry.attr.ino, cookie, (entry.attr.mode >> 12) & 0xf, name);
        true
    }

    /// Returns whether nothing was appended: the answer then means end of directory.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes used so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the packed entries.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn has_room(&self, fixed_len: usize, name: &OsStr) -> bool {
        let record_len = (fixed_len + name.len()).next_multiple_of(RECORD_ALIGN);
        self.bytes.len() + record_len <= self.capacity
    }

    fn append_dirent(&mut self, ino: u64, cookie: u64, kind: u32, name: &OsStr) {
        let name = name.as_bytes();
        debug_assert!(!name.is_empty() && name.len() <= u32::MAX as usize);
        let dirent = Dirent { ino, off: cookie, namelen: name.len() as u32, kind };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len().next_multiple_of(RECORD_ALIGN), 0);
    }
}

/// Records start at multiples of this.
const RECORD_ALIGN: usize = 8;

/// glibc asks for 32 KiB; more is allocated only when filled.
const FIRST_ALLOCATION_BYTES: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_padded_to_eight_bytes_and_stop_at_the_capacity() {
        let mut buffer = DirBuffer::new(80);
        assert!(buffer.push(7, 1, FileKind::Regular, OsStr::new("abc")));
        assert_eq!(buffer.len(), 32);
        assert!(buffer.push(8, 2, FileKind::Directory, OsStr::new("12345678")));
        assert_eq!(buffer.len(), 64);
        assert!(!buffer.push(9, 3, FileKind::Regular, OsStr::new("x")));
        assert_eq!(buffer.len(), 64);
        assert_eq!(&buffer.as_bytes()[24..27], b"abc");
    }

    #[test]
    fn entry_with_attributes_takes_its_type_from_the_mode() {
        let mut buffer = DirBuffer::new(4096);
        let mut entry = Entry { nodeid: 5, ..Entry::default() };
        entry.attr.mode = 0o040_755;
        assert!(buffer.push_plus(&entry, 1, OsStr::new("d")));
        assert_eq!(buffer.len(), 128 + 32);
        assert_eq!(buffer.as_bytes()[128 + 20], FileKind::Directory as u8);
    }
}
