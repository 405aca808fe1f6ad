//! `holdfast bench`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

use probe::bench::{
    BenchError, Call, Coherence, Companion, Create, Directories, INTERRUPTED_CODE, Latency, Report, Stage,
    Turns, Walk,
};
use volume::{Volume, sources};

use crate::args::{BenchArgs, BenchCommand, BenchCommonArgs, BenchLatencyArgs};
use crate::backend;
use crate::failure::{Failure, with_causes};

/// Measures, and prints the report.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let (mounts, is_json) = match &args.what {
        BenchCommand::Create(args) => (&args.common.mounts, args.common.json),
        BenchCommand::Walk(args) => (&args.common.mounts, args.common.json),
        BenchCommand::Latency(args) | BenchCommand::Pingpong(args) => (&args.common.mounts, args.common.json),
        BenchCommand::Coherence(args) => (&args.mounts, args.json),
    };
    let own = std::env::current_exe().map_err(|error| Failure::unwatched(format!("own program: {error}")))?;
    let mut stage = Stage {
        worker: Box::new(move || {
            let mut command = Command::new(&own);
            command.arg("bench-worker");
            command
        }),
        companion: Box::new(Nodes::of(mounts)),
        progress: progress(),
        version: env!("CARGO_PKG_VERSION"),
    };
    let result = measure(&args.what, &mut stage);
    (stage.progress)("");
    let report = result.map_err(|error| match error {
        BenchError::Interrupted => {
            Failure { message: "interrupted".to_owned(), code: INTERRUPTED_CODE as u8 }
        }
        error => Failure::unwatched(with_causes(&error)),
    })?;
    match is_json {
        true => println!("{}", report.to_json()),
        false => print!("{}", report.to_text()),
    }
    match report.stale() {
        0 => Ok(()),
        stale => Err(Failure::problem(format!("{stale} looks showed what was before"))),
    }
}

/// A process that makes the system calls.
pub fn work() -> Result<(), Failure> {
    probe::bench::bench_work().map_err(Failure::unwatched)
}

fn measure(what: &BenchCommand, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
    match what {
        BenchCommand::Create(args) => {
            let BenchCommonArgs { mounts, local, runs, .. } = args.common.clone();
            let directories = if args.own { Directories::Own } else { Directories::Shared };
            let (count, processes, kinds) = (args.files, args.processes, args.kinds.clone());
            Create { mounts, local, count, processes, directories, kinds, runs }.run(stage)
        }
        BenchCommand::Walk(args) => {
            let BenchCommonArgs { mounts, local, runs, .. } = args.common.clone();
            let (files, per_directory) = (args.files, args.per_directory);
            Walk { mounts, local, files, per_directory, runs }.run(stage)
        }
        BenchCommand::Latency(args) => latency(args, Turns::One, &Call::ALL).run(stage),
        BenchCommand::Pingpong(args) if args.common.local.is_some() => Err(BenchError::Unfit {
            path: args.common.mounts[0].clone(),
            what: "pingpong is compared with this mount point alone, not with a local file system".to_owned(),
        }),
        BenchCommand::Pingpong(args) => latency(args, Turns::Both, &Call::BY_TURNS).run(stage),
        BenchCommand::Coherence(args) => {
            Coherence { mounts: args.mounts.clone(), rounds: args.rounds }.run(stage)
        }
    }
}

fn latency(args: &BenchLatencyArgs, turns: Turns, all: &[Call]) -> Latency {
    let BenchCommonArgs { mounts, local, runs, .. } = args.common.clone();
    let calls = args.calls.clone().unwrap_or_else(|| all.to_vec());
    Latency { mounts, local, count: args.count, calls, turns, runs }
}

/// One line that is written over, where somebody looks at it; nothing where nobody does.
fn progress() -> Box<dyn Fn(&str)> {
    let is_watched = std::io::stderr().is_terminal();
    Box::new(move |what| {
        if is_watched {
            eprint!("\r\x1b[K{what}");
        }
    })
}

/// The nodes behind those of the mount points that are Holdfast's.
struct Nodes(Vec<(Volume, String)>);

impl Nodes {
    fn of(paths: &[PathBuf]) -> Self {
        let node = |path: &PathBuf| {
            let path = std::fs::canonicalize(path).ok()?;
            let entry = path.ancestors().find_map(mount_at)?;
            let volume = Volume::open(&entry.source).ok()?;
            Some((volume, entry.control_socket()))
        };
        Self(paths.iter().filter_map(node).collect())
    }
}

fn mount_at(path: &Path) -> Option<sources::MountEntry> {
    sources::find(path).ok()?.filter(sources::MountEntry::is_holdfast)
}

impl Companion for Nodes {
    /// Of all nodes together. What cannot be had of one is not had at all: a part would mislead.
    fn counters(&mut self) -> Option<Vec<(String, u64)>> {
        let mut all: Vec<(String, u64)> = Vec::new();
        for (volume, socket) in &self.0 {
            let document = backend::ask(volume, socket, "stat").ok()?;
            for (metric, name) in COUNTED {
                for (kind, count) in document["by_label"][metric].as_object()? {
                    let name = format!("{name} {kind}");
                    let count = count.as_u64().unwrap_or(0);
                    match all.iter_mut().find(|(other, _)| *other == name) {
                        Some((_, sum)) => *sum += count,
                        None => all.push((name, count)),
                    }
                }
            }
        }
        (!self.0.is_empty()).then_some(all)
    }
}

/// What is counted for each operation, and what it is called.
const COUNTED: [(&str, &str); 2] = [("fuse_requests_total", "request"), ("messages_sent_total", "message")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_a_metric() {
        let document = obs::Metrics::new().snapshot().to_json();
        for (metric, _) in COUNTED {
            assert!(document["by_label"][metric].is_object(), "{metric}");
        }
    }
}
