//! What names do: create, link, unlink, rmdir, rename.

use std::collections::BTreeMap;

use meta::ops::{NewInode, OpReply, RenameMode};
use meta::{FileKind, FsError};
use types::{Ino, Timespec};

use super::acl::Acl;
use super::{Node, NodeBody, Outcome, Tree};

impl Tree {
    pub(super) fn create(&mut self, parent: Ino, name: &[u8], new: &NewInode, now: Timespec) -> Outcome {
        if self.directory(parent)?.contains_key(name) {
            return Err(FsError::Exists);
        }
        let node = self.newborn(parent, new, now)?;
        self.nodes.insert(new.ino, node);
        self.put_name(parent, name, new.ino, now);
        Ok(OpReply::Inode { ino: new.ino })
    }

    pub(super) fn link(&mut self, ino: Ino, parent: Ino, name: &[u8], now: Timespec) -> Outcome {
        if self.directory(parent)?.contains_key(name) {
            return Err(FsError::Exists);
        }
        let node = self.existing(ino)?;
        if node.kind == FileKind::Directory {
            return Err(FsError::NotPermitted);
        }
        if self.nlink(ino) == 0 && !node.is_linkable {
            return Err(FsError::NotFound);
        }
        let node = self.existing_mut(ino)?;
        node.is_linkable = false;
        node.ctime = now;
        self.put_name(parent, name, ino, now);
        Ok(OpReply::Inode { ino })
    }

    pub(super) fn unlink(&mut self, parent: Ino, name: &[u8], bound: Option<u32>, now: Timespec) -> Outcome {
        let ino = *self.directory(parent)?.get(name).ok_or(FsError::NotFound)?;
        if self.is_directory(ino) {
            return Err(FsError::IsDirectory);
        }
        self.check_sticky(parent, ino, bound)?;
        self.remove_name(parent, name, now);
        self.existing_mut(ino)?.ctime = now;
        Ok(OpReply::Removed { ino, deleted: self.reclaim(ino) })
    }

    pub(super) fn rmdir(&mut self, parent: Ino, name: &[u8], bound: Option<u32>, now: Timespec) -> Outcome {
        let ino = *self.directory(parent)?.get(name).ok_or(FsError::NotFound)?;
        let is_empty = self.entries(ino).ok_or(FsError::NotDirectory)?.is_empty();
        self.check_sticky(parent, ino, bound)?;
        if !is_empty {
            return Err(FsError::NotEmpty);
        }
        self.remove_name(parent, name, now);
        self.existing_mut(ino)?.ctime = now;
        Ok(OpReply::Removed { ino, deleted: self.reclaim(ino) })
    }

    pub(super) fn rename(
        &mut self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        mode: RenameMode,
        bound: Option<u32>,
        now: Timespec,
    ) -> Outcome {
        self.directory(parent)?;
        self.directory(new_parent)?;
        let ino = *self.directory(parent)?.get(name).ok_or(FsError::NotFound)?;
        let target = self.directory(new_parent)?.get(new_name).copied();
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(FsError::Exists),
            (RenameMode::Exchange, None) => return Err(FsError::NotFound),
            (_, _) => {}
        }
        if self.is_within(new_parent, ino) {
            return Err(FsError::Invalid);
        }
        let Some(target) = target else {
            self.check_sticky(parent, ino, bound)?;
            self.move_name((parent, name), (new_parent, new_name), ino, now);
            return Ok(OpReply::Renamed { ino, replaced: Ino(0) });
        };
        if mode == RenameMode::Exchange && self.is_within(parent, target) {
            return Err(FsError::Invalid);
        }
        if ino == target {
            return Ok(OpReply::Renamed { ino, replaced: Ino(0) });
        }
        match mode {
            RenameMode::Exchange => {
                self.check_sticky(parent, ino, bound)?;
                self.check_sticky(new_parent, target, bound)?;
                self.put_name(parent, name, target, now);
                self.put_name(new_parent, new_name, ino, now);
                self.existing_mut(ino)?.ctime = now;
            }
            RenameMode::Replace | RenameMode::NoReplace => {
                self.check_kinds(ino, target)?;
                self.check_sticky(new_parent, target, bound)?;
                if self.entries(target).is_some_and(|entries| !entries.is_empty()) {
                    return Err(FsError::NotEmpty);
                }
                self.check_sticky(parent, ino, bound)?;
                self.move_name((parent, name), (new_parent, new_name), ino, now);
            }
        }
        self.existing_mut(target)?.ctime = now;
        self.reclaim(target);
        Ok(OpReply::Renamed { ino, replaced: target })
    }

    /// An inode as it is before it gets its name.
    pub(super) fn newborn(&self, parent: Ino, new: &NewInode, now: Timespec) -> Result<Node, FsError> {
        let dir = self.existing(parent)?;
        let mut xattrs = BTreeMap::new();
        let mut mode = match new.kind {
            FileKind::Symlink => 0o777,
            _ => match dir.xattrs.get(super::acl::DEFAULT) {
                None => new.mode & 0o7777 & !new.umask,
                Some(bytes) => {
                    let acl = Acl::parse(bytes)?.ok_or(FsError::Invalid)?;
                    if new.kind == FileKind::Directory {
                        xattrs.insert(super::acl::DEFAULT.to_vec(), bytes.clone());
                    }
                    let (acl, mode) = acl.inherited(new.mode & 0o7777);
                    if acl.has_more_than_mode() {
                        xattrs.insert(super::acl::ACCESS.to_vec(), acl.bytes());
                    }
                    mode
                }
            },
        };
        let mut gid = new.gid;
        if dir.mode & 0o2000 != 0 {
            gid = dir.gid;
            mode |= if new.kind == FileKind::Directory { 0o2000 } else { 0 };
        }
        let rdev = match new.kind {
            FileKind::CharDevice | FileKind::BlockDevice => new.rdev,
            _ => 0,
        };
        Ok(Node {
            kind: new.kind,
            mode,
            uid: new.uid,
            gid,
            rdev,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            xattrs,
            body: body_of(new)?,
            is_linkable: false,
        })
    }

    fn check_kinds(&self, ino: Ino, target: Ino) -> Result<(), FsError> {
        match (self.is_directory(ino), self.is_directory(target)) {
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            (true, true) | (false, false) => Ok(()),
        }
    }

    /// unlink(2), EPERM: of a sticky directory only who owns it or the file removes a name.
    fn check_sticky(&self, dir: Ino, ino: Ino, bound: Option<u32>) -> Result<(), FsError> {
        let (dir, node) = (self.existing(dir)?, self.existing(ino)?);
        match bound {
            Some(uid) if dir.mode & 0o1000 != 0 && uid != dir.uid && uid != node.uid => {
                Err(FsError::NotPermitted)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether `dir` is `above` or somewhere below it.
    fn is_within(&self, dir: Ino, above: Ino) -> bool {
        dir == above || self.parent_of(dir).is_some_and(|parent| self.is_within(parent, above))
    }

    fn move_name(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), ino: Ino, now: Timespec) {
        self.remove_name(from.0, from.1, now);
        self.put_name(to.0, to.1, ino, now);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.ctime = now;
        }
    }

    pub(super) fn has_name(&self, dir: Ino, name: &[u8]) -> bool {
        self.entries(dir).is_some_and(|entries| entries.contains_key(name))
    }

    pub(super) fn put_name(&mut self, dir: Ino, name: &[u8], ino: Ino, now: Timespec) {
        self.change_names(dir, now, |entries| entries.insert(name.to_vec(), ino));
    }

    fn remove_name(&mut self, dir: Ino, name: &[u8], now: Timespec) {
        self.change_names(dir, now, |entries| entries.remove(name));
    }

    fn change_names<T>(
        &mut self,
        dir: Ino,
        now: Timespec,
        change: impl FnOnce(&mut BTreeMap<Vec<u8>, Ino>) -> T,
    ) {
        if let Some(node) = self.nodes.get_mut(&dir)
            && let NodeBody::Directory { entries } = &mut node.body
        {
            change(entries);
            (node.mtime, node.ctime) = (now, now);
        }
    }
}

fn body_of(new: &NewInode) -> Result<NodeBody, FsError> {
    match new.kind {
        FileKind::Symlink if new.target.is_empty() => Err(FsError::Invalid),
        FileKind::Symlink if new.target.len() > 4095 => Err(FsError::NameTooLong),
        FileKind::Symlink => Ok(NodeBody::Symlink { target: new.target.to_vec() }),
        _ if !new.target.is_empty() => Err(FsError::Invalid),
        FileKind::Directory => Ok(NodeBody::Directory { entries: BTreeMap::new() }),
        FileKind::File => Ok(NodeBody::File { bytes: Vec::new() }),
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            Ok(NodeBody::Special)
        }
    }
}
