//! Taking a link or an inode away: what unlink, rmdir, rename and reclaim have in common.

use chunk::ExtentMap;
use types::{Ino, LockMode, NodeId};

use super::OpContext;
use super::subject::{Place, Subject};
use crate::change::Change;
use crate::error::FsError;
use crate::record::{Body, Content};
use crate::view::{View, ViewError};
use crate::volume::live_bytes_of;

/// What becomes of an inode that lost a name.
pub(super) struct Removal {
    /// Changes of the inode; those of the entry and its directory are the caller's.
    pub(super) changes: Vec<Change>,
    /// Whether the inode is gone.
    pub(super) deleted: bool,
}

/// Refuses with [`FsError::Stale`] to take `found`, or nothing if 0, from a name where the sender's kernel has `meant`: to that it would never find
/// its way again. Not where `meant` is gone, which the kernel may believe.
pub(super) fn check_meant(view: &impl View, meant: Ino, found: Ino) -> Result<(), ViewError> {
    if meant == Ino(0) || meant == found {
        return Ok(());
    }
    match view.inode(meant, LockMode::Pr) {
        Ok((inode, _)) if inode.attr.nlink > 0 => Err(FsError::Stale.into()),
        Ok(_) | Err(ViewError::Refused(FsError::NotFound)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes one link from an inode that is no directory.
pub(super) fn remove_link(
    view: &impl View,
    context: &OpContext,
    mut child: Subject,
    open_here: bool,
) -> Result<Removal, ViewError> {
    let attr = &mut child.inode.attr;
    attr.ctime = context.now;
    if attr.nlink > 1 {
        attr.nlink -= 1;
        // Where the other names are is not known, so one that is left does not bring the inode back under
        // a directory.
        attr.parent = Ino(0);
        let attr = child.inode.attr;
        return Ok(Removal { changes: vec![Change::PutAttr { ino: child.ino, attr }], deleted: false });
    }
    let holders = holders(view, context, child.ino, open_here);
    if holders.is_empty() && pages_of(&child.inode.content) <= DELETED_PAGES_MAX {
        return Ok(Removal { changes: delete(view, &child)?, deleted: true });
    }
    // Nobody need have it open: the master deletes it bit by bit.
    child.inode.attr.nlink = 0;
    child.inode.attr.parent = Ino(0);
    let ino = child.ino;
    let uncount = child.inode.uncount();
    let mut changes = vec![Change::PutAttr { ino, attr: child.inode.attr }];
    match child.place {
        Place::Entry { .. } => {
            changes.extend([Change::PutContent { ino, content: child.inode.content }, uncount]);
        }
        Place::Directory | Place::Own => {}
    }
    changes.push(Change::PutOrphan { ino, holders });
    Ok(Removal { changes, deleted: false })
}

/// Takes an empty directory away.
pub(super) fn remove_directory(
    view: &impl View,
    context: &OpContext,
    mut child: Subject,
) -> Result<Removal, ViewError> {
    if !view.is_empty(child.ino)? {
        return Err(FsError::NotEmpty.into());
    }
    let holders = holders(view, context, child.ino, false);
    if holders.is_empty() {
        return Ok(Removal { changes: delete(view, &child)?, deleted: true });
    }
    child.inode.attr.nlink = 0;
    child.inode.attr.ctime = context.now;
    let ino = child.ino;
    let record = Change::PutDirectory { ino, inode: Box::new(child.inode) };
    Ok(Removal { changes: vec![record, Change::PutOrphan { ino, holders }], deleted: false })
}

/// Deletes an inode and gives its space back.
pub(super) fn delete(view: &impl View, child: &Subject) -> Result<Vec<Change>, ViewError> {
    match child.place {
        Place::Own => view.content_right(child.ino, LockMode::Ex)?,
        Place::Entry { .. } | Place::Directory => {}
    }
    let (ino, parent) = (child.ino, child.cover());
    let body = &child.inode.content.body;
    let mut changes = vec![Change::DeleteInode { ino, parent, kind: child.inode.attr.kind }];
    match body {
        Body::Paged { .. } => changes.push(Change::DeleteExtentPages { ino, parent, from_page: 0 }),
        Body::Extents { map } => changes.extend(give_back(map)),
        Body::Empty {} | Body::Inline { .. } | Body::Target { .. } => {}
    }
    match child.place {
        Place::Entry { .. } | Place::Directory => changes.push(child.inode.uncount()),
        Place::Own => {}
    }
    Ok(changes)
}

/// Pages of extents that a file may have, at most.
pub fn pages_of(content: &Content) -> u64 {
    match &content.body {
        Body::Paged { mapped_bytes } => content.size.max(*mapped_bytes).div_ceil(Body::PAGE_SPAN),
        _ => 0,
    }
}

/// Pages of extents that go with the last name of a file, at once: 128 GiB. Whoever commits that reads them all, while everybody waits.
pub const DELETED_PAGES_MAX: u64 = 128 << 10;

/// Who has the inode open, in order; the sender is not always in the view's list yet.
fn holders(view: &impl View, context: &OpContext, ino: Ino, open_here: bool) -> Vec<NodeId> {
    let mut holders = view.open_holders(ino);
    if open_here {
        holders.push(context.node);
    }
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// One change for each segment that the extents name.
fn give_back(map: &ExtentMap) -> impl Iterator<Item = Change> {
    live_bytes_of(map).into_iter().map(|(segment, bytes)| Change::AddLive { segment, bytes: -(bytes as i64) })
}
