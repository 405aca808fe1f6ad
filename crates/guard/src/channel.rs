//! What a node sends its guard to begin with, and the bytes that come back.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// What a guard gets.
#[derive(Debug)]
pub struct Outfit {
    /// Minor version of the FUSE protocol in use.
    pub minor: u32,
    /// Duplicate of the FUSE device.
    pub device: OwnedFd,
    /// The memory shared with the node.
    pub memory: OwnedFd,
    /// Readable when the node's process is dead.
    pub node: OwnedFd,
    /// Written to abort the connection; none where nobody may.
    pub abort: Option<File>,
}

/// What a guard hears from its node later.
#[derive(Debug)]
pub enum Heard {
    /// A connection to keep open until the caches are empty, in place of the one before.
    Hold(OwnedFd),
    /// Nothing to speak of.
    Nothing,
    /// The node's end.
    End,
}

/// Bytes from the guard.
pub const READY: u8 = b'r';
pub const FIRED: u8 = b'f';

/// Sends descriptors; they stay the sender's.
pub fn send(
    socket: impl AsFd,
    minor: u32,
    [device, memory, node]: [BorrowedFd<'_>; 3],
    abort: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let all = [Some(device), Some(memory), Some(node), abort];
    let descriptors: Vec<BorrowedFd<'_>> = all.into_iter().flatten().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(&minor.to_ne_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for what [`send`] sends.
pub fn receive(socket: impl AsFd) -> io::Result<Outfit> {
    let mut minor = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut minor)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten();
    match (received.bytes, descriptors.next(), descriptors.next(), descriptors.next()) {
        (4, Some(device), Some(memory), Some(node)) => {
            let minor = u32::from_ne_bytes(minor);
            Ok(Outfit { minor, device, memory, node, abort: descriptors.next().map(File::from) })
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a guard is started by a node alone")),
    }
}

/// Sends a descriptor for [`Heard::Hold`]; it stays the sender's.
pub fn send_hold(socket: impl AsFd, connection: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [connection];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(b"h")], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// What the node has said.
pub fn hear(socket: impl AsFd) -> Heard {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
        Ok(received) => received.bytes,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Heard::Nothing,
        Err(_) => return Heard::End,
    };
    if received == 0 {
        return Heard::End;
    }
    let held = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    held.map_or(Heard::Nothing, Heard::Hold)
}

const DESCRIPTORS_MAX: usize = 4;
