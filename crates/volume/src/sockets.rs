//! Sockets in the volume's run directory.
//!
//! A socket address holds 108 bytes at most, a volume's path may be longer; so every bind and connect goes
//! through `/proc/self/fd/N/name`, N being the open run directory.

use std::fs::{self, File};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode};

use crate::error::VolumeError;
use crate::volume_dir::Volume;

/// Name of the control socket of the node whose mount has device `major:minor`.
pub fn control_socket_name(major: u32, minor: u32) -> String {
    format!("node-{major}:{minor}")
}

/// A listening socket with a name in the run directory. Dropping it removes the name, unless another
/// process has put its own socket there.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    run_dir: File,
    name: String,
    ino: u64,
}

impl Volume {
    /// Listens under `name`, in the place of whatever socket had that name.
    ///
    /// The name must belong to the caller (the master's by its lock, a node's by its device number):
    /// a live listener of the same name keeps its connections and gets no new ones. Mode 0600.
    pub fn listen(&self, name: &str) -> Result<Listener, VolumeError> {
        check_name(name)?;
        let path = self.run_path().join(name);
        let run_dir = self.run_dir().try_clone().map_err(|e| VolumeError::io("open", &self.run_path(), e))?;
        // Bound under a name of our own and renamed over the old one: there is no moment without a socket.
        let unique = format!(".{name}.{}", std::process::id());
        let _ = rustix::fs::unlinkat(&run_dir, &unique, AtFlags::empty());
        let listener =
            UnixListener::bind(self.short_path(&unique)).map_err(|e| VolumeError::io("listen", &path, e))?;
        let finish = || -> rustix::io::Result<u64> {
            rustix::fs::chmodat(&run_dir, &unique, Mode::from_raw_mode(0o600), AtFlags::empty())?;
            rustix::fs::renameat(&run_dir, &unique, &run_dir, name)?;
            Ok(rustix::fs::statat(&run_dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino)
        };
        match finish() {
            Ok(ino) => Ok(Listener { listener, run_dir, name: name.to_owned(), ino }),
            Err(error) => {
                let _ = rustix::fs::unlinkat(&run_dir, &unique, AtFlags::empty());
                Err(VolumeError::io("listen", &path, error))
            }
        }
    }

    /// Connects to the socket `name`. See [`VolumeError::is_nobody_listening`].
    pub fn connect(&self, name: &str) -> Result<UnixStream, VolumeError> {
        check_name(name)?;
        UnixStream::connect(self.short_path(name))
            .map_err(|e| VolumeError::io("connect", &self.run_path().join(name), e))
    }

    /// Names of all sockets in the run directory, sorted; some may be of dead processes.
    pub fn socket_names(&self) -> Result<Vec<String>, VolumeError> {
        let run = self.run_path();
        let entries = fs::read_dir(&run).map_err(|e| VolumeError::io("list", &run, e))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| VolumeError::io("list", &run, e))?;
            match entry.file_name().into_string() {
                Ok(name) if !name.starts_with('.') => names.push(name),
                Ok(_) | Err(_) => {}
            }
        }
        names.sort();
        Ok(names)
    }

    fn short_path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.run_dir().as_raw_fd()))
    }
}

impl Deref for Listener {
    type Target = UnixListener;

    fn deref(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let found = rustix::fs::statat(&self.run_dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| stat.st_ino == self.ino) {
            let _ = rustix::fs::unlinkat(&self.run_dir, &self.name, AtFlags::empty());
        }
    }
}

fn check_name(name: &str) -> Result<(), VolumeError> {
    let is_good = !name.is_empty() && name.len() <= NAME_LEN_MAX && !name.starts_with('.');
    if is_good && !name.contains(['/', '\0']) {
        return Ok(());
    }
    Err(VolumeError::BadSocketName { name: name.to_owned() })
}

/// Leaves room for `/proc/self/fd/N/` and the unique part within a socket address.
const NAME_LEN_MAX: usize = 64;
