//! What a file waits for before it is given a name by rename or link: its content is logged, here and elsewhere.

use meta::{Child, FileKind, FsError};
use types::{Ino, LockMode, Name, ResourceId};
use wire::Want;

use crate::cache::{Found, Place};
use crate::core::Core;
use crate::request::Request;
use crate::wait::{Progress, Step, Try, WaitKey};

impl Core {
    /// What is known before an inode is given another name.
    pub(crate) fn prepare_link(&mut self, ino: Ino, progress: &mut Progress) -> Try<()> {
        self.need_place(ino)?;
        // What a directory covered that was given back since may have tokens of its own by now.
        let is_apart = match self.place(ino) {
            Place::Covered(dir, _) => !self.cache.dirs.contains_key(&dir),
            Place::Own | Place::Unknown => true,
        };
        self.have_content_logged(Some(ino).filter(|_| is_apart), progress)?;
        self.flush_before_naming(&[ino], progress)?;
        if progress.linked.is_none() {
            let (attr, _) = self.attr_of(ino, progress)?;
            progress.linked = Some(Box::new(attr));
        }
        Ok(())
    }

    /// Whoever else has changed the content of a file that is given a name logs that first. It is asked for here, before anything of the rename
    /// or link is under way that others may have to wait for: two that wait for each other's files would wait for ever. What is written after that is
    /// written beside the call.
    pub(crate) fn have_content_logged(&mut self, ino: Option<Ino>, progress: &mut Progress) -> Try<()> {
        let Some(ino) = ino else { return Ok(()) };
        let mode = self.mode_to_read(ino);
        let is_done = progress.ship.is_some() || progress.content_asks >= CONTENT_ASKS_MAX;
        if is_done || self.tokens.usable(ResourceId::file(ino)).permits(mode) {
            return Ok(());
        }
        progress.content_asks += 1;
        progress.asks_content = true;
        let want = if mode == LockMode::Ex { Want::Write { ino } } else { Want::Read { ino } };
        Err(Step::Wait(self.want(want)))
    }

    /// Content is never committed after the rename or link of its file: whoever replaces a file by a new one
    /// and a rename finds the old bytes or the new ones after a crash. What cannot be stored is given no name.
    pub(crate) fn flush_before_naming(&mut self, inos: &[Ino], progress: &mut Progress) -> Try<()> {
        if progress.ship.is_some() {
            return Ok(());
        }
        if !inos.is_empty() && !std::mem::replace(&mut progress.flushed, true) {
            let job = self.flush(inos);
            self.refuse_uncaptured(inos)?;
            if let Some(job) = job {
                return Err(Step::Wait(WaitKey::Flush(job)));
            }
        }
        for ino in inos {
            let (told, is_untold) = (self.tell_lost(*ino), self.lost_unnamed.remove(ino));
            told?;
            if is_untold {
                return Err(FsError::Io.into());
            }
            if let Some(refusal) = self.unstored(*ino) {
                return Err(refusal.into());
            }
        }
        Ok(())
    }

    /// The same where it is not known here which file in one of these directories is named, as they were given back since the kernel looked there:
    /// it may be any that has its content under a right of its own.
    pub(crate) fn flush_any_named(&mut self, dirs: [Ino; 2], progress: &mut Progress) -> Try<()> {
        if progress.ship.is_some() {
            return Ok(());
        }
        let may_be_named = |ino: &Ino| match self.place(*ino) {
            Place::Covered(..) => false,
            Place::Own | Place::Unknown => {
                let attr = self.cache.owns.get(ino).and_then(|own| own.attr.as_ref());
                attr.is_none_or(|attr| attr.nlink > 0 && (attr.parent.0 == 0 || dirs.contains(&attr.parent)))
            }
        };
        let files: Vec<Ino> = self.live.keys().copied().filter(may_be_named).collect();
        let Some(flushed) = &progress.any_flushed else {
            let job = self.flush(&files);
            self.refuse_uncaptured(&files)?;
            progress.any_flushed = Some(files);
            return job.map_or(Ok(()), |job| Err(Step::Wait(WaitKey::Flush(job))));
        };
        for ino in flushed {
            if self.lost_unnamed.remove(ino) {
                return Err(FsError::Io.into());
            }
        }
        match files.into_iter().find_map(|ino| self.unstored(ino)) {
            Some(refusal) => Err(refusal.into()),
            None => Ok(()),
        }
    }

    /// Whether a request waits to give names to this file when its content is stored.
    pub(crate) fn is_naming(&self, request: &Request, ino: Ino) -> bool {
        let is_named = |parent: Ino, name: &[u8]| {
            Name::new(name).is_ok_and(|name| self.cached_child(parent, &name) == Some(ino))
        };
        match request {
            Request::Link { ino: of, .. } => *of == ino,
            Request::Rename { parent, name, new_parent, new_name, .. } => {
                is_named(*parent, name) || is_named(*new_parent, new_name)
            }
            _ => false,
        }
    }

    /// A file with tokens of its own, as far as its directory is known here, or was when it was given back for a turn.
    pub(crate) fn apart_child(&self, parent: Ino, name: &Name) -> Option<Ino> {
        let aside = || self.cache.aside.get(&parent).map(|(dir, _)| dir);
        let dir = self.cache.dirs.get(&parent).or_else(aside)?;
        match dir.find(self.cookie_key.hash(name.as_bytes()), name) {
            Found::Entry(_, entry) => match &entry.dirent.child {
                Child::Own { kind: FileKind::File } => Some(entry.dirent.ino),
                _ => None,
            },
            Found::Absent(_) | Found::NotLoaded | Found::NoPlace => None,
        }
    }
}

/// Rights that are asked for and lost again before the name is given, at most.
const CONTENT_ASKS_MAX: u32 = 4;
