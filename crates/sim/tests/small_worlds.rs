//! Small worlds in every order of events, within bounds. See docs/testing.md, "Small worlds".

use std::time::Instant;

use sim::explore::{Bounds, Explorer, Fault, Run, Schedule, World, worlds, worlds_with_troubles};

fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

/// All worlds, with troubles instead of deaths if HOLDFAST_TROUBLES is set.
fn all() -> Vec<World> {
    if std::env::var_os("HOLDFAST_TROUBLES").is_some() { worlds_with_troubles() } else { worlds() }
}

/// Worlds whose names contain a text.
fn named(part: &str) -> Vec<World> {
    all().into_iter().filter(|world| world.name.contains(part)).collect()
}

/// Worlds whose names contain HOLDFAST_WORLD.
fn chosen() -> Vec<World> {
    named(&std::env::var("HOLDFAST_WORLD").unwrap_or_default())
}

fn explore(worlds: Vec<World>, bounds: Bounds) {
    let mut violations = Vec::new();
    assert!(!worlds.is_empty(), "there is no world of that name");
    for world in worlds {
        let start = Instant::now();
        let found = Explorer::new(&world, bounds).explore();
        println!("{:28} {found} ({} ms)", world.name, start.elapsed().as_millis());
        if let Some(violation) = found.violation {
            println!("{}\n{}", violation.what, replay_command(&world, &violation.schedule));
            violations.push(world.name);
        }
    }
    assert!(violations.is_empty(), "violations in {violations:?}");
}

fn replay_command(world: &World, schedule: &Schedule) -> String {
    let troubles = if world.faults.contains(&Fault::Pause(0)) { "HOLDFAST_TROUBLES=1 " } else { "" };
    format!(
        "{troubles}HOLDFAST_WORLD={} HOLDFAST_SCHEDULE='{schedule}' cargo test -p holdfast-sim --test small_worlds one_schedule -- --ignored --nocapture",
        world.name
    )
}

fn bounds(delays: u32, waits: u32, faults: u32, runs_max: u64) -> Bounds {
    Bounds { delays: Some(delays), waits, faults, runs_max }
}

#[test]
fn every_order_within_two_delays() {
    explore(chosen(), bounds(2, 0, 0, u64::MAX));
}

#[test]
fn every_order_within_one_delay_while_time_runs_ahead() {
    explore(chosen(), bounds(1, 1, 0, 1_000));
}

#[test]
fn one_fault_at_every_moment() {
    explore(chosen(), bounds(0, 0, 1, u64::MAX));
}

/// Connections break, with whatever part of what was sent, and leases end while their nodes stand still or are cut off.
#[test]
fn one_trouble_at_every_moment() {
    let chosen = std::env::var("HOLDFAST_WORLD").unwrap_or_default();
    let worlds = worlds_with_troubles().into_iter().filter(|world| world.name.contains(&chosen));
    explore(worlds.collect(), bounds(0, 0, 1, u64::MAX));
}

/// Two nodes make one name: who is told that it exists already tells others, who must see it then.
#[test]
fn a_refusal_is_told_when_what_it_rests_on_is_seen_everywhere() {
    explore(named("-create/shared"), bounds(2, 0, 0, u64::MAX));
}

/// A link and the removal of the other name: the linking node is granted the inode with one link, not two.
#[test]
fn what_an_operation_made_is_granted_as_it_is_by_now() {
    explore(named("link-unlink"), bounds(2, 0, 0, u64::MAX));
}

/// As far as HOLDFAST_DELAYS, HOLDFAST_WAITS, HOLDFAST_FAULTS and HOLDFAST_RUNS say; without HOLDFAST_DELAYS every
/// order there is.
#[test]
#[ignore = "takes as long as it is told to"]
fn every_order_as_far_as_told() {
    let bounds = Bounds {
        delays: number("HOLDFAST_DELAYS"),
        waits: number("HOLDFAST_WAITS").unwrap_or(0),
        faults: number("HOLDFAST_FAULTS").unwrap_or(0),
        runs_max: number("HOLDFAST_RUNS").map_or(u64::MAX, u64::from),
    };
    explore(chosen(), bounds);
}

/// Runs HOLDFAST_SCHEDULE in HOLDFAST_WORLD and prints everything.
#[test]
#[ignore = "needs a schedule"]
fn one_schedule() {
    let Ok(schedule) = std::env::var("HOLDFAST_SCHEDULE") else { return };
    let schedule: Schedule = schedule.parse().expect("HOLDFAST_SCHEDULE holds events");
    let name = std::env::var("HOLDFAST_WORLD").expect("HOLDFAST_WORLD names the world");
    let world = all().into_iter().find(|world| world.name == name).expect("there is a world of that name");
    let mut run = Run::replay(&world, &schedule, true).expect("every step is right");
    if run.is_done() {
        run.judge().expect("the end is right");
    }
}
