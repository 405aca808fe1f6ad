//! Short segments, so that they are left, disowned, cleaned and deleted all the time, while the model and every
//! kernel's caches are checked and the records of space at the end.

use sim::{ClusterConfig, RunConfig, run};

#[test]
fn segments_come_and_go_while_nodes_read_and_write() {
    let first: u64 = std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let count: u64 = std::env::var("HOLDFAST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let (mut deleted, mut copied) = (0, 0);
    for seed in first..first + count {
        let core = vfs::Config { segment_len: 16 << 10, ..vfs::Config::default() };
        let verbose = std::env::var_os("HOLDFAST_TRACE").is_some();
        let cluster = ClusterConfig { seed, nodes: 3, core, listing_entries: 0, verbose };
        let kill_master_every = if seed % 2 == 0 { 0 } else { 60 };
        let figures = run(RunConfig { cluster, operations: 400, kill_master_every, rest_every: 25 }).figures;
        deleted += figures.segments_deleted;
        copied += figures.extents_copied;
    }
    println!("{deleted} segments deleted, {copied} extents moved");
    assert!(deleted > 10 * count && copied > count, "{deleted} deleted, {copied} moved");
}
