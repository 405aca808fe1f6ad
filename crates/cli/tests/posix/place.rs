//! Where and as whom a case runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Uid};

use crate::arena::Arena;

/// A user and a group of the same number, and no other groups.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct User(pub u32);

impl User {
    pub const ROOT: Self = Self(0);
    pub const OTHER: Self = Self(65533);

    pub fn name(self) -> &'static str {
        if self == Self::ROOT { "root" } else { "user" }
    }
}

/// The directory of one case, on each of the roots that it goes around.
pub struct Place {
    sites: Vec<(PathBuf, OwnedFd)>,
    turn: usize,
    /// Open files, and the turn at which each was opened.
    pub held: BTreeMap<String, (OwnedFd, usize)>,
    /// Times that were looked at: access, change of content, change of the inode.
    pub marks: BTreeMap<String, [Timespec; 3]>,
}

impl Place {
    /// Everything from here on is done as `user`, to whom the directory belongs.
    pub fn new(arena: &Arena, roots: &[usize], user: User, name: &str) -> Self {
        let first = arena.path(roots[0]).join(name);
        rustix::fs::mkdir(&first, Mode::from_raw_mode(0o755)).expect("a directory for the case");
        let owner = (Some(Uid::from_raw(user.0)), Some(Gid::from_raw(user.0)));
        rustix::fs::chownat(CWD, &first, owner.0, owner.1, AtFlags::empty()).expect("root may");
        let sites = roots.iter().map(|root| {
            let path = arena.path(*root).join(name);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(&path, flags, Mode::empty()).expect("just made");
            (path, dir)
        });
        let place = Self { sites: sites.collect(), turn: 0, held: BTreeMap::new(), marks: BTreeMap::new() };
        become_user(user.0, user.0, &[]);
        place
    }

    /// The next step is on the next root.
    pub fn turn(&mut self) {
        self.turn += 1;
    }

    /// Keeps a file open.
    pub fn hold(&mut self, name: &str, file: OwnedFd) {
        self.held.insert(name.to_owned(), (file, self.turn));
    }

    /// The directory on the mount that a turn was on: links do not go from one mount to another.
    pub fn dir_at(&self, turn: usize) -> BorrowedFd<'_> {
        self.sites[turn % self.sites.len()].1.as_fd()
    }

    fn site(&self) -> &(PathBuf, OwnedFd) {
        &self.sites[self.turn % self.sites.len()]
    }

    /// The directory, for calls that take one.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.site().1.as_fd()
    }

    /// For calls that take none.
    pub fn path(&self, name: &str) -> PathBuf {
        self.site().0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        become_user(0, 0, &[]);
        rustix::process::umask(Mode::from_raw_mode(0o022));
    }
}

/// Changes who this thread is for its file systems; it can go back.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) {
    let none = |what: rustix::io::Result<()>| what.expect("root can become anybody");
    none(rustix::thread::set_thread_res_uid(None, Some(Uid::ROOT), None));
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    none(rustix::thread::set_thread_groups(&groups));
    none(rustix::thread::set_thread_res_gid(None, Some(Gid::from_raw(gid)), None));
    none(rustix::thread::set_thread_res_uid(None, Some(Uid::from_raw(uid)), None));
}
