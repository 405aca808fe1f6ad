//! Written zeros ahead in the journal that fjall writes to.
//!
//! A sync after bytes went to where the file had none has the file system below commit its own journal, which takes half as long again
//! as the sync alone. So where small batches are synced one by one, zeros are written behind the last batch, when
//! nobody waits; to a reader they are what a journal ends with anyway.
//!
//! A journal that fjall begins is 64 MiB long and written from its start, so there is room for them. One that fjall found at its opening ends
//! with its last batch, and gets as much room; where fjall could not be kept from appending to it (`descriptor.rs`), it gets no zeros.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
};

use rustix::fs::{SeekFrom, seek};

use crate::journal;

/// Where zeros are written.
#[derive(Debug)]
pub(crate) struct Ahead {
    dir: PathBuf,
    /// A journal that gets no zeros.
    bare: Option<u64>,
    open: Option<(u64, File)>,
    /// Zeros left behind the last batch, about; less than 0 where batches went on beyond them.
    room: i64,
}

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
        let mut there = vec![0; (end - start) as usize];
        file.read_exact_at(&mut there, start)?;
        // A hole amid batches, which hold zeros there: the file was made sparse by somebody else.
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

/// Of a journal that fjall begins (`fjall:src/journal/writer.rs`).
const JOURNAL_LEN: u64 = 64 << 20;
/// Zeros written at once. Whoever syncs next waits for them: one in some hundreds.
const FILL_LEN: usize = 4 << 20;
/// With less room on the disk, others need it more.
const FREE_MIN: u64 = 256 << 20;
/// A journal that gets none is looked at again after as many bytes: the next may have begun.
const ASKED_AGAIN: i64 = 4 << 20;
/// Where fewer are left more are written.
const ROOM_LOW: i64 = 256 << 10;
