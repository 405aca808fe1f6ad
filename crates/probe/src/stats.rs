//! The statistics of a watch: a window of the last samples, and extremes that attack at once and decay slowly.
//!
//! All integer sums are exact, so a replay gives the figures of the run to the last bit.

use std::collections::VecDeque;

/// Longest delay that is told apart, about 19 hours; a longer one counts as this.
pub const DELAY_NS_MAX: u64 = 1 << 46;
/// Most samples of a window.
pub const WINDOW_MAX: usize = 100_000;

/// The last n delays, in nanoseconds, with their sums and extremes.
///
/// Invariants: `sum` and `square_sum` are those of `delays`; the values of `lows` rise and those of `highs` fall from
/// front to back, so the fronts are the window's extremes.
#[derive(Clone, Debug)]
pub struct Window {
    capacity: usize,
    delays: VecDeque<u64>,
    /// Number of the next delay, counted from the first ever.
    next: u64,
    sum: u128,
    square_sum: u128,
    lows: VecDeque<(u64, u64)>,
    highs: VecDeque<(u64, u64)>,
}

impl Window {
    /// An empty window of the last `capacity` delays, at least 1 and at most [`WINDOW_MAX`].
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, WINDOW_MAX);
        let (delays, lows, highs) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { capacity, delays, next: 0, sum: 0, square_sum: 0, lows, highs }
    }

    /// Takes in the next delay; the oldest leaves when the window is full.
    pub fn push(&mut self, delay_ns: u64) {
        let delay = delay_ns.min(DELAY_NS_MAX);
        if self.delays.len() == self.capacity
            && let Some(oldest) = self.delays.pop_front()
        {
            self.sum -= u128::from(oldest);
            self.square_sum -= u128::from(oldest).pow(2);
        }
        self.delays.push_back(delay);
        self.sum += u128::from(delay);
        // At most 2^92 each, and fewer than 2^17 of them: far from the end of u128, even times the count.
        self.square_sum += u128::from(delay).pow(2);
        let oldest = (self.next + 1).saturating_sub(self.capacity as u64);
        keep_extremes(&mut self.lows, self.next, delay, oldest, |kept| kept >= delay);
        keep_extremes(&mut self.highs, self.next, delay, oldest, |kept| kept <= delay);
        self.next += 1;
    }

    /// How many delays are in the window.
    pub fn len(&self) -> usize {
        self.delays.len()
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.delays.is_empty()
    }

    /// Latest delay.
    pub fn last(&self) -> Option<u64> {
        self.delays.back().copied()
    }

    /// Smallest delay.
    pub fn min(&self) -> Option<u64> {
        self.lows.front().map(|(_, delay)| *delay)
    }

    /// Largest delay.
    pub fn max(&self) -> Option<u64> {
        self.highs.front().map(|(_, delay)| *delay)
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.len() as f64)
    }

    /// Standard deviation of a sample (divided by n - 1); 0 of a single delay.
    pub fn deviation(&self) -> Option<f64> {
        let n = self.len() as u128;
        match n {
            0 => None,
            1 => Some(0.0),
            // Never below zero, by the inequality of Cauchy and Schwarz; exact in integers.
            _ => Some(((n * self.square_sum - self.sum.pow(2)) as f64 / (n * (n - 1)) as f64).sqrt()),
        }
    }
}

/// Drops from the back what the new delay outdoes, and from the front what left the window.
fn keep_extremes(
    kept: &mut VecDeque<(u64, u64)>,
    number: u64,
    delay: u64,
    oldest: u64,
    is_outdone: impl Fn(u64) -> bool,
) {
    while kept.back().is_some_and(|(_, delay)| is_outdone(*delay)) {
        kept.pop_back();
    }
    kept.push_back((number, delay));
    while kept.front().is_some_and(|(number, _)| *number < oldest) {
        kept.pop_front();
    }
}

/// "Quick attack" extremes: a new extreme counts at once and in full, else the value decays exponentially towards the
/// extreme of the window.
///
/// With `a = 2 / (n + 1)` of a window of n: `emax = x` if `x >= emax`, else `emax + a * (dmax - emax)`; `emin` likewise
/// with `dmin`. So `emin <= dmin` and `dmax <= emax` always.
#[derive(Clone, Copy, Debug)]
pub struct QuickAttack {
    weight: f64,
    extremes: Option<(f64, f64)>,
}

impl QuickAttack {
    /// Extremes over a window of `capacity` delays.
    pub fn new(capacity: usize) -> Self {
        Self { weight: 2.0 / (capacity.clamp(1, WINDOW_MAX) as f64 + 1.0), extremes: None }
    }

    /// Takes in the latest delay of `window`, which was pushed there before.
    pub fn push(&mut self, window: &Window) {
        let (Some(last), Some(low), Some(high)) = (window.last(), window.min(), window.max()) else { return };
        let (last, low, high) = (last as f64, low as f64, high as f64);
        self.extremes = Some(match self.extremes {
            None => (last, last),
            Some((emin, emax)) => (
                if last <= emin { last } else { emin + self.weight * (low - emin) },
                if last >= emax { last } else { emax + self.weight * (high - emax) },
            ),
        });
    }

    /// `emin` in nanoseconds.
    pub fn min(&self) -> Option<f64> {
        self.extremes.map(|(low, _)| low)
    }

    /// `emax` in nanoseconds.
    pub fn max(&self) -> Option<f64> {
        self.extremes.map(|(_, high)| high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delays that look like a disk's: mostly near 300 us, sometimes far off. Numerical Recipes' generator.
    fn delays(count: usize) -> Vec<u64> {
        let mut state = 12_345u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        (0..count)
            .map(|_| if next() % 50 == 0 { next() % 2_000_000_000 } else { 250_000 + next() % 100_000 })
            .collect()
    }

    #[test]
    fn the_window_agrees_with_plain_sums_over_the_last_n() {
        for capacity in [1, 2, 7, 100] {
            let mut window = Window::new(capacity);
            let all = delays(500);
            for end in 1..=all.len() {
                window.push(all[end - 1]);
                let part = &all[end.saturating_sub(capacity)..end];
                let mean = part.iter().sum::<u64>() as f64 / part.len() as f64;
                let squares: f64 = part.iter().map(|x| (*x as f64 - mean).powi(2)).sum();
                let deviation =
                    if part.len() == 1 { 0.0 } else { (squares / (part.len() - 1) as f64).sqrt() };
                assert_eq!((window.len(), window.last()), (part.len(), part.last().copied()));
                assert_eq!(
                    (window.min(), window.max()),
                    (part.iter().min().copied(), part.iter().max().copied())
                );
                assert!((window.mean().unwrap() - mean).abs() <= mean * 1e-12);
                assert!(
                    (window.deviation().unwrap() - deviation).abs() <= mean * 1e-9,
                    "{end} of {capacity}"
                );
            }
        }
    }

    #[test]
    fn the_longest_delays_do_not_overflow() {
        let mut window = Window::new(WINDOW_MAX);
        (0..WINDOW_MAX + 5).for_each(|i| window.push(if i % 2 == 0 { u64::MAX } else { 0 }));
        assert_eq!((window.max(), window.min()), (Some(DELAY_NS_MAX), Some(0)));
        let half = DELAY_NS_MAX as f64 / 2.0;
        assert!((window.mean().unwrap() - half).abs() <= half * 1e-4);
        assert!((window.deviation().unwrap() - half).abs() <= half * 1e-4);
    }

    #[test]
    fn a_new_extreme_counts_at_once_and_decays_when_it_has_left_the_window() {
        let (mut window, mut quick) = (Window::new(3), QuickAttack::new(3));
        let mut found = Vec::new();
        for delay in [10, 100, 10, 10, 10, 10] {
            window.push(delay);
            quick.push(&window);
            found.push((quick.min().unwrap(), quick.max().unwrap()));
        }
        // 2 / (3 + 1) of the way each time, from the sample on with which 100 leaves the window.
        assert_eq!(
            found,
            [(10.0, 10.0), (10.0, 100.0), (10.0, 100.0), (10.0, 100.0), (10.0, 55.0), (10.0, 32.5)]
        );
        window.push(4);
        quick.push(&window);
        assert_eq!(quick.min(), Some(4.0));
    }

    #[test]
    fn quick_extremes_enclose_those_of_the_window() {
        let (mut window, mut quick) = (Window::new(20), QuickAttack::new(20));
        for delay in delays(2000) {
            window.push(delay);
            quick.push(&window);
            assert!(quick.min().unwrap() <= window.min().unwrap() as f64 + 1e-6);
            assert!(quick.max().unwrap() >= window.max().unwrap() as f64 - 1e-6);
        }
    }

    #[test]
    fn nothing_is_said_of_an_empty_window() {
        let window = Window::new(5);
        assert_eq!((window.mean(), window.deviation(), window.min()), (None, None, None));
        assert_eq!(QuickAttack::new(5).max(), None);
    }
}
