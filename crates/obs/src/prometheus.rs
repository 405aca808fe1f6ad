//! Prometheus text exposition format, version 0.0.4.

use std::fmt::Write;

use crate::defs::Shape;
use crate::histogram::HistogramSnapshot;
use crate::snapshot::{Series, Snapshot, Value};

const PREFIX: &str = "holdfast_";

/// Bucket bounds as powers of two of microseconds: 16 us to 67 s in factors of four, exact by construction.
const BOUND_POWERS: [u32; 12] = [4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26];

impl Snapshot {
    /// The snapshot for `/metrics`. Histograms of a family appear once something was recorded.
    pub fn to_prometheus(&self) -> String {
        let mut out = String::new();
        for series in &self.series {
            let definition = series.definition;
            let (name, kind) = (definition.name, type_of(definition.shape));
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP {PREFIX}{name} {}", definition.help);
            let _ = writeln!(out, "# TYPE {PREFIX}{name} {kind}");
            write_cells(&mut out, series);
            if let (Shape::GaugeWithPeak, Value::Gauge { peak, .. }) = (definition.shape, series.total()) {
                let _ = writeln!(out, "# HELP {PREFIX}{name}_peak Highest value of {PREFIX}{name}.");
                let _ = writeln!(out, "# TYPE {PREFIX}{name}_peak gauge");
                let _ = writeln!(out, "{PREFIX}{name}_peak {peak}");
            }
        }
        out
    }
}

fn type_of(shape: Shape) -> &'static str {
    match shape {
        Shape::Counter => "counter",
        Shape::Gauge | Shape::GaugeWithPeak => "gauge",
        Shape::Histogram => "histogram",
    }
}

fn write_cells(out: &mut String, series: &Series) {
    let name = series.definition.name;
    for cell in &series.cells {
        let labels: Vec<String> = series
            .label_names
            .iter()
            .zip(&cell.labels)
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        let _ = match &cell.value {
            Value::Counter(n) => writeln!(out, "{PREFIX}{name}{} {n}", braced(&labels)),
            Value::Gauge { now, .. } => writeln!(out, "{PREFIX}{name}{} {now}", braced(&labels)),
            Value::Histogram(histogram) if histogram.count() == 0 && !labels.is_empty() => Ok(()),
            Value::Histogram(histogram) => write_histogram(out, name, &labels, histogram),
        };
    }
}

fn write_histogram(
    out: &mut String,
    name: &str,
    labels: &[String],
    histogram: &HistogramSnapshot,
) -> std::fmt::Result {
    for power in BOUND_POWERS {
        let bound_us = 1u64 << power;
        let le = format!("le=\"{}\"", bound_us as f64 / 1e6);
        let all = [labels, &[le]].concat();
        writeln!(out, "{PREFIX}{name}_bucket{} {}", braced(&all), histogram.count_below(bound_us))?;
    }
    let all = [labels, &["le=\"+Inf\"".to_owned()]].concat();
    writeln!(out, "{PREFIX}{name}_bucket{} {}", braced(&all), histogram.count())?;
    writeln!(out, "{PREFIX}{name}_sum{} {}", braced(labels), histogram.sum() as f64 / 1e6)?;
    writeln!(out, "{PREFIX}{name}_count{} {}", braced(labels), histogram.count())
}

fn braced(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
