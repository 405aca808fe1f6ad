//! All benchmarks, one after the other.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::bench::page;
use crate::bench::{
    BenchError, Call, Coherence, Create, Directories, Kind, Ladder, Latency, Report, Stage, Tar, Tree, Turns,
    Walk,
};

/// Where all is measured, and how much.
#[derive(Clone, Debug)]
pub struct All {
    /// Mount points of one file system, one or two.
    pub mounts: Vec<PathBuf>,
    /// A directory of a local file system, for the same by turns with it.
    pub local: Option<PathBuf>,
    /// How often.
    pub runs: u32,
    /// Of the numbers of names, files and calls that each benchmark has by default.
    pub scale: f64,
    /// A command that mounts the file system anew.
    pub remount: Option<String>,
}

/// What they have found.
#[derive(Debug, Default)]
pub struct Reports {
    /// A report of each, in order.
    pub reports: Vec<Report>,
    /// Those that need a call which the file system does not offer.
    pub left_out: Vec<String>,
    /// Why there are no more: the first that failed ends it.
    pub error: Option<BenchError>,
}

/// One of them.
#[derive(Clone, Debug)]
enum Part {
    Create(Create),
    Tar(Tar),
    Walk(Walk),
    Latency(Latency),
    Ladder(Ladder),
    Coherence(Coherence),
}

impl All {
    /// Runs them; what needs two mount points is left out with one. `tell` hears each report as it comes. Room for all is looked at before
    /// the first. What fails ends it, and is in the [`Reports`] beside those that were made until then: hours of measuring are not in
    /// vain. What was made on file systems is removed.
    pub fn run(&self, stage: &mut Stage<'_>, mut tell: impl FnMut(&Report)) -> Reports {
        let (mut found, parts) = (Reports::default(), self.parts());
        if let Err(error) = parts.iter().try_for_each(Part::check_room) {
            found.error = Some(error);
            return found;
        }
        for (at, part) in parts.iter().enumerate() {
            stage.span = (at as f64 / parts.len() as f64, 1.0 / parts.len() as f64);
            match part.run(stage) {
                Ok(report) => {
                    tell(&report);
                    found.reports.push(report);
                }
                Err(BenchError::Call { what, is_unsupported: true, .. }) => found.left_out.push(what),
                Err(error) => {
                    found.error = Some(error);
                    break;
                }
            }
        }
        found
    }

    fn parts(&self) -> Vec<Part> {
        let Self { mounts, local, runs, remount, .. } = self.clone();
        let scaled = |count: u64| ((count as f64 * self.scale) as u64).max(LEAST);
        let create = Create {
            mounts: vec![mounts[0].clone()],
            local: local.clone(),
            count: scaled(CREATE),
            processes: 1,
            directories: Directories::Shared,
            kinds: Kind::ALL.to_vec(),
            runs,
        };
        let tree = Tree::Made { files: scaled(WALK), per_directory: PER_DIRECTORY };
        let walk =
            Walk { mounts: mounts.clone(), local: local.clone(), tree, runs, remount: remount.clone() };
        let (archive, files) = (None, scaled(TAR));
        let tar = Tar { mounts: mounts.clone(), local: local.clone(), archive, files, runs, remount };
        let ladder = Ladder {
            mounts: mounts.clone(),
            device: None,
            destroy: None,
            local,
            layers: Vec::new(),
            alone: None,
            size: ((LADDER as f64 * self.scale) as u64).max(LADDER_MIN),
            runs,
        };
        let count = scaled(LATENCY);
        let mut parts = vec![
            Part::Create(create),
            Part::Tar(tar),
            Part::Walk(walk),
            Part::Latency(self.latency(Turns::One, count)),
            Part::Ladder(ladder),
        ];
        if mounts.len() > 1 {
            parts.push(Part::Latency(self.latency(Turns::Both, count)));
            parts.push(Part::Coherence(Coherence { mounts, rounds: scaled(ROUNDS) }));
        }
        parts
    }

    fn latency(&self, turns: Turns, count: u64) -> Latency {
        let (local, calls) = match turns {
            Turns::One => (self.local.clone(), Call::ALL.to_vec()),
            Turns::Both => (None, Call::BY_TURNS.to_vec()),
        };
        Latency { mounts: self.mounts.clone(), local, count, calls, turns, runs: self.runs }
    }
}

impl Part {
    fn check_room(&self) -> Result<(), BenchError> {
        match self {
            Self::Create(create) => create.check_room(),
            Self::Tar(tar) => tar.check_room(),
            Self::Walk(walk) => walk.check_room(),
            Self::Latency(latency) => latency.check_room(),
            Self::Ladder(ladder) => ladder.check_room(),
            // A few names.
            Self::Coherence(_) => Ok(()),
        }
    }

    fn run(&self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        match self {
            Self::Create(create) => create.run(stage),
            Self::Tar(tar) => tar.run(stage),
            Self::Walk(walk) => walk.run(stage),
            Self::Latency(latency) => latency.run(stage),
            Self::Ladder(ladder) => ladder.run(stage),
            Self::Coherence(coherence) => coherence.run(stage),
        }
    }
}

impl Reports {
    /// One document.
    pub fn to_json(&self) -> Json {
        json!({
            "format": 1,
            "bench": "all",
            "reports": self.reports.iter().map(Report::to_json).collect::<Vec<_>>(),
            "left_out": self.left_out,
            "error": self.error_text(),
        })
    }

    /// For a page of text.
    pub fn to_markdown(&self) -> String {
        page::markdown(&self.reports, self.error_text().as_deref())
    }

    /// A page with graphs, complete in itself.
    pub fn to_html(&self) -> String {
        page::html(&self.reports, self.error_text().as_deref())
    }

    /// Why it ended early, with causes.
    fn error_text(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
        Some(format!("{error}{cause}"))
    }

    /// Looks that showed what was before.
    pub fn stale(&self) -> u64 {
        self.reports.iter().map(Report::stale).sum()
    }
}

const CREATE: u64 = 150_000;
const WALK: u64 = 393_604;
const PER_DIRECTORY: u64 = 1_000;
const TAR: u64 = 16_000;
const LATENCY: u64 = 1_000;
const ROUNDS: u64 = 300;
/// Bytes.
const LADDER: u64 = 1 << 30;
const LADDER_MIN: u64 = 4 << 20;
/// Fewer are nothing.
const LEAST: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::{answering, stage};

    /// Goal: what was measured is not lost with what fails after it. Method: workers that do everything but unpack.
    #[test]
    fn a_part_that_fails_leaves_the_reports_before_it() {
        let dir = std::env::temp_dir().join(format!("holdfast-all-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let all = All { mounts: vec![dir.clone()], local: None, runs: 1, scale: 1e-9, remount: None };
        let mut told = 0;
        let found = all.run(&mut stage(answering("unpack", false)), |_| told += 1);
        let benches: Vec<&str> = found.reports.iter().map(|report| report.bench).collect();
        assert_eq!((benches.as_slice(), told), (&["create"][..], 1));
        let document = found.to_json();
        assert_eq!(document["reports"][0]["bench"], "create");
        for text in [&document["error"].to_string(), &found.to_markdown(), &found.to_html()] {
            assert!(text.contains("refused"), "{text}");
        }
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir(&dir).unwrap();
    }
}
