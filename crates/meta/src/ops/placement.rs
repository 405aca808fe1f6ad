//! Split and merge: a record leaves its directory entry and falls back into it. No user sees either.

use std::sync::Arc;

use types::{Ino, LockMode};

use super::subject::{Place, Subject};
use super::{OpReply, Plan};
use crate::change::Change;
use crate::record::{Child, Dirent, FileKind, Placement};
use crate::view::{View, ViewError};

/// Plans that a covered inode gets keys and tokens of its own; nothing to do for any other.
pub(super) fn plan_split(view: &impl View, ino: Ino) -> Result<Plan, ViewError> {
    let subject = Subject::load(view, ino)?;
    let changes = match subject.place {
        Place::Entry { .. } => subject.into_split_changes(),
        Place::Directory | Place::Own => Vec::new(),
    };
    Ok(Plan { changes, reply: OpReply::Inode { ino } })
}

/// Plans that an uncovered inode with one link falls back into its entry; nothing to do if its entry is not
/// known, or it cannot be covered.
pub(super) fn plan_merge(view: &impl View, ino: Ino) -> Result<Plan, ViewError> {
    let unchanged = Plan { changes: Vec::new(), reply: OpReply::Inode { ino } };
    let (inode, placement) = view.inode(ino, LockMode::Ex)?;
    let parent = inode.attr.parent;
    let is_coverable = inode.attr.kind != FileKind::Directory && inode.attr.nlink == 1 && parent != Ino(0);
    match placement {
        Placement::Own {} if is_coverable => {}
        Placement::Own {} | Placement::Covered { .. } => return Ok(unchanged),
    }
    view.content_right(ino, LockMode::Ex)?;
    let Some((cookie, Dirent { name, .. })) = view.entry_of(parent, ino)? else { return Ok(unchanged) };
    let count = inode.count();
    let child = Child::Covered { inode: Arc::new(inode) };
    let changes = vec![
        Change::PutEntry { parent, cookie, entry: Dirent { name, ino, child } },
        Change::PutPlacement { ino, parent, cookie },
        Change::DeleteContent { ino },
        count,
    ];
    Ok(Plan { changes, ..unchanged })
}
