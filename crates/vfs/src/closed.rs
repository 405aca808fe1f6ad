//! Content of files that nobody writes any more leaves memory.
//!
//! That of a small file has company: it stays in memory until there is enough of what was closed, and is stored with that by one call. Most of
//! what a call of the system takes for a small write is not the bytes.

use chunk::Loose;
use types::Ino;

use crate::core::Core;

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
        if bytes > 0 && live.loose().is_some() {
            self.closed.files.push(ino);
            self.closed.bytes += bytes;
            if self.closed.bytes >= self.config.store_bytes {
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

    /// Stores what was closed. What finds no room stays in memory, and a flush tries it again.
    pub(crate) fn store_closed(&mut self) {
        let mut inos = std::mem::take(&mut self.closed).files;
        // Closed more than once.
        inos.sort_unstable();
        inos.dedup();
        let mut rest = &inos[..];
        while let Some(stored) = self.store_together(rest) {
            rest = &rest[stored..];
        }
    }

    /// Stores the first of these files together, and returns how many are dealt with: `None` if there are none, or the store takes no more.
    fn store_together(&mut self, inos: &[Ino]) -> Option<usize> {
        let first = *inos.first()?;
        let loose = |ino: &Ino| {
            let (file_offset, bytes) = self.live.get(ino)?.loose()?;
            Some(Loose { ino: *ino, file_offset, bytes })
        };
        let list: Vec<Loose<'_>> = inos.iter().map_while(loose).collect();
        let Some(writer) = self.writer.as_mut().filter(|_| !list.is_empty()) else {
            // Removed or stored meanwhile, or written again.
            return Some(1);
        };
        match writer.append_together(&list) {
            Ok(extents) => {
                let stored = extents.len();
                for (ino, extent) in inos.iter().zip(extents) {
                    if let Some(live) = self.live.get_mut(ino) {
                        live.take_stored(extent);
                    }
                    self.dirty_files.remove(ino);
                }
                Some(stored)
            }
            Err(error) => {
                log::debug!("ino {first} stays in memory at its close: {error}");
                self.note_unstored(first, &error);
                None
            }
        }
    }

    fn stage_now(&mut self, ino: Ino) {
        let (Some(live), Some(writer)) = (self.live.get_mut(&ino), self.writer.as_mut()) else { return };
        match live.stage(writer, ino) {
            Ok(()) => _ = self.dirty_files.remove(&ino),
            Err(error) => {
                log::debug!("ino {ino} stays in memory at its close: {error}");
                self.note_unstored(ino, &error);
            }
        }
    }
}
