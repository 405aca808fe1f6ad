//! Short segments, so that they are left, disowned, cleaned and deleted all the time, while the model and every
//! kernel's caches are checked and the records of space at the end.

use sim::{ClusterConfig, RunConfig, run};

#[test]
fn segments_come_and_go_while_nodes_read_and_write() {
    for seed in 0..60 {
        let core = vfs::Config { segment_len: 16 << 10, ..vfs::Config::default() };
        let cluster = ClusterConfig { seed, nodes: 3, core, listing_entries: 0, verbose: false };
        let kill_master_every = if seed % 2 == 0 { 0 } else { 60 };
        run(RunConfig { cluster, operations: 400, kill_master_every });
    }
}
