//! Several processes at once on every node, with deaths of whatever can die.

use lock::node::Hold;
use sim::{ClusterConfig, Coverage, Deaths, ProcessesConfig, run_processes};
use types::Micros;

fn config(seed: u64, nodes: usize, processes: usize, steps: usize) -> ProcessesConfig {
    let verbose = std::env::var_os("HOLDFAST_TRACE").is_some();
    let cluster = ClusterConfig {
        seed,
        nodes,
        core: vfs::Config::default(),
        listing_entries: 0,
        verbose,
        ..ClusterConfig::default()
    };
    ProcessesConfig { cluster, processes, steps, directories: 3, deaths: Deaths::default(), plan: Vec::new() }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let first: u64 = std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let count: u64 = std::env::var("HOLDFAST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(default);
    first..first + count
}

fn run_all(default: u64, config: impl Fn(u64) -> ProcessesConfig) {
    let mut coverage = Coverage::default();
    for seed in seeds(default) {
        let run = run_processes(config(seed));
        println!("seed {seed}: {:?}", run.figures);
        coverage.add(&run.coverage);
    }
    println!("{coverage}");
}

#[test]
fn processes_at_once_find_their_own_exact() {
    run_all(10, |seed| config(seed, 3, 6, 200));
}

#[test]
fn processes_at_once_survive_deaths_of_the_master() {
    run_all(10, |seed| ProcessesConfig {
        deaths: Deaths { master_every: 1500, ..Deaths::default() },
        ..config(seed, 3, 6, 200)
    });
}

#[test]
fn what_a_dead_node_leaves_is_a_prefix() {
    run_all(10, |seed| ProcessesConfig {
        deaths: Deaths { node_every: 1500, ..Deaths::default() },
        ..config(seed, 3, 6, 200)
    });
}

#[test]
fn what_a_loss_of_power_leaves_is_a_prefix() {
    run_all(10, |seed| ProcessesConfig {
        deaths: Deaths { power_every: 2000, ..Deaths::default() },
        ..config(seed, 3, 6, 200)
    });
}

#[test]
fn everything_dies_now_and_then() {
    run_all(10, |seed| ProcessesConfig {
        deaths: Deaths { master_every: 700, node_every: 1500, power_every: 6000, ..Deaths::default() },
        ..config(seed, 4, 8, 200)
    });
}

#[test]
fn few_tokens_and_short_times() {
    run_all(10, tight);
}

#[test]
fn few_tokens_and_short_times_with_deaths() {
    run_all(10, |seed| ProcessesConfig {
        deaths: Deaths { master_every: 600, node_every: 2000, power_every: 9000, ..Deaths::default() },
        ..tight(seed)
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let deaths = Deaths { master_every: 700, node_every: 1500, power_every: 6000, ..Deaths::default() };
    let [a, b] = [(); 2].map(|()| run_processes(ProcessesConfig { deaths, ..config(3, 3, 6, 100) }));
    assert_eq!((a.trace, a.figures, a.coverage), (b.trace, b.figures, b.coverage));
}

#[test]
fn many_processes_on_two_nodes() {
    run_all(6, |seed| ProcessesConfig { directories: 1, ..config(seed, 2, 12, 200) });
}

/// Settings under which memberships may end and connections break.
fn troubled(config: ProcessesConfig, deaths: Deaths) -> ProcessesConfig {
    let cluster = ClusterConfig { drift: 30_000, may_break: true, ..config.cluster };
    ProcessesConfig { cluster, deaths, ..config }
}

#[test]
fn connections_break() {
    let deaths = Deaths { break_every: 300, ..Deaths::default() };
    run_all(10, |seed| troubled(config(seed, 3, 6, 200), deaths));
}

#[test]
fn machines_stand_still() {
    let deaths = Deaths { pause_every: 1000, ..Deaths::default() };
    run_all(10, |seed| troubled(config(seed, 3, 6, 200), deaths));
}

#[test]
fn nodes_are_out_of_reach() {
    let deaths = Deaths { cut_every: 1000, break_every: 2000, ..Deaths::default() };
    run_all(10, |seed| troubled(config(seed, 3, 6, 200), deaths));
}

#[test]
fn everything_goes_wrong_now_and_then() {
    let deaths = Deaths {
        master_every: 2000,
        node_every: 3000,
        power_every: 9000,
        pause_every: 2000,
        cut_every: 2000,
        break_every: 2000,
    };
    run_all(10, |seed| troubled(config(seed, 4, 8, 200), deaths));
}

#[test]
fn everything_goes_wrong_with_few_tokens() {
    let deaths = Deaths {
        master_every: 2000,
        node_every: 3000,
        power_every: 9000,
        pause_every: 2000,
        cut_every: 2000,
        break_every: 1000,
    };
    run_all(10, |seed| troubled(tight(seed), deaths));
}

fn tight(seed: u64) -> ProcessesConfig {
    let mut config = ProcessesConfig { directories: 90, ..config(seed, 3, 6, 200) };
    config.cluster.core.token_limit = 64;
    config.cluster.core.cache_bytes_max = 4096;
    config.cluster.core.hold = Hold { minimum: Micros(30), idle: Micros(10), rest: Micros(20) };
    config.cluster.core.quiet = Micros(50);
    config.cluster.core.linger = Micros(20);
    config.cluster.core.commit_interval = Micros(3_000);
    config.cluster.listing_entries = 3;
    config
}
