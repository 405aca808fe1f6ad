//! unlink: one name less.

use types::{Ino, LockMode, Name};

use super::parent::Parent;
use super::removal::{self, Removal};
use super::subject::Subject;
use super::{OpContext, OpReply, Plan};
use crate::change::Change;
use crate::error::FsError;
use crate::record::FileKind;
use crate::view::{Lookup, View, ViewError};

/// Plans the removal of a name that is no directory's.
pub(super) fn plan(
    view: &impl View,
    context: &OpContext,
    (parent, name): (Ino, &Name),
    open_here: bool,
    bound: Option<u32>,
) -> Result<Plan, ViewError> {
    let mut dir = Parent::load(view, parent, LockMode::Ex)?;
    let Lookup::Found { cookie, entry } = view.lookup(parent, name, LockMode::Ex)? else {
        return Err(FsError::NotFound.into());
    };
    if entry.kind() == FileKind::Directory {
        return Err(FsError::IsDirectory.into());
    }
    let child = Subject::of_entry(view, parent, cookie, entry)?;
    dir.check_sticky(&child, bound)?;
    let ino = child.ino;
    let Removal { changes: removed, deleted } = removal::remove_link(view, context, child, open_here)?;
    dir.touch(context.now);
    let mut changes = vec![Change::DeleteEntry { parent, cookie, name: name.clone() }];
    changes.extend(removed);
    changes.push(dir.into_change());
    Ok(Plan { changes, reply: OpReply::Removed { ino, deleted } })
}
