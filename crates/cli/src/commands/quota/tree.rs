//! `holdfast quota tree`: a directory and all below it are charged to a tree of its own, or to none.
//!
//! Whoever may write below the directory can move things while this runs. So it goes by open directories and follows no symbolic link: nothing outside is
//! ever touched. What was moved out of its way is met when all is gone through once more.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use volume::sources;

use super::TREE_XATTR;
use crate::args::QuotaTreeArgs;
use crate::failure::Failure;

/// One time through everything.
#[derive(Default)]
struct Pass {
    /// What belongs to the tree now.
    count: u64,
    /// What did not before.
    assigned: u64,
}

/// Runs it.
pub(super) fn run(args: &QuotaTreeArgs) -> Result<(), Failure> {
    let failed = |error: Errno| Failure::problem(format!("{}: {error}", args.dir.display()));
    let metadata = std::fs::symlink_metadata(&args.dir)
        .map_err(|error| Failure::problem(format!("{}: {error}", args.dir.display())))?;
    if !metadata.is_dir() {
        return Err(Failure::unable(format!("{}: not a directory", args.dir.display())));
    }
    volume_holding(&args.dir)?;
    let number = match args.remove {
        true => 0,
        // Inode numbers are never reused, and so are these.
        false => u32::try_from(metadata.ino()).map_err(|_| {
            Failure::problem(format!("{}: its inode number is too large to name a tree", args.dir.display()))
        })?,
    };
    let tree = Tree { number: number.to_string(), device: metadata.dev() };
    raise_files();
    let mut pass = Pass::default();
    for passes in 0..PASSES_MAX {
        let top = rustix::fs::open(&args.dir, DIRECTORY, Mode::empty()).map_err(failed)?;
        let opened = rustix::fs::fstat(&top).map_err(failed)?;
        if (opened.st_dev, opened.st_ino) != (metadata.dev(), metadata.ino()) {
            return Err(Failure::problem(format!("{}: another directory by now", args.dir.display())));
        }
        // Files are named through it. Without it all would seem to be gone.
        rustix::fs::stat(format!("/proc/self/fd/{}", top.as_raw_fd()))
            .map_err(|error| Failure::problem(format!("/proc is needed: {error}")))?;
        if passes == 0 {
            // Who may not read the attribute is told that there is none, and may not set it either.
            tree.set(&top).map_err(failed)?;
        }
        pass = Pass::default();
        tree.assign_directory(&top, &args.dir, &mut pass)?;
        tree.visit(top, &args.dir, &mut pass)?;
        if pass.assigned == 0 {
            break;
        }
    }
    let count = pass.count;
    if pass.assigned > 0 {
        return Err(Failure::problem(format!(
            "{}: names are moved about all the time: of {count} inodes that belong to it now some were new the last of {PASSES_MAX} times; run it again",
            args.dir.display()
        )));
    }
    match number {
        0 => println!("{count} inodes belong to no tree"),
        number => println!("{count} inodes belong to tree:{number}"),
    }
    Ok(())
}

/// The volume that a directory is in, by the mount that it is on.
pub(super) fn volume_holding(dir: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| Failure::problem(format!("{}: {error}", dir.display()));
    let whole = std::fs::canonicalize(dir).map_err(failed)?;
    let mount = sources::containing(&whole).map_err(failed)?.filter(sources::MountEntry::is_holdfast);
    mount
        .map(|mount| mount.source)
        .ok_or_else(|| Failure::unable(format!("{}: it is on no Holdfast mount", dir.display())))
}

/// A directory is open on each level.
fn raise_files() {
    let limit = getrlimit(Resource::Nofile);
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A directory on the way down.
struct Level {
    dir: OwnedFd,
    /// What is in it and yet to be gone through.
    below: Vec<CString>,
}

struct Tree {
    /// As the attribute has it.
    number: String,
    device: u64,
}

impl Tree {
    /// Assigns what is below a directory, which is assigned already: what is made meanwhile inherits. One level after the other, without recursion, for trees are
    /// deeper than stacks.
    fn visit(&self, top: OwnedFd, path: &Path, pass: &mut Pass) -> Result<(), Failure> {
        let mut path = path.to_owned();
        let mut levels = vec![Level { below: self.assign_within(&top, &path, pass)?, dir: top }];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.below.pop() else {
                levels.pop();
                path.pop();
                continue;
            };
            path.push(name.to_string_lossy().as_ref());
            let opened = self.open(&level.dir, &name);
            let depth = levels.len();
            let failed = |error: Errno| match error {
                Errno::MFILE | Errno::NFILE => Failure::problem(format!(
                    "{depth} levels below the directory: {error}; a file is open for each (`ulimit -Hn`)"
                )),
                error => Failure::problem(format!("{}: {error}", path.display())),
            };
            match opened.map_err(failed)? {
                Some(dir) => levels.push(Level { below: self.assign_within(&dir, &path, pass)?, dir }),
                None => _ = path.pop(),
            }
        }
        Ok(())
    }

    /// Assigns what is in a directory; returns the directories in it.
    fn assign_within(&self, dir: &OwnedFd, path: &Path, pass: &mut Pass) -> Result<Vec<CString>, Failure> {
        let failed = |error: Errno| Failure::problem(format!("{}: {error}", path.display()));
        let mut below: Vec<CString> = Vec::new();
        let Some(entries) = if_there(Dir::read_from(dir)).map_err(failed)? else { return Ok(below) };
        for entry in entries {
            let Some(entry) = if_there(entry).map_err(failed)? else { break };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Some(found) =
                if_there(rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)).map_err(failed)?
            else {
                continue;
            };
            if found.st_dev != self.device {
                continue;
            }
            if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
                self.assign_file(dir, name, path, pass)?;
            } else if let Some(child) = self.open(dir, name).map_err(failed)? {
                self.assign_directory(&child, &path.join(name.to_string_lossy().as_ref()), pass)?;
                below.push(name.to_owned());
            }
        }
        Ok(below)
    }

    /// A directory in another, unless something else is there by now.
    fn open(&self, dir: &OwnedFd, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
        let Some(child) = if_there(rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()))? else {
            return Ok(None);
        };
        Ok((rustix::fs::fstat(&child)?.st_dev == self.device).then_some(child))
    }

    fn assign_directory(&self, dir: &OwnedFd, path: &Path, pass: &mut Pass) -> Result<(), Failure> {
        let mut had = [0; NUMBER_LEN_MAX];
        let had = rustix::fs::fgetxattr(dir, TREE_XATTR, &mut had[..]).map(|len| had[..len].to_vec());
        let is_new = !self.is_its(had);
        if is_new {
            let failed = |error: Errno| Failure::problem(format!("{}: {error}", path.display()));
            if if_there(self.set(dir)).map_err(failed)?.is_none() {
                return Ok(());
            }
        }
        pass.note(is_new);
        Ok(())
    }

    fn set(&self, dir: &OwnedFd) -> Result<(), Errno> {
        rustix::fs::fsetxattr(dir, TREE_XATTR, self.number.as_bytes(), XattrFlags::empty())
    }

    fn assign_file(&self, dir: &OwnedFd, name: &CStr, path: &Path, pass: &mut Pass) -> Result<(), Failure> {
        // It may be of any kind, and is not opened.
        let at = [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name.to_bytes()].concat();
        let mut had = [0; NUMBER_LEN_MAX];
        let had = rustix::fs::lgetxattr(&at[..], TREE_XATTR, &mut had[..]).map(|len| had[..len].to_vec());
        let is_new = !self.is_its(had);
        if is_new {
            let value = self.number.as_bytes();
            let set = if_there(rustix::fs::lsetxattr(&at[..], TREE_XATTR, value, XattrFlags::empty()));
            let failed = |error: Errno| {
                Failure::problem(format!("{}/{}: {error}", path.display(), name.to_string_lossy()))
            };
            if set.map_err(failed)?.is_none() {
                return Ok(());
            }
        }
        pass.note(is_new);
        Ok(())
    }

    /// Whether something with this attribute belongs to the tree; without one it belongs to none.
    fn is_its(&self, had: Result<Vec<u8>, Errno>) -> bool {
        match had {
            Ok(had) => had == self.number.as_bytes(),
            Err(Errno::NODATA) => self.number == "0",
            Err(_) => false,
        }
    }
}

impl Pass {
    fn note(&mut self, is_new: bool) {
        self.count += 1;
        self.assigned += u64::from(is_new);
    }
}

/// Nothing where somebody has removed something or put something else there.
fn if_there<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE) => Ok(None),
        Err(error) => Err(error),
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);
/// Times that all is gone through while there is something new.
const PASSES_MAX: u32 = 16;
/// Digits of a tree.
const NUMBER_LEN_MAX: usize = 16;
