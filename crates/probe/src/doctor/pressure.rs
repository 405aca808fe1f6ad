//! Pressure stall information: how much of the time somebody waited for CPU, I/O or memory.

use std::fs;

use crate::doctor::finding::{Finding, Layer, Severity};
use crate::doctor::ground::Device;

/// Seconds in which at least one task waited, since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pressure {
    pub cpu: f64,
    pub io: f64,
    pub memory: f64,
}

impl Pressure {
    /// None where the kernel does not tell.
    pub fn now() -> Option<Self> {
        let total = |name: &str| some(&fs::read_to_string(format!("/proc/pressure/{name}")).ok()?);
        Some(Self { cpu: total("cpu")?, io: total("io")?, memory: total("memory")? })
    }

    /// As shares of the time.
    pub fn since(self, earlier: Self, seconds: f64) -> Self {
        let share = |later: f64, earlier: f64| ((later - earlier) / seconds).clamp(0.0, 1.0);
        Self {
            cpu: share(self.cpu, earlier.cpu),
            io: share(self.io, earlier.io),
            memory: share(self.memory, earlier.memory),
        }
    }

    /// Of shares, and of a time in which nothing was measured. I/O is waited for on the whole machine: on which disks, nobody
    /// tells. Where there are none beneath the file system, it is others who wait.
    pub fn findings(self, devices: &[Device]) -> Vec<Finding> {
        let of = |layer, what: &str, share: f64, limit: f64, next: &str| Finding {
            layer,
            severity: if share >= limit { Severity::Warning } else { Severity::Info },
            what: format!("waiting for {what}"),
            seen: format!("{:.0} % of the time", share * 100.0),
            expected: format!("less than {:.0} %", limit * 100.0),
            why: format!("so much of the time somebody on the machine could have gone on but for {what}"),
            next: next.to_owned(),
        };
        let mut io = of(Layer::Storage, "I/O", self.io, IO_MAX, "see who does it: pidstat -d 1, iotop");
        if devices.is_empty() {
            io.severity = Severity::Info;
            io.why = "this file system has no disk here: it is others who wait for theirs".to_owned();
        }
        vec![
            of(Layer::Cpu, "CPU", self.cpu, CPU_MAX, "see who takes it: top, pidstat 1"),
            io,
            of(
                Layer::Cache,
                "memory",
                self.memory,
                MEMORY_MAX,
                "see who takes it: top -o RES; less is left for caches",
            ),
        ]
    }
}

/// `some avg10=0.12 avg60=0.08 avg300=0.05 total=123456`, the total in microseconds.
fn some(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total: u64 = line.split(' ').find_map(|word| word.strip_prefix("total="))?.parse().ok()?;
    Some(total as f64 / 1e6)
}

/// Above, every second runnable moment of somebody was a wait.
const CPU_MAX: f64 = 0.6;
const IO_MAX: f64 = 0.8;
/// Memory is waited for only when there is too little.
const MEMORY_MAX: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time() {
        let text = "some avg10=4.28 avg60=1.77 avg300=0.80 total=2843102502\nfull avg10=0.16 avg60=0.23 avg300=0.30 total=864796091\n";
        assert_eq!(some(text), Some(2843.102_502));
        assert_eq!((some("full total=1\n"), some("some avg10=1\n"), some("")), (None, None, None));
        let first = Pressure { cpu: 1.0, io: 2.0, memory: 3.0 };
        let later = Pressure { cpu: 1.5, io: 4.0, memory: 3.0 };
        let shares = later.since(first, 2.0);
        assert_eq!(shares, Pressure { cpu: 0.25, io: 1.0, memory: 0.0 });
        let device = Device { numbers: "8:0".to_owned(), name: "sda".to_owned() };
        let found = shares.findings(&[device]);
        assert_eq!(found.iter().filter(|found| found.severity == Severity::Warning).count(), 1);
    }

    #[test]
    fn who_has_no_disk_does_not_wait_for_one() {
        let found = Pressure { io: 1.0, ..Pressure::default() }.findings(&[]);
        assert!(found.iter().all(|found| found.severity == Severity::Info), "{found:?}");
    }
}
