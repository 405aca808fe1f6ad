//! What can happen next, by name: for those who choose it themselves instead of leaving it to the seed.
//!
//! Time stands still from one move to the next; it goes on by [`Move::Time`] alone. So what happens depends on the
//! moves and on nothing else, and two moves that concern different parts of the cluster commute.

use std::hash::{DefaultHasher, Hash, Hasher};

use types::{Encode, LockMode, Micros, ResourceId};

use super::{Cluster, Cut, LEASE, Node};

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Move {
    /// The master takes in the next message of a node.
    ToMaster(usize),
    /// A node takes in the next message of the master.
    FromMaster(usize),
    /// A kernel carries out an invalidation.
    Invalidate(usize, u64),
    /// Segments that a node wrote are durable.
    NodeSync(usize),
    /// The engine is durable.
    MasterSync,
    /// Nothing happens until the next timer.
    Time,
    /// The master's process is killed, and another takes over.
    KillMaster,
    /// A node's process is killed.
    KillNode(usize),
    /// Power fails; the number decides what of the unsynced is lost. As many nodes join again.
    LosePower(u64),
    /// A connection breaks; so many of the messages on their way to the master still arrive.
    Break(usize, usize),
    /// A node's machine stands still for longer than a lease.
    Pause(usize),
    /// A node and the master do not reach each other for longer than a lease, or one way only.
    Cut(usize, Cut),
}

/// Longer than a lease.
const LONG: Micros = Micros(LEASE.0 / 2 * 3);

/// A queue that is worked off in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Messages of a node.
    ToMaster(usize),
    /// Messages to a node.
    FromMaster(usize),
    /// Syncs of a node's segments.
    NodeSync(usize),
    /// Syncs of the engine.
    MasterSync,
}

impl Lane {
    /// The move that takes its next.
    pub fn next(self) -> Move {
        match self {
            Self::ToMaster(node) => Move::ToMaster(node),
            Self::FromMaster(node) => Move::FromMaster(node),
            Self::NodeSync(node) => Move::NodeSync(node),
            Self::MasterSync => Move::MasterSync,
        }
    }

    /// The queue that a move takes from.
    pub fn of(next: Move) -> Option<Self> {
        match next {
            Move::ToMaster(node) => Some(Self::ToMaster(node)),
            Move::FromMaster(node) => Some(Self::FromMaster(node)),
            Move::NodeSync(node) => Some(Self::NodeSync(node)),
            Move::MasterSync => Some(Self::MasterSync),
            Move::Invalidate(..)
            | Move::Time
            | Move::KillMaster
            | Move::KillNode(_)
            | Move::LosePower(_)
            | Move::Break(..)
            | Move::Pause(_)
            | Move::Cut(..) => None,
        }
    }
}

impl Cluster {
    /// How much stands in each queue.
    pub fn queues(&self) -> Vec<(Lane, usize)> {
        let mut queues = vec![(Lane::MasterSync, self.master_syncs.len())];
        for (index, node) in self.nodes.iter().enumerate() {
            queues.push((Lane::ToMaster(index), node.to_master.len()));
            queues.push((Lane::FromMaster(index), node.from_master.len()));
            queues.push((Lane::NodeSync(index), node.syncs.len()));
        }
        queues
    }

    /// How many messages of a node are on their way to the master.
    pub fn sent(&self, index: usize) -> usize {
        self.nodes[index].to_master.len()
    }

    /// Invalidations under way, by node.
    pub fn jobs(&self) -> Vec<(usize, u64)> {
        let of_node = |(index, node): (usize, &Node)| {
            node.jobs.iter().map(|job| (index, job.number)).collect::<Vec<_>>()
        };
        self.nodes.iter().enumerate().flat_map(of_node).collect()
    }

    /// Time goes on, and what was due by then happens.
    pub fn go_to(&mut self, now: Micros) {
        self.now = self.now.max(now);
        self.timers();
        self.pump();
    }

    /// Everything that can happen now but time and faults.
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, n)| n.is_up) {
            let [to_master, from_master, kernel, store] = self.open_queues(node);
            if to_master {
                moves.push(Move::ToMaster(index));
            }
            if from_master {
                moves.push(Move::FromMaster(index));
            }
            if kernel {
                let ready = node.jobs.iter().filter(|job| self.is_ready(node, job));
                moves.extend(ready.map(|job| Move::Invalidate(index, job.number)));
            }
            if store {
                moves.push(Move::NodeSync(index));
            }
        }
        if !self.master_syncs.is_empty() {
            moves.push(Move::MasterSync);
        }
        moves
    }

    /// Makes a move that is possible now; others change nothing.
    pub fn make(&mut self, next: Move) {
        if self.verbose {
            println!("{} move {next:?}", self.now);
        }
        match next {
            Move::ToMaster(index) => self.happen(index, 0),
            Move::FromMaster(index) => self.happen(index, 1),
            Move::Invalidate(index, number) => {
                let at = self.nodes[index].jobs.iter().position(|job| job.number == number);
                if let Some(at) = at {
                    self.run_job(index, at);
                }
            }
            Move::NodeSync(index) => self.happen(index, 3),
            Move::MasterSync => self.happen(usize::MAX, 4),
            Move::Time => {
                self.now = Micros(self.now.0 + 1);
                self.advance();
            }
            Move::KillMaster => self.kill_master(),
            Move::KillNode(index) => self.kill_node(index),
            Move::Break(index, arrive) => self.break_after(index, arrive),
            Move::Pause(index) => self.pause(index, LONG),
            Move::Cut(index, cut) => self.cut(index, cut, LONG),
            Move::LosePower(seed) => {
                self.rng = fastrand::Rng::with_seed(seed);
                let nodes = self.nodes_up().len();
                self.lose_power();
                for _ in 0..nodes {
                    self.add_node();
                }
            }
        }
        self.timers();
        self.pump();
    }

    /// A digest of what a move brings to whom it concerns.
    pub fn content(&self, next: Move) -> u64 {
        let mut hasher = DefaultHasher::new();
        next.hash(&mut hasher);
        let front = |node: &Node, is_up: bool| match is_up {
            true => node.to_master.front().map(Encode::to_bytes),
            false => node.from_master.front().map(Encode::to_bytes),
        };
        match next {
            Move::ToMaster(index) => front(&self.nodes[index], true).hash(&mut hasher),
            Move::FromMaster(index) => front(&self.nodes[index], false).hash(&mut hasher),
            Move::Invalidate(..)
            | Move::NodeSync(_)
            | Move::MasterSync
            | Move::Time
            | Move::KillMaster
            | Move::KillNode(_)
            | Move::LosePower(_)
            | Move::Break(..)
            | Move::Pause(_)
            | Move::Cut(..) => {}
        }
        hasher.finish()
    }

    /// Whether a node can do anything by its tokens now.
    pub(super) fn may_use(&self, index: usize) -> bool {
        self.goes(index) && self.nodes[index].core.may_use_tokens(self.node_clock(index).now)
    }

    /// Rights that contradict each other: what living nodes use beside what others use or the master has granted them.
    pub fn token_faults(&self) -> Vec<String> {
        let using = self.nodes_up().into_iter().filter(|index| self.may_use(*index));
        let up: Vec<(usize, Vec<(ResourceId, LockMode)>)> =
            using.map(|index| (index, self.nodes[index].core.usable())).collect();
        let mut faults = Vec::new();
        for (a, rights) in &up {
            for (resource, mode) in rights {
                for (b, _) in up.iter().filter(|(b, _)| b != a) {
                    let core = &self.nodes[*b].core;
                    let used = core.usable_mode(*resource);
                    if !mode.is_compatible_with(used) {
                        faults.push(format!("node {a} uses {resource} in {mode:?}, node {b} in {used:?}"));
                    }
                    let me = core.snapshot().node;
                    let granted = self.master.as_ref().map_or(LockMode::Nl, |m| m.mode(me, *resource));
                    if !mode.is_compatible_with(granted) {
                        faults.push(format!(
                            "node {a} uses {resource} in {mode:?}, the master has granted node {b} {granted:?}"
                        ));
                    }
                }
            }
        }
        faults
    }

    /// Names that a kernel may show though no token of its node stands behind them. That nothing is in a directory of
    /// `removed` stays true for ever.
    pub fn kernel_faults(&self, removed: &[types::Ino]) -> Vec<String> {
        let mut faults = Vec::new();
        for index in self.nodes_up().into_iter().filter(|index| self.goes(*index)) {
            let node = &self.nodes[index];
            for ((dir, name), found) in &node.kernel.names {
                let is_gone = found.is_none() && removed.contains(dir);
                if !is_gone && node.core.held_mode(ResourceId::dir(*dir)) == LockMode::Nl {
                    let name = String::from_utf8_lossy(name);
                    faults.push(format!("the kernel of node {index} has {dir}/{name} without a token"));
                }
            }
        }
        faults
    }
}
