//! The main run: from one seed a cluster of its own making, a plan of what goes wrong in it, and processes at work meanwhile.

use lock::node::Hold;
use meta::{Limit, Limits};
use types::Micros;

use crate::cluster::ClusterConfig;
use crate::processes::{Deaths, ProcessesConfig, ProcessesRun, Trouble, run_processes};

/// Whether a run prints what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Every message, request and invalidation.
    Printed,
    /// Nothing.
    Off,
}

/// Runs the trial of a seed. Panics, naming the seed, at the first thing that must not be.
pub fn run_trial(seed: u64, trace: Trace) -> ProcessesRun {
    let mut rng = fastrand::Rng::with_seed(seed ^ SALT);
    let nodes = rng.usize(3..=5);
    let processes = 2 * nodes;
    let cluster = ClusterConfig {
        seed,
        nodes,
        core: core_config(&mut rng),
        listing_entries: [0, 3, 100][rng.usize(0..3)],
        verbose: trace == Trace::Printed,
        // Within the bound that docs/locking.md states, and now and then far beyond it.
        drift: [0, 1_000, 30_000, 95_000, BEYOND_BOUND][rng.usize(0..5)],
        may_break: true,
        may_fail: true,
        // In every fourth seed some 80 tokens for all nodes together.
        token_memory: [256 << 20, 16 << 10][usize::from(rng.usize(0..4) == 0)],
        limits: limits(seed),
        may_be_late: true,
    };
    let steps = OPERATIONS_MIN.div_ceil(processes);
    let plan = plan(&mut rng, seed, (steps * processes) as u64);
    let directories = [1, 3, 20][rng.usize(0..3)];
    let run = run_processes(ProcessesConfig {
        cluster,
        processes,
        steps,
        directories,
        deaths: Deaths::default(),
        plan,
    });
    assert!(run.steps >= OPERATIONS_MIN as u64, "seed {seed}: {} operations", run.steps);
    run
}

/// Settings of the nodes: as they are, or with memory that is far too small.
fn core_config(rng: &mut fastrand::Rng) -> vfs::Config {
    // Closed files wait for some others, or for a flush.
    let (segment_len, store_bytes) = [(16 << 10, 6 << 10), (256 << 10, 512 << 10)][rng.usize(0..2)];
    let mut core = vfs::Config {
        segment_len,
        store_bytes,
        copy_sync_min: 4 << 10,
        // As often as can be something else comes between two files.
        files_at_once: 1,
        ..vfs::Config::default()
    };
    if rng.usize(0..2) == 0 {
        core.token_limit = [16, 64][rng.usize(0..2)];
        core.cache_bytes_max = 4096;
        core.log_bytes_max = 4 << 10;
        core.dirty_bytes_max = 64 << 10;
        core.unsynced_bytes_max = 256 << 10;
    }
    if rng.usize(0..3) == 0 {
        core.hold = Hold { minimum: Micros(30), idle: Micros(10), rest: Micros(20) };
        core.quiet = Micros(50);
        core.linger = Micros(20);
        core.commit_interval = Micros(3_000);
    }
    core
}

/// In every third seed limits that are reached, or nearly.
fn limits(seed: u64) -> Option<Limits> {
    let mut rng = fastrand::Rng::with_seed(seed ^ LIMITS_SALT);
    let mut limit = |hard: [u64; 3]| Limit { hard: hard[rng.usize(0..3)], ..Limit::default() };
    let (bytes, inodes) = (limit([0, 60_000, 400_000]), limit([0, 50, 150]));
    seed.is_multiple_of(3).then_some(Limits { bytes, inodes }).filter(|limits| !limits.is_none())
}

/// What goes wrong, and after how many steps.
fn plan(rng: &mut fastrand::Rng, seed: u64, steps: u64) -> Vec<(u64, Trouble)> {
    let count = rng.usize(TROUBLES_MIN..=2 * TROUBLES_MIN);
    let mut troubles: Vec<Trouble> =
        (0..count).map(|_| Trouble::ALL[rng.usize(0..Trouble::ALL.len())]).collect();
    if seed % 2 == 0 {
        troubles[0] = Trouble::MasterDies;
    }
    let mut plan: Vec<(u64, Trouble)> =
        troubles.into_iter().map(|trouble| (rng.u64(steps / 20..steps * 4 / 5), trouble)).collect();
    plan.sort_by_key(|(turn, _)| *turn);
    plan
}

const OPERATIONS_MIN: usize = 1_000;
const TROUBLES_MIN: usize = 5;
/// Clocks that run at half the rate of the master's, or more than twice.
const BEYOND_BOUND: u32 = 500_000;
/// So that a plan says nothing of what its seed decides elsewhere.
const SALT: u64 = 0x7419_1a15;
const LIMITS_SALT: u64 = 0x0bad_cafe;
