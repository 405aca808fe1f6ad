//! Files held open for somebody who is about to open them.
//!
//! Between the kernel's LOOKUP of a file and its OPEN another node may remove it, and between a LOOKUP that finds nothing and its
//! CREATE another may make it. The kernel is told ESTALE then, and walks the path once more (`retry_estale` in linux:include/linux/namei.h,
//! `do_filp_open` in linux:fs/namei.c), but no third time. So what it meets there the second time stays for it: held
//! open here, so that whoever removes it leaves it to those who have it open, as if the program had been a moment faster.

use std::collections::VecDeque;

use meta::{FileKind, FsError};
use types::{Ino, Micros, Name};

use crate::core::{Core, STALE_FINDS_MAX};
use crate::request::{HandleId, OpenMode, Reply, Request, Taken};
use crate::wait::{Progress, Step, Try};

/// What is held, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Holds(VecDeque<Hold>);

#[derive(Debug)]
struct Hold {
    until: Micros,
    handle: HandleId,
    ino: Ino,
    /// Where it was found.
    parent: Ino,
    name: Name,
}

impl Holds {
    /// When the next one ends.
    pub fn due(&self) -> Micros {
        self.0.front().map_or(Micros::NEVER, |hold| hold.until)
    }
}

impl Core {
    /// Resolves a name, and holds the file that it finds. If there is none by now, `met` will do, which was found there since whoever asks
    /// began to.
    pub(crate) fn try_find(
        &mut self,
        parent: Ino,
        name: &[u8],
        met: Option<Ino>,
        progress: &mut Progress,
    ) -> Try<Reply> {
        let found = self.try_lookup(parent, name)?;
        let name = crate::namespace::checked(name)?;
        match (found, met) {
            (Reply::Entry(entry), _) if entry.attr.kind == FileKind::File => {
                match self.hold(parent, name, entry.attr.ino) {
                    // It is found without as well, though it may be gone when it is opened.
                    Ok(()) | Err(Step::Done(Reply::Error(FsError::Stale))) => Ok(Reply::Entry(entry)),
                    Err(step) => {
                        self.forget(entry.attr.ino, 1);
                        Err(step)
                    }
                }
            }
            (Reply::NoEntry(_), Some(ino)) if self.is_held(parent, &name, ino) => {
                Ok(Reply::Entry(self.own_entry(ino, progress)?))
            }
            (found, _) => Ok(found),
        }
    }

    /// What somebody else has made under a name that is to be made here, held for whoever looks it up next; `None` if it is gone again.
    pub(crate) fn try_meet(
        &mut self,
        parent: Ino,
        name: &[u8],
        progress: &mut Progress,
    ) -> Try<Option<Reply>> {
        let entry = match self.try_find(parent, name, None, progress)? {
            Reply::Entry(entry) => entry,
            Reply::NoEntry(_) => return Ok(None),
            other => return Ok(Some(other)),
        };
        self.forget(entry.attr.ino, 1);
        match entry.attr.kind {
            FileKind::File => Ok(Some(Reply::Met(entry.attr.ino))),
            _ => Err(FsError::Exists.into()),
        }
    }

    /// Whether a request goes on however often another one that it finds is gone before it can be held: its kernel walks no third time.
    pub(crate) fn must_find(&self, request: &Request, progress: &Progress) -> bool {
        let is_last = matches!(request, Request::Find { .. } | Request::Create { taken: Taken::Outwait, .. });
        // Where names are read anew and lead to one that is gone all the same, there is but damage.
        let is_race = progress.stale_ino.1 <= STALE_FINDS_MAX + 1;
        is_last && is_race && self.clock.now.since(progress.since) < FINDS_FOR
    }

    fn is_held(&self, parent: Ino, name: &Name, ino: Ino) -> bool {
        let is_it = |hold: &Hold| hold.ino == ino && hold.parent == parent && hold.name == *name;
        self.holds.0.iter().any(is_it)
    }

    fn hold(&mut self, parent: Ino, name: Name, ino: Ino) -> Try<()> {
        let until = self.clock.now + HELD_FOR;
        let is_it = |hold: &Hold| hold.ino == ino && hold.parent == parent && hold.name == name;
        let handle = match self.holds.0.iter().position(is_it).and_then(|at| self.holds.0.remove(at)) {
            Some(hold) => hold.handle,
            None => match self.try_open(ino, OpenMode::default())? {
                Reply::Opened(opened) => opened.handle,
                other => return Err(Step::Done(other)),
            },
        };
        self.holds.0.push_back(Hold { until, handle, ino, parent, name });
        if self.holds.0.len() > HOLDS_MAX {
            self.end_oldest_hold();
        }
        Ok(())
    }

    /// Ends those that are over.
    pub(crate) fn end_holds(&mut self) {
        while self.holds.due() <= self.clock.now {
            self.end_oldest_hold();
        }
    }

    /// Ends all.
    pub(crate) fn drop_holds(&mut self) {
        while !self.holds.0.is_empty() {
            self.end_oldest_hold();
        }
    }

    fn end_oldest_hold(&mut self) {
        if let Some(hold) = self.holds.0.pop_front()
            && let Some(handle) = self.handles.remove(&hold.handle)
        {
            self.close_handle(handle);
        }
    }
}

/// The kernel's second walk follows its first at once, but for a program that waits for a processor.
const HELD_FOR: Micros = Micros::from_millis(1000);
/// Each try takes a round trip or two to the master, and most succeed.
const FINDS_FOR: Micros = Micros::from_millis(1000);
/// As many threads as may be told at once that they were late, four times.
const HOLDS_MAX: usize = 1024;
