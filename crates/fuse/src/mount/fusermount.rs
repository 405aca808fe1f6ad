//! Mounting without privileges, through the setuid program `fusermount3`.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use super::{MountError, MountFlags, MountOptions, Unmount, shared_options};

/// Mounts, and receives the opened device over a socket.
///
/// The socket is the child's standard input, whose number goes into `_FUSE_COMMFD`: no descriptor
/// has to be inherited by number.
pub(super) fn mount(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |message: String| MountError::Fusermount { path: mountpoint.to_owned(), message };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| failed(format!("socketpair: {errno}")))?;
    let child = Command::new(PROGRAM)
        .arg("-o")
        .arg(option_list(options))
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot be started ({error}): install fuse3")))?;
    // Its end of the socket closes with it, so this wait ends.
    let device = receive_device(&ours);
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Ok(_) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(failed(format!("receiving the device: {error}"))),
    }
}

/// Unmounts as the user who mounted.
pub(super) fn unmount(mountpoint: &Path, mode: Unmount) -> Result<(), MountError> {
    let failed = |message: String| MountError::Fusermount { path: mountpoint.to_owned(), message };
    let mut command = Command::new(PROGRAM);
    command.arg("-u");
    if mode == Unmount::Lazy {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Waits for one descriptor; `None` if the other side closed without sending one.
fn receive_device(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// Returns the argument of `-o`.
fn option_list(options: &MountOptions) -> OsString {
    let mut list = [b"fsname=", &*escape(options.fsname.as_bytes())].concat();
    let mut add = |option: &[u8]| list.extend([b",", option].concat());
    if !options.subtype.is_empty() {
        add(&[b"subtype=", &*escape(options.subtype.as_bytes())].concat());
    }
    for option in shared_options(options) {
        add(option.as_bytes());
    }
    for (flag, name) in FLAG_NAMES {
        if options.flags.contains(*flag) {
            add(name.as_bytes());
        }
    }
    OsString::from_vec(list)
}

/// `fusermount3` takes a comma or backslash in a value after a backslash.
fn escape(value: &[u8]) -> Vec<u8> {
    let escaped = |byte: &u8| matches!(byte, b'\\' | b',').then_some(b'\\').into_iter().chain([*byte]);
    value.iter().flat_map(escaped).collect()
}

const PROGRAM: &str = "fusermount3";

/// Flags that `fusermount3` knows by name; nosuid and nodev it always sets for users.
const FLAG_NAMES: &[(MountFlags, &str)] = &[
    (MountFlags::RDONLY, "ro"),
    (MountFlags::NOSUID, "nosuid"),
    (MountFlags::NODEV, "nodev"),
    (MountFlags::NOEXEC, "noexec"),
    (MountFlags::SYNCHRONOUS, "sync"),
    (MountFlags::NOATIME, "noatime"),
    (MountFlags::NODIRATIME, "nodiratime"),
    (MountFlags::RELATIME, "relatime"),
    (MountFlags::DIRSYNC, "dirsync"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_values_are_escaped() {
        let options = MountOptions {
            fsname: OsString::from_vec(b"a,b\\c\xe9".to_vec()),
            subtype: "some".to_owned(),
            allow_other: true,
            flags: MountFlags::RDONLY,
            ..MountOptions::default()
        };
        assert_eq!(
            option_list(&options),
            OsString::from_vec(
                b"fsname=a\\,b\\\\c\xe9,subtype=some,allow_other,default_permissions,ro".to_vec()
            )
        );
    }
}
