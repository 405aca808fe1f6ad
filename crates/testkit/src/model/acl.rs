//! POSIX access control lists, as acl(5) describes them.

use meta::FsError;

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Tag, permissions and id of each entry.
#[derive(Clone)]
pub(super) struct Acl(Vec<(u16, u16, u32)>);

const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

impl Acl {
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, FsError> {
        if bytes.len() % 8 != 4 || bytes[..4] != [2, 0, 0, 0] {
            return Err(FsError::Invalid);
        }
        let entry = |b: &[u8]| {
            let id = u32::from(b[4]) | u32::from(b[5]) << 8 | u32::from(b[6]) << 16 | u32::from(b[7]) << 24;
            (u16::from(b[0]) | u16::from(b[1]) << 8, u16::from(b[2]) | u16::from(b[3]) << 8, id)
        };
        let entries: Vec<_> = bytes[4..].chunks(8).map(entry).collect();
        if entries.is_empty() {
            return Ok(None);
        }
        // The tags' numbers rise in the order that the list must have.
        let tags: Vec<u16> = entries.iter().map(|entry| entry.0).collect();
        let count = |tag| tags.iter().filter(|t| **t == tag).count();
        let named = count(USER) + count(GROUP);
        let is_valid = tags.is_sorted()
            && tags.iter().all(|tag| [OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHER].contains(tag))
            && [OWNER, OWNING_GROUP, OTHER].iter().all(|tag| count(*tag) == 1)
            && (count(MASK) == 1 || (count(MASK) == 0 && named == 0))
            && entries
                .iter()
                .all(|(tag, perm, id)| *perm <= 7 && !([USER, GROUP].contains(tag) && *id == u32::MAX));
        if is_valid { Ok(Some(Self(entries))) } else { Err(FsError::Invalid) }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0];
        for (tag, perm, id) in &self.0 {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    pub(super) fn has_more_than_mode(&self) -> bool {
        self.0.len() > 3
    }

    /// The nine bits that show the list.
    pub(super) fn mode_bits(&self) -> u32 {
        let perm = |tag| self.0.iter().find(|entry| entry.0 == tag).map(|entry| u32::from(entry.1));
        let group = perm(MASK).or(perm(OWNING_GROUP));
        perm(OWNER).unwrap_or(0) * 64 + group.unwrap_or(0) * 8 + perm(OTHER).unwrap_or(0)
    }

    /// The list with its three visible classes set from `mode`.
    pub(super) fn with_mode(&self, mode: u32) -> Self {
        let mut acl = self.clone();
        let group_class = if self.0.iter().any(|entry| entry.0 == MASK) { MASK } else { OWNING_GROUP };
        for (tag, perm, _) in &mut acl.0 {
            match *tag {
                OWNER => *perm = (mode / 64 % 8) as u16,
                OTHER => *perm = (mode % 8) as u16,
                tag if tag == group_class => *perm = (mode / 8 % 8) as u16,
                _ => {}
            }
        }
        acl
    }

    /// Access list and mode of a child that is made with `mode`.
    pub(super) fn inherited(&self, mode: u32) -> (Self, u32) {
        let bits = self.mode_bits() & mode;
        (self.with_mode(bits), mode & 0o7000 | bits)
    }
}
