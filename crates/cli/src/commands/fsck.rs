//! `holdfast fsck`.

use std::path::Path;

use check::{Counts, Fault, Repaired, Report, Severity};
use node::{DataCheck, Offline, OfflineError, Purpose};
use serde_json::{Value, json};
use volume::Volume;

use crate::args::FsckArgs;
use crate::backend::{self, Attempt, Mastery, past_election};
use crate::commands::scrub::volume_of;
use crate::failure::{Failure, with_causes};
use crate::units::show_size;

/// Checks, and repairs if told to. Exit codes are those of fsck(8).
pub fn run(args: &FsckArgs) -> Result<(), Failure> {
    let path = volume_of(&args.volume);
    let (found, repaired) = past_election(|| check(args, &path))?;
    let Repaired { left, done, refused } =
        repaired.unwrap_or_else(|| Repaired { left: found.clone(), ..Repaired::default() });
    if args.json {
        println!("{:#}", as_json(&found, &left, &done, refused.as_deref()));
    } else {
        print(args, &found, &left, &done);
        if let Some(why) = &refused {
            let what = if done.is_empty() { "nothing was repaired" } else { "no more was repaired" };
            println!("{what}: {why}");
        }
    }
    let faults = count(&left);
    match (faults, found.is_clean()) {
        (0, true) => Ok(()),
        (0, false) => Err(Failure::fsck("all faults are repaired", CORRECTED)),
        (faults, _) => Err(Failure::fsck(format!("{faults} faults are left"), UNCORRECTED)),
    }
}

/// What was found, and what was repaired if that is asked for.
fn check(args: &FsckArgs, path: &Path) -> Result<Attempt<(Report, Option<Repaired>)>, Failure> {
    let failed = |error: OfflineError| Failure::fsck(with_causes(&error), UNCHECKED);
    let data = if args.data { DataCheck::Sums } else { DataCheck::Lengths };
    let purpose = if args.repair { Purpose::Change } else { Purpose::Look };
    match Offline::open(path, purpose) {
        Ok(offline) => {
            let found = offline.check(data).map_err(failed)?;
            let repaired = args.repair.then(|| offline.repair(data)).transpose().map_err(failed)?;
            offline.close().map_err(failed)?;
            Ok(Attempt::Done((found, repaired)))
        }
        Err(error @ OfflineError::Mounted { .. }) if !args.repair => Ok(match check_mounted(path, data)? {
            Some(Attempt::Done(found)) => Attempt::Done((found, None)),
            Some(Attempt::Early(failure)) => Attempt::Early(failure),
            None => Attempt::Early(failed(error)),
        }),
        // Nothing is repaired under those who use it, and a master that is on its way out is of these.
        Err(error @ (OfflineError::Mounted { .. } | OfflineError::MemberLives { .. })) => {
            Ok(Attempt::Early(failed(error)))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Checks what a mounted volume was at one moment, which its master's node tells. `None` if no node says that it is that.
fn check_mounted(path: &Path, data: DataCheck) -> Result<Option<Attempt<Report>>, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::fsck(with_causes(error), UNCHECKED);
    let volume = Volume::open(path).map_err(|error| failed(&error))?;
    let socket = match backend::mastery(&volume) {
        Ok(Mastery::At(socket)) => socket,
        Ok(Mastery::Awaited | Mastery::Nobody) => return Ok(None),
        // It may have ended just then.
        Err(error) => return Ok(Some(Attempt::Early(failed(&error)))),
    };
    let stream = match backend::open(&volume, &socket, "snapshot") {
        Ok(stream) => stream,
        Err(error) => return Ok(Some(Attempt::Early(failed(&error)))),
    };
    let ask = |line: &str| Ok(backend::ask(&volume, &socket, line)?);
    let report = match node::check_mounted(&volume, stream, &ask, data) {
        Ok(report) => report,
        Err(error) => return Ok(Some(Attempt::Early(failed(&error)))),
    };
    eprintln!("holdfast: the volume is mounted: checked as it was at one moment");
    Ok(Some(Attempt::Done(report)))
}

fn print(args: &FsckArgs, found: &Report, left: &Report, done: &[String]) {
    let is_shown = |fault: &&Fault| args.verbose || fault.kind.severity() == Severity::Fault;
    let more_notes = if args.verbose { found.more_notes } else { 0 };
    print_faults(found.faults.iter().filter(is_shown), found.more_faults + more_notes);
    for line in done {
        println!("repaired: {line}");
    }
    let Counts { inodes, directories, names, stored_bytes, segments, data_bytes_read, .. } = left.counts;
    print!(
        "{inodes} inodes, {directories} of them directories, {names} names, {} in files, {segments} segments",
        show_size(stored_bytes)
    );
    match args.data {
        true => println!(", {} read", show_size(data_bytes_read)),
        false => println!(),
    }
}

/// A line for each.
pub fn print_faults(faults: impl Iterator<Item = impl std::fmt::Display>, more: u64) {
    for fault in faults {
        println!("{fault}");
    }
    if more > 0 {
        println!("and {more} more");
    }
}

fn count(report: &Report) -> u64 {
    let faults = report.faults.iter().filter(|fault| fault.kind.severity() == Severity::Fault);
    faults.count() as u64 + report.more_faults
}

fn as_json(found: &Report, left: &Report, done: &[String], refused: Option<&str>) -> Value {
    let mut document = node::report_json(left);
    document["found"] = node::faults_json(found).into();
    document["found_more"] = json!(found.more_faults);
    document["found_more_notes"] = json!(found.more_notes);
    document["repaired"] = json!(done);
    document["not_repaired_because"] = json!(refused);
    document["left"] = node::faults_json(left).into();
    document["left_more"] = json!(left.more_faults);
    document["left_more_notes"] = json!(left.more_notes);
    document
}

const CORRECTED: u8 = 1;
pub const UNCORRECTED: u8 = 4;
pub const UNCHECKED: u8 = 8;
