//! Directories that several nodes change all the time: they take turns ([RFC 0014](../../../docs/rfcs/0014-turns.md)).
//!
//! Whoever has the turn holds the directory in EX. The others have given it up and keep aside what they had of it; with the next
//! grant they are sent what has changed since, which is kept here for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use meta::{Change, Op};
use types::{Ino, LockMode, Micros, NodeId, ResourceId, ResourceKind};

use lock::Need;

use crate::state::Master;

/// All directories that are contested, or may be.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Those in which turns are taken.
    dirs: BTreeMap<Ino, Contest>,
    /// Shipped changes of shared directories, by who shipped them.
    counts: BTreeMap<Ino, Count>,
    /// How many changes two nodes each must have shipped within [`WINDOW`].
    from: u32,
    /// Inodes that were to fall back after a turn of directories in which none are taken any more.
    left_to_merge: BTreeSet<Ino>,
}

/// Shipped changes of a shared directory.
#[derive(Debug)]
struct Count {
    since: Micros,
    by: BTreeMap<NodeId, Shipper>,
    /// Changes begun and answered, each.
    events: u64,
    /// How long no turns were taken after they last were, and brought little.
    rest: Micros,
}

/// A directory in which turns are taken.
#[derive(Debug, Default)]
struct Contest {
    /// Who changes it.
    writers: BTreeMap<NodeId, Writer>,
    /// Inodes that fall back into the directory when nobody holds it alone.
    to_merge: BTreeSet<Ino>,
    /// Whose turn it is, and at which change and when it began.
    turn: Option<(NodeId, u64, Micros)>,
    /// How many turns were worth their exchange.
    good: u32,
    /// As [`Count::rest`].
    rest: Micros,
    /// Who keeps it aside, as it was at which change, and since when.
    aside: BTreeMap<NodeId, (u64, Micros)>,
    /// The changes since the first of those, oldest first.
    changes: VecDeque<Change>,
    /// Their bytes, at most.
    bytes: usize,
    /// How many changes there were before them.
    first: u64,
}

/// One of those who change a contested directory.
#[derive(Clone, Copy, Debug)]
struct Writer {
    /// How many of its last turns in a row brought little.
    poor: u32,
    /// When it was last seen to take part.
    seen: Micros,
}

impl Writer {
    /// Whether it makes use of turns, and has not stopped.
    fn takes_part(&self, now: Micros) -> bool {
        self.poor < POOR_TURNS_MAX && now.since(self.seen) <= KEPT_FOR
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            dirs: BTreeMap::new(),
            counts: BTreeMap::new(),
            from: SHIPPED_MIN,
            left_to_merge: BTreeSet::new(),
        }
    }
}

/// What a node has shipped.
#[derive(Clone, Copy, Debug, Default)]
struct Shipper {
    /// How many changes nobody waited for, and how many somebody did, as far as can be seen.
    at_once: u32,
    in_line: u32,
    /// At which event its last change began, and was answered, and when.
    began: u64,
    answered: u64,
    began_at: Micros,
    answered_at: Micros,
}

impl Shipper {
    /// Whether it is one of those who make changes at the same time.
    fn is_at_once(&self, from: u32) -> bool {
        self.at_once >= from && self.at_once >= self.in_line
    }
}

impl Count {
    fn begin(since: Micros, rest: Micros) -> Self {
        Self { since, by: BTreeMap::new(), events: 0, rest }
    }

    /// Users that wait for each other, one name here and one there, would pay for each name with an exchange. So where another
    /// node's change was made from beginning to end since the last one of this node, and this one comes no sooner after it than it takes to
    /// hear of it, it is counted apart.
    fn note_shipped(&mut self, node: NodeId, now: Micros) {
        self.events += 1;
        let last = self.by.get(&node).map_or(0, |shipper| shipper.answered);
        let waited_for = |(other, shipper): (&NodeId, &Shipper)| {
            let took = shipper.answered_at.since(shipper.began_at).0;
            let is_within = shipper.began > last && shipper.answered > shipper.began;
            *other != node && is_within && now.since(shipper.answered_at).0 >= took / 2
        };
        let is_in_line = self.by.iter().any(waited_for);
        let shipper = self.by.entry(node).or_default();
        shipper.at_once += u32::from(!is_in_line);
        shipper.in_line += u32::from(is_in_line);
        (shipper.began, shipper.began_at) = (self.events, now);
    }

    fn note_answered(&mut self, node: NodeId, now: Micros) {
        self.events += 1;
        if let Some(shipper) = self.by.get_mut(&node) {
            (shipper.answered, shipper.answered_at) = (self.events, now);
        }
    }
}

impl Contest {
    fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    fn push(&mut self, change: &Change, now: Micros) {
        // Whoever does not come back in time gets a listing.
        self.aside.retain(|_, (_, since)| now.since(*since) <= KEPT_FOR);
        if self.aside.is_empty() {
            self.trim();
            self.first += 1;
            return;
        }
        self.bytes += change.encoded_len_max();
        self.changes.push_back(change.clone());
        while self.bytes > CHANGES_BYTES_MAX {
            self.pop();
        }
        let first = self.first;
        self.aside.retain(|_, (position, _)| *position >= first);
        self.trim();
    }

    fn pop(&mut self) {
        if let Some(change) = self.changes.pop_front() {
            self.bytes -= change.encoded_len_max();
            self.first += 1;
        }
    }

    /// What was changed from a change on, as it is now: of a key's changes the last. An earlier one could say of what a node has got by
    /// now that it has not.
    fn since(&self, position: u64) -> Vec<Change> {
        let mut seen = BTreeSet::new();
        let changes = self.changes.range((position - self.first) as usize..).rev();
        let mut last: Vec<Change> =
            changes.filter(|change| change.key().is_none_or(|key| seen.insert(key))).cloned().collect();
        last.reverse();
        #[cfg(feature = "planted")]
        if types::planted::strikes(types::planted::Planted::TurnMissesTheLast) {
            last.pop();
        }
        last
    }

    /// Lets go of what everybody has seen.
    fn trim(&mut self) {
        let needed_from = self.aside.values().map(|(position, _)| *position).min().unwrap_or(u64::MAX);
        while self.first < needed_from && !self.changes.is_empty() {
            self.pop();
        }
    }

    /// The holder has given its turn back.
    fn end_turn(&mut self, node: NodeId, now: Micros) {
        let Some((_, began, since)) = self.turn.take_if(|(holder, ..)| *holder == node) else { return };
        let is_poor = self.end() - began < (now.since(since).0 / CHANGE_TAKES.0).max(TURN_CHANGES_MIN);
        self.good += u32::from(!is_poor);
        if let Some(writer) = self.writers.get_mut(&node) {
            writer.poor = if is_poor { writer.poor + 1 } else { 0 };
            writer.seen = now;
        }
    }

    fn is_writer(&self, node: NodeId, now: Micros) -> bool {
        self.writers.get(&node).is_some_and(|writer| writer.takes_part(now))
    }

    /// Whether fewer than two make use of turns. Those in line may have waited for theirs for long.
    fn is_over(&self, waiting: &BTreeSet<NodeId>, now: Micros) -> bool {
        let takes_part = |(node, writer): &(&NodeId, &Writer)| {
            writer.takes_part(now) || writer.poor < POOR_TURNS_MAX && waiting.contains(node)
        };
        self.writers.iter().filter(takes_part).count() < 2
    }
}

impl Master {
    /// Nodes take turns in a directory of which each of two has shipped this many changes within a moment.
    pub fn take_turns_from(&mut self, shipped: u32) {
        self.turns.from = shipped.max(1);
    }

    /// Directories in which turns are taken, for inspection.
    pub fn contested(&self) -> Vec<Ino> {
        self.turns.dirs.keys().copied().collect()
    }

    /// A change of a directory that others read was shipped.
    pub(crate) fn note_contest(&mut self, node: NodeId, dir: Option<Ino>) {
        let Some(dir) = dir else { return };
        let now = self.clock.now;
        let Turns { dirs, counts, from, .. } = &mut self.turns;
        if dirs.contains_key(&dir) {
            return;
        }
        if counts.len() >= COUNTS_MAX {
            counts.retain(|_, count| now.since(count.since) <= REST_MAX);
            if counts.len() >= COUNTS_MAX {
                counts.clear();
            }
        }
        let count = counts.entry(dir).or_insert_with(|| Count::begin(now, Micros(0)));
        if now < count.since {
            return;
        }
        if now.since(count.since) > WINDOW {
            *count = Count::begin(now, count.rest);
        }
        count.note_shipped(node, now);
        let often = count.by.iter().filter(|(_, shipper)| shipper.is_at_once(*from));
        let writer = Writer { poor: 0, seen: now };
        let writers: BTreeMap<NodeId, Writer> = often.map(|(node, _)| (*node, writer)).collect();
        // A master with so many contests does without more of them until some have ended.
        if writers.len() >= 2 && (dirs.len() < CONTESTS_MAX || self.drop_old_contests()) {
            log::debug!("nodes take turns in ino {dir}");
            let Turns { dirs, counts, .. } = &mut self.turns;
            let rest = counts.remove(&dir).map_or(Micros(0), |count| count.rest);
            dirs.insert(dir, Contest { writers, rest, ..Contest::default() });
        }
    }

    /// Ends the contests in which nobody takes part any more. Returns whether there were any.
    fn drop_old_contests(&mut self) -> bool {
        let now = self.clock.now;
        let is_old = |contest: &Contest| !contest.writers.values().any(|writer| writer.takes_part(now));
        let old = self.turns.dirs.iter().filter(|(_, contest)| is_old(contest));
        let old: Vec<Ino> = old.map(|(dir, _)| *dir).collect();
        for dir in &old {
            self.drop_contest(*dir);
        }
        !old.is_empty()
    }

    /// Its sender is answered.
    pub(crate) fn note_answered(&mut self, node: NodeId, op: &Op) {
        let count = changed_alone(op).and_then(|dir| self.turns.counts.get_mut(&dir));
        if let Some(count) = count {
            count.note_answered(node, self.clock.now);
        }
    }

    /// The directory that must be a node's alone for an operation, if turns are taken in it. Whoever is to give it back is not made to
    /// wait for his turn: what he ships may be what keeps him from giving it back.
    pub(crate) fn turn_needed(&self, node: NodeId, op: &Op) -> Option<ResourceId> {
        let dir = changed_alone(op).filter(|dir| self.is_contested(*dir))?;
        let resource = ResourceId::dir(dir);
        let is_needed = !self.table.is_owed(node, resource)
            && !self.table.is_met(node, resource, Need::Token(LockMode::Ex));
        is_needed.then_some(resource)
    }

    /// Whether turns are taken in a directory.
    pub(crate) fn is_contested(&self, dir: Ino) -> bool {
        self.turns.dirs.contains_key(&dir)
    }

    /// Whether a node may have its turn in a directory though others wait for theirs.
    pub(crate) fn has_turn(&self, node: NodeId, resource: ResourceId) -> bool {
        resource.kind == ResourceKind::Dir
            && self.is_contested(resource.ino)
            && !self.table.is_owed(node, resource)
    }

    /// The mode in which a node that looks at a directory gets it.
    pub(crate) fn mode_to_read(&self, node: NodeId, dir: Ino) -> LockMode {
        match self.turns.dirs.get(&dir).is_some_and(|contest| contest.is_writer(node, self.clock.now)) {
            true => LockMode::Ex,
            false => LockMode::Pr,
        }
    }

    /// A node was granted a directory.
    pub(crate) fn note_granted(&mut self, node: NodeId, dir: Ino, mode: LockMode) {
        let now = self.clock.now;
        if mode == LockMode::Ex
            && let Some(contest) = self.turns.dirs.get_mut(&dir)
            && contest.turn.is_none_or(|(holder, ..)| holder != node)
        {
            contest.turn = Some((node, contest.end(), now));
            self.metrics.turns.add(1);
            contest.writers.entry(node).or_insert(Writer { poor: 0, seen: now }).seen = now;
        }
    }

    /// What has changed in a directory since a node gave it up, if it has kept it aside; it no longer has then.
    pub(crate) fn take_aside(&mut self, node: NodeId, dir: Ino) -> Option<Vec<Change>> {
        let contest = self.turns.dirs.get_mut(&dir)?;
        let (position, at) = contest.aside.remove(&node)?;
        let is_kept = position >= contest.first && self.clock.now.since(at) <= KEPT_FOR;
        let since = is_kept.then(|| contest.since(position));
        contest.trim();
        since
    }

    /// A node gives a directory back, down to `to`. To be called before the table knows.
    pub(crate) fn note_turn_over(&mut self, node: NodeId, resource: ResourceId, to: LockMode) {
        if resource.kind != ResourceKind::Dir || to == LockMode::Ex {
            return;
        }
        let is_asked = self.table.is_owed(node, resource);
        let now = self.clock.now;
        let Some(contest) = self.turns.dirs.get_mut(&resource.ino) else { return };
        contest.end_turn(node, now);
        if to == LockMode::Nl && is_asked {
            contest.aside.insert(node, (contest.end(), now));
        }
        self.end_contest(resource.ino);
    }

    /// An inode would fall back into a directory if nobody held that alone.
    pub(crate) fn merge_after_turn(&mut self, dir: Ino, ino: Ino) {
        if let Some(contest) = self.turns.dirs.get_mut(&dir)
            && contest.to_merge.len() < TO_MERGE_MAX
        {
            contest.to_merge.insert(ino);
        }
    }

    /// Those of a directory that nobody holds alone at the moment, and of directories in which no turns are taken any more.
    pub(crate) fn to_merge_after_turn(&mut self, dir: Ino) -> BTreeSet<Ino> {
        let is_held = self.table.exclusive_holder(ResourceId::dir(dir)).is_some();
        let mut list = std::mem::take(&mut self.turns.left_to_merge);
        if let Some(contest) = self.turns.dirs.get_mut(&dir).filter(|_| !is_held) {
            list.append(&mut contest.to_merge);
        }
        list
    }

    /// A member is gone.
    pub(crate) fn take_no_turns(&mut self, node: NodeId) {
        for contest in self.turns.dirs.values_mut() {
            contest.turn.take_if(|(holder, ..)| *holder == node);
            contest.writers.remove(&node);
            contest.aside.remove(&node);
            contest.trim();
        }
        for dir in self.contested() {
            self.end_contest(dir);
        }
    }

    /// No turns are taken where fewer than two nodes make use of them.
    fn end_contest(&mut self, dir: Ino) {
        let waiting: BTreeSet<NodeId> = self.table.waiting(ResourceId::dir(dir)).collect();
        let now = self.clock.now;
        if self.turns.dirs.get(&dir).is_some_and(|contest| contest.is_over(&waiting, now)) {
            self.drop_contest(dir);
        }
    }

    /// An operation over several directories waits for one of them: with turns in each it would have one at a time only, for ever. Shared, they
    /// let it pass.
    pub(crate) fn end_turns_for(&mut self, op: &Op, missing: ResourceId) {
        if self.turns.dirs.is_empty() || missing.kind != ResourceKind::Dir {
            return;
        }
        // The missing one may be another than those of the names: it is removed, replaced or moved, or covers what is linked.
        let dirs: BTreeSet<Ino> = op.directories().chain([missing.ino]).collect();
        if dirs.len() > 1 {
            dirs.into_iter().for_each(|dir| self.drop_contest(dir));
        }
    }

    /// No more turns in a directory, nor soon again: the later, the more often they were tried for nothing.
    fn drop_contest(&mut self, dir: Ino) {
        let Some(mut contest) = self.turns.dirs.remove(&dir) else { return };
        log::debug!("no more turns are taken in ino {dir}");
        let rest = match contest.good < GOOD_TURNS_MIN {
            true => Micros(2 * contest.rest.0).clamp(REST_MIN, REST_MAX),
            false => REST_MIN,
        };
        self.turns.left_to_merge.append(&mut contest.to_merge);
        self.turns.counts.insert(dir, Count::begin(self.clock.now + rest, rest));
    }

    /// Keeps what was committed for those who keep its directory aside.
    pub(crate) fn keep_for_turns(&mut self, changes: &[Change]) {
        if self.turns.dirs.is_empty() {
            return;
        }
        let now = self.clock.now;
        for change in changes {
            if let Change::DeleteInode { ino, kind: meta::FileKind::Directory, .. } = change {
                self.turns.dirs.remove(ino);
            }
            if let Some(ResourceId { ino, kind: ResourceKind::Dir }) = change.resource()
                && let Some(contest) = self.turns.dirs.get_mut(&ino)
            {
                contest.push(change, now);
            }
        }
    }
}

/// The directory that an operation changes, if it is one, and held alone would let a node run the operation.
pub(crate) fn changed_alone(op: &Op) -> Option<Ino> {
    if let Op::CreateOrphan { .. } = op {
        return None;
    }
    let mut dirs = op.directories();
    dirs.next().filter(|dir| dirs.all(|other| other == *dir))
}

/// Within this time two nodes must each have shipped [`SHIPPED_MIN`] changes of a directory.
const WINDOW: Micros = Micros::from_millis(50);
const SHIPPED_MIN: u32 = 8;
/// In a turn worth its exchange a change takes no longer than this: a shared directory is changed by two nodes at once, and whoever pauses
/// between two names as long as it takes to ship one gains nothing by turns.
const CHANGE_TAKES: Micros = Micros(200);
/// Nor is one that has fewer changes.
const TURN_CHANGES_MIN: u64 = 16;
/// Such turns in a row after which a node takes none.
const POOR_TURNS_MAX: u32 = 8;
/// Directories in which turns are taken at a time.
const CONTESTS_MAX: usize = 1_000;
/// Fewer turns that were worth it do not count.
const GOOD_TURNS_MIN: u32 = 8;
/// How long turns are not begun again in a directory in which they brought little.
const REST_MIN: Micros = Micros::from_millis(250);
const REST_MAX: Micros = Micros::from_millis(8_000);
/// What a node keeps aside counts as gone after this; the node keeps it for twice as long.
const KEPT_FOR: Micros = Micros::from_millis(500);
/// Bytes of changes kept for one directory: a quarter of a message.
const CHANGES_BYTES_MAX: usize = 256 << 10;
/// Inodes of a directory that fall back at the end of a turn, at most.
const TO_MERGE_MAX: usize = 1024;
/// Directories with shipped changes that are counted at once.
const COUNTS_MAX: usize = 1024;
