//! Keys of the metadata engine. `docs/format/metadata.md` lists them byte by byte.
//!
//! A key is one byte of kind and then big-endian numbers, so that byte order is number order: one range
//! scan of `(e, parent, *)` is readdir and stat of everything in a directory. The byte 0x00 belongs to the
//! engine's own record.

use types::{Account, Ino, NodeId, OpSeq, SegmentId};

use crate::cookie::Cookie;

/// First byte of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum KeyKind {
    /// Spilled extended attributes of an inode.
    Xattrs = b'a',
    /// Content of an inode that no directory covers.
    Content = b'f',
    /// Directory entry.
    Entry = b'e',
    /// Inode: its record, or where it is embedded.
    Inode = b'i',
    /// Limits of an account.
    Limits = b'l',
    /// Member of the volume.
    Member = b'n',
    /// Orphan: an inode without a name that somebody has open.
    Orphan = b'o',
    /// Result of a shipped operation that its sender has not acknowledged.
    OpResult = b'r',
    /// Segment of file data.
    Segment = b's',
    /// Totals of the volume: bytes and inodes.
    Totals = b't',
    /// What an account uses.
    Usage = b'u',
    /// The volume itself.
    Volume = b'v',
    /// Bytes of a segment that may not be durable there yet.
    Redo = b'w',
    /// One page of a file's extents.
    ExtentPage = b'p',
    /// The same in volumes of versions 1 to 3, each of [`crate::Body::WIDE_PAGE_SPAN`] bytes.
    WideExtentPage = b'x',
}

/// A typed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `e parent cookie`
    Entry(Ino, Cookie),
    /// `i ino`
    Inode(Ino),
    /// `f ino`
    Content(Ino),
    /// `p ino page`
    ExtentPage(Ino, u64),
    /// `x ino page`
    WideExtentPage(Ino, u64),
    /// `a ino`
    Xattrs(Ino),
    /// `o ino`
    Orphan(Ino),
    /// `l kind number`
    Limits(Account),
    /// `n node`
    Member(NodeId),
    /// `r node seq`
    OpResult(NodeId, OpSeq),
    /// `s segment`
    Segment(SegmentId),
    /// `t`
    Totals,
    /// `u kind number`
    Usage(Account),
    /// `v`
    Volume,
    /// `w segment offset`
    Redo(SegmentId, u64),
}

impl Key {
    /// The key's bytes: at most 17.
    pub fn to_vec(self) -> Vec<u8> {
        let key = |kind: KeyKind, numbers: &[u64]| {
            let mut bytes = Vec::with_capacity(1 + 8 * numbers.len());
            bytes.push(kind as u8);
            for number in numbers {
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            bytes
        };
        match self {
            Self::Entry(parent, cookie) => key(KeyKind::Entry, &[parent.0, cookie.0]),
            Self::Inode(ino) => key(KeyKind::Inode, &[ino.0]),
            Self::Content(ino) => key(KeyKind::Content, &[ino.0]),
            Self::ExtentPage(ino, page) => key(KeyKind::ExtentPage, &[ino.0, page]),
            Self::WideExtentPage(ino, page) => key(KeyKind::WideExtentPage, &[ino.0, page]),
            Self::Xattrs(ino) => key(KeyKind::Xattrs, &[ino.0]),
            Self::Orphan(ino) => key(KeyKind::Orphan, &[ino.0]),
            Self::Member(node) => key(KeyKind::Member, &[u64::from(node.0)]),
            Self::OpResult(node, seq) => key(KeyKind::OpResult, &[u64::from(node.0), seq.0]),
            Self::Segment(segment) => key(KeyKind::Segment, &[segment.0]),
            Self::Totals => key(KeyKind::Totals, &[]),
            Self::Limits(account) => key(KeyKind::Limits, &numbers_of(account)),
            Self::Usage(account) => key(KeyKind::Usage, &numbers_of(account)),
            Self::Volume => key(KeyKind::Volume, &[]),
            Self::Redo(segment, offset) => key(KeyKind::Redo, &[segment.0, offset]),
        }
    }

    /// Reads a key back; `None` for bytes that are no key of this version.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let number = |index: usize| -> Option<u64> {
            let field = rest.get(8 * index..8 * index + 8)?;
            Some(u64::from_be_bytes(field.try_into().ok()?))
        };
        let node = |index: usize| number(index).and_then(|n| u32::try_from(n).ok()).map(NodeId);
        let account = || Account::from_parts(number(0)?, number(1)?);
        let (key, numbers) = match kind {
            b'e' => (Self::Entry(Ino(number(0)?), Cookie(number(1)?)), 2),
            b'i' => (Self::Inode(Ino(number(0)?)), 1),
            b'f' => (Self::Content(Ino(number(0)?)), 1),
            b'p' => (Self::ExtentPage(Ino(number(0)?), number(1)?), 2),
            b'x' => (Self::WideExtentPage(Ino(number(0)?), number(1)?), 2),
            b'a' => (Self::Xattrs(Ino(number(0)?)), 1),
            b'o' => (Self::Orphan(Ino(number(0)?)), 1),
            b'n' => (Self::Member(node(0)?), 1),
            b'r' => (Self::OpResult(node(0)?, OpSeq(number(1)?)), 2),
            b's' => (Self::Segment(SegmentId(number(0)?)), 1),
            b't' => (Self::Totals, 0),
            b'l' => (Self::Limits(account()?), 2),
            b'u' => (Self::Usage(account()?), 2),
            b'v' => (Self::Volume, 0),
            b'w' => (Self::Redo(SegmentId(number(0)?), number(1)?), 2),
            _ => return None,
        };
        (rest.len() == 8 * numbers).then_some(key)
    }

    /// First key of `kind` and the first one after all of them.
    pub fn range_of_kind(kind: KeyKind) -> (Vec<u8>, Vec<u8>) {
        (vec![kind as u8], vec![kind as u8 + 1])
    }

    /// Keys of the entries of `parent` with a cookie above `after`.
    pub fn entries_after(parent: Ino, after: Cookie) -> (Vec<u8>, Vec<u8>) {
        let mut start = Self::Entry(parent, after).to_vec();
        // The smallest key behind it, also where there is no greater cookie.
        start.push(0);
        let mut end = Self::Entry(parent, Cookie(u64::MAX)).to_vec();
        end.push(0);
        (start, end)
    }

    /// Keys of all extent pages of `ino`.
    pub fn extent_pages(ino: Ino) -> (Vec<u8>, Vec<u8>) {
        let start = Self::ExtentPage(ino, 0).to_vec();
        let mut end = Self::ExtentPage(ino, u64::MAX).to_vec();
        end.push(0);
        (start, end)
    }

    /// Keys of all pages of `ino` that an earlier version wrote.
    pub fn wide_extent_pages(ino: Ino) -> (Vec<u8>, Vec<u8>) {
        let mut end = Self::WideExtentPage(ino, u64::MAX).to_vec();
        end.push(0);
        (Self::WideExtentPage(ino, 0).to_vec(), end)
    }

    /// Keys of those of these numbers.
    pub fn extent_pages_in(ino: Ino, pages: &std::ops::Range<u64>) -> (Vec<u8>, Vec<u8>) {
        (Self::ExtentPage(ino, pages.start).to_vec(), Self::ExtentPage(ino, pages.end).to_vec())
    }
}

fn numbers_of(account: Account) -> [u64; 2] {
    let (kind, id) = account.parts();
    [kind, u64::from(id)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_behind_the_last_entry() {
        let (start, end) = Key::entries_after(Ino(1), Cookie(u64::MAX));
        assert_eq!(start, end);
        let (start, end) = Key::entries_after(Ino(1), Cookie(7));
        assert!(Key::Entry(Ino(1), Cookie(7)).to_vec() < start);
        assert!(
            start < Key::Entry(Ino(1), Cookie(8)).to_vec() && end < Key::Entry(Ino(2), Cookie(0)).to_vec()
        );
    }

    #[test]
    fn keys_round_trip_and_sort_by_number() {
        let keys = [
            Key::Entry(Ino(1), Cookie(256)),
            Key::Entry(Ino(1), Cookie(1 << 40)),
            Key::Entry(Ino(300), Cookie(257)),
            Key::Inode(Ino(7)),
            Key::ExtentPage(Ino(2), 3),
            Key::OpResult(NodeId(3), OpSeq(9)),
            Key::Segment(SegmentId(5)),
            Key::Totals,
            Key::Usage(Account::User(1000)),
            Key::Usage(Account::Tree(2)),
            Key::Volume,
            Key::Redo(SegmentId(5), 1 << 20),
            Key::WideExtentPage(Ino(2), 3),
        ];
        let bytes: Vec<_> = keys.iter().map(|k| k.to_vec()).collect();
        assert!(bytes.is_sorted());
        for (key, bytes) in keys.iter().zip(&bytes) {
            assert_eq!(Key::from_slice(bytes), Some(*key));
            assert_eq!(Key::from_slice(&bytes[..bytes.len() - 1]).filter(|k| k == key), None);
        }
    }
}
