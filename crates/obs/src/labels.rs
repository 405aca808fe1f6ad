//! Label values: each enum is one label, its variants the values.

use types::{LockMode, ResourceKind};

/// A label, or a tuple of labels, that tells the cells of a family apart.
pub trait LabelSet: Copy {
    /// Name and values of each label, outermost first.
    fn dimensions(tables: &Tables) -> Vec<(&'static str, Vec<&'static str>)>;
    /// Position among all combinations, the last label counting fastest.
    fn index(self) -> usize;
}

/// Label tables that upper layers own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tables {
    /// Names of the message kinds, in the order of their [`MessageKind`] index.
    pub message_kinds: &'static [&'static str],
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident as $label:literal { $($variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $value, "`")] $variant,)*
        }

        impl $name {
            /// Every value, in the order of their index.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The label value in every rendering.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $value,)* }
            }
        }

        impl LabelSet for $name {
            fn dimensions(_: &Tables) -> Vec<(&'static str, Vec<&'static str>)> {
                vec![($label, Self::ALL.iter().map(|value| value.name()).collect())]
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

label! {
    /// Kind of a request from the kernel, named after its opcode.
    FuseKind as "kind" {
        Lookup = "lookup", Getattr = "getattr", Setattr = "setattr", Readlink = "readlink", Symlink = "symlink",
        Mknod = "mknod", Mkdir = "mkdir", Unlink = "unlink", Rmdir = "rmdir", Rename = "rename", Link = "link",
        Open = "open", Read = "read", Write = "write", Statfs = "statfs", Release = "release", Fsync = "fsync",
        Setxattr = "setxattr", Getxattr = "getxattr", Listxattr = "listxattr", Removexattr = "removexattr",
        Flush = "flush", Opendir = "opendir", Readdir = "readdir", Readdirplus = "readdirplus",
        Releasedir = "releasedir", Fsyncdir = "fsyncdir", Getlk = "getlk", Setlk = "setlk", Access = "access",
        Create = "create", Tmpfile = "tmpfile", Interrupt = "interrupt", Ioctl = "ioctl",
        Fallocate = "fallocate", Lseek = "lseek", Copyfilerange = "copyfilerange", Statx = "statx",
        Forget = "forget", Poll = "poll", Init = "init", Destroy = "destroy", Other = "other",
    }
}

label! {
    /// Kind of a file system operation, done locally or shipped to the master.
    OperationKind as "kind" {
        Lookup = "lookup", Getattr = "getattr", Readdir = "readdir", Readlink = "readlink", Read = "read",
        Write = "write", Create = "create", Mkdir = "mkdir", Mknod = "mknod", Symlink = "symlink", Link = "link",
        Unlink = "unlink", Rmdir = "rmdir", Rename = "rename", Setattr = "setattr", Getxattr = "getxattr",
        Listxattr = "listxattr", Setxattr = "setxattr", Removexattr = "removexattr", Truncate = "truncate",
        Fallocate = "fallocate", Copy = "copy", Open = "open", Release = "release", Fsync = "fsync", Statfs = "statfs",
        Lock = "lock", Orphan = "orphan", Other = "other",
    }
}

label! {
    /// Kind of the resource a token is for.
    TokenKind as "resource" { Dir = "dir", Attr = "attr", File = "file", Rename = "rename", }
}

label! {
    /// Mode in which a token is held.
    HeldMode as "mode" { Pr = "pr", Ex = "ex", Op = "op", }
}

label! {
    /// Kind of an invalidation sent to the kernel.
    InvalidationKind as "kind" {
        Inode = "inode", InodePages = "inode_pages", EntryExpire = "entry_expire",
        EntryDelete = "entry_delete", Epoch = "epoch", End = "end", EarlierEnd = "earlier_end",
        Permissions = "permissions",
    }
}

label! {
    /// Which of the node's caches.
    CacheKind as "cache" { Inode = "inode", Dentry = "dentry", }
}

impl From<ResourceKind> for TokenKind {
    fn from(kind: ResourceKind) -> Self {
        match kind {
            ResourceKind::Dir => Self::Dir,
            ResourceKind::Attr => Self::Attr,
            ResourceKind::File => Self::File,
            ResourceKind::Rename => Self::Rename,
        }
    }
}

impl HeldMode {
    /// The label of a held token's mode; `None` for NL, which is not held.
    pub const fn of(mode: LockMode) -> Option<Self> {
        match mode {
            LockMode::Nl => None,
            LockMode::Pr => Some(Self::Pr),
            LockMode::Ex => Some(Self::Ex),
        }
    }
}

/// Kind of a message on the wire: an index into [`Tables::message_kinds`], `other` past its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageKind(pub usize);

impl LabelSet for MessageKind {
    fn dimensions(tables: &Tables) -> Vec<(&'static str, Vec<&'static str>)> {
        let mut values = tables.message_kinds.to_vec();
        if values.last() != Some(&"other") {
            values.push("other");
        }
        vec![("kind", values)]
    }

    fn index(self) -> usize {
        self.0
    }
}

impl<A: LabelSet, B: Enumerated> LabelSet for (A, B) {
    fn dimensions(tables: &Tables) -> Vec<(&'static str, Vec<&'static str>)> {
        let mut dimensions = A::dimensions(tables);
        dimensions.extend(B::dimensions(tables));
        dimensions
    }

    fn index(self) -> usize {
        self.0.index() * B::COUNT + self.1.index()
    }
}

/// A label whose values are known at compile time.
pub trait Enumerated: LabelSet {
    /// How many values it has.
    const COUNT: usize;
}

impl Enumerated for HeldMode {
    const COUNT: usize = Self::ALL.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_the_position_in_all() {
        for (position, kind) in FuseKind::ALL.iter().enumerate() {
            assert_eq!(kind.index(), position);
        }
    }

    #[test]
    fn label_values_are_unique() {
        for values in [
            FuseKind::dimensions(&Tables::default()),
            OperationKind::dimensions(&Tables::default()),
            InvalidationKind::dimensions(&Tables::default()),
        ] {
            let mut names = values[0].1.clone();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), values[0].1.len());
        }
    }
}
