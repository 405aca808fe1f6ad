//! Inodes that are gone for good and that somebody still looks at: a FIFO or a device, of whose opens the kernel tells nobody, a file that
//! is only named by a descriptor (O_PATH), a directory that somebody stands in.
//!
//! What is asked of their attributes is answered with the last that were seen here, until the kernel forgets the inode. What is set
//! is seen here alone: whoever has it open on another node goes on with what was seen there.

use std::sync::Arc;

use meta::ops::{OpContext, XattrList, list_xattrs, read_xattr};
use meta::{
    Body, Change, Content, Cookie, Dirent, FileKind, FsError, Inode, InodeAttr, Lookup, Op, Placement, View,
    ViewError, Xattrs,
};
use rustc_hash::FxHashMap;
use types::{Ino, LockMode, Name, NodeId, ResourceId};

use crate::core::Core;
use crate::late::as_shown;
use crate::request::{Attr, Keep, Reply, Request};
use crate::xattr::{ACL_PREFIX, names_shown};

/// What was seen of them last. Of an inode that has another name now they are not asked for.
#[derive(Debug, Default)]
pub(crate) struct Gone(FxHashMap<Ino, Last>);

/// What was seen of an inode last.
#[derive(Debug)]
struct Last {
    /// What stat shows.
    attr: Attr,
    /// The rest: extended attributes, and where a symbolic link leads.
    inode: Arc<Inode>,
    /// Attributes that are too many for the record.
    spilled: XattrList,
    /// What extended attributes it had is not known: there were too many for the record, or none was seen. Nothing of them is told, and none can be
    /// set, but for the access lists, which the kernel judges by.
    hides_xattrs: bool,
}

impl Last {
    /// Whether an extended attribute of this name is known to be there or not.
    fn tells_of(&self, name: &[u8]) -> bool {
        !self.hides_xattrs || name.starts_with(ACL_PREFIX)
    }
}

impl Gone {
    /// The kernel has forgotten it, or it has a name again.
    pub fn forget(&mut self, ino: Ino) {
        if !self.0.is_empty() {
            self.0.remove(&ino);
        }
    }

    fn keep(&mut self, attr: Attr, inode: Arc<Inode>) {
        let hides_xattrs = matches!(inode.attr.xattrs, Xattrs::Spilled {});
        self.0.insert(attr.ino, Last { attr, inode, spilled: XattrList::new(), hides_xattrs });
    }

    /// Keeps what stat shows of an inode whose record was not seen.
    fn keep_attr(&mut self, attr: Attr) {
        let (inode, spilled) = (Arc::new(record_of(&attr)), XattrList::new());
        self.0.insert(attr.ino, Last { attr, inode, spilled, hides_xattrs: true });
    }
}

impl Core {
    /// Keeps what was seen of inodes whose record went away here, where the kernel has them: with what is newer than the record, as long as that is here.
    pub(crate) fn keep_departed(&mut self) {
        for (ino, inode) in std::mem::take(&mut self.cache.departed) {
            if self.known.get(&ino).is_some_and(|known| known.lookups > 0) {
                let attr = Attr { nlink: 0, ctime: self.clock.wall, ..self.visible(ino, &inode) };
                self.gone.keep(attr, inode);
            }
        }
    }

    /// Keeps what was seen of a file without a name that is given up here, where the kernel has it.
    pub(crate) fn keep_given_up(&mut self, ino: Ino) {
        let is_known = self.known.get(&ino).is_some_and(|known| known.lookups > 0);
        if let Some((attr, _)) = self.attr_here(ino).filter(|_| is_known) {
            let attr = Attr { nlink: 0, ..attr };
            match self.cache.owns.get(&ino).and_then(|own| own.attr.clone()) {
                Some(own) => self.gone.keep(attr, Arc::new(Inode { attr: own, ..record_of(&attr) })),
                None => self.gone.keep_attr(attr),
            }
        }
    }

    /// A directory of which nothing was here is no more: the next look at it is answered with what the kernel judges it by. Whoever goes on in it, and
    /// has the kernel walk there once more, is to learn that nothing is in it.
    pub(crate) fn keep_judged(&mut self, request: &Request) {
        let (Request::GetAttr { ino } | Request::Stat { ino }) = request else { return };
        let Some(known) = self.known.get(ino).filter(|known| known.lookups > 0) else { return };
        if known.seat.place().is_none() {
            return;
        }
        let now = self.clock.wall;
        let attr = Attr {
            ino: *ino,
            generation: known.end.generation(),
            kind: FileKind::Directory,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            tree: 0,
            stored_bytes: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let attr = known.judged.told_last(attr);
        self.gone.keep_attr(attr);
    }

    /// The answer to what is asked of an inode that is no more.
    pub(crate) fn last_look(&mut self, request: &Request) -> Option<Reply> {
        match request {
            Request::GetAttr { ino } | Request::Stat { ino } => {
                self.gone.0.get(ino).map(|last| Reply::Attr(last.attr, Keep::No))
            }
            Request::GetXattr { ino, name } => {
                let last = self.gone.0.get(ino).filter(|last| last.tells_of(name))?;
                let value = read_xattr(&last.inode, &last.spilled, name);
                Some(value.map_or_else(Reply::Error, |value| Reply::Data(value.to_vec())))
            }
            Request::ListXattr { ino, is_trusted } => {
                let last = self.gone.0.get(ino).filter(|last| !last.hides_xattrs)?;
                Some(Reply::Data(names_shown(list_xattrs(&last.inode, &last.spilled), *is_trusted)))
            }
            Request::ReadLink { ino } => match &self.gone.0.get(ino)?.inode.content.body {
                Body::Target { path } => Some(Reply::Data(path.to_vec())),
                _ => None,
            },
            Request::SetAttr { ino, set, size: None } => {
                let changed = self.change_last(&Op::SetAttr { ino: *ino, set: set.clone() }, *ino)?;
                Some(changed.map_or_else(Reply::Error, |attr| Reply::Attr(attr, Keep::No)))
            }
            Request::SetXattr { ino, name, value, mode, only_owner } => {
                self.gone.0.get(ino).filter(|last| last.tells_of(name))?;
                let (name, value) = (Name::new(&**name).ok()?, value.clone());
                let op = Op::SetXattr { ino: *ino, name, value, mode: *mode, only_owner: *only_owner };
                Some(self.change_last(&op, *ino)?.map_or_else(Reply::Error, |_| Reply::Done))
            }
            Request::RemoveXattr { ino, name, only_owner } => {
                self.gone.0.get(ino).filter(|last| last.tells_of(name))?;
                let op =
                    Op::RemoveXattr { ino: *ino, name: Name::new(&**name).ok()?, only_owner: *only_owner };
                Some(self.change_last(&op, *ino)?.map_or_else(Reply::Error, |_| Reply::Done))
            }
            _ => None,
        }
    }

    /// Carries an operation out on what was seen of an inode last, which it changes by the rules for any other. `None` if nothing was.
    fn change_last(&mut self, op: &Op, ino: Ino) -> Option<Result<Attr, FsError>> {
        let Last { attr, inode, spilled, hides_xattrs } = self.gone.0.get(&ino)?;
        let hides_xattrs = *hides_xattrs;
        let content = Content { body: inode.content.body.clone(), ..record_of(attr).content };
        let xattrs = inode.attr.xattrs.clone();
        let names = InodeAttr { xattrs, parent: inode.attr.parent, ..record_of(attr).attr };
        let view = LastView { ino, inode: Inode { attr: names, content }, spilled };
        let plan = match op.plan(&view, &OpContext { now: self.clock.wall, node: self.me }) {
            Ok(plan) => plan,
            Err(ViewError::Refused(error)) => return Some(Err(error)),
            Err(ViewError::Missing(_)) => return None,
        };
        let (mut inode, mut spilled) = (view.inode, spilled.clone());
        for change in plan.changes {
            match change {
                Change::PutAttr { attr, .. } => inode.attr = attr,
                Change::PutContent { content, .. } => inode.content = content,
                Change::PutDirectory { inode: new, .. } => inode = *new,
                Change::PutXattrs { list, .. } => spilled = list,
                // It is charged to nobody any more.
                _ => {}
            }
        }
        let attr = Attr { stored_bytes: attr.stored_bytes, ..self.visible(ino, &inode) };
        self.gone.0.insert(ino, Last { attr, inode: Arc::new(inode), spilled, hides_xattrs });
        Some(Ok(attr))
    }
}

/// A record as `attr` tells of it.
fn record_of(attr: &Attr) -> Inode {
    let Attr { kind, mode, nlink, uid, gid, rdev, size, tree, stored_bytes, .. } = *attr;
    let Attr { generation, atime, mtime, ctime, btime, .. } = *attr;
    let (parent, xattrs) = (Ino(0), Xattrs::embedded(Vec::new()));
    Inode {
        attr: InodeAttr { kind, mode, uid, gid, tree, nlink, rdev, generation, parent, btime, ctime, xattrs },
        content: Content { size, mtime, atime, ctime, body: as_shown(stored_bytes) },
    }
}

/// One inode, which nobody else can have.
struct LastView<'a> {
    ino: Ino,
    inode: Inode,
    spilled: &'a XattrList,
}

impl View for LastView<'_> {
    fn inode(&self, ino: Ino, _mode: LockMode) -> Result<(Inode, Placement), ViewError> {
        match ino == self.ino {
            true => Ok((self.inode.clone(), Placement::Own {})),
            false => Err(FsError::Stale.into()),
        }
    }

    fn content_right(&self, _ino: Ino, _mode: LockMode) -> Result<(), ViewError> {
        Ok(())
    }

    fn right(&self, _resource: ResourceId, _mode: LockMode) -> Result<(), ViewError> {
        Ok(())
    }

    fn spilled_xattrs(&self, _ino: Ino) -> Result<XattrList, ViewError> {
        Ok(self.spilled.clone())
    }

    fn open_holders(&self, _ino: Ino) -> Vec<NodeId> {
        Vec::new()
    }

    fn lookup(&self, _dir: Ino, _name: &Name, _mode: LockMode) -> Result<Lookup, ViewError> {
        Err(FsError::NotFound.into())
    }

    fn entry_of(&self, _dir: Ino, _ino: Ino) -> Result<Option<(Cookie, Dirent)>, ViewError> {
        Ok(None)
    }

    fn is_empty(&self, _dir: Ino) -> Result<bool, ViewError> {
        Ok(true)
    }

    fn is_below(&self, _ino: Ino, _above: Ino) -> Result<bool, ViewError> {
        Ok(false)
    }

    fn name_hash(&self, _name: &Name) -> u64 {
        0
    }
}
