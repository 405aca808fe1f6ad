//! `holdfast fsck`.

use check::{Counts, Fault, Report, Severity};
use node::{DataCheck, Offline};
use serde_json::{Value, json};

use crate::args::FsckArgs;
use crate::failure::{Failure, with_causes};
use crate::units::show_size;

/// Checks, and repairs if told to. Exit codes are those of fsck(8).
pub fn run(args: &FsckArgs) -> Result<(), Failure> {
    let failed = |error: node::OfflineError| Failure::fsck(with_causes(&error), UNCHECKED);
    let offline = Offline::open(&args.volume).map_err(failed)?;
    let data = if args.data { DataCheck::Sums } else { DataCheck::Lengths };
    let found = offline.check(data).map_err(failed)?;
    let (left, done) = match args.repair {
        true => {
            let repaired = offline.repair(data).map_err(failed)?;
            (repaired.left, repaired.done)
        }
        false => (found.clone(), Vec::new()),
    };
    if args.json {
        println!("{:#}", as_json(&found, &left, &done));
    } else {
        print(args, &found, &left, &done);
    }
    let faults = count(&left);
    match (faults, found.is_clean()) {
        (0, true) => Ok(()),
        (0, false) => Err(Failure::fsck("all faults are repaired", CORRECTED)),
        (faults, _) => Err(Failure::fsck(format!("{faults} faults are left"), UNCORRECTED)),
    }
}

fn print(args: &FsckArgs, found: &Report, left: &Report, done: &[String]) {
    let is_shown = |fault: &&Fault| args.verbose || fault.kind.severity() == Severity::Fault;
    print_faults(found.faults.iter().filter(is_shown), found.more);
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
    faults.count() as u64 + report.more
}

fn as_json(found: &Report, left: &Report, done: &[String]) -> Value {
    let mut document = node::report_json(left);
    document["found"] = node::faults_json(found).into();
    document["found_more"] = json!(found.more);
    document["repaired"] = json!(done);
    document["left"] = node::faults_json(left).into();
    document["left_more"] = json!(left.more);
    document
}

const CORRECTED: u8 = 1;
pub const UNCORRECTED: u8 = 4;
pub const UNCHECKED: u8 = 8;
