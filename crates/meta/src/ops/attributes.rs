//! Lists of extended attributes: where they are kept and what they may hold.

use types::{Ino, Name};

use crate::change::Change;
use crate::error::FsError;
use crate::record::{Inode, Xattrs};
use crate::view::{View, ViewError};

/// Names and values in name order.
pub type XattrList = Vec<(Name, Box<[u8]>)>;

/// Access control list that the mode bits abridge.
pub(super) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Access control list that children inherit.
pub(super) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// Capabilities of an executable; a write or chown takes them away.
pub(super) const CAPABILITY: &[u8] = b"security.capability";

/// Returns one value. `spilled` is the list under the inode's own key, looked at only if the record says so.
pub fn read_xattr<'a>(
    inode: &'a Inode,
    spilled: &'a [(Name, Box<[u8]>)],
    name: &[u8],
) -> Result<&'a [u8], FsError> {
    value_of(list_xattrs(inode, spilled), name).ok_or(FsError::NoAttribute)
}

/// Returns names and values. `spilled` as for [`read_xattr`].
pub fn list_xattrs<'a>(inode: &'a Inode, spilled: &'a [(Name, Box<[u8]>)]) -> &'a [(Name, Box<[u8]>)] {
    match &inode.attr.xattrs {
        Xattrs::Embedded { list } => list,
        Xattrs::Spilled {} => spilled,
    }
}

/// The list of an inode for a decision or a change.
pub(super) fn load(view: &impl View, ino: Ino, xattrs: &Xattrs) -> Result<XattrList, ViewError> {
    match xattrs {
        Xattrs::Embedded { list } => Ok(list.to_vec()),
        Xattrs::Spilled {} => view.spilled_xattrs(ino),
    }
}

/// The value under `name`.
pub(super) fn value_of<'a>(list: &'a [(Name, Box<[u8]>)], name: &[u8]) -> Option<&'a [u8]> {
    let (_, value) = list.iter().find(|(other, _)| other.as_bytes() == name)?;
    Some(value)
}

/// Sets or replaces one value and keeps the order.
pub(super) fn set(list: &mut XattrList, name: Name, value: Box<[u8]>) {
    match list.binary_search_by(|(other, _)| other.cmp(&name)) {
        Ok(index) => list[index].1 = value,
        Err(index) => list.insert(index, (name, value)),
    }
}

/// Takes one value out; false if it was not there.
pub(super) fn remove(list: &mut XattrList, name: &[u8]) -> bool {
    let before = list.len();
    list.retain(|(other, _)| other.as_bytes() != name);
    list.len() < before
}

/// Bytes of all names and values.
pub(super) fn bytes_of(list: &[(Name, Box<[u8]>)]) -> usize {
    list.iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum()
}

/// Decides where `list` goes: what the record says, and the change of the spilled key if one is due.
///
/// `was` is what the record said before; `cover` is the `parent` that [`Change::PutXattrs`] names.
pub(super) fn store(ino: Ino, cover: Ino, was: &Xattrs, list: XattrList) -> (Xattrs, Option<Change>) {
    if bytes_of(&list) > Xattrs::EMBEDDED_BYTES_MAX {
        return (Xattrs::Spilled {}, Some(Change::PutXattrs { ino, parent: cover, list }));
    }
    let emptied = match was {
        Xattrs::Spilled {} => Some(Change::PutXattrs { ino, parent: cover, list: Vec::new() }),
        Xattrs::Embedded { .. } => None,
    };
    (Xattrs::embedded(list), emptied)
}

/// A name that is known to be one.
pub(super) fn constant(name: &[u8]) -> Result<Name, FsError> {
    Name::new(name).map_err(|_| FsError::Invalid)
}
