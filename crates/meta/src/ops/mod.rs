//! Operations of the namespace, one file each.
//!
//! `plan` is pure: the same operation, context and view give the same plan. A plan is whole or nothing: an
//! error means that no change was decided.

mod acl;
mod attributes;
mod create;
mod link;
mod orphan;
mod parent;
mod placement;
mod removal;
mod rename;
mod rmdir;
mod setattr;
mod subject;
mod unlink;
mod xattr;

pub use attributes::{XattrList, list_xattrs, read_xattr};
pub use create::FIRST_GENERATION;
pub use removal::{DELETED_PAGES_MAX, pages_of};
pub use xattr::check_xattr_name;

use types::{Ino, Name, NodeId, Timespec, codec_enum, codec_struct};

use crate::change::Change;
use crate::record::FileKind;
use crate::view::{View, ViewError};

/// An operation that changes the namespace, as it is run on a holder or shipped to the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// create, mknod, mkdir, symlink: a new inode under a new name.
    Create {
        /// Directory of the name.
        parent: Ino,
        /// The name; [`crate::FsError::Exists`] if taken.
        name: Name,
        /// What to make.
        new: NewInode,
        /// Born uncovered, because its maker has it open for writing in a directory that others share.
        split: bool,
    },
    /// link: one more name for an inode that is no directory. An orphan (O_TMPFILE) may get its first one.
    Link {
        /// The inode.
        ino: Ino,
        /// Directory of the new name.
        parent: Ino,
        /// The new name.
        name: Name,
    },
    /// unlink: one name less. The last one deletes the inode, or makes it an orphan while it is open.
    Unlink {
        /// Directory of the name.
        parent: Ino,
        /// The name.
        name: Name,
        /// Whether the sender has the inode of that name open.
        open_here: bool,
        /// Who asks, if a sticky directory binds him: then what somebody else has under this name by now is not removed in a
        /// stranger's directory ([`FsError::NotPermitted`]).
        bound: Option<u32>,
    },
    /// rmdir: removes an empty directory.
    Rmdir {
        /// Directory of the name.
        parent: Ino,
        /// The name.
        name: Name,
        /// The directory that the sender's kernel has under this name and takes for removed, 0 if not known: while that is
        /// there, another one is not removed in its place ([`FsError::Stale`]).
        meant: Ino,
        /// As with `Unlink`.
        bound: Option<u32>,
    },
    /// rename and renameat2.
    Rename {
        /// Directory of the old name.
        parent: Ino,
        /// The old name.
        name: Name,
        /// Directory of the new name.
        new_parent: Ino,
        /// The new name.
        new_name: Name,
        /// What to do if the new name is taken.
        mode: RenameMode,
        /// Whether the sender has the inode under the new name open.
        target_open_here: bool,
        /// The directory that the sender's kernel has under the new name and takes for replaced, as with `Rmdir`; 0 if not
        /// known, or none, and with all other modes than [`RenameMode::Replace`].
        meant: Ino,
        /// As with `Unlink`, of both names.
        bound: Option<u32>,
        /// What takes the old name, if anything does (`RENAME_WHITEOUT`). Not with [`RenameMode::Exchange`].
        whiteout: Option<Box<NewInode>>,
    },
    /// chmod, chown, utimensat. Not truncation, which is a change of content.
    SetAttr {
        /// The inode.
        ino: Ino,
        /// What to set.
        set: AttrSet,
    },
    /// setxattr.
    SetXattr {
        /// The inode.
        ino: Ino,
        /// Name with its prefix, such as `user.x`.
        name: Name,
        /// New value, at most 64 KiB.
        value: Box<[u8]>,
        /// Whether it must or must not exist.
        mode: XattrMode,
        /// Refuse unless this is the owner, as with [`AttrSet::only_owner`]: of access lists.
        only_owner: Option<u32>,
    },
    /// removexattr.
    RemoveXattr {
        /// The inode.
        ino: Ino,
        /// Name with its prefix.
        name: Name,
        /// As with `SetXattr`.
        only_owner: Option<u32>,
    },
    /// Moves a covered child's record under its own keys, so that it has tokens of its own.
    Split {
        /// The inode.
        ino: Ino,
    },
    /// Moves the record of an uncovered inode with one link back into its entry.
    Merge {
        /// The inode.
        ino: Ino,
    },
    /// Deletes an orphan that nobody has open any more; nothing happens if it is none.
    Reclaim {
        /// The inode.
        ino: Ino,
    },
    /// Has every other node take back what its kernel judges by: the owner or the group of the inode is another. Changes
    /// nothing.
    TellOwner {
        /// The inode.
        ino: Ino,
    },
    /// O_TMPFILE: a new regular file without a name, an orphan from birth.
    CreateOrphan {
        /// Directory whose volume, group and default ACL count.
        parent: Ino,
        /// What to make.
        new: NewInode,
    },
}

codec_enum!(Op, "operation", {
    1 => Create { parent, name, new, split },
    2 => Link { ino, parent, name },
    3 => Unlink { parent, name, open_here, bound },
    4 => Rmdir { parent, name, meant, bound },
    5 => Rename { parent, name, new_parent, new_name, mode, target_open_here, meant, bound, whiteout },
    6 => SetAttr { ino, set },
    7 => SetXattr { ino, name, value, mode, only_owner },
    8 => RemoveXattr { ino, name, only_owner },
    9 => Split { ino },
    10 => Merge { ino },
    11 => Reclaim { ino },
    12 => CreateOrphan { parent, new },
    13 => TellOwner { ino },
});

/// A new inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInode {
    /// Its number, from the maker's range.
    pub ino: Ino,
    /// Type.
    pub kind: FileKind,
    /// Mode bits asked for: 0 to 0o7777.
    pub mode: u32,
    /// The maker's umask: applied unless the directory has a default ACL.
    pub umask: u32,
    /// The maker.
    pub uid: u32,
    /// The maker's group; a setgid directory's own counts instead.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Target of a symbolic link, 1 to 4,095 bytes; empty for all else.
    pub target: Box<[u8]>,
}

codec_struct!(NewInode { ino, kind, mode, umask, uid, gid, rdev, target });

/// What rename does if the new name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Refuses.
    NoReplace,
    /// Swaps both; refuses if it is not taken.
    Exchange,
}

codec_enum!(RenameMode, "rename mode", { 1 => Replace {}, 2 => NoReplace {}, 3 => Exchange {} });

/// Whether setxattr needs the attribute to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// No matter.
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
    /// No matter; and an access list takes setgid away, as chmod by one outside the group does.
    AnyWithoutSetgid,
}

codec_enum!(XattrMode, "setxattr mode", {
    1 => Any {}, 2 => Create {}, 3 => Replace {}, 4 => AnyWithoutSetgid {},
});

/// Attributes to set; `None` leaves as is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttrSet {
    /// Permission bits, setuid, setgid and sticky.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub atime: Option<Timespec>,
    /// Last change of the bytes.
    pub mtime: Option<Timespec>,
    /// Clear setuid, setgid and `security.capability`, as a write does by somebody in these groups. Setgid without
    /// group execution stays if the file's group is among them.
    pub kill_privileges: Option<Groups>,
    /// Directory tree to charge; 0 for none.
    pub tree: Option<u32>,
    /// Refuse unless this is the owner: the caller's kernel may have judged by an earlier one.
    pub only_owner: Option<u32>,
    /// Who sets a mode is in these groups: setgid is not for files of others. `None` for whoever may nevertheless (CAP_FSETID).
    pub groups: Option<Groups>,
}

/// Groups that somebody is in, in any order.
pub type Groups = Vec<u32>;

codec_struct!(AttrSet { mode, uid, gid, atime, mtime, kill_privileges, tree, only_owner, groups });

/// Circumstances of an operation.
#[derive(Clone, Copy, Debug)]
pub struct OpContext {
    /// The time to stamp.
    pub now: Timespec,
    /// The node on whose behalf it runs.
    pub node: NodeId,
}

/// What to do and what to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Changes, in the order to apply them.
    pub changes: Vec<Change>,
    /// The answer.
    pub reply: OpReply,
}

/// The answer of an operation that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpReply {
    /// Nothing to say.
    Done,
    /// The inode concerned: made, linked, moved, changed.
    Inode {
        /// The inode.
        ino: Ino,
    },
    /// A name was removed.
    Removed {
        /// Its inode.
        ino: Ino,
        /// Whether the inode is gone too (not merely orphaned or still linked elsewhere).
        deleted: bool,
    },
    /// A name was moved.
    Renamed {
        /// The inode moved.
        ino: Ino,
        /// The inode that was under the new name, 0 if none.
        replaced: Ino,
    },
}

codec_enum!(OpReply, "operation reply", {
    1 => Done {}, 2 => Inode { ino }, 3 => Removed { ino, deleted }, 4 => Renamed { ino, replaced },
});

impl Op {
    /// Decides the operation by what `view` shows.
    ///
    /// # Errors
    ///
    /// [`ViewError::Missing`] names the first right that was lacking, [`ViewError::Refused`] why the
    /// operation fails. No change was decided in either case.
    pub fn plan(&self, view: &impl View, context: &OpContext) -> Result<Plan, ViewError> {
        match self {
            Self::Create { parent, name, new, split } => {
                create::plan(view, context, *parent, name, new, *split)
            }
            Self::Link { ino, parent, name } => link::plan(view, context, *ino, *parent, name),
            Self::Unlink { parent, name, open_here, bound } => {
                unlink::plan(view, context, (*parent, name), *open_here, *bound)
            }
            Self::Rmdir { parent, name, meant, bound } => {
                rmdir::plan(view, context, (*parent, name), *meant, *bound)
            }
            Self::Rename {
                parent,
                name,
                new_parent,
                new_name,
                mode,
                target_open_here,
                meant,
                bound,
                whiteout,
            } => {
                let (parent, new_parent, bound) = (*parent, *new_parent, *bound);
                let names = rename::Names { parent, name, new_parent, new_name, bound, whiteout };
                let target = rename::Target { open_here: *target_open_here, meant: *meant };
                rename::plan(view, context, &names, *mode, target)
            }
            Self::SetAttr { ino, set } => setattr::plan(view, context, *ino, set),
            Self::SetXattr { ino, name, value, mode, only_owner } => {
                xattr::plan_set(view, context, *ino, (name, value), *mode, *only_owner)
            }
            Self::RemoveXattr { ino, name, only_owner } => {
                xattr::plan_remove(view, context, *ino, name, *only_owner)
            }
            Self::Split { ino } => placement::plan_split(view, *ino),
            Self::Merge { ino } => placement::plan_merge(view, *ino),
            Self::Reclaim { ino } => orphan::plan_reclaim(view, *ino),
            Self::CreateOrphan { parent, new } => orphan::plan_create(view, context, *parent, new),
            Self::TellOwner { ino } => {
                Ok(Plan { changes: vec![Change::Owner { ino: *ino }], reply: OpReply::Done })
            }
        }
    }

    /// The inode that it makes under a name, and the directory of that.
    pub fn made(&self) -> Option<(Ino, &NewInode)> {
        match self {
            Self::Create { parent, new, .. } => Some((*parent, new)),
            Self::Rename { parent, whiteout: Some(new), .. } => Some((*parent, new)),
            _ => None,
        }
    }

    /// Whether it may give an inode that a directory covers keys of its own: a rename out of sight of somebody, or one more name.
    pub fn may_split_out(&self) -> bool {
        matches!(self, Self::Rename { .. } | Self::Link { .. })
    }

    /// Inodes whose directories the master must know to be up to date before it plans this operation.
    ///
    /// Names are resolved by the plan itself, which reports what it misses.
    pub fn directories(&self) -> impl Iterator<Item = Ino> + use<> {
        let directories = match self {
            Self::Create { parent, .. }
            | Self::CreateOrphan { parent, .. }
            | Self::Link { parent, .. }
            | Self::Unlink { parent, .. }
            | Self::Rmdir { parent, .. } => [Some(*parent), None],
            Self::Rename { parent, new_parent, .. } => [Some(*parent), Some(*new_parent)],
            Self::SetAttr { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::Split { .. }
            | Self::Merge { .. }
            | Self::Reclaim { .. }
            | Self::TellOwner { .. } => [None, None],
        };
        directories.into_iter().flatten()
    }
}
