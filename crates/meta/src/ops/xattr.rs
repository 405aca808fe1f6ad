//! setxattr and removexattr.

use types::{Ino, Name};

use super::acl::Acl;
use super::attributes::{self, ACL_ACCESS, ACL_DEFAULT, XattrList};
use super::subject::{Halves, Subject};
use super::{OpContext, OpReply, Plan, XattrMode};
use crate::error::FsError;
use crate::record::{FileKind, InodeAttr};
use crate::view::{View, ViewError};

/// Plans a new or changed attribute.
pub(super) fn plan_set(
    view: &impl View,
    context: &OpContext,
    ino: Ino,
    (name, value): (&Name, &[u8]),
    mode: XattrMode,
    only_owner: Option<u32>,
) -> Result<Plan, ViewError> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(FsError::TooLarge.into());
    }
    let mut subject = Subject::load(view, ino)?;
    check_owner(&subject.inode.attr, only_owner)?;
    check_name(name, subject.inode.attr.kind)?;
    let mut list = attributes::load(view, ino, &subject.inode.attr.xattrs)?;
    let is_there = attributes::value_of(&list, name.as_bytes()).is_some();
    match mode {
        XattrMode::Create if is_there => return Err(FsError::Exists.into()),
        XattrMode::Replace if !is_there => return Err(FsError::NoAttribute.into()),
        XattrMode::Any | XattrMode::Create | XattrMode::Replace | XattrMode::AnyWithoutSetgid => {}
    }
    put(&mut list, &mut subject.inode.attr, name, value)?;
    // `posix_acl_update_mode` in linux:fs/posix_acl.c.
    if mode == XattrMode::AnyWithoutSetgid && name.as_bytes() == ACL_ACCESS {
        subject.inode.attr.mode &= !SETGID;
    }
    if attributes::bytes_of(&list) > LIST_BYTES_MAX {
        return Err(FsError::NoSpace.into());
    }
    Ok(write_back(context, subject, list))
}

/// Plans the removal of an attribute. The mode bits stay when the access list goes.
pub(super) fn plan_remove(
    view: &impl View,
    context: &OpContext,
    ino: Ino,
    name: &Name,
    only_owner: Option<u32>,
) -> Result<Plan, ViewError> {
    let subject = Subject::load(view, ino)?;
    check_owner(&subject.inode.attr, only_owner)?;
    check_name(name, subject.inode.attr.kind)?;
    let mut list = attributes::load(view, ino, &subject.inode.attr.xattrs)?;
    if !attributes::remove(&mut list, name.as_bytes()) {
        // Without a list there is nothing to remove and nothing wrong, as `linux:fs/posix_acl.c` sees it.
        return if is_acl(name) {
            Ok(Plan { changes: Vec::new(), reply: OpReply::Inode { ino } })
        } else {
            Err(FsError::NoAttribute.into())
        };
    }
    Ok(write_back(context, subject, list))
}

fn write_back(context: &OpContext, mut subject: Subject, list: XattrList) -> Plan {
    let ino = subject.ino;
    let cover = subject.xattr_cover();
    let attr = &mut subject.inode.attr;
    let (xattrs, spilled) = attributes::store(ino, cover, &attr.xattrs, list);
    attr.xattrs = xattrs;
    attr.ctime = context.now;
    let mut changes = subject.into_changes(Halves::Attr);
    changes.extend(spilled);
    Plan { changes, reply: OpReply::Inode { ino } }
}

/// Puts a value into the list; access control lists as `linux:fs/posix_acl.c` has it.
fn put(list: &mut XattrList, attr: &mut InodeAttr, name: &Name, value: &[u8]) -> Result<(), FsError> {
    let is_access = name.as_bytes() == ACL_ACCESS;
    if !is_access && name.as_bytes() != ACL_DEFAULT {
        attributes::set(list, name.clone(), value.into());
        return Ok(());
    }
    let acl = Acl::parse(value)?;
    if !is_access && acl.is_some() && attr.kind != FileKind::Directory {
        return Err(FsError::AccessDenied);
    }
    if let Some(acl) = acl.as_ref().filter(|_| is_access) {
        attr.mode = acl.mode(attr.mode);
    }
    match acl {
        Some(acl) if !(is_access && acl.is_mode_alone()) => {
            attributes::set(list, name.clone(), acl.to_bytes());
        }
        Some(_) | None => {
            attributes::remove(list, name.as_bytes());
        }
    }
    Ok(())
}

/// Whoever asked may have been judged by an earlier owner.
pub(super) fn check_owner(attr: &InodeAttr, only_owner: Option<u32>) -> Result<(), FsError> {
    match only_owner {
        Some(owner) if owner != attr.uid => Err(FsError::NotPermitted),
        Some(_) | None => Ok(()),
    }
}

fn is_acl(name: &Name) -> bool {
    name.as_bytes() == ACL_ACCESS || name.as_bytes() == ACL_DEFAULT
}

/// Refuses names that xattr(7) does not know, whatever the inode.
pub fn check_xattr_name(name: &Name) -> Result<(), FsError> {
    let rest = |prefix: &[u8]| name.as_bytes().strip_prefix(prefix).map(<[u8]>::len);
    match rest(b"user.").or_else(|| rest(b"trusted.")).or_else(|| rest(b"security.")) {
        Some(0) => Err(FsError::Invalid),
        Some(_) => Ok(()),
        None if is_acl(name) => Ok(()),
        None => Err(FsError::NotSupported),
    }
}

/// Refuses names that xattr(7) does not know, and those that do not go with the type.
fn check_name(name: &Name, kind: FileKind) -> Result<(), FsError> {
    check_xattr_name(name)?;
    if is_acl(name) {
        return if kind == FileKind::Symlink { Err(FsError::NotSupported) } else { Ok(()) };
    }
    if name.as_bytes().starts_with(b"user.") && !matches!(kind, FileKind::File | FileKind::Directory) {
        return Err(FsError::NotPermitted);
    }
    Ok(())
}

const SETGID: u32 = 0o2000;
/// `XATTR_SIZE_MAX`.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// All names and values of one inode, so that a record has a bound.
const LIST_BYTES_MAX: usize = 256 << 10;
