//! One volume mounted twice, and a directory of ext4 beside it.

use std::path::PathBuf;
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

use crate::lab::{Lab, Mount};

/// Where the twin of everything is, among [`Arena::root`]s.
pub const LOCAL: usize = 2;
/// The mounts, among [`Arena::root`]s.
pub const SITES: usize = 2;
pub const NAMES: [&str; SITES] = ["a", "b"];

pub struct Arena {
    // In the order in which they have to go.
    roots: Vec<Option<OwnedFd>>,
    mounts: Vec<Option<Mount>>,
    _local: Local,
    pub lab: Lab,
}

impl Arena {
    /// `None`, with a line that says so, where nothing can be mounted.
    pub fn new(patience: Duration) -> Option<Self> {
        let mut lab = Lab::new()?;
        lab.patience = patience;
        let local = Local::new(&lab);
        let mut arena = Self { roots: vec![None, None, None], mounts: vec![None, None], _local: local, lab };
        arena.open_root(LOCAL);
        for site in 0..SITES {
            arena.mount(site);
        }
        // Whatever they are at birth, from now on both are the same.
        for root in [0, LOCAL] {
            rustix::fs::fchmod(arena.root(root), Mode::from_raw_mode(0o777)).expect("our own");
        }
        Some(arena)
    }

    fn mount(&mut self, site: usize) {
        self.mounts[site] = Some(self.lab.mount(NAMES[site]));
        self.open_root(site);
    }

    fn open_root(&mut self, which: usize) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.roots[which] = Some(rustix::fs::open(self.path(which), flags, Mode::empty()).expect("mounted"));
    }

    /// Unmounts and mounts again. Nothing may be open there.
    pub fn remount(&mut self, site: usize) {
        self.unmount(site);
        self.mount(site);
    }

    pub fn unmount(&mut self, site: usize) {
        self.roots[site] = None;
        if let Some(mount) = self.mounts[site].take() {
            mount.unmount(&self.lab);
        }
    }

    pub fn root(&self, which: usize) -> BorrowedFd<'_> {
        self.roots[which].as_ref().expect("mounted").as_fd()
    }

    pub fn path(&self, which: usize) -> PathBuf {
        self.lab.path(if which == LOCAL { "local" } else { NAMES[which] })
    }
}

/// An ext4 of its own on a loop device; gone with the drop.
struct Local(Option<PathBuf>);

impl Local {
    fn new(lab: &Lab) -> Self {
        std::fs::create_dir(lab.path("local")).expect("made");
        // Without a journal, which changes nothing that is compared; with room for extended attributes as large as ours.
        let made = lab.sh("truncate -s 1G local.img\n\
            mkfs.ext4 -q -m 0 -O ^has_journal,ea_inode local.img\n\
            mount -o loop local.img local\n\
            rmdir local/lost+found");
        if made.code != 0 {
            println!(
                "no loop device with ext4 can be had; comparing with the file system of the temporary directory"
            );
            return Self(None);
        }
        Self(Some(lab.path("local")))
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
        }
    }
}
