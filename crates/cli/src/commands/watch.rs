//! `holdfast watch`.

use std::io::IsTerminal;
use std::process::Command;

use probe::{Ended, Options, Output, TargetSpec};

use crate::args::WatchArgs;
use crate::failure::{Failure, with_causes};

/// Watches, or shows what was recorded.
pub fn run(args: &WatchArgs) -> Result<(), Failure> {
    let failed = |error: probe::WatchError| Failure::unwatched(with_causes(&error));
    let output = match (args.json, std::io::stdout().is_terminal()) {
        (true, _) => Output::Json,
        (false, true) => Output::Table,
        (false, false) => Output::Lines,
    };
    let ended = match &args.replay {
        Some(path) => probe::replay(path, output).map_err(failed)?,
        None => {
            let options = options(args).map_err(Failure::unwatched)?;
            let worker = worker()?;
            probe::watch(
                &options,
                args.stack.as_deref(),
                args.duration,
                output,
                args.record.as_deref(),
                worker,
            )
            .map_err(failed)?
        }
    };
    match ended {
        Ended::Well => Ok(()),
        Ended::Ill => Err(Failure::problem("not all targets were well at the end")),
    }
}

/// The sampling process.
pub fn work() -> Result<(), Failure> {
    probe::work().map_err(Failure::unwatched)
}

fn options(args: &WatchArgs) -> Result<Options, probe::OptionError> {
    let targets = args.targets.iter().map(|text| TargetSpec::parse(text)).collect::<Result<Vec<_>, _>>()?;
    // What does not fit is refused like any other size that is too large.
    let size = u32::try_from(args.size).unwrap_or(u32::MAX);
    Options::new(targets, args.op, args.interval, size, args.window, args.stack.as_deref())
}

/// This program as the sampling process.
fn worker() -> Result<Command, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::unwatched(format!("own program: {error}")))?;
    let mut command = Command::new(own);
    command.arg("watch-worker");
    Ok(command)
}
