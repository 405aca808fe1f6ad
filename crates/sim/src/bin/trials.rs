//! Runs trials of many seeds: what was run, what went wrong on purpose, what was gone through, and which seeds fail. Then goes
//! through the small worlds, and says how many states there were.
//!
//! `trials [--seeds N] [--from SEED]`, or `trials --seed SEED [--trace]`. Without a seed they are other ones each time.

use std::collections::BTreeMap;
use std::panic;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sim::explore::{Bounds, Explorer, worlds, worlds_with_troubles};
use sim::{Coverage, Figures, ProcessesRun, Trace, run_trial};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(order) = Order::parse(&words) else {
        eprintln!("usage: trials [--seeds N] [--from SEED] | --seed SEED [--trace]");
        return ExitCode::from(2);
    };
    let Order { first, count, trace } = order;
    if trace == Trace::Printed {
        run_trial(first, trace);
        return ExitCode::SUCCESS;
    }
    println!("seeds {first} to {}", first + count - 1);
    let since = Instant::now();
    let total = run_all(first, count);
    total.print(since.elapsed().as_secs_f64());
    let is_violated = count > 1 && explore_worlds(if count >= SEEDS_FOR_ALL { 2 } else { 1 });
    let unexplained = if count >= SEEDS_FOR_ALL { total.coverage.unexplained() } else { Vec::new() };
    for what in &unexplained {
        println!("never, without a reason: {what}");
    }
    ExitCode::from(u8::from(is_violated || !total.failed.is_empty() || !unexplained.is_empty()))
}

/// Every order within so many delays, and one fault or trouble at every moment. Whether anything is violated.
fn explore_worlds(delays: u32) -> bool {
    let bounds = |delays, faults| Bounds { delays: Some(delays), waits: 0, faults, runs_max: u64::MAX };
    let parts = [
        (format!("every order within {delays} delays"), worlds(), bounds(delays, 0)),
        ("one death at every moment".to_owned(), worlds(), bounds(0, 1)),
        ("one trouble at every moment".to_owned(), worlds_with_troubles(), bounds(0, 1)),
    ];
    let mut is_violated = false;
    for (what, worlds, bounds) in parts {
        let (mut runs, mut states) = (0, 0);
        for world in &worlds {
            let found = Explorer::new(world, bounds).explore();
            runs += found.runs;
            states += found.states;
            if let Some(violation) = found.violation {
                println!("{}: {}: {}", world.name, violation.what, violation.schedule);
                is_violated = true;
            }
        }
        println!("small worlds, {what}: {states} states explored in {runs} runs of {} worlds", worlds.len());
    }
    is_violated
}

/// What to run.
struct Order {
    first: u64,
    count: u64,
    trace: Trace,
}

impl Order {
    fn parse(words: &[&str]) -> Option<Self> {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let mut order =
            Self { first: clock.as_secs() * 1000 % 1_000_000_000_000, count: 100, trace: Trace::Off };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--seeds" => order.count = words.next()?.parse().ok().filter(|count| *count > 0)?,
                "--from" => order.first = words.next()?.parse().ok()?,
                "--seed" => (order.first, order.count) = (words.next()?.parse().ok()?, 1),
                "--trace" => order.trace = Trace::Printed,
                _ => return None,
            }
        }
        Some(order)
    }
}

/// Sums over all runs.
#[derive(Default)]
struct Total {
    runs: u64,
    steps: u64,
    with_remaster: u64,
    troubles: BTreeMap<&'static str, u64>,
    figures: Figures,
    coverage: Coverage,
    failed: Vec<u64>,
}

fn run_all(first: u64, count: u64) -> Total {
    let next = AtomicU64::new(first);
    let total = Mutex::new(Total::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Each failure is told in one piece.
    panic::set_hook(Box::new(|info| {
        let text = info.payload_as_str().unwrap_or("it panicked");
        println!("FAILED: {} ({})", text, info.location().map(ToString::to_string).unwrap_or_default());
    }));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let run = panic::catch_unwind(|| run_trial(seed, Trace::Off)).ok();
                    let mut total = total.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    match run {
                        Some(run) => total.add(&run),
                        None => {
                            println!("    again: cargo xtask sim --seed {seed} --trace");
                            total.failed.push(seed);
                        }
                    }
                }
            });
        }
    });
    total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Total {
    fn add(&mut self, run: &ProcessesRun) {
        self.runs += 1;
        self.steps += run.steps;
        self.with_remaster += u64::from(run.figures.remasters > 0);
        for (name, count) in &run.troubles {
            *self.troubles.entry(name).or_default() += count;
        }
        self.figures.add(&run.figures);
        self.coverage.add(&run.coverage);
    }

    fn print(&self, seconds: f64) {
        let hours = self.figures.micros as f64 / 3.6e9;
        println!(
            "{} seeds in {seconds:.0} s, {hours:.1} simulated hours, {} operations",
            self.runs, self.steps
        );
        println!("{} seeds with a change of master", self.with_remaster);
        println!("{} troubles:", self.troubles.values().sum::<u64>());
        for (name, count) in &self.troubles {
            println!("{count:>9} {name}");
        }
        println!("what came of them and beside:");
        for (name, count) in self.figures.list() {
            println!("{count:>9} {name}");
        }
        let (seen, unseen) = (self.coverage.len(), self.coverage.unseen());
        println!("{seen} transitions gone through, {} not:", unseen.len());
        for what in unseen {
            println!("          {what}: {}", Coverage::reason(&what).unwrap_or("no reason known"));
        }
        println!("{} seeds failed: {:?}", self.failed.len(), self.failed);
    }
}

/// Enough for everything that is to be gone through at all.
const SEEDS_FOR_ALL: u64 = 1000;
