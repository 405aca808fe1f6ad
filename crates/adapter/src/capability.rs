//! Capabilities of a file that is written.
//!
//! Before a write the kernel asks for the length of `security.capability`, and if there is one removes it, on the writer's
//! thread (`cap_inode_need_killpriv` and `cap_inode_killpriv` in linux:security/commoncap.c). If another node was faster,
//! the write would fail with the removal's ENODATA. So a removal by a thread that has just been told of the capability
//! finds nothing wrong with its absence.

/// The attribute.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
