//! A file system in memory whose requests can be counted, parked and released.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use fuse::{
    Attr, Delivery, DirBuffer, Entry, Errno, FileKind, FileLock, Forget, Handler, InHeader, LockKind, Opcode,
    OpenReplyFlags, Opened, Operation, Reply, Request, Setattr, Statfs, TimeOrNow, Timestamp,
};
use parking_lot::Mutex;
use zerocopy::IntoBytes;

const ROOT: u64 = fuse::ROOT_ID;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFMT: u32 = 0o170_000;

type ParkRule = Box<dyn Fn(&InHeader, &Operation<'_>) -> bool + Send>;

pub struct MemFs {
    nodes: Mutex<BTreeMap<u64, Node>>,
    next_ino: AtomicU64,
    park_rule: Mutex<Option<ParkRule>>,
    parked: Mutex<Vec<Parked>>,
    lock_waiters: Mutex<Vec<(Reply, u64, u64)>>,
    pub seen: Mutex<Vec<Seen>>,
    /// One request of each kind and number of bits of its length, as it came.
    pub messages: Mutex<BTreeMap<(u32, u32), Vec<u8>>>,
    pub interrupts: AtomicU64,
    pub forgotten: AtomicU64,
    pub destroyed: AtomicU64,
    /// Marks, and how many RELEASEs had come before each.
    pub marked: Mutex<Vec<(u64, usize)>>,
    /// TTL of names and attributes in seconds.
    pub ttl_seconds: AtomicU64,
    /// FOPEN_* of OPEN and CREATE.
    pub open_flags: AtomicU32,
    /// Backing file of what is opened with PASSTHROUGH.
    pub backing_id: AtomicI32,
    /// FOPEN_* of OPENDIR.
    pub opendir_flags: AtomicU32,
    /// OPENDIR is answered ENOSYS.
    pub no_opendir: AtomicBool,
    /// Requests are not noted in `seen`.
    pub quiet: AtomicBool,
    /// WRITE with O_APPEND goes to the true end, whatever its offset.
    pub append_at_end: AtomicBool,
}

/// What one request looked like.
#[derive(Clone, Debug)]
pub struct Seen {
    pub opcode: Opcode,
    pub nodeid: u64,
    pub detail: String,
}

#[derive(Clone, Debug, Default)]
struct Node {
    attr: Attr,
    data: Vec<u8>,
    target: OsString,
    children: BTreeMap<OsString, u64>,
    xattrs: BTreeMap<OsString, Vec<u8>>,
    lock_owner: Option<u64>,
}

struct Parked {
    header: InHeader,
    arg: Vec<u8>,
    payload: Vec<u8>,
    reply: Reply,
}

impl Default for MemFs {
    fn default() -> Self {
        let fs = Self {
            nodes: Mutex::default(),
            next_ino: AtomicU64::new(ROOT + 1),
            park_rule: Mutex::default(),
            parked: Mutex::default(),
            lock_waiters: Mutex::default(),
            seen: Mutex::default(),
            messages: Mutex::default(),
            interrupts: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            destroyed: AtomicU64::new(0),
            marked: Mutex::default(),
            ttl_seconds: AtomicU64::new(u64::MAX),
            open_flags: AtomicU32::new(OpenReplyFlags::KEEP_CACHE.bits()),
            backing_id: AtomicI32::new(0),
            opendir_flags: AtomicU32::new(OpenReplyFlags::CACHE_DIR.union(OpenReplyFlags::KEEP_CACHE).bits()),
            no_opendir: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            append_at_end: AtomicBool::new(false),
        };
        fs.nodes.lock().insert(ROOT, new_node(ROOT, S_IFDIR | 0o755, 0, 0));
        fs
    }
}

fn new_node(ino: u64, mode: u32, uid: u32, gid: u32) -> Node {
    let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
    let nlink = if mode & S_IFMT == S_IFDIR { 2 } else { 1 };
    let attr = Attr {
        ino,
        mode,
        uid,
        gid,
        nlink,
        atime: time,
        mtime: time,
        ctime: time,
        blksize: 4096,
        ..Attr::default()
    };
    Node { attr, ..Node::default() }
}

impl MemFs {
    fn keep(&self, request: &Request<'_>) {
        let message = [request.header.as_bytes(), request.arg, request.payload].concat();
        let magnitude = u32::BITS - (message.len() as u32).leading_zeros();
        self.messages.lock().entry((request.header.opcode, magnitude)).or_insert(message);
    }

    /// Parks every later request for which `rule` holds.
    pub fn park(&self, rule: impl Fn(&InHeader, &Operation<'_>) -> bool + Send + 'static) {
        *self.park_rule.lock() = Some(Box::new(rule));
    }

    pub fn parked_count(&self) -> usize {
        self.parked.lock().len()
    }

    /// Stops parking and answers what is parked.
    pub fn release_all(&self) {
        *self.park_rule.lock() = None;
        let parked = std::mem::take(&mut *self.parked.lock());
        for Parked { header, arg, payload, reply } in parked {
            self.execute(Request { header: &header, arg: &arg, payload: &payload }, reply);
        }
        for (reply, ..) in std::mem::take(&mut *self.lock_waiters.lock()) {
            reply.error(Errno::INTR);
        }
    }

    /// Changes a file behind the kernel's back, as another node would.
    pub fn set_remote(&self, ino: u64, data: &[u8]) {
        let mut nodes = self.nodes.lock();
        let node = nodes.get_mut(&ino).unwrap();
        node.data = data.to_vec();
        node.attr.size = data.len() as u64;
        node.attr.mtime.seconds += 1;
    }

    /// Changes permission bits.
    pub fn chmod_remote(&self, ino: u64, mode: u32) {
        let mut nodes = self.nodes.lock();
        let attr = &mut nodes.get_mut(&ino).unwrap().attr;
        attr.mode = attr.mode & S_IFMT | mode;
    }

    /// Another node links or unlinks a file.
    pub fn relink_remote(&self, ino: u64, nlink: u32) {
        self.nodes.lock().get_mut(&ino).unwrap().attr.nlink = nlink;
    }

    /// Changes a directory's mtime, which making a file does not do here by itself.
    pub fn touch_remote(&self, ino: u64) {
        self.nodes.lock().get_mut(&ino).unwrap().attr.mtime.seconds += 1;
    }

    /// Makes a file behind the kernel's back.
    pub fn create_remote(&self, parent: u64, name: &str) -> u64 {
        self.make_remote(parent, name, S_IFREG | 0o644)
    }

    /// Makes a directory behind the kernel's back.
    pub fn make_dir_remote(&self, parent: u64, name: &str) -> u64 {
        self.make_remote(parent, name, S_IFDIR | 0o755)
    }

    fn make_remote(&self, parent: u64, name: &str, mode: u32) -> u64 {
        let mut nodes = self.nodes.lock();
        let ino = self.next_ino.fetch_add(1, Ordering::Relaxed);
        nodes.insert(ino, new_node(ino, mode, 0, 0));
        nodes.get_mut(&parent).unwrap().children.insert(name.into(), ino);
        ino
    }

    pub fn remove_remote(&self, parent: u64, name: &str) {
        self.nodes.lock().get_mut(&parent).unwrap().children.remove(OsStr::new(name));
    }

    /// As another node would rename.
    pub fn move_remote(&self, parent: u64, name: &str, new_parent: u64) {
        let mut nodes = self.nodes.lock();
        let moved = nodes.get_mut(&parent).unwrap().children.remove(OsStr::new(name)).unwrap();
        nodes.get_mut(&new_parent).unwrap().children.insert(name.into(), moved);
    }

    pub fn ino(&self, parent: u64, name: &str) -> u64 {
        self.nodes.lock()[&parent].children[OsStr::new(name)]
    }

    pub fn content(&self, ino: u64) -> Vec<u8> {
        self.nodes.lock()[&ino].data.clone()
    }

    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock())
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_seconds.load(Ordering::Relaxed))
    }

    fn note(&self, request: &Request<'_>, operation: &Operation<'_>) {
        let Some(opcode) = request.opcode() else { return };
        let detail = match operation {
            Operation::Write { offset, data, write_flags, open_flags, .. } => {
                format!("offset={offset} len={} {write_flags:?} open_flags={open_flags:#o}", data.len())
            }
            Operation::Setxattr { name, .. } => format!("{name:?}"),
            other => format!("{other:?}"),
        };
        self.seen.lock().push(Seen { opcode, nodeid: request.header.nodeid, detail });
    }

    fn execute(&self, request: Request<'_>, reply: Reply) {
        let Ok(operation) = request.operation() else {
            reply.malformed();
            return;
        };
        let ino = request.header.nodeid;
        match operation {
            Operation::Lookup { name } => match self.child(ino, name) {
                Some(child) => self.answer_entry(child, reply),
                None => reply.entry(&Entry::negative(self.ttl())),
            },
            Operation::Getattr { .. } => self.answer_attr(ino, reply),
            Operation::Setattr(change) => {
                self.set_attr(ino, &change);
                self.answer_attr(ino, reply)
            }
            Operation::Readlink => {
                let target = self.nodes.lock()[&ino].target.clone();
                reply.data(target.as_bytes())
            }
            Operation::Symlink { name, target } => {
                let child = self.make(&request, name, S_IFLNK | 0o777);
                let mut nodes = self.nodes.lock();
                let node = nodes.get_mut(&child).unwrap();
                node.target = target.to_owned();
                node.attr.size = target.len() as u64;
                drop(nodes);
                self.answer_entry(child, reply)
            }
            Operation::Mknod { name, mode, umask, .. } => {
                let child = self.make(&request, name, mode & !umask);
                self.answer_entry(child, reply)
            }
            Operation::Mkdir { name, mode, umask } => {
                let child = self.make(&request, name, S_IFDIR | (mode & !umask));
                self.answer_entry(child, reply)
            }
            Operation::Create { name, mode, umask, .. } => {
                let child = self.make(&request, name, S_IFREG | (mode & 0o7777 & !umask));
                let entry = self.entry(child);
                reply.created(&entry, self.opened())
            }
            Operation::Unlink { name } | Operation::Rmdir { name } => {
                let removed = self.nodes.lock().get_mut(&ino).unwrap().children.remove(name);
                if removed.is_some() { reply.ok() } else { reply.error(Errno::NOENT) }
            }
            Operation::Rename { name, new_parent, new_name, .. } => {
                let mut nodes = self.nodes.lock();
                match nodes.get_mut(&ino).unwrap().children.remove(name) {
                    Some(child) => {
                        nodes.get_mut(&new_parent).unwrap().children.insert(new_name.to_owned(), child);
                        reply.ok()
                    }
                    None => reply.error(Errno::NOENT),
                }
            }
            Operation::Link { ino: target, new_name } => {
                let mut nodes = self.nodes.lock();
                nodes.get_mut(&target).unwrap().attr.nlink += 1;
                nodes.get_mut(&ino).unwrap().children.insert(new_name.to_owned(), target);
                drop(nodes);
                self.answer_entry(target, reply)
            }
            Operation::Open { flags, .. } => {
                if flags & O_TRUNC != 0 {
                    self.set_attr(ino, &Setattr { size: Some(0), ..Setattr::default() });
                }
                reply.opened(self.opened())
            }
            Operation::Read { offset, size, .. } => {
                let nodes = self.nodes.lock();
                let data = &nodes[&ino].data;
                let start = (offset as usize).min(data.len());
                let end = (start + size as usize).min(data.len());
                reply.data(&data[start..end])
            }
            Operation::Write { offset, data, open_flags, .. } => {
                let mut nodes = self.nodes.lock();
                let node = nodes.get_mut(&ino).unwrap();
                let at_end = open_flags & O_APPEND != 0 && self.append_at_end.load(Ordering::Relaxed);
                let start = if at_end { node.data.len() } else { offset as usize };
                let end = start + data.len();
                if node.data.len() < end {
                    node.data.resize(end, 0);
                }
                node.data[start..end].copy_from_slice(data);
                node.attr.size = node.data.len() as u64;
                node.attr.blocks = node.attr.size.div_ceil(512);
                reply.written(data.len() as u32)
            }
            Operation::Statfs => reply.statfs(&Statfs {
                blocks: 77,
                block_size: 4096,
                fragment_size: 4096,
                name_len_max: 255,
                ..Statfs::default()
            }),
            Operation::Opendir { .. } => {
                if self.no_opendir.load(Ordering::Relaxed) {
                    reply.error(Errno::NOSYS)
                } else {
                    let flags = OpenReplyFlags::from_bits(self.opendir_flags.load(Ordering::Relaxed));
                    reply.opened(Opened { flags, ..Opened::default() })
                }
            }
            Operation::Readdir { offset, size, .. } => self.read_dir(ino, offset, size, Plus::No, reply),
            Operation::Readdirplus { offset, size, .. } => self.read_dir(ino, offset, size, Plus::Yes, reply),
            Operation::Setxattr { name, value, .. } => {
                self.nodes.lock().get_mut(&ino).unwrap().xattrs.insert(name.to_owned(), value.to_vec());
                reply.ok()
            }
            Operation::Getxattr { name, size } => {
                let nodes = self.nodes.lock();
                match nodes[&ino].xattrs.get(name) {
                    None => reply.error(Errno::NODATA),
                    Some(value) => answer_sized(value, size, reply),
                }
            }
            Operation::Listxattr { size } => {
                let nodes = self.nodes.lock();
                let names: Vec<u8> =
                    nodes[&ino].xattrs.keys().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
                answer_sized(&names, size, reply)
            }
            Operation::Removexattr { name } => {
                let removed = self.nodes.lock().get_mut(&ino).unwrap().xattrs.remove(name);
                if removed.is_some() { reply.ok() } else { reply.error(Errno::NODATA) }
            }
            Operation::Getlk { lock, .. } => reply.lock(&FileLock { kind: LockKind::Unlock, ..lock }),
            Operation::Setlk { owner, lock, sleep, .. } => self.set_lock(ino, owner, lock, sleep, reply),
            Operation::Lseek { offset, whence, .. } => {
                let size = self.nodes.lock()[&ino].data.len() as u64;
                reply.lseek(if whence == SEEK_HOLE { size } else { offset })
            }
            Operation::CopyFileRange { offset_in, ino_out, offset_out, len, .. } => {
                let mut nodes = self.nodes.lock();
                let source = &nodes[&ino].data;
                let end = (offset_in as usize + len as usize).min(source.len());
                let piece = source[(offset_in as usize).min(end)..end].to_vec();
                let out = nodes.get_mut(&ino_out).unwrap();
                let out_end = offset_out as usize + piece.len();
                out.data.resize(out.data.len().max(out_end), 0);
                out.data[offset_out as usize..out_end].copy_from_slice(&piece);
                out.attr.size = out.data.len() as u64;
                reply.copied(piece.len() as u64)
            }
            Operation::Release { lock_owner, .. } | Operation::Flush { lock_owner, .. } => {
                self.unlock(ino, lock_owner);
                reply.ok()
            }
            Operation::Releasedir { .. }
            | Operation::Fsync { .. }
            | Operation::Fsyncdir { .. }
            | Operation::Fallocate { .. }
            | Operation::Syncfs
            | Operation::Access { .. } => reply.ok(),
            Operation::Ioctl { command, .. } => match command {
                PANIC_COMMAND => panic!("asked to panic"),
                DROP_COMMAND => Delivery::Lost,
                _ => reply.error(Errno::NOTTY),
            },
            Operation::Statx { .. }
            | Operation::Tmpfile { .. }
            | Operation::Bmap { .. }
            | Operation::Poll { .. }
            | Operation::Destroy
            | Operation::Unknown { .. } => reply.error(Errno::NOSYS),
        };
    }

    fn child(&self, parent: u64, name: &OsStr) -> Option<u64> {
        let nodes = self.nodes.lock();
        match name.to_str() {
            // Asked for by whom has but a handle.
            Some(".") => nodes.contains_key(&parent).then_some(parent),
            Some("..") => nodes
                .iter()
                .find(|(_, node)| node.children.values().any(|of| *of == parent))
                .map(|(of, _)| *of),
            _ => nodes.get(&parent)?.children.get(name).copied(),
        }
    }

    fn make(&self, request: &Request<'_>, name: &OsStr, mode: u32) -> u64 {
        let mut nodes = self.nodes.lock();
        let ino = self.next_ino.fetch_add(1, Ordering::Relaxed);
        nodes.insert(ino, new_node(ino, mode, request.header.uid, request.header.gid));
        nodes.get_mut(&request.header.nodeid).unwrap().children.insert(name.to_owned(), ino);
        ino
    }

    fn entry(&self, ino: u64) -> Entry {
        let attr = self.nodes.lock()[&ino].attr;
        Entry { nodeid: ino, generation: 1, entry_ttl: self.ttl(), attr_ttl: self.ttl(), attr }
    }

    fn answer_entry(&self, ino: u64, reply: Reply) -> Delivery {
        reply.entry(&self.entry(ino))
    }

    fn answer_attr(&self, ino: u64, reply: Reply) -> Delivery {
        let attr = self.nodes.lock().get(&ino).map(|node| node.attr);
        match attr {
            Some(attr) => reply.attr(&attr, self.ttl()),
            None => reply.error(Errno::NOENT),
        }
    }

    fn opened(&self) -> Opened {
        let flags = OpenReplyFlags::from_bits(self.open_flags.load(Ordering::Relaxed));
        let is_passed_through = flags.contains(OpenReplyFlags::PASSTHROUGH);
        let backing_id = if is_passed_through { self.backing_id.load(Ordering::Relaxed) } else { 0 };
        Opened { fh: 1, flags, backing_id }
    }

    fn set_attr(&self, ino: u64, change: &Setattr) {
        let mut nodes = self.nodes.lock();
        let node = nodes.get_mut(&ino).unwrap();
        if let Some(size) = change.size {
            node.data.resize(size as usize, 0);
            node.attr.size = size;
        }
        if let Some(mode) = change.mode {
            node.attr.mode = (node.attr.mode & S_IFMT) | (mode & 0o7777);
        }
        node.attr.uid = change.uid.unwrap_or(node.attr.uid);
        node.attr.gid = change.gid.unwrap_or(node.attr.gid);
        if let Some(TimeOrNow::At(time)) = change.mtime {
            node.attr.mtime = time;
        }
        if let Some(TimeOrNow::At(time)) = change.atime {
            node.attr.atime = time;
        }
    }

    fn read_dir(&self, ino: u64, offset: u64, size: u32, plus: Plus, reply: Reply) -> Delivery {
        let children: Vec<(OsString, u64)> =
            self.nodes.lock()[&ino].children.iter().map(|(name, ino)| (name.clone(), *ino)).collect();
        let mut buffer = DirBuffer::new(size);
        for (index, (name, child)) in children.iter().enumerate().skip(offset as usize) {
            let cookie = index as u64 + 1;
            let pushed = match plus {
                Plus::Yes => buffer.push_plus(&self.entry(*child), cookie, name),
                Plus::No => buffer.push(*child, cookie, FileKind::Unknown, name),
            };
            if !pushed {
                break;
            }
        }
        reply.dir(&buffer)
    }

    fn set_lock(&self, ino: u64, owner: u64, lock: FileLock, sleep: bool, reply: Reply) -> Delivery {
        if lock.kind == LockKind::Unlock {
            self.unlock(ino, owner);
            return reply.ok();
        }
        let mut nodes = self.nodes.lock();
        let holder = &mut nodes.get_mut(&ino).unwrap().lock_owner;
        match *holder {
            Some(other) if other != owner => {
                drop(nodes);
                if !sleep {
                    return reply.error(Errno::AGAIN);
                }
                self.lock_waiters.lock().push((reply, ino, owner));
                Delivery::Lost
            }
            _ => {
                *holder = Some(owner);
                reply.ok()
            }
        }
    }

    fn unlock(&self, ino: u64, owner: u64) {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get_mut(&ino) else { return };
        if node.lock_owner != Some(owner) {
            return;
        }
        let mut waiters = self.lock_waiters.lock();
        let next = waiters.iter().position(|(_, waited_ino, _)| *waited_ino == ino);
        node.lock_owner = next.map(|index| {
            let (reply, _, next_owner) = waiters.swap_remove(index);
            reply.ok();
            next_owner
        });
    }
}

impl Handler for MemFs {
    fn handle(&self, request: Request<'_>, reply: Reply) {
        let Ok(operation) = request.operation() else {
            reply.malformed();
            return;
        };
        if !self.quiet.load(Ordering::Relaxed) {
            self.note(&request, &operation);
        }
        self.keep(&request);
        let is_parked = self.park_rule.lock().as_ref().is_some_and(|rule| rule(request.header, &operation));
        if is_parked {
            self.parked.lock().push(Parked {
                header: *request.header,
                arg: request.arg.to_vec(),
                payload: request.payload.to_vec(),
                reply,
            });
            return;
        }
        self.execute(request, reply);
    }

    fn interrupt(&self, unique: u64) {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
        let mut waiters = self.lock_waiters.lock();
        if let Some(index) = waiters.iter().position(|(reply, ..)| reply.unique() == unique) {
            waiters.swap_remove(index).0.error(Errno::INTR);
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        self.forgotten.fetch_add(forgets.iter().map(|forget| forget.nlookup).sum(), Ordering::Relaxed);
    }

    fn marked(&self, unique: u64) {
        let releases = self.seen.lock().iter().filter(|seen| seen.opcode == Opcode::Release).count();
        self.marked.lock().push((unique, releases));
    }

    fn destroy(&self) {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    Yes,
    No,
}

fn answer_sized(bytes: &[u8], size: u32, reply: Reply) -> Delivery {
    match size as usize {
        0 => reply.xattr_size(bytes.len() as u32),
        room if room < bytes.len() => reply.error(Errno::RANGE),
        _ => reply.data(bytes),
    }
}

/// ioctl(2) commands that make the handler misbehave: `_IO('H', 1)` and `_IO('H', 2)`.
pub const PANIC_COMMAND: u32 = 0x4801;
pub const DROP_COMMAND: u32 = 0x4802;

pub const O_TRUNC: u32 = 0o1000;
pub const O_APPEND: u32 = 0o2000;
const SEEK_HOLE: u32 = 4;
