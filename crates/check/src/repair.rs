//! Repairs that need no guess.
//!
//! Invariants:
//!
//! - Nothing is counted anew while a record that could count cannot be read. Sums do not count: they are what is counted.
//! - A segment goes only if every record was read, and none names it.

use std::sync::Arc;

use kv::{Batch, Engine, KeyRange, Pace};
use meta::ops::{Op, OpContext};
use meta::{
    Child, Dirent, Key, SegmentRecord, StoreView, StoredInode, UsageRecord, VolumeRecord, value_decode,
    value_encode,
};
use types::{Decode, Encode, Ino, NodeId, SegmentId, Timespec};

use crate::engine_store::EngineStore;
use crate::facts::{Facts, Node, Options, Record, is_sum};
use crate::report::{Fault, FaultKind, Report};
use crate::rules;
use crate::scrub::verify_engine;
use crate::{CheckError, check};

/// What a repair did, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What was done, a line each.
    pub done: Vec<String>,
    /// Why nothing was begun, or nothing more, if so.
    pub refused: Option<String>,
    /// The check afterwards.
    pub left: Report,
}

/// Repairs what needs no guess, durably. Nobody may have the volume mounted: members are taken to be gone.
///
/// # Errors
///
/// As [`check()`]; what was done before is whole.
pub fn repair(engine: &dyn Engine, options: &Options<'_>) -> Result<Repaired, CheckError> {
    let mut done = Vec::new();
    // What is to be decided is a matter of records. One reading of them all is in memory at a time.
    let records = Options { reads_data: false, ..*options };
    let mut found = check(engine, &records)?;
    if options.reads_data {
        let pace: &mut Pace<'_> = &mut |_| true;
        verify_engine(engine, pace, &mut found);
    }
    let refused = doubt_of(&found, options);
    drop(found);
    if refused.is_none() {
        reclaim(engine, options, &Facts::read(engine, &records)?, &mut done)?;
        if let Some(doubt) = doubt_of(&check(engine, &records)?, options) {
            engine.sync()?;
            return Ok(Repaired { done, refused: Some(doubt), left: check(engine, options)? });
        }
        let facts = Facts::read(engine, &records)?;
        count_links(engine, &facts, &mut done)?;
        count_sums(engine, &facts, &mut done)?;
        // A loss of power must not bring back what names a segment that is gone.
        engine.sync()?;
        remove_segments(engine, options, &facts, &mut done)?;
        engine.sync()?;
    }
    Ok(Repaired { done, refused, left: check(engine, options)? })
}

/// Why it is not certain that everything that could be counted was read, and says one thing only.
fn doubt_of(report: &Report, options: &Options<'_>) -> Option<String> {
    use FaultKind as K;
    let doubtful = [
        K::Damaged,
        K::DamagedEngine,
        K::UnknownKey,
        K::BadRecord,
        K::OutOfBounds,
        K::NoVolumeRecord,
        K::NoRoot,
        K::NoDirectory,
        K::DuplicateName,
        K::NoInode,
        K::WrongPlace,
        K::NoEntry,
        K::WrongKind,
        K::NoContent,
        K::Stray,
        K::WrongPages,
        K::NoXattrs,
    ];
    let is_counted_anew =
        |fault: &Fault| fault.kind == K::Damaged && Key::from_slice(&fault.key.0).is_some_and(is_sum);
    let is_doubtful = |fault: &&Fault| doubtful.contains(&fault.kind) && !is_counted_anew(fault);
    if let Some(fault) = report.faults.iter().find(is_doubtful) {
        return Some(format!("what is left cannot be told from it: {fault}"));
    }
    if report.more_faults > 0 {
        return Some(format!("there are {} faults more than are looked at", report.more_faults));
    }
    options.cookie_key.is_none().then(|| "the key of the name hashes is not known".to_owned())
}

/// Deletes inodes without names: nobody has them open. What is recorded as one and has a name, or a directory with entries, stays.
fn reclaim(
    engine: &dyn Engine,
    options: &Options<'_>,
    facts: &Facts,
    done: &mut Vec<String>,
) -> Result<(), CheckError> {
    let Some(cookie_key) = options.cookie_key else { return Ok(()) };
    let is_nameless = |node: &Node| node.names == 0 && !node.has_entries;
    for ino in facts.orphans.keys().filter(|ino| facts.nodes.get(ino).is_some_and(is_nameless)) {
        let failed = |what: String| CheckError::Repair { ino: *ino, what };
        let nobody = |_: Ino| Vec::new();
        let store = EngineStore(engine);
        let view = StoreView::new(&store, cookie_key, &nobody);
        let context = OpContext { now: Timespec::default(), node: NodeId(0) };
        let plan = Op::Reclaim { ino: *ino }.plan(&view, &context).map_err(|e| failed(format!("{e:?}")))?;
        let applied =
            meta::apply(&plan.changes, &store, NodeId(0)).map_err(|error| failed(error.to_string()))?;
        if applied.writes.is_empty() {
            continue;
        }
        let mut writes = applied.writes;
        writes.extend(wide_pages(engine, *ino)?.into_iter().map(|key| (key, None)));
        commit(engine, writes)?;
        done.push(format!("deleted ino {ino}, which had no name and was open nowhere"));
    }
    Ok(())
}

/// Keys of the pages that an inode has in the form of an earlier version, which a master never sees: whoever deletes it here deletes
/// them. What they give back of segments is counted afterwards.
fn wide_pages(engine: &dyn Engine, ino: Ino) -> Result<Vec<Vec<u8>>, CheckError> {
    let (start, end) = Key::wide_extent_pages(ino);
    let mut keys = Vec::new();
    kv::scan_all(engine, KeyRange::new(start, end), |(key, _)| keys.push(key))?;
    Ok(keys)
}

/// Writes links as there are names. What has a name is no orphan.
fn count_links(engine: &dyn Engine, facts: &Facts, done: &mut Vec<String>) -> Result<(), CheckError> {
    for (ino, node) in &facts.nodes {
        let Some(attr) = node.attr else { continue };
        let is_one = attr.kind != meta::FileKind::Directory || node.names <= 1;
        let Some(links) = rules::links_of(*ino, node, attr).filter(|links| *links != attr.nlink && is_one)
        else {
            continue;
        };
        // Without a name it would be lost with its content.
        if links == 0 {
            continue;
        }
        let Some(record) = with_links(engine, *ino, node, links)? else { continue };
        let mut writes = vec![record];
        if attr.nlink == 0 {
            writes.push((Key::Orphan(*ino).to_vec(), None));
        }
        commit(engine, writes)?;
        done.push(format!("ino {ino}: {links} links instead of {}", attr.nlink));
    }
    Ok(())
}

/// The record of an inode with other links, where it is; `None` where it cannot have them.
fn with_links(
    engine: &dyn Engine,
    ino: Ino,
    node: &Node,
    links: u32,
) -> Result<Option<meta::Write>, CheckError> {
    let record = match (node.record, node.covering) {
        (Some(Record::Directory | Record::Own), _) => {
            changed(engine, Key::Inode(ino), |stored: &mut StoredInode| match stored {
                StoredInode::Directory { inode } => inode.attr.nlink = links,
                StoredInode::Own { attr } => attr.nlink = links,
                StoredInode::Covered { .. } => {}
            })?
        }
        // One that an entry covers has no other names.
        (Some(Record::Covered(..)), Some((dir, cookie))) if links == 1 => {
            changed(engine, Key::Entry(dir, cookie), |entry: &mut Dirent| match &mut entry.child {
                Child::Covered { inode } => Arc::make_mut(inode).attr.nlink = links,
                Child::Own { .. } => {}
            })?
        }
        (Some(Record::Covered(..)) | None, _) => None,
    };
    Ok(record)
}

fn changed<T: Decode + Encode>(
    engine: &dyn Engine,
    key: Key,
    change: impl FnOnce(&mut T),
) -> Result<Option<meta::Write>, CheckError> {
    let key = key.to_vec();
    let Some(value) = engine.get(&key)? else { return Ok(None) };
    let Ok(mut record) = value_decode::<T>(&key, &value) else { return Ok(None) };
    change(&mut record);
    let value = value_encode(&key, &record);
    Ok(Some((key, Some(value))))
}

/// Writes sums as there are inodes and extents.
fn count_sums(engine: &dyn Engine, facts: &Facts, done: &mut Vec<String>) -> Result<(), CheckError> {
    let totals = rules::totals_of(facts);
    if facts.totals != Some(totals) {
        put(engine, Key::Totals, &totals)?;
        done.push(format!("totals: {} inodes with {} bytes", totals.inodes, totals.bytes));
    }
    if facts.has_usage {
        for (account, counted, found) in rules::usage_of(facts).differences(&facts.usage) {
            match found == UsageRecord::default() {
                true => commit(engine, vec![(Key::Usage(account).to_vec(), None)])?,
                false => put(engine, Key::Usage(account), &found)?,
            }
            done.push(format!(
                "{account}: {} bytes and {} inodes instead of {} and {}",
                found.bytes, found.inodes, counted.bytes, counted.inodes
            ));
        }
    }
    for key in &facts.damaged_sums {
        // Those that are not 0 are written like those that are missing.
        let is_zero = match key {
            Key::Usage(account) => !rules::usage_of(facts).0.contains_key(account),
            Key::Segment(segment) => !facts.live.contains_key(segment),
            _ => false,
        };
        if is_zero {
            commit(engine, vec![(key.to_vec(), None)])?;
            done.push(format!("deleted {key:?}, which could not be read: there is nothing to count"));
        }
    }
    for (segment, live_bytes) in rules::live_bytes(facts) {
        let record = facts.segments.get(&segment);
        let counted = record.map_or(0, |record| record.live_bytes);
        if counted != live_bytes {
            let writer = record.map_or(NodeId(0), |record| record.writer);
            put(engine, Key::Segment(segment), &SegmentRecord { writer, live_bytes })?;
            done.push(format!("segment {segment}: {live_bytes} live bytes instead of {counted}"));
        }
    }
    Ok(())
}

/// Removes segments that no extent names: the file first, as the master does.
fn remove_segments(
    engine: &dyn Engine,
    options: &Options<'_>,
    facts: &Facts,
    done: &mut Vec<String>,
) -> Result<(), CheckError> {
    let Some(store) = options.store else { return Ok(()) };
    let next = facts.volume.map_or(0, |volume: VolumeRecord| volume.next_segment);
    // One beyond the bounds was not written by this volume's nodes.
    for segment in rules::unused_segments(facts).into_iter().filter(|segment| segment.0 < next) {
        let is_stored = facts.stored.len_of(segment).is_some();
        if is_stored {
            store.delete(segment)?;
        }
        delete_record(engine, segment)?;
        done.push(format!("removed segment {segment}, which no extent named"));
    }
    Ok(())
}

fn delete_record(engine: &dyn Engine, segment: SegmentId) -> Result<(), CheckError> {
    commit(engine, vec![(Key::Segment(segment).to_vec(), None)])
}

fn put(engine: &dyn Engine, key: Key, record: &impl Encode) -> Result<(), CheckError> {
    let key = key.to_vec();
    let value = value_encode(&key, record);
    commit(engine, vec![(key, Some(value))])
}

fn commit(engine: &dyn Engine, writes: Vec<meta::Write>) -> Result<(), CheckError> {
    let mut batch = Batch::new(engine.last_seq().next());
    for (key, value) in writes {
        match value {
            Some(value) => batch.puts.push((key, value)),
            None => batch.deletes.push(key),
        }
    }
    Ok(engine.commit(batch)?)
}
