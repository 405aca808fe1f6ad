//! A process of a world: one request after the other, each of them an operation of its history.

use std::collections::BTreeMap;

use meta::ops::{AttrSet, RenameMode};
use meta::{FileKind, FsError};
use types::{Ino, Micros};
use vfs::{HandleId, OpenMode, Reply, Request, RequestId, Taken, WriteData};

use super::history::{Call, Facts, Outcome};
use super::setup::{Listing, Places, spec};
use super::worlds::Step;
use crate::cluster::Cluster;
use crate::kernel::second_try;

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    pub node: usize,
    script: Vec<Step>,
    at: usize,
    file: Option<u64>,
    open: Vec<(u64, HandleId)>,
    /// The request on its way, which operation of the history it is, and when it was made.
    pub waiting: Option<(RequestId, usize, Micros)>,
    /// What its kernel asks once more should that be refused as stale.
    second: Option<Request>,
    pub is_dead: bool,
}

/// How an operation begins.
pub(crate) enum Begin {
    /// Nothing is to be done.
    Skipped,
    /// The kernel answers it.
    Answered(Call, Outcome),
    /// The node is asked.
    Asked(Call, Request),
}

impl Process {
    pub fn new(node: usize, script: Vec<Step>) -> Self {
        Self {
            node,
            script,
            at: 0,
            file: None,
            open: Vec::new(),
            waiting: None,
            second: None,
            is_dead: false,
        }
    }

    /// Its kernel asks this.
    pub fn note_asked(&mut self, request: &Request) {
        self.second = second_try(request);
    }

    /// What its kernel asks now that the first was refused as stale.
    pub fn take_second(&mut self) -> Option<Request> {
        self.second.take()
    }

    pub fn is_done(&self) -> bool {
        self.is_dead || self.waiting.is_none() && self.at == self.script.len()
    }

    /// How many steps it has begun.
    pub fn steps(&self) -> usize {
        self.at
    }

    /// Files it has open.
    pub fn opens(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.iter().map(|(ino, _)| *ino)
    }

    /// Whether it can go on now: its kernel may hold the directory locked.
    pub fn may_go(&self, cluster: &mut Cluster, places: &Places) -> bool {
        if self.is_dead || self.waiting.is_some() || self.at == self.script.len() || !cluster.goes(self.node)
        {
            return false;
        }
        match self.begin(cluster, places) {
            Begin::Asked(_, request) => cluster.may_submit(self.node, &request),
            Begin::Skipped | Begin::Answered(..) => true,
        }
    }

    /// The next step, as its kernel makes it.
    pub fn next(&mut self, cluster: &mut Cluster, places: &Places) -> Begin {
        let begin = self.begin(cluster, places);
        self.at += 1;
        begin
    }

    fn begin(&self, cluster: &mut Cluster, places: &Places) -> Begin {
        let kernel = cluster.kernel(self.node);
        match self.script[self.at] {
            Step::Lookup(dir, name) => {
                let (dir, name) = (places.dir(dir), name.as_bytes());
                let call = Call::Lookup { dir, name: name.to_vec() };
                match kernel.names.get(&(Ino(dir), name.to_vec())) {
                    Some(found) => Begin::Answered(call, Outcome::Found(found.map(|ino| (ino.0, None)))),
                    None => Begin::Asked(call, Request::Lookup { parent: Ino(dir), name: name.into() }),
                }
            }
            Step::List(dir) => {
                let ino = places.dir(dir);
                let sink = Box::new(Listing::default());
                let request = Request::ReadDir { ino: Ino(ino), after: 0, plus: false, noatime: false, sink };
                Begin::Asked(Call::List { dir: ino }, request)
            }
            step @ (Step::Create(..)
            | Step::Mkdir(..)
            | Step::Unlink(..)
            | Step::Rmdir(..)
            | Step::Rename(..)) => begin_change(step, places),
            step => match self.file {
                Some(ino) => self.begin_on_file(step, ino, places, kernel),
                None => Begin::Skipped,
            },
        }
    }

    /// A step about the file that was looked up or made.
    fn begin_on_file(&self, step: Step, ino: u64, places: &Places, kernel: &crate::Kernel) -> Begin {
        let file = Ino(ino);
        let (call, request) = match step {
            Step::Link(dir, name) => {
                let dir = places.dir(dir);
                let name = name.as_bytes();
                let request = Request::Link { ino: file, parent: Ino(dir), name: name.into() };
                (Call::Link { ino, dir, name: name.to_vec() }, request)
            }
            Step::Stat => match kernel.attrs.get(&file) {
                Some(attr) => return Begin::Answered(Call::Stat { ino }, Outcome::Facts(Facts::of(attr))),
                None => (Call::Stat { ino }, Request::GetAttr { ino: file }),
            },
            Step::Chmod(mode) => {
                let set = AttrSet { mode: Some(mode), ..AttrSet::default() };
                (Call::Chmod { ino, mode }, Request::SetAttr { ino: file, set, size: None })
            }
            Step::Truncate(size) => {
                let set = AttrSet::default();
                (Call::Truncate { ino, size }, Request::SetAttr { ino: file, set, size: Some(size) })
            }
            Step::OpenToRead | Step::OpenToWrite => {
                let open = OpenMode { write: step == Step::OpenToWrite, ..OpenMode::default() };
                (Call::Open { ino }, Request::Open { ino: file, open })
            }
            step => return self.begin_on_open(step, ino, kernel),
        };
        Begin::Asked(call, request)
    }

    /// A step about a file that is open.
    fn begin_on_open(&self, step: Step, ino: u64, kernel: &crate::Kernel) -> Begin {
        let file = Ino(ino);
        let handle = self.open.iter().find(|(open, _)| *open == ino).map(|(_, handle)| *handle);
        let Some(handle) = handle else { return Begin::Skipped };
        let (call, request) = match step {
            Step::Write(offset, text) => {
                let data = text.as_bytes().to_vec();
                let request = Request::Write {
                    ino: file,
                    offset,
                    data: WriteData(data.clone().into()),
                    append: false,
                    direct: false,
                    kill_privileges: None,
                };
                (Call::Write { ino, offset: Some(offset), data }, request)
            }
            Step::Append(text) => {
                let data = text.as_bytes().to_vec();
                let bytes = WriteData(data.clone().into());
                let request = Request::Write {
                    ino: file,
                    offset: 0,
                    data: bytes,
                    append: true,
                    direct: false,
                    kill_privileges: None,
                };
                (Call::Write { ino, offset: None, data }, request)
            }
            Step::Read => match kernel.pages.get(&file) {
                Some(pages) => return Begin::Answered(Call::Read { ino }, Outcome::Data(pages.clone())),
                None => (
                    Call::Read { ino },
                    Request::Read { ino: file, offset: 0, len: 1 << 16, noatime: true, direct: false },
                ),
            },
            Step::Fsync => (Call::Fsync { ino }, Request::Fsync { ino: file }),
            Step::Close => (Call::Close { ino }, Request::Release { ino: file, handle, flock: None }),
            Step::Create(..)
            | Step::Mkdir(..)
            | Step::Unlink(..)
            | Step::Rmdir(..)
            | Step::Rename(..)
            | Step::Link(..)
            | Step::Lookup(..)
            | Step::List(_)
            | Step::Stat
            | Step::Chmod(_)
            | Step::Truncate(_)
            | Step::OpenToRead
            | Step::OpenToWrite => return Begin::Skipped,
        };
        Begin::Asked(call, request)
    }

    /// Takes in what it was told: what that means to its kernel, and to its history.
    pub fn finish(&mut self, cluster: &mut Cluster, call: &Call, reply: Reply) -> Outcome {
        if let Reply::ReadJob(job) = reply {
            return self.finish_read(cluster, job);
        }
        let kernel = cluster.kernel(self.node);
        match (call, reply) {
            // A directory that is gone has no names.
            (Call::Lookup { .. }, Reply::Error(FsError::Stale | FsError::NotFound)) => Outcome::Found(None),
            (_, Reply::Error(FsError::Stale)) => Outcome::Refused(FsError::NotFound),
            (_, Reply::Error(error)) => Outcome::Refused(error),
            (Call::Lookup { dir, name }, Reply::Entry(entry)) => {
                kernel.entry(Ino(*dir), name, &entry);
                self.file = Some(entry.attr.ino.0);
                Outcome::Found(Some((entry.attr.ino.0, Some(Facts::of(&entry.attr)))))
            }
            (Call::Lookup { dir, name }, Reply::NoEntry(keep)) => {
                kernel.no_entry(Ino(*dir), name, keep);
                Outcome::Found(None)
            }
            (Call::Create { dir, name }, Reply::Created(entry, opened)) => {
                kernel.changed(Ino(*dir), name);
                kernel.entry(Ino(*dir), name, &entry);
                self.file = Some(entry.attr.ino.0);
                self.open.push((entry.attr.ino.0, opened.handle));
                Outcome::Made(entry.attr.ino.0)
            }
            (Call::Mkdir { dir, name } | Call::Link { dir, name, .. }, Reply::Entry(entry)) => {
                kernel.changed(Ino(*dir), name);
                kernel.entry(Ino(*dir), name, &entry);
                match call {
                    Call::Link { .. } => Outcome::Done,
                    _ => Outcome::Made(entry.attr.ino.0),
                }
            }
            (Call::Unlink { dir, name }, Reply::Done) => {
                kernel.changed(Ino(*dir), name);
                Outcome::Done
            }
            (Call::Rmdir { dir, name }, Reply::Done) => {
                kernel.removed_directory(Ino(*dir), name);
                Outcome::Done
            }
            (Call::Rename { dir, name, to, new_name }, Reply::Done) => {
                kernel.renamed((Ino(*dir), name), (Ino(*to), new_name));
                Outcome::Done
            }
            (call, reply) => self.finish_on_file(cluster, call, reply),
        }
    }

    fn finish_on_file(&mut self, cluster: &mut Cluster, call: &Call, reply: Reply) -> Outcome {
        let kernel = cluster.kernel(self.node);
        match (call, reply) {
            (Call::Stat { .. }, Reply::Attr(attr, keep)) => {
                kernel.attr(&attr, keep);
                Outcome::Facts(Facts::of(&attr))
            }
            // What comes with the answer is for the kernel: the caller is not told.
            (Call::Chmod { .. }, Reply::Attr(attr, keep)) => {
                kernel.attr(&attr, keep);
                Outcome::Done
            }
            (Call::Truncate { ino, size }, Reply::Attr(attr, keep)) => {
                if let Some(pages) = kernel.pages.get_mut(&Ino(*ino)) {
                    pages.resize(*size as usize, 0);
                }
                kernel.attr(&attr, keep);
                Outcome::Done
            }
            (Call::Open { ino }, Reply::Opened(opened)) => {
                self.open.push((*ino, opened.handle));
                Outcome::Done
            }
            (Call::Write { ino, data, .. }, Reply::Written { len, .. }) if len as usize == data.len() => {
                kernel.attrs.remove(&Ino(*ino));
                kernel.pages.remove(&Ino(*ino));
                Outcome::Done
            }
            (Call::Read { ino }, Reply::Data(data)) => {
                kernel.pages.insert(Ino(*ino), data.clone());
                Outcome::Data(data)
            }
            (Call::Close { ino }, Reply::Done) => {
                if let Some(at) = self.open.iter().position(|(open, _)| open == ino) {
                    self.open.remove(at);
                }
                Outcome::Done
            }
            (Call::Fsync { .. }, Reply::Done) => Outcome::Done,
            (Call::List { .. }, Reply::Dir(sink)) => {
                let listing = sink.into_any().downcast::<Listing>().expect("the sink is ours");
                let names = listing.0.into_iter().filter(|(name, _)| name != b"." && name != b"..");
                Outcome::Names(names.collect::<BTreeMap<_, _>>())
            }
            (call, other) => panic!("{call:?} answered {other:?}"),
        }
    }

    fn finish_read(&mut self, cluster: &mut Cluster, job: vfs::ReadJob) -> Outcome {
        let mut data = vec![0; job.len];
        for (at, extent) in &job.parts {
            let out = &mut data[*at..*at + extent.len() as usize];
            chunk::read_extent(cluster.store(), job.ino, extent, extent.range(), out)
                .expect("stored bytes are read");
        }
        for (at, bytes) in &job.overlay {
            data[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        let clock = cluster.clock();
        cluster.core(self.node).read_done(clock, job.pin);
        cluster.kernel(self.node).pages.insert(job.ino, data.clone());
        Outcome::Data(data)
    }

    /// What a kernel's own answer means to it.
    pub fn note(&mut self, outcome: &Outcome) {
        if let Outcome::Found(Some((ino, _))) = outcome {
            self.file = Some(*ino);
        }
    }
}

/// A step that changes names.
fn begin_change(step: Step, places: &Places) -> Begin {
    let bytes = |name: &str| name.as_bytes().to_vec();
    match step {
        Step::Create(dir, name) => {
            let dir = places.dir(dir);
            let open = OpenMode { write: true, map: true, ..OpenMode::default() };
            let (parent, spec) = (Ino(dir), spec(FileKind::File));
            let request =
                Request::Create { parent, name: name.as_bytes().into(), spec, open, taken: Taken::Refuse };
            Begin::Asked(Call::Create { dir, name: bytes(name) }, request)
        }
        Step::Mkdir(dir, name) => {
            let dir = places.dir(dir);
            let spec = spec(FileKind::Directory);
            let request = Request::Make { parent: Ino(dir), name: name.as_bytes().into(), spec };
            Begin::Asked(Call::Mkdir { dir, name: bytes(name) }, request)
        }
        Step::Unlink(dir, name) => {
            let dir = places.dir(dir);
            let request = Request::Unlink { parent: Ino(dir), name: name.as_bytes().into(), bound: None };
            Begin::Asked(Call::Unlink { dir, name: bytes(name) }, request)
        }
        Step::Rmdir(dir, name) => {
            let dir = places.dir(dir);
            let request = Request::Rmdir { parent: Ino(dir), name: name.as_bytes().into(), bound: None };
            Begin::Asked(Call::Rmdir { dir, name: bytes(name) }, request)
        }
        Step::Rename(dir, name, to, new_name) => {
            let (dir, to) = (places.dir(dir), places.dir(to));
            let request = Request::Rename {
                parent: Ino(dir),
                name: name.as_bytes().into(),
                new_parent: Ino(to),
                new_name: new_name.as_bytes().into(),
                mode: RenameMode::Replace,
                bound: None,
                whiteout: None,
            };
            Begin::Asked(Call::Rename { dir, name: bytes(name), to, new_name: bytes(new_name) }, request)
        }
        Step::Link(..)
        | Step::Lookup(..)
        | Step::List(_)
        | Step::Stat
        | Step::Chmod(_)
        | Step::Truncate(_)
        | Step::OpenToRead
        | Step::OpenToWrite
        | Step::Write(..)
        | Step::Append(_)
        | Step::Read
        | Step::Fsync
        | Step::Close => Begin::Skipped,
    }
}
