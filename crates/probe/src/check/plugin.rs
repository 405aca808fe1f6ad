//! The plugin: asks a running watch, and samples itself where none runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

use super::{Answer, Thresholds, judge};
use crate::answers::{ask_document, known_sockets};
use crate::front::{Settings, WatchError, sample};
use crate::options::{Op, Options};

/// Judges the targets of `options` by the figures of a watch that runs already, or else samples them for the time that
/// `settings` says.
///
/// # Errors
///
/// [`WatchError`]: nothing is known, not even whether the targets are ill.
pub fn check(
    options: &Options,
    settings: &Settings,
    thresholds: &Thresholds,
    worker: Command,
) -> Result<Answer, WatchError> {
    let document = match find(options, settings.socket.as_deref())? {
        Some(document) => document,
        None => sample(options, settings, worker)?,
    };
    Ok(judge(&document, thresholds)?)
}

/// Judges all targets of the watch that listens at `socket`.
///
/// # Errors
///
/// [`WatchError::NoAnswer`] and [`WatchError::Check`].
pub fn check_all(socket: &Path, thresholds: &Thresholds) -> Result<Answer, WatchError> {
    Ok(judge(&ask(socket)?, thresholds)?)
}

fn ask(socket: &Path) -> Result<Json, WatchError> {
    ask_document(socket).map_err(|source| WatchError::NoAnswer { path: socket.to_owned(), source })
}

/// What a running watch knows of the targets asked for, and of no other.
fn find(options: &Options, socket: Option<&Path>) -> Result<Option<Json>, WatchError> {
    if let Some(path) = socket {
        let document = ask(path)?;
        let other = |target| WatchError::OtherTargets { path: path.to_owned(), target };
        return selected(&document, options).map(Some).map_err(other);
    }
    let known: Vec<PathBuf> = known_sockets();
    // Those that do not answer are gone, or not ours to ask.
    Ok(known
        .iter()
        .filter_map(|path| ask_document(path).ok())
        .find_map(|document| selected(&document, options).ok()))
}

/// The document with the asked targets alone; the error is the first that it does not have.
fn selected(document: &Json, options: &Options) -> Result<Json, String> {
    let all = document["targets"].as_array().cloned().unwrap_or_default();
    let mut targets = Vec::new();
    for target in &options.targets {
        let path = target.path.to_string_lossy();
        let is_it = |found: &&Json| {
            found["path"] == *path && document["op"].as_str().and_then(Op::of_name) == Some(options.op)
        };
        let found = all.iter().find(is_it).ok_or_else(|| format!("{path} by {}", options.op))?;
        targets.push(found.clone());
    }
    let mut document = document.clone();
    if targets.len() < all.len() {
        // It speaks of targets that nobody asked for.
        document["verdict"] = Json::Null;
    }
    document["targets"] = targets.into();
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TargetSpec;
    use crate::output::json::document;
    use crate::watch::tests::sample_watch;

    #[test]
    fn only_what_was_asked_for_is_taken_from_a_running_watch() {
        let document = document(&sample_watch());
        let options = |paths: &[&str], op| {
            let specs = paths.iter().map(|path| TargetSpec::parse(path.as_ref()).unwrap()).collect();
            Options::new(specs, op, std::time::Duration::from_secs(1), 512, 5, None).unwrap()
        };
        let found = selected(&document, &options(&["/mnt=own name"], Op::Read)).unwrap();
        assert_eq!(found["targets"].as_array().unwrap().len(), 1);
        assert_eq!((&found["targets"][0]["label"], &found["verdict"]), (&"files".into(), &Json::Null));
        let both = selected(&document, &options(&["/mnt", "/dev/a"], Op::Read)).unwrap();
        assert!(both["verdict"].is_string());
        assert_eq!(
            selected(&document, &options(&["/mnt", "/dev/b"], Op::Read)),
            Err("/dev/b by read".to_owned())
        );
        assert_eq!(selected(&document, &options(&["/mnt"], Op::Stat)), Err("/mnt by stat".to_owned()));
    }
}
