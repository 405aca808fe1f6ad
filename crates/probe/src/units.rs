//! Times as people write and read them.

use std::time::Duration;

/// Reads `20ms`, `1.5s`, `200us`, `10ns`, `5m`, `1h`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let seconds = parse_seconds(text)?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// As [`parse_duration`], in seconds.
pub(crate) fn parse_seconds(text: &str) -> Option<f64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    // "." and the like fail in the parse; signs and exponents never get there.
    let number: f64 = number.parse().ok()?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    // 20 ms is to be the same as 0.020 s: dividing by a whole number rounds once.
    Some(if scale < 1.0 { number / (1.0_f64 / scale).round() } else { number * scale })
}

/// Three digits with a unit: `812 ns`, `1.50 s`, `12.3 ms`.
pub fn show_delay(seconds: f64) -> String {
    let ns = seconds * 1e9;
    let (value, unit) = match ns {
        ns if ns < 999.5 => return format!("{ns:.0} ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "us"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    match value {
        value if value < 9.995 => format!("{value:.2} {unit}"),
        value if value < 99.95 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// `2024-02-29T12:00:00Z` from seconds since 1970.
pub(crate) fn show_time(secs: u64) -> String {
    let (days, rest) = (secs / 86_400, secs % 86_400);
    // Days to a date by the proleptic Gregorian calendar, era of 400 years from 1 March 0000:
    // Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, nanos) in [
            ("20ms", Some(20_000_000)),
            ("0.02", Some(20_000_000)),
            ("1.5s", Some(1_500_000_000)),
            ("200us", Some(200_000)),
            ("7ns", Some(7)),
            ("2m", Some(120_000_000_000)),
            ("1h", Some(3_600_000_000_000)),
            (".5", Some(500_000_000)),
            ("0", Some(0)),
        ] {
            assert_eq!(parse_duration(text).map(|d| d.as_nanos()), nanos, "{text}");
        }
        for text in ["", ".", "ms", "-1s", "1e3", "inf", "nan", "1.2.3", "3 s", "3S", "99999999999999999999h"]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn delays_have_three_digits() {
        for (seconds, text) in [
            (0.0, "0 ns"),
            (812e-9, "812 ns"),
            (1e-6, "1.00 us"),
            (0.9999e-3, "1.00 ms"),
            (0.01234, "12.3 ms"),
            (0.1994, "199 ms"),
            (1.5, "1.50 s"),
            (3600.0, "3600 s"),
        ] {
            assert_eq!(show_delay(seconds), text);
        }
    }

    #[test]
    fn times() {
        assert_eq!(show_time(951_825_600), "2000-02-29T12:00:00Z");
        assert_eq!(show_time(1_700_000_000), "2023-11-14T22:13:20Z");
    }
}
