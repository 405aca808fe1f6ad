//! One process: what it does, and what it knows must be true.
//!
//! A process works on names of its own in directories that all share, so its model of them is exact whoever else
//! is at work. What it does to shared names is judged when all is quiet.

mod copies;
mod directories;
mod handles;
mod looks;
mod shared;
mod times;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use meta::ops::{AttrSet, RenameMode};
use meta::{FileKind, FsError};
use types::{Epoch, Ino, Micros};
use vfs::{Attr, Entry, HandleId, MakeSpec, OpenMode, Reply, Request, Taken, WriteData};

use crate::kernel::second_try;
use crate::processes::{Begun, Seen, World};

/// What a process knows of its names and files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// Names by directory.
    pub names: BTreeMap<(u64, Vec<u8>), u64>,
    /// Inodes that have a name or are open.
    pub files: BTreeMap<u64, File>,
}

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub kind: FileKind,
    pub mode: u32,
    pub nlink: u32,
    /// Content now, and before it what may be found after a death: everything since the last fsync.
    pub versions: Vec<Rc<Vec<u8>>>,
    /// When it was changed, in seconds, if that was set and nothing has moved it since.
    pub mtime: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFile {
    pub ino: u64,
    pub handle: HandleId,
    pub write: bool,
}

/// A process as the others and the checks see it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub node: usize,
    pub own: Own,
    /// What was true after each of its steps since the last one known to be durable.
    pub history: Vec<Own>,
    pub opens: Vec<OpenFile>,
    /// What will be true if the request in progress is done.
    pub next: Option<Own>,
    pub is_idle: bool,
    pub may_go: bool,
    pub is_done: bool,
    pub since: Micros,
    pub request: Option<vfs::RequestId>,
    /// What it was answered last, and where.
    pub told: Option<(usize, vfs::RequestId)>,
    /// The request in progress may be interrupted.
    pub interruptible: bool,
    /// It has been.
    pub interrupted: bool,
    pub last: String,
    /// Before it starts again after a death: what must be complete first.
    pub gate: Gate,
    /// Records that it appended to the shared file.
    pub appended: u64,
    /// What it wrote last into its own place of the file that all have such places in, if that cannot be lost.
    pub far: Option<u64>,
    /// Steps that it has still to make.
    pub steps_left: usize,
    /// Files that a store has failed to take: what they hold is not known.
    pub doubtful: BTreeSet<u64>,
}

/// What must be complete before a process starts again that read the records after a death: what they hold already
/// may be unknown yet to the node where it starts.
#[derive(Clone, Debug, Default)]
pub(crate) enum Gate {
    /// Nothing.
    #[default]
    Open,
    /// Whatever was under way at the death, as soon as a master can say what that is.
    Unknown,
    /// These changes of the master of this epoch.
    Changes(Epoch, Vec<u64>),
}

impl Gate {
    /// Looks again; returns whether the process may go on.
    pub fn try_pass(&mut self, under_way: Option<&(Epoch, Vec<u64>)>) -> bool {
        let Some((now, changes)) = under_way else { return matches!(self, Self::Open) };
        match self {
            Self::Open => {}
            Self::Changes(epoch, left) if epoch == now => left.retain(|change| changes.contains(change)),
            Self::Unknown | Self::Changes(..) => *self = Self::Changes(*now, changes.clone()),
        }
        if matches!(self, Self::Changes(_, left) if left.is_empty()) {
            *self = Self::Open;
        }
        matches!(self, Self::Open)
    }
}

impl File {
    pub fn data(&self) -> &Vec<u8> {
        self.versions.last().expect("a file has content")
    }
}

/// The hands of a process.
pub(crate) struct Process {
    pub world: Rc<RefCell<World>>,
    pub id: usize,
}

type Done<T> = Result<T, FsError>;

impl Process {
    /// Works until it has done its share.
    pub async fn run(self, steps: usize) {
        for step in 0..steps {
            self.state(|s| s.steps_left = steps - step);
            self.pause().await;
            self.step(step).await;
            self.commit();
        }
        while !self.state(|s| s.opens.is_empty()) {
            self.close(0).await;
        }
        self.state(|s| s.is_done = true);
    }

    fn state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.world.borrow_mut().states[self.id])
    }

    fn random(&self, n: usize) -> usize {
        self.world.borrow_mut().cluster.random(n as u64) as usize
    }

    fn node(&self) -> usize {
        self.state(|s| s.node)
    }

    fn fault(&self, what: &str) -> ! {
        let world = self.world.borrow();
        let state = &world.states[self.id];
        panic!(
            "seed {}: process {} on node {}: {what}; step: {}",
            world.seed, self.id, state.node, state.last
        )
    }

    /// Waits for its turn.
    async fn pause(&self) {
        self.state(|s| (s.is_idle, s.may_go) = (true, false));
        poll_fn(|_| match self.state(|s| s.may_go) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        let now = self.world.borrow().cluster.clock().now;
        self.state(|s| {
            s.is_idle = false;
            s.since = now;
        });
    }

    /// Sends a request when the kernel lets it through, and waits for the answer.
    async fn call(&self, request: Request) -> Reply {
        let second = second_try(&request);
        match (self.call_once(request).await, second) {
            (Reply::Error(FsError::Stale), Some(second)) => {
                self.kernel(|k| k.asks_again(&second));
                self.call_once(second).await
            }
            (reply, _) => reply,
        }
    }

    async fn call_once(&self, request: Request) -> Reply {
        let node = self.node();
        let mut request = Some(request);
        let id = poll_fn(|_| {
            let mut world = self.world.borrow_mut();
            // Kernels take in what they are told before anything else is asked of them.
            let is_clear = world.cluster.oldest_reply().is_none();
            match request.take() {
                Some(ready) if is_clear && world.cluster.may_submit(node, &ready) => {
                    if let Some((_, told)) = world.states[self.id].told.take().filter(|told| told.0 == node) {
                        world.cluster.taken_in(node, told);
                    }
                    Poll::Ready(world.cluster.submit(node, ready))
                }
                waiting => {
                    request = waiting;
                    Poll::Pending
                }
            }
        })
        .await;
        self.state(|s| s.request = Some(id));
        let reply = poll_fn(|_| match self.world.borrow_mut().cluster.take_reply(node, id) {
            Some(reply) => Poll::Ready(reply),
            None => Poll::Pending,
        })
        .await;
        self.state(|s| (s.request, s.interrupted, s.told) = (None, false, Some((node, id))));
        reply
    }

    async fn done(&self, request: Request) -> Done<()> {
        match self.call(request).await {
            Reply::Done => Ok(()),
            Reply::Error(error) => Err(error),
            other => self.fault(&format!("answered {other:?}")),
        }
    }

    fn kernel<T>(&self, f: impl FnOnce(&mut crate::Kernel) -> T) -> T {
        let mut world = self.world.borrow_mut();
        let node = world.states[self.id].node;
        f(world.cluster.kernel(node))
    }

    /// Announces what is true if the request that follows is done.
    fn announce(&self, edit: impl FnOnce(&mut Own)) {
        self.state(|s| {
            let mut next = s.own.clone();
            edit(&mut next);
            s.next = Some(next);
        });
    }

    /// The request was done, or refused.
    fn settle(&self, done: bool) {
        self.state(|s| {
            if let Some(next) = s.next.take().filter(|_| done) {
                s.own = next;
            }
        });
        self.commit();
    }

    fn commit(&self) {
        let keeps = self.world.borrow().keeps_history;
        self.state(|s| {
            if keeps {
                s.history.push(s.own.clone());
            } else {
                for file in s.own.files.values_mut() {
                    file.versions.drain(..file.versions.len() - 1);
                }
            }
        });
    }

    /// Everything so far is durable, the content of `ino` too.
    fn synced(&self, ino: u64) {
        self.state(|s| {
            if let Some(file) = s.own.files.get_mut(&ino) {
                file.versions.drain(..file.versions.len() - 1);
            }
            s.history = vec![s.own.clone()];
        });
    }

    /// Whether a store that fails, or a limit, may be why a request is refused.
    fn may_refuse(&self, error: &FsError) -> bool {
        let cluster = &self.world.borrow().cluster;
        matches!(error, FsError::NoSpace | FsError::Io) && cluster.may_fail()
            || *error == FsError::QuotaExceeded && cluster.has_limits()
    }

    /// A store has failed to take content of `ino`.
    fn doubt(&self, ino: u64) {
        self.state(|s| s.doubtful.insert(ino));
    }

    fn is_doubtful(&self, ino: u64) -> bool {
        self.state(|s| s.doubtful.contains(&ino))
    }

    fn own_name(&self) -> Vec<u8> {
        format!("p{}_{}", self.id, self.random(5)).into_bytes()
    }

    /// A directory that all share, or one of its own, looked up so that the kernel knows it.
    async fn directory(&self) -> u64 {
        let (shared, own) = {
            let world = self.world.borrow();
            let own = &world.states[self.id].own;
            let dirs = own
                .names
                .iter()
                .filter(|(_, ino)| own.files.get(ino).is_some_and(|f| f.kind == FileKind::Directory));
            (
                world.shared.clone(),
                dirs.map(|((dir, name), ino)| (*dir, name.clone(), *ino)).collect::<Vec<_>>(),
            )
        };
        let pick = self.random(shared.len() + own.len());
        let (dir, name, ino) = match pick.checked_sub(shared.len()) {
            None => (1, shared[pick].0.clone(), shared[pick].1),
            Some(index) => own[index].clone(),
        };
        if ino == 1 {
            return 1;
        }
        self.reach(dir).await;
        match self.lookup(dir, &name).await {
            Ok(found) if found == ino => ino,
            other => self.fault(&format!("directory {ino} is {other:?} under its name in {dir}")),
        }
    }

    /// Looks up the way to a directory.
    async fn reach(&self, dir: u64) {
        let mut way = Vec::new();
        let mut at = dir;
        while at != 1 {
            let found = {
                let world = self.world.borrow();
                let shared =
                    world.shared.iter().find(|(_, ino)| *ino == at).map(|(name, _)| (1, name.clone()));
                let names = &world.states[self.id].own.names;
                shared
                    .or_else(|| names.iter().find(|(_, ino)| **ino == at).map(|((d, n), _)| (*d, n.clone())))
            };
            let Some((parent, name)) = found else { return };
            at = parent;
            way.push((parent, name));
        }
        for (parent, name) in way.into_iter().rev() {
            let _ = self.lookup(parent, &name).await;
        }
    }

    /// Resolves a name as the kernel does: from its cache if it may, else by asking.
    async fn lookup(&self, dir: u64, name: &[u8]) -> Done<u64> {
        let Some(look) = self.begin_shared(dir, name, None) else { return self.find(dir, name).await };
        let found = self.find(dir, name).await;
        let saw = match found {
            Ok(ino) => Some(Seen::Inode(ino)),
            Err(FsError::NotFound) => Some(Seen::Absent),
            Err(_) => None,
        };
        self.world.borrow_mut().names.end(&look, saw, None);
        found
    }

    /// Notes that something begins with a name, if all use it.
    fn begin_shared(&self, dir: u64, name: &[u8], made: Option<Seen>) -> Option<Begun> {
        let is_shared = name.starts_with(b"x") || name.starts_with(b"race");
        is_shared.then(|| self.world.borrow_mut().names.begin(self.id, (dir, name.to_vec()), made))
    }

    /// Notes how it ended.
    fn end_shared(&self, begun: Option<Begun>, saw: Option<Seen>, made: Option<Seen>) {
        if let Some(begun) = begun {
            self.world.borrow_mut().names.end(&begun, saw, made);
        }
    }

    async fn find(&self, dir: u64, name: &[u8]) -> Done<u64> {
        let cached = self.kernel(|k| k.names.get(&(Ino(dir), name.to_vec())).copied());
        if let Some(cached) = cached {
            return cached.map(|ino| ino.0).ok_or(FsError::NotFound);
        }
        match self.call(Request::Lookup { parent: Ino(dir), name: name.into() }).await {
            Reply::Entry(entry) => {
                self.kernel(|k| k.entry(Ino(dir), name, &entry));
                Ok(entry.attr.ino.0)
            }
            Reply::NoEntry(keep) => {
                self.kernel(|k| k.no_entry(Ino(dir), name, keep));
                Err(FsError::NotFound)
            }
            Reply::Error(error) => Err(error),
            other => self.fault(&format!("lookup answered {other:?}")),
        }
    }

    /// Looks an own name up and compares with what is known.
    async fn own(&self, dir: u64, name: &[u8]) -> Option<u64> {
        let known = self.state(|s| s.own.names.get(&(dir, name.to_vec())).copied());
        let found = self.lookup(dir, name).await;
        if found.ok() != known || !matches!(found, Ok(_) | Err(FsError::NotFound)) {
            let name = String::from_utf8_lossy(name);
            self.fault(&format!("{dir}/{name} is {found:?}, expected {known:?}"));
        }
        known
    }

    fn expect(&self, what: &str, found: Done<()>, expected: Done<()>) {
        if found != expected {
            self.fault(&format!("{what}: {found:?}, expected {expected:?}"));
        }
    }

    async fn step(&self, step: usize) {
        let choice = self.random(115);
        self.state(|s| s.last = format!("{step} choice {choice}"));
        match choice {
            0..14 => self.create().await,
            14..18 => self.mkdir().await,
            18..25 => self.unlink().await,
            25..27 => self.rmdir().await,
            27..34 => self.rename().await,
            34..38 => self.link().await,
            38..42 => self.chmod().await,
            42..46 => self.truncate().await,
            46..50 => self.open().await,
            50..56 => self.write().await,
            56..59 => self.store().await,
            59..62 => self.fsync().await,
            62..66 => {
                let count = self.state(|s| s.opens.len());
                if count > 0 {
                    self.close(self.random(count)).await;
                }
            }
            66..72 => self.read().await,
            72..76 => self.stat().await,
            76..80 => self.list().await,
            80..87 => self.meddle().await,
            87..89 => self.race().await,
            89..92 => self.append().await,
            92..95 => self.count().await,
            95..97 => self.peek().await,
            97 => self.far().await,
            98..102 => self.visit().await,
            102..105 => self.by_handle().await,
            105..109 => self.copy().await,
            109..113 => self.touch().await,
            _ => self.migrate().await,
        }
    }

    async fn create(&self) {
        let dir = self.directory().await;
        let name = self.own_name();
        let known = self.own(dir, &name).await;
        let request = Request::Create {
            parent: Ino(dir),
            name: name.clone().into(),
            spec: spec(FileKind::File),
            open: OpenMode { write: true, map: true, ..OpenMode::default() },
            taken: Taken::Refuse,
        };
        let file =
            File { kind: FileKind::File, mode: 0o644, nlink: 1, versions: vec![Rc::default()], mtime: None };
        if known.is_none() {
            self.announce(|own| {
                // Its number is not known before the answer; a check after a death finds it.
                own.names.insert((dir, name.clone()), 0);
                own.files.insert(0, file.clone());
            });
        }
        match self.call(request).await {
            Reply::Created(entry, opened) => {
                if known.is_some() {
                    self.fault("created what was there");
                }
                let ino = entry.attr.ino.0;
                self.announce(|own| {
                    own.names.insert((dir, name.clone()), ino);
                    own.files.insert(ino, file);
                });
                self.made(dir, &name, &entry);
                self.state(|s| s.opens.push(OpenFile { ino, handle: opened.handle, write: true }));
                if self.random(2) == 0 {
                    self.write_to(ino).await;
                }
                let count = self.state(|s| s.opens.len());
                if self.random(3) > 0 {
                    self.close(count - 1).await;
                }
            }
            Reply::Error(FsError::Exists) if known.is_some() => {}
            Reply::Error(error) if self.may_refuse(&error) => self.settle(false),
            other => {
                self.fault(&format!("create of {:?} answered {other:?}", String::from_utf8_lossy(&name)))
            }
        }
    }

    fn made(&self, dir: u64, name: &[u8], entry: &Entry) {
        self.settle(true);
        self.kernel(|k| {
            k.changed(Ino(dir), name);
            k.entry(Ino(dir), name, entry);
        });
    }

    async fn mkdir(&self) {
        let dir = self.directory().await;
        let name = self.own_name();
        let known = self.own(dir, &name).await;
        if known.is_none() {
            self.announce(|own| {
                own.names.insert((dir, name.clone()), 0);
                own.files.insert(0, directory());
            });
        }
        let request =
            Request::Make { parent: Ino(dir), name: name.clone().into(), spec: spec(FileKind::Directory) };
        match self.call(request).await {
            Reply::Entry(entry) if known.is_none() => {
                self.announce(|own| {
                    own.names.insert((dir, name.clone()), entry.attr.ino.0);
                    own.files.insert(entry.attr.ino.0, directory());
                });
                self.made(dir, &name, &entry);
            }
            Reply::Error(FsError::Exists) if known.is_some() => {}
            Reply::Error(error) if self.may_refuse(&error) => self.settle(false),
            other => self.fault(&format!("mkdir answered {other:?}")),
        }
    }

    async fn unlink(&self) {
        let dir = self.directory().await;
        let name = self.own_name();
        let known = self.own(dir, &name).await;
        let is_dir = known.is_some_and(|ino| self.kind(ino) == FileKind::Directory);
        let expected = match known {
            None => Err(FsError::NotFound),
            Some(_) if is_dir => Err(FsError::IsDirectory),
            Some(_) => Ok(()),
        };
        self.announce(|own| drop_name(own, dir, &name));
        let found =
            self.done(Request::Unlink { parent: Ino(dir), name: name.clone().into(), bound: None }).await;
        self.expect("unlink", found, expected);
        self.settle(found.is_ok());
        if found.is_ok() {
            self.kernel(|k| {
                k.changed(Ino(dir), &name);
                known.map(|ino| k.attrs.remove(&Ino(ino)));
            });
            self.bury();
        }
    }

    async fn rmdir(&self) {
        let dir = self.directory().await;
        let name = self.own_name();
        let known = self.own(dir, &name).await;
        let is_empty = |ino: u64| self.state(|s| !s.own.names.keys().any(|(d, _)| *d == ino));
        let expected = match known {
            None => Err(FsError::NotFound),
            Some(ino) if self.kind(ino) != FileKind::Directory => Err(FsError::NotDirectory),
            Some(ino) if !is_empty(ino) => Err(FsError::NotEmpty),
            Some(_) => Ok(()),
        };
        self.announce(|own| {
            if let Some(ino) = own.names.remove(&(dir, name.clone())) {
                own.files.remove(&ino);
            }
        });
        let found =
            self.done(Request::Rmdir { parent: Ino(dir), name: name.clone().into(), bound: None }).await;
        self.expect("rmdir", found, expected);
        self.settle(found.is_ok());
        if found.is_ok() {
            self.kernel(|k| k.removed_directory(Ino(dir), &name));
        }
    }

    async fn rename(&self) {
        let (dir, name) = (self.directory().await, self.own_name());
        let (to, new_name) = (self.directory().await, self.own_name());
        let source = self.own(dir, &name).await;
        let target = self.own(to, &new_name).await;
        // A directory does not go below itself; that refusal has tests of its own.
        if source.is_some_and(|ino| self.kind(ino) == FileKind::Directory) && dir != to {
            return;
        }
        // The model of replaced directories would need their content: unlink and rmdir cover them.
        if target.is_some_and(|ino| self.kind(ino) == FileKind::Directory) {
            return;
        }
        let is_dir = source.is_some_and(|ino| self.kind(ino) == FileKind::Directory);
        let expected = match (source, target) {
            (None, _) => Err(FsError::NotFound),
            (Some(a), Some(b)) if a != b && is_dir => Err(FsError::NotDirectory),
            (Some(_), _) => Ok(()),
        };
        self.announce(|own| {
            let (Some(a), b) = (source, target) else { return };
            if b == Some(a) {
                return;
            }
            drop_name(own, to, &new_name);
            own.names.remove(&(dir, name.clone()));
            own.names.insert((to, new_name.clone()), a);
        });
        let request = Request::Rename {
            parent: Ino(dir),
            name: name.clone().into(),
            new_parent: Ino(to),
            new_name: new_name.clone().into(),
            mode: RenameMode::Replace,
            bound: None,
            whiteout: None,
        };
        let found = self.done(request).await;
        if !found.is_err_and(|error| self.may_refuse(&error)) {
            self.expect("rename", found, expected);
        }
        self.settle(found.is_ok());
        if found.is_ok() {
            self.kernel(|k| {
                k.renamed((Ino(dir), &name), (Ino(to), &new_name));
                for ino in [source, target].into_iter().flatten() {
                    k.attrs.remove(&Ino(ino));
                }
            });
            self.bury();
        }
    }

    async fn link(&self) {
        let (from, old) = (self.directory().await, self.own_name());
        let (dir, name) = (self.directory().await, self.own_name());
        let target = self.own(dir, &name).await;
        let Some(ino) = self.own(from, &old).await else { return };
        let expected = match (self.kind(ino), target) {
            (FileKind::Directory, _) => Err(FsError::NotPermitted),
            (_, Some(_)) => Err(FsError::Exists),
            (_, None) => Ok(()),
        };
        self.announce(|own| {
            own.names.insert((dir, name.clone()), ino);
            if let Some(file) = own.files.get_mut(&ino) {
                file.nlink += 1;
            }
        });
        match self.call(Request::Link { ino: Ino(ino), parent: Ino(dir), name: name.clone().into() }).await {
            Reply::Entry(entry) if expected.is_ok() && entry.attr.ino.0 == ino => {
                self.made(dir, &name, &entry)
            }
            Reply::Error(_) if expected.is_err() => self.settle(false),
            Reply::Error(error) if self.may_refuse(&error) => self.settle(false),
            other => self.fault(&format!("link answered {other:?}, expected {expected:?}")),
        }
    }

    async fn chmod(&self) {
        let (dir, name) = (self.directory().await, self.own_name());
        let Some(ino) = self.own(dir, &name).await else { return };
        let mode = 0o600 + self.random(64) as u32;
        self.announce(|own| {
            if let Some(file) = own.files.get_mut(&ino) {
                file.mode = mode;
            }
        });
        let is_set = self.set_attr(ino, AttrSet { mode: Some(mode), ..AttrSet::default() }, None).await;
        self.settle(is_set);
    }

    async fn set_attr(&self, ino: u64, set: AttrSet, size: Option<u64>) -> bool {
        match self.call(Request::SetAttr { ino: Ino(ino), set, size }).await {
            Reply::Attr(attr, keep) => {
                self.kernel(|k| k.attr(&attr, keep));
                true
            }
            Reply::Error(error) if self.may_refuse(&error) => false,
            other => self.fault(&format!("setattr answered {other:?}")),
        }
    }

    async fn truncate(&self) {
        let (dir, name) = (self.directory().await, self.own_name());
        let Some(ino) = self.own(dir, &name).await else { return };
        if self.kind(ino) != FileKind::File {
            return;
        }
        self.write_back(ino).await;
        let size = self.random(12_000);
        self.announce(|own| {
            change(own, ino, |data| data.resize(size, 0));
        });
        if !self.set_attr(ino, AttrSet::default(), Some(size as u64)).await {
            self.doubt(ino);
        }
        self.settle(true);
        self.kernel(|k| {
            k.note_change(Ino(ino));
            if let Some(pages) = k.pages.get_mut(&Ino(ino)) {
                pages.resize(size, 0);
            }
        });
    }

    async fn open(&self) {
        let (dir, name) = (self.directory().await, self.own_name());
        let Some(ino) = self.own(dir, &name).await else { return };
        if self.kind(ino) != FileKind::File || self.state(|s| s.opens.len() > 4) {
            return;
        }
        let write = self.random(2) == 0;
        match self
            .call(Request::Open {
                ino: Ino(ino),
                open: OpenMode { write, map: write, ..OpenMode::default() },
            })
            .await
        {
            Reply::Opened(opened) => {
                self.state(|s| s.opens.push(OpenFile { ino, handle: opened.handle, write }));
            }
            Reply::Error(error) if self.may_refuse(&error) => {}
            other => self.fault(&format!("open answered {other:?}")),
        }
    }

    fn writable(&self) -> Option<u64> {
        let all: Vec<u64> = self.state(|s| s.opens.iter().filter(|o| o.write).map(|o| o.ino).collect());
        (!all.is_empty()).then(|| all[self.random(all.len())])
    }

    async fn write(&self) {
        if let Some(ino) = self.writable() {
            self.write_to(ino).await;
        }
    }

    async fn write_to(&self, ino: u64) {
        let offset = self.random(9000);
        let most = if self.random(4) == 0 { 200_000 } else { 3000 };
        let len = 1 + self.random(most);
        let data = vec![self.random(256) as u8; len];
        self.write_back(ino).await;
        self.announce(|own| change(own, ino, |old| put(old, offset, &data)));
        self.write_at(ino, offset as u64, data).await;
        self.settle(true);
    }

    async fn write_at(&self, ino: u64, offset: u64, data: Vec<u8>) {
        let len = data.len();
        let write = WriteData(data.clone().into());
        let request = Request::Write {
            ino: Ino(ino),
            offset,
            data: write,
            append: false,
            direct: false,
            kill_privileges: None,
        };
        match self.call(request).await {
            Reply::Written { len: written, .. } if written as usize == len => {}
            Reply::Error(error) if self.may_refuse(&error) => {
                self.doubt(ino);
                return self.kernel(|k| {
                    k.attrs.remove(&Ino(ino));
                    k.note_change(Ino(ino));
                    k.pages.remove(&Ino(ino));
                });
            }
            other => self.fault(&format!("write answered {other:?}")),
        }
        self.kernel(|k| {
            k.attrs.remove(&Ino(ino));
            k.note_change(Ino(ino));
            if let Some(pages) = k.pages.get_mut(&Ino(ino)) {
                put(pages, offset as usize, &data);
            }
        });
    }

    /// Stores through a mapping: nobody is asked, and the kernel writes back when it likes.
    async fn store(&self) {
        let Some(ino) = self.writable() else { return };
        if !self.kernel(|k| k.pages.contains_key(&Ino(ino))) {
            self.read_file(ino).await;
        }
        let size = self.state(|s| s.own.files[&ino].data().len());
        // Taken back meanwhile: the next fault would read it again.
        if size == 0
            || self.is_doubtful(ino)
            || !self.kernel(|k| k.pages.get(&Ino(ino)).is_some_and(|p| p.len() == size))
        {
            return;
        }
        let (at, byte) = (self.random(size), self.random(256) as u8);
        self.kernel(|k| k.store(Ino(ino), at as u64, byte));
        self.announce(|own| change(own, ino, |data| data[at] = byte));
        self.settle(true);
    }

    /// The kernel writes back what was stored through mappings.
    async fn write_back(&self, ino: u64) {
        let stores: Vec<_> = self.kernel(|k| k.take_stores(Ino(ino)).collect());
        for (offset, data) in stores {
            self.write_at(ino, offset, data).await;
        }
    }

    async fn fsync(&self) {
        let Some(ino) = self.writable() else { return };
        self.write_back(ino).await;
        self.sync(ino).await;
    }

    /// False if it failed, as it may.
    async fn sync(&self, ino: u64) -> bool {
        let fsync = || Request::Fsync { ino: Ino(ino) };
        let mut found = self.done(fsync()).await;
        if found == Err(FsError::Io) {
            // What was lost while nobody wrote here, or with a membership that ended, is told once.
            found = self.done(fsync()).await;
        }
        match found {
            Err(error) if self.may_refuse(&error) => {
                self.doubt(ino);
                false
            }
            found => {
                self.expect("fsync", found, Ok(()));
                self.synced(ino);
                true
            }
        }
    }

    async fn close(&self, index: usize) {
        let open = self.state(|s| s.opens.remove(index));
        if open.write {
            self.write_back(open.ino).await;
        }
        let found =
            self.done(Request::Release { ino: Ino(open.ino), handle: open.handle, flock: None }).await;
        self.expect("release", found, Ok(()));
        self.bury();
    }

    /// Files without a name that are not open are no more.
    fn bury(&self) {
        self.state(|s| {
            let opens = &s.opens;
            s.own.files.retain(|ino, f| f.nlink > 0 || opens.iter().any(|o| o.ino == *ino));
        });
    }

    fn kind(&self, ino: u64) -> FileKind {
        self.state(|s| s.own.files[&ino].kind)
    }

    /// Goes on from another node.
    async fn migrate(&self) {
        while !self.state(|s| s.opens.is_empty()) {
            self.close(0).await;
        }
        if self.world.borrow().keeps_history {
            let files: Vec<u64> = self.state(|s| s.own.files.keys().copied().collect());
            for ino in files.into_iter().chain([1]) {
                if !self.sync(ino).await {
                    return;
                }
            }
        }
        let mut up = self.world.borrow().cluster.nodes_up();
        // Where handles of dead processes are yet to be closed, files may answer EIO.
        up.retain(|node| !self.world.borrow().cluster.has_broken_files(*node));
        if !up.is_empty() {
            let node = up[self.random(up.len())];
            // What it wrote into the file of places is not synced, and its node's to lose.
            self.state(|s| (s.node, s.far) = (node, None));
        }
    }
}

fn shared_name(n: usize) -> Vec<u8> {
    format!("x{n}").into_bytes()
}

fn spec(kind: FileKind) -> MakeSpec {
    MakeSpec { kind, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() }
}

fn directory() -> File {
    File { kind: FileKind::Directory, mode: 0o644, nlink: 2, versions: vec![Rc::default()], mtime: None }
}

fn put(data: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if data.len() < offset + bytes.len() {
        data.resize(offset + bytes.len(), 0);
    }
    data[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn change(own: &mut Own, ino: u64, edit: impl FnOnce(&mut Vec<u8>)) {
    if let Some(file) = own.files.get_mut(&ino) {
        let mut data = file.data().clone();
        edit(&mut data);
        file.versions.push(Rc::new(data));
        file.mtime = None;
    }
}

fn drop_name(own: &mut Own, dir: u64, name: &[u8]) {
    if let Some(ino) = own.names.remove(&(dir, name.to_vec()))
        && let Some(file) = own.files.get_mut(&ino)
    {
        file.nlink -= 1;
    }
}

/// Takes entries with their offsets, a few at a time.
#[derive(Debug, Default)]
struct Listing(Vec<(Vec<u8>, u64, u64, FileKind)>);

impl vfs::DirSink for Listing {
    fn push(&mut self, name: &[u8], ino: Ino, kind: FileKind, offset: u64, _: Option<&Entry>) -> bool {
        if self.0.len() >= 7 {
            return false;
        }
        self.0.push((name.to_vec(), ino.0, offset, kind));
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}
