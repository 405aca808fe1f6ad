//! The open device with what replies and notifications share.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::OutHeader;
use crate::counters::Counters;
use crate::in_flight::InFlight;
use crate::mount;
use crate::placement;
use crate::unreadable;
use crate::uring::SharedRings;

/// One connection to the kernel. Writes are whole messages, so threads need no lock between them.
#[derive(Debug)]
pub(crate) struct Channel {
    device: OwnedFd,
    pub counters: Counters,
    pub in_flight: InFlight,
    /// Where requests come, beside the device. These live as long as they are served.
    rings: OnceLock<Weak<SharedRings>>,
}

impl Channel {
    pub fn new(device: OwnedFd) -> Self {
        let (counters, in_flight) = (Counters::default(), InFlight::default());
        Self { device, counters, in_flight, rings: OnceLock::new() }
    }

    /// Requests come through `rings` from when these are registered.
    pub fn set_rings(&self, rings: &Arc<SharedRings>) {
        _ = self.rings.set(Arc::downgrade(rings));
    }

    /// The rings, while requests come through them.
    pub fn rings(&self) -> Option<Arc<SharedRings>> {
        self.rings.get()?.upgrade().filter(|rings| rings.is_active())
    }

    /// Whether requests come through rings, or will as soon as these are registered.
    pub fn has_rings(&self) -> bool {
        self.rings.get().and_then(|rings| rings.upgrade()).is_some_and(|rings| rings.is_coming())
    }

    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Ends the connection: everybody who waits or asks is told ENOTCONN.
    pub fn abort(&self) {
        let path = format!("/proc/self/fdinfo/{}", self.device.as_raw_fd());
        let minor = std::fs::read_to_string(path).ok().and_then(|info| {
            info.lines().find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse().ok())
        });
        match minor.map(mount::abort_connection) {
            Some(Ok(())) => log::error!("the connection is aborted"),
            Some(Err(error)) => log::error!("the connection cannot be aborted: {error}"),
            None => log::error!("the connection cannot be aborted: the kernel does not tell its number"),
        }
    }

    /// Reads one message into `buffer`.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.device, buffer)
    }

    /// Writes one message: a header for `unique` with `code`, then `parts`.
    ///
    /// `code` is a negative errno, 0, or the kind of a notification (then `unique` is 0).
    pub fn send(&self, unique: u64, code: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        assert!(parts.len() < INLINE_SLICES, "a message has few parts");
        let header = header(unique, code, parts.iter().map(|part| part.len()).sum())?;
        let len = header.len as usize;
        if len <= SMALL {
            let mut message = Small([0; SMALL]);
            let mut rest = &mut message.0[..];
            for part in [header.as_bytes()].iter().chain(parts) {
                let (place, behind) = rest.split_at_mut(part.len());
                place.copy_from_slice(part);
                rest = behind;
            }
            return self.write_with(len, || rustix::io::write(&self.device, &message.0[..len]));
        }
        let mut slices = [IoSlice::new(&[]); INLINE_SLICES];
        slices[0] = IoSlice::new(header.as_bytes());
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        self.write_with(len, || rustix::io::writev(&self.device, &slices[..=parts.len()]))
    }

    /// Writes a notification of kind `code`: `body`, and `len` bytes that the kernel fails to copy.
    pub fn send_unreadable(&self, code: i32, body: &[u8], len: usize) -> Result<(), Errno> {
        let message = [header(0, code, body.len() + len)?.as_bytes(), body].concat();
        unreadable::write(self.device(), &message, len)
    }

    /// Writes a successful reply whose data lies in any number of pieces.
    pub fn send_vectored(&self, unique: u64, pieces: &[IoSlice<'_>]) -> Result<(), Errno> {
        if pieces.len() >= SLICES_MAX {
            let body = pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>();
            return self.send(unique, 0, &[&body]);
        }
        let header = header(unique, 0, pieces.iter().map(|piece| piece.len()).sum())?;
        let mut slices = Vec::with_capacity(pieces.len() + 1);
        slices.push(IoSlice::new(header.as_bytes()));
        slices.extend_from_slice(pieces);
        let len = header.len as usize;
        self.write_with(len, || rustix::io::writev(&self.device, &slices))
    }

    fn write_with(&self, len: usize, mut write: impl FnMut() -> Result<usize, Errno>) -> Result<(), Errno> {
        loop {
            match placement::answering(len, &mut write) {
                Ok(_) => {
                    self.counters.on_sent(len);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn header(unique: u64, code: i32, body_len: usize) -> Result<OutHeader, Errno> {
    let len = u32::try_from(size_of::<OutHeader>() + body_len).map_err(|_| Errno::MSGSIZE)?;
    Ok(OutHeader { len, error: code, unique })
}

/// A message that is put together before it is written: the kernel pins the page of each piece anew, which costs more than to
/// copy what most answers have. Aligned, so that it lies in one page.
#[repr(align(256))]
struct Small([u8; SMALL]);

/// An entry with an open file and the header fit.
const SMALL: usize = 256;

/// Slices of a message that need no allocation, its header included.
const INLINE_SLICES: usize = 5;

/// UIO_MAXIOV: writev(2) takes no more.
const SLICES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use crate::mount::{MountMethod, MountOptions, Unmount};

    use super::*;

    #[test]
    fn an_aborted_connection_has_ended() {
        let directory = std::env::temp_dir().join(format!("fuse-test-{}-abort", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let options = MountOptions { method: MountMethod::Direct, ..MountOptions::default() };
        match mount::mount(&directory, &options) {
            Ok((mount, device)) => {
                let channel = Channel::new(device);
                channel.abort();
                assert_eq!(channel.receive(&mut [0; 16384]), Err(Errno::NODEV));
                mount.unmount(Unmount::Lazy).unwrap();
            }
            Err(error) => println!("SKIPPED: {error}"),
        }
        std::fs::remove_dir(&directory).unwrap();
    }
}
