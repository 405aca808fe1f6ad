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
        self.check_room()?;
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
        let (figures, notes) = self.figures((places, beside), &mut crew, stage)?;
        let mut report = Report {
            bench: if self.turns == Turns::Both { "pingpong" } else { "latency" },
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
        if self.turns == Turns::Both {
            report.beside = "alone";
            if self.mounts.len() < 2 {
                report.warnings.push("one mount point only: it took turns with itself".to_owned());
            }
        }
        report.judge();
        Ok(report)
    }

    /// Refuses what would not fit.
    pub(crate) fn check_room(&self) -> Result<(), BenchError> {
        let mut dirs = self.mounts.first().into_iter().chain(&self.local);
        dirs.try_for_each(|dir| check_room(dir, INODES, BYTES_EACH))
    }

    /// A figure of each call that is offered, through these places and beside it through the others; a note of each that is not.
    ///
    /// # Errors
    ///
    /// What `one_run` says; that nothing is offered only if no figure remains.
    fn figures(
        &self,
        (places, beside): (&[PathBuf], Option<&[PathBuf]>),
        crew: &mut Crew,
        stage: &mut Stage<'_>,
    ) -> Result<(Vec<Figure>, Vec<String>), BenchError> {
        let (mut figures, mut notes, mut refused) = (Vec::new(), Vec::new(), None);
        let runs = self.runs as usize;
        'calls: for (at, call) in self.calls.iter().enumerate() {
            let (mut shown, mut shown_beside): (Vec<Shown>, Vec<Shown>) = Default::default();
            for run in 0..runs {
                let what = format!("{} {} of {runs}", call.name(), run + 1);
                stage.tell(at * runs + run, self.calls.len() * runs, &what);
                let sides = [Some((places, &mut shown)), beside.map(|beside| (beside, &mut shown_beside))];
                for (places, shown) in sides.into_iter().flatten() {
                    match self.one_run(*call, places, crew, stage) {
                        Ok(found) => shown.push(found),
                        Err(BenchError::Call { dir, what, is_unsupported: true }) => {
                            notes.push(format!("{} is not offered, and left out: {what}", call.name()));
                            refused = Some(BenchError::Call { dir, what, is_unsupported: true });
                            continue 'calls;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            figures.push(Figure::of(call.name().to_owned(), Unit::Delay, &shown, &shown_beside));
        }
        match refused {
            Some(error) if figures.is_empty() => Err(error),
            _ => Ok((figures, notes)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::{answering, stage};

    fn latency(calls: &[Call], dir: &std::path::Path) -> Latency {
        let calls = calls.to_vec();
        Latency { mounts: vec![dir.to_owned()], local: None, count: 2, calls, turns: Turns::One, runs: 2 }
    }

    /// Goal: one call that a file system does not offer takes no figure from the others. Method: a worker that answers as one on such a
    /// file system.
    #[test]
    fn a_call_that_is_not_offered_is_left_out_with_a_note() {
        let dir = std::env::temp_dir().join(format!("holdfast-latency-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let refuses = |calls, word: &str| latency(calls, &dir).run(&mut stage(answering(word, true)));
        for turns in [Turns::One, Turns::Both] {
            let all = Latency { turns, ..latency(&[Call::Stat, Call::Flock, Call::Rename], &dir) };
            let report = all.run(&mut stage(answering("flock", true))).unwrap();
            let names: Vec<&str> = report.figures.iter().map(|figure| figure.name.as_str()).collect();
            assert_eq!(names, ["stat", "rename"], "{turns:?}");
            assert!(report.notes[0].starts_with("flock is not offered, and left out"), "{:?}", report.notes);
        }
        let alone = refuses(&[Call::Flock], "flock").unwrap_err();
        assert!(matches!(alone, BenchError::Call { is_unsupported: true, .. }), "{alone}");
        let failed = latency(&[Call::Stat, Call::Flock], &dir).run(&mut stage(answering("flock", false)));
        assert!(matches!(failed, Err(BenchError::Call { is_unsupported: false, .. })));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir(&dir).unwrap();
    }
}
