//! Log-linear histogram of microseconds.
//!
//! Values below 16 have a bucket each; above, every power of two is cut into 16 equal buckets, so a
//! reported quantile is at most 1/16 too high and never too low. Values from 2^32 us (71 minutes) share the last bucket.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::metric::Single;
use crate::snapshot::Value;

/// Durations in microseconds, recorded without a lock.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64; BUCKETS]>,
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl Histogram {
    /// Records one duration.
    pub fn record(&self, us: u64) {
        self.buckets[bucket_of(us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
        if us > self.max_us.load(Relaxed) {
            self.max_us.fetch_max(us, Relaxed);
        }
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Their sum in microseconds.
    pub fn sum(&self) -> u64 {
        self.sum_us.load(Relaxed)
    }

    /// The longest, exactly, in microseconds; 0 when nothing was recorded.
    pub fn max(&self) -> u64 {
        self.max_us.load(Relaxed)
    }

    /// Median in microseconds, rounded up to its bucket's end.
    pub fn p50(&self) -> u64 {
        self.snapshot().p50()
    }

    /// 99th percentile in microseconds, rounded up to its bucket's end.
    pub fn p99(&self) -> u64 {
        self.snapshot().p99()
    }

    /// 99.9th percentile in microseconds, rounded up to its bucket's end.
    pub fn p999(&self) -> u64 {
        self.snapshot().p999()
    }

    /// A copy of the moment.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets = (0u16..).zip(self.buckets.iter());
        HistogramSnapshot {
            buckets: buckets.map(|(i, b)| (i, b.load(Relaxed))).filter(|(_, n)| *n > 0).collect(),
            sum_us: self.sum(),
            max_us: self.max(),
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: Box::new([const { AtomicU64::new(0) }; BUCKETS]),
            sum_us: AtomicU64::new(0),
            max_us: AtomicU64::new(0),
        }
    }
}

impl Single for Histogram {
    fn value(&self) -> Value {
        Value::Histogram(self.snapshot())
    }
}

/// A histogram at one moment, or the difference of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Bucket number and count, ascending, counts above zero.
    buckets: Vec<(u16, u64)>,
    sum_us: u64,
    max_us: u64,
}

impl HistogramSnapshot {
    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, n)| n).sum()
    }

    /// Their sum in microseconds.
    pub fn sum(&self) -> u64 {
        self.sum_us
    }

    /// The longest in microseconds. In a difference it is exact when the interval held the longest of
    /// all, else rounded up to its bucket's end.
    pub fn max(&self) -> u64 {
        self.max_us
    }

    /// Median in microseconds.
    pub fn p50(&self) -> u64 {
        self.quantile(500)
    }

    /// 99th percentile in microseconds.
    pub fn p99(&self) -> u64 {
        self.quantile(990)
    }

    /// 99.9th percentile in microseconds.
    pub fn p999(&self) -> u64 {
        self.quantile(999)
    }

    /// How many lie below `bound_us`, which must be a power of two of at least 16 to be exact.
    pub fn count_below(&self, bound_us: u64) -> u64 {
        self.buckets.iter().filter(|(i, _)| bucket_last(*i) < bound_us).map(|(_, n)| n).sum()
    }

    /// Pairs of each filled bucket's longest duration in microseconds and its count, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().map(|(i, n)| (bucket_last(*i), *n))
    }

    /// Rebuilds one from [`Self::buckets`], sum and maximum.
    pub fn from_parts(buckets: impl Iterator<Item = (u64, u64)>, sum_us: u64, max_us: u64) -> Self {
        let mut built = Self { buckets: Vec::new(), sum_us, max_us };
        for (last_us, count) in buckets {
            built.add_bucket(bucket_of(last_us) as u16, count);
        }
        built
    }

    /// What was recorded after `earlier`.
    pub fn delta(&self, earlier: &Self) -> Self {
        let mut buckets = self.buckets.clone();
        for (index, count) in &mut buckets {
            if let Ok(at) = earlier.buckets.binary_search_by_key(index, |(i, _)| *i) {
                *count = count.saturating_sub(earlier.buckets[at].1);
            }
        }
        buckets.retain(|(_, count)| *count > 0);
        let max_us = match buckets.last() {
            None => 0,
            Some(_) if self.max_us > earlier.max_us => self.max_us,
            Some((index, _)) => bucket_last(*index).min(self.max_us),
        };
        Self { buckets, sum_us: self.sum_us.saturating_sub(earlier.sum_us), max_us }
    }

    /// Adds what `other` holds.
    pub fn merge(&mut self, other: &Self) {
        for (index, count) in &other.buckets {
            self.add_bucket(*index, *count);
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.max_us = self.max_us.max(other.max_us);
    }

    fn add_bucket(&mut self, index: u16, count: u64) {
        match self.buckets.binary_search_by_key(&index, |(i, _)| *i) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) if count > 0 => self.buckets.insert(at, (index, count)),
            Err(_) => {}
        }
    }

    /// The end of the bucket that holds the value of rank `ceil(count * per_mille / 1000)`, but no
    /// more than the maximum.
    fn quantile(&self, per_mille: u64) -> u64 {
        let rank = (u128::from(self.count()) * u128::from(per_mille)).div_ceil(1000).max(1);
        let mut seen = 0u128;
        for (index, count) in &self.buckets {
            seen += u128::from(*count);
            if seen >= rank {
                return bucket_last(*index).min(self.max_us);
            }
        }
        self.max_us
    }
}

/// Buckets per power of two, as a power of two.
const SUB_BITS: u32 = 4;
/// Values from `1 << TOP_BITS` on share the last bucket.
const TOP_BITS: u32 = 32;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = SUB + (TOP_BITS - SUB_BITS) as usize * SUB;

fn bucket_of(us: u64) -> usize {
    let us = us.min((1 << TOP_BITS) - 1);
    if us < SUB as u64 {
        return us as usize;
    }
    let power = 63 - us.leading_zeros();
    let within = (us >> (power - SUB_BITS)) as usize - SUB;
    SUB + (power - SUB_BITS) as usize * SUB + within
}

/// The longest duration that falls into bucket `index`.
fn bucket_last(index: u16) -> u64 {
    let index = usize::from(index);
    if index < SUB {
        return index as u64;
    }
    let (power, within) = ((index - SUB) / SUB, (index - SUB) % SUB);
    (((SUB + within + 1) as u64) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_once_and_in_order() {
        for index in 0..BUCKETS as u16 {
            let last = bucket_last(index);
            assert_eq!(bucket_of(last), usize::from(index));
            if usize::from(index) + 1 < BUCKETS {
                assert_eq!(bucket_of(last + 1), usize::from(index) + 1);
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_at_most_a_sixteenth_too_high() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.record(us));
        assert_eq!((histogram.count(), histogram.sum(), histogram.max()), (1000, 500_500, 1000));
        for (found, exact) in [(histogram.p50(), 500), (histogram.p99(), 990), (histogram.p999(), 999)] {
            assert!(found >= exact && found <= exact + exact / 16, "{found} for {exact}");
        }
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        let histogram = Histogram::default();
        assert_eq!((histogram.count(), histogram.p50(), histogram.p999(), histogram.max()), (0, 0, 0, 0));
    }

    #[test]
    fn delta_holds_only_the_interval() {
        let histogram = Histogram::default();
        histogram.record(1_000_000);
        let earlier = histogram.snapshot();
        histogram.record(10);
        histogram.record(12);
        let delta = histogram.snapshot().delta(&earlier);
        assert_eq!((delta.count(), delta.sum(), delta.p50(), delta.max()), (2, 22, 10, 12));
        assert_eq!(earlier.delta(&earlier), HistogramSnapshot::default());
    }

    #[test]
    fn parts_rebuild_the_same_histogram() {
        let histogram = Histogram::default();
        [0, 3, 17, 900, 70_000, u64::MAX / 4].into_iter().for_each(|us| histogram.record(us));
        let snapshot = histogram.snapshot();
        let rebuilt = HistogramSnapshot::from_parts(snapshot.buckets(), snapshot.sum(), snapshot.max());
        assert_eq!(rebuilt, snapshot);
    }

    #[test]
    fn count_below_is_exact_at_powers_of_two() {
        let histogram = Histogram::default();
        [15, 16, 63, 64].into_iter().for_each(|us| histogram.record(us));
        let snapshot = histogram.snapshot();
        assert_eq!([16, 64, 256].map(|bound| snapshot.count_below(bound)), [1, 3, 4]);
    }
}
