//! create, mknod, mkdir, symlink: a new inode under a new name.

use std::sync::Arc;

use types::{Ino, LockMode, Name};

use super::acl::Acl;
use super::attributes::{self, ACL_ACCESS, ACL_DEFAULT, XattrList};
use super::parent::{Parent, free_cookie};
use super::{NewInode, OpContext, OpReply, Plan};
use crate::change::Change;
use crate::cookie::Cookie;
use crate::error::FsError;
use crate::record::{Body, Child, Content, Dirent, FileKind, Inode, InodeAttr, Xattrs};
use crate::view::{View, ViewError};

/// Generation of a new inode. Numbers are never reused, so the first generation is the only one.
pub const FIRST_GENERATION: u32 = 1;

/// Plans a new inode under a new name.
pub(super) fn plan(
    view: &impl View,
    context: &OpContext,
    parent: Ino,
    name: &Name,
    new: &NewInode,
    split: bool,
) -> Result<Plan, ViewError> {
    let mut dir = Parent::load(view, parent, LockMode::Ex)?;
    let cookie = free_cookie(view, parent, name)?;
    let (inode, inherited) = birth(view, context, &dir, new)?;
    if new.kind == FileKind::Directory {
        dir.add_subdirectory()?;
    }
    dir.touch(context.now);
    let home = match new.kind {
        FileKind::Directory => Home::Directory,
        FileKind::File if split => Home::Own,
        FileKind::File
        | FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice => Home::Entry,
    };
    let count = match home {
        Home::Entry | Home::Directory => Some(inode.count()),
        Home::Own => None,
    };
    let cover = match home {
        Home::Entry => parent,
        Home::Directory => new.ino,
        Home::Own => Ino(0),
    };
    let (inode, spilled) = with_xattrs(new.ino, cover, inode, inherited);
    let mut changes = settle(home, (parent, cookie, name), new.ino, inode);
    changes.extend(spilled);
    changes.push(dir.into_change());
    changes.extend(count);
    Ok(Plan { changes, reply: OpReply::Inode { ino: new.ino } })
}

/// Makes the record of a new inode with one link, and the extended attributes that it inherits.
pub(super) fn birth(
    view: &impl View,
    context: &OpContext,
    dir: &Parent,
    new: &NewInode,
) -> Result<(Inode, XattrList), ViewError> {
    let body = body_of(new)?;
    let (mode, inherited) = inherit(view, dir, new)?;
    let dir_attr = &dir.inode.attr;
    let is_setgid = dir_attr.mode & SETGID != 0;
    let is_directory = new.kind == FileKind::Directory;
    let is_device = matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice);
    let now = context.now;
    let attr = InodeAttr {
        kind: new.kind,
        mode: if is_setgid && is_directory { mode | SETGID } else { mode },
        uid: new.uid,
        gid: if is_setgid { dir_attr.gid } else { new.gid },
        tree: dir_attr.tree,
        nlink: if is_directory { 2 } else { 1 },
        rdev: if is_device { new.rdev } else { 0 },
        generation: FIRST_GENERATION,
        parent: dir.ino,
        btime: now,
        ctime: now,
        xattrs: Xattrs::NONE,
    };
    let content = Content { size: body.stored_bytes(), mtime: now, atime: now, ctime: now, body };
    Ok((Inode { attr, content }, inherited))
}

/// Puts inherited attributes into a new record, or beside it.
pub(super) fn with_xattrs(
    ino: Ino,
    cover: Ino,
    mut inode: Inode,
    list: XattrList,
) -> (Inode, Option<Change>) {
    let (xattrs, spilled) = attributes::store(ino, cover, &inode.attr.xattrs, list);
    inode.attr.xattrs = xattrs;
    (inode, spilled)
}

/// Mode and inherited lists, as `posix_acl_create` in `linux:fs/posix_acl.c`.
fn inherit(view: &impl View, dir: &Parent, new: &NewInode) -> Result<(u32, XattrList), ViewError> {
    if new.kind == FileKind::Symlink {
        return Ok((0o777, Vec::new()));
    }
    let asked = new.mode & 0o7777;
    let dir_list = attributes::load(view, dir.ino, &dir.inode.attr.xattrs)?;
    let Some(stored) = attributes::value_of(&dir_list, ACL_DEFAULT) else {
        return Ok((asked & !new.umask, Vec::new()));
    };
    // It was checked when it was set: a bad one is damage.
    let mut acl = Acl::parse(stored).ok().flatten().ok_or(FsError::Io)?;
    let mode = acl.narrow_to(asked);
    let mut list = Vec::new();
    if !acl.is_mode_alone() {
        attributes::set(&mut list, attributes::constant(ACL_ACCESS)?, acl.to_bytes());
    }
    if new.kind == FileKind::Directory {
        attributes::set(&mut list, attributes::constant(ACL_DEFAULT)?, stored.into());
    }
    Ok((mode, list))
}

fn body_of(new: &NewInode) -> Result<Body, FsError> {
    match (new.kind, new.target.len()) {
        (FileKind::Symlink, 0) => Err(FsError::Invalid),
        (FileKind::Symlink, len) if len > TARGET_LEN_MAX => Err(FsError::NameTooLong),
        (FileKind::Symlink, _) => Ok(Body::Target { path: new.target.clone() }),
        (_, 0) => Ok(Body::Empty {}),
        (_, _) => Err(FsError::Invalid),
    }
}

/// Where a new record goes.
#[derive(Clone, Copy)]
enum Home {
    Entry,
    Directory,
    Own,
}

fn settle(home: Home, at: (Ino, Cookie, &Name), ino: Ino, inode: Inode) -> Vec<Change> {
    let (parent, cookie, name) = at;
    let put_entry =
        |child| Change::PutEntry { parent, cookie, entry: Dirent { name: name.clone(), ino, child } };
    let kind = inode.attr.kind;
    // Those of the directory follow, and of what the inode inherits and is charged to.
    let mut changes = Vec::with_capacity(CHANGES);
    match home {
        Home::Entry => changes.extend([
            put_entry(Child::Covered { inode: Arc::new(inode) }),
            Change::PutPlacement { ino, parent, cookie },
        ]),
        Home::Directory => changes
            .extend([put_entry(Child::Own { kind }), Change::PutDirectory { ino, inode: Box::new(inode) }]),
        Home::Own => changes.extend([
            put_entry(Child::Own { kind }),
            Change::PutAttr { ino, attr: inode.attr },
            Change::PutContent { ino, content: inode.content },
        ]),
    }
    changes
}

/// Of a creation, at most.
const CHANGES: usize = 6;
/// `PATH_MAX` without its NUL.
const TARGET_LEN_MAX: usize = 4095;
const SETGID: u32 = 0o2000;
