//! Making a volume.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;

use crate::error::VolumeError;
use crate::filesystem::check_local;
use crate::header::{Header, INLINE_BYTES_MAX, VolumeId, is_segment_len};
use crate::reserve;
use crate::volume_dir::{DIRECTORIES, HEADER_FILE, HEADER_NEW_FILE, LOCK_FILE, RESERVE_FILE};

/// Choices made once, when a volume is made.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Size of a segment of file data: a multiple of 4 KiB, 1 MiB to 1 GiB; `None` takes a 64th of the file
    /// system, 1 MiB to 64 MiB.
    pub segment_bytes: Option<u64>,
    /// Files up to this size are kept in the metadata; at most 64 KiB.
    pub inline_bytes: u32,
    /// Size of the reserve; `None` takes 1 % of the file system, 4 MiB to 64 MiB.
    pub reserve_bytes: Option<u64>,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self { segment_bytes: None, inline_bytes: 4096, reserve_bytes: None }
    }
}

impl FormatOptions {
    fn check(&self) -> Result<(), VolumeError> {
        let bad = |option, expected| Err(VolumeError::BadOption { option, expected });
        if self.segment_bytes.is_some_and(|bytes| !is_segment_len(bytes)) {
            return bad("segment size", "a multiple of 4 KiB between 1 MiB and 1 GiB");
        }
        if self.inline_bytes > INLINE_BYTES_MAX {
            return bad("inline size", "at most 64 KiB");
        }
        if self.reserve_bytes.is_some_and(|bytes| bytes < reserve::BYTES_MIN) {
            return bad("reserve", "at least 4 MiB");
        }
        Ok(())
    }
}

/// Makes a volume in the new or empty directory `path` and returns its header.
///
/// Everything is durable when it returns. Interrupted, it leaves a directory that [`Volume::open`]
/// calls half-formatted; failed, it takes back what it made.
///
/// [`Volume::open`]: crate::Volume::open
///
/// # Errors
///
/// Everything of [`VolumeError`] that concerns a path, an option or space.
pub fn format(path: &Path, options: &FormatOptions) -> Result<Header, VolumeError> {
    options.check()?;
    let (dir, existed) = claim_directory(path)?;
    let result = check_local(path, &dir).and_then(|()| fill(path, &dir, options));
    if result.is_err() {
        take_back(path, existed);
    }
    result
}

/// Whether the directory was there before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existed {
    Yes,
    No,
}

/// Makes the directory, or finds it empty, and keeps others from formatting it while what is returned is open.
fn claim_directory(path: &Path) -> Result<(File, Existed), VolumeError> {
    let existed = match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Existed::No,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Existed::Yes,
        Err(error) => return Err(VolumeError::io("create the directory", path, error)),
    };
    let metadata = fs::metadata(path).map_err(|e| VolumeError::io("examine it", path, e))?;
    if !metadata.is_dir() {
        return Err(VolumeError::NotADirectory { path: path.to_owned() });
    }
    let dir = File::open(path).map_err(|e| VolumeError::io("open the directory", path, e))?;
    match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let other = io::Error::other("another process formats it");
            return Err(VolumeError::io("lock the directory", path, other));
        }
        Err(error) => return Err(VolumeError::io("lock the directory", path, error)),
    }
    let entries = fs::read_dir(path).map_err(|e| VolumeError::io("list the directory", path, e))?;
    let mut is_empty = true;
    for entry in entries {
        let entry = entry.map_err(|e| VolumeError::io("list the directory", path, e))?;
        // A new ext4 file system has it; nobody's data is in it.
        if entry.file_name() == "lost+found" {
            continue;
        }
        is_empty = false;
        if entry.file_name() == HEADER_FILE {
            return Err(VolumeError::AlreadyAVolume { path: path.to_owned() });
        }
        if entry.file_name() == HEADER_NEW_FILE {
            return Err(VolumeError::HalfFormatted { path: path.to_owned() });
        }
    }
    if is_empty { Ok((dir, existed)) } else { Err(VolumeError::NotEmpty { path: path.to_owned() }) }
}

fn fill(path: &Path, dir: &File, options: &FormatOptions) -> Result<Header, VolumeError> {
    let permissions = fs::Permissions::from_mode(0o700);
    fs::set_permissions(path, permissions)
        .map_err(|e| VolumeError::io("make the directory private", path, e))?;
    let reserve_bytes = match options.reserve_bytes {
        Some(bytes) => bytes,
        None => reserve::default_bytes(path)?,
    };
    let segment_bytes = match options.segment_bytes {
        Some(bytes) => bytes,
        None => reserve::default_segment_bytes(path)?,
    };
    let header = Header {
        id: VolumeId(random()?),
        cookie_key: random()?,
        created_secs: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        segment_bytes,
        inline_bytes: options.inline_bytes,
        reserve_bytes,
    };
    // First of all, and renamed last: while it is there the volume is half-formatted.
    let mut header_file = create_file(path, HEADER_NEW_FILE)?;
    sync(path, dir)?;
    for name in DIRECTORIES {
        let sub = path.join(name);
        DirBuilder::new().mode(0o700).create(&sub).map_err(|e| VolumeError::io("create", &sub, e))?;
        File::open(&sub).and_then(|sub| sub.sync_all()).map_err(|e| VolumeError::io("sync", &sub, e))?;
    }
    sync(path, &create_file(path, LOCK_FILE)?)?;
    reserve::fill(path, &create_file(path, RESERVE_FILE)?, reserve_bytes)?;
    header_file.write_all(&header.encode()).map_err(|e| VolumeError::io("write the header", path, e))?;
    sync(path, &header_file)?;
    sync(path, dir)?;
    fs::rename(path.join(HEADER_NEW_FILE), path.join(HEADER_FILE))
        .map_err(|e| VolumeError::io("name the header", path, e))?;
    sync(path, dir)?;
    sync_parent(path)?;
    Ok(header)
}

fn create_file(path: &Path, name: &str) -> Result<File, VolumeError> {
    let file = path.join(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.open(&file).map_err(|e| VolumeError::io("create", &file, e))
}

fn sync(path: &Path, file: &File) -> Result<(), VolumeError> {
    file.sync_all().map_err(|e| VolumeError::io("sync", path, e))
}

/// Makes the volume's own name durable.
fn sync_parent(path: &Path) -> Result<(), VolumeError> {
    let absolute = fs::canonicalize(path).map_err(|e| VolumeError::io("resolve the path of", path, e))?;
    let Some(parent) = absolute.parent() else { return Ok(()) };
    match File::open(parent).and_then(|dir| dir.sync_all()) {
        // A parent that may be searched but not read cannot be synced by us.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result.map_err(|e| VolumeError::io("sync", parent, e)),
    }
}

/// Removes what a failed format made. Only names of the layout, so nothing of anybody else's.
fn take_back(path: &Path, existed: Existed) {
    for name in [RESERVE_FILE, LOCK_FILE, HEADER_FILE] {
        let _ = fs::remove_file(path.join(name));
    }
    for name in DIRECTORIES {
        let _ = fs::remove_dir(path.join(name));
    }
    // Last, so that what is left behind by a failure here is still recognised.
    let _ = fs::remove_file(path.join(HEADER_NEW_FILE));
    if existed == Existed::No {
        let _ = fs::remove_dir(path);
    }
}

fn random() -> Result<[u8; 16], VolumeError> {
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let got = rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty());
        filled += got.map_err(|e| VolumeError::io("read random numbers from", Path::new("getrandom"), e))?;
    }
    Ok(bytes)
}
