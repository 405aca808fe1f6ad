//! A master that says anything: a node survives it, or says why it does not.

use std::collections::BTreeMap;

use chunk::MemStore;
use testkit::fuzz::{Memory, Target, outcome};
use types::Micros;
use vfs::{Clock, Core, Output, Reply, RequestId};
use wire::{FromMaster, ToMaster};

use crate::actor::Actor;
use crate::script::{self, Event};
use crate::world::{World, new_core, wall};

/// What the master says, and when the node's process goes on.
pub struct HostileMaster;

impl Target for HostileMaster {
    fn name(&self) -> &'static str {
        "master"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        vec![record(1, 0), record(1, 1), record(1, 3), record(4, 1)]
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        script::repair(bytes);
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        let mut node = Node::new();
        for event in script::read::<FromMaster>(bytes, EVENTS_MAX) {
            match event {
                Event::Message(message) => node.hear(message),
                Event::Broken => {
                    node.core.link_down(node.clock());
                    node.join();
                }
                Event::NoMessage => {}
                Event::Go => node.go(),
            }
        }
        // Whatever it was told: once the volume is given up, nobody waits for anything.
        let was = node.lost.clone();
        node.core.lost(node.clock(), "the end".to_owned());
        node.run();
        node.advance(Micros(60_000_000));
        assert!(node.asked.is_empty(), "never answered: {:?}", node.core.waiting());
        assert!(node.lost.as_ref().is_some_and(|reason| !reason.is_empty()), "lost without a word");
        let was = was.unwrap_or_else(|| format!("{} answers", node.answers.next_power_of_two()));
        format!("{}: {}", outcome(&was), script::digest(node.said.iter().copied()))
    }

    fn memory(&self) -> Memory {
        Memory::UNLIMITED
    }
}

/// A node on its own.
struct Node {
    core: Core,
    store: MemStore,
    now: Micros,
    actor: Actor,
    asked: BTreeMap<RequestId, ()>,
    next: u64,
    answers: u64,
    lost: Option<String>,
    said: Vec<&'static str>,
}

impl Node {
    fn new() -> Self {
        let store = MemStore::new();
        let core = new_core(&store);
        let (now, actor, asked) = (Micros(1_000_000), Actor::default(), BTreeMap::new());
        let mut node =
            Self { core, store, now, actor, asked, next: 1, answers: 0, lost: None, said: Vec::new() };
        node.join();
        node
    }

    fn join(&mut self) {
        if self.lost.is_none() {
            let _ = self.core.hello(self.clock(), 100, 1, "node 0".to_owned(), "0:0".to_owned());
        }
    }

    fn clock(&self) -> Clock {
        Clock { now: self.now, wall: wall(self.now) }
    }

    fn hear(&mut self, message: FromMaster) {
        self.now = self.now + Micros(100);
        self.core.handle_message(self.clock(), message);
        self.run();
    }

    fn go(&mut self) {
        self.now = self.now + Micros(100);
        let Some(request) = self.actor.next_request() else { return };
        let id = RequestId(self.next);
        self.next += 1;
        self.asked.insert(id, ());
        if let Some(reply) = self.core.submit(self.clock(), id, request) {
            self.take(id, &reply);
        }
        self.run();
    }

    fn take(&mut self, id: RequestId, reply: &Reply) {
        self.asked.remove(&id);
        self.answers += 1;
        self.actor.answered(reply);
        if let Reply::ReadJob(job) = reply {
            self.core.read_done(self.clock(), job.pin);
        }
        if let Some(shield) = reply.shield() {
            self.core.lower_shield(self.clock(), shield);
        }
    }

    fn run(&mut self) {
        for _ in 0..100_000 {
            let Some(output) = self.core.poll_output() else { return };
            match output {
                Output::Send(message) => {
                    self.said.push(ToMaster::KINDS[message.kind()]);
                    message.split(|_| {});
                }
                Output::Reply(id, reply) => self.take(id, &reply),
                Output::Invalidate { job, .. } => self.core.invalidated(self.clock(), job),
                Output::Gather { job } => while self.core.gather(self.clock(), job) == vfs::Dealt::InPart {},
                Output::Sync { job, plan } => {
                    let outcome = plan.run(&self.store);
                    let mut dealt = self.core.synced(self.clock(), job, outcome);
                    while dealt == vfs::Dealt::InPart {
                        dealt = self.core.log_synced(self.clock(), job);
                    }
                }
                Output::TellCloses { seq, .. } => self.core.closes_told(self.clock(), seq),
                Output::CollectStores => self.core.stores_collected(self.clock()),
                Output::Left => {}
                Output::Rejoin => self.join(),
                Output::Lost(reason) => drop(self.lost.get_or_insert(reason)),
            }
        }
        panic!("orders without end");
    }

    fn advance(&mut self, time: Micros) {
        let until = self.now + time;
        let mut turns = 0;
        while self.now < until {
            self.now = self.core.poll_timeout().max(self.now + Micros(1000)).min(until);
            if self.core.poll_timeout() <= self.now {
                self.core.handle_timeout(self.clock());
            }
            self.run();
            turns += 1;
            assert!(turns < 100_000, "timers without end");
        }
    }
}

/// What the first node hears while a second one goes on beside it by turns.
fn record(turn: usize, other_turn: usize) -> Vec<u8> {
    let mut world = World::new();
    let (node, peer) = (world.add_node(), world.add_node());
    let (mut actor, mut other) = (Actor::default(), Actor::default());
    let (mut bytes, mut heard) = (Vec::new(), 0);
    let mut step = |world: &mut World, who: usize, actor: &mut Actor| {
        if let Some(request) = actor.next_request() {
            let reply = world.call(who, request);
            actor.answered(&reply);
        }
        if who == node {
            bytes.extend(script::GO);
        }
        for message in &world.nodes[node].heard[heard..] {
            script::push(&mut bytes, message);
        }
        heard = world.nodes[node].heard.len();
    };
    for _ in 0..60 {
        (0..turn).for_each(|_| step(&mut world, node, &mut actor));
        (0..other_turn).for_each(|_| step(&mut world, peer, &mut other));
    }
    bytes
}

const EVENTS_MAX: usize = 1000;
