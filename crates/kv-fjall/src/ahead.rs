//! Written zeros ahead in the journal that fjall writes to.
//!
//! A sync after bytes went to where the file had none has the file system below commit its own journal, which takes half as long again
//! as the sync alone. So where small batches are synced one by one, zeros are written behind the last batch, when
//! nobody waits; to a reader they are what a journal ends with anyway. Who comes meanwhile must not wait for them: so they are few at a time, and go past
//! the page cache, where that can be done. Then the next sync has no more to store than its batch. They are read into it afterwards, for a batch that
//! begins in a page which is not there has that read first.
//!
//! A journal that fjall begins is 64 MiB long and written from its start, so there is room for them. One that fjall found at its opening ends
//! with its last batch, and gets as much room; where fjall could not be kept from appending to it (`descriptor.rs`), it gets no zeros.

use std::{
    fs::{File, OpenOptions},
    io,
    num::NonZeroU64,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Advice, OFlags, SeekFrom, fadvise, seek};
use rustix::io::Errno;

use crate::journal;

/// Where zeros are written.
#[derive(Debug)]
pub(crate) struct Ahead {
    dir: PathBuf,
    /// A journal that gets no zeros.
    bare: Option<u64>,
    open: Option<Open>,
    /// Zeros left behind the last batch, about; less than 0 where batches went on beyond them.
    room: i64,
}

/// The journal that is written to.
#[derive(Debug)]
struct Open {
    id: u64,
    file: File,
    /// The same past the page cache, where the file system below has that.
    direct: Option<File>,
}

impl Open {
    fn new(id: u64, path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let direct =
            OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).ok();
        Ok(Self { id, file, direct })
    }

    /// Writes zeros at `start`. Returns whether they are still to be synced.
    fn write_zeros(&mut self, start: u64, len: usize) -> io::Result<bool> {
        if let Some(direct) = self.direct.as_ref().filter(|_| (start | len as u64).is_multiple_of(ALIGN)) {
            match write_pieces(direct, start, len) {
                Ok(()) => return Ok(false),
                // It asks for more than was known.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.direct = None,
                Err(error) => return Err(error),
            }
        }
        write_pieces(&self.file, start, len)?;
        Ok(true)
    }
}

fn write_pieces(file: &File, start: u64, len: usize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let piece = &ZEROS.0[..PIECE_LEN.min(len - done)];
        file.write_all_at(piece, start + done as u64)?;
        done += piece.len();
    }
    Ok(())
}

/// What is written, in memory as direct writes want it.
#[repr(align(4096))]
struct Zeros([u8; PIECE_LEN]);

static ZEROS: Zeros = Zeros([0; PIECE_LEN]);

impl Ahead {
    /// For the journals in `dir`. To `bare` fjall appends.
    pub(crate) fn new(dir: PathBuf, bare: Option<u64>) -> Self {
        Self { dir, bare, open: None, room: 0 }
    }

    /// Takes in that batches of so many bytes were written.
    pub(crate) fn note_written(&mut self, bytes: u64) {
        self.room = self.room.saturating_sub_unsigned(bytes);
    }

    /// Whether it is time to [`fill`](Self::fill).
    pub(crate) fn is_low(&self) -> bool {
        self.room < ROOM_LOW
    }

    /// Writes zeros. No batch may be written meanwhile, but while what comes of it is [settled](Filled::settle).
    pub(crate) fn fill(&mut self) -> io::Result<Option<Filled<'_>>> {
        let Some((id, path)) = journal::newest(&self.dir) else { return Ok(None) };
        if self.bare == Some(id) {
            self.room = ASKED_AGAIN;
            return Ok(None);
        }
        if self.open.as_ref().is_none_or(|open| open.id != id) {
            self.open = Some(Open::new(id, &path)?);
            self.room = 0;
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        let file = &open.file;
        let space = rustix::fs::fstatvfs(file)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < FREE_MIN {
            return Ok(None);
        }
        if file.metadata()?.len() < JOURNAL_LEN {
            file.set_len(JOURNAL_LEN)?;
        }
        // Behind everything that was ever written.
        let start = seek(file, SeekFrom::Hole(0))?;
        let end = JOURNAL_LEN.min(start + FILL_LEN as u64);
        if start >= end {
            self.room = ASKED_AGAIN;
            return Ok(None);
        }
        let len = (end - start) as usize;
        // A hole amid batches, which hold zeros there: the file was made sparse by somebody else.
        if has_data(file, start, len)? {
            self.bare = Some(id);
            self.room = ASKED_AGAIN;
            return Ok(None);
        }
        let must_sync = open.write_zeros(start, len)?;
        self.room = self.room.max(0) + len as i64;
        Ok(self.open.as_ref().map(|open| Filled { file: &open.file, start, len: len as u64, must_sync }))
    }
}

/// Zeros that were written.
#[derive(Debug)]
pub(crate) struct Filled<'a> {
    file: &'a File,
    start: u64,
    len: u64,
    must_sync: bool,
}

impl Filled<'_> {
    /// Syncs them, or has them read, in a while.
    ///
    /// # Errors
    ///
    /// Of a sync: it may be the first of this journal and takes the batches in it along, and whoever syncs them next would not be told of the failure
    /// again.
    pub(crate) fn settle(&self) -> io::Result<()> {
        if self.must_sync {
            return self.file.sync_data();
        }
        // Without them in memory a write takes longer, no more.
        _ = fadvise(self.file, self.start, NonZeroU64::new(self.len), Advice::WillNeed);
        Ok(())
    }
}

/// Whether there is anything but zeros.
fn has_data(file: &File, start: u64, len: usize) -> io::Result<bool> {
    // What is a hole as a whole need not be read.
    match seek(file, SeekFrom::Data(start)) {
        Ok(data) if data < start + len as u64 => {}
        Ok(_) | Err(Errno::NXIO) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    }
    let mut there = vec![0; len];
    file.read_exact_at(&mut there, start)?;
    Ok(there.iter().any(|byte| *byte != 0))
}

/// Of a journal that fjall begins (`fjall:src/journal/writer.rs`).
const JOURNAL_LEN: u64 = 64 << 20;
/// Zeros written at once. Whoever commits meanwhile waits for them, one in a hundred or two, for half a millisecond.
const FILL_LEN: usize = 1 << 20;
/// By one call.
const PIECE_LEN: usize = 256 << 10;
/// What direct writes have to be a multiple of: any file system's block, or more.
const ALIGN: u64 = 4096;
/// With less room on the disk, others need it more.
const FREE_MIN: u64 = 256 << 20;
/// A journal that gets none is looked at again after as many bytes: the next may have begun.
const ASKED_AGAIN: i64 = 4 << 20;
/// Where fewer are left more are written.
const ROOM_LOW: i64 = 256 << 10;
