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
