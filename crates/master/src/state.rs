//! The master's state and its entry points.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chunk::SegmentStore;
use kv::{Engine, EngineError, Seq};
use lock::{MasterTable, WaiterId};
use meta::{Change, Cookie, CookieKey};
use obs::Metrics;
use types::{BatchSeq, Epoch, Ino, Micros, NodeId, OpSeq, ResourceId, SegmentId, Timespec};
use wire::{FromMaster, ToMaster};

use crate::app_locks::{AppLocks, LockWait};
use crate::behind::Behind;
use crate::member::{Member, Standing};
use crate::record::VolumeRecord;
use crate::under_way::UnderWay;

/// One connection, numbered by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// Both clocks, read together by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// For leases and deadlines: counts suspension.
    pub now: Micros,
    /// For stamps.
    pub wall: Timespec,
}

/// Settings of a master.
#[derive(Clone)]
pub struct Config {
    /// The volume's identity.
    pub volume: [u8; 16],
    /// The volume's key for name hashes.
    pub cookie_key: [u8; 16],
    /// Length of a member's lease.
    pub lease: Micros,
    /// Bytes for tokens: the table's, and so a new master's, memory.
    pub token_memory: u64,
    /// Committed changes are durable after this at the latest.
    pub commit_interval: Micros,
    /// Where file data is.
    pub store: Arc<dyn SegmentStore>,
}

/// What the driver must do, in this order.
#[derive(Debug)]
pub enum Output {
    /// Send to a peer. Lost only with its connection.
    Send {
        /// To whom.
        peer: PeerId,
        /// What.
        message: FromMaster,
    },
    /// Close a connection.
    Close {
        /// Which.
        peer: PeerId,
        /// Why, for the log.
        reason: String,
    },
    /// Make the engine durable and report [`Master::synced`].
    Sync {
        /// Number to report.
        job: u64,
    },
    /// Delete segments from the store and report [`Master::segments_deleted`].
    DeleteSegments {
        /// Which.
        list: Vec<SegmentId>,
    },
    /// Give back what is reserved behind the end of these segments, which nobody writes any more.
    TrimSegments {
        /// Which.
        list: Vec<SegmentId>,
    },
    /// Put into segments what fsyncs logged of them ([`put_back`](crate::put_back)) and report [`Master::were_put_back`].
    PutBack {
        /// Number to report.
        round: u64,
    },
    /// List the store's segments and report [`Master::segments_listed`].
    ListSegments,
    /// Look which files these segments were written for and report [`Master::files_found`].
    FindFiles {
        /// Segments.
        list: Vec<SegmentId>,
        /// Whether to look which files name them at all ([`files_naming`](crate::files_naming)), which takes long.
        everywhere: bool,
    },
    /// Copy extents to fresh segments and report [`Master::extents_copied`].
    CopyExtents {
        /// Segments to write; more than are needed.
        segments: Vec<SegmentId>,
        /// Files and extents of theirs.
        list: Vec<(Ino, chunk::Extent)>,
    },
    /// The engine is fenced, poisoned or damaged: stop being master.
    Failed {
        /// For people.
        reason: String,
    },
}

/// A member's figures, for `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its incarnation.
    pub node: NodeId,
    /// Host and mount point.
    pub label: String,
    /// Its process.
    pub pid: u32,
    /// Device of its mount.
    pub device: String,
    /// Tokens it holds.
    pub tokens: u64,
    /// Whether it is connected.
    pub is_connected: bool,
}

/// The master of a volume.
pub struct Master {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) config: Config,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
    pub(crate) cookie_key: CookieKey,
    pub(crate) volume: VolumeRecord,
    pub(crate) failed: bool,

    pub(crate) table: MasterTable,
    pub(crate) members: BTreeMap<NodeId, Member>,
    pub(crate) peers: BTreeMap<PeerId, Option<NodeId>>,

    /// Batches that have come in part.
    pub(crate) batch_parts: BTreeMap<PeerId, crate::batch::Parts>,

    /// What waits for the token table, by waiter.
    pub(crate) waiting: BTreeMap<WaiterId, Task>,
    /// What waits until readers have acknowledged changes of a resource.
    pub(crate) behind: Behind,
    /// Orphans that nobody has open: each time the master is called a part of one is deleted.
    pub(crate) reclaims: BTreeSet<Ino>,
    /// Inodes that may fall back into their directories once the recovery has ended.
    pub(crate) merges_put_off: BTreeSet<Ino>,
    /// Changes that readers have yet to acknowledge.
    pub(crate) under_way: UnderWay,
    pub(crate) glimpses: BTreeMap<u64, crate::acquire::Glimpse>,
    /// Who was given the inode numbers from there on by this master.
    pub(crate) numbers_given: BTreeMap<Ino, NodeId>,
    /// Acquires that wait until who may have the inode was asked.
    pub(crate) inquiries: BTreeMap<u64, crate::acquire::Inquiry>,
    /// Places of entries whose child has keys of its own, as last seen.
    pub(crate) split_places: BTreeMap<Ino, (Ino, Cookie)>,
    /// Records of changes that every reader has been told of: they go with the next commit.
    pub(crate) told_everyone: Vec<meta::Key>,
    pub(crate) app_locks: AppLocks,
    /// Lock requests that nodes are asked about, by number of the question.
    pub(crate) doubts: crate::app_lock::Doubts,
    pub(crate) space: crate::space::Space,
    pub(crate) cleaner: crate::cleaner::Cleaner,
    pub(crate) shared: crate::cleaner::Shared,
    pub(crate) settled: crate::cleaner::Settled,
    pub(crate) quota: crate::quota::Quota,
    pub(crate) turns: crate::turns::Turns,
    pub(crate) next_number: u64,
    /// Entries of a directory in one message, at most.
    pub(crate) listing_entries: usize,
    pub(crate) tasks: VecDeque<Task>,
    /// The resource in whose line the task that is being run has waited.
    pub(crate) in_turn: Option<ResourceId>,

    // Recovery.
    pub(crate) expected: BTreeMap<NodeId, crate::recover::Expected>,
    pub(crate) recovering: bool,
    pub(crate) recovery_ends: Micros,
    pub(crate) deferred: VecDeque<(NodeId, ToMaster)>,
    /// No membership ends before.
    pub(crate) grace_until: Micros,
    /// When debts were last looked at, and when the first of them is due.
    pub(crate) overdue: Cell<(Micros, Micros)>,
    /// When it was last called.
    pub(crate) entered_at: Micros,

    // Durability.
    pub(crate) syncing: Option<u64>,
    pub(crate) sync_covers: BTreeMap<NodeId, BatchSeq>,
    pub(crate) sync_wanted: bool,
    pub(crate) dirty_since: Option<Micros>,
    pub(crate) after_sync: Vec<AfterSync>,
    pub(crate) after_this_sync: Vec<AfterSync>,

    pub(crate) outputs: VecDeque<Output>,
}

/// Something to try, now or later.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// A node's acquire.
    Acquire { node: NodeId, request: u64, want: wire::Want, ahead: wire::Ahead },
    /// A node's shipped operation.
    Ship { node: NodeId, seq: OpSeq, op: meta::Op, now: Timespec },
    /// An operation of the master's own.
    Own { op: meta::Op },
    /// The cleaner's look at a file: the pages that the segments to be cleaned were written for.
    Gather { ino: Ino, pages: BTreeSet<u64> },
    /// The cleaner points a file to copies.
    Repoint { ino: Ino, copies: Vec<chunk::Copied> },
    /// What remains to be done for a node that asked to write a covered file.
    Write { node: NodeId, request: u64, ino: Ino },
    /// The answer to an operation that an earlier master ran.
    Result { node: NodeId, seq: OpSeq, op: meta::Op, now: Timespec },
    /// What has waited in the line of a resource, and has its turn.
    InTurn { resource: ResourceId, task: Box<Task> },
    /// The line of a resource goes on.
    Settle { resource: ResourceId },
}

impl Task {
    /// For whom it is done; `None` for the master itself.
    pub(crate) fn node(&self) -> Option<NodeId> {
        match self {
            Self::Acquire { node, .. }
            | Self::Ship { node, .. }
            | Self::Write { node, .. }
            | Self::Result { node, .. } => Some(*node),
            Self::InTurn { task, .. } => task.node(),
            Self::Own { .. } | Self::Gather { .. } | Self::Repoint { .. } | Self::Settle { .. } => None,
        }
    }
}

/// What to do once a sync is done.
#[derive(Debug)]
pub(crate) enum AfterSync {
    /// Send.
    Send(NodeId, FromMaster),
    /// Welcome a new member.
    Welcome(NodeId),
    /// Go on with a round of deletions.
    Round(u64),
    /// Order.
    Order(Output),
}

impl Master {
    /// A connection was made. It is nobody's until its Hello.
    pub fn connected(&mut self, clock: Clock, peer: PeerId) {
        self.wake_at(clock);
        // The node of the master's own process keeps its number, whatever became of its membership.
        self.batch_parts.remove(&peer);
        if let Some(Some(node)) = self.peers.insert(peer, None)
            && let Some(member) = self.members.get_mut(&node)
        {
            member.peer = None;
        }
    }

    /// Takes in one message. Messages of one connection must come in the order they were sent.
    pub fn handle(&mut self, clock: Clock, peer: PeerId, message: ToMaster) {
        self.wake_at(clock);
        if self.failed {
            // What it would be answered by is not what was committed. The next master hears it again.
            return;
        }
        // It may be heard before the clock is looked at.
        if self.pause_due() <= clock.now {
            self.end_pause();
            self.settle();
        }
        // Late words on a connection that was given up.
        let Some(sender) = self.peers.get(&peer).copied() else { return };
        match (sender, message) {
            (None, ToMaster::Hello { version, volume, rejoin, epoch: _, pid, pid_start, label, device }) => {
                let newcomer =
                    crate::member::Newcomer { version, volume, rejoin, pid, pid_start, label, device };
                self.on_hello(peer, newcomer);
            }
            (None, _) => self.close(peer, "the first message was no hello".to_owned()),
            (Some(node), message) => self.on_message(node, message),
        }
        self.settle();
    }

    fn on_message(&mut self, node: NodeId, message: ToMaster) {
        let Some(member) = self.members.get(&node) else { return };
        if matches!(member.standing, Standing::Leaving { is_told: true, .. }) {
            return;
        }
        if self.recovering && is_deferred(&message) {
            if let ToMaster::CancelLock { request } = message
                && self.cancel_deferred_lock(node, request)
            {
                return;
            }
            self.deferred.push_back((node, message));
            return;
        }
        self.dispatch(node, message);
    }

    /// Acts on a message of a member.
    pub(crate) fn dispatch(&mut self, node: NodeId, message: ToMaster) {
        match message {
            ToMaster::Hello { .. } => self.expel(node, "it said hello twice".to_owned()),
            ToMaster::Ping { store_wait_us } => self.on_ping(node, Micros(store_wait_us)),
            ToMaster::Acquire { request, want, ahead } => self.try_acquire(node, request, want, ahead),
            ToMaster::More { dir, after } => self.on_more(node, dir, after),
            ToMaster::Fetch { request, what } => self.on_fetch(node, request, what),
            ToMaster::Ship { seq, acked, now, op, spent } => {
                self.spend_on(node, seq, spent);
                self.on_ship(node, seq, acked, now, op);
            }
            ToMaster::Batch { seq, kept, changes, sync, spent } => {
                self.on_batch(node, seq, kept, changes, sync, &spent);
            }
            ToMaster::BatchPart { seq, kept, changes } => self.on_batch_part(node, seq, kept, changes),
            ToMaster::Release { list, open } => self.on_release(node, list, open),
            ToMaster::Closed { ino } => self.on_closed(node, ino),
            ToMaster::Forgotten { seq, open } => self.on_forgotten(node, seq, &open),
            ToMaster::Glimpsed { seq, contents } => self.on_glimpsed(seq, contents),
            ToMaster::Lock { request, op } => self.on_lock(node, request, op),
            ToMaster::CancelLock { request } => self.on_cancel_lock(node, request),
            ToMaster::Reserve { inodes, segments } => self.on_reserve(node, inodes, segments),
            ToMaster::Reassert { part, done } => self.on_reassert(node, part, done),
            ToMaster::Bye {} => self.leave(node),
            ToMaster::Disown { segments } => self.on_disown(node, &segments),
            ToMaster::Barriered { seq } => self.on_barriered(node, seq),
            ToMaster::ClosesTold { seq } => self.on_closes_told(node, seq),
            ToMaster::AskCredit { want, now, force } => self.on_ask_credit(node, want, now, force),
            ToMaster::CreditKept { seq, kept } => self.on_credit_kept(node, seq, kept),
            ToMaster::LimitsTaken { version } => self.on_limits_taken(node, version),
        }
    }

    /// A connection is gone. With its process dead its membership ends at once, else with its lease.
    pub fn disconnected(&mut self, clock: Clock, peer: PeerId, process_is_dead: bool) {
        self.wake_at(clock);
        self.batch_parts.remove(&peer);
        if let Some(Some(node)) = self.peers.remove(&peer) {
            #[cfg(feature = "planted")]
            let process_is_dead =
                process_is_dead || types::planted::strikes(types::planted::Planted::LeaseCutShort);
            if process_is_dead {
                self.end_membership(node, "its process ended".to_owned());
            } else if let Some(member) = self.members.get_mut(&node).filter(|m| m.peer == Some(peer)) {
                member.peer = None;
            }
        }
        self.settle();
    }

    /// The member that a connection is of.
    pub fn node_of(&self, peer: PeerId) -> Option<NodeId> {
        self.peers.get(&peer).copied().flatten()
    }

    /// Whether a member has no connection.
    pub fn is_away(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|member| member.peer.is_none())
    }

    /// Time passed: see [`Master::poll_timeout`].
    pub fn handle_timeout(&mut self, clock: Clock) {
        self.wake_at(clock);
        self.note_lateness();
        if self.dirty_since.is_some_and(|since| since + self.config.commit_interval <= clock.now) {
            self.want_sync();
        }
        self.end_overdue();
        self.end_doubts();
        self.end_reclaim_waits();
        self.end_pause();
        self.go_on_reclaiming();
        self.check_recovery();
        self.go_on_with_space();
        self.settle();
    }

    /// When [`Master::handle_timeout`] is next needed.
    pub fn poll_timeout(&self) -> Micros {
        // A sync that is wanted already begins when the one under way has ended.
        let dirty_since = self.dirty_since.filter(|_| !self.sync_wanted);
        let commit = dirty_since.map_or(Micros::NEVER, |since| since + self.config.commit_interval);
        let overdue = self.overdue_at();
        let recovery = if self.recovering { self.recovery_ends.max(self.grace_until) } else { Micros::NEVER };
        let space = if self.recovering || self.failed { Micros::NEVER } else { self.space.due() };
        let reclaims = if self.reclaims_go_on() { self.clock.now } else { Micros::NEVER };
        let own = self.doubts_due().min(self.reclaim_waits_due()).min(self.pause_due()).min(reclaims);
        commit.min(overdue).min(recovery).min(space).min(own)
    }

    /// The next order for the driver.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A sync that [`Output::Sync`] asked for has ended.
    pub fn synced(&mut self, clock: Clock, job: u64, result: Result<Seq, EngineError>) {
        self.wake_at(clock);
        self.on_synced(job, result);
        self.settle();
    }

    /// Locks of programs that somebody waits for, so many at most.
    pub fn lock_queues(&self, most: usize) -> Vec<LockWait> {
        self.app_locks.queues(most)
    }

    /// Members as the master sees them.
    pub fn members(&self) -> Vec<MemberStatus> {
        let status = |(node, member): (&NodeId, &Member)| MemberStatus {
            node: *node,
            label: member.record.label.clone(),
            pid: member.record.pid,
            device: member.record.device.clone(),
            tokens: self.table.held_count(*node) as u64,
            is_connected: member.peer.is_some(),
        };
        self.members.iter().map(status).collect()
    }

    /// The epoch of this master.
    pub fn epoch(&self) -> Epoch {
        self.volume.epoch
    }

    /// Whether members of the old master are awaited.
    pub fn is_recovering(&self) -> bool {
        self.recovering
    }

    /// Changes that readers have yet to acknowledge, by number: none of them is complete.
    pub fn changes_under_way(&self) -> Vec<u64> {
        self.under_way.pending.keys().copied().collect()
    }

    /// Has listings of directories come in messages of at most `entries`, as for peers with little memory.
    pub fn limit_listings(&mut self, entries: usize) {
        self.listing_entries = entries.clamp(1, crate::acquire::LISTING_ENTRIES);
    }

    /// Does what has become possible, until nothing moves.
    pub(crate) fn settle(&mut self) {
        loop {
            if let Some(output) = self.table.poll_output() {
                match output {
                    lock::master::Output::Revoke { node, resource, to } => {
                        self.queue_revoke(node, resource, to)
                    }
                    lock::master::Output::Ready { waiter, resource } => {
                        if let Some(task) = self.waiting.remove(&waiter) {
                            self.tasks.push_back(Task::InTurn { resource, task: Box::new(task) });
                        }
                        // Whatever becomes of this one, the next in line has its turn.
                        self.tasks.push_back(Task::Settle { resource });
                    }
                }
                continue;
            }
            if let Some(task) = self.tasks.pop_front() {
                self.run(task);
                continue;
            }
            break;
        }
        self.send_revokes();
        self.metrics.resources.set(self.table.len() as i64);
        if self.sync_wanted && self.syncing.is_none() && !self.failed {
            self.start_sync();
        }
    }

    pub(crate) fn run(&mut self, task: Task) {
        match task {
            Task::Acquire { node, request, want, ahead } => self.try_acquire(node, request, want, ahead),
            Task::Ship { node, seq, op, now } => self.try_ship(node, seq, op, now),
            Task::Own { op } => self.try_own(op),
            Task::Gather { ino, pages } => self.gather(ino, pages),
            Task::Repoint { ino, copies } => self.try_repoint(ino, copies),
            Task::Write { node, request, ino } => {
                self.try_acquire(node, request, wire::Want::Write { ino }, wire::Ahead::default());
            }
            Task::Result { node, seq, op, now } => self.on_ship(node, seq, OpSeq(0), now, op),
            Task::InTurn { resource, task } => {
                self.in_turn = Some(resource);
                self.run(*task);
                self.in_turn = None;
            }
            Task::Settle { resource } => self.table.settle(self.clock.now, resource),
        }
    }

    /// Puts a task in the line of a resource.
    pub(crate) fn wait_for(&mut self, node: NodeId, resource: ResourceId, need: lock::Need, task: Task) {
        let waiter = WaiterId(self.number());
        self.waiting.insert(waiter, task);
        self.table.wait(self.clock.now, waiter, node, resource, need);
    }

    /// Whether readers have yet to acknowledge changes of a resource.
    pub(crate) fn is_changing(&self, resource: ResourceId) -> bool {
        self.under_way.is_changing(resource)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Sends to a member. While it has no connection, or comes back by a new one, nothing is said to it: what matters
    /// is said again when it has told what it holds.
    pub(crate) fn send(&mut self, node: NodeId, message: FromMaster) {
        let Some(member) = self.members.get_mut(&node) else { return };
        let mut behind = Vec::new();
        match (&mut member.before_welcome, &message) {
            (Some(_), FromMaster::Welcome { .. }) => {
                behind = member.before_welcome.take().unwrap_or_default()
            }
            // It would not be taken for a member's yet, and nothing is said twice.
            (Some(waiting), _) => return waiting.push(message),
            (None, _) => {}
        }
        let is_heard = |m: &&mut Member| m.resuming.is_none() || is_heard_while_resuming(&message);
        let peer = Some(member).filter(is_heard).and_then(|m| m.peer).filter(|_| !self.failed);
        let Some(peer) = peer else { return };
        for message in std::iter::once(message).chain(behind) {
            message.split(|message| self.outputs.push_back(Output::Send { peer, message }));
        }
    }

    pub(crate) fn close(&mut self, peer: PeerId, reason: String) {
        self.peers.remove(&peer);
        self.outputs
            .push_back(Output::Send { peer, message: FromMaster::Refused { reason: reason.clone() } });
        self.outputs.push_back(Output::Close { peer, reason });
    }

    /// Nothing can be committed any more.
    pub(crate) fn fail(&mut self, reason: String) {
        if !self.failed {
            self.failed = true;
            self.outputs.push_back(Output::Failed { reason });
        }
    }

    /// What changed in a list of changes that caches and the master's own hints care about.
    pub(crate) fn note_changes(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::PutEntry { parent, cookie, entry } => match entry.child {
                    meta::Child::Own { kind } if kind != meta::FileKind::Directory => {
                        if self.split_places.len() >= SPLIT_PLACES_MAX {
                            self.split_places.pop_first();
                        }
                        self.split_places.insert(entry.ino, (*parent, *cookie));
                    }
                    meta::Child::Own { .. } => {}
                    meta::Child::Covered { .. } => {
                        self.split_places.remove(&entry.ino);
                    }
                },
                Change::PutOrphan { ino, holders } if holders.is_empty() => {
                    self.reclaims.insert(*ino);
                    self.note_reclaiming(*ino);
                }
                Change::DeleteInode { ino, kind, .. } => {
                    self.split_places.remove(ino);
                    if *kind == meta::FileKind::Directory {
                        self.table.remove_resource(ResourceId::dir(*ino));
                    } else {
                        self.table.remove_resource(ResourceId::attr(*ino));
                        self.table.remove_resource(ResourceId::file(*ino));
                    }
                }
                _ => {}
            }
        }
    }
}

const SPLIT_PLACES_MAX: usize = 100_000;

/// Messages that wait for the end of a recovery.
fn is_deferred(message: &ToMaster) -> bool {
    match message {
        ToMaster::Acquire { .. }
        | ToMaster::More { .. }
        | ToMaster::Fetch { .. }
        | ToMaster::Ship { .. }
        | ToMaster::AskCredit { .. }
        | ToMaster::Lock { .. }
        | ToMaster::CancelLock { .. } => true,
        ToMaster::Hello { .. }
        | ToMaster::Ping { .. }
        | ToMaster::Batch { .. }
        | ToMaster::BatchPart { .. }
        | ToMaster::Release { .. }
        // What is open is told by releases as well: a close must not be heard after one that says that it is open again.
        | ToMaster::Closed { .. }
        | ToMaster::Forgotten { .. }
        | ToMaster::Glimpsed { .. }
        | ToMaster::Reserve { .. }
        | ToMaster::Reassert { .. }
        | ToMaster::Bye {}
        | ToMaster::Disown { .. }
        | ToMaster::Barriered { .. }
        | ToMaster::ClosesTold { .. }
        | ToMaster::CreditKept { .. }
        | ToMaster::LimitsTaken { .. } => false,
    }
}

/// Messages for a member that comes back by a new connection and has yet to tell what it holds.
fn is_heard_while_resuming(message: &FromMaster) -> bool {
    matches!(message, FromMaster::Welcome { .. } | FromMaster::Pong { .. } | FromMaster::Ended { .. })
}
