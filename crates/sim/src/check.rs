//! What the engine and the segments hold, read without any node, and whether it is whole.

use std::collections::{BTreeMap, BTreeSet};

use chunk::{ExtentMap, MemStore};
use kv::{Direction, Engine, KeyRange, ScanLimit};
use meta::{
    Body, Child, Content, Cookie, Dirent, FileKind, InodeAttr, Key, OrphanRecord, SegmentRecord, StoredInode,
    Totals, UsageCount, UsageRecord,
};
use types::{Ino, SegmentId};

/// All metadata of a volume.
#[derive(Debug, Default)]
pub struct Tree {
    entries: BTreeMap<(Ino, Cookie), Dirent>,
    inodes: BTreeMap<Ino, StoredInode>,
    contents: BTreeMap<Ino, Content>,
    pages: BTreeMap<(Ino, u64), ExtentMap>,
    orphans: BTreeMap<Ino, OrphanRecord>,
    segments: BTreeMap<SegmentId, SegmentRecord>,
    totals: Totals,
    usage: UsageCount,
}

impl Tree {
    /// Reads everything.
    pub fn read(engine: &dyn Engine) -> Self {
        let range = KeyRange::new(vec![0], vec![0xff; 32]);
        let limit = ScanLimit { entries: usize::MAX, bytes: usize::MAX };
        let page = engine.scan(&range, limit, Direction::Forward).expect("the engine reads");
        let mut tree = Self::default();
        for (key, value) in page.entries {
            tree.take(&key, &value);
        }
        tree
    }

    fn take(&mut self, key: &[u8], value: &[u8]) {
        match Key::from_slice(key) {
            Some(Key::Entry(dir, cookie)) => drop(self.entries.insert((dir, cookie), decode(key, value))),
            Some(Key::Inode(ino)) => drop(self.inodes.insert(ino, decode(key, value))),
            Some(Key::Content(ino)) => drop(self.contents.insert(ino, decode(key, value))),
            Some(Key::ExtentPage(ino, page)) => drop(self.pages.insert((ino, page), decode(key, value))),
            Some(Key::Orphan(ino)) => drop(self.orphans.insert(ino, decode(key, value))),
            Some(Key::Segment(segment)) => drop(self.segments.insert(segment, decode(key, value))),
            Some(Key::Totals) => self.totals = decode(key, value),
            Some(Key::Usage(account)) => {
                let usage: UsageRecord = decode(key, value);
                self.usage.0.insert(account, usage);
            }
            Some(
                Key::Limits(_)
                | Key::WideExtentPage(..)
                | Key::Xattrs(_)
                | Key::Member(_)
                | Key::OpResult(..)
                | Key::Redo(..)
                | Key::Volume,
            )
            | None => {}
        }
    }

    /// Names of a directory and their inodes.
    pub fn names(&self, dir: Ino) -> BTreeMap<Vec<u8>, Ino> {
        let range = (dir, Cookie(0))..=(dir, Cookie(u64::MAX));
        self.entries.range(range).map(|(_, e)| (e.name.as_bytes().to_vec(), e.ino)).collect()
    }

    /// All directories.
    pub fn directories(&self) -> Vec<Ino> {
        let is_dir = |stored: &StoredInode| matches!(stored, StoredInode::Directory { .. });
        self.inodes.iter().filter(|(_, s)| is_dir(s)).map(|(ino, _)| *ino).collect()
    }

    /// The names' half and the content of an inode.
    pub fn inode(&self, ino: Ino) -> Option<(InodeAttr, Content)> {
        match self.inodes.get(&ino)? {
            StoredInode::Directory { inode } => Some((inode.attr.clone(), inode.content.clone())),
            StoredInode::Own { attr } => Some((attr.clone(), self.contents.get(&ino)?.clone())),
            StoredInode::Covered { parent, cookie } => {
                let inode = self.entries.get(&(*parent, *cookie))?.covered()?;
                Some((inode.attr.clone(), inode.content.clone()))
            }
        }
    }

    /// The bytes of a file, with every checksum verified.
    pub fn data(&self, ino: Ino, store: &MemStore) -> Result<Vec<u8>, String> {
        let (_, content) = self.inode(ino).ok_or(format!("ino {ino} is not there"))?;
        let mut data = vec![0; content.size as usize];
        for map in self.maps(ino, &content) {
            for extent in map.iter() {
                let out = &mut data[extent.file_offset() as usize..extent.end() as usize];
                chunk::read_extent(store, ino, extent, extent.range(), out)
                    .map_err(|error| format!("ino {ino}: {error}"))?;
            }
        }
        if let Body::Inline { data: bytes } = &content.body {
            data[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(data)
    }

    fn maps(&self, ino: Ino, content: &Content) -> Vec<ExtentMap> {
        match &content.body {
            Body::Extents { map } => vec![map.clone()],
            Body::Paged { .. } => {
                self.pages.range((ino, 0)..=(ino, u64::MAX)).map(|(_, m)| m.clone()).collect()
            }
            Body::Empty {} | Body::Inline { .. } | Body::Target { .. } => Vec::new(),
        }
    }

    /// Everything that contradicts something else.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut links: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
        for ((dir, cookie), entry) in &self.entries {
            links.entry(entry.ino).or_default().push(*dir);
            if !matches!(self.inodes.get(dir), Some(StoredInode::Directory { .. })) {
                faults.push(format!("entry {:?} is in {dir}, which is no directory", entry.name));
            }
            let placed = match (&entry.child, self.inodes.get(&entry.ino)) {
                (Child::Covered { .. }, Some(StoredInode::Covered { parent, cookie: at })) => {
                    parent == dir && at == cookie
                }
                (Child::Own { kind }, Some(StoredInode::Directory { .. })) => *kind == FileKind::Directory,
                (Child::Own { kind }, Some(StoredInode::Own { attr })) => *kind == attr.kind,
                (_, _) => false,
            };
            if !placed {
                let inode = self.inodes.get(&entry.ino);
                faults.push(format!(
                    "entry {:?} of {dir} has ino {}, whose record is {inode:?}",
                    entry.name, entry.ino
                ));
            }
        }
        for ino in self.inodes.keys() {
            self.check_inode(*ino, links.get(ino).map_or(&[], Vec::as_slice), &mut faults);
        }
        self.check_strays(&mut faults);
        self.check_sums(&mut faults);
        faults
    }

    fn check_inode(&self, ino: Ino, parents: &[Ino], faults: &mut Vec<String>) {
        let Some((attr, _)) = self.inode(ino) else {
            return faults.push(format!("ino {ino} has half a record"));
        };
        if attr.kind == FileKind::Directory {
            let children = self.entries.range((ino, Cookie(0))..=(ino, Cookie(u64::MAX)));
            let subdirectories = children.filter(|(_, e)| e.kind() == FileKind::Directory).count() as u32;
            if attr.nlink != 2 + subdirectories {
                faults.push(format!(
                    "directory {ino} has {} links and {subdirectories} subdirectories",
                    attr.nlink
                ));
            }
            if ino != Ino::ROOT && parents != [attr.parent] {
                faults.push(format!("directory {ino} of {} is named in {parents:?}", attr.parent));
            }
            return;
        }
        if attr.nlink as usize != parents.len() {
            faults.push(format!("ino {ino} has {} links and is named in {parents:?}", attr.nlink));
        }
        if attr.nlink == 1 && attr.parent.0 != 0 && parents != [attr.parent] {
            faults.push(format!("ino {ino} of {} is named in {parents:?}", attr.parent));
        }
        if (attr.nlink == 0) != self.orphans.contains_key(&ino) {
            faults.push(format!("ino {ino} has {} links; orphan: {:?}", attr.nlink, self.orphans.get(&ino)));
        }
    }

    /// Keys of inodes that are not there.
    fn check_strays(&self, faults: &mut Vec<String>) {
        for ino in self.contents.keys() {
            if !matches!(self.inodes.get(ino), Some(StoredInode::Own { .. })) {
                faults.push(format!("content of ino {ino} belongs to nothing"));
            }
        }
        for ino in self.orphans.keys().filter(|ino| !self.inodes.contains_key(ino)) {
            faults.push(format!("orphan {ino} is not there"));
        }
        let paged: BTreeSet<Ino> = self.pages.keys().map(|(ino, _)| *ino).collect();
        for ino in paged {
            let is_paged = |content: &Content| matches!(content.body, Body::Paged { .. });
            if !self.inode(ino).is_some_and(|(_, content)| is_paged(&content)) {
                faults.push(format!("pages of ino {ino} belong to nothing"));
            }
        }
    }

    fn check_sums(&self, faults: &mut Vec<String>) {
        if self.totals.inodes != self.inodes.len() as u64 {
            faults.push(format!(
                "{} inodes are counted, {} are there",
                self.totals.inodes,
                self.inodes.len()
            ));
        }
        let mut bytes = 0;
        let mut usage = UsageCount::default();
        let mut live: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for ino in self.inodes.keys() {
            let Some((attr, content)) = self.inode(*ino) else { continue };
            bytes += content.body.stored_bytes();
            usage.add(attr.charge(), content.body.stored_bytes());
            for extent in self.maps(*ino, &content).iter().flat_map(ExtentMap::iter) {
                *live.entry(extent.segment()).or_default() += u64::from(extent.len());
            }
        }
        if self.totals.bytes != bytes {
            faults.push(format!("{} bytes are counted, {bytes} are there", self.totals.bytes));
        }
        for (account, counted, found) in usage.differences(&self.usage) {
            faults.push(format!("{account}: {counted:?} is counted, {found:?} is there"));
        }
        let segments: BTreeSet<SegmentId> = self.segments.keys().chain(live.keys()).copied().collect();
        for segment in segments {
            let counted = self.segments.get(&segment).map_or(0, |s| s.live_bytes);
            let found = live.get(&segment).copied().unwrap_or(0);
            if counted != found {
                faults
                    .push(format!("segment {segment}: {counted} live bytes are counted, {found} are there"));
            }
        }
    }

    /// Inodes without a name.
    pub fn orphans(&self) -> Vec<Ino> {
        self.orphans.keys().copied().collect()
    }
}

fn decode<T: types::Decode>(key: &[u8], value: &[u8]) -> T {
    meta::value_decode(key, value).unwrap_or_else(|damage| panic!("{damage}"))
}
