//! What a process did, as lines of a file outside of the volume: before each operation, and after it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::stall::now_us;

/// What a process does. Paths are relative to a mount's root; a file is told from another by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Mkdir(String),
    Rmdir(String),
    /// A new file, written whole with version 1, closed.
    Create(String, u64, usize),
    /// All of a file, once more, as this version.
    Write(String, u64, u64),
    Rename(String, String),
    Link(String, String),
    Unlink(String),
    /// Of a file or a directory.
    Fsync(String, u64),
    /// Reads what it made itself, or lists.
    Check(String),
    /// Reads another process' file. What is found is told as `Saw`.
    Look(String),
    /// A record at the end of a file that all append to: file, number of the record.
    Append(u64, u64),
    /// All appends to a file so far are durable.
    FsyncLog(u64),
    /// Reads a file that all append to.
    ReadLog(u64),
    /// Something done under a lock of all nodes, and which.
    Locked(&'static str),
    /// Makes a name that all try to make.
    Race(u64),
}

/// Something another process made, seen at a mount: it may not be lost any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saw {
    /// A file under a path, at least with this version.
    File { path: String, file: u64, version: u64 },
    /// The record of a writer in a file that all append to.
    Record { log: u64, writer: u64, record: u64 },
}

/// An operation as the journal has it.
#[derive(Clone, Debug)]
pub struct Done {
    pub op: Op,
    /// Microseconds of CLOCK_MONOTONIC.
    pub began: u64,
    /// `None` if it never ended.
    pub ended: Option<u64>,
    /// Whether it succeeded, once it ended.
    pub ok: bool,
    pub saw: Vec<Saw>,
}

/// Writes a journal.
pub struct Writer(File);

impl Writer {
    pub fn new(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).expect("a file outside of the volume"))
    }

    fn line(&mut self, line: &str) {
        // One write each: what is there is whole lines, whenever this process is killed.
        self.0.write_all(format!("{line}\n").as_bytes()).expect("room outside of the volume");
    }

    pub fn begin(&mut self, op: &Op) {
        let text = match op {
            Op::Mkdir(path) => format!("mkdir {path}"),
            Op::Rmdir(path) => format!("rmdir {path}"),
            Op::Create(path, file, len) => format!("create {path} {file} {len}"),
            Op::Write(path, file, version) => format!("write {path} {file} {version}"),
            Op::Rename(from, to) => format!("rename {from} {to}"),
            Op::Link(from, to) => format!("link {from} {to}"),
            Op::Unlink(path) => format!("unlink {path}"),
            Op::Fsync(path, file) => format!("fsync {path} {file}"),
            Op::Check(path) => format!("check {path}"),
            Op::Look(path) => format!("look {path}"),
            Op::Append(log, record) => format!("append {log} {record}"),
            Op::FsyncLog(log) => format!("fsynclog {log}"),
            Op::ReadLog(log) => format!("readlog {log}"),
            Op::Locked(how) => format!("locked {how}"),
            Op::Race(round) => format!("race {round}"),
        };
        self.line(&format!("B {} {text}", now_us()));
    }

    pub fn saw(&mut self, saw: &Saw) {
        self.line(&match saw {
            Saw::File { path, file, version } => format!("S file {path} {file} {version}"),
            Saw::Record { log, writer, record } => format!("S record {log} {writer} {record}"),
        });
    }

    pub fn end(&mut self, ok: bool) {
        self.line(&format!("E {} {ok}", now_us()));
    }

    /// Something that must not be.
    pub fn violation(&mut self, what: &str) {
        self.line(&format!("V {}", what.replace('\n', " ")));
    }

    /// The mount gave an error: a violation unless its node was killed or stopped.
    pub fn lost(&mut self, what: &str) {
        self.line(&format!("L {} {}", now_us(), what.replace('\n', " ")));
    }
}

/// A journal read back.
#[derive(Debug, Default)]
pub struct Journal {
    pub done: Vec<Done>,
    pub violations: Vec<String>,
    pub lost: Option<String>,
}

impl Journal {
    pub fn read(path: &Path) -> Self {
        let mut journal = Self::default();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // The last line may be under way.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            journal.take(line);
        }
        journal
    }

    fn take(&mut self, line: &str) {
        let (kind, rest) = line.split_at(1);
        let rest = rest.trim_start();
        let mut words = rest.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        match kind {
            "B" => {
                let began = number();
                let op = op_of(&words.collect::<Vec<_>>());
                self.done.push(Done { op, began, ended: None, ok: false, saw: Vec::new() });
            }
            "E" => {
                let ended = number();
                let last = self.done.last_mut().expect("an operation");
                (last.ended, last.ok) = (Some(ended), words.next() == Some("true"));
            }
            "S" => {
                let saw = saw_of(&words.collect::<Vec<_>>());
                self.done.last_mut().expect("an operation").saw.push(saw);
            }
            "V" => self.violations.push(rest.to_owned()),
            _ => self.lost = Some(rest.to_owned()),
        }
    }
}

fn op_of(words: &[&str]) -> Op {
    let text = |at: usize| words[at].to_owned();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    match words[0] {
        "mkdir" => Op::Mkdir(text(1)),
        "rmdir" => Op::Rmdir(text(1)),
        "create" => Op::Create(text(1), number(2), number(3) as usize),
        "write" => Op::Write(text(1), number(2), number(3)),
        "rename" => Op::Rename(text(1), text(2)),
        "link" => Op::Link(text(1), text(2)),
        "unlink" => Op::Unlink(text(1)),
        "fsync" => Op::Fsync(text(1), number(2)),
        "check" => Op::Check(text(1)),
        "look" => Op::Look(text(1)),
        "append" => Op::Append(number(1), number(2)),
        "fsynclog" => Op::FsyncLog(number(1)),
        "readlog" => Op::ReadLog(number(1)),
        "locked" => Op::Locked(if words[1] == "flock" { "flock" } else { "fcntl" }),
        "race" => Op::Race(number(1)),
        other => panic!("no operation: {other}"),
    }
}

fn saw_of(words: &[&str]) -> Saw {
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    match words[0] {
        "file" => Saw::File { path: words[1].to_owned(), file: number(2), version: number(3) },
        _ => Saw::Record { log: number(1), writer: number(2), record: number(3) },
    }
}
