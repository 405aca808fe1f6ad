//! What node and guard share: a header and a table of inode numbers, in memory that belongs to both.
//!
//! The node writes, but for [`Header::fired`]; each word is an atomic of its own. The file is as long as it can get from
//! the beginning: memory is taken where it is touched.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MlockFlags, ProtFlags, mlock_with, mmap, munmap};

/// Words at the beginning. Times are microseconds of `CLOCK_BOOTTIME`.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// When the lease ends; [`NEVER`] before it has begun, and while the node has nothing in the kernel's caches.
    pub until: AtomicU64,
    /// Length of the lease.
    pub length: AtomicU64,
    /// Slots that have ever been used.
    pub slots: AtomicU64,
    /// Slots in use.
    pub used: AtomicU64,
    /// Inodes for which there was no slot.
    pub unlisted: AtomicU64,
    /// How often the guard has fired. The guard's.
    pub fired: AtomicU64,
    /// How many of these the node has taken note of.
    pub acknowledged: AtomicU64,
    /// Not 0 once there is nothing more to guard.
    pub ended: AtomicU64,
}

/// The memory, mapped.
#[derive(Debug)]
pub struct Shared {
    base: *mut std::ffi::c_void,
    file: OwnedFd,
}

// SAFETY: what it points to is atomics only.
#[expect(unsafe_code, reason = "a mapping is shared by its nature")]
unsafe impl Send for Shared {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a mapping is shared by its nature")]
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes it, all zero but for the end of the lease, and keeps it in memory if this process may.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("holdfast-guard", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, LEN as u64)?;
        let shared = Self::map(file)?;
        shared.header().until.store(NEVER, std::sync::atomic::Ordering::Relaxed);
        shared.lock();
        Ok(shared)
    }

    /// Maps what another process made.
    #[expect(unsafe_code, reason = "there is no safe way to map a file")]
    pub fn map(file: OwnedFd) -> io::Result<Self> {
        // SAFETY: a new mapping where the kernel likes.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                LEN,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )
        }?;
        Ok(Self { base, file })
    }

    /// The file behind it.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    #[expect(unsafe_code, reason = "a view of a mapping")]
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping begins on a page, is longer than the header and lives as long as `self`; both processes use it
        // by atomics only, for which any bytes are valid.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// All slots there can be: an inode number each, 0 for none.
    #[expect(unsafe_code, reason = "a view of a mapping")]
    pub fn slots(&self) -> &[AtomicU64] {
        // SAFETY: as for the header; the mapping holds exactly this many words after it.
        unsafe { std::slice::from_raw_parts(self.base.cast::<AtomicU64>().add(HEADER_WORDS), SLOTS_MAX) }
    }

    /// What is touched is not swapped out from then on. Only root may lock this much.
    #[expect(unsafe_code, reason = "rustix takes an address")]
    fn lock(&self) {
        // SAFETY: the range is the mapping.
        if let Err(error) = unsafe { mlock_with(self.base, LEN, MlockFlags::ONFAULT) } {
            log::debug!("the guard's table may be swapped out: {error}");
        }
    }
}

impl Drop for Shared {
    #[expect(unsafe_code, reason = "there is no safe way to unmap")]
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, and views of it borrow `self`.
        _ = unsafe { munmap(self.base, LEN) };
    }
}

/// No lease yet.
pub const NEVER: u64 = u64::MAX;
/// A page, so that slots begin at the beginning of one.
const HEADER_WORDS: usize = 512;
/// More inodes than a node has memory for: each costs it about a hundred bytes.
pub const SLOTS_MAX: usize = 1 << 28;
const LEN: usize = (HEADER_WORDS + SLOTS_MAX) * size_of::<u64>();
const _: () = assert!(size_of::<Header>() <= HEADER_WORDS * size_of::<u64>());
