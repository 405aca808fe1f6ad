//! The nodes behind mount points, as benchmarks and the doctor need them.

use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use probe::bench::Companion;
use volume::{Volume, sources};

use crate::backend;

/// The nodes behind those of some mount points that are Holdfast's.
pub struct Nodes {
    mounts: Vec<PathBuf>,
    /// Volumes, and names of control sockets.
    known: Vec<(Volume, String)>,
    own: Option<OwnMount>,
}

/// A mount for a benchmark alone. It goes when this is dropped.
struct OwnMount(PathBuf);

impl Nodes {
    /// Looks for them. Mount points of other file systems are passed over.
    pub fn of(mounts: &[PathBuf]) -> Self {
        Self { mounts: mounts.to_vec(), known: nodes_of(mounts), own: None }
    }

    /// The volumes that they have mounted.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        let mut seen = Vec::new();
        self.known.iter().map(|(volume, _)| volume).filter(move |volume| {
            let is_new = !seen.contains(&volume.path());
            seen.push(volume.path());
            is_new
        })
    }

    /// What each of them counts. None if one cannot be asked: a part would mislead.
    pub fn documents(&self) -> Option<Vec<serde_json::Value>> {
        self.known.iter().map(|(volume, socket)| backend::ask(volume, socket, "stat").ok()).collect()
    }
}

/// By the path's text where that leads to a mount of ours; else by where it leads to, if its file systems tell soon.
fn entry_of(path: &Path) -> Option<sources::MountEntry> {
    let given = std::path::absolute(path).ok()?;
    let is_plain = !given.components().any(|part| part == Component::ParentDir);
    let by_text = || sources::containing(&given).ok().flatten().filter(sources::MountEntry::is_holdfast);
    if let Some(entry) = is_plain.then(by_text).flatten() {
        return Some(entry);
    }
    let (tell, told) = channel();
    // Left behind if one of them never answers.
    std::thread::spawn(move || _ = tell.send(std::fs::canonicalize(given)));
    let real = told.recv_timeout(ANSWER_MAX).ok()?.ok()?;
    sources::containing(&real).ok().flatten().filter(sources::MountEntry::is_holdfast)
}

/// Each once, whatever leads to it.
fn nodes_of(mounts: &[PathBuf]) -> Vec<(Volume, String)> {
    let mut known: Vec<(Volume, String)> = Vec::new();
    for (volume, socket) in mounts.iter().filter_map(|path| node_of(path)) {
        if !known.iter().any(|(other, name)| (other.path(), name) == (volume.path(), &socket)) {
            known.push((volume, socket));
        }
    }
    known
}

fn node_of(path: &Path) -> Option<(Volume, String)> {
    let entry = entry_of(path)?;
    Some((Volume::open(&entry.source).ok()?, entry.control_socket()))
}

impl Companion for Nodes {
    /// Of all nodes together.
    fn counters(&mut self) -> Option<Vec<(String, u64)>> {
        let mut all: Vec<(String, u64)> = Vec::new();
        for document in self.documents()? {
            for (metric, name) in COUNTED {
                for (kind, count) in document["by_label"][metric].as_object()? {
                    let name = format!("{name} {kind}");
                    let count = count.as_u64().unwrap_or(0);
                    match all.iter_mut().find(|(other, _)| *other == name) {
                        Some((_, sum)) => *sum += count,
                        None => all.push((name, count)),
                    }
                }
            }
        }
        (!self.known.is_empty()).then_some(all)
    }

    /// One more node mounts the volume, with the options that are the default, below the directory for temporary files.
    fn mount(&mut self, dir: &Path) -> Result<Option<PathBuf>, String> {
        let Some(entry) = entry_of(dir) else { return Ok(None) };
        let dir = std::fs::canonicalize(dir).map_err(|error| error.to_string())?;
        let below = dir.strip_prefix(&entry.mountpoint).map_err(|error| error.to_string())?;
        let own = OwnMount::of(&entry.source)?;
        // A bind mount shows a directory of the volume, where the new node shows all of it.
        let shown = entry.root.strip_prefix("/").unwrap_or(&entry.root);
        let there = own.0.join(shown).join(below);
        self.known.extend(node_of(&own.0));
        self.own = Some(own);
        Ok(Some(there))
    }

    fn unmount(&mut self) -> Result<(), String> {
        self.known.truncate(self.known.len().saturating_sub(usize::from(self.own.is_some())));
        self.own.take().map_or(Ok(()), OwnMount::end)
    }

    fn has_remounted(&mut self) {
        self.known = nodes_of(&self.mounts);
    }
}

impl OwnMount {
    fn of(volume: &Path) -> Result<Self, String> {
        let at = std::env::temp_dir().join(format!("holdfast-bench-node-{}", std::process::id()));
        std::fs::create_dir(&at).map_err(|error| format!("{}: {error}", at.display()))?;
        let own = Self(at);
        own.ask(["mount".as_ref(), volume.as_os_str()])?;
        Ok(own)
    }

    /// Unmounts; what it has changed is then flushed.
    fn end(self) -> Result<(), String> {
        self.ask(["umount".as_ref()])
    }

    /// Runs this program with its mount point as the last argument.
    fn ask<const N: usize>(&self, arguments: [&std::ffi::OsStr; N]) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
        let output = Command::new(program).args(arguments).arg(&self.0).stdin(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for OwnMount {
    fn drop(&mut self) {
        if sources::find(&self.0).is_ok_and(|entry| entry.is_some_and(|entry| entry.is_holdfast())) {
            _ = self.ask(["umount".as_ref()]);
        }
        if let Err(error) = std::fs::remove_dir(&self.0) {
            eprintln!("holdfast: {}: left behind: {error}", self.0.display());
        }
    }
}

/// A file system that takes longer to say where a path leads is passed over: the doctor, who asks here too, must say that it hangs.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// What is counted for each operation, and what it is called.
const COUNTED: [(&str, &str); 2] = [("fuse_requests_total", "request"), ("messages_sent_total", "message")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_a_metric() {
        let document = obs::Metrics::new().snapshot().to_json();
        for (metric, _) in COUNTED {
            assert!(document["by_label"][metric].is_object(), "{metric}");
        }
    }
}
