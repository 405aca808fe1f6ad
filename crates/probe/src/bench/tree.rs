//! Trees: made, looked at, removed.

use std::ffi::{CStr, OsStr};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::system::{die_with_parent, unblock_signals};

/// What was tried when it failed.
pub(crate) type Failed = (String, Errno);

/// Makes regular files, so many in a directory.
pub(crate) fn grow(
    dir: BorrowedFd<'_>,
    count: u64,
    per_directory: u64,
    mut tell: impl FnMut(),
) -> Result<(), Failed> {
    let mut current = None;
    for number in 0..count {
        if number % per_directory == 0 {
            let name = format!("d{:05}", number / per_directory);
            let failed = |error| (format!("mkdir {name}"), error);
            rustix::fs::mkdirat(dir, &*name, Mode::from_raw_mode(0o755)).map_err(failed)?;
            current = Some(open_dir(dir, &name).map_err(failed)?);
            tell();
        }
        let Some(current) = &current else { continue };
        let name = format!("f{number:07}");
        rustix::fs::mknodat(current, &*name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)
            .map_err(|error| (format!("mknod {name}"), error))?;
        tell();
    }
    Ok(())
}

/// Writes a tree like the source of a large C program: 20 files in a directory, ten directories in another; most files small, some large, 11 KiB
/// in the mean. The same each time.
pub(crate) fn unpack(dir: BorrowedFd<'_>, count: u64, mut tell: impl FnMut()) -> Result<(), Failed> {
    let text: Vec<u8> =
        (0..SIZE_MAX as u32).map(|at| b' ' + (at.wrapping_mul(2_654_435_761) >> 26) as u8).collect();
    let mut outer: Option<OwnedFd> = None;
    let mut inner: Option<OwnedFd> = None;
    for number in 0..count {
        let made = |at: BorrowedFd<'_>, name: String| {
            let failed = |error| (format!("mkdir {name}"), error);
            rustix::fs::mkdirat(at, &*name, Mode::from_raw_mode(0o755)).map_err(failed)?;
            open_dir(at, &*name).map_err(failed)
        };
        if number % (FILES_PER_DIRECTORY * DIRECTORIES) == 0 {
            outer = Some(made(dir, format!("d{}", number / (FILES_PER_DIRECTORY * DIRECTORIES)))?);
            tell();
        }
        let Some(outer) = &outer else { continue };
        if number % FILES_PER_DIRECTORY == 0 {
            inner = Some(made(outer.as_fd(), format!("d{}", number / FILES_PER_DIRECTORY % DIRECTORIES))?);
            tell();
        }
        let Some(inner) = &inner else { continue };
        let name = format!("f{number}.c");
        write(inner, &name, &text[..size_of(number)]).map_err(|error| (format!("write {name}"), error))?;
        tell();
    }
    Ok(())
}

fn write(dir: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644))?;
    // As tar(1) does it: 10 KiB at a time.
    for chunk in bytes.chunks(WRITE_LEN) {
        let mut done = 0;
        while done < chunk.len() {
            done += rustix::io::write(&file, &chunk[done..])?;
        }
    }
    Ok(())
}

/// Evenly spread over the logarithm, from 256 bytes to 64 KiB: the mean is 11.5 KiB, the median 4 KiB.
fn size_of(number: u64) -> usize {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let exponent = spread as f64 / (1u64 << 24) as f64 * SIZE_OCTAVES;
    ((SIZE_MIN as f64 * exponent.exp2()) as usize).min(SIZE_MAX)
}

/// Unpacks an archive with tar(1), which tells each name.
pub(crate) fn extract(dir: BorrowedFd<'_>, archive: &Path, mut tell: impl FnMut()) -> Result<(), Failed> {
    let failed =
        |error: std::io::Error| ("tar".to_owned(), Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let place = format!("/proc/{}/fd/{}", std::process::id(), dir.as_raw_fd());
    let arguments = [OsStr::new("-xvf"), archive.as_os_str(), OsStr::new("-C"), OsStr::new(&place)];
    let mut tar = Command::new("tar");
    tar.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    // A terminal's Ctrl-C is for the benchmark, which ends the worker and so this: it must not look like a failure.
    tar.process_group(0);
    let mut child = unblock_signals(die_with_parent(&mut tar)).spawn().map_err(failed)?;
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).split(b'\n')) {
        line.map_err(failed)?;
        tell();
    }
    let status = child.wait().map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err((format!("tar -xf {}: {status}", archive.display()), Errno::IO)),
    }
}

/// Removes everything in a directory, as `rm -r` does.
pub(crate) fn empty(dir: BorrowedFd<'_>, tell: &mut dyn FnMut()) -> Result<(), Failed> {
    let names = list(dir)?.map(|entry| entry.map(|entry| (entry.file_name().to_owned(), entry.file_type())));
    let names = names.collect::<Result<Vec<_>, _>>().map_err(|error| ("readdir".to_owned(), error))?;
    for (name, kind) in names.iter().filter(|(name, _)| !is_dot(name)) {
        let failed = |error| (format!("remove {}", name.to_string_lossy()), error);
        let is_directory = match kind {
            FileType::Unknown => {
                let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
                FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            }
            kind => *kind == FileType::Directory,
        };
        if is_directory {
            empty(open_dir(dir, &**name).map_err(failed)?.as_fd(), tell)?;
        }
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(dir, name, flags).map_err(failed)?;
        tell();
    }
    Ok(())
}

/// Calls `visit` with every name below `dir`, its directory and its type, once its attributes were asked for, as `find -ls` does.
pub(crate) fn each(
    dir: BorrowedFd<'_>,
    visit: &mut dyn FnMut(BorrowedFd<'_>, &CStr, FileType) -> Result<(), Errno>,
) -> Result<(), Failed> {
    for entry in list(dir)? {
        let entry = entry.map_err(|error| ("readdir".to_owned(), error))?;
        let name = entry.file_name();
        if is_dot(name) {
            continue;
        }
        let failed = |error| (name.to_string_lossy().into_owned(), error);
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink {
            rustix::fs::readlinkat(dir, name, Vec::new()).map_err(failed)?;
        }
        visit(dir, name, kind).map_err(failed)?;
        if kind == FileType::Directory {
            let inner = open_dir(dir, name).map_err(failed)?;
            each(inner.as_fd(), visit)?;
        }
    }
    Ok(())
}

/// As [`each`], until `tell` says that it is enough: what may not be seen, has gone or is another file system's is passed over. False
/// if it was enough.
pub(crate) fn look(dir: BorrowedFd<'_>, tell: &mut dyn FnMut() -> bool) -> Result<bool, Failed> {
    let own = rustix::fs::fstat(dir).map_err(|error| ("stat".to_owned(), error))?;
    for entry in list(dir)? {
        let Ok(entry) = entry else { break };
        let name = entry.file_name();
        if is_dot(name) {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if !tell() {
            return Ok(false);
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            && stat.st_dev == own.st_dev
            && let Ok(inner) = open_dir(dir, name)
            && !look(inner.as_fd(), tell).unwrap_or(true)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn is_dot(name: &CStr) -> bool {
    name == c"." || name == c".."
}

pub(crate) fn list(dir: BorrowedFd<'_>) -> Result<Dir, Failed> {
    Dir::read_from(dir).map_err(|error| ("readdir".to_owned(), error))
}

pub(crate) fn open_dir(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

const FILES_PER_DIRECTORY: u64 = 20;
const DIRECTORIES: u64 = 10;
const WRITE_LEN: usize = 10 << 10;
const SIZE_MIN: usize = 256;
const SIZE_MAX: usize = 64 << 10;
const SIZE_OCTAVES: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_of_the_sizes_of_source_files() {
        let mut sizes: Vec<usize> = (0..16_000).map(size_of).collect();
        sizes.sort_unstable();
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((11_000..12_500).contains(&mean), "{mean}");
        assert!((3_900..4_300).contains(&sizes[8_000]), "{}", sizes[8_000]);
        assert!(sizes[0] >= SIZE_MIN && sizes[15_999] <= SIZE_MAX);
    }
}
