//! What happened on the disk, in order.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use super::sparse::{SECTOR, Sparse};

/// One change or sync.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes of a file.
    Data(u64, DataChange),
    /// Names.
    Names(NameChange),
    /// A new inode without a name. Comes before the name.
    Inode(u64, Kind),
    /// fsync or fdatasync of a file.
    Sync(u64, Reach),
    /// fsync of a directory.
    SyncDir(u64),
    /// A sync that was left out.
    Nothing,
}

impl Event {
    /// Tells it in a line, bytes left out.
    pub(super) fn describe(&self, paths: &BTreeMap<u64, String>) -> String {
        let path = |ino: &u64| paths.get(ino).map_or("?", String::as_str);
        let place = |(dir, name): &Slot| format!("{}/{}", path(dir), name.to_string_lossy());
        match self {
            Self::Data(ino, DataChange::Write(offset, data)) => {
                format!("write {} {offset}+{}", path(ino), data.len())
            }
            Self::Data(ino, DataChange::SetLen(len)) => format!("truncate {} to {len}", path(ino)),
            Self::Data(ino, DataChange::Zero(offset, len)) => format!("zero {} {offset}+{len}", path(ino)),
            Self::Inode(ino, kind) => format!("new inode {ino}, {kind:?}"),
            Self::Sync(ino, reach) => format!("sync {} {reach:?}", path(ino)),
            Self::Nothing => "no sync".to_owned(),
            Self::SyncDir(dir) => format!("sync directory {}/", path(dir)),
            Self::Names(change) => {
                let slots = change.slots.iter().map(|(slot, ino)| match ino {
                    Some(ino) => format!("{} is inode {ino}", place(slot)),
                    None => format!("{} is gone", place(slot)),
                });
                slots.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// What of a file is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// fsync(2).
    All,
    /// fdatasync(2): what is needed to read the bytes, the length included.
    Data,
}

/// A change of a file's bytes.
#[derive(Clone, Debug)]
pub enum DataChange {
    /// At an offset.
    Write(u64, Arc<[u8]>),
    /// The length: cut or grown.
    SetLen(u64),
    /// Zeros from an offset, so many.
    Zero(u64, u64),
}

impl DataChange {
    /// Changes `bytes`.
    pub fn apply(&self, bytes: &mut Sparse) {
        match self {
            Self::Write(offset, data) => bytes.write(*offset, data),
            Self::SetLen(len) => bytes.set_len(*len),
            Self::Zero(offset, len) => bytes.zero(*offset, *len),
        }
    }

    /// Sectors it touches of a file that is `len` bytes long before.
    pub fn sectors(&self, len: u64) -> std::ops::Range<u64> {
        let (start, end) = match self {
            Self::Write(offset, data) => (*offset, offset + data.len() as u64),
            Self::SetLen(new) => (*new, len),
            Self::Zero(offset, zeros) => (*offset, (offset + zeros).min(len)),
        };
        start / SECTOR..end.div_ceil(SECTOR).max(start / SECTOR)
    }
}

/// A place for a name: directory and name.
pub type Slot = (u64, OsString);

/// A change of names, whole or not at all: every file system that is worth its name has a journal for them.
#[derive(Clone, Debug)]
pub struct NameChange {
    /// What is in each place afterwards.
    pub slots: Vec<(Slot, Option<u64>)>,
}

impl NameChange {
    /// Changes `names`.
    pub fn apply(&self, names: &mut Names) {
        for (slot, ino) in &self.slots {
            match ino {
                Some(ino) => names.insert(slot.clone(), *ino),
                None => names.remove(slot),
            };
        }
    }

    /// Whether it changes the directory `dir`.
    pub fn touches(&self, dir: u64) -> bool {
        self.slots.iter().any(|((parent, _), _)| *parent == dir)
    }
}

/// All names of all directories.
pub type Names = BTreeMap<Slot, u64>;

/// Names of one directory.
pub fn names_in(names: &Names, dir: u64) -> impl Iterator<Item = (&OsStr, u64)> {
    let first = (dir, OsString::new());
    names.range(first..(dir + 1, OsString::new())).map(|((_, name), ino)| (name.as_os_str(), *ino))
}

/// What an inode is; never changes.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A regular file with this mode.
    File(u32),
    /// A directory with this mode.
    Directory(u32),
    /// A symbolic link to there.
    Symlink(OsString),
    /// A socket, with all of its mode.
    Node(u32),
}
