//! OCFS2: how long each cluster lock was waited for.
//!
//! Source: `linux:fs/ocfs2/dlmglue.c` (`ocfs2_dlm_seq_show`, `ocfs2_update_lock_stats`, `ocfs2_track_lock_wait`),
//! `linux:fs/ocfs2/ocfs2_lockid.h` for the names, `linux:fs/ocfs2/super.c` (`ocfs2_osb_dump`) for the device.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Between, DEBUGFS, Files, count_of, dlm, entries};
use crate::doctor::{Finding, Layer, Severity};
use crate::units::{seconds as in_seconds, show_delay};

/// Reads what there is of the file system on device `dev`, and of its lockspace if that is the kernel's DLM.
pub(super) fn read(dev: (u32, u32)) -> Files {
    let mut files = Files::default();
    let is_its = |dir: &Path| fs::read_to_string(dir.join("fs_state")).is_ok_and(|text| is_on(&text, dev));
    let dirs = entries(Path::new(DEBUGFS).join("ocfs2"));
    let Some(dir) = dirs.into_iter().find(|dir| is_its(dir)) else { return files };
    files.add(dir.join("locking_state"));
    // Directory and lockspace are both named after the UUID.
    if let Some(lockspace) = dir.file_name() {
        dlm::read(&lockspace.to_string_lossy(), &mut files);
    }
    files
}

pub(super) fn findings(between: &Between<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (_, earlier, later) in between.pairs("locking_state") {
        let (earlier, later) = (parse_locking_state(earlier), parse_locking_state(later));
        found.extend(waits(&earlier, &later, between));
        found.extend(stuck(&earlier, &later, between));
    }
    found.extend(dlm::findings(between));
    found
}

/// `    Device => Id: 8,16  Uuid: ...`.
fn is_on(state: &str, (major, minor): (u32, u32)) -> bool {
    let Some(line) = state.lines().find(|line| line.trim_start().starts_with("Device ")) else {
        return false;
    };
    let mut words = line.split_whitespace().skip_while(|word| *word != "Id:");
    words.nth(1) == Some(&*format!("{major},{minor}"))
}

/// Of one lock, since the file system was mounted or the lock made. Waits for the shared and the exclusive mode together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lock {
    requests: u64,
    wait_ns: u64,
    max_us: u64,
    /// Since when the first request in line waits, in microseconds since 1970; zero if none does.
    first_since_us: u64,
}

type Locks = BTreeMap<String, Lock>;

/// Fields by tabs. Before the statistics there are ten and the 64 bytes of the LVB; without statistics (version 1, or a
/// kernel built without them: all zero) nothing is told.
fn parse_lock(line: &str) -> Option<(String, Lock)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let version = u32::from_str_radix(fields.first()?.strip_prefix("0x")?, 16).ok()?;
    if !VERSIONS.contains(&version) {
        return None;
    }
    let value = |index: usize| fields.get(STATISTICS_AT + index)?.parse::<u64>().ok();
    let max = value(6)?.max(value(7)?);
    let lock = Lock {
        requests: value(0)?.saturating_add(value(1)?),
        wait_ns: value(4)?.saturating_add(value(5)?),
        max_us: if version == 2 { max / 1000 } else { max },
        first_since_us: value(11).unwrap_or(0),
    };
    Some((fields.get(1)?.to_string(), lock))
}

fn parse_locking_state(text: &str) -> Locks {
    text.lines().filter_map(parse_lock).collect()
}

/// What has happened to a lock between two moments. A lock that was not there before has just been made.
fn since(earlier: &Locks, name: &str, lock: Lock) -> Option<Lock> {
    let before = earlier.get(name).copied().unwrap_or_default();
    Some(Lock {
        requests: lock.requests.checked_sub(before.requests)?,
        wait_ns: lock.wait_ns.checked_sub(before.wait_ns)?,
        ..lock
    })
}

fn waits(earlier: &Locks, later: &Locks, between: &Between<'_>) -> Option<Finding> {
    let of_system = later.iter().filter(|(name, _)| !is_of_applications(name));
    let grown = of_system.filter_map(|(name, lock)| Some((name, since(earlier, name, *lock)?)));
    let mut grown: Vec<(&String, Lock)> = grown.filter(|(_, lock)| lock.requests > 0).collect();
    grown.sort_by_key(|(_, lock)| std::cmp::Reverse(lock.wait_ns));
    let (name, most) = grown.first()?;
    let wait_seconds: f64 = grown.iter().map(|(_, lock)| in_seconds(lock.wait_ns)).sum();
    let share = wait_seconds / between.seconds;
    if share < SHARE_WARNING {
        return None;
    }
    let is_critical = share >= SHARE_CRITICAL;
    Some(Finding {
        layer: Layer::Locks,
        severity: if is_critical { Severity::Critical } else { Severity::Warning },
        what: "processes wait for locks of the cluster".to_owned(),
        seen: format!(
            "{} of waiting in {:.0} s, all processes together; most for {}: {} in {}, {} each, the longest ever {}",
            show_delay(wait_seconds),
            between.seconds,
            name_of(name),
            show_delay(in_seconds(most.wait_ns)),
            count_of(most.requests, "request"),
            show_delay(in_seconds(most.wait_ns / most.requests.max(1))),
            show_delay(most.max_us as f64 / 1e6),
        ),
        expected: format!("less than {:.0} % of the time", SHARE_WARNING * 100.0),
        why: "Nodes want the same files or directories in modes that exclude each other. Each time the lock moves, the \
              node that had it writes its changes to the disk first."
            .to_owned(),
        next: next(name, between.at),
    })
}

fn stuck(earlier: &Locks, later: &Locks, between: &Between<'_>) -> Option<Finding> {
    let is_same = |name: &str, lock: &Lock| {
        let since = earlier.get(name).map_or(0, |before| before.first_since_us);
        since > 0 && lock.first_since_us > 0 && since.abs_diff(lock.first_since_us) <= CLOCK_SLACK_US
    };
    let own = later.iter().filter(|(name, _)| !is_of_applications(name));
    let stuck: Vec<(&String, &Lock)> = own.filter(|(name, lock)| is_same(name, lock)).collect();
    let (name, _) = stuck.iter().min_by_key(|(_, lock)| lock.first_since_us)?;
    Some(Finding {
        layer: Layer::Locks,
        severity: Severity::Critical,
        what: "a lock of the cluster is not granted".to_owned(),
        seen: format!(
            "for {} the same request has waited at both moments, so for at least {:.0} s; the first for {}",
            count_of(stuck.len() as u64, "lock"),
            between.seconds,
            name_of(name)
        ),
        expected: "locks that are granted within milliseconds".to_owned(),
        why: "The node that has the lock does not give it back: it works with it all the time, waits for its disk, or \
              hangs."
            .to_owned(),
        next: next(name, between.at),
    })
}

fn next(name: &str, at: &Path) -> String {
    let find = match block_of(name) {
        Some(block) => format!("Find the file: find {} -xdev -inum {block}. ", at.display()),
        None => String::new(),
    };
    format!(
        "{find}See which nodes use it (debugfs.ocfs2 -R \"fs_locks {name}\" DEVICE on each), and part them, or let one \
         node do that work."
    )
}

/// Whether applications lock it by themselves (flock), so that waiting is what they asked for.
fn is_of_applications(name: &str) -> bool {
    name.starts_with('F')
}

fn name_of(name: &str) -> String {
    let kind = match name.chars().next() {
        Some('M') => "metadata",
        Some('D') => "data",
        Some('S') => "the super block",
        Some('R') => "renaming",
        Some('W') => "writing to the file",
        Some('N') => "a name in directory",
        Some('O') => "the open file",
        Some('F') => "flock on",
        Some('Q') => "quota",
        Some('Y') => "NFS export",
        Some('P') => "the scan for orphans",
        Some('T') => "shared blocks",
        Some('I') => "trimming",
        _ => "unknown",
    };
    match block_of(name) {
        Some(block) => format!("{kind} of inode {block} ({name})"),
        None => format!("{kind} ({name})"),
    }
}

/// Letter, zeros, block in 16 hex digits, generation in 8; of a name in a directory, letter, the directory's block and the
/// inode's. An inode's number is its block.
fn block_of(name: &str) -> Option<u64> {
    let digits = match name.chars().next()? {
        'M' | 'D' | 'W' | 'O' | 'F' | 'T' => name.get(1..name.len().checked_sub(8)?)?,
        'N' => name.get(1..17)?,
        _ => return None,
    };
    u64::from_str_radix(digits, 16).ok()
}

/// Version 1 had no statistics; in version 3 the longest wait became microseconds; version 4 told who waits first.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=4;

/// Ten fields, and `DLM_LVB_LEN` of `linux:fs/ocfs2/dlm/dlmapi.h`.
const STATISTICS_AT: usize = 10 + 64;

/// Every fifth second lost to waiting is felt.
const SHARE_WARNING: f64 = 0.2;

/// On average two processes do nothing but wait.
const SHARE_CRITICAL: f64 = 2.0;

/// The kernel turns its own clock into the time of day anew when the queue changes; clocks are adjusted meanwhile.
const CLOCK_SLACK_US: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::super::tests::{between, endure};
    use super::*;

    const PATH: &str = "/sys/kernel/debug/ocfs2/DDF67CB9B6C443B0A9D1F6C3F1F0E4D7/locking_state";

    // As ocfs2_dlm_seq_show of linux:fs/ocfs2/dlmglue.c prints it; the name of the lock is from Oracle's manual of OCFS2,
    // "Debugging File System Locks". No dump of a real cluster was found.
    fn line(version: u32, name: &str, statistics: &[u64]) -> String {
        let lvb = "0x5\t0x0\t0xffffffa3\t0x0\t".repeat(16);
        let statistics: String = statistics.iter().map(|value| format!("{value}\t")).collect();
        format!("0x{version:x}\t{name}\t3\t0x41\t0x0\t0x0\t0\t0\t5\t-1\t{lvb}{statistics}\n")
    }

    const META: &str = concat!("M", "000000", "0000000000066720", "78b84822");

    /// Lines of version 4: requests and waits for one inode's metadata, and what waits first.
    fn state(requests: u64, wait_ms: u64, first_since_us: u64) -> String {
        let statistics =
            [10, requests, 0, 0, 90_000, wait_ms * 1_000_000, 12, 51_000, 3, 1, 1, first_since_us];
        line(4, META, &statistics) + &line(4, "S000000000000000000000200000000", &[0; 12])
    }

    fn found(earlier: &str, later: &str) -> Vec<Finding> {
        between(PATH, (earlier, later), findings)
    }

    #[test]
    fn waits_between_the_moments_name_the_lock() {
        let found = found(&state(100, 2000, 0), &state(180, 4400, 0));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Locks, Severity::Warning));
        assert_eq!(
            found[0].seen,
            format!(
                "2.40 s of waiting in 5 s, all processes together; most for metadata of inode 419616 ({META}): 2.40 s \
                 in 80 requests, 30.0 ms each, the longest ever 51.0 ms"
            )
        );
        assert!(found[0].next.contains("find /mnt -xdev -inum 419616."), "{}", found[0].next);
    }

    #[test]
    fn many_waits_are_critical_and_few_are_nothing() {
        assert_eq!(found(&state(100, 2000, 0), &state(900, 32_000, 0))[0].severity, Severity::Critical);
        for later in [state(100, 2000, 0), state(180, 2100, 0), state(50, 100, 0)] {
            assert!(found(&state(100, 2000, 0), &later).is_empty());
        }
        // Made between the moments.
        assert_eq!(found("", &state(80, 2400, 0)).len(), 1);
    }

    #[test]
    fn a_request_that_waits_at_both_moments_is_critical() {
        let since = 1_700_000_000_000_000;
        let found_same = found(&state(100, 2000, since), &state(100, 2000, since + 3));
        assert_eq!(found_same.len(), 1);
        assert_eq!(found_same[0].severity, Severity::Critical);
        assert!(found_same[0].seen.contains("at least 5 s"), "{}", found_same[0].seen);
        assert!(found(&state(100, 2000, since), &state(100, 2000, since + 900_000)).is_empty());
    }

    #[test]
    fn waits_for_flocks_are_no_fault_of_the_file_system() {
        let flock = |text: String| text.replace(META, &META.replace('M', "F"));
        assert!(found(&flock(state(100, 2000, 7)), &flock(state(180, 4400, 7))).is_empty());
    }

    #[test]
    fn older_versions_have_fewer_fields_and_other_units() {
        let second = parse_lock(line(2, META, &[1, 2, 0, 0, 5, 6, 9000, 51_000, 3]).trim_end_matches('\n'));
        let third = parse_lock(line(3, META, &[1, 2, 0, 0, 5, 6, 9, 51, 3]).trim_end_matches('\n'));
        let lock = Lock { requests: 3, wait_ns: 11, max_us: 51, first_since_us: 0 };
        assert_eq!(second, Some((META.to_owned(), lock)));
        assert_eq!(third, second);
        assert_eq!(parse_lock(line(1, META, &[]).trim_end()), None);
        assert_eq!(parse_lock(line(5, META, &[1; 12]).trim_end()), None);
    }

    // As ocfs2_osb_dump of linux:fs/ocfs2/super.c prints it.
    #[test]
    fn the_device_tells_whose_directory_it_is() {
        let state = "    Device => Id: 8,16  Uuid: DDF67CB9B6C443B0A9D1F6C3F1F0E4D7  Gen: 0x78B84822  Label: data\n    \
                     Volume => State: 1  Flags: 0x0\n";
        assert!(is_on(state, (8, 16)));
        assert!(!is_on(state, (8, 1)) && !is_on("", (8, 16)) && !is_on("Device => Id:", (8, 16)));
    }

    #[test]
    fn names_tell_what_is_locked() {
        assert!(name_of("S000000000000000000000200000000").starts_with("the super block ("));
        let entry = concat!("N", "0000000000066720", "00066721");
        assert!(name_of(entry).starts_with("a name in directory of inode 419616 ("), "{}", name_of(entry));
        // Shorter, as in the manual.
        assert_eq!(block_of("M00000000000006672078b84822"), Some(419_616));
        for other in ["", "M", "M1234567", "Mü0000000", "Mx00000000"] {
            assert_eq!(block_of(other), None, "{other}");
        }
    }

    #[test]
    fn garbage_tells_nothing() {
        endure(PATH, &state(180, 4400, 1_700_000_000_000_000), findings);
    }
}
