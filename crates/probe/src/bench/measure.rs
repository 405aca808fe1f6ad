//! One step of one run, and what the runs of a step make together.

use std::path::PathBuf;

use crate::bench::coherence::Seen;
use crate::bench::crew::{Crew, Done};
use crate::bench::delays::Delays;
use crate::bench::environment::Cpu;
use crate::bench::report::{CpuShare, Figure, Unit, median};
use crate::bench::stream::BLOCK;
use crate::bench::task::Work;
use crate::bench::{BenchError, Stage};
use crate::daemon::Daemon;

/// What one step of one run has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub done: Done,
    pub cpu: Cpu,
    /// CPU time of the daemons in their own code; none of a file system of the kernel's.
    pub daemon_seconds: Option<f64>,
    pub counters: Vec<(String, u64)>,
}

/// The processes that answer for file systems, where others than the kernel do.
#[derive(Clone, Debug, Default)]
pub struct Daemons(Vec<Daemon>);

impl Daemons {
    /// Of the file systems that these paths are on.
    pub fn of(paths: &[PathBuf]) -> Self {
        let mut all: Vec<Daemon> = Vec::new();
        for daemon in paths.iter().filter_map(|path| Daemon::of(path)) {
            if !all.contains(&daemon) {
                all.push(daemon);
            }
        }
        Self(all)
    }

    /// CPU time of all of them in their own code. None if there is none, or it cannot be told.
    fn user_seconds(&self) -> Option<f64> {
        let seconds = self.0.iter().map(Daemon::user_seconds).sum();
        if self.0.is_empty() { None } else { seconds }
    }
}

/// Has the crew do the tasks, all at once.
pub(crate) fn measure(
    crew: &mut Crew,
    stage: &mut Stage<'_>,
    tasks: Vec<(PathBuf, Work)>,
) -> Result<Shown, BenchError> {
    let (counted, cpu, daemons) = (stage.companion.counters(), Cpu::now(), stage.daemons.user_seconds());
    let done = crew.run(tasks)?;
    let cpu = Cpu::now().since(cpu);
    let daemon_seconds =
        daemons.zip(stage.daemons.user_seconds()).map(|(before, after)| (after - before).max(0.0));
    let counters = match (counted, stage.companion.counters()) {
        (Some(before), Some(after)) => risen(&before, after),
        _ => Vec::new(),
    };
    Ok(Shown { done, cpu, daemon_seconds, counters })
}

/// What has risen.
fn risen(before: &[(String, u64)], after: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let earlier = |name: &str| before.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
    after
        .into_iter()
        .map(|(name, count)| {
            let risen = count.saturating_sub(earlier(&name));
            (name, risen)
        })
        .filter(|(_, risen)| *risen > 0)
        .collect()
}

impl Figure {
    /// Of the runs of one step. CPU, series and counters are those of the run in the middle.
    pub(crate) fn of(name: String, unit: Unit, shown: &[Shown], beside: &[Shown]) -> Self {
        let value = |shown: &Shown| match unit {
            Unit::PerSecond => shown.done.rate(),
            Unit::Throughput => shown.done.rate() * BLOCK as f64 / 1e6,
            Unit::Seconds => shown.done.seconds,
            Unit::Delay => Delays::of(shown.done.delays.clone()).map_or(0.0, |delays| delays.p50),
            Unit::Stale => 0.0,
        };
        let values: Vec<f64> = shown.iter().map(value).collect();
        let middle = median(&values);
        let distance = |shown: &&Shown| (value(shown) - middle).abs();
        let typical =
            shown.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).cloned().unwrap_or_default();
        let each = |seconds: f64| seconds * 1e6 / typical.done.count.max(1) as f64;
        let count = typical.done.count;
        let per_one = |(name, risen): (String, u64)| (name, risen as f64 / count.max(1) as f64);
        Self {
            name,
            unit,
            values,
            local: beside.iter().map(value).collect(),
            count,
            cpu_us: {
                let (client, daemon) = (typical.done.user_seconds, typical.daemon_seconds);
                CpuShare {
                    client: each(client),
                    daemon: daemon.map(each),
                    kernel: each(typical.cpu.system_seconds),
                    others: each((typical.cpu.user_seconds - client - daemon.unwrap_or(0.0)).max(0.0)),
                }
            },
            series: typical.done.series,
            delays: all_delays(shown),
            local_delays: all_delays(beside),
            shares: None,
            counters: typical.counters.into_iter().map(per_one).collect(),
        }
    }
}

impl Figure {
    /// Of what was looked at after it had changed.
    pub(crate) fn of_seen(seen: Seen) -> Self {
        Self { count: seen.of, values: vec![seen.stale as f64], ..Self::of(seen.kind, Unit::Stale, &[], &[]) }
    }
}

fn all_delays(shown: &[Shown]) -> Option<Delays> {
    Delays::of(shown.iter().flat_map(|shown| shown.done.delays.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_the_step() {
        let counters =
            |list: &[(&str, u64)]| list.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect::<Vec<_>>();
        let risen = risen(&counters(&[("a", 1), ("b", 5)]), counters(&[("a", 4), ("b", 5), ("c", 2)]));
        assert_eq!(risen, counters(&[("a", 3), ("c", 2)]));
    }
}
