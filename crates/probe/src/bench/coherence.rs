//! Whether what is done through one mount point is what the other shows, at once.

use std::path::PathBuf;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde_json::json;

use crate::bench::crew::Crew;
use crate::bench::environment::{FileSystem, Machine};
use crate::bench::report::{Figure, Report, unix_now};
use crate::bench::scratch::Scratch;
use crate::bench::task::Work;
use crate::bench::{BenchError, Stage};

/// Where it is looked.
#[derive(Clone, Debug)]
pub struct Coherence {
    /// Two mount points of one file system; with one, it is compared with itself.
    pub mounts: Vec<PathBuf>,
    /// How often each kind is tried.
    pub rounds: u64,
}

/// Of one kind of change: how often it was looked for, and how often what was seen was older.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub kind: String,
    pub stale: u64,
    pub of: u64,
}

impl Coherence {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`BenchError`]; what was made is removed.
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        let (machine, started) = (Machine::look(), unix_now());
        let crew = Crew::new(1, &stage.worker)?;
        let own = Scratch::new(&self.mounts)?;
        // Goes before what it makes names in.
        let mut crew = crew;
        stage.tell(0, 1, "coherence");
        let places = own.places();
        let other = places[places.len() - 1].clone();
        let done = crew.run(vec![(places[0].clone(), Work::Compare { other, rounds: self.rounds })])?;
        let mut report = Report {
            bench: "coherence",
            figures: done.seen.into_iter().map(Figure::of_seen).collect(),
            settings: json!({
                "mounts": self.mounts.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
                "rounds": self.rounds,
            }),
            warnings: Vec::new(),
            notes: Vec::new(),
            version: stage.version.to_owned(),
            started,
            machine,
            file_system: FileSystem::of(own.first()),
            local: None,
            runs: 1,
            beside: "local",
        };
        if self.mounts.len() < 2 {
            report.warnings.push("one mount point only: it was compared with itself".to_owned());
        }
        Ok(report)
    }
}

/// Changes things in one directory and looks at once in `other`, which shows the same one.
pub(crate) fn compare(
    dir: &OwnedFd,
    other: &OwnedFd,
    rounds: u64,
    mut tell: impl FnMut(),
) -> Result<Vec<Seen>, Errno> {
    let mut pair = Pair { one: dir, other, seen: Vec::new() };
    for round in 0..rounds {
        pair.one_file(&format!("f{round}"))?;
        tell();
    }
    pair.open_file(rounds)?;
    Ok(pair.seen)
}

struct Pair<'a> {
    one: &'a OwnedFd,
    other: &'a OwnedFd,
    seen: Vec<Seen>,
}

impl Pair<'_> {
    fn note(&mut self, kind: &str, is_so: bool) {
        let at = self.seen.iter().position(|seen| seen.kind == kind).unwrap_or_else(|| {
            self.seen.push(Seen { kind: kind.to_owned(), ..Seen::default() });
            self.seen.len() - 1
        });
        self.seen[at].of += 1;
        self.seen[at].stale += u64::from(!is_so);
    }

    /// The life of a file, each step on one side and looked at from the other.
    fn one_file(&mut self, name: &str) -> Result<(), Errno> {
        let (one, other) = (self.one, self.other);
        let renamed = format!("{name}.r");
        // It is asked for before it is there, so that its absence may be remembered.
        self.note("absent before", stat(other, name).is_none());
        let file = open(one, name, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
        self.note("create", stat(other, name).is_some());
        self.note("create, listed", lists(other, name)?);
        rustix::io::pwrite(&file, &[b'a'; 100], 0)?;
        self.note("write, size", stat(other, name).is_some_and(|stat| stat.st_size == 100));
        self.note("write, content", content(other, name) == Some(vec![b'a'; 100]));
        rustix::io::pwrite(&file, &[b'b'; 50], 100)?;
        self.note("append, size", stat(other, name).is_some_and(|stat| stat.st_size == 150));
        let appended = content(other, name).is_some_and(|all| all.get(100..) == Some(&[b'b'; 50][..]));
        self.note("append, content", appended);
        rustix::fs::ftruncate(&file, 10)?;
        self.note("truncate, size", stat(other, name).is_some_and(|stat| stat.st_size == 10));
        self.note("truncate, content", content(other, name) == Some(vec![b'a'; 10]));
        drop(file);
        rustix::fs::chmodat(one, name, Mode::from_raw_mode(0o600), AtFlags::empty())?;
        self.note("chmod", stat(other, name).is_some_and(|stat| stat.st_mode & 0o777 == 0o600));
        rustix::fs::renameat(one, name, one, &*renamed)?;
        self.note("rename, old name", stat(other, name).is_none());
        self.note("rename, new name", stat(other, &renamed).is_some());
        // What one side does not see is not the end of it.
        if rustix::fs::unlinkat(other, &*renamed, AtFlags::empty()).is_ok() {
            self.note("unlink from the other", stat(one, &renamed).is_none());
        }
        Ok(())
    }

    /// Both sides have one file open all the time: what is written on one is read on the other, with no close between.
    fn open_file(&mut self, rounds: u64) -> Result<(), Errno> {
        let here = open(self.one, "open", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
        rustix::io::pwrite(&here, &[0; 16], 0)?;
        let Ok(there) = open(self.other, "open", OFlags::RDWR) else {
            self.note("open", false);
            return Ok(());
        };
        for round in 0..rounds {
            let (first, second) = ((2 * round).to_le_bytes(), (2 * round + 1).to_le_bytes());
            let mut found = [0; 8];
            rustix::io::pwrite(&here, &first, 0)?;
            rustix::io::pread(&there, &mut found, 0)?;
            self.note("write while open", found == first);
            rustix::io::pwrite(&there, &second, 8)?;
            rustix::io::pread(&here, &mut found, 8)?;
            self.note("write back while open", found == second);
        }
        Ok(())
    }
}

fn open(dir: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
}

fn stat(dir: &OwnedFd, name: &str) -> Option<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn content(dir: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    let file = open(dir, name, OFlags::RDONLY).ok()?;
    let mut bytes = vec![0; 4096];
    let len = rustix::io::pread(&file, &mut bytes[..], 0).ok()?;
    bytes.truncate(len);
    Some(bytes)
}

fn lists(dir: &OwnedFd, name: &str) -> Result<bool, Errno> {
    for entry in Dir::read_from(dir)? {
        if entry?.file_name().to_bytes() == name.as_bytes() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_dir(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    /// Goal: what is old is counted as old. Method: the other side is another directory, where nothing ever happens.
    #[test]
    fn a_side_that_sees_nothing_is_stale_in_all_but_what_is_not_there() {
        let base = std::env::temp_dir().join(format!("holdfast-coherence-{}", std::process::id()));
        let [one, other] = ["one", "other"].map(|name| base.join(name));
        std::fs::create_dir_all(&one).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        let (here, there) = (open_dir(&one), open_dir(&other));
        let seen = compare(&here, &there, 3, || ()).unwrap();
        let is_blind = |kind: &str| !["absent before", "rename, old name"].contains(&kind);
        for Seen { kind, stale, of } in &seen {
            assert_eq!(*stale, if is_blind(kind) { *of } else { 0 }, "{kind}");
        }
        assert_eq!(seen.iter().filter(|seen| seen.of == 3).count(), seen.len() - 1, "{seen:?}");
        let again = base.join("again");
        std::fs::create_dir(&again).unwrap();
        let (here, there) = (open_dir(&again), open_dir(&again));
        let seen = compare(&here, &there, 3, || ()).unwrap();
        assert!(seen.len() == 15 && seen.iter().all(|seen| seen.stale == 0 && seen.of == 3), "{seen:?}");
        std::fs::remove_dir_all(&base).unwrap();
    }

    /// Goal: a side that shows names and no content is counted, not stumbled over. Method: its files are there and stay empty.
    #[test]
    fn a_side_that_sees_empty_files_is_stale_in_their_content() {
        let base = std::env::temp_dir().join(format!("holdfast-coherence-empty-{}", std::process::id()));
        let [one, other] = ["one", "other"].map(|name| base.join(name));
        for dir in [&one, &other] {
            std::fs::create_dir_all(dir).unwrap();
        }
        for name in ["f0", "f1", "open"] {
            std::fs::write(other.join(name), "").unwrap();
        }
        let seen = compare(&open_dir(&one), &open_dir(&other), 2, || ()).unwrap();
        for kind in [
            "write, content",
            "append, size",
            "append, content",
            "truncate, content",
            "write back while open",
        ] {
            let count = seen.iter().find(|seen| seen.kind == kind).unwrap();
            assert_eq!((count.stale, count.of), (2, 2), "{kind}");
        }
        std::fs::remove_dir_all(&base).unwrap();
    }
}
