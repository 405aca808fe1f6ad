//! Random operations on all nodes against a plain model, with every kernel's caches checked after each.

use sim::{ClusterConfig, RunConfig, run};

fn config(seed: u64, nodes: usize, operations: usize, kill_master_every: u64) -> RunConfig {
    let verbose = std::env::var_os("HOLDFAST_TRACE").is_some();
    let cluster = ClusterConfig {
        seed,
        nodes,
        core: vfs::Config::default(),
        listing_entries: 0,
        verbose,
        ..ClusterConfig::default()
    };
    RunConfig { cluster, operations, kill_master_every, rest_every: 0 }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let first: u64 = std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let count: u64 = std::env::var("HOLDFAST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(default);
    first..first + count
}

#[test]
fn one_node_behaves_as_the_model() {
    for seed in seeds(20) {
        run(config(seed, 1, 300, 0));
    }
}

#[test]
fn two_nodes_are_strictly_coherent() {
    for seed in seeds(60) {
        run(config(seed, 2, 400, 0));
    }
}

#[test]
fn three_nodes_are_strictly_coherent_across_deaths_of_the_master() {
    for seed in seeds(60) {
        run(config(seed, 3, 400, 40));
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (a, b) = (run(config(7, 2, 300, 50)), run(config(7, 2, 300, 50)));
    assert_eq!((a.trace, a.figures), (b.trace, b.figures));
    assert_ne!(a.trace, run(config(8, 2, 300, 50)).trace);
}
