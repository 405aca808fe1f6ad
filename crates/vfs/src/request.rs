//! What applications ask of a node and what they are told, free of any kernel's structures.

use meta::ops::{AttrSet, Groups, RenameMode, XattrMode};
use meta::{FileKind, FsError};
use obs::OperationKind;
use types::{Ino, Name, Timespec};
use wire::{ByteLock, LockOwner};

/// Number of an open file or directory within a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u64);

/// Number of a request while it is answered; the transport's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Why an application stops waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// A signal that it may handle.
    Signal,
    /// It is being killed.
    Death,
}

/// What becomes of the creation of a file whose name another has given away since the kernel looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is refused, as with O_EXCL.
    Refuse,
    /// What is there is held, to be found by the kernel's second walk: [`Reply::Met`].
    Meet,
    /// The same, but it was the second walk that found nothing, and there is no third: if the name is free again soon, the file is made.
    Outwait,
}

/// A request. Names are raw bytes: checking them is part of the answer.
#[derive(Debug)]
#[expect(missing_docs, reason = "fields are those of the system calls named")]
pub enum Request {
    /// Resolves a name.
    Lookup { parent: Ino, name: Box<[u8]> },
    /// The same for somebody whose last walk came to something that was gone, or to a file of another's where there was none: a file
    /// that is found stays for a second, to be opened. If none is found, `met` is, which [`Reply::Met`] told of.
    Find { parent: Ino, name: Box<[u8]>, met: Option<Ino> },
    /// Attributes of an inode, for a kernel that goes by them: a read that may meet the end, a seek to it.
    GetAttr { ino: Ino },
    /// Attributes of an inode, for a process that looks, by stat or the like; with `lazysize` some may be late.
    Stat { ino: Ino },
    /// The inode of a file handle, as an entry without a name. ESTALE where it is gone.
    Itself { ino: Ino },
    /// The directory that a directory is in, as an entry without a name; the root is in itself.
    Parent { ino: Ino },
    /// chmod, chown, utimensat, and truncation when `size` is given.
    SetAttr { ino: Ino, set: AttrSet, size: Option<u64> },
    /// Target of a symbolic link.
    ReadLink { ino: Ino },
    /// mknod, mkdir, symlink.
    Make { parent: Ino, name: Box<[u8]>, spec: MakeSpec },
    /// open with O_CREAT of a name that the kernel does not know.
    Create { parent: Ino, name: Box<[u8]>, spec: MakeSpec, open: OpenMode, taken: Taken },
    /// open with O_TMPFILE.
    TmpFile { parent: Ino, spec: MakeSpec, open: OpenMode },
    /// link.
    Link { ino: Ino, parent: Ino, name: Box<[u8]> },
    /// unlink, by somebody whom sticky directories bind, or not.
    Unlink { parent: Ino, name: Box<[u8]>, bound: Option<u32> },
    /// rmdir, likewise.
    Rmdir { parent: Ino, name: Box<[u8]>, bound: Option<u32> },
    /// rename, renameat2, likewise.
    Rename {
        parent: Ino,
        name: Box<[u8]>,
        new_parent: Ino,
        new_name: Box<[u8]>,
        mode: RenameMode,
        bound: Option<u32>,
        /// What takes the old name, with `RENAME_WHITEOUT`.
        whiteout: Option<Box<MakeSpec>>,
    },
    /// open.
    Open { ino: Ino, open: OpenMode },
    /// read; `noatime` with O_NOATIME, `direct` if it may be past the kernel's page cache. The answer is data, or a job to read it with.
    Read { ino: Ino, offset: u64, len: u32, noatime: bool, direct: bool },
    /// write, `direct` past the kernel's page cache; `kill_privileges` by somebody in these groups.
    Write {
        ino: Ino,
        offset: u64,
        data: WriteData,
        append: bool,
        direct: bool,
        kill_privileges: Option<Groups>,
    },
    /// The kernel writes pages back that were stored to through a mapping. It does so for invalidations too, which others
    /// may be waiting for: so this asks nobody for anything but the content, and privileges stay, as with any mapping.
    WritePages { ino: Ino, offset: u64, data: WriteData },
    /// close of one descriptor: locks of the owner go.
    Flush { ino: Ino, owner: LockOwner },
    /// Last close of a handle. `flock` drops the owner's flock.
    Release { ino: Ino, handle: HandleId, flock: Option<LockOwner> },
    /// fsync, fdatasync; of a file or a directory.
    Fsync { ino: Ino },
    /// readdir; with attributes if `plus`, `noatime` with O_NOATIME.
    ReadDir { ino: Ino, after: u64, plus: bool, noatime: bool, sink: Box<dyn DirSink> },
    /// statfs.
    StatFs,
    /// getxattr.
    GetXattr { ino: Ino, name: Box<[u8]> },
    /// listxattr. Only who `is_trusted` is told of trusted attributes.
    ListXattr { ino: Ino, is_trusted: bool },
    /// setxattr.
    SetXattr { ino: Ino, name: Box<[u8]>, value: Box<[u8]>, mode: XattrMode, only_owner: Option<u32> },
    /// removexattr.
    RemoveXattr { ino: Ino, name: Box<[u8]>, only_owner: Option<u32> },
    /// fallocate, through `handle`: room for a range, a hole, or zeros.
    Allocate {
        ino: Ino,
        offset: u64,
        len: u64,
        mode: AllocateMode,
        handle: HandleId,
        kill_privileges: Option<Groups>,
    },
    /// copy_file_range, to `ino` through `handle`. NotSupported: the bytes are to be read and written.
    Copy {
        from: Ino,
        from_offset: u64,
        ino: Ino,
        offset: u64,
        len: u64,
        handle: HandleId,
        kill_privileges: Option<Groups>,
    },
    /// lseek for data or holes.
    Seek { ino: Ino, offset: u64, for_hole: bool },
    /// Takes an application's lock, through an open file.
    SetLock { lock: ByteLock, handle: HandleId, wait: bool },
    /// Gives it up.
    Unlock { lock: ByteLock },
    /// Looks for one in the way.
    TestLock { lock: ByteLock },
}

impl Request {
    /// The names that it is about.
    pub(crate) fn names(&self) -> Vec<(Ino, Name)> {
        let list: &[(&Ino, &[u8])] = match self {
            Self::Lookup { parent, name }
            | Self::Find { parent, name, .. }
            | Self::Make { parent, name, .. }
            | Self::Create { parent, name, .. }
            | Self::Link { parent, name, .. }
            | Self::Unlink { parent, name, .. }
            | Self::Rmdir { parent, name, .. } => &[(parent, name)],
            Self::Rename { parent, name, new_parent, new_name, .. } => {
                &[(parent, name), (new_parent, new_name)]
            }
            _ => &[],
        };
        list.iter().filter_map(|(parent, name)| Some((**parent, Name::new(name).ok()?))).collect()
    }

    /// Whom sticky directories bind in it.
    pub fn bound(&mut self) -> Option<&mut Option<u32>> {
        match self {
            Self::Unlink { bound, .. } | Self::Rmdir { bound, .. } | Self::Rename { bound, .. } => {
                Some(bound)
            }
            _ => None,
        }
    }

    /// The name that it makes, under which the kernel has found nothing.
    pub(crate) fn made(&self) -> Option<(Ino, &[u8])> {
        match self {
            Self::Make { parent, name, .. }
            | Self::Create { parent, name, .. }
            | Self::Link { parent, name, .. } => Some((*parent, name)),
            _ => None,
        }
    }

    /// The directories for which the kernel has a lock that excludes changes of names there, as far as that is certain: some LOOKUPs are made without.
    pub(crate) fn locked(&self) -> [Option<Ino>; 2] {
        match self {
            Self::Make { parent, .. }
            | Self::Create { parent, .. }
            | Self::Link { parent, .. }
            | Self::Unlink { parent, .. }
            | Self::Rmdir { parent, .. } => [Some(*parent), None],
            Self::ReadDir { ino, .. }
            | Self::SetAttr { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::RemoveXattr { ino, .. } => [Some(*ino), None],
            Self::Rename { parent, new_parent, .. } => [Some(*parent), Some(*new_parent)],
            _ => [None, None],
        }
    }

    /// The directory within which it is made.
    pub(crate) fn within(&self) -> Option<Ino> {
        match self {
            Self::Lookup { parent, .. }
            | Self::Find { parent, .. }
            | Self::Make { parent, .. }
            | Self::Create { parent, .. }
            | Self::TmpFile { parent, .. }
            | Self::Unlink { parent, .. }
            | Self::Rmdir { parent, .. } => Some(*parent),
            _ => None,
        }
    }

    /// The file whose content or locks it is about.
    pub(crate) fn content_of(&self) -> Option<Ino> {
        match self {
            Self::Read { ino, .. }
            | Self::Write { ino, .. }
            | Self::WritePages { ino, .. }
            | Self::Flush { ino, .. }
            | Self::Fsync { ino }
            | Self::Allocate { ino, .. }
            | Self::Copy { ino, .. }
            | Self::Seek { ino, .. }
            | Self::SetAttr { ino, size: Some(_), .. } => Some(*ino),
            Self::SetLock { lock, .. } | Self::TestLock { lock } => Some(lock.ino),
            Self::Lookup { .. }
            | Self::Find { .. }
            | Self::Itself { .. }
            | Self::Parent { .. }
            | Self::GetAttr { .. }
            | Self::Stat { .. }
            | Self::SetAttr { size: None, .. }
            | Self::ReadLink { .. }
            | Self::Make { .. }
            | Self::Create { .. }
            | Self::TmpFile { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Rmdir { .. }
            | Self::Rename { .. }
            | Self::Open { .. }
            | Self::Release { .. }
            | Self::ReadDir { .. }
            | Self::StatFs
            | Self::GetXattr { .. }
            | Self::ListXattr { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::Unlock { .. } => None,
        }
    }

    /// The file whose content it may have changed, other than by a write, which counts what it adds itself; or whom that counts for.
    pub(crate) fn content_changed(&self) -> Option<Ino> {
        match self {
            Self::SetAttr { ino, set, .. }
                if set.uid.is_some() || set.gid.is_some() || set.tree.is_some() =>
            {
                Some(*ino)
            }
            Self::Allocate { ino, .. }
            | Self::Copy { ino, .. }
            | Self::SetAttr { ino, size: Some(_), .. } => Some(*ino),
            _ => None,
        }
    }

    /// Whether it looks for an inode under a name, rather than being about one that the kernel knows.
    pub(crate) fn finds_by_name(&self) -> bool {
        match self {
            Self::Lookup { .. }
            | Self::Find { .. }
            | Self::Make { .. }
            | Self::Create { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Rmdir { .. }
            | Self::Rename { .. } => true,
            Self::GetAttr { .. }
            | Self::Stat { .. }
            | Self::Itself { .. }
            | Self::Parent { .. }
            | Self::SetAttr { .. }
            | Self::ReadLink { .. }
            | Self::TmpFile { .. }
            | Self::Open { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::WritePages { .. }
            | Self::Flush { .. }
            | Self::Release { .. }
            | Self::Fsync { .. }
            | Self::ReadDir { .. }
            | Self::StatFs
            | Self::GetXattr { .. }
            | Self::ListXattr { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::Allocate { .. }
            | Self::Copy { .. }
            | Self::Seek { .. }
            | Self::SetLock { .. }
            | Self::Unlock { .. }
            | Self::TestLock { .. } => false,
        }
    }

    /// The inode that the kernel found by a path, which it walks again if this is stale. None of these holds pages.
    pub(crate) fn inode_on_path(&self) -> Option<Ino> {
        match self {
            Self::GetAttr { ino }
            | Self::Stat { ino }
            | Self::ReadLink { ino }
            | Self::Open { ino, .. }
            | Self::ReadDir { ino, .. }
            | Self::GetXattr { ino, .. }
            | Self::ListXattr { ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// What it is about: the inode, or the directory of a name.
    pub fn subject(&self) -> Option<Ino> {
        match self {
            Self::GetAttr { ino }
            | Self::Stat { ino }
            | Self::Itself { ino }
            | Self::Parent { ino }
            | Self::SetAttr { ino, .. }
            | Self::ReadLink { ino }
            | Self::Open { ino, .. }
            | Self::Read { ino, .. }
            | Self::Write { ino, .. }
            | Self::WritePages { ino, .. }
            | Self::Flush { ino, .. }
            | Self::Release { ino, .. }
            | Self::Fsync { ino }
            | Self::ReadDir { ino, .. }
            | Self::GetXattr { ino, .. }
            | Self::ListXattr { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::RemoveXattr { ino, .. }
            | Self::Allocate { ino, .. }
            | Self::Copy { ino, .. }
            | Self::Seek { ino, .. } => Some(*ino),
            Self::SetLock { lock, .. } | Self::Unlock { lock } | Self::TestLock { lock } => Some(lock.ino),
            Self::TmpFile { parent, .. } => Some(*parent),
            _ => self.names().first().map(|(parent, _)| *parent),
        }
    }

    /// The label under which it is counted.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Lookup { .. } | Self::Find { .. } | Self::Itself { .. } | Self::Parent { .. } => {
                OperationKind::Lookup
            }
            Self::GetAttr { .. } | Self::Stat { .. } => OperationKind::Getattr,
            Self::SetAttr { size: None, .. } => OperationKind::Setattr,
            Self::SetAttr { size: Some(_), .. } => OperationKind::Truncate,
            Self::ReadLink { .. } => OperationKind::Readlink,
            Self::Make { spec, .. } => spec.operation_kind(),
            Self::Create { .. } | Self::TmpFile { .. } => OperationKind::Create,
            Self::Link { .. } => OperationKind::Link,
            Self::Unlink { .. } => OperationKind::Unlink,
            Self::Rmdir { .. } => OperationKind::Rmdir,
            Self::Rename { .. } => OperationKind::Rename,
            Self::Open { .. } => OperationKind::Open,
            Self::Read { .. } => OperationKind::Read,
            Self::Write { .. } | Self::WritePages { .. } => OperationKind::Write,
            Self::Flush { .. } | Self::Release { .. } => OperationKind::Release,
            Self::Fsync { .. } => OperationKind::Fsync,
            Self::ReadDir { .. } => OperationKind::Readdir,
            Self::StatFs => OperationKind::Statfs,
            Self::GetXattr { .. } => OperationKind::Getxattr,
            Self::ListXattr { .. } => OperationKind::Listxattr,
            Self::SetXattr { .. } => OperationKind::Setxattr,
            Self::RemoveXattr { .. } => OperationKind::Removexattr,
            Self::Allocate { .. } => OperationKind::Fallocate,
            Self::Copy { .. } => OperationKind::Copy,
            Self::Seek { .. } => OperationKind::Read,
            Self::SetLock { .. } | Self::Unlock { .. } | Self::TestLock { .. } => OperationKind::Lock,
        }
    }
}

impl MakeSpec {
    /// The label under which making it is counted.
    pub(crate) fn operation_kind(&self) -> OperationKind {
        match self.kind {
            FileKind::Directory => OperationKind::Mkdir,
            FileKind::Symlink => OperationKind::Symlink,
            FileKind::File
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => OperationKind::Mknod,
        }
    }
}

/// Bytes to write, owned while the request waits.
#[derive(Debug)]
pub struct WriteData(pub Box<[u8]>);

/// What fallocate is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Nothing but perhaps a larger size.
    Extend,
    /// Nothing at all: room beyond the end without changing the size.
    KeepSize,
    /// A hole; the size stays.
    PunchHole,
    /// Zeros; the size may grow.
    ZeroRange,
    /// Zeros; the size stays.
    ZeroRangeKeepSize,
}

/// A new inode, as the application describes it.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are those of mknod(2)")]
pub struct MakeSpec {
    pub kind: FileKind,
    pub mode: u32,
    pub umask: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub target: Box<[u8]>,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// For writing (mappings may then store at any time until the handle is released).
    pub write: bool,
    /// For reading as well as writing, without which nothing can be mapped to be stored to.
    pub map: bool,
    /// With O_APPEND.
    pub append: bool,
    /// With O_SYNC or O_DSYNC.
    pub sync: bool,
}

/// Whether the kernel may keep what it is told until it is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// As long as it likes: a token stands behind it.
    Yes,
    /// Not at all.
    No,
}

/// Attributes as a user sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are those of stat(2)")]
pub struct Attr {
    pub ino: Ino,
    pub generation: u32,
    pub kind: FileKind,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub size: u64,
    /// The directory tree that it is charged to, 0 for none.
    pub tree: u32,
    /// Bytes stored.
    pub stored_bytes: u64,
    pub atime: Timespec,
    pub mtime: Timespec,
    pub ctime: Timespec,
    pub btime: Timespec,
}

/// A name resolved: the kernel's count of lookups of the inode goes up by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub attr: Attr,
    /// Whether the name may be kept.
    pub keep_name: Keep,
    /// Whether the attributes may be kept.
    pub keep_attr: Keep,
}

/// A file opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// To pass to Release.
    pub handle: HandleId,
    /// Pages must not be cached through this handle.
    pub direct: bool,
    /// Whether pages cached before the open stay.
    pub keep_pages: Keep,
}

/// Whole pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSpan {
    /// The first byte.
    pub start: u64,
    /// The one behind the last.
    pub end: u64,
}

impl PageSpan {
    /// Both, and what lies between.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Pages of a cached write that the kernel has read since it filled them, or may have: they may show what was there before. What lies between two of them is
/// not locked for the write either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reread {
    /// They were read since the write came: no lock of its keeps them.
    pub surely: Option<PageSpan>,
    /// They were read before. They are there, or the write has locked what the kernel has filled in their place.
    pub perhaps: Option<PageSpan>,
}

impl Reread {
    /// None.
    pub const NONE: Self = Self { surely: None, perhaps: None };

    /// Whether there are any.
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// An answer.
#[derive(Debug)]
pub enum Reply {
    /// Refused.
    Error(FsError),
    /// Done.
    Done,
    /// A name resolved or made.
    Entry(Entry),
    /// No such name.
    NoEntry(Keep),
    /// A file made and opened.
    Created(Entry, Opened),
    /// Another was first, and what it made is held for a second: [`Request::Find`] finds it, even if it is removed meanwhile.
    Met(Ino),
    /// Attributes.
    Attr(Attr, Keep),
    /// A file opened.
    Opened(Opened),
    /// Bytes: of a file, a link's target, an attribute or a list of names.
    Data(Vec<u8>),
    /// Bytes that are still to be read from segments: run the job, then [`crate::Core::read_done`].
    ReadJob(ReadJob),
    /// Bytes taken. `moved` says that they went elsewhere than the kernel believes (O_APPEND).
    Written {
        /// How many.
        len: u32,
        /// Where they went, if not where the kernel thought.
        moved_to: Option<u64>,
        /// Of a write through the kernel's pages: which of those that it writes, as the kernel believes, have been read since.
        reread: Reread,
        /// Where the kernel may have pages that show what was there before.
        shield: Option<Shield>,
    },
    /// Bytes copied; fewer than asked for need not mean the end of the source.
    Copied {
        /// How many.
        len: u64,
        /// Where the kernel may have pages that show what was there before.
        shield: Option<Shield>,
    },
    /// A range of a file is zeros; the kernel may have pages that show what was there before.
    Emptied(Shield),
    /// A directory's entries.
    Dir(Box<dyn DirSink>),
    /// Figures of the volume.
    StatFs(StatFs),
    /// An offset found.
    Offset(u64),
    /// The lock in the way, or none.
    Lock(Option<ByteLock>),
}

impl Reply {
    /// What has to be taken back from the kernel before it is answered.
    pub fn shield(&self) -> Option<Shield> {
        match self {
            Self::Written { shield, .. } | Self::Copied { shield, .. } => *shield,
            Self::Emptied(shield) => Some(*shield),
            _ => None,
        }
    }

    /// The same, nothing of which the kernel keeps longer than for its question.
    pub(crate) fn not_to_be_kept(self) -> Self {
        let once = |entry: Entry| Entry { keep_name: Keep::No, keep_attr: Keep::No, ..entry };
        match self {
            Self::Attr(attr, _) => Self::Attr(attr, Keep::No),
            Self::Entry(entry) => Self::Entry(once(entry)),
            Self::Created(entry, opened) => Self::Created(once(entry), opened),
            other => other,
        }
    }
}

/// A write that is done at once, if it can be.
#[derive(Clone, Copy, Debug)]
pub struct WriteNow<'a> {
    /// The file.
    pub ino: Ino,
    /// Where, in bytes; nothing to those that append.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
    /// How it comes.
    pub via: Via,
    /// No limits of accounts bind who asks.
    pub is_exempt: bool,
}

/// How bytes that are written come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Through the kernel's page cache.
    Cache {
        /// To the end, wherever that is.
        append: bool,
    },
    /// Past it.
    Direct {
        /// To the end, wherever that is.
        append: bool,
    },
    /// The kernel writes back what was stored through mappings.
    WriteBack,
}

/// A range of a file that has changed, and that write-back of the kernel's older pages leaves alone. Take these pages back, then call
/// [`crate::Core::lower_shield`], then answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the range, in bytes")]
pub struct Shield {
    /// Among all that were raised.
    pub number: u64,
    pub ino: Ino,
    pub offset: u64,
    pub len: u64,
}

impl Shield {
    /// The bytes that it is before.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + self.len
    }
}

/// Figures of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are those of statvfs(3), in bytes")]
pub struct StatFs {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub available_bytes: u64,
    pub inodes_used: u64,
}

/// Takes directory entries in the form that the asker wants.
pub trait DirSink: Send + std::fmt::Debug {
    /// Adds an entry; `offset` continues after it. Returns false, and adds nothing, when full.
    ///
    /// `entry` is given only when attributes were asked for and are at hand.
    fn push(&mut self, name: &[u8], ino: Ino, kind: FileKind, offset: u64, entry: Option<&Entry>) -> bool;

    /// For the asker to find its own type again.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// Bytes to gather from segments and memory.
#[derive(Debug)]
pub struct ReadJob {
    /// The file.
    pub ino: Ino,
    /// Length of the answer in bytes.
    pub len: usize,
    /// Parts to read from segments: where in the answer, and what.
    pub parts: Vec<(usize, chunk::Extent)>,
    /// Bytes that are newer, to lay over: where in the answer, and what.
    pub overlay: Vec<(usize, Box<[u8]>)>,
    /// Pin to give to [`crate::Core::read_done`].
    pub pin: u64,
}
