//! Inodes that the kernel knows, and what it may have of them.

use meta::FsError;
use rustc_hash::FxHashMap;
use slab::Slab;
use types::{Ino, Name};

use crate::cache::Place;
use crate::ends::End;
use crate::guard::Guard;
use crate::judged::Judged;
use crate::shield::{Reads, Shields};

/// An inode that the kernel has looked up, or that is open.
#[derive(Debug)]
pub struct Known {
    /// How often the kernel looked it up and has not forgotten it.
    pub lookups: u64,
    /// Where its record was last seen.
    pub place: Place,
    /// Whether the kernel may keep its attributes.
    pub attr_out: bool,
    /// Whether the kernel may have pages of it.
    pub pages_out: bool,
    /// Answers to requests with lower numbers are not to be shown to others later.
    pub(crate) exact_from: u64,
    /// What the kernel has for its end.
    pub(crate) end: End,
    /// What the kernel has for its owner and permissions.
    pub(crate) judged: Judged,
    /// Of a directory: where the kernel has it.
    pub(crate) seat: Seat,
    /// What the kernel may have pages of, since direct writes last had them taken back.
    pub(crate) reads: Reads,
    /// Handles open for reading only.
    pub readers: u32,
    /// Handles open for writing.
    pub writers: u32,
    /// Handles among them that append.
    pub appenders: u32,
    /// Those of them through which it may be mapped to be stored to.
    pub mappers: u32,
    /// Whether the master knows that it is open here (OP).
    pub open_told: bool,
    /// Content written here was lost: what writers are told until the last of them closes.
    pub lost: Option<FsError>,
    /// Reads and writes served since its pages began to be taken back.
    pub served_while_dropping: bool,
    /// Whether a read was among them.
    pub read_while_dropping: bool,
    /// Where the guard has it.
    slot: u32,
}

impl Known {
    fn new(slot: u32) -> Self {
        Self {
            lookups: 0,
            place: Place::Unknown,
            attr_out: false,
            pages_out: false,
            exact_from: 0,
            end: End::default(),
            judged: Judged::default(),
            seat: Seat::default(),
            reads: Reads::default(),
            readers: 0,
            writers: 0,
            appenders: 0,
            mappers: 0,
            open_told: false,
            lost: None,
            served_while_dropping: false,
            read_while_dropping: false,
            slot,
        }
    }

    /// Whether some handle is open.
    pub fn is_open(&self) -> bool {
        self.readers + self.writers > 0
    }
}

/// Where the kernel has a directory: in one place only, other than files.
///
/// Finding it in another, where a node has moved it, the kernel moves what it has, and answers ESTALE if that takes locks
/// that others hold: a rename between two directories that waits for its answer is enough (fuse: `kernel_cache.rs`).
/// It has nothing to move once the old name was dropped, and nothing below it is in use.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    now: Option<Box<(Ino, Name)>>,
    /// To be dropped before the kernel is told of it in another place.
    before: Option<Box<(Ino, Name)>>,
}

impl Seat {
    /// The kernel is told of the directory as `name` in `parent`.
    pub(crate) fn take(&mut self, parent: Ino, name: &Name) {
        let new = Box::new((parent, name.clone()));
        if self.is_elsewhere(parent) {
            self.before = self.now.take();
        }
        self.now = Some(new);
    }

    /// Whether the kernel has it there.
    pub(crate) fn is_at(&self, parent: Ino, name: &Name) -> bool {
        self.now.as_ref().is_some_and(|now| now.0 == parent && now.1 == *name)
    }

    /// Whether the kernel has it in another directory.
    pub(crate) fn is_elsewhere(&self, parent: Ino) -> bool {
        self.now.as_ref().is_some_and(|now| now.0 != parent)
    }

    /// Whether it is known where the kernel has the directory, and that is in one of which `is_so` holds.
    pub(crate) fn is_in(&self, is_so: impl FnOnce(Ino) -> bool) -> bool {
        self.now.as_ref().is_some_and(|now| is_so(now.0))
    }

    /// What to drop, once.
    pub(crate) fn take_before(&mut self) -> Option<(Ino, Name)> {
        self.before.take().map(|before| *before)
    }
}

/// All of them. The guard is told of each before anybody can hand it out, and when it is gone.
pub struct KnownTable {
    /// Where each is in the list: a table of whole records would copy all of them when it grows, and be empty to a half after that.
    places: FxHashMap<Ino, u32>,
    inodes: Slab<(Ino, Known)>,
    guard: Box<dyn Guard>,
    /// Before what its pages show as it was.
    pub(crate) shields: Shields,
}

impl KnownTable {
    pub fn new(guard: Box<dyn Guard>) -> Self {
        Self { places: FxHashMap::default(), inodes: Slab::new(), guard, shields: Shields::default() }
    }

    /// The inode, known from here on if it was not.
    pub fn note(&mut self, ino: Ino) -> &mut Known {
        let place = *self.places.entry(ino).or_insert_with(|| {
            let known = Known::new(self.guard.enter(ino));
            self.inodes.insert((ino, known)) as u32
        });
        &mut self.inodes[place as usize].1
    }

    pub fn remove(&mut self, ino: Ino) {
        if let Some(place) = self.places.remove(&ino) {
            let (_, known) = self.inodes.remove(place as usize);
            self.guard.leave(known.slot);
        }
    }

    pub fn get(&self, ino: &Ino) -> Option<&Known> {
        let place = self.places.get(ino)?;
        self.inodes.get(*place as usize).map(|(_, known)| known)
    }

    pub fn get_mut(&mut self, ino: &Ino) -> Option<&mut Known> {
        let place = self.places.get(ino)?;
        self.inodes.get_mut(*place as usize).map(|(_, known)| known)
    }

    pub fn keys(&self) -> impl Iterator<Item = &Ino> {
        self.places.keys()
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
