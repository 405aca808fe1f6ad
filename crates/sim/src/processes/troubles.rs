//! What goes wrong while processes work, by chance or as planned.

use types::Micros;

use super::{Deaths, Left, Runner};
use crate::cluster::{Cluster, Cut, StoreFault};

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The master's process is killed, and another takes over.
    MasterDies,
    /// A node's process is killed.
    NodeDies,
    /// A node flushes everything and leaves.
    NodeLeaves,
    /// Power fails.
    PowerFails,
    /// A node's machine stands still for a while.
    MachineStands,
    /// A node and the master are out of reach of each other for a while, or one way only.
    Cut(Cut),
    /// Several nodes are out of the master's reach for the same while.
    Partition,
    /// A connection breaks, and what was on its way is lost.
    ConnectionBreaks,
    /// A node takes its connection for broken, and makes another before the master has read what came by it.
    ConnectionLeft,
    /// Messages of a node, or to it, are slow for a while.
    LinkSlow,
    /// Syncs are slow for a while.
    StoreSlow,
    /// The store takes nothing of a node for a while, as long as several leases.
    StoreStands,
    /// A call of a store fails.
    Store(StoreFault),
}

impl Trouble {
    /// Every kind.
    pub const ALL: [Self; 21] = [
        Self::MasterDies,
        Self::NodeDies,
        Self::NodeLeaves,
        Self::PowerFails,
        Self::MachineStands,
        Self::Cut(Cut::ToMaster),
        Self::Cut(Cut::FromMaster),
        Self::Cut(Cut::Both),
        Self::Partition,
        Self::ConnectionBreaks,
        Self::ConnectionLeft,
        Self::LinkSlow,
        Self::StoreSlow,
        Self::StoreStands,
        Self::Store(StoreFault::WriteFull),
        Self::Store(StoreFault::WriteError),
        Self::Store(StoreFault::CreateFull),
        Self::Store(StoreFault::SyncError),
        Self::Store(StoreFault::CommitFull),
        Self::Store(StoreFault::CommitError),
        Self::Store(StoreFault::EngineSyncError),
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::MasterDies => "the master dies",
            Self::NodeDies => "a node dies",
            Self::NodeLeaves => "a node leaves",
            Self::PowerFails => "power fails",
            Self::MachineStands => "a machine stands still",
            Self::Cut(Cut::ToMaster) => "nothing reaches the master",
            Self::Cut(Cut::FromMaster) => "nothing reaches a node",
            Self::Cut(Cut::Both) => "a node is cut off",
            Self::Partition => "several nodes are cut off",
            Self::ConnectionBreaks => "a connection breaks",
            Self::ConnectionLeft => "a connection is left with messages in it",
            Self::LinkSlow => "messages are slow",
            Self::StoreSlow => "syncs are slow",
            Self::StoreStands => "a node's store stands still",
            Self::Store(StoreFault::WriteFull) => "a segment's write finds no room",
            Self::Store(StoreFault::WriteError) => "a segment's write fails",
            Self::Store(StoreFault::CreateFull) => "a segment finds no room",
            Self::Store(StoreFault::SyncError) => "a segment's sync fails",
            Self::Store(StoreFault::CommitFull) => "a commit finds no room",
            Self::Store(StoreFault::CommitError) => "a commit fails",
            Self::Store(StoreFault::EngineSyncError) => "the engine's sync fails",
        }
    }
}

/// How long something lasts, or how slow it is.
fn any_time(cluster: &mut Cluster) -> Micros {
    let longest = [30_000, 4_000_000, 25_000_000][cluster.random(3) as usize];
    Micros(1 + cluster.random(longest))
}

impl Runner {
    fn strikes(&self, every: u64) -> bool {
        every > 0 && self.world.borrow_mut().cluster.random(every) == 0
    }

    pub(super) fn die(&mut self) {
        if self.strikes(self.config.deaths.master_every) {
            self.world.borrow_mut().cluster.kill_master();
        }
        if self.strikes(self.config.deaths.node_every) {
            self.kill_node();
        }
        self.trouble();
        if self.strikes(self.config.deaths.power_every) {
            self.lose_power();
        }
        let turns = self.world.borrow().turns;
        while let Some((_, trouble)) = self.plan.front().copied().filter(|(turn, _)| *turn <= turns) {
            self.plan.pop_front();
            self.strike(trouble);
        }
    }

    /// Faults that pass.
    fn trouble(&mut self) {
        let Deaths { pause_every, cut_every, break_every, .. } = self.config.deaths;
        let (pauses, cuts, breaks) =
            (self.strikes(pause_every), self.strikes(cut_every), self.strikes(break_every));
        let cluster = &mut self.world.borrow_mut().cluster;
        let up = cluster.nodes_up();
        let node = up[cluster.random(up.len() as u64) as usize];
        if cluster.is_troubled(node) {
            return;
        }
        let longest = [30_000, 4_000_000, 25_000_000][cluster.random(3) as usize];
        let time = Micros(1 + cluster.random(longest));
        if pauses {
            cluster.pause(node, time);
        } else if cuts {
            let cut = [Cut::ToMaster, Cut::FromMaster, Cut::Both][cluster.random(3) as usize];
            cluster.cut(node, cut, time);
        }
        if breaks {
            cluster.break_connection(node);
        }
    }

    /// Memberships have ended: what their processes had not synced may be lost, as if they had died.
    pub(super) fn bury_ended(&mut self) {
        let ended = self.world.borrow_mut().cluster.take_ended();
        for node in ended {
            let abandoned: Vec<_> = {
                let world = self.world.borrow();
                let states = world.states.iter().filter(|state| state.node == node);
                states.filter_map(|state| state.request).collect()
            };
            self.restart(Left::Committed, |state| state.node == node);
            let world = &mut *self.world.borrow_mut();
            for request in abandoned {
                world.cluster.abandon(node, request);
            }
            world.cluster.close_all(node);
        }
    }

    fn kill_node(&mut self) {
        let node = {
            let world = &mut *self.world.borrow_mut();
            let up = world.cluster.nodes_up();
            if up.len() == 1 || world.cluster.random(2) == 0 {
                world.cluster.add_node();
            }
            let node = up[world.cluster.random(up.len() as u64) as usize];
            world.cluster.kill_node(node);
            node
        };
        self.restart(Left::Committed, |state| state.node == node);
    }

    fn lose_power(&mut self) {
        {
            let world = &mut *self.world.borrow_mut();
            world.cluster.lose_power();
            for _ in 0..self.config.cluster.nodes {
                world.cluster.add_node();
            }
        }
        self.restart(Left::Durable, |_| true);
    }

    /// Something goes wrong, somewhere.
    fn strike(&mut self, trouble: Trouble) {
        *self.struck.entry(trouble.name()).or_default() += 1;
        match trouble {
            Trouble::MasterDies => self.world.borrow_mut().cluster.kill_master(),
            Trouble::NodeDies => self.kill_node(),
            Trouble::NodeLeaves => self.leave_node(),
            Trouble::PowerFails => self.lose_power(),
            Trouble::Store(fault) => self.world.borrow_mut().cluster.fail_store(fault),
            Trouble::MachineStands
            | Trouble::Cut(_)
            | Trouble::Partition
            | Trouble::ConnectionBreaks
            | Trouble::ConnectionLeft
            | Trouble::LinkSlow
            | Trouble::StoreSlow
            | Trouble::StoreStands => self.disturb(trouble),
        }
    }

    fn disturb(&mut self, trouble: Trouble) {
        let cluster = &mut self.world.borrow_mut().cluster;
        let up = cluster.nodes_up();
        let node = up[cluster.random(up.len() as u64) as usize];
        let time = any_time(cluster);
        match trouble {
            Trouble::MachineStands => cluster.pause(node, time),
            Trouble::Cut(cut) => cluster.cut(node, cut, time),
            Trouble::Partition => {
                for node in up {
                    if cluster.random(2) == 0 {
                        cluster.cut(node, Cut::Both, time);
                    }
                }
            }
            Trouble::ConnectionBreaks => cluster.break_connection(node),
            Trouble::ConnectionLeft => cluster.leave_connection(node),
            Trouble::LinkSlow => {
                let cut = [Cut::ToMaster, Cut::FromMaster, Cut::Both][cluster.random(3) as usize];
                let gap = [1_000, 20_000, 300_000][cluster.random(3) as usize];
                cluster.slow_down(node, cut, gap, time);
            }
            Trouble::StoreStands => cluster.stop_store(node, time),
            Trouble::StoreSlow => {
                let gap = [10_000, 200_000, 3_000_000][cluster.random(3) as usize];
                cluster.slow_down_store(gap, time);
            }
            Trouble::MasterDies
            | Trouble::NodeDies
            | Trouble::NodeLeaves
            | Trouble::PowerFails
            | Trouble::Store(_) => {}
        }
    }

    /// A node's processes are ended, and it leaves: what they did is there, all of it.
    fn leave_node(&mut self) {
        let node = {
            let world = &mut *self.world.borrow_mut();
            let up = world.cluster.nodes_up();
            if up.len() == 1 || world.cluster.random(2) == 0 {
                world.cluster.add_node();
            }
            let node = up[world.cluster.random(up.len() as u64) as usize];
            world.cluster.end_troubles_of(node);
            let requests: Vec<_> =
                world.states.iter().filter(|s| s.node == node).filter_map(|s| s.request).collect();
            for request in requests {
                world.cluster.abandon(node, request);
            }
            world.cluster.write_back_all(node);
            world.cluster.close_all(node);
            world.cluster.leave(node);
            node
        };
        for _ in 0..LEAVE_STEPS {
            if !self.world.borrow().cluster.is_up(node) {
                break;
            }
            self.world.borrow_mut().cluster.step();
            self.note_failures();
            self.bury_ended();
            self.take_replies();
        }
        if self.world.borrow().cluster.is_up(node) {
            let waiting = self.world.borrow().cluster.waiting();
            self.fault(&format!("node {node} does not leave; waiting:\n{waiting}"));
        }
        self.note_failures();
        self.restart(Left::Committed, |state| state.node == node);
    }

    /// What was not durable when a store failed may be lost, or torn.
    pub(super) fn note_failures(&mut self) {
        let world = &mut *self.world.borrow_mut();
        let failures = world.cluster.figures().store_failures;
        if std::mem::replace(&mut self.failures, failures) == failures {
            return;
        }
        for state in &mut world.states {
            let moments = state.history.iter().chain([&state.own]).chain(state.next.iter());
            let files = moments.flat_map(|own| &own.files).filter(|(_, file)| file.versions.len() > 1);
            state.doubtful.extend(files.map(|(ino, _)| *ino));
            state.far = None;
        }
    }
}

/// In which every node that may flush has left.
const LEAVE_STEPS: usize = 300_000;
