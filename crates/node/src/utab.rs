//! Our line in `/run/mount/utab`, which makes umount(8) wait for the flush.
//!
//! The kernel sends no DESTROY to a FUSE file system that is not on a block device and waits for none, so
//! umount(2) returns before the node has flushed. umount(8) runs a helper, `umount.TYPE`, that waits. But it
//! asks statfs(2) for the type first and is told `fuse`, so it never looks for `umount.fuse.holdfast`, unless
//! the mount has a line in libmount's table of user space options: then it reads the mount table, and the
//! option `uhelper=` names the helper. Source: util-linux 2.38, `lookup_umount_fs_by_statfs` and
//! `prepare_helper_from_option` in `libmount/src/context_umount.c`.
//!
//! All of this is best effort: without the line or the helper the flush still happens, unwaited for.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// Our line. Dropping it takes the line out again, but no other of the same mount point.
#[derive(Debug)]
pub(crate) struct UtabLine {
    dir: PathBuf,
    line: String,
}

impl UtabLine {
    /// Adds the line for the mount of `volume` at `mountpoint`, of device `0:minor`; `None` where the table cannot be changed.
    pub fn add(volume: &Path, mountpoint: &Path, minor: u32) -> Option<Self> {
        Self::add_in(Path::new(DIR), volume, mountpoint, minor)
    }

    fn add_in(dir: &Path, volume: &Path, mountpoint: &Path, minor: u32) -> Option<Self> {
        let (source, target) = (escape(volume), escape(mountpoint));
        let pid = std::process::id();
        let line = format!("SRC={source} TARGET={target} ROOT=/ {OPTIONS}{DEVICE}{minor}{PID}{pid}\n");
        let mounted = mounted_targets();
        let is_kept = |line: &str| is_of_others(line, &target, &mounted);
        match change(dir, is_kept, &line) {
            Ok(()) => Some(Self { dir: dir.to_owned(), line }),
            Err(error) => {
                log::debug!("no line in {}/utab, so umount(8) will not wait: {error}", dir.display());
                None
            }
        }
    }
}

impl Drop for UtabLine {
    fn drop(&mut self) {
        if let Err(error) = change(&self.dir, |line| line != self.line, "") {
            log::warn!("a line stays in {}/utab: {error}: {}", self.dir.display(), self.line.trim_end());
        }
    }
}

/// Adds `line` to those that are kept, under libmount's lock and by a rename, as libmount does.
fn change(dir: &Path, is_kept: impl Fn(&str) -> bool, line: &str) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o644);
    let lock: File = options.open(dir.join("utab.lock"))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    let table = dir.join("utab");
    let old = match fs::read_to_string(&table) {
        Ok(old) => old,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let mut new: String = old.split_inclusive('\n').filter(|line| is_kept(line)).collect();
    new.push_str(line);
    if new == old {
        return Ok(());
    }
    let next = dir.join(format!("utab.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let written = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&next)
        .and_then(|mut file| file.write_all(new.as_bytes()))
        .and_then(|()| fs::rename(&next, &table));
    if written.is_err() {
        let _ = fs::remove_file(&next);
    }
    written
}

/// Whether a line is neither about `target` nor left behind by a node that was killed.
fn is_of_others(line: &str, target: &str, mounted: &[String]) -> bool {
    let mut words = line.split_ascii_whitespace();
    let Some(of) = words.find_map(|word| word.strip_prefix("TARGET=")) else { return true };
    let is_ours = line.split_ascii_whitespace().any(|word| word.starts_with(OPTIONS));
    // In another mount namespace it may be mounted all the same.
    let is_left_behind = is_ours && mounted.iter().all(|mounted| mounted != of) && !is_served(line);
    of != target && !is_left_behind
}

/// Whether the process of which a line tells is there.
fn is_served(line: &str) -> bool {
    let pid = line.split_once(PID).map_or("", |(_, rest)| rest);
    let pid = pid.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    !pid.is_empty() && Path::new("/proc").join(pid).exists()
}

/// Where Holdfast volumes are mounted.
fn mounted_targets() -> Vec<String> {
    let mounts = volume::sources::mounts().unwrap_or_default();
    mounts.iter().filter(|mount| mount.is_holdfast()).map(|mount| escape(&mount.mountpoint)).collect()
}

/// Writes blanks, backslashes and everything that is not printable as `\ooo`, like the kernel's mount table.
fn escape(path: &Path) -> String {
    let mut out = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_graphic() && *byte != b'\\' {
            out.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\{byte:03o}");
        }
    }
    out
}

const DIR: &str = "/run/mount";
const OPTIONS: &str = "OPTS=uhelper=holdfast";
/// The device number of the mount and the process that serves it, which tell our line from that of another mount at the same place: that may
/// have the number again.
const DEVICE: &str = ",x-holdfast.device=0:";
const PID: &str = ",x-holdfast.pid=";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_comes_and_goes_and_others_stay() {
        let dir = std::env::temp_dir().join(format!("holdfast-utab-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        // The third is of a mount that is seen elsewhere.
        let others = format!(
            "SRC=a TARGET=/m/x ROOT=/ OPTS=user\nSRC=a TARGET=/m/x\\040y ROOT=/ OPTS=loop\nSRC=a TARGET=/m/else ROOT=/ {OPTIONS}{DEVICE}8{PID}1\n"
        );
        let old = format!(
            "SRC=old TARGET=/m ROOT=/ OPTS=x\n{others}SRC=a TARGET=/m/killed ROOT=/ {OPTIONS}\nSRC=a TARGET=/m/gone ROOT=/ {OPTIONS}{DEVICE}9{PID}0\n"
        );
        fs::write(dir.join("utab"), old).unwrap();
        let add =
            |minor| UtabLine::add_in(&dir, Path::new("/srv/my vol"), Path::new("/m"), minor).expect("added");
        let table = || fs::read_to_string(dir.join("utab")).unwrap();
        let ours = |minor: u32| {
            format!(
                "SRC=/srv/my\\040vol TARGET=/m ROOT=/ OPTS=uhelper=holdfast,x-holdfast.device=0:{minor},x-holdfast.pid={}\n",
                std::process::id()
            )
        };
        let line = add(52);
        assert_eq!(table(), format!("{others}{}", ours(52)));
        // Mounted there once more, before the first one's node has ended.
        let next = add(53);
        drop(line);
        assert_eq!(table(), format!("{others}{}", ours(53)));
        drop(next);
        assert_eq!(table(), others);
        fs::remove_dir_all(&dir).unwrap();
    }
}
