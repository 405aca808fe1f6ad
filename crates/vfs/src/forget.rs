//! Forgets: another node changed a directory that this one reads.
//!
//! The change takes effect in this node's cache at once. What the kernel may still show of the old state is
//! taken back, and only then is the forget acknowledged, which lets the change complete.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Change, Content};
use types::{Ino, LockMode, Micros, Name, ResourceId};
use wire::ToMaster;

use crate::cache::{CachedEntry, KernelHas, Place};
use crate::core::Core;
use crate::jobs::Purpose;
use crate::known::{Known, Naming};
use crate::outputs::Invalidation;
use crate::wait::Parked;

/// What changes of others make out of date in the kernel.
#[derive(Debug, Default)]
struct Stale {
    /// Names and listings.
    names: Vec<Invalidation>,
    inodes: BTreeMap<Ino, Touched>,
    directories: BTreeSet<Ino>,
    /// Old places of directories.
    seats: Vec<Invalidation>,
    /// Places of directories that are not any more.
    seats_of_none: Vec<Invalidation>,
    /// Inodes that have another name.
    moved: Vec<Ino>,
    /// Names that lead nowhere any more.
    lost: Vec<(Ino, Name)>,
    /// Inodes that are not any more.
    deleted: BTreeSet<Ino>,
}

/// What another node changed of an inode.
#[derive(Debug, Default)]
struct Touched {
    /// Its content, and not its attributes alone. Pages of a content that stays are not taken back: a read that fills one may be waiting for somebody
    /// who waits for this.
    has_content: bool,
    /// Names by which an answer may be on its way, as they were here before the change.
    names: Vec<Invalidation>,
}

impl Core {
    pub(crate) fn on_forget(&mut self, seq: u64, changes: Vec<Change>, removed: Vec<Ino>) {
        self.metrics.forgets_received.add(1);
        self.unsynced_at_master = true;
        let mut stale = Stale { deleted: deleted_inodes(&changes), ..Stale::default() };
        for change in &changes {
            self.note_forgotten(change, &mut stale);
            self.cache.apply(change);
            self.drop_for(change);
        }
        self.note_moves();
        let mut open = Vec::new();
        for ino in removed {
            if let Some(known) = self.known.get_mut(&ino)
                && known.is_open()
            {
                known.open_told = true;
                known.set_place(Place::Unknown);
                open.push(ino);
            }
        }
        // Before the change counts as told.
        self.tell_out_of_sight();
        let Stale { names: mut list, inodes, directories, seats, moved, lost, seats_of_none, .. } = stale;
        if !seats.is_empty() {
            self.invalidate(Purpose::Alone, seats, Vec::new());
        }
        self.drop_later(seats_of_none);
        let left = self.note_foreign_changes(directories, &changes);
        let (mut of_inodes, mut pages) = (Vec::new(), Vec::new());
        for (ino, touched) in inodes {
            match self.known.get(&ino) {
                Some(known) if known.pages_out && touched.has_content => {
                    of_inodes.push(Invalidation::Pages { ino });
                    pages.push(ino);
                }
                Some(known) if known.attr_out() => {
                    // Once it has gone somebody may have the directory again who waits for this.
                    let is_left =
                        |name: &Invalidation| !list.iter().any(|of| !of.is_wait() && of.is_of(name));
                    of_inodes.extend(touched.names.into_iter().filter(is_left));
                    of_inodes.push(Invalidation::Attr { ino });
                }
                Some(_) | None => {}
            }
        }
        #[cfg(feature = "planted")]
        if types::planted::strikes(types::planted::Planted::ForgetKeepsAttributes) {
            list.retain(|i| !matches!(i, Invalidation::Attr { .. } | Invalidation::Pages { .. }));
            of_inodes.clear();
            pages.clear();
        }
        list.retain(|wait| !wait.is_wait() || !of_inodes.iter().any(|name| name.is_of(wait)));
        list.extend(of_inodes);
        #[cfg(feature = "planted")]
        if !list.is_empty() && types::planted::strikes(types::planted::Planted::ForgetAcknowledgedEarly) {
            self.acknowledge(seq, open);
            self.invalidate(Purpose::Alone, list, pages);
            return;
        }
        if list.is_empty() {
            self.acknowledge(seq, open);
            self.leave_directories(&left);
        } else {
            let job = self.invalidate(Purpose::Forget { seq, open, left }, list, pages);
            self.cache.going.note_job(job);
            lost.into_iter().for_each(|name| self.cache.going.note_lost(name, job));
            self.note_elsewhere(&moved, job);
        }
    }

    /// Directories that are not any more are dropped in a while: whoever works there is to find that. Not at once: what is made there would be, where it has the lock by then.
    fn drop_later(&mut self, seats: Vec<Invalidation>) {
        if !seats.is_empty() {
            let due = self.clock.now + MADE_ANEW_WITHIN;
            let at = self.names_again.partition_point(|(other, _)| *other <= due);
            self.names_again.insert(at, (due, seats));
        }
    }

    /// Something is made under a name: what was there the kernel has dropped.
    pub(crate) fn keep_made_name(&mut self, parent: Ino, name: &[u8]) {
        for (_, list) in &mut self.names_again {
            list.retain(|of| match of {
                Invalidation::Drop { parent: dir, name: other } => *dir != parent || other.as_bytes() != name,
                _ => true,
            });
        }
    }

    /// What is held of an inode goes with a change of another node's that has been applied.
    fn drop_for(&mut self, change: &Change) {
        match change {
            Change::PutAttr { ino, .. } => _ = self.cache.sole_orphans.remove(ino),
            Change::PutEntry { entry, .. } if entry.covered().is_some() => self.drop_own_tokens(entry.ino),
            Change::DeleteInode { ino, .. } if !self.known.get(ino).is_some_and(|k| k.is_open()) => {
                self.drop_deleted(*ino);
            }
            _ => {}
        }
    }

    /// The names to take back before attributes are: what the kernel is only just told of has no inode there yet that could lose them. The call
    /// waits for who looks the name up or lists it, by the lock of the directory.
    pub(crate) fn names_on_their_way(&self, ino: Ino) -> Vec<Invalidation> {
        let known = self.known.get(&ino).filter(|known| known.attr_out());
        if !known.is_some_and(|known| known.may_be_named(self.clock.now)) {
            return Vec::new();
        }
        let places = match self.place(ino) {
            Place::Covered(parent, cookie) => [Some((parent, cookie)), None],
            Place::Own => self.cache.seen_at.get(&ino).copied().unwrap_or_default().0,
            Place::Unknown => [None; 2],
        };
        let name_at = |(parent, cookie): (Ino, meta::Cookie)| {
            let entry = self.cache.dirs.get(&parent)?.entries.get(&cookie)?;
            let name = (entry.dirent.ino == ino).then(|| entry.dirent.name.clone())?;
            Some(Invalidation::Name { parent, name })
        };
        places.into_iter().flatten().filter_map(name_at).collect()
    }

    /// Notes what is about to change of an inode, or of its content too.
    fn note_touched(&self, stale: &mut Stale, ino: Ino, has_content: bool) {
        let touched = stale
            .inodes
            .entry(ino)
            .or_insert_with(|| Touched { has_content: false, names: self.names_on_their_way(ino) });
        touched.has_content |= has_content;
    }

    /// The directory covers an inode again: what was held of it alone is worth nothing.
    pub(crate) fn drop_own_tokens(&mut self, ino: Ino) {
        for resource in [ResourceId::attr(ino), ResourceId::file(ino)] {
            if self.tokens.held(resource) != LockMode::Nl && !self.tokens.is_releasing(resource) {
                self.tokens.forget(resource);
                self.give_back(resource, LockMode::Nl);
            }
        }
    }

    /// Whether a change of a name is made here, and its kernel has yet to hear of that, as it is not durable: until then it has what was there before.
    fn is_named_by_waiting(&self, parent: Ino, name: &Name) -> bool {
        let is_it = |parked: &Parked| {
            parked.progress.done.is_some()
                && parked.request.names().iter().any(|(dir, of)| *dir == parent && of == name)
        };
        (self.config.dirsync || self.config.sync) && self.parked.values().any(is_it)
    }

    /// What one change makes out of date.
    fn note_forgotten(&mut self, change: &Change, stale: &mut Stale) {
        match change {
            Change::PutEntry { parent, cookie, entry } => self.note_put(*parent, *cookie, entry, stale),
            Change::DeleteEntry { parent, cookie, name } => {
                self.note_deleted(*parent, *cookie, name, stale);
            }
            Change::PutDirectory { ino, .. } => {
                stale.names.extend(self.directory_forgotten(*ino));
            }
            Change::PutAttr { ino, .. } => self.note_touched(stale, *ino, false),
            Change::PutContent { ino, content } => {
                self.drop_stale_live(*ino, true);
                let old = self.cache.owns.get(ino).and_then(|own| own.content.as_ref());
                if old.is_some_and(|old| is_same_but_for_place(old, content)) {
                    return;
                }
                // A change of times alone leaves the pages where they are.
                let has_same_bytes = old.is_some_and(|old| has_same_bytes(old, content));
                self.note_touched(stale, *ino, !has_same_bytes && self.may_have_content(*ino));
                self.keep_old_content(*ino, Some(content));
            }
            Change::DeleteInode { ino, .. } => self.note_touched(stale, *ino, self.may_have_content(*ino)),
            Change::PutExtentPage { ino, page, .. } => {
                self.drop_stale_live(*ino, true);
                self.pages.drop_page(*ino, *page);
                self.refuse_pages(*ino);
            }
            Change::DeleteExtentPages { ino, .. } => self.drop_pages(*ino),
            Change::PutPlacement { .. }
            | Change::DeleteContent { .. }
            | Change::PutXattrs { .. }
            | Change::PutOrphan { .. }
            | Change::DeleteOrphan { .. }
            | Change::AddUsage { .. }
            | Change::AddLive { .. }
            | Change::PutRedo { .. }
            | Change::DeleteRedo { .. } => {}
            Change::Owner { ino } => {
                if self.known.get(ino).is_some() {
                    self.forget_charge(*ino);
                    self.settle_pending(*ino);
                    stale.names.push(Invalidation::Names {});
                }
            }
        }
    }

    /// What a new name, or another inode under one, makes out of date.
    fn note_put(&mut self, parent: Ino, cookie: meta::Cookie, entry: &meta::Dirent, stale: &mut Stale) {
        self.drop_stale_live(entry.ino, entry.covered().is_some());
        if self.is_moved_only(parent, cookie, entry) {
            return;
        }
        if self.is_moved(parent, cookie, entry) {
            stale.moved.push(entry.ino);
        }
        stale.directories.insert(parent);
        let changes_content = self.changes_content(parent, cookie, entry);
        if changes_content {
            self.drop_pages(entry.ino);
        }
        self.note_touched(stale, entry.ino, changes_content && self.may_have_content(entry.ino));
        self.keep_old_content(entry.ino, entry.covered().map(|inode| &inode.content));
        let Some(dir) = self.cache.dirs.get_mut(&parent) else { return };
        let was_negative = dir.negatives.remove(&entry.name);
        let replaced = dir.entries.get(&cookie).filter(|old| old.dirent.ino != entry.ino);
        let has_new_owner = dir.entries.get(&cookie).is_some_and(|old| {
            let owners = owner_of(&old.dirent).zip(owner_of(entry));
            old.name_out && old.dirent.ino == entry.ino && owners.is_some_and(|(was, is)| was != is)
        });
        let was_other = replaced.is_some_and(|old| old.name_out) || has_new_owner;
        let old_ino = dir.entries.get(&cookie).map(|old| old.dirent.ino);
        if let Some((ino, was_covered)) = replaced.map(CachedEntry::ino_and_covered) {
            self.note_touched(stale, ino, was_covered && self.may_have_content(ino));
            self.keep_old_content(ino, None);
        }
        stale.lost.retain(|(of, name)| *of != parent || *name != entry.name);
        self.cache.going.note_found(parent, &entry.name);
        if was_negative || was_other || self.is_named_by_waiting(parent, &entry.name) {
            let is_deleted = old_ino.is_some_and(|ino| stale.deleted.contains(&ino));
            stale.names.extend(self.name_to_take_back(parent, &entry.name, old_ino, is_deleted));
        } else {
            stale.names.extend(self.cache.going.ask(parent, &entry.name, self.clock.now));
        }
    }

    /// What the end of a name makes out of date.
    fn note_deleted(&mut self, parent: Ino, cookie: meta::Cookie, name: &Name, stale: &mut Stale) {
        stale.directories.insert(parent);
        let old = self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie));
        let Some(old) = old else { return };
        let (ino, was_covered) = old.ino_and_covered();
        let (is_out, is_deleted) = (old.name_out, stale.deleted.contains(&ino));
        let is_seat = self.known.get(&ino).is_some_and(|known| known.seat.is_at(parent, name));
        match is_out {
            true => stale.names.extend(self.name_to_take_back(parent, name, Some(ino), is_deleted)),
            false => stale.names.extend(self.cache.going.ask(parent, name, self.clock.now)),
        }
        if is_out {
            stale.lost.push((parent, name.clone()));
        }
        if is_seat {
            let seats = if is_deleted { &mut stale.seats_of_none } else { &mut stale.seats };
            seats.push(Invalidation::Drop { parent, name: name.clone() });
        }
        self.note_touched(stale, ino, was_covered && self.may_have_content(ino));
        self.keep_old_content(ino, None);
    }

    /// What the kernel has of a directory itself goes: with its attributes alone, no listing has to. First its name, if an answer that tells of
    /// it may be on its way.
    fn directory_forgotten(&mut self, ino: Ino) -> Vec<Invalidation> {
        let seat = self.seat_on_its_way(ino);
        let dir = self.cache.dirs.get_mut(&ino);
        let kernel_has = dir.map(|dir| std::mem::take(&mut dir.kernel_has)).unwrap_or_default();
        let has_attr = self.known.get_mut(&ino).is_some_and(Known::take_attr_out);
        let own = match kernel_has {
            KernelHas::Listing => Some(Invalidation::Directory { ino }),
            KernelHas::Attributes => Some(Invalidation::Attr { ino }),
            KernelHas::Nothing => has_attr.then_some(Invalidation::Attr { ino }),
        };
        own.into_iter().flat_map(|own| seat.clone().into_iter().chain([own])).collect()
    }

    /// The name of a directory to take back before its attributes are, as [`name_on_its_way`](Self::name_on_its_way) of a file.
    pub(crate) fn seat_on_its_way(&self, ino: Ino) -> Option<Invalidation> {
        let known = self.known.get(&ino).filter(|known| known.end.was_told_lately(self.clock.now))?;
        let (parent, name) = known.seat.place_on_its_way()?;
        Some(Invalidation::Name { parent: *parent, name: name.clone() })
    }

    /// How a name that led to `ino`, or to nothing, and leads there no more is taken back. `is_deleted`: the inode is not any more.
    fn name_to_take_back(
        &self,
        parent: Ino,
        name: &types::Name,
        ino: Option<Ino>,
        is_deleted: bool,
    ) -> Vec<Invalidation> {
        let name = name.clone();
        let known =
            ino.and_then(|ino| self.known.get(&ino)).filter(|known| self.may_be_looked_up_again(known));
        match known.map(|known| known.seat.place().is_some() && !is_deleted) {
            None => vec![Invalidation::Name { parent, name }],
            Some(false) => vec![Invalidation::Unhash { parent, name }],
            // Whoever works in a directory would not find out any more where it is.
            Some(true) => vec![Invalidation::Name { parent, name }, Invalidation::Names {}],
        }
    }

    /// Whether the kernel may have a name for longer than it is taken back for.
    pub(crate) fn outlives(&self, entry: &CachedEntry) -> bool {
        let known = self.known.get(&entry.dirent.ino).filter(|_| entry.name_out);
        known.is_some_and(|known| self.may_be_looked_up_again(known))
    }

    /// Whether an answer to a lookup of what the kernel has already may be on its way: that has the name last, whatever was taken back before.
    fn may_be_looked_up_again(&self, known: &Known) -> bool {
        known.naming == Naming::Again && known.end.was_told_lately(self.clock.now)
    }

    /// Content changed elsewhere, so this node does not hold it in EX: what is newer here could not be stored
    /// when it had to be, and must not come back over what others made.
    ///
    /// Of an inode without content here, which has been split out, what its own token covers changes without a word to
    /// those who have the directory.
    fn drop_stale_live(&mut self, ino: Ino, has_content: bool) {
        if !has_content {
            self.drop_pages(ino);
        }
        if has_content && self.live.remove(&ino).is_some() {
            self.dirty_files.remove(&ino);
            self.flush_failed.remove(&ino);
            log::error!("content of ino {ino} that could not be stored is lost: it changed elsewhere");
        }
    }

    /// Whether the kernel may have pages by a right that is here. Without it there are none, whatever it was told: they went before the right, and a read that waits for the
    /// next one has its page locked, and would be waited for.
    fn may_have_content(&self, ino: Ino) -> bool {
        self.content_resource(ino).is_none_or(|resource| self.tokens.held(resource) != LockMode::Nl)
    }

    /// Whether an entry changes what its inode holds, or under which right it may be read. Of an inode with tokens of its own it
    /// does neither.
    fn changes_content(&self, parent: Ino, cookie: meta::Cookie, new: &meta::Dirent) -> bool {
        let old = self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie)).map(|e| &e.dirent);
        let old = old.filter(|old| old.ino == new.ino).and_then(|old| old.covered());
        match (old, new.covered()) {
            (Some(old), Some(new)) => old.content != new.content,
            (None, Some(_)) | (Some(_), None) => true,
            // Of one that is nowhere here the kernel may have pages of when it was.
            (None, None) => !matches!(self.place(new.ino), Place::Own),
        }
    }

    /// Whether an entry only says of a covered file that its bytes are elsewhere now.
    fn is_moved_only(&self, parent: Ino, cookie: meta::Cookie, new: &meta::Dirent) -> bool {
        let old = self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie)).map(|e| &e.dirent);
        let Some(old) = old.filter(|old| old.ino == new.ino && old.name == new.name) else { return false };
        match (old.covered(), new.covered()) {
            (Some(old), Some(new)) => {
                old.attr == new.attr && is_same_but_for_place(&old.content, &new.content)
            }
            _ => false,
        }
    }

    /// Reads of pages that are about to be taken back go on under the old content meanwhile.
    fn keep_old_content(&mut self, ino: Ino, new: Option<&Content>) {
        if !self.known.get(&ino).is_some_and(|k| k.pages_out) {
            return;
        }
        let Place::Covered(parent, cookie) = self.place(ino) else { return };
        let entry = self.cache.dirs.get(&parent).and_then(|d| d.entries.get(&cookie));
        let Some(inode) = entry.filter(|e| e.dirent.ino == ino).and_then(|e| e.dirent.covered()) else {
            return;
        };
        if new != Some(&inode.content) {
            self.old_content.insert(ino, inode.content.clone());
        }
    }

    /// Acknowledges what waited for the kernel to forget what the last master told.
    pub(crate) fn acknowledge_held(&mut self) {
        if self.is_forgetting_old() {
            return;
        }
        for (seq, open) in std::mem::take(&mut self.held_forgets) {
            self.acknowledge(seq, open);
        }
    }

    fn is_forgetting_old(&self) -> bool {
        self.jobs.iter().any(|(_, job)| matches!(job.purpose, Purpose::OldForget))
    }

    pub(crate) fn acknowledge(&mut self, seq: u64, mut open: Vec<Ino>) {
        if self.is_forgetting_old() {
            self.held_forgets.push((seq, open));
            return;
        }
        // What was closed meanwhile is known to be closed.
        open.retain(|ino| self.known.get(ino).is_some_and(|known| known.is_open()));
        self.metrics.forgets_acknowledged.add(1);
        // One closed while the kernel was asked has said so: to call it open after that would keep it for ever.
        open.retain(|ino| self.known.get(ino).is_some_and(|known| known.open_told && known.is_open()));
        self.send(ToMaster::Forgotten { seq, open });
    }
}

fn deleted_inodes(changes: &[Change]) -> BTreeSet<Ino> {
    let deleted = |change: &Change| match change {
        Change::DeleteInode { ino, .. } => Some(*ino),
        _ => None,
    };
    changes.iter().filter_map(deleted).collect()
}

/// By whom a kernel judges what only an owner may do, without asking, until it looks the name up again.
fn owner_of(entry: &meta::Dirent) -> Option<(u32, u32)> {
    entry.covered().map(|inode| (inode.attr.uid, inode.attr.gid))
}

/// Whether two contents are the same but for their times, as far as they tell: where many extents are, other records say.
fn has_same_bytes(old: &Content, new: &Content) -> bool {
    old.size == new.size && old.body == new.body && !matches!(new.body, meta::Body::Paged { .. })
}

/// Whether two contents differ in nothing but where the bytes are: the same times, and the same ranges stored.
fn is_same_but_for_place(old: &Content, new: &Content) -> bool {
    let times = |c: &Content| (c.size, c.mtime, c.ctime, c.atime);
    match (&old.body, &new.body) {
        (meta::Body::Extents { map: a }, meta::Body::Extents { map: b }) => {
            times(old) == times(new)
                && a.iter().map(chunk::Extent::range).eq(b.iter().map(chunk::Extent::range))
        }
        _ => false,
    }
}

/// Who waits for a directory to go, to make it himself, has done so by then.
const MADE_ANEW_WITHIN: Micros = Micros(5_000);
