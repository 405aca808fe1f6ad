//! rmdir: removes an empty directory.

use types::{Ino, LockMode, Name};

use super::parent::Parent;
use super::removal::{self, Removal};
use super::subject::Subject;
use super::{OpContext, OpReply, Plan};
use crate::change::Change;
use crate::error::FsError;
use crate::record::FileKind;
use crate::view::{Lookup, View, ViewError};

/// Plans the removal of an empty directory.
pub(super) fn plan(
    view: &impl View,
    context: &OpContext,
    (parent, name): (Ino, &Name),
    meant: Ino,
    bound: Option<u32>,
) -> Result<Plan, ViewError> {
    let mut dir = Parent::load(view, parent, LockMode::Ex)?;
    let Lookup::Found { cookie, entry } = view.lookup(parent, name, LockMode::Ex)? else {
        return Err(FsError::NotFound.into());
    };
    if entry.kind() != FileKind::Directory {
        return Err(FsError::NotDirectory.into());
    }
    removal::check_meant(view, meant, entry.ino)?;
    let child = Subject::of_entry(view, parent, cookie, entry)?;
    dir.check_sticky(&child, bound)?;
    let ino = child.ino;
    let Removal { changes: removed, deleted } = removal::remove_directory(view, context, child)?;
    dir.touch(context.now);
    dir.remove_subdirectory();
    let mut changes = vec![Change::DeleteEntry { parent, cookie, name: name.clone() }];
    changes.extend(removed);
    changes.push(dir.into_change());
    Ok(Plan { changes, reply: OpReply::Removed { ino, deleted } })
}
