//! A plugin of Nagios and its kin: thresholds, one line, performance data, exit codes 0 to 3.
//!
//! After the Monitoring Plugins Development Guidelines, sections on output, threshold ranges and performance data.

mod plugin;
mod range;

use serde_json::Value as Json;
use thiserror::Error;

pub use plugin::{check, check_all};
pub use range::{Range, RangeError};

use crate::units::show_delay;

/// What is compared with what.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// Compared figure.
    pub figure: Figure,
    /// Range of values that are no warning.
    pub warning: Option<Range>,
    /// Range of values that are not critical.
    pub critical: Option<Range>,
}

/// Figures that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in Figures")]
pub enum Figure {
    Last,
    Davg,
    Dmax,
    Emax,
    P99,
    Max,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Last, Self::Davg, Self::Dmax, Self::Emax, Self::P99, Self::Max];

    /// As on the command line and in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Davg => "davg",
            Self::Dmax => "dmax",
            Self::Emax => "emax",
            Self::P99 => "p99",
            Self::Max => "max",
        }
    }

    /// The figure of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }
}

/// Result of a plugin, in the order of its exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Status {
    Ok = 0,
    Warning = 1,
    Critical = 2,
    Unknown = 3,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// Critical before warning before unknown: a target that is known to be ill is worse than one unknown.
    fn weight(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Unknown => 1,
            Self::Warning => 2,
            Self::Critical => 3,
        }
    }
}

/// What a plugin says.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Its exit code.
    pub status: Status,
    /// One line with performance data, then details.
    pub text: String,
}

/// Why a check has no answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CheckError {
    /// The document of a watch lacks what every one has.
    #[error("the watch's answer is not one of holdfast watch: {0}")]
    Document(&'static str),
}

/// Judges the targets of a watch's document.
///
/// # Errors
///
/// [`CheckError::Document`].
pub fn judge(document: &Json, thresholds: &Thresholds) -> Result<Answer, CheckError> {
    let targets = document["targets"].as_array().ok_or(CheckError::Document("no targets"))?;
    let mut status = Status::Ok;
    let (mut texts, mut data) = (Vec::new(), Vec::new());
    for target in targets {
        let (own, text) = judge_target(target, thresholds)?;
        if own.weight() > status.weight() {
            status = own;
        }
        texts.push((own, text));
        perfdata(target, thresholds, &mut data);
    }
    // The worst first: a pager shows the beginning of a line.
    texts.sort_by_key(|(own, _)| std::cmp::Reverse(own.weight()));
    let texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
    let mut text = format!("WATCH {} - {} | {}", status.word(), texts.join(", "), data.join(" "));
    if let Some(verdict) = document["verdict"].as_str() {
        text += &format!("\n{}", harmless(verdict));
    }
    Ok(Answer { status, text })
}

fn judge_target(target: &Json, thresholds: &Thresholds) -> Result<(Status, String), CheckError> {
    let label = harmless(target["label"].as_str().ok_or(CheckError::Document("a target without a label"))?);
    let state = target["state"].as_str().ok_or(CheckError::Document("a target without a state"))?;
    let pending = target["pending_seconds"].as_f64();
    let error = harmless(target["last_error"].as_str().unwrap_or("no reason known"));
    let figure = thresholds.figure.name();
    let value = target[format!("{figure}_seconds")].as_f64();
    // What has not returned took at least so long.
    let value = match (value, pending) {
        (Some(value), Some(pending)) => Some(value.max(pending)),
        (value, _) => value,
    };
    Ok(match (state, value) {
        ("pending", _) => {
            let pending = show_delay(pending.unwrap_or(0.0));
            (Status::Critical, format!("{label} has not answered for {pending}"))
        }
        ("failing", _) => (Status::Critical, format!("{label} fails: {error}")),
        ("ok", Some(value)) => {
            let is_hit = |range: &Option<Range>| range.as_ref().is_some_and(|range| range.is_alert(value));
            let status = match (is_hit(&thresholds.critical), is_hit(&thresholds.warning)) {
                (true, _) => Status::Critical,
                (false, true) => Status::Warning,
                (false, false) => Status::Ok,
            };
            (status, format!("{label} {figure} {}", show_delay(value)))
        }
        ("failed", _) => (Status::Unknown, format!("{label} cannot be watched: {error}")),
        (state, _) => (Status::Unknown, format!("{label} {}, nothing measured", harmless(state))),
    })
}

/// `'label figure'=value;warning;critical;minimum`.
fn perfdata(target: &Json, thresholds: &Thresholds, data: &mut Vec<String>) {
    // Neither quotes nor equals signs may stand in a label.
    let label = target["label"].as_str().unwrap_or("?").replace(['=', '\''], "_");
    let range = |range: &Option<Range>| range.as_ref().map_or_else(String::new, Range::to_string);
    for name in ["last", "davg", "emin", "emax", "p99"] {
        let Some(value) = target[format!("{name}_seconds")].as_f64() else { continue };
        let limits = if name == thresholds.figure.name() {
            format!("{};{}", range(&thresholds.warning), range(&thresholds.critical))
        } else {
            ";".to_owned()
        };
        data.push(format!("'{label} {name}'={value}s;{limits};0"));
    }
    if let Some(pending) = target["pending_seconds"].as_f64() {
        data.push(format!("'{label} pending'={pending}s;;;0"));
    }
    for name in ["ios", "errors", "late"] {
        if let Some(count) = target[format!("{name}_total")].as_u64() {
            data.push(format!("'{label} {name}'={count}c;;;0"));
        }
    }
}

/// Text without what ends it: performance data begin at a bar, details at a new line.
fn harmless(text: &str) -> String {
    text.replace('|', "/").replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::output::json::document;
    use crate::watch::tests::{MS, sample_watch};
    use serde_json::json;

    fn thresholds(figure: Figure, warning: &str, critical: &str) -> Thresholds {
        let range = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        Thresholds { figure, warning: range(warning), critical: range(critical) }
    }

    #[test]
    fn thresholds_decide_and_the_worst_target_stands_first() {
        let all = document(&sample_watch());
        for (figure, warning, critical, status) in [
            (Figure::Emax, "20ms", "200ms", Status::Critical),
            (Figure::Emax, "20ms", "2s", Status::Warning),
            (Figure::Emax, "2s", "5s", Status::Ok),
            (Figure::Last, "1ms", "2.5ms", Status::Critical),
            (Figure::Last, "5ms", "", Status::Ok),
            (Figure::Last, "", "", Status::Ok),
            (Figure::Last, "@2ms:3ms", "", Status::Warning),
            (Figure::Last, "", "10ms:", Status::Critical),
        ] {
            let answer = judge(&all, &thresholds(figure, warning, critical)).unwrap();
            assert_eq!(answer.status, status, "{figure:?} {warning} {critical}: {}", answer.text);
        }
        // Only the upper layer is above 2.5 ms.
        let answer = judge(&all, &thresholds(Figure::Last, "", "2.5ms")).unwrap();
        assert!(
            answer.text.starts_with("WATCH CRITICAL - files last 3.00 ms, disk last 2.00 ms | "),
            "{}",
            answer.text
        );
        assert!(
            answer.text.ends_with("\ndisk adds most at peak, 1.50 s and on average, 302 ms"),
            "{}",
            answer.text
        );
    }

    #[test]
    fn performance_data_have_units_and_thresholds() {
        let answer = judge(&document(&sample_watch()), &thresholds(Figure::Emax, "20ms", "~:0.2")).unwrap();
        let data = answer.text.lines().next().unwrap().split_once(" | ").unwrap().1;
        for part in [
            "'disk emax'=1.5s;0.02;~:0.2;0",
            "'disk last'=0.002s;;;0",
            "'files emax'=1.501s;0.02;~:0.2;0",
            "'disk ios'=8c;;;0",
            "'disk late'=1c;;;0",
        ] {
            assert!(data.contains(part), "{part}: {data}");
        }
    }

    #[test]
    fn what_is_pending_or_failing_is_critical_without_thresholds() {
        let mut watch = sample_watch();
        watch.handle_event(&Event::Begin { target: 0, at_ns: 9200 * MS });
        watch.pass(9700 * MS);
        let none = thresholds(Figure::Last, "", "");
        assert_eq!(judge(&document(&watch), &none).unwrap().status, Status::Ok);
        // 500 ms so far, and counting.
        assert_eq!(
            judge(&document(&watch), &thresholds(Figure::Last, "", "0.4")).unwrap().status,
            Status::Critical
        );
        watch.pass(11_200 * MS);
        let answer = judge(&document(&watch), &none).unwrap();
        assert!(
            answer.text.starts_with("WATCH CRITICAL - disk has not answered for 2.00 s"),
            "{}",
            answer.text
        );
        let error = Some("Input/output error".to_owned());
        watch.handle_event(&Event::End { target: 0, at_ns: 11_300 * MS, delay_ns: 2100 * MS, error });
        let answer = judge(&document(&watch), &none).unwrap();
        assert!(
            answer.text.starts_with("WATCH CRITICAL - disk fails: Input/output error"),
            "{}",
            answer.text
        );
    }

    #[test]
    fn what_is_not_known_is_unknown_and_strange_labels_do_no_harm() {
        let target = json!({"label": "a|b='c'", "state": "silent", "last_seconds": 0.5});
        let all = json!({"targets": [target]});
        let answer = judge(&all, &thresholds(Figure::Last, "", "")).unwrap();
        let expected = "WATCH UNKNOWN - a/b='c' silent, nothing measured | 'a|b__c_ last'=0.5s;;;0";
        assert_eq!((answer.status, answer.text.as_str()), (Status::Unknown, expected));
        assert!(judge(&json!({}), &thresholds(Figure::Last, "", "")).is_err());
        assert!(judge(&json!({"targets": [{}]}), &thresholds(Figure::Last, "", "")).is_err());
    }
}
