//! Which transitions a run went through: kinds of messages by the state they met, and what requests waited for.

use std::collections::BTreeMap;
use std::fmt;

use master::Master;
use vfs::Core;
use wire::{FromMaster, ToMaster};

/// How often each transition was seen. Sums of runs are runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    seen: BTreeMap<String, u64>,
}

impl Coverage {
    /// A message reaches the master.
    pub fn note_to_master(&mut self, message: &ToMaster, master: &Master) {
        let state = if master.is_recovering() { "recovering" } else { "serving" };
        self.note(format!("to master {} {state}", ToMaster::KINDS[message.kind()]));
    }

    /// A message reaches a node.
    pub fn note_from_master(&mut self, message: &FromMaster, core: &Core) {
        let kind = FromMaster::KINDS[message.kind()];
        self.note(format!("from master {kind}"));
        for stage in core.releasing() {
            self.note(format!("from master {kind} while {stage}"));
        }
    }

    /// Requests wait on a node.
    pub fn note_waits(&mut self, core: &Core) {
        for (_, key, _) in core.waiting() {
            let kind = key.split('(').next().unwrap_or_default();
            self.note(format!("wait {kind}"));
        }
    }

    /// Adds what another run saw.
    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.seen {
            *self.seen.entry(what.clone()).or_default() += count;
        }
    }

    /// Transitions that could be seen and were not.
    pub fn unseen(&self) -> Vec<String> {
        let mut all = Vec::new();
        for kind in ToMaster::KINDS {
            all.extend(["recovering", "serving"].map(|state| format!("to master {kind} {state}")));
        }
        for kind in FromMaster::KINDS {
            all.push(format!("from master {kind}"));
            all.extend(["dropping", "flushing"].map(|stage| format!("from master {kind} while {stage}")));
        }
        all.extend(WAITS.map(|wait| format!("wait {wait}")));
        all.retain(|what| !self.seen.contains_key(what));
        all
    }

    /// Transitions that were seen.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Why a transition is not seen in trials, if that is known.
    pub fn reason(what: &str) -> Option<&'static str> {
        UNSEEN.iter().find(|(unseen, _)| *unseen == what).map(|(_, reason)| *reason)
    }

    /// Transitions that were not seen though nothing is known that keeps them from it.
    pub fn unexplained(&self) -> Vec<String> {
        self.unseen().into_iter().filter(|what| Self::reason(what).is_none()).collect()
    }

    fn note(&mut self, what: String) {
        *self.seen.entry(what).or_default() += 1;
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.seen {
            writeln!(f, "{count:>9} {what}")?;
        }
        for what in self.unseen() {
            writeln!(f, "    never {what}")?;
        }
        Ok(())
    }
}

/// What a request can wait for, as [`Core::waiting`] names it.
const WAITS: [&str; 12] = [
    "Want", "Fetch", "Ship", "Released", "Thawed", "Loaded", "LogSpace", "Flush", "Durable", "Numbers",
    "Lock", "Member",
];

/// Transitions that trials do not go through, and why.
const UNSEEN: &[(&str, &str)] = &[
    ("to master forgotten recovering", ANSWER),
    ("to master glimpsed recovering", ANSWER),
    ("to master barriered recovering", ANSWER),
    ("to master closes_told recovering", ANSWER),
    ("to master batch_part recovering", PART),
    ("to master batch_part serving", PART),
    ("from master refused", REFUSED),
    ("from master refused while dropping", REFUSED),
    ("from master refused while flushing", REFUSED),
    ("from master batch_refused", BATCH_REFUSED),
    ("from master batch_refused while dropping", BATCH_REFUSED),
    ("from master batch_refused while flushing", BATCH_REFUSED),
];

const ANSWER: &str = "it answers a master that serves, by that master's connection";
const PART: &str = "a batch is sealed long before it fills a frame; frames.rs of wire has parts";
const REFUSED: &str = "all nodes are of this version and volume";
const BATCH_REFUSED: &str = "who has lost its rights has lost its connection before";
