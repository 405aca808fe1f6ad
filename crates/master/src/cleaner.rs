//! The cleaner: moves what is still needed out of segments that are mostly dead, so that they can go.
//!
//! Invariants:
//!
//! - Only segments that no member owns are cleaned, and content that a node holds in EX is never re-pointed:
//!   its next batch could bring the old extents back. It is asked back first, before the bytes are read and
//!   again, if somebody got EX meanwhile, before they are pointed to.
//! - An extent is re-pointed only if it still stands as it was read, to a copy that is durable.
//! - Segments of which copies have bytes too are left alone until there is more to gain from them than from others: to find
//!   those copies all the metadata is read.
//! - Readers are told like of any other change, and the old segment goes after the barrier that every empty
//!   segment waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chunk::{Copied, Extent, ExtentMap};
use meta::{Body, Change, Content, Dirent, Key, SegmentRecord, StoredInode};
use types::{Ino, Micros, NodeId, ResourceId, SegmentId};

use crate::change::Then;
use crate::commit::own_write;
use crate::space::PAUSE_ROUND;
use crate::state::{AfterSync, Clock, Master, Output, Task};

/// The cleaner's state.
#[derive(Debug, Default)]
pub(crate) enum Cleaner {
    /// Nothing to do.
    #[default]
    Idle,
    /// The driver looks which files the victims were written for.
    Finding { victims: BTreeSet<SegmentId> },
    /// Files are looked at, one task each.
    Gathering { victims: BTreeSet<SegmentId>, left: usize, extents: Vec<(Ino, Extent)> },
    /// The driver copies to these segments, which are nobody else's.
    Copying { victims: BTreeSet<SegmentId>, segments: Vec<SegmentId> },
    /// Files are pointed to the copies, one task each.
    Repointing {
        victims: BTreeSet<SegmentId>,
        segments: Vec<SegmentId>,
        /// Bytes that were copied to each of the segments, as they are counted once files name them.
        copied: BTreeMap<SegmentId, u64>,
        left: usize,
        moved: u64,
    },
}

/// Segments in which there is nothing to gain though they have dead bytes: the cleaner wrote them, and headers of short runs take room;
/// or it could not read them. How much of each lived then, and until when that counts. With a tenth of it dead they are cleaned again.
#[derive(Debug, Default)]
pub(crate) struct Settled(BTreeMap<SegmentId, (u64, Micros)>);

impl Settled {
    fn has(&self, segment: SegmentId, live: u64, now: Micros) -> bool {
        self.0.get(&segment).is_some_and(|(then, until)| live >= then / 10 * 9 && now < *until)
    }
}

/// Segments that files name which they were not written for, as far as that was noticed: more of them lives than the files
/// of their headers have.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    list: BTreeSet<SegmentId>,
    /// When those files are looked for again.
    due: Micros,
    /// Since when they are being looked for.
    begun: Option<Micros>,
}

/// Where a file's content is.
struct Placed {
    resource: ResourceId,
    /// The covering directory, or 0.
    parent: Ino,
    content: Content,
    entry: Option<(Key, Dirent)>,
}

impl Master {
    /// Chooses what to clean, if there is enough to gain.
    pub(crate) fn consider_cleaning(
        &mut self,
        listed: &[(SegmentId, u64)],
        records: &BTreeMap<SegmentId, SegmentRecord>,
    ) {
        if !matches!(self.cleaner, Cleaner::Idle) || self.recovering || self.failed {
            return;
        }
        // Members say how much lives, and one may say anything.
        let live_of =
            |segment, len: &u64| records.get(segment).map_or(0, |record| record.live_bytes.min(*len));
        let owned = self.owned_segments();
        self.shared.list.retain(|segment| records.contains_key(segment));
        self.settled.0.retain(|segment, _| records.contains_key(segment));
        // What is still written to, or is to go anyway, makes no room by being cleaned.
        let is_cleanable = |segment: &SegmentId, live: u64| {
            live > 0 && !owned.contains(segment) && !self.settled.has(*segment, live, self.clock.now)
        };
        let space = self.config.store.space().unwrap_or(chunk::Space { free_bytes: 0, total_bytes: 0 });
        // With little room left whatever there is to gain is worth it.
        let is_low = space.free_bytes < space.total_bytes / 8;
        let (mut stored, mut live, mut longest) = (0u64, 0u64, 0u64);
        for (segment, len) in listed {
            let live_here = live_of(segment, len);
            if !is_low || is_cleanable(segment, live_here) {
                stored = stored.saturating_add(*len);
                live = live.saturating_add(live_here);
                longest = longest.max(*len);
            }
        }
        let slack = longest * self.members.len() as u64;
        let spare = if is_low { live / 20 } else { live / 5 + slack };
        if stored <= live.saturating_add(spare) {
            return;
        }
        let (mut candidates, mut shared): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        let (mut gain, mut gain_everywhere) = (0, 0);
        for (segment, len) in listed {
            let live = live_of(segment, len);
            // Less than a tenth to gain is not worth the copy.
            if live < len / 10 * 9 && is_cleanable(segment, live) {
                let (list, gain) = match self.shared.list.contains(segment) {
                    true => (&mut shared, &mut gain_everywhere),
                    false => (&mut candidates, &mut gain),
                };
                list.push((live * 1000 / len, *segment, live));
                *gain += len - live;
            }
        }
        let everywhere = gain_everywhere > gain && self.shared.due <= self.clock.now;
        let most = if everywhere { COPY_BYTES_EVERYWHERE } else { COPY_BYTES };
        if everywhere {
            candidates = shared;
        }
        candidates.sort_unstable();
        // On a full disk little at a time: each round makes room for a larger one.
        let limit = most.min(space.free_bytes / 2);
        let (mut victims, mut bytes) = (BTreeSet::new(), 0);
        for (_, segment, live) in candidates {
            if bytes > 0 && bytes + live > limit {
                break;
            }
            bytes += live;
            victims.insert(segment);
        }
        if !victims.is_empty() {
            self.look_again();
            if everywhere {
                self.shared.due = self.clock.now + PAUSE_EVERYWHERE;
                self.shared.begun = Some(self.clock.now);
            }
            self.outputs.push_back(Output::FindFiles { list: victims.iter().copied().collect(), everywhere });
            self.cleaner = Cleaner::Finding { victims };
        }
    }

    /// What [`Output::FindFiles`] asked for: files, and offsets in them, that the segments were written for.
    pub fn files_found(&mut self, clock: Clock, files: &BTreeSet<(Ino, u64)>) {
        self.wake_at(clock);
        if let Some(begun) = self.shared.begun.take() {
            // Of little metadata it costs little: more may have died since it began.
            let pause = clock.now.since(begun).0.saturating_mul(READING_SHARE);
            self.shared.due = clock.now + Micros(pause).clamp(PAUSE_EVERYWHERE_MIN, PAUSE_EVERYWHERE);
        }
        if let Cleaner::Finding { victims } = std::mem::take(&mut self.cleaner) {
            let mut pages: BTreeMap<Ino, BTreeSet<u64>> = BTreeMap::new();
            for (ino, offset) in files {
                pages.entry(*ino).or_default().insert(offset / Body::PAGE_SPAN);
            }
            if pages.is_empty() {
                self.note_shared(&victims, &[]);
            } else {
                self.cleaner = Cleaner::Gathering { victims, left: pages.len(), extents: Vec::new() };
            }
            self.tasks.extend(pages.into_iter().map(|(ino, pages)| Task::Gather { ino, pages }));
        }
        self.settle();
    }

    /// Looks which extents of a file the victims hold, once nobody holds it in EX.
    pub(crate) fn gather(&mut self, ino: Ino, pages: BTreeSet<u64>) {
        let placed = self.placed_content(ino);
        if let Some(placed) = &placed
            && !self.table.is_met(NodeId(0), placed.resource, lock::Need::Change)
        {
            return self.wait_for(
                NodeId(0),
                placed.resource,
                lock::Need::Change,
                Task::Gather { ino, pages },
            );
        }
        let maps: Vec<ExtentMap> = match placed.as_ref().map(|placed| &placed.content.body) {
            Some(Body::Extents { map }) => vec![map.clone()],
            Some(Body::Paged { .. }) => pages
                .iter()
                .filter_map(|page| self.read(Key::ExtentPage(ino, *page)).ok().flatten())
                .collect(),
            Some(Body::Empty {} | Body::Inline { .. } | Body::Target { .. }) | None => Vec::new(),
        };
        if let Some(placed) = &placed {
            self.table.settle(self.clock.now, placed.resource);
        }
        let Cleaner::Gathering { victims, left, extents } = &mut self.cleaner else { return };
        for extent in maps.iter().flat_map(ExtentMap::iter).filter(|e| victims.contains(&e.segment())) {
            extents.push((ino, extent.clone()));
        }
        *left -= 1;
        if *left == 0 {
            let (victims, extents) = (std::mem::take(victims), std::mem::take(extents));
            self.note_shared(&victims, &extents);
            self.order_copies(victims, extents);
        }
    }

    /// Notes the victims of which more lives than was found.
    fn note_shared(&mut self, victims: &BTreeSet<SegmentId>, extents: &[(Ino, Extent)]) {
        for victim in victims {
            let of_victim = extents.iter().filter(|(_, extent)| extent.segment() == *victim);
            let found: u64 = of_victim.map(|(_, extent)| u64::from(extent.len())).sum();
            let record = self.read::<SegmentRecord>(Key::Segment(*victim));
            if record.is_ok_and(|record| record.is_some_and(|record| record.live_bytes > found)) {
                self.shared.list.insert(*victim);
            }
        }
    }

    /// Reserves segments and has the copies made there.
    fn order_copies(&mut self, victims: BTreeSet<SegmentId>, extents: Vec<(Ino, Extent)>) {
        self.cleaner = Cleaner::Idle;
        if extents.is_empty() {
            return;
        }
        let bytes: u64 = extents.iter().map(|(_, extent)| u64::from(extent.len())).sum();
        // As many as the shortest segments would need, every one of them half empty.
        let count = bytes.div_ceil(SHORTEST_SEGMENT / 2) + 1;
        let first = self.volume.next_segment;
        self.volume.next_segment += count;
        if let Err(error) = self.commit(NodeId(0), &[], vec![own_write(Key::Volume, &self.volume)]) {
            return self.fail(format!("segments could not be reserved: {error:?}"));
        }
        let segments: Vec<SegmentId> = (first..first + count).map(SegmentId).collect();
        self.cleaner = Cleaner::Copying { victims, segments: segments.clone() };
        // Numbers are durable before first use.
        self.after_sync.push(AfterSync::Order(Output::CopyExtents { segments, list: extents }));
        self.want_sync();
    }

    /// What [`Output::CopyExtents`] ordered; nothing of it if that failed.
    pub fn extents_copied(&mut self, clock: Clock, copies: Vec<Copied>) {
        self.wake_at(clock);
        let Cleaner::Copying { victims, segments } = std::mem::take(&mut self.cleaner) else { return };
        let mut files: BTreeMap<Ino, Vec<Copied>> = BTreeMap::new();
        let mut added = chunk::LiveDeltas::new();
        copies.iter().flat_map(|copy| &copy.new).for_each(|extent| added.on_added(extent));
        let copied = added.iter().map(|(segment, bytes)| (segment, bytes.unsigned_abs())).collect();
        for copy in copies {
            files.entry(copy.ino).or_default().push(copy);
        }
        self.cleaner = Cleaner::Repointing { victims, segments, copied, left: files.len(), moved: 0 };
        self.tasks.extend(files.into_iter().map(|(ino, copies)| Task::Repoint { ino, copies }));
        self.end_cleaning();
        self.settle();
    }

    /// Re-points a file once nobody holds it in EX.
    pub(crate) fn try_repoint(&mut self, ino: Ino, copies: Vec<Copied>) {
        let resource = self.placed_content(ino).map(|placed| placed.resource);
        if let Some(resource) = resource
            && !self.table.is_met(NodeId(0), resource, lock::Need::Change)
        {
            // A writer got it back while the bytes were copied.
            return self.wait_for(NodeId(0), resource, lock::Need::Change, Task::Repoint { ino, copies });
        }
        let (bytes, goes_on) = self.repoint(ino, copies);
        if let Some(resource) = resource {
            self.table.settle(self.clock.now, resource);
        }
        if let Cleaner::Repointing { left, moved, .. } = &mut self.cleaner {
            *left -= usize::from(!goes_on);
            *moved += bytes;
        }
        self.end_cleaning();
    }

    /// Ends the round when every file was seen to.
    fn end_cleaning(&mut self) {
        let Cleaner::Repointing { left: 0, .. } = &self.cleaner else { return };
        let Cleaner::Repointing { victims, segments, copied, moved, .. } = std::mem::take(&mut self.cleaner)
        else {
            return;
        };
        self.metrics.segment_bytes_cleaned.add(moved);
        for segment in segments {
            match self.read::<SegmentRecord>(Key::Segment(segment)) {
                Ok(Some(record)) => {
                    // What was overwritten while it was copied is dead already.
                    let is_full =
                        copied.get(&segment).is_none_or(|bytes| record.live_bytes >= bytes / 10 * 9);
                    let until = if is_full { Micros::NEVER } else { self.clock.now + PAUSE_EVERYWHERE };
                    self.settled.0.insert(segment, (record.live_bytes, until));
                }
                // It was not used.
                Ok(None) => self.note_live_bytes(segment, 0),
                Err(_) => {}
            }
        }
        for victim in victims {
            if let Ok(Some(record)) = self.read::<SegmentRecord>(Key::Segment(victim))
                && record.live_bytes > 0
                && !self.shared.list.contains(&victim)
            {
                let until = self.clock.now + PAUSE_EVERYWHERE;
                self.settled.0.insert(victim, (record.live_bytes, until));
            }
        }
        // Those that were empty meanwhile had to wait.
        self.call_round(PAUSE_ROUND);
        if moved > 0 {
            self.look_for_segments();
        }
    }

    /// Re-points the extents of a file that still stand, of a file in pages as many as readers are told of in one message: the others follow when these have
    /// taken that in. Returns how many bytes, and whether others follow.
    fn repoint(&mut self, ino: Ino, mut copies: Vec<Copied>) -> (u64, bool) {
        let Some(placed) = self.placed_content(ino) else { return (0, false) };
        let Placed { parent, mut content, entry, .. } = placed;
        let mut deltas = chunk::LiveDeltas::new();
        let (mut moved, mut changes, mut rest) = (0, Vec::new(), Vec::new());
        match &mut content.body {
            Body::Extents { map } => {
                for copy in &copies {
                    moved += replace(map, copy, &mut deltas);
                }
                match entry {
                    Some((Key::Entry(dir, cookie), mut dirent)) => {
                        let meta::Child::Covered { inode } = &mut dirent.child else { return (0, false) };
                        Arc::make_mut(inode).content = content;
                        changes.push(Change::PutEntry { parent: dir, cookie, entry: dirent });
                    }
                    _ => changes.push(Change::PutContent { ino, content }),
                }
            }
            Body::Paged { .. } => {
                let (pages, bytes, done) = self.repointed_pages(ino, &copies, &mut deltas);
                moved = bytes;
                rest = copies.split_off(done);
                changes.extend(pages.into_iter().map(|(page, map)| Change::PutExtentPage {
                    ino,
                    parent,
                    page,
                    map,
                }));
            }
            Body::Empty {} | Body::Inline { .. } | Body::Target { .. } => {}
        }
        let goes_on = !rest.is_empty();
        let next = Task::Repoint { ino, copies: rest };
        if moved > 0 {
            changes.extend(deltas.iter().map(|(segment, bytes)| Change::AddLive { segment, bytes }));
            let then = if goes_on { Then::Task(next) } else { Then::Nothing };
            self.make_change(NodeId(0), &changes, Vec::new(), then);
        } else if goes_on {
            self.tasks.push_back(next);
        }
        (moved, goes_on)
    }

    /// Pages of extents with the copies that still stand for them, how many bytes those are, and how many copies were looked at: one at least.
    fn repointed_pages(
        &self,
        ino: Ino,
        copies: &[Copied],
        deltas: &mut chunk::LiveDeltas,
    ) -> (BTreeMap<u64, ExtentMap>, u64, usize) {
        let mut pages: BTreeMap<u64, ExtentMap> = BTreeMap::new();
        let (mut moved, mut done) = (0, 0);
        for copy in copies {
            let page = copy.old.file_offset() / Body::PAGE_SPAN;
            let is_full = pages.values().map(ExtentMap::len).sum::<usize>() > REPOINT_EXTENTS;
            let map = match pages.remove(&page) {
                Some(map) => Some(map),
                // Readers are told in one message.
                None if is_full => break,
                None => self.read(Key::ExtentPage(ino, page)).ok().flatten(),
            };
            done += 1;
            let Some(mut map) = map else { continue };
            moved += replace(&mut map, copy, deltas);
            pages.insert(page, map);
        }
        (pages, moved, done)
    }

    /// A file's content and what covers it, as committed.
    fn placed_content(&self, ino: Ino) -> Option<Placed> {
        match self.read::<StoredInode>(Key::Inode(ino)).ok()?? {
            StoredInode::Covered { parent, cookie } => {
                let key = Key::Entry(parent, cookie);
                let dirent: Dirent = self.read(key).ok()??;
                let content = dirent.covered().filter(|_| dirent.ino == ino)?.content.clone();
                Some(Placed {
                    resource: ResourceId::dir(parent),
                    parent,
                    content,
                    entry: Some((key, dirent)),
                })
            }
            StoredInode::Own { .. } => {
                let content = self.read(Key::Content(ino)).ok()??;
                Some(Placed { resource: ResourceId::file(ino), parent: Ino(0), content, entry: None })
            }
            StoredInode::Directory { .. } => None,
        }
    }

    /// Whether the cleaner is writing to a segment.
    pub(crate) fn is_cleaners(&self, segment: SegmentId) -> bool {
        match &self.cleaner {
            Cleaner::Copying { segments, .. } | Cleaner::Repointing { segments, .. } => {
                segments.contains(&segment)
            }
            Cleaner::Idle | Cleaner::Finding { .. } | Cleaner::Gathering { .. } => false,
        }
    }
}

/// Puts a copy in the place of its extent, if that still stands. Returns how many bytes.
fn replace(map: &mut ExtentMap, copy: &Copied, deltas: &mut chunk::LiveDeltas) -> u64 {
    if map.extent_at(copy.old.file_offset()) != Some(&copy.old) {
        return 0;
    }
    for extent in &copy.new {
        deltas.on_added(extent);
        let freed = map.insert(extent.clone());
        deltas.on_freed(&freed);
    }
    u64::from(copy.old.len())
}

/// Bytes moved in one round, at most if that is more than one segment's.
const COPY_BYTES: u64 = 32 << 20;
/// The same where all the metadata is read for it.
const COPY_BYTES_EVERYWHERE: u64 = 256 << 20;
/// Between two rounds for which all the metadata is read, at most and at least.
const PAUSE_EVERYWHERE: Micros = Micros::from_millis(300_000);
const PAUSE_EVERYWHERE_MIN: Micros = Micros::from_millis(5_000);
/// Of the time between, no more than one part of so many is spent with reading.
const READING_SHARE: u64 = 200;
/// Extents of the pages that are re-pointed at once, about.
const REPOINT_EXTENTS: usize = 4096;
const SHORTEST_SEGMENT: u64 = 1 << 20;
