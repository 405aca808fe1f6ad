//! Limits that control groups put on a device.

use std::fs;
use std::path::PathBuf;

use crate::doctor::finding::{Finding, Layer, Severity};
use crate::doctor::ground::Device;
use crate::doctor::processes::group_dirs;

/// All that bind a process on these devices.
pub(crate) fn findings(pid: u32, whose: &str, devices: &[Device]) -> Vec<Finding> {
    let mut found = Vec::new();
    let dirs = group_dirs(pid, "blkio").into_iter().chain(group_dirs(pid, "io"));
    let dirs: std::collections::BTreeSet<PathBuf> = dirs.collect();
    for dir in dirs {
        for (file, what, unit) in FILES {
            let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
            let limits =
                devices.iter().filter_map(|device| Some((device, of_device(&text, &device.numbers)?)));
            found.extend(limits.map(|(device, limit)| finding(whose, device, limit, what, unit)));
        }
        let text = fs::read_to_string(dir.join("io.max")).unwrap_or_default();
        for device in devices {
            for (word, what, unit) in WORDS {
                if let Some(limit) = in_second(&text, &device.numbers, word) {
                    found.push(finding(whose, device, limit, what, unit));
                }
            }
        }
    }
    found
}

/// `MAJOR:MINOR LIMIT`.
fn of_device(text: &str, numbers: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(numbers)?.strip_prefix(' ')?.trim().parse().ok())
}

/// `MAJOR:MINOR rbps=LIMIT wbps=LIMIT riops=max wiops=max`.
fn in_second(text: &str, numbers: &str, word: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(numbers)?.strip_prefix(' '))?;
    line.split(' ').find_map(|part| part.strip_prefix(word)?.strip_prefix('=')?.parse().ok())
}

fn finding(whose: &str, device: &Device, limit: u64, what: &str, unit: Unit) -> Finding {
    let (seen, is_low) = match unit {
        Unit::Bytes => (format!("{:.1} MB/s", limit as f64 / 1e6), limit < BYTES_LOW),
        Unit::Ios => (format!("{limit} I/Os per second"), limit < IOS_LOW),
    };
    Finding {
        layer: Layer::Storage,
        severity: if is_low { Severity::Warning } else { Severity::Info },
        what: format!("limit of {whose} on {what} of {}", device.name),
        seen,
        expected: format!("none, or {} MB/s and {IOS_LOW} I/Os per second at least", BYTES_LOW / 1_000_000),
        why: "a control group keeps what is beyond waiting, however idle the disk is".to_owned(),
        next: "see blkio.throttle.* or io.max of the control group in /proc/PID/cgroup".to_owned(),
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Ios,
}

const FILES: [(&str, &str, Unit); 4] = [
    ("blkio.throttle.read_bps_device", "reads", Unit::Bytes),
    ("blkio.throttle.write_bps_device", "writes", Unit::Bytes),
    ("blkio.throttle.read_iops_device", "reads", Unit::Ios),
    ("blkio.throttle.write_iops_device", "writes", Unit::Ios),
];
const WORDS: [(&str, &str, Unit); 4] = [
    ("rbps", "reads", Unit::Bytes),
    ("wbps", "writes", Unit::Bytes),
    ("riops", "reads", Unit::Ios),
    ("wiops", "writes", Unit::Ios),
];
/// What any disk of the last decades does.
const BYTES_LOW: u64 = 30_000_000;
const IOS_LOW: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions_are_read() {
        let text = "8:0 1048576\n7:12 4096\n";
        assert_eq!(
            (of_device(text, "7:12"), of_device(text, "7:1"), of_device("", "8:0")),
            (Some(4096), None, None)
        );
        let text = "8:16 rbps=2097152 wbps=max riops=max wiops=120\n";
        assert_eq!(in_second(text, "8:16", "rbps"), Some(2_097_152));
        assert_eq!((in_second(text, "8:16", "wbps"), in_second(text, "8:1", "rbps")), (None, None));
        assert_eq!(in_second(text, "8:16", "wiops"), Some(120));
        let device = Device { numbers: "8:16".to_owned(), name: "sdb".to_owned() };
        assert_eq!(finding("x", &device, 1 << 20, "reads", Unit::Bytes).severity, Severity::Warning);
        assert_eq!(finding("x", &device, 1 << 30, "reads", Unit::Bytes).severity, Severity::Info);
    }
}
