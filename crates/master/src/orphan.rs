//! Orphans: inodes without a name that somebody has open.

use meta::{Body, Change, Content, Key, KeyKind, Op, OrphanRecord};
use types::{Ino, NodeId};

use crate::change::Then;
use crate::error::MasterError;
use crate::state::{Master, Task};

impl Master {
    /// Corrects the record of who has an orphan open, once all readers have said so. Returns whether it is to be deleted.
    pub(crate) fn trim_orphan(&mut self, ino: Ino) -> bool {
        if self.may_be_open_unsaid(ino) {
            return false;
        }
        let Ok(Some(record)) = self.read::<OrphanRecord>(Key::Orphan(ino)) else { return false };
        let mut open: Vec<NodeId> = self.table.open_nodes(ino).collect();
        open.extend(self.unheard(ino));
        let holders: Vec<NodeId> = record.holders.iter().copied().filter(|n| open.contains(n)).collect();
        if holders.is_empty() {
            return self.reclaim(ino);
        }
        if holders != record.holders {
            let change = Change::PutOrphan { ino, holders };
            if let Err(error) = self.commit(NodeId(0), &[change], Vec::new()) {
                self.fail(format!("the record of orphan {ino} could not be written: {error:?}"));
            }
        }
        false
    }

    /// Whether somebody may have an inode open and not have said so yet: a reader of its last directory that
    /// has not acknowledged its removal, or a member that has not re-asserted. Orphans are looked at again then.
    pub(crate) fn may_be_open_unsaid(&self, ino: Ino) -> bool {
        self.recovering || self.under_way.pending.values().any(|pending| pending.removed.contains(&ino))
    }

    /// Deletes an inode if it is an orphan that nobody has open. Returns whether it is to be deleted.
    pub(crate) fn reclaim(&mut self, ino: Ino) -> bool {
        let is_unused = !self.may_be_open_unsaid(ino)
            && matches!(self.read::<OrphanRecord>(Key::Orphan(ino)), Ok(Some(_)))
            && self.table.open_nodes(ino).next().is_none()
            && self.unheard(ino).is_empty();
        if is_unused {
            self.note_reclaiming(ino);
            self.tasks.push_back(Task::Own { op: Op::Reclaim { ino } });
        }
        is_unused
    }

    /// Whether parts of orphans are to be deleted now.
    pub(crate) fn reclaims_go_on(&self) -> bool {
        !self.reclaims.is_empty() && !self.recovering && !self.failed
    }

    /// Goes on with one that nobody has open.
    pub(crate) fn go_on_reclaiming(&mut self) {
        if self.reclaims_go_on()
            && let Some(ino) = self.reclaims.pop_first()
        {
            if !self.trim_orphan(ino) {
                self.end_reclaiming(ino);
            }
        }
    }

    /// Whether an orphan is being deleted, perhaps in part already: nobody is to open it any more.
    pub(crate) fn is_going(&self, ino: Ino) -> bool {
        !self.recovering
            && self.table.open_nodes(ino).next().is_none()
            && matches!(self.read::<OrphanRecord>(Key::Orphan(ino)), Ok(Some(record)) if record.holders.is_empty())
    }

    /// Deletes the last pages of a file that is to be deleted, if it has more than are deleted at once. Returns whether it has.
    ///
    /// Nobody has it open, [or will](Self::is_going), and nobody writes it.
    pub(crate) fn reclaim_part(&mut self, ino: Ino, deletion: &[Change]) -> Result<bool, MasterError> {
        let parent = deletion.iter().find_map(|change| match change {
            Change::DeleteExtentPages { ino: of, parent, from_page: 0 } if *of == ino => Some(*parent),
            _ => None,
        });
        let Some(parent) = parent else { return Ok(false) };
        let (start, end) = Key::extent_pages(ino);
        let range = kv::KeyRange::new(start, end);
        let found = match self.engine.scan(&range, PART, kv::Direction::Backward) {
            Ok(found) => found,
            Err(error @ kv::EngineError::Corrupt { .. }) => {
                // Deleted at once, without what cannot be read.
                log::error!("pages of orphan {ino}: {error}");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        if !found.more {
            return Ok(false);
        }
        let (mut from_page, mut freed) = (u64::MAX, 0u64);
        for (key, value) in &found.entries {
            let Some(Key::ExtentPage(_, page)) = Key::from_slice(key) else { continue };
            from_page = from_page.min(page);
            // What cannot be read is told of when it is deleted.
            let mapped =
                meta::value_decode::<chunk::ExtentMap>(key, value).map_or(0, |map| map.mapped_bytes());
            freed = freed.saturating_add(mapped);
        }
        let Ok(Some(mut content)) = self.read::<Content>(Key::Content(ino)) else { return Ok(false) };
        let Body::Paged { mapped_bytes } = &mut content.body else { return Ok(false) };
        *mapped_bytes = mapped_bytes.saturating_sub(freed);
        content.size = content.size.min(from_page.saturating_mul(Body::PAGE_SPAN));
        if let Ok(Some(OrphanRecord { holders })) = self.read(Key::Orphan(ino))
            && !holders.is_empty()
        {
            // From here on it is nobody's to open, whoever had it last.
            self.commit(NodeId(0), &[Change::PutOrphan { ino, holders: Vec::new() }], Vec::new())?;
        }
        let part =
            [Change::PutContent { ino, content }, Change::DeleteExtentPages { ino, parent, from_page }];
        // Somebody may still have a right to read it, without having it open.
        self.make_change(NodeId(0), &part, Vec::new(), Then::Nothing);
        self.reclaims.insert(ino);
        self.reclaims_gave_room();
        Ok(true)
    }

    /// Readers who have yet to say whether they have an inode open that lost its covered name.
    pub(crate) fn unheard(&self, ino: Ino) -> Vec<NodeId> {
        let asked = self.under_way.pending.iter().filter(|(_, pending)| pending.removed.contains(&ino));
        self.under_way.readers_awaited(asked.map(|(id, _)| *id)).into_iter().collect()
    }

    /// Looks after the orphans of members that are gone.
    pub(crate) fn trim_orphans(&mut self) {
        let (start, end) = Key::range_of_kind(KeyKind::Orphan);
        let range = kv::KeyRange::new(start, end);
        let mut after = range.clone();
        loop {
            let limit = kv::ScanLimit { entries: 1000, bytes: 1 << 20 };
            let page = match self.engine.scan(&after, limit, kv::Direction::Forward) {
                Ok(page) => page,
                Err(error) => {
                    log::error!("metadata: files without names from {after:?} on keep their room: {error}");
                    return;
                }
            };
            let Some((last, _)) = page.entries.last() else { return };
            after = range.rest_after(last, kv::Direction::Forward);
            for (key, _) in &page.entries {
                if let Some(Key::Orphan(ino)) = Key::from_slice(key) {
                    self.trim_orphan(ino);
                }
            }
            if !page.more {
                return;
            }
        }
    }
}

/// Pages of extents of an orphan that are deleted at once.
const PART: kv::ScanLimit = kv::ScanLimit { entries: 16 << 10, bytes: 32 << 20 };
