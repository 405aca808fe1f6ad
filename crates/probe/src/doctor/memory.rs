//! Memory that caches could have, and what keeps them from it.

use std::fs;

use crate::doctor::finding::{Finding, Layer, Severity};
use crate::doctor::ground::Device;
use crate::doctor::processes::group_dirs;

/// What there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    total: u64,
    available: u64,
    dirty: u64,
    writeback: u64,
    /// Inodes and dentries, mostly.
    reclaimable: u64,
}

/// A limit on what this process may have, caches for it included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub used: u64,
    pub limit: u64,
    /// How often it was reached.
    pub reached: u64,
}

impl Memory {
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    /// `/proc/meminfo`: `NAME: NUMBER kB`.
    fn parse(text: &str) -> Option<Self> {
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
        };
        Some(Self {
            total: of("MemTotal")?,
            available: of("MemAvailable")?,
            dirty: of("Dirty")?,
            writeback: of("Writeback")?,
            reclaimable: of("SReclaimable")?,
        })
    }

    /// `devices`: beneath the file system.
    pub fn findings(self, devices: &[Device]) -> Vec<Finding> {
        let limit = dirty_limit(self.available, &setting("dirty_bytes"), &setting("dirty_ratio"));
        vec![self.room(), self.unwritten(limit, devices), cache_pressure(&setting("vfs_cache_pressure"))]
    }

    fn room(self) -> Finding {
        let share = self.available as f64 / self.total.max(1) as f64;
        Finding {
            layer: Layer::Cache,
            severity: if share < AVAILABLE_MIN { Severity::Warning } else { Severity::Info },
            what: "memory for caches".to_owned(),
            seen: format!(
                "{} of {} MiB could be had, {} MiB hold inodes and dentries",
                self.available >> 20,
                self.total >> 20,
                self.reclaimable >> 20
            ),
            expected: format!("more than {:.0} %", AVAILABLE_MIN * 100.0),
            why: "what does not fit has to be read again from below".to_owned(),
            next: "see who takes it: top -o RES".to_owned(),
        }
    }

    /// `limit`: bytes that may wait to be stored. They wait for all disks and servers of the machine: where the file system has
    /// no disk, the storage is not to blame for them.
    fn unwritten(self, limit: u64, devices: &[Device]) -> Finding {
        let share = (self.dirty + self.writeback) as f64 / limit.max(1) as f64;
        let is_small = limit < DIRTY_LEAST;
        let is_full = share >= DIRTY_MAX && !devices.is_empty();
        Finding {
            layer: if is_small { Layer::Configuration } else { Layer::Storage },
            severity: if is_full || is_small { Severity::Warning } else { Severity::Info },
            what: "written and not stored".to_owned(),
            seen: format!(
                "{} MiB, {} of them on their way, of at most {} MiB (vm.dirty_ratio, vm.dirty_bytes)",
                (self.dirty + self.writeback) >> 20,
                self.writeback >> 20,
                limit >> 20
            ),
            expected: format!("less than {:.0} % of what may be", DIRTY_MAX * 100.0),
            why: "at the limit each write waits until as much was stored".to_owned(),
            next: "sysctl vm.dirty_bytes vm.dirty_background_bytes; grep -E 'Dirty|Writeback' /proc/meminfo"
                .to_owned(),
        }
    }
}

fn dirty_limit(available: u64, bytes: &str, ratio: &str) -> u64 {
    match (bytes.parse::<u64>(), ratio.parse::<u64>()) {
        (Ok(bytes), _) if bytes > 0 => bytes,
        (_, Ok(ratio)) => available / 100 * ratio.min(100),
        _ => available,
    }
}

fn cache_pressure(text: &str) -> Finding {
    let value: u64 = text.parse().unwrap_or(100);
    Finding {
        layer: Layer::Configuration,
        severity: if value > PRESSURE_MAX { Severity::Warning } else { Severity::Info },
        what: "vm.vfs_cache_pressure".to_owned(),
        seen: value.to_string(),
        expected: format!("100, and not above {PRESSURE_MAX}"),
        why: "the larger, the sooner inodes and dentries are thrown away rather than file pages".to_owned(),
        next: "sysctl vm.vfs_cache_pressure=100".to_owned(),
    }
}

fn setting(name: &str) -> String {
    fs::read_to_string(format!("/proc/sys/vm/{name}")).unwrap_or_default().trim().to_owned()
}

impl Group {
    /// The tightest one that a process is in.
    pub fn of(pid: u32) -> Option<Self> {
        let read = |dir: std::path::PathBuf| {
            let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
            let of = |first: &str, second: &str| number(first).or_else(|| number(second));
            let limit = of("memory.limit_in_bytes", "memory.max").filter(|limit| *limit < UNLIMITED)?;
            let events = fs::read_to_string(dir.join("memory.events")).unwrap_or_default();
            let reached = number("memory.failcnt")
                .or_else(|| events.lines().find_map(|line| line.strip_prefix("max ")?.trim().parse().ok()));
            let used = of("memory.usage_in_bytes", "memory.current")?;
            Some(Self { used, limit, reached: reached.unwrap_or(0) })
        };
        group_dirs(pid, "memory").into_iter().filter_map(read).min_by_key(|group| group.limit)
    }

    /// `times`: how often the limit was reached meanwhile. Caches fill every group: by itself that is nothing bad.
    pub fn finding(self, times: u64, whose: &str) -> Finding {
        Finding {
            layer: Layer::Cache,
            severity: Severity::Info,
            what: format!("memory that {whose} may have"),
            seen: format!("{} of {} MiB, reached {times} times meanwhile", self.used >> 20, self.limit >> 20),
            expected: "room for what is looked at again and again".to_owned(),
            why: "the limit of a control group counts caches too: there each page or inode that comes in throws out another".to_owned(),
            next: "raise memory.max (or memory.limit_in_bytes) of its control group".to_owned(),
        }
    }
}

/// Less is left to caches than programs take in a bad moment.
const AVAILABLE_MIN: f64 = 0.05;
/// Beyond, writers are made to wait.
const DIRTY_MAX: f64 = 0.8;
/// A disk that stores 100 MB/s has less than a second's work at once.
const DIRTY_LEAST: u64 = 64 << 20;
const PRESSURE_MAX: u64 = 500;
/// What control groups without a limit say: all bits of a signed number, in whole pages.
const UNLIMITED: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_and_many_dirty_pages_are_remarked_on() {
        let text = "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   1000000 kB\nDirty:   0 kB\nWriteback:  0 kB\nSReclaimable: 2048 kB\n";
        let memory = Memory::parse(text).unwrap();
        assert_eq!(memory.room().severity, Severity::Warning);
        assert_eq!(Memory { available: memory.total / 2, ..memory }.room().severity, Severity::Info);
        assert!(Memory::parse("MemTotal: 1 kB\n").is_none() && Memory::now().is_some());
        assert_eq!(
            (dirty_limit(1000, "0", "20"), dirty_limit(1000, "64", "0"), dirty_limit(7, "", "")),
            (200, 64, 7)
        );
        assert_eq!(cache_pressure("10000").severity, Severity::Warning);
        assert_eq!(
            (cache_pressure("100").severity, cache_pressure("").severity),
            (Severity::Info, Severity::Info)
        );
    }

    #[test]
    fn what_is_not_stored_is_blamed_on_the_storage_where_there_is_some() {
        let (full, limit) = (Memory { dirty: 1 << 30, ..Memory::default() }, 1 << 30);
        let device = Device { numbers: "8:0".to_owned(), name: "sda".to_owned() };
        let of = |limit: u64, devices: &[Device]| {
            let found = full.unwritten(limit, devices);
            (found.layer, found.severity)
        };
        assert_eq!(of(limit, &[device]), (Layer::Storage, Severity::Warning));
        assert_eq!(of(limit, &[]), (Layer::Storage, Severity::Info));
        assert_eq!(of(1 << 20, &[]), (Layer::Configuration, Severity::Warning), "whoever writes waits");
    }

    #[test]
    fn a_limit_of_memory_is_told() {
        let group = Group { used: 15 << 20, limit: 16 << 20, reached: 7 };
        let found = group.finding(5000, "this program");
        assert!(found.seen.starts_with("15 of 16 MiB, reached 5000 times"), "{}", found.seen);
    }
}
