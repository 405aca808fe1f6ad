//! Inodes that a process comes to by their handles, without a name.

use meta::{FileKind, FsError};
use types::Ino;
use vfs::{OpenMode, Reply, Request};

use super::*;

impl Process {
    /// Looks an inode up by its handle: one of its own, or one that another made and may have removed.
    pub(super) async fn by_handle(&self) {
        let Some(ino) = self.any_inode() else { return };
        let entry = match self.call(Request::Itself { ino: Ino(ino) }).await {
            Reply::Entry(entry) if entry.attr.ino.0 == ino => entry,
            Reply::Error(FsError::Stale | FsError::NotFound) if !self.has_name(ino) => return,
            Reply::Error(error) if self.may_refuse(&error) => return,
            other => self.fault(&format!("inode {ino} by its handle: {other:?}")),
        };
        self.kernel(|k| {
            *k.lookups.entry(Ino(ino)).or_default() += 1;
            k.attr(&entry.attr, entry.keep_attr);
        });
        self.check_attr(&entry.attr);
        if self.has_name(ino) && self.kind(ino) == FileKind::File && self.random(2) == 0 {
            match self.call(Request::Open { ino: Ino(ino), open: OpenMode::default() }).await {
                Reply::Opened(opened) => {
                    self.read_file(ino).await;
                    let release = Request::Release { ino: Ino(ino), handle: opened.handle, flock: None };
                    let found = self.done(release).await;
                    self.expect("release", found, Ok(()));
                }
                Reply::Error(error) if self.may_refuse(&error) => {}
                other => self.fault(&format!("open by handle answered {other:?}")),
            }
        }
    }

    /// An own inode every second time.
    fn any_inode(&self) -> Option<u64> {
        let own = self.random(2) == 0;
        let all: Vec<u64> = {
            let world = self.world.borrow();
            let states = world.states.iter().enumerate().filter(|(id, _)| !own || *id == self.id);
            states.flat_map(|(_, state)| state.own.files.keys().copied()).filter(|ino| *ino != 0).collect()
        };
        (!all.is_empty()).then(|| all[self.random(all.len())])
    }

    fn has_name(&self, ino: u64) -> bool {
        self.state(|s| s.own.files.get(&ino).is_some_and(|file| file.nlink > 0))
    }
}
