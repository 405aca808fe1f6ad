//! Makes an input smaller that breaks something.

use std::time::{Duration, Instant};

/// The smallest input found within `time` that still fails.
pub fn shrink(input: &[u8], time: Duration, mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let until = Instant::now() + time;
    let mut best = input.to_vec();
    let mut step = best.len().next_power_of_two() / 2;
    while step > 0 && Instant::now() < until {
        let mut at = 0;
        while at < best.len() && Instant::now() < until {
            let mut smaller = best.clone();
            smaller.drain(at..(at + step).min(best.len()));
            if fails(&smaller) {
                best = smaller;
            } else {
                at += step;
            }
        }
        step /= 2;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_goes() {
        let input: Vec<u8> = (0..200).collect();
        let both = |bytes: &[u8]| bytes.contains(&3) && bytes.contains(&190);
        assert_eq!(shrink(&input, Duration::from_secs(10), both), [3, 190]);
    }
}
