//! The disk as a running system sees it: serves FUSE and writes the log.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuse::{
    Attr, Delivery, DirBuffer, Entry, Errno, FileKind, Forget, Handler, OpenReplyFlags, Opened, Operation,
    Reply, Request, Setattr, Statfs, Timestamp,
};

use super::event::{DataChange, Event, Kind, NameChange, Reach};
use super::replay::Image;
use super::sparse::Sparse;

/// The live disk and its log.
pub(super) struct Server {
    live: Mutex<Live>,
    total_bytes: u64,
}

struct Live {
    inodes: BTreeMap<u64, Inode>,
    next_ino: u64,
    next_cookie: u64,
    events: Vec<Event>,
}

struct Inode {
    attr: Attr,
    target: OsString,
    bytes: Sparse,
    /// Names with the cookies that readdir hands out.
    names: BTreeMap<OsString, (u64, u64)>,
}

type Answer<T> = Result<T, Errno>;

impl Server {
    pub fn new(start: &Image, total_bytes: u64) -> Self {
        let (kinds, names, files) = start.parts();
        let last = kinds.keys().last().copied().unwrap_or(super::ROOT);
        let mut live =
            Live { inodes: BTreeMap::new(), next_ino: last + 1, next_cookie: 1, events: Vec::new() };
        for (ino, kind) in kinds {
            let mut inode = Inode::new(*ino, kind);
            if let Some(bytes) = files.get(ino) {
                inode.bytes = bytes.clone();
            }
            live.inodes.insert(*ino, inode);
        }
        for ((dir, name), ino) in names {
            live.put(*dir, name, Some(*ino));
        }
        Self { live: Mutex::new(live), total_bytes }
    }

    pub fn position(&self) -> usize {
        self.live().events.len()
    }

    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.live().events)
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        // A handler that panicked answered EIO: the test sees that.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn statfs(&self) -> Statfs {
        let blocks = self.total_bytes / BLOCK;
        Statfs {
            blocks,
            blocks_free: blocks / 5 * 4,
            blocks_available: blocks / 5 * 4,
            files: 1 << 20,
            files_free: 1 << 19,
            block_size: BLOCK as u32,
            name_len_max: 255,
            fragment_size: BLOCK as u32,
        }
    }
}

impl Handler for Server {
    fn handle(&self, request: Request<'_>, reply: Reply) {
        let Ok(operation) = request.operation() else {
            reply.malformed();
            return;
        };
        let ino = request.header.nodeid;
        let mut live = self.live();
        match operation {
            Operation::Lookup { name } => entry(reply, live.lookup(ino, name)),
            Operation::Getattr { .. } => attr(reply, live.attr(ino)),
            Operation::Setattr(change) => attr(reply, live.set_attr(ino, &change)),
            Operation::Readlink => match live.inodes.get(&ino) {
                Some(inode) => reply.data(inode.target.as_bytes()),
                None => reply.error(Errno::NOENT),
            },
            Operation::Symlink { name, target } => {
                entry(reply, live.make(ino, name, Kind::Symlink(target.to_owned())))
            }
            Operation::Mknod { name, mode, .. } => entry(reply, live.mknod(ino, name, mode)),
            Operation::Mkdir { name, mode, .. } => {
                entry(reply, live.make(ino, name, Kind::Directory(mode & 0o7777)))
            }
            Operation::Create { name, mode, .. } => match live.make(ino, name, Kind::File(mode & 0o7777)) {
                Ok(entry) => reply.created(&entry, opened()),
                Err(errno) => reply.error(errno),
            },
            Operation::Unlink { name } | Operation::Rmdir { name } => done(reply, live.remove(ino, name)),
            Operation::Rename { name, new_parent, new_name, flags } => {
                done(reply, live.rename((ino, name), (new_parent, new_name), flags))
            }
            Operation::Link { ino: target, new_name } => entry(reply, live.link(target, ino, new_name)),
            Operation::Open { .. } | Operation::Opendir { .. } => reply.opened(opened()),
            Operation::Read { offset, size, .. } => match live.inodes.get(&ino) {
                Some(inode) => reply.data(&inode.bytes.read(offset, size as usize)),
                None => reply.error(Errno::NOENT),
            },
            Operation::Write { offset, data, .. } => {
                match live.change(ino, DataChange::Write(offset, data.into())) {
                    Ok(()) => reply.written(data.len() as u32),
                    Err(errno) => reply.error(errno),
                }
            }
            Operation::Fallocate { offset, len, mode, .. } => {
                done(reply, live.fallocate(ino, offset, len, mode))
            }
            Operation::Lseek { offset, whence, .. } => {
                let bytes = live.inodes.get(&ino).map(|inode| &inode.bytes);
                let found = match whence {
                    SEEK_HOLE => bytes.and_then(|bytes| bytes.hole(offset)),
                    _ => bytes.and_then(|bytes| bytes.data(offset)),
                };
                match found {
                    Some(offset) => reply.lseek(offset),
                    None => reply.error(Errno::NXIO),
                }
            }
            Operation::Fsync { datasync, .. } => {
                live.events.push(Event::Sync(ino, if datasync { Reach::Data } else { Reach::All }));
                reply.ok()
            }
            Operation::Fsyncdir { .. } => {
                live.events.push(Event::SyncDir(ino));
                reply.ok()
            }
            Operation::Readdir { offset, size, .. } => live.read_dir(ino, offset, size, Plus::No, reply),
            Operation::Readdirplus { offset, size, .. } => live.read_dir(ino, offset, size, Plus::Yes, reply),
            Operation::Statfs => reply.statfs(&self.statfs()),
            other => rest(&other, reply),
        };
    }

    /// Nothing here waits.
    fn interrupt(&self, _: u64) {}

    /// Inodes stay: the log needs them in any case.
    fn forget(&self, _: &[Forget]) {}

    fn destroy(&self) {}
}

impl Inode {
    fn new(ino: u64, kind: &Kind) -> Self {
        let (mode, target) = match kind {
            Kind::File(mode) => (S_IFREG | mode, OsString::new()),
            Kind::Directory(mode) => (S_IFDIR | mode, OsString::new()),
            Kind::Symlink(target) => (S_IFLNK | 0o777, target.clone()),
            Kind::Node(mode) => (*mode, OsString::new()),
        };
        let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
        let nlink = if mode & S_IFMT == S_IFDIR { 2 } else { 0 };
        let attr = Attr { ino, mode, nlink, atime: time, mtime: time, ctime: time, ..Attr::default() };
        let attr = Attr { blksize: BLOCK as u32, size: target.len() as u64, ..attr };
        Self { attr, target, bytes: Sparse::default(), names: BTreeMap::new() }
    }

    fn is_dir(&self) -> bool {
        self.attr.mode & S_IFMT == S_IFDIR
    }
}

impl Live {
    fn inode(&mut self, ino: u64) -> Answer<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Errno::NOENT)
    }

    fn attr(&mut self, ino: u64) -> Answer<Attr> {
        let inode = self.inode(ino)?;
        let mut attr = inode.attr;
        if inode.attr.mode & S_IFMT == S_IFREG {
            attr.size = inode.bytes.len();
            attr.blocks = inode.bytes.stored_bytes() / 512;
        }
        Ok(attr)
    }

    fn entry(&mut self, ino: u64) -> Answer<Entry> {
        Ok(Entry { nodeid: ino, generation: 1, entry_ttl: TTL, attr_ttl: TTL, attr: self.attr(ino)? })
    }

    fn find(&self, dir: u64, name: &OsStr) -> Option<u64> {
        self.inodes.get(&dir)?.names.get(name).map(|(ino, _)| *ino)
    }

    fn lookup(&mut self, dir: u64, name: &OsStr) -> Answer<Entry> {
        match self.find(dir, name) {
            Some(ino) => self.entry(ino),
            None => Ok(Entry::negative(TTL)),
        }
    }

    fn set_attr(&mut self, ino: u64, change: &Setattr) -> Answer<Attr> {
        if let Some(size) = change.size {
            self.change(ino, DataChange::SetLen(size))?;
        }
        let attr = &mut self.inode(ino)?.attr;
        if let Some(mode) = change.mode {
            attr.mode = (attr.mode & S_IFMT) | (mode & 0o7777);
        }
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        self.attr(ino)
    }

    fn change(&mut self, ino: u64, change: DataChange) -> Answer<()> {
        change.apply(&mut self.inode(ino)?.bytes);
        self.events.push(Event::Data(ino, change));
        Ok(())
    }

    fn fallocate(&mut self, ino: u64, offset: u64, len: u64, mode: u32) -> Answer<()> {
        let has_len = self.inode(ino)?.bytes.len();
        match mode {
            FALLOC_KEEP_SIZE => Ok(()),
            0 if offset + len <= has_len => Ok(()),
            0 => self.change(ino, DataChange::SetLen(offset + len)),
            FALLOC_PUNCH_HOLE => self.change(ino, DataChange::Zero(offset, len)),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn mknod(&mut self, dir: u64, name: &OsStr, mode: u32) -> Answer<Entry> {
        match mode & S_IFMT {
            S_IFREG => self.make(dir, name, Kind::File(mode & 0o7777)),
            S_IFSOCK => self.make(dir, name, Kind::Node(mode)),
            _ => Err(Errno::PERM),
        }
    }

    fn make(&mut self, dir: u64, name: &OsStr, kind: Kind) -> Answer<Entry> {
        if self.find(dir, name).is_some() {
            return Err(Errno::EXIST);
        }
        let ino = self.next_ino;
        self.next_ino += 1;
        self.inodes.insert(ino, Inode::new(ino, &kind));
        self.events.push(Event::Inode(ino, kind));
        self.change_names(vec![((dir, name), Some(ino))]);
        self.entry(ino)
    }

    fn link(&mut self, ino: u64, dir: u64, name: &OsStr) -> Answer<Entry> {
        if self.find(dir, name).is_some() {
            return Err(Errno::EXIST);
        }
        self.change_names(vec![((dir, name), Some(ino))]);
        self.entry(ino)
    }

    fn remove(&mut self, dir: u64, name: &OsStr) -> Answer<()> {
        let ino = self.find(dir, name).ok_or(Errno::NOENT)?;
        if !self.inode(ino)?.names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.change_names(vec![((dir, name), None)]);
        Ok(())
    }

    fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> Answer<()> {
        let ino = self.find(from.0, from.1).ok_or(Errno::NOENT)?;
        let replaced = self.find(to.0, to.1);
        match (flags, replaced) {
            (RENAME_NOREPLACE, Some(_)) => Err(Errno::EXIST),
            (0 | RENAME_NOREPLACE, _) if replaced == Some(ino) => Ok(()),
            (0 | RENAME_NOREPLACE, _) => {
                if let Some(replaced) = replaced
                    && !self.inode(replaced)?.names.is_empty()
                {
                    return Err(Errno::NOTEMPTY);
                }
                self.change_names(vec![(from, None), (to, Some(ino))]);
                Ok(())
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn change_names(&mut self, changes: Vec<((u64, &OsStr), Option<u64>)>) {
        let mut slots = Vec::new();
        for ((dir, name), ino) in changes {
            self.put(dir, name, ino);
            slots.push(((dir, name.to_owned()), ino));
        }
        self.events.push(Event::Names(NameChange { slots }));
    }

    fn put(&mut self, dir: u64, name: &OsStr, ino: Option<u64>) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let Some(parent) = self.inodes.get_mut(&dir) else { return };
        let old = match ino {
            Some(ino) => parent.names.insert(name.to_owned(), (ino, cookie)),
            None => parent.names.remove(name),
        };
        self.count(dir, old.map(|(ino, _)| ino), -1);
        self.count(dir, ino, 1);
    }

    /// Counts a name of `ino` in `dir`.
    fn count(&mut self, dir: u64, ino: Option<u64>, by: i32) {
        let Some(inode) = ino.and_then(|ino| self.inodes.get_mut(&ino)) else { return };
        if !inode.is_dir() {
            inode.attr.nlink = inode.attr.nlink.saturating_add_signed(by);
        } else if let Some(parent) = self.inodes.get_mut(&dir) {
            parent.attr.nlink = parent.attr.nlink.saturating_add_signed(by);
        }
    }

    fn read_dir(&mut self, dir: u64, offset: u64, size: u32, plus: Plus, reply: Reply) -> Delivery {
        let Some(inode) = self.inodes.get(&dir) else { return reply.error(Errno::NOENT) };
        let mut names: Vec<(u64, u64, OsString)> =
            inode.names.iter().map(|(name, (ino, cookie))| (*cookie, *ino, name.clone())).collect();
        names.sort_unstable();
        let mut buffer = DirBuffer::new(size);
        for (cookie, ino, name) in names.into_iter().filter(|(cookie, ..)| *cookie > offset) {
            let is_pushed = match (plus, self.entry(ino)) {
                (Plus::Yes, Ok(entry)) => buffer.push_plus(&entry, cookie, &name),
                _ => buffer.push(ino, cookie, FileKind::Unknown, &name),
            };
            if !is_pushed {
                break;
            }
        }
        reply.dir(&buffer)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    Yes,
    No,
}

/// What changes nothing, and what this disk does not have.
fn rest(operation: &Operation<'_>, reply: Reply) -> Delivery {
    match operation {
        Operation::Release { .. }
        | Operation::Releasedir { .. }
        | Operation::Flush { .. }
        | Operation::Access { .. } => reply.ok(),
        Operation::Getxattr { .. } | Operation::Listxattr { .. } => reply.error(Errno::OPNOTSUPP),
        _ => reply.error(Errno::NOSYS),
    }
}

fn opened() -> Opened {
    Opened { flags: OpenReplyFlags::KEEP_CACHE, ..Opened::default() }
}

fn entry(reply: Reply, answer: Answer<Entry>) -> Delivery {
    match answer {
        Ok(entry) => reply.entry(&entry),
        Err(errno) => reply.error(errno),
    }
}

fn attr(reply: Reply, answer: Answer<Attr>) -> Delivery {
    match answer {
        Ok(attr) => reply.attr(&attr, TTL),
        Err(errno) => reply.error(errno),
    }
}

fn done(reply: Reply, answer: Answer<()>) -> Delivery {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

const TTL: Duration = Duration::from_secs(1 << 20);
const BLOCK: u64 = 4096;
const S_IFMT: u32 = 0o170_000;
const S_IFSOCK: u32 = 0o140_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;
const RENAME_NOREPLACE: u32 = 1;
const SEEK_HOLE: u32 = 4;
const FALLOC_KEEP_SIZE: u32 = 1;
/// With FALLOC_KEEP_SIZE, which it never goes without.
const FALLOC_PUNCH_HOLE: u32 = 3;
