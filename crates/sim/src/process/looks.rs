//! A process looks at what is there, and compares it with what it knows.

use super::*;

impl Process {
    pub(super) async fn read(&self) {
        let (dir, name) = (self.directory().await, self.own_name());
        let Some(ino) = self.own(dir, &name).await else { return };
        if self.kind(ino) != FileKind::File {
            return;
        }
        let opened = match self.call(Request::Open { ino: Ino(ino), open: OpenMode::default() }).await {
            Reply::Opened(opened) => opened,
            Reply::Error(error) if self.may_refuse(&error) => return,
            other => self.fault(&format!("open answered {other:?}")),
        };
        self.read_file(ino).await;
        let found = self.done(Request::Release { ino: Ino(ino), handle: opened.handle, flock: None }).await;
        self.expect("release", found, Ok(()));
    }

    /// Reads an own file that is open and compares.
    pub(super) async fn read_file(&self, ino: u64) {
        let Some(data) = self.read_pages(ino).await else { return };
        if self.is_doubtful(ino) {
            return;
        }
        let expected = self.state(|s| s.own.files[&ino].data().clone());
        if data != expected {
            let at = data.iter().zip(&expected).position(|(a, b)| a != b);
            let (len, want) = (data.len(), expected.len());
            self.fault(&format!("ino {ino} has {len} bytes, expected {want}; first difference at {at:?}"));
        }
    }

    /// What a file holds; nothing if it may not be read because a store has failed.
    pub(super) async fn read_pages(&self, ino: u64) -> Option<Vec<u8>> {
        if let Some(pages) = self.kernel(|k| k.pages.get(&Ino(ino)).cloned()) {
            return Some(pages);
        }
        let changes = self.kernel(|k| k.changes_of(Ino(ino)));
        let data = self.read_range(ino, 0, 1 << 20).await?;
        self.kernel(|k| k.fill(Ino(ino), changes, data.clone()));
        Some(data)
    }

    pub(super) async fn read_range(&self, ino: u64, offset: u64, len: u32) -> Option<Vec<u8>> {
        let job = match self
            .call(Request::Read { ino: Ino(ino), offset, len, noatime: false, direct: false })
            .await
        {
            Reply::Data(data) => return Some(data),
            Reply::ReadJob(job) => job,
            Reply::Error(error) if self.may_refuse(&error) => {
                self.doubt(ino);
                return None;
            }
            other => self.fault(&format!("read answered {other:?}")),
        };
        let mut data = vec![0; job.len];
        let mut result = Ok(());
        {
            let mut world = self.world.borrow_mut();
            let node = world.states[self.id].node;
            for (at, extent) in &job.parts {
                let out = &mut data[*at..*at + extent.len() as usize];
                let store = world.cluster.store();
                result = result.and(chunk::read_extent(store, Ino(ino), extent, extent.range(), out));
            }
            for (at, bytes) in &job.overlay {
                data[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
            let clock = world.cluster.node_clock(node);
            world.cluster.core(node).read_done(clock, job.pin);
        }
        match result {
            Ok(()) => Some(data),
            // It was lost, and is shown until it is closed.
            Err(_) if self.is_doubtful(ino) => None,
            Err(error) => self.fault(&format!("ino {ino} cannot be read: {error}")),
        }
    }

    pub(super) async fn stat(&self) {
        let (dir, name) = (self.directory().await, self.own_name());
        let Some(ino) = self.own(dir, &name).await else { return };
        let cached = self.kernel(|k| k.attrs.get(&Ino(ino)).copied());
        let attr = match cached {
            Some(attr) => attr,
            None => match self.call(Request::GetAttr { ino: Ino(ino) }).await {
                Reply::Attr(attr, keep) => {
                    self.kernel(|k| k.attr(&attr, keep));
                    attr
                }
                other => self.fault(&format!("getattr answered {other:?}")),
            },
        };
        self.check_attr(&attr);
    }

    pub(super) fn check_attr(&self, attr: &Attr) {
        let Some(file) = self.state(|s| s.own.files.get(&attr.ino.0).cloned()) else { return };
        let is_right = match file.kind {
            FileKind::Directory => true,
            _ => {
                (attr.size == file.data().len() as u64 || self.is_doubtful(attr.ino.0))
                    && attr.nlink == file.nlink
                    && attr.mode == file.mode
                    && file.mtime.is_none_or(|secs| attr.mtime.secs == secs || self.is_doubtful(attr.ino.0))
            }
        };
        if !is_right {
            let (size, nlink, mode, mtime) = (file.data().len(), file.nlink, file.mode, file.mtime);
            self.fault(&format!(
                "{attr:?}, expected mode {mode:o}, {nlink} links, {size} bytes, changed at {mtime:?}"
            ));
        }
    }

    pub(super) async fn list(&self) {
        let dir = self.directory().await;
        let prefix = format!("p{}_", self.id).into_bytes();
        let found: BTreeMap<Vec<u8>, u64> = self
            .listing(dir)
            .await
            .into_iter()
            .filter(|e| e.0.starts_with(&prefix))
            .map(|e| (e.0, e.1))
            .collect();
        let names = self.state(|s| s.own.names.clone());
        let expected: BTreeMap<Vec<u8>, u64> =
            names.into_iter().filter(|((d, _), _)| *d == dir).map(|((_, n), i)| (n, i)).collect();
        if found != expected {
            self.fault(&format!("listing of {dir}: {found:?}, expected {expected:?}"));
        }
    }

    pub(super) async fn listing(&self, dir: u64) -> Vec<(Vec<u8>, u64, FileKind)> {
        match self.try_listing(dir).await {
            Ok(all) => all,
            Err(error) => self.fault(&format!("readdir answered {error:?}")),
        }
    }

    /// What is in a directory that may be removed meanwhile.
    pub(super) async fn try_listing(&self, dir: u64) -> Done<Vec<(Vec<u8>, u64, FileKind)>> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let sink = Box::new(Listing::default());
            let sink = match self
                .call(Request::ReadDir { ino: Ino(dir), after, plus: false, noatime: false, sink })
                .await
            {
                Reply::Dir(sink) => sink,
                Reply::Error(error) => return Err(error),
                other => self.fault(&format!("readdir answered {other:?}")),
            };
            let part = sink.into_any().downcast::<Listing>().expect("the sink is ours");
            let Some((_, _, last, _)) = part.0.last() else { return Ok(all) };
            after = *last;
            all.extend(part.0.into_iter().map(|(name, ino, _, kind)| (name, ino, kind)));
        }
    }
}
