//! Whom storage is charged to.

use std::fmt;
use std::str::FromStr;

use crate::codec::{CodecError, Decode, Decoder, Encode, Encoder};

/// One that usage is counted for, and that may have limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// A user, by number.
    User(u32),
    /// A group, by number.
    Group(u32),
    /// A directory tree, by its number; never 0.
    Tree(u32),
}

/// The accounts of one inode: its owner, its group, and its tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Tree; 0 for none.
    pub tree: u32,
}

crate::codec_struct!(Charge { uid, gid, tree });

impl Charge {
    /// The accounts, two or three.
    pub fn accounts(self) -> impl Iterator<Item = Account> {
        let tree = (self.tree != 0).then_some(Account::Tree(self.tree));
        [Account::User(self.uid), Account::Group(self.gid)].into_iter().chain(tree)
    }
}

impl Account {
    /// Kind and number, as keys and messages have them: 0 for users, 1 for groups, 2 for trees.
    pub const fn parts(self) -> (u64, u32) {
        match self {
            Self::User(id) => (0, id),
            Self::Group(id) => (1, id),
            Self::Tree(id) => (2, id),
        }
    }

    /// What [`Account::parts`] took apart; `None` for what is no account.
    pub const fn from_parts(kind: u64, id: u64) -> Option<Self> {
        if id > u32::MAX as u64 {
            return None;
        }
        match (kind, id as u32) {
            (0, id) => Some(Self::User(id)),
            (1, id) => Some(Self::Group(id)),
            (2, 0) => None,
            (2, id) => Some(Self::Tree(id)),
            _ => None,
        }
    }
}

/// A part of what an account may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Whose.
    pub account: Account,
    /// Bytes stored.
    pub bytes: i64,
    /// Inodes.
    pub inodes: i64,
}

crate::codec_struct!(Credit { account, bytes, inodes });

/// `user:1000`, `group:100`, `tree:7`.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => write!(f, "user:{id}"),
            Self::Group(id) => write!(f, "group:{id}"),
            Self::Tree(id) => write!(f, "tree:{id}"),
        }
    }
}

/// Reads what is shown.
impl FromStr for Account {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<Self, CodecError> {
        let parsed = text.split_once(':').and_then(|(kind, id)| {
            let kind = ["user", "group", "tree"].iter().position(|name| *name == kind)?;
            Self::from_parts(kind as u64, id.parse().ok()?)
        });
        parsed.ok_or(CodecError::Invalid { what: "account" })
    }
}

impl Encode for Account {
    fn encode(&self, out: &mut Encoder) {
        let (kind, id) = self.parts();
        out.varint(kind);
        out.varint(u64::from(id));
    }
}

impl Decode for Account {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let (kind, id) = (input.varint()?, input.varint()?);
        Self::from_parts(kind, id).ok_or(CodecError::Invalid { what: "account" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_round_trip_and_a_tree_has_a_number() {
        for account in [Account::User(0), Account::Group(u32::MAX), Account::Tree(1)] {
            assert_eq!(Account::from_bytes(&account.to_bytes()), Ok(account));
            assert_eq!(account.to_string().parse(), Ok(account));
        }
        for bad in [(2, 0), (3, 1), (0, 1 << 32)] {
            assert_eq!(Account::from_parts(bad.0, bad.1), None);
        }
    }

    #[test]
    fn only_who_is_in_a_tree_is_charged_to_one() {
        let charge = Charge { uid: 1, gid: 2, tree: 0 };
        assert_eq!(charge.accounts().count(), 2);
        assert_eq!(Charge { tree: 3, ..charge }.accounts().last(), Some(Account::Tree(3)));
    }
}
