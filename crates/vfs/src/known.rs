//! Inodes that the kernel knows, and what it may have of them.
//!
//! There is one of these for each inode of a tree that was walked, so what few of them need stands apart.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use meta::{Cookie, FsError};
use rustc_hash::FxBuildHasher;
use slab::Slab;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use types::{Ino, Micros, Name};

use crate::cache::Place;
use crate::ends::End;
use crate::guard::Guard;
use crate::judged::Judged;
use crate::shield::{Reads, Shields};

/// An inode that the kernel has looked up, or that is open.
#[derive(Debug)]
pub struct Known {
    /// How often the kernel looked it up and has not forgotten it; it forgets what it has in one go, so that it does not matter that this
    /// goes no further than [`u32::MAX`].
    pub lookups: u32,
    /// Where the guard has it.
    slot: u32,
    place: PackedPlace,
    /// Whether the kernel may keep its attributes.
    attr: Attributes,
    /// Whether the kernel may have pages of it.
    pub pages_out: bool,
    /// Whether the master knows that it is open here (OP).
    pub open_told: bool,
    /// Which answers that name it may be on their way.
    pub(crate) naming: Naming,
    /// What the kernel has for its end.
    pub(crate) end: End,
    /// What the kernel has for its owner and permissions.
    pub(crate) judged: Judged,
    /// Of a directory: where the kernel has it.
    pub(crate) seat: Seat,
    /// `None` until it is opened.
    uses: Option<Box<Uses>>,
}

/// Which answers that name an inode may be on their way to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The first.
    First,
    /// None: there was one, and the kernel has acted on it. Attributes that are taken back are gone.
    None,
    /// One to a lookup after the first: the kernel may take it at any time.
    Again,
}

/// What there is besides of an inode that was opened since the kernel knows it.
#[derive(Debug)]
pub struct Uses {
    /// Handles open for reading only.
    pub readers: u32,
    /// Handles open for writing.
    pub writers: u32,
    /// Handles among them that append.
    pub appenders: u32,
    /// Those that write past the kernel's pages, but where they are told to.
    pub fillers: u32,
    /// Those of them through which it may be mapped to be stored to.
    pub mappers: u32,
    /// Answers to requests with lower numbers are not to be shown to others later.
    pub(crate) exact_from: u64,
    /// What the kernel may have pages of, since direct writes last had them taken back.
    pub(crate) reads: Reads,
    /// Whether some of it was read for the kernel's pages, as far as the kernel says. Through handles past its cache a mapping may
    /// read as well.
    pub(crate) fills_pages: bool,
    /// Content written here was lost: what writers are told until the last of them closes.
    pub lost: Option<FsError>,
    /// Number of the last read or write that was served: pages that are being taken back may have come after that was looked for.
    pub served_at: u64,
    /// Number of the last read among them.
    pub read_at: u64,
}

impl Uses {
    const NONE: Self = Self {
        readers: 0,
        writers: 0,
        appenders: 0,
        fillers: 0,
        mappers: 0,
        exact_from: 0,
        reads: Reads::NONE,
        fills_pages: false,
        lost: None,
        served_at: 0,
        read_at: 0,
    };
}

/// Where attributes of an inode may be that the kernel keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attributes {
    Nowhere,
    Kept,
    /// Told before its pages, and with them its attributes, began to be taken back.
    GoingAway,
}

static NEVER_OPENED: Uses = Uses::NONE;

impl Known {
    fn new(slot: u32) -> Self {
        Self {
            lookups: 0,
            place: PackedPlace::UNKNOWN,
            attr: Attributes::Nowhere,
            pages_out: false,
            open_told: false,
            naming: Naming::First,
            end: End::default(),
            judged: Judged::default(),
            seat: Seat::default(),
            uses: None,
            slot,
        }
    }

    /// Where its record was last seen.
    pub fn place(&self) -> Place {
        self.place.get()
    }

    /// Its record was seen there.
    pub fn set_place(&mut self, place: Place) {
        self.place = PackedPlace::new(place);
    }

    /// Handles, and what is known because of them.
    pub fn uses(&self) -> &Uses {
        self.uses.as_deref().unwrap_or(&NEVER_OPENED)
    }

    /// The same, to change it.
    pub fn uses_mut(&mut self) -> &mut Uses {
        self.uses.get_or_insert_with(|| Box::new(Uses::NONE))
    }

    /// The kernel has looked it up.
    pub(crate) fn count_lookup(&mut self) {
        self.lookups = self.lookups.saturating_add(1);
    }

    /// Whether an answer may be on its way that brings the inode to a kernel that does not have it.
    pub(crate) fn may_be_named(&self, now: Micros) -> bool {
        self.naming != Naming::None && self.end.was_told_lately(now)
    }

    /// Whoever closes the file had the answer that named it: there is no other if it was the only one.
    pub(crate) fn note_closed(&mut self) {
        if self.lookups == 1 && self.naming == Naming::First {
            self.naming = Naming::None;
        }
    }

    /// Whether some handle is open.
    pub fn is_open(&self) -> bool {
        let uses = self.uses();
        uses.readers + uses.writers > 0
    }

    /// Whether some handle is open for writing.
    pub fn is_written(&self) -> bool {
        self.uses().writers > 0
    }

    /// Whether the kernel may keep its attributes.
    pub(crate) fn attr_out(&self) -> bool {
        self.attr != Attributes::Nowhere
    }

    /// The kernel is told attributes that it may keep.
    pub(crate) fn note_attr_out(&mut self) {
        self.attr = Attributes::Kept;
    }

    /// The kernel keeps none any more.
    pub(crate) fn note_attr_gone(&mut self) {
        self.attr = Attributes::Nowhere;
    }

    /// The same; returns whether it may have kept some.
    pub(crate) fn take_attr_out(&mut self) -> bool {
        std::mem::replace(&mut self.attr, Attributes::Nowhere) != Attributes::Nowhere
    }

    /// Its pages begin to be taken back, and its attributes before them.
    pub(crate) fn note_dropping(&mut self) {
        if self.attr == Attributes::Kept {
            self.attr = Attributes::GoingAway;
        }
    }

    /// No pages of it are left, and no attributes but those that were told since these began to be taken back.
    pub(crate) fn note_dropped(&mut self) {
        self.pages_out = false;
        if self.attr == Attributes::GoingAway {
            self.attr = Attributes::Nowhere;
        }
        if let Some(uses) = &mut self.uses {
            uses.reads.clear();
            uses.fills_pages = false;
        }
    }
}

/// A [`Place`] in two words: a directory and a place in it, or a number that no directory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedPlace(Ino, Cookie);

impl PackedPlace {
    const UNKNOWN: Self = Self(Ino(0), Cookie(0));
    const OWN: Self = Self(Ino(u64::MAX), Cookie(0));

    fn new(place: Place) -> Self {
        match place {
            Place::Covered(parent, _) if parent == Self::UNKNOWN.0 || parent == Self::OWN.0 => Self::UNKNOWN,
            Place::Covered(parent, cookie) => Self(parent, cookie),
            Place::Own => Self::OWN,
            Place::Unknown => Self::UNKNOWN,
        }
    }

    fn get(self) -> Place {
        match self {
            Self::UNKNOWN => Place::Unknown,
            Self::OWN => Place::Own,
            Self(parent, cookie) => Place::Covered(parent, cookie),
        }
    }
}

/// Where the kernel has a directory: in one place only, other than files.
///
/// Finding it in another, where a node has moved it, the kernel moves what it has, and answers ESTALE if that takes locks
/// that others hold: a rename between two directories that waits for its answer is enough (fuse: `kernel_cache.rs`).
/// It has nothing to move once the old name was dropped, and nothing below it is in use.
#[derive(Debug, Default)]
pub(crate) struct Seat(Option<Box<Seats>>);

#[derive(Debug)]
struct Seats {
    now: (Ino, Name),
    /// To be dropped before the kernel is told of it in another place.
    before: Option<Box<(Ino, Name)>>,
    /// Whether an answer that names it may be on its way: nothing was asked for within it since.
    is_on_its_way: bool,
}

impl Seat {
    /// The kernel is told of the directory as `name` in `parent`.
    fn take(&mut self, parent: Ino, name: &Name) {
        let now = (parent, name.clone());
        match &mut self.0 {
            None => self.0 = Some(Box::new(Seats { now, before: None, is_on_its_way: true })),
            Some(seats) => {
                seats.is_on_its_way = true;
                let old = std::mem::replace(&mut seats.now, now);
                if old.0 != parent {
                    seats.before = Some(Box::new(old));
                }
            }
        }
    }

    /// Whether the kernel has it there.
    pub(crate) fn is_at(&self, parent: Ino, name: &Name) -> bool {
        self.0.as_ref().is_some_and(|seats| seats.now.0 == parent && seats.now.1 == *name)
    }

    /// Whether the kernel has it in another directory.
    pub(crate) fn is_elsewhere(&self, parent: Ino) -> bool {
        self.0.as_ref().is_some_and(|seats| seats.now.0 != parent)
    }

    /// Whether it is known where the kernel has the directory, and that is in one of which `is_so` holds.
    pub(crate) fn is_in(&self, is_so: impl FnOnce(Ino) -> bool) -> bool {
        self.0.as_ref().is_some_and(|seats| is_so(seats.now.0))
    }

    /// Where the kernel has it.
    pub(crate) fn place(&self) -> Option<&(Ino, Name)> {
        self.0.as_ref().map(|seats| &seats.now)
    }

    /// Something is asked for within the directory: the kernel has it. What it is answered from here on finds it there, or counts for
    /// nothing where it was dropped meanwhile (`fuse_change_attributes_common`).
    pub(crate) fn note_used(&mut self) {
        if let Some(seats) = &mut self.0 {
            seats.is_on_its_way = false;
        }
    }

    /// Where an answer that may be on its way tells of it.
    pub(crate) fn place_on_its_way(&self) -> Option<&(Ino, Name)> {
        self.0.as_ref().filter(|seats| seats.is_on_its_way).map(|seats| &seats.now)
    }

    /// The kernel has moved it there itself.
    fn follow(&mut self, parent: Ino, name: &Name) {
        if let Some(seats) = &mut self.0 {
            seats.now = (parent, name.clone());
        }
    }

    /// What to drop, once.
    pub(crate) fn take_before(&mut self) -> Option<(Ino, Name)> {
        self.0.as_mut()?.before.take().map(|before| *before)
    }
}

/// All of them. The guard is told of each before anybody can hand it out, and when it is gone.
pub struct KnownTable {
    /// Where each is in the list: a table of whole records would copy all of them when it grows, and be empty to a half after that.
    places: HashTable<u32>,
    inodes: Slab<(Ino, Known)>,
    /// Directories by the names under which the kernel has them, each in one place and each place with one.
    seats: HashTable<u32>,
    /// What was there until the kernel was told otherwise, lately: who had looked before that may go on with it.
    left: VecDeque<(Ino, Name, Ino)>,
    guard: Box<dyn Guard>,
    /// Before what its pages show as it was.
    pub(crate) shields: Shields,
}

impl KnownTable {
    pub fn new(guard: Box<dyn Guard>) -> Self {
        let (places, seats) = (HashTable::new(), HashTable::new());
        let left = VecDeque::new();
        Self { places, inodes: Slab::new(), seats, left, guard, shields: Shields::default() }
    }

    /// The inode, known from here on if it was not.
    pub fn note(&mut self, ino: Ino) -> &mut Known {
        let place = self.place_noted(ino);
        &mut self.inodes[place as usize].1
    }

    fn place_noted(&mut self, ino: Ino) -> u32 {
        let Self { places, inodes, guard, .. } = self;
        let entry = places.entry(
            hash_of(ino),
            |place| is_at(inodes, *place, ino),
            |place| inodes.get(*place as usize).map_or(0, |(ino, _)| hash_of(*ino)),
        );
        match entry {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let place = inodes.insert((ino, Known::new(guard.enter(ino)))) as u32;
                entry.insert(place);
                place
            }
        }
    }

    pub fn remove(&mut self, ino: Ino) {
        let entry = self.places.find_entry(hash_of(ino), |place| is_at(&self.inodes, *place, ino));
        if let Ok(entry) = entry {
            let (place, _) = entry.remove();
            self.leave_seat(place);
            let (_, known) = self.inodes.remove(place as usize);
            self.guard.leave(known.slot);
        }
    }

    pub fn get(&self, ino: &Ino) -> Option<&Known> {
        let place = self.place_of(*ino)?;
        self.inodes.get(place).map(|(_, known)| known)
    }

    pub fn get_mut(&mut self, ino: &Ino) -> Option<&mut Known> {
        let place = self.place_of(*ino)?;
        self.inodes.get_mut(place).map(|(_, known)| known)
    }

    fn place_of(&self, ino: Ino) -> Option<usize> {
        self.places.find(hash_of(ino), |place| is_at(&self.inodes, *place, ino)).map(|place| *place as usize)
    }

    /// The kernel is told of a directory as `name` in `parent`.
    pub(crate) fn take_seat(&mut self, ino: Ino, parent: Ino, name: &Name) {
        let place = self.place_noted(ino);
        if self.seat_at(parent, name) == Some(place) {
            self.inodes[place as usize].1.seat.take(parent, name);
            return;
        }
        let before = self.inodes[place as usize].1.seat.place().cloned();
        let before = before.filter(|_| self.leave_seat(place));
        let displaced = self.seated(parent, name);
        self.vacate(parent, name);
        self.inodes[place as usize].1.seat.take(parent, name);
        self.enter_seat(place, parent, name);
        let moved = before.map(|(parent, name)| (parent, name, ino));
        self.left.extend(moved.into_iter().chain(displaced.map(|other| (parent, name.clone(), other))));
        while self.left.len() > LEFT_MAX {
            self.left.pop_front();
        }
    }

    /// The directory that the kernel takes for gone when it has this name removed or replaced; 0 if that is not known. Once, what it had there before.
    pub(crate) fn take_meant(&mut self, parent: Ino, name: &Name) -> Ino {
        let is_there = |(of, left, _): &(Ino, Name, Ino)| *of == parent && left == name;
        if let Some((_, _, ino)) = self.left.iter().position(is_there).and_then(|at| self.left.remove(at)) {
            return ino;
        }
        self.seated(parent, name).unwrap_or(Ino(0))
    }

    /// The directory that the kernel has there, as far as it was told. It may have something else there that was told later.
    pub(crate) fn seated(&self, parent: Ino, name: &Name) -> Option<Ino> {
        let place = self.seat_at(parent, name)?;
        self.inodes.get(place as usize).map(|(ino, _)| *ino)
    }

    /// The kernel has no directory there that we know of.
    pub(crate) fn clear_seat(&mut self, parent: Ino, name: &Name) {
        self.vacate(parent, name);
        self.left.retain(|(of, left, _)| *of != parent || left != name);
    }

    fn vacate(&mut self, parent: Ino, name: &Name) {
        let Self { seats, inodes, .. } = self;
        let hash = hash_of_seat(parent, name);
        if let Ok(entry) = seats.find_entry(hash, |at| has_seat(inodes, *at, parent, name)) {
            entry.remove();
        }
    }

    /// The kernel has moved the directory there itself.
    pub(crate) fn move_seat(&mut self, ino: Ino, parent: Ino, name: &Name) {
        let has_seat =
            |place: &usize| self.inodes.get(*place).is_some_and(|(_, known)| known.seat.place().is_some());
        let Some(place) = self.place_of(ino).filter(has_seat).map(|place| place as u32) else { return };
        self.leave_seat(place);
        self.clear_seat(parent, name);
        self.inodes[place as usize].1.seat.follow(parent, name);
        self.enter_seat(place, parent, name);
    }

    fn seat_at(&self, parent: Ino, name: &Name) -> Option<u32> {
        let hash = hash_of_seat(parent, name);
        self.seats.find(hash, |at| has_seat(&self.inodes, *at, parent, name)).copied()
    }

    fn enter_seat(&mut self, place: u32, parent: Ino, name: &Name) {
        let inodes = &self.inodes;
        self.seats.insert_unique(hash_of_seat(parent, name), place, |at| {
            let seat = inodes.get(*at as usize).and_then(|(_, known)| known.seat.place());
            seat.map_or(0, |(parent, name)| hash_of_seat(*parent, name))
        });
    }

    /// Returns whether it had one.
    fn leave_seat(&mut self, place: u32) -> bool {
        let Self { seats, inodes, .. } = self;
        let Some((parent, name)) = inodes.get(place as usize).and_then(|(_, known)| known.seat.place())
        else {
            return false;
        };
        let found = seats.find_entry(hash_of_seat(*parent, name), |at| *at == place);
        found.map(|entry| entry.remove()).is_ok()
    }

    pub fn keys(&self) -> impl Iterator<Item = &Ino> {
        self.inodes.iter().map(|(_, (ino, _))| ino)
    }

    pub fn values(&self) -> impl Iterator<Item = &Known> {
        self.inodes.iter().map(|(_, (_, known))| known)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Known> {
        self.inodes.iter_mut().map(|(_, (_, known))| known)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Ino, &mut Known)> {
        self.inodes.iter_mut().map(|(_, (ino, known))| (&*ino, known))
    }

    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// What empties the kernel's caches when this node cannot.
    pub fn guard(&self) -> &dyn Guard {
        &*self.guard
    }

    pub fn guard_mut(&mut self) -> &mut dyn Guard {
        &mut *self.guard
    }
}

fn is_at(inodes: &Slab<(Ino, Known)>, place: u32, ino: Ino) -> bool {
    inodes.get(place as usize).is_some_and(|(other, _)| *other == ino)
}

fn hash_of(ino: Ino) -> u64 {
    FxBuildHasher.hash_one(ino)
}

/// Places where something else was lately that are remembered.
const LEFT_MAX: usize = 64;

fn has_seat(inodes: &Slab<(Ino, Known)>, place: u32, parent: Ino, name: &Name) -> bool {
    inodes.get(place as usize).is_some_and(|(_, known)| known.seat.is_at(parent, name))
}

fn hash_of_seat(parent: Ino, name: &Name) -> u64 {
    FxBuildHasher.hash_one((parent, name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Unguarded;

    /// There is one for each inode of a tree: what is added to it is added a million times.
    #[test]
    fn an_inode_takes_96_bytes() {
        assert_eq!(size_of::<Option<(Ino, Known)>>(), 96);
    }

    #[test]
    fn places_are_what_they_were() {
        let mut known = Known::new(0);
        for place in [Place::Own, Place::Covered(Ino(7), Cookie(u64::MAX)), Place::Unknown] {
            known.set_place(place);
            assert_eq!(known.place(), place);
        }
        known.set_place(Place::Covered(Ino(0), Cookie(1)));
        assert_eq!(known.place(), Place::Unknown, "there is no such directory");
    }

    /// Numbers come and go; each is found as long as it is there, and nothing else.
    #[test]
    fn what_is_known_is_found() {
        let mut table = KnownTable::new(Box::new(Unguarded));
        let mut there = std::collections::BTreeMap::new();
        for step in 0..20_000u64 {
            let ino = Ino(step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54);
            if there.remove(&ino).is_some() {
                assert!(table.get(&ino).is_some());
                table.remove(ino);
            } else {
                assert!(table.get(&ino).is_none());
                table.note(ino).lookups = step as u32;
                there.insert(ino, step);
            }
            assert_eq!(table.len(), there.len());
        }
        let mut left: Vec<(Ino, u64)> =
            table.iter_mut().map(|(ino, known)| (*ino, u64::from(known.lookups))).collect();
        left.sort();
        assert_eq!(left, there.into_iter().collect::<Vec<_>>());
    }

    /// Each directory is in one place, the last that it was told in or moved to, and each place has one.
    #[test]
    fn a_place_has_the_directory_that_was_told_there_last() {
        let mut table = KnownTable::new(Box::new(Unguarded));
        let mut seats = std::collections::BTreeMap::new();
        let names: Vec<Name> = (0..6).map(|n: u8| Name::new(&[b'a' + n]).unwrap()).collect();
        for step in 0..20_000u64 {
            let random = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let ino = Ino(10 + random % 16);
            let (parent, name) = (Ino(1 + (random >> 4) % 3), &names[(random >> 6) as usize % 6]);
            match (random >> 10) % 8 {
                0..4 => {
                    table.take_seat(ino, parent, name);
                    seats.retain(|_, seated| *seated != ino);
                    seats.insert((parent, name.clone()), ino);
                }
                4 if seats.values().any(|seated| *seated == ino) => {
                    table.move_seat(ino, parent, name);
                    seats.retain(|_, seated| *seated != ino);
                    seats.insert((parent, name.clone()), ino);
                }
                5 => {
                    table.clear_seat(parent, name);
                    seats.remove(&(parent, name.clone()));
                }
                6 => {
                    table.remove(ino);
                    seats.retain(|_, seated| *seated != ino);
                }
                _ => {}
            }
            for parent in (1..4).map(Ino) {
                for name in &names {
                    assert_eq!(table.seated(parent, name), seats.get(&(parent, name.clone())).copied());
                }
            }
            assert_eq!(table.seats.len(), seats.len());
        }
    }

    /// Who looked before the kernel was told otherwise may still mean what was there.
    #[test]
    fn what_was_there_before_is_meant_once() {
        let mut table = KnownTable::new(Box::new(Unguarded));
        let [a, b] = [&b"a"[..], b"b"].map(|name| Name::new(name).unwrap());
        table.take_seat(Ino(10), Ino(1), &a);
        assert_eq!(table.take_meant(Ino(1), &a), Ino(10));
        table.take_seat(Ino(11), Ino(1), &a);
        assert_eq!(
            [0; 3].map(|_| table.take_meant(Ino(1), &a)),
            [Ino(10), Ino(11), Ino(11)],
            "another has its name"
        );
        table.take_seat(Ino(11), Ino(2), &b);
        assert_eq!([0; 2].map(|_| table.take_meant(Ino(1), &a)), [Ino(11), Ino(0)], "it is told elsewhere");
        table.take_seat(Ino(10), Ino(2), &b);
        table.clear_seat(Ino(2), &b);
        assert_eq!(table.take_meant(Ino(2), &b), Ino(0), "it is removed");
        for n in 0..200 {
            table.take_seat(Ino(100 + n), Ino(1), &a);
        }
        assert_eq!(table.left.len(), LEFT_MAX);
    }

    #[test]
    fn a_directory_that_moves_is_dropped_where_it_was() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let mut seat = Seat::default();
        seat.take(Ino(1), &name("a"));
        seat.take(Ino(1), &name("b"));
        assert_eq!(seat.take_before(), None, "in the same directory the kernel moves it without a word");
        seat.take(Ino(2), &name("c"));
        assert!(seat.is_at(Ino(2), &name("c")) && seat.is_elsewhere(Ino(1)));
        assert_eq!(seat.take_before(), Some((Ino(1), name("b"))));
        assert_eq!(seat.take_before(), None);
    }
}
