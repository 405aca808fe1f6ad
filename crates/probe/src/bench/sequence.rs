//! Steps that are done to one tree in order, on a file system and by turns on a local one.

use std::path::PathBuf;

use serde_json::Value as Json;

use crate::bench::crew::Crew;
use crate::bench::environment::{FileSystem, Machine, drop_caches};
use crate::bench::measure::{Shown, measure};
use crate::bench::report::{Figure, Report, Unit, unix_now};
use crate::bench::scratch::{Scratch, check_room};
use crate::bench::task::Work;
use crate::bench::{BenchError, Stage};

/// One of them.
pub(crate) struct Step {
    pub name: &'static str,
    /// Whether the kernel's caches are dropped before.
    pub is_cold: bool,
    /// Who does it.
    pub by: By,
    pub work: Work,
}

/// Through which mount points a step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The first; on the local file system too.
    First,
    /// The first, after the last had its turn: not without two.
    FirstAgain,
    /// The last: not without two.
    Last,
    /// Both at once: not without two.
    Both,
}

/// What is measured, and where.
pub(crate) struct Sequence<'a> {
    pub bench: &'static str,
    pub mounts: &'a [PathBuf],
    pub local: Option<&'a PathBuf>,
    pub runs: u32,
    pub steps: Vec<Step>,
    /// What is made in a run, at most.
    pub inodes: u64,
    pub bytes_each: u64,
    pub settings: Json,
}

impl Step {
    pub fn new(name: &'static str, by: By, work: Work) -> Self {
        Self { name, is_cold: false, by, work }
    }

    pub fn cold(self) -> Self {
        Self { is_cold: true, ..self }
    }

    fn tasks(&self, places: &[PathBuf]) -> Vec<(PathBuf, Work)> {
        let first = places[0].join(TREE);
        let last = places[places.len() - 1].join(TREE);
        let dirs = match self.by {
            By::First | By::FirstAgain => vec![first],
            By::Last => vec![last],
            By::Both => vec![first, last],
        };
        dirs.into_iter().map(|dir| (dir, self.work.clone())).collect()
    }
}

impl Sequence<'_> {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`BenchError`]; what was made is removed.
    pub fn run(mut self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        let (machine, started) = (Machine::look(), unix_now());
        for path in self.mounts.first().into_iter().chain(self.local) {
            check_room(path, self.inodes, self.bytes_each)?;
        }
        let is_alone = self.mounts.len() < 2;
        self.steps.retain(|step| !is_alone || step.by == By::First);
        let crew = Crew::new(2, &stage.worker)?;
        let own = Scratch::new(self.mounts)?;
        let local = self.local.map(|dir| Scratch::new(std::slice::from_ref(dir))).transpose()?;
        // Goes before what it makes names in.
        let mut crew = crew;
        let mut shown: Vec<Vec<Shown>> = vec![Vec::new(); self.steps.len()];
        let mut beside: Vec<Vec<Shown>> = vec![Vec::new(); self.steps.len()];
        let mut has_dropped = true;
        for run in 0..self.runs {
            let scratches = [Some(&own), local.as_ref()];
            scratches.iter().flatten().try_for_each(|scratch| scratch.make(TREE))?;
            for (at, step) in self.steps.iter().enumerate() {
                (stage.progress)(&format!("{}, {} of {}", step.name, run + 1, self.runs));
                // By turns, so that what happens to the machine happens to both.
                for (scratch, shown) in [(Some(&own), &mut shown), (local.as_ref(), &mut beside)] {
                    let Some(scratch) = scratch else { continue };
                    if step.by != By::First && !std::ptr::eq(scratch, &own) {
                        continue;
                    }
                    has_dropped &= !step.is_cold || drop_caches();
                    shown[at].push(measure(&mut crew, stage, step.tasks(scratch.places()))?);
                }
            }
            scratches.iter().flatten().try_for_each(|scratch| scratch.clear(TREE))?;
        }
        let figures = self.steps.iter().zip(shown.iter().zip(&beside));
        let mut report = Report {
            bench: self.bench,
            figures: figures
                .map(|(step, (own, local))| Figure::of(step.name.to_owned(), Unit::Seconds, own, local))
                .collect(),
            settings: self.settings,
            warnings: Vec::new(),
            notes: vec![COLD_NOTE.to_owned()],
            version: stage.version.to_owned(),
            started,
            machine,
            file_system: FileSystem::of(own.first()),
            local: self.local.map(|local| FileSystem::of(local)),
            runs: self.runs as usize,
            beside: "local",
        };
        report.judge();
        if is_alone {
            report.notes.push("one mount point only: nothing was looked at from another node".to_owned());
        }
        if !has_dropped {
            let text =
                "the kernel's caches could not be dropped (only root may): what is called cold was warm";
            report.warnings.push(text.to_owned());
        }
        Ok(report)
    }
}

const TREE: &str = "tree";
const COLD_NOTE: &str = "cold is with the kernel's caches dropped; what a daemon of the file system keeps in its own memory stays";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_to_their_mounts() {
        let places = [PathBuf::from("/a"), PathBuf::from("/b")];
        let dirs = |by| {
            let tasks = Step::new("walk", by, Work::Walk).tasks(&places);
            tasks.into_iter().map(|(dir, _)| dir.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!((dirs(By::First), dirs(By::FirstAgain)), (vec!["/a/tree".into()], vec!["/a/tree".into()]));
        assert_eq!(
            (dirs(By::Last), dirs(By::Both)),
            (vec!["/b/tree".into()], vec!["/a/tree".into(), "/b/tree".into()])
        );
    }
}
