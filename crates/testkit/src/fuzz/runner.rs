//! Runs a target for a time, keeps what is new, and says what broke.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Mutator, Target, shrink};

/// How long to run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of this thread on a processor: others may have it meanwhile.
    pub time: Duration,
    /// Inputs, at most.
    pub executions: u64,
    /// Longest time for one input, alike.
    pub each: Duration,
}

impl Limits {
    /// So long, and no input longer than the code under test may take.
    pub fn seconds(seconds: u64) -> Self {
        Self { time: Duration::from_secs(seconds), executions: u64::MAX, each: Duration::from_secs(5) }
    }
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Inputs taken in.
    pub executions: u64,
    /// Of these, with checksums made right.
    pub repaired: u64,
    /// Inputs in the corpus at the end.
    pub corpus: usize,
    /// Inputs it began with.
    pub seeds: usize,
    /// What became of inputs, and of how many.
    pub outcomes: BTreeMap<String, u64>,
    /// Longest time for one input, in microseconds.
    pub slowest_us: u64,
    /// Most memory for one input, in bytes.
    pub memory_max: usize,
    /// Time taken on a processor.
    pub seconds: f64,
}

/// An input that breaks a promise.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Target.
    pub target: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// The input, as small as it could be made.
    pub input: Vec<u8>,
    /// What broke.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hex: String = self.input.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(f, "{}: {} (seed {})", self.target, self.what, self.seed)?;
        write!(f, "again: cargo xtask fuzz {} --input {hex}", self.target)
    }
}

/// Measures memory around a call: bytes held at most during it, beyond those held before.
pub type Meter = fn(&mut dyn FnMut()) -> usize;

/// Runs a target.
pub struct Runner<'a> {
    target: &'a mut dyn Target,
    meter: Meter,
    seed: u64,
}

impl<'a> Runner<'a> {
    /// Everything drawn comes from `seed`.
    pub fn new(target: &'a mut dyn Target, seed: u64, meter: Meter) -> Self {
        Self { target, meter, seed }
    }

    /// Runs until the limits or the first finding.
    ///
    /// # Errors
    ///
    /// The finding. A seed that breaks a promise is one too.
    pub fn run(&mut self, limits: Limits) -> Result<Report, Box<Finding>> {
        let mut corpus = self.target.seeds();
        assert!(!corpus.is_empty(), "{} has no seeds", self.target.name());
        let mut report = Report { seeds: corpus.len(), ..Report::default() };
        for seed in &corpus {
            self.execute(seed, limits, &mut report)?;
        }
        let mut mutator = Mutator::new(self.seed);
        let began = worked();
        while report.executions < limits.executions && worked() - began < limits.time {
            let mut input = mutator.input(&corpus, self.target.len_max());
            if mutator.repairs() {
                report.repaired += 1;
                self.target.repair(&mut input);
            }
            let is_new = self.execute(&input, limits, &mut report)?;
            if is_new && corpus.len() < CORPUS_MAX {
                corpus.push(input);
            }
        }
        report.corpus = corpus.len();
        report.seconds = (worked() - began).as_secs_f64();
        Ok(report)
    }

    fn takes(&mut self, input: &[u8]) -> Duration {
        let began = worked();
        let _ = execute(self.target, input, self.meter);
        worked() - began
    }

    /// Whether the outcome is a new one.
    fn execute(&mut self, input: &[u8], limits: Limits, report: &mut Report) -> Result<bool, Box<Finding>> {
        report.executions += 1;
        let began = worked();
        let (result, memory) = execute(self.target, input, self.meter);
        let took = worked() - began;
        report.slowest_us = report.slowest_us.max(took.as_micros() as u64);
        report.memory_max = report.memory_max.max(memory);
        let result = match result {
            // A machine that stands still is counted as work in some guests: what is slow is slow again.
            Ok(_) if took > limits.each && self.takes(input) > limits.each => {
                Err(format!("took {} ms", took.as_millis()))
            }
            result => result,
        };
        match result {
            Ok(outcome) => {
                let count = report.outcomes.entry(outcome).or_default();
                *count += 1;
                Ok(*count == 1)
            }
            Err(what) => {
                let input = shrink(input, SHRINK_TIME, |smaller| {
                    execute(self.target, smaller, self.meter).0.is_err()
                });
                let what = execute(self.target, &input, self.meter).0.err().unwrap_or(what);
                Err(Box::new(Finding { target: self.target.name(), seed: self.seed, input, what }))
            }
        }
    }
}

/// Takes one input in: what became of it or what broke, and the memory it cost.
pub fn execute(target: &mut dyn Target, input: &[u8], meter: Meter) -> (Result<String, String>, usize) {
    let mut result = Err(String::new());
    let memory = meter(&mut || {
        result = panics::catch(|| target.run(input));
    });
    let limit = target.memory().limit(input.len());
    if result.is_ok() && memory > limit {
        result =
            Err(format!("{} bytes of input cost {memory} bytes of memory, more than {limit}", input.len()));
    }
    (result, memory)
}

mod panics {
    //! Panics of the code under test are findings and not printed.

    use std::cell::{Cell, RefCell};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Once;

    thread_local! {
        static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
        static SAID: RefCell<String> = const { RefCell::new(String::new()) };
    }

    /// Runs `call`; a panic is told with its place.
    pub fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let others = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if IS_CAUGHT.get() {
                    SAID.set(panic.to_string().replace('\n', " "));
                } else {
                    others(panic);
                }
            }));
        });
        IS_CAUGHT.set(true);
        let result = catch_unwind(AssertUnwindSafe(call)).map_err(|_| SAID.take());
        IS_CAUGHT.set(false);
        result
    }
}

const CORPUS_MAX: usize = 4096;
const SHRINK_TIME: Duration = Duration::from_secs(5);

/// How long this thread has been on a processor.
fn worked() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}
