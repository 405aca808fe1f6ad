//! Whether all that a device consists of is there: paths to a disk, members of a RAID.

use std::fs;
use std::path::{Path, PathBuf};

use crate::doctor::finding::{Finding, Layer, Severity};
use crate::doctor::ground::Device;

/// Of each device that has parts or a state.
pub(crate) fn findings(devices: &[Device]) -> Vec<Finding> {
    devices.iter().filter_map(|device| of_device(Path::new("/sys/class/block"), &device.name)).collect()
}

fn of_device(root: &Path, name: &str) -> Option<Finding> {
    let dir = root.join(name);
    let read = |file: PathBuf| fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
    if let Some(missing) = read(dir.join("md/degraded")).and_then(|text| text.parse::<u64>().ok()) {
        return Some(raid(name, missing));
    }
    let state = |dir: PathBuf| read(dir.join("device/state"));
    let is_multipath = read(dir.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-"));
    if !is_multipath {
        return state(dir).map(|state| disk(name, &state));
    }
    let slaves = fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten();
    let states: Vec<(String, String)> = slaves
        .map(|slave| slave.file_name().to_string_lossy().into_owned())
        .map(|slave| (slave.clone(), state(root.join(&slave)).unwrap_or_default()))
        .collect();
    Some(multipath(name, &states))
}

fn raid(name: &str, missing: u64) -> Finding {
    Finding {
        layer: Layer::Storage,
        severity: if missing > 0 { Severity::Warning } else { Severity::Info },
        what: format!("RAID {name}"),
        seen: format!("{missing} members missing"),
        expected: "none".to_owned(),
        why: "what a missing member held is computed from the others, and its rebuilding takes their time"
            .to_owned(),
        next: format!("cat /proc/mdstat; mdadm --detail /dev/{name}"),
    }
}

/// Whether a device that says so gets no I/O. Drivers have words of their own, and some files of this name are none of the
/// disk's (a Xen device has its bus's `Connected`): what is not known to be bad is not.
fn is_failed(state: &str) -> bool {
    FAILED.contains(&state)
}

fn disk(name: &str, state: &str) -> Finding {
    let is_failed = is_failed(state);
    Finding {
        layer: Layer::Storage,
        severity: if is_failed { Severity::Critical } else { Severity::Info },
        what: format!("state of {name}"),
        seen: state.to_owned(),
        expected: "running, live".to_owned(),
        why: match is_failed {
            true => "the kernel does not send it I/O any more",
            false => "nothing says that the kernel has given it up",
        }
        .to_owned(),
        next: "dmesg; the disk, its cable, its controller".to_owned(),
    }
}

fn multipath(name: &str, states: &[(String, String)]) -> Finding {
    let failed: Vec<&str> =
        states.iter().filter(|(_, state)| is_failed(state)).map(|(slave, _)| slave.as_str()).collect();
    Finding {
        layer: Layer::Storage,
        severity: match (failed.len(), states.len()) {
            (0, _) => Severity::Info,
            (failed, all) if failed < all => Severity::Warning,
            _ => Severity::Critical,
        },
        what: format!("paths of {name}"),
        seen: match failed.as_slice() {
            [] => format!("none of {} failed", states.len()),
            failed => format!("{} of {} failed: {}", failed.len(), states.len(), failed.join(", ")),
        },
        expected: "none failed".to_owned(),
        why: "a failed path is hidden by the others, and costs their throughput".to_owned(),
        next: format!("multipath -ll {name}"),
    }
}

/// Of SCSI devices (`sdev_states` in `drivers/scsi/scsi_sysfs.c`), of NVMe controllers (`nvme_sysfs_show_state` in
/// `drivers/nvme/host/sysfs.c`), and what others call a device that is out of use.
const FAILED: [&str; 10] = [
    "offline",
    "transport-offline",
    "blocked",
    "created-blocked",
    "cancel",
    "deleted",
    "deleting",
    "deleting (no IO)",
    "dead",
    "faulty",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what hides behind a mapper or a RAID is seen. Method: a tree of files like the kernel's.
    #[test]
    fn a_failed_path_and_a_missing_member_are_named() {
        let root = std::env::temp_dir().join(format!("holdfast-paths-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("dm-0/dm/uuid", "mpath-3600a\n");
        write("dm-0/slaves/sda/x", "");
        write("dm-0/slaves/sdb/x", "");
        write("sda/device/state", "running\n");
        write("sdb/device/state", "offline\n");
        write("md0/md/degraded", "1\n");
        write("nvme0n1/device/state", "live\n");
        write("loop0/x", "");
        let severity = |name: &str| of_device(&root, name).map(|found| found.severity);
        assert_eq!(severity("dm-0"), Some(Severity::Warning));
        assert_eq!(severity("sdb"), Some(Severity::Critical));
        assert_eq!(severity("md0"), Some(Severity::Warning));
        assert_eq!((severity("nvme0n1"), severity("loop0")), (Some(Severity::Info), None));
        fs::remove_dir_all(&root).unwrap();
    }

    /// Goal: no alarm on a healthy machine, whatever its drivers say. Method: as above, with words of NVMe and of Xen's bus.
    #[test]
    fn what_is_not_known_to_be_bad_is_no_failure() {
        let root = std::env::temp_dir().join(format!("holdfast-states-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("dm-1/dm/uuid", "mpath-nvme\n");
        for path in ["nvme0n1", "nvme1n1", "silent"] {
            write(&format!("dm-1/slaves/{path}/x"), "");
        }
        write("nvme0n1/device/state", "live\n");
        write("nvme1n1/device/state", "live\n");
        write("xvda/device/state", "Connected\n");
        write("nvme2n1/device/state", "dead\n");
        let severity = |name: &str| of_device(&root, name).map(|found| found.severity);
        assert_eq!(severity("dm-1"), Some(Severity::Info));
        assert_eq!(severity("xvda"), Some(Severity::Info));
        assert_eq!(severity("nvme2n1"), Some(Severity::Critical));
        write("nvme1n1/device/state", "dead\n");
        assert_eq!(severity("dm-1"), Some(Severity::Warning));
        fs::remove_dir_all(&root).unwrap();
    }
}
