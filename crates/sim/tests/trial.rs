//! The main run: everything that can go wrong, a thousand operations and more.

use sim::{Coverage, Trace, run_trial};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Each time other seeds, unless told which.
#[test]
fn processes_find_their_own_whatever_goes_wrong() {
    let trace = if std::env::var_os("HOLDFAST_TRACE").is_some() { Trace::Printed } else { Trace::Off };
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let fresh = clock.map_or(0, |time| time.as_nanos() as u64 % 1_000_000_000);
    let first = number("HOLDFAST_SEED").unwrap_or(fresh);
    let mut coverage = Coverage::default();
    for seed in first..first + number("HOLDFAST_SEEDS").unwrap_or(20) {
        println!(
            "seed {seed}; again: HOLDFAST_SEED={seed} HOLDFAST_SEEDS=1 cargo test -p holdfast-sim --test trial"
        );
        let run = run_trial(seed, trace);
        println!("{:?} {:?}", run.figures, run.troubles);
        coverage.add(&run.coverage);
    }
    println!("{coverage}");
}

#[test]
fn the_same_seed_gives_the_same_trial() {
    let [a, b] = [(); 2].map(|()| run_trial(7, Trace::Off));
    assert_eq!((a.trace, a.figures, a.troubles, a.coverage), (b.trace, b.figures, b.troubles, b.coverage));
}
