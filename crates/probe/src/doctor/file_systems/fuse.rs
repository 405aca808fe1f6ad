//! FUSE: how many requests wait for the daemon, from the control file system.
//!
//! Source: `linux:Documentation/filesystems/fuse.rst`, "Control filesystem", and `linux:fs/fuse/control.c`.

use std::path::Path;

use super::{Between, Files};
use crate::doctor::{Finding, Layer, Severity};

/// Reads the connection of the mount with device number `dev`.
pub(super) fn read(dev: (u32, u32)) -> Files {
    let dir = Path::new(CONNECTIONS).join(connection(dev).to_string());
    let mut files = Files::default();
    for name in ["waiting", "max_background", "congestion_threshold"] {
        files.add(dir.join(name));
    }
    files
}

pub(super) fn findings(between: &Between<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, earlier, later) in between.pairs("waiting") {
        let limit = |name| between.later.text(&path.with_file_name(name)).and_then(count);
        let limits = Limits {
            max_background: limit("max_background"),
            congestion_threshold: limit("congestion_threshold"),
        };
        let (Some(earlier), Some(later)) = (count(earlier), count(later)) else { continue };
        found.extend(waiting(earlier, later, limits, between));
    }
    found
}

/// Requests that the kernel sends without anybody waiting for each: read-ahead, write-back, asynchronous direct I/O.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// More are not sent.
    max_background: Option<u64>,
    /// From so many on, write-back goes slower.
    congestion_threshold: Option<u64>,
}

/// The kernel names a connection after its device number, whole: of plain FUSE that is the minor, of fuseblk not.
fn connection((major, minor): (u32, u32)) -> u64 {
    (u64::from(major) << MINOR_BITS) | u64::from(minor)
}

fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn waiting(earlier: u64, later: u64, limits: Limits, between: &Between<'_>) -> Option<Finding> {
    let least = earlier.min(later);
    let is_over = |limit: Option<u64>| limit.is_some_and(|limit| least > 0 && least >= limit);
    let (severity, limit, name) = if is_over(limits.max_background) {
        (Severity::Warning, limits.max_background, "max_background")
    } else if is_over(limits.congestion_threshold) {
        (Severity::Info, limits.congestion_threshold, "congestion_threshold")
    } else {
        return None;
    };
    Some(Finding {
        layer: Layer::Cpu,
        severity,
        what: "requests wait for the FUSE daemon".to_owned(),
        seen: format!(
            "{later} requests wait now, {earlier} waited {:.0} s before; {name} is {}",
            between.seconds,
            limit.unwrap_or(0)
        ),
        expected: format!("fewer than {name}, most of the time 0 or as many as there are busy processes"),
        why: "The kernel has work for the daemon, and the daemon does not keep up: it has no CPU, too few threads, \
              or waits for something itself."
            .to_owned(),
        next: "Look what the daemon does (top -H -p PID, cat /proc/PID/stack). If it idles, it waits for its own \
               storage or network. If it only has too few threads, give it more, or raise max_background."
            .to_owned(),
    })
}

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// `MINORBITS` of `linux:include/linux/kdev_t.h`.
const MINOR_BITS: u32 = 20;

#[cfg(test)]
mod tests {
    use super::super::tests::{between_all, endure};
    use super::*;

    // As fuse_conn_waiting_read and fuse_conn_limit_read of linux:fs/fuse/control.c print them; 12 and 9 are the
    // defaults of linux:fs/fuse/inode.c.
    fn found(earlier: &str, later: &str, max_background: &str) -> Vec<Finding> {
        let files = [
            ("/sys/fs/fuse/connections/48/congestion_threshold", "9\n", "9\n"),
            ("/sys/fs/fuse/connections/48/max_background", max_background, max_background),
            ("/sys/fs/fuse/connections/48/waiting", earlier, later),
        ];
        between_all(&files, findings)
    }

    #[test]
    fn a_full_queue_at_both_moments_is_a_warning() {
        let found = found("14\n", "12\n", "12\n");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Cpu, Severity::Warning));
        assert_eq!(found[0].seen, "12 requests wait now, 14 waited 5 s before; max_background is 12");
    }

    #[test]
    fn congestion_is_worth_knowing() {
        assert_eq!(found("9\n", "11\n", "12\n")[0].severity, Severity::Info);
    }

    #[test]
    fn few_requests_or_a_full_queue_once_are_nothing() {
        for (earlier, later, max) in
            [("0\n", "0\n", "12\n"), ("0\n", "0\n", "0\n"), ("0\n", "40\n", "12\n"), ("8\n", "8\n", "12\n")]
        {
            assert!(found(earlier, later, max).is_empty(), "{earlier} {later}");
        }
    }

    #[test]
    fn connections_are_named_by_device_numbers() {
        assert_eq!(connection((0, 48)), 48);
        assert_eq!(connection((8, 17)), 8_388_625);
    }

    #[test]
    fn garbage_tells_nothing() {
        endure("/sys/fs/fuse/connections/48/waiting", "12\n", findings);
        assert!(found("many", "x\n", "12\n").is_empty());
    }
}
