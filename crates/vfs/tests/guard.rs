//! A core and its guard: what the core notes before it hands anything out, and what it does once the guard has fired.
//!
//! A core alone; the test plays its master and its guard.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use chunk::MemStore;
use common::welcome;
use obs::Metrics;
use types::{Ino, Micros, Timespec};
use vfs::{Clock, Config, Core, Guard, Output, Request, RequestId};
use wire::{FromMaster, ToMaster};

const LEASE: Micros = Micros(1_000_000);

/// What a guard was told.
#[derive(Debug, Default)]
struct Told {
    listed: BTreeMap<u32, Ino>,
    until: Micros,
    fired: bool,
}

#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<Told>>);

impl Guard for Fake {
    fn enter(&mut self, ino: Ino) -> u32 {
        let mut told = self.0.lock().unwrap();
        let slot = told.listed.last_key_value().map_or(0, |(slot, _)| slot + 1);
        told.listed.insert(slot, ino);
        slot
    }

    fn leave(&mut self, slot: u32) {
        assert!(self.0.lock().unwrap().listed.remove(&slot).is_some(), "slot {slot} is in use");
    }

    fn has_fired(&self) -> bool {
        self.0.lock().unwrap().fired
    }

    fn extend(&mut self, until: Micros, length: Micros) {
        assert_eq!(length, LEASE);
        let mut told = self.0.lock().unwrap();
        told.until = until;
        told.fired = false;
    }

    fn rest(&mut self) {
        self.0.lock().unwrap().until = Micros::NEVER;
    }
}

fn at(micros: u64) -> Clock {
    Clock { now: Micros(micros), wall: Timespec::default() }
}

/// A member since 1 s, and its guard.
fn member() -> (Core, Fake) {
    let (guard, metrics) = (Fake::default(), Arc::new(Metrics::new()));
    let mut core = Core::new(Config::default(), [7; 16], Arc::new(MemStore::new()), metrics);
    core.set_guard(Box::new(guard.clone()));
    core.hello(at(1_000_000), 1, 1, String::new(), String::new());
    let welcome = welcome(LEASE.0);
    core.handle_message(at(1_000_100), welcome);
    sent(&mut core);
    (core, guard)
}

fn sent(core: &mut Core) -> Vec<ToMaster> {
    let outputs = std::iter::from_fn(|| core.poll_output());
    outputs
        .filter_map(|output| if let Output::Send(message) = output { Some(message) } else { None })
        .collect()
}

fn pings(messages: &[ToMaster]) -> usize {
    messages.iter().filter(|message| matches!(message, ToMaster::Ping { .. })).count()
}

#[test]
fn the_guard_knows_the_root_and_the_end_of_the_lease_from_the_welcome_on() {
    let (_, guard) = member();
    let told = guard.0.lock().unwrap();
    assert_eq!(told.listed.values().copied().collect::<Vec<_>>(), [Ino::ROOT]);
    assert_eq!(told.until, Micros(2_000_000), "counted from the sending of the hello");
}

#[test]
fn after_the_guard_has_fired_nothing_is_served_before_the_master_answers_a_ping() {
    let (mut core, guard) = member();
    guard.0.lock().unwrap().fired = true;
    assert!(core.submit(at(1_100_000), RequestId(1), Request::GetAttr { ino: Ino::ROOT }).is_none());
    assert!(sent(&mut core).is_empty(), "the request has not begun");
    assert!(core.poll_timeout() <= Micros(1_100_000), "the lease is renewed at once");
    core.handle_timeout(at(1_100_000));
    assert_eq!(pings(&sent(&mut core)), 1);
    core.handle_message(at(1_101_000), FromMaster::Pong { token_share: 1_000_000 });
    assert!(!guard.has_fired(), "noted");
    assert_eq!(guard.0.lock().unwrap().until, Micros(2_100_000));
    let messages = sent(&mut core);
    assert!(messages.iter().any(|m| matches!(m, ToMaster::Acquire { .. })), "it goes on: {messages:?}");
}

#[test]
fn an_answer_from_before_a_long_stop_confirms_nothing() {
    let (mut core, guard) = member();
    core.handle_timeout(at(1_400_000));
    assert_eq!(pings(&sent(&mut core)), 1);
    guard.0.lock().unwrap().fired = true;
    core.handle_message(at(9_000_000), FromMaster::Pong { token_share: 1_000_000 });
    assert!(guard.has_fired());
    assert_eq!(guard.0.lock().unwrap().until, Micros(2_000_000));
    core.handle_timeout(at(9_000_000));
    assert_eq!(pings(&sent(&mut core)), 1, "it asks again");
    core.handle_message(at(9_001_000), FromMaster::Pong { token_share: 1_000_000 });
    assert!(!guard.has_fired());
}

#[test]
fn the_guard_rests_once_a_node_that_cannot_renew_has_emptied_the_caches_itself() {
    let (mut core, guard) = member();
    assert!(core.submit(at(1_100_000), RequestId(1), Request::GetAttr { ino: Ino::ROOT }).is_none());
    sent(&mut core);
    core.handle_timeout(at(1_850_000));
    let job = std::iter::from_fn(|| core.poll_output()).find_map(|output| match output {
        Output::Invalidate { job, .. } => Some(job),
        _ => None,
    });
    assert_eq!(guard.0.lock().unwrap().until, Micros(2_000_000), "not before the kernel has done it");
    core.invalidated(at(1_851_000), job.expect("the caches are emptied"));
    assert_eq!(guard.0.lock().unwrap().until, Micros::NEVER);
    core.handle_message(at(1_860_000), FromMaster::Pong { token_share: 1_000_000 });
    core.handle_timeout(at(1_870_000));
    core.handle_message(at(1_880_000), FromMaster::Pong { token_share: 1_000_000 });
    assert!(guard.0.lock().unwrap().until < Micros::NEVER, "it guards again");
}
