//! Benchmarks of file systems, Holdfast's or anybody's.
//!
//! A benchmark is a list of [`Task`]s, done by one or several **workers** at once: processes of their own ([`bench_work`]) that make the
//! system calls, so that what hangs is theirs and the benchmark can be ended. The **crew** starts them, gives them their tasks with one
//! moment to begin at, and takes what they found. What comes of it is a [`Report`]: figures with all their runs, and what has to be known
//! to believe them.
//!
//! Nothing of the user's is touched: everything is made in a directory of the benchmark's own, which goes at the end, however it ends.

mod all;
pub(crate) mod call;
mod coherence;
pub(crate) mod compare;
mod create;
pub(crate) mod crew;
pub(crate) mod delays;
pub(crate) mod device;
pub(crate) mod environment;
mod ladder;
mod latency;
pub(crate) mod measure;
mod page;
pub(crate) mod report;
pub(crate) mod scratch;
mod sequence;
mod stream;
mod tar;
pub(crate) mod task;
mod text;
mod tree;
mod walk;
mod worker;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

pub use all::{All, Reports};
pub use call::Call;
pub use coherence::Coherence;
pub use compare::{Change, Comparison, Verdict};
pub use create::{Create, Directories};
pub use crew::INTERRUPTED_CODE;
pub use delays::Delays;
pub use ladder::{Ladder, Layer};
pub use latency::{Latency, Turns};
pub use measure::Daemons;
pub use report::{CpuShare, Figure, Report, Shares, Unit};
pub use tar::Tar;
pub use task::Kind;
pub use walk::{Tree, Walk};
pub use worker::bench_work;

/// Who knows the file system that is measured.
pub trait Companion {
    /// Its own counters now, by name; they only rise. `None` if there are none to be had.
    fn counters(&mut self) -> Option<Vec<(String, u64)>>;

    /// Mounts it once more where nothing of it is known, and returns where `dir`, which is on it, is there. `None` if it cannot be.
    ///
    /// # Errors
    ///
    /// What failed.
    fn mount(&mut self, dir: &Path) -> Result<Option<PathBuf>, String>;

    /// Takes off what [`mount`](Self::mount) has mounted.
    ///
    /// # Errors
    ///
    /// What failed.
    fn unmount(&mut self) -> Result<(), String>;

    /// Hears that it has been mounted anew, at the same places.
    fn has_remounted(&mut self);
}

/// Of a file system that nobody knows.
#[derive(Debug)]
pub struct Nobody;

impl Companion for Nobody {
    fn counters(&mut self) -> Option<Vec<(String, u64)>> {
        None
    }

    fn mount(&mut self, _dir: &Path) -> Result<Option<PathBuf>, String> {
        Ok(None)
    }

    fn unmount(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn has_remounted(&mut self) {}
}

/// What a benchmark needs from who runs it.
pub struct Stage<'a> {
    /// Starts a worker.
    pub worker: Box<dyn Fn() -> Command + 'a>,
    /// Knows the file system.
    pub companion: Box<dyn Companion + 'a>,
    /// Of the file system.
    pub daemons: Daemons,
    /// Told how much of the whole is done, from 0 to 1, and what is being done.
    pub progress: Box<dyn Fn(f64, &str) + 'a>,
    /// Which part of the whole the benchmark is that runs now: where it begins, and how much it is.
    pub span: (f64, f64),
    /// Version of the program, for the report.
    pub version: &'a str,
}

impl Stage<'_> {
    /// Tells that so many steps of all are done, and which is next.
    pub(crate) fn tell(&self, done: usize, of: usize, what: &str) {
        let (begin, width) = self.span;
        (self.progress)(begin + width * done as f64 / of.max(1) as f64, what);
    }
}

/// Why a benchmark came to nothing.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BenchError {
    #[error("{}: {what}", path.display())]
    Place { path: PathBuf, what: &'static str, source: io::Error },
    #[error("{}: {what}", path.display())]
    Unfit { path: PathBuf, what: String },
    #[error("--against: {0}")]
    Against(&'static str),
    #[error("a worker cannot be started")]
    Start(#[source] io::Error),
    #[error("a worker ended by itself")]
    WorkerEnded,
    #[error("{}: {what}", dir.display())]
    Call { dir: PathBuf, what: String, is_unsupported: bool },
    #[error("{}: no answer for {seconds} s", dir.display())]
    Stuck { dir: PathBuf, seconds: u64 },
    #[error("signals cannot be waited for")]
    Signals(#[source] io::Error),
    #[error("interrupted")]
    Interrupted,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A worker that does nothing and says that it was well, but of tasks that hold `word`: those fail, as something that is not offered
    /// or as anything else.
    pub(crate) fn answering(word: &str, is_unsupported: bool) -> String {
        let outcome = |error: Option<&str>| {
            let error = error.map(str::to_owned);
            let is_unsupported = is_unsupported && error.is_some();
            let (count, delays) = (2, vec![1000; 2]);
            let ended_ns = 1_000_000;
            task::Outcome { count, delays, ended_ns, error, is_unsupported, ..task::Outcome::default() }
                .to_line()
        };
        format!(
            "while read -r task; do case \"$task\" in *\\\"{word}\\\"*) echo '{}';; *) echo '{}';; esac; done",
            outcome(Some("refused")),
            outcome(None)
        )
    }

    /// A stage whose workers are this script of sh(1).
    pub(crate) fn stage(script: String) -> Stage<'static> {
        Stage {
            worker: Box::new(move || {
                let mut command = Command::new("sh");
                command.arg("-c").arg(&script);
                command
            }),
            companion: Box::new(Nobody),
            daemons: Daemons::default(),
            progress: Box::new(|_, _| {}),
            span: (0.0, 1.0),
            version: "0",
        }
    }
}
