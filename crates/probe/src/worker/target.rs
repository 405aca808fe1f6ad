//! What a path is, and the file of our own that is measured in a directory.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

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
    // Never a terminal, never a wait for whoever holds a lease or the other end.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK | extra;
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
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | extra;
    let mut number = 0;
    loop {
        let name = own_name(dir, number);
        match rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok((file.into(), name)),
            // Of an earlier process with this number, which was killed.
            Err(Errno::EXIST) if number < NAMES_MAX => number += 1,
            Err(errno) => return Err(errno),
        }
    }
}

/// A name that nobody else uses: by process, thread and number.
pub(super) fn own_name(dir: &Path, number: u32) -> PathBuf {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    dir.join(format!(".holdfast-watch-{}-{thread}-{number}", std::process::id()))
}

/// A message that names what failed, where, why, and where it helps what to do.
pub(super) fn explain(path: &Path, what: &str, errno: Errno) -> String {
    let hint = match errno {
        Errno::ROFS => "; watch a file in it or its device instead, which are only read",
        Errno::ACCESS | Errno::PERM => "; run as root, or as a user who may",
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
