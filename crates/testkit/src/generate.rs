//! Sequences of operations from a seed.
//!
//! Few names, few directories and many repeated ones: what goes wrong in a file system goes wrong where
//! operations meet. About a third of what comes out is refused.

use meta::ops::{AttrSet, NewInode, RenameMode, XattrMode};
use meta::{FileKind, Op};
use types::{Ino, Name, NodeId, Timespec};

use crate::model::Tree;

/// One step of a sequence, done by one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An operation of the namespace.
    Op {
        /// The operation.
        op: Op,
        /// Who does it.
        node: NodeId,
    },
    /// A node opens an inode.
    Open {
        /// The inode.
        ino: Ino,
        /// Who.
        node: NodeId,
    },
    /// A node closes an inode for the last time.
    Close {
        /// The inode.
        ino: Ino,
        /// Who.
        node: NodeId,
    },
    /// write(2).
    Write {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// truncate(2).
    Truncate {
        /// The file.
        ino: Ino,
        /// New size.
        size: u64,
    },
}

/// Draws steps. The same seed and the same trees give the same steps.
pub struct Generator {
    rng: fastrand::Rng,
    last_ino: u64,
}

impl Generator {
    /// A generator for a volume that so far has its root alone.
    pub fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), last_ino: Ino::ROOT.0 }
    }

    /// The next step, chosen with a look at what is there.
    pub fn step(&mut self, tree: &Tree) -> Step {
        let node = NodeId(self.rng.u32(1..=3));
        let op = match self.rng.u8(0..100) {
            0..24 => self.create(tree),
            24..32 => Op::Link { ino: self.any(tree), parent: self.dir(tree), name: self.name() },
            32..41 => self.unlink(tree, node),
            41..45 => {
                Op::Rmdir { parent: self.dir(tree), name: self.name(), meant: Ino(0), bound: self.owner() }
            }
            45..65 => self.rename(tree, node),
            65..71 => Op::SetAttr { ino: self.any(tree), set: self.attr_set() },
            71..79 => self.xattr(tree),
            79..82 => Op::Split { ino: self.any(tree) },
            82..86 => Op::Merge { ino: self.any(tree) },
            86..88 => Op::CreateOrphan { parent: self.dir(tree), new: self.new_inode(FileKind::File) },
            88..92 => return Step::Open { ino: self.any(tree), node },
            92..95 => return self.close(tree, node),
            95..98 => return self.write(tree),
            _ => return Step::Truncate { ino: self.any(tree), size: self.rng.u64(0..SIZE_LIMIT) },
        };
        Step::Op { op, node }
    }

    fn create(&mut self, tree: &Tree) -> Op {
        let kind = match self.rng.u8(0..10) {
            0..4 => FileKind::File,
            4..7 => FileKind::Directory,
            7 => FileKind::Symlink,
            8 => FileKind::Fifo,
            _ => FileKind::CharDevice,
        };
        let new = self.new_inode(kind);
        Op::Create { parent: self.dir(tree), name: self.name(), new, split: self.rng.u8(0..4) == 0 }
    }

    fn new_inode(&mut self, kind: FileKind) -> NewInode {
        self.last_ino += 1;
        let target_len = if kind == FileKind::Symlink { self.rng.usize(0..20) } else { 0 };
        NewInode {
            ino: Ino(self.last_ino),
            kind,
            mode: self.rng.u32(0..0o10000),
            umask: *self.pick(&[0, 0o022, 0o077]),
            uid: self.rng.u32(0..3),
            gid: self.rng.u32(0..3),
            rdev: 259,
            target: vec![b't'; target_len].into(),
        }
    }

    fn unlink(&mut self, tree: &Tree, node: NodeId) -> Op {
        let (parent, name) = (self.dir(tree), self.name());
        let open_here = is_open(tree, parent, &name, node);
        Op::Unlink { parent, name, open_here, bound: self.owner() }
    }

    fn rename(&mut self, tree: &Tree, node: NodeId) -> Op {
        let parent = self.dir(tree);
        let new_parent = if self.rng.bool() { parent } else { self.dir(tree) };
        let (name, new_name) = (self.name(), self.name());
        let modes = [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let mode = *self.pick(&modes);
        let target_open_here = is_open(tree, new_parent, &new_name, node);
        let bound = self.owner();
        let is_left = mode != RenameMode::Exchange && self.sometimes();
        let whiteout = is_left.then(|| Box::new(self.new_inode(FileKind::CharDevice)));
        let meant = Ino(0);
        Op::Rename { parent, name, new_parent, new_name, mode, target_open_here, meant, bound, whiteout }
    }

    fn attr_set(&mut self) -> AttrSet {
        let time = Timespec { secs: self.rng.i64(-5..5), nanos: 7 };
        let uid = self.rng.u32(0..3);
        AttrSet {
            mode: self.sometimes().then(|| self.rng.u32(0..0o10000)),
            uid: self.sometimes().then_some(uid),
            gid: self.sometimes().then_some(uid),
            atime: self.sometimes().then_some(time),
            mtime: self.sometimes().then_some(time),
            tree: None,
            kill_privileges: self.sometimes().then(|| vec![self.rng.u32(0..3)]),
            only_owner: self.owner(),
            groups: self.sometimes().then(|| vec![self.rng.u32(0..3)]),
        }
    }

    /// Who has to be the owner, now and then.
    fn owner(&mut self) -> Option<u32> {
        (self.rng.u32(0..8) == 0).then(|| self.rng.u32(0..3))
    }

    fn xattr(&mut self, tree: &Tree) -> Op {
        let ino = self.any(tree);
        let names: [&[u8]; 9] = [
            b"user.a",
            b"user.b",
            b"user.",
            b"trusted.c",
            b"security.capability",
            b"system.posix_acl_access",
            b"system.posix_acl_access",
            b"system.posix_acl_default",
            b"other",
        ];
        let bytes = *self.pick(&names);
        let name = name_of(bytes);
        if self.rng.u8(0..4) == 0 {
            return Op::RemoveXattr { ino, name, only_owner: self.owner() };
        }
        let value = if bytes.starts_with(b"system.") { self.acl() } else { self.value() };
        let mode =
            *self.pick(&[XattrMode::Any, XattrMode::AnyWithoutSetgid, XattrMode::Create, XattrMode::Replace]);
        Op::SetXattr { ino, name, value: value.into(), mode, only_owner: self.owner() }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = *self.pick(&[0, 10, 900, 2_000, 60_000, 65_536, 65_537]);
        vec![b'v'; len]
    }

    fn acl(&mut self) -> Vec<u8> {
        let mut perm = || self.rng.u16(0..8);
        let none = u32::MAX;
        let plain = vec![(1u16, perm(), none), (4, perm(), none), (32, perm(), none)];
        let named = vec![
            (1, perm(), none),
            (2, perm(), 7),
            (4, perm(), none),
            (16, perm(), none),
            (32, perm(), none),
        ];
        let many: Vec<_> = [(1, perm(), none)]
            .into_iter()
            .chain((0..200).map(|id| (2, 5, id)))
            .chain([(4, perm(), none), (16, perm(), none), (32, perm(), none)])
            .collect();
        let entries = match self.rng.u8(0..6) {
            0 => plain,
            1 | 2 => named,
            3 => many,
            4 => Vec::new(),
            _ => vec![(1, 7, none), (32, 9, none)],
        };
        let mut bytes = vec![2, 0, 0, 0];
        for (tag, perm, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn close(&mut self, tree: &Tree, node: NodeId) -> Step {
        let open: Vec<_> = tree.opens().collect();
        match self.rng.choice(open) {
            Some((ino, node)) => Step::Close { ino, node },
            None => Step::Open { ino: self.any(tree), node },
        }
    }

    fn write(&mut self, tree: &Tree) -> Step {
        let data = vec![self.rng.u8(1..); self.rng.usize(1..3_000)];
        Step::Write { ino: self.any(tree), offset: self.rng.u64(0..SIZE_LIMIT), data }
    }

    /// Any inode, now and then one that never was.
    fn any(&mut self, tree: &Tree) -> Ino {
        let inos: Vec<_> = tree.nodes().map(|(ino, _)| ino).collect();
        if self.rng.u8(0..30) == 0 { Ino(u64::MAX >> 1) } else { *self.pick(&inos) }
    }

    /// A directory most of the time.
    fn dir(&mut self, tree: &Tree) -> Ino {
        let dirs: Vec<_> =
            tree.nodes().filter(|(_, node)| node.kind == FileKind::Directory).map(|(ino, _)| ino).collect();
        if self.rng.u8(0..20) == 0 { self.any(tree) } else { *self.pick(&dirs) }
    }

    fn name(&mut self) -> Name {
        name_of(self.pick(&[b"a", b"b", b"c", b"d", b"e", b"f"]).as_slice())
    }

    fn sometimes(&mut self) -> bool {
        self.rng.u8(0..3) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.rng.usize(0..items.len())]
    }
}

fn is_open(tree: &Tree, dir: Ino, name: &Name, node: NodeId) -> bool {
    let ino = tree.entries(dir).and_then(|entries| entries.get(name.as_bytes()));
    ino.is_some_and(|ino| tree.openers(*ino).contains(&node))
}

fn name_of(bytes: &[u8]) -> Name {
    Name::new(bytes).expect("a fixed name is valid")
}

const SIZE_LIMIT: u64 = 12_000;
