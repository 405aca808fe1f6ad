//! A process and what it does through its kernel.

use std::cell::RefCell;
use std::rc::Rc;

use meta::ops::AttrSet;
use meta::{FileKind, FsError};
use types::{Ino, Micros};
use vfs::{Attr, Entry, HandleId, MakeSpec, OpenMode, Reply, Request, WriteData};

use super::{State, World, until};
use crate::kernel::Kernel;

/// A process on a node.
#[derive(Clone)]
pub struct Client {
    world: Rc<RefCell<World>>,
    id: usize,
    node: usize,
    began: Micros,
}

impl Client {
    pub(super) fn new(world: Rc<RefCell<World>>, id: usize, node: usize, began: Micros) -> Self {
        Self { world, id, node, began }
    }

    /// The time.
    pub fn now(&self) -> Micros {
        self.world.borrow().cluster.clock().now
    }

    /// Its node.
    pub fn node(&self) -> usize {
        self.node
    }

    /// Tokens that its node has asked for so far.
    pub fn tokens_requested(&self) -> u64 {
        self.world.borrow().cluster.metrics(self.node).tokens_requested.sum()
    }

    /// Time since it was started.
    pub fn age(&self) -> Micros {
        self.now().since(self.began)
    }

    /// Does nothing for a while.
    pub async fn sleep(&self, time: Micros) {
        let due = self.now() + time;
        self.world.borrow_mut().set(self.id, State::Sleeps(due));
        until(|| (self.now() >= due).then_some(())).await;
    }

    /// Makes an empty file that is not open. Returns its number.
    pub async fn make(&self, dir: u64, name: &[u8]) -> Result<u64, FsError> {
        self.make_kind(dir, name, FileKind::File).await
    }

    /// Makes a directory. Returns its number.
    pub async fn mkdir(&self, dir: u64, name: &[u8]) -> Result<u64, FsError> {
        self.make_kind(dir, name, FileKind::Directory).await
    }

    async fn make_kind(&self, dir: u64, name: &[u8], kind: FileKind) -> Result<u64, FsError> {
        match self.lookup(dir, name).await {
            Err(FsError::NotFound) => {}
            Ok(_) => return Err(FsError::Exists),
            Err(error) => return Err(error),
        }
        let mode = if kind == FileKind::Directory { 0o755 } else { 0o644 };
        let spec = MakeSpec { kind, mode, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() };
        let request = Request::Make { parent: Ino(dir), name: name.into(), spec };
        self.call(request, |kernel, reply| match reply {
            Reply::Entry(entry) => {
                kernel.changed(Ino(dir), name);
                kernel.entry(Ino(dir), name, &entry);
                Ok(entry.attr.ino.0)
            }
            other => Err(refusal(other)),
        })
        .await
    }

    /// Removes a file's name.
    pub async fn unlink(&self, dir: u64, name: &[u8]) -> Result<(), FsError> {
        self.lookup(dir, name).await?;
        let request = Request::Unlink { parent: Ino(dir), name: name.into(), bound: None };
        self.call(request, |kernel, reply| match reply {
            Reply::Done => {
                kernel.changed(Ino(dir), name);
                Ok(())
            }
            other => Err(refusal(other)),
        })
        .await
    }

    /// Resolves a name.
    pub async fn lookup(&self, dir: u64, name: &[u8]) -> Result<u64, FsError> {
        let key = (Ino(dir), name.to_vec());
        let cached = self.kernel(|kernel| kernel.names.get(&key).copied());
        if let Some(cached) = cached {
            self.sleep(self.costs().cached).await;
            return cached.map(|ino| ino.0).ok_or(FsError::NotFound);
        }
        let request = Request::Lookup { parent: Ino(dir), name: name.into() };
        self.call(request, |kernel, reply| match reply {
            Reply::Entry(entry) => {
                kernel.entry(Ino(dir), name, &entry);
                Ok(entry.attr.ino.0)
            }
            Reply::NoEntry(keep) => {
                kernel.no_entry(Ino(dir), name, keep);
                Err(FsError::NotFound)
            }
            other => Err(refusal(other)),
        })
        .await
    }

    /// Attributes of what has a name.
    pub async fn stat(&self, dir: u64, name: &[u8]) -> Result<Attr, FsError> {
        let ino = self.lookup(dir, name).await?;
        let cached = self.kernel(|kernel| kernel.attrs.get(&Ino(ino)).copied());
        if let Some(attr) = cached {
            return Ok(attr);
        }
        self.call(Request::GetAttr { ino: Ino(ino) }, |kernel, reply| match reply {
            Reply::Attr(attr, keep) => {
                kernel.attr(&attr, keep);
                Ok(attr)
            }
            other => Err(refusal(other)),
        })
        .await
    }

    /// Sets the permission bits of a file.
    pub async fn chmod(&self, ino: u64, mode: u32) -> Result<(), FsError> {
        let set = AttrSet { mode: Some(mode), ..AttrSet::default() };
        self.call(Request::SetAttr { ino: Ino(ino), set, size: None }, |kernel, reply| match reply {
            Reply::Attr(attr, keep) => {
                kernel.attr(&attr, keep);
                Ok(())
            }
            other => Err(refusal(other)),
        })
        .await
    }

    /// Lists a directory as `ls -l` does: names with attributes. Returns how many.
    pub async fn list(&self, dir: u64) -> Result<usize, FsError> {
        let (mut count, mut after) = (0, 0);
        loop {
            let sink = Box::new(Page::default());
            let request = Request::ReadDir { ino: Ino(dir), after, plus: true, noatime: false, sink };
            let part = self
                .call(request, |kernel, reply| match reply {
                    Reply::Dir(sink) => {
                        let page = sink.into_any().downcast::<Page>().expect("the sink is ours");
                        for (name, entry) in &page.entries {
                            kernel.entry(Ino(dir), name, entry);
                        }
                        Ok((page.count, page.last))
                    }
                    other => Err(refusal(other)),
                })
                .await?;
            if part.0 == 0 {
                return Ok(count);
            }
            count += part.0;
            after = part.1;
        }
    }

    /// Opens a file to write.
    pub async fn open(&self, ino: u64) -> Result<HandleId, FsError> {
        let open = OpenMode { write: true, map: true, ..OpenMode::default() };
        self.call(Request::Open { ino: Ino(ino), open }, |_, reply| match reply {
            Reply::Opened(opened) => Ok(opened.handle),
            other => Err(refusal(other)),
        })
        .await
    }

    /// Closes it.
    pub async fn close(&self, ino: u64, handle: HandleId) -> Result<(), FsError> {
        let request = Request::Release { ino: Ino(ino), handle, flock: None };
        self.call(request, |_, reply| match reply {
            Reply::Done => Ok(()),
            other => Err(refusal(other)),
        })
        .await
    }

    /// Appends to an open file.
    pub async fn append(&self, ino: u64, data: &[u8]) -> Result<(), FsError> {
        let data = WriteData(data.into());
        let request = Request::Write {
            ino: Ino(ino),
            offset: 0,
            data,
            append: true,
            direct: false,
            kill_privileges: None,
        };
        self.call(request, |kernel, reply| match reply {
            Reply::Written { .. } => {
                kernel.attrs.remove(&Ino(ino));
                Ok(())
            }
            other => Err(refusal(other)),
        })
        .await
    }

    /// Makes a directory and what is in it durable.
    pub async fn fsync(&self, ino: u64) -> Result<(), FsError> {
        self.call(Request::Fsync { ino: Ino(ino) }, |_, reply| match reply {
            Reply::Done => Ok(()),
            other => Err(refusal(other)),
        })
        .await
    }

    fn costs(&self) -> super::Costs {
        self.world.borrow().costs
    }

    fn kernel<T>(&self, look: impl FnOnce(&mut Kernel) -> T) -> T {
        look(self.world.borrow_mut().cluster.kernel(self.node))
    }

    /// A request when the kernel lets it through; the kernel takes the answer in at once.
    async fn call<T>(
        &self,
        request: Request,
        take: impl FnOnce(&mut Kernel, Reply) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        self.sleep(self.costs().request).await;
        let mut request = Some(request);
        self.world.borrow_mut().set(self.id, State::AtTheDoor);
        let id = until(|| {
            let mut world = self.world.borrow_mut();
            let may_go = request.as_ref().is_some_and(|ready| world.cluster.may_submit(self.node, ready));
            let ready = request.take_if(|_| may_go)?;
            Some(world.cluster.submit(self.node, ready))
        })
        .await;
        self.world.borrow_mut().set(self.id, State::Asked(self.node, id));
        let reply = until(|| self.world.borrow_mut().cluster.take_reply(self.node, id)).await;
        self.kernel(|kernel| take(kernel, reply))
    }
}

/// A page of a listing, with entries for the kernel.
#[derive(Debug, Default)]
struct Page {
    entries: Vec<(Vec<u8>, Entry)>,
    count: usize,
    last: u64,
}

impl vfs::DirSink for Page {
    fn push(&mut self, name: &[u8], _: Ino, _: FileKind, offset: u64, entry: Option<&Entry>) -> bool {
        if self.count >= PAGE_ENTRIES {
            return false;
        }
        self.count += 1;
        self.last = offset;
        self.entries.extend(entry.map(|entry| (name.to_vec(), *entry)));
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

/// Entries of one listing request.
const PAGE_ENTRIES: usize = 100;

fn refusal(reply: Reply) -> FsError {
    match reply {
        Reply::Error(error) => error,
        other => panic!("answered {other:?}"),
    }
}
