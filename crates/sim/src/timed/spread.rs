//! How a quantity is spread.

use std::fmt;

use types::Micros;

/// Samples of one quantity.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    sorted: Vec<u64>,
}

impl Spread {
    /// Of these samples.
    pub fn new(samples: impl IntoIterator<Item = Micros>) -> Self {
        let mut sorted: Vec<u64> = samples.into_iter().map(|sample| sample.0).collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest sample that at least `percent` of all do not exceed; 0 of none.
    pub fn at(&self, percent: f64) -> u64 {
        let rank = (percent / 100.0 * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// The greatest.
    pub fn max(&self) -> u64 {
        self.sorted.last().copied().unwrap_or(0)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99, max) = (self.at(50.0), self.at(99.0), self.max());
        write!(f, "{:>7} p50 {p50:>6} us  p99 {p99:>7} us  max {max:>7} us", self.count())
    }
}
