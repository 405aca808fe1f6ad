//! Processes on all nodes, one operation after the other, against a plain model of a file system.
//!
//! Each operation goes to a node chosen by the seed and runs to its end while everything else (flushes,
//! revokes, forgets, timers) happens in any order around it. Its result must be the model's, whichever node did
//! what before: that is strict coherence. After each one every kernel's caches are compared with the model.

mod copy;

use std::collections::BTreeMap;

use meta::ops::{AttrSet, RenameMode};
use meta::{FileKind, FsError};
use types::Ino;
use vfs::{Entry, HandleId, MakeSpec, OpenMode, Reply, Request, Taken, WriteData};

use crate::cluster::{Cluster, ClusterConfig, Figures};
use crate::traffic::Traffic;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The cluster.
    pub cluster: ClusterConfig,
    /// How many operations.
    pub operations: usize,
    /// One in so many operations is followed by the death of the master; 0 for never.
    pub kill_master_every: u64,
    /// One in so many operations is followed by some seconds of quiet; 0 for never.
    pub rest_every: u64,
}

/// Outcome of a run that found no fault.
#[derive(Clone, Debug)]
pub struct Run {
    /// What happened.
    pub figures: Figures,
    /// Digest of the run.
    pub trace: u64,
    /// Operations by name: how many succeeded, how many were refused.
    pub operations: BTreeMap<&'static str, (u64, u64)>,
    /// Some of what was sent and all that was stored at the end.
    pub traffic: Traffic,
}

/// The model: inodes by number.
struct Model {
    files: BTreeMap<u64, Inode>,
    opens: Vec<OpenFile>,
}

#[derive(Clone, Debug)]
struct Inode {
    kind: FileKind,
    mode: u32,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, u64>,
    nlink: u32,
}

#[derive(Clone, Copy, Debug)]
struct OpenFile {
    node: usize,
    ino: u64,
    handle: HandleId,
    write: bool,
}

struct Runner {
    cluster: Cluster,
    model: Model,
    operations: BTreeMap<&'static str, (u64, u64)>,
    config: RunConfig,
    last: String,
}

/// Runs a workload. Panics, naming the seed, at the first answer that differs from the model's.
pub fn run(config: RunConfig) -> Run {
    let mut files = BTreeMap::new();
    files.insert(
        1,
        Inode {
            kind: FileKind::Directory,
            mode: 0o755,
            data: Vec::new(),
            entries: BTreeMap::new(),
            nlink: 2,
        },
    );
    let mut runner = Runner {
        cluster: Cluster::new(config.cluster.clone()),
        model: Model { files, opens: Vec::new() },
        operations: BTreeMap::new(),
        last: String::new(),
        config,
    };
    for step in 0..runner.config.operations {
        runner.step(step);
        runner.check_kernels(step);
        let every = runner.config.kill_master_every;
        if every > 0 && runner.cluster.random(every) == 0 {
            runner.cluster.kill_master();
        }
        let every = runner.config.rest_every;
        if every > 0 && runner.cluster.random(every) == 0 {
            runner.cluster.quiesce();
        }
    }
    runner.check_everything();
    let (figures, trace) = (runner.cluster.figures(), runner.cluster.trace());
    Run { figures, trace, operations: runner.operations, traffic: runner.cluster.traffic() }
}

impl Runner {
    fn fault(&self, step: usize, what: &str) -> ! {
        panic!("seed {} step {step}: {what}; operation: {}", self.config.cluster.seed, self.last)
    }

    fn random(&mut self, n: usize) -> usize {
        self.cluster.random(n as u64) as usize
    }

    fn directories(&self) -> Vec<u64> {
        self.model
            .files
            .iter()
            .filter(|(_, i)| i.kind == FileKind::Directory && i.nlink > 0)
            .map(|(n, _)| *n)
            .collect()
    }

    fn any_directory(&mut self) -> u64 {
        let all = self.directories();
        all[self.random(all.len())]
    }

    fn any_name(&mut self) -> Vec<u8> {
        format!("n{}", self.random(6)).into_bytes()
    }

    /// Resolves a name on a node as its kernel would: from its cache if it may, else by asking.
    fn lookup(&mut self, node: usize, dir: u64, name: &[u8]) -> Result<u64, FsError> {
        if let Some(cached) = self.cluster.kernel(node).names.get(&(Ino(dir), name.to_vec())) {
            return cached.map(|ino| ino.0).ok_or(FsError::NotFound);
        }
        match self.cluster.call(node, Request::Lookup { parent: Ino(dir), name: name.into() }) {
            Reply::Entry(entry) => {
                self.cluster.kernel(node).entry(Ino(dir), name, &entry);
                Ok(entry.attr.ino.0)
            }
            Reply::NoEntry(keep) => {
                self.cluster.kernel(node).no_entry(Ino(dir), name, keep);
                Err(FsError::NotFound)
            }
            Reply::Error(error) => Err(error),
            other => panic!("lookup answered {other:?}"),
        }
    }

    /// Walks from the root to a directory on a node, so that its kernel knows it.
    fn reach(&mut self, node: usize, dir: u64) {
        let mut path = Vec::new();
        let mut at = dir;
        while at != 1 {
            let parent = self.model.files.iter().find_map(|(p, i)| {
                i.entries.iter().find(|(_, c)| **c == at).map(|(name, _)| (*p, name.clone()))
            });
            let Some((parent, name)) = parent else { return };
            path.push((parent, name));
            at = parent;
        }
        for (parent, name) in path.into_iter().rev() {
            let _ = self.lookup(node, parent, &name);
        }
    }

    fn step(&mut self, step: usize) {
        let node = self.random(self.config.cluster.nodes);
        let dir = self.any_directory();
        let name = self.any_name();
        self.reach(node, dir);
        let choice = self.random(100);
        self.last =
            format!("choice {choice} on node {node} in {dir} name {}", String::from_utf8_lossy(&name));
        let (what, expected, found) = match choice {
            0..20 => self.create(node, dir, &name),
            20..28 => self.mkdir(node, dir, &name),
            28..38 => self.unlink(node, dir, &name),
            38..42 => self.rmdir(node, dir, &name),
            42..52 => self.rename(node, dir, &name),
            52..57 => self.link(node, dir, &name),
            57..62 => self.chmod(node, dir, &name),
            62..66 => self.truncate(node, dir, &name),
            66..74 => self.open(node, dir, &name),
            74..82 => self.write(node),
            82..88 => self.close(node),
            88..94 => self.read(node, dir, &name, step),
            94..97 => self.copy(dir, &name),
            _ => self.list(node, dir),
        };
        let count = self.operations.entry(what).or_default();
        match &found {
            Ok(()) => count.0 += 1,
            Err(_) => count.1 += 1,
        }
        if expected != found {
            self.fault(step, &format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }

    fn spec(kind: FileKind) -> MakeSpec {
        MakeSpec { kind, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() }
    }

    fn created(&mut self, node: usize, dir: u64, name: &[u8], entry: &Entry) {
        let kernel = self.cluster.kernel(node);
        kernel.changed(Ino(dir), name);
        kernel.entry(Ino(dir), name, entry);
        let ino = entry.attr.ino.0;
        if entry.attr.kind == FileKind::Directory {
            self.inode(dir).nlink += 1;
        }
        self.inode(dir).entries.insert(name.to_vec(), ino);
        let nlink = if entry.attr.kind == FileKind::Directory { 2 } else { 1 };
        let made =
            Inode { kind: entry.attr.kind, mode: 0o644, data: Vec::new(), entries: BTreeMap::new(), nlink };
        self.model.files.insert(ino, made);
    }

    fn inode(&mut self, ino: u64) -> &mut Inode {
        self.model.files.get_mut(&ino).expect("the model knows the inode")
    }

    fn has(&self, dir: u64, name: &[u8]) -> Option<u64> {
        self.model.files.get(&dir)?.entries.get(name).copied()
    }

    fn create(&mut self, node: usize, dir: u64, name: &[u8]) -> Outcome {
        let expected = if self.has(dir, name).is_some() { Err(FsError::Exists) } else { Ok(()) };
        let request = Request::Create {
            parent: Ino(dir),
            name: name.into(),
            spec: Self::spec(FileKind::File),
            open: OpenMode { write: true, map: true, ..OpenMode::default() },
            taken: Taken::Refuse,
        };
        let found = match self.cluster.call(node, request) {
            Reply::Created(entry, opened) => {
                self.created(node, dir, name, &entry);
                let open = OpenFile { node, ino: entry.attr.ino.0, handle: opened.handle, write: true };
                self.model.opens.push(open);
                if self.random(2) == 0 {
                    self.write_to(open);
                }
                if self.random(3) > 0 {
                    self.close_file(self.model.opens.len() - 1);
                }
                Ok(())
            }
            Reply::Error(error) => Err(error),
            other => panic!("create answered {other:?}"),
        };
        ("create", expected, found)
    }

    fn mkdir(&mut self, node: usize, dir: u64, name: &[u8]) -> Outcome {
        let expected = if self.has(dir, name).is_some() { Err(FsError::Exists) } else { Ok(()) };
        let request =
            Request::Make { parent: Ino(dir), name: name.into(), spec: Self::spec(FileKind::Directory) };
        let found = match self.cluster.call(node, request) {
            Reply::Entry(entry) => {
                self.created(node, dir, name, &entry);
                Ok(())
            }
            Reply::Error(error) => Err(error),
            other => panic!("mkdir answered {other:?}"),
        };
        ("mkdir", expected, found)
    }

    fn unlink(&mut self, node: usize, dir: u64, name: &[u8]) -> Outcome {
        let target = self.has(dir, name);
        let expected = match target {
            None => Err(FsError::NotFound),
            Some(ino) if self.model.files[&ino].kind == FileKind::Directory => Err(FsError::IsDirectory),
            Some(_) => Ok(()),
        };
        let found = self.done(node, Request::Unlink { parent: Ino(dir), name: name.into(), bound: None });
        if found.is_ok()
            && let Some(ino) = target
        {
            self.cluster.kernel(node).changed(Ino(dir), name);
            self.cluster.kernel(node).attrs.remove(&Ino(ino));
            self.inode(dir).entries.remove(name);
            self.drop_link(ino);
        }
        ("unlink", expected, found)
    }

    fn drop_link(&mut self, ino: u64) {
        let inode = self.inode(ino);
        inode.nlink = if inode.kind == FileKind::Directory { 0 } else { inode.nlink - 1 };
        self.bury(ino);
    }

    /// Removes an inode that has neither names nor handles.
    fn bury(&mut self, ino: u64) {
        let is_open = self.model.opens.iter().any(|o| o.ino == ino);
        if self.model.files.get(&ino).is_some_and(|i| i.nlink == 0) && !is_open {
            self.model.files.remove(&ino);
            for node in 0..self.config.cluster.nodes {
                self.cluster.kernel(node).attrs.remove(&Ino(ino));
                self.cluster.kernel(node).pages.remove(&Ino(ino));
            }
        }
    }

    fn rmdir(&mut self, node: usize, dir: u64, name: &[u8]) -> Outcome {
        let target = self.has(dir, name);
        let expected = match target {
            None => Err(FsError::NotFound),
            Some(ino) if self.model.files[&ino].kind != FileKind::Directory => Err(FsError::NotDirectory),
            Some(ino) if !self.model.files[&ino].entries.is_empty() => Err(FsError::NotEmpty),
            Some(_) => Ok(()),
        };
        let found = self.done(node, Request::Rmdir { parent: Ino(dir), name: name.into(), bound: None });
        if found.is_ok()
            && let Some(ino) = target
        {
            self.cluster.kernel(node).removed_directory(Ino(dir), name);
            self.inode(dir).entries.remove(name);
            self.inode(dir).nlink -= 1;
            self.drop_link(ino);
        }
        ("rmdir", expected, found)
    }

    fn is_below(&self, ino: u64, above: u64) -> bool {
        let mut at = ino;
        loop {
            if at == above {
                return true;
            }
            let parent = self.model.files.iter().find(|(_, i)| i.entries.values().any(|c| *c == at));
            match parent {
                Some((parent, _)) if at != 1 => at = *parent,
                _ => return false,
            }
        }
    }

    fn rename(&mut self, node: usize, dir: u64, name: &[u8]) -> Outcome {
        let to = if self.random(2) == 0 { dir } else { self.any_directory() };
        let new_name = self.any_name();
        self.reach(node, to);
        // The kernel resolves both names first, and refuses what it can see.
        let (source, target) = (self.has(dir, name), self.has(to, &new_name));
        let kind = |ino: u64| self.model.files[&ino].kind;
        let expected = match (source, target) {
            (None, _) => Err(FsError::NotFound),
            (Some(a), _) if kind(a) == FileKind::Directory && self.is_below(to, a) => Err(FsError::Invalid),
            (Some(a), Some(b)) if a == b => Ok(()),
            (Some(a), Some(b)) => match (kind(a), kind(b)) {
                (FileKind::Directory, FileKind::Directory) if !self.model.files[&b].entries.is_empty() => {
                    Err(FsError::NotEmpty)
                }
                (FileKind::Directory, FileKind::Directory) => Ok(()),
                (FileKind::Directory, _) => Err(FsError::NotDirectory),
                (_, FileKind::Directory) => Err(FsError::IsDirectory),
                (_, _) => Ok(()),
            },
            (Some(_), None) => Ok(()),
        };
        let request = Request::Rename {
            parent: Ino(dir),
            name: name.into(),
            new_parent: Ino(to),
            new_name: new_name.clone().into(),
            mode: RenameMode::Replace,
            bound: None,
            whiteout: None,
        };
        let mut found = self.done(node, request);
        // Which of two refusals comes first is the kernel's affair: it checks ancestors before it asks.
        if expected.is_err() && found.is_err() {
            found = expected;
        }
        if found.is_ok() && source != target {
            let (a, b) = (source.expect("renamed"), target);
            let kernel = self.cluster.kernel(node);
            kernel.renamed((Ino(dir), name), (Ino(to), &new_name));
            kernel.attrs.remove(&Ino(a));
            let is_dir = self.model.files[&a].kind == FileKind::Directory;
            self.inode(dir).entries.remove(name);
            if is_dir {
                self.inode(dir).nlink -= 1;
                self.inode(to).nlink += 1;
            }
            self.inode(to).entries.insert(new_name, a);
            if let Some(b) = b {
                if self.model.files[&b].kind == FileKind::Directory {
                    self.inode(to).nlink -= 1;
                }
                self.cluster.kernel(node).attrs.remove(&Ino(b));
                self.drop_link(b);
            }
        }
        ("rename", expected, found)
    }

    fn link(&mut self, node: usize, dir: u64, name: &[u8]) -> Outcome {
        let from = self.any_directory();
        let old = self.any_name();
        self.reach(node, from);
        let Ok(ino) = self.lookup(node, from, &old) else {
            let expected = if self.has(from, &old).is_none() { Err(FsError::NotFound) } else { Ok(()) };
            return ("link", expected, Err(FsError::NotFound));
        };
        let expected = match (self.model.files[&ino].kind, self.has(dir, name)) {
            (FileKind::Directory, _) => Err(FsError::NotPermitted),
            (_, Some(_)) => Err(FsError::Exists),
            (_, None) => Ok(()),
        };
        let request = Request::Link { ino: Ino(ino), parent: Ino(dir), name: name.into() };
        let mut found = match self.cluster.call(node, request) {
            Reply::Entry(entry) => {
                let kernel = self.cluster.kernel(node);
                kernel.changed(Ino(dir), name);
                kernel.entry(Ino(dir), name, &entry);
                self.inode(ino).nlink += 1;
                self.inode(dir).entries.insert(name.to_vec(), ino);
                Ok(())
            }
            Reply::Error(error) => Err(error),
            other => panic!("link answered {other:?}"),
        };
        if expected.is_err() && found.is_err() {
            found = expected;
        }
        ("link", expected, found)
    }

    fn chmod(&mut self, node: usize, dir: u64, name: &[u8]) -> Outcome {
        let Ok(ino) = self.lookup(node, dir, name) else {
            let expected = if self.has(dir, name).is_none() { Err(FsError::NotFound) } else { Ok(()) };
            return ("chmod", expected, Err(FsError::NotFound));
        };
        let mode = 0o600 + self.random(64) as u32;
        let set = AttrSet { mode: Some(mode), ..AttrSet::default() };
        self.set_attr(node, ino, set, None);
        self.inode(ino).mode = mode;
        ("chmod", Ok(()), Ok(()))
    }

    fn set_attr(&mut self, node: usize, ino: u64, set: AttrSet, size: Option<u64>) {
        match self.cluster.call(node, Request::SetAttr { ino: Ino(ino), set, size }) {
            Reply::Attr(attr, keep) => self.cluster.kernel(node).attr(&attr, keep),
            other => panic!("{}: setattr answered {other:?}", self.last),
        }
    }

    fn truncate(&mut self, node: usize, dir: u64, name: &[u8]) -> Outcome {
        let Ok(ino) = self.lookup(node, dir, name) else {
            let expected = if self.has(dir, name).is_none() { Err(FsError::NotFound) } else { Ok(()) };
            return ("truncate", expected, Err(FsError::NotFound));
        };
        if self.model.files[&ino].kind != FileKind::File {
            return ("truncate", Ok(()), Ok(()));
        }
        let size = self.random(12_000);
        self.set_attr(node, ino, AttrSet::default(), Some(size as u64));
        self.inode(ino).data.resize(size, 0);
        if let Some(pages) = self.cluster.kernel(node).pages.get_mut(&Ino(ino)) {
            pages.resize(size, 0);
        }
        ("truncate", Ok(()), Ok(()))
    }

    fn open(&mut self, node: usize, dir: u64, name: &[u8]) -> Outcome {
        let Ok(ino) = self.lookup(node, dir, name) else {
            let expected = if self.has(dir, name).is_none() { Err(FsError::NotFound) } else { Ok(()) };
            return ("open", expected, Err(FsError::NotFound));
        };
        if self.model.files[&ino].kind != FileKind::File || self.model.opens.len() > 8 {
            return ("open", Ok(()), Ok(()));
        }
        let write = self.random(2) == 0;
        match self.cluster.call(
            node,
            Request::Open { ino: Ino(ino), open: OpenMode { write, map: write, ..OpenMode::default() } },
        ) {
            Reply::Opened(opened) => {
                self.model.opens.push(OpenFile { node, ino, handle: opened.handle, write });
                ("open", Ok(()), Ok(()))
            }
            Reply::Error(error) => ("open", Ok(()), Err(error)),
            other => panic!("open answered {other:?}"),
        }
    }

    fn write(&mut self, _node: usize) -> Outcome {
        let writable: Vec<OpenFile> = self.model.opens.iter().copied().filter(|o| o.write).collect();
        if writable.is_empty() {
            return ("write", Ok(()), Ok(()));
        }
        let open = writable[self.random(writable.len())];
        self.write_to(open);
        ("write", Ok(()), Ok(()))
    }

    fn write_to(&mut self, open: OpenFile) {
        let offset = self.random(9000);
        let most = if self.random(4) == 0 { 200_000 } else { 3000 };
        let len = 1 + self.random(most);
        let byte = self.random(256) as u8;
        let data = vec![byte; len];
        let request = Request::Write {
            ino: Ino(open.ino),
            offset: offset as u64,
            data: WriteData(data.clone().into()),
            append: false,
            direct: false,
            kill_privileges: None,
        };
        match self.cluster.call(open.node, request) {
            Reply::Written { len: written, .. } => assert_eq!(written as usize, len),
            other => panic!("{}: write answered {other:?}", self.last),
        }
        let inode = self.inode(open.ino);
        if inode.data.len() < offset + len {
            inode.data.resize(offset + len, 0);
        }
        inode.data[offset..offset + len].copy_from_slice(&data);
        let kernel = self.cluster.kernel(open.node);
        kernel.attrs.remove(&Ino(open.ino));
        // The kernel keeps pages that it has right by itself.
        kernel.pages.remove(&Ino(open.ino));
    }

    fn close(&mut self, _node: usize) -> Outcome {
        if !self.model.opens.is_empty() {
            let index = self.random(self.model.opens.len());
            self.close_file(index);
        }
        ("close", Ok(()), Ok(()))
    }

    fn close_file(&mut self, index: usize) {
        let open = self.model.opens.remove(index);
        let request = Request::Release { ino: Ino(open.ino), handle: open.handle, flock: None };
        let _ = self.done(open.node, request);
        self.bury(open.ino);
    }

    fn read(&mut self, node: usize, dir: u64, name: &[u8], step: usize) -> Outcome {
        let Ok(ino) = self.lookup(node, dir, name) else {
            let expected = if self.has(dir, name).is_none() { Err(FsError::NotFound) } else { Ok(()) };
            return ("read", expected, Err(FsError::NotFound));
        };
        if self.model.files[&ino].kind != FileKind::File {
            return ("read", Ok(()), Ok(()));
        }
        let opened = match self.cluster.call(node, Request::Open { ino: Ino(ino), open: OpenMode::default() })
        {
            Reply::Opened(opened) => opened,
            other => panic!("{}: open answered {other:?}", self.last),
        };
        let data = self.read_all(node, ino);
        if data != self.model.files[&ino].data {
            let expected = &self.model.files[&ino].data;
            let at = data.iter().zip(expected).position(|(a, b)| a != b);
            let what = format!(
                "read of {ino}: {} bytes, expected {}, first difference at {at:?}",
                data.len(),
                expected.len()
            );
            self.fault(step, &what);
        }
        self.cluster.kernel(node).pages.insert(Ino(ino), data);
        let _ = self.done(node, Request::Release { ino: Ino(ino), handle: opened.handle, flock: None });
        match self.cluster.call(node, Request::GetAttr { ino: Ino(ino) }) {
            Reply::Attr(attr, keep) => {
                self.check_attr(step, &attr);
                self.cluster.kernel(node).attr(&attr, keep);
            }
            other => panic!("getattr answered {other:?}"),
        }
        ("read", Ok(()), Ok(()))
    }

    fn read_all(&mut self, node: usize, ino: u64) -> Vec<u8> {
        match self.cluster.call(
            node,
            Request::Read { ino: Ino(ino), offset: 0, len: 1 << 20, noatime: false, direct: false },
        ) {
            Reply::Data(data) => data,
            Reply::ReadJob(job) => {
                let mut data = vec![0; job.len];
                for (at, extent) in &job.parts {
                    let range = extent.range();
                    let out = &mut data[*at..*at + extent.len() as usize];
                    chunk::read_extent(self.cluster.store(), Ino(ino), extent, range, out)
                        .expect("stored bytes are read");
                }
                for (at, bytes) in &job.overlay {
                    data[*at..*at + bytes.len()].copy_from_slice(bytes);
                }
                let clock = self.cluster.clock();
                self.cluster.core(node).read_done(clock, job.pin);
                data
            }
            other => panic!("{}: read answered {other:?}", self.last),
        }
    }

    fn list(&mut self, node: usize, dir: u64) -> Outcome {
        let sink = Box::new(Listing::default());
        let reply = self
            .cluster
            .call(node, Request::ReadDir { ino: Ino(dir), after: 0, plus: false, noatime: false, sink });
        let Reply::Dir(sink) = reply else { panic!("readdir answered {reply:?}") };
        let listing = sink.into_any().downcast::<Listing>().expect("the sink is ours");
        let mut found: Vec<(Vec<u8>, u64)> =
            listing.0.into_iter().filter(|(n, _)| n != b"." && n != b"..").collect();
        found.sort();
        let expected: Vec<(Vec<u8>, u64)> =
            self.model.files[&dir].entries.iter().map(|(n, i)| (n.clone(), *i)).collect();
        if found != expected {
            panic!(
                "seed {}: {}: listing {found:?}, expected {expected:?}",
                self.config.cluster.seed, self.last
            );
        }
        ("readdir", Ok(()), Ok(()))
    }

    fn done(&mut self, node: usize, request: Request) -> Result<(), FsError> {
        match self.cluster.call(node, request) {
            Reply::Done => Ok(()),
            Reply::Error(error) => Err(error),
            other => panic!("{}: answered {other:?}", self.last),
        }
    }

    fn check_attr(&self, step: usize, attr: &vfs::Attr) {
        let Some(inode) = self.model.files.get(&attr.ino.0) else { return };
        let is_right = match inode.kind {
            FileKind::Directory => attr.nlink == inode.nlink,
            _ => attr.size == inode.data.len() as u64 && attr.nlink == inode.nlink,
        };
        let mode_right = inode.kind == FileKind::Directory || attr.mode == inode.mode;
        if !is_right || !mode_right {
            let what = format!(
                "attributes {attr:?} of {:?} mode {:o} nlink {} size {}",
                inode.kind,
                inode.mode,
                inode.nlink,
                inode.data.len()
            );
            self.fault(step, &what);
        }
    }

    /// Whatever a kernel may show without asking must be true.
    fn check_kernels(&mut self, step: usize) {
        for node in 0..self.config.cluster.nodes {
            let names = self.cluster.kernel(node).names.clone();
            for ((dir, name), ino) in names {
                let Some(inode) = self.model.files.get(&dir.0) else { continue };
                let truth = inode.entries.get(&name).copied();
                if truth != ino.map(|i| i.0) {
                    let name = String::from_utf8_lossy(&name).into_owned();
                    self.fault(
                        step,
                        &format!("kernel of node {node} has {dir}/{name} = {ino:?}, true is {truth:?}"),
                    );
                }
            }
            let attrs: Vec<_> = self.cluster.kernel(node).attrs.values().copied().collect();
            for attr in attrs {
                self.check_attr(step, &attr);
            }
            let pages = self.cluster.kernel(node).pages.clone();
            for (ino, data) in pages {
                let Some(inode) = self.model.files.get(&ino.0) else { continue };
                if inode.data != data {
                    self.fault(step, &format!("kernel of node {node} has old pages of {ino}"));
                }
            }
        }
    }

    /// Everything, from every node.
    fn check_everything(&mut self) {
        while !self.model.opens.is_empty() {
            self.close_file(0);
        }
        for node in 0..self.config.cluster.nodes {
            for dir in self.directories() {
                self.reach(node, dir);
                self.last = format!("final listing of {dir} on node {node}");
                let _ = self.list(node, dir);
                let names: Vec<Vec<u8>> = self.model.files[&dir].entries.keys().cloned().collect();
                for name in names {
                    self.last =
                        format!("final read of {dir}/{} on node {node}", String::from_utf8_lossy(&name));
                    let _ = self.read(node, dir, &name, usize::MAX);
                }
            }
        }
    }
}

type Outcome = (&'static str, Result<(), FsError>, Result<(), FsError>);

#[derive(Debug, Default)]
struct Listing(Vec<(Vec<u8>, u64)>);

impl vfs::DirSink for Listing {
    fn push(&mut self, name: &[u8], ino: Ino, _: FileKind, _: u64, _: Option<&Entry>) -> bool {
        self.0.push((name.to_vec(), ino.0));
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}
