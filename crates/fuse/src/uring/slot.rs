//! Memory that a request and its answer lie in, handed to and fro between the kernel and this process.
//!
//! `unsafe`, because the kernel writes it behind the compiler's back. What makes it sound: a [`Slot`] is not copied, and who
//! has it owns its memory alone. While it is lent to the kernel the thread of its queue keeps it and looks at nothing in it.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::abi::{InHeader, OutHeader, RingEntry, RingHeader};

/// Memory of one ring entry: a header, and a payload as long as the longest message.
#[derive(Debug)]
pub(crate) struct Slot {
    header: *mut RingHeader,
    payload: *mut u8,
    payload_len: usize,
    /// Keeps the memory.
    _mapping: Arc<Mapping>,
}

/// As the kernel takes them: `struct iovec` of header and payload.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IoVec {
    base: *mut c_void,
    len: usize,
}

#[derive(Debug)]
struct Mapping {
    base: *mut c_void,
    len: usize,
}

#[expect(unsafe_code, reason = "memory shared with the kernel")]
// SAFETY: the memory belongs to who has the slot, on whichever thread.
unsafe impl Send for Slot {}

#[expect(unsafe_code, reason = "memory shared with the kernel")]
// SAFETY: nothing can be done with a shared mapping but to drop it.
unsafe impl Sync for Mapping {}

#[expect(unsafe_code, reason = "memory shared with the kernel")]
// SAFETY: as for Sync.
unsafe impl Send for Mapping {}

#[expect(unsafe_code, reason = "memory shared with the kernel")]
impl Slot {
    /// Maps `count` slots with payloads of `payload_len` bytes. What is not used takes no memory, only addresses.
    pub fn map(count: usize, payload_len: usize) -> Result<Vec<Self>, Errno> {
        let page_len = rustix::param::page_size();
        let payload_len = payload_len.next_multiple_of(page_len);
        let headers_len = (count * HEADER_STRIDE).next_multiple_of(page_len);
        let len = headers_len + count * payload_len;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, rights, flags) }?;
        let mapping = Arc::new(Mapping { base, len });
        // A name of a few bytes is not to cost a huge page.
        // SAFETY: the whole of our own mapping; the advice changes no content.
        _ = unsafe { madvise(base, len, Advice::LinuxNoHugepage) };
        let at = |offset: usize| base.cast::<u8>().wrapping_add(offset);
        let slots = (0..count).map(|index| Self {
            header: at(index * HEADER_STRIDE).cast(),
            payload: at(headers_len + index * payload_len),
            payload_len,
            _mapping: Arc::clone(&mapping),
        });
        Ok(slots.collect())
    }

    /// Where header and payload lie, to be registered.
    pub fn parts(&self) -> [IoVec; 2] {
        [
            IoVec { base: self.header.cast(), len: size_of::<RingHeader>() },
            IoVec { base: self.payload.cast(), len: self.payload_len },
        ]
    }

    /// Longest answer.
    pub fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// What the kernel wrote in front of the payload.
    pub fn header(&self) -> RingHeader {
        // SAFETY: within the mapping, aligned to its stride, any bytes are a header, and we own it.
        unsafe { self.header.read() }
    }

    /// The first `len` bytes of the payload, however long a broken kernel says it is.
    ///
    /// # Safety
    ///
    /// Nothing may be written to the payload while the slice is in use.
    pub unsafe fn payload<'a>(&self, len: usize) -> &'a [u8] {
        // SAFETY: within the mapping, initialized by the kernel or zero; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.payload, len.min(self.payload_len)) }
    }

    /// Writes `part` of an answer at `offset`; the caller has seen to it that it fits, and that nobody reads the request any more.
    pub fn put(&mut self, offset: usize, part: &[u8]) {
        assert!(offset + part.len() <= self.payload_len, "an answer fits its payload");
        // SAFETY: within the mapping by the assertion; `part` is other memory, as we own this.
        unsafe { ptr::copy_nonoverlapping(part.as_ptr(), self.payload.add(offset), part.len()) };
    }

    /// Writes the header of an answer with `payload_len` bytes.
    pub fn answer(&mut self, unique: u64, error: i32, payload_len: usize) {
        let payload_sz = payload_len as u32;
        let len = size_of::<OutHeader>() as u32 + payload_sz;
        let entry = RingEntry { payload_sz, ..RingEntry::default() };
        // SAFETY: within the mapping, aligned to its stride, and we own it. Places of fields, no references.
        unsafe {
            (&raw mut (*self.header).in_out).cast::<OutHeader>().write(OutHeader { len, error, unique });
            (&raw mut (*self.header).entry).write(entry);
        }
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "memory shared with the kernel")]
    fn drop(&mut self) {
        // SAFETY: the last slot in it goes. One that the kernel has is never dropped (`Server::drop`), nor then this.
        _ = unsafe { munmap(self.base, self.len) };
    }
}

impl RingHeader {
    /// The request's header.
    pub fn request(&self) -> InHeader {
        zerocopy::FromBytes::read_from_prefix(zerocopy::IntoBytes::as_bytes(&self.in_out))
            .map_or_else(|_| InHeader::default(), |(header, _)| header)
    }
}

/// A cache line's multiple that holds a header.
const HEADER_STRIDE: usize = 320;

const _: () = assert!(HEADER_STRIDE >= size_of::<RingHeader>() && HEADER_STRIDE.is_multiple_of(64));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_and_are_zero_until_written() {
        let mut slots = Slot::map(3, 5000).unwrap();
        assert_eq!(slots[0].payload_len(), 8192);
        let last = slots[1].payload_len() - 1;
        slots[1].put(last, b"x");
        slots[1].answer(6, -5, 1);
        for index in [0, 2] {
            assert_eq!(slots[index].header().in_out, [0; 16]);
            // SAFETY: nobody writes.
            #[expect(unsafe_code, reason = "the test looks at a payload")]
            let payload = unsafe { slots[index].payload(usize::MAX) };
            assert!(payload.iter().all(|byte| *byte == 0));
        }
        let header = slots[1].header();
        assert_eq!((header.entry.payload_sz, header.in_out[1]), (1, 6));
    }
}
