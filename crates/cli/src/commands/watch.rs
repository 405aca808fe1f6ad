//! `holdfast watch`.

use std::io::IsTerminal;
use std::process::Command;
use std::time::Duration;

use probe::{Ended, Options, Output, Settings, TargetSpec, Thresholds};

use crate::args::WatchArgs;
use crate::failure::{Failure, with_causes};

/// Watches, checks, or shows what was recorded.
pub fn run(args: &WatchArgs) -> Result<(), Failure> {
    if args.check {
        return check(args);
    }
    let failed = |error: probe::WatchError| Failure::unwatched(with_causes(&error));
    let output = match (args.json, std::io::stdout().is_terminal()) {
        (true, _) => Output::Json,
        (false, true) => Output::Table,
        (false, false) => Output::Lines,
    };
    let ended = match &args.replay {
        Some(path) => probe::replay(path, output, args.plot.as_deref()).map_err(failed)?,
        None => {
            let options = options(args, INTERVAL).map_err(Failure::unwatched)?;
            probe::watch(&options, &settings(args, output), worker()?).map_err(failed)?
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

/// Ends with the plugin's exit code. A plugin's message goes to standard output, whatever it is.
fn check(args: &WatchArgs) -> Result<(), Failure> {
    let thresholds = Thresholds { figure: args.figure, warning: args.warning, critical: args.critical };
    let answer = match (&args.socket, args.targets.is_empty()) {
        (Some(socket), true) => probe::check_all(socket, &thresholds).map_err(|error| with_causes(&error)),
        (None, true) => Err("a target or --socket is needed to check".to_owned()),
        (_, false) => check_targets(args, &thresholds),
    };
    let (code, text) = match answer {
        Ok(answer) => (answer.status as i32, answer.text),
        Err(error) => (probe::Status::Unknown as i32, format!("WATCH UNKNOWN - {error}")),
    };
    println!("{text}");
    std::process::exit(code);
}

fn check_targets(args: &WatchArgs, thresholds: &Thresholds) -> Result<probe::Answer, String> {
    let options = options(args, CHECK_INTERVAL).map_err(|error| error.to_string())?;
    let mut settings = settings(args, Output::Nothing);
    settings.duration = Some(args.duration.unwrap_or(CHECK_DURATION));
    let worker = worker().map_err(|failure| failure.to_string())?;
    probe::check(&options, &settings, thresholds, worker).map_err(|error| with_causes(&error))
}

fn options(args: &WatchArgs, interval: Duration) -> Result<Options, probe::OptionError> {
    let targets = args.targets.iter().map(|text| TargetSpec::parse(text)).collect::<Result<Vec<_>, _>>()?;
    // What does not fit is refused like any other size that is too large.
    let size = u32::try_from(args.size).unwrap_or(u32::MAX);
    let interval = args.interval.unwrap_or(interval);
    Options::new(targets, args.op, interval, size, args.window, args.stack.as_deref())
}

fn settings(args: &WatchArgs, output: Output) -> Settings {
    Settings {
        output,
        stack: args.stack.clone(),
        duration: args.duration,
        record: args.record.clone(),
        plot: args.plot.clone(),
        listen: args.listen.clone(),
        socket: args.socket.clone(),
    }
}

/// This program as the sampling process.
fn worker() -> Result<Command, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::unwatched(format!("own program: {error}")))?;
    let mut command = Command::new(own);
    command.arg("watch-worker");
    Ok(command)
}

/// Seldom enough for any disk.
const INTERVAL: Duration = Duration::from_secs(3);
/// A check that samples itself has little time: Nagios gives a plugin 10 s by default.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
const CHECK_DURATION: Duration = Duration::from_secs(5);
