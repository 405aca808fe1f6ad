//! Reads everything and compares it with its checksums, beside a running master if need be.
//!
//! Unlike a check it compares no record with another, so that it may run while they change; what is found bad is looked up
//! again before it is told, for it may be gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chunk::{ExtentMap, SegmentStore};
use kv::{Direction, Engine, KeyRange, Pace, RESERVED_KEY, ScanLimit};
use meta::{
    Body, Child, Content, Damage, Dirent, FileKind, Key, KeyText, Limits, MemberRecord, OrphanRecord,
    RedoRecord, ResultRecord, SegmentRecord, StoredInode, Totals, UsageRecord, VolumeRecord, value_decode,
};
use types::{Ino, Name};

use crate::CheckError;
use crate::data::{DataCheck, DataFaults, Extents, Named};
use crate::facts::{ino_of, is_sound_of_any_form};
use crate::report::{FaultKind, Report};
use crate::segments::Segments;
use crate::source::Source;

/// Whether others change the volume meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// It is nobody else's.
    None,
    /// A master commits, nodes write, segments go.
    Live,
}

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Damage, and what was read.
    pub report: Report,
    /// Whether it came to its end, and was not called off.
    pub is_complete: bool,
}

/// Reads all records and segments and the engine's own files. `pace` hears how much was read, waits as it likes, and may
/// call it off.
///
/// Takes about 100 bytes of memory for each extent.
///
/// # Errors
///
/// Those of the segment store as a whole. What cannot be read of the engine is a fault of the report.
pub fn scrub(
    engine: &dyn Engine,
    store: &dyn SegmentStore,
    neighbours: Neighbours,
    pace: &mut Pace<'_>,
) -> Result<Scrubbed, CheckError> {
    let mut report = Report::default();
    verify_engine(engine, pace, &mut report);
    let mut records = Records { report, ..Records::default() };
    let mut is_complete = records.read(engine, pace);
    let Records { mut report, extents, results_of_other_form, has_usage } = records;
    for (key, damage) in results_of_other_form.into_iter().filter(|_| has_usage) {
        report.add(FaultKind::Damaged, key, None, damage.to_string());
    }
    if is_complete {
        // Listed after the extents were: what they name is there.
        let stored = Segments::read(store)?;
        report.counts.segments = stored.iter().count() as u64;
        let is_named = |named: &Named| is_named(&engine, named);
        let is_live = neighbours == Neighbours::Live;
        let is_named = is_live.then_some(&is_named as _);
        let mut check = DataCheck { store, pace, is_named, faults: DataFaults::default() };
        is_complete = check.run(extents, &stored, &mut report)?;
        check.faults.report(&mut report);
    }
    is_complete &= name_paths(engine, pace, &mut report);
    Ok(Scrubbed { report, is_complete })
}

/// Has the engine read its own files.
pub(crate) fn verify_engine(engine: &dyn Engine, pace: &mut Pace<'_>, report: &mut Report) {
    let damage = engine.verify(pace).unwrap_or_else(|error| vec![error]);
    for error in damage {
        let key = KeyText(RESERVED_KEY.to_vec());
        report.add_raw(FaultKind::DamagedEngine, key, None, with_causes(&error));
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", with_causes(cause)),
        None => error.to_string(),
    }
}

#[derive(Default)]
struct Records {
    report: Report,
    extents: Extents,
    /// Damage unless an earlier version wrote them: the next mount removes them unread.
    results_of_other_form: Vec<(Key, Damage)>,
    /// Whether accounts are counted: an earlier version did not.
    has_usage: bool,
}

impl Records {
    /// Reads all records. Returns whether it came to the end.
    fn read(&mut self, engine: &dyn Engine, pace: &mut Pace<'_>) -> bool {
        // Kind by kind, so that what cannot be read hides only what is behind it of its own kind.
        for first in 0..=u8::MAX {
            let mut range =
                KeyRange::new(vec![first], if first == u8::MAX { vec![first; 32] } else { vec![first + 1] });
            loop {
                let page = match engine.scan(&range, PAGE, Direction::Forward) {
                    Ok(page) => page,
                    Err(error) => {
                        let what = format!("records from here on cannot be read: {}", with_causes(&error));
                        self.report.add_raw(FaultKind::Damaged, KeyText(range.start), None, what);
                        break;
                    }
                };
                let bytes = page.entries.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
                if let Some((last, _)) = page.entries.last() {
                    range = range.rest_after(last, Direction::Forward);
                }
                page.entries.iter().for_each(|(key, value)| self.take(key, value));
                if !pace(bytes as u64) {
                    return false;
                }
                if !page.more {
                    break;
                }
            }
        }
        true
    }

    fn take(&mut self, key: &[u8], value: &[u8]) {
        self.report.counts.keys += 1;
        if key == RESERVED_KEY {
            return;
        }
        let Some(typed) = Key::from_slice(key) else {
            let what = "no record has it".to_owned();
            return self.report.add_raw(FaultKind::UnknownKey, KeyText(key.to_vec()), None, what);
        };
        self.count(typed);
        match extents_of(typed, key, value) {
            Ok(None) => {}
            Ok(Some((ino, map))) => {
                for extent in map.iter() {
                    self.report.counts.extents += 1;
                    let named = Named { key: typed, ino, extent: extent.clone() };
                    self.extents.entry(extent.segment()).or_default().push(named);
                }
            }
            Err(damage) if matches!(typed, Key::OpResult(..)) && is_sound_of_any_form(key, value) => {
                self.results_of_other_form.push((typed, damage));
            }
            Err(damage) => {
                let text = KeyText(key.to_vec());
                self.report.add_raw(FaultKind::Damaged, text, ino_of(typed), damage.to_string());
            }
        }
    }

    fn count(&mut self, key: Key) {
        self.has_usage |= matches!(key, Key::Usage(_));
        let counts = &mut self.report.counts;
        match key {
            Key::Entry(..) => counts.names += 1,
            Key::Inode(_) => counts.inodes += 1,
            Key::Orphan(_) => counts.orphans += 1,
            Key::Member(_) => counts.members += 1,
            Key::Content(_)
            | Key::ExtentPage(..)
            | Key::WideExtentPage(..)
            | Key::Xattrs(_)
            | Key::OpResult(..)
            | Key::Segment(_)
            | Key::Totals
            | Key::Usage(_)
            | Key::Limits(_)
            | Key::Redo(..)
            | Key::Volume => {}
        }
    }
}

/// Decodes a record, whatever it is, and gives the extents that it holds.
fn extents_of(typed: Key, key: &[u8], value: &[u8]) -> Result<Option<(Ino, ExtentMap)>, Damage> {
    let of_content = |ino: Ino, content: Content| match content.body {
        Body::Extents { map } => Some((ino, map)),
        Body::Empty {} | Body::Inline { .. } | Body::Paged { .. } | Body::Target { .. } => None,
    };
    Ok(match typed {
        Key::Entry(..) => {
            let entry: Dirent = value_decode(key, value)?;
            match entry.child {
                Child::Covered { inode } => of_content(entry.ino, Arc::unwrap_or_clone(inode).content),
                Child::Own { .. } => None,
            }
        }
        Key::Content(ino) => of_content(ino, value_decode(key, value)?),
        Key::ExtentPage(ino, _) | Key::WideExtentPage(ino, _) => Some((ino, value_decode(key, value)?)),
        Key::Inode(_) => value_decode::<StoredInode>(key, value).map(|_| None)?,
        Key::Xattrs(_) => value_decode::<Vec<(Name, Box<[u8]>)>>(key, value).map(|_| None)?,
        Key::Orphan(_) => value_decode::<OrphanRecord>(key, value).map(|_| None)?,
        Key::Member(_) => value_decode::<MemberRecord>(key, value).map(|_| None)?,
        Key::OpResult(..) => value_decode::<ResultRecord>(key, value).map(|_| None)?,
        Key::Segment(_) => value_decode::<SegmentRecord>(key, value).map(|_| None)?,
        Key::Totals => value_decode::<Totals>(key, value).map(|_| None)?,
        Key::Usage(_) => value_decode::<UsageRecord>(key, value).map(|_| None)?,
        Key::Limits(_) => value_decode::<Limits>(key, value).map(|_| None)?,
        Key::Volume => value_decode::<VolumeRecord>(key, value).map(|_| None)?,
        Key::Redo(..) => value_decode::<RedoRecord>(key, value).map(|_| None)?,
    })
}

/// Whether the record still names the extent: files are overwritten and removed, and the cleaner moves their bytes. A record that
/// has moved names it elsewhere: then it is missed this time.
pub(crate) fn is_named(source: &dyn Source, named: &Named) -> Result<bool, CheckError> {
    let key = named.key.to_vec();
    let Some(value) = source.get(&key)? else { return Ok(false) };
    let Ok(Some((ino, map))) = extents_of(named.key, &key, &value) else { return Ok(false) };
    Ok(ino == named.ino && map.iter().any(|extent| *extent == named.extent))
}

/// Finds a path for each inode that a fault names. Returns whether it came to the end.
fn name_paths(engine: &dyn Engine, pace: &mut Pace<'_>, report: &mut Report) -> bool {
    let wanted: BTreeSet<Ino> = report.faults.iter().filter_map(|fault| fault.ino).collect();
    if wanted.is_empty() {
        return true;
    }
    let mut names: BTreeMap<Ino, (Ino, Name)> = BTreeMap::new();
    let (start, end) = Key::range_of_kind(meta::KeyKind::Entry);
    let (mut range, mut is_complete) = (KeyRange::new(start, end), true);
    // What cannot be read was told already: some paths stay unknown.
    while let Ok(page) = engine.scan(&range, PAGE, Direction::Forward) {
        for (key, value) in &page.entries {
            if let (Some(Key::Entry(dir, _)), Ok(entry)) =
                (Key::from_slice(key), value_decode::<Dirent>(key, value))
                && (entry.kind() == FileKind::Directory || wanted.contains(&entry.ino))
            {
                names.entry(entry.ino).or_insert((dir, entry.name));
            }
        }
        let bytes = page.entries.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        is_complete = pace(bytes as u64);
        match page.entries.last() {
            Some((last, _)) if page.more && is_complete => range = range.rest_after(last, Direction::Forward),
            _ => break,
        }
    }
    for fault in &mut report.faults {
        fault.path = fault.ino.and_then(|ino| path_of(&names, ino));
    }
    is_complete
}

fn path_of(names: &BTreeMap<Ino, (Ino, Name)>, ino: Ino) -> Option<String> {
    let (mut at, mut path) = (ino, String::new());
    for _ in 0..crate::rules::DEPTH_MAX {
        if at == Ino::ROOT {
            return Some(if path.is_empty() { "/".to_owned() } else { path });
        }
        let (dir, name) = names.get(&at)?;
        path = format!("/{}{path}", String::from_utf8_lossy(name.as_bytes()));
        at = *dir;
    }
    None
}

const PAGE: ScanLimit = ScanLimit { entries: 4096, bytes: 1 << 20 };
