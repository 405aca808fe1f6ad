//! What a volume has of dead processes, against what it may not have lost; and what was seen, against what was done.

use std::collections::BTreeMap;
use std::path::Path;

use crate::content::records;
use crate::field::Past;
use crate::journal::{Done, Op, Saw};
use crate::model::{Life, find, judge_bytes};

/// The commit interval and what a busy machine adds to it, beside what its disk is seen to add.
pub const COMMIT_US: u64 = 4_000_000;

/// Judges what is found under `root` of the processes `dead` of one node, which died (`died`) or ended in order (`None`).
/// `others` are all lives of processes, whose looks count as far as they were at other nodes. What returned `commit_us` before the death
/// may not be lost.
///
/// # Errors
///
/// What was lost, or is there and was never made.
pub fn judge(
    root: &Path,
    dead: &[&Past],
    died: Option<u64>,
    others: &[&Past],
    commit_us: u64,
) -> Result<Lost, String> {
    let lives: Vec<Life> =
        dead.iter().map(|past| Life::new(past.spec.process, past.journal.done.clone())).collect();
    let died = died.unwrap_or(u64::MAX);
    // fsync of anything makes names durable that any process of the node made before.
    let syncs = lives.iter().flat_map(|life| &life.done).filter(|done| done.ok && is_sync(&done.op));
    let synced = syncs.map(|done| done.began).max().unwrap_or(0);
    let bound = synced.max(died.saturating_sub(commit_us));
    let mut kept = Vec::new();
    let mut found_of = Vec::new();
    for (life, past) in lives.iter().zip(dead) {
        let found = find(root, life.process).map_err(|error| format!("process {}: {error}", life.process))?;
        let mut least = count_ended(&life.done, bound);
        for (path, file, _) in seen_files(past, others) {
            let made = life
                .first_with(&path, file)
                .ok_or(format!("{path} was seen as file {file}, which it never was"))?;
            least = least.max(made);
        }
        let fitting = life.fitting(&found);
        let first = fitting.range(least..).next().copied();
        let Some(first) = first else {
            let names: Vec<_> = found.keys().collect();
            return Err(format!(
                "process {}: what is found fits {fitting:?} of {} operations, at least {least} may not be lost (synced {synced}, died {died}); found {names:?}; expected {:?}; operations from there {:?}",
                life.process,
                life.done.len(),
                life.names_after(least),
                &life.done[least.saturating_sub(3)..]
            ));
        };
        kept.push((first, fitting));
        found_of.push(found);
    }
    one_prefix(&lives, &mut kept)?;
    for ((life, past), ((count, _), found)) in lives.iter().zip(dead).zip(kept.iter().zip(&found_of)) {
        judge_content(life, *count, found, (died, commit_us), &seen_files(past, others))?;
        judge_logs(root, life, past.spec.writer(), (died, commit_us), &seen_records(past, others))?;
    }
    let lost = lives.iter().zip(&kept).map(|(life, (count, _))| lost_us(life, *count, died)).max();
    Ok(Lost { us: lost.unwrap_or(0) })
}

/// How long before its death the oldest name was made that a node lost.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    pub us: u64,
}

fn lost_us(life: &Life, count: usize, died: u64) -> u64 {
    let is_name = |done: &&Done| crate::model::apply(&mut BTreeMap::new(), &done.op);
    let first = life.done[count..].iter().filter(is_name).find_map(|done| done.ended);
    first.map_or(0, |ended| died.saturating_sub(ended))
}

fn is_sync(op: &Op) -> bool {
    matches!(op, Op::Fsync(..) | Op::FsyncLog(_) | Op::Locked(_))
}

/// Operations that had ended at a time.
fn count_ended(done: &[Done], at: u64) -> usize {
    done.iter().take_while(|done| done.ended.is_some_and(|ended| ended <= at)).count()
}

/// The names of one node go in one order: what one process made is there only with all that had returned before.
fn one_prefix(lives: &[Life], kept: &mut [(usize, std::collections::BTreeSet<usize>)]) -> Result<(), String> {
    loop {
        let mut is_settled = true;
        for x in 0..lives.len() {
            // The last operation with names that is there: all that ended before it began are there too.
            let names = |done: &&Done| crate::model::apply(&mut BTreeMap::new(), &done.op);
            let Some(last) = lives[x].done[..kept[x].0].iter().rev().find(names) else { continue };
            for y in 0..lives.len() {
                let needed = count_ended(&lives[y].done, last.began.saturating_sub(1));
                if kept[y].0 >= needed {
                    continue;
                }
                let Some(count) = kept[y].1.range(needed..).next().copied() else {
                    return Err(format!(
                        "process {} has {:?}, but process {} has {:?} of {needed} operations that had returned before",
                        lives[x].process, last.op, lives[y].process, kept[y].1
                    ));
                };
                kept[y].0 = count;
                is_settled = false;
            }
        }
        if is_settled {
            return Ok(());
        }
    }
}

fn judge_content(
    life: &Life,
    count: usize,
    found: &crate::model::Found,
    (died, commit_us): (u64, u64),
    seen: &[(String, u64, u64)],
) -> Result<(), String> {
    use crate::model::Kind;
    let names = life.names_after(count);
    for (path, kind) in &names {
        let (Kind::File(number), Some(Some(file))) = (kind, found.get(path)) else { continue };
        let len = life.done.iter().find_map(|done| match &done.op {
            Op::Create(_, made, len) if made == number => Some(*len),
            _ => None,
        });
        let (least, greatest) = life.versions_of(*number, count, died, commit_us);
        let witnessed = seen.iter().filter(|(_, of, _)| of == number).map(|(.., version)| *version).max();
        let least = least.max(witnessed.unwrap_or(0));
        judge_bytes(*number, &file.bytes, len.unwrap_or(0), least, greatest)
            .map_err(|error| format!("{path}, file {number} of process {}: {error}", life.process))?;
        let links = names.values().filter(|other| *other == kind).count() as u64;
        if file.links != links {
            return Err(format!("{path}, file {number}: {} links of {links} names", file.links));
        }
    }
    Ok(())
}

/// Files of a process that others saw at other nodes: path, file, version.
fn seen_files(past: &Past, others: &[&Past]) -> Vec<(String, u64, u64)> {
    let is_of = |file: u64| file >> 24 == past.spec.writer();
    looks(past, others)
        .filter_map(|saw| match saw {
            Saw::File { path, file, version } if is_of(*file) => Some((path.clone(), *file, *version)),
            Saw::File { .. } | Saw::Record { .. } => None,
        })
        .collect()
}

/// Records of a process that others saw at other nodes: file that all append to, number of the record.
fn seen_records(past: &Past, others: &[&Past]) -> Vec<(u64, u64)> {
    looks(past, others)
        .filter_map(|saw| match saw {
            Saw::Record { log, writer, record } if *writer == past.spec.writer() => Some((*log, *record)),
            Saw::File { .. } | Saw::Record { .. } => None,
        })
        .collect()
}

fn looks<'a>(past: &'a Past, others: &'a [&'a Past]) -> impl Iterator<Item = &'a Saw> {
    let elsewhere = others.iter().filter(|other| other.spec.node != past.spec.node);
    elsewhere.flat_map(|other| &other.journal.done).filter(|done| done.ok).flat_map(|done| &done.saw)
}

fn judge_logs(
    root: &Path,
    life: &Life,
    writer: u64,
    (died, commit_us): (u64, u64),
    seen: &[(u64, u64)],
) -> Result<(), String> {
    /// Records written, synced or otherwise not to be lost, and begun.
    #[derive(Default)]
    struct Log {
        written: u64,
        least: u64,
        begun: u64,
    }
    let mut logs: BTreeMap<u64, Log> = BTreeMap::new();
    for done in &life.done {
        match &done.op {
            Op::Append(log, record) => {
                let log = logs.entry(*log).or_default();
                log.begun = *record;
                if done.ok {
                    log.written = *record;
                }
                if done.ended.is_some_and(|ended| ended.saturating_add(commit_us) < died) {
                    log.least = log.written;
                }
            }
            Op::FsyncLog(log) if done.ok => {
                let log = logs.entry(*log).or_default();
                log.least = log.written;
            }
            _ => {}
        }
    }
    for (log, record) in seen {
        let log = logs.entry(*log).or_default();
        log.least = log.least.max(*record);
    }
    for (number, log) in &logs {
        let bytes = match std::fs::read(root.join(format!("logs/{number}"))) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            result => result.map_err(|error| format!("log {number}: {error}"))?,
        };
        let all = records(&bytes).map_err(|error| format!("log {number}: {error}"))?;
        let own: Vec<u64> = all.iter().filter(|(of, _)| *of == writer).map(|(_, record)| *record).collect();
        let count = own.len() as u64;
        if !own.iter().copied().eq(1..=count) {
            return Err(format!("log {number}: records of {writer} are {own:?}"));
        }
        if count < log.least || count > log.begun {
            return Err(format!(
                "log {number}: {count} records of {writer}, {} may not be lost, {} were begun",
                log.least, log.begun
            ));
        }
    }
    Ok(())
}

/// What was written before a look began, the look shows, while the writer's node lived: on every node, also on one that
/// was stopped in between.
///
/// # Errors
///
/// The first look that shows what was old.
pub fn judge_looks(all: &[&Past]) -> Result<u64, String> {
    // When each version of each file had been written.
    let mut written: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    for past in all {
        ends.insert(past.spec.writer(), past.died.unwrap_or(u64::MAX));
        for done in past.journal.done.iter().filter(|done| done.ok) {
            let Some(ended) = done.ended else { continue };
            match &done.op {
                Op::Create(_, file, _) => written.entry(*file).or_default().push((1, ended)),
                Op::Write(_, file, version) => written.entry(*file).or_default().push((*version, ended)),
                _ => {}
            }
        }
    }
    let mut count = 0;
    for past in all {
        for done in past.journal.done.iter().filter(|done| done.ok) {
            for saw in &done.saw {
                let Saw::File { path, file, version } = saw else { continue };
                let lived = ends.get(&(file >> 24)).copied().unwrap_or(0);
                if done.ended.is_none_or(|ended| ended >= lived) {
                    continue;
                }
                count += 1;
                let before = written.get(file).into_iter().flatten().filter(|(_, ended)| *ended < done.began);
                let due = before.map(|(version, _)| *version).max().unwrap_or(0);
                if *version < due {
                    return Err(format!(
                        "process {} at node {} was shown version {version} of {path} (file {file}), after version {due} had been written",
                        past.spec.process, past.spec.node
                    ));
                }
            }
        }
    }
    Ok(count)
}
