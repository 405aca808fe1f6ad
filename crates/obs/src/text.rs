//! Text for people: one name and value per line, grouped; labels indented below their sum.

use std::fmt::Write;

use crate::defs::{Shape, Unit};
use crate::histogram::HistogramSnapshot;
use crate::snapshot::{Cell, Series, Snapshot, Value};

/// Whether rows that are zero are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// Left out, and groups without a row with them.
    Hide,
    /// Shown.
    Show,
}

impl Snapshot {
    /// The snapshot as lines of text. With `interval_seconds`, counters get a rate per second beside them.
    pub fn to_text(&self, zeros: Zeros, interval_seconds: Option<f64>) -> String {
        let mut out = String::new();
        let mut group = "";
        for series in &self.series {
            let total = series.total();
            if zeros == Zeros::Hide && total.is_zero() {
                continue;
            }
            if group != series.definition.group {
                group = series.definition.group;
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{}{group}", if out.is_empty() { "" } else { "\n" });
            }
            write_series(&mut out, series, &total, zeros, interval_seconds);
            if series.definition.name == "cache_hits_total" {
                write_hit_rates(&mut out, self, series);
            }
        }
        out
    }
}

fn write_series(out: &mut String, series: &Series, total: &Value, zeros: Zeros, interval: Option<f64>) {
    let unit = series.definition.unit;
    let name = series.definition.name;
    let _ = writeln!(out, "  {name:<36} {}", shown(total, unit, interval));
    if let (Shape::GaugeWithPeak, Value::Gauge { peak, .. }) = (series.definition.shape, total) {
        let _ = writeln!(out, "  {:<36} {}", format!("{name}_peak"), number(*peak as f64, unit));
    }
    if series.label_names.is_empty() {
        return;
    }
    for Cell { labels, value } in &series.cells {
        if zeros == Zeros::Show || !value.is_zero() {
            let _ = writeln!(out, "    {:<34} {}", labels.join(" "), shown(value, unit, interval));
        }
    }
}

/// Hits as a share of lookups, per cache.
fn write_hit_rates(out: &mut String, snapshot: &Snapshot, hits: &Series) {
    let Some(lookups) = snapshot.series("cache_lookups_total") else { return };
    for (hit, lookup) in hits.cells.iter().zip(&lookups.cells) {
        if let (Value::Counter(hit_count), Value::Counter(lookup_count @ 1..)) = (&hit.value, &lookup.value) {
            let percent = 100.0 * *hit_count as f64 / *lookup_count as f64;
            let _ =
                writeln!(out, "    {:<34} {percent:>14.2} %", format!("{} hit rate", hit.labels.join(" ")));
        }
    }
}

fn shown(value: &Value, unit: Unit, interval_seconds: Option<f64>) -> String {
    match value {
        Value::Counter(n) => {
            let rate = interval_seconds.filter(|seconds| *seconds > 0.0).map(|seconds| *n as f64 / seconds);
            let rate = rate.map_or(String::new(), |rate| format!(" {rate:>14.1}/s"));
            format!("{}{rate}", number(*n as f64, unit))
        }
        Value::Gauge { now, .. } => number(*now as f64, unit),
        Value::Histogram(histogram) => percentiles(histogram),
    }
}

fn percentiles(histogram: &HistogramSnapshot) -> String {
    format!(
        "{:>14}  p50 {}  p99 {}  p999 {}  max {}",
        histogram.count(),
        duration(histogram.p50()),
        duration(histogram.p99()),
        duration(histogram.p999()),
        duration(histogram.max())
    )
}

fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => format!("{value:>14.0}"),
        Unit::Seconds => format!("{value:>14.0} s"),
        Unit::Bytes => format!("{value:>14.0} B{}", rounded_bytes(value)),
    }
}

/// ` (1.5 MiB)`, or nothing below a KiB.
fn rounded_bytes(bytes: f64) -> String {
    let mut value = bytes;
    let mut name = "";
    for unit in ["KiB", "MiB", "GiB", "TiB"] {
        if value.abs() < 1024.0 {
            break;
        }
        value /= 1024.0;
        name = unit;
    }
    if name.is_empty() { String::new() } else { format!(" ({value:.1} {name})") }
}

fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.2} ms", us as f64 / 1e3),
        1_000_000.. => format!("{:.2} s", us as f64 / 1e6),
    }
}
