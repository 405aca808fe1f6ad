//! The live table: one row for each target, what the layers add, the verdict.

use super::verdict::{labels, verdict};
use crate::units::{seconds, show_delay, show_time};
use crate::watch::{Condition, Phase, Watch};

/// The table, lines without colours.
pub(crate) fn table(watch: &Watch) -> String {
    let header = watch.header();
    let size = match header.op {
        crate::Op::Read | crate::Op::Write => format!(" of {} bytes", header.size),
        crate::Op::Flock | crate::Op::Stat | crate::Op::Create => String::new(),
    };
    let mut out = format!(
        "holdfast watch: {}{size} every {}, window {}, since {} ({:.0} s), CPU {:.2} %\n\n",
        header.op,
        show_delay(seconds(header.interval_ns)),
        header.window,
        show_time(header.started_unix_ms / 1000),
        seconds(watch.now_ns()),
        100.0 * watch.cpu() / seconds(watch.now_ns()).max(1e-3),
    );
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows.extend((0..watch.targets().len()).map(|index| row(watch, index)));
    out += &aligned(&rows);
    out += &layers(watch);
    for index in 0..watch.targets().len() {
        out += &alarm(watch, index);
    }
    for (target, text) in watch.notices() {
        let label = target.map_or_else(String::new, |target| format!("{}: ", watch.targets()[target].label));
        out += &format!("\nnote: {label}{text}");
    }
    out + "\n"
}

/// What is wrong with a target, one line; nothing when all is well.
pub(crate) fn alarm(watch: &Watch, index: usize) -> String {
    let target = &watch.targets()[index];
    let pending = target.series.pending_ns(watch.now_ns()).map_or(0.0, seconds);
    let text = match (watch.condition(index), &target.phase) {
        (Condition::Starting | Condition::Good, _) => return String::new(),
        (Condition::Overdue, Phase::Opening) => format!("opening it has not returned for {pending:.1} s"),
        (Condition::Overdue, _) => format!("an I/O has not returned for {pending:.1} s"),
        (Condition::Failing, _) => {
            format!("the last I/O failed: {}", target.series.last_error().unwrap_or("?"))
        }
        (Condition::Failed, Phase::Failed { text }) => text.clone(),
        (Condition::Failed, _) => "it could not be opened".to_owned(),
        (Condition::Silent, _) => "nothing is heard of it".to_owned(),
    };
    format!("\nALARM: {}: {text}", target.label)
}

fn row(watch: &Watch, index: usize) -> Vec<String> {
    let target = &watch.targets()[index];
    let figures = target.series.figures(watch.now_ns());
    let condition = watch.condition(index);
    let last = match (condition, figures.pending) {
        (Condition::Overdue, Some(pending)) => format!(">{}", show_delay(pending)),
        _ => show(figures.last),
    };
    let mut row = vec![target.label.clone(), condition.word().to_owned(), last];
    row.extend(
        [
            figures.davg,
            figures.dstd_dev,
            figures.dmin,
            figures.dmax,
            figures.emin,
            figures.emax,
            figures.p50,
            figures.p99,
            figures.p999,
            figures.max,
        ]
        .map(show),
    );
    row.extend([figures.count, figures.errors, figures.late].map(|count| count.to_string()));
    row
}

fn layers(watch: &Watch) -> String {
    let Some(added) = watch.stack().and_then(|stack| stack.added(&watch.figures())) else {
        return String::new();
    };
    let mut rows = vec![["LAYER", "davg", "adds", "emax", "adds"].map(str::to_owned).to_vec()];
    for layer in &added {
        rows.push(vec![
            labels(watch, &layer.targets),
            show_delay(layer.average),
            signed(layer.average_added),
            show_delay(layer.peak),
            signed(layer.peak_added),
        ]);
    }
    let verdict = verdict(watch).map_or_else(String::new, |text| format!("verdict: {text}\n"));
    format!("\n{}{verdict}", aligned(&rows))
}

fn show(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), show_delay)
}

fn signed(value: f64) -> String {
    format!("{}{}", if value < 0.0 { '-' } else { '+' }, show_delay(value.abs()))
}

/// Columns as wide as they need: the first to the left, others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        out += cells.collect::<Vec<_>>().join("  ").trim_end();
        out.push('\n');
    }
    out
}

const HEADINGS: [&str; 16] = [
    "TARGET", "state", "last", "davg", "dstd_dev", "dmin", "dmax", "emin", "emax", "p50", "p99", "p99.9",
    "max", "I/Os", "errors", "late",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::watch::tests::{MS, sample_watch};

    #[test]
    fn the_table_has_a_row_for_each_target_and_what_layers_add() {
        let text = table(&sample_watch());
        let row = |label: &str| text.lines().find(|line| line.starts_with(label)).unwrap().to_owned();
        let words: Vec<String> =
            row("disk").split("  ").map(|word| word.trim().to_owned()).filter(|w| !w.is_empty()).collect();
        assert_eq!(words[..3], ["disk", "ok", "2.00 ms"]);
        assert_eq!(words[8..9], ["1.50 s"]);
        assert_eq!(words[13..], ["8", "0", "1"]);
        assert!(text.contains("+1.50 s") && text.contains("verdict: disk adds most at peak"), "{text}");
        assert!(!text.contains("ALARM"), "{text}");
    }

    #[test]
    fn what_does_not_return_is_an_alarm_with_its_age() {
        let mut watch = sample_watch();
        watch.handle_event(&Event::Begin { target: 1, at_ns: 10_000 * MS });
        watch.pass(14_500 * MS);
        let text = table(&watch);
        assert!(text.contains("ALARM: files: an I/O has not returned for 4.5 s"), "{text}");
        assert!(text.contains("pending") && text.contains(">4.50 s"), "{text}");
    }
}
