//! Content that could not be stored when it had to be: who is told, and what becomes of the rest.
//!
//! Invariants:
//!
//! - A release waits for no room: what finds none is given up, what was stored is logged (ARCHITECTURE.md,
//!   invariants 8 and 9).
//! - Whoever has the file open for writing here is told with every write, fsync and close, until the last of them
//!   is closed; where nobody has, the next fsync of the file is. It is counted and logged in any case.
//! - No content that is newer than the log outlives the right that it was made under.

use chunk::ChunkError;
use meta::{FileKind, FsError};
use types::{Ino, ResourceId, ResourceKind};

use crate::cache::Place;
use crate::core::Core;
use crate::jobs::Purpose;
use crate::outputs::Invalidation;
use crate::request::Request;
use crate::wait::Try;

/// What becomes of content that cannot be stored now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unstored {
    /// It stays in memory.
    Keep,
    /// It is lost: the right that it was written under goes.
    GiveUp,
}

/// What an application is told of a failure of the store.
pub(crate) fn refusal_of(error: &ChunkError) -> FsError {
    match error {
        ChunkError::Full { .. } => FsError::NoSpace,
        _ => FsError::Io,
    }
}

impl Core {
    /// Content of `ino` is lost: counts and logs it, and tells those who have it open for writing.
    pub(crate) fn lose_content(&mut self, ino: Ino, bytes: u64, refusal: FsError, cause: &ChunkError) {
        log::error!(
            "node {}: {bytes} bytes written to ino {ino} ({}) are lost: {cause}",
            self.me,
            self.path_of(ino)
        );
        self.metrics.content_lost_bytes.add(bytes);
        self.flush_failed.remove(&ino);
        match self.known.get_mut(&ino).filter(|known| known.is_written()) {
            Some(known) => _ = known.uses_mut().lost.get_or_insert(refusal),
            // As databases do: one process writes and closes the file, another opens it to make it durable.
            None => self.note_untold(ino),
        }
        self.drop_lost_pages(ino);
    }

    /// Content was lost that nobody here writes: the next fsync says so, and who gives the file a name is told that it cannot be stored. Once each.
    fn note_untold(&mut self, ino: Ino) {
        self.lost_unnamed.insert(ino);
        // Of a failed sync all hear that wait for it. What is given up leaves no trace.
        let mut is_told = false;
        if !self.live.get(&ino).is_some_and(|live| live.failed) {
            let is_fsync = |request: &Request| matches!(request, Request::Fsync { ino: of } if *of == ino);
            let waiting = self.parked.values_mut();
            for parked in waiting.filter(|p| is_fsync(&p.request) && p.progress.done.is_none()) {
                parked.progress.error = Some(FsError::Io);
                is_told = true;
            }
        }
        if !is_told {
            self.untold.insert(ino);
        }
    }

    /// The kernel must not go on showing what no other node can see.
    fn drop_lost_pages(&mut self, ino: Ino) {
        if self.known.get(&ino).is_some_and(|known| known.pages_out || known.attr_out()) {
            self.invalidate(Purpose::Alone, vec![Invalidation::Pages { ino }], vec![ino]);
        }
    }

    /// Refuses an fsync of a file whose content was lost.
    pub(crate) fn tell_lost(&mut self, ino: Ino) -> Try<()> {
        let told = self.refuse_lost(ino);
        if told.is_err() {
            self.end_lost_unless_told(ino);
        }
        told
    }

    /// Ends the state of being lost where nobody is to be told any more: no descriptor to write by is open, and no
    /// fsync waits.
    pub(crate) fn end_lost_unless_told(&mut self, ino: Ino) {
        let is_written = self.known.get(&ino).is_some_and(|known| known.is_written());
        if !is_written && !self.awaits_content(ino) {
            self.end_lost(ino);
        }
    }

    /// Whether an fsync waits for the content of a file, or who gives it a name.
    fn awaits_content(&self, ino: Ino) -> bool {
        let awaits = |request: &Request| {
            matches!(request, Request::Fsync { ino: of } if *of == ino) || self.is_naming(request, ino)
        };
        self.parked.values().any(|parked| awaits(&parked.request))
    }

    /// Nobody writes the file here any more: what could not be made durable is over, the file is as last logged.
    fn end_lost(&mut self, ino: Ino) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.uses_mut().lost = None;
        }
        if self.live.get(&ino).is_some_and(|live| live.failed) {
            self.live.remove(&ino);
            self.dirty_files.remove(&ino);
            // What a flush took of it before that is not to be logged when it ends.
            self.flushes.values_mut().for_each(|flush| flush.drop_capture(ino));
            self.drop_lost_pages(ino);
            self.forget_unused(ino);
        }
    }

    /// Refuses to go on with a file whose content was lost while it was open.
    pub(crate) fn refuse_lost(&self, ino: Ino) -> Try<()> {
        if let Some(refusal) = self.known.get(&ino).and_then(|known| known.uses().lost) {
            return Err(refusal.into());
        }
        match self.live.get(&ino).is_some_and(|live| live.failed) {
            true => Err(FsError::Io.into()),
            false => Ok(()),
        }
    }

    /// A right in EX goes: content made under it that could not be logged goes too.
    pub(crate) fn drop_unlogged(&mut self, resource: ResourceId) {
        let left = match resource.kind {
            ResourceKind::File => vec![resource.ino],
            ResourceKind::Dir => self.live_under(resource.ino),
            ResourceKind::Attr | ResourceKind::Rename => Vec::new(),
        };
        for ino in left {
            if self.live.remove(&ino).is_none() {
                continue;
            }
            self.dirty_files.remove(&ino);
            self.flush_failed.remove(&ino);
            // Where less of the right is kept, so is what the kernel was told under it.
            self.drop_lost_pages(ino);
            self.forget_unused(ino);
        }
    }

    /// A path for people, as far as it is known here.
    pub(crate) fn path_of(&self, ino: Ino) -> String {
        let mut names: Vec<String> = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT && names.len() < DEPTH_MAX {
            let parent = match (self.place(at), self.cache.dirs.get(&at), self.cache.owns.get(&at)) {
                (Place::Covered(parent, _), ..) => Some(parent),
                (_, Some(dir), _) => Some(dir.inode.attr.parent),
                (_, None, own) => own.and_then(|own| own.attr.as_ref()).map(|attr| attr.parent),
            };
            let entries = parent.and_then(|parent| self.cache.dirs.get(&parent)).map(|dir| &dir.entries);
            let entry = entries.and_then(|entries| entries.values().find(|e| e.dirent.ino == at));
            let (Some(parent), Some(entry)) = (parent, entry) else { break };
            let is_dir = entry.dirent.kind() == FileKind::Directory;
            let name = String::from_utf8_lossy(entry.dirent.name.as_bytes()).into_owned();
            names.push(if is_dir { name + "/" } else { name });
            at = parent;
        }
        let start = if at == Ino::ROOT { "/" } else { ".../" };
        let path: String = names.into_iter().rev().collect();
        format!("{start}{path}")
    }
}

/// Names of a path that is logged.
const DEPTH_MAX: usize = 64;
