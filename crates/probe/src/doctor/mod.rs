//! Why is a file system slow: is it the storage, the network, the locks, the cache, or the file system itself?
//!
//! What a path stands on is found ([`ground`]); what the kernel and the file system count is read twice, some time apart ([`moment`]); small
//! things are tried out in a directory of their own ([`active`]). Each collector says what it saw as [`Finding`]s, those of which nothing is the
//! matter included; what is slow by trial is blamed on whom it waited for ([`judge`]). The verdict is the worst finding's layer, of
//! several the lowest: what lies below makes slow what stands above.
//!
//! Nothing of the user's is changed.

mod active;
mod disks;
mod file_systems;
mod finding;
mod ground;
mod inside;
mod judge;
mod layout;
mod limits;
mod links;
mod memory;
mod moment;
mod options;
mod paths;
mod pressure;
mod processes;
mod report;
mod routes;
mod sockets;

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::io::Errno;
use serde_json::Value as Json;

use crate::bench::compare::{Change, Comparison, Verdict as Changed};
use crate::bench::environment::Machine;
use crate::bench::report::unix_now;
use crate::bench::{BenchError, Stage};
use crate::doctor::active::{Ask, Tried};
use crate::doctor::file_systems::Told;
use crate::doctor::ground::Ground;
use crate::doctor::judge::Judged;
use crate::doctor::links::Traffic;
use crate::doctor::memory::{Group, Memory};
use crate::doctor::moment::{Interval, Moment};

pub use finding::{Finding, Layer, Severity};
pub use inside::Inside;
pub use report::Examination;

/// What is examined, and how.
#[derive(Clone, Debug)]
pub struct Doctor {
    /// A directory.
    pub path: PathBuf,
    /// The same directory through another node's mount.
    pub peer: Option<PathBuf>,
    /// Only look, try nothing.
    pub is_passive: bool,
    /// Empty the kernel's caches, of the whole machine, before what is to be seen uncached.
    pub is_cold: bool,
    /// What the file system's own nodes have to say, where who runs this could ask them.
    pub told: Vec<Finding>,
    /// What a healthy day's examination was saved as.
    pub against: Option<Json>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is this layer.
    Blamed(Layer),
    /// Nothing is slow and nothing is wrong.
    Healthy,
    /// Something is slow, and what was seen does not say why.
    Inconclusive,
}

impl Verdict {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blamed(layer) => layer.name(),
            Self::Healthy => "healthy",
            Self::Inconclusive => "inconclusive",
        }
    }
}

impl Doctor {
    /// Examines. `ask` has the file system's own counters, if it has any.
    ///
    /// # Errors
    ///
    /// [`BenchError`]: what it is to be compared with cannot be, the path cannot be used, or it was interrupted. What was made is removed.
    pub fn run(
        &self,
        stage: &mut Stage<'_>,
        mut ask: impl FnMut() -> Option<Inside>,
    ) -> Result<Examination, BenchError> {
        self.against.as_ref().map_or(Ok(()), check_saved)?;
        let (machine, started) = (Machine::look(), unix_now());
        let Some(ground) = self.look()? else {
            return Ok(Examination::of_silence(&self.path, stage.version, &self.told));
        };
        let own = std::process::id();
        let group = Group::of(own);
        stage.tell(0, 1, "looking");
        let (mut findings, idle) = watch(&ground, &mut ask);
        findings.extend(standing(&ground, own));
        findings.extend(self.told.iter().cloned());
        // Whose daemon is stopped is asked for nothing.
        let is_stopped = is_stopped(&idle);
        let lain = if is_stopped { None } else { look_at_layout(&ground) };
        let stuck = (lain.is_none() && !is_stopped).then(|| {
            format!("how full it is, and how its files lie: no answer for {} s", ANSWER_MAX.as_secs())
        });
        findings.extend(lain.into_iter().flatten());
        let tried = match self.is_passive || is_stopped || stuck.is_some() {
            true => Tried { stuck, ..Tried::default() },
            false => active::try_all(&ground, self.peer.as_deref(), self.is_cold, stage, &mut ask)?,
        };
        let reached = |group: Option<Group>| group.map_or(0, |group| group.reached);
        let mut tried = tried;
        tried.memory_reached = reached(Group::of(own)).saturating_sub(reached(group));
        findings.extend(Group::of(own).map(|group| group.finding(tried.memory_reached, "this program")));
        let mut examination = Examination {
            ground,
            machine,
            started,
            version: stage.version.to_owned(),
            is_passive: self.is_passive,
            is_cold: self.is_cold,
            idle,
            tried,
            judged: Judged::default(),
            findings,
            changes: Vec::new(),
            differences: Vec::new(),
        };
        examination.judge(self.against.as_ref());
        Ok(examination)
    }

    /// None if the path does not answer.
    fn look(&self) -> Result<Option<Ground>, BenchError> {
        let path = self.path.clone();
        let found = answer_within(ANSWER_MAX, move || {
            let path = std::fs::canonicalize(&path)?;
            match std::fs::metadata(&path)?.is_dir() {
                true => Ok(Ground::of(&path)),
                false => Err(std::io::ErrorKind::NotADirectory.into()),
            }
        });
        let failed = |source: std::io::Error| {
            let is_dead = source.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
            let what = match is_dead {
                true => "its server is gone: what is mounted there is to be mounted anew",
                false => "cannot be examined",
            };
            BenchError::Place { path: self.path.clone(), what, source }
        };
        found.transpose().map_err(failed)
    }
}

/// Refuses what nothing can be compared with, before anything is examined.
fn check_saved(saved: &Json) -> Result<(), BenchError> {
    let with_itself = Comparison::of(saved, saved).ok().filter(|_| saved["bench"] == "doctor");
    match with_itself {
        None => Err(BenchError::Against("no examination that holdfast doctor --save has written")),
        Some(found) if found.changes.is_empty() => {
            Err(BenchError::Against("nothing was tried out in that examination: there are no figures in it"))
        }
        Some(_) => Ok(()),
    }
}

/// Asks a file system for something. None if it does not answer in time; the thread that waits is left behind then, and what comes of
/// it after all is dropped there.
fn answer_within<T: Send + 'static>(limit: Duration, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = channel();
    std::thread::spawn(move || _ = tell.send(ask()));
    told.recv_timeout(limit).ok()
}

/// None if it does not answer.
fn look_at_layout(ground: &Ground) -> Option<Vec<Finding>> {
    let ground = ground.clone();
    answer_within(ANSWER_MAX, move || layout::findings(&ground))
}

/// What goes on while nothing is tried.
fn watch(ground: &Ground, ask: &mut Ask<'_>) -> (Vec<Finding>, Interval) {
    let file_system = &ground.file_system;
    let tell = || Told::read(&file_system.kind, &file_system.source, &ground.mount_point, ground.number);
    let (told, before) = (tell(), Moment::now(ground, ask()));
    std::thread::sleep(WATCHED);
    let (later, told_later) = (Moment::now(ground, ask()), tell());
    let interval = later.since(&before);
    let is_used = !ground.peers.is_empty();
    let mut found: Vec<Finding> = interval.disks.iter().map(disks::DiskUse::finding).collect();
    found.extend(interval.pressure.into_iter().flat_map(|shares| shares.findings(&ground.devices)));
    let tcp = later.tcp.zip(before.tcp);
    let resends = tcp.is_some_and(|(later, before)| later.resends_since(before));
    for link in later.links.iter().filter(|link| !link.is_silent()) {
        let earlier = before.links.iter().find(|other| other.name == link.name).unwrap_or(link);
        let traffic = match ground.links.contains(&link.name) {
            false => Traffic::Elsewhere,
            true if resends => Traffic::SentAgain,
            true => Traffic::Arrives,
        };
        found.push(link.finding(earlier, traffic));
    }
    found.extend(tcp.map(|(later, before)| later.finding(before, is_used)));
    found.extend(interval.inside.into_iter().flat_map(|inside| inside.findings(interval.seconds)));
    found.extend(Told::findings(&told, &told_later, interval.seconds));
    if is_stopped(&interval) {
        found.push(stopped(ground));
    }
    (found, interval)
}

fn is_stopped(interval: &Interval) -> bool {
    interval.daemon.is_some_and(|daemon| daemon.is_stopped)
}

fn stopped(ground: &Ground) -> Finding {
    let (name, pid) = ground.daemon.as_ref().map_or(("", 0), |daemon| (&daemon.name, daemon.pid));
    Finding {
        layer: Layer::Cpu,
        severity: Severity::Critical,
        what: "the daemon is stopped".to_owned(),
        seen: format!("{name} ({pid}) is in state T"),
        expected: "running or sleeping".to_owned(),
        why: "nothing that is asked of the file system is answered".to_owned(),
        next: format!("kill -CONT {pid}, unless a debugger has it"),
    }
}

/// What does not change from moment to moment.
fn standing(ground: &Ground, own: u32) -> Vec<Finding> {
    let mut found = paths::findings(&ground.devices);
    found.extend(options::findings(&ground.file_system));
    found.extend(Memory::now().into_iter().flat_map(|memory| memory.findings(&ground.devices)));
    found.extend(limits::findings(own, "this program", &ground.devices));
    if let Some(daemon) = &ground.daemon {
        found.extend(limits::findings(daemon.pid, "the daemon", &ground.devices));
        found.extend(Group::of(daemon.pid).map(|group| group.finding(0, "the daemon")));
    }
    found
}

impl Examination {
    fn judge(&mut self, saved: Option<&Json>) {
        if let Some(saved) = saved {
            match Comparison::of(saved, &self.to_json()) {
                Ok(found) => (self.changes, self.differences) = (found.changes, found.warnings),
                // What was seen is of worth without it.
                Err(what) => self.differences.push(what),
            }
        }
        let worse: Vec<Change> =
            self.changes.iter().filter(|change| change.verdict == Changed::Worse).cloned().collect();
        self.judged = judge::judge(&self.ground, &self.tried, &worse);
    }
}

/// How long is looked on while nothing is tried.
const WATCHED: Duration = Duration::from_millis(1200);
/// A file system that says nothing for so long hangs.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: a file that cannot be compared with is told at once, not after all was tried. Method: a path that is not there, which would
    /// be told else.
    #[test]
    fn what_cannot_be_compared_with_is_refused_before_anything_is_examined() {
        let refused = |saved: Json| {
            let path = PathBuf::from("/nonexistent");
            let doctor = Doctor {
                path,
                peer: None,
                is_passive: false,
                is_cold: false,
                told: Vec::new(),
                against: Some(saved),
            };
            let mut stage = crate::bench::tests::stage("exit 1".to_owned());
            doctor.run(&mut stage, || panic!("it is asked for nothing")).unwrap_err()
        };
        let figure =
            json!({ "name": "read", "unit": "seconds", "values": [1.0], "median": 1.0, "spread": 0.0 });
        let report = |bench: &str, figures: &[&Json]| json!({ "bench": bench, "figures": figures });
        let all = json!({ "bench": "all", "reports": [report("doctor", &[&figure])] });
        for saved in
            [json!({}), json!(null), report("create", &[&figure]), report("doctor", &[&json!({})]), all]
        {
            let error = refused(saved).to_string();
            assert!(error.starts_with("--against: no examination"), "{error}");
        }
        let error = refused(report("doctor", &[])).to_string();
        assert!(error.starts_with("--against: nothing was tried out"), "{error}");
        assert!(matches!(refused(report("doctor", &[&figure])), BenchError::Place { .. }));
    }

    #[test]
    fn what_differs_from_the_better_day_is_noted() {
        let mut examination = Examination::of_silence(std::path::Path::new("/"), "0", &[]);
        let mut saved = examination.to_json();
        saved["machine"]["kernel"] = json!("2.6.0");
        examination.judge(Some(&saved));
        let notes = examination.to_json()["notes"].to_string();
        assert!(notes.contains("against: kernel differs: \\\"2.6.0\\\" and"), "{notes}");
    }

    #[test]
    fn what_does_not_answer_is_left_behind_and_what_comes_late_is_dropped() {
        struct Late(std::sync::mpsc::Sender<()>);
        impl Drop for Late {
            fn drop(&mut self) {
                _ = self.0.send(());
            }
        }
        let ((go_on, wait), (tell, dropped)) = (channel::<()>(), channel());
        let late = answer_within(Duration::from_millis(20), move || {
            _ = wait.recv();
            Late(tell)
        });
        assert!(late.is_none());
        assert!(dropped.try_recv().is_err());
        go_on.send(()).unwrap();
        assert!(dropped.recv().is_ok());
        assert_eq!(answer_within(ANSWER_MAX, || 7), Some(7));
    }
}
