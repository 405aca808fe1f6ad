//! Copies from one file to another, which then share what is stored.

use meta::{FileKind, FsError};
use types::Ino;
use vfs::{OpenMode, Reply, Request};

use super::{OpenFile, Outcome, Runner};

impl Runner {
    /// Copies from a file to one that is open for writing, on the node where it is.
    pub(super) fn copy(&mut self, dir: u64, name: &[u8]) -> Outcome {
        let writable: Vec<OpenFile> = self.model.opens.iter().copied().filter(|o| o.write).collect();
        if writable.is_empty() {
            return ("no copy", Ok(()), Ok(()));
        }
        let to = writable[self.random(writable.len())];
        self.reach(to.node, dir);
        let Ok(from) = self.lookup(to.node, dir, name) else {
            let expected = if self.has(dir, name).is_none() { Err(FsError::NotFound) } else { Ok(()) };
            return ("copy", expected, Err(FsError::NotFound));
        };
        if from == to.ino || self.model.files[&from].kind != FileKind::File {
            return ("no copy", Ok(()), Ok(()));
        }
        let opened =
            match self.cluster.call(to.node, Request::Open { ino: Ino(from), open: OpenMode::default() }) {
                Reply::Opened(opened) => opened,
                other => panic!("{}: open answered {other:?}", self.last),
            };
        let what = self.copy_range(from, to);
        let _ = self.done(to.node, Request::Release { ino: Ino(from), handle: opened.handle, flock: None });
        (what, Ok(()), Ok(()))
    }

    fn copy_range(&mut self, from: u64, to: OpenFile) -> &'static str {
        let (from_offset, offset) = (self.random(9000), self.random(9000));
        let len = 1 + self.random(200_000);
        let source = &self.model.files[&from].data;
        let start = from_offset.min(source.len());
        let bytes = source[start..source.len().min(start + len)].to_vec();
        let request = Request::Copy {
            from: Ino(from),
            from_offset: from_offset as u64,
            ino: Ino(to.ino),
            offset: offset as u64,
            len: len as u64,
            handle: to.handle,
            kill_privileges: None,
        };
        match self.cluster.call(to.node, request) {
            Reply::Copied { len, .. } if len == bytes.len() as u64 => {}
            // The bytes are to be read and written then.
            Reply::Error(FsError::NotSupported) => return "copy refused",
            other => panic!("{}: copy of {} bytes answered {other:?}", self.last, bytes.len()),
        }
        if !bytes.is_empty() {
            let inode = self.inode(to.ino);
            let end = offset + bytes.len();
            if inode.data.len() < end {
                inode.data.resize(end, 0);
            }
            inode.data[offset..end].copy_from_slice(&bytes);
        }
        let kernel = self.cluster.kernel(to.node);
        kernel.attrs.remove(&Ino(to.ino));
        kernel.pages.remove(&Ino(to.ino));
        "copy"
    }
}
