//! Lookups and attributes.

use meta::ops::{AttrSet, RenameMode};
use meta::{Body, FileKind, FsError, Inode, InodeAttr, Op};
use obs::OperationKind;
use rustc_hash::FxHashMap;
use types::{Charge, Ino, LockMode, Name, ResourceId};
use wire::{FetchWhat, Want};

use crate::cache::{Found, KernelHas, Place};
use crate::core::{Core, Link};
use crate::jobs::Purpose;
use crate::known::{Known, Naming};
use crate::outputs::Invalidation;
use crate::request::{Attr, Entry, Keep, Reply, Request, StatFs};
use crate::wait::{Progress, Step, Try, WaitKey};

impl Core {
    pub(crate) fn try_lookup(&mut self, parent: Ino, name: &[u8]) -> Try<Reply> {
        let name = crate::namespace::checked(name)?;
        self.need_dir(parent)?;
        let hash = self.cookie_key.hash(name.as_bytes());
        let keep_name = self.keep_names(parent);
        let Some(dir) = self.cache.dirs.get_mut(&parent) else {
            return Err(FsError::NotDirectory.into());
        };
        let (cookie, ino) = match dir.find(hash, &name) {
            Found::Entry(cookie, entry) => {
                if entry.name_out && self.known.get(&entry.dirent.ino).is_some_and(|known| known.lookups > 0)
                {
                    self.asked_again_at = Some(self.clock.now);
                }
                (cookie, entry.dirent.ino)
            }
            Found::NotLoaded => return Err(Step::Wait(self.load_more(parent))),
            Found::Absent(_) | Found::NoPlace => {
                // The kernel does not say when it gives one up.
                let has_room = dir.negatives.len() < NEGATIVES_MAX || dir.negatives.contains(&name);
                let keep_name = if has_room { keep_name } else { Keep::No };
                if keep_name == Keep::Yes {
                    dir.negatives.insert(name);
                }
                self.metrics.operations_local.add(OperationKind::Lookup, 1);
                return Ok(Reply::NoEntry(keep_name));
            }
        };
        let found = self.entry_attr(parent, cookie, ino)?;
        let (attr, keep_attr) = self.with_links(found, Some(parent))?;
        self.need_end(&attr)?;
        self.metrics.operations_local.add(OperationKind::Lookup, 1);
        if let Some(known) = self.known.get_mut(&ino).filter(|known| known.lookups > 0) {
            known.naming = Naming::Again;
        }
        Ok(Reply::Entry(self.give_entry(parent, cookie, attr, keep_name, keep_attr)))
    }

    /// Attributes of a child, for an entry of its directory.
    fn entry_attr(&mut self, parent: Ino, cookie: meta::Cookie, ino: Ino) -> Try<(Attr, Keep)> {
        let covered = self
            .cache
            .dirs
            .get(&parent)
            .and_then(|d| d.entries.get(&cookie))
            .and_then(|e| e.dirent.covered());
        if let Some(inode) = covered {
            let attr = self.visible(ino, inode);
            return Ok((attr, self.keep_covered(parent)));
        }
        if let Some((attr, keep)) = self.own_attr(ino) {
            // What is taken back while the kernel makes an inode of the answer finds none, and would be kept.
            let is_new = self.known.get(&ino).is_none_or(|known| known.lookups == 0);
            return Ok((attr, if is_new && attr.kind != FileKind::Directory { Keep::No } else { keep }));
        }
        // An uncovered child whose token is not here.
        let is_dir =
            self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie)).map(|e| e.dirent.kind());
        let want = match is_dir {
            Some(FileKind::Directory) => Want::Directory { ino },
            Some(_) | None => Want::Attr { ino },
        };
        self.cache.file_walk.looked_up = Some((ino, (parent, cookie)));
        if let Some(inode) = self.glimpsed.of(ino) {
            return Ok((self.visible(ino, &inode), Keep::No));
        }
        if let Some(attr) = self.late_attr(ino) {
            return Ok((attr, Keep::No));
        }
        Err(Step::Wait(self.want(want)))
    }

    /// Attributes of any inode and whether the kernel may keep them, if they are here.
    pub(crate) fn attr_here(&mut self, ino: Ino) -> Option<(Attr, Keep)> {
        if let Some(found) = self.own_attr(ino) {
            return Some(found);
        }
        let Place::Covered(parent, cookie) = self.place(ino) else { return None };
        if !self.may_read_dir(parent) {
            return None;
        }
        let entry = self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie));
        let inode = entry.filter(|e| e.dirent.ino == ino).and_then(|e| e.dirent.covered())?;
        let attr = self.visible(ino, inode);
        Some((attr, self.keep_covered(parent)))
    }

    /// Attributes of an uncovered inode, if they are here.
    fn own_attr(&mut self, ino: Ino) -> Option<(Attr, Keep)> {
        let now = self.clock.now;
        if let Some(dir) = self.cache.dirs.get(&ino) {
            let inode = &dir.inode;
            let attr = self.visible(ino, inode);
            return match self.tokens.try_use(now, ResourceId::dir(ino), LockMode::Pr) {
                true => Some((attr, Keep::Yes)),
                false => Some((attr, Keep::No)).filter(|_| self.is_dropping(ResourceId::dir(ino))),
            };
        }
        let own = self.cache.owns.get(&ino)?;
        let halves = [ResourceId::attr(ino), ResourceId::file(ino)];
        if !halves.into_iter().all(|half| self.is_shown_by(half)) {
            return None;
        }
        let inode = Inode { attr: own.attr.clone()?, content: own.content.clone()? };
        let attr = self.visible(ino, &inode);
        let keep = match halves.into_iter().all(|half| self.tokens.usable(half).permits(LockMode::Pr)) {
            true => Keep::Yes,
            false => Keep::No,
        };
        self.tokens.try_use(now, ResourceId::attr(ino), LockMode::Pr);
        Some((attr, keep))
    }

    /// Whether what a right covers is true here now: also while the kernel's caches under it are being taken back, which
    /// may wait for whoever asks.
    fn is_shown_by(&self, resource: ResourceId) -> bool {
        self.tokens.usable(resource).permits(LockMode::Pr)
            || self.is_dropping(resource) && self.tokens.held(resource).permits(LockMode::Pr)
    }

    /// Whoever was given a name of this inode has it, and no other answer that names it was made lately. One that the kernel keeps for longer than for
    /// one use is left as it was. Returns the name: who takes it back because of that answer alone has nothing to wait for.
    pub fn name_taken_in(&mut self, ino: Ino) -> Option<(Ino, Name)> {
        let (parent, cookie) = match self.place(ino) {
            Place::Covered(parent, cookie) => (parent, cookie),
            Place::Own => self.cache.seen_at.get(&ino)?.only()?,
            Place::Unknown => return None,
        };
        let entry = self.cache.dirs.get(&parent).and_then(|dir| dir.entries.get(&cookie));
        let entry = entry.filter(|entry| entry.dirent.ino == ino && !entry.name_out)?;
        let known = self.known.get_mut(&ino).filter(|known| known.lookups > 0)?;
        let was_named = std::mem::replace(&mut known.naming, Naming::None) != Naming::None;
        was_named.then(|| (parent, entry.dirent.name.clone()))
    }

    /// Hands an entry to the kernel and remembers what it now has.
    pub(crate) fn give_entry(
        &mut self,
        parent: Ino,
        cookie: meta::Cookie,
        attr: Attr,
        keep_name: Keep,
        keep_attr: Keep,
    ) -> Entry {
        let mut place = Place::Own;
        if let Some(dir) = self.cache.dirs.get_mut(&parent) {
            dir.note_told(cookie);
        }
        if let Some(entry) = self.cache.dirs.get_mut(&parent).and_then(|d| d.entries.get_mut(&cookie)) {
            entry.name_out |= keep_name == Keep::Yes;
            if attr.kind == FileKind::Directory {
                self.known.take_seat(attr.ino, parent, &entry.dirent.name);
            }
            if entry.dirent.covered().is_some() {
                place = Place::Covered(parent, cookie);
            }
        }
        self.note_entry_told(&attr);
        if place == Place::Own && attr.kind != FileKind::Directory {
            self.cache.seen_at.entry(attr.ino).or_default().note((parent, cookie));
        }
        let known = self.known.note(attr.ino);
        known.count_lookup();
        known.set_place(place);
        if keep_attr == Keep::Yes {
            known.note_attr_out();
        }
        Entry { attr, keep_name, keep_attr }
    }

    /// A name to drop before `reply` is given to the kernel: it has that directory there, and finds it elsewhere now.
    pub fn seat_before(&mut self, reply: &Reply) -> Option<(Ino, Name)> {
        let Reply::Entry(Entry { attr: Attr { ino, kind: FileKind::Directory, .. }, .. }) = reply else {
            return None;
        };
        self.known.get_mut(ino)?.seat.take_before()
    }

    /// An entry of an inode without a name.
    pub(crate) fn own_entry(&mut self, ino: Ino, progress: &mut Progress) -> Try<Entry> {
        let (attr, keep_attr) = self.attr_of(ino, progress)?;
        self.need_end(&attr)?;
        self.note_entry_told(&attr);
        let known = self.known.note(ino);
        // What is taken back while the kernel makes an inode of the answer finds none, and would be kept.
        let keep_attr = if known.lookups == 0 { Keep::No } else { keep_attr };
        known.count_lookup();
        if known.place() == Place::Unknown {
            known.set_place(Place::Own);
        }
        if keep_attr == Keep::Yes {
            known.note_attr_out();
        }
        self.note_out(ino);
        Ok(Entry { attr, keep_name: Keep::No, keep_attr })
    }

    /// The kernel dropped `count` references of an inode.
    ///
    /// Returns whether it has none left.
    pub fn forget(&mut self, ino: Ino, count: u64) -> bool {
        let Some(known) = self.known.get_mut(&ino) else { return true };
        known.lookups = u64::from(known.lookups).saturating_sub(count) as u32;
        let is_done = known.lookups == 0;
        self.forget_unused(ino);
        is_done
    }

    /// Forgets an inode that neither the kernel nor a handle nor unflushed content needs.
    pub(crate) fn forget_unused(&mut self, ino: Ino) {
        let Some(known) = self.known.get(&ino) else { return };
        let is_needed = known.lookups > 0 || known.is_open() || ino == Ino::ROOT;
        // Content on its way to the log needs to know where its record is.
        if !is_needed && !self.live.contains_key(&ino) {
            // Where its record is will not be known any more.
            self.log_atimes(&[ino]);
            self.known.remove(ino);
            self.pages.forget(ino);
            self.cache.atimes.noted.remove(&ino);
            self.cache.learnt.remove(&ino);
            self.cache.seen_at.remove(&ino);
            self.gone.forget(ino);
        }
    }

    pub(crate) fn try_getattr(&mut self, ino: Ino, progress: &mut Progress) -> Try<Reply> {
        let found = self.attr_of(ino, progress)?;
        self.tell_attr(found)
    }

    pub(crate) fn try_stat(&mut self, ino: Ino, progress: &mut Progress) -> Try<Reply> {
        let found = match self.attr_here(ino) {
            None if progress.glimpse_of(ino).is_none() => self.late_attr(ino).map(|attr| (attr, Keep::No)),
            found => found,
        };
        let found = match found {
            Some(found) => found,
            None => self.attr_of(ino, progress)?,
        };
        self.tell_attr(found)
    }

    fn tell_attr(&mut self, found: (Attr, Keep)) -> Try<Reply> {
        let ino = found.0.ino;
        let (attr, keep) = self.with_links(found, None)?;
        self.need_end(&attr)?;
        self.metrics.operations_local.add(OperationKind::Getattr, 1);
        self.note_told(&attr);
        if keep == Keep::Yes {
            self.note_out(ino);
            if let Some(dir) = self.cache.dirs.get_mut(&ino) {
                dir.kernel_has = dir.kernel_has.max(KernelHas::Attributes);
            }
            if let Some(known) = self.known.get_mut(&ino) {
                if known.attr_out() && attr.kind != FileKind::Directory {
                    self.asked_again_at = Some(self.clock.now);
                }
                known.note_attr_out();
            }
        }
        Ok(Reply::Attr(attr, keep))
    }

    /// Where a directory hangs stands in its record.
    pub(crate) fn try_parent(&mut self, ino: Ino, progress: &mut Progress) -> Try<Reply> {
        self.need_dir(ino)?;
        let Some(dir) = self.cache.dirs.get(&ino) else { return Err(FsError::NotDirectory.into()) };
        if dir.inode.attr.nlink == 0 {
            return Err(FsError::Stale.into());
        }
        let parent = if ino == Ino::ROOT { ino } else { dir.inode.attr.parent };
        self.try_itself(parent, progress)
    }

    /// Looks up an inode by its number alone. Nobody here may have heard of it: where it is found is noted with what is known
    /// of it, which is there from the beginning.
    pub(crate) fn try_itself(&mut self, ino: Ino, progress: &mut Progress) -> Try<Reply> {
        self.known.note(ino);
        let entry = self.own_entry(ino, progress);
        if let Err(Step::Done(_)) = &entry {
            self.forget_unused(ino);
        }
        let entry = entry?;
        self.metrics.operations_local.add(OperationKind::Lookup, 1);
        Ok(Reply::Entry(entry))
    }

    /// A request comes to nothing: what it noted of an inode that it asked for by number goes.
    pub(crate) fn end_search(&mut self, request: &Request) {
        if let Request::Itself { ino } = request {
            self.forget_unused(*ino);
        }
    }

    /// Attributes of any inode and whether the kernel may keep them.
    pub(crate) fn attr_of(&mut self, ino: Ino, progress: &mut Progress) -> Try<(Attr, Keep)> {
        if let Some(found) = self.attr_here(ino) {
            return Ok(found);
        }
        if let Some(inode) = progress.glimpse_of(ino) {
            return Ok((self.visible(ino, inode), Keep::No));
        }
        // The master gives all of a directory: who is known to ask for one may be on a walk.
        let is_dir =
            self.tokens.held(ResourceId::dir(ino)) != LockMode::Nl || self.cache.parents.contains_key(&ino);
        let want = if is_dir { Want::Directory { ino } } else { Want::Attr { ino } };
        Err(Step::Wait(self.want(want)))
    }

    /// Mode bits of an inode for a write, which owns pages: it must not wait for a right that is being given back, for that
    /// may wait for its pages. `None` if they cannot be known without.
    pub(crate) fn mode_for_write(&mut self, ino: Ino) -> Try<Option<u32>> {
        Ok(self.attr_for_write(ino)?.map(|(mode, _)| mode))
    }

    /// Whom an inode is charged to, for a write, as [`Core::mode_for_write`].
    pub(crate) fn charge_for_write(&mut self, ino: Ino) -> Try<Option<Charge>> {
        Ok(self.attr_for_write(ino)?.map(|(_, charge)| charge))
    }

    fn attr_for_write(&mut self, ino: Ino) -> Try<Option<(u32, Charge)>> {
        if let Some(found) = self.attr_held(ino) {
            return Ok(Some(found));
        }
        if let Some(inode) = self.glimpsed.of(ino) {
            return Ok(Some((inode.attr.mode, inode.attr.charge())));
        }
        match self.want(Want::Attr { ino }) {
            WaitKey::Released(_) => Ok(None),
            key => Err(Step::Wait(key)),
        }
    }

    /// Mode bits of an inode whose record is here, and whom it is charged to.
    fn attr_held(&self, ino: Ino) -> Option<(u32, Charge)> {
        let shown = |attr: &InodeAttr| (attr.mode, attr.charge());
        let own = self.cache.owns.get(&ino).and_then(|own| own.attr.as_ref());
        if let Some(attr) = own.filter(|_| self.tokens.held(ResourceId::attr(ino)) != LockMode::Nl) {
            return Some(shown(attr));
        }
        let Place::Covered(parent, cookie) = self.place(ino) else { return None };
        if self.tokens.held(ResourceId::dir(parent)) == LockMode::Nl {
            return None;
        }
        let entry = self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie))?;
        entry.dirent.covered().filter(|_| entry.dirent.ino == ino).map(|inode| shown(&inode.attr))
    }

    /// Whether all groups of somebody who changes a file are to be known: a setgid bit without group execution, or one that
    /// nobody here knows of, goes or stays by them.
    pub fn counts_groups(&self, ino: Ino) -> bool {
        self.attr_held(ino).is_none_or(|(mode, _)| mode & 0o2010 == 0o2000)
    }

    /// Whether somebody is known to own a file, so that a kernel that let him do what only an owner may was right.
    pub fn is_owner(&mut self, ino: Ino, uid: u32) -> bool {
        self.owners(ino).is_some_and(|(owner, _)| owner == uid)
    }

    /// What keeps a removal or a rename by somebody from being his to make, as far as is known here: an inode of somebody else's, in a sticky directory of somebody
    /// else's; or such a directory, where the inode is not known.
    pub fn binds(&mut self, request: &Request, uid: u32) -> Option<Ino> {
        request.names().into_iter().find_map(|(parent, name)| {
            let dir = self.attr_here(parent).map(|(attr, _)| attr);
            if dir.is_some_and(|dir| dir.mode & STICKY == 0 || dir.uid == uid) {
                return None;
            }
            let child = self.cached_child(parent, &name);
            if child.is_some_and(|child| self.is_owner(child, uid)) {
                return None;
            }
            Some(child.unwrap_or(parent))
        })
    }

    /// The inodes whose attributes a request changes by an answer that tells the kernel nothing of them, as far as they are known here. Not those that
    /// lose a name: of them the kernel takes in no older answer.
    pub fn changes_untold(&self, request: &Request) -> [Option<Ino>; 4] {
        match request {
            Request::Make { parent, .. }
            | Request::Create { parent, .. }
            | Request::Link { parent, .. }
            | Request::Unlink { parent, .. }
            | Request::Rmdir { parent, .. } => [Some(*parent), None, None, None],
            Request::Rename { parent, name, new_parent, new_name, mode, .. } => {
                let child = |dir: Ino, name: &[u8]| self.cached_child(dir, &Name::new(name).ok()?);
                let exchanged = child(*new_parent, new_name).filter(|_| *mode == RenameMode::Exchange);
                let other = Some(*new_parent).filter(|other| other != parent);
                [Some(*parent), other, child(*parent, name), exchanged]
            }
            Request::SetXattr { ino, .. }
            | Request::RemoveXattr { ino, .. }
            | Request::Allocate { ino, .. } => [Some(*ino), None, None, None],
            _ => [None; 4],
        }
    }

    /// Whether an answer tells of an inode as it is now.
    pub fn is_as_told(&mut self, attr: &Attr) -> bool {
        self.attr_here(attr.ino).is_some_and(|(now, _)| now == *attr)
    }

    /// User and group of an inode, if they are known here.
    pub fn owners(&mut self, ino: Ino) -> Option<(u32, u32)> {
        if let Some((attr, _)) = self.attr_here(ino) {
            return Some((attr.uid, attr.gid));
        }
        // Of a file that another node writes its names' half is here.
        let attr = self.cache.owns.get(&ino).and_then(|own| own.attr.as_ref());
        attr.filter(|_| self.is_shown_by(ResourceId::attr(ino))).map(|attr| (attr.uid, attr.gid))
    }

    /// The attributes a user sees: the record, and what was written since.
    pub(crate) fn visible(&self, ino: Ino, inode: &Inode) -> Attr {
        let mut attr = Attr {
            ino,
            generation: inode.attr.generation,
            kind: inode.attr.kind,
            mode: inode.attr.mode,
            nlink: inode.attr.nlink,
            uid: inode.attr.uid,
            gid: inode.attr.gid,
            rdev: inode.attr.rdev,
            size: inode.content.size,
            tree: inode.attr.tree,
            stored_bytes: inode.content.body.stored_bytes(),
            atime: inode.content.atime,
            mtime: inode.content.mtime,
            ctime: inode.ctime(),
            btime: inode.attr.btime,
        };
        if let Some(live) = self.live.get(&ino) {
            attr.size = live.size;
            attr.stored_bytes = live.stored_bytes();
            attr.mtime = live.mtime;
            attr.atime = live.atime;
            attr.ctime = attr.ctime.max(live.ctime);
        }
        if let Some(access) =
            self.cache.atimes.noted.get(&ino).filter(|access| access.is_over(&inode.content))
        {
            attr.atime = access.atime;
        }
        if attr.kind == FileKind::Directory {
            attr.size = DIRECTORY_SIZE;
            attr.stored_bytes = 0;
        }
        attr
    }

    pub(crate) fn try_setattr(
        &mut self,
        ino: Ino,
        set: &AttrSet,
        size: Option<u64>,
        progress: &mut Progress,
    ) -> Try<Reply> {
        if self.config.read_only {
            return Err(FsError::ReadOnly.into());
        }
        self.settle_links(ino);
        // Tried once more when it is done, whoever does it: from then on nothing is shown that was asked for before.
        self.unlearn(ino);
        // While a truncation is under way the kernel writes nothing back.
        if set.mtime.is_some() && size.is_none() {
            self.need_stores(ino, progress)?;
        }
        // Content that is being given back brings its own times, behind whatever the master is told meanwhile.
        let file = ResourceId::file(ino);
        if (set.mtime.is_some() || set.atime.is_some())
            && size.is_none()
            && progress.ship.is_none()
            && self.tokens.is_releasing(file)
        {
            return Err(Step::Wait(WaitKey::Released(file)));
        }
        if let Some(size) = size
            && !progress.flushed
        {
            self.truncate(ino, size)?;
            progress.flushed = true;
        }
        if size.is_some() && set.kill_privileges.is_none() && self.has_capability(ino) {
            self.drop_capability(ino, progress)?;
        }
        // Nothing is waited for where nothing is taken: while a truncation waits the kernel writes nothing back, which a right that is
        // being given back may be waiting for.
        let kills_alone = AttrSet { kill_privileges: set.kill_privileges.clone(), ..AttrSet::default() };
        let takes_nothing = size.is_some()
            && *set == kills_alone
            && progress.ship.is_none()
            && self.attr_held(ino).is_some_and(|(mode, _)| mode & 0o6000 == 0)
            && !self.has_capability(ino);
        if *set == kills_alone && size.is_some() {
            if set.kill_privileges.is_some() && !takes_nothing && !progress.killed_privileges {
                self.run_with_pages(ino, &Op::SetAttr { ino, set: set.clone() }, progress)?;
                progress.killed_privileges = true;
            }
        } else if *set != AttrSet::default() {
            self.set_attributes(ino, set, progress)?;
        }
        let (attr, mut keep) = self.attr_of(ino, progress)?;
        if size.is_some() {
            self.note_truncated(ino, attr.size);
        }
        if !self.config.setattr_in_order || size.is_some() && !self.may_give_to_keep() {
            keep = Keep::No;
        }
        self.note_told(&attr);
        if keep == Keep::Yes
            && let Some(known) = self.known.get_mut(&ino)
        {
            known.note_attr_out();
            self.note_out(ino);
        }
        if size.is_some() {
            return self.finish_data(ino, Reply::Attr(attr, keep), progress);
        }
        self.finish(Reply::Attr(attr, keep), progress)
    }

    /// Waits until what was stored through mappings has come: it would move a time that was set after it.
    ///
    /// Nothing else does, for reads and writes of these pages are answered whatever waits here.
    fn need_stores(&mut self, ino: Ino, progress: &mut Progress) -> Try<()> {
        let may_have_stores = |known: &Known| known.uses().mappers > 0 && known.pages_out;
        if progress.written_back || !self.known.get(&ino).is_some_and(may_have_stores) {
            return Ok(());
        }
        progress.written_back = true;
        let job = self.invalidate(Purpose::WriteBack, vec![Invalidation::Pages { ino }], Vec::new());
        Err(Step::Wait(WaitKey::WrittenBack(job)))
    }

    fn set_attributes(&mut self, ino: Ino, set: &AttrSet, progress: &mut Progress) -> Try<()> {
        if progress.ship.is_none() {
            self.need_place(ino)?;
        }
        // Whoever plans the operation looks again; what is set in memory is not planned.
        if let Some(owner) = set.only_owner.filter(|_| progress.ship.is_none() && !progress.owner_set) {
            let (attr, _) = self.attr_of(ino, progress)?;
            if attr.uid != owner {
                return Err(FsError::NotPermitted.into());
            }
        }
        let mut set = set.clone();
        let sets_times = set.mtime.is_some() || set.atime.is_some();
        if set.atime.is_some() {
            self.cache.atimes.noted.remove(&ino);
        }
        // Times of content that no change records yet go with it.
        if sets_times
            && progress.ship.is_none()
            && self.may_write_content(ino)
            && let Some(live) = self.live.get_mut(&ino)
        {
            live.set_times(set.atime.take(), set.mtime.take(), self.clock.wall);
            if set == (AttrSet { only_owner: set.only_owner, ..AttrSet::default() }) {
                self.metrics.operations_local.add(OperationKind::Setattr, 1);
                return Ok(());
            }
        }
        let has_new_owner = set.uid.is_some() || set.gid.is_some();
        if !progress.owner_set {
            self.run_op(&Op::SetAttr { ino, set }, OperationKind::Setattr, progress)?;
        }
        if has_new_owner {
            if !std::mem::replace(&mut progress.owner_set, true) {
                progress.ship = None;
            }
            self.tell_owner(ino, progress)?;
        }
        Ok(())
    }

    pub(crate) fn try_readlink(&mut self, ino: Ino) -> Try<Reply> {
        let content = self.need_content(ino, LockMode::Pr)?;
        self.metrics.operations_local.add(OperationKind::Readlink, 1);
        self.note_read(ino);
        match content.body {
            Body::Target { path } => Ok(Reply::Data(path.into_vec())),
            Body::Empty {} | Body::Inline { .. } | Body::Extents { .. } | Body::Paged { .. } => {
                Err(FsError::Invalid.into())
            }
        }
    }

    /// Waits until the directory may be read here.
    pub(crate) fn need_dir(&mut self, ino: Ino) -> Try<()> {
        if self.tokens.try_use(self.clock.now, ResourceId::dir(ino), LockMode::Pr) && self.has_dir(ino) {
            self.note_used(ino);
            return Ok(());
        }
        if self.is_dropping(ResourceId::dir(ino)) && self.has_dir(ino) {
            return Ok(());
        }
        Err(Step::Wait(self.want(Want::Directory { ino })))
    }

    /// A local process uses the directory: it is worth its token.
    pub(crate) fn note_used(&mut self, ino: Ino) {
        let now = self.clock.now;
        if let Some(dir) = self.cache.dirs.get_mut(&ino) {
            dir.used_at = now;
            dir.forgets_unused = 0;
            if std::mem::take(&mut dir.ahead) {
                self.cache.walk.pass(true);
                self.go_ahead(ino);
            }
        }
    }

    fn has_dir(&self, ino: Ino) -> bool {
        self.cache.dirs.contains_key(&ino)
    }

    /// Whether a directory may be read here now: under its token, or while its kernel caches are taken back.
    pub(crate) fn may_read_dir(&mut self, ino: Ino) -> bool {
        self.has_dir(ino)
            && (self.tokens.try_use(self.clock.now, ResourceId::dir(ino), LockMode::Pr)
                || self.is_dropping(ResourceId::dir(ino)))
    }

    /// Whether the kernel may keep names of a directory.
    pub(crate) fn keep_names(&self, dir: Ino) -> Keep {
        let is_quiet = self.cache.dirs.get(&dir).is_some_and(|d| d.busy_until <= self.clock.now);
        match is_quiet && !self.tokens.is_revoked(ResourceId::dir(dir)) {
            true => Keep::Yes,
            false => Keep::No,
        }
    }

    /// Whether the kernel may keep attributes of children covered by a directory.
    pub(crate) fn keep_covered(&self, dir: Ino) -> Keep {
        match self.tokens.usable(ResourceId::dir(dir)).permits(LockMode::Pr) && !self.has_turn(dir) {
            true => Keep::Yes,
            false => Keep::No,
        }
    }

    /// Waits until it is known where the record of `ino` is.
    pub(crate) fn need_place(&mut self, ino: Ino) -> Try<()> {
        match self.place(ino) {
            Place::Unknown => Err(Step::Wait(self.want(Want::Attr { ino }))),
            Place::Covered(..) | Place::Own => Ok(()),
        }
    }

    /// The number of inodes is the volume's, as the master last committed it, and at most a second old; without a
    /// master it is what it was.
    pub(crate) fn try_statfs(&mut self) -> Try<Reply> {
        let is_fresh = |counted_at| self.clock.now.since(counted_at) < COUNT_AGE;
        let is_old = self.link == Link::Up && !self.space.counted_at.is_some_and(is_fresh);
        if self.space.counted_at.is_none() || is_old {
            return Err(Step::Wait(self.fetch(FetchWhat::Totals {})));
        }
        let space = self.space();
        Ok(Reply::StatFs(StatFs {
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            available_bytes: space.free_bytes.saturating_sub(self.space_reserve()),
            inodes_used: self.space.inodes,
        }))
    }

    /// Asks for the next entries of a directory, once.
    pub(crate) fn load_more(&mut self, dir: Ino) -> WaitKey {
        if let Some(cached) = self.cache.dirs.get_mut(&dir)
            && !cached.loading
        {
            cached.loading = true;
            let after = cached.loaded_to;
            self.send(wire::ToMaster::More { dir, after });
        }
        WaitKey::Loaded(dir)
    }
}

/// Attributes told for one use. They answer what came before they were asked for: who comes later may know of a change
/// that they do not show.
#[derive(Debug, Default)]
pub(crate) struct Glimpsed {
    /// With the number of what asked for them.
    told: FxHashMap<Ino, (u64, Inode)>,
    /// Number of the request that is being tried.
    pub trying: u64,
}

impl Glimpsed {
    /// What may be told to the request at hand.
    fn of(&self, ino: Ino) -> Option<Inode> {
        let (asked, inode) = self.told.get(&ino)?;
        (self.trying < *asked).then(|| inode.clone())
    }

    pub fn tell(&mut self, ino: Ino, asked: u64, inode: Inode) {
        self.told.insert(ino, (asked, inode));
    }

    pub fn forget(&mut self, ino: Ino) {
        self.told.remove(&ino);
    }

    pub fn clear(&mut self) {
        self.told.clear();
    }
}

const COUNT_AGE: types::Micros = types::Micros::from_millis(1000);
/// Size that directories show.
const DIRECTORY_SIZE: u64 = 4096;
/// Absent names of a directory that the kernel is let keep: some 80 bytes each here, and a call each to take them back.
const NEGATIVES_MAX: usize = 16_384;

/// linux:include/uapi/linux/stat.h
const STICKY: u32 = 0o1000;
