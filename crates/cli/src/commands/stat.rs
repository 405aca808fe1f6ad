//! `holdfast stat`: a mount's counters, first since the mount, then per interval.

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use obs::{Snapshot, Zeros};
use serde_json::Value as Json;
use volume::Volume;

use crate::args::StatArgs;
use crate::backend;
use crate::failure::{Failure, with_causes};

/// Prints counters as often as asked.
pub fn run(args: &StatArgs) -> Result<(), Failure> {
    let (volume, socket) = backend::node_at(&args.mountpoint)?;
    let rounds = match (args.interval, args.count) {
        (_, Some(count)) => count,
        (Some(_), None) => u64::MAX,
        (None, None) => 1,
    };
    let interval = args.interval.unwrap_or(Duration::from_secs(1));
    let mut last: Option<Sample> = None;
    let mut due = Instant::now();
    for _ in 0..rounds {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let sample = Sample::take(&volume, &socket)?;
        let shown = render(args, &sample, last.as_ref());
        match write!(std::io::stdout(), "{shown}").and_then(|()| std::io::stdout().flush()) {
            Ok(()) => {}
            // Whoever read this is gone: nothing is left to do.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(Failure::unable(format!("standard output: {error}"))),
        }
        last = Some(sample);
        // From the time it was due, so that rounds do not drift; a late round is not made up for.
        due = (due + interval).max(Instant::now());
    }
    Ok(())
}

/// Counters at one moment.
struct Sample {
    document: Json,
    snapshot: Snapshot,
    taken: Instant,
}

impl Sample {
    fn take(volume: &Volume, socket: &str) -> Result<Self, Failure> {
        let document =
            backend::ask(volume, socket, "stat").map_err(|error| Failure::unable(with_causes(&error)))?;
        let taken = Instant::now();
        let snapshot = Snapshot::from_json(&document).map_err(Failure::unable)?;
        Ok(Self { document, snapshot, taken })
    }

    /// True time since `earlier`: by the node's own clock where it tells, else by ours.
    fn seconds_since(&self, earlier: &Self) -> f64 {
        let uptime = |sample: &Self| sample.document["uptime_seconds"].as_f64();
        match (uptime(self), uptime(earlier)) {
            (Some(now), Some(before)) if now > before => now - before,
            _ => self.taken.duration_since(earlier.taken).as_secs_f64(),
        }
    }
}

fn render(args: &StatArgs, sample: &Sample, last: Option<&Sample>) -> String {
    if args.prometheus {
        return sample.snapshot.to_prometheus();
    }
    let zeros = if args.verbose { Zeros::Show } else { Zeros::Hide };
    let Some(last) = last else {
        return match args.json {
            true => format!("{}\n", sample.document),
            false => format!("{}{}", heading(sample), sample.snapshot.to_text(zeros, None)),
        };
    };
    let seconds = sample.seconds_since(last);
    let delta = sample.snapshot.delta(&last.snapshot);
    if args.json {
        let mut document = serde_json::Map::new();
        document.insert("interval_seconds".to_owned(), seconds.into());
        if let Json::Object(counters) = delta.to_json() {
            document.extend(counters);
        }
        return format!("{}\n", Json::Object(document));
    }
    format!("\n--- in {seconds:.3} s\n{}", delta.to_text(zeros, Some(seconds)))
}

fn heading(sample: &Sample) -> String {
    match sample.document["uptime_seconds"].as_f64() {
        Some(uptime) => format!("--- in {uptime:.0} s since the mount\n"),
        None => "--- since the mount\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> StatArgs {
        use clap::Parser;
        let words = ["holdfast", "stat", "/m"].into_iter().chain(line.split_whitespace());
        match crate::args::Args::try_parse_from(words).expect("valid").command {
            crate::args::Command::Stat(args) => args,
            other => panic!("parsed as {other:?}"),
        }
    }

    fn sample(lookups: u64, uptime: f64) -> Sample {
        let metrics = obs::Metrics::new();
        metrics.fuse_requests.add(obs::FuseKind::Lookup, lookups);
        let mut document = metrics.snapshot().to_json();
        document["uptime_seconds"] = uptime.into();
        let snapshot = Snapshot::from_json(&document).expect("our own");
        Sample { document, snapshot, taken: Instant::now() }
    }

    #[test]
    fn the_first_is_absolute_the_next_a_delta_with_the_true_interval() {
        let (first, second) = (sample(10, 100.0), sample(16, 102.5));
        let args = args("--json");
        let document: Json = serde_json::from_str(&render(&args, &first, None)).expect("JSON");
        assert_eq!(document["fuse_requests_total"], 10);
        let document: Json = serde_json::from_str(&render(&args, &second, Some(&first))).expect("JSON");
        assert_eq!(
            (&document["fuse_requests_total"], &document["interval_seconds"]),
            (&6.into(), &2.5.into())
        );
    }

    #[test]
    fn text_hides_zeros_unless_verbose_and_prometheus_is_absolute() {
        let (first, second) = (sample(10, 100.0), sample(16, 102.0));
        let plain = render(&args(""), &second, Some(&first));
        assert!(plain.contains("in 2.000 s") && !plain.contains("batches_total"), "{plain}");
        assert!(render(&args("-v"), &first, None).contains("batches_total"));
        let text = render(&args("--prometheus"), &second, Some(&first));
        assert!(text.contains("holdfast_fuse_requests_total{kind=\"lookup\"} 16"), "{text}");
    }
}
