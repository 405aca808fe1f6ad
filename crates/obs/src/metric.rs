//! Counters and gauges: relaxed atomics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::labels::Tables;
use crate::snapshot::{Cell, Value};

/// Something with cells that a snapshot can read; implemented by every field type of `Metrics`.
pub(crate) trait Measure {
    /// Makes it with nothing recorded.
    fn create(tables: &Tables) -> Self;
    /// Label names, outermost first; empty where there are none.
    fn label_names(&self) -> Vec<&'static str>;
    /// Reads every cell, in label order.
    fn read(&self) -> Vec<Cell>;
}

/// A single number or histogram: what a family has one of per label.
pub(crate) trait Single {
    /// Reads it.
    fn value(&self) -> Value;
}

impl<S: Single + Default> Measure for S {
    fn create(_: &Tables) -> Self {
        Self::default()
    }

    fn label_names(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn read(&self) -> Vec<Cell> {
        vec![Cell { labels: Vec::new(), value: self.value() }]
    }
}

/// Counts up only.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        // A locked instruction costs more than the question.
        if n > 0 {
            self.0.fetch_add(n, Relaxed);
        }
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Single for Counter {
    fn value(&self) -> Value {
        Value::Counter(self.get())
    }
}

/// Goes up and down, and remembers the highest value it had.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicI64,
    peak: AtomicI64,
}

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: i64) {
        self.now.store(value, Relaxed);
        self.raise(value);
    }

    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.raise(self.now.fetch_add(n, Relaxed).wrapping_add(n));
    }

    fn raise(&self, value: i64) {
        if value > self.peak.load(Relaxed) {
            self.peak.fetch_max(value, Relaxed);
        }
    }

    /// The value.
    pub fn get(&self) -> i64 {
        self.now.load(Relaxed)
    }

    /// The highest value so far, at least 0.
    pub fn peak(&self) -> i64 {
        self.peak.load(Relaxed)
    }
}

impl Single for Gauge {
    fn value(&self) -> Value {
        Value::Gauge { now: self.get(), peak: self.peak() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counter, Gauge};

    #[test]
    fn counter_adds() {
        let counter = Counter::default();
        counter.add(2);
        counter.add(3);
        assert_eq!(counter.get(), 5);
    }

    #[test]
    fn gauge_remembers_its_peak() {
        let gauge = Gauge::default();
        gauge.add(7);
        gauge.add(-5);
        gauge.set(4);
        assert_eq!((gauge.get(), gauge.peak()), (4, 7));
    }
}
