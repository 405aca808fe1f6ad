//! rename and renameat2, by the rules of rename(2), renameat2(2) and `linux:fs/namei.c`.

use std::sync::Arc;

use types::{Ino, LockMode, Name, ResourceId};

use super::parent::Parent;
use super::removal::{self, Removal};
use super::subject::{Halves, Place, Subject};
use super::{NewInode, OpContext, OpReply, Plan, RenameMode, create};
use crate::change::Change;
use crate::cookie::Cookie;
use crate::error::FsError;
use crate::record::{Child, Dirent, FileKind};
use crate::view::{Lookup, View, ViewError};

/// The two names.
pub(super) struct Names<'a> {
    pub(super) parent: Ino,
    pub(super) name: &'a Name,
    pub(super) new_parent: Ino,
    pub(super) new_name: &'a Name,
    /// Who asks, if sticky directories bind him.
    pub(super) bound: Option<u32>,
    /// What takes the old name.
    pub(super) whiteout: &'a Option<Box<NewInode>>,
}

/// What the sender has under the new name.
pub(super) struct Target {
    /// Whether it is open there.
    pub(super) open_here: bool,
    /// The directory that its kernel takes for replaced, or 0.
    pub(super) meant: Ino,
}

/// Plans a move, with or without replacement, or a swap.
pub(super) fn plan(
    view: &impl View,
    context: &OpContext,
    names: &Names<'_>,
    mode: RenameMode,
    target: Target,
) -> Result<Plan, ViewError> {
    let Target { open_here, meant } = target;
    let parents = Parents::load(view, names)?;
    let Lookup::Found { cookie, entry } = view.lookup(names.parent, names.name, LockMode::Ex)? else {
        return Err(FsError::NotFound.into());
    };
    let source = Found { cookie, entry };
    match (view.lookup(names.new_parent, names.new_name, LockMode::Ex)?, mode) {
        (Lookup::Found { .. }, RenameMode::NoReplace) => Err(FsError::Exists.into()),
        (Lookup::Absent { .. }, RenameMode::Exchange) => Err(FsError::NotFound.into()),
        (_, RenameMode::Exchange) if names.whiteout.is_some() => Err(FsError::Invalid.into()),
        (Lookup::Found { cookie, entry }, RenameMode::Exchange) => {
            Move { view, context, names, parents }.exchange(source, Found { cookie, entry })
        }
        (Lookup::Absent { cookie }, RenameMode::Replace | RenameMode::NoReplace) => {
            removal::check_meant(view, meant, Ino(0))?;
            Move { view, context, names, parents }.occupy(source, cookie)
        }
        (Lookup::Found { cookie, entry }, RenameMode::Replace) => {
            removal::check_meant(view, meant, entry.ino)?;
            let target = Found { cookie, entry };
            Move { view, context, names, parents }.replace(source, target, open_here)
        }
    }
}

/// An entry and its place.
struct Found {
    cookie: Cookie,
    entry: Dirent,
}

/// The directories of both names, which may be one.
struct Parents {
    old: Parent,
    new: Option<Parent>,
}

struct Move<'a, V> {
    view: &'a V,
    context: &'a OpContext,
    names: &'a Names<'a>,
    parents: Parents,
}

impl<V: View> Move<'_, V> {
    /// Takes the source to a free place.
    fn occupy(self, source: Found, cookie: Cookie) -> Result<Plan, ViewError> {
        self.check_no_cycle(&source.entry)?;
        self.finish(source, cookie, Vec::new(), None)
    }

    /// Takes the source to the place of the target, which loses this name.
    fn replace(mut self, source: Found, target: Found, open_here: bool) -> Result<Plan, ViewError> {
        self.check_no_cycle(&source.entry)?;
        if source.entry.ino == target.entry.ino {
            return Ok(unchanged(source.entry.ino));
        }
        match (is_directory(&source.entry), is_directory(&target.entry)) {
            (true, false) => return Err(FsError::NotDirectory.into()),
            (false, true) => return Err(FsError::IsDirectory.into()),
            (true, true) | (false, false) => {}
        }
        let (cookie, replaced) = (target.cookie, target.entry.ino);
        let child = Subject::of_entry(self.view, self.names.new_parent, cookie, target.entry)?;
        self.parents.of_new_name().check_sticky(&child, self.names.bound)?;
        let Removal { changes, .. } = if child.is_directory() {
            let removal = removal::remove_directory(self.view, self.context, child)?;
            self.parents.of_new_name().remove_subdirectory();
            removal
        } else {
            removal::remove_link(self.view, self.context, child, open_here)?
        };
        self.finish(source, cookie, changes, Some(replaced))
    }

    /// Moves the source to `cookie`, whose entry, if any, `removed` has dealt with.
    fn finish(
        mut self,
        source: Found,
        cookie: Cookie,
        removed: Vec<Change>,
        replaced: Option<Ino>,
    ) -> Result<Plan, ViewError> {
        let Names { parent, new_parent, new_name, bound, .. } = *self.names;
        let ino = source.entry.ino;
        if is_directory(&source.entry) {
            self.parents.move_subdirectory()?;
        }
        let old_cookie = source.cookie;
        let subject = Subject::of_entry(self.view, parent, old_cookie, source.entry)?;
        self.parents.old.check_sticky(&subject, bound)?;
        self.parents.check_trees(&[&subject])?;
        let (mut changes, made) = self.leave(old_cookie)?;
        changes.extend(removed);
        changes.extend(self.put_under(subject, new_parent, cookie, new_name));
        changes.extend(self.parents.into_changes(self.context));
        changes.extend(made);
        let replaced = replaced.unwrap_or(Ino(0));
        Ok(Plan { changes, reply: OpReply::Renamed { ino, replaced } })
    }

    /// What becomes of the old entry: it goes, or is what the caller makes in its place, which counts as one inode more.
    fn leave(&self, cookie: Cookie) -> Result<(Vec<Change>, Option<Change>), ViewError> {
        let Names { parent, name, whiteout, .. } = *self.names;
        let Some(new) = whiteout else {
            return Ok((vec![Change::DeleteEntry { parent, cookie, name: name.clone() }], None));
        };
        if !matches!(new.kind, FileKind::CharDevice) {
            return Err(FsError::Invalid.into());
        }
        let (inode, inherited) = create::birth(self.view, self.context, &self.parents.old, new)?;
        let made = inode.count();
        let (inode, spilled) = create::with_xattrs(new.ino, parent, inode, inherited);
        let child = Child::Covered { inode: Arc::new(inode) };
        let entry = Dirent { name: name.clone(), ino: new.ino, child };
        let mut changes = vec![
            Change::PutEntry { parent, cookie, entry },
            Change::PutPlacement { ino: new.ino, parent, cookie },
        ];
        changes.extend(spilled);
        Ok((changes, Some(made)))
    }

    /// Swaps two entries' inodes.
    fn exchange(mut self, source: Found, target: Found) -> Result<Plan, ViewError> {
        let Names { parent, name, new_parent, new_name, bound, .. } = *self.names;
        self.check_no_cycle(&source.entry)?;
        self.check_no_cycle_back(&target.entry)?;
        let (ino, replaced) = (source.entry.ino, target.entry.ino);
        if ino == replaced {
            return Ok(unchanged(ino));
        }
        match (is_directory(&source.entry), is_directory(&target.entry)) {
            (true, false) => self.parents.move_subdirectory()?,
            (false, true) => self.parents.move_subdirectory_back()?,
            (true, true) | (false, false) => {}
        }
        let (old_cookie, new_cookie) = (source.cookie, target.cookie);
        let source = Subject::of_entry(self.view, parent, old_cookie, source.entry)?;
        let target = Subject::of_entry(self.view, new_parent, new_cookie, target.entry)?;
        self.parents.old.check_sticky(&source, bound)?;
        self.parents.of_new_name().check_sticky(&target, bound)?;
        self.parents.check_trees(&[&source, &target])?;
        let mut changes = self.put_under(source, new_parent, new_cookie, new_name);
        changes.extend(self.put_under(target, parent, old_cookie, name));
        changes.extend(self.parents.into_changes(self.context));
        Ok(Plan { changes, reply: OpReply::Renamed { ino, replaced } })
    }

    /// Writes `subject` under a new name. The old entry is the caller's.
    fn put_under(&self, mut subject: Subject, parent: Ino, cookie: Cookie, name: &Name) -> Vec<Change> {
        let ino = subject.ino;
        let attr = &mut subject.inode.attr;
        attr.ctime = self.context.now;
        let has_one_name = attr.kind == FileKind::Directory || attr.nlink == 1;
        attr.parent = if has_one_name { parent } else { Ino(0) };
        if self.may_be_open_elsewhere(&subject, parent) {
            return subject.into_split_changes_at(parent, cookie, name.clone());
        }
        let entry = Dirent { name: name.clone(), ino, child: subject.child() };
        let mut changes = vec![Change::PutEntry { parent, cookie, entry }];
        match subject.place {
            Place::Entry { .. } => changes.push(Change::PutPlacement { ino, parent, cookie }),
            Place::Directory | Place::Own => changes.extend(subject.into_changes(Halves::Attr)),
        }
        changes
    }

    /// Whether another node may have a covered file open by its right to the directory that the file leaves, and not be asked when it is removed by
    /// the right to the new one: so the file gets tokens of its own.
    fn may_be_open_elsewhere(&self, subject: &Subject, parent: Ino) -> bool {
        let leaves = matches!(subject.place, Place::Entry { parent: old, .. } if old != parent);
        leaves && subject.inode.attr.kind == FileKind::File && self.view.loses_sight(subject.ino, parent)
    }

    /// Refuses to move a directory into or below itself.
    fn check_no_cycle(&self, source: &Dirent) -> Result<(), ViewError> {
        self.check_not_below(self.names.new_parent, source)
    }

    /// Refuses to swap with a directory that the source is in.
    fn check_no_cycle_back(&self, target: &Dirent) -> Result<(), ViewError> {
        self.check_not_below(self.names.parent, target)
    }

    /// R keeps every other move of a directory away, and with it the answer true until this one is done.
    fn check_not_below(&self, dir: Ino, moved: &Dirent) -> Result<(), ViewError> {
        if !is_directory(moved) || self.parents.new.is_none() {
            return Ok(());
        }
        self.view.right(ResourceId::RENAME, LockMode::Ex)?;
        if self.view.is_below(dir, moved.ino)? {
            return Err(FsError::Invalid.into());
        }
        Ok(())
    }
}

impl Parents {
    fn load(view: &impl View, names: &Names<'_>) -> Result<Self, ViewError> {
        let old = Parent::load(view, names.parent, LockMode::Ex)?;
        let new = match names.new_parent == names.parent {
            true => None,
            false => Some(Parent::load(view, names.new_parent, LockMode::Ex)?),
        };
        Ok(Self { old, new })
    }

    fn of_new_name(&mut self) -> &mut Parent {
        self.new.as_mut().unwrap_or(&mut self.old)
    }

    /// An inode stays in the tree that it is charged to: only root takes it out, by number. The uppermost directory of a tree goes where
    /// the directory that it is in could go.
    fn check_trees(&self, moved: &[&Subject]) -> Result<(), FsError> {
        let Some(new) = &self.new else { return Ok(()) };
        let (old, new) = (self.old.inode.attr.tree, new.inode.attr.tree);
        match old == new || moved.len() == 1 && moved[0].inode.attr.tree == new {
            true => Ok(()),
            false => Err(FsError::CrossTree),
        }
    }

    /// A subdirectory goes from the old directory to the new one.
    fn move_subdirectory(&mut self) -> Result<(), FsError> {
        let Some(new) = &mut self.new else { return Ok(()) };
        self.old.remove_subdirectory();
        new.add_subdirectory()
    }

    /// A subdirectory goes from the new directory to the old one.
    fn move_subdirectory_back(&mut self) -> Result<(), FsError> {
        let Some(new) = &mut self.new else { return Ok(()) };
        new.remove_subdirectory();
        self.old.add_subdirectory()
    }

    fn into_changes(self, context: &OpContext) -> impl Iterator<Item = Change> {
        let now = context.now;
        [Some(self.old), self.new].into_iter().flatten().map(move |mut dir| {
            dir.touch(now);
            dir.into_change()
        })
    }
}

fn is_directory(entry: &Dirent) -> bool {
    entry.kind() == FileKind::Directory
}

/// Both names are links of one inode: rename(2) does nothing.
fn unchanged(ino: Ino) -> Plan {
    Plan { changes: Vec::new(), reply: OpReply::Renamed { ino, replaced: Ino(0) } }
}
