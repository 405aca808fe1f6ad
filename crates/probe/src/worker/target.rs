//! What a path is, and the file of our own that is measured in a directory.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::nonce::nonce;

/// What can be a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    BlockDevice,
}

impl Kind {
    /// Looks what `path` is.
    pub fn of(path: &Path) -> Result<Self, String> {
        let flags = StatxFlags::TYPE;
        let found = rustix::fs::statx(CWD, path, AtFlags::empty(), flags)
            .map_err(|errno| explain(path, "cannot be looked at", errno))?;
        match FileType::from_raw_mode(u32::from(found.stx_mode)) {
            FileType::RegularFile => Ok(Self::File),
            FileType::Directory => Ok(Self::Directory),
            FileType::BlockDevice => Ok(Self::BlockDevice),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::Unknown => {
                Err(format!("{}: neither a file nor a directory nor a block device", path.display()))
            }
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::BlockDevice => "block device",
        }
    }
}

/// Opens what exists, to read.
pub(super) fn open(path: &Path, extra: OFlags) -> Result<File, Errno> {
    open_as(path, OFlags::RDONLY | extra)
}

/// Opens what exists, to lock it: NFSv4 locks exclusively only what may be written (flock(2)). Nothing is. Where writing is not
/// allowed, to read.
pub(super) fn open_to_lock(path: &Path) -> Result<File, Errno> {
    open_as(path, OFlags::RDWR).or_else(|_| open_as(path, OFlags::RDONLY))
}

fn open_as(path: &Path, flags: OFlags) -> Result<File, Errno> {
    // Never a terminal, never a wait for whoever holds a lease or the other end.
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}

/// Makes a file in `dir` and takes its name away at once: it ends with its descriptor, however the worker ends.
pub(super) fn make_nameless(dir: &Path, extra: OFlags) -> Result<File, String> {
    let (file, name) = make(dir, extra).map_err(|errno| explain(dir, "no file can be made in it", errno))?;
    rustix::fs::unlink(&name).map_err(|errno| {
        let text = format!("the watch's own file {} cannot be removed", name.display());
        explain(dir, &text, errno)
    })?;
    Ok(file)
}

fn make(dir: &Path, extra: OFlags) -> Result<(File, PathBuf), Errno> {
    first_free(own_names(dir), |name| make_named(name, extra))
}

/// Makes a file of this name, which must not be there.
pub(super) fn make_named(name: &Path, extra: OFlags) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | extra;
    rustix::fs::open(name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Does it with the first of `names` that is not there already, and gives that name too.
pub(super) fn first_free<T>(
    names: impl IntoIterator<Item = PathBuf>,
    mut make: impl FnMut(&Path) -> Result<T, Errno>,
) -> Result<(T, PathBuf), Errno> {
    for name in names {
        match make(&name) {
            Ok(made) => return Ok((made, name)),
            // Somebody left it behind.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

/// Names that nobody else uses, on other nodes either, where numbers of processes and threads may be the same.
pub(super) fn own_names(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let start = format!(".holdfast-watch-{}-{}", std::process::id(), nonce());
    (0..NAMES_MAX).map(move |number| dir.join(format!("{start}-{number}")))
}

/// A message that names what failed, where, why, and where it helps what to do.
pub(super) fn explain(path: &Path, what: &str, errno: Errno) -> String {
    let hint = match errno {
        Errno::ROFS => "; watch a file in it or its device instead, which are only read",
        Errno::ACCESS | Errno::PERM => "; run as root, or as a user who may",
        Errno::BADF => "; NFSv4 locks exclusively only what may be written",
        Errno::NOTCONN => "; its server is gone, unmount it",
        Errno::NOSPC | Errno::DQUOT => "; make room, or watch a file in it",
        _ => "",
    };
    format!("{}: {what}: {}{hint}", path.display(), text_of(errno))
}

/// `No space left on device`, without the number.
pub(super) fn text_of(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Names tried before giving up.
const NAMES_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_watches_of_one_process_and_thread_use_different_names() {
        let dir = Path::new("/d");
        let names = || own_names(dir).take(2).collect::<Vec<_>>();
        let (first, second) = (names(), names());
        assert!(first[0] != first[1] && !second.contains(&first[0]), "{first:?} {second:?}");
        assert!(first.iter().all(|name| name.parent() == Some(dir)), "{first:?}");
    }
}
