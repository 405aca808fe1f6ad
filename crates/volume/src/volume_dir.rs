//! An opened volume directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::VolumeError;
use crate::filesystem::check_local;
use crate::header::Header;

/// A volume directory whose header was read and found good.
///
/// Holds the run directory open, so that sockets are found whatever the length of the path.
#[derive(Debug)]
pub struct Volume {
    path: PathBuf,
    header: Header,
    run_dir: File,
}

impl Volume {
    /// Opens the volume at `path`. Takes no lock and changes nothing, but makes anew what holds nothing where it is missing: the directory
    /// of the sockets and the reserve, which copies of a volume may lack.
    ///
    /// # Errors
    ///
    /// Each case of [`VolumeError`] that concerns an existing directory, naming the path.
    pub fn open(path: &Path) -> Result<Self, VolumeError> {
        let given = path;
        let path = fs::canonicalize(given).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => VolumeError::Missing { path: given.to_owned() },
            _ => VolumeError::io("resolve the path of", given, error),
        })?;
        let metadata = fs::metadata(&path).map_err(|e| VolumeError::io("examine it", &path, e))?;
        if !metadata.is_dir() {
            return Err(VolumeError::NotADirectory { path });
        }
        let dir = File::open(&path).map_err(|e| VolumeError::io("open the directory", &path, e))?;
        let header = read_header(&path)?;
        check_local(&path, &dir)?;
        check_parts(&path)?;
        make_missing(&path)?;
        let run = path.join(RUN_DIR);
        let run_dir = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::DIRECTORY.bits() as i32)
            .open(&run)
            .map_err(|e| VolumeError::io("open", &run, e))?;
        Ok(Self { path, header, run_dir })
    }

    /// Absolute path without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was fixed when the volume was made.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Writes the header anew if an earlier version of the format wrote it, so that programs of that version refuse the volume from now
    /// on. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`VolumeError::Io`] if the header cannot be read or replaced; it is as it was then.
    pub fn raise_version(&self) -> Result<(), VolumeError> {
        let file = self.path.join(HEADER_FILE);
        let stored = fs::read(&file).map_err(|e| VolumeError::io("read the header", &file, e))?;
        let bytes = self.header.encode();
        if stored == bytes {
            return Ok(());
        }
        let new = self.path.join(HEADER_NEW_FILE);
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut out| out.write_all(&bytes).and_then(|()| out.sync_all()));
        written.map_err(|e| VolumeError::io("write", &new, e))?;
        fs::rename(&new, &file).map_err(|e| VolumeError::io("replace the header", &file, e))?;
        File::open(&self.path)
            .and_then(|dir| dir.sync_all())
            .map_err(|e| VolumeError::io("sync the directory", &self.path, e))
    }

    /// Directory of the metadata engine.
    pub fn meta_dir(&self) -> PathBuf {
        self.path.join(META_DIR)
    }

    /// Directory of the segments.
    pub fn segments_dir(&self) -> PathBuf {
        self.path.join(SEGMENTS_DIR)
    }

    pub(crate) fn run_dir(&self) -> &File {
        &self.run_dir
    }

    pub(crate) fn run_path(&self) -> PathBuf {
        self.path.join(RUN_DIR)
    }
}

fn read_header(path: &Path) -> Result<Header, VolumeError> {
    let file = path.join(HEADER_FILE);
    let opened = match File::open(&file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let path = path.to_owned();
            let is_half_made = fs::symlink_metadata(path.join(HEADER_NEW_FILE)).is_ok();
            return Err(match is_half_made {
                true => VolumeError::HalfFormatted { path },
                false => VolumeError::NotAVolume { path },
            });
        }
        Err(error) => return Err(VolumeError::io("open the header", &file, error)),
    };
    let mut bytes = Vec::new();
    opened
        .take(HEADER_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|e| VolumeError::io("read the header", &file, e))?;
    Header::decode(&bytes, path)
}

fn check_parts(path: &Path) -> Result<(), VolumeError> {
    match [META_DIR, SEGMENTS_DIR, LOCK_FILE].into_iter().find_map(|part| is_there(path, part).err()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn make_missing(path: &Path) -> Result<(), VolumeError> {
    let directory = || DirBuilder::new().mode(0o700).create(path.join(RUN_DIR));
    // Empty, as after it was given up to a full disk: the master fills it when there is room.
    let reserve = || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(path.join(RESERVE_FILE)).map(drop)
    };
    for (part, make) in [(RUN_DIR, &directory as &dyn Fn() -> io::Result<()>), (RESERVE_FILE, &reserve)] {
        match is_there(path, part) {
            Err(VolumeError::MissingPart { .. }) => {}
            result => {
                result?;
                continue;
            }
        }
        match make() {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|e| VolumeError::io("make anew", &path.join(part), e).of_opening())?,
        }
    }
    Ok(())
}

fn is_there(path: &Path, part: &'static str) -> Result<(), VolumeError> {
    match fs::metadata(path.join(part)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(VolumeError::MissingPart { path: path.to_owned(), part })
        }
        Err(error) => Err(VolumeError::io("examine", &path.join(part), error)),
    }
}

/// More than any header will have.
const HEADER_BYTES_MAX: u64 = 64 << 10;

pub(crate) const HEADER_FILE: &str = "holdfast.volume";
pub(crate) const HEADER_NEW_FILE: &str = "holdfast.volume.new";
pub(crate) const LOCK_FILE: &str = "master.lock";
pub(crate) const RESERVE_FILE: &str = "reserve";
pub(crate) const META_DIR: &str = "meta";
pub(crate) const SEGMENTS_DIR: &str = "segments";
pub(crate) const RUN_DIR: &str = "run";
pub(crate) const DIRECTORIES: [&str; 3] = [META_DIR, SEGMENTS_DIR, RUN_DIR];
