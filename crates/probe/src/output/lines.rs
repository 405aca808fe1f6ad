//! One line for each sample, for logs and pipes.

use crate::units::{show_delay, show_time};
use crate::watch::Watch;

/// The line after a sample of target `index`.
pub(crate) fn sample(watch: &Watch, index: usize) -> String {
    let target = &watch.targets()[index];
    let figures = target.series.figures(watch.now_ns());
    if target.series.is_failing() {
        let error = target.series.last_error().unwrap_or("?");
        return format!("{} {} failed: {error} errors={}", now(watch), target.label, figures.errors);
    }
    let show =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| show_delay(value).replace(' ', ""));
    format!(
        "{} {} last={} davg={} dstd_dev={} emin={} emax={} max={} late={} errors={}",
        now(watch),
        target.label,
        show(figures.last),
        show(figures.davg),
        show(figures.dstd_dev),
        show(figures.emin),
        show(figures.emax),
        show(figures.max),
        figures.late,
        figures.errors
    )
}

/// A line about something else.
pub(crate) fn remark(watch: &Watch, text: &str) -> String {
    format!("{} {}", now(watch), text.trim())
}

fn now(watch: &Watch) -> String {
    show_time((watch.header().started_unix_ms.saturating_add(watch.now_ns() / 1_000_000)) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::sample_watch;

    #[test]
    fn a_line_names_time_target_and_figures() {
        let line = sample(&sample_watch(), 0);
        assert!(line.starts_with("2023-11-14T22:13:29Z disk last=2.00ms davg=302ms dstd_dev="), "{line}");
        assert!(line.ends_with("emin=2.00ms emax=1.50s max=1.50s late=1 errors=0"), "{line}");
    }
}
