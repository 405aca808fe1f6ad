//! What was found, for people and for programs.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use crate::bench::compare::Change;
use crate::bench::environment::Machine;
use crate::bench::report::unix_now;
use crate::doctor::Verdict;
use crate::doctor::active::Tried;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::ground::Ground;
use crate::doctor::judge::{Judged, amount};
use crate::doctor::moment::Interval;
use crate::units::show_time;

/// All that was found, and what it comes to.
#[derive(Clone, Debug)]
pub struct Examination {
    pub(super) ground: Ground,
    pub(super) machine: Machine,
    pub(super) started: u64,
    pub(super) version: String,
    pub(super) is_passive: bool,
    pub(super) is_cold: bool,
    /// While nothing was tried.
    pub(super) idle: Interval,
    pub(super) tried: Tried,
    pub(super) judged: Judged,
    pub(super) findings: Vec<Finding>,
    pub(super) changes: Vec<Change>,
    /// What else is not as it was then.
    pub(super) differences: Vec<String>,
}

impl Examination {
    /// Of a path that does not answer at all.
    pub(super) fn of_silence(path: &Path, version: &str, told: &[Finding]) -> Self {
        // Its mount is found by its text.
        let ground = Ground::unasked(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let is_stopped = ground.daemon.as_ref().is_some_and(|daemon| {
            super::processes::Counters::look(daemon.pid).is_some_and(|process| process.is_stopped)
        });
        let stopped = is_stopped.then(|| super::stopped(&ground));
        let findings = stopped.into_iter().chain(told.iter().cloned()).collect();
        Self {
            ground,
            machine: Machine::look(),
            started: unix_now(),
            version: version.to_owned(),
            is_passive: false,
            is_cold: false,
            idle: Interval::default(),
            tried: Tried { stuck: Some("the path does not answer".to_owned()), ..Tried::default() },
            judged: Judged::default(),
            findings,
            changes: Vec::new(),
            differences: Vec::new(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(&self.judged.findings)
    }

    /// The worst; of several of one severity the lowest layer's.
    fn decisive(&self) -> Option<&Finding> {
        let bad = self.all().filter(|found| found.severity > Severity::Info);
        bad.min_by_key(|found| (std::cmp::Reverse(found.severity), found.layer))
    }

    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        let is_unsure = !self.judged.unexplained.is_empty() || !self.judged.unsure.is_empty();
        match self.decisive() {
            // What hangs is not explained by what would but slow it down.
            Some(found) if self.tried.stuck.is_some() && found.severity < Severity::Critical => {
                Verdict::Inconclusive
            }
            Some(found) => Verdict::Blamed(found.layer),
            None if is_unsure || self.tried.stuck.is_some() => Verdict::Inconclusive,
            None if self.tried.trials.is_empty() && !self.is_passive => Verdict::Inconclusive,
            None => Verdict::Healthy,
        }
    }

    /// 0 healthy, 1 a warning, 2 critical, 3 nothing to be told.
    pub fn exit_code(&self) -> u8 {
        match (self.verdict(), self.decisive()) {
            (Verdict::Healthy, _) => 0,
            (Verdict::Inconclusive, _) | (_, None) => 3,
            (Verdict::Blamed(_), Some(found)) if found.severity == Severity::Critical => 2,
            (Verdict::Blamed(_), Some(_)) => 1,
        }
    }

    /// The findings that the verdict stands on.
    fn reasons(&self) -> Vec<&Finding> {
        let Some(decisive) = self.decisive() else { return Vec::new() };
        let mut reasons: Vec<&Finding> = self
            .all()
            .filter(|found| found.layer == decisive.layer && found.severity > Severity::Info)
            .collect();
        reasons.sort_by_key(|found| std::cmp::Reverse(found.severity));
        reasons
    }

    /// One document.
    pub fn to_json(&self) -> Json {
        let intervals = |trial: &super::active::Trial| {
            let list = trial.intervals.iter().map(Interval::to_json).collect::<Vec<_>>();
            (trial.figure.name.clone(), Json::from(list))
        };
        json!({
            "format": 1,
            "bench": "doctor",
            "version": self.version,
            "started": show_time(self.started),
            "verdict": self.verdict().name(),
            "exit_code": self.exit_code(),
            "reasons": self.reasons().into_iter().map(Finding::to_json).collect::<Vec<_>>(),
            "machine": self.machine.to_json(),
            "ground": self.ground.to_json(),
            "file_system": self.ground.file_system.to_json(),
            "passive": self.is_passive,
            "findings": self.all().map(Finding::to_json).collect::<Vec<_>>(),
            "unexplained": self.judged.unexplained,
            "unsure": self.judged.unsure,
            "figures": self.tried.trials.iter().map(|trial| trial.figure.to_json()).collect::<Vec<_>>(),
            "idle": self.idle.to_json(),
            "meanwhile": self.tried.trials.iter().map(intervals).collect::<Map<_, _>>(),
            "against": self.changes.iter().map(Change::to_json).collect::<Vec<_>>(),
            "stuck": self.tried.stuck,
            "notes": self.notes(),
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.tried.notes.clone();
        notes.extend(self.differences.iter().map(|what| format!("against: {what}")));
        if self.is_cold && !self.tried.was_cold {
            notes.push(
                "the kernel's caches could not be emptied (only root may): what is called cold was warm"
                    .to_owned(),
            );
        }
        if !self.is_cold && !self.is_passive {
            notes.push(
                "uncached inodes were not looked at: --cold empties the caches of the whole machine for that"
                    .to_owned(),
            );
        }
        if self.is_passive {
            notes.push(
                "nothing was tried out (--passive): what is slow without a sign of it is not seen".to_owned(),
            );
        }
        notes
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write_ground(&mut text);
        self.write_verdict(&mut text);
        if !self.tried.trials.is_empty() {
            _ = writeln!(text, "\ntried, the median of three rounds:");
            for trial in &self.tried.trials {
                let figure = &trial.figure;
                let value = amount(figure.unit, figure.median());
                _ = writeln!(text, "  {:24} {value:>12}  ±{:.0} %", figure.name, figure.spread() * 100.0);
            }
        }
        _ = writeln!(text, "\nseen:");
        for found in self.all() {
            let mark = match found.severity {
                Severity::Info => ' ',
                Severity::Warning => '!',
                Severity::Critical => '#',
            };
            _ = writeln!(
                text,
                "{mark} {:14} {}: {} (usual: {})",
                found.layer.name(),
                found.what,
                found.seen,
                found.expected
            );
        }
        for change in self.changes.iter().filter(|change| change.ratio.is_some()) {
            _ = writeln!(text, "  against: {} {}", change.name, change.verdict.name());
        }
        for note in self.notes() {
            _ = writeln!(text, "note: {note}");
        }
        text
    }

    fn write_ground(&self, text: &mut String) {
        let Ground { path, file_system, devices, daemon, peers, links, .. } = &self.ground;
        _ = writeln!(
            text,
            "{}: {} ({}, {})",
            path.display(),
            file_system.kind,
            file_system.source,
            file_system.options
        );
        if let Some(daemon) = daemon {
            _ = writeln!(text, "served by {} ({})", daemon.name, daemon.pid);
        }
        if !devices.is_empty() {
            let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
            _ = writeln!(text, "on {}", names.join(", on "));
        }
        if !peers.is_empty() {
            let names: Vec<String> = peers.iter().map(ToString::to_string).collect();
            let links: Vec<&str> = links.iter().map(String::as_str).collect();
            _ = writeln!(text, "from {} over {}", names.join(", "), links.join(", "));
        }
        let Machine { kernel, cores, load, .. } = &self.machine;
        _ = writeln!(text, "Linux {kernel}, {cores} cores, load {load}\n");
    }

    fn write_verdict(&self, text: &mut String) {
        let severity = self.decisive().map_or(String::new(), |found| format!(" ({})", found.severity.name()));
        _ = writeln!(text, "verdict: {}{severity}", self.verdict().name());
        for Finding { what, seen, expected, why, next, .. } in self.reasons() {
            _ = writeln!(text, "  {what}: {seen}\n    usual: {expected}\n    {why}");
            if !next.is_empty() {
                _ = writeln!(text, "    next: {next}");
            }
        }
        if let Some(stuck) = &self.tried.stuck {
            _ = writeln!(text, "  {stuck}");
        }
        for (list, what) in [
            (&self.judged.unexplained, "slow, and nothing that was seen says why"),
            (&self.judged.unsure, "perhaps slow: the rounds differ by more"),
        ] {
            for seen in list {
                _ = writeln!(text, "  {what}: {seen}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Layer;
    use crate::doctor::pressure::Pressure;

    fn examination(findings: &[(Layer, Severity)]) -> Examination {
        let finding = |&(layer, severity): &(Layer, Severity)| Finding {
            layer,
            severity,
            what: String::new(),
            seen: String::new(),
            expected: String::new(),
            why: String::new(),
            next: String::new(),
        };
        let tried = Tried::default();
        let findings = findings.iter().map(finding).collect();
        let is_passive = true;
        Examination { findings, tried, is_passive, ..Examination::of_silence(Path::new("/"), "0", &[]) }
    }

    #[test]
    fn the_worst_decides_and_of_several_the_lowest() {
        use Layer::{Locks, Network, Storage};
        use Severity::{Critical, Info, Warning};
        let of = |findings: &[(Layer, Severity)]| {
            let examination = examination(findings);
            (examination.verdict(), examination.exit_code())
        };
        assert_eq!(of(&[(Storage, Info), (Locks, Info)]), (Verdict::Healthy, 0));
        assert_eq!(of(&[(Storage, Warning), (Locks, Critical)]), (Verdict::Blamed(Locks), 2));
        assert_eq!(of(&[(Network, Warning), (Storage, Warning)]), (Verdict::Blamed(Storage), 1));
        // Somebody else's I/O does not hide what is the matter.
        let mut remote = examination(&[(Network, Warning)]);
        remote.findings.extend(Pressure { io: 1.0, ..Pressure::default() }.findings(&[]));
        assert_eq!(remote.verdict(), Verdict::Blamed(Network));
        let silent = Examination::of_silence(Path::new("/"), "0", &[]);
        assert_eq!((silent.verdict(), silent.exit_code()), (Verdict::Inconclusive, 3));
    }
}
