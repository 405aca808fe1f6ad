//! Steps that are done to one tree in order, on a file system and by turns on a local one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::bench::crew::Crew;
use crate::bench::environment::{FileSystem, Machine, drop_caches, settle};
use crate::bench::measure::{Daemons, Shown, measure};
use crate::bench::report::{Figure, Report, Unit, unix_now};
use crate::bench::scratch::{Scratch, check_room};
use crate::bench::task::Work;
use crate::bench::{BenchError, Stage};
use crate::system::unblock_signals;

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
    /// A mount that is made for it: not where we cannot make one.
    New,
}

/// What is measured, and where.
pub(crate) struct Sequence<'a> {
    pub bench: &'static str,
    pub mounts: &'a [PathBuf],
    pub local: Option<&'a PathBuf>,
    pub runs: u32,
    pub steps: Vec<Step>,
    pub ground: Ground,
    /// A command that mounts the file system anew.
    pub remount: Option<&'a str>,
    pub settings: Json,
}

/// Where the steps are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// In a new directory for each run; so many inodes are made there at most, of so many bytes each.
    New { inodes: u64, bytes_each: u64 },
    /// In what is there, and stays as it is.
    There,
}

/// The trees of one file system, one for each mount point.
struct Trees {
    paths: Vec<PathBuf>,
    /// That they are made in.
    scratch: Option<Scratch>,
}

/// What has to be told of how it went.
#[derive(Default)]
struct Remarks {
    has_not_dropped: bool,
    has_no_new_mount: bool,
}

impl Ground {
    /// Refuses what would not fit.
    pub fn check_room(self, mounts: &[PathBuf], local: Option<&PathBuf>) -> Result<(), BenchError> {
        let Self::New { inodes, bytes_each } = self else { return Ok(()) };
        let mut dirs = mounts.first().into_iter().chain(local);
        dirs.try_for_each(|dir| check_room(dir, inodes, bytes_each))
    }
}

impl Step {
    pub fn new(name: &'static str, by: By, work: Work) -> Self {
        Self { name, is_cold: false, by, work }
    }

    pub fn cold(self) -> Self {
        Self { is_cold: true, ..self }
    }

    fn tasks(&self, trees: &[PathBuf]) -> Vec<(PathBuf, Work)> {
        let (first, last) = (&trees[0], &trees[trees.len() - 1]);
        let dirs = match self.by {
            By::First | By::FirstAgain | By::New => vec![first],
            By::Last => vec![last],
            By::Both => vec![first, last],
        };
        dirs.into_iter().map(|dir| (dir.clone(), self.work.clone())).collect()
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
        self.ground.check_room(self.mounts, self.local)?;
        let is_alone = self.mounts.len() < 2;
        self.steps.retain(|step| !is_alone || matches!(step.by, By::First | By::New));
        let crew = Crew::new(2, &stage.worker)?;
        let own = Trees::on(self.mounts, self.ground)?;
        let local = self.local.map(|dir| Trees::on(std::slice::from_ref(dir), self.ground)).transpose()?;
        // Goes before what it makes names in.
        let mut crew = crew;
        let mut shown: Vec<[Vec<Shown>; 2]> = vec![Default::default(); self.steps.len()];
        let mut remarks = Remarks::default();
        let runs = self.runs as usize;
        for run in 0..runs {
            // By turns, so that what happens to the machine happens to both.
            for (at, trees) in [Some(&own), local.as_ref()].into_iter().enumerate() {
                let Some(trees) = trees else { continue };
                settle(self.mounts.iter().chain(self.local).map(PathBuf::as_path));
                trees.begin()?;
                for (number, (step, shown)) in self.steps.iter().zip(&mut shown).enumerate() {
                    if at == OWN || step.by == By::First {
                        let done = (run * SIDES + at) * self.steps.len() + number;
                        let what = format!("{}, {} of {runs}", step.name, run + 1);
                        stage.tell(done, runs * SIDES * self.steps.len(), &what);
                        self.one_step(step, (at, trees), &mut crew, stage, (&mut shown[at], &mut remarks))?;
                    }
                }
                trees.end()?;
            }
        }
        let figures = self.steps.iter().zip(&shown).filter(|(_, [own, _])| !own.is_empty());
        let mut report = Report {
            bench: self.bench,
            figures: figures
                .map(|(step, [own, local])| Figure::of(step.name.to_owned(), Unit::Seconds, own, local))
                .collect(),
            settings: self.settings.clone(),
            warnings: Vec::new(),
            notes: Vec::new(),
            version: stage.version.to_owned(),
            started,
            machine,
            file_system: FileSystem::of(&self.mounts[0]),
            local: self.local.map(|local| FileSystem::of(local)),
            runs: self.runs as usize,
            beside: "local",
        };
        report.judge();
        self.remark(&mut report, &remarks, &shown);
        Ok(report)
    }

    fn one_step(
        &self,
        step: &Step,
        (at, trees): (usize, &Trees),
        crew: &mut Crew,
        stage: &mut Stage<'_>,
        (shown, remarks): (&mut Vec<Shown>, &mut Remarks),
    ) -> Result<(), BenchError> {
        if step.is_cold && at == OWN {
            self.mount_anew(stage)?;
        }
        remarks.has_not_dropped |= step.is_cold && !drop_caches();
        if step.by == By::New {
            let found = on_new_mount(step, &trees.paths[0], crew, stage)?;
            remarks.has_no_new_mount |= found.is_none();
            shown.extend(found);
        } else {
            shown.push(measure(crew, stage, step.tasks(&trees.paths))?);
        }
        Ok(())
    }

    /// Has the user's command mount the file system anew, if there is one.
    fn mount_anew(&self, stage: &mut Stage<'_>) -> Result<(), BenchError> {
        let Some(command) = self.remount else { return Ok(()) };
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null());
        let what = match unblock_signals(&mut shell).status() {
            Ok(status) if status.success() => {
                stage.daemons = Daemons::of(self.mounts);
                stage.companion.has_remounted();
                return Ok(());
            }
            Ok(status) => format!("the command that mounts it anew failed: {status}"),
            Err(error) => format!("the command that mounts it anew: {error}"),
        };
        Err(BenchError::Unfit { path: self.mounts[0].clone(), what })
    }

    fn remark(&self, report: &mut Report, remarks: &Remarks, shown: &[[Vec<Shown>; 2]]) {
        let has = |by| self.steps.iter().any(|step| step.by == by);
        let kind = report.file_system.kind.clone();
        report.notes.push(match self.remount {
            Some(_) => "cold is with the file system mounted anew and the kernel's caches dropped".to_owned(),
            None if stage_has_daemon(shown) => "cold is with the kernel's caches dropped; what the daemon of the file system keeps in memory stays (see --remount)".to_owned(),
            None => "cold is with the kernel's caches dropped".to_owned(),
        });
        if has(By::New) && remarks.has_no_new_mount {
            report
                .notes
                .push(format!("no new node: only volumes of Holdfast can be mounted once more, not {kind}"));
        }
        if self.mounts.len() < 2 {
            report.notes.push("one mount point only: nothing was looked at from another node".to_owned());
        }
        if remarks.has_not_dropped {
            let text =
                "the kernel's caches could not be dropped (only root may): what is called cold was warm";
            report.warnings.push(text.to_owned());
        }
        if self.ground == Ground::There {
            let side = |shown: &[Shown], places: u64| {
                shown.iter().map(|shown| shown.done.count / places).collect::<Vec<_>>()
            };
            let counts = self.steps.iter().zip(shown);
            let counts: Vec<u64> = counts
                .flat_map(|(step, [own, _])| side(own, if step.by == By::Both { 2 } else { 1 }))
                .collect();
            if let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max())
                && least < most
            {
                report.warnings.push(format!("walks saw from {least} to {most} inodes: the tree changed, or the mount points do not show the same"));
            }
        }
    }
}

/// Whether a daemon's time was counted: then there is one.
fn stage_has_daemon(shown: &[[Vec<Shown>; 2]]) -> bool {
    shown.iter().flat_map(|[own, _]| own).any(|shown| shown.daemon_seconds.is_some())
}

/// Does a step on a mount of its own. None where there cannot be one.
fn on_new_mount(
    step: &Step,
    tree: &Path,
    crew: &mut Crew,
    stage: &mut Stage<'_>,
) -> Result<Option<Shown>, BenchError> {
    let failed = |what| BenchError::Unfit { path: tree.to_owned(), what };
    let Some(there) = stage.companion.mount(tree).map_err(failed)? else { return Ok(None) };
    let daemons = std::mem::replace(&mut stage.daemons, Daemons::of(std::slice::from_ref(&there)));
    let found = measure(crew, stage, step.tasks(&[there]));
    stage.daemons = daemons;
    stage.companion.unmount().map_err(failed)?;
    found.map(Some)
}

impl Trees {
    fn on(mounts: &[PathBuf], ground: Ground) -> Result<Self, BenchError> {
        match ground {
            Ground::There => {
                let there = |path: &PathBuf| {
                    let failed =
                        |source| BenchError::Place { path: path.clone(), what: "cannot be used", source };
                    std::fs::canonicalize(path).map_err(failed)
                };
                Ok(Self { paths: mounts.iter().map(there).collect::<Result<_, _>>()?, scratch: None })
            }
            Ground::New { .. } => {
                let scratch = Scratch::new(mounts)?;
                let paths = scratch.places().iter().map(|place| place.join(TREE)).collect();
                Ok(Self { paths, scratch: Some(scratch) })
            }
        }
    }

    fn begin(&self) -> Result<(), BenchError> {
        self.scratch.as_ref().map_or(Ok(()), |scratch| scratch.make(TREE))
    }

    fn end(&self) -> Result<(), BenchError> {
        self.scratch.as_ref().map_or(Ok(()), |scratch| scratch.clear(TREE))
    }
}

const TREE: &str = "tree";
/// Of the two sides, the file system in question.
const OWN: usize = 0;
const SIDES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_to_their_mounts() {
        let trees = [PathBuf::from("/a/tree"), PathBuf::from("/b/tree")];
        let dirs = |by| {
            let tasks = Step::new("walk", by, Work::Walk).tasks(&trees);
            tasks.into_iter().map(|(dir, _)| dir.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!((dirs(By::First), dirs(By::FirstAgain)), (vec!["/a/tree".into()], vec!["/a/tree".into()]));
        assert_eq!(
            (dirs(By::Last), dirs(By::Both)),
            (vec!["/b/tree".into()], vec!["/a/tree".into(), "/b/tree".into()])
        );
    }
}
