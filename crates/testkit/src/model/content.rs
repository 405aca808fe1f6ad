//! Bytes of files: write, truncate, read.

use meta::FsError;
use types::{Ino, Timespec};

use super::attributes::strip;
use super::{NodeBody, Tree};

impl Tree {
    /// write(2) by a caller without privileges.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8], now: Timespec) -> Result<(), FsError> {
        let start = usize::try_from(offset).map_err(|_| FsError::TooLarge)?;
        self.change_bytes(ino, now, |bytes| {
            let end = start + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[start..end].copy_from_slice(data);
        })
    }

    /// truncate(2).
    pub fn truncate(&mut self, ino: Ino, size: u64, now: Timespec) -> Result<(), FsError> {
        let size = usize::try_from(size).map_err(|_| FsError::TooLarge)?;
        self.change_bytes(ino, now, |bytes| bytes.resize(size, 0))
    }

    /// read(2): up to `len` bytes, fewer at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<&[u8], FsError> {
        let bytes = match &self.existing(ino)?.body {
            NodeBody::File { bytes } => bytes,
            NodeBody::Directory { .. } => return Err(FsError::IsDirectory),
            NodeBody::Symlink { .. } | NodeBody::Special => return Err(FsError::Invalid),
        };
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        Ok(&bytes[start..bytes.len().min(start.saturating_add(len))])
    }

    fn change_bytes(
        &mut self,
        ino: Ino,
        now: Timespec,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), FsError> {
        let node = self.existing_mut(ino)?;
        match &mut node.body {
            NodeBody::File { bytes } => change(bytes),
            NodeBody::Directory { .. } => return Err(FsError::IsDirectory),
            NodeBody::Symlink { .. } | NodeBody::Special => return Err(FsError::Invalid),
        }
        (node.mtime, node.ctime) = (now, now);
        strip(node);
        Ok(())
    }
}
