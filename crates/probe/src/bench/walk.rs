//! How long it takes to look at every inode of a tree, as `find -ls` and `du` do: cold, warm, from another mount, and after
//! another mount has changed them all.

use std::path::PathBuf;

use serde_json::json;

use crate::bench::crew::Crew;
use crate::bench::environment::{FileSystem, Machine, drop_caches};
use crate::bench::measure::{Shown, measure};
use crate::bench::report::{Figure, Report, Unit, unix_now};
use crate::bench::scratch::{Scratch, check_room};
use crate::bench::task::Work;
use crate::bench::{BenchError, Stage};

/// What is walked, and from where.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Mount points of one file system, one or two.
    pub mounts: Vec<PathBuf>,
    /// A directory of a local file system, for the same tree by turns with it.
    pub local: Option<PathBuf>,
    /// Regular files of the tree.
    pub files: u64,
    /// So many in each directory.
    pub per_directory: u64,
    /// How often.
    pub runs: u32,
}

/// The steps of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The first mount makes the tree.
    Make,
    /// The first walks it with the kernel's caches empty.
    Cold,
    Warm,
    /// The second walks it for the first time.
    Other,
    OtherAgain,
    Back,
    /// The first changes the permissions of every file.
    Change,
    /// The second looks at what the first has changed.
    AfterChange,
    BothAtOnce,
}

impl Walk {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`BenchError`]; what was made is removed.
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        let (machine, started) = (Machine::look(), unix_now());
        let inodes = self.files + self.files / self.per_directory.max(1) + 1;
        for path in self.mounts.first().into_iter().chain(&self.local) {
            check_room(path, inodes, INODE_BYTES)?;
        }
        let crew = Crew::new(2, &stage.worker)?;
        let own = Scratch::new(&self.mounts)?;
        let local = self.local.as_ref().map(|dir| Scratch::new(std::slice::from_ref(dir))).transpose()?;
        // Goes before what it makes names in.
        let mut crew = crew;
        let steps: Vec<Step> = Step::ALL.into_iter().filter(|step| self.has(*step)).collect();
        let mut shown: Vec<Vec<Shown>> = vec![Vec::new(); steps.len()];
        let mut beside: Vec<Vec<Shown>> = vec![Vec::new(); steps.len()];
        let mut has_dropped = true;
        for run in 0..self.runs {
            for (at, step) in steps.iter().enumerate() {
                (stage.progress)(&format!("{}, {} of {}", step.name(), run + 1, self.runs));
                if *step == Step::Make {
                    own.make(TREE)?;
                    local.as_ref().map_or(Ok(()), |local| local.make(TREE))?;
                }
                has_dropped &= *step != Step::Cold || drop_caches();
                shown[at].push(measure(&mut crew, stage, self.tasks(own.places(), *step))?);
                if let Some(local) = &local
                    && step.is_local()
                {
                    has_dropped &= *step != Step::Cold || drop_caches();
                    beside[at].push(measure(&mut crew, stage, self.tasks(local.places(), *step))?);
                }
            }
            own.clear(TREE)?;
            local.as_ref().map_or(Ok(()), |local| local.clear(TREE))?;
        }
        let figures = steps.iter().zip(shown.iter().zip(&beside));
        let figures = figures.map(|(step, (own, local))| step.figure(own, local)).collect();
        let mut notes = vec![COLD_NOTE.to_owned()];
        if self.mounts.len() < 2 {
            notes.push("one mount point only: nothing was looked at from another node".to_owned());
        }
        let mut report = Report {
            bench: "walk",
            figures,
            settings: self.settings(),
            warnings: Vec::new(),
            notes,
            version: stage.version.to_owned(),
            started,
            machine,
            file_system: FileSystem::of(own.first()),
            local: self.local.as_deref().map(FileSystem::of),
            runs: self.runs as usize,
            beside: "local",
        };
        report.judge();
        if !has_dropped {
            report
                .warnings
                .push("the kernel's caches could not be dropped (only root may): `cold` is warm".to_owned());
        }
        Ok(report)
    }

    fn has(&self, step: Step) -> bool {
        self.mounts.len() > 1 || step.is_local()
    }

    fn tasks(&self, places: &[PathBuf], step: Step) -> Vec<(PathBuf, Work)> {
        let first = places[0].join(TREE);
        let other = || places[places.len() - 1].join(TREE);
        match step {
            Step::Make => {
                let (count, per_directory) = (self.files, self.per_directory.max(1));
                vec![(first, Work::Grow { count, per_directory })]
            }
            Step::Cold | Step::Warm | Step::Back => vec![(first, Work::Walk)],
            Step::Other | Step::OtherAgain | Step::AfterChange => vec![(other(), Work::Walk)],
            Step::Change => vec![(first, Work::Chmod { mode: 0o600 })],
            Step::BothAtOnce => vec![(first, Work::Walk), (other(), Work::Walk)],
        }
    }

    fn settings(&self) -> serde_json::Value {
        json!({
            "mounts": self.mounts.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "local": self.local.as_ref().map(|path| path.to_string_lossy()),
            "files": self.files,
            "files_per_directory": self.per_directory,
        })
    }
}

impl Step {
    const ALL: [Self; 9] = [
        Self::Make,
        Self::Cold,
        Self::Warm,
        Self::Other,
        Self::OtherAgain,
        Self::Back,
        Self::Change,
        Self::AfterChange,
        Self::BothAtOnce,
    ];

    /// Whether it is done on one mount alone, and so on a local file system too.
    fn is_local(self) -> bool {
        matches!(self, Self::Make | Self::Cold | Self::Warm | Self::Change)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Make => "make",
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Other => "first from the other",
            Self::OtherAgain => "again from there",
            Self::Back => "back",
            Self::Change => "chmod of all",
            Self::AfterChange => "from the other after it",
            Self::BothAtOnce => "both at once",
        }
    }

    fn figure(self, own: &[Shown], local: &[Shown]) -> Figure {
        Figure::of(self.name().to_owned(), Unit::Seconds, own, local)
    }
}

const TREE: &str = "tree";
/// What an inode and its name take on a file system that does not say how many it has.
const INODE_BYTES: u64 = 512;
const COLD_NOTE: &str = "`cold` is with the kernel's caches dropped; what a daemon of the file system keeps in its own memory stays";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mount_has_the_steps_of_one() {
        let walk = |mounts: &[&str]| Walk {
            mounts: mounts.iter().map(PathBuf::from).collect(),
            local: None,
            files: 10,
            per_directory: 3,
            runs: 1,
        };
        let steps = |walk: &Walk| Step::ALL.into_iter().filter(|step| walk.has(*step)).count();
        assert_eq!((steps(&walk(&["/a"])), steps(&walk(&["/a", "/b"]))), (4, 9));
        let places = [PathBuf::from("/a"), PathBuf::from("/b")];
        let tasks = walk(&["/a", "/b"]).tasks(&places, Step::BothAtOnce);
        assert_eq!(tasks, [("/a/tree".into(), Work::Walk), ("/b/tree".into(), Work::Walk)]);
    }
}
