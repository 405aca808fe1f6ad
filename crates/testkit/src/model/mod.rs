//! A tree of files as POSIX and Linux define it, in the plainest way that is right.
//!
//! Nothing is counted that can be looked up: link counts are found by searching the tree.

mod acl;
mod attributes;
mod content;
mod names;

use std::collections::{BTreeMap, BTreeSet};

use meta::ops::{NewInode, OpContext, OpReply};
use meta::{FileKind, FsError, Op};
use types::{Ino, NodeId, Timespec};

/// What an operation answers.
pub type Outcome = Result<OpReply, FsError>;

/// A tree, its orphans, and who has what open.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<Ino, Node>,
    opens: BTreeMap<Ino, BTreeSet<NodeId>>,
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Type.
    pub kind: FileKind,
    /// Permission bits, setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Last read.
    pub atime: Timespec,
    /// Last change of the bytes or entries.
    pub mtime: Timespec,
    /// Last change.
    pub ctime: Timespec,
    /// Birth.
    pub btime: Timespec,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What is in it.
    pub body: NodeBody,
    /// Made without a name and never linked since: may get its first link.
    pub is_linkable: bool,
}

/// What is in an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeBody {
    /// Names and inodes.
    Directory {
        /// The entries.
        entries: BTreeMap<Vec<u8>, Ino>,
    },
    /// The bytes of a regular file.
    File {
        /// All of them, holes as zeros.
        bytes: Vec<u8>,
    },
    /// The target of a symbolic link.
    Symlink {
        /// The path.
        target: Vec<u8>,
    },
    /// Nothing: pipes, sockets, devices.
    Special,
}

impl Tree {
    /// A root directory of mode 0755.
    pub fn new(now: Timespec, uid: u32, gid: u32) -> Self {
        let root = Node {
            kind: FileKind::Directory,
            mode: 0o755,
            uid,
            gid,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            xattrs: BTreeMap::new(),
            body: NodeBody::Directory { entries: BTreeMap::new() },
            is_linkable: false,
        };
        Self { nodes: BTreeMap::from([(Ino::ROOT, root)]), opens: BTreeMap::new() }
    }

    /// All inodes, orphans included.
    pub fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(ino, node)| (*ino, node))
    }

    /// One inode.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// Entries of a directory.
    pub fn entries(&self, ino: Ino) -> Option<&BTreeMap<Vec<u8>, Ino>> {
        match &self.nodes.get(&ino)?.body {
            NodeBody::Directory { entries } => Some(entries),
            NodeBody::File { .. } | NodeBody::Symlink { .. } | NodeBody::Special => None,
        }
    }

    /// Link count as stat shows it.
    pub fn nlink(&self, ino: Ino) -> u32 {
        let names = self.nodes.keys().filter_map(|dir| self.entries(*dir));
        let links = names.flat_map(BTreeMap::values).filter(|child| **child == ino).count() as u32;
        match self.entries(ino) {
            Some(_) if links == 0 && ino != Ino::ROOT => 0,
            Some(entries) => 2 + entries.values().filter(|child| self.is_directory(**child)).count() as u32,
            None => links,
        }
    }

    /// The directory that a directory is in; none of the root and of removed ones.
    pub fn parent_of(&self, dir: Ino) -> Option<Ino> {
        self.nodes
            .keys()
            .copied()
            .find(|at| self.entries(*at).is_some_and(|entries| entries.values().any(|child| *child == dir)))
    }

    /// Nodes that have the inode open.
    pub fn openers(&self, ino: Ino) -> Vec<NodeId> {
        self.opens.get(&ino).into_iter().flatten().copied().collect()
    }

    /// Everything that is open.
    pub fn opens(&self) -> impl Iterator<Item = (Ino, NodeId)> {
        self.opens.iter().flat_map(|(ino, nodes)| nodes.iter().map(|node| (*ino, *node)))
    }

    /// `node` opens an inode.
    pub fn open(&mut self, ino: Ino, node: NodeId) -> Result<(), FsError> {
        if !self.nodes.contains_key(&ino) {
            return Err(FsError::NotFound);
        }
        self.opens.entry(ino).or_default().insert(node);
        Ok(())
    }

    /// `node` closes an inode. An orphan stays until [`Op::Reclaim`].
    pub fn close(&mut self, ino: Ino, node: NodeId) {
        if let Some(nodes) = self.opens.get_mut(&ino) {
            nodes.remove(&node);
            if nodes.is_empty() {
                self.opens.remove(&ino);
            }
        }
    }

    /// Runs an operation as a user would see it.
    pub fn perform(&mut self, op: &Op, context: &OpContext) -> Outcome {
        let now = context.now;
        match op {
            Op::Create { parent, name, new, .. } => self.create(*parent, name.as_bytes(), new, now),
            Op::CreateOrphan { parent, new } => self.create_unnamed(*parent, new, context),
            Op::Link { ino, parent, name } => self.link(*ino, *parent, name.as_bytes(), now),
            Op::Unlink { parent, name, bound, .. } => self.unlink(*parent, name.as_bytes(), *bound, now),
            Op::Rmdir { parent, name, bound, .. } => self.rmdir(*parent, name.as_bytes(), *bound, now),
            Op::Rename { parent, name, new_parent, new_name, mode, bound, whiteout, .. } => {
                let (from, to) = ((*parent, name.as_bytes()), (*new_parent, new_name.as_bytes()));
                let left = match whiteout {
                    Some(new) => Some((new.ino, self.newborn(*parent, new, now)?)),
                    None => None,
                };
                let done = self.rename(from, to, *mode, *bound, now)?;
                // Nothing is moved from one name of an inode to another.
                if let Some((ino, node)) = left.filter(|_| !self.has_name(*parent, name.as_bytes())) {
                    self.nodes.insert(ino, node);
                    self.put_name(*parent, name.as_bytes(), ino, now);
                }
                Ok(done)
            }
            Op::SetAttr { ino, set } => self.set_attr(*ino, set, now),
            Op::SetXattr { ino, name, value, mode, only_owner } => {
                self.set_xattr(*ino, (name.as_bytes(), value), *mode, *only_owner, now)
            }
            Op::RemoveXattr { ino, name, only_owner } => {
                self.remove_xattr(*ino, name.as_bytes(), *only_owner, now)
            }
            Op::Split { ino } | Op::Merge { ino } => {
                self.existing(*ino)?;
                Ok(OpReply::Inode { ino: *ino })
            }
            Op::TellOwner { .. } => Ok(OpReply::Done),
            Op::Reclaim { ino } => Ok(OpReply::Removed { ino: *ino, deleted: self.reclaim(*ino) }),
        }
    }

    fn create_unnamed(&mut self, parent: Ino, new: &NewInode, context: &OpContext) -> Outcome {
        if new.kind != FileKind::File {
            return Err(FsError::Invalid);
        }
        self.directory(parent)?;
        let node = Node { is_linkable: true, ..self.newborn(parent, new, context.now)? };
        self.nodes.insert(new.ino, node);
        self.opens.entry(new.ino).or_default().insert(context.node);
        Ok(OpReply::Inode { ino: new.ino })
    }

    /// Deletes an inode that has neither name nor opener.
    fn reclaim(&mut self, ino: Ino) -> bool {
        let is_kept = self.nlink(ino) > 0 || self.opens.contains_key(&ino);
        !is_kept && self.nodes.remove(&ino).is_some()
    }

    fn is_directory(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.kind == FileKind::Directory)
    }

    fn existing(&self, ino: Ino) -> Result<&Node, FsError> {
        self.nodes.get(&ino).ok_or(FsError::NotFound)
    }

    fn existing_mut(&mut self, ino: Ino) -> Result<&mut Node, FsError> {
        self.nodes.get_mut(&ino).ok_or(FsError::NotFound)
    }

    /// Entries of a directory that names can be made in.
    fn directory(&self, ino: Ino) -> Result<&BTreeMap<Vec<u8>, Ino>, FsError> {
        self.existing(ino)?;
        let entries = self.entries(ino).ok_or(FsError::NotDirectory)?;
        if self.nlink(ino) == 0 { Err(FsError::NotFound) } else { Ok(entries) }
    }
}
