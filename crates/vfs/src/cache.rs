//! What a node has cached of the namespace: exactly what its tokens cover.
//!
//! Invariants:
//!
//! - A directory is here if and only if its token is held in PR or EX. One that was given back for another node's turn may be kept
//!   aside, where nothing finds it.
//! - What is here is the state after every change of this node's log, unflushed content excepted, which
//!   stands in [`crate::live`] and is laid over when asked for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use meta::{Body, Change, Child, Content, Cookie, Dirent, FileKind, Inode, InodeAttr};
use rustc_hash::{FxHashMap, FxHashSet};
use types::{Charge, Ino, Micros, Name};

use crate::atime::Atimes;
use crate::going::Going;
use crate::late::Learnt;
use crate::unlinked::Unlinked;

/// A cached directory.
#[derive(Debug)]
pub struct DirCache {
    /// Its own record.
    pub inode: Inode,
    /// Its entries by place, changed by [`DirCache::put`] and [`DirCache::take`] alone.
    pub entries: BTreeMap<Cookie, CachedEntry>,
    /// Every entry up to here is cached; [`LOADED_ALL`] if the directory is complete.
    pub loaded_to: u64,
    /// Whether the next range was asked for.
    pub loading: bool,
    /// Names that do not exist and of which the kernel was told so for as long as it likes.
    pub negatives: FxHashSet<Name>,
    /// What the kernel may have cached of the directory itself.
    pub kernel_has: KernelHas,
    /// Until then names go out for one use only, because another node changes them.
    pub busy_until: Micros,
    /// When a local operation used the directory last.
    pub used_at: Micros,
    /// Forgets since then.
    pub forgets_unused: u32,
    /// Those of its entries that are directories.
    pub subdirectories: BTreeMap<Cookie, Ino>,
    /// Bytes of its entries, about.
    pub bytes: usize,
    /// Whether it was brought along for a walk that has not come here yet.
    pub ahead: bool,
    /// Where turns are taken: of which of its entries the kernel may have anything. `None`: of any.
    pub told: Option<Box<FxHashSet<Cookie>>>,
    /// Entries that are not at the first place of their hash: with none a search is a look at that place.
    displaced: usize,
}

/// What the kernel may have cached of a directory itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelHas {
    /// Nothing.
    #[default]
    Nothing,
    /// Its attributes: to take them back waits for nobody.
    Attributes,
    /// Its listing too.
    Listing,
}

/// The directory is complete.
pub const LOADED_ALL: u64 = u64::MAX;

/// A cached entry.
#[derive(Debug)]
pub struct CachedEntry {
    /// The entry.
    pub dirent: Dirent,
    /// Whether the kernel may keep the name.
    pub name_out: bool,
}

impl CachedEntry {
    /// Its inode, and whether the record of that is here.
    pub fn ino_and_covered(&self) -> (Ino, bool) {
        (self.dirent.ino, self.dirent.covered().is_some())
    }

    /// Bytes it takes, about.
    fn weight(&self) -> usize {
        let inode = self.dirent.covered().map_or(0, |inode| {
            INODE_BYTES
                + match &inode.content.body {
                    Body::Inline { data } => data.len(),
                    Body::Extents { map } => map.len() * EXTENT_BYTES,
                    Body::Target { path } => path.len(),
                    Body::Empty {} | Body::Paged { .. } => 0,
                }
        });
        ENTRY_BYTES + self.dirent.name.as_bytes().len() + inode
    }
}

/// Memory of an entry, of a record in it, and of an extent, about.
const ENTRY_BYTES: usize = 128;
const INODE_BYTES: usize = 256;
const EXTENT_BYTES: usize = 48;
/// One in so many entries is worth a list of them, and so many are in any case.
const TOLD_SHARE: usize = 4;
const TOLD_MIN: usize = 4_096;

/// Cached halves of an uncovered inode that is no directory.
#[derive(Debug, Default)]
pub struct OwnCache {
    /// The names' half, while its token is held.
    pub attr: Option<InodeAttr>,
    /// The content, while its token is held.
    pub content: Option<Content>,
    /// Whom it is charged to, from when the names' half went until the content is given back, in part even: whoever changes that takes it.
    pub charge: Option<Charge>,
}

impl OwnCache {
    /// Whom it is charged to, as far as is known.
    pub fn charge(&self) -> Option<Charge> {
        self.attr.as_ref().map(InodeAttr::charge).or(self.charge)
    }
}

/// Outcome of a search in a cached directory.
#[derive(Debug)]
pub enum Found<'a> {
    /// The entry.
    Entry(Cookie, &'a CachedEntry),
    /// There is none; it would go here.
    Absent(Cookie),
    /// The part of the directory is not loaded.
    NotLoaded,
    /// There is none, and all places of its hash are taken.
    NoPlace,
}

impl DirCache {
    /// A directory as a grant brings it.
    pub fn new(inode: Inode, now: Micros) -> Self {
        Self {
            inode,
            entries: BTreeMap::new(),
            loaded_to: 0,
            loading: false,
            negatives: FxHashSet::default(),
            kernel_has: KernelHas::Nothing,
            busy_until: Micros(0),
            used_at: now,
            forgets_unused: 0,
            subdirectories: BTreeMap::new(),
            bytes: 0,
            ahead: false,
            told: None,
            displaced: 0,
        }
    }

    /// Puts an entry at a place; returns the one that was there.
    fn put(&mut self, cookie: Cookie, entry: CachedEntry) -> Option<CachedEntry> {
        let old = self.entries.insert(cookie, entry);
        self.displaced += usize::from(old.is_none() && is_displaced(cookie));
        old
    }

    /// Takes the entry at a place away.
    fn take(&mut self, cookie: Cookie) -> Option<CachedEntry> {
        let old = self.entries.remove(&cookie);
        self.displaced -= usize::from(old.is_some() && is_displaced(cookie));
        old
    }

    /// The kernel may have something of the entry at a place.
    pub fn note_told(&mut self, cookie: Cookie) {
        let Some(told) = &mut self.told else { return };
        told.insert(cookie);
        // Of most of them, or of ones that are gone: to look at all is no more work.
        if told.len() > self.entries.len() / TOLD_SHARE + TOLD_MIN {
            self.told = None;
        }
    }

    /// Entries of which the kernel may have something.
    pub fn told_entries(&self) -> Box<dyn Iterator<Item = &CachedEntry> + '_> {
        match &self.told {
            None => Box::new(self.entries.values()),
            Some(told) => Box::new(told.iter().filter_map(|cookie| self.entries.get(cookie))),
        }
    }

    /// Whether every entry is here.
    pub fn is_complete(&self) -> bool {
        self.loaded_to == LOADED_ALL
    }

    /// Looks for a name with this hash.
    pub fn find(&self, hash: u64, name: &Name) -> Found<'_> {
        let (first, last) = Cookie::range_of(hash);
        if self.displaced == 0 && self.loaded_to >= last.0 {
            return match self.entries.get(&first) {
                Some(entry) if entry.dirent.name == *name => Found::Entry(first, entry),
                Some(_) => Found::Absent(Cookie(first.0 + 1)),
                None => Found::Absent(first),
            };
        }
        let mut free = first;
        for (cookie, entry) in self.entries.range(first..=last) {
            if entry.dirent.name == *name {
                return Found::Entry(*cookie, entry);
            }
            if *cookie == free {
                free = Cookie(free.0 + 1);
            }
        }
        if self.loaded_to < last.0 {
            Found::NotLoaded
        } else if free >= last {
            Found::NoPlace
        } else {
            Found::Absent(free)
        }
    }
}

fn is_displaced(cookie: Cookie) -> bool {
    cookie != Cookie::range_of(cookie.hash()).0
}

/// Inodes of the entries that were taken away last, and whether the kernel may keep the names that they had.
#[derive(Debug, Default)]
pub(crate) struct TakenNames(VecDeque<(Ino, bool)>);

impl TakenNames {
    fn note(&mut self, old: &CachedEntry) {
        self.0.push_back((old.dirent.ino, old.name_out));
        if self.0.len() > TAKEN_MAX {
            self.0.pop_front();
        }
    }

    /// Whether the kernel may keep the name that an inode had before the change, just applied, that gave it another. True if that is not known.
    pub fn was_out(&self, ino: Ino) -> bool {
        self.0.iter().rev().find(|(taken, _)| *taken == ino).is_none_or(|(_, name_out)| *name_out)
    }
}

/// More than one change takes away.
const TAKEN_MAX: usize = 8;

/// The cache of a node.
#[derive(Debug, Default)]
pub struct Cache {
    /// Directories held. Apart from the table, which is empty to a third.
    pub dirs: FxHashMap<Ino, Box<DirCache>>,
    /// Directories given back for another node's turn, as they were then, and since when. Nothing is served from them.
    pub(crate) aside: FxHashMap<Ino, (Box<DirCache>, Micros)>,
    /// Other uncovered inodes held.
    pub owns: FxHashMap<Ino, Box<OwnCache>>,
    /// Where the names of cached directories' subdirectories are.
    pub parents: FxHashMap<Ino, (Ino, Cookie)>,
    /// Whether there was ever anything.
    pub(crate) has_contests: bool,
    /// Bytes of all cached entries, about.
    pub bytes: usize,
    /// When to look again for what can be given up.
    pub trim_due: Micros,
    /// The walk that goes through it.
    pub walk: crate::walk::Walk,
    /// The walk that goes through files which no directory covers.
    pub file_walk: crate::onlookers::FileWalk,
    /// Names that were taken away.
    pub(crate) taken: TakenNames,
    /// How another node goes through a directory that is read here.
    pub(crate) sweep: crate::left::Sweep,
    /// Where the kernel was told of such files last. Of those that it knows.
    pub seen_at: FxHashMap<Ino, crate::onlookers::Seen>,
    /// What was asked for last before the walk had come there.
    pub walk_asked: Option<wire::Want>,
    /// Inodes whose entry was taken away or given to another since they were last asked for, and where it was.
    pub left: Vec<(Ino, Place)>,
    /// Inodes that have a new place since then. One that is in both lists has moved here.
    pub moved: Vec<(Ino, Place)>,
    /// Records that went away since then, of inodes that may be gone.
    pub departed: Vec<(Ino, Arc<Inode>)>,
    /// Access times newer than the records.
    pub(crate) atimes: Atimes,
    /// What files that other nodes write were like a moment ago, with `lazysize`.
    pub(crate) learnt: FxHashMap<Ino, Learnt>,
    /// Orphans that nobody else can have open: they never had a name, or lost it while a directory held here covered
    /// them, and no other node has asked for them since.
    pub(crate) sole_orphans: FxHashSet<Ino>,
    /// Inodes with links that the kernel may not have counted down yet.
    pub(crate) unlinked: Unlinked,
    pub(crate) going: Going,
    /// Inodes known when the gauges were last set.
    pub(crate) inodes_counted: u64,
    /// Entries in all directories.
    dentries: u64,
    /// Entries that came and went since [`Cache::take_turnover`].
    added: u64,
    removed: u64,
}

/// Where a node last saw an inode's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Embedded in an entry.
    Covered(Ino, Cookie),
    /// Under its own keys; or a directory.
    Own,
    /// Not known: the master must be asked.
    Unknown,
}

impl Cache {
    /// Applies one change to whatever of it is cached here; the rest is no business of this node.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::PutEntry { parent, cookie, entry } => self.put_entry(*parent, *cookie, entry),
            Change::DeleteEntry { parent, cookie, .. } => {
                if let Some(dir) = self.dirs.get_mut(parent)
                    && let Some(old) = dir.take(*cookie)
                {
                    self.taken.note(&old);
                    self.left.push((old.dirent.ino, Place::Covered(*parent, *cookie)));
                    if let Child::Covered { inode } = &old.dirent.child {
                        self.departed.push((old.dirent.ino, Arc::clone(inode)));
                    }
                    let weight = old.weight();
                    dir.bytes -= weight;
                    self.bytes -= weight;
                    if let Some(child) = dir.subdirectories.remove(cookie) {
                        self.forget_parent(child, *parent, *cookie);
                    }
                    self.note_turnover(0, 1);
                }
            }
            Change::PutDirectory { ino, inode } => {
                if let Some(dir) = self.dirs.get_mut(ino) {
                    dir.inode = (**inode).clone();
                }
            }
            Change::PutAttr { ino, attr } => {
                if let Some(own) = self.owns.get_mut(ino)
                    && own.attr.is_some()
                {
                    own.attr = Some(attr.clone());
                }
            }
            Change::PutContent { ino, content } => {
                self.learnt.remove(ino);
                if let Some(own) = self.owns.get_mut(ino)
                    && own.content.is_some()
                {
                    own.content = Some(content.clone());
                }
            }
            Change::DeleteInode { ino, .. } => {
                if let Some(dir) = self.drop_dir(*ino) {
                    self.departed.push((*ino, Arc::new(dir.inode)));
                }
                if let Some(OwnCache { attr: Some(attr), content: Some(content), .. }) =
                    self.owns.remove(ino).map(|own| *own)
                {
                    self.departed.push((*ino, Arc::new(Inode { attr, content })));
                }
                self.learnt.remove(ino);
            }
            Change::DeleteContent { ino } => {
                self.owns.remove(ino);
                self.learnt.remove(ino);
            }
            Change::PutPlacement { .. }
            | Change::PutExtentPage { .. }
            | Change::DeleteExtentPages { .. }
            | Change::PutXattrs { .. }
            | Change::PutOrphan { .. }
            | Change::DeleteOrphan { .. }
            | Change::AddUsage { .. }
            | Change::AddLive { .. }
            | Change::PutRedo { .. }
            | Change::DeleteRedo { .. }
            | Change::Owner { .. } => {}
        }
    }

    fn put_entry(&mut self, parent: Ino, cookie: Cookie, entry: &Dirent) {
        let Some(dir) = self.dirs.get_mut(&parent) else { return };
        if cookie.0 > dir.loaded_to {
            return;
        }
        let place = match &entry.child {
            Child::Covered { .. } => Place::Covered(parent, cookie),
            Child::Own { .. } => Place::Own,
        };
        if place != Place::Own {
            self.owns.remove(&entry.ino);
            self.learnt.remove(&entry.ino);
        }
        self.moved.push((entry.ino, place));
        if entry.kind() == FileKind::Directory {
            self.parents.insert(entry.ino, (parent, cookie));
            dir.subdirectories.insert(cookie, entry.ino);
        } else {
            dir.subdirectories.remove(&cookie);
        }
        dir.negatives.remove(&entry.name);
        dir.note_told(cookie);
        let name_out = dir
            .entries
            .get(&cookie)
            .is_some_and(|old| old.name_out && old.dirent.name == entry.name && old.dirent.ino == entry.ino);
        let entry_ino = entry.ino;
        let entry = CachedEntry { dirent: entry.clone(), name_out };
        let weight = entry.weight();
        let replaced = dir.put(cookie, entry);
        if let Some(old) = replaced.as_ref().filter(|old| old.dirent.ino != entry_ino)
            && self.parents.get(&old.dirent.ino) == Some(&(parent, cookie))
        {
            self.parents.remove(&old.dirent.ino);
        }
        if let Some(old) = &replaced {
            self.taken.note(old);
            self.left.push((old.dirent.ino, Place::Covered(parent, cookie)));
            // One that is replaced, or that was moved from here: then it has another name.
            if let (Child::Covered { inode }, true) = (&old.dirent.child, old.dirent.ino != entry_ino) {
                self.departed.push((old.dirent.ino, Arc::clone(inode)));
            }
        }
        let old = replaced.as_ref().map_or(0, CachedEntry::weight);
        dir.bytes = dir.bytes + weight - old;
        self.bytes = self.bytes + weight - old;
        self.note_turnover(1, usize::from(replaced.is_some()));
    }

    /// Drops a directory.
    pub fn drop_dir(&mut self, ino: Ino) -> Option<Box<DirCache>> {
        let dir = self.dirs.remove(&ino)?;
        Some(self.dropped(ino, dir))
    }

    /// Drops a directory that was set aside.
    pub fn drop_aside(&mut self, ino: Ino) -> Option<Box<DirCache>> {
        let (dir, _) = self.aside.remove(&ino)?;
        Some(self.dropped(ino, dir))
    }

    /// Sets a directory aside of which the kernel has nothing any more but of entries at places in `told`.
    pub fn set_aside(&mut self, ino: Ino, now: Micros, told: FxHashSet<Cookie>) {
        let Some(mut dir) = self.dirs.remove(&ino) else { return };
        dir.loading = false;
        dir.negatives.clear();
        dir.kernel_has = KernelHas::Nothing;
        dir.told = Some(Box::new(told));
        self.aside.insert(ino, (dir, now));
        self.has_contests = true;
    }

    /// Takes a directory back that was set aside. Returns since when it was; `None` if it is not there.
    pub fn take_back(&mut self, ino: Ino) -> Option<Micros> {
        let (dir, since) = self.aside.remove(&ino)?;
        self.dirs.insert(ino, dir);
        Some(since)
    }

    /// Puts a directory back where it was taken from.
    pub fn put_aside(&mut self, ino: Ino, since: Micros) {
        if let Some(dir) = self.dirs.remove(&ino) {
            self.aside.insert(ino, (dir, since));
        }
    }

    fn dropped(&mut self, ino: Ino, dir: Box<DirCache>) -> Box<DirCache> {
        self.bytes -= dir.bytes;
        if dir.ahead {
            self.walk.pass(false);
        }
        self.note_turnover(0, dir.entries.len());
        for (cookie, child) in &dir.subdirectories {
            self.forget_parent(*child, ino, *cookie);
        }
        dir
    }

    fn forget_parent(&mut self, child: Ino, parent: Ino, cookie: Cookie) {
        if self.parents.get(&child) == Some(&(parent, cookie)) {
            self.parents.remove(&child);
        }
    }

    /// Adds a range of entries to a directory. Returns the inodes it covers.
    pub fn add_entries(
        &mut self,
        ino: Ino,
        after: u64,
        entries: Vec<(Cookie, Dirent)>,
        complete: bool,
    ) -> BTreeSet<Ino> {
        let mut covered = BTreeSet::new();
        let Some(dir) = self.dirs.get_mut(&ino) else { return covered };
        if after != dir.loaded_to {
            return covered;
        }
        let before = dir.entries.len();
        let last = entries.last().map_or(after, |(cookie, _)| cookie.0);
        // Built as a whole, a map has full nodes; one by one in order it leaves half of each empty.
        let mut first = Vec::with_capacity(if before == 0 { entries.len() } else { 0 });
        for (cookie, dirent) in entries {
            let place = match &dirent.child {
                Child::Covered { .. } => Place::Covered(ino, cookie),
                Child::Own { .. } => Place::Own,
            };
            if place != Place::Own {
                self.learnt.remove(&dirent.ino);
            }
            covered.insert(dirent.ino);
            if dirent.kind() == FileKind::Directory {
                self.parents.insert(dirent.ino, (ino, cookie));
                dir.subdirectories.insert(cookie, dirent.ino);
            }
            self.moved.push((dirent.ino, place));
            let entry = CachedEntry { dirent, name_out: false };
            dir.note_told(cookie);
            let weight = entry.weight();
            let old = match before {
                0 => {
                    first.push((cookie, entry));
                    0
                }
                _ => dir.put(cookie, entry).map_or(0, |old| old.weight()),
            };
            dir.bytes = dir.bytes + weight - old;
            self.bytes = self.bytes + weight - old;
        }
        if before == 0 {
            dir.entries = first.into_iter().collect();
            dir.displaced = dir.entries.keys().filter(|cookie| is_displaced(**cookie)).count();
        }
        dir.loaded_to = if complete { LOADED_ALL } else { last };
        dir.loading = false;
        let added = dir.entries.len() - before;
        self.note_turnover(added, 0);
        covered
    }

    /// Empties it.
    pub fn clear(&mut self) {
        let removed = self.removed + self.dentries;
        *self = Self { added: self.added, removed, inodes_counted: self.inodes_counted, ..Self::default() };
    }

    /// Entries in all directories.
    pub fn dentries(&self) -> u64 {
        self.dentries
    }

    /// Entries that came, and that went, since the last call.
    pub fn take_turnover(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.added), std::mem::take(&mut self.removed))
    }

    fn note_turnover(&mut self, added: usize, removed: usize) {
        self.added += added as u64;
        self.removed += removed as u64;
        self.dentries = self.dentries + added as u64 - removed as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of few hashes come and go; a search finds what a look at every place finds.
    #[test]
    fn names_with_one_hash_are_told_apart() {
        let inode = Inode { attr: attr(), content: content() };
        let mut dir = DirCache::new(inode, Micros(0));
        dir.loaded_to = LOADED_ALL;
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..2_000 {
            let (hash, number) = (1 + next(3), next(4));
            let name = Name::new(format!("{hash}-{number}").as_bytes()).unwrap();
            let (first, last) = Cookie::range_of(hash);
            let is_there = dir.entries.iter().find(|(_, entry)| entry.dirent.name == name).map(|(c, _)| *c);
            let free = (first.0..last.0).map(Cookie).find(|cookie| !dir.entries.contains_key(cookie));
            match dir.find(hash, &name) {
                Found::Entry(cookie, _) => {
                    assert_eq!(Some(cookie), is_there);
                    _ = dir.take(cookie);
                }
                Found::Absent(cookie) => {
                    assert_eq!((None, Some(cookie)), (is_there, free));
                    let child = Child::Own { kind: FileKind::File };
                    let dirent = Dirent { name, ino: Ino(number + 10), child };
                    assert!(dir.put(cookie, CachedEntry { dirent, name_out: false }).is_none());
                }
                found => panic!("{found:?}"),
            }
            assert_eq!(dir.displaced, dir.entries.keys().filter(|cookie| is_displaced(**cookie)).count());
        }
    }

    fn attr() -> InodeAttr {
        let time = types::Timespec::default();
        InodeAttr {
            kind: FileKind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            tree: 0,
            nlink: 2,
            rdev: 0,
            generation: 1,
            parent: Ino::ROOT,
            btime: time,
            ctime: time,
            xattrs: meta::Xattrs::NONE,
        }
    }

    fn content() -> Content {
        let time = types::Timespec::default();
        Content { size: 0, mtime: time, atime: time, ctime: time, body: Body::Empty {} }
    }
}
