//! Copies from one file to another, which then share what is stored.

use meta::{FileKind, FsError};
use types::Ino;
use vfs::{OpenMode, Reply, Request};

use super::{Process, change, put};

impl Process {
    /// Copies from a file of its own to another that it has open for writing.
    pub(super) async fn copy(&self) {
        let Some(to) = self.writable() else { return };
        let (dir, name) = (self.directory().await, self.own_name());
        let Some(from) = self.own(dir, &name).await else { return };
        if from == to || self.kind(from) != FileKind::File || self.is_doubtful(from) {
            return;
        }
        let open = Request::Open { ino: Ino(from), open: OpenMode::default() };
        let handle = match self.call(open).await {
            Reply::Opened(opened) => opened.handle,
            Reply::Error(error) if self.may_refuse(&error) => return,
            other => self.fault(&format!("open answered {other:?}")),
        };
        // Pages that were stored to are written back first.
        self.write_back(from).await;
        self.write_back(to).await;
        self.copy_range(from, to).await;
        let found = self.done(Request::Release { ino: Ino(from), handle, flock: None }).await;
        self.expect("release", found, Ok(()));
    }

    async fn copy_range(&self, from: u64, to: u64) {
        let (from_offset, offset) = (self.random(9000), self.random(9000));
        let len = 1 + self.random(200_000);
        let source = self.state(|s| s.own.files[&from].data().clone());
        let start = from_offset.min(source.len());
        let bytes = &source[start..source.len().min(start + len)];
        let handle =
            self.state(|s| s.opens.iter().find(|open| open.ino == to && open.write).map(|open| open.handle));
        let Some(handle) = handle else { return };
        self.announce(|own| {
            if !bytes.is_empty() {
                change(own, to, |old| put(old, offset, bytes));
            }
        });
        let request = Request::Copy {
            from: Ino(from),
            from_offset: from_offset as u64,
            ino: Ino(to),
            offset: offset as u64,
            len: len as u64,
            handle,
            kill_privileges: None,
        };
        let is_done = match self.call(request).await {
            Reply::Copied { len, .. } if len == bytes.len() as u64 => true,
            // What a store that failed did not take of the source is not there to copy.
            Reply::Copied { .. } if self.is_doubtful(from) => {
                self.doubt(to);
                true
            }
            Reply::Error(FsError::NotSupported) => false,
            Reply::Error(error) if self.may_refuse(&error) => {
                self.doubt(to);
                false
            }
            other => self.fault(&format!("copy of {} bytes answered {other:?}", bytes.len())),
        };
        self.settle(is_done);
        self.kernel(|k| {
            k.attrs.remove(&Ino(to));
            k.note_change(Ino(to));
            k.pages.remove(&Ino(to));
        });
    }
}
