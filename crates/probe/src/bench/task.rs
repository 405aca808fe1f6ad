//! What a worker is told to do, and what it answers: a line of JSON each.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::bench::call::Call;
use crate::bench::coherence::Seen;

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular files by mknod(2).
    Mknod,
    /// Regular files by open(2) with O_CREAT and O_EXCL, and close(2).
    Create,
    /// Directories.
    Mkdir,
    /// Symbolic links.
    Symlink,
    /// Hard links, up to [`LINKS_PER_FILE`] to one file.
    Link,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Mknod, Self::Create, Self::Mkdir, Self::Symlink, Self::Link];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mknod => "mknod",
            Self::Create => "create",
            Self::Mkdir => "mkdir",
            Self::Symlink => "symlink",
            Self::Link => "link",
        }
    }

    /// The kind of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What is done in a directory. Names that are made, looked at and removed are `PREFIX` and a number from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Makes names.
    Make { kind: Kind, prefix: String, count: u64 },
    /// lstat(2) of names.
    Stat { prefix: String, count: u64 },
    /// Removes names.
    Remove { kind: Kind, prefix: String, count: u64 },
    /// Reads the directory.
    List,
    /// Makes a tree of regular files, so many in a directory.
    Grow { count: u64, per_directory: u64 },
    /// Writes a tree like the source of a large C program: so many files, 20 in a directory.
    Unpack { count: u64 },
    /// Unpacks an archive with tar(1).
    Extract { archive: PathBuf },
    /// Removes everything in the directory.
    Empty,
    /// Reads the tree, and lstat(2) of everything in it.
    Walk,
    /// As a walk, of so many at most: what may not be seen, has gone or is another file system's is passed over.
    Look { count: u64 },
    /// chmod(2) of all that is no directory, in the whole tree, to these permissions.
    Chmod { mode: u32 },
    /// Makes the file that calls are timed on.
    Prepare { bytes: u64 },
    /// Times calls, by turns here and through other mount points.
    Time { call: Call, count: u64, others: Vec<PathBuf> },
    /// Times how long it takes to make and remove a file of this name, so often.
    Visit { name: String, count: u64 },
    /// Writes or reads a file or device from its beginning.
    Stream(Stream),
    /// Changes things here and looks at them through another mount point.
    Compare { other: PathBuf, rounds: u64 },
}

/// What is written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// A name in the directory, or a device.
    pub target: PathBuf,
    pub is_write: bool,
    /// Past the page cache.
    pub is_direct: bool,
    /// With fsync(2) after each block, not only after the last.
    pub is_synced: bool,
    /// Of 1 MiB.
    pub blocks: u64,
}

/// Work in a place, to begin at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub dir: PathBuf,
    pub work: Work,
    /// Nanoseconds of the monotonic clock.
    pub start_ns: u64,
    /// When it ends even if it is not done: names, streams, calls and walks then count what was done until then.
    pub until_ns: u64,
}

/// What came of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Names made, looked at, read or removed.
    pub count: u64,
    /// By the monotonic clock.
    pub begun_ns: u64,
    pub ended_ns: u64,
    /// CPU time of the worker in its own code: whole ticks.
    pub user_ns: u64,
    /// `count` of each second since the beginning; the last one is not a whole one.
    pub series: Vec<u64>,
    /// Of calls that were timed, in nanoseconds.
    pub delays: Vec<u64>,
    /// Of changes that were looked at.
    pub seen: Vec<Seen>,
    /// What failed, and why.
    pub error: Option<String>,
    /// Whether that is a call that the file system does not offer.
    pub is_unsupported: bool,
}

impl Task {
    /// One line. Paths are bytes, as the kernel has them.
    pub fn to_line(&self) -> String {
        let work = match &self.work {
            Work::Make { kind, prefix, count } => {
                json!({ "do": "make", "kind": kind.name(), "prefix": prefix, "count": count })
            }
            Work::Stat { prefix, count } => json!({ "do": "stat", "prefix": prefix, "count": count }),
            Work::Remove { kind, prefix, count } => {
                json!({ "do": "remove", "kind": kind.name(), "prefix": prefix, "count": count })
            }
            Work::List => json!({ "do": "list" }),
            Work::Grow { count, per_directory } => {
                json!({ "do": "grow", "count": count, "per_directory": per_directory })
            }
            Work::Unpack { count } => json!({ "do": "unpack", "count": count }),
            Work::Extract { archive } => json!({ "do": "extract", "archive": bytes_of(archive) }),
            Work::Empty => json!({ "do": "empty" }),
            Work::Walk => json!({ "do": "walk" }),
            Work::Visit { name, count } => json!({ "do": "visit", "name": name, "count": count }),
            Work::Look { count } => json!({ "do": "look", "count": count }),
            Work::Chmod { mode } => json!({ "do": "chmod", "mode": mode }),
            Work::Prepare { bytes } => json!({ "do": "prepare", "bytes": bytes }),
            Work::Time { call, count, others } => {
                let others: Vec<&[u8]> = others.iter().map(|path| bytes_of(path)).collect();
                json!({ "do": "time", "call": call.name(), "count": count, "others": others })
            }
            Work::Stream(Stream { target, is_write, is_direct, is_synced, blocks }) => json!({
                "do": "stream",
                "target": bytes_of(target),
                "is_write": is_write,
                "is_direct": is_direct,
                "is_synced": is_synced,
                "blocks": blocks,
            }),
            Work::Compare { other, rounds } => {
                json!({ "do": "compare", "other": bytes_of(other), "rounds": rounds })
            }
        };
        json!({ "dir": bytes_of(&self.dir), "start_ns": self.start_ns, "until_ns": self.until_ns, "work": work }).to_string()
    }

    /// Reads [`Self::to_line`].
    pub fn parse(line: &str) -> Option<Self> {
        let document: Json = serde_json::from_str(line).ok()?;
        let work = &document["work"];
        let kind = || Kind::of_name(work["kind"].as_str()?);
        let prefix = || Some(work["prefix"].as_str()?.to_owned());
        let count = || work["count"].as_u64();
        let work = match work["do"].as_str()? {
            "make" => Work::Make { kind: kind()?, prefix: prefix()?, count: count()? },
            "stat" => Work::Stat { prefix: prefix()?, count: count()? },
            "remove" => Work::Remove { kind: kind()?, prefix: prefix()?, count: count()? },
            "list" => Work::List,
            "grow" => Work::Grow { count: count()?, per_directory: work["per_directory"].as_u64()?.max(1) },
            "unpack" => Work::Unpack { count: count()? },
            "extract" => Work::Extract { archive: path_of(&work["archive"])? },
            "empty" => Work::Empty,
            "walk" => Work::Walk,
            "visit" => Work::Visit { name: work["name"].as_str()?.to_owned(), count: count()? },
            "look" => Work::Look { count: count()? },
            "chmod" => Work::Chmod { mode: u32::try_from(work["mode"].as_u64()?).ok()? },
            "prepare" => Work::Prepare { bytes: work["bytes"].as_u64()? },
            "time" => Work::Time {
                call: Call::of_name(work["call"].as_str()?)?,
                count: count()?,
                others: work["others"].as_array()?.iter().map(path_of).collect::<Option<_>>()?,
            },
            "stream" => Work::Stream(Stream {
                target: path_of(&work["target"])?,
                is_write: work["is_write"].as_bool()?,
                is_direct: work["is_direct"].as_bool()?,
                is_synced: work["is_synced"].as_bool()?,
                blocks: work["blocks"].as_u64()?,
            }),
            "compare" => Work::Compare { other: path_of(&work["other"])?, rounds: work["rounds"].as_u64()? },
            _ => return None,
        };
        let time = |name: &str| document[name].as_u64();
        let dir = path_of(&document["dir"])?;
        Some(Self { dir, work, start_ns: time("start_ns")?, until_ns: time("until_ns")? })
    }
}

impl Outcome {
    /// One line.
    pub fn to_line(&self) -> String {
        json!({
            "count": self.count,
            "begun_ns": self.begun_ns,
            "ended_ns": self.ended_ns,
            "user_ns": self.user_ns,
            "series": self.series,
            "delays": self.delays,
            "seen": self.seen.iter().map(|seen| json!([seen.kind, seen.stale, seen.of])).collect::<Vec<_>>(),
            "error": self.error,
            "is_unsupported": self.is_unsupported,
        })
        .to_string()
    }

    /// Reads [`Self::to_line`].
    pub fn parse(line: &str) -> Option<Self> {
        let document: Json = serde_json::from_str(line).ok()?;
        let numbers = |name: &str| document[name].as_array()?.iter().map(Json::as_u64).collect::<Option<_>>();
        let seen = |seen: &Json| {
            let kind = seen[0].as_str()?.to_owned();
            Some(Seen { kind, stale: seen[1].as_u64()?, of: seen[2].as_u64()? })
        };
        Some(Self {
            count: document["count"].as_u64()?,
            begun_ns: document["begun_ns"].as_u64()?,
            ended_ns: document["ended_ns"].as_u64()?,
            user_ns: document["user_ns"].as_u64()?,
            series: numbers("series")?,
            delays: numbers("delays")?,
            seen: document["seen"].as_array()?.iter().map(seen).collect::<Option<_>>()?,
            error: document["error"].as_str().map(str::to_owned),
            is_unsupported: document["is_unsupported"].as_bool()?,
        })
    }
}

fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn path_of(value: &Json) -> Option<PathBuf> {
    let byte = |byte: &Json| u8::try_from(byte.as_u64()?).ok();
    let bytes: Vec<u8> = value.as_array()?.iter().map(byte).collect::<Option<_>>()?;
    Some(PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// Fewer than any file system takes.
pub(crate) const LINKS_PER_FILE: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_outcomes_survive_their_lines() {
        let prefix = || "p0-".to_owned();
        let mut all: Vec<Work> =
            Kind::ALL.into_iter().map(|kind| Work::Make { kind, prefix: prefix(), count: 7 }).collect();
        all.push(Work::Remove { kind: Kind::Mkdir, prefix: prefix(), count: u64::MAX });
        all.push(Work::Stat { prefix: prefix(), count: 0 });
        all.push(Work::Grow { count: 10, per_directory: 3 });
        all.extend([Work::Unpack { count: 3 }, Work::Extract { archive: PathBuf::from("/x") }, Work::Empty]);
        all.extend([
            Work::List,
            Work::Walk,
            Work::Chmod { mode: 0o600 },
            Work::Prepare { bytes: 8 },
            Work::Look { count: 5 },
        ]);
        let others = vec![PathBuf::from("/b"), PathBuf::from("/c")];
        all.extend(Call::ALL.map(|call| Work::Time { call, count: 7, others: others.clone() }));
        all.push(Work::Compare { other: PathBuf::from("/b"), rounds: 3 });
        all.push(Work::Visit { name: "x".to_owned(), count: 5 });
        let stream = Stream {
            target: PathBuf::from("/dev/x"),
            is_write: true,
            is_direct: false,
            is_synced: true,
            blocks: 9,
        };
        all.push(Work::Stream(Stream { is_direct: true, ..stream.clone() }));
        all.push(Work::Stream(Stream { is_write: false, is_synced: false, ..stream }));
        for work in all {
            let dir = PathBuf::from(OsStr::from_bytes(b"/a\xff\n b"));
            let task = Task { dir, work, start_ns: 1 << 60, until_ns: u64::MAX };
            assert_eq!(Task::parse(&task.to_line()), Some(task));
        }
        let error = Some("no".to_owned());
        let seen = vec![Seen { kind: "chmod".to_owned(), stale: 1, of: 2 }];
        let outcome = Outcome {
            count: 1,
            begun_ns: 2,
            ended_ns: 3,
            user_ns: 4,
            series: vec![5, 6],
            delays: vec![7],
            seen,
            error,
            is_unsupported: true,
        };
        assert_eq!(Outcome::parse(&outcome.to_line()), Some(outcome));
        assert_eq!((Task::parse("{}"), Outcome::parse("")), (None, None));
    }
}
