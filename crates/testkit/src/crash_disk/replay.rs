//! What a loss of power leaves of a log.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rustix::fs::{CWD, FileType, Mode};

use super::ROOT;
use super::event::{DataChange, Event, Kind, NameChange, Names, Reach, Slot, names_in};
use super::sparse::Sparse;

/// What a file system promises of what nobody synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// As ext4 and XFS: names have a journal, so they survive in the order they were changed, and an fsync of anything
    /// (not an fdatasync) takes along all changes of names before it.
    OrderedNames,
    /// As POSIX, and Btrfs almost: what nobody synced may be there or not, each for itself. A name needs an fsync of its
    /// directory. A rename happens whole or not at all.
    Nothing,
}

/// A disk on its way through a log: what is durable, and what hangs in the air.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    events: &'a [Event],
    promise: Promise,
    at: usize,
    kinds: BTreeMap<u64, Kind>,
    names: Names,
    pending_names: Vec<&'a NameChange>,
    files: BTreeMap<u64, Bytes<'a>>,
}

/// A file's bytes.
#[derive(Clone, Debug, Default)]
struct Bytes<'a> {
    durable: Sparse,
    pending: Vec<&'a DataChange>,
}

/// A disk after a loss of power.
#[derive(Clone, Debug)]
pub struct Image {
    kinds: BTreeMap<u64, Kind>,
    names: Names,
    files: BTreeMap<u64, Sparse>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(start: &Image, events: &'a [Event], promise: Promise) -> Self {
        let durable = |bytes: &Sparse| Bytes { durable: bytes.clone(), pending: Vec::new() };
        Self {
            events,
            promise,
            at: 0,
            kinds: start.kinds.clone(),
            names: start.names.clone(),
            pending_names: Vec::new(),
            files: start.files.iter().map(|(ino, bytes)| (*ino, durable(bytes))).collect(),
        }
    }

    /// How many events have happened.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Goes on until `position` events have happened, or all.
    pub fn advance(&mut self, position: usize) {
        while self.at < position.min(self.events.len()) {
            let event = &self.events[self.at];
            self.at += 1;
            self.take(event);
        }
    }

    fn take(&mut self, event: &'a Event) {
        match event {
            Event::Inode(ino, kind) => {
                self.kinds.insert(*ino, kind.clone());
            }
            Event::Data(ino, change) => self.files.entry(*ino).or_default().pending.push(change),
            Event::Names(change) => self.pending_names.push(change),
            Event::Nothing => {}
            Event::Sync(ino, reach) => {
                let bytes = self.files.entry(*ino).or_default();
                for change in bytes.pending.drain(..) {
                    change.apply(&mut bytes.durable);
                }
                if (self.promise, *reach) == (Promise::OrderedNames, Reach::All) {
                    self.keep_names(|_| true);
                }
            }
            Event::SyncDir(dir) => match self.promise {
                Promise::OrderedNames => self.keep_names(|_| true),
                Promise::Nothing => self.keep_names(|change| change.touches(*dir)),
            },
        }
    }

    /// Makes pending changes durable for which `is_synced`, and what they build on.
    fn keep_names(&mut self, is_synced: impl Fn(&NameChange) -> bool) {
        let mut needed: BTreeSet<&Slot> = BTreeSet::new();
        let mut keeps = Vec::new();
        for change in self.pending_names.iter().rev() {
            let keep = is_synced(change) || change.slots.iter().any(|(slot, _)| needed.contains(slot));
            if keep {
                needed.extend(change.slots.iter().map(|(slot, _)| slot));
            }
            keeps.push(keep);
        }
        let pending = std::mem::take(&mut self.pending_names);
        for (change, keep) in pending.into_iter().zip(keeps.into_iter().rev()) {
            match keep {
                true => change.apply(&mut self.names),
                false => self.pending_names.push(change),
            }
        }
    }

    /// Loses power here. What becomes of all that is not synced is drawn from `random`.
    pub fn crash(&self, random: &mut Rng) -> Image {
        let mood = match random.u8(0..8) {
            0 => Mood { names: Fate::Lost, data: Fate::Lost },
            1 => Mood { names: Fate::Kept, data: Fate::Lost },
            2 => Mood { names: Fate::Lost, data: Fate::Kept },
            3 => Mood { names: Fate::Kept, data: Fate::Drawn },
            4 => Mood { names: Fate::Drawn, data: Fate::Kept },
            _ => Mood { names: Fate::Drawn, data: Fate::Drawn },
        };
        let files = self.files.iter().map(|(ino, bytes)| (*ino, bytes.crash(mood.data, random)));
        let files = files.collect();
        Image { kinds: self.kinds.clone(), names: self.crash_names(mood.names, random), files }
    }

    /// The disk as everybody saw it just now, nothing lost.
    pub fn seen(&self) -> Image {
        let random = &mut Rng::with_seed(0);
        let files = self.files.iter().map(|(ino, bytes)| (*ino, bytes.crash(Fate::Kept, random))).collect();
        Image { kinds: self.kinds.clone(), names: self.crash_names(Fate::Kept, random), files }
    }

    fn crash_names(&self, fate: Fate, random: &mut Rng) -> Names {
        let mut names = self.names.clone();
        let count = self.pending_names.len();
        let kept = match fate {
            Fate::Lost => 0,
            Fate::Kept => count,
            Fate::Drawn => random.usize(0..=count),
        };
        let chance = random.f64();
        let is_ordered = fate != Fate::Drawn || self.promise == Promise::OrderedNames || random.bool();
        let mut lost: BTreeSet<&Slot> = BTreeSet::new();
        for (index, change) in self.pending_names.iter().enumerate() {
            let is_kept = match is_ordered {
                true => index < kept,
                // Each place for itself, in order: what builds on a lost change is lost.
                false => random.f64() < chance && !change.slots.iter().any(|(slot, _)| lost.contains(slot)),
            };
            match is_kept {
                true => change.apply(&mut names),
                false => lost.extend(change.slots.iter().map(|(slot, _)| slot)),
            }
        }
        names
    }
}

/// What becomes of what is not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    Kept,
    Drawn,
}

#[derive(Clone, Copy, Debug)]
struct Mood {
    names: Fate,
    data: Fate,
}

impl Bytes<'_> {
    fn crash(&self, fate: Fate, random: &mut Rng) -> Sparse {
        let mut left = self.durable.clone();
        if self.pending.is_empty() || fate == Fate::Lost {
            return left;
        }
        match fate {
            Fate::Kept => self.pending.iter().for_each(|change| change.apply(&mut left)),
            _ => match random.u8(0..6) {
                0 => {}
                1 => self.pending.iter().for_each(|change| change.apply(&mut left)),
                2 | 3 => self.tear(&mut left, random),
                _ => left = self.scatter(random),
            },
        }
        left
    }

    /// Changes in their order up to one that is torn between two sectors.
    fn tear(&self, left: &mut Sparse, random: &mut Rng) {
        let whole = random.usize(0..self.pending.len());
        self.pending[..whole].iter().for_each(|change| change.apply(left));
        let torn = self.pending[whole];
        let mut after = left.clone();
        torn.apply(&mut after);
        let sectors = torn.sectors(left.len());
        let until = random.u64(sectors.start..=sectors.end);
        let len = if random.bool() { left.len() } else { after.len() };
        for sector in sectors.start..until {
            left.take_sector(&after, sector);
        }
        left.set_len(len);
    }

    /// Each sector as it was after one or the other of the changes: written back in any order, or not at all.
    fn scatter(&self, random: &mut Rng) -> Sparse {
        let mut left = self.durable.clone();
        let mut seen = self.durable.clone();
        let mut len = seen.len();
        // Mostly all or mostly nothing finds other things than the toss of a coin.
        let chance = [0.05, 0.5, 0.95][random.usize(0..3)];
        for change in &self.pending {
            let before = seen.len();
            change.apply(&mut seen);
            if random.f64() < chance {
                len = seen.len();
            }
            for sector in change.sectors(before) {
                if random.f64() < chance {
                    left.take_sector(&seen, sector);
                }
            }
        }
        left.set_len(len);
        left
    }
}

impl Image {
    /// A disk with nothing but its root directory.
    pub fn empty() -> Self {
        let kinds = BTreeMap::from([(ROOT, Kind::Directory(0o755))]);
        Self { kinds, names: Names::new(), files: BTreeMap::new() }
    }

    /// Names of inodes, those of `events` included that are gone.
    pub(super) fn paths<'e>(&self, events: impl Iterator<Item = &'e Event>) -> BTreeMap<u64, String> {
        let mut slots: BTreeMap<u64, Slot> = BTreeMap::new();
        for event in events {
            if let Event::Names(change) = event {
                let made = change.slots.iter().filter_map(|(slot, ino)| Some(((*ino)?, slot.clone())));
                slots.extend(made);
            }
        }
        slots.extend(self.names.iter().map(|(slot, ino)| (*ino, slot.clone())));
        let path = |ino: u64| {
            let (mut at, mut path) = (ino, String::new());
            while let Some((dir, name)) = slots.get(&at) {
                path = format!("/{}{path}", name.to_string_lossy());
                at = *dir;
            }
            path
        };
        self.kinds.keys().map(|ino| (*ino, path(*ino))).collect()
    }

    pub(super) fn parts(&self) -> (&BTreeMap<u64, Kind>, &Names, &BTreeMap<u64, Sparse>) {
        (&self.kinds, &self.names, &self.files)
    }

    /// Makes what is in the directory `from` of the disk, "" for its root, in the directory `to`, which must be empty.
    ///
    /// # Errors
    ///
    /// Those of the file system; an inode that `from` does not lead to is `NotFound`.
    pub fn store(&self, from: &str, to: &Path) -> io::Result<()> {
        let mut dir = ROOT;
        for name in from.split('/').filter(|name| !name.is_empty()) {
            dir = *self.names.get(&(dir, name.into())).ok_or(io::ErrorKind::NotFound)?;
        }
        self.store_directory(dir, to, &mut BTreeMap::new())
    }

    fn store_directory(&self, dir: u64, to: &Path, made: &mut BTreeMap<u64, PathBuf>) -> io::Result<()> {
        for (name, ino) in names_in(&self.names, dir) {
            self.store_one(ino, to, name, made)?;
        }
        Ok(())
    }

    fn store_one(
        &self,
        ino: u64,
        to: &Path,
        name: &OsStr,
        made: &mut BTreeMap<u64, PathBuf>,
    ) -> io::Result<()> {
        let path = to.join(name);
        match &self.kinds[&ino] {
            Kind::Directory(mode) => {
                fs::create_dir(&path)?;
                self.store_directory(ino, &path, made)?;
                return fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777));
            }
            _ if made.contains_key(&ino) => return fs::hard_link(&made[&ino], &path),
            Kind::File(mode) => {
                let file: File =
                    OpenOptions::new().write(true).create_new(true).mode(mode & 0o7777).open(&path)?;
                if let Some(bytes) = self.files.get(&ino) {
                    bytes.store(&file)?;
                }
            }
            Kind::Symlink(target) => symlink(target, &path)?,
            Kind::Node(mode) => {
                let mode = Mode::from_raw_mode(mode & 0o7777);
                rustix::fs::mknodat(CWD, &path, FileType::Socket, mode, 0)?;
            }
        }
        made.insert(ino, path);
        Ok(())
    }
}
