//! Changes: what plans make, the write-behind log keeps, batches carry and caches apply.

use chunk::ExtentMap;
use types::{Charge, Ino, Name, NodeId, ResourceId, SegmentId, codec_enum};

use crate::cookie::Cookie;
use crate::record::{Body, Content, Dirent, FileKind, Inode, InodeAttr, StoredInode, Xattrs};

/// One change of the metadata. Applying a list of them in order, whole, is atomic.
///
/// Every change belongs to at most one resource, [`Change::resource`], and only its EX holder or the master
/// may make it (see `docs/locking.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes or replaces an entry.
    PutEntry {
        /// The directory.
        parent: Ino,
        /// The entry's place.
        cookie: Cookie,
        /// The entry.
        entry: Dirent,
    },
    /// Removes an entry.
    DeleteEntry {
        /// The directory.
        parent: Ino,
        /// The entry's place.
        cookie: Cookie,
        /// Its name, for caches.
        name: Name,
    },
    /// Says that a covered child's record is in this entry.
    PutPlacement {
        /// The child.
        ino: Ino,
        /// The directory that covers it.
        parent: Ino,
        /// The entry's place.
        cookie: Cookie,
    },
    /// Makes or replaces a directory's own record.
    PutDirectory {
        /// The directory.
        ino: Ino,
        /// Its record.
        inode: Box<Inode>,
    },
    /// Makes or replaces the names' half of an uncovered inode that is no directory.
    PutAttr {
        /// The inode.
        ino: Ino,
        /// The names' half.
        attr: InodeAttr,
    },
    /// Makes or replaces the content of an uncovered inode.
    PutContent {
        /// The inode.
        ino: Ino,
        /// The content.
        content: Content,
    },
    /// Removes an inode and everything under its keys but its extent pages. `resource` says who may.
    DeleteInode {
        /// The inode.
        ino: Ino,
        /// Directory that covered it, 0 if none did.
        parent: Ino,
        /// Type.
        kind: FileKind,
    },
    /// Removes the content key of an inode that a directory covers again.
    DeleteContent {
        /// The inode.
        ino: Ino,
    },
    /// Replaces one page of extents; an empty map removes it. Belongs to whatever covers the content.
    PutExtentPage {
        /// The inode.
        ino: Ino,
        /// Directory that covers it, 0 if none does.
        parent: Ino,
        /// Page number: file offset / [`crate::Body::PAGE_SPAN`].
        page: u64,
        /// Its extents.
        map: ExtentMap,
    },
    /// Removes all pages of extents from `from_page` on and gives their space back.
    DeleteExtentPages {
        /// The inode.
        ino: Ino,
        /// Directory that covers it, 0 if none does.
        parent: Ino,
        /// First page to go.
        from_page: u64,
    },
    /// Replaces the spilled extended attributes; an empty list removes the key.
    PutXattrs {
        /// The inode.
        ino: Ino,
        /// Directory that covers it, 0 if none does; its own number for a directory.
        parent: Ino,
        /// Names and values.
        list: Vec<(Name, Box<[u8]>)>,
    },
    /// Records an inode without a name and who has it open.
    PutOrphan {
        /// The inode.
        ino: Ino,
        /// Nodes that have it open.
        holders: Vec<NodeId>,
    },
    /// Forgets an orphan (it is deleted in the same list, or linked again).
    DeleteOrphan {
        /// The inode.
        ino: Ino,
    },
    /// Changes the volume's totals, and what its accounts use. Inodes that have keys and no entry for their record are not counted so: what
    /// they come to is found when changes are applied, for who writes their content need not know whose they are.
    AddUsage {
        /// Whom it is charged to.
        charge: Charge,
        /// Bytes stored.
        bytes: i64,
        /// Inodes.
        inodes: i64,
    },
    /// Changes how many bytes of a segment committed extents name.
    AddLive {
        /// The segment.
        segment: SegmentId,
        /// Bytes more or fewer.
        bytes: i64,
    },
    /// Keeps bytes of a segment until they are durable there, so that extents may name them before. At the next opening of the volume they are
    /// written to their place again.
    PutRedo {
        /// The segment.
        segment: SegmentId,
        /// Where they lie in it.
        offset: u64,
        /// The bytes: a run with its header.
        bytes: Box<[u8]>,
    },
    /// Says that kept bytes are durable in their segment.
    DeleteRedo {
        /// The segment.
        segment: SegmentId,
        /// Where they lie in it.
        offset: u64,
    },
    /// Says that the owner or the group of an inode is another, which every kernel that has the inode judges by. Changes nothing
    /// that is stored.
    Owner {
        /// The inode.
        ino: Ino,
    },
}

codec_enum!(Change, "change", {
    1 => PutEntry { parent, cookie, entry },
    2 => DeleteEntry { parent, cookie, name },
    3 => PutPlacement { ino, parent, cookie },
    4 => PutDirectory { ino, inode },
    5 => PutAttr { ino, attr },
    6 => PutContent { ino, content },
    7 => DeleteInode { ino, parent, kind },
    8 => DeleteContent { ino },
    9 => PutExtentPage { ino, parent, page, map },
    10 => DeleteExtentPages { ino, parent, from_page },
    11 => PutXattrs { ino, parent, list },
    12 => PutOrphan { ino, holders },
    13 => DeleteOrphan { ino },
    15 => AddLive { segment, bytes },
    16 => Owner { ino },
    17 => AddUsage { charge, bytes, inodes },
    18 => PutRedo { segment, offset, bytes },
    19 => DeleteRedo { segment, offset },
});

/// What a change writes: of two that write the same the later one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKey {
    /// An entry of a directory, by its cookie.
    Entry(Ino, u64),
    /// The record of an inode.
    Inode(Ino),
    /// The content of an inode with keys of its own.
    Content(Ino),
    /// A page of extents.
    Page(Ino, u64),
    /// All pages of extents from one on.
    Pages(Ino, u64),
    /// Spilled extended attributes.
    Xattrs(Ino),
    /// An inode without a name.
    Orphan(Ino),
    /// Bytes kept of a segment.
    Redo(SegmentId, u64),
}

impl Change {
    /// What it writes; `None` for sums, and for what writes nothing.
    pub fn key(&self) -> Option<ChangeKey> {
        Some(match self {
            Self::PutEntry { parent, cookie, .. } | Self::DeleteEntry { parent, cookie, .. } => {
                ChangeKey::Entry(*parent, cookie.0)
            }
            Self::PutPlacement { ino, .. }
            | Self::PutDirectory { ino, .. }
            | Self::PutAttr { ino, .. }
            | Self::DeleteInode { ino, .. } => ChangeKey::Inode(*ino),
            Self::PutContent { ino, .. } | Self::DeleteContent { ino } => ChangeKey::Content(*ino),
            Self::PutExtentPage { ino, page, .. } => ChangeKey::Page(*ino, *page),
            Self::DeleteExtentPages { ino, from_page, .. } => ChangeKey::Pages(*ino, *from_page),
            Self::PutXattrs { ino, .. } => ChangeKey::Xattrs(*ino),
            Self::PutOrphan { ino, .. } | Self::DeleteOrphan { ino } => ChangeKey::Orphan(*ino),
            Self::PutRedo { segment, offset, .. } | Self::DeleteRedo { segment, offset } => {
                ChangeKey::Redo(*segment, *offset)
            }
            Self::AddUsage { .. } | Self::AddLive { .. } | Self::Owner { .. } => return None,
        })
    }

    /// The resource that the changed keys belong to; `None` for sums, orphan records and what is kept of segments, which commute, and for what changes none.
    pub fn resource(&self) -> Option<ResourceId> {
        match self {
            Self::PutEntry { parent, .. }
            | Self::DeleteEntry { parent, .. }
            | Self::PutPlacement { parent, .. } => Some(ResourceId::dir(*parent)),
            Self::PutDirectory { ino, .. } => Some(ResourceId::dir(*ino)),
            Self::PutAttr { ino, .. } => Some(ResourceId::attr(*ino)),
            Self::PutContent { ino, .. } | Self::DeleteContent { ino } => Some(ResourceId::file(*ino)),
            Self::DeleteInode { ino, parent, kind } => Some(match (kind, parent.0) {
                (FileKind::Directory, _) => ResourceId::dir(*ino),
                (_, 0) => ResourceId::attr(*ino),
                (_, _) => ResourceId::dir(*parent),
            }),
            Self::PutExtentPage { ino, parent, .. } | Self::DeleteExtentPages { ino, parent, .. } => {
                Some(if parent.0 == 0 { ResourceId::file(*ino) } else { ResourceId::dir(*parent) })
            }
            Self::PutXattrs { ino, parent, .. } => {
                Some(if parent.0 == 0 { ResourceId::attr(*ino) } else { ResourceId::dir(*parent) })
            }
            Self::PutOrphan { .. }
            | Self::DeleteOrphan { .. }
            | Self::AddUsage { .. }
            | Self::AddLive { .. }
            | Self::PutRedo { .. }
            | Self::DeleteRedo { .. }
            | Self::Owner { .. } => None,
        }
    }

    /// The inode, with keys of its own before or after, that it may count anew.
    pub fn own_inode(&self) -> Option<Ino> {
        match self {
            Self::PutAttr { ino, .. } | Self::PutContent { ino, .. } | Self::DeleteContent { ino } => {
                Some(*ino)
            }
            Self::DeleteInode { ino, parent: Ino(0), kind } if *kind != FileKind::Directory => Some(*ino),
            _ => None,
        }
    }

    /// Bytes of its byte form, at most: what senders split by.
    pub fn encoded_len_max(&self) -> usize {
        FIXED_LEN
            + match self {
                Self::PutEntry { entry, .. } => {
                    entry.name.as_bytes().len()
                        + entry.covered().map_or(0, |inode| {
                            INODE_LEN + body_len(&inode.content.body) + xattrs_len(&inode.attr.xattrs)
                        })
                }
                Self::PutDirectory { inode, .. } => {
                    INODE_LEN + body_len(&inode.content.body) + xattrs_len(&inode.attr.xattrs)
                }
                Self::PutAttr { attr, .. } => INODE_LEN + xattrs_len(&attr.xattrs),
                Self::PutContent { content, .. } => INODE_LEN + body_len(&content.body),
                Self::PutExtentPage { map, .. } => map_len(map),
                Self::PutXattrs { list, .. } => list_len(list),
                Self::DeleteEntry { name, .. } => name.as_bytes().len(),
                Self::PutOrphan { holders, .. } => holders.len() * NUMBER_LEN,
                Self::PutRedo { bytes, .. } => bytes.len(),
                Self::PutPlacement { .. }
                | Self::DeleteInode { .. }
                | Self::DeleteContent { .. }
                | Self::DeleteExtentPages { .. }
                | Self::DeleteOrphan { .. }
                | Self::AddUsage { .. }
                | Self::AddLive { .. }
                | Self::DeleteRedo { .. }
                | Self::Owner { .. } => 0,
            }
    }

    /// The stored inode value of a change that writes an inode key.
    pub fn stored_inode(&self) -> Option<(Ino, StoredInode)> {
        match self {
            Self::PutPlacement { ino, parent, cookie } => {
                Some((*ino, StoredInode::Covered { parent: *parent, cookie: *cookie }))
            }
            Self::PutDirectory { ino, inode } => {
                Some((*ino, StoredInode::Directory { inode: inode.clone() }))
            }
            Self::PutAttr { ino, attr } => Some((*ino, StoredInode::Own { attr: attr.clone() })),
            _ => None,
        }
    }
}

fn body_len(body: &Body) -> usize {
    match body {
        Body::Inline { data } => data.len(),
        Body::Target { path } => path.len(),
        Body::Extents { map } => map_len(map),
        Body::Empty {} | Body::Paged { .. } => 0,
    }
}

/// Five numbers and a sum for each block; the first and the last block of an extent may be in part.
fn map_len(map: &ExtentMap) -> usize {
    map.len() * EXTENT_LEN + map.mapped_bytes() as usize / 4096
}

fn xattrs_len(xattrs: &Xattrs) -> usize {
    match xattrs {
        Xattrs::Embedded { list } => list_len(list),
        Xattrs::Spilled {} => 0,
    }
}

fn list_len(list: &[(Name, Box<[u8]>)]) -> usize {
    list.iter().map(|(name, value)| name.as_bytes().len() + value.len() + 8).sum()
}

/// Of any change: tags, inode numbers, a cookie, lengths.
const FIXED_LEN: usize = 48;
/// Numbers of an inode record.
const INODE_LEN: usize = 176;
const EXTENT_LEN: usize = 56;
const NUMBER_LEN: usize = 5;

#[cfg(test)]
mod tests;
