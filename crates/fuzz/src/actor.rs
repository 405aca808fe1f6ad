//! A process that goes through a fixed list of requests, whatever it is answered.

use std::collections::BTreeMap;

use meta::FileKind;
use meta::ops::{AttrSet, RenameMode, XattrMode};
use types::Ino;
use vfs::{AllocateMode, DirSink, Entry, HandleId, MakeSpec, OpenMode, Reply, Request, Taken, WriteData};
use wire::{BYTE_MAX, ByteLock, LockKind, LockOwner};

/// A request, with paths of at most two names in place of numbers.
#[derive(Clone, Copy, Debug)]
enum Act {
    Lookup(&'static str),
    List(&'static str),
    Mkdir(&'static str),
    Rmdir(&'static str),
    Create(&'static str),
    Symlink(&'static str),
    ReadLink(&'static str),
    Tmpfile(&'static str),
    Open(&'static str),
    Write(&'static str, u64, usize),
    Append(&'static str, usize),
    Read(&'static str, u64, u32),
    Fsync(&'static str),
    Truncate(&'static str, u64),
    Punch(&'static str),
    Seek(&'static str),
    Close(&'static str),
    Link(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Unlink(&'static str),
    Chmod(&'static str),
    Stat(&'static str),
    SetXattr(&'static str, usize),
    GetXattr(&'static str),
    Lock(&'static str),
    Unlock(&'static str),
    TestLock(&'static str),
    Parent(&'static str),
    StatFs,
}

use Act::*;

/// Everything a core can be asked for, in directories that others use too.
const PROGRAM: &[Act] = &[
    Lookup("d"),
    Mkdir("d"),
    Lookup("d"),
    List("d"),
    Create("d/a"),
    Write("d/a", 0, 300),
    Fsync("d/a"),
    Create("d/big"),
    Write("d/big", 0, 200_000),
    Write("d/big", 700_000, 5000),
    Fsync("d/big"),
    Read("d/big", 100_000, 4096),
    Link("d/a", "d/b"),
    Write("d/a", 300, 8000),
    Stat("d/b"),
    Rename("d/b", "c"),
    Lookup("c"),
    SetXattr("c", 100),
    SetXattr("d/big", 5000),
    GetXattr("d/big"),
    Lock("d/a"),
    TestLock("d/a"),
    Close("d/big"),
    Open("d/big"),
    Truncate("d/big", 50_000),
    Punch("d/big"),
    Seek("d/big"),
    Unlink("c"),
    Append("d/a", 10),
    Unlock("d/a"),
    Close("d/a"),
    Symlink("d/s"),
    ReadLink("d/s"),
    Mkdir("d/sub"),
    Create("d/sub/x"),
    Rename("d/sub", "sub"),
    List("sub"),
    Parent("sub"),
    Chmod("sub"),
    Tmpfile("d"),
    Unlink("d/big"),
    Read("d/big", 0, 100),
    Close("d/big"),
    Lookup("d/gone"),
    Rmdir("sub"),
    StatFs,
    Fsync("d"),
];

/// The process.
#[derive(Debug, Default)]
pub struct Actor {
    at: usize,
    inos: BTreeMap<&'static str, Ino>,
    handles: BTreeMap<&'static str, HandleId>,
    asked: &'static str,
}

impl Actor {
    /// The next request; `None` at the end.
    pub fn next_request(&mut self) -> Option<Request> {
        while let Some(act) = PROGRAM.get(self.at) {
            self.at += 1;
            if let Some(request) = self.request(*act) {
                return Some(request);
            }
        }
        None
    }

    /// Takes in what the last request was answered.
    pub fn answered(&mut self, reply: &Reply) {
        match reply {
            Reply::Entry(entry) => drop(self.inos.insert(self.asked, entry.attr.ino)),
            Reply::Created(entry, opened) => {
                self.inos.insert(self.asked, entry.attr.ino);
                self.handles.insert(self.asked, opened.handle);
            }
            Reply::Opened(opened) => drop(self.handles.insert(self.asked, opened.handle)),
            _ => {}
        }
    }

    /// `None` if there is no number for a name of it.
    fn request(&mut self, act: Act) -> Option<Request> {
        let request = match self.of_names(act)? {
            Some(request) => request,
            None => self.of_inodes(act)?,
        };
        self.asked = match act {
            Rename(_, path) | Link(_, path) => path,
            Lookup(path) | Mkdir(path) | Create(path) | Symlink(path) | Open(path) => path,
            // Answered by an entry that is not the path's.
            _ => "-",
        };
        Some(request)
    }

    /// Requests with a name in them; `Some(None)` for others.
    fn of_names(&self, act: Act) -> Option<Option<Request>> {
        let parent = |path: &'static str| -> Option<(Ino, Box<[u8]>)> {
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
            Some((self.ino(dir)?, name.as_bytes().into()))
        };
        let make = |path, kind| {
            let (parent, name) = parent(path)?;
            Some(Request::Make { parent, name, spec: spec(kind) })
        };
        Some(Some(match act {
            Lookup(path) => {
                let (parent, name) = parent(path)?;
                Request::Lookup { parent, name }
            }
            Mkdir(path) => make(path, FileKind::Directory)?,
            Symlink(path) => make(path, FileKind::Symlink)?,
            Create(path) => {
                let (parent, name) = parent(path)?;
                Request::Create { parent, name, spec: spec(FileKind::File), open: WRITE, taken: Taken::Meet }
            }
            Link(path, new) => {
                let (parent, name) = parent(new)?;
                Request::Link { ino: self.ino(path)?, parent, name }
            }
            Rename(path, new) => {
                let ((parent, name), (new_parent, new_name)) = (parent(path)?, parent(new)?);
                Request::Rename {
                    parent,
                    name,
                    new_parent,
                    new_name,
                    mode: RenameMode::Replace,
                    bound: None,
                    whiteout: None,
                }
            }
            Unlink(path) => {
                let (parent, name) = parent(path)?;
                Request::Unlink { parent, name, bound: None }
            }
            Rmdir(path) => {
                let (parent, name) = parent(path)?;
                Request::Rmdir { parent, name, bound: None }
            }
            _ => return Some(None),
        }))
    }

    /// All others.
    fn of_inodes(&self, act: Act) -> Option<Request> {
        let ino = |path| self.ino(path);
        Some(match act {
            List(path) => Request::ReadDir {
                ino: ino(path)?,
                after: 0,
                plus: true,
                noatime: false,
                sink: Box::new(Names(0)),
            },
            Tmpfile(path) => Request::TmpFile { parent: ino(path)?, spec: spec(FileKind::File), open: WRITE },
            Open(path) => Request::Open { ino: ino(path)?, open: WRITE },
            Write(path, offset, len) => write(ino(path)?, offset, len, false),
            Append(path, len) => write(ino(path)?, 0, len, true),
            Read(path, offset, len) => {
                Request::Read { ino: ino(path)?, offset, len, noatime: false, direct: false }
            }
            Fsync(path) => Request::Fsync { ino: ino(path)? },
            Truncate(path, size) => {
                Request::SetAttr { ino: ino(path)?, set: AttrSet::default(), size: Some(size) }
            }
            Chmod(path) => {
                let set = AttrSet { mode: Some(0o700), ..AttrSet::default() };
                Request::SetAttr { ino: ino(path)?, set, size: None }
            }
            Punch(path) => {
                let mode = AllocateMode::PunchHole;
                let (ino, handle) = (ino(path)?, vfs::HandleId(0));
                Request::Allocate { ino, offset: 1000, len: 20_000, mode, handle, kill_privileges: None }
            }
            Seek(path) => Request::Seek { ino: ino(path)?, offset: 0, for_hole: true },
            Close(path) => {
                let (ino, handle) = (ino(path)?, *self.handles.get(path)?);
                Request::Release { ino, handle, flock: Some(LockOwner(1)) }
            }
            Stat(path) => Request::GetAttr { ino: ino(path)? },
            ReadLink(path) => Request::ReadLink { ino: ino(path)? },
            SetXattr(path, len) => {
                let (name, value) = (b"user.x"[..].into(), vec![7; len].into());
                Request::SetXattr { ino: ino(path)?, name, value, mode: XattrMode::Any, only_owner: None }
            }
            GetXattr(path) => Request::GetXattr { ino: ino(path)?, name: b"user.x"[..].into() },
            Lock(path) => {
                let handle = self.handles.get(path).copied().unwrap_or(HandleId(0));
                Request::SetLock { lock: lock(ino(path)?), handle, wait: false }
            }
            Unlock(path) => Request::Unlock { lock: lock(ino(path)?) },
            TestLock(path) => Request::TestLock { lock: lock(ino(path)?) },
            Parent(path) => Request::Parent { ino: ino(path)? },
            _ => Request::StatFs,
        })
    }

    fn ino(&self, path: &str) -> Option<Ino> {
        if path.is_empty() { Some(Ino::ROOT) } else { self.inos.get(path).copied() }
    }
}

fn spec(kind: FileKind) -> MakeSpec {
    let target = if kind == FileKind::Symlink { b"to/somewhere"[..].into() } else { Box::default() };
    MakeSpec { kind, mode: 0o755, umask: 0o022, uid: 1, gid: 1, rdev: 0, target }
}

fn write(ino: Ino, offset: u64, len: usize, append: bool) -> Request {
    Request::Write {
        ino,
        offset,
        data: WriteData(vec![7; len].into()),
        append,
        direct: offset % 2 == 1,
        kill_privileges: Some(Vec::new()),
    }
}

fn lock(ino: Ino) -> ByteLock {
    let (owner, pid) = (LockOwner(1), 7);
    ByteLock { ino, kind: LockKind::Posix, owner, pid, exclusive: true, start: 0, end: BYTE_MAX }
}

const WRITE: OpenMode = OpenMode { write: true, map: true, append: false, sync: false };

/// Counts names, and has room for so many.
#[derive(Debug)]
struct Names(usize);

impl DirSink for Names {
    fn push(&mut self, _: &[u8], _: Ino, _: FileKind, _: u64, _: Option<&Entry>) -> bool {
        self.0 += 1;
        self.0 < 1000
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}
