//! A scrub of a volume that is in use, by its master's node, and reports as JSON.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use check::{Counts, Fault, Neighbours, Report, Severity};
use kv::Engine;
use serde_json::{Value as Json, json};

use crate::link::describe;
use crate::pacer::Pacer;
use crate::service::Service;
use crate::shell::Shell;

/// Scrubs at most `bytes_per_second` and behind all others. White space goes to the asker now and then; the scrub ends when
/// he has gone, and when the node ends.
pub(crate) fn scrub(shell: &Shell, stream: &mut UnixStream, bytes_per_second: u64) -> io::Result<Json> {
    let Some((service, engine)) = engine_of(shell) else { return Ok(no_master()) };
    yield_to_others();
    let mut pacer = Pacer::new(Some(bytes_per_second));
    let (mut told, mut broken) = (Instant::now(), None);
    let mut goes_on = || {
        if told.elapsed() >= PAUSE_HOPE && broken.is_none() {
            told = Instant::now();
            broken = stream.write_all(b" ").err();
        }
        broken.is_none() && !shell.is_stopping() && !service.is_stopping()
    };
    let pace = &mut |bytes| {
        pacer.wait_after(bytes, |time| {
            shell.pause(time.min(PAUSE_LOOK));
            goes_on()
        });
        goes_on()
    };
    let scrubbed = check::scrub(&*engine, &*shell.store, Neighbours::Live, pace);
    if let Some(error) = broken {
        return Err(error);
    }
    Ok(match scrubbed {
        Ok(scrubbed) if scrubbed.is_complete => report_json(&scrubbed.report),
        Ok(_) => json!({ "error": "the node is no longer master" }),
        Err(error) => json!({ "error": describe(&error) }),
    })
}

/// The engine of a master, and what says when to give it up.
pub(crate) fn engine_of(shell: &Shell) -> Option<(Arc<Service>, Arc<dyn Engine>)> {
    let service = shell.service()?;
    let engine = service.engine()?;
    Some((service, engine))
}

pub(crate) fn no_master() -> Json {
    json!({ "error": "this node is not the master" })
}

/// This thread, which ends with the answer, works behind all others. Without the right it goes on as it is.
pub(crate) fn yield_to_others() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// A report with units in the names of its keys.
pub fn report_json(report: &Report) -> Json {
    let Counts {
        keys,
        inodes,
        directories,
        names,
        orphans,
        extents,
        stored_bytes,
        segments,
        members,
        data_bytes_read,
    } = report.counts;
    json!({
        "clean": report.is_clean(),
        "found": faults_json(report),
        "found_more": report.more_faults,
        "found_more_notes": report.more_notes,
        "keys": keys,
        "inodes": inodes,
        "directories": directories,
        "names": names,
        "orphans": orphans,
        "extents": extents,
        "stored_bytes": stored_bytes,
        "segments": segments,
        "members": members,
        "data_bytes_read": data_bytes_read,
    })
}

/// What was found.
pub fn faults_json(report: &Report) -> Vec<Json> {
    let ranges = |fault: &Fault| -> Vec<Json> {
        fault.ranges.iter().map(|range| json!({ "start": range.start, "end": range.end })).collect()
    };
    let fault = |fault: &Fault| {
        json!({
            "kind": fault.kind.name(),
            "is_fault": fault.kind.severity() == Severity::Fault,
            "key": fault.key.to_string(),
            "ino": fault.ino.map(|ino| ino.0),
            "path": fault.path,
            "ranges": ranges(fault),
            "what": fault.what,
            "text": fault.to_string(),
        })
    };
    report.faults.iter().map(fault).collect()
}

/// The lowest priority.
const NICE: i32 = 19;
/// Between two looks whether it is to end.
const PAUSE_LOOK: Duration = Duration::from_millis(50);
/// Between two signs of life.
const PAUSE_HOPE: Duration = Duration::from_secs(1);
