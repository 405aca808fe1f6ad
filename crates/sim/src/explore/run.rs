//! One run of a world by a schedule.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use meta::FsError;
use types::{Ino, Micros};
use vfs::Reply;

use super::history::{Call, Item, Outcome};
use super::process::{Begin, Process};
use super::schedule::{Event, Schedule};
use super::setup::{self, Places};
use super::worlds::{Dir, Fault, World};
use crate::cluster::{Cluster, Cut, Move};

/// A world on its way.
pub struct Run {
    pub(crate) cluster: Cluster,
    pub(crate) places: Places,
    pub(crate) processes: Vec<Process>,
    pub(crate) items: Vec<Item>,
    /// Operations that have ended.
    ended: u64,
    pub(crate) died: BTreeSet<usize>,
    nodes: usize,
    horizon: Micros,
    verbose: bool,
}

/// What each part of the cluster has taken in, as digests: nodes with their kernels and processes, and the master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reached(Vec<u64>);

impl Run {
    /// A world at its beginning.
    pub fn new(world: &World, verbose: bool) -> Self {
        let (cluster, places) = setup::begin(world, verbose);
        let scripts = world.scripts.iter().cloned().enumerate();
        let horizon = Micros(cluster.clock().now.0 + EARLY_TIME_MAX.0);
        Self {
            cluster,
            places,
            processes: scripts.map(|(node, script)| Process::new(node, script)).collect(),
            items: Vec::new(),
            ended: 0,
            died: BTreeSet::new(),
            nodes: world.nodes,
            horizon,
            verbose,
        }
    }

    /// A world after a schedule.
    ///
    /// # Errors
    ///
    /// The first thing that must not be.
    pub fn replay(world: &World, schedule: &Schedule, verbose: bool) -> Result<Self, String> {
        let mut run = Self::new(world, verbose);
        for event in &schedule.0 {
            run.make(*event)?;
        }
        Ok(run)
    }

    /// The digests of a beginning.
    pub fn reached(&self) -> Reached {
        Reached(vec![0; self.nodes + 1])
    }

    /// What can happen now, but time and faults.
    pub fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for process in 0..self.processes.len() {
            if self.processes[process].may_go(&mut self.cluster, &self.places) {
                events.push(Event::Process(process));
            }
        }
        events.extend(self.cluster.moves().into_iter().map(Event::Cluster));
        events
    }

    /// In which ways something may go wrong now.
    pub fn moves_of(&self, fault: Fault) -> Vec<Move> {
        match fault {
            Fault::Master => vec![Move::KillMaster],
            Fault::Node(node) => vec![Move::KillNode(node)],
            Fault::Power => (0..3).map(Move::LosePower).collect(),
            Fault::Break(node) => {
                (0..=self.cluster.sent(node)).map(|arrive| Move::Break(node, arrive)).collect()
            }
            Fault::Pause(node) => vec![Move::Pause(node)],
            Fault::Cut(node) => {
                [Cut::Both, Cut::ToMaster, Cut::FromMaster].map(|cut| Move::Cut(node, cut)).into()
            }
        }
    }

    /// Whether time may go on though something else can happen: no lease ends by that.
    pub fn may_wait(&self) -> bool {
        self.cluster.next_time().is_some_and(|due| due <= self.horizon)
    }

    /// Whether every process is done.
    pub fn is_done(&self) -> bool {
        self.processes.iter().all(Process::is_done)
    }

    /// The digests after an event that is possible now.
    pub fn after(&self, reached: &Reached, event: Event) -> Reached {
        let mut next = reached.clone();
        let master = self.nodes;
        let (content, parts) = match event {
            Event::Process(process) => {
                let content = digest(&(process, self.processes[process].steps(), self.ended));
                (content, self.processes[process].node..self.processes[process].node + 1)
            }
            Event::Cluster(step) => {
                let parts = match step {
                    Move::ToMaster(_) | Move::MasterSync => master..master + 1,
                    Move::FromMaster(node) | Move::Invalidate(node, _) | Move::NodeSync(node) => {
                        node..node + 1
                    }
                    Move::Time
                    | Move::KillMaster
                    | Move::KillNode(_)
                    | Move::LosePower(_)
                    | Move::Break(..)
                    | Move::Pause(_)
                    | Move::Cut(..) => 0..master + 1,
                };
                (self.cluster.content(step), parts)
            }
        };
        for part in parts {
            next.0[part.min(master)] = digest(&(next.0[part.min(master)], content));
        }
        next
    }

    /// Has something happen.
    ///
    /// # Errors
    ///
    /// What must not be and is.
    pub fn make(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Process(process) => self.go_on(process),
            Event::Cluster(next) => {
                self.cluster.make(next);
                match next {
                    Move::KillNode(node) => self.bury(|process| process.node == node),
                    Move::LosePower(_) => self.bury(|_| true),
                    Move::ToMaster(_)
                    | Move::FromMaster(_)
                    | Move::Invalidate(..)
                    | Move::NodeSync(_)
                    | Move::MasterSync
                    | Move::Time
                    | Move::KillMaster
                    | Move::Break(..)
                    | Move::Pause(_)
                    | Move::Cut(..) => {}
                }
            }
        }
        self.bury_ended();
        self.take_replies();
        self.check()
    }

    /// Memberships have ended: what their processes had not synced may be lost, as if they had died. Let them.
    pub(crate) fn bury_ended(&mut self) {
        for node in self.cluster.take_ended() {
            let waiting = self.processes.iter().filter(|process| process.node == node);
            let waiting: Vec<_> = waiting.filter_map(|process| process.waiting).collect();
            self.bury(|process| process.node == node);
            for (id, _, _) in waiting {
                self.cluster.abandon(node, id);
            }
            self.cluster.close_all(node);
        }
    }

    fn bury(&mut self, is_dead: impl Fn(&Process) -> bool) {
        for (index, process) in self.processes.iter_mut().enumerate().filter(|(_, p)| is_dead(p)) {
            process.is_dead = true;
            process.waiting = None;
            self.died.insert(index);
        }
    }

    fn go_on(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let begin = process.next(&mut self.cluster, &self.places);
        let (call, outcome, request) = match begin {
            Begin::Skipped => return,
            Begin::Answered(call, outcome) => (call, Some(outcome), None),
            Begin::Asked(call, request) => (call, None, Some(request)),
        };
        self.items.push(Item { process: index, call, outcome: None, after: self.ended });
        let item = self.items.len() - 1;
        if let Some(outcome) = outcome {
            self.processes[index].note(&outcome);
            self.end(item, outcome);
        }
        if let Some(request) = request {
            let now = self.cluster.clock().now;
            self.processes[index].note_asked(&request);
            let id = self.cluster.submit(self.processes[index].node, request);
            self.processes[index].waiting = Some((id, item, now));
        }
    }

    fn end(&mut self, item: usize, outcome: Outcome) {
        if self.verbose {
            let Item { process, call, .. } = &self.items[item];
            println!("process {process}: {call:?} -> {outcome:?}");
        }
        self.items[item].outcome = Some(outcome);
        self.ended |= 1 << item;
    }

    fn take_replies(&mut self) {
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            let Some((id, item, since)) = process.waiting else { continue };
            let Some(reply) = self.cluster.take_reply(process.node, id) else { continue };
            self.processes[index].waiting = None;
            if matches!(reply, Reply::Error(FsError::Stale))
                && let Some(second) = self.processes[index].take_second()
            {
                let node = self.processes[index].node;
                self.cluster.kernel(node).asks_again(&second);
                let id = self.cluster.submit(node, second);
                self.processes[index].waiting = Some((id, item, since));
                continue;
            }
            let call: Call = self.items[item].call.clone();
            let reply: Reply = reply;
            let outcome = self.processes[index].finish(&mut self.cluster, &call, reply);
            self.end(item, outcome);
        }
    }

    /// What must be true after each event.
    fn check(&self) -> Result<(), String> {
        let removes = self.items.iter().any(|item| match &item.call {
            Call::Rmdir { .. } => true,
            Call::Rename { new_name, .. } => new_name == b"s",
            _ => false,
        });
        // There is one directory, `e/s`, that may be removed, or replaced.
        let removed = if removes { vec![Ino(self.places.dir(Dir::S))] } else { Vec::new() };
        let faults = [self.cluster.token_faults(), self.cluster.kernel_faults(&removed)].concat();
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let now = self.cluster.clock().now;
        for (index, process) in self.processes.iter().enumerate() {
            let Some((_, item, since)) = process.waiting else { continue };
            if now.since(since) > PATIENCE {
                let call = &self.items[item].call;
                return Err(format!(
                    "{call:?} of process {index} is never answered: {}",
                    self.cluster.waiting()
                ));
            }
        }
        Ok(())
    }
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Virtual time in which every request is answered: more than a lease, after which a silent node stops nobody.
const PATIENCE: Micros = Micros(40_000_000);
/// How far time may be ahead of messages.
const EARLY_TIME_MAX: Micros = Micros(2_000_000);
