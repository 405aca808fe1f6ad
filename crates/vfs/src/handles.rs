//! Open files: what is open here, and what a close brings with it.

use meta::FsError;
use obs::OperationKind;
use rustc_hash::FxHashSet;
use types::{Ino, LockMode, Micros, ResourceId};
use wire::{LockKind, LockOwner, OpenReport, ToMaster, Want};

use crate::atime::Atime;
use crate::cache::Place;
use crate::core::Core;
use crate::known::Known;
use crate::request::{HandleId, Keep, OpenMode, Opened, Reply, Request};
use crate::wait::{Parked, Progress, Step, Try, WaitKey};

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    /// The inode.
    pub ino: Ino,
    /// Whether it may be written, or mapped and stored to.
    pub write: bool,
    /// Whether the latter.
    pub map: bool,
    /// Whether its writes go to the end.
    pub append: bool,
    /// Whether they are durable when they return.
    pub sync: bool,
    /// Whether it made the file, and writes past the kernel's pages though not to the end.
    pub fills: bool,
    /// Changes made by it, or locks, were lost with a membership.
    pub broken: bool,
}

impl Handle {
    pub fn new(ino: Ino, open: OpenMode) -> Self {
        Self {
            ino,
            write: open.write,
            map: open.map,
            append: open.append,
            sync: open.sync,
            fills: false,
            broken: false,
        }
    }
}

/// Whether a file is made by the open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IsNew {
    Yes,
    No,
}

impl Core {
    /// Whether what is done through a handle is durable when it returns.
    pub(crate) fn is_synced(&self, handle: HandleId) -> bool {
        self.handles.get(&handle).is_some_and(|handle| handle.sync)
    }

    pub(crate) fn try_open(&mut self, ino: Ino, open: OpenMode) -> Try<Reply> {
        if open.write && self.config.read_only {
            return Err(FsError::ReadOnly.into());
        }
        if self.removing.contains_key(&ino) {
            // Who removes it said that it is not open here, and the master asks nobody here once more.
            return Err(Step::Wait(WaitKey::Thawed(ino)));
        }
        if open.write && self.is_taking_pages(ino) {
            return Err(Step::Wait(WaitKey::PagesGone(ino)));
        }
        let now = self.clock.now;
        match self.place(ino) {
            Place::Covered(parent, _) => {
                if self.is_removing_unseen(parent) {
                    return Err(Step::Wait(WaitKey::Thawed(parent)));
                }
                let needed = if open.write { LockMode::Ex } else { LockMode::Pr };
                let resource = ResourceId::dir(parent);
                if self.tokens.is_releasing(resource) {
                    return Err(Step::Wait(WaitKey::Released(resource)));
                }
                if !self.tokens.try_use(now, resource, needed) {
                    let want = if open.write { Want::Write { ino } } else { Want::Read { ino } };
                    return Err(Step::Wait(self.want(want)));
                }
            }
            Place::Own => self.need_open_own(ino, open)?,
            Place::Unknown => return Err(Step::Wait(self.want(Want::Attr { ino }))),
        }
        if open.write {
            self.note_charge(ino);
        }
        self.metrics.operations_local.add(OperationKind::Open, 1);
        let handle = self.open_handle(Handle::new(ino, open));
        Ok(Reply::Opened(self.opened(ino, handle, open, IsNew::No)))
    }

    /// Whether an operation under way removes a name of a directory without having known whose it is. Its sender said that this is not open
    /// here, and is not asked.
    fn is_removing_unseen(&self, dir: Ino) -> bool {
        self.frozen.contains_key(&dir)
            && self.shipped.values().any(|shipped| shipped.removes_unseen == Some(dir))
    }

    /// With strict access times the first read of each open must come here: pages that the kernel has would
    /// answer it.
    ///
    /// Appends go past the kernel's pages, and so do reads while a file is open for them: a kernel that believes in a later
    /// end than there is, since another node cut the file, appends there as far as it knows, and has that end afterwards.
    ///
    /// What a program fills that it has just made, and cannot read through this descriptor, goes past them, too: the kernel then sends each
    /// write whole, where it has to stop at each page that it knows in part only, and makes and fills no pages. Not with O_SYNC: the kernel asks for
    /// one sync after a whole write through its pages, and here each part would have its own.
    pub(crate) fn opened(&mut self, ino: Ino, handle: HandleId, open: OpenMode, is_new: IsNew) -> Opened {
        let keep_pages = match self.config.atime {
            Atime::Strict => Keep::No,
            Atime::Relative | Atime::Never => Keep::Yes,
        };
        if keep_pages == Keep::No {
            self.pages_go_with_open(ino);
        }
        let has_appenders = self.known.get(&ino).is_some_and(|known| known.uses().appenders > 0);
        let is_filled = is_new == IsNew::Yes && open.write && !open.map && !open.sync;
        if is_filled {
            self.known.note(ino).uses_mut().fillers += 1;
            if let Some(handle) = self.handles.get_mut(&handle) {
                handle.fills = true;
            }
        }
        Opened { handle, direct: open.append || has_appenders || is_filled, keep_pages }
    }

    fn need_open_own(&mut self, ino: Ino, open: OpenMode) -> Try<()> {
        let file = ResourceId::file(ino);
        if self.tokens.is_releasing(file) {
            return Err(Step::Wait(WaitKey::Released(file)));
        }
        let is_told = self.known.get(&ino).is_some_and(|k| k.open_told);
        // Under EX nobody else can remove the inode; whoever takes EX away is told what is open.
        if !is_told && self.tokens.usable(ResourceId::attr(ino)) != LockMode::Ex {
            return Err(Step::Wait(self.want(Want::Open { ino })));
        }
        let has_pages = self.known.get(&ino).is_some_and(|k| k.pages_out);
        if open.write && has_pages && self.tokens.usable(file) == LockMode::Pr {
            // A mapping could store without asking: no page is cached under PR while it is open for writing.
            if let Some(revocation) = self.tokens.start_release(file, LockMode::Nl) {
                self.start_release(revocation);
            }
            return Err(Step::Wait(WaitKey::Released(file)));
        }
        if open.write && has_pages && self.tokens.usable(file) == LockMode::Nl {
            // They are being taken back already, which a write that waits for EX would hold up.
            return Err(Step::Wait(self.want(Want::Write { ino })));
        }
        Ok(())
    }

    pub(crate) fn open_handle(&mut self, handle: Handle) -> HandleId {
        let id = HandleId(self.next_handle);
        self.next_handle += 1;
        let now = self.clock.now;
        if handle.write && handle.map {
            self.note_mapper();
        }
        let known = self.known.note(handle.ino);
        known.end.settle(!known.is_open(), !known.is_written(), now);
        known.judged.stir(now);
        let uses = known.uses_mut();
        if handle.write {
            uses.writers += 1;
            uses.mappers += u32::from(handle.map);
            uses.appenders += u32::from(handle.append);
        } else {
            uses.readers += 1;
        }
        self.handles.insert(id, handle);
        // Who opens it is shown what it is now.
        self.unlearn(handle.ino);
        id
    }

    /// The master learnt of the open with what made the inode, or with the report of its directory.
    pub(crate) fn note_open_told(&mut self, ino: Ino) {
        let is_own = self.place(ino) == Place::Own;
        if let Some(known) = self.known.get_mut(&ino) {
            known.open_told |= is_own;
        }
    }

    pub(crate) fn try_flush(&mut self, ino: Ino, owner: LockOwner, progress: &mut Progress) -> Try<Reply> {
        self.drop_locks(ino, LockKind::Posix, owner, progress)?;
        self.closes.lock_handles.remove(&(ino, LockKind::Posix, owner));
        self.refuse_lost(ino)?;
        match self.unstored(ino) {
            Some(refusal) => Err(refusal.into()),
            None => Ok(Reply::Done),
        }
    }

    pub(crate) fn try_release(
        &mut self,
        ino: Ino,
        handle: HandleId,
        flock: Option<LockOwner>,
        progress: &mut Progress,
    ) -> Try<Reply> {
        // Nobody else touches these locks: those that are gone are those whose going was answered, and the answer says nothing
        // of the others.
        if matches!(progress.lock, Some((_, Some(_)))) {
            progress.lock = None;
        }
        // The kernel names an open file by where it was in its memory, where another may be by now: whose lock was taken through another
        // handle is not this one.
        let through = |owner: LockOwner| self.closes.lock_handles.get(&(ino, LockKind::Flock, owner));
        let flock = flock.filter(|owner| through(*owner).is_none_or(|through| *through == handle));
        if let Some(owner) = flock {
            if self.has_locks(ino, LockKind::Flock, owner) {
                self.drop_locks(ino, LockKind::Flock, owner, progress)?;
            }
            self.closes.lock_handles.remove(&(ino, LockKind::Flock, owner));
        }
        // Of open-file-description locks no FLUSH names the owner.
        while let Some(owner) = self.owner_locking_through(ino, handle) {
            if self.has_locks(ino, LockKind::Posix, owner) {
                self.drop_locks(ino, LockKind::Posix, owner, progress)?;
            }
            self.closes.lock_handles.remove(&(ino, LockKind::Posix, owner));
        }
        self.tell_closes();
        if let Some(handle) = self.handles.remove(&handle) {
            self.close_handle(handle);
        }
        if let Some(known) = self.known.get_mut(&ino) {
            known.note_closed();
        }
        Ok(Reply::Done)
    }

    pub(crate) fn close_handle(&mut self, handle: Handle) {
        let ino = handle.ino;
        if handle.broken
            && let Some(count) = self.broken.get_mut(&ino)
        {
            *count -= 1;
            if *count == 0 {
                self.broken.remove(&ino);
            }
        }
        if handle.write && handle.map {
            self.note_mapper_gone();
        }
        let Some(known) = self.known.get_mut(&ino) else { return };
        let uses = known.uses_mut();
        if handle.write {
            uses.writers = uses.writers.saturating_sub(1);
            uses.mappers = uses.mappers.saturating_sub(u32::from(handle.map));
            uses.appenders = uses.appenders.saturating_sub(u32::from(handle.append));
            uses.fillers = uses.fillers.saturating_sub(u32::from(handle.fills));
        } else {
            uses.readers = uses.readers.saturating_sub(1);
        }
        known.end.settle(!known.is_open(), !known.is_written(), self.clock.now);
        known.judged.stir(self.clock.now);
        let (is_open, is_told, lookups, last_writer) =
            (known.is_open(), known.open_told, known.lookups, handle.write && !known.is_written());
        if last_writer {
            self.overtaken.close(ino);
            self.end_lost_unless_told(ino);
            self.stage_closed(ino);
        }
        if is_open {
            return;
        }
        let own = self.cache.owns.get(&ino).and_then(|own| own.attr.as_ref());
        let is_orphan = own.is_some_and(|attr| attr.nlink == 0);
        let is_sole = self.cache.sole_orphans.remove(&ino) && is_orphan;
        if is_sole {
            self.give_up_orphan(ino);
        } else if is_told || is_orphan {
            // An orphan that another node may have open keeps its content, which goes with the tokens.
            if let Some(known) = self.known.get_mut(&ino) {
                known.open_told = false;
            }
            self.send_batch(false);
            self.send(ToMaster::Closed { ino });
        }
        if self.cache.owns.contains_key(&ino) {
            self.linger.put(ino, self.clock.now + self.config.linger);
        }
        if lookups == 0 {
            self.forget(ino, 0);
        }
    }

    /// Has files that are open here, and have gone out of sight, get tokens of their own: by the right to the directory that covers them now
    /// whoever removes them would ask nobody here.
    pub(crate) fn tell_out_of_sight(&mut self) {
        let mut open = Vec::new();
        for ino in std::mem::take(&mut self.opens_out_of_sight) {
            let is_so =
                |known: &&mut Known| known.is_open() && !known.open_told && known.place() == Place::Unknown;
            if let Some(known) = self.known.get_mut(&ino).filter(is_so) {
                known.open_told = true;
                open.push(OpenReport { ino });
            }
        }
        self.tell_open(&mut open, 0);
    }

    /// A shipped operation of this node has given an inode tokens of its own: the master has it down as open here, which it may not be.
    pub(crate) fn note_own_split(&mut self, ino: Ino) {
        let known = self.known.note(ino);
        if !known.is_open() && !known.open_told {
            self.opens_in_doubt.insert(ino);
        }
        known.open_told = true;
    }

    /// Opens that the master noted may come to nothing: given up, or the name is another inode's by now.
    pub(crate) fn drop_unused_opens(&mut self) {
        let known = &self.known;
        self.opens_in_doubt.retain(|ino| known.get(ino).is_some_and(|k| k.open_told && !k.is_open()));
        if self.opens_in_doubt.is_empty() {
            return;
        }
        let mut may_be_any = false;
        let mut may_open = FxHashSet::default();
        for Parked { request, progress, .. } in self.parked.values() {
            match request {
                Request::Open { ino, .. } => _ = may_open.insert(*ino),
                Request::Create { .. } | Request::TmpFile { .. } => may_open.extend(progress.ino),
                _ => {}
            }
            // What is met, or found, is not known before it is there.
            may_be_any |= matches!(request, Request::Find { .. }) || progress.met_since.is_some();
        }
        for ino in std::mem::take(&mut self.opens_in_doubt) {
            if may_be_any || may_open.contains(&ino) {
                self.opens_in_doubt.insert(ino);
            } else {
                self.drop_unused_open(ino);
            }
        }
    }

    fn drop_unused_open(&mut self, ino: Ino) {
        let Some(known) = self.known.get_mut(&ino).filter(|k| k.open_told && !k.is_open()) else { return };
        known.open_told = false;
        let lookups = known.lookups;
        self.send(ToMaster::Closed { ino });
        if lookups == 0 {
            self.forget(ino, 0);
        }
    }

    /// The last handle of an inode without a name is closed that no other node has open: nothing of it is needed any
    /// more.
    pub(crate) fn give_up_orphan(&mut self, ino: Ino) {
        self.keep_given_up(ino);
        self.live.remove(&ino);
        self.dirty_files.remove(&ino);
        self.flush_failed.remove(&ino);
        self.send_batch(false);
        for resource in [ResourceId::attr(ino), ResourceId::file(ino)] {
            if self.tokens.held(resource) != LockMode::Nl {
                self.tokens.forget(resource);
                self.releases.remove(&resource);
                self.give_back(resource, LockMode::Nl);
                self.wake(WaitKey::Released(resource));
            }
        }
        self.cache.owns.remove(&ino);
        if let Some(known) = self.known.get_mut(&ino) {
            known.open_told = false;
            known.set_place(Place::Unknown);
        }
        self.send_released();
        self.send(ToMaster::Closed { ino });
    }

    /// Tokens of files that were closed a while ago are given back, so that their directory covers them again, or
    /// orphans of others have their content.
    pub(crate) fn release_lingering(&mut self) {
        while let Some(ino) = self.linger.take_due(self.clock.now) {
            if self.known.get(&ino).is_some_and(|k| k.is_open()) {
                continue;
            }
            self.stage_before_release(ino);
            if self.unstored(ino) == Some(FsError::NoSpace) {
                // Nobody else wants it, so it is not given up.
                self.linger.put(ino, self.clock.now + LINGER_WITHOUT_ROOM);
                continue;
            }
            let own = self.cache.owns.get(&ino).and_then(|own| own.attr.as_ref());
            if !own.is_some_and(|attr| attr.nlink == 0 || attr.nlink == 1 && attr.parent.0 != 0) {
                continue;
            }
            for resource in [ResourceId::file(ino), ResourceId::attr(ino)] {
                if let Some(revocation) = self.tokens.start_release(resource, LockMode::Nl) {
                    self.start_release(revocation);
                }
            }
        }
    }
}

/// How much longer a closed file is held whose content found no room.
const LINGER_WITHOUT_ROOM: Micros = Micros(1_000_000);
