//! A volume that is a directory: what lies in it and who may use it.
//!
//! ```text
//! holdfast.volume   header: id, cookie key, options; written last, so its absence tells a half-made volume
//! master.lock       locked by the master's process as long as it lives
//! reserve           preallocated space that lets unlink and truncate work on a full disk
//! meta/             the metadata engine's
//! segments/         file data
//! run/              sockets of live nodes; its content means nothing after a reboot
//! ```
//!
//! All of it is for the volume's owner only (directories 0700, files 0600). `docs/format/volume.md` has the
//! bytes. This crate knows nothing of metadata, tokens or FUSE.

mod election;
mod error;
mod filesystem;
mod format;
mod header;
mod reserve;
mod sockets;
pub mod sources;
mod volume_dir;

pub use election::MasterLock;
pub use error::VolumeError;
pub use filesystem::accept_fuse;
pub use format::{FormatOptions, format};
pub use header::{FORMAT_VERSION, Header, VolumeId};
pub use reserve::{ReserveWatch, Space};
pub use sockets::{Listener, control_socket_name};
pub use volume_dir::Volume;
