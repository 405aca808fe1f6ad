//! Owners and permissions as the kernel has them.
//!
//! The kernel judges access by what it took last. It drops the attributes of an answer if it was answered others, wrote or
//! cut the file, or had them taken back since it asked (fuse: `kernel_cache.rs`), and then judges by older ones, the answer to its very
//! question notwithstanding. So an answer that tells of others than the kernel surely has is held back until the kernel
//! was seen to have them. One that comes after a quiet time is not: it is taken unless something follows it within its
//! way, and what this node takes back waits for that.

use std::collections::BTreeMap;

use types::{Ino, Micros};

use crate::cache::Place;
use crate::core::Core;
use crate::ends::{Asker, Outdated, Seen};
use crate::lately::Lately;
use crate::lulls::{CALM, LISTED, LullNumber, NO_LULL};
use crate::outputs::Invalidation;
use crate::request::{Attr, Reply, Request};
use crate::wait::Parked;

/// What access is judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Permissions {
    /// Of attributes.
    pub fn of(attr: &Attr) -> Self {
        Self { mode: attr.mode & 0o7777, uid: attr.uid, gid: attr.gid }
    }
}

/// What is known of the permissions by which the kernel judges an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// Those that it was told last.
    told: Permissions,
    /// Whether it has them.
    taken: Taken,
    /// Whether it has them from an answer to SETATTR, which it takes whatever else there is, and however late.
    is_set: bool,
    /// The lull that is waited for since; it counts for listings of the directory.
    lull: LullNumber,
    /// When it was last told or had anything taken back, or may have done something by itself.
    stirred: Lately,
}

/// Whether the kernel has what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// Perhaps not.
    Unsure,
    /// It does when the answer has come, unless something overtakes that.
    Soon,
    /// It has.
    Sure,
}

impl Default for Judged {
    fn default() -> Self {
        Self {
            told: Permissions::default(),
            taken: Taken::Unsure,
            is_set: false,
            lull: NO_LULL,
            stirred: Lately::UNKNOWN,
        }
    }
}

impl Judged {
    /// Something may be on its way: the inode is opened or closed, say. While it is open the kernel may drop answers at any time.
    pub(crate) fn stir(&mut self, now: Micros) {
        (self.stirred, self.lull) = (Lately::at(now), NO_LULL);
    }

    /// Nobody knows when it was last told or asked.
    fn lose_track(&mut self) {
        (self.stirred, self.lull) = (Lately::UNKNOWN, NO_LULL);
    }

    /// Its attributes are being taken back, and that lull is waited for: not where an answer may come later that is taken even so.
    pub(crate) fn await_lull(&mut self, number: LullNumber) {
        if !self.is_set {
            self.lull = number;
        }
    }

    /// A listing has told of it.
    fn note_listed(&mut self) {
        self.lull = LISTED;
    }

    /// A listing is about to tell of it that was asked for after all that has stirred.
    fn calm(&mut self) {
        self.lull = CALM;
    }

    /// Attributes are taken back. Returns whether an answer may be overtaken that the kernel is to judge by.
    fn recall(&mut self, now: Micros) -> bool {
        let is_awaited = self.taken == Taken::Soon && self.stirred.is_within(ON_ITS_WAY, now);
        self.is_set &= self.stirred.is_within(QUIET, now);
        if self.taken == Taken::Soon {
            self.taken = Taken::Sure;
        }
        self.stir(now);
        is_awaited
    }

    /// The kernel is told of these, and may drop them.
    fn tell(&mut self, permissions: Permissions, may_be_dropped: bool, now: Micros) {
        if permissions != self.told {
            self.taken = if self.is_quiet(may_be_dropped, now) { Taken::Soon } else { Taken::Unsure };
            self.told = permissions;
        }
        self.stir(now);
    }

    /// Attributes with those that the kernel was told last.
    pub(crate) fn told_last(&self, attr: Attr) -> Attr {
        let Permissions { mode, uid, gid } = self.told;
        Attr { mode: attr.mode & !0o7777 | mode, uid, gid, ..attr }
    }

    /// The kernel is told of these, and takes them whatever else there is.
    fn give(&mut self, permissions: Permissions, now: Micros) {
        let stirred = Lately::at(now);
        *self = Self { told: permissions, taken: Taken::Sure, is_set: false, lull: NO_LULL, stirred };
    }

    /// Whether answers, or what the kernel does by itself, can have crossed no question that comes now. That of a file that
    /// is open may be written to.
    fn is_quiet(&self, may_be_dropped: bool, now: Micros) -> bool {
        !may_be_dropped && (self.lull == CALM || !self.stirred.is_within(QUIET, now))
    }

    /// Whether the kernel may go on judging by others if it were told of these.
    fn may_miss(&self, permissions: Permissions, may_be_dropped: bool, now: Micros) -> bool {
        match permissions == self.told {
            true => self.taken == Taken::Unsure,
            false => !self.is_quiet(may_be_dropped, now),
        }
    }
}

impl Core {
    /// The kernel is told of attributes.
    pub(crate) fn note_permissions(&mut self, attr: &Attr) {
        let now = self.clock.now;
        let permissions = Permissions::of(attr);
        let may_be_dropped = self.may_be_dropped(attr.ino, permissions);
        if let Some(known) = self.known.get_mut(&attr.ino) {
            known.judged.tell(permissions, may_be_dropped, now);
        }
    }

    /// Whether the kernel may drop whatever it is told of an inode, of other permissions than it was told: it does while it is cut, from
    /// before it asks for that, and where it is written to.
    fn may_be_dropped(&self, ino: Ino, permissions: Permissions) -> bool {
        let Some(known) = self.known.get(&ino).filter(|known| known.judged.told != permissions) else {
            return false;
        };
        known.is_open() || self.is_being_set(ino)
    }

    /// Whether a SETATTR of an inode waits for its answer here.
    fn is_being_set(&self, ino: Ino) -> bool {
        let is_it = |parked: &Parked| matches!(parked.request, Request::SetAttr { ino: of, .. } if of == ino);
        self.parked.values().any(is_it)
    }

    /// The kernel is told of an inode, perhaps for the first time: then it has the permissions that it is told.
    pub(crate) fn note_entry_permissions(&mut self, attr: &Attr) {
        let now = self.clock.now;
        let known = self.known.note(attr.ino);
        match known.lookups == 0 && !known.is_open() && attr.ino != Ino::ROOT {
            true => known.judged.give(Permissions::of(attr), now),
            false => self.note_permissions(attr),
        }
    }

    /// `reply` answers a SETATTR, whose attributes the kernel takes from no matter what; but when the answer has come.
    pub fn attributes_set(&mut self, reply: &Reply) {
        let now = self.clock.now;
        if let Reply::Attr(attr, _) = reply
            && let Some(known) = self.known.get_mut(&attr.ino)
        {
            known.judged.give(Permissions::of(attr), now);
            (known.judged.taken, known.judged.is_set) = (Taken::Soon, true);
            known.end.note_cut_told();
        }
    }

    /// What is to be done before `reply` is given to the kernel, whether for its end of the file, after what
    /// [`later_end`](Self::later_end) asks for, or for what it judges by; until the kernel [is](Self::is_current).
    pub fn outdated(&mut self, reply: &Reply) -> Option<Outdated> {
        let attr = match reply {
            Reply::Attr(attr, _) => attr,
            Reply::Entry(entry) | Reply::Created(entry, _) => &entry.attr,
            _ => return None,
        };
        let end = self.tells_earlier_end(attr);
        let known = self.known.get(&attr.ino)?;
        // Whatever changes from here on is told by a later answer.
        let permissions = known.judged.taken == Taken::Unsure;
        let generation = known.end.generation();
        let of =
            Outdated { ino: attr.ino, generation, told: Some(*attr), end, permissions, asker: Asker::Other };
        if !end && !permissions {
            return None;
        }
        if of.end {
            // The kernel drops pages then: what gives the right to them back has to wait for that.
            self.note_served(of.ino);
        }
        Some(of)
    }

    /// Whether the kernel may go on judging by others if it were told of these attributes.
    pub(crate) fn may_miss_permissions(&self, attr: &Attr) -> bool {
        let now = self.clock.now;
        let permissions = Permissions::of(attr);
        self.known.get(&attr.ino).filter(|known| known.lookups > 0 || known.is_open()).is_some_and(|known| {
            known.judged.may_miss(permissions, self.may_be_dropped(attr.ino, permissions), now)
        })
    }

    /// Whether a listing of a directory whose last lull was that was asked for after all that has stirred of an inode: numbers of
    /// lulls are of one directory each, and forgotten when anything stirs.
    pub(crate) fn is_calm(&self, ino: Ino, lull: Option<LullNumber>) -> bool {
        self.known.get(&ino).is_some_and(|known| lull == Some(known.judged.lull) && !known.is_open())
            && !self.is_being_set(ino)
    }

    /// A listing of a directory whose last lull was that is about to tell of an inode.
    pub(crate) fn note_calm(&mut self, ino: Ino, lull: Option<LullNumber>) {
        if self.is_calm(ino, lull)
            && let Some(known) = self.known.get_mut(&ino)
        {
            known.judged.calm();
        }
    }

    /// A listing has told of an inode.
    pub(crate) fn note_told_by_listing(&mut self, ino: Ino) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.judged.note_listed();
        }
    }

    /// Those by which the kernel is to judge: those that are here, or that it was told last.
    pub(crate) fn permissions_now(&mut self, ino: Ino) -> Option<Permissions> {
        let here = self.attr_here(ino).map(|(attr, _)| Permissions::of(&attr));
        here.or_else(|| self.known.get(&ino).map(|known| known.judged.told))
    }

    /// Whether the kernel has the permissions that it was told last, whatever there is by now.
    pub fn has_taken(&self, ino: Ino, seen: Seen) -> Option<bool> {
        Some(self.known.get(&ino)?.judged.told == seen.permissions)
    }

    /// The kernel was seen to have these.
    pub(crate) fn permissions_seen(&mut self, ino: Ino, permissions: Permissions) {
        if let Some(known) = self.known.get_mut(&ino)
            && known.judged.told == permissions
        {
            known.judged.taken = Taken::Sure;
        }
    }

    /// Nobody can look at what the kernel has: it is believed to have what it was told.
    pub fn unseen(&mut self, of: Outdated) {
        if let Some(known) = self.known.get_mut(&of.ino) {
            known.judged.taken = Taken::Sure;
        }
    }

    fn taken(&self, ino: Ino) -> Option<Invalidation> {
        Some(Invalidation::Taken { ino, generation: self.known.get(&ino)?.end.generation() })
    }

    /// Something is about to be taken back: the answers that it may overtake are waited for first, where the kernel is to
    /// judge by them.
    pub(crate) fn wait_for_answers(
        &mut self,
        list: Vec<Invalidation>,
        is_unknown: bool,
    ) -> Vec<Invalidation> {
        let now = self.clock.now;
        let mut waits = Vec::new();
        // Told by listings: where they are, and some of them.
        let mut listed: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
        for invalidation in &list {
            let Some(ino) = &invalidation.recalls() else { continue };
            let Some(known) = self.known.get_mut(ino) else { continue };
            let (place, is_listed) = (known.place(), known.judged.lull == LISTED);
            if known.judged.recall(now) {
                match place {
                    Place::Covered(parent, _) if is_listed => listed.entry(parent).or_default().push(*ino),
                    _ => waits.push(Invalidation::Taken { ino: *ino, generation: known.end.generation() }),
                }
            }
            if is_unknown {
                known.judged.lose_track();
            }
        }
        // The kernel has taken in what a listing told when somebody else has had the directory's lock.
        for (parent, inodes) in listed {
            match self.told_name(parent, &inodes) {
                Some(name) => waits.push(Invalidation::Settled { parent, name }),
                None => waits.extend(inodes.into_iter().filter_map(|ino| self.taken(ino))),
            }
        }
        if waits.is_empty() {
            return list;
        }
        waits.extend(list);
        waits
    }
}

/// A question of the kernel takes less, from its thought to its arrival.
pub(crate) const QUIET: Micros = Micros(1_000_000);
/// An answer takes less.
pub const ON_ITS_WAY: Micros = Micros(100_000);
