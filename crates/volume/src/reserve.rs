//! Space of the file system below, and the reserve kept in it.
//!
//! The reserve is a preallocated file. When the disk is full the master releases it, so that the commits of
//! unlink and truncate find room, and refills it once they have made some.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::VolumeError;
use crate::volume_dir::{RESERVE_FILE, Volume};

/// Space of the file system that carries the volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total_bytes: u64,
    /// Not in use.
    pub free_bytes: u64,
    /// Not in use and open to this process.
    pub available_bytes: u64,
    /// What the reserve holds, within the used space.
    pub reserve_bytes: u64,
}

impl Volume {
    /// Reads the space of the file system below.
    pub fn space(&self) -> Result<Space, VolumeError> {
        let reserve = self.path().join(RESERVE_FILE);
        let reserve = std::fs::metadata(&reserve).map_err(|e| VolumeError::io("examine", &reserve, e))?;
        space_at(self.path()).map(|space| Space { reserve_bytes: reserve.len(), ..space })
    }

    /// A view of the reserve that outlives this borrow.
    pub fn watch_reserve(&self) -> ReserveWatch {
        ReserveWatch { path: self.path().join(RESERVE_FILE), wanted: self.header().reserve_bytes }
    }

    /// Gives the reserve's space back to the file system and returns how much that was; 0 when it was
    /// given back before.
    pub fn release_reserve(&self) -> Result<u64, VolumeError> {
        let path = self.path().join(RESERVE_FILE);
        let file = open_reserve(&path)?;
        let len = file.metadata().map_err(|e| VolumeError::io("examine", &path, e))?.len();
        file.set_len(0).map_err(|e| VolumeError::io("release the reserve", &path, e))?;
        // Many file systems free blocks only as the truncation commits.
        file.sync_all().map_err(|e| VolumeError::io("sync", &path, e))?;
        Ok(len)
    }

    /// Takes the reserve's space again if at least twice as much is available, and returns whether the
    /// reserve is full now.
    pub fn refill_reserve(&self) -> Result<bool, VolumeError> {
        let path = self.path().join(RESERVE_FILE);
        let wanted = self.header().reserve_bytes;
        let file = open_reserve(&path)?;
        let len = file.metadata().map_err(|e| VolumeError::io("examine", &path, e))?.len();
        if len >= wanted {
            return Ok(true);
        }
        if space_at(self.path())?.available_bytes < wanted.saturating_mul(2) {
            return Ok(false);
        }
        match fill(self.path(), &file, wanted) {
            Err(VolumeError::NoSpace { .. }) => Ok(false),
            result => result.map(|()| true),
        }
    }
}

/// Tells how much of the reserve is released at the moment.
#[derive(Clone, Debug)]
pub struct ReserveWatch {
    path: PathBuf,
    wanted: u64,
}

impl ReserveWatch {
    /// Bytes that are free now and will be taken again as soon as they can: nobody may count on them.
    pub fn released_bytes(&self) -> u64 {
        let held = std::fs::metadata(&self.path).map_or(self.wanted, |metadata| metadata.len());
        self.wanted.saturating_sub(held)
    }
}

/// Least size of a reserve.
pub(crate) const BYTES_MIN: u64 = 4 << 20;
const BYTES_MAX: u64 = 64 << 20;

/// 1 % of the file system, within the bounds.
pub(crate) fn default_bytes(path: &Path) -> Result<u64, VolumeError> {
    let one_percent = space_at(path)?.total_bytes / 100;
    // Whole blocks of every usual size.
    Ok(one_percent.clamp(BYTES_MIN, BYTES_MAX).next_multiple_of(64 << 10))
}

/// A 64th of the file system, so that a small one is not taken up by segments that are hardly begun.
pub(crate) fn default_segment_bytes(path: &Path) -> Result<u64, VolumeError> {
    let part = space_at(path)?.total_bytes / 64;
    Ok(part.clamp(1 << 20, 64 << 20).next_multiple_of(1 << 20))
}

/// Preallocates `bytes` in `file` and syncs it. Without enough room the file is left empty.
pub(crate) fn fill(volume: &Path, file: &File, bytes: u64) -> Result<(), VolumeError> {
    let allocated = match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP) => write_zeros(file, bytes),
        result => result.map_err(io::Error::from),
    };
    match allocated.and_then(|()| file.sync_all()) {
        Ok(()) => Ok(()),
        Err(error) => {
            let _ = file.set_len(0);
            match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Err(VolumeError::NoSpace {
                    path: volume.to_owned(),
                    needed: bytes,
                    available: space_at(volume)?.available_bytes,
                }),
                _ => Err(VolumeError::io("preallocate the reserve", &volume.join(RESERVE_FILE), error)),
            }
        }
    }
}

/// For file systems without preallocation.
fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0u8; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let chunk = left.min(zeros.len() as u64);
        file.write_all(&zeros[..chunk as usize])?;
        left -= chunk;
    }
    Ok(())
}

fn open_reserve(path: &Path) -> Result<File, VolumeError> {
    OpenOptions::new().write(true).open(path).map_err(|e| VolumeError::io("open the reserve", path, e))
}

fn space_at(path: &Path) -> Result<Space, VolumeError> {
    let stat = rustix::fs::statvfs(path).map_err(|e| VolumeError::io("read the space of", path, e))?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Space {
        total_bytes: bytes(stat.f_blocks),
        free_bytes: bytes(stat.f_bfree),
        available_bytes: bytes(stat.f_bavail),
        reserve_bytes: 0,
    })
}
