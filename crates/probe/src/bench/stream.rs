//! One long file or device, written or read from its beginning.

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use crate::bench::task::Stream;

/// Writes or reads so many blocks of [`BLOCK`] bytes; a write ends with fsync(2). `tell` is called for each block and says whether there is time for
/// another.
pub(crate) fn stream(
    dir: BorrowedFd<'_>,
    stream: &Stream,
    mut tell: impl FnMut() -> bool,
) -> Result<(), Errno> {
    let file = open(dir, stream)?;
    let mut buffer = Buffer::new();
    let block = buffer.block();
    for number in 0..stream.blocks {
        if stream.is_write {
            // No block is like another: nothing may be left out.
            block[..8].copy_from_slice(&number.to_ne_bytes());
            write_all(&file, block, number * BLOCK as u64)?;
            if stream.is_synced {
                sync(&file)?;
            }
        } else {
            read_all(&file, block, number * BLOCK as u64)?;
        }
        if !tell() {
            break;
        }
    }
    if stream.is_write { sync(&file) } else { Ok(()) }
}

fn sync(file: &OwnedFd) -> Result<(), Errno> {
    match rustix::fs::fsync(file) {
        // What has nothing to sync to.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        synced => synced,
    }
}

fn open(dir: BorrowedFd<'_>, stream: &Stream) -> Result<OwnedFd, Errno> {
    let way = match (stream.is_write, stream.target.is_relative()) {
        (true, true) => OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC,
        (true, false) => OFlags::WRONLY,
        (false, _) => OFlags::RDONLY,
    };
    let direct = if stream.is_direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = way | direct | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, &stream.target, flags, Mode::from_raw_mode(0o600))?;
    if !stream.is_write {
        // Advice: who may not empty the caches has at least this file out of them.
        _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    }
    Ok(file)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let done = rustix::io::pwrite(file, bytes, offset)?;
        if done == 0 {
            return Err(Errno::NOSPC);
        }
        (bytes, offset) = (&bytes[done..], offset + done as u64);
    }
    Ok(())
}

fn read_all(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file, &mut bytes[done..], offset + done as u64)? {
            0 => return Err(Errno::NODATA),
            read => done += read,
        }
    }
    Ok(())
}

/// Memory as direct I/O wants it, full of bytes that no layer can make smaller.
struct Buffer(Vec<u8>);

impl Buffer {
    fn new() -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        Self((0..BLOCK + ALIGN).map(|_| next()).collect())
    }

    fn block(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(ALIGN);
        &mut self.0[start..start + BLOCK]
    }
}

/// Bytes of one read or write.
pub(crate) const BLOCK: usize = 1 << 20;
/// No device wants more.
const ALIGN: usize = 4096;
