//! What has no safe form: mappings, and truncate(2) of a path.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use rustix::pipe::{PipeFlags, pipe_with};

/// A shared mapping of a file from its start.
///
/// Bytes are loaded and stored by the kernel on behalf of this thread, through a pipe: the page faults are those of any load
/// and store, and what would be SIGBUS is EFAULT.
#[derive(Debug)]
pub struct Mapping {
    address: usize,
    len: usize,
    pipe: (OwnedFd, OwnedFd),
}

impl Mapping {
    #[expect(unsafe_code, reason = "there is no safe way to map a file")]
    pub fn new(file: BorrowedFd<'_>, len: usize, is_writable: bool) -> Result<Self, Errno> {
        let write = if is_writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        let (protection, null) = (ProtFlags::READ | write, std::ptr::null_mut());
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // SAFETY: a new mapping where the kernel likes.
        let address = unsafe { rustix::mm::mmap(null, len, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Self { address: address as usize, len, pipe })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Has the kernel ask for the file's attributes, as any look at the file would.
    pub fn look(&self) {
        let path = format!(
            "/proc/self/map_files/{:x}-{:x}",
            self.address,
            self.address + self.len.next_multiple_of(4096)
        );
        rustix::fs::stat(path).expect("it is mapped");
    }

    /// Loads up to [`TRANSFER_MAX`] bytes.
    #[expect(unsafe_code, reason = "a view of mapped memory")]
    pub fn load(&self, offset: usize, len: usize) -> Result<Vec<u8>, Errno> {
        assert!(offset + len <= self.len && len <= TRANSFER_MAX, "{offset} + {len} of {}", self.len);
        // SAFETY: within the mapping, which lives as long as `self`; only the kernel looks at the bytes, and it takes a page
        // that is not there for EFAULT.
        let bytes = unsafe { std::slice::from_raw_parts((self.address + offset) as *const u8, len) };
        let count = rustix::io::write(&self.pipe.1, bytes)?;
        let mut loaded = vec![0; count];
        assert_eq!(rustix::io::read(&self.pipe.0, &mut loaded[..])?, count, "the pipe has it");
        Ok(loaded)
    }

    /// Stores up to [`TRANSFER_MAX`] bytes. The mapping must be writable.
    #[expect(unsafe_code, reason = "a view of mapped memory")]
    pub fn store(&self, offset: usize, bytes: &[u8]) -> Result<usize, Errno> {
        let len = bytes.len();
        assert!(offset + len <= self.len && len <= TRANSFER_MAX, "{offset} + {len} of {}", self.len);
        assert_eq!(rustix::io::write(&self.pipe.1, bytes)?, len, "the pipe has room");
        // SAFETY: as in `load`; the kernel stores through the address and nothing else of this process looks there.
        let place = unsafe { std::slice::from_raw_parts_mut((self.address + offset) as *mut u8, len) };
        let stored = rustix::io::read(&self.pipe.0, &mut *place);
        let mut rest = vec![0; len];
        while rustix::io::read(&self.pipe.0, &mut rest[..]).is_ok_and(|count| count > 0) {}
        stored
    }

    #[expect(unsafe_code, reason = "msync(2) takes an address")]
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the whole mapping.
        unsafe { rustix::mm::msync(self.address as *mut _, self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "there is no safe way to unmap")]
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into the mapping.
        _ = unsafe { rustix::mm::munmap(self.address as *mut _, self.len) };
    }
}

/// truncate(2), which goes without a descriptor all the way.
#[expect(unsafe_code, reason = "rustix has no truncate(2)")]
pub fn truncate(path: &Path, len: i64) -> Result<(), Errno> {
    unsafe extern "C" {
        fn truncate(path: *const c_char, len: i64) -> c_int;
    }
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    // SAFETY: a string that ends in zero and outlives the call.
    if unsafe { truncate(path.as_ptr(), len) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Room of a pipe.
pub const TRANSFER_MAX: usize = 32 * 1024;
