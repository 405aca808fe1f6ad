//! Dumps, loaded into an empty engine.

use std::sync::Arc;

use check::{DumpError, Options};
use kv::{Claim, Engine, MemDisk};
use testkit::fuzz::{Memory, Target, outcome};

use crate::targets::volume::{VOLUME, engine_of};
use crate::traffic::traffic;

/// The text of a dump.
pub struct Dumps;

impl Target for Dumps {
    fn name(&self) -> &'static str {
        "dump"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let (_, engine) = engine_of(&traffic().records);
        let all = dump(&*engine);
        let (_, empty) = engine_of(&[]);
        // Some lines of each part of it.
        let lines: Vec<&[u8]> = all.split_inclusive(|byte| *byte == b'\n').collect();
        let mut seeds = vec![dump(&*empty)];
        for first in (2..lines.len().saturating_sub(1)).step_by(lines.len() / 12 + 1) {
            let mut some = lines[..2].concat();
            some.extend(lines[first..(first + 12).min(lines.len() - 1)].concat());
            some.extend(b"end 0 00000000\n");
            repair(&mut some);
            seeds.push(some);
        }
        seeds.push(all);
        seeds
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        repair(bytes);
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        let engine: Arc<dyn Engine> = Arc::new(MemDisk::new().open(Claim::new(1)).expect("a new disk"));
        let count = match check::load(&*engine, VOLUME, &mut &bytes[..]) {
            Ok(count) => count,
            Err(DumpError::Text { line, what }) => return outcome(&format!("line {}: {what}", line.min(3))),
            Err(error) => return outcome(&error.to_string()),
        };
        let again = dump(&*engine);
        let other: Arc<dyn Engine> = Arc::new(MemDisk::new().open(Claim::new(1)).expect("a new disk"));
        let loaded = check::load(&*other, VOLUME, &mut &again[..]).expect("what was dumped can be loaded");
        assert_eq!(again, dump(&*other), "what was loaded dumps as something else");
        assert!(loaded <= count);
        let options = Options { cookie_key: None, store: None, reads_data: false };
        let report = check::check(&*engine, &options).expect("an engine in memory can be read");
        format!("loaded, {} faults", report.faults.len().min(8))
    }

    fn memory(&self) -> Memory {
        Memory { per_byte: 1024, base: 4 << 20 }
    }

    fn len_max(&self) -> usize {
        1 << 18
    }
}

fn dump(engine: &dyn Engine) -> Vec<u8> {
    let mut text = Vec::new();
    check::dump(engine, VOLUME, &mut text).expect("whole records can be dumped");
    text
}

/// Counts the lines and sums them.
fn repair(bytes: &mut Vec<u8>) {
    let Some(end) = bytes.windows(5).rposition(|bytes| bytes == b"\nend ") else { return };
    bytes.truncate(end + 1);
    let count = bytes.iter().filter(|byte| **byte == b'\n').count().saturating_sub(2);
    let crc = crc32c::crc32c(bytes);
    bytes.extend(format!("end {count} {crc:08x}\n").bytes());
}
