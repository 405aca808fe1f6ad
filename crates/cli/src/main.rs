//! The command `holdfast`.
//!
//! Parses, calls, prints. Under the names `mount.holdfast`, `mount.fuse.holdfast`, `umount.holdfast` and
//! `umount.fuse.holdfast` it is the helper that mount(8) and umount(8) run.

mod args;
mod backend;
mod commands;
mod complaints;
mod failure;
mod helper;
mod launch;
mod logging;
mod nodes;
mod options;
mod output;
mod profile;
mod units;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let name = argv.first().and_then(|arg| Path::new(arg).file_name()).and_then(|name| name.to_str());
    let result = match name {
        Some("mount.holdfast" | "mount.fuse.holdfast") => helper::mount(&argv),
        Some("umount.holdfast" | "umount.fuse.holdfast") => helper::umount(&argv),
        Some(_) | None => run(&argv),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A terminal that was hung up takes nothing.
            _ = writeln!(std::io::stderr(), "{}: {failure}", name.unwrap_or("holdfast"));
            ExitCode::from(failure.code)
        }
    }
}

fn run(argv: &[OsString]) -> Result<(), Failure> {
    let args = match Args::try_parse_from(argv) {
        Ok(args) => args,
        Err(error) => {
            // Help and version are errors to the parser; printing can only fail with the terminal gone.
            let _ = error.print();
            let code = if error.use_stderr() { usage_code(argv) } else { 0 };
            std::process::exit(code);
        }
    };
    let is_apart = matches!(
        args.command,
        Command::Mount(_) | Command::Guard(_) | Command::WatchWorker | Command::BenchWorker
    );
    if !is_apart {
        end_with_reader(unable_code(&args.command));
    }
    match args.command {
        Command::Format(args) => commands::format::run(&args),
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::umount::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Stat(args) => commands::stat::run(&args),
        Command::Set(args) => commands::set::run(&args),
        Command::Fsck(args) => commands::fsck::run(&args),
        Command::Scrub(args) => commands::scrub::run(&args),
        Command::Quota(args) => commands::quota::run(&args),
        Command::Dump(args) => commands::dump::dump(&args),
        Command::Load(args) => commands::dump::load(&args),
        Command::Install(args) => commands::install::run(&args),
        Command::Man(args) => commands::manual::man(&args),
        Command::Completions(args) => commands::manual::completions(&args),
        Command::Watch(args) => commands::watch::run(&args),
        Command::WatchWorker => commands::watch::work(),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::BenchWorker => commands::bench::work(),
        Command::AskMount(args) => commands::mount::ask(&args.mountpoint),
        Command::Guard(_) => backend::guard(),
    }
}

/// Whoever reads what is printed may have seen enough (`holdfast fsck ./vol | head`): then the command ends as one that SIGPIPE kills. Where it cannot be
/// printed for another reason (a full disk), nobody is told what was found out: the command could not do it.
fn end_with_reader(unable_code: i32) {
    let other = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>();
        match text.and_then(|text| text.strip_prefix("failed printing to stdout: ")) {
            Some(why) if why.starts_with("Broken pipe") => output::end(),
            Some(why) => {
                _ = writeln!(std::io::stderr(), "holdfast: standard output: {why}");
                std::process::exit(unable_code);
            }
            None => other(panic),
        }
    }));
}

/// fsck and scrub answer that they could not with 8, plugins of Nagios, benchmarks and the doctor with 3, our other commands with 2.
fn unable_code(command: &Command) -> i32 {
    match command {
        Command::Fsck(_) | Command::Scrub(_) => 8,
        Command::Watch(_) | Command::Bench(_) | Command::Doctor(_) => 3,
        _ => 2,
    }
}

/// mount(8) and umount(8) answer wrong usage with 1, fsck(8) and our scrub with 16, plugins of Nagios, benchmarks and the doctor with 3, our other commands with 2.
fn usage_code(argv: &[OsString]) -> i32 {
    match argv.get(1).and_then(|arg| arg.to_str()) {
        Some("mount" | "umount") => 1,
        Some("fsck" | "scrub") => 16,
        Some("watch" | "bench" | "doctor") => 3,
        Some(_) | None => 2,
    }
}
