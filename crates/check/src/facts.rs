//! Everything that the engine holds, read once and boiled down to what the rules compare.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use chunk::{Extent, ExtentMap, SegmentStore};
use kv::{Engine, Pace, RESERVED_KEY};
use meta::{
    Body, Child, Content, Cookie, CookieKey, Damage, Dirent, FileKind, InodeAttr, Key, KeyText, Limits,
    MemberRecord, OrphanRecord, RedoRecord, ResultRecord, SegmentRecord, StoredInode, Totals, UsageCount,
    UsageRecord, VolumeRecord, Xattrs, value_decode, value_decode_raw,
};
use types::{Account, Charge, Decode, Ino, Name, NodeId, SegmentId};

use crate::CheckError;
use crate::data::{DataCheck, DataFaults, Extents, Named};
use crate::report::{FaultKind, Report};
use crate::scrub::{is_named, verify_engine};
use crate::segments::Segments;
use crate::source::Source;

/// What to compare with.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// The volume's key for name hashes; without it places of entries are not checked.
    pub cookie_key: Option<CookieKey>,
    /// The file data; without it only records are checked.
    pub store: Option<&'a dyn SegmentStore>,
    /// Whether all file data is read and compared with its sums.
    pub reads_data: bool,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Facts {
    pub(crate) report: Report,
    pub(crate) volume: Option<VolumeRecord>,
    pub(crate) totals: Option<Totals>,
    pub(crate) usage: UsageCount,
    /// Whether accounts are counted: an earlier version did not.
    pub(crate) has_usage: bool,
    /// Those whose record cannot be read.
    pub(crate) damaged_inodes: BTreeSet<Ino>,
    /// Sums that cannot be read.
    pub(crate) damaged_sums: BTreeSet<Key>,
    pub(crate) nodes: BTreeMap<Ino, Node>,
    pub(crate) orphans: BTreeMap<Ino, Vec<NodeId>>,
    pub(crate) members: BTreeMap<NodeId, MemberRecord>,
    pub(crate) segments: BTreeMap<SegmentId, SegmentRecord>,
    pub(crate) live: BTreeMap<SegmentId, u64>,
    pub(crate) stored: Segments,
    data_faults: DataFaults,
    /// To be looked at in the end: where all data are read, or others write meanwhile.
    extents: Extents,
    /// Damage unless an earlier version wrote them: the next mount removes them unread.
    results_of_other_form: Vec<(Key, Damage)>,
    bucket: Bucket,
    has_volume: bool,
    has_totals: bool,
    /// Whether others write meanwhile.
    is_live: bool,
}

/// All that is known of one inode number.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Its record says.
    pub record: Option<Record>,
    /// Entries that name it.
    pub names: u32,
    /// One of them.
    pub name: Option<(Ino, Cookie)>,
    /// The entry that holds its record.
    pub covering: Option<(Ino, Cookie)>,
    /// What its entries take it for.
    pub entry_kind: Option<FileKind>,
    /// The names' half, wherever it was.
    pub attr: Option<Attr>,
    /// Entries that are directories.
    pub subdirectories: u32,
    /// Whether an entry names it as the directory that it is in.
    pub has_entries: bool,
    /// Its content.
    pub body: Option<Stored>,
    pub has_content_key: bool,
    pub has_xattrs_key: bool,
    pub pages: u32,
    pub pages_bytes: u64,
}

/// Value of an inode key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Covered(Ino, Cookie),
    Directory,
    Own,
}

/// What is compared of a names' half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr {
    pub kind: FileKind,
    pub charge: Charge,
    pub nlink: u32,
    pub parent: Ino,
    pub is_spilled: bool,
}

/// What is compared of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub bytes: u64,
    pub is_paged: bool,
    pub form: Form,
}

/// What may hold a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All but symlinks: it has no bytes.
    Empty,
    /// Files.
    Bytes,
    /// Symlinks.
    Target,
}

/// Names with one hash in one directory, as the scan passes them.
#[derive(Debug, Default)]
struct Bucket {
    place: Option<(Ino, u64)>,
    names: Vec<Name>,
}

impl Facts {
    /// Reads everything from an engine that nobody else writes to.
    pub fn read(engine: &dyn Engine, options: &Options<'_>) -> Result<Self, CheckError> {
        Self::try_read_alone(engine, options).map_err(|error| match error {
            // The engine does not tell which of its files it was.
            CheckError::Engine(error) => match engine.verify(&mut |_| true) {
                Ok(damage) => CheckError::Engine(damage.into_iter().next().unwrap_or(error)),
                Err(named) => CheckError::Engine(named),
            },
            error => error,
        })
    }

    fn try_read_alone(engine: &dyn Engine, options: &Options<'_>) -> Result<Self, CheckError> {
        let mut facts = Self::default();
        if let Some(store) = options.store {
            facts.stored = Segments::read(store)?;
        }
        facts.read_records(&engine, options)?;
        if let Some(store) = options.store.filter(|_| options.reads_data) {
            let pace: &mut Pace<'_> = &mut |_| true;
            verify_engine(engine, pace, &mut facts.report);
            let faults = std::mem::take(&mut facts.data_faults);
            let mut check = DataCheck { store, pace, is_named: None, faults };
            check.run(std::mem::take(&mut facts.extents), &facts.stored, &mut facts.report)?;
            facts.data_faults = check.faults;
        }
        std::mem::take(&mut facts.data_faults).report(&mut facts.report);
        Ok(facts)
    }

    /// Reads a snapshot while others write.
    pub fn read_live(source: &dyn Source, options: &Options<'_>) -> Result<Self, CheckError> {
        let mut facts = Self { is_live: true, ..Self::default() };
        facts.read_records(source, options)?;
        if let Some(store) = options.store {
            // Listed after the extents were read: what they name is there, or was replaced.
            facts.stored = Segments::read(store)?;
            let is_named = |named: &Named| is_named(source, named);
            let faults = std::mem::take(&mut facts.data_faults);
            let mut check = DataCheck { store, pace: &mut |_| true, is_named: Some(&is_named), faults };
            let extents = std::mem::take(&mut facts.extents);
            match options.reads_data {
                true => _ = check.run(extents, &facts.stored, &mut facts.report)?,
                false => check.check_lengths(&extents, &facts.stored)?,
            }
            facts.data_faults = check.faults;
        }
        std::mem::take(&mut facts.data_faults).report(&mut facts.report);
        Ok(facts)
    }

    fn read_records(&mut self, source: &dyn Source, options: &Options<'_>) -> Result<(), CheckError> {
        // Bounds are checked as the records come, so what says them comes first. They only grow.
        let key = Key::Volume.to_vec();
        if let Some(value) = source.get(&key)? {
            self.volume = self.decode(&key, &value);
        }
        source.each(&mut |key, value| {
            self.take(key, value, options);
            true
        })?;
        for (key, damage) in std::mem::take(&mut self.results_of_other_form) {
            if self.has_usage {
                self.report.add(FaultKind::Damaged, key, None, damage.to_string());
            }
        }
        for (has_it, key) in [(self.has_volume, Key::Volume), (self.has_totals, Key::Totals)] {
            if !has_it {
                self.report.add(FaultKind::NoVolumeRecord, key, None, "it is missing".to_owned());
            }
        }
        Ok(())
    }

    fn decode<T: Decode>(&mut self, key: &[u8], value: &[u8]) -> Option<T> {
        match value_decode(key, value) {
            Ok(record) => Some(record),
            Err(damage) => {
                let typed = Key::from_slice(key);
                if let Some(Key::Inode(ino)) = typed {
                    self.damaged_inodes.insert(ino);
                }
                self.damaged_sums.extend(typed.filter(|key| is_sum(*key)));
                let ino = typed.and_then(ino_of);
                let text = KeyText(key.to_vec());
                self.report.add_raw(FaultKind::Damaged, text, ino, damage.to_string());
                None
            }
        }
    }

    fn node(&mut self, ino: Ino) -> &mut Node {
        self.nodes.entry(ino).or_default()
    }

    fn take(&mut self, key: &[u8], value: &[u8], options: &Options<'_>) {
        self.report.counts.keys += 1;
        if key == RESERVED_KEY {
            return;
        }
        let Some(typed) = Key::from_slice(key) else {
            let text = KeyText(key.to_vec());
            return self.report.add_raw(FaultKind::UnknownKey, text, None, "no record has it".to_owned());
        };
        match typed {
            Key::Entry(dir, cookie) => {
                self.node(dir).has_entries = true;
                if let Some(entry) = self.decode::<Dirent>(key, value) {
                    self.take_entry(dir, cookie, entry, options);
                }
            }
            Key::Inode(ino) => {
                self.report.counts.inodes += 1;
                let stored = self.decode::<StoredInode>(key, value);
                self.take_inode(ino, stored, options);
            }
            Key::Content(ino) => {
                self.node(ino).has_content_key = true;
                if let Some(content) = self.decode::<Content>(key, value) {
                    self.take_content(typed, ino, &content, options);
                }
            }
            Key::ExtentPage(ino, page) => {
                if let Some(map) = self.decode::<ExtentMap>(key, value) {
                    self.take_page(typed, ino, span_of(page, Body::PAGE_SPAN), &map, options);
                }
            }
            // Of an earlier version of the format; the next mount takes it over.
            Key::WideExtentPage(ino, page) => {
                if let Some(map) = self.decode::<ExtentMap>(key, value) {
                    self.take_page(typed, ino, span_of(page, Body::WIDE_PAGE_SPAN), &map, options);
                }
            }
            Key::Xattrs(ino) => {
                self.node(ino).has_xattrs_key = true;
                let list = self.decode::<Vec<(Name, Box<[u8]>)>>(key, value);
                self.check_xattrs(typed, ino, &list.unwrap_or_default());
            }
            Key::Orphan(ino) => self.take_orphan(key, value, ino),
            Key::Member(node) => {
                self.report.counts.members += 1;
                self.check_node(typed, node);
                if let Some(record) = self.decode::<MemberRecord>(key, value) {
                    self.members.insert(node, record);
                }
            }
            Key::OpResult(node, _) => {
                self.check_node(typed, node);
                self.take_result(key, value, typed);
            }
            Key::Segment(segment) => {
                self.report.counts.segments += 1;
                self.check_segment(typed, None, segment);
                if let Some(record) = self.decode(key, value) {
                    self.segments.insert(segment, record);
                }
            }
            Key::Usage(account) => self.take_usage(key, value, account),
            Key::Limits(_) => {
                let _: Option<Limits> = self.decode(key, value);
            }
            Key::Totals => {
                self.has_totals = true;
                self.totals = self.decode(key, value);
            }
            Key::Redo(segment, _) => {
                self.check_segment(typed, None, segment);
                let _: Option<RedoRecord> = self.decode(key, value);
            }
            // Decoded before.
            Key::Volume => self.has_volume = true,
        }
    }

    fn take_result(&mut self, key: &[u8], value: &[u8], typed: Key) {
        if !is_sound_of_any_form(key, value) {
            let _: Option<ResultRecord> = self.decode(key, value);
        } else if let Err(damage) = value_decode::<ResultRecord>(key, value) {
            self.results_of_other_form.push((typed, damage));
        }
    }

    fn take_usage(&mut self, key: &[u8], value: &[u8], account: Account) {
        self.has_usage = true;
        if let Some(usage) = self.decode::<UsageRecord>(key, value) {
            self.usage.0.insert(account, usage);
        }
    }

    fn take_orphan(&mut self, key: &[u8], value: &[u8], ino: Ino) {
        self.report.counts.orphans += 1;
        // One of an inode that is not there is found where that is.
        self.node(ino);
        if let Some(OrphanRecord { holders }) = self.decode(key, value) {
            self.orphans.insert(ino, holders);
        }
    }

    fn take_entry(&mut self, dir: Ino, cookie: Cookie, entry: Dirent, options: &Options<'_>) {
        self.report.counts.names += 1;
        let key = Key::Entry(dir, cookie);
        let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
        self.check_place(key, dir, cookie, &entry, &name, options);
        if entry.kind() == FileKind::Directory {
            self.node(dir).subdirectories += 1;
        }
        let kind = entry.kind();
        let node = self.node(entry.ino);
        node.names += 1;
        node.name.get_or_insert((dir, cookie));
        let is_other_kind = node.entry_kind.is_some_and(|known| known != kind);
        node.entry_kind.get_or_insert(kind);
        let is_second = node.covering.is_some();
        if is_other_kind {
            let what = format!("{name:?} takes ino {} for a {kind:?}", entry.ino);
            self.report.add(FaultKind::WrongKind, key, Some(entry.ino), what);
        }
        if let Child::Covered { inode } = &entry.child {
            if is_second {
                let what = format!("{name:?} holds ino {} as another entry does", entry.ino);
                return self.report.add(FaultKind::WrongPlace, key, Some(entry.ino), what);
            }
            if inode.attr.kind == FileKind::Directory {
                let what = format!("{name:?} holds the record of a directory");
                self.report.add(FaultKind::BadRecord, key, Some(entry.ino), what);
            }
            let node = self.node(entry.ino);
            node.covering = Some((dir, cookie));
            node.attr = Some(Attr::of(&inode.attr));
            self.check_embedded(key, entry.ino, &inode.attr);
            self.take_content(key, entry.ino, &inode.content, options);
        }
    }

    /// The hash of a name decides where its entry is, and no name is there twice.
    fn check_place(
        &mut self,
        key: Key,
        dir: Ino,
        cookie: Cookie,
        entry: &Dirent,
        name: &str,
        options: &Options<'_>,
    ) {
        let hash = options.cookie_key.map(|cookie_key| cookie_key.hash(entry.name.as_bytes()));
        if hash.is_some_and(|hash| hash != cookie.hash()) || cookie.0 & 0xff == 0xff {
            let what = format!("{name:?} belongs to another place");
            self.report.add(FaultKind::WrongCookie, key, Some(entry.ino), what);
        }
        if self.bucket.place != Some((dir, cookie.hash())) {
            self.bucket = Bucket { place: Some((dir, cookie.hash())), names: Vec::new() };
        }
        if self.bucket.names.contains(&entry.name) {
            let what = format!("{name:?} is there twice");
            self.report.add(FaultKind::DuplicateName, key, Some(entry.ino), what);
        }
        self.bucket.names.push(entry.name.clone());
    }

    fn take_inode(&mut self, ino: Ino, stored: Option<StoredInode>, options: &Options<'_>) {
        let key = Key::Inode(ino);
        let next = self.volume.map_or(u64::MAX, |volume| volume.next_inode);
        if ino != Ino::ROOT && (ino.0 >= next || ino.0 == 0) {
            let what = format!("inode numbers are given out up to {next}");
            self.report.add(FaultKind::OutOfBounds, key, Some(ino), what);
        }
        match stored {
            None => {}
            Some(StoredInode::Covered { parent, cookie }) => {
                self.node(ino).record = Some(Record::Covered(parent, cookie));
            }
            Some(StoredInode::Directory { inode }) => {
                self.report.counts.directories += 1;
                self.node(ino).record = Some(Record::Directory);
                self.node(ino).attr = Some(Attr::of(&inode.attr));
                self.check_embedded(key, ino, &inode.attr);
                if inode.attr.kind != FileKind::Directory {
                    let what = format!("a {:?} is stored as a directory", inode.attr.kind);
                    self.report.add(FaultKind::BadRecord, key, Some(ino), what);
                }
                self.take_content(key, ino, &inode.content, options);
            }
            Some(StoredInode::Own { attr }) => {
                if attr.kind == FileKind::Directory {
                    let what = "a directory is stored as something else".to_owned();
                    self.report.add(FaultKind::BadRecord, key, Some(ino), what);
                }
                let node = self.node(ino);
                node.record = Some(Record::Own);
                // That of a covering entry is reported as misplaced.
                node.attr = Some(Attr::of(&attr));
                self.check_embedded(key, ino, &attr);
            }
        }
    }

    fn check_embedded(&mut self, key: Key, ino: Ino, attr: &InodeAttr) {
        if let Xattrs::Embedded { list } = &attr.xattrs {
            self.check_xattrs(key, ino, list);
        }
    }

    fn check_xattrs(&mut self, key: Key, ino: Ino, list: &[(Name, Box<[u8]>)]) {
        let is_ascending = list.is_sorted_by(|(one, _), (next, _)| one < next);
        if !is_ascending {
            let what = "its extended attributes are not in order, or one is there twice".to_owned();
            self.report.add(FaultKind::BadRecord, key, Some(ino), what);
        }
    }

    fn take_content(&mut self, key: Key, ino: Ino, content: &Content, options: &Options<'_>) {
        let stored = Stored {
            bytes: content.body.stored_bytes(),
            is_paged: matches!(content.body, Body::Paged { .. }),
            form: match &content.body {
                Body::Empty {} => Form::Empty,
                Body::Inline { .. } | Body::Extents { .. } | Body::Paged { .. } => Form::Bytes,
                Body::Target { .. } => Form::Target,
            },
        };
        let is_whole = match &content.body {
            Body::Inline { data } => data.len() as u64 <= content.size,
            Body::Target { path } => path.len() as u64 == content.size,
            Body::Empty {} | Body::Extents { .. } | Body::Paged { .. } => true,
        };
        if !is_whole {
            let what = format!("{} bytes are stored of a size of {}", stored.bytes, content.size);
            self.report.add(FaultKind::BadRecord, key, Some(ino), what);
        }
        self.node(ino).body.get_or_insert(stored);
        if let Body::Extents { map } = &content.body {
            self.take_map(key, ino, map, options);
        }
    }

    fn take_page(&mut self, key: Key, ino: Ino, span: Range<u64>, map: &ExtentMap, options: &Options<'_>) {
        let is_outside = |extent: &Extent| extent.file_offset() < span.start || extent.end() > span.end;
        if map.is_empty() || map.iter().any(is_outside) {
            let what = "it is empty, or has extents of another page".to_owned();
            self.report.add(FaultKind::BadRecord, key, Some(ino), what);
        }
        let node = self.node(ino);
        node.pages += 1;
        node.pages_bytes += map.mapped_bytes();
        self.take_map(key, ino, map, options);
    }

    fn take_map(&mut self, key: Key, ino: Ino, map: &ExtentMap, options: &Options<'_>) {
        for extent in map.iter() {
            self.report.counts.extents += 1;
            let segment = extent.segment();
            *self.live.entry(segment).or_default() += u64::from(extent.len());
            self.check_segment(key, Some(ino), segment);
            if options.store.is_none() {
                continue;
            }
            let named = Named { key, ino, extent: extent.clone() };
            match options.reads_data || self.is_live {
                true => self.extents.entry(segment).or_default().push(named),
                false => _ = self.data_faults.check_length(&named, &self.stored),
            }
        }
    }

    fn check_segment(&mut self, key: Key, ino: Option<Ino>, segment: SegmentId) {
        let next = self.volume.map_or(u64::MAX, |volume| volume.next_segment);
        if segment.0 == 0 || segment.0 >= next {
            let what = format!("segment {segment} is named, and they are given out up to {next}");
            self.report.add(FaultKind::OutOfBounds, key, ino, what);
        }
    }

    fn check_node(&mut self, key: Key, node: NodeId) {
        let next = self.volume.map_or(u32::MAX, |volume| volume.next_node);
        if node.0 >= next {
            let what = format!("incarnations are given out up to {next}");
            self.report.add(FaultKind::OutOfBounds, key, None, what);
        }
    }
}

impl Attr {
    fn of(attr: &InodeAttr) -> Self {
        Self {
            kind: attr.kind,
            charge: attr.charge(),
            nlink: attr.nlink,
            parent: attr.parent,
            is_spilled: matches!(attr.xattrs, Xattrs::Spilled {}),
        }
    }
}

/// Bytes of a file that its page of this number describes.
fn span_of(page: u64, span: u64) -> Range<u64> {
    let start = page.saturating_mul(span);
    start..start.saturating_add(span)
}

/// Whether a value is the one that was written, whatever it says.
pub(crate) fn is_sound_of_any_form(key: &[u8], value: &[u8]) -> bool {
    value_decode_raw(key, value).is_ok()
}

/// Whether a record says nothing that others do not say together.
pub(crate) fn is_sum(key: Key) -> bool {
    match key {
        Key::Totals | Key::Usage(_) | Key::Segment(_) => true,
        Key::Entry(..) | Key::Inode(_) | Key::Content(_) | Key::Xattrs(_) | Key::Orphan(_) => false,
        Key::ExtentPage(..) | Key::WideExtentPage(..) | Key::Redo(..) => false,
        Key::Member(_) | Key::OpResult(..) | Key::Limits(_) | Key::Volume => false,
    }
}

/// The inode that a key is about.
pub(crate) fn ino_of(key: Key) -> Option<Ino> {
    match key {
        Key::Inode(ino)
        | Key::Content(ino)
        | Key::ExtentPage(ino, _)
        | Key::WideExtentPage(ino, _)
        | Key::Xattrs(ino)
        | Key::Orphan(ino) => Some(ino),
        Key::Entry(dir, _) => Some(dir),
        Key::Member(_) | Key::OpResult(..) | Key::Segment(_) | Key::Redo(..) => None,
        Key::Totals | Key::Usage(_) | Key::Limits(_) | Key::Volume => None,
    }
}
