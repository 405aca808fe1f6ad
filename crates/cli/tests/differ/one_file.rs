//! One file, read and written in every way from two mounts, against its bytes.

use std::collections::VecDeque;
use std::time::Instant;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FallocateFlags, Mode, OFlags};
use rustix::io::{pread, pwrite};

use crate::arena::{Arena, NAMES, SITES};
use crate::differ::End;
use crate::look::compare_bytes;
use crate::op::pattern;
use crate::raw::{Mapping, TRANSFER_MAX, truncate};

/// The file and what it has to be.
pub struct OneFile {
    /// Descriptors and mapping of each mount, gone before it is.
    open: Vec<Option<Open>>,
    arena: Arena,
    rng: fastrand::Rng,
    bytes: Vec<u8>,
    /// The mount that moved the end last: the other's kernel has to look before its mapping reaches there.
    moved_by: Option<usize>,
    log: VecDeque<String>,
    step: u64,
}

/// Everything that is open on one mount.
struct Open {
    cached: OwnedFd,
    append: OwnedFd,
    direct: OwnedFd,
    map: Option<Mapping>,
}

impl OneFile {
    pub fn new(arena: Arena, seed: u64) -> Self {
        let mut file = Self {
            open: vec![None, None],
            arena,
            rng: fastrand::Rng::with_seed(seed),
            bytes: Vec::new(),
            moved_by: None,
            log: VecDeque::new(),
            step: 0,
        };
        (0..SITES).for_each(|site| file.open(site));
        file
    }

    fn open(&mut self, site: usize) {
        let open = |flags| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | flags;
            fs::openat(self.arena.root(site), NAME, flags, Mode::from_raw_mode(0o644)).expect("opened")
        };
        let (append, direct) = (open(OFlags::APPEND), open(OFlags::DIRECT));
        self.open[site] = Some(Open { cached: open(OFlags::empty()), append, direct, map: None });
    }

    /// Runs to the end or to the first byte that is not what it should be. Returns the steps done.
    pub fn run(&mut self, end: End) -> Result<u64, String> {
        let began = Instant::now();
        let is_over = |step: u64| match end {
            End::Steps(steps) => step >= steps,
            End::Time(time) => began.elapsed() >= time,
        };
        while !is_over(self.step) {
            self.step += 1;
            let site = self.rng.usize(0..SITES);
            let at = Instant::now();
            self.one_step(site).map_err(|what| self.tell(&what))?;
            if at.elapsed() > SLOW {
                println!("slow, {:?}: {}", at.elapsed(), self.log.back().map_or("", String::as_str));
            }
        }
        self.step += 1;
        for site in 0..SITES {
            self.check_whole(site).map_err(|what| self.tell(&what))?;
            self.remount(site);
        }
        for site in 0..SITES {
            self.check_whole(site).map_err(|what| self.tell(&format!("after a remount: {what}")))?;
        }
        Ok(self.step - 1)
    }

    fn one_step(&mut self, site: usize) -> Result<(), String> {
        match self.rng.u32(0..1_000) {
            0..230 => self.read(site),
            230..470 => self.write(site),
            470..530 => self.append(site),
            530..600 => self.truncate(site),
            600..720 => self.load(site),
            720..800 => self.store(site),
            800..840 => self.copy(site),
            840..910 => self.allocate(site),
            910..940 => self.sync(site),
            940..960 => self.seek(site),
            960..975 => self.reopen(site),
            975..978 => {
                self.remount(site);
                Ok(())
            }
            978..988 => {
                std::thread::sleep(std::time::Duration::from_millis(self.rng.u64(1..150)));
                Ok(())
            }
            _ => (0..SITES).try_for_each(|site| self.check_whole(site)),
        }
    }

    /// A range, mostly within the file.
    fn range(&mut self) -> (usize, usize) {
        let size = self.bytes.len();
        let offset = match self.rng.u32(0..8) {
            0 => 0,
            1 => size,
            2 => (4096 * self.rng.usize(0..40) + self.rng.usize(0..5)).saturating_sub(2),
            3 => self.rng.usize(0..SIZE_MAX),
            _ => self.rng.usize(0..=size),
        };
        let len = match self.rng.u32(0..8) {
            0..3 => self.rng.usize(1..200),
            3..5 => self.rng.usize(1..10_000),
            5 => 4096 * self.rng.usize(1..8),
            6 => self.rng.usize(1..70_000),
            _ => self.rng.usize(1..200_000),
        };
        (offset, len.min(SIZE_MAX.saturating_sub(offset)).max(1))
    }

    /// What is to be read there.
    fn expected(&self, offset: usize, len: usize) -> &[u8] {
        let size = self.bytes.len();
        &self.bytes[offset.min(size)..(offset + len).min(size)]
    }

    fn note(&mut self, site: usize, what: String) {
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(format!("{:>7} {} {what}, size {}", self.step, NAMES[site], self.bytes.len()));
    }

    fn at(&self, site: usize) -> &Open {
        self.open[site].as_ref().expect("open")
    }

    fn resize(&mut self, site: usize, size: usize) {
        if size != self.bytes.len() {
            self.bytes.resize(size, 0);
            self.moved_by = Some(site);
        }
    }

    fn place(&mut self, site: usize, offset: usize, bytes: &[u8]) {
        if self.bytes.len() < offset + bytes.len() {
            self.resize(site, offset + bytes.len());
        }
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&mut self, site: usize) -> Result<(), String> {
        let (offset, len) = self.range();
        let is_direct = self.rng.u32(0..6) == 0;
        self.note(site, format!("read {offset} + {len}{}", if is_direct { ", direct" } else { "" }));
        let mut bytes = vec![0; len];
        let fd = if is_direct { &self.at(site).direct } else { &self.at(site).cached };
        let count = pread(fd, &mut bytes[..], offset as u64).map_err(|error| format!("read: {error}"))?;
        compare_bytes(&bytes[..count], self.expected(offset, len))
    }

    fn write(&mut self, site: usize) -> Result<(), String> {
        let (offset, len) = self.range();
        let is_direct = self.rng.u32(0..6) == 0;
        self.note(site, format!("write {offset} + {len}{}", if is_direct { ", direct" } else { "" }));
        let bytes = pattern(self.rng.u8(..), len);
        let fd = if is_direct { &self.at(site).direct } else { &self.at(site).cached };
        let count = pwrite(fd, &bytes, offset as u64).map_err(|error| format!("write: {error}"))?;
        self.place(site, offset, &bytes[..count]);
        if count == len { Ok(()) } else { Err(format!("{count} of {len} bytes were written")) }
    }

    fn append(&mut self, site: usize) -> Result<(), String> {
        let len = self.rng.usize(1..5_000);
        if self.bytes.len() + len > SIZE_MAX {
            return Ok(());
        }
        self.note(site, format!("append {len}"));
        let bytes = pattern(self.rng.u8(..), len);
        let count =
            rustix::io::write(&self.at(site).append, &bytes).map_err(|error| format!("append: {error}"))?;
        self.place(site, self.bytes.len(), &bytes[..count]);
        // Not even this kernel knows: it counted from the end that it knew.
        self.moved_by = Some(SITES);
        if count == len { Ok(()) } else { Err(format!("{count} of {len} bytes were appended")) }
    }

    fn truncate(&mut self, site: usize) -> Result<(), String> {
        let size = match self.rng.u32(0..6) {
            0 => 0,
            1 => self.rng.usize(0..5000),
            2 => 4096 * self.rng.usize(0..80),
            _ => self.rng.usize(0..SIZE_MAX),
        };
        self.note(site, format!("truncate {size}"));
        let done = if self.rng.bool() {
            truncate(&self.arena.path(site).join(NAME), size as i64)
        } else {
            fs::ftruncate(&self.at(site).cached, size as u64)
        };
        self.resize(site, size);
        done.map_err(|error| format!("truncate: {error}"))
    }

    /// The mapping of a mount, which has seen the end of the file.
    fn map(&mut self, site: usize) -> &Mapping {
        let has_to_look = self.moved_by.is_some_and(|by| by != site);
        let open = self.open[site].as_mut().expect("open");
        let map = open.map.get_or_insert_with(|| {
            Mapping::new(open.cached.as_fd(), SIZE_MAX.next_multiple_of(4096), true).expect("mapped")
        });
        if has_to_look {
            // A page fault asks nobody for the end (docs/semantics.md, "`mmap`").
            map.look();
        }
        map
    }

    /// A range of the file for a mapping.
    fn mapped_range(&mut self) -> Option<(usize, usize)> {
        let (offset, len) = self.range();
        let rest = self.bytes.len().checked_sub(offset).filter(|rest| *rest > 0)?;
        Some((offset, len.min(rest).min(TRANSFER_MAX)))
    }

    fn load(&mut self, site: usize) -> Result<(), String> {
        let Some((offset, len)) = self.mapped_range() else { return Ok(()) };
        self.note(site, format!("load {offset} + {len}"));
        let loaded = self.map(site).load(offset, len).map_err(|error| format!("load: {error}"))?;
        compare_bytes(&loaded, self.expected(offset, len))
    }

    fn store(&mut self, site: usize) -> Result<(), String> {
        let Some((offset, len)) = self.mapped_range() else { return Ok(()) };
        self.note(site, format!("store {offset} + {len}"));
        let bytes = pattern(self.rng.u8(..), len);
        let count = self.map(site).store(offset, &bytes).map_err(|error| format!("store: {error}"))?;
        self.place(site, offset, &bytes[..count]);
        if count == len { Ok(()) } else { Err(format!("{count} of {len} bytes were stored")) }
    }

    fn allocate(&mut self, site: usize) -> Result<(), String> {
        let (offset, len) = self.range();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let zero = FallocateFlags::ZERO_RANGE;
        let modes = [
            FallocateFlags::empty(),
            FallocateFlags::KEEP_SIZE,
            punch,
            zero,
            zero | FallocateFlags::KEEP_SIZE,
        ];
        let mode = modes[self.rng.usize(0..modes.len())];
        self.note(site, format!("fallocate {offset} + {len}, {mode:?}"));
        let done = fs::fallocate(&self.at(site).cached, mode, offset as u64, len as u64);
        let size = self.bytes.len();
        if mode.intersects(punch - FallocateFlags::KEEP_SIZE | zero) {
            let end = (offset + len).min(size);
            self.bytes[offset.min(end)..end].fill(0);
        }
        if !mode.contains(FallocateFlags::KEEP_SIZE) {
            self.resize(site, size.max(offset + len));
        }
        done.map_err(|error| format!("fallocate: {error}"))
    }

    /// Copies a part of the file to another place in it; half of the time what it copies is stored before.
    fn copy(&mut self, site: usize) -> Result<(), String> {
        let ((from, len), (to, _)) = (self.range(), self.range());
        let len = len.min(from.abs_diff(to)).min(SIZE_MAX.saturating_sub(to));
        let is_synced = self.rng.bool();
        let synced = if is_synced { ", synced" } else { "" };
        self.note(site, format!("copy {from} + {len} to {to}{synced}"));
        let open = self.at(site);
        // The kernel compares with the end that it knows, which may be from before another node cut the file and this one wrote to it again
        // (docs/semantics.md, "`copy_file_range`").
        fs::fstat(&open.cached).map_err(|error| format!("fstat: {error}"))?;
        if is_synced {
            fs::fsync(&open.cached).map_err(|error| format!("fsync: {error}"))?;
        }
        let (mut source, mut target) = (from as u64, to as u64);
        let copied =
            fs::copy_file_range(&open.cached, Some(&mut source), &open.cached, Some(&mut target), len)
                .map_err(|error| format!("copy: {error}"))?;
        let expected = self.expected(from, copied).to_vec();
        if expected.len() < copied || copied == 0 && len > 0 && from < self.bytes.len() {
            return Err(format!("{copied} bytes were copied"));
        }
        if copied > 0 {
            self.place(site, to, &expected);
        }
        Ok(())
    }

    fn sync(&mut self, site: usize) -> Result<(), String> {
        self.note(site, "sync".to_owned());
        let open = self.at(site);
        let done = match (self.step % 3, &open.map) {
            (0, Some(map)) => map.sync(),
            (1, _) => fs::fdatasync(&open.cached),
            _ => fs::fsync(&open.cached),
        };
        done.map_err(|error| format!("sync: {error}"))
    }

    /// What is called a hole has to read as one, and sizes have to be right.
    fn seek(&mut self, site: usize) -> Result<(), String> {
        let (offset, _) = self.range();
        self.note(site, format!("seek {offset}"));
        let open = self.at(site);
        if let Some(map) = &open.map {
            // The kernel asks without writing back first (docs/semantics.md, "`O_TMPFILE`").
            map.sync().map_err(|error| format!("msync: {error}"))?;
        }
        let size = self.bytes.len();
        let data = fs::seek(&open.direct, fs::SeekFrom::Data(offset as u64));
        let end = data.map_or(size, |data| data as usize);
        let is_skipped =
            self.bytes[offset.min(size)..end.clamp(offset.min(size), size)].iter().any(|byte| *byte != 0);
        if is_skipped || end > size || (data.is_ok() && offset >= size) {
            return Err(format!("SEEK_DATA from {offset} brings {data:?}"));
        }
        Ok(())
    }

    fn reopen(&mut self, site: usize) -> Result<(), String> {
        self.note(site, "closed and opened".to_owned());
        self.open[site] = None;
        self.open(site);
        Ok(())
    }

    fn remount(&mut self, site: usize) {
        self.note(site, "mounted again".to_owned());
        self.open[site] = None;
        self.arena.remount(site);
        self.open(site);
    }

    fn check_whole(&mut self, site: usize) -> Result<(), String> {
        self.note(site, "read whole".to_owned());
        let size = fs::fstat(&self.at(site).cached).map_err(|error| format!("fstat: {error}"))?.st_size;
        if size as usize != self.bytes.len() {
            return Err(format!("size {size}, but it is {}", self.bytes.len()));
        }
        let bytes =
            std::fs::read(self.arena.path(site).join(NAME)).map_err(|error| format!("read: {error}"))?;
        compare_bytes(&bytes, &self.bytes).map_err(|what| format!("on {}: {what}", NAMES[site]))
    }

    fn tell(&self, what: &str) -> String {
        let log: Vec<&str> = self.log.iter().map(String::as_str).collect();
        format!("step {}: {what} (\"locally\": as written)\nlast steps:\n{}\n", self.step, log.join("\n"))
    }
}

const NAME: &str = "one-file";
const SIZE_MAX: usize = 600_000;
const LOG_MAX: usize = 40;
/// A step that takes longer is told.
const SLOW: std::time::Duration = std::time::Duration::from_secs(3);
