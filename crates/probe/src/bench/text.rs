//! A report as a table, for people.

use std::fmt::Write;

use crate::bench::delays::Delays;
use crate::bench::environment::{FileSystem, Machine};
use crate::bench::report::{CpuShare, Figure, Report, Shares, Unit, median};
use crate::units::show_delay;

impl Report {
    /// As a table.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let FileSystem { kind, source, options, .. } = &self.file_system;
        _ = writeln!(text, "{}: {kind} ({source}, {options})", self.bench);
        let Machine { kernel, cores, load, .. } = &self.machine;
        _ = writeln!(text, "Linux {kernel}, {cores} cores, load {load}; median of {} runs\n", self.runs);
        let width = self.figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0).max(4);
        match self.figures.first().map(|figure| figure.unit) {
            Some(Unit::PerSecond | Unit::Seconds) => self.write_rates(&mut text, width),
            Some(Unit::Throughput) => self.write_ladder(&mut text, width),
            Some(Unit::Delay) => self.write_delays(&mut text, width),
            Some(Unit::Stale) => self.write_seen(&mut text, width),
            None => {}
        }
        text.push('\n');
        for (word, list) in [("note", &self.notes), ("warning", &self.warnings)] {
            for line in list {
                _ = writeln!(text, "{word}: {line}");
            }
        }
        text
    }

    fn write_rates(&self, text: &mut String, width: usize) {
        _ = writeln!(
            text,
            "{:width$} {:>13} {:>6} {:>11} {:>13} {:>6} {:>9} {:>9} {:>9}",
            "", "", "spread", "each", self.beside, "ratio", "client", "daemon", "kernel"
        );
        for figure in &self.figures {
            let local = if figure.local.is_empty() {
                String::new()
            } else {
                show(figure.unit, median(&figure.local))
            };
            let CpuShare { client, daemon, kernel, .. } = figure.cpu_us;
            _ = writeln!(
                text,
                "{:width$} {:>13} {:>5.0}% {:>8.1} us {:>13} {:>6} {:>6.1} us {:>9} {:>6.1} us",
                figure.name,
                show(figure.unit, figure.median()),
                figure.spread() * 100.0,
                figure.each_seconds() * 1e6,
                local,
                ratio(figure),
                client,
                daemon.map_or_else(String::new, |daemon| format!("{daemon:.1} us")),
                kernel,
            );
            write_counters(text, width, figure);
        }
    }

    fn write_ladder(&self, text: &mut String, width: usize) {
        _ = writeln!(
            text,
            "{:width$} {:>12} {:>6} {:>8} {:>8} {:>11} {:>11}",
            "", "", "spread", "of raw", "of below", "daemon/MiB", "kernel/MiB"
        );
        for figure in &self.figures {
            let Shares { of_raw, of_below } = figure.shares.unwrap_or_default();
            let CpuShare { daemon, kernel, .. } = figure.cpu_us;
            _ = writeln!(
                text,
                "{:width$} {:>12} {:>5.0}% {:>8} {:>8} {:>11} {kernel:>8.0} us",
                figure.name,
                show(figure.unit, figure.median()),
                figure.spread() * 100.0,
                share(of_raw),
                share(of_below),
                daemon.map_or_else(String::new, |daemon| format!("{daemon:.0} us")),
            );
            write_counters(text, width, figure);
        }
    }

    fn write_delays(&self, text: &mut String, width: usize) {
        _ = writeln!(
            text,
            "{:width$} {:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}",
            "", "p50", "spread", "p99", "p99.9", "max", self.beside, "its p99", "ratio"
        );
        for figure in &self.figures {
            let own = figure.delays.clone().unwrap_or_default();
            let local = |of: fn(&Delays) -> f64| {
                figure.local_delays.as_ref().map_or_else(String::new, |local| show_delay(of(local)))
            };
            _ = writeln!(
                text,
                "{:width$} {:>9} {:>5.0}% {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}",
                figure.name,
                show_delay(figure.median()),
                figure.spread() * 100.0,
                show_delay(own.p99),
                show_delay(own.p99_9),
                show_delay(own.max),
                local(|local| local.p50),
                local(|local| local.p99),
                ratio(figure),
            );
            write_counters(text, width, figure);
        }
    }

    fn write_seen(&self, text: &mut String, width: usize) {
        for figure in &self.figures {
            _ = writeln!(text, "{:width$} {:>6.0} stale of {}", figure.name, figure.median(), figure.count);
        }
    }
}

fn write_counters(text: &mut String, width: usize, figure: &Figure) {
    for (name, each) in figure.counters.iter().filter(|(_, each)| *each >= COUNTER_MIN) {
        _ = writeln!(text, "{:width$}   {each:.3} {name}", "");
    }
}

/// `79 %`; nothing of nothing.
pub(crate) fn share(of: Option<f64>) -> String {
    of.map_or_else(String::new, |of| format!("{:.0} %", of * 100.0))
}

fn ratio(figure: &Figure) -> String {
    figure.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

pub(crate) fn show(unit: Unit, value: f64) -> String {
    match unit {
        Unit::PerSecond => format!("{value:.0} /s"),
        Unit::Throughput => format!("{value:.0} MB/s"),
        Unit::Seconds if value < 1.0 => format!("{value:.4} s"),
        Unit::Seconds => format!("{value:.2} s"),
        Unit::Delay => show_delay(value),
        Unit::Stale => format!("{value:.0}"),
    }
}

/// Counters that are shown to people: once for a thousand at least.
const COUNTER_MIN: f64 = 0.001;
