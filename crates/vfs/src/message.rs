//! Messages from the master.

use meta::{Change, FsError, Op, OpReply};
use types::{BatchSeq, Ino, LockMode, Name, NodeId, OpSeq, ResourceId, SegmentId};
use wire::{FetchWhat, FromMaster, Grant, ToMaster};

use crate::cache::Place;
use crate::core::{Core, Link};
use crate::jobs::Purpose;
use crate::namespace::{Shipped, names_given};
use crate::onlookers::GLIMPSED_IDLE;
use crate::outputs::{Clock, Invalidation, Output};
use crate::revoke::Cause;
use crate::wait::{Ship, WaitKey};

impl Core {
    /// Takes in one message. Messages of one connection must come in the order they were sent.
    pub fn handle_message(&mut self, clock: Clock, message: FromMaster) {
        self.clock = clock;
        let begins_or_ends = matches!(
            message,
            FromMaster::Welcome { .. } | FromMaster::Refused { .. } | FromMaster::Ended { .. }
        );
        if matches!(self.link, Link::Ending | Link::Lost) || self.me == NodeId(0) && !begins_or_ends {
            // Of a membership that is over: what it grants would outlive it.
            return;
        }
        match message {
            FromMaster::Welcome { .. } => self.on_welcome(message),
            FromMaster::Refused { reason } => self.lose(worded(reason)),
            FromMaster::Ended { reason } => self.end_membership(&worded(reason)),
            FromMaster::Pong { token_share } => {
                self.set_share(token_share);
                self.on_pong();
            }
            FromMaster::Acquired { request, error, grants, seen, glimpse } => {
                self.note_seen(seen);
                self.on_acquired(request, error, grants, glimpse);
            }
            FromMaster::Entries { dir, listing, error } => self.on_entries(dir, listing, error),
            FromMaster::Fetched { request, xattrs, pages, pages_to, inodes, error } => {
                self.on_fetched(request, xattrs, (pages, pages_to), inodes, error);
            }
            FromMaster::Shipped { seq, result, changes, grants, seen } => {
                self.note_seen(seen);
                self.on_shipped(seq, result, changes, grants);
            }
            FromMaster::Changed { seq, changes } => {
                if let Some(shipped) = self.shipped.get(&seq) {
                    let (made, op, by) = (shipped.made(), shipped.op.clone(), shipped.by);
                    let loser = self.loser_of(&op);
                    self.take_own_changes(&op, &changes, made);
                    if let Some(ino) = loser {
                        self.note_unlinking(seq, &op, ino);
                    }
                    self.note_given_names(seq, &op);
                    self.cache.going.note(&op, by, self.clock.now);
                    self.thaw_content(seq);
                }
            }
            FromMaster::Revoke { list, speculative } => self.on_revoke(list, speculative),
            FromMaster::Forget { seq, changes, removed } => {
                self.change_aside(&changes);
                self.on_forget(seq, changes, removed);
            }
            FromMaster::Glimpse { seq, list } => {
                // Looked at once, it will be looked at again.
                let mut is_shared = false;
                for ino in &list {
                    is_shared |= self.share_idle(*ino, GLIMPSED_IDLE);
                }
                if is_shared {
                    self.send_released();
                }
                let contents: Vec<_> =
                    list.iter().filter_map(|ino| Some((*ino, self.glimpse_content(*ino)?))).collect();
                // What was made here may be in the log yet, also that of which the content is told.
                let is_known = |ino: &Ino| !matches!(self.place(*ino), Place::Unknown);
                let is_untold = |ino: &Ino| self.log.has_record_of(*ino);
                if contents.len() < list.len() && list.iter().any(is_known) || list.iter().any(is_untold) {
                    self.send_batch(false);
                }
                self.send(ToMaster::Glimpsed { seq, contents });
            }
            FromMaster::Durable { seq } => self.on_durable(seq),
            FromMaster::Barrier { seq, segments } => self.on_barrier(seq, segments),
            FromMaster::TellCloses { seq, ino } => {
                self.closes.asked.insert(seq);
                self.outputs.push_back(Output::TellCloses { seq, ino });
            }
            FromMaster::BatchRefused { seq, reason } => {
                log::error!("batch {seq} was refused; this node holds {}", self.rights_of_batch(seq));
                self.end_membership(&format!("batch {seq} was refused: {reason}"));
            }
            FromMaster::Limited { version, accounts } => self.on_limited(version, &accounts),
            FromMaster::Credited { credit, refused } => self.on_credited(credit, refused),
            FromMaster::RecallCredit { seq, account } => self.on_recall_credit(seq, account),
            FromMaster::Locked { request, error, conflict } => self.on_locked(request, error, conflict),
            FromMaster::Reserved { first_inode, inodes, first_segment, segments } => {
                self.on_reserved(first_inode, inodes, first_segment, segments);
            }
        }
        self.settle();
    }

    fn on_reserved(&mut self, first_inode: Ino, inodes: u32, first_segment: u64, segments: u32) {
        self.reserve_asked = false;
        let last_inode = first_inode.0.checked_add(u64::from(inodes));
        let last_segment = first_segment.checked_add(u64::from(segments));
        let (Some(last_inode), Some(last_segment)) = (last_inode, last_segment) else {
            return self.lose("the master reserved numbers that do not exist".to_owned());
        };
        if segments > RESERVED_SEGMENTS_MAX {
            return self.lose(format!("the master reserved {segments} segments at once"));
        }
        if inodes > 0 {
            self.inode_numbers.push_back(first_inode.0..last_inode);
        }
        if let Some(writer) = self.writer.as_mut() {
            writer.add_segments((first_segment..last_segment).map(SegmentId));
        }
        self.flush_postponed();
        self.wake(WaitKey::Numbers);
    }

    fn on_revoke(&mut self, list: Vec<(ResourceId, LockMode)>, speculative: bool) {
        let held_alone = list.iter().filter(|(resource, _)| {
            self.tokens.held(*resource) == LockMode::Ex && !(speculative && self.is_in_use(*resource))
        });
        if !self.live.is_empty() && held_alone.take(FLUSH_ALL_FROM).count() == FLUSH_ALL_FROM {
            // One sync for all that is asked back, not one for each directory.
            self.flush_all();
        }
        let mut is_answered_by_log = false;
        for (resource, to) in list {
            self.cache.sole_orphans.remove(&resource.ino);
            if speculative {
                if !self.is_in_use(resource)
                    && let Some(revocation) = self.tokens.start_release(resource, to)
                {
                    self.start_release_for(revocation, Cause::Asked);
                }
                continue;
            }
            // If no more than `to` is held, the release that gave it up is on its way and answers this. Another
            // one could arrive after a grant that crossed it, and would take away what was granted. Or it was deleted here, which the log says.
            is_answered_by_log |= self.tokens.revoke(self.clock.now, resource, to).is_some();
        }
        if is_answered_by_log && !self.log.is_open_empty() {
            self.send_batch(false);
        }
    }

    fn on_durable(&mut self, seq: BatchSeq) {
        let before = self.log.durable();
        self.log.on_durable(seq);
        self.forget_disowned(seq);
        self.metrics.batches_durable.add(seq.0.saturating_sub(before.0));
        self.wake(WaitKey::Durable);
        self.wake(WaitKey::LogSpace);
    }

    fn on_fetched(
        &mut self,
        request: u64,
        xattrs: Vec<(types::Name, Box<[u8]>)>,
        (pages, pages_to): (Vec<(u64, chunk::ExtentMap)>, u64),
        inodes: u64,
        mut error: Option<FsError>,
    ) {
        let Some(what) = self.fetch_of.remove(&request) else { return };
        self.fetches.remove(&what);
        let key = WaitKey::Fetch(what);
        if matches!(what, FetchWhat::ExtentPages { from, .. } if pages_to <= from) {
            // Whoever waits for them would ask for ever.
            error.get_or_insert(FsError::Io);
        }
        if error.is_some() {
            match what {
                // The space of the disk is known all the same.
                FetchWhat::Totals {} => {
                    log::error!(
                        "how many inodes the volume has cannot be read: it is told as it was last known"
                    );
                    self.space.counted_at = Some(self.clock.now);
                }
                FetchWhat::Xattrs { .. } | FetchWhat::ExtentPages { .. } => {
                    self.edit_waiting(key, |progress| progress.error = error);
                }
            }
            self.wake(key);
            return;
        }
        match what {
            FetchWhat::Xattrs { .. } => {
                // Under no token: those that came later may know of a change that they do not show.
                self.edit_waiting(key, |progress| {
                    if progress.number < request {
                        progress.xattrs = Some(xattrs.clone());
                    }
                });
            }
            FetchWhat::ExtentPages { ino, from, to } => self.take_pages(ino, from..pages_to.min(to), pages),
            FetchWhat::Totals {} => {
                (self.space.inodes, self.space.counted_at) = (inodes, Some(self.clock.now))
            }
        }
        self.wake(key);
    }

    /// Applies what an operation of this node changed: its kernel knows, for it asked. `made` has yet to be opened.
    fn take_own_changes(&mut self, op: &Op, changes: &[Change], made: Option<Ino>) {
        self.change_aside(changes);
        for change in changes {
            self.cache.apply(change);
            if let Change::PutAttr { ino, .. } = change {
                self.cache.sole_orphans.remove(ino);
            }
            if let Change::DeleteInode { ino, .. } = change {
                self.drop_deleted(*ino);
            }
            if let Change::PutOrphan { ino, holders } = change
                && holders.contains(&self.me)
                && made != Some(*ino)
            {
                self.note_own_orphan(*ino);
            }
            if let Change::PutContent { ino, .. } = change
                && op.may_split_out()
            {
                self.note_own_split(*ino);
            }
        }
        self.note_moves();
    }

    /// The master has this node down as one that has an inode open whose name an operation of this node took.
    fn note_own_orphan(&mut self, ino: Ino) {
        match self.known.get_mut(&ino).filter(|known| known.is_open() || known.open_told) {
            Some(known) => {
                if !known.is_open() {
                    // Told for an open that waits for this very operation.
                    self.opens_in_doubt.insert(ino);
                }
                known.open_told = true;
                known.set_place(Place::Unknown);
            }
            // Closed while the operation was under way.
            None => self.send(ToMaster::Closed { ino }),
        }
    }

    /// A shipped operation was applied: from here on what it named anew is taken back when others change it.
    fn note_given_names(&mut self, seq: OpSeq, op: &Op) {
        let are_noted = self.note_renamed(op);
        if let Some(shipped) = self.shipped.get_mut(&seq) {
            shipped.names_noted = are_noted;
        }
    }

    /// A shipped operation was applied: what it did not delete may be flushed again.
    fn thaw_content(&mut self, seq: OpSeq) {
        if let Some(shipped) = self.shipped.get_mut(&seq) {
            let removes = std::mem::take(&mut shipped.removes);
            self.end_removals(&removes);
        }
    }

    fn end_removals(&mut self, removes: &[Ino]) {
        for ino in removes {
            if let Some(count) = self.removing.get_mut(ino) {
                *count -= 1;
                if *count == 0 {
                    self.removing.remove(ino);
                }
            }
        }
        if !removes.is_empty() {
            self.flush_postponed();
        }
    }

    /// The master has a file down as open here since it was made: so it is until the request that made it opens it, or does
    /// not, whichever master there is by then.
    fn note_made(&mut self, shipped: &Shipped) {
        if let Op::Create { split: true, new, .. } | Op::CreateOrphan { new, .. } = &shipped.op {
            self.known.note(new.ino).open_told = true;
            self.opens_in_doubt.insert(new.ino);
        }
    }

    fn on_shipped(
        &mut self,
        seq: OpSeq,
        result: Result<OpReply, FsError>,
        changes: Vec<Change>,
        grants: Vec<Grant>,
    ) {
        let Some(mut shipped) = self.shipped.remove(&seq) else {
            // Answered twice: the rights that come with it are this node's as far as the master knows.
            for grant in grants {
                self.take_grant(grant);
            }
            return;
        };
        let result = result.map_err(|error| match (error, &shipped.op) {
            // It was found by a name, which may be another's by now: the kernel is to walk there once more.
            (FsError::NotFound, Op::SetAttr { .. } | Op::SetXattr { .. } | Op::RemoveXattr { .. }) => {
                FsError::Stale
            }
            (error, _) => error,
        });
        self.take_own_changes(&shipped.op, &changes, shipped.made());
        shipped.names_noted |= !changes.is_empty() && self.note_renamed(&shipped.op);
        self.end_removals(&shipped.removes);
        self.end_unlinking(seq);
        match result {
            Ok(reply) => {
                if !self.cache.going.has(shipped.by) {
                    self.cache.going.note(&shipped.op, shipped.by, self.clock.now);
                }
                self.note_unlinked(&shipped.op, reply);
            }
            Err(_) => self.take_credit_back(&shipped.spent),
        }
        // A sync asked for while it was under way does not count.
        self.unsynced_at_master |= result.is_ok();
        if result.is_ok() {
            self.note_made(&shipped);
        }
        for grant in grants {
            self.take_grant(grant);
        }
        if let Some(dir) = shipped.removes_unseen {
            self.wake(WaitKey::Thawed(dir));
        }
        for dir in shipped.frozen {
            if let Some(count) = self.frozen.get_mut(&dir) {
                *count -= 1;
                if *count == 0 {
                    self.frozen.remove(&dir);
                    self.wake(WaitKey::Thawed(dir));
                }
            }
        }
        for dir in shipped.op.directories() {
            self.note_used(dir);
        }
        let given =
            if result.is_ok() && !shipped.names_noted { names_given(&shipped.op) } else { Vec::new() };
        self.edit_waiting(WaitKey::Ship(seq), |progress| progress.ship = Some(Ship::Answered(result)));
        if given.is_empty() {
            return self.wake(WaitKey::Ship(seq));
        }
        // Nothing would take them back once the rename has returned.
        let renamed = |(parent, name): (Ino, &Name)| Invalidation::Renamed { parent, name: name.clone() };
        self.invalidate(Purpose::Renamed(seq), given.into_iter().map(renamed).collect(), Vec::new());
    }
}

/// A reason that a master gave, for who reads the log: some reason, even from a master that gives none.
fn worded(reason: String) -> String {
    if reason.is_empty() { "the master gave no reason".to_owned() } else { reason }
}

/// Resources asked back at once from which everything is flushed first.
const FLUSH_ALL_FROM: usize = 4;

/// Segments in one answer; a node asks for far fewer.
const RESERVED_SEGMENTS_MAX: u32 = 1024;
