//! A volume to plan on, and short forms of what tests say often.

use std::sync::Arc;

use meta::ops::NewInode;
use meta::{Body, Change, Child, Cookie, Dirent, FileKind, FsError, Inode, InodeAttr, Lookup, Placement};
use meta::{Op, OpContext, OpReply, Plan, View, ViewError, Xattrs};
use testkit::store::{AuditView, MapStore};
use types::{Ino, LockMode, Name, NodeId, ResourceId, Timespec};

/// When the volume was made and filled.
pub const BEFORE: Timespec = Timespec { secs: 100, nanos: 0 };
/// When the operation under test runs.
pub const NOW: Timespec = Timespec { secs: 200, nanos: 0 };
/// Who runs it.
pub const NODE: NodeId = NodeId(4);

pub struct Volume {
    pub store: MapStore,
    pub holders: Vec<NodeId>,
}

impl Volume {
    pub fn new() -> Self {
        Self { store: MapStore::formatted(BEFORE), holders: Vec::new() }
    }

    /// Makes something before the test; panics if that is refused.
    pub fn with(mut self, op: Op) -> Self {
        self.change(&op);
        self
    }

    pub fn change(&mut self, op: &Op) -> OpReply {
        let plan = self.plan_at(op, BEFORE).expect("the fixture can be made");
        self.store.apply(&plan.changes);
        plan.reply
    }

    pub fn plan(&self, op: &Op) -> Result<Plan, FsError> {
        self.plan_at(op, NOW)
    }

    pub fn changes(&self, op: &Op) -> Vec<Change> {
        self.plan(op).expect("the operation is not refused").changes
    }

    /// EX rights that the plan asks for.
    pub fn ex_rights(&self, op: &Op) -> Vec<ResourceId> {
        let holders = |_| self.holders.clone();
        let view = self.store.view(&holders);
        let audit = AuditView::new(&view);
        let plan = op.plan(&audit, &OpContext { now: NOW, node: NODE }).expect("not refused");
        assert_eq!(audit.first_unheld(&plan.changes), None);
        audit.rights().into_iter().filter(|right| right.1 == LockMode::Ex).map(|right| right.0).collect()
    }

    pub fn inode(&self, ino: Ino) -> Inode {
        self.store.view(&|_| Vec::new()).inode(ino, LockMode::Pr).expect("the inode is there").0
    }

    pub fn placement(&self, ino: Ino) -> Placement {
        self.store.view(&|_| Vec::new()).inode(ino, LockMode::Pr).expect("the inode is there").1
    }

    /// Where `text` is, or would go.
    pub fn cookie(&self, dir: Ino, text: &str) -> Cookie {
        let view = self.store.view(&|_| Vec::new());
        match view.lookup(dir, &name(text), LockMode::Pr).expect("lookup works") {
            Lookup::Found { cookie, .. } | Lookup::Absent { cookie } => cookie,
        }
    }

    /// The record of a directory whose entries changed now and which has `nlink` links.
    pub fn touched(&self, ino: Ino, nlink: u32) -> Change {
        let mut inode = self.inode(ino);
        (inode.attr.ctime, inode.attr.nlink) = (NOW, nlink);
        (inode.content.mtime, inode.content.ctime) = (NOW, NOW);
        Change::PutDirectory { ino, inode: Box::new(inode) }
    }

    pub fn put_covered(&self, dir: Ino, text: &str, ino: Ino, inode: Inode) -> Change {
        let entry = Dirent { name: name(text), ino, child: Child::Covered { inode: Arc::new(inode) } };
        Change::PutEntry { parent: dir, cookie: self.cookie(dir, text), entry }
    }

    pub fn put_own(&self, dir: Ino, text: &str, ino: Ino, kind: FileKind) -> Change {
        let entry = Dirent { name: name(text), ino, child: Child::Own { kind } };
        Change::PutEntry { parent: dir, cookie: self.cookie(dir, text), entry }
    }

    pub fn put_placement(&self, dir: Ino, text: &str, ino: Ino) -> Change {
        Change::PutPlacement { ino, parent: dir, cookie: self.cookie(dir, text) }
    }

    pub fn delete_entry(&self, dir: Ino, text: &str) -> Change {
        Change::DeleteEntry { parent: dir, cookie: self.cookie(dir, text), name: name(text) }
    }

    fn plan_at(&self, op: &Op, now: Timespec) -> Result<Plan, FsError> {
        let holders = |_| self.holders.clone();
        let view = self.store.view(&holders);
        op.plan(&view, &OpContext { now, node: NODE }).map_err(|error| match error {
            ViewError::Refused(error) => error,
            ViewError::Missing(missing) => panic!("the master's view lacks {missing:?}"),
        })
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a fixed name is valid")
}

pub fn new_inode(ino: u64, kind: FileKind, mode: u32) -> NewInode {
    let target: &[u8] = if kind == FileKind::Symlink { b"to" } else { b"" };
    NewInode { ino: Ino(ino), kind, mode, umask: 0o022, uid: 7, gid: 8, rdev: 0, target: target.into() }
}

pub fn create(dir: u64, text: &str, new: NewInode) -> Op {
    Op::Create { parent: Ino(dir), name: name(text), new, split: false }
}

pub fn file(dir: u64, text: &str, ino: u64) -> Op {
    create(dir, text, new_inode(ino, FileKind::File, 0o666))
}

pub fn mkdir(dir: u64, text: &str, ino: u64) -> Op {
    create(dir, text, new_inode(ino, FileKind::Directory, 0o777))
}

pub fn split(ino: u64) -> Op {
    Op::Split { ino: Ino(ino) }
}

pub fn link(ino: u64, dir: u64, text: &str) -> Op {
    Op::Link { ino: Ino(ino), parent: Ino(dir), name: name(text) }
}

pub fn unlink(dir: u64, text: &str) -> Op {
    Op::Unlink { parent: Ino(dir), name: name(text), open_here: false, bound: None }
}

/// Attributes of something made now by [`new_inode`]'s owner in `parent`.
/// What counts bytes and inodes of who makes everything here.
pub fn usage(bytes: i64, inodes: i64) -> Change {
    Change::AddUsage { charge: types::Charge { uid: 7, gid: 8, tree: 0 }, bytes, inodes }
}

pub fn attr(kind: FileKind, mode: u32, nlink: u32, parent: u64) -> InodeAttr {
    InodeAttr {
        kind,
        mode,
        uid: 7,
        gid: 8,
        tree: 0,
        nlink,
        rdev: 0,
        generation: 1,
        parent: Ino(parent),
        btime: NOW,
        ctime: NOW,
        xattrs: Xattrs::NONE,
    }
}

pub fn content(body: Body) -> meta::Content {
    meta::Content { size: body.stored_bytes(), mtime: NOW, atime: NOW, ctime: NOW, body }
}

/// `inode` with the change time of its names' half set to now.
pub fn stamped(mut inode: Inode) -> Inode {
    inode.attr.ctime = NOW;
    inode
}

/// An access control list with a named user: owner, user 5, group, mask, others.
pub fn acl(perms: [u16; 5]) -> Box<[u8]> {
    let mut bytes = vec![2, 0, 0, 0];
    for ((tag, id), perm) in
        [(1u16, u32::MAX), (2, 5), (4, u32::MAX), (16, u32::MAX), (32, u32::MAX)].into_iter().zip(perms)
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes.into()
}

pub fn set_xattr(ino: u64, text: &str, value: &[u8]) -> Op {
    let mode = meta::ops::XattrMode::Any;
    Op::SetXattr { ino: Ino(ino), name: name(text), value: value.into(), mode, only_owner: None }
}
