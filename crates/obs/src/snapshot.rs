//! All metrics at one moment, or what happened between two.

use std::fmt;

use crate::defs::{DEFINITIONS, Definition, Metrics};
use crate::histogram::HistogramSnapshot;

/// A copy of all metrics. Cells are read one after the other: sums of different metrics may be off by
/// what happened meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub(crate) series: Vec<Series>,
}

impl Metrics {
    /// Copies every metric.
    pub fn snapshot(&self) -> Snapshot {
        let mut series = Vec::with_capacity(DEFINITIONS.len());
        let mut definitions = DEFINITIONS.iter();
        self.for_each(|metric| {
            if let Some(definition) = definitions.next() {
                let label_names = metric.label_names().into_iter().map(str::to_owned).collect();
                series.push(Series { definition, label_names, cells: metric.read() });
            }
        });
        Snapshot { series }
    }
}

impl Snapshot {
    /// What happened after `earlier`: counters and histograms are subtracted, gauges stay as they are.
    ///
    /// A counter that is lower than it was (the node was started anew) counts from zero.
    pub fn delta(&self, earlier: &Self) -> Self {
        let series = self.series.iter().map(|series| match earlier.series(series.definition.name) {
            None => series.clone(),
            Some(before) => series.delta(before),
        });
        Self { series: series.collect() }
    }

    /// The metric called `name`, without prefix.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.definition.name == name)
    }

    /// Sum of a counter or gauge over all its labels, count of a histogram; 0 for an unknown name.
    pub fn sum(&self, name: &str) -> i128 {
        self.series(name).map_or(0, |series| match series.total() {
            Value::Counter(n) => i128::from(n),
            Value::Gauge { now, .. } => i128::from(now),
            Value::Histogram(histogram) => i128::from(histogram.count()),
        })
    }
}

/// One metric of a snapshot with all its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// What it means.
    pub definition: &'static Definition,
    /// Label names, outermost first; empty where there are none.
    pub label_names: Vec<String>,
    /// One per combination of label values; exactly one where there are no labels.
    pub cells: Vec<Cell>,
}

impl Series {
    /// All cells added up. A gauge's peak is that of its one cell, or the sum of all peaks.
    pub fn total(&self) -> Value {
        let mut cells = self.cells.iter().map(|cell| &cell.value);
        let first = cells.next().cloned().unwrap_or(Value::Counter(0));
        cells.fold(first, |sum, value| sum.plus(value))
    }

    fn delta(&self, earlier: &Self) -> Self {
        let cells = self.cells.iter().map(|cell| {
            let before = earlier.cells.iter().find(|other| other.labels == cell.labels);
            let value = before.map_or_else(|| cell.value.clone(), |before| cell.value.delta(&before.value));
            Cell { labels: cell.labels.clone(), value }
        });
        Self { definition: self.definition, label_names: self.label_names.clone(), cells: cells.collect() }
    }
}

/// One value with its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Label values in the order of [`Series::label_names`].
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of a counter.
    Counter(u64),
    /// Of a gauge: now, and the highest so far.
    Gauge {
        /// The value.
        now: i64,
        /// The highest it had.
        peak: i64,
    },
    /// Of a histogram.
    Histogram(HistogramSnapshot),
}

impl Value {
    /// Whether nothing was recorded.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Counter(n) => *n == 0,
            Self::Gauge { now, peak } => *now == 0 && *peak == 0,
            Self::Histogram(histogram) => histogram.count() == 0,
        }
    }

    fn delta(&self, earlier: &Self) -> Self {
        match (self, earlier) {
            (Self::Counter(now), Self::Counter(before)) => {
                Self::Counter(now.checked_sub(*before).unwrap_or(*now))
            }
            (Self::Histogram(now), Self::Histogram(before)) => Self::Histogram(now.delta(before)),
            (Self::Counter(_) | Self::Gauge { .. } | Self::Histogram(_), _) => self.clone(),
        }
    }

    fn plus(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Counter(a), Self::Counter(b)) => Self::Counter(a.saturating_add(*b)),
            (Self::Gauge { now: a, peak: c }, Self::Gauge { now: b, peak: d }) => {
                Self::Gauge { now: a.saturating_add(*b), peak: c.saturating_add(*d) }
            }
            (Self::Histogram(mut a), Self::Histogram(b)) => {
                a.merge(b);
                Self::Histogram(a)
            }
            // Cells of one series have one shape.
            (this, _) => this,
        }
    }
}

/// Why a JSON document is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// Which key is missing or wrong.
    pub key: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "counters of another version or damaged: key \"{}\" is missing or wrong", self.key)
    }
}

impl std::error::Error for ReadError {}
