//! Threshold ranges: `10`, `10:`, `~:10`, `10:20`, `@10:20`, with units of time.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::units::parse_seconds;

/// A range of seconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    start: f64,
    end: f64,
    alert: Alert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alert {
    Outside,
    Inside,
}

/// What is wrong with a range.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RangeError {
    #[error(
        "\"{0}\" is no threshold; expected a range of times like 20ms, 10ms:, ~:1s, 1ms:20ms or @1ms:20ms"
    )]
    Syntax(String),
    #[error("threshold \"{0}\" ends before it starts")]
    Order(String),
}

impl Range {
    /// Whether `value` raises an alert.
    pub fn is_alert(&self, value: f64) -> bool {
        let is_inside = self.start <= value && value <= self.end;
        match self.alert {
            Alert::Outside => !is_inside,
            Alert::Inside => is_inside,
        }
    }
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let syntax = || RangeError::Syntax(text.to_owned());
        let (alert, rest) = match text.strip_prefix('@') {
            Some(rest) => (Alert::Inside, rest),
            None => (Alert::Outside, text),
        };
        let number = |text: &str| match text.strip_prefix('-') {
            Some(text) => parse_seconds(text).map(|seconds| -seconds),
            None => parse_seconds(text),
        };
        let (start, end) = match rest.split_once(':') {
            None => (0.0, number(rest).ok_or_else(syntax)?),
            Some(("", "")) => return Err(syntax()),
            Some((start, end)) => {
                let start = match start {
                    "~" => f64::NEG_INFINITY,
                    "" => 0.0,
                    start => number(start).ok_or_else(syntax)?,
                };
                let end = if end.is_empty() { f64::INFINITY } else { number(end).ok_or_else(syntax)? };
                (start, end)
            }
        };
        if start > end {
            return Err(RangeError::Order(text.to_owned()));
        }
        Ok(Self { start, end, alert })
    }
}

/// As performance data have it: seconds without a unit.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.alert == Alert::Inside {
            f.write_str("@")?;
        }
        match self.start {
            f64::NEG_INFINITY => f.write_str("~:")?,
            0.0 if self.end < f64::INFINITY => {}
            start => write!(f, "{start}:")?,
        }
        if self.end < f64::INFINITY { write!(f, "{}", self.end) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_alert_as_the_guidelines_say() {
        // The guidelines' own table, and the same in units of time: range, alerts, does not.
        for (text, alerts, quiet) in [
            ("10", &[-0.1, 10.1][..], &[0.0, 10.0][..]),
            ("10:", &[9.9, -1.0], &[10.0, 1e9]),
            ("~:10", &[10.1], &[-1e9, 10.0]),
            ("10:20", &[9.9, 20.1], &[10.0, 20.0]),
            ("@10:20", &[10.0, 15.0, 20.0], &[9.9, 20.1]),
            ("@10", &[0.0, 10.0], &[-0.1, 10.1]),
            (":10", &[-0.1, 10.1], &[0.0, 10.0]),
            ("-5:5", &[-5.1, 5.1], &[-5.0, 5.0]),
            ("0", &[0.1, -0.1], &[0.0]),
            ("20ms", &[0.0201, -0.1], &[0.0, 0.02]),
            ("1ms:200us", &[], &[]),
            ("200us:1ms", &[0.0001, 0.0011], &[0.0002, 0.001]),
        ] {
            let Ok(range) = text.parse::<Range>() else {
                assert!(alerts.is_empty(), "{text}");
                continue;
            };
            assert!(alerts.iter().all(|value| range.is_alert(*value)), "{text}");
            assert!(quiet.iter().all(|value| !range.is_alert(*value)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for text in
            ["", ":", "@", "@:", "x", "10x", "10:20:30", "1:~", "~", "nan", "inf:", "1e3", "--1", "10 :20"]
        {
            assert_eq!(text.parse::<Range>(), Err(RangeError::Syntax(text.to_owned())), "{text}");
        }
        assert_eq!("20:10".parse::<Range>(), Err(RangeError::Order("20:10".to_owned())));
        assert_eq!("1s:20ms".parse::<Range>(), Err(RangeError::Order("1s:20ms".to_owned())));
    }

    #[test]
    fn ranges_are_shown_in_seconds_and_mean_the_same() {
        for (text, shown) in [
            ("20ms", "0.02"),
            ("0:20ms", "0.02"),
            ("10ms:", "0.01:"),
            ("0:", "0:"),
            ("~:1s", "~:1"),
            ("~:", "~:"),
            ("@10ms:20ms", "@0.01:0.02"),
            ("-1:2m", "-1:120"),
        ] {
            let range: Range = text.parse().unwrap();
            assert_eq!(range.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(range), "{text}");
        }
    }
}
