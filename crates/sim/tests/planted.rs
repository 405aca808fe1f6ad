//! Faults planted in the cores: each must be found, by small worlds or by the simulation, and not at the first glance.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sim::explore::{Bounds, Explorer, World, worlds, worlds_with_troubles};
use sim::{ClusterConfig, Deaths, ProcessesConfig, Trace, run_processes, run_trial};
use types::planted::{Planted, clear, plant};

/// How a fault is found.
enum Method {
    /// Every order of events of small worlds within two delays, with so many deaths.
    Worlds { deaths: u32 },
    /// Every moment of small worlds at which a connection breaks or a lease ends.
    Troubles,
    /// Processes at once, seed after seed, while these die.
    Seeds(Deaths),
    /// The same with kernels that take in answers late.
    Late,
    /// Trials, seed after seed from this one on: some faults show as processes that wait, which takes long to simulate.
    Trials { from: u64 },
}

const ALIVE: Deaths =
    Deaths { master_every: 0, node_every: 0, power_every: 0, pause_every: 0, cut_every: 0, break_every: 0 };
const POWER: Deaths = Deaths { power_every: 2_000, ..ALIVE };
const APART: Deaths = Deaths { pause_every: 500, cut_every: 500, ..ALIVE };
const MASTERS: Deaths = Deaths { master_every: 700, ..ALIVE };

/// Each fault, on which of its occasions it strikes, and what finds it.
const TABLE: &[(Planted, u32, Method)] = &[
    (Planted::ForgetKeepsAttributes, 1, Method::Worlds { deaths: 0 }),
    (Planted::ForgetAcknowledgedEarly, 1, Method::Worlds { deaths: 0 }),
    (Planted::ReleasedBeforeTheKernel, 1, Method::Worlds { deaths: 0 }),
    (Planted::BatchAppliedTwice, 1, Method::Worlds { deaths: 1 }),
    (Planted::RefusedEarly, 1, Method::Worlds { deaths: 0 }),
    (Planted::GrantedAsItWas, 1, Method::Worlds { deaths: 0 }),
    (Planted::AnsweredEarly, 1, Method::Worlds { deaths: 0 }),
    (Planted::LeaseCutShort, 1, Method::Troubles),
    (Planted::ForgetKeepsAttributes, 40, Method::Seeds(ALIVE)),
    (Planted::ShippedBeforeTheLog, 100, Method::Seeds(ALIVE)),
    (Planted::SplitForgotten, 1, Method::Worlds { deaths: 0 }),
    (Planted::InodeNumberReused, 1_000, Method::Seeds(ALIVE)),
    (Planted::StaleGrantTaken, 1, Method::Seeds(ALIVE)),
    (Planted::SyncSkipped, 60, Method::Seeds(POWER)),
    (Planted::BatchAppliedTwice, 200, Method::Seeds(MASTERS)),
    (Planted::OrphanLost, 1, Method::Seeds(ALIVE)),
    (Planted::FenceLeftOpen, 1, Method::Trials { from: 200 }),
    (Planted::LeaseUnchecked, 20, Method::Seeds(APART)),
    (Planted::AnyDirectoryRemoved, 1, Method::Worlds { deaths: 0 }),
    (Planted::TurnMissesTheLast, 1, Method::Seeds(ALIVE)),
    (Planted::SeenBeforeTakenIn, 40, Method::Late),
];

const RUNS_MAX: u64 = 2_000;
const SEEDS_MAX: u64 = 600;

/// After how many runs a fault is found, and what is said then.
fn find(method: &Method) -> Option<(String, u64, String)> {
    let (worlds, faults) = match method {
        Method::Worlds { deaths } => (worlds(), *deaths),
        Method::Troubles => (worlds_with_troubles(), 1),
        Method::Seeds(deaths) => return find_by_seeds(0, |seed| processes(seed, *deaths, false)),
        Method::Late => return find_by_seeds(0, |seed| processes(seed, ALIVE, true)),
        Method::Trials { from } => return find_by_seeds(*from, |seed| drop(run_trial(seed, Trace::Off))),
    };
    let delays = if matches!(method, Method::Troubles) { 0 } else { 2 };
    let bounds = Bounds { delays: Some(delays), waits: 0, faults, runs_max: RUNS_MAX };
    worlds.iter().find_map(|world: &World| {
        let found = Explorer::new(world, bounds).explore();
        Some((world.name.clone(), found.runs, found.violation?.what))
    })
}

fn processes(seed: u64, deaths: Deaths, may_be_late: bool) {
    let may_break = deaths.pause_every + deaths.cut_every > 0;
    let cluster = ClusterConfig { seed, nodes: 3, may_break, may_be_late, ..ClusterConfig::default() };
    let plan = Vec::new();
    run_processes(ProcessesConfig { cluster, processes: 6, steps: 200, directories: 3, deaths, plan });
}

fn find_by_seeds(from: u64, run: impl Fn(u64)) -> Option<(String, u64, String)> {
    for seed in from..from + SEEDS_MAX {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            let what = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            return Some((format!("seed {seed}"), seed - from + 1, what));
        }
    }
    None
}

#[test]
fn every_planted_fault_is_found() {
    // Assertions that fail are what is looked for.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    let mut most_runs = BTreeMap::new();
    for (fault, every, method) in TABLE {
        plant(*fault, *every);
        match find(method) {
            Some((place, runs, what)) => {
                let what: String = what.chars().take(100).collect();
                let most = most_runs.entry(format!("{fault:?}")).or_insert(0);
                *most = runs.max(*most);
                println!("{fault:?}, 1 in {every}: after {runs} runs, in {place}: {what}");
            }
            None => missed.push(format!("{fault:?}, 1 in {every}")),
        }
        clear();
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
    // A fault that any run finds shows nothing about the search.
    most_runs.retain(|_, runs| *runs == 1);
    assert!(most_runs.is_empty(), "found by the first run: {most_runs:?}");
}
