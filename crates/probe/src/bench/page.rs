//! Reports as pages: Markdown, and HTML with graphs.

use std::fmt::Write;

use crate::bench::delays::Delays;
use crate::bench::report::{Figure, Report, Shares, Unit, median};
use crate::bench::text::{share, show};
use crate::units::{show_delay, show_time};

/// A section for each report, with a table, and why there are no more.
pub(crate) fn markdown(reports: &[Report], error: Option<&str>) -> String {
    let mut out = String::from("# Benchmark\n");
    for report in reports {
        _ = writeln!(out, "\n## {}\n\n{}\n", report.bench, line_of(report));
        let (head, rows) = table(report);
        _ = writeln!(out, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
        for row in rows {
            _ = writeln!(out, "| {} |", row.join(" | "));
        }
        for (word, text) in remarks(report) {
            _ = writeln!(out, "\n*{word}*: {text}");
        }
    }
    if let Some(error) = error {
        _ = writeln!(out, "\n*ended early*: {error}");
    }
    out
}

/// The same as one page without anything from elsewhere.
pub(crate) fn html(reports: &[Report], error: Option<&str>) -> String {
    let mut out = String::from(HEAD);
    for report in reports {
        _ = writeln!(out, "<h2>{}</h2>\n<p>{}</p>", escaped(report.bench), escaped(&line_of(report)));
        if report.figures.iter().any(|figure| figure.ratio().is_some()) {
            ratios(&mut out, report);
        }
        let (head, rows) = table(report);
        let cells = |tag: &str, row: &[String]| {
            row.iter().fold(String::new(), |line, cell| line + &format!("<{tag}>{}</{tag}>", escaped(cell)))
        };
        _ = writeln!(out, "<table><tr>{}</tr>", cells("th", &head));
        for row in rows {
            _ = writeln!(out, "<tr>{}</tr>", cells("td", &row));
        }
        out += "</table>\n";
        report.figures.iter().filter(|figure| figure.series.len() > SERIES_MIN).for_each(|figure| {
            series(&mut out, figure);
        });
        for (word, text) in remarks(report) {
            _ = writeln!(out, "<p class=\"{word}\">{word}: {}</p>", escaped(text));
        }
    }
    if let Some(error) = error {
        _ = writeln!(out, "<p class=\"warning\">ended early: {}</p>", escaped(error));
    }
    out += "</body></html>\n";
    out
}

fn line_of(report: &Report) -> String {
    let (machine, file_system) = (&report.machine, &report.file_system);
    format!(
        "{} ({}, {}), Linux {}, {} cores, holdfast {}, {}; medians of {} runs",
        file_system.kind,
        file_system.source,
        file_system.options,
        machine.kernel,
        machine.cores,
        report.version,
        show_time(report.started),
        report.runs,
    )
}

fn remarks(report: &Report) -> impl Iterator<Item = (&'static str, &str)> {
    let notes = report.notes.iter().map(|text| ("note", text.as_str()));
    notes.chain(report.warnings.iter().map(|text| ("warning", text.as_str())))
}

/// Head and rows.
fn table(report: &Report) -> (Vec<String>, Vec<Vec<String>>) {
    let strings = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let beside = report.beside;
    match report.figures.first().map(|figure| figure.unit) {
        Some(Unit::Delay) => (
            strings(&["", "p50", "spread", "p99", "p99.9", "max", beside, "its p99", "ratio"]),
            report.figures.iter().map(delays_row).collect(),
        ),
        Some(Unit::Stale) => {
            let row = |figure: &Figure| {
                vec![figure.name.clone(), format!("{:.0}", figure.median()), figure.count.to_string()]
            };
            (strings(&["", "stale", "of"]), report.figures.iter().map(row).collect())
        }
        Some(Unit::Throughput) => (
            strings(&["", "median", "spread", "of raw", "of the rung below"]),
            report.figures.iter().map(ladder_row).collect(),
        ),
        Some(Unit::PerSecond | Unit::Seconds) | None => (
            strings(&["", "median", "spread", "for each", beside, "ratio"]),
            report.figures.iter().map(rates_row).collect(),
        ),
    }
}

fn rates_row(figure: &Figure) -> Vec<String> {
    let local =
        if figure.local.is_empty() { String::new() } else { show(figure.unit, median(&figure.local)) };
    vec![
        figure.name.clone(),
        show(figure.unit, figure.median()),
        spread(figure),
        show_delay(figure.each_seconds()),
        local,
        ratio(figure),
    ]
}

fn ladder_row(figure: &Figure) -> Vec<String> {
    let Shares { of_raw, of_below } = figure.shares.unwrap_or_default();
    let median = show(figure.unit, figure.median());
    vec![figure.name.clone(), median, spread(figure), share(of_raw), share(of_below)]
}

fn delays_row(figure: &Figure) -> Vec<String> {
    let own = figure.delays.clone().unwrap_or_default();
    let local = |of: fn(&Delays) -> f64| {
        figure.local_delays.as_ref().map_or_else(String::new, |local| show_delay(of(local)))
    };
    vec![
        figure.name.clone(),
        show_delay(figure.median()),
        spread(figure),
        show_delay(own.p99),
        show_delay(own.p99_9),
        show_delay(own.max),
        local(|local| local.p50),
        local(|local| local.p99),
        ratio(figure),
    ]
}

fn spread(figure: &Figure) -> String {
    format!("±{:.0} %", figure.spread() * 100.0)
}

fn ratio(figure: &Figure) -> String {
    figure.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

/// Bars of the ratios, on a logarithmic scale; to the right of the line in the middle is better.
fn ratios(out: &mut String, report: &Report) {
    let bars: Vec<(&str, f64)> =
        report.figures.iter().filter_map(|figure| Some((figure.name.as_str(), figure.ratio()?))).collect();
    let octaves = bars.iter().map(|(_, ratio)| ratio.log2().abs()).fold(1.0, f64::max).ceil();
    let height = bars.len() as f64 * BAR + 40.0;
    let (middle, half) = ((LEFT + WIDTH - RIGHT) / 2.0, (WIDTH - RIGHT - LEFT) / 2.0);
    let at = |ratio: f64| middle + ratio.log2().clamp(-octaves, octaves) / octaves * half;
    _ = writeln!(
        out,
        "<svg width=\"{WIDTH}\" height=\"{height}\" font-size=\"12\" font-family=\"sans-serif\">"
    );
    _ = writeln!(
        out,
        "<text x=\"{middle}\" y=\"14\" text-anchor=\"middle\">as fast as {}</text>",
        escaped(report.beside)
    );
    for (index, (name, ratio)) in bars.iter().enumerate() {
        let y = 24.0 + index as f64 * BAR;
        let (start, end) = (at(*ratio).min(middle), at(*ratio).max(middle));
        let colour = if *ratio < 1.0 { "#c0563f" } else { "#3f7fc0" };
        _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{start:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{}\">{ratio:.2}</text>",
            LEFT - 8.0,
            y + BAR - 8.0,
            escaped(name),
            (end - start).max(1.0),
            BAR - 6.0,
            WIDTH - RIGHT + 8.0,
            y + BAR - 8.0,
        );
    }
    _ = writeln!(
        out,
        "<line x1=\"{middle}\" y1=\"20\" x2=\"{middle}\" y2=\"{}\" stroke=\"#444444\"/></svg>",
        height - 12.0
    );
}

/// How many in each second, as a line.
fn series(out: &mut String, figure: &Figure) {
    // The last second is not a whole one.
    let whole = &figure.series[..figure.series.len() - 1];
    let most = whole.iter().copied().max().unwrap_or(0).max(1) as f64;
    let step = (WIDTH - RIGHT - LEFT) / (whole.len() - 1).max(1) as f64;
    let points: Vec<String> = whole
        .iter()
        .enumerate()
        .map(|(second, count)| {
            let y = 100.0 - *count as f64 / most * 80.0;
            format!("{:.1},{y:.1}", LEFT + second as f64 * step)
        })
        .collect();
    _ = writeln!(
        out,
        "<svg width=\"{WIDTH}\" height=\"120\" font-size=\"12\" font-family=\"sans-serif\">\
         <text x=\"{}\" y=\"24\" text-anchor=\"end\">{} {most:.0} /s</text>\
         <text x=\"{}\" y=\"104\" text-anchor=\"end\">0</text>\
         <line x1=\"{LEFT}\" y1=\"100\" x2=\"{}\" y2=\"100\" stroke=\"#dddddd\"/>\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#3f7fc0\" stroke-width=\"1.5\"/>\
         <text x=\"{}\" y=\"118\" text-anchor=\"end\">{} s</text></svg>",
        LEFT - 8.0,
        escaped(&figure.name),
        LEFT - 8.0,
        WIDTH - RIGHT,
        points.join(" "),
        WIDTH - RIGHT,
        whole.len(),
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Benchmark</title>\n<style>\n\
    body { font-family: sans-serif; max-width: 60em; margin: 2em auto; color: #222222 }\n\
    table { border-collapse: collapse; margin: 1em 0 }\n\
    th, td { padding: 0.2em 0.8em; text-align: right; border-bottom: 1px solid #dddddd }\n\
    th:first-child, td:first-child { text-align: left }\n\
    .warning { color: #a04000 }\n.note { color: #666666 }\n\
    </style></head><body>\n<h1>Benchmark</h1>\n";
const WIDTH: f64 = 760.0;
const LEFT: f64 = 200.0;
const RIGHT: f64 = 60.0;
const BAR: f64 = 20.0;
/// Seconds below which there is no line to draw.
const SERIES_MIN: usize = 3;
