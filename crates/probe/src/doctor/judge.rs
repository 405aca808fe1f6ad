//! What the trials mean: what is slow, and whom that is to be blamed on.

use crate::bench::compare::Change;
use crate::bench::report::{Figure, Unit};
use crate::doctor::active::{TREE, TREE_AGAIN, Trial, Tried};
use crate::doctor::finding::{Finding, Layer, Severity};
use crate::doctor::ground::Ground;
use crate::doctor::moment::{Interval, SocketUse};
use crate::doctor::processes::Process;
use crate::units::show_delay;

/// What the trials show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    pub findings: Vec<Finding>,
    /// What is slow, and nobody can be blamed for.
    pub unexplained: Vec<String>,
    /// What may be slow: the rounds differ by more than the effect.
    pub unsure: Vec<String>,
}

/// All of it. `worse`: figures that were better before.
pub(crate) fn judge(ground: &Ground, tried: &Tried, worse: &[Change]) -> Judged {
    let mut judged = Judged::default();
    judged.findings.extend(daemon(ground, &tried.trials));
    judged.findings.extend(contended(&ground.file_system.kind, &tried.trials));
    judged.findings.extend(forgotten(tried));
    let raw_is_slow = find(&tried.trials, "raw read").and_then(Slow::of).filter(|slow| slow.is_sure);
    for trial in &tried.trials {
        let Some(slow) = Slow::of(trial).or_else(|| Slow::than_before(trial, worse)) else { continue };
        if !slow.is_sure {
            judged.unsure.push(slow.seen);
        } else if let Some((layer, cause)) = blame(ground, trial, raw_is_slow.as_ref()) {
            judged.add(slow, layer, cause);
        } else {
            judged.unexplained.push(slow.seen);
        }
    }
    judged
}

impl Judged {
    /// One finding for each layer: the worst, with all that is slow because of it.
    fn add(&mut self, slow: Slow, layer: Layer, cause: String) {
        let what = "slow by measurement";
        match self.findings.iter_mut().find(|found| found.layer == layer && found.what == what) {
            Some(found) => {
                found.severity = found.severity.max(slow.severity);
                found.seen = format!("{}; {}", found.seen, slow.seen);
            }
            None => self.findings.push(Finding {
                layer,
                severity: slow.severity,
                what: what.to_owned(),
                seen: slow.seen,
                expected: slow.expected,
                why: cause,
                next: next(layer).to_owned(),
            }),
        }
    }
}

fn next(layer: Layer) -> &'static str {
    match layer {
        Layer::Cpu => "top -H; nice values, CPU limits of the control group, other work on the machine",
        Layer::Storage => {
            "holdfast watch on each layer of the stack; iostat -x 1; limits of control groups; the disk itself"
        }
        Layer::Network => "ping and iperf3 to the peer; tc -s qdisc, ethtool, ss -ti on both sides",
        Layer::FileSystem | Layer::Cache | Layer::Locks | Layer::Configuration => "see the other findings",
    }
}

/// A trial that takes longer than it may.
struct Slow {
    severity: Severity,
    seen: String,
    expected: String,
    /// In the best round too.
    is_sure: bool,
}

impl Slow {
    fn of(trial: &Trial) -> Option<Self> {
        let figure = &trial.figure;
        let (_, warning, critical) = *LIMITS.iter().find(|(name, ..)| *name == figure.name)?;
        let more_is_better = matches!(figure.unit, Unit::PerSecond | Unit::Throughput);
        let is_beyond = |value: f64, limit: f64| if more_is_better { value < limit } else { value > limit };
        let median = figure.median();
        if !is_beyond(median, warning) {
            return None;
        }
        let best = figure.values.iter().copied().reduce(if more_is_better { f64::max } else { f64::min })?;
        Some(Self {
            severity: if is_beyond(median, critical) { Severity::Critical } else { Severity::Warning },
            seen: shown(figure),
            expected: format!(
                "{} {}",
                if more_is_better { "at least" } else { "at most" },
                amount(figure.unit, warning)
            ),
            is_sure: is_beyond(best, warning),
        })
    }

    /// Of figures that were much better before, unless they are far from slow even so and not quite another thing: what takes no time varies by
    /// more than its rounds tell.
    fn than_before(trial: &Trial, worse: &[Change]) -> Option<Self> {
        let figure = &trial.figure;
        let change = worse.iter().find(|change| change.name == figure.name)?;
        let ratio = change.ratio.filter(|ratio| *ratio < MUCH_WORSE)?;
        let (_, limit, _) = *LIMITS.iter().find(|(name, ..)| *name == figure.name)?;
        let distance = match figure.unit {
            Unit::PerSecond | Unit::Throughput => figure.median() / limit,
            Unit::Delay | Unit::Seconds | Unit::Stale => limit / figure.median().max(1e-9),
        };
        (distance < FAR_FROM_SLOW || ratio < CHANGED_ALTOGETHER).then(|| Self {
            severity: Severity::Warning,
            seen: format!("{}, {:.1} times as slow as before", shown(figure), 1.0 / ratio),
            expected: "as before, within the spread of both".to_owned(),
            is_sure: true,
        })
    }
}

/// `write 512 MB/s`.
fn shown(figure: &Figure) -> String {
    format!("{} {} (±{:.0} %)", figure.name, amount(figure.unit, figure.median()), figure.spread() * 100.0)
}

pub(crate) fn amount(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Throughput => format!("{value:.1} MB/s"),
        Unit::PerSecond => format!("{value:.0} /s"),
        Unit::Delay | Unit::Seconds => show_delay(value),
        Unit::Stale => format!("{value:.0}"),
    }
}

fn find<'a>(trials: &'a [Trial], name: &str) -> Option<&'a Trial> {
    trials.iter().find(|trial| trial.figure.name == name)
}

/// Whom a slow trial is to be blamed on: who was busy, or waited for, meanwhile.
fn blame(ground: &Ground, trial: &Trial, raw: Option<&Slow>) -> Option<(Layer, String)> {
    let mean = |of: &dyn Fn(&Interval) -> f64| {
        trial.intervals.iter().map(of).sum::<f64>() / trial.intervals.len().max(1) as f64
    };
    let starved = mean(&|interval| interval.daemon.map_or(0.0, |daemon| daemon.starved()));
    if starved >= STARVED {
        return Some((
            Layer::Cpu,
            format!("the daemon could have run for {:.0} % of the time, and was not let", starved * 100.0),
        ));
    }
    if let Some(raw) = raw {
        return Some((Layer::Storage, format!("the device itself is slow: {}", raw.seen)));
    }
    let busy = mean(&|interval| interval.disks.iter().map(|disk| disk.busy).fold(0.0, f64::max));
    if busy >= DISK_BUSY {
        return Some((
            Layer::Storage,
            format!("a disk beneath was busy for {:.0} % of the time", busy * 100.0),
        ));
    }
    let sent = |of: fn(SocketUse) -> f64| mean(&|interval| interval.sockets.map_or(0.0, of));
    let (on_the_way, full) = (sent(|used| used.busy), sent(|used| used.peer_full));
    if on_the_way >= ON_THE_WAY && full < on_the_way / 2.0 {
        let (now, least) = (sent(|used| used.round_trip_ms), sent(|used| used.least_round_trip_ms));
        let text = format!(
            "for {:.0} % of the time something was on its way to the peer, {:.1} MB/s; a round trip took {now:.1} ms, {least:.1} at best",
            on_the_way * 100.0,
            sent(|used| used.mb_per_second),
        );
        return Some((Layer::Network, text));
    }
    let waited = mean(&|interval| interval.pressure.map_or(0.0, |pressure| pressure.io));
    if waited >= IO_WAITED && !ground.devices.is_empty() {
        return Some((
            Layer::Storage,
            format!(
                "for {:.0} % of the time somebody waited for I/O, of disks that were busy for {:.0} %: it is held back before them",
                waited * 100.0,
                busy * 100.0
            ),
        ));
    }
    let ran = mean(&|interval| interval.daemon.map_or(0.0, |daemon| daemon.ran));
    (ran >= DAEMON_RAN)
        .then(|| (Layer::Cpu, format!("the daemon computed for {:.0} % of the time", ran * 100.0)))
}

impl Process {
    /// Share of the time that it was kept from running in.
    fn starved(self) -> f64 {
        let waits = self.waited / (self.waited + self.ran).max(1e-9);
        let waited = if waits >= MOSTLY { self.waited.min(self.contended) } else { 0.0 };
        waited.max(self.held_back.min(1.0))
    }
}

/// Without a sign before nothing.
fn percent(share: f64) -> f64 {
    (share * 100.0).max(0.0) + 0.0
}

/// Whether the daemon is kept from running, slow or not.
fn daemon(ground: &Ground, trials: &[Trial]) -> Option<Finding> {
    let daemon = ground.daemon.as_ref()?;
    let intervals: Vec<&Interval> = trials.iter().flat_map(|trial| &trial.intervals).collect();
    let seconds: f64 = intervals.iter().map(|interval| interval.seconds).sum();
    let of = |of: fn(Process) -> f64| {
        let sum: f64 =
            intervals.iter().filter_map(|interval| Some(of(interval.daemon?) * interval.seconds)).sum();
        sum / seconds.max(1e-9)
    };
    let all = Process {
        ran: of(|daemon| daemon.ran),
        waited: of(|daemon| daemon.waited),
        contended: of(|daemon| daemon.contended),
        held_back: of(|daemon| daemon.held_back),
        is_stopped: false,
    };
    let starved = all.starved();
    let severity = match () {
        () if starved >= STARVED => Severity::Critical,
        () if starved >= STARVED / 2.0 => Severity::Warning,
        () => Severity::Info,
    };
    Some(Finding {
        layer: Layer::Cpu,
        severity,
        what: format!("the daemon, {} ({})", daemon.name, daemon.pid),
        seen: format!(
            "ran for {:.0} % of the time, was ready and waited for {:.0} %, was held back by a limit for {:.0} %",
            percent(all.ran),
            percent(all.waited),
            percent(all.held_back)
        ),
        expected: format!("kept waiting for less than {:.0} %", STARVED / 2.0 * 100.0),
        why: if severity == Severity::Info {
            "it runs when it has something to do"
        } else {
            "whatever is asked of the file system waits until its daemon gets CPU"
        }
        .to_owned(),
        next: next(Layer::Cpu).to_owned(),
    })
}

/// Whether names are slower here than in a directory that nobody else knows of. On a file system of one node that is not for locks of
/// others: there are no others.
fn contended(kind: &str, trials: &[Trial]) -> Option<Finding> {
    let (here, apart) = (find(trials, "names here")?, find(trials, "names apart")?);
    let least = here.figure.values.iter().copied().fold(f64::MAX, f64::min);
    let most = apart.figure.values.iter().copied().fold(0.0, f64::max);
    let (ours, theirs) = (here.figure.median(), apart.figure.median());
    let is_sure = least > most * CONTENDED && ours >= CONTENDED_LEAST;
    let is_local = OF_ONE_NODE.contains(&kind);
    let severity = match () {
        () if is_sure && ours > theirs * CONTENDED_MUCH && !is_local => Severity::Critical,
        () if is_sure => Severity::Warning,
        () => Severity::Info,
    };
    let (why, next) = match (severity, is_local) {
        (Severity::Info, true) => ("names are found here as fast as in an empty directory", ""),
        (Severity::Info, false) => ("nobody holds this directory against us", ""),
        (Severity::Warning | Severity::Critical, true) => (
            "the directory itself is slow: it holds so many names that each search takes long, or other processes of this machine work in it",
            "see how many names it holds: ls -f | wc -l; put them into several directories",
        ),
        (Severity::Warning | Severity::Critical, false) => (
            "the file system is as fast as ever; somebody else works in this directory, and its lock goes to and fro",
            "find who else works there (on Holdfast: holdfast status), and give each node a directory of its own",
        ),
    };
    Some(Finding {
        layer: if is_local { Layer::FileSystem } else { Layer::Locks },
        severity,
        what: "names in this directory".to_owned(),
        seen: format!(
            "a file was made and removed here in {}, in a directory that nobody else knows in {}",
            show_delay(ours),
            show_delay(theirs)
        ),
        expected: format!("not {CONTENDED:.0} times as long"),
        why: why.to_owned(),
        next: next.to_owned(),
    })
}

/// Whether what was looked at a moment ago had to be fetched again.
fn forgotten(tried: &Tried) -> Option<Finding> {
    let trials = &tried.trials;
    let (first, again) = (find(trials, TREE)?, find(trials, TREE_AGAIN)?);
    if again.figure.count < TREE_LEAST {
        return None;
    }
    let each = |rate: f64| 1.0 / rate.max(1e-9);
    let warm = find(trials, "stat warm").map_or(0.0, |trial| each(trial.figure.median()));
    let (cold, second) = (each(first.figure.median()), each(again.figure.median()));
    let best = each(again.figure.values.iter().copied().fold(0.0, f64::max));
    // Round by round: the first look of a later one meets what an earlier one has brought in.
    let rounds = first.figure.values.iter().zip(&again.figure.values);
    let rounds = rounds.map(|(first, again)| (each(*first), each(*again)));
    let has_no_gain = |&(first, again): &(f64, f64)| {
        again >= FORGOTTEN_LEAST && again >= warm * FORGOTTEN && again >= first * NO_GAIN
    };
    let without_gain = rounds.clone().filter(has_no_gain).count();
    let pressed = pressed(tried, again);
    let is_sure = without_gain * 2 > rounds.count() && (!pressed.is_empty() || best >= FORGOTTEN_SURELY);
    Some(Finding {
        layer: Layer::Cache,
        severity: if is_sure { Severity::Warning } else { Severity::Info },
        what: "a second look at the tree".to_owned(),
        seen: format!(
            "{} inodes: {} each, and {} each again at once, {} each of few{pressed}",
            again.figure.count,
            show_delay(cold),
            show_delay(second),
            if warm > 0.0 { show_delay(warm) } else { "unknown".to_owned() }
        ),
        expected: "much faster the second time".to_owned(),
        why: if is_sure { "the caches are too small for the tree, or keep nothing" } else { "what was seen is kept" }.to_owned(),
        next: "memory for inodes and locks (on Holdfast token_memory and cache_memory), vm.vfs_cache_pressure, limits of control groups".to_owned(),
    })
}

/// Signs that something was thrown out of memory while the tree was looked at again.
fn pressed(tried: &Tried, again: &Trial) -> String {
    let dropped: u64 = again.intervals.iter().filter_map(|interval| Some(interval.inside?.dropped)).sum();
    let stolen: u64 = again.intervals.iter().map(|interval| interval.inodes_taken).sum();
    let signs = [
        (tried.memory_reached, "times the control group's memory was full"),
        (dropped, "locks were given up for lack of memory"),
        (stolen, "inodes were taken back by the kernel"),
    ];
    let signs = signs.into_iter().filter(|(count, _)| *count >= PRESSED_LEAST);
    signs.map(|(count, what)| format!("; {count} {what}")).collect()
}

/// What is slow beyond a warning, and critically: MB or names in a second, seconds of a call. Any disk and any network of the last decades does better.
const LIMITS: [(&str, f64, f64); 17] = [
    ("write", 20.0, 5.0),
    ("read", 20.0, 5.0),
    ("raw read", 30.0, 8.0),
    ("names apart", 0.05, 0.5),
    ("mknod", 50.0, 10.0),
    ("stat cold", 50.0, 10.0),
    ("stat warm", 1000.0, 100.0),
    ("stat from the other", 100.0, 20.0),
    ("read of 4 KiB", 0.03, 0.3),
    ("write+fsync", 0.06, 0.6),
    ("create+unlink", 0.06, 0.6),
    ("rename", 0.06, 0.6),
    ("stat", 0.02, 0.2),
    ("flock", 0.02, 0.2),
    ("fcntl", 0.02, 0.2),
    ("create+unlink by turns", 0.1, 1.0),
    ("write+fsync by turns", 0.1, 1.0),
];
/// Of the speed before.
const MUCH_WORSE: f64 = 0.5;
const CHANGED_ALTOGETHER: f64 = 0.1;
/// Times as good as what is slow.
const FAR_FROM_SLOW: f64 = 30.0;
/// Shares of the time.
const STARVED: f64 = 0.25;
/// Of the time that it wanted to run in. Threads of one daemon wait for each other and for those who ask it: two thirds are usual on two cores.
const MOSTLY: f64 = 0.8;
const DISK_BUSY: f64 = 0.7;
const ON_THE_WAY: f64 = 0.4;
const IO_WAITED: f64 = 0.5;
const DAEMON_RAN: f64 = 0.8;
/// File systems that no other node can have mounted at the same time. FUSE on a block device (`fuseblk`, as of NTFS) is one too.
const OF_ONE_NODE: [&str; 26] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "hfs", "hfsplus", "jffs2",
    "jfs", "minix", "msdos", "nilfs2", "ntfs", "ntfs3", "overlay", "ramfs", "reiserfs", "tmpfs", "ubifs",
    "udf", "vfat", "xfs", "zfs",
];
/// Directories that nobody else works in differ by less.
const CONTENDED: f64 = 4.0;
const CONTENDED_MUCH: f64 = 20.0;
/// Seconds: less is no matter.
const CONTENDED_LEAST: f64 = 0.000_3;
/// Seconds for an inode: what is in memory takes a third.
const FORGOTTEN_LEAST: f64 = 0.000_003;
/// Where nothing else tells that memory was short: no file system that keeps anything takes so long.
const FORGOTTEN_SURELY: f64 = 0.000_1;
const PRESSED_LEAST: u64 = 100;
const FORGOTTEN: f64 = 2.5;
const NO_GAIN: f64 = 0.6;
/// Fewer inodes fit anywhere.
const TREE_LEAST: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::crew::Done;
    use crate::bench::measure::Shown;

    /// A trial whose rounds had these rates: a thousand in so many seconds, or single calls of so many.
    fn trial(name: &str, unit: Unit, seconds: &[f64]) -> Trial {
        let shown: Vec<Shown> = seconds
            .iter()
            .map(|&each| Shown {
                done: Done {
                    count: 1000,
                    seconds: each * 1000.0,
                    delays: vec![(each * 1e9) as u64; 3],
                    ..Done::default()
                },
                ..Shown::default()
            })
            .collect();
        Trial { figure: Figure::of(name.to_owned(), unit, &shown, &[]), intervals: Vec::new() }
    }

    /// Goal: many threads that wait at once, as when the host takes the CPUs away for a moment, wait for no longer than that. Method: what was seen: 24 threads,
    /// a fifth of the time; and the same all the time.
    #[test]
    fn what_many_threads_waited_for_is_no_longer_than_it_lasted() {
        let daemon = |contended| Process { ran: 0.41, waited: 4.57, contended, ..Process::default() };
        assert_eq!(daemon(0.19).starved(), 0.19);
        assert_eq!(daemon(1.0).starved(), 1.0);
    }

    /// Goal: where there are no other nodes, nobody blames their locks. Method: a directory 200 times as slow as an empty one.
    #[test]
    fn a_large_directory_of_a_local_file_system_is_its_own_fault() {
        let trials = [
            trial("names here", Unit::Delay, &[0.01, 0.01, 0.011]),
            trial("names apart", Unit::Delay, &[0.000_05; 3]),
        ];
        let of = |kind: &str| {
            let found = contended(kind, &trials).unwrap();
            (found.layer, found.severity)
        };
        for kind in ["vfat", "ext4", "tmpfs"] {
            assert_eq!(of(kind), (Layer::FileSystem, Severity::Warning), "{kind}");
        }
        for kind in ["fuse.holdfast", "gfs2", "nfs4"] {
            assert_eq!(of(kind), (Layer::Locks, Severity::Critical), "{kind}");
        }
        assert!(contended("vfat", &trials).unwrap().why.contains("so many names"));
    }

    /// Goal: each second look is compared with the first of its round. Method: little memory, and rounds of which one, two or none
    /// gained nothing; in the first case the medians of all rounds are close to each other.
    #[test]
    fn a_cache_forgets_if_most_rounds_gained_nothing() {
        let severity = |first: [f64; 3], again: [f64; 3]| {
            let us = |each: f64| each / 1e6;
            let trials = vec![
                trial("stat warm", Unit::PerSecond, &[us(2.0); 3]),
                trial(TREE, Unit::PerSecond, &first.map(us)),
                trial(TREE_AGAIN, Unit::PerSecond, &again.map(us)),
            ];
            let tried = Tried { trials, memory_reached: 1000, ..Tried::default() };
            forgotten(&tried).unwrap().severity
        };
        assert_eq!(severity([10.0, 100.0, 50.0], [35.0, 33.0, 8.0]), Severity::Info);
        assert_eq!(severity([50.0, 20.0, 20.0], [2.0, 30.0, 30.0]), Severity::Warning);
        assert_eq!(severity([50.0, 50.0, 50.0], [2.0, 2.0, 2.0]), Severity::Info);
    }
}
