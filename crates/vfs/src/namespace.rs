//! Requests that change the namespace: run here under EX, or shipped to the master.

use meta::ops::{AttrSet, FIRST_GENERATION, Groups, NewInode, RenameMode};
use meta::{Change, FileKind, FsError, Op, OpContext, OpReply, ViewError};
use obs::OperationKind;
use types::{Credit, Ino, LockMode, Micros, Name, NameError, OpSeq, ResourceId};
use wire::{ToMaster, Want};

use crate::cache::{DirCache, Found, KernelHas, LOADED_ALL, OwnCache, Place};
use crate::content::SEGMENTS_LOW;
use crate::core::{Core, Link};
use crate::handles::{Handle, IsNew};
use crate::jobs::Purpose;
use crate::known::Known;
use crate::outputs::Invalidation;
use crate::request::{Attr, Entry, Keep, MakeSpec, OpenMode, Reply, Request, RequestId, Taken};
use crate::view::{NodeView, Rights};
use crate::wait::{Progress, Ship, Step, Try, WaitKey};
use crate::xattr::CAPABILITY;

/// A shipped operation on its way.
#[derive(Debug)]
pub(crate) struct Shipped {
    /// The operation, to be sent again to another master.
    pub op: Op,
    /// The request that it is for.
    pub by: RequestId,
    /// Directories that stay as they are here until it is answered.
    pub frozen: Vec<Ino>,
    /// Inodes that it may delete: their content is not logged until it is known to have been applied, for then
    /// the right to do so may be gone.
    pub removes: Vec<Ino>,
    /// The directory where it removes a name of which it is not known here whose it is.
    pub removes_unseen: Option<Ino>,
    /// The clock it was sent with.
    pub wall: types::Timespec,
    /// Whether what it named anew is taken back from the kernel like what was told.
    pub names_noted: bool,
    /// Credit that goes with it.
    pub spent: Vec<Credit>,
}

impl Shipped {
    /// The file that it makes, if it makes one.
    pub fn file_made(&self) -> Option<Ino> {
        match &self.op {
            Op::Create { new, .. } | Op::CreateOrphan { new, .. } if new.kind == FileKind::File => {
                Some(new.ino)
            }
            _ => None,
        }
    }

    /// The file without a name that it makes, if it makes one.
    pub fn made(&self) -> Option<Ino> {
        match &self.op {
            Op::CreateOrphan { new, .. } => Some(new.ino),
            _ => None,
        }
    }
}

impl Core {
    /// Tries a request; `Err` says what to wait for, or the refusal.
    pub(crate) fn try_request(&mut self, request: &mut Request, progress: &mut Progress) -> Try<Reply> {
        self.need_member(request)?;
        if let Some(reply) = progress.done.take() {
            if let Some(ino) = request.content_of().filter(|_| self.config.sync || progress.must_sync) {
                self.refuse_unstored(ino)?;
            }
            // What was told to be kept may have been taken back while this waited.
            return self.finish(reply.not_to_be_kept(), progress);
        }
        match request {
            Request::Lookup { parent, name } => self.try_lookup(*parent, name),
            Request::Find { parent, name, met } => self.try_find(*parent, name, *met, progress),
            Request::GetAttr { ino } => self.try_getattr(*ino, progress),
            Request::Stat { ino } => self.try_stat(*ino, progress),
            Request::Itself { ino } => self.try_itself(*ino, progress),
            Request::Parent { ino } => self.try_parent(*ino, progress),
            Request::SetAttr { ino, set, size } => self.try_setattr(*ino, set, *size, progress),
            Request::ReadLink { ino } => self.try_readlink(*ino),
            Request::Make { parent, name, spec } => self.try_make(*parent, name, spec, progress),
            Request::Create { parent, name, spec, open, taken } => {
                self.try_create(*parent, name, spec, *open, *taken, progress)
            }
            Request::TmpFile { parent, spec, open } => self.try_tmpfile(*parent, spec, *open, progress),
            Request::Link { ino, parent, name } => self.try_link(*ino, *parent, name, progress),
            Request::Unlink { parent, name, bound } => self.try_unlink((*parent, name), *bound, progress),
            Request::Rmdir { parent, name, bound } => self.try_rmdir((*parent, name), *bound, progress),
            Request::Rename { .. } => self.try_rename(request, progress),
            Request::Open { ino, open } => self.try_open(*ino, *open),
            Request::Read { ino, offset, len, noatime, direct } => {
                self.try_overtake(*ino, *offset, *len, *noatime, *direct)
            }
            Request::Write { ino, offset, data, append, direct, kill_privileges } => {
                self.lose_privileges(*ino, kill_privileges.as_ref(), progress)?;
                let reply = self.try_write(*ino, *offset, &data.0, *append, progress)?;
                match *direct {
                    true => self.shield_written(*ino, *offset, &reply, progress),
                    false => self.note_filled(*ino, *offset, data.0.len()),
                }
                self.finish_data(*ino, reply, progress)
            }
            Request::WritePages { ino, offset, data } => {
                let reply = self.try_write_pages(*ino, *offset, &data.0, progress)?;
                self.finish_data(*ino, reply, progress)
            }
            Request::Flush { ino, owner } => self.try_flush(*ino, *owner, progress),
            Request::Release { ino, handle, flock } => self.try_release(*ino, *handle, *flock, progress),
            Request::Fsync { ino } => self.try_fsync(*ino, progress),
            Request::ReadDir { .. } => self.try_readdir(request),
            Request::StatFs => self.try_statfs(),
            Request::GetXattr { ino, name } => self.try_getxattr(*ino, name, progress),
            Request::ListXattr { ino, is_trusted } => self.try_listxattr(*ino, *is_trusted, progress),
            Request::SetXattr { ino, name, value, mode, only_owner } => {
                self.try_setxattr(*ino, (name, value), *mode, *only_owner, progress)
            }
            Request::RemoveXattr { ino, name, only_owner } => {
                self.try_removexattr(*ino, name, *only_owner, progress)
            }
            Request::Allocate { .. } => self.try_allocate_request(request, progress),
            Request::Copy { .. } => self.try_copy_request(request, progress),
            Request::Seek { ino, offset, for_hole } => self.try_seek(*ino, *offset, *for_hole),
            Request::SetLock { lock, handle, wait } => self.try_set_lock(*lock, *handle, *wait, progress),
            Request::Unlock { lock } => self.try_unlock(*lock, progress),
            Request::TestLock { lock } => self.try_test_lock(*lock, progress),
        }
    }

    fn try_rename(&mut self, request: &Request, progress: &mut Progress) -> Try<Reply> {
        let Request::Rename { parent, name, new_parent, new_name, mode, bound, whiteout } = request else {
            return Err(FsError::Invalid.into());
        };
        let (parent, new_parent, mode, bound) = (*parent, *new_parent, *mode, *bound);
        let (name, new_name) = (checked(name)?, checked(new_name)?);
        let moved = self.cached_child(parent, &name);
        // That is given a name as well.
        let exchanged = self.cached_child(new_parent, &new_name).filter(|_| mode == RenameMode::Exchange);
        let named: Vec<Ino> = moved.into_iter().chain(exchanged).collect();
        self.have_content_logged(self.apart_child(parent, &name), progress)?;
        if mode == RenameMode::Exchange {
            self.have_content_logged(self.apart_child(new_parent, &new_name), progress)?;
        }
        if moved.is_none() || mode == RenameMode::Exchange && exchanged.is_none() {
            self.flush_any_named([parent, new_parent], progress)?;
        }
        self.flush_before_naming(&named, progress)?;
        for ino in moved.into_iter().chain(exchanged).filter(|_| parent != new_parent) {
            self.take_listing_back(ino)?;
        }
        let target_open_here = self.child_is_open(new_parent, &new_name);
        let meant = progress.meant;
        let whiteout = match whiteout {
            Some(spec) => Some(Box::new(self.new_inode(spec, progress)?)),
            None => None,
        };
        let op =
            Op::Rename { parent, name, new_parent, new_name, mode, target_open_here, meant, bound, whiteout };
        let reply = self.run_as_meant(&op, OperationKind::Rename, progress)?;
        if progress.ship.is_none() {
            self.note_renamed(&op);
            self.note_unlinked(&op, reply);
        }
        self.note_seats(&op, reply);
        self.finish_dir(Reply::Done, progress)
    }

    /// The kernel moves a renamed name with the lifetime it was given under the old one: it keeps the new name as it would the
    /// old one. False if it cannot be noted under a token that is used here.
    pub(crate) fn note_renamed(&mut self, op: &Op) -> bool {
        let mut are_noted = true;
        for (parent, name) in names_given(op) {
            let hash = self.cookie_key.hash(name.as_bytes());
            let is_usable = self.tokens.usable(ResourceId::dir(parent)) != LockMode::Nl;
            let entry = self.cache.dirs.get_mut(&parent).filter(|_| is_usable).and_then(|dir| {
                let cookie = match dir.find(hash, name) {
                    Found::Entry(cookie, _) => cookie,
                    Found::Absent(_) | Found::NotLoaded | Found::NoPlace => return None,
                };
                dir.note_told(cookie);
                dir.entries.get_mut(&cookie)
            });
            match entry {
                Some(entry) => entry.name_out |= self.cache.taken.was_out(entry.dirent.ino),
                None => are_noted = false,
            }
        }
        are_noted
    }

    fn try_rmdir(
        &mut self,
        (parent, name): (Ino, &[u8]),
        bound: Option<u32>,
        progress: &mut Progress,
    ) -> Try<Reply> {
        let name = checked(name)?;
        let op = Op::Rmdir { parent, name, meant: progress.meant, bound };
        self.run_as_meant(&op, OperationKind::Rmdir, progress)?;
        if let Op::Rmdir { parent, name, .. } = &op {
            self.known.clear_seat(*parent, name);
        }
        self.finish_dir(Reply::Done, progress)
    }

    /// What the kernel has listed of a directory tells of its parent, and it goes on to believe that when the directory is moved.
    fn take_listing_back(&mut self, ino: Ino) -> Try<()> {
        let has_listing = |dir: &&mut Box<DirCache>| dir.kernel_has == KernelHas::Listing;
        let Some(dir) = self.cache.dirs.get_mut(&ino).filter(has_listing) else { return Ok(()) };
        dir.kernel_has = KernelHas::Attributes;
        let job = self.invalidate(Purpose::WriteBack, vec![Invalidation::Directory { ino }], Vec::new());
        Err(Step::Wait(WaitKey::WrittenBack(job)))
    }

    fn try_allocate_request(&mut self, request: &Request, progress: &mut Progress) -> Try<Reply> {
        let Request::Allocate { ino, offset, len, mode, handle, kill_privileges } = request else {
            return Err(FsError::Invalid.into());
        };
        self.lose_privileges(*ino, kill_privileges.as_ref(), progress)?;
        let reply = self.try_allocate((*ino, *offset, *len), *mode, progress)?;
        progress.must_sync = self.is_synced(*handle);
        self.finish_data(*ino, reply, progress)
    }

    fn try_make(&mut self, parent: Ino, name: &[u8], spec: &MakeSpec, progress: &mut Progress) -> Try<Reply> {
        let name = checked(name)?;
        let new = self.new_inode(spec, progress)?;
        let kind = spec.operation_kind();
        let op = Op::Create { parent, name: name.clone(), new: new.clone(), split: false };
        self.run_op(&op, kind, progress)?;
        let made = match progress.is_gone {
            true => Err(FsError::Stale.into()),
            false => self.made_entry(parent, &name, new.ino, progress),
        };
        let entry = match made {
            Err(Step::Done(Reply::Error(FsError::Stale))) => self.removed_entry(&new),
            made => made?,
        };
        self.finish_dir(Reply::Entry(entry), progress)
    }

    fn try_create(
        &mut self,
        parent: Ino,
        name: &[u8],
        spec: &MakeSpec,
        open: OpenMode,
        taken: Taken,
        progress: &mut Progress,
    ) -> Try<Reply> {
        let checked_name = checked(name)?;
        let new = self.new_inode(spec, progress)?;
        let ino = new.ino;
        // Born with tokens of its own, and open here, where others share the directory and may remove it at once.
        let split = self.tokens.usable(ResourceId::dir(parent)) != LockMode::Ex;
        let op = Op::Create { parent, name: checked_name.clone(), new, split };
        match self.run_op(&op, OperationKind::Create, progress) {
            Ok(_) => {}
            Err(Step::Done(Reply::Error(FsError::Exists))) if taken != Taken::Refuse => {
                let since = *progress.met_since.get_or_insert(self.clock.now);
                let is_enough = self.clock.now.since(since) >= OUTWAITS_FOR;
                match self.try_meet(parent, name, progress)? {
                    Some(reply) if is_enough || taken != Taken::Outwait => return Ok(reply),
                    None if is_enough => return Err(FsError::Exists.into()),
                    Some(_) | None => {}
                }
                // It is gone again, or may be by the next time. Nobody else could remove it while the directory is held here alone.
                let dir = ResourceId::dir(parent);
                let is_here = progress.ship.take().is_none();
                if is_here && (self.tokens.is_revoked(dir) || self.give_back_now(dir).is_some()) {
                    return Err(Step::Wait(WaitKey::Released(dir)));
                }
                if is_here && self.tokens.usable(dir) != LockMode::Nl {
                    return Err(FsError::Exists.into());
                }
                return self.try_create(parent, name, spec, open, taken, progress);
            }
            Err(step) => return Err(step),
        }
        // Whoever has the name by now: what was made is open here.
        let entry = self.made_entry(parent, &checked_name, ino, progress)?;
        let entry = self.keep_made(parent, entry, progress);
        let handle = self.open_handle(Handle::new(ino, open));
        self.note_open_told(ino);
        let opened = self.opened(ino, handle, open, IsNew::Yes);
        self.finish_dir(Reply::Created(entry, opened), progress)
    }

    fn try_tmpfile(
        &mut self,
        parent: Ino,
        spec: &MakeSpec,
        open: OpenMode,
        progress: &mut Progress,
    ) -> Try<Reply> {
        let new = self.new_inode(spec, progress)?;
        let ino = new.ino;
        self.run_op(&Op::CreateOrphan { parent, new }, OperationKind::Create, progress)?;
        let entry = self.unnamed_entry(ino, progress)?;
        let handle = self.open_handle(Handle::new(ino, open));
        self.note_open_told(ino);
        Ok(Reply::Created(entry, self.opened(ino, handle, open, IsNew::Yes)))
    }

    fn try_link(&mut self, ino: Ino, parent: Ino, name: &[u8], progress: &mut Progress) -> Try<Reply> {
        let name = checked(name)?;
        self.settle_links(ino);
        if let Some(known) = self.known.get_mut(&ino) {
            // The kernel counts the link itself, and drops answers that came before.
            known.judged.stir(self.clock.now);
        }
        // Afterwards it may be gone, with all its names.
        if progress.ship.is_none() {
            self.prepare_link(ino, progress)?;
        }
        let op = Op::Link { ino, parent, name: name.clone() };
        self.run_op(&op, OperationKind::Link, progress)?;
        let made = match progress.is_gone {
            true => Err(FsError::Stale.into()),
            false => self.made_entry(parent, &name, ino, progress),
        };
        let entry = match (made, &progress.linked) {
            (Err(Step::Done(Reply::Error(FsError::Stale))), Some(attr)) => {
                let attr = Attr { nlink: 0, ..**attr };
                self.gone_entry(attr)
            }
            (made, _) => made?,
        };
        // The kernel takes the attributes with it whatever was taken back meanwhile, so it is to ask for them again.
        let entry = Entry { keep_attr: Keep::No, ..entry };
        self.finish_dir(Reply::Entry(entry), progress)
    }

    fn try_unlink(
        &mut self,
        (parent, name): (Ino, &[u8]),
        bound: Option<u32>,
        progress: &mut Progress,
    ) -> Try<Reply> {
        let name = checked(name)?;
        let open_here = self.child_is_open(parent, &name);
        let op = Op::Unlink { parent, name, open_here, bound };
        let reply = self.run_op(&op, OperationKind::Unlink, progress)?;
        if let OpReply::Removed { ino, deleted } = reply {
            let is_unused = !self.known.get(&ino).is_some_and(Known::is_open);
            if deleted {
                self.live.remove(&ino);
                self.dirty_files.remove(&ino);
                self.flush_failed.remove(&ino);
            } else if is_unused && self.cache.sole_orphans.remove(&ino) {
                // Too large to go at once: the master sees to it.
                self.give_up_orphan(ino);
            }
        }
        if progress.ship.is_none() {
            self.note_unlinked(&op, reply);
        }
        self.finish_dir(Reply::Done, progress)
    }

    /// The entry of a name just made for an inode, for the kernel. Others may have removed it since, and given it to
    /// something else.
    fn made_entry(&mut self, parent: Ino, name: &Name, ino: Ino, progress: &mut Progress) -> Try<Entry> {
        // In a directory that is gone it is found no more, and was made all the same.
        if progress.stale_ino.0 == Some(parent) || progress.lost_name {
            return self.unnamed_entry(ino, progress);
        }
        match self.try_lookup(parent, name.as_bytes())? {
            Reply::Entry(entry) if entry.attr.ino == ino => return Ok(entry),
            Reply::Entry(other) => {
                self.forget(other.attr.ino, 1);
                // Attributes of either may be told for one try only: it is not looked for again.
                progress.lost_name = true;
            }
            Reply::NoEntry(_) => {}
            other => return Err(Step::Done(other)),
        }
        self.unnamed_entry(ino, progress)
    }

    /// The entry of what was just made, wherever it is by now: that stands with what is known of it, which is there from here on.
    fn unnamed_entry(&mut self, ino: Ino, progress: &mut Progress) -> Try<Entry> {
        self.known.note(ino);
        self.own_entry(ino, progress)
    }

    /// The entry of what was made and is no more, before whoever made it is told: as it was, and not to be kept. What is asked
    /// of it later is answered for itself.
    fn removed_entry(&mut self, new: &NewInode) -> Entry {
        let now = self.clock.wall;
        let attr = Attr {
            ino: new.ino,
            generation: FIRST_GENERATION,
            kind: new.kind,
            mode: new.mode & !new.umask,
            nlink: 0,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            size: new.target.len() as u64,
            tree: 0,
            stored_bytes: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        self.gone_entry(attr)
    }

    fn gone_entry(&mut self, attr: Attr) -> Entry {
        self.note_entry_told(&attr);
        let known = self.known.note(attr.ino);
        known.count_lookup();
        known.set_place(Place::Own);
        Entry { attr, keep_name: Keep::No, keep_attr: Keep::No }
    }

    /// Runs an operation: here if the rights suffice, else at the master. Returns once it is answered.
    pub(crate) fn run_op(&mut self, op: &Op, kind: OperationKind, progress: &mut Progress) -> Try<OpReply> {
        match &progress.ship {
            Some(Ship::Sent(seq)) => return Err(Step::Wait(WaitKey::Ship(*seq))),
            Some(Ship::Answered(result)) => return (*result).map_err(Step::from),
            None => {}
        }
        if self.config.read_only {
            return Err(FsError::ReadOnly.into());
        }
        if self.log.bytes() > self.config.log_bytes_max {
            return Err(self.wait_for_log_room());
        }
        if makes_something(op) {
            self.need_space(ENTRY_BYTES)?;
        }
        let credit = self.need_credit_for(op, progress)?;
        for dir in op.directories() {
            self.need_thawed(dir)?;
        }
        for ino in self.subjects(op) {
            match self.place(ino) {
                Place::Covered(parent, _) => self.need_thawed(parent)?,
                Place::Own | Place::Unknown => self.need_thawed(ino)?,
            }
        }
        let now = self.clock.now;
        let context = OpContext { now: self.clock.wall, node: self.me };
        let view = NodeView::new(self, Rights::Usable);
        match op.plan(&view, &context) {
            Ok(plan) => {
                for dir in op.directories() {
                    self.tokens.try_use(now, ResourceId::dir(dir), LockMode::Pr);
                    self.note_used(dir);
                }
                self.metrics.operations_local.add(kind, 1);
                self.apply_local(plan.changes);
                self.cache.going.note(op, progress.id, now);
                Ok(plan.reply)
            }
            Err(ViewError::Refused(error)) => Err(error.into()),
            Err(ViewError::Missing(_)) => {
                if let Some(dir) = view.not_loaded.get() {
                    return Err(Step::Wait(self.load_more(dir)));
                }
                let mut dirs = op.directories();
                let dir = dirs.next().filter(|dir| dirs.all(|other| other == *dir));
                if let Some(dir) = dir.filter(|dir| self.cache.aside.contains_key(dir)) {
                    // Its next turn comes with the right to do it here. Two such rights would hardly come together.
                    return Err(Step::Wait(self.want(Want::Directory { ino: dir })));
                }
                let seq = self.ship(op, kind, credit, progress.id)?;
                progress.ship = Some(Ship::Sent(seq));
                if let Some(ino) = progress.ino {
                    // Others may move it before the answer comes: where it is stands with what is known of it.
                    self.known.note(ino);
                }
                Err(Step::Wait(WaitKey::Ship(seq)))
            }
        }
    }

    /// Tells all other nodes that the owner of an inode is another, and waits until no kernel judges by the old one.
    ///
    /// Of what a directory covers they learn with the directory; and who has it in EX alone knows the names in it.
    pub(crate) fn tell_owner(&mut self, ino: Ino, progress: &mut Progress) -> Try<()> {
        let is_known_alone = match self.place(ino) {
            Place::Covered(..) => true,
            Place::Own | Place::Unknown => self.known.get(&ino).is_some_and(|known| {
                known.seat.is_in(|parent| self.tokens.usable(ResourceId::dir(parent)) == LockMode::Ex)
            }),
        };
        if is_known_alone && progress.ship.is_none() {
            return Ok(());
        }
        match &progress.ship {
            Some(Ship::Sent(seq)) => Err(Step::Wait(WaitKey::Ship(*seq))),
            Some(Ship::Answered(result)) => result.map(drop).map_err(Step::from),
            None => {
                let seq =
                    self.ship(&Op::TellOwner { ino }, OperationKind::Setattr, Vec::new(), progress.id)?;
                progress.ship = Some(Ship::Sent(seq));
                Err(Step::Wait(WaitKey::Ship(seq)))
            }
        }
    }

    /// A directory that a shipped operation froze, or that is being given back, is not changed here meanwhile.
    fn need_thawed(&mut self, dir: Ino) -> Try<()> {
        if self.frozen.contains_key(&dir) && self.holds_names(dir) {
            return Err(Step::Wait(WaitKey::Thawed(dir)));
        }
        if self.tokens.is_releasing(ResourceId::dir(dir)) {
            return Err(Step::Wait(WaitKey::Released(ResourceId::dir(dir))));
        }
        Ok(())
    }

    /// Whether the names' half of a directory, or of an inode with tokens of its own, may be changed here.
    fn holds_names(&self, ino: Ino) -> bool {
        [ResourceId::dir(ino), ResourceId::attr(ino)].iter().any(|r| self.tokens.usable(*r) == LockMode::Ex)
    }

    /// Sends an operation to the master, after everything it builds on.
    ///
    /// `spent` is the credit that goes with it.
    fn ship(&mut self, op: &Op, kind: OperationKind, spent: Vec<Credit>, by: RequestId) -> Try<OpSeq> {
        let mut frozen: Vec<Ino> = op.directories().collect();
        for ino in self.subjects(op) {
            if let Place::Covered(parent, _) = self.place(ino) {
                if self.tokens.usable(ResourceId::dir(parent)) == LockMode::Ex {
                    // What we hold of the inode stays ours whatever the master does with its name.
                    self.split_here(ino, Rights::Usable);
                } else if let Some(job) = self.flush(&[ino]) {
                    return Err(Step::Wait(WaitKey::Flush(job)));
                }
                frozen.push(parent);
            }
            // What it shows of an inode with tokens of its own is changed by the master now.
            frozen.push(ino);
        }
        let (removes, removes_unseen) = self.removed_by(op);
        if let Some(job) = self.flush_under_way(&removes) {
            return Err(Step::Wait(WaitKey::Flush(job)));
        }
        // Nothing is made in a directory that the master may just have removed.
        frozen.extend(&removes);
        // Whatever is held of them now: EX may come with the answer to an earlier operation.
        frozen.sort_unstable();
        frozen.dedup();
        for dir in &frozen {
            *self.frozen.entry(*dir).or_default() += 1;
        }
        for ino in &removes {
            *self.removing.entry(*ino).or_default() += 1;
        }
        self.metrics.operations_shipped.add(kind, 1);
        self.send_released();
        #[cfg(feature = "planted")]
        let is_early = !self.log.is_open_empty()
            && types::planted::strikes(types::planted::Planted::ShippedBeforeTheLog);
        #[cfg(not(feature = "planted"))]
        let is_early = false;
        if !is_early {
            self.send_batch(false);
        }
        self.last_op = OpSeq(self.last_op.0 + 1);
        let seq = self.last_op;
        let (op, wall) = (op.clone(), self.clock.wall);
        self.ship_credit(&spent);
        self.shipped.insert(
            seq,
            Shipped { op, by, frozen, removes, removes_unseen, wall, names_noted: false, spent },
        );
        self.unsynced_at_master = true;
        self.send_ship(seq);
        Ok(seq)
    }

    /// Sends a shipped operation, for the first time or again.
    pub(crate) fn send_ship(&mut self, seq: OpSeq) {
        let acked = self.shipped.keys().next().map_or(self.last_op, |first| OpSeq(first.0 - 1));
        let Some(shipped) = self.shipped.get(&seq) else { return };
        let (now, spent) = (shipped.wall, shipped.spent.clone());
        let message = ToMaster::Ship { seq, acked, now, op: shipped.op.clone(), spent };
        self.send(message);
    }

    /// Inodes, other than directories named, that an operation is about.
    pub(crate) fn subjects(&self, op: &Op) -> impl Iterator<Item = Ino> + use<> {
        let child = |parent: &Ino, name: &Name| self.cached_child(*parent, name);
        let subjects = match op {
            Op::Link { ino, .. } | Op::SetAttr { ino, .. } => [Some(*ino), None],
            Op::SetXattr { ino, .. } | Op::RemoveXattr { ino, .. } => [Some(*ino), None],
            Op::Unlink { parent, name, .. } => [child(parent, name), None],
            Op::Rename { parent, name, new_parent, new_name, .. } => {
                [child(parent, name), child(new_parent, new_name)]
            }
            Op::Create { .. }
            | Op::Rmdir { .. }
            | Op::Split { .. }
            | Op::Merge { .. }
            | Op::Reclaim { .. }
            | Op::TellOwner { .. }
            | Op::CreateOrphan { .. } => [None, None],
        };
        subjects.into_iter().flatten()
    }

    /// Inodes that an operation may delete: the master refuses what is logged of one that is gone. With the directory where it removes what is not
    /// known here.
    fn removed_by(&self, op: &Op) -> (Vec<Ino>, Option<Ino>) {
        let (parent, name) = match op {
            Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name, .. } => (*parent, name),
            Op::Rename { new_parent, new_name, .. } => (*new_parent, new_name),
            Op::Create { .. }
            | Op::Link { .. }
            | Op::SetAttr { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Split { .. }
            | Op::Merge { .. }
            | Op::Reclaim { .. }
            | Op::TellOwner { .. }
            | Op::CreateOrphan { .. } => return (Vec::new(), None),
        };
        if let Some(dir) = self.cache.dirs.get(&parent) {
            match dir.find(self.cookie_key.hash(name.as_bytes()), name) {
                Found::Entry(_, entry) => return (vec![entry.dirent.ino], None),
                Found::Absent(_) => return (Vec::new(), None),
                Found::NotLoaded | Found::NoPlace => {}
            }
        }
        // The name is not known here: it may be of anything that is held and may be there.
        let (dirs, others) = match op {
            Op::Rmdir { .. } => (true, false),
            Op::Unlink { .. } => (false, true),
            _ => (true, true),
        };
        let dirs = self.cache.dirs.iter().filter(|(_, dir)| dirs && dir.inode.attr.parent == parent);
        let may_be_there =
            |own: &Box<OwnCache>| own.attr.as_ref().is_none_or(|a| a.parent == parent || a.parent == Ino(0));
        let others = self.cache.owns.iter().filter(|(_, own)| others && may_be_there(own));
        let mut inos: Vec<Ino> = dirs.map(|(ino, _)| *ino).chain(others.map(|(ino, _)| *ino)).collect();
        inos.sort_unstable();
        (inos, Some(parent))
    }

    pub(crate) fn cached_child(&self, parent: Ino, name: &Name) -> Option<Ino> {
        let dir = self.cache.dirs.get(&parent)?;
        match dir.find(self.cookie_key.hash(name.as_bytes()), name) {
            Found::Entry(_, entry) => Some(entry.dirent.ino),
            Found::Absent(_) | Found::NotLoaded | Found::NoPlace => None,
        }
    }

    fn child_is_open(&self, parent: Ino, name: &Name) -> bool {
        self.cached_child(parent, name).is_some_and(|ino| self.known.get(&ino).is_some_and(|k| k.is_open()))
    }

    /// Gives a covered child keys and tokens of its own, held in EX, in a directory held in EX.
    pub(crate) fn split_here(&mut self, ino: Ino, rights: Rights) {
        let context = OpContext { now: self.clock.wall, node: self.me };
        let planned = Op::Split { ino }.plan(&NodeView::new(self, rights), &context);
        match planned {
            Ok(plan) => self.apply_local(plan.changes),
            Err(error) => log::error!("split of ino {ino} failed: {error:?}"),
        }
    }

    /// Applies and logs changes made here under EX, and takes the tokens of what they make.
    pub(crate) fn apply_local(&mut self, changes: Vec<Change>) {
        self.note_sole_orphans(&changes);
        self.note_pages_deleted(&changes);
        let own = self.own_usage_before(&changes);
        for mut change in changes {
            self.carry_atime(&mut change);
            match &change {
                Change::PutDirectory { ino, inode } if !self.cache.dirs.contains_key(ino) => {
                    self.take_at_birth(ResourceId::dir(*ino));
                    let mut dir = DirCache::new((**inode).clone(), self.clock.now);
                    dir.loaded_to = LOADED_ALL;
                    self.cache.dirs.insert(*ino, Box::new(dir));
                }
                Change::PutAttr { ino, attr } if self.tokens.held(ResourceId::attr(*ino)) == LockMode::Nl => {
                    self.take_at_birth(ResourceId::attr(*ino));
                    self.cache.owns.entry(*ino).or_default().attr = Some(attr.clone());
                    self.set_place(*ino, Place::Own);
                }
                Change::PutContent { ino, content }
                    if self.tokens.held(ResourceId::file(*ino)) == LockMode::Nl =>
                {
                    self.take_at_birth(ResourceId::file(*ino));
                    self.cache.owns.entry(*ino).or_default().content = Some(content.clone());
                    self.set_place(*ino, Place::Own);
                }
                _ => self.cache.apply(&change),
            }
            if let Change::DeleteInode { ino, .. } = &change {
                self.drop_deleted(*ino);
            }
            self.metrics.mutations.add(1);
            if let Change::AddUsage { charge, bytes, inodes } = &change {
                self.note_spent(*charge, *bytes, *inodes);
            }
            self.log.append(change);
        }
        self.note_own_usage(own);
        self.note_moves();
    }

    /// Pages that go with their files: a batch has no more of them than the master deletes at once.
    fn note_pages_deleted(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::DeleteExtentPages { ino, from_page, .. } = change {
                let pages = self.recorded(*ino).map_or(0, meta::ops::pages_of);
                self.log.note_pages_deleted(pages.saturating_sub(*from_page));
            }
        }
    }

    /// What gets both halves of a record of its own as it becomes an orphan was covered by a directory held here, or is
    /// new: no other node has it open.
    fn note_sole_orphans(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::PutAttr { ino, attr } if attr.nlink > 0 => _ = self.cache.sole_orphans.remove(ino),
                Change::PutOrphan { ino, .. } => {
                    let has_content =
                        |c: &Change| matches!(c, Change::PutContent { ino: of, .. } if of == ino);
                    if changes.iter().any(has_content) {
                        self.cache.sole_orphans.insert(*ino);
                    }
                }
                _ => {}
            }
        }
    }

    /// A token on something new: nobody else can know it. The next batch declares it.
    fn take_at_birth(&mut self, resource: ResourceId) {
        self.tokens.grant(self.clock.now, resource, LockMode::Ex);
        self.metrics.tokens_granted.add(resource.kind.into(), 1);
        self.log.declare(resource, LockMode::Ex);
    }

    /// Nothing is left of a deleted inode.
    pub(crate) fn drop_deleted(&mut self, ino: Ino) {
        self.keep_departed();
        for resource in [ResourceId::dir(ino), ResourceId::attr(ino), ResourceId::file(ino)] {
            if self.tokens.held(resource) != LockMode::Nl {
                self.tokens.forget(resource);
                self.releases.remove(&resource);
                self.wake(WaitKey::Released(resource));
            }
        }
        self.live.remove(&ino);
        self.dirty_files.remove(&ino);
        self.flush_failed.remove(&ino);
        self.untold.remove(&ino);
        self.lost_unnamed.remove(&ino);
        self.drop_pages(ino);
        self.cache.atimes.noted.remove(&ino);
        self.old_content.remove(&ino);
        if self.cache.drop_dir(ino).is_some() {
            self.sought.retain(|_, covering| *covering != ino);
            // Nobody answers what was asked for of it.
            self.wake(WaitKey::Loaded(ino));
        }
        self.cache.owns.remove(&ino);
        self.set_place(ino, Place::Unknown);
    }

    pub(crate) fn set_place(&mut self, ino: Ino, place: Place) {
        if let Some(known) = self.known.get_mut(&ino) {
            if place == Place::Own
                && let Place::Covered(dir, cookie) = known.place()
            {
                self.cache.seen_at.entry(ino).or_default().note((dir, cookie));
            }
            known.set_place(place);
        }
    }

    /// Setuid, setgid and capabilities go when somebody else writes, who is in these groups.
    pub(crate) fn kill_privileges(&mut self, ino: Ino, groups: &Groups, progress: &mut Progress) -> Try<()> {
        if progress.flushed {
            return Ok(());
        }
        // The master knows, and takes nothing where there is nothing to take. What it took is known here before its answer is taken.
        let is_asked = progress.ship.is_some();
        let has_any = is_asked || self.mode_for_write(ino)?.is_none_or(|mode| mode & 0o6000 != 0);
        if has_any || self.has_capability(ino) {
            let set = AttrSet { kill_privileges: Some(groups.clone()), ..AttrSet::default() };
            progress.killed_privileges = self.run_with_pages(ino, &Op::SetAttr { ino, set }, progress)?;
        }
        progress.flushed = true;
        Ok(())
    }

    /// Runs a change of `ino` that a write or a truncation brings with it. These own pages, which the release of a right may be waiting for: so it
    /// is made by a right that is being given back, rather than to wait for that. Returns whether it may have changed anything.
    pub(crate) fn run_with_pages(&mut self, ino: Ino, op: &Op, progress: &mut Progress) -> Try<bool> {
        let (resource, is_covered) = match self.place(ino) {
            Place::Covered(parent, _) => (ResourceId::dir(parent), true),
            Place::Own | Place::Unknown => (ResourceId::attr(ino), false),
        };
        let is_going = self.is_dropping(resource) && self.tokens.held(resource) == LockMode::Ex;
        // What the master changes right now is not written over.
        let is_frozen = self.frozen.contains_key(&ino);
        if progress.ship.is_none() && is_going && is_covered && is_frozen {
            return Err(Step::Wait(WaitKey::Thawed(ino)));
        }
        if progress.ship.is_none() && is_going && !is_frozen {
            let context = OpContext { now: self.clock.wall, node: self.me };
            let planned = op.plan(&NodeView::new(self, Rights::Held), &context);
            match planned {
                Ok(plan) => {
                    let changes_any = !plan.changes.is_empty();
                    self.apply_local(plan.changes);
                    return Ok(changes_any);
                }
                Err(ViewError::Refused(error)) => return Err(error.into()),
                // The master has to look: at a file with tokens of its own, for which the directory is not waited for.
                Err(ViewError::Missing(_)) if is_covered => self.split_here(ino, Rights::Held),
                Err(ViewError::Missing(_)) => {}
            }
        }
        self.run_op(op, OperationKind::Setattr, progress)?;
        progress.ship = None;
        Ok(true)
    }

    /// What goes when a file is changed. The kernel keeps the mode that it has, and would go on to run the file with the rights of its
    /// owner, at once and also if the change itself is refused: it is taken back first.
    pub(crate) fn lose_privileges(
        &mut self,
        ino: Ino,
        kill: Option<&Groups>,
        progress: &mut Progress,
    ) -> Try<()> {
        match kill {
            Some(groups) => self.kill_privileges(ino, groups, progress)?,
            None if self.has_capability(ino) => self.drop_capability(ino, progress)?,
            None => {}
        }
        if !progress.killed_privileges || std::mem::replace(&mut progress.privileges_taken_back, true) {
            return Ok(());
        }
        let job = self.invalidate(Purpose::WriteBack, vec![Invalidation::Attr { ino }], Vec::new());
        Err(Step::Wait(WaitKey::WrittenBack(job)))
    }

    /// Capabilities go when anybody writes or cuts the file; the superuser leaves setuid and setgid alone.
    pub(crate) fn drop_capability(&mut self, ino: Ino, progress: &mut Progress) -> Try<()> {
        if progress.killed_privileges {
            return Ok(());
        }
        let op = Op::RemoveXattr { ino, name: checked(CAPABILITY)?, only_owner: None };
        match self.run_with_pages(ino, &op, progress) {
            // Another writer was faster, or other attributes are too large to be looked through here.
            Ok(_) | Err(Step::Done(Reply::Error(FsError::NoAttribute))) => {}
            Err(step) => return Err(step),
        }
        progress.ship = None;
        progress.killed_privileges = true;
        Ok(())
    }

    fn new_inode(&mut self, spec: &MakeSpec, progress: &mut Progress) -> Try<NewInode> {
        let ino = match progress.ino {
            Some(ino) => ino,
            None => self.take_inode_number()?,
        };
        progress.ino = Some(ino);
        Ok(NewInode {
            ino,
            kind: spec.kind,
            mode: spec.mode,
            umask: spec.umask,
            uid: spec.uid,
            gid: spec.gid,
            rdev: spec.rdev,
            target: spec.target.clone(),
        })
    }

    fn inode_numbers_left(&self) -> u64 {
        self.inode_numbers.iter().map(|range| range.end - range.start).sum()
    }

    /// The next inode number of this node's own.
    fn take_inode_number(&mut self) -> Try<Ino> {
        if self.inode_numbers_left() < RESERVE_BELOW {
            self.ask_numbers();
        }
        let Some(range) = self.inode_numbers.front_mut() else {
            return Err(Step::Wait(WaitKey::Numbers));
        };
        let ino = Ino(range.start);
        range.start += 1;
        #[cfg(feature = "planted")]
        if types::planted::strikes(types::planted::Planted::InodeNumberReused) {
            range.start -= 1;
        }
        if range.is_empty() {
            self.inode_numbers.pop_front();
        }
        Ok(ino)
    }

    /// Asks for more inode numbers and segments, once at a time.
    pub(crate) fn ask_numbers(&mut self) {
        if !self.reserve_asked && self.link == Link::Up {
            self.reserve_asked = true;
            let has_segments =
                self.writer.as_ref().is_some_and(|writer| writer.segments_ready() >= SEGMENTS_LOW);
            let (inodes, segments) = match (self.inode_numbers_left() >= RESERVE_BELOW, has_segments) {
                (true, false) => (0, RESERVE_SEGMENTS),
                (false, true) => (RESERVE_INODES, 0),
                (true, true) | (false, false) => (RESERVE_INODES, RESERVE_SEGMENTS),
            };
            self.send(ToMaster::Reserve { inodes, segments });
        }
    }

    /// Ends a change of a directory: with dirsync it must be durable first.
    pub(crate) fn finish_dir(&mut self, reply: Reply, progress: &mut Progress) -> Try<Reply> {
        if self.config.dirsync || self.config.sync {
            progress.done = Some(reply);
            return Err(self.wait_durable(progress));
        }
        Ok(reply)
    }

    /// Ends any other change.
    pub(crate) fn finish(&mut self, reply: Reply, progress: &mut Progress) -> Try<Reply> {
        if let Some(seq) = progress.sync {
            if self.log.durable() < seq {
                progress.done = Some(reply);
                return Err(Step::Wait(WaitKey::Durable));
            }
            return Ok(reply);
        }
        if self.config.sync || progress.must_sync {
            progress.done = Some(reply);
            return Err(self.wait_durable(progress));
        }
        Ok(reply)
    }
}

/// What an operation of this kernel names anew with the lifetime of another name.
pub(crate) fn names_given(op: &Op) -> Vec<(Ino, &Name)> {
    let Op::Rename { parent, name, new_parent, new_name, mode, .. } = op else { return Vec::new() };
    match mode {
        RenameMode::Exchange => vec![(*new_parent, new_name), (*parent, name)],
        RenameMode::Replace | RenameMode::NoReplace => vec![(*new_parent, new_name)],
    }
}

/// Inode numbers asked for at once (docs/locking.md, "Defaults").
pub(crate) const RESERVE_INODES: u32 = 65_536;
/// Segments asked for at once.
pub(crate) const RESERVE_SEGMENTS: u32 = 16;
/// Room that a name may take, about.
const ENTRY_BYTES: u64 = 1024;
const RESERVE_BELOW: u64 = 16_384;

/// Whether an operation needs room that a full volume does not have.
fn makes_something(op: &Op) -> bool {
    match op {
        Op::Create { .. } | Op::Link { .. } | Op::SetXattr { .. } | Op::CreateOrphan { .. } => true,
        Op::Rename { whiteout, .. } => whiteout.is_some(),
        Op::Unlink { .. }
        | Op::Rmdir { .. }
        | Op::SetAttr { .. }
        | Op::RemoveXattr { .. }
        | Op::Split { .. }
        | Op::Merge { .. }
        | Op::Reclaim { .. }
        | Op::TellOwner { .. } => false,
    }
}

/// So long a name is tried again and again that others have given away.
const OUTWAITS_FOR: Micros = Micros::from_millis(1000);

/// Checks a name.
pub(crate) fn checked(name: &[u8]) -> Try<Name> {
    Name::new(name).map_err(|error| match error {
        NameError::Invalid => FsError::Invalid.into(),
        NameError::TooLong => FsError::NameTooLong.into(),
    })
}
