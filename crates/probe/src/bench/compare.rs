//! Two reports side by side: what differs by more than its runs do.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use crate::bench::report::Unit;

/// What became of one figure from the first report to the second.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Benchmark and figure.
    pub name: String,
    /// The second to the first; above 1 is better, whatever the unit. None where the first is 0 or one has no such figure.
    pub ratio: Option<f64>,
    /// By how much the ratio may be off, as far as the runs tell: the sum of both spreads.
    pub noise: f64,
    /// What that means.
    pub verdict: Verdict,
    before: f64,
    after: f64,
}

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Better by more than the runs differ.
    Better,
    /// Worse by more than the runs differ.
    Worse,
    /// No more than that.
    Same,
    /// Too few runs to know by how much they differ.
    Unknown,
    /// Only one report has it.
    Missing,
}

/// All changes, and what else differs.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// In the order of the first report.
    pub changes: Vec<Change>,
    /// Of the machine, the file system and what was asked for.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// Compares two documents of [`Report::to_json`](crate::bench::Report::to_json).
    ///
    /// # Errors
    ///
    /// What of which document is not as it has to be.
    pub fn of(first: &Json, second: &Json) -> Result<Self, String> {
        if first["reports"].is_array() || second["reports"].is_array() {
            return Self::of_all(first, second);
        }
        let figures = |document: &Json, which| {
            Entry::all(document).ok_or_else(|| format!("the {which} document is no report of holdfast bench"))
        };
        let (before, after) = (figures(first, "first")?, figures(second, "second")?);
        if first["bench"] != second["bench"] {
            return Err(format!("one is a report of {}, the other of {}", first["bench"], second["bench"]));
        }
        let mut changes: Vec<Change> = before
            .iter()
            .map(|entry| Change::of(entry, after.iter().find(|other| other.name == entry.name)))
            .collect();
        let is_new = |entry: &&Entry| !before.iter().any(|other| other.name == entry.name);
        changes.extend(after.iter().filter(is_new).map(Change::new));
        let differs = |(what, path): &(&str, &str)| {
            let (one, other) = (first.pointer(path), second.pointer(path));
            (one != other).then(|| format!("{what} differs: {} and {}", show(one), show(other)))
        };
        Ok(Self { changes, warnings: COMPARED.iter().filter_map(differs).collect() })
    }

    /// Of documents with a report of each benchmark.
    fn of_all(first: &Json, second: &Json) -> Result<Self, String> {
        let reports = |document: &Json, which| {
            let found = document["reports"].as_array().cloned();
            found.ok_or_else(|| format!("the {which} document has one report, the other one has several"))
        };
        let (before, after) = (reports(first, "first")?, reports(second, "second")?);
        let mut all = Self { changes: Vec::new(), warnings: Vec::new() };
        for one in &before {
            let Some(other) = after.iter().find(|other| other["bench"] == one["bench"]) else {
                all.warnings.push(format!("only the first has {}", one["bench"]));
                continue;
            };
            let Self { changes, warnings } = Self::of(one, other)?;
            let bench = one["bench"].as_str().unwrap_or_default();
            all.changes.extend(
                changes
                    .into_iter()
                    .map(|change| Change { name: format!("{bench}: {}", change.name), ..change }),
            );
            all.warnings.extend(
                warnings.into_iter().filter(|warning| !all.warnings.contains(warning)).collect::<Vec<_>>(),
            );
        }
        let is_new = |other: &&Json| !before.iter().any(|one| one["bench"] == other["bench"]);
        all.warnings.extend(
            after.iter().filter(is_new).map(|other| format!("only the second has {}", other["bench"])),
        );
        Ok(all)
    }

    /// Whether anything is worse by more than its runs differ.
    pub fn has_worse(&self) -> bool {
        self.changes.iter().any(|change| change.verdict == Verdict::Worse)
    }

    /// One document.
    pub fn to_json(&self) -> Json {
        json!({ "changes": self.changes.iter().map(Change::to_json).collect::<Vec<_>>(), "warnings": self.warnings })
    }

    /// As a table, for people.
    pub fn to_text(&self) -> String {
        let width = self.changes.iter().map(|change| change.name.len()).max().unwrap_or(0).max(4);
        let mut text = String::new();
        _ = writeln!(text, "{:width$} {:>12} {:>12} {:>7} {:>7}", "", "first", "second", "ratio", "noise");
        for change in &self.changes {
            let ratio = change.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            let (name, verdict) = (&change.name, change.verdict.name());
            _ = writeln!(
                text,
                "{name:width$} {:>12} {:>12} {ratio:>7} {:>6.0}%  {verdict}",
                digits(change.before),
                digits(change.after),
                change.noise * 100.0,
            );
        }
        for warning in &self.warnings {
            _ = writeln!(text, "warning: {warning}");
        }
        text
    }
}

impl Change {
    pub(crate) fn to_json(&self) -> Json {
        json!({
            "name": self.name,
            "first": self.before,
            "second": self.after,
            "ratio": self.ratio,
            "noise": self.noise,
            "verdict": self.verdict.name(),
        })
    }

    /// A figure that only the second report has.
    fn new(after: &Entry) -> Self {
        let missing = Self::of(after, None);
        Self { before: missing.after, after: missing.before, ..missing }
    }

    fn of(before: &Entry, after: Option<&Entry>) -> Self {
        let name = before.name.clone();
        let Some(after) = after else {
            let (noise, verdict) = (0.0, Verdict::Missing);
            return Self { name, ratio: None, noise, verdict, before: before.median, after: f64::NAN };
        };
        let (one, two) = (before.median, after.median);
        let ratio = match before.is_rate {
            true => (one > 0.0).then(|| two / one),
            false => (two > 0.0).then(|| one / two),
        };
        let noise = before.spread + after.spread;
        let verdict = match ratio {
            _ if before.is_count && two != one => {
                if two > one {
                    Verdict::Worse
                } else {
                    Verdict::Better
                }
            }
            _ if before.is_count => Verdict::Same,
            _ if before.runs.min(after.runs) < RUNS_MIN => Verdict::Unknown,
            Some(ratio) if ratio > 1.0 + noise => Verdict::Better,
            Some(ratio) if ratio < 1.0 / (1.0 + noise) => Verdict::Worse,
            Some(_) => Verdict::Same,
            None => Verdict::Unknown,
        };
        Self { name, ratio, noise, verdict, before: one, after: two }
    }
}

impl Verdict {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Unknown => "unknown",
            Self::Missing => "missing",
        }
    }
}

/// A figure of a document.
struct Entry {
    name: String,
    median: f64,
    spread: f64,
    runs: usize,
    is_rate: bool,
    is_count: bool,
}

impl Entry {
    fn all(document: &Json) -> Option<Vec<Self>> {
        document["figures"].as_array()?.iter().map(Self::of).collect()
    }

    fn of(figure: &Json) -> Option<Self> {
        let unit = figure["unit"].as_str()?;
        Some(Self {
            name: figure["name"].as_str()?.to_owned(),
            median: figure["median"].as_f64()?,
            spread: figure["spread"].as_f64()?,
            runs: figure["values"].as_array()?.len(),
            is_rate: [Unit::PerSecond, Unit::Throughput].iter().any(|rate| rate.name() == unit),
            is_count: unit == "stale",
        })
    }
}

fn show(value: Option<&Json>) -> String {
    value.map_or_else(|| "none".to_owned(), Json::to_string)
}

/// Four of them, whatever the size.
fn digits(value: f64) -> String {
    match value {
        value if value.is_nan() => "-".to_owned(),
        value if value >= 1000.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.3}"),
        value => format!("{value:.3e}"),
    }
}

/// What has to be the same for a difference to be the file system's.
const COMPARED: [(&str, &str); 12] = [
    ("kernel", "/machine/kernel"),
    ("number of cores", "/machine/cores"),
    ("file system", "/file_system/type"),
    ("mount options", "/file_system/options"),
    ("number of names", "/settings/count"),
    ("number of files", "/settings/files"),
    ("number of processes", "/settings/processes"),
    ("directories", "/settings/directories"),
    ("number of files in a directory", "/settings/files_per_directory"),
    ("number of rounds", "/settings/rounds"),
    ("size", "/settings/bytes"),
    ("archive", "/settings/archive"),
];
/// Runs below which nothing is known of how much they differ.
const RUNS_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn document(figures: &[(&str, &str, &[f64], f64)]) -> Json {
        let figure = |(name, unit, values, spread): &(&str, &str, &[f64], f64)| json!({ "name": name, "unit": unit, "values": values, "median": values[values.len() / 2], "spread": spread });
        json!({
            "bench": "create",
            "machine": { "kernel": "6.18", "cores": 2 },
            "figures": figures.iter().map(figure).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn differences_count_where_they_exceed_the_spread() {
        let first = document(&[
            ("faster", "per second", &[100.0; 3], 0.05),
            ("slower", "seconds", &[1.0; 3], 0.05),
            ("stream", "MB per second", &[100.0; 3], 0.05),
            ("noisy", "per second", &[100.0; 3], 0.3),
            ("once", "per second", &[100.0], 0.0),
            ("old", "stale", &[0.0], 0.0),
            ("gone", "seconds", &[1.0; 3], 0.0),
        ]);
        let second = document(&[
            ("faster", "per second", &[120.0; 3], 0.05),
            ("slower", "seconds", &[1.2; 3], 0.05),
            ("stream", "MB per second", &[50.0; 3], 0.05),
            ("noisy", "per second", &[120.0; 3], 0.05),
            ("once", "per second", &[200.0], 0.0),
            ("old", "stale", &[2.0], 0.0),
            ("new", "seconds", &[1.0; 3], 0.0),
        ]);
        let found = Comparison::of(&first, &second).unwrap();
        let verdicts: Vec<(&str, Verdict)> =
            found.changes.iter().map(|change| (&*change.name, change.verdict)).collect();
        assert_eq!(
            verdicts,
            [
                ("faster", Verdict::Better),
                ("slower", Verdict::Worse),
                ("stream", Verdict::Worse),
                ("noisy", Verdict::Same),
                ("once", Verdict::Unknown),
                ("old", Verdict::Worse),
                ("gone", Verdict::Missing),
                ("new", Verdict::Missing),
            ]
        );
        assert_eq!((found.changes[0].ratio, found.warnings.len(), found.has_worse()), (Some(1.2), 0, true));
        let shown = |name: &str| found.changes.iter().find(|change| change.name == name).unwrap().to_json();
        assert_eq!((&shown("gone")["first"], &shown("gone")["second"]), (&json!(1.0), &Json::Null));
        assert_eq!((&shown("new")["first"], &shown("new")["second"]), (&Json::Null, &json!(1.0)));
        let same = Comparison::of(&first, &first).unwrap();
        assert!(!same.has_worse() && same.changes.iter().all(|change| change.verdict != Verdict::Better));
    }

    #[test]
    fn other_machines_are_told_and_other_documents_refused() {
        let (first, mut second) = (document(&[]), document(&[]));
        second["machine"]["kernel"] = json!("7.0");
        let warnings = Comparison::of(&first, &second).unwrap().warnings;
        assert_eq!(warnings, ["kernel differs: \"6.18\" and \"7.0\""]);
        assert!(Comparison::of(&first, &json!({})).unwrap_err().contains("second document"));
        second["bench"] = json!("walk");
        assert!(Comparison::of(&first, &second).is_err());
        let all = |figure| json!({ "bench": "all", "reports": [document(&[figure])] });
        let (slow, fast) =
            (("mknod", "per second", &[1.0; 3][..], 0.0), ("mknod", "per second", &[2.0; 3][..], 0.0));
        let found = Comparison::of(&all(slow), &all(fast)).unwrap().changes;
        assert_eq!((&*found[0].name, found[0].verdict, found.len()), ("create: mknod", Verdict::Better, 1));
        let mut other = all(fast);
        other["reports"][0]["bench"] = json!("walk");
        let warnings = Comparison::of(&all(slow), &other).unwrap().warnings;
        assert_eq!(warnings, ["only the first has \"create\"", "only the second has \"walk\""]);
        assert!(Comparison::of(&all(slow), &first).unwrap_err().contains("second"));
    }
}
