//! The Prometheus text format, version 0.0.4.

use std::fmt::Write;

use super::verdict::labels;
use crate::series::Figures;
use crate::stack::Added;
use crate::watch::Watch;

/// Everything for `/metrics`.
pub(crate) fn metrics(watch: &Watch) -> String {
    let mut out = String::new();
    let figures = watch.figures();
    let op = watch.header().op.name();
    family(&mut out, "info", "gauge", "What is watched: the operation.");
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(out, "{PREFIX}info{{op=\"{op}\"}} 1");
    family(&mut out, "up", "gauge", "1 while I/Os of the target return with success, 0 when they do not.");
    for (index, target) in watch.targets().iter().enumerate() {
        let up = u8::from(!watch.condition(index).is_alarm());
        let _ = writeln!(out, "{PREFIX}up{{target=\"{}\"}} {up}", escaped(&target.label));
    }
    for (name, help, figure) in GAUGES {
        family(&mut out, &format!("{name}_seconds"), "gauge", help);
        for (target, figures) in watch.targets().iter().zip(&figures) {
            if let Some(value) = figure(figures) {
                let _ =
                    writeln!(out, "{PREFIX}{name}_seconds{{target=\"{}\"}} {value}", escaped(&target.label));
            }
        }
    }
    for (name, help, count) in COUNTERS {
        family(&mut out, &format!("{name}_total"), "counter", help);
        for (target, figures) in watch.targets().iter().zip(&figures) {
            let value = count(figures);
            let _ = writeln!(out, "{PREFIX}{name}_total{{target=\"{}\"}} {value}", escaped(&target.label));
        }
    }
    histograms(&mut out, watch);
    layers(&mut out, watch, &figures);
    family(&mut out, "cpu_seconds_total", "counter", "CPU time that the watch itself used.");
    let _ = writeln!(out, "{PREFIX}cpu_seconds_total {}", watch.cpu());
    out
}

fn histograms(out: &mut String, watch: &Watch) {
    let name = "delay_seconds";
    family(out, name, "histogram", "Delays, those of samples that a stall kept from being taken included.");
    for target in watch.targets() {
        let (histogram, label) = (target.series.histogram(), escaped(&target.label));
        for power in BOUND_POWERS {
            let bound_us = 1u64 << power;
            let (le, count) = (bound_us as f64 / 1e6, histogram.count_below(bound_us));
            let _ = writeln!(out, "{PREFIX}{name}_bucket{{target=\"{label}\",le=\"{le}\"}} {count}");
        }
        let count = histogram.count();
        let _ = writeln!(out, "{PREFIX}{name}_bucket{{target=\"{label}\",le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{PREFIX}{name}_sum{{target=\"{label}\"}} {}", histogram.sum() as f64 / 1e6);
        let _ = writeln!(out, "{PREFIX}{name}_count{{target=\"{label}\"}} {count}");
    }
}

fn layers(out: &mut String, watch: &Watch, figures: &[Figures]) {
    let Some(added) = watch.stack().and_then(|stack| stack.added(figures)) else { return };
    let gauges: [LayerGauge; 2] = [
        ("layer_added_davg_seconds", "davg of the layer above that of the layer below.", |layer| {
            layer.average_added
        }),
        ("layer_added_emax_seconds", "emax of the layer above that of the layer below.", |layer| {
            layer.peak_added
        }),
    ];
    for (name, help, value) in gauges {
        family(out, name, "gauge", help);
        for layer in &added {
            let label = escaped(&labels(watch, &layer.targets));
            let _ = writeln!(out, "{PREFIX}{name}{{layer=\"{label}\"}} {}", value(layer));
        }
    }
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const PREFIX: &str = "holdfast_watch_";

type Gauge = (&'static str, &'static str, fn(&Figures) -> Option<f64>);
const GAUGES: [Gauge; 9] = [
    ("last", "Latest delay.", |figures| figures.last),
    ("davg", "Mean delay of the window.", |figures| figures.davg),
    ("dstd_dev", "Standard deviation of the window.", |figures| figures.dstd_dev),
    ("dmin", "Smallest delay of the window.", |figures| figures.dmin),
    ("dmax", "Largest delay of the window.", |figures| figures.dmax),
    ("emin", "Quick-attack minimum.", |figures| figures.emin),
    ("emax", "Quick-attack maximum.", |figures| figures.emax),
    ("max", "Longest delay since the start.", |figures| figures.max),
    ("pending", "Age of the I/O that has not returned; 0 when there is none.", |figures| {
        Some(figures.pending.unwrap_or(0.0))
    }),
];

type LayerGauge = (&'static str, &'static str, fn(&Added) -> f64);

type Counter = (&'static str, &'static str, fn(&Figures) -> u64);
const COUNTERS: [Counter; 4] = [
    ("ios", "I/Os that returned with success.", |figures| figures.count),
    ("errors", "I/Os that returned with an error.", |figures| figures.errors),
    ("late", "I/Os that took longer than an interval, a pending one included.", |figures| figures.late),
    ("missed", "Samples not taken because an I/O before had not returned.", |figures| figures.missed),
];

/// Bucket bounds as powers of two of microseconds: 16 us to 67 s in factors of four, exact by construction.
const BOUND_POWERS: [u32; 12] = [4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::sample_watch;

    #[test]
    fn metrics_name_target_and_unit() {
        let text = metrics(&sample_watch());
        for line in [
            "# TYPE holdfast_watch_emax_seconds gauge",
            "holdfast_watch_emax_seconds{target=\"disk\"} 1.5",
            "holdfast_watch_pending_seconds{target=\"disk\"} 0",
            "holdfast_watch_ios_total{target=\"files\"} 8",
            "holdfast_watch_up{target=\"disk\"} 1",
            // Eight, and the one that the stall kept from being taken.
            "holdfast_watch_delay_seconds_count{target=\"disk\"} 9",
            "holdfast_watch_delay_seconds_bucket{target=\"disk\",le=\"0.004096\"} 7",
            "holdfast_watch_layer_added_emax_seconds{layer=\"disk\"} 1.5",
            "holdfast_watch_cpu_seconds_total 0.003",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // One HELP and one TYPE for each family, before its samples.
        let mut seen = Vec::new();
        for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
            let name = line.split(' ').nth(2).unwrap();
            assert!(!seen.contains(&name), "{name}");
            seen.push(name);
        }
    }
}
