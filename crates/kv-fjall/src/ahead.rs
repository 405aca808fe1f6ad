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
    io::{self, ErrorKind},
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
        let zeros = &ZEROS.0[..len];
        if let Some(direct) = self.direct.as_ref().filter(|_| (start | len as u64).is_multiple_of(ALIGN)) {
            match direct.write_all_at(zeros, start) {
                Ok(()) => return Ok(false),
                // It asks for more than was known, or opens what it cannot write.
                Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
                    self.direct = None;
                }
                Err(error) => return Err(error),
            }
        }
        self.file.write_all_at(zeros, start)?;
        Ok(true)
    }
}

/// What is written, in memory as direct writes want it.
#[repr(align(4096))]
struct Zeros([u8; FILL_LEN]);

static ZEROS: Zeros = Zeros([0; FILL_LEN]);

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

    /// Whether it is to go on.
    pub(crate) fn is_full(&self) -> bool {
        self.room >= ROOM_FULL
    }

    /// Writes some zeros. No batch may be written meanwhile, but while what comes of it is [settled](Filled::settle). `None`, and after an error too:
    /// none are to be had for a while.
    pub(crate) fn fill(&mut self) -> io::Result<Option<Filled<'_>>> {
        let room = std::mem::replace(&mut self.room, ASKED_AGAIN);
        let Some((id, path)) = journal::newest(&self.dir) else { return Ok(None) };
        if self.bare == Some(id) {
            return Ok(None);
        }
        let is_new = self.open.as_ref().is_none_or(|open| open.id != id);
        if is_new {
            self.open = Some(Open::new(id, &path)?);
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
        let end = JOURNAL_LEN.min((start + FILL_LEN as u64) / ALIGN * ALIGN);
        if start >= end {
            return Ok(None);
        }
        let len = (end - start) as usize;
        // A hole amid batches, which hold zeros there: the file was made sparse by somebody else.
        if has_data(file, start, len)? {
            self.bare = Some(id);
            return Ok(None);
        }
        let must_sync = open.write_zeros(start, len)?;
        self.room = if is_new { 0 } else { room.max(0) } + len as i64;
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
    /// Whether they are to be synced. Nobody else may sync the journal meanwhile, until it is known how that went: it may be the first sync of this journal
    /// and takes the batches in it along, and whoever syncs them next would not be told of a failure again.
    pub(crate) fn must_sync(&self) -> bool {
        self.must_sync
    }

    /// Syncs them, or has them read, in a while.
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
    // What a file system does not say of what is not on its disk yet begins here: batches follow one another without a gap.
    let mut first = [0; ALIGN as usize];
    let first = &mut first[..len.min(ALIGN as usize)];
    file.read_exact_at(first, start)?;
    if first.iter().any(|byte| *byte != 0) {
        return Ok(true);
    }
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
/// Zeros written at once. Whoever commits meanwhile waits for them.
const FILL_LEN: usize = 256 << 10;
/// What direct writes have to be a multiple of: any file system's block, or more.
const ALIGN: u64 = 4096;
/// With less room on the disk, others need it more.
const FREE_MIN: u64 = 256 << 20;
/// A journal that gets none is looked at again after as many bytes: the next may have begun.
const ASKED_AGAIN: i64 = 4 << 20;
/// Where fewer are left more are written, up to so many.
const ROOM_LOW: i64 = 256 << 10;
const ROOM_FULL: i64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with a journal of so many bytes, none of them 0, and a hole behind them. It goes with the test.
    struct Dir(PathBuf);

    impl Dir {
        fn with_batches(name: &str, len: usize) -> Self {
            let dir = std::env::temp_dir().join(format!("kv-fjall-ahead-{}-{name}", std::process::id()));
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("0.jnl"), vec![7; len]).unwrap();
            Self(dir)
        }

        fn journal(&self) -> Vec<u8> {
            std::fs::read(self.0.join("0.jnl")).unwrap()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Where the first hole of the journal begins.
    fn hole(ahead: &Ahead) -> u64 {
        seek(&ahead.open.as_ref().unwrap().file, SeekFrom::Hole(0)).unwrap()
    }

    /// Goal: zeros lie behind what was written, wherever that ends, and nothing of it changes; what did not go past the page cache is to be synced. Method:
    /// journals that end within a block and at its end, filled by both ways one after the other.
    #[test]
    fn zeros_go_behind_batches_past_the_page_cache_or_through_it() {
        for len in [0, 5000, 4096] {
            let dir = Dir::with_batches(&format!("both-{len}"), len);
            let mut ahead = Ahead::new(dir.0.clone(), None);
            assert!(ahead.is_low());
            let filled = ahead.fill().unwrap().unwrap();
            assert_eq!((filled.start, filled.len), ((len as u64).next_multiple_of(ALIGN), FILL_LEN as u64));
            filled.settle().unwrap();
            let end = filled.start + filled.len;
            assert_eq!((hole(&ahead), ahead.is_low(), ahead.is_full()), (end, false, false));

            ahead.open.as_mut().unwrap().direct = None;
            let filled = ahead.fill().unwrap().unwrap();
            assert_eq!((filled.start, filled.must_sync()), (end, true));
            filled.settle().unwrap();
            assert_eq!(hole(&ahead), end + FILL_LEN as u64);
            let bytes = dir.journal();
            assert!(bytes[..len].iter().all(|byte| *byte == 7) && bytes[len..].iter().all(|byte| *byte == 0));
            assert_eq!(bytes.len() as u64, JOURNAL_LEN);
        }
    }

    /// Goal: where a hole is none at the end, no zeros are written, and it is not asked for them with each sync. Method: a hole between batches; and a
    /// directory without a journal.
    #[test]
    fn what_gets_no_zeros_is_left_alone_for_a_while() {
        let dir = Dir::with_batches("sparse", 4096);
        let file = OpenOptions::new().write(true).open(dir.0.join("0.jnl")).unwrap();
        file.write_all_at(&[7; 4096], 100_000).unwrap();
        let before = dir.journal();
        let mut ahead = Ahead::new(dir.0.clone(), None);
        assert!(ahead.fill().unwrap().is_none() && !ahead.is_low());
        assert_eq!(dir.journal()[..before.len()], before);
        ahead.note_written(ASKED_AGAIN as u64);
        assert!(ahead.is_low() && ahead.fill().unwrap().is_none());

        let mut nowhere = Ahead::new(dir.0.join("gone"), None);
        assert!(nowhere.fill().unwrap().is_none() && !nowhere.is_low());
    }
}
