//! Times that a process sets: they stay until the content changes.

use meta::ops::AttrSet;
use types::Timespec;

use super::*;

impl Process {
    /// Sets when a file was changed, as a copy that keeps times does at its end.
    pub(super) async fn touch(&self) {
        let (dir, name) = (self.directory().await, self.own_name());
        let Some(ino) = self.own(dir, &name).await else { return };
        if self.kind(ino) != FileKind::File {
            return;
        }
        let secs = 1 + self.random(1_000_000) as i64;
        self.announce(|own| {
            if let Some(file) = own.files.get_mut(&ino) {
                file.mtime = Some(secs);
            }
        });
        let set = AttrSet { mtime: Some(Timespec { secs, nanos: 0 }), ..AttrSet::default() };
        let is_set = self.set_attr(ino, set, None).await;
        self.settle(is_set);
    }
}
