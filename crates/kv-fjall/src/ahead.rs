//! Written zeros ahead in the journal that fjall writes to.
//!
//! A sync after bytes went to where the file had none has the file system below commit its own journal, which takes half as long again
//! as the sync alone. So where small batches are synced one by one, zeros are written behind the last batch, when
//! nobody waits; to a reader they are what a journal ends with anyway.
//!
//! A journal that fjall found at its opening it appends to: it has no room ahead, and zeros would come between its batches.
//! Such a one is made like those that fjall begins itself, see [`give_room`].

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use kv::{EngineError, Result};
use rustix::{
    fs::{OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, seek},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};

use crate::journal;

/// Where zeros are written.
#[derive(Debug)]
pub(crate) struct Ahead {
    dir: PathBuf,
    /// A journal that fjall appends to, or that was copied with holes: it gets no zeros.
    bare: Option<u64>,
    open: Option<(u64, File)>,
    /// Zeros left behind the last batch, about; less than 0 where batches went on beyond them.
    room: i64,
}

impl Ahead {
    /// For the journals in `dir`, just opened by fjall. To be called before anything is committed.
    ///
    /// # Errors
    ///
    /// `Full`, `Io` where the journal cannot be synced: through fjall's own open file, which is not told of the failure again.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let newest = journal::newest(dir);
        let mut has_room = false;
        if let Some((_, path)) = &newest {
            match give_room(path) {
                Ok(None) => {}
                Ok(Some(file)) => {
                    let synced = file.sync_all();
                    synced.map_err(|source| EngineError::write("syncing the journal", path, source))?;
                    has_room = true;
                }
                Err(error) => log::debug!("{} goes on to grow: {error}", path.display()),
            }
        }
        let bare = newest.filter(|_| !has_room).map(|(id, _)| id);
        Ok(Self { dir: dir.to_owned(), bare, open: None, room: 0 })
    }

    /// Takes in that batches of so many bytes were written.
    pub(crate) fn note_written(&mut self, bytes: u64) {
        self.room = self.room.saturating_sub_unsigned(bytes);
    }

    /// Whether it is time to [`fill`](Self::fill).
    pub(crate) fn is_low(&self) -> bool {
        self.room < ROOM_LOW
    }

    /// Writes zeros. No batch may be written meanwhile. Returns what has to be synced for them.
    pub(crate) fn fill(&mut self) -> io::Result<Option<&File>> {
        let Some((id, path)) = journal::newest(&self.dir) else { return Ok(None) };
        if self.bare == Some(id) {
            self.room = ASKED_AGAIN;
            return Ok(None);
        }
        if self.open.as_ref().is_none_or(|(open, _)| *open != id) {
            self.open = Some((id, OpenOptions::new().read(true).write(true).open(&path)?));
            self.room = 0;
        }
        let Some((_, file)) = &self.open else { return Ok(None) };
        let space = rustix::fs::fstatvfs(file)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < FREE_MIN {
            return Ok(None);
        }
        let len = file.metadata()?.len();
        // Behind everything that was ever written, unless the file is a sparse copy: there zeros amid a batch are holes, too.
        let start = seek(file, SeekFrom::Hole(0))?;
        let end = len.min(start + FILL_LEN as u64);
        if start >= end {
            self.room = ASKED_AGAIN;
            return Ok(None);
        }
        let mut there = vec![0; (end - start) as usize];
        file.read_exact_at(&mut there, start)?;
        if there.iter().any(|byte| *byte != 0) {
            self.bare = Some(id);
            self.room = ASKED_AGAIN;
            return Ok(None);
        }
        file.write_all_at(&there, start)?;
        self.room = self.room.max(0) + (end - start) as i64;
        Ok(Some(file))
    }
}

/// Has fjall go on at the end of a journal that it would append to, and gives the file the length of those that fjall begins.
/// Returns the file if it has room then; it is to be synced.
fn give_room(path: &Path) -> io::Result<Option<File>> {
    let path = path.canonicalize()?;
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|_| std::fs::read_link(entry.path()).is_ok_and(|to| to == path))
        else {
            continue;
        };
        // The same open file, so that what is set here holds for fjall.
        let Ok(file) = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()).map(File::from) else { continue };
        let flags = fcntl_getfl(&file)?;
        if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            continue;
        }
        let len = file.metadata()?.len();
        if !flags.contains(OFlags::APPEND) {
            return Ok(Some(file).filter(|_| len >= JOURNAL_LEN));
        }
        if len >= JOURNAL_LEN {
            return Ok(None);
        }
        seek(&file, SeekFrom::Start(len))?;
        fcntl_setfl(&file, flags - OFlags::APPEND)?;
        if fcntl_getfl(&file)?.contains(OFlags::APPEND) {
            return Ok(None);
        }
        file.set_len(JOURNAL_LEN)?;
        return Ok(Some(file));
    }
    Ok(None)
}

/// Length of the journals that fjall begins.
const JOURNAL_LEN: u64 = 64 << 20;
/// Zeros written at once. Whoever syncs next waits for them: one in some hundreds.
const FILL_LEN: usize = 4 << 20;
/// With less room on the disk, others need it more.
const FREE_MIN: u64 = 256 << 20;
/// A journal that gets none is looked at again after as many bytes: the next may have begun.
const ASKED_AGAIN: i64 = 4 << 20;
/// Where fewer are left more are written.
const ROOM_LOW: i64 = 256 << 10;
