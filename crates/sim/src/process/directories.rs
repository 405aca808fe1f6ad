//! Directories that come and go while others look into them.

use meta::{FileKind, FsError};
use types::Ino;
use vfs::{OpenMode, Reply, Request, Taken};

use super::*;

impl Process {
    /// Makes a directory that all use, reads it, looks into it, works in it or removes it.
    pub(super) async fn visit(&self) {
        let dir = self.shared().await;
        let name = format!("xd{}", self.random(3)).into_bytes();
        let ino = match self.lookup(dir, &name).await {
            Ok(ino) => ino,
            Err(FsError::NotFound) => return self.make_shared_directory(dir, &name).await,
            Err(error) => self.fault(&format!("a look at {dir}/xd answered {error:?}")),
        };
        if self.random(2) == 0 {
            match self.try_listing(ino).await {
                Ok(_) => {}
                Err(error) => self.expect_removed("readdir", error),
            }
        }
        let inner = shared_name(self.random(2));
        match self.random(5) {
            0 => match self.lookup(ino, &inner).await {
                Ok(_) => {}
                Err(error) => self.expect_removed("a look into a directory", error),
            },
            1 => self.make_within(ino, &inner).await,
            2 => {
                let reply = self.unlink_shared(ino, &inner).await;
                self.changed_within("unlink", ino, &inner, reply);
            }
            _ => self.remove_shared_directory(dir, &name).await,
        }
    }

    async fn make_shared_directory(&self, dir: u64, name: &[u8]) {
        let begun = self.begin_shared(dir, name, Some(Seen::Present));
        let spec = spec(FileKind::Directory);
        let reply = self.call(Request::Make { parent: Ino(dir), name: name.into(), spec }).await;
        match &reply {
            Reply::Entry(entry) => {
                self.end_shared(begun, Some(Seen::Absent), Some(Seen::Inode(entry.attr.ino.0)));
                self.kernel(|k| {
                    k.changed(Ino(dir), name);
                    k.entry(Ino(dir), name, entry);
                });
            }
            Reply::Error(FsError::Exists) => self.end_shared(begun, Some(Seen::Present), None),
            // Made, and removed by another before it was answered.
            Reply::Error(FsError::Stale) => {}
            Reply::Error(error) if self.may_refuse(error) => {}
            other => self.fault(&format!("mkdir of a shared name answered {other:?}")),
        }
    }

    async fn make_within(&self, ino: u64, inner: &[u8]) {
        let open = OpenMode { write: true, map: true, ..OpenMode::default() };
        let reply = self.create_shared(ino, inner, open, Taken::Refuse).await;
        if let Reply::Created(entry, opened) = reply {
            self.kernel(|k| {
                k.changed(Ino(ino), inner);
                k.entry(Ino(ino), inner, &entry);
            });
            let release = Request::Release { ino: entry.attr.ino, handle: opened.handle, flock: None };
            let found = self.done(release).await;
            return self.expect("release", found, Ok(()));
        }
        self.changed_within("create", ino, inner, reply);
    }

    fn changed_within(&self, what: &str, ino: u64, inner: &[u8], reply: Reply) {
        match reply {
            Reply::Done => self.kernel(|k| k.changed(Ino(ino), inner)),
            Reply::Error(FsError::Exists) => {}
            Reply::Error(error) if self.may_refuse(&error) => {}
            Reply::Error(error) => self.expect_removed(what, error),
            other => self.fault(&format!("{what} in a shared directory answered {other:?}")),
        }
    }

    async fn remove_shared_directory(&self, dir: u64, name: &[u8]) {
        let begun = self.begin_shared(dir, name, Some(Seen::Absent));
        match self.call(Request::Rmdir { parent: Ino(dir), name: name.into(), bound: None }).await {
            Reply::Done => {
                self.end_shared(begun, Some(Seen::Present), Some(Seen::Absent));
                self.kernel(|k| k.removed_directory(Ino(dir), name));
            }
            Reply::Error(FsError::NotFound) => self.end_shared(begun, Some(Seen::Absent), None),
            Reply::Error(FsError::NotEmpty) => self.end_shared(begun, Some(Seen::Present), None),
            Reply::Error(error) if self.may_refuse(&error) => {}
            other => self.fault(&format!("rmdir of a shared name answered {other:?}")),
        }
    }

    /// Of a directory that another may have removed.
    fn expect_removed(&self, what: &str, error: FsError) {
        if !matches!(error, FsError::NotFound | FsError::Stale) && !self.may_refuse(&error) {
            self.fault(&format!("{what} answered {error:?}"));
        }
    }
}
