//! Numbers that name things, each its own type so that they cannot be mixed up.

use std::fmt;

use crate::codec::{CodecError, Decode, Decoder, Encode, Encoder};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl Encode for $name {
            fn encode(&self, out: &mut Encoder) {
                out.varint(u64::from(self.0));
            }
        }

        impl Decode for $name {
            fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
                let value = input.varint()?;
                let inner = <$inner>::try_from(value)
                    .map_err(|_| CodecError::OutOfRange { what: stringify!($name), value })?;
                Ok(Self(inner))
            }
        }
    };
}

id! {
    /// Inode number. Never reused in the life of a volume; 1 is the root directory.
    Ino(u64)
}
id! {
    /// One incarnation of a node. Given out durably by the master and never reused; 0 is nobody.
    NodeId(u32)
}
id! {
    /// Counter raised by each master that takes a volume over. Messages of older epochs are refused.
    Epoch(u64)
}
id! {
    /// Number of a write-behind batch within one incarnation, from 1, without holes.
    BatchSeq(u64)
}
id! {
    /// Number of a shipped operation within one incarnation, from 1, without holes.
    OpSeq(u64)
}
id! {
    /// A segment file of file data. Given out durably in ranges, never reused.
    SegmentId(u64)
}

impl Ino {
    /// The root directory of a volume.
    pub const ROOT: Self = Self(1);
}

/// What kind of right a token gives; see `docs/locking.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ResourceKind {
    /// A directory: entries, own attributes, and all of every covered child.
    Dir = 1,
    /// Attributes of an inode that no directory covers.
    Attr = 2,
    /// Content, size and times of an inode that no directory covers.
    File = 3,
    /// The right to move directories between parents. One for the volume, `ino` 0.
    Rename = 4,
}

/// The thing locked. Ordered by inode, then kind: the global lock order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// Inode the resource belongs to; 0 for [`ResourceKind::Rename`].
    pub ino: Ino,
    /// Which right on it.
    pub kind: ResourceKind,
}

impl ResourceId {
    /// The one resource for moving directories between parents.
    pub const RENAME: Self = Self { ino: Ino(0), kind: ResourceKind::Rename };

    /// The directory resource of `ino`.
    pub const fn dir(ino: Ino) -> Self {
        Self { ino, kind: ResourceKind::Dir }
    }

    /// The attribute resource of `ino`.
    pub const fn attr(ino: Ino) -> Self {
        Self { ino, kind: ResourceKind::Attr }
    }

    /// The content resource of `ino`.
    pub const fn file(ino: Ino) -> Self {
        Self { ino, kind: ResourceKind::File }
    }
}

/// `D(42)`, `I(42)`, `F(42)`, `R`: the form used in logs, documents and tests.
impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ResourceKind::Dir => write!(f, "D({})", self.ino),
            ResourceKind::Attr => write!(f, "I({})", self.ino),
            ResourceKind::File => write!(f, "F({})", self.ino),
            ResourceKind::Rename => f.write_str("R"),
        }
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for ResourceId {
    fn encode(&self, out: &mut Encoder) {
        out.u8(self.kind as u8);
        self.ino.encode(out);
    }
}

impl Decode for ResourceId {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        let kind = match input.u8()? {
            1 => ResourceKind::Dir,
            2 => ResourceKind::Attr,
            3 => ResourceKind::File,
            4 => ResourceKind::Rename,
            other => return Err(CodecError::UnknownTag { what: "resource kind", tag: other }),
        };
        Ok(Self { ino: Ino::decode(input)?, kind })
    }
}
