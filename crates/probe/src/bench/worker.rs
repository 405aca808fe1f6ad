//! The worker: makes the system calls, and counts.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::bench::call::Call;
use crate::bench::coherence::Seen;
use crate::bench::task::{Kind, LINKS_PER_FILE, Outcome, Task, Work};
use crate::bench::tree::{Failed, each, is_dot, list, open_dir};
use crate::bench::{call, coherence, stream, tree};
use crate::{daemon, system};

/// Does tasks, a line each on standard input, until that ends.
///
/// # Errors
///
/// Of reading and writing these lines; what fails in a task is its outcome.
pub fn bench_work() -> io::Result<()> {
    // Who interrupts the benchmark means the crew, which ends the workers.
    let _signals = system::Signals::block()?;
    for line in io::stdin().lock().lines() {
        let task = Task::parse(&line?).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "run by holdfast bench, not by hand")
        })?;
        let outcome = run(&task);
        let mut out = io::stdout().lock();
        writeln!(out, "{}", outcome.to_line())?;
        out.flush()?;
    }
    Ok(())
}

fn run(task: &Task) -> Outcome {
    let wait = task.start_ns.saturating_sub(system::monotonic_ns());
    std::thread::sleep(Duration::from_nanos(wait));
    let user_ns = user_ns();
    let mut tally = Tally::new(task.until_ns);
    let result = open_dir(CWD, &task.dir)
        .map_err(|error| ("open".to_owned(), error))
        .and_then(|dir| perform(dir.as_fd(), &task.work, &mut tally));
    let is_unsupported = result.as_ref().is_err_and(|(_, errno)| is_unsupported(&task.work, *errno));
    Outcome {
        count: tally.count,
        begun_ns: tally.begun_ns,
        ended_ns: system::monotonic_ns(),
        user_ns: self::user_ns().saturating_sub(user_ns),
        series: tally.series,
        delays: tally.delays,
        seen: tally.seen,
        error: result.err().map(|(what, error)| format!("{what}: {}", io::Error::from(error))),
        is_unsupported,
    }
}

/// Whether an error means that the file system does not offer the call. Of locks there are more such errors: ENOLCK of NFS without a
/// lock manager, EINVAL where a file cannot be locked (fcntl(2)), ENOTTY of daemons that know no such request.
fn is_unsupported(work: &Work, errno: Errno) -> bool {
    let is_lock = matches!(work, Work::Time { call: Call::Flock | Call::Fcntl, .. });
    match errno {
        Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP => true,
        Errno::NOLCK | Errno::INVAL | Errno::NOTTY => is_lock,
        _ => false,
    }
}

/// This process's own CPU time, and of what it ran.
fn user_ns() -> u64 {
    daemon::user_seconds("self").map_or(0, |seconds| (seconds * 1e9) as u64)
}

/// Counts by seconds.
struct Tally {
    begun_ns: u64,
    count: u64,
    series: Vec<u64>,
    delays: Vec<u64>,
    seen: Vec<Seen>,
    /// When the current second ends.
    second_ns: u64,
    /// When there is no more time.
    until_ns: u64,
}

impl Tally {
    fn new(until_ns: u64) -> Self {
        let begun_ns = system::monotonic_ns();
        let (delays, seen) = Default::default();
        Self { begun_ns, count: 0, series: vec![0], delays, seen, second_ns: begun_ns + SECOND_NS, until_ns }
    }

    fn add(&mut self, count: u64) {
        let now = system::monotonic_ns();
        while now >= self.second_ns {
            self.series.push(0);
            self.second_ns += SECOND_NS;
        }
        self.count += count;
        if let Some(second) = self.series.last_mut() {
            *second += count;
        }
    }

    /// One more; whether there is time for another.
    fn goes_on(&mut self) -> bool {
        self.add(1);
        system::monotonic_ns() < self.until_ns
    }
}

fn perform(dir: BorrowedFd<'_>, work: &Work, tally: &mut Tally) -> Result<(), Failed> {
    match work {
        Work::Make { kind, prefix, count } => make_all(dir, *kind, prefix, *count, tally)?,
        Work::Stat { prefix, count } => stat_all(dir, prefix, *count, tally)?,
        Work::Remove { kind, prefix, count } => remove_all(dir, *kind, prefix, *count, tally)?,
        Work::List => {
            for entry in list(dir)? {
                let entry = entry.map_err(|error| ("readdir".to_owned(), error))?;
                tally.add(u64::from(!is_dot(entry.file_name())));
            }
        }
        Work::Grow { count, per_directory } => tree::grow(dir, *count, *per_directory, || tally.add(1))?,
        Work::Unpack { count } => tree::unpack(dir, *count, || tally.add(1))?,
        Work::Extract { archive } => tree::extract(dir, archive, || tally.add(1))?,
        Work::Empty => tree::empty(dir, &mut || tally.add(1))?,
        Work::Walk => each(dir, &mut |_, _, _| {
            tally.add(1);
            Ok(())
        })?,
        Work::Look { count } => {
            let count = *count;
            tree::look(dir, &mut || tally.goes_on() && tally.count < count)?;
        }
        Work::Chmod { mode } => each(dir, &mut |parent, name, kind| {
            if kind != FileType::Directory {
                rustix::fs::chmodat(parent, name, Mode::from_raw_mode(*mode), AtFlags::empty())?;
                tally.add(1);
            }
            Ok(())
        })?,
        Work::Prepare { bytes } => call::prepare(dir, *bytes).map_err(|error| ("write".to_owned(), error))?,
        Work::Time { call, count, others } => {
            let failed = |error| (call.name().to_owned(), error);
            let mut dirs = vec![open_dir(dir, ".").map_err(failed)?];
            for other in others {
                dirs.push(open_dir(CWD, other).map_err(failed)?);
            }
            tally.delays = call::time(&dirs, *call, *count, || tally.goes_on()).map_err(failed)?;
        }
        Work::Visit { name, count } => {
            tally.delays = call::visit(dir, name, *count, || tally.goes_on())
                .map_err(|error| (format!("create {name}"), error))?;
        }
        Work::Stream(work) => {
            let way = if work.is_write { "write" } else { "read" };
            stream::stream(dir, work, || tally.goes_on())
                .map_err(|error| (format!("{way} {}", work.target.display()), error))?;
        }
        Work::Compare { other, rounds } => {
            let failed = |error| ("compare".to_owned(), error);
            let (dir, other) = (open_dir(dir, ".").map_err(failed)?, open_dir(CWD, other).map_err(failed)?);
            tally.seen = coherence::compare(&dir, &other, *rounds, || tally.add(1)).map_err(failed)?;
        }
    }
    Ok(())
}

fn make_all(
    dir: BorrowedFd<'_>,
    kind: Kind,
    prefix: &str,
    count: u64,
    tally: &mut Tally,
) -> Result<(), Failed> {
    for (number, name) in names(prefix, count) {
        make(dir, kind, prefix, number, &name).map_err(|error| (format!("{} {name}", kind.name()), error))?;
        if !tally.goes_on() {
            break;
        }
    }
    Ok(())
}

fn stat_all(dir: BorrowedFd<'_>, prefix: &str, count: u64, tally: &mut Tally) -> Result<(), Failed> {
    for (_, name) in names(prefix, count) {
        rustix::fs::statat(dir, &*name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| (format!("stat {name}"), error))?;
        if !tally.goes_on() {
            break;
        }
    }
    Ok(())
}

fn remove_all(
    dir: BorrowedFd<'_>,
    kind: Kind,
    prefix: &str,
    count: u64,
    tally: &mut Tally,
) -> Result<(), Failed> {
    let flags = if kind == Kind::Mkdir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    for (number, name) in names(prefix, count) {
        rustix::fs::unlinkat(dir, &*name, flags).map_err(|error| (format!("remove {name}"), error))?;
        tally.add(1);
        if kind == Kind::Link && number % LINKS_PER_FILE == 0 {
            let source = source_of(prefix, number);
            rustix::fs::unlinkat(dir, &*source, AtFlags::empty())
                .map_err(|error| (format!("remove {source}"), error))?;
        }
    }
    Ok(())
}

fn names(prefix: &str, count: u64) -> impl Iterator<Item = (u64, String)> {
    (0..count).map(move |number| (number, format!("{prefix}{number:07}")))
}

fn make(dir: BorrowedFd<'_>, kind: Kind, prefix: &str, number: u64, name: &str) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(0o644);
    match kind {
        Kind::Mknod => rustix::fs::mknodat(dir, name, FileType::RegularFile, mode, 0),
        Kind::Create => create(dir, name),
        Kind::Mkdir => rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)),
        Kind::Symlink => rustix::fs::symlinkat("to/somewhere", dir, name),
        Kind::Link => {
            let source = source_of(prefix, number);
            if number % LINKS_PER_FILE == 0 {
                create(dir, &source)?;
            }
            rustix::fs::linkat(dir, &*source, dir, name, AtFlags::empty())
        }
    }
}

fn create(dir: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644)).map(drop)
}

/// The file that a hard link is to.
fn source_of(prefix: &str, number: u64) -> String {
    format!("{prefix}source-{}", number / LINKS_PER_FILE)
}

const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_refused_in_more_ways_than_other_calls() {
        let work = |call| Work::Time { call, count: 1, others: Vec::new() };
        for errno in [Errno::NOLCK, Errno::INVAL, Errno::NOTTY] {
            let of = |call| is_unsupported(&work(call), errno);
            assert!(of(Call::Flock) && of(Call::Fcntl) && !of(Call::Read), "{errno}");
        }
        for (errno, is_so) in [(Errno::NOSYS, true), (Errno::OPNOTSUPP, true), (Errno::IO, false)] {
            assert_eq!(is_unsupported(&work(Call::Flock), errno), is_so, "{errno}");
            assert_eq!(is_unsupported(&Work::List, errno), is_so, "{errno}");
        }
    }
}
