//! Sizes and times as people write and read them.

use std::time::Duration;

/// Reads `4096`, `64K`, `64M`, `1G` (powers of 1024; `KiB` and `k` are taken too).
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Reads seconds with an optional fraction: `5`, `0.25`.
pub fn parse_seconds(text: &str) -> Option<Duration> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !is_plain {
        return None;
    }
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// `1.5 GiB`.
pub fn show_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

/// `2024-02-29 12:00:00 UTC` from seconds since 1970.
pub fn show_time(secs: u64) -> String {
    format!("{} {} UTC", date(secs), time_of_day(secs))
}

/// `2024-02-29T12:00:00.345Z` from the time since 1970.
pub fn show_stamp(since: Duration) -> String {
    let secs = since.as_secs();
    format!("{}T{}.{:03}Z", date(secs), time_of_day(secs), since.subsec_millis())
}

fn time_of_day(secs: u64) -> String {
    let rest = secs % 86_400;
    format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

fn date(secs: u64) -> String {
    let days = secs / 86_400;
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
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("64K", Some(64 << 10)),
            ("3m", Some(3 << 20)),
            ("2GiB", Some(2 << 30)),
            ("", None),
            ("K", None),
            ("1.5G", None),
            ("-1", None),
            ("5X", None),
            ("99999999999999999999", None),
            ("18446744073709551615K", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
        assert_eq!([0, 1023, 1536, 5 << 30].map(show_size), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
    }

    #[test]
    fn seconds() {
        for (text, millis) in [("5", Some(5000)), ("0.25", Some(250)), (".5", Some(500)), ("0", Some(0))] {
            assert_eq!(parse_seconds(text).map(|d| d.as_millis()), millis, "{text}");
        }
        for text in ["", ".", "-1", "1e3", "inf", "nan", "1.2.3", "99999999999999999999999"] {
            assert_eq!(parse_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn times() {
        for (secs, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_825_600, "2000-02-29 12:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
        ] {
            assert_eq!(show_time(secs), text);
        }
        assert_eq!(show_stamp(Duration::from_millis(951_825_600_007)), "2000-02-29T12:00:00.007Z");
    }
}
