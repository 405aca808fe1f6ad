//! Depth first through all schedules within bounds.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::run::{Reached, Run};
use super::schedule::{Event, Schedule};
use super::worlds::World;
use crate::cluster::Move;

/// How far an exploration goes.
///
/// By itself a run serves its sources (processes, queues, kernels, syncs) in a fixed order of rank: whatever can
/// happen at the first of them that has something happens next, and time goes on when none has. A *delay* puts the
/// source whose turn it is last in rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Delays in a run; none for every order there is.
    pub delays: Option<u32>,
    /// Times in a run that time goes on to the next timer though something else could happen.
    pub waits: u32,
    /// Faults in a run.
    pub faults: u32,
    /// Runs after which an exploration is cut short.
    pub runs_max: u64,
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Runs from the start.
    pub runs: u64,
    /// Runs that went to their end and were judged.
    pub endings: u64,
    /// Different states.
    pub states: u64,
    /// Events of the longest run.
    pub depth: usize,
    /// Whether everything within the bounds was seen.
    pub is_complete: bool,
    /// The first thing that must not be.
    pub violation: Option<Violation>,
}

/// Something that must not be, and how it comes about.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What.
    pub what: String,
    /// How.
    pub schedule: Schedule,
}

/// Explores one world.
pub struct Explorer<'a> {
    world: &'a World,
    bounds: Bounds,
    /// States seen, and the most delays that were left in each.
    seen: HashMap<u64, u32>,
    to_do: Vec<Branch>,
    found: Explored,
}

/// A schedule to be gone on with, and what is left of the bounds.
#[derive(Clone)]
struct Branch {
    schedule: Vec<Event>,
    reached: Reached,
    left: Left,
}

#[derive(Clone)]
struct Left {
    delays: u32,
    waits: u32,
    faults: u32,
    /// Sources that were delayed, in the order they were: they come after all others.
    delayed: Vec<u32>,
}

impl<'a> Explorer<'a> {
    /// An explorer of `world`.
    pub fn new(world: &'a World, bounds: Bounds) -> Self {
        let found =
            Explored { runs: 0, endings: 0, states: 0, depth: 0, is_complete: false, violation: None };
        Self { world, bounds, seen: HashMap::new(), to_do: Vec::new(), found }
    }

    /// Goes through all schedules within the bounds, or to the first violation.
    pub fn explore(mut self) -> Explored {
        let left = Left {
            delays: self.bounds.delays.unwrap_or(u32::MAX),
            waits: self.bounds.waits,
            faults: self.bounds.faults,
            delayed: Vec::new(),
        };
        let reached = Run::new(self.world, false).reached();
        self.to_do.push(Branch { schedule: Vec::new(), reached, left });
        while let Some(branch) = self.to_do.pop() {
            if self.found.runs == self.bounds.runs_max {
                return self.found;
            }
            self.found.runs += 1;
            let mut made = branch.schedule.clone();
            let outcome = caught(|| self.run(branch, &mut made));
            self.found.depth = self.found.depth.max(made.len());
            if let Err(what) = outcome {
                self.found.violation = Some(Violation { what, schedule: Schedule(made) });
                return self.found;
            }
        }
        self.found.is_complete = true;
        self.found
    }

    /// Goes on with a branch to its end, or to a state that was seen.
    fn run(&mut self, branch: Branch, made: &mut Vec<Event>) -> Result<(), String> {
        let Branch { schedule, mut reached, mut left } = branch;
        let mut run = Run::new(self.world, false);
        for event in &schedule {
            run.make(*event)?;
        }
        while !run.is_done() {
            let turns = self.turns(&mut run, &left);
            let mut first = None;
            for (event, left) in turns {
                let reached = run.after(&reached, event);
                if !self.is_new(&reached, &left) {
                    continue;
                }
                if first.is_none() {
                    first = Some((event, reached, left));
                    continue;
                }
                let mut schedule = made.clone();
                schedule.push(event);
                self.to_do.push(Branch { schedule, reached, left });
            }
            let Some((event, next, rest)) = first else { return Ok(()) };
            (reached, left) = (next, rest);
            made.push(event);
            run.make(event)?;
        }
        self.found.endings += 1;
        run.judge()
    }

    /// What may happen next, and what is left of the bounds then. The run's own way comes first.
    fn turns(&self, run: &mut Run, left: &Left) -> Vec<(Event, Left)> {
        let mut events = run.events();
        events.sort_by_key(|event| (left.rank(*event), *event));
        let mut turns = Vec::new();
        let mut now = left.clone();
        for event in &events {
            turns.push((*event, now.clone()));
            if now.delays == 0 {
                break;
            }
            if self.bounds.delays.is_some() {
                now.delay(*event);
            }
        }
        let time = Event::Cluster(Move::Time);
        if events.is_empty() {
            turns.push((time, left.clone()));
        } else if left.waits > 0 && run.may_wait() {
            turns.push((time, Left { waits: left.waits - 1, ..left.clone() }));
        }
        if left.faults > 0 {
            let rest = Left { faults: left.faults - 1, ..left.clone() };
            let faults = self.world.faults.iter().flat_map(|fault| run.moves_of(*fault));
            turns.extend(faults.map(|next| (Event::Cluster(next), rest.clone())));
        }
        turns
    }

    /// Whether a state was not seen with as much left to do.
    fn is_new(&mut self, reached: &Reached, left: &Left) -> bool {
        let mut hasher = DefaultHasher::new();
        (reached, left.waits, left.faults).hash(&mut hasher);
        if self.bounds.delays.is_some() {
            left.delayed.hash(&mut hasher);
        }
        match self.seen.insert(hasher.finish(), left.delays) {
            None => {
                self.found.states += 1;
                true
            }
            Some(before) if before >= left.delays => {
                self.seen.insert(hasher.finish(), before);
                false
            }
            Some(_) => true,
        }
    }
}

impl Left {
    fn rank(&self, event: Event) -> usize {
        let source = source(event);
        self.delayed.iter().position(|delayed| *delayed == source).map_or(0, |at| at + 1)
    }

    fn delay(&mut self, event: Event) {
        let source = source(event);
        self.delayed.retain(|delayed| *delayed != source);
        self.delayed.push(source);
        self.delays -= 1;
    }
}

/// Number of what an event comes from.
fn source(event: Event) -> u32 {
    let (kind, index) = match event {
        Event::Process(process) => (0, process),
        Event::Cluster(Move::ToMaster(node)) => (1, node),
        Event::Cluster(Move::FromMaster(node)) => (2, node),
        Event::Cluster(Move::Invalidate(node, _)) => (3, node),
        Event::Cluster(Move::NodeSync(node)) => (4, node),
        Event::Cluster(Move::MasterSync) => (5, 0),
        Event::Cluster(
            Move::Time
            | Move::KillMaster
            | Move::KillNode(_)
            | Move::LosePower(_)
            | Move::Break(..)
            | Move::Pause(_)
            | Move::Cut(..),
        ) => (6, 0),
    };
    kind << 8 | index as u32
}

/// Runs, and makes an error of a panic: an assertion that fails is what is looked for.
fn caught(f: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(text_of(&*panic)))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, endings, states, depth, is_complete, violation } = self;
        let end = if *is_complete { "all" } else { "cut short" };
        let violations = u32::from(violation.is_some());
        write!(
            f,
            "{runs:>8} runs {endings:>7} endings {states:>8} states {depth:>4} deep {violations} violations, {end}"
        )
    }
}
