//! One file, and two operations on it at once, on one mount or on both, after a third on the other mount: what either order of the two leaves is there, on both
//! mounts. Kernels keep pages and an end of their own of it, which the third has just made old.
//!
//! Nothing is stored through a mapping beside what makes the file shorter or writes to the same bytes, and nothing is copied within the file: neither is done
//! at one moment anywhere.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Barrier;
use std::time::Instant;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Advice, AtFlags, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, pread, pwrite};

use crate::arena::{Arena, NAMES, SITES};
use crate::differ::End;
use crate::raw::Mapping;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Nothing,
    Write(usize, usize),
    Direct(usize, usize),
    Store(usize, usize),
    Truncate(usize),
    OpenTruncated,
    Punch(usize, usize),
    Zero(usize, usize),
    Read(usize, usize),
    Stat,
    Seek,
    Sync,
    Link,
    Forget,
    Chmod,
    Open,
    List,
}

const OPS: [Op; 28] = [
    Op::Nothing,
    Op::Write(200, 100),
    Op::Write(4_096, 4_096),
    Op::Write(4_000, 300),
    Op::Write(9_000, 500),
    Op::Write(0, 8_192),
    Op::Write(12_900, 300),
    Op::Direct(0, 4_096),
    Op::Direct(8_192, 4_096),
    Op::Store(300, 100),
    Op::Store(4_000, 200),
    Op::Truncate(100),
    Op::Truncate(5_000),
    Op::Truncate(15_000),
    Op::OpenTruncated,
    Op::Punch(1_000, 6_000),
    Op::Zero(3_000, 11_000),
    Op::Read(0, 100),
    Op::Read(0, 16_384),
    Op::Read(12_950, 100),
    Op::Stat,
    Op::Seek,
    Op::Sync,
    Op::Link,
    Op::Forget,
    Op::Chmod,
    Op::Open,
    Op::List,
];

impl Op {
    fn makes_shorter(self) -> bool {
        matches!(self, Self::Truncate(_) | Self::OpenTruncated)
    }

    /// Where it changes bytes.
    fn range(self) -> Range<usize> {
        match self {
            Self::Write(at, len) | Self::Direct(at, len) | Self::Store(at, len) => at..at + len,
            Self::Punch(at, len) | Self::Zero(at, len) => at..at + len,
            _ => 0..0,
        }
    }

    /// Whether it may be done beside another as if each were done at one moment.
    fn goes_with(self, other: Self) -> bool {
        let (a, b) = (self.range(), other.range());
        let is_store = |op| matches!(op, Self::Store(..));
        let is_apart = a.end <= b.start || b.end <= a.start;
        !is_store(self) && !is_store(other) || is_apart && !self.makes_shorter() && !other.makes_shorter()
    }

    /// What it leaves of these bytes.
    fn model(self, bytes: &mut Vec<u8>, mark: u8) {
        let mut put = |at: usize, len: usize, byte: u8| {
            bytes.resize(bytes.len().max(at + len), 0);
            bytes[at..at + len].fill(byte);
        };
        match self {
            Self::Write(at, len) | Self::Direct(at, len) | Self::Store(at, len) => put(at, len, mark),
            Self::Zero(at, len) => put(at, len, 0),
            Self::Punch(at, len) => {
                let end = bytes.len().min(at + len);
                bytes[at.min(end)..end].fill(0);
            }
            Self::Truncate(len) => bytes.resize(len, 0),
            Self::OpenTruncated => bytes.clear(),
            _ => {}
        }
    }
}

/// The file on one mount.
struct Open<'a> {
    arena: &'a Arena,
    site: usize,
    cached: OwnedFd,
    direct: OwnedFd,
}

impl<'a> Open<'a> {
    fn new(arena: &'a Arena, site: usize) -> Self {
        let open = |flags| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | flags;
            fs::openat(arena.root(site), NAME, flags, Mode::from_raw_mode(0o644)).expect("opened")
        };
        Self { arena, site, cached: open(OFlags::empty()), direct: open(OFlags::DIRECT) }
    }

    fn perform(&self, op: Op, mark: u8) -> Result<(), Errno> {
        let root = self.arena.root(self.site);
        let all = |len: usize, done: usize| if done == len { Ok(()) } else { Err(Errno::IO) };
        match op {
            Op::Nothing => Ok(()),
            Op::Write(at, len) => all(len, pwrite(&self.cached, &vec![mark; len], at as u64)?),
            Op::Direct(at, len) => {
                let mut buffer = vec![mark; len + ALIGNED];
                let skip = buffer.as_ptr().align_offset(ALIGNED);
                buffer.truncate(skip + len);
                all(len, pwrite(&self.direct, &buffer[skip..], at as u64)?)
            }
            Op::Store(at, len) => {
                // A kernel that has not looked since another node made the file longer lets nobody store there.
                fs::fstat(&self.cached)?;
                let map = Mapping::new(self.cached.as_fd(), 8_192, true)?;
                all(len, map.store(at, &vec![mark; len])?)?;
                map.sync()
            }
            Op::Truncate(len) => fs::ftruncate(&self.cached, len as u64),
            Op::OpenTruncated => {
                fs::openat(root, NAME, OFlags::WRONLY | OFlags::TRUNC, Mode::empty()).map(drop)
            }
            Op::Punch(at, len) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fs::fallocate(&self.cached, flags, at as u64, len as u64)
            }
            Op::Zero(at, len) => {
                fs::fallocate(&self.cached, FallocateFlags::ZERO_RANGE, at as u64, len as u64)
            }
            Op::Read(at, len) => pread(&self.cached, &mut vec![0; len], at as u64).map(drop),
            Op::Stat => fs::statat(root, NAME, AtFlags::empty()).map(drop),
            Op::Seek => fs::seek(&self.cached, SeekFrom::End(0)).map(drop),
            Op::Sync => fs::fsync(&self.cached),
            Op::Link => {
                let name = format!("link-{mark}");
                fs::linkat(root, NAME, root, &*name, AtFlags::empty())?;
                fs::unlinkat(root, &*name, AtFlags::empty())
            }
            Op::Forget => fs::fadvise(&self.cached, 0, None, Advice::DontNeed),
            Op::Chmod => fs::fchmod(&self.cached, Mode::from_raw_mode(0o600 + u32::from(mark % 64))),
            Op::Open => fs::openat(root, NAME, OFlags::RDWR, Mode::empty()).map(drop),
            Op::List => std::fs::read_dir(self.arena.path(self.site))
                .and_then(|mut list| list.try_for_each(|entry| look_at(&entry?)))
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    fn content(&self) -> Vec<u8> {
        let mut content = vec![0; 1 << 16];
        let len = pread(&self.cached, &mut content, 0).expect("read");
        content.truncate(len);
        content
    }
}

/// Looks at what was listed. A link that was made beside the file may be gone by then.
fn look_at(entry: &std::fs::DirEntry) -> std::io::Result<()> {
    match entry.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound && entry.file_name() != NAME => Ok(()),
        looked => looked.map(drop),
    }
}

/// Pairs, drawn by a seed. A step is one of them, a few times over.
pub struct Pairs {
    arena: Arena,
    rng: fastrand::Rng,
}

impl Pairs {
    pub fn new(arena: Arena, seed: u64) -> Self {
        Self { arena, rng: fastrand::Rng::with_seed(seed) }
    }

    /// Runs to the end or to the first pair that leaves something else. Returns the steps done.
    pub fn run(&mut self, end: End) -> Result<u64, String> {
        let began = Instant::now();
        let mut steps = 0;
        loop {
            match end {
                End::Steps(max) if steps >= max => return Ok(steps),
                End::Time(time) if began.elapsed() >= time => return Ok(steps),
                End::Steps(_) | End::Time(_) => {}
            }
            steps += 1;
            let mut draw = || OPS[self.rng.usize(..OPS.len())];
            let (before, pair) = (draw(), [draw(), draw()]);
            if matches!(before, Op::Store(..))
                || !pair[0].goes_with(pair[1])
                || pair.iter().any(|op| !op.goes_with(before))
            {
                continue;
            }
            let second = self.rng.usize(..SITES);
            for round in 0..ROUNDS {
                self.round(before, pair, second, round).map_err(|what| {
                    format!("step {steps}: after {before:?} on {}, {pair:?} at once on {} and {}, round {round}: {what}", NAMES[1], NAMES[0], NAMES[second])
                })?;
            }
        }
    }

    fn round(&mut self, before: Op, pair: [Op; 2], second: usize, round: u8) -> Result<(), String> {
        let open = [0, 1].map(|site| Open::new(&self.arena, site));
        let mut base = vec![b'x'; LEN];
        fs::ftruncate(&open[1].cached, 0).expect("cut");
        assert_eq!(pwrite(&open[1].cached, &base, 0), Ok(LEN));
        if self.rng.u8(..5) > 0 {
            assert!(open[0].content() == base);
        }
        before.model(&mut base, b'A');
        open[1].perform(before, b'A').map_err(|error| format!("{before:?}: {error}"))?;

        let turn = Barrier::new(2);
        let marks = [1 + round % 60, 70 + round % 60];
        let done = std::thread::scope(|scope| {
            let start = |which: usize, site: usize| {
                let (open, turn) = (&open[site], &turn);
                scope.spawn(move || {
                    turn.wait();
                    open.perform(pair[which], marks[which])
                })
            };
            [start(0, 0), start(1, second)].map(|thread| thread.join().expect("no panic"))
        });
        for (op, done) in pair.iter().zip(done) {
            done.map_err(|error| format!("{op:?}: {error}"))?;
        }
        let allowed = [[0, 1], [1, 0]].map(|order| {
            let mut bytes = base.clone();
            order.into_iter().for_each(|which| pair[which].model(&mut bytes, marks[which]));
            bytes
        });
        let first = self.rng.usize(..SITES);
        let found = [first, 1 - first, first].map(|site| open[site].content());
        let sizes = [0, 1].map(|site| fs::fstat(&open[site].cached).expect("there").st_size as usize);
        let is_right = allowed.contains(&found[0])
            && found.iter().all(|content| *content == found[0])
            && sizes == [found[0].len(); SITES];
        match is_right {
            true => Ok(()),
            false => Err(format!(
                "found {:?}, of sizes {sizes:?}, not one of {:?}",
                found.map(|content| runs_of(&content)),
                allowed.map(|content| runs_of(&content))
            )),
        }
    }
}

/// Each byte, and how often it stands there in a row.
fn runs_of(content: &[u8]) -> String {
    let runs = content.chunk_by(|a, b| a == b);
    runs.map(|run| format!("{}x{}", run[0], run.len())).collect::<Vec<_>>().join(" ")
}

const NAME: &str = "pair";
/// Of the file before all: the last page is filled in part.
const LEN: usize = 13_000;
/// How often each pair is tried.
const ROUNDS: u8 = 10;
/// What O_DIRECT asks of memory, at most.
const ALIGNED: usize = 4_096;
