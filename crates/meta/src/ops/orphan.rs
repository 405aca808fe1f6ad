//! Orphans: inodes without a name that somebody has open.

use types::{Ino, LockMode};

use super::parent::Parent;
use super::removal;
use super::subject::{Place, Subject};
use super::{NewInode, OpContext, OpReply, Plan, create};
use crate::change::Change;
use crate::error::FsError;
use crate::record::FileKind;
use crate::view::{View, ViewError};

/// Plans a regular file without a name (O_TMPFILE).
///
/// It keeps the directory it was made for as `parent`, which tells it from an orphan that lost its last name:
/// only the former may be linked.
pub(super) fn plan_create(
    view: &impl View,
    context: &OpContext,
    parent: Ino,
    new: &NewInode,
) -> Result<Plan, ViewError> {
    if new.kind != FileKind::File {
        return Err(FsError::Invalid.into());
    }
    let dir = Parent::load(view, parent, LockMode::Pr)?;
    let (inode, inherited) = create::birth(view, context, &dir, new)?;
    let (mut inode, spilled) = create::with_xattrs(new.ino, Ino(0), inode, inherited);
    inode.attr.nlink = 0;
    let ino = new.ino;
    let mut changes =
        vec![Change::PutAttr { ino, attr: inode.attr }, Change::PutContent { ino, content: inode.content }];
    changes.extend(spilled);
    changes.push(Change::PutOrphan { ino, holders: vec![context.node] });
    Ok(Plan { changes, reply: OpReply::Inode { ino } })
}

/// Plans the deletion of an orphan that nobody has open any more.
///
/// Nothing happens if it is gone, has a name (again) or entries, or the view knows somebody who has it open.
pub(super) fn plan_reclaim(view: &impl View, ino: Ino) -> Result<Plan, ViewError> {
    let kept = Plan { changes: Vec::new(), reply: OpReply::Removed { ino, deleted: false } };
    let subject = match Subject::load(view, ino) {
        Ok(subject) => subject,
        Err(ViewError::Refused(FsError::NotFound)) => return Ok(kept),
        Err(other) => return Err(other),
    };
    if subject.inode.attr.nlink != 0 || !view.open_holders(ino).is_empty() {
        return Ok(kept);
    }
    let is_linked = match subject.place {
        // No operation leaves it so: rather wait for a repair than delete what somebody may see.
        Place::Entry { .. } => true,
        Place::Directory => !view.is_empty(ino)?,
        Place::Own => false,
    };
    if is_linked {
        return Ok(kept);
    }
    let mut changes = removal::delete(view, &subject)?;
    changes.push(Change::DeleteOrphan { ino });
    Ok(Plan { changes, reply: OpReply::Removed { ino, deleted: true } })
}
