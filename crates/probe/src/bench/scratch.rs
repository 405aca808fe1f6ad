//! A directory of the benchmark's own.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::bench::BenchError;

/// One directory, seen through one or several mount points. It goes with all that is in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// In the order of the mount points.
    places: Vec<PathBuf>,
}

impl Scratch {
    /// Makes it below the first of `mounts`; the others must show it.
    pub fn new(mounts: &[PathBuf]) -> Result<Self, BenchError> {
        let unique =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
        let name = OsString::from(format!(".holdfast-bench-{}-{unique:x}", std::process::id()));
        let mut this = Self { places: Vec::new() };
        for path in mounts {
            let failed = |what| move |source| BenchError::Place { path: path.clone(), what, source };
            let mount = fs::canonicalize(path).map_err(failed("cannot be used"))?;
            let place = mount.join(&name);
            if this.places.is_empty() {
                fs::create_dir(&place).map_err(failed("no directory can be made there"))?;
            } else if !place.is_dir() {
                let what = format!(
                    "does not show what is made in {}: not the same file system",
                    mounts[0].display()
                );
                return Err(BenchError::Unfit { path: path.clone(), what });
            }
            this.places.push(place);
        }
        Ok(this)
    }

    /// The directory through each mount point.
    pub fn places(&self) -> &[PathBuf] {
        &self.places
    }

    /// Through the first.
    pub fn first(&self) -> &Path {
        &self.places[0]
    }

    /// Makes a directory in it.
    pub fn make(&self, name: &str) -> Result<(), BenchError> {
        let path = self.first().join(name);
        fs::create_dir(&path).map_err(|source| BenchError::Place { path, what: "cannot be made", source })
    }

    /// Removes a directory in it that is empty, or with all that is in it.
    pub fn clear(&self, name: &str) -> Result<(), BenchError> {
        let path = self.first().join(name);
        fs::remove_dir_all(&path).map_err(|source| BenchError::Place {
            path,
            what: "cannot be removed",
            source,
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(first) = self.places.first() else { return };
        let mut removed = fs::remove_dir_all(first);
        for _ in 0..TRIES {
            // What a worker has started and was killed with it may still be in a call that makes a name.
            if !removed.as_ref().is_err_and(|error| error.kind() == ErrorKind::DirectoryNotEmpty) {
                break;
            }
            std::thread::sleep(PAUSE);
            removed = fs::remove_dir_all(first);
        }
        if let Err(error) = removed {
            eprintln!("holdfast: {}: left behind: {error}", first.display());
        }
    }
}

/// Refuses what would not fit: so many inodes, of so many bytes each.
pub(crate) fn check_room(path: &Path, inodes: u64, bytes_each: u64) -> Result<(), BenchError> {
    let failed = |error: rustix::io::Errno| BenchError::Place {
        path: path.to_owned(),
        what: "cannot be used",
        source: error.into(),
    };
    let found = rustix::fs::statvfs(path).map_err(failed)?;
    let unfit = |what: String| Err(BenchError::Unfit { path: path.to_owned(), what });
    // File systems that make inodes as they need them say 0.
    if found.f_files > 0 && found.f_favail < inodes {
        return unfit(format!("{inodes} inodes are needed, and {} are free", found.f_favail));
    }
    let (free, needed) = (found.f_bavail.saturating_mul(found.f_frsize), inodes.saturating_mul(bytes_each));
    // Those that do not know how large they are say 0.
    if found.f_blocks > 0 && free < needed {
        return unfit(format!("{} MiB are needed, and {} are free", needed >> 20, free >> 20));
    }
    Ok(())
}

/// How often more it is removed, and how long what is killed has for each.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);
