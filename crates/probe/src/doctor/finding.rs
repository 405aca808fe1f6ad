//! What was found, of which layer, and what it means.

use serde_json::{Value as Json, json};

/// Where the time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// No CPU for the machine, or for the daemon of the file system.
    Cpu,
    /// Disks, and what limits them.
    Storage,
    /// Links, and what is lost on them.
    Network,
    /// The file system's own: how it lies on the disk, how full it is, what it costs by itself.
    FileSystem,
    /// What should be in memory, and is not.
    Cache,
    /// Waiting for other nodes.
    Locks,
    /// Options and limits that somebody has set.
    Configuration,
}

impl Layer {
    /// As in JSON, and for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu or daemon",
            Self::Storage => "storage",
            Self::Network => "network",
            Self::FileSystem => "file system",
            Self::Cache => "cache",
            Self::Locks => "locks",
            Self::Configuration => "configuration",
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is the matter.
    Info,
    /// Costs something, or soon will.
    Warning,
    /// What is slow is slow because of it.
    Critical,
}

impl Severity {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whose it is.
    pub layer: Layer,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, in a few words.
    pub what: String,
    /// With its numbers.
    pub seen: String,
    /// What is usual.
    pub expected: String,
    /// What that means.
    pub why: String,
    /// What to do, or where to look.
    pub next: String,
}

impl Finding {
    /// One document.
    pub fn to_json(&self) -> Json {
        json!({
            "layer": self.layer.name(),
            "severity": self.severity.name(),
            "what": self.what,
            "seen": self.seen,
            "expected": self.expected,
            "why": self.why,
            "next": self.next,
        })
    }
}
