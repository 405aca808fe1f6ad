//! What is known of one target: its samples as figures, its failures, and what has not returned.

use obs::{Histogram, HistogramSnapshot};

use crate::stats::{DELAY_NS_MAX, QuickAttack, Window};
use crate::units::seconds;

/// Everything counted of one target since the start.
#[derive(Debug)]
pub struct Series {
    interval_ns: u64,
    window: Window,
    quick: QuickAttack,
    /// Microseconds, rounded up. See [`Self::handle_end`] for what a long delay counts.
    histogram: Histogram,
    count: u64,
    max_ns: u64,
    total_ns: u128,
    errors: u64,
    missed: u64,
    late: u64,
    last_error: Option<String>,
    /// Whether the last I/O failed.
    is_failing: bool,
    /// When the I/O began that has not returned.
    pending_since_ns: Option<u64>,
    /// When one returned last.
    last_end_ns: Option<u64>,
}

/// Figures of one moment, in seconds. None where nothing was measured yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Latest delay.
    pub last: Option<f64>,
    /// Mean of the window.
    pub davg: Option<f64>,
    /// Standard deviation of the window.
    pub dstd_dev: Option<f64>,
    /// Smallest of the window.
    pub dmin: Option<f64>,
    /// Largest of the window.
    pub dmax: Option<f64>,
    /// Quick-attack minimum.
    pub emin: Option<f64>,
    /// Quick-attack maximum.
    pub emax: Option<f64>,
    /// Median of the run.
    pub p50: Option<f64>,
    /// 99th percentile of the run.
    pub p99: Option<f64>,
    /// 99.9th percentile of the run.
    pub p999: Option<f64>,
    /// Longest of the run.
    pub max: Option<f64>,
    /// How long the I/O has been waited for that has not returned.
    pub pending: Option<f64>,
    /// How many returned with success.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// How many were not started because one before them had not returned.
    pub missed: u64,
    /// How many took longer than an interval, the pending one included.
    pub late: u64,
}

impl Series {
    /// Nothing measured yet; one I/O each `interval_ns`, a window of `window` samples.
    pub fn new(interval_ns: u64, window: usize) -> Self {
        Self {
            interval_ns: interval_ns.max(1),
            window: Window::new(window),
            quick: QuickAttack::new(window),
            histogram: Histogram::default(),
            count: 0,
            max_ns: 0,
            total_ns: 0,
            errors: 0,
            missed: 0,
            late: 0,
            last_error: None,
            is_failing: false,
            pending_since_ns: None,
            last_end_ns: None,
        }
    }

    /// The target is open: what was pending was the opening.
    pub fn handle_open(&mut self, at_ns: u64) {
        self.pending_since_ns = None;
        self.last_end_ns = Some(at_ns);
    }

    /// An I/O began.
    pub fn handle_begin(&mut self, at_ns: u64) {
        self.pending_since_ns = Some(at_ns);
    }

    /// The I/O returned, `delay_ns` after it began.
    ///
    /// Those that were not started meanwhile would have waited too: for each interval that the delay spans, the
    /// histogram also gets what the I/O due then would have had to wait. Without that a stall of a minute would be
    /// one sample among thousands and vanish from p99. A failed I/O counts as an error and has no delay.
    pub fn handle_end(&mut self, at_ns: u64, delay_ns: u64, error: Option<&str>) {
        self.pending_since_ns = None;
        self.last_end_ns = Some(at_ns);
        let delay_ns = delay_ns.min(DELAY_NS_MAX);
        let missed = delay_ns / self.interval_ns;
        self.missed = self.missed.saturating_add(missed);
        self.late += u64::from(missed > 0);
        if let Some(error) = error {
            self.errors += 1;
            self.is_failing = true;
            self.last_error = Some(error.to_owned());
            return;
        }
        self.is_failing = false;
        self.count += 1;
        self.max_ns = self.max_ns.max(delay_ns);
        self.total_ns += u128::from(delay_ns);
        self.window.push(delay_ns);
        self.quick.push(&self.window);
        self.histogram.record(delay_ns.div_ceil(1000));
        for skipped in 1..=missed.min(CORRECTIONS_MAX) {
            self.histogram.record((delay_ns - skipped * self.interval_ns).div_ceil(1000));
        }
    }

    /// How long the I/O has been waited for that has not returned.
    pub fn pending_ns(&self, now_ns: u64) -> Option<u64> {
        self.pending_since_ns.map(|since| now_ns.saturating_sub(since).min(DELAY_NS_MAX))
    }

    /// Whether an I/O is overdue: the next was due for some time, and it has not returned.
    pub fn is_overdue(&self, now_ns: u64) -> bool {
        self.pending_ns(now_ns).is_some_and(|pending| pending > self.interval_ns.max(OVERDUE_NS_MIN))
    }

    fn is_late(&self, now_ns: u64) -> bool {
        self.pending_ns(now_ns).is_some_and(|pending| pending > self.interval_ns)
    }

    /// When one returned last, failed ones included.
    pub fn last_end_ns(&self) -> Option<u64> {
        self.last_end_ns
    }

    /// Whether the last I/O failed.
    pub fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// What the last failure said.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// How many delays the window holds.
    pub fn window_len(&self) -> usize {
        self.window.len()
    }

    /// Sum of all delays in seconds.
    pub fn total(&self) -> f64 {
        self.total_ns as f64 / 1e9
    }

    /// All delays, and what those would have waited who were not asked.
    pub fn histogram(&self) -> HistogramSnapshot {
        self.histogram.snapshot()
    }

    /// The figures as of `now_ns`.
    pub fn figures(&self, now_ns: u64) -> Figures {
        let histogram = self.histogram.snapshot();
        let is_any = self.count > 0;
        // Buckets are whole microseconds, rounded up: no quantile is beyond the longest.
        let quantile = |us: u64| is_any.then(|| seconds((us * 1000).min(self.max_ns)));
        let in_seconds = |ns: f64| ns / 1e9;
        Figures {
            last: self.window.last().map(seconds),
            davg: self.window.mean().map(in_seconds),
            dstd_dev: self.window.deviation().map(in_seconds),
            dmin: self.window.min().map(seconds),
            dmax: self.window.max().map(seconds),
            emin: self.quick.min().map(in_seconds),
            emax: self.quick.max().map(in_seconds),
            p50: quantile(histogram.p50()),
            p99: quantile(histogram.p99()),
            p999: quantile(histogram.p999()),
            max: is_any.then(|| seconds(self.max_ns)),
            pending: self.pending_ns(now_ns).map(seconds),
            count: self.count,
            errors: self.errors,
            missed: self.missed,
            late: self.late + u64::from(self.is_late(now_ns)),
        }
    }
}

/// At shorter intervals a delay of a few of them is nothing to be woken for.
const OVERDUE_NS_MIN: u64 = 1_000_000_000;
/// Most I/Os that one long delay stands for: bounds the work of a delay that spans very many intervals.
const CORRECTIONS_MAX: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn series() -> Series {
        Series::new(1000 * MS, 10)
    }

    #[test]
    fn quantiles_agree_with_a_sorted_list_within_a_bucket() {
        let mut series = series();
        let mut delays: Vec<u64> = (0..2000u64).map(|i| 100_000 + (i * i * 7919) % 5_000_000).collect();
        for delay in &delays {
            series.handle_begin(0);
            series.handle_end(0, *delay, None);
        }
        delays.sort_unstable();
        let figures = series.figures(0);
        for (found, per_mille) in [(figures.p50, 500), (figures.p99, 990), (figures.p999, 999)] {
            let exact = seconds(delays[(2000 * per_mille / 1000) - 1]);
            let found = found.unwrap();
            assert!(
                found >= exact && found <= exact * (1.0 + 1.0 / 16.0) + 2e-6,
                "{per_mille}: {found} {exact}"
            );
        }
        assert_eq!(figures.max, Some(seconds(delays[1999])));
        assert_eq!((figures.count, figures.errors, figures.missed, figures.late), (2000, 0, 0, 0));
    }

    #[test]
    fn a_stall_counts_for_all_that_would_have_waited() {
        let mut series = series();
        for _ in 0..90 {
            series.handle_end(0, MS, None);
        }
        series.handle_end(0, 10_500 * MS, None);
        let figures = series.figures(0);
        // 10.5 s, and 9.5, 8.5 ... 0.5 s: eleven of 101, so p99 is the second longest.
        assert_eq!((figures.count, figures.missed, figures.late), (91, 10, 1));
        assert!((9.5..=9.5 * 17.0 / 16.0).contains(&figures.p99.unwrap()), "{figures:?}");
        assert!((0.0009..=0.0011).contains(&figures.p50.unwrap()));
        assert_eq!((figures.last, figures.max), (Some(10.5), Some(10.5)));
    }

    #[test]
    fn what_does_not_return_is_pending_and_counts_as_late_after_an_interval() {
        let mut series = series();
        series.handle_begin(5000 * MS);
        assert_eq!(series.figures(5400 * MS).pending, Some(0.4));
        assert!(!series.is_overdue(6000 * MS) && series.is_overdue(6001 * MS));
        assert_eq!((series.figures(7500 * MS).pending, series.figures(7500 * MS).late), (Some(2.5), 1));
        series.handle_end(7500 * MS, 2500 * MS, None);
        assert_eq!((series.figures(9000 * MS).pending, series.figures(9000 * MS).late), (None, 1));
    }

    #[test]
    fn a_failure_is_counted_and_has_no_delay() {
        let mut series = series();
        series.handle_begin(0);
        series.handle_end(MS, MS, Some("Input/output error"));
        let figures = series.figures(MS);
        assert_eq!((figures.errors, figures.count, figures.last, figures.p99), (1, 0, None, None));
        assert_eq!(series.last_error(), Some("Input/output error"));
    }

    #[test]
    fn a_delay_of_all_time_is_taken() {
        let mut series = Series::new(1, 10);
        series.handle_end(0, u64::MAX, None);
        assert_eq!(series.figures(0).max, Some(seconds(DELAY_NS_MAX)));
    }
}
