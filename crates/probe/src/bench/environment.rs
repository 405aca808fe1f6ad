//! What a figure depends on: the machine, the file system and what it stands on, and what else went on.

use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde_json::{Value as Json, json};

use crate::beneath::Place;
use crate::mounts::{self, Mount};

/// A file system as it is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub kind: String,
    pub source: String,
    pub options: String,
    /// Devices and files that it stands on, as far as the kernel tells.
    pub beneath: Vec<String>,
}

impl FileSystem {
    /// Of the mount that `path` leads to.
    pub fn of(path: &Path) -> Self {
        let flags = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let table = mounts::table();
        let mount = rustix::fs::statx(CWD, path, AtFlags::empty(), flags).ok().and_then(|found| {
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let number = (found.stx_dev_major, found.stx_dev_minor);
            mounts::find(&table, mounts::mount_id(&found), &path, number)
        });
        let beneath = Place::of(path).beneath.iter().map(|name| device_name(name)).collect();
        Self { beneath, ..mount.as_ref().map(Self::of_mount).unwrap_or_default() }
    }

    pub fn of_mount(mount: &Mount<'_>) -> Self {
        Self {
            kind: mount.kind.to_owned(),
            source: mount.source.to_owned(),
            options: format!("{};{}", mount.options, mount.common),
            beneath: Vec::new(),
        }
    }

    pub fn to_json(&self) -> Json {
        json!({ "type": self.kind, "source": self.source, "options": self.options, "beneath": self.beneath })
    }
}

/// `sda1 (8:1)` for `block 8:1`.
fn device_name(name: &str) -> String {
    let Some(numbers) = name.strip_prefix("block ") else { return name.to_owned() };
    let told = fs::read_to_string(format!("/sys/dev/block/{numbers}/uevent")).unwrap_or_default();
    match told.lines().find_map(|line| line.strip_prefix("DEVNAME=")) {
        Some(device) => format!("{device} ({numbers})"),
        None => name.to_owned(),
    }
}

/// The machine, when the benchmark began.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub kernel: String,
    pub cores: usize,
    pub memory_bytes: u64,
    /// Processes that ran or wanted to, in the last minute.
    pub load: f64,
}

impl Machine {
    pub fn look() -> Self {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = |line: &str| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        };
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            kernel,
            cores,
            memory_bytes: memory.lines().find_map(kib).unwrap_or(0) * 1024,
            load: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }

    /// Whether others use so much of it that figures tell of them.
    pub fn is_busy(&self) -> bool {
        self.load > self.cores as f64 * LOAD_MAX
    }

    pub fn to_json(&self) -> Json {
        json!({
            "kernel": self.kernel,
            "cores": self.cores,
            "memory_bytes": self.memory_bytes,
            "load": self.load,
        })
    }
}

/// CPU time of the whole machine since it started: everybody's own, and the kernel's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    pub user_seconds: f64,
    pub system_seconds: f64,
}

impl Cpu {
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(&text).unwrap_or_default()
    }

    /// proc(5): `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ ...`, in ticks.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, ..] = ticks[..] else { return None };
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            user_seconds: (user + nice) / per_second,
            system_seconds: (system + irq + softirq) / per_second,
        })
    }

    pub fn since(self, earlier: Self) -> Self {
        Self {
            user_seconds: (self.user_seconds - earlier.user_seconds).max(0.0),
            system_seconds: (self.system_seconds - earlier.system_seconds).max(0.0),
        }
    }
}

/// Has what was done before written to the disks, so that it is not paid for by what is measured next.
pub(crate) fn settle<'a>(dirs: impl IntoIterator<Item = &'a Path>) {
    for dir in dirs {
        // sync(2) does not reach what a file system in user space has put off; fsync(2) of a directory does, where it is known.
        if let Ok(dir) = fs::File::open(dir) {
            _ = dir.sync_all();
        }
    }
    rustix::fs::sync();
}

/// Empties the kernel's caches of pages, names and inodes. False: only root may.
pub(crate) fn drop_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// A machine with two cores is busy at a load of 0.5.
const LOAD_MAX: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_as_its_mount_tells() {
        let table = "31 1 0:30 /sub /data rw,noatime - btrfs /dev/mapper/vg-lv rw,space_cache\n";
        let mount = mounts::find(table, Some(31), Path::new("/"), (0, 0)).unwrap();
        let found = FileSystem::of_mount(&mount);
        assert_eq!((&*found.kind, &*found.source), ("btrfs", "/dev/mapper/vg-lv"));
        assert_eq!(found.options, "rw,noatime;rw,space_cache");
        assert_eq!(FileSystem::of(Path::new("/proc")).kind, "proc");
    }

    #[test]
    fn cpu_time_rises() {
        let first = Cpu::now();
        let Cpu { user_seconds, system_seconds } = Cpu::now().since(first);
        assert!(first.user_seconds > 0.0 && user_seconds >= 0.0 && system_seconds >= 0.0);
        assert!(Cpu::parse("cpu 1 2\n").is_none());
    }

    #[test]
    fn the_machine_has_cores_and_memory() {
        let machine = Machine::look();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty());
    }
}
