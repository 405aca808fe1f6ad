//! `holdfast scrub`.

use std::path::{Path, PathBuf};

use node::{Offline, OfflineError, Purpose};
use serde_json::Value as Json;
use volume::{Volume, sources};

use crate::args::ScrubArgs;
use crate::backend::{self, Attempt, Mastery, past_election};
use crate::commands::fsck::{UNCHECKED, UNCORRECTED, print_faults};
use crate::failure::{Failure, with_causes};
use crate::units::show_size;

/// Reads everything, of an unmounted volume itself, else by its master's node. Exit codes are those of fsck(8).
pub fn run(args: &ScrubArgs) -> Result<(), Failure> {
    let path = volume_of(&args.volume);
    let rate = args.rate.map(|rate| (rate * 1e6) as u64);
    let document = past_election(|| scrub(&path, rate))?;
    if args.json {
        println!("{document:#}");
    } else {
        print(args, &document);
    }
    let faults = document["found"].as_array().into_iter().flatten().filter(|fault| fault["is_fault"] == true);
    match faults.count() as u64 + document["found_more"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        count => Err(Failure::fsck(format!("{count} faults"), UNCORRECTED)),
    }
}

/// What was found.
fn scrub(path: &Path, rate: Option<u64>) -> Result<Attempt<Json>, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::fsck(with_causes(error), UNCHECKED);
    match Offline::open(path, Purpose::Look) {
        Ok(offline) => {
            let scrubbed = offline.scrub(rate).map_err(|error| failed(&error))?;
            offline.close().map_err(|error| failed(&error))?;
            Ok(Attempt::Done(node::report_json(&scrubbed.report)))
        }
        Err(OfflineError::Mounted { .. }) => {
            let volume = Volume::open(path).map_err(|error| failed(&error))?;
            ask_master(&volume, rate.unwrap_or(RATE_MOUNTED))
        }
        Err(error @ OfflineError::MemberLives { .. }) => Ok(Attempt::Early(failed(&error))),
        Err(error) => Err(failed(&error)),
    }
}

/// The volume of a mount point, or what was given.
pub fn volume_of(given: &Path) -> PathBuf {
    let mounted = sources::find(given).ok().flatten().filter(sources::MountEntry::is_holdfast);
    mounted.map_or_else(|| given.to_owned(), |mount| mount.source)
}

/// Has the master's node scrub, at most `rate` bytes a second.
fn ask_master(volume: &Volume, rate: u64) -> Result<Attempt<Json>, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::fsck(with_causes(error), UNCHECKED);
    let socket = match backend::mastery(volume) {
        Ok(Mastery::At(socket)) => socket,
        Ok(Mastery::Awaited | Mastery::Nobody) => {
            let none = "the volume is in use, and no node says that it is its master";
            return Ok(Attempt::Early(Failure::fsck(none, UNCHECKED)));
        }
        // It may have ended just then.
        Err(error) => return Ok(Attempt::Early(failed(&error))),
    };
    Ok(match backend::ask(volume, &socket, &format!("scrub {rate}")) {
        Err(error) => Attempt::Early(failed(&error)),
        Ok(found) => match found["error"].as_str() {
            Some(error) => Attempt::Early(Failure::fsck(error, UNCHECKED)),
            None => Attempt::Done(found),
        },
    })
}

fn print(args: &ScrubArgs, document: &Json) {
    let faults: Vec<&Json> = document["found"].as_array().into_iter().flatten().collect();
    let shown = faults.into_iter().filter(|fault| args.verbose || fault["is_fault"] == true);
    print_faults(
        shown.filter_map(|fault| fault["text"].as_str()),
        document["found_more"].as_u64().unwrap_or(0),
    );
    let number = |key: &str| document[key].as_u64().unwrap_or(0);
    println!(
        "{} records, {} segments, {} of files read",
        number("keys"),
        number("segments"),
        show_size(number("data_bytes_read"))
    );
}

/// Where others work meanwhile and no rate is given.
const RATE_MOUNTED: u64 = 50_000_000;
