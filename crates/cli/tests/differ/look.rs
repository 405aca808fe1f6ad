//! Looks at both sides: single inodes after a step, and whole trees.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::op::{Attributes, Side, Value, sorted_names};

/// Something that is not the same on both sides.
#[derive(Debug)]
pub struct Difference {
    pub what: String,
    /// Local inodes that it is about.
    pub inos: BTreeSet<u64>,
}

impl Difference {
    pub fn new(what: String, inos: impl IntoIterator<Item = u64>) -> Self {
        Self { what, inos: inos.into_iter().collect() }
    }
}

/// Times as they were at the last look, on the mounts and on the local side.
#[derive(Clone, Copy)]
struct Seen {
    ours: [Time; 2],
    local: [Time; 2],
}

type Time = (i64, i64);

/// What may be said of times: those that were set are equal, and others move on one side when they move on the other.
#[derive(Default)]
pub struct Times {
    seen: HashMap<u64, Seen>,
    /// Changed through mappings: their times move when the kernel writes pages back, which POSIX leaves to it.
    pub loose: BTreeSet<u64>,
    /// Changed through mappings, with the local times of change that they had afterwards: ext4 does not notice each store to
    /// pages that were stored to before, and leaves a time that was set in between.
    pub stored: HashMap<u64, (i64, i64)>,
}

impl Times {
    /// Compares all that is compared of one inode.
    pub fn compare(&mut self, ours: &Attributes, local: &Attributes) -> Result<(), String> {
        let parts = [
            ("mode", u64::from(ours.mode), u64::from(local.mode)),
            ("nlink", ours.nlink, local.nlink),
            ("uid", ours.uid.into(), local.uid.into()),
            ("gid", ours.gid.into(), local.gid.into()),
            // Sizes of directories are each file system's own (docs/semantics.md, "Directories").
            ("size", if ours.is_dir() { local.size } else { ours.size }, local.size),
        ];
        for (what, ours, local) in parts {
            if ours != local {
                return Err(if what == "mode" {
                    format!("mode {ours:o}, but locally {local:o}")
                } else {
                    format!("{what} {ours}, but locally {local}")
                });
            }
        }
        self.compare_times(ours, local)
    }

    fn compare_times(&mut self, ours: &Attributes, local: &Attributes) -> Result<(), String> {
        let now = Seen { ours: [ours.mtime, ours.ctime], local: [local.mtime, local.ctime] };
        let before = self.seen.insert(local.ino, now);
        if self.loose.contains(&local.ino) {
            return Ok(());
        }
        let is_stored = self.stored.get(&local.ino) == Some(&local.mtime);
        if local.mtime.0 < SET_BEFORE && ours.mtime != local.mtime && !is_stored {
            return Err(format!("mtime {:?}, but locally it was set to {:?}", ours.mtime, local.mtime));
        }
        for (which, what) in ["mtime", "ctime"].into_iter().enumerate() {
            let (ours, local) = (now.ours[which], now.local[which]);
            if (ours.0 - local.0).abs() > LATE_MAX && !(is_stored && what == "mtime") {
                return Err(format!("{what} {ours:?}, but locally {local:?}"));
            }
            let Some(before) = before else { continue };
            let (ours_before, local_before) = (before.ours[which], before.local[which]);
            if (ours != ours_before) != (local != local_before) {
                return Err(format!(
                    "{what} went from {ours_before:?} to {ours:?}, but locally from {local_before:?} to {local:?}"
                ));
            }
        }
        Ok(())
    }

    /// Nothing is known any more of when an inode changed last.
    pub fn forget(&mut self, ino: u64) {
        self.seen.remove(&ino);
    }
}

/// Compares what a path leads to on both sides, links and what is behind them.
pub fn compare_path(
    times: &mut Times,
    ours: &Side<'_>,
    local: &Side<'_>,
    path: &str,
) -> Result<(), Difference> {
    for flags in [AtFlags::SYMLINK_NOFOLLOW, AtFlags::empty()] {
        let found =
            [ours, local].map(|side| fs::statat(side.root, path, flags).map(|stat| Attributes::of(&stat)));
        match found {
            [Ok(ours), Ok(local)] => {
                times
                    .compare(&ours, &local)
                    .map_err(|what| Difference::new(format!("{path}: {what}"), [local.ino]))?;
                if !local.is_link() {
                    return Ok(());
                }
            }
            [Err(ours), Err(local)] if ours == local => return Ok(()),
            [ours, local] => {
                let inos = local.map(|local| local.ino);
                let what = format!("{path}: stat brings {}, but locally {}", told(ours), told(local));
                return Err(Difference::new(what, inos));
            }
        }
    }
    Ok(())
}

fn told(found: Result<Attributes, Errno>) -> String {
    found.map_or_else(crate::tally::errno_name, |found| format!("{found:?}"))
}

/// All of a file that can be opened.
pub fn content(side: &Side<'_>, path: &str) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(side.root, path, flags, Mode::empty())?;
    let mut bytes = Vec::new();
    let mut room = vec![0; 1 << 17];
    loop {
        let count = rustix::io::read(&file, &mut room[..])?;
        if count == 0 {
            return Ok(bytes);
        }
        bytes.extend(&room[..count]);
    }
}

/// Says where bytes are others.
pub fn compare_bytes(ours: &[u8], local: &[u8]) -> Result<(), String> {
    if ours == local {
        return Ok(());
    }
    let is_other = |n: &usize| ours[*n] != local[*n];
    let first = (0..ours.len().min(local.len())).find(is_other);
    Err(match first {
        None => format!("{} bytes, but locally {}", ours.len(), local.len()),
        Some(first) => {
            let last = (0..ours.len().min(local.len())).rev().find(is_other).unwrap_or(first);
            let sample = |bytes: &[u8]| format!("{:?}", &bytes[first..bytes.len().min(first + 8)]);
            format!(
                "of {} bytes (locally {}) the first other one is {first} and the last {last}: {}, but locally {}",
                ours.len(),
                local.len(),
                sample(ours),
                sample(local)
            )
        }
    })
}

/// An inode at a path.
#[derive(Clone, Debug)]
pub struct Node {
    pub attributes: Attributes,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub type Tree = BTreeMap<String, Node>;

/// Everything below a root.
pub fn tree(side: &Side<'_>) -> Result<Tree, String> {
    let mut tree = Tree::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for path in names_in(side, &dir).map_err(|error| at("listing of", &dir, error))? {
            let stat = fs::statat(side.root, &path, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| at("stat of", &path, error))?;
            let attributes = Attributes::of(&stat);
            let content = match () {
                () if attributes.is_file() => content(side, &path),
                () if attributes.is_link() => {
                    fs::readlinkat(side.root, &*path, Vec::new()).map(|target| target.into_bytes())
                }
                () => Ok(Vec::new()),
            };
            let content = content.map_err(|error| at("content of", &path, error))?;
            let xattrs = xattrs(side, &path).map_err(|error| at("extended attributes of", &path, error))?;
            if attributes.is_dir() {
                dirs.push(path.clone());
            }
            tree.insert(path, Node { attributes, content, xattrs });
        }
    }
    Ok(tree)
}

fn at(what: &str, path: &str, error: Errno) -> String {
    format!("{what} {path:?}: {}", crate::tally::errno_name(error))
}

/// Paths of what is in a directory.
pub fn names_in(side: &Side<'_>, dir: &str) -> Result<Vec<String>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = fs::openat(side.root, if dir.is_empty() { "." } else { dir }, flags, Mode::empty())?;
    let mut paths = Vec::new();
    for entry in fs::Dir::new(open)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            paths.push(if dir.is_empty() { name } else { format!("{dir}/{name}") });
        }
    }
    Ok(paths)
}

fn xattrs(side: &Side<'_>, path: &str) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let mut room = vec![0; 70_000];
    let len = fs::llistxattr(side.at(path), &mut room[..])?;
    let Value::Names(names) = sorted_names(&room[..len]) else { unreachable!("names") };
    let value_of = |(name, _): (Vec<u8>, String)| {
        let mut room = vec![0; 70_000];
        let len = fs::lgetxattr(side.at(path), &name[..], &mut room[..])?;
        Ok((name, room[..len].to_vec()))
    };
    names.into_iter().map(value_of).collect()
}

/// Compares a mount's tree with the local one.
pub fn compare_trees(times: &mut Times, ours: &Tree, local: &Tree) -> Result<(), Difference> {
    if let Some(path) = ours.keys().find(|path| !local.contains_key(*path)) {
        return Err(Difference::new(format!("{path} is there, but not locally"), []));
    }
    let (our_groups, local_groups) = (groups(ours), groups(local));
    for (path, local) in local {
        let ino = local.attributes.ino;
        let differs = |what: String| Difference::new(format!("{path}: {what}"), [ino]);
        let Some(node) = ours.get(path) else {
            return Err(differs("is not there, but locally it is".to_owned()));
        };
        times.compare(&node.attributes, &local.attributes).map_err(differs)?;
        compare_bytes(&node.content, &local.content).map_err(differs)?;
        if node.xattrs != local.xattrs {
            let names = |node: &Node| -> Vec<(String, usize)> {
                node.xattrs
                    .iter()
                    .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.len()))
                    .collect()
            };
            return Err(differs(format!("xattrs {:?}, but locally {:?}", names(node), names(local))));
        }
        let first = [our_groups[&node.attributes.ino], local_groups[&ino]];
        if first[0] != first[1] {
            return Err(differs(format!("is the inode of {}, but locally that of {}", first[0], first[1])));
        }
    }
    Ok(())
}

/// The first path of each inode.
fn groups(tree: &Tree) -> HashMap<u64, &str> {
    tree.iter().rev().map(|(path, node)| (node.attributes.ino, path.as_str())).collect()
}

/// Times before were set: 2017.
const SET_BEFORE: i64 = 1_500_000_000;
/// Longest between the two sides' doing of one step, in seconds.
const LATE_MAX: i64 = 20;
