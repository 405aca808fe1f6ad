//! The cleaner's work on a store: which files a segment was written for, and copies of what is still needed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use types::{Ino, SegmentId};

use crate::{
    ChunkError, Extent, ScanItem, SegmentStore, SegmentWriter, WriterConfig, read_extent, scan_segment,
};

/// An extent and what holds the same bytes now, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The file.
    pub ino: Ino,
    /// The extent as it was.
    pub old: Extent,
    /// The same range of the file.
    pub new: Vec<Extent>,
}

/// Files, and offsets in them, that the runs of `segment` were written for. The bytes are not read.
///
/// # Errors
///
/// Those of [`scan_segment`].
pub fn files_of(store: &dyn SegmentStore, segment: SegmentId) -> Result<BTreeSet<(Ino, u64)>, ChunkError> {
    let mut files = BTreeSet::new();
    for item in scan_segment(store, segment)? {
        if let ScanItem::Run(run) = item? {
            files.insert((run.header.ino, run.header.file_offset));
        }
    }
    Ok(files)
}

/// Reads extents, verified, and appends them to fresh `segments`, which are sealed and durable afterwards.
///
/// What cannot be read is left out, with a line in the log: it stays where it is. Nothing is copied once `goes_on` says no, which is asked before
/// each extent and before the sync.
///
/// # Errors
///
/// If the copies could not be stored or made durable; nothing of them may be named then.
pub fn copy_extents(
    store: &Arc<dyn SegmentStore>,
    config: WriterConfig,
    segments: Vec<SegmentId>,
    extents: Vec<(Ino, Extent)>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<Copied>, ChunkError> {
    let mut writer = SegmentWriter::new(config, Arc::clone(store));
    writer.add_segments(segments);
    let mut copies: Vec<Copied> = Vec::with_capacity(extents.len());
    // What several files share is copied once.
    let mut done: HashMap<(SegmentId, u64, u32), usize> = HashMap::new();
    for (ino, old) in extents {
        if !goes_on() {
            return Ok(Vec::new());
        }
        let place = (old.segment(), old.segment_offset(), old.len());
        if let Some(new) = done.get(&place).and_then(|same| shared(&copies[*same], &old)) {
            copies.push(Copied { ino, old, new });
            continue;
        }
        let mut bytes = vec![0; old.len() as usize];
        if let Err(error) = read_extent(&**store, ino, &old, old.range(), &mut bytes) {
            log::error!(
                "ino {ino} at byte {} stays in segment {}: {error}",
                old.file_offset(),
                old.segment()
            );
            continue;
        }
        let new = writer.append(ino, old.file_offset(), &[&bytes])?;
        done.insert(place, copies.len());
        copies.push(Copied { ino, old, new });
    }
    if !goes_on() {
        return Ok(Vec::new());
    }
    writer.close();
    let outcome = writer.sync_plan().run(&**store);
    match writer.on_synced(outcome).pop() {
        Some(failure) => Err(failure.error),
        None => Ok(copies),
    }
}

/// The copy of an extent as one of the same bytes for `old`, of another file or elsewhere in it.
fn shared(copied: &Copied, old: &Extent) -> Option<Vec<Extent>> {
    let from = copied.old.file_offset();
    copied.new.iter().map(|new| new.moved_to(new.file_offset() - from + old.file_offset()).ok()).collect()
}
