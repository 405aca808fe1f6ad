//! Records: what the engine stores under a key, and what messages carry.
//!
//! An inode's attributes come in two halves that travel apart. [`InodeAttr`] is what chmod, chown, link and
//! rename change: it belongs to the stream of names and is ordered with them. [`Content`] is what writes and
//! truncation change: each file has a stream of its own (invariant 3). The times a user sees are the later
//! of the two halves'.

use std::ops::Deref;
use std::sync::Arc;

use chunk::{ExtentMap, FILE_SIZE_MAX};
use types::{
    Charge, CodecError, Decode, Decoder, Encode, Encoder, Ino, Name, Timespec, codec_enum, codec_struct,
};

use crate::change::Change;
use crate::cookie::Cookie;
use crate::ops::XattrList;

/// Type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

codec_enum!(FileKind, "file kind", {
    1 => File {}, 2 => Directory {}, 3 => Symlink {}, 4 => Fifo {}, 5 => Socket {},
    6 => CharDevice {}, 7 => BlockDevice {},
});

/// The half of an inode that the stream of names changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeAttr {
    /// Type.
    pub kind: FileKind,
    /// Permission bits, setuid, setgid and sticky: 0 to 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Directory tree that it is charged to, as quotas count; 0 for none.
    pub tree: u32,
    /// Names of the inode; of a directory 2 and one for each subdirectory.
    pub nlink: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// For file handles; fixed at birth.
    pub generation: u32,
    /// Of a directory: its parent (the root's is itself). Of others: the directory of the only link, if known;
    /// 0 when there are several. Without a link: 0, or the directory that an O_TMPFILE was made for, which
    /// may still be linked.
    pub parent: Ino,
    /// Birth.
    pub btime: Timespec,
    /// Last change of this half.
    pub ctime: Timespec,
    /// Extended attributes.
    pub xattrs: Xattrs,
}

impl InodeAttr {
    /// Whom the inode is charged to.
    pub fn charge(&self) -> Charge {
        Charge { uid: self.uid, gid: self.gid, tree: self.tree }
    }
}

/// The number of the tree stands at the end, and only if there is one: a bit of the mode says so.
impl Encode for InodeAttr {
    fn encode(&self, out: &mut Encoder) {
        let Self { kind, mode, uid, gid, tree, nlink, rdev, generation, parent, btime, ctime, xattrs } = self;
        kind.encode(out);
        let flag = if *tree == 0 { 0 } else { MODE_HAS_TREE };
        (mode | flag).encode(out);
        for number in [uid, gid, nlink, rdev, generation] {
            number.encode(out);
        }
        parent.encode(out);
        btime.encode(out);
        ctime.encode(out);
        xattrs.encode(out);
        if *tree != 0 {
            tree.encode(out);
        }
    }
}

impl Decode for InodeAttr {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let kind = FileKind::decode(input)?;
        let mode = u32::decode(input)?;
        if mode & !(MODE_HAS_TREE | MODE_BITS) != 0 {
            return Err(CodecError::OutOfRange { what: "mode", value: u64::from(mode) });
        }
        let mut attr = Self {
            kind,
            mode: mode & MODE_BITS,
            uid: u32::decode(input)?,
            gid: u32::decode(input)?,
            tree: 0,
            nlink: u32::decode(input)?,
            rdev: u32::decode(input)?,
            generation: u32::decode(input)?,
            parent: Ino::decode(input)?,
            btime: Timespec::decode(input)?,
            ctime: Timespec::decode(input)?,
            xattrs: Xattrs::decode(input)?,
        };
        if mode & MODE_HAS_TREE != 0 {
            attr.tree = u32::decode(input)?;
            if attr.tree == 0 {
                return Err(CodecError::Invalid { what: "tree" });
            }
        }
        Ok(attr)
    }
}

/// Permission bits, setuid, setgid and sticky.
const MODE_BITS: u32 = 0o7777;
const MODE_HAS_TREE: u32 = 0o10000;

/// Extended attributes, in name order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Xattrs {
    /// All of them, names and values; together at most [`Xattrs::EMBEDDED_BYTES_MAX`].
    Embedded {
        /// Name and value.
        list: FewXattrs,
    },
    /// Under the inode's own key.
    Spilled {},
}

codec_enum!(Xattrs, "extended attributes", { 1 => Embedded { list }, 2 => Spilled {} });

impl Xattrs {
    /// Bytes of names and values up to which they stay in the record.
    pub const EMBEDDED_BYTES_MAX: usize = 1024;

    /// None.
    pub const NONE: Self = Self::Embedded { list: FewXattrs(None) };

    /// These, which are few.
    pub fn embedded(list: XattrList) -> Self {
        Self::Embedded { list: list.into() }
    }
}

/// The extended attributes in a record. Most inodes have none, which then takes no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FewXattrs(Option<Arc<XattrList>>);

impl From<XattrList> for FewXattrs {
    fn from(list: XattrList) -> Self {
        Self((!list.is_empty()).then(|| Arc::new(list)))
    }
}

impl Deref for FewXattrs {
    type Target = [(Name, Box<[u8]>)];

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().map_or(&[], |list| list)
    }
}

impl Encode for FewXattrs {
    fn encode(&self, out: &mut Encoder) {
        static NONE: XattrList = Vec::new();
        self.0.as_deref().unwrap_or(&NONE).encode(out);
    }
}

impl Decode for FewXattrs {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        XattrList::decode(input).map(Self::from)
    }
}

/// The half of an inode that writes change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Logical size in bytes.
    pub size: u64,
    /// Last change of the bytes; of a directory, of its entries.
    pub mtime: Timespec,
    /// Last read, kept lazily.
    pub atime: Timespec,
    /// Last change of this half.
    pub ctime: Timespec,
    /// The bytes, or where they are.
    pub body: Body,
}

impl Encode for Content {
    fn encode(&self, out: &mut Encoder) {
        let Self { size, mtime, atime, ctime, body } = self;
        size.encode(out);
        mtime.encode(out);
        atime.encode(out);
        ctime.encode(out);
        body.encode(out);
    }
}

impl Decode for Content {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let content = Self {
            size: u64::decode(input)?,
            mtime: Timespec::decode(input)?,
            atime: Timespec::decode(input)?,
            ctime: Timespec::decode(input)?,
            body: Body::decode(input)?,
        };
        for (what, value) in [("file size", content.size), ("stored bytes", content.body.stored_bytes())] {
            if value > FILE_SIZE_MAX {
                return Err(CodecError::OutOfRange { what, value });
            }
        }
        Ok(content)
    }
}

/// The bytes of a file, or where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// No bytes stored: empty, or one hole. Also of everything that is neither file nor symlink.
    Empty {},
    /// The first bytes of the file, at most as many as the volume's header says; up to `size` the rest is a hole.
    Inline {
        /// The bytes.
        data: Box<[u8]>,
    },
    /// Few extents, here.
    Extents {
        /// The map.
        map: ExtentMap,
    },
    /// Many extents, under keys of their own, each page [`Body::PAGE_SPAN`] bytes of the file.
    Paged {
        /// Bytes mapped by all pages.
        mapped_bytes: u64,
    },
    /// Target of a symbolic link.
    Target {
        /// The path.
        path: Box<[u8]>,
    },
}

codec_enum!(Body, "file body", {
    1 => Empty {}, 2 => Inline { data }, 3 => Extents { map }, 4 => Paged { mapped_bytes }, 5 => Target { path },
});

impl Body {
    /// The most that a volume may choose to keep of a file in its record.
    pub const INLINE_BYTES_MAX: usize = 64 << 10;
    /// Extents up to this many stay in the record.
    pub const EXTENTS_EMBEDDED_MAX: usize = 32;
    /// Extents of one page from which on it is stored anew in few. A page has but a few more of them, ever: so
    /// it fits a message, and each fsync logs no more.
    pub const PAGE_EXTENTS_MAX: usize = 1024;
    /// Bytes of a file that one page of extents describes. No extent crosses a page.
    pub const PAGE_SPAN: u64 = 1 << 20;
    /// The same in volumes of versions 1 to 3.
    pub const WIDE_PAGE_SPAN: u64 = 16 << 20;

    /// Bytes stored for the file, as `st_blocks` counts them.
    pub fn stored_bytes(&self) -> u64 {
        match self {
            Self::Empty {} => 0,
            Self::Inline { data } => data.len() as u64,
            Self::Extents { map } => map.mapped_bytes(),
            Self::Paged { mapped_bytes } => *mapped_bytes,
            Self::Target { path } => path.len() as u64,
        }
    }
}

/// Both halves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// The names' half.
    pub attr: InodeAttr,
    /// The bytes' half.
    pub content: Content,
}

codec_struct!(Inode { attr, content });

impl Inode {
    /// The change time a user sees.
    pub fn ctime(&self) -> Timespec {
        self.attr.ctime.max(self.content.ctime)
    }

    /// The change that counts it; of an inode that has its record in an entry, or is a directory.
    pub fn count(&self) -> Change {
        let bytes = self.content.body.stored_bytes() as i64;
        Change::AddUsage { charge: self.attr.charge(), bytes, inodes: 1 }
    }

    /// The change that counts it no more.
    pub fn uncount(&self) -> Change {
        let bytes = self.content.body.stored_bytes() as i64;
        Change::AddUsage { charge: self.attr.charge(), bytes: -bytes, inodes: -1 }
    }
}

/// A stored directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// Name, unique in its directory.
    pub name: Name,
    /// Inode.
    pub ino: Ino,
    /// The inode itself, or that it stands under its own keys.
    pub child: Child,
}

codec_struct!(Dirent { name, ino, child });

/// What a directory entry holds of its inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Child {
    /// Covered by the directory: the record is here and nowhere else.
    Covered {
        /// The record. The cache, the log and its batches have it in common.
        inode: Arc<Inode>,
    },
    /// A directory, an inode with several links, or one that was split out.
    Own {
        /// Type, for readdir.
        kind: FileKind,
    },
}

codec_enum!(Child, "directory child", { 1 => Covered { inode }, 2 => Own { kind } });

impl Dirent {
    /// Type of the inode.
    pub fn kind(&self) -> FileKind {
        match &self.child {
            Child::Covered { inode } => inode.attr.kind,
            Child::Own { kind } => *kind,
        }
    }

    /// The inode, if the directory covers it.
    pub fn covered(&self) -> Option<&Inode> {
        match &self.child {
            Child::Covered { inode } => Some(inode),
            Child::Own { .. } => None,
        }
    }
}

/// Where an inode's record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Embedded in this entry.
    Covered {
        /// The directory.
        parent: Ino,
        /// The entry.
        cookie: Cookie,
    },
    /// Under its own keys.
    Own {},
}

codec_enum!(Placement, "placement", { 1 => Covered { parent, cookie }, 2 => Own {} });

/// Value of an inode key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredInode {
    /// Embedded in a directory entry.
    Covered {
        /// The directory.
        parent: Ino,
        /// The entry.
        cookie: Cookie,
    },
    /// A directory, both halves.
    Directory {
        /// The record.
        inode: Box<Inode>,
    },
    /// Any other uncovered inode: the names' half; the content is under its own key.
    Own {
        /// The names' half.
        attr: InodeAttr,
    },
}

codec_enum!(StoredInode, "stored inode", {
    1 => Covered { parent, cookie }, 2 => Directory { inode }, 3 => Own { attr },
});
