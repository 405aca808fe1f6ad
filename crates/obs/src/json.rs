//! JSON form.
//!
//! Each metric stands at the top level under its name: a number (the sum where there are labels) or, for
//! a histogram, an object in seconds. `NAME_peak` stands beside gauges with a peak. Metrics with labels
//! stand once more in `by_label`, as objects from label value to number or object, nested where there
//! are two labels. `labels` names the labels of each of these.

use serde_json::{Map, Value as Json, json};

use crate::defs::{Definition, Shape};
use crate::histogram::HistogramSnapshot;
use crate::snapshot::{Cell, ReadError, Series, Snapshot, Value};

impl Snapshot {
    /// The whole snapshot as one object.
    pub fn to_json(&self) -> Json {
        let (mut top, mut by_label, mut labels) = (Map::new(), Map::new(), Map::new());
        for series in &self.series {
            let name = series.definition.name;
            let total = series.total();
            top.insert(name.to_owned(), json_of(&total));
            if let (Shape::GaugeWithPeak, Value::Gauge { peak, .. }) = (series.definition.shape, &total) {
                top.insert(format!("{name}_peak"), json!(peak));
            }
            if !series.label_names.is_empty() {
                by_label.insert(name.to_owned(), nested(&series.cells));
                labels.insert(name.to_owned(), json!(series.label_names));
            }
        }
        top.insert("by_label".to_owned(), Json::Object(by_label));
        top.insert("labels".to_owned(), Json::Object(labels));
        Json::Object(top)
    }

    /// Reads [`Self::to_json`] back, whatever other keys stand beside it. A metric that the document
    /// does not have (its writer is older) is left out; one that only the writer knows is not read.
    ///
    /// # Errors
    ///
    /// Names the first key whose value has another form than it must.
    pub fn from_json(document: &Json) -> Result<Self, ReadError> {
        let top = document.as_object().ok_or_else(|| wrong("document"))?;
        let mut series = Vec::new();
        for definition in crate::DEFINITIONS {
            if let Some(value) = top.get(definition.name) {
                series.push(read_series(definition, value, document)?);
            }
        }
        if series.is_empty() {
            return Err(wrong("fuse_requests_total"));
        }
        Ok(Self { series })
    }
}

fn read_series(definition: &'static Definition, total: &Json, document: &Json) -> Result<Series, ReadError> {
    let name = definition.name;
    let peak = document.get(format!("{name}_peak")).and_then(Json::as_i64);
    let Some(by_label) = document.get("by_label").and_then(|all| all.get(name)) else {
        let cell = Cell { labels: Vec::new(), value: read_value(definition, total, peak)? };
        return Ok(Series { definition, label_names: Vec::new(), cells: vec![cell] });
    };
    let label_names = document.get("labels").and_then(|all| all.get(name)).and_then(Json::as_array);
    let label_names = label_names.ok_or_else(|| wrong(name))?.iter();
    let label_names: Option<Vec<String>> =
        label_names.map(|label| label.as_str().map(str::to_owned)).collect();
    let label_names = label_names.ok_or_else(|| wrong(name))?;
    let mut cells = Vec::new();
    read_cells(definition, by_label, label_names.len(), &mut Vec::new(), &mut cells)?;
    Ok(Series { definition, label_names, cells })
}

fn read_cells(
    definition: &'static Definition,
    value: &Json,
    depth: usize,
    labels: &mut Vec<String>,
    cells: &mut Vec<Cell>,
) -> Result<(), ReadError> {
    if depth == 0 {
        cells.push(Cell { labels: labels.clone(), value: read_value(definition, value, None)? });
        return Ok(());
    }
    for (label, value) in value.as_object().ok_or_else(|| wrong(definition.name))? {
        labels.push(label.clone());
        read_cells(definition, value, depth - 1, labels, cells)?;
        labels.pop();
    }
    Ok(())
}

fn read_value(definition: &Definition, value: &Json, peak: Option<i64>) -> Result<Value, ReadError> {
    let read = match definition.shape {
        Shape::Counter => value.as_u64().map(Value::Counter),
        Shape::Gauge | Shape::GaugeWithPeak => {
            value.as_i64().map(|now| Value::Gauge { now, peak: peak.unwrap_or(now) })
        }
        Shape::Histogram => read_histogram(value).map(Value::Histogram),
    };
    read.ok_or_else(|| wrong(definition.name))
}

fn read_histogram(value: &Json) -> Option<HistogramSnapshot> {
    let seconds = |key| value.get(key).and_then(Json::as_f64);
    let micros = |key| seconds(key).map(|s: f64| (s * 1e6).round() as u64);
    let buckets = value.get("buckets_us")?.as_array()?.iter();
    let buckets: Option<Vec<(u64, u64)>> =
        buckets.map(|pair| Some((pair.get(0)?.as_u64()?, pair.get(1)?.as_u64()?))).collect();
    Some(HistogramSnapshot::from_parts(buckets?.into_iter(), micros("sum")?, micros("max")?))
}

fn nested(cells: &[Cell]) -> Json {
    let mut top = Map::new();
    for cell in cells {
        insert(&mut top, &cell.labels, json_of(&cell.value));
    }
    Json::Object(top)
}

fn insert(map: &mut Map<String, Json>, labels: &[String], value: Json) {
    match labels {
        [] => {}
        [last] => {
            map.insert(last.clone(), value);
        }
        [outer, inner @ ..] => {
            let below = map.entry(outer.clone()).or_insert_with(|| Json::Object(Map::new()));
            if let Json::Object(below) = below {
                insert(below, inner, value);
            }
        }
    }
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::Counter(n) => json!(n),
        Value::Gauge { now, .. } => json!(now),
        Value::Histogram(histogram) => json!({
            "count": histogram.count(),
            "sum": seconds(histogram.sum()),
            "p50": seconds(histogram.p50()),
            "p99": seconds(histogram.p99()),
            "p999": seconds(histogram.p999()),
            "max": seconds(histogram.max()),
            "buckets_us": histogram.buckets().map(|(last, count)| json!([last, count])).collect::<Vec<_>>(),
        }),
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn wrong(key: &str) -> ReadError {
    ReadError { key: key.to_owned() }
}
