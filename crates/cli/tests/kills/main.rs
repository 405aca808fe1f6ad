//! Goal: nodes die and stop in any order under load, and nothing that was promised is lost.
//! Method: two and three real mounts of one volume, several processes at each, which make, write, rename, link and remove
//! names, sync, lock, append to common files and look at each other's; nodes are killed and stopped in an order that a
//! seed draws, and mounted again. Each process checks what is its own exactly and writes down what it did and saw; what
//! a dead node left must be a prefix of what its processes did, with all that was synced or seen elsewhere.
//!
//! `HOLDFAST_SEED` repeats a run's draws, as far as time allows. Needs root and a FUSE device; says so without.

mod content;
mod death;
mod field;
mod gaps;
mod journal;
#[path = "../mounts/lab.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod lab;
mod model;
mod stall;
mod verdict;
mod worker;

use std::time::{Duration, Instant};

use field::{Field, Past, Scale, tree};
use lab::Lab;
use verdict::{COMMIT_US, judge, judge_looks};

const SHORT: Scale = Scale {
    sites: 2,
    processes: 3,
    time: Duration::from_secs(90),
    lease: Duration::from_secs(3),
    stops: true,
};

#[test]
fn two_nodes_lose_nothing_that_was_promised() {
    run("two", SHORT);
}

#[test]
fn three_nodes_lose_nothing_that_was_promised() {
    run("three", Scale { sites: 3, processes: 2, ..SHORT });
}

#[test]
#[ignore = "takes half an hour: cargo xtask long kills"]
fn half_an_hour_of_kills() {
    let time = Duration::from_secs(number("HOLDFAST_KILLS_SECONDS").unwrap_or(15 * 60));
    let nodes = number("HOLDFAST_KILLS_NODES");
    if nodes.is_none_or(|nodes| nodes == 2) {
        run("two", Scale { time, ..SHORT });
    }
    if nodes.is_none_or(|nodes| nodes == 3) {
        run("three", Scale { sites: 3, time, ..SHORT });
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn run(name: &str, scale: Scale) {
    let Some(lab) = Lab::new() else { return };
    let fresh = stall::now_us();
    let seed = number("HOLDFAST_SEED").unwrap_or(fresh);
    println!("{name}: HOLDFAST_SEED={seed}");
    let mut field = Field::new(lab, scale, seed);
    loop_kills(&mut field);
    finish(name, field);
}

/// What is done to the nodes next.
#[derive(Clone, Copy, Debug)]
enum Blow {
    KillMaster,
    KillOther,
    KillAll,
    StopMaster,
    StopOther,
}

fn loop_kills(field: &mut Field) {
    field.stall = Some(stall::Stall::start(&field.local));
    for site in 1..field.sites.len() {
        field.mount(site);
    }
    for site in 0..field.sites.len() {
        field.start_processes(site);
        field.wait_for_processes(site);
    }
    let until = Instant::now() + field.scale.time;
    while Instant::now() < until {
        let rest = 1000 + field.rng.below(2500);
        std::thread::sleep(Duration::from_millis(rest));
        field.check_alive();
        let blow = draw(field);
        strike(field, blow);
    }
    // What is under way now is promised too.
    std::thread::sleep(Duration::from_secs(1));
    field.check_alive();
    field.end();
    field.stalls = field.stall.take().map(stall::Stall::stop).unwrap_or_default();
}

fn draw(field: &mut Field) -> Blow {
    match field.rng.below(if field.scale.stops { 12 } else { 8 }) {
        0..3 => Blow::KillMaster,
        3..6 => Blow::KillOther,
        6..8 => Blow::KillAll,
        8..10 => Blow::StopMaster,
        _ => Blow::StopOther,
    }
}

fn strike(field: &mut Field, blow: Blow) {
    let master = field.master();
    let count = field.sites.len();
    let other = (master + 1 + field.rng.below(count as u64 - 1) as usize) % count;
    let began = Instant::now();
    match blow {
        Blow::KillMaster => kill(field, "kill master", vec![master]),
        Blow::KillOther => kill(field, "kill other", vec![other]),
        Blow::KillAll => {
            let mut all: Vec<usize> = (0..count).collect();
            let turn = field.rng.below(count as u64) as usize;
            all.rotate_left(turn);
            kill(field, "kill all", all);
        }
        Blow::StopMaster => stop(field, "stop master", master),
        Blow::StopOther => stop(field, "stop other", other),
    }
    println!(
        "{:>8.1} s {blow:?}, {:.1} s",
        field.began.elapsed().as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
}

/// Kills nodes and mounts again after a while.
fn kill(field: &mut Field, what: &'static str, dead: Vec<usize>) {
    let died = field.kill(what, &dead);
    let pause = field.rng.below(1500);
    std::thread::sleep(Duration::from_millis(pause));
    // Through the new mount or a survivor's.
    let survivor = (0..field.sites.len()).find(|site| !dead.contains(site));
    let through_survivor = field.rng.below(2) == 0;
    for site in &dead {
        let node = field.sites[*site].node;
        field.mount(*site);
        let by = survivor.filter(|_| through_survivor).unwrap_or(*site);
        judge_dead(field, node, Some(died), by);
    }
    for site in &dead {
        field.start_processes(*site);
        field.wait_for_processes(*site);
    }
}

/// Stops a node for half a lease, or for one to three.
fn stop(field: &mut Field, what: &'static str, site: usize) {
    let lease = field.scale.lease.as_millis() as u64;
    if field.rng.below(3) == 0 {
        return field.stop_for_a_moment(what, site, Duration::from_millis(lease / 2));
    }
    let time = Duration::from_millis(lease + field.rng.below(lease * 2));
    let (at, concerned) = field.stop(what, site, time);
    println!("           {what}: {concerned:?}");
    for (site, is_lost) in &concerned {
        let node = field.sites[*site].node;
        if field.sites[*site].mount.is_none() {
            field.mount(*site);
        }
        judge_dead(field, node, is_lost.then_some(at), *site);
    }
    for (site, _) in &concerned {
        field.start_processes(*site);
        field.wait_for_processes(*site);
    }
}

/// What a dead node left, seen from a site.
fn judge_dead(field: &mut Field, node: u64, died: Option<u64>, by: usize) {
    let root = field.root(by);
    let present = field.present();
    let all: Vec<&Past> = field.past.iter().chain(&present).collect();
    // One that had not begun has promised nothing.
    let is_dead = |past: &&Past| past.spec.node == node && !past.is_judged && past.spec.ready().exists();
    let dead: Vec<&Past> = field.past.iter().filter(is_dead).collect();
    let commit_us = field.commit_us(died);
    let mut verdict = judge(&root, &dead, died, &all, commit_us);
    for _ in 0..50 {
        // What a lost membership took answers errors until the last close of it has come to the node.
        let is_transient = |error: &String| error.contains("os error 5)");
        if !verdict.as_ref().is_err_and(is_transient) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        verdict = judge(&root, &dead, died, &all, commit_us);
    }
    let what = field.events.last().map_or("", |event| event.what);
    match verdict {
        Ok(lost) => field.lost.push((what, lost.us)),
        Err(error) => {
            let kept = field.keep_evidence();
            // Whether it stays, and whether it is one node that shows it.
            std::thread::sleep(Duration::from_secs(1));
            let again: Vec<String> = (0..field.sites.len())
                .filter(|site| field.sites[*site].mount.is_some())
                .map(|site| {
                    let again = judge(&field.root(site), &dead, died, &all, commit_us);
                    format!("{}: {again:?}", field.sites[site].name)
                })
                .collect();
            panic!(
                "seed {}: after {what} of node {node}, seen at {}: {error}\njournals in {kept}\na second later: {}",
                field.seed,
                root.display(),
                again.join("; ")
            )
        }
    }
    field.past.iter_mut().filter(|past| past.spec.node == node).for_each(|past| past.is_judged = true);
    check_journals(field);
}

/// What processes found wrong themselves.
fn check_journals(field: &Field) {
    let present = field.present();
    for past in field.past.iter().chain(&present) {
        if let Some(violation) = past.journal.violations.first() {
            let kept = field.keep_evidence();
            panic!(
                "seed {}: process {} at node {}: {violation}\njournals in {kept}",
                field.seed, past.spec.process, past.spec.node
            );
        }
        if let Some(lost) = past.journal.lost.as_ref().filter(|_| past.died.is_none()) {
            let kept = field.keep_evidence();
            panic!(
                "seed {}: process {} at node {}, which lives: {lost}\njournals in {kept}",
                field.seed, past.spec.process, past.spec.node
            );
        }
    }
}

/// All processes have ended in order: everything is there, from every mount, and the volume is whole.
fn finish(name: &str, mut field: Field) {
    check_journals(&field);
    let all: Vec<&Past> = field.past.iter().collect();
    let last = |past: &&Past| past.died.is_none();
    let nodes: Vec<u64> = field.sites.iter().map(|site| site.node).collect();
    for (site, node) in nodes.iter().enumerate() {
        let ended: Vec<&Past> =
            all.iter().copied().filter(last).filter(|past| past.spec.node == *node).collect();
        for by in [site, (site + 1) % nodes.len()] {
            let died = None;
            judge(&field.root(by), &ended, died, &all, COMMIT_US)
                .unwrap_or_else(|error| panic!("seed {}: at the end, node {node}: {error}", field.seed));
        }
    }
    let looks = judge_looks(&all).unwrap_or_else(|error| panic!("seed {}: {error}", field.seed));
    gaps::report(name, &mut field, looks);
    let trees: Vec<_> = (0..nodes.len()).map(|site| tree(&field.root(site))).collect();
    for (site, other) in trees.iter().enumerate() {
        let differ = trees[0].iter().zip(other).find(|(a, b)| a != b);
        assert!(
            trees[0].len() == other.len() && differ.is_none(),
            "seed {}: site {site}: {differ:?}",
            field.seed
        );
    }
    field.unmount();
    field.lab.holdfast(&["fsck", "vol"]).expect_success();
}
