//! Processes: CPU they had, CPU they waited for, and what their groups are limited to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::mounts;

/// Counters of a process's threads, and of the groups that it is in, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    /// By thread: on a CPU, and ready to run but not let.
    threads: BTreeMap<OsString, (f64, f64)>,
    /// By directory of a group: its own limit and those above it.
    groups: BTreeMap<PathBuf, Throttled>,
    pub is_stopped: bool,
}

/// How much the bandwidth controller has kept a group from running, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Throttled {
    /// Of all CPUs together.
    seconds: f64,
    periods: u64,
    /// Periods in which its share was used up before the end.
    used_up: u64,
}

/// What a process did meanwhile, as shares of the time; of several threads together more than 1 is possible.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    /// On a CPU.
    pub ran: f64,
    /// Ready to run, and not let.
    pub waited: f64,
    /// Somebody on the machine was ready, and not let: many threads that wait at once wait for no longer than that.
    pub contended: f64,
    /// Its group had used up its share of CPU.
    pub held_back: f64,
    pub is_stopped: bool,
}

impl Counters {
    pub fn look(pid: u32) -> Option<Self> {
        let mut this = Self { groups: groups(pid), ..Self::default() };
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            this.threads.insert(task.file_name(), schedstat(&text).unwrap_or((0.0, 0.0)));
        }
        this.is_stopped = state(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?) == Some('T');
        Some(this)
    }

    /// Threads that ended meanwhile are left out.
    pub fn since(&self, earlier: &Self, seconds: f64) -> Process {
        let (mut ran, mut waited) = (0.0, 0.0);
        for (thread, now) in &self.threads {
            let before = earlier.threads.get(thread).copied().unwrap_or((0.0, 0.0));
            ran += (now.0 - before.0).max(0.0);
            waited += (now.1 - before.1).max(0.0);
        }
        Process {
            ran: ran / seconds,
            waited: waited / seconds,
            contended: 1.0,
            held_back: self.held_back_since(earlier, seconds),
            is_stopped: self.is_stopped,
        }
    }

    /// By the group that was held back most meanwhile. One that the process has come to meanwhile is left out.
    fn held_back_since(&self, earlier: &Self, seconds: f64) -> f64 {
        let shares = self.groups.iter().filter_map(|(dir, now)| {
            let before = earlier.groups.get(dir)?;
            Some(now.share_since(*before, seconds))
        });
        shares.fold(0.0, f64::max)
    }
}

impl Throttled {
    /// `NAME NUMBER` in a line: `throttled_time` in nanoseconds in the first version of control groups, `throttled_usec` in the
    /// second.
    fn parse(text: &str) -> Self {
        let of =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let ns = of("throttled_time ").map(|ns| ns as f64 / 1e9);
        let seconds = ns.or_else(|| of("throttled_usec ").map(|us| us as f64 / 1e6));
        let count = |name| of(name).unwrap_or(0);
        let (periods, used_up) = (count("nr_periods "), count("nr_throttled "));
        Self { seconds: seconds.unwrap_or(0.0), periods, used_up }
    }

    /// Share of the time. The kernel adds up what each CPU was held back for, so on many CPUs a moment becomes seconds: it was
    /// never longer than the periods in which that happened.
    fn share_since(self, earlier: Self, seconds: f64) -> f64 {
        let share = (self.seconds - earlier.seconds).max(0.0) / seconds;
        match self.periods.saturating_sub(earlier.periods) {
            0 => share,
            periods => share.min(self.used_up.saturating_sub(earlier.used_up) as f64 / periods as f64),
        }
    }
}

/// `NANOSECONDS_ON_CPU NANOSECONDS_WAITED SLICES`.
fn schedstat(text: &str) -> Option<(f64, f64)> {
    let mut numbers = text.split_whitespace().map_while(|word| word.parse::<u64>().ok());
    Some((numbers.next()? as f64 / 1e9, numbers.next()? as f64 / 1e9))
}

/// `PID (NAME) STATE ...`; the name may hold anything.
fn state(text: &str) -> Option<char> {
    text.rsplit_once(") ")?.1.chars().next()
}

/// What the bandwidth controller has done to the groups that a process is in.
fn groups(pid: u32) -> BTreeMap<PathBuf, Throttled> {
    let stat = |dir: PathBuf| {
        let text = fs::read_to_string(dir.join("cpu.stat")).ok()?;
        Some((dir, Throttled::parse(&text)))
    };
    group_dirs(pid, "cpu").into_iter().filter_map(stat).collect()
}

/// Directories of the control groups that a process is in, its own and those above, that have the controller.
pub(crate) fn group_dirs(pid: u32, controller: &str) -> Vec<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = mounts::table();
    let mut dirs = Vec::new();
    for (is_second, path) in group_paths(&groups, controller) {
        let Some(mount) = group_mount(&mounts, controller, is_second) else { continue };
        let path = Path::new(path.trim_start_matches('/'));
        dirs.extend(path.ancestors().map(|part| mount.join(part)));
    }
    dirs
}

/// `7:blkio:/path` of the first version, `0::/path` of the second, which is true of all controllers.
fn group_paths<'a>(text: &'a str, controller: &str) -> Vec<(bool, &'a str)> {
    let path = |line: &'a str| {
        let mut words = line.splitn(3, ':');
        let (number, controllers, path) = (words.next()?, words.next()?, words.next()?);
        let is_second = number == "0" && controllers.is_empty();
        (is_second || controllers.split(',').any(|name| name == controller)).then_some((is_second, path))
    };
    text.lines().filter_map(path).collect()
}

/// proc(5): `ID PARENT MAJOR:MINOR ROOT AT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS`.
fn group_mount(table: &str, controller: &str, is_second: bool) -> Option<PathBuf> {
    let at = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut words = file_system.split(' ');
        let (kind, options) = (words.next()?, words.nth(1)?);
        let is_it = match is_second {
            true => kind == "cgroup2",
            false => kind == "cgroup" && options.split(',').any(|name| name == controller),
        };
        is_it.then(|| mount.split(' ').nth(4).map(PathBuf::from)).flatten()
    };
    table.lines().find_map(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs() {
        let first = Counters::look(std::process::id()).unwrap();
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 30 {}
        let used = Counters::look(std::process::id()).unwrap().since(&first, begun.elapsed().as_secs_f64());
        assert!(used.ran + used.waited > 0.5 && !used.is_stopped, "{used:?}");
        assert!(Counters::look(u32::MAX).is_none());
    }

    #[test]
    fn groups_of_both_versions_are_found() {
        let groups = "7:blkio:/a/b\n4:memory:/\n1:cpu,cpuacct:/c\n0::/d\n";
        assert_eq!(group_paths(groups, "cpu"), [(false, "/c"), (true, "/d")]);
        let mounts = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(group_mount(mounts, "cpu", false), Some(PathBuf::from("/sys/fs/cgroup/cpu")));
        assert_eq!(group_mount(mounts, "cpu", true), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!((group_mount(mounts, "blkio", false), group_mount("x - y", "cpu", true)), (None, None));
        let first = Throttled::parse("nr_periods 5\nnr_throttled 3\nthrottled_time 2500000000\n");
        assert_eq!(first, Throttled { seconds: 2.5, periods: 5, used_up: 3 });
        assert_eq!(Throttled::parse("throttled_usec 500000\n").seconds, 0.5);
        assert_eq!(Throttled::parse("x"), Throttled::default());
    }

    /// Goal: who is held back now is seen beside one that was long ago. Method: two groups, of which one had been held back for much
    /// longer before.
    #[test]
    fn the_group_that_is_held_back_now_counts() {
        let counters = |groups: [(&str, f64); 2]| {
            let group = |(dir, seconds)| (PathBuf::from(dir), Throttled { seconds, ..Throttled::default() });
            Counters { groups: groups.map(group).into_iter().collect(), ..Counters::default() }
        };
        let (earlier, later) =
            (counters([("/a", 100.0), ("/a/b", 5.0)]), counters([("/a", 100.0), ("/a/b", 6.1)]));
        let used = later.since(&earlier, 1.2);
        assert!(used.held_back > 0.9, "{used:?}");
        assert_eq!(later.since(&Counters::default(), 1.2).held_back, 0.0, "it has just come there");
    }

    #[test]
    fn what_many_cpus_waited_for_is_no_longer_than_it_lasted() {
        let (first, second) = (Throttled::default(), Throttled { seconds: 6.4, periods: 10, used_up: 2 });
        assert_eq!(second.share_since(first, 1.0), 0.2);
        let lone = Throttled { seconds: 0.05, ..second };
        assert_eq!(lone.share_since(first, 1.0), 0.05);
        assert_eq!(Throttled { periods: 0, ..lone }.share_since(first, 1.0), 0.05);
    }

    #[test]
    fn names_may_hold_anything() {
        assert_eq!(state("12 (a) b) T 1 2"), Some('T'));
        assert_eq!((state("12"), schedstat("1"), schedstat("x y")), (None, None, None));
        assert_eq!(schedstat("1500000000 500000000 7\n"), Some((1.5, 0.5)));
    }
}
