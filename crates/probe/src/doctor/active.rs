//! What is tried out: small, bounded in time, in a directory of its own, which goes at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bench::call::Call;
use crate::bench::crew::Crew;
use crate::bench::device::Device;
use crate::bench::environment::drop_caches;
use crate::bench::measure::Shown;
use crate::bench::report::{Figure, Unit};
use crate::bench::scratch::{Scratch, check_room};
use crate::bench::task::{Kind, Stream, Work};
use crate::bench::{BenchError, Stage};
use crate::doctor::ground::Ground;
use crate::doctor::inside::Inside;
use crate::doctor::moment::{Interval, Moment};
use crate::doctor::{ANSWER_MAX, answer_within};
use crate::nonce::nonce;

/// One thing that was tried, in all rounds.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub figure: Figure,
    /// What went on meanwhile, of each round.
    pub intervals: Vec<Interval>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tried {
    pub trials: Vec<Trial>,
    /// What could not be tried, and why.
    pub notes: Vec<String>,
    /// A call that did not come back.
    pub stuck: Option<String>,
    /// Whether the kernel's caches were emptied before what is called cold.
    pub was_cold: bool,
    /// Times that this program's control group reached its limit of memory meanwhile.
    pub memory_reached: u64,
}

/// One of the steps of a round.
struct Step {
    name: &'static str,
    unit: Unit,
    dir: PathBuf,
    work: Work,
    is_cold: bool,
    limit: Duration,
}

/// Who asks the file system's own counters.
pub(crate) type Ask<'a> = dyn FnMut() -> Option<Inside> + 'a;

/// Tries everything. What fails is a note; what is stuck ends it.
///
/// # Errors
///
/// [`BenchError`]: interrupted, or no worker.
pub(crate) fn try_all(
    ground: &Ground,
    peer: Option<&Path>,
    is_cold: bool,
    stage: &mut Stage<'_>,
    ask: &mut Ask<'_>,
) -> Result<Tried, BenchError> {
    let mut tried = Tried { was_cold: is_cold, ..Tried::default() };
    let crew = Crew::new(1, &stage.worker)?;
    let Some(scratch) = scratch(ground, peer, &mut tried.notes)? else {
        tried.stuck = Some(format!("making a directory: no answer for {} s", ANSWER_MAX.as_secs()));
        return Ok(tried);
    };
    let device = ground.devices.iter().rev().find_map(|device| readable(&device.name));
    let visited = visited_name();
    let mut steps =
        scratch.as_ref().map_or_else(Vec::new, |scratch| steps(&ground.path, scratch.places(), &visited));
    steps.extend(device.iter().map(raw));
    steps.extend(looks(&ground.path));
    // To see what is not in memory the caches of the whole machine have to go: only where that was asked for.
    steps.retain(|step| is_cold || step.name != COLD_STAT);
    let _visited = scratch.is_some().then(|| Visited(ground.path.join(&visited)));
    // Goes before what it makes files in.
    let mut crew = crew;
    let mut shown: Vec<(Vec<Shown>, Vec<Interval>)> = vec![Default::default(); steps.len()];
    let mut failed = vec![false; steps.len()];
    let mut made = Made { names: NAMES, blocks: WRITTEN_BLOCKS, looked: LOOKED_AT };
    'rounds: for round in 0..ROUNDS {
        for (at, step) in steps.iter().enumerate().filter(|(at, _)| !failed[*at]).collect::<Vec<_>>() {
            stage.tell(
                round * steps.len() + at,
                ROUNDS * steps.len(),
                &format!("{}, {} of {ROUNDS}", step.name, round + 1),
            );
            if step.is_cold && is_cold {
                tried.was_cold &= drop_caches();
            }
            let before = Moment::now(ground, ask());
            let work = made.bound(step);
            let done = crew.run_for(vec![(step.dir.clone(), work)], Some(step.limit));
            let interval = Moment::now(ground, ask()).since(&before);
            match done {
                Ok(done) => {
                    made.note(&step.work, done.count);
                    shown[at].0.push(Shown { done, ..Shown::default() });
                    shown[at].1.push(interval);
                }
                Err(BenchError::Call { what, .. }) => {
                    failed[at] = true;
                    tried.notes.push(format!("{} could not be tried: {what}", step.name));
                }
                Err(BenchError::Stuck { seconds, .. }) => {
                    tried.stuck = Some(format!("{}: no answer for {seconds} s", step.name));
                    break 'rounds;
                }
                Err(error) => return Err(error),
            }
        }
    }
    if tried.stuck.is_some()
        && let Some(scratch) = scratch
    {
        drop(crew);
        tried.notes.extend(leave(scratch));
    }
    tried.trials = trials(&steps, shown);
    Ok(tried)
}

/// What was made, and seen, last: what is slow does less than it was asked for.
struct Made {
    names: u64,
    blocks: u64,
    /// Inodes of the tree.
    looked: u64,
}

impl Made {
    fn note(&mut self, work: &Work, count: u64) {
        match work {
            Work::Make { .. } => self.names = count,
            Work::Stream(Stream { is_write: true, .. }) => self.blocks = count,
            Work::Look { .. } => self.looked = count,
            _ => {}
        }
    }

    /// Only what is there is looked at and read, and only what was seen a moment ago is looked at again.
    fn bound(&self, step: &Step) -> Work {
        match step.work.clone() {
            Work::Stat { prefix, .. } => Work::Stat { prefix, count: self.names },
            Work::Look { count } if step.name == TREE_AGAIN => Work::Look { count: self.looked.min(count) },
            Work::Stream(stream) if !stream.is_write && stream.target.is_relative() => {
                Work::Stream(Stream { blocks: self.blocks, ..stream })
            }
            work => work,
        }
    }
}

fn trials(steps: &[Step], shown: Vec<(Vec<Shown>, Vec<Interval>)>) -> Vec<Trial> {
    let measured =
        steps.iter().zip(shown).filter(|(step, (shown, _))| !shown.is_empty() && !step.name.is_empty());
    measured
        .map(|(step, (shown, intervals))| {
            let figure = Figure::of(step.name.to_owned(), step.unit, &shown, &[]);
            Trial { figure, intervals }
        })
        .collect()
}

/// Removes it unless the file system does not answer: then says that it is left behind.
fn leave(scratch: Scratch) -> Option<String> {
    let left = format!("{} is left behind: its removal is not answered", scratch.first().display());
    match answer_within(ANSWER_MAX, move || drop(scratch)) {
        Some(()) => None,
        None => Some(left),
    }
}

/// None if the file system does not answer; an inner one, with a note, where nothing may be written or there is no room.
fn scratch(
    ground: &Ground,
    peer: Option<&Path>,
    notes: &mut Vec<String>,
) -> Result<Option<Option<Scratch>>, BenchError> {
    let mounts: Vec<PathBuf> = [ground.path.as_path()].into_iter().chain(peer).map(Path::to_owned).collect();
    let made = answer_within(ANSWER_MAX, move || {
        check_room(&mounts[0], INODES, ROOM / INODES).and_then(|()| Scratch::new(&mounts))
    });
    let Some(made) = made else { return Ok(None) };
    match made {
        Ok(scratch) => Ok(Some(Some(scratch))),
        Err(error) if is_of(&error, peer) => Err(error),
        Err(error) => {
            let cause =
                std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            notes.push(format!("nothing could be tried in writing: {error}{cause}"));
            Ok(Some(None))
        }
    }
}

/// Of the file that is made and removed in the directory that is examined: nobody else's, and not what one who was killed left.
fn visited_name() -> String {
    format!(".holdfast-doctor-{}-{}", std::process::id(), nonce())
}

/// That file: who makes it may be killed before he removes it. Gone when this is dropped.
struct Visited(PathBuf);

impl Drop for Visited {
    fn drop(&mut self) {
        let path = self.0.clone();
        let left = match answer_within(ANSWER_MAX, move || std::fs::remove_file(path)) {
            Some(Ok(())) => return,
            Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return,
            Some(Err(error)) => error.to_string(),
            None => "its removal is not answered".to_owned(),
        };
        eprintln!("holdfast: {}: left behind, if it was made: {left}", self.0.display());
    }
}

/// Whether it is the other mount that cannot be used.
fn is_of(error: &BenchError, peer: Option<&Path>) -> bool {
    match error {
        BenchError::Place { path, .. } | BenchError::Unfit { path, .. } => Some(path.as_path()) == peer,
        _ => false,
    }
}

fn readable(name: &str) -> Option<Device> {
    let device = Device::to_read(&Path::new("/dev").join(name)).ok()?;
    (device.len >= RAW_BLOCKS << 20).then_some(device)
}

/// What needs a directory of its own. `visited`: the name that is made and removed in `path`.
fn steps(path: &Path, places: &[PathBuf], visited: &str) -> Vec<Step> {
    let own = &places[0];
    let step = |name, unit, dir: &Path, work| Step {
        name,
        unit,
        dir: dir.to_owned(),
        work,
        is_cold: false,
        limit: LIMIT,
    };
    let stream = |is_write| {
        let (target, is_direct) = (PathBuf::from("stream"), false);
        Work::Stream(Stream { target, is_write, is_direct, is_synced: is_write, blocks: WRITTEN_BLOCKS })
    };
    let names = || "f".to_owned();
    let visit = || Work::Visit { name: visited.to_owned(), count: VISITS };
    let mut all = vec![
        step("write", Unit::Throughput, own, stream(true)),
        Step { is_cold: true, ..step("read", Unit::Throughput, own, stream(false)) },
        step("names here", Unit::Delay, path, visit()),
        step("names apart", Unit::Delay, own, visit()),
        step("mknod", Unit::PerSecond, own, Work::Make { kind: Kind::Mknod, prefix: names(), count: NAMES }),
        Step {
            is_cold: true,
            ..step(COLD_STAT, Unit::PerSecond, own, Work::Stat { prefix: names(), count: NAMES })
        },
        step("stat warm", Unit::PerSecond, own, Work::Stat { prefix: names(), count: NAMES }),
    ];
    if let Some(other) = places.get(1) {
        all.push(step(
            "stat from the other",
            Unit::PerSecond,
            other,
            Work::Stat { prefix: names(), count: NAMES },
        ));
    }
    // Steps without a name are not shown.
    all.push(step("", Unit::PerSecond, own, Work::Empty));
    all.push(step("", Unit::PerSecond, own, Work::Prepare { bytes: FILE_BYTES }));
    for call in Call::ALL {
        let work = Work::Time { call, count: CALLS, others: Vec::new() };
        let name = if call == Call::Read { "read of 4 KiB" } else { call.name() };
        all.push(step(name, Unit::Delay, own, work));
    }
    for (name, call) in [("create+unlink by turns", Call::Create), ("write+fsync by turns", Call::Write)] {
        if let Some(other) = places.get(1) {
            let work = Work::Time { call, count: CALLS, others: vec![other.clone()] };
            all.push(step(name, Unit::Delay, own, work));
        }
    }
    all.push(step("", Unit::PerSecond, own, Work::Empty));
    all
}

fn raw(device: &Device) -> Step {
    let target = device.path.clone();
    let stream = Stream { target, is_write: false, is_direct: true, is_synced: false, blocks: RAW_BLOCKS };
    let (dir, work) = (PathBuf::from("/"), Work::Stream(stream));
    Step { name: "raw read", unit: Unit::Throughput, dir, work, is_cold: false, limit: LIMIT }
}

/// What is there already is looked at twice: the second time no more of it than the first.
fn looks(path: &Path) -> [Step; 2] {
    [TREE, TREE_AGAIN].map(|name| Step {
        name,
        unit: Unit::PerSecond,
        dir: path.to_owned(),
        work: Work::Look { count: LOOKED_AT },
        is_cold: name == TREE,
        limit: LIMIT,
    })
}

const COLD_STAT: &str = "stat cold";
pub(crate) const TREE: &str = "tree";
pub(crate) const TREE_AGAIN: &str = "tree again";
/// Three are enough to see a spread.
const ROUNDS: usize = 3;
/// Of each step: what is slow does less instead.
const LIMIT: Duration = Duration::from_millis(500);
/// MiB.
const WRITTEN_BLOCKS: u64 = 8;
const RAW_BLOCKS: u64 = 16;
const NAMES: u64 = 400;
const VISITS: u64 = 40;
const CALLS: u64 = 20;
const LOOKED_AT: u64 = 20_000;
const FILE_BYTES: u64 = 1 << 20;
const INODES: u64 = 500;
const ROOM: u64 = 12 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_look_is_at_no_more_than_the_first() {
        let mut made = Made { names: NAMES, blocks: WRITTEN_BLOCKS, looked: LOOKED_AT };
        let [first, again] = looks(Path::new("/"));
        for seen in [700, 9_000, 3] {
            assert_eq!(made.bound(&first), Work::Look { count: LOOKED_AT });
            made.note(&first.work, seen);
            assert_eq!(made.bound(&again), Work::Look { count: seen });
            made.note(&again.work, seen);
        }
    }

    #[test]
    fn two_doctors_of_one_number_make_different_names() {
        assert_ne!(visited_name(), visited_name());
    }
}
