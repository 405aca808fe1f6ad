//! Operations: what they are, and how each is done on one side.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::PathBuf;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, Access, AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RawDir, RenameFlags, SeekFrom, Stat,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::raw::{Mapping, truncate};

/// One system call with its arguments. Paths begin at the root of the side; slots and maps are places in the [`Table`].
#[derive(Clone, Debug)]
pub enum Op {
    Open { path: String, flags: OFlags, mode: u32 },
    OpenAt { dir: u32, name: String, flags: OFlags },
    Close { slot: u32 },
    Read { slot: u32, len: usize },
    Pread { slot: u32, offset: u64, len: usize },
    Write { slot: u32, len: usize, tag: u8 },
    Pwrite { slot: u32, offset: u64, len: usize, tag: u8 },
    Ftruncate { slot: u32, len: u64 },
    Truncate { path: String, len: u64 },
    Fallocate { slot: u32, mode: FallocateFlags, offset: u64, len: u64 },
    Copy { from: u32, from_offset: u64, slot: u32, offset: u64, len: usize },
    Seek { slot: u32, to: SeekFrom },
    SeekData { slot: u32, offset: u64 },
    SeekHole { slot: u32, offset: u64 },
    Fsync { slot: u32, data_only: bool },
    Mkdir { path: String, mode: u32 },
    Rmdir { path: String },
    Unlink { path: String },
    Rename { from: String, to: String, flags: RenameFlags },
    Link { from: String, to: String },
    LinkOpen { slot: u32, to: String },
    Symlink { target: String, path: String },
    Readlink { path: String },
    Mkfifo { path: String, mode: u32 },
    Chmod { path: String, mode: u32 },
    Fchmod { slot: u32, mode: u32 },
    Chown { path: String, uid: Option<u32>, gid: Option<u32>, follow: bool },
    Fchown { slot: u32, uid: Option<u32>, gid: Option<u32> },
    Utimens { path: String, times: [When; 2], follow: bool },
    Futimens { slot: u32, times: [When; 2] },
    SetXattr { on: On, name: &'static str, value: Vec<u8>, flags: XattrFlags },
    GetXattr { on: On, name: &'static str, room: usize },
    ListXattr { on: On, room: usize },
    RemoveXattr { on: On, name: &'static str },
    Stat { path: String },
    Access { path: String, want: Access },
    ReadDir { path: String },
    ReadOpenDir { slot: u32 },
    Map { slot: u32, len: usize, is_writable: bool },
    Load { map: u32, offset: usize, len: usize },
    Store { map: u32, offset: usize, len: usize, tag: u8 },
    Msync { map: u32 },
    Unmap { map: u32 },
}

/// What extended attributes are of.
#[derive(Clone, Debug)]
pub enum On {
    Path(String),
    /// The link itself.
    Link(String),
    Slot(u32),
}

/// A time to be set.
#[derive(Clone, Copy, Debug)]
pub enum When {
    Now,
    Omit,
    /// Seconds and nanoseconds, long ago.
    At(i64, i64),
}

/// A descriptor on a mount and its twin.
pub struct Slot {
    pub site: usize,
    /// On the mount, and on the local side.
    pub halves: [OwnedFd; 2],
    pub flags: OFlags,
    pub is_dir: bool,
    pub is_file: bool,
    /// Inode of the twin.
    pub ino: u64,
}

/// A mapping on a mount and its twin.
pub struct Map {
    pub site: usize,
    pub halves: [Mapping; 2],
    pub is_writable: bool,
    pub ino: u64,
    /// Of the twin, to ask for its size.
    pub twin: OwnedFd,
}

/// What is open across steps.
#[derive(Default)]
pub struct Table {
    pub slots: BTreeMap<u32, Slot>,
    pub maps: BTreeMap<u32, Map>,
}

/// One of the two sides that a step is done on.
pub struct Side<'a> {
    pub root: BorrowedFd<'a>,
    pub path: PathBuf,
    /// Which halves in the table are this side's.
    pub half: usize,
}

/// What an operation brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Nothing,
    Number(u64),
    Bytes(Vec<u8>),
    Names(Vec<(Vec<u8>, String)>),
}

/// What an operation opens.
pub enum Opened {
    Nothing,
    File(OwnedFd),
    Map(Mapping),
}

pub type Outcome = Result<Value, Errno>;

impl Op {
    pub fn name(&self) -> &'static str {
        use Op::*;
        match self {
            Open { flags, .. } if flags.contains(OFlags::TMPFILE) => "open tmpfile",
            Open { flags, .. } if flags.contains(OFlags::CREATE) => "open create",
            Open { .. } => "open",
            OpenAt { .. } => "openat",
            Close { .. } => "close",
            Read { .. } => "read",
            Pread { .. } => "pread",
            Write { .. } => "write",
            Pwrite { .. } => "pwrite",
            Ftruncate { .. } => "ftruncate",
            Truncate { .. } => "truncate",
            Fallocate { .. } => "fallocate",
            Copy { .. } => "copy_file_range",
            Seek { .. } => "lseek",
            SeekData { .. } => "lseek data",
            SeekHole { .. } => "lseek hole",
            Fsync { .. } => "fsync",
            Mkdir { .. } => "mkdir",
            Rmdir { .. } => "rmdir",
            Unlink { .. } => "unlink",
            Rename { flags, .. } if flags.is_empty() => "rename",
            Rename { flags, .. } if flags.contains(RenameFlags::EXCHANGE) => "rename exchange",
            Rename { flags, .. } if flags.contains(RenameFlags::WHITEOUT) => "rename whiteout",
            Rename { .. } => "rename noreplace",
            Link { .. } => "link",
            LinkOpen { .. } => "link open",
            Symlink { .. } => "symlink",
            Readlink { .. } => "readlink",
            Mkfifo { .. } => "mknod fifo",
            Chmod { .. } => "chmod",
            Fchmod { .. } => "fchmod",
            Chown { .. } => "chown",
            Fchown { .. } => "fchown",
            Utimens { .. } => "utimensat",
            Futimens { .. } => "futimens",
            SetXattr { .. } => "setxattr",
            GetXattr { .. } => "getxattr",
            ListXattr { .. } => "listxattr",
            RemoveXattr { .. } => "removexattr",
            Stat { .. } => "stat",
            Access { .. } => "access",
            ReadDir { .. } => "readdir",
            ReadOpenDir { .. } => "readdir open",
            Map { .. } => "mmap",
            Load { .. } => "load",
            Store { .. } => "store",
            Msync { .. } => "msync",
            Unmap { .. } => "munmap",
        }
    }

    /// As it is told; long values are cut.
    pub fn text(&self) -> String {
        match self {
            Op::SetXattr { on, name, value, flags } => {
                format!(
                    "SetXattr {{ on: {on:?}, name: {name:?}, {} bytes {:?}, {flags:?} }}",
                    value.len(),
                    &value[..value.len().min(50)]
                )
            }
            _ => shortened(format!("{self:?}")),
        }
    }

    /// Paths that it names.
    pub fn paths(&self) -> Vec<&str> {
        use Op::*;
        match self {
            Open { path, .. }
            | Truncate { path, .. }
            | Mkdir { path, .. }
            | Rmdir { path }
            | Unlink { path } => vec![path],
            Symlink { path, .. } | Readlink { path } | Mkfifo { path, .. } | Chmod { path, .. } => vec![path],
            Chown { path, .. }
            | Utimens { path, .. }
            | Stat { path }
            | Access { path, .. }
            | ReadDir { path } => vec![path],
            LinkOpen { to, .. } => vec![to],
            Rename { from, to, .. } | Link { from, to } => vec![from, to],
            SetXattr { on, .. } | GetXattr { on, .. } | ListXattr { on, .. } | RemoveXattr { on, .. } => {
                match on {
                    On::Path(path) | On::Link(path) => vec![path],
                    On::Slot(_) => Vec::new(),
                }
            }
            OpenAt { .. } | Close { .. } | Read { .. } | Pread { .. } | Write { .. } | Pwrite { .. } => {
                Vec::new()
            }
            Ftruncate { .. } | Fallocate { .. } | Copy { .. } | Seek { .. } | SeekData { .. } => Vec::new(),
            SeekHole { .. } => Vec::new(),
            Fsync { .. } | Fchmod { .. } | Fchown { .. } | Futimens { .. } | ReadOpenDir { .. } => Vec::new(),
            Map { .. } | Load { .. } | Store { .. } | Msync { .. } | Unmap { .. } => Vec::new(),
        }
    }

    pub fn slot(&self) -> Option<u32> {
        use Op::*;
        match self {
            Close { slot } | Read { slot, .. } | Pread { slot, .. } | Write { slot, .. } => Some(*slot),
            Pwrite { slot, .. } | Ftruncate { slot, .. } | Fallocate { slot, .. } => Some(*slot),
            Copy { slot, .. } => Some(*slot),
            Seek { slot, .. } | SeekData { slot, .. } | SeekHole { slot, .. } | Fsync { slot, .. } => {
                Some(*slot)
            }
            LinkOpen { slot, .. } | Fchmod { slot, .. } | Fchown { slot, .. } | Futimens { slot, .. } => {
                Some(*slot)
            }
            ReadOpenDir { slot } | Map { slot, .. } => Some(*slot),
            OpenAt { dir, .. } => Some(*dir),
            SetXattr { on, .. } | GetXattr { on, .. } | ListXattr { on, .. } | RemoveXattr { on, .. } => {
                match on {
                    On::Slot(slot) => Some(*slot),
                    On::Path(_) | On::Link(_) => None,
                }
            }
            Open { .. } | Truncate { .. } | Mkdir { .. } | Rmdir { .. } | Unlink { .. } | Rename { .. } => {
                None
            }
            Link { .. } | Symlink { .. } | Readlink { .. } | Mkfifo { .. } | Chmod { .. } | Chown { .. } => {
                None
            }
            Utimens { .. } | Stat { .. } | Access { .. } | ReadDir { .. } | Load { .. } | Store { .. } => {
                None
            }
            Msync { .. } | Unmap { .. } => None,
        }
    }

    pub fn map(&self) -> Option<u32> {
        match self {
            Op::Load { map, .. } | Op::Store { map, .. } | Op::Msync { map } | Op::Unmap { map } => {
                Some(*map)
            }
            _ => None,
        }
    }

    /// Whether names may be others afterwards.
    pub fn changes_names(&self) -> bool {
        use Op::*;
        match self {
            Open { flags, .. } | OpenAt { flags, .. } => flags.contains(OFlags::CREATE),
            Mkdir { .. } | Rmdir { .. } | Unlink { .. } | Rename { .. } | Link { .. } | LinkOpen { .. } => {
                true
            }
            Symlink { .. } | Mkfifo { .. } => true,
            _ => false,
        }
    }

    /// Does it on one side.
    pub fn run(&self, side: &Side<'_>, table: &Table) -> Result<(Value, Opened), Errno> {
        use Op::*;
        let root = side.root;
        match self {
            Open { path, flags, mode } => {
                let flags = *flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let file = fs::openat(root, path, flags, Mode::from_raw_mode(*mode))?;
                return Ok((Value::Nothing, Opened::File(file)));
            }
            OpenAt { dir, name, flags } => {
                let flags = *flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let file = fs::openat(side.fd(table, *dir), name, flags, Mode::from_raw_mode(0o644))?;
                return Ok((Value::Nothing, Opened::File(file)));
            }
            Map { slot, len, is_writable } => {
                let map = Mapping::new(side.fd(table, *slot), *len, *is_writable)?;
                return Ok((Value::Nothing, Opened::Map(map)));
            }
            _ => {}
        }
        let value = match self {
            Mkdir { .. }
            | Rmdir { .. }
            | Unlink { .. }
            | Rename { .. }
            | Link { .. }
            | LinkOpen { .. }
            | Symlink { .. }
            | Readlink { .. }
            | Mkfifo { .. } => self.run_on_names(side, table),
            SetXattr { .. } | GetXattr { .. } | ListXattr { .. } | RemoveXattr { .. } => {
                self.run_on_xattrs(side, table)
            }
            Load { map, offset, len } => {
                table.maps[map].halves[side.half].load(*offset, *len).map(Value::Bytes)
            }
            Store { map, offset, len, tag } => {
                let stored = table.maps[map].halves[side.half].store(*offset, &pattern(*tag, *len))?;
                Ok(Value::Number(stored as u64))
            }
            Msync { map } => table.maps[map].halves[side.half].sync().map(|()| Value::Nothing),
            // What closes is done by the table.
            Close { .. } | Unmap { .. } => Ok(Value::Nothing),
            _ if self.slot().is_some() => self.run_on_open(side, table),
            _ => self.run_on_attributes(side),
        };
        value.map(|value| (value, Opened::Nothing))
    }

    fn run_on_names(&self, side: &Side<'_>, table: &Table) -> Outcome {
        use Op::*;
        let root = side.root;
        match self {
            Mkdir { path, mode } => fs::mkdirat(root, path, Mode::from_raw_mode(*mode))?,
            Rmdir { path } => fs::unlinkat(root, path, AtFlags::REMOVEDIR)?,
            Unlink { path } => fs::unlinkat(root, path, AtFlags::empty())?,
            Rename { from, to, flags } if flags.is_empty() => fs::renameat(root, from, root, to)?,
            Rename { from, to, flags } => fs::renameat_with(root, from, root, to, *flags)?,
            Link { from, to } => fs::linkat(root, from, root, to, AtFlags::empty())?,
            LinkOpen { slot, to } => {
                use std::os::fd::AsRawFd;
                let open = format!("/proc/self/fd/{}", side.fd(table, *slot).as_raw_fd());
                fs::linkat(CWD, open, root, to, AtFlags::SYMLINK_FOLLOW)?;
            }
            Symlink { target, path } => fs::symlinkat(target, root, path)?,
            Readlink { path } => {
                let target = fs::readlinkat(root, path, Vec::new())?;
                return Ok(Value::Bytes(target.into_bytes()));
            }
            Mkfifo { path, mode } => fs::mkfifoat(root, path, Mode::from_raw_mode(*mode))?,
            _ => unreachable!("{self:?} changes no names"),
        }
        Ok(Value::Nothing)
    }

    fn run_on_xattrs(&self, side: &Side<'_>, table: &Table) -> Outcome {
        use Op::*;
        match self {
            SetXattr { on, name, value, flags } => match on {
                On::Path(path) => fs::setxattr(side.at(path), *name, value, *flags)?,
                On::Link(path) => fs::lsetxattr(side.at(path), *name, value, *flags)?,
                On::Slot(slot) => fs::fsetxattr(side.fd(table, *slot), *name, value, *flags)?,
            },
            GetXattr { on, name, room } => {
                let mut value = vec![0; *room];
                let len = match on {
                    On::Path(path) => fs::getxattr(side.at(path), *name, &mut value[..])?,
                    On::Link(path) => fs::lgetxattr(side.at(path), *name, &mut value[..])?,
                    On::Slot(slot) => fs::fgetxattr(side.fd(table, *slot), *name, &mut value[..])?,
                };
                // Without room, how much would be needed.
                value.truncate(len);
                return Ok(if *room == 0 { Value::Number(len as u64) } else { Value::Bytes(value) });
            }
            ListXattr { on, room } => {
                let mut list = vec![0; *room];
                let len = match on {
                    On::Path(path) => fs::listxattr(side.at(path), &mut list[..])?,
                    On::Link(path) => fs::llistxattr(side.at(path), &mut list[..])?,
                    On::Slot(slot) => fs::flistxattr(side.fd(table, *slot), &mut list[..])?,
                };
                list.truncate(len);
                return Ok(if *room == 0 { Value::Number(len as u64) } else { sorted_names(&list) });
            }
            RemoveXattr { on, name } => match on {
                On::Path(path) => fs::removexattr(side.at(path), *name)?,
                On::Link(path) => fs::lremovexattr(side.at(path), *name)?,
                On::Slot(slot) => fs::fremovexattr(side.fd(table, *slot), *name)?,
            },
            _ => unreachable!("{self:?} is not about extended attributes"),
        }
        Ok(Value::Nothing)
    }

    fn run_on_open(&self, side: &Side<'_>, table: &Table) -> Outcome {
        use Op::*;
        let fd = side.fd(table, self.slot().expect("asked for"));
        match self {
            Read { len, .. } => {
                let mut bytes = vec![0; *len];
                let count = rustix::io::read(fd, &mut bytes[..])?;
                bytes.truncate(count);
                return Ok(Value::Bytes(bytes));
            }
            Pread { offset, len, .. } => {
                let mut bytes = vec![0; *len];
                let count = rustix::io::pread(fd, &mut bytes[..], *offset)?;
                bytes.truncate(count);
                return Ok(Value::Bytes(bytes));
            }
            Write { len, tag, .. } => {
                return Ok(Value::Number(rustix::io::write(fd, &pattern(*tag, *len))? as u64));
            }
            Pwrite { offset, len, tag, .. } => {
                return Ok(Value::Number(rustix::io::pwrite(fd, &pattern(*tag, *len), *offset)? as u64));
            }
            Ftruncate { len, .. } => fs::ftruncate(fd, *len)?,
            Fallocate { mode, offset, len, .. } => fs::fallocate(fd, *mode, *offset, *len)?,
            Copy { from, from_offset, offset, len, .. } => {
                return copy(side.fd(table, *from), *from_offset, fd, *offset, *len);
            }
            Seek { to, .. } => return Ok(Value::Number(fs::seek(fd, *to)?)),
            SeekData { offset, .. } => return Ok(Value::Number(fs::seek(fd, SeekFrom::Data(*offset))?)),
            SeekHole { offset, .. } => return Ok(Value::Number(fs::seek(fd, SeekFrom::Hole(*offset))?)),
            Fsync { data_only: true, .. } => fs::fdatasync(fd)?,
            Fsync { .. } => fs::fsync(fd)?,
            Fchmod { mode, .. } => fs::fchmod(fd, Mode::from_raw_mode(*mode))?,
            Fchown { uid, gid, .. } => fs::fchown(fd, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?,
            Futimens { times, .. } => fs::futimens(fd, &timestamps(times))?,
            ReadOpenDir { .. } => {
                fs::seek(fd, SeekFrom::Start(0))?;
                return listing(fd);
            }
            _ => unreachable!("{self:?} is of no descriptor"),
        }
        Ok(Value::Nothing)
    }

    fn run_on_attributes(&self, side: &Side<'_>) -> Outcome {
        use Op::*;
        let root = side.root;
        let how = |follow: bool| if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        match self {
            Truncate { path, len } => truncate(&side.at(path), *len as i64)?,
            Chmod { path, mode } => fs::chmodat(root, path, Mode::from_raw_mode(*mode), AtFlags::empty())?,
            Chown { path, uid, gid, follow } => {
                fs::chownat(root, path, uid.map(Uid::from_raw), gid.map(Gid::from_raw), how(*follow))?;
            }
            Utimens { path, times, follow } => fs::utimensat(root, path, &timestamps(times), how(*follow))?,
            // What it says is compared after each step.
            Stat { path } => _ = fs::statat(root, path, AtFlags::empty())?,
            Access { path, want } => fs::accessat(root, path, *want, AtFlags::EACCESS)?,
            ReadDir { path } => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                return listing(fs::openat(root, path, flags, Mode::empty())?.as_fd());
            }
            _ => unreachable!("{self:?} is of no path"),
        }
        Ok(Value::Nothing)
    }
}

/// With names that are long on purpose cut.
fn shortened(mut text: String) -> String {
    for letter in ["l", "m", "x"] {
        text = text.replace(&letter.repeat(40), "").replace(&letter.repeat(15), &format!("{letter}..."));
    }
    text
}

impl Side<'_> {
    pub fn at(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    fn fd<'t>(&self, table: &'t Table, slot: u32) -> BorrowedFd<'t> {
        table.slots[&slot].halves[self.half].as_fd()
    }
}

/// Names in a listing with their types, sorted: the order is each file system's own.
fn listing(dir: BorrowedFd<'_>) -> Outcome {
    let mut names = Vec::new();
    let mut room = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(dir, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        names.push((entry.file_name().to_bytes().to_vec(), format!("{:?}", entry.file_type())));
    }
    names.sort();
    Ok(Value::Names(names))
}

/// Copies until all is copied or there is no more.
fn copy(
    from: BorrowedFd<'_>,
    mut from_offset: u64,
    to: BorrowedFd<'_>,
    mut offset: u64,
    len: usize,
) -> Outcome {
    // The kernel goes by the end that it has (docs/semantics.md, "`copy_file_range`").
    _ = fs::fstat(from);
    let mut copied = 0;
    while copied < len {
        match fs::copy_file_range(from, Some(&mut from_offset), to, Some(&mut offset), len - copied) {
            Ok(0) => break,
            Ok(count) => copied += count,
            Err(error) if copied == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(Value::Number(copied as u64))
}

/// Names of extended attributes, without those that a security module of this machine gives.
pub fn sorted_names(list: &[u8]) -> Value {
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<(Vec<u8>, String)> = names.map(|name| (name.to_vec(), String::new())).collect();
    names.sort();
    Value::Names(names)
}

/// Bytes that tell their writer and where in the write they stood; none is zero.
pub fn pattern(tag: u8, len: usize) -> Vec<u8> {
    (0..len).map(|n| 1 + ((usize::from(tag) * 37 + n + n / 251) % 251) as u8).collect()
}

fn timestamps(times: &[When; 2]) -> Timestamps {
    let one = |when: When| match when {
        When::Now => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        When::Omit => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        When::At(seconds, nanoseconds) => Timespec { tv_sec: seconds, tv_nsec: nanoseconds },
    };
    Timestamps { last_access: one(times[0]), last_modification: one(times[1]) }
}

/// What is compared of an inode wherever it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub mode: u32,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub mtime: (i64, i64),
    pub ctime: (i64, i64),
    pub ino: u64,
}

impl Attributes {
    #[allow(clippy::unnecessary_cast, reason = "widths differ by architecture")]
    pub fn of(stat: &Stat) -> Self {
        Self {
            mode: stat.st_mode,
            nlink: stat.st_nlink as u64,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size as u64,
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            ino: stat.st_ino,
        }
    }

    pub fn is_dir(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    pub fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }

    pub fn is_link(&self) -> bool {
        self.mode & S_IFMT == S_IFLNK
    }

    pub fn is_fifo(&self) -> bool {
        self.mode & S_IFMT == S_IFIFO
    }
}

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFIFO: u32 = 0o010_000;
