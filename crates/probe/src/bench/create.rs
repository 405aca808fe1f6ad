//! How fast names are made, looked at, listed and removed in one directory, after Lustre's createmany.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::bench::crew::Crew;
use crate::bench::environment::{FileSystem, Machine, settle};
use crate::bench::measure::{Shown, measure};
use crate::bench::report::{Figure, Report, Unit, unix_now};
use crate::bench::scratch::{Scratch, check_room};
use crate::bench::task::{Kind, Work};
use crate::bench::{BenchError, Stage};
use crate::system::block_size;

/// What is to be made, and where.
#[derive(Clone, Debug)]
pub struct Create {
    /// Mount points of one file system; processes take them by turns.
    pub mounts: Vec<PathBuf>,
    /// A directory of a local file system, for the same by turns with it.
    pub local: Option<PathBuf>,
    /// Names of each kind, of all processes together.
    pub count: u64,
    /// That work at once.
    pub processes: u32,
    /// Where they work.
    pub directories: Directories,
    /// What is made.
    pub kinds: Vec<Kind>,
    /// How often, each time in a new directory.
    pub runs: u32,
}

/// Where processes make names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directories {
    /// All in one.
    Shared,
    /// Each in its own.
    Own,
}

/// The steps of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Make,
    Stat,
    List,
    Remove,
}

impl Create {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`BenchError`], that a kind is not offered only if no other is; what was made is removed.
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        let (machine, started) = (Machine::look(), unix_now());
        self.check_room()?;
        let crew = Crew::new(self.processes.max(1) as usize, &stage.worker)?;
        let own = Scratch::new(&self.mounts)?;
        let local = self.local.as_ref().map(|dir| Scratch::new(std::slice::from_ref(dir))).transpose()?;
        // Goes before what it makes names in.
        let mut crew = crew;
        let (mut figures, mut notes, mut refused) = (Vec::new(), Vec::new(), None);
        let runs = self.runs as usize;
        'kinds: for (at, kind) in self.kinds.iter().enumerate() {
            let mut shown: Vec<Vec<Shown>> = vec![Vec::new(); Step::ALL.len()];
            let mut beside: Vec<Vec<Shown>> = vec![Vec::new(); Step::ALL.len()];
            for run in 0..runs {
                let what = format!("{} {} of {runs}", kind.name(), run + 1);
                stage.tell(at * runs + run, self.kinds.len() * runs, &what);
                // By turns, so that what happens to the machine happens to both.
                let sides = [Some((&own, &mut shown)), local.as_ref().map(|local| (local, &mut beside))];
                for (scratch, shown) in sides.into_iter().flatten() {
                    match self.one_run(scratch, *kind, &mut crew, stage, shown) {
                        Err(BenchError::Call { dir, what, is_unsupported: true }) => {
                            notes.push(format!("{} is not offered, and left out: {what}", kind.name()));
                            refused = Some(BenchError::Call { dir, what, is_unsupported: true });
                            self.directories().iter().try_for_each(|dir| scratch.clear(dir))?;
                            continue 'kinds;
                        }
                        result => result?,
                    }
                }
            }
            for (step, (shown, beside)) in Step::ALL.iter().zip(shown.iter().zip(&beside)) {
                figures.push(Figure::of(step.name(*kind), Unit::PerSecond, shown, beside));
            }
        }
        if let Some(error) = refused.filter(|_| figures.is_empty()) {
            return Err(error);
        }
        let mut report = Report {
            bench: "create",
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
        Ok(report)
    }

    /// Refuses what would not fit: what a directory of that many names and their inodes take on common file systems; a directory has a
    /// block of its own.
    pub(crate) fn check_room(&self) -> Result<(), BenchError> {
        for path in self.mounts.first().into_iter().chain(&self.local) {
            let bytes = if self.kinds.contains(&Kind::Mkdir) {
                block_size(path).max(INODE_BYTES)
            } else {
                INODE_BYTES
            };
            check_room(path, self.count + self.count / 500, bytes)?;
        }
        Ok(())
    }

    fn directories(&self) -> Vec<String> {
        match self.directories {
            Directories::Shared => vec!["all".to_owned()],
            Directories::Own => (0..self.processes).map(|number| format!("p{number}")).collect(),
        }
    }

    fn one_run(
        &self,
        scratch: &Scratch,
        kind: Kind,
        crew: &mut Crew,
        stage: &mut Stage<'_>,
        shown: &mut [Vec<Shown>],
    ) -> Result<(), BenchError> {
        let dirs = self.directories();
        settle(self.mounts.iter().chain(&self.local).map(PathBuf::as_path));
        for dir in &dirs {
            scratch.make(dir)?;
        }
        for (step, shown) in Step::ALL.iter().zip(shown) {
            let tasks = self.tasks(scratch.places(), &dirs, *step, kind);
            shown.push(measure(crew, stage, tasks)?);
        }
        dirs.iter().try_for_each(|dir| scratch.clear(dir))
    }

    /// What each process does; who shares a directory lists it once.
    fn tasks(&self, places: &[PathBuf], dirs: &[String], step: Step, kind: Kind) -> Vec<(PathBuf, Work)> {
        let processes = u64::from(self.processes.max(1));
        let task = |number: u64| {
            let place: &Path = &places[number as usize % places.len()];
            let dir = place.join(&dirs[number as usize % dirs.len()]);
            let prefix = format!("p{number}-");
            let count = self.count / processes + u64::from(number < self.count % processes);
            let work = match step {
                Step::Make => Work::Make { kind, prefix, count },
                Step::Stat => Work::Stat { prefix, count },
                Step::List => Work::List,
                Step::Remove => Work::Remove { kind, prefix, count },
            };
            (dir, work)
        };
        let at_work = if step == Step::List { dirs.len() as u64 } else { processes };
        (0..at_work).map(task).collect()
    }

    fn settings(&self) -> serde_json::Value {
        json!({
            "mounts": self.mounts.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "local": self.local.as_ref().map(|path| path.to_string_lossy()),
            "count": self.count,
            "processes": self.processes,
            "directories": if self.directories == Directories::Own { "own" } else { "shared" },
            "kinds": self.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        })
    }
}

impl Step {
    const ALL: [Self; 4] = [Self::Make, Self::Stat, Self::List, Self::Remove];

    fn name(self, kind: Kind) -> String {
        match (self, kind) {
            (Self::Make, kind) => kind.name().to_owned(),
            (Self::Stat, kind) => format!("{} stat", kind.name()),
            (Self::List, kind) => format!("{} readdir", kind.name()),
            (Self::Remove, Kind::Mkdir) => "rmdir".to_owned(),
            (Self::Remove, kind) => format!("{} unlink", kind.name()),
        }
    }
}

/// What an inode and its name take on a file system that does not say how many it has.
const INODE_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::{answering, stage};

    fn create(count: u64, processes: u32, directories: Directories) -> Create {
        let kinds = vec![Kind::Mknod];
        Create { mounts: Vec::new(), local: None, count, processes, directories, kinds, runs: 1 }
    }

    /// Goal: a table without a figure is none. Method: workers that refuse one kind, and all.
    #[test]
    fn kinds_that_are_not_offered_are_left_out_and_an_error_where_none_is() {
        let dir = std::env::temp_dir().join(format!("holdfast-kinds-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let (mounts, kinds) = (vec![dir.clone()], vec![Kind::Symlink, Kind::Link]);
        let both = Create { mounts, kinds, ..create(10, 1, Directories::Shared) };
        let report = both.run(&mut stage(answering("symlink", true))).unwrap();
        let names: Vec<&str> = report.figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["link", "link stat", "link readdir", "link unlink"]);
        assert!(report.notes[0].starts_with("symlink is not offered, and left out"), "{:?}", report.notes);
        let none = both.run(&mut stage(answering("make", true))).unwrap_err();
        assert!(matches!(none, BenchError::Call { is_unsupported: true, .. }), "{none}");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir(&dir).unwrap();
    }

    /// Goal: all names are made, once. Method: numbers that do not divide, over two mounts.
    #[test]
    fn processes_share_the_names_and_the_mounts() {
        let places = [PathBuf::from("/a"), PathBuf::from("/b")];
        let shared = create(10, 3, Directories::Shared);
        let tasks = shared.tasks(&places, &["all".to_owned()], Step::Make, Kind::Mknod);
        let dirs: Vec<_> = tasks.iter().map(|(dir, _)| dir.to_str().unwrap()).collect();
        assert_eq!(dirs, ["/a/all", "/b/all", "/a/all"]);
        let counts: Vec<u64> = tasks
            .iter()
            .map(|(_, work)| match work {
                Work::Make { count, .. } => *count,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(counts, [4, 3, 3]);
        assert_eq!(shared.tasks(&places, &["all".to_owned()], Step::List, Kind::Mknod).len(), 1);
        let own = create(10, 2, Directories::Own);
        let dirs = ["p0".to_owned(), "p1".to_owned()];
        let tasks = own.tasks(&places, &dirs, Step::List, Kind::Mknod);
        assert_eq!(tasks[1].0, PathBuf::from("/b/p1"));
    }
}
