//! POSIX access control lists in the byte form of the `system.posix_acl_*` attributes.
//!
//! The rules are those of `linux:fs/posix_acl.c`, whose function names stand at each method.

use crate::error::FsError;

/// A valid list: owner, named users, group, named groups, mask, others, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acl(Vec<AclEntry>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: Tag,
    perm: u16,
    id: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner,
    User,
    OwningGroup,
    Group,
    Mask,
    Other,
}

impl Acl {
    /// Reads a list (`posix_acl_from_xattr`, `posix_acl_valid`); `None` if it has no entries, which means
    /// "no list". [`FsError::Invalid`] if it is malformed.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, FsError> {
        let (version, rest) = bytes.split_at_checked(4).ok_or(FsError::Invalid)?;
        if version != VERSION.to_le_bytes() || rest.len() % ENTRY_LEN != 0 {
            return Err(FsError::Invalid);
        }
        let entries = rest.chunks_exact(ENTRY_LEN).map(AclEntry::parse).collect::<Result<Vec<_>, _>>()?;
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Self(entries);
        if acl.is_valid() { Ok(Some(acl)) } else { Err(FsError::Invalid) }
    }

    /// The byte form.
    pub(super) fn to_bytes(&self) -> Box<[u8]> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend_from_slice(&entry.tag.code().to_le_bytes());
            bytes.extend_from_slice(&entry.perm.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes.into()
    }

    /// Whether mode bits say all of it, so that it need not be stored (`posix_acl_equiv_mode`).
    pub(super) fn is_mode_alone(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.tag, Tag::Owner | Tag::OwningGroup | Tag::Other))
    }

    /// `mode` with the permission bits that the list shows (`posix_acl_equiv_mode`).
    pub(super) fn mode(&self, mode: u32) -> u32 {
        let bits = self.perm(Tag::Owner) << 6 | self.perm(self.group_class()) << 3 | self.perm(Tag::Other);
        mode & !0o777 | u32::from(bits)
    }

    /// Narrows an inherited list to what the maker asked for, and returns `mode` narrowed to what the list
    /// allows (`posix_acl_create_masq`).
    pub(super) fn narrow_to(&mut self, mode: u32) -> u32 {
        let group_class = self.group_class();
        for entry in &mut self.0 {
            if let Some(shift) = entry.tag.mode_shift(group_class) {
                entry.perm &= permissions(mode, shift);
            }
        }
        mode & self.mode(0o7000)
    }

    /// Follows a chmod (`__posix_acl_chmod_masq`).
    pub(super) fn follow(&mut self, mode: u32) {
        let group_class = self.group_class();
        for entry in &mut self.0 {
            if let Some(shift) = entry.tag.mode_shift(group_class) {
                entry.perm = permissions(mode, shift);
            }
        }
    }

    /// The entry that the group bits of the mode stand for.
    fn group_class(&self) -> Tag {
        let has_mask = self.0.iter().any(|entry| entry.tag == Tag::Mask);
        if has_mask { Tag::Mask } else { Tag::OwningGroup }
    }

    fn perm(&self, tag: Tag) -> u16 {
        self.0.iter().find(|entry| entry.tag == tag).map_or(0, |entry| entry.perm)
    }

    fn count(&self, tag: Tag) -> usize {
        self.0.iter().filter(|entry| entry.tag == tag).count()
    }

    fn is_valid(&self) -> bool {
        let once = [Tag::Owner, Tag::OwningGroup, Tag::Other].iter().all(|tag| self.count(*tag) == 1);
        let needs_mask = self.count(Tag::User) + self.count(Tag::Group) > 0;
        let masks = self.count(Tag::Mask);
        let ids_known = self.0.iter().all(|entry| match entry.tag {
            Tag::User | Tag::Group => entry.id != u32::MAX,
            Tag::Owner | Tag::OwningGroup | Tag::Mask | Tag::Other => true,
        });
        let mask_fits = masks == 1 || (masks == 0 && !needs_mask);
        once && mask_fits && ids_known && self.0.is_sorted_by_key(|entry| entry.tag)
    }
}

impl AclEntry {
    fn parse(bytes: &[u8]) -> Result<Self, FsError> {
        let &[t0, t1, p0, p1, i0, i1, i2, i3] = bytes else { return Err(FsError::Invalid) };
        let tag = Tag::of_code(u16::from_le_bytes([t0, t1])).ok_or(FsError::Invalid)?;
        let perm = u16::from_le_bytes([p0, p1]);
        if perm > 0o7 {
            return Err(FsError::Invalid);
        }
        Ok(Self { tag, perm, id: u32::from_le_bytes([i0, i1, i2, i3]) })
    }
}

impl Tag {
    /// Number in `linux:include/uapi/linux/posix_acl.h`.
    const fn code(self) -> u16 {
        match self {
            Self::Owner => 0x01,
            Self::User => 0x02,
            Self::OwningGroup => 0x04,
            Self::Group => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    fn of_code(code: u16) -> Option<Self> {
        let all = [Self::Owner, Self::User, Self::OwningGroup, Self::Group, Self::Mask, Self::Other];
        all.into_iter().find(|tag| tag.code() == code)
    }

    /// Position of the mode bits that follow the entry, if any do.
    fn mode_shift(self, group_class: Self) -> Option<u32> {
        match self {
            Self::Owner => Some(6),
            Self::OwningGroup | Self::Mask => (self == group_class).then_some(3),
            Self::Other => Some(0),
            Self::User | Self::Group => None,
        }
    }
}

fn permissions(mode: u32, shift: u32) -> u16 {
    (mode >> shift & 0o7) as u16
}

const VERSION: u32 = 2;
const ENTRY_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&perm.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    const NAMED: &[(u16, u16, u32)] =
        &[(1, 7, u32::MAX), (2, 7, 1000), (4, 7, u32::MAX), (0x10, 7, u32::MAX), (0x20, 5, u32::MAX)];

    #[test]
    fn lists_are_valid_only_as_the_kernel_says() {
        let base = [(1, 7, 0), (4, 5, 0), (0x20, 5, 0)];
        assert!(Acl::parse(&acl(&base)).unwrap().unwrap().is_mode_alone());
        assert_eq!(Acl::parse(&acl(&[])), Ok(None));
        assert!(Acl::parse(&acl(NAMED)).is_ok());
        let bad: [&[(u16, u16, u32)]; 7] = [
            &[(1, 7, 0), (4, 5, 0)],
            &[(1, 7, 0), (1, 7, 0), (4, 5, 0), (0x20, 5, 0)],
            &[(4, 7, 0), (1, 5, 0), (0x20, 5, 0)],
            &[(1, 7, 0), (2, 7, 5), (4, 5, 0), (0x20, 5, 0)],
            &[(1, 7, 0), (2, 7, u32::MAX), (4, 5, 0), (0x10, 7, 0), (0x20, 5, 0)],
            &[(1, 8, 0), (4, 5, 0), (0x20, 5, 0)],
            &[(1, 7, 0), (4, 5, 0), (0x40, 5, 0)],
        ];
        for entries in bad {
            assert_eq!(Acl::parse(&acl(entries)), Err(FsError::Invalid), "{entries:?}");
        }
        assert_eq!(Acl::parse(&[2, 0, 0]), Err(FsError::Invalid));
        assert_eq!(Acl::parse(&[1, 0, 0, 0]), Err(FsError::Invalid));
        assert_eq!(Acl::parse(&[2, 0, 0, 0, 1]), Err(FsError::Invalid));
    }

    #[test]
    fn an_inherited_list_and_the_mode_narrow_each_other() {
        let mut inherited = Acl::parse(&acl(NAMED)).unwrap().unwrap();
        assert_eq!(inherited.narrow_to(0o2646), 0o2644);
        let expected =
            [(1, 6, u32::MAX), (2, 7, 1000), (4, 7, u32::MAX), (0x10, 4, u32::MAX), (0x20, 4, u32::MAX)];
        assert_eq!(&*inherited.to_bytes(), acl(&expected));
    }

    #[test]
    fn chmod_sets_the_mask_and_not_the_group() {
        let mut list = Acl::parse(&acl(NAMED)).unwrap().unwrap();
        list.follow(0o610);
        let expected =
            [(1, 6, u32::MAX), (2, 7, 1000), (4, 7, u32::MAX), (0x10, 1, u32::MAX), (0x20, 0, u32::MAX)];
        assert_eq!(&*list.to_bytes(), acl(&expected));
        assert_eq!(list.mode(0o4777), 0o4610);
    }
}
