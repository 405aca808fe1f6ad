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

/// One of them.
type Part<'a> = Box<dyn Fn(&mut Stage<'_>) -> Result<Report, BenchError> + 'a>;

/// What they have found.
#[derive(Clone, Debug)]
pub struct Reports {
    /// A report of each.
    pub reports: Vec<Report>,
    /// Those that need a call which the file system does not offer.
    pub left_out: Vec<String>,
}

impl All {
    /// Runs them; what needs two mount points is left out with one. `tell` hears each report as it comes.
    ///
    /// # Errors
    ///
    /// [`BenchError`] of the first that fails; what was made is removed.
    pub fn run(&self, stage: &mut Stage<'_>, mut tell: impl FnMut(&Report)) -> Result<Reports, BenchError> {
        let Self { mounts, local, runs, .. } = self.clone();
        let first = vec![mounts[0].clone()];
        let scaled = |count: u64| ((count as f64 * self.scale) as u64).max(LEAST);
        let calls = |turns: Turns| Latency {
            mounts: mounts.clone(),
            local: if turns == Turns::One { local.clone() } else { None },
            count: scaled(LATENCY),
            calls: if turns == Turns::One { Call::ALL.to_vec() } else { Call::BY_TURNS.to_vec() },
            turns,
            runs,
        };
        let create = Create {
            mounts: first,
            local: local.clone(),
            count: scaled(CREATE),
            processes: 1,
            directories: Directories::Shared,
            kinds: Kind::ALL.to_vec(),
            runs,
        };
        let tree = Tree::Made { files: scaled(WALK), per_directory: PER_DIRECTORY };
        let remount = self.remount.clone();
        let walk =
            Walk { mounts: mounts.clone(), local: local.clone(), tree, runs, remount: remount.clone() };
        let (archive, files) = (None, scaled(TAR));
        let tar = Tar { mounts: mounts.clone(), local: local.clone(), archive, files, runs, remount };
        let ladder = Ladder {
            mounts: mounts.clone(),
            device: None,
            destroy: None,
            local: local.clone(),
            layers: Vec::new(),
            alone: None,
            size: ((LADDER as f64 * self.scale) as u64).max(LADDER_MIN),
            runs,
        };
        let mut parts: Vec<Part<'_>> = vec![
            Box::new(|stage| create.run(stage)),
            Box::new(|stage| tar.run(stage)),
            Box::new(|stage| walk.run(stage)),
            Box::new(|stage| calls(Turns::One).run(stage)),
            Box::new(|stage| ladder.run(stage)),
        ];
        if mounts.len() > 1 {
            let coherence = Coherence { mounts: mounts.clone(), rounds: scaled(ROUNDS) };
            parts.push(Box::new(|stage| calls(Turns::Both).run(stage)));
            parts.push(Box::new(move |stage| coherence.run(stage)));
        }
        let (mut reports, mut left_out) = (Vec::new(), Vec::new());
        for (at, part) in parts.iter().enumerate() {
            stage.span = (at as f64 / parts.len() as f64, 1.0 / parts.len() as f64);
            match part(stage) {
                Ok(report) => {
                    tell(&report);
                    reports.push(report);
                }
                Err(BenchError::Call { what, is_unsupported: true, .. }) => left_out.push(what),
                Err(error) => return Err(error),
            }
        }
        Ok(Reports { reports, left_out })
    }
}

impl Reports {
    /// One document.
    pub fn to_json(&self) -> Json {
        json!({ "format": 1, "bench": "all", "reports": self.reports.iter().map(Report::to_json).collect::<Vec<_>>(), "left_out": self.left_out })
    }

    /// For a page of text.
    pub fn to_markdown(&self) -> String {
        page::markdown(&self.reports)
    }

    /// A page with graphs, complete in itself.
    pub fn to_html(&self) -> String {
        page::html(&self.reports)
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
