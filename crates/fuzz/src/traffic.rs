//! Seeds: what simulated clusters sent and stored.

use std::sync::OnceLock;

use sim::{ClusterConfig, Deaths, ProcessesConfig, RunConfig, Traffic};

/// The traffic of a few runs: operations of every kind, deaths of nodes and of the master.
pub fn traffic() -> &'static Traffic {
    static TRAFFIC: OnceLock<Traffic> = OnceLock::new();
    TRAFFIC.get_or_init(record)
}

fn record() -> Traffic {
    let cluster = |seed| ClusterConfig { seed, nodes: 3, ..ClusterConfig::default() };
    let mut traffic =
        sim::run(RunConfig { cluster: cluster(1), operations: 400, kill_master_every: 60, rest_every: 40 })
            .traffic;
    for (seed, deaths) in [
        (2, Deaths { master_every: 800, node_every: 2000, ..Deaths::default() }),
        (3, Deaths { power_every: 3000, ..Deaths::default() }),
    ] {
        let config = ProcessesConfig {
            cluster: cluster(seed),
            processes: 6,
            steps: 150,
            directories: 3,
            deaths,
            plan: Vec::new(),
        };
        let other = sim::run_processes(config).traffic;
        let (records, segments) = (traffic.records.clone(), traffic.segments.clone());
        traffic.add(other);
        // One volume's, so that records belong together.
        (traffic.records, traffic.segments) = (records, segments);
    }
    traffic
}
