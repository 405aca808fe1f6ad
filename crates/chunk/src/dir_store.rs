//! Segments as files of one directory: `<16 hex digits>.seg`.
//!
//! A file is reserved to full length without its size showing, so that a listing tells what was written.
//! The kernel reports a failed write-back once, to whoever syncs a descriptor that was open then. Hence:
//! a descriptor with unsynced writes is not closed; syncs of one segment go one after the other; and a sync
//! that failed is remembered, so that a second caller is not told that all is well.
//! Source: `linux:Documentation/filesystems/vfs.rst`, "Handling errors during writeback".

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use types::SegmentId;

use crate::store::{Action, SegmentStore, Space};
use crate::{ChunkError, Damage, SEGMENT_LEN};

/// Keeps segments as files of a directory on a local file system.
///
/// Lock order: the open files, then nothing; the sync lock of a file is taken without it.
pub struct DirStore {
    dir: File,
    /// Bytes reserved for a new segment.
    reserve_bytes: u64,
    open: Mutex<OpenFiles>,
}

/// A segment file in use.
struct Handle {
    file: File,
    /// Writes ended, and how many of them the last good sync covered.
    writes: AtomicU64,
    synced_writes: AtomicU64,
    is_poisoned: AtomicBool,
    /// Held during a sync.
    sync: Mutex<()>,
}

/// Descriptors by segment, the one used longest ago closed first.
#[derive(Default)]
struct OpenFiles {
    by_segment: HashMap<SegmentId, (u64, Arc<Handle>)>,
    by_use: BTreeMap<u64, SegmentId>,
    uses: u64,
}

impl DirStore {
    /// Opens the directory `path`, making it if need be, with segments of the usual length.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, ChunkError> {
        Self::open_with_reserve(path, SEGMENT_LEN)
    }

    /// Opens the directory `path` and reserves `reserve_bytes` for each new segment; 0 reserves nothing.
    pub fn open_with_reserve(path: impl Into<PathBuf>, reserve_bytes: u64) -> Result<Self, ChunkError> {
        let path = path.into();
        let dir =
            open_dir(&path).map_err(|source| ChunkError::Directory { action: Action::Create, source })?;
        Ok(Self { dir, reserve_bytes, open: Mutex::default() })
    }

    fn handle(&self, segment: SegmentId, action: Action) -> Result<Arc<Handle>, ChunkError> {
        if let Some(handle) = self.open.lock().find(segment) {
            return Ok(handle);
        }
        let file = self
            .open_file(segment, OFlags::empty(), Mode::empty())
            .map_err(|errno| from_errno(errno, action, segment))?;
        Ok(self.open.lock().insert(segment, Handle::new(file)))
    }

    /// Opens a segment's file. Where no descriptor is left others are closed for it, one by one.
    fn open_file(&self, segment: SegmentId, flags: OFlags, mode: Mode) -> rustix::io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | flags;
        loop {
            match rustix::fs::openat(&self.dir, file_name(segment), flags, mode) {
                Err(Errno::MFILE | Errno::NFILE) if self.open.lock().close_oldest() => {}
                opened => return opened.map(File::from),
            }
        }
    }

    /// Reserves room. A store that cannot, or has none left in one piece, goes on without.
    fn reserve(&self, file: &File) {
        if self.reserve_bytes == 0 {
            return;
        }
        if rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, self.reserve_bytes).is_err() {
            // What it got before the disk was full is given back: other files need it more.
            let _ = file.set_len(0);
        }
    }

    fn remove_file(&self, segment: SegmentId) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&self.dir, file_name(segment), AtFlags::empty())
    }
}

impl SegmentStore for DirStore {
    fn create(&self, segment: SegmentId) -> Result<(), ChunkError> {
        let (flags, mode) = (OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR);
        let file = self.open_file(segment, flags, mode).map_err(|errno| match errno {
            Errno::EXIST => ChunkError::Exists { segment },
            other => from_errno(other, Action::Create, segment),
        })?;
        self.reserve(&file);
        if let Err(source) = self.dir.sync_all() {
            let _ = self.remove_file(segment);
            return Err(from_io(source, Action::Create, segment));
        }
        self.open.lock().insert(segment, Handle::new(file));
        Ok(())
    }

    fn write_at(&self, segment: SegmentId, offset: u64, data: &[IoSlice<'_>]) -> Result<(), ChunkError> {
        let handle = self.handle(segment, Action::Write)?;
        if handle.is_poisoned.load(Ordering::SeqCst) {
            return Err(ChunkError::Poisoned { action: Action::Write, segment });
        }
        let result = write_all(&handle.file, offset, data);
        // Counted after the write, even a failed one: a sync that began before this does not count it as
        // done. Until here the handle stays open because it is referenced.
        handle.writes.fetch_add(1, Ordering::SeqCst);
        result.map_err(|source| from_io(source, Action::Write, segment))
    }

    fn read_at(
        &self,
        segment: SegmentId,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<(), ChunkError> {
        let handle = self.handle(segment, Action::Read)?;
        match read_all(&handle.file, offset, parts) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ChunkError::Damaged { segment, offset, what: Damage::EndsEarly })
            }
            Err(source) => Err(from_io(source, Action::Read, segment)),
        }
    }

    fn sync(&self, segment: SegmentId) -> Result<(), ChunkError> {
        let handle = self.handle(segment, Action::Sync)?;
        let _one_at_a_time = handle.sync.lock();
        if handle.is_poisoned.load(Ordering::SeqCst) {
            return Err(ChunkError::Poisoned { action: Action::Sync, segment });
        }
        let writes = handle.writes.load(Ordering::SeqCst);
        if let Err(source) = handle.file.sync_data() {
            handle.is_poisoned.store(true, Ordering::SeqCst);
            return Err(from_io(source, Action::Sync, segment));
        }
        handle.synced_writes.store(writes, Ordering::SeqCst);
        Ok(())
    }

    fn seal(&self, segment: SegmentId, len: u64) -> Result<(), ChunkError> {
        let handle = self.handle(segment, Action::Seal)?;
        let has_len = handle.file.metadata().map_err(|source| from_io(source, Action::Seal, segment))?.len();
        if has_len < len {
            return Err(ChunkError::Damaged { segment, offset: has_len, what: Damage::EndsEarly });
        }
        // Gives back the reserved blocks even when the size does not change.
        handle.file.set_len(len).map_err(|source| from_io(source, Action::Seal, segment))
    }

    fn trim(&self, segment: SegmentId) -> Result<u64, ChunkError> {
        let failed = |errno: Errno| from_errno(errno, Action::Seal, segment);
        // Looked at by name: most have nothing to give back, and need no descriptor.
        let name = file_name(segment);
        let stat = rustix::fs::statat(&self.dir, &name, AtFlags::empty()).map_err(failed)?;
        let reserved = reserved_bytes(&stat);
        if reserved == 0 {
            return Ok(0);
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, name, flags, Mode::empty()).map_err(failed)?;
        rustix::fs::ftruncate(&file, stat.st_size as u64).map_err(failed)?;
        let left = reserved_bytes(&rustix::fs::fstat(&file).map_err(failed)?);
        Ok(reserved.saturating_sub(left))
    }

    fn delete(&self, segment: SegmentId) -> Result<(), ChunkError> {
        self.open.lock().remove(segment);
        self.remove_file(segment).map_err(|errno| from_errno(errno, Action::Delete, segment))
    }

    fn forget(&self, segment: SegmentId) {
        self.open.lock().remove(segment);
    }

    fn segment_len(&self, segment: SegmentId) -> Result<u64, ChunkError> {
        let handle = self.handle(segment, Action::List)?;
        Ok(handle.file.metadata().map_err(|source| from_io(source, Action::List, segment))?.len())
    }

    fn list(&self) -> Result<Vec<(SegmentId, u64)>, ChunkError> {
        let failed = |source| ChunkError::Directory { action: Action::List, source };
        let mut segments = Vec::new();
        // Wherever it was moved to.
        let entries = rustix::fs::Dir::read_from(&self.dir).map_err(|errno| failed(errno.into()))?;
        for entry in entries {
            let entry = entry.map_err(|errno| failed(errno.into()))?;
            let Some(segment) = entry.file_name().to_str().ok().and_then(segment_of) else { continue };
            match rustix::fs::statat(&self.dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                    segments.push((segment, stat.st_size as u64));
                }
                // Whatever it is, it holds nothing.
                Ok(_) => {}
                // Removed since the directory was read.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        segments.sort_unstable();
        Ok(segments)
    }

    fn space(&self) -> Result<Space, ChunkError> {
        let stat = rustix::fs::fstatvfs(&self.dir)
            .map_err(|errno| ChunkError::Directory { action: Action::List, source: errno.into() })?;
        // Where no files can be made there is no room, however many bytes are free. Some file systems count none.
        let has_files = stat.f_files == 0 || stat.f_favail >= FILES_LEFT;
        Ok(Space {
            free_bytes: if has_files { stat.f_bavail.saturating_mul(stat.f_frsize) } else { 0 },
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }
}

/// So many files below are left to the metadata, which are written anew in files of their own, and to sockets.
const FILES_LEFT: u64 = 64;

impl Handle {
    fn new(file: File) -> Self {
        Self {
            file,
            writes: AtomicU64::new(0),
            synced_writes: AtomicU64::new(0),
            is_poisoned: AtomicBool::new(false),
            sync: Mutex::new(()),
        }
    }

    /// Whether closing it loses nothing.
    fn may_close(&self) -> bool {
        let is_synced = self.writes.load(Ordering::SeqCst) == self.synced_writes.load(Ordering::SeqCst);
        is_synced && !self.is_poisoned.load(Ordering::SeqCst)
    }
}

impl OpenFiles {
    fn find(&mut self, segment: SegmentId) -> Option<Arc<Handle>> {
        let (used, handle) = self.by_segment.get_mut(&segment)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, segment);
        Some(Arc::clone(handle))
    }

    /// Keeps `handle`, or gives the one that another thread kept first.
    fn insert(&mut self, segment: SegmentId, handle: Handle) -> Arc<Handle> {
        if let Some(first) = self.find(segment) {
            return first;
        }
        if self.by_segment.len() >= OPEN_FILES_MAX {
            self.close_oldest();
        }
        let handle = Arc::new(handle);
        self.uses += 1;
        self.by_use.insert(self.uses, segment);
        self.by_segment.insert(segment, (self.uses, Arc::clone(&handle)));
        handle
    }

    fn remove(&mut self, segment: SegmentId) {
        if let Some((used, _)) = self.by_segment.remove(&segment) {
            self.by_use.remove(&used);
        }
    }

    /// Closes the file used longest ago of those that nobody uses now and that may be closed.
    ///
    /// Referenced ones are not closed, so that a writer's handle stays the one that gets synced. Returns whether there was one.
    fn close_oldest(&mut self) -> bool {
        let is_idle = |segment: &SegmentId| {
            let (_, handle) = &self.by_segment[segment];
            Arc::strong_count(handle) == 1 && handle.may_close()
        };
        let oldest = self.by_use.values().copied().find(is_idle);
        if let Some(segment) = oldest {
            self.remove(segment);
        }
        oldest.is_some()
    }
}

/// Opens a directory, made durable if it has to be created.
fn open_dir(path: &Path) -> io::Result<File> {
    match std::fs::create_dir(path) {
        Ok(()) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Writes all parts at `offset`, whatever the system takes at once.
fn write_all(file: &File, mut offset: u64, data: &[IoSlice<'_>]) -> io::Result<()> {
    let mut parts = data.to_vec();
    let mut parts = &mut parts[..];
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let count = parts.len().min(IOV_MAX);
        match rustix::io::pwritev(file, &parts[..count], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut parts, written);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Fills all parts from `offset` on. One call as a rule; part by part where that was not enough.
fn read_all(file: &File, mut offset: u64, parts: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    let count = parts.len().min(IOV_MAX);
    let mut done = match rustix::io::preadv(file, &mut parts[..count], offset) {
        Ok(read) => read,
        Err(Errno::INTR) => 0,
        Err(errno) => return Err(errno.into()),
    };
    for part in parts {
        let filled = done.min(part.len());
        done -= filled;
        if filled < part.len() {
            file.read_exact_at(&mut part[filled..], offset + filled as u64)?;
        }
        offset += part.len() as u64;
    }
    Ok(())
}

/// Bytes of blocks behind the end of a file.
fn reserved_bytes(stat: &rustix::fs::Stat) -> u64 {
    let block = (stat.st_blksize as u64).max(1);
    let needed = (stat.st_size as u64).next_multiple_of(block);
    // The map of a file takes blocks, too.
    (stat.st_blocks as u64 * 512).saturating_sub(needed + RESERVED_MIN)
}

/// Less is not looked at.
const RESERVED_MIN: u64 = 64 << 10;

fn file_name(segment: SegmentId) -> String {
    format!("{:016x}.seg", segment.0)
}

/// The segment whose file is called `name`.
fn segment_of(name: &str) -> Option<SegmentId> {
    let segment = SegmentId(u64::from_str_radix(name.strip_suffix(".seg")?, 16).ok()?);
    (file_name(segment) == name).then_some(segment)
}

fn from_errno(errno: Errno, action: Action, segment: SegmentId) -> ChunkError {
    from_io(errno.into(), action, segment)
}

fn from_io(source: io::Error, action: Action, segment: SegmentId) -> ChunkError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ChunkError::Full { action, segment },
        io::ErrorKind::NotFound => ChunkError::Missing { segment },
        _ => ChunkError::Io { action, segment, source },
    }
}

/// Descriptors kept open, beside those with unsynced writes.
const OPEN_FILES_MAX: usize = 256;

/// Parts that one system call takes (`UIO_MAXIOV`).
const IOV_MAX: usize = 1024;

#[cfg(test)]
mod tests;
