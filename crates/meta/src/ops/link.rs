//! link: one more name for an inode that is no directory.

use types::{Ino, LockMode, Name};

use super::parent::{Parent, free_cookie};
use super::subject::Subject;
use super::{OpContext, OpReply, Plan};
use crate::change::Change;
use crate::error::FsError;
use crate::record::{Child, Dirent};
use crate::view::{View, ViewError};

/// Plans one more name; the inode is uncovered from then on.
pub(super) fn plan(
    view: &impl View,
    context: &OpContext,
    ino: Ino,
    parent: Ino,
    name: &Name,
) -> Result<Plan, ViewError> {
    let mut dir = Parent::load(view, parent, LockMode::Ex)?;
    let cookie = free_cookie(view, parent, name)?;
    let mut subject = Subject::load(view, ino)?;
    if subject.is_directory() {
        return Err(FsError::NotPermitted.into());
    }
    if subject.inode.attr.tree != dir.inode.attr.tree {
        return Err(FsError::CrossTree.into());
    }
    let attr = &mut subject.inode.attr;
    let mut changes = Vec::new();
    match attr.nlink {
        0 if attr.parent == Ino(0) => return Err(FsError::NotFound.into()),
        0 => {
            changes.push(Change::DeleteOrphan { ino });
            attr.parent = parent;
        }
        LINKS_MAX.. => return Err(FsError::TooManyLinks.into()),
        _ => attr.parent = Ino(0),
    }
    attr.nlink += 1;
    attr.ctime = context.now;
    let kind = attr.kind;
    dir.touch(context.now);
    changes.extend(subject.into_split_changes());
    let entry = Dirent { name: name.clone(), ino, child: Child::Own { kind } };
    changes.push(Change::PutEntry { parent, cookie, entry });
    changes.push(dir.into_change());
    Ok(Plan { changes, reply: OpReply::Inode { ino } })
}

/// As ext4's: far beyond use, far below what would overflow.
const LINKS_MAX: u32 = 65_000;
