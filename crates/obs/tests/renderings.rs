//! The three renderings, the way back from JSON, and the promises about names.

use obs::{
    DEFINITIONS, FuseKind, HeldMode, MessageKind, Metrics, OperationKind, Shape, Snapshot, TokenKind, Unit,
    Zeros,
};

const KINDS: &[&str] = &["hello", "grant", "batch"];

fn sample() -> Metrics {
    let metrics = Metrics::with_message_kinds(KINDS);
    metrics.fuse_requests.add(FuseKind::Lookup, 3);
    metrics.fuse_requests.add(FuseKind::Create, 2);
    metrics.fuse_duration.record(FuseKind::Create, 120);
    metrics.messages_sent.add(MessageKind(2), 4);
    metrics.messages_received.add(MessageKind(7), 1);
    metrics.operations_local.add(OperationKind::Create, 2);
    metrics.operations_shipped.add(OperationKind::Rename, 1);
    metrics.tokens_held.add((TokenKind::Dir, HeldMode::Ex), 5);
    metrics.tokens_held.add((TokenKind::File, HeldMode::Pr), 2);
    metrics.log_bytes.add(4096);
    metrics.log_bytes.add(-96);
    metrics.engine_sync.record(1500);
    metrics
}

#[test]
fn the_sums_stand_at_the_top_level() {
    let json = sample().snapshot().to_json();
    for (name, sum) in [
        ("fuse_requests_total", 5),
        ("messages_sent_total", 4),
        ("messages_received_total", 1),
        ("operations_local_total", 2),
        ("operations_shipped_total", 1),
        ("tokens_held", 7),
    ] {
        assert_eq!(json[name], sum, "{name}");
    }
    assert_eq!(json["by_label"]["fuse_requests_total"]["lookup"], 3);
    assert_eq!(json["by_label"]["tokens_held"]["dir"]["ex"], 5);
    assert_eq!(json["by_label"]["messages_sent_total"]["batch"], 4);
    assert_eq!(json["by_label"]["messages_received_total"]["other"], 1);
    assert_eq!((&json["log_bytes"], &json["log_bytes_peak"]), (&4000.into(), &4096.into()));
    assert_eq!(json["engine_sync_duration_seconds"]["max"], 0.0015);
}

#[test]
fn every_definition_is_in_the_json_under_its_name() {
    let json = Metrics::new().snapshot().to_json();
    for definition in DEFINITIONS {
        assert!(json.get(definition.name).is_some(), "{}", definition.name);
    }
}

#[test]
fn json_reads_back_and_renders_the_same() {
    let snapshot = sample().snapshot();
    let json = snapshot.to_json();
    let text = json.to_string();
    let parsed = serde_json::from_str(&text).expect("our own JSON parses");
    let back = Snapshot::from_json(&parsed).expect("our own JSON is a snapshot");
    assert_eq!(back.to_json(), json);
    assert_eq!(back.to_text(Zeros::Hide, None), snapshot.to_text(Zeros::Hide, None));
}

#[test]
fn foreign_json_is_refused_with_the_key() {
    for (text, key) in [
        ("[]", "document"),
        ("{}", "fuse_requests_total"),
        (r#"{"batches_total": "many"}"#, "batches_total"),
        (r#"{"tokens_held": 3, "by_label": {"tokens_held": 3}}"#, "tokens_held"),
        (r#"{"engine_sync_duration_seconds": {"count": 1}}"#, "engine_sync_duration_seconds"),
    ] {
        let document = serde_json::from_str(text).expect("test input is JSON");
        let error = Snapshot::from_json(&document).expect_err(text);
        assert_eq!(error.key, key);
    }
}

#[test]
fn delta_subtracts_counters_and_keeps_gauges() {
    let metrics = sample();
    let earlier = metrics.snapshot();
    metrics.fuse_requests.add(FuseKind::Lookup, 10);
    metrics.log_bytes.set(7);
    let delta = metrics.snapshot().delta(&earlier);
    assert_eq!(delta.sum("fuse_requests_total"), 10);
    assert_eq!(delta.sum("log_bytes"), 7);
    assert_eq!(delta.sum("engine_sync_duration_seconds"), 0);
}

#[test]
fn a_counter_that_went_back_counts_from_zero() {
    let earlier = sample().snapshot();
    let restarted = Metrics::with_message_kinds(KINDS);
    restarted.fuse_requests.add(FuseKind::Lookup, 1);
    assert_eq!(restarted.snapshot().delta(&earlier).sum("fuse_requests_total"), 1);
}

#[test]
fn text_hides_zero_rows_unless_asked() {
    let snapshot = sample().snapshot();
    let hidden = snapshot.to_text(Zeros::Hide, None);
    assert!(hidden.contains("fuse_requests_total") && !hidden.contains("watchdog_aborts_total"), "{hidden}");
    assert!(hidden.contains("log_bytes_peak") && !hidden.contains("readlink"), "{hidden}");
    let shown = snapshot.to_text(Zeros::Show, None);
    assert!(shown.contains("watchdog_aborts_total") && shown.contains("readlink"), "{shown}");
}

#[test]
fn text_of_an_interval_has_rates() {
    let text = sample().snapshot().to_text(Zeros::Hide, Some(2.0));
    let line = text.lines().find(|line| line.contains("fuse_requests_total")).expect("has the row");
    assert!(line.ends_with("2.5/s"), "{line}");
}

#[test]
fn prometheus_text_is_well_formed() {
    let text = sample().snapshot().to_prometheus();
    assert!(text.contains("holdfast_fuse_requests_total{kind=\"lookup\"} 3\n"), "{text}");
    assert!(text.contains("holdfast_tokens_held{resource=\"dir\",mode=\"ex\"} 5\n"), "{text}");
    assert!(text.contains("# TYPE holdfast_log_bytes_peak gauge\nholdfast_log_bytes_peak 4096\n"), "{text}");
    assert!(text.contains("holdfast_engine_sync_duration_seconds_bucket{le=\"0.001024\"} 0\n"), "{text}");
    assert!(text.contains("holdfast_engine_sync_duration_seconds_bucket{le=\"0.004096\"} 1\n"), "{text}");
    assert!(text.contains("holdfast_engine_sync_duration_seconds_sum 0.0015\n"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').expect("name and value");
        assert!(line.starts_with("holdfast_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn names_follow_the_prometheus_rules() {
    let mut seen = std::collections::BTreeSet::new();
    for definition in DEFINITIONS {
        let name = definition.name;
        assert!(seen.insert(name), "{name} is defined twice");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), definition.shape == Shape::Counter, "{name}");
        if definition.unit == Unit::Bytes {
            assert!(name.contains("_bytes"), "{name}");
        }
        if definition.unit == Unit::Seconds {
            assert!(name.ends_with("_seconds"), "{name}");
        }
        assert!(definition.help.ends_with('.'), "{name}");
    }
}

#[test]
fn definitions_and_types_agree() {
    for series in [Metrics::new().snapshot()].iter().flat_map(|snapshot| {
        DEFINITIONS
            .iter()
            .map(|definition| snapshot.series(definition.name).expect("every definition is read"))
    }) {
        let found = match series.total() {
            obs::Value::Counter(_) => matches!(series.definition.shape, Shape::Counter),
            obs::Value::Gauge { .. } => {
                matches!(series.definition.shape, Shape::Gauge | Shape::GaugeWithPeak)
            }
            obs::Value::Histogram(_) => matches!(series.definition.shape, Shape::Histogram),
        };
        assert!(found, "{}", series.definition.name);
    }
}
