//! chmod, chown, utimensat, and the loss of privileges that a write or a chown brings.

use types::{Ino, LockMode, Timespec};

use super::acl::Acl;
use super::attributes::{self, ACL_ACCESS, CAPABILITY, XattrList};
use super::subject::{Halves, Place, Subject};
use super::xattr::check_owner;
use super::{AttrSet, OpContext, OpReply, Plan};
use crate::change::Change;
use crate::error::FsError;
use crate::record::{FileKind, Inode, InodeAttr, Placement};
use crate::view::{View, ViewError};

/// Plans new attributes. Changes nothing, not even times, if nothing is asked for.
pub(super) fn plan(
    view: &impl View,
    context: &OpContext,
    ino: Ino,
    set: &AttrSet,
) -> Result<Plan, ViewError> {
    let reply = OpReply::Inode { ino };
    let (inode, placement) = view.inode(ino, LockMode::Pr)?;
    check_owner(&inode.attr, set.only_owner)?;
    let Some(halves) = halves_of(view, ino, &inode, set)? else {
        return Ok(Plan { changes: Vec::new(), reply });
    };
    if set.mode.is_some() && inode.attr.kind == FileKind::Symlink {
        return Err(FsError::NotSupported.into());
    }
    // Who writes the content charges it: he is to know whom, and to hear of another.
    let moves_charge = set.uid.is_some() || set.gid.is_some() || set.tree.is_some();
    let mut subject = load(view, ino, inode, placement, halves, moves_charge)?;
    let before = subject.inode.uncount();
    let mut spilled = None;
    match halves {
        Halves::Attr | Halves::Both => spilled = set_attr(view, context, &mut subject, set)?,
        Halves::Content => {}
    }
    match halves {
        Halves::Content | Halves::Both => set_times(&mut subject.inode, context.now, set),
        Halves::Attr => {}
    }
    let moved = moved_charge(&subject, before);
    let mut changes = subject.into_changes(halves);
    changes.extend(spilled);
    changes.extend(moved);
    Ok(Plan { changes, reply })
}

/// What `set` would change, `None` if nothing.
fn halves_of(view: &impl View, ino: Ino, inode: &Inode, set: &AttrSet) -> Result<Option<Halves>, ViewError> {
    let is_named = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.tree.is_some();
    let attr = is_named || (has_privileges(view, ino, &inode.attr, set)?);
    let content = set.atime.is_some() || set.mtime.is_some();
    Ok(match (attr, content) {
        (true, true) => Some(Halves::Both),
        (true, false) => Some(Halves::Attr),
        (false, true) => Some(Halves::Content),
        (false, false) => None,
    })
}

/// What counts the inode under its new accounts instead of the old ones; nothing if they are the same.
fn moved_charge(subject: &Subject, before: Change) -> Vec<Change> {
    let after = subject.inode.count();
    match (&subject.place, &before, &after) {
        (Place::Own, ..) => Vec::new(),
        (_, Change::AddUsage { charge: was, .. }, Change::AddUsage { charge: is, .. }) if was == is => {
            Vec::new()
        }
        (Place::Entry { .. } | Place::Directory, ..) => vec![before, after],
    }
}

/// Gets the rights that the change needs: times of an uncovered file need its content alone, another owner of one needs it too.
fn load(
    view: &impl View,
    ino: Ino,
    inode: Inode,
    placement: Placement,
    halves: Halves,
    moves_charge: bool,
) -> Result<Subject, ViewError> {
    let is_apart = placement == (Placement::Own {}) && inode.attr.kind != FileKind::Directory;
    match halves {
        Halves::Content | Halves::Both if is_apart => view.content_right(ino, LockMode::Ex)?,
        Halves::Attr if is_apart && moves_charge => view.content_right(ino, LockMode::Ex)?,
        Halves::Attr | Halves::Content | Halves::Both => {}
    }
    match halves {
        Halves::Content if is_apart => Subject::locate(view, ino, inode, placement),
        Halves::Attr | Halves::Content | Halves::Both => Subject::load(view, ino),
    }
}

fn set_times(inode: &mut Inode, now: Timespec, set: &AttrSet) {
    let content = &mut inode.content;
    content.atime = set.atime.unwrap_or(content.atime);
    content.mtime = set.mtime.unwrap_or(content.mtime);
    content.ctime = now;
}

fn set_attr(
    view: &impl View,
    context: &OpContext,
    subject: &mut Subject,
    set: &AttrSet,
) -> Result<Option<Change>, ViewError> {
    let cover = subject.xattr_cover();
    let attr = &mut subject.inode.attr;
    let loses = loses_privileges(attr, set);
    // A mode given beside an owner is the caller's last word: the kernel has taken the bits out of it.
    let keeps_mode = set.mode.is_some() && set.kill_privileges.is_none();
    let privileged = privileges_of(attr, set);
    attr.mode = set.mode.map_or(attr.mode, |mode| mode & 0o7777);
    if loses && !keeps_mode {
        attr.mode &= !privileged;
    }
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    // `setattr_prepare` in linux:fs/attr.c, by the group that the file has now.
    if set.mode.is_some() && set.groups.as_ref().is_some_and(|groups| !groups.contains(&attr.gid)) {
        attr.mode &= !SETGID;
    }
    attr.tree = set.tree.unwrap_or(attr.tree);
    attr.ctime = context.now;
    let mut list = attributes::load(view, subject.ino, &attr.xattrs)?;
    let drops = loses && attributes::remove(&mut list, CAPABILITY);
    let follows = set.mode.is_some() && follow_mode(&mut list, attr.mode)?;
    if !drops && !follows {
        return Ok(None);
    }
    let (xattrs, spilled) = attributes::store(subject.ino, cover, &attr.xattrs, list);
    attr.xattrs = xattrs;
    Ok(spilled)
}

/// Carries a chmod into the access list; false if there is none (`posix_acl_chmod`).
fn follow_mode(list: &mut XattrList, mode: u32) -> Result<bool, FsError> {
    let Some(stored) = attributes::value_of(list, ACL_ACCESS) else { return Ok(false) };
    // It was checked when it was set: a bad one is damage.
    let mut acl = Acl::parse(stored).ok().flatten().ok_or(FsError::Io)?;
    acl.follow(mode);
    attributes::set(list, attributes::constant(ACL_ACCESS)?, acl.to_bytes());
    Ok(true)
}

/// chown(2): "when the owner or group of an executable file is changed, the set-user-ID and set-group-ID mode
/// bits are cleared"; Linux does so for root as well, and never on directories.
fn loses_privileges(attr: &InodeAttr, set: &AttrSet) -> bool {
    let is_owned_anew = set.uid.is_some() || set.gid.is_some();
    attr.kind != FileKind::Directory && (is_owned_anew || set.kill_privileges.is_some())
}

/// Whether there is anything that `set` takes away.
fn has_privileges(view: &impl View, ino: Ino, attr: &InodeAttr, set: &AttrSet) -> Result<bool, ViewError> {
    if attr.kind == FileKind::Directory || set.kill_privileges.is_none() {
        return Ok(false);
    }
    if attr.mode & privileges_of(attr, set) != 0 {
        return Ok(true);
    }
    let list = attributes::load(view, ino, &attr.xattrs)?;
    Ok(attributes::value_of(&list, CAPABILITY).is_some())
}

/// Bits that go. Setgid without group execution is no privilege, but nobody outside the group may give it to what
/// they write. Source: `setattr_should_drop_sgid` in linux:fs/attr.c.
fn privileges_of(attr: &InodeAttr, set: &AttrSet) -> u32 {
    let mode = set.mode.unwrap_or(attr.mode);
    let is_stranger = set.kill_privileges.as_ref().is_some_and(|groups| !groups.contains(&attr.gid));
    if mode & 0o010 != 0 || is_stranger { SETUID | SETGID } else { SETUID }
}

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
