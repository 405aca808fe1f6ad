//! What a process does to names that others use too: judged when all is quiet, or by what must always hold.

use meta::FileKind;
use meta::FsError;
use meta::ops::RenameMode;
use types::Ino;
use vfs::{OpenMode, Reply, Request, Taken, WriteData};
use wire::{ByteLock, LockKind, LockOwner};

use super::*;

impl Process {
    /// Shared names: anything may be there, but nothing worse than being too late may happen.
    pub(super) async fn meddle(&self) {
        let (dir, to) = (self.shared().await, self.shared().await);
        let (name, new_name) = (shared_name(self.random(4)), shared_name(self.random(4)));
        let found = self.lookup(dir, &name).await;
        let target = self.lookup(to, &new_name).await;
        let what = self.random(6);
        let reply = match what {
            0 | 1 => {
                let open = OpenMode { write: true, map: true, ..OpenMode::default() };
                let taken = match self.random(4) {
                    0 | 1 => Taken::Refuse,
                    2 => Taken::Meet,
                    _ => Taken::Outwait,
                };
                self.create_shared(dir, &name, open, taken).await
            }
            2 | 3 => self.unlink_shared(dir, &name).await,
            4 => self.rename_shared((dir, &name), (to, &new_name)).await,
            _ => {
                let Ok(ino) = found else { return };
                self.link_shared(ino, to, &new_name).await
            }
        };
        let is_renamed = what == 4 && matches!(reply, Reply::Done);
        self.kernel(|k| {
            if is_renamed {
                k.renamed((Ino(dir), &name), (Ino(to), &new_name));
            } else {
                k.changed(Ino(dir), &name);
                k.changed(Ino(to), &new_name);
            }
            for ino in [found, target].into_iter().flatten() {
                k.attrs.remove(&Ino(ino));
            }
        });
        match reply {
            Reply::Created(entry, opened) => {
                let ino = entry.attr.ino;
                let data = WriteData(vec![self.id as u8; 1 + self.random(5000)].into());
                let write = Request::Write {
                    ino,
                    offset: 0,
                    data,
                    append: false,
                    direct: false,
                    kill_privileges: None,
                };
                match self.call(write).await {
                    Reply::Written { .. } => {}
                    Reply::Error(error) if self.may_refuse(&error) => {}
                    other => self.fault(&format!("write to shared ino {ino} answered {other:?}")),
                }
                self.kernel(|k| {
                    k.attrs.remove(&ino);
                    k.note_change(ino);
                    k.pages.remove(&ino);
                });
                let found = self.done(Request::Release { ino, handle: opened.handle, flock: None }).await;
                self.expect("release", found, Ok(()));
            }
            Reply::Entry(_) | Reply::Done => {}
            Reply::Error(FsError::Exists | FsError::NotFound | FsError::Stale) => {}
            Reply::Error(error) if self.may_refuse(&error) => {}
            other => self.fault(&format!("a change of shared names answered {other:?}")),
        }
    }

    pub(super) async fn create_shared(&self, dir: u64, name: &[u8], open: OpenMode, taken: Taken) -> Reply {
        let begun = self.begin_shared(dir, name, Some(Seen::Present));
        let spec = spec(FileKind::File);
        let create = Request::Create { parent: Ino(dir), name: name.into(), spec, open, taken };
        let since = self.world.borrow().cluster.clock().now;
        let reply = match self.call(create).await {
            Reply::Met(met) => self.open_met((dir, name), met, open).await,
            Reply::Error(FsError::Exists) if taken != Taken::Refuse => {
                let took = self.world.borrow().cluster.clock().now.since(since);
                if took < Micros::from_millis(1000) {
                    self.fault(&format!("a creation that is not exclusive met something after {took:?}"));
                }
                Reply::Error(FsError::Exists)
            }
            other => other,
        };
        match &reply {
            Reply::Created(entry, _) => {
                // Without O_EXCL it may have been there.
                let saw = (taken == Taken::Refuse).then_some(Seen::Absent);
                self.end_shared(begun, saw, Some(Seen::Inode(entry.attr.ino.0)));
            }
            Reply::Error(FsError::Exists) => self.end_shared(begun, Some(Seen::Present), None),
            // Refused, or done and undone by another before it was answered.
            _ => {}
        }
        reply
    }

    /// What somebody else has made meanwhile is looked up and opened, as a kernel does that is answered ESTALE, and is there to be opened
    /// whatever becomes of its name.
    async fn open_met(&self, (dir, name): (u64, &[u8]), met: Ino, open: OpenMode) -> Reply {
        let since = self.world.borrow().cluster.clock().now;
        let is_late = || self.world.borrow().cluster.clock().now.since(since) >= Micros::from_millis(1000);
        let find = Request::Find { parent: Ino(dir), name: name.into(), met: Some(met) };
        let entry = match self.call(find).await {
            Reply::Entry(entry) => entry,
            Reply::Error(error) if self.may_refuse(&error) => return Reply::Error(error),
            Reply::NoEntry(_) if is_late() => return Reply::Error(FsError::Stale),
            other => self.fault(&format!("inode {met}, which was met, is looked up: {other:?}")),
        };
        let ino = entry.attr.ino;
        self.kernel(|k| {
            *k.lookups.entry(ino).or_default() += 1;
            k.attr(&entry.attr, entry.keep_attr);
        });
        match self.call(Request::Open { ino, open }).await {
            Reply::Opened(opened) => Reply::Created(entry, opened),
            Reply::Error(error) if self.may_refuse(&error) => Reply::Error(error),
            Reply::Error(FsError::Stale) if is_late() => Reply::Error(FsError::Stale),
            other => {
                self.fault(&format!("inode {ino} instead of {met}, which was met, is opened: {other:?}"))
            }
        }
    }

    pub(super) async fn unlink_shared(&self, dir: u64, name: &[u8]) -> Reply {
        let begun = self.begin_shared(dir, name, Some(Seen::Absent));
        let reply = self.call(Request::Unlink { parent: Ino(dir), name: name.into(), bound: None }).await;
        match &reply {
            Reply::Done => self.end_shared(begun, Some(Seen::Present), Some(Seen::Absent)),
            Reply::Error(FsError::NotFound) => self.end_shared(begun, Some(Seen::Absent), None),
            // Refused, or done and undone by another before it was answered.
            _ => {}
        }
        reply
    }

    /// Names of one inode stay both, so the old name may be there still.
    async fn rename_shared(&self, (dir, name): (u64, &[u8]), (to, new_name): (u64, &[u8])) -> Reply {
        let old = self.begin_shared(dir, name, Some(Seen::Absent));
        let new = self.begin_shared(to, new_name, Some(Seen::Present));
        let mode = RenameMode::Replace;
        let rename = Request::Rename {
            parent: Ino(dir),
            name: name.into(),
            new_parent: Ino(to),
            new_name: new_name.into(),
            mode,
            bound: None,
            whiteout: None,
        };
        let reply = self.call(rename).await;
        match &reply {
            Reply::Done if (dir, name) == (to, new_name) => {
                self.end_shared(old, Some(Seen::Present), None);
                self.end_shared(new, Some(Seen::Present), None);
            }
            Reply::Done => {
                if let Some(old) = old {
                    self.world.borrow_mut().names.end_perhaps(&old, Some(Seen::Present));
                }
                self.end_shared(new, None, Some(Seen::Present));
            }
            // Refused.
            _ => {}
        }
        reply
    }

    async fn link_shared(&self, ino: u64, dir: u64, name: &[u8]) -> Reply {
        let begun = self.begin_shared(dir, name, Some(Seen::Inode(ino)));
        let reply = self.call(Request::Link { ino: Ino(ino), parent: Ino(dir), name: name.into() }).await;
        match &reply {
            Reply::Entry(_) => self.end_shared(begun, Some(Seen::Absent), Some(Seen::Inode(ino))),
            Reply::Error(FsError::Exists) => self.end_shared(begun, Some(Seen::Present), None),
            // Refused, or done and undone by another before it was answered.
            _ => {}
        }
        reply
    }

    pub(super) async fn shared(&self) -> u64 {
        let (name, ino) = {
            let shared = self.world.borrow().shared.clone();
            shared[self.random(shared.len())].clone()
        };
        if ino != 1 {
            let found = self.lookup(1, &name).await;
            self.expect("a shared directory is there", found.map(|_| ()), Ok(()));
        }
        ino
    }

    /// Several create one name: one wins.
    pub(super) async fn race(&self) {
        let dir = self.shared().await;
        let round = self.world.borrow().round();
        let name = format!("race{round}").into_bytes();
        let open = OpenMode { write: true, map: true, ..OpenMode::default() };
        match self.create_shared(dir, &name, open, Taken::Refuse).await {
            Reply::Created(entry, opened) => {
                *self.world.borrow_mut().winners.entry((dir, name)).or_default() += 1;
                let ino = entry.attr.ino;
                let found = self.done(Request::Release { ino, handle: opened.handle, flock: None }).await;
                self.expect("release", found, Ok(()));
            }
            Reply::Error(FsError::Exists) => {
                self.world.borrow_mut().winners.entry((dir, name)).or_default();
            }
            Reply::Error(error) if self.may_refuse(&error) => {}
            other => self.fault(&format!("exclusive create answered {other:?}")),
        }
    }

    /// Appends a record to a file that others append to.
    pub(super) async fn append(&self) {
        let ino = self.fixed(b"log").await;
        let open = OpenMode { write: true, map: true, append: true, ..OpenMode::default() };
        let opened = match self.call(Request::Open { ino: Ino(ino), open }).await {
            Reply::Opened(opened) => opened,
            Reply::Error(error) if self.may_refuse(&error) => return,
            other => self.fault(&format!("open answered {other:?}")),
        };
        for _ in 0..1 + self.random(3) {
            let number = self.state(|s| s.appended);
            let data = WriteData(format!("p{:03}:{number:08};;;", self.id).into_bytes().into());
            let write = Request::Write {
                ino: Ino(ino),
                offset: 0,
                data,
                append: true,
                direct: false,
                kill_privileges: None,
            };
            match self.call(write).await {
                Reply::Written { len: 16, .. } => self.state(|s| s.appended += 1),
                Reply::Error(error) if self.may_refuse(&error) => break,
                other => self.fault(&format!("append answered {other:?}")),
            }
            self.kernel(|k| k.attrs.remove(&Ino(ino)));
        }
        let found = self.done(Request::Release { ino: Ino(ino), handle: opened.handle, flock: None }).await;
        self.expect("release", found, Ok(()));
    }

    pub(super) async fn fixed(&self, name: &[u8]) -> u64 {
        match self.lookup(1, name).await {
            Ok(ino) => ino,
            Err(error) => self.fault(&format!("{:?} is {error:?}", String::from_utf8_lossy(name))),
        }
    }

    /// Adds one to a number in a file, under a lock.
    pub(super) async fn count(&self) {
        let ino = self.fixed(b"count").await;
        // All use one kind: the two do not see each other.
        let kind = if self.world.borrow().seed % 2 == 0 { LockKind::Posix } else { LockKind::Flock };
        let opened = match self
            .call(Request::Open {
                ino: Ino(ino),
                open: OpenMode { write: true, map: true, ..OpenMode::default() },
            })
            .await
        {
            Reply::Opened(opened) => opened,
            Reply::Error(error) if self.may_refuse(&error) => return,
            other => self.fault(&format!("open answered {other:?}")),
        };
        let owner = LockOwner(self.id as u64 + 1);
        let lock =
            ByteLock { ino: Ino(ino), kind, owner, pid: self.id as u32, exclusive: true, start: 0, end: 100 };
        let wait = self.random(4) > 0;
        self.state(|s| s.interruptible = true);
        let found = self.done(Request::SetLock { lock, handle: opened.handle, wait }).await;
        self.state(|s| s.interruptible = false);
        match found {
            Ok(()) => {
                {
                    let mut world = self.world.borrow_mut();
                    let id = self.id;
                    let other = world.critical.replace(id);
                    // Locks go with a membership, before its node knows.
                    let holds = |id: &usize| world.cluster.is_member(world.states[*id].node);
                    if let Some(other) = other.filter(holds) {
                        drop(world);
                        self.fault(&format!("process {other} holds the lock too"));
                    }
                }
                if let Some(data) = self.read_pages(ino).await {
                    let old = data.get(..8).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
                    self.write_at(ino, 0, (old + 1).to_le_bytes().to_vec()).await;
                }
                self.kernel(|k| drop(k.pages.remove(&Ino(ino))));
                {
                    let mut world = self.world.borrow_mut();
                    world.counted += 1;
                    if world.critical == Some(self.id) {
                        world.critical = None;
                    }
                }
                self.wait_for_interrupted().await;
                let found = self.done(Request::Unlock { lock }).await;
                self.expect("unlock", found, Ok(()));
            }
            Err(FsError::WouldBlock) if !wait => {}
            Err(FsError::Interrupted) => {}
            Err(error) => self.fault(&format!("a lock was refused: {error:?}")),
        }
        let found =
            self.done(Request::Release { ino: Ino(ino), handle: opened.handle, flock: Some(owner) }).await;
        self.expect("release", found, Ok(()));
    }

    /// Whoever was interrupted while he waited for a lock gets his answer without anybody letting go of it.
    async fn wait_for_interrupted(&self) {
        let is_left = |world: &World| {
            world.states.iter().any(|s| s.interrupted && s.request.is_some() && world.cluster.goes(s.node))
        };
        poll_fn(|_| match is_left(&self.world.borrow()) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Changes its own place of a file that is so long that its extents have pages of their own.
    pub(super) async fn far(&self) {
        let ino = self.fixed(b"far").await;
        let open = OpenMode { write: true, map: true, ..OpenMode::default() };
        let opened = match self.call(Request::Open { ino: Ino(ino), open }).await {
            Reply::Opened(opened) => opened,
            Reply::Error(error) if self.may_refuse(&error) => return,
            other => self.fault(&format!("open answered {other:?}")),
        };
        let offset = (1 + self.id as u64) << 25;
        let found = self.read_range(ino, offset, 8).await.unwrap_or_default();
        let known = self.state(|s| s.far.take());
        let number = found.try_into().map_or(0, u64::from_le_bytes);
        if known.is_some_and(|known| known != number) && !self.is_doubtful(ino) {
            self.fault(&format!("at {offset} of ino {ino} is {number}, expected {known:?}"));
        }
        let data = WriteData((number + 1).to_le_bytes().into());
        let write = Request::Write {
            ino: Ino(ino),
            offset,
            data,
            append: false,
            direct: false,
            kill_privileges: None,
        };
        match self.call(write).await {
            Reply::Written { .. } => self.state(|s| s.far = Some(number + 1)),
            Reply::Error(error) if self.may_refuse(&error) => {}
            other => self.fault(&format!("write answered {other:?}")),
        }
        self.kernel(|k| k.attrs.remove(&Ino(ino)));
        let found = self.done(Request::Release { ino: Ino(ino), handle: opened.handle, flock: None }).await;
        self.expect("release", found, Ok(()));
    }

    /// Reads what another process writes.
    pub(super) async fn peek(&self) {
        let dir = self.shared().await;
        let all: Vec<_> = self.listing(dir).await.into_iter().filter(|e| e.2 == FileKind::File).collect();
        if all.is_empty() {
            return;
        }
        let (name, _, _) = all[self.random(all.len())].clone();
        let Ok(ino) = self.lookup(dir, &name).await else { return };
        match self.call(Request::Open { ino: Ino(ino), open: OpenMode::default() }).await {
            Reply::Opened(opened) => {
                let changes = self.kernel(|k| k.changes_of(Ino(ino)));
                if name != b"log" && name != b"far" && !self.kernel(|k| k.pages.contains_key(&Ino(ino))) {
                    match self
                        .call(Request::Read {
                            ino: Ino(ino),
                            offset: 0,
                            len: 1 << 20,
                            noatime: false,
                            direct: false,
                        })
                        .await
                    {
                        Reply::Data(data) => self.kernel(|k| k.fill(Ino(ino), changes, data)),
                        Reply::ReadJob(job) => {
                            let mut world = self.world.borrow_mut();
                            let node = world.states[self.id].node;
                            let clock = world.cluster.node_clock(node);
                            world.cluster.core(node).read_done(clock, job.pin);
                        }
                        // Something else has the name by now.
                        Reply::Error(FsError::IsDirectory) => {}
                        Reply::Error(error) if self.may_refuse(&error) => {}
                        other => self.fault(&format!("read answered {other:?}")),
                    }
                }
                let _ =
                    self.done(Request::Release { ino: Ino(ino), handle: opened.handle, flock: None }).await;
            }
            Reply::Error(_) => {}
            other => self.fault(&format!("open answered {other:?}")),
        }
    }
}
