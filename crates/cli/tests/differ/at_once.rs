//! One file, read and written in every way from both mounts at once. Each region of it belongs to one thread, and no region ends where a
//! page does: so threads of both mounts write to the same pages. A byte tells which writing of its region it is of; whoever reads it must
//! find one that had begun by then, and none before the last that had ended.
//!
//! What is written around the page cache shares no page with what is stored through a mapping: on one mount the kernel itself writes such a
//! page back over it, as it was before (open(2), "O_DIRECT").

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, pread, pwrite};

use crate::arena::{Arena, NAMES, SITES};
use crate::differ::End;
use crate::raw::{Mapping, TRANSFER_MAX};

/// The mounts, and what all threads know of the file.
pub struct AtOnce {
    arena: Arena,
    regions: Vec<Region>,
    seed: u64,
    steps: AtomicU64,
    has_failed: AtomicBool,
}

/// How often a region was written, and emptied.
#[derive(Debug, Default)]
struct Region {
    begun: AtomicU64,
    ended: AtomicU64,
    emptied: AtomicU64,
    filled: AtomicU64,
}

/// One thread on one mount.
struct Worker<'a> {
    all: &'a AtOnce,
    number: usize,
    rng: fastrand::Rng,
    open: Open,
    last: String,
}

struct Open {
    cached: OwnedFd,
    direct: OwnedFd,
    append: OwnedFd,
    map: Mapping,
    /// What is copied from: nobody else knows it.
    source: OwnedFd,
}

impl AtOnce {
    pub fn new(arena: Arena, seed: u64) -> Self {
        let regions = (0..REGIONS).map(|_| Region::default()).collect();
        let all = Self { arena, regions, seed, steps: AtomicU64::new(0), has_failed: AtomicBool::new(false) };
        let file = all.open(0, NAME, OFlags::CREATE);
        for number in 0..REGIONS {
            let bytes = contents(number, 0);
            assert_eq!(pwrite(&file, &bytes, place_of(number).start as u64), Ok(bytes.len()));
        }
        all
    }

    fn open(&self, site: usize, name: &str, flags: OFlags) -> OwnedFd {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | flags;
        fs::openat(self.arena.root(site), name, flags, Mode::from_raw_mode(0o644)).expect("opened")
    }

    /// Runs to the end or to the first byte that nobody can have written. Returns the steps done.
    pub fn run(&self, end: End) -> Result<u64, String> {
        let faults = std::thread::scope(|scope| {
            let start = |number| scope.spawn(move || Worker::new(self, number).run(end));
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().expect("no panic").err())
                .collect::<Vec<_>>()
        });
        match faults.first() {
            Some(fault) => Err(fault.clone()),
            None => Ok(self.steps.load(Ordering::SeqCst)),
        }
    }
}

/// Where a region is.
fn place_of(region: usize) -> Range<usize> {
    match region.checked_sub(MIXED) {
        None => region * MIXED_LEN..(region + 1) * MIXED_LEN,
        Some(apart) => APART + apart * APART_LEN..APART + (apart + 1) * APART_LEN,
    }
}

/// The region that a byte is of, if it is of one.
fn region_at(at: usize) -> Option<usize> {
    match at.checked_sub(APART) {
        None => (at < MIXED * MIXED_LEN).then_some(at / MIXED_LEN),
        Some(apart) => Some(MIXED + apart / APART_LEN),
    }
}

/// What a region holds after it was written for the `writing`th time.
fn contents(region: usize, writing: u64) -> Vec<u8> {
    (0..place_of(region).len()).map(|at| mark(region, at).wrapping_add(writing as u8)).collect()
}

fn mark(region: usize, at: usize) -> u8 {
    (7 * at + 13 * region) as u8
}

impl<'a> Worker<'a> {
    fn new(all: &'a AtOnce, number: usize) -> Self {
        let site = number % SITES;
        let open = Open::new(all, site, number);
        Self {
            all,
            number,
            rng: fastrand::Rng::with_seed(all.seed ^ number as u64),
            open,
            last: String::new(),
        }
    }

    fn run(mut self, end: End) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let step = self.all.steps.fetch_add(1, Ordering::SeqCst);
            let is_over = match end {
                End::Steps(steps) => step >= steps,
                End::Time(time) => began.elapsed() >= time,
            };
            if is_over || self.all.has_failed.load(Ordering::SeqCst) {
                self.all.steps.fetch_sub(1, Ordering::SeqCst);
                return Ok(());
            }
            if let Err(what) = self.one_step() {
                self.all.has_failed.store(true, Ordering::SeqCst);
                let mount = NAMES[self.number % SITES];
                return Err(format!("step {step}: thread {} on {mount}, {}: {what}", self.number, self.last));
            }
        }
    }

    fn one_step(&mut self) -> Result<(), String> {
        match self.rng.u32(0..100) {
            0..22 => self.read(false),
            22..32 => self.read(true),
            32..48 => self.load(),
            48..62 => self.write(false),
            62..67 => self.write(true),
            67..80 => self.store(),
            80..86 => self.copy(),
            86..90 => self.empty(),
            90..92 => self.extend(),
            92..94 => self.cut(),
            94..96 => self.named("fsync", |open| fs::fsync(&open.cached)),
            96..97 => self.named("msync", |open| open.map.sync()),
            97..98 => self.named("close and open", |_| Ok(())).map(|()| {
                self.open = Open::new(self.all, self.number % SITES, self.number);
            }),
            _ => self.stat(),
        }
    }

    fn named(&mut self, what: &str, call: impl FnOnce(&Open) -> Result<(), Errno>) -> Result<(), String> {
        what.clone_into(&mut self.last);
        call(&self.open).map_err(|error| error.to_string())
    }

    /// A range of what has regions.
    fn range(&mut self, len_max: usize) -> Range<usize> {
        let start = self.rng.usize(0..FILE_LEN);
        start..(start + self.rng.usize(1..=len_max)).min(FILE_LEN)
    }

    fn read(&mut self, direct: bool) -> Result<(), String> {
        let range = self.range(READ_MAX);
        self.last = format!("read {range:?}{}", if direct { ", direct" } else { "" });
        let known = self.known();
        let mut bytes = vec![0; range.len()];
        let file = if direct { &self.open.direct } else { &self.open.cached };
        let len = pread(file, &mut bytes[..], range.start as u64).map_err(|error| error.to_string())?;
        if len < range.len() {
            return Err(format!("{len} bytes were read"));
        }
        self.judge(&range, &known, &bytes)
    }

    fn load(&mut self) -> Result<(), String> {
        let range = self.range(TRANSFER_MAX.min(READ_MAX));
        self.last = format!("load {range:?}");
        let known = self.known();
        let bytes = self.open.map.load(range.start, range.len()).map_err(|error| error.to_string())?;
        self.judge(&(range.start..range.start + bytes.len()), &known, &bytes)
    }

    /// How often each region has been written and filled, for certain.
    fn known(&self) -> Vec<(u64, u64)> {
        let load = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        self.all.regions.iter().map(|region| (load(&region.ended), load(&region.filled))).collect()
    }

    fn judge(&self, range: &Range<usize>, known: &[(u64, u64)], bytes: &[u8]) -> Result<(), String> {
        for (at, byte) in range.clone().zip(bytes) {
            let Some(number) = region_at(at) else { continue };
            let at_in_it = at - place_of(number).start;
            let region = &self.all.regions[number];
            let (ended, filled) = known[number];
            let begun = region.begun.load(Ordering::SeqCst);
            let writing = byte.wrapping_sub(mark(number, at_in_it));
            let is_known = u64::from(writing.wrapping_sub(ended as u8)) <= begun - ended;
            let may_be_empty = *byte == 0 && region.emptied.load(Ordering::SeqCst) > filled;
            if !is_known && !may_be_empty {
                return Err(format!(
                    "byte {at}, {at_in_it} of region {number}, is {byte}: of writing {writing} (modulo 256), and {ended} had ended, {begun} begun"
                ));
            }
        }
        Ok(())
    }

    /// Writes one of this thread's own regions by `write`, which gets its offset and bytes.
    fn renew(
        &mut self,
        what: &str,
        number: usize,
        write: impl FnOnce(&Open, usize, &[u8]) -> Result<usize, Errno>,
    ) -> Result<(), String> {
        let region = &self.all.regions[number];
        let writing = region.begun.fetch_add(1, Ordering::SeqCst) + 1;
        self.last = format!("{what} region {number}, for the {writing}th time");
        let bytes = contents(number, writing);
        let len = write(&self.open, place_of(number).start, &bytes).map_err(|error| error.to_string())?;
        if len < bytes.len() {
            return Err(format!("{len} bytes were written"));
        }
        region.ended.store(writing, Ordering::SeqCst);
        Ok(())
    }

    /// A region of this thread's own that shares pages with others.
    fn own_mixed(&mut self) -> usize {
        self.rng.usize(0..MIXED / THREADS) * THREADS + self.number
    }

    fn write(&mut self, direct: bool) -> Result<(), String> {
        if direct {
            let number = MIXED + self.number;
            return self
                .renew("write, direct,", number, |open, at, bytes| pwrite(&open.direct, bytes, at as u64));
        }
        let number = self.own_mixed();
        self.renew("write", number, |open, at, bytes| pwrite(&open.cached, bytes, at as u64))
    }

    fn store(&mut self) -> Result<(), String> {
        let number = self.own_mixed();
        self.renew("store to", number, |open, at, bytes| open.map.store(at, bytes))
    }

    fn copy(&mut self) -> Result<(), String> {
        // Whole pages are shared, others copied.
        let number = if self.rng.bool() { self.own_mixed() } else { MIXED + self.number };
        let is_synced = self.rng.bool();
        self.renew("copy to", number, |open, offset, bytes| {
            pwrite(&open.source, bytes, 0)?;
            if is_synced {
                fs::fsync(&open.source)?;
            }
            let (mut from, mut to, mut done) = (0, offset as u64, 0);
            while done < bytes.len() {
                let left = bytes.len() - done;
                match fs::copy_file_range(&open.source, Some(&mut from), &open.cached, Some(&mut to), left)? {
                    0 => break,
                    copied => done += copied,
                }
            }
            Ok(done)
        })
    }

    /// Makes a region of this thread's own a hole, or zeros, and writes it again.
    fn empty(&mut self) -> Result<(), String> {
        let number = self.own_mixed();
        let region = &self.all.regions[number];
        let emptied = region.emptied.fetch_add(1, Ordering::SeqCst) + 1;
        let kind = if self.rng.bool() { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        self.last = format!("{kind:?} region {number}");
        let (offset, len) = (place_of(number).start as u64, MIXED_LEN as u64);
        fs::fallocate(&self.open.cached, kind | FallocateFlags::KEEP_SIZE, offset, len)
            .map_err(|error| error.to_string())?;
        let writing = region.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let written = pwrite(&self.open.cached, &contents(number, writing), offset);
        if written != Ok(MIXED_LEN) {
            return Err(format!("{written:?} bytes were written"));
        }
        region.ended.store(writing, Ordering::SeqCst);
        region.filled.store(emptied, Ordering::SeqCst);
        Ok(())
    }

    fn extend(&mut self) -> Result<(), String> {
        let len = self.rng.usize(1..10_000);
        self.last = format!("append {len}");
        match rustix::io::write(&self.open.append, &vec![b'a'; len]) {
            Ok(written) if written == len => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// Cuts what is behind the regions.
    fn cut(&mut self) -> Result<(), String> {
        let size = (FILE_LEN + self.rng.usize(0..20_000)) as u64;
        self.last = format!("ftruncate to {size}");
        fs::ftruncate(&self.open.cached, size).map_err(|error| error.to_string())
    }

    fn stat(&mut self) -> Result<(), String> {
        "fstat".clone_into(&mut self.last);
        let size = fs::fstat(&self.open.cached).map_err(|error| error.to_string())?.st_size;
        if size < FILE_LEN as i64 { Err(format!("the size is {size}")) } else { Ok(()) }
    }
}

impl Open {
    fn new(all: &AtOnce, site: usize, number: usize) -> Self {
        let cached = all.open(site, NAME, OFlags::empty());
        let map = Mapping::new(cached.as_fd(), FILE_LEN, true).expect("mapped");
        Self {
            direct: all.open(site, NAME, OFlags::DIRECT),
            append: all.open(site, NAME, OFlags::APPEND),
            source: all.open(site, &format!("source-{number}"), OFlags::CREATE),
            cached,
            map,
        }
    }
}

const NAME: &str = "file";
/// Two on each mount.
const THREADS: usize = 2 * SITES;
const REGIONS: usize = MIXED + THREADS;
/// Regions that share pages.
const MIXED: usize = 16 * THREADS;
/// Prime, so that regions begin and end anywhere in pages.
const MIXED_LEN: usize = 2_999;
/// Where those begin that are written around the page cache, one for each thread.
const APART: usize = (MIXED * MIXED_LEN).next_multiple_of(4096);
const APART_LEN: usize = 8192;
const FILE_LEN: usize = APART + THREADS * APART_LEN;
const READ_MAX: usize = 40_000;
