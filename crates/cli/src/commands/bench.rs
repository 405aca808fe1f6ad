//! `holdfast bench`.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use probe::bench::{
    All, BenchError, Call, Coherence, Comparison, Create, Daemons, Directories, INTERRUPTED_CODE, Ladder,
    Latency, Report, Stage, Tar, Tree, Turns, Walk,
};

use crate::args::{
    BenchAllArgs, BenchArgs, BenchCommand, BenchCommonArgs, BenchCompareArgs, BenchCreateArgs,
    BenchLadderArgs, BenchLatencyArgs, BenchTarArgs, BenchWalkArgs,
};
use crate::failure::{Failure, with_causes};
use crate::nodes::Nodes;
use crate::profile::Profile;

/// Measures, and prints the report.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let (mounts, is_json, bench): (&[PathBuf], bool, Bench) = match &args.what {
        BenchCommand::Create(args) => (&args.common.mounts, args.common.json, create(args)),
        BenchCommand::Walk(args) => (&args.common.mounts, args.common.json, walk(args)),
        BenchCommand::Tar(args) => (&args.common.mounts, args.common.json, tar(args)),
        BenchCommand::Latency(args) => {
            (&args.common.mounts, args.common.json, latency(args, Turns::One, &Call::ALL))
        }
        BenchCommand::Pingpong(args) if args.common.local.is_some() => {
            return Err(Failure::unwatched(
                "pingpong is compared with the first mount point alone: no --local",
            ));
        }
        BenchCommand::Pingpong(args) => {
            (&args.common.mounts, args.common.json, latency(args, Turns::Both, &Call::BY_TURNS))
        }
        BenchCommand::Coherence(args) => {
            let coherence = Coherence { mounts: args.mounts.clone(), rounds: args.rounds };
            (&args.mounts, args.json, Box::new(move |stage| coherence.run(stage)))
        }
        BenchCommand::Ladder(args) => (&args.mounts, args.json, ladder(args)),
        BenchCommand::All(args) => return all(args),
        BenchCommand::Compare(args) => return compare(args),
    };
    let mut stage = stage(mounts)?;
    stage.daemons = Daemons::of(mounts);
    let profile = args.what.profile().map(Profile::begin).transpose()?;
    let result = bench(&mut stage);
    drop(profile);
    (stage.progress)(1.0, "");
    let report = result.map_err(failure)?;
    match is_json {
        true => println!("{}", report.to_json()),
        false => print!("{}", report.to_text()),
    }
    refuse_stale(report.stale())
}

pub fn failure(error: BenchError) -> Failure {
    match error {
        BenchError::Interrupted => {
            Failure { message: "interrupted".to_owned(), code: INTERRUPTED_CODE as u8 }
        }
        error => Failure::unwatched(with_causes(&error)),
    }
}

fn refuse_stale(stale: u64) -> Result<(), Failure> {
    match stale {
        0 => Ok(()),
        stale => Err(Failure::problem(format!("{stale} looks showed what was before"))),
    }
}

pub fn stage(mounts: &[PathBuf]) -> Result<Stage<'static>, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::unwatched(format!("own program: {error}")))?;
    Ok(Stage {
        worker: Box::new(move || {
            let mut command = Command::new(&own);
            command.arg("bench-worker");
            command
        }),
        companion: Box::new(Nodes::of(mounts)),
        // Looking for them asks the file system, which may not answer: the doctor does without.
        daemons: Daemons::default(),
        progress: progress(),
        span: (0.0, 1.0),
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Runs all, and writes what they have found, also if one fails or it is interrupted. Where that goes is made before: hours of measuring
/// must not be in vain.
fn all(args: &BenchAllArgs) -> Result<(), Failure> {
    let BenchCommonArgs { mounts, local, runs, json, profile } = args.common.clone();
    let profile = profile.as_deref().map(Profile::begin).transpose()?;
    let mut files = Vec::new();
    for kind in ["json", "md", "html"] {
        let mut name = args.out.clone().into_os_string();
        name.push(format!(".{kind}"));
        let path = PathBuf::from(name);
        match std::fs::File::create_new(&path) {
            Ok(file) => files.push((path, file)),
            Err(error) => {
                remove(&files);
                return Err(Failure::unwatched(format!("{}: {error}", path.display())));
            }
        }
    }
    let mut stage = stage(&mounts)?;
    stage.daemons = Daemons::of(&mounts);
    let all = All { mounts, local, runs, scale: args.scale, remount: args.cold.remount.clone() };
    let mut shown = Ok(());
    let tell = |report: &Report| {
        if !json && shown.is_ok() {
            // Who reads this may have gone, or the disk it goes to be full: what is measured is written all the same.
            shown = writeln!(std::io::stdout(), "{}", report.to_text());
        }
    };
    let reports = all.run(&mut stage, tell);
    drop(profile);
    (stage.progress)(1.0, "");
    if reports.reports.is_empty()
        && let Some(error) = reports.error
    {
        remove(&files);
        return Err(failure(error));
    }
    for what in &reports.left_out {
        eprintln!("holdfast: a benchmark is left out: {what}");
    }
    let texts = [reports.to_json().to_string(), reports.to_markdown(), reports.to_html()];
    for ((path, file), text) in files.iter_mut().zip(&texts) {
        file.write_all(text.as_bytes())
            .map_err(|error| Failure::unwatched(format!("{}: {error}", path.display())))?;
    }
    if json {
        println!("{}", texts[0]);
    }
    let stale = reports.stale();
    reports.error.map_or_else(|| refuse_stale(stale), |error| Err(failure(error)))?;
    match shown {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::unwatched(format!("standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn remove(files: &[(PathBuf, std::fs::File)]) {
    for (path, _) in files {
        // Empty and our own; what stays is in nobody's way.
        _ = std::fs::remove_file(path);
    }
}

/// A process that makes the system calls.
pub fn work() -> Result<(), Failure> {
    probe::bench::bench_work().map_err(Failure::unwatched)
}

/// A benchmark with its settings.
type Bench = Box<dyn FnOnce(&mut Stage<'_>) -> Result<Report, BenchError>>;

fn create(args: &BenchCreateArgs) -> Bench {
    let BenchCommonArgs { mounts, local, runs, .. } = args.common.clone();
    let directories = if args.own { Directories::Own } else { Directories::Shared };
    let (count, processes, kinds) = (args.files, args.processes, args.kinds.clone());
    let create = Create { mounts, local, count, processes, directories, kinds, runs };
    Box::new(move |stage| create.run(stage))
}

fn walk(args: &BenchWalkArgs) -> Bench {
    let BenchCommonArgs { mounts, local, runs, .. } = args.common.clone();
    let tree = match args.existing {
        true => Tree::There,
        false => Tree::Made { files: args.files, per_directory: args.per_directory },
    };
    let walk = Walk { mounts, local, tree, runs, remount: args.cold.remount.clone() };
    Box::new(move |stage| walk.run(stage))
}

fn tar(args: &BenchTarArgs) -> Bench {
    let BenchCommonArgs { mounts, local, runs, .. } = args.common.clone();
    let (archive, remount) = (args.archive.clone(), args.cold.remount.clone());
    let tar = Tar { mounts, local, archive, files: args.files, runs, remount };
    Box::new(move |stage| tar.run(stage))
}

fn latency(args: &BenchLatencyArgs, turns: Turns, all: &[Call]) -> Bench {
    let BenchCommonArgs { mounts, local, runs, .. } = args.common.clone();
    let calls = args.calls.clone().unwrap_or_else(|| all.to_vec());
    let latency = Latency { mounts, local, count: args.count, calls, turns, runs };
    Box::new(move |stage| latency.run(stage))
}

fn ladder(args: &BenchLadderArgs) -> Bench {
    let ladder = Ladder {
        mounts: args.mounts.clone(),
        device: args.device.clone(),
        destroy: args.destroy_data.clone(),
        local: args.local.clone(),
        layers: args.layers.clone(),
        alone: args.alone.clone(),
        size: args.size,
        runs: args.runs,
    };
    Box::new(move |stage| ladder.run(stage))
}

/// Two reports side by side.
fn compare(args: &BenchCompareArgs) -> Result<(), Failure> {
    let read = |path: &Path| {
        let unable =
            |error: &dyn std::fmt::Display| Failure::unwatched(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| unable(&error))?;
        serde_json::from_str(&text).map_err(|error| unable(&error))
    };
    let comparison = Comparison::of(&read(&args.first)?, &read(&args.second)?).map_err(Failure::unwatched)?;
    match args.json {
        true => println!("{}", comparison.to_json()),
        false => print!("{}", comparison.to_text()),
    }
    match comparison.has_worse() {
        false => Ok(()),
        true => Err(Failure::problem("some figures are worse by more than their runs differ")),
    }
}

/// A bar on one line that is written over, where somebody looks at it; nothing where nobody does.
fn progress() -> Box<dyn Fn(f64, &str)> {
    let is_watched = std::io::stderr().is_terminal();
    Box::new(move |done, what| match what {
        _ if !is_watched => {}
        "" => eprint!("\r\x1b[K"),
        what => {
            let full = (done.clamp(0.0, 1.0) * BAR_LEN as f64) as usize;
            let (full, empty) = ("#".repeat(full), "-".repeat(BAR_LEN - full));
            eprint!("\r\x1b[K[{full}{empty}] {:>3.0} %  {what}", done * 100.0);
        }
    })
}

/// Columns.
const BAR_LEN: usize = 30;
