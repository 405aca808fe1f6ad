//! GFS2: which cluster locks (glocks) processes wait for, and how long the lock manager takes.
//!
//! Source: `linux:fs/gfs2/glock.c` (`gfs2_dump_glock`, `dump_holder`, `gfs2_sbstats_seq_show`), `linux:fs/gfs2/sys.c`
//! (`id`), and `linux:Documentation/filesystems/gfs2/glocks.rst`, "Glock Statistics".

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use super::{Between, DEBUGFS, Files, count_of, dlm, entries, field};
use crate::doctor::{Finding, Layer, Severity};
use crate::units::{seconds as in_seconds, show_delay};

/// Reads what there is of the file system on device `dev`, and of its lockspace.
pub(super) fn read(dev: (u32, u32)) -> Files {
    let mut files = Files::default();
    let Some(table) = table_on(dev) else { return files };
    let dir = Path::new(DEBUGFS).join("gfs2").join(&table);
    files.add_chosen(dir.join("glocks"), only_waited_for);
    files.add(dir.join("sbstats"));
    // `CLUSTER:LOCKSPACE`; a file system of one node alone has no colon in its name.
    if let Some((_, lockspace)) = table.split_once(':') {
        dlm::read(lockspace, &mut files);
    }
    files
}

pub(super) fn findings(between: &Between<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (_, earlier, later) in between.pairs("glocks") {
        let (earlier, later) = (parse_glocks(earlier), parse_glocks(later));
        found.extend(waiting(&earlier, &later, between));
        found.extend(waiting_for_flocks(&earlier, &later));
    }
    for (_, earlier, later) in between.pairs("sbstats") {
        found.extend(round_trips(&parse_sbstats(earlier), &parse_sbstats(later)));
    }
    found.extend(dlm::findings(between));
    found
}

/// The name of the lock table of the file system on device `dev`: sysfs has a directory of that name.
fn table_on((major, minor): (u32, u32)) -> Option<String> {
    let id = format!("{major}:{minor}");
    let is_its = |dir: &Path| fs::read_to_string(dir.join("id")).is_ok_and(|text| text.trim() == id);
    let dir = entries("/sys/fs/gfs2").into_iter().find(|dir| is_its(dir))?;
    Some(dir.file_name()?.to_string_lossy().into_owned())
}

/// Type and number, as GFS2 names its locks everywhere: `2/805b` is inode 0x805b.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    kind: u32,
    number: u64,
}

impl Name {
    /// From `KIND/NUMBER` of a dump of glocks.
    fn parse(text: &str) -> Option<Self> {
        let (kind, number) = text.split_once('/')?;
        Some(Self { kind: kind.parse().ok()?, number: u64::from_str_radix(number, 16).ok()? })
    }

    /// From a resource of the lock manager: both in hex, right-aligned in 24 characters.
    pub fn of_resource(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().map(|word| u64::from_str_radix(word, 16));
        let (kind, number) = (words.next()?.ok()?, words.next()?.ok()?);
        let kind = u32::try_from(kind).ok().filter(|&kind| kind <= JOURNAL)?;
        words.next().is_none().then_some(Self { kind, number })
    }

    /// Whether applications lock it by themselves (flock, fcntl), so that waiting is what they asked for.
    pub fn is_of_applications(self) -> bool {
        matches!(self.kind, FLOCK | PLOCK)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            1 => "file-system-wide lock",
            INODE => "inode",
            RGRP => "resource group",
            4 => "metadata",
            5 => "open inode",
            FLOCK => "flock on inode",
            PLOCK => "POSIX lock on inode",
            8 => "quota",
            JOURNAL => "journal",
            _ => "lock of an unknown type,",
        };
        write!(f, "{kind} {number:#x} (glock {}/{number:x})", self.kind, number = self.number)
    }
}

/// A lock that somebody waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Glock {
    /// What this node has of it: UN, SH, DF or EX.
    state: String,
    waiters: u64,
    /// Process of this node that has it.
    holder: Option<String>,
}

type Glocks = BTreeMap<Name, Glock>;

/// Lines of glocks with waiters alone. The file has a line for each cached inode, which may be millions.
fn only_waited_for(lines: &mut dyn Iterator<Item = String>) -> String {
    let (mut kept, mut glock, mut is_waited_for) = (String::new(), String::new(), false);
    for line in lines {
        if line.starts_with("G:") {
            if std::mem::take(&mut is_waited_for) {
                kept.push_str(&glock);
            }
            glock.clear();
        } else if is_holder(&line) {
            is_waited_for |= has_flag(&line, 'W');
        } else {
            continue;
        }
        glock.push_str(&line);
        glock.push('\n');
    }
    if is_waited_for {
        kept.push_str(&glock);
    }
    kept
}

fn is_holder(line: &str) -> bool {
    line.trim_start().starts_with("H:")
}

fn has_flag(line: &str, flag: char) -> bool {
    field(line, "f:").is_some_and(|flags| flags.contains(flag))
}

/// `G:  s:EX n:2/805b f:lq t:EX ...`, and below it ` H: s:EX f:W e:0 p:31819 [umount] CODE` for each request.
fn parse_glocks(text: &str) -> Glocks {
    let mut glocks = Glocks::new();
    let mut name = None;
    for line in text.lines() {
        if line.starts_with("G:") {
            name = field(line, "n:").and_then(Name::parse);
            // A dump may show one glock twice: the table may grow while it is walked.
            if let Some(name) = name {
                let state = field(line, "s:").unwrap_or_default().to_owned();
                glocks.insert(name, Glock { state, ..Glock::default() });
            }
        } else if let Some(glock) = name.and_then(|name| glocks.get_mut(&name))
            && is_holder(line)
        {
            glock.waiters += u64::from(has_flag(line, 'W'));
            if has_flag(line, 'H') {
                glock.holder = process(line);
            }
        }
    }
    glocks.retain(|_, glock| glock.waiters > 0);
    glocks
}

/// `umount (31819)` of `p:31819 [umount]`.
fn process(line: &str) -> Option<String> {
    let (_, rest) = line.split_once('[')?;
    let (command, _) = rest.split_once(']')?;
    Some(format!("{command} ({})", field(line, "p:")?))
}

fn waiting(earlier: &Glocks, later: &Glocks, between: &Between<'_>) -> Option<Finding> {
    let own = |glocks: &Glocks| -> Glocks {
        let of_system = glocks.iter().filter(|(name, _)| !name.is_of_applications());
        of_system.map(|(name, glock)| (*name, glock.clone())).collect()
    };
    let (earlier, later) = (own(earlier), own(later));
    let waiters = |glocks: &Glocks| glocks.values().map(|glock| glock.waiters).sum::<u64>();
    if earlier.is_empty() || later.is_empty() {
        return None;
    }
    let lasting =
        |name: &Name, glock: &Glock| earlier.get(name).map_or(0, |before| before.waiters.min(glock.waiters));
    let (name, glock) = later.iter().max_by_key(|(name, glock)| (lasting(name, glock), glock.waiters))?;
    let is_critical = lasting(name, glock) >= WAITERS_CRITICAL;
    Some(Finding {
        layer: Layer::Locks,
        severity: if is_critical { Severity::Critical } else { Severity::Warning },
        what: "processes wait for locks of the cluster".to_owned(),
        seen: format!(
            "{} for {}, {} for {} {:.0} s before; most for {name}: {} now, {} before{}",
            count_of(waiters(&later), "request"),
            count_of(later.len() as u64, "lock"),
            waiters(&earlier),
            count_of(earlier.len() as u64, "lock"),
            between.seconds,
            glock.waiters,
            earlier.get(name).map_or(0, |before| before.waiters),
            holder_of(glock),
        ),
        expected: "no request that waits each time one looks".to_owned(),
        why: why(*name, glock),
        next: next(*name, between.at),
    })
}

fn holder_of(glock: &Glock) -> String {
    match &glock.holder {
        Some(process) => format!("; {process} of this node has it ({})", glock.state),
        None => format!("; no process of this node has it (state {})", glock.state),
    }
}

fn why(name: Name, glock: &Glock) -> String {
    let what = match name.kind {
        RGRP => {
            "Whoever makes, grows or removes files there waits: many nodes allocate in the same part of the disk."
        }
        INODE => {
            "All that use this file or directory wait; nodes that write to one inode pass its lock to and fro."
        }
        _ => "All that need this lock wait.",
    };
    let who = match glock.holder {
        Some(_) => "It is a process of this node that keeps it.",
        None => "Another node has it, or is slow to give it back: it must first write what it changed.",
    };
    format!("{what} {who}")
}

fn next(name: Name, at: &Path) -> String {
    match name.kind {
        INODE | 5 => format!(
            "Find the file: find {} -xdev -inum {}. Let one node work in that directory, or give each node its own. \
             The same dump on the other nodes shows who holds it (f:H).",
            at.display(),
            name.number
        ),
        RGRP => format!(
            "See how full it is (df {}): a full file system has few resource groups with room. Grow it (gfs2_grow), \
             or let fewer nodes write at once.",
            at.display()
        ),
        _ => "Look at /sys/kernel/debug/gfs2/*/glocks of the other nodes: who holds it (f:H)? If the same request is \
              there minutes later, see dmesg and the state of the cluster (dlm_tool ls)."
            .to_owned(),
    }
}

fn waiting_for_flocks(earlier: &Glocks, later: &Glocks) -> Option<Finding> {
    let both = later.iter().filter(|(name, _)| name.is_of_applications() && earlier.contains_key(name));
    let (name, glock) = both.max_by_key(|(_, glock)| glock.waiters)?;
    Some(Finding {
        layer: Layer::Locks,
        severity: Severity::Info,
        what: "processes wait for a lock of an application".to_owned(),
        seen: format!("{} for {name} at both moments{}", count_of(glock.waiters, "process"), holder_of(glock)),
        expected: "as the application means it".to_owned(),
        why: "An application has locked a file and another waits for that. The file system does what it is told."
            .to_owned(),
        next: "If they should not wait for so long, look at the application that has the lock.".to_owned(),
    })
}

/// Of one type of glock: for each CPU the smoothed round trip in ns, and requests to the lock manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Statistics {
    round_trip_ns: Vec<u64>,
    requests: Vec<u64>,
}

/// `inode         srttb:     4211023       3112443 ...`, one column for each CPU.
fn parse_sbstats(text: &str) -> BTreeMap<String, Statistics> {
    let mut types: BTreeMap<String, Statistics> = BTreeMap::new();
    for line in text.lines() {
        let Some((head, values)) = line.split_once(':') else { continue };
        let mut words = head.split_whitespace();
        let (Some(kind), Some(what)) = (words.next(), words.next()) else { continue };
        let values = || values.split_whitespace().map_while(|word| word.parse().ok()).collect();
        match what {
            "srttb" => types.entry(kind.to_owned()).or_default().round_trip_ns = values(),
            "dlm" => types.entry(kind.to_owned()).or_default().requests = values(),
            _ => {}
        }
    }
    types
}

/// Mean round trip and count of requests. Only of CPUs that have measured something between the moments: a smoothed
/// value stays what it was for as long as nothing happens.
fn mean_round_trip(earlier: &Statistics, later: &Statistics) -> Option<(f64, u64)> {
    let (mut ns, mut count) = (0.0, 0_u64);
    let round_trips = earlier.round_trip_ns.iter().zip(&later.round_trip_ns);
    let requests = earlier.requests.iter().zip(&later.requests);
    for ((was, is), (before, after)) in round_trips.zip(requests) {
        let made = after.saturating_sub(*before);
        if was != is {
            ns += *is as f64 * made as f64;
            count = count.saturating_add(made);
        }
    }
    (count >= REQUESTS_MIN).then(|| (ns / count as f64, count))
}

fn round_trips(earlier: &BTreeMap<String, Statistics>, later: &BTreeMap<String, Statistics>) -> Vec<Finding> {
    let mut found = Vec::new();
    for kind in ["inode", "rgrp"] {
        let (Some(earlier), Some(later)) = (earlier.get(kind), later.get(kind)) else { continue };
        let Some((ns, count)) = mean_round_trip(earlier, later) else { continue };
        if ns >= in_ns(ROUND_TRIP_INFO_SECONDS) {
            found.push(slow_round_trips(kind, ns, count));
        }
    }
    found
}

fn in_ns(seconds: f64) -> f64 {
    seconds * 1e9
}

fn slow_round_trips(kind: &str, ns: f64, count: u64) -> Finding {
    let is_warning = ns >= in_ns(ROUND_TRIP_WARNING_SECONDS);
    Finding {
        layer: Layer::Locks,
        severity: if is_warning { Severity::Warning } else { Severity::Info },
        what: format!("locks of the cluster take long ({kind})"),
        seen: format!(
            "{} until a lock is granted that may have to wait, smoothed by the kernel; {}",
            show_delay(in_seconds(ns as u64)),
            count_of(count, "request")
        ),
        expected: format!("less than {} on a local network", show_delay(ROUND_TRIP_INFO_SECONDS)),
        why: "A node that has a lock must write what it changed before it gives the lock away. So this is the disk of \
              another node as much as the network between them."
            .to_owned(),
        next: "Compare with ping between the nodes: if that is fast, the nodes work on the same files. See which \
               (holders in /sys/kernel/debug/gfs2/*/glocks), and part them."
            .to_owned(),
    }
}

const INODE: u32 = 2;
const RGRP: u32 = 3;
const FLOCK: u32 = 6;
const PLOCK: u32 = 7;
const JOURNAL: u32 = 9;

/// One or two may come and go by chance; a queue that is there each time one looks is what is slow.
const WAITERS_CRITICAL: u64 = 3;

/// Fewer tell of chance.
const REQUESTS_MIN: u64 = 10;

/// A message to and fro takes less than 1 ms: the rest is waiting for another node.
const ROUND_TRIP_INFO_SECONDS: f64 = 0.01;

/// Ten operations with one lock each take a second: people notice.
const ROUND_TRIP_WARNING_SECONDS: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::super::tests::{between, endure};
    use super::*;

    const GLOCKS: &str = "/sys/kernel/debug/gfs2/unity:myfs/glocks";
    const SBSTATS: &str = "/sys/kernel/debug/gfs2/unity:myfs/sbstats";

    // After the example of "The glock debugfs Interface" in Red Hat's manual of GFS2 (Enterprise Linux 7, B.4), with
    // two waiters as in a lock dump of linux-troubleshooting.blogspot.com/2010/08/gfs2-lockdump-analysis.html.
    const DUMP: &str = "\
G:  s:SH n:5/75320 f:I t:SH d:EX/0 a:0 r:3
 H: s:SH f:EH e:0 p:4466 [postmark] gfs2_inode_lookup+0x14e/0x260 [gfs2]
G:  s:EX n:3/258028 f:yI t:EX d:EX/0 a:3 r:4
 H: s:EX f:tH e:0 p:4466 [postmark] gfs2_inplace_reserve_i+0x177/0x780 [gfs2]
 R: n:258028 f:05 b:22256/22256 i:16800
G:  s:EX n:2/805b f:lDpq t:EX d:UN/114000 a:0 v:0 r:5 m:20 p:1
 H: s:EX f:H e:0 p:1405 [httpd] gfs2_write_begin+0x61/0x33e [gfs2]
 H: s:EX f:W e:0 p:31819 [umount] gfs2_write_inode+0x57/0x152 [gfs2]
 H: s:SH f:aW e:0 p:31820 [my prog] gfs2_getattr+0x57/0x152 [gfs2]
 I: n:75661/32859 t:8 f:0x10 d:0x00000000 s:7522/7522
G:  s:EX n:2/50382 f:yfI t:EX d:EX/0 a:0 r:2
";

    fn found(earlier: &str, later: &str) -> Vec<Finding> {
        between(GLOCKS, (earlier, later), findings)
    }

    #[test]
    fn waiters_at_both_moments_are_a_warning_that_names_the_inode() {
        let found = found(DUMP, DUMP);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Locks, Severity::Warning));
        assert_eq!(
            found[0].seen,
            "2 requests for 1 lock, 2 for 1 lock 5 s before; most for inode 0x805b (glock 2/805b): 2 now, 2 before; \
             httpd (1405) of this node has it (EX)"
        );
        assert!(found[0].next.contains("find /mnt -xdev -inum 32859"), "{}", found[0].next);
    }

    #[test]
    fn three_waiters_for_one_lock_at_both_moments_are_critical() {
        let third = "G:  s:UN n:3/258028 f:lq t:EX d:EX/0 a:0 r:4\n".to_owned()
            + &" H: s:EX f:W e:0 p:4466 [postmark] gfs2_inplace_reserve_i+0x177/0x780 [gfs2]\n".repeat(3);
        let found = found(&third, &(DUMP.to_owned() + &third));
        assert_eq!(found[0].severity, Severity::Critical);
        assert!(found[0].seen.contains("most for resource group 0x258028 (glock 3/258028): 3 now, 3 before"));
        assert!(found[0].seen.contains("no process of this node has it (state UN)"), "{}", found[0].seen);
        assert!(found[0].next.contains("gfs2_grow"));
    }

    #[test]
    fn waiters_at_one_moment_are_nothing() {
        let quiet = DUMP.replace("f:W", "f:H").replace("f:aW", "f:aH");
        assert!(found(DUMP, &quiet).is_empty() && found(&quiet, DUMP).is_empty());
    }

    #[test]
    fn waiting_for_a_flock_is_no_fault_of_the_file_system() {
        let flock = DUMP.replace("n:2/805b", "n:6/805b");
        let found = found(&flock, &flock);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].severity, Severity::Info);
        assert!(found[0].seen.contains("flock on inode 0x805b"), "{}", found[0].seen);
    }

    #[test]
    fn only_glocks_with_waiters_are_kept() {
        let kept = only_waited_for(&mut DUMP.lines().map(str::to_owned));
        assert_eq!(kept.lines().count(), 4);
        assert_eq!(parse_glocks(&kept), parse_glocks(DUMP));
        assert_eq!(only_waited_for(&mut std::iter::empty()), "");
    }

    #[test]
    fn resources_of_the_lock_manager_are_named_like_glocks() {
        let name = Name::of_resource("       2            805b").unwrap();
        assert_eq!(name.to_string(), "inode 0x805b (glock 2/805b)");
        for other in ["", "2", "M00000000000006672078b84822", "a b", "2 3 4"] {
            assert_eq!(Name::of_resource(other), None, "{other}");
        }
    }

    // As gfs2_sbstats_seq_show of linux:fs/gfs2/glock.c prints it, on a node with two CPUs.
    fn sbstats(round_trips: [u64; 2], requests: [u64; 2]) -> String {
        let mut text = "type            cpu:               0               1\n".to_owned();
        for kind in ["reserved", "nondisk", "inode", "rgrp"] {
            for what in ["srtt", "srttvar", "srttb", "srttvarb", "sirt", "sirtvar", "dlm", "queue"] {
                let [first, second] = match (kind, what) {
                    ("inode", "srttb") => round_trips,
                    ("inode", "dlm") => requests,
                    _ => [7, 7],
                };
                text += &format!("{kind:<10} {what:>8}: {first:>15} {second:>15}\n");
            }
        }
        text
    }

    #[test]
    fn slow_round_trips_are_told_of_cpus_that_measured_some() {
        let earlier = sbstats([1_000_000, 900_000_000], [100, 100]);
        let mut later = sbstats([30_000_000, 900_000_000], [150, 100]);
        let found = between(SBSTATS, (&earlier, &later), findings);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].severity, Severity::Info);
        assert!(
            found[0].seen.starts_with("30.0 ms ") && found[0].seen.ends_with("50 requests"),
            "{}",
            found[0].seen
        );
        later = sbstats([30_000_000, 500_000_000], [150, 150]);
        assert_eq!(between(SBSTATS, (&earlier, &later), findings)[0].severity, Severity::Warning);
    }

    #[test]
    fn fast_or_few_round_trips_are_nothing() {
        let earlier = sbstats([1_000_000, 1_000_000], [100, 100]);
        for later in [sbstats([900_000, 2_000_000], [900, 900]), sbstats([90_000_000, 1_000_000], [105, 100])]
        {
            assert!(between(SBSTATS, (&earlier, &later), findings).is_empty());
        }
    }

    #[test]
    fn garbage_tells_nothing() {
        endure(GLOCKS, DUMP, findings);
        endure(SBSTATS, &sbstats([30_000_000, 2], [150, 100]), findings);
    }
}
