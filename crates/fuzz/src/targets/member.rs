//! A member that says anything: its messages decode, and nothing else about them need be true.

use testkit::fuzz::{Memory, Target, outcome};
use types::Micros;
use wire::{FromMaster, ToMaster};

use crate::actor::Actor;
use crate::script::{self, Event};
use crate::world::World;

/// What the member says, and when a node beside it goes on.
pub struct HostileMember;

impl Target for HostileMember {
    fn name(&self) -> &'static str {
        "member"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        vec![record(1, 1), record(1, 4), record(4, 1), record(50, 50)]
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        script::repair(bytes);
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        let mut world = World::new();
        let (node, peer) = (world.add_node(), world.add_peer());
        let mut actor = Actor::default();
        for event in script::read::<ToMaster>(bytes, EVENTS_MAX) {
            match event {
                Event::Message(message) => world.say(peer, message),
                Event::Broken => world.drop_peer(peer),
                Event::NoMessage => {}
                Event::Go => step(&mut world, node, &mut actor),
            }
            if world.failed.is_some() {
                break;
            }
        }
        // Nobody is the worse for it: the other node's process goes on to its end, and another node can join.
        while let Some(request) = actor.next_request() {
            let reply = world.call(node, request);
            actor.answered(&reply);
        }
        let other = world.add_node();
        let root = vfs::Request::GetAttr { ino: types::Ino::ROOT };
        let reply = world.call(other, root);
        assert!(matches!(reply, vfs::Reply::Attr(..)), "the root's attributes: {reply:?}");
        world.rest(Micros(3_000_000));
        assert_eq!(world.failed, None, "a member's messages stop the master");
        assert_eq!(world.nodes[node].ended, None, "a node is ended for what another said");
        let end = world.nodes[peer].ended.clone();
        let refused = world.nodes[peer].heard.iter().rev().find_map(|message| match message {
            FromMaster::Refused { reason } | FromMaster::Ended { reason } => Some(reason.clone()),
            FromMaster::BatchRefused { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        assert!(
            end.is_none() || refused.is_some_and(|reason| !reason.is_empty()),
            "ended without a word: {end:?}"
        );
        let heard = world.nodes[peer].heard.iter().map(|message| FromMaster::KINDS[message.kind()]);
        let end = end.unwrap_or_else(|| format!("{} tokens", tokens(&world)));
        format!("{}: {}", outcome(&end), script::digest(heard))
    }

    fn memory(&self) -> Memory {
        Memory::UNLIMITED
    }
}

fn tokens(world: &World) -> u64 {
    let tokens: u64 = world.master.members().iter().map(|member| member.tokens).sum();
    tokens.next_power_of_two()
}

fn step(world: &mut World, node: usize, actor: &mut Actor) {
    if let Some(request) = actor.next_request() {
        let reply = world.call(node, request);
        actor.answered(&reply);
    }
}

/// What a second node says to the master of a first one. They go on by turns, so many requests each.
fn record(turn: usize, other_turn: usize) -> Vec<u8> {
    let mut world = World::new();
    let (node, peer) = (world.add_node(), world.add_node());
    let (mut actor, mut other) = (Actor::default(), Actor::default());
    let (mut bytes, mut said) = (Vec::new(), 0);
    for _ in 0..100 {
        for _ in 0..turn {
            step(&mut world, node, &mut actor);
            bytes.extend(script::GO);
            take(&world, peer, &mut said, &mut bytes);
        }
        for _ in 0..other_turn {
            step(&mut world, peer, &mut other);
            take(&world, peer, &mut said, &mut bytes);
        }
    }
    bytes
}

fn take(world: &World, peer: usize, said: &mut usize, bytes: &mut Vec<u8>) {
    for message in &world.nodes[peer].said[*said..] {
        script::push(bytes, message);
    }
    *said = world.nodes[peer].said.len();
}

const EVENTS_MAX: usize = 1000;
