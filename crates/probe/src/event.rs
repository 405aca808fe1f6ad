//! The stream between worker and front, which is also a recording: one JSON object a line, the first a header.
//!
//! Times are nanoseconds since the run began, by the monotonic clock, which both processes share.

use serde_json::{Map, Value as Json, json};
use thiserror::Error;

use crate::options::Op;

/// What a run is: the first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Wall clock of the run's beginning, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// From one I/O of a target to its next.
    pub interval_ns: u64,
    /// Samples in the window.
    pub window: usize,
    /// Bytes asked for.
    pub size: u32,
    /// What is done.
    pub op: Op,
    /// Path and label of each target.
    pub targets: Vec<(String, String)>,
    /// `leg1,leg2:volume:files`, if given.
    pub stack: Option<String>,
}

/// One thing that happened. `target` counts from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of fields say it")]
pub enum Event {
    /// The target is open and will be measured.
    /// `own` is its name among what others have `beneath` them.
    Ready {
        target: usize,
        at_ns: u64,
        kind: String,
        size_bytes: u32,
        is_direct: bool,
        own: Option<String>,
        beneath: Vec<String>,
    },
    /// The target cannot be measured at all.
    Failed { target: usize, at_ns: u64, text: String },
    /// Something the reader should know: what is not as asked, but goes on.
    Notice { target: Option<usize>, text: String },
    /// An I/O begins.
    Begin { target: usize, at_ns: u64 },
    /// It returned.
    End { target: usize, at_ns: u64, delay_ns: u64, error: Option<String> },
    /// CPU time that worker and front used together.
    Cost { at_ns: u64, cpu_ns: u64 },
    /// The run ends.
    Stop { at_ns: u64 },
}

/// What is wrong with a line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum EventError {
    #[error("not a recording of holdfast watch: the first line is no header")]
    NoHeader,
    #[error("a recording of version {0}, which this program does not know")]
    Version(u64),
    #[error("line {line}: {why}")]
    Line { line: usize, why: String },
}

impl Header {
    /// One line, without its end.
    pub fn to_line(&self) -> String {
        let targets: Vec<Json> =
            self.targets.iter().map(|(path, label)| json!({"path": path, "label": label})).collect();
        json!({
            "holdfast_watch": VERSION,
            "started_unix_ms": self.started_unix_ms,
            "interval_ns": self.interval_ns,
            "window": self.window,
            "size": self.size,
            "op": self.op.name(),
            "targets": targets,
            "stack": self.stack,
        })
        .to_string()
    }

    /// Reads [`Self::to_line`].
    ///
    /// # Errors
    ///
    /// [`EventError::NoHeader`] and [`EventError::Version`].
    pub fn parse(line: &str) -> Result<Self, EventError> {
        let document: Json = serde_json::from_str(line).map_err(|_| EventError::NoHeader)?;
        match document["holdfast_watch"].as_u64() {
            Some(VERSION) => {}
            Some(other) => return Err(EventError::Version(other)),
            None => return Err(EventError::NoHeader),
        }
        let target =
            |target: &Json| Some((target["path"].as_str()?.to_owned(), target["label"].as_str()?.to_owned()));
        let read = || {
            Some(Self {
                started_unix_ms: document["started_unix_ms"].as_u64()?,
                interval_ns: document["interval_ns"].as_u64()?,
                window: usize::try_from(document["window"].as_u64()?).ok()?,
                size: u32::try_from(document["size"].as_u64()?).ok()?,
                op: Op::of_name(document["op"].as_str()?)?,
                targets: document["targets"].as_array()?.iter().map(target).collect::<Option<_>>()?,
                stack: document["stack"].as_str().map(str::to_owned),
            })
        };
        read().ok_or(EventError::NoHeader)
    }
}

impl Event {
    /// One line, without its end.
    pub fn to_line(&self) -> String {
        let document = match self {
            Self::Ready { target, at_ns, kind, size_bytes, is_direct, own, beneath } => json!({
                "event": "ready", "target": target, "at_ns": at_ns, "kind": kind, "size_bytes": size_bytes,
                "direct": is_direct, "own": own, "beneath": beneath,
            }),
            Self::Failed { target, at_ns, text } => {
                json!({"event": "failed", "target": target, "at_ns": at_ns, "text": text})
            }
            Self::Notice { target, text } => json!({"event": "notice", "target": target, "text": text}),
            Self::Begin { target, at_ns } => json!({"event": "begin", "target": target, "at_ns": at_ns}),
            Self::End { target, at_ns, delay_ns, error } => {
                let mut line =
                    json!({"event": "end", "target": target, "at_ns": at_ns, "delay_ns": delay_ns});
                if let (Some(error), Some(line)) = (error, line.as_object_mut()) {
                    line.insert("error".to_owned(), error.as_str().into());
                }
                line
            }
            Self::Cost { at_ns, cpu_ns } => json!({"event": "cost", "at_ns": at_ns, "cpu_ns": cpu_ns}),
            Self::Stop { at_ns } => json!({"event": "stop", "at_ns": at_ns}),
        };
        document.to_string()
    }

    /// Reads [`Self::to_line`], which is line `line`, of a run with `targets` targets.
    ///
    /// # Errors
    ///
    /// [`EventError::Line`].
    pub fn parse(text: &str, line: usize, targets: usize) -> Result<Self, EventError> {
        let bad = |why: &str| EventError::Line { line, why: why.to_owned() };
        let document: Map<String, Json> = serde_json::from_str(text).map_err(|_| bad("no JSON object"))?;
        let number = |key: &str| {
            let found = document.get(key).and_then(Json::as_u64);
            found.ok_or_else(|| bad(&format!("no number \"{key}\"")))
        };
        let word = |key: &str| {
            let found = document.get(key).and_then(Json::as_str);
            found.map(str::to_owned).ok_or_else(|| bad(&format!("no text \"{key}\"")))
        };
        let target = || match usize::try_from(number("target")?) {
            Ok(target) if target < targets => Ok(target),
            Ok(_) | Err(_) => Err(bad("a target that the header does not have")),
        };
        Ok(match word("event")?.as_str() {
            "ready" => Self::Ready {
                target: target()?,
                at_ns: number("at_ns")?,
                kind: word("kind")?,
                size_bytes: u32::try_from(number("size_bytes")?).map_err(|_| bad("no such size"))?,
                is_direct: document.get("direct") == Some(&Json::Bool(true)),
                own: document.get("own").and_then(Json::as_str).map(str::to_owned),
                beneath: texts(document.get("beneath")).ok_or_else(|| bad("no texts \"beneath\""))?,
            },
            "failed" => Self::Failed { target: target()?, at_ns: number("at_ns")?, text: word("text")? },
            "notice" => Self::Notice {
                target: if document.get("target").is_some_and(|t| !t.is_null()) {
                    Some(target()?)
                } else {
                    None
                },
                text: word("text")?,
            },
            "begin" => Self::Begin { target: target()?, at_ns: number("at_ns")? },
            "end" => Self::End {
                target: target()?,
                at_ns: number("at_ns")?,
                delay_ns: number("delay_ns")?,
                error: document.get("error").and_then(Json::as_str).map(str::to_owned),
            },
            "cost" => Self::Cost { at_ns: number("at_ns")?, cpu_ns: number("cpu_ns")? },
            "stop" => Self::Stop { at_ns: number("at_ns")? },
            other => return Err(bad(&format!("unknown event \"{other}\""))),
        })
    }
}

/// A list of texts.
fn texts(list: Option<&Json>) -> Option<Vec<String>> {
    list?.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Version of the recording.
const VERSION: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_read_back() {
        let text = || "a \"quoted\"\nline".to_owned();
        for event in [
            Event::Ready {
                target: 1,
                at_ns: 5,
                kind: "directory".into(),
                size_bytes: 512,
                is_direct: true,
                own: Some("file 8:1 2".into()),
                beneath: vec!["block 8:1".into(), "block 8:0".into()],
            },
            Event::Failed { target: 0, at_ns: 5, text: text() },
            Event::Notice { target: None, text: text() },
            Event::Notice { target: Some(1), text: text() },
            Event::Begin { target: 1, at_ns: u64::MAX },
            Event::End { target: 1, at_ns: 7, delay_ns: u64::MAX, error: None },
            Event::End { target: 1, at_ns: 7, delay_ns: 2, error: Some(text()) },
            Event::Cost { at_ns: 1, cpu_ns: 2 },
            Event::Stop { at_ns: 9 },
        ] {
            assert_eq!(Event::parse(&event.to_line(), 1, 2), Ok(event));
        }
    }

    #[test]
    fn damaged_lines_are_refused_with_their_number() {
        for line in [
            "",
            "[]",
            "{}",
            "{\"event\":\"begin\"}",
            "{\"event\":\"begin\",\"target\":2,\"at_ns\":1}",
            "{\"event\":\"begin\",\"target\":-1,\"at_ns\":1}",
            "{\"event\":\"end\",\"target\":0,\"at_ns\":1}",
            "{\"event\":\"dance\"}",
            "{\"event\":\"ready\",\"target\":0,\"at_ns\":1,\"kind\":\"file\",\"size_bytes\":1,\"beneath\":[1]}",
            "{\"event\":\"stop\",\"at_ns\":1.5}",
        ] {
            let error = Event::parse(line, 7, 2).unwrap_err();
            assert!(matches!(error, EventError::Line { line: 7, .. }), "{line}: {error}");
        }
    }

    #[test]
    fn headers_are_read_back_and_others_refused() {
        let header = Header {
            started_unix_ms: 1_700_000_000_123,
            interval_ns: 3_000_000_000,
            window: 100,
            size: 512,
            op: Op::Flock,
            targets: vec![("/dev/a".into(), "leg".into()), ("/b".into(), "/b".into())],
            stack: Some("leg:/b".into()),
        };
        assert_eq!(Header::parse(&header.to_line()), Ok(header.clone()));
        assert_eq!(Header::parse("{}"), Err(EventError::NoHeader));
        let newer = header.to_line().replace("watch\":1", "watch\":2");
        assert_eq!(Header::parse(&newer), Err(EventError::Version(2)));
    }
}
