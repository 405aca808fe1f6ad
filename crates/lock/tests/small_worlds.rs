//! Every order of events of a small world of tokens: three nodes and a master with their real tables, and between them
//! what the wire guarantees: messages of one connection come in order.
//!
//! Breadth first with a digest of every state. In each state no two nodes may use, nor a node use beside what the master
//! has granted another, modes that are incompatible; and where nothing is on its way nobody may wait.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};

use lock::node::Hold;
use lock::{MasterTable, Need, NodeTable, WaiterId};
use types::LockMode::{Ex, Nl, Pr};
use types::{Ino, LockMode, Micros, NodeId, ResourceId};

const NOW: Micros = Micros(1);

#[derive(Clone, Debug, Hash)]
enum Up {
    Acquire(ResourceId, LockMode),
    Release(ResourceId, LockMode),
    Reassert(Vec<(ResourceId, LockMode)>),
}

#[derive(Clone, Debug, Hash)]
enum Down {
    Grant { resource: ResourceId, mode: LockMode, seen: u64 },
    Revoke(ResourceId, LockMode),
}

#[derive(Clone, Debug)]
struct Node {
    table: NodeTable,
    is_up: bool,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
    /// What it has asked for.
    wants: BTreeMap<ResourceId, LockMode>,
    /// Releases that have started.
    releasing: BTreeMap<ResourceId, LockMode>,
    /// Releases told on this connection, and what was given back by which.
    release_number: u64,
    released_at: BTreeMap<ResourceId, u64>,
    /// Requests that it may still make, and tokens that it may still drop unasked.
    requests: u32,
    drops: u32,
}

#[derive(Clone, Debug)]
struct World {
    master: MasterTable,
    /// Who is to re-assert before anything else is done, and what waits for that.
    expected: Vec<usize>,
    deferred: VecDeque<(usize, Up)>,
    releases_seen: Vec<u64>,
    nodes: Vec<Node>,
    deaths: u32,
    remasters: u32,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Request(usize, ResourceId, LockMode),
    Drop(usize, ResourceId),
    Up(usize),
    Down(usize),
    Released(usize, ResourceId),
    Death(usize),
    Remaster,
}

struct Limits {
    resources: u64,
    requests: u32,
    drops: u32,
    deaths: u32,
    remasters: u32,
}

impl World {
    fn new(limits: &Limits) -> Self {
        let hold = Hold { minimum: Micros(0), idle: Micros(0), rest: Micros(0) };
        let node = Node {
            table: NodeTable::new(1000, hold),
            is_up: true,
            up: VecDeque::new(),
            down: VecDeque::new(),
            wants: BTreeMap::new(),
            releasing: BTreeMap::new(),
            release_number: 0,
            released_at: BTreeMap::new(),
            requests: limits.requests,
            drops: limits.drops,
        };
        Self {
            master: MasterTable::new(),
            expected: Vec::new(),
            deferred: VecDeque::new(),
            releases_seen: vec![0; 3],
            nodes: vec![node; 3],
            deaths: limits.deaths,
            remasters: limits.remasters,
        }
    }

    fn events(&self, resources: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            if !node.up.is_empty() {
                events.push(Event::Up(index));
            }
            if !node.down.is_empty() {
                events.push(Event::Down(index));
            }
            events.extend(node.releasing.keys().map(|resource| Event::Released(index, *resource)));
            for resource in (1..=resources).map(|ino| ResourceId::dir(Ino(ino))) {
                // What is being given back is asked for after that.
                let may_ask = !node.wants.contains_key(&resource) && !node.table.is_releasing(resource);
                for mode in [Pr, Ex] {
                    if node.requests > 0 && may_ask && !node.table.usable(resource).permits(mode) {
                        events.push(Event::Request(index, resource, mode));
                    }
                }
                if node.drops > 0 && node.table.held(resource) != Nl && !node.table.is_revoked(resource) {
                    events.push(Event::Drop(index, resource));
                }
            }
            if self.deaths > 0 {
                events.push(Event::Death(index));
            }
        }
        if self.remasters > 0 {
            events.push(Event::Remaster);
        }
        events
    }

    fn make(&mut self, event: Event) {
        match event {
            Event::Request(index, resource, mode) => {
                let node = &mut self.nodes[index];
                node.requests -= 1;
                node.wants.insert(resource, mode);
                node.up.push_back(Up::Acquire(resource, mode));
            }
            Event::Drop(index, resource) => {
                let node = &mut self.nodes[index];
                node.drops -= 1;
                if let Some(revocation) = node.table.start_release(resource, Nl) {
                    node.releasing.insert(resource, revocation.to);
                }
            }
            Event::Up(index) => {
                if let Some(message) = self.nodes[index].up.pop_front() {
                    self.receive(index, message);
                }
            }
            Event::Down(index) => {
                if let Some(message) = self.nodes[index].down.pop_front() {
                    self.nodes[index].receive(message);
                }
            }
            Event::Released(index, resource) => self.nodes[index].finish_release(resource),
            Event::Death(index) => {
                self.deaths -= 1;
                self.nodes[index].is_up = false;
                self.expected.retain(|expected| *expected != index);
                self.deferred.retain(|(node, _)| *node != index);
                self.master.remove_node(NOW, id(index));
                self.end_recovery();
            }
            Event::Remaster => self.remaster(),
        }
        self.settle();
    }

    fn receive(&mut self, index: usize, message: Up) {
        match message {
            Up::Reassert(list) => {
                for (resource, mode) in list {
                    assert!(
                        self.master.is_met(id(index), resource, Need::Token(mode)),
                        "node {index} asserts {mode:?} on {resource}, which another holds"
                    );
                    self.master.grant(id(index), resource, mode);
                }
                self.expected.retain(|expected| *expected != index);
                self.end_recovery();
            }
            message if !self.expected.is_empty() => self.deferred.push_back((index, message)),
            Up::Acquire(resource, mode) => {
                let need = Need::Token(mode);
                if self.master.is_met(id(index), resource, need) {
                    self.grant(index, resource, mode);
                    self.master.settle(NOW, resource);
                } else {
                    self.master.wait(NOW, waiter(index, resource, mode), id(index), resource, need);
                }
            }
            Up::Release(resource, to) => {
                self.releases_seen[index] += 1;
                self.master.release(NOW, id(index), resource, to);
            }
        }
    }

    fn grant(&mut self, index: usize, resource: ResourceId, mode: LockMode) {
        self.master.grant(id(index), resource, mode);
        let mode = self.master.mode(id(index), resource);
        let seen = self.releases_seen[index];
        self.nodes[index].down.push_back(Down::Grant { resource, mode, seen });
    }

    fn settle(&mut self) {
        while let Some(output) = self.master.poll_output() {
            match output {
                lock::master::Output::Revoke { node, resource, to } => {
                    self.nodes[node.0 as usize - 1].down.push_back(Down::Revoke(resource, to));
                }
                lock::master::Output::Ready { waiter: WaiterId(number), resource } => {
                    let (index, mode) = ((number / 100) as usize, if number % 10 == 2 { Ex } else { Pr });
                    // What was ready need not be any more: it is judged again, and the next in line has its turn.
                    if self.nodes[index].is_up {
                        self.receive(index, Up::Acquire(resource, mode));
                    }
                    self.master.settle(NOW, resource);
                }
            }
        }
    }

    fn end_recovery(&mut self) {
        while self.expected.is_empty()
            && let Some((index, message)) = self.deferred.pop_front()
        {
            self.receive(index, message);
        }
    }

    /// The master dies; another knows nothing but who was a member.
    fn remaster(&mut self) {
        self.remasters -= 1;
        self.master = MasterTable::new();
        self.deferred.clear();
        self.releases_seen = vec![0; 3];
        self.expected = (0..3).filter(|index| self.nodes[*index].is_up).collect();
        for node in &mut self.nodes {
            node.up.clear();
            node.down.clear();
            node.table.forget_delayed();
            node.released_at.clear();
            node.release_number = 0;
            node.up.push_back(Up::Reassert(node.table.list()));
            node.up.extend(node.wants.iter().map(|(resource, mode)| Up::Acquire(*resource, *mode)));
        }
    }

    /// What must be true in every state.
    fn check(&self) -> Result<(), String> {
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            for (resource, _) in node.table.list() {
                let mode = node.table.usable(resource);
                let others = self.nodes.iter().enumerate().filter(|(other, n)| n.is_up && *other != index);
                for (other, beside) in others {
                    let used = beside.table.usable(resource);
                    let granted = self.master.mode(id(other), resource);
                    if !mode.is_compatible_with(used) || !mode.is_compatible_with(granted) {
                        return Err(format!(
                            "node {index} uses {resource} in {mode:?}; node {other} uses {used:?}, granted {granted:?}"
                        ));
                    }
                }
            }
        }
        let is_idle = |node: &Node| node.up.is_empty() && node.down.is_empty() && node.releasing.is_empty();
        let up = || self.nodes.iter().filter(|node| node.is_up);
        if up().all(is_idle) && up().any(|node| !node.wants.is_empty()) {
            return Err("somebody waits for ever".to_owned());
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{:?}{:?}{:?}{:?}", self.master, self.expected, self.deferred, self.releases_seen)
            .hash(&mut hasher);
        (self.deaths, self.remasters).hash(&mut hasher);
        for node in &self.nodes {
            (node.is_up, &node.up, &node.down, node.requests, node.drops).hash(&mut hasher);
            (&node.wants, &node.releasing, node.release_number, &node.released_at).hash(&mut hasher);
            for (resource, mode) in node.table.list() {
                let table = &node.table;
                (resource, mode, table.usable(resource), table.asked_back(resource)).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

impl Node {
    fn receive(&mut self, message: Down) {
        match message {
            Down::Grant { resource, mode, seen } => {
                self.released_at.retain(|_, number| *number > seen);
                let Some(wanted) = self.wants.remove(&resource) else { return };
                if self.released_at.contains_key(&resource) {
                    // Made before the master saw our release, which takes it away again: asked for anew.
                    self.wants.insert(resource, wanted);
                    self.up.push_back(Up::Acquire(resource, wanted));
                    return;
                }
                self.table.grant(NOW, resource, mode);
                assert!(self.table.held(resource).permits(wanted));
            }
            Down::Revoke(resource, to) => {
                let _ = self.table.revoke(NOW, resource, to);
            }
        }
        self.start_releases();
    }

    fn start_releases(&mut self) {
        while let Some(revocation) = self.table.poll_revocation(NOW) {
            self.releasing.insert(revocation.resource, revocation.to);
        }
    }

    fn finish_release(&mut self, resource: ResourceId) {
        let Some(to) = self.releasing.remove(&resource) else { return };
        self.table.released(resource, to);
        self.release_number += 1;
        self.released_at.insert(resource, self.release_number);
        self.up.push_back(Up::Release(resource, to));
        self.start_releases();
    }
}

fn id(index: usize) -> NodeId {
    NodeId(index as u32 + 1)
}

fn waiter(index: usize, resource: ResourceId, mode: LockMode) -> WaiterId {
    WaiterId(index as u64 * 100 + resource.ino.0 * 10 + if mode == Ex { 2 } else { 1 })
}

/// Goes through every state, and prints how many there are.
fn explore(name: &str, limits: &Limits) {
    let first = World::new(limits);
    let mut seen = HashSet::from([first.digest()]);
    let mut layer = vec![(first, Vec::new())];
    let mut depth = 0;
    while !layer.is_empty() {
        depth += 1;
        let mut next = Vec::new();
        for (world, way) in &layer {
            for event in world.events(limits.resources) {
                let mut world = world.clone();
                world.make(event);
                if !seen.insert(world.digest()) {
                    continue;
                }
                let mut way: Vec<Event> = Vec::clone(way);
                way.push(event);
                if let Err(what) = world.check() {
                    panic!("{what}\nafter {way:?}\nin {world:?}");
                }
                next.push((world, way));
            }
        }
        layer = next;
    }
    println!("{name}: {} states, {depth} deep", seen.len());
}

#[test]
fn three_nodes_and_one_resource_in_every_order() {
    explore("tokens", &Limits { resources: 1, requests: 2, drops: 0, deaths: 0, remasters: 0 });
}

#[test]
fn three_nodes_that_also_drop_tokens_of_their_own_in_every_order() {
    explore("drops", &Limits { resources: 1, requests: 1, drops: 1, deaths: 0, remasters: 0 });
}

#[test]
fn three_nodes_with_a_death_and_a_change_of_master_in_every_order() {
    explore("deaths", &Limits { resources: 1, requests: 1, drops: 0, deaths: 1, remasters: 1 });
}

#[test]
#[ignore = "takes minutes"]
fn three_nodes_and_two_resources_in_every_order() {
    explore("two resources", &Limits { resources: 2, requests: 2, drops: 0, deaths: 0, remasters: 0 });
}
