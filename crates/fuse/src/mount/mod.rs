//! Mounting, unmounting and aborting.

mod fusermount;
mod kernel_file;
mod mountinfo;

use std::ffi::{CString, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

pub use kernel_file::{Cached, KernelFile, may_look};
pub use mountinfo::MountEntry;
pub use rustix::mount::MountFlags;

/// What to mount, and how.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Source shown in the mount table.
    pub fsname: OsString,
    /// Type shown in the mount table is `fuse.<subtype>`.
    pub subtype: String,
    /// Other users than the mounting one may use it.
    pub allow_other: bool,
    /// The kernel checks permissions by mode and ACL.
    pub default_permissions: bool,
    /// Largest READ in bytes; `None` leaves it to INIT.
    pub max_read: Option<u32>,
    /// nosuid, nodev, noexec, ro, noatime and the like.
    pub flags: MountFlags,
    /// By whom.
    pub method: MountMethod,
}

/// Who calls mount(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountMethod {
    /// This process; the setuid `fusermount3` if that is not permitted.
    Auto,
    /// This process. Needs CAP_SYS_ADMIN.
    Direct,
    /// `fusermount3`.
    Fusermount,
}

/// Whether unmounting waits for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Fails with EBUSY while anything is in use.
    Normal,
    /// Detaches now; the session ends with the last user.
    Lazy,
}

/// A mount made by this process. Dropping it leaves the mount alone.
#[derive(Debug)]
pub struct Mount {
    mountpoint: PathBuf,
    device_minor: u32,
    mounted_by: MountMethod,
    /// `None` where the control file system is not mounted and cannot be.
    control: Option<Control>,
}

/// The file of the control file system that aborts. The kernel gives the number of a connection that is over to the next mount, which may be at the same
/// place: this stays with the connection that it was opened for.
#[derive(Debug)]
struct Control {
    abort: File,
    path: PathBuf,
}

impl Control {
    fn open(device_minor: u32) -> Option<Self> {
        Some(Self { abort: open_abort(device_minor).ok()?, path: abort_path(device_minor) })
    }

    /// Whether the connection is still there; one that was aborted is, until it is unmounted.
    fn is_there(&self) -> bool {
        let id = |metadata: Metadata| (metadata.dev(), metadata.ino());
        match fs::metadata(&self.path).map(id) {
            Ok(now) => self.abort.metadata().is_ok_and(|opened| id(opened) == now),
            // The file system may have been unmounted: it shows no connection at all then.
            Err(_) => fs::read_dir(CONNECTIONS).is_ok_and(|mut shown| shown.next().is_none()),
        }
    }
}

/// Why mounting, unmounting or aborting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is no `/dev/fuse`.
    #[error("opening /dev/fuse: load the fuse module, or give the container the device")]
    Device(#[source] io::Error),
    /// This user may not open it.
    #[error(
        "no right to open /dev/fuse: mount as root, or have root make it readable and writable for all (mode 0666)"
    )]
    DeviceDenied,
    /// The mount point cannot be used.
    #[error("mount point {}", path.display())]
    Mountpoint {
        /// As given.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An option holds a byte that cannot be passed on.
    #[error("mount option {option:?} holds a NUL byte")]
    Option {
        /// The option.
        option: String,
    },
    /// mount(2) refused.
    #[error("mounting on {}", path.display())]
    Mount {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `fusermount3` refused.
    #[error("fusermount3 on {}: {message}", path.display())]
    Fusermount {
        /// Where.
        path: PathBuf,
        /// What it printed.
        message: String,
    },
    /// The mount table shows nothing of ours at the mount point.
    #[error("{} is not in the mount table", path.display())]
    NotMounted {
        /// Where.
        path: PathBuf,
    },
    /// umount2(2) refused.
    #[error("unmounting {}", path.display())]
    Unmount {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The connection could not be aborted.
    #[error("aborting connection {device_minor}: mount fusectl on /sys/fs/fuse/connections, or run as root")]
    Abort {
        /// Its number.
        device_minor: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            fsname: "fuse".into(),
            subtype: String::new(),
            allow_other: false,
            default_permissions: true,
            max_read: None,
            flags: MountFlags::NOSUID | MountFlags::NODEV,
            method: MountMethod::Auto,
        }
    }
}

/// Mounts on `mountpoint` and returns the device for [`Session::start`](crate::Session::start).
///
/// Until the session has started every access to the mount waits.
///
/// # Errors
///
/// Any [`MountError`]; nothing is left mounted.
pub fn mount(mountpoint: &Path, options: &MountOptions) -> Result<(Mount, OwnedFd), MountError> {
    let at_mountpoint = |source| MountError::Mountpoint { path: mountpoint.to_owned(), source };
    let mountpoint = fs::canonicalize(mountpoint).map_err(at_mountpoint)?;
    let (device, mounted_by) = match options.method {
        MountMethod::Direct => (mount_direct(&mountpoint, options)?, MountMethod::Direct),
        MountMethod::Fusermount => (fusermount::mount(&mountpoint, options)?, MountMethod::Fusermount),
        MountMethod::Auto => match mount_direct(&mountpoint, options) {
            Err(MountError::Mount { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                (fusermount::mount(&mountpoint, options)?, MountMethod::Fusermount)
            }
            result => (result?, MountMethod::Direct),
        },
    };
    match mountinfo::find_fuse(&mountpoint) {
        Ok(Some(MountEntry { device_minor, .. })) => {
            let control = Control::open(device_minor);
            Ok((Mount { mountpoint, device_minor, mounted_by, control }, device))
        }
        found => {
            _ = unmount(&mountpoint, Unmount::Lazy);
            Err(match found {
                Err(source) => MountError::Mountpoint { path: mountpoint, source },
                Ok(_) => MountError::NotMounted { path: mountpoint },
            })
        }
    }
}

/// Unmounts whatever is mounted on `mountpoint`, as root or through `fusermount3`.
///
/// Does not touch the file system below, so it works on a mount that hangs.
///
/// # Errors
///
/// [`MountError::Unmount`] or [`MountError::Fusermount`]; EINVAL means that nothing is mounted.
pub fn unmount(mountpoint: &Path, mode: Unmount) -> Result<(), MountError> {
    let flags = match mode {
        Unmount::Normal => UnmountFlags::NOFOLLOW,
        Unmount::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => fusermount::unmount(mountpoint, mode),
        Err(errno) => Err(MountError::Unmount { path: mountpoint.to_owned(), source: errno.into() }),
    }
}

/// Returns the FUSE mount on `mountpoint`, from the mount table alone: no access to the mount.
///
/// # Errors
///
/// If the mount table cannot be read.
pub fn find(mountpoint: &Path) -> io::Result<Option<MountEntry>> {
    mountinfo::find_fuse(mountpoint)
}

/// Aborts the FUSE connection mounted on `mountpoint`: every pending and later request fails.
///
/// # Errors
///
/// [`MountError::NotMounted`], [`MountError::Mountpoint`] or [`MountError::Abort`].
pub fn abort_at(mountpoint: &Path) -> Result<(), MountError> {
    let entry = mountinfo::find_fuse(mountpoint)
        .map_err(|source| MountError::Mountpoint { path: mountpoint.to_owned(), source })?
        .ok_or_else(|| MountError::NotMounted { path: mountpoint.to_owned() })?;
    abort_connection(entry.device_minor).or_else(|error| {
        // MNT_FORCE aborts the connection before it looks whether the mount is busy.
        match rustix::mount::unmount(mountpoint, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::BUSY) => Ok(()),
            Err(_) => Err(error),
        }
    })
}

/// Aborts the FUSE connection numbered `device_minor` (the minor of its st_dev), even after a
/// lazy unmount.
///
/// # Errors
///
/// [`MountError::Abort`] if the control file system is not mounted and cannot be, or has no such
/// connection.
pub fn abort_connection(device_minor: u32) -> Result<(), MountError> {
    open_abort(device_minor)?.write_all(b"1").map_err(|source| MountError::Abort { device_minor, source })
}

fn abort_path(device_minor: u32) -> PathBuf {
    Path::new(CONNECTIONS).join(device_minor.to_string()).join("abort")
}

/// Opens the file that aborts the FUSE connection numbered `device_minor` when something is written to it.
///
/// It works even when the control file system is unmounted later.
///
/// # Errors
///
/// As [`abort_connection`].
pub fn open_abort(device_minor: u32) -> Result<File, MountError> {
    let file = abort_path(device_minor);
    let open = || File::options().write(true).open(&file);
    open()
        .or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound || fs::read_dir(CONNECTIONS)?.next().is_some() {
                return Err(error);
            }
            // The control file system is not mounted, as in most containers.
            rustix::mount::mount("fusectl", CONNECTIONS, "fusectl", MountFlags::empty(), None)?;
            open()
        })
        .map_err(|source| MountError::Abort { device_minor, source })
}

impl Mount {
    /// Returns the mount point, absolute and without symbolic links.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Returns the connection's number: the minor of st_dev.
    pub fn device_minor(&self) -> u32 {
        self.device_minor
    }

    /// Returns who called mount(2): `Direct` or `Fusermount`.
    pub fn mounted_by(&self) -> MountMethod {
        self.mounted_by
    }

    /// Returns whether this very mount is still the topmost one at its place.
    pub fn is_mounted(&self) -> bool {
        let is_ours = |entry: MountEntry| entry.device_minor == self.device_minor;
        self.control.as_ref().is_none_or(Control::is_there)
            && mountinfo::find_fuse(&self.mountpoint).is_ok_and(|found| found.is_some_and(is_ours))
    }

    /// Unmounts; a mount that is already gone, or covered by another, is left alone without error.
    ///
    /// # Errors
    ///
    /// As [`unmount`].
    pub fn unmount(&self, mode: Unmount) -> Result<(), MountError> {
        if !self.is_mounted() {
            return Ok(());
        }
        unmount(&self.mountpoint, mode)
    }

    /// Aborts the connection, if there still is one: every pending and later request fails, blocked notifications return.
    ///
    /// # Errors
    ///
    /// As [`abort_at`].
    pub fn abort(&self) -> Result<(), MountError> {
        let device_minor = self.device_minor;
        match &self.control {
            Some(Control { abort: file, .. }) => {
                let mut file = file;
                file.write_all(b"1").map_err(|source| MountError::Abort { device_minor, source })
            }
            None if self.is_mounted() => abort_at(&self.mountpoint),
            None => abort_connection(device_minor),
        }
    }
}

/// Opens the device and calls mount(2).
fn mount_direct(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device =
        rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
            match errno {
                Errno::ACCESS | Errno::PERM => MountError::DeviceDenied,
                errno => MountError::Device(errno.into()),
            }
        })?;
    let metadata = fs::metadata(mountpoint)
        .map_err(|source| MountError::Mountpoint { path: mountpoint.to_owned(), source })?;
    let data = direct_data(device.as_raw_fd(), metadata.mode(), options);
    let data = c_string(data)?;
    let kind =
        if options.subtype.is_empty() { "fuse".to_owned() } else { format!("fuse.{}", options.subtype) };
    rustix::mount::mount(&options.fsname, mountpoint, &kind, options.flags, Some(data.as_c_str()))
        .map_err(|errno| MountError::Mount { path: mountpoint.to_owned(), source: errno.into() })?;
    Ok(device)
}

/// Returns the data argument of mount(2).
fn direct_data(device: i32, mode: u32, options: &MountOptions) -> String {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let mut data = format!("fd={device},rootmode={:o},user_id={user},group_id={group}", mode & 0o170_000);
    for option in shared_options(options) {
        data.push(',');
        data.push_str(&option);
    }
    data
}

/// Returns the options that mount(2) and `fusermount3` spell alike.
fn shared_options(options: &MountOptions) -> Vec<String> {
    let mut list = Vec::new();
    if options.allow_other {
        list.push("allow_other".to_owned());
    }
    if options.default_permissions {
        list.push("default_permissions".to_owned());
    }
    if let Some(max_read) = options.max_read {
        list.push(format!("max_read={max_read}"));
    }
    list
}

fn c_string(text: String) -> Result<CString, MountError> {
    CString::new(text).map_err(|error| MountError::Option {
        option: String::from_utf8_lossy(&error.into_vec()).into_owned(),
    })
}

/// Where the control file system of FUSE belongs.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is empty and unmounted at the end, whatever becomes of the test.
    struct MountPoint(PathBuf);

    impl Drop for MountPoint {
        fn drop(&mut self) {
            while unmount(&self.0, Unmount::Lazy).is_ok() {}
            _ = fs::remove_dir(&self.0);
        }
    }

    /// Goal: what a mount that is over does hits no other. Method: another at the same place, whose connection the kernel has given the same
    /// number; the device of one that is not aborted has INIT to be read.
    #[test]
    fn the_next_mount_of_the_same_number_is_left_alone() {
        let directory = std::env::temp_dir().join(format!("fuse-test-{}-next", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let _mount_point = MountPoint(directory.clone());
        let options = MountOptions { method: MountMethod::Direct, ..MountOptions::default() };
        let mount_it = || mount(&directory, &options);
        match mount_it() {
            // Others may take the number in between.
            Ok(mut first) => {
                let (old, new, device) = (0..100)
                    .find_map(|_| {
                        first.0.unmount(Unmount::Normal).unwrap();
                        let next = mount_it().unwrap();
                        let old = std::mem::replace(&mut first, next).0;
                        (old.device_minor == first.0.device_minor).then_some(old)
                    })
                    .map(|old| (old, first.0, first.1))
                    .expect("a number that is given again");
                assert!(!old.is_mounted() && new.is_mounted());
                old.unmount(Unmount::Lazy).unwrap();
                old.abort().unwrap();
                assert!(new.is_mounted());
                assert!(rustix::io::read(&device, &mut [0; 16384]).is_ok_and(|len| len > 0));
                new.abort().unwrap();
                assert_eq!(rustix::io::read(&device, &mut [0; 16384]), Err(Errno::NODEV));
                assert!(new.is_mounted());
            }
            Err(error) => println!("SKIPPED: {error}"),
        }
    }
}
