//! `holdfast doctor`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use probe::doctor::{Doctor, Inside};
use serde_json::Value as Json;

use crate::args::DoctorArgs;
use crate::commands::bench::{failure, stage};
use crate::complaints;
use crate::failure::Failure;
use crate::nodes::Nodes;

/// Examines, prints what was found, and ends with what it comes to.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let against = args.against.as_deref().map(read).transpose()?;
    // Made before: what was measured must not be in vain.
    let mut saved = args.save.as_deref().map(create).transpose()?;
    let mounts: Vec<PathBuf> = [&args.path].into_iter().chain(&args.peer).cloned().collect();
    let mut stage = stage(&mounts)?;
    let nodes = Nodes::of(&mounts);
    let doctor = Doctor {
        path: args.path.clone(),
        peer: args.peer.clone(),
        is_passive: args.passive,
        is_cold: args.cold,
        told: complaints::of(nodes.volumes()),
        against,
    };
    let result = doctor.run(&mut stage, || inside(&nodes));
    (stage.progress)(1.0, "");
    let examination = result.map_err(|error| {
        if let Some(path) = &args.save {
            // Empty and our own; what stays is in nobody's way.
            _ = std::fs::remove_file(path);
        }
        failure(error)
    })?;
    let document = examination.to_json().to_string();
    // Shown before: where it cannot be saved it must not be in vain either.
    match args.json {
        true => println!("{document}"),
        false => print!("{}", examination.to_text()),
    }
    if let (Some(file), Some(path)) = (&mut saved, &args.save) {
        file.write_all(document.as_bytes())
            .map_err(|error| Failure::unwatched(format!("{}: {error}", path.display())))?;
    }
    match examination.exit_code() {
        0 => Ok(()),
        code => Err(Failure { message: format!("verdict: {}", examination.verdict().name()), code }),
    }
}

fn read(path: &Path) -> Result<Json, Failure> {
    let unable = |error: &dyn std::fmt::Display| Failure::unwatched(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| unable(&error))?;
    serde_json::from_str(&text).map_err(|error| unable(&error))
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create_new(path).map_err(|error| Failure::unwatched(format!("{}: {error}", path.display())))
}

/// Of all nodes together.
fn inside(nodes: &Nodes) -> Option<Inside> {
    let documents = nodes.documents().filter(|documents| !documents.is_empty())?;
    let count = |name: &str| documents.iter().filter_map(|document| document[name].as_u64()).sum();
    let waits =
        documents.iter().filter_map(|document| document["token_wait_duration_seconds"]["sum"].as_f64());
    Some(Inside {
        // Where several nodes change one directory, the master does it for them and has the others forget what they knew.
        revoked: count("tokens_revoked_total") + count("forgets_received_total"),
        waited_seconds: waits.sum(),
        dropped: count("tokens_dropped_total"),
        lost: count("mutations_lost_total"),
        lapsed: count("leases_lapsed_total"),
    })
}
