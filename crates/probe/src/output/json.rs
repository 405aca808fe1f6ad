//! The whole run as one document. Times in seconds, null where nothing was measured.

use serde_json::{Value as Json, json};

use super::verdict::{labels, verdict};
use crate::units::{seconds, show_time};
use crate::watch::{Phase, Watch};

/// Everything that is known.
pub(crate) fn document(watch: &Watch) -> Json {
    let header = watch.header();
    let general = |(target, text): &(Option<usize>, String)| target.is_none().then(|| text.clone());
    json!({
        "version": 1,
        "started": show_time(header.started_unix_ms / 1000),
        "started_unix_seconds": header.started_unix_ms as f64 / 1e3,
        "duration_seconds": seconds(watch.now_ns()),
        "op": header.op.name(),
        "interval_seconds": seconds(header.interval_ns),
        "window_samples": header.window,
        "targets": (0..watch.targets().len()).map(|index| target(watch, index)).collect::<Vec<Json>>(),
        "layers": layers(watch),
        "verdict": verdict(watch),
        "notices": watch.notices().iter().filter_map(general).collect::<Vec<String>>(),
        "cost": {
            "cpu_seconds": watch.cpu(),
            "cpu_ratio": watch.cpu() / seconds(watch.now_ns()).max(1e-3),
        },
    })
}

fn target(watch: &Watch, index: usize) -> Json {
    let state = &watch.targets()[index];
    let figures = state.series.figures(watch.now_ns());
    let (kind, size_bytes, is_direct) = match &state.phase {
        Phase::Open { kind, size_bytes, is_direct } => (Some(kind), Some(size_bytes), Some(is_direct)),
        Phase::Opening | Phase::Failed { .. } => (None, None, None),
    };
    let error = match &state.phase {
        Phase::Failed { text } => Some(text.as_str()),
        Phase::Opening | Phase::Open { .. } => state.series.last_error(),
    };
    let notices: Vec<&String> = watch
        .notices()
        .iter()
        .filter_map(|(target, text)| (*target == Some(index)).then_some(text))
        .collect();
    json!({
        "label": state.label,
        "path": state.path,
        "state": watch.condition(index).word(),
        "kind": kind,
        "size_bytes": size_bytes,
        "direct": is_direct,
        "last_seconds": figures.last,
        "davg_seconds": figures.davg,
        "dstd_dev_seconds": figures.dstd_dev,
        "dmin_seconds": figures.dmin,
        "dmax_seconds": figures.dmax,
        "emin_seconds": figures.emin,
        "emax_seconds": figures.emax,
        "p50_seconds": figures.p50,
        "p99_seconds": figures.p99,
        "p999_seconds": figures.p999,
        "max_seconds": figures.max,
        "pending_seconds": figures.pending,
        "window_filled_samples": state.series.window_len(),
        "ios_total": figures.count,
        "errors_total": figures.errors,
        "missed_total": figures.missed,
        "late_total": figures.late,
        "last_error": error,
        "notices": notices,
    })
}

fn layers(watch: &Watch) -> Json {
    let Some(added) = watch.stack().and_then(|stack| stack.added(&watch.figures())) else {
        return Json::Null;
    };
    let layer = |layer: &crate::stack::Added| {
        json!({
            "targets": labels(watch, &layer.targets),
            "davg_seconds": layer.average,
            "davg_added_seconds": layer.average_added,
            "emax_seconds": layer.peak,
            "emax_added_seconds": layer.peak_added,
        })
    };
    added.iter().map(layer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::sample_watch;

    #[test]
    fn a_document_has_the_figures_with_units() {
        let document = document(&sample_watch());
        let disk = &document["targets"][0];
        assert_eq!((&disk["label"], &disk["state"]), (&json!("disk"), &json!("ok")));
        assert_eq!(
            (&disk["ios_total"], &disk["missed_total"], &disk["late_total"]),
            (&json!(8), &json!(1), &json!(1))
        );
        assert_eq!((&disk["emax_seconds"], &disk["max_seconds"]), (&json!(1.5), &json!(1.5)));
        assert_eq!((&disk["pending_seconds"], &disk["last_error"]), (&Json::Null, &Json::Null));
        assert_eq!(document["layers"][0]["emax_added_seconds"], 1.5);
        assert!((document["layers"][1]["emax_added_seconds"].as_f64().unwrap() - 0.001).abs() < 1e-9);
        assert_eq!(document["started"], "2023-11-14T22:13:20Z");
        assert_eq!(document["cost"]["cpu_seconds"], 0.003);
    }
}
