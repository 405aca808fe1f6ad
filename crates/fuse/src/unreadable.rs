//! A message whose last part the kernel cannot copy, for [`Notifier::raise_size`](crate::Notifier::raise_size).
//!
//! `unsafe`, because memory without any right cannot be a slice.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Writes `message` to `device`, followed by `len` bytes, up to a page, that cannot be read.
pub(crate) fn write(device: BorrowedFd<'_>, message: &[u8], len: usize) -> Result<(), Errno> {
    let parts = [
        IoVec { base: message.as_ptr().cast(), len: message.len() },
        IoVec { base: page()?.0, len: len.min(PAGE_LEN) },
    ];
    match write_parts(device, &parts) {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// `struct iovec` of the C library.
#[repr(C)]
struct IoVec {
    base: *const c_void,
    len: usize,
}

#[expect(unsafe_code, reason = "rustix takes slices, and nothing may refer to a page without rights")]
fn write_parts(device: BorrowedFd<'_>, parts: &[IoVec; 2]) -> isize {
    unsafe extern "C" {
        fn writev(fd: c_int, parts: *const IoVec, count: c_int) -> isize;
    }
    // SAFETY: both parts lie in mappings of their length that outlive the call. The kernel only reads them,
    // and answers EFAULT where it cannot.
    unsafe { writev(device.as_raw_fd(), parts.as_ptr(), parts.len() as c_int) }
}

/// A page without any right, mapped for the life of the process.
#[derive(Clone, Copy)]
struct Page(*const c_void);

#[expect(unsafe_code, reason = "a pointer that nobody follows")]
// SAFETY: an address that is never read from or written to in this process.
unsafe impl Send for Page {}

#[expect(unsafe_code, reason = "a pointer that nobody follows")]
// SAFETY: as for Send.
unsafe impl Sync for Page {}

#[expect(unsafe_code, reason = "there is no safe way to map memory")]
fn page() -> Result<Page, Errno> {
    static PAGE: OnceLock<Result<Page, Errno>> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE_LEN, ProtFlags::empty(), MapFlags::PRIVATE) };
        base.map(|base| Page(base.cast_const()))
    })
}

const PAGE_LEN: usize = 4096;
