//! Short segments, so that they are left, disowned, cleaned and deleted all the time, while the model and every
//! kernel's caches are checked and the records of space at the end.

use sim::{ClusterConfig, Deaths, ProcessesConfig, RunConfig, run, run_processes};

fn cluster(seed: u64) -> ClusterConfig {
    let core = vfs::Config { segment_len: 16 << 10, copy_sync_min: 4 << 10, ..vfs::Config::default() };
    let verbose = std::env::var_os("HOLDFAST_TRACE").is_some();
    ClusterConfig { seed, nodes: 3, core, listing_entries: 0, verbose, ..ClusterConfig::default() }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let first: u64 = std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let count: u64 = std::env::var("HOLDFAST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(default);
    first..first + count
}

#[test]
fn segments_come_and_go_while_nodes_read_and_write() {
    let seeds = seeds(60);
    let count = seeds.end - seeds.start;
    let (mut deleted, mut copied, mut shared) = (0, 0, 0);
    for seed in seeds {
        let cluster = cluster(seed);
        let kill_master_every = if seed % 2 == 0 { 0 } else { 60 };
        let run = run(RunConfig { cluster, operations: 400, kill_master_every, rest_every: 25 });
        shared += run.operations.get("copy").map_or(0, |count| count.0);
        let figures = run.figures;
        deleted += figures.segments_deleted;
        copied += figures.extents_copied;
    }
    println!("{deleted} segments deleted, {copied} extents moved, {shared} copies");
    assert!(
        deleted > 10 * count && copied > count && shared > count,
        "{deleted} deleted, {copied} moved, {shared} copies"
    );
}

#[test]
fn nothing_that_is_needed_goes_while_everything_dies_now_and_then() {
    let (mut deleted, mut copied) = (0, 0);
    for seed in seeds(20) {
        let deaths = Deaths { master_every: 2000, node_every: 3000, power_every: 4000, ..Deaths::default() };
        let config = ProcessesConfig {
            cluster: cluster(seed),
            processes: 6,
            steps: 200,
            directories: 3,
            deaths,
            plan: Vec::new(),
        };
        let figures = run_processes(config).figures;
        deleted += figures.segments_deleted;
        copied += figures.extents_copied;
    }
    println!("{deleted} segments deleted, {copied} extents moved");
    assert!(deleted > 0);
}
