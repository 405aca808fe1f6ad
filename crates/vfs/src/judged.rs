//! Owners and permissions as the kernel has them.
//!
//! The kernel judges access by what it took last. It drops the attributes of an answer if it was answered others, wrote or
//! cut the file, or had them taken back since it asked (fuse: `kernel_cache.rs`), and then judges by older ones, the answer to its very
//! question notwithstanding. So an answer that tells of others than the kernel surely has is held back until the kernel
//! was seen to have them. Two are not:
//!
//! - One that comes after a quiet time: it is taken unless something follows it within its way, and what this node takes back
//!   waits for that.
//! - The first after attributes were taken back of a closed file while the kernel had what there was. Only a question from before that can
//!   lose its answer, and who asked it judges by what there was while he asked. What may have got lost so shows where
//!   attributes are taken back once more: from then on answers are held back.

use meta::{FileKind, InodeAttr};
use rustc_hash::FxHashMap;
use types::{Ino, Micros};

use crate::cache::Place;
use crate::core::Core;
use crate::ends::{Outdated, Seen};
use crate::outputs::Invalidation;
use crate::request::{Attr, Reply, Request};

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

    /// Of a record.
    fn of_record(attr: &InodeAttr) -> Self {
        Self { mode: attr.mode, uid: attr.uid, gid: attr.gid }
    }
}

/// What permissions inodes had until their attributes were taken back. `None` of those that the kernel counts the links of: it drops answers
/// then, too.
pub(crate) enum Before {
    /// Those that the records have.
    Recorded,
    /// Those before the changes that the records have already; of others the records tell.
    Changed(FxHashMap<Ino, Option<Permissions>>),
    /// Nobody knows: the membership may have ended before, and others have changed what they liked.
    Unknown,
}

/// What is known of the permissions by which the kernel judges an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// Those that it was told last.
    told: Permissions,
    /// Whether it has them.
    taken: Taken,
    /// When it was last told or had anything taken back, or may have done something by itself.
    stirred: Micros,
}

/// Whether the kernel has what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// Perhaps not.
    Unsure,
    /// It does when the answer has come, unless something overtakes that.
    Soon,
    /// The same, but it may have asked before its attributes were taken back. Until then it had what there was.
    Crossed,
    /// It has.
    Sure,
    /// It has, and that was all there was until its attributes were taken back.
    Recalled,
    /// It has, and there may be others.
    Behind,
}

impl Default for Judged {
    fn default() -> Self {
        Self { told: Permissions::default(), taken: Taken::Unsure, stirred: Micros::NEVER }
    }
}

impl Judged {
    /// The inode is opened or closed. While it is open the kernel may drop answers at any time.
    pub(crate) fn stir(&mut self, now: Micros) {
        self.stirred = now;
        self.taken = match self.taken {
            Taken::Crossed => Taken::Unsure,
            Taken::Recalled => Taken::Behind,
            other => other,
        };
    }

    /// It may drop answers for reasons of its own from here on, or has the like behind it, of which nobody knows when it was.
    fn lose_track(&mut self) {
        self.recall(Micros::NEVER, None, true);
    }

    /// Whether the next answer is given at once though it tells of others.
    fn is_recalled(&self) -> bool {
        self.taken == Taken::Recalled
    }

    /// Attributes are taken back, of an inode that has had these permissions until now, if that is known. Returns whether an answer
    /// may be overtaken that the kernel is to judge by.
    fn recall(&mut self, now: Micros, had: Option<Permissions>, is_open: bool) -> bool {
        let is_on_its_way = now.since(self.stirred) < ON_ITS_WAY;
        let is_awaited = matches!(self.taken, Taken::Soon | Taken::Crossed) && is_on_its_way;
        self.taken = match self.taken {
            Taken::Unsure | Taken::Crossed => Taken::Unsure,
            Taken::Soon | Taken::Sure if had == Some(self.told) && !is_open => Taken::Recalled,
            Taken::Soon | Taken::Sure | Taken::Recalled | Taken::Behind => Taken::Behind,
        };
        self.stirred = now;
        is_awaited
    }

    /// The kernel is told of these, and may drop them.
    fn tell(&mut self, permissions: Permissions, is_open: bool, now: Micros) {
        self.taken = match self.taken {
            Taken::Recalled | Taken::Behind if permissions == self.told => Taken::Sure,
            same if permissions == self.told => same,
            _ if self.is_quiet(is_open, now) => Taken::Soon,
            Taken::Recalled if !is_open => Taken::Crossed,
            _ => Taken::Unsure,
        };
        self.told = permissions;
        self.stirred = now;
    }

    /// Attributes with those that the kernel was told last.
    pub(crate) fn told_last(&self, attr: Attr) -> Attr {
        let Permissions { mode, uid, gid } = self.told;
        Attr { mode: attr.mode & !0o7777 | mode, uid, gid, ..attr }
    }

    /// The kernel is told of these, and takes them whatever else there is.
    fn give(&mut self, permissions: Permissions, now: Micros) {
        *self = Self { told: permissions, taken: Taken::Sure, stirred: now };
    }

    /// Whether answers, or what the kernel does by itself, can have crossed no question that comes now. That of a file that
    /// is open may be written to.
    fn is_quiet(&self, is_open: bool, now: Micros) -> bool {
        !is_open && self.stirred != Micros::NEVER && now.since(self.stirred) >= QUIET
    }

    /// Whether the kernel may go on judging by others if it were told of these.
    fn may_miss(&self, permissions: Permissions, is_open: bool, now: Micros) -> bool {
        match permissions == self.told {
            true => self.taken == Taken::Unsure,
            false => !self.is_quiet(is_open, now) && (is_open || self.taken != Taken::Recalled),
        }
    }
}

impl Core {
    /// The kernel is told of attributes.
    pub(crate) fn note_permissions(&mut self, attr: &Attr) {
        let now = self.clock.now;
        let is_cut = self.is_cut(attr.ino);
        if let Some(known) = self.known.get_mut(&attr.ino) {
            known.judged.tell(Permissions::of(attr), known.is_open() || is_cut, now);
        }
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

    /// Whether a truncation of an inode is under way of which the next answer would be given at once: until that is answered the
    /// kernel takes attributes from no other answer, as from that of a file that is written to.
    fn is_cut(&self, ino: Ino) -> bool {
        let cuts = |request: &Request| matches!(request, Request::SetAttr { ino: of, size: Some(_), .. } if *of == ino);
        self.known.get(&ino).is_some_and(|known| known.judged.is_recalled())
            && self.parked.values().any(|parked| cuts(&parked.request))
    }

    /// `reply` answers a SETATTR, whose attributes the kernel takes from no matter what; but when the answer has come.
    pub fn attributes_set(&mut self, reply: &Reply) {
        let now = self.clock.now;
        if let Reply::Attr(attr, _) = reply
            && let Some(known) = self.known.get_mut(&attr.ino)
        {
            known.judged.give(Permissions::of(attr), now);
            known.judged.taken = Taken::Soon;
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
        let of = Outdated { ino: attr.ino, generation, told: Some(*attr), end, permissions };
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
        self.known.get(&attr.ino).filter(|known| known.lookups > 0 || known.is_open()).is_some_and(|known| {
            let is_open = known.is_open() || self.is_cut(attr.ino);
            known.judged.may_miss(Permissions::of(attr), is_open, now)
        })
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

    /// Those that an inode has as far as this node has its record, and the kernel counts no links of it.
    pub(crate) fn permissions_on_record(&self, ino: Ino) -> Option<Permissions> {
        let attr = match self.place(ino) {
            Place::Covered(parent, cookie) => {
                let entry = self.cache.dirs.get(&parent)?.entries.get(&cookie)?;
                &entry.dirent.covered().filter(|_| entry.dirent.ino == ino)?.attr
            }
            Place::Own => match (self.cache.dirs.get(&ino), self.cache.owns.get(&ino)) {
                (Some(dir), _) => &dir.inode.attr,
                (None, own) => own?.attr.as_ref()?,
            },
            Place::Unknown => return None,
        };
        let is_counted = attr.kind != FileKind::Directory && attr.nlink != 1;
        (!is_counted).then(|| Permissions::of_record(attr))
    }

    /// Something is about to be taken back: the answers that it may overtake are waited for first, where the kernel is to
    /// judge by them.
    pub(crate) fn wait_for_answers(&mut self, list: Vec<Invalidation>, before: &Before) -> Vec<Invalidation> {
        let now = self.clock.now;
        let mut waits = Vec::new();
        for invalidation in &list {
            let Some(ino) = &invalidation.recalls() else { continue };
            let had = match before {
                Before::Changed(had) => {
                    had.get(ino).copied().unwrap_or_else(|| self.permissions_on_record(*ino))
                }
                Before::Recorded => self.permissions_on_record(*ino),
                Before::Unknown => None,
            };
            let Some(known) = self.known.get_mut(ino) else { continue };
            // An earlier job may still come to it, after the next question.
            let had = had.filter(|_| known.recalls == 0);
            known.recalls = known.recalls.saturating_add(1);
            let is_open = known.is_open();
            if known.judged.recall(now, had, is_open) {
                waits.push(Invalidation::Taken { ino: *ino, generation: known.end.generation() });
            }
            if let Before::Unknown = before {
                known.judged.lose_track();
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
const QUIET: Micros = Micros(1_000_000);
/// An answer takes less.
pub(crate) const ON_ITS_WAY: Micros = Micros(100_000);

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Permissions; 3] = [
        Permissions { mode: 0o700, uid: 0, gid: 0 },
        Permissions { mode: 0o750, uid: 0, gid: 0 },
        Permissions { mode: 0o755, uid: 0, gid: 0 },
    ];

    /// A kernel that has `MODES[0]`, told long ago, and had its attributes taken back `first` before `MODES[1]` was set.
    fn recalled(had: Option<Permissions>, is_open: bool) -> Judged {
        let mut judged = Judged::default();
        judged.give(MODES[0], Micros(0));
        judged.recall(Micros(1_000), had, is_open);
        judged
    }

    #[test]
    fn an_answer_may_be_lost_once_by_who_asked_before() {
        let mut judged = recalled(Some(MODES[0]), false);
        assert!(!judged.may_miss(MODES[1], false, Micros(1_100)));
        judged.tell(MODES[1], false, Micros(1_100));
        assert_eq!(judged.taken, Taken::Crossed);
        assert!(judged.recall(Micros(1_200), Some(MODES[1]), false), "the answer may be on its way");
        judged.tell(MODES[2], false, Micros(1_300));
        assert_eq!(judged.taken, Taken::Unsure);
    }

    /// Whoever asked before may have begun when the kernel already had not what there was.
    #[test]
    fn what_the_kernel_did_not_have_it_is_seen_to_take() {
        let twice = |mut judged: Judged| {
            judged.recall(Micros(1_100), Some(MODES[1]), false);
            judged
        };
        let opened = |mut judged: Judged| {
            judged.stir(Micros(1_100));
            judged
        };
        for (what, mut judged) in [
            ("changed and not told", recalled(Some(MODES[1]), false)),
            ("nobody knows", recalled(None, false)),
            ("open, and written to perhaps", recalled(Some(MODES[0]), true)),
            ("taken back twice, and changed between", twice(recalled(Some(MODES[0]), false))),
            ("opened or linked since", opened(recalled(Some(MODES[0]), false))),
        ] {
            assert!(judged.may_miss(MODES[1], false, Micros(1_200)), "{what}");
            judged.tell(MODES[1], false, Micros(1_200));
            assert_eq!(judged.taken, Taken::Unsure, "{what}");
        }
        let mut judged = recalled(Some(MODES[0]), false);
        judged.tell(MODES[1], false, Micros(1_100));
        judged.stir(Micros(1_200));
        assert!(
            judged.may_miss(MODES[1], false, Micros(1_300)),
            "opened after an answer that may have got lost"
        );
    }
}
