//! Content of files that nobody writes any more leaves memory.
//!
//! That of a small file has company: it stays in memory until there is enough of what was closed, and is stored with that by one call. Most of
//! what a call of the system takes for a small write is not the bytes.

use chunk::{ChunkError, Loose};
use meta::FsError;
use rustc_hash::FxHashMap;
use types::Ino;

use crate::core::Core;
use crate::live::Live;

/// Closed files whose bytes are to be stored together.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    files: Vec<Ino>,
    /// Bytes that they had when they were closed.
    bytes: usize,
}

impl Core {
    /// Content of a file that nobody writes any more leaves memory.
    pub(crate) fn stage_closed(&mut self, ino: Ino) {
        let Some(live) = self.live.get(&ino) else { return };
        let bytes = live.dirty_bytes();
        if self.is_loose(ino) {
            self.closed.files.push(ino);
            self.closed.bytes += bytes;
            if self.is_enough_closed() {
                // Without what was removed meanwhile.
                self.look_through_closed();
            }
            if self.is_enough_closed() {
                self.store_closed();
            }
        } else if bytes > 0 {
            self.stage_now(ino);
        }
        // A small file is whole in its record: the log takes it now, with the name, in one change.
        let is_inline = self.live.get(&ino).is_some_and(|live| live.is_inline() && !live.failed);
        if is_inline && self.may_write_content(ino) {
            self.log_live(ino);
        }
    }

    /// Whether content in memory only can be stored with that of others.
    fn is_loose(&self, ino: Ino) -> bool {
        self.writer.as_ref().is_some_and(|writer| loose_of(&self.live, ino, writer.run_len_max()).is_some())
    }

    fn is_enough_closed(&self) -> bool {
        self.closed.bytes >= self.config.store_bytes || self.closed.files.len() >= FILES_MAX
    }

    /// Leaves out what is not to be stored with others any more.
    fn look_through_closed(&mut self) {
        let mut files = std::mem::take(&mut self.closed).files;
        // Closed more than once.
        files.sort_unstable();
        files.dedup();
        // Who writes one again closes it again.
        let is_closed = |ino: &Ino| !self.known.get(ino).is_some_and(|known| known.is_written());
        files.retain(|ino| is_closed(ino) && self.is_loose(*ino));
        let bytes = files.iter().filter_map(|ino| self.live.get(ino)).map(Live::dirty_bytes).sum();
        self.closed = Closed { files, bytes };
    }

    /// Stores what was closed, and is still. What finds no room stays in memory, and a flush tries it again.
    pub(crate) fn store_closed(&mut self) {
        self.look_through_closed();
        let Closed { files: inos, bytes } = std::mem::take(&mut self.closed);
        if self.is_put_off(bytes) {
            return;
        }
        let mut rest = &inos[..];
        while let Some(stored) = self.store_together(rest) {
            rest = &rest[stored..];
        }
    }

    /// Stores the first of these files together, and returns how many: `None` if there are none, or the store takes no more.
    fn store_together(&mut self, inos: &[Ino]) -> Option<usize> {
        let first = *inos.first()?;
        let (live, writer) = (&self.live, self.writer.as_mut()?);
        let len_max = writer.run_len_max();
        let list: Vec<Loose<'_>> = inos.iter().map_while(|ino| loose_of(live, *ino, len_max)).collect();
        match writer.append_together(&list) {
            Ok(extents) => {
                let stored = extents.len();
                for (ino, extent) in inos.iter().zip(extents) {
                    if let Some(live) = self.live.get_mut(ino) {
                        live.take_stored(extent);
                    }
                    self.dirty_files.remove(ino);
                }
                Some(stored).filter(|stored| *stored > 0)
            }
            Err(error) => {
                self.keep_closed(first, &error);
                None
            }
        }
    }

    /// Stores what is in memory only of a file.
    fn stage_now(&mut self, ino: Ino) {
        let (Some(live), Some(writer)) = (self.live.get_mut(&ino), self.writer.as_mut()) else { return };
        match live.stage(writer, ino) {
            Ok(()) => _ = self.dirty_files.remove(&ino),
            Err(error) => self.keep_closed(ino, &error),
        }
    }

    /// What was closed may wait for others still: it is given up if it is not stored by then.
    pub(crate) fn stage_before_release(&mut self, ino: Ino) {
        let dirty = self.live.get(&ino).filter(|live| !live.failed).map_or(0, Live::dirty_bytes);
        if dirty == 0 || self.unstored(ino) == Some(FsError::NoSpace) {
            return;
        }
        if self.is_put_off(dirty) {
            // A flush tries it again.
            self.flush_failed.insert(ino, FsError::NoSpace);
        } else {
            self.stage_now(ino);
        }
    }

    fn keep_closed(&mut self, ino: Ino, error: &ChunkError) {
        log::debug!("ino {ino} stays in memory at its close: {error}");
        self.note_unstored(ino, error);
    }
}

/// What of a file is in memory only, if that is one run of at most `len_max` bytes.
fn loose_of(live: &FxHashMap<Ino, Live>, ino: Ino, len_max: u64) -> Option<Loose<'_>> {
    let live = live.get(&ino).filter(|live| !live.failed)?;
    let (file_offset, bytes) = live.loose().filter(|(_, bytes)| bytes.len() as u64 <= len_max)?;
    Some(Loose { ino, file_offset, bytes })
}

/// Files that wait, at most: of few bytes each they would be many.
const FILES_MAX: usize = 256;
