//! Times of which is asked only whether they were lately.

use types::Micros;

/// When something was, in units of 1,024 us that begin anew every 50 days. What nobody knows counts as just now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lately(u32);

impl Lately {
    pub(crate) const UNKNOWN: Self = Self(0);

    pub(crate) fn at(now: Micros) -> Self {
        Self(units(now).max(1))
    }

    /// Whether less than `span` has passed since. So close to it that the unit does not tell, it says yes.
    pub(crate) fn is_within(self, span: Micros, now: Micros) -> bool {
        let passed = units(now).wrapping_sub(self.0).wrapping_add(BACK);
        self == Self::UNKNOWN || u64::from(passed) <= (span.0 >> UNIT_SHIFT) + 1 + u64::from(BACK)
    }
}

const UNIT_SHIFT: u32 = 10;
/// So many units a time may lie ahead of what another thread takes for now: a second.
const BACK: u32 = 1000;

fn units(time: Micros) -> u32 {
    (time.0 >> UNIT_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lately_is_told_to_a_few_milliseconds() {
        let span = Micros(100_000);
        for start in [0, 1, 5_000_000, (1 << 42) - 50_000, 1 << 42, (1 << 42) + 3] {
            let (was, at) = (Lately::at(Micros(start)), |passed| Micros(start + passed));
            for passed in [0, 1, 50_000, 99_999] {
                assert!(was.is_within(span, at(passed)), "{start} + {passed}");
            }
            for passed in [103_072, 200_000, 86_400_000_000, 40 * 86_400_000_000] {
                assert!(!was.is_within(span, at(passed)), "{start} + {passed}");
            }
        }
        assert!(Lately::at(Micros(900_000)).is_within(span, Micros(0)), "clocks of two threads");
        assert!(Lately::UNKNOWN.is_within(span, Micros(5_000_000_000)));
    }
}
