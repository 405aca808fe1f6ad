//! Figures, and what has to be known to believe them.

use std::time::SystemTime;

use serde_json::{Value as Json, json};

use crate::bench::delays::Delays;
use crate::bench::environment::{FileSystem, Machine};
use crate::units::show_time;

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Of something in a second: more is better.
    PerSecond,
    /// MB (10^6 bytes) in a second: more is better.
    Throughput,
    /// Less is better.
    Seconds,
    /// Seconds of one call, the median of a run: less is better.
    Delay,
    /// Looks that showed what was before: none is right.
    Stale,
}

/// One thing measured, in all runs.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is of.
    pub name: String,
    /// Of `values`.
    pub unit: Unit,
    /// One for each run.
    pub values: Vec<f64>,
    /// The same on the local file system, in the same runs; empty without one.
    pub local: Vec<f64>,
    /// How many were made, looked at or read, in one run.
    pub count: u64,
    /// CPU time for one of them in microseconds, of the run that is the median.
    pub cpu_us: CpuShare,
    /// How many in each second, of the run that is the median.
    pub series: Vec<u64>,
    /// Of calls that were timed one by one, in all runs together.
    pub delays: Option<Delays>,
    /// The same on the local file system.
    pub local_delays: Option<Delays>,
    /// Of a rung of a ladder.
    pub shares: Option<Shares>,
    /// The file system's own counters, of the same run: how often for each one, by name.
    pub counters: Vec<(String, f64)>,
}

/// What of the throughput below is left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Of that of the device, past the page cache. None if that was not measured.
    pub of_raw: Option<f64>,
    /// Of that of the rung below; none of the lowest.
    pub of_below: Option<f64>,
}

/// See [`Figure::cpu_us`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuShare {
    /// Of the processes that asked, in their own code.
    pub client: f64,
    /// Of the file system's daemons, in their own code; none of a file system that is the kernel's own.
    pub daemon: Option<f64>,
    /// Of the kernel, on behalf of anybody.
    pub kernel: f64,
    /// Of everybody else on the machine, in their own code.
    pub others: f64,
}

impl Figure {
    /// The middle one of its values.
    pub fn median(&self) -> f64 {
        median(&self.values)
    }

    /// Time for one name, inode or call.
    pub(crate) fn each_seconds(&self) -> f64 {
        match self.unit {
            Unit::PerSecond | Unit::Throughput => 1.0 / self.median().max(1e-9),
            Unit::Seconds => self.median() / self.count.max(1) as f64,
            Unit::Delay | Unit::Stale => self.median(),
        }
    }

    /// Half of the range of its values, as a share of the median.
    pub fn spread(&self) -> f64 {
        spread(&self.values)
    }

    fn local_spread(&self) -> f64 {
        spread(&self.local)
    }

    /// To the local file system's; more than 1 is better than local, whatever the unit.
    pub fn ratio(&self) -> Option<f64> {
        if self.local.is_empty() {
            return None;
        }
        let (own, local) = (self.median(), median(&self.local));
        match self.unit {
            Unit::PerSecond | Unit::Throughput => (local > 0.0).then(|| own / local),
            Unit::Seconds | Unit::Delay => (own > 0.0).then(|| local / own),
            Unit::Stale => None,
        }
    }

    pub(crate) fn to_json(&self) -> Json {
        let local =
            json!({ "values": self.local, "median": median(&self.local), "spread": self.local_spread() });
        let counters: serde_json::Map<String, Json> =
            self.counters.iter().map(|(name, each)| (name.clone(), (*each).into())).collect();
        json!({
            "name": self.name,
            "unit": self.unit.name(),
            "count": self.count,
            "values": self.values,
            "median": self.median(),
            "spread": self.spread(),
            "local": if self.local.is_empty() { Json::Null } else { local },
            "ratio": self.ratio(),
            "cpu_us": self.cpu_us.to_json(),
            "per_second": self.series,
            "peak_per_second": self.series.iter().max(),
            "delays": self.delays.as_ref().map(Delays::to_json),
            "of_raw": self.shares.and_then(|shares| shares.of_raw),
            "of_below": self.shares.and_then(|shares| shares.of_below),
            "local_delays": self.local_delays.as_ref().map(Delays::to_json),
            "counters_each": counters,
        })
    }
}

impl CpuShare {
    fn to_json(self) -> Json {
        let Self { client, daemon, kernel, others } = self;
        json!({ "client": client, "daemon": daemon, "kernel": kernel, "others": others })
    }
}

impl Unit {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "per second",
            Self::Throughput => "MB per second",
            Self::Seconds | Self::Delay => "seconds",
            Self::Stale => "stale",
        }
    }
}

/// A benchmark's figures.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which benchmark.
    pub bench: &'static str,
    /// In the order in which they were measured.
    pub figures: Vec<Figure>,
    /// What was asked for.
    pub settings: Json,
    /// Why the figures may not be what they seem.
    pub warnings: Vec<String>,
    /// What was not done, and how it was done instead.
    pub notes: Vec<String>,
    pub(crate) version: String,
    pub(crate) started: u64,
    pub(crate) machine: Machine,
    pub(crate) file_system: FileSystem,
    pub(crate) local: Option<FileSystem>,
    pub(crate) runs: usize,
    /// What the figures of the local file system are those of.
    pub(crate) beside: &'static str,
}

impl Report {
    /// Looks that showed what was before.
    pub fn stale(&self) -> u64 {
        let stale = self.figures.iter().filter(|figure| figure.unit == Unit::Stale);
        stale.map(|figure| figure.median() as u64).sum()
    }

    /// Adds what the figures themselves give reason to doubt.
    pub(crate) fn judge(&mut self) {
        if self.machine.is_busy() {
            let Machine { load, cores, .. } = self.machine;
            self.warnings
                .push(format!("the machine was busy: a load of {load} on {cores} cores when it began"));
        }
        if self.runs < RUNS_MIN {
            self.warnings.push(format!("{} is too few runs to tell a difference from chance", self.runs));
        }
        let sides =
            [("", Figure::spread as fn(&Figure) -> f64), (" on the local file system", Figure::local_spread)];
        for (place, spread) in sides {
            let noisy = self.figures.iter().filter(|figure| spread(figure) > SPREAD_MAX);
            let list: Vec<String> =
                noisy.map(|figure| format!("{} by ±{:.0} %", figure.name, spread(figure) * 100.0)).collect();
            if !list.is_empty() {
                self.warnings.push(format!("runs differ{place}: {}", list.join(", ")));
            }
        }
    }

    /// One document.
    pub fn to_json(&self) -> Json {
        json!({
            "format": 1,
            "bench": self.bench,
            "version": self.version,
            "started": show_time(self.started),
            "machine": self.machine.to_json(),
            "file_system": self.file_system.to_json(),
            "local_file_system": self.local.as_ref().map(FileSystem::to_json),
            "settings": self.settings,
            "runs": self.runs,
            "beside": self.beside,
            "figures": self.figures.iter().map(Figure::to_json).collect::<Vec<_>>(),
            "notes": self.notes,
            "warnings": self.warnings,
        })
    }
}

/// The middle one, or the mean of the two in the middle; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Half of the range, as a share of the median.
fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    if middle <= 0.0 {
        return 0.0;
    }
    let (least, most) =
        values.iter().fold((f64::MAX, f64::MIN), |(least, most), value| (value.min(least), value.max(most)));
    (most - least) / 2.0 / middle
}

/// Seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// Runs below which nothing can be said of chance.
const RUNS_MIN: usize = 3;
/// More is noise to be warned of.
const SPREAD_MAX: f64 = 0.1;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!((median(&[]), median(&[3.0]), median(&[4.0, 1.0, 2.0])), (0.0, 3.0, 2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!((spread(&[]), spread(&[5.0]), spread(&[9.0, 10.0, 12.0])), (0.0, 0.0, 0.15));
    }

    #[test]
    fn ratios_above_one_are_better_whatever_the_unit() {
        let figure = |unit, own: f64, local: f64| Figure {
            name: String::new(),
            unit,
            values: vec![own],
            local: vec![local],
            count: 1,
            cpu_us: CpuShare::default(),
            series: Vec::new(),
            delays: None,
            local_delays: None,
            shares: None,
            counters: Vec::new(),
        };
        assert_eq!(figure(Unit::PerSecond, 20.0, 10.0).ratio(), Some(2.0));
        assert_eq!(figure(Unit::Seconds, 10.0, 20.0).ratio(), Some(2.0));
        assert_eq!(Figure { local: Vec::new(), ..figure(Unit::Seconds, 1.0, 1.0) }.ratio(), None);
    }
}
