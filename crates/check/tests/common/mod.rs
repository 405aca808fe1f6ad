//! A small volume with one of everything.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "not every test uses all of it")]

use std::sync::Arc;

use check::{Options, Report};
use chunk::{MemStore, SegmentWriter, WriterConfig};
use kv::{Batch, Claim, Engine, MemDisk, MemEngine};
use meta::ops::{NewInode, OpContext, XattrMode};
use meta::{
    Body, Change, Child, Content, Cookie, CookieKey, Dirent, FileKind, Inode, InodeAttr, Key, KeyValue, Op,
    StoreError, StoreRead, StoreView, StoredInode, VolumeRecord, value_decode, value_encode,
};
use types::{Decode, Encode, Epoch, Ino, Name, NodeId, SegmentId, Timespec};

pub const COOKIE_KEY: CookieKey = CookieKey([7; 16]);
pub const UUID: [u8; 16] = [5; 16];

pub const DIR: Ino = Ino(100);
pub const SUB: Ino = Ino(101);
pub const INLINE: Ino = Ino(102);
pub const EXTENTS: Ino = Ino(103);
pub const PAGED: Ino = Ino(104);
pub const LINKED: Ino = Ino(105);
pub const SYMLINK: Ino = Ino(106);
pub const SPILLED: Ino = Ino(107);
pub const ORPHAN: Ino = Ino(108);

pub struct Volume {
    pub disk: MemDisk,
    pub engine: MemEngine,
    pub store: MemStore,
    writer: SegmentWriter,
}

struct Reads<'a>(&'a MemEngine);

impl StoreRead for Reads<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(key).map_err(StoreError::new)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<KeyValue>, StoreError> {
        let limit = kv::ScanLimit { entries: limit, bytes: 1 << 20 };
        let page = self.0.scan(&kv::KeyRange::new(start, end), limit, kv::Direction::Forward);
        Ok(page.map_err(StoreError::new)?.entries)
    }
}

impl Volume {
    /// One of everything: see the constants.
    pub fn new() -> Self {
        let disk = MemDisk::new();
        let engine = disk.open(Claim::new(1)).unwrap();
        let store = MemStore::new();
        let config = WriterConfig::new(UUID, NodeId(1));
        let mut writer = SegmentWriter::new(config, std::sync::Arc::new(store.clone()));
        writer.add_segments((1..10).map(SegmentId));
        let mut volume = Self { disk, engine, store, writer };
        let record = VolumeRecord {
            epoch: Epoch(1),
            next_node: 2,
            next_inode: 1000,
            next_segment: 100,
            lease: types::Micros(0),
        };
        volume.put(Key::Volume, &record);
        volume.apply(&meta::initial_changes(Timespec::default(), 0, 0));
        volume.make(Ino::ROOT, b"dir", DIR, FileKind::Directory, b"");
        volume.make(DIR, b"sub", SUB, FileKind::Directory, b"");
        for (ino, name) in [
            (INLINE, "inline"),
            (EXTENTS, "extents"),
            (PAGED, "paged"),
            (LINKED, "linked"),
            (SPILLED, "spilled"),
        ] {
            volume.make(SUB, name.as_bytes(), ino, FileKind::File, b"");
        }
        volume.make(SUB, b"symlink", SYMLINK, FileKind::Symlink, b"to/nowhere");
        volume.write(INLINE, Body::Inline { data: b"small"[..].into() });
        let map = volume.append(EXTENTS, &[(0, 100_000), (200_000, 50_000)]);
        volume.write(EXTENTS, Body::Extents { map });
        volume.write_paged();
        volume.run(&Op::Link { ino: LINKED, parent: DIR, name: name(b"other") });
        volume.run(&Op::SetXattr {
            ino: SPILLED,
            name: name(b"user.large"),
            value: vec![1; 5000].into(),
            mode: XattrMode::Any,
            only_owner: None,
        });
        volume
    }

    /// A file without a name that node 1 had open.
    pub fn with_orphan() -> Self {
        let volume = Self::new();
        let new = new_inode(ORPHAN, FileKind::File, b"");
        volume.run(&Op::CreateOrphan { parent: DIR, new });
        volume
    }

    pub fn check(&self) -> Report {
        check::check(&self.engine, &self.options()).unwrap()
    }

    /// As one that is in use.
    pub fn check_live(&self) -> Report {
        let engine: &dyn kv::Engine = &self.engine;
        check::check_live(&engine, &self.options()).unwrap()
    }

    pub fn options(&self) -> Options<'_> {
        Options { cookie_key: Some(COOKIE_KEY), store: Some(&self.store), reads_data: true }
    }

    pub fn make(&self, parent: Ino, of: &[u8], ino: Ino, kind: FileKind, target: &[u8]) {
        let new = new_inode(ino, kind, target);
        self.run(&Op::Create { parent, name: name(of), new, split: false });
    }

    pub fn run(&self, op: &Op) {
        let holders = |_: Ino| vec![NodeId(1)];
        let reads = Reads(&self.engine);
        let view = StoreView::new(&reads, COOKIE_KEY, &holders);
        let context = OpContext { now: Timespec::default(), node: NodeId(1) };
        let plan = op.plan(&view, &context).unwrap();
        self.apply(&plan.changes);
    }

    pub fn apply(&self, changes: &[Change]) {
        let applied = meta::apply(changes, &Reads(&self.engine), NodeId(1)).unwrap();
        assert_eq!(applied.damage, []);
        self.commit(applied.writes);
    }

    pub fn commit(&self, writes: Vec<meta::Write>) {
        let mut batch = Batch::new(self.engine.last_seq().next());
        for (key, value) in writes {
            match value {
                Some(value) => batch.puts.push((key, value)),
                None => batch.deletes.push(key),
            }
        }
        self.engine.commit(batch).unwrap();
    }

    pub fn put(&self, key: Key, record: &impl Encode) {
        let key = key.to_vec();
        let value = value_encode(&key, record);
        self.commit(vec![(key, Some(value))]);
    }

    pub fn remove(&self, key: Key) {
        self.commit(vec![(key.to_vec(), None)]);
    }

    pub fn read<T: Decode>(&self, key: Key) -> T {
        let key = key.to_vec();
        value_decode(&key, &self.engine.get(&key).unwrap().expect("it is there")).unwrap()
    }

    /// Reads, changes and writes a record.
    pub fn edit<T: Decode + Encode>(&self, key: Key, edit: impl FnOnce(&mut T)) {
        let mut record: T = self.read(key);
        edit(&mut record);
        self.put(key, &record);
    }

    /// Where the record of a covered inode is.
    pub fn entry_of(&self, ino: Ino) -> Key {
        match self.read(Key::Inode(ino)) {
            StoredInode::Covered { parent, cookie } => Key::Entry(parent, cookie),
            other => panic!("{other:?} is not covered"),
        }
    }

    /// Where a name is.
    pub fn place_of(&self, dir: Ino, of: &[u8]) -> Key {
        Key::Entry(dir, Cookie(COOKIE_KEY.hash(of) << 8))
    }

    /// The record of a covered inode.
    pub fn edit_covered(&self, ino: Ino, edit: impl FnOnce(&mut Inode)) {
        self.edit(self.entry_of(ino), |entry: &mut Dirent| match &mut entry.child {
            Child::Covered { inode } => edit(Arc::make_mut(inode)),
            Child::Own { .. } => panic!("not covered"),
        });
    }

    /// The names' half of a directory.
    pub fn edit_directory(&self, ino: Ino, edit: impl FnOnce(&mut InodeAttr)) {
        self.edit(Key::Inode(ino), |stored: &mut StoredInode| match stored {
            StoredInode::Directory { inode } => edit(&mut inode.attr),
            other => panic!("{other:?} is no directory"),
        });
    }

    /// Stores ranges of a file, durably.
    pub fn append(&mut self, ino: Ino, ranges: &[(u64, usize)]) -> chunk::ExtentMap {
        let mut map = chunk::ExtentMap::new();
        for (offset, len) in ranges {
            for extent in self.writer.append(ino, *offset, &[&vec![ino.0 as u8; *len]]).unwrap() {
                let _ = map.insert(extent);
            }
        }
        let outcome = self.writer.sync_plan().run(&self.store);
        assert!(self.writer.on_synced(outcome).is_empty());
        map
    }

    fn live_changes(map: &chunk::ExtentMap) -> Vec<Change> {
        let live = map.iter().map(|e| Change::AddLive { segment: e.segment(), bytes: i64::from(e.len()) });
        live.collect()
    }

    pub fn write(&self, ino: Ino, body: Body) {
        let Key::Entry(parent, cookie) = self.entry_of(ino) else { unreachable!() };
        let mut entry: Dirent = self.read(Key::Entry(parent, cookie));
        let Child::Covered { inode } = &mut entry.child else { unreachable!() };
        let bytes = body.stored_bytes() as i64;
        let mut changes = match &body {
            Body::Extents { map } => Self::live_changes(map),
            _ => Vec::new(),
        };
        let inode = Arc::make_mut(inode);
        inode.content = Content { size: 300_000, body, ..inode.content.clone() };
        changes.push(Change::AddUsage { charge: inode.attr.charge(), bytes, inodes: 0 });
        changes.push(Change::PutEntry { parent, cookie, entry });
        self.apply(&changes);
    }

    fn write_paged(&mut self) {
        let span = Body::PAGE_SPAN;
        let mut mapped_bytes = 0;
        for page in [0, 3] {
            let map = self.append(PAGED, &[(page * span, 10_000), (page * span + 50_000, 10_000)]);
            mapped_bytes += map.mapped_bytes();
            let mut changes = Self::live_changes(&map);
            changes.push(Change::PutExtentPage { ino: PAGED, parent: SUB, page, map });
            self.apply(&changes);
        }
        self.write(PAGED, Body::Paged { mapped_bytes });
        self.edit_covered(PAGED, |inode| inode.content.size = 4 * span);
    }
}

pub fn name(bytes: &[u8]) -> Name {
    Name::new(bytes).unwrap()
}

pub fn new_inode(ino: Ino, kind: FileKind, target: &[u8]) -> NewInode {
    NewInode { ino, kind, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0, target: target.into() }
}
