//! How long processes at other nodes waited after a node died or stopped.

use crate::field::{Event, Field, Past};
use crate::journal::Op;

/// Service for survivors is back after a kill within this.
const GAP_US: u64 = 2_000_000;
/// What began so long after an event may wait for it; later ones for the next.
const WINDOW_US: u64 = 1_000_000;
/// What a node's log says when it has become the master.
const TOOK_OVER: &str = "this node is master under epoch";

/// Longest wait of each process elsewhere that ended after the event.
fn gaps(event: &Event, all: &[Past], is_lock: bool) -> Vec<u64> {
    let of_survivor = |past: &&Past| {
        !event.nodes.contains(&past.spec.node) && past.died.is_none_or(|died| died > event.at + WINDOW_US)
    };
    let gap = |past: &Past| {
        let touched = past.journal.done.iter().filter(|done| {
            let ended = done.ended.unwrap_or(0);
            ended > event.at
                && done.began < event.at + WINDOW_US
                && matches!(done.op, Op::Locked(_)) == is_lock
        });
        touched.filter_map(|done| done.ended.map(|ended| ended - done.began.max(event.at))).max()
    };
    all.iter().filter(of_survivor).filter_map(gap).collect()
}

/// Prints distributions, and holds kills to what is promised.
pub fn report(name: &str, field: &mut Field, looks: u64) {
    let operations: usize = field.past.iter().map(|past| past.journal.done.len()).sum();
    println!(
        "{name}: {} events, {} lives of processes, {operations} operations, {looks} looks at others'",
        field.events.len(),
        field.past.len()
    );
    let mut kinds: Vec<&str> = field.events.iter().map(|event| event.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    println!(
        "{:<12} {:>6} {:>9} {:>9} {:>9} {:>9}   of locks",
        "event", "times", "gap p50", "p99", "max", "max lost"
    );
    for kind in kinds {
        let events: Vec<&Event> = field.events.iter().filter(|event| event.what == kind).collect();
        let mut waits: Vec<u64> = events.iter().flat_map(|event| gaps(event, &field.past, false)).collect();
        let mut locks: Vec<u64> = events.iter().flat_map(|event| gaps(event, &field.past, true)).collect();
        waits.sort_unstable();
        locks.sort_unstable();
        let lost = field.lost.iter().filter(|(what, _)| *what == kind).map(|(_, us)| *us).max().unwrap_or(0);
        println!(
            "{kind:<12} {:>6} {:>6} ms {:>6} ms {:>6} ms {:>6} ms   p50 {} ms, max {} ms",
            events.len(),
            at(&waits, 50),
            at(&waits, 99),
            at(&waits, 100),
            lost / 1000,
            at(&locks, 50),
            at(&locks, 100)
        );
    }
    let mut opened = openings(field);
    opened.sort_unstable();
    println!(
        "metadata opened: {} times, p50 {} ms, max {} ms",
        opened.len(),
        at(&opened, 50),
        at(&opened, 100)
    );
    let worst = |all: &[(u64, u64)]| all.iter().map(|(_, late)| *late).max().unwrap_or(0) / 1000;
    let mut mounts = field.mounts.clone();
    mounts.sort_unstable();
    println!(
        "mounts: {}, p50 {} ms, max {} ms; {} aborted by guards",
        mounts.len(),
        at(&mounts, 50),
        at(&mounts, 100),
        field.aborted
    );
    let mut deaths = std::mem::take(&mut field.deaths).end();
    deaths.sort_unstable();
    println!("a killed node was gone within p50 {} ms, max {} ms", at(&deaths, 50), at(&deaths, 100));
    println!(
        "the machine itself was late by {} ms at most, its disk by {} ms",
        worst(&field.stalls.sleeps),
        worst(&field.stalls.syncs)
    );
    for event in field.events.iter().filter(|event| event.what.starts_with("kill")) {
        let worst = gaps(event, &field.past, false).into_iter().max().unwrap_or(0);
        let late = field.stalls.between(event.at, event.at + worst);
        if worst > GAP_US + late {
            let (worst, late, kept) = (worst / 1000, late / 1000, field.keep_evidence());
            let took_over = field.log_lines(TOOK_OVER).join("\n");
            let dying = event.nodes.iter().map(|node| field.local.join(format!("death-{node}")));
            let dying: String = dying.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
            panic!(
                "seed {}: {event:?}: a survivor's process waited {worst} ms (the machine was late by {late} ms); \
                 {kept}\n{took_over}\n{dying}",
                field.seed
            );
        }
    }
}

/// How long each new master took to open the metadata, in microseconds, as its log says.
fn openings(field: &Field) -> Vec<u64> {
    let millis = |line: &String| {
        let (_, rest) = line.split_once("metadata opened in ")?;
        rest.split_once(' ')?.0.parse::<u64>().ok()
    };
    let lines = field.log_lines(TOOK_OVER);
    lines.iter().filter_map(millis).map(|millis| millis * 1000).collect()
}

/// A percentile in milliseconds.
fn at(sorted: &[u64], percent: usize) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).map_or(0, |us| us / 1000)
}
