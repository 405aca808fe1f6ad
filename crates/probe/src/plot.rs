//! Graphs as SVG, and as PNG by rsvg-convert(1): a panel for each target, time to the right, delay upwards on a logarithmic scale.

use std::fmt::Write;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::units::{show_delay, show_time};
use crate::watch::{Point, TargetState, Watch};

/// The picture of a run.
pub(crate) fn svg(watch: &Watch) -> String {
    let targets = watch.targets();
    let height = HEAD + targets.len() as f64 * PANEL + FOOT;
    let header = watch.header();
    let start = show_time(header.started_unix_ms / 1000);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">holdfast watch: {}, window {}, from {start}</text>\n",
        header.op, header.window,
    );
    legend(&mut out);
    let scale = Scale::of(watch);
    for (index, target) in targets.iter().enumerate() {
        panel(&mut out, target, &scale, HEAD + index as f64 * PANEL);
    }
    times(&mut out, &scale, HEAD + targets.len() as f64 * PANEL);
    out += "</svg>\n";
    out
}

/// Whether there is a program that makes a PNG of an SVG.
pub(crate) fn can_convert() -> bool {
    let mut command = Command::new(CONVERTER);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Writes a picture, as a PNG if the name says so.
pub(crate) fn write(path: &Path, svg: &str) -> io::Result<()> {
    if path.extension().is_none_or(|extension| extension != "png") {
        return std::fs::write(path, svg);
    }
    let mut child = Command::new(CONVERTER)
        .args(["--format=png", "--zoom=2", "--output"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()?;
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(svg.as_bytes()));
    match child.wait()?.success() {
        true => written,
        false => Err(io::Error::other(format!("{CONVERTER} failed"))),
    }
}

fn legend(out: &mut String) {
    for (index, (name, colour)) in COLOURS.iter().enumerate() {
        let x = LEFT + index as f64 * 150.0;
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"30\" width=\"14\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"40\">{name}</text>",
            x + 18.0
        );
    }
}

fn panel(out: &mut String, target: &TargetState, scale: &Scale, top: f64) {
    let (right, bottom) = (WIDTH - RIGHT, top + PANEL - GAP);
    let at = |value: f64| bottom - scale.up(value) * (PANEL - GAP);
    let _ = writeln!(
        out,
        "<g><text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>\n\
         <rect x=\"{LEFT}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888888\"/>",
        top - 6.0,
        escaped(&target.label),
        right - LEFT,
        bottom - top
    );
    for power in scale.low..=scale.high {
        let (value, y) = (10f64.powi(power), at(10f64.powi(power)));
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            show_delay(value)
        );
    }
    let points = target.history.points();
    if points.is_empty() {
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">nothing measured</text></g>", LEFT + 10.0, top + 20.0);
        return;
    }
    // The deviation as a band around the mean, under all lines.
    let band = |edge: f64, point: &Point| at(point.davg + edge * point.dstd_dev);
    let upper = points.iter().map(|point| (scale.across(point.at), band(1.0, point)));
    let lower = points.iter().rev().map(|point| (scale.across(point.at), band(-1.0, point)));
    let outline: Vec<String> = upper.chain(lower).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        out,
        "<polygon points=\"{}\" fill=\"{}\" opacity=\"0.35\"/>",
        outline.join(" "),
        COLOURS[2].1
    );
    let figures: [Line; 4] =
        [(4, |point| point.emax), (3, |point| point.emin), (1, |point| point.davg), (0, |point| point.last)];
    for (colour, figure) in figures {
        let line: Vec<String> = points
            .iter()
            .map(|point| format!("{:.1},{:.1}", scale.across(point.at), at(figure(point))))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\"/>",
            line.join(" "),
            COLOURS[colour].1
        );
    }
    out.push_str("</g>\n");
}

fn times(out: &mut String, scale: &Scale, y: f64) {
    for part in 0..=4 {
        let seconds = scale.from + (scale.to - scale.from) * f64::from(part) / 4.0;
        let x = scale.across(seconds);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{seconds:.1} s</text>",
            y - 5.0
        );
    }
}

/// One scale for all panels, so that they can be compared.
struct Scale {
    /// Powers of ten of seconds.
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Scale {
    fn of(watch: &Watch) -> Self {
        let points = || watch.targets().iter().flat_map(|target| target.history.points());
        let low = points().map(|point| point.emin).fold(f64::INFINITY, f64::min);
        let high = points().map(|point| point.emax.max(point.davg + point.dstd_dev)).fold(0.0, f64::max);
        let from = points().map(|point| point.at).fold(f64::INFINITY, f64::min);
        let to = points().map(|point| point.at).fold(0.0, f64::max);
        if high <= 0.0 {
            return Self { low: -6, high: 0, from: 0.0, to: 1.0 };
        }
        let low = low.max(1e-9).log10().floor() as i32;
        let high = (high.log10().ceil() as i32).max(low + 1);
        Self { low, high, from, to: to.max(from + 0.001) }
    }

    /// From 0 at the bottom of a panel to 1 at its top.
    fn up(&self, value: f64) -> f64 {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        ((value.max(1e-12).log10() - low) / (high - low)).clamp(0.0, 1.0)
    }

    fn across(&self, at: f64) -> f64 {
        LEFT + (at - self.from) / (self.to - self.from) * (WIDTH - LEFT - RIGHT)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Index of a colour, and the figure.
type Line = (usize, fn(&Point) -> f64);

/// Figures and colours that people with any sight tell apart (Okabe and Ito).
const COLOURS: [(&str, &str); 5] = [
    ("last", "#999999"),
    ("davg", "#0072b2"),
    ("davg ± dstd_dev", "#56b4e9"),
    ("emin", "#009e73"),
    ("emax", "#d55e00"),
];
const WIDTH: f64 = 960.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const HEAD: f64 = 74.0;
const PANEL: f64 = 220.0;
const GAP: f64 = 40.0;
const FOOT: f64 = 10.0;

const CONVERTER: &str = "rsvg-convert";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::{sample_events, sample_watch};

    #[test]
    fn a_graph_has_a_panel_for_each_target_and_all_lines_within_it() {
        let text = svg(&sample_watch());
        assert_eq!(text.matches("<polyline").count(), 8);
        assert_eq!(text.matches("<polygon").count(), 2);
        assert!(text.contains(">disk</text>") && text.contains(">files</text>"), "{text}");
        assert!(text.contains(">1.00 ms</text>") && text.contains(">10.0 s</text>"), "{text}");
        for points in text.split("points=\"").skip(1) {
            for pair in points.split('"').next().unwrap().split(' ') {
                let (x, y) = pair.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!(
                    (LEFT..=WIDTH - RIGHT).contains(&x) && (HEAD..=HEAD + 2.0 * PANEL).contains(&y),
                    "{pair}"
                );
            }
        }
        // The peak of the stall is the top of its panel: a tenth of the way to the next power, from 1 ms to 10 s.
        let open = text.matches("<g>").count();
        assert_eq!((open, text.matches("</g>").count()), (2, 2));
    }

    #[test]
    fn labels_do_not_break_the_picture_and_an_empty_run_has_one() {
        let (mut header, _) = sample_events();
        header.stack = None;
        header.targets[0].1 = "<a&\"b>".to_owned();
        let text = svg(&Watch::new(header).unwrap());
        assert!(text.contains("&lt;a&amp;&quot;b&gt;") && text.contains("nothing measured"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
