//! Extended attributes. Writing runs as an operation.

use meta::ops::{AttrSet, XattrMode, check_xattr_name};
use meta::{FsError, InodeAttr, Op, Xattrs};
use obs::OperationKind;
use types::{Ino, LockMode, Name, ResourceId};
use wire::{FetchWhat, Want};

use crate::cache::Place;
use crate::core::Core;
use crate::jobs::Purpose;
use crate::namespace::checked;
use crate::outputs::Invalidation;
use crate::request::{Keep, Reply};
use crate::wait::{Progress, Step, Try};

/// How the number of a directory tree is read and set. It is shown by no list, and kept with the inode.
const TREE_XATTR: &[u8] = b"trusted.holdfast.tree";

/// What the names of access lists begin with.
pub(crate) const ACL_PREFIX: &[u8] = b"system.posix_acl_";

/// A name of an extended attribute, which is recorded as the names of files are: one with a slash is of none, and cannot be given.
fn xattr_name(name: &[u8], with_slash: FsError) -> Try<Name> {
    if name.contains(&b'/') { Err(with_slash.into()) } else { checked(name) }
}

/// The operation that charges an inode to the tree whose number is given in decimal, 0 for none.
fn set_tree(ino: Ino, value: &[u8]) -> Result<Op, FsError> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    let tree = Some(number.ok_or(FsError::Invalid)?);
    Ok(Op::SetAttr { ino, set: AttrSet { tree, ..AttrSet::default() } })
}

impl Core {
    pub(crate) fn try_getxattr(&mut self, ino: Ino, name: &[u8], progress: &mut Progress) -> Try<Reply> {
        let name = xattr_name(name, FsError::NoAttribute)?;
        if name.as_bytes() == TREE_XATTR {
            return match self.attr_of(ino, progress)?.0.tree {
                0 => Err(FsError::NoAttribute.into()),
                tree => Ok(Reply::Data(tree.to_string().into_bytes())),
            };
        }
        check_xattr_name(&name)?;
        let list = self.xattrs(ino, progress)?;
        if name.as_bytes().starts_with(ACL_PREFIX) {
            self.note_list_told(ino);
        }
        self.metrics.operations_local.add(OperationKind::Getxattr, 1);
        match list.into_iter().find(|(n, _)| *n == name) {
            Some((_, value)) => Ok(Reply::Data(value.into_vec())),
            None => Err(FsError::NoAttribute.into()),
        }
    }

    /// The kernel keeps access lists beside the attributes, and however long it may keep those: they are taken back with them, or at once.
    fn note_list_told(&mut self, ino: Ino) {
        match self.attr_here(ino) {
            Some((_, Keep::Yes)) => {
                self.known.note(ino).note_attr_out();
                self.note_out(ino);
            }
            Some((_, Keep::No)) | None => {
                self.invalidate(Purpose::Alone, vec![Invalidation::Attr { ino }], Vec::new());
            }
        }
    }

    pub(crate) fn try_setxattr(
        &mut self,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
        only_owner: Option<u32>,
        progress: &mut Progress,
    ) -> Try<Reply> {
        let name = xattr_name(name, FsError::NotSupported)?;
        self.need_place(ino)?;
        let op = match name.as_bytes() == TREE_XATTR {
            true => set_tree(ino, value)?,
            false => Op::SetXattr { ino, name, value: value.into(), mode, only_owner },
        };
        self.run_op(&op, OperationKind::Setxattr, progress)?;
        self.finish(Reply::Done, progress)
    }

    pub(crate) fn try_removexattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        only_owner: Option<u32>,
        progress: &mut Progress,
    ) -> Try<Reply> {
        let name = xattr_name(name, FsError::NoAttribute)?;
        self.need_place(ino)?;
        let op = match name.as_bytes() == TREE_XATTR {
            true => set_tree(ino, b"0")?,
            false => Op::RemoveXattr { ino, name, only_owner },
        };
        self.run_op(&op, OperationKind::Removexattr, progress)?;
        self.finish(Reply::Done, progress)
    }

    pub(crate) fn try_listxattr(
        &mut self,
        ino: Ino,
        is_trusted: bool,
        progress: &mut Progress,
    ) -> Try<Reply> {
        let list = self.xattrs(ino, progress)?;
        self.metrics.operations_local.add(OperationKind::Listxattr, 1);
        Ok(Reply::Data(names_shown(&list, is_trusted)))
    }

    fn xattrs(&mut self, ino: Ino, progress: &mut Progress) -> Try<Vec<(Name, Box<[u8]>)>> {
        // An empty list says that they are in the record by now, or that this is gone.
        let fetched = progress.xattrs.take();
        progress.empty_fetches += u32::from(fetched.as_ref().is_some_and(Vec::is_empty));
        let fetched = fetched.filter(|list| !list.is_empty());
        match (self.attr_half(ino, progress), fetched) {
            (Ok(Xattrs::Embedded { list }), _) => Ok(list.to_vec()),
            (Ok(Xattrs::Spilled {}), None) if progress.empty_fetches > EMPTY_FETCHES_MAX => {
                log::error!("metadata: the list of extended attributes of ino {ino} is missing");
                Err(FsError::Io.into())
            }
            (Ok(Xattrs::Spilled {}), None) => Err(Step::Wait(self.fetch(FetchWhat::Xattrs { ino }))),
            // As they were when they were fetched, if the record has gone since.
            (Ok(Xattrs::Spilled {}) | Err(Step::Wait(_)), Some(list)) => Ok(list),
            (Err(step), _) => Err(step),
        }
    }

    /// Whether the file has capabilities, which any write takes away, the superuser's too.
    pub(crate) fn has_capability(&self, ino: Ino) -> bool {
        let attr = match self.place(ino) {
            Place::Covered(parent, cookie) => {
                let entry = self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie));
                entry
                    .filter(|e| e.dirent.ino == ino)
                    .and_then(|e| e.dirent.covered())
                    .map(|inode| &inode.attr)
            }
            Place::Own => self.cache.owns.get(&ino).and_then(|own| own.attr.as_ref()),
            Place::Unknown => None,
        };
        match attr.map(|attr| &attr.xattrs) {
            Some(Xattrs::Embedded { list }) => list.iter().any(|(name, _)| name.as_bytes() == CAPABILITY),
            Some(Xattrs::Spilled {}) => true,
            None => false,
        }
    }

    /// The attributes embedded in the names' half of an inode, under a token.
    fn attr_half(&mut self, ino: Ino, progress: &mut Progress) -> Try<Xattrs> {
        let xattrs = |attr: &InodeAttr| attr.xattrs.clone();
        if self.cache.dirs.contains_key(&ino) && self.may_read_dir(ino) {
            if let Some(dir) = self.cache.dirs.get(&ino) {
                return Ok(xattrs(&dir.inode.attr));
            }
        }
        if self.tokens.usable(ResourceId::attr(ino)).permits(LockMode::Pr)
            && let Some(attr) = self.cache.owns.get(&ino).and_then(|own| own.attr.as_ref())
        {
            return Ok(xattrs(attr));
        }
        if let Place::Covered(parent, cookie) = self.place(ino)
            && self.may_read_dir(parent)
            && let Some(entry) = self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie))
            && let Some(inode) = entry.dirent.covered().filter(|_| entry.dirent.ino == ino)
        {
            return Ok(xattrs(&inode.attr));
        }
        if let Some(inode) = progress.glimpse_of(ino) {
            return Ok(inode.attr.xattrs.clone());
        }
        Err(Step::Wait(self.want(Want::Attr { ino })))
    }
}

/// The names of a list as listxattr(2) gives them. Only who `is_trusted` is told of trusted attributes.
pub(crate) fn names_shown(list: &[(Name, Box<[u8]>)], is_trusted: bool) -> Vec<u8> {
    let mut names = Vec::new();
    let is_shown = |name: &Name| is_trusted || !name.as_bytes().starts_with(b"trusted.");
    for (name, _) in list.iter().filter(|(name, _)| is_shown(name)) {
        names.extend_from_slice(name.as_bytes());
        names.push(0);
    }
    names
}

pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Lists that have moved into the record each time that they were asked for, and out of it again: then they are not there at all.
const EMPTY_FETCHES_MAX: u32 = 8;
