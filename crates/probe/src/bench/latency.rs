//! How long single calls take: on one mount, and by turns from two.

use std::path::PathBuf;

use serde_json::json;

use crate::bench::call::Call;
use crate::bench::crew::Crew;
use crate::bench::environment::{FileSystem, Machine, settle};
use crate::bench::measure::{Shown, measure};
use crate::bench::report::{Figure, Report, Unit, unix_now};
use crate::bench::scratch::{Scratch, check_room};
use crate::bench::task::Work;
use crate::bench::{BenchError, Stage};

/// What is timed, and where.
#[derive(Clone, Debug)]
pub struct Latency {
    /// One mount point, or two of one file system.
    pub mounts: Vec<PathBuf>,
    /// A directory of a local file system, for the same by turns with it.
    pub local: Option<PathBuf>,
    /// Calls of each kind in a run.
    pub count: u64,
    /// Which.
    pub calls: Vec<Call>,
    /// Through which mount points.
    pub turns: Turns,
    /// How often.
    pub runs: u32,
}

/// Who makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// The first mount point.
    One,
    /// Both by turns, in one directory and on one file; beside it the first alone.
    Both,
}

impl Latency {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`BenchError`]; what was made is removed.
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        let (machine, started) = (Machine::look(), unix_now());
        for path in self.mounts.first().into_iter().chain(&self.local) {
            check_room(path, INODES, BYTES_EACH)?;
        }
        let crew = Crew::new(1, &stage.worker)?;
        let own = Scratch::new(&self.mounts)?;
        let local = self.local.as_ref().map(|dir| Scratch::new(std::slice::from_ref(dir))).transpose()?;
        // Goes before what it makes names in.
        let mut crew = crew;
        for scratch in [Some(&own), local.as_ref()].into_iter().flatten() {
            crew.run(vec![(scratch.first().to_owned(), Work::Prepare { bytes: FILE_BYTES })])?;
        }
        let alone = [own.first().to_owned()];
        let (places, beside) = match self.turns {
            Turns::One => (&alone[..], local.as_ref().map(Scratch::places)),
            Turns::Both => (own.places(), Some(&alone[..])),
        };
        let mut figures = Vec::new();
        let runs = self.runs as usize;
        for (at, call) in self.calls.iter().enumerate() {
            let (mut shown, mut shown_beside): (Vec<Shown>, Vec<Shown>) = Default::default();
            for run in 0..runs {
                let what = format!("{} {} of {runs}", call.name(), run + 1);
                stage.tell(at * runs + run, self.calls.len() * runs, &what);
                shown.push(self.one_run(*call, places, &mut crew, stage)?);
                if let Some(beside) = beside {
                    shown_beside.push(self.one_run(*call, beside, &mut crew, stage)?);
                }
            }
            figures.push(Figure::of(call.name().to_owned(), Unit::Delay, &shown, &shown_beside));
        }
        let mut report = Report {
            bench: if self.turns == Turns::Both { "pingpong" } else { "latency" },
            figures,
            settings: self.settings(),
            warnings: Vec::new(),
            notes: Vec::new(),
            version: stage.version.to_owned(),
            started,
            machine,
            file_system: FileSystem::of(own.first()),
            local: self.local.as_deref().map(FileSystem::of),
            runs: self.runs as usize,
            beside: "local",
        };
        if self.turns == Turns::Both {
            report.beside = "alone";
            if self.mounts.len() < 2 {
                report.warnings.push("one mount point only: it took turns with itself".to_owned());
            }
        }
        report.judge();
        Ok(report)
    }

    fn one_run(
        &self,
        call: Call,
        places: &[PathBuf],
        crew: &mut Crew,
        stage: &mut Stage<'_>,
    ) -> Result<Shown, BenchError> {
        settle(self.mounts.iter().chain(&self.local).map(PathBuf::as_path));
        // Names change sides with each rename: an even number leaves them as they were.
        let count = self.count.next_multiple_of(2);
        let work = Work::Time { call, count, others: places[1..].to_vec() };
        measure(crew, stage, vec![(places[0].clone(), work)])
    }

    fn settings(&self) -> serde_json::Value {
        json!({
            "mounts": self.mounts.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "local": self.local.as_ref().map(|path| path.to_string_lossy()),
            "count": self.count,
            "calls": self.calls.iter().map(|call| call.name()).collect::<Vec<_>>(),
        })
    }
}

/// Of the file that calls are made on.
const FILE_BYTES: u64 = 8 << 20;
/// A few names, and 12 MiB for the file of 8: log-structured file systems keep what was overwritten for a while.
const INODES: u64 = 4;
const BYTES_EACH: u64 = 3 << 20;
