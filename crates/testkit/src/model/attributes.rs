//! Attributes: chmod, chown, utimensat, and extended ones.

use meta::ops::{AttrSet, OpReply, XattrMode};
use meta::{FileKind, FsError};
use types::{Ino, Timespec};

use super::acl::{ACCESS, Acl, DEFAULT};
use super::{Node, Outcome, Tree};

impl Tree {
    pub(super) fn set_attr(&mut self, ino: Ino, set: &AttrSet, now: Timespec) -> Outcome {
        let node = self.existing_mut(ino)?;
        if set.only_owner.is_some_and(|owner| owner != node.uid) {
            return Err(FsError::NotPermitted);
        }
        if set.mode.is_some() && node.kind == FileKind::Symlink {
            return Err(FsError::NotSupported);
        }
        let before = node.clone();
        let is_owned_anew = set.uid.is_some() || set.gid.is_some();
        if is_owned_anew {
            strip(node);
        }
        if let Some(mode) = set.mode {
            chmod(node, mode & 0o7777)?;
        }
        if let Some(groups) = &set.kill_privileges {
            if !groups.contains(&node.gid) && node.kind != FileKind::Directory {
                node.mode &= !0o2000;
            }
            strip(node);
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        if set.mode.is_some() && set.groups.as_ref().is_some_and(|groups| !groups.contains(&node.gid)) {
            node.mode &= !0o2000;
        }
        node.atime = set.atime.unwrap_or(node.atime);
        node.mtime = set.mtime.unwrap_or(node.mtime);
        let is_asked = is_owned_anew || set.mode.is_some() || set.atime.is_some() || set.mtime.is_some();
        if is_asked || *node != before {
            node.ctime = now;
        }
        Ok(OpReply::Inode { ino })
    }

    pub(super) fn set_xattr(
        &mut self,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
        only_owner: Option<u32>,
        now: Timespec,
    ) -> Outcome {
        if value.len() > 65536 {
            return Err(FsError::TooLarge);
        }
        let mut node = self.existing(ino)?.clone();
        if only_owner.is_some_and(|owner| owner != node.uid) {
            return Err(FsError::NotPermitted);
        }
        check_name(name, node.kind)?;
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(FsError::Exists),
            (XattrMode::Replace, false) => return Err(FsError::NoAttribute),
            (_, _) => {}
        }
        match name {
            ACCESS => {
                set_access_acl(&mut node, value)?;
                if mode == XattrMode::AnyWithoutSetgid {
                    node.mode &= !0o2000;
                }
            }
            DEFAULT => set_default_acl(&mut node, value)?,
            _ => {
                node.xattrs.insert(name.to_vec(), value.to_vec());
            }
        }
        if node.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > 262_144 {
            return Err(FsError::NoSpace);
        }
        node.ctime = now;
        self.nodes.insert(ino, node);
        Ok(OpReply::Inode { ino })
    }

    pub(super) fn remove_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        only_owner: Option<u32>,
        now: Timespec,
    ) -> Outcome {
        let node = self.existing_mut(ino)?;
        if only_owner.is_some_and(|owner| owner != node.uid) {
            return Err(FsError::NotPermitted);
        }
        check_name(name, node.kind)?;
        match (node.xattrs.remove(name), name) {
            (Some(_), _) => node.ctime = now,
            (None, ACCESS | DEFAULT) => {}
            (None, _) => return Err(FsError::NoAttribute),
        }
        Ok(OpReply::Inode { ino })
    }
}

fn chmod(node: &mut Node, mode: u32) -> Result<(), FsError> {
    node.mode = mode;
    if let Some(bytes) = node.xattrs.get(ACCESS) {
        let acl = Acl::parse(bytes)?.ok_or(FsError::Invalid)?;
        node.xattrs.insert(ACCESS.to_vec(), acl.with_mode(mode).bytes());
    }
    Ok(())
}

/// Takes setuid, an effective setgid and capabilities away.
pub(super) fn strip(node: &mut Node) {
    if node.kind == FileKind::Directory {
        return;
    }
    node.mode &= !0o4000;
    if node.mode & 0o010 != 0 {
        node.mode &= !0o2000;
    }
    node.xattrs.remove(b"security.capability".as_slice());
}

fn set_access_acl(node: &mut Node, value: &[u8]) -> Result<(), FsError> {
    let acl = Acl::parse(value)?;
    node.xattrs.remove(ACCESS);
    if let Some(acl) = acl {
        node.mode = node.mode & 0o7000 | acl.mode_bits();
        if acl.has_more_than_mode() {
            node.xattrs.insert(ACCESS.to_vec(), acl.bytes());
        }
    }
    Ok(())
}

fn set_default_acl(node: &mut Node, value: &[u8]) -> Result<(), FsError> {
    let acl = Acl::parse(value)?;
    if acl.is_some() && node.kind != FileKind::Directory {
        return Err(FsError::AccessDenied);
    }
    node.xattrs.remove(DEFAULT);
    if let Some(acl) = acl {
        node.xattrs.insert(DEFAULT.to_vec(), acl.bytes());
    }
    Ok(())
}

fn check_name(name: &[u8], kind: FileKind) -> Result<(), FsError> {
    if name == ACCESS || name == DEFAULT {
        return if kind == FileKind::Symlink { Err(FsError::NotSupported) } else { Ok(()) };
    }
    let dot = name.iter().position(|byte| *byte == b'.').ok_or(FsError::NotSupported)?;
    let (class, rest) = name.split_at(dot + 1);
    match class {
        b"user." | b"trusted." | b"security." if rest.is_empty() => Err(FsError::Invalid),
        b"user." if kind != FileKind::File && kind != FileKind::Directory => Err(FsError::NotPermitted),
        b"user." | b"trusted." | b"security." => Ok(()),
        _ => Err(FsError::NotSupported),
    }
}
