//! What goes wrong: deaths, losses of power, machines that stand still, connections that are cut or break.

use std::collections::VecDeque;

use kv::{Failure, Operation};
use master::{Master, PeerId};
use meta::FsError;
use types::{Ino, Micros};
use vfs::{HandleId, Reply, Request, RequestId, WriteData};
use wire::ToMaster;

use super::{Cluster, Kernel};

/// What keeps a node from the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cut {
    /// Nothing reaches the master.
    ToMaster,
    /// Nothing reaches the node.
    FromMaster,
    /// Neither.
    Both,
}

/// How slow something is: until when, and how long each step then takes at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slow {
    until: Micros,
    gap: u64,
}

/// A connection that its node has left.
#[derive(Debug)]
pub(super) struct OldLink {
    /// Whose.
    pub index: usize,
    pub peer: PeerId,
    /// What the master has yet to read.
    pub messages: VecDeque<ToMaster>,
    /// When it reads on.
    pub due: Micros,
}

/// A call of a store that is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// A write of a segment finds no room.
    WriteFull,
    /// A write of a segment fails.
    WriteError,
    /// A segment cannot be made for want of room.
    CreateFull,
    /// A sync of a segment fails; what it was to cover is lost or torn.
    SyncError,
    /// A commit of the engine finds no room.
    CommitFull,
    /// A commit of the engine fails.
    CommitError,
    /// A sync of the engine fails.
    EngineSyncError,
}

impl Cluster {
    /// The master's process is killed: what it committed stays, what it had not sent is lost. Another takes over.
    pub fn kill_master(&mut self) {
        self.figures.remasters += 1;
        let old = self.take_master();
        let has_failed = std::mem::take(&mut self.master_failed);
        self.old_links.clear();
        match old.filter(|_| self.config.may_fail && !has_failed && self.rng.u64(0..4) == 0) {
            Some(old) => self.depose(old),
            None => {
                self.deposed = None;
                let seq = self.disk.kill();
                self.note(seq.0);
            }
        }
        self.open_engine();
        for index in self.nodes_up() {
            let clock = self.node_clock(index);
            let node = &mut self.nodes[index];
            node.to_master.clear();
            node.from_master.clear();
            node.core.link_down(clock);
        }
        self.pump();
        self.open_master();
        for index in 0..self.nodes.len() {
            if self.nodes[index].is_up {
                self.connect(index);
            }
        }
        self.bury_absent_members();
    }

    /// The master is told of members without a connection whose processes are gone.
    pub(super) fn bury_absent_members(&mut self) {
        let clock = self.master_clock();
        let gone: Vec<_> = self.master.as_ref().map(Master::absent_members).unwrap_or_default();
        for (node, pid, _) in gone {
            if !self.nodes.iter().any(|n| n.is_up && n.pid == pid) {
                if let Some(master) = self.master.as_mut() {
                    master.member_is_dead(clock, node);
                }
            }
        }
        self.pump();
    }

    /// A node's process is killed: what it had not sent is lost, and the master learns of it at once.
    pub fn kill_node(&mut self, index: usize) {
        self.figures.node_deaths += 1;
        self.stop_node(index);
        self.end_old_links(index);
        let (clock, peer) = (self.master_clock(), self.nodes[index].peer);
        if let Some(master) = self.master.as_mut() {
            master.disconnected(clock, peer, true);
        }
        self.pump();
    }

    /// Of what a dead node sent by connections that it had left a part is read; then the master finds their ends.
    fn end_old_links(&mut self, index: usize) {
        let ends = |link: &OldLink| link.index == index;
        while let Some(at) = self.old_links.iter().position(ends) {
            let arrive = self.rng.usize(0..=self.old_links[at].messages.len());
            self.old_links[at].messages.truncate(arrive);
            while self.old_links.get(at).is_some_and(ends) {
                self.read_old_link(at);
            }
        }
    }

    fn stop_node(&mut self, index: usize) {
        self.note(index as u64);
        let node = &mut self.nodes[index];
        node.abandoned.clear();
        node.asked.clear();
        node.is_up = false;
        node.to_master.clear();
        node.from_master.clear();
        node.jobs.clear();
        node.syncs.clear();
        node.replies.clear();
        node.late.clear();
        node.kernel = Kernel::default();
    }

    /// Of nodes that are gone: what their fsyncs logged goes into segments.
    pub(super) fn put_back(&mut self, round: u64) {
        let Some(spared) = self.master.as_ref().map(Master::segments_in_use) else { return };
        let keys = master::put_back(&*self.engine, &self.store, &spared, &|| true).unwrap_or_default();
        self.with_master(|master, clock| master.were_put_back(clock, round, keys));
    }

    /// Power fails: all processes are gone, and the stores lose or tear what was not synced. A master opens the
    /// volume again; there are no nodes.
    pub fn lose_power(&mut self) {
        self.figures.power_losses += 1;
        for index in 0..self.nodes.len() {
            self.stop_node(index);
        }
        self.take_master();
        self.deposed = None;
        self.master_failed = false;
        self.old_links.clear();
        let seed = self.rng.u64(..);
        let seq = self.disk.crash(seed);
        self.store.crash(seed);
        self.note(seq.0);
        self.open_engine();
        self.open_master();
        self.bury_absent_members();
    }

    /// A node's machine stands still for a while, its kernel and processes with it.
    pub fn pause(&mut self, index: usize, time: Micros) {
        self.figures.pauses += 1;
        self.nodes[index].paused_until = self.now + time;
    }

    /// A node and the master do not reach each other for a while; nothing is lost.
    pub fn cut(&mut self, index: usize, cut: Cut, time: Micros) {
        self.figures.cuts += 1;
        let until = self.now + time;
        let [up, down] = &mut self.nodes[index].cut_until;
        match cut {
            Cut::ToMaster => *up = until,
            Cut::FromMaster => *down = until,
            Cut::Both => (*up, *down) = (until, until),
        }
    }

    /// Whether a fault of this node goes on.
    pub fn is_troubled(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        [node.paused_until, node.cut_until[0], node.cut_until[1]].iter().any(|until| *until > self.now)
    }

    /// The connection of a node breaks. Of what was on its way to the master a part arrives, to the node nothing. It
    /// connects again.
    pub fn break_connection(&mut self, index: usize) {
        let arrive = self.rng.usize(0..=self.nodes[index].to_master.len());
        self.break_after(index, arrive);
    }

    /// As [`Self::break_connection`], when so many messages have arrived.
    pub(super) fn break_after(&mut self, index: usize, arrive: usize) {
        self.figures.breaks += 1;
        for _ in 0..arrive {
            self.happen(index, 0);
        }
        let (clock, peer) = (self.master_clock(), self.nodes[index].peer);
        if let Some(master) = self.master.as_mut() {
            master.disconnected(clock, peer, false);
        }
        self.lose_link(index);
    }

    /// A node takes its connection for broken and makes another, while the master still reads what came by the old one.
    pub fn leave_connection(&mut self, index: usize) {
        self.figures.breaks += 1;
        let node = &mut self.nodes[index];
        let (peer, messages) = (node.peer, std::mem::take(&mut node.to_master));
        let longest = [1, 1_000, 100_000, 2_000_000][self.rng.usize(0..4)];
        let due = Micros(self.now.0 + self.rng.u64(0..longest));
        self.old_links.push_back(OldLink { index, peer, messages, due });
        self.lose_link(index);
    }

    /// The master reads on by one of the connections that their nodes have left, or finds its end.
    pub(super) fn old_link_goes_on(&mut self) {
        let due: Vec<usize> =
            (0..self.old_links.len()).filter(|at| self.old_links[*at].due <= self.now).collect();
        if let Some(at) = due.get(self.rng.usize(0..due.len().max(1))).copied() {
            self.read_old_link(at);
        }
    }

    /// The next message of one of them, or its end.
    fn read_old_link(&mut self, at: usize) {
        let clock = self.master_clock();
        let link = &mut self.old_links[at];
        let (peer, is_dead) = (link.peer, !self.nodes[link.index].is_up);
        let message = link.messages.pop_front();
        if message.is_none() {
            self.old_links.remove(at);
        }
        let Some(master) = self.master.as_mut() else { return };
        match message {
            Some(message) => {
                self.figures.late_messages += 1;
                self.coverage.note_to_master(&message, master);
                if self.verbose {
                    println!("{} {peer:?}, left -> master: {message:?}", clock.now);
                }
                master.handle(clock, peer, message);
            }
            None => master.disconnected(clock, peer, is_dead),
        }
    }

    /// Messages of a node to the master, or of the master to it, take up to `gap` each for a while.
    pub fn slow_down(&mut self, index: usize, cut: Cut, gap: u64, time: Micros) {
        let slow = Slow { until: self.now + time, gap };
        let [up, down] = &mut self.nodes[index].slow;
        match cut {
            Cut::ToMaster => *up = slow,
            Cut::FromMaster => *down = slow,
            Cut::Both => (*up, *down) = (slow, slow),
        }
    }

    /// Syncs of segments and engine take up to `gap` each for a while.
    pub fn slow_down_store(&mut self, gap: u64, time: Micros) {
        self.slow_store = Slow { until: self.now + time, gap };
    }

    /// No sync of a node's segments ends for so long.
    pub fn stop_store(&mut self, index: usize, time: Micros) {
        self.nodes[index].store_stands_until = self.now + time;
    }

    pub(super) fn delay(&mut self, index: usize, direction: usize) {
        let Slow { until, gap } = self.nodes[index].slow[direction];
        if until > self.now {
            let due = self.now + Micros(self.rng.u64(0..=gap));
            let cut = &mut self.nodes[index].cut_until[direction];
            *cut = (*cut).max(due);
        }
    }

    pub(super) fn delay_store(&mut self) {
        let Slow { until, gap } = self.slow_store;
        if until > self.now {
            self.store_busy_until = self.now + Micros(self.rng.u64(0..=gap));
        }
    }

    /// Lets a call of a store fail, after some more that do not.
    pub fn fail_store(&mut self, fault: StoreFault) {
        use chunk::{Action, Fault};
        let after = self.rng.u64(0..10);
        match fault {
            StoreFault::WriteFull => self.store.fail(Action::Write, after, Fault::Full),
            StoreFault::WriteError => self.store.fail(Action::Write, after, Fault::Io),
            StoreFault::CreateFull => self.store.fail(Action::Create, after / 5, Fault::Full),
            StoreFault::SyncError => self.store.fail(Action::Sync, after / 2, Fault::Io),
            StoreFault::CommitFull => self.disk.fail_next(Operation::Commit, Failure::Full),
            StoreFault::CommitError => self.disk.fail_next(Operation::Commit, Failure::Io),
            StoreFault::EngineSyncError => self.disk.fail_next(Operation::Sync, Failure::Io),
        }
    }

    /// Whatever is only for a while is over.
    pub fn end_troubles(&mut self) {
        for index in 0..self.nodes.len() {
            self.end_troubles_of(index);
        }
        self.slow_store = Slow::default();
        self.store_busy_until = Micros(0);
    }

    /// The same for one node.
    pub fn end_troubles_of(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.paused_until = Micros(0);
        node.cut_until = [Micros(0); 2];
        node.store_stands_until = Micros(0);
        node.slow = Default::default();
    }

    /// A node flushes everything and leaves.
    pub fn leave(&mut self, index: usize) {
        let clock = self.node_clock(index);
        self.nodes[index].core.leave(clock);
        self.pump();
    }

    fn lose_link(&mut self, index: usize) {
        let clock = self.node_clock(index);
        let node = &mut self.nodes[index];
        node.to_master.clear();
        node.from_master.clear();
        node.core.link_down(clock);
        self.connect(index);
    }

    pub(super) fn note_closed(&mut self, peer: PeerId, reason: &str) {
        if let Some(node) = self.nodes.iter_mut().find(|n| n.is_up && n.peer == peer) {
            let seed = self.config.seed;
            assert!(self.config.may_break, "seed {seed}: {peer:?} was closed: {reason}");
            node.is_closed = true;
        }
    }

    /// Notes nodes whose memberships have ended, and connections that the master closed.
    pub(super) fn note_ended(&mut self) {
        for index in self.nodes_up() {
            let node = &mut self.nodes[index];
            let lost = node.metrics.memberships_lost.get();
            if lost > node.memberships_lost {
                node.memberships_lost = lost;
                self.figures.memberships_lost += 1;
                // What it removed and had not synced may be there again. Its processes count as dead, and a kernel forgets what nobody uses.
                node.kernel.dead.clear();
                self.ended.push(index);
            }
            if node.is_closed && node.from_master.is_empty() && node.paused_until <= self.now {
                self.lose_link(index);
            }
        }
    }

    /// All processes of a node are gone: its kernel writes back what they stored through mappings, as it does before it
    /// closes the files.
    pub fn write_back_all(&mut self, index: usize) {
        let files: Vec<Ino> = self.nodes[index].kernel.stores.keys().copied().collect();
        for ino in files {
            let stores: Vec<_> = self.nodes[index].kernel.take_stores(ino).collect();
            for (offset, data) in stores {
                let data = WriteData(data.into());
                match self.call(index, Request::WritePages { ino, offset, data }) {
                    Reply::Written { .. } => {}
                    Reply::Error(FsError::Io | FsError::NoSpace) if self.may_fail() => {}
                    other => panic!("seed {}: a write-back was answered {other:?}", self.config.seed),
                }
            }
        }
    }

    /// All processes of a node are gone: its kernel closes what they had open.
    pub fn close_all(&mut self, index: usize) {
        let handles: Vec<HandleId> = self.nodes[index].handles.keys().copied().collect();
        for handle in handles {
            self.close(index, handle);
        }
    }

    pub(super) fn close(&mut self, index: usize, handle: HandleId) {
        if let Some(ino) = self.nodes[index].handles.remove(&handle) {
            self.submit(index, Request::Release { ino, handle, flock: None });
        }
    }

    /// Nodes that noticed since the last call that their membership had ended.
    pub fn take_ended(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ended)
    }

    /// The process that waits for a request is killed. What is opened for it all the same, its kernel closes.
    pub fn abandon(&mut self, index: usize, id: RequestId) {
        let clock = self.node_clock(index);
        let node = &mut self.nodes[index];
        match node.replies.remove(&id) {
            Some(reply) => node.take_in(id, &reply),
            None => {
                node.abandoned.insert(id);
                node.core.interrupt(clock, id, vfs::Interrupt::Death);
            }
        }
        self.pump();
    }
}
