//! Goal: what a program sees on two mounts of one volume is what it would see on a local file system.
//! Method: a seed draws system calls, each done on one of the two mounts and on a directory of ext4, most of them on names
//! and descriptors that are there. Results, errors and attributes are compared after each, whole trees from both mounts now
//! and then and at the end. Beside it one file is read and written in every way from both mounts, by turns against its bytes, and at once.
//!
//! `HOLDFAST_SEED` and `HOLDFAST_STEPS` repeat a run, `HOLDFAST_SEEDS` asks for more of them. Needs root and a FUSE device; says so without.

mod arena;
mod at_once;
mod differ;
mod draw;
#[path = "../mounts/lab.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod lab;
mod look;
mod names;
mod one_file;
mod op;
mod pairs;
mod raw;
mod tally;

use std::time::{Duration, SystemTime};

use arena::Arena;
use at_once::AtOnce;
use differ::{Differ, End};
use names::Names;
use one_file::OneFile;
use pairs::Pairs;

#[test]
fn random_operations_do_what_they_do_on_ext4() {
    run_seeds("random_operations_do_what_they_do_on_ext4", |seed, end| {
        let Some(arena) = Arena::new(patience(end)) else { return Ok(0) };
        let mut differ = Differ::new(arena, seed);
        let result = differ.run(end);
        differ.tally.print();
        let steps = result?;
        println!("{steps} steps");
        let (successes, total) = (differ.tally.successes(), differ.tally.total());
        // Of few steps few may succeed.
        assert!(total < 500 || successes * 2 >= total, "{successes} of {total} operations succeeded");
        Ok(total)
    });
}

#[test]
fn one_file_is_what_was_written_to_it() {
    run_seeds("one_file_is_what_was_written_to_it", |seed, end| {
        let Some(arena) = Arena::new(patience(end)) else { return Ok(0) };
        let steps = OneFile::new(arena, seed).run(end)?;
        println!("{steps} steps");
        Ok(steps)
    });
}

#[test]
fn one_file_is_what_both_mounts_write_at_once() {
    run_seeds("one_file_is_what_both_mounts_write_at_once", |seed, end| {
        let Some(arena) = Arena::new(patience(end)) else { return Ok(0) };
        let steps = AtOnce::new(arena, seed).run(end)?;
        println!("{steps} steps");
        Ok(steps)
    });
}

/// A long form: `cargo xtask long pairs`.
#[test]
#[ignore = "takes minutes"]
fn two_operations_at_once_leave_what_either_order_does() {
    run_seeds("two_operations_at_once_leave_what_either_order_does", |seed, end| {
        let Some(arena) = Arena::new(patience(end)) else { return Ok(0) };
        let steps = Pairs::new(arena, seed).run(end)?;
        println!("{steps} steps");
        Ok(steps)
    });
}

/// A long form: `cargo xtask long names`.
#[test]
#[ignore = "takes minutes"]
fn names_at_once_are_what_some_order_makes_them() {
    run_seeds("names_at_once_are_what_some_order_makes_them", |seed, end| {
        let Some(arena) = Arena::new(patience(end)) else { return Ok(0) };
        let steps = Names::new(arena, seed).run(end)?;
        println!("{steps} steps");
        Ok(steps)
    });
}

/// Runs the seed that is asked for, else one that is always the same and as many fresh ones as are asked for. A run tells how many
/// operations it made.
fn run_seeds(test: &str, run: impl Fn(u64, End) -> Result<u64, String>) {
    let fresh =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let steps = number("HOLDFAST_STEPS").map(End::Steps);
    let fresh = (0..number("HOLDFAST_SEEDS").unwrap_or(1)).map(|n| (fresh % 1_000_000_000) + n);
    let seeds = number("HOLDFAST_SEED").map_or([1].into_iter().chain(fresh).collect(), |seed| vec![seed]);
    let mut operations = 0;
    for seed in seeds {
        println!("HOLDFAST_SEED={seed}");
        let result = run(seed, steps.unwrap_or(End::Time(TIME)));
        operations += result.as_ref().copied().unwrap_or(0);
        if let Err(what) = result {
            let step = what.strip_prefix("step ").and_then(|rest| rest.split(':').next()).unwrap_or("");
            panic!(
                "{what}\nAgain: HOLDFAST_SEED={seed} HOLDFAST_STEPS={step} cargo test -p holdfast --test differ {test} -- --nocapture"
            );
        }
    }
    println!("{operations} operations in all, no difference");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// How long mounts may live.
fn patience(end: End) -> Duration {
    Duration::from_secs(120)
        + match end {
            End::Steps(steps) => Duration::from_millis(steps * 100),
            End::Time(time) => time,
        }
}

/// For one seed, unless steps are given.
const TIME: Duration = Duration::from_secs(12);
