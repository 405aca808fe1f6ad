//! What a process' names are after a number of its operations, and which of them a volume still has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::content::{owner, versions};
use crate::journal::{Done, Op};

/// A name: a directory, or a file by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File(u64),
}

pub type Names = BTreeMap<String, Kind>;

/// Moves a name, and everything below it.
pub fn rename<T>(names: &mut BTreeMap<String, T>, from: &str, to: &str) {
    let inside = format!("{from}/");
    let moved: Vec<String> =
        names.keys().filter(|path| *path == from || path.starts_with(&inside)).cloned().collect();
    for path in moved {
        if let Some(kind) = names.remove(&path) {
            names.insert(format!("{to}{}", &path[from.len()..]), kind);
        }
    }
}

/// Does what an operation does to names. Returns whether it is one that does something to names.
pub fn apply(names: &mut Names, op: &Op) -> bool {
    match op {
        Op::Mkdir(path) => drop(names.insert(path.clone(), Kind::Directory)),
        Op::Rmdir(path) | Op::Unlink(path) => drop(names.remove(path)),
        Op::Create(path, file, _) => drop(names.insert(path.clone(), Kind::File(*file))),
        Op::Rename(from, to) => rename(names, from, to),
        Op::Link(from, to) => {
            if let Some(kind) = names.get(from).copied() {
                names.insert(to.clone(), kind);
            }
        }
        Op::Write(..)
        | Op::Fsync(..)
        | Op::Check(..)
        | Op::Look(..)
        | Op::Append(..)
        | Op::FsyncLog(..)
        | Op::ReadLog(..)
        | Op::Locked(..)
        | Op::Race(..) => return false,
    }
    true
}

/// A file as it is found.
#[derive(Clone, Debug)]
pub struct FoundFile {
    pub ino: u64,
    pub links: u64,
    pub bytes: Vec<u8>,
}

/// What is found of a process' names; `None` for a directory.
pub type Found = BTreeMap<String, Option<FoundFile>>;

/// Everything of a process under a mount's root.
pub fn find(root: &Path, process: u64) -> io::Result<Found> {
    let mut found = Found::new();
    let home = format!("p{process}");
    if root.join(&home).exists() {
        found.insert(home.clone(), None);
        walk(root, &home, "", &mut found)?;
    }
    walk(root, "mix", &format!("{process}-"), &mut found)?;
    Ok(found)
}

fn walk(root: &Path, dir: &str, prefix: &str, found: &mut Found) -> io::Result<()> {
    let at = |what: &'static str, path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| io::Error::new(error.kind(), format!("{what} {path}: {error}"))
    };
    let of_dir = root.join(dir);
    for entry in fs::read_dir(&of_dir).map_err(at("open", &of_dir))? {
        let entry = entry.map_err(at("list", &of_dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(prefix) {
            continue;
        }
        let path = format!("{dir}/{name}");
        let metadata = fs::symlink_metadata(entry.path()).map_err(at("stat", &entry.path()))?;
        if metadata.is_dir() {
            found.insert(path.clone(), None);
            walk(root, &path, "", found)?;
        } else {
            let bytes = fs::read(entry.path()).map_err(at("read", &entry.path()))?;
            if bytes.len() as u64 != metadata.len() {
                return Err(io::Error::other(format!("{path}: {} bytes of {}", bytes.len(), metadata.len())));
            }
            found.insert(path, Some(FoundFile { ino: metadata.ino(), links: metadata.nlink(), bytes }));
        }
    }
    Ok(())
}

/// Whether what is found may be these names: the same paths, each file of the number that its bytes say, and names of
/// one file of one inode.
pub fn matches(names: &Names, found: &Found) -> bool {
    if names.len() != found.len() {
        return false;
    }
    let (mut by_file, mut by_ino) = (BTreeMap::new(), BTreeMap::new());
    names.iter().zip(found).all(|((path, kind), (found_path, file))| {
        path == found_path
            && match (kind, file) {
                (Kind::Directory, None) => true,
                (Kind::File(number), Some(file)) => {
                    owner(&file.bytes).is_none_or(|owner| owner == *number)
                        && *by_file.entry(*number).or_insert(file.ino) == file.ino
                        && *by_ino.entry(file.ino).or_insert(*number) == *number
                }
                (Kind::Directory, Some(_)) | (Kind::File(_), None) => false,
            }
    })
}

/// What a process did in one life, and what of it may not be lost.
#[derive(Debug)]
pub struct Life {
    pub process: u64,
    pub done: Vec<Done>,
    /// Names before all of it.
    pub first: Names,
    /// Of each operation that renames or links a file, which file.
    moved: Vec<Option<u64>>,
}

impl Life {
    pub fn new(process: u64, done: Vec<Done>) -> Self {
        let first: Names = [(format!("p{process}"), Kind::Directory)].into();
        let mut names = first.clone();
        let moved = done.iter().map(|done| {
            let file = match &done.op {
                Op::Rename(from, _) | Op::Link(from, _) => names.get(from).copied(),
                _ => None,
            };
            apply(&mut names, &done.op);
            match file {
                Some(Kind::File(file)) => Some(file),
                Some(Kind::Directory) | None => None,
            }
        });
        let moved = moved.collect();
        Self { process, done, first, moved }
    }

    /// Names after the first `count` operations.
    pub fn names_after(&self, count: usize) -> Names {
        let mut names = self.first.clone();
        for done in &self.done[..count] {
            apply(&mut names, &done.op);
        }
        names
    }

    /// How many of the first operations fit what is found, names alone. Operations without names count as there.
    pub fn fitting(&self, found: &Found) -> BTreeSet<usize> {
        let mut names = self.first.clone();
        let mut fitting = BTreeSet::new();
        let mut fits = matches(&names, found);
        if fits {
            fitting.insert(0);
        }
        for (index, done) in self.done.iter().enumerate() {
            if apply(&mut names, &done.op) {
                fits = matches(&names, found);
            }
            if fits {
                fitting.insert(index + 1);
            }
        }
        fitting
    }

    /// The first number of operations after which `path` is `file`.
    pub fn first_with(&self, path: &str, file: u64) -> Option<usize> {
        let mut names = self.first.clone();
        self.done
            .iter()
            .position(|done| apply(&mut names, &done.op) && names.get(path) == Some(&Kind::File(file)))
            .map(|index| index + 1)
    }

    /// The versions that a file's bytes may be of, when the first `count` operations are there.
    pub fn versions_of(&self, file: u64, count: usize, died: u64, commit_us: u64) -> (u64, u64) {
        let (mut written, mut least, mut greatest) = (0, 0, 0);
        for (index, done) in self.done.iter().enumerate() {
            let is_there = index < count;
            match &done.op {
                Op::Create(_, number, _) if *number == file => {
                    greatest = 1;
                    if done.ok {
                        written = 1;
                    }
                }
                Op::Write(_, number, version) if *number == file => {
                    greatest = *version;
                    if done.ok {
                        written = *version;
                    }
                }
                Op::Fsync(_, number) if *number == file && done.ok => least = written,
                // A rename or link waits for the content of its file.
                Op::Rename(..) | Op::Link(..) if is_there && self.moved[index] == Some(file) => {
                    least = written;
                }
                _ => {}
            }
            if done.ended.is_some_and(|ended| ended + commit_us < died) {
                least = least.max(written);
            }
        }
        (least, greatest)
    }
}

/// Judges a file's bytes.
///
/// # Errors
///
/// What is wrong with them.
pub fn judge_bytes(file: u64, bytes: &[u8], len: usize, least: u64, greatest: u64) -> Result<(), String> {
    let (oldest, newest) = versions(file, bytes)?;
    if newest > greatest {
        return Err(format!("version {newest}, which was never written; the last was {greatest}"));
    }
    if least > 0 && (bytes.len() != len || oldest < least) {
        return Err(format!(
            "{} of {len} bytes, versions {oldest} to {newest}, and version {least} may not be lost",
            bytes.len()
        ));
    }
    if bytes.len() > len { Err(format!("{} bytes, more than {len}", bytes.len())) } else { Ok(()) }
}
