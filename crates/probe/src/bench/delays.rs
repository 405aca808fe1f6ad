//! How long calls took that were timed one by one.

use serde_json::{Value as Json, json};

use crate::units::seconds;

/// Percentiles and a histogram, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "percentiles have their names")]
pub struct Delays {
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub max: f64,
    /// How many took up to so many seconds, and longer than those before: powers of two of a microsecond.
    pub histogram: Vec<(f64, u64)>,
}

impl Delays {
    /// Of nanoseconds, in any order; `None` of none.
    pub(crate) fn of(mut delays: Vec<u64>) -> Option<Self> {
        delays.sort_unstable();
        let len = delays.len();
        let max = seconds(*delays.last()?);
        // The smallest one that so many are not above.
        let at = |share: f64| seconds(delays[((len as f64 * share).ceil() as usize).clamp(1, len) - 1]);
        let mut histogram: Vec<(f64, u64)> = Vec::new();
        for delay in &delays {
            let bound = seconds(delay.div_ceil(1000).next_power_of_two().saturating_mul(1000));
            match histogram.last_mut() {
                Some((last, count)) if *last == bound => *count += 1,
                Some(_) | None => histogram.push((bound, 1)),
            }
        }
        Some(Self { p50: at(0.5), p99: at(0.99), p99_9: at(0.999), max, histogram })
    }

    pub(crate) fn to_json(&self) -> Json {
        json!({
            "p50": self.p50,
            "p99": self.p99,
            "p99_9": self.p99_9,
            "max": self.max,
            "histogram": self.histogram,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_values() {
        let found = Delays::of((1..=2000).rev().map(|n| n * 1000).collect()).unwrap();
        assert_eq!((found.p50, found.p99, found.p99_9, found.max), (1e-3, 1.98e-3, 1.998e-3, 2e-3));
        assert_eq!(found.histogram.iter().map(|(_, count)| count).sum::<u64>(), 2000);
        assert_eq!(found.histogram[..3], [(1e-6, 1), (2e-6, 1), (4e-6, 2)]);
        assert_eq!((Delays::of(Vec::new()), Delays::of(vec![5]).map(|one| one.p99_9)), (None, Some(5e-9)));
    }
}
